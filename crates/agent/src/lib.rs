//! The client agent's core: one session and one lease with a metadata server, the locks and the cache that they cover, and the
//! commands that users give it. Sans-I/O, `no_std`, deterministic: time, datagrams and a seed go in; datagrams, events and the next
//! time to wake come out.
//!
//! Decides nothing itself; one file, one decision:
//!
//! | file | decides |
//! |---|---|
//! | [`api`] | what users ask and are told |
//! | [`config`] | every setting and the relations between them |
//! | `agent` | the facade: the calls by which users and a driver turn the machine |
//! | `incoming` | the way in: a datagram is checked, and its messages acted on in the safe order |
//! | `outgoing` | the way out: what goes into the next datagram, and from when the lease counts |
//! | `session` | what belongs to one session and dies with it |
//! | `lease` | until when, and in which phase |
//! | `at_once` | what is done for an answer from cache or a local grant, and whether the driver must be woken |
//! | `commands` | how long a command may run, and what ends it before its answer |
//! | `timers` | what is done when a deadline has passed |
//! | `idle` | whether a lease is renewed on purpose, lapses, or everything is given back |
//! | `telling` | what holders are told of their lease |
//! | `locks` | which locks are held, who holds them here, who waits |
//! | `eviction` | which object goes when there is no room |
//! | `looks` | what is seen of the lease and of holds from outside |
//! | `notices` | what the agent says to demands, grants and probes |
//! | `opening` | the handshake, and which server is accepted |
//! | `requests` | nonces, windows, retransmission of requests |
//! | `control` | releases, cancellations, keep-alives, the end of a session |
//! | `recovery` | what becomes of everything when a session ends |
//! | `doubt` | whether the server still knows the session |
//! | `reclaim` | how the locks of a session are taken over after a restart of the server |
//! | `believed` | which numbers of a server are believed |
//! | `outcome` | what became of mutations whose session ended before their answer came |
//! | `surrender` | when nothing of a former session can be used any more |
//! | `watches` | of which objects the server tells changes, and what watchers hear |
//! | `ops`, `walk`, `cache` | how commands are carried out, from cache or by the server |
//!
//! Invariant of the whole: nothing is used, shown or granted locally outside a lease that the server renewed (`wire-spec.md` 11.1).

#![no_std]

extern crate alloc;

#[cfg(test)]
extern crate std;

pub mod api;
pub mod config;

mod agent;
mod at_once;
mod believed;
mod cache;
mod commands;
mod control;
mod doubt;
mod eviction;
mod idle;
mod incoming;
mod lease;
mod locks;
mod looks;
mod moving;
mod notices;
mod opening;
mod ops;
mod outcome;
mod outgoing;
mod port;
mod reclaim;
mod recovery;
mod requests;
mod session;
mod stats;
mod surrender;
mod telling;
mod timers;
mod walk;
mod watches;

pub use agent::{Agent, Identity};
pub use cache::CacheLimits;
pub use looks::HolderView;
pub use stats::Drops;

#[cfg(test)]
mod tests;
