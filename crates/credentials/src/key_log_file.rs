//! A key log that grows: whoever has it reads everything that was sealed.

use crate::error::CredentialError;
use cistern_capture::private::{self, Others};
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// A key log, open for appending. Several processes may have one file: each line is written at once.
#[derive(Debug)]
pub struct KeyLogFile {
    path: PathBuf,
    file: File,
}

impl KeyLogFile {
    /// Opens one, and makes it if it is missing: of this user alone, with one name and no link.
    ///
    /// # Errors
    /// It is another's, or others can read or write it, or it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, CredentialError> {
        let file = private::append(path, Others::Nothing).map_err(|e| CredentialError::new(path, e))?;
        Ok(Self { path: path.to_owned(), file })
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line, given without its end, and does not sync it.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&mut self, line: &str) -> Result<(), CredentialError> {
        let line = Zeroizing::new(format!("{line}\n"));
        self.file.write_all(line.as_bytes()).map_err(|e| CredentialError::new(&self.path, e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn lines_of_several_programs_follow_each_other_in_a_file_of_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("keys");
        KeyLogFile::open(&path).unwrap().write("one").unwrap();
        KeyLogFile::open(&path).unwrap().write("two").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "one\ntwo\n");
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn nobody_gets_the_keys_by_a_file_that_he_laid_there() {
        let dir = tempfile::tempdir().unwrap();
        let (path, other) = (dir.path().join("keys"), dir.path().join("other"));
        fs::write(&other, "").unwrap();
        symlink(&other, &path).unwrap();
        assert!(KeyLogFile::open(&path).unwrap_err().to_string().contains("symbolic link"));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(KeyLogFile::open(&path).unwrap_err().to_string().contains("chmod"));
    }
}
