//! A new, empty journal in the place of all that there are.
//!
//! Decides: in which order files come and go. The engine begins a new journal only after 64 MB, so it never gives the last one back.
//! Invariant: the directory always has what the engine leaves when it begins another journal itself: an empty one with the highest number,
//! and perhaps older ones, whose transactions are all in tables.

use super::journals;
use crate::place::sync_directory;
use std::fs::{self, File};
use std::io;
use std::path::Path;

/// Puts an empty journal in the place of all others. Only while the engine is closed, and after it has synced tables of all that it had.
///
/// # Errors
/// What the system said; nothing is lost.
pub(crate) fn renew_journal(data: &Path) -> io::Result<()> {
    let old = journals(data)?;
    let next = old.last().map_or(0, |(id, _)| id + 1);
    File::create_new(data.join(format!("{next}.jnl")))?.sync_all()?;
    // Without any journal the engine would give out its sequence numbers again.
    sync_directory(data)?;
    for (_, path) in old {
        fs::remove_file(path)?;
    }
    sync_directory(data)
}
