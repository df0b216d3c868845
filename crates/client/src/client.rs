//! The client: one method per thing that an application does.
//!
//! Decides: names and shapes of the public operations. Every method makes a command, hands it to the agent and gives a call.
//! Leaves to others: connecting (`builder`), waiting (`call`), locks (`guard`), how a command is carried out (the agent).

use crate::builder::Builder;
use crate::call::Call;
use crate::error::Error;
use crate::file::File;
use crate::guard::{Guard, LockRequest};
use crate::hub::{Done, Inner};
use crate::watcher::Watcher;
use bytes::Bytes;
use cistern_agent::api::{AttrChange, Command, LeaseView, Listed, LockInfo, Output, Ownership, Target};
use cistern_link::Instant;
use cistern_wire::{AgentId, Attr, ObjectId, RenameRule, ServerReport};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::time::Duration;

/// Contents of a file, all of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The file's attributes at that version.
    pub attr: Attr,
    /// Where the bytes begin in the file.
    pub offset: u64,
    /// The bytes.
    pub data: Bytes,
}

/// A directory, all of one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory {
    /// Its attributes at that version.
    pub attr: Attr,
    /// Its entries, in byte order of their names.
    pub entries: Vec<Listed>,
}

/// An agent and its connection to the server; clones share it. When the last clone, guard and call is gone, everything is given
/// back and the session closed.
#[derive(Clone)]
pub struct Client {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("servers", &self.inner.servers).finish_non_exhaustive()
    }
}

pub(crate) fn path_bytes(path: impl AsRef<OsStr>) -> Bytes {
    Bytes::copy_from_slice(path.as_ref().as_bytes())
}

pub(crate) fn unexpected<T>() -> Result<T, Error> {
    Err(Error::Broken { why: "an operation ended with the result of another kind of operation".to_owned() })
}

pub(crate) fn as_attr(_: &Arc<Inner>, done: Done) -> Result<Attr, Error> {
    match done {
        Done::Output(Output::Attr(attr)) => Ok(attr),
        _ => unexpected(),
    }
}

pub(crate) fn as_unit(_: &Arc<Inner>, done: Done) -> Result<(), Error> {
    match done {
        Done::Output(Output::Done) => Ok(()),
        _ => unexpected(),
    }
}

pub(crate) fn as_contents(_: &Arc<Inner>, done: Done) -> Result<Contents, Error> {
    match done {
        Done::Output(Output::Data { attr, offset, data }) => Ok(Contents { attr, offset, data }),
        _ => unexpected(),
    }
}

impl Client {
    /// Settings for a new client.
    pub fn builder() -> Builder {
        Builder::default()
    }

    pub(crate) fn new(inner: Inner) -> Self {
        Self { inner: Arc::new(inner) }
    }

    pub(crate) const fn inner(&self) -> &Arc<Inner> {
        &self.inner
    }

    pub(crate) fn on_path<T>(
        &self,
        path: impl AsRef<OsStr>,
        command: impl FnOnce(Bytes) -> Command,
        finish: fn(&Arc<Inner>, Done) -> Result<T, Error>,
    ) -> Call<T> {
        let path = path.as_ref();
        self.inner.submit(|| path.to_string_lossy().into_owned(), command(path_bytes(path)), finish)
    }

    /// Attributes of what a path names; symbolic links are followed.
    pub fn stat(&self, path: impl AsRef<OsStr>) -> Call<Attr> {
        self.on_path(path, |path| Command::Stat { target: Target::Path(path), follow: true }, as_attr)
    }

    /// Attributes of what a path names; a symbolic link at its end is not followed.
    pub fn lstat(&self, path: impl AsRef<OsStr>) -> Call<Attr> {
        self.on_path(path, |path| Command::Stat { target: Target::Path(path), follow: false }, as_attr)
    }

    /// Opens what a path names: later operations on it need no path, and go on to mean it when it is renamed.
    pub fn open(&self, path: impl AsRef<OsStr>) -> Call<File> {
        let finish: fn(&Arc<Inner>, Done) -> Result<File, Error> =
            |inner, done| as_attr(inner, done).map(|attr| File::new(Self { inner: Arc::clone(inner) }, attr.object));
        self.on_path(path, |path| Command::Stat { target: Target::Path(path), follow: true }, finish)
    }

    /// All of a file's contents.
    pub fn read(&self, path: impl AsRef<OsStr>) -> Call<Contents> {
        self.on_path(path, |path| Command::Read { target: Target::Path(path), offset: 0, length: None }, as_contents)
    }

    /// Target of a symbolic link.
    pub fn read_link(&self, path: impl AsRef<OsStr>) -> Call<Contents> {
        self.on_path(path, |path| Command::ReadLink { target: Target::Path(path) }, as_contents)
    }

    /// The entries of a directory; `detail` asks for their attributes, too.
    pub fn list(&self, path: impl AsRef<OsStr>, detail: bool) -> Call<Directory> {
        self.on_path(
            path,
            |path| Command::List { target: Target::Path(path), detail },
            |_, done| match done {
                Done::Output(Output::Listing { dir, entries }) => Ok(Directory { attr: dir, entries }),
                _ => unexpected(),
            },
        )
    }

    /// Replaces a file's contents, whole and at once; makes the file if it is missing.
    pub fn put(&self, path: impl AsRef<OsStr>, data: impl Into<Bytes>, owner: Ownership) -> Call<Attr> {
        self.on_path(path, |path| Command::Put { path, data: data.into(), owner, guard: None }, as_attr)
    }

    /// As `put`, but only if `guard` is still current at the server: a stale holder cannot overwrite its successor's work (R73).
    pub fn put_guarded(&self, path: impl AsRef<OsStr>, data: impl Into<Bytes>, owner: Ownership, guard: &Guard) -> Call<Attr> {
        let guard = Some(guard.guard());
        self.on_path(path, |path| Command::Put { path, data: data.into(), owner, guard }, as_attr)
    }

    /// Makes an empty file; with `exclusive`, an existing one is an error.
    pub fn create(&self, path: impl AsRef<OsStr>, exclusive: bool, owner: Ownership) -> Call<Attr> {
        self.on_path(path, |path| Command::Create { path, exclusive, ephemeral: false, owner }, as_attr)
    }

    /// Makes an empty ephemeral file, which must not exist: it goes when this agent's session ends, however that ends. A session that the
    /// agent takes over after a restart of the server keeps it. Watch it to hear when it is gone all the same.
    pub fn create_ephemeral(&self, path: impl AsRef<OsStr>, owner: Ownership) -> Call<Attr> {
        self.on_path(path, |path| Command::Create { path, exclusive: true, ephemeral: true, owner }, as_attr)
    }

    /// Makes a directory.
    pub fn mkdir(&self, path: impl AsRef<OsStr>, owner: Ownership) -> Call<Attr> {
        self.on_path(path, |path| Command::Mkdir { path, owner }, as_attr)
    }

    /// Makes a symbolic link at `path` that points to `target`.
    pub fn symlink(&self, target: impl AsRef<OsStr>, path: impl AsRef<OsStr>, owner: Ownership) -> Call<Attr> {
        let points_to = path_bytes(target);
        self.on_path(path, |path| Command::Symlink { path, points_to, owner }, as_attr)
    }

    /// Gives the file `existing` one more name.
    pub fn link(&self, existing: impl AsRef<OsStr>, path: impl AsRef<OsStr>) -> Call<Attr> {
        let existing = path_bytes(existing);
        self.on_path(path, |path| Command::Link { existing, path }, as_attr)
    }

    /// Takes a name of a file or symbolic link away; `force`: although somebody holds an advisory lock on it.
    pub fn unlink(&self, path: impl AsRef<OsStr>, force: bool) -> Call<()> {
        self.on_path(path, |path| Command::Unlink { path, force }, as_unit)
    }

    /// Takes an empty directory away.
    pub fn rmdir(&self, path: impl AsRef<OsStr>) -> Call<()> {
        self.on_path(path, |path| Command::Rmdir { path }, as_unit)
    }

    /// Moves a name; `force`: although somebody holds an advisory lock on what it replaces.
    pub fn rename(&self, from: impl AsRef<OsStr>, to: impl AsRef<OsStr>, rule: RenameRule, force: bool) -> Call<()> {
        let to = path_bytes(to);
        self.on_path(from, |from| Command::Rename { from, to, rule, force }, as_unit)
    }

    /// Sets attributes; symbolic links are followed.
    pub fn set_attr(&self, path: impl AsRef<OsStr>, change: AttrChange) -> Call<Attr> {
        self.on_path(path, |path| Command::SetAttr { target: Target::Path(path), follow: true, change, guard: None }, as_attr)
    }

    /// Watches nothing yet; give it the objects that `stat`, `list` or `open` have shown.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher::new(Arc::clone(&self.inner))
    }

    /// An advisory lock on the object that a path names.
    pub fn lock(&self, path: impl AsRef<OsStr>) -> LockRequest {
        LockRequest::new(self.clone(), Target::Path(path_bytes(path)))
    }

    /// Who holds and who waits for advisory locks, on one object or everywhere; places are told only of the latter.
    pub fn locks(&self, path: Option<&OsStr>) -> Call<Vec<LockInfo>> {
        let what = || path.map_or_else(|| "locks".to_owned(), |path| path.to_string_lossy().into_owned());
        let target = path.map(|path| Target::Path(path_bytes(path)));
        self.inner.submit(what, Command::ListLocks { target }, |_, done| match done {
            Done::Output(Output::Locks(locks)) => Ok(locks),
            _ => unexpected(),
        })
    }

    /// What the server is and how it is.
    pub fn server_status(&self) -> Call<ServerReport> {
        self.inner.submit(
            || "status".to_owned(),
            Command::ServerStatus,
            |_, done| match done {
                Done::Output(Output::Server(report)) => Ok(report),
                _ => unexpected(),
            },
        )
    }

    /// One round trip to the server's application: how long it took.
    pub fn ping(&self) -> Call<Duration> {
        self.inner.submit(
            || "ping".to_owned(),
            Command::Ping,
            |_, done| match done {
                Done::Output(Output::Pong { round_trip }) => Ok(round_trip),
                _ => unexpected(),
            },
        )
    }

    /// The lease as it stands.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn lease(&self) -> Result<LeaseView, Error> {
        self.inner.with(|hub| hub.agent.view(self.inner.clock.now()))
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
    /// [`Error::Broken`].
    pub fn owns_ephemeral(&self, object: ObjectId) -> Result<bool, Error> {
        self.inner.with(|hub| hub.agent.owns_ephemeral(object))
    }

    /// How many changes of this client were given up ([`Error::OutcomeUnknown`]) whose outcome its agent still waits for: they may be made
    /// yet. With 0 what is seen afterwards shows what became of all that was given up before.
    ///
    /// # Errors
    /// [`Error::Broken`].
    pub fn unsettled(&self) -> Result<usize, Error> {
        self.inner.with(|hub| hub.agent.unsettled())
    }

    /// Who this agent is: its identity, and which start of it this is.
    #[must_use]
    pub fn identity(&self) -> (AgentId, u64) {
        (self.inner.agent, self.inner.incarnation)
    }

    /// This machine's lease clock, by which `valid_until` of a guard is meant.
    #[must_use]
    pub fn now(&self) -> Instant {
        self.inner.clock.now()
    }

    /// Gives everything back and closes the session, and waits until the server has confirmed it, at most for `span`. Locks that
    /// are still held are lost. What is not confirmed ends by the lease.
    ///
    /// # Errors
    /// [`Error::Unreachable`] when it was not confirmed in time, [`Error::Broken`].
    pub fn close(&self, span: Duration) -> Result<(), Error> {
        self.inner.with(|hub| hub.agent.close(self.inner.clock.now()))?;
        self.inner.wake();
        let begun = std::time::Instant::now();
        while !self.inner.with(|hub| hub.is_closed()).flatten()? {
            if begun.elapsed() >= span {
                return Err(Error::Unreachable { servers: self.inner.servers.clone(), after: span });
            }
            // Closing takes a round trip; there is nobody to signal its end to.
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}
