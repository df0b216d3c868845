//! What the holders of locks are told of the lease that covers all of them.
//!
//! All are told in one pass, in the order of their grants, as soon as the lease is seen to have changed its phase: before anything else in
//! every call of the agent (`Agent::act`), and when an answer renews the lease before anything is granted under it. So all of them know
//! the same, *uncertain* is never skipped, and a lock granted now is certain like all others.

use crate::api::{Event, HolderId, LockEvent, Phase};
use crate::lease::Lease;
use alloc::collections::{BTreeMap, VecDeque};
use cistern_link::Instant;
use cistern_wire::ObjectId;

/// What is to be known of the lease that covers all locks, the better the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// There is nobody to tell.
    Nobody,
    /// The locks are certain.
    Certain,
    /// Their holders should end.
    Suspect,
    /// They must not be used.
    Uncertain,
}

/// What the holders of locks were told last.
#[derive(Debug)]
pub(crate) struct HoldersTold(Told);

impl HoldersTold {
    pub(crate) const fn nothing() -> Self {
        Self(Told::Nobody)
    }

    /// Whether there was nobody to tell anything.
    pub(crate) fn is_nobody(&self) -> bool {
        self.0 == Told::Nobody
    }

    /// Whether they were told that their locks must not be used.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.0 == Told::Uncertain
    }

    /// Whether they were told anything but that their locks are certain.
    pub(crate) fn is_warned(&self) -> bool {
        self.0 > Told::Certain
    }

    /// Tells the holders of locks what has changed for them.
    pub(crate) fn lease_changed(
        &mut self,
        now: Instant,
        lease: &Lease,
        holders: &BTreeMap<HolderId, ObjectId>,
        events: &mut VecDeque<Event>,
    ) {
        let told = if holders.is_empty() {
            Told::Nobody
        } else if !lease.certain(now) {
            Told::Uncertain
        } else if lease.phase(now) >= Phase::Suspect {
            Told::Suspect
        } else {
            Told::Certain
        };
        // Whoever came since there was nobody was granted its lock as certain.
        let before = core::mem::replace(&mut self.0, told).max(Told::Certain);
        if before != told && told != Told::Nobody {
            // Without an end of the lease nothing is certain, and none is told.
            let news = news(before, told, lease.valid_until().unwrap_or(now));
            events.reserve(holders.len());
            for (&holder, &object) in holders {
                events.extend(news.into_iter().flatten().map(|what| Event::Lock { holder, object, what }));
            }
        }
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
