//! An agent as far as a server can tell: a session with its packet numbers, nonces and serials, and no lease behind it.
//!
//! Decides what is on the wire: one request in a datagram or as many as it has room for, packed by `cistern-wire` as a real agent packs
//! them. It keeps the window
//! and the floor that the server insists on (section 11.2). Place: below `traffic`, above the socket; `opening` makes it by a handshake.
//! Leaves to others: what is asked and when, and what answers mean.

use cistern_testkit::session::WireSession;
use cistern_wire::limits::DATAGRAM_DEFAULT;
use cistern_wire::{Ask, SessionId};
use std::collections::VecDeque;

/// One agent's standing on the wire.
#[derive(Debug)]
pub(crate) struct Agent {
    /// Its session.
    pub(crate) wire: WireSession,
    /// Which of the generator's sockets it sends by.
    pub(crate) line: usize,
    /// The last nonce and serial used.
    nonce: u64,
    serial: u64,
    /// Nonces awaited, in order: few, or answered nearly in order.
    awaited: VecDeque<u64>,
}

impl Agent {
    /// The agent of a session: its first control message is CONFIRM.
    pub(crate) const fn new(wire: WireSession, line: usize) -> Self {
        Self { wire, line, nonce: 0, serial: 1, awaited: VecDeque::new() }
    }

    /// The session's name.
    pub(crate) const fn session(&self) -> SessionId {
        self.wire.id
    }

    /// The beginning of the next request; `None` while the window is full.
    pub(crate) fn ask(&mut self) -> Option<Ask> {
        let nonce = self.nonce + 1;
        let floor = self.awaited.front().copied().unwrap_or(nonce);
        let back = u16::try_from(nonce - floor).ok().filter(|back| *back < self.wire.window)?;
        self.nonce = nonce;
        self.awaited.push_back(nonce);
        Some(Ask { nonce, back, limit: LIMIT })
    }

    /// Sets nonces aside for so many requests whose window the caller keeps; gives the first.
    pub(crate) const fn reserve(&mut self, count: u64) -> u64 {
        let first = self.nonce + 1;
        self.nonce += count;
        first
    }

    /// Takes note that a request was answered.
    pub(crate) fn answered(&mut self, nonce: u64) {
        if let Ok(at) = self.awaited.binary_search(&nonce) {
            self.awaited.remove(at);
        }
    }

    /// The number of the next control message.
    pub(crate) const fn next_serial(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Makes a datagram of one encoded message in `buf`; gives its packet number.
    pub(crate) fn pack(&mut self, message: &[u8], buf: &mut Vec<u8>) -> u64 {
        self.pack_first([message], buf).0
    }

    /// Makes a datagram of as many of the encoded messages as it has room for, at least one; gives its packet number and how many.
    pub(crate) fn pack_first<'m>(&mut self, messages: impl IntoIterator<Item = &'m [u8]>, buf: &mut Vec<u8>) -> (u64, usize) {
        self.wire.pack(messages, buf)
    }
}

/// Largest answer that an agent takes.
#[expect(clippy::cast_possible_truncation, reason = "1,232 fits")]
pub(crate) const LIMIT: u16 = DATAGRAM_DEFAULT as u16;

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Datagram, GetAttr, Message, ObjectId, Want};

    #[test]
    fn floor_stays_at_the_oldest_request_and_the_window_is_kept() {
        let mut agent = Agent::new(WireSession::plain(SessionId(7), 3), 0);
        let mut ask = || agent.ask().map(|ask| (ask.nonce, ask.floor()));
        assert_eq!((ask(), ask(), ask(), ask()), (Some((1, 1)), Some((2, 1)), Some((3, 1)), None));
        agent.answered(2);
        assert_eq!(agent.ask(), None, "a gap does not move the floor");
        agent.answered(1);
        assert_eq!(agent.ask().map(|ask| (ask.nonce, ask.floor())), Some((4, 3)));
    }

    #[test]
    fn datagram_takes_the_messages_that_it_has_room_for_in_order() {
        let mut agent = Agent::new(WireSession::plain(SessionId(7), 64), 0);
        let ask = || GetAttr { ask: Ask { nonce: 1, back: 0, limit: LIMIT }, object: ObjectId(1), want: Want::Nothing };
        let messages = vec![Message::from(ask()).to_bytes(); 64];
        let mut buf = Vec::new();
        let (packet, packed) = agent.pack_first(messages.iter().map(Vec::as_slice), &mut buf);
        assert!(packet == 1 && (16..64).contains(&packed) && buf.len() <= DATAGRAM_DEFAULT, "{packed} in {} bytes", buf.len());
        assert_eq!(Datagram::at_server(&buf).unwrap().messages().count(), packed);
        assert_eq!(agent.pack_first(messages[..3].iter().map(Vec::as_slice), &mut buf), (2, 3));
    }

    #[test]
    fn every_datagram_is_valid_and_has_a_packet_number_of_its_own() {
        let mut agent = Agent::new(WireSession::plain(SessionId(7), 64), 0);
        let message = Message::from(GetAttr { ask: agent.ask().unwrap(), object: ObjectId(1), want: Want::Nothing });
        let mut buf = Vec::new();
        for packet in 1..=3 {
            assert_eq!(agent.pack(&message.to_bytes(), &mut buf), packet);
            let datagram = Datagram::at_server(&buf).unwrap();
            assert_eq!((datagram.header.packet, datagram.header.session), (packet, SessionId(7)));
            assert_eq!(datagram.messages().collect::<Vec<_>>(), [message]);
        }
    }
}
