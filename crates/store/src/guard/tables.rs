//! The engine's directories: their names are made durable, and their lists of tables are compared with their checksums.
//!
//! Decides what must be so before the engine looks, of all that is not a journal. Place in the walk: a part of `guard`.
//! Invariant: no list of tables is used but the one that was written, and nothing is promised in a file whose name a crash could take.
//! Leaves to others: journals (`guard`), tables (the engine).

use super::from_disk;
use crate::place::sync_directory;
use std::fs;
use std::io::{self, Read as _};
use std::path::Path;
use xxhash_rust::xxh3::xxh3_128;

/// Directories of the engine: its own notes, and ours.
const KEYSPACES: [&str; 2] = ["0", "1"];

/// Makes the names of the engine's files durable. The engine does not for its keyspaces, and a file that a killed server has made may be
/// about to hold what is promised.
pub(crate) fn sync_names(data: &Path) -> io::Result<()> {
    let keyspaces = data.join("keyspaces");
    for keyspace in KEYSPACES {
        let keyspace = keyspaces.join(keyspace);
        let tables = keyspace.join("tables");
        // Empty until the first table is written, and lost by copies that keep files only.
        match fs::create_dir(&tables) {
            Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
            _ => sync_directory(&tables)?,
        }
        sync_directory(&keyspace)?;
    }
    sync_directory(&keyspaces)?;
    sync_directory(data)
}

/// Checks every list.
pub(super) fn check(data: &Path) -> io::Result<Result<(), String>> {
    for keyspace in KEYSPACES {
        if let Err(what) = check_list(&data.join("keyspaces").join(keyspace))? {
            return Ok(Err(what));
        }
    }
    Ok(Ok(()))
}

/// The list of tables is the one that `current` names, byte for byte.
fn check_list(keyspace: &Path) -> io::Result<Result<(), String>> {
    let damaged = |what: &str| Ok(Err(format!("{} {what}", keyspace.display())));
    let read = |name: &str| {
        from_disk(&keyspace.join(name)).and_then(|mut file| {
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes).map(|_| bytes)
        })
    };
    let current = match read("current") {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return damaged("has no list of its tables"),
        Err(e) => return Err(e),
    };
    // Number of the list, its XXH3-128, kind of checksum.
    let Some((id, sum)) = current.split_first_chunk::<8>().filter(|(_, rest)| rest.len() == 17 && rest[16] == 0) else {
        return damaged("has a damaged file `current`");
    };
    let id = u64::from_le_bytes(*id);
    match read(&format!("v{id}")) {
        Ok(list) if xxh3_128(&list).to_le_bytes() == sum[..16] => Ok(Ok(())),
        Ok(_) => damaged(&format!("has a list of tables `v{id}` that is not the one written")),
        Err(e) if e.kind() == io::ErrorKind::NotFound => damaged(&format!("has no list of tables `v{id}`")),
        Err(e) => Err(e),
    }
}
