//! Sessions by hand, plain and sealed: a handshake datagram by datagram, then packets of any messages, for attackers and for load generators.
//!
//! Decides what stands on the wire and nothing else: who sends when, what is asked, and what answers mean is the caller's. There is no socket
//! and no timer here. Leaves to others: agents that keep to the protocol (`cistern-agent`).

use cistern_seal::handshake::Initiator;
use cistern_seal::key::KeyId;
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, PublicKey, Sealer, SecretKey, SessionKeys};
use cistern_wire::limits::DATAGRAM_DEFAULT;
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, OpenStatus, SealedAsk, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedRefusal, WelcomePayload,
    Zeros, prologue,
};
use cistern_wire::{
    AgentId, Bytes8, Confirm, Datagram, Direction, DropReason, Envelope, Field as _, Form, Header, Hello, List, Message, Packer, RawHeader,
    Reader, SessionId, StoreId,
};
use std::time::Instant;

/// Where the packet number stands in a header.
const PACKET: std::ops::Range<usize> = 12..20;

/// With which keys sealed sessions are opened.
#[derive(Clone)]
pub struct SealedBy {
    /// The agent's.
    pub agent: SecretKey,
    /// The server's.
    pub server: PublicKey,
}

/// One agent's end of a session: its packet numbers, and what protects its datagrams.
#[derive(Debug)]
pub struct WireSession {
    /// Its name.
    pub id: SessionId,
    /// Most requests outstanding, as the server said.
    pub window: u16,
    packet: u64,
    sealer: Sealer,
    cipher: Cipher,
    began: Instant,
}

impl WireSession {
    /// A plain session that was opened by somebody, or that nobody knows.
    #[must_use]
    pub fn plain(id: SessionId, window: u16) -> Self {
        Self::of(id, window, Sealer::Plain)
    }

    fn of(id: SessionId, window: u16, sealer: Sealer) -> Self {
        Self { id, window, packet: 0, sealer, cipher: Cipher::default(), began: Instant::now() }
    }

    /// Whether its datagrams are sealed.
    #[must_use]
    pub const fn is_sealed(&self) -> bool {
        !matches!(self.sealer, Sealer::Plain)
    }

    /// Makes a datagram of as many of the encoded messages as it has room for; gives its packet number, and how many.
    pub fn pack<'m>(&mut self, messages: impl IntoIterator<Item = &'m [u8]>, buf: &mut Vec<u8>) -> (u64, usize) {
        self.packet += 1;
        let header = Header { from_server: false, session: self.id, packet: self.packet };
        let mut packer = Packer::of_form(buf, header, DATAGRAM_DEFAULT, self.sealer.form());
        let packed = messages.into_iter().take_while(|message| packer.push_encoded(message)).count();
        packer.finish();
        self.sealer.seal(&mut self.cipher, self.began.elapsed(), buf);
        (self.packet, packed)
    }

    /// Reads a datagram of the server in this session; what was sealed is in `text` then.
    ///
    /// # Errors
    /// An agent would drop it: of another form or session, or not authentic, as `BadChecksum` says of either form.
    pub fn open<'a>(&mut self, bytes: &'a [u8], text: &'a mut Vec<u8>) -> Result<Datagram<'a>, DropReason> {
        let envelope = match self.sealer {
            Sealer::Plain => Envelope::at_agent(bytes)?,
            Sealer::Sealed(_) => Envelope::of_record(bytes, Direction::Server)?,
        };
        if envelope.header.session != self.id {
            return Err(DropReason::BadChecksum);
        }
        let messages = self.sealer.open(&mut self.cipher, self.began.elapsed(), bytes, text);
        envelope.decode_messages(messages.map_err(|_| DropReason::BadChecksum)?)
    }
}

/// Whom a datagram of the server is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addressee {
    /// The handshake of that number.
    Handshake(u64),
    /// The session.
    Session(SessionId),
}

impl Addressee {
    /// As the datagram says, whose contents are not looked at where a session is named.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Option<Self> {
        let raw = RawHeader::get(&mut Reader::new(bytes)).ok()?;
        if raw.session != SessionId(0) {
            return Some(Self::Session(raw.session));
        }
        let handshake = if raw.form == Form::Plain as u8 {
            match Datagram::at_agent(bytes).ok()?.messages().next()? {
                Message::Challenge(challenge) => challenge.handshake,
                Message::Welcome(welcome) => welcome.handshake,
                Message::Refuse(refuse) => refuse.handshake,
                _ => return None,
            }
        } else {
            match SealedDatagram::at_agent(bytes).ok()?.body {
                SealedHandshake::Challenge(challenge) => challenge.handshake,
                SealedHandshake::Welcome(welcome) => welcome.handshake,
                SealedHandshake::Refuse(refuse) => refuse.handshake,
                _ => return None,
            }
        };
        Some(Self::Handshake(handshake))
    }
}

/// What a datagram meant to a handshake.
#[derive(Debug)]
pub enum Step {
    /// Nothing, or not yet.
    Waits,
    /// The next datagram may be sent now.
    Sends,
    /// It is over: the session is open.
    Open(WireSession),
    /// It is over, and why, in the server's word.
    Refused(String),
}

/// A handshake under way.
pub struct Opening {
    agent: AgentId,
    number: u64,
    incarnation: u64,
    window: u16,
    label: &'static [u8],
    sealed: Option<SealedBy>,
    packet: u64,
    cookie: Vec<u8>,
    /// OPEN, which is sent again with other numbers, the first of these, and who reads its answer.
    open: Option<(Vec<u8>, u64, Initiator)>,
    offered: Option<WireSession>,
}

impl Opening {
    /// The handshake of this number, not 0 and no other's at a time, of an agent or of the instance of a key.
    #[must_use]
    pub const fn new(agent: AgentId, number: u64, window: u16, label: &'static [u8], sealed: Option<SealedBy>) -> Self {
        Self { agent, number, incarnation: 1, window, label, sealed, packet: 0, cookie: Vec::new(), open: None, offered: None }
    }

    /// The same in another incarnation than the first.
    #[must_use]
    pub fn of_incarnation(self, incarnation: u64) -> Self {
        Self { incarnation, ..self }
    }

    /// The number of the handshake.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The session that it was offered and has not yet.
    #[must_use]
    pub fn offered(&self) -> Option<SessionId> {
        self.offered.as_ref().map(|session| session.id)
    }

    /// Writes what is to be sent now, or again.
    pub fn write(&mut self, buf: &mut Vec<u8>) {
        let confirm = Message::from(Confirm { serial: 1, former: List::of(&[]) });
        if let Some(session) = &mut self.offered {
            session.pack([&confirm.to_bytes()[..]], buf);
            return;
        }
        self.packet += 1;
        let Some(by) = &self.sealed else {
            let hello = Hello {
                incarnation: self.incarnation,
                window: self.window,
                label: Bytes8(self.label),
                cookie: Bytes8(&self.cookie),
                ..Hello::new(self.agent, self.number)
            };
            let header = Header { from_server: false, session: SessionId(0), packet: self.packet };
            let mut packer = Packer::new(buf, header, DATAGRAM_DEFAULT);
            assert!(packer.push(&Message::from(hello)), "a HELLO fits");
            return packer.finish();
        };
        let check = FirstCheck::of(&by.server);
        let key_id = KeyId::of(&by.server).0;
        match <[u8; 24]>::try_from(&self.cookie[..]) {
            Err(_) => {
                let ask = SealedAsk { handshake: self.number, key_id, room: Zeros, mac1: [0; MAC_LEN] };
                SealedDatagram::new(SessionId(0), self.packet, ask).write(buf);
            }
            Ok(cookie) => {
                let (made, ..) = self.open.get_or_insert_with(|| {
                    let open = SealedOpen {
                        handshake: self.number,
                        key_id,
                        cookie,
                        psk_id: [0; 8],
                        ephemeral: [0; 32],
                        agent_key: [0; 48],
                        payload: [0; 216],
                        mac1: [0; MAC_LEN],
                    };
                    let payload = OpenPayload {
                        instance: self.agent,
                        incarnation: self.incarnation,
                        boot: [0; 16],
                        store: StoreId([0; 16]),
                        epoch: 0,
                        server_incarnation: 0,
                        window: self.window,
                        max_datagram: Hello::new(self.agent, 1).max_datagram,
                        features: 0,
                        lease_us: 0,
                        roster: 0,
                        label: Bytes8(self.label),
                    };
                    let (bytes, initiator) = sealed_open(by, open, self.packet, &payload);
                    (bytes, self.packet, initiator)
                });
                made[PACKET].copy_from_slice(&self.packet.to_be_bytes());
                buf.clone_from(made);
            }
        }
        check.complete(buf);
    }

    /// Takes a datagram of the server, which [is for it](Addressee).
    pub fn take(&mut self, bytes: &[u8]) -> Step {
        if let Some(mut session) = self.offered.take() {
            let mut text = Vec::new();
            let opens = session.open(bytes, &mut text).is_ok_and(|it| it.messages().any(|message| matches!(message, Message::Opened(_))));
            if opens {
                return Step::Open(session);
            }
            self.offered = Some(session);
            return Step::Waits;
        }
        if self.sealed.is_some() { self.take_sealed(bytes) } else { self.take_plain(bytes) }
    }

    fn take_plain(&mut self, bytes: &[u8]) -> Step {
        let message = Datagram::at_agent(bytes).ok().and_then(|datagram| datagram.messages().next());
        match message {
            Some(Message::Challenge(challenge)) => {
                self.cookie = challenge.cookie.0.to_vec();
                Step::Sends
            }
            Some(Message::Welcome(welcome)) => {
                self.offered = Some(WireSession::plain(welcome.session, welcome.window));
                Step::Sends
            }
            Some(Message::Refuse(refuse)) => Step::Refused(refuse.reason.to_string()),
            _ => Step::Waits,
        }
    }

    fn take_sealed(&mut self, bytes: &[u8]) -> Step {
        let Ok(datagram) = SealedDatagram::at_agent(bytes) else { return Step::Waits };
        match datagram.body {
            // One that answers OPEN says that its cookie is too old; the answer to an ASK sent twice says nothing new.
            SealedHandshake::Challenge(challenge) => {
                if self.open.as_ref().is_some_and(|(_, first, _)| challenge.echo < *first) {
                    return Step::Waits;
                }
                (self.cookie, self.open) = (challenge.cookie.to_vec(), None);
                Step::Sends
            }
            SealedHandshake::Welcome(_) => {
                let message = SealedKind::Welcome.message().and_then(|place| bytes.get(place));
                let finished = self.open.as_mut().zip(message).and_then(|((.., initiator), message)| initiator.finish(message).ok());
                let Some((payload, chain)) = finished else { return Step::Waits };
                let Ok(payload) = WelcomePayload::of(&payload) else { return Step::Waits };
                if payload.status != OpenStatus::Opened {
                    return Step::Refused(payload.status.to_string());
                }
                let mut session = WireSession::plain(payload.session, payload.window);
                session.sealer = Sealer::Sealed(Box::new(SessionKeys::new(&chain, Direction::Agent, session.began.elapsed())));
                self.offered = Some(session);
                Step::Sends
            }
            // A bound is reached at the moment: to be tried again.
            SealedHandshake::Refuse(refuse) if refuse.reason != SealedRefusal::Busy => Step::Refused(refuse.reason.to_string()),
            _ => Step::Waits,
        }
    }
}

/// OPEN without its check, and who reads the answer.
fn sealed_open(by: &SealedBy, open: SealedOpen, packet: u64, payload: &OpenPayload<'_>) -> (Vec<u8>, Initiator) {
    let payload: [u8; OpenPayload::OPEN_LEN] = payload.padded();
    let mut bytes = Vec::new();
    SealedDatagram::new(SessionId(0), packet, open).write(&mut bytes);
    let prologue = prologue(&bytes).expect("OPEN has all that is in the prologue");
    let entropy = Entropy::from_bytes(cistern_driver::seed().expect("the system has randomness"));
    let begun = Initiator::open(&by.agent, &by.server, &Psk::none(), entropy, &prologue, &payload);
    let (initiator, message) = begun.expect("the server's key is one");
    let place = SealedKind::Open.message().expect("OPEN has a message");
    bytes[place].copy_from_slice(&message);
    (bytes, initiator)
}
