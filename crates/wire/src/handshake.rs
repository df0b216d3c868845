//! The handshake family: HELLO, CHALLENGE, WELCOME, REFUSE in session 0; CONFIRM, OPENED, KNOWN in the session that WELCOME offers.
//!
//! Decides: the layout of the messages that open a session. Implements `wire-spec.md` section 6.1.
//! Leaves to others: when a session is opened, ended or refused (`server::handshake`, `agent::handshake`).

use crate::field::{Bytes8, List};
use crate::ids::{AgentId, Handle, SessionId, StoreId};
use crate::limits::{DATAGRAM_DEFAULT, FEATURE_GROUP, FEATURE_VOLATILE, VERSION};
use crate::shape::Shown;

/// The feature bits that have a meaning in this version.
const FEATURES: Shown = Shown::Bits(&[(FEATURE_VOLATILE, "volatile"), (FEATURE_GROUP, "group")]);

codes! {
    /// What an agent says of a session of its own (section 11.6).
    pub enum Claim {
        /// The agent has discarded it, and does not know whether it has ended; a local user may still act under it.
        Lost = 0 "lost",
        /// The agent reclaims its locks into its present session.
        Reclaiming = 1 "reclaiming",
        /// Nothing of the session can be used again (section 11.3).
        Surrendered = 2 "surrendered",
        /// The agent uses it: it goes on if the server holds it, and is reclaimed if the server was started anew.
        Continuing = 3 "continuing",
    }
}

codes! {
    /// What the server says of a former session.
    pub enum SessionFate {
        /// Timing out; or given up, and its end is not durable yet.
        TimingOut = 1 "timing out",
        /// Ended, durably: stolen from, closed, surrendered; or never known.
        Ended = 2 "ended",
        /// May be reclaimed from.
        Reclaimable = 3 "reclaimable",
    }
}

codes! {
    /// Why a handshake is refused.
    pub enum RefuseReason {
        /// No version in common; the server's range is in the message.
        Version = 1 "no common version",
        /// A bound of the server is reached.
        Busy = 2 "the server has reached a limit",
        /// A higher incarnation of the agent was seen, or this one with another handshake that is newer (section 11.6).
        Superseded = 3 "superseded by a newer incarnation of the agent",
        /// The server is ending.
        Stopping = 4 "the server is stopping",
        /// The incarnation is far above that of a session which the agent still has (section 11.6).
        Ahead = 5 "its incarnation is far above that of the session it still has",
        /// The agent's network (an IPv4 /24, an IPv6 /64) has as many sessions as the server gives one.
        Crowded = 6 "the agent's network has as many sessions as the server gives one",
        /// The server does not serve now: another one of its group does, or none yet (section 11.10).
        Standby = 7 "the server is a standby",
    }
}

body! {
    /// A session of the agent's own and what it says of it.
    pub struct FormerClaim {
        /// The session.
        pub session: SessionId,
        /// The agent's word.
        pub claim: Claim,
    }
}

body! {
    /// A former session and what the server says of it.
    pub struct FormerFate {
        /// The session.
        pub session: SessionId,
        /// The server's word.
        pub fate: SessionFate,
    }
}

body! {
    /// Agent to server: asks for a session. Without a cookie it is answered CHALLENGE.
    pub struct Hello<'a> {
        /// Random number of this handshake; all HELLOs of one handshake carry the same.
        pub handshake: u64 as Shown::Hex,
        /// Lowest protocol version that the agent speaks.
        pub version_min: u8,
        /// Highest protocol version that the agent speaks.
        pub version_max: u8,
        /// Window W that the agent would like: most requests outstanding.
        pub window: u16,
        /// Largest datagram that the agent takes, in bytes.
        pub max_datagram: u16,
        /// Feature bits that the agent understands.
        pub features: u64 as FEATURES,
        /// The agent's identity.
        pub agent: AgentId,
        /// Its incarnation: a durable count of its starts.
        pub incarnation: u64,
        /// Identity of the boot of its machine; all zero: not known.
        pub boot: [u8; 16],
        /// The store that the agent knows at this address; all zero: none.
        pub store: StoreId,
        /// That store's epoch as last seen.
        pub epoch: u8,
        /// The server incarnation last seen.
        pub server_incarnation: u64,
        /// Lease period that the agent asks for, in microseconds; 0: the server's own.
        pub lease_us: u64,
        /// Packet number of the agent's first transmission in the session; all HELLOs of one handshake carry the same.
        pub first_packet: u64,
        /// What people call the agent (host and process, say); at most 64 bytes.
        pub label: Bytes8<'a>,
        /// The cookie of CHALLENGE; empty in the first HELLO.
        pub cookie: Bytes8<'a> as Shown::Bytes,
    }
}

impl<'a> Hello<'a> {
    /// The first HELLO of an agent's first handshake, which asks for nothing in particular.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "the default is far below 65,536")]
    pub const fn new(agent: AgentId, handshake: u64) -> Self {
        Self {
            handshake,
            version_min: VERSION,
            version_max: VERSION,
            window: 64,
            max_datagram: DATAGRAM_DEFAULT as u16,
            features: 0,
            agent,
            incarnation: 1,
            boot: [0; 16],
            store: StoreId([0; 16]),
            epoch: 0,
            server_incarnation: 0,
            lease_us: 0,
            first_packet: 1,
            label: Bytes8(&[]),
            cookie: Bytes8(&[]),
        }
    }
}

body! {
    /// Server to agent: proves that the agent's address is its own, and that its HELLO is fresh. Not an ACK.
    pub struct Challenge<'a> {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the HELLO answered.
        pub echo: u64,
        /// To be sent back in the next HELLO; at most 32 bytes.
        pub cookie: Bytes8<'a> as Shown::Bytes,
    }
}

body! {
    /// Server to agent: offers a session, which CONFIRM opens. Does not renew.
    pub struct Welcome {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the HELLO answered.
        pub echo: u64,
        /// Protocol version of the session.
        pub version: u8,
        /// The session.
        pub session: SessionId,
        /// The session's handle: by which other agents are told of it.
        pub handle: Handle,
        /// The store's identity.
        pub store: StoreId,
        /// The store's epoch: top 8 bits of generations.
        pub epoch: u8,
        /// The server's incarnation: a durable count of its starts.
        pub server_incarnation: u64,
        /// Feature bits of the server.
        pub features: u64 as FEATURES,
        /// Lease period τ, in microseconds.
        pub lease_us: u64,
        /// Bound δ on the relative rate of any two clocks, in parts per million.
        pub delta_ppm: u32,
        /// Slack ε of the server's timer, in microseconds.
        pub epsilon_us: u32,
        /// Delivery timeout Td, in microseconds.
        pub delivery_timeout_us: u32,
        /// Window W of the session.
        pub window: u16,
        /// Largest datagram that either side sends, in bytes.
        pub max_datagram: u16,
        /// Packet number of the server's first transmission in the session.
        pub first_packet: u64,
    }
}

body! {
    /// Server to agent: no session. Not an ACK.
    pub struct Refuse {
        /// The handshake.
        pub handshake: u64 as Shown::Hex,
        /// Packet number of the HELLO answered.
        pub echo: u64,
        /// Why.
        pub reason: RefuseReason,
        /// Lowest version that the server speaks.
        pub version_min: u8,
        /// Highest version that the server speaks.
        pub version_max: u8,
        /// When to try again, in milliseconds; 0: not by itself.
        pub retry_ms: u32,
        /// Of a standby: the place of the server that serves in the list of its group, from 1; 0: none that it knows of.
        pub serving: u8,
    }
}

body! {
    /// Agent to server, first in its datagrams in a session until it is answered: opens the session, and says what becomes of the agent's others.
    pub struct Confirm<'a> {
        /// Number of the control message in its session: 1.
        pub serial: u64,
        /// The agent's session, then former ones that it does not know to have ended; at most 8.
        pub former: List<'a, FormerClaim>,
    }
}

body! {
    /// Server to agent: the session is open. The first answer that renews its lease.
    pub struct Opened<'a> {
        /// The control message.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// What became of the sessions named in CONFIRM, in its order.
        pub former: List<'a, FormerFate>,
        /// By which the session can be resumed in sealed mode; all zero in plain mode.
        pub resume: [u8; 32],
        /// Version of the list of servers; 0: there is none.
        pub roster: u32,
    }
}

body! {
    /// Server to agent: the session that CONFIRM names as continuing is in good standing; nothing was done, and none was opened. Does not renew.
    pub struct Known {
        /// The control message.
        pub serial: u64,
        /// Packet number of the transmission answered.
        pub echo: u64,
        /// The session that goes on.
        pub session: SessionId,
    }
}
