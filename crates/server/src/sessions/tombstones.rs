//! Ended sessions, remembered for a while so that their agents can be told.
//!
//! Decides what a NACK may say of a request of a session that has ended (section 11.3): nothing of it can execute any more, so what had not
//! begun never will. Place in the walk: asked when a datagram names a session that is not in the table.
//! Implements `wire-spec.md` section 7. Invariant: bounded, oldest forgotten first; forgetting one only means that its agent gets a
//! hint and learns the same by a handshake. An id that is remembered is never dealt out again (section 11.6).
//! Leaves to others: sending.

use crate::sessions::standing::Cause;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use cistern_link::{Path, ReplyCache};
use cistern_wire::{AgentId, Fate, SessionId};
use hashbrown::HashMap;

/// What is remembered of an ended session.
#[derive(Debug)]
pub(crate) struct Tombstone {
    /// The last proven address; nobody else is answered in its name.
    pub(crate) path: Path,
    /// Whose it was.
    pub(crate) agent: AgentId,
    /// Below this the agent had said that it knows every answer.
    floor: u64,
    /// Nonces from the floor on that were executed, ascending.
    executed: Box<[u64]>,
    /// Datagrams sent under the session, and since.
    pub(crate) packet: u64,
    /// Whether it ended because its agent said so.
    pub(crate) given_up: bool,
    /// Whether it was superseded, and has not been heard of since: what still sends is perhaps a clone.
    pub(crate) superseded: bool,
}

impl Tombstone {
    /// What stays of a session that ends now; its replies are forgotten.
    pub(crate) fn of(path: Path, agent: AgentId, cache: &ReplyCache, packet: u64, cause: Cause) -> Self {
        let floor = cache.floor();
        let known = floor..floor.saturating_add(cache.len() as u64);
        let executed = known.filter(|nonce| cache.fate(*nonce) == cistern_link::Fate::Executed).collect();
        let given_up = matches!(cause, Cause::Closed | Cause::Surrendered);
        Self { path, agent, floor, executed, packet, given_up, superseded: cause == Cause::Superseded }
    }

    /// What became of a request.
    pub(crate) fn fate(&self, nonce: u64) -> Fate {
        if nonce < self.floor {
            Fate::Unknown
        } else if self.executed.binary_search(&nonce).is_ok() {
            Fate::Executed
        } else {
            Fate::NotExecuted
        }
    }
}

/// The ended sessions that are remembered.
#[derive(Debug)]
pub(crate) struct Tombstones {
    max: usize,
    order: VecDeque<SessionId>,
    by_id: HashMap<SessionId, Tombstone>,
}

impl Tombstones {
    /// Room for `max` of them.
    pub(crate) fn new(max: u32) -> Self {
        Self { max: max as usize, order: VecDeque::new(), by_id: HashMap::new() }
    }

    /// Remembers one; forgets the oldest if there is no room.
    pub(crate) fn add(&mut self, id: SessionId, tombstone: Tombstone) {
        if self.order.len() >= self.max
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_id.remove(&oldest);
        }
        self.order.push_back(id);
        self.by_id.insert(id, tombstone);
    }

    /// The ended session of that id, if it is remembered.
    pub(crate) fn get_mut(&mut self, id: SessionId) -> Option<&mut Tombstone> {
        self.by_id.get_mut(&id)
    }

    /// Whether it is remembered.
    pub(crate) fn contains(&self, id: SessionId) -> bool {
        self.by_id.contains_key(&id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_link::{ReplyBuffers, Stored};
    use core::net::SocketAddr;

    fn path() -> Path {
        Path::to(SocketAddr::from(([127, 0, 0, 1], 1)))
    }

    #[test]
    fn fate_of_each_request_of_an_ended_session_is_told() {
        let mut cache = ReplyCache::new(8);
        for nonce in 3..=5 {
            cache.admit(nonce, 3, 0, &mut ReplyBuffers::default());
            cache.begin(nonce, 0, 1);
        }
        cache.finish(3, Stored::Recompute);
        cache.queue(5);
        let stone = Tombstone::of(path(), AgentId::default(), &cache, 9, Cause::Evicted);
        assert_eq!(stone.fate(2), Fate::Unknown, "forgotten");
        assert_eq!(stone.fate(3), Fate::Executed);
        assert_eq!(stone.fate(4), Fate::NotExecuted, "was parked, and is dropped");
        assert_eq!(stone.fate(5), Fate::Executed);
        assert_eq!(stone.fate(6), Fate::NotExecuted, "never came");
    }

    #[test]
    fn oldest_is_forgotten_first() {
        let mut stones = Tombstones::new(2);
        for id in 1..=3 {
            stones.add(SessionId(id), Tombstone::of(path(), AgentId::default(), &ReplyCache::new(1), 0, Cause::Closed));
        }
        assert!(!stones.contains(SessionId(1)));
        assert!(stones.get_mut(SessionId(2)).is_some() && stones.contains(SessionId(3)));
    }
}
