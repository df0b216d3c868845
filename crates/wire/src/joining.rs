//! The family of joining: JOIN, JOINED, ROSTER, ROSTER_PART, in sealed sessions alone.
//!
//! Decides: their layout. Implements `wire-spec.md` section 6.1; the rules are in `docs/sealed.md`.
//! Invariant: each fits the smallest datagram. Leaves to others: what a roster says (`cistern-trust`).

use crate::field::{Bytes8, Bytes16};
use crate::shape::Shown;

codes! {
    /// What became of a key that came with an invite.
    pub enum JoinOutcome {
        /// It is registered, or was.
        Joined = 0 "joined",
        /// The invite expired, was withdrawn, or never was.
        Unknown = 1 "the invite is good no more",
        /// Other keys have used up the invite.
        Spent = 2 "the invite was used by another key",
        /// The key was revoked.
        Revoked = 3 "the key was revoked",
        /// The name that it would get is another's.
        NameTaken = 4 "the name is taken",
        /// There are as many principals as there may be.
        Full = 5 "the server has reached a limit",
    }
}

body! {
    /// Agent to server, in a session that was opened with an invite's secret: registers the key by which that was opened.
    pub struct Join {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
    }
}

body! {
    /// Server to agent: what became of it. Does not renew: the session has no lease.
    pub struct Joined<'a> {
        /// The control message.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// What became of it; unless it is `joined`, the next three fields are zero.
        pub outcome: JoinOutcome,
        /// The number of its principal.
        pub principal: u32,
        /// The name of its principal.
        pub name: Bytes8<'a>,
        /// The cluster's public key, which signs its rosters.
        pub cluster: [u8; 32],
        /// When another key used the invite last, in seconds since 1970; 0 unless it is `spent`.
        pub used_s: u64,
        /// From where it did: an IPv6 address, or an IPv4 one mapped into IPv6.
        pub used_from: [u8; 16],
    }
}

body! {
    /// Agent to server: asks for the server's roster, from an offset on.
    pub struct RosterAsk {
        /// Number of the control message in its session, from 1.
        pub serial: u64,
        /// Of its first byte.
        pub offset: u16,
    }
}

body! {
    /// Server to agent: a part of the roster. Does not renew.
    pub struct RosterPart<'a> {
        /// The control message.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// Its version; 0: the server has none. Parts of different versions do not fit together.
        pub version: u32,
        /// Bytes of the whole.
        pub length: u16,
        /// Where this part begins.
        pub offset: u16,
        /// At most 400 bytes.
        pub part: Bytes16<'a> as Shown::Bytes,
    }
}

impl RosterPart<'_> {
    /// Most bytes of a part.
    pub const PART_MAX: usize = 400;
}
