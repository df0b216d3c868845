//! What arrives at the agent.
//!
//! Decides: what a datagram may do. It is decoded whole first; a NACK in it acts before everything else (R12) and is final for the
//! session (R8); an answer renews the lease only by the exact packet number that it echoes (R1).
//! Implements `wire-spec.md` sections 7 and 11.2. Place in the walk: first step in for datagrams; hands replies to `ops` and
//! `local`, notices to `notices`. Invariant: a datagram that is dropped changes nothing but a counter.
//! Leaves to others: what a reply means, what the end of a session takes with it (`recovery`).

use crate::agent::{Agent, Closing, Fates, Timer};
use crate::control::Control;
use crate::port::Answer;
use crate::requests::{Origin, Pending};
use alloc::vec::Vec;
use cistern_link::{Freshness, Path, Question};
use cistern_wire::{
    CancelOutcome, Cancelled, Datagram, Fate, Granted, Hint, Keep, LockClass, Message, Nack, Queued, Released, Reply, RequestResult,
};

impl Agent {
    /// Takes one datagram in.
    pub(crate) fn take_in(&mut self, path: Path, bytes: &[u8]) {
        let datagram = match Datagram::at_agent(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => {
                log::trace!("agent {}: datagram from {} dropped: {reason}", self.identity.agent, path.remote);
                self.counters.drops[reason.index()] += 1;
                return;
            }
        };
        if datagram.header.session.0 == 0 {
            self.counters.datagrams_in += 1;
            datagram.messages().for_each(|message| self.take_handshake(path, &message));
            return;
        }
        let Some(session) = self.session.as_mut().filter(|session| session.id == datagram.header.session) else {
            self.counters.strangers += 1;
            return;
        };
        // A hint comes from whoever does not know the session: its packet number is not of the session's row (R86).
        if let Some(Message::Hint(hint)) = datagram.messages().next() {
            self.take_hint(&hint);
            return;
        }
        if session.replay.classify(datagram.header.packet) != Freshness::Fresh {
            self.counters.strangers += 1;
            return;
        }
        session.replay.note(datagram.header.packet);
        self.counters.datagrams_in += 1;
        let nacked = self.nacks(&datagram);
        if let Some(fates) = nacked {
            self.take_results(&datagram);
            self.counters.nacks += 1;
            self.end_session("the server has refused it (NACK)", &fates);
            return;
        }
        session_heard(self);
        for message in datagram.messages() {
            self.take_message(path, &message);
        }
    }

    /// The fates that NACKs of this datagram tell; `None` if it has none that counts.
    //= wire-spec.md#11.3
    fn nacks(&self, datagram: &Datagram<'_>) -> Option<Fates> {
        let mut fates = Fates::new();
        let mut any = false;
        for message in datagram.messages() {
            let Message::Nack(Nack { nonce, echo, fate, .. }) = message else { continue };
            // Only what answers something that this agent sent.
            if self.sent.sent_at(echo).is_some() {
                any = true;
                fates.insert(nonce, fate);
            }
        }
        any.then_some(fates)
    }

    /// Outcomes that stand beside a NACK still count; nothing in them is installed (R8).
    fn take_results(&mut self, datagram: &Datagram<'_>) {
        for message in datagram.messages() {
            if let Message::Result(RequestResult { nonce, reply }) = message {
                self.take_result(nonce, &reply);
            }
        }
    }

    fn take_message(&mut self, path: Path, message: &Message<'_>) {
        match message {
            Message::Ack(ack) => self.take_ack(ack.nonce, ack.echo, &ack.reply),
            Message::Pending(pending) => self.take_pending(pending.nonce, pending.echo),
            Message::Queued(queued) => self.take_queued(queued),
            Message::Result(result) => self.take_result(result.nonce, &result.reply),
            Message::Alive(alive) => self.take_alive(alive.serial, alive.echo),
            Message::Released(released) => self.take_released(released),
            Message::Cancelled(cancelled) => self.take_cancelled(cancelled),
            Message::Ended(ended) => self.take_ended(ended.serial),
            Message::PathChallenge(challenge) => {
                if let Some(session) = &mut self.session {
                    session.responses.push_back((path, challenge.token));
                }
            }
            Message::Demand(demand) => self.take_demand(demand),
            Message::Grant(grant) => self.take_grant(grant),
            Message::WaitOver(over) => self.take_wait_over(over),
            Message::Probe(probe) => self.take_probe(probe),
            // What a server never sends in a session was refused with the datagram.
            _ => {}
        }
    }

    fn take_ack(&mut self, nonce: u64, echo: u64, reply: &Reply<'_>) {
        self.renewed(echo, false);
        let Some(pending) = self.retire(nonce) else { return };
        self.measure(&pending, echo);
        match pending.origin {
            Origin::Task { task, call } => self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::Reply(*reply))),
            Origin::Lock(object) => match reply {
                Reply::Granted(granted) => self.take_granted(granted),
                Reply::LockRefused(_) => self.with_hall(|local, hall| local.lock_refused(hall, object)),
                Reply::Failed(failed) => {
                    self.with_hall(|local, hall| local.lock_failed(hall, object, failed.status, failed.retry_ms));
                }
                other => log::warn!("agent {}: LOCK was answered {}", self.identity.agent, other.kind().name()),
            },
            Origin::Extend(object) => {
                if let Reply::Granted(granted) = reply {
                    self.locks.saw(granted.generation);
                    self.with_hall(|local, hall| local.extended(hall, object, granted.generation, granted.run));
                }
            }
        }
    }

    fn take_granted(&mut self, granted: &Granted) {
        let Granted { lock, mode, generation, run } = *granted;
        self.install_advisory(lock, mode, generation, run);
    }

    /// An advisory lock came, by an answer or by a notice. False: it was disowned, and is asked for anew.
    pub(crate) fn install_advisory(
        &mut self,
        lock: cistern_wire::LockId,
        mode: cistern_wire::Mode,
        generation: cistern_wire::Generation,
        run: u32,
    ) -> bool {
        self.locks.saw(generation);
        let installable = self.locks.installable(lock, generation);
        self.with_hall(|local, hall| {
            if installable {
                local.granted_now(hall, lock.object, mode, generation, run);
            } else {
                local.refused_grant(hall, lock.object);
            }
        });
        installable
    }

    fn take_pending(&mut self, nonce: u64, echo: u64) {
        self.renewed(echo, false);
        let lease = self.lease.period();
        let Some(session) = &mut self.session else { return };
        let Some(pending) = session.requests.get_mut(nonce) else { return };
        pending.executing = true;
        // R26: asked again at least every τ/2; the answer itself, when it is made, comes at once.
        let pause = lease / 2;
        self.timers.set(Timer::Request(nonce), self.now.plus(self.rng.jitter(pause)), Question::Waited);
    }

    fn take_queued(&mut self, queued: &Queued<'_>) {
        self.renewed(queued.echo, false);
        let Some(pending) = self.retire(queued.nonce) else { return };
        self.measure(&pending, queued.echo);
        if let Origin::Lock(object) = pending.origin {
            let nonce = queued.nonce;
            self.with_hall(|local, hall| local.queued(hall, object, nonce));
        }
    }

    fn take_result(&mut self, nonce: u64, reply: &Reply<'_>) {
        let Some(pending) = self.retire(nonce) else { return };
        match pending.origin {
            Origin::Task { task, call } => self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::Result(Some(*reply)))),
            // A grant in it may not be installed; the lock is asked for again.
            Origin::Lock(object) => self.with_hall(|local, hall| local.refused_grant(hall, object)),
            Origin::Extend(_) => {}
        }
    }

    fn take_alive(&mut self, serial: u64, echo: u64) {
        self.answered(serial);
        self.renewed(echo, true);
    }

    fn take_released(&mut self, released: &Released<'_>) {
        self.renewed(released.echo, false);
        let Some(session) = &mut self.session else { return };
        if session.controls.released(released.serial, released.items.iter().map(|item| item.lock)) {
            self.timers.cancel(Timer::Control(released.serial));
        }
        for item in released.items {
            let object = item.lock.object;
            match (item.lock.class, item.keep) {
                (LockClass::Advisory, _) => self.with_hall(|local, hall| local.released(hall, object, item.generation)),
                (LockClass::Cache, Keep::Nothing) => {}
                (LockClass::Cache, Keep::Shared) if self.locks.downgraded(object, item.generation, item.now) => {
                    self.ops.regenerated(object, item.generation, item.now);
                }
                (LockClass::Cache, Keep::Shared) => self.ops.revoke(object, Keep::Nothing),
            }
        }
    }

    fn take_cancelled(&mut self, cancelled: &Cancelled) {
        self.renewed(cancelled.echo, false);
        if self.answered(cancelled.serial).is_none() {
            return;
        }
        match cancelled.outcome {
            // The GRANT itself brings the lock; it is retransmitted until it is receipted.
            CancelOutcome::Granted => {}
            CancelOutcome::Cancelled | CancelOutcome::Answered => {
                self.with_hall(|local, hall| local.cancelled(hall, cancelled.nonce));
            }
        }
    }

    fn take_ended(&mut self, serial: u64) {
        if self.answered(serial).is_some() && self.closing == Closing::Asked {
            self.session = None;
            self.lease.end();
            self.closing = Closing::Closed;
        }
    }

    /// Somebody says that the server does not know the session. It is only a reason to ask the server, by a handshake (R86).
    fn take_hint(&mut self, hint: &Hint<'_>) {
        let ours = self.sent.sent_at(hint.echo).is_some();
        if ours && self.opening.is_none() && self.closing == Closing::No {
            self.open();
        } else if ours && self.closing == Closing::Asked {
            // Nothing is left at the server that could be closed.
            self.closing = Closing::Closed;
        }
    }

    /// A renewing message: the lease counts from the send time of the transmission that it echoes, and from nothing else.
    //= wire-spec.md#11.1
    fn renewed(&mut self, echo: u64, explicit: bool) {
        let Some(sent_at) = self.sent.sent_at(echo) else {
            log::debug!("agent {}: an answer echoes packet {echo}, which was not sent or long ago", self.identity.agent);
            return;
        };
        if explicit {
            self.counters.explicit += 1;
        } else {
            self.counters.opportunistic += 1;
        }
        self.lease.renew(sent_at);
        self.after_renewal();
    }

    /// The answer of a request came: its nonce is retired.
    fn retire(&mut self, nonce: u64) -> Option<Pending> {
        let session = self.session.as_mut()?;
        let in_flight = session.requests.in_flight();
        let pending = session.requests.remove(nonce)?;
        session.nonces.retire(nonce);
        session.congestion.on_ack(in_flight.max(1));
        self.timers.cancel(Timer::Request(nonce));
        Some(pending)
    }

    /// A round trip, by the exact transmission that was answered; one that waited at the server says nothing about the network.
    fn measure(&mut self, pending: &Pending, echo: u64) {
        let sent_at = self.sent.sent_at(echo);
        if let (Some(sent_at), Some(session), false) = (sent_at, &mut self.session, pending.executing) {
            session.round_trip.sample(self.now.since(sent_at));
        }
    }

    fn answered(&mut self, serial: u64) -> Option<Control> {
        self.timers.cancel(Timer::Control(serial));
        self.session.as_mut()?.controls.answered(serial)
    }

    /// The calls that a session's end leaves without an answer, with what is known of their fate.
    pub(crate) fn orphaned(&mut self, fates: &Fates) -> Vec<(Pending, Fate)> {
        let Some(session) = &mut self.session else { return Vec::new() };
        let fate = |nonce: u64, pending: &Pending| match fates.get(&nonce) {
            Some(fate) => *fate,
            // What was never sent was never executed.
            None if pending.sent == 0 => Fate::NotExecuted,
            None => Fate::Unknown,
        };
        session.requests.take_all().into_iter().map(|(nonce, pending)| (fate(nonce, &pending), pending)).map(|(fate, pending)| (pending, fate)).collect()
    }
}

fn session_heard(agent: &mut Agent) {
    let now = agent.now;
    if let Some(session) = &mut agent.session {
        session.heard = now;
    }
    agent.timers.cancel(Timer::Silence);
}
