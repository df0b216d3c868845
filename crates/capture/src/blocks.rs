//! The pcapng format: sections of blocks; interfaces are described by blocks, frames name theirs.
//!
//! Decides where a block ends (it says its length at both ends), and which interface and clock a frame has. Invariants: one block is in
//! memory at a time, of at most [`BLOCK_MAX`] bytes, and the description of at most [`INTERFACES_MAX`] interfaces.
//! Leaves to others: reading (`feed`), what is in a frame (`frame`).

use std::io::{self, Read};
use std::ops::Range;
use std::time::Duration;

use pcap_parser::traits::PcapNGPacketBlock as _;
use pcap_parser::{Block, InterfaceDescriptionBlock, OptionCode, parse_block_be, parse_block_le};

use crate::feed::Feed;
use crate::reader::{Found, Next};
use crate::tally::Skip;

/// Largest block: Wireshark's bound.
const BLOCK_MAX: usize = 16 << 20;

/// Most interfaces of a section that are kept; frames of further ones are counted.
const INTERFACES_MAX: usize = 65_536;

/// Shortest block: its type and both its lengths.
const BLOCK_MIN: usize = 12;

/// The latest time that is given: the last whole day in UTC that calendars of four-digit years have in every time zone, 9999-12-30. Clocks
/// of a coarse unit can say later ones, which no sum of times would hold.
const LATEST: Duration = Duration::from_secs(253_402_127_999);

const SECTION: u32 = 0x0A0D_0D0A;
const ORDER: u32 = 0x1A2B_3C4D;
const PACKET: u32 = 2;
const SIMPLE: u32 = 3;
const JOURNAL: u32 = 9;
const ENHANCED: u32 = 6;

/// The state of reading a pcapng file.
#[derive(Debug, Default)]
pub(crate) struct Blocks {
    big_endian: bool,
    interfaces: Vec<Interface>,
}

/// What frames need of their interface.
#[derive(Clone, Copy, Debug)]
struct Interface {
    link: Result<u16, Skip>,
    /// Most bytes captured of a frame, 0: all.
    snapped_at: usize,
    /// The unit of its clock, as `if_tsresol` says it.
    resolution: u8,
    /// Seconds that are added to its clock.
    offset: i64,
}

fn u32_of(bytes: &[u8], at: usize, big_endian: bool) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?.first_chunk().copied()?;
    Some(if big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
}

impl Blocks {
    /// Whether a file that begins so is a pcapng file.
    pub(crate) fn begins(magic: [u8; 4]) -> bool {
        u32::from_le_bytes(magic) == SECTION
    }

    /// The next frame.
    pub(crate) fn next<R: Read>(&mut self, feed: &mut Feed<R>) -> io::Result<Next> {
        while feed.want(BLOCK_MIN)? {
            let Some((kind, length)) = self.heading(feed.window()) else { return Ok(Next::Damaged) };
            if !feed.want(length)? {
                break;
            }
            let block = &feed.window()[..length];
            if u32_of(block, length - 4, self.big_endian) != u32_of(block, 4, self.big_endian) {
                return Ok(Next::Damaged);
            }
            if let Some(found) = self.block(kind, block) {
                return Ok(Next::Frame(found));
            }
            feed.consume(length);
        }
        Ok(Next::Dry)
    }

    /// Kind and length of a block, if it can be one. A section says the byte order from here on.
    fn heading(&mut self, window: &[u8]) -> Option<(u32, usize)> {
        if u32_of(window, 0, false)? == SECTION {
            self.big_endian = match window.get(8..12)?.first_chunk().copied()? {
                order if u32::from_be_bytes(order) == ORDER => true,
                order if u32::from_le_bytes(order) == ORDER => false,
                _ => return None,
            };
        }
        let length = usize::try_from(u32_of(window, 4, self.big_endian)?).ok()?;
        let possible = (BLOCK_MIN..=BLOCK_MAX).contains(&length) && length.is_multiple_of(4);
        Some((u32_of(window, 0, self.big_endian)?, length)).filter(|_| possible)
    }

    /// Takes a whole block in; gives its frame, if it is of a kind that has one.
    fn block(&mut self, kind: u32, block: &[u8]) -> Option<Found> {
        let parse = if self.big_endian { parse_block_be } else { parse_block_le };
        let (parsed, used) = (parse(block).map(|(_, parsed)| parsed), block.len());
        let found = |at, original: u32, captured: usize, start: usize, link| Found {
            link,
            at,
            original: usize::try_from(original).unwrap_or(usize::MAX),
            frame: start..start + captured,
            used,
        };
        match parsed {
            Ok(Block::SectionHeader(_)) => self.interfaces.clear(),
            Ok(Block::InterfaceDescription(interface)) => self.describe(Interface::new(&interface, self.big_endian)),
            Ok(Block::EnhancedPacket(packet)) => {
                let interface = self.interface(packet.if_id);
                let at = interface.map_or(Duration::ZERO, |interface| interface.time(packet.ts_high, packet.ts_low));
                return Some(found(at, packet.origlen, packet.packet_data().len(), 28, interface.and_then(|interface| interface.link)));
            }
            Ok(Block::SimplePacket(packet)) => {
                let interface = self.interface(0);
                let most = interface.map_or(0, |interface| interface.snapped_at);
                let captured = packet.packet_data().len().min(if most == 0 { usize::MAX } else { most });
                return Some(found(Duration::ZERO, packet.origlen, captured, 12, interface.and_then(|interface| interface.link)));
            }
            _ if kind == PACKET => return Some(self.old_packet(block)),
            _ if kind == JOURNAL => return Some(Found::nothing(Skip::NoFrame, used)),
            _ if [SIMPLE, ENHANCED].contains(&kind) => return Some(Found::nothing(Skip::BrokenBlock, used)),
            // Frames name interfaces by their order, so one that cannot be read keeps its place.
            _ if kind == 1 => self.describe(Interface { link: Err(Skip::NoInterface), snapped_at: 0, resolution: 6, offset: 0 }),
            _ => {}
        }
        None
    }

    /// A frame in the packet block of the format's first draft: interface and losses in 16 bits each, then as an enhanced one.
    fn old_packet(&self, block: &[u8]) -> Found {
        let fields = || {
            let id: [u8; 2] = block.get(8..10)?.first_chunk().copied()?;
            let id = if self.big_endian { u16::from_be_bytes(id) } else { u16::from_le_bytes(id) };
            let [high, low, captured, original] = [12, 16, 20, 24].map(|at| u32_of(block, at, self.big_endian));
            let captured = usize::try_from(captured?).ok()?;
            let frame: Range<usize> = 28..28_usize.checked_add(captured)?;
            block.get(..block.len() - 4)?.get(frame.clone())?;
            Some((self.interface(id.into()), high?, low?, usize::try_from(original?).ok()?, frame))
        };
        let Some((interface, high, low, original, frame)) = fields() else { return Found::nothing(Skip::BrokenBlock, block.len()) };
        let at = interface.map_or(Duration::ZERO, |interface| interface.time(high, low));
        Found { link: interface.and_then(|interface| interface.link), at, original, frame, used: block.len() }
    }

    fn describe(&mut self, interface: Interface) {
        if self.interfaces.len() < INTERFACES_MAX {
            self.interfaces.push(interface);
        }
    }

    fn interface(&self, id: u32) -> Result<Interface, Skip> {
        usize::try_from(id).ok().and_then(|id| self.interfaces.get(id)).copied().ok_or(Skip::NoInterface)
    }
}

impl Interface {
    fn new(block: &InterfaceDescriptionBlock<'_>, big_endian: bool) -> Self {
        // The library reads this option as little-endian always.
        let offset = block.options.iter().find(|option| option.code == OptionCode::IfTsoffset);
        let offset = offset.and_then(|option| option.as_bytes().ok()?.first_chunk().copied());
        let order = if big_endian { i64::from_be_bytes } else { i64::from_le_bytes };
        Self {
            link: u16::try_from(block.linktype.0).map_err(|_| Skip::NoInterface),
            snapped_at: usize::try_from(block.snaplen).unwrap_or(usize::MAX),
            resolution: block.if_tsresol,
            offset: offset.map_or(0, order),
        }
    }

    /// The time of a frame, cut to nanoseconds; before 1970 it is 1970, and none is behind [`LATEST`].
    fn time(&self, high: u32, low: u32) -> Duration {
        let ticks = u128::from(high) << 32 | u128::from(low);
        let exponent = u32::from(self.resolution & 0x7F);
        let second = if self.resolution & 0x80 == 0 { 10_u128.checked_pow(exponent) } else { 1_u128.checked_shl(exponent) };
        // A clock of so small a unit has not come as far as a nanosecond.
        let Some(second) = second else { return Duration::ZERO };
        let seconds = u64::try_from(ticks / second).unwrap_or(u64::MAX);
        let nanoseconds = u32::try_from(ticks % second * 1_000_000_000 / second).unwrap_or(0);
        match seconds.checked_add_signed(self.offset) {
            Some(seconds) => Duration::new(seconds, nanoseconds).min(LATEST),
            None if self.offset > 0 => LATEST,
            None => Duration::ZERO,
        }
    }
}
