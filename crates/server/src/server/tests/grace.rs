//! Grace after a restart: how long it lasts, what is done in it, and how it ends.

use super::restart::{cached, held};
use super::world::{Peer, ROOT, World, cache_lock, create, lock, ms, opened};
use crate::Config;
use crate::store::Key;
use alloc::vec::Vec;
use cistern_wire::{
    Alive, Bytes8, Bytes16, CacheGrant, Claim, Create, Done, EndReason, EndSession, Generation, GetAttr, Held, Keep, KeepAlive, List,
    LockWait, Lookup, Message, Mode, ObjectId, ReclaimComplete, Release, ReleaseItem, Reply, SessionFate, SetAttr, SetMask, Stage, Status,
    Terms, Unlink, Want,
};
use core::time::Duration;

fn wait() -> Duration {
    Config::default().wait()
}

/// A world in which agent 1 holds the advisory lock of a file.
fn with_holder() -> (World, Peer, ObjectId, Generation) {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let generation = world.lock(&mut peer, file);
    (world, peer, file, generation)
}

/// Asks for a lock; whether it is granted.
fn grants(world: &mut World, peer: &mut Peer, object: ObjectId) -> Result<(), (Status, u32)> {
    let ask = peer.ask_only();
    world.send(peer, &[lock(ask, object, LockWait::Try).into()]);
    match world.got_one(peer).reply() {
        Reply::Granted(_) => Ok(()),
        Reply::Failed(failed) => Err((failed.status, failed.retry_ms)),
        other => panic!("{other:?}"),
    }
}

fn locked_out(result: Result<(), (Status, u32)>) -> bool {
    matches!(result, Err((Status::IN_GRACE, 1..)))
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no earlier
//# process could send.
//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST have stored the largest T that it promises before it promises it.
//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST wait for each session by the largest τ that it gave it and has not got back.
#[test]
fn grace_lasts_for_the_longest_lease_ever_promised_to_who_is_recorded() {
    let long = Config::for_lease(Duration::from_secs(10));
    let mut world = World::with(long.clone());
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.crash_into(Config::default());
    let mut other = world.open(2);
    world.pass(long.wait() - ms(1));
    assert!(locked_out(grants(&mut world, &mut other, file)));
    world.pass(ms(1));
    assert_eq!(grants(&mut world, &mut other, file), Ok(()));
}

#[test]
fn without_recorded_sessions_there_is_no_grace() {
    let (mut world, mut peer, file, _) = with_holder();
    let serial = peer.serial();
    world.send(&mut peer, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.got(&peer);
    world.crash();
    assert!(!world.in_grace());
    let mut other = world.open(2);
    assert_eq!(grants(&mut world, &mut other, file), Ok(()));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Grace MAY end early once every session recorded as open has completed its reclaim or ended.
#[test]
fn grace_ends_early_when_all_are_back_and_not_before() {
    let mut world = World::with(Config { surrender: true, ..Config::default() });
    let (mut a, mut b) = (world.open(1), world.open(2));
    let file = world.create(&mut a, "job").object;
    let generation = world.lock(&mut a, file);
    world.crash();
    let from = world.come_back(&mut a);
    assert_eq!(world.reclaim(&mut a, from, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut a, from);
    let told = world.server.status(world.now).grace.unwrap();
    assert_eq!((told.awaited, told.reclaiming), (1, 0));
    let former = b.session;
    let told = world.open_again(&mut b, &[(former, Claim::Surrendered)]);
    assert_eq!(told[0].fate, SessionFate::Ended);
    assert!(!world.in_grace());
    let other = world.create(&mut b, "other").object;
    assert_eq!(grants(&mut world, &mut b, other), Ok(()));
    let ask = b.ask_only();
    world.send(&mut b, &[lock(ask, file, LockWait::Try).into()]);
    assert!(matches!(world.got_one(&b).reply(), Reply::LockRefused(_)), "what was reclaimed is held");
    world.got(&a);
}

#[test]
fn agent_that_has_started_anew_is_waited_for_and_loses_its_locks() {
    let (mut world, mut peer, file, generation) = with_holder();
    world.crash();
    let from = peer.session;
    peer.incarnation = 2;
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::TimingOut);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::NOT_HELD);
    world.pass(wait() - ms(1));
    assert!(locked_out(grants(&mut world, &mut peer, file)));
    world.pass(ms(1));
    assert_eq!(grants(&mut world, &mut peer, file), Ok(()));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Grace SHOULD be extended, up to a bound, while reclaims go on.
#[test]
fn grace_is_extended_while_reclaims_go_on_up_to_five_times() {
    let (mut world, mut peer, file, generation) = with_holder();
    let started = world.now;
    world.crash();
    let from = world.come_back(&mut peer);
    while world.in_grace() {
        assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::OK);
        world.pass(ms(500));
    }
    let lasted = world.now.since(started);
    assert!(lasted >= wait() * 5 && lasted < wait() * 5 + ms(500), "{lasted:?}");
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::NOT_HELD);
}

#[test]
fn grace_is_not_extended_for_who_claims_and_reclaims_nothing() {
    let (mut world, mut peer, ..) = with_holder();
    let started = world.now;
    world.crash();
    world.pass(wait() / 2);
    world.come_back(&mut peer);
    while world.in_grace() {
        world.pass(ms(10));
    }
    let lasted = world.now.since(started);
    assert!(lasted <= wait() / 2 + Config::default().lease + ms(10), "{lasted:?}");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# In grace the server MUST do nothing but handshakes, reclaims, renewals, answers about outcomes, reads that grant nothing, and
//# mutations of objects that the requester has reclaimed exclusively.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# Every other request in grace MUST be answered IN_GRACE, with a hint of the time.
#[test]
fn in_grace_a_stranger_may_read_and_renew_and_nothing_else() {
    let (mut world, _, file, _) = with_holder();
    world.crash();
    let mut peer = world.open(2);
    let serial = peer.serial();
    let echo = world.send(&mut peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    world.expect(&peer, &[Alive { serial, echo }.into()]);
    let get = GetAttr { ask: peer.ask_only(), object: file, want: Want::Exclusive };
    world.send(&mut peer, &[get.into()]);
    let got = world.got_one(&peer);
    assert!(matches!(got.reply(), Reply::Stated(stated) if stated.grant == CacheGrant::NONE), "{got:?}");
    let names = [Bytes8(b"job")];
    let lookup = Lookup { ask: peer.ask_only(), start: ROOT, names: List::of(&names), want: Want::Shared };
    world.send(&mut peer, &[lookup.into()]);
    let got = world.got_one(&peer);
    assert!(matches!(got.reply(), Reply::Walked(walked) if walked.steps.iter().all(|step| step.grant == CacheGrant::NONE)), "{got:?}");
    let piece = Stage { ask: peer.ask_only(), stage: 1, total: 4, offset: 0, data: Bytes16(b"data") };
    world.send(&mut peer, &[piece.into()]);
    assert_eq!(world.got_one(&peer).reply(), Reply::Done(Done {}));

    let refused: [Message<'_>; 3] = [
        create(peer.ask_only(), "new", Want::Nothing).into(),
        lock(peer.ask_only(), file, LockWait::Try).into(),
        lock(peer.ask_only(), file, LockWait::Queue).into(),
    ];
    for request in refused {
        let refusal = world.failed(&mut peer, request);
        assert_eq!(refusal, (Status::IN_GRACE, 500), "τ/4 while there is more time than that");
    }
    world.pass(wait() - ms(100));
    let ask = peer.ask_only();
    let refusal = world.failed(&mut peer, create(ask, "new", Want::Nothing).into());
    assert_eq!(refusal, (Status::IN_GRACE, 100), "what is left of grace");
    assert_eq!(world.server.status(world.now).locks, 0);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# In grace the server MUST do nothing but handshakes, reclaims, renewals, answers about outcomes, reads that grant nothing, and
//# mutations of objects that the requester has reclaimed exclusively.
#[test]
fn what_was_reclaimed_exclusively_may_be_changed_in_grace_but_nothing_may_be_taken_away() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    let get = GetAttr { ask: peer.ask_only(), object: ROOT, want: Want::Exclusive };
    world.send(&mut peer, &[get.into()]);
    let got = world.got_one(&peer);
    let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
    let generation = stated.grant.generation;
    world.crash();
    let from = world.come_back(&mut peer);
    assert_eq!(world.reclaim(&mut peer, from, &[cached(ROOT, Mode::Exclusive, generation)])[0].status, Status::OK);

    let suspended = [Held { object: ROOT, generation }];
    let terms = Terms { held: List::of(&suspended), want: Want::Exclusive, ..Terms::NONE };
    let new = Create { terms, ..create(peer.ask_only(), "new", Want::Nothing) };
    world.send(&mut peer, &[new.into()]);
    let got = world.got_one(&peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    assert!(changed.effects.iter().all(|effect| effect.grant == CacheGrant::NONE), "nothing new is granted");
    let unlink = Unlink { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"job"), force: false, terms };
    assert_eq!(world.failed(&mut peer, unlink.into()).0, Status::IN_GRACE, "the file is not reclaimed");
    let mask = SetMask { bits: SetMask::MODE };
    let ask = peer.ask_only();
    let set = SetAttr { ask, object: file, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms };
    assert_eq!(world.failed(&mut peer, set.into()).0, Status::IN_GRACE);
    let mut other = world.open(2);
    let ask = other.ask_only();
    assert_eq!(world.failed(&mut other, create(ask, "newer", Want::Nothing).into()).0, Status::IN_GRACE);
    // What was reclaimed can be given back; then it is nobody's.
    let serial = peer.serial();
    let item = ReleaseItem { lock: cache_lock(ROOT), generation, keep: Keep::Nothing };
    world.send(&mut peer, &[Release { serial, items: List::of(&[item]) }.into()]);
    assert!(matches!(world.got_one(&peer).message(), Message::Released(_)));
    let ask = peer.ask_only();
    assert_eq!(world.failed(&mut peer, create(ask, "newest", Want::Nothing).into()).0, Status::IN_GRACE);
}

#[test]
fn locked_file_that_its_holder_has_not_reclaimed_yet_is_not_taken_away() {
    let mut world = World::new();
    let (mut remover, mut holder) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    let mut cache = |world: &mut World, object| {
        let get = GetAttr { ask: remover.ask_only(), object, want: Want::Exclusive };
        world.send(&mut remover, &[get.into()]);
        let got = world.got_one(&remover);
        let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
        Held { object, generation: stated.grant.generation }
    };
    let suspended = [cache(&mut world, ROOT), cache(&mut world, file)];
    world.crash();
    let from = world.come_back(&mut remover);
    let items = suspended.map(|held| cached(held.object, Mode::Exclusive, held.generation));
    assert!(world.reclaim(&mut remover, from, &items).iter().all(|item| item.status == Status::OK));
    let terms = Terms { held: List::of(&suspended), ..Terms::NONE };
    let unlink = Unlink { ask: remover.ask_only(), dir: ROOT, name: Bytes8(b"job"), force: false, terms };
    assert_eq!(world.failed(&mut remover, unlink.into()).0, Status::IN_GRACE);
    let from = world.come_back(&mut holder);
    assert_eq!(world.reclaim(&mut holder, from, &[held(file, generation)])[0].status, Status::OK);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The first ordinary grant or mutation MUST come after the ends of all sessions that did not come back, but for long ones whose T has not
//# passed, are durable.
#[test]
fn nothing_is_granted_before_the_end_of_grace_is_durable() {
    let (mut world, peer, file, generation) = with_holder();
    world.crash();
    let mut other = world.open(2);
    world.stalled = true;
    world.pass(wait() + ms(500));
    for _ in 0..3 {
        assert!(locked_out(grants(&mut world, &mut other, file)));
        world.pass(ms(100));
    }
    // A crash now: everybody is eligible again, and has all the time there is.
    world.crash();
    let mut back = peer;
    let from = world.come_back(&mut back);
    assert_eq!(world.reclaim(&mut back, from, &[held(file, generation)])[0].status, Status::OK);
    world.pass(wait() - ms(1));
    assert!(world.in_grace());
}

/// The first edge condition of NFSv4: a holder that was cut off over a whole grace must not come back after the next restart.
//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# The first ordinary grant or mutation MUST come after the ends of all sessions that did not come back, but for long ones whose T has not
//# passed, are durable.
#[test]
fn who_missed_a_grace_cannot_reclaim_in_the_next() {
    let (mut world, mut peer, file, generation) = with_holder();
    world.crash();
    let mut other = world.open(2);
    world.pass(wait());
    assert_eq!(grants(&mut world, &mut other, file), Ok(()));
    let serial = other.serial();
    world.send(&mut other, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.got(&other);
    world.open(3);
    world.crash();
    assert!(world.in_grace(), "for the third");
    let from = peer.session;
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::Ended);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::NOT_HELD);
}

/// The second edge condition of NFSv4: a holder that was back in one grace, then cut off while its lock went to others, must not come
/// back after the next restart.
#[test]
fn who_was_stolen_from_after_it_reclaimed_cannot_reclaim_again() {
    let (mut world, mut peer, file, generation) = with_holder();
    world.crash();
    let from = world.come_back(&mut peer);
    world.reclaim(&mut peer, from, &[held(file, generation)]);
    world.complete(&mut peer, from);
    assert!(!world.in_grace());
    let mut other = world.open(2);
    world.attend(&other);
    let ask = other.ask_only();
    world.send(&mut other, &[lock(ask, file, LockWait::Queue).into()]);
    let mut stolen = false;
    for _ in 0..100 {
        world.pass(ms(100));
        stolen |= world.got(&other).iter().any(|got| matches!(got.message(), Message::Grant(_)));
        if stolen {
            break;
        }
    }
    assert!(stolen);
    world.got(&peer);
    world.crash();
    let now = peer.session;
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming), (now, Claim::Reclaiming)]);
    assert!(told.iter().all(|told| told.fate == SessionFate::Ended), "{told:?}");
}

#[test]
fn second_restart_within_the_lease_leaves_everybody_eligible() {
    let (mut world, mut peer, file, generation) = with_holder();
    let mut second = world.open(2);
    let other = world.create(&mut second, "other").object;
    let others = world.lock(&mut second, other);
    let first = peer.session;
    world.crash();
    // The lock goes to a session that is in the store beside the former one.
    let from = world.come_back(&mut peer);
    world.reclaim(&mut peer, from, &[held(file, generation)]);
    world.crash();
    let now = peer.session;
    let told = world.open_again(&mut peer, &[(now, Claim::Reclaiming), (first, Claim::Reclaiming)]);
    assert!(told.iter().all(|told| told.fate == SessionFate::Reclaimable), "{told:?}");
    assert_eq!(world.reclaim(&mut peer, now, &[held(file, generation)])[0].status, Status::OK);
    world.complete(&mut peer, now);
    world.complete(&mut peer, first);
    assert!(world.in_grace(), "the second agent is awaited");
    let from = world.come_back(&mut second);
    assert_eq!(world.reclaim(&mut second, from, &[held(other, others)])[0].status, Status::OK);
    world.complete(&mut second, from);
    assert!(!world.in_grace());
    assert_eq!(world.server.status(world.now).locks, 2);
}

#[test]
fn completion_that_was_not_durable_is_as_if_it_had_not_been_said() {
    let (mut world, mut peer, file, generation) = with_holder();
    world.crash();
    let from = world.come_back(&mut peer);
    world.stalled = true;
    let ask = peer.ask_only();
    world.send(&mut peer, &[ReclaimComplete { ask, from }.into()]);
    world.expect(&peer, &[]);
    assert!(world.in_grace());
    world.crash();
    let now = peer.session;
    let told = world.open_again(&mut peer, &[(now, Claim::Reclaiming), (from, Claim::Reclaiming)]);
    assert!(told.iter().all(|told| told.fate == SessionFate::Reclaimable), "{told:?}");
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::OK);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# An ending that no receipt can undo MUST be durable at D.
#[test]
fn evicted_agent_stays_evicted_over_a_restart_and_is_waited_for() {
    let (mut world, mut peer, file, generation) = with_holder();
    assert_eq!(world.server.evict(world.now, peer.agent), [peer.session]);
    world.turn();
    world.crash();
    let from = peer.session;
    let told = world.open_again(&mut peer, &[(from, Claim::Reclaiming)]);
    assert_eq!(told[0].fate, SessionFate::TimingOut);
    assert_eq!(world.reclaim(&mut peer, from, &[held(file, generation)])[0].status, Status::NOT_HELD);
    assert_eq!(world.completes(&mut peer, from), Err(Status::NOT_HELD));
    world.pass(wait() - ms(1));
    assert!(locked_out(grants(&mut world, &mut peer, file)));
    world.pass(ms(1));
    assert_eq!(grants(&mut world, &mut peer, file), Ok(()));
}

#[test]
fn handshake_while_grace_ends_does_not_bring_a_session_back() {
    let (mut world, peer, ..) = with_holder();
    let former = peer.session;
    world.crash();
    let mut late = Peer { incarnation: 2, ..peer };
    world.stalled = true;
    world.pass(wait());
    assert_eq!(world.server.status(world.now).grace.unwrap().left, Duration::ZERO);
    world.offer(&mut late);
    world.confirm(&mut late, &[(former, Claim::Reclaiming)]);
    world.stalled = false;
    world.turn();
    let got = world.got_one(&late);
    assert_eq!(opened(&got).former.iter().map(|told| told.fate).collect::<Vec<_>>(), [SessionFate::Ended]);
    assert!(!world.disk.values.contains_key(&Key::Session(former)));
    world.crash();
    assert_eq!(world.server.status(world.now).grace.unwrap().awaited, 1, "the new session");
}
