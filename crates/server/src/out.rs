//! What a session has to be sent besides its notices: encoded messages in two lanes, urgent before bulk.
//!
//! Decides the order, and that what must always arrive (answers to control messages, PENDING, QUEUED, NACK) waits behind no reply
//! (R27). Place in the walk: filled when an answer is produced, its echo in it for good (R2); emptied by `transmit`.
//! Implements `wire-spec.md` section 6.5. Invariant: from D on no message that renews is in it (R3): [`Out::drop_renewals`].
//! Its buffers are lent from a pool while there is something in them, so an idle session costs one word.
//! Leaves to others: datagrams (`transmit`), and whether a message may be produced at all (`standing`).

use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_wire::Kind;
use cistern_wire::limits::MESSAGE_HEADER_LEN;

/// Most buffers kept in the pool; beyond that the memory of a burst is given back.
const POOL_MAX: usize = 256;
/// A buffer that grew beyond this is not kept.
const POOLED_BYTES_MAX: usize = 16 << 10;
/// Before each message stands the largest datagram in which it may travel.
const LIMIT_LEN: usize = 2;

/// Which messages go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Small, and never delayed by others.
    Urgent,
    /// Replies.
    Bulk,
}

/// Encoded messages, one after the other, each behind its limit.
#[derive(Debug, Default)]
struct Lane {
    bytes: Vec<u8>,
    /// Up to where they were taken.
    read: usize,
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }

    /// The first message and its limit.
    fn first(&self) -> Option<(u16, &[u8])> {
        let rest = self.bytes.get(self.read..)?;
        let (limit, rest) = rest.split_first_chunk::<LIMIT_LEN>()?;
        let len = MESSAGE_HEADER_LEN + usize::from(u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]));
        Some((u16::from_be_bytes(*limit), rest.get(..len)?))
    }

    fn take(&mut self) {
        if let Some((_, message)) = self.first() {
            self.read += LIMIT_LEN + message.len();
        }
        if self.is_empty() {
            self.bytes.clear();
            self.read = 0;
        }
    }

    fn drop_renewals(&mut self) {
        let mut kept = Vec::new();
        while let Some((limit, message)) = self.first() {
            if !renews(message) {
                kept.extend_from_slice(&limit.to_be_bytes());
                kept.extend_from_slice(message);
            }
            self.take();
        }
        self.bytes = kept;
        self.read = 0;
    }
}

/// Whether an encoded message renews the lease of who receives it.
pub(crate) fn renews(message: &[u8]) -> bool {
    message.first().and_then(|code| Kind::of(*code)).is_none_or(Kind::renews)
}

#[derive(Debug, Default)]
struct Lanes {
    urgent: Lane,
    bulk: Lane,
}

/// Buffers that no session needs now.
#[expect(clippy::vec_box, reason = "they are lent to sessions as boxes, and come back as boxes")]
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Box<Lanes>>);

/// The messages that wait to be sent to one session.
#[derive(Debug, Default)]
pub(crate) struct Out(Option<Box<Lanes>>);

impl Out {
    /// Appends what `encode` writes: one encoded message, which may travel in datagrams of at most `limit` bytes. Whether it renews.
    pub(crate) fn push(&mut self, pool: &mut Pool, urgency: Urgency, limit: u16, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let lanes = self.0.get_or_insert_with(|| pool.0.pop().unwrap_or_default());
        let lane = match urgency {
            Urgency::Urgent => &mut lanes.urgent,
            Urgency::Bulk => &mut lanes.bulk,
        };
        lane.bytes.extend_from_slice(&limit.to_be_bytes());
        //= wire-spec.md#11-1-lease
        //# Encoding, packing and sending again MUST NOT change the echo of an answer.
        let start = lane.bytes.len();
        encode(&mut lane.bytes);
        lane.bytes.get(start..).is_none_or(renews)
    }

    /// Whether nothing waits.
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Whether something urgent waits.
    pub(crate) fn has_urgent(&self) -> bool {
        self.0.as_ref().is_some_and(|lanes| !lanes.urgent.is_empty())
    }

    /// Bytes of replies that wait.
    pub(crate) fn bulk_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |lanes| lanes.bulk.bytes.len() - lanes.bulk.read)
    }

    /// Hands the messages of one lane to `push`, with their limits, until it refuses one.
    pub(crate) fn drain(&mut self, pool: &mut Pool, urgency: Urgency, mut push: impl FnMut(u16, &[u8]) -> bool) {
        let Some(lanes) = &mut self.0 else {
            return;
        };
        let lane = match urgency {
            Urgency::Urgent => &mut lanes.urgent,
            Urgency::Bulk => &mut lanes.bulk,
        };
        while let Some((limit, message)) = lane.first() {
            if !push(limit, message) {
                return;
            }
            lane.take();
        }
        self.give_back(pool);
    }

    /// Drops every message that renews: what was produced before D and not handed to the driver must not leave after it (R3).
    pub(crate) fn drop_renewals(&mut self, pool: &mut Pool) {
        if let Some(lanes) = &mut self.0 {
            //= wire-spec.md#11-3-failure-and-ending
            //# From D on the server MUST NOT produce a message that renews the session's lease, nor let one go that was held back.
            lanes.urgent.drop_renewals();
            lanes.bulk.drop_renewals();
            self.give_back(pool);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        if let Some(lanes) = &mut self.0 {
            for lane in [&mut lanes.urgent, &mut lanes.bulk] {
                lane.bytes.clear();
                lane.read = 0;
            }
            self.give_back(pool);
        }
    }

    /// Gives the buffers back when nothing is left in them.
    fn give_back(&mut self, pool: &mut Pool) {
        let done = self.0.take_if(|lanes| lanes.urgent.is_empty() && lanes.bulk.is_empty());
        if let Some(lanes) = done
            && pool.0.len() < POOL_MAX
            && lanes.urgent.bytes.capacity().max(lanes.bulk.bytes.capacity()) <= POOLED_BYTES_MAX
        {
            pool.0.push(lanes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_wire::{Ack, Alive, Done, Fate, Message, Nack, NackReason, Reply};

    fn alive(serial: u64) -> Message<'static> {
        Message::Alive(Alive { serial, echo: 1 })
    }

    fn nack(nonce: u64) -> Message<'static> {
        Message::Nack(Nack { nonce, echo: 1, reason: NackReason::TimingOut, fate: Fate::Unknown })
    }

    fn push(out: &mut Out, pool: &mut Pool, urgency: Urgency, message: &Message<'_>) {
        out.push(pool, urgency, 548, |bytes| message.encode(bytes));
    }

    fn drained(out: &mut Out, pool: &mut Pool, urgency: Urgency, most: usize) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        out.drain(pool, urgency, |limit, message| {
            assert_eq!(limit, 548);
            let room = messages.len() < most;
            if room {
                messages.push(message.to_vec());
            }
            room
        });
        messages
    }

    #[test]
    fn messages_leave_in_order_and_the_rest_stays() {
        let (mut out, mut pool) = (Out::default(), Pool::default());
        for serial in 1..=3 {
            push(&mut out, &mut pool, Urgency::Urgent, &alive(serial));
        }
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, 2), [alive(1).to_bytes(), alive(2).to_bytes()]);
        assert!(out.has_urgent());
        push(&mut out, &mut pool, Urgency::Urgent, &alive(4));
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, 9), [alive(3).to_bytes(), alive(4).to_bytes()]);
        assert!(out.is_empty());
    }

    #[test]
    fn buffers_return_to_the_pool_when_both_lanes_are_empty() {
        let (mut out, mut pool) = (Out::default(), Pool::default());
        push(&mut out, &mut pool, Urgency::Urgent, &alive(1));
        push(&mut out, &mut pool, Urgency::Bulk, &alive(2));
        drained(&mut out, &mut pool, Urgency::Urgent, 9);
        assert!(!out.is_empty() && !out.has_urgent() && out.bulk_bytes() > 0);
        drained(&mut out, &mut pool, Urgency::Bulk, 9);
        assert_eq!((out.is_empty(), pool.0.len()), (true, 1));
        push(&mut out, &mut pool, Urgency::Bulk, &alive(3));
        assert_eq!(pool.0.len(), 0, "lent again");
    }

    #[test]
    fn dropping_renewals_leaves_only_what_does_not_renew() {
        let (mut out, mut pool) = (Out::default(), Pool::default());
        let ack = Message::Ack(Ack { nonce: 1, echo: 1, reply: Reply::Done(Done {}) });
        for message in [alive(1), nack(1), alive(2)] {
            push(&mut out, &mut pool, Urgency::Urgent, &message);
        }
        push(&mut out, &mut pool, Urgency::Bulk, &ack);
        out.drop_renewals(&mut pool);
        assert_eq!(out.bulk_bytes(), 0);
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, 9), [nack(1).to_bytes()]);
        assert!(out.is_empty());
    }
}
