//! Surrender: a failed session whose agent gives it up is freed without a wait, once, when its end is durable; forged words do nothing.

use super::world::{Peer, World, lock, ms};
use crate::Config;
use cistern_wire::{EndReason, EndSession, Ended, Fate, LockWait, Message, Nack, NackReason, Reply};

fn nack(nonce: u64, echo: u64, fate: Fate) -> Message<'static> {
    Nack { nonce, echo, reason: NackReason::TimingOut, fate }.into()
}

fn evict(world: &mut World, peer: &Peer) {
    assert_eq!(world.server.evict(world.now, peer.agent), [peer.session]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST end a surrendered session durably before it frees the session's locks.
#[test]
fn session_given_up_while_it_times_out_is_freed_when_its_end_is_durable_and_not_before() {
    // Both say that nothing of the session can be used again.
    for reason in [EndReason::Surrender, EndReason::Close] {
        let mut world = World::new();
        let (mut peer, mut other) = (world.open(1), world.open(2));
        let file = world.create(&mut peer, "job").object;
        world.lock(&mut peer, file);
        evict(&mut world, &peer);
        let ask = other.ask();
        world.send(&mut other, &[lock(ask, file, LockWait::Queue).into()]);
        assert!(matches!(world.got_one(&other).message(), Message::Queued(_)));
        world.stalled = true;
        let end = EndSession { serial: peer.serial(), reason };
        world.send(&mut peer, &[end.into()]);
        world.expect(&peer, &[]);
        world.expect(&other, &[]);
        assert_eq!(world.server.lease_timers(), 0, "T is not waited for");
        world.stalled = false;
        world.turn();
        assert!(matches!(world.got_one(&other).message(), Message::Grant(_)));
        let got = world.got_one(&peer);
        assert!(matches!(got.message(), Message::Ended(ended) if ended.serial == end.serial) && !got.message().kind().renews());
        assert_eq!(world.server.stats().steals, 0);
    }
}

#[test]
fn end_said_again_is_answered_again_and_ends_nothing_else() {
    let mut world = World::new();
    let (mut peer, mut other) = (world.open(1), world.open(2));
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    evict(&mut world, &peer);
    let end = EndSession { serial: peer.serial(), reason: EndReason::Surrender };
    for _ in 0..3 {
        let echo = world.send(&mut peer, &[end.into()]);
        world.expect(&peer, &[Ended { serial: end.serial, echo }.into()]);
        world.pass(ms(1));
    }
    let mut anew = Peer { packet: 100, ..peer.clone() };
    world.open_again(&mut anew, &[(peer.session, cistern_wire::Claim::Surrendered)]);
    let generation = world.lock(&mut anew, file);
    let echo = world.send(&mut peer, &[end.into()]);
    world.expect(&peer, &[Ended { serial: end.serial, echo }.into()]);
    let ask = other.ask();
    world.send(&mut other, &[lock(ask, file, LockWait::Try).into()]);
    assert!(matches!(world.got_one(&other).reply(), Reply::LockRefused(_)), "the late copy freed nothing");
    let message = world.got_one(&anew);
    assert!(matches!(message.message(), Message::Demand(demand) if demand.generation == generation));
}

#[test]
fn session_given_up_while_it_times_out_waits_on_where_that_is_switched_off() {
    for reason in [EndReason::Surrender, EndReason::Close] {
        let mut world = World::with(Config { surrender: false, volatile: true, ..Config::default() });
        let mut peer = world.open(1);
        evict(&mut world, &peer);
        let serial = peer.serial();
        let echo = world.send(&mut peer, &[EndSession { serial, reason }.into()]);
        world.expect(&peer, &[nack(0, echo, Fate::Unknown)]);
        assert_eq!(world.server.lease_timers(), 1);
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Every session that its agent names lost or surrendered, or does not name, MUST end when the agent opens another: as surrendered, if it
//# says so, otherwise by D.
#[test]
fn session_named_as_surrendered_by_the_next_handshake_of_its_agent_is_waited_for_no_longer() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    evict(&mut world, &peer);
    let (former, mut stranger) = (peer.session, Peer::new(2));
    world.open_again(&mut stranger, &[(former, cistern_wire::Claim::Surrendered)]);
    assert_eq!(world.server.lease_timers(), 1, "the word of another agent counts for nothing");
    world.open_again(&mut peer, &[(former, cistern_wire::Claim::Surrendered)]);
    assert_eq!(world.server.lease_timers(), 0);
    world.lock(&mut peer, file);
}
