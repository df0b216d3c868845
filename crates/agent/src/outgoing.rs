//! The way out: what the next datagram carries.
//!
//! Decides the order: the handshake; surrenders; receipts and control messages, which wait for nothing (R27); then requests, those to be
//! sent again before new ones, those of recovery before all others. Receipts and control messages keep to datagrams of 548 bytes, so that
//! they pass wherever anything does (R28).
//! Place in the walk: `Agent::poll_transmit`, with the time read before the send call (R6). Implements `wire-spec.md` section 3.
//! Invariants: a packet number is used once, and is in the log of send times before the driver has the bytes (R1); every message that
//! expects an answer has its timer.
//! Leaves to others: what there is to send.

use crate::agent::Agent;
use crate::port::{Answer, Outbound};
use crate::requests::{AROUND, Asker};
use crate::session::{Overdue, Session};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_link::{Instant, Path, Question, Rng};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{Fate, Header, Packer, PathResponse};

impl Agent {
    /// Whether there is a datagram to send now.
    pub(crate) fn has_datagram(&self) -> bool {
        self.opening.as_ref().is_some_and(|opening| opening.due)
            || self.has_surrender()
            || self.session.as_ref().is_some_and(Session::has_urgent)
            || self.has_request()
    }

    /// Whether there is a request to send now.
    pub(crate) fn has_request(&self) -> bool {
        let Some(session) = self.session.as_ref().filter(|session| !session.dormant) else { return false };
        let fits = |out: &Outbound| out.message.len() + AROUND <= session.requests.path_size(self.now);
        let ordinary = self.reclaim.is_none() && (!self.asks.is_empty() || self.out.front().is_some_and(fits));
        let waiting = !self.recovery.is_empty() || ordinary;
        session.requests.has_due() || waiting && session.requests.may_start()
    }

    /// Requests that were made for larger datagrams than the path carries now are made anew.
    pub(crate) fn remake_large(&mut self) {
        let Some(session) = &self.session else { return };
        let room = session.requests.path_size(self.now) - AROUND;
        self.ops.set_datagram(room + AROUND);
        let large: Vec<_> = self.out.iter().filter(|out| out.message.len() > room).map(|out| (out.task, out.call)).collect();
        if !large.is_empty() {
            self.out.retain(|out| out.message.len() <= room);
            for (task, call) in large {
                self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::SessionEnded(Fate::NotExecuted)));
            }
        }
    }

    /// Makes the next datagram.
    pub(crate) fn next_datagram(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        if let Some(path) = self.next_hello(buf) {
            return Some(path);
        }
        if let Some(path) = self.next_surrender(buf) {
            return Some(path);
        }
        if !self.has_datagram() {
            return None;
        }
        let (now, urgent) = (self.now, self.session.as_ref()?.has_urgent());
        let session = self.session.as_mut()?;
        let packet = session.counter.take()?;
        session.log.forget_older(now, session.tau);
        //= wire-spec.md#11-1-lease
        //# The agent MUST read its clock for a send time before it hands the transmission to the network.
        session.log.record(packet, now);
        let header = Header { from_server: false, session: session.id, packet };
        let limit = if urgent { DATAGRAM_MIN } else { session.size_of_next(now) };
        let mut packer = Packer::new(buf, header, limit);
        session.push_urgent(&mut packer, now, &mut self.rng);
        let mut round = Round { now, limit, rng: &mut self.rng, first: 0, again: 0, asked: Vec::new() };
        if !session.dormant {
            session.push_due(&mut packer, &mut round);
        }
        if !session.dormant && session.requests.may_start() {
            session.push_asks(&mut packer, &mut round, &mut self.recovery);
            if self.reclaim.is_none() {
                session.push_asks(&mut packer, &mut round, &mut self.asks);
                session.push_new(&mut packer, &mut round, &mut self.out);
            }
        }
        self.stats.requests += round.first;
        self.stats.retransmissions += round.again;
        let empty = packer.is_empty();
        packer.finish();
        let path = session.path;
        debug_assert!(!empty, "there was something to send");
        for (asker, nonce) in round.asked {
            if let Asker::Lock(object) = asker {
                self.locks.asked(object, nonce);
            }
        }
        self.note_horizon();
        if empty { None } else { Some(path) }
    }
}

/// One datagram in the making.
struct Round<'a> {
    now: Instant,
    limit: usize,
    rng: &'a mut Rng,
    /// Requests in it for the first time, and again.
    first: u64,
    again: u64,
    /// New requests of locks, whose nonces they must know.
    asked: Vec<(Asker, u64)>,
}

impl Session {
    /// Size of the next datagram without urgent messages: what the request that goes first may be in.
    fn size_of_next(&self, now: Instant) -> usize {
        match self.requests.first_due(now).filter(|_| self.requests.may_send()) {
            // Once a large request has come through, it may go out as large as it is.
            Some((nonce, size)) => size.max(self.requests.size_of(nonce) + AROUND),
            None => self.requests.path_size(now),
        }
    }

    /// Receipts, control messages, and the answer to a path challenge.
    fn push_urgent(&mut self, packer: &mut Packer<'_>, now: Instant, rng: &mut Rng) {
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
            let again = now.plus(self.rtt.backoff(sent.before, rng));
            self.timers.set(Overdue::Control(sent.serial), again, Question::Waited);
            if sent.before == 0 {
                self.asked = Some(now);
            }
        }
    }

    /// Requests that go out again.
    fn push_due(&mut self, packer: &mut Packer<'_>, round: &mut Round<'_>) {
        while self.requests.may_send()
            && let Some((nonce, size)) = self.requests.first_due(round.now)
        {
            let length = self.requests.size_of(nonce);
            if size < round.limit && size >= length + AROUND || length > packer.room() {
                return;
            }
            self.push_request(nonce, packer, round);
        }
    }

    /// Requests for locks, and those of recovery.
    fn push_asks(&mut self, packer: &mut Packer<'_>, round: &mut Round<'_>, asks: &mut VecDeque<(Asker, Vec<u8>)>) {
        while self.requests.may_start()
            && let Some((asker, message)) = asks.pop_front_if(|(_, message)| message.len() <= packer.room())
            && let Some(nonce) = self.requests.start(asker, message, false, round.now)
        {
            round.asked.push((asker, nonce));
            self.push_request(nonce, packer, round);
        }
    }

    /// Requests of operations.
    fn push_new(&mut self, packer: &mut Packer<'_>, round: &mut Round<'_>, out: &mut VecDeque<Outbound>) {
        while self.requests.may_start()
            && let Some(Outbound { task, call, message, mutation }) = out.pop_front_if(|out| out.message.len() <= packer.room())
            && let Some(nonce) = self.requests.start(Asker::Op(task, call), message, mutation, round.now)
        {
            self.push_request(nonce, packer, round);
        }
    }

    fn push_request(&mut self, nonce: u64, packer: &mut Packer<'_>, round: &mut Round<'_>) {
        let Some((message, sent)) = self.requests.send(nonce, round.now) else { return };
        let fits = packer.push_encoded(message);
        debug_assert!(fits, "there was room for it");
        if sent.attempts == 0 {
            self.asked = Some(round.now);
        }
        let count = if sent.first { &mut round.first } else { &mut round.again };
        *count += 1;
        let again = round.now.plus(self.rtt.backoff(sent.attempts, round.rng));
        self.timers.set(Overdue::Request(nonce), again, Question::Waited);
    }

    /// Nobody wants the answer to a request any more. It is asked on all the same if the floor would run too far ahead of the one that
    /// the server has heard of: a floor that the server does not believe stops all that comes later.
    pub(crate) fn give_up_request(&mut self, nonce: u64) {
        if self.requests.may_give_up() {
            self.forget_request(nonce);
        }
    }

    /// Stops awaiting the answer to a request.
    pub(crate) fn forget_request(&mut self, nonce: u64) {
        self.requests.drop(nonce);
        self.timers.cancel(Overdue::Request(nonce));
    }
}

// A receipt, a release of one lock and a cancellation have room beside one another in the smallest datagram.
const _: () = assert!(AROUND + (4 + 9) + (4 + 8 + 2 + 18) + (4 + 16) <= DATAGRAM_MIN);
