use std::time::Duration;

use cistern_seal::session::{AGE_MAX, CHANGES_APART, Limits, OLD_KEPT};
use cistern_seal::{ChaCha, Chain, Cipher, OpenFailed, Paper, Sealer, SessionKeys};
use cistern_wire::{Direction, Envelope, Form, Header, KeepAlive, Message, Packer, SessionId};
use proptest::prelude::*;

const SECOND: Duration = Duration::from_secs(1);
const KEEPALIVE: Message<'_> = Message::KeepAlive(KeepAlive { serial: 1, clock_us: 1_000_000 });
const PROBE: Message<'_> = Message::Probe(cistern_wire::Probe { seq: 1 });

/// Where the flags, the packet number and the messages stand in a record.
const FLAGS: usize = 3;
const PACKET: usize = 19;
const TEXT: usize = 20;

struct Side {
    keys: SessionKeys,
    cipher: Cipher,
    sender: Direction,
    number: u64,
}

impl Side {
    fn new(sender: Direction, limits: Limits) -> Self {
        let chain = Chain::from_bytes([5; 32]);
        Self { keys: SessionKeys::new(&chain, sender, Duration::ZERO), cipher: Cipher::new(ChaCha, limits), sender, number: 0 }
    }

    /// A record in clear.
    fn pack(&mut self) -> Vec<u8> {
        self.number += 1;
        let header = Header { from_server: self.sender == Direction::Server, session: SessionId(7), packet: self.number };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, header, 548, Form::Record);
        assert!(packer.push(if header.from_server { &PROBE } else { &KEEPALIVE }));
        packer.finish();
        bytes
    }

    fn send(&mut self, now: Duration) -> Vec<u8> {
        let mut record = self.pack();
        self.keys.seal(&mut self.cipher, now, &mut record);
        record
    }

    /// Whether the record opens, and has the messages that were sealed.
    fn receive(&mut self, now: Duration, record: &[u8]) -> Result<(), OpenFailed> {
        let mut text = b"what was there before".to_vec();
        let messages = self.keys.open(&mut self.cipher, now, record, &mut text)?;
        let from = if self.sender == Direction::Agent { Direction::Server } else { Direction::Agent };
        let message = if from == Direction::Server { PROBE } else { KEEPALIVE };
        let datagram = Envelope::of_record(record, from).unwrap().decode_messages(messages).unwrap();
        assert!(datagram.messages().eq([message]));
        Ok(())
    }
}

fn phase(record: &[u8]) -> bool {
    record[FLAGS] & 2 != 0
}

fn pair() -> (Side, Side) {
    limited(Limits::DEFAULT, Limits::DEFAULT)
}

fn limited(agent: Limits, server: Limits) -> (Side, Side) {
    (Side::new(Direction::Agent, agent), Side::new(Direction::Server, server))
}

const fn packets(packets: u64) -> Limits {
    Limits { packets, ..Limits::DEFAULT }
}

//= wire-spec.md#11-8-security
//= type=test
//# Keys MUST rest on something fresh from either side, be different for each direction, protect the header too, and be renewable without
//# a new session.
#[test]
fn records_open_at_the_other_side_only_and_as_they_were_sent() {
    let (mut agent, mut server) = pair();
    let record = agent.send(SECOND);
    assert_eq!(record.len(), TEXT + KEEPALIVE.to_bytes().len() + 16);
    assert_eq!(server.receive(SECOND, &record), Ok(()));
    assert_eq!(agent.receive(SECOND, &record), Err(OpenFailed), "sent back to its sender");
    for place in 0..record.len() {
        let mut changed = record.clone();
        changed[place] ^= 1;
        assert_eq!(server.receive(SECOND, &changed), Err(OpenFailed), "byte {place}");
    }
    let mut changed = record.clone();
    changed[FLAGS] ^= 2;
    assert_eq!(server.receive(SECOND, &changed), Err(OpenFailed), "in the other phase");
    assert_eq!(server.keys.generation(), 0, "a flipped phase advances nothing");
    for len in 0..record.len() {
        assert_eq!(server.receive(SECOND, &record[..len]), Err(OpenFailed), "a tag of {} bytes", len.saturating_sub(record.len() - 16));
    }
    let other = SessionKeys::new(&Chain::from_bytes([6; 32]), Direction::Server, Duration::ZERO);
    assert_eq!(Side { keys: other, ..server }.receive(SECOND, &record), Err(OpenFailed), "in another session");
}

//= wire-spec.md#11-8-security
//= type=test
//# Keys MUST rest on something fresh from either side, be different for each direction, protect the header too, and be renewable without
//# a new session.
#[test]
fn the_agent_changes_keys_by_age_and_the_server_follows() {
    let (mut agent, mut server) = pair();
    server.receive(SECOND, &agent.send(SECOND)).unwrap();
    assert!(!phase(&agent.send(AGE_MAX)), "nothing of the server was opened in this generation");
    agent.receive(AGE_MAX, &server.send(SECOND)).unwrap();
    let late = agent.send(AGE_MAX - SECOND);
    let record = agent.send(AGE_MAX);
    assert!(phase(&record));
    assert_eq!(server.receive(AGE_MAX, &record), Ok(()));
    assert_eq!(server.keys.generation(), 1);
    assert!(phase(&server.send(AGE_MAX)), "the server sends in it at once");
    assert_eq!(server.receive(AGE_MAX, &late), Ok(()), "late packets still open");
    assert_eq!(server.receive(AGE_MAX + OLD_KEPT, &late), Err(OpenFailed), "but not for ever");
    assert_eq!(server.keys.generation(), 1);
}

#[test]
fn both_sides_may_change_at_once() {
    let (mut agent, mut server) = limited(Limits::DEFAULT, packets(2));
    agent.receive(SECOND, &server.send(SECOND)).unwrap();
    server.receive(SECOND, &agent.send(SECOND)).unwrap();
    let _ = server.send(SECOND);
    let (from_agent, from_server) = (agent.send(AGE_MAX), server.send(AGE_MAX));
    assert!(phase(&from_agent) && phase(&from_server));
    assert_eq!(server.receive(AGE_MAX, &from_agent), Ok(()));
    assert_eq!(agent.receive(AGE_MAX, &from_server), Ok(()));
    assert_eq!((agent.keys.generation(), server.keys.generation()), (1, 1));
}

#[test]
fn changes_are_apart_and_never_two_ahead() {
    let (mut agent, mut server) = limited(packets(1), Limits::DEFAULT);
    let mut now = Duration::ZERO;
    let mut since = None;
    for _ in 0..400 {
        now += SECOND;
        let before = agent.keys.generation();
        let record = agent.send(now);
        if agent.keys.generation() != before {
            assert!(since.is_none_or(|since| now - since >= CHANGES_APART));
            since = Some(now);
        }
        server.receive(now, &record).unwrap();
        assert!(agent.keys.generation() - server.keys.generation() <= 1);
        let answer = server.send(now);
        agent.receive(now, &answer).unwrap();
    }
    assert!(agent.keys.generation() >= 5, "{}", agent.keys.generation());
    // Without an answer it stays one ahead, however long that takes.
    let generation = agent.keys.generation();
    for _ in 0..400 {
        now += SECOND;
        let _ = agent.send(now);
    }
    assert!(agent.keys.generation() <= generation + 1);
}

#[test]
fn a_peer_that_the_change_did_not_reach_is_understood_however_late_it_speaks() {
    let (mut agent, mut server) = limited(Limits::DEFAULT, packets(1));
    agent.receive(SECOND, &server.send(SECOND)).unwrap();
    server.receive(SECOND, &agent.send(SECOND)).unwrap();
    let lost = server.send(CHANGES_APART);
    assert!(phase(&lost));
    let later = CHANGES_APART + 30 * SECOND;
    assert_eq!(server.receive(later, &agent.send(later)), Ok(()));
    assert_eq!(agent.receive(later, &server.send(later)), Ok(()));
    assert_eq!(agent.keys.generation(), 1);
}

#[test]
fn a_side_that_heard_nothing_in_its_generation_follows_to_the_next() {
    let (mut agent, mut server) = limited(packets(1), packets(1));
    agent.receive(SECOND, &server.send(SECOND)).unwrap();
    server.receive(SECOND, &agent.send(SECOND)).unwrap();
    let mut now = CHANGES_APART;
    agent.receive(now, &server.send(now)).unwrap();
    assert_eq!(agent.keys.generation(), 1);
    for _ in 0..3 {
        now += OLD_KEPT;
        let _lost = agent.send(now);
    }
    now += CHANGES_APART;
    let record = agent.send(now);
    assert_eq!(agent.keys.generation(), 2);
    assert_eq!(server.receive(now, &record), Ok(()));
    assert_eq!(server.keys.generation(), 2);
}

//= docs/sealed.md#generations
//= type=test
//# A side for which 2^36 records did not open under one key MUST end the session: the server by D, the agent by abandoning it.
#[test]
fn forged_records_wear_a_generation_out_and_then_the_session() {
    let limits = Limits { packets: u64::MAX, failed_soft: 3, failed: 5, ..Limits::DEFAULT };
    let (mut agent, mut server) = limited(Limits::DEFAULT, limits);
    let good = agent.send(SECOND);
    server.receive(SECOND, &good).unwrap();
    let mut forged = good;
    forged[TEXT] ^= 1;
    let mut sealer = Sealer::Sealed(Box::new(server.keys));
    let mut fail = |sealer: &mut Sealer, forged: &[u8]| {
        assert_eq!(sealer.open(&mut server.cipher, SECOND, forged, &mut Vec::new()), Err(OpenFailed));
        sealer.is_worn_out(&server.cipher)
    };
    for _ in 0..4 {
        assert!(!fail(&mut sealer, &forged));
    }
    // Those against the next key count when it is the present one.
    let mut ahead = forged.clone();
    ahead[FLAGS] ^= 2;
    assert!(fail(&mut sealer, &ahead));
    let Sealer::Sealed(keys) = sealer else { unreachable!() };
    server.keys = *keys;
    server.number = 1;
    assert!(!phase(&server.send(CHANGES_APART - SECOND)), "changes are apart");
    assert!(phase(&server.send(CHANGES_APART)));
    let sealer = Sealer::Sealed(Box::new(server.keys));
    assert!(!sealer.is_worn_out(&server.cipher), "one has failed against this key");
}

#[test]
fn plain_sessions_are_left_to_the_checksum() {
    let (mut sealer, mut cipher) = (Sealer::default(), Cipher::default());
    let before = b"a header of 20 bytesmessagesCRC4".to_vec();
    let mut datagram = before.clone();
    sealer.seal(&mut cipher, SECOND, &mut datagram);
    assert_eq!(datagram, before);
    assert_eq!(sealer.open(&mut cipher, SECOND, &datagram, &mut Vec::new()), Ok(&b"messages"[..]));
    assert_eq!(sealer.open(&mut cipher, SECOND, b"too short", &mut Vec::new()), Err(OpenFailed));
    assert_eq!((sealer.form(), sealer.is_worn_out(&cipher)), (Form::Plain, false));
}

//= docs/sealed.md#records-form-1
//= type=test
//# A sender MUST NOT seal two texts under one packet number in a session, also not for copies to former addresses; numbers go on through
//# all generations.
#[test]
#[should_panic(expected = "is sealed after")]
fn a_number_is_never_sealed_twice() {
    let (mut agent, _) = pair();
    let _ = agent.send(SECOND);
    agent.number = 0;
    let _ = agent.send(SECOND);
}

#[test]
fn the_paper_cipher_fails_where_the_real_one_does() {
    let paper = Paper::default();
    let on_paper = |sender| Side { cipher: Cipher::new(paper.clone(), Limits::DEFAULT), ..Side::new(sender, Limits::DEFAULT) };
    let (mut agent, mut server) = (on_paper(Direction::Agent), on_paper(Direction::Server));
    let record = agent.send(SECOND);
    assert_eq!(server.receive(SECOND, &record), Ok(()));
    assert_eq!(agent.receive(SECOND, &record), Err(OpenFailed));
    for place in 0..record.len() {
        let mut changed = record.clone();
        changed[place] ^= 1;
        assert_eq!(server.receive(SECOND, &changed), Err(OpenFailed), "byte {place}");
    }
    assert!(record.windows(KEEPALIVE.to_bytes().len()).any(|text| text == KEEPALIVE.to_bytes()), "the text is in clear");
}

#[test]
#[should_panic(expected = "a second text under one key")]
fn the_paper_cipher_notices_what_a_clone_seals() {
    let paper = Paper::default();
    let on_paper = || Side { cipher: Cipher::new(paper.clone(), Limits::DEFAULT), ..Side::new(Direction::Agent, Limits::DEFAULT) };
    let (mut agent, mut clone) = (on_paper(), on_paper());
    let _ = agent.send(SECOND);
    let mut other = clone.pack();
    other[PACKET + 8] ^= 1;
    clone.keys.seal(&mut clone.cipher, SECOND, &mut other);
}

#[test]
fn what_a_session_costs() {
    assert!(size_of::<SessionKeys>() <= 160, "{}", size_of::<SessionKeys>());
    assert!(size_of::<Sealer>() <= 8);
}

proptest! {
    /// However records are lost and late, the sides stay together, and a record of less than 10 s opens.
    #[test]
    fn any_weather(steps in proptest::collection::vec((0_u8..4, 0_u64..30), 1..300)) {
        let (mut agent, mut server) = limited(packets(3), packets(4));
        let mut now = Duration::ZERO;
        let mut flying: Vec<(bool, Duration, Vec<u8>)> = Vec::new();
        for (what, pause) in steps {
            now += Duration::from_secs(pause);
            match what {
                0 => flying.push((true, now, agent.send(now))),
                1 => flying.push((false, now, server.send(now))),
                2 if !flying.is_empty() => { flying.remove(flying.len() / 2); }
                _ if !flying.is_empty() => {
                    let (to_server, sent, record) = flying.remove(usize::try_from(pause).unwrap() % flying.len());
                    let side = if to_server { &mut server } else { &mut agent };
                    let opened = side.receive(now, &record);
                    prop_assert!(opened.is_ok() || now - sent >= OLD_KEPT, "sent {sent:?}, received {now:?}");
                }
                _ => {}
            }
            let apart = agent.keys.generation().abs_diff(server.keys.generation());
            prop_assert!(apart <= 1, "{apart}");
        }
    }
}
