//! Demands, receipts, probes, compliance, and when a delivery has failed: by the clock of a server that listens.

use super::world::{Peer, World, advisory, cache_lock, lock, ms};
use crate::Config;
use crate::locks::Struck;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{
    Demand, Generation, GetAttr, Keep, KeepAlive, Kind, LockWait, Message, ObjectId, Pending, Probe, Receipt, ReceiptAnswer, Release,
    ReleaseItem, Released, ReleasedItem, Reply, SetAttr, SetMask, Terms, Want,
};

/// The kinds of the messages sent to the peer.
fn kinds(world: &mut World, peer: &Peer) -> Vec<Kind> {
    world.got(peer).iter().map(|got| got.message().kind()).collect()
}

fn alive(world: &mut World, peer: &mut Peer) {
    let serial = peer.serial();
    world.send(peer, &[KeepAlive { serial, clock_us: 0 }.into()]);
    assert_eq!(kinds(world, peer), [Kind::Alive]);
}

fn chmod(peer: &mut Peer, object: ObjectId) -> Message<'static> {
    let (ask, mask) = (peer.ask_only(), SetMask { bits: SetMask::MODE });
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

/// Two agents; the first holds an advisory lock, the second waits for it. Gives the object and the generation held; the DEMAND was sent.
fn held_and_waited_for(world: &mut World) -> (Peer, Peer, ObjectId, Generation) {
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.lock(&mut holder, file);
    let ask = waiter.ask_only();
    let echo = world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    let got = world.got_one(&waiter);
    let Message::Queued(queued) = got.message() else { panic!("{got:?}") };
    assert_eq!((queued.nonce, queued.echo, queued.lock, queued.ahead), (ask.nonce, echo, advisory(file), 0));
    assert_eq!((queued.holder.handle, queued.holder.bound_ms), (holder.handle, 3_771), "should it be gone: τ/2 + 3τ/8 + T");
    world.attend(&waiter);
    (holder, waiter, file, generation)
}

fn demand(seq: u64, object: ObjectId, generation: Generation) -> Message<'static> {
    Demand { seq, lock: advisory(object), generation, keep: Keep::Nothing }.into()
}

//= wire-spec.md#6-4-notices
//= type=test
//# A server MUST repeat a notice until its `seq` is receipted, the delivery has failed, or the session has ended.
#[test]
fn demand_is_sent_again_until_it_is_receipted() {
    let mut world = World::new();
    let (mut holder, _, file, generation) = held_and_waited_for(&mut world);
    world.expect(&holder, &[demand(1, file, generation)]);
    // After 20 to 25 ms, and 40 to 50 ms later.
    world.pass(ms(39));
    world.expect(&holder, &[demand(1, file, generation)]);
    world.pass(ms(36));
    world.expect(&holder, &[demand(1, file, generation)]);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    world.pass(ms(900));
    world.expect(&holder, &[]);
    assert_eq!(world.server.lease_timers(), 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST have an unreceipted notice on its way to each session that somebody waits for, or send one within the probe period.
#[test]
fn holder_in_use_is_probed_every_period_for_as_long_as_somebody_waits() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = held_and_waited_for(&mut world);
    world.got(&holder);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    for seq in 2..6 {
        world.pass(ms(999));
        world.expect(&holder, &[]);
        world.pass(ms(1));
        world.expect(&holder, &[Probe { seq }.into()]);
        world.send(&mut holder, &[Receipt { seq, answer: ReceiptAnswer::Received }.into()]);
    }
    let serial = waiter.serial();
    world.send(&mut waiter, &[cistern_wire::Cancel { serial, nonce: 1 }.into()]);
    assert_eq!(kinds(&mut world, &waiter), [Kind::Cancelled]);
    world.pass(ms(10_000));
    world.expect(&holder, &[]);
    assert_eq!((world.server.listening(), world.server.wake_after(world.now)), (0, None), "nobody waits any more");
    // Somebody waits again for the same grant, of which the holder was told before.
    let ask = waiter.ask_only();
    world.send(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&waiter);
    world.pass(ms(1_000));
    let sent = world.got(&holder);
    assert!(!sent.is_empty(), "a message that needs a receipt goes out within the probe period (section 11.3)");
    let _ = generation;
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST have an unreceipted notice on its way to each session that somebody waits for, or send one within the probe period.
#[test]
fn holder_that_receipted_and_died_is_found_by_a_probe() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = held_and_waited_for(&mut world);
    world.got(&holder);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    world.pass(ms(1_000 + 500 + 2_021 - 1));
    world.got(&holder);
    world.expect(&waiter, &[]);
    world.pass(ms(1));
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant], "probe period, Td and T after its last sign of life");
    world.got(&holder);
    world.pass(ms(300));
    world.got(&waiter);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
//= wire-spec.md#11-2-delivery
//= type=test
//# The outcome of a queued request MUST be sent as a notice, GRANT or WAIT_OVER.
//= wire-spec.md#11-2-delivery
//= type=test
//# A LOCK that has to wait for other holders MUST be answered QUEUED.
#[test]
fn release_acknowledges_the_demand_and_hands_the_lock_over() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = held_and_waited_for(&mut world);
    world.got(&holder);
    let serial = holder.serial();
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    let release = Release { serial, items: cistern_wire::List::of(&items) };
    let echo = world.send(&mut holder, &[release.into()]);
    let released = [ReleasedItem { lock: advisory(file), generation, keep: Keep::Nothing, now: Generation(0) }];
    let items = cistern_wire::List::of(&released);
    world.expect(&holder, &[Released { serial, echo, items }.into()]);
    let got = world.got_one(&waiter);
    let Message::Grant(grant) = got.message() else { panic!("{got:?}") };
    assert_eq!((grant.seq, grant.nonce, grant.lock), (1, 1, advisory(file)));
    assert!(grant.generation > generation, "tokens only grow");
    world.send(&mut waiter, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    world.pass(ms(5_000));
    world.expect(&holder, &[]);
    let echo = world.send(&mut holder, &[release.into()]);
    world.expect(&holder, &[Released { serial, echo, items }.into()]);
    assert_eq!(world.server.lease_timers(), 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Before D the server MUST have sent the notice at least three times, and listened for an RTO after each, its receive queue empty at the
//# end.
//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST NOT date D before the receipt of a datagram that it has acted on.
#[test]
fn silent_agent_loses_its_locks_only_after_tau_one_plus_delta_from_the_failure() {
    for (boot_lag, waits) in [(0, 2_021_000), (100, 2_239_760)] {
        let mut world = World::new();
        let (holder, waiter, file, generation) = held_and_waited_for(&mut world);
        world.boot_lag = boot_lag;
        // Td is 500 ms from the first transmission, by the slower of both clocks.
        while world.server.lease_timers() == 0 {
            world.pass(ms(1));
        }
        let failed = world.now;
        let demands = world.got(&holder).len();
        assert!(demands >= 3, "{demands} transmissions");
        world.pass(core::time::Duration::from_micros(waits - 1_000));
        world.expect(&waiter, &[]);
        world.expect(&holder, &[]);
        assert_eq!(world.server.lease_timers(), 1);
        world.pass(ms(2));
        let got = world.got_one(&waiter);
        let Message::Grant(grant) = got.message() else { panic!("{got:?}") };
        assert!(grant.lock == advisory(file) && grant.generation > generation);
        assert!(world.now.waited(failed.plus(Config::default().wait())), "by both clocks");
        assert_eq!(world.server.lease_timers(), 0);
    }
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Time in which the server stood still MUST NOT count towards a delivery timeout.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The server MUST empty its socket before it acts on a timeout.
#[test]
fn stalled_server_fails_nobody() {
    let mut world = World::new();
    let (mut holder, _, file, generation) = held_and_waited_for(&mut world);
    world.expect(&holder, &[demand(1, file, generation)]);
    for _ in 0..2 {
        // The loop stood still for a minute.
        world.server.wake_after(world.now);
        world.tick(ms(60_000));
        world.turn();
        assert_eq!(world.server.lease_timers(), 0, "a stall counts no more than the sleep that was planned");
    }
    // It stands still once more, while the receipt waits in the socket: that is read before any timer runs.
    world.server.wake_after(world.now);
    world.tick(ms(60_000));
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::InUse }.into()]);
    world.expect(&holder, &[demand(1, file, generation), demand(1, file, generation)]);
    alive(&mut world, &mut holder);
    assert_eq!(world.server.lease_timers(), 0);
}

#[test]
fn stall_before_sending_is_not_time_given_for_an_answer() {
    let mut world = World::new();
    let (mut holder, mut waiter) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    world.lock(&mut holder, file);
    let ask = waiter.ask_only();
    world.post(&mut waiter, &[lock(ask, file, LockWait::Queue).into()]);
    world.server.handle_drained(world.now);
    // Between the empty socket and the send call the machine slept for ten seconds.
    world.tick(ms(10_000));
    world.transmit();
    world.got(&waiter);
    assert_eq!(kinds(&mut world, &holder), [Kind::Demand]);
    world.pass(ms(19));
    world.expect(&holder, &[]);
    world.pass(ms(6));
    assert_eq!(kinds(&mut world, &holder), [Kind::Demand], "again after its own timeout, not before");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A cache lock still held when the compliance time after the receipt of its demand is over MUST lead to D.
#[test]
fn cache_lock_demanded_and_kept_fails_its_holder_after_the_compliance_time() {
    let mut world = World::new();
    let (mut holder, mut writer) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let generation = world.cache(&mut holder, file);
    let request = chmod(&mut writer, file);
    let nonce = request.ask().unwrap().nonce;
    let echo = world.send(&mut writer, &[request]);
    world.expect(&writer, &[Pending { nonce, echo }.into()]);
    world.expect(&holder, &[Demand { seq: 1, lock: cache_lock(file), generation, keep: Keep::Nothing }.into()]);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    for second in 1..=3 {
        world.pass(ms(1_000));
        world.expect(&holder, &[Probe { seq: second + 1 }.into()]);
        world.send(&mut holder, &[Receipt { seq: second + 1, answer: ReceiptAnswer::Received }.into()]);
    }
    world.pass(ms(999));
    assert_eq!(world.server.lease_timers(), 0);
    world.pass(ms(1));
    assert_eq!(world.server.lease_timers(), 1, "alive, and not complying (section 11.3)");
    world.got(&holder);
    world.pass(ms(2_020));
    world.expect(&writer, &[]);
    world.pass(ms(1));
    assert_eq!(kinds(&mut world, &writer), [Kind::Ack]);
    world.expect(&holder, &[]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
#[test]
fn agent_that_disowns_the_generation_demanded_frees_it() {
    let mut world = World::new();
    let (mut holder, waiter, _, _) = held_and_waited_for(&mut world);
    world.got(&holder);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::NotHeld }.into()]);
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    world.pass(ms(100));
    world.got(&waiter);
}

#[test]
fn grant_that_was_disowned_goes_to_the_next() {
    let mut world = World::new();
    let (mut holder, mut waiter, file, generation) = held_and_waited_for(&mut world);
    world.got(&holder);
    let serial = holder.serial();
    let items = [ReleaseItem { lock: advisory(file), generation, keep: Keep::Nothing }];
    world.send(&mut holder, &[Release { serial, items: cistern_wire::List::of(&items) }.into()]);
    assert_eq!(kinds(&mut world, &holder), [Kind::Released]);
    assert_eq!(kinds(&mut world, &waiter), [Kind::Grant]);
    world.send(&mut waiter, &[Receipt { seq: 1, answer: ReceiptAnswer::NotHeld }.into()]);
    assert!(world.lock(&mut holder, file) > generation);
}

//= wire-spec.md#11-1-lease
//= type=test
//# The server MUST keep no lease state of a session in good standing.
#[test]
fn nothing_is_kept_about_leases_before_a_failure() {
    let mut world = World::new();
    let mut peers: Vec<Peer> = (1..20).map(|n| world.open(n)).collect();
    for (n, peer) in peers.iter_mut().enumerate() {
        let file = world.create(peer, &alloc::format!("file-{n}")).object;
        world.lock(peer, file);
        world.cache(peer, file);
        alive(&mut world, peer);
        assert_eq!((world.server.lease_timers(), world.server.listening()), (0, 0));
        assert_eq!(world.server.wake_after(world.now), None, "an idle server has no timer");
    }
    world.pass(ms(100_000));
    assert_eq!(world.server.lease_timers(), 0);
}

#[test]
fn who_has_kept_a_cache_lock_is_shown_and_given_none_in_its_next_session() {
    let mut world = World::new();
    let (mut holder, mut writer) = (world.open(1), world.open(2));
    let file = world.create(&mut holder, "job").object;
    let other = world.create(&mut holder, "other").object;
    world.cache(&mut holder, file);
    let request = chmod(&mut writer, file);
    world.send(&mut writer, &[request]);
    world.attend(&holder);
    world.send(&mut holder, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    let struck = |world: &World| world.server.principals()[0].struck;
    assert_eq!(struck(&world).strikes, 0);
    world.pass(Config::default().compliance_time + ms(2_100));
    assert_eq!(kinds(&mut world, &writer), [Kind::Pending, Kind::Ack]);
    world.leave(&holder);
    world.got(&holder);
    holder.incarnation += 1;
    world.open_again(&mut holder, &[]);
    let Struck { left, strikes } = struck(&world);
    assert!(left > ms(100_000) && strikes == 1, "{strikes}: {left:?}");
    let mut grant = |peer: &mut Peer, object| {
        let ask = GetAttr { ask: peer.ask_only(), object, want: Want::Shared };
        world.send(peer, &[ask.into()]);
        let got = world.got_one(peer);
        let Reply::Stated(stated) = got.reply() else { panic!("{got:?}") };
        stated.grant.mode
    };
    assert_eq!((grant(&mut holder, other), grant(&mut writer, other)), (Want::Nothing, Want::Shared));
    world.pass(left);
    assert_eq!(struck(&world), Struck { left: core::time::Duration::ZERO, strikes: 1 }, "it is remembered for as long again");
    world.pass(left + Config::default().wait() * 32);
    assert_eq!(struck(&world), Struck::default());
    world.got(&holder);
    world.got(&writer);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A cache lock still held when the compliance time after the receipt of its demand is over MUST lead to D.
#[test]
fn release_of_a_generation_never_granted_receipts_a_demand_and_does_not_comply_with_it() {
    let mut world = World::new();
    let (mut holder, mut writer) = (world.open(1), world.open(2));
    let file = world.create(&mut writer, "file").object;
    world.cache(&mut holder, file);
    let change = chmod(&mut writer, file);
    world.send(&mut writer, &[change]);
    assert_eq!((kinds(&mut world, &writer), kinds(&mut world, &holder)), ([Kind::Pending].into(), [Kind::Demand].into()));
    let compliance = Config::default().compliance_time;
    let mut failed_after = 0;
    while world.server.lease_timers() == 0 {
        // Said again and again, it gives no more time.
        let item = ReleaseItem { lock: cache_lock(file), generation: Generation(u64::MAX), keep: Keep::Nothing };
        let serial = holder.serial();
        world.send(&mut holder, &[Release { serial, items: cistern_wire::List::of(&[item]) }.into()]);
        for got in world.got(&holder) {
            if let Message::Probe(probe) = got.message() {
                world.send(&mut holder, &[Receipt { seq: probe.seq, answer: ReceiptAnswer::Received }.into()]);
            }
        }
        world.pass(ms(100));
        failed_after += 1;
        assert!(ms(100) * failed_after <= compliance, "the mutation waits for ever");
    }
    assert_eq!(ms(100) * failed_after, compliance);
    world.got(&holder);
    world.pass(ms(2_100));
    assert_eq!(kinds(&mut world, &writer), [Kind::Ack]);
}
