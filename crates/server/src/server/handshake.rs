//! The handshake: HELLO, CHALLENGE, WELCOME, REFUSE, KNOWN.
//!
//! Decides who gets a session. A HELLO that continues a session in good standing is answered KNOWN, and does nothing else. A HELLO without
//! a good cookie changes nothing and is answered by one (section 11.6); with it, a repeated HELLO of one handshake gets the same session,
//! another handshake ends the sessions that its agent has discarded or never heard of, a higher incarnation ends all former ones, a lower
//! incarnation or an older handshake is refused. Place in the walk: after `receive`, for session 0.
//! Implements `wire-spec.md` section 6.1. Invariants: the session's record is durable before WELCOME leaves (section 11.7); WELCOME renews,
//! so it is produced only in good standing and echoes the newest HELLO received; other answers are smaller than their cause.
//! Leaves to others: cookies, the end of former sessions (`lifecycle`).

use crate::principals::PrincipalId;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::server::lifecycle::Pending;
use crate::server::warnings::Reason;
use crate::sessions::SessionKey;
use crate::sessions::networks::Network;
use crate::sessions::session::{Opening, Session};
use crate::sessions::standing::{Cause, Standing};
use crate::stats::Dropped;
use crate::store;
use crate::transport::SMALL;
use crate::transport::validation::CookieTime;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Path, first_packet, is_first_packet};
use cistern_wire::limits::{COOKIE_MAX, DATAGRAM_MIN, FEATURE_VOLATILE, FORMER_MAX, LABEL_MAX, OVERHEAD, VERSION};
use cistern_wire::{
    Bytes8, Challenge, Claim, Field as _, FormerClaim, FormerFate, Handle, Hello, Known, List, Message, Raw, Refuse, RefuseReason,
    SessionFate, SessionId, Welcome,
};
use core::time::Duration;
use log::{debug, warn};

/// When an agent that met a full table should try again, in milliseconds.
const BUSY_RETRY_MS: u32 = 1_000;
/// How far above the incarnation of a live session the next one of its agent may be: who has started so often since has not been here for
/// that long, and his session is probed.
const JUMP_MAX: u64 = 65_536;

/// A HELLO and how it came.
struct Greeting<'a> {
    path: Path,
    packet: u64,
    hello: Hello<'a>,
    cookie: CookieTime,
}

impl Server {
    /// A valid datagram of session 0 from an agent: a HELLO, or several.
    pub(crate) fn handshake_datagram(&mut self, path: Path, packet: u64, bytes: &[u8]) {
        for raw in Raw::all(bytes) {
            self.stats.count_in(raw.kind);
            if let Some(Message::Hello(hello)) = raw.decode() {
                // One HELLO is answered per datagram: each answer is to be smaller than the whole.
                return self.hello(path, packet, hello, bytes.len());
            }
        }
    }

    fn hello(&mut self, path: Path, packet: u64, hello: Hello<'_>, len: usize) {
        if hello.version_min > VERSION || hello.version_max < VERSION {
            //= wire-spec.md#10-2-agreeing-on-a-version
            //# A server that shares no version with a HELLO MUST answer REFUSE with its own range.
            return self.refuse_hello(path, packet, hello.handshake, len, RefuseReason::Version, 0);
        }
        let oversized = hello.label.0.len() > LABEL_MAX || hello.cookie.0.len() > COOKIE_MAX || hello.former.len() > FORMER_MAX;
        if oversized || !is_first_packet(hello.first_packet) {
            return self.drop_datagram(path, Dropped::BadHello);
        }
        // Looked at whenever such a HELLO comes, with a cookie or without: the session may have been rescued since it was challenged.
        if let Some(session) = self.continued(&hello) {
            return self.known(path, packet, hello.handshake, session, len);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO without a valid cookie MUST NOT change or leave behind anything at the server.
        let Some(cookie) = self.cookies.check(self.now, path.remote, &hello) else {
            return self.challenge(path, packet, &hello, len);
        };
        let greeting = Greeting { path, packet, hello, cookie };
        let live = self.sessions.agent(hello.agent);
        let newest = live.map(|agent| agent.newest);
        let lives = |s: &Session| matches!(s.standing(), Standing::Opening | Standing::Good);
        let same = |s: &Session| s.handshake == hello.handshake && s.incarnation == hello.incarnation && lives(s);
        if let Some(newest) = newest.filter(|newest| self.sessions.get(*newest).is_some_and(same)) {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A repeated HELLO of one handshake MUST be answered by the same session.
            return self.hello_again(newest, &greeting);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO whose cookie is no younger than the one by which its agent opened a session last MUST NOT open or end a session.
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO whose session is no longer in good standing MUST NOT be answered WELCOME for that session.
        if self.spent.has(hello.agent, cookie) && !bugs::is(Bug::H4) {
            return self.drop_datagram(path, Dropped::OldHandshake);
        }
        let known = live.map(|agent| agent.incarnation);
        let incarnation = known.unwrap_or(0);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The server MUST keep the highest incarnation of each agent durably, and refuse a HELLO with a lower one.
        if hello.incarnation < incarnation {
            if self.warnings.admit(self.now, Reason::Outdated, hello.agent) {
                warn!(
                    "{}: refused agent {} \"{}\" at {}: incarnation {} is not the newest ({incarnation}); if it is not a copy of its \
                     state directory, it was restarted",
                    self.who,
                    hello.agent,
                    hello.label.0.escape_ascii(),
                    path.remote,
                    hello.incarnation
                );
            }
            return self.refuse_hello(path, packet, hello.handshake, len, RefuseReason::Superseded, 0);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST refuse a HELLO whose incarnation is more than 65,536 above that of a session of the same agent.
        if known.is_some_and(|known| hello.incarnation - known > JUMP_MAX) && !bugs::is(Bug::A5) {
            debug!("{}: refused agent {} at {}: incarnation {} after {incarnation}", self.who, hello.agent, path.remote, hello.incarnation);
            // If nobody answers for the session, it will be gone when the agent tries again.
            if let Some(newest) = newest.filter(|newest| self.is_good(*newest)) {
                self.probe(newest);
            }
            return self.refuse_hello(path, packet, hello.handshake, len, RefuseReason::Ahead, BUSY_RETRY_MS);
        }
        self.open(&greeting, len);
    }

    /// The session that a HELLO continues, if its agent's incarnation has it in good standing.
    fn continued(&self, hello: &Hello<'_>) -> Option<SessionId> {
        let second = !hello.cookie.0.is_empty();
        let continues = |claim: &FormerClaim| {
            let session = self.sessions.find(claim.session).and_then(|key| self.sessions.get(key));
            let own = session.filter(|s| s.agent == hello.agent && s.incarnation == hello.incarnation);
            claim.claim == Claim::Continuing && own.is_some_and(|session| session.standing() == Standing::Good)
        };
        let ignored = bugs::is(Bug::H1) || bugs::is(Bug::H3) && second;
        hello.former.iter().filter(|_| !ignored).find(continues).map(|claim| claim.session)
    }

    /// Answers that the session goes on; nothing is done, and no cookie is given by which another could be opened.
    fn known(&mut self, path: Path, packet: u64, handshake: u64, session: SessionId, len: usize) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO, with or without a cookie, that names as continuing a session of its agent and incarnation in good standing MUST be
        //# answered KNOWN and MUST NOT change anything.
        if self.may_answer(path, OVERHEAD + Known::LEN, len) {
            self.send_handshake(path, &Message::Known(Known { handshake, echo: packet, session }), None);
        }
    }

    /// Answers by a cookie; nothing is kept.
    fn challenge(&mut self, path: Path, packet: u64, hello: &Hello<'_>, len: usize) {
        let cookie = self.cookies.make(self.now, path.remote, hello);
        let handshake = hello.handshake;
        if !self.may_answer(path, OVERHEAD + Challenge::MIN_LEN + cookie.len(), len) {
            return;
        }
        //= wire-spec.md#3-7-sizes-and-paths
        //# A server MUST answer a datagram from the address and port to which it was sent.
        //= wire-spec.md#3-7-sizes-and-paths
        //# An answer without a session MUST go to the address and port from which its cause came.
        self.send_handshake(path, &Message::Challenge(Challenge { handshake, echo: packet, cookie: Bytes8(&cookie) }), None);
    }

    fn refuse_hello(&mut self, path: Path, packet: u64, handshake: u64, len: usize, reason: RefuseReason, retry_ms: u32) {
        if !self.may_answer(path, OVERHEAD + Refuse::LEN, len) {
            return;
        }
        debug!("{}: refused a handshake from {}: {reason}", self.who, path.remote);
        self.stats.count_refused(reason);
        let refuse = Refuse { handshake, echo: packet, reason, version_min: VERSION, version_max: VERSION, retry_ms };
        self.send_handshake(path, &Message::Refuse(refuse), None);
    }

    /// Whether an answer of `answer` bytes may go to who has not proven the address, for a datagram of `cause` bytes (section 11.6).
    fn may_answer(&mut self, path: Path, answer: usize, cause: usize) -> bool {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be smaller than the datagram that caused it.
        if answer >= cause {
            self.drop_datagram(path, Dropped::Amplification);
            return false;
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be limited in rate.
        if !self.challenges.allow(self.now) {
            self.drop_datagram(path, Dropped::RateLimited);
            return false;
        }
        true
    }

    /// A further HELLO of the handshake that opened the agent's newest session.
    fn hello_again(&mut self, key: SessionKey, greeting: &Greeting<'_>) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if session.replay.is_unused() {
            // The agent has not heard of the session yet; this address is proven by its cookie, too.
            session.path = greeting.path;
        }
        match session.standing() {
            Standing::Opening => {
                if let Some(Pending::Welcome { packet, .. }) = self.pending.get_mut(&key) {
                    *packet = greeting.packet.max(*packet);
                }
            }
            Standing::Good => {
                let claims: Vec<FormerClaim> = greeting.hello.former.iter().collect();
                let former = self.fates(key, &claims);
                self.welcome(key, greeting.packet, &former);
            }
            Standing::Recorded { .. } | Standing::TimingOut { .. } | Standing::Ending { .. } | Standing::Ended { .. } => {}
        }
    }

    /// Opens a session: ends the agent's former ones, and hands the record to the store.
    fn open(&mut self, greeting: &Greeting<'_>, len: usize) {
        let hello = &greeting.hello;
        let counts = self.sessions.counts();
        let nearly = |bound: u32| (bound - bound / 8) as usize;
        let network = Network::of(greeting.path.remote);
        let neighbours = network.map_or(0, |network| self.sessions.of_network(network).len());
        if self.sessions.len() >= nearly(self.config.sessions_max) && self.probes.allow(self.now) {
            self.probe_some(None);
        } else if neighbours >= nearly(self.config.network_sessions_max) && self.probes.allow(self.now) {
            self.probe_some(network);
        }
        // Who had a session before the start has a place, which others leave to it.
        let is_back = self.sessions.is_back(hello.agent);
        let taken = self.sessions.len() + if is_back { 0 } else { counts.of_before };
        if taken >= self.config.sessions_max as usize || counts.opening >= self.config.opening_max as usize {
            if self.warnings.admit(self.now, Reason::Full, hello.agent) {
                warn!(
                    "{}: refused agent {} at {}: the table of sessions is full; raise sessions-max, or evict agents",
                    self.who, hello.agent, greeting.path.remote
                );
            }
            //= wire-spec.md#8-2-limits-of-a-server
            //# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
            return self.refuse_hello(greeting.path, greeting.packet, hello.handshake, len, RefuseReason::Busy, BUSY_RETRY_MS);
        }
        if !is_back && !self.share_has_room(greeting.path) {
            if self.warnings.admit(self.now, Reason::Crowded, hello.agent) {
                warn!(
                    "{}: refused agent {} at {}: its host has its share of the table of sessions; raise sessions-max, or evict agents",
                    self.who, hello.agent, greeting.path.remote
                );
            }
            return self.refuse_hello(greeting.path, greeting.packet, hello.handshake, len, RefuseReason::Crowded, BUSY_RETRY_MS);
        }
        if neighbours >= self.config.network_sessions_max as usize {
            if self.warnings.admit(self.now, Reason::Crowded, hello.agent) {
                warn!(
                    "{}: refused agent {} at {}: its network (/24 of IPv4, /64 of IPv6) has {neighbours} sessions; raise \
                     network-sessions-max, or evict agents",
                    self.who, hello.agent, greeting.path.remote
                );
            }
            return self.refuse_hello(greeting.path, greeting.packet, hello.handshake, len, RefuseReason::Crowded, BUSY_RETRY_MS);
        }
        self.check_known_server(hello);
        self.supersede(hello, greeting.path);
        self.spent.add(self.now, hello.agent, greeting.cookie);
        let id = self.fresh_session_id();
        let session = Session::new(Opening {
            id,
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A session's handle MUST be random, and independent of the session's id and of the agent's.
            handle: Handle(self.rng.nonzero_u64().get()),
            principal: PrincipalId(self.config.plain_principal),
            agent: hello.agent,
            incarnation: hello.incarnation,
            handshake: hello.handshake,
            label: Box::from(hello.label.0),
            lease_us: self.lease_of(hello),
            first_received: hello.first_packet,
            first_sent: first_packet(&mut self.rng),
            now: self.now,
            path: greeting.path,
            max_datagram: hello.max_datagram.min(self.config.max_datagram).max(SMALL),
            window: hello.window.clamp(1, self.config.window),
            round_trip: greeting.cookie.age(self.now),
            last_heard: self.config.last_heard,
        });
        debug!("{}: opens {} at {}", self.who, session.who(), greeting.path.remote);
        let former_key = self.sessions.agent(hello.agent).map(|agent| agent.newest);
        let key = self.sessions.insert(session);
        if let Some(old) = former_key.filter(|_| bugs::is(Bug::M28)) {
            self.sessions.inherit(old, key);
        }
        self.open_long(key, hello.boot);
        //= wire-spec.md#11-1-lease
        //# The server MUST have stored the largest T that it promises before it promises it.
        let record = self.session_record(key, hello.boot, false).map(|record| record.to_bytes().into());
        self.store.put(store::Key::Session(id), record);
        self.pending.insert(key, Pending::Welcome { packet: greeting.packet, former: hello.former.iter().collect() });
        let batch = self.store.open_batch();
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The session's record MUST be durable before WELCOME is sent.
        if bugs::is(Bug::M39) {
            return self.recorded(key);
        }
        self.after_commit(batch, OnDurable::Opened(key));
    }

    /// The lease period of the session that a HELLO opens, in microseconds, rounded down: the agent must not believe in more than is waited
    /// for (section 11.1). That of a long session from which it may reclaim is not shortened: its agent may go by it until it hears that
    /// the reclaim is complete, and then the server has only the new session to wait by.
    fn lease_of(&self, hello: &Hello<'_>) -> u32 {
        let asked = self.config.lease_for(Duration::from_micros(hello.lease_us));
        let former = self.longest_former(hello).unwrap_or_default();
        //= wire-spec.md#11-1-lease
        //# WELCOME MUST give the lease period that HELLO asks for, within the server's bounds, but none shorter than that of a long session
        //# from which the agent may reclaim.
        micros32(asked.max(former))
    }

    /// An agent that knows this store in a later life has met a newer server: this one may run on an old copy (section 11.6).
    fn check_known_server(&mut self, hello: &Hello<'_>) {
        let here = (self.identity.epoch, self.identity.incarnation);
        let newer = hello.store == self.identity.store && (hello.epoch, hello.server_incarnation) > here;
        if newer && self.warnings.admit(self.now, Reason::OldStore, hello.agent) {
            warn!(
                "{}: agent {} has seen this store served under epoch {} incarnation {}; this server may run on an old copy of it",
                self.who, hello.agent, hello.epoch, hello.server_incarnation
            );
        }
    }

    /// Ends the agent's other sessions, without a way back: those that were never used and those that it surrenders at once, the
    /// others by D (section 11.6). One in good standing is here only if its agent has discarded it, has never heard of it, or is another
    /// incarnation: one that it continues is answered KNOWN. One of before the start may be claimed.
    fn supersede(&mut self, hello: &Hello<'_>, path: Path) {
        for key in self.sessions.of_agent(hello.agent) {
            let Some(session) = self.sessions.get(key) else {
                continue;
            };
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A surrender MUST count only from the address that was proven for the session last.
            let named = hello.former.iter().find(|former| former.session == key.id()).map(|former| former.claim);
            let surrendered = session.incarnation == hello.incarnation
                && (session.path.remote == path.remote || bugs::is(Bug::A4))
                && named == Some(Claim::Surrendered);
            let unused = session.replay.is_unused();
            match session.standing() {
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# A HELLO of a higher incarnation MUST start D for the former session, without rescue.
                Standing::Recorded { .. } if session.incarnation < hello.incarnation => self.forfeit(key),
                Standing::Recorded { .. } => match named {
                    Some(Claim::Reclaiming | Claim::Continuing) if session.is_reclaimable_by(hello.agent, hello.incarnation) => {
                        if let Some(grace) = &mut self.grace {
                            grace.claim(self.now, key.id());
                        }
                    }
                    Some(Claim::Surrendered) if self.config.surrender => self.over(key, Cause::Surrendered),
                    // It times out with the grace, unless a later handshake still claims it.
                    Some(Claim::Reclaiming | Claim::Continuing | Claim::Surrendered | Claim::Lost) | None => {}
                },
                // Never welcomed, or never answered: nothing was granted in it, and nothing can be used under it.
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# A session in which its agent was never heard MUST end at once when its agent opens another.
                Standing::Opening => self.over(key, Cause::Superseded),
                Standing::Good | Standing::TimingOut { .. } if unused => self.over(key, Cause::Superseded),
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# Any other session that its agent names lost or surrendered, or does not name, MUST end when the agent opens another: as
                //# surrendered, if it says so, otherwise by D.
                Standing::Good if surrendered => self.over(key, Cause::Surrendered),
                //= wire-spec.md#11-6-sessions-handshake-and-paths
                //# A HELLO of a higher incarnation MUST start D for the former session, without rescue.
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
    pub(crate) fn fates(&self, key: SessionKey, claims: &[FormerClaim]) -> Vec<FormerFate> {
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
        //# WELCOME MUST tell the fate of each session that HELLO named, in the same order.
        claims.iter().map(fate).collect()
    }

    fn fresh_session_id(&mut self) -> SessionId {
        loop {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# Session ids MUST be random, and differ from those of all sessions that are live or recorded.
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A server MUST NOT take up a session of an earlier server incarnation under its old id.
            let id = SessionId(self.rng.nonzero_u64().get());
            if self.sessions.find(id).is_none() {
                return id;
            }
        }
    }

    pub(crate) fn welcome(&mut self, key: SessionKey, echo: u64, former: &[FormerFate]) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        session.renewed(self.now);
        let (config, lease) = (&self.config, session.lease());
        let welcome = Welcome {
            handshake: session.handshake,
            echo,
            version: VERSION,
            session: key.id(),
            handle: session.handle,
            store: self.identity.store,
            epoch: self.identity.epoch,
            server_incarnation: self.identity.incarnation,
            //= wire-spec.md#10-3-features
            //# A receiver MUST ignore feature bits that it does not know.
            features: if config.volatile { FEATURE_VOLATILE } else { 0 },
            lease_us: session.lease_us.into(),
            delta_ppm: config.delta_ppm,
            epsilon_us: micros32(config.epsilon),
            delivery_timeout_us: micros32(config.delivery_timeout_for(lease)),
            window: session.cache.window(),
            max_datagram: session.max_datagram,
            first_packet: session.packets.first(),
            former: List::of(former),
        };
        let path = session.path;
        self.send_handshake(path, &Message::Welcome(welcome), Some(key));
    }
}

// A WELCOME that names as many former sessions as a HELLO may fits the smallest datagram.
const _: () = assert!(OVERHEAD + Welcome::MIN_LEN + FORMER_MAX * FormerFate::LEN <= DATAGRAM_MIN);

/// A configured span of at most an hour in whole microseconds.
fn micros32(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}
