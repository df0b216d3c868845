//! Joining: a key is registered and the invite spent together, once, whatever is lost and whenever the server dies.

use super::rights::ALL;
use super::world::World;
use crate::invites::InviteId;
use crate::principals::Rights;
use crate::server::joining::{Joined, NewInvite, NotJoined};
use crate::store::tests::disk::Disk;
use crate::store::{Counter, Key, PrincipalRecord, RESTORED};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::{Realm, Status};
use core::net::IpAddr;
use core::time::Duration;

const FROM: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 1));
const ELSEWHERE: IpAddr = IpAddr::V4(core::net::Ipv4Addr::new(10, 0, 0, 2));
const HOUR: u64 = 3_600;

pub(super) fn new(id: u64, name: &str, uses: u16) -> NewInvite {
    let rights = vec![(Realm::TREE, Rights::from_letters("rl").unwrap())];
    NewInvite { id: InviteId(id), secret: [9; 16].into(), name: name.into(), operator: false, rights, uses, within_s: HOUR }
}

impl World {
    fn invite(&mut self, id: u64, name: &str, uses: u16) -> u64 {
        let (expires_s, _) = self.server.invite(self.now, new(id, name, uses)).unwrap();
        self.turn();
        expires_s
    }

    fn is_good(&mut self, id: u64) -> bool {
        self.server.step(self.now, |server| server.good_invite(InviteId(id)).is_some())
    }

    fn join(&mut self, id: u64, key: u8) -> Result<Joined, NotJoined> {
        self.server.step(self.now, |server| server.join_key(InviteId(id), [key; 32], FROM))
    }

    fn record_of(&self, joined: Joined) -> PrincipalRecord {
        self.server.principal(joined.principal).unwrap().clone()
    }

    fn has(&self, key: &Key) -> bool {
        self.disk.values.contains_key(key)
    }
}

//= docs/sealed.md#joining-rosters
//= type=test
//# The same key MUST be answered alike again until the invite expires; another key MUST NOT be registered beyond the uses of the invite.
#[test]
fn who_joins_is_a_principal_with_the_rights_of_the_invite_and_is_told_the_same_again() {
    let mut world = World::new();
    world.invite(7, "web", 1);
    let joined = world.join(7, 1).unwrap();
    let record = world.record_of(joined);
    assert_eq!((&*record.name, record.key, record.operator, record.revoked), (&b"web"[..], Some([1; 32]), false, false));
    assert_eq!(record.rights, [(Realm::TREE, Rights::READ.with(Rights::LOCK))]);
    assert_eq!(world.join(7, 1), Ok(joined), "before it is durable");
    world.turn();
    assert!(world.server.durable_up_to() >= joined.batch);
    assert_eq!(world.join(7, 1).unwrap().principal, joined.principal, "after");
    assert!(world.join(7, 1).unwrap().batch <= world.server.durable_up_to(), "an answer to it waits for nothing more");
    let refused = world.server.step(world.now, |server| server.join_key(InviteId(7), [2; 32], ELSEWHERE)).unwrap_err();
    assert!(matches!(refused, NotJoined::Spent { from: FROM, .. }), "{refused:?}");
    assert_eq!(world.server.principals.iter().count(), 1);
}

/// The server dies at each number of durable batches, and the host asks again.
//= docs/sealed.md#joining-rosters
//= type=test
//# A server MUST register the key and spend the invite in one transaction, and answer when it is durable.
#[test]
fn a_crash_leaves_both_the_key_and_its_use_or_neither() {
    for durable in [false, true] {
        let mut world = World::new();
        world.invite(7, "web", 1);
        world.stalled = !durable;
        let first = world.join(7, 1).unwrap();
        world.turn();
        world.stalled = false;
        world.crash();
        let registered = world.server.principals.iter().count();
        assert_eq!(registered, usize::from(durable));
        let spent = world.server.invites().next().unwrap().1.used.len();
        assert_eq!(spent, registered, "both or neither");
        // If nothing was kept, nobody was told, and any key may still come.
        let key = if durable { 1 } else { 2 };
        let again = world.join(7, key).unwrap();
        assert_eq!(again.principal, first.principal);
        world.turn();
        assert!(matches!(world.join(7, 3), Err(NotJoined::Spent { .. })));
    }
}

//= docs/sealed.md#joining-rosters
//= type=test
//# A revoked key MUST NOT be registered again.
#[test]
fn a_revoked_key_does_not_join_again() {
    let mut world = World::new();
    world.invite(7, "web", 2);
    let joined = world.join(7, 1).unwrap();
    world.turn();
    world.server.revoke(world.now, joined.principal).unwrap();
    world.turn();
    assert_eq!(world.join(7, 1), Err(NotJoined::Revoked));
    let other = world.join(7, 2).unwrap();
    assert_eq!(&*world.record_of(other).name, b"web-2");
    assert_eq!(world.join(9, 1), Err(NotJoined::Revoked), "by another invite neither");
}

/// As after a restore of a copy that is older than a revocation.
#[test]
fn what_was_revoked_elsewhere_is_so_before_the_first_answer() {
    let mut world = World::new();
    world.invite(7, "web", 3);
    let joined = world.join(7, 1).unwrap();
    world.turn();
    let config = world.server.config.clone();
    let mut again = World::starting(core::mem::take(&mut world.disk), config, 9);
    again.server.know_revoked(again.now, [[1; 32], [8; 32]]);
    again.turn();
    assert!(again.server.is_serving());
    assert!(again.record_of(joined).revoked && again.record_of(joined).rights.is_empty());
    assert_eq!((again.join(7, 1), again.join(7, 8)), (Err(NotJoined::Revoked), Err(NotJoined::Revoked)));
    assert_eq!(again.server.admit_key(again.now, b"new", [8; 32], false, &[]), Err(Status::EACCES));
    assert_eq!(again.server.revoked_keys().collect::<Vec<_>>(), [[1; 32], [8; 32]]);
    let (rights, now) = ([(Realm::TREE, Rights::READ)], again.now);
    let other = again.server.admit_key(now, b"web", [2; 32], true, &rights).unwrap();
    assert_eq!(again.server.admit_key(now, b"other", [2; 32], false, &[]), Ok(other), "a key that is known is not registered again");
    assert!(again.record_of(other).operator && again.record_of(other).rights == rights);
    again.crash();
    assert_eq!(again.server.revoked_keys().count(), 2);
}

/// As after a snapshot of etcd, which has all that the store had.
//= docs/sealed.md#joining-rosters
//= type=test
//# A restored store MUST have no invites: those of the copy may have been spent or withdrawn since.
#[test]
fn a_copy_with_invites_is_restored_without_them() {
    let mut world = World::new();
    world.invite(7, "web", 1);
    let mut copy = Disk { values: world.disk.values.clone(), ..Disk::default() };
    assert!(copy.values.contains_key(&Key::Invite(InviteId(7))));
    copy.set_counter(Counter::Restored, RESTORED);
    let mut restored = World::on(copy, world.server.config.clone(), 9);
    assert_eq!(restored.join(7, 2), Err(NotJoined::Unknown));
    assert!(!restored.has(&Key::Invite(InviteId(7))), "in the store neither");
}

#[test]
fn an_invite_expires_by_a_clock_that_never_goes_back() {
    let mut world = World::new();
    world.server.set_wall_clock(world.now, 1_700_000_000_000_000_000);
    let expires = world.invite(7, "web", 2);
    assert_eq!(expires, 1_700_000_000 + HOUR);
    world.join(7, 1).unwrap();
    world.turn();
    assert!(world.disk.counter(Counter::Clock) >= 1_700_000_000 - 60);
    // Set back by a day, and the server restarted.
    world.server.set_wall_clock(world.now, 1_699_900_000_000_000_000);
    world.crash();
    world.server.set_wall_clock(world.now, 1_699_900_000_000_000_000);
    world.pass(Duration::from_secs(HOUR - 120));
    assert!(world.is_good(7));
    world.pass(Duration::from_secs(180));
    assert!(!world.is_good(7));
    world.turn();
    assert!(!world.has(&Key::Invite(InviteId(7))), "what has expired is kept no longer");
    assert_eq!(world.join(7, 2), Err(NotJoined::Unknown));
    assert!(world.join(7, 1).is_ok(), "who is registered stays so");
}

#[test]
fn an_invite_that_cannot_be_kept_is_refused() {
    let mut world = World::new();
    let mut invite = |change: fn(&mut NewInvite)| {
        let mut asked = new(7, "web", 1);
        change(&mut asked);
        world.server.invite(world.now, asked).map(|_| ())
    };
    assert_eq!(invite(|new| new.name.clear()), Err(Status::EINVAL));
    assert_eq!(invite(|new| new.uses = 0), Err(Status::EINVAL));
    assert_eq!(invite(|new| new.within_s = 40 * 24 * HOUR), Err(Status::EINVAL));
    assert_eq!(invite(|new| (new.uses, new.name) = (2, vec![b'a'; 62])), Err(Status::EINVAL));
    assert_eq!(invite(|new| new.rights[0].0 = Realm(77)), Err(Status::ENOENT));
    assert_eq!(invite(|_| {}), Ok(()));
    assert_eq!(invite(|_| {}), Err(Status::ENOSPC), "the id is taken");
    assert_eq!(world.server.withdraw_invites(world.now, b"web").map(|(count, _)| count), Ok(1));
    assert_eq!(world.server.withdraw_invites(world.now, b"web").map(|(count, _)| count), Err(Status::ENOENT));
    assert_eq!(world.join(7, 1), Err(NotJoined::Unknown));
}

#[test]
fn names_that_are_taken_are_passed_over() {
    let mut world = World::new();
    world.invite(7, "web", 1);
    world.invite(8, "db", 2);
    world.principal("web", &[(Realm::TREE, ALL)]);
    world.principal("db-1", &[]);
    assert_eq!(world.join(7, 1), Err(NotJoined::Refused(Status::EEXIST)));
    let names: Vec<_> = [2, 3].map(|key| world.join(8, key).map(|joined| world.record_of(joined).name)).into_iter().flatten().collect();
    assert_eq!(names, [(*b"db-2").into(), (*b"db-3").into()]);
}
