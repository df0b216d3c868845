//! Broken datagrams in tshark: the dissector never fails, and says of each why its receiver drops it, in the words of the decoder.

use crate::{Captured, Sent, datagram_of, header_for, simulated};
use cistern_sim::plan::Profile;
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_MAX, HEADER_LEN};
use cistern_wire::{Datagram, DropReason, Form, Kind, samples};
use std::collections::BTreeSet;

/// Appends the checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let checksum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&checksum.to_be_bytes());
    bytes
}

/// Every sample cut at every byte, with a changed byte in every place, and with more behind it; all with a right checksum.
pub(crate) fn sealed_mutants() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for message in samples() {
        let mut bytes = datagram_of(header_for(&message, 1), &[message]);
        bytes.truncate(bytes.len() - CHECKSUM_LEN);
        for at in HEADER_LEN..bytes.len() {
            all.push(sealed(bytes[..at].to_vec()));
            // The message says itself that it is shorter: it ends inside a field.
            if let Some(len) = u16::try_from(at).unwrap().checked_sub(24) {
                let mut shorter = bytes[..at].to_vec();
                shorter[22..24].copy_from_slice(&len.to_be_bytes());
                all.push(sealed(shorter));
            }
        }
        for at in 0..bytes.len() {
            let mut flipped = bytes.clone();
            flipped[at] ^= 1 << (at % 8);
            all.push(sealed(flipped));
        }
        for more in [vec![0], vec![0x10, 0, 0, 0], vec![0xFF; 9]] {
            let mut longer = bytes.clone();
            longer.extend_from_slice(&more);
            all.push(sealed(longer));
        }
        let len = u16::try_from(bytes.len() - 24 + 1).unwrap();
        bytes.push(0);
        bytes[22..24].copy_from_slice(&len.to_be_bytes());
        all.push(sealed(bytes));
    }
    all
}

/// What is wrong outside of the messages: checksums, headers, lengths.
pub(crate) fn unsealed_mutants() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for message in samples() {
        let bytes = datagram_of(header_for(&message, 1), &[message]);
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x10;
        all.extend([flipped, bytes[..bytes.len() / 2].to_vec(), bytes[..bytes.len() - 1].to_vec()]);
    }
    let sound = datagram_of(header_for(&samples()[0], 1), &samples()[..1]);
    all.extend((1..HEADER_LEN + CHECKSUM_LEN).map(|len| sound[..len].to_vec()));
    all.push(sealed(vec![0xC5; DATAGRAM_MAX]));
    all.push(datagram_of(header_for(&samples()[0], 0), &samples()[..1]));
    all
}

/// Checks what tshark says of each datagram against the decoder; `None` where there is no tshark.
fn assert_named(datagrams: &[Vec<u8>]) -> Option<BTreeSet<&'static str>> {
    let mut reasons = BTreeSet::new();
    let sent: Vec<Sent> = datagrams.iter().enumerate().map(|(n, payload)| Sent::nth(n, payload.clone(), n % 2 == 1)).collect();
    let fields = ["frame.number", "cistern.dropped", "_ws.col.Info", "cistern.expert.fault", "_ws.lua.error"].map(|field| ["-e", field]);
    let args = [&["-T", "fields"][..], fields.as_flattened()].concat();
    let text = Captured::of(&sent).tshark(&args)?;
    assert_eq!(text.lines().count(), datagrams.len());
    for (line, bytes) in text.lines().zip(datagrams) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [number, dropped, info, fault, lua] = columns[..] else { panic!("another number of columns: {line}") };
        let reason = Datagram::seen(bytes).err();
        assert_eq!(dropped, reason.map_or("", |reason| reason.name()), "frame {number}: {bytes:02x?}");
        assert_eq!((fault, lua), ("", ""), "frame {number}");
        if let Some(reason) = reason {
            // Which of the numbers is meant stands in the decoder's words, too.
            assert!(info.starts_with(&format!("[{reason}]")) || info == reason.to_string(), "frame {number}: {info}, not {reason}");
            reasons.insert(reason.name());
        }
    }
    Some(reasons)
}

#[test]
fn every_fault_is_found_and_named_as_the_decoder_names_it() {
    let mut mutants = sealed_mutants();
    mutants.extend(unsealed_mutants());
    let Some(reasons) = assert_named(&mutants) else { return };
    // An onlooker receives in both directions.
    let missing: Vec<&str> = DropReason::NAMES.into_iter().filter(|name| !reasons.contains(name)).collect();
    assert_eq!(missing, [DropReason::WrongDirection.name()], "faults that no mutant has");
}

#[test]
fn datagrams_of_random_bytes_fail_nothing() {
    // Multiplication by an odd constant, as good as any: the bytes need not be good randomness, only many.
    let mut state = 1_u64;
    let mut byte = || {
        state = state.wrapping_mul(0xD134_2543_DE82_EF95).wrapping_add(1);
        state.to_be_bytes()[0]
    };
    let mut all = Vec::new();
    for len in 0..2_000_usize {
        let mut bytes = datagram_of(header_for(&samples()[5], 1), &[]);
        bytes.truncate(HEADER_LEN);
        let kind = Kind::ALL[len % Kind::ALL.len()];
        let body = u16::try_from(len % 300).unwrap();
        bytes.extend_from_slice(&[kind.code(), 0]);
        bytes.extend_from_slice(&body.to_be_bytes());
        bytes.extend((0..body).map(|_| byte() & if len % 2 == 0 { 0x03 } else { 0xFF }));
        all.push(sealed(bytes));
    }
    assert_named(&all);
}

#[test]
fn a_capture_that_cuts_datagrams_short_is_read_as_far_as_it_goes() {
    let whole = simulated(Profile::Calm, 4);
    let captured = Captured::of(&whole[..200]);
    let port = format!("cistern.ports:{}", whole[0].to.port());
    let cut = captured.folder.path().join("cut.pcap");
    // Of every frame only so many bytes: IP and UDP headers, and the beginning of the datagram.
    for snapped in [29, 40, 47, 48, 52, 60, 80] {
        snap(&captured, &cut, snapped);
        let fields =
            ["cistern.dropped", "_ws.lua.error", "cistern.expert.fault", "_ws.malformed", "cistern.expert.cut"].map(|field| ["-e", field]);
        let args = [&["-o", &port, "-T", "fields"][..], fields.as_flattened()].concat();
        let Some(text) = Captured::tshark_of(&cut, &args) else { return };
        assert_eq!(text.lines().count(), 200);
        for (line, sent) in text.lines().zip(&whole) {
            let columns: Vec<&str> = line.split('\t').collect();
            assert_eq!(columns[..4], ["", "", "", ""], "nothing is wrong with what is there: {line}");
            assert!(sent.payload.len() + 28 <= snapped || !columns[4].is_empty(), "cut, but not said so");
        }
    }
}

/// Writes the first `bytes` of every frame.
fn snap(captured: &Captured, into: &std::path::Path, bytes: usize) {
    let source = std::fs::read(captured.path()).unwrap();
    let (head, mut rest) = source.split_at(24);
    let mut file = head.to_vec();
    while let Some((record, tail)) = rest.split_at_checked(16) {
        let len = u32::from_le_bytes(record[8..12].try_into().unwrap()) as usize;
        let kept = len.min(bytes);
        file.extend_from_slice(&record[..8]);
        file.extend_from_slice(&u32::try_from(kept).unwrap().to_le_bytes());
        file.extend_from_slice(&record[12..]);
        file.extend_from_slice(&tail[..kept]);
        rest = &tail[len..];
    }
    std::fs::write(into, file).unwrap();
}

#[test]
fn other_protocols_are_left_alone() {
    let mut foreign = Sent::nth(0, b"\xC5 is how this begins, but it is nothing of ours".to_vec(), false);
    foreign.to = std::net::SocketAddr::from(([10, 0, 0, 1], 4_000));
    let mut sealed_form = datagram_of(header_for(&samples()[0], 1), &samples()[..1]);
    sealed_form[2] = Form::Plain as u8 + 1;
    let mut second = Sent::nth(1, sealed_form, false);
    second.to = foreign.to;
    let Some(text) = Captured::of(&[foreign, second]).tshark(&["-T", "fields", "-e", "frame.protocols"]) else { return };
    assert!(text.lines().all(|line| !line.contains("cistern")), "{text}");
}
