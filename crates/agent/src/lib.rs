//! The client agent's core: one session and one lease with a server, the locks and the cache under it. Sans-I/O.
//!
//! Decides: everything that an agent does, given datagrams, commands and the time. Place in the walk: the client library (or the
//! simulator) turns [`Agent`] as a `Machine`, gives it [`api::Command`]s and takes its [`api::Event`]s.
//! Two halves meet in `port`: the protocol (`opening`, `requests`, `control`, `notices`, `lease`, `locks`) and the operations
//! (`ops`, `walk`, `cache`). Implements `wire-spec.md` sections 6 and 11, the agent's part.
//! Leaves to others: sockets, clocks, threads, randomness (the driver), the server's part (`cistern-server`).

#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod agent;
pub mod api;
mod cache;
pub mod config;
mod control;
mod incoming;
mod lease;
mod local;
mod locks;
mod notices;
mod opening;
mod ops;
mod port;
mod recovery;
mod renewal;
mod requests;
mod session;
mod transmit;
mod walk;

pub use agent::{Agent, HolderView, Identity};
pub use cache::CacheLimits;
