//! Cistern for applications: locks with fencing tokens, and coherent cached files, over one lease.
//!
//! A [`Client`] is one agent: it has an identity, one session and one lease with a server, and a cache that it may use without
//! asking anybody while the lease is valid. Cloning it is cheap; all clones and threads share the agent.
//!
//! An operation is a value, an [`Op`]: options and conditions are its methods, and nothing happens before it is started.
//! `.wait()` blocks, `.await` works under any runtime (the agent has a thread of its own and needs none), `.start()` gives a
//! [`Call`] to wait for later. An answer from cache is there at once; then neither waits, and no message is sent.
//!
//! ```no_run
//! use cistern_client::{Client, PublicKey, SecretKey};
//! # fn connected(own: SecretKey, server: PublicKey) -> Result<(), cistern_client::Error> {
//! let client = Client::builder().server("cistern.example.net:7311").key(own, server).connect()?;
//! let settings = client.read("/etc/service.toml").wait()?;
//! let guard = client.lock("/jobs/nightly").create().wait()?;
//! println!("{} bytes; lock held under token {}", settings.bytes.len(), guard.token());
//! # Ok(())
//! # }
//! ```
//!
//! The guide, `docs/client.md`, has an example of each use: leader election, a job that runs in one place, configuration, service
//! discovery, a counter.
//!
//! # Errors
//!
//! [`Error::kind`] says what went wrong, [`Error::applied`] whether something may have been changed all the same, and
//! [`Error::is_retryable`] whether doing the same again later makes sense. Errors become [`std::io::Error`]s by `?`.
//!
//! # Forks
//!
//! After a fork a client belongs to the process that made it: in the child every use fails with [`ErrorKind::Forked`], and dropping it there
//! sends nothing. (A child made by `_Fork` or a bare `clone`, past the C library's handlers, can read what is cached until the copied lease
//! ends, and nothing else.)

// Only the simulator may be built with deliberate bugs in the cores.
const _: () = assert!(!cistern_link::bugs::COMPILED_IN, "this build has deliberate bugs in it; build without the feature `bugs`");

mod builder;
mod call;
mod client;
mod error;
mod events;
mod forked;
mod guard;
mod hub;
mod identity;
mod key_source;
mod metadata;
mod named_lease;
mod op;
mod peer_lock;
mod realm;
mod recipes;
mod roster;
mod status;
mod steps;
mod update;
mod vm_generation;
mod watcher;

pub use builder::Builder;
pub use call::Call;
/// What can be set of an agent, beside what [`Builder`] has a method for.
pub use cistern_agent::config::{CacheLimits, Config, IdlePolicy, Phases};
/// What [`Builder::server`] reads.
pub use cistern_driver::{Address, AddressError, DEFAULT_PORT};
/// For captures of what an agent sends and receives, see [`Builder::tap`].
pub use cistern_driver::{Recorded, Recorder, Tap};
pub use cistern_link::Instant;
/// The secret of a named lease, see [`Client::create_lease`].
pub use cistern_seal::LeaseSecret;
/// Keys, see [`Builder::key`] and [`Builder::key_log`].
pub use cistern_seal::{KeySink, PublicKey, SecretKey, key::Role};
pub use client::{Client, File};
pub use error::{Applied, Error, ErrorKind};
pub use events::{Blocking, Events};
pub use guard::{Guard, LockState};
pub use identity::AgentIdentity;
pub use key_source::KeySource;
pub use metadata::{Contents, DirEntry, Directory, FileId, FileType, LockInfo, Metadata, Standing, Token, Version, Xattr, XattrNames};
pub use named_lease::{LeaseFile, lease_secret};
pub use op::{Creation, Mutation, Op, Operation, kinds};
pub use peer_lock::{PeerLock, TokenBasis};
pub use realm::Realm;
pub use recipes::{
    Barrier, Counter, Election, Entered, Leader, Leadership, Observed, Observer, Once, Queue, QueueItem, Run, Semaphore, Slot,
};
pub use roster::{KeyAt, RosterKeeper, Servers};
pub use status::{LeaseView, Phase, ServerMember, ServerStatus};
pub use steps::Steps;
pub use update::Update;
pub use watcher::{WatchEvent, Watcher};

/// Compiles the examples of the guides.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/client.md")]
#[doc = include_str!("../../../docs/membership.md")]
#[doc = include_str!("../../../docs/named-leases.md")]
struct Guides;
