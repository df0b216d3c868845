//! Claims about the network.

use super::*;
use crate::plan::{MS, US};

fn plan() -> NetPlan {
    NetPlan {
        delay_ns: MS,
        jitter_ns: MS,
        loss_ppm: 0,
        duplicate_ppm: 0,
        socket_max: 64,
        batch: 64,
        stall_ppm: 0,
        stall_ns: 0,
        latency_ns: US,
    }
}

fn fault(id: u32, what: What) -> Fault {
    Fault { id, at: 0, until: 100 * MS, what }
}

const ALL: Link = Link { agent: None, up: true, down: true };

fn pass(net: &mut Net, count: u8) -> Vec<Vec<Arrival>> {
    (0..count)
        .map(|n| {
            let mut arrivals = Vec::new();
            net.send(u64::from(n) * MS, 0, true, &[n; 30], &mut arrivals);
            arrivals
        })
        .collect()
}

fn net(loss_ppm: u64) -> Net {
    Net::new(5, NetPlan { loss_ppm, ..plan() }, 2, false)
}

#[test]
fn without_faults_everything_arrives_once_and_whole() {
    for (n, arrivals) in (0..).zip(pass(&mut net(0), 100)) {
        let [Arrival { at, bytes }] = &arrivals[..] else { panic!("{arrivals:?}") };
        let sent = u64::from(n) * MS;
        assert!((sent + MS..=sent + 2 * MS).contains(at) && bytes[..] == [n; 30]);
    }
}

#[test]
fn same_seed_gives_the_same_order_and_another_seed_another() {
    let run = |seed| {
        let mut net = Net::new(seed, NetPlan { loss_ppm: 100_000, duplicate_ppm: 100_000, ..plan() }, 2, false);
        net.begin(&fault(3, What::Reorder { link: ALL, ppm: 300_000, by: 10 * MS }));
        pass(&mut net, 100)
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn leaving_a_fault_out_changes_nothing_that_another_draws() {
    let loss = |id| fault(id, What::Loss { link: ALL, ppm: 400_000 });
    let lost = |faults: &[Fault]| -> Vec<bool> {
        let mut net = net(0);
        faults.iter().for_each(|fault| net.begin(fault));
        pass(&mut net, 100).iter().map(Vec::is_empty).collect()
    };
    let (both, one, two) = (lost(&[loss(1), loss(2)]), lost(&[loss(1)]), lost(&[loss(2)]));
    assert_eq!(both, one.iter().zip(&two).map(|(a, b)| *a || *b).collect::<Vec<_>>());
    assert_ne!(one, two);
}

#[test]
fn a_cut_of_one_direction_leaves_the_other_and_ends() {
    let mut net = net(0);
    net.begin(&fault(1, What::Cut { link: Link { agent: Some(0), up: true, down: false } }));
    let mut arrivals = Vec::new();
    net.send(0, 0, true, b"up", &mut arrivals);
    assert!(arrivals.is_empty());
    net.send(0, 0, false, b"down", &mut arrivals);
    net.send(0, 1, true, b"other", &mut arrivals);
    assert_eq!(arrivals.len(), 2);
    net.end(1);
    net.send(0, 0, true, b"up", &mut arrivals);
    assert_eq!(arrivals.len(), 3);
    assert_eq!((net.counts().sent, net.counts().lost), (4, 1));
}

#[test]
fn corruption_flips_one_bit() {
    let mut net = net(0);
    net.begin(&fault(1, What::Corrupt { link: ALL, ppm: 1_000_000 }));
    for (n, arrivals) in (0u8..).zip(pass(&mut net, 50)) {
        let flipped: u32 = arrivals[0].bytes.iter().map(|byte| (byte ^ n).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
}

#[test]
fn kinds_are_told_apart() {
    let samples = cistern_wire::samples();
    let message = samples.iter().find(|sample| sample.kind() == Kind::KeepAlive).unwrap();
    let mut bytes = Vec::new();
    let header = cistern_wire::Header { from_server: false, session: cistern_wire::SessionId(1), packet: 1 };
    let mut packer = cistern_wire::Packer::new(&mut bytes, header, 1_232);
    assert!(packer.push(message));
    packer.finish();
    assert!(has_kind(&bytes, Kind::KeepAlive) && !has_kind(&bytes, Kind::Release) && !has_kind(b"junk", Kind::KeepAlive));
}

#[test]
fn what_is_replayed_was_sent_on_the_link() {
    let mut net = Net::new(5, plan(), 2, true);
    let mut arrivals = Vec::new();
    assert!(net.recorded(1, 0, ALL).is_none());
    net.send(0, 0, true, b"first", &mut arrivals);
    net.send(0, 1, false, b"second", &mut arrivals);
    let up = net.recorded(1, 0, Link { agent: Some(0), up: true, down: false }).unwrap();
    assert_eq!(&up.bytes[..], b"first");
    assert!(net.recorded(1, 0, Link { agent: Some(1), up: true, down: false }).is_none());
}
