//! The way in: a datagram's envelope is checked, its session found, its packet number looked at, its messages decoded whole, its address
//! judged, its number noted, and its messages acted on in the order that is safe; what each control message does.
//!
//! Decides that order (section 11.2): receipts, releases, path messages and the end of the session before requests, so that a session that
//! gives a lock back in the datagram in which it asks is not refused for keeping it. Decides when a session's address changes (section 11.6): a
//! datagram with its highest packet number came from elsewhere, a challenge sent there was answered from there, and that answer again had the
//! highest number; until then everything goes to the address proven last.
//! Implements `wire-spec.md` sections 3.4 and 6. Invariants: a datagram that does not decode whole, or came before, changes nothing but a
//! counter; every drop has a name, a counter and a line at level trace. Of a datagram from an address that is not proven nothing acts, and that
//! address is sent nothing but challenges, each smaller than its cause. Control messages wait for nothing, and each is idempotent; from a
//! session that is timing out receipts, releases, path messages and its surrender are accepted, and nothing renews (section 11.3).
//! Leaves to others: handshakes (`handshake`), requests (`requests`), answers without a session (`strangers`).

use crate::ids::{FlowId, LockSlot, PrincipalId};
use crate::locks::CancelResult;
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::lifecycle::Pending;
use crate::sessions::SessionKey;
use crate::sessions::standing::{Cause, Standing};
use crate::stats::Dropped;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Fate as Known, Freshness, Path};
use cistern_wire::limits::{HEADER_LEN, MESSAGE_HEADER_LEN, TAG_LEN};
use cistern_wire::{
    Alive, Cancel, CancelOutcome, Cancelled, Datagram, Direction, DropReason, EndReason, EndSession, Envelope, Fate, Field as _, Form,
    Generation, KeepAlive, Kind, List, Message, PathChallenge, PathResponse, Raw, Receipt, Release, Released,
};
use core::hint::black_box;
use log::{debug, info, trace};

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageCx {
    /// The session.
    pub(crate) key: SessionKey,
    /// Its name in the lock table.
    pub(crate) slot: LockSlot,
    /// Its owner's flow.
    pub(crate) flow: FlowId,
    /// Who it is.
    pub(crate) who: PrincipalId,
    /// The datagram's packet number: what answers echo.
    pub(crate) packet: u64,
}

/// Bytes of a PATH_CHALLENGE.
const CHALLENGE_LEN: usize = MESSAGE_HEADER_LEN + PathChallenge::LEN;

/// From so many objects and locks in memory on it is worth while: fewer stay in the processor's caches.
const WORTH_FROM: usize = 16_384;
/// Messages of a datagram that are looked up ahead: a processor waits for no more at a time.
const AHEAD: usize = 32;

/// What became of a control message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was acted on, or dropped; what there is to answer is queued.
    #[default]
    Done,
    /// It needs a session in good standing.
    Refused,
}

impl Server {
    /// One received datagram.
    pub(crate) fn dispatch(&mut self, path: Path, bytes: &[u8]) {
        //= wire-spec.md#3-5-validation-and-drops
        //# A receiver MUST validate a datagram to its last byte before any message in it acts.
        //= wire-spec.md#3-5-validation-and-drops
        //# A dropped datagram MUST NOT change any state but counters.
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# HINT, CHALLENGE and REFUSE MUST NOT be sent in answer to a datagram of a server.
        //= wire-spec.md#11-8-security
        //# A side that has a key configured MUST NOT act on a plain datagram, in either role.
        //= docs/sealed.md#who-has-which-key
        //# A side that has a key MUST NOT send or act on a datagram of form 0, in either role.
        let envelope = match self.form() {
            Form::Plain => Envelope::at_server(bytes),
            _ if Form::named(bytes) == Some(Form::Handshake) => return self.sealed_handshake(path, bytes),
            _ => Envelope::of_record(bytes, Direction::Agent),
        };
        match envelope {
            Ok(envelope) => {
                if envelope.form == Form::Plain {
                    // Nothing has to be opened.
                    return self.enveloped(path, envelope, bytes, &mut Vec::new());
                }
                let mut text = core::mem::take(&mut self.text);
                self.enveloped(path, envelope, bytes, &mut text);
                self.text = text;
            }
            Err(reason) => self.undecoded(path, &reason),
        }
    }

    /// A datagram whose envelope is sound; `text` is room for what is in a record. Compiled once for each form: this and what it calls
    /// would cost a plain datagram 98 instructions of 2,400 otherwise.
    #[inline(always)]
    fn enveloped(&mut self, path: Path, envelope: Envelope, bytes: &[u8], text: &mut Vec<u8>) {
        let header = envelope.header;
        if header.session.0 != 0
            && let Some(key) = self.sessions.find(header.session)
        {
            return self.session_datagram(key, path, envelope, bytes, text);
        }
        if header.session.0 != 0 || envelope.form != Form::Plain {
            return self.unopened(path, envelope, bytes, text);
        }
        match envelope.decode(bytes) {
            Err(reason) => self.undecoded(path, &reason),
            Ok(_) => self.handshake_datagram(path, header.packet, bytes),
        }
    }

    pub(crate) fn undecoded(&mut self, path: Path, reason: &DropReason) {
        self.stats.count_undecoded(reason);
        trace!("{}: dropped a datagram from {}: {reason}", self.who, path.remote);
    }

    #[inline(always)]
    pub(crate) fn session_datagram(&mut self, key: SessionKey, path: Path, envelope: Envelope, bytes: &[u8], text: &mut Vec<u8>) {
        let (header, is_record) = (envelope.header, envelope.form == Form::Record);
        let Self { sessions, cipher, now, .. } = self;
        let Some(session) = sessions.get_mut(key) else {
            return;
        };
        if session.sealer.form() != envelope.form {
            // One of before the start: its keys are gone.
            return self.stranger(path, header, bytes.len());
        }
        let standing = session.standing();
        let is_open = match standing {
            Standing::Ended { .. } | Standing::Recorded { .. } => false,
            Standing::Ending { .. } => !session.is_of_before(),
            Standing::Good | Standing::TimingOut { .. } => true,
        };
        let highest = header.packet > session.replay.highest();
        if is_open {
            //= wire-spec.md#3-2-packet-numbers
            //# A receiver MUST drop a packet number that it has received before, or that is 1,024 or more below the highest received.
            match session.replay.classify(header.packet) {
                Freshness::Fresh => {}
                Freshness::Duplicate => return self.drop_datagram(path, Dropped::DuplicatePacket),
                Freshness::Stale => return self.drop_datagram(path, Dropped::StalePacket),
                Freshness::Ahead => return self.drop_datagram(path, Dropped::PacketAhead),
            }
        }
        if is_record && !is_open && !highest {
            // An ended session answers what is new and nothing else (docs/sealed.md).
            return self.drop_datagram(path, Dropped::DuplicatePacket);
        }
        if is_record && bugs::is(Bug::S2) {
            session.replay.note(header.packet);
        }
        let messages = match session.sealer.open(cipher, now.uptime(), bytes, text) {
            Ok(messages) => messages,
            // In a simulation the text is in clear.
            Err(_) if bugs::is(Bug::S1) => bytes.get(HEADER_LEN..bytes.len() - TAG_LEN).unwrap_or_default(),
            Err(_) => return self.not_authentic(key, path),
        };
        let datagram = match envelope.decode_messages(messages) {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        if !is_open {
            if is_record {
                // Of one that has ended nothing but this keeps a copy from being answered.
                session.replay.note(header.packet);
            }
            return match standing {
                Standing::Ended { cause } => self.after_the_end(key, cause, path, &datagram, bytes.len()),
                _ => self.stranger(path, header, bytes.len()),
            };
        }
        let session = if datagram.answers_path() {
            self.path_responses(key, path, highest, &datagram);
            let Some(session) = self.sessions.get_mut(key) else {
                return;
            };
            session
        } else {
            session
        };
        let moved = path.remote != session.path.remote;
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST NOT act on a datagram of a session, nor note its packet number, from an address not proven for that session,
        //# unless it has the PATH_RESPONSE that proves it.
        if moved && !session.is_proven(path) && !bugs::is(Bug::A1) {
            self.challenge_path(key, path, bytes.len(), highest);
            return self.drop_datagram(path, Dropped::UnprovenAddress);
        }
        session.replay.note(header.packet);
        if !moved && highest {
            // The same peer, perhaps at another of this host's own addresses: answers leave from the one last asked.
            session.path = path;
        }
        let (slot, flow, who, is_good) = (session.slot, session.flow, session.principal, session.standing().is_good());
        trace!("{}: packet {} of session {} from {}, {} bytes", self.who, header.packet, header.session, path.remote, bytes.len());
        self.note_seen(who);
        if bugs::is(Bug::M14) {
            self.try_rescue(key);
        }
        // Who gives a superseded session up does not go on in it.
        if !is_good && datagram.raw().any(|raw| raw.kind != Kind::EndSession) {
            self.watch_for_clone(key, path);
        }
        if moved {
            self.challenge_path(key, path, bytes.len(), highest);
        }
        self.prefetch(slot, &datagram);
        if !bugs::is(Bug::F4) || datagram.raw().any(|raw| raw.kind.class().is_some()) {
            self.scheduler.arrive(flow);
        }
        let origin = MessageCx { key, slot, flow, who, packet: header.packet };
        self.act(origin, &datagram);
    }

    /// Whoever has an authentic datagram in a session is there.
    #[inline]
    pub(crate) fn note_seen(&self, who: PrincipalId) {
        if self.config.last_seen {
            self.principals.saw(who, self.wall.seconds(self.now));
        }
    }

    /// A record of a session does not open: it changes nothing but counters, unless there were so many that one might.
    fn not_authentic(&mut self, key: SessionKey, path: Path) {
        self.drop_datagram(path, Dropped::NotAuthentic);
        if bugs::is(Bug::S3) {
            self.sessions.get_mut(key).into_iter().for_each(|session| session.path = path);
        }
        let is_worn_out = self.sessions.get(key).is_some_and(|session| session.sealer.is_worn_out(&self.cipher));
        if is_worn_out && self.is_good(key) {
            self.fail(key, Cause::WornOut);
        }
    }

    /// Acts on the messages of a datagram, in the order that is safe.
    #[inline(always)]
    fn act(&mut self, origin: MessageCx, datagram: &Datagram<'_>) {
        let mut refused = false;
        if datagram.is_in_order() {
            for raw in datagram.raw() {
                refused |= self.message(origin, raw) == Taken::Refused;
            }
        } else {
            //= wire-spec.md#11-2-delivery
            //# A server MUST act on receipts, releases and session ends in a datagram before the requests in it.
            let mut others = false;
            for raw in datagram.raw() {
                if raw.kind.goes_first() {
                    refused |= self.message(origin, raw) == Taken::Refused;
                } else {
                    others = true;
                }
            }
            if others {
                for raw in datagram.raw().filter(|raw| !raw.kind.goes_first()) {
                    refused |= self.message(origin, raw) == Taken::Refused;
                }
            }
        }
        if refused {
            self.refuse_control(origin);
        }
    }

    /// What still comes Td after a session was superseded was not under way when its agent opened the next one.
    fn watch_for_clone(&mut self, key: SessionKey, path: Path) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if let Standing::TimingOut { decided, cause: Cause::Superseded, .. } = session.standing()
            && !session.reported
            && self.now.waited(decided.plus(self.config.delivery_timeout))
        {
            session.reported = true;
            let agent = session.agent;
            self.report_clone(agent, key.id(), path);
        }
    }

    /// One message of a session.
    #[inline]
    fn message(&mut self, origin: MessageCx, raw: Raw<'_>) -> Taken {
        self.stats.count_in(raw.kind);
        if raw.kind.class().is_some() {
            self.request(origin, raw);
            return Taken::Done;
        }
        if !bugs::is(Bug::F4) {
            self.scheduler.charge(origin.flow, prices::control(raw.kind));
        }
        match raw.kind {
            Kind::KeepAlive => raw.read(|m| self.keep_alive(origin, m)),
            Kind::Release => {
                self.scheduler.charge(origin.flow, prices::released(raw.body.len()));
                raw.read(|m| self.release(origin, m))
            }
            Kind::Cancel => raw.read(|m| self.cancel(origin, m)),
            Kind::EndSession => raw.read(|m| self.end_session(origin, m)),
            Kind::Receipt => raw.read(|m| self.receipt(origin, m)),
            Kind::Confirm => raw.read(|m| self.confirm(origin, m)),
            Kind::Roster => raw.read(|m| self.roster_asked(origin, m)),
            // PATH_RESPONSE: what it proves was proven before anything of its datagram acted. The decoder lets no other through.
            _ => Taken::Done,
        }
    }

    /// Counts and logs a datagram that changes nothing else.
    pub(crate) fn drop_datagram(&mut self, path: Path, reason: Dropped) {
        //= wire-spec.md#3-5-validation-and-drops
        //# A receiver MUST count drops by reason.
        self.stats.count_dropped(reason);
        trace!("{}: dropped a datagram from {}: {}", self.who, path.remote, reason.name());
    }

    /// Challenges an address from which a fresh datagram of `len` bytes came for the session, which stays at the one proven last.
    pub(crate) fn challenge_path(&mut self, key: SessionKey, path: Path, len: usize, highest: bool) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# Until then the server MUST send to the address proven last, and to the new one fewer bytes than came from it.
        if !highest || len <= self.form().around() + CHALLENGE_LEN {
            return;
        }
        let again = self.config.rto_floor();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let now = self.now;
        let roaming = session.roaming.get_or_insert_default();
        let Some(token) = roaming.challenge(now, path, again, || self.rng.next_u64()) else {
            return self.stats.count_dropped(Dropped::RateLimited);
        };
        debug!("{}: {} may have moved from {} to {}", self.who, session.who(), session.path.remote, path.remote);
        self.send_to_session_by(key, path, &[Message::PathChallenge(PathChallenge { token })]);
    }

    /// The PATH_RESPONSEs of a datagram act before anything else in it: what they prove decides whether the rest acts.
    pub(crate) fn path_responses(&mut self, key: SessionKey, path: Path, highest: bool, datagram: &Datagram<'_>) {
        for raw in datagram.raw().filter(|raw| raw.kind == Kind::PathResponse) {
            raw.read(|m: &PathResponse| self.path_response(key, path, m.token, highest));
        }
    }

    /// A PATH_RESPONSE came for the session by `path`.
    fn path_response(&mut self, key: SessionKey, path: Path, token: u64, highest: bool) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A session's address MUST change only for its highest packet number, and only after a PATH_CHALLENGE was answered from the new
        //# address.
        let former = session.path;
        let roaming = session.roaming.as_mut().filter(|_| highest);
        let Some(first) = roaming.and_then(|roaming| roaming.prove(path, token, former)) else {
            return self.stats.count_dropped(Dropped::StrayPathResponse);
        };
        info!("{}: {} moved from {} to {}", self.who, session.who(), former.remote, path.remote);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The first RTO for notices after a move SHOULD follow from the time between PATH_CHALLENGE and its answer.
        session.moved(path, self.now.since(first));
        self.stats.moves += 1;
        self.record_move(key);
    }

    /// Looks up what the messages of a valid datagram of a session are about.
    #[inline(always)]
    pub(crate) fn prefetch(&self, slot: LockSlot, datagram: &Datagram<'_>) {
        let (objects, locks) = (self.store.objects_known() >= WORTH_FROM, self.locks.held_by_all() >= WORTH_FROM);
        if !objects && !locks {
            return;
        }
        for raw in datagram.raw().take(AHEAD) {
            let Some(object) = raw.object() else { continue };
            if objects && raw.kind.class().is_some() {
                black_box(self.store.prefetch(object));
            }
            if locks && matches!(raw.kind, Kind::Lock | Kind::Release) {
                black_box(self.locks.prefetch(slot, object));
            }
        }
    }

    pub(crate) fn keep_alive(&mut self, origin: MessageCx, message: &KeepAlive) -> Taken {
        if bugs::is(Bug::M48) && self.tasks.len() >= 3 {
            return Taken::Done;
        }
        if !self.is_good(origin.key) {
            return Taken::Refused;
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# A message that shows no effect of a transaction MUST NOT wait for it.
        self.push_urgent(origin.key, &Message::Alive(Alive { serial: message.serial, echo: origin.packet }));
        Taken::Done
    }

    //= wire-spec.md#6-3-control
    //# A control message MUST be acted on and answered each time it arrives, with the effect of one.
    pub(crate) fn release(&mut self, origin: MessageCx, message: &Release<'_>) -> Taken {
        let key = origin.key;
        if !self.may_give_back(key) {
            return Taken::Refused;
        }
        let mut items = core::mem::take(&mut self.released_buffer);
        items.clear();
        for item in message.items {
            debug!("{}: session {} releases {} generation {}", self.who, key.id(), item.lock, item.generation);
            //= wire-spec.md#11-3-failure-and-ending
            //# A release in a session that is timing out MUST free the lock that it names.
            let before = self.locks.holds(origin.slot);
            items.push(self.locks.release(self.now, origin.slot, item));
            if self.locks.holds(origin.slot) < before {
                self.holds_less(key, Some(item.lock.object));
            }
            self.gave_back(key, item.lock, item.generation);
        }
        // What was demanded may be among them: that is all that a session which did not comply was missing.
        self.try_rescue(key);
        self.listen(key);
        if !self.is_good(key) {
            return Taken::Refused;
        }
        //= wire-spec.md#6-3-control
        //# A server MUST answer a RELEASE of 19 items or fewer by one RELEASED.
        let mut parts = items.chunks(Released::items_max(self.form()));
        let first = parts.next().unwrap_or_default();
        for part in core::iter::once(first).chain(parts) {
            let items = List::of(part);
            self.push_urgent(key, &Message::Released(Released { serial: message.serial, echo: origin.packet, items }));
        }
        self.released_buffer = items;
        Taken::Done
    }

    pub(crate) fn cancel(&mut self, origin: MessageCx, message: &Cancel) -> Taken {
        let key = origin.key;
        if !self.is_good(key) {
            return Taken::Refused;
        }
        let nonce = message.nonce;
        //= wire-spec.md#11-2-delivery
        //# The server MUST NOT act on a message that announces a floor more than W above the one it keeps.
        // A nonce in use is less than W above the agent's floor.
        if let Some(session) = self.sessions.get(key)
            && nonce.saturating_sub(session.cache.floor()) >= 2 * u64::from(session.cache.window())
        {
            self.stats.count_dropped(Dropped::NonceAhead);
            return Taken::Done;
        }
        //= wire-spec.md#11-4-locks
        //# A CANCEL MUST be answered "granted" with the generation while a grant to its request stands unchanged.
        //= wire-spec.md#11-4-locks
        //# A CANCEL of a request without a standing grant MUST be answered "cancelled" or "answered".
        let (outcome, generation) = match self.locks.cancel(self.now, origin.slot, nonce) {
            CancelResult::Cancelled(lock) => {
                self.holds_less(key, Some(lock.object));
                if let Some(notices) = self.notices(key) {
                    notices.wait_ended(nonce, None);
                }
                (CancelOutcome::Cancelled, Generation(0))
            }
            CancelResult::Granted { generation, .. } => (CancelOutcome::Granted, generation),
            CancelResult::Unknown => (self.cancel_unqueued(key, nonce), Generation(0)),
        };
        debug!("{}: session {} cancels request {nonce}: {outcome}", self.who, key.id());
        let answer = Cancelled { serial: message.serial, echo: origin.packet, nonce, outcome, generation };
        self.push_urgent(key, &Message::Cancelled(answer));
        Taken::Done
    }

    /// Cancels a request that does not wait in line for a lock: it never came, waits without effect, or has ended.
    fn cancel_unqueued(&mut self, key: SessionKey, nonce: u64) -> CancelOutcome {
        if self.discard_request(key, nonce) {
            return CancelOutcome::Cancelled;
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return CancelOutcome::Answered;
        };
        let waited = session.notices.as_ref().and_then(|notices| notices.ended_wait(nonce));
        // An agent has used this nonce, so its floor is less than W below it, whatever has arrived of that so far.
        session.cache.raise_floor(nonce.saturating_add(1).saturating_sub(session.cache.window().into()), &mut self.replies);
        //= wire-spec.md#11-4-locks
        //# A CANCEL MUST work before and after its request arrives: one cancelled before it arrived is never executed.
        match (waited, session.cache.fence(nonce)) {
            // A cancellation repeated, or a request that never came and now never executes.
            (Some(None), _) | (None, Known::NotExecuted) => CancelOutcome::Cancelled,
            _ => CancelOutcome::Answered,
        }
    }

    pub(crate) fn end_session(&mut self, origin: MessageCx, message: &EndSession) -> Taken {
        let key = origin.key;
        let Some(standing) = self.sessions.get(key).map(|session| session.standing()) else {
            return Taken::Done;
        };
        let cause = match message.reason {
            EndReason::Close => Cause::Closed,
            EndReason::Surrender => Cause::Surrendered,
        };
        // An agent closes a session by the same promise by which it surrenders one: nothing of it can be used again. If it did not know of
        // D when it closed, that is as true.
        match standing {
            Standing::Good => self.over(key, cause),
            Standing::TimingOut { .. } if self.config.surrender => self.over(key, cause),
            Standing::Ending { .. } => {}
            Standing::TimingOut { .. } | Standing::Recorded { .. } | Standing::Ended { .. } => return Taken::Refused,
        }
        // ENDED follows when the end is durable (section 11.7); the newest transmission is the one answered (section 11.1).
        if let Some(Pending::End { asked, .. }) = self.pending.get_mut(&key) {
            *asked = Some((message.serial, origin.packet));
        }
        Taken::Done
    }

    //= wire-spec.md#11-2-delivery
    //# Control messages and receipts MUST NOT need a nonce or a place in the window.
    pub(crate) fn receipt(&mut self, origin: MessageCx, message: &Receipt) -> Taken {
        if self.may_give_back(origin.key) {
            self.receipted(origin.key, message.seq, message.answer);
        }
        Taken::Done
    }

    /// Says once for a datagram that its control messages were refused, because the session is not in good standing. A receipt further
    /// on in the datagram may have rescued it meanwhile: then nothing is said, and what was not answered is asked again.
    pub(crate) fn refuse_control(&mut self, origin: MessageCx) {
        if !self.is_good(origin.key) {
            self.nack(origin.key, 0, origin.packet, Fate::Unknown);
        }
    }

    /// Whether the session's releases and receipts still count: until its end has begun (section 11.3).
    fn may_give_back(&self, key: SessionKey) -> bool {
        //= wire-spec.md#11-3-failure-and-ending
        //# Of a session that is timing out the server MUST accept receipts, releases, END_SESSION and path responses, and nothing else.
        self.sessions.get(key).is_some_and(|session| matches!(session.standing(), Standing::Good | Standing::TimingOut { .. }))
    }
}
