//! Times as lines show them, and as options name them.
//!
//! Decides: the forms of `-t` to `-ttttt`, which are tcpdump's except that times of day are UTC, as in the logs of Cistern's programs;
//! and the forms that `--from` and `--to` take. Leaves to others: what happened then.

use jiff::Timestamp;
use std::str::FromStr;
use std::time::Duration;

const DAY: u64 = 86_400;

/// How the time of a line is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeForm {
    /// Time of day.
    Clock,
    /// Not at all.
    Nothing,
    /// Seconds since 1970.
    Epoch,
    /// Since the line before.
    SinceLast,
    /// Date and time of day.
    Date,
    /// Since the first line.
    SinceFirst,
}

impl TimeForm {
    /// By the number of `t`s.
    #[must_use]
    pub const fn by_count(count: u8) -> Self {
        match count {
            0 => Self::Clock,
            1 => Self::Nothing,
            2 => Self::Epoch,
            3 => Self::SinceLast,
            4 => Self::Date,
            _ => Self::SinceFirst,
        }
    }
}

/// Shows times in a form; remembers the lines that the form counts from.
#[derive(Clone, Debug)]
pub struct Clock {
    form: TimeForm,
    first: Option<Duration>,
    last: Option<Duration>,
}

impl Clock {
    /// A clock of this form.
    #[must_use]
    pub const fn new(form: TimeForm) -> Self {
        Self { form, first: None, last: None }
    }

    /// The time of the next line, with a space behind it; empty if it is not shown.
    pub fn line(&mut self, at: Duration) -> String {
        let first = *self.first.get_or_insert(at);
        let last = self.last.replace(at).unwrap_or(at);
        match self.form {
            TimeForm::Clock => format!("{} ", time_of_day(at)),
            TimeForm::Nothing => String::new(),
            TimeForm::Epoch => format!("{} ", seconds(at)),
            TimeForm::SinceLast => format!("{} ", since(last, at)),
            TimeForm::Date => format!("{} ", date(at)),
            TimeForm::SinceFirst => format!("{} ", since(first, at)),
        }
    }

    /// A time that a line mentions, in the same form as its own where that is possible.
    #[must_use]
    pub fn mention(&self, at: Duration) -> String {
        match (self.form, self.first) {
            (TimeForm::Epoch, _) => seconds(at),
            (TimeForm::SinceFirst, Some(first)) => since(first, at),
            _ => time_of_day(at),
        }
    }
}

/// `04:50:09.123456`, in UTC.
#[must_use]
pub fn time_of_day(at: Duration) -> String {
    let second = at.as_secs() % DAY;
    format!("{:02}:{:02}:{:02}.{:06}", second / 3_600, second / 60 % 60, second % 60, at.subsec_micros())
}

/// `2026-11-22 04:50:09.123456`, in UTC.
#[must_use]
pub fn date(at: Duration) -> String {
    let day = i64::try_from(at.as_secs()).ok().and_then(|second| Timestamp::from_second(second).ok());
    match day {
        Some(day) => format!("{} {}", day.strftime("%Y-%m-%d"), time_of_day(at)),
        // After the year 9999.
        None => seconds(at),
    }
}

/// `1700000000.123456`.
#[must_use]
pub fn seconds(at: Duration) -> String {
    format!("{}.{:06}", at.as_secs(), at.subsec_micros())
}

/// `+0.000123`, or with a minus for what was captured out of order.
fn since(start: Duration, at: Duration) -> String {
    if at < start { format!("-{}", seconds(start - at)) } else { format!("+{}", seconds(at - start)) }
}

/// A span as people say it, to the microsecond.
#[must_use]
pub fn span(span: Duration) -> String {
    crate::words::micros(u64::try_from(span.as_micros()).unwrap_or(u64::MAX))
}

/// A time as an option names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// An instant.
    At(Duration),
    /// A time on the day of the first datagram (UTC).
    OfDay(Duration),
    /// So long after the first datagram.
    AfterFirst(Duration),
}

impl When {
    /// The instant, once the first datagram is known.
    #[must_use]
    pub fn instant(self, first: Duration) -> Duration {
        match self {
            Self::At(at) => at,
            Self::OfDay(time) => Duration::from_secs(first.as_secs() / DAY * DAY) + time,
            Self::AfterFirst(after) => first.saturating_add(after),
        }
    }
}

impl FromStr for When {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "{text:?} is no time: write 04:50:09.5 (on the day of the first datagram), +2.5 (seconds after it), 2026-11-22T04:50:09Z, or seconds since 1970; all in UTC"
            )
        };
        if let Some(after) = text.strip_prefix('+') {
            return span_of(after).map(Self::AfterFirst).ok_or_else(wrong);
        }
        if let Some(at) = span_of(text) {
            return Ok(Self::At(at));
        }
        if let Ok(at) = text.replacen(' ', "T", 1).parse::<Timestamp>().or_else(|_| format!("{}Z", text.replacen(' ', "T", 1)).parse()) {
            return Duration::try_from(at.as_duration()).map(Self::At).map_err(|_| wrong());
        }
        let parts: Vec<_> = text.split(':').collect();
        let [hours, minutes, seconds @ ..] = parts.as_slice() else { return Err(wrong()) };
        let whole = |text: &str, below: u64| text.parse::<u64>().ok().filter(|&n| n < below);
        let seconds = match seconds {
            [] => Some(Duration::ZERO),
            [seconds] => span_of(seconds).filter(|&n| n < Duration::from_secs(61)),
            _ => None,
        };
        match (whole(hours, 24), whole(minutes, 60), seconds) {
            (Some(hours), Some(minutes), Some(seconds)) => Ok(Self::OfDay(Duration::from_secs(hours * 3_600 + minutes * 60) + seconds)),
            _ => Err(wrong()),
        }
    }
}

/// Decimal seconds, exactly.
fn span_of(text: &str) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(part) || part.len() > 9 {
        return None;
    }
    Some(Duration::new(whole.parse().ok()?, format!("{part:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Duration = Duration::new(1_795_323_009, 123_456_789);

    #[test]
    fn each_number_of_ts_is_a_form_of_its_own() {
        let shown: Vec<_> = (0..=5)
            .map(|count| {
                let mut clock = Clock::new(TimeForm::by_count(count));
                clock.line(AT);
                clock.line(AT + Duration::from_millis(1));
                clock.line(AT + Duration::from_millis(3))
            })
            .collect();
        let expected = ["04:50:09.126456 ", "", "1795323009.126456 ", "+0.002000 ", "2026-11-22 04:50:09.126456 ", "+0.003000 "];
        assert_eq!(shown, expected);
    }

    #[test]
    fn times_are_read_in_every_form_that_the_error_names() {
        let day = Duration::from_secs(1_795_323_009 / DAY * DAY);
        let read = |text: &str| When::from_str(text).map(|when| when.instant(AT));
        assert_eq!(read("04:50:09.5"), Ok(day + Duration::from_millis(((4 * 60 + 50) * 60 + 9) * 1_000 + 500)));
        assert_eq!(read("04:50"), Ok(day + Duration::from_secs((4 * 60 + 50) * 60)));
        assert_eq!(read("+2.5"), Ok(AT + Duration::from_millis(2_500)));
        assert_eq!(read("2026-11-22T04:50:09Z"), Ok(Duration::from_secs(1_795_323_009)));
        assert_eq!(read("2026-11-22 04:50:09.25"), Ok(Duration::new(1_795_323_009, 250_000_000)));
        assert_eq!(read("1795323009.123456789"), Ok(AT));
        for wrong in ["", "+", "noon", "25:00", "04:61", "1.2.3", "-5", "04:50:09:1"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
