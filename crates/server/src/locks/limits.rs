//! Bounds and paces of the lock table.
//!
//! Decides: how much the lock table holds at most, each bound with its unit. Place in the walk: made by the configuration.
//! Implements `wire-spec.md` section 8.2.
//! Invariant: a bound that is reached is answered BUSY, or by an answer without a grant; nothing is forgotten to meet it (R11).

use core::time::Duration;

/// Bounds of the lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockLimits {
    /// Most locks held, of both classes, by all sessions together; below 2^32 - 1.
    pub locks_max: usize,
    /// Most locks held by one session.
    pub locks_per_session: usize,
    /// Most lock requests that wait for one object.
    pub waiters_per_object: usize,
    /// Most lock requests of one session that wait.
    pub waiters_per_session: usize,
    /// Most mutations that wait for one object.
    pub mutations_per_object: usize,
    /// Most demands of cache locks sent and not complied with; further ones wait. Advisory locks may be in use for long and do not
    /// count.
    pub demands_outstanding: usize,
    /// Tokens in the run of an advisory grant; at least 1.
    pub run: u32,
    /// A cache lock demanded sooner than this after its grant was hardly of use (R67).
    pub hot_below: Duration,
    /// For how long an object gets no cache locks when that happened twice in a row; doubled each further time, six times at most.
    pub cooling: Duration,
}

impl Default for LockLimits {
    fn default() -> Self {
        Self {
            locks_max: 1_000_000,
            locks_per_session: 100_000,
            waiters_per_object: 64,
            waiters_per_session: 256,
            mutations_per_object: 1_024,
            demands_outstanding: 4_096,
            run: 1_024,
            // A few round trips: a lock that lives shorter spares its agent less than its demand costs.
            hot_below: Duration::from_millis(50),
            cooling: Duration::from_millis(10),
        }
    }
}
