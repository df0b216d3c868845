//! One datagram as the bytes of a capture file: its record's header, IP and UDP headers made here, the payload.
//!
//! Decides the bytes of a file that this crate writes: pcap with nanoseconds, little-endian, link type RAW. Invariant: a record is added
//! whole or not at all. Leaves to others: where the bytes go (`writer`, `recorder`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use etherparse::{IpHeaders, Ipv4Header, Ipv6FlowLabel, Ipv6Header, PacketBuilder, ip_number};

/// Nanoseconds; and little-endian, as it is written.
const MAGIC: u32 = 0xA1B2_3C4D;
const LINKTYPE_RAW: u32 = 101;
/// The largest frame that the header announces.
const SNAPPED_AT: u32 = 262_144;
const HOPS: u8 = 64;

/// The header of a file.
pub(crate) fn header() -> Vec<u8> {
    let rest = [2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    [&MAGIC.to_le_bytes()[..], &rest, &SNAPPED_AT.to_le_bytes(), &LINKTYPE_RAW.to_le_bytes()].concat()
}

/// Adds the record of a datagram to `out`; `InvalidInput` if the payload is larger than UDP's can be.
pub(crate) fn add(out: &mut Vec<u8>, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) -> io::Result<()> {
    let packet = PacketBuilder::ip(headers(from.ip(), to.ip())).udp(from.port(), to.port());
    let length = u32::try_from(packet.size(payload.len())).unwrap_or(u32::MAX).to_le_bytes();
    let before = out.len();
    out.extend(u32::try_from(at.as_secs()).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(at.subsec_nanos().to_le_bytes());
    out.extend(length);
    out.extend(length);
    packet.write(out, payload).map_err(|error| {
        out.truncate(before);
        io::Error::new(io::ErrorKind::InvalidInput, error.to_string())
    })
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
