//! The stores behind the server's `Load` and `Persist`.
//!
//! Decides which there are: [`DurableStore`] keeps everything in a directory, by an engine chosen by measurement
//! (`docs/decisions/0001-store-engine.md`); [`MemoryStore`] keeps it as long as the process lives; [`SlowStore`] is for tests that
//! want to say what happens when. [`StoppedStore`] is what an operator's commands work on while no server runs.
//! Place in the walk: the driver hands a store the server's work and gives the server its events.
//! Invariant of each: batches become durable in their order, each whole or not at all, and an answer is of a state that holds every
//! batch reported durable before the question was asked.
//! Leaves to others: what keys and values mean (`cistern_server::store`), when replies leave (`cistern_server`).
//!
//! Reading order: `place` (the directory and who has it), `guard` (what is checked before the engine looks), `engine`, `durable`.

pub mod check;
mod durable;
mod early;
mod engine;
mod error;
mod format;
mod guard;
mod memory;
mod place;
mod restore;
mod slow;
mod space;
mod spare;
mod stopped;
mod witness;

pub use durable::{Backup, BackupSource, CommitStats, DurableStore, Options};
pub use error::{OpenError, Problem};
pub use memory::MemoryStore;
pub use place::Making;
pub use restore::{Restoration, RestoreError, restoration, revocation};
pub use slow::SlowStore;
pub use space::SpaceLimits;
pub use stopped::{Entries, StoppedStore};
