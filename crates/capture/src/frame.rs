//! One captured frame: link, IP and UDP headers off, a datagram left; or the name of what it is instead.
//!
//! Decides which link types are understood and when a datagram is whole. The headers themselves are read by `etherparse`. Checksums are
//! not looked at: on the sending host they are often filled in by the network card, after the capture. Invariant: a datagram is given
//! only if every byte that its UDP header promises was captured. Leaves to others: where frames come from (`classic`, `blocks`).

use std::net::{IpAddr, SocketAddr};

use etherparse::{EtherType, LaxNetSlice, LaxSlicedPacket, TransportSlice};

use crate::tally::Skip;

/// A frame as the file format gives it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    /// The link type's number (LINKTYPE_...).
    pub(crate) link: u16,
    /// What was captured.
    pub(crate) bytes: &'a [u8],
    /// How long it was on the wire.
    pub(crate) original: usize,
}

/// Sender, receiver and payload of a frame.
pub(crate) type Content<'a> = (SocketAddr, SocketAddr, &'a [u8]);

const NULL: u16 = 0;
const ETHERNET: u16 = 1;
/// Raw IP as some BSDs number it in files.
const RAW_BSD: u16 = 12;
const RAW_OPENBSD: u16 = 14;
const RAW: u16 = 101;
const LOOP: u16 = 108;
const LINUX_SLL: u16 = 113;
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const LINUX_SLL2: u16 = 276;

const IP_VERSION_4: u16 = 0x0800;
const IP_VERSION_6: u16 = 0x86DD;
const UDP: u8 = 17;
/// IPv6's hop-by-hop options, routing, fragment and destination options, and the authentication header of both versions.
const EXTENSIONS: [u8; 5] = [0, 43, 44, 60, 51];
const UDP_HEADER: usize = 8;

/// Address families of IP in the headers of BSD's loopback: IPv4 everywhere; IPv6 on NetBSD, FreeBSD, Darwin, Linux and Windows.
const FAMILIES: [u32; 6] = [2, 24, 28, 30, 10, 23];

impl<'a> Frame<'a> {
    /// The datagram in the frame.
    pub(crate) fn datagram(&self) -> Result<Content<'a>, Skip> {
        let packet = self.packet()?;
        let broken = |why| if self.bytes.len() < self.original { Skip::Snapped } else { why };
        let ip = match &packet.net {
            Some(LaxNetSlice::Ipv4(ip)) => (IpAddr::from(ip.header().source_addr()), IpAddr::from(ip.header().destination_addr())),
            Some(LaxNetSlice::Ipv6(ip)) => (IpAddr::from(ip.header().source_addr()), IpAddr::from(ip.header().destination_addr())),
            _ => return Err(if packet.stop_err.is_some() { broken(Skip::BrokenIp) } else { Skip::NotIp(ether_type(&packet)) }),
        };
        let Some(payload) = packet.net.as_ref().and_then(LaxNetSlice::ip_payload_ref) else { return Err(Skip::BrokenIp) };
        if payload.fragmented {
            return Err(Skip::Fragment);
        }
        match payload.ip_number.0 {
            UDP => {}
            // Reading stopped in front of an extension header.
            number if EXTENSIONS.contains(&number) && packet.stop_err.is_some() => return Err(broken(Skip::BrokenIp)),
            number => return Err(Skip::NotUdp(number)),
        }
        if payload.incomplete {
            return Err(broken(Skip::BrokenIp));
        }
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { return Err(broken(Skip::BrokenUdp)) };
        let length = usize::from(udp.length());
        if length < UDP_HEADER || length != udp.slice().len() {
            return Err(broken(Skip::BrokenUdp));
        }
        Ok((SocketAddr::new(ip.0, udp.source_port()), SocketAddr::new(ip.1, udp.destination_port()), udp.payload()))
    }

    /// The frame behind its link header.
    fn packet(&self) -> Result<LaxSlicedPacket<'a>, Skip> {
        let cut = |at: usize| self.bytes.split_at_checked(at).ok_or(Skip::BrokenLink);
        match self.link {
            ETHERNET => LaxSlicedPacket::from_ethernet(self.bytes).map_err(|_| Skip::BrokenLink),
            LINUX_SLL => cut(16).map(|(header, rest)| by_ether_type(&header[14..], rest)),
            LINUX_SLL2 => cut(20).map(|(header, rest)| by_ether_type(&header[..2], rest)),
            RAW | RAW_BSD | RAW_OPENBSD | IPV4 | IPV6 => self.ip(self.bytes),
            NULL | LOOP => {
                let (header, rest) = cut(4)?;
                let family = <[u8; 4]>::try_from(header).unwrap_or_default();
                // One is in the byte order of the machine that captured, the other in that of the network.
                if FAMILIES.contains(&u32::from_le_bytes(family)) || FAMILIES.contains(&u32::from_be_bytes(family)) {
                    self.ip(rest)
                } else {
                    Err(Skip::NotIp(None))
                }
            }
            other => Err(Skip::LinkType(other)),
        }
    }

    fn ip(&self, bytes: &'a [u8]) -> Result<LaxSlicedPacket<'a>, Skip> {
        LaxSlicedPacket::from_ip(bytes).map_err(|_| if bytes.len() < self.original { Skip::Snapped } else { Skip::BrokenIp })
    }
}

fn by_ether_type<'a>(number: &[u8], rest: &'a [u8]) -> LaxSlicedPacket<'a> {
    let number = number.first_chunk().map_or(0, |bytes| u16::from_be_bytes(*bytes));
    LaxSlicedPacket::from_ether_type(EtherType(number), rest)
}

/// What a frame without an IP header is, by the innermost of its types.
fn ether_type(packet: &LaxSlicedPacket<'_>) -> Option<u16> {
    let payload = packet.ether_payload()?;
    Some(payload.ether_type.0).filter(|number| ![IP_VERSION_4, IP_VERSION_6].contains(number))
}
