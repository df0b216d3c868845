//! Grants by owners of realms: who may give what to whom, what a withdrawal ends, and what it costs whom.

use super::sealed::{Peer as Key, Sealed};
use super::world::{Peer, ROOT, World, advisory, cache_lock, create, lock};
use crate::Config;
use crate::ids::Owner;
use crate::principals::{GRANTS_MAX, OWNERS_GRANTS_MAX, OWNERS_NEAR_MAX, PrincipalId, Rights};
use crate::scheduler::prices;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Create, Demand, Generation, Keep, Kind, List, Lock, LockWait, Message, Mode, ObjectId, Realm, Release, ReleaseItem, Reply, Status,
    WaitOver, Want,
};
use core::time::Duration;

fn rights(letters: &str) -> Rights {
    if letters.is_empty() { Rights::NONE } else { Rights::from_letters(letters).unwrap() }
}

impl World {
    fn grant_by(&mut self, by: PrincipalId, who: PrincipalId, realm: Realm, letters: &str) -> Result<(), Status> {
        self.server.grant_by(self.now, by, who, realm, rights(letters)).map(|_| ())
    }

    fn create_in(&mut self, peer: &mut Peer, dir: ObjectId, name: &str) -> ObjectId {
        let make = Create { dir, ..create(peer.ask_only(), name, Want::Nothing) };
        self.send(peer, &[make.into()]);
        let got = self.got_one(peer);
        let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
        changed.effects.iter().nth(1).unwrap().attr.object
    }

    /// A request for a lock that has to wait.
    fn waits(&mut self, peer: &mut Peer, object: ObjectId, mode: Mode) {
        let wait = Lock { mode, ..lock(peer.ask_only(), object, LockWait::Queue) };
        self.send(peer, &[wait.into()]);
        assert_eq!(self.got_one(peer).message().kind(), Kind::Queued);
    }

    fn gives_back(&mut self, peer: &mut Peer, object: ObjectId, generation: Generation) {
        let items = [ReleaseItem { lock: advisory(object), generation, keep: Keep::Nothing }];
        let release = Release { serial: peer.serial(), items: List::of(&items) };
        self.send(peer, &[release.into()]);
    }

    fn kinds(&mut self, peer: &Peer) -> Vec<Kind> {
        self.got(peer).iter().map(|got| got.message().kind()).collect()
    }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# When rights in a realm are withdrawn the server MUST demand the cache locks there that they allowed, and end the waits for advisory
//# locks there that they allowed.
#[test]
fn what_an_owner_withdraws_ends_waits_and_caches_in_its_realm_and_nowhere_else() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (team, realm) = world.realm(&mut all, ROOT, "team");
    let (outer, inner) = (world.create(&mut all, "f").object, world.create_in(&mut all, team, "f"));
    let owner = world.principal("owner", &[(realm, "o")]);
    let who = world.principal("web", &[(Realm::TREE, "rl"), (realm, "rl")]);
    let mut peer = world.open_as(2, who);
    let held = [outer, inner].map(|file| world.lock(&mut all, file));
    world.waits(&mut peer, outer, Mode::Exclusive);
    world.waits(&mut peer, inner, Mode::Exclusive);
    let nonce = peer.nonce;
    let kept = world.cache(&mut peer, ROOT);
    let cached = world.cache(&mut peer, team);
    world.got(&all);
    world.grant_by(owner, who, realm, "").unwrap();
    (0..4).for_each(|_| world.turn());
    let over = WaitOver { seq: 1, nonce, lock: advisory(inner), status: Status::ESTALE };
    let demand = Demand { seq: 2, lock: cache_lock(team), generation: cached, keep: Keep::Nothing };
    world.expect(&peer, &[over.into(), demand.into()]);
    let slot = world.server.sessions.slot(world.server.sessions.find(peer.session).unwrap());
    assert_eq!(world.server.locks.held(slot, cache_lock(ROOT)), Some(kept));
    world.gives_back(&mut all, outer, held[0]);
    assert_eq!(world.kinds(&peer), [Kind::Grant], "its place in the realm around is as it was");
    world.got(&all);
    // All in that realm: what is left of its rights there decides, too.
    world.grant_by(owner, who, realm, "rl").unwrap();
    world.waits(&mut peer, inner, Mode::Exclusive);
    world.got(&all);
    world.grant_by(owner, who, realm, "r").unwrap();
    (0..4).for_each(|_| world.turn());
    let over = WaitOver { seq: 4, nonce: peer.nonce, lock: advisory(inner), status: Status::EACCES };
    world.expect(&peer, &[over.into()]);
}

#[test]
fn who_may_still_read_and_not_write_keeps_a_shared_cache_lock() {
    let mut world = World::new();
    let mut all = world.open(1);
    let files = ["f", "g"].map(|name| world.create(&mut all, name).object);
    let who = world.principal("web", &[(Realm::TREE, "rwl")]);
    let mut peer = world.open_as(2, who);
    world.cache(&mut peer, files[0]);
    let ask = super::rights::get(&mut peer, files[1], Want::Exclusive);
    world.send(&mut peer, &[ask]);
    let got = world.got_one(&peer);
    let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
    assert_eq!(stated.grant.mode, Want::Exclusive);
    world.grant(who, Realm::TREE, "r");
    let demand = Demand { seq: 1, lock: cache_lock(files[1]), generation: stated.grant.generation, keep: Keep::Shared };
    world.expect(&peer, &[demand.into()]);
    world.grant(who, Realm::TREE, "rl");
    world.expect(&peer, &[]);
}

#[test]
fn nobody_overtakes_a_waiter_that_keeps_its_right_and_one_that_lost_it_holds_up_nobody() {
    let mut world = World::with(Config { freed_per_turn: 1, volatile: true, ..Config::default() });
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let [keeps, loses] = ["keeps", "loses"].map(|name| world.principal(name, &[(Realm::TREE, "rl")]));
    let shared = Lock { mode: Mode::Shared, ..lock(all.ask_only(), file, LockWait::Queue) };
    world.send(&mut all, &[shared.into()]);
    let got = world.got_one(&all);
    let Reply::Granted(granted) = got.reply() else { panic!("{got:?}") };
    let (mut first, mut second, mut late) = (world.open_as(2, loses), world.open_as(3, keeps), world.open(4));
    world.waits(&mut first, file, Mode::Exclusive);
    world.waits(&mut second, file, Mode::Exclusive);
    world.got(&all);
    for (who, left) in [(loses, "r"), (keeps, "l")] {
        world.server.grant(world.now, who, Realm::TREE, rights(left)).unwrap();
    }
    // In the very turn, before anything was looked for: it stands behind.
    world.waits(&mut late, file, Mode::Shared);
    world.gives_back(&mut all, file, granted.generation);
    (0..20).for_each(|_| world.turn());
    assert_eq!(world.kinds(&first), [Kind::WaitOver]);
    assert_eq!(world.kinds(&second)[0], Kind::Grant);
    world.expect(&late, &[]);
    assert_eq!(world.kinds(&all), [Kind::Released]);
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# Who is no operator MUST NOT change what a principal may do in a realm, unless it owns that realm, or gives up rights of its own.
#[test]
fn an_owner_grants_in_its_realm_to_anybody_and_everybody_else_gives_up_some_of_its_own() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (_, realm) = world.realm(&mut all, ROOT, "team");
    let none = Realm(4_711);
    let owner = world.principal("owner", &[(realm, "o")]);
    let [one, two] = ["one", "two"].map(|name| world.principal(name, &[(Realm::TREE, "rwl")]));
    assert_eq!(world.grant_by(owner, one, realm, "rwlo"), Ok(()));
    assert_eq!(world.grant_by(owner, owner, realm, "ro"), Ok(()), "to own is to have what one likes");
    assert_eq!(world.grant_by(owner, PrincipalId(99), realm, "r"), Err(Status::ENOENT));
    // Nowhere else, and to nobody can be told whether there is such a realm.
    for (by, who, realm, letters) in
        [(owner, one, Realm::TREE, "r"), (owner, one, none, "r"), (two, two, realm, "r"), (two, one, realm, ""), (two, two, none, "")]
    {
        assert!(
            !world.server.may_grant(by, Some(who), realm, rights(letters)) && !world.server.may_grant(by, None, realm, rights(letters))
        );
        assert_eq!(world.grant_by(by, who, realm, letters), Err(Status::EPERM));
    }
    // Of its own, less and no more; it comes to nothing for whoever is not that principal.
    assert_eq!(world.grant_by(two, two, Realm::TREE, "rwlo"), Err(Status::EPERM));
    assert_eq!(world.grant_by(two, one, Realm::TREE, "r"), Err(Status::EPERM));
    assert_eq!(world.grant_by(two, two, Realm::TREE, "r"), Ok(()));
    assert_eq!(world.grant_by(two, two, Realm::TREE, "rw"), Err(Status::EPERM), "what is given up is gone");
    assert_eq!(world.grant_by(two, two, Realm::TREE, ""), Ok(()));
    // Owners withdraw from each other, and what one of them has granted stays when it is none.
    assert_eq!(world.grant_by(one, two, realm, "rl"), Ok(()));
    assert_eq!(world.grant_by(one, owner, realm, ""), Ok(()));
    assert_eq!(world.grant_by(owner, one, realm, ""), Err(Status::EPERM));
    let given = |world: &World, who| world.server.principals.asker(who).given(realm);
    assert_eq!([one, two].map(|who| given(&world, who)), [rights("rwlo"), rights("rl")]);
    world.server.revoke(world.now, one).unwrap();
    assert_eq!(world.grant_by(one, two, realm, ""), Err(Status::EPERM));
    assert_eq!(given(&world, two), rights("rl"));
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# An owner MUST NOT be the cause that a principal has rights in more than half as many realms as it may.
#[test]
fn owners_fill_half_of_the_realms_of_a_principal_and_it_makes_room_itself() {
    let mut world = World::new();
    let mut all = world.open(1);
    let owner = world.principal("owner", &[(Realm::TREE, "rwo")]);
    let who = world.principal("web", &[]);
    let mut peer = world.open_as(2, owner);
    let realms: Vec<Realm> = (0..=OWNERS_GRANTS_MAX).map(|n| world.realm(&mut peer, ROOT, &alloc::format!("r{n}")).1).collect();
    for realm in &realms[..OWNERS_GRANTS_MAX] {
        assert_eq!(world.grant_by(owner, who, *realm, "r"), Ok(()));
    }
    let last = realms[OWNERS_GRANTS_MAX];
    assert_eq!(world.grant_by(owner, who, last, "r"), Err(Status::EDQUOT));
    assert_eq!(world.grant_by(owner, who, realms[0], "rw"), Ok(()), "where it has rights they are changed");
    let more: Vec<Realm> = (0..GRANTS_MAX - OWNERS_GRANTS_MAX).map(|n| world.realm(&mut all, ROOT, &alloc::format!("s{n}")).1).collect();
    for realm in &more {
        assert_eq!(world.server.grant(world.now, who, *realm, rights("r")).map(|_| ()), Ok(()), "the rest is the operators'");
    }
    assert_eq!(world.server.grant(world.now, who, last, rights("r")).map(|_| ()), Err(Status::EDQUOT));
    for realm in more.iter().chain(&realms[..1]) {
        assert_eq!(world.grant_by(who, who, *realm, ""), Ok(()));
    }
    assert_eq!(world.grant_by(owner, who, last, "r"), Ok(()), "it has made room");
}

#[test]
fn who_owns_a_realm_leaves_places_to_owners_of_others() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (dir, outer) = world.realm(&mut all, ROOT, "outer");
    let (_, beside) = world.realm(&mut all, ROOT, "beside");
    let owner = world.principal("owner", &[(outer, "rwo")]);
    let other = world.principal("other", &[(beside, "o")]);
    let who = world.principal("web", &[(Realm::TREE, "r")]);
    let mut peer = world.open_as(2, owner);
    let inner: Vec<Realm> = (0..OWNERS_NEAR_MAX).map(|n| world.realm(&mut peer, dir, &alloc::format!("r{n}")).1).collect();
    for realm in &inner {
        assert_eq!(world.grant_by(owner, who, *realm, "r"), Ok(()));
    }
    assert_eq!(world.grant_by(owner, who, outer, "r"), Err(Status::EDQUOT));
    assert_eq!(world.grant_by(other, who, beside, "r"), Ok(()));
    assert_eq!(world.grant_by(owner, who, inner[0], ""), Ok(()));
    assert_eq!(world.grant_by(owner, who, outer, "r"), Ok(()));
}

#[test]
fn a_grant_of_what_is_given_writes_and_ends_nothing() {
    let mut world = World::new();
    let mut all = world.open(1);
    let (_, realm) = world.realm(&mut all, ROOT, "team");
    let owner = world.principal("owner", &[(realm, "o")]);
    let who = world.principal("web", &[(realm, "rl")]);
    let before = world.server.durable_up_to();
    for _ in 0..9 {
        assert_eq!(world.server.grant_by(world.now, owner, who, realm, rights("rl")), Ok(before));
    }
    assert!(!world.server.store.has_writes() && world.server.wake_after(world.now) != Some(Duration::ZERO));
}

#[test]
fn withdrawals_cost_a_slice_a_turn_however_many_there_are_and_whoever_withdraws_pays() {
    const SLICE: u32 = 7;
    let mut sealed = Sealed::with(Config { freed_per_turn: SLICE, volatile: true, ..Config::default() });
    let (mut owner, mut other) = (Key::new(1), Key::new(2));
    sealed.open(&mut owner);
    sealed.open(&mut other);
    let world = &mut sealed.world;
    let [by, who] = ["b", "c"].map(|name| world.server.principal_named(name.as_bytes()).unwrap());
    world.grant(by, Realm::TREE, "rwlo");
    let credit = |world: &mut World, who| world.server.scheduler.credit_of(Owner::Key(who)).unwrap();
    let (before, others) = (credit(world, by), credit(world, who));
    let places = world.server.sessions.places() + world.server.locks.hold_places() as usize;
    for _ in 0..50 {
        world.grant_by(by, who, Realm::TREE, "r").unwrap();
        world.grant_by(by, who, Realm::TREE, "rwl").unwrap();
    }
    assert!(places > 0);
    assert_eq!(before - credit(world, by), i32::try_from(prices::places(places)).unwrap(), "one pass serves all of them");
    assert_eq!(credit(world, who), others);
    assert_eq!(world.server.wake_after(world.now), Some(Duration::ZERO));
}

#[test]
fn what_withdrawals_end_is_looked_for_a_slice_a_turn() {
    const SLICE: u32 = 7;
    let mut world = World::with(Config { freed_per_turn: SLICE, volatile: true, ..Config::default() });
    let who = world.principal("web", &[(Realm::TREE, "rl")]);
    let mut peers: Vec<Peer> = (0..40).map(|n| world.open_as(2 + n, who)).collect();
    for peer in &mut peers {
        world.cache(peer, ROOT);
    }
    let places = world.server.sessions.places() + world.server.locks.hold_places() as usize;
    world.server.grant(world.now, who, Realm::TREE, rights("l")).unwrap();
    let mut turns = 0;
    while world.server.withdrawals.is_left() && turns < 1_000 {
        world.turn();
        turns += 1;
    }
    assert!((places / SLICE as usize..1_000).contains(&turns), "{turns} turns for {places} places");
    for peer in &peers {
        assert_eq!(world.kinds(peer), [Kind::Demand]);
    }
}

#[test]
fn what_is_withdrawn_before_a_key_is_revoked_lets_nothing_be_granted_to_it() {
    let mut world = World::new();
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let who = world.principal("web", &[(Realm::TREE, "rwl")]);
    let held = world.lock(&mut all, file);
    let mut peer = world.open_as(2, who);
    world.waits(&mut peer, file, Mode::Exclusive);
    world.got(&all);
    world.server.grant(world.now, who, Realm::TREE, rights("rl")).unwrap();
    world.stalled = true;
    world.server.revoke(world.now, who).unwrap();
    // The pass for what was withdrawn ends; that for the key has not begun.
    (0..9).for_each(|_| world.turn());
    world.gives_back(&mut all, file, held);
    (0..4).for_each(|_| world.turn());
    world.stalled = false;
    (0..4).for_each(|_| world.turn());
    assert_eq!(world.kinds(&peer), [Kind::WaitOver]);
    assert_eq!(world.kinds(&all), [Kind::Released]);
}

#[test]
fn nothing_that_a_revoked_principal_waits_for_is_granted_before_its_sessions_end() {
    let mut world = World::new();
    let mut all = world.open(1);
    let file = world.create(&mut all, "f").object;
    let who = world.principal("web", &[(Realm::TREE, "rl")]);
    let held = world.lock(&mut all, file);
    let mut peer = world.open_as(2, who);
    world.waits(&mut peer, file, Mode::Exclusive);
    world.got(&all);
    world.stalled = true;
    world.server.revoke(world.now, who).unwrap();
    world.gives_back(&mut all, file, held);
    (0..4).for_each(|_| world.turn());
    let over = WaitOver { seq: 1, nonce: peer.nonce, lock: advisory(file), status: Status::ESTALE };
    world.stalled = false;
    (0..4).for_each(|_| world.turn());
    let got = world.got(&peer);
    let told: Vec<Message<'_>> = got.iter().map(|got| got.message()).collect();
    assert_eq!(told, [over.into()]);
    world.got(&all);
    world.lock(&mut all, file);
}
