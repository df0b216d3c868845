//! The table of sessions: by place, by id, by agent.
//!
//! Decides how a session is found, in constant time whatever their number, and counts them by standing. Place in the walk: right
//! after decoding. Implements `wire-spec.md` section 6. Invariants: an id is random, not 0, and unique among live and remembered
//! sessions (R11); the number of lease timers equals the number of sessions timing out (R3, asserted by `server`).
//! A [`Key`] names a place and an id, so that one kept in a timer or a queue never finds the session that came after.
//! Leaves to others: what a change of standing entails.

use crate::cookie::CookieTime;
use crate::session::Session;
use crate::standing::{Event, Illegal, Standing};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::ReplyCache;
use cistern_wire::{AgentId, SessionId};
use hashbrown::HashMap;

/// A session in the table; finds nothing once that session is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key {
    place: u32,
    id: SessionId,
}

impl Key {
    /// Of no session: the server's own operations.
    pub(crate) const SERVER: Self = Self { place: u32::MAX, id: SessionId(0) };

    /// The session's id.
    pub(crate) const fn id(self) -> SessionId {
        self.id
    }

    #[cfg(test)]
    pub(crate) const fn for_test(n: u32) -> Self {
        Self { place: n, id: SessionId(n as u64) }
    }
}

/// What is known of an agent as long as it has a session.
#[derive(Debug)]
pub(crate) struct Agent {
    /// The highest incarnation seen (R41).
    pub(crate) incarnation: u64,
    /// When the cookie was made by which its newest session was opened: an older handshake of the same incarnation is refused.
    pub(crate) cookie: CookieTime,
    /// Its sessions, oldest first; all but the last are on their way out.
    pub(crate) sessions: Vec<Key>,
}

/// How many sessions have which standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) opening: usize,
    pub(crate) good: usize,
    pub(crate) timing_out: usize,
    /// Ending, or ended and not freed yet.
    pub(crate) over: usize,
}

impl Counts {
    const fn of(&mut self, standing: Standing) -> &mut usize {
        match standing {
            Standing::Opening => &mut self.opening,
            Standing::Good => &mut self.good,
            Standing::TimingOut { .. } => &mut self.timing_out,
            Standing::Ending { .. } | Standing::Ended { .. } => &mut self.over,
        }
    }
}

/// All sessions that are not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    places: Vec<Option<Box<Session>>>,
    free: Vec<u32>,
    by_id: HashMap<SessionId, u32>,
    by_agent: HashMap<AgentId, Agent>,
    counts: Counts,
}

impl Sessions {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// How many have which standing.
    pub(crate) const fn counts(&self) -> Counts {
        self.counts
    }

    /// The session of an id on the wire.
    pub(crate) fn find(&self, id: SessionId) -> Option<Key> {
        self.by_id.get(&id).map(|place| Key { place: *place, id })
    }

    /// The session of a key, unless it is gone.
    pub(crate) fn get(&self, key: Key) -> Option<&Session> {
        self.places.get(key.place as usize)?.as_deref().filter(|session| session.id == key.id)
    }

    /// The session of a key, unless it is gone.
    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut Session> {
        self.places.get_mut(key.place as usize)?.as_deref_mut().filter(|session| session.id == key.id)
    }

    /// What is known of an agent.
    pub(crate) fn agent(&self, agent: AgentId) -> Option<&Agent> {
        self.by_agent.get(&agent)
    }

    /// All sessions, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &Session)> {
        (0..).zip(&self.places).filter_map(|(place, session)| {
            let session = session.as_deref()?;
            Some((Key { place, id: session.id }, session))
        })
    }

    /// How many places there are, free ones included.
    pub(crate) fn places(&self) -> usize {
        self.places.len()
    }

    /// The session in a place.
    pub(crate) fn at(&self, place: usize) -> Option<Key> {
        let session = self.places.get(place)?.as_deref()?;
        Some(Key { place: u32::try_from(place).ok()?, id: session.id })
    }

    /// Takes a new session in; `cookie` tells when its handshake was challenged.
    pub(crate) fn insert(&mut self, session: Session, cookie: CookieTime) -> Key {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            u32::try_from(self.places.len() - 1).expect("sessions-max is below 2^24")
        });
        let key = Key { place, id: session.id };
        assert!(self.by_id.insert(session.id, place).is_none(), "session ids are unique (R11)");
        *self.counts.of(session.standing()) += 1;
        // Nearly every agent has one session at a time: room for one, not for the usual four.
        let fresh = Agent { incarnation: 0, cookie, sessions: Vec::with_capacity(1) };
        let agent = self.by_agent.entry(session.agent).or_insert(fresh);
        agent.incarnation = agent.incarnation.max(session.incarnation);
        agent.cookie = agent.cookie.max(cookie);
        agent.sessions.push(key);
        self.places[place as usize] = Some(Box::new(session));
        key
    }

    /// Changes a session's standing; gives the new one.
    ///
    /// # Errors
    /// [`Illegal`] if the event cannot happen in its standing; `None` inside `Ok` if the session is gone.
    pub(crate) fn apply(&mut self, key: Key, event: Event) -> Result<Option<Standing>, Illegal> {
        let Some(session) = self.places.get_mut(key.place as usize).and_then(Option::as_deref_mut).filter(|s| s.id == key.id) else {
            return Ok(None);
        };
        let before = session.standing();
        let after = before.after(event)?;
        session.set_standing(after);
        *self.counts.of(before) -= 1;
        *self.counts.of(after) += 1;
        Ok(Some(after))
    }

    /// Takes a failed session back whatever has happened to it; a deliberate bug.
    pub(crate) fn pardon(&mut self, key: Key) {
        let Some(session) = self.places.get_mut(key.place as usize).and_then(Option::as_deref_mut).filter(|s| s.id == key.id) else {
            return;
        };
        let before = session.standing();
        session.set_standing(Standing::Good);
        *self.counts.of(before) -= 1;
        *self.counts.of(Standing::Good) += 1;
    }

    /// Gives a session the kept replies of another one; a deliberate bug.
    pub(crate) fn inherit(&mut self, from: Key, to: Key) {
        if let Some(old) = self.get_mut(from) {
            let fresh = ReplyCache::new(old.cache.window());
            let kept = core::mem::replace(&mut old.cache, fresh);
            if let Some(new) = self.get_mut(to) {
                new.cache = kept;
            }
        }
    }

    /// Forgets a session.
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Session>> {
        let session = self.places.get_mut(key.place as usize)?.take_if(|session| session.id == key.id)?;
        self.free.push(key.place);
        self.by_id.remove(&key.id);
        *self.counts.of(session.standing()) -= 1;
        if let Some(agent) = self.by_agent.get_mut(&session.agent) {
            agent.sessions.retain(|other| *other != key);
            if agent.sessions.is_empty() {
                self.by_agent.remove(&session.agent);
            }
        }
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Opening;
    use crate::standing::Cause;
    use cistern_link::{Instant, Path, Rng};
    use core::net::SocketAddr;
    use core::time::Duration;

    fn cookie_time() -> CookieTime {
        let jar = crate::cookie::Cookies::new(&mut Rng::from_seed([0; 32]), Duration::from_secs(1));
        let (now, remote) = (Instant::new(1, 1), SocketAddr::from(([127, 0, 0, 1], 1)));
        jar.check(now, remote, 1, &jar.make(now, remote, 1)).unwrap()
    }

    fn session(id: u64, agent: u8, incarnation: u64) -> Session {
        Session::new(Opening {
            id: SessionId(id),
            agent: AgentId([agent; 16]),
            incarnation,
            handshake: 1,
            label: Box::from(*b"test"),
            now: Instant::new(1, 1),
            path: Path::to(SocketAddr::from(([127, 0, 0, 1], 1))),
            max_datagram: 1_232,
            window: 64,
        })
    }

    #[test]
    fn key_of_a_session_that_is_gone_finds_nothing_even_in_its_old_place() {
        let mut table = Sessions::default();
        let old = table.insert(session(7, 1, 1), cookie_time());
        assert_eq!(table.find(SessionId(7)), Some(old));
        assert!(table.remove(old).is_some());
        let new = table.insert(session(8, 1, 1), cookie_time());
        assert_eq!(new.place, old.place);
        assert!(table.get(old).is_none() && table.get_mut(old).is_none() && table.remove(old).is_none());
        assert_eq!(table.apply(old, Event::Recorded), Ok(None));
        assert_eq!((table.find(SessionId(7)), table.len()), (None, 1));
    }

    #[test]
    fn counts_follow_every_change_of_standing() {
        let mut table = Sessions::default();
        let key = table.insert(session(7, 1, 1), cookie_time());
        assert_eq!(table.counts().opening, 1);
        table.apply(key, Event::Recorded).unwrap();
        assert_eq!(table.counts(), Counts { good: 1, ..Counts::default() });
        assert!(table.apply(key, Event::Recorded).is_err());
        assert_eq!(table.counts(), Counts { good: 1, ..Counts::default() }, "an illegal event changes nothing");
        table.apply(key, Event::Over { cause: Cause::Closed }).unwrap();
        table.remove(key);
        assert_eq!(table.counts(), Counts::default());
    }

    #[test]
    fn agent_is_known_as_long_as_it_has_a_session() {
        let mut table = Sessions::default();
        let first = table.insert(session(7, 1, 3), cookie_time());
        let second = table.insert(session(8, 1, 4), cookie_time());
        let agent = table.agent(AgentId([1; 16])).unwrap();
        assert_eq!((agent.incarnation, agent.sessions.as_slice()), (4, [first, second].as_slice()));
        table.remove(second);
        assert_eq!(table.agent(AgentId([1; 16])).unwrap().incarnation, 4, "the highest stays");
        table.remove(first);
        assert!(table.agent(AgentId([1; 16])).is_none());
    }
}
