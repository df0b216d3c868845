//! The table of sessions: by place, by id, by agent.
//!
//! Decides how a session is found, in constant time whatever their number, and counts them by standing. Place in the walk: right
//! after decoding. Implements `wire-spec.md` section 6. Invariants: an id is random, not 0, and unique among live and remembered
//! sessions (section 11.6); the number of lease timers equals the number of sessions timing out (section 11.3, asserted by `server`).
//! A session that has ended is found by its id alone, for a while, so that its agent can be told: the oldest is forgotten first, and
//! forgetting one only means that its agent gets a hint and learns the same by a handshake.
//! Leaves to others: what a change of standing entails.

pub(crate) mod grace;
pub(crate) mod half_open;
pub(crate) mod networks;
pub(crate) mod notices;
pub(crate) mod session;
pub(crate) mod standing;
pub(crate) mod start_keys;

use crate::ids::LockSlot;
pub(crate) use crate::ids::SessionKey;
use crate::sessions::networks::{Listing, Network, Networks};
use crate::sessions::session::Session;
use crate::sessions::standing::{Event, Illegal, ReclaimState, Standing};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::Index;
use cistern_link::ReplyCache;
use cistern_link::slab::{NONE, Slab};
use cistern_wire::{AgentId, SessionId};
use core::hash::BuildHasher as _;
use hashbrown::DefaultHashBuilder;

/// What is known of an agent as long as it has a session that has not ended; kept with the newest of its sessions, for nearly every agent has but one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Agent {
    /// The highest incarnation seen (section 11.6).
    pub(crate) incarnation: u64,
    /// Its newest session; all others are on their way out.
    pub(crate) newest: SessionKey,
}

/// A session, and what of its agent is kept with it.
#[derive(Debug)]
struct Place {
    session: Session,
    /// The highest incarnation of the agent, as far as sessions up to this one tell.
    incarnation: u64,
    /// The place of the agent's next older session; [`NONE`]: it has none.
    older: u32,
    /// Where it is listed among those of its network.
    row: Option<Listing>,
}

/// How many sessions have which standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) good: usize,
    pub(crate) timing_out: usize,
    /// Their ends are not durable yet.
    pub(crate) ending: usize,
    /// Remembered.
    pub(crate) ended: usize,
    /// Of an earlier start of the server, and not ended.
    pub(crate) of_before: usize,
}

impl Counts {
    fn of(&mut self, session: &Session) -> &mut usize {
        match session.standing() {
            Standing::Recorded { .. } => &mut self.of_before,
            Standing::Ending { .. } if session.is_of_before() => &mut self.of_before,
            Standing::Good => &mut self.good,
            Standing::TimingOut { .. } => &mut self.timing_out,
            Standing::Ending { .. } => &mut self.ending,
            Standing::Ended { .. } => &mut self.ended,
        }
    }
}

/// What an event has made of a session's standing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) key: SessionKey,
    pub(crate) from: Standing,
    pub(crate) to: Standing,
}

/// All sessions that are not forgotten.
#[derive(Debug)]
pub(crate) struct Sessions {
    places: Slab<Place>,
    by_id: Index,
    /// The newest session of each agent.
    by_agent: Index,
    networks: Networks,
    /// Agents choose their ids: how they are hashed is nobody's to know.
    hasher: DefaultHashBuilder,
    counts: Counts,
    /// Those that have ended, oldest first, and how many are remembered.
    ended: VecDeque<SessionKey>,
    ended_max: usize,
}

/// Ids of sessions are random.
const fn hash_of(id: SessionId) -> u32 {
    (id.0 >> 32) as u32
}

impl Sessions {
    /// None yet; at most `ended_max`, at least 1, are remembered when they have ended.
    pub(crate) fn new(ended_max: u32) -> Self {
        Self {
            places: Slab::default(),
            by_id: Index::default(),
            by_agent: Index::default(),
            networks: Networks::default(),
            hasher: DefaultHashBuilder::default(),
            counts: Counts::default(),
            ended: VecDeque::new(),
            ended_max: ended_max as usize,
        }
    }

    /// How many were opened since the start, and have not ended.
    pub(crate) fn len(&self) -> usize {
        self.places.len() - self.counts.ended - self.counts.of_before
    }

    /// How many have which standing.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The session of an id on the wire, also one that has ended, or is of an earlier start.
    pub(crate) fn find(&self, id: SessionId) -> Option<SessionKey> {
        self.by_id
            .find(hash_of(id), |place| self.place(place).is_some_and(|found| found.session.id == id))
            .map(|place| SessionKey { place, id })
    }

    /// The session of a key, unless it is gone.
    pub(crate) fn get(&self, key: SessionKey) -> Option<&Session> {
        self.place(key.place).map(|place| &place.session).filter(|session| session.id == key.id)
    }

    /// The session of a key, unless it is gone.
    pub(crate) fn get_mut(&mut self, key: SessionKey) -> Option<&mut Session> {
        self.places.get_mut(key.place).map(|place| &mut place.session).filter(|session| session.id == key.id)
    }

    /// The name of a session in the lock table.
    pub(crate) fn slot(&self, key: SessionKey) -> LockSlot {
        self.get(key).map_or(LockSlot::NONE, |session| session.slot)
    }

    /// What is known of an agent.
    pub(crate) fn agent(&self, agent: AgentId) -> Option<Agent> {
        let place = self.newest(agent)?;
        let Place { session, incarnation, .. } = self.place(place)?;
        Some(Agent { incarnation: *incarnation, newest: SessionKey { place, id: session.id } })
    }

    /// The sessions of an agent that have not ended, oldest first.
    pub(crate) fn of_agent(&self, agent: AgentId) -> Vec<SessionKey> {
        let mut at = self.newest(agent).unwrap_or(NONE);
        let newest_first = core::iter::from_fn(|| {
            let place = self.place(at)?;
            Some(SessionKey { place: core::mem::replace(&mut at, place.older), id: place.session.id })
        });
        let mut sessions: Vec<SessionKey> = newest_first.collect();
        sessions.reverse();
        sessions
    }

    fn newest(&self, agent: AgentId) -> Option<u32> {
        self.by_agent.find(self.hash_of_agent(agent), |place| self.place(place).is_some_and(|found| found.session.agent == agent))
    }

    fn hash_of_agent(&self, agent: AgentId) -> u32 {
        (self.hasher.hash_one(agent) >> 32) as u32
    }

    fn place(&self, place: u32) -> Option<&Place> {
        self.places.get(place)
    }

    /// All sessions that were opened since the start and have not ended, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Session> {
        self.first(u32::MAX)
    }

    /// Those of them in the first so many places.
    pub(crate) fn first(&self, places: u32) -> impl Iterator<Item = &Session> {
        let all = (0..self.places.places().min(places)).filter_map(|place| Some(&self.place(place)?.session));
        all.filter(|session| session.is_live())
    }

    /// Whether an agent had a session when the server started, and has none since.
    pub(crate) fn is_back(&self, agent: AgentId) -> bool {
        let newest = self.newest(agent).and_then(|place| self.place(place));
        newest.is_some_and(|place| matches!(place.session.standing(), Standing::Recorded { .. }))
    }

    /// The sessions of an earlier start from which somebody may yet reclaim, or whose leases are waited for.
    pub(crate) fn recorded(&self) -> impl Iterator<Item = (SessionKey, ReclaimState)> {
        (0..self.places.places()).filter_map(|place| {
            let session = &self.place(place)?.session;
            let Standing::Recorded { reclaim } = session.standing() else { return None };
            Some((SessionKey { place, id: session.id }, reclaim))
        })
    }

    /// How many places there are, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.places.places() as usize
    }

    /// The places of the sessions that were opened from a network, in no order.
    pub(crate) fn of_network(&self, network: Network) -> &[u32] {
        self.networks.places(network)
    }

    /// The session in a place.
    pub(crate) fn at(&self, place: usize) -> Option<SessionKey> {
        let place = u32::try_from(place).ok()?;
        Some(SessionKey { place, id: self.place(place)?.session.id })
    }

    /// Takes a new session in.
    pub(crate) fn insert(&mut self, session: Session) -> SessionKey {
        let key = SessionKey { place: self.places.next_name(), id: session.id };
        assert!(self.find(session.id).is_none(), "session ids are unique (section 11.6)");
        *self.counts.of(&session) += 1;
        let hash = self.hash_of_agent(session.agent);
        let known = self.agent(session.agent);
        let mut incarnation = session.incarnation;
        if let Some(known) = known {
            incarnation = incarnation.max(known.incarnation);
            self.by_agent.remove(hash, known.newest.place);
        }
        let older = known.map_or(NONE, |known| known.newest.place);
        self.by_id.insert(hash_of(session.id), key.place);
        self.by_agent.insert(hash, key.place);
        let network = Network::of(session.path.remote).filter(|_| !session.is_of_before());
        let row = network.map(|network| self.networks.insert(network, key.place));
        let place = self.places.insert(Place { session, incarnation, older, row });
        debug_assert_eq!(place, key.place, "the name was foretold");
        key
    }

    /// Changes a session's standing; `None` if the session is gone.
    ///
    /// # Errors
    /// [`Illegal`] if the event cannot happen in its standing; nothing is changed.
    pub(crate) fn apply(&mut self, key: SessionKey, event: Event) -> Result<Option<Transition>, Illegal> {
        let Some(session) = self.places.get_mut(key.place).map(|place| &mut place.session).filter(|session| session.id == key.id) else {
            return Ok(None);
        };
        let from = session.standing();
        let to = from.after(event)?;
        *self.counts.of(session) -= 1;
        session.set_standing(to);
        *self.counts.of(session) += 1;
        if let Standing::Ended { .. } = to {
            self.retire(key);
        }
        Ok(Some(Transition { key, from, to }))
    }

    /// Gives a session the kept replies of another one; a deliberate bug.
    pub(crate) fn inherit(&mut self, from: SessionKey, to: SessionKey) {
        if let Some(old) = self.get_mut(from) {
            let fresh = ReplyCache::new(old.cache.window());
            let kept = core::mem::replace(&mut old.cache, fresh);
            if let Some(new) = self.get_mut(to) {
                new.cache = kept;
            }
        }
    }

    /// A session has ended: it counts neither for its agent nor for its network any more, and is remembered for as long as there is room.
    fn retire(&mut self, key: SessionKey) {
        let Some(agent) = self.get(key).map(|session| session.agent) else {
            return;
        };
        let newest = self.newest(agent);
        let Some(place) = self.places.get_mut(key.place) else {
            return;
        };
        place.session.retire();
        let (incarnation, older, row) = (place.incarnation, core::mem::replace(&mut place.older, NONE), place.row.take());
        if let Some(moved) = row.and_then(|row| self.networks.remove(row))
            && let Some(place) = self.places.get_mut(moved)
        {
            place.row = row;
        }
        if newest == Some(key.place) {
            let hash = self.hash_of_agent(agent);
            self.by_agent.remove(hash, key.place);
            if let Some(heir) = self.places.get_mut(older) {
                // The highest stays, and nothing that is known is forgotten as long as there is a session.
                heir.incarnation = incarnation;
                self.by_agent.insert(hash, older);
            }
        } else {
            self.unlink(newest, key.place, older);
        }
        if self.get(key).is_some_and(Session::is_of_before) {
            return;
        }
        self.ended.push_back(key);
        if self.ended.len() > self.ended_max
            && let Some(oldest) = self.ended.pop_front()
        {
            self.forget(oldest);
        }
    }

    /// Forgets a session that has ended: one that is remembered no more, or of which there is nothing to remember.
    pub(crate) fn forget(&mut self, key: SessionKey) {
        if self.get(key).is_some_and(Session::has_ended) {
            self.by_id.remove(hash_of(key.id), key.place);
            self.places.remove(key.place);
            self.counts.ended -= 1;
        }
    }

    /// Takes a place that is gone out of the list of an agent's sessions.
    fn unlink(&mut self, newest: Option<u32>, gone: u32, older: u32) {
        let mut at = newest.unwrap_or(NONE);
        while let Some(place) = self.places.get_mut(at) {
            if place.older == gone {
                place.older = older;
                return;
            }
            at = place.older;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PrincipalId;
    use crate::sessions::session::Opening;
    use crate::sessions::standing::Cause;
    use alloc::boxed::Box;
    use cistern_link::{Instant, PacketCounter, Path, ReplayWindow};
    use cistern_wire::Handle;
    use core::net::SocketAddr;

    fn session(id: u64, agent: u8, incarnation: u64) -> Session {
        Session::new(Opening {
            id: SessionId(id),
            handle: Handle(id),
            principal: PrincipalId::ANYBODY,
            agent: AgentId([agent; 16]),
            incarnation,
            handshake: 1,
            label: Box::from(*b"test"),
            lease_us: 2_000_000,
            received: ReplayWindow::starting_at(1),
            sent: PacketCounter::starting_at(1),
            sealer: cistern_seal::Sealer::Plain,
            now: Instant::new(1, 1),
            path: Path::to(SocketAddr::from(([127, 0, 0, 1], 1))),
            max_datagram: 1_232,
            window: 64,
            round_trip: core::time::Duration::ZERO,
            last_heard: false,
        })
    }

    /// The session ends, durably.
    fn end(table: &mut Sessions, key: SessionKey) {
        table.apply(key, Event::Over { cause: Cause::Closed }).unwrap();
        table.apply(key, Event::Durable).unwrap();
    }

    #[test]
    fn key_of_a_session_that_is_gone_finds_nothing_even_in_its_old_place() {
        let mut table = Sessions::new(1);
        let (old, next) = (table.insert(session(7, 1, 1)), table.insert(session(9, 2, 1)));
        assert_eq!(table.find(SessionId(7)), Some(old));
        end(&mut table, old);
        end(&mut table, next);
        let new = table.insert(session(8, 1, 1));
        assert_eq!(new.place, old.place);
        assert!(table.get(old).is_none() && table.get_mut(old).is_none());
        assert_eq!(table.apply(old, Event::Refused), Ok(None));
        assert_eq!((table.find(SessionId(7)), table.len()), (None, 1));
    }

    #[test]
    fn ended_sessions_are_found_by_their_ids_alone_and_the_oldest_is_forgotten_first() {
        let mut table = Sessions::new(2);
        let keys: Vec<_> = (1..=3).map(|id| table.insert(session(id, 1, 1))).collect();
        for key in &keys {
            end(&mut table, *key);
            assert_eq!(table.find(key.id()), Some(*key));
            assert!(table.iter().all(|session| session.id != key.id()));
        }
        assert_eq!(table.find(SessionId(1)), None);
        assert!(table.find(SessionId(2)).is_some() && table.agent(AgentId([1; 16])).is_none());
        assert_eq!((table.len(), table.counts()), (0, Counts { ended: 2, ..Counts::default() }));
    }

    #[test]
    fn counts_follow_every_change_of_standing() {
        let mut table = Sessions::new(1);
        let key = table.insert(session(7, 1, 1));
        assert_eq!(table.counts(), Counts { good: 1, ..Counts::default() });
        assert!(table.apply(key, Event::Durable).is_err());
        assert_eq!(table.counts(), Counts { good: 1, ..Counts::default() }, "an illegal event changes nothing");
        let cause = Cause::Closed;
        let change = table.apply(key, Event::Over { cause }).unwrap();
        assert_eq!(change, Some(Transition { key, from: Standing::Good, to: Standing::Ending { cause } }));
        assert_eq!(table.counts(), Counts { ending: 1, ..Counts::default() });
        table.apply(key, Event::Durable).unwrap();
        assert_eq!(table.counts(), Counts { ended: 1, ..Counts::default() });
    }

    #[test]
    fn agent_is_known_as_long_as_it_has_a_session() {
        let mut table = Sessions::new(9);
        let first = table.insert(session(7, 1, 3));
        let second = table.insert(session(8, 1, 4));
        let agent = table.agent(AgentId([1; 16])).unwrap();
        assert_eq!((agent.incarnation, agent.newest), (4, second));
        assert_eq!(table.of_agent(AgentId([1; 16])), [first, second]);
        end(&mut table, second);
        assert_eq!(table.agent(AgentId([1; 16])).unwrap().incarnation, 4, "the highest stays");
        end(&mut table, first);
        assert!(table.agent(AgentId([1; 16])).is_none());
    }

    #[test]
    fn sessions_of_a_network_are_listed_where_they_were_opened() {
        let mut table = Sessions::new(9);
        let from = |id: u64, address: [u8; 4]| {
            let mut session = session(id, 1, 1);
            session.path = Path::to(SocketAddr::from((address, 1)));
            session
        };
        let network = Network::of(SocketAddr::from(([10, 0, 0, 1], 1))).unwrap();
        let keys: Vec<_> = (1..=4).map(|n| table.insert(from(n.into(), [10, 0, 0, n]))).collect();
        table.insert(from(9, [10, 0, 1, 1]));
        table.insert(session(10, 1, 1));
        if let Some(session) = table.get_mut(keys[1]) {
            session.path = Path::to(SocketAddr::from(([10, 0, 9, 9], 1)));
        }
        assert_eq!(table.of_network(network).len(), 4);
        for (gone, left) in [(0, 3), (1, 2), (3, 1), (2, 0)] {
            end(&mut table, keys[gone]);
            assert_eq!(table.of_network(network).len(), left);
            assert!(table.of_network(network).iter().all(|place| keys.contains(&table.at(*place as usize).unwrap())));
        }
    }

    #[test]
    fn sessions_of_an_agent_stay_in_order_whichever_of_them_goes_first() {
        for gone in 0..3 {
            let mut table = Sessions::new(9);
            let mut keys: Vec<_> = [(7, 5), (8, 4), (9, 3)].map(|(id, start)| table.insert(session(id, 1, start))).into();
            table.insert(session(10, 2, 1));
            end(&mut table, keys.remove(gone));
            let agent = table.agent(AgentId([1; 16])).unwrap();
            assert_eq!((table.of_agent(AgentId([1; 16])), agent.newest, agent.incarnation), (keys.clone(), keys[1], 5));
            assert_eq!(table.of_agent(AgentId([2; 16])).len(), 1);
        }
    }
}
