//! One session as a capture shows it: what was sent in it and when, what was asked, answered, told and given back.
//!
//! Decides what is remembered of a session and for how long. Place in the walk: under `story`, which brings it up to date.
//! Invariant: every table has a bound; what falls out of one raises the mark below which nothing is known any more.
//! Leaves to others: what a message does (`up`, `down`), locks (`locks`), whether it is right (the rules).

use crate::event::HostId;
use crate::verdict::Why;
use cistern_wire::{AgentId, EndReason, Generation, Keep, Kind, LockId, LockWait, Mode, ObjectId, ReclaimItem, ReplyKind, SessionId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// Most transmissions, requests, control messages and notices remembered of a session and direction, each.
pub(super) const KEPT_MAX: usize = 8_192;

/// Most addresses remembered of a session.
pub(super) const PATHS_MAX: usize = 64;

/// Most locks of which is remembered what a session was given and gave back.
const LOCKS_MAX: usize = 65_536;

/// A numbered table that keeps the newest entries.
#[derive(Clone, Debug)]
pub(crate) struct Kept<T> {
    all: BTreeMap<u64, T>,
    /// Entries up to this number may have been forgotten; 0: none was.
    forgotten: u64,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), forgotten: 0 }
    }
}

impl<T> Kept<T> {
    pub(crate) fn get(&self, number: u64) -> Option<&T> {
        self.all.get(&number)
    }

    pub(crate) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        self.all.get_mut(&number)
    }

    pub(crate) fn put(&mut self, number: u64, entry: T) {
        self.all.insert(number, entry);
        self.shrink(KEPT_MAX);
    }

    /// Keeps the newest so many entries.
    pub(crate) fn shrink(&mut self, most: usize) {
        while self.all.len() > most
            && let Some((number, _)) = self.all.pop_first()
        {
            self.forgotten = self.forgotten.max(number);
        }
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    /// Whether any was forgotten.
    pub(crate) const fn is_short(&self) -> bool {
        self.forgotten > 0
    }

    pub(crate) const fn may_be_forgotten(&self, number: u64) -> bool {
        number <= self.forgotten
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (u64, &T)> {
        self.all.iter().map(|(number, entry)| (*number, entry))
    }

    pub(crate) fn last(&self) -> u64 {
        self.all.last_key_value().map_or(0, |(number, _)| *number)
    }
}

/// Where in a capture something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The frame.
    pub frame: u64,
    /// When it passed.
    pub at: Duration,
    /// Its packet number.
    pub packet: u64,
}

/// A message in a transmission, by what an answer names of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carried {
    pub(crate) kind: Kind,
    /// Nonce, serial or number of the notice.
    pub(crate) number: u64,
    /// Of a request, the limit that it names for its answer.
    pub(crate) limit: u16,
}

/// One datagram of a session.
#[derive(Clone, Debug)]
pub(crate) struct Transmission {
    pub(crate) mark: Mark,
    pub(crate) length: usize,
    pub(crate) sum: u64,
    pub(crate) carried: Vec<Carried>,
    /// What of it was answered for good: kind of the answer, its number, and in which frame.
    pub(crate) answered: Vec<(Kind, u64, u64)>,
    /// The earliest that it can have been sent, if anything shows it.
    pub(crate) not_before: Option<Duration>,
}

/// What a request asked for, as far as its answer must fit it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Lock { object: ObjectId, mode: Mode, wait: LockWait },
    Reclaim { from: SessionId, items: Vec<ReclaimItem> },
    ReclaimComplete { from: SessionId },
    Outcome { session: SessionId, nonce: u64 },
    Batch { items: usize },
    Object(ObjectId),
    Nothing,
}

impl Asked {
    const fn weight(&self) -> usize {
        if let Self::Reclaim { items, .. } = self { items.len() } else { 0 }
    }
}

/// What a request was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Replied {
    pub(crate) mark: Mark,
    pub(crate) kind: ReplyKind,
    /// The reply's bytes in short, and without the grants in it.
    pub(crate) sum: u64,
    pub(crate) bare: u64,
    /// Whether a RESULT said it, without the grants.
    pub(crate) is_bare: bool,
    /// Whether it says that the request was not executed and never will be (BUSY, IN_GRACE, ECANCELED).
    pub(crate) refused: bool,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) kind: Kind,
    pub(crate) first: Mark,
    pub(crate) transmissions: u32,
    pub(crate) sum: u64,
    pub(crate) asked: Asked,
    pub(crate) limit_max: u16,
    /// The newest generation of the store that had been seen when it was first sent.
    pub(crate) generation_then: u64,
    pub(crate) replied: Option<Replied>,
    pub(crate) queued: Option<Mark>,
    /// The grant that ended its wait, and the number of the notice that told of it first.
    pub(crate) granted: Option<(Generation, u64)>,
    pub(crate) cancelled: Option<Mark>,
    /// The number of the first WAIT_OVER.
    pub(crate) wait_over: Option<u64>,
    pub(crate) not_executed: Option<Mark>,
}

/// A control message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Control {
    pub(crate) kind: Kind,
    pub(crate) first: Mark,
    pub(crate) transmissions: u32,
    pub(crate) sum: u64,
    /// The request that a CANCEL names; 0 in others.
    pub(crate) cancels: u64,
}

/// A notice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Notice {
    pub(crate) kind: Kind,
    pub(crate) first: Mark,
    pub(crate) last: Duration,
    pub(crate) sum: u64,
    pub(crate) transmissions: u32,
    pub(crate) lock: Option<(LockId, Generation)>,
    pub(crate) object: ObjectId,
    pub(crate) receipted: Option<Duration>,
    /// What it asks for was given back or refused under another number, or a newer one took its place (section 11.3).
    pub(crate) implied: bool,
    /// When its agent was first seen to send something although it was long due, and whether that was told.
    pub(crate) overdue: Option<(Duration, bool)>,
    /// How long the server had certainly listened when it was sent last.
    pub(crate) listened: Duration,
}

/// What a session was given of one lock, and what it gave back.
#[derive(Clone, Debug, Default)]
pub(crate) struct Own {
    /// The newest generations given.
    pub(crate) given: Vec<Generation>,
    /// Generations that a CANCELLED has named.
    pub(crate) told: Vec<Generation>,
    /// Whether older ones were forgotten.
    pub(crate) more: bool,
    /// Up to which generation it was given back or disowned, and by which packet.
    pub(crate) disowned: Option<(Generation, u64)>,
}

/// Generations of one lock that are remembered of a session.
const GIVEN_MAX: usize = 16;

/// What WELCOME promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The lease period τ.
    pub tau: Duration,
    /// The bound δ, in parts per million.
    pub delta_ppm: u32,
    /// How long the server waits, T = τ(1+δ)+ε rounded up.
    pub wait: Duration,
    /// The delivery timeout Td; zero if it was not seen.
    pub delivery_timeout: Duration,
    /// The window W; 0 if it was not seen.
    pub window: u16,
    /// The largest datagram; 0 if it was not seen.
    pub max_datagram: u16,
}

impl Promise {
    /// The promise of these numbers.
    #[must_use]
    pub fn new(tau: Duration, delta_ppm: u32, epsilon: Duration) -> Self {
        let margin = (tau.as_nanos() * u128::from(delta_ppm)).div_ceil(1_000_000);
        let wait = tau + Duration::from_nanos(u64::try_from(margin).unwrap_or(u64::MAX)) + epsilon;
        Self { tau, delta_ppm, wait, delivery_timeout: Duration::ZERO, window: 0, max_datagram: 0 }
    }

    /// The least that τ on one clock can be on another.
    pub(crate) fn least(&self) -> Duration {
        let ns = self.tau.as_nanos() * 1_000_000 / u128::from(1_000_000 + self.delta_ppm);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The least that T on the server's clock can be on another.
    pub(crate) fn shortest_wait(&self) -> Duration {
        let ns = self.wait.as_nanos() * 1_000_000 / u128::from(1_000_000 + self.delta_ppm);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// The most that τ on one clock can be on another.
    pub(crate) fn most(&self) -> Duration {
        let ns = (self.tau.as_nanos() * u128::from(1_000_000 + self.delta_ppm)).div_ceil(1_000_000);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

/// A session.
#[derive(Clone, Debug)]
pub struct Session {
    /// Its number.
    pub id: SessionId,
    /// Whose it is, if a HELLO was seen.
    pub agent: Option<AgentId>,
    /// Which start of the agent.
    pub agent_incarnation: u64,
    /// What that calls itself; empty if it does not, or no HELLO was seen.
    pub label: String,
    /// The agent's column.
    pub host: HostId,
    /// The server's column.
    pub server: HostId,
    /// Store epoch and incarnation of the server, if WELCOME was seen.
    pub incarnation: Option<(u8, u64)>,
    /// Its first WELCOME, by which it was offered; `None`: the capture began later.
    pub opened: Option<Mark>,
    /// What it was promised; `None`: not known.
    pub promise: Option<Promise>,
    /// Whether its agent asked for a lease period of its own, which may be longer than the server's.
    pub asked: bool,
    /// Its first NACK.
    pub nack: Option<Mark>,
    /// Its first ENDED.
    pub ended: Option<Mark>,
    /// Where its agent gave it up, and how; the reason is `None` where a CONFIRM or a completed reclaim says so.
    pub given_up: Option<(Mark, Option<EndReason>)>,
    /// When the newest transmission that was ever echoed in a renewing answer passed here.
    pub newest_echo: Option<Duration>,
    /// Its frame.
    pub(crate) echo_frame: u64,
    /// When the newest renewing answer passed whose transmission was forgotten: the newest echo may be as late as that.
    pub(crate) echo_latest: Option<Duration>,
    /// When a lock of it went to others, if it did not give it back.
    pub stolen: Option<Mark>,
    /// When anything of it was seen last.
    pub last: Duration,
    pub(crate) handshake: u64,
    pub(crate) up: Kept<Transmission>,
    pub(crate) down: Kept<Transmission>,
    pub(crate) requests: Kept<Request>,
    pub(crate) controls: Kept<Control>,
    pub(crate) notices: Kept<Notice>,
    pub(crate) own: BTreeMap<LockId, Own>,
    pub(crate) own_forgotten: bool,
    /// Locks of generations up to here that it gave back may be forgotten.
    pub(crate) settled_to: Generation,
    /// A transmission from here on was sent after that time.
    pub(crate) evidence: (u64, Duration),
    /// The highest floor announced, and by which packet.
    pub(crate) floor: (u64, u64),
    /// With which packet number the server and the agent begin, if the handshake was seen.
    pub(crate) first: [Option<u64>; 2],
    /// A number is missing among those that the side of the vantage sent itself.
    pub(crate) gap: bool,
    pub(crate) renewals: u64,
    /// Notices that are neither receipted nor settled by a release.
    pub(crate) open: BTreeSet<u64>,
    /// Of those up to here it was told that they were not receipted in time.
    pub(crate) overdue_to: u64,
    /// Whether some of them were forgotten.
    pub(crate) open_forgotten: bool,
    /// Demands for cache locks that were receipted and are not complied with.
    pub(crate) owed: BTreeMap<LockId, Generation>,
    /// Whether there was one of these since the server last renewed the lease without any: it may have waited too long for it, whatever came
    /// in between, and tells only when it is asked.
    pub(crate) may_have_owed: bool,
    /// The renewing answer with the highest packet number.
    pub(crate) newest_renewal: Option<Mark>,
    /// The newest GRANT notice, at its first transmission.
    pub(crate) newest_grant: Option<Mark>,
    /// The KEEPALIVE that passed last, and whether it was answered.
    pub(crate) keep_alive: Option<(Mark, bool)>,
    /// The address that was challenged last, as long as nothing else was sent there: what comes from it is not answered.
    pub(crate) challenged: Option<SocketAddr>,
    /// The addresses at which its agent was told something, or has proven to be: the server acts on nothing from others.
    pub(crate) paths: BTreeSet<SocketAddr>,
    /// Whether others have sent something in it, which is not noted.
    pub(crate) had_strange: bool,
    /// Another session of the same agent has been opened since.
    pub(crate) superseded: bool,
    /// The sessions that its CONFIRM names, if that was seen.
    pub(crate) claims: Option<Vec<SessionId>>,
    /// Why not all that it was given, or gave up, is certain.
    pub(crate) doubt: Option<Why>,
}

impl Session {
    pub(crate) fn new(id: SessionId, host: HostId, server: HostId) -> Self {
        Self {
            id,
            agent: None,
            agent_incarnation: 0,
            label: String::new(),
            host,
            server,
            incarnation: None,
            opened: None,
            promise: None,
            asked: false,
            nack: None,
            ended: None,
            given_up: None,
            newest_echo: None,
            echo_frame: 0,
            echo_latest: None,
            stolen: None,
            last: Duration::ZERO,
            handshake: 0,
            up: Kept::default(),
            down: Kept::default(),
            requests: Kept::default(),
            controls: Kept::default(),
            notices: Kept::default(),
            own: BTreeMap::new(),
            own_forgotten: false,
            settled_to: Generation(0),
            evidence: (0, Duration::ZERO),
            floor: (0, 0),
            first: [None; 2],
            gap: false,
            renewals: 0,
            open: BTreeSet::new(),
            overdue_to: 0,
            open_forgotten: false,
            owed: BTreeMap::new(),
            may_have_owed: false,
            newest_renewal: None,
            newest_grant: None,
            keep_alive: None,
            challenged: None,
            paths: BTreeSet::new(),
            had_strange: false,
            superseded: false,
            claims: None,
            doubt: None,
        }
    }

    /// Until when its lease can possibly last, as far as was seen: the receipt of what was echoed last, and T; `None`: not known.
    #[must_use]
    pub fn possible_until(&self) -> Option<Duration> {
        Some(self.newest_echo?.saturating_add(self.promise?.wait))
    }

    /// The same, with what was echoed by answers whose transmissions were forgotten: each passed before its answer did.
    pub(crate) fn latest_until(&self) -> Option<Duration> {
        Some(self.newest_echo.max(self.echo_latest)?.saturating_add(self.promise?.wait))
    }

    /// How many answers have renewed it.
    #[must_use]
    pub const fn renewals(&self) -> u64 {
        self.renewals
    }

    /// How many requests were seen, retransmissions not counted, as far as they are remembered.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.requests.iter().count()
    }

    /// The session is given a generation of a lock; false if it had it, or has disowned it.
    pub(crate) fn give(&mut self, lock: LockId, generation: Generation) -> bool {
        if generation <= self.settled_to && self.own.get(&lock).is_none_or(|own| own.given.is_empty()) {
            // It may be one that was given back, and comes late.
            self.doubt = self.doubt.or(Some(Why::Forgotten));
            return false;
        }
        let own = self.own_of(lock);
        let dead = own.disowned.is_some_and(|disowned| generation <= disowned.0);
        let newest = own.given.last().copied().unwrap_or(Generation(0));
        if !own.given.contains(&generation) {
            own.given.push(generation);
            own.given.sort_unstable();
            if own.given.len() > GIVEN_MAX {
                own.given.remove(0);
                own.more = true;
            }
        }
        !dead && generation > newest
    }

    /// What is remembered of a lock of the session; another is forgotten for it where there are too many.
    fn own_of(&mut self, lock: LockId) -> &mut Own {
        if self.own.len() >= LOCKS_MAX && !self.own.contains_key(&lock) {
            if !self.own_forgotten {
                self.forget_settled();
            }
            if self.own.len() >= LOCKS_MAX {
                self.own.pop_first();
                self.forgets_locks();
            }
        }
        self.own.entry(lock).or_default()
    }

    /// Forgets the older half of the locks that the session gave back: nothing more is to be said of them, unless late.
    pub(crate) fn forget_settled(&mut self) {
        let mut settled: Vec<_> = self.own.iter().filter_map(|(lock, own)| Some((is_settled(own)?, *lock))).collect();
        settled.sort_unstable();
        for (generation, lock) in settled.iter().take(settled.len().div_ceil(2)) {
            self.own.remove(lock);
            self.settled_to = self.settled_to.max(*generation);
        }
    }

    /// Not all that the session was given, or gave back, is known any more.
    fn forgets_locks(&mut self) {
        self.own_forgotten = true;
        self.doubt = self.doubt.or(Some(Why::Forgotten));
    }

    /// A demand for a cache lock was receipted: it is to be complied with.
    pub(crate) fn owes(&mut self, lock: LockId, generation: Generation) {
        if self.owed.len() >= KEPT_MAX && !self.owed.contains_key(&lock) {
            self.doubt = self.doubt.or(Some(Why::Forgotten));
            return;
        }
        self.owed.entry(lock).or_insert(generation);
        self.may_have_owed = true;
    }

    /// Forgets notices that wait for their receipts and are not remembered otherwise.
    pub(crate) fn forget_open(&mut self) {
        while let Some(first) = self.open.first().copied()
            && self.notices.may_be_forgotten(first)
        {
            self.open.pop_first();
            self.open_forgotten = true;
        }
    }

    /// How much is remembered of it, in entries of about the same size.
    pub(crate) fn weight(&self) -> usize {
        let carried: usize = self.up.iter().chain(self.down.iter()).map(|(_, sent)| sent.carried.len() + sent.answered.len()).sum();
        let tables = self.up.len() + self.down.len() + self.requests.len() + self.controls.len() + self.notices.len();
        carried + tables + self.own.len() + self.owed.len() + self.requests.iter().map(|(_, request)| request.asked.weight()).sum::<usize>()
    }

    /// Keeps the newest so many entries of each table; locks are none of these. Gives whether there were more.
    pub(crate) fn shrink(&mut self, most: usize) -> bool {
        let longest = [self.up.len(), self.down.len(), self.requests.len(), self.controls.len(), self.notices.len()];
        if longest.iter().all(|length| *length <= most) {
            return false;
        }
        self.up.shrink(most);
        self.down.shrink(most);
        self.requests.shrink(most);
        self.controls.shrink(most);
        self.notices.shrink(most);
        self.forget_open();
        true
    }

    /// Forgets the session's locks, if there are more.
    pub(crate) fn shrink_locks(&mut self, most: usize) {
        if self.own.len() + self.owed.len() > most {
            self.own.clear();
            self.owed.clear();
            self.forgets_locks();
        }
    }

    /// The session's agent is told of a generation, which it may not have been given yet.
    pub(crate) fn told(&mut self, lock: LockId, generation: Generation) {
        let own = self.own_of(lock);
        if !own.told.contains(&generation) {
            own.told.push(generation);
        }
        if own.told.len() > GIVEN_MAX {
            own.told.remove(0);
        }
    }

    /// Whether the session was seen to be given a generation; `None`: it may have been forgotten.
    pub(crate) fn was_given(&self, lock: LockId, generation: Generation) -> Option<bool> {
        match self.own.get(&lock) {
            Some(own) if own.given.contains(&generation) || own.told.contains(&generation) => Some(true),
            Some(own) if own.more && own.given.first().is_some_and(|first| generation < *first) => None,
            _ if generation <= self.settled_to => None,
            None if self.own_forgotten => None,
            _ => Some(false),
        }
    }

    /// The session gives a lock back, up to a generation.
    pub(crate) fn disown(&mut self, lock: LockId, generation: Generation, packet: u64) {
        let own = self.own_of(lock);
        if own.disowned.is_none_or(|(up_to, _)| up_to < generation) {
            own.disowned = Some((generation, packet));
        }
    }

    /// Whether the session holds the grant of a lock still, as far as was seen: it has not given it back, nor been given a newer one.
    pub(crate) fn grant_stands(&self, lock: LockId, generation: Generation) -> bool {
        self.own.get(&lock).is_some_and(|own| own.given.last() == Some(&generation)) && !self.has_disowned(lock, generation)
    }

    /// Whether the session has given back, or disowned, a generation of a lock.
    pub(crate) fn has_disowned(&self, lock: LockId, generation: Generation) -> bool {
        self.own.get(&lock).and_then(|own| own.disowned).is_some_and(|(up_to, _)| generation <= up_to)
    }

    /// What is told of a lock's notices by a release or a refusal of a generation (section 11.3).
    pub(crate) fn imply(&mut self, covers: impl Fn(LockId, Generation) -> bool) {
        let Self { open, notices, owed, .. } = self;
        open.retain(|seq| {
            let Some(notice) = notices.get_mut(*seq) else { return false };
            notice.implied |= notice.lock.is_some_and(|(lock, generation)| covers(lock, generation));
            !notice.implied
        });
        owed.retain(|lock, generation| !covers(*lock, *generation));
    }

    /// Whether a downgrade leaves something.
    pub(crate) const fn leaves(keep: Keep) -> bool {
        matches!(keep, Keep::Shared)
    }
}

/// The newest generation of a lock that its session has given back altogether.
fn is_settled(own: &Own) -> Option<Generation> {
    let newest = own.given.iter().chain(&own.told).max().copied()?;
    // A word about what it was not given yet stands until that comes.
    own.disowned.is_some_and(|disowned| disowned.0 == newest).then_some(newest)
}
