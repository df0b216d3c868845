//! Operations as values: what is to be done, with its options and conditions, before it is started.
//!
//! Decides: that nothing happens before [`Op::wait`], [`Op::start`] or `.await`; and that every change takes the same conditions.

use crate::call::Call;
use crate::client::{FILE_MODE, path_bytes};
use crate::error::{Error, Subject};
use crate::guard::Guard;
use crate::hub::{Done, Inner};
use crate::metadata::{Metadata, Version, nanos};
use bytes::Bytes;
use cistern_agent::api::{self, Command, Output, Ownership, Target, Wait};
use cistern_wire::{Expect, Mode, RenameRule, Status, XattrRule};
use std::fmt;
use std::future::IntoFuture;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// A kind of operation; see [`Client`](crate::Client) for what there is.
pub trait Operation: kinds::Sealed<Self::Output> {
    /// What it brings.
    type Output;
}

/// A kind of operation that changes something: it takes conditions, and can be part of a batch.
pub trait Mutation: Operation {}

/// A kind of operation that makes a file, which has an owner and permission bits.
pub trait Creation: Mutation {}

/// An operation that has not begun: [`wait`](Self::wait) for it, `.await` it, or [`start`](Self::start) it and do so later.
#[derive(Clone)]
#[must_use = "nothing happens before `wait`, `start` or `.await`"]
pub struct Op<K> {
    pub(crate) inner: Arc<Inner>,
    pub(crate) subject: Subject,
    /// What has to be done before.
    pub(crate) before: Option<Box<Command>>,
    pub(crate) command: Command,
    pub(crate) conditions: Conditions,
    pub(crate) kind: K,
}

/// What must be so for a change to be made.
#[derive(Clone, Debug, Default)]
pub(crate) struct Conditions {
    guard: Option<api::Guard>,
    expect: Vec<Expect>,
    /// They cannot all hold: two guards, of which a message carries one, or a file that must be there and must not.
    contradict: bool,
}

impl Conditions {
    fn guard(&mut self, guard: api::Guard) {
        self.contradict |= self.guard.is_some_and(|other| other != guard);
        self.guard = Some(guard);
    }

    fn add(&mut self, other: Self) {
        self.contradict |= other.contradict;
        self.expect.extend(other.expect);
        if let Some(guard) = other.guard {
            self.guard(guard);
        }
    }

    fn apply(self, command: Command) -> Result<Command, Status> {
        match self {
            Self { contradict: true, .. } => Err(Status::EINVAL),
            Self { guard: None, expect, .. } if expect.is_empty() => Ok(command),
            Self { guard, expect, .. } => Ok(Command::Expecting { guard, expect, command: Box::new(command) }),
        }
    }
}

impl<K: Operation> Op<K> {
    /// Starts it. Dropping the call gives it up.
    pub fn start(self) -> Call<K> {
        let Self { inner, subject, before, command, conditions, kind } = self;
        let command = match conditions.apply(command) {
            Ok(command) => command,
            Err(status) => return Call::new(Arc::clone(&inner), inner.refused(subject.clone(), status), subject, kind),
        };
        let (first, next) = match before {
            Some(before) => (*before, Some(Box::new(command))),
            None => (command, None),
        };
        let progress = inner.begin(first, next);
        Call::new(inner, progress, subject, kind)
    }

    /// Does it, and blocks until it has ended.
    ///
    /// # Errors
    /// Why it failed.
    pub fn wait(self) -> Result<K::Output, Error> {
        self.start().wait()
    }

    /// Does it, and blocks until it has ended, at most for `span`; then it is given up.
    ///
    /// # Errors
    /// [`TimedOut`](crate::ErrorKind::TimedOut) when nothing was changed, otherwise
    /// [`OutcomeUnknown`](crate::ErrorKind::OutcomeUnknown); or why it failed.
    pub fn wait_timeout(self, span: Duration) -> Result<K::Output, Error> {
        let subject = self.subject.clone();
        let mut call = self.start();
        match call.wait_timeout(span) {
            Some(result) => result,
            None => call.cancel().map_err(|error| error.timed_out(subject)),
        }
    }
}

impl<K: Operation> IntoFuture for Op<K> {
    type Output = Result<K::Output, Error>;
    type IntoFuture = Call<K>;

    fn into_future(self) -> Call<K> {
        self.start()
    }
}

impl<K> fmt::Debug for Op<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Op").field("command", &self.command).field("conditions", &self.conditions).finish_non_exhaustive()
    }
}

/// Conditions, the same on every change and on batches. A change whose condition does not hold fails, and changes nothing.
impl<K: Mutation> Op<K> {
    /// Only while `guard` is held under its token, as the server sees it when it makes the change: a stale holder cannot overwrite its
    /// successor's work. Otherwise it fails with [`StaleGuard`](crate::ErrorKind::StaleGuard).
    pub fn guarded_by(mut self, guard: &Guard) -> Self {
        self.conditions.guard(guard.guard());
        self
    }

    /// Only if the file that is changed is this one, at this version; otherwise it fails with
    /// [`VersionChanged`](crate::ErrorKind::VersionChanged). Contents and attributes are set on that very file, whatever its name is by now.
    pub fn if_version(mut self, version: Version) -> Self {
        self.conditions.expect.push(version.expected());
        let file = Target::Object(version.file.object());
        match &mut self.command {
            Command::Put { data, .. } => {
                let data = std::mem::take(data);
                self.command = Command::Write { target: file, offset: 0, data, truncate: true };
            }
            Command::Write { target, .. }
            | Command::SetAttr { target, .. }
            | Command::SetXattr { target, .. }
            | Command::RemoveXattr { target, .. }
            | Command::SetQuota { target, .. } => *target = file,
            _ => {}
        }
        self
    }

    /// Only if a file, this one or another, has not been changed since `metadata` was read; otherwise it fails with
    /// [`VersionChanged`](crate::ErrorKind::VersionChanged). At most eight files.
    pub fn if_unchanged(mut self, metadata: &Metadata) -> Self {
        self.conditions.expect.push(metadata.version().expected());
        self
    }
}

/// Sets an option in the command of an operation; a command of another kind has no such option.
macro_rules! set {
    ($op:expr, $command:pat => $set:expr) => {{
        let mut op = $op;
        if let $command = &mut op.command {
            $set;
        }
        op
    }};
}

fn ownership(command: &mut Command) -> Option<&mut Ownership> {
    match command {
        Command::Put { owner, .. } | Command::Create { owner, .. } | Command::Symlink { owner, .. } => Some(owner),
        Command::Mkdir { owner, .. } | Command::MakeRealm { owner, .. } | Command::MakeLease { owner, .. } => Some(owner),
        Command::Batch { items, .. } => items.first_mut().and_then(ownership),
        _ => None,
    }
}

/// By default files are made with 0o644, directories with 0o755, and belong to the user and group of this process.
impl<K: Creation> Op<K> {
    /// The permission bits of what is made, 0 to 0o7777.
    pub fn mode(mut self, mode: u32) -> Self {
        if let Some(owner) = ownership(&mut self.command) {
            // What does not fit is no mode, and refused as one.
            owner.mode = u16::try_from(mode).unwrap_or(u16::MAX);
        }
        self
    }

    /// Owner and group of what is made.
    pub fn owner(mut self, uid: u32, gid: u32) -> Self {
        ownership(&mut self.command).into_iter().for_each(|owner| (owner.uid, owner.gid) = (uid, gid));
        self
    }
}

impl Op<kinds::Read> {
    /// Only these bytes.
    pub fn range(mut self, range: impl RangeBounds<u64>) -> Self {
        if let Command::Read { offset, length, .. } = &mut self.command {
            *offset = match range.start_bound() {
                Bound::Included(first) => *first,
                Bound::Excluded(before) => before.saturating_add(1),
                Bound::Unbounded => 0,
            };
            *length = match range.end_bound() {
                Bound::Included(last) => Some(last.saturating_add(1).saturating_sub(*offset)),
                Bound::Excluded(end) => Some(end.saturating_sub(*offset)),
                Bound::Unbounded => None,
            };
        }
        self
    }
}

impl Op<kinds::ReadDir> {
    /// With the attributes of every entry.
    pub fn with_metadata(self) -> Self {
        set!(self, Command::List { detail, .. } => *detail = true)
    }
}

impl Op<kinds::Write> {
    /// Only if there is no file: it appears with its contents, as one change. Otherwise it fails with
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists). With what needs a file, [`at`](Self::at) or [`if_version`](Self::if_version), it
    /// is [`InvalidInput`](crate::ErrorKind::InvalidInput).
    pub fn if_absent(mut self) -> Op<kinds::CreateNew> {
        match self.command {
            Command::Put { path, data, owner, .. } => self.command = new_file(path, data, owner, false),
            _ => self.conditions.contradict = true,
        }
        self.with_kind(kinds::CreateNew)
    }

    /// Into a file that exists, from this byte on: what is before and after stays.
    pub fn at(mut self, from: u64) -> Self {
        if let Command::Put { path, data, .. } = &mut self.command {
            let (path, data) = (std::mem::take(path), std::mem::take(data));
            self.command = Command::Write { target: Target::Path(path), offset: from, data, truncate: false };
        } else if let Command::Write { offset, truncate, .. } = &mut self.command {
            (*offset, *truncate) = (from, false);
        }
        self
    }

    /// With [`at`](Self::at): what is after the bytes is cut off.
    pub fn truncate(self) -> Self {
        set!(self, Command::Write { truncate, .. } => *truncate = true)
    }
}

fn new_file(path: Bytes, data: Bytes, owner: Ownership, ephemeral: bool) -> Command {
    let make = Command::Create { path: path.clone(), exclusive: true, ephemeral, owner };
    if data.is_empty() {
        return make;
    }
    let write = Command::Write { target: Target::Path(path), offset: 0, data, truncate: false };
    Command::Batch { items: vec![make, write] }
}

impl Op<kinds::CreateNew> {
    /// It appears with these contents, as one change.
    pub fn contents(mut self, data: impl Into<Bytes>) -> Self {
        if let Command::Create { path, ephemeral, owner, .. } = self.command {
            self.command = new_file(path, data.into(), owner, ephemeral);
        }
        self
    }

    /// It goes when this client's session ends, however that ends. A session that is taken over after a restart of the server keeps it.
    pub fn ephemeral(mut self) -> Self {
        let create = match &mut self.command {
            Command::Batch { items, .. } => items.first_mut(),
            command => Some(command),
        };
        if let Some(Command::Create { ephemeral, .. }) = create {
            *ephemeral = true;
        }
        self
    }
}

impl<K> Op<K> {
    fn with_kind<L>(self, kind: L) -> Op<L> {
        let Self { inner, subject, before, command, conditions, .. } = self;
        Op { inner, subject, before, command, conditions, kind }
    }
}

/// Files that somebody else has locked are protected from losing their names ([`Busy`](crate::ErrorKind::Busy)).
impl Op<kinds::Remove> {
    /// Although somebody holds a lock on it.
    pub fn even_if_locked(self) -> Self {
        set!(self, Command::Unlink { force, .. } => *force = true)
    }
}

impl Op<kinds::Rename> {
    /// Fails with [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if the new name exists.
    pub fn no_replace(self) -> Self {
        self.rule(RenameRule::NoReplace)
    }

    /// Both names must exist, and change places.
    pub fn exchange(self) -> Self {
        self.rule(RenameRule::Exchange)
    }

    fn rule(self, to: RenameRule) -> Self {
        set!(self, Command::Rename { rule, .. } => *rule = to)
    }

    /// Although somebody holds a lock on what is moved, replaced or exchanged.
    pub fn even_if_locked(self) -> Self {
        set!(self, Command::Rename { force, .. } => *force = true)
    }
}

/// What is not set stays as it is.
impl Op<kinds::SetMetadata> {
    /// Permission bits, 0 to 0o7777.
    pub fn mode(self, mode: u32) -> Self {
        set!(self, Command::SetAttr { change, .. } => change.mode = Some(u16::try_from(mode).unwrap_or(u16::MAX)))
    }

    /// Owner and group.
    pub fn owner(self, uid: u32, gid: u32) -> Self {
        set!(self, Command::SetAttr { change, .. } => (change.uid, change.gid) = (Some(uid), Some(gid)))
    }

    /// Bytes of contents: what is after them is cut off, what is missing is zero.
    pub fn len(self, bytes: u64) -> Self {
        set!(self, Command::SetAttr { change, .. } => change.size = Some(bytes))
    }

    /// When the contents were changed last.
    pub fn modified(self, time: SystemTime) -> Self {
        set!(self, Command::SetAttr { change, .. } => change.mtime_ns = Some(nanos(time)))
    }

    /// When it was read last.
    pub fn accessed(self, time: SystemTime) -> Self {
        set!(self, Command::SetAttr { change, .. } => change.atime_ns = Some(nanos(time)))
    }
}

/// What is not set stays as it is; 0: no quota.
impl Op<kinds::SetQuota> {
    /// Most files, directories and symbolic links, the realm's own directory and the realms within it included.
    pub fn objects(self, most: u64) -> Self {
        set!(self, Command::SetQuota { objects, .. } => *objects = Some(most))
    }

    /// Most bytes of contents, targets and extended attributes.
    pub fn bytes(self, most: u64) -> Self {
        set!(self, Command::SetQuota { bytes, .. } => *bytes = Some(most))
    }
}

impl Op<kinds::SetXattr> {
    /// Fails with [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if the file has this attribute.
    pub fn if_absent(self) -> Self {
        self.rule(XattrRule::Create)
    }

    /// Fails with [`NotFound`](crate::ErrorKind::NotFound) if the file has no such attribute.
    pub fn if_present(self) -> Self {
        self.rule(XattrRule::Replace)
    }

    fn rule(self, to: XattrRule) -> Self {
        set!(self, Command::SetXattr { rule, .. } => *rule = to)
    }
}

/// Exclusive, and waited for as long as it takes, unless said otherwise.
impl Op<kinds::Lock> {
    /// Shared with other shared holders.
    pub fn shared(self) -> Self {
        set!(self, Command::Lock { mode, .. } => *mode = Mode::Shared)
    }

    /// Fails at once with [`Locked`](crate::ErrorKind::Locked) when somebody else holds it.
    pub fn try_once(self) -> Self {
        set!(self, Command::Lock { wait, .. } => *wait = Wait::Try)
    }

    /// Waits at most so long, and then fails with [`TimedOut`](crate::ErrorKind::TimedOut).
    pub fn timeout(self, span: Duration) -> Self {
        set!(self, Command::Lock { wait, .. } => *wait = Wait::AtMost(span))
    }

    /// Makes an empty file to lock, if there is none.
    pub fn create(mut self) -> Self {
        if let Command::Lock { target: Target::Path(path), .. } = &self.command {
            let owner = self.inner.owning(FILE_MODE);
            self.before = Some(Box::new(Command::Create { path: path.clone(), exclusive: false, ephemeral: false, owner }));
        }
        self
    }
}

impl Op<kinds::ListLocks> {
    /// Only those on what this path names; then no row has a path.
    pub fn on(mut self, path: impl AsRef<std::path::Path>) -> Self {
        let path = path_bytes(path);
        self.subject = Subject::path(&path);
        self.command = Command::ListLocks { target: Some(Target::Path(path)) };
        self
    }
}

/// Several changes that are made as one: all of them, in order, or none. At most 16, of which a [`write`](crate::Client::write) that may
/// make its file, and a [`create_new`](crate::Client::create_new) with contents, count as two. Conditions of its parts are conditions of
/// the whole.
///
/// A path means what it meant before the batch, unless a change before has made that very name: then it means what was made.
impl Op<kinds::Batch> {
    /// Adds a change.
    #[allow(clippy::should_implement_trait, reason = "a batch is no number")]
    pub fn add<K: Mutation>(mut self, op: Op<K>) -> Self {
        let Command::Batch { items, .. } = &mut self.command else { return self };
        let first = items.len();
        match op.command {
            Command::Put { path, data, owner, .. } => {
                items.push(Command::Create { path: path.clone(), exclusive: false, ephemeral: false, owner });
                items.push(Command::Write { target: Target::Path(path), offset: 0, data, truncate: true });
            }
            Command::Batch { items: parts, .. } => items.extend(parts),
            command => items.push(command),
        }
        self.kind.0.extend((first..items.len()).map(|item| item == first));
        self.conditions.add(op.conditions);
        self
    }
}

/// The kinds of operations, for those who name the type of a [`Call`] or an [`Op`].
pub mod kinds {
    use super::{Creation, Done, Inner, Mutation, Operation, Output};
    use crate::error::{Cause, Error};
    use crate::guard::Guard;
    use crate::metadata::{Contents, DirEntry, Directory, FileId, Metadata, Version, Xattr, XattrNames};
    use crate::{Client, File, Instant, LeaseFile, LockInfo, Realm, ServerStatus as Server, Watcher};
    use bytes::Bytes;
    use cistern_wire::ItemResult;
    use std::ffi::OsString;
    use std::os::unix::ffi::OsStringExt;
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    /// What only this crate knows of a kind of operation.
    pub trait Sealed<T>: Sized {
        #[doc(hidden)]
        #[allow(private_interfaces, reason = "only this crate calls it")]
        fn output(self, inner: &Arc<Inner>, done: Done) -> Result<T, Error>;

        /// Of what the caller sees as several changes: to which of them an item of the command belongs.
        #[doc(hidden)]
        fn place(&self, _item: usize) -> Option<usize> {
            None
        }
    }

    macro_rules! kinds {
        ($($name:ident => $output:ty: |$inner:pat_param, $done:pat_param| $result:expr;)*) => {$(
            #[doc = concat!("See [`Client`]; brings `", stringify!($output), "`.")]
            #[derive(Clone, Copy, Debug)]
            pub struct $name;

            impl Operation for $name {
                type Output = $output;
            }

            impl Sealed<$output> for $name {
                #[allow(private_interfaces, reason = "only this crate calls it")]
                fn output(self, inner: &Arc<Inner>, done: Done) -> Result<$output, Error> {
                    #[allow(irrefutable_let_patterns, reason = "some kinds need it")]
                    match (inner, done) {
                        ($inner, $done) => Ok($result),
                        #[allow(unreachable_patterns, reason = "some kinds take any end")]
                        _ => unexpected(),
                    }
                }
            }
        )*};
    }

    fn unexpected<T>() -> Result<T, Error> {
        Err(Cause::Broken("an operation ended with the result of another kind of operation").into())
    }

    fn version(of: &ItemResult) -> Version {
        Version::of(of.object, of.version)
    }

    /// What was made: alone, or first in a batch with its contents.
    fn made(output: Output) -> Result<Version, Error> {
        match output {
            Output::Attr(attr) => Ok(Metadata(attr).version()),
            Output::Batched(results) => results.first().map_or_else(unexpected, |made| Ok(version(made))),
            _ => unexpected(),
        }
    }

    fn client(inner: &Arc<Inner>) -> Client {
        Client { inner: Arc::clone(inner) }
    }

    kinds! {
        Stat => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        Open => File: |inner, Done::Output(Output::Attr(attr))| File { client: client(inner), id: FileId::of(attr.object) };
        Read => Contents: |_, Done::Output(Output::Data { attr, data, .. })| Contents { bytes: data, metadata: Metadata(attr) };
        ReadLink => PathBuf: |_, Done::Output(Output::Data { data, .. })| OsString::from_vec(data.to_vec()).into();
        ReadDir => Directory: |_, Done::Output(Output::Listing { dir, entries })|
            Directory { metadata: Metadata(dir), entries: entries.into_iter().map(DirEntry::of).collect() };
        Write => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        Create => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        CreateDir => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        SetQuota => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        Symlink => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        HardLink => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        SetMetadata => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        SetXattr => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        RemoveXattr => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        CreateNew => Version: |_, Done::Output(output)| made(output)?;
        CreateLease => Version: |_, Done::Output(output)| made(output)?;
        Attach => Metadata: |_, Done::Output(Output::Attr(attr))| Metadata(attr);
        KeepLease => Instant: |_, Done::Output(Output::LeaseKept { until })| until;
        ListLeases => Vec<LeaseFile>: |_, Done::Output(Output::Leases(rows))| rows.into_iter().map(LeaseFile::of).collect();
        Remove => (): |_, Done::Output(Output::Done)| ();
        Rename => (): |_, Done::Output(Output::Done)| ();
        GetXattr => Xattr: |_, Done::Output(Output::Xattr { object, version, value })|
            Xattr { version: Version::of(object, version), value };
        ListXattr => XattrNames: |_, Done::Output(Output::XattrNames { object, version, names })| XattrNames {
            version: Version::of(object, version),
            names: names.into_iter().map(|name| OsString::from_vec(name.to_vec())).collect(),
        };
        Lock => Guard: |inner, Done::Locked(locked, mailbox)| Guard::new(Arc::clone(inner), locked, mailbox);
        Release => (): |_, Done::Output(Output::Done)| ();
        ListLocks => Vec<LockInfo>: |_, Done::Output(Output::Locks(rows))| rows.into_iter().map(LockInfo::of).collect();
        ListRealms => Vec<Realm>: |_, Done::Output(Output::Realms(rows))| rows.into_iter().map(Realm::of).collect();
        Admin => Bytes: |_, Done::Output(Output::Line(text))| text;
        ServerStatus => Server: |_, Done::Output(Output::Server(report, group))| Server::of(&report, group);
        Ping => Duration: |_, Done::Output(Output::Pong { round_trip })| round_trip;
        Close => (): |_, Done::Output(Output::Done)| ();
        Watch => Watcher: |inner, Done::Output(Output::Attr(attr))| {
            let mut watcher = Watcher::new(Arc::clone(inner));
            watcher.watch(FileId::of(attr.object))?;
            watcher
        };
    }

    /// See [`Client::batch`]; brings for each change the version of what it was about, after the batch.
    #[derive(Clone, Debug)]
    pub struct Batch(/** Of each item, whether a change begins with it. */ pub(crate) Vec<bool>);

    impl Operation for Batch {
        type Output = Vec<Version>;
    }

    impl Sealed<Vec<Version>> for Batch {
        #[allow(private_interfaces, reason = "only this crate calls it")]
        fn output(self, _: &Arc<Inner>, done: Done) -> Result<Vec<Version>, Error> {
            let Done::Output(Output::Batched(results)) = done else { return unexpected() };
            let firsts = results.iter().zip(self.0).filter(|(_, first)| *first);
            Ok(firsts.map(|(result, _)| version(result)).collect())
        }

        fn place(&self, item: usize) -> Option<usize> {
            // Of an empty batch there is no item, and yet it fails as one.
            Some(self.0.iter().take(item + 1).filter(|first| **first).count().saturating_sub(1))
        }
    }

    macro_rules! are {
        ($of:ident: $($name:ident),*) => {$( impl $of for $name {} )*};
    }
    are!(Mutation: Write, Create, CreateNew, CreateLease, Attach, CreateDir, Symlink, HardLink, SetMetadata, SetXattr, RemoveXattr, SetQuota, Remove, Rename, Batch);
    are!(Creation: Write, Create, CreateNew, CreateLease, CreateDir, Symlink);
}
