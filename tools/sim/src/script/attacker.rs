//! An attacker's machine, as a script handles it: it sends what the script says from an address that is no agent's.
//!
//! Decides nothing: words for forging, replaying and opening sessions, and for what the server has answered. What it sends no judge takes
//! for an agent's, and it must be refused (`judge::strangers`).
//! Leaves to others: attacks that are drawn (`crate::attack`).

use super::course::{Course, Due};
use super::wires::{self, Way};
use super::{Agent, Script, Shared};
use crate::attack;
use crate::host::ADDRESS;
use crate::observe::Node;
use bytes::Bytes;
use cistern_wire::{Confirm, Datagram, Form, FormerClaim, Header, Hello, Kind, List, Message, SessionId};
use std::net::SocketAddr;

/// An attacker's machine.
pub struct Attacker {
    shared: Shared,
    address: SocketAddr,
}

impl Script {
    /// The attacker of this number.
    #[must_use]
    pub fn attacker(&self, number: u32) -> Attacker {
        Attacker { shared: self.shared.clone(), address: attack::address(number) }
    }

    /// The newest packet number that went there.
    ///
    /// # Panics
    /// If nothing did.
    #[must_use]
    pub fn newest_packet(&self, way: Way) -> u64 {
        let numbers = self.datagrams().into_iter().filter(|sent| (sent.agent, sent.up) == (way.agent, way.up)).filter_map(|sent| {
            let header = Datagram::seen(&sent.bytes).ok()?.header;
            (header.session.0 != 0).then_some(header.packet)
        });
        numbers.max().expect("something went there")
    }
}

impl Attacker {
    /// Sends the server a datagram of a session.
    pub fn tells_server(&self, session: SessionId, packet: u64, messages: &[Message<'_>]) {
        let header = Header { from_server: false, session, packet };
        self.sends(Node::Server, attack::datagram(header, messages));
    }

    /// Sends an agent a datagram as if from its server.
    pub fn tells(&self, agent: &Agent, session: SessionId, packet: u64, messages: &[Message<'_>]) {
        let header = Header { from_server: true, session, packet };
        self.sends(Node::Agent(agent.number()), attack::datagram(header, messages));
    }

    /// Sends every datagram again that ever went there with such a message.
    ///
    /// # Panics
    /// If there was none.
    pub fn replays(&self, kind: Kind, way: Way) {
        let again: Vec<Bytes> = {
            let course = self.shared.course();
            let passed = course.wires.recorded.iter().filter(|passed| passed.way == way && wires::has(&passed.plain, kind));
            passed.map(|passed| passed.bytes.clone()).collect()
        };
        assert!(!again.is_empty(), "no {} went there", kind.name());
        let node = if way.up { Node::Server } else { Node::Agent(way.agent) };
        again.into_iter().for_each(|bytes| self.sends(node, bytes.to_vec()));
    }

    /// Sends the newest record that went there once more, changed.
    ///
    /// # Panics
    /// If there was none.
    pub fn changes_newest(&self, way: Way, change: impl FnOnce(&mut [u8])) {
        let mut bytes = self.shared.course().wires.newest(Form::Record, way);
        change(&mut bytes);
        self.sends(if way.up { Node::Server } else { Node::Agent(way.agent) }, bytes);
    }

    /// Goes through a handshake: HELLO, the cookie that comes back, HELLO with it, CONFIRM. The session, if it is opened.
    pub fn opens(&self, hello: &Hello<'_>) -> Option<SessionId> {
        self.opens_claiming(hello, &[])
    }

    /// The same, with what it claims of former sessions.
    pub fn opens_claiming(&self, hello: &Hello<'_>, former: &[FormerClaim]) -> Option<SessionId> {
        self.tells_server(SessionId(0), 1, &[Message::Hello(*hello)]);
        let cookie = self.cookie()?;
        let session = self.greets(&Hello { cookie: cistern_wire::Bytes8(&cookie), ..*hello })?;
        self.tells_server(session, hello.first_packet, &[Confirm { serial: 1, former: List::of(former) }.into()]);
        self.heard_kinds().contains(&Kind::Opened).then_some(session)
    }

    /// Sends a HELLO; the session, if one is offered.
    pub fn greets(&self, hello: &Hello<'_>) -> Option<SessionId> {
        let before = self.heard().len();
        self.tells_server(SessionId(0), 2, &[Message::Hello(*hello)]);
        self.heard().iter().skip(before).find_map(|bytes| {
            Datagram::at_agent(bytes).ok()?.messages().find_map(|message| match message {
                Message::Welcome(welcome) => Some(welcome.session),
                _ => None,
            })
        })
    }

    /// The cookie that it was given last.
    #[must_use]
    pub fn cookie(&self) -> Option<Vec<u8>> {
        self.heard().iter().rev().find_map(|bytes| {
            Datagram::at_agent(bytes).ok()?.messages().find_map(|message| match message {
                Message::Challenge(challenge) => Some(challenge.cookie.0.to_vec()),
                _ => None,
            })
        })
    }

    /// What the server has sent to its address.
    #[must_use]
    pub fn heard(&self) -> Vec<Bytes> {
        let course = self.shared.course();
        course.exposed.iter().filter(|(to, _)| *to == self.address).map(|(_, bytes)| bytes.clone()).collect()
    }

    /// The kinds of what the server has sent to its address.
    #[must_use]
    pub fn heard_kinds(&self) -> Vec<Kind> {
        let kinds = |bytes: &Bytes| -> Vec<Kind> {
            Datagram::seen(bytes).map_or_else(|_| Vec::new(), |datagram| datagram.messages().map(|message| message.kind()).collect())
        };
        self.heard().iter().flat_map(kinds).collect()
    }

    /// A datagram arrives, and what it leads to within 5 ms happens.
    fn sends(&self, node: Node, bytes: Vec<u8>) {
        let mut course = self.shared.course();
        let to = match node {
            Node::Server => ADDRESS,
            Node::Agent(agent) => course.stage.agents[agent].address,
        };
        let (at, from) = (course.stage.now, self.address);
        course.push(at, Due::Arrive { node, from, to, bytes: bytes.into() });
        Course::pass_until(&mut course, at + 5 * crate::plan::MS);
    }
}
