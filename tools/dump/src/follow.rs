//! One session from its handshake to what became of it, with its lease at every line.
//!
//! Decides: which datagrams belong to the session: its own, at whatever address; the handshake that opened it; later handshakes that name
//! it as a former session. A handshake is held back until it is known whose it was, so lines come in order. The lease is that of
//! `cistern-audit`'s story. Leaves to others: how lines look (`line`, `record`).

use crate::filter::SessionPrefix;
use crate::notes::Notes;
use crate::packet::Packet;
use crate::time::span;
use cistern_audit::Story;
use cistern_capture::Datagram;
use cistern_wire::{Message, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Most handshakes held back, and most datagrams of one.
const HANDSHAKES: usize = 1_024;
const OF_ONE: usize = 64;

/// A datagram with what was known when it came.
#[derive(Debug)]
pub struct Held {
    /// Its input.
    pub input: usize,
    /// The datagram.
    pub datagram: Datagram,
    /// What was known.
    pub notes: Notes,
    /// The session's lease then.
    pub aside: Aside,
}

/// What stands beside a line of a followed session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Aside {
    /// How the lease stands, as seen where the capture was made.
    pub lease: LeaseState,
    /// The address that the agent had before this datagram, if it has another now.
    pub moved_from: Option<SocketAddr>,
}

/// A session's lease at an instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseState {
    /// No answer has renewed it yet, or it is not known for how long.
    None,
    /// It lasts for so long.
    Left(Duration),
    /// It has been over for so long; the next renewing answer revives it.
    Over(Duration),
    /// The server has refused the session: it cannot be revived.
    Refused,
    /// The session has been given up or has ended.
    Ended,
}

impl LeaseState {
    /// In words, short.
    #[must_use]
    pub fn words(self) -> String {
        match self {
            Self::None => "no lease".to_owned(),
            Self::Left(left) => format!("{} left", span(rounded(left))),
            Self::Over(over) => format!("over {}", span(rounded(over))),
            Self::Refused => "refused".to_owned(),
            Self::Ended => "ended".to_owned(),
        }
    }

    /// For programs: the name of the state, and seconds left; negative when it is over.
    #[must_use]
    pub fn parts(self) -> (&'static str, Option<f64>) {
        match self {
            Self::None => ("none", None),
            Self::Left(left) => ("left", Some(left.as_secs_f64())),
            Self::Over(over) => ("over", Some(-over.as_secs_f64())),
            Self::Refused => ("refused", None),
            Self::Ended => ("ended", None),
        }
    }
}

/// To the millisecond: more says nothing about a lease, and a column stays narrow.
const fn rounded(span: Duration) -> Duration {
    Duration::new(span.as_secs(), span.subsec_millis() * 1_000_000)
}

/// Picks the datagrams of one session out.
#[derive(Debug)]
pub struct Follow {
    session: SessionPrefix,
    waiting: BTreeMap<u64, Vec<Held>>,
    /// Sessions that fit the prefix.
    found: BTreeSet<SessionId>,
    address: Option<SocketAddr>,
}

impl Follow {
    /// Follows the sessions that begin so; there should be one.
    #[must_use]
    pub const fn new(session: SessionPrefix) -> Self {
        Self { session, waiting: BTreeMap::new(), found: BTreeSet::new(), address: None }
    }

    /// The sessions that were found.
    #[must_use]
    pub fn found(&self) -> Vec<SessionId> {
        self.found.iter().copied().collect()
    }

    /// Takes a datagram; those that are known to belong to the session by now, in order.
    pub fn take(&mut self, story: &Story, datagram: &Datagram, packet: &Packet<'_>, notes: Notes) -> Vec<Held> {
        let Datagram { at, from, to, .. } = *datagram;
        let Ok(content) = &packet.content else { return Vec::new() };
        let session = content.header.session;
        if self.session.fits(notes.session) && notes.session.0 != 0 {
            self.found.insert(notes.session);
        }
        let handshake = content.messages().find_map(|message| match message {
            Message::Hello(m) => Some(m.handshake),
            Message::Challenge(m) => Some(m.handshake),
            Message::Welcome(m) => Some(m.handshake),
            Message::Refuse(m) => Some(m.handshake),
            _ => None,
        });
        let concerns = packet.concerns(&self.session);
        let mut moved_from = None;
        if concerns && self.session.fits(session) && session.0 != 0 {
            let agent = if content.header.from_server { to } else { from };
            moved_from = self.address.replace(agent).filter(|before| *before != agent && !content.header.from_server);
        }
        let aside = Aside { lease: self.state(story, at), moved_from };
        let held = Held { input: packet.input, datagram: datagram.clone(), notes, aside };
        match (concerns, handshake) {
            (true, Some(handshake)) => {
                let mut all = self.waiting.remove(&handshake).unwrap_or_default();
                all.push(held);
                all
            }
            (true, None) => vec![held],
            (false, Some(handshake)) => {
                self.hold(handshake, held);
                Vec::new()
            }
            (false, None) => Vec::new(),
        }
    }

    fn hold(&mut self, handshake: u64, held: Held) {
        if self.waiting.len() >= HANDSHAKES && !self.waiting.contains_key(&handshake) {
            let oldest = self.waiting.iter().min_by_key(|(_, all)| all.first().map(|held| held.datagram.at)).map(|(number, _)| *number);
            oldest.and_then(|oldest| self.waiting.remove(&oldest));
        }
        let all = self.waiting.entry(handshake).or_default();
        if all.len() < OF_ONE {
            all.push(held);
        }
    }

    /// The lease of the session that is followed.
    fn state(&self, story: &Story, at: Duration) -> LeaseState {
        let Some(session) = self.found.last().and_then(|id| story.session(*id)) else { return LeaseState::None };
        if session.ended.is_some() || session.given_up.is_some() {
            return LeaseState::Ended;
        }
        if session.nack.is_some() {
            return LeaseState::Refused;
        }
        match session.lease_until() {
            None => LeaseState::None,
            Some(until) if until > at => LeaseState::Left(until - at),
            Some(until) => LeaseState::Over(at - until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Header, Hello, KeepAlive, Kind, Packer, samples};

    struct Onlooker {
        follow: Follow,
        story: Story,
        at: u64,
    }

    impl Onlooker {
        /// Takes a datagram; how many are known to belong to the session then, and what stands beside the last of them.
        fn sees(&mut self, agent: &str, from_server: bool, session: u64, packet: u64, message: Message<'_>) -> (usize, Option<Aside>) {
            let mut bytes = Vec::new();
            let mut packer = Packer::new(&mut bytes, Header { from_server, session: SessionId(session), packet }, 1_232);
            assert!(packer.push(&message));
            packer.finish();
            let (agent, server) = (agent.parse().unwrap(), "10.0.0.1:7311".parse().unwrap());
            let (from, to) = if from_server { (server, agent) } else { (agent, server) };
            self.at += 1;
            let datagram = Datagram { number: self.at, at: Duration::from_secs(self.at), from, to, payload: bytes.into() };
            let packet = Packet::new(0, &datagram);
            let notes = Notes::take(&mut self.story, &packet);
            let held = self.follow.take(&self.story, &datagram, &packet, notes);
            (held.len(), held.last().map(|held| held.aside.clone()))
        }
    }

    #[test]
    fn a_session_is_followed_from_its_handshake_over_all_addresses() {
        let session = 0x1122_3344_5566_7788;
        let mut onlooker = Onlooker { follow: Follow::new("11223344".parse().unwrap()), story: crate::notes::story(None), at: 0 };
        let sample = |kind| samples().into_iter().find(|message| message.kind() == kind).unwrap();
        let Message::Hello(hello) = sample(Kind::Hello) else { panic!() };
        let hello = |handshake| Message::Hello(Hello { handshake, ..hello });
        let keep_alive = |serial| Message::KeepAlive(KeepAlive { serial, clock_us: 0 });
        // Handshake 1 is that of the samples' WELCOME; whose handshake 2 is never comes out.
        assert_eq!(onlooker.sees("10.0.0.2:9", false, 0, 2, hello(1)).0, 0);
        assert_eq!(onlooker.sees("10.0.0.3:9", false, 0, 1, hello(2)).0, 0);
        let (count, aside) = onlooker.sees("10.0.0.2:9", true, 0, 1, sample(Kind::Welcome));
        assert_eq!((count, aside.unwrap().lease), (2, LeaseState::None));
        assert_eq!(onlooker.sees("10.0.0.3:9", false, 5, 1, keep_alive(1)).0, 0);
        assert_eq!(onlooker.sees("10.0.0.2:9", false, session, 1, keep_alive(1)).1.unwrap().moved_from, None);
        let moved = onlooker.sees("10.0.0.9:9", false, session, 2, keep_alive(2)).1.unwrap();
        assert_eq!(moved.moved_from, Some("10.0.0.2:9".parse().unwrap()));
        assert_eq!(onlooker.follow.found(), [SessionId(session)]);
    }
}
