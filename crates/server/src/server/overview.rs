//! What a person who watches the server sees at one look: who is there, who holds and waits for what, what failed.
//!
//! Decides which sessions come first where there are more than are shown, and that a path is shown if it is in memory and durable. Place in
//! the walk: beside it; the driver asks, once for all who look. Invariants: looking changes nothing but the order in which memory is
//! evicted, and what it costs has a bound, however many sessions, locks, waiters and files there are.

pub use crate::failovers::{FailoverEnd, FailoverRow};

use crate::locks::LockInSight;
use crate::server::Server;
use crate::server::status::{SessionRow, Status};
use crate::sessions::session::Session;
use crate::sessions::standing::{Cause, Standing};
use crate::store::Seen;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Handle, Keep, LockClass, Mode, ObjectId, RowState};
use core::cmp::Reverse;
use core::time::Duration;

/// Most sessions shown.
const SESSIONS_MAX: usize = 100;
/// Most sessions that wait, and most others, among which those shown are chosen; and most places where the others are looked for, for those of
/// sessions that have ended are passed over.
const LOOKED_AT_MAX: usize = 1_024;
const PLACES_MAX: u32 = 16_384;
/// Most objects with advisory locks shown, and most of their holders and waiters.
const LOCKED_MAX: usize = 50;
const ROWS_MAX: usize = 200;
/// Most demands shown.
const DEMANDS_MAX: usize = 50;
/// Most failovers shown.
const FAILOVERS_MAX: usize = 32;

/// The server at one moment: some rows of each table; how long the tables are is in `status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overview {
    /// What the server is and how it is.
    pub status: Status,
    /// Sessions: those that fail first, then those that wait, then those that hold locks, then the newest. Of those that neither fail nor wait
    /// about a thousand are looked at.
    pub sessions: Vec<SessionRow>,
    /// Advisory locks, those that somebody waits for before the others.
    pub locks: Vec<LockedObject>,
    /// What sessions are to give back.
    pub demands: Vec<DemandRow>,
    /// Cache locks demanded and not yet given back.
    pub demands_outstanding: usize,
    /// Failovers of the last hour since the start, newest first.
    pub failovers: Vec<FailoverRow>,
}

/// An object with an advisory lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockedObject {
    /// The object.
    pub object: ObjectId,
    /// Its path; empty: it is not in memory, not durable, or there is none.
    pub place: Box<[u8]>,
    /// Its holders, then its waiters, in line; the first of each.
    pub rows: Vec<LockUser>,
    /// Whether there are more holders.
    pub more_holders: bool,
    /// How many wait.
    pub waiters: usize,
}

/// One who holds a lock or waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockUser {
    /// Holds or waits.
    pub state: RowState,
    /// The mode held or asked for.
    pub mode: Mode,
    /// The grant's first token; 0 for one who waits.
    pub token: u64,
    /// Public name of its session.
    pub handle: Handle,
    /// The label of its agent; any bytes.
    pub label: Box<[u8]>,
    /// For how long, in milliseconds.
    pub since_ms: u64,
    /// Its session's standing, as other agents are told.
    pub standing: cistern_wire::Standing,
    /// When its locks are free at the latest if it is gone, in milliseconds from now; 0: not known.
    pub bound_ms: u64,
}

/// A lock that a session is to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DemandRow {
    /// The object.
    pub object: ObjectId,
    /// Its path, as in [`LockedObject`].
    pub place: Box<[u8]>,
    /// Which of its locks.
    pub class: LockClass,
    /// How it is held.
    pub mode: Mode,
    /// What may be kept of it.
    pub keep: Keep,
    /// Public name of the holder's session.
    pub handle: Handle,
    /// The label of its agent; any bytes.
    pub label: Box<[u8]>,
    /// Whether the session was told.
    pub is_sent: bool,
    /// For how long the lock is held.
    pub held: Duration,
}

impl Server {
    /// The server at one moment, for people.
    pub fn overview(&mut self, now: Instant) -> Overview {
        self.step(now, Self::look_over)
    }

    fn look_over(&mut self) -> Overview {
        let locks = self.locks.in_sight(LOCKED_MAX, ROWS_MAX);
        let demands = self.locks.demands_in_sight(DEMANDS_MAX);
        let objects: Vec<ObjectId> = locks.iter().map(|lock| lock.object).chain(demands.iter().map(|demand| demand.lock.object)).collect();
        let mut places = self.durable_places(&objects);
        let mut place = || places.next().unwrap_or_default();
        let locks = locks.iter().map(|lock| self.locked_object(lock, place())).collect();
        let demands = demands.into_iter().map(|demand| {
            let session = self.sessions.get(demand.session);
            DemandRow {
                object: demand.lock.object,
                place: place(),
                class: demand.lock.class,
                mode: demand.mode,
                keep: demand.keep,
                handle: session.map_or(Handle(0), |session| session.handle),
                label: session.map(|session| session.label.clone()).unwrap_or_default(),
                is_sent: demand.is_sent,
                held: self.now.since(demand.since),
            }
        });
        Overview {
            demands: demands.collect(),
            status: self.status(self.now),
            sessions: self.first_sessions(),
            locks,
            demands_outstanding: self.locks.counts().demands_outstanding,
            failovers: self.failovers.rows(self.now, FAILOVERS_MAX).collect(),
        }
    }

    /// The paths of objects, as far as they are in memory: all of them durable, or none is given.
    fn durable_places(&mut self, objects: &[ObjectId]) -> alloc::vec::IntoIter<Box<[u8]>> {
        let seen = Seen::default();
        let places = self.namespace.places_of(&self.store.view(&seen), objects.iter().copied(), true).unwrap_or_default();
        let places = if seen.depends_on(&self.store).is_none() { places } else { Vec::new() };
        places.into_iter().map(Vec::into_boxed_slice).collect::<Vec<_>>().into_iter()
    }

    fn locked_object(&self, lock: &LockInSight, place: Box<[u8]>) -> LockedObject {
        let user = |row| {
            let holder = self.holder(row);
            LockUser {
                state: row.state,
                mode: row.mode,
                token: row.generation.0,
                handle: holder.handle,
                label: holder.label.0.into(),
                since_ms: holder.since_ms,
                standing: holder.standing,
                bound_ms: holder.bound_ms,
            }
        };
        let rows = lock.rows.iter().map(user).collect();
        LockedObject { object: lock.object, place, rows, more_holders: lock.more_holders, waiters: lock.waiters }
    }

    fn first_sessions(&self) -> Vec<SessionRow> {
        let known = self.failovers.going_on().chain(self.locks.who_wait(LOOKED_AT_MAX)).filter_map(|key| self.sessions.get(key));
        let others = self.sessions.first(PLACES_MAX).take(LOOKED_AT_MAX);
        let rank = |session: &Session| match session.standing() {
            Standing::Good if self.locks.waits(session.slot) > 0 => 1,
            Standing::Good if self.locks.holds(session.slot) > 0 => 2,
            Standing::Good => 3,
            _ => 0,
        };
        let live = known.chain(others).filter(|session| session.is_live());
        let mut ranked: Vec<_> = live.map(|session| ((rank(session), Reverse(session.opened_ns), session.id), session)).collect();
        ranked.sort_unstable_by_key(|(rank, _)| *rank);
        ranked.dedup_by_key(|(rank, _)| *rank);
        ranked.into_iter().take(SESSIONS_MAX).map(|(_, session)| self.session_row(session, self.now)).collect()
    }

    /// What is remembered of a session that has just failed.
    pub(super) fn failover_of(&self, session: &Session, until: Instant, cause: Cause) -> FailoverRow {
        FailoverRow {
            handle: session.handle,
            label: session.label.clone(),
            cause,
            ago: Duration::ZERO,
            locks: self.locks.holds(session.slot),
            wait: self.now.until_waited(until),
            nacked: None,
            end: None,
            freed: None,
        }
    }
}
