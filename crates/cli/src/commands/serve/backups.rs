//! Backups of the running server: written by a thread of their own, from what the store held at one moment.
//!
//! Decides: that there is one at a time, and that who asked is told when it is whole and durable, or why it is not. Place in the walk:
//! begun by a line on the control socket, ended in a later turn. Invariant: the loop waits for none of it, not for its moment either.
//! Leaves to others: what a copy is (`cistern_store::BackupSource`), who may ask (the control socket's file).

use super::kept::Bell;
use crate::execute::EXIT_FAILED;
use crate::local::Failure;
use crate::text::Text;
use cistern_driver::{ConnectionId, ControlServer};
use cistern_store::BackupSource;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

/// The backup under way, if there is one.
#[derive(Debug)]
pub(super) struct Backups {
    bell: Bell,
    asked: Option<ConnectionId>,
    sender: Sender<Result<Value, Failure>>,
    results: Receiver<Result<Value, Failure>>,
}

impl Backups {
    /// None yet; `bell` wakes the loop when one ends.
    pub(super) fn new(bell: Bell) -> Self {
        let (sender, results) = channel();
        Self { bell, asked: None, sender, results }
    }

    /// Begins one for who asked, of `source`.
    ///
    /// # Errors
    /// There is one already, or the directory is not absolute.
    pub(super) fn begin(&mut self, asked: ConnectionId, dir: Text, source: BackupSource) -> Result<(), Failure> {
        let dir = PathBuf::from(dir.as_os());
        if !dir.is_absolute() {
            return Err(Failure::usage(format!(
                "{}: name the directory from the root on; the server has another working directory",
                dir.display()
            )));
        }
        if self.asked.is_some() {
            return Err(Failure::new("BUSY", EXIT_FAILED, "a backup is being made already; wait until it has ended"));
        }
        let (sender, bell) = (self.sender.clone(), self.bell.clone());
        let run = move || {
            let result = write(source, &dir);
            // Fails only when the loop is gone, and with it who asked.
            let _ = sender.send(result);
            if let Some(handle) = bell.get() {
                handle.wake();
            }
        };
        thread::Builder::new().name("backup".to_owned()).spawn(run).map_err(|e| Failure::failed(format!("no thread for a backup: {e}")))?;
        self.asked = Some(asked);
        Ok(())
    }

    /// Tells who asked for a backup that it has ended.
    pub(super) fn tell(&mut self, control: &mut ControlServer) {
        let Ok(result) = self.results.try_recv() else { return };
        if let Some(asked) = self.asked.take() {
            let line = match result {
                Ok(value) => json!({ "ok": value }),
                Err(failure) => json!({ "error": failure }),
            };
            // Who asked may be gone; the log has it, too.
            control.push(asked, &line.to_string());
        }
    }
}

fn write(source: BackupSource, dir: &Path) -> Result<Value, Failure> {
    let begun = Instant::now();
    match source.snapshot().write_to(dir) {
        Ok(records) => {
            log::info!("backup: {records} records are in {}, after {:?}", dir.display(), begun.elapsed());
            Ok(json!({ "dir": dir.to_string_lossy(), "records": records, "seconds": begun.elapsed().as_secs_f64() }))
        }
        Err(e) => {
            log::warn!("backup into {} failed, and is not to be used: {e}", dir.display());
            Err(e.into())
        }
    }
}
