//! Ephemeral files: when they go, when they stay, and who is probed for them.

use super::left_files::demanded;
use super::world::{Peer, ROOT, World, create, ms};
use crate::Config;
use crate::config::PresenceLimits;
use crate::store::Key;
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Attr, Batch, Bytes8, CacheGrant, Claim, Create, EndReason, EndSession, GetAttr, Handle, Item, Kind, Limit, Limited, Link, List,
    Lookup, Message, ObjectId, ReadDir, Realm, Receipt, ReceiptAnswer, Reply, Status, Terms, Unlink, Want, Watch, Whose,
};
use core::time::Duration;

pub(super) fn ephemeral(world: &mut World, peer: &mut Peer, name: &str) -> Attr {
    let ask = peer.ask_only();
    world.send(peer, &[Create { ephemeral: true, ..create(ask, name, Want::Nothing) }.into()]);
    let got = world.got_one(peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr
}

pub(super) fn watch(world: &mut World, peer: &mut Peer, object: ObjectId) -> Attr {
    let ask = peer.ask_only();
    world.send(peer, &[Watch { ask, object }.into()]);
    let got = world.got_one(peer);
    let Reply::Watched(watched) = got.reply() else { panic!("{got:?}") };
    watched.attr
}

fn unwatch(world: &mut World, peer: &mut Peer, object: ObjectId) {
    let ask = peer.ask_only();
    world.send(peer, &[cistern_wire::Unwatch { ask, object }.into()]);
    assert!(matches!(world.got_one(peer).reply(), Reply::Done(_)));
}

pub(super) fn exists(world: &mut World, peer: &mut Peer, name: &str) -> bool {
    let names = [Bytes8(name.as_bytes())];
    let lookup = Lookup { ask: peer.ask_only(), start: ROOT, names: List::of(&names), want: Want::Nothing };
    world.send(peer, &[lookup.into()]);
    let got = world.got_one(peer);
    match got.reply() {
        Reply::Walked(walked) => walked.steps.len() == 2,
        other => panic!("{other:?}"),
    }
}

pub(super) fn close(world: &mut World, peer: &mut Peer) {
    let serial = peer.serial();
    world.send(peer, &[EndSession { serial, reason: EndReason::Close }.into()]);
    world.got(peer);
}

pub(super) fn records(world: &World) -> Vec<(Handle, ObjectId)> {
    let of = |key: &Key| if let Key::Ephemeral(maker, object) = key { Some((*maker, *object)) } else { None };
    world.disk.values.keys().filter_map(of).collect()
}

pub(super) fn evict(world: &mut World, peer: &Peer) {
    assert!(!world.server.evict(world.now, peer.agent).is_empty());
}

#[test]
fn ephemeral_file_says_whose_it_is_and_ordinary_ones_are_nobodys() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let (mine, plain) = (ephemeral(&mut world, &mut peer, "m"), world.create(&mut peer, "plain"));
    assert_eq!((mine.owner, plain.owner), (peer.handle, Handle(0)));
    assert_eq!(records(&world), [(peer.handle, mine.object)]);
    assert_eq!(world.server.status(world.now).ephemerals, 1);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST remove the ephemeral files of a session that has ended, also when it was restarted in between.
#[test]
fn ephemeral_files_go_when_their_session_is_closed_and_others_stay() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "a");
    ephemeral(&mut world, &mut owner, "b");
    ephemeral(&mut world, &mut other, "c");
    world.create(&mut owner, "plain");
    close(&mut world, &mut owner);
    let left = ["a", "b", "c", "plain"].map(|name| exists(&mut world, &mut other, name));
    assert_eq!(left, [false, false, true, true]);
    assert_eq!(records(&world).len(), 1);
    let root = world.server.status(world.now);
    assert_eq!((root.ephemerals, root.parked), (1, 0));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST NOT remove an ephemeral file on account of its owner by a transaction before the one that ends that session.
#[test]
fn ephemeral_file_of_a_failed_session_stays_until_its_end_is_durable() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    evict(&mut world, &owner);
    world.pass(Config::default().wait() - ms(1));
    assert!(exists(&mut world, &mut other, "m"), "T is not over");
    world.stalled = true;
    world.pass(ms(2));
    let names = [Bytes8(b"m")];
    let lookup = Lookup { ask: other.ask_only(), start: ROOT, names: List::of(&names), want: Want::Nothing };
    world.send(&mut other, &[lookup.into()]);
    assert_eq!((world.got(&other).len(), records(&world).len()), (0, 1), "nobody is shown what is not durable");
    world.stalled = false;
    world.turn();
    let got = world.got_one(&other);
    assert!(matches!(got.reply(), Reply::Walked(walked) if walked.steps.len() == 1), "the end is durable");
    assert!(!exists(&mut world, &mut other, "m"));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST tell the session to which an ephemeral file is bound that another session has removed it.
#[test]
fn removed_by_anybody_it_is_gone_for_good_and_its_record_with_it() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    let file = ephemeral(&mut world, &mut owner, "m");
    let unlink = Unlink { ask: other.ask_only(), dir: ROOT, name: Bytes8(b"m"), force: false, terms: Terms::NONE };
    world.send(&mut other, &[unlink.into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::Changed(_)));
    assert_eq!(records(&world), []);
    let told = world.got_one(&owner);
    let Message::WatchEvent(event) = told.message() else { panic!("{told:?}") };
    assert!(event.object == file.object && event.gone, "its owner is told, which need not renew its lease for it any more");
    world.send(&mut owner, &[Receipt { seq: event.seq, answer: ReceiptAnswer::Received }.into()]);
    assert_eq!(world.server.status(world.now).watches, 0);
    world.create(&mut other, "m");
    close(&mut world, &mut owner);
    assert!(exists(&mut world, &mut other, "m"), "that is another file");
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST tell the session to which an ephemeral file is bound that another session has removed it.
#[test]
fn owner_that_was_timing_out_is_told_when_it_is_rescued() {
    let mut world = World::new();
    let (mut owner, mut waiter, mut other) = (world.open(1), world.open(2), world.open(3));
    let job = world.create(&mut owner, "job").object;
    let file = ephemeral(&mut world, &mut owner, "m");
    world.lock(&mut owner, job);
    let ask = waiter.ask();
    world.send(&mut waiter, &[super::world::lock(ask, job, cistern_wire::LockWait::Queue).into()]);
    world.got(&waiter);
    world.attend(&waiter);
    world.pass(Duration::from_secs(1));
    assert_eq!(world.server.lease_timers(), 1, "the demand was not receipted");
    world.got(&owner);
    let unlink = Unlink { ask: other.ask_only(), dir: ROOT, name: Bytes8(b"m"), force: false, terms: Terms::NONE };
    world.send(&mut other, &[unlink.into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::Changed(_)));
    world.send(&mut owner, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    assert_eq!(world.server.lease_timers(), 0, "it is rescued");
    let told = world.got_one(&owner);
    let Message::WatchEvent(event) = told.message() else { panic!("{told:?}") };
    assert!(event.object == file.object && event.gone);
}

#[test]
fn renamed_it_goes_under_its_new_name() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    let (from_name, to_name) = (Bytes8(b"m"), Bytes8(b"n"));
    let rule = cistern_wire::RenameRule::Replace;
    let terms = Terms::NONE;
    let rename =
        cistern_wire::Rename { ask: other.ask_only(), from_dir: ROOT, from_name, to_dir: ROOT, to_name, rule, force: false, terms };
    world.send(&mut other, &[rename.into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::Changed(_)));
    world.create(&mut other, "m");
    close(&mut world, &mut owner);
    assert_eq!(["m", "n"].map(|name| exists(&mut world, &mut other, name)), [true, false]);
}

#[test]
fn it_has_one_name_is_made_exclusively_and_within_bounds() {
    let presence = PresenceLimits { ephemerals_max: 3, ephemerals_per_session: 2, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let over = |whose, used, bound, retry_ms| Limited { limit: Limit::Ephemerals, whose, realm: Realm(0), used, bound, retry_ms };
    let (mut a, mut b) = (world.open(1), world.open(2));
    let made = ephemeral(&mut world, &mut a, "m");
    let link = Link { ask: a.ask_only(), object: made.object, dir: ROOT, name: Bytes8(b"l"), terms: Terms::NONE };
    assert_eq!(world.failed(&mut a, link.into()).0, Status::EPERM);
    let open = |ask| Create { ephemeral: true, exclusive: false, ..create(ask, "o", Want::Nothing) };
    let ask = a.ask_only();
    assert_eq!(world.failed(&mut a, open(ask).into()).0, Status::EINVAL);
    ephemeral(&mut world, &mut a, "m2");
    let one = |ask| Create { ephemeral: true, ..create(ask, "more", Want::Nothing) };
    let ask = a.ask_only();
    assert_eq!(world.limited(&mut a, one(ask)), over(Whose::Session, 2, 2, 0));
    let two = ["b1", "b2"].map(|name| Item::from(Create { ephemeral: true, ..create(Ask::NONE, name, Want::Nothing) }));
    let batch = Batch { ask: b.ask_only(), items: List::of(&two), terms: Terms::NONE };
    assert_eq!(world.limited(&mut b, batch), over(Whose::Server, 2, 3, 100), "one too many in a batch, of which nothing is done");
    ephemeral(&mut world, &mut b, "m3");
    let ask = b.ask_only();
    assert_eq!(world.limited(&mut b, one(ask)), over(Whose::Server, 3, 3, 100));
    close(&mut world, &mut a);
    ephemeral(&mut world, &mut b, "m");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An ephemeral object MUST name its owner's session durably, and be bound to the new one that reclaims it.
#[test]
fn after_a_restart_it_goes_with_the_session_that_has_reclaimed() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    let made = ephemeral(&mut world, &mut owner, "m");
    world.crash();
    let from = world.come_back(&mut owner);
    world.complete(&mut owner, from);
    world.open_again(&mut other, &[]);
    world.pass(Config::default().wait());
    assert!(exists(&mut world, &mut other, "m"));
    let get = GetAttr { ask: other.ask_only(), object: made.object, want: Want::Nothing };
    world.send(&mut other, &[get.into()]);
    let got = world.got_one(&other);
    assert!(matches!(got.reply(), Reply::Stated(stated) if stated.attr == made), "its attributes and version are what they were");
    // Nobody's but the new session's end takes it away, also across another restart.
    world.crash();
    let from = world.come_back(&mut owner);
    world.complete(&mut owner, from);
    world.open_again(&mut other, &[]);
    world.pass(Config::default().wait());
    assert!(exists(&mut world, &mut other, "m"));
    close(&mut world, &mut owner);
    assert!(!exists(&mut world, &mut other, "m"));
    assert_eq!(records(&world), []);
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# An ephemeral object MUST name its owner's session durably, and be bound to the new one that reclaims it.
#[test]
fn those_of_one_former_session_stay_bound_when_a_second_one_that_has_none_is_complete() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    world.crash();
    let first = world.come_back(&mut owner);
    // The server starts again before the agent was complete: it has two former sessions, and the files go with the first.
    world.crash();
    let second = owner.session;
    world.open_again(&mut owner, &[(first, Claim::Reclaiming), (second, Claim::Reclaiming)]);
    for from in [first, second] {
        world.complete(&mut owner, from);
    }
    world.open_again(&mut other, &[]);
    world.pass(Config::default().wait());
    assert!(exists(&mut world, &mut other, "m"));
    close(&mut world, &mut owner);
    assert!(!exists(&mut world, &mut other, "m"), "it went with the session to which it was bound");
    assert_eq!(records(&world), []);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST remove the ephemeral files of a session that has ended, also when it was restarted in between.
#[test]
fn after_a_restart_those_of_sessions_that_do_not_come_back_go_with_the_grace() {
    let mut world = World::new();
    let (mut gone, mut surrenders) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut gone, "gone");
    ephemeral(&mut world, &mut surrenders, "surrendered");
    world.crash();
    let former = surrenders.session;
    world.open_again(&mut surrenders, &[(former, Claim::Surrendered)]);
    let in_grace = ["gone", "surrendered"].map(|name| exists(&mut world, &mut surrenders, name));
    assert_eq!(in_grace, [true, true], "somebody may still reclaim a cache lock that their removal waits for");
    world.pass(Config::default().wait());
    assert!(!world.in_grace());
    let after = ["gone", "surrendered"].map(|name| exists(&mut world, &mut surrenders, name));
    assert_eq!(after, [false, false]);
    assert_eq!(records(&world), []);
}

#[test]
fn removal_that_a_crash_interrupts_is_done_by_the_next_start() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    let generation = world.cache(&mut other, ROOT);
    world.attend(&other);
    // The end is durable, the removal waits for the reader's cache lock.
    close(&mut world, &mut owner);
    demanded(&mut world, &mut other, generation);
    assert_eq!(records(&world).len(), 1);
    world.crash();
    world.open_again(&mut other, &[]);
    world.pass(Config::default().wait());
    assert!(!exists(&mut world, &mut other, "m"));
    assert_eq!(records(&world), []);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# An owner MUST be probed on account of its ephemeral files only while another session watches or looks at one.
//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# All watchers of an owner MUST be served by the same probes.
#[test]
fn owner_is_probed_while_somebody_watches_and_once_for_all_watchers() {
    let mut world = World::new();
    let (mut owner, mut a, mut b) = (world.open(1), world.open(2), world.open(3));
    let (m, n) = (ephemeral(&mut world, &mut owner, "m").object, ephemeral(&mut world, &mut owner, "n").object);
    // Its own watch says nothing about whether it is there.
    watch(&mut world, &mut owner, m);
    let sent = world.transmitted();
    world.pass(Duration::from_secs(60));
    assert_eq!((world.transmitted(), world.server.listening()), (sent, 0), "nobody watches, nobody is probed");
    watch(&mut world, &mut a, m);
    watch(&mut world, &mut b, m);
    watch(&mut world, &mut b, n);
    for _ in 0..3 {
        world.pass(Config::default().probe_period);
        let got = world.got_one(&owner);
        let Message::Probe(probe) = got.message() else { panic!("{got:?}") };
        world.send(&mut owner, &[Receipt { seq: probe.seq, answer: ReceiptAnswer::Received }.into()]);
    }
    unwatch(&mut world, &mut a, m);
    unwatch(&mut world, &mut b, m);
    unwatch(&mut world, &mut b, n);
    let sent = world.transmitted();
    world.pass(Duration::from_secs(60));
    assert_eq!((world.transmitted(), world.server.listening()), (sent, 0), "nobody watches any more");
}

fn get(peer: &mut Peer, object: ObjectId) -> Message<'static> {
    GetAttr { ask: peer.ask_only(), object, want: Want::Shared }.into()
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A read that tells attributes of an ephemeral file MUST make the server probe the owner within the probe period.
//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The server MUST NOT grant a cache lock on an ephemeral file to any session but its owner's.
#[test]
fn looks_at_an_ephemeral_file_are_answered_by_the_server_and_cost_its_owner_one_probe_a_period() {
    let mut world = World::new();
    let (mut owner, mut reader) = (world.open(1), world.open(2));
    let object = ephemeral(&mut world, &mut owner, "m").object;
    let own = get(&mut owner, object);
    world.send(&mut owner, &[own]);
    let Reply::Stated(stated) = world.got_one(&owner).reply() else { panic!() };
    assert_ne!(stated.grant, CacheGrant::NONE, "its own member file is cached");
    assert_eq!(world.server.listening(), 0, "its own look is none");
    for looks in [1, 3] {
        for _ in 0..looks {
            let look = get(&mut reader, object);
            world.send(&mut reader, &[look]);
            let Reply::Stated(stated) = world.got_one(&reader).reply() else { panic!() };
            assert_eq!(stated.grant, CacheGrant::NONE);
        }
        world.pass(Config::default().probe_period);
        let got = world.got_one(&owner);
        let Message::Probe(probe) = got.message() else { panic!("{got:?}") };
        world.send(&mut owner, &[Receipt { seq: probe.seq, answer: ReceiptAnswer::Received }.into()]);
        let sent = world.transmitted();
        world.pass(Duration::from_secs(10));
        assert_eq!((world.transmitted(), world.server.listening()), (sent, 0), "nobody looks, nobody is probed");
    }
}

#[test]
fn dead_member_leaves_a_listing_that_somebody_looked_at() {
    let mut world = World::new();
    let (mut owner, mut reader) = (world.open(1), world.open(2));
    ephemeral(&mut world, &mut owner, "m");
    let names = |world: &mut World, reader: &mut Peer, detail| {
        let ask = reader.ask_only();
        let list = ReadDir { ask, dir: ROOT, after: Bytes8(b""), version: 0, detail, want: Want::Nothing };
        world.send(reader, &[list.into()]);
        let got = world.got_one(reader);
        match got.reply() {
            Reply::Listing(listing) => listing.entries.iter().count(),
            other => panic!("{other:?}"),
        }
    };
    for (detail, left) in [(false, 1), (true, 0)] {
        assert_eq!(names(&mut world, &mut reader, detail), 1);
        world.pass(Config::default().detection_bound());
        world.got(&owner);
        assert_eq!(names(&mut world, &mut reader, false), left, "with attributes: {detail}");
    }
    assert_eq!(world.server.stats().steals, 1);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# The time in which a dead owner is noticed MUST be documented as the sum of probe period, Td, T, ε and a commit.
#[test]
fn dead_owner_of_a_watched_file_is_noticed_within_the_documented_bound() {
    let config = Config::default();
    // 1 s + max(500 ms, 3 · 250 ms) + 2,021 ms.
    assert_eq!(config.detection_bound(), ms(3_771));
    let mut world = World::new();
    let (mut owner, mut watcher) = (world.open(1), world.open(2));
    let object = ephemeral(&mut world, &mut owner, "m").object;
    watch(&mut world, &mut watcher, object);
    world.pass(config.detection_bound());
    let probes = world.got(&owner);
    assert!(probes.len() >= 3 && probes.iter().all(|got| got.message().kind() == Kind::Probe));
    let told = world.got(&watcher);
    assert!(!told.is_empty(), "told within the bound");
    let is_gone = |message| matches!(message, Message::WatchEvent(event) if event.object == object && event.gone);
    assert!(told.iter().all(|got| is_gone(got.message())), "{told:?}");
    assert_eq!(world.server.stats().steals, 1);
}

#[test]
fn one_principal_leaves_ephemeral_files_to_others_in_all_its_sessions() {
    let presence = PresenceLimits { ephemerals_max: 1_000, ephemerals_per_session: 500, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let (greedy, modest) = (world.principal("greedy", &[(Realm::TREE, "rw")]), world.principal("modest", &[(Realm::TREE, "rw")]));
    let mut two = [world.open_as(1, greedy), world.open_as(2, greedy)];
    for n in 0..800 {
        ephemeral(&mut world, &mut two[n % 2], &alloc::format!("e{n}"));
    }
    let ask = two[0].ask_only();
    let refused = world.limited(&mut two[0], Create { ephemeral: true, ..create(ask, "more", Want::Nothing) });
    assert_eq!((refused.limit, refused.whose, refused.used), (Limit::Ephemerals, Whose::Principal, 800));
    let mut other = world.open_as(3, modest);
    ephemeral(&mut world, &mut other, "mine");
    // Two that go leave room for one, for the other has one now.
    for name in [b"e0", b"e2"] {
        let ask = two[1].ask_only();
        world.send(&mut two[1], &[Unlink { ask, dir: ROOT, name: Bytes8(name), force: false, terms: Terms::NONE }.into()]);
        drop((world.got(&two[0]), world.got(&two[1])));
    }
    ephemeral(&mut world, &mut two[1], "again");
}
