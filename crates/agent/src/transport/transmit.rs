//! The way out of a channel: what its next datagram carries.
//!
//! As long as the session is not open CONFIRM leads. Receipts and control messages go first and wait for nothing; then what is sent again, then what was never sent, by lanes. Receipts and
//! control messages keep to datagrams of 548 bytes, so that they pass wherever anything does.

use super::Channel;
use crate::call::{Origin, Outbound, Timer, Timers};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::{Instant, Path, Question, Rng};
use cistern_seal::Cipher;
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Form, Header, Message, Packer, PathResponse};

/// Which requests go first: those of recovery before those for locks and watches, and operations last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lane {
    /// RECLAIM, RECLAIM_COMPLETE, OUTCOME.
    Recovery,
    /// LOCK, WATCH, UNWATCH.
    Lock,
}

/// Requests that were never sent.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    recovery: VecDeque<(Origin, Vec<u8>)>,
    lock: VecDeque<(Origin, Vec<u8>)>,
    /// Those of operations; they stay when a session ends, and go out in the next.
    pub(crate) tasks: VecDeque<Outbound>,
}

impl SendQueue {
    /// Adds a request.
    pub(crate) fn push(&mut self, lane: Lane, origin: Origin, request: &Message<'_>) {
        self.lane(lane).push_back((origin, request.to_bytes()));
    }

    /// Takes a request back that was not sent. Whether there was one.
    pub(crate) fn withdraw(&mut self, lane: Lane, origin: Origin) -> bool {
        let lane = self.lane(lane);
        let place = lane.iter().position(|(asked, _)| *asked == origin);
        place.and_then(|place| lane.remove(place)).is_some()
    }

    /// The session is over: what only it could answer is not asked any more.
    pub(crate) fn session_over(&mut self) {
        self.recovery.clear();
        self.lock.clear();
    }

    /// Whether there is a request that this gate lets through; one of an operation counts if it is at most so long.
    pub(super) fn has_next(&self, gate: Gate, longest: usize) -> bool {
        let fits = |out: &Outbound| out.message.len() <= longest;
        let ordinary = gate == Gate::Open && (!self.lock.is_empty() || self.tasks.front().is_some_and(fits));
        !self.recovery.is_empty() || ordinary
    }

    /// The first request of a lane, if it is at most so long.
    pub(super) fn pop(&mut self, lane: Lane, longest: usize) -> Option<(Origin, Vec<u8>)> {
        self.lane(lane).pop_front_if(|(_, message)| message.len() <= longest)
    }

    /// The first request of an operation, if it is at most so long.
    pub(super) fn pop_task(&mut self, longest: usize) -> Option<Outbound> {
        self.tasks.pop_front_if(|out| out.message.len() <= longest)
    }

    const fn lane(&mut self, lane: Lane) -> &mut VecDeque<(Origin, Vec<u8>)> {
        match lane {
            Lane::Recovery => &mut self.recovery,
            Lane::Lock => &mut self.lock,
        }
    }
}

/// What every part may use: the time, the timers, chance, the cipher.
pub(crate) struct Cx<'a> {
    pub(crate) now: Instant,
    pub(crate) timers: &'a mut Timers,
    pub(crate) rng: &'a mut Rng,
    pub(crate) cipher: &'a mut Cipher,
}

/// Which requests may be sent for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gate {
    /// All.
    Open,
    /// Those of recovery: a reclaim is under way.
    Recovery,
}

/// A datagram that was made.
#[derive(Debug)]
pub(crate) struct Transmitted {
    pub(crate) path: Path,
    /// Requests in it for the first time, and again.
    pub(crate) first: u64,
    pub(crate) again: u64,
    /// Requests of locks and recovery in it for the first time, with their nonces.
    pub(crate) asked: Vec<(Origin, u64)>,
}

impl Channel {
    /// Whether the next datagram carries a request, whose answer will renew the lease.
    pub(crate) fn is_asking(&self, now: Instant, queue: &SendQueue, gate: Gate) -> bool {
        let room = if self.is_confirming() {
            DATAGRAM_MIN - self.sealer.form().around() - self.controls.lead_len()
        } else {
            self.path_size(now).1
        };
        let may_start = || self.requests.may_start() && queue.has_next(gate, room);
        !self.dormant && (self.requests.has_due() || may_start())
    }

    /// Whether there is a next datagram.
    pub(crate) fn has_next(&self, now: Instant, queue: &SendQueue, gate: Gate) -> bool {
        self.is_urgent() || self.is_asking(now, queue, gate)
    }

    fn is_urgent(&self) -> bool {
        !self.receipts.is_empty() || self.controls.has_due() || self.challenged.is_some()
    }

    /// Makes the next datagram, if there is anything to send.
    pub(crate) fn poll_transmit(&mut self, cx: Cx<'_>, queue: &mut SendQueue, gate: Gate, buf: &mut Vec<u8>) -> Option<Transmitted> {
        let now = cx.now;
        let urgent = self.is_urgent();
        // Its number is taken when it is known that it carries something.
        let header = Header { from_server: false, session: self.session, packet: self.counter.last() + 1 };
        let limit = if urgent || self.is_confirming() { DATAGRAM_MIN } else { self.size_of_next(now) };
        let mut packer = Packer::of_form(buf, header, limit, self.sealer.form());
        self.controls.lead(&mut packer);
        let lead = packer.used();
        let mut packing = Packing { cx, limit, first: 0, again: 0, asked: Vec::new() };
        if urgent {
            self.push_urgent(&mut packer, &mut packing);
        }
        if !self.dormant {
            self.push_due(&mut packer, &mut packing);
            match gate {
                Gate::Recovery => self.push_new(&mut packer, &mut packing, queue, &[Lane::Recovery]),
                Gate::Open => {
                    self.push_new(&mut packer, &mut packing, queue, &[Lane::Recovery, Lane::Lock]);
                    self.push_tasks(&mut packer, &mut packing, queue);
                }
            }
        }
        if packer.used() == lead && !self.controls.is_confirm_due() {
            return None;
        }
        packer.finish();
        let Packing { cx, first, again, asked, .. } = packing;
        if let Some(sent) = self.controls.led() {
            cx.timers.set(Timer::Control(sent.serial), now.plus(self.rtt.backoff(sent.before, cx.rng)), Question::Waited);
        }
        let packet = self.counter.take()?;
        self.sealer.seal(cx.cipher, now.uptime(), buf);
        self.log.forget_older(now, self.tau);
        //= wire-spec.md#11-1-lease
        //# The agent MUST read the clock for a send time before it hands the transmission to the network.
        self.log.record(packet, now);
        Some(Transmitted { path: self.path, first, again, asked })
    }
}

/// While another session is the present one.
impl Channel {
    /// Makes a datagram of nothing but CONFIRM.
    pub(crate) fn confirm(&mut self, cx: &mut Cx<'_>, buf: &mut Vec<u8>) -> Option<Path> {
        let packet = self.counter.take()?;
        let header = Header { from_server: false, session: self.session, packet };
        let mut packer = Packer::of_form(buf, header, DATAGRAM_MIN, self.sealer.form());
        self.controls.lead(&mut packer);
        packer.finish();
        self.sealer.seal(cx.cipher, cx.now.uptime(), buf);
        self.log.record(packet, cx.now);
        if let Some(sent) = self.controls.led() {
            cx.timers.set(Timer::Handshake, cx.now.plus(self.rtt.backoff(sent.before, cx.rng)), Question::Waited);
        }
        Some(self.path)
    }
}

/// One datagram in the making.
struct Packing<'a> {
    cx: Cx<'a>,
    limit: usize,
    first: u64,
    again: u64,
    asked: Vec<(Origin, u64)>,
}

impl Channel {
    /// Size of the next datagram without urgent messages: what the request that goes first may be in.
    fn size_of_next(&self, now: Instant) -> usize {
        match self.requests.first_due(now).filter(|_| self.requests.may_send()) {
            // Once a large request has come through, it may go out as large as it is.
            Some((nonce, size)) => size.max(self.requests.size_of(nonce) + self.sealer.form().around()),
            None => self.requests.path_size(now),
        }
    }

    /// Receipts, control messages, and the answer to a path challenge.
    fn push_urgent(&mut self, packer: &mut Packer<'_>, packing: &mut Packing<'_>) {
        let now = packing.cx.now;
        // What proves the address goes before what is acted on only from a proven one.
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent that answers PATH_CHALLENGE SHOULD send a keep-alive in the same datagram if it would renew its lease.
        if let Some(token) = self.challenged.take()
            && !packer.push(&PathResponse { token }.into())
        {
            self.challenged = Some(token);
        }
        while let Some(receipt) = self.receipts.front() {
            if !packer.push(&(*receipt).into()) {
                return;
            }
            self.receipts.pop_front();
        }
        for sent in self.controls.send(packer, now) {
            let again = now.plus(self.rtt.backoff(sent.before, packing.cx.rng));
            packing.cx.timers.set(Timer::Control(sent.serial), again, Question::Waited);
            if sent.before == 0 {
                self.asked = Some(now);
            }
        }
    }

    /// Requests that go out again.
    fn push_due(&mut self, packer: &mut Packer<'_>, packing: &mut Packing<'_>) {
        while self.requests.may_send()
            && let Some((nonce, size)) = self.requests.first_due(packing.cx.now)
        {
            let length = self.requests.size_of(nonce);
            if size < packing.limit && size >= length + self.sealer.form().around() || length > packer.room() {
                return;
            }
            self.push_request(nonce, packer, packing);
        }
    }

    /// Requests that were never sent.
    fn push_new(&mut self, packer: &mut Packer<'_>, packing: &mut Packing<'_>, queue: &mut SendQueue, lanes: &[Lane]) {
        for lane in lanes {
            while self.requests.may_start()
                && let Some((origin, message)) = queue.pop(*lane, packer.room())
                && let Some(nonce) = self.requests.start(origin, message, false, packing.cx.now)
            {
                packing.asked.push((origin, nonce));
                self.push_request(nonce, packer, packing);
            }
        }
    }

    /// Requests of operations.
    fn push_tasks(&mut self, packer: &mut Packer<'_>, packing: &mut Packing<'_>, queue: &mut SendQueue) {
        while self.requests.may_start()
            && let Some(Outbound { task, call, message, mutation }) = queue.pop_task(packer.room())
            && let Some(nonce) = self.requests.start(Origin::Op(task, call), message, mutation, packing.cx.now)
        {
            self.push_request(nonce, packer, packing);
        }
    }

    fn push_request(&mut self, nonce: u64, packer: &mut Packer<'_>, packing: &mut Packing<'_>) {
        let Some((message, sent)) = self.requests.send(nonce, packing.cx.now) else { return };
        let fits = packer.push_encoded(message);
        debug_assert!(fits, "there was room for it");
        if sent.attempts == 0 {
            self.asked = Some(packing.cx.now);
        }
        let count = if sent.first { &mut packing.first } else { &mut packing.again };
        *count += 1;
        let again = packing.cx.now.plus(self.rtt.backoff(sent.attempts, packing.cx.rng));
        packing.cx.timers.set(Timer::Request(nonce), again, Question::Waited);
    }
}

// A receipt, a release of one lock and a cancellation have room beside one another in the smallest datagram.
const _: () = assert!(Form::Record.around() + (4 + 9) + (4 + 8 + 2 + 18) + (4 + 16) <= DATAGRAM_MIN);
