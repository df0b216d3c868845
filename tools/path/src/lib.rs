//! What a request costs, counted: the server's core and the agent's core, turned without sockets by datagrams made beforehand.
//!
//! Decides nothing about the protocol: [`Rig`] turns the real server as a driver would, [`Pair`] an agent beside it, [`Kind`] says which
//! requests there are to count. Used by this package's program, which counts instructions, and by its tests, which count allocations.
//! Invariant: a run depends on nothing but its arguments: clocks are virtual, seeds are fixed.

mod cached;
mod counted;
mod kind;
mod pair;
mod peer;
mod priced;
mod rig;

pub use cached::Cached;
pub use counted::Counted;
pub use kind::{Kind, PACKED};
pub use pair::Pair;
pub use peer::{Peer, message};
pub use priced::{Priced, charge, charge_of};
pub use rig::{ROOT, Rig, server, server_with};
