//! The sealed mode: under one ephemeral key one text is sent, the server's version is the highest that both speak, and what anybody can say
//! who knows the server's key ends nothing.

use super::script::{opened, server, stat};
use crate::config::Config;
use crate::{Agent, Identity, Keys};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine as _, Path};
use cistern_seal::handshake::Responder;
use cistern_seal::record::Chain;
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, Sealer, SecretKey, SessionKeys};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::sealed::{
    MAC_LEN, SealedChallenge, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedRefusal, SealedRefuse, SealedWelcome,
    WelcomePayload, Zeros, prologue,
};
use cistern_wire::{AgentId, Direction, Form, Header, Message, Packer, SessionId, welcome_payload_sample};

fn server_key() -> SecretKey {
    SecretKey::from_bytes([2; 32])
}

/// An agent that seals and wants a session, and a server whose every word the test decides.
struct Shaking {
    agent: Agent,
    now_ms: u64,
    sent: u64,
}

impl Shaking {
    fn new() -> Self {
        let mut drawn = 0;
        let draw = move || {
            drawn += 1;
            Entropy::from_bytes([drawn; 32])
        };
        let identity = Identity { agent: AgentId([1; 16]), incarnation: 1, boot: [2; 16], label: b"test".to_vec() };
        let agent = Agent::new(Config::default(), identity, [3; 32], [server(1)].to_vec()).unwrap();
        let holder = cistern_seal::work::KeyHolder::new(SecretKey::from_bytes([4; 32]), draw);
        let agent = agent.sealed(Keys::new(holder, server_key().public()), Cipher::default());
        let mut shaking = Self { agent, now_ms: 10_000, sent: 0 };
        let now = shaking.now();
        shaking.agent.submit(now, stat(1));
        shaking
    }

    fn now(&self) -> Instant {
        Instant::new(self.now_ms * 1_000_000, self.now_ms * 1_000_000)
    }

    /// What is sent within so many milliseconds: one datagram of the handshake.
    fn one(&mut self, within_ms: u64) -> (SealedHandshake, Vec<u8>) {
        let (mut buf, last) = (Vec::new(), self.now_ms + within_ms);
        loop {
            let now = self.now();
            self.agent.handle_drained(now);
            if self.agent.poll_transmit(now, &mut buf).is_some() {
                return (SealedDatagram::at_server(&buf).unwrap().body, buf);
            }
            assert!(self.now_ms < last, "nothing is sent");
            self.now_ms += 1;
        }
    }

    fn ask(&mut self) -> (u64, u64) {
        let (SealedHandshake::Ask(ask), bytes) = self.one(0) else { panic!("not an ASK") };
        (ask.handshake, packet(&bytes))
    }

    fn open(&mut self, within_ms: u64) -> (SealedOpen, Vec<u8>) {
        let (SealedHandshake::Open(open), bytes) = self.one(within_ms) else { panic!("not an OPEN") };
        (open, bytes)
    }

    fn say(&mut self, body: impl Into<SealedHandshake>) {
        self.sent += 1;
        let (mut bytes, body) = (Vec::new(), body.into());
        SealedDatagram::new(SessionId(0), self.sent, body).write(&mut bytes);
        if body.kind().has_mac1() {
            FirstCheck::of(&server_key().public()).complete(&mut bytes);
        }
        let now = self.now();
        self.agent.handle_datagram(now, Path::to(server(1)), &bytes);
    }

    fn challenge(&mut self, (handshake, echo): (u64, u64), cookie: u8) {
        self.say(SealedChallenge { handshake, echo, cookie: [cookie; 24], mac1: [0; MAC_LEN] });
    }

    /// Answers OPEN by a session in this version.
    fn welcome(&mut self, open: &SealedOpen, bytes: &[u8], version: u8) {
        self.say(welcome(open, bytes, version, 9).0);
    }

    /// A datagram of the server in the session of the sample, sealed by these keys; until when the agent then has a lease.
    fn record(&mut self, chain: &Chain, message: &Message<'_>) -> Option<Instant> {
        self.sent += 1;
        let header = Header { from_server: true, session: welcome_payload_sample().session, packet: self.sent };
        let (mut bytes, now) = (Vec::new(), self.now());
        let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MIN, Form::Record);
        assert!(packer.push(message));
        packer.finish();
        let keys = SessionKeys::new(chain, Direction::Server, now.uptime());
        Sealer::Sealed(Box::new(keys)).seal(&mut Cipher::default(), now.uptime(), &mut bytes);
        self.agent.handle_datagram(now, Path::to(server(1)), &bytes);
        self.agent.view(now).valid_until
    }

    fn not_authentic(&self) -> u64 {
        self.agent.drops().iter().find(|(name, _)| *name == "not_authentic").map_or(0, |(_, count)| count)
    }

    /// The form of what is sent now.
    fn form(&mut self) -> Option<Form> {
        let (now, mut buf) = (self.now(), Vec::new());
        self.agent.handle_drained(now);
        self.agent.poll_transmit(now, &mut buf)?;
        Form::named(&buf)
    }
}

/// The server's answer to OPEN, under an ephemeral key made of `ephemeral`, and what its keys follow from.
fn welcome(open: &SealedOpen, bytes: &[u8], version: u8, ephemeral: u8) -> (SealedWelcome, Chain) {
    let message = &bytes[SealedKind::Open.message().unwrap()];
    let (read, _) = Responder::open(&server_key(), Entropy::from_bytes([ephemeral; 32]), &prologue(bytes).unwrap(), message).unwrap();
    let payload = WelcomePayload { version, ..welcome_payload_sample() };
    let (message, chain) = read.answer(&Psk::none(), &payload.padded()).unwrap();
    let (ephemeral, payload) = message.split_first_chunk().unwrap();
    let (handshake, echo) = (open.handshake, packet(bytes));
    (SealedWelcome { handshake, echo, ephemeral: *ephemeral, payload: payload.try_into().unwrap() }, chain)
}

fn packet(datagram: &[u8]) -> u64 {
    u64::from_be_bytes(datagram[12..20].try_into().unwrap())
}

//= docs/sealed.md#the-handshake
//= type=test
//# A retransmitted OPEN or RESUME MUST have the same bytes as the first but for `packet` and mac1.
#[test]
fn open_that_is_sent_again_has_the_same_bytes_but_for_its_number_and_check() {
    let mut shaking = Shaking::new();
    let asked = shaking.ask();
    shaking.challenge(asked, 5);
    let (_, first) = shaking.open(0);
    // As often as it is sent to one address.
    for _ in 0..2 {
        let (_, again) = shaking.open(5_000);
        assert!(packet(&again) > packet(&first));
        let end = again.len() - MAC_LEN;
        assert_eq!((&again[..12], &again[20..end]), (&first[..12], &first[20..end]));
    }
}

//= docs/sealed.md#the-handshake
//= type=test
//# An agent that is answered CHALLENGE again MUST begin anew, with another `handshake` and another ephemeral key.
#[test]
fn open_that_is_answered_by_a_cookie_is_followed_by_another_handshake_under_another_key() {
    let mut shaking = Shaking::new();
    let asked = shaking.ask();
    shaking.challenge(asked, 5);
    let (first, bytes) = shaking.open(0);
    shaking.challenge((first.handshake, packet(&bytes)), 6);
    let again = shaking.ask();
    assert_ne!(again.0, first.handshake);
    shaking.challenge(again, 7);
    let (second, _) = shaking.open(0);
    assert_eq!((second.handshake, second.cookie), (again.0, [7; 24]));
    assert_ne!(second.ephemeral, first.ephemeral);
}

//= docs/sealed.md#the-handshake
//= type=test
//# An agent MUST end the handshake unless the version in WELCOME's payload is the highest in both ranges.
#[test]
fn session_in_another_version_than_the_highest_of_both_is_not_taken() {
    for (version, form) in [(1, Some(Form::Record)), (2, None), (0, None)] {
        let mut shaking = Shaking::new();
        let asked = shaking.ask();
        shaking.challenge(asked, 5);
        let (open, bytes) = shaking.open(0);
        shaking.welcome(&open, &bytes, version);
        assert_eq!(shaking.form(), form, "version {version}");
    }
}

#[test]
fn cookies_are_acted_on_at_once_three_times_in_a_handshake() {
    let mut shaking = Shaking::new();
    for cookie in [5, 6] {
        let asked = shaking.ask();
        shaking.challenge(asked, cookie);
        let (open, bytes) = shaking.open(0);
        let answered = (open.handshake, packet(&bytes));
        shaking.challenge(answered, cookie);
        if cookie == 6 {
            assert_eq!(shaking.form(), None, "it is sent when it would have been sent again");
        }
    }
    let (ask, _) = shaking.one(2_000);
    assert!(matches!(ask, SealedHandshake::Ask(_)), "{ask:?}");
}

#[test]
fn cookie_for_another_handshake_or_for_what_was_answered_before_is_none() {
    let mut shaking = Shaking::new();
    let (handshake, echo) = shaking.ask();
    for stray in [(handshake + 1, echo), (handshake, echo + 1)] {
        shaking.challenge(stray, 5);
        assert_eq!(shaking.form(), None);
    }
    shaking.challenge((handshake, echo), 6);
    assert_eq!(shaking.open(0).0.cookie, [6; 24]);
    shaking.challenge((handshake, echo), 7);
    assert_eq!(shaking.form(), None);
}

//= docs/sealed.md#the-handshake
//= type=test
//# They MUST change only when an agent acts, never what it believes of a lease, a session or a version.
#[test]
fn refusal_that_anybody_can_make_puts_off_and_ends_nothing() {
    for reason in [SealedRefusal::Version, SealedRefusal::Busy, SealedRefusal::Stopping] {
        let mut shaking = Shaking::new();
        for retry_ms in [0, u32::MAX] {
            let (handshake, echo) = match shaking.one(13_000) {
                (SealedHandshake::Ask(ask), bytes) => (ask.handshake, packet(&bytes)),
                other => panic!("not an ASK: {other:?}"),
            };
            shaking.say(SealedRefuse { handshake, echo, reason, serving: 0, reserved: Zeros, retry_ms, room: Zeros, mac1: [0; MAC_LEN] });
            assert_eq!(shaking.form(), None);
        }
        let (SealedHandshake::Ask(ask), bytes) = shaking.one(13_000) else { panic!("not an ASK") };
        shaking.challenge((ask.handshake, packet(&bytes)), 5);
        let (open, bytes) = shaking.open(0);
        shaking.welcome(&open, &bytes, 1);
        assert_eq!(shaking.form(), Some(Form::Record), "{reason:?}");
    }
}

//= wire-spec.md#11-8-security
//= type=test
//# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of trust.
//= docs/sealed.md#records-form-1
//= type=test
//# A record that does not open MUST change nothing but counters: it is not answered, moves no address and is not logged.
#[test]
fn who_has_not_the_servers_key_opens_and_renews_nothing_and_the_server_is_heard_after_it() {
    let mut shaking = Shaking::new();
    let asked = shaking.ask();
    shaking.challenge(asked, 5);
    let (open, bytes) = shaking.open(0);
    let (first, chain) = welcome(&open, &bytes, 1, 9);
    let (other, other_chain) = welcome(&open, &bytes, 1, 8);
    // Somebody on the path has seen these and knows the server's public key, but cannot read what the agent wrote to it.
    let (mut key, mut lease) = (first, first);
    key.ephemeral[0] ^= 1;
    lease.payload[40] ^= 1;
    for forged in [key, lease, SealedWelcome { ephemeral: other.ephemeral, ..first }, SealedWelcome { payload: other.payload, ..first }] {
        shaking.say(forged);
        assert_eq!((shaking.form(), shaking.agent.view(shaking.now()).session), (None, None));
    }
    assert_eq!(shaking.not_authentic(), 4);
    shaking.say(first);
    assert_eq!(shaking.form(), Some(Form::Record), "the server's own is taken");
    // Nor is what comes in the session under other keys an answer, though all else is right in it.
    let answer = opened(1, &[]);
    assert_eq!((shaking.record(&other_chain, &answer), shaking.not_authentic()), (None, 5));
    assert!(shaking.record(&chain, &answer).is_some());
}
