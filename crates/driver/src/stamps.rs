//! The times of a capture: the wall clock of its beginning, and from there a clock that nobody sets.
//!
//! Decides that stamps never step: who sets the wall clock back or forward while a capture runs would make a span in it short or long, and
//! an auditor believe it. Invariant: two stamps of one process lie as far apart as CLOCK_BOOTTIME says, which counts a machine's sleep as
//! the agent's lease does.

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use crate::clock::boot_ns;

/// How often the two clocks are read for the beginning: between two readings the thread may have to wait.
const READINGS: u32 = 5;

/// What the two clocks said at one moment.
#[derive(Clone, Copy, Debug)]
struct Stamps {
    wall: Duration,
    boot_ns: u64,
}

impl Stamps {
    /// The reading of the wall clock that lies closest to one of the other.
    fn begin() -> Self {
        let one = || {
            let before = boot_ns();
            // A clock set before 1970 is none.
            let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            (boot_ns().saturating_sub(before), Self { wall, boot_ns: before })
        };
        let first = one();
        (1..READINGS).map(|_| one()).fold(first, |best, next| if next.0 < best.0 { next } else { best }).1
    }

    /// The stamp of a moment, whatever the wall clock says by now.
    fn at(&self, boot_ns: u64) -> Duration {
        self.wall + Duration::from_nanos(boot_ns.saturating_sub(self.boot_ns))
    }
}

/// This moment since 1970-01-01 UTC, as the wall clock of this process's first stamp counts it; never goes back and never leaps.
#[must_use]
pub fn stamp() -> Duration {
    static BEGUN: OnceLock<Stamps> = OnceLock::new();
    BEGUN.get_or_init(Stamps::begin).at(boot_ns())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_stamps_lie_as_far_apart_as_the_clock_that_nobody_sets_whatever_became_of_the_wall_clock() {
        // The wall clock was set by an hour right after the beginning: no later stamp hears of it.
        let begun = Stamps { wall: Duration::from_secs(1_700_000_000), boot_ns: 50_000_000_000 };
        assert_eq!(begun.at(52_500_000_000) - begun.at(50_500_000_000), Duration::from_secs(2));
        assert_eq!(begun.at(50_000_000_000), begun.wall);
        let (before, first) = (boot_ns(), stamp());
        let (second, after) = (stamp(), boot_ns());
        assert!(first <= second && second - first <= Duration::from_nanos(after - before));
    }
}
