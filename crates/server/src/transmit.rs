//! The way out: which datagram goes next, and what is packed into it.
//!
//! Decides the order (datagrams without a session, then the sessions that have something to send, in turn), and that what must
//! always arrive travels in datagrams of at most 548 bytes (R28): answers to control messages and notices first, then replies as far
//! as they fit, then replies alone up to the limit that each request named. Place in the walk: the last step before the driver.
//! Implements `wire-spec.md` sections 3.3 and 6. Invariant, asserted always: no message that renews leaves for a session that is
//! not in good standing (R3); this file is the only place where messages of a session become datagrams.
//! Leaves to others: what is to be said (`answers`, `delivery`, `handshake`).

use crate::out::{Out, Pool, Urgency, renews};
use crate::outbox::Clock;
use crate::server::Server;
use crate::sessions::Key;
use crate::stats::Dropped;
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, PacketCounter, Path};
use cistern_wire::limits::{DATAGRAM_MIN, HEADER_LEN};
use cistern_wire::{Header, Message, Packer, SessionId};
use core::time::Duration;
use log::{trace, warn};

/// Most datagrams without a session's queue that wait; beyond, they are dropped and counted.
const LOOSE_MAX: usize = 4_096;

/// A whole datagram.
#[derive(Debug)]
struct Loose {
    path: Path,
    bytes: Vec<u8>,
    /// The session whose lease it renews (WELCOME): it leaves only while that is in good standing.
    renews: Option<Key>,
}

/// What waits to be sent.
#[derive(Debug, Default)]
pub(crate) struct Sending {
    /// Handshake answers, hints, challenges of addresses, answers for sessions that have ended.
    loose: VecDeque<Loose>,
    /// Sessions that have something to send, each once.
    line: VecDeque<Key>,
    /// Buffers for their messages.
    pub(crate) pool: Pool,
    /// Packet numbers of session 0.
    handshakes: PacketCounter,
    /// Spare buffers of datagrams.
    spare: Vec<Vec<u8>>,
}

impl Sending {
    /// Whether something waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.loose.is_empty() && self.line.is_empty()
    }
}

impl Server {
    /// The next datagram, if there is one.
    pub(crate) fn next_datagram(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        while let Some(mut loose) = self.sending.loose.pop_front() {
            let may_leave = loose.renews.is_none_or(|key| self.is_good(key));
            if may_leave {
                buf.clear();
                buf.extend_from_slice(&loose.bytes);
                let code = buf.get(HEADER_LEN).copied();
                code.inspect(|code| self.stats.count_out(*code));
                self.stats.count_transmitted(buf.len());
            }
            loose.bytes.clear();
            self.sending.spare.push(loose.bytes);
            if may_leave {
                return Some(loose.path);
            }
        }
        while let Some(key) = self.sending.line.pop_front() {
            let path = self.fill(now, key, buf);
            if self.has_something_to_send(key) && path.is_some() {
                self.sending.line.push_back(key);
            } else if let Some(session) = self.sessions.get_mut(key) {
                session.in_line = false;
            }
            if path.is_some() {
                return path;
            }
        }
        None
    }

    /// Puts a session into the line of those that have something to send.
    pub(crate) fn line_up(&mut self, key: Key) {
        if let Some(session) = self.sessions.get_mut(key)
            && !session.in_line
        {
            session.in_line = true;
            self.sending.line.push_back(key);
        }
    }

    /// Appends a small message that no other delays.
    pub(crate) fn push_urgent(&mut self, key: Key, message: &Message<'_>) {
        self.push_with(key, Urgency::Urgent, SMALL, |bytes| message.encode(bytes));
    }

    /// Appends what `encode` writes, one message that fits a datagram of `limit` bytes.
    pub(crate) fn push_bulk(&mut self, key: Key, limit: u16, encode: impl FnOnce(&mut Vec<u8>)) {
        let bound = self.config.answer_bytes_max as usize;
        //= wire-spec.md#11-2-delivery
        //# An overloaded server SHOULD leave bulk requests unanswered before it does so to these.
        if self.sessions.get(key).is_some_and(|session| session.out.bulk_bytes() > bound) {
            self.stats.count_dropped(Dropped::Shed);
            return;
        }
        self.push_with(key, Urgency::Bulk, limit, encode);
    }

    /// Appends what `encode` writes. A message that renews is asserted to be one of a session in good standing (R3).
    pub(crate) fn push_with(&mut self, key: Key, urgency: Urgency, limit: u16, encode: impl FnOnce(&mut Vec<u8>)) {
        if let Some(session) = self.sessions.get_mut(key) {
            session.produce(self.now, &mut self.sending.pool, urgency, limit, encode);
            self.line_up(key);
        }
    }

    /// Sends one message outside of any session.
    pub(crate) fn send_handshake(&mut self, path: Path, message: &Message<'_>, renews: Option<Key>) {
        let Some(packet) = self.sending.handshakes.take() else {
            return;
        };
        self.send_loose(path, SessionId(0), packet, &[*message], renews);
    }

    /// Sends one message of a session by another way than its own.
    pub(crate) fn send_to_session_by(&mut self, key: Key, path: Path, message: &Message<'_>) {
        let Some(packet) = self.sessions.get_mut(key).and_then(|session| session.packets.take()) else {
            return;
        };
        self.send_loose(path, key.id(), packet, &[*message], None);
    }

    /// Sends messages that do not renew under `session` and `packet`, as many as fit the smallest datagram.
    pub(crate) fn send_loose(&mut self, path: Path, session: SessionId, packet: u64, messages: &[Message<'_>], renews: Option<Key>) {
        assert!(renews.is_some() || !messages.iter().any(|m| m.kind().renews()), "who renews names the session whose lease it is (R3)");
        if self.sending.loose.len() >= LOOSE_MAX {
            self.stats.count_dropped(Dropped::Shed);
            return;
        }
        let mut bytes = self.sending.spare.pop().unwrap_or_default();
        let mut packer = Packer::new(&mut bytes, Header { from_server: true, session, packet }, DATAGRAM_MIN);
        for message in messages {
            packer.push(message);
        }
        packer.finish();
        self.sending.loose.push_back(Loose { path, bytes, renews });
    }

    fn has_something_to_send(&self, key: Key) -> bool {
        self.sessions.get(key).is_some_and(|session| {
            let told = session.standing().is_good() || bugs::is(Bug::M17);
            let notices = told && session.outbox.as_ref().is_some_and(|outbox| outbox.has_due(&self.config));
            notices || !session.out.is_empty()
        })
    }

    /// Fills `buf` with the session's next datagram.
    fn fill(&mut self, now: Instant, key: Key, buf: &mut Vec<u8>) -> Option<Path> {
        if !self.has_something_to_send(key) {
            return None;
        }
        let session = self.sessions.get_mut(key)?;
        //= wire-spec.md#3-2-packet-numbers
        //# A packet number MUST NOT be used for two transmissions of one session and direction.
        let Some(packet) = session.packets.take() else {
            warn!("{}: {} has used up its packet numbers and is sent nothing more; restart the agent", self.who, session.who());
            session.out.clear(&mut self.sending.pool);
            return None;
        };
        let good = session.standing().is_good();
        let notices = (good || bugs::is(Bug::M17)) && session.outbox.as_ref().is_some_and(|outbox| outbox.has_due(&self.config));
        let small = notices || session.out.has_urgent();
        //= wire-spec.md#3-7-sizes-and-paths
        //# Every message of the lanes handshake, control and notice, every receipt and every NACK MUST fit a datagram of 548 bytes.
        //= wire-spec.md#3-7-sizes-and-paths
        //# A datagram MUST NOT be longer than the largest datagram agreed in the handshake, and never longer than 1,232 bytes before
        //# that.
        let limit = if small { DATAGRAM_MIN } else { usize::from(session.max_datagram) };
        let former: Vec<Path> = session.roaming.as_ref().map(|roaming| roaming.left(now).collect()).unwrap_or_default();
        let mut copies = Vec::new();
        let mut packer = Packer::new(buf, Header { from_server: true, session: key.id(), packet }, limit);
        let mut filling = Filling { packer: &mut packer, limit, most: limit, good };
        //= wire-spec.md#11-2-delivery
        //# Neither the window W, nor the congestion window, nor bulk messages MUST hold up control messages, receipts, NACK or the
        //# handshake.
        filling.take(&mut session.out, &mut self.sending.pool, Urgency::Urgent);
        if notices && let Some(outbox) = &mut session.outbox {
            // Time that passed since the socket was found empty was not spent listening, unless it was short.
            self.delivery.turn(now, Some(Duration::ZERO));
            let clock = Clock { now, listened: self.delivery.elapsed() };
            outbox.send_due(clock, &self.config, &mut self.rng, |message| {
                let fits = filling.packer.push(message);
                if fits && !former.is_empty() {
                    copies.push(*message);
                }
                fits
            });
            let next = outbox.next_deadline(&self.config);
            self.listening.set(key, crate::listening::Reason::Delivery, next);
        }
        filling.take(&mut session.out, &mut self.sending.pool, Urgency::Bulk);
        if packer.is_empty() {
            debug_assert!(false, "a message that fits no datagram was queued");
            session.out.clear(&mut self.sending.pool);
            return None;
        }
        packer.finish();
        let path = session.path;
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The server MUST have tried every address that was proven within τ before D.
        for former in former.into_iter().filter(|_| !copies.is_empty()) {
            if let Some(packet) = self.sessions.get_mut(key).and_then(|session| session.packets.take()) {
                self.send_loose(former, key.id(), packet, &copies, None);
            }
        }
        self.count_sent(buf);
        trace!("{}: packet {packet} of session {} to {}, {} bytes", self.who, key.id(), path.remote, buf.len());
        Some(path)
    }

    fn count_sent(&mut self, datagram: &[u8]) {
        for raw in crate::dispatch::Raw::all(datagram) {
            self.stats.count_out(raw.kind.code());
        }
        self.stats.count_transmitted(datagram.len());
    }
}

/// 548 bytes, the datagram that every path carries.
#[expect(clippy::cast_possible_truncation, reason = "548 fits")]
pub(crate) const SMALL: u16 = DATAGRAM_MIN as u16;

/// A datagram being filled from a session's lanes.
struct Filling<'p, 'b> {
    packer: &'p mut Packer<'b>,
    /// The limit that the packer knows.
    limit: usize,
    /// The smallest limit of a message in it.
    most: usize,
    good: bool,
}

impl Filling<'_, '_> {
    /// Takes messages of a lane as long as they fit the limit of each message in the datagram.
    fn take(&mut self, out: &mut Out, pool: &mut Pool, urgency: Urgency) {
        out.drain(pool, urgency, |limit, message| {
            // The single send point: what was produced before D was dropped at D.
            //= wire-spec.md#11-3-failure-and-ending
            //# From D on the server MUST NOT produce a message that renews the session's lease, nor let one go that was held back.
            assert!(self.good || !renews(message), "a message that renews would leave for a session that is not in good standing");
            //= wire-spec.md#3-7-sizes-and-paths
            //# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
            let most = self.most.min(usize::from(limit));
            let len = self.limit - self.packer.room() + message.len();
            let fits = len <= most && self.packer.push_encoded(message);
            if fits {
                self.most = most;
            }
            fits
        });
    }
}
