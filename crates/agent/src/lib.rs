//! The client agent's core: one session and one lease with a metadata server, the locks and the cache that they cover, and the
//! commands that users give it. Sans-I/O, `no_std`, deterministic: time, datagrams and a seed go in; datagrams, events and the next
//! time to wake come out.
//!
//! | folder | part |
//! |---|---|
//! | `agent` | the machine: the order of a turn, what messages and effects lead to; the only one that sees more than one part |
//! | `transport` | delivery within one session: numbers, send times, requests, control messages, receipts |
//! | `session` | the table of sessions, present and former, and the reclaim |
//! | `locks`, `cache` | which locks are held, who holds them here, who waits; what is cached under them |
//! | `users` | what holders of locks are told of the lease, and watchers of changes |
//! | `tasks` | how commands are carried out, from cache or by the server |
//! | `joiner` | a machine of its own: how a key joins a cluster |
//! | `roster` | the list of the cluster's servers, as it comes in parts |
//! | [`api`], [`config`], `keys`, `lease`, `call`, `stats` | vocabulary that every part may use |
//!
//! Invariant of the whole: nothing is used, shown or granted locally outside a lease that the server renewed (`wire-spec.md` 11.1).

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod api;
pub mod config;

mod agent;
mod cache;
mod call;
mod eviction;
mod joiner;
mod keys;
mod lease;
mod locks;
mod roster;
mod session;
mod stats;
mod tasks;
mod transport;
mod users;

pub use agent::roster::Servers;
pub use agent::{Agent, Identity};
pub use config::CacheLimits;
pub use joiner::{JoinRefused, Joiner, Membership};
pub use keys::{KeyAt, Keys};

pub use stats::Drops;

#[cfg(test)]
mod tests;
