//! Half-open sessions: what was offered by WELCOME, and not confirmed yet.
//!
//! Decides for how long an offer stands, and which gives way: an agent has one at most, its newest; where there is no room, whoever has most
//! loses its oldest (longest queue drop), so that one host which asks without end pushes out its own alone.
//! Implements `wire-spec.md` sections 8.2 and 11.6. Invariants: nothing of it is durable, it holds nothing and no other session knows of it, so
//! forgetting one costs its agent another handshake and nobody else anything. What is over is found when it is looked for: no timer runs.
//! Leaves to others: what CONFIRM does (the machine).

use crate::ids::{Joiner, Owner, PrincipalId};
use crate::sessions::session::Opening;
use crate::transport::validation::{COOKIE_LEN, CookieTime};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::{Instant, Path};
use cistern_wire::{AgentId, SessionId, StoreId};
use core::cmp::Reverse;
use core::time::Duration;
use hashbrown::HashMap;

/// For how long an offer stands: many round trips of the slowest path.
const LIFE: Duration = Duration::from_secs(5);

/// A session that was offered.
#[derive(Debug)]
pub(crate) struct HalfOpen {
    /// What it is made from when it is confirmed; the path is the one that its agent proved last.
    pub(crate) opening: Opening,
    /// The boot of its agent's machine.
    pub(crate) boot: [u8; 16],
    /// Store, epoch and incarnation of the server that its agent knows.
    pub(crate) seen: (StoreId, u8, u64),
    /// By which it was asked for.
    pub(crate) cookie: CookieTime,
    /// Of the sealed mode.
    pub(crate) sealed: Option<Box<Welcomed>>,
    /// Whether its agent was told that another session goes on: then this one is never opened.
    pub(crate) refused: bool,
}

/// What was sent to whoever was offered a session of the sealed mode.
#[derive(Debug)]
pub(crate) struct Welcomed {
    /// With which it asked.
    pub(crate) cookie: [u8; COOKIE_LEN],
    /// Whether it has resumed a session.
    pub(crate) resumed: bool,
    /// WELCOME.
    pub(crate) datagram: Vec<u8>,
    /// By which invite it asked, if it did: such a session never becomes another.
    pub(crate) joiner: Option<Joiner>,
}

/// How many came before it.
type Age = u64;

/// One that is kept, with whose it was when it was offered.
#[derive(Debug)]
struct Kept {
    half: HalfOpen,
    owner: Owner,
    age: Age,
}

// However many strangers ask, what is kept for them is small.
const _: () = assert!(size_of::<Kept>() <= 320);

/// All offers that stand.
#[derive(Debug, Default)]
pub(crate) struct HalfOpens {
    table: HashMap<SessionId, Kept>,
    newest: HashMap<AgentId, SessionId>,
    /// Those of the sealed mode by their handshakes.
    by_handshake: HashMap<u64, SessionId>,
    by_age: BTreeMap<Age, SessionId>,
    of_owner: HashMap<Owner, BTreeSet<Age>>,
    /// How many each owner has, and its oldest: the last gives way first, of several with as many the oldest.
    ranks: BTreeSet<(usize, Reverse<Age>)>,
    offered: Age,
}

impl HalfOpens {
    /// How many are kept, some of which may be over.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// One that stands.
    pub(crate) fn find(&mut self, now: Instant, id: SessionId) -> Option<&mut HalfOpen> {
        self.table.get_mut(&id).map(|kept| &mut kept.half).filter(|half| stands(half, now))
    }

    /// That of an agent.
    pub(crate) fn of_agent(&mut self, now: Instant, agent: AgentId) -> Option<&mut HalfOpen> {
        let id = *self.newest.get(&agent)?;
        self.find(now, id)
    }

    /// The WELCOME of an OPEN that comes again: its cookie was taken once, from its address, for its handshake.
    pub(crate) fn welcome_again(&mut self, now: Instant, path: Path, handshake: u64, cookie: &[u8; COOKIE_LEN]) -> Option<&[u8]> {
        let id = *self.by_handshake.get(&handshake)?;
        let half = self.find(now, id).filter(|half| half.opening.path.remote == path.remote)?;
        half.sealed.as_ref().filter(|sealed| sealed.cookie == *cookie).map(|sealed| &sealed.datagram[..])
    }

    /// Takes one in, at most `max` in all, in place of the one that its agent has.
    pub(crate) fn insert(&mut self, now: Instant, half: HalfOpen, max: usize) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO MUST NOT do more than leave one half-open session for its agent, for 5 s.
        let Opening { id, agent, handshake, .. } = half.opening;
        if let Some(former) = self.newest.get(&agent).copied() {
            self.take(former);
        }
        while let Some((_, oldest)) = self.by_age.first_key_value()
            && let over = *oldest
            && self.find(now, over).is_none()
        {
            self.take(over);
        }
        let (owner, age) = (half.opening.owner(), self.offered);
        self.offered += 1;
        self.newest.insert(agent, id);
        if half.sealed.is_some() {
            self.by_handshake.insert(handshake, id);
        }
        self.table.insert(id, Kept { half, owner, age });
        self.by_age.insert(age, id);
        self.rank(owner, |ages| ages.insert(age));
        while self.table.len() > max
            && let Some((_, Reverse(oldest))) = self.ranks.last()
            && let Some(id) = self.by_age.get(oldest).copied()
        {
            self.take(id);
        }
    }

    /// Takes away those of a principal.
    pub(crate) fn forget(&mut self, who: PrincipalId) {
        let of: Vec<SessionId> = self.table.iter().filter(|(_, kept)| kept.half.opening.principal == who).map(|(id, _)| *id).collect();
        for id in of {
            self.take(id);
        }
    }

    /// It is open, or not wanted any more.
    pub(crate) fn take(&mut self, id: SessionId) -> Option<HalfOpen> {
        let Kept { half, owner, age } = self.table.remove(&id)?;
        let Opening { agent, handshake, .. } = half.opening;
        self.newest.remove(&agent);
        if self.by_handshake.get(&handshake) == Some(&id) {
            self.by_handshake.remove(&handshake);
        }
        self.by_age.remove(&age);
        self.rank(owner, |ages| ages.remove(&age));
        Some(half)
    }

    /// Changes what an owner has, and its rank with it.
    fn rank(&mut self, owner: Owner, change: impl FnOnce(&mut BTreeSet<Age>) -> bool) {
        let rank = |ages: &BTreeSet<Age>| ages.first().map(|oldest| (ages.len(), Reverse(*oldest)));
        let ages = self.of_owner.entry(owner).or_default();
        let before = rank(ages);
        change(ages);
        let after = rank(ages);
        if let Some(before) = before {
            self.ranks.remove(&before);
        }
        match after {
            Some(after) => {
                self.ranks.insert(after);
            }
            None => {
                self.of_owner.remove(&owner);
            }
        }
    }
}

fn stands(half: &HalfOpen, now: Instant) -> bool {
    !now.waited(half.opening.now.plus(LIFE))
}
