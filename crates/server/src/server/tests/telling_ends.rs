//! What an agent is told of a session that is over and whose end is not durable yet: never that it has ended.

use super::ephemerals::ephemeral;
use super::world::{Peer, World, ms, opened};
use crate::Config;
use alloc::vec::Vec;
use cistern_wire::{Claim, EndReason, EndSession, KeepAlive, Message, NackReason, SessionFate, SessionId};

fn fates(world: &mut World, peer: &mut Peer, former: &[(SessionId, Claim)]) -> Vec<SessionFate> {
    world.open_again(peer, former).into_iter().map(|told| told.fate).collect()
}

/// What a keep-alive in the session is refused with.
fn refused(world: &mut World, peer: &mut Peer) -> NackReason {
    let serial = peer.serial();
    world.send(peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    let got = world.got_one(peer);
    let Message::Nack(nack) = got.message() else { panic!("{got:?}") };
    nack.reason
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST NOT say that a session has ended before its end is durable.
#[test]
fn request_in_a_session_that_ends_is_told_of_the_end_when_that_is_durable() {
    let mut world = World::new();
    let mut owner = world.open(1);
    world.stalled = true;
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Surrender }.into()]);
    assert_eq!(refused(&mut world, &mut owner), NackReason::TimingOut, "it is on its way to the disk");
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert_eq!(refused(&mut world, &mut owner), NackReason::Ended);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST NOT say that a session has ended before its end is durable.
#[test]
fn repeated_handshake_is_told_of_the_end_of_a_former_session_when_that_is_durable() {
    let mut world = World::new();
    let mut owner = world.open(1);
    world.create(&mut owner, "job");
    let mut again = owner.clone();
    let former = [(owner.session, Claim::Lost)];
    world.offer(&mut again);
    let mut fate = |world: &mut World| {
        world.confirm(&mut again, &former);
        let got = world.got(&again);
        let told = got.iter().find(|got| matches!(got.message(), Message::Opened(_))).expect("OPENED");
        opened(told).former.iter().next().unwrap().fate
    };
    assert_eq!(fate(&mut world), SessionFate::TimingOut);
    world.stalled = true;
    let serial = owner.serial();
    world.send(&mut owner, &[EndSession { serial, reason: EndReason::Surrender }.into()]);
    assert_eq!(fate(&mut world), SessionFate::TimingOut);
    world.stalled = false;
    world.turn();
    assert!(matches!(world.got_one(&owner).message(), Message::Ended(_)));
    assert_eq!(fate(&mut world), SessionFate::Ended);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST NOT say that a session has ended before its end is durable.
#[test]
fn handshake_in_grace_is_told_of_the_end_of_a_former_session_when_that_is_durable() {
    let mut world = World::new();
    let (mut with_file, mut without, mut lost) = (world.open(1), world.open(2), world.open(3));
    ephemeral(&mut world, &mut with_file, "m");
    world.crash();
    let former = [(without.session, Claim::Surrendered)];
    assert_eq!(fates(&mut world, &mut without, &former), [SessionFate::Ended], "it ends by the batch that opens the next");
    let former = [(with_file.session, Claim::Surrendered)];
    assert_eq!(fates(&mut world, &mut with_file, &former), [SessionFate::Ended], "so does one with a file, which goes after the grace");
    let lost_before = lost.session;
    world.pass(Config::default().wait() - ms(1));
    world.tick(ms(1));
    world.stalled = true;
    world.turn();
    world.offer(&mut lost);
    world.confirm(&mut lost, &[(lost_before, Claim::Reclaiming)]);
    assert!(world.got(&lost).is_empty() && world.in_grace(), "the end of grace is on its way to the disk");
    // The disk makes the end of grace durable, and the record of the new session with it.
    world.stalled = false;
    world.turn();
    let told = opened(&world.got_one(&lost)).former.iter().next().unwrap().fate;
    assert!(!world.in_grace());
    assert_eq!(told, SessionFate::Ended);
    let former = [former[0], (with_file.session, Claim::Lost)];
    assert_eq!(fates(&mut world, &mut with_file, &former)[0], SessionFate::Ended);
}
