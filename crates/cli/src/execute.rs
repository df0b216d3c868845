//! Carries out a local request with a client.
//!
//! Decides: which call of the client library each request is, and how its errors are named and numbered for programs.
//! Leaves to others: where the request came from.

use crate::local::{AttrRule, Failure, Hold, Item, News, Request, Response, Rule, Until, Version, micros, millis};
use crate::members::{Claims, Members};
use crate::neighbours::Neighbours;
use crate::text::{Blob, Text};
use cistern_client::{
    AddressError, AttrChange, Batch, Client, Error, Expect, Guard, GuardState, LockRequest, ObjectId, Ownership, RenameRule, Status,
    Watcher, XattrList, XattrRule, XattrValue,
};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

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
        let (code, exit) = match &error {
            Error::Status { status: Status::VERSION_CHANGED, .. } | Error::Item { status: Status::VERSION_CHANGED, .. } => {
                (Status::VERSION_CHANGED.name(), EXIT_PRECONDITION)
            }
            Error::Status { status, .. } | Error::Item { status, .. } => (status.name(), EXIT_FAILED),
            Error::TimedOut { .. } => ("TIMED_OUT", EXIT_FAILED),
            Error::LeaseLost { .. } => ("LEASE_LOST", EXIT_FAILED),
            Error::Unreachable { .. } => ("UNREACHABLE", EXIT_UNAVAILABLE),
            Error::Refused { .. } => ("REFUSED", EXIT_UNAVAILABLE),
            Error::AnotherServer { .. } => ("ANOTHER_SERVER", EXIT_UNAVAILABLE),
            Error::Address(AddressError::Unknown { .. }) => ("UNKNOWN_HOST", EXIT_UNAVAILABLE),
            Error::OutcomeUnknown { .. } => ("OUTCOME_UNKNOWN", EXIT_UNKNOWN),
            Error::NoServer | Error::Address(_) | Error::Settings(_) | Error::State { .. } => ("USAGE", EXIT_USAGE),
            _ => ("INTERNAL", EXIT_SOFTWARE),
        };
        let item = if let Error::Item { item, .. } = error { Some(item) } else { None };
        let path = match &error {
            Error::Status { what, .. } | Error::TimedOut { what } | Error::LeaseLost { what } | Error::OutcomeUnknown { what } => {
                Some(what.as_str()).filter(|what| what.starts_with('/')).map(Text::from)
            }
            _ => None,
        };
        Self { code: code.to_owned(), message: error.to_string(), path, item, exit }
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

impl Failure {
    pub(crate) fn new(code: &str, exit: u8, message: impl Into<String>) -> Self {
        Self { code: code.to_owned(), message: message.into(), path: None, item: None, exit }
    }

    /// The same with the exit status of a precondition, if it is `code` that says that it does not hold.
    pub(crate) fn precondition(self, code: Status) -> Self {
        if self.code == code.name() { Self { exit: EXIT_PRECONDITION, ..self } } else { self }
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new("USAGE", EXIT_USAGE, message)
    }

    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self::new("FAILED", EXIT_FAILED, message)
    }
}

/// Who owns what this process makes: the user that runs it.
pub(crate) fn ownership(mode: u16) -> Ownership {
    User::this().owning(mode)
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

    const fn owning(self, mode: u16) -> Ownership {
        Ownership { mode, uid: self.uid, gid: self.gid }
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
        let (token, object) = (guard.token(), guard.object().0);
        let guard = Arc::new(guard);
        self.neighbours.add(&guard);
        self.guards.insert(self.next, guard);
        Response::Locked { hold: self.next, token, object }
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
        let mut news: Vec<News> = watcher.wait_event(wait).map(News::from).into_iter().collect();
        while news.len() < NEWS_MAX
            && let Some(seen) = watcher.wait_event(Duration::ZERO)
        {
            news.push(seen.into());
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
        Request::Stat { path, follow: true } => Response::Attr(client.stat(path.as_os()).wait()?.into()),
        Request::Stat { path, follow: false } => Response::Attr(client.lstat(path.as_os()).wait()?.into()),
        Request::List { path, detail } => {
            let directory = client.list(path.as_os(), detail).wait()?;
            Response::Listing(directory.entries.into_iter().map(Into::into).collect())
        }
        Request::Read { path } => data(client.read(path.as_os()).wait()?),
        Request::ReadLink { path } => data(client.read_link(path.as_os()).wait()?),
        Request::Lock { path, shared, wait_ms, .. } => holds.keep(lock(client, &path, shared, wait_ms).wait()?),
        Request::Unlock { hold } => {
            holds.get(hold)?;
            holds.guards.remove(&hold);
            Response::Done
        }
        Request::Join { path, data, mode } => {
            let object = holds.members.join(client, &path, data, holds.user.owning(mode))?;
            Response::Joined { object: object.0 }
        }
        Request::Leave { object } => holds.members.leave(client, ObjectId(object)).map(|()| Response::Done)?,
        Request::Hold { hold } => Response::Hold(look(client, holds.get(hold)?)?),
        Request::Locks { path } => {
            let locks = client.locks(path.as_ref().map(Text::as_os)).wait()?;
            Response::Locks(locks.into_iter().map(Into::into).collect())
        }
        Request::Watch { object } => {
            holds.watcher.get_or_insert_with(|| client.watcher()).watch(ObjectId(object))?;
            Response::Done
        }
        Request::Unwatch { object } => {
            if let Some(watcher) = &mut holds.watcher {
                watcher.unwatch(ObjectId(object));
            }
            Response::Done
        }
        Request::News { wait_ms } => Response::News(holds.news(Duration::from_millis(wait_ms.min(NEWS_WAIT_MAX_MS)))),
        Request::GetXattr { path, name } => {
            let XattrValue { object, version, value } = client.get_xattr(path.as_os(), name.0).wait()?;
            Response::Xattr { object: object.0, version, value: Blob(value.to_vec()) }
        }
        Request::ListXattr { path } => {
            let XattrList { object, version, names } = client.list_xattr(path.as_os()).wait()?;
            let names = names.into_iter().map(|name| Text(name.to_vec())).collect();
            Response::Xattrs { object: object.0, version, names }
        }
        Request::Batch { items, if_versions } => batch(client, holds.user, items, &if_versions)?,
        Request::Server => Response::Server(client.server_status().wait()?.into()),
        Request::Ping => Response::Pong { round_trip_us: micros(client.ping().wait()?) },
        Request::Lease => Response::Lease(client.lease()?.into()),
        change => mutate(client, holds.user, change)?,
    })
}

fn mutate(client: &Client, user: User, request: Request) -> Result<Response, Failure> {
    let attr = match request {
        Request::Put { path, data, mode, if_version: None } => client.put(path.as_os(), data.0, user.owning(mode)),
        Request::Put { path, data, mode, if_version: Some(0) } => return put_new(client, &path, data, user.owning(mode)),
        Request::Put { path, data, if_version: Some(version), .. } => {
            let expect = expectation(client, &Version { path: path.clone(), version })?;
            // The very file whose version was looked at, whatever the path leads to by now.
            client.expecting([expect]).replace(expect.object, data.0)
        }
        Request::SetXattr { path, name, value, rule } => client.set_xattr(path.as_os(), name.0, value.0, attr_rule(rule)),
        Request::RemoveXattr { path, name } => client.remove_xattr(path.as_os(), name.0),
        Request::Create { path, exclusive, mode } => client.create(path.as_os(), exclusive, user.owning(mode)),
        Request::Mkdir { path, mode } => client.mkdir(path.as_os(), user.owning(mode)),
        Request::Symlink { target, path } => client.symlink(target.as_os(), path.as_os(), user.owning(0o777)),
        Request::Link { existing, path } => client.link(existing.as_os(), path.as_os()),
        Request::SetAttr { path, mode, mtime_ns, atime_ns, size } => {
            client.set_attr(path.as_os(), AttrChange { mode, mtime_ns, atime_ns, size, ..AttrChange::default() })
        }
        Request::Unlink { path, force } => return Ok(client.unlink(path.as_os(), force).wait().map(|()| Response::Done)?),
        Request::Rmdir { path } => return Ok(client.rmdir(path.as_os()).wait().map(|()| Response::Done)?),
        Request::Rename { from, to, rule, force } => {
            return Ok(client.rename(from.as_os(), to.as_os(), rename_rule(rule), force).wait().map(|()| Response::Done)?);
        }
        other => return Err(Failure::new("INTERNAL", EXIT_SOFTWARE, format!("{other:?} is not a change"))),
    };
    Ok(Response::Attr(attr.wait()?.into()))
}

const fn rename_rule(rule: Rule) -> RenameRule {
    match rule {
        Rule::Replace => RenameRule::Replace,
        Rule::NoReplace => RenameRule::NoReplace,
        Rule::Exchange => RenameRule::Exchange,
    }
}

const fn attr_rule(rule: AttrRule) -> XattrRule {
    match rule {
        AttrRule::Any => XattrRule::Any,
        AttrRule::Create => XattrRule::Create,
        AttrRule::Replace => XattrRule::Replace,
    }
}

/// The object of a path, which must have that version now and when the change is made.
fn expectation(client: &Client, wanted: &Version) -> Result<Expect, Failure> {
    let Version { path, version } = wanted;
    let now = client.stat(path.as_os()).wait()?;
    if now.version == *version {
        return Ok(Expect { object: now.object, version: *version });
    }
    let message = format!("{path}: it has version {}, not {version}; nothing was changed", now.version);
    let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
    Err(Failure { path: Some(path.clone()), ..failure })
}

/// A file that must not exist yet, made with its contents as one.
fn put_new(client: &Client, path: &Text, data: Blob, owner: Ownership) -> Result<Response, Failure> {
    let both = Batch::new().create(path.as_os(), true, owner).write(path.as_os(), 0, data.0, false);
    match client.batch(both).wait() {
        Err(Error::Item { status: Status::EEXIST, .. }) => {
            let message = format!("{path}: it exists; nothing was changed");
            let failure = Failure::new(Status::VERSION_CHANGED.name(), EXIT_PRECONDITION, message);
            Err(Failure { path: Some(path.clone()), ..failure })
        }
        Err(Error::Item { status, .. }) => Err(Error::Status { what: path.to_string(), status }.into()),
        Err(error) => Err(error.into()),
        Ok(_) => Ok(Response::Attr(client.stat(path.as_os()).wait()?.into())),
    }
}

fn batch(client: &Client, user: User, items: Vec<Item>, if_versions: &[Version]) -> Result<Response, Failure> {
    let expect = if_versions.iter().map(|wanted| expectation(client, wanted)).collect::<Result<Vec<_>, _>>()?;
    let batch = items.into_iter().fold(Batch::new(), |batch, item| match item {
        Item::Create { path, exclusive, mode } => batch.create(path.as_os(), exclusive, user.owning(mode)),
        Item::Mkdir { path, mode } => batch.mkdir(path.as_os(), user.owning(mode)),
        Item::Symlink { target, path } => batch.symlink(target.as_os(), path.as_os(), user.owning(0o777)),
        Item::Link { existing, path } => batch.link(existing.as_os(), path.as_os()),
        Item::Unlink { path, force } => batch.unlink(path.as_os(), force),
        Item::Rmdir { path } => batch.rmdir(path.as_os()),
        Item::Rename { from, to, rule, force } => batch.rename(from.as_os(), to.as_os(), rename_rule(rule), force),
        Item::SetAttr { path, mode, size } => batch.set_attr(path.as_os(), AttrChange { mode, size, ..AttrChange::default() }),
        Item::Write { path, offset, data, truncate } => batch.write(path.as_os(), offset, data.0, truncate),
        Item::SetXattr { path, name, value, rule } => batch.set_xattr(path.as_os(), name.0, value.0, attr_rule(rule)),
        Item::RemoveXattr { path, name } => batch.remove_xattr(path.as_os(), name.0),
    });
    let results = if expect.is_empty() { client.batch(batch).wait()? } else { client.expecting(expect).batch(batch).wait()? };
    Ok(Response::Batched(results.into_iter().map(Into::into).collect()))
}

fn data(contents: cistern_client::Contents) -> Response {
    Response::Data { attr: contents.attr.into(), data: Blob(contents.data.to_vec()) }
}

/// `wait_ms`: `None` waits for as long as it takes, 0 only tries.
pub(crate) fn lock(client: &Client, path: &Text, shared: bool, wait_ms: Option<u64>) -> LockRequest {
    let request = client.lock(path.as_os());
    let request = if shared { request.shared() } else { request };
    match wait_ms {
        None => request,
        Some(0) => request.try_once(),
        Some(ms) => request.at_most(Duration::from_millis(ms)),
    }
}

fn look(client: &Client, guard: &Guard) -> Result<Hold, Failure> {
    let (state, until) = match guard.state() {
        //= wire-spec.md#11-1-lease
        //# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
        GuardState::Certain { valid_until, .. } => {
            ("certain", Some(Until { clock_monotonic_raw_ns: valid_until.raw_ns, clock_boottime_ns: valid_until.boot_ns }))
        }
        GuardState::Uncertain => ("uncertain", None),
        GuardState::Lost => ("lost", None),
    };
    Ok(Hold { state: state.to_owned(), until, lease_ms: millis(client.lease()?.lease) })
}
