//! RESUME: with a secret that the server has told, a session is verified and taken up again without the agent's key; without one, or in vain, OPEN.

use super::script::{server, stat};
use crate::api::Event;
use crate::config::Config;
use crate::{Agent, Identity, Keys};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine as _, Path};
use cistern_seal::handshake::Responder;
use cistern_seal::work::KeyHolder;
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, Sealer, SecretKey, SessionKeys};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, SealedAsk, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedKind, SealedRefusal, SealedRefuse,
    SealedWelcome, WelcomePayload, Zeros, prologue,
};
use cistern_wire::{
    AgentId, Direction, Envelope, FormerFate, Header, List, Message, Opened, Packer, SessionFate, SessionId, welcome_payload_sample,
};
use core::net::SocketAddr;
use core::time::Duration;

const SECRET: [u8; 32] = [0x5E; 32];

fn server_key() -> SecretKey {
    SecretKey::from_bytes([2; 32])
}

/// An agent that seals and wants something, and a server whose every word the test decides.
struct Shaking {
    agent: Agent,
    now_ms: u64,
    sent: u64,
    session: SessionId,
    sealer: Sealer,
    /// Number of the last record of the agent.
    heard: u64,
    /// Where the last datagram of a handshake went.
    to: Option<Path>,
}

impl Shaking {
    fn new(servers: &[SocketAddr]) -> Self {
        let mut drawn = 0;
        let draw = move || {
            drawn += 1;
            Entropy::from_bytes([drawn; 32])
        };
        let identity = Identity { agent: AgentId([1; 16]), incarnation: 1, boot: [2; 16], label: b"test".to_vec() };
        let agent = Agent::new(Config::default(), identity, [3; 32], servers.to_vec()).unwrap();
        let agent = agent.sealed(Keys::new(KeyHolder::new(SecretKey::from_bytes([4; 32]), draw), server_key().public()), Cipher::default());
        let mut shaking = Self { agent, now_ms: 10_000, sent: 0, session: SessionId(0), sealer: Sealer::Plain, heard: 0, to: None };
        let now = shaking.now();
        shaking.agent.submit(now, stat(1));
        shaking
    }

    fn now(&self) -> Instant {
        Instant::new(self.now_ms * 1_000_000, self.now_ms * 1_000_000)
    }

    /// The next datagram of a handshake within five seconds; records on the way are lost.
    fn one(&mut self) -> (SealedHandshake, Vec<u8>) {
        let (mut buf, last) = (Vec::new(), self.now_ms + 5_000);
        loop {
            let now = self.now();
            self.agent.handle_drained(now);
            while let Some(path) = self.agent.poll_transmit(now, &mut buf) {
                if let Ok(datagram) = SealedDatagram::at_server(&buf) {
                    self.to = Some(path);
                    return (datagram.body, buf);
                }
                self.heard = packet(&buf);
            }
            assert!(self.now_ms < last, "nothing is sent");
            self.now_ms += 1;
        }
    }

    fn say(&mut self, session: SessionId, body: impl Into<SealedHandshake>) {
        self.sent += 1;
        let (mut bytes, body) = (Vec::new(), body.into());
        SealedDatagram::new(session, self.sent, body).write(&mut bytes);
        if body.kind().has_mac1() {
            FirstCheck::of(&server_key().public()).complete(&mut bytes);
        }
        let now = self.now();
        self.agent.handle_datagram(now, Path::to(server(1)), &bytes);
    }

    /// ASK is sent, and answered; what follows.
    fn asked(&mut self) -> (SealedHandshake, Vec<u8>) {
        let (SealedHandshake::Ask(ask), bytes) = self.one() else { panic!("not an ASK") };
        self.challenge(&ask, &bytes);
        self.one()
    }

    fn challenge(&mut self, ask: &SealedAsk, bytes: &[u8]) {
        let challenge = SealedChallenge { handshake: ask.handshake, echo: packet(bytes), cookie: [5; 24], mac1: [0; MAC_LEN] };
        self.say(SessionId(0), challenge);
    }

    /// Offers a session to whoever has sent OPEN or RESUME; false: that was made with another secret.
    fn welcome(&mut self, (body, bytes): &(SealedHandshake, Vec<u8>), session: u64) -> bool {
        let (prologue, entropy) = (prologue(bytes).unwrap(), Entropy::from_bytes([9; 32]));
        let message = &bytes[body.kind().message().unwrap()];
        let (handshake, read) = match body {
            SealedHandshake::Open(open) => (open.handshake, Responder::open(&server_key(), entropy, &prologue, message)),
            SealedHandshake::Resume(resume) => (resume.handshake, Responder::resume(&Psk::from_bytes(SECRET), entropy, &prologue, message)),
            other => panic!("neither OPEN nor RESUME: {other:?}"),
        };
        let Ok((read, payload)) = read else { return false };
        assert_eq!(OpenPayload::of(&payload).unwrap().instance, AgentId([1; 16]));
        (self.session, self.sent) = (SessionId(session), 0);
        let payload = WelcomePayload { session: self.session, version: 1, ..welcome_payload_sample() };
        let (message, chain) = read.answer(&Psk::none(), &payload.padded()).unwrap();
        self.sealer = Sealer::Sealed(Box::new(SessionKeys::new(&chain, Direction::Server, Duration::ZERO)));
        let (ephemeral, payload) = message.split_first_chunk().unwrap();
        let welcome = SealedWelcome { handshake, echo: packet(bytes), ephemeral: *ephemeral, payload: payload.try_into().unwrap() };
        self.say(SessionId(0), welcome);
        true
    }

    /// CONFIRM is sent, and answered OPENED, with this secret and these fates.
    fn opened(&mut self, resume: [u8; 32], former: &[FormerFate]) {
        let (now, mut buf) = (self.now(), Vec::new());
        self.agent.handle_drained(now);
        self.agent.poll_transmit(now, &mut buf).expect("CONFIRM");
        let envelope = Envelope::of_record(&buf, Direction::Agent).unwrap();
        let mut text = Vec::new();
        let messages = self.sealer.open(&mut Cipher::default(), Duration::ZERO, &buf, &mut text).unwrap();
        let datagram = envelope.decode_messages(messages).unwrap();
        let Some(Message::Confirm(confirm)) = datagram.messages().next() else { panic!("not CONFIRM") };
        let opened = Opened { serial: confirm.serial, echo: packet(&buf), former: List::of(former), resume, roster: 0 };
        self.sent += 1;
        let header = Header { from_server: true, session: self.session, packet: self.sent };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MIN, self.sealer.form());
        assert!(packer.push(&opened.into()));
        packer.finish();
        self.sealer.seal(&mut Cipher::default(), Duration::ZERO, &mut bytes);
        self.agent.handle_datagram(now, Path::to(server(1)), &bytes);
    }

    /// One that has a session, whose server was started anew: it is hinted at.
    fn in_doubt(resume: [u8; 32]) -> Self {
        Self::in_doubt_among(resume, &[server(1)])
    }

    /// The same with more addresses of the server.
    fn in_doubt_among(resume: [u8; 32], servers: &[SocketAddr]) -> Self {
        let mut shaking = Self::new(servers);
        let open = shaking.asked();
        assert!(matches!(open.0, SealedHandshake::Open(_)), "there is nothing to resume");
        assert!(shaking.welcome(&open, 8));
        shaking.opened(resume, &[]);
        shaking.hint();
        shaking
    }

    /// What the agent asks for in its session is answered by HINT.
    fn hint(&mut self) {
        self.now_ms += 1_000;
        let (now, mut buf) = (self.now(), Vec::new());
        self.agent.handle_drained(now);
        while self.agent.poll_transmit(now, &mut buf).is_some() {
            self.heard = packet(&buf);
        }
        self.say(self.session, SealedHint { echo: self.heard, mac1: [0; MAC_LEN] });
    }

    /// Which sessions it has opened.
    fn sessions(&mut self) -> Vec<SessionId> {
        let events = core::iter::from_fn(|| self.agent.poll_event());
        events.filter_map(|event| if let Event::SessionOpened { session } = event { Some(session) } else { None }).collect()
    }

    fn refuse(&mut self, (body, bytes): &(SealedHandshake, Vec<u8>)) {
        let SealedHandshake::Resume(resume) = body else { panic!("not a RESUME: {body:?}") };
        let (handshake, echo) = (resume.handshake, packet(bytes));
        let reason = SealedRefusal::Resume;
        let refuse = SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms: 0, room: Zeros, mac1: [0; MAC_LEN] };
        self.say(SessionId(0), refuse);
    }
}

fn packet(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram[12..20].try_into().unwrap())
}

fn is_open(sent: &(SealedHandshake, Vec<u8>)) -> bool {
    matches!(sent.0, SealedHandshake::Open(_))
}

#[test]
fn a_session_in_doubt_is_resumed_by_the_secret_that_the_server_told() {
    let mut shaking = Shaking::in_doubt(SECRET);
    let resume = shaking.asked();
    let SealedHandshake::Resume(body) = resume.0 else { panic!("not a RESUME") };
    assert_eq!(body.former, SessionId(8));
    assert!(shaking.welcome(&resume, 9), "made with the secret");
    shaking.opened([0; 32], &[FormerFate { session: SessionId(8), fate: SessionFate::Ended }]);
    assert_eq!(shaking.sessions(), [SessionId(8), SessionId(9)]);
}

#[test]
fn a_session_without_a_secret_is_verified_by_open() {
    assert!(is_open(&Shaking::in_doubt([0; 32]).asked()));
}

#[test]
fn refused_resume_is_followed_by_open_in_another_handshake() {
    let mut shaking = Shaking::in_doubt(SECRET);
    let resume = shaking.asked();
    shaking.refuse(&resume);
    let open = shaking.asked();
    let (SealedHandshake::Resume(resumed), SealedHandshake::Open(opened)) = (&resume.0, &open.0) else { panic!("not OPEN") };
    assert!(resumed.handshake != opened.handshake && resumed.ephemeral != opened.ephemeral);
    // A REFUSE that comes late changes nothing.
    shaking.refuse(&resume);
    assert!(shaking.welcome(&open, 9));
}

#[test]
fn resumes_that_stay_unanswered_are_followed_by_open() {
    let mut shaking = Shaking::in_doubt(SECRET);
    let (_, first) = shaking.asked();
    let end = first.len() - MAC_LEN;
    for _ in 1..8 {
        let (again, bytes) = shaking.one();
        assert!(matches!(again, SealedHandshake::Resume(_)));
        assert_eq!((&first[..12], &first[20..end]), (&bytes[..12], &bytes[20..end]), "the same but for its number and check");
    }
    assert!(is_open(&shaking.asked()));
}

#[test]
fn resumes_that_stay_unanswered_count_although_other_addresses_are_tried_between_them() {
    let mut shaking = Shaking::in_doubt_among(SECRET, &[server(1), server(2)]);
    let mut resumes = 0;
    loop {
        let (body, bytes) = shaking.one();
        match body {
            // The other address is silent.
            SealedHandshake::Ask(ask) if shaking.to == Some(Path::to(server(1))) => shaking.challenge(&ask, &bytes),
            SealedHandshake::Ask(_) => {}
            SealedHandshake::Resume(_) => resumes += 1,
            SealedHandshake::Open(_) => break,
            other => panic!("{other:?}"),
        }
        assert!(resumes <= 8, "nothing else is tried");
    }
    assert_eq!(resumes, 8);
}

#[test]
fn each_handshake_resumes_first_whatever_became_of_the_last() {
    let mut shaking = Shaking::in_doubt(SECRET);
    let resume = shaking.asked();
    shaking.refuse(&resume);
    let open = shaking.asked();
    assert!(shaking.welcome(&open, 9));
    shaking.opened(SECRET, &[FormerFate { session: SessionId(8), fate: SessionFate::Ended }]);
    shaking.hint();
    let resume = shaking.asked();
    let SealedHandshake::Resume(body) = resume.0 else { panic!("not a RESUME") };
    assert_eq!(body.former, SessionId(9), "of the present session");
    assert_eq!(SealedKind::Resume.datagram_len(), resume.1.len());
}
