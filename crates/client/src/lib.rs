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
//! use cistern_client::Client;
//! # fn main() -> Result<(), cistern_client::Error> {
//! let client = Client::connect("cistern.example.net:7311")?;
//! let settings = client.read("/etc/service.toml").wait()?;
//! let guard = client.lock("/jobs/nightly").create().wait()?;
//! println!("{} bytes; lock held under token {}", settings.bytes.len(), guard.token());
//! # Ok(())
//! # }
//! ```
//!
//! # Leader election
//!
//! Whoever holds the lock leads. [`Guard::is_valid`] is the check before acting, and costs no message. [`Op::guarded_by`] makes the
//! server check again at the moment of the change: a leader that was stopped for too long cannot overwrite its successor's work.
//!
//! ```no_run
//! # use cistern_client::{Client, Error, ErrorKind, LockState};
//! # use std::time::Duration;
//! fn lead(client: &Client, work: impl Fn() -> String) -> Result<(), Error> {
//!     loop {
//!         let lead = client.lock("/election").create().wait()?;
//!         while lead.is_valid() {
//!             match client.write("/state", work()).guarded_by(&lead).wait() {
//!                 Err(error) if error.kind() == ErrorKind::StaleGuard => break,
//!                 written => written?,
//!             };
//!             if lead.events().next_timeout(Duration::from_secs(1)) == Some(LockState::Lost) {
//!                 break;
//!             }
//!         }
//!     }
//! }
//! ```
//!
//! # Configuration that is always current
//!
//! The cache is coherent: somebody else's change is done only when no agent answers from the old contents any more. So `read` is the cache,
//! and a program that only asks needs nothing else. A watch tells when it is worth asking.
//!
//! ```no_run
//! # use cistern_client::{Client, Error, WatchEvent};
//! fn follow(client: &Client, mut apply: impl FnMut(&[u8])) -> Result<(), Error> {
//!     let watcher = client.watch("/cfg/app.toml").wait()?;
//!     for event in watcher.events() {
//!         if let WatchEvent::Current(_) | WatchEvent::Changed(_) = event {
//!             apply(&client.read("/cfg/app.toml").wait()?.bytes);
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # A job that runs once at a time
//!
//! ```no_run
//! # use cistern_client::{Client, Error, ErrorKind, Guard};
//! # use std::time::Duration;
//! fn nightly(client: &Client, job: impl FnOnce(&Guard)) -> Result<(), Error> {
//!     match client.lock("/jobs/nightly").create().timeout(Duration::from_secs(5)).wait() {
//!         Ok(guard) => job(&guard), // it gives `guard.token()` to what it writes to, and asks `guard.is_valid()` before each step
//!         Err(error) if error.kind() == ErrorKind::TimedOut => println!("it runs elsewhere"),
//!         Err(error) => return Err(error),
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # Registering a service, and finding all of them
//!
//! An ephemeral file goes with the session of the agent that made it; the directory's listing is who is there.
//!
//! ```no_run
//! # use cistern_client::{Client, Error, WatchEvent};
//! async fn serve(client: &Client) -> Result<(), Error> {
//!     client.create_new("/services/web/web-1").ephemeral().contents("10.0.0.7:8080").await?;
//!     let watcher = client.watch("/services/web").await?;
//!     let mut events = watcher.events();
//!     while let Some(event) = events.next().await {
//!         match event {
//!             WatchEvent::Uncertain(_) => println!("not known for now"),
//!             WatchEvent::Removed(_) => break,
//!             _ => {
//!                 let peers = client.read_dir("/services/web").await?.entries;
//!                 println!("{:?}", peers.iter().map(|peer| &peer.file_name).collect::<Vec<_>>());
//!             }
//!         }
//!     }
//!     Ok(())
//! }
//! ```
//!
//! # A counter
//!
//! [`Client::update`] reads, computes, and writes only if nobody was quicker. By hand that is [`Op::if_version`], and again on
//! [`ErrorKind::VersionChanged`].
//!
//! ```no_run
//! # use cistern_client::{Client, Error};
//! async fn next(client: &Client) -> Result<u64, Error> {
//!     let number = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).unwrap_or(0_u64);
//!     let written = client.update("/counter", move |old| (number(old) + 1).to_string().into()).await?;
//!     Ok(number(&written))
//! }
//! ```
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
mod metadata;
mod op;
mod update;
mod watcher;

pub use builder::Builder;
pub use call::Call;
pub use cistern_agent::api::{LeaseView, Phase};
pub use cistern_agent::config::{Config, IdlePolicy};
/// What [`Builder::server`] reads.
pub use cistern_driver::{Address, AddressError, DEFAULT_PORT};
/// For captures of what an agent sends and receives, see [`Builder::tap`].
pub use cistern_driver::{Recorded, Recorder, Tap};
pub use cistern_link::Instant;
pub use cistern_wire::ServerReport;
pub use client::{Client, File};
pub use error::{Applied, Error, ErrorKind};
pub use events::{Blocking, Events};
pub use guard::{Guard, LockState};
pub use identity::AgentIdentity;
pub use metadata::{Contents, DirEntry, Directory, FileId, FileType, LockInfo, Metadata, Standing, Token, Version, Xattr, XattrNames};
pub use op::{Creation, Mutation, Op, Operation, kinds};
pub use update::Update;
pub use watcher::{WatchEvent, Watcher};
