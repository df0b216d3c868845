//! A log in which the same warning comes once a minute, and lines of one kind so often as somebody can read them.
//!
//! Decides: which warnings are the same (their text and where they are logged), and that a line says how often it came meanwhile; and how
//! many lines a minute one place of the code may log, whatever their text: agents without number that come and go do not fill a disk.
//! Invariant: what is remembered is bounded; warnings that find no room are logged. Debug and trace lines are asked for, and all of them
//! are handed on, and all of [`AUDIT`], behind which nobody hides one.

use log::{Level, Log, Metadata, Record};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time between two lines of the same text.
const PERIOD: Duration = Duration::from_secs(60);
/// Most lines that are remembered.
const KNOWN_MAX: usize = 1_024;
/// Most lines of one place in the code in a period: more than ten a second.
const PLACE_MAX: u64 = 1_000;

/// The target of lines of which none is left out: whoever logs there bounds how many there are.
pub const AUDIT: &str = "audit";

/// A log that leaves out warnings and errors that it has had in the last minute, and what is more than a place may log.
#[derive(Debug)]
pub struct LogRepeats<L> {
    log: L,
    /// By the hash of a line, when it was handed on, and how often it came since.
    known: Mutex<HashMap<u64, (Instant, u64)>>,
    /// By the hash of where they are logged, the lines of this period.
    places: Mutex<HashMap<u64, Period>>,
}

/// The lines of one place in the code.
#[derive(Debug)]
struct Period {
    since: Instant,
    lines: u64,
}

impl<L: Log> LogRepeats<L> {
    /// Before `log`.
    pub fn new(log: L) -> Self {
        Self { log, known: Mutex::default(), places: Mutex::default() }
    }

    /// What is to be said with a line of `place` beside its text; `None`: it is not to be handed on.
    fn bound(&self, place: u64, now: Instant) -> Option<String> {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let place = places.entry(place).or_insert(Period { since: now, lines: 0 });
        let mut left_out = 0;
        if now.saturating_duration_since(place.since) >= PERIOD {
            left_out = place.lines.saturating_sub(PLACE_MAX);
            *place = Period { since: now, lines: 0 };
        }
        place.lines += 1;
        match place.lines {
            1 if left_out > 0 => Some(format!(" ({left_out} lines like this were left out)")),
            ..PLACE_MAX => Some(String::new()),
            PLACE_MAX => Some(format!(" (the {PLACE_MAX}th line like this; more are left out until a minute is over)")),
            _ => None,
        }
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
        if record.level() > Level::Info || record.target() == AUDIT || !self.log.enabled(record.metadata()) {
            return self.log.log(record);
        }
        let now = Instant::now();
        let mut hasher = DefaultHasher::new();
        (record.target(), record.line()).hash(&mut hasher);
        let place = hasher.finish();
        let mut more = 0;
        let text = record.args().to_string();
        if record.level() <= Level::Warn {
            text.hash(&mut hasher);
            match self.admit(hasher.finish(), now) {
                None => return,
                Some(count) => more = count,
            }
        }
        let Some(bound) = self.bound(place, now) else { return };
        if more == 0 && bound.is_empty() {
            return self.log.log(record);
        }
        let repeated = if more == 0 { String::new() } else { format!(" ({more} times more since this was logged)") };
        let (level, target, line) = (record.level(), record.target(), record.line());
        let builder = &mut Record::builder();
        let builder = builder.level(level).target(target).line(line);
        self.log.log(&builder.args(format_args!("{text}{repeated}{bound}")).build());
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
    fn lines_of_one_place_are_left_out_and_counted_when_they_are_too_many() {
        let lines = Lines::default();
        let log = LogRepeats::new(lines.clone());
        let say = |level, line, text: &str| log.log(&Record::builder().level(level).line(Some(line)).args(format_args!("{text}")).build());
        for (level, line) in [(Level::Info, 1), (Level::Warn, 2)] {
            for n in 0..PLACE_MAX + 500 {
                say(level, line, &format!("agent {n} came"));
            }
            let mut told = std::mem::take(&mut *lines.0.lock().unwrap());
            assert_eq!(told.len() as u64, PLACE_MAX);
            assert_eq!(told.pop().unwrap(), "agent 999 came (the 1000th line like this; more are left out until a minute is over)");
        }
        say(Level::Info, 3, "another place");
        for _ in 0..=PLACE_MAX {
            say(Level::Debug, 4, "asked for");
            log.log(&Record::builder().level(Level::Info).target(AUDIT).line(Some(5)).args(format_args!("granted")).build());
        }
        assert_eq!(std::mem::take(&mut *lines.0.lock().unwrap()).len() as u64, 2 * (PLACE_MAX + 1) + 1);
        // A minute later.
        log.places.lock().unwrap().values_mut().for_each(|place| place.since = place.since.checked_sub(PERIOD).unwrap());
        say(Level::Info, 1, "agent 5000 came");
        say(Level::Info, 1, "agent 5001 came");
        assert_eq!(*lines.0.lock().unwrap(), ["agent 5000 came (500 lines like this were left out)", "agent 5001 came"]);
    }

    #[test]
    fn warnings_without_number_are_logged_and_not_remembered() {
        let log = LogRepeats::new(Lines::default());
        let now = Instant::now();
        assert!((0..5_000).all(|line| log.admit(line, now) == Some(0)));
        assert_eq!(log.known.lock().unwrap().len(), KNOWN_MAX);
    }
}
