//! Where a program finds the credentials that it acts with.
//!
//! Decides: the order. A file that is named, else the credentials of a systemd service, the user's own, the host's. The first key that is
//! there counts; one that cannot be used is an error, and never a reason to take the next: a program would act as somebody else.

use crate::cluster_file::{read_cluster, replace_cluster, write_cluster};
use crate::error::{CredentialError, Problem};
use crate::key_file::{make_key, read_key};
use crate::{CLUSTER_FILE, HOST_KEY};
use cistern_capture::private::{self, Others, sync_directory};
use cistern_seal::SecretKey;
use cistern_seal::key::Role;
use cistern_trust::{Fingerprint, Offered, Pinned};
use rustix::process::geteuid;
use std::env;
use std::fs::{self, DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;
use zeroize::Zeroizing;

/// Credentials of the host, for root and for whoever has none of his own.
const SYSTEM: &str = "/etc/cistern";
/// Before the names of files in a service's credentials directory, which has those of other programs, too.
const SERVICE_PREFIX: &str = "cistern.";

/// How often, and how far apart, it is tried to be the only one that changes a cluster's file: longer than that takes anybody, and shorter
/// than what a process that calls this from its loop can miss.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_millis(10);

/// A place where credentials may be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// A file with a key, and beside it `cluster.toml`.
    Key(PathBuf),
    /// `$CREDENTIALS_DIRECTORY`, with `cistern.host.key` and `cistern.cluster.toml`.
    Service(PathBuf),
    /// A directory with `host.key` and `cluster.toml`.
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

    /// Where its next key is while it is not registered yet.
    #[must_use]
    pub fn next_key_path(&self) -> PathBuf {
        let mut next = self.key_path().into_os_string();
        next.push(".next");
        next.into()
    }

    /// Its next key; made from 32 bytes of the system's random source if there is none.
    ///
    /// # Errors
    /// Its file cannot be used or written.
    pub fn next_key(&self, random: Zeroizing<[u8; 32]>) -> Result<NextKey, CredentialError> {
        let path = self.next_key_path();
        match read_key(&path, Role::Agent, self.others()) {
            Ok(key) => Ok(NextKey { key, is_new: false }),
            Err(e) if e.is_missing() => make_key(&path, Role::Agent, random).map(|key| NextKey { key, is_new: true }),
            Err(e) => Err(e),
        }
    }

    /// Puts its next key, which a server has registered, in place of its key, durably: a crash leaves one of them, and either is good.
    ///
    /// # Errors
    /// It cannot be renamed.
    pub fn take_next_key(&self) -> Result<(), CredentialError> {
        let path = self.key_path();
        let above = path.parent().filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let taken = fs::rename(self.next_key_path(), &path).and_then(|()| sync_directory(above));
        taken.map_err(|e| CredentialError::new(&path, e))
    }

    /// Its key.
    ///
    /// # Errors
    /// It is missing ([`CredentialError::is_missing`]), or cannot be used.
    pub fn key(&self) -> Result<SecretKey, CredentialError> {
        read_key(&self.key_path(), Role::Agent, self.others())
    }

    /// Where its cluster is.
    #[must_use]
    pub fn cluster_path(&self) -> PathBuf {
        match self {
            Self::Key(path) => path.with_file_name(CLUSTER_FILE),
            Self::Service(dir) => dir.join(format!("{SERVICE_PREFIX}{CLUSTER_FILE}")),
            Self::Directory(dir) => dir.join(CLUSTER_FILE),
        }
    }

    /// The cluster that its key belongs to; `None`: it has not joined one yet.
    ///
    /// # Errors
    /// The file cannot be used.
    pub fn cluster(&self) -> Result<Option<Pinned>, CredentialError> {
        match read_cluster(&self.cluster_path()) {
            Err(e) if e.is_missing() => Ok(None),
            other => other.map(Some),
        }
    }

    /// Trusts a cluster from now on, or takes a newer roster of the one that is trusted.
    ///
    /// # Errors
    /// Another cluster is trusted; the roster is not to be taken; the file cannot be read or written, or another process is about to.
    pub fn trust(&self, pinned: &Pinned) -> Result<Offered, CredentialError> {
        let path = self.cluster_path();
        let _lock = alone(&path)?;
        let Some(mut known) = self.cluster()? else { return write_cluster(&path, pinned).map(|()| Offered::Taken) };
        if known.cluster() != pinned.cluster() {
            let what = format!(
                "it trusts another cluster ({}) than that of the grant ({}); to change over, `cistern trust --replace`",
                Fingerprint::of(&known.cluster().to_string()),
                Fingerprint::of(&pinned.cluster().to_string())
            );
            return Err(CredentialError::new(&path, Problem::Other(what)));
        }
        let offered = known.offer(pinned.signed().as_bytes()).map_err(|e| CredentialError::new(&path, e))?;
        if offered == Offered::Taken {
            replace_cluster(&path, &known)?;
        }
        Ok(offered)
    }

    /// Trusts another cluster from now on, or this one with this roster, whatever was trusted before.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub fn replace(&self, pinned: &Pinned) -> Result<Offered, CredentialError> {
        let known = self.cluster()?;
        if known.is_some_and(|known| known.cluster() == pinned.cluster()) {
            return self.trust(pinned);
        }
        replace_cluster(&self.cluster_path(), pinned).map(|()| Offered::Taken)
    }

    const fn others(&self) -> Others {
        match self {
            Self::Service(_) => Others::ServiceReads,
            Self::Key(_) | Self::Directory(_) => Others::Nothing,
        }
    }
}

/// Keeps other processes from changing what they read before: of two rosters the older one could stay. The lock is on a file that only its
/// owner can open, for anybody could keep one on the directory.
fn alone(cluster: &Path) -> Result<Option<File>, CredentialError> {
    let opened = private::open(&cluster.with_extension("lock"));
    // Where it cannot be made, `cluster.toml` can neither, and says so.
    let Ok(file) = opened else { return Ok(None) };
    for _ in 0..TRIES {
        match file.try_lock() {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(TryLockError::WouldBlock) => thread::sleep(PAUSE),
        }
    }
    Err(CredentialError::new(cluster, Problem::Other(String::from("another process is changing it: try again"))))
}

/// A key that is to follow another one.
#[derive(Debug)]
pub struct NextKey {
    /// The key.
    pub key: SecretKey,
    /// It was made now. Else a rotation was interrupted, and a server may know it already.
    pub is_new: bool,
}

/// A key, and where it was.
#[derive(Debug)]
pub struct Found {
    /// The key.
    pub key: SecretKey,
    /// Its place, which may have its cluster.
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
        if let Some(only) = path("CISTERN_CREDENTIALS") {
            return Self::only(named, only);
        }
        let config = path("XDG_CONFIG_HOME").or_else(|| Some(path("HOME")?.join(".config"))).map(|dir| dir.join("cistern"));
        Self::new(named, path("CREDENTIALS_DIRECTORY"), config, Path::new(SYSTEM), geteuid().is_root())
    }

    /// One directory, wherever others may have keys.
    fn only(named: Option<&Path>, dir: PathBuf) -> Self {
        let place = named.map_or_else(|| Place::Directory(dir.clone()), |named| Place::Key(named.to_owned()));
        Self { places: vec![place], own: Some(dir) }
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
            match place.key() {
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
    use crate::cluster_file::tests::pinned;
    use std::os::unix::fs::PermissionsExt;

    fn make(path: &Path, n: u8) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        make_key(path, Role::Agent, [n; 32].into()).unwrap();
    }

    #[test]
    fn the_directory_that_is_named_is_the_only_one_and_what_is_none_has_no_key() {
        let dir = tempfile::tempdir().unwrap();
        make(&dir.path().join(HOST_KEY), 1);
        let places = Places::only(None, dir.path().to_owned());
        assert_eq!(places.own(), Some(dir.path()));
        assert!(places.find().unwrap().is_some());
        assert!(Places::only(None, "/dev/null".into()).find().unwrap().is_none());
        assert!(Places::only(Some(&dir.path().join("other")), dir.path().to_owned()).find().is_err());
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
    fn the_cluster_stands_beside_the_key() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        make(&at("config/host.key"), 2);
        let found = Places::new(None, None, Some(at("config")), &at("etc"), false).find().unwrap().unwrap();
        assert_eq!(found.place.cluster().unwrap(), None);
        write_cluster(&at("config/cluster.toml"), &pinned(1)).unwrap();
        assert_eq!(found.place.cluster().unwrap(), Some(pinned(1)));
        assert_eq!(Place::Key(at("x/a.key")).cluster_path(), at("x/cluster.toml"));
        assert_eq!(Place::Service(at("s")).cluster_path(), at("s/cistern.cluster.toml"));
    }

    #[test]
    fn a_place_trusts_one_cluster_and_its_newest_roster() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().to_owned());
        assert_eq!(place.trust(&pinned(2)).unwrap(), Offered::Taken);
        assert_eq!((place.trust(&pinned(2)).unwrap(), place.trust(&pinned(1)).unwrap()), (Offered::Known, Offered::Older));
        assert_eq!(place.cluster().unwrap(), Some(pinned(2)));
        assert_eq!(place.trust(&pinned(3)).unwrap(), Offered::Taken);
        let secret = cistern_trust::ClusterSecret::from_seed([9; 32]);
        let other = Pinned::new(secret.public(), crate::cluster_file::tests::roster(9).sign(&secret).unwrap().as_bytes()).unwrap();
        assert!(place.trust(&other).unwrap_err().to_string().contains("another cluster"));
        assert_eq!(place.cluster().unwrap(), Some(pinned(3)));
        assert_eq!(place.replace(&pinned(2)).unwrap(), Offered::Older, "of the same cluster nothing older replaces anything");
        assert_eq!((place.replace(&other).unwrap(), place.cluster().unwrap()), (Offered::Taken, Some(other)));
    }

    #[test]
    fn of_rosters_taken_at_once_the_newest_stays() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().to_owned());
        thread::scope(|scope| {
            for first in 1..=4 {
                let place = &place;
                scope.spawn(move || {
                    for version in (first..=60).step_by(4) {
                        // Told to try again, as the others' fsyncs may take long.
                        while place.trust(&pinned(version)).is_err() {}
                        assert!(place.cluster().unwrap().unwrap().roster().version >= version);
                    }
                });
            }
        });
        assert_eq!(place.cluster().unwrap(), Some(pinned(60)));
        let lock = fs::metadata(dir.path().join("cluster.lock")).unwrap();
        assert_eq!(lock.permissions().mode() & 0o777, 0o600, "nobody else can open it to keep it locked");
    }

    #[test]
    fn the_next_key_stays_until_it_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().to_owned());
        make(&place.key_path(), 1);
        let next = |n: u8| place.next_key([n; 32].into()).map(|next| (next.key.expose()[0], next.is_new)).unwrap();
        assert_eq!((next(2), next(3)), ((2, true), (2, false)), "what was begun is gone on from");
        assert_eq!(place.key().unwrap().expose()[0], 1);
        place.take_next_key().unwrap();
        assert_eq!(place.key().unwrap().expose()[0], 2);
        assert!(place.take_next_key().is_err() && place.key().unwrap().expose()[0] == 2);
        assert_eq!(next(4), (4, true));
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
