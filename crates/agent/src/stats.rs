//! What an agent counts: traffic for people, and every datagram or message that it dropped, by name (`wire-spec.md` 3.5).
//!
//! Nothing vanishes without a reason and a counter.

use cistern_wire::DropReason;

/// Why something that parses was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// Of a session that is not this agent's, or not any more.
    UnknownSession,
    /// A copy.
    DuplicatePacket,
    /// Too old to be told from a copy.
    StalePacket,
    /// The packet number is further above the highest than any server's can be.
    PacketAhead,
    /// Not from an address of the agent's server.
    ForeignAddress,
    /// Of a handshake that is not under way, or that answers no HELLO of it.
    StrayHandshake,
    /// An answer to a transmission that was never made.
    UnknownEcho,
    /// A hint that answers no transmission of this session, or that comes too soon after another.
    StrayHint,
    /// An offer of a session that this agent cannot take as it stands.
    BadWelcome,
    /// More notices at once than are answered at once.
    Flood,
    /// A record that does not open, or a handshake datagram that nobody made who knows the server's key.
    NotAuthentic,
}

impl Dropped {
    const NAMES: [&'static str; 11] = [
        "unknown_session",
        "duplicate_packet",
        "stale_packet",
        "packet_ahead",
        "foreign_address",
        "stray_handshake",
        "unknown_echo",
        "stray_hint",
        "bad_welcome",
        "flood",
        "not_authentic",
    ];

    pub(crate) const fn name(self) -> &'static str {
        Self::NAMES[self as usize]
    }
}

/// Datagrams and messages dropped, by reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    undecoded: [u64; DropReason::NAMES.len()],
    others: [u64; Dropped::NAMES.len()],
}

impl Drops {
    /// Each reason, by its name in `wire-spec.md` section 3.5, and how often it was met.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        let undecoded = DropReason::NAMES.iter().zip(&self.undecoded);
        undecoded.chain(Dropped::NAMES.iter().zip(&self.others)).map(|(name, count)| (*name, *count))
    }

    /// How many in all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.iter().map(|(_, count)| count).sum()
    }

    pub(crate) const fn undecoded(&mut self, reason: &DropReason) {
        self.undecoded[reason.index()] += 1;
    }

    pub(crate) const fn count(&mut self, reason: Dropped) {
        self.others[reason as usize] += 1;
    }
}

/// Traffic since the start.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) demands: u64,
    pub(crate) nacks: u64,
    pub(crate) requests: u64,
    pub(crate) retransmissions: u64,
    pub(crate) datagrams_out: u64,
    pub(crate) datagrams_in: u64,
    pub(crate) drops: Drops,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_stands_in_the_specification() {
        let text = include_str!("../../../wire-spec.md");
        let (_, table) = text.split_once("| reason | what is dropped |").unwrap();
        let (table, _) = table.split_once("### ").unwrap();
        for name in Dropped::NAMES {
            assert!(table.contains(&alloc::format!("`{name}`")), "{name}");
        }
    }
}
