//! The pcap format: one header, then records one after the other.
//!
//! Decides where a record begins and whether it can be one; after bytes that cannot, where the next one is. The format has no mark to
//! find a record by, so behind damage one is believed only if it is near in time to the last good one and another, or the end, follows.
//! Invariants: one record is in memory at a time, of at most [`FRAME_MAX`] bytes; every byte is part of a record or rubbish.
//! Leaves to others: reading (`feed`), what is in a frame (`frame`).

use std::io::{self, Read};
use std::time::Duration;

use pcap_parser::{PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

use crate::feed::Feed;
use crate::reader::Found;
use crate::search::{Place, Search};
use crate::tally::Tally;

/// Bytes of the file's header.
pub(crate) const HEADER: usize = 24;

/// Bytes of a record before its frame.
const RECORD: usize = 16;

/// Largest frame: tcpdump's and Wireshark's largest snapshot length.
const FRAME_MAX: u32 = 262_144;

/// Largest length on the wire that is believed: offloading makes frames larger than any link takes, but not larger than this.
const ORIGINAL_MAX: u32 = 16 << 20;

/// How far a record behind damage may be in time from the last one before it, in seconds: a day.
const NEAR: u64 = 86_400;

/// The state of reading a pcap file, behind its header.
#[derive(Debug)]
pub(crate) struct Classic {
    big_endian: bool,
    nanoseconds: bool,
    link: u16,
    /// Seconds of the last good record.
    last: Option<u64>,
    /// What came last made no sense: the next record must prove itself.
    lost: bool,
    /// For what goes on behind a record that does not end.
    search: Search,
}

/// What a record's header says.
struct Record {
    seconds: u64,
    captured: usize,
}

impl Classic {
    /// Whether a file that begins so is a pcap file.
    pub(crate) fn begins(magic: [u8; 4]) -> bool {
        matches!(u32::from_le_bytes(magic), 0xA1B2_C3D4 | 0xD4C3_B2A1 | 0xA1B2_3C4D | 0x4D3C_B2A1)
    }

    /// Reads the header of [`HEADER`] bytes; `None` if it is none.
    pub(crate) fn new(header: &[u8]) -> Option<Self> {
        let (_, header) = parse_pcap_header(header).ok()?;
        Some(Self {
            big_endian: header.is_bigendian(),
            nanoseconds: header.is_nanosecond_precision(),
            link: link_type(&header),
            last: None,
            lost: false,
            search: Search::default(),
        })
    }

    /// The next frame, or `None` if there is no whole one now.
    pub(crate) fn next<R: Read>(&mut self, feed: &mut Feed<R>, tally: &mut Tally) -> io::Result<Option<Found>> {
        while feed.want(RECORD)? {
            let Some(record) = self.record(feed.window()).filter(|record| !self.lost || self.is_near(record)) else {
                self.skip(1, feed, tally);
                continue;
            };
            let length = RECORD + record.captured;
            if !feed.want(length)? {
                let Some(rubbish) = self.goes_on_in(feed.offset(), feed.window()) else { return Ok(None) };
                self.skip(rubbish, feed, tally);
                continue;
            }
            if self.lost && feed.want(length + RECORD)? && self.record(&feed.window()[length..]).is_none_or(|next| !self.is_near(&next)) {
                self.skip(1, feed, tally);
                continue;
            }
            if let Some(found) = self.frame(feed.window()) {
                self.lost = false;
                self.last = Some(record.seconds);
                return Ok(Some(found));
            }
            self.skip(1, feed, tally);
        }
        Ok(None)
    }

    /// The header of a record, if it can be one.
    fn record(&self, window: &[u8]) -> Option<Record> {
        let word = |at: usize| {
            let bytes = window.get(at..at + 4)?.first_chunk().copied()?;
            Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let (seconds, fraction, captured, original) = (word(0)?, word(4)?, word(8)?, word(12)?);
        let unit = if self.nanoseconds { 1_000_000_000 } else { 1_000_000 };
        // A record of nothing is what zeros look like, which a crash of the system leaves in a file; no tool writes one.
        let possible = fraction < unit && captured <= FRAME_MAX && (captured..=ORIGINAL_MAX).contains(&original) && original > 0;
        possible.then(|| Record { seconds: seconds.into(), captured: usize::try_from(captured).unwrap_or(usize::MAX) })
    }

    fn is_near(&self, record: &Record) -> bool {
        self.last.is_none_or(|last| record.seconds.abs_diff(last) <= NEAR)
    }

    /// Where the window, which begins with a record that does not end in it, holds a good one further on: then what is before is none.
    fn goes_on_in(&mut self, offset: u64, window: &[u8]) -> Option<usize> {
        self.last?;
        let mut search = std::mem::take(&mut self.search);
        let good = |at: usize| {
            let record = self.record(window.get(at..)?).filter(|record| self.is_near(record))?;
            Some(at + RECORD + record.captured)
        };
        let found = search.find(offset, window.len(), |at| match good(at) {
            _ if at + RECORD > window.len() => Place::Short,
            None => Place::Bad,
            Some(end) if end == window.len() => Place::Good,
            Some(end) if end > window.len() => Place::Later(end),
            Some(end) if end + RECORD > window.len() => Place::Later(end + RECORD),
            Some(end) => good(end).map_or(Place::Bad, |_| Place::Good),
        });
        self.search = search;
        found
    }

    fn frame(&self, window: &[u8]) -> Option<Found> {
        let parse = if self.big_endian { parse_pcap_frame_be } else { parse_pcap_frame };
        let (rest, block) = parse(window).ok()?;
        let used = window.len() - rest.len();
        let nanoseconds = if self.nanoseconds { block.ts_usec } else { block.ts_usec.saturating_mul(1_000) };
        Some(Found {
            link: Ok(self.link),
            at: Duration::new(block.ts_sec.into(), nanoseconds),
            original: usize::try_from(block.origlen).unwrap_or(usize::MAX),
            frame: used - block.data.len()..used,
            used,
        })
    }

    fn skip<R>(&mut self, length: usize, feed: &mut Feed<R>, tally: &mut Tally) {
        self.lost = true;
        tally.found_rubbish(feed.offset(), length as u64);
        feed.consume(length);
    }
}

/// The link type without the frame check sequence's length, which shares its field.
fn link_type(header: &PcapHeader) -> u16 {
    u16::try_from(header.network.0 & 0xFFFF).unwrap_or(u16::MAX)
}
