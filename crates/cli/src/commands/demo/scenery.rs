//! The directory tree that the demonstration imports.
//!
//! Decides: which tree, when none is named: the first of some that most machines have which is sizeable but not too large.
//! Leaves to others: copying it (`tree`).

use crate::local::Failure;
use std::fs;
use std::path::{Path, PathBuf};

/// Most entries of a tree, so that all acts together end within half a minute.
const ENTRIES_MAX: usize = 1_500;
/// Fewest entries that make a tree worth showing.
const ENTRIES_MIN: usize = 100;
/// Most bytes of a tree.
const BYTES_MAX: u64 = 24 << 20;

/// Trees that many machines have.
const CANDIDATES: [&str; 9] = [
    "/usr/share/perl5",
    "/usr/lib/python3.11/asyncio",
    "/usr/share/zoneinfo",
    "/usr/share/terminfo",
    "/usr/share/perl",
    "/usr/lib/systemd",
    "/etc",
    "/usr/share/doc",
    ".",
];

/// A tree to import.
pub(crate) struct Tree {
    pub(crate) dir: PathBuf,
}

/// The tree named, or one that is there.
pub(crate) fn find(named: Option<&Path>) -> Result<Tree, Failure> {
    if let Some(dir) = named {
        let shown = dir.display();
        let meta = fs::metadata(dir).map_err(|e| Failure::failed(format!("{shown}: {e}")))?;
        if !meta.is_dir() {
            return Err(Failure::failed(format!("{shown}: not a directory")));
        }
        return match measure(dir) {
            Some((entries, _)) if entries > 0 => Ok(Tree { dir: dir.to_owned() }),
            Some(_) => Err(Failure::failed(format!("{shown}: nothing in it to show"))),
            None => Err(Failure::failed(format!(
                "{shown}: more than {ENTRIES_MAX} entries or {} MiB, too much for half a minute; name a smaller directory, or use `cistern import`",
                BYTES_MAX >> 20
            ))),
        };
    }
    let sizeable = |dir: &&&str| measure(Path::new(dir)).is_some_and(|(entries, _)| entries >= ENTRIES_MIN);
    let found = CANDIDATES.iter().find(sizeable);
    found.map(|dir| Tree { dir: PathBuf::from(dir) }).ok_or_else(|| {
        Failure::failed("no directory tree of a good size was found on this machine: name one, as in `cistern demo /usr/share`")
    })
}

/// Entries and bytes below a directory; `None` when there are too many, or it cannot be read.
fn measure(dir: &Path) -> Option<(usize, u64)> {
    let (mut entries, mut bytes) = (0, 0);
    let mut todo = vec![dir.to_owned()];
    while let Some(dir) = todo.pop() {
        for entry in fs::read_dir(dir).ok()? {
            let entry = entry.ok()?;
            let kind = entry.file_type().ok()?;
            entries += 1;
            if kind.is_dir() {
                todo.push(entry.path());
            } else if kind.is_file() {
                bytes += entry.metadata().ok()?.len();
            }
            if entries > ENTRIES_MAX || bytes > BYTES_MAX {
                return None;
            }
        }
    }
    Some((entries, bytes))
}
