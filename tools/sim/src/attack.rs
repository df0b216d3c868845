//! Attackers: machines that are no agents, send from addresses of their own, and keep to no rule but the wire format.
//!
//! Decides what each of the three kinds knows and sends. A stranger sees nothing and guesses; a witness sees every datagram and makes use
//! of it from its own address; an insider has a session of its own and says in it, and in its handshakes, whatever the format allows about
//! others. None of them answers a challenge of a path that is not its own, and none asks for anything that an agent might be given: so
//! whatever it sends must change nothing for anybody else.
//! Invariant: what is sent depends on the seed, the fault and the number of the act, and on what went by.
//! Leaves to others: when (`world::faults`), what must come of it (`judge::strangers`).

use crate::observe::Node;
use crate::rng::SimRng;
use bytes::Bytes;
use cistern_seal::FirstCheck;
use cistern_wire::limits::VERSION;
use cistern_wire::sealed::{
    MAC_LEN, SealedAsk, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedOpen, SealedRefusal, SealedRefuse, Zeros,
};
use cistern_wire::{
    Ack, AgentId, Alive, Ask, Bytes8, Cancel, Challenge, Claim, Confirm, Datagram, Demand, Direction, EndReason, EndSession, Envelope,
    Fate, FormerClaim, Generation, GetAttr, Grant, Granted, Handle, Header, Hello, Hint, Keep, KeepAlive, Known, List, LockClass, LockId,
    Message, Mode, Nack, NackReason, ObjectId, Packer, Reclaim, ReclaimComplete, ReclaimItem, Release, ReleaseItem, Reply, SessionId,
    StoreId, Want, Welcome,
};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Largest datagram that an attacker sends.
const DATAGRAM_MAX: usize = 1_232;
/// Grants remembered of each agent.
const GRANTS_MAX: usize = 8;
/// Sealed datagrams remembered.
const TAMPERED_MAX: usize = 64;
/// The first packet number of an insider's sessions.
const FIRST: u64 = 1 << 30;
/// HELLOs after which an insider gives a handshake up.
const TRIES_MAX: u32 = 4;
/// Far above every packet number, nonce, incarnation or generation of an honest run.
const FAR: u64 = 1 << 50;

/// Who attacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AttackerKind {
    /// Sees nothing, and guesses.
    Stranger,
    /// Sees every datagram.
    Witness,
    /// Has a session of its own, and sees every datagram.
    Insider,
}

/// The address of the attacker of a fault.
#[must_use]
pub fn address(fault: u32) -> SocketAddr {
    let [.., high, low] = fault.to_be_bytes();
    SocketAddr::from((Ipv4Addr::new(10, 66, high, low), 6_666))
}

/// Whether an address is an attacker's.
#[must_use]
pub fn is_attacker(address: SocketAddr) -> bool {
    matches!(address.ip(), IpAddr::V4(ip) if ip.octets()[..2] == [10, 66])
}

/// What went by between an agent and the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witnessed {
    up: Option<Bytes>,
    down: Option<Bytes>,
    /// The newest HELLO with a cookie.
    hello: Option<Bytes>,
    /// The newest grants of advisory locks.
    granted: Vec<(LockId, Generation)>,
}

impl Witnessed {
    /// A datagram goes by.
    pub(crate) fn note(&mut self, up: bool, bytes: &[u8]) {
        let Ok(datagram) = Datagram::seen(bytes) else { return };
        for message in datagram.messages() {
            match message {
                Message::Hello(hello) if !hello.cookie.0.is_empty() => self.hello = Some(Bytes::copy_from_slice(bytes)),
                Message::Ack(Ack { reply: Reply::Granted(granted), .. }) => self.granted.push((granted.lock, granted.generation)),
                Message::Grant(grant) => self.granted.push((grant.lock, grant.generation)),
                _ => {}
            }
        }
        if self.granted.len() > GRANTS_MAX {
            self.granted.remove(0);
        }
        if datagram.header.session.0 != 0 {
            let newest = if up { &mut self.up } else { &mut self.down };
            *newest = Some(Bytes::copy_from_slice(bytes));
        }
    }

    fn header(&self, up: bool) -> Option<Header> {
        let bytes = if up { &self.up } else { &self.down };
        bytes.as_ref().and_then(|bytes| Datagram::seen(bytes).ok()).map(|datagram| datagram.header)
    }
}

/// A handshake of an insider.
#[derive(Clone, Debug)]
struct Opening {
    handshake: u64,
    agent: AgentId,
    incarnation: u64,
    former: Vec<FormerClaim>,
    cookie: Option<Vec<u8>>,
}

/// Whoever sees all sealed datagrams, and can send them, changed or not, in anybody's name: what it sends changes nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tamperer {
    /// The newest datagrams: the agent, whether it sent them, and they.
    seen: VecDeque<(usize, bool, Bytes)>,
}

impl Tamperer {
    /// A datagram goes by.
    pub(crate) fn note(&mut self, agent: usize, up: bool, bytes: &[u8]) {
        self.seen.truncate(TAMPERED_MAX - 1);
        self.seen.push_front((agent, up, Bytes::copy_from_slice(bytes)));
    }

    /// What it sends next: which agent it is about, whether it goes to the server, what it is, and whether it comes from where that agent is.
    /// `check`: it knows the server's key.
    pub(crate) fn acts(&self, rng: &mut SimRng, agents: usize, check: &FirstCheck) -> Option<(usize, bool, Vec<u8>, bool)> {
        let (agent, up, bytes) = self.seen.get(rng.index(self.seen.len().max(1)))?;
        let mut bytes = bytes.to_vec();
        if let Some(answer) = Some(&bytes).filter(|_| *up && rng.chance(400_000)).and_then(|bytes| unproven(rng, bytes, check)) {
            return Some((*agent, false, answer, true));
        }
        let (place, cut) = (rng.index(bytes.len()), rng.index(bytes.len().min(40)) + 1);
        let act = rng.below(8);
        match act {
            // As it was, to whom it was meant, or to another, or back.
            0 => {}
            1 => return Some((rng.index(agents), *up, bytes, true)),
            2 => return Some((*agent, !up, bytes, true)),
            3 => bytes.truncate(bytes.len() - cut),
            4 => bytes.push(0),
            // Under another number, in another generation, of another session, or with another text.
            5 => bytes[19] = bytes[19].wrapping_add(1),
            6 => bytes[3] ^= 2,
            _ => bytes[place] ^= 1 << rng.below(8),
        }
        Some((*agent, *up, bytes, act == 0 || rng.chance(700_000)))
    }
}

/// An answer to what an agent has sent, as anybody can make it who knows the server's key.
fn unproven(rng: &mut SimRng, sent: &[u8], check: &FirstCheck) -> Option<Vec<u8>> {
    let (mac1, mut cookie) = ([0; MAC_LEN], [0; 24]);
    let (session, body): (_, SealedHandshake) = match SealedDatagram::at_server(sent) {
        Ok(datagram) => {
            let (SealedHandshake::Ask(SealedAsk { handshake, .. }) | SealedHandshake::Open(SealedOpen { handshake, .. })) = datagram.body
            else {
                return None;
            };
            let echo = datagram.header.packet + rng.below(2);
            if rng.chance(500_000) {
                cookie.copy_from_slice(&rng.seed()[..24]);
                (SessionId(0), SealedChallenge { handshake, echo, cookie, mac1 }.into())
            } else {
                use SealedRefusal::{Busy, Resume, Stopping, Version};
                let (reason, retry_ms) = (*rng.pick(&[Version, Busy, Stopping, Resume]), *rng.pick(&[0, 1, 500]));
                (SessionId(0), SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms, room: Zeros, mac1 }.into())
            }
        }
        Err(_) => {
            let header = Envelope::of_record(sent, Direction::Agent).ok()?.header;
            (header.session, SealedHint { echo: header.packet, mac1 }.into())
        }
    };
    let mut bytes = Vec::new();
    SealedDatagram::new(session, rng.between(1, FAR), body).write(&mut bytes);
    check.complete(&mut bytes);
    Some(bytes)
}

/// An attacker at work.
#[derive(Clone, Debug)]
pub(crate) struct Intruder {
    by: AttackerKind,
    number: u32,
    packet: u64,
    handshakes: u64,
    opening: Option<Opening>,
    /// The handshake that was offered a session, and that session; and the one that was last.
    offered: Option<(SessionId, Opening)>,
    opened: Option<Opening>,
    session: Option<SessionId>,
    former: Option<SessionId>,
    /// How often the HELLO of the handshake under way was sent.
    tries: u32,
}

impl Intruder {
    /// The attacker of a fault.
    pub(crate) const fn new(by: AttackerKind, number: u32) -> Self {
        Self { by, number, packet: 0, handshakes: 0, opening: None, offered: None, opened: None, session: None, former: None, tries: 0 }
    }

    /// The fault that it is.
    pub(crate) const fn number(&self) -> u32 {
        self.number
    }

    /// What it does next: to whom, and what; `live`: the sessions that the server has. Of those of before its start it has only the ids
    /// to go by (`wire-spec.md` section 11.6), so nobody says in another's name that they are over.
    pub(crate) fn acts(&mut self, rng: &mut SimRng, witnessed: &[Witnessed], live: &[SessionId]) -> Option<(Node, Vec<u8>)> {
        let victim = rng.index(witnessed.len());
        match self.by {
            AttackerKind::Insider => self.as_insider(rng, witnessed.get(victim)?, live).map(|bytes| (Node::Server, bytes)),
            AttackerKind::Stranger | AttackerKind::Witness => {
                let guess = Witnessed::default();
                let known = if self.by == AttackerKind::Witness { witnessed.get(victim)? } else { &guess };
                let to = if rng.chance(600_000) { Node::Server } else { Node::Agent(victim) };
                let bytes = if to == Node::Server { self.for_server(rng, known) } else { self.for_agent(rng, known) };
                Some((to, bytes))
            }
        }
    }

    /// A datagram to the server, without a session of its own.
    fn for_server(&mut self, rng: &mut SimRng, known: &Witnessed) -> Vec<u8> {
        if let Some(again) = rng.pick(&[&known.up, &known.down, &known.hello]).as_ref().filter(|_| rng.chance(300_000)) {
            return again.to_vec();
        }
        let header = header(rng, known, true);
        if rng.chance(150_000) {
            let hello = hello_of(known).unwrap_or_else(|| self.opening(rng, self.id(), Vec::new()));
            let cookie = Some(rng.seed()[..24].to_vec());
            return self.hello(&Opening { cookie, handshake: rng.next_u64(), ..hello });
        }
        let (lock, generation) = lock_of(rng, known);
        let serial = rng.between(1, 1_000);
        let ask = Ask { nonce: rng.between(1, 200), back: 0, limit: 1_232 };
        let items = [ReleaseItem { lock, generation, keep: Keep::Nothing }];
        let held = [reclaimed(lock, generation)];
        let message = match rng.below(7) {
            0 => EndSession { serial, reason: EndReason::Close }.into(),
            1 => EndSession { serial, reason: EndReason::Surrender }.into(),
            2 => Release { serial, items: List::of(&items) }.into(),
            3 => KeepAlive { serial, clock_us: 0 }.into(),
            4 => Cancel { serial, nonce: ask.nonce }.into(),
            5 => ReclaimComplete { ask, from: header.session }.into(),
            _ => Reclaim { ask, from: header.session, items: List::of(&held) }.into(),
        };
        datagram(header, &[message])
    }

    /// A datagram to an agent, as if from its server.
    fn for_agent(&mut self, rng: &mut SimRng, known: &Witnessed) -> Vec<u8> {
        if let Some(again) = rng.pick(&[&known.down, &known.up]).as_ref().filter(|_| rng.chance(200_000)) {
            return again.to_vec();
        }
        let header = header(rng, known, false);
        let echo = known.header(true).map_or_else(|| rng.below(100), |up| up.packet);
        let (lock, generation) = lock_of(rng, known);
        let (serial, nonce) = (rng.between(1, 1_000), rng.between(1, 200));
        let granted = Granted { lock, mode: Mode::Exclusive, generation, run: 1 };
        let handshake = hello_of(known).map_or_else(|| rng.next_u64(), |hello| hello.handshake);
        let outside = Header { session: SessionId(0), ..header };
        let (header, message) = match rng.below(9) {
            0 => (header, Alive { serial, echo }.into()),
            1 => (header, Ack { nonce, echo, reply: Reply::Granted(granted) }.into()),
            2 => (header, Grant { seq: serial, nonce, lock, mode: Mode::Exclusive, generation, run: 1 }.into()),
            3 => (header, Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()),
            4 => (header, Demand { seq: serial, lock, generation, keep: Keep::Nothing }.into()),
            5 => (header, Hint { echo, detail: Bytes8(b"") }.into()),
            6 => (outside, Challenge { handshake, echo, cookie: Bytes8(&[7; 24]) }.into()),
            7 => (header, Known { serial: 1, echo, session: header.session }.into()),
            _ => (outside, Message::Welcome(welcome(handshake, echo, rng.next_u64()))),
        };
        datagram(header, &[message])
    }

    /// What somebody does who has a session, or gets one.
    fn as_insider(&mut self, rng: &mut SimRng, known: &Witnessed, live: &[SessionId]) -> Option<Vec<u8>> {
        let own = self.id();
        self.opening.take_if(|opening| opening.agent != own && !opening.former.iter().all(|former| live.contains(&former.session)));
        self.opening.take_if(|_| self.tries > TRIES_MAX);
        if let Some(bytes) = self.confirms(rng, live) {
            return Some(bytes);
        }
        let Some(session) = self.session.filter(|_| self.opening.is_none()) else {
            if self.opening.is_none() {
                let former = self.former.map(|session| FormerClaim { session, claim: Claim::Reclaiming });
                self.opening = Some(self.opening(rng, self.id(), former.into_iter().collect()));
            }
            return self.opening.clone().map(|opening| self.hello(&opening));
        };
        let (lock, generation) = lock_of(rng, known);
        let victim = known.header(true).map(|up| up.session);
        let (serial, ask) = (rng.between(1, 1_000), Ask { nonce: rng.between(1, 4), back: 3, limit: 1_232 });
        self.packet += 1;
        let own = Header { from_server: false, session, packet: self.packet };
        let items = [ReleaseItem { lock, generation, keep: Keep::Nothing }];
        let held = [reclaimed(lock, Generation(generation.0 + FAR))];
        Some(match rng.below(12) {
            0 => datagram(own, &[Release { serial, items: List::of(&items) }.into()]),
            1 => datagram(Header { packet: own.packet + FAR, ..own }, &[KeepAlive { serial, clock_us: 0 }.into()]),
            2 => {
                let ask = Ask { nonce: FAR, back: 0, limit: 1_232 };
                datagram(own, &[GetAttr { ask, object: ObjectId(1), want: Want::Nothing }.into()])
            }
            3 => datagram(own, &[Cancel { serial, nonce: FAR }.into()]),
            4 => {
                let ask = Ask { nonce: rng.between(1, 4), ..ask };
                datagram(own, &[Reclaim { ask, from: self.former.or(victim)?, items: List::of(&held) }.into()])
            }
            5 => datagram(own, &[ReclaimComplete { ask, from: victim? }.into()]),
            // The cookie of one agent for another.
            6 => self.opened.clone().map(|opened| self.hello(&Opening { agent: AgentId([0xEF; 16]), ..opened }))?,
            // Its former HELLO once more, when the session is over.
            7 => {
                self.forget_session();
                self.opening = self.opened.take();
                datagram(own, &[EndSession { serial, reason: EndReason::Close }.into()])
            }
            // A leap of its own incarnation.
            8 => {
                let opening = self.opening(rng, self.id(), Vec::new());
                let opening = self.opening.insert(Opening { incarnation: opening.incarnation + FAR, ..opening }).clone();
                self.hello(&opening)
            }
            // The former session of another, as surrendered: in its own name, and in the other's.
            9 => {
                let former = FormerClaim { session: victim?, claim: Claim::Surrendered };
                let opening = self.opening(rng, self.id(), vec![former]);
                let opening = self.opening.insert(opening).clone();
                self.hello(&opening)
            }
            10 => {
                let former = FormerClaim { session: victim.filter(|session| live.contains(session))?, claim: Claim::Surrendered };
                let theirs = hello_of(known)?;
                let opening = self.opening(rng, theirs.agent, vec![former]);
                let opening = self.opening.insert(Opening { incarnation: theirs.incarnation, ..opening }).clone();
                self.hello(&opening)
            }
            _ => datagram(own, &[KeepAlive { serial, clock_us: 0 }.into()]),
        })
    }

    /// What it says first in a session that it was offered: CONFIRM, or for some reason something else.
    fn confirms(&mut self, rng: &mut SimRng, live: &[SessionId]) -> Option<Vec<u8>> {
        let (session, opening) = self.offered.take()?;
        let header = |packet| Header { from_server: false, session, packet };
        if rng.chance(200_000) {
            self.offered = Some((session, opening));
            return Some(datagram(header(FIRST + 1), &[KeepAlive { serial: 1, clock_us: 0 }.into()]));
        }
        let own = opening.agent == self.id();
        if !own && !opening.former.iter().all(|former| live.contains(&former.session)) {
            return None;
        }
        // What it opens in another's name it leaves alone.
        if own {
            self.packet = FIRST + 1;
            self.former = self.session.take();
            self.session = Some(session);
        }
        let confirm = Confirm { serial: 1, former: List::of(&opening.former) };
        Some(datagram(header(FIRST), &[confirm.into()]))
    }

    /// The server has sent it something.
    pub(crate) fn hears(&mut self, bytes: &[u8]) {
        let Ok(datagram) = Datagram::at_agent(bytes) else { return };
        for message in datagram.messages() {
            match (message, &mut self.opening) {
                (Message::Challenge(challenge), Some(opening)) if opening.handshake == challenge.handshake => {
                    opening.cookie = Some(challenge.cookie.0.to_vec());
                }
                (Message::Welcome(welcome), Some(opening)) if opening.handshake == welcome.handshake => {
                    self.offered = Some((welcome.session, opening.clone()));
                    self.opened = self.opening.take();
                }
                (Message::Refuse(refuse), Some(opening)) if opening.handshake == refuse.handshake => self.opening = None,
                (Message::Nack(_) | Message::Hint(_), _) if self.session == Some(datagram.header.session) => self.forget_session(),
                _ => {}
            }
        }
    }

    const fn forget_session(&mut self) {
        if let Some(session) = self.session.take() {
            self.former = Some(session);
        }
    }

    fn id(&self) -> AgentId {
        let mut id = [0xEE; 16];
        id[..4].copy_from_slice(&self.number.to_be_bytes());
        AgentId(id)
    }

    fn opening(&mut self, rng: &mut SimRng, agent: AgentId, former: Vec<FormerClaim>) -> Opening {
        self.tries = 0;
        Opening { handshake: rng.next_u64(), agent, incarnation: 1, former, cookie: None }
    }

    fn hello(&mut self, opening: &Opening) -> Vec<u8> {
        self.handshakes += 1;
        self.tries += 1;
        let cookie = opening.cookie.as_deref().unwrap_or_default();
        let hello = Hello {
            window: 4,
            incarnation: opening.incarnation,
            first_packet: FIRST,
            label: Bytes8(b"nobody"),
            cookie: Bytes8(cookie),
            ..Hello::new(opening.agent, opening.handshake)
        };
        let header = Header { from_server: false, session: SessionId(0), packet: self.handshakes };
        datagram(header, &[Message::Hello(hello)])
    }
}

/// The header of a forged datagram: of a session that was seen, or guessed.
fn header(rng: &mut SimRng, known: &Witnessed, up: bool) -> Header {
    let guessed = Header { from_server: !up, session: SessionId(rng.next_u64().max(1)), packet: rng.between(1, 1_000) };
    let seen = known.header(up).unwrap_or(guessed);
    let ahead = *rng.pick(&[0, 1, 2, 1_000, 1 << 19, FAR]);
    Header { packet: seen.packet.saturating_add(ahead), ..seen }
}

/// The identity and handshake of an agent, from its HELLO.
fn hello_of(known: &Witnessed) -> Option<Opening> {
    let datagram = Datagram::seen(known.hello.as_ref()?).ok()?;
    datagram.messages().find_map(|message| match message {
        Message::Hello(hello) => Some(Opening {
            handshake: hello.handshake,
            agent: hello.agent,
            incarnation: hello.incarnation,
            former: Vec::new(),
            cookie: Some(hello.cookie.0.to_vec()),
        }),
        _ => None,
    })
}

/// A lock that was granted, or a guess.
fn lock_of(rng: &mut SimRng, known: &Witnessed) -> (LockId, Generation) {
    let guess = LockId { object: ObjectId(rng.between(1, 12)), class: LockClass::Advisory };
    let newest = known.granted.last().copied().filter(|_| rng.chance(800_000));
    newest.unwrap_or_else(|| (guess, Generation(rng.between(1, 100_000))))
}

const fn reclaimed(lock: LockId, generation: Generation) -> ReclaimItem {
    ReclaimItem { lock, mode: Mode::Exclusive, generation, first: generation, run: 1, version: 0 }
}

/// An offer of a session with a lease of an hour.
const fn welcome(handshake: u64, echo: u64, session: u64) -> Welcome {
    Welcome {
        handshake,
        echo,
        version: VERSION,
        session: SessionId(session),
        handle: Handle(session),
        store: StoreId([0x66; 16]),
        epoch: 200,
        server_incarnation: FAR,
        features: 0,
        lease_us: 3_600_000_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 100_000,
        window: 4,
        max_datagram: 1_232,
        first_packet: FIRST,
    }
}

/// A datagram.
pub(crate) fn datagram(header: Header, messages: &[Message<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MAX);
    for message in messages {
        assert!(packer.push(message), "what an attacker sends fits a datagram");
    }
    packer.finish();
    bytes
}
