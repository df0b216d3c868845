//! Any order of arrivals, outcomes and fences, against a ledger of all that ever happened.
//!
//! Tests what `reply_cache` promises where no single example would: that no order executes a nonce twice, changes a
//! reply, executes what was fenced, or needs more than W entries (`wire-spec.md` section 11.2).
//! The ledger forgets nothing and has no window, so what it says does not rest on the code under test.

use super::*;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

fn reply(nonce: u64) -> Stored {
    Stored::Bytes(ReplyBuffers::default().keep(&nonce.to_be_bytes()))
}

#[derive(Clone, Debug)]
enum Step {
    Arrive { ahead: u64, back: u64, body: u64 },
    Finish(u64),
    Queue(u64),
    Fence(u64),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..12, 0u64..12, 0u64..2)
            .prop_map(|(ahead, back, body)| Step::Arrive { ahead, back, body }),
        3 => any::<u64>().prop_map(Step::Finish),
        1 => any::<u64>().prop_map(Step::Queue),
        1 => (0u64..12).prop_map(Step::Fence),
    ]
}

/// All that ever happened, without a bound: what the cache must agree with.
#[derive(Default)]
struct Ledger {
    floor: u64,
    begun: BTreeMap<u64, u64>,
    executing: BTreeSet<u64>,
    replies: BTreeMap<u64, Stored>,
    fenced: BTreeSet<u64>,
    /// What the cache's replies were in, for those that come.
    buffers: ReplyBuffers,
}

impl Ledger {
    fn arrive(&mut self, cache: &mut ReplyCache, nonce: u64, floor: u64, body: u64) {
        let window = u64::from(cache.window());
        let ahead = floor > self.floor + window;
        if !ahead {
            self.floor = self.floor.max(floor);
        }
        match cache.admit(nonce, floor, body, &mut self.buffers) {
            Admission::Fresh => {
                assert!(nonce >= self.floor && nonce - self.floor < window);
                assert!(!self.fenced.contains(&nonce), "a fenced nonce was admitted");
                assert!(self.begun.insert(nonce, body).is_none(), "{nonce} executed twice");
                self.executing.insert(nonce);
                cache.begin(nonce, body, 1);
            }
            Admission::Ahead => assert!(ahead, "only a floor that no agent can have"),
            Admission::Executing => assert!(self.executing.contains(&nonce)),
            Admission::Done(stored) => assert_eq!(self.replies.get(&nonce), Some(stored)),
            Admission::Queued => assert!(!self.executing.contains(&nonce)),
            Admission::Fenced => assert!(self.fenced.contains(&nonce)),
            Admission::BelowFloor => assert!(nonce < self.floor),
            Admission::BeyondWindow => assert!(nonce - self.floor >= window),
            Admission::OtherBody => assert!(self.begun[&nonce] != body),
        }
    }

    /// Takes one of the executing requests, by any number.
    fn take_executing(&mut self, pick: u64) -> Option<u64> {
        let count = self.executing.len() as u64;
        let at = usize::try_from(pick.checked_rem(count)?).ok()?;
        let nonce = *self.executing.iter().nth(at)?;
        self.executing.remove(&nonce);
        Some(nonce)
    }
}

proptest! {
    #[test]
    fn no_order_of_arrivals_executes_a_nonce_twice_or_changes_its_reply(
        window in 1u16..9,
        steps in proptest::collection::vec(step(), 1..200),
    ) {
        let mut cache = ReplyCache::new(window);
        let mut ledger = Ledger { floor: 1, ..Ledger::default() };
        for step in steps {
            let base = ledger.floor.saturating_sub(3);
            match step {
                Step::Arrive { ahead, back, body } => {
                    let nonce = base + ahead;
                    ledger.arrive(&mut cache, nonce, nonce.saturating_sub(back), body);
                }
                Step::Finish(pick) => if let Some(nonce) = ledger.take_executing(pick) {
                    let stored = Stored::Bytes(ledger.buffers.keep(&nonce.to_be_bytes()));
                    let kept = cache.finish(nonce, stored).is_some();
                    prop_assert_eq!(kept, nonce >= ledger.floor);
                    ledger.replies.insert(nonce, reply(nonce));
                },
                Step::Queue(pick) => if let Some(nonce) = ledger.take_executing(pick) {
                    prop_assert_eq!(cache.queue(nonce).is_some(), nonce >= ledger.floor);
                },
                Step::Fence(ahead) => match cache.fence(base + ahead) {
                    Fate::NotExecuted => {
                        prop_assert!(!ledger.begun.contains_key(&(base + ahead)));
                        ledger.fenced.insert(base + ahead);
                    }
                    Fate::Executed => prop_assert!(ledger.begun.contains_key(&(base + ahead))),
                    Fate::Unknown => {}
                },
            }
            prop_assert_eq!(cache.floor(), ledger.floor);
            prop_assert!(cache.len() <= usize::from(window));
        }
    }
}
