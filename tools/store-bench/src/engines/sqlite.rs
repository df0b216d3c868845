//! SQLite in WAL mode with `synchronous = FULL`: one sync of the log a commit.

use super::{CACHE, Engine, Failed};
use crate::shape::Write;
use rusqlite::{Connection, OptionalExtension};
use std::path::Path;

pub(super) struct Sqlite {
    connection: Connection,
}

impl Sqlite {
    pub(super) fn open(dir: &Path) -> Result<Self, Failed> {
        let connection = Connection::open(dir.join("store.sqlite"))?;
        connection.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA cache_size = -{}; PRAGMA wal_autocheckpoint = 4000;
             CREATE TABLE IF NOT EXISTS kv (k BLOB PRIMARY KEY, v BLOB NOT NULL) WITHOUT ROWID;",
            CACHE / 1024
        ))?;
        Ok(Self { connection })
    }
}

impl Engine for Sqlite {
    fn commit(&mut self, writes: Vec<Write>) -> Result<(), Failed> {
        let transaction = self.connection.transaction()?;
        {
            let mut put = transaction.prepare_cached("INSERT OR REPLACE INTO kv VALUES (?1, ?2)")?;
            let mut delete = transaction.prepare_cached("DELETE FROM kv WHERE k = ?1")?;
            for (key, value) in &writes {
                match value {
                    Some(value) => put.execute((key, value))?,
                    None => delete.execute((key,))?,
                };
            }
        }
        Ok(transaction.commit()?)
    }

    fn read(&mut self, key: &[u8]) -> Result<Option<usize>, Failed> {
        let mut get = self.connection.prepare_cached("SELECT v FROM kv WHERE k = ?1")?;
        let value: Option<Vec<u8>> = get.query_row([key], |row| row.get(0)).optional()?;
        Ok(value.map(|value| value.len()))
    }
}
