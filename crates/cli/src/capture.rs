//! `--pcap FILE`: every datagram that this process sends or receives, in a capture file.
//!
//! Decides: that there is one capture for a process, made before the first socket is opened, so that a file that cannot be made is told
//! at once; and that what is missing in it is told at the end. Invariant: a capture that fails or is slow ends nothing else.
//! Leaves to others: the file and its thread (`cistern-capture`), where datagrams are seen (`cistern_driver::Tap`).

use crate::local::Failure;
use cistern_driver::{Recorder, Tap};
use std::path::Path;
use std::sync::{Arc, OnceLock};

/// The flag is of the process, whichever command it carries out.
static RECORDER: OnceLock<Arc<Recorder>> = OnceLock::new();

/// Makes the file, if one is wanted.
pub(crate) fn start(path: Option<&Path>) -> Result<(), Failure> {
    let Some(path) = path else { return Ok(()) };
    let recorder = Recorder::create(path).map_err(|e| Failure::failed(format!("--pcap: {e}")))?;
    // Called once in a process, so it is empty.
    let _ = RECORDER.set(Arc::new(recorder));
    Ok(())
}

/// Who sees the datagrams of this process.
pub(crate) fn tap() -> Option<Arc<dyn Tap>> {
    RECORDER.get().map(|recorder| Arc::clone(recorder) as Arc<dyn Tap>)
}

/// Puts the rest into the file and tells what is missing in it.
pub(crate) fn finish() {
    let Some(recorder) = RECORDER.get() else { return };
    let (recorded, path) = (recorder.finish(), recorder.path().display());
    match recorded.failure {
        Some(error) => {
            log::error!("--pcap {path}: {error}; it ends after {} datagrams, {} more are missing", recorded.written, recorded.left_out);
        }
        None if recorded.left_out > 0 => {
            log::warn!(
                "--pcap {path}: the file was too slow for {} datagrams, which are missing; it has {}",
                recorded.left_out,
                recorded.written
            );
        }
        None => log::info!("--pcap {path}: {} datagrams", recorded.written),
    }
}
