//! A log in which the same warning comes once a minute.
//!
//! Decides: which warnings are the same (their text and where they are logged), and that a line says how often it came meanwhile.
//! Place in the walk: before a log's own filter and format. Invariant: what is remembered is bounded; what finds no room is logged.
//! Leaves to others: warnings that differ in their text although they are about one thing; who logs them counts those.

use log::{Level, Log, Metadata, Record};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of the same text.
const PERIOD: Duration = Duration::from_secs(60);
/// Most lines that are remembered.
const KNOWN_MAX: usize = 1_024;

/// A log that leaves out warnings and errors that it has had in the last minute, and hands all else on.
#[derive(Debug)]
pub struct LogRepeats<L> {
    log: L,
    /// By the hash of a line, when it was handed on, and how often it came since.
    known: Mutex<HashMap<u64, (Instant, u64)>>,
}

impl<L: Log> LogRepeats<L> {
    /// Before `log`.
    pub fn new(log: L) -> Self {
        Self { log, known: Mutex::default() }
    }

    /// How often a line came without being handed on; `None`: it is not to be handed on now.
    fn admit(&self, line: u64, now: Instant) -> Option<u64> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((at, more)) = known.get_mut(&line) {
            if now.saturating_duration_since(*at) < PERIOD {
                *more += 1;
                return None;
            }
            *at = now;
            return Some(std::mem::take(more));
        }
        if known.len() >= KNOWN_MAX {
            known.retain(|_, (at, _)| now.saturating_duration_since(*at) < PERIOD);
        }
        if known.len() < KNOWN_MAX {
            known.insert(line, (now, 0));
        }
        Some(0)
    }
}

impl<L: Log> Log for LogRepeats<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.log.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if record.level() > Level::Warn || !self.log.enabled(record.metadata()) {
            return self.log.log(record);
        }
        let text = record.args().to_string();
        let mut hasher = DefaultHasher::new();
        (record.target(), record.line(), &text).hash(&mut hasher);
        match self.admit(hasher.finish(), Instant::now()) {
            None => {}
            Some(0) => self.log.log(record),
            Some(more) => {
                let (level, target, line) = (record.level(), record.target(), record.line());
                let builder = &mut Record::builder();
                let builder = builder.level(level).target(target).line(line);
                self.log.log(&builder.args(format_args!("{text} ({more} times more since this was logged)")).build());
            }
        }
    }

    fn flush(&self) {
        self.log.flush();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl Log for Lines {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn log(&self, record: &Record<'_>) {
            self.0.lock().unwrap().push(record.args().to_string());
        }

        fn flush(&self) {}
    }

    #[test]
    fn the_same_warning_is_one_line_a_minute_with_a_count() {
        let lines = Lines::default();
        let log = LogRepeats::new(lines.clone());
        let say = |level, text: &str| log.log(&Record::builder().level(level).args(format_args!("{text}")).build());
        for _ in 0..100 {
            say(Level::Warn, "trouble");
        }
        say(Level::Warn, "other trouble");
        for _ in 0..3 {
            say(Level::Info, "news");
        }
        assert_eq!(*lines.0.lock().unwrap(), ["trouble", "other trouble", "news", "news", "news"]);
        // A minute later.
        log.known.lock().unwrap().retain(|_, (at, _)| {
            *at = at.checked_sub(PERIOD).unwrap();
            true
        });
        say(Level::Warn, "trouble");
        assert_eq!(lines.0.lock().unwrap().last().unwrap(), "trouble (99 times more since this was logged)");
    }

    #[test]
    fn warnings_without_number_are_logged_and_not_remembered() {
        let log = LogRepeats::new(Lines::default());
        let now = Instant::now();
        assert!((0..5_000).all(|line| log.admit(line, now) == Some(0)));
        assert_eq!(log.known.lock().unwrap().len(), KNOWN_MAX);
    }
}
