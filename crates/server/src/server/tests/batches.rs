//! Batches and what they need: turns on all objects before any effect, one execution, stages, and errors that name an item.

use super::ephemerals::ephemeral;
use super::world::{Peer, ROOT, World, create};
use crate::Config;
use crate::config::PresenceLimits;
use crate::scheduler::prices;
use cistern_wire::{
    Ack, Ask, Batch, BatchFailed, Bytes8, Bytes16, Create, Done, Expect, Failed, GetXattr, Item, Keep, Limit, Limited, List, Message,
    ObjectId, Release, ReleaseItem, Reply, SetXattr, Stage, Status, Terms, Unlink, Want, Whose, Write, XattrRule,
};

fn write(object: ObjectId, stage: u64, data: &[u8]) -> Item<'_> {
    Write { ask: Ask::NONE, object, offset: 0, truncate: true, stage, data: Bytes16(data), terms: Terms::NONE }.into()
}

fn unlink(name: &[u8], force: bool) -> Item<'_> {
    Unlink { ask: Ask::NONE, dir: ROOT, name: Bytes8(name), force, terms: Terms::NONE }.into()
}

fn attribute(object: ObjectId, stage: u64) -> Item<'static> {
    let (name, rule) = (Bytes8(b"user.a"), XattrRule::Any);
    SetXattr { ask: Ask::NONE, object, name, rule, stage, data: Bytes16(b""), terms: Terms::NONE }.into()
}

fn batch<'a>(ask: Ask, items: &'a [Item<'a>]) -> Message<'a> {
    Batch { ask, items: List::of(items), terms: Terms::NONE }.into()
}

/// Stages one byte: number of the stage, its length, and where the byte stands.
fn stage(world: &mut World, peer: &mut Peer, (stage, total, offset): (u64, u32, u32)) {
    let piece = Stage { ask: peer.ask(), stage, total, offset, data: Bytes16(b"x") };
    world.send(peer, &[piece.into()]);
    assert_eq!(world.got_one(peer).reply(), Reply::Done(Done {}));
}

#[test]
fn a_piece_behind_a_gap_is_charged_for_what_is_filled_before_it() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let mut cost = |piece| {
        let before = world.server.figures(world.now).work.charged_ns;
        stage(&mut world, &mut peer, piece);
        world.server.figures(world.now).work.charged_ns - before
    };
    let (first, last) = (cost((1, 1 << 20, 0)), cost((2, 1 << 20, (1 << 20) - 1)));
    assert_eq!(last - first, u64::from(prices::filled((1 << 20) - 1)));
    assert_eq!(cost((2, 1 << 20, (1 << 20) - 2)), first, "there is room for it");
}

/// Gives a demanded cache lock back.
fn comply(world: &mut World, peer: &mut Peer) {
    let got = world.got_one(peer);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    let serial = peer.serial();
    let items = [ReleaseItem { lock: demand.lock, generation: demand.generation, keep: Keep::Nothing }];
    world.send(peer, &[Release { serial, items: List::of(&items) }.into()]);
    assert!(matches!(world.got_one(peer).message(), Message::Released(_)));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST grant no cache lock and execute no other mutation between two items of a BATCH.
//= wire-spec.md#11-4-locks
//= type=test
//# A mutation MUST NOT be executed while another session holds a cache lock on an object that it affects.
#[test]
fn a_batch_has_no_effect_before_every_lock_on_all_of_its_objects_is_back() {
    let mut world = World::new();
    let (mut a, mut b, mut writer) = (world.open(1), world.open(2), world.open(3));
    let (f, g) = (world.create(&mut writer, "f").object, world.create(&mut writer, "g").object);
    world.cache(&mut a, f);
    world.cache(&mut b, g);
    let items = [write(f, 0, b"new"), write(g, 0, b"new")];
    let ask = writer.ask_only();
    let echo = world.send(&mut writer, &[batch(ask, &items)]);
    world.expect(&writer, &[cistern_wire::Pending { nonce: ask.nonce, echo }.into()]);
    comply(&mut world, &mut a);
    world.expect(&writer, &[]);
    // While it waits nothing of it is to be seen, and nobody gets a lock on what it will change.
    let get = cistern_wire::GetAttr { ask: a.ask(), object: f, want: Want::Shared };
    world.send(&mut a, &[get.into()]);
    let got = world.got_one(&a);
    let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
    assert_eq!((stated.attr.size, stated.grant), (0, cistern_wire::CacheGrant::NONE));
    comply(&mut world, &mut b);
    let got = world.got_one(&writer);
    let Reply::Batched(done) = got.reply() else { panic!("{got:?}") };
    assert!(done.items.iter().map(|result| (result.object, result.version)).eq([(f, 2), (g, 2)]));
    world.cache(&mut a, f);
}

#[test]
fn a_duplicate_of_a_batch_gets_its_answer_and_is_not_done_again() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let items = [create(Ask::NONE, "f", Want::Nothing).into(), write(ObjectId::made_by(0), 0, b"text")];
    let ask = peer.ask();
    world.send(&mut peer, &[batch(ask, &items)]);
    let got = world.got_one(&peer);
    assert!(matches!(got.reply(), Reply::Batched(_)));
    let echo = world.send(&mut peer, &[batch(ask, &items)]);
    world.expect(&peer, &[Ack { nonce: ask.nonce, echo, reply: got.reply() }.into()]);
    let ask = peer.ask();
    world.send(&mut peer, &[batch(ask, &items)]);
    assert_eq!(world.got_one(&peer).reply(), Reply::BatchFailed(BatchFailed { status: Status::EEXIST, item: 0 }));
}

#[test]
fn a_batch_takes_values_from_several_stages_or_from_none() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "f").object;
    let items = [write(file, 1, b""), attribute(file, 2)];
    // Stage, its length, and where its piece begins.
    let pieces = [(1, 1, 0), (2, 2, 0), (2, 2, 1)];
    for (staged, item) in [(0, 0), (1, 1), (2, 1)] {
        pieces[..staged].iter().for_each(|piece| stage(&mut world, &mut peer, *piece));
        let ask = peer.ask();
        world.send(&mut peer, &[batch(ask, &items)]);
        let failed = BatchFailed { status: Status::NOT_STAGED, item };
        assert_eq!(world.got_one(&peer).reply(), Reply::BatchFailed(failed));
    }
    pieces.into_iter().for_each(|piece| stage(&mut world, &mut peer, piece));
    let ask = peer.ask();
    world.send(&mut peer, &[batch(ask, &items)]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Batched(_)));
    let get = GetXattr { ask: peer.ask(), object: file, name: Bytes8(b"user.a"), offset: 0, length: 9, version: 0 };
    world.send(&mut peer, &[get.into()]);
    let got = world.got_one(&peer);
    let Reply::Xattr(page) = got.reply() else { panic!("{got:?}") };
    assert_eq!((page.total, page.data.0), (2, &b"xx"[..]));
    let ask = peer.ask();
    world.send(&mut peer, &[batch(ask, &items)]);
    let failed = BatchFailed { status: Status::NOT_STAGED, item: 0 };
    assert_eq!(world.got_one(&peer).reply(), Reply::BatchFailed(failed), "the stages are used up");
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The stages that a mutation names MUST end with it, done or failed, unless it fails with BUSY, IN_GRACE, or LIMITED with a `retry_ms`.
#[test]
fn stages_end_with_the_mutation_that_names_them_also_when_it_fails() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "f").object;
    let expect = [Expect { object: file, version: 9 }];
    let terms = Terms { expect: List::of(&expect), ..Terms::NONE };
    // More than a session may have at once.
    for number in 1..20 {
        stage(&mut world, &mut peer, (2 * number, 1, 0));
        stage(&mut world, &mut peer, (2 * number + 1, 1, 0));
        let items = [write(file, 2 * number, b""), attribute(file, 2 * number + 1)];
        let late = Batch { ask: peer.ask(), items: List::of(&items), terms };
        world.send(&mut peer, &[late.into()]);
        let got = world.got_one(&peer);
        let (Reply::Failed(Failed { status, .. }) | Reply::BatchFailed(BatchFailed { status, .. })) = got.reply() else {
            panic!("{got:?}")
        };
        assert_eq!(status, Status::VERSION_CHANGED);
    }
    assert_eq!(world.server.stages.bytes(), 0);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The stages that a mutation names MUST end with it, done or failed, unless it fails with BUSY, IN_GRACE, or LIMITED with a `retry_ms`.
#[test]
fn stages_of_a_mutation_that_met_a_bound_are_there_when_it_comes_again() {
    let presence = PresenceLimits { ephemerals_max: 1, ephemerals_per_session: 1, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let mut peer = world.open(1);
    ephemeral(&mut world, &mut peer, "bound");
    stage(&mut world, &mut peer, (1, 1, 0));
    let made = Create { ephemeral: true, ..create(Ask::NONE, "f", Want::Nothing) };
    let items = [made.into(), attribute(ObjectId::made_by(0), 1)];
    let ask = peer.ask();
    let Limited { limit, whose, retry_ms, .. } = world.limited(&mut peer, batch(ask, &items));
    assert!((limit, whose) == (Limit::Ephemerals, Whose::Server) && retry_ms > 0);
    let ask = peer.ask();
    world.send(&mut peer, &[Message::from(Unlink { ask, dir: ROOT, name: Bytes8(b"bound"), force: false, terms: Terms::NONE })]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Changed(_)));
    let ask = peer.ask();
    world.send(&mut peer, &[batch(ask, &items)]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Batched(_)));
}

//= wire-spec.md#11-4-locks
//= type=test
//# UNLINK, RMDIR and RENAME MUST fail with EBUSY where they would take a name from an object on which another session has an
//# advisory lock, unless forced.
#[test]
fn an_item_that_would_take_a_locked_object_away_fails_the_batch_unless_forced() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    for (force, expected) in [(false, Some(BatchFailed { status: Status::EBUSY, item: 1 })), (true, None)] {
        let items = [create(Ask::NONE, "new", Want::Nothing).into(), unlink(b"job", force)];
        let ask = other.ask();
        world.send(&mut other, &[batch(ask, &items)]);
        let got = world.got_one(&other);
        match (got.reply(), expected) {
            (Reply::BatchFailed(failed), Some(expected)) => assert_eq!(failed, expected),
            (Reply::Batched(_), None) => {}
            (reply, _) => panic!("{reply:?}"),
        }
    }
    assert_eq!(world.got(&holder).len(), 2, "it is told, and asked for the lock");
}

#[test]
fn what_is_expected_of_objects_elsewhere_is_judged_when_the_turn_has_come() {
    let mut world = World::new();
    let (mut reader, mut writer) = (world.open(1), world.open(2));
    let (f, g) = (world.create(&mut writer, "f").object, world.create(&mut writer, "g").object);
    world.cache(&mut reader, f);
    let expect = [Expect { object: g, version: 1 }];
    let ask = writer.ask();
    let terms = Terms { expect: List::of(&expect), ..Terms::NONE };
    let waits = Write { ask, object: f, offset: 0, truncate: true, stage: 0, data: Bytes16(b"x"), terms };
    let echo = world.send(&mut writer, &[waits.into()]);
    world.expect(&writer, &[cistern_wire::Pending { nonce: ask.nonce, echo }.into()]);
    let change = Write { ask: writer.ask(), object: g, terms: Terms::NONE, ..waits };
    world.send(&mut writer, &[change.into()]);
    assert!(matches!(world.got_one(&writer).reply(), Reply::Changed(_)));
    comply(&mut world, &mut reader);
    let failed = Failed { status: Status::VERSION_CHANGED, retry_ms: 0 };
    assert_eq!(world.got_one(&writer).reply(), Reply::Failed(failed));
}
