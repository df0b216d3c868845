//! Recipes: what is built of locks, ephemeral files, conditional changes and watches, and of nothing else.
//!
//! Decides: that each recipe has a directory of its own, in which its files have the names that docs/recipes.md says, so that programs
//! in all languages meet there.

mod election;
mod semaphore;

pub use election::{Election, Leader, Leadership, Observed, Observer};
pub use semaphore::{Semaphore, Slot};

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use std::path::Path;

/// Makes the directory of a recipe, if it is missing.
async fn make_dir(client: &Client, dir: &Path) -> Result<(), Error> {
    unless(client.create_dir(dir).await.map(drop), ErrorKind::AlreadyExists)
}

/// As it ended; this kind of failure is none.
fn unless(result: Result<(), Error>, kind: ErrorKind) -> Result<(), Error> {
    match result {
        Err(error) if error.kind() == kind => Ok(()),
        other => other,
    }
}
