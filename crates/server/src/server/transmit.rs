//! The way out: which datagram goes next, and what is packed into it.
//!
//! Decides the order (datagrams without a session, then the sessions that have something to send, in turn), and that what must always
//! arrive travels in datagrams of at most 548 bytes (section 3.7): answers to control messages and notices first, then replies as far as
//! they fit, then replies alone up to the limit that each request named. Place in the walk: the last step before the driver.
//! Implements `wire-spec.md` sections 3.3 and 6. Invariant, asserted always: no message that renews leaves for a session that is
//! not in good standing (section 11.3); this file is the only place where messages of a session become datagrams.
//! Leaves to others: what is to be said (`answers`, `delivery`, `handshake`).

use crate::server::Server;
use crate::server::answers::has_room;
use crate::sessions::SessionKey;
use crate::sessions::notices::Clock;
use crate::sessions::notices::Deadline;
use crate::stats::Stats;
use crate::transport::lanes::{Front, Lanes, Pool, Travel, Urgency};
use crate::transport::{SMALL, Sealing};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path};
use cistern_seal::Sealer;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Header, Kind, Message, Packer, SessionId};
use core::time::Duration;
use log::{trace, warn};

impl Server {
    /// The next datagram, if there is one.
    pub(crate) fn next_datagram(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        if let Some(path) = self.transport.next_loose(buf) {
            self.stats.count_transmitted(buf.len());
            return Some(path);
        }
        while let Some(key) = self.transport.next_in_line() {
            let path = self.fill(now, key, buf);
            if path.is_some() {
                return path;
            }
        }
        None
    }

    /// Puts a session into the line of those that have something to send.
    pub(crate) fn line_up(&mut self, key: SessionKey) {
        if let Some(session) = self.sessions.get_mut(key) {
            self.transport.line_up(key, &mut session.in_line);
        }
    }

    /// Appends a small message that no other delays.
    pub(crate) fn push_urgent(&mut self, key: SessionKey, message: &Message<'_>) {
        let travel = Travel { kind: message.kind(), urgency: Urgency::Urgent, limit: SMALL };
        self.push(key, travel, |bytes| message.encode(bytes));
    }

    /// Appends a message that fits a datagram of `limit` bytes, if not too many wait.
    pub(crate) fn push_bulk(&mut self, key: SessionKey, limit: u16, message: &Message<'_>) {
        let Self { sessions, transport, config, stats, now, tenure, .. } = self;
        if let Some(certain) = tenure.certain(*now)
            && let Some(session) = sessions.get_mut(key)
            && has_room(session, config, stats)
        {
            let travel = Travel { kind: message.kind(), urgency: Urgency::Bulk, limit };
            session.push(key, certain, transport, travel, |bytes| message.encode(bytes));
        }
    }

    /// Appends what `encode` writes. A message that renews is asserted to be one of a session in good standing (section 11.3).
    pub(crate) fn push(&mut self, key: SessionKey, travel: Travel, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(certain) = self.tenure.certain(self.now)
            && let Some(session) = self.sessions.get_mut(key)
        {
            session.push(key, certain, &mut self.transport, travel, encode);
        }
    }

    /// Sends one message outside of any session.
    pub(crate) fn send_handshake(&mut self, path: Path, message: &Message<'_>) {
        let Some(packet) = self.transport.handshake_packet() else {
            return;
        };
        self.send_loose(path, SessionId(0), packet, &[*message]);
    }

    /// Sends messages of a session that do not renew by another way than its own, as many as fit the smallest datagram.
    pub(crate) fn send_to_session_by(&mut self, key: SessionKey, path: Path, messages: &[Message<'_>]) {
        let Self { sessions, transport, cipher, stats, now, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        let packet = if bugs::is(Bug::S6) { Some(session.packets.last()) } else { session.packets.take() };
        if let Some(packet) = packet.filter(|_| !messages.is_empty()) {
            let sealing = Sealing { sealer: &mut session.sealer, cipher, now: now.uptime() };
            transport.push_loose(path, (key.id(), packet), messages, sealing, stats);
        }
    }

    /// Sends messages of plain mode outside of any session that this server knows.
    pub(crate) fn send_loose(&mut self, path: Path, session: SessionId, packet: u64, messages: &[Message<'_>]) {
        let sealing = Sealing { sealer: &mut Sealer::Plain, cipher: &mut self.cipher, now: Duration::ZERO };
        self.transport.push_loose(path, (session, packet), messages, sealing, &mut self.stats);
    }

    /// Sends a whole datagram of the sealed mode's handshake.
    pub(crate) fn send_datagram(&mut self, path: Path, bytes: Vec<u8>) {
        self.transport.push_datagram(path, bytes, &mut self.stats);
    }

    /// Fills `buf` with the session's next datagram, and puts the session into the line again if that was not all.
    fn fill(&mut self, now: Instant, key: SessionKey, buf: &mut Vec<u8>) -> Option<Path> {
        let Self { sessions, transport, config, stats, delivery, listening, rng, who, cipher, .. } = self;
        let session = sessions.get_mut(key)?;
        session.in_line = false;
        let good = session.standing().is_good();
        let told = good || bugs::is(Bug::M17);
        let due = told && session.notices.as_ref().is_some_and(|notices| notices.has_due(config));
        if !due && session.lanes.is_empty() {
            return None;
        }
        //= wire-spec.md#3-2-packet-numbers
        //# A packet number MUST NOT be used twice in one session and direction.
        let Some(packet) = session.packets.take() else {
            warn!("{who}: {} has used up its packet numbers and is sent nothing more; restart the agent", session.who());
            session.lanes.clear(transport.pool());
            return None;
        };
        let small = due || session.lanes.has_urgent();
        //= wire-spec.md#3-7-sizes-and-paths
        //# Every handshake message, control message, notice, receipt and NACK MUST fit a datagram of 548 bytes.
        //= wire-spec.md#3-7-sizes-and-paths
        //# A datagram MUST NOT be longer than agreed in the handshake, nor than 1,232 bytes before that.
        let limit = if small { DATAGRAM_MIN } else { usize::from(session.max_datagram) };
        let header = Header { from_server: true, session: key.id(), packet };
        let packer = Packer::of_form(buf, header, limit, session.sealer.form());
        let mut filling = Packing { packer, most: limit, good, stats };
        //= wire-spec.md#11-2-delivery
        //# Neither window W, nor congestion window, nor bulk messages MUST hold up control messages, receipts, NACK or the handshake.
        filling.take(&mut session.lanes, transport.pool(), Urgency::Urgent);
        let mut copies = Vec::new();
        if due && let Some(notices) = &mut session.notices {
            let former = session.roaming.as_ref().is_some_and(|roaming| !roaming.left().is_empty());
            // Time that passed since the socket was found empty was not spent listening, unless it was short.
            delivery.turn(now, Some(Duration::ZERO));
            let clock = Clock { now, listened: delivery.elapsed() };
            notices.send_due(clock, config, rng, |message| {
                let fits = filling.push(message);
                if fits && former {
                    copies.push(*message);
                }
                fits
            });
            listening.set(key, Deadline::Delivery, notices.next_deadline(config));
        }
        filling.take(&mut session.lanes, transport.pool(), Urgency::Bulk);
        if !filling.finish() {
            debug_assert!(false, "a message that fits no datagram was queued");
            session.lanes.clear(transport.pool());
            return None;
        }
        session.sealer.seal(cipher, now.uptime(), buf);
        if !session.lanes.is_empty() || (due && session.notices.as_ref().is_some_and(|notices| notices.has_due(config))) {
            transport.line_up(key, &mut session.in_line);
        }
        stats.count_transmitted(buf.len());
        let path = session.path;
        trace!("{who}: packet {packet} of session {} to {}, {} bytes", key.id(), path.remote, buf.len());
        if !copies.is_empty() {
            self.send_copies(key, &copies);
        }
        Some(path)
    }

    /// Sends notices of a session to the addresses that it has left, too.
    fn send_copies(&mut self, key: SessionKey, copies: &[Message<'_>]) {
        let roaming = self.sessions.get(key).and_then(|session| session.roaming.as_ref());
        let former: Vec<Path> = roaming.map(|roaming| roaming.left().to_vec()).unwrap_or_default();
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# Before D the server MUST have sent the notice to the four addresses that the session has left last, too.
        for former in former {
            self.send_to_session_by(key, former, copies);
        }
    }
}

/// A datagram being filled from a session's lanes.
struct Packing<'a> {
    packer: Packer<'a>,
    /// The smallest limit of a message in it, and of the datagram itself.
    most: usize,
    good: bool,
    /// Where its messages are counted.
    stats: &'a mut Stats,
}

impl Packing<'_> {
    /// Takes messages of a lane as long as they fit the limit of each message in the datagram.
    fn take(&mut self, out: &mut Lanes, pool: &mut Pool, urgency: Urgency) {
        out.drain(pool, urgency, self, Self::room, Self::add);
    }

    /// How many bytes of messages with this limit have room.
    fn room(&self, kind: Kind, limit: u16) -> usize {
        // The single send point: what was produced before D was dropped at D.
        //= wire-spec.md#11-3-failure-and-ending
        //# From D on the server MUST NOT produce or release a message that renews the session's lease.
        assert!(self.good || !kind.renews(), "a message that renews would leave for a session that is not in good standing");
        //= wire-spec.md#3-7-sizes-and-paths
        //# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
        self.most.min(usize::from(limit)).saturating_sub(self.packer.used())
    }

    fn add(&mut self, front: Front<'_>) {
        self.most = self.most.min(usize::from(front.limit));
        let fits = self.packer.push_encoded(front.bytes);
        assert!(fits, "what has room fits");
        self.stats.count_out(front.kind, front.messages);
    }

    /// Adds a notice, if it fits.
    fn push(&mut self, message: &Message<'_>) -> bool {
        let fits = self.packer.push(message);
        if fits {
            self.stats.count_out(message.kind(), 1);
        }
        fits
    }

    /// Completes the datagram; false if nothing is in it.
    fn finish(self) -> bool {
        let any = !self.packer.is_empty();
        self.packer.finish();
        any
    }
}
