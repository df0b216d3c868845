//! Both formats in both byte orders, their clocks, their sections; sources that come in pieces.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::time::Duration;

use cistern_capture::{ReadError, Reader, Skip};

use super::{LITTLE, Layout, packet, payloads, pcap, pcapng, read, read_from, skipped};

const BIG: Layout = Layout { big_endian: true, ..LITTLE };

#[test]
fn pcap_is_read_in_both_byte_orders_and_both_units_of_time() {
    for big_endian in [false, true] {
        for nanoseconds in [false, true] {
            let layout = Layout { big_endian, nanoseconds, link: 101 };
            let at = Duration::new(1_700_000_000, 123_456_789);
            let frame = packet(b"hello");
            let (datagrams, tally) = read(&[layout.header(), layout.record(at, &frame, frame.len())].concat());
            let expected = if nanoseconds { at } else { Duration::new(1_700_000_000, 123_456_000) };
            assert_eq!(datagrams.len(), 1, "{layout:?}: {tally}");
            assert_eq!((datagrams[0].number, datagrams[0].at), (1, expected), "{layout:?}");
            assert_eq!((datagrams[0].from.to_string(), datagrams[0].to.to_string()), ("10.0.0.1:4000".into(), "10.0.0.2:7311".into()));
            assert!(tally.is_clean() && tally.frames == 1, "{tally}");
        }
    }
}

#[test]
fn frames_are_numbered_from_one_over_those_that_give_nothing() {
    let arp = [vec![0xFF; 12], vec![8, 6], vec![0; 28]].concat();
    let ethernet = |payload: &[u8]| [vec![0; 12], vec![8, 0], packet(payload)].concat();
    let layout = Layout { link: 1, ..LITTLE };
    let record = |frame: &[u8]| layout.record(Duration::from_secs(1), frame, frame.len());
    let (datagrams, tally) =
        read(&[layout.header(), record(&arp), record(&ethernet(b"a")), record(&arp), record(&ethernet(b"b"))].concat());
    assert_eq!(datagrams.iter().map(|datagram| datagram.number).collect::<Vec<_>>(), [2, 4]);
    assert_eq!(skipped(&tally), [(Skip::NotIp(Some(0x0806)), 2)]);
}

#[test]
fn pcapng_has_sections_with_interfaces_and_byte_orders_of_their_own() {
    let ethernet = [vec![0; 12], vec![8, 0], packet(b"second")].concat();
    let file = [
        LITTLE.section(),
        LITTLE.interface(1, 0, &[]),
        LITTLE.interface(101, 0, &[]),
        LITTLE.enhanced(1, 5_000_001, &packet(b"first")),
        LITTLE.enhanced(0, 6_000_000, &ethernet),
        BIG.section(),
        BIG.interface(101, 0, &[]),
        BIG.enhanced(0, 7_000_000, &packet(b"third")),
    ]
    .concat();
    let (datagrams, tally) = read(&file);
    assert_eq!(payloads(&datagrams), [&b"first"[..], b"second", b"third"], "{tally}");
    assert_eq!(datagrams.iter().map(|datagram| datagram.at.as_micros()).collect::<Vec<_>>(), [5_000_001, 6_000_000, 7_000_000]);
    assert!(tally.is_clean(), "{tally}");
}

type Options<'a> = &'a [(u16, &'a [u8])];

#[test]
fn interfaces_say_the_unit_and_the_offset_of_their_clock() {
    for layout in [LITTLE, BIG] {
        let offset = if layout.big_endian { 100_i64.to_be_bytes() } else { 100_i64.to_le_bytes() };
        let before_1970 = if layout.big_endian { i64::MIN.to_be_bytes() } else { i64::MIN.to_le_bytes() };
        // What a clock of whole seconds can say at most is cut to the last day that every time zone has in the year 9999.
        let latest = Duration::from_secs(253_402_127_999);
        let clocks: [(Options<'_>, u64, Duration); 10] = [
            (&[], 3_000_001, Duration::from_micros(3_000_001)),
            (&[(9, &[9])], 3_000_000_007, Duration::from_nanos(3_000_000_007)),
            (&[(9, &[3])], 4_005, Duration::from_millis(4_005)),
            (&[(9, &[12])], 2_000_000_003_999, Duration::from_nanos(2_000_000_003)),
            (&[(9, &[0x80 | 10])], 1_024 + 512, Duration::from_millis(1_500)),
            (&[(9, &[9]), (14, &offset)], 5, Duration::new(100, 5)),
            (&[(9, &[127])], u64::MAX, Duration::ZERO),
            (&[(14, &before_1970)], 5, Duration::ZERO),
            (&[(9, &[0])], u64::MAX, latest),
            (&[(9, &[0]), (14, &offset)], u64::MAX, latest),
        ];
        for (options, ticks, expected) in clocks {
            let file = [layout.section(), layout.interface(101, 0, options), layout.enhanced(0, ticks, &packet(b"x"))].concat();
            let (datagrams, tally) = read(&file);
            assert_eq!(datagrams.first().map(|datagram| datagram.at), Some(expected), "{options:?} in {layout:?}: {tally}");
        }
    }
}

#[test]
fn simple_and_old_packet_blocks_have_their_frames() {
    let frame = packet(b"12345");
    let simple = LITTLE.block(3, &[LITTLE.word(frame.len().try_into().unwrap()).to_vec(), frame.clone()].concat());
    let words = [0, 0, 9_000_000, frame.len(), frame.len()].map(|word| LITTLE.word(word.try_into().unwrap())).concat();
    let old = LITTLE.block(2, &[words, frame].concat());
    let file = [LITTLE.section(), LITTLE.interface(101, 0, &[]), simple, old].concat();
    let (datagrams, tally) = read(&file);
    assert_eq!(payloads(&datagrams), [b"12345", b"12345"], "{tally}");
    assert_eq!((datagrams[0].at, datagrams[1].at), (Duration::ZERO, Duration::from_secs(9)));
}

#[test]
fn simple_packet_block_is_cut_at_the_snapshot_length() {
    let frame = packet(b"12345");
    let body = [LITTLE.word(frame.len().try_into().unwrap()).to_vec(), frame[..30].to_vec()].concat();
    let file = [LITTLE.section(), LITTLE.interface(101, 30, &[]), LITTLE.block(3, &body)].concat();
    assert_eq!(skipped(&read(&file).1), [(Skip::Snapped, 1)]);
}

#[test]
fn blocks_that_hold_no_frame_are_passed_over_and_journal_entries_are_counted() {
    let file = [
        LITTLE.section(),
        LITTLE.interface(101, 0, &[(2, b"lo"), (3, b"an \xFF odd name")]),
        LITTLE.block(4, &[0; 4]),
        LITTLE.block(5, &[0; 12]),
        LITTLE.block(0x1234_5678, b"a block of the future"),
        LITTLE.block(9, b"__REALTIME_TIMESTAMP=1\n"),
        LITTLE.enhanced(0, 1, &packet(b"x")),
        LITTLE.enhanced(7, 1, &packet(b"y")),
    ]
    .concat();
    let (datagrams, tally) = read(&file);
    assert_eq!((datagrams.len(), datagrams[0].number, tally.frames), (1, 2, 3), "{tally}");
    assert_eq!(skipped(&tally), [(Skip::NoInterface, 1), (Skip::NoFrame, 1)]);
}

/// Gives one byte at a time, and after each an end and an interruption.
struct Drops(VecDeque<u8>, u8);

impl Read for Drops {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.1 = (self.1 + 1) % 3;
        match self.1 {
            0 => Err(io::ErrorKind::Interrupted.into()),
            1 => Ok(0),
            _ => Ok(self.0.pop_front().map_or(0, |byte| {
                out[0] = byte;
                1
            })),
        }
    }
}

#[test]
fn a_capture_that_comes_byte_by_byte_with_ends_in_between_is_read_whole() {
    for file in [pcap(&[b"one", b"two"]), pcapng(&[b"one", b"two"])] {
        let calls = file.len() * 3 + 3;
        let mut reader = Reader::new(Drops(file.into(), 0));
        let mut found = Vec::new();
        for _ in 0..calls {
            found.extend(reader.next_datagram().expect("a capture"));
        }
        assert_eq!(payloads(&found), [b"one", b"two"]);
        assert!(reader.tally().is_clean(), "{}", reader.tally());
    }
}

#[test]
fn a_file_that_grows_gives_what_is_there_and_then_the_rest() {
    let whole = pcap(&[b"one", b"two", b"three"]);
    let path = tempfile::NamedTempFile::new().unwrap();
    let mut file = path.reopen().unwrap();
    file.write_all(&whole[..100]).unwrap();
    let mut reader = Reader::new(path.reopen().unwrap());
    assert_eq!(reader.next_datagram().unwrap().expect("the first").payload, "one");
    assert!(reader.next_datagram().unwrap().is_none());
    assert!(reader.tally().unfinished_bytes > 0);
    file.write_all(&whole[100..]).unwrap();
    assert_eq!(reader.next_datagram().unwrap().expect("the second").payload, "two");
    assert_eq!(reader.next_datagram().unwrap().expect("the third").payload, "three");
    assert!(reader.next_datagram().unwrap().is_none());
    assert!(reader.tally().is_clean());
}

#[test]
fn a_pipe_gives_each_datagram_before_the_next_is_written() {
    let (pipe, mut writer) = io::pipe().unwrap();
    let mut reader = Reader::new(pipe);
    let file = pcap(&[b"one", b"two"]);
    let second = file.len() - (16 + packet(b"two").len());
    writer.write_all(&file[..second]).unwrap();
    assert_eq!(reader.next_datagram().unwrap().expect("the first").payload, "one");
    writer.write_all(&file[second..]).unwrap();
    drop(writer);
    let rest: Vec<_> = reader.map(|datagram| datagram.unwrap()).collect();
    assert_eq!(payloads(&rest), [b"two"]);
}

#[test]
fn what_is_no_capture_is_told_by_what_it_is() {
    for (start, word) in [(&b"\x1F\x8B\x08\x00"[..], "gzip"), (b"hello there", "hello"), (&[0x34, 0xCD, 0xB2, 0xA1], "editcap")] {
        let mut reader = Reader::new(start);
        let error = reader.next_datagram().expect_err("no capture");
        assert!(matches!(error, ReadError::NotACapture(_)) && error.to_string().contains(word), "{error}");
        assert!(reader.next().is_some_and(|item| item.is_err()) && reader.next().is_none(), "an iterator ends after an error");
    }
}

#[test]
fn an_empty_or_hardly_begun_file_is_a_capture_without_frames_yet() {
    for cut in [0, 3, 10, 24] {
        let (datagrams, tally) = read(&pcap(&[])[..cut]);
        assert_eq!((datagrams.len(), tally.frames), (0, 0), "cut at {cut}");
        assert_eq!(tally.is_clean(), [0, 24].contains(&cut), "cut at {cut}: {tally}");
    }
}

#[test]
fn an_error_of_the_source_is_told_and_loses_nothing() {
    struct Fails(Vec<io::Result<Vec<u8>>>);
    impl Read for Fails {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            let Some(next) = self.0.pop() else { return Ok(0) };
            let next = next?;
            out[..next.len()].copy_from_slice(&next);
            Ok(next.len())
        }
    }
    let whole = pcap(&[b"one"]);
    let pieces = vec![Ok(whole[30..].to_vec()), Err(io::ErrorKind::TimedOut.into()), Ok(whole[..30].to_vec())];
    let mut reader = Reader::new(Fails(pieces));
    assert!(matches!(reader.next_datagram(), Err(ReadError::Io(_))));
    assert_eq!(reader.next_datagram().unwrap().expect("the datagram").payload, "one");
}

#[test]
fn memory_does_not_grow_with_the_capture() {
    /// The same record again and again, and how much was asked for at once at most.
    struct Endless<'a> {
        record: Vec<u8>,
        left: u32,
        at: usize,
        most: &'a mut usize,
    }
    impl Read for Endless<'_> {
        fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
            *self.most = out.len().max(*self.most);
            if self.left == 0 {
                return Ok(0);
            }
            let count = out.len().min(self.record.len() - self.at);
            out[..count].copy_from_slice(&self.record[self.at..self.at + count]);
            self.at = (self.at + count) % self.record.len();
            self.left -= u32::from(self.at == 0);
            Ok(count)
        }
    }
    let frame = packet(&[7; 1_200]);
    let mut most = 0;
    let record = LITTLE.record(Duration::from_secs(1), &frame, frame.len());
    let header = LITTLE.header();
    let (datagrams, tally) = read_from(header.chain(Endless { record, left: 3_000, at: 0, most: &mut most }));
    assert_eq!((datagrams.len(), tally.frames), (3_000, 3_000));
    assert!(most <= 64 << 10, "{most} bytes were asked for at once");
}
