//! The client: one method per thing that an application does.

use crate::builder::Builder;
use crate::call::{Call, Pending, Progress};
use crate::error::{Error, Subject};
use crate::hub::Inner;
use crate::identity::AgentIdentity;
use crate::metadata::FileId;
use crate::named_lease::ttl_ms;
use crate::op::{Conditions, Op, kinds};
use crate::status::LeaseView;
use crate::update::Update;
use crate::watcher::Watcher;
use bytes::Bytes;
use cistern_agent::api::{AttrChange, Command, Target, Wait};
use cistern_link::Instant;
use cistern_seal::LeaseSecret;
use cistern_wire::{Mode, Realm, RenameRule, XattrRule};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// An agent and its connection to the server; clones share it. When the last clone, guard, watcher and call is gone, everything is given
/// back and the session closed.
///
/// Methods that give an [`Op`] do nothing yet: `.wait()` blocks, `.await` works under any runtime, options come before. Paths begin at the
/// root of the server's tree; `.`, `..` and symbolic links are resolved as POSIX does.
#[derive(Clone)]
pub struct Client {
    pub(crate) inner: Arc<Inner>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("servers", &self.inner.servers).finish_non_exhaustive()
    }
}

pub(crate) fn path_bytes(path: impl AsRef<Path>) -> Bytes {
    Bytes::copy_from_slice(path.as_ref().as_os_str().as_bytes())
}

/// Permission bits of files that are made, unless said otherwise.
pub(crate) const FILE_MODE: u16 = 0o644;
const DIR_MODE: u16 = 0o755;

impl Client {
    /// Settings for a new client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    fn op<K>(&self, subject: Subject, command: Command, kind: K) -> Op<K> {
        Op { inner: Arc::clone(&self.inner), subject, before: None, command, conditions: Conditions::default(), kind }
    }

    fn on_path<K>(&self, path: impl AsRef<Path>, kind: K, command: impl FnOnce(Bytes) -> Command) -> Op<K> {
        let path = path_bytes(path);
        self.op(Subject::path(&path), command(path), kind)
    }
}

/// Looking. An answer from cache is there at once, and sends no message.
impl Client {
    /// Attributes of what a path names; symbolic links are followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Op<kinds::Stat> {
        self.on_path(path, kinds::Stat, |path| Command::Stat { target: Target::Path(path), follow: true })
    }

    /// Attributes of what a path names; a symbolic link at its end is not followed.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Op<kinds::Stat> {
        self.on_path(path, kinds::Stat, |path| Command::Stat { target: Target::Path(path), follow: false })
    }

    /// Opens what a path names: later operations on it need no path, and go on to mean it when it is renamed.
    pub fn open(&self, path: impl AsRef<Path>) -> Op<kinds::Open> {
        self.on_path(path, kinds::Open, |path| Command::Stat { target: Target::Path(path), follow: true })
    }

    /// A file's contents.
    pub fn read(&self, path: impl AsRef<Path>) -> Op<kinds::Read> {
        self.on_path(path, kinds::Read, |path| Command::Read { target: Target::Path(path), offset: 0, length: None })
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Op<kinds::ReadLink> {
        self.on_path(path, kinds::ReadLink, |path| Command::ReadLink { target: Target::Path(path) })
    }

    /// The entries of a directory.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Op<kinds::ReadDir> {
        self.on_path(path, kinds::ReadDir, |path| Command::List { target: Target::Path(path), detail: false })
    }

    /// The value of an extended attribute; symbolic links are followed.
    pub fn get_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Op<kinds::GetXattr> {
        let name = Bytes::copy_from_slice(name.as_ref().as_bytes());
        self.on_path(path, kinds::GetXattr, |path| Command::GetXattr { target: Target::Path(path), follow: true, name })
    }

    /// Names of all extended attributes; symbolic links are followed.
    pub fn list_xattr(&self, path: impl AsRef<Path>) -> Op<kinds::ListXattr> {
        self.on_path(path, kinds::ListXattr, |path| Command::ListXattr { target: Target::Path(path), follow: true })
    }
}

/// Changing. Every change takes conditions: [`Op::guarded_by`], [`Op::if_version`], [`Op::if_unchanged`].
impl Client {
    /// Replaces a file's contents, whole and at once; makes the file if it is missing. At most 1 MiB.
    pub fn write(&self, path: impl AsRef<Path>, data: impl Into<Bytes>) -> Op<kinds::Write> {
        let (data, owner) = (data.into(), self.inner.owning(FILE_MODE));
        self.on_path(path, kinds::Write, |path| Command::Put { path, data, owner })
    }

    /// Makes an empty file if there is none.
    pub fn create(&self, path: impl AsRef<Path>) -> Op<kinds::Create> {
        let owner = self.inner.owning(FILE_MODE);
        self.on_path(path, kinds::Create, |path| Command::Create { path, exclusive: false, ephemeral: false, owner })
    }

    /// Makes a file, which must not exist.
    pub fn create_new(&self, path: impl AsRef<Path>) -> Op<kinds::CreateNew> {
        let owner = self.inner.owning(FILE_MODE);
        self.on_path(path, kinds::CreateNew, |path| Command::Create { path, exclusive: true, ephemeral: false, owner })
    }

    /// Makes a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> Op<kinds::CreateDir> {
        let owner = self.inner.owning(DIR_MODE);
        self.on_path(path, kinds::CreateDir, |path| Command::Mkdir { path, owner })
    }

    /// Makes a symbolic link at `path` that points to `target`.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> Op<kinds::Symlink> {
        let (points_to, owner) = (path_bytes(target), self.inner.owning(0o777));
        self.on_path(path, kinds::Symlink, |path| Command::Symlink { path, points_to, owner })
    }

    /// Gives the file `original` one more name.
    pub fn hard_link(&self, original: impl AsRef<Path>, path: impl AsRef<Path>) -> Op<kinds::HardLink> {
        let existing = path_bytes(original);
        self.on_path(path, kinds::HardLink, |path| Command::Link { existing, path })
    }

    /// Makes a directory that begins a realm: what is made below belongs to it, and never leaves it.
    pub fn create_realm(&self, path: impl AsRef<Path>) -> Op<kinds::CreateDir> {
        let owner = self.inner.owning(DIR_MODE);
        self.on_path(path, kinds::CreateDir, |path| Command::MakeRealm { path, owner })
    }

    /// Sets quotas of the realm that a directory begins, which are named by the methods of the operation.
    pub fn set_quota(&self, path: impl AsRef<Path>) -> Op<kinds::SetQuota> {
        self.on_path(path, kinds::SetQuota, |path| Command::SetQuota { target: Target::Path(path), objects: None, bytes: None })
    }

    /// Removes a name of a file or symbolic link.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Op<kinds::Remove> {
        self.on_path(path, kinds::Remove, |path| Command::Unlink { path, force: false })
    }

    /// Removes an empty directory.
    pub fn remove_dir(&self, path: impl AsRef<Path>) -> Op<kinds::Remove> {
        self.on_path(path, kinds::Remove, |path| Command::Rmdir { path })
    }

    /// Moves a name; what the new one named before is replaced.
    pub fn rename(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Op<kinds::Rename> {
        let to = path_bytes(to);
        self.on_path(from, kinds::Rename, |from| Command::Rename { from, to, rule: RenameRule::Replace, force: false })
    }

    /// Sets attributes, which are named by the methods of the operation; symbolic links are followed.
    pub fn set_metadata(&self, path: impl AsRef<Path>) -> Op<kinds::SetMetadata> {
        self.on_path(path, kinds::SetMetadata, |path| set_attr(Target::Path(path)))
    }

    /// Sets an extended attribute (name of 1 to 255 bytes, value of at most 64 KiB); symbolic links are followed.
    pub fn set_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>, value: impl Into<Bytes>) -> Op<kinds::SetXattr> {
        let (name, value) = (Bytes::copy_from_slice(name.as_ref().as_bytes()), value.into());
        let rule = XattrRule::Any;
        self.on_path(path, kinds::SetXattr, |path| Command::SetXattr { target: Target::Path(path), follow: true, name, value, rule })
    }

    /// Removes an extended attribute; symbolic links are followed.
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Op<kinds::RemoveXattr> {
        let name = Bytes::copy_from_slice(name.as_ref().as_bytes());
        let command = |path| Command::RemoveXattr { target: Target::Path(path), follow: true, name };
        self.on_path(path, kinds::RemoveXattr, command)
    }

    /// Several changes that are made as one; see [`Op::add`].
    pub fn batch(&self) -> Op<kinds::Batch> {
        self.op(Subject::Named("the batch"), Command::Batch { items: Vec::new() }, kinds::Batch(Vec::new()))
    }

    /// Reads a file, computes new contents from the old, and writes them unless the file was changed meanwhile: then it begins again. A file
    /// that is missing is empty, and is made. Brings the new contents.
    pub fn update<F: FnMut(&[u8]) -> Bytes>(&self, path: impl AsRef<Path>, compute: F) -> Update<F> {
        Update::new(self.clone(), path.as_ref().to_owned(), compute)
    }
}

/// Locks and watches.
impl Client {
    /// An advisory lock on what a path names.
    pub fn lock(&self, path: impl AsRef<Path>) -> Op<kinds::Lock> {
        self.on_path(path, kinds::Lock, |path| lock(Target::Path(path)))
    }

    /// Who holds and who waits for advisory locks, everywhere, with a path of each file.
    pub fn locks(&self) -> Op<kinds::ListLocks> {
        self.op(Subject::Named("locks"), Command::ListLocks { target: None }, kinds::ListLocks)
    }

    /// All realms, with their quotas and use.
    pub fn realms(&self) -> Op<kinds::ListRealms> {
        self.op(Subject::Named("realms"), Command::ListRealms { realm: None }, kinds::ListRealms)
    }

    /// A realm by its number ([`Metadata::realm`](crate::Metadata::realm)); one, or a failure.
    pub fn realm(&self, number: u32) -> Op<kinds::ListRealms> {
        self.op(Subject::Named("realms"), Command::ListRealms { realm: Some(Realm(number)) }, kinds::ListRealms)
    }

    /// An operator's line for the server, in its control protocol; brings what the server answers. Only a sealed session whose key is an
    /// operator's may: [`NotPermitted`](crate::ErrorKind::NotPermitted). Executed at most once:
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown) if the session is lost before the answer has come whole.
    pub fn admin(&self, line: impl Into<Bytes>) -> Op<kinds::Admin> {
        self.op(Subject::Named("operator's line"), Command::Admin { line: line.into() }, kinds::Admin)
    }

    /// Watches what a path names.
    pub fn watch(&self, path: impl AsRef<Path>) -> Op<kinds::Watch> {
        self.on_path(path, kinds::Watch, |path| Command::Stat { target: Target::Path(path), follow: true })
    }

    /// Watches nothing yet: for any number of files, by their ids.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher::new(Arc::clone(&self.inner))
    }
}

/// Named leases: a file with a time to live of its own, which outlives the client that made it. With it go the files that are attached to it.
/// It is revoked by removing its file.
impl Client {
    /// Makes a named lease, which lasts `ttl` (500 ms to 30 days) from when this is started, and again from each [`keep_lease`](Self::keep_lease).
    /// Who has the secret, of [`lease_secret`](crate::lease_secret), can keep it and attach to it.
    pub fn create_lease(&self, path: impl AsRef<Path>, ttl: Duration, secret: &LeaseSecret) -> Op<kinds::CreateLease> {
        let (ttl_ms, secret, owner) = (ttl_ms(ttl), secret.clone(), self.inner.owning(FILE_MODE));
        self.on_path(path, kinds::CreateLease, |path| Command::MakeLease { path, ttl_ms, secret, owner })
    }

    /// Has a file or symbolic link with one name go with the lease of that path. In a [`batch`](Self::batch) that makes the file, nobody sees
    /// it without its lease.
    pub fn attach(&self, path: impl AsRef<Path>, lease: impl AsRef<Path>, secret: &LeaseSecret) -> Op<kinds::Attach> {
        let (lease, secret) = (path_bytes(lease), secret.clone());
        self.on_path(path, kinds::Attach, |path| Command::Attach { path, lease, secret })
    }

    /// Gives a named lease its whole time again; brings until when it lasts at least, by the clock of [`now`](Self::now). Fails with
    /// [`NotFound`](crate::ErrorKind::NotFound) when it has ended, which is for good.
    pub fn keep_lease(&self, lease: impl AsRef<Path>, secret: &LeaseSecret) -> Op<kinds::KeepLease> {
        let secret = secret.clone();
        self.on_path(lease, kinds::KeepLease, |path| Command::KeepLease { lease: Target::Path(path), secret })
    }

    /// All named leases, each as its own file.
    pub fn leases(&self) -> Op<kinds::ListLeases> {
        self.op(Subject::Named("named leases"), Command::ListLeases { lease: None }, kinds::ListLeases)
    }

    /// The files that go with a named lease, its own among them.
    pub fn lease_files(&self, lease: impl AsRef<Path>) -> Op<kinds::ListLeases> {
        self.on_path(lease, kinds::ListLeases, |path| Command::ListLeases { lease: Some(Target::Path(path)) })
    }
}

/// The client itself, and its server.
impl Client {
    /// What the server is and how it is.
    pub fn server_status(&self) -> Op<kinds::ServerStatus> {
        self.op(Subject::Named("status"), Command::ServerStatus, kinds::ServerStatus)
    }

    /// One round trip to the server's application: how long it took.
    pub fn ping(&self) -> Op<kinds::Ping> {
        self.op(Subject::Named("ping"), Command::Ping, kinds::Ping)
    }

    /// The lease as it stands.
    ///
    /// # Errors
    /// In a forked child, and when the agent has failed.
    pub fn lease(&self) -> Result<LeaseView, Error> {
        self.inner.with(|hub| LeaseView::of(&hub.agent.view(self.inner.clock.now())))
    }

    /// How many ICMP messages have said that the server's host, network or port is unreachable: above 0 before the first answer, most
    /// likely nothing listens on the port.
    #[must_use]
    pub fn refusals(&self) -> u64 {
        self.inner.stats.read().icmp_unreachable
    }

    /// Whether this agent's session has made an ephemeral file, as far as the agent has heard: also one whose making was given up before the
    /// answer came.
    ///
    /// # Errors
    /// In a forked child, and when the agent has failed.
    pub fn owns_ephemeral(&self, file: FileId) -> Result<bool, Error> {
        self.inner.with(|hub| hub.agent.owns_ephemeral(file.object()))
    }

    /// How many changes of this client were given up with an unknown outcome that its agent still waits for: they may be made yet. With 0,
    /// what is seen afterwards shows what became of all that was given up before.
    ///
    /// # Errors
    /// In a forked child, and when the agent has failed.
    pub fn unsettled(&self) -> Result<usize, Error> {
        self.inner.with(|hub| hub.agent.unsettled())
    }

    /// Who this agent is: its identity, and which start of it this is.
    #[must_use]
    pub fn identity(&self) -> AgentIdentity {
        self.inner.agent
    }

    /// This machine's lease clock, by which [`Guard::valid_until`](crate::Guard::valid_until) is meant.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Gives everything back and closes the session, for all clones: what still runs ends, and locks that are still held are lost. The call
    /// ends when the server has confirmed it, or after `close_within` of the configuration; dropping it changes nothing.
    pub fn close(&self) -> Call<kinds::Close> {
        let pending = Arc::new(Pending::default());
        let begun = self.inner.with(|hub| {
            hub.closers.push(Arc::clone(&pending));
            hub.agent.close(self.inner.clock.now());
            hub.check_driven()
        });
        self.inner.wake();
        let progress = match begun.flatten() {
            Ok(()) => Progress::Running(pending),
            Err(error) => Progress::Refused(Some(error)),
        };
        Call::new(Arc::clone(&self.inner), progress, Subject::Named("the end of the session"), kinds::Close)
    }
}

const fn lock(target: Target) -> Command {
    Command::Lock { target, mode: Mode::Exclusive, wait: Wait::Forever }
}

fn set_attr(target: Target) -> Command {
    Command::SetAttr { target, follow: true, change: AttrChange::default() }
}

/// An opened file: operations on it by its id, whatever its name is by now. There is nothing to close: an opened file holds nothing at
/// the server.
#[derive(Clone, Debug)]
pub struct File {
    pub(crate) client: Client,
    pub(crate) id: FileId,
}

impl File {
    /// Which file.
    #[must_use]
    pub const fn id(&self) -> FileId {
        self.id
    }

    fn op<K>(&self, kind: K, command: impl FnOnce(Target) -> Command) -> Op<K> {
        self.client.op(Subject::File(self.id), command(Target::Object(self.id.object())), kind)
    }

    /// Its attributes.
    pub fn metadata(&self) -> Op<kinds::Stat> {
        self.op(kinds::Stat, |target| Command::Stat { target, follow: true })
    }

    /// Its contents.
    pub fn read(&self) -> Op<kinds::Read> {
        self.op(kinds::Read, |target| Command::Read { target, offset: 0, length: None })
    }

    /// Replaces its contents, whole and at once.
    pub fn write(&self, data: impl Into<Bytes>) -> Op<kinds::Write> {
        let data = data.into();
        self.op(kinds::Write, |target| Command::Write { target, offset: 0, data, truncate: true })
    }

    /// Sets attributes.
    pub fn set_metadata(&self) -> Op<kinds::SetMetadata> {
        self.op(kinds::SetMetadata, set_attr)
    }

    /// An advisory lock on it; quicker to have again than by a path, for there is none to walk.
    pub fn lock(&self) -> Op<kinds::Lock> {
        self.op(kinds::Lock, lock)
    }
}
