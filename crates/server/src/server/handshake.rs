//! The handshake without a session: HELLO, CHALLENGE, WELCOME, REFUSE.
//!
//! Decides who is offered a session. A HELLO without a good cookie changes nothing and is answered by one (section 11.6); with it, its agent
//! has one half-open session, its newest, and a repeated HELLO of one handshake is offered the same; a lower incarnation, or one far too high,
//! is refused, and so is everybody where a bound is reached. Place in the walk: after `receive`, for session 0.
//! Implements `wire-spec.md` section 6.1. Invariants: nothing here is durable, ends or renews a session; every answer is smaller than its
//! cause. Leaves to others: cookies, what CONFIRM opens (`opening`).

use crate::config::Config;
use crate::ids::Owner;
use crate::principals::PrincipalId;
use crate::server::warnings::Reason;
use crate::server::{Identity, Server};
use crate::sessions::half_open::HalfOpen;
use crate::sessions::networks::Network;
use crate::sessions::session::Opening;
use crate::share::used_up;
use crate::stats::Dropped;
use crate::transport::SMALL;
use crate::transport::validation::CookieTime;
use alloc::boxed::Box;
use cistern_link::bugs::{self, Bug};
use cistern_link::{PacketCounter, Path, ReplayWindow, first_packet, is_first_packet};
use cistern_seal::Sealer;
use cistern_wire::limits::{COOKIE_MAX, FEATURE_GROUP, FEATURE_VOLATILE, LABEL_MAX, OVERHEAD, VERSION};
use cistern_wire::{
    AgentId, Bytes8, Challenge, Field as _, Form, Handle, Hello, Limit, Limited, Message, Raw, Refuse, RefuseReason, SessionId, Welcome,
    Whose,
};
use core::time::Duration;
use log::{debug, warn};

/// When an agent that met a full table should try again, in milliseconds.
pub(crate) const BUSY_RETRY_MS: u32 = 1_000;
/// How far above the incarnation of a live session the next one of its agent may be: who has started so often since has not been here for
/// that long, and his session is probed.
const JUMP_MAX: u64 = 65_536;

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
            return self.refuse_hello(path, packet, hello.handshake, len, RefuseReason::Version);
        }
        if hello.label.0.len() > LABEL_MAX || hello.cookie.0.len() > COOKIE_MAX || !is_first_packet(hello.first_packet) {
            return self.drop_datagram(path, Dropped::BadHello);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A HELLO without a valid cookie MUST NOT change or leave behind anything at the server.
        let Some(cookie) = self.cookies.check(self.now, path.remote, &hello) else {
            return self.challenge(path, packet, &hello, len);
        };
        if let Err(reason) = self.admit((path, Owner::of(path.remote)), hello.agent, hello.incarnation) {
            return self.refuse_hello(path, packet, hello.handshake, len, reason);
        }
        let id = match self.half_open.of_agent(self.now, hello.agent) {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A repeated HELLO of one handshake MUST be offered the same session, as long as that is half-open.
            Some(HalfOpen { opening, .. }) if (opening.handshake, opening.incarnation) == (hello.handshake, hello.incarnation) => {
                // This address is proven by its cookie, too.
                opening.path = path;
                opening.id
            }
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A HELLO whose cookie is older than the one of its agent's half-open session MUST NOT take that one's place.
            Some(half) if cookie < half.cookie => return self.drop_datagram(path, Dropped::OldHandshake),
            _ => {
                let half = self.half_open_of(path, &hello, cookie);
                let id = half.opening.id;
                self.half_open.insert(self.now, half, self.config.opening_max as usize);
                id
            }
        };
        if bugs::is(Bug::H4) {
            self.supersede(hello.agent, hello.incarnation, &[], path);
        }
        self.welcome(path, packet, id, len);
    }

    /// Whether this start of an agent may have a session now, that would count for `owner`.
    pub(crate) fn admit(&mut self, (path, owner): (Path, Owner), agent: AgentId, incarnation: u64) -> Result<(), RefuseReason> {
        let known = self.sessions.agent(agent);
        let highest = known.map_or(0, |known| known.incarnation);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The server MUST keep the highest incarnation of each agent durably, and refuse a HELLO with a lower one.
        if incarnation < highest {
            if self.warnings.admit(self.now, Reason::Outdated, agent) {
                warn!(
                    "{}: refused agent {agent} at {}: incarnation {incarnation} is not the newest ({highest}); if it is not a copy of its \
                     state directory, it was restarted",
                    self.who, path.remote,
                );
            }
            return Err(RefuseReason::Superseded);
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST refuse a HELLO whose incarnation is more than 65,536 above that of a session of the same agent.
        if let Some(known) = known
            && incarnation - highest > JUMP_MAX
            && !bugs::is(Bug::A5)
        {
            debug!("{}: refused agent {agent} at {}: incarnation {incarnation} after {highest}", self.who, path.remote);
            // If nobody answers for the session, it will be gone when the agent tries again.
            if self.is_good(known.newest) {
                self.probe(known.newest);
            }
            return Err(RefuseReason::Ahead);
        }
        self.admit_one_more(path, owner, agent)
    }

    /// Whether there is room for a session that is opened from `path`.
    fn admit_one_more(&mut self, path: Path, owner: Owner, agent: AgentId) -> Result<(), RefuseReason> {
        let nearly = |bound: u32| (bound - bound / 8) as usize;
        // A key counts wherever its sessions come from; who has none, by its network.
        let network = if matches!(owner, Owner::Key(_)) { None } else { Network::of(path.remote) };
        let neighbours = self.neighbours(network, owner);
        if self.sessions.len() >= nearly(self.config.sessions_max) && self.probes.allow(self.now) {
            self.probe_some(None);
        } else if neighbours >= nearly(self.config.network_sessions_max) && self.probes.allow(self.now) {
            if network.is_some() { self.probe_some(network) } else { self.probe_own(owner) }
        }
        // Who had a session before the start has a place, which others leave to it.
        let is_back = self.sessions.is_back(agent);
        let taken = self.sessions.len() + if is_back { 0 } else { self.sessions.counts().of_before };
        //= wire-spec.md#8-2-limits-of-a-server
        //# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
        if taken >= self.config.sessions_max as usize {
            if self.warnings.admit(self.now, Reason::Full, agent) {
                warn!(
                    "{}: refused agent {agent} at {}: the table of sessions is full; raise sessions-max, or evict agents",
                    self.who, path.remote
                );
            }
            return Err(RefuseReason::Busy);
        }
        if !is_back && !self.share_has_room(owner) {
            if self.warnings.admit(self.now, Reason::Crowded, agent) {
                warn!(
                    "{}: refused agent {agent} at {}: its {owner} has its share of the table of sessions; raise sessions-max, or evict agents",
                    self.who, path.remote
                );
            }
            return Err(RefuseReason::Crowded);
        }
        if !is_back && neighbours >= self.config.network_sessions_max as usize {
            if self.warnings.admit(self.now, Reason::Crowded, agent) {
                let whose = if network.is_some() { "network (/24 of IPv4, /64 of IPv6)" } else { "key" };
                warn!(
                    "{}: refused agent {agent} at {}: its {whose} has {neighbours} sessions; raise network-sessions-max, or evict agents",
                    self.who, path.remote
                );
            }
            return Err(RefuseReason::Crowded);
        }
        Ok(())
    }

    /// How many sessions count as those of one network, or of one key.
    fn neighbours(&self, network: Option<Network>, owner: Owner) -> usize {
        match (network, owner) {
            (Some(network), _) => self.sessions.of_network(network).len(),
            (None, Owner::Key(_)) => self.scheduler.of_owner(owner).1,
            (None, _) => 0,
        }
    }

    /// Why a key may not have one session more.
    pub(crate) fn sessions_limit(&self, owner: Owner) -> Limited {
        let (own, bound) = (self.neighbours(None, owner), self.config.network_sessions_max as usize);
        if own >= bound {
            return used_up(Limit::Sessions, Whose::Host, own, bound);
        }
        let (shared, all) = self.shared_sessions();
        shared.limited(Limit::Sessions, all, own, 1)
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
        self.send_handshake(path, &Message::Challenge(Challenge { handshake, echo: packet, cookie: Bytes8(&cookie) }));
    }

    fn refuse_hello(&mut self, path: Path, packet: u64, handshake: u64, len: usize, reason: RefuseReason) {
        if !self.may_answer(path, OVERHEAD + Refuse::LEN, len) {
            return;
        }
        let retry_ms = match reason {
            RefuseReason::Busy | RefuseReason::Crowded | RefuseReason::Ahead | RefuseReason::Standby => BUSY_RETRY_MS,
            RefuseReason::Version | RefuseReason::Superseded | RefuseReason::Stopping => 0,
        };
        debug!("{}: refused a handshake from {}: {reason}", self.who, path.remote);
        self.stats.count_refused(reason);
        let refuse = Refuse { handshake, echo: packet, reason, version_min: VERSION, version_max: VERSION, retry_ms, serving: 0 };
        self.send_handshake(path, &Message::Refuse(refuse));
    }

    /// Whether an answer of `answer` bytes may go to who has not proven the address, for a datagram of `cause` bytes (section 11.6).
    pub(crate) fn may_answer(&mut self, path: Path, answer: usize, cause: usize) -> bool {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be smaller than the datagram that caused it.
        if answer >= cause {
            self.drop_datagram(path, Dropped::Amplification);
            return false;
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# What is sent without a session MUST be limited in rate.
        if !self.challenges.allow(self.now, path.remote, &self.cookies) {
            self.drop_datagram(path, Dropped::RateLimited);
            return false;
        }
        true
    }

    /// A new half-open session.
    pub(crate) fn half_open_of(&mut self, path: Path, hello: &Hello<'_>, cookie: CookieTime) -> HalfOpen {
        let id = self.fresh_session_id();
        let opening = Opening {
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
            received: ReplayWindow::starting_at(hello.first_packet),
            sent: PacketCounter::starting_at(if self.form() == Form::Plain { first_packet(&mut self.rng) } else { 1 }),
            sealer: Sealer::Plain,
            now: self.now,
            path,
            max_datagram: hello.max_datagram.min(self.config.max_datagram).max(SMALL),
            window: hello.window.clamp(1, self.config.window),
            round_trip: cookie.age(self.now),
            last_heard: self.config.last_heard,
        };
        debug!("{}: offers session {id} to agent {} at {}", self.who, hello.agent, path.remote);
        let seen = (hello.store, hello.epoch, hello.server_incarnation);
        HalfOpen { opening, boot: hello.boot, seen, cookie, sealed: None, refused: false }
    }

    /// The lease period of the session that is offered, in microseconds, rounded down: the agent must not believe in more than is waited
    /// for (section 11.1). That of a long session from which it may reclaim is not shortened: its agent may go by it until it hears that
    /// the reclaim is complete, and then the server has only the new session to wait by.
    fn lease_of(&self, hello: &Hello<'_>) -> u32 {
        let asked = self.config.lease_for(Duration::from_micros(hello.lease_us));
        let former = self.longest_former(hello.agent, hello.incarnation).unwrap_or_default();
        //= wire-spec.md#11-1-lease
        //# WELCOME MUST give the lease period that HELLO asks for, within the server's bounds, but none shorter than that of a long session
        //# from which the agent may reclaim.
        micros32(asked.max(former))
    }

    /// Offers a session; nothing is promised yet.
    fn welcome(&mut self, path: Path, echo: u64, id: SessionId, len: usize) {
        if Welcome::LEN + OVERHEAD >= len {
            return self.drop_datagram(path, Dropped::Amplification);
        }
        let features = self.features();
        let Some(HalfOpen { opening, .. }) = self.half_open.find(self.now, id) else {
            return;
        };
        let welcome = terms(&self.config, self.identity, features, opening, echo);
        self.send_handshake(path, &Message::Welcome(welcome));
    }

    fn fresh_session_id(&mut self) -> SessionId {
        loop {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# Session ids MUST be random, and differ from those of all sessions that are live or recorded.
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A server MUST NOT take up a session of an earlier server incarnation under its old id.
            let id = SessionId(self.rng.nonzero_u64().get());
            if self.sessions.find(id).is_none() && self.half_open.find(self.now, id).is_none() {
                return id;
            }
        }
    }
}

impl Server {
    /// What WELCOME names. Bits of agents that it does not know are not looked at.
    pub(crate) fn features(&self) -> u64 {
        //= wire-spec.md#10-3-features
        //# A receiver MUST ignore feature bits that it does not know.
        let of = |is: bool, feature| if is { feature } else { 0 };
        of(self.config.volatile, FEATURE_VOLATILE) | of(self.tenure.is_limited(), FEATURE_GROUP)
    }
}

/// What a session is that is offered.
pub(crate) fn terms(config: &Config, identity: Identity, features: u64, opening: &Opening, echo: u64) -> Welcome {
    let lease = Duration::from_micros(opening.lease_us.into());
    Welcome {
        handshake: opening.handshake,
        echo,
        version: VERSION,
        session: opening.id,
        handle: opening.handle,
        store: identity.store,
        epoch: identity.epoch,
        server_incarnation: identity.incarnation,
        features,
        lease_us: opening.lease_us.into(),
        delta_ppm: config.delta_ppm,
        epsilon_us: micros32(config.epsilon),
        delivery_timeout_us: micros32(config.delivery_timeout_for(lease)),
        window: opening.window,
        max_datagram: opening.max_datagram,
        first_packet: opening.sent.first(),
    }
}

/// A configured span of at most an hour in whole microseconds.
fn micros32(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}
