//! What the holders of locks are told of the lease that covers all of them.
//!
//! All are told in one pass, in the order of their grants, as soon as the lease is seen to have changed its phase: before anything else in
//! every call of the agent (`Agent::act`), and when an answer renews the lease before anything is granted under it. So all of them know
//! the same, *uncertain* is never skipped, and a lock granted now is certain like all others.

use crate::agent::Agent;
use crate::api::{Event, LockEvent, Phase};
use crate::timer::Timer;
use cistern_link::{Instant, Question};

/// What is to be known of the lease that covers all locks, the better the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Told {
    /// There is nobody to tell.
    Nobody,
    /// The locks are certain.
    Certain,
    /// Their holders should end.
    Suspect,
    /// They must not be used.
    Uncertain,
}

impl Agent {
    /// Tells the holders of locks what has changed for them, and sets the timer for the next change.
    pub(super) fn tend_holders(&mut self) {
        if self.locks.counts().holders == 0 {
            self.told = Told::Nobody;
            self.timers.cancel(Timer::Holders);
            return;
        }
        let (suspect_at, valid_until) = (self.lease.suspect_at(), self.lease.valid_until());
        let told = if !self.lease.certain(self.now) {
            Told::Uncertain
        } else if self.lease.phase(self.now) >= Phase::Suspect {
            Told::Suspect
        } else {
            Told::Certain
        };
        // Whoever came since there was nobody was granted its lock as certain.
        let before = core::mem::replace(&mut self.told, told).max(Told::Certain);
        if before != told {
            // Without an end of the lease nothing is certain, and none is told.
            let news = news(before, told, valid_until.unwrap_or(self.now));
            let Self { locks, events, .. } = self;
            events.reserve(locks.holders().len());
            for (&holder, &object) in locks.holders() {
                events.extend(news.into_iter().flatten().map(|what| Event::Lock { holder, object, what }));
            }
        }
        let next = match told {
            Told::Certain => suspect_at,
            Told::Suspect => valid_until,
            Told::Uncertain | Told::Nobody => None,
        };
        self.time(Timer::Holders, next, Question::LeaseOver);
    }
}

/// What a holder is told, in order, when another thing holds than it knows.
fn news(knows: Told, holds: Told, valid_until: Instant) -> [Option<LockEvent>; 2] {
    match holds {
        //= wire-spec.md#11-3-failure-and-ending
        //# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
        Told::Uncertain => [Some(LockEvent::Uncertain), None],
        //= wire-spec.md#11-3-failure-and-ending
        //# When a renewing answer revives the lease the agent MUST tell each holder that the lock is certain again, under the same token.
        Told::Suspect if knows == Told::Uncertain => [Some(LockEvent::Certain { valid_until }), Some(LockEvent::Suspect { valid_until })],
        Told::Suspect => [Some(LockEvent::Suspect { valid_until }), None],
        Told::Certain | Told::Nobody => [Some(LockEvent::Certain { valid_until }), None],
    }
}
