//! What judges and users see of a run: the seam between the world that is simulated and those who judge it from outside.
//!
//! Decides which happenings are told, in which order, and what may be looked at besides. Every judge sees every happening, at the
//! true instant at which it happened, after its effect. Invariant: looking changes nothing; judges know true time, cores never do.
//! Leaves to others: making things happen (`world`), judging (`judge`), what users do (`users`).

use crate::attack::is_attacker;
use crate::clock::NodeClock;
use crate::disk::Disk;
use cistern_agent::Agent;
use cistern_agent::api::{Command, Event, OpError, Output};
use cistern_server::Server;
use cistern_server::store::{Batch, BatchId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// True time since the run began, in nanoseconds. No core ever sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct True(pub u64);

/// One machine of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Node {
    /// The metadata server.
    Server,
    /// A client agent, by number from 0.
    Agent(usize),
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Server => f.write_str("server"),
            Self::Agent(agent) => write!(f, "agent {agent}"),
        }
    }
}

/// One thing that a user asked an agent to do; numbered over the whole run, so that a restarted agent never repeats one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UserOp(pub u64);

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Seen<'a> {
    /// A node's core made this datagram and its driver handed it to the network.
    Sent {
        /// The node.
        from: Node,
        /// Where it goes.
        to: SocketAddr,
        /// The whole UDP payload.
        bytes: &'a [u8],
    },
    /// A node's core was given this datagram (its receive call returned just before).
    Received {
        /// The node.
        by: Node,
        /// Where it says that it comes from.
        from: SocketAddr,
        /// The whole UDP payload.
        bytes: &'a [u8],
    },
    /// A node's core was given this datagram of an attacker: nothing of it may count.
    Forged {
        /// The node.
        by: Node,
        /// The attacker's address.
        from: SocketAddr,
        /// The whole UDP payload.
        bytes: &'a [u8],
        /// Whether the core has counted a drop.
        counted: bool,
    },
    /// The server's core made this datagram for an attacker's address.
    Exposed {
        /// The attacker's address.
        to: SocketAddr,
        /// The whole UDP payload.
        bytes: &'a [u8],
    },
    /// A user gave a command to an agent.
    Submitted {
        /// The agent.
        agent: usize,
        /// The user's number for it.
        op: UserOp,
        /// The command.
        command: &'a Command,
    },
    /// A command ended: at once, by an event, or because its agent's process died.
    Ended {
        /// The agent.
        agent: usize,
        /// The user's number for it.
        op: UserOp,
        /// How; `None`: the agent died under it.
        result: Option<&'a Result<Output, OpError>>,
    },
    /// An agent told something that ends no command.
    Told {
        /// The agent.
        agent: usize,
        /// What.
        event: &'a Event,
    },
    /// A process was started: its core is new, its inputs empty.
    Started {
        /// Which.
        node: Node,
        /// How often it was started before, and this time.
        incarnation: u64,
    },
    /// A process died, and with it all that it had in memory.
    Crashed {
        /// Which.
        node: Node,
    },
    /// The server handed a batch to its store.
    Persisted {
        /// The batch.
        batch: &'a Batch,
    },
    /// The store made a batch durable and is about to say so.
    Durable {
        /// The batch.
        batch: BatchId,
    },
    /// A step is over: every core is settled, everything was sent. Checks of state belong here.
    Settled,
    /// The server's store was replaced by an older copy while the server was down, and marked as restored: what became durable
    /// since the copy is gone.
    Restored,
    /// An agent has another address from now on; datagrams to the old one are lost.
    Moved {
        /// The agent.
        agent: usize,
    },
}

impl<'a> Seen<'a> {
    /// A datagram that a core was given; `counted`: it has counted a drop.
    #[must_use]
    pub fn received(by: Node, from: SocketAddr, bytes: &'a [u8], counted: bool) -> Self {
        if is_attacker(from) { Self::Forged { by, from, bytes, counted } } else { Self::Received { by, from, bytes } }
    }

    /// A datagram that a core made.
    #[must_use]
    pub fn sent(from: Node, to: SocketAddr, bytes: &'a [u8]) -> Self {
        if is_attacker(to) { Self::Exposed { to, bytes } } else { Self::Sent { from, to, bytes } }
    }
}

/// An agent's machine as judges see it.
pub struct AgentSight<'a> {
    /// Its core; `None` while its process is down.
    pub core: Option<&'a Agent>,
    /// Its clock.
    pub clock: &'a NodeClock,
    /// Its address now.
    pub address: SocketAddr,
    /// Whether it stands still (paused or suspended).
    pub paused: bool,
}

/// The whole run as judges see it.
pub struct Sight<'a> {
    /// Now, in true time.
    pub now: True,
    /// The agents.
    pub agents: Vec<AgentSight<'a>>,
    /// The server's core; `None` while its process is down.
    pub server: Option<&'a Server>,
    /// The server's clock.
    pub server_clock: &'a NodeClock,
    /// The server's address.
    pub server_address: SocketAddr,
    /// Whether the server stands still.
    pub server_paused: bool,
    /// The server's disk.
    pub disk: &'a Disk,
    /// The server's configuration.
    pub server_config: &'a cistern_server::Config,
    /// Whether faults are over and everything is to come right (the liveness phase), and since when.
    pub healed_at: Option<True>,
    /// Whether the run breaks an assumption of the lease (clocks beyond δ): then only tokens must protect.
    pub fence_only: bool,
}

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which, as "I1".
    pub invariant: &'static str,
    /// Which check of it, as "two-holders".
    pub check: &'static str,
    /// What was seen, with names and numbers.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.invariant, self.check, self.what)
    }
}

/// Judges one or several invariants.
pub trait Judge {
    /// Its name, for listings.
    fn name(&self) -> &'static str;

    /// Something happened.
    ///
    /// # Errors
    /// The invariant that does not hold.
    fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) -> Result<(), Violation>;

    /// The run is over (after the liveness phase).
    ///
    /// # Errors
    /// The invariant that does not hold.
    fn end(&mut self, _sight: &Sight<'_>) -> Result<(), Violation> {
        Ok(())
    }
}
