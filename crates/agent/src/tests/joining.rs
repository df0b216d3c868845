//! Joining: what is asked again, what begins anew, what is believed, against a server whose every word the test decides.

use crate::{JoinRefused, Joiner, Keys, Membership};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_seal::handshake::Responder;
use cistern_seal::work::KeyHolder;
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, Sealer, SecretKey, SessionKeys};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::sealed::{
    MAC_LEN, SealedChallenge, SealedDatagram, SealedHandshake, SealedHint, SealedKind, SealedOpen, SealedRefusal, SealedRefuse,
    SealedWelcome, WelcomePayload, Zeros, prologue,
};
use cistern_wire::{
    Bytes8, Bytes16, Direction, Envelope, Form, Header, JoinOutcome, Joined, Message, Packer, RosterPart, SessionId, welcome_payload_sample,
};

const ID: [u8; 8] = [6; 8];
const SECRET: [u8; 16] = [7; 16];

fn server_key() -> SecretKey {
    SecretKey::from_bytes([2; 32])
}

/// A host that joins, and the server.
struct Joining {
    joiner: Joiner,
    now_ms: u64,
    sent: u64,
    session: SessionId,
    sealer: Sealer,
}

/// What the host says in a record.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Join(u64),
    Roster(u64, u16),
    End,
}

impl Joining {
    fn new() -> Self {
        let mut drawn = 0;
        let draw = move || {
            drawn += 1;
            Entropy::from_bytes([drawn; 32])
        };
        let keys = Keys::new(KeyHolder::new(SecretKey::from_bytes([4; 32]), draw), server_key().public());
        let now_ms = 10_000;
        let joiner = Joiner::new(at(now_ms), keys.with_psk(ID, Psk::of_invite(&SECRET)), [3; 32], b"web");
        Self { joiner, now_ms, sent: 0, session: SessionId(0), sealer: Sealer::Plain }
    }

    /// What is sent now.
    fn next(&mut self) -> Option<Vec<u8>> {
        let mut buf = Vec::new();
        self.joiner.poll_transmit(at(self.now_ms), &mut buf).then_some(buf)
    }

    /// What is sent within so many milliseconds.
    fn within(&mut self, ms: u64) -> Vec<u8> {
        let last = self.now_ms + ms;
        loop {
            if let Some(bytes) = self.next() {
                return bytes;
            }
            assert!(self.now_ms < last, "nothing is sent");
            self.now_ms += 1;
        }
    }

    fn ask(&mut self, within_ms: u64) -> (u64, u64) {
        let bytes = self.within(within_ms);
        let SealedHandshake::Ask(ask) = SealedDatagram::at_server(&bytes).unwrap().body else { panic!("not an ASK") };
        (ask.handshake, packet(&bytes))
    }

    fn open(&mut self, within_ms: u64) -> (SealedOpen, Vec<u8>) {
        let bytes = self.within(within_ms);
        let SealedHandshake::Open(open) = SealedDatagram::at_server(&bytes).unwrap().body else { panic!("not an OPEN") };
        (open, bytes)
    }

    fn say(&mut self, session: SessionId, body: impl Into<SealedHandshake>) {
        self.sent += 1;
        let (mut bytes, body) = (Vec::new(), body.into());
        SealedDatagram::new(session, self.sent, body).write(&mut bytes);
        if body.kind().has_mac1() {
            FirstCheck::of(&server_key().public()).complete(&mut bytes);
        }
        self.joiner.handle_datagram(at(self.now_ms), &bytes);
    }

    fn challenge(&mut self, (handshake, echo): (u64, u64)) {
        self.say(SessionId(0), SealedChallenge { handshake, echo, cookie: [5; 24], mac1: [0; MAC_LEN] });
    }

    fn refuse(&mut self, (handshake, echo): (u64, u64), reason: SealedRefusal) {
        let refuse = SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms: 0, room: Zeros, mac1: [0; MAC_LEN] };
        self.say(SessionId(0), refuse);
    }

    /// Answers OPEN by a session, with this secret.
    fn welcome(&mut self, bytes: &[u8], secret: &[u8; 16]) {
        let message = &bytes[SealedKind::Open.message().unwrap()];
        let (read, _) = Responder::open(&server_key(), Entropy::from_bytes([9; 32]), &prologue(bytes).unwrap(), message).unwrap();
        let payload: WelcomePayload = welcome_payload_sample();
        let (message, chain) = read.answer(&Psk::of_invite(secret), &payload.padded()).unwrap();
        let (ephemeral, rest) = message.split_first_chunk().unwrap();
        let SealedHandshake::Open(open) = SealedDatagram::at_server(bytes).unwrap().body else { panic!("not an OPEN") };
        self.session = payload.session;
        self.sealer = Sealer::Sealed(Box::new(SessionKeys::new(&chain, Direction::Server, at(self.now_ms).uptime())));
        let (handshake, echo) = (open.handshake, packet(bytes));
        self.say(SessionId(0), SealedWelcome { handshake, echo, ephemeral: *ephemeral, payload: rest.try_into().unwrap() });
    }

    /// The handshake.
    fn opened() -> Self {
        let mut joining = Self::new();
        let asked = joining.ask(0);
        joining.challenge(asked);
        let (open, bytes) = joining.open(0);
        assert_eq!(open.psk_id, ID, "the line's id is named; its secret is nowhere");
        assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET));
        joining.welcome(&bytes, &SECRET);
        joining
    }

    /// What the host says in a record within so many milliseconds, and its number.
    fn said(&mut self, within_ms: u64) -> (Said, u64) {
        let record = self.within(within_ms);
        let (envelope, mut text) = (Envelope::of_record(&record, Direction::Agent).unwrap(), Vec::new());
        let messages = self.sealer.open(&mut Cipher::default(), at(self.now_ms).uptime(), &record, &mut text).unwrap();
        let datagram = envelope.decode_messages(messages).unwrap();
        let mut messages = datagram.messages();
        let said = match messages.next() {
            Some(Message::Join(m)) => Said::Join(m.serial),
            Some(Message::Roster(m)) => Said::Roster(m.serial, m.offset),
            Some(Message::EndSession(_)) => Said::End,
            other => panic!("{other:?}"),
        };
        assert_eq!(messages.next(), None);
        (said, packet(&record))
    }

    fn answer(&mut self, message: impl Into<Message<'static>>) {
        self.sent += 1;
        let header = Header { from_server: true, session: self.session, packet: self.sent };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MIN, Form::Record);
        assert!(packer.push(&message.into()));
        packer.finish();
        self.sealer.seal(&mut Cipher::default(), at(self.now_ms).uptime(), &mut bytes);
        // A copy is nothing.
        for _ in 0..2 {
            self.joiner.handle_datagram(at(self.now_ms), &bytes);
        }
    }
}

fn at(ms: u64) -> Instant {
    Instant::new(ms * 1_000_000, ms * 1_000_000)
}

fn packet(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram[12..20].try_into().unwrap())
}

fn joined(serial: u64, echo: u64) -> Joined<'static> {
    let (principal, name, cluster) = (7, Bytes8(b"web-1"), [8; 32]);
    Joined { serial, echo, outcome: JoinOutcome::Joined, principal, name, cluster, used_s: 0, used_from: [0; 16] }
}

fn part(serial: u64, echo: u64, version: u32, offset: u16, part: &'static [u8]) -> RosterPart<'static> {
    RosterPart { serial, echo, version, length: 6, offset, part: Bytes16(part) }
}

#[test]
fn a_host_asks_again_until_it_is_told_and_then_says_that_it_leaves() {
    let mut joining = Joining::opened();
    let (first, _) = joining.said(0);
    assert_eq!(first, Said::Join(1));
    let (again, echo) = joining.said(1_000);
    assert_eq!(again, Said::Join(1), "the same message under another number");
    joining.answer(joined(1, echo));
    assert_eq!(joining.said(0), (Said::Roster(2, 0), echo + 1));
    joining.answer(part(2, echo + 1, 4, 0, b"abc"));
    assert_eq!(joining.said(0).0, Said::Roster(3, 3));
    // An answer to what was asked before is none to this.
    joining.answer(part(2, echo + 2, 4, 3, b"xyz"));
    joining.answer(part(3, echo + 2, 4, 3, b"def"));
    let whole = Membership { principal: 7, name: b"web-1".to_vec(), cluster: [8; 32], roster: b"abcdef".to_vec() };
    assert_eq!(joining.joiner.end(), Some(&Ok(whole)));
    assert_eq!(joining.said(0).0, Said::End);
    assert_eq!(joining.next(), None);
}

#[test]
fn a_roster_that_is_replaced_meanwhile_is_read_from_its_beginning() {
    let mut joining = Joining::opened();
    let (_, echo) = joining.said(0);
    joining.answer(joined(1, echo));
    joining.said(0);
    joining.answer(part(2, echo + 1, 4, 0, b"abc"));
    joining.said(0);
    joining.answer(part(3, echo + 2, 5, 3, b"DEF"));
    assert_eq!(joining.said(0).0, Said::Roster(4, 0));
    joining.answer(part(4, echo + 3, 5, 0, b"ABCDEF"));
    assert_eq!(joining.joiner.end().unwrap().as_ref().unwrap().roster, b"ABCDEF");
}

#[test]
fn whoever_is_refused_in_a_record_is_told_why() {
    let mut joining = Joining::opened();
    let (_, echo) = joining.said(0);
    let spent = Joined { outcome: JoinOutcome::Spent, used_s: 9, used_from: [1; 16], ..joined(1, echo) };
    joining.answer(spent);
    assert_eq!(joining.joiner.end(), Some(&Err(JoinRefused::Outcome(JoinOutcome::Spent, 9, [1; 16]))));
}

#[test]
fn a_refusal_that_anybody_can_make_is_believed_when_it_comes_again_and_again() {
    let mut joining = Joining::new();
    for n in 0..3 {
        assert_eq!(joining.joiner.end(), None, "after {n}");
        let asked = joining.ask(2_000);
        joining.refuse(asked, SealedRefusal::Invite);
        joining.refuse(asked, SealedRefusal::Invite);
    }
    assert_eq!(joining.joiner.end(), Some(&Err(JoinRefused::Outcome(JoinOutcome::Unknown, 0, [0; 16]))));
    assert_eq!(joining.next(), None, "there is no session that it could leave");
}

#[test]
fn standby_is_believed_at_once_for_another_server_is_asked_then() {
    let mut joining = Joining::new();
    let asked = joining.ask(0);
    joining.refuse(asked, SealedRefusal::Standby);
    assert_eq!(joining.joiner.end(), Some(&Err(JoinRefused::Standby)));
}

#[test]
fn refusals_for_several_reasons_are_believed_by_none() {
    let mut joining = Joining::new();
    for reason in [SealedRefusal::Busy, SealedRefusal::Busy, SealedRefusal::Invite, SealedRefusal::Invite, SealedRefusal::Busy] {
        let asked = joining.ask(8_000);
        joining.refuse(asked, reason);
        assert_eq!(joining.joiner.end(), None);
    }
}

#[test]
fn a_server_without_the_secret_and_a_cookie_that_comes_late_change_nothing() {
    let mut joining = Joining::new();
    let asked = joining.ask(0);
    joining.challenge(asked);
    let (first, bytes) = joining.open(0);
    joining.welcome(&bytes, &[1; 16]);
    let (again, bytes) = joining.open(1_000);
    assert_eq!(again.ephemeral, first.ephemeral, "the same OPEN");
    // Another cookie is another handshake under another key.
    joining.challenge((again.handshake, packet(&bytes)));
    let asked = joining.ask(2_000);
    assert_ne!(asked.0, first.handshake);
    joining.challenge(asked);
    assert_ne!(joining.open(0).0.ephemeral, first.ephemeral);
}

#[test]
fn a_session_that_is_over_is_followed_by_another() {
    let mut joining = Joining::opened();
    let (_, echo) = joining.said(0);
    let session = joining.session;
    let hint = |echo| SealedHint { echo, mac1: [0; MAC_LEN] };
    joining.say(session, hint(echo + 5));
    assert_eq!(joining.said(1_000).0, Said::Join(1), "a HINT of what was never sent is nothing");
    joining.say(session, hint(echo));
    joining.ask(2_000);
    // Without any word it lasts as long as the server keeps it.
    let mut joining = Joining::opened();
    let until = joining.now_ms + 4_000;
    while joining.now_ms < until {
        joining.said(1_500);
        joining.now_ms += 1;
        if joining.now_ms + 1_000 >= until {
            joining.now_ms = until;
        }
    }
    joining.ask(1_500);
}
