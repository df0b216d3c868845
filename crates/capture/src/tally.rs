//! What a capture held, and what of it could not be read: counted by reason, for people and for programs.
//!
//! Decides the names of the reasons. Invariant: every frame up to the first damage is a datagram or is counted here.
//! Leaves to others: finding the reasons (`classic`, `blocks`, `frame`).

use std::collections::BTreeMap;
use std::fmt;

/// Why a frame gave no datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Skip {
    /// A fragment of an IP packet; Cistern's own datagrams are never fragmented.
    Fragment,
    /// Neither IPv4 nor IPv6 but this EtherType (ARP, say), or none for a frame that has another kind of type or none.
    NotIp(Option<u16>),
    /// IP, but with this protocol instead of UDP.
    NotUdp(u8),
    /// Only the beginning was captured (a snapshot length shorter than the datagram).
    Snapped,
    /// Shorter than the header of its link type.
    BrokenLink,
    /// An IP header that contradicts itself or the frame.
    BrokenIp,
    /// A UDP header that contradicts itself or the packet.
    BrokenUdp,
    /// A link type that this reader does not know, by its number.
    LinkType(u16),
    /// A frame of an interface that the file does not describe.
    NoInterface,
    /// A packet block that contradicts itself.
    BrokenBlock,
    /// A record of the capturing system that is no frame (systemd journal), counted as Wireshark counts it.
    NoFrame,
}

impl Skip {
    /// A short name for programs: the same for every detail of a reason.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fragment => "fragment",
            Self::NotIp(_) => "not-ip",
            Self::NotUdp(_) => "not-udp",
            Self::Snapped => "snapped",
            Self::BrokenLink => "broken-link-header",
            Self::BrokenIp => "broken-ip-header",
            Self::BrokenUdp => "broken-udp-header",
            Self::LinkType(_) => "unknown-link-type",
            Self::NoInterface => "unknown-interface",
            Self::BrokenBlock => "broken-block",
            Self::NoFrame => "not-a-frame",
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fragment => f.write_str("a fragment of an IP packet"),
            Self::NotIp(None) => f.write_str("not IP"),
            Self::NotIp(Some(0x0806)) => f.write_str("not IP (ARP)"),
            Self::NotIp(Some(ether_type)) => write!(f, "not IP (EtherType {ether_type:#06x})"),
            Self::NotUdp(1) => f.write_str("not UDP (ICMP)"),
            Self::NotUdp(6) => f.write_str("not UDP (TCP)"),
            Self::NotUdp(58) => f.write_str("not UDP (ICMPv6)"),
            Self::NotUdp(protocol) => write!(f, "not UDP (IP protocol {protocol})"),
            Self::Snapped => f.write_str("captured only in part: capture again with a larger snapshot length"),
            Self::BrokenLink => f.write_str("shorter than the header of its link type"),
            Self::BrokenIp => f.write_str("an IP header that contradicts itself"),
            Self::BrokenUdp => f.write_str("a UDP header that contradicts itself"),
            Self::LinkType(number) => write!(
                f,
                "of link type {number}, which is not known here: capture on one interface, or with `tcpdump -y EN10MB` or `-y RAW`"
            ),
            Self::NoInterface => f.write_str("of an interface that the file does not describe"),
            Self::BrokenBlock => f.write_str("in a block that contradicts itself"),
            Self::NoFrame => f.write_str("a record of the capturing system, not a frame"),
        }
    }
}

/// What was read of a capture so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Frames, whole ones.
    pub frames: u64,
    /// Datagrams that they gave.
    pub datagrams: u64,
    /// Bytes at the end that are the beginning of something: the file was cut there, or is still being written.
    pub unfinished_bytes: u64,
    /// The first byte that no capture has there, from 0: nothing behind it was read.
    pub damaged_at: Option<u64>,
    skipped: BTreeMap<Skip, u64>,
}

impl Tally {
    /// How many frames gave no datagram, by reason.
    pub fn skipped(&self) -> impl Iterator<Item = (Skip, u64)> {
        self.skipped.iter().map(|(skip, count)| (*skip, *count))
    }

    /// Whether nothing was damaged: every frame was whole and understood as far as it concerns UDP, and the end is an end.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        !self.is_damaged() && self.skipped.keys().all(|skip| matches!(skip, Skip::NotIp(_) | Skip::NotUdp(_) | Skip::NoFrame))
    }

    /// Whether the file itself is damaged or cut off, whatever its frames hold.
    #[must_use]
    pub const fn is_damaged(&self) -> bool {
        self.damaged_at.is_some() || self.unfinished_bytes > 0
    }

    /// A frame gave no datagram.
    pub(crate) fn skip(&mut self, why: Skip) {
        *self.skipped.entry(why).or_default() += 1;
    }
}

impl fmt::Display for Tally {
    /// Several lines: what there was, then each reason with its count.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} frames, {} UDP datagrams", self.frames, self.datagrams)?;
        for (skip, count) in self.skipped() {
            write!(f, "\n{count} {}: {skip}", if count == 1 { "frame" } else { "frames" })?;
        }
        if let Some(offset) = self.damaged_at {
            write!(f, "\ndamaged at byte {offset}: nothing from there on was read")?;
        }
        if self.unfinished_bytes > 0 {
            write!(f, "\nthe last {} bytes are not whole: the file was cut, or is still being written", self.unfinished_bytes)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_traffic_is_no_damage_and_a_cut_is() {
        let mut tally = Tally::default();
        tally.skip(Skip::NotUdp(6));
        tally.skip(Skip::NotIp(Some(0x0806)));
        assert!(tally.is_clean());
        assert!(tally.to_string().contains("1 frame: not UDP (TCP)"));
        tally.unfinished_bytes = 3;
        assert!(!tally.is_clean());
    }
}
