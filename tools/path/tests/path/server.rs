//! The server's core in its steady state: what a request needs was needed by one before.

use allocation_counter::measure;
use cistern_path::{Kind, PACKED, ROOT, Rig};

/// Requests turned before the count: tables and buffers have grown to what is needed.
pub(crate) const WARM: usize = 200;
/// Requests counted.
pub(crate) const COUNTED: usize = 500;

/// Allocations while `COUNTED` requests of a kind are turned, after `WARM` others.
fn allocations(kind: Kind) -> u64 {
    let mut rig = Rig::new();
    let datagrams = kind.prepare(&mut rig, WARM + COUNTED);
    let (warm, counted) = datagrams.split_at(WARM);
    warm.iter().for_each(|datagram| rig.turn(datagram));
    let counted = measure(|| counted.iter().for_each(|datagram| rig.turn(datagram)));
    assert!(rig.answered().is_some(), "{kind:?} was not answered");
    counted.count_total
}

#[test]
fn getattr_allocates_nothing_at_the_server() {
    assert_eq!(allocations(Kind::GetAttr), 0);
}

#[test]
fn lookup_allocates_nothing_at_the_server() {
    assert_eq!(allocations(Kind::Lookup), 0);
}

#[test]
fn read_allocates_nothing_at_the_server() {
    assert_eq!(allocations(Kind::Read), 0);
}

#[test]
fn requests_packed_into_datagrams_allocate_nothing_at_the_server() {
    for kind in [Kind::GetAttr, Kind::Lookup] {
        let mut rig = Rig::new();
        let datagrams = kind.prepare_packed(&mut rig, WARM + COUNTED);
        let (warm, counted) = datagrams.split_at(WARM / PACKED);
        warm.iter().for_each(|datagram| rig.turn(datagram));
        assert_eq!(measure(|| counted.iter().for_each(|datagram| rig.turn(datagram))).count_total, 0, "{kind:?}");
    }
}

#[test]
fn keep_alive_allocates_nothing_at_the_server() {
    assert_eq!(allocations(Kind::KeepAlive), 0);
}

#[test]
fn lock_and_release_of_a_known_file_allocate_nothing_at_the_server() {
    let mut rig = Rig::new();
    let file = rig.create(ROOT, "known");
    let mut counted = [0, 0];
    for round in 0..WARM + COUNTED {
        let lock = rig.lock(file);
        let locking = measure(|| rig.turn(&lock)).count_total;
        let generation = rig.granted();
        let release = rig.release((file, generation));
        let releasing = measure(|| rig.turn(&release)).count_total;
        if round >= WARM {
            counted[0] += locking;
            counted[1] += releasing;
        }
    }
    assert_eq!(counted, [0, 0], "LOCK, RELEASE");
}

#[test]
fn bursts_allocate_nothing_at_the_server() {
    const BURST: usize = 8;
    let mut rig = Rig::new();
    let datagrams = Kind::bursts(&mut rig, WARM + COUNTED, BURST);
    let (warm, counted) = datagrams.split_at(WARM);
    for burst in warm.chunks(BURST) {
        rig.turn_all(burst);
    }
    let counted = measure(|| counted.chunks(BURST).for_each(|burst| rig.turn_all(burst)));
    assert_eq!(counted.count_total, 0);
}

#[test]
fn several_requests_in_flight_allocate_nothing_at_the_server() {
    let mut rig = Rig::new();
    let datagrams = Kind::in_flight(&mut rig, WARM + COUNTED, 16);
    let (warm, counted) = datagrams.split_at(WARM);
    for batch in warm.chunks(16) {
        rig.turn_all(batch);
    }
    let counted = measure(|| counted.chunks(16).for_each(|batch| rig.turn_all(batch)));
    assert_eq!(counted.count_total, 0);
}
