//! Watches: who is told of which change when, and what that costs.

use super::ephemerals::{close, ephemeral, watch};
use super::world::{Peer, ROOT, World, create, ms};
use crate::Config;
use crate::config::PresenceLimits;
use alloc::vec::Vec;
use cistern_wire::{
    Bytes8, Bytes16, Create, Limit, Limited, Message, ObjectId, Realm, Receipt, ReceiptAnswer, Reply, Status, Terms, Unlink, Unwatch, Want,
    Watch, WatchEvent, Whose, Write,
};
use core::time::Duration;

fn write(world: &mut World, peer: &mut Peer, object: ObjectId) {
    let ask = peer.ask_only();
    let write = Write { ask, object, offset: 0, truncate: true, stage: 0, data: Bytes16(b"x"), terms: Terms::NONE };
    world.send(peer, &[write.into()]);
    assert!(matches!(world.got_one(peer).reply(), Reply::Changed(_)));
}

fn event(world: &mut World, peer: &Peer) -> WatchEvent {
    let got = world.got_one(peer);
    match got.message() {
        Message::WatchEvent(event) => event,
        other => panic!("not a WATCH_EVENT: {other:?}"),
    }
}

fn receipt(world: &mut World, peer: &mut Peer, seq: u64) {
    world.send(peer, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST tell every session that watches an object of each durable change of it, or of a later one.
//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# At most one notice of a watch MUST be on the way per session and object.
#[test]
fn changes_are_told_one_at_a_time_and_the_last_one_always() {
    let mut world = World::new();
    let (mut writer, mut watcher, mut other) = (world.open(1), world.open(2), world.open(3));
    let file = world.create(&mut writer, "f").object;
    assert_eq!(watch(&mut world, &mut watcher, file).version, 1);
    assert_eq!(watch(&mut world, &mut other, file).version, 1);
    write(&mut world, &mut writer, file);
    let first = event(&mut world, &watcher);
    assert_eq!(first, WatchEvent { seq: 1, object: file, version: 2, gone: false });
    assert_eq!(event(&mut world, &other).version, 2);
    for _ in 0..3 {
        write(&mut world, &mut writer, file);
    }
    world.expect(&watcher, &[]);
    receipt(&mut world, &mut watcher, first.seq);
    let second = event(&mut world, &watcher);
    assert_eq!(second, WatchEvent { seq: 2, object: file, version: 5, gone: false });
    receipt(&mut world, &mut watcher, second.seq);
    world.expect(&watcher, &[]);
    let sent = world.transmitted();
    receipt(&mut world, &mut other, 1);
    receipt(&mut world, &mut other, 2);
    world.got(&other);
    world.pass(Duration::from_secs(60));
    assert_eq!((world.transmitted(), world.server.listening()), (sent + 1, 0), "a watch costs nothing while nothing changes");
}

#[test]
fn directory_is_watched_for_what_comes_and_goes_in_it() {
    let mut world = World::new();
    let (mut writer, mut watcher) = (world.open(1), world.open(2));
    watch(&mut world, &mut watcher, ROOT);
    world.create(&mut writer, "f");
    let came = event(&mut world, &watcher);
    assert_eq!((came.object, came.version, came.gone), (ROOT, 2, false));
    receipt(&mut world, &mut watcher, came.seq);
    let unlink = Unlink { ask: writer.ask_only(), dir: ROOT, name: Bytes8(b"f"), force: false, terms: Terms::NONE };
    world.send(&mut writer, &[unlink.into()]);
    world.got(&writer);
    let went = event(&mut world, &watcher);
    assert_eq!((went.object, went.version), (ROOT, 3));
    receipt(&mut world, &mut watcher, went.seq);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A message that shows an effect of a transaction MUST wait until the transaction is durable.
#[test]
fn change_is_told_when_it_is_durable_and_not_before() {
    let mut world = World::new();
    let (mut writer, mut watcher) = (world.open(1), world.open(2));
    watch(&mut world, &mut watcher, ROOT);
    world.stalled = true;
    let ask = writer.ask_only();
    world.send(&mut writer, &[create(ask, "f", Want::Nothing).into()]);
    world.pass(ms(100));
    world.expect(&watcher, &[]);
    world.stalled = false;
    world.turn();
    let told = event(&mut world, &watcher);
    assert_eq!(told.version, 2);
    receipt(&mut world, &mut watcher, told.seq);
    world.got(&writer);
}

#[test]
fn end_of_an_object_ends_the_watch_after_it_was_told() {
    let mut world = World::new();
    let (mut writer, mut watcher) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "f").object;
    watch(&mut world, &mut watcher, file);
    write(&mut world, &mut writer, file);
    let changed = event(&mut world, &watcher);
    let unlink = Unlink { ask: writer.ask_only(), dir: ROOT, name: Bytes8(b"f"), force: false, terms: Terms::NONE };
    world.send(&mut writer, &[unlink.into()]);
    world.got(&writer);
    receipt(&mut world, &mut watcher, changed.seq);
    let gone = event(&mut world, &watcher);
    assert_eq!(gone, WatchEvent { seq: 2, object: file, version: 3, gone: true });
    receipt(&mut world, &mut watcher, gone.seq);
    assert_eq!(world.server.status(world.now).watches, 0);
    let ask = watcher.ask_only();
    assert_eq!(world.failed(&mut watcher, Watch { ask, object: file }.into()).0, Status::ESTALE);
}

#[test]
fn notice_is_sent_again_until_it_is_receipted_or_the_session_fails() {
    let mut world = World::new();
    let (mut writer, mut watcher) = (world.open(1), world.open(2));
    watch(&mut world, &mut watcher, ROOT);
    world.create(&mut writer, "f");
    world.pass(Config::default().failure_found_within());
    let sent: Vec<_> = world.got(&watcher);
    assert!(sent.len() >= 3 && sent.iter().all(|got| got.message() == sent[0].message()));
    assert_eq!((world.server.stats().failures, world.server.lease_timers()), (1, 1));
    world.pass(Config::default().wait());
    assert_eq!(world.server.status(world.now).watches, 0, "the watch has ended with its session");
}

#[test]
fn watch_that_was_ended_is_told_nothing_and_can_be_made_again() {
    let mut world = World::new();
    let (mut writer, mut watcher) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "f").object;
    watch(&mut world, &mut watcher, file);
    write(&mut world, &mut writer, file);
    let first = event(&mut world, &watcher);
    let ask = watcher.ask_only();
    world.send(&mut watcher, &[Unwatch { ask, object: file }.into()]);
    assert!(matches!(world.got_one(&watcher).reply(), Reply::Done(_)));
    write(&mut world, &mut writer, file);
    // Begun anew while the notice of before is on its way: that one is waited for.
    assert_eq!(watch(&mut world, &mut watcher, file).version, 3);
    write(&mut world, &mut writer, file);
    world.expect(&watcher, &[]);
    receipt(&mut world, &mut watcher, first.seq);
    let second = event(&mut world, &watcher);
    assert_eq!(second.version, 4);
    let ask = watcher.ask_only();
    world.send(&mut watcher, &[Unwatch { ask, object: file }.into()]);
    world.got(&watcher);
    receipt(&mut world, &mut watcher, second.seq);
    write(&mut world, &mut writer, file);
    world.expect(&watcher, &[]);
    assert_eq!(world.server.status(world.now).watches, 0);
}

#[test]
fn watches_have_bounds_and_end_with_their_session() {
    let presence = PresenceLimits { watches_max: 3, watches_per_session: 2, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let over = |whose, used, bound, retry_ms| Limited { limit: Limit::Watches, whose, realm: Realm(0), used, bound, retry_ms };
    let (mut a, mut b) = (world.open(1), world.open(2));
    let files = ["f", "g"].map(|name| world.create(&mut a, name).object);
    for file in files {
        watch(&mut world, &mut a, file);
    }
    watch(&mut world, &mut a, files[0]);
    let ask = a.ask_only();
    assert_eq!(world.limited(&mut a, Watch { ask, object: ROOT }), over(Whose::Session, 2, 2, 0));
    watch(&mut world, &mut b, files[0]);
    let ask = b.ask_only();
    assert_eq!(world.limited(&mut b, Watch { ask, object: files[1] }), over(Whose::Server, 3, 3, 100));
    close(&mut world, &mut a);
    watch(&mut world, &mut b, files[1]);
    assert_eq!(world.server.status(world.now).watches, 2);
}

#[test]
fn watch_can_be_made_in_grace_and_tells_what_grace_ends_with() {
    let mut world = World::new();
    let (mut owner, mut watcher) = (world.open(1), world.open(2));
    let object = ephemeral(&mut world, &mut owner, "m").object;
    world.crash();
    world.open_again(&mut watcher, &[]);
    watch(&mut world, &mut watcher, object);
    let ask = watcher.ask_only();
    let more = Create { ephemeral: true, ..create(ask, "n", Want::Nothing) };
    assert_eq!(world.failed(&mut watcher, more.into()).0, Status::IN_GRACE);
    world.pass(Config::default().wait());
    let gone = event(&mut world, &watcher);
    assert!(gone.object == object && gone.gone);
    receipt(&mut world, &mut watcher, gone.seq);
}

#[test]
fn who_may_not_read_any_more_is_not_told_that_the_object_went_unless_it_holds_its_lock() {
    let mut world = World::new();
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let who = world.principal("web", &[(Realm::TREE, "rl")]);
    let (mut peer, mut holder) = (world.open_as(2, who), world.open_as(3, who));
    watch(&mut world, &mut peer, file);
    watch(&mut world, &mut holder, file);
    world.lock(&mut holder, file);
    // One is on its way to both when the object goes.
    write(&mut world, &mut all, file);
    let seqs = [&peer, &holder].map(|peer| event(&mut world, peer).seq);
    world.grant(who, Realm::TREE, "");
    let ask = all.ask_only();
    world.send(&mut all, &[Unlink { ask, dir: ROOT, name: Bytes8(b"f"), force: true, terms: Terms::NONE }.into()]);
    drop((world.got(&all), world.got(&holder)));
    receipt(&mut world, &mut peer, seqs[0]);
    world.expect(&peer, &[]);
    receipt(&mut world, &mut holder, seqs[1]);
    assert!(event(&mut world, &holder).gone);
}
