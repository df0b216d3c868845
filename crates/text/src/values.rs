//! Values as people write them on command lines and in settings: times, sizes, permission bits.
//!
//! Decides: their forms and what is wrong with what has another one. Leaves to others: which values a setting takes.

use std::time::Duration;

/// `1.5s`, `200ms`, `3m`, `1d`, or a plain number of seconds; exact to the nanosecond.
///
/// # Errors
/// What is wrong with it, in words.
pub fn duration(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit: u64 = match &text[number.len()..] {
        "" | "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" => 1_000,
        "m" | "min" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        "d" => 86_400_000_000_000,
        unit => return Err(format!("{unit:?} is no unit of time: use us, ms, s, m, h or d")),
    };
    if number.starts_with('-') {
        return Err("a time must be zero or more".to_owned());
    }
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if number.trim_matches('.').is_empty() || !(whole.bytes().chain(part.bytes())).all(|byte| byte.is_ascii_digit()) {
        return Err(format!("{number:?} is not a number"));
    }
    let immense = || "a time must not be immense".to_owned();
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| immense())? };
    // Digits behind these are less than a nanosecond of any unit.
    let part = &part[..part.len().min(18)];
    let part: u128 = if part.is_empty() {
        0
    } else {
        part.parse::<u128>().map_err(|_| immense())? * u128::from(unit) / 10u128.pow(part.len().try_into().unwrap_or(18))
    };
    let ns = whole.checked_mul(unit.into()).and_then(|ns| ns.checked_add(part)).ok_or_else(immense)?;
    let seconds = u64::try_from(ns / 1_000_000_000).map_err(|_| immense())?;
    Ok(Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(ns % 1_000_000_000).unwrap_or(0)))
}

/// `10G`, `512MiB`, or a plain number of bytes; units are powers of 1,024.
///
/// # Errors
/// What is wrong with it, in words.
pub fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        unit => return Err(format!("{unit:?} is no unit of size: use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a whole number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "a size must not be immense".to_owned())
}

/// Permission bits in octal.
///
/// # Errors
/// It is no octal number, or too large.
pub fn octal(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| "permission bits are octal, 0 to 7777".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("4096", 4_096), ("2K", 2_048), ("3MiB", 3 << 20), ("10G", 10 << 30), ("1TB", 1 << 40)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "1P", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, ms) in [("2", 2_000), ("1.5s", 1_500), ("200ms", 200), ("2m", 120_000), ("0", 0), (".5", 500), ("1d", 86_400_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        assert_eq!(duration("1.25us"), Ok(Duration::from_nanos(1_250)));
        assert_eq!(duration("1.000000001s"), Ok(Duration::from_nanos(1_000_000_001)));
        for text in ["", "s", ".", "1.2.3s", "-1s", "1 fortnight", "nan", "1e400", "inf", "99999999999999999999999d"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
