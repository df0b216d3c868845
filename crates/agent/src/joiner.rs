//! Joining a cluster by an invite: the one session that a key has before any server knows it (`docs/sealed.md`).
//!
//! Decides what is asked in which order (JOIN, then the roster part by part), when it is asked again, and when all begins anew. Such a session has no
//! lease and no locks, so it is a machine of its own beside the agent. Invariant: what ends it came in a record, but for a refusal that came so often
//! that nothing better is to be hoped for.
//! Leaves to others: whether the answer is believed (`cistern-credentials`), the socket.

use crate::keys::{Keys, sealer};
use crate::roster::{Collected, RosterParts};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::{Freshness, Instant, PacketCounter, ReplayWindow, Rng};
use cistern_seal::{Cipher, Sealer};
use cistern_wire::limits::{DATAGRAM_DEFAULT, DATAGRAM_MIN, VERSION};
use cistern_wire::sealed::{OpenPayload, OpenStatus, SealedDatagram, SealedHandshake, SealedRefusal, SealedWelcome};
use cistern_wire::{
    AgentId, Bytes8, Direction, EndReason, EndSession, Envelope, Form, Header, Join, JoinOutcome, Message, Packer, RosterAsk, SessionId,
    StoreId,
};
use core::time::Duration;

/// The first pause before something is sent again, and the longest.
const PAUSE: Duration = Duration::from_millis(250);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// The server keeps the session for so long; then all begins anew.
const SESSION: Duration = Duration::from_secs(4);
/// Anybody who knows the server's key can refuse: it is believed when the same was said so often.
const REFUSALS: u32 = 3;
const CHALLENGES: u32 = 3;

/// What a host has that has joined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The number of its principal.
    pub principal: u32,
    /// Its name.
    pub name: Vec<u8>,
    /// The cluster's public key.
    pub cluster: [u8; 32],
    /// The roster, signed; empty: the server has none.
    pub roster: Vec<u8>,
}

/// Why a host has not joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JoinRefused {
    /// The server says so; of a spent invite when (in seconds since 1970) and from where it was used.
    Outcome(JoinOutcome, u64, [u8; 16]),
    /// The server speaks other versions of the protocol.
    Version,
    /// The server has reached a limit, or is stopping.
    Busy,
    /// The server stands by: another one of its group serves, or will soon.
    Standby,
}

#[derive(Debug)]
enum JoinStage {
    /// ASK goes out; then OPEN, which is empty until there is a cookie.
    Opening {
        handshake: u64,
        sent: u64,
        answered: u64,
        challenges: u32,
        open: Vec<u8>,
    },
    In(Box<JoinSession>),
}

#[derive(Debug)]
struct JoinSession {
    id: SessionId,
    sealer: Sealer,
    sent: PacketCounter,
    received: ReplayWindow,
    began: Instant,
    serial: u64,
    /// What JOINED said; the roster of it is not there yet.
    member: Option<Membership>,
    roster: RosterParts,
}

/// A host that joins, as a sans-I/O machine: one server, one attempt after the other until there is an end.
#[derive(Debug)]
pub struct Joiner {
    keys: Keys,
    cipher: Cipher,
    rng: Rng,
    instance: AgentId,
    label: Vec<u8>,
    now: Instant,
    stage: JoinStage,
    /// When the next datagram is due, and the pause behind it.
    due: Instant,
    pause: Duration,
    /// The last refusal, and how often it came with no other between.
    refusals: Option<(SealedRefusal, u32)>,
    end: Option<Result<Membership, JoinRefused>>,
    /// END_SESSION was sent.
    left: bool,
}

impl Joiner {
    /// One that begins now. `keys` have the invite's secret ([`Keys::with_psk`]); `seed` must be one that nobody can guess.
    #[must_use]
    pub fn new(now: Instant, keys: Keys, seed: [u8; 32], label: &[u8]) -> Self {
        let mut rng = Rng::from_seed(seed);
        let mut instance = [0; 16];
        rng.fill(&mut instance);
        let stage = opening(&mut rng);
        Self {
            keys,
            cipher: Cipher::default(),
            rng,
            instance: AgentId(instance),
            label: label.to_vec(),
            now,
            stage,
            due: now,
            pause: PAUSE,
            refusals: None,
            end: None,
            left: false,
        }
    }

    /// How it ended, if it has. One more datagram may be due then: [`poll_transmit`](Self::poll_transmit).
    #[must_use]
    pub const fn end(&self) -> Option<&Result<Membership, JoinRefused>> {
        self.end.as_ref()
    }

    /// How long the driver may sleep from `now` if nothing arrives.
    pub fn wake_after(&mut self, now: Instant) -> Duration {
        self.now = self.now.max(now);
        self.now.until_waited(self.due)
    }

    /// Clears `buf`, and writes the next datagram into it if one is due.
    pub fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> bool {
        self.now = self.now.max(now);
        buf.clear();
        if self.end.is_some() {
            return !core::mem::replace(&mut self.left, true) && self.leave(buf);
        }
        if !self.now.waited(self.due) {
            return false;
        }
        if let JoinStage::In(session) = &self.stage
            && self.now.since(session.began) >= SESSION
        {
            self.begin_anew();
        }
        self.due = self.now.plus(self.pause);
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        let Self { keys, cipher, stage, now, .. } = self;
        match stage {
            JoinStage::Opening { handshake, sent, open, .. } => {
                *sent += 1;
                if open.is_empty() {
                    keys.ask(*handshake, *sent, buf);
                } else {
                    keys.number(*sent, open);
                    buf.extend_from_slice(open);
                }
                true
            }
            JoinStage::In(session) => {
                let serial = session.serial;
                let message = match &session.member {
                    None => Message::Join(Join { serial }),
                    Some(_) => Message::Roster(RosterAsk { serial, offset: session.roster.offset() }),
                };
                session.write(&message, cipher, *now, buf)
            }
        }
    }

    /// Takes a datagram of the server.
    pub fn handle_datagram(&mut self, now: Instant, bytes: &[u8]) {
        self.now = self.now.max(now);
        match Form::named(bytes) {
            Some(Form::Handshake) => self.handshake(bytes),
            Some(Form::Record) => self.record(bytes),
            _ => {}
        }
    }

    fn handshake(&mut self, bytes: &[u8]) {
        let Ok(datagram) = SealedDatagram::at_agent(bytes) else { return };
        if datagram.body.kind().has_mac1() && !self.keys.hold(bytes) {
            return;
        }
        match datagram.body {
            SealedHandshake::Challenge(m) if self.is_news(m.handshake, m.echo) => self.challenged(m.cookie),
            SealedHandshake::Welcome(m) => self.welcomed(&m, bytes),
            SealedHandshake::Refuse(m) if self.is_news(m.handshake, m.echo) => {
                self.refused(m.reason, Duration::from_millis(m.retry_ms.into()));
            }
            SealedHandshake::Hint(m) => {
                let is_own = matches!(&self.stage, JoinStage::In(session) if session.id == datagram.header.session && session.sent.has_dealt(m.echo));
                if is_own {
                    self.begin_anew();
                }
            }
            _ => {}
        }
    }

    /// Whether it answers a transmission of this handshake that is newer than what was answered before.
    fn is_news(&mut self, of: u64, echo: u64) -> bool {
        let JoinStage::Opening { handshake, sent, answered, .. } = &mut self.stage else { return false };
        let is_news = *handshake == of && *answered < echo && echo <= *sent;
        if is_news {
            *answered = echo;
        }
        is_news
    }

    fn challenged(&mut self, cookie: [u8; 24]) {
        let JoinStage::Opening { handshake, sent, challenges, open, .. } = &mut self.stage else { return };
        *challenges += 1;
        if *challenges > CHALLENGES {
            return;
        }
        if !open.is_empty() {
            // One ephemeral key under two cookies would be one nonce for two texts.
            return self.begin_anew();
        }
        let payload = OpenPayload {
            instance: self.instance,
            incarnation: 1,
            boot: [0; 16],
            store: StoreId([0; 16]),
            epoch: 0,
            server_incarnation: 0,
            window: 1,
            max_datagram: DATAGRAM_DEFAULT.try_into().unwrap_or(u16::MAX),
            features: 0,
            lease_us: 0,
            roster: 0,
            label: Bytes8(&self.label),
        };
        if self.keys.open(*handshake, cookie, *sent + 1, &payload, open) {
            self.hurry();
        }
    }

    fn welcomed(&mut self, welcome: &SealedWelcome, bytes: &[u8]) {
        let JoinStage::Opening { handshake, sent, open, .. } = &self.stage else { return };
        if *handshake != welcome.handshake || welcome.echo > *sent || open.is_empty() {
            return;
        }
        let Some((payload, chain)) = self.keys.finish(bytes) else { return };
        if payload.version != VERSION {
            self.end = Some(Err(JoinRefused::Version));
        } else if payload.status == OpenStatus::Opened {
            self.stage = JoinStage::In(Box::new(JoinSession {
                id: payload.session,
                sealer: sealer(&chain, self.now),
                sent: PacketCounter::starting_at(1),
                received: ReplayWindow::starting_at(1),
                began: self.now,
                serial: 1,
                member: None,
                roster: RosterParts::default(),
            }));
            self.hurry();
        } else {
            // Of a key that it does not know yet a server says nothing else.
            self.begin_anew();
        }
    }

    fn refused(&mut self, reason: SealedRefusal, retry: Duration) {
        self.refusals = match self.refusals {
            Some((said, times)) if said == reason => Some((reason, times + 1)),
            _ => Some((reason, 1)),
        };
        self.due = self.due.max(self.now.plus(retry.min(SESSION)));
        // To believe a standby costs no more than asking another server.
        let enough = if reason == SealedRefusal::Standby { 1 } else { REFUSALS };
        if self.refusals.is_some_and(|(_, times)| times >= enough) {
            self.end = Some(Err(match reason {
                SealedRefusal::Invite => JoinRefused::Outcome(JoinOutcome::Unknown, 0, [0; 16]),
                SealedRefusal::Version => JoinRefused::Version,
                SealedRefusal::Busy | SealedRefusal::Stopping | SealedRefusal::Resume => JoinRefused::Busy,
                SealedRefusal::Standby => JoinRefused::Standby,
            }));
        }
    }

    fn record(&mut self, bytes: &[u8]) {
        let (JoinStage::In(session), Ok(envelope)) = (&mut self.stage, Envelope::of_record(bytes, Direction::Server)) else { return };
        let Header { session: id, packet, .. } = envelope.header;
        if id != session.id || session.received.classify(packet) != Freshness::Fresh {
            return;
        }
        let mut text = Vec::new();
        let Ok(messages) = session.sealer.open(&mut self.cipher, self.now.uptime(), bytes, &mut text) else { return };
        let Ok(datagram) = envelope.decode_messages(messages) else { return };
        session.received.note(packet);
        for message in datagram.messages() {
            let took = match message {
                Message::Joined(m) if session.serial == m.serial && session.member.is_none() => {
                    if m.outcome == JoinOutcome::Joined {
                        let (name, roster) = (m.name.0.to_vec(), Vec::new());
                        session.member = Some(Membership { principal: m.principal, name, cluster: m.cluster, roster });
                    } else {
                        self.end = Some(Err(JoinRefused::Outcome(m.outcome, m.used_s, m.used_from)));
                    }
                    true
                }
                Message::RosterPart(m) if session.serial == m.serial => match (session.roster.take(&m), &mut session.member) {
                    (Collected::Whole, Some(member)) => {
                        let roster = core::mem::take(&mut session.roster).into_bytes();
                        self.end = Some(Ok(Membership { roster, ..member.clone() }));
                        true
                    }
                    (taken, _) => taken != Collected::Stray,
                },
                _ => false,
            };
            if took {
                session.serial += 1;
                (self.due, self.pause) = (self.now, PAUSE);
            }
        }
    }

    /// What is next goes out at once.
    fn hurry(&mut self) {
        (self.due, self.pause) = (self.now, PAUSE);
    }

    fn begin_anew(&mut self) {
        self.stage = opening(&mut self.rng);
    }

    /// Says that nothing follows, so that the server need not wait for it.
    fn leave(&mut self, buf: &mut Vec<u8>) -> bool {
        let Self { cipher, stage, now, .. } = self;
        let JoinStage::In(session) = stage else { return false };
        let message = Message::EndSession(EndSession { serial: session.serial, reason: EndReason::Close });
        session.write(&message, cipher, *now, buf)
    }
}

impl JoinSession {
    fn write(&mut self, message: &Message<'_>, cipher: &mut Cipher, now: Instant, buf: &mut Vec<u8>) -> bool {
        let Some(packet) = self.sent.take() else { return false };
        let mut packer = Packer::of_form(buf, Header { from_server: false, session: self.id, packet }, DATAGRAM_MIN, Form::Record);
        let fits = packer.push(message);
        packer.finish();
        self.sealer.seal(cipher, now.uptime(), buf);
        fits
    }
}

fn opening(rng: &mut Rng) -> JoinStage {
    JoinStage::Opening { handshake: rng.nonzero_u64().get(), sent: 0, answered: 0, challenges: 0, open: Vec::new() }
}
