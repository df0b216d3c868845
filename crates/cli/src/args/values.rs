//! Values as people write them on command lines and in settings: times, sizes, permission bits.
//!
//! Decides: their forms and what is wrong with what has another one. Leaves to others: which values a setting takes.

use std::time::Duration;

/// `1.5s`, `200ms`, `3m`, `1d`, or a plain number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit => return Err(format!("{unit:?} is no unit of time: use us, ms, s, m, h or d")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| "a time must be zero or more, and not immense".to_owned())
}

/// `10G`, `512MiB`, or a plain number of bytes; units are powers of 1,024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
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

pub(crate) fn octal(text: &str) -> Result<u16, String> {
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
        for (text, ms) in [("2", 2_000), ("1.5s", 1_500), ("200ms", 200), ("2m", 120_000), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1 fortnight", "nan", "1e400", "inf"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
