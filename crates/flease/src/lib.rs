//! Leases among a few processes, without a server: each resource has at most one owner, agreed on by a majority.
//!
//! Decides who owns a resource and until when, and that nobody else can meanwhile. The algorithm is known as PaxosLease, with the
//! corrections that `docs/flease.md` lists: clocks need to agree in rate only, and nothing is on disk. No sockets, no clocks, no random
//! source: time is an argument, randomness is a seed.
//! Leaves to the driver: addresses, sockets, sealing, and what an owner does with what it owns.
//!
//! | file | question it answers |
//! |---|---|
//! | `ballot` | which attempt, of whom |
//! | `terms` | how long is everything |
//! | `acceptor` | what has this process promised and recorded |
//! | `proposer` | does this process own the resource, and until when |
//! | `instance` | both, for one resource: what a model checker explores |
//! | `register` | the same in the synchronised mode, by the paper |
//! | `resource` | which of the two |
//! | `message`, `datagram` | what is on the wire |
//! | `peer` | thousands of instances, packed into datagrams |
//! | `node` | which member is at which address |
//! | `bugs` | which deliberate bugs are on: none, outside of tests |

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod acceptor;
mod ballot;
pub mod bugs;
mod datagram;
mod instance;
mod message;
mod node;
mod peer;
mod proposer;
mod register;
mod resource;
mod terms;

pub use acceptor::Record;
pub use ballot::{Ballot, Member, MemberSet};
pub use datagram::{DATAGRAM_MAX, Datagram, DropReason, Header, Mismatch, receiver_of};
pub use instance::{Change, Cx, Instance, Outbox};
pub use message::{Lease, Message, NAME_MAX};
pub use node::{Node, NodeCounts};
pub use peer::{Config, Event, NotTaken, Peer, Started};
pub use proposer::Ownership;
pub use register::Register;
pub use terms::{Group, MEMBERS_MAX, Terms};
