//! tshark's view and the inspector's are the same: samples, simulated runs, broken datagrams.

use crate::broken::{sealed_mutants, unsealed_mutants};
use crate::{Captured, Sent, datagram_of, header_for, simulated};
use cistern_capture::{Datagram, Reader};
use cistern_sim::plan::Profile;
use cistern_wire::{DatagramTree, Shape, Shown, Value as Leaf, samples};
use cistern_wireshark::view::{compare, tshark};
use std::collections::BTreeMap;
use std::fs::File;

fn assert_all_agree(datagrams: &[Sent]) {
    let captured = Captured::of(datagrams);
    compare::assert_alike(&captured.path(), &[], &captured.datagrams());
}

#[test]
fn every_sample_is_read_alike() {
    let samples = samples();
    let datagrams = samples.iter().enumerate().map(|(n, message)| {
        let header = header_for(message, n as u64 + 1);
        Sent::nth(n, datagram_of(header, &[*message, *message]), header.from_server)
    });
    assert_all_agree(&datagrams.collect::<Vec<_>>());
}

#[test]
fn simulated_runs_are_read_alike_by_the_heuristic_alone() {
    // The simulator's server has another port than the dissector expects.
    for (profile, seed) in [(Profile::Partition, 1), (Profile::Restart, 2), (Profile::Swarm, 3)] {
        let datagrams: Vec<Sent> =
            simulated(profile, seed).into_iter().filter(|sent| DatagramTree::of(&sent.payload).reason.is_none()).take(1_500).collect();
        assert!(datagrams.len() > 100, "{} datagrams are no run", datagrams.len());
        assert_all_agree(&datagrams);
    }
}

#[test]
fn kept_captures_of_real_programs_are_read_alike() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../dump/tests/captures");
    let captures = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let captures: Vec<_> = captures.filter(|path| path.extension().is_some_and(|end| end == "pcap")).collect();
    assert!(!captures.is_empty(), "{folder} has no captures");
    for path in captures {
        let datagrams: Vec<Datagram> = Reader::new(File::open(&path).unwrap()).map(Result::unwrap).collect();
        compare::assert_alike(&path, &[], &datagrams);
    }
}

#[test]
fn broken_datagrams_are_read_alike_as_far_as_they_can_be() {
    let mutants = sealed_mutants().into_iter().chain(unsealed_mutants()).step_by(13);
    assert_all_agree(&mutants.enumerate().map(|(n, payload)| Sent::nth(n, payload, false)).collect::<Vec<_>>());
}

#[test]
fn wireshark_knows_every_name_that_the_inspector_writes() {
    let Some(text) = tshark(&["-G", "fields"]) else { return };
    let fields: BTreeMap<&str, &str> = text
        .lines()
        .filter_map(|line| {
            let columns: Vec<&str> = line.split('\t').collect();
            (columns.first() == Some(&"F") && columns.get(4) == Some(&"cistern")).then(|| (columns[2], columns[3]))
        })
        .collect();
    for message in samples() {
        let bytes = datagram_of(header_for(&message, 1), &[message]);
        let tree = DatagramTree::of(&bytes);
        for (name, leaf) in compare::leaves(&tree) {
            let expected = match (leaf.value, leaf.shape, leaf.shown) {
                (Leaf::Bool(_), ..) => "FT_BOOLEAN",
                (Leaf::Signed(_), ..) => "FT_INT64",
                (Leaf::Bytes(_), _, Shown::Text) => "FT_STRING",
                (Leaf::Bytes(_), ..) => "FT_BYTES",
                (_, Shape::Number { bytes: 2, .. }, _) => "FT_UINT16",
                (_, Shape::Number { bytes: 4, .. }, _) => "FT_UINT32",
                (_, Shape::Number { bytes: 8, .. }, _) => "FT_UINT64",
                _ => "FT_UINT8",
            };
            assert_eq!(fields.get(name.as_str()), Some(&expected), "{name}");
        }
    }
}
