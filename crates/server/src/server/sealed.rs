//! The handshake of the sealed mode: ASK, OPEN, RESUME, and what workers say of it (`docs/sealed.md`).
//!
//! Decides, between a worker's reading and its writing, who is offered a session: whose key is known, and who would be offered one in plain
//! mode. Before that nothing is kept but a place among the jobs; after it, a half-open session. Invariants: no Diffie-Hellman is computed
//! here; every answer is smaller than its cause. Leaves to others: cookies and bounds (`gate`), terms (`handshake`), CONFIRM (`opening`).

use crate::gate::{Begins, Brought, Entered, Gate, Job};
use crate::ids::{Joiner, Owner};
use crate::principals::PrincipalId;
use crate::server::Server;
use crate::server::handshake::{BUSY_RETRY_MS, terms};
use crate::server::join_session::invite_of;
use crate::sessions::half_open::{HalfOpen, Welcomed};
use crate::sessions::session::Session;
use crate::sessions::standing::Standing;
use crate::stats::Dropped;
use crate::transport::validation::CookieTime;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path};
use cistern_seal::cookie::COOKIE_LEN;
use cistern_seal::work::{JobId, SealDone, SealWork};
use cistern_seal::{Chain, Cipher, FirstCheck, Psk, PublicKey, Sealer, SessionKeys, StartKey};
use cistern_wire::limits::VERSION;
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, OpenStatus, SUITE, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedRefusal, SealedRefuse,
    SealedWelcome, WelcomePayload, Zeros,
};
use cistern_wire::{AgentId, Direction, Handle, Hello, Limited, RefuseReason, SessionId, StoreId, Welcome};
use log::debug;

impl Server {
    /// The same server in the sealed mode: it sends and takes nothing in clear. `keys` are the public halves of those that its workers have;
    /// `start`, random bytes of which nobody else knows, is what its sessions can be resumed by.
    #[must_use]
    pub fn sealed(mut self, keys: &[PublicKey], start: StartKey, cipher: Cipher) -> Self {
        self.start_keys.begin(start);
        let gate = Gate::new(self.now, &mut self.rng, keys, self.config.sessions_max as usize);
        Self { gate: Some(Box::new(gate)), cipher, ..self }
    }

    /// Takes other keys, of which the workers have the private halves: sessions and handshakes under the former ones go on.
    pub fn set_keys(&mut self, now: Instant, keys: &[PublicKey]) {
        self.step(now, |server| server.gate.iter_mut().for_each(|gate| gate.set_keys(keys)));
    }

    /// The next work for a worker; what it makes of it comes back by [`Server::seal_done`]. Ask only for as much as can be done soon: what is
    /// not asked for waits here, where hosts take turns.
    pub fn poll_seal_work(&mut self) -> Option<SealWork> {
        self.gate.as_mut()?.poll()
    }

    /// Takes a worker's word; in any order of jobs.
    pub fn seal_done(&mut self, now: Instant, done: SealDone) {
        self.step(now, |server| match done {
            SealDone::Read { job, peer, payload } => server.was_read(job, peer, &payload),
            SealDone::Written { job, message, chain } => server.was_written(job, &message, &chain),
            SealDone::Failed { job } => {
                if let Some(job) = server.end_job(job) {
                    server.drop_datagram(job.path, Dropped::NotAuthentic);
                }
            }
        });
    }

    /// A handshake datagram.
    pub(crate) fn sealed_handshake(&mut self, path: Path, bytes: &[u8]) {
        let datagram = match SealedDatagram::at_server(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => return self.undecoded(path, &reason),
        };
        let (id, handshake) = match &datagram.body {
            SealedHandshake::Ask(ask) => (ask.key_id, ask.handshake),
            SealedHandshake::Open(open) => (open.key_id, open.handshake),
            SealedHandshake::Resume(resume) => (resume.key_id, resume.handshake),
            // The decoder lets no server's through.
            _ => return,
        };
        //= docs/sealed.md#the-handshake
        //# A server MUST verify mac1 and the cookie before it computes a Diffie-Hellman.
        let Some(check) = self.gate.as_ref().and_then(|gate| gate.check(id, bytes)).cloned() else {
            return self.drop_datagram(path, Dropped::NotAuthentic);
        };
        let cause = Asked { path, echo: datagram.header.packet, handshake, check, len: bytes.len() };
        let (lowest, highest) = datagram.versions;
        if !(lowest..=highest).contains(&VERSION) || datagram.suite != SUITE {
            return self.refuse_sealed(&cause, SealedRefusal::Version);
        }
        match &datagram.body {
            SealedHandshake::Open(open) => {
                let secret = self.secret_of(open.psk_id).ok_or(SealedRefusal::Invite);
                self.compute(&cause, secret.map(|_| Brought::open(open)), &open.cookie, bytes);
            }
            SealedHandshake::Resume(resume) => {
                let secret = self.resumable(resume.former).and_then(|session| self.resume_secret(session));
                let brought = secret.map(|secret| Brought::resume(resume, secret));
                self.compute(&cause, brought.ok_or(SealedRefusal::Resume), &resume.cookie, bytes);
            }
            _ => self.sealed_challenge(&cause),
        }
    }

    /// A session that may be resumed now, by whoever has its secret.
    fn resumable(&self, id: SessionId) -> Option<&Session> {
        let session = self.sessions.find(id).and_then(|key| self.sessions.get(key))?;
        //= docs/sealed.md#resumption
        //# A server MUST look up the key's rights and revocation when it takes RESUME and when it offers a session, and answer REFUSE
        //# (resume) to one of a session that is unknown or has ended, or of a key that is revoked.
        let is_over = matches!(session.standing(), Standing::Ending { .. } | Standing::Ended { .. }) && !bugs::is(Bug::R21);
        (!is_over && (!self.is_revoked(session.principal) || bugs::is(Bug::R20))).then_some(session)
    }

    /// The secret by which a session can be resumed, if it was opened sealed.
    pub(crate) fn resume_secret(&self, session: &Session) -> Option<Psk> {
        let start = match session.sealer {
            Sealer::Sealed(_) => self.start_keys.own()?,
            // Of before the start, or in clear.
            Sealer::Plain => self.start_keys.former(session.id)?.1,
        };
        Some(start.resume_secret(session.id, session.agent, session.incarnation))
    }

    /// A handshake that has a cookie, or names a secret that it cannot have.
    fn compute(&mut self, cause: &Asked, brought: Result<Brought, SealedRefusal>, cookie: &[u8; COOKIE_LEN], bytes: &[u8]) {
        let (now, path) = (self.now, cause.path);
        if let Some(welcome) = self.half_open.welcome_again(now, path, cause.handshake, cookie) {
            let datagram = welcome.to_vec();
            return self.send_datagram(path, datagram);
        }
        let brought = match brought {
            Ok(brought) => brought,
            Err(why) => return self.refuse_sealed(cause, why),
        };
        let Some(gate) = self.gate.as_mut() else {
            return;
        };
        match gate.enter(now, path, cause.echo, brought, bytes) {
            Entered::Begun => {}
            Entered::Stale | Entered::Forged => self.sealed_challenge(cause),
            Entered::Used => self.drop_datagram(path, Dropped::CookieUsed),
            Entered::Busy => self.refuse_sealed(cause, SealedRefusal::Busy),
        }
    }

    /// Answers by a cookie; nothing is kept.
    fn sealed_challenge(&mut self, cause: &Asked) {
        let Asked { path, echo, handshake, .. } = *cause;
        if let Some(cookie) = self.gate.as_ref().map(|gate| gate.cookie(self.now, path, handshake)) {
            self.answer_sealed(cause, SealedChallenge { handshake, echo, cookie, mac1: [0; MAC_LEN] });
        }
    }

    fn refuse_sealed(&mut self, cause: &Asked, reason: SealedRefusal) {
        let Asked { path, echo, handshake, .. } = *cause;
        debug!("{}: refused a handshake from {}: {reason}", self.who, path.remote);
        let retry_ms = if reason == SealedRefusal::Busy { BUSY_RETRY_MS } else { 0 };
        let refuse = SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms, room: Zeros, mac1: [0; MAC_LEN] };
        self.answer_sealed(cause, refuse);
    }

    /// Answers whoever has not proven its address, if that may be.
    fn answer_sealed(&mut self, cause: &Asked, body: impl Into<SealedHandshake>) {
        let body = body.into();
        if self.may_answer(cause.path, body.kind().datagram_len(), cause.len) {
            self.send_sealed(cause.path, SessionId(0), body, &cause.check);
        }
    }

    /// What is said of a session whose keys this server does not have.
    pub(crate) fn sealed_hint(&mut self, path: Path, session: SessionId, echo: u64) {
        if let Some(check) = self.gate.as_ref().and_then(|gate| gate.first_check()).cloned() {
            self.send_sealed(path, session, SealedHint { echo, mac1: [0; MAC_LEN] }.into(), &check);
        }
    }

    fn send_sealed(&mut self, path: Path, session: SessionId, body: SealedHandshake, check: &FirstCheck) {
        let Some(packet) = self.transport.handshake_packet() else {
            return;
        };
        let mut bytes = Vec::new();
        SealedDatagram::new(session, packet, body).write(&mut bytes);
        if body.kind().has_mac1() {
            check.complete(&mut bytes);
        }
        self.send_datagram(path, bytes);
    }

    fn end_job(&mut self, job: JobId) -> Option<Job> {
        self.offers.remove(&job);
        self.gate.as_mut()?.end(job)
    }

    /// The principal whose session is resumed, if it may be and the sender says that it is the session's agent.
    fn principal_of_resumed(&self, former: SessionId, payload: &[u8]) -> Option<PrincipalId> {
        let (session, payload) = (self.resumable(former)?, OpenPayload::of(payload).ok()?);
        let identity = self.principals.get(session.principal)?.identity().map(PublicKey::from_bytes)?;
        //= docs/sealed.md#resumption
        //# The instance and incarnation in the payload MUST be those of the session; else RESUME is dropped.
        let is_same = identity.agent(payload.instance) == session.agent && payload.incarnation == session.incarnation;
        is_same.then_some(session.principal)
    }

    /// The principal that a key is good for now.
    fn principal_of(&mut self, key: &PublicKey) -> Option<PrincipalId> {
        let (principal, now_s) = (self.principals.of_key(key.as_bytes())?, self.clock_s());
        let record = self.principals.get(principal)?;
        // Of one that was revoked it is said what it is.
        (record.revoked || record.takes(key.as_bytes(), now_s)).then_some(principal)
    }

    /// A worker has read OPEN or RESUME: its sender had this key or secret once; whether it is there now is not known.
    fn was_read(&mut self, id: JobId, peer: Option<PublicKey>, payload: &[u8]) {
        let Some((gate, job)) = self.gate.as_ref().and_then(|gate| Some((gate, gate.job(id)?))) else {
            return;
        };
        let (path, handshake, age, begins, cookie) = (job.path, job.handshake, gate.age(self.now, job), job.begins, job.cookie);
        let (principal, psk, joins) = match begins {
            Begins::Open { psk_id } => (peer.and_then(|key| self.principal_of(&key)), self.secret_of(psk_id), invite_of(psk_id)),
            // The secret that it has is mixed in already.
            Begins::Resume { former } => (self.principal_of_resumed(former, payload), Some(Psk::none()), None),
        };
        // Its agents stay the same, whichever of its keys they come with.
        let identity = principal.and_then(|who| self.principals.get(who)?.identity()).map(PublicKey::from_bytes);
        let key = identity.or(peer);
        let (Some(key), Ok(payload), Some(psk)) = (key, OpenPayload::of(payload), psk) else {
            return self.drop_job(id, path, Dropped::BadHello);
        };
        //= wire-spec.md#11-8-security
        //# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of
        //# trust.
        let joiner = joins.zip(peer).map(|(invite, peer)| Joiner { invite, key: *peer.as_bytes() });
        let resumed = matches!(begins, Begins::Resume { .. });
        let welcomed = Welcomed { cookie, resumed, datagram: Vec::new(), joiner };
        let hello = hello_of(&payload, key.agent(payload.instance), handshake);
        let cookie = CookieTime::of(self.now, age);
        let admitted = match principal {
            // Whether it may join is said to its JOIN.
            _ if joiner.is_some() => Ok(PrincipalId::ANYBODY),
            None => Err(OpenStatus::UnknownKey),
            Some(principal) if self.is_revoked(principal) && !(resumed && bugs::is(Bug::R20)) => Err(OpenStatus::Revoked),
            Some(principal) => {
                let admitted = self.admit((path, Owner::Key(principal)), hello.agent, hello.incarnation);
                admitted.map(|()| principal).map_err(status_of)
            }
        };
        let answer = match admitted {
            Ok(_) if self.half_open.of_agent(self.now, hello.agent).is_some_and(|half| cookie < half.cookie) => {
                return self.drop_job(id, path, Dropped::OldHandshake);
            }
            Ok(principal) => {
                //= docs/sealed.md#the-handshake
                //# OPEN and WELCOME MUST NOT end, supersede or renew anything, nor leave anything durable: a recording of OPEN can be sent
                //# by anybody.
                let mut half = HalfOpen { sealed: Some(Box::new(welcomed)), ..self.half_open_of(path, &hello, cookie) };
                half.opening.principal = principal;
                if bugs::is(Bug::H4) {
                    self.supersede(hello.agent, hello.incarnation, &[], path);
                }
                let terms = terms(&self.config, self.identity, self.features(), &half.opening, 0);
                self.offers.insert(id, half);
                payload_of(&terms, self.roster_version())
            }
            Err(status) => {
                debug!("{}: refused a handshake from {}: {status}", self.who, path.remote);
                let of_key = principal.filter(|_| status == OpenStatus::Limit);
                refusal(status, of_key.map(|principal| self.sessions_limit(Owner::Key(principal))))
            }
        };
        if let Some(gate) = &mut self.gate {
            gate.go_on(SealWork::Write { job: id, psk, payload: answer.padded() });
        }
    }

    /// Whether a principal's key was withdrawn: it is offered nothing, and what it was offered is nothing.
    pub(crate) fn is_revoked(&self, who: PrincipalId) -> bool {
        !bugs::is(Bug::S10) && self.principals.get(who).is_some_and(|record| record.revoked)
    }

    fn drop_job(&mut self, id: JobId, path: Path, reason: Dropped) {
        self.end_job(id);
        if let Some(gate) = &mut self.gate {
            gate.go_on(SealWork::Drop { job: id });
        }
        self.drop_datagram(path, reason);
    }

    /// A worker has written WELCOME: the session is half-open, unless it is refused.
    fn was_written(&mut self, id: JobId, message: &[u8], chain: &Chain) {
        let offer = self.offers.remove(&id);
        let Some(Job { path, handshake, echo, .. }) = self.end_job(id) else {
            return;
        };
        let (Some((ephemeral, payload)), Some(packet)) = (message.split_first_chunk(), self.transport.handshake_packet()) else {
            return;
        };
        let Ok(payload) = payload.try_into() else {
            return;
        };
        let mut bytes = Vec::new();
        SealedDatagram::new(SessionId(0), packet, SealedWelcome { handshake, echo, ephemeral: *ephemeral, payload }).write(&mut bytes);
        if let Some(mut half) = offer {
            half.opening.now = self.now;
            half.opening.sealer = Sealer::Sealed(Box::new(SessionKeys::new(chain, Direction::Server, self.now.uptime())));
            half.sealed.iter_mut().for_each(|sealed| sealed.datagram.clone_from(&bytes));
            self.half_open.insert(self.now, half, self.config.opening_max as usize);
        }
        self.send_datagram(path, bytes);
    }
}

/// A handshake datagram that is answered.
struct Asked {
    path: Path,
    echo: u64,
    handshake: u64,
    /// With what the answer ends.
    check: FirstCheck,
    len: usize,
}

/// What plain mode would be told: an agent is a key and an instance of it. Packet numbers of a sealed session begin at 1.
const fn hello_of<'a>(payload: &OpenPayload<'a>, agent: AgentId, handshake: u64) -> Hello<'a> {
    Hello {
        incarnation: payload.incarnation,
        boot: payload.boot,
        store: payload.store,
        epoch: payload.epoch,
        server_incarnation: payload.server_incarnation,
        window: payload.window,
        max_datagram: payload.max_datagram,
        features: payload.features,
        lease_us: payload.lease_us,
        first_packet: 1,
        label: payload.label,
        ..Hello::new(agent, handshake)
    }
}

/// What WELCOME says, where plain mode would say `terms`.
const fn payload_of(terms: &Welcome, roster: u32) -> WelcomePayload {
    WelcomePayload {
        status: OpenStatus::Opened,
        version: terms.version,
        version_min: VERSION,
        version_max: VERSION,
        session: terms.session,
        handle: terms.handle,
        store: terms.store,
        epoch: terms.epoch,
        server_incarnation: terms.server_incarnation,
        features: terms.features,
        lease_us: terms.lease_us,
        delta_ppm: terms.delta_ppm,
        epsilon_us: terms.epsilon_us,
        delivery_timeout_us: terms.delivery_timeout_us,
        window: terms.window,
        max_datagram: terms.max_datagram,
        roster,
        retry_ms: 0,
        used: 0,
        bound: 0,
    }
}

/// What WELCOME says to whom it offers nothing.
fn refusal(status: OpenStatus, limited: Option<Limited>) -> WelcomePayload {
    let retry_ms = match status {
        OpenStatus::Busy | OpenStatus::Limit | OpenStatus::Ahead => BUSY_RETRY_MS,
        OpenStatus::Opened | OpenStatus::UnknownKey | OpenStatus::Revoked | OpenStatus::Superseded => 0,
    };
    let count = |n: u64| u32::try_from(n).unwrap_or(u32::MAX);
    WelcomePayload {
        status,
        version: VERSION,
        version_min: VERSION,
        version_max: VERSION,
        session: SessionId(0),
        handle: Handle(0),
        store: StoreId([0; 16]),
        epoch: 0,
        server_incarnation: 0,
        features: 0,
        lease_us: 0,
        delta_ppm: 0,
        epsilon_us: 0,
        delivery_timeout_us: 0,
        window: 0,
        max_datagram: 0,
        roster: 0,
        retry_ms,
        used: limited.map_or(0, |limited| count(limited.used)),
        bound: limited.map_or(0, |limited| count(limited.bound)),
    }
}

const fn status_of(reason: RefuseReason) -> OpenStatus {
    match reason {
        RefuseReason::Superseded => OpenStatus::Superseded,
        RefuseReason::Crowded => OpenStatus::Limit,
        RefuseReason::Ahead => OpenStatus::Ahead,
        RefuseReason::Busy | RefuseReason::Stopping | RefuseReason::Version | RefuseReason::Standby => OpenStatus::Busy,
    }
}
