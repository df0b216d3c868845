//! Instants on the two clocks of the lease, and the three instants by which a command under a lock lives.
//!
//! Decides how this crate asks "is it time?": an instant is reached as soon as *either* clock says so, which is the
//! cautious side for the holder of a lease (`wire-spec.md` section 11.1). CLOCK_MONOTONIC_RAW is never slewed by a time daemon,
//! CLOCK_BOOTTIME counts while the machine sleeps; neither alone does both. Instants are absolute and mean the same in every
//! process of one time namespace, so the command line can hand them to the guardian as numbers.
//! Keeps the invariant `suspect_at <= kill_at <= until` on each clock. Where they come from is the caller's matter.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};

/// An absolute instant, as nanoseconds on CLOCK_MONOTONIC_RAW and on CLOCK_BOOTTIME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct At {
    /// Reading of CLOCK_MONOTONIC_RAW, in nanoseconds.
    pub raw_ns: u64,
    /// Reading of CLOCK_BOOTTIME, in nanoseconds.
    pub boot_ns: u64,
}

impl At {
    /// The present instant, read from both clocks.
    #[must_use]
    pub fn now() -> At {
        At { raw_ns: read_ns(ClockId::CLOCK_MONOTONIC_RAW), boot_ns: read_ns(ClockId::CLOCK_BOOTTIME) }
    }

    /// This instant moved later by `span` on both clocks; stops at the end of the range.
    #[must_use]
    pub fn plus(self, span: Duration) -> At {
        let ns = nanoseconds(span);
        At { raw_ns: self.raw_ns.saturating_add(ns), boot_ns: self.boot_ns.saturating_add(ns) }
    }

    /// This instant moved earlier by `span` on both clocks; stops at zero.
    #[must_use]
    pub fn minus(self, span: Duration) -> At {
        let ns = nanoseconds(span);
        At { raw_ns: self.raw_ns.saturating_sub(ns), boot_ns: self.boot_ns.saturating_sub(ns) }
    }

    /// Whether this instant has come by `now`: true as soon as either clock says so.
    #[must_use]
    pub fn reached(self, now: At) -> bool {
        now.raw_ns >= self.raw_ns || now.boot_ns >= self.boot_ns
    }

    /// The time left at `now` until [`At::reached`] can be true, zero if it is.
    #[must_use]
    pub fn remaining(self, now: At) -> Duration {
        let raw = self.raw_ns.saturating_sub(now.raw_ns);
        let boot = self.boot_ns.saturating_sub(now.boot_ns);
        Duration::from_nanos(raw.min(boot))
    }

    /// The time that has passed at `now` since this instant, by the clock that shows more; zero if it has not come.
    #[must_use]
    pub fn elapsed(self, now: At) -> Duration {
        let raw = now.raw_ns.saturating_sub(self.raw_ns);
        let boot = now.boot_ns.saturating_sub(self.boot_ns);
        Duration::from_nanos(raw.max(boot))
    }

    /// The earlier of the two on each clock.
    #[must_use]
    pub fn earlier(self, other: At) -> At {
        At { raw_ns: self.raw_ns.min(other.raw_ns), boot_ns: self.boot_ns.min(other.boot_ns) }
    }

    /// The later of the two on each clock.
    #[must_use]
    pub fn later(self, other: At) -> At {
        At { raw_ns: self.raw_ns.max(other.raw_ns), boot_ns: self.boot_ns.max(other.boot_ns) }
    }
}

/// Until when the lock is certain, and by when its command has to have been stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Until {
    /// When the command is asked to stop (SIGTERM to its whole tree) if the lease has not been renewed by then.
    pub suspect_at: At,
    /// When whatever is left of the tree is killed (SIGKILL).
    pub kill_at: At,
    /// The first instant at which the lock may be someone else's.
    pub until: At,
}

/// SIGTERM comes this part of the lease period before certain-until: the start of the *suspect* phase at 0.80 of the
/// period (`wire-spec.md` section 11.1).
const TERM_LEAD_PERCENT: u32 = 20;

/// SIGKILL comes this part of the lease period before certain-until: the end of the *suspect* phase at 0.88 of the
/// period. With a period of 2 s that leaves 240 ms for the kernel to end what was killed.
const KILL_LEAD_PERCENT: u32 = 12;

impl Until {
    /// The instants that lead `until` by the given spans; `kill_lead` longer than `term_lead` means no SIGTERM in advance.
    #[must_use]
    pub fn leading(until: At, term_lead: Duration, kill_lead: Duration) -> Until {
        Until { suspect_at: until.minus(term_lead), kill_at: until.minus(kill_lead), until }.ordered()
    }

    /// The instants for a lease of `period` that ends at `until`: SIGTERM 20 %, SIGKILL 12 % of the period before it.
    #[must_use]
    pub fn of_lease(until: At, period: Duration) -> Until {
        Until::leading(until, period * TERM_LEAD_PERCENT / 100, period * KILL_LEAD_PERCENT / 100)
    }

    /// The same instants with `suspect_at <= kill_at <= until` made true by moving the earlier ones earlier.
    #[must_use]
    pub fn ordered(self) -> Until {
        let kill_at = self.kill_at.earlier(self.until);
        Until { suspect_at: self.suspect_at.earlier(kill_at), kill_at, until: self.until }
    }

    /// The instant halfway between the kill and the end: by then a guardian that works has killed.
    pub(crate) fn overdue_at(self) -> At {
        At { raw_ns: self.kill_at.raw_ns.midpoint(self.until.raw_ns), boot_ns: self.kill_at.boot_ns.midpoint(self.until.boot_ns) }
    }
}

fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn read_ns(clock: ClockId) -> u64 {
    let reading = clock_gettime(clock).expect("Linux has had both clocks since 2.6.39 and reading them cannot fail");
    nanoseconds(Duration::from(reading))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(raw_ns: u64, boot_ns: u64) -> At {
        At { raw_ns, boot_ns }
    }

    #[test]
    fn an_instant_is_reached_when_either_clock_says_so() {
        assert!(!at(10, 10).reached(at(9, 9)));
        assert!(at(10, 10).reached(at(10, 0)), "raw alone");
        assert!(at(10, 10).reached(at(0, 10)), "boot alone, as after a sleep of the machine");
        assert_eq!(at(10, 100).remaining(at(4, 99)), Duration::from_nanos(1));
        assert_eq!(at(10, 100).remaining(at(4, 200)), Duration::ZERO);
        assert_eq!(at(10, 100).elapsed(at(12, 99)), Duration::from_nanos(2));
        assert_eq!(at(10, 100).elapsed(at(9, 99)), Duration::ZERO);
    }

    #[test]
    fn the_instants_of_a_lease_are_in_order_whatever_the_leads() {
        let until = at(2_000_000_000, 5_000_000_000);
        let usual = Until::of_lease(until, Duration::from_secs(2));
        assert_eq!(usual.suspect_at, at(1_600_000_000, 4_600_000_000));
        assert_eq!(usual.kill_at, at(1_760_000_000, 4_760_000_000));
        let odd = Until::leading(until, Duration::ZERO, Duration::from_secs(1));
        assert_eq!(odd.suspect_at, odd.kill_at, "no SIGTERM in advance");
        let wrong = Until { suspect_at: at(9, 9), kill_at: at(8, 10), until: at(5, 7) }.ordered();
        assert_eq!(wrong.kill_at, at(5, 7));
        assert_eq!(wrong.suspect_at, at(5, 7));
    }
}
