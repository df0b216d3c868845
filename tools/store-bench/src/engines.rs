//! The candidates, each behind the same four calls.
//!
//! Decides how each is set so that a commit is durable when it returns, at the least cost that it offers for that.
//! LMDB by `heed` is not here: its `EnvOpenOptions::open` is an unsafe function (the file is mapped into memory), and this workspace
//! forbids unsafe code; nor does LMDB check what it reads.

mod fjall;
mod redb;
mod sqlite;

use crate::shape::Write;
use clap::ValueEnum;
use std::error::Error;
use std::path::Path;

/// Any candidate's error.
pub(crate) type Failed = Box<dyn Error + Send + Sync>;

/// What the bench wants of a candidate.
pub(crate) trait Engine {
    /// Makes these writes durable, all or none.
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), Failed>;
    /// Length of a key's value.
    fn read(&mut self, key: &[u8]) -> Result<Option<usize>, Failed>;
}

/// The candidates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Candidate {
    /// redb: a copy-on-write B-tree; one sync a commit, repaired by a walk over all of it after a kill.
    Redb,
    /// redb with quick repair: two syncs a commit.
    RedbQuick,
    /// fjall: a log-structured merge tree with a journal; one fdatasync a commit.
    Fjall,
    /// SQLite by rusqlite: a B-tree with a write-ahead log; one sync a commit.
    Sqlite,
}

impl Candidate {
    /// All, in the order of the table.
    pub(crate) const ALL: [Self; 4] = [Self::Redb, Self::RedbQuick, Self::Fjall, Self::Sqlite];

    /// Opens or makes a store in a directory.
    pub(crate) fn open(self, dir: &Path) -> Result<Box<dyn Engine>, Failed> {
        Ok(match self {
            Self::Redb => Box::new(redb::Redb::open(dir, false)?),
            Self::RedbQuick => Box::new(redb::Redb::open(dir, true)?),
            Self::Fjall => Box::new(fjall::Fjall::open(dir)?),
            Self::Sqlite => Box::new(sqlite::Sqlite::open(dir)?),
        })
    }

    /// Its name on the command line.
    pub(crate) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// Cache that each candidate may use, in bytes.
const CACHE: usize = 256 << 20;
