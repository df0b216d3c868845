//! The sealed mode in a run: keys, workers, and what judges read of it.
//!
//! Decides that records are of paper in most runs (tags that fail where real ones do, and a panic at a number used twice), handshakes real; and
//! that judges see each datagram as plain mode would have it, if a core made it: whatever else arrives, the core must have dropped. Invariant: cores
//! know nothing of it. Leaves to others: when workers have done what (`host::server`), what is told when (`world`, `script`).

use crate::observe::{Node, Seen, True, Violation};
use crate::rng::SimRng;
use crate::world::Reception;
use cistern_agent::{Agent, KeyAt, Keys};
use cistern_link::Instant;
use cistern_seal::handshake::HandshakeFailed;
use cistern_seal::record::{Chain, Key};
use cistern_seal::session::Limits;
use cistern_seal::work::{Beginning, Handshaker, JobId, KeyHolder, SealDone, SealWork, Worker};
use cistern_seal::{Aead, ChaCha, Cipher, Entropy, FirstCheck, OpenFailed, Paper, PublicKey, SecretKey, StartKey};
use cistern_server::Server;
use cistern_server::principals::Rights;
use cistern_wire::limits::{DATAGRAM_MAX, TAG_LEN};
use cistern_wire::sealed::{
    OpenPayload, OpenStatus, SealedAsk, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedRefuse, WelcomePayload, prologue,
};
use cistern_wire::{
    AgentId, Bytes8, Challenge, Direction, Envelope, Form, Header, Hello, Message, Packer, Refuse, RefuseReason, SessionId, Welcome,
};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::hash::Hasher as _;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// In one run of so many the cipher is the real one.
const REAL_EVERY: u64 = 8;
/// Most time that a worker takes, in nanoseconds.
const WORK_NS: u64 = 5_000_000;

/// The flag of a record that changes with each generation of keys.
const KEY_PHASE: u8 = 2;

/// What is known of datagrams outside of the cores.
#[derive(Default)]
struct Secrets {
    /// The messages of records that cores have made, and when they were sent first.
    records: HashMap<u64, Vec<u8>>,
    sent: HashMap<u64, True>,
    /// Handshake datagrams that cores have made, as plain mode would have them, if it has them.
    handshakes: HashMap<u64, Option<Vec<u8>>>,
    /// WELCOMEs by their messages: nothing else of them is authentic, or believed.
    welcomes: HashMap<u64, u64>,
    /// What is encrypted in messages of handshakes.
    payloads: HashMap<u64, Vec<u8>>,
    /// Whose each session and each handshake is.
    sessions: HashMap<SessionId, usize>,
    askers: HashMap<u64, usize>,
    /// Records that have reached whom they are for, and the addresses from which those of a session have reached the server.
    arrived: HashSet<u64>,
    heard: HashSet<(SessionId, SocketAddr)>,
    /// What was said under each ephemeral key, and what a Diffie-Hellman was computed for.
    ephemerals: HashMap<[u8; 32], u64>,
    cookies: HashSet<Vec<u8>>,
    /// What a worker was given against the rules.
    broken: Option<Violation>,
}

/// The sealed mode of one run.
#[derive(Clone)]
pub struct Sealing {
    seed: u64,
    limits: Limits,
    paper: Paper,
    known: Arc<Mutex<Secrets>>,
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealing").field("seed", &self.seed).finish_non_exhaustive()
    }
}

fn hash(parts: &[&[u8]]) -> u64 {
    let mut hasher = SipHasher13::new();
    parts.iter().for_each(|part| hasher.write(part));
    hasher.finish()
}

/// A cipher that notes what it seals.
struct NotedCipher<A> {
    aead: A,
    known: Arc<Mutex<Secrets>>,
}

impl<A: Aead> Aead for NotedCipher<A> {
    fn seal(&mut self, key: &Key, number: u64, associated: &[u8], text: &mut [u8]) -> [u8; TAG_LEN] {
        let messages = text.to_vec();
        let tag = self.aead.seal(key, number, associated, text);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.records.insert(hash(&[associated, text, &tag]), messages);
        tag
    }

    fn open(
        &mut self,
        key: &Key,
        number: u64,
        associated: &[u8],
        sealed: &[u8],
        tag: &[u8; TAG_LEN],
        text: &mut [u8],
    ) -> Result<(), OpenFailed> {
        self.aead.open(key, number, associated, sealed, tag, text)
    }
}

impl Sealing {
    /// With keys that follow from the seed, and are used within these limits.
    #[must_use]
    pub fn new(seed: u64, limits: Limits) -> Self {
        Self { seed, limits, paper: Paper::default(), known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, Secrets> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a server; without a group there is one, the first.
    pub(crate) fn server_key(&self, server: usize) -> SecretKey {
        SecretKey::from_bytes(SimRng::new(self.seed).fork(&format!("server key {server}")).seed())
    }

    fn agent_key(&self, number: usize) -> SecretKey {
        SecretKey::from_bytes(SimRng::new(self.seed).fork(&format!("agent key {number}")).seed())
    }

    fn cipher(&self) -> Cipher {
        let known = self.known.clone();
        if self.seed.is_multiple_of(REAL_EVERY) {
            Cipher::new(NotedCipher { aead: ChaCha, known }, self.limits)
        } else {
            Cipher::new(NotedCipher { aead: self.paper.clone(), known }, self.limits)
        }
    }

    /// Who an agent is that says that it is `instance`.
    #[must_use]
    pub fn agent_id(&self, number: usize, instance: AgentId) -> AgentId {
        self.agent_key(number).public().agent(instance)
    }

    /// What an agent's principal is called.
    pub(crate) fn name(number: usize) -> String {
        format!("agent {number}")
    }

    /// A server that seals, with the random bytes of this start.
    #[must_use]
    pub fn server(&self, core: Server, number: usize, start: [u8; 32]) -> Server {
        core.sealed(&[self.server_key(number).public()], StartKey::from_bytes(start), self.cipher())
    }

    /// Takes in the principals of so many agents that a serving server does not have: they may do everything.
    ///
    /// # Panics
    /// If one is refused.
    pub fn enlist(&self, core: &mut Server, now: Instant, agents: usize) {
        for number in 0..agents {
            let key = Some(*self.agent_key(number).public().as_bytes());
            if !core.principals().iter().any(|row| row.record.as_ref().is_some_and(|record| record.key == key)) {
                let (who, _) = core.add_principal(now, Self::name(number).as_bytes(), key, true).expect("there is room");
                core.grant(now, who, cistern_wire::Realm::TREE, Rights::ALL).expect("the tree is a realm");
            }
        }
    }

    /// An agent that seals, with these keys of servers if there are any; else there is one server.
    #[must_use]
    pub fn agent(&self, core: Agent, number: usize, servers: &[KeyAt], mut ephemerals: SimRng) -> Agent {
        let holder = KeyHolder::new(self.agent_key(number), move || Entropy::from_bytes(ephemerals.seed()));
        let server: PublicKey = self.server_key(0).public();
        let keys = Keys::new(WitnessedHolder { holder, sealing: self.clone() }, server).with_servers(servers);
        core.sealed(keys, self.cipher())
    }

    /// What a worker was given against the rules since this was asked last.
    pub(crate) fn broken(&self) -> Result<(), Violation> {
        self.known().broken.take().map_or(Ok(()), Err)
    }

    /// A core has made this datagram, and sends it. What is in records is known already.
    ///
    /// # Errors
    /// It shows what the sealed mode hides: an ephemeral key has two texts. Or a record goes where none of its session came from, or is of a
    /// generation that was not due.
    pub fn made(
        &self,
        now: True,
        by: Node,
        to: SocketAddr,
        hello: impl FnOnce(usize) -> Hello<'static>,
        bytes: &[u8],
    ) -> Result<(), Violation> {
        // By the bounds of the specification no run is long enough for another generation.
        let Limits { packets, failed_soft, age, .. } = Limits::DEFAULT;
        let is_far = self.limits.packets == packets && self.limits.failed_soft == failed_soft && self.limits.age == age;
        if is_far
            && u128::from(now.0) < age.as_nanos()
            && Form::named(bytes) == Some(Form::Record)
            && bytes.get(3).is_some_and(|flags| flags & KEY_PHASE != 0)
        {
            return violated("generation", format!("{by} has begun another generation of keys, and none was due"));
        }
        let mut known = self.known();
        known.sent.entry(hash(&[bytes])).or_insert(now);
        if let Node::Agent(agent) = by {
            known.note_asker(agent, bytes);
        } else if let Ok(envelope) = Envelope::of_record(bytes, Direction::Server)
            && !known.heard.contains(&(envelope.header.session, to))
        {
            let what = format!("a record of session {} goes to {to}, from where none has come that opens", envelope.header.session);
            return violated("elsewhere", what);
        }
        if Form::named(bytes) == Some(Form::Handshake) {
            let plain = known.handshake(by, hello, bytes);
            known.handshakes.insert(hash(&[bytes]), plain);
            known.welcomes.extend(welcome(bytes).map(|message| (message, hash(&[bytes]))));
        }
        known.one_text(bytes)
    }

    /// What plain mode would have in place of a datagram that a core has made.
    #[must_use]
    pub fn in_clear(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let known = self.known();
        if Form::named(bytes) != Some(Form::Record) {
            return known.handshakes.get(&known.made_as(bytes)).cloned().flatten();
        }
        let from = if bytes.get(3)? & 1 == 1 { Direction::Server } else { Direction::Agent };
        let (envelope, messages) = (Envelope::of_record(bytes, from).ok()?, known.records.get(&hash(&[bytes]))?);
        plain(envelope.header, |packer| packer.push_encoded(messages))
    }

    fn is_made(&self, bytes: &[u8]) -> bool {
        let known = self.known();
        let hash = known.made_as(bytes);
        known.records.contains_key(&hash) || known.handshakes.contains_key(&hash)
    }

    /// A happening as plain mode would have it.
    ///
    /// # Errors
    /// A core has not dropped what no core has made.
    pub fn tell(&self, seen: &Seen<'_>, tell: impl FnOnce(&Seen<'_>) -> Result<(), Violation>) -> Result<(), Violation> {
        let (Seen::Sent { bytes, .. } | Seen::Exposed { bytes, .. } | Seen::Received { bytes, .. } | Seen::Forged { bytes, .. }) = seen
        else {
            return tell(seen);
        };
        if !self.is_made(bytes) || matches!(seen, Seen::Received { by, .. } | Seen::Forged { by, .. } if !self.is_for(*by, bytes)) {
            return tell(seen);
        }
        // For some plain mode has nothing.
        let Some(plain) = self.in_clear(bytes) else {
            return Ok(());
        };
        let bytes = &plain[..];
        tell(&match *seen {
            Seen::Sent { from, to, .. } => Seen::Sent { from, to, bytes },
            Seen::Exposed { to, .. } => Seen::Exposed { to, bytes },
            Seen::Received { by, from, .. } => Seen::Received { by, from, bytes },
            Seen::Forged { by, from, counted, .. } => Seen::Forged { by, from, bytes, counted },
            ref other => other.clone(),
        })
    }

    /// Judges that a core acts on nothing but what a core has made for it, and on each such record once; `is_open`: whether a session is
    /// open at the server.
    ///
    /// # Errors
    /// It was given something else and has dropped nothing, or has dropped as a copy what came for the first time, or did not open what was
    /// sent a moment ago.
    pub(crate) fn judge(
        &self,
        now: True,
        node: Node,
        from: SocketAddr,
        bytes: &[u8],
        reception: Reception,
        is_open: impl FnOnce(SessionId) -> bool,
    ) -> Result<(), Violation> {
        self.broken()?;
        if !self.is_made(bytes) || !self.is_for(node, bytes) {
            let what = format!("{node} has not dropped {} bytes that nobody made for it who has the key", bytes.len());
            return if reception.is_counted() || self.is_checked(node, bytes) { Ok(()) } else { violated("authentic", what) };
        }
        let hash = hash(&[bytes]);
        let mut known = self.known();
        // A generation's key is kept for so long, on clocks of which one may run at twice the rate of another.
        let young = u64::try_from(self.limits.old_kept.as_nanos() / 4).unwrap_or(u64::MAX);
        if reception == Reception::Unopened
            && known.records.contains_key(&hash)
            && known.sent.get(&hash).is_some_and(|sent| now.0 - sent.0 < young)
        {
            return violated("opens", format!("{node} does not open a record of a moment ago, of {} bytes", bytes.len()));
        }
        let Ok(Envelope { header, .. }) = Envelope::of_record(bytes, Direction::Agent) else { return Ok(()) };
        if reception != Reception::Unopened {
            known.heard.insert((header.session, from));
        }
        if known.arrived.insert(hash) && reception == Reception::Copy && is_open(header.session) {
            return violated("kept-out", format!("packet {} of session {} is a copy, and came once", header.packet, header.session));
        }
        Ok(())
    }

    /// Whether a machine may take what a datagram says for true: it is one that only the other side can have made.
    pub(crate) fn informs(&self, node: Node, bytes: &[u8]) -> bool {
        let is_said_to_all = SealedDatagram::at_agent(bytes).is_ok_and(|datagram| datagram.body.kind().has_mac1());
        // Forged records say nothing, but wear keys out where few may fail.
        let wears_out = self.limits.failed < Limits::DEFAULT.failed && Form::named(bytes) == Some(Form::Record);
        wears_out || !is_said_to_all && self.is_made(bytes) && self.is_for(node, bytes)
    }

    /// By what those who know the server's key complete handshake datagrams.
    pub(crate) fn first_check(&self) -> FirstCheck {
        FirstCheck::of(&self.server_key(0).public())
    }

    /// Whether this is a datagram that anybody can have made who knows the server's key, and may be answered or acted on.
    fn is_checked(&self, node: Node, bytes: &[u8]) -> bool {
        let datagram = if node == Node::Server { SealedDatagram::at_server(bytes) } else { SealedDatagram::at_agent(bytes) };
        datagram.is_ok_and(|datagram| datagram.body.kind().has_mac1()) && self.first_check().holds(bytes)
    }

    /// Whether this machine has the key of a datagram that a core has made: to an agent only what is of its own sessions and handshakes opens.
    fn is_for(&self, node: Node, bytes: &[u8]) -> bool {
        let up = bytes.get(3).is_some_and(|flags| flags & 1 == 0);
        match node {
            Node::Server => up,
            Node::Agent(agent) => !up && self.known().asker(bytes) == Some(agent),
        }
    }
}

/// A plain datagram.
fn plain(header: Header, fill: impl FnOnce(&mut Packer<'_>) -> bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MAX);
    fill(&mut packer).then(|| packer.finish())?;
    Some(bytes)
}

fn violated<T>(check: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant: "I22", check, what })
}

/// The message of a WELCOME.
fn welcome(bytes: &[u8]) -> Option<u64> {
    SealedDatagram::at_agent(bytes).ok().filter(|datagram| datagram.body.kind() == SealedKind::Welcome)?;
    Some(hash(&[bytes.get(SealedKind::Welcome.message()?)?]))
}

impl Secrets {
    /// The datagram that a core has made, if this is as good to whom it is for.
    fn made_as(&self, bytes: &[u8]) -> u64 {
        welcome(bytes).and_then(|message| self.welcomes.get(&message).copied()).unwrap_or_else(|| hash(&[bytes]))
    }

    /// Judges that under one ephemeral key one text is sent, under one prologue.
    fn one_text(&mut self, bytes: &[u8]) -> Result<(), Violation> {
        let datagram = SealedDatagram::at_server(bytes).map(|datagram| datagram.body);
        let (Ok(SealedHandshake::Open(open)), Some(prologue)) = (datagram, prologue(bytes)) else { return Ok(()) };
        let text = hash(&[&prologue, &open.agent_key, &open.payload]);
        if *self.ephemerals.entry(open.ephemeral).or_insert(text) == text {
            return Ok(());
        }
        violated("ephemeral-twice", format!("handshake {:x} has another text under an ephemeral key that was sent", open.handshake))
    }

    /// Judges that a cookie pays for one Diffie-Hellman: `prologue` has it.
    fn paid(&mut self, prologue: &[u8]) {
        if !self.cookies.insert(prologue.to_vec()) {
            self.broken = violated::<()>("cookie-twice", "a second Diffie-Hellman is computed for one cookie".to_owned()).err();
        }
    }

    /// An agent sends this datagram.
    fn note_asker(&mut self, agent: usize, bytes: &[u8]) {
        match SealedDatagram::at_server(bytes).map(|datagram| datagram.body) {
            Ok(SealedHandshake::Ask(SealedAsk { handshake, .. }) | SealedHandshake::Open(SealedOpen { handshake, .. })) => {
                self.askers.insert(handshake, agent);
            }
            Ok(_) => {}
            Err(_) => {
                if let Ok(envelope) = Envelope::of_record(bytes, Direction::Agent) {
                    self.sessions.insert(envelope.header.session, agent);
                }
            }
        }
    }

    /// The agent that has begun what a datagram of the server belongs to.
    fn asker(&self, bytes: &[u8]) -> Option<usize> {
        let session = |session| self.sessions.get(&session).copied();
        let Ok(datagram) = SealedDatagram::at_agent(bytes) else {
            return session(Envelope::of_record(bytes, Direction::Server).ok()?.header.session);
        };
        let handshake = match datagram.body {
            SealedHandshake::Challenge(challenge) => challenge.handshake,
            SealedHandshake::Welcome(welcome) => welcome.handshake,
            SealedHandshake::Refuse(refuse) => refuse.handshake,
            _ => return session(datagram.header.session),
        };
        self.askers.get(&handshake).copied()
    }

    /// What plain mode would have in place of a handshake datagram that is being sent.
    fn handshake(&self, by: Node, hello: impl FnOnce(usize) -> Hello<'static>, bytes: &[u8]) -> Option<Vec<u8>> {
        let datagram = match by {
            Node::Server => SealedDatagram::at_agent(bytes).ok()?,
            Node::Agent(_) => SealedDatagram::at_server(bytes).ok()?,
        };
        let hello = if let Node::Agent(number) = by { hello(number) } else { Hello::new(AgentId([0; 16]), 0) };
        let payload = |kind: SealedKind| self.payloads.get(&hash(&[bytes.get(kind.message()?)?]));
        let message: Message<'_> = match &datagram.body {
            SealedHandshake::Ask(ask) => Hello { handshake: ask.handshake, ..hello }.into(),
            SealedHandshake::Challenge(challenge) => {
                Challenge { handshake: challenge.handshake, echo: challenge.echo, cookie: Bytes8(&challenge.cookie) }.into()
            }
            SealedHandshake::Open(open) => {
                let payload = OpenPayload::of(payload(SealedKind::Open)?).ok()?;
                Hello { cookie: Bytes8(&open.cookie), ..hello_of(&payload, hello.agent, open.handshake) }.into()
            }
            SealedHandshake::Resume(resume) => {
                let payload = OpenPayload::of(payload(SealedKind::Resume)?).ok()?;
                Hello { cookie: Bytes8(&resume.cookie), ..hello_of(&payload, hello.agent, resume.handshake) }.into()
            }
            SealedHandshake::Welcome(welcome) => {
                let payload = WelcomePayload::of(payload(SealedKind::Welcome)?).ok()?;
                welcome_of(&payload, welcome.handshake, welcome.echo)
            }
            SealedHandshake::Refuse(refuse) => {
                let SealedRefuse { handshake, echo, retry_ms, serving, .. } = *refuse;
                Refuse { handshake, echo, reason: RefuseReason::Busy, version_min: 1, version_max: 1, retry_ms, serving }.into()
            }
            // Its length is to be compared with sealed ones.
            SealedHandshake::Hint(_) => return None,
        };
        plain(datagram.header, |packer| packer.push(&message))
    }
}

fn hello_of<'a>(payload: &OpenPayload<'a>, agent: AgentId, handshake: u64) -> Hello<'a> {
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
        label: payload.label,
        ..Hello::new(agent, handshake)
    }
}

fn welcome_of(payload: &WelcomePayload, handshake: u64, echo: u64) -> Message<'static> {
    let reason = match payload.status {
        OpenStatus::Opened => {
            return Welcome {
                handshake,
                echo,
                version: payload.version,
                session: payload.session,
                handle: payload.handle,
                store: payload.store,
                epoch: payload.epoch,
                server_incarnation: payload.server_incarnation,
                features: payload.features,
                lease_us: payload.lease_us,
                delta_ppm: payload.delta_ppm,
                epsilon_us: payload.epsilon_us,
                delivery_timeout_us: payload.delivery_timeout_us,
                window: payload.window,
                max_datagram: payload.max_datagram,
                first_packet: 1,
            }
            .into();
        }
        OpenStatus::Superseded => RefuseReason::Superseded,
        OpenStatus::Limit => RefuseReason::Crowded,
        OpenStatus::Ahead => RefuseReason::Ahead,
        OpenStatus::Busy | OpenStatus::UnknownKey | OpenStatus::Revoked => RefuseReason::Busy,
    };
    Refuse { handshake, echo, reason, version_min: 1, version_max: 1, retry_ms: payload.retry_ms, serving: 0 }.into()
}

/// Holds an agent's key, and notes what it encrypts.
struct WitnessedHolder<H> {
    holder: H,
    sealing: Sealing,
}

impl<H: Handshaker> Handshaker for WitnessedHolder<H> {
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
        let message = self.holder.begin(beginning, prologue, payload)?;
        self.sealing.known().payloads.insert(hash(&[&message]), payload.to_vec());
        Ok(message)
    }

    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        self.holder.finish(message)
    }
}

/// The worker of a server's process.
pub struct SealWorker {
    sealing: Sealing,
    worker: Worker,
    rng: SimRng,
    /// What it answered to writing, of which the payload is known.
    payloads: BTreeMap<JobId, Vec<u8>>,
    /// What it will have done.
    doing: BTreeMap<u64, SealDone>,
    /// What it has done and nobody has heard.
    done: VecDeque<SealDone>,
    /// Whether the server has taken its agents' principals in.
    pub enlisted: bool,
    last: u64,
}

impl fmt::Debug for SealWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealWorker").field("doing", &self.doing.len()).finish_non_exhaustive()
    }
}

impl SealWorker {
    /// One that has done nothing yet.
    #[must_use]
    pub fn new(sealing: Sealing, server: usize, rng: SimRng) -> Self {
        let worker = Worker::new([sealing.server_key(server)]);
        Self { sealing, worker, rng, payloads: BTreeMap::new(), doing: BTreeMap::new(), done: VecDeque::new(), enlisted: false, last: 0 }
    }

    /// Takes a piece of work; gives after how long it is done, and under which number.
    pub fn take(&mut self, work: SealWork) -> Option<(u64, u64)> {
        match &work {
            SealWork::Write { job, payload, .. } => _ = self.payloads.insert(*job, payload.to_vec()),
            SealWork::Read { prologue, .. } => self.sealing.known().paid(prologue),
            SealWork::Drop { .. } => {}
        }
        let done = self.worker.work(work, Entropy::from_bytes(self.rng.seed()))?;
        if let SealDone::Written { job, message, .. } = &done
            && let Some(payload) = self.payloads.remove(job)
        {
            self.sealing.known().payloads.insert(hash(&[message]), payload);
        }
        self.last += 1;
        self.doing.insert(self.last, done);
        Some((self.rng.between(WORK_NS / 100, WORK_NS), self.last))
    }

    /// What has this number is done.
    pub fn finish(&mut self, number: u64) {
        self.done.extend(self.doing.remove(&number));
    }

    /// What it has done.
    pub fn done(&mut self) -> Option<SealDone> {
        self.done.pop_front()
    }
}
