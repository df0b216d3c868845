//! Capture files: every datagram of a run as tcpdump and Wireshark read it.
//!
//! Decides the file's bytes: classic pcap with nanoseconds, link type RAW, IPv4 and UDP headers made here. Checksums of UDP are left
//! out (0), as IPv4 allows. The times are true time, counted from 1970.
//! Leaves to others: which datagrams there were (`trace`), what is in them (the dissector).

use crate::plan::SEC;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};

/// A datagram that was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When, in nanoseconds of true time.
    pub at: u64,
    /// By whom.
    pub from: SocketAddr,
    /// To whom.
    pub to: SocketAddr,
    /// The UDP payload.
    pub bytes: Vec<u8>,
}

/// Little-endian, times in nanoseconds.
const MAGIC: u32 = 0xA1B2_3C4D;
const LINKTYPE_RAW: u32 = 101;
const IP_HEADER: usize = 20;
const UDP_HEADER: usize = 8;
const UDP: u8 = 17;

/// Writes a capture file.
///
/// # Errors
/// Those of `out`.
pub fn write(out: &mut impl Write, packets: &[Packet]) -> io::Result<()> {
    out.write_all(&MAGIC.to_le_bytes())?;
    out.write_all(&[2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0])?;
    out.write_all(&u32::from(u16::MAX).to_le_bytes())?;
    out.write_all(&LINKTYPE_RAW.to_le_bytes())?;
    for packet in packets {
        let framed = frame(packet);
        let word = |n: u64| u32::try_from(n).unwrap_or(u32::MAX).to_le_bytes();
        out.write_all(&word(packet.at / SEC))?;
        out.write_all(&word(packet.at % SEC))?;
        out.write_all(&word(framed.len() as u64))?;
        out.write_all(&word(framed.len() as u64))?;
        out.write_all(&framed)?;
    }
    Ok(())
}

/// The datagram behind its IPv4 and UDP headers.
fn frame(packet: &Packet) -> Vec<u8> {
    let length = |n: usize| u16::try_from(n).unwrap_or(u16::MAX).to_be_bytes();
    let mut frame = vec![0x45, 0];
    frame.extend(length(IP_HEADER + UDP_HEADER + packet.bytes.len()));
    frame.extend([0, 0, 0x40, 0, 64, UDP, 0, 0]);
    frame.extend(v4(packet.from).octets());
    frame.extend(v4(packet.to).octets());
    let sum = checksum(&frame);
    frame[10..12].copy_from_slice(&sum.to_be_bytes());
    frame.extend(packet.from.port().to_be_bytes());
    frame.extend(packet.to.port().to_be_bytes());
    frame.extend(length(UDP_HEADER + packet.bytes.len()));
    frame.extend([0, 0]);
    frame.extend(&packet.bytes);
    frame
}

fn v4(address: SocketAddr) -> Ipv4Addr {
    match address {
        SocketAddr::V4(address) => *address.ip(),
        SocketAddr::V6(_) => Ipv4Addr::UNSPECIFIED,
    }
}

/// The Internet checksum of a header of an even number of bytes.
fn checksum(header: &[u8]) -> u16 {
    let sum: u32 = header.chunks_exact(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]]))).sum();
    let folded = (sum & 0xFFFF) + (sum >> 16);
    !u16::try_from((folded & 0xFFFF) + (folded >> 16)).unwrap_or(u16::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_has_its_headers_and_the_datagram_whole() {
        let packet = Packet {
            at: 3 * SEC + 7,
            from: "10.0.0.1:4000".parse().unwrap(),
            to: "10.0.0.2:6737".parse().unwrap(),
            bytes: b"hello".to_vec(),
        };
        let mut file = Vec::new();
        write(&mut file, &[packet]).unwrap();
        assert_eq!(&file[..4], &[0x4D, 0x3C, 0xB2, 0xA1]);
        assert_eq!(&file[20..24], &[101, 0, 0, 0]);
        assert_eq!(&file[24..40], &[3, 0, 0, 0, 7, 0, 0, 0, 33, 0, 0, 0, 33, 0, 0, 0]);
        let ip = &file[40..60];
        assert_eq!((ip[0], u16::from_be_bytes([ip[2], ip[3]]), ip[9]), (0x45, 33, 17));
        assert_eq!(checksum(ip), 0, "the checksum of a header with its checksum");
        assert_eq!(&file[60..68], &[0x0F, 0xA0, 0x1A, 0x51, 0, 13, 0, 0]);
        assert_eq!(&file[68..], b"hello");
    }
}
