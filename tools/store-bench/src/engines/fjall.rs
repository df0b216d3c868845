//! fjall: each batch synced by fdatasync of its journal.

use super::{CACHE, Engine, Failed};
use crate::shape::Write;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};
use std::path::Path;

pub(super) struct Fjall {
    database: Database,
    values: Keyspace,
}

impl Fjall {
    pub(super) fn open(dir: &Path) -> Result<Self, Failed> {
        let database = Database::builder(dir).cache_size(CACHE as u64).worker_threads(1).open()?;
        let values = database.keyspace("values", KeyspaceCreateOptions::default)?;
        Ok(Self { database, values })
    }
}

impl Engine for Fjall {
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), Failed> {
        let mut batch = self.database.batch().durability(Some(PersistMode::SyncData));
        for (key, value) in writes {
            match value {
                Some(value) => batch.insert(&self.values, key, value),
                None => batch.remove(&self.values, key),
            }
        }
        Ok(batch.commit()?)
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<usize>, Failed> {
        Ok(self.values.get(key)?.map(|value| value.len()))
    }
}
