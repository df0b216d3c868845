//! The lease clock of this machine: one reading of CLOCK_MONOTONIC_RAW and one of CLOCK_BOOTTIME.
//!
//! Decides what `now` is, for every machine that a driver turns. It stands before and after every system call
//! of the walk: read after a receive returned, before a send is made (section 11.1), and given to the core as an argument.
//! Invariant: neither reading ever goes back, over all clones of one clock and all threads.
//! Read through the C library's `clock_gettime`, so that a preloaded library can scale the rate in tests.
//! Leaves to `cistern_link::time`: which of the two readings counts for which question.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cistern_link::Instant;
use nix::errno::Errno;
use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

/// Reads the two lease clocks; clones share the memory of the latest reading, so that no thread sees time go back.
#[derive(Clone, Debug)]
pub struct Clock {
    latest: Arc<Latest>,
}

#[derive(Debug, Default)]
struct Latest {
    raw_ns: AtomicU64,
    boot_ns: AtomicU64,
}

/// A system without one of the two clocks cannot keep a lease.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {clock}: {source}; leases need it: Linux 2.6.39 or later, with no seccomp filter on clock_gettime")]
pub struct ClockError {
    clock: &'static str,
    source: Errno,
}

impl Clock {
    /// A clock whose two readings were tried once; an error means that the system lacks one of them.
    pub fn new() -> Result<Self, ClockError> {
        let clock = Self { latest: Arc::new(Latest::default()) };
        clock.read()?;
        Ok(clock)
    }

    /// This moment, at or after every moment that this clock and its clones have given.
    ///
    /// Whoever shares a machine reads the clock while it holds the machine's lock, so that time given to the
    /// machine does not go back.
    #[must_use]
    pub fn now(&self) -> Instant {
        // A lease that is counted on a clock that has stopped answering would never end: better not to go on.
        self.read().expect("both clocks were read when this clock was made, and a kernel does not lose them")
    }

    fn read(&self) -> Result<Instant, ClockError> {
        let raw_ns = reading(ClockId::CLOCK_MONOTONIC_RAW, "CLOCK_MONOTONIC_RAW")?;
        let boot_ns = reading(ClockId::CLOCK_BOOTTIME, "CLOCK_BOOTTIME")?;
        let latest_raw = self.latest.raw_ns.fetch_max(raw_ns, Ordering::AcqRel);
        let latest_boot = self.latest.boot_ns.fetch_max(boot_ns, Ordering::AcqRel);
        Ok(Instant::new(raw_ns, boot_ns).max(Instant::new(latest_raw, latest_boot)))
    }
}

/// CLOCK_BOOTTIME in nanoseconds; 0 on a system that has none, where no driver is made.
pub(crate) fn boot_ns() -> u64 {
    reading(ClockId::CLOCK_BOOTTIME, "CLOCK_BOOTTIME").unwrap_or(0)
}

/// One clock in nanoseconds since its start. The kernel gives no negative values for these clocks.
fn reading(id: ClockId, name: &'static str) -> Result<u64, ClockError> {
    let time: TimeSpec = clock_gettime(id).map_err(|source| ClockError { clock: name, source })?;
    let seconds = u64::try_from(time.tv_sec()).unwrap_or(0);
    let nanoseconds = u64::try_from(time.tv_nsec()).unwrap_or(0);
    Ok(seconds.saturating_mul(1_000_000_000).saturating_add(nanoseconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;
    use std::time::Duration;

    #[test]
    fn both_readings_advance_with_a_sleep() {
        let clock = Clock::new().expect("both clocks");
        let start = clock.now();
        thread::sleep(Duration::from_millis(20));
        assert!(clock.now().waited(start.plus(Duration::from_millis(19))));
    }

    #[test]
    fn one_reading_is_of_the_clock_that_is_not_slewed_and_one_of_the_clock_that_counts_sleep() {
        let clock = Clock::new().expect("both clocks");
        let both = || [ClockId::CLOCK_MONOTONIC_RAW, ClockId::CLOCK_BOOTTIME].map(|id| reading(id, "a clock").expect("a reading"));
        let before = both();
        let now = clock.now();
        let after = both();
        assert!((before[0]..=after[0]).contains(&now.raw_ns) && (before[1]..=after[1]).contains(&now.boot_ns));
    }

    #[test]
    fn time_never_goes_back_over_threads() {
        let clock = Clock::new().expect("both clocks");
        let readers: Vec<_> = (0..4)
            .map(|_| {
                let clock = clock.clone();
                thread::spawn(move || {
                    let mut last = clock.now();
                    for _ in 0..10_000 {
                        let now = clock.now();
                        assert!(now.waited(last), "{now:?} is before {last:?}");
                        last = now;
                    }
                })
            })
            .collect();
        for reader in readers {
            reader.join().expect("no reader saw time go back");
        }
    }

    #[test]
    fn a_reading_behind_the_latest_is_lifted_to_it() {
        let clock = Clock::new().expect("both clocks");
        let far = clock.now().plus(Duration::from_secs(3_600));
        clock.latest.raw_ns.store(far.raw_ns, Ordering::Release);
        let now = clock.now();
        assert_eq!(now.raw_ns, far.raw_ns);
        assert!(now.boot_ns < far.boot_ns, "each reading by itself");
    }
}
