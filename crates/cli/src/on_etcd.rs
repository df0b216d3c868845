//! Stores on etcd, as far as this program was built with them (feature `etcd`: etcd's client needs protoc to be built).
//!
//! Decides: what a command says that was built without, or does not work on such a store. Leaves to others: the store (`cistern_store_etcd`).

#[cfg(feature = "etcd")]
mod built;
#[cfg(not(feature = "etcd"))]
mod lacking;

#[cfg(feature = "etcd")]
pub(crate) use built::{create, look, open, open_elected, probe, restored};
#[cfg(not(feature = "etcd"))]
pub(crate) use lacking::{create, look, probe, restored};

use crate::local::Failure;
use std::path::Path;

/// The servers of a group as their store has them: the number of the list, and the list.
pub(crate) type StoredServers = (u32, String);

/// What came of a look at a store.
#[cfg_attr(not(feature = "etcd"), allow(dead_code, reason = "nothing is looked at"))]
pub(crate) enum Probed {
    /// It is there, and has this list of a group's servers, if any.
    Answered(Option<StoredServers>),
    /// etcd does not answer, in words.
    Silent(String),
    /// It is not there, or something else is.
    Wrong(Failure),
}

/// Whether a store is named that is on etcd.
pub(crate) fn is_named(store: &Path) -> bool {
    store.to_str().is_some_and(|name| name.starts_with("etcd://"))
}

/// Refuses a store on etcd where this program was built without.
///
/// # Errors
/// How it is built with it.
pub(crate) fn is_built(store: &Path) -> Result<(), Failure> {
    if cfg!(feature = "etcd") || !is_named(store) {
        return Ok(());
    }
    Err(Failure::usage(format!(
        "{}: this program was built without the store on etcd; `cargo build --release --features etcd` builds it with it, and needs protoc \
         (Debian: protobuf-compiler, libprotobuf-dev)",
        store.display()
    )))
}

/// Refuses a store on etcd, for which there is another way.
///
/// # Errors
/// `instead`.
pub(crate) fn refuse(store: &Path, instead: &str) -> Result<(), Failure> {
    if is_named(store) { Err(Failure::usage(format!("{}: {instead}", store.display()))) } else { Ok(()) }
}
