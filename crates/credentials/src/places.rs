//! Where a program finds the credentials that it acts with.
//!
//! Decides: the order. A file that is named, else the credentials of a systemd service, the user's own, the host's. The first key that is
//! there counts; one that cannot be used is an error, and never a reason to take the next: a program would act as somebody else.

use crate::HOST_KEY;
use crate::error::{CredentialError, Problem};
use crate::key_file::read_key;
use cistern_capture::private::Others;
use cistern_seal::SecretKey;
use cistern_seal::key::Role;
use rustix::process::geteuid;
use std::env;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Credentials of the host, for root and for whoever has none of his own.
const SYSTEM: &str = "/etc/cistern";
/// Before the names of files in a service's credentials directory, which has those of other programs, too.
const SERVICE_PREFIX: &str = "cistern.";

/// A place where credentials may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file with a key.
    Key(PathBuf),
    /// `$CREDENTIALS_DIRECTORY`, with `cistern.host.key`.
    Service(PathBuf),
    /// A directory with `host.key`.
    Directory(PathBuf),
}

impl Place {
    /// Where its key is.
    #[must_use]
    pub fn key_path(&self) -> PathBuf {
        match self {
            Self::Key(path) => path.clone(),
            Self::Service(dir) => dir.join(format!("{SERVICE_PREFIX}{HOST_KEY}")),
            Self::Directory(dir) => dir.join(HOST_KEY),
        }
    }

    const fn others(&self) -> Others {
        match self {
            Self::Service(_) => Others::ServiceReads,
            Self::Key(_) | Self::Directory(_) => Others::Nothing,
        }
    }
}

/// A key, and where it was.
#[derive(Debug)]
pub struct Found {
    /// The key.
    pub key: SecretKey,
    /// Its place.
    pub place: Place,
}

/// The places, in their order.
#[derive(Clone, Debug, Default)]
pub struct Places {
    places: Vec<Place>,
    own: Option<PathBuf>,
}

impl Places {
    /// Those of this process: the file that is named, else those that its environment and its user have.
    #[must_use]
    pub fn of_this_process(named: Option<&Path>) -> Self {
        // Relative paths are to be ignored, by the XDG Base Directory Specification.
        let path = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let config = path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config"))).map(|dir| dir.join("cistern"));
        Self::new(named, path("CREDENTIALS_DIRECTORY"), config, Path::new(SYSTEM), geteuid().is_root())
    }

    fn new(named: Option<&Path>, service: Option<PathBuf>, config: Option<PathBuf>, system: &Path, root: bool) -> Self {
        let own = if root { Some(system.to_owned()) } else { config.clone() };
        if let Some(named) = named {
            return Self { places: vec![Place::Key(named.to_owned())], own };
        }
        let directories = config.into_iter().chain([system.to_owned()]).map(Place::Directory);
        Self { places: service.map(Place::Service).into_iter().chain(directories).collect(), own }
    }

    /// The first key that is there; `None`: there is none.
    ///
    /// # Errors
    /// It cannot be used, or the one that is named is not there.
    pub fn find(&self) -> Result<Option<Found>, CredentialError> {
        for place in &self.places {
            match read_key(&place.key_path(), Role::Agent, place.others()) {
                Ok(key) => return Ok(Some(Found { key, place: place.clone() })),
                Err(e) if e.is_missing() && !matches!(place, Place::Key(_)) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(None)
    }

    /// Where this user's credentials are made: `/etc/cistern` for root, the user's configuration directory for everybody else; `None`: the
    /// environment names none.
    #[must_use]
    pub fn own(&self) -> Option<&Path> {
        self.own.as_deref()
    }
}

/// Makes a directory for credentials for this user alone, if it is missing; those above it as usual. That of the host is open to all, for it
/// has the host's settings, too; what is secret in it is closed.
///
/// # Errors
/// It cannot be made, or is none.
pub fn make_directory(dir: &Path) -> Result<(), CredentialError> {
    let mode = if dir == Path::new(SYSTEM) { 0o755 } else { 0o700 };
    let above = dir.parent().filter(|above| !above.as_os_str().is_empty()).map_or(Ok(()), fs::create_dir_all);
    match above.and_then(|()| DirBuilder::new().mode(mode).create(dir)) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
            Err(CredentialError::new(dir, Problem::Other("it is no directory; name another".to_owned())))
        }
        other => other.map_err(|e| CredentialError::new(dir, e)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::make_key;
    use std::os::unix::fs::PermissionsExt;

    fn make(path: &Path, n: u8) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make_key(path, Role::Agent, [n; 32].into()).unwrap();
    }

    #[test]
    fn the_first_key_that_is_there_counts() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let places = Places::new(None, Some(at("service")), Some(at("config")), &at("etc"), false);
        let found = || places.find().unwrap().map(|found| found.key.expose()[0]);
        assert_eq!((found(), places.own()), (None, Some(&*at("config"))));
        make(&at("etc/host.key"), 1);
        assert_eq!(found(), Some(1));
        make(&at("config/host.key"), 2);
        assert_eq!(found(), Some(2));
        make(&at("service/cistern.host.key"), 3);
        assert_eq!(found(), Some(3));
        make(&at("named"), 4);
        let named = Places::new(Some(&at("named")), Some(at("service")), None, &at("etc"), true);
        assert_eq!((named.find().unwrap().unwrap().key.expose()[0], named.own()), (4, Some(&*at("etc"))));
    }

    #[test]
    fn a_key_that_cannot_be_used_is_no_reason_to_take_another() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let places = Places::new(None, None, Some(at("config")), &at("etc"), false);
        make(&at("etc/host.key"), 1);
        make(&at("config/host.key"), 2);
        fs::set_permissions(at("config/host.key"), fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(places.find().unwrap_err().path, at("config/host.key"));
        assert!(Places::new(Some(&at("none")), None, Some(at("etc")), &at("etc"), false).find().unwrap_err().is_missing());
    }

    #[test]
    fn a_directory_is_made_for_this_user_alone() {
        let dir = tempfile::tempdir().unwrap();
        let made = dir.path().join("a/b");
        make_directory(&made).unwrap();
        make_directory(&made).unwrap();
        assert_eq!(fs::metadata(&made).unwrap().permissions().mode() & 0o777, 0o700);
        fs::write(made.join("file"), "").unwrap();
        assert!(make_directory(&made.join("file")).unwrap_err().to_string().contains("no directory"));
    }
}
