//! What leaves the agent: one datagram at a time, with a packet number of its own and its send time noted.
//!
//! Decides: the order in a datagram: receipts and control messages first, they wait for nothing (R27); then requests, as far as
//! the congestion window allows. Implements `wire-spec.md` sections 3 and 11.2. Place in the walk: last step out.
//! Invariant I3: the send time of a transmission is noted before the driver can send it, under its exact packet number (R1, R6).
//! Leaves to others: what is ready (`requests`, `control`, `opening`).

use crate::agent::{Agent, Timer};
use crate::session::Session;
use alloc::vec::Vec;
use cistern_link::{Instant, Path, Question, Rng, TimerQueue};
use cistern_wire::{Header, Message, Packer, SessionId};
use core::time::Duration;

/// Longest time between two transmissions of one message, once an answer has not come for long.
const BACKOFF_MAX: Duration = Duration::from_secs(1);

impl Agent {
    /// Fills the next datagram, if there is something to send.
    pub(crate) fn next_datagram(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        buf.clear();
        let path = self.next_hello(buf).or_else(|| self.next_in_session(buf))?;
        self.counters.datagrams_out += 1;
        Some(path)
    }

    fn next_hello(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let opening = self.opening.as_mut().filter(|opening| opening.ready)?;
        let path = opening.path(&self.servers)?;
        let packet = self.packets.take()?;
        opening.ready = false;
        opening.attempts += 1;
        let hello = opening.hello(&self.config, &self.identity, &self.known, &self.former);
        let header = Header { from_server: false, session: SessionId(0), packet };
        let mut packer = Packer::new(buf, header, usize::from(self.config.max_datagram));
        packer.push(&Message::Hello(hello));
        packer.finish();
        self.sent.record(packet, self.now);
        let pause = opening.pause(&mut self.rng);
        self.timers.set(Timer::Opening, self.now.plus(pause), Question::Waited);
        Some(path)
    }

    fn next_in_session(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let session = self.session.as_mut()?;
        if !session.has_something() {
            return None;
        }
        // A number that is taken is used, so it is taken only when something will be sent under it.
        let packet = self.packets.take()?;
        let header = Header { from_server: false, session: session.id, packet };
        let mut path = session.path;
        let mut packer = Packer::new(buf, header, session.max_datagram);
        let mut sending = Sending { now: self.now, timers: &mut self.timers, rng: &mut self.rng, again: 0 };
        if let Some((back, token)) = session.responses.pop_front() {
            // A challenge is answered on the path that it took, in a datagram of its own.
            path = back;
            packer.push(&Message::PathResponse(cistern_wire::PathResponse { token }));
        } else {
            session.pack_receipts(&mut packer);
            session.pack_controls(&mut packer, &mut sending);
            session.pack_requests(&mut packer, &mut sending);
        }
        self.counters.retransmissions += sending.again;
        packer.finish();
        self.sent.record(packet, self.now);
        Some(path)
    }
}

/// What is needed while a datagram is filled.
struct Sending<'a> {
    now: Instant,
    timers: &'a mut TimerQueue<Timer>,
    rng: &'a mut Rng,
    /// Messages that were sent before.
    again: u64,
}

impl Session {
    fn has_something(&self) -> bool {
        !self.responses.is_empty()
            || !self.receipts.is_empty()
            || self.controls.next_ready().is_some()
            || (self.requests.next_ready().is_some() && self.congestion.can_send(self.requests.in_flight()))
    }

    fn pack_receipts(&mut self, packer: &mut Packer<'_>) {
        while let Some(receipt) = self.receipts.front() {
            if !packer.push(&Message::Receipt(*receipt)) {
                return;
            }
            self.receipts.pop_front();
        }
    }

    fn pack_controls(&mut self, packer: &mut Packer<'_>, sending: &mut Sending<'_>) {
        while let Some(serial) = self.controls.next_ready() {
            let clock_us = sending.now.raw_ns / 1_000;
            let Some(outgoing) = self.controls.get(serial) else { return };
            if !packer.push(&outgoing.control.message(serial, clock_us)) {
                return;
            }
            let Some(outgoing) = self.controls.sent() else { return };
            sending.again += u64::from(outgoing.sent > 1);
            let pause = backoff(&self.round_trip, outgoing.sent, sending.rng);
            sending.timers.set(Timer::Control(serial), sending.now.plus(pause), Question::Waited);
        }
    }

    fn pack_requests(&mut self, packer: &mut Packer<'_>, sending: &mut Sending<'_>) {
        while let Some(nonce) = self.requests.next_ready() {
            if !self.congestion.can_send(self.requests.in_flight()) {
                return;
            }
            let back = self.nonces.back(nonce).unwrap_or(0);
            let Some(pending) = self.requests.get_mut(nonce) else { return };
            pending.patch(nonce, back);
            // What should fit a smaller datagram after losses goes alone.
            let roomy = packer.is_empty() || packer.used() + pending.message.len() <= usize::from(pending.limit);
            if !roomy || !packer.push_encoded(&pending.message) {
                return;
            }
            let Some(pending) = self.requests.sent(sending.now) else { return };
            sending.again += u64::from(pending.sent > 1);
            let pause = backoff(&self.round_trip, pending.sent, sending.rng);
            sending.timers.set(Timer::Request(nonce), sending.now.plus(pause), Question::Waited);
        }
    }
}

/// The time that a transmission is given. The estimator keeps to its cap while there is hope; after a row of losses the pauses grow
/// on, so that nobody keeps on knocking at a dead server's door.
fn backoff(round_trip: &cistern_link::RoundTrip, sent: u32, rng: &mut Rng) -> Duration {
    const HOPE: u32 = 12;
    let pause = round_trip.backoff(sent.saturating_sub(1), rng);
    if sent <= HOPE { pause } else { pause.saturating_mul(1 << (sent - HOPE).min(8)).min(BACKOFF_MAX).max(pause) }
}
