//! What the network decides, without sockets: the same seed and datagrams have the same fate, and each rule touches its own only.

use bytes::Bytes;
use cistern_netfault::command::{Command, Healed};
use cistern_netfault::network::{Fate, Network, Passing};
use cistern_netfault::stats::Lost;
use cistern_wire::{Datagram, Header, Kind, Lane, Message, Packer, SessionId, Writer, samples};

const MS: u64 = 1_000_000;

fn network(seed: u64, commands: &[&str]) -> Network {
    let mut network = Network::new(seed);
    for text in commands {
        set(&mut network, 0, text);
    }
    network
}

fn set(network: &mut Network, now: u64, text: &str) {
    match Command::parse(text).unwrap() {
        Command::Set(action, scope) => {
            network.set(now, None, action, scope);
        }
        Command::Heal(which) => {
            network.heal(&which);
        }
        Command::End => unreachable!("not a network's"),
    }
}

fn passing(agent: u32, up: bool, number: u64) -> Passing<'static> {
    let label = if agent == 1 { "web-1" } else { "" };
    Passing { agent, address: ([10, 0, 0, u8::try_from(agent).unwrap()], 4_000).into(), label, up, number }
}

/// The fates of datagrams a millisecond apart, in both directions, of agents 1 and 2 in turn.
fn fates(network: &mut Network, count: u64) -> Vec<Fate> {
    let one = |n: u64| {
        let who = passing(u32::try_from(n % 2).unwrap() + 1, n % 4 < 2, n / 4);
        network.pass(n * MS, &who, Bytes::from(vec![u8::try_from(n % 251).unwrap(); 100]))
    };
    (0..count).map(one).collect()
}

const EVERYTHING: [&str; 6] = ["loss 10%", "duplicate 10%", "reorder 20%", "delay 5ms jitter 5ms", "corrupt 5%", "rate 500kbit queue 50ms"];

#[test]
fn same_seed_and_datagrams_have_the_same_fates_and_another_seed_others() {
    let first = fates(&mut network(7, &EVERYTHING), 2_000);
    assert_eq!(first, fates(&mut network(7, &EVERYTHING), 2_000));
    assert_ne!(first, fates(&mut network(8, &EVERYTHING), 2_000));
    let lost = first.iter().filter(|fate| matches!(fate, Fate::Lost(Lost::Loss))).count();
    assert!((120..280).contains(&lost), "{lost} of 2000 at 10 %");
}

#[test]
fn without_rules_everything_passes_at_once_and_whole() {
    for (n, fate) in fates(&mut network(7, &[]), 100).into_iter().enumerate() {
        let n = n as u64;
        let bytes = Bytes::from(vec![u8::try_from(n).unwrap(); 100]);
        assert_eq!(fate, Fate::Passes { at: n * MS, again: Vec::new(), bytes, corrupted: false });
    }
}

fn lost(network: &mut Network, who: Passing<'_>) -> bool {
    matches!(network.pass(5 * MS, &who, Bytes::from_static(b"x")), Fate::Lost(_))
}

#[test]
fn rule_touches_its_direction_and_its_agent_only() {
    let cases: [(&str, [bool; 4]); 7] = [
        ("cut", [true, true, true, true]),
        ("cut a->s", [true, false, true, false]),
        ("cut s->a", [false, true, false, true]),
        ("cut agent 1", [true, true, false, false]),
        ("cut agent web-1 a->s", [true, false, false, false]),
        ("cut agent 10.0.0.2", [false, false, true, true]),
        ("cut agent 10.0.0.2:4001", [false, false, false, false]),
    ];
    for (rule, expected) in cases {
        let mut network = network(1, &[rule]);
        let found = [(1, true), (1, false), (2, true), (2, false)].map(|(agent, up)| lost(&mut network, passing(agent, up, 1)));
        assert_eq!(found, expected, "{rule}");
    }
}

#[test]
fn rule_for_a_kind_touches_datagrams_with_such_a_message_only() {
    let mut network = network(1, &["loss 100% kind DEMAND"]);
    let mut met = 0;
    for (kind, datagram) in datagrams() {
        let fate = network.pass(0, &passing(1, false, 1), datagram);
        assert_eq!(matches!(fate, Fate::Lost(Lost::Loss)), kind == Kind::Demand, "{}", kind.name());
        met += usize::from(kind == Kind::Demand);
    }
    assert!(met > 0 && !lost(&mut network, passing(1, false, 1)), "what is no message is none of that kind");
}

/// A datagram with each kind of message, as far as they stand alone.
fn datagrams() -> Vec<(Kind, Bytes)> {
    let datagram = |message: &Message<'_>| {
        [true, false].into_iter().find_map(|from_server| {
            let mut bytes = Writer::new();
            let session = SessionId(if message.kind().lane() == Lane::Handshake { 0 } else { 9 });
            let mut packer = Packer::new(&mut bytes, Header { from_server, session, packet: 1 }, 8_952);
            packer.push(message);
            packer.finish();
            let bytes = Bytes::copy_from_slice(bytes.as_slice());
            Datagram::seen(&bytes).is_ok().then(|| (message.kind(), bytes))
        })
    };
    samples().iter().filter_map(datagram).collect()
}

#[test]
fn rule_takes_the_place_of_one_of_the_same_action_and_scope_and_nothing_ends_it() {
    let mut network = network(1, &["loss 10%", "loss 100% a->s", "delay 5ms"]);
    assert_eq!(network.rules(0).len(), 3);
    set(&mut network, 0, "loss 100%");
    assert_eq!(network.rules(0).len(), 3);
    set(&mut network, 0, "loss 0%");
    assert_eq!(network.rules(0).len(), 2);
    assert!(lost(&mut network, passing(1, true, 1)) && !lost(&mut network, passing(1, false, 1)));
    assert_eq!(network.heal(&Healed::Action("loss".to_owned())), 1);
    assert_eq!(network.rules(0).iter().map(|rule| rule.action.name()).collect::<Vec<_>>(), ["delay"]);
    assert_eq!(network.heal(&Healed::All), 1);
}

#[test]
fn rule_with_an_end_is_over_then() {
    let mut network = Network::new(1);
    let Command::Set(action, scope) = Command::parse("cut").unwrap() else { panic!("a rule") };
    network.set(0, Some(10 * MS), action, scope);
    let at = |network: &mut Network, now| matches!(network.pass(now, &passing(1, true, 1), Bytes::new()), Fate::Lost(Lost::Cut));
    assert!(at(&mut network, 10 * MS - 1) && !at(&mut network, 10 * MS));
}

#[test]
fn flap_lets_through_in_the_second_half_of_each_period() {
    let mut network = network(1, &["flap 10ms"]);
    let passes: Vec<bool> =
        (0..20).map(|ms| !matches!(network.pass(ms * MS, &passing(1, true, ms), Bytes::new()), Fate::Lost(Lost::Flap))).collect();
    assert_eq!(passes, [[false; 5], [true; 5], [false; 5], [true; 5]].concat());
}

#[test]
fn rate_spaces_datagrams_and_loses_what_would_wait_too_long() {
    let mut network = network(1, &["rate 100pps queue 50ms a->s"]);
    let fates: Vec<_> = (0..10).map(|n| network.pass(0, &passing(1, true, n), Bytes::from_static(b"x"))).collect();
    for (n, fate) in fates.iter().enumerate() {
        match fate {
            Fate::Passes { at, .. } => assert!(n <= 5 && *at == (n as u64 + 1) * 10 * MS, "{n}: {fate:?}"),
            Fate::Lost(cause) => assert!(n > 5 && *cause == Lost::Rate, "{n}: {fate:?}"),
        }
    }
    let Fate::Passes { at, .. } = network.pass(0, &passing(1, false, 0), Bytes::new()) else { panic!("the other way is free") };
    assert_eq!(at, 0);
    let Fate::Passes { at, .. } = network.pass(500 * MS, &passing(1, true, 11), Bytes::new()) else { panic!("the queue is empty again") };
    assert_eq!(at, 510 * MS);
}

#[test]
fn bits_take_time_by_their_number() {
    let mut network = network(1, &["rate 1mbit queue 1s"]);
    let Fate::Passes { at, .. } = network.pass(0, &passing(1, true, 1), Bytes::from(vec![0; 1_250])) else { panic!("it passes") };
    assert_eq!(at, 10 * MS);
}

#[test]
fn what_cannot_be_told_of_sealed_datagrams_is_counted_and_nothing_done() {
    let commands = ["cut a->s kind DEMAND", "cut agent web-2", "loss 100% agent 7", "delay 1ms agent 2"];
    let mut network = network(1, &commands);
    // A record, a handshake datagram, and what only looks like one.
    let datagram = |first: u8, form: u8| Bytes::from([&[first, 1, form][..], &[0; 60]].concat());
    for (number, bytes) in [datagram(0xC5, 1), datagram(0xC5, 2), datagram(0xC6, 1)].into_iter().enumerate() {
        let fate = network.pass(0, &passing(2, true, number as u64), bytes.clone());
        let Fate::Passes { at, bytes: passed, .. } = fate else { panic!("{fate:?}") };
        assert_eq!((at, passed), (MS, bytes), "only the rule by number is for it");
    }
    let untold: Vec<_> = network.rules(0).iter().map(|rule| rule.untold).collect();
    assert_eq!(untold, [2, 2, 0, 0]);
    // The other way, and of an agent that has told its label.
    network.pass(0, &passing(1, false, 0), datagram(0xC5, 1));
    let untold: Vec<_> = network.rules(0).iter().map(|rule| rule.untold).collect();
    assert_eq!(untold, [2, 2, 0, 0]);
}
