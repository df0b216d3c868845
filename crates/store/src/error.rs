//! Why a store cannot be used: what, where, and what to do.
//!
//! Decides the kinds of trouble that a caller can tell apart (each has an exit status of its own), and their words.
//! Leaves to others: exit statuses (`cistern-cli`).

use std::io;
use std::path::{Path, PathBuf};

/// What kind of trouble it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// There is no store, and none was to be made.
    Missing,
    /// What is there is something else.
    Foreign,
    /// It is a copy, which no server may go on from (sections 11.4 and 11.7).
    Copy,
    /// Another version of Cistern has written it, most likely a newer one.
    Newer,
    /// Its bytes are not those that were written.
    Damaged,
    /// Another process has it.
    InUse,
    /// The file system's locks are not to be trusted (section 11.7).
    FileSystem,
    /// It may not be read or written.
    Permission,
    /// The system could not read or write it.
    Io,
}

/// A store that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenError {
    /// What kind of trouble it is.
    pub problem: Problem,
    /// Its directory.
    pub dir: PathBuf,
    /// What is wrong where, and what to do.
    pub what: String,
}

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "store {}: {}", self.dir.display(), self.what)
    }
}

impl std::error::Error for OpenError {}

impl OpenError {
    pub(crate) fn new(problem: Problem, dir: &Path, what: impl Into<String>) -> Self {
        Self { problem, dir: dir.to_owned(), what: what.into() }
    }

    /// Something of it has changed since it was written.
    pub(crate) fn damaged(dir: &Path, what: impl std::fmt::Display) -> Self {
        let what = format!("damaged: {what}; nothing was changed. Restore a backup, or look with `cisternd check`");
        Self::new(Problem::Damaged, dir, what)
    }

    /// The system refused; `doing` is what was tried, with the name of the file.
    pub(crate) fn io(dir: &Path, doing: &str, error: &io::Error) -> Self {
        let (problem, hint) = match error.kind() {
            io::ErrorKind::PermissionDenied => (Problem::Permission, "; the server's user must be able to read and write it"),
            io::ErrorKind::ReadOnlyFilesystem => (Problem::Permission, "; mount it writable"),
            io::ErrorKind::StorageFull => (Problem::Io, "; make room on its file system"),
            _ => (Problem::Io, ""),
        };
        Self::new(problem, dir, format!("{doing}: {error}{hint}"))
    }
}
