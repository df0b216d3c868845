//! What can be wrong with a file of credentials.

use cistern_seal::key::KeyTextError;
use cistern_trust::revocation::DamagedLine;
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
    /// A line is damaged.
    #[error("{0}; a key that is overlooked stays good, so nothing is served until it is mended: take the line from a copy of the file")]
    Line(#[from] DamagedLine),
    /// Something else, in words.
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
        matches!(&self.problem, Problem::Io(e) if e.kind() == io::ErrorKind::NotFound)
    }

    /// Whether there is something of that name already.
    #[must_use]
    pub fn is_there(&self) -> bool {
        matches!(&self.problem, Problem::Io(e) if e.kind() == io::ErrorKind::AlreadyExists)
    }
}
