//! Carries out a local request with a client.
//!
//! Decides: which call of the client library each request is, and how its errors are named and numbered for programs.
//! Leaves to others: where the request came from.

use crate::local::{AttrRule, Failure, Hold, Item, News, Request, Response, Rule, Until, Version, micros, millis, time};
use crate::members::{Claims, Members};
use crate::neighbours::Neighbours;
use crate::text::{Blob, Text};
use cistern_client::{Client, Creation, Error, ErrorKind, FileId, Guard, LockState, Op, Version as FileVersion, Watcher, kinds};
use cistern_wire::Status;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest wait for news in one request: a program that has gone away is noticed between two of them.
const NEWS_WAIT_MAX_MS: u64 = 1_000;
/// Most news in one answer.
const NEWS_MAX: usize = 256;

/// Exit status: the operation failed.
pub(crate) const EXIT_FAILED: u8 = 1;
/// Exit status: wrong usage or settings.
pub(crate) const EXIT_USAGE: u8 = 2;
/// Exit status: a precondition does not hold, so nothing was changed.
pub(crate) const EXIT_PRECONDITION: u8 = 3;
/// Exit status: the store is damaged, or is none (`EX_DATAERR`).
pub(crate) const EXIT_DAMAGED: u8 = 65;
/// Exit status: there is no store (`EX_NOINPUT`).
pub(crate) const EXIT_NO_STORE: u8 = 66;
/// Exit status: the store could not be read or written (`EX_IOERR`).
pub(crate) const EXIT_STORE: u8 = 74;
/// Exit status: another process has the store (`EX_TEMPFAIL`).
pub(crate) const EXIT_IN_USE: u8 = 75;
/// Exit status: the store is of a newer version (`EX_PROTOCOL`).
pub(crate) const EXIT_NEWER: u8 = 76;
/// Exit status: the store may not be used (`EX_NOPERM`).
pub(crate) const EXIT_PERMISSION: u8 = 77;
/// Exit status: no answer from the server, or it refuses a session (`EX_UNAVAILABLE`).
pub(crate) const EXIT_UNAVAILABLE: u8 = 69;
/// Exit status: a defect of this program (`EX_SOFTWARE`).
pub(crate) const EXIT_SOFTWARE: u8 = 70;
/// Exit status: the outcome of a change is unknown (`EX_IOERR`).
pub(crate) const EXIT_UNKNOWN: u8 = 74;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let exit = match error.kind() {
            ErrorKind::VersionChanged => EXIT_PRECONDITION,
            ErrorKind::Unreachable | ErrorKind::Refused | ErrorKind::WrongServer => EXIT_UNAVAILABLE,
            ErrorKind::OutcomeUnknown => EXIT_UNKNOWN,
            ErrorKind::Configuration => EXIT_USAGE,
            _ if error.code() == "INTERNAL" => EXIT_SOFTWARE,
            _ => EXIT_FAILED,
        };
        let path = error.path().filter(|path| path.is_absolute()).map(|path| Text::from(path.as_os_str()));
        let item = error.item().and_then(|item| u16::try_from(item).ok());
        Self { code: error.code().to_owned(), message: error.to_string(), path, item, exit }
    }
}

impl From<cistern_store::OpenError> for Failure {
    fn from(error: cistern_store::OpenError) -> Self {
        use cistern_store::Problem;
        let (code, exit) = match error.problem {
            Problem::Missing => ("NO_STORE", EXIT_NO_STORE),
            Problem::Copy => ("COPY_OF_STORE", EXIT_DAMAGED),
            Problem::Foreign => ("FOREIGN_STORE", EXIT_DAMAGED),
            Problem::Damaged => ("DAMAGED_STORE", EXIT_DAMAGED),
            Problem::Newer => ("NEWER_STORE", EXIT_NEWER),
            Problem::InUse => ("STORE_IN_USE", EXIT_IN_USE),
            Problem::FileSystem => ("STORE_FILE_SYSTEM", EXIT_PERMISSION),
            Problem::Permission => ("STORE_PERMISSION", EXIT_PERMISSION),
            Problem::Io => ("STORE", EXIT_STORE),
        };
        Self::new(code, exit, error.to_string())
    }
}

impl From<cistern_credentials::CredentialError> for Failure {
    fn from(error: cistern_credentials::CredentialError) -> Self {
        Self::new("CREDENTIALS", EXIT_FAILED, error.to_string())
    }
}

impl Failure {
    pub(crate) fn new(code: &str, exit: u8, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), path: None, item: None, exit }
    }

    /// What the server would say of a path.
    pub(crate) fn status(path: &Text, status: Status) -> Self {
        let failure = Self::new(status.name(), EXIT_FAILED, format!("{path}: {status}"));
        Self { path: Some(path.clone()), ..failure }
    }

    /// The same with the exit status of a precondition, if it is `code` that says that it does not hold.
    pub(crate) fn precondition(self, code: &str) -> Self {
        if self.code == code { Self { exit: EXIT_PRECONDITION, ..self } } else { self }
    }

    /// An exit status of which everything was said.
    pub(crate) fn of_status(exit: u8) -> Result<(), Self> {
        if exit == 0 { Ok(()) } else { Err(Self::new("STATUS", exit, "")) }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("USAGE", EXIT_USAGE, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new("FAILED", EXIT_FAILED, message)
    }
}

/// The user that runs a local program, to whom belongs what it makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct User {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl User {
    /// Of this process.
    pub(crate) fn this() -> Self {
        Self { uid: nix::unistd::geteuid().as_raw(), gid: nix::unistd::getegid().as_raw() }
    }

    /// What is made with this mode belongs to it.
    fn makes<K: Creation>(self, op: Op<K>, mode: u16) -> Op<K> {
        op.mode(mode.into()).owner(self.uid, self.gid)
    }
}

/// What the programs of one agent know of each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    claims: Claims,
    neighbours: Neighbours,
}

/// The locks, watches and ephemeral files of one local program; given back when it goes.
#[derive(Debug)]
pub(crate) struct Holds {
    user: User,
    next: u64,
    guards: BTreeMap<u64, Arc<Guard>>,
    neighbours: Neighbours,
    /// Its watches, once there was one.
    watcher: Option<Watcher>,
    /// Its ephemeral files.
    pub(crate) members: Members,
}

impl Default for Holds {
    /// Of a program that has an agent of its own.
    fn default() -> Self {
        Self::of(User::this(), Programs::default())
    }
}

impl Holds {
    /// Of one more program of an agent.
    pub(crate) fn of(user: User, Programs { claims, neighbours }: Programs) -> Self {
        Self { user, next: 0, guards: BTreeMap::new(), neighbours, watcher: None, members: Members::of(claims) }
    }

    /// Gives back everything but the ephemeral files.
    pub(crate) fn let_go(&mut self) {
        self.guards.clear();
        self.watcher = None;
    }

    pub(crate) fn keep(&mut self, guard: Guard) -> Response {
        self.next += 1;
        let (token, object) = (guard.token().0, guard.file().0);
        let guard = Arc::new(guard);
        self.neighbours.add(&guard);
        self.guards.insert(self.next, guard);
        Response::Locked { hold: self.next, token, object, basis: None }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Whether the program would miss nothing if its connection ended now: no lock, no watch, no file.
    pub(crate) fn ends_unseen(&self) -> bool {
        self.guards.is_empty() && self.watcher.is_none() && self.members.is_empty()
    }

    /// What has become of the watched objects since this was asked last.
    fn news(&mut self, wait: Duration) -> Vec<News> {
        let Some(watcher) = &mut self.watcher else {
            std::thread::sleep(wait);
            return Vec::new();
        };
        let mut events = watcher.events();
        let begun = Instant::now();
        let first = events.next_timeout(wait);
        if first.is_none() {
            // Of what is gone nothing is told, and that at once.
            std::thread::sleep(wait.saturating_sub(begun.elapsed()));
        }
        let mut news: Vec<News> = first.map(News::from).into_iter().collect();
        while news.len() < NEWS_MAX
            && let Some(event) = events.next_timeout(Duration::ZERO)
        {
            news.push(event.into());
        }
        news
    }

    fn get(&self, hold: u64) -> Result<&Guard, Failure> {
        self.guards.get(&hold).map(Arc::as_ref).ok_or_else(|| Failure::failed(format!("hold {hold} is not one of this connection's")))
    }
}

/// Carries out one request; blocks until its end.
pub(crate) fn execute(client: &Client, holds: &mut Holds, request: Request) -> Result<Response, Failure> {
    holds.neighbours.check(client, &holds.guards.values().collect::<Vec<_>>(), &request)?;
    Ok(match request {
        Request::Stat { path, follow: true } => Response::Attr(client.metadata(path.as_os()).wait()?.into()),
        Request::Stat { path, follow: false } => Response::Attr(client.symlink_metadata(path.as_os()).wait()?.into()),
        Request::List { path, detail } => {
            let list = client.read_dir(path.as_os());
            let directory = if detail { list.with_metadata() } else { list }.wait()?;
            Response::Listing(directory.entries.into_iter().map(Into::into).collect())
        }
        Request::Read { path } => client.read(path.as_os()).wait()?.into(),
        Request::ReadLink { path } => Response::Link(client.read_link(path.as_os()).wait()?.into_os_string().into()),
        Request::Lock { path, shared, wait_ms, .. } => holds.keep(lock(client, &path, shared, wait_ms).wait()?),
        Request::Unlock { hold } => {
            holds.get(hold)?;
            holds.guards.remove(&hold);
            Response::Done
        }
        Request::Join { path, data, mode } => {
            let file = holds.members.join(client, &path, data, mode, holds.user)?;
            Response::Joined { object: file.0 }
        }
        Request::Leave { object } => holds.members.leave(client, FileId(object)).map(|()| Response::Done)?,
        Request::Hold { hold } => Response::Hold(look(client, holds.get(hold)?)?),
        Request::Locks { path } => {
            let list = client.locks();
            let locks = match path {
                Some(path) => list.on(path.as_os()),
                None => list,
            }
            .wait()?;
            Response::Locks(locks.into_iter().map(Into::into).collect())
        }
        Request::Watch { object } => {
            holds.watcher.get_or_insert_with(|| client.watcher()).watch(FileId(object))?;
            Response::Done
        }
        Request::Unwatch { object } => {
            if let Some(watcher) = &mut holds.watcher {
                watcher.unwatch(FileId(object));
            }
            Response::Done
        }
        Request::Group => return Err(Failure::usage("this is a host's agent, and no member of a group")),
        Request::News { wait_ms } => Response::News(holds.news(Duration::from_millis(wait_ms.min(NEWS_WAIT_MAX_MS)))),
        Request::GetXattr { path, name } => {
            let got = client.get_xattr(path.as_os(), name.as_os()).wait()?;
            Response::Xattr { object: got.version.file.0, version: got.version.number, value: Blob(got.value.to_vec()) }
        }
        Request::ListXattr { path } => {
            let list = client.list_xattr(path.as_os()).wait()?;
            let names = list.names.into_iter().map(Text::from).collect();
            Response::Xattrs { object: list.version.file.0, version: list.version.number, names }
        }
        Request::Batch { items, if_versions } => batch(client, holds.user, items, &if_versions)?,
        Request::Realms { realm } => {
            let realms = realm.map_or_else(|| client.realms(), |realm| client.realm(realm));
            Response::Realms(realms.wait()?.into_iter().map(Into::into).collect())
        }
        Request::Server => Response::Server(client.server_status().wait()?.into()),
        Request::Ping => Response::Pong { round_trip_us: micros(client.ping().wait()?) },
        Request::Lease => Response::Lease(client.lease()?.into()),
        change => mutate(client, holds.user, change)?,
    })
}

fn mutate(client: &Client, user: User, request: Request) -> Result<Response, Failure> {
    let attr = match request {
        Request::Put { path, data, mode, if_version } => {
            let write = user.makes(client.write(path.as_os(), data.0), mode);
            match if_version {
                None => write.wait(),
                Some(0) => return put_new(client, &path, write),
                Some(version) => write.if_version(expectation(client, &Version { path, version })?).wait(),
            }
        }
        Request::SetXattr { path, name, value, rule } => with_rule(client.set_xattr(path.as_os(), name.as_os(), value.0), rule).wait(),
        Request::RemoveXattr { path, name } => client.remove_xattr(path.as_os(), name.as_os()).wait(),
        Request::Create { path, exclusive: false, mode } => user.makes(client.create(path.as_os()), mode).wait(),
        Request::Create { path, exclusive: true, mode } => {
            user.makes(client.create_new(path.as_os()), mode).wait()?;
            client.metadata(path.as_os()).wait()
        }
        Request::Mkdir { path, mode, realm: false } => user.makes(client.create_dir(path.as_os()), mode).wait(),
        Request::Mkdir { path, mode, realm: true } => user.makes(client.create_realm(path.as_os()), mode).wait(),
        Request::SetQuota { path, objects, bytes } => {
            let mut set = client.set_quota(path.as_os());
            if let Some(most) = objects {
                set = set.objects(most);
            }
            if let Some(most) = bytes {
                set = set.bytes(most);
            }
            set.wait()
        }
        Request::Symlink { target, path } => user.makes(client.symlink(target.as_os(), path.as_os()), 0o777).wait(),
        Request::Link { existing, path } => client.hard_link(existing.as_os(), path.as_os()).wait(),
        Request::SetAttr { path, mode, mtime_ns, atime_ns, size } => {
            let mut set = set_metadata(client, &path, mode, size);
            if let Some(ns) = mtime_ns {
                set = set.modified(time(ns));
            }
            if let Some(ns) = atime_ns {
                set = set.accessed(time(ns));
            }
            set.wait()
        }
        Request::Unlink { path, force } => return Ok(unlink(client, &path, force).wait().map(|()| Response::Done)?),
        Request::Rmdir { path } => return Ok(client.remove_dir(path.as_os()).wait().map(|()| Response::Done)?),
        Request::Rename { from, to, rule, force } => {
            return Ok(rename(client, &from, &to, rule, force).wait().map(|()| Response::Done)?);
        }
        other => return Err(Failure::new("INTERNAL", EXIT_SOFTWARE, format!("{other:?} is not a change"))),
    };
    Ok(Response::Attr(attr?.into()))
}

fn unlink(client: &Client, path: &Text, force: bool) -> Op<kinds::Remove> {
    let remove = client.remove_file(path.as_os());
    if force { remove.even_if_locked() } else { remove }
}

fn rename(client: &Client, from: &Text, to: &Text, rule: Rule, force: bool) -> Op<kinds::Rename> {
    let rename = client.rename(from.as_os(), to.as_os());
    let rename = match rule {
        Rule::Replace => rename,
        Rule::NoReplace => rename.no_replace(),
        Rule::Exchange => rename.exchange(),
    };
    if force { rename.even_if_locked() } else { rename }
}

fn with_rule(set: Op<kinds::SetXattr>, rule: AttrRule) -> Op<kinds::SetXattr> {
    match rule {
        AttrRule::Any => set,
        AttrRule::Create => set.if_absent(),
        AttrRule::Replace => set.if_present(),
    }
}

fn set_metadata(client: &Client, path: &Text, mode: Option<u16>, size: Option<u64>) -> Op<kinds::SetMetadata> {
    let mut set = client.set_metadata(path.as_os());
    if let Some(mode) = mode {
        set = set.mode(mode.into());
    }
    if let Some(size) = size {
        set = set.len(size);
    }
    set
}

/// The file of a path, which must have that version now and when the change is made.
fn expectation(client: &Client, wanted: &Version) -> Result<FileVersion, Failure> {
    let Version { path, version } = wanted;
    let now = client.metadata(path.as_os()).wait()?.version();
    if now.number == *version {
        return Ok(now);
    }
    let message = format!("{path}: it has version {now}, not {version}; nothing was changed");
    let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
    Err(Failure { path: Some(path.clone()), ..failure })
}

/// A file that must not exist yet, made with its contents as one.
fn put_new(client: &Client, path: &Text, write: Op<kinds::Write>) -> Result<Response, Failure> {
    match write.if_absent().wait() {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let message = format!("{path}: it exists; nothing was changed");
            let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
            Err(Failure { path: Some(path.clone()), ..failure })
        }
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Response::Attr(client.metadata(path.as_os()).wait()?.into())),
    }
}

fn batch(client: &Client, user: User, items: Vec<Item>, if_versions: &[Version]) -> Result<Response, Failure> {
    let mut batch = client.batch();
    for wanted in if_versions {
        batch = batch.if_version(expectation(client, wanted)?);
    }
    let batch = items.into_iter().fold(batch, |batch, item| match item {
        Item::Create { path, exclusive: false, mode } => batch.add(user.makes(client.create(path.as_os()), mode)),
        Item::Create { path, exclusive: true, mode } => batch.add(user.makes(client.create_new(path.as_os()), mode)),
        Item::Mkdir { path, mode } => batch.add(user.makes(client.create_dir(path.as_os()), mode)),
        Item::Symlink { target, path } => batch.add(user.makes(client.symlink(target.as_os(), path.as_os()), 0o777)),
        Item::Link { existing, path } => batch.add(client.hard_link(existing.as_os(), path.as_os())),
        Item::Unlink { path, force } => batch.add(unlink(client, &path, force)),
        Item::Rmdir { path } => batch.add(client.remove_dir(path.as_os())),
        Item::Rename { from, to, rule, force } => batch.add(rename(client, &from, &to, rule, force)),
        Item::SetAttr { path, mode, size } => batch.add(set_metadata(client, &path, mode, size)),
        Item::Write { path, offset, data, truncate } => {
            let write = client.write(path.as_os(), data.0).at(offset);
            batch.add(if truncate { write.truncate() } else { write })
        }
        Item::SetXattr { path, name, value, rule } => batch.add(with_rule(client.set_xattr(path.as_os(), name.as_os(), value.0), rule)),
        Item::RemoveXattr { path, name } => batch.add(client.remove_xattr(path.as_os(), name.as_os())),
    });
    Ok(Response::Batched(batch.wait()?.into_iter().map(Into::into).collect()))
}

/// `wait_ms`: `None` waits for as long as it takes, 0 only tries.
pub(crate) fn lock(client: &Client, path: &Text, shared: bool, wait_ms: Option<u64>) -> Op<kinds::Lock> {
    let request = client.lock(path.as_os());
    let request = if shared { request.shared() } else { request };
    match wait_ms {
        None => request,
        Some(0) => request.try_once(),
        Some(ms) => request.timeout(Duration::from_millis(ms)),
    }
}

fn look(client: &Client, guard: &Guard) -> Result<Hold, Failure> {
    let (state, until) = match guard.valid_until() {
        //= wire-spec.md#11-1-lease
        //# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
        Some(until) => ("certain", Some(Until { clock_monotonic_raw_ns: until.raw_ns, clock_boottime_ns: until.boot_ns })),
        None if guard.state() == LockState::Lost => ("lost", None),
        None => ("uncertain", None),
    };
    Ok(Hold { state: state.to_owned(), until, lease_ms: millis(client.lease()?.lease) })
}
