//! `revoked.log`: keys that are good no more, beside the server's key, where no restore of a store takes them back.
//!
//! Decides: that a key counts once its line is durable; that a line which a crash cut off is cut away.

use crate::error::{CredentialError, Problem};
use cistern_capture::private::{self, Others};
use cistern_seal::PublicKey;
use cistern_trust::Revocations;
use std::cmp::Ordering;
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

/// Longest copy of a log that is read, in bytes: some 800,000 keys.
const LEN_MAX: usize = 64 << 20;

/// The log and what it says.
#[derive(Debug)]
pub struct RevokedFile {
    path: PathBuf,
    file: File,
    /// Bytes of whole, durable lines.
    len: u64,
    keys: Revocations,
}

impl RevokedFile {
    /// Opens the log, and makes it if it is missing.
    ///
    /// # Errors
    /// It is not to be believed, damaged, or cannot be read or written.
    pub fn open(path: &Path) -> Result<Self, CredentialError> {
        let failed = |e: io::Error| CredentialError::new(path, e);
        let mut file = private::append(path, Others::Read).map_err(failed)?;
        let mut text = String::new();
        file.read_to_string(&mut text).map_err(|e| match e.kind() {
            io::ErrorKind::InvalidData => CredentialError::new(path, Problem::NoText),
            _ => failed(e),
        })?;
        let (keys, whole) = Revocations::read_log(&text).map_err(|e| CredentialError::new(path, e))?;
        let mut log = Self { path: path.to_owned(), file, len: whole as u64, keys };
        log.cut().and_then(|()| log.file.sync_all()).map_err(failed)?;
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        private::sync_directory(above).map_err(failed)?;
        Ok(log)
    }

    /// What a copy of a log says, which is left as it is.
    ///
    /// # Errors
    /// As [`Self::open`]; and if it is not there.
    pub fn read_copy(path: &Path) -> Result<Revocations, CredentialError> {
        let bytes = private::read(path, Others::Read, LEN_MAX).map_err(|e| CredentialError::new(path, e))?;
        let text = String::from_utf8(bytes).map_err(|_| CredentialError::new(path, Problem::NoText))?;
        Revocations::read_log(&text).map(|(keys, _)| keys).map_err(|e| CredentialError::new(path, e))
    }

    /// All keys of the log.
    #[must_use]
    pub const fn keys(&self) -> &Revocations {
        &self.keys
    }

    /// Adds a key, durably. Whether it is new.
    ///
    /// # Errors
    /// It cannot be written; then it does not count.
    pub fn add(&mut self, key: PublicKey, at_s: u64) -> Result<bool, CredentialError> {
        let mut more = Revocations::default();
        more.insert(key, at_s);
        self.unite(&more).map(|new| new > 0)
    }

    /// Adds all keys that it does not have, durably; gives how many they were.
    ///
    /// # Errors
    /// They cannot be written; then none of them counts.
    pub fn unite(&mut self, more: &Revocations) -> Result<usize, CredentialError> {
        let new: Vec<_> = more.iter().filter(|(key, _)| !self.keys.contains(key)).collect();
        let lines: String = new.iter().map(|(key, at_s)| Revocations::log_line(key, *at_s)).collect();
        if lines.is_empty() {
            return Ok(0);
        }
        // What an append that failed has left is cut away first.
        let written = self.cut().and_then(|()| self.file.write_all(lines.as_bytes())).and_then(|()| self.file.sync_all());
        written.map_err(|e| CredentialError::new(&self.path, e))?;
        self.len += lines.len() as u64;
        for (key, at_s) in &new {
            self.keys.insert(**key, *at_s);
        }
        Ok(new.len())
    }

    fn cut(&mut self) -> io::Result<()> {
        match self.file.metadata()?.len().cmp(&self.len) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => self.file.set_len(self.len),
            Ordering::Less => Err(io::Error::other("somebody has shortened it while it was open; put a copy of it back, and restart")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn key(n: u8) -> PublicKey {
        PublicKey::from_bytes([n; 32])
    }

    #[test]
    fn what_was_added_is_there_after_a_restart_wherever_the_next_line_was_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked.log");
        let mut log = RevokedFile::open(&path).unwrap();
        assert!(log.add(key(1), 10).unwrap() && !log.add(key(1), 11).unwrap());
        let first = fs::read(&path).unwrap();
        assert!(log.add(key(2), 20).unwrap());
        let both = fs::read(&path).unwrap();
        for end in first.len()..both.len() {
            fs::write(&path, &both[..end]).unwrap();
            let mut log = RevokedFile::open(&path).unwrap();
            assert_eq!((log.keys().contains(&key(1)), log.keys().contains(&key(2))), (true, false), "{end}");
            log.add(key(3), 30).unwrap();
            assert_eq!(RevokedFile::open(&path).unwrap().keys().len(), 2);
        }
    }

    #[test]
    fn a_union_writes_only_what_is_new() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = RevokedFile::open(&dir.path().join("revoked.log")).unwrap();
        log.add(key(1), 10).unwrap();
        let mut store = Revocations::default();
        store.insert(key(1), 5);
        store.insert(key(2), 20);
        assert_eq!((log.unite(&store).unwrap(), log.unite(&store).unwrap(), log.keys().len()), (1, 0, 2));
        assert_eq!(RevokedFile::read_copy(&dir.path().join("revoked.log")).unwrap(), *log.keys());
        assert!(RevokedFile::read_copy(&dir.path().join("other.log")).is_err() && !dir.path().join("other.log").exists());
    }

    #[test]
    fn a_damaged_log_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked.log");
        drop(RevokedFile::open(&path).unwrap());
        for damage in [&b"10 nobody\n"[..], b"\xff\n"] {
            fs::write(&path, damage).unwrap();
            let told = RevokedFile::open(&path).unwrap_err().to_string();
            assert!(told.starts_with(path.to_str().unwrap()), "{told}");
            assert_eq!(RevokedFile::read_copy(&path).unwrap_err().to_string(), told);
            assert_eq!(fs::read(&path).unwrap(), damage);
        }
    }

    #[test]
    fn a_failed_append_counts_for_nothing_and_the_next_one_stands_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("revoked.log");
        let mut log = RevokedFile::open(&path).unwrap();
        log.add(key(1), 10).unwrap();
        // As an append that stopped half way leaves it.
        File::options().append(true).open(&path).unwrap().write_all(b"20 cistern-ag").unwrap();
        log.add(key(2), 20).unwrap();
        assert_eq!(RevokedFile::open(&path).unwrap().keys(), log.keys());
    }
}
