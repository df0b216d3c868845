//! A handshake, for a session or to verify the present one; which server is taken, and what is believed of what it offers
//! (`wire-spec.md` 6.1, 11.6).
//!
//! Not a server of another store, nor of an older state of the store that is known. One handshake has one number. An agent that has a session
//! keeps it until the server has answered CONFIRM in the one that it offers: until then that is an [`Offer`], part of the handshake.

use crate::api::OpError;
use crate::call::Timer;
use crate::config::{Config, LEASE_MIN};
use crate::keys::{COOKIE_LEN, Keys};
use crate::transport::{Channel, Cx};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, PacketCounter, Question, Rng, RoundTrip, SentLog, first_packet, is_first_packet};
use cistern_seal::Psk;
use cistern_wire::limits::{DATAGRAM_MIN, FEATURE_VOLATILE};
use cistern_wire::sealed::OpenPayload;
use cistern_wire::{Bytes8, Handle, Header, Hello, Packer, SessionId, StoreId, Welcome};
use core::ops::{Range, RangeInclusive};
use core::time::Duration;

/// HELLO is sent so often to a server with one address before it counts as silent, and to one that has answered before another is tried; of several
/// addresses each is tried once in a round, for one of them may serve while the others are down, and they count as silent after so many rounds.
const TRIES: u32 = 3;
/// Longest pause between two HELLOs of a handshake, and two keep-alives of what is in use: somebody waits for the answer.
pub(crate) const PAUSE_MAX: Duration = Duration::from_secs(1);
/// HELLOs whose send times are remembered: more than PAUSE_MAX apart, they span longer than any round trip.
const SENT_MAX: usize = 64;
/// CONFIRM is sent so often for the first offer; then another one is asked for, with twice the patience: the server's disk may be slow.
const CONFIRMS: u32 = 8;
const CONFIRMS_MAX: u32 = 64;
/// RESUME is sent so often in vain before OPEN is: a server that does not answer has thousands to answer, and OPEN would cost it more.
const RESUMES: u32 = 8;
/// So many challenges are answered at once; a server that sends more is answered no faster than it is asked.
const CHALLENGES_AT_ONCE: u32 = 3;

/// The server as last seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ServerIdentity {
    pub(crate) store: StoreId,
    pub(crate) epoch: u8,
    pub(crate) incarnation: u64,
    volatile: bool,
}

/// What is made of a server that offers a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    Accept,
    /// It may be taken once what was held of the one before it is over.
    Wait,
    Refuse,
}

impl ServerIdentity {
    pub(crate) fn of(welcome: &Welcome) -> Self {
        let Welcome { store, epoch, server_incarnation, features, .. } = *welcome;
        //= wire-spec.md#10-3-features
        //# A receiver MUST ignore feature bits that it does not know.
        Self { store, epoch, incarnation: server_incarnation, volatile: features & FEATURE_VOLATILE != 0 }
    }

    /// Whether a server that shows itself as `other` may follow this one; `held`: the lease from this one is not over.
    pub(crate) fn judge(self, other: Self, held: bool) -> Judgement {
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

/// Where a cookie stands in OPEN.
const COOKIE: Range<usize> = 40..64;

/// A session that WELCOME has offered.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) channel: Box<Channel>,
    pub(crate) server: ServerIdentity,
    /// The lease period as the agent believes in it, and after how much of it the lease is renewed on purpose.
    pub(crate) tau: Duration,
    pub(crate) renew_within: Duration,
    pub(crate) max_datagram: u16,
}

/// A handshake under way.
#[derive(Debug)]
pub(crate) struct Handshake {
    handshake: u64,
    began: Instant,
    counter: PacketCounter,
    /// HELLOs and CONFIRMs so far.
    sent: u64,
    /// What was offered and waits for the answer to CONFIRM, while another session is the present one.
    offer: Option<Offer>,
    /// CONFIRMs after which that is given up.
    confirms_max: u32,
    /// With which number the session begins that it opens.
    first_packet: u64,
    log: SentLog,
    cookie: Vec<u8>,
    /// OPEN or RESUME as it was made, in the sealed mode; empty: it was not. And the number under which it was sent first.
    open: Vec<u8>,
    open_from: u64,
    /// Whether it is a RESUME; how many have been sent, to any address; and whether none is sent any more, for they were in vain.
    resumed: bool,
    resumes: u32,
    opens: bool,
    /// The next datagram is the first of another handshake, of another number.
    anew: bool,
    /// Newest HELLO that was answered, but not by WELCOME.
    answered: u64,
    challenges: u32,
    address: usize,
    /// HELLOs to this address, and to any, without an answer.
    tries: u32,
    attempts: u32,
    /// How often all addresses were asked in vain.
    rounds: u32,
    rtt: RoundTrip,
    /// Addresses in a row that will give no session.
    refusals: usize,
    /// Standbys that have refused it.
    standbys: usize,
    /// Whether a hint was followed since the last pause.
    followed: bool,
    /// HELLO is to be sent now.
    due: bool,
    error: Option<OpError>,
    told: bool,
    /// Whether it was said that a session that was offered is not taken.
    warned: bool,
}

impl Handshake {
    /// One that begins with this address of the server, at once or when its timer says so.
    pub(crate) fn new(now: Instant, rng: &mut Rng, address: usize, at_once: bool) -> Self {
        Self {
            handshake: rng.nonzero_u64().get(),
            began: now,
            counter: PacketCounter::starting_at(1),
            sent: 0,
            offer: None,
            confirms_max: CONFIRMS,
            //= wire-spec.md#3-2-packet-numbers
            //# All HELLOs of one handshake MUST name the same first packet number.
            first_packet: first_packet(rng),
            log: SentLog::new(SENT_MAX),
            cookie: Vec::new(),
            open: Vec::new(),
            open_from: 0,
            resumed: false,
            resumes: 0,
            opens: false,
            anew: false,
            answered: 0,
            challenges: 0,
            address,
            tries: 0,
            attempts: 0,
            rounds: 0,
            rtt: RoundTrip::new(PAUSE_MAX),
            refusals: 0,
            standbys: 0,
            followed: false,
            due: at_once,
            error: None,
            told: false,
            warned: false,
        }
    }

    /// When it was begun: what was sent in the session since asks the same.
    pub(crate) const fn began(&self) -> Instant {
        self.began
    }

    /// To which address the next HELLO goes.
    pub(crate) const fn address(&self) -> usize {
        self.address
    }

    /// How many HELLOs and CONFIRMs of it have gone out.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Whether HELLO or CONFIRM is to be sent now.
    pub(crate) const fn is_due(&self) -> bool {
        self.due
    }

    /// Why there is no session yet, if that is known.
    pub(crate) const fn error(&self) -> Option<OpError> {
        self.error
    }

    /// That is known from now on; whether it is to be told.
    pub(crate) const fn failed(&mut self, error: OpError) -> bool {
        self.error = Some(error);
        !core::mem::replace(&mut self.told, true)
    }

    /// Whether a session that is offered and not taken is to be spoken of: once.
    pub(crate) const fn warns(&mut self) -> bool {
        !core::mem::replace(&mut self.warned, true)
    }

    /// The pause before HELLO is over. Whether every address has been tried in vain.
    pub(crate) fn pause_is_over(&mut self, addresses: usize, verifying: bool) -> bool {
        (self.due, self.followed) = (true, false);
        if self.offer.is_some() {
            return false;
        }
        // Keep-alives go to the address of the session; whoever verifies it asks at all of them.
        let in_turn = verifying || addresses > 1;
        if self.tries < if in_turn && self.cookie.is_empty() { 1 } else { TRIES } {
            return false;
        }
        let last = self.address + 1 >= addresses;
        self.move_on(addresses);
        self.rounds += u32::from(last);
        if addresses > 1 {
            // What one of them does not answer says nothing of the others.
            self.attempts = self.rounds;
        }
        last && (verifying || !in_turn || self.rounds.is_multiple_of(TRIES))
    }

    /// Makes the next HELLO: `hello`, as this handshake says it. Gives the address to which it goes.
    pub(crate) fn poll_transmit(&mut self, cx: &mut Cx<'_>, hello: Hello<'_>, pause_max: Duration, buf: &mut Vec<u8>) -> Option<usize> {
        let packet = self.next(cx, pause_max)?;
        let (first_packet, cookie) = (self.first_packet, Bytes8(&self.cookie));
        let hello = Hello { handshake: self.handshake, first_packet, cookie, ..hello };
        let mut packer = Packer::new(buf, Header { from_server: false, session: SessionId(0), packet }, DATAGRAM_MIN);
        let fits = packer.push(&hello.into());
        debug_assert!(fits, "the longest HELLO fits the smallest datagram");
        packer.finish();
        Some(self.address)
    }

    /// Makes the next ASK, OPEN or RESUME, which says `payload`; `resumable`: a session that may be resumed, and its secret. Gives the address
    /// to which it goes.
    pub(crate) fn poll_sealed(
        &mut self,
        cx: &mut Cx<'_>,
        keys: &mut Keys,
        payload: &OpenPayload<'_>,
        resumable: Option<(SessionId, &Psk)>,
        pause_max: Duration,
        buf: &mut Vec<u8>,
    ) -> Option<usize> {
        if self.resumes == RESUMES && !self.opens {
            self.cannot_resume();
        }
        if core::mem::take(&mut self.anew) {
            self.handshake = cx.rng.nonzero_u64().get();
        }
        let packet = self.next(cx, pause_max)?;
        let Ok(cookie) = <[u8; COOKIE_LEN]>::try_from(&self.cookie[..]) else {
            keys.ask(self.handshake, packet, buf);
            return Some(self.address);
        };
        //= docs/sealed.md#the-handshake
        //# An agent that is answered CHALLENGE again MUST begin anew, with another `handshake` and another ephemeral key.
        if self.open.is_empty() {
            self.open_from = packet;
            let Self { handshake, open, .. } = self;
            let resumes =
                resumable.filter(|_| !self.opens).is_some_and(|session| keys.resume(*handshake, cookie, packet, session, payload, open));
            if !resumes && !keys.open(*handshake, cookie, packet, payload, open) {
                return None;
            }
            self.resumed = resumes;
        }
        self.resumes += u32::from(self.resumed);
        keys.number(packet, &mut self.open);
        buf.clear();
        buf.extend_from_slice(&self.open);
        Some(self.address)
    }

    /// One more datagram of the handshake goes out: its number.
    fn next(&mut self, cx: &mut Cx<'_>, pause_max: Duration) -> Option<u64> {
        self.due = false;
        self.sent += 1;
        let packet = self.counter.take()?;
        self.log.record(packet, cx.now);
        self.rtt.set_cap(pause_max);
        cx.timers.set(Timer::Handshake, cx.now.plus(self.rtt.backoff(self.attempts, cx.rng)), Question::Waited);
        self.tries += 1;
        self.attempts = self.attempts.saturating_add(1);
        Some(packet)
    }

    /// In the sealed mode nothing that was made so far is good for anything any more: one ephemeral key is for one text.
    pub(crate) fn begin_anew(&mut self) {
        self.cookie.clear();
        self.resumed = false;
        self.anew |= !core::mem::take(&mut self.open).is_empty();
    }

    /// Whether RESUME was sent and waits for its answer.
    pub(crate) const fn is_resuming(&self) -> bool {
        self.resumed
    }

    /// Nothing is resumed: OPEN proves more.
    pub(crate) fn cannot_resume(&mut self) {
        self.opens = true;
        self.begin_anew();
        self.due = true;
    }

    /// A session is offered, which takes the place of the present one if the server says so.
    pub(crate) fn offered(&mut self, offer: Offer) {
        (self.offer, self.due, self.tries) = (Some(offer), true, 0);
    }

    /// What was offered.
    pub(crate) const fn offer(&mut self) -> Option<&mut Offer> {
        self.offer.as_mut()
    }

    /// Whether this session was offered.
    pub(crate) fn offers(&self, session: SessionId) -> bool {
        self.offer.as_ref().is_some_and(|offer| offer.channel.session() == session)
    }

    /// Whether CONFIRM was sent, or is about to be.
    pub(crate) const fn is_confirming(&self) -> bool {
        self.offer.is_some()
    }

    /// The next CONFIRM goes out.
    pub(crate) fn confirms(&mut self) -> Option<&mut Channel> {
        self.due = false;
        self.sent += 1;
        self.tries += 1;
        self.offer.as_mut().map(|offer| &mut *offer.channel)
    }

    /// Whether CONFIRM went out so often that the server cannot know the session any more.
    pub(crate) const fn is_in_vain(&self) -> bool {
        self.offer.is_some() && self.tries >= self.confirms_max
    }

    /// Another session is to be asked for. Gives what was offered.
    pub(crate) fn start_over(&mut self, now: Instant, rng: &mut Rng) -> Option<Offer> {
        let next = Self::new(now, rng, self.address, false);
        let Self { began, sent, rtt, error, told, warned, offer, confirms_max, .. } = core::mem::replace(self, next);
        self.confirms_max = CONFIRMS_MAX.min(2 * confirms_max);
        (self.began, self.sent, self.rtt, self.error, self.told, self.warned) = (began, sent, rtt, error, told, warned);
        offer
    }

    /// When the HELLO was sent that an answer is about, if it is the first answer to that or a newer one.
    pub(crate) fn answer_to(&mut self, handshake: u64, echo: u64) -> Option<Instant> {
        let sent = self.sent_at(handshake, echo).filter(|_| self.answered < echo && self.open_from <= echo && !self.is_confirming())?;
        self.answered = echo;
        Some(sent)
    }

    /// When the HELLO was sent that a WELCOME echoes.
    pub(crate) fn sent_at(&self, handshake: u64, echo: u64) -> Option<Instant> {
        if self.handshake == handshake { self.log.sent_at(echo) } else { None }
    }

    /// A server wants to see that this agent is where it says. The cookie is worth something where it was made.
    pub(crate) fn challenged(&mut self, now: Instant, sent: Instant, address: Option<usize>, cookie: &[u8]) {
        self.challenges += 1;
        if self.open.is_empty() {
            self.cookie = cookie.to_vec();
        } else if bugs::is(Bug::S5) {
            self.open.get_mut(COOKIE).into_iter().for_each(|place| place.copy_from_slice(cookie));
        } else {
            self.begin_anew();
        }
        self.rtt.sample(now.since(sent));
        self.address = address.unwrap_or(self.address);
        self.tries = 0;
        if self.challenges <= CHALLENGES_AT_ONCE {
            self.attempts = 0;
            self.due = true;
        }
    }

    /// The address tried gives no session, now or (`for_good`) at all. Whether none of them does.
    pub(crate) fn refused(&mut self, addresses: usize, for_good: bool) -> bool {
        self.refusals += usize::from(for_good);
        let hopeless = self.refusals >= addresses;
        self.move_on(addresses);
        self.due = for_good && !hopeless;
        hopeless
    }

    /// What goes on into the session that is offered: the first packet number, the address, the round trip.
    pub(crate) fn agreed(&self) -> (u64, usize, RoundTrip) {
        (self.first_packet, self.address, self.rtt.clone())
    }

    /// What was offered, at its end.
    pub(crate) fn into_offer(self) -> Option<Offer> {
        self.offer
    }

    /// The address tried is that of a standby, which may have named the one that serves. Whether another one is asked at once: not if all have
    /// been.
    pub(crate) fn passed_on(&mut self, addresses: usize, named: Option<usize>) -> bool {
        // Who stands by has answered: another one serves soon.
        (self.attempts, self.rounds) = (0, 0);
        if named.is_some_and(|named| named != self.address && self.follow(named)) {
            return true;
        }
        self.standbys += 1;
        let more = !self.standbys.is_multiple_of(addresses.max(1));
        if more {
            self.move_on(addresses);
            self.due = true;
        }
        more
    }

    /// The server at an address may be the one that serves: it is asked next, unless another hint was followed since the last pause.
    pub(crate) fn follow(&mut self, address: usize) -> bool {
        //= wire-spec.md#11-10-groups-of-servers
        //# An agent MUST NOT follow more than one hint of who serves in an RTO.
        if self.is_confirming() || self.followed && !bugs::is(Bug::C6) {
            return false;
        }
        (self.due, self.followed) = (true, true);
        self.go_to(address);
        true
    }

    /// Goes on at the next address.
    fn move_on(&mut self, addresses: usize) {
        self.go_to((self.address + 1) % addresses.max(1));
    }

    fn go_to(&mut self, next: usize) {
        self.tries = 0;
        // What was made for one address is worth nothing at another. A server that is alone and silent may have it still, behind others'.
        if core::mem::replace(&mut self.address, next) != next {
            self.begin_anew();
        }
    }
}

const HOUR_US: u32 = 3_600_000_000;
/// δ, ε and Td of a server that keeps section 8.3.
const DELTA_PPM: RangeInclusive<u32> = 3_000..=1_000_000;
const EPSILON_US: RangeInclusive<u32> = 1..=HOUR_US;
const DELIVERY_TIMEOUT_US: RangeInclusive<u32> = 1_000..=HOUR_US;

/// The first field of a WELCOME with a value that no server gives, and what it must be. A window or datagram above what was asked for is
/// none: less of it is used.
pub(crate) fn unbelievable(welcome: &Welcome, config: &Config) -> Option<(&'static str, &'static str)> {
    let Welcome { session, handle, lease_us, delta_ppm, epsilon_us, delivery_timeout_us, window, max_datagram, first_packet, .. } =
        *welcome;
    let lease = Duration::from_micros(lease_us);
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST have a bound on the lease that it believes in, and drop a WELCOME above it.
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# An agent MUST drop a WELCOME with a number outside these bounds.
    [
        ("session", session != SessionId(0), "another than 0"),
        ("handle", handle != Handle(0), "another than 0"),
        ("lease", lease >= LEASE_MIN, "at least 100 ms"),
        ("lease", lease <= config.lease_max, "at most lease-max of this agent: raise that (--lease-max), or lower the lease there"),
        ("delta", DELTA_PPM.contains(&delta_ppm), "0.003 to 1"),
        ("epsilon", EPSILON_US.contains(&epsilon_us), "1 µs to 1 h"),
        ("delivery timeout", DELIVERY_TIMEOUT_US.contains(&delivery_timeout_us), "1 ms to 1 h"),
        ("window", window > 0, "at least 1"),
        ("max_datagram", usize::from(max_datagram) >= DATAGRAM_MIN, "at least 548 bytes"),
        ("first packet number", is_first_packet(first_packet), "1 to 2^48−1"),
    ]
    .into_iter()
    .find_map(|(field, fits, rule)| (!fits).then_some((field, rule)))
}
