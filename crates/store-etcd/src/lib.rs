//! The store on etcd: the server's `Load` and `Persist` on a cluster of etcd's own, which survives a host.
//!
//! Decides: what keeps a server that was replaced from writing anything, at any delay, and what becomes of writes whose outcome is not
//! known ([`Sequencer`], sans-I/O, which a model of etcd tests under every order of answers); how etcd's limits are met.
//! Place in the walk: beside `cistern-store`, behind the same seam.
//! Invariant: as of every store: batches become durable in their order, each whole or not at all, and an answer is of a state that
//! holds every batch reported durable before the question was asked.
//! Leaves to others: leases, locks and elections, of which none of etcd's is used; what keys and values mean (`cistern_server::store`).
//!
//! The connection itself (`EtcdStore`) is behind the feature `client`. Reading order: `txn`, `record` (what is in etcd), `sequencer`,
//! `chunk`, `client`.

pub mod bugs;
mod chunk;
#[cfg(feature = "client")]
mod client;
mod reason;
mod record;
mod sequencer;
mod target;
mod txn;

#[cfg(feature = "client")]
pub use client::{EtcdStore, StoppedEtcd, create, probe};
pub use reason::Reason;
pub use record::{Identity, Keyspace, ServerList};
pub use sequencer::{Event, Sequencer};
pub use target::{Credentials, SCHEME, Target};
pub use txn::{Answer, Compare, Entry, Header, Op, Outcome, Txn};
