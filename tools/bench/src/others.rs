//! Who else was running: the CPU that the machine spent in a run, without that of this program and of what it started.
//!
//! Decides that others are what is left of user, system and stolen time (`/proc/stat`) when the CPU times of this process and of its
//! children that have ended are taken away; interrupts are left out, for the kernel charges them to whom it likes.
//! Place: read when a run begins and when it ends, shown by `report`. Invariant: what is not known is not said to be quiet.
//! Source: proc_stat(5) and proc_pid_stat(5), whose ticks are hundredths of a second for programs on every 64-bit Linux system.

use std::fs;
use std::time::Instant;

/// In a second.
const TICKS: f64 = 100.0;

/// A reading.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    at: Instant,
    /// Of all cores, in seconds.
    all: f64,
    /// Of this process and of its children that have ended, in seconds.
    own: f64,
}

/// What others did between two readings.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Others {
    /// Cores that they used on average.
    pub(crate) cores: f64,
}

impl Busy {
    /// Up to now; `None` where the system does not tell.
    pub(crate) fn now() -> Option<Self> {
        let all = of_all(&fs::read_to_string("/proc/stat").ok()?)? / TICKS;
        let own = of_one(&fs::read_to_string("/proc/self/stat").ok()?)? / TICKS;
        Some(Self { at: Instant::now(), all, own })
    }
}

impl Others {
    /// Since an earlier reading; `None` if one of the two is missing, or if the system shows less than this program alone has used.
    pub(crate) fn since(earlier: Option<Busy>) -> Option<Self> {
        Self::between(earlier?, Busy::now()?)
    }

    fn between(earlier: Busy, later: Busy) -> Option<Self> {
        let (all, own) = (later.all - earlier.all, later.own - earlier.own);
        // Both are counted in ticks; what is half a figure off counts other cores than those that this program ran on.
        let is_of_this_machine = all >= own / 2.0 - 0.1;
        let span = (later.at - earlier.at).as_secs_f64();
        (is_of_this_machine && span > 0.0).then(|| Self { cores: (all - own).max(0.0) / span })
    }
}

/// User, nice, system and stolen time of all cores, in ticks.
fn of_all(stat: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let fields: Vec<f64> = line.split_whitespace().map_while(|field| field.parse().ok()).collect();
    let [user, nice, system, _idle, _iowait, _irq, _softirq, steal, ..] = fields[..] else { return None };
    Some(user + nice + system + steal)
}

/// User and system time of a process and of its children that have ended, in ticks.
fn of_one(stat: &str) -> Option<f64> {
    // The program's name, in brackets, may have spaces and brackets.
    let (_, fields) = stat.rsplit_once(") ")?;
    let times: Vec<f64> = fields.split_whitespace().skip(11).take(4).map_while(|field| field.parse().ok()).collect();
    (times.len() == 4).then(|| times.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn stolen_time_counts_and_waiting_does_not() {
        assert_eq!(of_all("cpu  10 20 30 4000 500 6 7 80 9 10\ncpu0 1 1 1 1 1 1 1 1 1 1\n"), Some(140.0));
        assert_eq!(of_all("intr 5\n"), None);
        assert_eq!(of_one("7 (a) b (c) R 1 7 7 0 -1 4194304 1 0 0 0 100 20 3000 400 20 0 1\n"), Some(3_520.0));
        assert_eq!(of_one("7 (a) R 1"), None);
    }

    #[test]
    fn others_are_what_is_left_without_this_program_and_unknown_where_that_is_absurd() {
        let begin = Instant::now();
        let reading = |seconds, all, own| Busy { at: begin + Duration::from_secs(seconds), all, own };
        let cores = |all, own| Others::between(reading(0, 100.0, 1.0), reading(10, 100.0 + all, 1.0 + own)).map(|others| others.cores);
        assert_eq!((cores(18.0, 8.0), cores(8.0, 8.0), cores(7.5, 8.0)), (Some(1.0), Some(0.0), Some(0.0)));
        assert_eq!(cores(0.0, 8.0), None);
    }
}
