//! Decoders under broken input: each target is a function of bytes that may refuse them, and never panics.
//!
//! A target also says what it came to, as a number: inputs that come to something new are mutated further, which takes the place of a
//! compiler's coverage, so that the runner needs no special build. `cargo fuzz` calls the same functions (`tools/fuzz/libfuzzer`).
//! An input that once failed stays in `corpus`, and is read again by the tests.

mod credentials;
mod joiner;
mod mutate;
mod runner;
mod targets;

pub use runner::{Failed, Limit, fuzz};
pub use targets::{TARGETS, Target};

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};

/// Inputs of a target that once failed, and others that are worth reading again.
///
/// # Errors
///
/// As the system's.
pub fn corpus(target: &str) -> std::io::Result<Vec<(PathBuf, Vec<u8>)>> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    if !dir.is_dir() {
        return Ok(Vec::new());
    }
    let mut files: Vec<PathBuf> = std::fs::read_dir(dir)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    files.sort();
    files.into_iter().map(|file| Ok((file.clone(), std::fs::read(file)?))).collect()
}

/// What an input came to, as a number.
fn outcome(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}
