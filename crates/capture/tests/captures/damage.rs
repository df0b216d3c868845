//! Files that end in the middle, have rubbish in the middle, or are nothing but rubbish.

use std::io::{self, Read};

use cistern_capture::{Reader, Rubbish};
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
            assert!(tally.rubbish_bytes == 0 && (rest == 0) == tally.is_clean(), "{format} cut at {cut}: {tally}");
            assert!(rest < 100, "{format} cut at {cut}: {tally}");
        }
        assert_eq!(most, TEXTS.len());
    }
}

/// The file with these bytes in front of the record or block of `TEXTS[index]`.
fn with_rubbish(file: &[u8], index: usize, rubbish: &[u8]) -> (Vec<u8>, usize) {
    let frame = packet(TEXTS[index]);
    let payload = file.windows(frame.len()).position(|window| window == frame).expect("the frame");
    let start = payload - if file[..4] == LITTLE.header()[..4] { 16 } else { 28 };
    ([&file[..start], rubbish, &file[start..]].concat(), start)
}

#[test]
fn rubbish_in_the_middle_is_left_out_and_named_and_what_follows_is_read() {
    let text = b"This is a line of a log that somebody wrote to the wrong file descriptor.\n".repeat(20);
    let noise: Vec<u8> = (0..4_001_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[2]).collect();
    for rubbish in [&text[..], &vec![0; 4_096], &vec![0xFF; 333], &noise, b"x"] {
        for (format, file) in files() {
            let (file, at) = with_rubbish(&file, 2, rubbish);
            let (datagrams, tally) = read(&file);
            assert_eq!(payloads(&datagrams), TEXTS, "{format} with {} bytes: {tally}", rubbish.len());
            let expected = Rubbish { offset: at as u64, length: rubbish.len() as u64 };
            assert_eq!(tally.rubbish(), [expected], "{format}");
            assert!(!tally.is_clean());
        }
    }
}

#[test]
fn a_record_written_only_in_part_costs_itself_alone() {
    for (format, file) in files() {
        let frame = packet(TEXTS[2]);
        let end = file.windows(frame.len()).position(|window| window == frame).expect("the frame") + frame.len() / 2;
        let torn = [&file[..end], &file[end + frame.len() / 2..]].concat();
        let (datagrams, tally) = read(&torn);
        for text in [TEXTS[0], TEXTS[1], TEXTS[4]] {
            assert!(payloads(&datagrams).contains(&text), "{format}: {tally}");
        }
        assert!(!tally.is_clean(), "{format}: {tally}");
    }
}

#[test]
fn a_length_that_reaches_over_the_end_does_not_hide_what_follows() {
    for (format, file) in files() {
        let (file, at) = with_rubbish(&file, 2, b"");
        let mut file = file;
        let length = at + if format == "pcap" { 8 } else { 4 };
        file[length..length + 4].copy_from_slice(&100_000_u32.to_le_bytes());
        if format == "pcap" {
            file[length + 4..length + 8].copy_from_slice(&100_000_u32.to_le_bytes());
        }
        let (datagrams, tally) = read(&file);
        assert_eq!(payloads(&datagrams), [TEXTS[0], TEXTS[1], TEXTS[3], TEXTS[4]], "{format}: {tally}");
        assert!(tally.rubbish_bytes > 0, "{format}: {tally}");
    }
}

/// A source that counts how often it is read, and the bytes that it was offered room for.
struct Counted<'a> {
    bytes: &'a [u8],
    reads: usize,
    room: usize,
}

impl Read for Counted<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        (self.reads, self.room) = (self.reads + 1, self.room + out.len());
        self.bytes.read(out)
    }
}

#[test]
fn lengths_that_reach_over_the_end_cost_no_search_each() {
    const LIES: usize = 64;
    let lie = [[1, 0, 0, 0], [0, 0, 0, 1]].concat();
    let mut blocks = LITTLE.section();
    blocks.extend(lie.repeat(LIES));
    blocks.extend(LITTLE.block(5, &[]));
    // A record like the one before it, but of all that a frame may hold.
    let frame = packet(TEXTS[0]);
    let good = LITTLE.record(std::time::Duration::from_secs(1_700_000_000), &frame, frame.len());
    let mut lie = good[..16].to_vec();
    lie[8..12].copy_from_slice(&262_144_u32.to_le_bytes());
    lie[12..16].copy_from_slice(&262_144_u32.to_le_bytes());
    let records = [LITTLE.header(), good.clone(), lie.repeat(LIES), good].concat();
    for (format, file, rubbish) in [("pcapng", blocks, 8 * LIES), ("pcap", records, 16 * LIES)] {
        let mut source = Counted { bytes: &file, reads: 0, room: 0 };
        let mut reader = Reader::new(&mut source);
        while reader.next_datagram().unwrap().is_some() {}
        assert_eq!((reader.tally().rubbish_bytes, reader.tally().unfinished_bytes), (rubbish as u64, 0), "{format}");
        assert!(source.reads <= 4 && source.room <= 1 << 20, "{format}: {} reads into {} bytes", source.reads, source.room);
    }
}

/// Gives its bytes a few at a time, with an end for now before each.
struct Drops<'a>(&'a [u8], bool);

impl Read for Drops<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = !self.1;
        let count = if self.1 { 0 } else { self.0.len().min(64) };
        let (now, rest) = self.0.split_at(count);
        out[..count].copy_from_slice(now);
        self.0 = rest;
        Ok(count)
    }
}

#[test]
fn a_pipe_that_ends_again_and_again_in_a_length_that_reaches_far_costs_no_search_each_time() {
    for (name, file) in files() {
        let (mut bytes, at) = with_rubbish(&file, 1, b"");
        // The second record says that it is longer than what comes in many drops.
        let reach = if name == "pcap" { 262_000_u32 } else { 16 << 20 };
        let (field, rubbish) = if name == "pcap" { (at + 8, 200_000) } else { (at + 4, 1 << 20) };
        bytes[field..field + 4].copy_from_slice(&reach.to_le_bytes());
        bytes.truncate(field + 4);
        bytes.extend(if name == "pcap" { reach.to_le_bytes() } else { [0; 4] });
        bytes.resize(bytes.len() + rubbish, 0xA5);
        let mut reader = Reader::new(Drops(&bytes, false));
        let drops = 2 * bytes.len() / 64 + 10;
        let found = (0..drops).filter_map(|_| reader.next_datagram().unwrap()).count();
        assert_eq!((found, reader.tally().unfinished_bytes > 100_000), (1, true), "{name}: {}", reader.tally());
    }
}

/// Reads to the end, whatever comes; the counts must add up.
fn survive(bytes: &[u8]) {
    let mut reader = Reader::new(bytes);
    let given = reader.by_ref().take_while(Result::is_ok).count() as u64;
    let tally = reader.tally();
    assert_eq!(tally.datagrams, given);
    assert_eq!(tally.frames, given + tally.skipped().map(|(_, count)| count).sum::<u64>());
    assert!(tally.rubbish_bytes + tally.unfinished_bytes <= bytes.len() as u64);
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
