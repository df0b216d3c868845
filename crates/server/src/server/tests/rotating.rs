//! A principal's keys that follow one another: which of them are good, until when, and that its agents stay who they are.

use super::sealed::{Peer, Sealed};
use super::world::World;
use crate::invites::InviteId;
use crate::principals::PrincipalId;
use crate::server::joining::{FORMER_KEY_S, NotJoined};
use crate::store::Key;
use alloc::vec::Vec;
use cistern_wire::sealed::OpenStatus;
use cistern_wire::{Claim, FormerClaim, SessionFate, Status};
use core::net::{IpAddr, Ipv4Addr};

const FROM: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const NOW_S: u64 = 1_700_000_000;

/// A principal whose key is a number.
fn one(world: &mut World, name: &str, key: u8) -> PrincipalId {
    let who = world.server.admit_key(world.now, name.as_bytes(), [key; 32], false, &[]).unwrap().principal;
    world.turn();
    who
}

fn invite(world: &mut World, who: PrincipalId, id: u64) {
    world.server.invite_next_key(world.now, who, InviteId(id), [9; 16].into()).unwrap();
    world.turn();
}

fn join(world: &mut World, id: u64, key: [u8; 32]) -> Result<PrincipalId, NotJoined> {
    let joined = world.server.step(world.now, |server| server.join_key(InviteId(id), key, FROM)).map(|joined| joined.principal);
    world.turn();
    joined
}

fn rotate(world: &mut World, who: PrincipalId, id: u64, key: u8) {
    invite(world, who, id);
    assert_eq!(join(world, id, [key; 32]), Ok(who));
}

/// Which of the keys 1 to 4 open a session.
fn good(world: &mut World, who: PrincipalId) -> Vec<u8> {
    let now_s = world.server.step(world.now, crate::server::Server::clock_s);
    let record = world.server.principal(who).unwrap();
    (1..=4).filter(|key| record.takes(&[*key; 32], now_s)).collect()
}

fn at(world: &mut World, seconds: u64) {
    world.server.set_wall_clock(world.now, i64::try_from(seconds * 1_000_000_000).unwrap());
}

#[test]
fn the_newest_key_is_good_and_the_one_before_it_for_a_day() {
    let mut world = World::new();
    at(&mut world, NOW_S);
    let who = one(&mut world, "web", 1);
    rotate(&mut world, who, 7, 2);
    assert_eq!(good(&mut world, who), [1, 2]);
    assert_eq!(join(&mut world, 7, [2; 32]), Ok(who), "a lost answer is told again");
    assert!(matches!(join(&mut world, 7, [50; 32]), Err(NotJoined::Spent { .. })), "for one key");
    rotate(&mut world, who, 8, 3);
    assert_eq!(good(&mut world, who), [2, 3], "the oldest is dropped");
    rotate(&mut world, who, 9, 4);
    assert_eq!(good(&mut world, who), [3, 4]);
    let record = world.server.principal(who).unwrap();
    assert_eq!((&*record.name, record.identity()), (&b"web"[..], Some([1; 32])));
    // Set back, and killed: the day is over when it is over.
    at(&mut world, NOW_S + FORMER_KEY_S / 2);
    world.turn();
    world.crash();
    assert_eq!(good(&mut world, who), [3, 4]);
    at(&mut world, NOW_S);
    world.pass(core::time::Duration::from_secs(60));
    at(&mut world, NOW_S + FORMER_KEY_S);
    assert_eq!(good(&mut world, who), [4]);
    // What was its first key is nobody's else for ever: agents are told apart by it.
    world.server.invite(world.now, super::joining::new(20, "db", 1)).unwrap();
    assert_eq!(join(&mut world, 20, [1; 32]), Err(NotJoined::Revoked));
    assert_eq!(world.server.admit_key(world.now, b"db", [1; 32], false, &[]), Err(Status::EACCES));
}

#[test]
fn a_crash_leaves_the_rotation_and_its_use_or_neither() {
    for durable in [false, true] {
        let mut world = World::new();
        let who = one(&mut world, "web", 1);
        invite(&mut world, who, 7);
        world.stalled = !durable;
        world.server.step(world.now, |server| server.join_key(InviteId(7), [2; 32], FROM)).unwrap();
        world.turn();
        world.stalled = false;
        world.crash();
        assert_eq!(good(&mut world, who), if durable { &[1, 2][..] } else { &[1] });
        assert_eq!(world.server.invites().next().unwrap().1.used.len(), usize::from(durable));
        assert_eq!(join(&mut world, 7, [2; 32]), Ok(who), "it goes on from there");
    }
}

#[test]
fn a_retired_key_is_good_no_more() {
    let mut world = World::new();
    let who = one(&mut world, "web", 1);
    world.server.retire_former_key(world.now, who);
    assert_eq!(good(&mut world, who), [1], "there is none before the first");
    rotate(&mut world, who, 7, 2);
    world.server.retire_former_key(world.now, who);
    world.turn();
    assert_eq!(good(&mut world, who), [2]);
    world.crash();
    assert_eq!(good(&mut world, who), [2]);
}

#[test]
fn only_the_principal_s_own_next_key_joins_by_its_invite() {
    let mut world = World::new();
    let (web, db) = (one(&mut world, "web", 1), one(&mut world, "db", 5));
    invite(&mut world, web, 7);
    assert_eq!(join(&mut world, 7, [5; 32]), Err(NotJoined::Refused(Status::EEXIST)), "another one's key");
    assert_eq!((good(&mut world, web), world.server.principal(db).unwrap().key), ([1].into(), Some([5; 32])));
    // One at a time: who asks again has a lost answer behind it.
    invite(&mut world, web, 8);
    assert!(!world.disk.values.contains_key(&Key::Invite(InviteId(7))));
    assert_eq!(join(&mut world, 7, [2; 32]), Err(NotJoined::Unknown));
    world.server.revoke(world.now, web).unwrap();
    assert_eq!(join(&mut world, 8, [2; 32]), Err(NotJoined::Refused(Status::ENOENT)));
    assert_eq!(world.server.invite_next_key(world.now, web, InviteId(9), [9; 16].into()), Err(Status::ENOENT));
}

#[test]
fn a_revocation_is_of_all_keys() {
    let mut world = World::new();
    let who = one(&mut world, "web", 1);
    rotate(&mut world, who, 7, 2);
    rotate(&mut world, who, 8, 3);
    world.server.revoke(world.now, who).unwrap();
    world.turn();
    let revoked: Vec<_> = world.server.revoked_keys().collect();
    assert_eq!(revoked, [[3; 32], [2; 32], [1; 32]]);
    for key in 1..=3 {
        world.server.invite(world.now, super::joining::new(20 + u64::from(key), "new", 2)).unwrap();
        assert_eq!(join(&mut world, 20 + u64::from(key), [key; 32]), Err(NotJoined::Revoked));
    }
    // A copy of the store of before the rotations, with the log of revocations of after them.
    let mut copy = World::new();
    let who = one(&mut copy, "web", 1);
    let config = copy.server.config.clone();
    let mut again = World::starting(core::mem::take(&mut copy.disk), config, 9);
    again.server.know_revoked(again.now, revoked);
    again.turn();
    assert!(again.server.principal(who).unwrap().revoked);
    assert_eq!(join(&mut again, 7, [3; 32]), Err(NotJoined::Revoked));
}

fn opens(server: &mut Sealed, peer: &mut Peer) -> OpenStatus {
    peer.handshake += 1;
    let cookie = peer.cookie(server);
    let open = peer.open(cookie);
    let welcome = server.say(peer.path, &open).pop().unwrap();
    peer.welcomed(&welcome)
}

#[test]
fn an_agent_that_comes_with_the_new_key_is_the_same_and_reclaims_its_session() {
    let (mut server, mut peer, mut renewed) = (Sealed::new(), Peer::new(1), Peer::new(20));
    server.open(&mut peer);
    let former = peer.session;
    let who = server.world.server.principal_named(b"b").unwrap();
    invite(&mut server.world, who, 7);
    assert_eq!(join(&mut server.world, 7, *renewed.key().public().as_bytes()), Ok(who));
    server.turn();
    let mut server = server.restart();
    assert_eq!(opens(&mut server, &mut renewed), OpenStatus::Opened);
    let claim = FormerClaim { session: former, claim: Claim::Reclaiming };
    assert_eq!(server.confirm(&mut renewed, &[claim])[0].fate, SessionFate::Reclaimable);
    let rows = server.world.server.sessions(server.world.now);
    let row = rows.iter().find(|row| row.session == renewed.session).unwrap();
    assert_eq!(row.agent, peer.agent());
    // The resume secret is of the agent, not of the key.
    let mut server = server.restart();
    renewed.handshake += 1;
    let cookie = renewed.cookie(&mut server);
    let resume = renewed.resume(cookie);
    let welcome = server.say(renewed.path, &resume).pop().unwrap();
    assert_eq!(renewed.welcomed(&welcome), OpenStatus::Opened);
    assert_eq!(opens(&mut server, &mut peer), OpenStatus::Opened, "the former key, for a while");
    server.world.server.retire_former_key(server.world.now, who);
    server.turn();
    assert_eq!(opens(&mut server, &mut peer), OpenStatus::UnknownKey);
    assert_eq!(opens(&mut server, &mut renewed), OpenStatus::Opened);
}
