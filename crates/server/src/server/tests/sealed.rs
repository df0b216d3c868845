//! The sealed mode: who costs the server a Diffie-Hellman, what opens a session, what a record must be.

use super::world::{STORE, World, ms};
use crate::invites::InviteId;
use crate::principals::Rights;
use crate::store::Counter;
use crate::store::tests::disk::Disk;
use crate::{Config, Dropped, NewInvite, Server, ServerRoster};
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::{Machine as _, Path};
use cistern_seal::key::KeyId;
use cistern_seal::record::Chain;
use cistern_seal::work::{Beginning, Handshaker as _, KeyHolder, SealWork, Worker};
use cistern_seal::{Cipher, Entropy, FirstCheck, Psk, Sealer, SecretKey, SessionKeys, StartKey};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::sealed::{
    MAC_LEN, OpenPayload, OpenStatus, SealedAsk, SealedDatagram, SealedHandshake, SealedKind, SealedOpen, SealedRefusal, SealedResume,
    WelcomePayload, Zeros, prologue,
};
use cistern_wire::{
    AgentId, Bytes8, Bytes16, Confirm, Direction, EndReason, EndSession, Envelope, Form, FormerClaim, FormerFate, Header, Join,
    JoinOutcome, Joined, KeepAlive, Kind, List, Message, Packer, Realm, RosterAsk, RosterPart, SessionId,
};
use core::net::SocketAddr;
use core::time::Duration;

fn server_key() -> SecretKey {
    SecretKey::from_bytes([2; 32])
}

/// A server that seals, with a worker, and what it has sent.
pub(super) struct Sealed {
    pub(super) world: World,
    worker: Worker,
    entropy: u8,
    sent: Vec<(Path, Vec<u8>)>,
}

impl Sealed {
    /// It knows the keys of the peers 1 to 9.
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        let mut disk = Disk::default();
        disk.set_counter(Counter::Incarnation, 6);
        let mut sealed = Self::on(disk, Config { volatile: true, new_cluster: true, ..config }, 7);
        let World { server, now, .. } = &mut sealed.world;
        for n in 1..10 {
            let (who, _) = server.add_principal(*now, &[b'a' + n], Some(*Peer::new(n).key().public().as_bytes()), false).unwrap();
            server.grant(*now, who, Realm::TREE, Rights::from_letters("rwl").unwrap()).unwrap();
        }
        sealed.turn();
        sealed
    }

    /// Started on what an earlier one left on its disk; its seed makes the key of its start, too.
    fn on(disk: Disk, config: Config, seed: u8) -> Self {
        let mut sealed = Self::starting(disk, config, seed);
        sealed.turn();
        assert!(sealed.world.server.is_serving());
        sealed
    }

    /// A server that has read nothing yet.
    pub(super) fn starting(disk: Disk, config: Config, seed: u8) -> Self {
        let mut world = World::starting(disk, config.clone(), seed);
        let server = Server::new(world.now, 1, STORE, config, [seed; 32]).unwrap();
        world.server = server.sealed(&[server_key().public()], StartKey::from_bytes([seed; 32]), Cipher::default());
        Self { world, worker: Worker::new([server_key()]), entropy: 100, sent: Vec::new() }
    }

    /// The server's process dies, and another one takes its place.
    pub(super) fn restart(self) -> Self {
        let Self { mut world, .. } = self;
        let (disk, seed) = (core::mem::take(&mut world.disk), world.seed + 1);
        Self::on(disk, Config { volatile: true, ..Config::default() }, seed)
    }

    /// Work that is asked for now.
    fn work(&mut self) -> Vec<SealWork> {
        core::iter::from_fn(|| self.world.server.poll_seal_work()).collect()
    }

    /// One turn: the store is served, the worker works until there is nothing to do, all is sent.
    pub(super) fn turn(&mut self) {
        let now = self.world.now;
        self.world.server.handle_drained(now);
        self.world.server.work(now);
        self.world.serve_store();
        while let Some(work) = self.world.server.poll_seal_work() {
            self.entropy += 1;
            if let Some(done) = self.worker.work(work, Entropy::from_bytes([self.entropy; 32])) {
                self.world.server.seal_done(now, done);
            }
        }
        let mut buf = Vec::new();
        while let Some(path) = self.world.server.poll_transmit(now, &mut buf) {
            self.sent.push((path, buf.clone()));
        }
    }

    /// The server is given this, and has its turn; gives what it sends to `path`.
    pub(super) fn say(&mut self, path: Path, bytes: &[u8]) -> Vec<Vec<u8>> {
        self.world.deliver(path, bytes);
        self.turn();
        let (own, others) = core::mem::take(&mut self.sent).into_iter().partition(|(to, _)| to.remote == path.remote);
        self.sent = others;
        let own: Vec<_> = own.into_iter().map(|(_, bytes): (Path, Vec<u8>)| bytes).collect();
        assert!(own.iter().all(|sent| Form::named(sent) != Some(Form::Plain)), "nothing is sent in clear");
        own
    }

    pub(super) fn dropped(&self, reason: Dropped) -> u64 {
        self.world.server.stats().dropped(reason)
    }

    /// The peer has a session.
    pub(super) fn open(&mut self, peer: &mut Peer) {
        let cookie = peer.cookie(self);
        let open = peer.open(cookie);
        let welcome = self.say(peer.path, &open).pop().unwrap();
        assert_eq!(peer.welcomed(&welcome), OpenStatus::Opened);
        self.confirm(peer, &[]);
    }

    /// The peer confirms what it was offered, and names its former sessions; gives their fates.
    pub(super) fn confirm(&mut self, peer: &mut Peer, former: &[FormerClaim]) -> Vec<FormerFate> {
        let record = peer.record(&[Confirm { serial: 1, former: List::of(former) }.into()]);
        let opened = self.say(peer.path, &record).pop().unwrap();
        let messages = peer.opened(&opened);
        let Ok(Message::Opened(opened)) = Message::decode(Kind::Opened, &messages[0][4..]) else { panic!("not OPENED") };
        peer.secret = Psk::from_bytes(opened.resume);
        opened.former.iter().collect()
    }
}

/// A scripted agent.
pub(super) struct Peer {
    number: u8,
    pub(super) instance: AgentId,
    pub(super) incarnation: u64,
    pub(super) path: Path,
    holder: KeyHolder<Box<dyn FnMut() -> Entropy>>,
    pub(super) handshake: u64,
    transmissions: u64,
    pub(super) session: SessionId,
    /// By which it can be resumed.
    pub(super) secret: Psk,
    sealer: Sealer,
    packet: u64,
}

impl Peer {
    pub(super) fn new(number: u8) -> Self {
        let mut drawn = 0;
        let draw: Box<dyn FnMut() -> Entropy> = Box::new(move || {
            drawn += 1;
            let mut bytes = [number; 32];
            bytes[0] = drawn;
            Entropy::from_bytes(bytes)
        });
        Self {
            number,
            instance: cistern_wire::open_payload_sample().instance,
            incarnation: cistern_wire::open_payload_sample().incarnation,
            path: Path::to(SocketAddr::from(([192, 0, 2, number], 4_000))),
            holder: KeyHolder::new(SecretKey::from_bytes([number + 10; 32]), draw),
            handshake: 1_000 * u64::from(number),
            transmissions: 0,
            session: SessionId(0),
            secret: Psk::none(),
            sealer: Sealer::Plain,
            packet: 0,
        }
    }

    pub(super) fn agent(&self) -> AgentId {
        self.key().public().agent(self.instance)
    }

    pub(super) fn key(&self) -> SecretKey {
        SecretKey::from_bytes([self.number + 10; 32])
    }

    /// A handshake datagram.
    fn write(&mut self, body: impl Into<SealedHandshake>) -> Vec<u8> {
        self.transmissions += 1;
        let mut bytes = Vec::new();
        SealedDatagram::new(SessionId(0), self.transmissions, body).write(&mut bytes);
        FirstCheck::of(&server_key().public()).complete(&mut bytes);
        bytes
    }

    pub(super) fn ask(&mut self) -> Vec<u8> {
        let (handshake, key_id) = (self.handshake, KeyId::of(&server_key().public()).0);
        self.write(SealedAsk { handshake, key_id, room: Zeros, mac1: [0; MAC_LEN] })
    }

    pub(super) fn cookie(&mut self, server: &mut Sealed) -> [u8; 24] {
        let ask = self.ask();
        let answer = server.say(self.path, &ask).pop().unwrap();
        cookie_of(&answer)
    }

    pub(super) fn open(&mut self, cookie: [u8; 24]) -> Vec<u8> {
        self.open_by(cookie, [0; 8], &Psk::none())
    }

    /// OPEN by a secret.
    fn open_by(&mut self, cookie: [u8; 24], psk_id: [u8; 8], psk: &Psk) -> Vec<u8> {
        let (handshake, key_id) = (self.handshake, KeyId::of(&server_key().public()).0);
        let open =
            SealedOpen { handshake, key_id, cookie, psk_id, ephemeral: [0; 32], agent_key: [0; 48], payload: [0; 216], mac1: [0; MAC_LEN] };
        let mut bytes = self.write(open);
        let sample = cistern_wire::open_payload_sample();
        let payload: [u8; OpenPayload::OPEN_LEN] =
            OpenPayload { label: Bytes8(b"peer"), instance: self.instance, incarnation: self.incarnation, ..sample }.padded();
        let server = server_key().public();
        let message = self.holder.begin(&Beginning::Open(&server, psk), &prologue(&bytes).unwrap(), &payload).unwrap();
        bytes[SealedKind::Open.message().unwrap()].copy_from_slice(&message);
        FirstCheck::of(&server).complete(&mut bytes);
        bytes
    }

    /// RESUME of its session, by its secret; its key is not in it.
    pub(super) fn resume(&mut self, cookie: [u8; 24]) -> Vec<u8> {
        let (handshake, key_id, former) = (self.handshake, KeyId::of(&server_key().public()).0, self.session);
        let resume = SealedResume { handshake, key_id, cookie, former, ephemeral: [0; 32], payload: [0; 208], mac1: [0; MAC_LEN] };
        let mut bytes = self.write(resume);
        let sample = cistern_wire::open_payload_sample();
        let payload: [u8; OpenPayload::RESUME_LEN] =
            OpenPayload { label: Bytes8(b"peer"), instance: self.instance, incarnation: self.incarnation, ..sample }.padded();
        let message = self.holder.begin(&Beginning::Resume(&self.secret), &prologue(&bytes).unwrap(), &payload).unwrap();
        bytes[SealedKind::Resume.message().unwrap()].copy_from_slice(&message);
        FirstCheck::of(&server_key().public()).complete(&mut bytes);
        bytes
    }

    /// The same OPEN or RESUME under another number.
    pub(super) fn again(&mut self, open: &[u8]) -> Vec<u8> {
        self.transmissions += 1;
        let mut bytes = open.to_vec();
        bytes[12..20].copy_from_slice(&self.transmissions.to_be_bytes());
        FirstCheck::of(&server_key().public()).complete(&mut bytes);
        bytes
    }

    pub(super) fn welcomed(&mut self, welcome: &[u8]) -> OpenStatus {
        self.welcome(welcome).status
    }

    pub(super) fn welcome(&mut self, welcome: &[u8]) -> WelcomePayload {
        let (payload, chain): (_, Chain) = self.holder.finish(&welcome[SealedKind::Welcome.message().unwrap()]).unwrap();
        let payload = WelcomePayload::of(&payload).unwrap();
        (self.session, self.packet) = (payload.session, 0);
        self.sealer = Sealer::Sealed(Box::new(SessionKeys::new(&chain, Direction::Agent, Duration::ZERO)));
        payload
    }

    /// A record with the next number.
    pub(super) fn record(&mut self, messages: &[Message<'_>]) -> Vec<u8> {
        self.packet += 1;
        let header = Header { from_server: false, session: self.session, packet: self.packet };
        let mut bytes = Vec::new();
        let mut packer = Packer::of_form(&mut bytes, header, DATAGRAM_MIN, Form::Record);
        messages.iter().for_each(|message| assert!(packer.push(message)));
        packer.finish();
        self.sealer.seal(&mut Cipher::default(), Duration::ZERO, &mut bytes);
        bytes
    }

    /// The messages of a record, encoded.
    pub(super) fn opened(&mut self, record: &[u8]) -> Vec<Vec<u8>> {
        let envelope = Envelope::of_record(record, Direction::Server).unwrap();
        let mut text = Vec::new();
        let messages = self.sealer.open(&mut Cipher::default(), Duration::ZERO, record, &mut text).unwrap();
        envelope.decode_messages(messages).unwrap().messages().map(|message| message.to_bytes()).collect()
    }
}

fn cookie_of(challenge: &[u8]) -> [u8; 24] {
    assert!(FirstCheck::of(&server_key().public()).holds(challenge));
    match SealedDatagram::at_agent(challenge).unwrap().body {
        SealedHandshake::Challenge(challenge) => challenge.cookie,
        other => panic!("not a CHALLENGE: {other:?}"),
    }
}

pub(super) fn keep_alive(serial: u64) -> Message<'static> {
    KeepAlive { serial, clock_us: 0 }.into()
}

#[test]
fn a_session_is_opened_by_a_known_key_and_used() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let asked = peer.record(&[keep_alive(2)]);
    let answer = server.say(peer.path, &asked).pop().unwrap();
    let alive = cistern_wire::Alive { serial: 2, echo: peer.packet };
    assert_eq!(peer.opened(&answer), [Message::Alive(alive).to_bytes()]);
    let rows = server.world.server.sessions(server.world.now);
    let agent = peer.key().public().agent(cistern_wire::open_payload_sample().instance);
    assert_eq!(rows.iter().map(|row| row.agent).collect::<Vec<_>>(), [agent], "whose key it is is part of who it is");
}

#[test]
fn a_key_that_was_withdrawn_opens_nothing_and_what_it_was_offered_is_gone() {
    let (mut server, mut offered, mut late) = (Sealed::new(), Peer::new(1), Peer::new(1));
    let cookie = offered.cookie(&mut server);
    let open = offered.open(cookie);
    let welcome = server.say(offered.path, &open).pop().unwrap();
    assert_eq!(offered.welcomed(&welcome), OpenStatus::Opened);
    let who = server.world.server.principal_named(b"b").unwrap();
    server.world.server.revoke(server.world.now, who).unwrap();
    server.turn();
    let record = offered.record(&[Confirm { serial: 1, former: List::of(&[]) }.into()]);
    assert_eq!(server.say(offered.path, &record).pop().unwrap().len(), SealedKind::Hint.datagram_len());
    late.handshake += 1;
    let cookie = late.cookie(&mut server);
    let open = late.open(cookie);
    let welcome = server.say(late.path, &open).pop().unwrap();
    assert_eq!(late.welcomed(&welcome), OpenStatus::Revoked);
    assert!(server.world.server.sessions(server.world.now).is_empty());
}

//= wire-spec.md#11-8-security
//= type=test
//# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of trust.
#[test]
fn a_key_that_is_not_known_is_told_so_and_nobody_else_is() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(20));
    let cookie = peer.cookie(&mut server);
    let open = peer.open(cookie);
    let welcome = server.say(peer.path, &open).pop().unwrap();
    assert_eq!(peer.welcomed(&welcome), OpenStatus::UnknownKey);
    assert_eq!(peer.session, SessionId(0));
    assert!(server.world.server.sessions(server.world.now).is_empty());
}

#[test]
fn a_cookie_pays_for_one_diffie_hellman_and_a_repetition_gets_the_same_welcome() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    let cookie = peer.cookie(&mut server);
    let open = peer.open(cookie);
    // While it is computed a repetition is nothing.
    server.world.deliver(peer.path, &open);
    let again = peer.again(&open);
    server.world.deliver(peer.path, &again);
    assert_eq!(server.dropped(Dropped::CookieUsed), 1);
    let work = server.work();
    assert_eq!(work.len(), 1);
    for work in work {
        let done = server.worker.work(work, Entropy::from_bytes([9; 32])).unwrap();
        server.world.server.seal_done(server.world.now, done);
    }
    server.turn();
    let welcome = server.sent.pop().unwrap().1;
    let again = peer.again(&open);
    assert_eq!(server.say(peer.path, &again), core::slice::from_ref(&welcome));
    // From elsewhere it costs a CHALLENGE.
    let elsewhere = Path::to(SocketAddr::from(([192, 0, 2, 77], 4_000)));
    let challenge = server.say(elsewhere, &open).pop().unwrap();
    assert!(challenge.len() < open.len());
    let _ = cookie_of(&challenge);
    assert_eq!(peer.welcomed(&welcome), OpenStatus::Opened);
    let record = peer.record(&[Confirm { serial: 1, former: List::of(&[]) }.into()]);
    assert_eq!(server.say(peer.path, &record).len(), 1);
    // What was opened is offered no more.
    let again = peer.again(&open);
    assert!(server.say(peer.path, &again).is_empty());
    assert_eq!(server.dropped(Dropped::CookieUsed), 2);
}

//= docs/sealed.md#the-handshake
//= type=test
//# A server MUST verify mac1 and the cookie before it computes a Diffie-Hellman.
#[test]
fn nothing_is_computed_for_who_does_not_know_the_key_or_has_no_cookie() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    let mut ask = peer.ask();
    ask[30] ^= 1;
    assert!(server.say(peer.path, &ask).is_empty());
    assert_eq!(server.dropped(Dropped::NotAuthentic), 1);
    let open = peer.open([7; 24]);
    server.world.deliver(peer.path, &open);
    assert!(server.work().is_empty());
    server.turn();
    assert_eq!(server.sent.len(), 1, "a CHALLENGE");
    let key_id = KeyId::of(&server_key().public()).0;
    let resume = SealedResume {
        handshake: 1,
        key_id,
        cookie: [0; 24],
        former: SessionId(5),
        ephemeral: [0; 32],
        payload: [0; 208],
        mac1: [0; MAC_LEN],
    };
    let resume = peer.write(resume);
    let refused = server.say(Path::to(SocketAddr::from(([192, 0, 2, 8], 1))), &resume).pop().unwrap();
    let SealedHandshake::Refuse(refuse) = SealedDatagram::at_agent(&refused).unwrap().body else { panic!("not a REFUSE") };
    assert_eq!(refuse.reason, SealedRefusal::Resume);
    assert!(refused.len() < resume.len());
}

//= wire-spec.md#11-8-security
//= type=test
//# A side that has a key configured MUST NOT act on a plain datagram, in either role.
//= docs/sealed.md#the-handshake
//= type=test
//# A server MUST NOT execute a request before it came in a record.
//= docs/sealed.md#records-form-1
//= type=test
//# A record that does not open MUST change nothing but counters: it is not answered, moves no address and is not logged.
#[test]
fn what_does_not_open_changes_nothing_and_is_not_answered() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let good = peer.record(&[keep_alive(2)]);
    for place in 0..good.len() {
        let mut forged = good.clone();
        forged[place] ^= 0x40;
        assert!(server.say(peer.path, &forged).iter().all(|sent| sent.len() == SealedKind::Hint.datagram_len()), "byte {place}");
    }
    for cut in 1..=16 {
        assert!(server.say(peer.path, &good[..good.len() - cut]).is_empty());
    }
    assert!(server.dropped(Dropped::NotAuthentic) > 20);
    assert_eq!(server.say(peer.path, &good).len(), 1, "its number was not noted");
    assert!(server.say(peer.path, &good).is_empty());
    assert_eq!(server.dropped(Dropped::DuplicatePacket), 1);
    // In clear nothing is taken.
    let plain = server.world.encode(peer.session, 9, &[keep_alive(3)]);
    assert!(server.say(peer.path, &plain).is_empty());
    let unknown = server.world.server.stats().drops().find(|(name, _)| *name == "unknown_form");
    assert_eq!(unknown, Some(("unknown_form", 2)), "with the one whose form was changed");
}

#[test]
fn a_record_from_elsewhere_is_answered_by_a_challenge_of_the_path() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let record = peer.record(&[keep_alive(2)]);
    let elsewhere = Path::to(SocketAddr::from(([192, 0, 2, 50], 9)));
    let there = server.say(elsewhere, &record);
    assert_eq!(there.len(), 1);
    assert!(there[0].len() < record.len());
    assert_eq!(peer.opened(&there[0])[0][0], Kind::PathChallenge.code());
    assert!(server.sent.is_empty());
    let answer = server.say(peer.path, &record).pop().unwrap();
    assert_eq!(peer.opened(&answer)[0][0], Kind::Alive.code(), "its number was not noted");
}

#[test]
fn an_ended_session_answers_what_opens_and_is_new_and_no_other() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    let late = peer.record(&[keep_alive(2)]);
    let end = peer.record(&[EndSession { serial: 3, reason: EndReason::Close }.into()]);
    let ended = server.say(peer.path, &end).pop().unwrap();
    assert_eq!(peer.opened(&ended)[0][0], Kind::Ended.code());
    assert!(server.say(peer.path, &late).is_empty(), "it has a lower number");
    let record = peer.record(&[keep_alive(4)]);
    let mut forged = record.clone();
    *forged.last_mut().unwrap() ^= 1;
    assert!(server.say(peer.path, &forged).is_empty());
    let nack = server.say(peer.path, &record).pop().unwrap();
    assert_eq!(peer.opened(&nack)[0][0], Kind::Nack.code());
    assert!(server.say(peer.path, &record).is_empty(), "a copy");
}

#[test]
fn an_unknown_session_is_answered_by_a_hint_that_is_smaller() {
    let (mut server, mut peer) = (Sealed::new(), Peer::new(1));
    server.open(&mut peer);
    peer.session = SessionId(99);
    let record = peer.record(&[keep_alive(2)]);
    let hint = server.say(peer.path, &record).pop().unwrap();
    assert!(hint.len() < record.len() && FirstCheck::of(&server_key().public()).holds(&hint));
    let datagram = SealedDatagram::at_agent(&hint).unwrap();
    let SealedHandshake::Hint(body) = datagram.body else { panic!("not a HINT") };
    assert_eq!((datagram.header.session, body.echo), (SessionId(99), peer.packet));
    server.world.tick(ms(1_000));
    assert!(server.say(peer.path, &record[..48]).is_empty(), "as long as the answer");
}

const INVITE: [u8; 8] = [0, 0, 0, 0, 0, 0, 0, 7];

/// The server has an invite for one host, and a roster.
fn inviting() -> Sealed {
    let mut server = Sealed::new();
    let World { server: machine, now, .. } = &mut server.world;
    let new = NewInvite {
        id: InviteId(7),
        secret: [9; 16].into(),
        name: (*b"web").into(),
        operator: false,
        rights: Vec::new(),
        uses: 1,
        within_s: 3_600,
    };
    machine.invite(*now, new).unwrap();
    machine.set_roster(*now, ServerRoster { cluster: [3; 32], version: 4, signed: [5; 900].into() });
    server.turn();
    server
}

/// The peer has a session to join in.
fn to_join(server: &mut Sealed, peer: &mut Peer) {
    let cookie = peer.cookie(server);
    let open = peer.open_by(cookie, INVITE, &Psk::of_invite(&[9; 16]));
    let welcome = server.say(peer.path, &open).pop().unwrap();
    assert_eq!(peer.welcomed(&welcome), OpenStatus::Opened, "whether it may join is told to its JOIN");
}

//= docs/sealed.md#the-handshake
//= type=test
//# The first record of an agent MUST begin with CONFIRM; a half-open session takes no other, unless it was opened [to
//# join](#joining-rosters).
#[test]
fn a_key_joins_in_a_session_that_is_good_for_nothing_else() {
    let (mut server, mut peer, mut late) = (inviting(), Peer::new(20), Peer::new(21));
    to_join(&mut server, &mut peer);
    let confirm = peer.record(&[Confirm { serial: 1, former: List::of(&[]) }.into(), keep_alive(2)]);
    assert!(server.say(peer.path, &confirm).is_empty());
    let join = peer.record(&[Join { serial: 1 }.into()]);
    // Nobody is told before it is durable.
    server.world.deliver(peer.path, &join);
    assert!(server.world.server.poll_transmit(server.world.now, &mut Vec::new()).is_none());
    server.turn();
    let (_, record) = server.sent.pop().unwrap();
    let who = server.world.server.principal_named(b"web").unwrap();
    let mut joined = Joined {
        serial: 1,
        echo: peer.packet,
        outcome: JoinOutcome::Joined,
        principal: who.0,
        name: Bytes8(b"web"),
        cluster: [3; 32],
        used_s: 0,
        used_from: [0; 16],
    };
    assert_eq!(peer.opened(&record), [Message::Joined(joined).to_bytes()]);
    // All is durable by now.
    server.turn();
    let again = peer.record(&[Join { serial: 1 }.into()]);
    joined.echo = peer.packet;
    let answer = server.say(peer.path, &again).pop().unwrap();
    assert_eq!(peer.opened(&answer), [Message::Joined(joined).to_bytes()], "the same again");
    let ask = peer.record(&[RosterAsk { serial: 2, offset: 800 }.into()]);
    let answer = server.say(peer.path, &ask).pop().unwrap();
    let part = RosterPart { serial: 2, echo: peer.packet, version: 4, length: 900, offset: 800, part: Bytes16(&[5; 100]) };
    assert_eq!(peer.opened(&answer), [Message::RosterPart(part).to_bytes()]);
    assert!(server.world.server.sessions(server.world.now).is_empty(), "it was never a session");
    // Another key is told where the line was used; it registers nothing.
    to_join(&mut server, &mut late);
    let join = late.record(&[Join { serial: 1 }.into()]);
    let answer = server.say(late.path, &join).pop().unwrap();
    let messages = late.opened(&answer);
    let Ok(Message::Joined(refused)) = Message::decode(Kind::Joined, &messages[0][4..]) else { panic!("not JOINED") };
    let SocketAddr::V4(first) = peer.path.remote else { panic!("it came by IPv4") };
    assert_eq!((refused.outcome, refused.used_from, refused.principal), (JoinOutcome::Spent, first.ip().to_ipv6_mapped().octets(), 0));
    let end = late.record(&[EndSession { serial: 2, reason: EndReason::Close }.into()]);
    assert!(server.say(late.path, &end).is_empty());
    let more = late.record(&[RosterAsk { serial: 3, offset: 0 }.into()]);
    assert_eq!(server.say(late.path, &more).pop().unwrap().len(), SealedKind::Hint.datagram_len(), "it is forgotten");
}

#[test]
fn without_the_secret_nobody_joins() {
    let (mut server, mut peer) = (inviting(), Peer::new(20));
    let cookie = peer.cookie(&mut server);
    let open = peer.open_by(cookie, [8; 8], &Psk::of_invite(&[9; 16]));
    let refused = server.say(peer.path, &open).pop().unwrap();
    let SealedHandshake::Refuse(refuse) = SealedDatagram::at_agent(&refused).unwrap().body else { panic!("not a REFUSE") };
    assert_eq!(refuse.reason, SealedRefusal::Invite);
    assert!(server.work().is_empty(), "it costs no Diffie-Hellman");
    let mut guess = Peer::new(22);
    let cookie = guess.cookie(&mut server);
    let open = guess.open_by(cookie, INVITE, &Psk::of_invite(&[8; 16]));
    let welcome = server.say(guess.path, &open).pop().unwrap();
    assert!(guess.holder.finish(&welcome[SealedKind::Welcome.message().unwrap()]).is_err(), "it cannot read the answer");
}
