//! The handshake, for a session or to verify the present one; and which server the agent takes (`wire-spec.md` 6.1, 11.6).
//!
//! Not that of another store, nor of an older state of the store that is known. One handshake at a time, with one number; the lease of a session
//! begins at the send time of the very HELLO that WELCOME echoes; an agent that needs no session opens none.

use crate::agent::{Agent, Closing};
use crate::api::{Event, OpError};
use crate::believed;
use crate::lease::Renewal;
use crate::stats::Dropped;
use crate::timer::Timer;
use crate::transport::{Channel, Opened};
use crate::users::Watches;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, PacketCounter, Path, Question, RoundTrip, SentLog, first_packet};
use cistern_wire::limits::{COOKIE_MAX, DATAGRAM_MIN, FEATURE_VOLATILE, VERSION};
use cistern_wire::{Bytes8, Challenge, Header, Hello, List, Packer, Refuse, RefuseReason, SessionFate, SessionId, StoreId, Welcome};
use core::time::Duration;
use log::{debug, info, warn};

/// HELLO is sent so often to one address before the next is tried.
const TRIES_PER_ADDRESS: u32 = 3;
/// Longest pause between two HELLOs of a handshake, and two keep-alives of what is in use: somebody waits for the answer.
pub(super) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// HELLOs whose send times are remembered: more than PAUSE_MAX apart, they span longer than any round trip.
const SENT_MAX: usize = 64;
/// So many challenges are answered at once; a server that sends more is answered no faster than it is asked.
const CHALLENGES_AT_ONCE: u32 = 3;
/// So many HELLOs are sent to verify a session of which nothing is in use.
const HELLOS_IN_DOUBT: u64 = 24;
/// A lease that was asked for is renewed on purpose after this part of τ, but not sooner than after the least: where a period of 2 s is.
const RENEW_WITHIN_PART: u32 = 8;
const RENEW_WITHIN_LEAST: Duration = Duration::from_millis(1_200);

/// The server as last seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerIdentity {
    store: StoreId,
    epoch: u8,
    incarnation: u64,
    volatile: bool,
}

/// What is made of a server that offers a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Judgement {
    Accept,
    /// It may be taken once what was held of the one before it is over.
    Wait,
    Refuse,
}

impl ServerIdentity {
    fn of(welcome: &Welcome<'_>) -> Self {
        let Welcome { store, epoch, server_incarnation, features, .. } = *welcome;
        //= wire-spec.md#10-3-features
        //# A receiver MUST ignore feature bits that it does not know.
        Self { store, epoch, incarnation: server_incarnation, volatile: features & FEATURE_VOLATILE != 0 }
    }

    /// Whether a server that shows itself as `other` may follow this one; `held`: the lease from this one is not over.
    fn judge(self, other: Self, held: bool) -> Judgement {
        if self.store == other.store {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# The agent MUST refuse, and report, a server of the known store with a lower epoch, or the same epoch and a lower
            //# incarnation, than it has seen.
            let older = (other.epoch, other.incarnation) < (self.epoch, self.incarnation);
            return if older { Judgement::Refuse } else { Judgement::Accept };
        }
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The agent MUST refuse, and report, a server of another store than the one it knows, unless that says that its store is volatile.
        match self.volatile && other.volatile {
            false => Judgement::Refuse,
            true if held => Judgement::Wait,
            true => Judgement::Accept,
        }
    }
}

/// A handshake under way.
#[derive(Debug)]
pub(super) struct Handshake {
    handshake: u64,
    /// When it was begun: what was sent in the session since asks the same.
    pub(super) began: Instant,
    counter: PacketCounter,
    /// With which number the session begins that it opens.
    first_packet: u64,
    log: SentLog,
    pub(super) cookie: Vec<u8>,
    /// Newest HELLO that was answered, but not by WELCOME.
    answered: u64,
    challenges: u32,
    address: usize,
    /// HELLOs to this address, and to any, without an answer.
    tries: u32,
    attempts: u32,
    rtt: RoundTrip,
    /// Addresses in a row that will give no session.
    refusals: usize,
    /// HELLO is to be sent now.
    pub(super) due: bool,
    /// Why there is no session yet, if that is known.
    pub(super) error: Option<OpError>,
    told: bool,
    /// Whether it was said that a session that was offered is not taken.
    warned: bool,
}

impl Agent {
    /// Begins a handshake if something needs a session, and stops one that nothing needs any more.
    pub(super) fn open_if_needed(&mut self) {
        let tried = self.handshake.as_ref().map(|opening| opening.counter.count());
        if let Some(channel) = self.sessions.channel() {
            // The session is verified. If nobody waits for the truth, it is not sought for ever.
            if (channel.is_dormant() || tried.is_some_and(|tried| tried > HELLOS_IN_DOUBT)) && !self.has_user() {
                self.end_handshake();
            }
            return;
        }
        if !self.needs_session() {
            return self.end_handshake();
        }
        if tried.is_some() || self.servers.is_empty() {
            return;
        }
        let begin = self.not_before.filter(|at| !self.now.waited(*at));
        self.begin_handshake(begin);
    }

    /// Whether a command, a wait or a watch can only go on in a session.
    pub(super) fn needs_session(&self) -> bool {
        self.closing == Closing::No && (self.tasks.count() > 0 || self.locks.counts().waiters > 0 || self.watches.has_users())
    }

    /// Begins a handshake, now or later: for a session, or to verify the present one.
    pub(super) fn begin_handshake(&mut self, begin: Option<Instant>) {
        let address = self.sessions.channel().map_or(0, Channel::address);
        self.handshake = Some(Handshake {
            handshake: self.rng.nonzero_u64().get(),
            began: self.now,
            counter: PacketCounter::starting_at(1),
            //= wire-spec.md#3-2-packet-numbers
            //# All HELLOs of one handshake MUST name the same first packet number.
            first_packet: first_packet(&mut self.rng),
            log: SentLog::new(SENT_MAX),
            cookie: Vec::new(),
            answered: 0,
            challenges: 0,
            address,
            tries: 0,
            attempts: 0,
            rtt: RoundTrip::new(PAUSE_MAX),
            refusals: 0,
            due: begin.is_none(),
            error: None,
            told: false,
            warned: false,
        });
        self.time(Timer::Handshake, begin, Question::Waited);
    }

    pub(super) fn end_handshake(&mut self) {
        if self.handshake.take().is_some() {
            self.timers.cancel(Timer::Handshake);
        }
    }

    /// The pause before HELLO is over.
    pub(super) fn hello_is_due(&mut self) {
        let (addresses, verifying) = (self.servers.len(), self.sessions.channel().is_some());
        let Some(opening) = &mut self.handshake else { return };
        opening.due = true;
        // Keep-alives go to the address of the session; whoever verifies it asks at all of them.
        let most = if verifying && opening.cookie.is_empty() { 1 } else { TRIES_PER_ADDRESS };
        if opening.tries >= most {
            let last = opening.address + 1 >= addresses;
            opening.move_on(addresses);
            if last && opening.error.is_none() {
                self.tell_no_session(OpError::Unreachable);
            }
        }
    }

    /// Tells once for each handshake that there is no session for now.
    fn tell_no_session(&mut self, error: OpError) {
        if self.sessions.channel().is_some() && error == OpError::Unreachable {
            return;
        }
        let Some(opening) = self.handshake.as_mut() else { return };
        opening.error = Some(error);
        if !core::mem::replace(&mut opening.told, true) {
            self.events.push_back(Event::NoSession { error });
        }
    }

    /// Makes the next HELLO, if one is due.
    pub(super) fn next_hello(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let now = self.now;
        self.handshake.as_ref().filter(|opening| opening.due)?;
        let former = self.sessions.claims();
        // While the lease of a session that is verified runs, no pause may be a large part of it.
        let runs = self.sessions.channel().filter(|_| self.lease.certain(now)).map(|channel| channel.tau() / 8);
        let pause_max = runs.map_or(PAUSE_MAX, |pause| PAUSE_MAX.min(pause));
        let Self { handshake: opening, identity, known, config, servers, rng, timers, .. } = self;
        let opening = opening.as_mut().filter(|opening| opening.due)?;
        opening.due = false;
        let packet = opening.counter.take()?;
        opening.log.record(packet, now);
        let known = known.unwrap_or(ServerIdentity { store: StoreId::default(), epoch: 0, incarnation: 0, volatile: false });
        let hello = Hello {
            window: config.window,
            max_datagram: config.max_datagram,
            incarnation: identity.incarnation,
            boot: identity.boot,
            store: known.store,
            epoch: known.epoch,
            server_incarnation: known.incarnation,
            lease_us: u64::try_from(config.lease.as_micros()).unwrap_or(u64::MAX),
            first_packet: opening.first_packet,
            label: Bytes8(&identity.label),
            cookie: Bytes8(&opening.cookie),
            former: List::of(&former),
            ..Hello::new(identity.agent, opening.handshake)
        };
        let mut packer = Packer::new(buf, Header { from_server: false, session: SessionId(0), packet }, DATAGRAM_MIN);
        let fits = packer.push(&hello.into());
        debug_assert!(fits, "the longest HELLO fits the smallest datagram");
        packer.finish();
        opening.rtt.set_cap(pause_max);
        timers.set(Timer::Handshake, now.plus(opening.rtt.backoff(opening.attempts, rng)), Question::Waited);
        opening.tries += 1;
        opening.attempts = opening.attempts.saturating_add(1);
        servers.get(opening.address).copied().map(Path::to)
    }

    pub(super) fn challenged(&mut self, path: Path, challenge: &Challenge<'_>) {
        let (now, address) = (self.now, self.servers.iter().position(|server| *server == path.remote));
        // With a longer cookie, no server would take the HELLO.
        let fits = (1..=COOKIE_MAX).contains(&challenge.cookie.0.len());
        let Some((opening, sent)) = fits.then(|| self.answer_to(challenge.handshake, challenge.echo)).flatten() else {
            return self.dropped(Dropped::StrayHandshake);
        };
        opening.challenges += 1;
        opening.cookie = challenge.cookie.0.to_vec();
        opening.rtt.sample(now.since(sent));
        // The cookie is worth something where it was made.
        opening.address = address.unwrap_or(opening.address);
        opening.tries = 0;
        if opening.challenges <= CHALLENGES_AT_ONCE {
            opening.attempts = 0;
            opening.due = true;
        }
    }

    /// The handshake and the HELLO that an answer is about, if it is the first answer to that or a newer one.
    pub(super) fn answer_to(&mut self, handshake: u64, echo: u64) -> Option<(&mut Handshake, Instant)> {
        let opening = self.handshake.as_mut().filter(|opening| opening.handshake == handshake && opening.answered < echo)?;
        let sent = opening.log.sent_at(echo)?;
        opening.answered = echo;
        Some((opening, sent))
    }

    pub(super) fn refused(&mut self, refuse: &Refuse) {
        if self.answer_to(refuse.handshake, refuse.echo).is_none() {
            return self.dropped(Dropped::StrayHandshake);
        }
        debug!("{}: refused: {}", self.who, refuse.reason);
        self.no_session_here(OpError::Refused(refuse.reason), refuse.retry_ms);
    }

    /// The address tried gives no session; after `retry_ms` it may, unless that is 0.
    fn no_session_here(&mut self, error: OpError, retry_ms: u32) {
        let addresses = self.servers.len();
        let pause = believed::pause(retry_ms);
        let spread = self.rng.jitter(pause / 4);
        let Some(opening) = &mut self.handshake else { return };
        opening.refusals += usize::from(retry_ms == 0);
        let hopeless = opening.refusals >= addresses;
        opening.move_on(addresses);
        opening.due = retry_ms == 0 && !hopeless;
        self.tell_no_session(error);
        if hopeless {
            self.end_handshake();
            self.not_before = Some(self.now.plus(PAUSE_MAX));
            // With an old session in doubt, what runs in it still has its time.
            if self.sessions.channel().is_none() {
                self.end_all_commands(error);
            }
        } else if retry_ms > 0 {
            self.time(Timer::Handshake, Some(self.now.plus(pause + spread)), Question::Waited);
        }
    }

    pub(super) fn welcomed(&mut self, path: Path, welcome: &Welcome<'_>) {
        let opening = self.handshake.as_ref().filter(|opening| opening.handshake == welcome.handshake);
        let Some(sent) = opening.and_then(|opening| opening.log.sent_at(welcome.echo)) else {
            return self.dropped(Dropped::StrayHandshake);
        };
        //= wire-spec.md#10-2-agreeing-on-a-version
        //# An agent MUST end a handshake whose WELCOME names a version outside the range of its HELLO.
        if welcome.version != VERSION {
            return self.no_session_here(OpError::Refused(RefuseReason::Version), 0);
        }
        let tau = Duration::from_micros(welcome.lease_us);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent that has a session MUST take no WELCOME that does not tell its fate.
        let present = self.sessions.present();
        let tells = present.is_none_or(|present| welcome.former.into_iter().any(|told| told.session == present));
        let other = !self.sessions.is_former(welcome.session) && present != Some(welcome.session);
        if let Some((field, rule)) = believed::unbelievable(welcome, &self.config) {
            self.warn_of_offer(path, field, rule, welcome);
            return self.dropped(Dropped::BadWelcome);
        }
        if !tells || !other {
            return self.dropped(Dropped::BadWelcome);
        }
        let server = ServerIdentity::of(welcome);
        match self.known.map_or(Judgement::Accept, |known| known.judge(server, self.lease.certain(self.now))) {
            Judgement::Accept => {}
            Judgement::Wait => {
                debug!("{}: the server has a new volatile store; the lease from its former one runs out first", self.who);
                return self.dropped(Dropped::BadWelcome);
            }
            Judgement::Refuse => {
                warn!(
                    "{}: {} offers a session for store {} epoch {} incarnation {}, which is not the server known so far, or an old copy of it",
                    self.who, path.remote, server.store, server.epoch, server.incarnation
                );
                return self.no_session_here(OpError::AnotherServer, 0);
            }
        }
        self.open_session(path, welcome, sent, tau, server);
    }

    /// Says once in a handshake why a session that was offered is not taken.
    fn warn_of_offer(&mut self, path: Path, field: &str, rule: &str, welcome: &Welcome<'_>) {
        let Some(opening) = &mut self.handshake else { return };
        if !core::mem::replace(&mut opening.warned, true) {
            let who = &self.who;
            warn!("{who}: {} offers a session that is not taken: its {field} must be {rule}; it offers {welcome:?}", path.remote);
        }
    }

    fn open_session(&mut self, path: Path, welcome: &Welcome<'_>, sent: Instant, tau: Duration, server: ServerIdentity) {
        let fates: BTreeMap<SessionId, SessionFate> = welcome.former.into_iter().map(|told| (told.session, told.fate)).collect();
        self.leave_session(&fates);
        self.sessions.ended(&mut self.timers, |session| fates.get(&session) == Some(&SessionFate::Ended));
        if self.offered.is_some_and(|offered| offered.store != server.store) {
            // What another store says of mutations means nothing.
            self.abandon_outcomes(None);
            // Nor do its objects' numbers.
            self.with_watches(Watches::lose_all);
        }
        let Some(opening) = self.handshake.take() else { return };
        self.timers.cancel(Timer::Handshake);
        let max_datagram = welcome.max_datagram.min(self.config.max_datagram);
        self.offered = Some(server);
        let promised = if bugs::is(Bug::M3b) { tau + tau * welcome.delta_ppm / 1_000_000 } else { tau };
        // Whoever asked for a long lease wants to have most of it left when the server goes away.
        let asked = !self.config.lease.is_zero();
        let renew_within = if asked { RENEW_WITHIN_LEAST.max(tau / RENEW_WITHIN_PART) } else { tau };
        self.lease.open(promised, renew_within);
        self.lease.renew(sent, Renewal::Opening);
        if self.reclaim.is_none() {
            self.cache.session_opened();
        }
        self.tasks.set_datagram(max_datagram.into());
        let address = self.servers.iter().position(|server| *server == path.remote).unwrap_or(opening.address);
        self.sessions.open(Channel::new(Opened {
            session: welcome.session,
            address,
            path: self.servers.get(address).copied().map_or_else(|| Path::to(([0; 4], 0).into()), Path::to),
            tau,
            first_sent: opening.first_packet,
            first_received: welcome.first_packet,
            sent_max: self.config.sent_max,
            window: welcome.window.min(self.config.window),
            max_datagram: max_datagram.into(),
            rtt: opening.rtt,
        }));
        self.ask_outcomes();
        self.with_watches(Watches::session_opened);
        info!("{}: session {} is open; lease {tau:?}", self.who, welcome.session);
        self.events.push_back(Event::SessionOpened { session: welcome.session });
    }
}

impl Handshake {
    /// Whether a HELLO of it has gone out.
    pub(super) const fn has_asked(&self) -> bool {
        self.counter.count() > 0
    }

    /// Goes on at the next address.
    fn move_on(&mut self, addresses: usize) {
        self.tries = 0;
        self.address = (self.address + 1) % addresses.max(1);
        // It was made for another address, or is worth nothing: a server is silent to a cookie that has opened a session.
        self.cookie.clear();
    }
}
