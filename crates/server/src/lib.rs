//! The metadata server's core: sessions and their standing, the lock table, the namespace, and the seam to the store.
//!
//! A state machine without sockets, clocks, threads, files or random source: [`Server`] takes datagrams, the time and the store's
//! word, and gives datagrams, work for the store and the next time at which it wants to be woken. `no_std` makes the compiler keep it so.
//!
//! `ARCHITECTURE.md` shows the parts, which import each other in one direction only, and the walks through them.

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

mod failovers;
mod gate;
mod ids;
mod leases;
mod lines;
mod locks;
mod presence;
mod requests;
mod scheduler;
mod server;
mod sessions;
mod share;
mod tenure;
mod transport;

pub mod config;
pub mod invites;
pub mod namespace;
pub mod principals;
pub mod stats;
pub mod store;

pub use config::{Config, ConfigError};
pub use lines::LineId;
pub use locks::LockCounts;
pub use locks::Struck;
pub use overview::{DemandRow, FailoverEnd, FailoverRow, LockUser, LockedObject, Overview};
pub use scheduler::WorkCounts;
pub use server::admin::{AdminLine, RETIRE_LINE, ROTATE_LINE};
pub use server::join_session::ServerRoster;
pub use server::joining::{Joined, NewInvite};
pub use server::{Identity, Server, overview, status};
pub use sessions::standing::Cause;
pub use stats::{Dropped, Stats};
pub use status::{Figures, GraceStatus, PrincipalRow, SessionRow, Status, Used};
