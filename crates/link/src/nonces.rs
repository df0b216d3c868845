//! Nonces on the agent's side: which request is which, and which are still awaited.
//!
//! Decides the nonce of each new request and the floor that every request announces. On the way out before
//! encoding; on the way in, an answer retires its nonce here (`wire-spec.md` section 11.2).
//! Invariant: the floor is the lowest nonce still awaited, and no nonce goes out at floor + W or above, where the
//! server would not execute it. One old request therefore bounds how far new ones run ahead, however few are
//! outstanding; a long wait for a lock is answered "queued", which retires its nonce.
//! Leaves to `reply_cache`: the server's mirror of this window; control messages have no nonce at all.

use alloc::collections::VecDeque;

/// The nonces of one session, as its agent deals them out: 1, 2, 3, ...
#[derive(Debug)]
pub struct Nonces {
    /// The lowest nonce still awaited; the next new one if none is.
    floor: u64,
    /// Whether `floor`, `floor + 1`, ... is awaited; its first entry, if any, is `true`.
    awaited: VecDeque<bool>,
    /// How many entries of `awaited` are `true`.
    outstanding: usize,
}

impl Nonces {
    /// The nonces of a new session: none outstanding, the first will be 1.
    #[must_use]
    pub const fn new() -> Self {
        Self { floor: 1, awaited: VecDeque::new(), outstanding: 0 }
    }

    /// Whether a new request may start under the server's window of `window` nonces (W): whether the next nonce
    /// is below floor + W.
    #[must_use]
    pub fn can_start(&self, window: u16) -> bool {
        self.awaited.len() < usize::from(window)
    }

    /// Deals out the nonce of a new request and awaits it; `None` while the window is full.
    pub fn start(&mut self, window: u16) -> Option<u64> {
        if !self.can_start(window) {
            return None;
        }
        //= wire-spec.md#11-2-delivery
        //# The agent MUST number the requests of a session 1, 2, 3 and so on.
        let nonce = self.floor + self.awaited.len() as u64;
        self.awaited.push_back(true);
        self.outstanding += 1;
        self.check();
        Some(nonce)
    }

    /// Stops awaiting `nonce`: its outcome is known, or it was answered "queued". False if it was not awaited, as
    /// for a late copy of an answer, or for a number never dealt out.
    pub fn retire(&mut self, nonce: u64) -> bool {
        let Some(entry) = self.entry(nonce).and_then(|at| self.awaited.get_mut(at)) else {
            return false;
        };
        if !core::mem::replace(entry, false) {
            return false;
        }
        self.outstanding -= 1;
        while self.awaited.front() == Some(&false) {
            self.awaited.pop_front();
            self.floor += 1;
        }
        self.check();
        true
    }

    /// Whether the answer to `nonce` is still awaited.
    #[must_use]
    pub fn awaits(&self, nonce: u64) -> bool {
        let awaited = self.entry(nonce).and_then(|at| self.awaited.get(at));
        awaited.copied().unwrap_or(false)
    }

    /// The lowest nonce still awaited, or the next new one if none is. It only grows.
    #[must_use]
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// How far the floor lies below an awaited `nonce`, as each transmission of its request announces it; `None`
    /// if `nonce` is not awaited, and then has nothing to be sent for.
    #[must_use]
    pub fn back(&self, nonce: u64) -> Option<u16> {
        if !self.awaits(nonce) {
            return None;
        }
        //= wire-spec.md#11-2-delivery
        //# The floor that an agent announces MUST be the lowest nonce that it still awaits, or the request's own if there is none lower.
        // `start` keeps every awaited nonce within a window, and a window is a u16.
        u16::try_from(nonce - self.floor).ok()
    }

    /// How many requests are awaited.
    #[must_use]
    pub const fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Where `nonce` stands in `awaited`, if it is not below the floor.
    fn entry(&self, nonce: u64) -> Option<usize> {
        usize::try_from(nonce.checked_sub(self.floor)?).ok()
    }

    fn check(&self) {
        debug_assert!(self.outstanding <= self.awaited.len());
        debug_assert_eq!(self.outstanding == 0, self.awaited.is_empty());
        debug_assert_ne!(self.awaited.front(), Some(&false), "the floor is awaited");
    }
}

impl Default for Nonces {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    //= wire-spec.md#11-2-delivery
    //= type=test
    //# The agent MUST number the requests of a session 1, 2, 3 and so on.
    #[test]
    fn nonces_are_sequential_from_one() {
        let mut nonces = Nonces::new();
        assert_eq!([nonces.start(64), nonces.start(64)], [Some(1), Some(2)]);
        assert_eq!((nonces.floor(), nonces.outstanding()), (1, 2));
    }

    //= wire-spec.md#11-2-delivery
    //= type=test
    //# The floor that an agent announces MUST be the lowest nonce that it still awaits, or the request's own if there is none lower.
    #[test]
    fn floor_follows_the_lowest_awaited_nonce() {
        let mut nonces = Nonces::new();
        for _ in 0..4 {
            nonces.start(64);
        }
        assert!(nonces.retire(2));
        assert_eq!(nonces.floor(), 1, "the first is still awaited");
        assert!(nonces.retire(1));
        assert_eq!(nonces.floor(), 3);
        assert_eq!((nonces.back(4), nonces.back(2)), (Some(1), None));
        assert!(nonces.retire(4) && nonces.retire(3));
        assert_eq!((nonces.floor(), nonces.outstanding()), (5, 0));
        assert_eq!(nonces.start(64), Some(5));
    }

    #[test]
    fn one_old_request_stops_new_ones_at_floor_plus_window() {
        let mut nonces = Nonces::new();
        for _ in 0..4 {
            nonces.start(4);
        }
        for answered in 2..=4 {
            nonces.retire(answered);
        }
        assert_eq!(nonces.outstanding(), 1);
        assert_eq!(nonces.start(4), None, "5 would be at floor + W");
        nonces.retire(1);
        assert_eq!(nonces.start(4), Some(5));
    }

    #[test]
    fn late_copy_of_an_answer_retires_nothing() {
        let mut nonces = Nonces::new();
        nonces.start(64);
        nonces.start(64);
        assert!(nonces.retire(2));
        assert!(!nonces.retire(2));
        assert!(nonces.retire(1));
        for stranger in [0, 1, 2, 3, u64::MAX] {
            assert!(!nonces.retire(stranger));
            assert!(!nonces.awaits(stranger));
        }
    }

    #[test]
    fn shrunk_window_lets_the_outstanding_finish_and_starts_none() {
        let mut nonces = Nonces::new();
        for _ in 0..8 {
            nonces.start(8);
        }
        assert!(!nonces.can_start(4));
        for nonce in 1..=5 {
            nonces.retire(nonce);
        }
        assert!(nonces.can_start(4));
        assert!(!nonces.can_start(0));
    }

    proptest! {
        #[test]
        fn window_agrees_with_a_set_of_awaited_nonces(
            window in 1u16..20,
            events in proptest::collection::vec((any::<bool>(), 0u64..24), 0..300),
        ) {
            let mut nonces = Nonces::new();
            let mut awaited = std::collections::BTreeSet::new();
            let mut next = 1;
            for (start, ahead) in events {
                let floor = awaited.first().copied().unwrap_or(next);
                if start {
                    let may = next < floor + u64::from(window);
                    prop_assert_eq!(nonces.start(window), may.then_some(next));
                    if may {
                        awaited.insert(next);
                        next += 1;
                    }
                } else {
                    let nonce = (floor + ahead).saturating_sub(4);
                    prop_assert_eq!(nonces.retire(nonce), awaited.remove(&nonce));
                }
                let floor = awaited.first().copied().unwrap_or(next);
                prop_assert_eq!(nonces.floor(), floor);
                prop_assert_eq!(nonces.outstanding(), awaited.len());
                for &nonce in &awaited {
                    prop_assert_eq!(nonces.back(nonce).map(u64::from), Some(nonce - floor));
                }
            }
        }
    }
}
