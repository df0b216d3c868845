//! `tests/vectors/sealed.txt`: a session from ASK to its first records with all keys given, a resumption, and what must be dropped.
//!
//! What is computed here is computed by the crate alone; that it can be computed from `docs/sealed.md`, the reader of another language finds out.

use cistern_seal::key::KeyId;
use cistern_seal::{
    ChaCha, Chain, Cipher, Entropy, FirstCheck, Initiator, Psk, PublicKey, Responder, SecretKey, SessionKeys, StartKey, session::Limits,
};
use cistern_wire::limits::HEADER_LEN;
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, SealedAsk, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedKind, SealedOpen, SealedRefusal,
    SealedRefuse, SealedResume, SealedWelcome, WelcomePayload, Zeros, prologue,
};
use cistern_wire::{
    Alive, Bytes8, Bytes16, Direction, Fate, Form, Header, Join, JoinOutcome, Joined, KeepAlive, Message, Nack, NackReason, Packer,
    RosterAsk, RosterPart, SessionId, open_payload_sample, welcome_payload_sample,
};
use expect_test::expect_file;
use std::fmt::Write as _;
use std::time::Duration;

const HEAD: &str = "# Values of docs/sealed.md: `name: hex`. Everything random is given, so that all else can be computed.
# Written by UPDATE_EXPECT=1 cargo test -p cistern-seal spec_vectors
";

const SESSION: SessionId = SessionId(0x1122_3344_5566_7788);
const COOKIE: [u8; 24] = [0xC0; 24];
const HANDSHAKE: u64 = 0x0102_0304_0506_0708;
const GENERATION: Duration = Duration::from_secs(3_600);

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file as far as it is written.
struct Book(String);

impl Book {
    fn part(&mut self, title: &str) {
        write!(self.0, "\n## {title}\n").unwrap();
    }

    fn line(&mut self, name: &str, bytes: &[u8]) {
        writeln!(self.0, "{name}: {}", hex(bytes)).unwrap();
    }
}

struct Parties {
    agent: SecretKey,
    server: SecretKey,
    public: PublicKey,
    check: FirstCheck,
}

impl Parties {
    fn new() -> Self {
        let (agent, server) = (SecretKey::from_bytes([0x11; 32]), SecretKey::from_bytes([0x22; 32]));
        let public = server.public();
        Self { agent, public, check: FirstCheck::of(&public), server }
    }

    fn key_id(&self) -> [u8; 8] {
        KeyId::of(&self.public).0
    }

    /// A handshake datagram with its check.
    fn datagram(&self, session: u64, packet: u64, body: impl Into<SealedHandshake>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let datagram = SealedDatagram::new(SessionId(session), packet, body);
        datagram.write(&mut bytes);
        if datagram.body.kind().has_mac1() {
            self.check.complete(&mut bytes);
            assert!(self.check.holds(&bytes));
        }
        bytes
    }
}

/// One that is not there yet: only what stands before message 1 is looked at.
fn empty_open(parties: &Parties, psk_id: [u8; 8]) -> SealedOpen {
    let (key_id, cookie, mac1) = (parties.key_id(), COOKIE, [0; MAC_LEN]);
    SealedOpen { handshake: HANDSHAKE, key_id, cookie, psk_id, ephemeral: [0; 32], agent_key: [0; 48], payload: [0; 216], mac1 }
}

fn keys(book: &mut Book, parties: &Parties) {
    book.part("keys");
    book.line("agent secret", parties.agent.expose());
    book.line("agent public", parties.agent.public().as_bytes());
    book.line("server secret", parties.server.expose());
    book.line("server public", parties.public.as_bytes());
    book.line("key id", &parties.key_id());
    book.line("mac1 of nothing", &parties.check.over(b""));
    book.line("mac1 of 80 zeros", &parties.check.over(&[0; 80]));
}

fn cookies(book: &mut Book, parties: &Parties) {
    book.part("ASK, CHALLENGE");
    let (handshake, key_id, mac1) = (HANDSHAKE, parties.key_id(), [0; MAC_LEN]);
    book.line("ASK", &parties.datagram(0, 1, SealedAsk { handshake, key_id, room: Zeros, mac1 }));
    book.line("CHALLENGE", &parties.datagram(0, 1, SealedChallenge { handshake, echo: 1, cookie: COOKIE, mac1 }));
}

/// OPEN and WELCOME with a pre-shared key; gives the chain.
fn opening(book: &mut Book, parties: &Parties, title: &str, (psk_id, psk): ([u8; 8], &Psk)) -> Chain {
    book.part(title);
    let (agent_ephemeral, server_ephemeral) = ([0x33; 32], [0x44; 32]);
    book.line("psk", psk.expose());
    book.line("agent ephemeral secret", &agent_ephemeral);
    book.line("server ephemeral secret", &server_ephemeral);
    let mut open = empty_open(parties, psk_id);
    let prologue = prologue(&parties.datagram(0, 2, open)).unwrap();
    book.line("prologue", &prologue);
    let payload: [u8; OpenPayload::OPEN_LEN] = open_payload_sample().padded();
    book.line("payload of OPEN", &payload);
    let entropy = Entropy::from_bytes;
    let (mut initiator, first) =
        Initiator::open(&parties.agent, &parties.public, psk, entropy(agent_ephemeral), &prologue, &payload).unwrap();
    open.ephemeral.copy_from_slice(&first[..32]);
    open.agent_key.copy_from_slice(&first[32..80]);
    open.payload.copy_from_slice(&first[80..]);
    let datagram = parties.datagram(0, 2, open);
    assert_eq!(datagram[SealedKind::Open.message().unwrap()], first);
    book.line("OPEN", &datagram);

    let (responder, said) = Responder::open(&parties.server, entropy(server_ephemeral), &prologue, &first).unwrap();
    assert_eq!((OpenPayload::of(&said), responder.peer()), (Ok(open_payload_sample()), Some(parties.agent.public())));
    let (second, chain) = responder.answer(psk, &welcome_payload_sample().padded()).unwrap();
    welcome(book, parties, &second);
    let (said, same) = initiator.finish(&second).unwrap();
    assert_eq!((WelcomePayload::of(&said), same.expose()), (Ok(welcome_payload_sample()), chain.expose()));
    chain
}

fn welcome(book: &mut Book, parties: &Parties, second: &[u8]) {
    book.line("payload of WELCOME", &welcome_payload_sample().padded());
    let (ephemeral, payload) = second.split_at(32);
    let body =
        SealedWelcome { handshake: HANDSHAKE, echo: 2, ephemeral: ephemeral.try_into().unwrap(), payload: payload.try_into().unwrap() };
    let datagram = parties.datagram(0, 1, body);
    assert_eq!(&datagram[SealedKind::Welcome.message().unwrap()], second);
    book.line("WELCOME", &datagram);
}

fn chains(book: &mut Book, chain: &Chain) {
    let (mut chain, mut generation) = (chain.clone(), 0);
    while generation < 3 {
        book.line(&format!("c_{generation}"), chain.expose());
        book.line(&format!("k_as,{generation}"), chain.key(Direction::Agent).as_bytes());
        book.line(&format!("k_sa,{generation}"), chain.key(Direction::Server).as_bytes());
        chain = chain.next();
        generation += 1;
    }
}

/// One side of the session.
struct Side {
    keys: SessionKeys,
    cipher: Cipher,
    sender: Direction,
    packet: u64,
}

impl Side {
    fn new(chain: &Chain, sender: Direction) -> Self {
        let cipher = Cipher::new(ChaCha, Limits::DEFAULT);
        Self { keys: SessionKeys::new(chain, sender, Duration::ZERO), cipher, sender, packet: 0 }
    }

    fn send(&mut self, now: Duration, message: Message<'_>) -> Vec<u8> {
        self.packet += 1;
        let header = Header { from_server: self.sender == Direction::Server, session: SESSION, packet: self.packet };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, header, 548, Form::Record);
        assert!(packer.push(&message));
        packer.finish();
        self.keys.seal(&mut self.cipher, now, &mut bytes);
        bytes
    }

    fn takes(&mut self, now: Duration, record: &[u8]) -> bool {
        self.keys.open(&mut self.cipher, now, record, &mut Vec::new()).is_ok()
    }
}

fn records(book: &mut Book, chain: &Chain) {
    book.part("records of that session; what is wrong with the last ones");
    let (mut agent, mut server) = (Side::new(chain, Direction::Agent), Side::new(chain, Direction::Server));
    let now = Duration::ZERO;
    let keep_alive = |serial| Message::KeepAlive(KeepAlive { serial, clock_us: 1_000_000 });
    let alive = |serial| Message::Alive(Alive { serial, echo: serial });
    let nack = Message::Nack(Nack { nonce: 0, echo: 2, reason: NackReason::Ended, fate: Fate::Unknown });
    let first = agent.send(now, keep_alive(1));
    assert!(server.takes(now, &first));
    let answer = server.send(now, alive(1));
    assert!(agent.takes(now, &answer));
    let later = agent.send(GENERATION, keep_alive(2));
    assert!(server.takes(GENERATION, &later));
    let next_answer = server.send(GENERATION, alive(2));
    let ended = server.send(GENERATION, nack);
    assert_eq!([&later, &next_answer, &ended].map(|record| record[3] & 2), [2; 3]);
    book.line("KEEPALIVE, packet 1, generation 0", &first);
    book.line("ALIVE, packet 1, generation 0", &answer);
    book.line("KEEPALIVE, packet 2, generation 1", &later);
    book.line("ALIVE, packet 2, generation 1", &next_answer);
    book.line("NACK, packet 3, generation 1", &ended);
    // Each to an agent that is in generation 1 and has had none of them.
    let changed = |at: usize, by: u8| {
        let mut bytes = next_answer.clone();
        bytes[at] ^= by;
        bytes
    };
    let last = next_answer.len() - 1;
    for (what, bytes) in [
        ("not authentic: a bit of the text", changed(HEADER_LEN, 1)),
        ("not authentic: a bit of the tag", changed(last, 1)),
        ("not authentic: another packet number", changed(19, 1)),
        ("not authentic: another session", changed(11, 1)),
        ("not authentic: the other phase", changed(3, 2)),
        ("not authentic: a tag of 15 bytes", next_answer[..last].to_vec()),
        ("not authentic: sent back, with the flag of the other side", {
            let mut bytes = later.clone();
            bytes[3] |= 1;
            bytes
        }),
    ] {
        assert!(!agent.takes(GENERATION, &bytes), "{what}");
        book.line(what, &bytes);
    }
    assert!(agent.takes(GENERATION, &next_answer) && agent.takes(GENERATION, &ended));
}

/// What is said in a session to join in.
fn joining(book: &mut Book, chain: &Chain) {
    let (mut host, mut server, now) = (Side::new(chain, Direction::Agent), Side::new(chain, Direction::Server), Duration::ZERO);
    let (serial, echo, outcome, cluster) = (1, 1, JoinOutcome::Joined, [0xCC; 32]);
    let joined = Joined { serial, echo, outcome, principal: 7, name: Bytes8(b"web-1"), cluster, used_s: 0, used_from: [0; 16] };
    let part = RosterPart { serial: 2, echo: 2, version: 4, length: 5, offset: 0, part: Bytes16(b"bytes") };
    let said = [
        (false, "JOIN, packet 1", Message::Join(Join { serial })),
        (true, "JOINED, packet 1", Message::Joined(joined)),
        (false, "ROSTER, packet 2", Message::Roster(RosterAsk { serial: 2, offset: 0 })),
        (true, "ROSTER_PART, packet 2", Message::RosterPart(part)),
    ];
    for (from_server, name, message) in said {
        let (from, to) = if from_server { (&mut server, &mut host) } else { (&mut host, &mut server) };
        let record = from.send(now, message);
        assert!(to.takes(now, &record));
        book.line(name, &record);
    }
}

fn resumption(book: &mut Book, parties: &Parties) {
    book.part("resumption of that session");
    let (start, sample) = (StartKey::from_bytes([0x55; 32]), open_payload_sample());
    let secret = start.resume_secret(SESSION, parties.agent.public().agent(sample.instance), sample.incarnation);
    let (agent_ephemeral, server_ephemeral) = ([0x66; 32], [0x77; 32]);
    book.line("key of the start (the server's own matter)", start.expose());
    book.line("resume secret", secret.expose());
    book.line("agent ephemeral secret", &agent_ephemeral);
    book.line("server ephemeral secret", &server_ephemeral);
    let (key_id, cookie, mac1) = (parties.key_id(), COOKIE, [0; MAC_LEN]);
    let mut resume = SealedResume { handshake: HANDSHAKE, key_id, cookie, former: SESSION, ephemeral: [0; 32], payload: [0; 208], mac1 };
    let prologue = prologue(&parties.datagram(0, 2, resume)).unwrap();
    let payload: [u8; OpenPayload::RESUME_LEN] = sample.padded();
    let (mut initiator, first) = Initiator::resume(&secret, Entropy::from_bytes(agent_ephemeral), &prologue, &payload).unwrap();
    resume.ephemeral.copy_from_slice(&first[..32]);
    resume.payload.copy_from_slice(&first[32..]);
    let datagram = parties.datagram(0, 2, resume);
    assert_eq!(datagram[SealedKind::Resume.message().unwrap()], first);
    book.line("RESUME", &datagram);
    let (responder, _) = Responder::resume(&secret, Entropy::from_bytes(server_ephemeral), &prologue, &first).unwrap();
    let (second, chain) = responder.answer(&Psk::none(), &welcome_payload_sample().padded()).unwrap();
    welcome(book, parties, &second);
    assert_eq!(initiator.finish(&second).unwrap().1.expose(), chain.expose());
    book.line("c_0", chain.expose());
}

fn refusals(book: &mut Book, parties: &Parties) {
    book.part("REFUSE, HINT");
    let (handshake, mac1) = (HANDSHAKE, [0; MAC_LEN]);
    let refuse =
        SealedRefuse { handshake, echo: 2, reason: SealedRefusal::Resume, serving: 0, reserved: Zeros, retry_ms: 0, room: Zeros, mac1 };
    book.line("REFUSE", &parties.datagram(0, 1, refuse));
    book.line("REFUSE, of an invite that is not known", &parties.datagram(0, 2, SealedRefuse { reason: SealedRefusal::Invite, ..refuse }));
    book.line("HINT", &parties.datagram(SESSION.0, 1, SealedHint { echo: 3, mac1 }));
}

#[test]
fn vectors_of_the_specification_are_those_of_the_code() {
    let parties = Parties::new();
    let mut book = Book(HEAD.to_owned());
    keys(&mut book, &parties);
    cookies(&mut book, &parties);
    let chain = opening(&mut book, &parties, "OPEN, WELCOME", ([0; 8], &Psk::none()));
    chains(&mut book, &chain);
    records(&mut book, &chain);
    resumption(&mut book, &parties);
    let invited =
        opening(&mut book, &parties, "OPEN, WELCOME with an invitation of secret 99..99", ([0x88; 8], &Psk::of_invite(&[0x99; 16])));
    book.line("c_0", invited.expose());
    joining(&mut book, &invited);
    refusals(&mut book, &parties);
    expect_file![concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/vectors/sealed.txt")].assert_eq(&book.0);
}
