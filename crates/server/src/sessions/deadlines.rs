//! Deadlines about silence: when a notice is sent again or given up, when a probe is due, when compliance is overdue.
//!
//! Decides only which of them is due. They run on the delivery clock, which counts the time in which this server listened, so a
//! server that stood still blames nobody (section 11.3). Place in the walk: asked when the socket was found empty.
//! Implements `wire-spec.md` section 6.4. Invariant: at most one deadline per session and reason, and none for a session that
//! nobody waits for: an idle server has none. The one lease timer, T, is not here: it runs on both clocks, whoever stood still.
//! Leaves to others: what a deadline does (`delivery`).

use crate::sessions::SessionKey;
use alloc::collections::{BTreeMap, BTreeSet};
use core::time::Duration;

/// Why the server listens for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// A notice waits for its receipt: send it again, or give up.
    Delivery,
    /// A demand for a cache lock was receipted: it must be complied with by now (section 11.3).
    Compliance,
    /// Somebody waits for the session and nothing is on the way to it: probe it (section 11.3).
    Probe,
    /// Somebody looked at an ephemeral file of the session: probe it once (section 11.5).
    Look,
}

impl Deadline {
    const ALL: [Self; 4] = [Self::Delivery, Self::Compliance, Self::Probe, Self::Look];
}

/// Deadlines by session and reason, as readings of the delivery clock.
#[derive(Debug, Default)]
pub(crate) struct DeliveryDeadlines {
    due: BTreeSet<(Duration, SessionKey, Deadline)>,
    set: BTreeMap<(SessionKey, Deadline), Duration>,
}

impl DeliveryDeadlines {
    /// Sets the deadline in place of the one that there may be; `None` forgets it.
    pub(crate) fn set(&mut self, key: SessionKey, reason: Deadline, at: Option<Duration>) {
        if let Some(old) = self.set.remove(&(key, reason)) {
            self.due.remove(&(old, key, reason));
        }
        if let Some(at) = at {
            self.set.insert((key, reason), at);
            self.due.insert((at, key, reason));
        }
    }

    /// Whether there is such a deadline.
    pub(crate) fn is_set(&self, key: SessionKey, reason: Deadline) -> bool {
        self.set.contains_key(&(key, reason))
    }

    /// Forgets all deadlines of a session.
    pub(crate) fn forget(&mut self, key: SessionKey) {
        for reason in Deadline::ALL {
            self.set(key, reason, None);
        }
    }

    /// Takes one deadline that is due when the delivery clock shows `elapsed`.
    pub(crate) fn due(&mut self, elapsed: Duration) -> Option<(SessionKey, Deadline)> {
        let &(at, key, reason) = self.due.first()?;
        if at > elapsed {
            return None;
        }
        self.set(key, reason, None);
        Some((key, reason))
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.due.first().map(|first| first.0)
    }

    /// How many deadlines there are; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn deadlines_come_in_order_and_once() {
        let (a, b) = (SessionKey::for_test(1), SessionKey::for_test(2));
        let mut queue = DeliveryDeadlines::default();
        queue.set(a, Deadline::Delivery, Some(ms(30)));
        queue.set(b, Deadline::Probe, Some(ms(20)));
        queue.set(a, Deadline::Delivery, Some(ms(10)));
        assert_eq!((queue.next(), queue.len()), (Some(ms(10)), 2));
        assert_eq!(queue.due(ms(9)), None);
        assert_eq!(queue.due(ms(25)), Some((a, Deadline::Delivery)));
        assert_eq!(queue.due(ms(25)), Some((b, Deadline::Probe)));
        assert_eq!((queue.due(ms(99)), queue.next()), (None, None));
    }

    #[test]
    fn forgotten_session_has_no_deadlines() {
        let a = SessionKey::for_test(1);
        let mut queue = DeliveryDeadlines::default();
        for reason in Deadline::ALL {
            queue.set(a, reason, Some(ms(1)));
        }
        assert!(queue.is_set(a, Deadline::Probe));
        queue.forget(a);
        assert_eq!((queue.len(), queue.next()), (0, None));
    }
}
