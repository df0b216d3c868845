//! Invites: who may join without an operator's looking on, how often, until when.
//!
//! Decides that each use admits exactly one key; that a key which was admitted is admitted again until the invite expires, so that a lost
//! answer costs nothing; that another key is told when and from where the invite was used, for that is how the victim of a stolen line
//! learns of it; and what time it is for that: the wall clock, but never earlier than it was, so that a clock which is set back, or a restart,
//! prolongs nothing.
//! Leaves to others: whether a key was revoked since (`principals`), which goes before; what is written (`joining`).

#[cfg(test)]
mod tests;

pub use crate::ids::InviteId;
pub use crate::store::{InviteRecord, InviteUse};

use crate::ids::PrincipalId;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use core::net::IpAddr;

/// Most invites that are good at a time.
pub const INVITES_MAX: usize = 4_096;
/// Most keys that one invite admits.
pub const USES_MAX: u16 = 256;
/// Longest validity of an invite, in seconds: 30 days.
pub const WITHIN_MAX_S: u64 = 30 * 24 * 3_600;
/// How much a server may forget of the time in a crash, in seconds.
const CLOCK_STEP_S: u64 = 60;

/// What is to be done with a key that came with an invite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// It may be registered.
    Admit,
    /// It was admitted by this invite before, as this principal.
    Again(PrincipalId),
    /// All uses are spent. Another key had the last one:
    Spent {
        /// when, in seconds since 1970,
        at_s: u64,
        /// and from where.
        from: IpAddr,
    },
    /// There is no such invite: it expired, was withdrawn, or never was.
    Unknown,
}

/// All invites that are good.
#[derive(Debug)]
pub struct Invites {
    known: BTreeMap<InviteId, InviteRecord>,
    /// It was not earlier than that, in seconds since 1970, ...
    clock_s: u64,
    /// ... at that time.
    clock_at: Instant,
    /// What of it the store was given.
    written_s: u64,
    /// Until then it is asked for even if there are no invites.
    needed_until_s: u64,
}

impl Invites {
    /// None.
    #[must_use]
    pub const fn new(now: Instant) -> Self {
        Self { known: BTreeMap::new(), clock_s: 0, clock_at: now, written_s: 0, needed_until_s: 0 }
    }

    /// Those that the store had at the start, and what time it was at least when it was written.
    pub fn load(&mut self, records: Vec<(InviteId, InviteRecord)>, clock_s: u64, now: Instant) {
        (self.known, self.clock_s, self.clock_at, self.written_s) = (records.into_iter().collect(), clock_s, now, clock_s);
    }

    /// The time by which invites expire, in seconds since 1970: what the wall clock shows, or what it has shown and the time since.
    pub fn clock(&mut self, now: Instant, wall_s: u64) -> u64 {
        let since = now.since(self.clock_at);
        //= docs/sealed.md#joining-rosters
        //# An invite MUST expire by the largest time that the server's wall clock has shown and the time since, also over restarts.
        let went = self.clock_s + since.as_secs();
        if wall_s >= went {
            (self.clock_s, self.clock_at) = (wall_s, now);
        }
        wall_s.max(went)
    }

    /// Forgets those that have expired, and gives their ids.
    pub fn expire(&mut self, clock_s: u64) -> Vec<InviteId> {
        self.known.extract_if(.., |_, invite| invite.expires_s <= clock_s).map(|(id, _)| id).collect()
    }

    /// Something else ends by the clock, at that time.
    pub fn need_clock(&mut self, until_s: u64) {
        self.needed_until_s = self.needed_until_s.max(until_s);
    }

    /// What the store is to be given of the time, if it is: as long as anything ends by it, each minute.
    pub fn to_write(&mut self, clock_s: u64) -> Option<u64> {
        if self.known.is_empty() && self.needed_until_s <= clock_s || clock_s < self.written_s + CLOCK_STEP_S {
            return None;
        }
        self.written_s = clock_s;
        Some(clock_s)
    }

    /// Whether there is room for another one of this id.
    #[must_use]
    pub fn has_room_for(&self, id: InviteId) -> bool {
        self.known.len() < INVITES_MAX && !self.known.contains_key(&id)
    }

    /// A new one, or one that was used; its record is to be written.
    pub fn put(&mut self, id: InviteId, record: InviteRecord) -> &InviteRecord {
        self.known.entry(id).insert_entry(record).into_mut()
    }

    /// One that is good.
    #[must_use]
    pub fn get(&self, id: InviteId) -> Option<&InviteRecord> {
        self.known.get(&id)
    }

    /// All that are good, by their ids.
    pub fn iter(&self) -> impl Iterator<Item = (InviteId, &InviteRecord)> {
        self.known.iter().map(|(id, record)| (*id, record))
    }

    /// Withdraws those that are meant, and gives their ids.
    pub fn withdraw(&mut self, is_meant: impl Fn(&InviteRecord) -> bool) -> Vec<InviteId> {
        self.known.extract_if(.., |_, invite| is_meant(invite)).map(|(id, _)| id).collect()
    }

    /// What is to be done with a key.
    #[must_use]
    pub fn judge(&self, id: InviteId, key: &[u8; 32]) -> Judgement {
        let Some(invite) = self.known.get(&id) else { return Judgement::Unknown };
        //= docs/sealed.md#joining-rosters
        //# The same key MUST be answered alike again until the invite expires; another key MUST NOT be registered beyond the uses of the
        //# invite.
        if let Some(before) = invite.used.iter().find(|before| before.key == *key) {
            return Judgement::Again(before.principal);
        }
        match invite.used.last() {
            Some(last) if invite.used.len() >= usize::from(invite.uses) && !bugs::is(Bug::K2) => {
                Judgement::Spent { at_s: last.at_s, from: last.from }
            }
            _ => Judgement::Admit,
        }
    }
}

/// Names for the next host that an invite admits, in the order in which they are to be tried: its own, or with a number if there can be several.
pub fn names(invite: &InviteRecord) -> impl Iterator<Item = String> {
    let name = String::from_utf8_lossy(&invite.name).into_owned();
    let numbers = if invite.uses == 1 { 0..1 } else { invite.used.len() + 1..usize::from(invite.uses) * 2 + 1 };
    numbers.map(move |n| if n == 0 { name.clone() } else { format!("{name}-{n}") })
}
