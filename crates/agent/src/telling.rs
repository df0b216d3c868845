//! What the holders of locks are told of the lease that covers all of them, a piece of their table in each turn.
//!
//! Decides which events a holder gets when the lease has changed its phase (R46): what lies between what it knows and what holds now.
//! Place in the walk: `Agent::tend`, and before anything else when the lease is found to be over (`Agent::advance`); what is left for the
//! turns that follow, in `Agent::handle_drained`. Implements `wire-spec.md` section 11.3.
//! Invariants: what a holder was told last holds when it is told; a holder whose lease ended hears that, also if the lease lives again by
//! then, and before it hears so; the pieces have their turns in a ring, so that none waits for ever, however often the phase changes; a
//! holder hears nothing of what was before its lock was granted, which tells it that the lock is certain.
//! Leaves to others: the lease (`lease`), who holds what (`locks`), sessions that are over (`recovery`, `surrender`).

use crate::agent::{Agent, Timer};
use crate::api::{Event, HolderId, LockEvent, Phase};
use alloc::vec::Vec;
use cistern_link::{Instant, Question};

/// What is to be known of the lease that covers all locks, the better the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Told {
    /// There is nobody to tell.
    Nobody,
    /// The locks are certain.
    Certain,
    /// Their holders should end.
    Suspect,
    /// They must not be used.
    Uncertain,
}

/// What the holders of one piece of the table were told last.
#[derive(Clone, Copy, Debug)]
struct Heard {
    what: Told,
    /// The last hold that there was then: later ones were granted as certain.
    last: HolderId,
    /// Ends of the lease until then.
    ends: u64,
}

/// A piece whose holders know no more than that their locks were granted.
const NOTHING: Heard = Heard { what: Told::Certain, last: HolderId(0), ends: 0 };

/// How far holders have been told what has changed for all of them.
#[derive(Debug)]
pub(crate) struct Telling {
    /// By piece; those beyond have heard nothing.
    heard: Vec<Heard>,
    /// How often the lease has ended while there were holders.
    ends: u64,
    /// The last hold that there was when it ended last.
    last_ended: HolderId,
    /// The piece that comes next.
    next: usize,
    /// So many pieces, from that one on and round, have not been looked through since the last change.
    left: usize,
    /// So many pieces there were at that change. Locks of pieces that came later were granted after it.
    ring: usize,
}

impl Telling {
    pub(crate) const fn new() -> Self {
        Self { heard: Vec::new(), ends: 0, last_ended: HolderId(0), next: 0, left: 0, ring: 0 }
    }

    /// Whether there are holders who have not been told yet, as far as is known.
    pub(crate) const fn is_due(&self) -> bool {
        self.left > 0
    }

    /// There is nobody left who was told anything.
    fn forget(&mut self) {
        (self.next, self.left, self.ring) = (0, 0, 0);
        self.heard.clear();
    }

    /// Something else holds from now on, for all of so many pieces.
    const fn begin(&mut self, what: Told, last: HolderId, pieces: usize) {
        if matches!(what, Told::Uncertain) {
            self.ends += 1;
            self.last_ended = last;
        }
        (self.left, self.ring) = (pieces, pieces);
    }

    /// Whose turn it is of so many pieces; `None`: all know what holds.
    const fn take_piece(&mut self, pieces: usize) -> Option<usize> {
        let ring = if self.ring < pieces { self.ring } else { pieces };
        if self.left == 0 || ring == 0 {
            self.left = 0;
            return None;
        }
        let piece = self.next % ring;
        self.next = piece + 1;
        self.left -= 1;
        Some(piece)
    }

    /// What a piece has heard, now that it is told something else.
    fn hear(&mut self, piece: usize, now: Heard) -> Heard {
        if self.heard.len() <= piece {
            self.heard.resize(piece + 1, NOTHING);
        }
        self.heard.get_mut(piece).map_or(NOTHING, |heard| core::mem::replace(heard, now))
    }
}

impl Agent {
    /// Looks at what holds for the holders of locks, begins to tell them if that has changed, and sets the timer for the next change.
    pub(crate) fn tend_holders(&mut self) {
        if self.locks.counts().holders == 0 {
            self.told = Told::Nobody;
            self.telling.forget();
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
            self.telling.begin(told, self.locks.last_holder(), self.locks.pieces());
            self.tell_holders();
        }
        let next = match told {
            Told::Certain => suspect_at,
            Told::Suspect => valid_until,
            Told::Uncertain | Told::Nobody => None,
        };
        self.time(Timer::Holders, next, Question::LeaseOver);
    }

    /// Tells the holders in the next piece of the table what they do not know yet; what holds was looked at just now. Whoever looks before
    /// it was told sees the lease itself.
    pub(crate) fn tell_holders(&mut self) {
        let Self { telling, locks, lease, events, told, now, .. } = self;
        let Some(piece) = telling.take_piece(locks.pieces()) else { return };
        let (ends, last_ended) = (telling.ends, telling.last_ended);
        let heard = telling.hear(piece, Heard { what: *told, last: locks.last_holder(), ends });
        // Without an end of the lease nothing is certain, and none is told.
        let valid_until = lease.valid_until().unwrap_or(*now);
        for (holder, object) in locks.holders_of_piece(piece).into_iter().flatten() {
            let (knows, over) = if holder <= heard.last { (heard.what, heard.ends != ends) } else { (Told::Certain, holder <= last_ended) };
            let news = news(knows, over, *told, valid_until);
            events.extend(news.into_iter().flatten().map(|what| Event::Lock { holder, object, what }));
        }
    }
}

/// What a holder is told, in order: what it knows; whether the lease has ended since it was told that; what holds.
fn news(knows: Told, over: bool, holds: Told, valid_until: Instant) -> [Option<LockEvent>; 3] {
    //= wire-spec.md#11-3-failure-and-ending
    //# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
    let uncertain = knows != Told::Uncertain && (over || holds == Told::Uncertain);
    let knows = if uncertain { Told::Uncertain } else { knows };
    //= wire-spec.md#11-3-failure-and-ending
    //# When a renewing answer revives the lease the agent MUST tell each such holder that the lock is certain again, under the same
    //# token.
    let certain = holds < knows;
    let suspect = holds == Told::Suspect && knows != Told::Suspect;
    [
        uncertain.then_some(LockEvent::Uncertain),
        certain.then_some(LockEvent::Certain { valid_until }),
        suspect.then_some(LockEvent::Suspect { valid_until }),
    ]
}
