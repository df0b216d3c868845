//! The handshake within a session: CONFIRM, OPENED, KNOWN.
//!
//! The one place in which a handshake acts. What WELCOME offered is half-open until a datagram of it begins with CONFIRM: then the session is
//! made, the agent's others end or may be claimed, and the rest of the datagram acts like any. If its agent continues a session that is in
//! good standing, nothing is done, and KNOWN says so. Place in the walk: under `receive`, for a session that is not in the table.
//! Implements `wire-spec.md` sections 6.1 and 11.6. Invariants: nothing is sent in a session before its record is durable (section 11.7), for
//! it has no place in the line before; OPENED echoes the newest CONFIRM received.
//! Leaves to others: who is offered a session (`handshake`), the end of former sessions (`lifecycle`).

use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::server::lifecycle::Pending;
use crate::server::receive::{MessageCx, Taken};
use crate::server::warnings::Reason;
use crate::sessions::SessionKey;
use crate::sessions::half_open::HalfOpen;
use crate::sessions::session::{Opening, Session};
use crate::sessions::standing::{Cause, Standing};
use crate::stats::Dropped;
use crate::store;
use crate::transport::Sealing;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Freshness, Path, Question};
use cistern_seal::Sealer;
use cistern_wire::limits::{DATAGRAM_MIN, FORMER_MAX, MESSAGE_HEADER_LEN};
use cistern_wire::{
    AgentId, Claim, Confirm, Envelope, Field as _, Form, FormerClaim, FormerFate, Known, List, Message, Opened, SessionFate, SessionId,
    StoreId,
};
use log::{debug, info, warn};

impl Server {
    /// A datagram of a session that is not in the table: it may be half-open.
    pub(crate) fn unopened(&mut self, path: Path, envelope: Envelope, bytes: &[u8], text: &mut Vec<u8>) {
        let header = envelope.header;
        let Self { half_open, cipher, now, .. } = self;
        let mut plain = Sealer::Plain;
        let sealer = half_open.find(*now, header.session).map_or(&mut plain, |half| &mut half.opening.sealer);
        if sealer.form() != envelope.form {
            return self.stranger(path, header, bytes.len());
        }
        //= docs/sealed.md#the-handshake
        //# A server MUST NOT execute a request before it came in a record.
        let Ok(messages) = sealer.open(cipher, now.uptime(), bytes, text) else {
            return self.drop_datagram(path, Dropped::NotAuthentic);
        };
        let datagram = match envelope.decode_messages(messages) {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        let Some(half) = self.half_open.find(self.now, header.session) else {
            return self.stranger(path, header, bytes.len());
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST NOT act on a datagram of a session, nor note its packet number, from an address not proven for that session,
        //# unless it has the PATH_RESPONSE that proves it.
        if half.opening.path.remote != path.remote {
            return self.drop_datagram(path, Dropped::UnprovenAddress);
        }
        match half.opening.received.classify(header.packet) {
            Freshness::Fresh => {}
            Freshness::Duplicate => return self.drop_datagram(path, Dropped::DuplicatePacket),
            Freshness::Stale => return self.drop_datagram(path, Dropped::StalePacket),
            Freshness::Ahead => return self.drop_datagram(path, Dropped::PacketAhead),
        }
        //= docs/sealed.md#the-handshake
        //# The first record of an agent MUST begin with CONFIRM; a half-open session takes no other, unless it was opened [to
        //# join](#joining-rosters).
        if let Some(joiner) = half.sealed.as_ref().and_then(|sealed| sealed.joiner) {
            return self.joining_record(path, (header.session, header.packet), joiner, &datagram);
        }
        let confirm = match datagram.messages().next() {
            Some(Message::Confirm(confirm)) if confirm.former.len() > FORMER_MAX => return self.drop_datagram(path, Dropped::BadHello),
            Some(Message::Confirm(confirm)) => confirm,
            _ if bugs::is(Bug::H6) => Confirm { serial: 0, former: List::of(&[]) },
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A server MUST NOT act on a datagram of a half-open session that does not begin with CONFIRM.
            _ => return self.drop_datagram(path, Dropped::NotOpen),
        };
        let (agent, incarnation, owner, refused) = (half.opening.agent, half.opening.incarnation, half.opening.owner(), half.refused);
        if let Some(session) = self.continued(agent, incarnation, &confirm).filter(|_| !(refused && bugs::is(Bug::H3))) {
            return self.known(header.session, header.packet, confirm.serial, session);
        }
        // What its agent has heard since counts: it is not opened any more.
        if refused && !bugs::is(Bug::H3) || self.admit((path, owner), agent, incarnation).is_err() {
            self.half_open.take(header.session);
            return self.stranger(path, header, bytes.len());
        }
        if let Some(half) = self.half_open.take(header.session) {
            let key = self.open(half, path, header.packet, &confirm);
            // It is opened once more, by the session.
            self.session_datagram(key, path, envelope, bytes, &mut Vec::new());
        }
    }

    /// The session that an agent continues, if its incarnation has it in good standing.
    fn continued(&self, agent: AgentId, incarnation: u64, confirm: &Confirm<'_>) -> Option<SessionId> {
        let continues = |claim: &FormerClaim| {
            let session = self.sessions.find(claim.session).and_then(|key| self.sessions.get(key));
            let own = session.filter(|s| s.agent == agent && s.incarnation == incarnation);
            claim.claim == Claim::Continuing && own.is_some_and(|session| session.standing() == Standing::Good)
        };
        confirm.former.iter().filter(|_| !bugs::is(Bug::H1)).find(continues).map(|claim| claim.session)
    }

    /// Answers that another session goes on; nothing is done, and this one is never opened.
    fn known(&mut self, id: SessionId, echo: u64, serial: u64, session: SessionId) {
        let Self { half_open, transport, cipher, stats, now, .. } = self;
        let Some(half) = half_open.find(*now, id) else {
            return;
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A CONFIRM that names as continuing a session of its agent and incarnation in good standing MUST be answered KNOWN and MUST NOT
        //# change anything.
        half.refused = true;
        half.opening.received.note(echo);
        let Opening { path, sent, sealer, .. } = &mut half.opening;
        if let Some(packet) = sent.take() {
            let sealing = Sealing { sealer, cipher, now: now.uptime() };
            transport.push_loose(*path, (id, packet), &[Message::Known(Known { serial, echo, session })], sealing, stats);
        }
    }

    /// Opens a session: ends the agent's former ones, and hands the record to the store.
    fn open(&mut self, half: HalfOpen, path: Path, packet: u64, confirm: &Confirm<'_>) -> SessionKey {
        let HalfOpen { opening, boot, seen, sealed, .. } = half;
        let (id, agent, owner) = (opening.id, opening.agent, opening.owner());
        self.check_known_server(agent, seen);
        let claims: Vec<FormerClaim> = confirm.former.iter().collect();
        self.supersede(agent, opening.incarnation, &claims, path);
        self.stats.resumed += u64::from(sealed.is_some_and(|welcomed| welcomed.resumed));
        let session = Session::new(Opening { path, now: self.now, ..opening });
        debug!("{}: opens {} at {}", self.who, session.who(), path.remote);
        let former_key = self.sessions.agent(agent).map(|agent| agent.newest);
        let key = self.sessions.insert(session);
        if let Some(old) = former_key.filter(|_| bugs::is(Bug::M28)) {
            self.sessions.inherit(old, key);
        }
        self.open_long(key, boot);
        self.open_idle(key, boot);
        //= wire-spec.md#11-7-restart-and-recovery
        //# A long session MUST NOT be given a cache lock.
        let slot = self.locks.open(key, owner, opening.principal, !self.long.contains(id));
        if let Some(session) = self.sessions.get_mut(key) {
            session.slot = slot;
            session.flow = self.scheduler.join(owner);
        }
        if bugs::is(Bug::M46) {
            self.lease_timers.set(key, self.now.plus(self.config.wait()), Question::Waited);
        }
        //= wire-spec.md#11-1-lease
        //# The server MUST have stored the largest T that it promises before it promises it.
        let record = self.session_record(key, boot, false).map(|record| record.to_bytes().into());
        self.store.put(store::Key::Session(id), record);
        self.pending.insert(key, Pending::Opened { serial: confirm.serial, packet, former: claims });
        let batch = self.store.open_batch();
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The session's record MUST be durable before anything is sent in it.
        if bugs::is(Bug::M39) {
            self.recorded(key);
        } else {
            self.after_commit(batch, OnDurable::Opened(key));
        }
        key
    }

    /// The session's record is durable: what was made for its agent may leave, OPENED before all unless it is over by now.
    pub(crate) fn recorded(&mut self, key: SessionKey) {
        if let Some(Pending::Opened { serial, packet, former }) = self.pending.get(&key).cloned() {
            self.pending.remove(&key);
            if self.is_good(key) {
                self.stats.opened += 1;
                self.tell_opened(key, serial, packet, &former);
            }
        }
        if let Some(session) = self.sessions.get_mut(key) {
            info!("{}: {} is open at {}", self.who, session.who(), session.path.remote);
            session.in_line = false;
        }
        self.line_up(key);
    }

    /// CONFIRM, in a session that is made: the first, or one more.
    pub(crate) fn confirm(&mut self, origin: MessageCx, message: &Confirm<'_>) -> Taken {
        let MessageCx { key, packet, .. } = origin;
        if !self.is_good(key) {
            return Taken::Refused;
        }
        if let Some(Pending::Opened { packet: newest, .. }) = self.pending.get_mut(&key) {
            *newest = packet.max(*newest);
        } else {
            let claims: Vec<FormerClaim> = message.former.iter().take(FORMER_MAX).collect();
            self.tell_opened(key, message.serial, packet, &claims);
        }
        Taken::Done
    }

    fn tell_opened(&mut self, key: SessionKey, serial: u64, echo: u64, claims: &[FormerClaim]) {
        if let Some(session) = self.sessions.get(key) {
            self.note_seen(session.principal);
        }
        let former = self.fates(key, claims);
        if let Some(grace) = self.grace.as_mut().filter(|_| former.iter().any(|told| told.fate == SessionFate::Reclaimable)) {
            grace.progressed(self.now);
        }
        let resume = self.sessions.get(key).and_then(|session| self.resume_secret(session)).map_or([0; 32], |secret| *secret.expose());
        let roster = self.roster_version();
        self.push_urgent(key, &Message::Opened(Opened { serial, echo, former: List::of(&former), resume, roster }));
    }

    /// An agent that knows this store in a later life has met a newer server: this one may run on an old copy (section 11.6).
    fn check_known_server(&mut self, agent: AgentId, (store, epoch, incarnation): (StoreId, u8, u64)) {
        let here = (self.identity.epoch, self.identity.incarnation);
        let newer = store == self.identity.store && (epoch, incarnation) > here;
        if newer && self.warnings.admit(self.now, Reason::OldStore, agent) {
            warn!(
                "{}: agent {agent} has seen this store served under epoch {epoch} incarnation {incarnation}; this server may run on an old \
                 copy of it",
                self.who
            );
        }
    }

    /// Ends the agent's other sessions, without a way back: those that it surrenders at once, the others by D (section 11.6). One in good
    /// standing is here only if its agent has discarded it, does not know of it, or is another incarnation: where one is continued CONFIRM
    /// is answered KNOWN. One of before the start may be claimed.
    pub(crate) fn supersede(&mut self, agent: AgentId, incarnation: u64, claims: &[FormerClaim], path: Path) {
        for key in self.sessions.of_agent(agent) {
            let Some(session) = self.sessions.get(key) else {
                continue;
            };
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A surrender MUST count only from the address that was proven for the session last.
            let named = claims.iter().find(|former| former.session == key.id()).map(|former| former.claim);
            let surrendered = session.incarnation == incarnation
                && (session.path.remote == path.remote || bugs::is(Bug::A4))
                && named == Some(Claim::Surrendered);
            match session.standing() {
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# A CONFIRM of a higher incarnation MUST start D for the former session, without rescue.
                Standing::Recorded { .. } if session.incarnation < incarnation => self.forfeit(key),
                Standing::Recorded { .. } => match named {
                    Some(Claim::Reclaiming | Claim::Continuing) if session.is_reclaimable_by(agent, incarnation) => {
                        if let Some(grace) = &mut self.grace {
                            grace.claim(self.now, key.id());
                        }
                    }
                    Some(Claim::Surrendered) if self.config.surrender => self.over(key, Cause::Surrendered),
                    // It times out with the grace, unless a later handshake still claims it.
                    Some(Claim::Reclaiming | Claim::Continuing | Claim::Surrendered | Claim::Lost) | None => {}
                },
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# Every session that its agent names lost or surrendered, or does not name, MUST end when the agent opens another: as
                //# surrendered, if it says so, otherwise by D.
                Standing::Good if surrendered => self.over(key, Cause::Surrendered),
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# A CONFIRM of a higher incarnation MUST start D for the former session, without rescue.
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# The locks of a superseded session MUST NOT go to others before T without proof that no user of them can still act.
                Standing::Good => self.fail(key, Cause::Superseded),
                Standing::TimingOut { .. } if surrendered && self.config.surrender => self.over(key, Cause::Surrendered),
                // It was superseded before: an agent that starts again and again has many such.
                Standing::TimingOut { cause: Cause::Superseded, .. } => {}
                Standing::TimingOut { .. } => self.fail(key, Cause::Superseded),
                Standing::Ending { .. } | Standing::Ended { .. } => {}
            }
        }
    }

    /// What is said, in session `key`, of each session that its agent names; of another agent's sessions nothing is told.
    fn fates(&self, key: SessionKey, claims: &[FormerClaim]) -> Vec<FormerFate> {
        let Some((agent, incarnation)) = self.sessions.get(key).map(|session| (session.agent, session.incarnation)) else {
            return Vec::new();
        };
        let fate = |claim: &FormerClaim| {
            let session = self.sessions.find(claim.session).and_then(|key| self.sessions.get(key)).filter(|s| s.agent == agent);
            let wanted = matches!(claim.claim, Claim::Reclaiming | Claim::Continuing);
            let fate = match session {
                None => SessionFate::Ended,
                Some(session) if session.has_ended() => SessionFate::Ended,
                Some(session) if wanted && session.is_reclaimable_by(agent, incarnation) => SessionFate::Reclaimable,
                //= wire-spec.md#11-3-failure-and-ending
                //# The server MUST NOT say that a session has ended before its end is durable.
                Some(_) => SessionFate::TimingOut,
            };
            FormerFate { session: claim.session, fate }
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# OPENED MUST tell the fate of each session that CONFIRM named, in the same order.
        claims.iter().map(fate).collect()
    }
}

// One that names as many former sessions as it may fits the smallest datagram.
const _: () = assert!(Form::Record.around() + MESSAGE_HEADER_LEN + Opened::MIN_LEN + FORMER_MAX * FormerFate::LEN <= DATAGRAM_MIN);
