//! All of it together, as a machine will use it: from ASK to an answer in a record, and what repetition and forgery of each datagram come to.

use cistern_seal::cookie::Worth;
use cistern_seal::key::KeyId;
use cistern_seal::work::{Beginning, Handshaker as _, JobId, KeyHolder, Opening, SealDone, SealWork, Worker};
use cistern_seal::{Cipher, Cookies, Entropy, FirstCheck, OpenFailed, Psk, PublicKey, Sealer, SecretKey, SessionKeys};
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, SealedAsk, SealedChallenge, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedWelcome,
    WelcomePayload, Zeros, prologue,
};
use cistern_wire::{
    Alive, Direction, Envelope, Header, KeepAlive, Message, Packer, SessionId, open_payload_sample, welcome_payload_sample,
};
use std::net::SocketAddr;
use std::time::Duration;

const NOW: Duration = Duration::from_secs(100);
const KEEP_ALIVE: Message<'_> = Message::KeepAlive(KeepAlive { serial: 1, clock_us: 1 });

fn here() -> SocketAddr {
    "192.0.2.1:4000".parse().unwrap()
}

struct Server {
    check: FirstCheck,
    key_id: KeyId,
    cookies: Cookies,
    worker: Worker,
    jobs: u64,
}

/// What a server makes of OPEN.
enum Taken {
    /// It has no usable cookie, and is given one.
    Challenged(Vec<u8>),
    /// Its cookie has paid already.
    Dropped,
    /// It is answered; with what seals the session.
    Welcomed(Vec<u8>, Box<Sealer>),
}

impl Server {
    fn new() -> (Self, PublicKey) {
        let key = SecretKey::from_bytes([2; 32]);
        let public = key.public();
        let (check, key_id, cookies) = (FirstCheck::of(&public), KeyId::of(&public), Cookies::new([3; 16], NOW));
        (Self { check, key_id, cookies, worker: Worker::new([key]), jobs: 0 }, public)
    }

    fn challenge(&self, from: SocketAddr, handshake: u64, echo: u64) -> Vec<u8> {
        let cookie = self.cookies.give(NOW, from, handshake);
        written(&self.check, SealedChallenge { handshake, echo, cookie, mac1: [0; MAC_LEN] })
    }

    fn ask(&self, from: SocketAddr, bytes: &[u8]) -> Option<Vec<u8>> {
        let datagram = SealedDatagram::at_server(bytes).ok().filter(|_| self.check.holds(bytes))?;
        let SealedHandshake::Ask(ask) = datagram.body else { return None };
        assert_eq!(ask.key_id, self.key_id.0);
        Some(self.challenge(from, ask.handshake, datagram.header.packet))
    }

    fn open(&mut self, from: SocketAddr, bytes: &[u8]) -> Option<Taken> {
        let datagram = SealedDatagram::at_server(bytes).ok().filter(|_| self.check.holds(bytes))?;
        let SealedHandshake::Open(open) = datagram.body else { return None };
        match self.cookies.take(NOW, from, open.handshake, &open.cookie) {
            Worth::Good => {}
            Worth::Used => return Some(Taken::Dropped),
            Worth::Stale | Worth::Forged => return Some(Taken::Challenged(self.challenge(from, open.handshake, datagram.header.packet))),
        }
        self.jobs += 1;
        let (job, opening) = (JobId(self.jobs), Opening::Open(KeyId(open.key_id)));
        let message = bytes[SealedKind::Open.message().unwrap()].to_vec();
        let read = SealWork::Read { job, opening, prologue: prologue(bytes).unwrap(), message };
        let Some(SealDone::Read { payload, .. }) = self.worker.work(read, Entropy::from_bytes([4; 32])) else { return None };
        assert_eq!(OpenPayload::of(&payload), Ok(open_payload_sample()));
        let write = SealWork::Write { job, psk: Psk::none(), payload: welcome_payload_sample().padded() };
        let Some(SealDone::Written { message, chain, .. }) = self.worker.work(write, Entropy::from_bytes([5; 32])) else { return None };
        let (ephemeral, payload) = message.split_at(32);
        let (ephemeral, payload) = (ephemeral.try_into().unwrap(), payload.try_into().unwrap());
        let welcome = SealedWelcome { handshake: open.handshake, echo: datagram.header.packet, ephemeral, payload };
        let keys = SessionKeys::new(&chain, Direction::Server, NOW);
        Some(Taken::Welcomed(written(&self.check, welcome), Box::new(Sealer::Sealed(Box::new(keys)))))
    }
}

/// A handshake datagram with its check.
fn written(check: &FirstCheck, body: impl Into<SealedHandshake>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let datagram = SealedDatagram::new(SessionId(0), 1, body);
    datagram.write(&mut bytes);
    if datagram.body.kind().has_mac1() {
        check.complete(&mut bytes);
    }
    bytes
}

struct Agent {
    holder: KeyHolder<Box<dyn FnMut() -> Entropy>>,
    server: PublicKey,
    check: FirstCheck,
    handshake: u64,
}

impl Agent {
    fn new(server: PublicKey) -> Self {
        let mut drawn = 100;
        let draw: Box<dyn FnMut() -> Entropy> = Box::new(move || {
            drawn += 1;
            Entropy::from_bytes([drawn; 32])
        });
        Self { holder: KeyHolder::new(SecretKey::from_bytes([1; 32]), draw), server, check: FirstCheck::of(&server), handshake: 7 }
    }

    fn ask(&self) -> Vec<u8> {
        let key_id = KeyId::of(&self.server).0;
        written(&self.check, SealedAsk { handshake: self.handshake, key_id, room: Zeros, mac1: [0; MAC_LEN] })
    }

    fn open(&mut self, challenge: &[u8]) -> Option<Vec<u8>> {
        let datagram = SealedDatagram::at_agent(challenge).ok().filter(|_| self.check.holds(challenge))?;
        let SealedHandshake::Challenge(challenge) = datagram.body else { return None };
        assert_eq!(challenge.handshake, self.handshake);
        let (handshake, key_id, cookie, mac1) = (self.handshake, KeyId::of(&self.server).0, challenge.cookie, [0; MAC_LEN]);
        let mut open =
            SealedOpen { handshake, key_id, cookie, psk_id: [0; 8], ephemeral: [0; 32], agent_key: [0; 48], payload: [0; 216], mac1 };
        let prologue = prologue(&written(&self.check, open)).unwrap();
        let payload: [u8; OpenPayload::OPEN_LEN] = open_payload_sample().padded();
        let first = self.holder.begin(&Beginning::Open(&self.server, &Psk::none()), &prologue, &payload).unwrap();
        open.ephemeral.copy_from_slice(&first[..32]);
        open.agent_key.copy_from_slice(&first[32..80]);
        open.payload.copy_from_slice(&first[80..]);
        Some(written(&self.check, open))
    }

    fn welcomed(&mut self, welcome: &[u8]) -> Option<Sealer> {
        SealedDatagram::at_agent(welcome).ok()?;
        let (payload, chain) = self.holder.finish(&welcome[SealedKind::Welcome.message().unwrap()]).ok()?;
        assert_eq!(WelcomePayload::of(&payload), Ok(welcome_payload_sample()));
        Some(Sealer::Sealed(Box::new(SessionKeys::new(&chain, Direction::Agent, NOW))))
    }
}

fn send(sealer: &mut Sealer, from_server: bool, packet: u64, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let header = Header { from_server, session: welcome_payload_sample().session, packet };
    let mut packer = Packer::of_form(&mut bytes, header, 548, sealer.form());
    assert!(packer.push(message));
    packer.finish();
    sealer.seal(&mut Cipher::default(), NOW, &mut bytes);
    bytes
}

fn receive(sealer: &mut Sealer, from: Direction, record: &[u8]) -> Result<Vec<Vec<u8>>, OpenFailed> {
    let envelope = Envelope::of_record(record, from).unwrap();
    assert_eq!(envelope.form, sealer.form());
    let mut text = Vec::new();
    let messages = sealer.open(&mut Cipher::default(), NOW, record, &mut text)?;
    Ok(envelope.decode_messages(messages).unwrap().messages().map(|message| message.to_bytes()).collect())
}

/// A handshake to its end: both sides of the session, and the datagrams that were sent.
fn opened() -> (Server, Agent, [Sealer; 2], [Vec<u8>; 4]) {
    let (mut server, public) = Server::new();
    let mut agent = Agent::new(public);
    let ask = agent.ask();
    let challenge = server.ask(here(), &ask).unwrap();
    let open = agent.open(&challenge).unwrap();
    let Some(Taken::Welcomed(welcome, at_server)) = server.open(here(), &open) else { panic!("it is not welcomed") };
    let at_agent = agent.welcomed(&welcome).unwrap();
    (server, agent, [at_agent, *at_server], [ask, challenge, open, welcome])
}

#[test]
fn a_session_is_opened_and_used() {
    let (_, _, [mut agent, mut server], _) = opened();
    let asked = send(&mut agent, false, 1, &KEEP_ALIVE);
    assert_eq!(receive(&mut server, Direction::Agent, &asked), Ok(vec![KEEP_ALIVE.to_bytes()]));
    let alive = Message::Alive(Alive { serial: 1, echo: 1 });
    let answer = send(&mut server, true, 1, &alive);
    assert_eq!(receive(&mut agent, Direction::Server, &answer), Ok(vec![alive.to_bytes()]));
    let (_, _, [_, mut other], _) = opened();
    assert!(receive(&mut other, Direction::Agent, &asked).is_ok(), "the same entropy makes the same session");
}

#[test]
fn a_recording_costs_no_second_diffie_hellman_and_opens_nothing() {
    let (mut server, mut agent, [mut at_agent, _], [_, challenge, open, welcome]) = opened();
    assert!(matches!(server.open(here(), &open), Some(Taken::Dropped)));
    assert_eq!(server.jobs, 1);
    let elsewhere = "198.51.100.9:4000".parse().unwrap();
    let Some(Taken::Challenged(again)) = server.open(elsewhere, &open) else { panic!("it is not challenged") };
    assert!(again.len() < open.len());
    assert_eq!(server.jobs, 1);
    let (mut restarted, _) = Server::new();
    restarted.cookies = Cookies::new([8; 16], NOW);
    assert!(matches!(restarted.open(here(), &open), Some(Taken::Challenged(_))), "cookies end with the start");

    assert!(agent.welcomed(&welcome).is_none(), "the handshake is over");
    // A handshake that is begun anew, as on a second CHALLENGE, has another ephemeral key, so the recorded WELCOME is none for it.
    let anew = agent.open(&challenge).unwrap();
    let range = SealedKind::Open.message().unwrap();
    assert_ne!(anew[range.clone()][..32], open[range][..32]);
    assert!(agent.welcomed(&welcome).is_none());
    let asked = send(&mut at_agent, false, 1, &KEEP_ALIVE);
    let (_, _, [mut wrong_side, _], _) = opened();
    let mut text = Vec::new();
    assert_eq!(wrong_side.open(&mut Cipher::default(), NOW, &asked, &mut text), Err(OpenFailed), "sent back to its own side");
}

#[test]
fn what_is_changed_on_the_way_opens_nothing() {
    let (_, _, _, [ask, challenge, open, welcome]) = opened();
    for place in 0..ask.len() {
        let (server, _) = Server::new();
        let mut changed = ask.clone();
        changed[place] ^= 2;
        assert!(server.ask(here(), &changed).is_none(), "byte {place} of ASK");
    }
    for place in 0..challenge.len() {
        let (_, public) = Server::new();
        let mut changed = challenge.clone();
        changed[place] ^= 2;
        assert!(Agent::new(public).open(&changed).is_none(), "byte {place} of CHALLENGE");
    }
    let check = {
        let (_, public) = Server::new();
        FirstCheck::of(&public)
    };
    // Of the messages not every byte: that is tested for the handshake alone.
    let message = SealedKind::Open.message().unwrap();
    for place in (0..message.start).chain(message.step_by(7)) {
        // By somebody who knows the server's public key, and so can make the check anew.
        let (mut server, _) = Server::new();
        let mut changed = open.clone();
        changed[place] ^= 2;
        assert!(server.open(here(), &changed).is_none(), "byte {place} of OPEN, with the check of before");
        check.complete(&mut changed);
        let welcomed = matches!(server.open(here(), &changed), Some(Taken::Welcomed(..)));
        // The packet number is not authentic, and nothing follows from it.
        assert_eq!(welcomed, (12..20).contains(&place), "byte {place} of OPEN");
    }
    let message = SealedKind::Welcome.message().unwrap();
    for place in (0..message.start).chain(message.step_by(7)) {
        let (server, public) = Server::new();
        let mut agent = Agent::new(public);
        let again = server.ask(here(), &agent.ask()).unwrap();
        assert_eq!(agent.open(&again).as_ref(), Some(&open));
        let mut changed = welcome.clone();
        changed[place] ^= 2;
        // Of what stands before message 2, an agent believes nothing.
        let before = SealedKind::Welcome.message().unwrap().start;
        assert_eq!(
            agent.welcomed(&changed).is_some(),
            (12..20).contains(&place) || (21..before).contains(&place),
            "byte {place} of WELCOME"
        );
    }
}

//= wire-spec.md#11-8-security
//= type=test
//# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of trust.
#[test]
fn another_server_cannot_answer() {
    let (_, mut agent, _, [_, challenge, ..]) = opened();
    let open = agent.open(&challenge).unwrap();
    let mut false_server = Worker::new([SecretKey::from_bytes([6; 32])]);
    for opening in [Opening::Open(KeyId::of(&SecretKey::from_bytes([6; 32]).public())), Opening::Resume(Psk::none())] {
        let message = open[SealedKind::Open.message().unwrap()].to_vec();
        let read = SealWork::Read { job: JobId(1), opening, prologue: prologue(&open).unwrap(), message };
        assert!(matches!(false_server.work(read, Entropy::from_bytes([4; 32])), Some(SealDone::Failed { .. })));
    }
}
