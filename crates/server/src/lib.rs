//! The metadata server's core: sessions and their standing, the lock table, the namespace, and the seam to the store.
//!
//! A state machine without sockets, clocks, threads, files or random source: [`Server`] takes datagrams, the time and the store's
//! word, and gives datagrams, work for the store and the next time at which it wants to be woken. `no_std` makes the compiler keep it so.
//!
//! The walk of a datagram, file by file:
//!
//! | step | file |
//! |---|---|
//! | decoded, session found, copies dropped, order of messages | `dispatch` (session 0: `handshake`, no session: `strangers`) |
//! | large tables looked up ahead | `foresee` |
//! | control messages and receipts | `control`, `path` |
//! | may this request execute, or has it | `requests` (what waits: `tasks`) |
//! | what it does | `execute` over [`locks`], `namespace`, [`stage`] and [`store`] |
//! | how it is answered, given the session's standing now | `answers` (held until durable: `durability`) |
//! | what is sent next | `transmit` (notices: `delivery`, `outbox`) |
//!
//! Before the walk: `starting`; after a restart `grace`, `reclaim` and `grace_end`, with `outcomes`.
//! Beside the walk: `standing` (what may be done for a session), `timing_out` (failure, the one timer, the end), `ephemerals` (what
//! goes with a session), [`config`], [`status`].

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod ids;
mod presence;
mod requests;
mod server;
mod sessions;
mod transport;

pub mod config;
pub mod locks;
pub mod namespace;
pub mod stats;
pub mod store;

pub use config::{Config, ConfigError};
pub use server::{Identity, Server};
pub use server::{live, status};
pub use sessions::standing::Cause;
pub use stats::{Dropped, Stats};
pub use status::{Figures, GraceStatus, SessionRow, Status};
