//! Failovers: what became of the sessions that failed last, for people to look at.
//!
//! Decides: how many are remembered. Told of each transition by the machine (`lifecycle`). Invariant: nothing follows from what is
//! kept here; it grows with failures alone, up to a bound.

use crate::sessions::standing::{Cause, Standing};
use crate::sessions::{SessionKey, Transition};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use cistern_link::Instant;
use cistern_wire::Handle;
use core::time::Duration;

/// Most failovers remembered: more than a page shows, 16 KiB with labels of usual length.
const KEPT_MAX: usize = 64;
/// For how long.
const KEPT_FOR: Duration = Duration::from_secs(3_600);

/// What ended a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverEnd {
    /// What was missing came in time: the session goes on.
    Rescued,
    /// The wait τ(1+δ) was over.
    Waited,
    /// The agent gave the session up before.
    GivenUp,
}

impl FailoverEnd {
    /// Its name, for listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rescued => "rescued",
            Self::Waited => "waited",
            Self::GivenUp => "given up",
        }
    }
}

/// A session that failed, and when what followed; spans after the failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverRow {
    /// Public name of the session.
    pub handle: Handle,
    /// What people call the agent; any bytes.
    pub label: Box<[u8]>,
    /// Why it failed; of one that was evicted later, that.
    pub cause: Cause,
    /// Time since the failure, D.
    pub ago: Duration,
    /// Locks that it held then, of both classes.
    pub locks: usize,
    /// After which span its locks may go to others: T, or less if nothing was heard for a while before.
    pub wait: Duration,
    /// When the agent was first told by a NACK; `None`: it was not, or its session had ended before.
    pub nacked: Option<Duration>,
    /// How it ended, and when; `None`: the wait goes on.
    pub end: Option<(FailoverEnd, Duration)>,
    /// When the end was durable and its locks were free; `None`: not yet, or it was rescued.
    pub freed: Option<Duration>,
}

/// What is noted of one.
#[derive(Debug)]
struct Failover {
    key: SessionKey,
    decided: Instant,
    /// `ago` is filled in when it is asked for.
    row: FailoverRow,
}

/// The newest failovers, oldest first.
#[derive(Debug, Default)]
pub(crate) struct Failovers {
    kept: VecDeque<Failover>,
}

impl Failovers {
    /// A session has failed.
    pub(crate) fn begin(&mut self, key: SessionKey, decided: Instant, row: FailoverRow) {
        if self.kept.len() >= KEPT_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(Failover { key, decided, row });
    }

    /// A session has changed its standing: what that means for its failover, if it has one that goes on.
    pub(crate) fn follow(&mut self, now: Instant, transition: &Transition) {
        if !matches!(transition.from, Standing::TimingOut { .. } | Standing::Ending { .. }) {
            return;
        }
        let is_it = |failover: &&mut Failover| failover.key == transition.key && failover.row.freed.is_none();
        let Some(Failover { decided, row, .. }) = self.kept.iter_mut().rev().find(is_it) else { return };
        let after = now.since(*decided);
        let ended = |end| Some((end, after));
        match transition.to {
            Standing::TimingOut { nacked, cause, .. } => {
                row.nacked = row.nacked.or(nacked.then_some(after));
                row.cause = cause;
            }
            Standing::Good => row.end = ended(FailoverEnd::Rescued),
            Standing::Ending { cause: Cause::Surrendered | Cause::Closed } => row.end = ended(FailoverEnd::GivenUp),
            Standing::Ending { .. } => row.end = ended(FailoverEnd::Waited),
            Standing::Ended { .. } => row.freed = Some(after),
            Standing::Recorded { .. } => {}
        }
    }

    /// The sessions whose failovers go on, newest first.
    pub(crate) fn going_on(&self) -> impl Iterator<Item = SessionKey> {
        let is_over = |row: &FailoverRow| row.freed.is_some() || matches!(row.end, Some((FailoverEnd::Rescued, _)));
        self.kept.iter().rev().filter(move |failover| !is_over(&failover.row)).map(|failover| failover.key)
    }

    /// Those of the last hour, newest first; at most `max`.
    pub(crate) fn rows(&self, now: Instant, max: usize) -> impl Iterator<Item = FailoverRow> {
        let row = move |failover: &Failover| FailoverRow { ago: now.since(failover.decided), ..failover.row.clone() };
        self.kept.iter().rev().map(row).take_while(|row| row.ago <= KEPT_FOR).take(max)
    }
}
