//! What the library says of named leases.

use crate::metadata::FileId;
use crate::op::{Op, kinds};
use bytes::Bytes;
use cistern_agent::api::{self, Command, Target};
use cistern_seal::LeaseSecret;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::time::Duration;

/// A file that goes with a named lease: the lease's own, or one that is attached.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseFile {
    /// The file.
    pub file: FileId,
    /// A path of it, as far as the server has told.
    pub path: PathBuf,
    /// The lease's own file.
    pub lease: FileId,
    /// The lease's time to live.
    pub ttl: Duration,
    /// What was left of it when the server answered, by its clock.
    pub left: Duration,
    /// How many files go with the lease, its own among them.
    pub files: u32,
}

impl LeaseFile {
    pub(crate) fn of(info: api::LeaseInfo) -> Self {
        Self {
            file: FileId::of(info.object),
            path: OsString::from_vec(info.place.to_vec()).into(),
            lease: FileId::of(info.lease),
            ttl: Duration::from_millis(info.ttl_ms.into()),
            left: Duration::from_millis(info.left_ms.into()),
            files: info.files,
        }
    }
}

impl Op<kinds::CreateLease> {
    /// Its file appears with these contents, as one change.
    pub fn contents(mut self, data: impl Into<Bytes>) -> Self {
        if let Command::MakeLease { path, .. } = &self.command {
            let write = Command::Write { target: Target::Path(path.clone()), offset: 0, data: data.into(), truncate: false };
            self.command = Command::Batch { items: vec![self.command, write] };
        }
        self
    }
}

/// A secret for a named lease, from the system's random source.
///
/// # Panics
/// If the system's random source fails, which it does not once a program has a client.
#[must_use]
pub fn lease_secret() -> LeaseSecret {
    let seed = cistern_driver::seed().expect("the system's random source does not go away");
    LeaseSecret::from_array(std::array::from_fn(|at| seed[at]))
}

/// As the server takes it: whole milliseconds, rounded up. What it cannot be is refused there.
pub(crate) fn ttl_ms(ttl: Duration) -> u32 {
    u32::try_from(ttl.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
}
