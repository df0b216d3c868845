//! Datagrams written as a capture file that tcpdump and Wireshark read.
//!
//! Decides the file's bytes: pcap with nanoseconds, little-endian, link type RAW; the IP and UDP headers are made here (they are not what
//! was on the wire), with right lengths and checksums. Invariant: records leave whole, so a file whose writer was killed ends at most
//! in one cut record, and everything flushed is readable at once. Leaves to others: which datagrams there are, and threads.

use std::fs::File;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etherparse::{IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, ip_number};

/// Nanoseconds; and little-endian, as it is written.
const MAGIC: u32 = 0xA1B2_3C4D;
const LINKTYPE_RAW: u32 = 101;
/// The largest frame that the header announces.
const SNAPPED_AT: u32 = 262_144;
/// Bytes gathered before they are written without being asked to.
const GATHERED: usize = 64 << 10;
const HOPS: u8 = 64;

/// Why a capture file could not be made.
#[derive(Debug, thiserror::Error)]
#[error("cannot create the capture file {}: {source}", path.display())]
pub struct CreateError {
    path: PathBuf,
    source: io::Error,
}

/// Writes a capture.
///
/// What is written is gathered; [`flush`](Self::flush) it whenever there is a pause. It is flushed when it is dropped, too, but then
/// errors go unseen.
#[derive(Debug)]
pub struct Writer<W: Write> {
    out: W,
    gathered: Vec<u8>,
}

impl Writer<File> {
    /// Makes (or empties) the file at `path` and writes the header.
    ///
    /// # Errors
    /// [`CreateError`], which names the file: whoever chose the path is at fault.
    pub fn create(path: &Path) -> Result<Self, CreateError> {
        let failed = |source| CreateError { path: path.to_owned(), source };
        Self::new(File::create(path).map_err(failed)?).map_err(failed)
    }
}

impl<W: Write> Writer<W> {
    /// A capture written to `out`, which need not buffer; the header is written at once.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn new(out: W) -> io::Result<Self> {
        let mut this = Self { out, gathered: Vec::with_capacity(GATHERED) };
        this.gathered.extend(MAGIC.to_le_bytes());
        this.gathered.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        this.gathered.extend(SNAPPED_AT.to_le_bytes());
        this.gathered.extend(LINKTYPE_RAW.to_le_bytes());
        this.flush()?;
        Ok(this)
    }

    /// Adds a datagram. `at` counts from 1970-01-01 UTC and is written as far as the format goes (to 2106). If the addresses are of
    /// different families, both are written as IPv6, IPv4 ones mapped.
    ///
    /// # Errors
    /// Those of `out`; `InvalidInput` if the payload is larger than a UDP datagram can be, and then nothing is written.
    pub fn write(&mut self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
        let packet = PacketBuilder::ip(headers(from.ip(), to.ip())).udp(from.port(), to.port());
        let length = packet.size(payload.len());
        let word = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        let before = self.gathered.len();
        self.gathered.extend(u32::try_from(at.as_secs()).unwrap_or(u32::MAX).to_le_bytes());
        self.gathered.extend(at.subsec_nanos().to_le_bytes());
        self.gathered.extend(word);
        self.gathered.extend(word);
        if let Err(error) = packet.write(&mut self.gathered, payload) {
            self.gathered.truncate(before);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error.to_string()));
        }
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    /// Hands everything on: what was written so far can be read by others from now on.
    ///
    /// # Errors
    /// Those of `out`; what could not be written is forgotten, so that a full disk does not become full memory.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.out.write_all(&self.gathered);
        self.gathered.clear();
        written?;
        self.out.flush()
    }
}

impl<W: Write> Drop for Writer<W> {
    fn drop(&mut self) {
        // Nobody is left to tell; who wants to know flushes first.
        let _ = self.flush();
    }
}

fn headers(from: IpAddr, to: IpAddr) -> IpHeaders {
    if let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) {
        let header = Ipv4Header {
            dont_fragment: true,
            time_to_live: HOPS,
            protocol: ip_number::UDP,
            source: from.octets(),
            destination: to.octets(),
            ..Ipv4Header::default()
        };
        return IpHeaders::Ipv4(header, Default::default());
    }
    let octets = |address| match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    };
    let header = Ipv6Header {
        traffic_class: 0,
        flow_label: Ipv6FlowLabel::ZERO,
        payload_length: 0,
        next_header: ip_number::UDP,
        hop_limit: HOPS,
        source: octets(from),
        destination: octets(to),
    };
    IpHeaders::Ipv6(header, Default::default())
}
