//! Named leases: when they end, who keeps them, what goes with them.

use super::ephemerals::{close, exists, watch};
use super::rights::ALL;
use super::world::{Got, Peer, ROOT, World, cache_lock, create, ms};
use crate::Config;
use crate::config::PresenceLimits;
use crate::store::{Bound, EphemeralRecord, Key};
use alloc::string::String;
use alloc::vec::Vec;
use cistern_seal::LeaseSecret;
use cistern_wire::{
    Ask, Attach, Attr, Batch, Bytes8, Create, GetAttr, Item, Keep, KeepLease, LeaseKept, Limit, Limited, Link, List, ListLeases, MakeLease,
    Message, Mkdir, ObjectId, Realm, Receipt, ReceiptAnswer, Release, ReleaseItem, Rename, RenameRule, Reply, Status, Terms, Unlink, Want,
    Whose,
};
use core::time::Duration;

const SECRET: [u8; 16] = [0x5C; 16];
const TTL_MS: u32 = 30_000;

fn wait() -> Duration {
    Config::default().wait_for(ms(TTL_MS.into()))
}

fn make(ask: Ask, name: &str, ttl_ms: u32) -> MakeLease<'_> {
    let verifier = LeaseSecret::from_array(SECRET).verifier();
    MakeLease { ask, dir: ROOT, name: Bytes8(name.as_bytes()), mode: 0o644, uid: 1, gid: 1, ttl_ms, verifier, terms: Terms::NONE }
}

fn made(got: &Got) -> Attr {
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr
}

fn lease(world: &mut World, peer: &mut Peer, name: &str) -> ObjectId {
    let ask = peer.ask_only();
    world.send(peer, &[make(ask, name, TTL_MS).into()]);
    made(&world.got_one(peer)).object
}

fn attach(world: &mut World, peer: &mut Peer, object: ObjectId, lease: ObjectId) -> Attr {
    let ask = peer.ask_only();
    world.send(peer, &[Attach { ask, object, lease, secret: SECRET, terms: Terms::NONE }.into()]);
    let got = world.got_one(peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    changed.effects.iter().next().unwrap().attr
}

fn keep(world: &mut World, peer: &mut Peer, lease: ObjectId) {
    let ask = peer.ask_only();
    world.send(peer, &[KeepLease { ask, lease, secret: SECRET }.into()]);
    let got = world.got_one(peer);
    assert_eq!(got.reply(), Reply::LeaseKept(LeaseKept { ttl_ms: TTL_MS }), "{got:?}");
}

fn unlink<'a>(peer: &mut Peer, name: &'a str) -> Message<'a> {
    Unlink { ask: peer.ask_only(), dir: ROOT, name: Bytes8(name.as_bytes()), force: false, terms: Terms::NONE }.into()
}

fn files(world: &World) -> Vec<ObjectId> {
    let of = |(key, value): (&Key, &bytes::Bytes)| match (key, EphemeralRecord::from_bytes(value)) {
        (Key::Ephemeral(owner, object), Ok(EphemeralRecord { bound: Bound::Lease(lease) })) => {
            assert_eq!(*owner, lease.as_owner());
            Some(*object)
        }
        _ => None,
    };
    world.disk.values.iter().filter_map(of).collect()
}

fn leases(world: &World) -> usize {
    let recorded = world.disk.values.keys().filter(|key| matches!(key, Key::Lease(_))).count();
    assert_eq!(world.server.status(world.now).named_leases, recorded);
    recorded
}

/// What LIST_LEASES lists, of all pages: file, its path, how much is left and how many files there are.
fn listed(world: &mut World, peer: &mut Peer, lease: ObjectId) -> Vec<(ObjectId, String, u32, u32)> {
    let (mut rows, mut after) = (Vec::new(), ObjectId(0));
    loop {
        let ask = peer.ask_only();
        world.send(peer, &[ListLeases { ask, lease, after }.into()]);
        let got = world.got_one(peer);
        let Reply::LeaseRows(page) = got.reply() else { panic!("{got:?}") };
        for row in page.rows {
            assert!(row.object > after && row.lease == if lease.0 == 0 { row.object } else { lease });
            after = row.object;
            rows.push((row.object, String::from_utf8(row.place.0.to_vec()).unwrap(), row.left_ms, row.files));
        }
        if page.end {
            return rows;
        }
    }
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# The server MUST NOT end a named lease by time before that wait has passed since the newest MKLEASE or KEEP_LEASE of it was executed.
//= wire-spec.md#11-11-named-leases
//= type=test
//# The server MUST end a named lease when its wait has passed, once its receive queue is empty and no grace lasts.
#[test]
fn lease_outlives_its_maker_and_ends_with_its_files_when_nobody_keeps_it() {
    let mut world = World::new();
    let (mut maker, mut other) = (world.open(1), world.open(2));
    let web = lease(&mut world, &mut maker, "web");
    let file = world.create(&mut maker, "file").object;
    let attr = attach(&mut world, &mut maker, file, web);
    assert!(attr.owner == web.as_owner() && attr.is_ephemeral() && !attr.is_lease());
    assert_eq!((files(&world).len(), leases(&world)), (2, 1));
    close(&mut world, &mut maker);
    world.pass(wait() - ms(1));
    assert!(exists(&mut world, &mut other, "web") && exists(&mut world, &mut other, "file"));
    keep(&mut world, &mut other, web);
    world.pass(wait() - ms(1));
    assert!(exists(&mut world, &mut other, "web") && exists(&mut world, &mut other, "file"), "another one keeps it as well");
    assert_eq!(listed(&mut world, &mut other, ObjectId(0)), [(web, "/web".into(), 1, 2)]);
    world.pass(ms(1));
    assert!(!exists(&mut world, &mut other, "web") && !exists(&mut world, &mut other, "file"));
    assert_eq!((files(&world).len(), leases(&world)), (0, 0));
    assert_eq!(listed(&mut world, &mut other, ObjectId(0)), []);
    assert_eq!((world.server.stats().leases_run_out, world.server.lease_timers()), (1, 0));
}

#[test]
fn time_has_passed_when_both_clocks_say_so() {
    let mut world = World::new();
    let mut peer = world.open(1);
    lease(&mut world, &mut peer, "web");
    world.boot_lag = 512;
    world.pass(wait() * 2 - ms(50));
    assert!(exists(&mut world, &mut peer, "web"), "the boot clock runs half as fast");
    world.pass(ms(100));
    assert!(!exists(&mut world, &mut peer, "web"));
}

#[test]
fn copy_of_an_executed_keepalive_keeps_nothing() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let web = lease(&mut world, &mut peer, "web");
    let ask = peer.ask_only();
    let kept: Message<'_> = KeepLease { ask, lease: web, secret: SECRET }.into();
    world.send(&mut peer, &[kept]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::LeaseKept(_)));
    world.pass(wait() - ms(1));
    world.send(&mut peer, &[kept]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::LeaseKept(_)), "it is answered as it was");
    world.pass(ms(1));
    assert!(!exists(&mut world, &mut peer, "web"));
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# KEEP_LEASE and ATTACH with another secret MUST fail with EACCES, and change nothing.
#[test]
fn without_the_secret_nothing_is_kept_or_attached() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let web = lease(&mut world, &mut peer, "web");
    let file = world.create(&mut peer, "file").object;
    let secret = [0x5D; 16];
    world.pass(wait() - ms(10));
    let ask = peer.ask_only();
    assert_eq!(world.failed(&mut peer, KeepLease { ask, lease: web, secret }.into()).0, Status::EACCES);
    let ask = peer.ask_only();
    assert_eq!(world.failed(&mut peer, Attach { ask, object: file, lease: web, secret, terms: Terms::NONE }.into()).0, Status::EACCES);
    world.pass(ms(10));
    assert!(!exists(&mut world, &mut peer, "web") && exists(&mut world, &mut peer, "file"));
}

#[test]
fn what_cannot_be_a_lease_or_go_with_one_is_refused() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for ttl_ms in [0, 499, 2_592_000_001, u32::MAX] {
        let ask = peer.ask_only();
        assert_eq!(world.failed(&mut peer, make(ask, "web", ttl_ms).into()).0, Status::EINVAL, "{ttl_ms}");
    }
    let web = lease(&mut world, &mut peer, "web");
    let other = lease(&mut world, &mut peer, "other");
    let file = world.create(&mut peer, "file").object;
    let mkdir = Mkdir { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"d"), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
    world.send(&mut peer, &[mkdir.into()]);
    let dir = made(&world.got_one(&peer)).object;
    let link = |peer: &mut Peer, object, name| -> Message<'static> {
        Link { ask: peer.ask_only(), object, dir: ROOT, name: Bytes8(name), terms: Terms::NONE }.into()
    };
    let mut fails = |world: &mut World, object, lease, status| {
        let ask = peer.ask_only();
        let attach = Attach { ask, object, lease, secret: SECRET, terms: Terms::NONE };
        assert_eq!(world.failed(&mut peer, attach.into()).0, status);
    };
    fails(&mut world, file, file, Status::EINVAL);
    fails(&mut world, dir, web, Status::EISDIR);
    fails(&mut world, other, web, Status::EPERM);
    fails(&mut world, file, ObjectId(99), Status::ESTALE);
    let message = link(&mut peer, file, b"second");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    let ask = peer.ask_only();
    let attach_it = Attach { ask, object: file, lease: web, secret: SECRET, terms: Terms::NONE };
    assert_eq!(world.failed(&mut peer, attach_it.into()).0, Status::EPERM, "the server would take one of two names");
    let message = unlink(&mut peer, "second");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    let first = attach(&mut world, &mut peer, file, web);
    assert_eq!(attach(&mut world, &mut peer, file, web), first, "once more changes nothing");
    for object in [file, web] {
        let message = link(&mut peer, object, b"third");
        assert_eq!(world.failed(&mut peer, message).0, Status::EPERM);
    }
    let ask = peer.ask_only();
    let to_other = Attach { ask, object: file, lease: other, secret: SECRET, terms: Terms::NONE };
    assert_eq!(world.failed(&mut peer, to_other.into()).0, Status::EPERM, "it goes with one lease");
    let ask = peer.ask_only();
    assert_eq!(world.failed(&mut peer, KeepLease { ask, lease: file, secret: SECRET }.into()).0, Status::EINVAL);
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# The server MUST NOT remove a file on account of a named lease by a transaction before the one that ends the lease.
#[test]
fn lease_and_files_end_by_one_transaction_if_nothing_is_in_the_way() {
    for revoke in [false, true] {
        let mut world = World::new();
        let mut peer = world.open(1);
        let web = lease(&mut world, &mut peer, "web");
        let file = world.create(&mut peer, "file").object;
        attach(&mut world, &mut peer, file, web);
        world.stalled = true;
        if revoke {
            let message = unlink(&mut peer, "web");
            world.send(&mut peer, &[message]);
        } else {
            world.pass(wait());
        }
        let ends = |writes: &[(Key, Option<bytes::Bytes>)]| {
            let gone = |wanted: &Key| writes.iter().any(|(key, value)| key == wanted && value.is_none());
            (gone(&Key::Lease(web)), gone(&Key::Object(web)), gone(&Key::Object(file)))
        };
        let batches: Vec<_> =
            world.disk.batches.iter().map(|batch| ends(&batch.writes)).filter(|end| *end != (false, false, false)).collect();
        assert_eq!(batches, [(true, true, true)], "revoke: {revoke}");
        assert!(world.got(&peer).is_empty());
        world.stalled = false;
        world.turn();
        if revoke {
            assert!(matches!(world.got_one(&peer).reply(), Reply::Changed(_)));
        }
        assert_eq!((files(&world).len(), leases(&world)), (0, 0));
    }
}

#[test]
fn watchers_are_told_and_cached_files_are_asked_back() {
    let mut world = World::new();
    let (mut maker, mut reader) = (world.open(1), world.open(2));
    let web = lease(&mut world, &mut maker, "web");
    let file = world.create(&mut maker, "file").object;
    attach(&mut world, &mut maker, file, web);
    watch(&mut world, &mut reader, file);
    // Unlike a file that goes with a session, it may be cached: the server knows when it ends.
    let generation = world.cache(&mut reader, file);
    world.attend(&reader);
    world.pass(wait());
    let got = world.got_one(&reader);
    let Message::Demand(demand) = got.message() else { panic!("{got:?}") };
    assert_eq!((demand.lock, demand.generation), (cache_lock(file), generation));
    assert!(!exists(&mut world, &mut maker, "web") && exists(&mut world, &mut maker, "file"), "its own went at once");
    //= wire-spec.md#11-11-named-leases
    //= type=test
    //# A named lease that has ended MUST NOT come back: KEEP_LEASE and ATTACH fail from then on, also if the server was restarted.
    let ask = maker.ask_only();
    assert_eq!(world.failed(&mut maker, KeepLease { ask, lease: web, secret: SECRET }.into()).0, Status::ESTALE);
    world.send(&mut reader, &[Receipt { seq: demand.seq, answer: ReceiptAnswer::Received }.into()]);
    let items = [ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing }];
    let serial = reader.serial();
    world.send(&mut reader, &[Release { serial, items: List::of(&items) }.into()]);
    let got = world.got(&reader);
    let told = got.iter().find_map(|got| if let Message::WatchEvent(event) = got.message() { Some(event) } else { None }).unwrap();
    assert!(told.object == file && told.gone);
    world.send(&mut reader, &[Receipt { seq: told.seq, answer: ReceiptAnswer::Received }.into()]);
    assert!(!exists(&mut world, &mut maker, "file"));
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# A named lease that has ended MUST NOT come back: KEEP_LEASE and ATTACH fail from then on, also if the server was restarted.
//= wire-spec.md#11-11-named-leases
//= type=test
//# The server MUST remove the files of a named lease that has ended, also when it was restarted in between.
#[test]
fn ended_lease_stays_ended_while_something_is_in_the_way_of_its_files_and_over_a_restart() {
    let mut world = World::new();
    let (mut maker, mut reader) = (world.open(1), world.open(2));
    let web = lease(&mut world, &mut maker, "web");
    let file = world.create(&mut maker, "file").object;
    attach(&mut world, &mut maker, file, web);
    let plain = world.create(&mut maker, "plain").object;
    world.cache(&mut reader, web);
    world.pass(wait());
    world.got_one(&reader);
    assert!(exists(&mut world, &mut maker, "web"), "it is cached, and not given back");
    let refused = |world: &mut World, peer: &mut Peer| {
        let ask = peer.ask_only();
        assert_eq!(world.failed(peer, KeepLease { ask, lease: web, secret: SECRET }.into()).0, Status::ESTALE);
    };
    refused(&mut world, &mut maker);
    let ask = maker.ask_only();
    let more = Attach { ask, object: plain, lease: web, secret: SECRET, terms: Terms::NONE };
    assert_eq!(world.failed(&mut maker, more.into()).0, Status::ESTALE);
    assert_eq!((files(&world), leases(&world)), (alloc::vec![web], 0));
    world.got(&reader);
    world.crash();
    world.open_again(&mut maker, &[]);
    refused(&mut world, &mut maker);
    world.pass(Config::default().wait());
    assert!(!exists(&mut world, &mut maker, "web") && exists(&mut world, &mut maker, "plain"));
    assert_eq!((files(&world).len(), leases(&world)), (0, 0));
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# A server that has started MUST give each named lease its whole time again, from when it serves, and at the end of grace once more.
#[test]
fn restart_gives_each_lease_its_whole_time_again() {
    for graced in [false, true] {
        let mut world = World::new();
        let (mut maker, mut other) = (world.open(1), world.open(2));
        let web = lease(&mut world, &mut maker, "web");
        world.pass(wait() - ms(1));
        if !graced {
            close(&mut world, &mut maker);
            close(&mut world, &mut other);
        }
        // A server that is down for longer than the lease.
        world.tick(wait());
        world.crash();
        let grace = if graced { Config::default().wait() } else { Duration::ZERO };
        assert_eq!(world.in_grace(), graced);
        world.open_again(&mut other, &[]);
        if graced {
            // It says what is true: in grace no lease ends.
            keep(&mut world, &mut other, web);
            assert_eq!(listed(&mut world, &mut other, ObjectId(0)), [(web, "/web".into(), TTL_MS, 1)]);
            world.pass(grace);
            assert!(!world.in_grace());
        }
        world.pass(wait() - ms(5));
        assert!(exists(&mut world, &mut other, "web"), "graced: {graced}");
        world.pass(ms(10));
        assert!(!exists(&mut world, &mut other, "web"), "graced: {graced}");
    }
}

#[test]
fn batch_makes_a_lease_and_what_goes_with_it_whole_or_not_at_all() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let batch = |world: &mut World, peer: &mut Peer, secret, lease: u8| {
        let items = [
            Item::from(make(Ask::NONE, "web", TTL_MS)),
            Item::from(create(Ask::NONE, "file", Want::Nothing)),
            Item::from(Attach {
                ask: Ask::NONE,
                object: ObjectId::made_by(1),
                lease: ObjectId::made_by(lease),
                secret,
                terms: Terms::NONE,
            }),
        ];
        let ask = peer.ask_only();
        world.send(peer, &[Batch { ask, items: List::of(&items), terms: Terms::NONE }.into()]);
        let got = world.got_one(peer);
        match got.reply() {
            Reply::Batched(_) => None,
            Reply::BatchFailed(failed) => Some((failed.status, failed.item)),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(batch(&mut world, &mut peer, [0; 16], 0), Some((Status::EACCES, 2)));
    assert_eq!(batch(&mut world, &mut peer, SECRET, 1), Some((Status::EINVAL, 2)), "that is no lease");
    assert_eq!((files(&world).len(), leases(&world)), (0, 0));
    assert_eq!(batch(&mut world, &mut peer, SECRET, 0), None);
    assert_eq!((files(&world).len(), leases(&world)), (2, 1));
    // What goes with a lease that a batch makes and takes away goes with it.
    let items = [
        Item::from(make(Ask::NONE, "gone", TTL_MS)),
        Item::from(create(Ask::NONE, "with it", Want::Nothing)),
        Item::from(Attach {
            ask: Ask::NONE,
            object: ObjectId::made_by(1),
            lease: ObjectId::made_by(0),
            secret: SECRET,
            terms: Terms::NONE,
        }),
        Item::from(Unlink { ask: Ask::NONE, dir: ROOT, name: Bytes8(b"gone"), force: false, terms: Terms::NONE }),
    ];
    let ask = peer.ask_only();
    world.send(&mut peer, &[Batch { ask, items: List::of(&items), terms: Terms::NONE }.into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Batched(_)));
    assert!(!exists(&mut world, &mut peer, "with it"));
    assert_eq!((files(&world).len(), leases(&world)), (2, 1));
    world.pass(wait());
    assert_eq!((files(&world).len(), leases(&world)), (0, 0));
    assert!(!exists(&mut world, &mut peer, "file"));
}

#[test]
fn renamed_lease_goes_on_and_replaced_lease_is_revoked() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let web = lease(&mut world, &mut peer, "web");
    let file = world.create(&mut peer, "file").object;
    attach(&mut world, &mut peer, file, web);
    let rename = |peer: &mut Peer, from: &'static [u8], to: &'static [u8]| -> Message<'static> {
        let (ask, rule) = (peer.ask_only(), RenameRule::Replace);
        let (from_name, to_name) = (Bytes8(from), Bytes8(to));
        Rename { ask, from_dir: ROOT, from_name, to_dir: ROOT, to_name, rule, force: false, terms: Terms::NONE }.into()
    };
    let message = rename(&mut peer, b"web", b"www");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    let message = rename(&mut peer, b"file", b"other");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    keep(&mut world, &mut peer, web);
    assert_eq!(listed(&mut world, &mut peer, web), [(web, "/www".into(), TTL_MS, 2), (file, "/other".into(), TTL_MS, 2)]);
    world.create(&mut peer, "plain");
    let message = rename(&mut peer, b"plain", b"www");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    assert!(exists(&mut world, &mut peer, "www") && !exists(&mut world, &mut peer, "other"));
    assert_eq!((files(&world).len(), leases(&world), world.server.stats().leases_revoked), (0, 0, 1));
}

#[test]
fn leases_and_what_goes_with_each_are_bounded() {
    let presence = PresenceLimits { ephemerals_max: 5, ephemerals_per_session: 2, leases_max: 2, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let mut peer = world.open(1);
    let web = lease(&mut world, &mut peer, "web");
    let files = ["a", "b"].map(|name| world.create(&mut peer, name).object);
    attach(&mut world, &mut peer, files[0], web);
    let over = |limit, whose, used, bound, retry_ms| Limited { limit, whose, realm: Realm(0), used, bound, retry_ms };
    let ask = peer.ask_only();
    let more = Attach { ask, object: files[1], lease: web, secret: SECRET, terms: Terms::NONE };
    assert_eq!(world.limited(&mut peer, more), over(Limit::Ephemerals, Whose::Object, 2, 2, 0));
    attach(&mut world, &mut peer, files[0], web);
    lease(&mut world, &mut peer, "second");
    let ask = peer.ask_only();
    assert_eq!(world.limited(&mut peer, make(ask, "third", TTL_MS)), over(Limit::Leases, Whose::Server, 2, 2, 100));
    let ephemeral = |ask, name| Create { ephemeral: true, ..create(ask, name, Want::Nothing) };
    for name in ["e1", "e2"] {
        let ask = peer.ask_only();
        world.send(&mut peer, &[ephemeral(ask, name).into()]);
        made(&world.got_one(&peer));
    }
    let message = unlink(&mut peer, "second");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    lease(&mut world, &mut peer, "third");
    let message = unlink(&mut peer, "third");
    world.send(&mut peer, &[message]);
    world.got_one(&peer);
    let mut other = world.open(2);
    let ask = other.ask_only();
    world.send(&mut other, &[ephemeral(ask, "e3").into()]);
    made(&world.got_one(&other));
    let ask = peer.ask_only();
    assert_eq!(world.limited(&mut peer, make(ask, "third", TTL_MS)), over(Limit::Ephemerals, Whose::Server, 5, 5, 100));
}

#[test]
fn one_principal_leaves_leases_to_others() {
    let presence = PresenceLimits { leases_max: 1_000, ..PresenceLimits::default() };
    let mut world = World::with(Config { presence, volatile: true, ..Config::default() });
    let (greedy, modest) = (world.principal("greedy", &[(Realm::TREE, ALL)]), world.principal("modest", &[(Realm::TREE, ALL)]));
    let (mut a, mut b) = (world.open_as(1, greedy), world.open_as(2, modest));
    for n in 0..800 {
        lease(&mut world, &mut a, &alloc::format!("l{n}"));
    }
    let ask = a.ask_only();
    let refused = world.limited(&mut a, make(ask, "more", TTL_MS));
    assert_eq!((refused.limit, refused.whose, refused.used), (Limit::Leases, Whose::Principal, 800));
    lease(&mut world, &mut b, "mine");
    assert_eq!(listed(&mut world, &mut a, ObjectId(0)).len(), 801, "in pages");
}

#[test]
fn rights_are_needed_besides_the_secret() {
    let mut world = World::new();
    let mut root = world.open(1);
    let (dir, realm) = world.realm(&mut root, ROOT, "team");
    let writer = world.principal("writer", &[(realm, "rw")]);
    let reader = world.principal("reader", &[(realm, "r")]);
    let stranger = world.principal("stranger", &[]);
    let [mut w, mut r, mut s] = [(2, writer), (3, reader), (4, stranger)].map(|(n, who)| world.open_as(n, who));
    let ask = w.ask_only();
    world.send(&mut w, &[MakeLease { dir, ..make(ask, "web", TTL_MS) }.into()]);
    let web = made(&world.got_one(&w)).object;
    keep(&mut world, &mut w, web);
    for (peer, status) in [(&mut r, Status::EACCES), (&mut s, Status::ESTALE)] {
        let ask = peer.ask_only();
        assert_eq!(world.failed(peer, KeepLease { ask, lease: web, secret: SECRET }.into()).0, status);
    }
    assert_eq!(listed(&mut world, &mut r, ObjectId(0)).len(), 1);
    assert_eq!(listed(&mut world, &mut s, ObjectId(0)), [], "others are left out");
    let ask = s.ask_only();
    assert_eq!(world.failed(&mut s, ListLeases { ask, lease: web, after: ObjectId(0) }.into()).0, Status::ESTALE);
    // What is withdrawn keeps nothing alive any more.
    world.grant(writer, realm, "r");
    let ask = w.ask_only();
    assert_eq!(world.failed(&mut w, KeepLease { ask, lease: web, secret: SECRET }.into()).0, Status::EACCES);
    let get = GetAttr { ask: w.ask_only(), object: web, want: Want::Nothing };
    world.send(&mut w, &[get.into()]);
    assert!(matches!(world.got_one(&w).reply(), Reply::Stated(stated) if stated.attr.is_lease()));
}

//= wire-spec.md#11-11-named-leases
//= type=test
//# ATTACH of an object on which another session has an advisory lock MUST fail with EBUSY, unless the principal owns the object's realm.
#[test]
fn what_another_has_locked_goes_with_no_lease_of_who_does_not_own_there() {
    let mut world = World::new();
    let mut victim = world.open(1);
    let job = world.create(&mut victim, "job").object;
    let (writer, owner) = (world.principal("writer", &[(Realm::TREE, "rwl")]), world.principal("owner", &[(Realm::TREE, "rwo")]));
    let (mut thief, mut chief) = (world.open_as(2, writer), world.open_as(3, owner));
    world.lock(&mut victim, job);
    let web = lease(&mut world, &mut thief, "web");
    let ask = thief.ask_only();
    let message = Attach { ask, object: job, lease: web, secret: SECRET, terms: Terms::NONE };
    assert_eq!(world.failed(&mut thief, message.into()), (Status::EBUSY, 0));
    let revoke = unlink(&mut thief, "web");
    world.send(&mut thief, &[revoke]);
    assert!(matches!(world.got_one(&thief).reply(), Reply::Changed(_)));
    assert!(exists(&mut world, &mut victim, "job"));
    // One's own lock is in nobody's way, nor is another one's in the owner's.
    let own = world.create(&mut thief, "own").object;
    world.lock(&mut thief, own);
    let web = lease(&mut world, &mut thief, "web");
    attach(&mut world, &mut thief, own, web);
    attach(&mut world, &mut chief, job, web);
}
