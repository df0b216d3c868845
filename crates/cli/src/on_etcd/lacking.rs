//! What a program says that was built without the store on etcd.

use super::{Probed, is_built};
use crate::local::Failure;
use bytes::Bytes;
use cistern_server::store::Key;
use cistern_store::check::Report;
use cistern_text::Progress;
use cistern_trust::Revocations;
use cistern_wire::StoreId;
use std::path::Path;
use std::time::Duration;

fn lacking(store: &Path) -> Failure {
    is_built(store).err().unwrap_or_else(|| Failure::usage(format!("{} is not on etcd", store.display())))
}

/// Refuses.
pub(crate) fn create(store: &Path, _: StoreId, _: Vec<(Key, Bytes)>) -> Result<(), Failure> {
    Err(lacking(store))
}

/// Refuses.
pub(crate) fn look(store: &Path, _: usize, _: Progress) -> Result<Result<Report, String>, Failure> {
    Err(lacking(store))
}

/// Refuses.
pub(crate) fn probe(store: &Path, _: Duration, _: impl Fn(Probed) -> bool + Send + 'static) -> Result<(), Failure> {
    Err(lacking(store))
}

/// Refuses.
pub(crate) fn restored(store: &Path, _: u8, _: bool, _: &Revocations, _: Progress) -> Result<u8, Failure> {
    Err(lacking(store))
}
