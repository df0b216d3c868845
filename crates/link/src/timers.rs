//! The timers of one machine: at most one deadline per key, and the next time to wake.
//!
//! Decides which deadlines are due when the socket was found empty, and how long the driver may sleep. The key
//! is an enum of the machine that owns the queue: it names the reason, and its handler is an arm of one `match`.
//! Implements `wire-spec.md` sections 11.1 and 11.3.
//! Invariant: a deadline fires by its own question of [`Instant`], never by one clock alone: a lease's when either
//! clock has reached it, a wait's when both have. The clocks may part (sleep, slewing), so their orders of the
//! deadlines may differ: a wait that raw time has reached and boot time has not holds up nobody behind it, and
//! asks to be woken by the clock that is missing.
//! Leaves to the owner: what a deadline does; to `delivery_clock`: time that counts only while the loop runs.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;

use crate::time::Instant;

/// Which of the two safe questions a deadline asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Question {
    /// Is the lease over: due when *either* clock has reached it (phases of the agent's lease, anything early
    /// is safe for).
    LeaseOver,
    /// Is the wait over: due only when *both* clocks have reached it (the server's T, retransmissions, anything
    /// late is safe for).
    Waited,
}

/// Deadlines, one at most per key; keys that are due together come in an order that depends on nothing but them.
#[derive(Debug)]
pub struct TimerQueue<K> {
    entries: BTreeMap<K, Entry>,
    /// Deadlines that the raw clock has yet to reach. All of them start here.
    by_raw: BTreeSet<(u64, K)>,
    /// Deadlines that the boot clock has yet to reach: leases from the start, waits once raw time has reached them.
    by_boot: BTreeSet<(u64, K)>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    at: Instant,
    question: Question,
}

impl<K: Ord + Copy> TimerQueue<K> {
    /// A queue without deadlines; allocates nothing yet.
    #[must_use]
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), by_raw: BTreeSet::new(), by_boot: BTreeSet::new() }
    }

    /// Sets the deadline of `key`, in place of the one that it may have.
    pub fn set(&mut self, key: K, at: Instant, question: Question) {
        self.cancel(key);
        self.entries.insert(key, Entry { at, question });
        self.by_raw.insert((at.raw_ns, key));
        if question == Question::LeaseOver {
            self.by_boot.insert((at.boot_ns, key));
        }
    }

    /// Forgets the deadline of `key`; false if it had none.
    pub fn cancel(&mut self, key: K) -> bool {
        let Some(entry) = self.entries.remove(&key) else {
            return false;
        };
        let by_raw = self.by_raw.remove(&(entry.at.raw_ns, key));
        let by_boot = self.by_boot.remove(&(entry.at.boot_ns, key));
        debug_assert!(by_raw || by_boot, "every deadline is in some order");
        true
    }

    /// Forgets the deadlines of all keys of which `gone` says so.
    pub fn cancel_where(&mut self, gone: impl Fn(K) -> bool) {
        for key in self.entries.keys().copied().filter(|key| gone(*key)).collect::<Vec<_>>() {
            self.cancel(key);
        }
    }

    /// The deadline of `key`, if it has one.
    #[must_use]
    pub fn get(&self, key: K) -> Option<Instant> {
        self.entries.get(&key).map(|entry| entry.at)
    }

    /// Takes one deadline that is due, and gives its key; call it until it gives `None`.
    #[inline]
    pub fn due(&mut self, now: Instant) -> Option<K> {
        // Asked in each turn, and mostly there is none.
        if self.is_empty() { None } else { self.due_of_some(now) }
    }

    fn due_of_some(&mut self, now: Instant) -> Option<K> {
        while let Some(&(raw_ns, key)) = self.by_raw.first()
            && raw_ns <= now.raw_ns
        {
            let entry = self.entries.get(&key).expect("a deadline in an order has its entry");
            if entry.question == Question::LeaseOver || now.waited(entry.at) {
                self.cancel(key);
                return Some(key);
            }
            // The raw clock is there, the boot clock is not: from here on only boot time matters.
            let boot_ns = entry.at.boot_ns;
            self.by_raw.remove(&(raw_ns, key));
            self.by_boot.insert((boot_ns, key));
        }
        let &(boot_ns, key) = self.by_boot.first()?;
        if boot_ns > now.boot_ns {
            return None;
        }
        self.cancel(key);
        Some(key)
    }

    /// How long from `now` nothing can become due, and the key that ends this: what a driver may sleep. `None`
    /// without deadlines.
    ///
    /// Right after [`due`](Self::due) gave `None` it is above zero. A wait may ask for two wakings, one by each
    /// clock, never for more.
    #[must_use]
    #[inline]
    pub fn wake_after(&self, now: Instant) -> Option<(Duration, K)> {
        if self.is_empty() { None } else { self.wake_after_some(now) }
    }

    fn wake_after_some(&self, now: Instant) -> Option<(Duration, K)> {
        let head = |order: &BTreeSet<(u64, K)>, now_ns: u64| {
            let &(at_ns, key) = order.first()?;
            Some((Duration::from_nanos(at_ns.saturating_sub(now_ns)), key))
        };
        let raw = head(&self.by_raw, now.raw_ns);
        let boot = head(&self.by_boot, now.boot_ns);
        [raw, boot].into_iter().flatten().min()
    }

    /// How many deadlines are set; a gauge.
    #[must_use]
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is waited for.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl<K: Ord + Copy> Default for TimerQueue<K> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Question::{LeaseOver, Waited};
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    fn at(raw: u64, boot: u64) -> Instant {
        Instant::new(raw, boot)
    }

    fn ns(ns: u64) -> Duration {
        Duration::from_nanos(ns)
    }

    fn all_due(queue: &mut TimerQueue<u8>, now: Instant) -> Vec<u8> {
        core::iter::from_fn(|| queue.due(now)).collect()
    }

    #[test]
    fn deadlines_fire_once_and_in_order() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(30, 30), Waited);
        queue.set(2, at(10, 10), LeaseOver);
        queue.set(3, at(20, 20), Waited);
        assert_eq!(queue.wake_after(at(4, 4)), Some((ns(6), 2)));
        assert_eq!(all_due(&mut queue, at(9, 9)), []);
        assert_eq!(all_due(&mut queue, at(20, 20)), [2, 3]);
        assert_eq!(all_due(&mut queue, at(40, 40)), [1]);
        assert!(queue.is_empty());
        assert_eq!(queue.wake_after(at(40, 40)), None);
    }

    #[test]
    fn new_deadline_replaces_the_old_one_of_its_key() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(10, 10), LeaseOver);
        queue.set(1, at(50, 50), Waited);
        assert_eq!((queue.len(), queue.get(1)), (1, Some(at(50, 50))));
        assert_eq!(all_due(&mut queue, at(49, 49)), []);
        assert_eq!(all_due(&mut queue, at(50, 50)), [1]);
    }

    #[test]
    fn cancelled_deadline_never_fires() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(10, 10), Waited);
        assert!(queue.cancel(1));
        assert!(!queue.cancel(1));
        assert_eq!(all_due(&mut queue, at(99, 99)), []);
    }

    #[test]
    fn lease_deadline_fires_when_either_clock_reaches_it() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(100, 100), LeaseOver);
        queue.set(2, at(100, 100), LeaseOver);
        assert_eq!(queue.due(at(100, 5)), Some(1), "raw alone");
        assert_eq!(queue.due(at(5, 100)), Some(2), "boot alone: the machine slept");
    }

    #[test]
    fn wait_is_due_only_by_both_clocks_and_neither_blocks_others_nor_spins() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(10, 90), Waited);
        queue.set(2, at(20, 20), Waited);
        assert_eq!(all_due(&mut queue, at(10, 10)), []);
        assert_eq!(queue.wake_after(at(10, 10)), Some((ns(10), 2)), "1 asks for boot time now");
        assert_eq!(all_due(&mut queue, at(20, 20)), [2]);
        assert_eq!(queue.wake_after(at(20, 20)), Some((ns(70), 1)));
        assert_eq!(all_due(&mut queue, at(500, 89)), []);
        assert_eq!(all_due(&mut queue, at(500, 90)), [1]);
    }

    #[test]
    fn wait_whose_boot_time_came_first_still_waits_for_raw_time() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(100, 100), Waited);
        assert_eq!(all_due(&mut queue, at(40, 5_000)), []);
        assert_eq!(queue.wake_after(at(40, 5_000)), Some((ns(60), 1)));
        assert_eq!(all_due(&mut queue, at(100, 5_060)), [1]);
    }

    #[test]
    fn wait_half_reached_can_be_replaced_and_cancelled() {
        let mut queue = TimerQueue::new();
        queue.set(1, at(10, 90), Waited);
        queue.set(2, at(10, 95), Waited);
        assert_eq!(all_due(&mut queue, at(10, 10)), []);
        queue.set(1, at(200, 200), Waited);
        assert!(queue.cancel(2));
        assert_eq!(all_due(&mut queue, at(199, 199)), []);
        assert_eq!(all_due(&mut queue, at(200, 200)), [1]);
        assert!(queue.is_empty() && queue.by_raw.is_empty() && queue.by_boot.is_empty());
    }

    proptest! {
        #[test]
        fn queue_agrees_with_asking_every_deadline_at_every_step(
            sets in proptest::collection::vec((0u8..12, 0u64..300, 0u64..300, any::<bool>()), 0..40),
            steps in proptest::collection::vec((0u64..40, 0u64..40), 1..40),
        ) {
            let mut queue = TimerQueue::new();
            let mut model = BTreeMap::new();
            let mut sets = sets.into_iter();
            let mut now = at(0, 0);
            for (raw, boot) in steps {
                if let Some((key, raw, boot, lease)) = sets.next() {
                    let question = if lease { LeaseOver } else { Waited };
                    queue.set(key, at(raw, boot), question);
                    model.insert(key, (at(raw, boot), question));
                }
                now = at(now.raw_ns + raw, now.boot_ns + boot);
                let mut fired = all_due(&mut queue, now);
                fired.sort_unstable();
                let is_due = |&(end, question): &(Instant, Question)| match question {
                    LeaseOver => now.lease_over(end),
                    Waited => now.waited(end),
                };
                let expected: Vec<u8> =
                    model.iter().filter(|entry| is_due(entry.1)).map(|entry| *entry.0).collect();
                model.retain(|_, entry| !is_due(entry));
                prop_assert_eq!(fired, expected);
                prop_assert_eq!(queue.len(), model.len());

                // The sleep is above zero, and never beyond what the next deadline allows.
                let soonest = model.values().map(|&(end, question)| match question {
                    LeaseOver => now.until_lease_over(end),
                    Waited => now.until_waited(end),
                }).min();
                let sleep = queue.wake_after(now).map(|wake| wake.0);
                prop_assert_eq!(sleep.is_some(), soonest.is_some());
                prop_assert!(sleep.is_none_or(|sleep| !sleep.is_zero()));
                prop_assert!(sleep <= soonest);
            }
        }

        #[test]
        fn sleeper_reaches_every_deadline_in_two_wakings_each(
            sets in proptest::collection::vec((0u64..1_000, 0u64..1_000, any::<bool>()), 1..30),
        ) {
            let mut queue = TimerQueue::new();
            for (key, &(raw, boot, lease)) in (0u8..).zip(&sets) {
                queue.set(key, at(raw, boot), if lease { LeaseOver } else { Waited });
            }
            let (mut now, mut wakings) = (at(0, 0), 0);
            loop {
                while queue.due(now).is_some() {}
                let Some((sleep, _)) = queue.wake_after(now) else { break };
                now = now.plus(sleep);
                wakings += 1;
            }
            prop_assert!(wakings <= 2 * sets.len());
        }
    }
}
