//! Files that end in the middle, are damaged in the middle, or hold anything at all.

use cistern_capture::Reader;
use proptest::prelude::*;

use super::{LITTLE, packet, payloads, pcap, pcapng, read};

const TEXTS: [&[u8]; 5] = [b"one", b"two", b"three", b"four", b"five"];

fn files() -> [(&'static str, Vec<u8>); 2] {
    [("pcap", pcap(&TEXTS)), ("pcapng", pcapng(&TEXTS))]
}

#[test]
fn a_file_cut_anywhere_gives_what_is_whole_and_says_that_it_was_cut() {
    for (format, file) in files() {
        let mut most = 0;
        for cut in 4..=file.len() {
            let (datagrams, tally) = read(&file[..cut]);
            assert!(datagrams.len() >= most && payloads(&datagrams) == TEXTS[..datagrams.len()], "{format} cut at {cut}");
            most = datagrams.len();
            let rest = tally.unfinished_bytes;
            assert!(tally.damaged_at.is_none() && (rest == 0) == tally.is_clean(), "{format} cut at {cut}: {tally}");
            assert!(rest < 100, "{format} cut at {cut}: {tally}");
        }
        assert_eq!(most, TEXTS.len());
    }
}

/// The file with these bytes in front of the record or block of `TEXTS[index]`, and where they are.
fn with_damage(file: &[u8], index: usize, damage: &[u8]) -> (Vec<u8>, usize) {
    let frame = packet(TEXTS[index]);
    let payload = file.windows(frame.len()).position(|window| window == frame).expect("the frame");
    let start = payload - if file[..4] == LITTLE.header()[..4] { 16 } else { 28 };
    ([&file[..start], damage, &file[start..]].concat(), start)
}

#[test]
fn all_before_damage_is_read_and_its_place_is_named() {
    let text = b"This is a line of a log that somebody wrote to the wrong file descriptor.\n".repeat(20);
    for damage in [&text[..], &[0; 4_096], &[0xFF; 333]] {
        for (format, file) in files() {
            let (file, at) = with_damage(&file, 2, damage);
            let (datagrams, tally) = read(&file);
            assert_eq!(payloads(&datagrams), TEXTS[..2], "{format}: {tally}");
            assert_eq!((tally.damaged_at, tally.unfinished_bytes, tally.is_clean()), (Some(at as u64), 0, false), "{format}: {tally}");
        }
    }
}

#[test]
fn a_length_that_no_frame_has_is_damage() {
    for (format, file) in files() {
        let (mut file, at) = with_damage(&file, 2, b"");
        let length = at + if format == "pcap" { 8 } else { 4 };
        file[length..length + 4].copy_from_slice(&(20_u32 << 20).to_le_bytes());
        let (datagrams, tally) = read(&file);
        assert_eq!((payloads(&datagrams), tally.damaged_at), (TEXTS[..2].to_vec(), Some(at as u64)), "{format}: {tally}");
    }
}

/// Reads to the end, whatever comes; the counts must add up.
fn survive(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let given = reader.by_ref().take_while(Result::is_ok).count() as u64;
    let tally = reader.tally();
    assert_eq!(tally.datagrams, given);
    assert_eq!(tally.frames, given + tally.skipped().map(|(_, count)| count).sum::<u64>());
    assert!(tally.damaged_at.unwrap_or(0) + tally.unfinished_bytes <= bytes.len() as u64);
    assert!(!tally.to_string().is_empty());
}

/// A capture of each format with a link type drawn, its bytes changed here and there.
fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let change = prop_oneof![
        (any::<prop::sample::Index>(), any::<u8>()).prop_map(|(at, byte)| (at, vec![byte])),
        (any::<prop::sample::Index>(), prop::sample::select(vec![0, 1, 12, 28, 0x7FFF_FFFF, u32::MAX - 4, u32::MAX]))
            .prop_map(|(at, word)| (at, word.to_le_bytes().to_vec())),
    ];
    let links = prop::sample::select(vec![0_u8, 1, 12, 14, 101, 108, 113]);
    (any::<bool>(), links, prop::collection::vec(change, 0..6), any::<prop::sample::Index>()).prop_map(|(ng, link, changes, cut)| {
        let mut file = if ng { pcapng(&TEXTS) } else { pcap(&TEXTS) };
        file[if ng { 36 } else { 20 }] = link;
        for (at, bytes) in changes {
            let at = at.index(file.len());
            for (place, byte) in file[at..].iter_mut().zip(bytes) {
                *place = byte;
            }
        }
        file.truncate(cut.index(file.len() * 3 + 1));
        file
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..600), start in 0..6_usize) {
        let starts = [vec![], LITTLE.header(), pcapng(&[]), LITTLE.section(), super::Layout { big_endian: true, ..LITTLE }.header(),
            super::Layout { big_endian: true, ..LITTLE }.section()];
        survive(&[starts[start].clone(), bytes].concat());
    }

    #[test]
    fn no_frame_makes_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), version in 4..=6_u8,
        link in prop::sample::select(vec![0_u32, 1, 12, 101, 108, 113, 228, 229, 276])) {
        let layout = super::Layout { link, ..LITTLE };
        let mut ip = bytes.clone();
        if let Some(first) = ip.first_mut() { *first = version << 4 | 5; }
        let record = |frame: &[u8]| layout.record(std::time::Duration::from_secs(1), frame, frame.len() + usize::from(version) - 4);
        survive(&[layout.header(), record(&bytes), record(&ip)].concat());
    }

    #[test]
    fn no_mutation_makes_it_panic(file in mutated()) {
        survive(&file);
    }

    #[test]
    fn no_block_makes_it_panic(kind in 0..12_u32, body in prop::collection::vec(any::<u8>(), 0..120), big_endian in any::<bool>()) {
        let layout = super::Layout { big_endian, ..LITTLE };
        survive(&[layout.section(), layout.interface(101, 0, &[]), layout.block(kind, &body), layout.enhanced(0, 1, &packet(b"x"))].concat());
    }
}
