//! Backups of the running server: written by a thread of their own, from what the store held at one moment.
//!
//! Decides: where each is written, that there is one at a time, and that who asked is told when it is whole and durable, or why it is not. Who asks
//! over the network names no place on this host: those backups have plain names, below the one directory that the server was started with, each new
//! and so many at most. Place in the walk: begun by an operator's line, ended in a later turn. Invariant: the loop waits for none of it, not
//! for its moment either.
//! Leaves to others: what a copy is (`cistern_store::BackupSource`), who may ask (the control socket's file, `cistern_server`).

use super::kept::Bell;
use super::operators::AskedBy;
use crate::execute::{EXIT_DAMAGED, EXIT_FAILED};
use crate::local::Failure;
use crate::server_control::BackupPlace;
use cistern_store::BackupSource;
use serde_json::{Value, json};
use std::fmt;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Instant;

/// Most things in the directory of backups that have names: whoever asks from elsewhere does not fill the disk, and removes nothing.
const NAMED_MAX: usize = 64;
/// Longest name of a backup.
const NAME_MAX: usize = 64;

/// The backup under way, if there is one.
#[derive(Debug)]
pub(super) struct Backups {
    bell: Bell,
    /// Where those go that have names.
    dir: Option<PathBuf>,
    running: bool,
    /// Who asked, unless that is over.
    asked: Option<AskedBy>,
    sender: Sender<Result<Value, Failure>>,
    results: Receiver<Result<Value, Failure>>,
}

impl Backups {
    /// None yet; `bell` wakes the loop when one ends. Those that have names are made below `dir`.
    ///
    /// # Errors
    /// That is no directory.
    pub(super) fn new(bell: Bell, dir: Option<&Path>) -> Result<Self, Failure> {
        let (sender, results) = channel();
        let usage = |dir: &Path, what: &dyn fmt::Display| Failure::usage(format!("--backups {}: {what}", dir.display()));
        let made = |dir: &Path| fs::canonicalize(dir).map_err(|e| usage(dir, &e));
        let dir = dir.map(made).transpose()?;
        if let Some(file) = dir.as_deref().filter(|dir| !dir.is_dir()) {
            return Err(usage(file, &"not a directory"));
        }
        Ok(Self { bell, dir, running: false, asked: None, sender, results })
    }

    /// Begins one for who asked, of what `source` gives.
    ///
    /// # Errors
    /// There is one already, or it cannot be there.
    pub(super) fn begin(
        &mut self,
        asked: AskedBy,
        place: BackupPlace,
        source: impl FnOnce() -> Result<BackupSource, Failure>,
    ) -> Result<(), Failure> {
        let (dir, is_new) = where_to(place, matches!(asked, AskedBy::Wire(_)), self.dir.as_deref())?;
        if self.running {
            return Err(Failure::new("BUSY", EXIT_FAILED, "a backup is being made already; wait until it has ended"));
        }
        let (source, sender, bell) = (source()?, self.sender.clone(), self.bell.clone());
        let run = move || {
            let result = if is_new { write_new(source, &dir) } else { write(source, &dir) };
            // Fails only when the loop is gone, and with it who asked.
            let _ = sender.send(result);
            if let Some(handle) = bell.get() {
                handle.wake();
            }
        };
        thread::Builder::new().name("backup".to_owned()).spawn(run).map_err(|e| Failure::failed(format!("no thread for a backup: {e}")))?;
        (self.running, self.asked) = (true, Some(asked));
        Ok(())
    }

    /// Whom to tell that the backup has ended, and how.
    pub(super) fn ended(&mut self) -> Option<(AskedBy, String)> {
        let result = self.results.try_recv().ok()?;
        self.running = false;
        let line = match result {
            Ok(value) => json!({ "ok": value }),
            Err(failure) => json!({ "error": failure }),
        };
        self.asked.take().map(|asked| (asked, line.to_string()))
    }

    /// The core has ended, and with it all its sessions: the next one does not know who asked. The log has what becomes of the backup.
    pub(super) fn core_ended(&mut self) {
        self.asked.take_if(|asked| matches!(asked, AskedBy::Wire(_)));
    }
}

/// The directory of a backup, and whether that must be new. `all`: where those are that have names.
fn where_to(place: BackupPlace, over_network: bool, all: Option<&Path>) -> Result<(PathBuf, bool), Failure> {
    match (place, all) {
        (BackupPlace::Dir(_), _) if over_network => {
            Err(Failure::usage("over the network a backup has a plain name, and no place on the server's host"))
        }
        (BackupPlace::Dir(dir), _) if !Path::new(dir.as_os()).is_absolute() => {
            Err(Failure::usage(format!("{dir}: name the directory from the root on; the server has another working directory")))
        }
        (BackupPlace::Dir(dir), _) => Ok((PathBuf::from(dir.as_os()), false)),
        (BackupPlace::Named(name), Some(all)) => Ok((all.join(checked(&name)?), true)),
        (BackupPlace::Named(_), None) => {
            let what = "the server has no directory for backups that have names (cisternd --backups DIR): ask on its host, where its control socket is";
            Err(Failure::new("NO_BACKUPS", EXIT_FAILED, what))
        }
    }
}

/// A plain name: of one thing in a directory, which no shell and no log misreads.
fn checked(name: &str) -> Result<&str, Failure> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if (1..=NAME_MAX).contains(&name.len()) && name.chars().all(plain) && !name.starts_with(['.', '-']) {
        return Ok(name);
    }
    Err(Failure::usage(format!(
        "{name:?}: over the network a backup has a plain name, of 1 to {NAME_MAX} letters, digits, '-', '_' and '.'"
    )))
}

/// Writes one that has a name, into a directory that it makes.
fn write_new(source: BackupSource, dir: &Path) -> Result<Value, Failure> {
    let (all, failed) = (dir.parent().unwrap_or(dir), |e: io::Error| Failure::failed(format!("{}: {e}", dir.display())));
    if fs::read_dir(all).map_err(failed)?.take(NAMED_MAX).count() == NAMED_MAX {
        let what = format!("{}: {NAMED_MAX} backups are there already; remove some, on the server's host", all.display());
        return Err(Failure::new("ENOSPC", EXIT_FAILED, what));
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {}
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            let what =
                format!("{}: there is one of this name, or what was left of one when the server ended; none is overwritten", dir.display());
            return Err(Failure::new("EEXIST", EXIT_DAMAGED, what));
        }
        Err(e) => return Err(failed(e)),
    }
    // What failed has removed what it wrote; if not all of it, that stays, to be looked at.
    write(source, dir).inspect_err(|_| drop(fs::remove_dir(dir)))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_nowhere_else() {
        for name in ["monday", "2026-11-28T10.00", "a", &"x".repeat(64)] {
            assert_eq!(checked(name).unwrap(), name);
        }
        for name in ["", ".", "..", ".hidden", "-rf", "a/b", "/etc", "a b", "a\n", "\u{e9}", &"x".repeat(65)] {
            assert!(checked(name).is_err(), "{name:?}");
        }
    }

    #[test]
    fn whoever_asks_over_the_network_chooses_a_name_and_no_place() {
        let dir = |path: &str| BackupPlace::Dir(Path::new(path).as_os_str().into());
        let named = |name: &str| BackupPlace::Named(name.to_owned());
        let all = Path::new("/all");
        let to = |path: &str, is_new| Ok((PathBuf::from(path), is_new));
        assert_eq!(where_to(dir("/b"), false, None).map_err(|e| e.code), to("/b", false));
        assert_eq!(where_to(dir("b"), false, Some(all)).map_err(|e| e.exit), Err(2));
        for over_network in [false, true] {
            assert_eq!(where_to(named("b"), over_network, Some(all)).map_err(|e| e.code), to("/all/b", true));
            assert_eq!(where_to(named("../b"), over_network, Some(all)).map_err(|e| e.exit), Err(2));
            assert_eq!(where_to(named("b"), over_network, None).unwrap_err().code, "NO_BACKUPS");
        }
        for path in ["/b", "/all/b", "b"] {
            assert_eq!(where_to(dir(path), true, Some(all)).map_err(|e| e.exit), Err(2), "{path}");
        }
    }

    #[test]
    fn a_directory_that_is_none_is_told_at_the_start() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        fs::write(&file, "").unwrap();
        for wrong in [&file, &dir.path().join("missing")] {
            assert!(Backups::new(Bell::default(), Some(wrong)).unwrap_err().message.starts_with("--backups "));
        }
        assert!(Backups::new(Bell::default(), Some(dir.path())).unwrap().dir.is_some_and(|dir| dir.is_absolute()));
    }
}
