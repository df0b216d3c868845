//! `--key-log`: what opens captures of the sealed sessions of this process.
//!
//! Decides: only who asks for it by a flag gets it, never by the environment, which any parent can set; and it is said that it is written.
//! Leaves to others: whose the file may be (`cistern_credentials`).

use crate::local::Failure;
use cistern_client::KeySink;
use cistern_credentials::KeyLogFile;
use std::path::Path;
use std::sync::Mutex;

/// Opens a log for appending, or makes it.
///
/// # Errors
/// It is another's, or others can read it, or it cannot be opened.
pub(crate) fn open(path: Option<&Path>) -> Result<Option<KeySink>, Failure> {
    let Some(path) = path else { return Ok(None) };
    let file = KeyLogFile::open(path).map_err(|e| Failure::usage(format!("--key-log: {e}")))?;
    log::warn!("whoever reads {} can read what this process sends and receives (--key-log)", path.display());
    let file = Mutex::new(file);
    Ok(Some(KeySink::new(move |line| {
        if let Ok(Err(error)) = file.lock().map(|mut file| file.write(line)) {
            log::warn!("the keys of a session could not be logged: {error}");
        }
    })))
}
