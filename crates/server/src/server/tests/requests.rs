//! At most once: echoes, duplicates, windows, replies that wait for the store.

use super::world::{LIMIT, Peer, ROOT, World, create, ms};
use crate::store::{StoreEvent, StoreWork};
use crate::{Config, Dropped};
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Ack, Alive, Ask, Bytes8, Bytes16, CacheGrant, Cancel, Failed, GetAttr, Keep, KeepAlive, Kind, List, Lookup, Message, ObjectId, Pending,
    Read, Release, ReleaseItem, Reply, Stage, Status, Terms, Want, Write,
};

fn get(ask: Ask, object: ObjectId) -> Message<'static> {
    GetAttr { ask, object, want: Want::Nothing }.into()
}

/// The nonces and echoes of the ACKs sent to the peer; nothing else was sent.
fn acks(world: &mut World, peer: &Peer) -> Vec<(u64, u64)> {
    let ack = |got: &super::world::Got| match got.message() {
        Message::Ack(ack) => (ack.nonce, ack.echo),
        other => panic!("not an ACK: {other:?}"),
    };
    world.got(peer).iter().map(ack).collect()
}

//= wire-spec.md#11-1-lease
//= type=test
//# An echo MUST be the number of a received transmission that carried the very message answered.
//= wire-spec.md#11-1-lease
//= type=test
//# Encoding, packing and sending again MUST NOT change the echo of an answer.
#[test]
fn every_ack_echoes_the_transmission_that_it_answers() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let (first, second) = (peer.ask(), peer.ask());
    let a = world.post(&mut peer, &[get(first, ROOT)]);
    let b = world.post(&mut peer, &[get(second, ROOT)]);
    let c = world.post(&mut peer, &[get(first, ROOT)]);
    world.turn();
    assert_eq!(acks(&mut world, &peer), [(1, a), (2, b), (1, c)]);
}

#[test]
fn several_requests_of_a_datagram_are_answered_in_one() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let messages: Vec<_> = (0..5).map(|_| get(peer.ask(), ROOT)).collect();
    let before = world.transmitted();
    let echo = world.send(&mut peer, &messages);
    assert_eq!(acks(&mut world, &peer), [(1, echo), (2, echo), (3, echo), (4, echo), (5, echo)]);
    assert_eq!(world.transmitted() - before, 1);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A duplicate of a request that is executing MUST be answered PENDING.
//= wire-spec.md#11-2-delivery
//= type=test
//# The server MUST execute a request at most once, however often it arrives.
//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST choose the echo when its application produces the answer.
#[test]
fn duplicate_of_an_executing_request_is_pending_and_executes_once() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.stalled = true;
    let ask = peer.ask();
    let request = create(ask, "once", Want::Nothing);
    world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[]);
    let mut last = 0;
    for _ in 0..2 {
        last = world.send(&mut peer, &[request.into()]);
        world.expect(&peer, &[Pending { nonce: ask.nonce, echo: last }.into()]);
    }
    world.stalled = false;
    world.turn();
    let got = world.got_one(&peer);
    let Message::Ack(ack) = got.message() else { panic!("{got:?}") };
    assert_eq!((ack.nonce, ack.echo), (ask.nonce, last), "the newest transmission that carried it (section 11.1)");
    assert!(matches!(ack.reply, Reply::Changed(_)));
    assert_eq!(world.server.stats().requests, 1);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A message that shows an effect of a transaction MUST wait until the transaction is durable.
#[test]
fn mutations_handed_over_within_a_turn_are_answered_when_their_own_batch_is_durable() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.stalled = true;
    let mut ask = |world: &mut World| {
        let ask = peer.ask();
        world.post(&mut peer, &[create(ask, &alloc::format!("file {}", ask.nonce), Want::Nothing).into()]);
        ask.nonce
    };
    let mut first = alloc::vec![ask(&mut world)];
    while first.len() < 40 {
        first.push(ask(&mut world));
    }
    assert!(world.server.pending_writes() >= 40);
    let mut early = 0;
    while let Some(StoreWork::Persist(batch)) = world.server.poll_effect() {
        assert!(batch.writes.len() < 80, "{} keys: more than what a step has added to a batch that was not large", batch.writes.len());
        world.disk.batches.push_back(batch);
        early += 1;
    }
    assert!(early > 1, "many writes of one turn are cut between its steps");
    assert_eq!(world.server.pending_writes(), 0, "all that there was is handed over");
    let last = ask(&mut world);
    world.turn();
    assert_eq!(world.disk.batches.len(), early + 1);
    world.expect(&peer, &[]);
    let batch = (0..early).filter_map(|_| world.disk.sync()).last().expect("some are waiting");
    world.server.store_event(world.now, StoreEvent::Durable(batch));
    world.transmit();
    let nonces = |acks: Vec<(u64, u64)>| acks.into_iter().map(|(nonce, _)| nonce).collect::<Vec<_>>();
    assert_eq!(nonces(acks(&mut world, &peer)), first);
    world.stalled = false;
    world.turn();
    assert_eq!(nonces(acks(&mut world, &peer)), [last]);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A duplicate of an answered request MUST get the same answer, with its own packet number as echo.
//= wire-spec.md#7-the-table-of-answers
//= type=test
//# An answer that retires a nonce MUST be kept for duplicates of its request.
#[test]
fn duplicate_of_an_executed_request_gets_the_same_reply_with_a_fresh_echo() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ask = peer.ask();
    let request = create(ask, "once", Want::Exclusive);
    world.send(&mut peer, &[request.into()]);
    let first = world.got_one(&peer);
    for _ in 0..3 {
        let echo = world.send(&mut peer, &[request.into()]);
        world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply: first.reply() }.into()]);
    }
    let error = create(peer.ask(), "once", Want::Nothing);
    for _ in 0..2 {
        let echo = world.send(&mut peer, &[error.into()]);
        let failed = Reply::Failed(Failed { status: Status::EEXIST, retry_ms: 0 });
        world.expect(&peer, &[Ack { nonce: error.ask.nonce, echo, reply: failed }.into()]);
    }
    assert_eq!(world.server.stats().requests, 2);
}

//= wire-spec.md#3-2-packet-numbers
//= type=test
//# A receiver MUST drop a packet number that it has received before, or that is 1,024 or more below the highest received.
#[test]
fn copy_of_a_datagram_changes_nothing() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let message = get(peer.ask(), ROOT);
    let bytes = world.encode(peer.session, 2, &[message]);
    for _ in 0..3 {
        world.deliver(peer.path, &bytes);
        world.turn();
    }
    assert_eq!(acks(&mut world, &peer), [(1, 2)]);
    assert_eq!(world.server.stats().dropped(Dropped::DuplicatePacket), 2);
    let ahead = world.encode(peer.session, 5_000, &[message]);
    world.deliver(peer.path, &ahead);
    world.turn();
    assert_eq!(acks(&mut world, &peer), [(1, 5_000)], "a retransmission, not a copy");
    let stale = world.encode(peer.session, 3, &[message]);
    world.deliver(peer.path, &stale);
    assert_eq!(world.server.stats().dropped(Dropped::StalePacket), 1);
}

#[test]
fn nonce_below_the_floor_or_beyond_the_window_never_executes() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let below = create(peer.ask(), "below", Want::Nothing);
    let next = peer.ask_only();
    world.send(&mut peer, &[get(next, ROOT)]);
    world.got_one(&peer);
    let beyond = Ask { nonce: 2 + 64, back: 64, limit: LIMIT };
    world.send(&mut peer, &[below.into(), create(beyond, "beyond", Want::Nothing).into()]);
    world.expect(&peer, &[]);
    let stats = world.server.stats();
    assert_eq!((stats.dropped(Dropped::BelowFloor), stats.dropped(Dropped::BeyondWindow), stats.requests), (1, 1, 1));
    world.create(&mut peer, "below");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A request under a nonce first used for another request MUST NOT be executed, and is answered NONCE_REUSED.
#[test]
fn other_request_under_a_used_nonce_is_told_so() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ask = peer.ask();
    world.send(&mut peer, &[create(ask, "one", Want::Nothing).into()]);
    world.got_one(&peer);
    let echo = world.send(&mut peer, &[create(ask, "two", Want::Nothing).into()]);
    let reply = Reply::Failed(Failed { status: Status::NONCE_REUSED, retry_ms: 0 });
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply }.into()]);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# A request under a nonce first used for another request MUST NOT be executed, and is answered NONCE_REUSED.
#[test]
fn request_made_to_look_like_an_earlier_one_of_another_kind_is_not_executed() {
    let mut world = World::new();
    let (mut holder, mut peer) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "a").object;
    world.lock(&mut holder, file);
    // By a hash without a secret that has the kind among what it hashes, this name makes the LOOKUP equal to the LOCK of object 2 below.
    let odd = *b"zzEsp\x03.\x8a\x19\x13,q\x8ak\xdc\x1c\x11\xdb";
    let names = [Bytes8(b"a"), Bytes8(&odd)];
    let ask = peer.ask_only();
    world.send(&mut peer, &[Lookup { ask, start: ROOT, want: Want::Nothing, names: List::of(&names) }.into()]);
    world.got_one(&peer);
    assert_eq!(file, ObjectId(2));
    let echo = world.send(&mut peer, &[super::world::lock(ask, file, cistern_wire::LockWait::Queue).into()]);
    let reply = Reply::Failed(Failed { status: Status::NONCE_REUSED, retry_ms: 0 });
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply }.into()]);
    assert_eq!(world.server.status(world.now).waiting, 0);
}

#[test]
fn copies_of_a_large_read_wait_for_the_disk_as_one() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "large").object;
    let contents = [b'x'; 900];
    let ask = peer.ask();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(&contents), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    world.got_one(&peer);
    let ask = peer.ask();
    let read = Read { ask, object: file, offset: 0, length: 900, version: 0, want: Want::Nothing };
    world.send(&mut peer, &[read.into()]);
    world.got_one(&peer);
    world.stalled = true;
    let write = Write { ask: peer.ask(), ..write };
    world.send(&mut peer, &[write.into()]);
    let last = (0..20).map(|_| world.send(&mut peer, &[read.into()])).last().expect("there are some");
    assert!(world.got(&peer).iter().all(|got| got.message().kind() == Kind::Pending));
    assert_eq!(world.server.status(world.now).parked, 1);
    world.stalled = false;
    world.turn();
    let acks = acks(&mut world, &peer);
    assert_eq!(acks.iter().filter(|ack| ack.0 == ask.nonce).collect::<Vec<_>>(), [&(ask.nonce, last)], "one answer, to the newest");
}

#[test]
fn large_read_is_made_again_for_a_duplicate_without_a_new_grant() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "large").object;
    let contents = [b'x'; 900];
    let ask = peer.ask_only();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(&contents), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    world.got_one(&peer);
    let ask = peer.ask_only();
    let read = Read { ask, object: file, offset: 0, length: 900, version: 0, want: Want::Shared };
    world.send(&mut peer, &[read.into()]);
    let first = world.got_one(&peer);
    let Reply::Data(data) = first.reply() else { panic!("{first:?}") };
    assert_ne!(data.grant, CacheGrant::NONE);
    let echo = world.send(&mut peer, &[read.into()]);
    let again = cistern_wire::Data { grant: CacheGrant::NONE, ..data };
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply: Reply::Data(again) }.into()]);
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# A `limit` below 548 MUST be read as 548.
#[test]
fn reply_fits_the_limit_that_the_request_names() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "large").object;
    let contents = [b'x'; 1_000];
    let ask = peer.ask_only();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(&contents), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    world.got_one(&peer);
    for (limit, most) in [(1_232, 1_000), (700, 700), (548, 548), (1, 548)] {
        let ask = Ask { limit, ..peer.ask_only() };
        world.send(&mut peer, &[Read { ask, object: file, offset: 0, length: 2_000, version: 0, want: Want::Nothing }.into()]);
        let got = world.got_one(&peer);
        assert!(got.datagram <= usize::from(limit.max(548)));
        let Reply::Data(data) = got.reply() else { panic!("{got:?}") };
        let len = data.data.0.len();
        assert!(len <= most && len >= most.min(1_000) - 250, "{len} bytes under a limit of {limit}");
    }
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
#[test]
fn read_that_comes_again_while_it_waits_for_the_store_fits_the_limit_of_the_transmission_echoed() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "large").object;
    let contents = [b'x'; 1_000];
    let ask = peer.ask_only();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(&contents), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    world.got_one(&peer);
    // After a start nothing is in memory.
    let mut world = World::on(core::mem::take(&mut world.disk), Config::default(), 2);
    let mut peer = world.open(1);
    let ask = peer.ask_only();
    let read = |limit| Read { ask: Ask { limit, ..ask }, object: file, offset: 0, length: 2_000, version: 0, want: Want::Nothing };
    world.stalled = true;
    for limit in [1_232, 548] {
        world.send(&mut peer, &[read(limit).into()]);
    }
    assert_eq!(world.got_one(&peer).message().kind(), Kind::Pending);
    world.stalled = false;
    world.turn();
    let got = world.got_one(&peer);
    let Reply::Data(data) = got.reply() else { panic!("{got:?}") };
    assert!(got.datagram <= 548 && !data.data.0.is_empty(), "{} bytes", got.datagram);
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
#[test]
fn reply_that_waits_for_the_disk_answers_no_transmission_that_allows_less() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "large").object;
    world.stalled = true;
    let contents = [b'x'; 1_000];
    let write = Write { ask: peer.ask(), object: file, offset: 0, truncate: true, stage: 0, data: Bytes16(&contents), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    let ask = peer.ask();
    let read = |limit| Read { ask: Ask { limit, ..ask }, object: file, offset: 0, length: 2_000, version: 0, want: Want::Nothing };
    let first = world.send(&mut peer, &[read(LIMIT).into()]);
    world.send(&mut peer, &[read(548).into()]);
    assert_eq!(world.got_one(&peer).message().kind(), Kind::Pending);
    world.stalled = false;
    world.turn();
    let acks = world.got(&peer);
    let of_read = acks.iter().find(|got| matches!(got.message(), Message::Ack(ack) if ack.nonce == ask.nonce)).unwrap();
    assert!(of_read.datagram > 548, "it was made for what the first transmission allowed");
    assert!(matches!(of_read.message(), Message::Ack(ack) if ack.echo == first), "{of_read:?}");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A message that shows an effect of a transaction MUST wait until the transaction is durable.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A message that shows no effect of a transaction MUST NOT wait for it.
#[test]
fn reply_waits_for_the_disk_and_a_keep_alive_does_not() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let mut other = world.open(2);
    world.stalled = true;
    let request = create(peer.ask(), "slow", Want::Nothing);
    world.send(&mut peer, &[request.into()]);
    // Another agent that looks is not shown what a crash could still take back either.
    let look = get(other.ask(), ROOT);
    world.send(&mut other, &[look]);
    world.expect(&peer, &[]);
    world.expect(&other, &[]);
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    world.expect(&peer, &[Alive { serial, echo }.into()]);
    world.stalled = false;
    world.turn();
    assert_eq!(acks(&mut world, &peer).len(), 1);
    let got = world.got_one(&other);
    let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
    assert_eq!(stated.attr.size, 1, "what was read before is shown when it is durable");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# Neither window W, nor congestion window, nor bulk messages MUST hold up control messages, receipts, NACK or the handshake.
#[test]
fn urgent_answers_leave_before_replies() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let request = get(peer.ask(), ROOT);
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[request, KeepAlive { serial, clock_us: 0 }.into()]);
    let got = world.got(&peer);
    let kinds: Vec<_> = got.iter().map(|got| got.message().kind()).collect();
    assert_eq!(kinds, [Kind::Alive, Kind::Ack]);
    assert_eq!(got[0].packet, got[1].packet, "in one datagram");
    assert_eq!(got[0].message(), Alive { serial, echo }.into());
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A mutation that names an incomplete stage MUST fail with NOT_STAGED and change nothing.
#[test]
fn staged_contents_are_written_once_and_whole() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "staged").object;
    let piece = vec![b'y'; 1_000];
    for offset in [1_000, 0] {
        let ask = peer.ask();
        let stage = Stage { ask, stage: 4, total: 2_000, offset, data: Bytes16(&piece) };
        world.send(&mut peer, &[stage.into()]);
        world.got_one(&peer);
    }
    let ask = peer.ask();
    let write = Write { ask, object: file, offset: 0, truncate: true, stage: 4, data: Bytes16(b""), terms: Terms::NONE };
    world.send(&mut peer, &[write.into()]);
    let got = world.got_one(&peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    assert_eq!(changed.effects.iter().next().unwrap().attr.size, 2_000);
    let echo = world.send(&mut peer, &[write.into()]);
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply: got.reply() }.into()]);
    let ask = peer.ask();
    let echo = world.send(&mut peer, &[Write { ask, ..write }.into()]);
    let reply = Reply::Failed(Failed { status: Status::NOT_STAGED, retry_ms: 0 });
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply }.into()]);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# An overloaded server SHOULD shed bulk requests before these.
#[test]
fn too_many_answers_in_wait_are_shed_and_counted() {
    let mut world = World::with(Config { answer_bytes_max: 8_952, ..Config::default() });
    let mut peer = world.open(1);
    let ask = peer.ask();
    for _ in 0..200 {
        world.post(&mut peer, &[get(ask, ROOT)]);
    }
    world.turn();
    let answered = acks(&mut world, &peer).len() as u64;
    assert_eq!(answered + world.server.stats().dropped(Dropped::Shed), 200);
    assert!(answered < 200 && answered > 50);
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST keep no lease state of a session in good standing.
#[test]
fn session_is_usable_after_a_long_silence() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.tick(ms(1_000_000));
    let request = get(peer.ask(), ROOT);
    world.send(&mut peer, &[request]);
    assert_eq!(acks(&mut world, &peer).len(), 1, "the server keeps no lease state for it");
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# A datagram MUST NOT be longer than agreed in the handshake, nor than 1,232 bytes before that.
#[test]
fn answers_with_different_limits_share_a_datagram_only_within_the_smaller() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let limits = [1_232, 548, 1_232, 1_232, 548, 1_232, 1_232, 1_232, 1_232, 1_232];
    let requests = limits.map(|limit| get(Ask { limit, ..peer.ask() }, ROOT));
    world.send(&mut peer, &requests);
    let got = world.got(&peer);
    assert_eq!(got.len(), limits.len());
    for got in &got {
        let Message::Ack(ack) = got.message() else { panic!("{got:?}") };
        let limit = limits[usize::try_from(ack.nonce).unwrap() - 1];
        assert!(got.datagram <= usize::from(limit), "{} bytes with an answer limited to {limit}", got.datagram);
    }
}

//= wire-spec.md#11-2-delivery
//= type=test
//# Control messages and receipts MUST NOT need a nonce or a place in the window.
//= wire-spec.md#11-2-delivery
//= type=test
//# Neither window W, nor congestion window, nor bulk messages MUST hold up control messages, receipts, NACK or the handshake.
#[test]
fn window_full_of_waiting_requests_holds_no_control_message_up() {
    let mut world = World::new();
    let (mut holder, mut peer) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    world.cache(&mut holder, ROOT);
    for n in 0..61 {
        let name = alloc::format!("waits-{n}");
        let request = create(peer.ask(), &name, Want::Nothing);
        world.send(&mut peer, &[request.into()]);
        assert_eq!(world.got_one(&peer).message().kind(), Kind::Pending);
    }
    world.got(&holder);
    let beyond = create(Ask { nonce: 67, back: 64, limit: LIMIT }, "beyond", Want::Nothing);
    let items = [ReleaseItem { lock: super::world::advisory(file), generation, keep: Keep::Nothing }];
    let (alive, release) = (peer.serial(), peer.serial());
    let cancel = peer.serial();
    let messages: [Message<'_>; 4] = [
        beyond.into(),
        KeepAlive { serial: alive, clock_us: 0 }.into(),
        Release { serial: release, items: List::of(&items) }.into(),
        Cancel { serial: cancel, nonce: 5 }.into(),
    ];
    world.send(&mut peer, &messages);
    let kinds: Vec<_> = world.got(&peer).iter().map(|got| got.message().kind()).collect();
    assert_eq!(kinds, [Kind::Released, Kind::Alive, Kind::Cancelled]);
    assert_eq!(world.server.stats().dropped(Dropped::BeyondWindow), 1);
    assert_eq!(world.server.status(world.now).parked, 60, "the cancelled one is gone");
}

//= wire-spec.md#11-4-locks
//= type=test
//# The kept answer to a lock request MUST repeat its grant, and never make a new one.
#[test]
fn duplicate_of_a_lock_request_repeats_its_grant() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let ask = peer.ask();
    let request = super::world::lock(ask, file, cistern_wire::LockWait::Try);
    world.send(&mut peer, &[request.into()]);
    let first = world.got_one(&peer);
    let Reply::Granted(granted) = first.reply() else { panic!("{first:?}") };
    let items = [ReleaseItem { lock: granted.lock, generation: granted.generation, keep: Keep::Nothing }];
    let serial = peer.serial();
    world.send(&mut peer, &[Release { serial, items: List::of(&items) }.into()]);
    world.got(&peer);
    let echo = world.send(&mut peer, &[request.into()]);
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply: first.reply() }.into()]);
    assert_eq!(world.server.status(world.now).locks, 0, "what was given back is not granted again by a duplicate");
}

//= wire-spec.md#11-1-lease
//= type=test
//# Time, as one side acts by it, MUST NOT go back.
#[test]
fn time_that_goes_back_is_not_followed() {
    let mut world = World::new();
    let mut peer = world.open(1);
    assert!(!world.server.evict(world.now, peer.agent).is_empty());
    let later = world.now.plus(ms(1_000));
    world.server.handle_drained(later);
    let left = |world: &World| world.server.sessions(world.now)[0].left;
    assert_eq!(left(&world), Some(ms(1_021)), "by the newest time that it was told, not by the older one");
    world.send(&mut peer, &[KeepAlive { serial: 1, clock_us: 0 }.into()]);
    assert_eq!(world.got_one(&peer).message().kind(), Kind::Nack);
    assert_eq!(left(&world), Some(ms(1_021)));
}
