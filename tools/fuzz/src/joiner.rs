//! What a host that joins makes of its server's words: whoever has the key of a line may say anything.

use crate::outcome;
use cistern_agent::{Joiner, Keys};
use cistern_link::Instant;
use cistern_seal::work::KeyHolder;
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, Responder, SecretKey, SessionKeys};
use cistern_wire::limits::{DATAGRAM_MAX, DATAGRAM_MIN};
use cistern_wire::sealed::{MAC_LEN, SealedChallenge, SealedDatagram, SealedHandshake, SealedKind, SealedWelcome, prologue};
use cistern_wire::{
    Bytes8, Bytes16, Direction, Form, Header, JoinOutcome, Joined, Message, Packer, RosterPart, SessionId, welcome_payload_sample,
};

const NOW: Instant = Instant::new(1_000_000_000, 1_000_000_000);

fn server_key() -> SecretKey {
    SecretKey::from_bytes([2; 32])
}

/// Puts an input into a record as its messages, and has the host take that.
pub(crate) fn told(input: &[u8]) -> u64 {
    let (mut joiner, mut keys) = joining();
    let mut out = Vec::new();
    joiner.poll_transmit(NOW, &mut out);
    let mut record = Vec::new();
    let header = Header { from_server: true, session: welcome_payload_sample().session, packet: 1 };
    Packer::of_form(&mut record, header, DATAGRAM_MAX, Form::Record).finish();
    record.extend_from_slice(input);
    keys.seal(&mut Cipher::default(), NOW.uptime(), &mut record);
    joiner.handle_datagram(NOW, &record);
    if let Some(Ok(member)) = joiner.end() {
        assert!(member.roster.len() <= input.len(), "a roster of bytes that nobody sent");
    }
    let sent = joiner.poll_transmit(NOW, &mut out);
    assert!(out.len() <= DATAGRAM_MIN, "{} bytes for every path", out.len());
    outcome((sent, format!("{:?}", joiner.end()), out.len()))
}

/// A host with a session to join in, and the server's keys of that.
fn joining() -> (Joiner, SessionKeys) {
    let keys = Keys::new(KeyHolder::new(SecretKey::from_bytes([4; 32]), || Entropy::from_bytes([5; 32])), server_key().public());
    let mut joiner = Joiner::new(NOW, keys.with_psk([6; 8], Psk::of_invite(&[7; 16])), [3; 32], b"web");
    let (mut ask, mut open) = (Vec::new(), Vec::new());
    joiner.poll_transmit(NOW, &mut ask);
    let Some(SealedHandshake::Ask(asked)) = SealedDatagram::at_server(&ask).ok().map(|datagram| datagram.body) else {
        unreachable!("a host begins by ASK");
    };
    let handshake = asked.handshake;
    say(&mut joiner, SealedChallenge { handshake, echo: 1, cookie: [8; 24], mac1: [0; MAC_LEN] }.into());
    joiner.poll_transmit(NOW, &mut open);
    let message = SealedKind::Open.message().and_then(|place| open.get(place)).unwrap_or_default();
    let read = prologue(&open).and_then(|prologue| Responder::open(&server_key(), Entropy::from_bytes([9; 32]), &prologue, message).ok());
    let answer = read.and_then(|(read, _)| read.answer(&Psk::of_invite(&[7; 16]), &welcome_payload_sample().padded()).ok());
    let (message, chain) = answer.expect("what a host sends is read");
    let (ephemeral, payload) = message.split_first_chunk().expect("a message begins with a key");
    let payload = payload.try_into().expect("the payload has one length");
    say(&mut joiner, SealedWelcome { handshake, echo: 2, ephemeral: *ephemeral, payload }.into());
    (joiner, SessionKeys::new(&chain, Direction::Server, NOW.uptime()))
}

fn say(joiner: &mut Joiner, body: SealedHandshake) {
    let mut bytes = Vec::new();
    SealedDatagram::new(SessionId(0), 1, body).write(&mut bytes);
    if body.kind().has_mac1() {
        FirstCheck::of(&server_key().public()).complete(&mut bytes);
    }
    joiner.handle_datagram(NOW, &bytes);
}

/// JOINED with each outcome, and a roster behind it.
pub(crate) fn words() -> Vec<Vec<u8>> {
    let joined = |outcome| {
        let (name, cluster) = (Bytes8(b"web-1"), [8; 32]);
        Message::Joined(Joined { serial: 1, echo: 1, outcome, principal: 7, name, cluster, used_s: 9, used_from: [1; 16] }).to_bytes()
    };
    let part = |serial, length, offset| {
        Message::RosterPart(RosterPart { serial, echo: 1, version: 4, length, offset, part: Bytes16(b"abc") }).to_bytes()
    };
    let mut words: Vec<_> = [JoinOutcome::Joined, JoinOutcome::Spent, JoinOutcome::Full].map(joined).to_vec();
    words.push([joined(JoinOutcome::Joined), part(2, 3, 0)].concat());
    words.push([joined(JoinOutcome::Joined), part(2, 6, 0), part(3, 6, 3)].concat());
    words
}
