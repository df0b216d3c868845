//! What an advisory lock protects: guarded mutations, and names that others take away or move.

use super::locks::{give_back, waiting};
use super::world::{Got, Peer, ROOT, World, advisory};
use alloc::vec::Vec;
use cistern_wire::{
    Bytes8, Create, Failed, Generation, Kind, Message, ObjectId, Receipt, ReceiptAnswer, Rename, RenameRule, Reply, Status, Terms, Unlink,
    WaitOver, Want,
};

//= wire-spec.md#11-4-locks
//= type=test
//# A mutation whose guard is not a token of the session's present hold MUST fail with STALE_GUARD.
#[test]
fn guarded_mutation_needs_the_lock_under_its_current_token() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    let guarded = |ask, name: &'static str, guard_generation| {
        let terms = Terms { guard_object: file, guard_generation, ..Terms::NONE };
        Create { terms, ..super::world::create(ask, name, Want::Nothing) }
    };
    let ask = peer.ask();
    world.send(&mut peer, &[guarded(ask, "one", generation).into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Changed(_)));
    let stale = Reply::Failed(Failed { status: Status::STALE_GUARD, retry_ms: 0 });
    let ask = other.ask();
    world.send(&mut other, &[guarded(ask, "two", generation).into()]);
    assert_eq!(world.got_one(&other).reply(), stale, "another session's token");
    give_back(&mut world, &mut peer, file, generation);
    let ask = peer.ask();
    world.send(&mut peer, &[guarded(ask, "two", generation).into()]);
    assert_eq!(world.got_one(&peer).reply(), stale, "a token of a grant that was given back");
}

//= wire-spec.md#11-4-locks
//= type=test
//# UNLINK, RMDIR and RENAME MUST fail with EBUSY where they would take a name from an object on which another session has an
//# advisory lock, unless forced.
#[test]
fn locked_object_is_unlinked_by_others_only_by_force() {
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let unlink = |ask, force| Unlink { ask, dir: ROOT, name: Bytes8(b"job"), force, terms: Terms::NONE };
    let ask = other.ask();
    world.send(&mut other, &[unlink(ask, false).into()]);
    assert_eq!(world.got_one(&other).reply(), Reply::Failed(Failed { status: Status::EBUSY, retry_ms: 0 }));
    let ask = other.ask();
    world.send(&mut other, &[unlink(ask, true).into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::Changed(_)));
    assert!(!world.got(&holder).is_empty(), "it is told");
}

/// A holder, a waiter, and one who has removed their locked file by force, which is not durable yet.
fn removed_by_force(world: &mut World) -> (Peer, Peer, Peer, ObjectId, Generation) {
    let (mut holder, waiter, file, generation) = waiting(world);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    let mut other = world.open(3);
    world.stalled = true;
    let ask = other.ask();
    let unlink = Unlink { ask, dir: ROOT, name: Bytes8(b"job"), force: true, terms: Terms::NONE };
    world.send(&mut other, &[unlink.into()]);
    (holder, waiter, other, file, generation)
}

//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST end each wait for the advisory lock of a removed object by WAIT_OVER with ESTALE.
//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST demand the advisory locks of a removed object from all their holders.
//= wire-spec.md#11-4-locks
//= type=test
//# The server MUST tell each session with an advisory lock on an object that another session has removed it.
#[test]
fn holder_and_waiters_of_an_object_that_is_removed_by_force_are_told_when_that_is_durable() {
    let mut world = World::new();
    let (mut holder, mut waiter, other, file, generation) = removed_by_force(&mut world);
    world.expect(&waiter, &[]);
    world.expect(&holder, &[]);
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&other).reply(), Reply::Changed(_)));
    world.expect(&waiter, &[WaitOver { seq: 1, nonce: 1, lock: advisory(file), status: Status::ESTALE }.into()]);
    let got = world.got_one(&holder);
    let Message::WatchEvent(told) = got.message() else { panic!("{got:?}") };
    assert!((told.object, told.gone) == (file, true), "the demand that the waiter has caused stands");
    give_back(&mut world, &mut holder, file, generation);
    assert_eq!(world.server.status(world.now).locks, 0);
    world.send(&mut waiter, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    let seq = told.seq;
    world.send(&mut holder, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
}

/// The removal is not durable yet when the holder gives the lock back, and the next one gets it: that one is told.
#[test]
fn who_is_granted_the_lock_of_an_object_that_is_being_removed_is_told() {
    let mut world = World::new();
    let (mut holder, mut waiter, other, file, generation) = removed_by_force(&mut world);
    give_back(&mut world, &mut holder, file, generation);
    let got = world.got_one(&waiter);
    let Message::Grant(grant) = got.message() else { panic!("{got:?}") };
    world.send(&mut waiter, &[Receipt { seq: grant.seq, answer: ReceiptAnswer::Received }.into()]);
    world.stalled = false;
    world.turn();
    world.got_one(&other);
    let got = world.got(&waiter);
    let gone = |got: &Got| matches!(got.message(), Message::WatchEvent(told) if (told.object, told.gone) == (file, true));
    assert!(got.iter().any(gone), "{got:?}");
    world.expect(&holder, &[]);
    give_back(&mut world, &mut waiter, file, grant.generation);
}

#[test]
fn whoever_removes_the_object_that_it_has_locked_itself_is_only_asked_to_give_the_lock_back() {
    let mut world = World::new();
    let mut holder = world.open(1);
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    let ask = holder.ask();
    let unlink = Unlink { ask, dir: ROOT, name: Bytes8(b"job"), force: false, terms: Terms::NONE };
    world.send(&mut holder, &[unlink.into()]);
    let kinds: Vec<Kind> = world.got(&holder).iter().map(|got| got.message().kind()).collect();
    assert_eq!(kinds, [Kind::Demand, Kind::Ack]);
    give_back(&mut world, &mut holder, file, generation);
}

//= wire-spec.md#11-4-locks
//= type=test
//# UNLINK, RMDIR and RENAME MUST fail with EBUSY where they would take a name from an object on which another session has an
//# advisory lock, unless forced.
#[test]
fn locked_object_is_moved_and_exchanged_by_others_only_by_force() {
    use {Bytes8, Rename, RenameRule};
    let mut world = World::new();
    let (mut holder, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.create(&mut holder, "other");
    world.lock(&mut holder, file);
    let rename = |ask, from: &'static [u8], to: &'static [u8], rule, force| {
        let (from_dir, to_dir, terms) = (ROOT, ROOT, Terms::NONE);
        Message::from(Rename { ask, from_dir, from_name: Bytes8(from), to_dir, to_name: Bytes8(to), rule, force, terms })
    };
    let cases: [(&[u8], &[u8], RenameRule); 4] = [
        (b"job", b"new", RenameRule::NoReplace),
        (b"job", b"other", RenameRule::Replace),
        (b"job", b"other", RenameRule::Exchange),
        (b"other", b"job", RenameRule::Exchange),
    ];
    for (from, to, rule) in cases {
        let ask = other.ask();
        assert_eq!(world.failed(&mut other, rename(ask, from, to, rule, false)).0, Status::EBUSY, "{rule:?}");
    }
    // What is moved beside it is free, and so is its holder.
    let allowed: [(bool, &[u8], &[u8], bool); 3] =
        [(false, b"other", b"else", false), (true, b"job", b"moved", false), (false, b"moved", b"job", true)];
    for (by_holder, from, to, force) in allowed {
        let peer = if by_holder { &mut holder } else { &mut other };
        let ask = peer.ask();
        world.send(peer, &[rename(ask, from, to, RenameRule::NoReplace, force)]);
        assert!(matches!(world.got_one(peer).reply(), Reply::Changed(_)), "{from:?}");
    }
}
