//! Kinds of settings: how a value is written in a settings file, and what else is understood.
//!
//! Decides: that a time is a number of seconds or a text such as "500ms", that δ is a fraction (and rounded up to whole millionths:
//! a larger δ is the safe side, section 11.1), that counts and sizes are whole numbers.
//! Invariant: what `text` writes `read` understands, and gives the same value.
//! Leaves to others: whether a value can be used (the crates' own checks).

use cistern_client::{Address, IdlePolicy};
use cistern_text as args;
use std::time::Duration;
use toml::Value;

/// How the values of some settings are read and written.
pub(super) trait Kind {
    /// What the configuration holds.
    type Field;
    /// What may be written, for a person.
    const WANTED: &'static str;
    /// The value, if it is of this kind.
    fn read(value: &Value) -> Option<Self::Field>;
    /// The value as TOML.
    fn text(field: &Self::Field) -> String;
}

/// A span of time.
pub(super) struct Time;

impl Kind for Time {
    type Field = Duration;
    const WANTED: &'static str = "a time: a number of seconds, or a text such as \"500ms\", \"2s\", \"1m\"";

    fn read(value: &Value) -> Option<Duration> {
        match value {
            Value::String(text) => args::duration(text).ok(),
            Value::Integer(seconds) => u64::try_from(*seconds).ok().map(Duration::from_secs),
            Value::Float(seconds) => Duration::try_from_secs_f64(*seconds).ok(),
            _ => None,
        }
    }

    fn text(span: &Duration) -> String {
        let us = span.as_micros();
        match span.subsec_nanos() % 1_000 {
            ns @ 1.. => format!("\"{us}.{ns:03}us\""),
            _ if us.is_multiple_of(1_000_000) => format!("\"{}s\"", us / 1_000_000),
            _ if us.is_multiple_of(1_000) => format!("\"{}ms\"", us / 1_000),
            _ => format!("\"{us}us\""),
        }
    }
}

/// A fraction, held in millionths.
pub(super) struct Fraction;

/// A fraction of at most 1,000 in whole millionths, rounded up.
pub(crate) fn ppm(fraction: f64) -> Option<u32> {
    if !(0.0..=1e3).contains(&fraction) {
        return None;
    }
    // What cannot be told from a whole number of millionths for the want of binary digits is one.
    let millionths = (fraction * 1e6 - 1e-6).ceil().abs();
    // Text is the conversion that neither saturates nor wraps.
    format!("{millionths:.0}").parse().ok()
}

impl Kind for Fraction {
    type Field = u32;
    const WANTED: &'static str = "a fraction such as 0.01";

    fn read(value: &Value) -> Option<u32> {
        match value {
            Value::Float(fraction) => ppm(*fraction),
            Value::Integer(whole) => u32::try_from(*whole).ok()?.checked_mul(1_000_000),
            _ => None,
        }
    }

    fn text(ppm: &u32) -> String {
        let text = format!("{}.{:06}", ppm / 1_000_000, ppm % 1_000_000);
        let short = text.trim_end_matches('0');
        if short.ends_with('.') { format!("{short}0") } else { short.to_owned() }
    }
}

/// A count, or a size in bytes.
pub(super) struct Number<T>(std::marker::PhantomData<T>);

impl<T: TryFrom<i64> + Copy + std::fmt::Display> Kind for Number<T> {
    type Field = T;
    const WANTED: &'static str = "a whole number";

    fn read(value: &Value) -> Option<T> {
        T::try_from(value.as_integer()?).ok()
    }

    fn text(number: &T) -> String {
        let digits = number.to_string();
        let mut text = String::new();
        for (i, digit) in digits.chars().enumerate() {
            if i > 0 && (digits.len() - i).is_multiple_of(3) {
                text.push('_');
            }
            text.push(digit);
        }
        text
    }
}

/// A size in bytes.
pub(super) struct Size<T>(std::marker::PhantomData<T>);

impl<T: TryFrom<i64> + TryFrom<u64> + Copy + std::fmt::Display> Kind for Size<T> {
    type Field = T;
    const WANTED: &'static str = "a size: a whole number of bytes, or a text such as \"64M\", \"1G\"";

    fn read(value: &Value) -> Option<T> {
        match value {
            Value::String(text) => T::try_from(args::size(text).ok()?).ok(),
            value => Number::<T>::read(value),
        }
    }

    fn text(size: &T) -> String {
        Number::<T>::text(size)
    }
}

/// Yes or no.
pub(super) struct Switch;

impl Kind for Switch {
    type Field = bool;
    const WANTED: &'static str = "true or false";

    fn read(value: &Value) -> Option<bool> {
        value.as_bool()
    }

    fn text(on: &bool) -> String {
        on.to_string()
    }
}

/// One address, or a list of them.
pub(super) struct Addresses;

impl Kind for Addresses {
    type Field = Vec<String>;
    const WANTED: &'static str = "a text, or a list of texts";

    fn read(value: &Value) -> Option<Vec<String>> {
        let names = match value {
            Value::String(name) => vec![name.clone()],
            Value::Array(names) => names.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<_>>()?,
            _ => return None,
        };
        (!names.is_empty() && names.iter().all(|name: &String| name.parse::<Address>().is_ok())).then_some(names)
    }

    fn text(names: &Vec<String>) -> String {
        match &names[..] {
            [name] => Value::from(name.as_str()).to_string(),
            names => Value::from(names.to_vec()).to_string(),
        }
    }
}

/// What is in the log.
pub(super) struct LogFilter;

impl Kind for LogFilter {
    type Field = String;
    const WANTED: &'static str = "a text";

    fn read(value: &Value) -> Option<String> {
        value.as_str().filter(|text| crate::logging::check(text).is_ok()).map(str::to_owned)
    }

    fn text(filter: &String) -> String {
        Value::from(filter.as_str()).to_string()
    }
}

/// What an idle agent does.
pub(super) struct Policy;

impl Kind for Policy {
    type Field = IdlePolicy;
    const WANTED: &'static str = "one of these texts";

    fn read(value: &Value) -> Option<IdlePolicy> {
        POLICIES.iter().find(|(name, _)| value.as_str() == Some(name)).map(|(_, policy)| *policy)
    }

    fn text(policy: &IdlePolicy) -> String {
        POLICIES.iter().find(|(_, known)| known == policy).map_or_else(String::new, |(name, _)| format!("{name:?}"))
    }
}

const POLICIES: [(&str, IdlePolicy); 3] = [("eager", IdlePolicy::Eager), ("lazy", IdlePolicy::Lazy), ("auto", IdlePolicy::Auto)];

#[cfg(test)]
mod tests {
    use super::*;

    fn again<K: Kind>(field: &K::Field) -> Option<K::Field> {
        let text = format!("x = {}", K::text(field));
        K::read(&text.parse::<toml::Table>().unwrap_or_else(|e| panic!("{text}: {e}"))["x"])
    }

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let round = [0, 1, 999, 1_000, 1_001, 1_500, 20_000_000, 500_000_000, 1_000_000_000, 2_000_001_000, 3_600_000_000_000, u64::MAX];
        let ragged = (0..2_000).map(|n: u64| (n * n * n).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (n % 64));
        for span in round.into_iter().chain(ragged).map(Duration::from_nanos).chain([Duration::MAX]) {
            assert_eq!(again::<Time>(&span), Some(span));
        }
        for millionths in [0, 1, 3_000, 10_000, 999_999, 1_000_000] {
            assert_eq!(again::<Fraction>(&millionths), Some(millionths));
        }
        for number in [0u32, 7, 999, 1_000, 1_048_576, u32::MAX] {
            assert_eq!(again::<Number<u32>>(&number), Some(number));
        }
        assert_eq!(again::<Switch>(&true), Some(true));
        for names in [vec!["a".to_owned()], vec!["[::1]:7311".to_owned(), "c:4096".to_owned()]] {
            assert_eq!(again::<Addresses>(&names), Some(names));
        }
        for policy in [IdlePolicy::Eager, IdlePolicy::Lazy, IdlePolicy::Auto] {
            assert_eq!(again::<Policy>(&policy), Some(policy));
        }
    }

    #[test]
    fn a_fraction_is_rounded_up() {
        for (fraction, millionths) in [(0.01, 10_000), (0.010_000_4, 10_001), (0.07, 70_000), (0.29, 290_000)] {
            assert_eq!(ppm(fraction), Some(millionths));
        }
        for fraction in [f64::NAN, f64::INFINITY, -0.5] {
            assert_eq!(ppm(fraction), None, "{fraction}");
        }
    }

    #[test]
    fn values_of_another_kind_are_no_values() {
        assert_eq!(Time::read(&Value::String("soon".to_owned())), None);
        assert_eq!(Time::read(&Value::Integer(-1)), None);
        assert_eq!(Number::<u16>::read(&Value::Integer(70_000)), None);
        assert_eq!((Size::<u32>::read(&Value::from("64M")), Size::<u32>::read(&Value::from("8G"))), (Some(64 << 20), None));
        assert_eq!((Size::<u64>::read(&Value::Integer(5)), Size::<u64>::read(&Value::from("5 apples"))), (Some(5), None));
        assert_eq!(Number::<u16>::read(&Value::Float(7.0)), None);
        assert_eq!(Fraction::read(&Value::String("0.01".to_owned())), None);
        assert_eq!(Switch::read(&Value::Integer(1)), None);
        assert_eq!((Addresses::read(&Value::Array(Vec::new())), Addresses::read(&Value::String(String::new()))), (None, None));
        assert_eq!(Addresses::read(&Value::from("http://meta:80")), None);
    }
}
