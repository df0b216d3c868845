//! Former sessions of an agent that opens another: superseded, continued, surrendered, given up; incarnations.

use super::handshake::keep_alive;
use super::world::{Peer, ROOT, World, advisory, lock, ms, opened};
use crate::{Config, Dropped};
use alloc::vec::Vec;
use cistern_link::Path;
use cistern_wire::{
    Bytes8, Claim, Confirm, EndReason, EndSession, Ended, Fate, FormerFate, Hint, Known, List, LockWait, Message, Nack, NackReason, Opened,
    Receipt, ReceiptAnswer, Refuse, RefuseReason, Reply, SessionFate, SessionId,
};
use core::net::SocketAddr;

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Every session that its agent names lost or surrendered, or does not name, MUST end when the agent opens another: as surrendered, if it
//# says so, otherwise by D.
#[test]
fn new_handshake_of_the_same_incarnation_fails_the_former_session() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    let mut former = peer.clone();
    let fates = world.open_again(&mut peer, &[(former.session, Claim::Lost)]);
    assert_eq!(fates, [FormerFate { session: former.session, fate: SessionFate::TimingOut }]);
    assert_eq!(world.server.lease_timers(), 1);
    let message = keep_alive(&mut former);
    let echo = world.send(&mut former, &[message]);
    world.expect(&former, &[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
    world.pass(ms(2_021));
    assert_eq!((world.server.lease_timers(), world.server.status(world.now).sessions), (0, 1));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Every session that its agent names lost or surrendered, or does not name, MUST end when the agent opens another: as surrendered, if it
//# says so, otherwise by D.
#[test]
fn surrendered_former_session_ends_at_once() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let former = peer.session;
    let fates = world.open_again(&mut peer, &[(former, Claim::Surrendered)]);
    assert_eq!(fates, [FormerFate { session: former, fate: SessionFate::Ended }]);
    assert_eq!(world.server.lease_timers(), 0);
    world.lock(&mut peer, file);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A CONFIRM that names as continuing a session of its agent and incarnation in good standing MUST be answered KNOWN and MUST NOT change
//# anything.
#[test]
fn confirm_that_continues_a_session_in_good_standing_is_answered_known_and_does_nothing() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let mut asks = peer.clone();
    world.offer(&mut asks);
    let session = peer.session;
    for _ in 0..3 {
        let echo = world.confirm(&mut asks, &[(session, Claim::Continuing)]);
        world.expect(&asks, &[Known { serial: 1, echo, session }.into()]);
    }
    assert_eq!((world.server.lease_timers(), world.server.status(world.now).sessions), (0, 1));
    let message = keep_alive(&mut peer);
    world.send(&mut peer, &[message]);
    assert!(matches!(world.got_one(&peer).message(), Message::Alive(_)));
    // What was offered is never opened, whatever becomes of the other one.
    assert!(!world.server.evict(world.now, peer.agent).is_empty());
    let echo = world.confirm(&mut asks, &[(session, Claim::Continuing)]);
    world.expect(&asks, &[Hint { echo, detail: Bytes8(b"") }.into()]);
    assert_eq!(world.server.status(world.now).sessions, 0);
}

#[test]
fn who_does_not_hold_a_session_cannot_ask_about_it_by_continuing_it() {
    let mut world = World::new();
    let victim = world.open(1);
    let mut peer = Peer::new(2);
    let fates = world.open_again(&mut peer, &[(victim.session, Claim::Continuing)]);
    assert_eq!(fates, [FormerFate { session: victim.session, fate: SessionFate::Ended }], "as for a session that never was");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST NOT act on a datagram of a half-open session that does not begin with CONFIRM.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The session's record MUST be durable before anything is sent in it.
#[test]
fn half_open_session_takes_nothing_before_confirm_and_what_comes_with_it_is_answered_when_the_record_is_durable() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    world.offer(&mut peer);
    let (alive, ask) = (keep_alive(&mut peer), peer.ask());
    let request = lock(ask, ROOT, LockWait::Try);
    for messages in [&[alive][..], &[request.into()], &[request.into(), Confirm { serial: 1, former: List::of(&[]) }.into()]] {
        world.send(&mut peer, messages);
        world.expect(&peer, &[]);
    }
    assert_eq!((world.server.stats().dropped(Dropped::NotOpen), world.server.status(world.now).sessions), (3, 0));
    world.stalled = true;
    let confirm = Confirm { serial: 1, former: List::of(&[]) };
    world.send(&mut peer, &[confirm.into(), request.into(), alive]);
    let echo = world.send(&mut peer, &[confirm.into()]);
    let later = world.send(&mut peer, &[alive]);
    world.expect(&peer, &[]);
    world.stalled = false;
    world.turn();
    let got = world.got(&peer);
    let (session, agent) = (got[0].session, peer.session);
    assert_eq!(session, agent);
    let messages: Vec<Message<'_>> = got.iter().map(super::world::Got::message).collect();
    let opened = messages.iter().find_map(|m| if let Message::Opened(opened) = m { Some(opened.echo) } else { None });
    assert_eq!(opened, Some(echo), "the newest CONFIRM is answered, once: {messages:?}");
    assert!(messages.iter().any(|m| matches!(m, Message::Alive(alive) if alive.echo == later)));
    assert!(messages.iter().any(|m| matches!(m, Message::Ack(ack) if ack.nonce == ask.nonce && matches!(ack.reply, Reply::Granted(_)))));
    // One more gets the same, and does nothing.
    let echo = world.confirm(&mut peer, &[]);
    world.expect(&peer, &[Opened { serial: 1, echo, former: List::of(&[]), resume: [0; 32], roster: 0 }.into()]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HELLO MUST NOT do more than leave one half-open session for its agent, for 5 s.
#[test]
fn agent_has_one_half_open_session_its_newest_for_a_while_and_there_is_room_for_so_many() {
    let mut world = World::with(Config { volatile: true, opening_max: 2, ..Config::default() });
    let hint = |world: &mut World, peer: &mut Peer| {
        let echo = world.confirm(peer, &[]);
        world.expect(peer, &[Hint { echo, detail: Bytes8(b"") }.into()]);
        world.tick(ms(20));
    };
    let mut first = Peer::new(1);
    world.offer(&mut first);
    let mut again = first.clone();
    world.offer(&mut again);
    hint(&mut world, &mut first);
    let (mut second, mut third) = (Peer::new(2), Peer::new(3));
    world.offer(&mut second);
    world.offer(&mut third);
    hint(&mut world, &mut again);
    world.confirm(&mut third, &[]);
    assert!(matches!(world.got_one(&third).message(), Message::Opened(_)));
    world.tick(ms(5_000));
    hint(&mut world, &mut second);
}

/// Offers sessions to agents of hosts, in turn, where there is room for four; gives those that are still there then.
fn half_open_of(hosts: &[u8]) -> Vec<u8> {
    let mut world = World::with(Config { volatile: true, opening_max: 4, ..Config::default() });
    let mut peers = Vec::new();
    for (n, host) in (1..).zip(hosts) {
        let mut peer = Peer { path: Path::to(SocketAddr::from(([192, 0, 2, *host], 4_000 + u16::from(n)))), ..Peer::new(n) };
        world.offer(&mut peer);
        peers.push(peer);
    }
    let mut left = Vec::new();
    for mut peer in peers {
        world.confirm(&mut peer, &[]);
        match world.got_one(&peer).message() {
            Message::Opened(_) => left.push(peer.agent.0[0]),
            other => assert!(matches!(other, Message::Hint(_)), "{other:?}"),
        }
        world.tick(ms(20));
    }
    left
}

#[test]
fn host_with_the_most_half_open_sessions_loses_its_oldest() {
    let (a, b, c) = (201, 202, 203);
    assert_eq!(half_open_of(&[a, b, b, b]), [1, 2, 3, 4]);
    assert_eq!(half_open_of(&[a, b, b, b, b, b, b]), [1, 5, 6, 7], "who asks without end pushes out its own alone");
    assert_eq!(half_open_of(&[a, b, b, b, c]), [1, 3, 4, 5], "and makes room for who has none");
    assert_eq!(half_open_of(&[a, b, b, a, c]), [2, 3, 4, 5], "of two with as many that with the oldest");
    assert_eq!(half_open_of(&[a, b, b, a, b]), [1, 3, 4, 5], "the new one counts");
}

#[test]
fn half_open_session_is_confirmed_from_its_address_alone() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    world.offer(&mut peer);
    let mut thief = Peer { path: Peer::new(9).path, ..peer.clone() };
    world.confirm(&mut thief, &[]);
    world.expect(&thief, &[]);
    world.confirm(&mut peer, &[]);
    assert!(matches!(world.got_one(&peer).message(), Message::Opened(_)));
}

/// A session that is timing out for want of a receipt of a probe, and can be rescued.
fn failed(world: &mut World, peer: &mut Peer) -> Message<'static> {
    let file = world.create(peer, "job").object;
    world.lock(peer, file);
    let mut waits = world.open(2);
    let ask = waits.ask();
    world.send(&mut waits, &[lock(ask, file, LockWait::Queue).into()]);
    world.got(&waits);
    world.attend(&waits);
    world.pass(ms(1_000));
    assert_eq!(world.server.lease_timers(), 1);
    let got = world.got(peer);
    let seqs = got.iter().filter_map(|got| match got.message() {
        Message::Probe(probe) => Some(probe.seq),
        Message::Demand(demand) => Some(demand.seq),
        _ => None,
    });
    Receipt { seq: seqs.max().unwrap(), answer: ReceiptAnswer::InUse }.into()
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A CONFIRM that names as continuing a session of its agent and incarnation in good standing MUST be answered KNOWN and MUST NOT change
//# anything.
#[test]
fn session_that_was_rescued_after_its_agent_was_challenged_goes_on() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let receipt = failed(&mut world, &mut peer);
    let mut asks = peer.clone();
    world.offer(&mut asks);
    world.send(&mut peer, &[receipt]);
    assert_eq!(world.server.lease_timers(), 0, "rescued");
    world.got(&peer);
    let echo = world.confirm(&mut asks, &[(peer.session, Claim::Continuing)]);
    world.expect(&asks, &[Known { serial: 1, echo, session: peer.session }.into()]);
}

#[test]
fn session_that_its_agent_continues_while_it_times_out_is_not_rescued_once_another_is_open() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let receipt = failed(&mut world, &mut peer);
    let mut next = peer.clone();
    let fates = world.open_again(&mut next, &[(peer.session, Claim::Continuing)]);
    assert_eq!(fates, [FormerFate { session: peer.session, fate: SessionFate::TimingOut }]);
    world.send(&mut peer, &[receipt]);
    assert_eq!(world.server.lease_timers(), 1);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HELLO MUST NOT do more than leave one half-open session for its agent, for 5 s.
#[test]
fn offer_ends_nothing_whatever_incarnation_asks_for_it() {
    let mut world = World::new();
    let mut peer = world.open(1);
    for incarnation in [1, 2] {
        let mut next = Peer { incarnation, ..peer.clone() };
        world.offer(&mut next);
        let message = keep_alive(&mut peer);
        world.send(&mut peer, &[message]);
        assert!(matches!(world.got_one(&peer).message(), Message::Alive(_)));
    }
    assert_eq!((world.server.lease_timers(), world.server.status(world.now).sessions), (0, 1));
}

#[test]
fn claim_about_another_agents_session_does_nothing_and_tells_nothing() {
    let mut world = World::new();
    let victim = world.open(1);
    let mut peer = Peer::new(2);
    let fates = world.open_again(&mut peer, &[(victim.session, Claim::Surrendered)]);
    assert_eq!(fates, [FormerFate { session: victim.session, fate: SessionFate::Ended }], "as for a session that never was");
    assert_eq!(world.server.status(world.now).sessions, 2);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A CONFIRM of a higher incarnation MUST start D for the former session, without rescue.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The locks of a superseded session MUST NOT go to others before T without proof that no user of them can still act.
#[test]
fn higher_incarnation_times_the_former_session_out_whatever_it_claims() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let former = peer.session;
    peer.incarnation = 2;
    let fates = world.open_again(&mut peer, &[(former, Claim::Surrendered)]);
    assert_eq!(fates, [FormerFate { session: former, fate: SessionFate::TimingOut }]);
    let ask = peer.ask();
    world.send(&mut peer, &[lock(ask, file, LockWait::Queue).into()]);
    assert!(matches!(world.got_one(&peer).message(), Message::Queued(_)), "its former self still holds the lock");
    world.attend(&peer);
    world.pass(ms(2_020));
    world.expect(&peer, &[]);
    world.pass(ms(1));
    assert!(matches!(world.got_one(&peer).message(), Message::Grant(grant) if grant.lock == advisory(file)));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The server MUST keep the highest incarnation of each agent durably, and refuse a HELLO with a lower one.
#[test]
fn lower_incarnation_is_refused() {
    let mut world = World::new();
    let mut peer = Peer { incarnation: 5, ..Peer::new(1) };
    world.open_again(&mut peer, &[]);
    let mut older = Peer { incarnation: 4, handshake: 9, ..peer.clone() };
    let cookie = world.cookie(&mut older);
    let echo = world.hello(&mut older, &cookie);
    let refuse = Refuse { handshake: 9, echo, reason: RefuseReason::Superseded, version_min: 1, version_max: 1, retry_ms: 0, serving: 0 };
    world.expect(&older, &[refuse.into()]);
    assert_eq!((world.server.status(world.now).sessions, world.server.lease_timers()), (1, 0));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HELLO whose cookie is older than the one of its agent's half-open session MUST NOT take that one's place.
#[test]
fn delayed_hello_of_an_older_handshake_neither_ends_the_newer_session_nor_takes_the_place_of_an_offer() {
    let mut world = World::new();
    let mut delayed = Peer::new(1);
    let cookie = world.cookie(&mut delayed);
    world.tick(ms(1));
    let mut peer = delayed.clone();
    world.offer(&mut peer);
    world.hello(&mut delayed, &cookie);
    world.expect(&delayed, &[]);
    assert_eq!(world.server.stats().dropped(Dropped::OldHandshake), 1);
    world.confirm(&mut peer, &[]);
    assert!(matches!(world.got_one(&peer).message(), Message::Opened(_)));
    world.hello(&mut delayed, &cookie);
    assert!(matches!(world.got_one(&delayed).message(), Message::Welcome(_)));
    assert_eq!((world.server.status(world.now).sessions, world.server.lease_timers()), (1, 0));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A surrender MUST count only from the address that was proven for the session last.
#[test]
fn surrender_from_another_address_frees_nothing_before_t() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = world.create(&mut peer, "job").object;
    world.lock(&mut peer, file);
    let former = peer.session;
    let mut thief = Peer { path: Peer::new(9).path, handshake: 77, ..peer.clone() };
    let fates = world.open_again(&mut thief, &[(former, Claim::Surrendered)]);
    assert_eq!(fates, [FormerFate { session: former, fate: SessionFate::TimingOut }]);
    let ask = thief.ask();
    world.send(&mut thief, &[lock(ask, file, LockWait::Queue).into()]);
    assert!(matches!(world.got_one(&thief).message(), Message::Queued(_)));
    world.attend(&thief);
    world.pass(ms(2_020));
    world.expect(&thief, &[]);
    world.pass(ms(1));
    assert!(matches!(world.got_one(&thief).message(), Message::Grant(_)));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST refuse a HELLO whose incarnation is more than 65,536 above that of a session of the same agent.
#[test]
fn incarnation_far_above_that_of_a_session_is_refused_while_somebody_is_there() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    let mut far = Peer { incarnation: 1 + 65_537, handshake: 9, path: Peer::new(9).path, ..peer.clone() };
    let cookie = world.cookie(&mut far);
    let echo = world.hello(&mut far, &cookie);
    let refuse = Refuse { handshake: 9, echo, reason: RefuseReason::Ahead, version_min: 1, version_max: 1, retry_ms: 1_000, serving: 0 };
    world.expect(&far, &[refuse.into()]);
    assert_eq!(world.server.lease_timers(), 0);
    let Message::Probe(probe) = world.got_one(&peer).message() else { panic!("it is asked whether it is there") };
    world.send(&mut peer, &[Receipt { seq: probe.seq, answer: ReceiptAnswer::Received }.into()]);
    world.pass(ms(5_000));
    assert_eq!((world.server.lease_timers(), world.server.status(world.now).sessions), (0, 1));
    // Nearly as far is far enough for whoever starts all the time.
    let mut near = Peer { incarnation: 1 + 65_536, handshake: 10, ..far };
    world.open_again(&mut near, &[]);
}

#[test]
fn incarnation_far_above_is_taken_once_nobody_answers_for_the_session() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    let mut far = Peer { incarnation: u64::MAX, handshake: 9, path: Peer::new(9).path, ..peer.clone() };
    let cookie = world.cookie(&mut far);
    world.hello(&mut far, &cookie);
    assert!(matches!(world.got_one(&far).message(), Message::Refuse(_)));
    world.pass(ms(3_000));
    world.got(&peer);
    world.open_again(&mut far, &[]);
}

#[test]
fn session_superseded_before_its_record_was_durable_is_never_opened() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    world.offer(&mut peer);
    world.stalled = true;
    world.confirm(&mut peer, &[]);
    let mut next = Peer { incarnation: 2, ..peer.clone() };
    world.tick(ms(1));
    world.offer(&mut next);
    world.confirm(&mut next, &[(peer.session, Claim::Continuing)]);
    world.expect(&next, &[]);
    world.stalled = false;
    world.turn();
    let got = world.got_one(&next);
    assert_eq!((got.session, opened(&got).former.len()), (next.session, 1));
    assert_eq!((world.server.status(world.now).sessions, world.server.lease_timers()), (1, 1));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The server MUST report a superseded session that goes on sending as a possible clone.
#[test]
fn superseded_session_that_goes_on_sending_is_reported_once() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    let mut clone = peer.clone();
    peer.incarnation = 2;
    world.open_again(&mut peer, &[]);
    let mut heard = |world: &mut World, clones| {
        let message = keep_alive(&mut clone);
        world.send(&mut clone, &[message]);
        assert!(matches!(world.got_one(&clone).message(), Message::Nack(_)));
        assert_eq!(world.server.stats().clones, clones);
    };
    heard(&mut world, 0);
    world.pass(ms(500));
    heard(&mut world, 1);
    heard(&mut world, 1);
    world.pass(ms(3_000));
    heard(&mut world, 2);
    heard(&mut world, 2);
}

#[test]
fn superseded_session_that_is_given_up_late_is_no_clone() {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "job");
    let mut old = peer.clone();
    peer.incarnation = 2;
    world.open_again(&mut peer, &[]);
    world.pass(ms(500));
    let end = EndSession { serial: old.serial(), reason: EndReason::Surrender };
    let echo = world.send(&mut old, &[end.into()]);
    world.expect(&old, &[Ended { serial: end.serial, echo }.into()]);
    assert_eq!(world.server.stats().clones, 0);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# OPENED MUST tell the fate of each session that CONFIRM named, in the same order.
#[test]
fn opened_tells_the_fate_of_each_session_named_in_its_order() {
    let mut world = World::new();
    let mut peer = world.open(1);
    let ended = peer.session;
    world.open_again(&mut peer, &[(ended, Claim::Surrendered)]);
    world.create(&mut peer, "first");
    let timing_out = peer.session;
    peer.incarnation = 2;
    world.open_again(&mut peer, &[]);
    world.create(&mut peer, "second");
    let good = peer.session;
    peer.incarnation = 3;
    let unknown = SessionId(4_711);
    let named = [unknown, good, ended, timing_out].map(|session| (session, Claim::Lost));
    let fates: Vec<_> = world.open_again(&mut peer, &named).iter().map(|told| (told.session, told.fate)).collect();
    let expected =
        [(unknown, SessionFate::Ended), (good, SessionFate::TimingOut), (ended, SessionFate::Ended), (timing_out, SessionFate::TimingOut)];
    assert_eq!(fates, expected);
}
