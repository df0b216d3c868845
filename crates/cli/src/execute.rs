//! Carries out a local request with a client.
//!
//! Decides: which call of the client library each request is, and how its errors are named and numbered for programs.
//! Leaves to others: where the request came from.

mod changes;

use crate::bell::wait_for_call;
use crate::local::{Failure, Hold, KeptLease, News, Request, Response, TakenItem, Until, micros, millis};
use crate::members::{Claims, Members};
use crate::neighbours::Neighbours;
use crate::signals::End;
use crate::text::{Blob, Text};
use changes::Changing;
use cistern_client::{
    Client, Creation, Entered, Error, ErrorKind, FileId, Guard, LockState, Mutation, Op, Operation, QueueItem, Slot, Watcher, kinds,
};
use cistern_wire::Status;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Most news at a time.
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

/// The change, to be made only while that lock is held under its token.
pub(crate) fn under<K: Mutation>(op: Op<K>, guard: Option<&Guard>) -> Op<K> {
    match guard {
        Some(guard) => op.guarded_by(guard),
        None => op,
    }
}

/// What the programs of one agent know of each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    claims: Claims,
    neighbours: Neighbours,
}

/// One local program: who runs it, and its ephemeral files.
#[derive(Debug)]
pub(crate) struct Program {
    user: User,
    pub(crate) members: Members,
}

/// The locks and watches of one local program; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct Holds {
    next: u64,
    guards: BTreeMap<u64, Arc<Guard>>,
    entered: BTreeMap<u64, Entered>,
    neighbours: Neighbours,
    /// Its watches, once there was one.
    watcher: Option<Watcher>,
}

/// How a program waits while a request of its is carried out, and what it holds meanwhile.
pub(crate) trait Waits {
    /// Carries out an operation, and returns when it has ended.
    ///
    /// # Errors
    /// Why it failed, or was given up.
    fn wait<K: Operation>(&mut self, op: Op<K>) -> Result<K::Output, Error>;

    fn held(&mut self) -> &mut Holds;
}

/// Of a program that does nothing else meanwhile.
impl Waits for Holds {
    fn wait<K: Operation>(&mut self, op: Op<K>) -> Result<K::Output, Error> {
        op.wait()
    }

    fn held(&mut self) -> &mut Self {
        self
    }
}

/// Of a program that gives up what has not ended by then.
struct Within<'a> {
    held: &'a mut Holds,
    end: &'a End,
    until: Option<Instant>,
}

impl Waits for Within<'_> {
    fn wait<K: Operation>(&mut self, op: Op<K>) -> Result<K::Output, Error> {
        let mut call = op.start();
        match wait_for_call(&mut call, self.end, self.until) {
            Ok(Some(result)) => result,
            Ok(None) => call.cancel(),
            // Without descriptors it is waited for without the end.
            Err(_) => call.wait(),
        }
    }

    fn held(&mut self) -> &mut Holds {
        self.held
    }
}

impl Programs {
    /// One more program.
    pub(crate) fn enter(self, user: User) -> (Program, Holds) {
        let Self { claims, neighbours } = self;
        (Program { user, members: Members::of(claims) }, Holds { neighbours, ..Holds::default() })
    }
}

/// A program that has an agent of its own.
#[derive(Debug)]
pub(crate) struct Own {
    program: Program,
    held: Holds,
}

impl Default for Own {
    fn default() -> Self {
        let (program, held) = Programs::default().enter(User::this());
        Self { program, held }
    }
}

impl Own {
    /// Carries out one request; blocks until its end.
    pub(crate) fn execute(&mut self, client: &Client, request: Request) -> Result<Response, Failure> {
        execute(client, &mut self.program, &mut self.held, None, request)
    }

    /// Keeps a lock; its hold.
    pub(crate) fn keep(&mut self, granted: GrantedLock) -> Result<(u64, Arc<Guard>), Failure> {
        let (hold, _) = self.held.keep(granted);
        Ok((hold, Arc::clone(self.held.get(hold)?)))
    }

    /// Carries out a request, a change of files under that hold; gives it up at `until`, and when the process is asked to end.
    pub(crate) fn execute_within(
        &mut self,
        client: &Client,
        (request, guard): (Request, Option<u64>),
        (end, until): (&End, Option<Instant>),
    ) -> Result<Response, Failure> {
        let Self { program, held } = self;
        execute(client, program, &mut Within { held, end, until }, guard, request)
    }

    /// What has become of the watched objects since this was asked last; waits at most so long for something.
    pub(crate) fn news(&mut self, wait: Duration) -> Vec<News> {
        let begun = Instant::now();
        let first = self.held.watcher.as_ref().and_then(|watcher| watcher.events().next_timeout(wait));
        if first.is_none() {
            // Of what is gone nothing is told, and that at once.
            std::thread::sleep(wait.saturating_sub(begun.elapsed()));
        }
        let rest = || self.held.watcher.as_ref()?.events().next_timeout(Duration::ZERO);
        first.into_iter().chain(std::iter::from_fn(rest).take(NEWS_MAX)).map(News::from).collect()
    }
}

impl Holds {
    /// Gives back everything.
    pub(crate) fn let_go(&mut self) {
        self.guards.clear();
        self.entered.clear();
        self.watcher = None;
    }

    /// Keeps a lock; its hold.
    pub(crate) fn keep(&mut self, GrantedLock { guard, slot, item }: GrantedLock) -> (u64, Response) {
        self.next += 1;
        let (token, object) = (guard.token().0, guard.file().0);
        let guard = Arc::new(guard);
        self.neighbours.add(&guard);
        self.guards.insert(self.next, guard);
        (self.next, Response::Locked { hold: self.next, token, object, basis: None, slot, item })
    }

    /// Keeps what a program has waited for.
    pub(crate) fn keep_obtained(&mut self, obtained: Obtained) -> Response {
        match obtained {
            Obtained::Lock(granted) => self.keep(granted).1,
            Obtained::Entered(entered) => {
                self.next += 1;
                let round = entered.round();
                self.entered.insert(self.next, entered);
                Response::Entered { hold: self.next, round }
            }
            Obtained::Left => Response::Done {},
        }
    }

    /// Leaves a round of a barrier: what is waited for then.
    pub(crate) fn exit(&mut self, hold: u64) -> Result<Awaited<Obtained>, Failure> {
        let unknown = || Failure::failed(format!("hold {hold} is not a round of a barrier that this connection is in"));
        let left = self.entered.remove(&hold).ok_or_else(unknown)?.leave();
        Ok(Box::pin(async { Ok(left.await.map(|()| Obtained::Left)?) }))
    }

    /// Whether it has no lock.
    pub(crate) fn is_empty(&self) -> bool {
        self.guards.is_empty()
    }

    /// Whether nothing would end with it, neither lock nor watch.
    pub(crate) fn ends_unseen(&self) -> bool {
        self.guards.is_empty() && self.entered.is_empty() && self.watcher.is_none()
    }

    pub(crate) const fn watcher(&self) -> Option<&Watcher> {
        self.watcher.as_ref()
    }

    /// How a lock stands.
    ///
    /// # Errors
    /// There is none of that number, or the client is broken.
    pub(crate) fn look(&self, client: &Client, hold: u64) -> Result<Hold, Failure> {
        let guard = self.get(hold)?;
        let (state, until) = match guard.valid_until() {
            //= wire-spec.md#11-1-lease
            //# The end of the lease, as told to users, MUST be an instant on a named clock, not a span.
            Some(until) => ("certain", Some(Until { clock_monotonic_raw_ns: until.raw_ns, clock_boottime_ns: until.boot_ns })),
            None if guard.state() == LockState::Lost => ("lost", None),
            None => ("uncertain", None),
        };
        Ok(Hold { state: state.to_owned(), until, lease_ms: millis(client.lease()?.lease) })
    }

    pub(crate) fn get(&self, hold: u64) -> Result<&Arc<Guard>, Failure> {
        self.guards.get(&hold).ok_or_else(|| Failure::failed(format!("hold {hold} is not one of this connection's")))
    }
}

/// Carries out one request, to its end; a change under the lock of the hold `guard`, if one is named.
pub(crate) fn execute<W: Waits>(
    client: &Client,
    program: &mut Program,
    waits: &mut W,
    guard: Option<u64>,
    request: Request,
) -> Result<Response, Failure> {
    let held = waits.held();
    let (neighbours, own): (_, Vec<_>) = (held.neighbours.clone(), held.guards.values().cloned().collect());
    let guard = guard.map(|hold| held.get(hold).cloned()).transpose()?;
    neighbours.check(client, waits, &own, &request)?;
    Ok(match request {
        Request::Stat { path, follow: true } => Response::Attr(waits.wait(client.metadata(path.as_os()))?.into()),
        Request::Stat { path, follow: false } => Response::Attr(waits.wait(client.symlink_metadata(path.as_os()))?.into()),
        Request::List { path, detail } => {
            let list = client.read_dir(path.as_os());
            let directory = waits.wait(if detail { list.with_metadata() } else { list })?;
            Response::Listing(directory.entries.into_iter().map(Into::into).collect())
        }
        Request::Read { path } => waits.wait(client.read(path.as_os()))?.into(),
        Request::ReadLink { path } => Response::Link(waits.wait(client.read_link(path.as_os()))?.into_os_string().into()),
        Request::Lock { .. } | Request::Take { .. } | Request::Enter { .. } | Request::Exit { .. } => {
            return Err(Failure::new("INTERNAL", EXIT_SOFTWARE, "what is waited for is asked for elsewhere"));
        }
        Request::Unlock { hold } => {
            let held = waits.held();
            held.get(hold)?;
            held.guards.remove(&hold);
            Response::Done {}
        }
        Request::Join { path, data, mode } => {
            let file = program.members.join(client, waits, (&path, data, mode), (program.user, guard.as_deref()))?;
            Response::Joined { object: file.0 }
        }
        Request::Leave { object } => program.members.leave(client, waits, FileId(object)).map(|()| Response::Done {})?,
        Request::Hold { hold } => Response::Hold(waits.held().look(client, hold)?),
        Request::Locks { path } => {
            let list = client.locks();
            let locks = waits.wait(match path {
                Some(path) => list.on(path.as_os()),
                None => list,
            })?;
            Response::Locks(locks.into_iter().map(Into::into).collect())
        }
        Request::Watch { object } => {
            waits.held().watcher.get_or_insert_with(|| client.watcher()).watch(FileId(object))?;
            Response::Done {}
        }
        Request::Unwatch { object } => {
            if let Some(watcher) = &mut waits.held().watcher {
                watcher.unwatch(FileId(object));
            }
            Response::Done {}
        }
        Request::Group => return Err(Failure::usage("this is a host's agent, and no member of a group")),
        Request::GetXattr { path, name } => {
            let got = waits.wait(client.get_xattr(path.as_os(), name.as_os()))?;
            Response::Xattr { object: got.version.file.0, version: got.version.number, value: Blob(got.value.to_vec()) }
        }
        Request::ListXattr { path } => {
            let list = waits.wait(client.list_xattr(path.as_os()))?;
            let names = list.names.into_iter().map(Text::from).collect();
            Response::Xattrs { object: list.version.file.0, version: list.version.number, names }
        }
        Request::LeaseKeep { lease, secret } => {
            let until = waits.wait(client.keep_lease(lease.as_os(), &secret.0))?;
            Response::KeptLease(KeptLease::of(until, client.now()))
        }
        Request::Leases { lease } => {
            let list = lease.map_or_else(|| client.leases(), |lease| client.lease_files(lease.as_os()));
            Response::Leases(waits.wait(list)?.into_iter().map(Into::into).collect())
        }
        Request::Realms { realm } => {
            let realms = waits.wait(realm.map_or_else(|| client.realms(), |realm| client.realm(realm)))?;
            Response::Realms(realms.into_iter().map(Into::into).collect())
        }
        Request::Server => Response::Server(waits.wait(client.server_status())?.into()),
        Request::Ping => Response::Pong { round_trip_us: micros(waits.wait(client.ping())?) },
        Request::Lease => Response::Lease(client.lease()?.into()),
        change => Changing { client, user: program.user, waits, guard: guard.as_deref() }.change(change)?,
    })
}

/// A lock as it was granted.
pub(crate) struct GrantedLock {
    pub(crate) guard: Guard,
    /// Of a semaphore: which slot it is.
    pub(crate) slot: Option<u32>,
    /// Of a queue: which item it is on.
    pub(crate) item: Option<TakenItem>,
}

impl From<Guard> for GrantedLock {
    fn from(guard: Guard) -> Self {
        Self { guard, slot: None, item: None }
    }
}

impl From<Slot> for GrantedLock {
    fn from(slot: Slot) -> Self {
        let number = slot.number();
        Self { slot: Some(number), ..slot.into_guard().into() }
    }
}

impl From<QueueItem> for GrantedLock {
    fn from(item: QueueItem) -> Self {
        let (name, data) = (Text::from(item.name().to_owned()), Blob(item.data().to_vec()));
        let item_of = TakenItem { name, version: item.version().number, data };
        Self { item: Some(item_of), ..item.into_guard().into() }
    }
}

/// What is waited for, beside whatever else its program asks; given up when dropped.
pub(crate) type Awaited<T> = Pin<Box<dyn Future<Output = Result<T, Failure>> + Send>>;

/// A lock that is waited for.
pub(crate) type Granting = Awaited<GrantedLock>;

/// What a program of an agent has waited for.
pub(crate) enum Obtained {
    Lock(GrantedLock),
    /// A round of a barrier, in which it is.
    Entered(Entered),
    /// Nobody is in that round any more.
    Left,
}

/// Which lock, and for how long it is waited for.
#[derive(Clone, Debug)]
pub(crate) struct LockTerms {
    pub(crate) path: Text,
    pub(crate) what: LockKind,
    /// `None`: as long as it takes; 0: not at all.
    pub(crate) wait_ms: Option<u64>,
}

/// What a lock is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockKind {
    Exclusive,
    Shared,
    /// One of so many slots of the semaphore at the path.
    Slot(u32),
    /// The first item of the queue at the path that can be had.
    Item,
}

impl LockTerms {
    /// Asks for it.
    pub(crate) fn ask(&self, client: &Client) -> Granting {
        fn granting<T: Into<GrantedLock>>(asked: impl Future<Output = Result<T, Error>> + Send + 'static) -> Granting {
            Box::pin(async { asked.await.map(Into::into).map_err(Failure::from) })
        }
        let wait = self.wait_ms.map(Duration::from_millis);
        let lock = |lock: Op<kinds::Lock>| match wait {
            None => granting(lock.start()),
            Some(Duration::ZERO) => granting(lock.try_once().start()),
            Some(wait) => granting(lock.timeout(wait).start()),
        };
        match self.what {
            LockKind::Exclusive => lock(client.lock(self.path.as_os())),
            LockKind::Shared => lock(client.lock(self.path.as_os()).shared()),
            LockKind::Slot(slots) => {
                let semaphore = client.semaphore(self.path.as_os(), slots);
                granting(match wait {
                    None => semaphore.acquire(),
                    Some(Duration::ZERO) => semaphore.try_acquire(),
                    Some(wait) => semaphore.acquire_timeout(wait),
                })
            }
            LockKind::Item => {
                let queue = client.queue(self.path.as_os());
                // How long an item is waited for at most, whoever waits knows.
                if wait != Some(Duration::ZERO) {
                    return granting(queue.take());
                }
                let none = Failure::new("EAGAIN", EXIT_FAILED, format!("{}: there is no item that can be taken", self.path));
                Box::pin(async move { queue.try_take().await?.map(Into::into).ok_or(none) })
            }
        }
    }
}
