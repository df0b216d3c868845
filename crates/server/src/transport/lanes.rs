//! What a session has to be sent besides its notices: encoded messages in two lanes, urgent before bulk.
//!
//! Decides the order, and that what must always arrive (answers to control messages, PENDING, QUEUED, NACK) waits behind no reply
//! (section 11.2). Place in the walk: filled when an answer is produced, its echo in it for good (section 11.1); emptied by `transmit`.
//! Implements `wire-spec.md` section 6.5. Invariant: from D on no message that renews is in it (section 11.3): [`Lanes::drop_renewals`].
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
/// Nor is one with more than so many changes of kind or limit.
const POOLED_RUNS_MAX: usize = 256;
/// A lane that is never quite empty forgets what has left it from so many bytes on.
const FORGET_FROM: usize = 4 << 10;

/// Which messages go first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Small, and never delayed by others.
    Urgent,
    /// Replies.
    Bulk,
}

/// What a message is, and how it may travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Travel {
    /// Its kind.
    pub(crate) kind: Kind,
    /// Which messages it waits behind.
    pub(crate) urgency: Urgency,
    /// The largest datagram in which it may travel, in bytes.
    pub(crate) limit: u16,
}

/// Messages of one kind and limit, one after the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    kind: Kind,
    limit: u16,
    messages: u32,
    /// Where the last of them ends in the lane.
    end: usize,
}

/// Encoded messages, one after the other, as they stand in a datagram.
#[derive(Debug, Default)]
struct Lane {
    bytes: Vec<u8>,
    /// Up to where they were taken.
    read: usize,
    runs: Vec<Run>,
    /// The run to which the first message that was not taken belongs.
    run: usize,
}

/// The messages that stand first in a lane and fit the datagram that is being filled.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Front<'a> {
    /// Their kind.
    pub(crate) kind: Kind,
    /// The largest datagram in which they may travel, in bytes.
    pub(crate) limit: u16,
    /// How many they are.
    pub(crate) messages: u32,
    /// Encoded, as they stand in a datagram.
    pub(crate) bytes: &'a [u8],
}

impl Lane {
    fn is_empty(&self) -> bool {
        self.read == self.bytes.len()
    }

    fn may_be_kept(&self) -> bool {
        self.bytes.capacity() <= POOLED_BYTES_MAX && self.runs.capacity() <= POOLED_RUNS_MAX
    }

    fn push(&mut self, kind: Kind, limit: u16, encode: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        encode(&mut self.bytes);
        assert_eq!(
            self.bytes.get(start),
            Some(&kind.code()),
            "what is appended is of the kind that was named: by it renewals are known (section 11.3)"
        );
        let end = self.bytes.len();
        match self.runs.last_mut() {
            Some(run) if (run.kind, run.limit) == (kind, limit) => (run.messages, run.end) = (run.messages + 1, end),
            _ => self.runs.push(Run { kind, limit, messages: 1, end }),
        }
    }

    /// The first messages of one kind and limit, as many of them as `room` has bytes for; `None` if there is none or the first does not
    /// fit.
    #[inline]
    fn front(&self, room: impl FnOnce(Kind, u16) -> usize) -> Option<Front<'_>> {
        let Run { kind, limit, messages, end } = *self.runs.get(self.run)?;
        let bytes = self.bytes.get(self.read..end)?;
        let room = room(kind, limit);
        if bytes.len() <= room {
            return Some(Front { kind, limit, messages, bytes });
        }
        let (mut fit, mut len) = (0, 0);
        while let Some(next) = bytes.get(len..).and_then(first_len).filter(|next| len + next <= room) {
            (fit, len) = (fit + 1, len + next);
        }
        (fit > 0).then_some(Front { kind, limit, messages: fit, bytes: &bytes[..len] })
    }

    /// Takes the messages of [`Self::front`], so many and so many bytes.
    fn take(&mut self, messages: u32, len: usize) {
        self.read += len;
        if self.is_empty() {
            return self.clear();
        }
        if let Some(run) = self.runs.get_mut(self.run) {
            run.messages -= messages;
            self.run += usize::from(run.messages == 0);
        }
        // More than half has left: what is moved was pushed since, so each byte is moved about once.
        if self.read >= FORGET_FROM && self.read > self.bytes.len() / 2 {
            self.forget();
        }
    }

    /// Gives back the places of what was taken: what waits is bounded (`answer-bytes-max`), so what is kept must be.
    fn forget(&mut self) {
        self.bytes.drain(..self.read);
        self.runs.drain(..self.run);
        self.runs.iter_mut().for_each(|run| run.end -= self.read);
        (self.read, self.run) = (0, 0);
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        (self.read, self.run) = (0, 0);
    }

    fn drop_renewals(&mut self) {
        let mut kept = Self::default();
        while let Some(Front { kind, limit, messages, bytes }) = self.front(|_, _| usize::MAX) {
            if !kind.renews() {
                kept.bytes.extend_from_slice(bytes);
                kept.runs.push(Run { kind, limit, messages, end: kept.bytes.len() });
            }
            let len = bytes.len();
            self.take(messages, len);
        }
        *self = kept;
    }
}

/// How long the first of some encoded messages is.
fn first_len(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<MESSAGE_HEADER_LEN>()?;
    Some(MESSAGE_HEADER_LEN + usize::from(u16::from_be_bytes([head[2], head[3]])))
}

#[derive(Debug, Default)]
struct LaneBuffers {
    urgent: Lane,
    bulk: Lane,
}

impl LaneBuffers {
    const fn of(&mut self, urgency: Urgency) -> &mut Lane {
        match urgency {
            Urgency::Urgent => &mut self.urgent,
            Urgency::Bulk => &mut self.bulk,
        }
    }
}

/// Buffers that no session needs now.
#[expect(clippy::vec_box, reason = "they are lent to sessions as boxes, and come back as boxes")]
#[derive(Debug, Default)]
pub(crate) struct Pool(Vec<Box<LaneBuffers>>);

/// The messages that wait to be sent to one session.
#[derive(Debug, Default)]
pub(crate) struct Lanes(Option<Box<LaneBuffers>>);

impl Lanes {
    /// Appends what `encode` writes: one encoded message of the kind that `travel` names.
    pub(crate) fn push(&mut self, pool: &mut Pool, travel: Travel, encode: impl FnOnce(&mut Vec<u8>)) {
        let lanes = self.0.get_or_insert_with(|| pool.0.pop().unwrap_or_default());
        //= wire-spec.md#11-1-lease
        //# Encoding, packing and sending again MUST NOT change the echo of an answer.
        lanes.of(travel.urgency).push(travel.kind, travel.limit, encode);
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

    /// Hands the messages of one lane to `push`, in groups of one kind and limit, as many as `room` has bytes for; ends with the first
    /// that does not fit.
    #[inline]
    pub(crate) fn drain<C>(
        &mut self,
        pool: &mut Pool,
        urgency: Urgency,
        carrier: &mut C,
        room: impl Fn(&C, Kind, u16) -> usize,
        push: impl Fn(&mut C, Front<'_>),
    ) {
        let Some(lanes) = &mut self.0 else {
            return;
        };
        let lane = lanes.of(urgency);
        while let Some(front) = lane.front(|kind, limit| room(carrier, kind, limit)) {
            push(carrier, front);
            let (messages, len) = (front.messages, front.bytes.len());
            lane.take(messages, len);
        }
        self.give_back(pool);
    }

    /// Drops every message that renews: what was produced before D and not handed to the driver must not leave after it (section 11.3).
    pub(crate) fn drop_renewals(&mut self, pool: &mut Pool) {
        if let Some(lanes) = &mut self.0 {
            //= wire-spec.md#11-3-failure-and-ending
            //# From D on the server MUST NOT produce or release a message that renews the session's lease.
            lanes.urgent.drop_renewals();
            lanes.bulk.drop_renewals();
            self.give_back(pool);
        }
    }

    /// Drops everything.
    pub(crate) fn clear(&mut self, pool: &mut Pool) {
        if let Some(lanes) = &mut self.0 {
            lanes.urgent.clear();
            lanes.bulk.clear();
            self.give_back(pool);
        }
    }

    /// Gives the buffers back when nothing is left in them.
    fn give_back(&mut self, pool: &mut Pool) {
        let done = self.0.take_if(|lanes| lanes.urgent.is_empty() && lanes.bulk.is_empty());
        if let Some(lanes) = done
            && pool.0.len() < POOL_MAX
            && [&lanes.urgent, &lanes.bulk].iter().all(|lane| lane.may_be_kept())
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

    fn push(out: &mut Lanes, pool: &mut Pool, urgency: Urgency, message: &Message<'_>) {
        out.push(pool, Travel { kind: message.kind(), urgency, limit: 548 }, |bytes| message.encode(bytes));
    }

    /// Takes messages as long as they have not more than `room` bytes together.
    fn drained(out: &mut Lanes, pool: &mut Pool, urgency: Urgency, room: usize) -> Vec<Vec<u8>> {
        let mut taken: Vec<Vec<u8>> = Vec::new();
        let left = |taken: &Vec<Vec<u8>>, _, limit| {
            assert_eq!(limit, 548);
            room - taken.iter().map(Vec::len).sum::<usize>()
        };
        out.drain(pool, urgency, &mut taken, left, |taken, front| {
            let mut rest = front.bytes;
            for _ in 0..front.messages {
                assert_eq!(rest[0], front.kind.code());
                let (message, after) = rest.split_at(first_len(rest).unwrap());
                taken.push(message.to_vec());
                rest = after;
            }
            assert!(rest.is_empty());
        });
        taken
    }

    const ALL: usize = 1_000;

    #[test]
    fn messages_leave_in_order_and_the_rest_stays() {
        let (mut out, mut pool) = (Lanes::default(), Pool::default());
        for serial in 1..=3 {
            push(&mut out, &mut pool, Urgency::Urgent, &alive(serial));
        }
        let two = 2 * alive(1).to_bytes().len();
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, two + 1), [alive(1).to_bytes(), alive(2).to_bytes()]);
        assert!(out.has_urgent());
        push(&mut out, &mut pool, Urgency::Urgent, &alive(4));
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, ALL), [alive(3).to_bytes(), alive(4).to_bytes()]);
        assert!(out.is_empty());
    }

    #[test]
    fn messages_of_several_kinds_keep_their_order_however_little_fits() {
        for room in [25, 30, 50, 60, 100, ALL] {
            let (mut out, mut pool) = (Lanes::default(), Pool::default());
            let messages = [alive(1), alive(2), nack(3), alive(4), nack(5), nack(6), nack(7)];
            messages.iter().for_each(|message| push(&mut out, &mut pool, Urgency::Urgent, message));
            let mut all = Vec::new();
            while !out.is_empty() {
                let taken = drained(&mut out, &mut pool, Urgency::Urgent, room);
                assert!(!taken.is_empty(), "each of them fits {room} bytes");
                all.extend(taken);
            }
            assert_eq!(all, messages.map(|message| message.to_bytes()), "{room} bytes at a time");
        }
    }

    #[test]
    fn lane_that_is_never_empty_keeps_no_more_than_about_what_waits() {
        let (mut out, mut pool) = (Lanes::default(), Pool::default());
        let len = alive(1).to_bytes().len();
        (0..1_000).for_each(|serial| push(&mut out, &mut pool, Urgency::Bulk, &alive(serial)));
        for round in 0..20_000 {
            // Kinds that take turns, so that there are as many runs as messages.
            let message = if round % 2 == 0 { alive(round) } else { nack(round) };
            push(&mut out, &mut pool, Urgency::Bulk, &message);
            assert!(drained(&mut out, &mut pool, Urgency::Bulk, message.to_bytes().len().max(len)).len() <= 1);
            let bulk = &out.0.as_ref().expect("something waits").bulk;
            assert!(bulk.bytes.len() <= 2 * out.bulk_bytes() + FORGET_FROM + 64, "{} of {} bytes", bulk.bytes.len(), out.bulk_bytes());
            assert!(bulk.runs.len() <= 4_096, "{} runs", bulk.runs.len());
        }
    }

    #[test]
    fn buffers_return_to_the_pool_when_both_lanes_are_empty() {
        let (mut out, mut pool) = (Lanes::default(), Pool::default());
        push(&mut out, &mut pool, Urgency::Urgent, &alive(1));
        push(&mut out, &mut pool, Urgency::Bulk, &alive(2));
        drained(&mut out, &mut pool, Urgency::Urgent, ALL);
        assert!(!out.is_empty() && !out.has_urgent() && out.bulk_bytes() > 0);
        drained(&mut out, &mut pool, Urgency::Bulk, ALL);
        assert_eq!((out.is_empty(), pool.0.len()), (true, 1));
        push(&mut out, &mut pool, Urgency::Bulk, &alive(3));
        assert_eq!(pool.0.len(), 0, "lent again");
    }

    #[test]
    fn dropping_renewals_leaves_only_what_does_not_renew() {
        let (mut out, mut pool) = (Lanes::default(), Pool::default());
        let ack = Message::Ack(Ack { nonce: 1, echo: 1, reply: Reply::Done(Done {}) });
        for message in [alive(1), nack(1), alive(2)] {
            push(&mut out, &mut pool, Urgency::Urgent, &message);
        }
        push(&mut out, &mut pool, Urgency::Bulk, &ack);
        out.drop_renewals(&mut pool);
        assert_eq!(out.bulk_bytes(), 0);
        assert_eq!(drained(&mut out, &mut pool, Urgency::Urgent, ALL), [nack(1).to_bytes()]);
        assert!(out.is_empty());
    }
}
