//! Opening sessions: cookies, repeated and lost messages, versions, limits, full tables.

use super::world::{Peer, STORE, World, ms, welcome};
use crate::{Config, Dropped};
use alloc::vec::Vec;
use cistern_link::{Machine as _, Path};
use cistern_wire::{
    AgentId, Bytes8, Claim, EndReason, EndSession, Hello, Hint, KeepAlive, Kind, Message, Receipt, ReceiptAnswer, Refuse, RefuseReason,
    SessionId, StoreId, Welcome,
};
use core::net::SocketAddr;

pub(super) fn keep_alive(peer: &mut Peer) -> Message<'static> {
    KeepAlive { serial: peer.serial(), clock_us: 0 }.into()
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HELLO without a valid cookie MUST NOT change or leave behind anything at the server.
#[test]
fn hello_without_a_cookie_leaves_nothing_behind() {
    let mut world = World::new();
    for n in 1..50 {
        world.cookie(&mut Peer::new(n));
    }
    let status = world.server.status(world.now);
    assert_eq!((status.sessions, status.held, status.parked), (0, 0, 0));
    assert!(world.server.sessions(world.now).is_empty());
    assert_eq!(world.server.wake_after(world.now), None);
}

#[test]
fn welcome_says_everything() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    let last = world.hello(&mut peer, &cookie);
    let got = world.got_one(&peer);
    let welcome = welcome(&got);
    assert_ne!(welcome.session, SessionId(0));
    let expected = Welcome {
        handshake: peer.handshake,
        echo: last,
        version: 1,
        session: welcome.session,
        handle: welcome.handle,
        store: STORE,
        epoch: 1,
        server_incarnation: 7,
        features: cistern_wire::limits::FEATURE_VOLATILE,
        lease_us: 2_000_000,
        delta_ppm: 10_000,
        epsilon_us: 1_000,
        delivery_timeout_us: 500_000,
        window: 64,
        max_datagram: 1_232,
        first_packet: welcome.first_packet,
    };
    assert_eq!(welcome, expected);
}

//= wire-spec.md#10-3-features
//= type=test
//# A receiver MUST ignore feature bits that it does not know.
#[test]
fn feature_bits_that_nobody_knows_change_nothing() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    let hello = Hello { features: u64::MAX, ..peer.clone().hello(&cookie) };
    world.send(&mut peer, &[hello.into()]);
    let got = world.got_one(&peer);
    assert_eq!(welcome(&got).features, cistern_wire::limits::FEATURE_VOLATILE, "none is named that the server does not have");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A repeated HELLO of one handshake MUST be offered the same session, as long as that is half-open.
#[test]
fn lost_welcome_is_repeated_for_the_same_session() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    let mut sessions = Vec::new();
    for _ in 0..3 {
        let packet = world.hello(&mut peer, &cookie);
        let got = world.got_one(&peer);
        assert_eq!(welcome(&got).echo, packet);
        sessions.push(welcome(&got).session);
    }
    sessions.dedup();
    assert_eq!(sessions.len(), 1);
    assert_eq!(world.server.status(world.now).sessions, 0, "nothing is open");
    assert!(world.disk.batches.is_empty() && world.server.sessions(world.now).is_empty(), "and nothing is written");
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A HELLO MUST NOT do more than leave one half-open session for its agent, for 5 s.
#[test]
fn hello_that_is_repeated_after_its_session_has_ended_opens_nothing() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    world.hello(&mut peer, &cookie);
    let session = welcome(&world.got_one(&peer)).session;
    let mut open = Peer { session, packet: 0, serial: 1, ..peer.clone() };
    world.confirm(&mut open, &[]);
    assert!(matches!(world.got_one(&peer).message(), Message::Opened(_)));
    let end = EndSession { serial: open.serial(), reason: EndReason::Close };
    world.send(&mut open, &[end.into()]);
    assert!(matches!(world.got_one(&peer).message(), Message::Ended(_)));
    for after in [0, 5_000, 4_999] {
        world.tick(ms(after));
        world.hello(&mut peer, &cookie);
        assert_ne!(welcome(&world.got_one(&peer)).session, session);
        assert_eq!(world.server.status(world.now).sessions, 0, "{after}");
    }
    world.tick(ms(2));
    world.hello(&mut peer, &cookie);
    assert!(matches!(world.got_one(&peer).message(), Message::Challenge(_)), "it has expired");
    // The same agent, which asks again, is served.
    world.open_again(&mut peer, &[]);
}

#[test]
fn cookie_of_one_agent_opens_no_session_for_others() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    for n in 2..10 {
        let mut other = Peer { agent: Peer::new(n).agent, ..peer.clone() };
        world.hello(&mut other, &cookie);
        assert!(matches!(world.got_one(&other).message(), Message::Challenge(_)));
    }
    assert_eq!(world.server.status(world.now).sessions, 0);
}

//= wire-spec.md#10-2-agreeing-on-a-version
//= type=test
//# A server that shares no version with a HELLO MUST answer REFUSE with its own range.
#[test]
fn other_version_is_refused_with_the_range_spoken_here() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let hello = Hello { version_min: 2, version_max: 9, ..peer.hello(&[]) };
    let echo = world.send(&mut peer, &[hello.into()]);
    let handshake = peer.handshake;
    let refuse = Refuse { handshake, echo, reason: RefuseReason::Version, version_min: 1, version_max: 1, retry_ms: 0, serving: 0 };
    world.expect(&peer, &[refuse.into()]);
}

//= wire-spec.md#8-2-limits-of-a-server
//= type=test
//# A bound MUST be met by a refusal or a demand, never by forgetting a lock, a session or a reply that is still owed.
#[test]
fn full_table_refuses_and_says_when_to_try_again() {
    let mut world = World::with(Config { sessions_max: 2, ..Config::default() });
    let first = world.open(1);
    let mut second = world.open(2);
    let mut third = Peer::new(3);
    let cookie = world.cookie(&mut third);
    let echo = world.hello(&mut third, &cookie);
    let handshake = third.handshake;
    let refuse = Refuse { handshake, echo, reason: RefuseReason::Busy, version_min: 1, version_max: 1, retry_ms: 1_000, serving: 0 };
    world.expect(&third, &[refuse.into()]);
    let alive = keep_alive(&mut second);
    world.send(&mut second, &[alive]);
    let got = world.got(&second);
    assert!(got.iter().any(|got| matches!(got.message(), Message::Alive(_))), "who is in stays in: {got:?}");
    world.got(&first);
}

#[test]
fn one_network_gets_so_many_sessions_and_leaves_the_others_to_others() {
    let mut world = World::with(Config { network_sessions_max: 2, ..Config::default() });
    let mut own = [world.open(1), world.open(2)];
    let mut third = Peer::new(3);
    let cookie = world.cookie(&mut third);
    let echo = world.hello(&mut third, &cookie);
    let handshake = third.handshake;
    let refuse = Refuse { handshake, echo, reason: RefuseReason::Crowded, version_min: 1, version_max: 1, retry_ms: 1_000, serving: 0 };
    // Beside a probe, as the network is full.
    let got = world.got(&third);
    assert!(got.iter().any(|got| got.message() == Message::from(refuse)), "{got:?}");
    assert_eq!(world.server.stats().refused(RefuseReason::Crowded), 1);
    // Other networks have room, and this computer has no network.
    for (n, address) in [(4, [192, 0, 3, 1]), (5, [127, 0, 0, 1]), (6, [127, 0, 0, 1]), (7, [127, 0, 0, 1])] {
        let mut other = Peer { path: Path::to(SocketAddr::from((address, 4_000 + u16::from(n)))), ..Peer::new(n) };
        let cookie = world.cookie(&mut other);
        world.hello(&mut other, &cookie);
        let got = world.got(&other);
        let offered = got.iter().find(|got| matches!(got.message(), Message::Welcome(_))).expect("an offer");
        (other.session, other.packet) = (welcome(offered).session, 0);
        world.confirm(&mut other, &[]);
        assert!(matches!(world.got_one(&other).message(), Message::Opened(_)), "{address:?}");
    }
    // Who is in stays in; who is gone makes room.
    for _ in 0..60 {
        world.pass(ms(100));
        for got in world.got(&own[0]) {
            if let Message::Probe(probe) = got.message() {
                let answer = ReceiptAnswer::Received;
                world.send(&mut own[0], &[Receipt { seq: probe.seq, answer }.into()]);
            }
        }
        world.got(&own[1]);
    }
    let cookie = world.cookie(&mut third);
    world.hello(&mut third, &cookie);
    assert!(matches!(world.got_one(&third).message(), Message::Welcome(_)));
    let message = keep_alive(&mut own[0]);
    world.send(&mut own[0], &[message]);
    assert!(world.got(&own[0]).iter().any(|got| matches!(got.message(), Message::Alive(_))));
}

#[test]
fn cookie_of_another_address_is_answered_by_a_cookie() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let cookie = world.cookie(&mut peer);
    let mut thief = Peer { path: Peer::new(9).path, ..peer.clone() };
    world.hello(&mut thief, &cookie);
    assert!(matches!(world.got_one(&thief).message(), Message::Challenge(_)));
    world.tick(ms(11_000));
    world.hello(&mut peer, &cookie);
    assert!(matches!(world.got_one(&peer).message(), Message::Challenge(_)), "expired");
    assert_eq!(world.server.status(world.now).sessions, 0);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# What is sent without a session MUST be limited in rate.
#[test]
fn challenges_are_limited_in_rate() {
    let mut world = World::with(Config { challenges_per_second: 100, ..Config::default() });
    let mut peer = Peer::new(1);
    world.cookie(&mut peer);
    let hello = peer.hello(&[]);
    world.send(&mut peer, &[hello.into()]);
    world.expect(&peer, &[]);
    assert_eq!(world.server.stats().dropped(Dropped::RateLimited), 1);
    world.tick(ms(10));
    world.cookie(&mut peer);
}

#[test]
fn hellos_of_one_host_use_up_no_other_hosts_challenges() {
    let mut world = World::with(Config { challenges_per_second: 1_000, ..Config::default() });
    let mut flood = Peer::new(1);
    for n in 2..6 {
        for _ in 0..100 {
            let hello = flood.hello(&[]);
            world.send(&mut flood, &[hello.into()]);
        }
        assert!((1..=10).contains(&world.got(&flood).len()));
        world.cookie(&mut Peer::new(n));
        world.tick(ms(5));
    }
    assert!(world.server.stats().dropped(Dropped::RateLimited) > 300);
}

#[test]
fn hello_with_an_overlong_label_cookie_or_list_is_dropped() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let hello = peer.hello(&[]);
    for long in [
        Hello { label: Bytes8(&[b'x'; 65]), ..hello },
        Hello { cookie: Bytes8(&[0; 33]), ..hello },
        Hello { first_packet: 0, ..hello },
        Hello { first_packet: 1 << 48, ..hello },
    ] {
        world.send(&mut peer, &[long.into()]);
        world.expect(&peer, &[]);
    }
    world.offer(&mut peer);
    world.confirm(&mut peer, &[(SessionId(5), Claim::Surrendered); 9]);
    world.expect(&peer, &[]);
    assert_eq!(world.server.stats().dropped(Dropped::BadHello), 5);
    world.confirm(&mut peer, &[(SessionId(5), Claim::Surrendered); 8]);
    assert!(matches!(world.got_one(&peer).message(), Message::Opened(_)));
}

#[test]
fn hello_that_asks_for_less_than_there_is_gets_the_least() {
    for (asked, given) in [((0, 0), (1, 548)), ((1, 547), (1, 548)), ((2, 549), (2, 549)), ((u16::MAX, u16::MAX), (64, 1_232))] {
        let mut world = World::new();
        let mut peer = Peer::new(1);
        let cookie = world.cookie(&mut peer);
        let hello = Hello { window: asked.0, max_datagram: asked.1, ..peer.hello(&cookie) };
        world.send(&mut peer, &[hello.into()]);
        let got = world.got_one(&peer);
        let welcome = welcome(&got);
        assert_eq!((welcome.window, welcome.max_datagram), given, "asked for {asked:?}");
    }
}

/// They serve logs and captures alone.
#[test]
fn no_value_of_the_fields_without_a_rule_changes_what_is_answered() {
    let given = |change: &dyn Fn(Hello<'static>) -> Hello<'static>| {
        let mut world = World::new();
        let mut peer = Peer::new(1);
        (peer.agent, peer.incarnation, peer.handshake) = (AgentId([0; 16]), 0, 0);
        let cookie: &'static [u8] = world.cookie(&mut peer).leak();
        let hello = change(peer.hello(cookie));
        world.send(&mut peer, &[hello.into()]);
        let got = world.got_one(&peer);
        welcome(&got).session
    };
    let plain = given(&|hello| hello);
    assert_eq!(given(&|hello| Hello { boot: [0xff; 16], store: StoreId([0xff; 16]), ..hello }), plain);
    assert_eq!(given(&|hello| Hello { store: STORE, epoch: u8::MAX, server_incarnation: u64::MAX, ..hello }), plain);
    assert_eq!(given(&|hello| Hello { features: u64::MAX, label: Bytes8(b"\xff\0\n\x1b[2J"), ..hello }), plain);
    let mut world = World::new();
    let mut peer = world.open(1);
    for clock_us in [u64::MAX, 0, 1] {
        let serial = peer.serial();
        world.send(&mut peer, &[KeepAlive { serial, clock_us }.into()]);
        assert_eq!(world.got_one(&peer).message().kind(), Kind::Alive);
    }
}

#[test]
fn range_of_versions_that_ends_before_it_begins_has_none_in_common() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let hello = Hello { version_min: 2, version_max: 1, ..peer.hello(&[]) };
    let echo = world.send(&mut peer, &[hello.into()]);
    let refuse =
        Refuse { handshake: peer.handshake, echo, reason: RefuseReason::Version, version_min: 1, version_max: 1, retry_ms: 0, serving: 0 };
    world.expect(&peer, &[refuse.into()]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# Session ids MUST be random, and differ from those of all sessions that are live or recorded.
//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A server MUST NOT take up a session of an earlier server incarnation under its old id.
#[test]
fn session_ids_are_random_and_not_known_to_the_next_server() {
    let mut world = World::new();
    let mut ids: Vec<_> = (1..100).map(|n| world.open(n).session).collect();
    ids.sort_unstable();
    ids.dedup();
    assert!(ids.len() == 99 && ids.iter().all(|id| id.0 != 0));
    let mut next = World::seeded(Config::default(), 8);
    let mut peer = Peer { session: ids[0], ..Peer::new(1) };
    let message = keep_alive(&mut peer);
    let echo = next.send(&mut peer, &[message]);
    next.expect(&peer, &[Hint { echo, detail: Bytes8(b"") }.into()]);
    assert!(!ids.contains(&next.open(1).session));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# What is sent without a session MUST be smaller than the datagram that caused it.
#[test]
fn what_goes_to_an_unproven_address_is_smaller_than_what_caused_it() {
    let mut world = World::new();
    let mut peer = Peer::new(1);
    let smallest = Hello { label: Bytes8(b""), ..peer.hello(&[]) };
    let other_version = Hello { version_min: 2, version_max: 2, ..smallest };
    let stranger = keep_alive(&mut peer);
    for (session, message) in [(0, smallest.into()), (0, other_version.into()), (99, stranger)] {
        let mut asking = Peer { session: SessionId(session), ..peer.clone() };
        let cause = world.encode(asking.session, asking.packet + 1, &[message]).len();
        world.send(&mut asking, &[message]);
        let got = world.got_one(&asking);
        assert!(got.datagram < cause, "{:?}: {} bytes for {cause}", got.message(), got.datagram);
    }
}

#[test]
fn table_full_of_the_dead_makes_room_and_keeps_the_living() {
    let mut world = World::with(Config { sessions_max: 16, ..Config::default() });
    let mut living = world.open(100);
    for n in 1..16 {
        world.open(n);
    }
    let mut newcomer = Peer::new(101);
    for attempt in 0..60 {
        let cookie = world.cookie(&mut newcomer);
        world.hello(&mut newcomer, &cookie);
        let got = world.got_one(&newcomer);
        if let Message::Welcome(_) = got.message() {
            assert!(attempt > 0, "it was full");
            break;
        }
        for _ in 0..10 {
            world.pass(ms(100));
            for got in world.got(&living) {
                if let Message::Probe(probe) = got.message() {
                    let answer = ReceiptAnswer::Received;
                    world.send(&mut living, &[Receipt { seq: probe.seq, answer }.into()]);
                }
            }
        }
    }
    let message = keep_alive(&mut living);
    world.send(&mut living, &[message]);
    assert!(world.got(&living).iter().any(|got| matches!(got.message(), Message::Alive(_))));
    for n in 1..16 {
        world.got(&Peer::new(n));
    }
    assert!(world.server.stats().steals > 0);
}
