//! Bytes on their way out: datagrams without a session, and the line of sessions that have something to send.
//!
//! Invariant: a session stands in the line once. Leaves to others: what is packed into a session's datagram, and whether it may leave (the
//! machine).

pub(crate) mod lanes;
pub(crate) mod validation;

use crate::ids::SessionKey;
use crate::stats::{Dropped, Stats};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::{PacketCounter, Path};
use cistern_seal::{Cipher, Sealer};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Header, Message, Packer, SessionId};
use core::time::Duration;
use lanes::Pool;

/// Most datagrams without a session's queue that wait; beyond, they are dropped and counted.
const LOOSE_MAX: usize = 4_096;

/// 548 bytes, the datagram that every path carries.
#[expect(clippy::cast_possible_truncation, reason = "548 fits")]
pub(crate) const SMALL: u16 = DATAGRAM_MIN as u16;

/// A whole datagram.
#[derive(Debug)]
struct LooseDatagram {
    path: Path,
    bytes: Vec<u8>,
}

/// By what a datagram of a session is sealed, and when.
#[derive(Debug)]
pub(crate) struct Sealing<'a> {
    pub(crate) sealer: &'a mut Sealer,
    pub(crate) cipher: &'a mut Cipher,
    pub(crate) now: Duration,
}

/// What waits to be sent.
#[derive(Debug)]
pub(crate) struct Transport {
    /// Handshake answers, hints, challenges of addresses, answers for sessions that have ended.
    loose: VecDeque<LooseDatagram>,
    /// Sessions that have something to send, each once.
    line: VecDeque<SessionKey>,
    /// Buffers for their messages.
    pool: Pool,
    /// Packet numbers of datagrams outside of any session.
    handshakes: PacketCounter,
}

impl Default for Transport {
    fn default() -> Self {
        let (loose, line) = (VecDeque::new(), VecDeque::new());
        Self { loose, line, pool: Pool::default(), handshakes: PacketCounter::starting_at(1) }
    }
}

impl Transport {
    /// Buffers for the messages of sessions.
    pub(crate) const fn pool(&mut self) -> &mut Pool {
        &mut self.pool
    }

    /// Puts a session into the line of those that have something to send; `in_line` says whether it stands there.
    pub(crate) fn line_up(&mut self, key: SessionKey, in_line: &mut bool) {
        if !core::mem::replace(in_line, true) {
            self.line.push_back(key);
        }
    }

    /// Takes the first session out of the line.
    pub(crate) fn next_in_line(&mut self) -> Option<SessionKey> {
        self.line.pop_front()
    }

    /// A packet number for a datagram outside of any session.
    pub(crate) const fn handshake_packet(&mut self) -> Option<u64> {
        self.handshakes.take()
    }

    /// Keeps a datagram of a session, by its id, and a packet number with as many of `messages` as fit the smallest one; none of them renews.
    pub(crate) fn push_loose(
        &mut self,
        path: Path,
        (session, packet): (SessionId, u64),
        messages: &[Message<'_>],
        Sealing { sealer, cipher, now }: Sealing<'_>,
        stats: &mut Stats,
    ) {
        assert!(!messages.iter().any(|m| m.kind().renews()), "what renews is of a session, and goes by its line");
        if self.loose.len() >= LOOSE_MAX {
            return stats.count_dropped(Dropped::Shed);
        }
        let mut bytes = Vec::new();
        let header = Header { from_server: true, session, packet };
        let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MIN, sealer.form());
        for message in messages {
            if packer.push(message) {
                stats.count_out(message.kind(), 1);
            }
        }
        packer.finish();
        // At once, so that numbers are sealed in the order in which they are taken.
        sealer.seal(cipher, now, &mut bytes);
        self.loose.push_back(LooseDatagram { path, bytes });
    }

    /// Keeps a whole datagram.
    pub(crate) fn push_datagram(&mut self, path: Path, bytes: Vec<u8>, stats: &mut Stats) {
        if self.loose.len() >= LOOSE_MAX {
            return stats.count_dropped(Dropped::Shed);
        }
        self.loose.push_back(LooseDatagram { path, bytes });
    }

    /// Copies the next datagram without a session's queue into `buf`.
    #[inline]
    pub(crate) fn next_loose(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let LooseDatagram { path, bytes } = self.loose.pop_front()?;
        buf.clear();
        buf.extend_from_slice(&bytes);
        Some(path)
    }
}
