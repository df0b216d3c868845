//! One server of a group of servers that share a store: which of them serves, and that none does so beside another.
//!
//! Decides when this server may serve, by a lease that a majority of the group grants (`cistern-flease`), and makes sure that its core
//! ends with that lease. No sockets, no clocks, no store: the driver opens the store when [`Duty::Open`] says so, fences all others out,
//! and gives the machine a core.
//! Leaves to others: the lease (`cistern-flease`), what is served (`cistern-server`), the fence (`cistern-store-etcd`).

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod member;
mod sealed;
mod standby;

#[cfg(test)]
mod tests;

pub use member::{Duty, GroupServer, Role, TenureId};
pub use sealed::SealedNode;
