//! Quantities for models: rates, times in days, shares in percent.
//!
//! Decides: that every one of them is a finite number above zero, since no model has an answer for anything else, and neither so small
//! nor so large, in the unit that models count in, that its inverse or a product with others is beyond `f64`.
//! Leaves to others: what the quantities are for.

/// What is beyond is no quantity of a lease, and what models compute from it might be no number.
const RANGE: std::ops::RangeInclusive<f64> = 1e-30..=1e30;

/// Most agents, objects and volumes: products of two of them, and records of ten bytes, are still counted exactly enough.
const COUNT_MAX: f64 = 1e12;

/// A finite number above zero, from 1e-30 to 1e30.
///
/// # Errors
/// It is none, or beyond that range.
pub fn number(text: &str) -> Result<f64, String> {
    within(text, finite(text)?)
}

fn finite(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().map_err(|_| format!("{text:?} is not a number"))?;
    if number > 0.0 && number.is_finite() { Ok(number) } else { Err(format!("{text} is given; it must be a finite number above zero")) }
}

/// Checks what came of `text` once its unit was counted in.
fn within(text: &str, number: f64) -> Result<f64, String> {
    if RANGE.contains(&number) { Ok(number) } else { Err(format!("{text} is given; it must be between 1e-30 and 1e30")) }
}

/// How many there are: a whole number from 1 to 1e12.
///
/// # Errors
/// It is none, or too large.
pub fn count(text: &str) -> Result<f64, String> {
    let count = number(text)?;
    if count > COUNT_MAX {
        Err(format!("{text} is given; it must be at most 1e12"))
    } else if count.fract() != 0.0 {
        Err(format!("{text} is given; it must be a whole number"))
    } else {
        Ok(count)
    }
}

/// `10/s`, `600/min`, `1/d`, or a plain number, which is per second: events in a second.
///
/// # Errors
/// It is none, zero, or beyond what models can compute with.
pub fn rate(text: &str) -> Result<f64, String> {
    let (count, unit) = text.split_once('/').unwrap_or((text, "s"));
    let per = match unit.trim() {
        "s" => 1.0,
        "ms" => 1e-3,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit => return Err(format!("{unit:?} is no unit of time: write 10/s, 600/min, 20/h or 1/d")),
    };
    within(text, finite(count)? / per)
}

/// `2s`, `200ms`, `1d`, or a plain number, which is in seconds: seconds.
///
/// # Errors
/// It is none, or zero.
pub fn time(text: &str) -> Result<f64, String> {
    let span = crate::duration(text)?.as_secs_f64();
    if span > 0.0 { Ok(span) } else { Err("a time must be above zero here".to_owned()) }
}

/// `1%` or `0.01`.
///
/// # Errors
/// It is none, zero or less, or immense.
pub fn share(text: &str) -> Result<f64, String> {
    text.strip_suffix('%').map_or_else(|| number(text), |percent| within(text, finite(percent)? / 100.0))
}

/// `10%` or `0.1`, less than the whole.
///
/// # Errors
/// It is none, or not between nothing and the whole.
pub fn fraction(text: &str) -> Result<f64, String> {
    let share = share(text)?;
    if share < 1.0 { Ok(share) } else { Err(format!("{text} is given; it must be below 1, which is 100%")) }
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
        for text in ["1e-320", "1e-31", "1e31", "1e308"] {
            assert!(number(text).is_err() && rate(text).is_err() && share(text).is_err() && count(text).is_err(), "{text}");
        }
        // The number is none, or too small, only once it is divided.
        for text in ["1e-320/d", "1e-30/d"] {
            assert!(rate(text).unwrap_err().contains("between 1e-30 and 1e30"));
        }
        assert!(share("1e-30%").unwrap_err().contains("between 1e-30 and 1e30"));
        assert_eq!(count("1e12"), Ok(1e12));
        assert_eq!(count("2e12"), Err("2e12 is given; it must be at most 1e12".to_owned()));
        assert_eq!(count("0.5"), Err("0.5 is given; it must be a whole number".to_owned()));
        assert_eq!(fraction("99%"), Ok(0.99));
        assert!(fraction("100%").is_err() && fraction("1.5").unwrap_err().contains("below 1") && fraction("0").is_err());
        assert!(share("-1%").is_err() && share("0%").is_err() && share("%").is_err());
    }
}
