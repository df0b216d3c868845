//! The way in: a datagram's session is found, its number looked at, its messages decoded whole, its number noted, and its messages act in the
//! order that is safe.
//!
//! A NACK acts before everything else of its datagram, a renewal before what came with it. Which answers renew is the arm of each kind here; all
//! go through `renew`, from the send time of the very transmission echoed, in this session. What does not decode whole, came before, or
//! belongs to another session changes nothing but a counter (`wire-spec.md` 3.2, 3.5, 7). A notice renews nothing. Its receipt is decided anew
//! each time it comes, by how things stand then, and none goes without one, except under a flood: then it comes again (6.4).

use crate::agent::Agent;
use crate::call::{Answer, Origin};
use crate::lease::Renewal;
use crate::stats::Dropped;
use crate::transport::InFlight;
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_link::bugs::{self, Bug};
use cistern_seal::Sealer;
use cistern_wire::{
    Ack, CancelOutcome, Cancelled, Demand, Direction, DropReason, Envelope, Fate, Form, Grant, Header, LockClass, Message, Messages,
    Pending, Queued, ReceiptAnswer, Released, Reply, RequestResult, WaitOver, WatchEvent,
};
use log::{debug, trace};

/// Datagrams, and the answers in them.
impl Agent {
    pub(super) fn incoming(&mut self, path: Path, bytes: &[u8]) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent MUST drop every datagram from an address that is not its server's.
        if !self.servers.contains(&path.remote) && !bugs::is(Bug::A2) {
            return self.dropped(Dropped::ForeignAddress);
        }
        //= wire-spec.md#11-8-security
        //# A side that has a key configured MUST NOT act on a plain datagram, in either role.
        let envelope = match &self.keys {
            None => Envelope::at_agent(bytes),
            Some(_) if Form::named(bytes) == Some(Form::Handshake) => return self.sealed_handshake(path, bytes),
            Some(_) => Envelope::of_record(bytes, Direction::Server),
        };
        match envelope {
            Ok(envelope) => {
                let mut text = core::mem::take(&mut self.text);
                self.enveloped(path, envelope, bytes, &mut text);
                self.text = text;
            }
            Err(reason) => self.undecoded(path, &reason),
        }
    }

    /// A datagram whose envelope is sound; `text` is room for what is in a record.
    fn enveloped(&mut self, path: Path, envelope: Envelope, bytes: &[u8], text: &mut Vec<u8>) {
        let header = envelope.header;
        let present = self.sessions.channel().filter(|channel| channel.session() == header.session && header.session.0 != 0);
        let judged = present.map(|channel| channel.judge(header.packet));
        let decoded = match (envelope.form, judged) {
            (Form::Plain, _) => envelope.decode(bytes),
            (_, Some(Err(reason))) => return self.dropped(reason),
            _ => match self.open_record(envelope, bytes, text) {
                Some(messages) => envelope.decode_messages(messages),
                None => return,
            },
        };
        let datagram = match decoded {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        // Its upkeep waits until the socket is empty, once for all of a turn.
        (self.dirty, self.output_due) = (true, true);
        //= wire-spec.md#11-1-lease
        //# An answer in a datagram of another session, or from another server incarnation, MUST NOT renew.
        match judged {
            Some(judged) => self.of_session(path, header, judged, datagram.messages()),
            None if header.session.0 == 0 => self.handshake(path, datagram.messages()),
            None if self.handshake.as_ref().is_some_and(|opening| opening.offers(header.session)) => {
                self.of_offer(path, header, datagram.messages());
            }
            None => match self.sessions.channel().filter(|_| bugs::is(Bug::M8)) {
                Some(channel) => {
                    let packet = channel.unused_packet();
                    self.of_session(path, Header { packet, ..header }, Ok(()), datagram.messages());
                }
                None => self.of_former(header.session, datagram.messages()),
            },
        }
    }

    pub(super) fn undecoded(&mut self, path: Path, reason: &DropReason) {
        trace!("{}: dropped a datagram from {}: {reason}", self.who, path.remote);
        self.stats.drops.undecoded(reason);
    }

    /// Counts what changes nothing else.
    pub(super) fn dropped(&mut self, reason: Dropped) {
        trace!("{}: dropped: {}", self.who, reason.name());
        self.stats.drops.count(reason);
    }

    fn handshake(&mut self, path: Path, messages: Messages<'_>) {
        for message in messages {
            match message {
                Message::Challenge(challenge) => self.challenged(path, &challenge),
                Message::Welcome(welcome) => self.welcomed(path, &welcome, Sealer::Plain),
                Message::Refuse(refuse) => self.refused(&refuse),
                // The decoder lets nothing else through in session 0.
                _ => {}
            }
        }
    }

    /// A datagram of the present session; `judged`: what its packet number is to the replay window.
    fn of_session(&mut self, path: Path, header: Header, judged: Result<(), Dropped>, messages: Messages<'_>) {
        let mut all = messages;
        if let (Some(Message::Hint(hint)), None) = (all.next(), all.next()) {
            // Its sender does not know the session, so it cannot know its numbers.
            if !self.hinted(path, hint.echo) {
                self.dropped(Dropped::StrayHint);
            }
            return;
        }
        if let Err(reason) = judged {
            return self.dropped(reason);
        }
        let Some(channel) = self.sessions.channel_mut() else { return };
        channel.note(header.packet);
        self.server_is_at(path);
        //= wire-spec.md#11-2-delivery
        //# An agent MUST act on the NACKs in a datagram before anything else in it.
        //= wire-spec.md#7-the-table-of-answers
        //# An agent that takes a NACK MUST believe it for the whole session, whichever message it answers.
        if self.take_nacks(messages) {
            return;
        }
        for message in messages {
            self.message(message);
            self.settle();
            // Only now: what was disowned while a request was out counts for the answer to that request, too.
            self.note_horizon();
        }
    }

    /// What goes to the server goes to the address from which this came, if it is one of its own.
    pub(super) fn server_is_at(&mut self, path: Path) {
        if let (Some(channel), Some(address)) = (self.sessions.channel_mut(), self.servers.iter().position(|server| *server == path.remote))
        {
            channel.set_address(address, path.remote);
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
            Message::Opened(opened) => self.opened(&opened),
            Message::Ended(ended) => {
                if self.sessions.channel().is_some_and(|channel| channel.was_sent(ended.echo)) {
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
                if let Some(channel) = self.sessions.channel_mut() {
                    channel.challenged(self.now, challenge.token);
                }
            }
            // A NACK that echoes nothing of this agent's, or a hint among other messages.
            Message::Nack(_) => self.dropped(Dropped::UnknownEcho),
            Message::Hint(_) => self.dropped(Dropped::StrayHint),
            // It has named no session that goes on.
            Message::Known(_) => self.dropped(Dropped::StrayHandshake),
            Message::RosterPart(part) => self.roster_part(&part),
            // It has not asked.
            Message::Joined(_) => self.dropped(Dropped::StrayHandshake),
            // The decoder lets no other kind through.
            other => debug_assert!(false, "{} came from a server in a session", other.kind().name()),
        }
    }

    /// Takes an answer that renews. False if it answers nothing that was ever sent in this session: then it is no answer at all.
    ///
    /// `prompt`: it was made on receipt of what it echoes, so it measures the round trip.
    pub(super) fn renew(&mut self, echo: u64, by: Renewal, prompt: bool) -> bool {
        let Some(channel) = self.sessions.channel_mut() else { return false };
        let (id, tau) = (channel.session(), channel.tau());
        let sent = match channel.answered(self.now, echo, prompt) {
            Ok(Some(sent)) => sent,
            Ok(None) => return true,
            Err(reason) => {
                self.dropped(reason);
                return false;
            }
        };
        if self.handshake.as_ref().is_some_and(|opening| sent.waited(opening.began()) && !opening.is_confirming()) {
            // What is asked by it is answered: the server holds the session. Once CONFIRM is out, its answer is waited for.
            self.end_handshake();
        }
        // Both are what the exclusion of others rests on; to go on without them would be worse than to stop.
        assert!(!self.sessions.is_former(id), "a session that is over renews nothing");
        if by == Renewal::Opportunistic && !self.config.opportunistic {
            // To believe in less than the server respects is always safe.
            //= wire-spec.md#11-1-lease
            //# An agent MAY renew on answers to keep-alives alone.
            return true;
        }
        let moved = self.lease.renew(sent, by);
        let until = self.lease.session_until();
        assert!(until.is_none_or(|until| self.now.plus(tau).waited(until)), "a lease ends at most τ after a transmission");
        if moved && self.reclaim.is_none() {
            if self.holders_told.is_warned() {
                // Before anything is granted again: what comes to be held now was never uncertain.
                self.tell_holders();
            }
            self.locks.renewed(self.permit());
            self.settle();
        }
        true
    }

    fn acked(&mut self, ack: &Ack<'_>) {
        let prompt = self.sessions.channel().is_some_and(|channel| channel.is_prompt(ack.nonce));
        if !self.renew(ack.echo, Renewal::Opportunistic, prompt) {
            return;
        }
        self.arrived(ack.nonce);
        if let Some(flight) = self.retire(ack.nonce) {
            self.note_ephemerals(&flight, &ack.reply);
            self.answered(flight.origin, &ack.reply);
        }
    }

    fn arrived(&mut self, nonce: u64) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.reached(nonce);
        }
    }

    /// The request is answered; gives it if it was still awaited.
    fn retire(&mut self, nonce: u64) -> Option<InFlight> {
        self.sessions.channel_mut()?.retire(self.now, &mut self.timers, nonce)
    }

    /// Keeps account of the files that go with the session, for which its lease is renewed. Of one that somebody else takes away the server
    /// tells.
    fn note_ephemerals(&mut self, flight: &InFlight, reply: &Reply<'_>) {
        if let Some(present) = self.sessions.present() {
            self.sessions.note_ephemerals(present, reply, |at| flight.makes_ephemeral(at));
        }
    }

    fn answered(&mut self, origin: Origin, reply: &Reply<'_>) {
        match origin {
            Origin::Op(task, call) => self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, &Answer::Reply(*reply))),
            Origin::Lock(object) => self.locks.answered(self.permit(), object, reply),
            Origin::Reclaim(batch) => self.reclaimed(batch, reply),
            Origin::Complete(from) => self.completed(from, reply),
            Origin::Watch(object) => self.with_watches(|watches| watches.answered(object, reply)),
            Origin::Unwatch(object) => self.with_watches(|watches| watches.unwatched(object)),
            Origin::Outcome(session, nonce) => self.outcome_told(session, nonce, reply),
        }
    }

    fn pending(&mut self, pending: Pending) {
        if !self.renew(pending.echo, Renewal::Opportunistic, true) {
            return;
        }
        if let Some(channel) = self.sessions.channel_mut() {
            channel.pending(&mut self.timers, &mut self.rng, pending.nonce);
        }
    }

    fn queued(&mut self, queued: &Queued<'_>) {
        if !self.renew(queued.echo, Renewal::Opportunistic, true) {
            return;
        }
        self.arrived(queued.nonce);
        if let Some(InFlight { origin: Origin::Lock(object), .. }) = self.retire(queued.nonce) {
            self.locks.queued(self.permit(), object);
        }
    }

    /// The outcome of a request executed before the failure: it renews nothing, and nothing of it is installed.
    fn resulted(&mut self, result: &RequestResult<'_>) {
        let origin = self.sessions.channel().and_then(|channel| channel.origin(result.nonce));
        // Of a request for a lock it says nothing that counts: NACK ends the session, or the server is asked again once it is in good
        // standing.
        if matches!(origin, Some(Origin::Op(..)))
            && let Some(flight) = self.retire(result.nonce)
            && let Origin::Op(task, call) = flight.origin
        {
            self.note_ephemerals(&flight, &result.reply);
            self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, &Answer::Result(Some(result.reply))));
        }
    }

    pub(super) fn control_answered(&mut self, serial: u64) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.control_answered(&mut self.timers, serial);
        }
    }

    fn released(&mut self, released: &Released<'_>) {
        if !self.renew(released.echo, Renewal::Opportunistic, true) {
            return;
        }
        if let Some(channel) = self.sessions.channel_mut() {
            channel.released(&mut self.timers, released.serial, released.items);
        }
        for item in released.items {
            match item.lock.class {
                LockClass::Cache => self.cache.released(&item),
                LockClass::Advisory => self.locks.released(self.permit(), &item),
            }
        }
    }

    fn cancelled(&mut self, cancelled: &Cancelled) {
        if !self.renew(cancelled.echo, Renewal::Opportunistic, true) {
            return;
        }
        self.control_answered(cancelled.serial);
        let object = self.sessions.channel_mut().and_then(|channel| channel.cancelled(cancelled));
        if cancelled.outcome != CancelOutcome::Answered
            && let Some(InFlight { origin: Origin::Op(task, call), .. }) = self.retire(cancelled.nonce)
        {
            // It was too large for the path, and is now known never to be executed: it is made anew, in smaller pieces.
            self.with_tasks(|tasks, ctx| tasks.answer(ctx, task, call, &Answer::SessionEnded(Fate::NotExecuted)));
        }
        if let Some(object) = object {
            self.locks.cancelled(self.permit(), object, cancelled);
        }
    }
}

/// Notices.
impl Agent {
    pub(super) fn demanded(&mut self, demand: &Demand) {
        if bugs::is(Bug::M7) {
            self.lease.renew(self.now, Renewal::Opportunistic);
        }
        if self.can_receipt(demand.seq) {
            if self.is_new_notice(demand.seq) {
                self.stats.demands += 1;
            }
            //= wire-spec.md#6-4-notices
            //# An agent MUST receipt a notice each time it arrives, by what its application says then.
            let answer = match demand.lock.class {
                LockClass::Cache => self.cache.demanded(demand.lock.object, demand.generation, demand.keep),
                LockClass::Advisory => self.locks.demanded(self.permit(), demand),
            };
            debug!("{}: {} generation {} is demanded: {answer}", self.who, demand.lock, demand.generation);
            self.receipt(demand.seq, answer);
        }
    }

    pub(super) fn granted(&mut self, grant: &Grant) {
        if self.can_receipt(grant.seq) {
            self.outcome_of(grant.nonce);
            let answer = match grant.lock.class {
                // No request for one is queued.
                LockClass::Cache => ReceiptAnswer::NotHeld,
                LockClass::Advisory => self.locks.granted(self.permit(), grant),
            };
            self.receipt(grant.seq, answer);
        }
    }

    pub(super) fn wait_over(&mut self, over: &WaitOver) {
        if self.can_receipt(over.seq) {
            self.outcome_of(over.nonce);
            self.locks.wait_over(self.permit(), over);
            self.receipt(over.seq, ReceiptAnswer::Received);
        }
    }

    pub(super) fn probed(&mut self, seq: u64) {
        if self.can_receipt(seq) {
            self.receipt(seq, ReceiptAnswer::Received);
        }
    }

    pub(super) fn watch_event(&mut self, event: &WatchEvent) {
        if self.can_receipt(event.seq) {
            if event.gone {
                // It may be an ephemeral file of this agent's that somebody else has taken away.
                self.sessions.ephemeral_gone(event.object);
            }
            self.with_watches(|watches| watches.on_event(event.object, event.version, event.gone));
            if event.gone {
                self.locks.object_gone(self.permit(), event.object);
            }
            self.receipt(event.seq, ReceiptAnswer::Received);
        }
    }

    /// A notice about a request says that it was answered QUEUED, whether that has arrived or not.
    fn outcome_of(&mut self, nonce: u64) {
        //= wire-spec.md#6-4-notices
        //# An agent MUST take a GRANT or a WAIT_OVER that overtakes QUEUED as one that comes after it.
        if let Some(channel) = self.sessions.channel_mut() {
            channel.reached(nonce);
            channel.forget(&mut self.timers, nonce);
        }
    }

    fn can_receipt(&mut self, seq: u64) -> bool {
        let Some(channel) = self.sessions.channel() else { return false };
        let room = channel.can_receipt(seq);
        if !room {
            self.dropped(Dropped::Flood);
        }
        room
    }

    fn is_new_notice(&mut self, seq: u64) -> bool {
        self.sessions.channel_mut().is_some_and(|channel| channel.is_new_notice(seq))
    }

    fn receipt(&mut self, seq: u64, answer: ReceiptAnswer) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.receipt(seq, answer);
        }
    }
}
