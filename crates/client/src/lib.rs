//! Cistern for applications: locks with fencing tokens, and coherent cached files, over one lease.
//!
//! A [`Client`] is one agent: it has an identity, one session and one lease with a server, and a cache that it may use without
//! asking anybody while the lease is valid. Cloning it is cheap; all clones and threads share the agent. After a fork it belongs to the
//! process that made it: in the child every use fails with [`Error::Forked`], and dropping it there sends nothing. (A child made by
//! `_Fork` or a bare `clone`, past the C library's handlers, can read what is cached until the copied lease ends, and nothing else.)
//!
//! Every operation gives a [`Call`]: `call.wait()` blocks, `call.await` works under any runtime (the agent has a thread of its
//! own and needs none). An answer from cache is there at once; then neither waits, and no message is sent.
//!
//! ```no_run
//! use cistern_client::Client;
//! # fn main() -> Result<(), cistern_client::Error> {
//! let client = Client::builder().server("cistern.example.net:7311").connect()?;
//! let settings = client.read("/etc/service.toml").wait()?;
//! let guard = client.lock("/jobs/nightly").wait()?;
//! println!("{} bytes; lock held under token {}", settings.data.len(), guard.token());
//! # Ok(())
//! # }
//! ```
//!
//! Decides: threads, waiting, names of errors for people. Leaves to others: the protocol (`cistern-agent`), sockets and clocks
//! (`cistern-driver`).

// Only the simulator may be built with deliberate bugs in the cores.
const _: () = assert!(!cistern_link::bugs::COMPILED_IN, "this build has deliberate bugs in it; build without the feature `bugs`");

mod builder;
mod call;
mod change;
mod client;
mod error;
mod file;
mod forked;
mod guard;
mod hub;
pub mod identity;
mod watcher;

pub use builder::Builder;
pub use call::Call;
pub use change::{Batch, Expecting, XattrList, XattrValue};
pub use cistern_agent::api::{AttrChange, LeaseView, Listed, LockEvent, LockInfo, Ownership, Phase, WatchEvent};
pub use cistern_agent::config::{Config, IdlePolicy};
/// What [`Builder::server`] reads.
pub use cistern_driver::{Address, AddressError, DEFAULT_PORT};
/// For captures of what an agent sends and receives, see [`Builder::tap`].
pub use cistern_driver::{Recorded, Recorder, Tap};
pub use cistern_link::Instant;
pub use cistern_wire::{
    AgentId, Attr, Expect, Generation, ItemResult, LockClass, Mode, ObjectId, ObjectKind, RenameRule, RowState, ServerReport, SessionId,
    Standing, Status, XattrRule,
};
pub use client::{Client, Contents, Directory};
pub use error::Error;
pub use file::File;
pub use guard::{Guard, GuardState, LockRequest};
pub use identity::Identity;
pub use watcher::{NextSeen, Seen, Watcher};
