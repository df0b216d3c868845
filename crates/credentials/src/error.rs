//! What can be wrong with a file of credentials.

use cistern_seal::key::KeyTextError;
use cistern_trust::revocation::DamagedLine;
use cistern_trust::roster::PinnedTextError;
use cistern_trust::{RosterError, TextError};
use std::io;
use std::path::{Path, PathBuf};

/// A file that cannot be used, and why.
#[derive(Debug, thiserror::Error)]
#[error("{}: {problem}", path.display())]
pub struct CredentialError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    #[source]
    pub problem: Problem,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// It cannot be opened, is not to be believed, or cannot be written.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It is no text.
    #[error("it is no text")]
    NoText,
    /// It is not the key that is expected.
    #[error("{0}")]
    Key(#[from] KeyTextError),
    /// It is not the text that is expected.
    #[error("it {0}")]
    Text(#[from] TextError),
    /// It is no `cluster.toml`.
    #[error("it is no cluster.toml, which has `cluster` and `roster`: {0}")]
    Form(String),
    /// Its cluster and its roster cannot be read, or do not belong together.
    #[error("{0}")]
    Pinned(#[from] PinnedTextError),
    /// A roster is not to be taken.
    #[error("{0}")]
    Roster(#[from] RosterError),
    /// A line is damaged.
    #[error("{0}; a key that is overlooked stays good, so nothing is served until it is mended: take the line from a copy of the file")]
    Line(#[from] DamagedLine),
    /// It does not belong to what is there already.
    #[error("{0}")]
    Other(String),
}

impl CredentialError {
    pub(crate) fn new(path: &Path, problem: impl Into<Problem>) -> Self {
        Self { path: path.to_owned(), problem: problem.into() }
    }

    /// Whether there is no such file.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(&self.problem, Problem::Io(e) if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory))
    }

    /// Whether there is something of that name already.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(&self.problem, Problem::Io(e) if e.kind() == io::ErrorKind::AlreadyExists)
    }
}
