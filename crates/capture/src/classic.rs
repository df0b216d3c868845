//! The pcap format: one header, then records one after the other.
//!
//! Decides where a record begins and whether it can be one. Invariant: one record is in memory at a time, of at most [`FRAME_MAX`] bytes.
//! Leaves to others: reading (`feed`), what is in a frame (`frame`).

use std::io::{self, Read};
use std::time::Duration;

use pcap_parser::{PcapHeader, parse_pcap_frame, parse_pcap_frame_be, parse_pcap_header};

use crate::feed::Feed;
use crate::reader::{Found, Next};

/// Bytes of the file's header.
pub(crate) const HEADER: usize = 24;

/// Bytes of a record before its frame.
const RECORD: usize = 16;

/// Largest frame: tcpdump's and Wireshark's largest snapshot length.
const FRAME_MAX: u32 = 262_144;

/// Largest length on the wire that is believed: offloading makes frames larger than any link takes, but not larger than this.
const ORIGINAL_MAX: u32 = 16 << 20;

/// The state of reading a pcap file, behind its header.
#[derive(Debug)]
pub(crate) struct Classic {
    big_endian: bool,
    nanoseconds: bool,
    link: u16,
}

impl Classic {
    /// Whether a file that begins so is a pcap file.
    pub(crate) fn begins(magic: [u8; 4]) -> bool {
        matches!(u32::from_le_bytes(magic), 0xA1B2_C3D4 | 0xD4C3_B2A1 | 0xA1B2_3C4D | 0x4D3C_B2A1)
    }

    /// Reads the header of [`HEADER`] bytes; `None` if it is none.
    pub(crate) fn new(header: &[u8]) -> Option<Self> {
        let (_, header) = parse_pcap_header(header).ok()?;
        Some(Self { big_endian: header.is_bigendian(), nanoseconds: header.is_nanosecond_precision(), link: link_type(&header) })
    }

    /// The next frame.
    pub(crate) fn next<R: Read>(&self, feed: &mut Feed<R>) -> io::Result<Next> {
        if !feed.want(RECORD)? {
            return Ok(Next::Dry);
        }
        let Some(captured) = self.captured(feed.window()) else { return Ok(Next::Damaged) };
        if !feed.want(RECORD + captured)? {
            return Ok(Next::Dry);
        }
        Ok(self.frame(feed.window()).map_or(Next::Damaged, Next::Frame))
    }

    /// The length of the frame of a record, if its header can be one.
    fn captured(&self, window: &[u8]) -> Option<usize> {
        let word = |at: usize| {
            let bytes = window.get(at..at + 4)?.first_chunk().copied()?;
            Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
        };
        let (fraction, captured, original) = (word(4)?, word(8)?, word(12)?);
        let unit = if self.nanoseconds { 1_000_000_000 } else { 1_000_000 };
        // A record of nothing is what zeros look like, which a crash of the system leaves in a file; no tool writes one.
        let possible = fraction < unit && captured <= FRAME_MAX && (captured..=ORIGINAL_MAX).contains(&original) && original > 0;
        usize::try_from(captured).ok().filter(|_| possible)
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
}

/// The link type without the frame check sequence's length, which shares its field.
fn link_type(header: &PcapHeader) -> u16 {
    u16::try_from(header.network.0 & 0xFFFF).unwrap_or(u16::MAX)
}
