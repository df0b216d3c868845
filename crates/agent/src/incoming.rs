//! The way in: a datagram is decoded, judged by its session and number, and its messages act in the order that is safe.
//!
//! Decides that order: a NACK before everything else of its datagram (R8, R12); a renewal before what came with it. Which answers renew
//! is the arm of each kind here, and all go through `renew`: from the send time of the very transmission echoed, in this session (R1).
//! Place in the walk: `Agent::handle_datagram`. Implements `wire-spec.md` sections 3.2, 3.5 and 7.
//! Invariant: what does not decode whole, came before, or belongs to another session changes nothing but a counter.
//! Leaves to others: what each message leads to (`notices`, `recovery`, `opening`, `locks`, `ops`).

use crate::agent::Agent;
use crate::idle::RTO_LONGEST;
use crate::lease::Renewal;
use crate::port::Answer;
use crate::requests::{Asker, Flight};
use crate::session::Overdue;
use crate::stats::Dropped;
use crate::telling::Told;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Freshness, Path, Question};
use cistern_wire::{
    Ack, CancelOutcome, Cancelled, Datagram, DropReason, Fate, Header, Kind, LockClass, Message, Messages, Pending, Queued, Released,
    Reply, RequestResult,
};
use log::trace;

impl Agent {
    pub(crate) fn incoming(&mut self, path: Path, bytes: &[u8]) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST drop every datagram that does not come from an address of its server.
        if !self.servers.contains(&path.remote) && !bugs::is(Bug::A2) {
            return self.dropped(Dropped::ForeignAddress);
        }
        let datagram = match Datagram::at_agent(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        if datagram.header.session.0 == 0 {
            return self.handshake(path, datagram.messages());
        }
        match &self.session {
            //= wire-spec.md#11-1-lease
            //# An answer in a datagram of another session, or from another server incarnation, MUST NOT renew.
            Some(session) if session.id == datagram.header.session => self.of_session(path, datagram.header, datagram.messages()),
            Some(session) if bugs::is(Bug::M8) => {
                let packet = session.replay.highest() + 1;
                self.of_session(path, Header { packet, ..datagram.header }, datagram.messages());
            }
            _ => self.of_another_session(datagram.header.session, datagram.messages()),
        }
    }

    fn undecoded(&mut self, path: Path, reason: &DropReason) {
        trace!("{}: dropped a datagram from {}: {reason}", self.who, path.remote);
        self.stats.drops.undecoded(reason);
    }

    /// Counts what changes nothing else.
    pub(crate) fn dropped(&mut self, reason: Dropped) {
        trace!("{}: dropped: {}", self.who, reason.name());
        self.stats.drops.count(reason);
    }

    fn handshake(&mut self, path: Path, messages: Messages<'_>) {
        for message in messages {
            match message {
                Message::Challenge(challenge) => self.challenged(path, &challenge),
                Message::Known(known) => self.is_known(path, &known),
                Message::Welcome(welcome) => self.welcomed(path, &welcome),
                Message::Refuse(refuse) => self.refused(&refuse),
                // The decoder lets nothing else through in session 0 but padding.
                _ => {}
            }
        }
    }

    fn of_session(&mut self, path: Path, header: Header, messages: Messages<'_>) {
        let mut all = messages;
        if let (Some(Message::Hint(hint)), None) = (all.next(), all.next()) {
            // Its sender does not know the session, so it cannot know its numbers.
            if !self.hinted(hint.echo) {
                self.dropped(Dropped::StrayHint);
            }
            return;
        }
        let Some(session) = &mut self.session else { return };
        match session.replay.classify(header.packet) {
            Freshness::Fresh => session.replay.note(header.packet),
            Freshness::Duplicate => return self.dropped(Dropped::DuplicatePacket),
            Freshness::Stale => return self.dropped(Dropped::StalePacket),
            Freshness::Ahead => return self.dropped(Dropped::PacketAhead),
        }
        self.heard(path);
        //= wire-spec.md#11-2-delivery
        //# An agent MUST act on the NACKs in a datagram before it acts on anything else in it.
        //= wire-spec.md#7-the-table-of-answers
        //# An agent that takes a NACK MUST believe it for the whole session, whichever message it answers.
        if self.take_nacks(messages) {
            return;
        }
        for message in messages {
            self.message(message);
            self.settle();
            // Only now: what was disowned while a request was out counts for the answer to that request, too (R65).
            self.note_horizon();
        }
    }

    /// The server is there, at the address from which this came if it is one of its own.
    fn heard(&mut self, path: Path) {
        let Some(session) = &mut self.session else { return };
        session.silence = 0;
        session.wake();
        self.server_is_at(path);
    }

    /// What goes to the server goes to the address from which this came, if it is one of its own.
    pub(crate) fn server_is_at(&mut self, path: Path) {
        let Some(session) = &mut self.session else { return };
        if session.path.remote != path.remote
            && let Some(address) = self.servers.iter().position(|server| *server == path.remote)
        {
            session.address = address;
            session.path = Path::to(path.remote);
        }
    }

    fn message(&mut self, message: Message<'_>) {
        match message {
            Message::Ack(ack) => self.acked(&ack),
            Message::Pending(pending) => self.pending(pending),
            Message::Queued(queued) => self.queued(&queued),
            Message::Result(result) => self.resulted(&result),
            Message::Alive(alive) => {
                if self.renew(alive.echo, Renewal::Explicit, true) {
                    self.control_answered(alive.serial);
                }
            }
            Message::Released(released) => self.released(&released),
            Message::Cancelled(cancelled) => self.cancelled(&cancelled),
            Message::Ended(ended) => {
                if self.session.as_ref().is_some_and(|session| session.was_sent(ended.echo)) {
                    self.closed();
                }
            }
            //= wire-spec.md#6-4-notices
            //# A notice MUST NOT renew a lease.
            Message::Demand(demand) => self.demanded(&demand),
            Message::Grant(grant) => self.granted(&grant),
            Message::WaitOver(over) => self.wait_over(&over),
            Message::Probe(probe) => self.probed(probe.seq),
            Message::WatchEvent(event) => self.watch_event(&event),
            Message::PathChallenge(challenge) => {
                // Answers went to the address that was proven last, and may be lost: the keep-alive goes with the proof.
                let now = self.now;
                if let Some(session) = &mut self.session {
                    session.challenged = Some(challenge.token);
                    session.moved = Some(now);
                    session.controls.wake();
                }
            }
            // A NACK that echoes nothing of this agent's, or a hint among other messages.
            Message::Nack(_) => self.dropped(Dropped::UnknownEcho),
            Message::Hint(_) => self.dropped(Dropped::StrayHint),
            // Nothing here challenges a path, and padding means nothing; the decoder lets no other kind through.
            other => debug_assert!(matches!(other.kind(), Kind::PathResponse | Kind::Padding)),
        }
    }

    /// Takes an answer that renews. False if it answers nothing that was ever sent in this session: then it is no answer at all.
    ///
    /// `prompt`: it was made on receipt of what it echoes, so it measures the round trip.
    fn renew(&mut self, echo: u64, by: Renewal, prompt: bool) -> bool {
        let Some(session) = &mut self.session else { return false };
        //= wire-spec.md#11-1-lease
        //# An answer whose echo the agent did not send in this session MUST be dropped whole.
        if !session.was_sent(echo) {
            self.dropped(Dropped::UnknownEcho);
            return false;
        }
        //= wire-spec.md#11-1-lease
        //# The packet number in the header of an answer MUST NOT renew anything.
        let Some(mut sent) = session.sent_at(echo) else { return true };
        if self.opening.as_ref().is_some_and(|opening| sent.waited(opening.began)) {
            // What is asked by it is answered: the server holds the session.
            self.stop_opening();
        }
        let Some(session) = &mut self.session else { return false };
        if bugs::is(Bug::M1) {
            sent = self.now;
        } else if bugs::is(Bug::M2) {
            sent = session.sent_at(session.counter.last()).unwrap_or(sent);
        }
        if session.moved.is_some_and(|moved| sent.waited(moved)) {
            // The server knows where this host is now, or the old address serves as well.
            session.moved = None;
        }
        if prompt {
            session.rtt.sample(self.now.since(sent));
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The identity of a server that has answered nothing in the session that it opened MUST NOT bind an agent.
        self.known = self.offered;
        let (id, tau) = (session.id, session.tau);
        // Both are what the exclusion of others rests on; to go on without them would be worse than to stop.
        assert!(!self.has_been(id), "a session that is over renews nothing (R8)");
        if by == Renewal::Opportunistic && !self.config.opportunistic {
            // To believe in less than the server respects is always safe.
            //= wire-spec.md#11-1-lease
            //# An agent MAY renew on answers to keep-alives alone.
            return true;
        }
        let moved = self.session_lease_mut().renew(sent, by);
        let until = self.session_lease().valid_until();
        assert!(until.is_none_or(|until| self.now.plus(tau).waited(until)), "a lease ends at most τ after a transmission (R1)");
        if moved && self.reclaim.is_none() {
            if self.told > Told::Certain {
                // Before anything is granted again: what comes to be held now was never uncertain.
                self.tend_holders();
            }
            self.locks.renewed(self.permit());
            self.settle();
        }
        true
    }

    fn acked(&mut self, ack: &Ack<'_>) {
        let flight = self.session.as_ref().and_then(|session| session.requests.get(ack.nonce));
        let prompt = flight.is_some_and(|flight| !flight.waited);
        if !self.renew(ack.echo, Renewal::Opportunistic, prompt) {
            return;
        }
        self.arrived(ack.nonce);
        if let Some(flight) = self.retire(ack.nonce) {
            self.note_ephemerals(&ack.reply, |at| flight.makes_ephemeral(at));
            self.answered(flight.asker, &ack.reply);
        }
    }

    fn arrived(&mut self, nonce: u64) {
        if let Some(session) = &mut self.session {
            session.requests.heard(nonce);
        }
    }

    /// The request is answered; gives it if it was still awaited.
    fn retire(&mut self, nonce: u64) -> Option<Flight> {
        let session = self.session.as_mut()?;
        let flight = session.requests.retire(nonce, self.now)?;
        session.timers.cancel(Overdue::Request(nonce));
        Some(flight)
    }

    fn answered(&mut self, asker: Asker, reply: &Reply<'_>) {
        match asker {
            Asker::Op(task, call) => self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::Reply(*reply))),
            Asker::Lock(object) => self.locks.answered(self.permit(), object, reply),
            Asker::Run(object) => self.locks.extended(self.permit(), object, reply),
            Asker::Reclaim(batch) => self.reclaimed(batch, reply),
            Asker::Complete(from) => self.completed(from, reply),
            Asker::Watch(object) => self.watch_answered(object, reply),
            Asker::Unwatch(object) => self.unwatch_answered(object),
            Asker::Outcome(session, nonce) => self.outcome_told(session, nonce, reply),
        }
    }

    fn pending(&mut self, pending: Pending) {
        if !self.renew(pending.echo, Renewal::Opportunistic, true) {
            return;
        }
        let Some(session) = &mut self.session else { return };
        if let Some(sent) = session.requests.pending(pending.nonce) {
            // Spread over the second quarter of τ after it was asked, so that it is asked about at least every τ/2 (R26).
            //= wire-spec.md#11-2-delivery
            //# An agent MUST ask again for a pending request at least every τ/2.
            let again = sent.plus(self.rng.jitter(RTO_LONGEST.min(session.tau / 2)));
            session.timers.set(Overdue::Request(pending.nonce), again, Question::Waited);
        }
    }

    fn queued(&mut self, queued: &Queued<'_>) {
        if !self.renew(queued.echo, Renewal::Opportunistic, true) {
            return;
        }
        self.arrived(queued.nonce);
        if let Some(Flight { asker: Asker::Lock(object), .. }) = self.retire(queued.nonce) {
            self.locks.queued(self.permit(), object);
        }
    }

    /// The outcome of a request executed before the failure: it renews nothing, and nothing of it is installed (R4).
    fn resulted(&mut self, result: &RequestResult<'_>) {
        let flight = self.session.as_ref().and_then(|session| session.requests.get(result.nonce));
        // Of a request for a lock it says nothing that counts: NACK ends the session, or the server is asked again once it is in good
        // standing.
        let of_operation = flight.is_some_and(|flight| matches!(flight.asker, Asker::Op(..)));
        if of_operation
            && let Some(flight) = self.retire(result.nonce)
            && let Asker::Op(task, call) = flight.asker
        {
            self.note_ephemerals(&result.reply, |at| flight.makes_ephemeral(at));
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::Result(Some(result.reply))));
        }
    }

    fn control_answered(&mut self, serial: u64) {
        if let Some(session) = &mut self.session {
            session.controls.answered(serial);
            session.timers.cancel(Overdue::Control(serial));
        }
    }

    fn released(&mut self, released: &Released<'_>) {
        if !self.renew(released.echo, Renewal::Opportunistic, true) {
            return;
        }
        if let Some(session) = &mut self.session
            && session.controls.released(released.serial, released.items)
        {
            session.timers.cancel(Overdue::Control(released.serial));
        }
        for item in released.items {
            match item.lock.class {
                LockClass::Cache => self.cache.released(&item),
                LockClass::Advisory => self.locks.released(self.permit(), &item),
            }
            self.settle();
        }
    }

    fn cancelled(&mut self, cancelled: &Cancelled) {
        if !self.renew(cancelled.echo, Renewal::Opportunistic, true) {
            return;
        }
        self.control_answered(cancelled.serial);
        let Some(session) = &mut self.session else { return };
        let nonce = cancelled.nonce;
        // What is "answered" may be cancelled yet, by a copy of the message that comes after the request.
        let object = match cancelled.outcome {
            CancelOutcome::Answered if session.requests.get(nonce).is_some() => session.cancels.get(&nonce).copied(),
            CancelOutcome::Answered | CancelOutcome::Cancelled | CancelOutcome::Granted => session.cancels.remove(&nonce),
        };
        if cancelled.outcome == CancelOutcome::Answered {
            session.requests.ask_on(nonce);
        } else if let Some(Flight { asker: Asker::Op(task, call), .. }) = self.retire(nonce) {
            // It was too large for the path, and is now known never to be executed: it is made anew, in smaller pieces.
            self.with_ops(|ops, ctx| ops.answer(ctx, task, call, &Answer::SessionEnded(Fate::NotExecuted)));
        }
        if let Some(object) = object {
            self.locks.cancelled(self.permit(), object, cancelled);
        }
    }
}
