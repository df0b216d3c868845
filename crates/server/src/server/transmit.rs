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
use crate::stats::{Dropped, Stats};
use crate::transport::SMALL;
use crate::transport::lanes::{Front, Lanes, Pool, Travel, Urgency};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Header, Kind, Message, Packer, Raw, SessionId};
use core::time::Duration;
use log::{trace, warn};

impl Server {
    /// The next datagram, if there is one.
    pub(crate) fn next_datagram(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        if let Some(path) = self.transport.next_loose(buf) {
            Raw::all(buf).for_each(|raw| self.stats.count_out(raw.kind, 1));
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
        let Self { sessions, transport, config, stats, now, .. } = self;
        if let Some(session) = sessions.get_mut(key)
            && has_room(session, config, stats)
        {
            let travel = Travel { kind: message.kind(), urgency: Urgency::Bulk, limit };
            session.push(key, *now, transport, travel, |bytes| message.encode(bytes));
        }
    }

    /// Appends what `encode` writes. A message that renews is asserted to be one of a session in good standing (section 11.3).
    pub(crate) fn push(&mut self, key: SessionKey, travel: Travel, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.push(key, self.now, &mut self.transport, travel, encode);
        }
    }

    /// Sends one message outside of any session.
    pub(crate) fn send_handshake(&mut self, path: Path, message: &Message<'_>) {
        let Some(packet) = self.transport.handshake_packet() else {
            return;
        };
        self.send_loose(path, SessionId(0), packet, &[*message]);
    }

    /// Sends one message of a session by another way than its own.
    pub(crate) fn send_to_session_by(&mut self, key: SessionKey, path: Path, message: &Message<'_>) {
        let Some(packet) = self.sessions.get_mut(key).and_then(|session| session.packets.take()) else {
            return;
        };
        self.send_loose(path, key.id(), packet, &[*message]);
    }

    /// Sends messages that do not renew under `session` and `packet`, as many as fit the smallest datagram.
    pub(crate) fn send_loose(&mut self, path: Path, session: SessionId, packet: u64, messages: &[Message<'_>]) {
        if !self.transport.push_loose(path, session, packet, messages) {
            self.stats.count_dropped(Dropped::Shed);
        }
    }

    /// Fills `buf` with the session's next datagram, and puts the session into the line again if that was not all.
    fn fill(&mut self, now: Instant, key: SessionKey, buf: &mut Vec<u8>) -> Option<Path> {
        let Self { sessions, transport, config, stats, delivery, listening, rng, who, .. } = self;
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
        let packer = Packer::new(buf, Header { from_server: true, session: key.id(), packet }, limit);
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
            if let Some(packet) = self.sessions.get_mut(key).and_then(|session| session.packets.take()) {
                self.send_loose(former, key.id(), packet, copies);
            }
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
