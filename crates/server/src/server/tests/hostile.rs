//! Bytes that no agent sends: whatever comes, only counters change.

use super::world::{LIMIT, Peer, ROOT, World, create, ms};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_wire::limits::{CHECKSUM_LEN, HEADER_LEN};
use cistern_wire::{Datagram, DropReason, Header, Message, Packer, SessionId, Want, samples};
use proptest::prelude::*;

/// Everything that can be seen of the server but its counters.
fn picture(world: &World) -> String {
    format!("{:?} {:?}", world.server.status(world.now), world.server.sessions(world.now))
}

/// A world with a session that has asked something, and the datagrams of that session so far.
fn lived_in() -> (World, Peer) {
    let mut world = World::new();
    let mut peer = world.open(1);
    world.create(&mut peer, "file");
    world.cache(&mut peer, ROOT);
    (world, peer)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    //= wire-spec.md#3-5-validation-and-drops
    //= type=test
    //# A dropped datagram MUST NOT change any state but counters.
    #[test]
    fn random_bytes_change_nothing_but_a_counter(datagrams in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..1_500), 1..20)) {
        let (mut world, peer) = lived_in();
        let before = picture(&world);
        for bytes in &datagrams {
            world.deliver(peer.path, bytes);
            world.turn();
        }
        prop_assert_eq!(picture(&world), before);
        prop_assert_eq!(world.server.stats().drops_total(), datagrams.len() as u64);
    }

    #[test]
    fn damaged_datagram_changes_nothing_but_a_counter(which in any::<proptest::sample::Index>(), at in any::<proptest::sample::Index>(), bit in 0u8..8) {
        let (mut world, peer) = lived_in();
        let samples = samples();
        let message = samples[which.index(samples.len())];
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, Header { from_server: false, session: peer.session, packet: 50 }, usize::from(LIMIT));
        prop_assume!(packer.push(&message));
        packer.finish();
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        let before = picture(&world);
        world.deliver(peer.path, &bytes);
        world.turn();
        prop_assert_eq!(picture(&world), before);
        prop_assert_eq!(world.server.stats().drops_total(), 1);
    }

    /// The checksum is right: what an attacker without a key, or an agent gone mad, can send. It may be answered; nothing panics, and
    /// another agent is served as before.
    #[test]
    fn well_formed_nonsense_harms_nobody_else(
        choices in proptest::collection::vec((any::<proptest::sample::Index>(), any::<proptest::sample::Index>(), any::<u8>(), 1u64..200), 1..30),
        own in any::<bool>(),
    ) {
        let (mut world, mut peer) = lived_in();
        let mut other = world.open(2);
        let samples = samples();
        for (which, at, value, packet) in choices {
            let session = if own { peer.session } else { SessionId(packet) };
            let mut bytes = Vec::new();
            let mut packer = Packer::new(&mut bytes, Header { from_server: false, session, packet }, usize::from(LIMIT));
            if !packer.push(&samples[which.index(samples.len())]) {
                continue;
            }
            packer.finish();
            let body = HEADER_LEN..bytes.len() - CHECKSUM_LEN;
            if !body.is_empty() {
                bytes[body.start + at.index(body.len())] = value;
            }
            let end = bytes.len() - CHECKSUM_LEN;
            let checksum = crc32fast::hash(&bytes[..end]).to_be_bytes();
            bytes[end..].copy_from_slice(&checksum);
            world.deliver(peer.path, &bytes);
            world.turn();
        }
        world.pass(ms(50));
        world.got(&peer);
        world.got(&other);
        peer.packet = 1_000;
        let ask = other.ask_only();
        world.send(&mut other, &[create(ask, "still-served", Want::Nothing).into()]);
        let got = world.got(&other);
        prop_assert!(got.iter().any(|got| matches!(got.message(), Message::Ack(_) | Message::Pending(_))), "{:?}", got);
        world.got(&peer);
    }
}

//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A receiver MUST count drops by reason.
//= wire-spec.md#3-5-validation-and-drops
//= type=test
//# A receiver MUST validate a datagram to its last byte before any message in it acts.
#[test]
fn every_reason_for_a_drop_before_decoding_is_counted_by_name() {
    let (mut world, peer) = lived_in();
    let keep_alive: Message<'_> = cistern_wire::KeepAlive { serial: 1, clock_us: 0 }.into();
    let good = world.encode(peer.session, 90, &[keep_alive]);
    let resealed = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let end = bytes.len() - CHECKSUM_LEN;
        let checksum = crc32fast::hash(&bytes[..end]).to_be_bytes();
        bytes[end..].copy_from_slice(&checksum);
        bytes
    };
    let bad: [(&str, Vec<u8>); 14] = [
        ("too_short", Vec::from([0; 23])),
        ("too_long", Vec::from([0; 9_000])),
        ("bad_magic", resealed(&|b| b[0] = 0)),
        ("unknown_version", resealed(&|b| b[1] = 9)),
        ("unknown_form", resealed(&|b| b[2] = 1)),
        ("reserved_bits", resealed(&|b| b[3] = 0x80)),
        ("bad_checksum", {
            let mut bytes = good.clone();
            bytes[30] ^= 1;
            bytes
        }),
        ("wrong_direction", resealed(&|b| b[3] = 1)),
        ("bad_packet_number", resealed(&|b| b[12..20].fill(0))),
        ("empty", resealed(&|b| b.truncate(HEADER_LEN + CHECKSUM_LEN))),
        ("unknown_kind", resealed(&|b| b[HEADER_LEN] = 0xFE)),
        ("bad_length", resealed(&|b| b[HEADER_LEN + 3] = 200)),
        ("malformed", resealed(&|b| b[HEADER_LEN + 3] = 15)),
        ("misplaced", resealed(&|b| b[4..12].fill(0))),
    ];
    let names: Vec<_> = bad.iter().map(|case| case.0).collect();
    assert_eq!(names, DropReason::NAMES);
    for (name, bytes) in bad {
        let before = picture(&world);
        world.deliver(peer.path, &bytes);
        world.turn();
        let counted: Vec<_> = world.server.stats().drops().filter(|drop| drop.0 == name).map(|drop| drop.1).collect();
        assert_eq!((counted.as_slice(), picture(&world)), ([1].as_slice(), before), "{name}: {:?}", Datagram::at_server(&bytes).err());
    }
    // None of them has used the number up; what comes under it afterwards is not even decoded.
    world.deliver(peer.path, &good);
    world.turn();
    assert!(world.got(&peer).iter().any(|got| matches!(got.message(), Message::Alive(_))));
    world.deliver(peer.path, &resealed(&|b| b[HEADER_LEN] = 0xFE));
    world.turn();
    let counted = |name| world.server.stats().drops().find(|drop| drop.0 == name).map(|drop| drop.1);
    assert_eq!((counted("duplicate_packet"), counted("unknown_kind")), (Some(1), Some(1)));
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# HINT, CHALLENGE and REFUSE MUST NOT be sent in answer to a datagram of a server.
#[test]
fn datagrams_of_a_server_are_answered_by_nothing() {
    let (mut world, peer) = lived_in();
    let sessions = [SessionId(0), peer.session, SessionId(99)];
    for (packet, message) in (100..).zip(samples()) {
        for session in sessions {
            let mut bytes = Vec::new();
            let mut packer = Packer::new(&mut bytes, Header { from_server: true, session, packet }, usize::from(LIMIT));
            if packer.push(&message) {
                packer.finish();
                world.deliver(peer.path, &bytes);
                world.turn();
            }
        }
    }
    world.expect(&peer, &[]);
}
