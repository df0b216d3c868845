//! Opening and verifying a session: when a handshake begins and ends, what it says, and what its answers lead to (`wire-spec.md` 6.1, 11.6).
//!
//! One handshake at a time; an agent that needs no session opens none. WELCOME changes nothing: it only tells where CONFIRM is to be sent. If
//! there is no session, the first requests go with that; if there is one, it goes on until the server has said in the new one what becomes of it.

use crate::agent::{Agent, Closing};
use crate::api::{Event, OpError};
use crate::call::{self, Timer};
use crate::lease::{Renewal, part};
use crate::session::handshake::{Handshake, Judgement, Offer, PAUSE_MAX, ServerIdentity, unbelievable};
use crate::stats::Dropped;
use crate::transport::{Agreed, Channel, Cx};
use crate::users::Watches;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Path, Question};
use cistern_seal::{Psk, Sealer};
use cistern_wire::limits::{COOKIE_MAX, FEATURE_GROUP, VERSION};
use cistern_wire::sealed::OpenPayload;
use cistern_wire::{
    Bytes8, Challenge, Form, Header, Hello, Message, Messages, Opened, Refuse, RefuseReason, SessionFate, SessionId, Welcome,
};
use core::time::Duration;
use log::{debug, info, warn};

/// At a server of a group: what another may take to follow it, from its death until agents have a lease from the other, and to spare.
const TAKE_OVER: Duration = Duration::from_secs(1);

/// So many HELLOs are sent to verify a session of which nothing is in use.
const HELLOS_IN_DOUBT: u64 = 24;
/// A lease that was asked for is renewed on purpose after this part of τ, but not sooner than after the least: where a period of 2 s is.
const RENEW_WITHIN_PART: u32 = 8;
const RENEW_WITHIN_LEAST: Duration = Duration::from_millis(1_200);

impl Agent {
    /// Begins a handshake if something needs a session, and stops one that nothing needs any more.
    pub(super) fn open_if_needed(&mut self) {
        let tried = self.handshake.as_ref().map(Handshake::sent);
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
        self.take_up_servers();
        let address = self.sessions.channel().map_or(0, Channel::address);
        self.handshake = Some(Handshake::new(self.now, &mut self.rng, address, begin.is_none()));
        self.time(Timer::Handshake, begin, Question::Waited);
    }

    pub(super) fn end_handshake(&mut self) {
        let Some(handshake) = self.handshake.take() else { return };
        self.timers.cancel(Timer::Handshake);
        self.decline(handshake.into_offer());
    }

    /// A session that was offered is not wanted. If CONFIRM was sent it may be open.
    fn decline(&mut self, offer: Option<Offer>) {
        if let Some(Offer { channel, .. }) = offer.filter(|offer| offer.channel.is_used()) {
            self.sessions.decline(*channel);
        }
    }

    /// What was offered is worth nothing, or asked for by an agent that had a session: another one is asked for. Without an offer nothing
    /// happens.
    pub(super) fn start_over(&mut self) {
        if self.handshake.as_ref().is_some_and(Handshake::is_confirming) {
            self.shake_anew();
        }
    }

    /// Another handshake takes the place of the present one, if there is one, whatever was asked and offered in that.
    pub(super) fn shake_anew(&mut self) {
        let Some(mut opening) = self.handshake.take() else { return };
        let begin = self.now.plus(self.spread());
        let offer = opening.start_over(self.now, &mut self.rng);
        self.decline(offer);
        self.handshake = Some(opening);
        self.time(Timer::Handshake, Some(begin), Question::Waited);
    }

    /// The pause before HELLO is over.
    pub(super) fn hello_is_due(&mut self) {
        let (addresses, verifying) = (self.servers.len(), self.sessions.channel().is_some());
        if self.handshake.as_ref().is_some_and(Handshake::is_in_vain) {
            return self.start_over();
        }
        if !self.handshake.as_mut().is_some_and(|opening| opening.pause_is_over(addresses, verifying)) {
            return;
        }
        let other = self.try_other_key();
        if let Some(opening) = self.handshake.as_mut().filter(|_| other) {
            opening.begin_anew();
        }
        if self.handshake.as_ref().is_some_and(|opening| opening.error().is_none()) {
            self.tell_no_session(OpError::Unreachable);
        }
    }

    /// Tells once for each handshake that there is no session for now.
    fn tell_no_session(&mut self, error: OpError) {
        if self.sessions.channel().is_some() && error == OpError::Unreachable {
            return;
        }
        if self.handshake.as_mut().is_some_and(|opening| opening.failed(error)) {
            self.events.push_back(Event::NoSession { error });
        }
    }

    /// Makes the next HELLO, or the next CONFIRM of what was offered, if one is due.
    pub(super) fn next_hello(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let now = self.now;
        self.handshake.as_ref().filter(|opening| opening.is_due())?;
        // While the lease of a session that is verified runs, no pause may be a large part of it.
        let runs = self.sessions.channel().filter(|_| self.lease.certain(now)).map(|channel| channel.tau() / 8);
        let pause_max = runs.map_or(PAUSE_MAX, |pause| PAUSE_MAX.min(pause));
        let roster = self.roster_version();
        let Self { handshake: opening, identity, known, config, servers, rng, timers, cipher, keys, sessions, .. } = self;
        let mut cx = Cx { now, timers, rng, cipher };
        let opening = opening.as_mut()?;
        if opening.is_confirming() {
            let channel = opening.confirms()?;
            channel.set_rto_cap(pause_max);
            return channel.confirm(&mut cx, buf);
        }
        let known = known.unwrap_or_default();
        let hello = Hello {
            window: config.window,
            max_datagram: config.max_datagram,
            incarnation: identity.incarnation,
            boot: identity.boot,
            store: known.store,
            epoch: known.epoch,
            server_incarnation: known.incarnation,
            lease_us: u64::try_from(config.lease.as_micros()).unwrap_or(u64::MAX),
            label: Bytes8(&identity.label),
            ..Hello::new(identity.agent, 0)
        };
        let address = match keys {
            Some(keys) => {
                if servers.get(opening.address()).is_some_and(|address| keys.choose(*address)) {
                    opening.begin_anew();
                }
                let resumable = sessions.channel().and_then(Channel::resumable);
                opening.poll_sealed(&mut cx, keys, &payload_of(&hello, roster), resumable, pause_max, buf)?
            }
            None => opening.poll_transmit(&mut cx, hello, pause_max, buf)?,
        };
        servers.get(address).copied().map(Path::to)
    }

    pub(super) fn challenged(&mut self, path: Path, challenge: &Challenge<'_>) {
        let (now, address) = (self.now, self.servers.iter().position(|server| *server == path.remote));
        // With a longer cookie, no server would take the HELLO.
        let fits = (1..=COOKIE_MAX).contains(&challenge.cookie.0.len());
        let Some(sent) = fits.then(|| self.answer_to(challenge.handshake, challenge.echo)).flatten() else {
            return self.dropped(Dropped::StrayHandshake);
        };
        if let Some(opening) = &mut self.handshake {
            opening.challenged(now, sent, address, challenge.cookie.0);
        }
    }

    /// When the HELLO was sent that an answer is about, if it is the first answer to that or a newer one.
    pub(super) fn answer_to(&mut self, handshake: u64, echo: u64) -> Option<Instant> {
        self.handshake.as_mut()?.answer_to(handshake, echo)
    }

    pub(super) fn refused(&mut self, refuse: &Refuse) {
        if self.answer_to(refuse.handshake, refuse.echo).is_none() {
            return self.dropped(Dropped::StrayHandshake);
        }
        debug!("{}: refused: {}", self.who, refuse.reason);
        self.refused_by(refuse.reason, refuse.serving, refuse.retry_ms);
    }

    /// The address tried refuses; `serving`: which place in the list of servers a standby has named, from 1.
    pub(super) fn refused_by(&mut self, reason: RefuseReason, serving: u8, retry_ms: u32) {
        let addresses = self.servers.len();
        let named = usize::from(serving).checked_sub(1).filter(|place| *place < addresses);
        //= wire-spec.md#11-10-groups-of-servers
        //# An agent that a standby refuses MUST try the next of its servers at once, but after a round of them not before the pause that it was
        //# told.
        let is_standby = reason == RefuseReason::Standby;
        if is_standby && self.handshake.as_mut().is_some_and(|opening| opening.passed_on(addresses, named)) {
            return;
        }
        self.no_session_here(OpError::Refused(reason), retry_ms);
    }

    /// The address tried gives no session; after `retry_ms` it may, unless that is 0.
    pub(super) fn no_session_here(&mut self, error: OpError, retry_ms: u32) {
        let addresses = self.servers.len();
        let pause = call::pause(retry_ms);
        let spread = self.rng.jitter(pause / 4);
        let Some(opening) = &mut self.handshake else { return };
        let hopeless = opening.refused(addresses, retry_ms == 0);
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

    pub(super) fn welcomed(&mut self, path: Path, welcome: &Welcome, sealer: Sealer) {
        let asked = self.handshake.as_ref().filter(|opening| !opening.is_confirming());
        let Some(sent) = asked.and_then(|opening| opening.sent_at(welcome.handshake, welcome.echo)) else {
            return self.dropped(Dropped::StrayHandshake);
        };
        //= wire-spec.md#10-2-agreeing-on-a-version
        //# An agent MUST end a handshake whose WELCOME names a version outside the range of its HELLO.
        //= docs/sealed.md#the-handshake
        //# An agent MUST end the handshake unless the version in WELCOME's payload is the highest in both ranges.
        if welcome.version != VERSION {
            return self.no_session_here(OpError::Refused(RefuseReason::Version), 0);
        }
        let other = !self.sessions.is_former(welcome.session) && self.sessions.present() != Some(welcome.session);
        if let Some((field, rule)) = unbelievable(welcome, &self.config) {
            self.warn_of_offer(path, field, rule, welcome);
            return self.dropped(Dropped::BadWelcome);
        }
        if !other {
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
        self.take_offer(path, welcome, sent, server, sealer);
    }

    /// Says once in a handshake why a session that was offered is not taken.
    fn warn_of_offer(&mut self, path: Path, field: &str, rule: &str, welcome: &Welcome) {
        if self.handshake.as_mut().is_some_and(Handshake::warns) {
            let who = &self.who;
            warn!("{who}: {} offers a session that is not taken: its {field} must be {rule}; it offers {welcome:?}", path.remote);
        }
    }

    /// WELCOME is taken: CONFIRM goes to where it came from.
    fn take_offer(&mut self, path: Path, welcome: &Welcome, sent: Instant, server: ServerIdentity, sealer: Sealer) {
        let Some((first_sent, address, rtt)) = self.handshake.as_ref().map(Handshake::agreed) else { return };
        let tau = Duration::from_micros(welcome.lease_us);
        let max_datagram = welcome.max_datagram.min(self.config.max_datagram);
        let address = self.servers.iter().position(|server| *server == path.remote).unwrap_or(address);
        let channel = Channel::new(Agreed {
            session: welcome.session,
            address,
            path: self.servers.get(address).copied().map_or_else(|| Path::to(([0; 4], 0).into()), Path::to),
            tau,
            first_sent: if sealer.form() == Form::Plain { first_sent } else { 1 },
            first_received: welcome.first_packet,
            sent_max: self.config.sent_max,
            window: welcome.window.min(self.config.window),
            max_datagram: max_datagram.into(),
            rtt,
            former: self.sessions.claims(),
            sealer,
        });
        let renew_within = self.renew_within(tau, welcome.features & FEATURE_GROUP != 0);
        let offer = Offer {
            channel: Box::new(channel),
            server,
            tau: if bugs::is(Bug::M3b) { tau + tau * welcome.delta_ppm / 1_000_000 } else { tau },
            renew_within,
            max_datagram,
        };
        debug!("{}: session {} is offered; lease {tau:?}", self.who, welcome.session);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# WELCOME MUST NOT renew a lease, and MUST NOT change or end a session that the agent has.
        if self.sessions.present().is_none() {
            self.end_handshake();
            self.adopt(offer);
            if bugs::is(Bug::H5) {
                self.lease.renew(sent, Renewal::Opening);
            }
        } else if let Some(opening) = &mut self.handshake {
            opening.offered(offer);
            self.timers.cancel(Timer::Handshake);
        }
    }

    /// After how much of a lease of `tau` it is renewed on purpose, at the latest.
    fn renew_within(&self, tau: Duration, in_group: bool) -> Duration {
        // Whoever asked for a long lease wants to have most of it left when the server goes away.
        let asked = !self.config.lease.is_zero();
        let within = if asked { RENEW_WITHIN_LEAST.max(tau / RENEW_WITHIN_PART) } else { tau };
        if !in_group {
            return within;
        }
        //= wire-spec.md#11-10-groups-of-servers
        //# In a session with a server of a group an agent SHOULD renew its lease so early that a second is left before it becomes suspect.
        let suspect = part(tau, self.config.phases.renewing_ppm);
        within.min(suspect.saturating_sub(TAKE_OVER).max(tau / RENEW_WITHIN_PART))
    }

    /// A session becomes the present one. Nothing is usable under its lease before the server has answered in it.
    fn adopt(&mut self, offer: Offer) {
        let Offer { channel, server, tau, renew_within, max_datagram } = offer;
        self.offered = Some(server);
        self.lease.open(tau, renew_within);
        if self.reclaim.is_none() {
            self.cache.session_opened();
        }
        self.tasks.set_datagram(max_datagram.into());
        self.sessions.open(channel);
    }

    /// A datagram of a session that was offered, while another one is present.
    pub(super) fn of_offer(&mut self, path: Path, header: Header, messages: Messages<'_>) {
        let Some(offer) = self.handshake.as_mut().and_then(Handshake::offer) else { return };
        if let (Some(Message::Hint(hint)), 1) = ({ messages }.next(), messages.count()) {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST act on a HINT only if it echoes a packet that the agent sent and still remembers, or is a call (section
            //# 11.10).
            let own = offer.channel.sent_at(hint.echo).is_some();
            return if own { self.start_over() } else { self.dropped(Dropped::StrayHint) };
        }
        if let Err(reason) = offer.channel.judge(header.packet) {
            return self.dropped(reason);
        }
        offer.channel.note(header.packet);
        for message in messages {
            match message {
                Message::Known(known) => return self.known_is_said(path, &known),
                Message::Opened(opened) => {
                    self.leave_for_offer(&opened);
                    // What else is in the datagram comes again.
                    return;
                }
                // It is over before it was open.
                Message::Nack(nack) if self.is_offered_to(nack.echo) => return self.start_over(),
                _ => self.dropped(Dropped::UnknownSession),
            }
        }
    }

    /// Whether this was sent in the session that was offered.
    fn is_offered_to(&mut self, echo: u64) -> bool {
        self.handshake.as_mut().and_then(Handshake::offer).is_some_and(|offer| offer.channel.was_sent(echo))
    }

    /// OPENED has come in the session that was offered: it takes the place of the present one.
    fn leave_for_offer(&mut self, opened: &Opened<'_>) {
        let sent = self.is_offered_to(opened.echo);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent that has a session MUST take no OPENED that does not tell its fate.
        let tells = self.sessions.present().is_none_or(|present| opened.former.into_iter().any(|told| told.session == present));
        if !sent || !tells {
            return self.dropped(if sent { Dropped::BadWelcome } else { Dropped::UnknownEcho });
        }
        if let Some(offer) = self.handshake.take().and_then(Handshake::into_offer) {
            self.timers.cancel(Timer::Handshake);
            self.leave_session(&fates_of(opened));
            self.adopt(offer);
            self.opened(opened);
        }
    }

    /// OPENED has come in the present session.
    pub(super) fn opened(&mut self, opened: &Opened<'_>) {
        let first = self.sessions.channel().is_some_and(Channel::is_confirming);
        if !self.renew(opened.echo, Renewal::Opening, false) {
            return;
        }
        self.control_answered(opened.serial);
        if opened.resume != [0; 32] {
            self.sessions.channel_mut().into_iter().for_each(|channel| channel.set_resume_secret(Psk::from_bytes(opened.resume)));
        }
        let Some(channel) = self.sessions.channel().filter(|channel| first && !channel.is_confirming()) else { return };
        let (session, tau) = (channel.session(), channel.tau());
        let fates = fates_of(opened);
        self.sessions.ended(&mut self.timers, |session| fates.get(&session) == Some(&SessionFate::Ended));
        self.sessions.told(|session| fates.contains_key(&session));
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The identity of a server that has not answered CONFIRM MUST NOT bind an agent.
        let before = core::mem::replace(&mut self.known, self.offered);
        if before.is_some_and(|before| self.offered.is_some_and(|server| before.store != server.store)) {
            // What another store says of mutations means nothing.
            self.abandon_outcomes(None);
            // Nor do its objects' numbers.
            self.with_watches(Watches::lose_all);
        }
        self.ask_outcomes();
        self.with_watches(Watches::session_opened);
        info!("{}: session {session} is open; lease {tau:?}", self.who);
        self.events.push_back(Event::SessionOpened { session });
        self.roster_named(opened);
    }
}

/// What OPEN says, where plain mode would say `hello`.
const fn payload_of<'a>(hello: &Hello<'a>, roster: u32) -> OpenPayload<'a> {
    OpenPayload {
        instance: hello.agent,
        incarnation: hello.incarnation,
        boot: hello.boot,
        store: hello.store,
        epoch: hello.epoch,
        server_incarnation: hello.server_incarnation,
        window: hello.window,
        max_datagram: hello.max_datagram,
        features: hello.features,
        lease_us: hello.lease_us,
        roster,
        label: hello.label,
    }
}

fn fates_of(opened: &Opened<'_>) -> BTreeMap<SessionId, SessionFate> {
    opened.former.into_iter().map(|told| (told.session, told.fate)).collect()
}
