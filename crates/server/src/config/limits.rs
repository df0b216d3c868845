//! The bounds of each part, with their units and defaults.

use cistern_wire::limits::CONTENT_MAX;
use core::time::Duration;

/// Bounds of the lock table. One that is reached is answered BUSY, or by an answer without a grant; nothing is forgotten to meet it.
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
    /// A cache lock demanded sooner than this after its grant was hardly of use (section 11.4).
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

/// Bounds of what is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamespaceLimits {
    /// Most objects.
    pub objects_max: u64,
    /// Most bytes of contents: the sum of the sizes of files and symbolic links, and of the values of extended attributes.
    pub bytes_max: u64,
    /// Most names of a file, and most subdirectories of a directory.
    pub links_max: u32,
}

impl Default for NamespaceLimits {
    /// 10,000,000 objects, 64 GiB, 65,000 links.
    fn default() -> Self {
        Self { objects_max: 10_000_000, bytes_max: 64 << 30, links_max: 65_000 }
    }
}

/// Bounds of staged contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLimits {
    /// Most bytes staged by one session; at least the largest contents of a file.
    pub bytes_per_session: usize,
    /// Most bytes staged by all sessions; at least `bytes_per_session`.
    pub bytes_total: usize,
    /// Most stages of one session.
    pub stages_per_session: usize,
    /// For how long a stage is kept after its last piece.
    pub idle: Duration,
}

impl Default for StageLimits {
    /// 4 MiB and 8 stages a session, 256 MiB in all, 30 s.
    fn default() -> Self {
        Self { bytes_per_session: 4 * CONTENT_MAX, bytes_total: 256 * CONTENT_MAX, stages_per_session: 8, idle: Duration::from_secs(30) }
    }
}

/// Bounds of watches and of ephemeral files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PresenceLimits {
    /// Most watches of all sessions together.
    pub watches_max: usize,
    /// Most watches of one session.
    pub watches_per_session: usize,
    /// Most ephemeral files.
    pub ephemerals_max: usize,
    /// Most ephemeral files of one session.
    pub ephemerals_per_session: usize,
}

impl Default for PresenceLimits {
    /// 1,000,000 watches, 4,096 a session; 100,000 ephemeral files, 1,024 a session.
    fn default() -> Self {
        Self { watches_max: 1_000_000, watches_per_session: 4_096, ephemerals_max: 100_000, ephemerals_per_session: 1_024 }
    }
}

/// Bounds of what is kept in memory of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheLimits {
    /// Most bytes kept, at least 8 MiB: what the largest operations need at once fits several times. Values that are not durable
    /// yet are kept whatever the bound says.
    pub bytes_max: usize,
}

impl Default for CacheLimits {
    /// 1 GiB.
    fn default() -> Self {
        Self { bytes_max: 1 << 30 }
    }
}
