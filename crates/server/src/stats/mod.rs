//! Counters: what came, what went, what was dropped and why.
//!
//! Decides the names of all reasons for which this server drops a datagram, a message or an answer; nothing vanishes without one.
//! Place in the walk: touched at every step, read by `status`. Implements `wire-spec.md` section 3.4.
//! Invariant: counters only grow, and counting is all that a dropped datagram does.
//! Leaves to others: showing them.

mod measured;

pub use measured::Histogram;
pub(crate) use measured::ServedAs;
pub use measured::{Commits, SIZE_BOUNDS};
pub use measured::{KindServed, Served, WAIT_BOUNDS_NS};

use cistern_wire::{DropReason, Kind, RefuseReason};

macro_rules! drops {
    ($($(#[$doc:meta])* $name:ident $text:literal),* $(,)?) => {
        /// Why this server dropped something that decoded.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Dropped { $($(#[$doc])* $name),* }

        impl Dropped {
            /// Every reason, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name among the counters.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

drops! {
    /// The datagram names a session that is not known; a hint may have been sent.
    UnknownSession "unknown_session",
    /// The session is half-open, and the datagram does not begin with CONFIRM.
    NotOpen "not_open",
    /// A record that does not open, or a handshake datagram that nobody made who knows the server's key.
    NotAuthentic "not_authentic",
    /// The cookie of an OPEN has paid for a Diffie-Hellman already.
    CookieUsed "cookie_used",
    /// The packet number came before: a copy.
    DuplicatePacket "duplicate_packet",
    /// The packet number is too old to be told from a copy.
    StalePacket "stale_packet",
    /// The packet number is further above the highest than any agent's can be.
    PacketAhead "packet_ahead",
    /// It came from an address that is not proven for its session: the answer is a challenge at most (section 11.6).
    UnprovenAddress "unproven_address",
    /// The floor, or the nonce to be cancelled, is further ahead than any agent's can be.
    NonceAhead "nonce_ahead",
    /// The agent had said that it no longer waits for this request.
    BelowFloor "below_floor",
    /// The request is further ahead than the window allows.
    BeyondWindow "beyond_window",
    /// The server has not read yet what it needs to start.
    Starting "starting",
    /// A HELLO or a CONFIRM with something longer than the format allows.
    BadHello "bad_hello",
    /// A HELLO of a handshake that is older than the one by which its agent was offered a session.
    OldHandshake "old_handshake",
    /// The answer would have been no smaller than what caused it (section 11.6).
    Amplification "amplification",
    /// Answers without a session are limited in rate (section 11.6).
    RateLimited "rate_limited",
    /// The requests of its owner that wait for their turn take up the owner's share: nothing is known of it, and it may come again.
    Overloaded "overloaded",
    /// Too many answers of the session wait to be sent; the agent will ask again (section 11.2).
    Shed "shed",
    /// A PATH_RESPONSE that answers no challenge.
    StrayPathResponse "stray_path_response",
    /// The server has stopped answering, because its store failed (section 11.7).
    Failed "failed",
}

/// Everything counted since the start.
#[derive(Clone, Debug)]
pub struct Stats {
    datagrams_in: u64,
    datagrams_out: u64,
    bytes_in: u64,
    bytes_out: u64,
    undecoded: [u64; DropReason::NAMES.len()],
    dropped: [u64; Dropped::ALL.len()],
    messages_in: [u64; 256],
    messages_out: [u64; 256],
    /// Requests begun, each once.
    pub requests: u64,
    /// Requests answered from the reply cache.
    pub repeated: u64,
    /// Delivery failures, late compliance included.
    pub failures: u64,
    /// Sessions timing out that were taken back, because what was missing came after all.
    pub rescues: u64,
    /// Sessions whose locks or ephemeral files were taken after T; not those that waited for locks and held none.
    pub steals: u64,
    /// Named leases whose time was over.
    pub leases_run_out: u64,
    /// Named leases whose files were removed before that.
    pub leases_revoked: u64,
    /// Sessions opened.
    pub opened: u64,
    /// Of them those of agents that resumed one of before the start.
    pub resumed: u64,
    /// Handshakes refused, by the code of the reason.
    refused: [u64; 1 + RefuseReason::ALL.len()],
    /// Sessions whose address changed.
    pub moves: u64,
    /// Superseded sessions that went on sending: copies of an agent, perhaps.
    pub clones: u64,
    /// RECLAIMs that conflicted with those of another agent.
    pub reclaim_conflicts: u64,
    /// What became of requests, by kind.
    pub served: Served,
    /// What the store made durable.
    pub commits: Commits,
}

impl Default for Stats {
    fn default() -> Self {
        Self {
            datagrams_in: 0,
            datagrams_out: 0,
            bytes_in: 0,
            bytes_out: 0,
            undecoded: [0; DropReason::NAMES.len()],
            dropped: [0; Dropped::ALL.len()],
            messages_in: [0; 256],
            messages_out: [0; 256],
            leases_run_out: 0,
            leases_revoked: 0,
            requests: 0,
            repeated: 0,
            failures: 0,
            rescues: 0,
            steals: 0,
            opened: 0,
            resumed: 0,
            refused: [0; 1 + RefuseReason::ALL.len()],
            moves: 0,
            clones: 0,
            reclaim_conflicts: 0,
            served: Served::default(),
            commits: Commits::default(),
        }
    }
}

impl Stats {
    /// Datagrams received, and their bytes of UDP payload.
    #[must_use]
    pub const fn received(&self) -> (u64, u64) {
        (self.datagrams_in, self.bytes_in)
    }

    /// Datagrams handed to the driver, and their bytes of UDP payload.
    #[must_use]
    pub const fn transmitted(&self) -> (u64, u64) {
        (self.datagrams_out, self.bytes_out)
    }

    /// Messages of a kind received in valid datagrams of sessions and handshakes.
    #[must_use]
    pub const fn messages_in(&self, kind: Kind) -> u64 {
        self.messages_in[kind.code() as usize]
    }

    /// Messages of a kind handed to the driver, retransmissions included.
    #[must_use]
    pub const fn messages_out(&self, kind: Kind) -> u64 {
        self.messages_out[kind.code() as usize]
    }

    /// How often something was dropped for `reason`.
    #[must_use]
    pub const fn dropped(&self, reason: Dropped) -> u64 {
        self.dropped[reason as usize]
    }

    /// Every reason for a drop that has occurred, by name, with its count: what did not decode first.
    pub fn drops(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let undecoded = DropReason::NAMES.iter().copied().zip(self.undecoded);
        let dropped = Dropped::ALL.iter().map(|reason| reason.name()).zip(self.dropped);
        undecoded.chain(dropped).filter(|counted| counted.1 > 0)
    }

    /// The sum of all drops.
    #[must_use]
    pub fn drops_total(&self) -> u64 {
        self.undecoded.iter().chain(&self.dropped).sum()
    }

    /// How many handshakes were refused for `reason`.
    #[must_use]
    pub const fn refused(&self, reason: RefuseReason) -> u64 {
        self.refused[reason as usize]
    }

    pub(crate) const fn count_refused(&mut self, reason: RefuseReason) {
        self.refused[reason as usize] += 1;
    }

    pub(crate) const fn count_received(&mut self, bytes: usize) {
        self.datagrams_in += 1;
        self.bytes_in += bytes as u64;
    }

    pub(crate) const fn count_transmitted(&mut self, bytes: usize) {
        self.datagrams_out += 1;
        self.bytes_out += bytes as u64;
    }

    pub(crate) const fn count_in(&mut self, kind: Kind) {
        self.messages_in[kind.code() as usize] += 1;
    }

    pub(crate) const fn count_out(&mut self, kind: Kind, messages: u32) {
        self.messages_out[kind.code() as usize] += messages as u64;
    }

    pub(crate) const fn count_undecoded(&mut self, reason: &DropReason) {
        self.undecoded[reason.index()] += 1;
    }

    pub(crate) const fn count_dropped(&mut self, reason: Dropped) {
        self.dropped[reason as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn every_reason_stands_in_the_specification() {
        let text = include_str!("../../../../wire-spec.md");
        let (_, table) = text.split_once("| reason | what is dropped |").unwrap();
        let (table, _) = table.split_once("### ").unwrap();
        for reason in Dropped::ALL {
            assert!(table.contains(&alloc::format!("`{}`", reason.name())), "{reason:?}");
        }
    }

    #[test]
    fn every_reason_has_a_counter_and_a_name_of_its_own() {
        let mut stats = Stats::default();
        for reason in Dropped::ALL {
            stats.count_dropped(*reason);
            assert_eq!(stats.dropped(*reason), 1);
        }
        stats.count_undecoded(&DropReason::BadChecksum);
        let mut names: Vec<_> = stats.drops().map(|counted| counted.0).collect();
        assert_eq!((names.len(), stats.drops_total()), (Dropped::ALL.len() + 1, Dropped::ALL.len() as u64 + 1));
        assert_eq!(names[0], "bad_checksum");
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Dropped::ALL.len() + 1);
    }
}
