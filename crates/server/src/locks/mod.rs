//! The lock table: who gets which lock when. (bodies to follow)
#![allow(missing_docs, unused_variables, dead_code, clippy::unimplemented, clippy::needless_pass_by_value)]
mod tokens;
pub use tokens::Tokens;

use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{CacheGrant, Generation, Held, Keep, LockId, LockWait, Mode, ObjectId, ReleaseItem, ReleasedItem, RowState, SessionId, Status, Want};
use core::time::Duration;

/// Number of a mutation in the lock table: increasing in order of arrival, chosen by the caller, never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Bounds of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLimits {
    /// Most locks held, of both classes, by all sessions.
    pub locks_max: usize,
    /// Most locks held by one session.
    pub locks_per_session: usize,
    /// Most lock requests that wait for one object.
    pub waiters_per_object: usize,
    /// Most lock requests of one session that wait.
    pub waiters_per_session: usize,
    /// Most mutations that wait for one object.
    pub mutations_per_object: usize,
    /// Most demands sent and not complied with yet.
    pub demands_outstanding: usize,
    /// Tokens in the run of an advisory grant, at least 1.
    pub run: u32,
    /// A cache lock demanded sooner than this after its grant counts as demanded before it was used (R67).
    pub hot_below: Duration,
    /// For how long such an object gets no cache locks; doubled each time, six times at most.
    pub cooling: Duration,
}

impl Default for LockLimits {
    fn default() -> Self { unimplemented!() }
}

/// What becomes of a mutation that asked for its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// No conflicting cache lock stands on its objects: execute it now, then `mutation_leave`. (Standing and plan are checked anew first.)
    Ready,
    /// [`Action::MutationReady`] follows.
    Waiting,
    /// Too many mutations wait for one of the objects; it has no place in the queue.
    Busy,
}

/// The answer to a lock request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LockOutcome {
    Granted { generation: Generation, run: u32 },
    /// Try, and held by (or queued for by) somebody else.
    Refused { holder: Row },
    /// Waits in line; `GrantQueued` or `WaitOver` follows. `holder` as in `Refused`; None when only tokens are waited for.
    Queued { ahead: u32, holder: Option<Row> },
    /// Another upgrade of the lock waits already (R66).
    Deadlock,
    /// A bound is reached.
    Busy,
}

/// One who holds or waits for an advisory lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    pub lock: LockId,
    pub state: RowState,
    pub mode: Mode,
    /// 0 for one who waits.
    pub generation: Generation,
    pub session: SessionId,
    pub since: Instant,
}

/// How a cancellation ended, as far as the lock table knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CancelResult {
    /// It waited, and does no more.
    Cancelled,
    /// It was granted from the queue and that grant is still the current one.
    Granted { lock: LockId, generation: Generation },
    /// Nothing is known here of such a wait: ask the reply cache.
    Unknown,
}

/// The answer to EXTEND_RUN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extended {
    Granted { mode: Mode, generation: Generation, run: u32 },
    /// NOT_HELD.
    NotHeld,
    /// Somebody waits for the lock: no further local grants (R69). EAGAIN.
    Demanded,
    /// BUSY.
    Busy,
}

/// What the lock table wants done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send DEMAND.
    Demand { session: SessionId, lock: LockId, generation: Generation, keep: Keep },
    /// Send GRANT for a request that was answered QUEUED.
    GrantQueued { session: SessionId, nonce: u64, lock: LockId, mode: Mode, generation: Generation, run: u32 },
    /// Send WAIT_OVER for a request that was answered QUEUED.
    WaitOver { session: SessionId, nonce: u64, lock: LockId, status: Status },
    /// The turn of a mutation has come: plan it anew, then execute it or enter it again with its new set.
    MutationReady { ticket: Ticket },
}

/// Figures for status and bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCounts {
    /// Locks held, both classes.
    pub held: usize,
    /// Lock requests that wait.
    pub waiters: usize,
    /// Mutations that wait or execute.
    pub mutations: usize,
    /// Demands emitted and not complied with yet.
    pub demands_outstanding: usize,
    /// Demands emitted since the start.
    pub demands: u64,
}

#[derive(Debug)]
pub struct LockTable {}

impl LockTable {
    pub fn new(limits: LockLimits, tokens: Tokens) -> Self { unimplemented!() }

    // --- sessions ---
    /// A session is open in good standing (call before any of its grants).
    pub fn open_session(&mut self, session: SessionId) { unimplemented!() }
    /// D: not granted anything until unparked; its waiters and mutations keep their places but delay nobody (R5, R39).
    pub fn park(&mut self, session: SessionId) { unimplemented!() }
    /// Rescue (R34). Demands held back are emitted now.
    pub fn unpark(&mut self, now: Instant, session: SessionId) { unimplemented!() }
    /// The session has ended, its end record is not durable yet: waiters and mutations are dropped, locks still stand.
    pub fn end_session(&mut self, now: Instant, session: SessionId) { unimplemented!() }
    /// Its end is durable (R50): its locks conflict with nobody any more; `reclaim_some` frees them.
    pub fn free_session(&mut self, session: SessionId) { unimplemented!() }
    /// Drops all waiting lock requests and mutations of the session, without actions for them.
    pub fn drop_waiters(&mut self, now: Instant, session: SessionId) { unimplemented!() }
    /// Frees at most `budget` locks of freed sessions (and of RELEASE_ALL). True: there is more.
    pub fn reclaim_some(&mut self, now: Instant, budget: usize) -> bool { unimplemented!() }

    // --- cache locks and mutations ---
    pub fn cache_grant(&mut self, now: Instant, session: SessionId, object: ObjectId, want: Want) -> CacheGrant { unimplemented!() }
    /// Enters, or enters again with a changed set (keeps its arrival place; drops its being ready).
    pub fn mutation_enter(&mut self, now: Instant, ticket: Ticket, session: SessionId, objects: &[ObjectId], held: impl IntoIterator<Item = Held>) -> Turn { unimplemented!() }
    /// Executed, failed or dropped. Call BEFORE `cache_grant` for its effects.
    pub fn mutation_leave(&mut self, now: Instant, ticket: Ticket) { unimplemented!() }

    // --- advisory locks ---
    pub fn lock(&mut self, now: Instant, session: SessionId, nonce: u64, object: ObjectId, mode: Mode, wait: LockWait) -> LockOutcome { unimplemented!() }
    pub fn extend_run(&mut self, now: Instant, session: SessionId, lock: LockId, generation: Generation) -> Extended { unimplemented!() }
    pub fn cancel(&mut self, now: Instant, session: SessionId, nonce: u64) -> CancelResult { unimplemented!() }
    /// The object is gone: whoever waits for its advisory lock gets WAIT_OVER with ESTALE.
    pub fn object_gone(&mut self, object: ObjectId) { unimplemented!() }
    /// Whether `generation` is a token of the advisory lock that the session holds now, without a break since that token.
    pub fn guard_current(&self, session: SessionId, object: ObjectId, generation: Generation) -> bool { unimplemented!() }
    /// Whether another session holds an advisory lock on the object (R74).
    pub fn unlink_blocked(&self, object: ObjectId, by: SessionId) -> bool { unimplemented!() }

    // --- giving back ---
    pub fn release(&mut self, now: Instant, session: SessionId, item: ReleaseItem) -> ReleasedItem { unimplemented!() }
    /// All cache locks of generations up to `up_to`.
    pub fn release_all(&mut self, session: SessionId, up_to: Generation) { unimplemented!() }
    /// The agent said NOT_HELD to a demand for `up_to` (R65).
    pub fn disowned(&mut self, now: Instant, session: SessionId, lock: LockId, up_to: Generation) { unimplemented!() }

    // --- tokens ---
    /// Upper end of a block of tokens to be made durable now; None: nothing to do. Asked once per block.
    pub fn tokens_wanted(&mut self) -> Option<u64> { unimplemented!() }
    /// That block is durable.
    pub fn tokens_durable(&mut self, now: Instant, up_to: u64) { unimplemented!() }

    // --- what is asked of it ---
    pub fn poll_action(&mut self) -> Option<Action> { unimplemented!() }
    /// The generation under which the session holds the lock now; None: it does not hold it.
    pub fn held(&self, session: SessionId, lock: LockId) -> Option<Generation> { unimplemented!() }
    /// Whether somebody waits for this session to give something back (R30).
    pub fn waiting_on(&self, session: SessionId) -> bool { unimplemented!() }
    /// How many lock requests of the session wait (R72).
    pub fn waits(&self, session: SessionId) -> usize { unimplemented!() }
    /// One who holds the lock, or waits for it longest, other than `asking`.
    pub fn holder_info(&self, lock: LockId, asking: SessionId) -> Option<Row> { unimplemented!() }
    /// Rows of LIST_LOCKS: of one object or all, after `after` (object, rows of it seen), at most `max`; and whether that is the end.
    pub fn rows(&self, object: Option<ObjectId>, after: (ObjectId, u32), max: usize) -> (Vec<Row>, bool) { unimplemented!() }
    pub fn counts(&self) -> LockCounts { unimplemented!() }
}
