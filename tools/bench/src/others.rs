//! Who else was running: the CPU that the machine spent in a run, without that of this program and of what it started.
//!
//! Decides that others are what is left of user, system and stolen time (`/proc/stat`) when the CPU times of this process and of its
//! children that have ended are taken away; interrupts are left out, for the kernel charges them to whom it likes.
//! Place: read when a run begins and when it ends, shown by `report`. Invariant: what is not known is not said to be quiet.
//! Source: proc_stat(5) and proc_pid_stat(5), whose ticks are hundredths of a second for programs on every 64-bit Linux system.

use crate::figures::count;
use procfs::process::Process;
use procfs::{CurrentSI as _, KernelStats};
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
        let all = KernelStats::current().ok()?.total;
        let own = Process::myself().and_then(|process| process.stat()).ok()?;
        let all = all.user + all.nice + all.system + all.steal.unwrap_or(0);
        let own = own.utime + own.stime + u64::try_from(own.cutime + own.cstime).ok()?;
        Some(Self { at: Instant::now(), all: count(all) / TICKS, own: count(own) / TICKS })
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn others_are_what_is_left_without_this_program_and_unknown_where_that_is_absurd() {
        let begin = Instant::now();
        let reading = |seconds, all, own| Busy { at: begin + Duration::from_secs(seconds), all, own };
        let cores = |all, own| Others::between(reading(0, 100.0, 1.0), reading(10, 100.0 + all, 1.0 + own)).map(|others| others.cores);
        assert_eq!((cores(18.0, 8.0), cores(8.0, 8.0), cores(7.5, 8.0)), (Some(1.0), Some(0.0), Some(0.0)));
        assert_eq!(cores(0.0, 8.0), None);
    }
}
