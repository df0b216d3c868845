//! redb, with one phase or with quick repair.

use super::{CACHE, Engine, Failed};
use crate::shape::Write;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};
use std::path::Path;

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("values");

pub(super) struct Redb {
    database: Database,
    quick: bool,
}

impl Redb {
    pub(super) fn open(dir: &Path, quick: bool) -> Result<Self, Failed> {
        let database = Database::builder().set_cache_size(CACHE).create(dir.join("store.redb"))?;
        Ok(Self { database, quick })
    }
}

impl Engine for Redb {
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), Failed> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(Durability::Immediate)?;
        transaction.set_quick_repair(self.quick);
        {
            let mut table = transaction.open_table(TABLE)?;
            for (key, value) in &writes {
                match value {
                    Some(value) => table.insert(key.as_slice(), value.as_slice())?,
                    None => table.remove(key.as_slice())?,
                };
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<usize>, Failed> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        Ok(redb::ReadableTable::get(&table, key)?.map(|value| value.value().len()))
    }
}
