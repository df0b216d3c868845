//! Rights: what follows when they are given and withdrawn, to sessions, waits, watches and caches.

use super::world::{Peer, ROOT, World, advisory, cache_lock, create, lock, ms};
use crate::Config;
use crate::principals::{GRANTS_MAX, PrincipalId, Rights};
use crate::store::AccountRecord;
use alloc::vec::Vec;
use cistern_wire::{
    Ask, Batch, Bytes8, Bytes16, Claim, Create, Demand, GetAttr, Item, Keep, Kind, Limit, Limited, List, ListLocks, LockWait, Lookup,
    MakeRealm, Message, Mkdir, Mode, ObjectId, Realm, Receipt, ReceiptAnswer, Reclaim, ReclaimItem, Release, ReleaseItem, Rename,
    RenameRule, Reply, Rmdir, ServerStatus, SetAttr, SetMask, SetQuota, Stage, Status, Terms, Unlink, WaitOver, Want, Watch, Whose, Write,
};

pub(super) const ALL: &str = "rwlo";

impl World {
    /// A principal with rights in realms; none are no letters.
    pub(super) fn principal(&mut self, name: &str, rights: &[(Realm, &str)]) -> PrincipalId {
        let (who, _) = self.server.add_principal(self.now, name.as_bytes(), None, false).unwrap();
        for (realm, letters) in rights {
            self.grant(who, *realm, letters);
        }
        who
    }

    pub(super) fn grant(&mut self, who: PrincipalId, realm: Realm, letters: &str) {
        let rights = if letters.is_empty() { Rights::NONE } else { Rights::from_letters(letters).unwrap() };
        self.server.grant(self.now, who, realm, rights).unwrap();
        self.turn();
    }

    /// A peer whose session is that of a principal.
    pub(super) fn open_as(&mut self, n: u8, who: PrincipalId) -> Peer {
        self.as_principal(who);
        let peer = self.open(n);
        self.as_principal(PrincipalId::ANYBODY);
        peer
    }

    /// Sessions that are opened from now on are a principal's.
    pub(super) fn as_principal(&mut self, who: PrincipalId) {
        self.server.adopt(self.now, &Config { plain_principal: who.0, ..self.server.config.clone() });
    }

    /// Begins a realm; its directory and its number.
    pub(super) fn realm(&mut self, peer: &mut Peer, dir: ObjectId, name: &str) -> (ObjectId, Realm) {
        let make = MakeRealm { ask: peer.ask_only(), dir, name: Bytes8(name.as_bytes()), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
        self.send(peer, &[make.into()]);
        let got = self.got_one(peer);
        let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
        let made = changed.effects.iter().nth(1).unwrap().attr;
        (made.object, made.realm)
    }

    /// Which quota refuses a mutation.
    #[track_caller]
    pub(super) fn limited<'a>(&mut self, peer: &mut Peer, message: impl Into<Message<'a>>) -> Limited {
        self.send(peer, &[message.into()]);
        let got = self.got_one(peer);
        match got.reply() {
            Reply::Limited(limited) => limited,
            other => panic!("{other:?}"),
        }
    }

    /// A mutation is done.
    #[track_caller]
    fn changes<'a>(&mut self, peer: &mut Peer, message: impl Into<Message<'a>>) {
        self.send(peer, &[message.into()]);
        let got = self.got_one(peer);
        assert!(matches!(got.reply(), Reply::Changed(_)), "{got:?}");
    }

    /// Why a request fails.
    #[track_caller]
    pub(super) fn refused<'a>(&mut self, peer: &mut Peer, message: impl Into<Message<'a>>) -> Status {
        self.send(peer, &[message.into()]);
        let got = self.got_one(peer);
        match got.reply() {
            Reply::Failed(failed) => failed.status,
            other => panic!("{other:?}"),
        }
    }
}

fn write(ask: Ask, object: ObjectId, data: &[u8]) -> Write<'_> {
    Write { ask, object, offset: 0, truncate: true, stage: 0, data: Bytes16(data), terms: Terms::NONE }
}

pub(super) fn get(peer: &mut Peer, object: ObjectId, want: Want) -> Message<'static> {
    GetAttr { ask: peer.ask_only(), object, want }.into()
}

pub(super) fn set_mode(peer: &mut Peer, object: ObjectId, mode: u16) -> Message<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    let ask = peer.ask_only();
    SetAttr { ask, object, mask, mode, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# The server MUST check the rights of a request each time that it executes it.
#[test]
fn a_mutation_that_waits_is_judged_again_when_it_runs() {
    let mut world = World::new();
    let mut reader = world.open(1);
    let file = world.create(&mut reader, "f").object;
    let generation = world.cache(&mut reader, file);
    let who = world.principal("web", &[(Realm::TREE, "rw")]);
    let mut writer = world.open_as(2, who);
    let change = set_mode(&mut writer, file, 0o600);
    world.send(&mut writer, &[change]);
    assert_eq!(world.got_one(&writer).message().kind(), Kind::Pending);
    assert_eq!(world.got_one(&reader).message().kind(), Kind::Demand);
    world.grant(who, Realm::TREE, "r");
    let items = [ReleaseItem { lock: cache_lock(file), generation, keep: Keep::Nothing }];
    let release = Release { serial: reader.serial(), items: List::of(&items) };
    world.send(&mut reader, &[release.into(), Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    let got = world.got_one(&writer);
    assert!(matches!(got.reply(), Reply::Failed(failed) if failed.status == Status::EACCES), "{got:?}");
    world.got(&reader);
    let look = get(&mut reader, file, Want::Nothing);
    world.send(&mut reader, &[look]);
    let got = world.got_one(&reader);
    assert!(matches!(got.reply(), Reply::Stated(stated) if stated.attr.mode == 0o644), "{got:?}");
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# An object in a realm in which a principal has no right MUST be answered for as if there were no such object.
#[test]
fn what_is_hidden_is_answered_for_as_what_is_not_there() {
    let mut world = World::new();
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let (team, realm) = world.realm(&mut all, ROOT, "team");
    let who = world.principal("web", &[(realm, "r")]);
    let mut peer = world.open_as(2, who);
    let missing = ObjectId(4_711);
    for object in [file, missing] {
        let ask = get(&mut peer, object, Want::Shared);
        assert_eq!(world.refused(&mut peer, ask), Status::ESTALE);
        let ask = set_mode(&mut peer, object, 0o600);
        assert_eq!(world.refused(&mut peer, ask), Status::ESTALE);
        let ask = lock(peer.ask_only(), object, LockWait::Try);
        assert_eq!(world.refused(&mut peer, ask), Status::ESTALE);
        let ask = Watch { ask: peer.ask_only(), object };
        assert_eq!(world.refused(&mut peer, ask), Status::ESTALE);
    }
    let ask = get(&mut peer, ROOT, Want::Nothing);
    assert_eq!(world.refused(&mut peer, ask), Status::EACCES, "it is on the way");
    let ask = set_mode(&mut peer, team, 0o700);
    assert_eq!(world.refused(&mut peer, ask), Status::EACCES);
    let ask = Stage { ask: peer.ask_only(), stage: 1, total: 1, offset: 0, data: Bytes16(b"x") };
    assert_eq!(world.refused(&mut peer, ask), Status::EACCES, "who writes nowhere stages nothing");
    let quota = SetQuota { ask: peer.ask_only(), root: team, objects: Some(1), bytes: None, terms: Terms::NONE };
    assert_eq!(world.refused(&mut peer, quota), Status::EPERM);
    let ask = get(&mut peer, team, Want::Exclusive);
    world.send(&mut peer, &[ask]);
    let got = world.got_one(&peer);
    assert!(matches!(got.reply(), Reply::Stated(stated) if stated.grant.mode == Want::Shared), "no more than it may: {got:?}");
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# A step of LOOKUP in a directory that a principal may pass through and not read MUST fail with EACCES, whether there is such a name or
//# not, unless it names a directory in a realm in which the principal has a right.
#[test]
fn names_on_the_way_to_a_realm_are_not_told() {
    let mut world = World::new();
    let mut all = world.open(1);
    world.create(&mut all, "f");
    world.realm(&mut all, ROOT, "other");
    let (_, team) = world.realm(&mut all, ROOT, "team");
    let who = world.principal("web", &[(team, "l")]);
    let mut peer = world.open_as(2, who);
    for (name, steps, status) in
        [("team", 2, Status::OK), ("other", 1, Status::EACCES), ("f", 1, Status::EACCES), ("none", 1, Status::EACCES)]
    {
        let names = [Bytes8(name.as_bytes())];
        let lookup = Lookup { ask: peer.ask_only(), start: ROOT, names: List::of(&names), want: Want::Nothing };
        world.send(&mut peer, &[lookup.into()]);
        let got = world.got_one(&peer);
        let Reply::Walked(walked) = got.reply() else { panic!("{got:?}") };
        assert_eq!((walked.steps.len(), walked.status), (steps, status), "{name}");
    }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# LIST_LOCKS MUST leave out the locks of objects that the principal may not read.
#[test]
fn locks_in_hidden_realms_are_not_listed_and_do_not_end_the_list() {
    let mut world = World::new();
    let mut all = world.open(1);
    let hidden: Vec<ObjectId> = (0..40).map(|n| world.create(&mut all, &alloc::format!("f{n}")).object).collect();
    let (team, realm) = world.realm(&mut all, ROOT, "team");
    for object in hidden.iter().copied().chain([team]) {
        world.lock(&mut all, object);
    }
    let who = world.principal("web", &[(realm, "r")]);
    let mut peer = world.open_as(2, who);
    for places in [false, true] {
        let zero = ObjectId(0);
        let list = ListLocks { ask: peer.ask_only(), object: zero, after_object: zero, after_row: 0, places };
        world.send(&mut peer, &[list.into()]);
        let got = world.got_one(&peer);
        let Reply::LockRows(rows) = got.reply() else { panic!("{got:?}") };
        assert_eq!((rows.rows.iter().map(|row| row.lock.object).collect::<Vec<_>>(), rows.end), ([team].to_vec(), true));
    }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# When rights in a realm are withdrawn the server MUST demand the cache locks there that they allowed, and end the waits for advisory
//# locks there that they allowed.
#[test]
fn who_loses_rights_loses_caches_waits_and_watches_and_keeps_its_locks() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (file, other) = (world.create(&mut all, "f").object, world.create(&mut all, "g").object);
    let who = world.principal("web", &[(Realm::TREE, "rl")]);
    let mut peer = world.open_as(2, who);
    world.lock(&mut all, file);
    let held = world.lock(&mut peer, other);
    let cached = world.cache(&mut peer, other);
    let watch = Watch { ask: peer.ask_only(), object: file };
    world.send(&mut peer, &[watch.into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Watched(_)));
    let wait = lock(peer.ask_only(), file, LockWait::Queue);
    world.send(&mut peer, &[wait.into()]);
    assert_eq!(world.got_one(&peer).message().kind(), Kind::Queued);
    assert_eq!(world.got_one(&all).message().kind(), Kind::Demand);
    world.grant(who, Realm::TREE, "");
    let got = world.got(&peer);
    let told: Vec<Message<'_>> = got.iter().map(|got| got.message()).collect();
    let over = WaitOver { seq: 1, nonce: peer.nonce, lock: advisory(file), status: Status::ESTALE };
    let demand = Demand { seq: 2, lock: cache_lock(other), generation: cached, keep: Keep::Nothing };
    assert_eq!(told, [over.into(), demand.into()]);
    // The change is not told; the lock is not taken away.
    let change = set_mode(&mut all, file, 0o600);
    world.send(&mut all, &[change]);
    assert!(matches!(world.got_one(&all).reply(), Reply::Changed(_)));
    world.expect(&peer, &[]);
    assert_eq!(world.server.status(world.now).watches, 0);
    let items = [
        ReleaseItem { lock: cache_lock(other), generation: cached, keep: Keep::Nothing },
        ReleaseItem { lock: advisory(other), generation: held, keep: Keep::Nothing },
    ];
    let release = Release { serial: peer.serial(), items: List::of(&items) };
    let receipts = [1, 2].map(|seq| Receipt { seq, answer: ReceiptAnswer::Received });
    world.send(&mut peer, &[receipts[0].into(), receipts[1].into(), release.into()]);
    let got = world.got_one(&peer);
    let Message::Released(released) = got.message() else { panic!("{got:?}") };
    assert!(released.items.iter().all(|item| item.keep == Keep::Nothing && item.now.0 == 0), "both were held: {released:?}");
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# From then on the server MUST NOT grant what was waited for, unless the rights that are left allow it.
#[test]
fn what_is_free_before_its_waiter_is_judged_again_goes_to_nobody_without_right() {
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let (one, two) = (world.principal("one", &[(Realm::TREE, "rl")]), world.principal("two", &[(Realm::TREE, "rl")]));
    let held = world.lock(&mut all, file);
    // The pass needs a turn for each session before them.
    let _others: Vec<_> = (2..6).map(|n| world.open(n)).collect();
    let (mut loses, mut keeps) = (world.open_as(6, one), world.open_as(7, two));
    let mut late = world.open(8);
    for peer in [&mut loses, &mut keeps, &mut late] {
        let wait = lock(peer.ask_only(), file, LockWait::Queue);
        world.send(peer, &[wait.into()]);
        assert_eq!(world.got_one(peer).message().kind(), Kind::Queued);
    }
    world.got(&all);
    for (who, rights) in [(one, Rights::NONE), (two, Rights::from_letters("l").unwrap())] {
        world.server.grant(world.now, who, Realm::TREE, rights).unwrap();
    }
    let items = [ReleaseItem { lock: advisory(file), generation: held, keep: Keep::Nothing }];
    let release = Release { serial: all.serial(), items: List::of(&items) };
    world.send(&mut all, &[release.into()]);
    (0..40).for_each(|_| world.turn());
    let over = WaitOver { seq: 1, nonce: loses.nonce, lock: advisory(file), status: Status::ESTALE };
    assert_eq!(world.got_one(&loses).message(), over.into());
    let got: Vec<_> = world.got(&keeps).iter().map(|got| got.message().kind()).collect();
    assert_eq!(got, [Kind::Grant, Kind::Demand], "it keeps its place before who came later");
    world.expect(&late, &[]);
    assert_eq!(world.got_one(&all).message().kind(), Kind::Released);
}

#[test]
fn who_begins_a_realm_may_do_everything_in_it_and_its_rights_outlive_a_restart() {
    let mut world = World::with(Config::default());
    world.pass(Config::default().wait());
    let who = world.principal("web", &[(Realm::TREE, "rwo")]);
    let mut peer = world.open_as(1, who);
    let (team, realm) = world.realm(&mut peer, ROOT, "team");
    let make = MakeRealm { ask: peer.ask_only(), dir: team, name: Bytes8(b"x"), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
    let writer = world.principal("db", &[(Realm::TREE, "rw")]);
    world.send(&mut peer, &[make.into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::Changed(_)), "own inside");
    let mut other = world.open_as(2, writer);
    let make = MakeRealm { ask: other.ask_only(), dir: ROOT, name: Bytes8(b"y"), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
    assert_eq!(world.refused(&mut other, make), Status::EACCES, "to write is not to own");
    let disk = core::mem::take(&mut world.disk);
    let world = World::on(disk, Config::default(), 8);
    let record = world.server.principals().into_iter().find(|row| row.id == who).and_then(|row| row.record).unwrap();
    assert_eq!((&*record.name, record.rights.len()), (&b"web"[..], 3));
    assert!(record.rights.contains(&(realm, Rights::ALL.without(Rights::PASS))));
    assert_eq!(world.server.principal_named(b"db"), Some(writer));
}

#[test]
fn a_realm_is_begun_only_by_who_has_room_for_rights_in_it() {
    let mut world = World::new();
    let who = world.principal("web", &[(Realm::TREE, "rwo")]);
    let mut peer = world.open_as(1, who);
    let rights = |world: &World| world.server.principal(who).unwrap().rights.len();
    for n in rights(&world)..GRANTS_MAX - 1 {
        world.realm(&mut peer, ROOT, &alloc::format!("r{n}"));
    }
    let item = |name| -> Item<'_> {
        MakeRealm { ask: Ask::NONE, dir: ROOT, name: Bytes8(name), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE }.into()
    };
    let (x, y) = ([item(b"x"), item(b"y")], [item(b"y")]);
    let refused = |world: &mut World, peer: &mut Peer, items: &[Item<'_>]| {
        let batch = Batch { ask: peer.ask_only(), items: List::of(items), terms: Terms::NONE };
        world.send(peer, &[batch.into()]);
        let got = world.got_one(peer);
        let Reply::BatchFailed(failed) = got.reply() else { panic!("{got:?}") };
        (failed.status, failed.item)
    };
    assert_eq!(refused(&mut world, &mut peer, &x), (Status::ENOSPC, 1), "one more is made already");
    let (_, last) = world.realm(&mut peer, ROOT, "x");
    assert!(world.server.principal(who).unwrap().rights.iter().any(|(realm, _)| *realm == last) && rights(&world) == GRANTS_MAX);
    assert_eq!(refused(&mut world, &mut peer, &y), (Status::ENOSPC, 0));
    // Rights in a realm that is gone take no room.
    let gone = Rmdir { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"x"), terms: Terms::NONE };
    world.changes(&mut peer, gone);
    let (_, next) = world.realm(&mut peer, ROOT, "y");
    let record = world.server.principal(who).unwrap();
    assert!(record.rights.len() == GRANTS_MAX && record.rights.iter().all(|(realm, _)| *realm != last));
    assert!(record.rights.iter().any(|(realm, _)| *realm == next));
}

#[test]
fn a_revoked_principal_s_sessions_end_by_d_when_that_is_durable() {
    let mut world = World::new();
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let who = world.principal("web", &[(Realm::TREE, ALL)]);
    let mut peer = world.open_as(2, who);
    world.lock(&mut peer, file);
    world.stalled = true;
    let batch = world.server.revoke(world.now, who).unwrap();
    world.turn();
    assert!(world.server.durable_up_to() < batch);
    let ask = get(&mut peer, file, Want::Nothing);
    assert_eq!(world.refused(&mut peer, ask), Status::ESTALE, "it may do nothing at once");
    assert_eq!(world.server.status(world.now).timing_out, 0);
    world.stalled = false;
    (0..2).for_each(|_| world.turn());
    assert_eq!(world.server.status(world.now).timing_out, 1);
    let ask = get(&mut peer, file, Want::Nothing);
    world.send(&mut peer, &[ask]);
    assert_eq!(world.got_one(&peer).message().kind(), Kind::Nack);
    let taken = lock(all.ask_only(), file, LockWait::Try);
    world.send(&mut all, &[taken.into()]);
    assert!(matches!(world.got_one(&all).reply(), Reply::LockRefused(_)), "not before T");
    world.pass(Config::default().wait() + ms(1));
    world.got(&peer);
    world.lock(&mut all, file);
}

#[test]
fn what_was_offered_to_a_principal_opens_no_session_once_its_key_is_revoked() {
    let mut world = World::new();
    let (who, other) = (world.principal("web", &[]), world.principal("db", &[]));
    let mut peers = [(1, who), (2, other)].map(|(n, principal)| {
        world.as_principal(principal);
        let mut peer = Peer::new(n);
        world.offer(&mut peer);
        peer
    });
    world.server.revoke(world.now, who).unwrap();
    world.turn();
    let kinds = peers.each_mut().map(|peer| {
        world.confirm(peer, &[]);
        world.got_one(peer).message().kind()
    });
    assert_eq!(kinds, [Kind::Hint, Kind::Opened]);
}

#[test]
fn a_lock_is_reclaimed_by_its_own_principal_if_that_may_still_take_it() {
    let cases = [(true, "rl", Status::OK), (true, "r", Status::EACCES), (true, "", Status::ESTALE), (false, "rl", Status::NOT_HELD)];
    for (own, letters, expected) in cases {
        let mut world = World::with(Config::default());
        world.pass(Config::default().wait());
        let mut all = world.open(1);
        let file = world.create(&mut all, "f").object;
        let who = world.principal("web", &[(Realm::TREE, "rl")]);
        let mut peer = world.open_as(2, who);
        let generation = world.lock(&mut peer, file);
        let former = peer.session;
        let other = world.principal("db", &[(Realm::TREE, "rl")]);
        let disk = core::mem::take(&mut world.disk);
        let mut world = World::on(disk, Config::default(), 8);
        world.grant(who, Realm::TREE, letters);
        world.as_principal(if own { who } else { other });
        world.open_again(&mut peer, &[(former, Claim::Reclaiming)]);
        let items = [ReclaimItem { lock: advisory(file), mode: Mode::Exclusive, generation, first: generation, run: 1_024, version: 0 }];
        let reclaim = Reclaim { ask: peer.ask_only(), from: former, items: List::of(&items) };
        world.send(&mut peer, &[reclaim.into()]);
        let got = world.got_one(&peer);
        let Reply::Reclaimed(reclaimed) = got.reply() else { panic!("{got:?}") };
        assert_eq!(reclaimed.items.iter().next().unwrap().status, expected, "{letters:?}");
    }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# So MUST one that would leave a principal with more objects or bytes than before, of those that it made, and more than its quota.
#[test]
fn what_a_principal_has_made_is_bounded_by_its_quota_whoever_changes_it() {
    let mut world = World::with(Config::default());
    world.pass(Config::default().wait());
    let mut all = world.open(1);
    let who = world.principal("web", &[(Realm::TREE, ALL)]);
    let mut peer = world.open_as(2, who);
    world.realm(&mut peer, ROOT, "team");
    let file = world.create(&mut peer, "f").object;
    world.server.limit(world.now, who, Some(2), Some(4)).unwrap();
    world.turn();
    let over = |limit, used, bound| Limited { limit, whose: Whose::Principal, realm: Realm(0), used, bound, retry_ms: 0 };
    let more = create(peer.ask_only(), "g", Want::Nothing);
    assert_eq!(world.limited(&mut peer, more), over(Limit::Objects, 2, 2));
    for peer in [&mut peer, &mut all] {
        let long = write(peer.ask_only(), file, b"12345");
        assert_eq!(world.limited(peer, long), over(Limit::Bytes, 0, 4));
    }
    let short = write(all.ask_only(), file, b"1234");
    world.changes(&mut all, short);
    // What another makes is the other's, and what is removed leaves room.
    let own = world.create(&mut all, "g").object;
    let much = write(peer.ask_only(), own, b"12345");
    world.changes(&mut peer, much);
    let disk = core::mem::take(&mut world.disk);
    let mut world = World::on(disk, Config::default(), 8);
    let account = AccountRecord { objects: 2, bytes: 4, objects_max: 2, bytes_max: 4 };
    assert_eq!(world.server.principals().into_iter().find(|row| row.id == who).map(|row| row.account), Some(account));
    world.pass(Config::default().wait());
    let mut peer = world.open_as(2, who);
    let unlink = Unlink { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"f"), force: false, terms: Terms::NONE };
    world.changes(&mut peer, unlink);
    world.create(&mut peer, "h");
    assert_eq!(world.server.limit(world.now, PrincipalId(9), Some(1), None), Err(Status::ENOENT));
}

#[test]
fn use_is_told_by_principal() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (file, other) = (world.create(&mut all, "f").object, world.create(&mut all, "g").object);
    let who = world.principal("web", &[(Realm::TREE, ALL)]);
    let (mut one, mut two) = (world.open_as(2, who), world.open_as(3, who));
    world.lock(&mut one, file);
    world.lock(&mut two, other);
    let wait = lock(two.ask_only(), file, LockWait::Queue);
    world.send(&mut two, &[wait.into()]);
    world.got(&two);
    world.got(&one);
    let watch = Watch { ask: two.ask_only(), object: file };
    let stage = Stage { ask: two.ask_only(), stage: 1, total: 5, offset: 0, data: Bytes16(b"abc") };
    for message in [Message::from(watch), stage.into()] {
        world.send(&mut two, &[message]);
        world.got_one(&two);
    }
    let rows = world.server.principals();
    let told: Vec<_> =
        rows.iter().map(|row| (row.id, row.sessions.now, row.locks.now, row.waits.now, row.watches.now, row.staged.now)).collect();
    assert_eq!(told, [(PrincipalId::ANYBODY, 1, 0, 0, 0, 0), (who, 2, 2, 1, 1, 3)]);
    assert!(rows[0].record.is_none() && rows[1].record.is_some());
}

#[test]
fn anybody_may_ask_how_the_server_is() {
    let mut world = World::new();
    let who = world.principal("web", &[]);
    let mut peer = world.open_as(1, who);
    let ask = ServerStatus { ask: peer.ask_only() };
    world.send(&mut peer, &[ask.into()]);
    assert!(matches!(world.got_one(&peer).reply(), Reply::ServerReport(_)));
    let make = create(peer.ask_only(), "f", Want::Nothing);
    assert_eq!(world.refused(&mut peer, make), Status::ESTALE);
}

/// As after a restore of a copy that is older than a revocation.
#[test]
fn what_was_revoked_elsewhere_is_so_before_the_first_answer() {
    let mut world = World::new();
    let (now, rights) = (world.now, Rights::from_letters("rw").unwrap());
    let (who, _) = world.server.add_principal(now, b"web", Some([1; 32]), true).unwrap();
    world.server.grant(now, who, Realm::TREE, rights).unwrap();
    world.turn();
    let config = world.server.config.clone();
    let mut again = World::starting(core::mem::take(&mut world.disk), config, 9);
    again.server.know_revoked(again.now, [[1; 32], [8; 32]]);
    again.turn();
    assert!(again.server.is_serving());
    for _ in 0..2 {
        let record = again.server.principals.get(who).unwrap();
        assert!(record.revoked && !record.operator && record.rights.is_empty(), "{record:?}");
        assert_eq!(again.server.revoked_keys().collect::<Vec<_>>(), [[1; 32], [8; 32]]);
        let taken = again.server.add_principal(again.now, b"new", Some([8; 32]), false);
        assert_eq!(taken.map(|_| ()), Err(Status::EEXIST), "also of whom the copy knew nothing");
        again.crash();
    }
}

/// What it waits for has a holder, of whom it hears as long as it may wait.
//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# A copy of a queued LOCK that its rights no longer allow MUST be told of no holder, and of nobody ahead.
#[test]
fn a_copy_of_a_queued_lock_tells_nothing_when_its_right_is_gone() {
    let mut world = World::new();
    let mut holder = world.open(1);
    let file = world.create(&mut holder, "f").object;
    let who = world.principal("web", &[(Realm::TREE, "rl")]);
    let mut waiter = world.open_as(2, who);
    world.lock(&mut holder, file);
    let ask = waiter.ask();
    let told = |world: &mut World, waiter: &mut Peer| {
        world.send(waiter, &[lock(ask, file, LockWait::Queue).into()]);
        let queued = world.got(waiter).iter().find_map(|got| match got.message() {
            Message::Queued(queued) => Some((queued.ahead, queued.holder.handle, queued.holder.label.0.to_vec())),
            _ => None,
        });
        queued.expect("it is answered QUEUED")
    };
    let first = told(&mut world, &mut waiter);
    drop(world.got(&holder));
    assert_ne!((first.1.0, first.2.len()), (0, 0), "{first:?}");
    world.grant(who, Realm::TREE, "");
    drop(world.got(&waiter));
    world.send(&mut waiter, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    let (ahead, handle, label) = told(&mut world, &mut waiter);
    assert_eq!((ahead, handle.0, label), (0, 0, Vec::new()));
}

#[test]
fn who_sees_nothing_of_a_realm_is_told_nothing_of_what_is_in_it() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (full, _) = world.realm(&mut all, ROOT, "full");
    world.realm(&mut all, ROOT, "empty");
    let make = Create { dir: full, ..create(all.ask_only(), "x", Want::Nothing) };
    world.changes(&mut all, make);
    let who = world.principal("web", &[(Realm::TREE, "rw")]);
    let mut peer = world.open_as(2, who);
    let make = Mkdir { ask: peer.ask_only(), dir: ROOT, name: Bytes8(b"d"), mode: 0o755, uid: 0, gid: 0, terms: Terms::NONE };
    world.changes(&mut peer, make);
    for name in [&b"full"[..], b"empty"] {
        let (ask, terms) = (peer.ask_only(), Terms::NONE);
        assert_eq!(world.refused(&mut peer, Rmdir { ask, dir: ROOT, name: Bytes8(name), terms }), Status::ESTALE);
        let (ask, rule, force) = (peer.ask_only(), RenameRule::Replace, false);
        let replace = Rename { ask, from_dir: ROOT, from_name: Bytes8(b"d"), to_dir: ROOT, to_name: Bytes8(name), rule, force, terms };
        assert_eq!(world.refused(&mut peer, replace), Status::ESTALE);
    }
    // An operator without rights sets quotas, and learns nothing by trying.
    let (op, _) = world.server.add_principal(world.now, b"op", None, true).unwrap();
    world.turn();
    let mut op = world.open_as(3, op);
    for object in [ObjectId(full.0 + 2), ObjectId(4_711)] {
        let ask = op.ask_only();
        let set = SetQuota { ask, root: object, objects: Some(1), bytes: None, terms: Terms::NONE };
        assert_eq!(world.refused(&mut op, set), Status::ESTALE);
    }
}

#[test]
fn an_item_that_only_shows_takes_read_beside_others_too() {
    let mut world = World::new();
    let mut all = world.open(1);
    world.create(&mut all, "f");
    let who = world.principal("web", &[(Realm::TREE, "w")]);
    let mut peer = world.open_as(2, who);
    let plain = |name| Create { exclusive: false, ..create(Ask::NONE, name, Want::Nothing) };
    let items: [Item<'_>; 2] = [plain("new").into(), plain("f").into()];
    let batch = Batch { ask: peer.ask_only(), items: List::of(&items), terms: Terms::NONE };
    assert_eq!(world.refused(&mut peer, batch), Status::EACCES);
}
