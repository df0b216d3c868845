//! Recipes: what is built of locks, ephemeral files, conditional changes and watches, and of nothing else.
//!
//! Decides: that each recipe has a directory of its own, in which its files have the names that docs/recipes.md says, so that programs
//! in all languages meet there.

mod barrier;
mod counter;
mod election;
mod members;
mod once;
mod queue;
mod semaphore;

pub use barrier::{Barrier, Entered};
pub use counter::Counter;
pub use election::{Election, Leader, Leadership, Observed, Observer};
pub use once::{Once, Run};
pub use queue::{Queue, QueueItem};
pub use semaphore::{Semaphore, Slot};

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Makes the directory of a recipe, if it is missing.
async fn make_dir(client: &Client, dir: &Path) -> Result<(), Error> {
    unless(client.create_dir(dir).await.map(drop), ErrorKind::AlreadyExists)
}

/// A name that no other file of any recipe has.
fn unique(client: &Client) -> String {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let who = client.identity().to_string().replace('/', ".");
    format!("{who}.{}", MADE.fetch_add(1, Ordering::Relaxed))
}

/// As it ended; this kind of failure is none.
fn unless(result: Result<(), Error>, kind: ErrorKind) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => other,
    }
}
