//! Quantities on the command lines of models: rates, times in days, shares in percent.
//!
//! Decides: that every one of them is a finite number above zero, since no model has an answer for anything else.
//! Leaves to others: spans of time in settings (`duration`), what the quantities are for.

/// A finite number above zero.
pub(crate) fn number(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err(format!("{text} is given; it must be a finite number above zero")) }
}

/// `10/s`, `600/min`, `1/d`, or a plain number, which is per second: events in a second.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let (count, unit) = text.split_once('/').unwrap_or((text, "s"));
    let per = match unit.trim() {
        "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit => return Err(format!("{unit:?} is no unit of time: write 10/s, 600/min, 20/h or 1/d")),
    };
    number(count).map(|count| count / per)
}

/// `2s`, `200ms`, `1d`, or a plain number, which is in seconds: seconds.
pub(crate) fn time(text: &str) -> Result<f64, String> {
    let span = super::duration(text)?.as_secs_f64();
    if span > 0.0 { Ok(span) } else { Err("a time must be above zero here".to_owned()) }
}

/// `1%` or `0.01`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    text.strip_suffix('%').map_or_else(|| number(text), |percent| number(percent).map(|percent| percent / 100.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_read_as_people_write_them() {
        assert_eq!([rate("10/s"), rate("600/min"), rate("0.5"), rate("8640/d")], [Ok(10.0), Ok(10.0), Ok(0.5), Ok(0.1)]);
        assert_eq!([time("2s"), time("250ms"), time("1d"), time("1.5")], [Ok(2.0), Ok(0.25), Ok(86_400.0), Ok(1.5)]);
        assert_eq!([share("1%"), share("0.01"), share("250%")], [Ok(0.01), Ok(0.01), Ok(2.5)]);
    }

    #[test]
    fn what_is_no_quantity_is_refused_in_words() {
        for text in ["0", "-1", "nan", "NaN", "inf", "-inf", "1e999", "", "ten"] {
            assert!(number(text).is_err() && rate(text).is_err() && time(text).is_err() && share(text).is_err(), "{text}");
        }
        assert_eq!(number("-1"), Err("-1 is given; it must be a finite number above zero".to_owned()));
        assert!(rate("10/fortnight").unwrap_err().contains("no unit of time"));
        assert!(share("-1%").is_err() && share("0%").is_err() && share("%").is_err());
    }
}
