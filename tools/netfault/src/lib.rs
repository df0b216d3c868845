//! A bad network on purpose: a UDP proxy between agents and a server, with the simulator's network faults.
//!
//! What it does to a datagram is decided in [`network`], by rules that a script, the command line or a second program gives in one
//! language ([`command`]); effects and draws are those of the simulator (`cistern-faults`). [`Proxy`] is the loop around it; [`Running`] is
//! one in a thread, for tests and for the demonstration.
//!
//! The walk of a datagram: front socket → `agents` (whose is it) → `network` (what becomes of it) → held until it is due → the agent's own
//! socket towards the server; and back. docs/netfault.md tells how it is used.

mod agents;
pub mod command;
mod control;
pub mod network;
mod proxy;
pub mod script;
pub mod stats;
mod words;

/// What a rule does, with the units of its fields.
pub use cistern_faults::Effect;
pub use proxy::{Ended, Handle, Options, Proxy, ProxyError, Running};
pub use words::{Mistake, Rate, Who};
