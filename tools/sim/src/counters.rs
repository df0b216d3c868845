//! "Sometimes" counters: what runs have reached, so that a campaign cannot be clean by never having been anywhere.
//!
//! Decides which happenings are counted and which of them a large campaign must have met at least once. Place in the walk: the world
//! shows every happening, as to the judges; counters of runs are added up by the campaign. One line per counter gives its name and
//! whether it is required. Invariant: counting never fails a run, and depends on nothing but what was seen.
//! Leaves to others: how each is noticed (`watcher`), verdicts (`judge`).

mod watcher;

use crate::observe::{Judge, Seen, Sight, Violation};
use crate::plan::Profile;
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};
use watcher::Watcher;

macro_rules! sometimes {
    ($($(#[$doc:meta])* $name:ident $text:literal $required:ident),* $(,)?) => {
        /// Something that is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Sometimes { $($(#[$doc])* $name),* }

        impl Sometimes {
            /// Every counter, in order.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// What it counts, for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Whether a large campaign of the profile that draws everything must reach it.
            #[must_use]
            pub const fn is_required(self) -> bool {
                match self { $(Self::$name => matches!(Need::$required, Need::Required)),* }
            }
        }
    };
}

enum Need {
    Required,
    Optional,
}

sometimes! {
    // Failure and its ends.
    /// A session was welcomed.
    Opened "session opened" Required,
    /// A NACK left the server.
    Nack "NACK sent" Required,
    /// An agent took a NACK.
    NackTaken "NACK taken" Required,
    /// The server decided D.
    Failure "D decided" Required,
    /// T passed, and the session was stolen from.
    Steal "steal" Required,
    /// A failed session came back.
    Rescue "rescue" Required,
    /// A surrender ended a session before T had passed.
    SurrenderEarly "surrender freed early" Required,
    /// A RESULT left the server.
    Result "RESULT sent" Required,
    /// NACK said that a request was executed.
    FateExecuted "NACK: executed" Required,
    /// NACK said that a request was not, and never will be, executed.
    FateNotExecuted "NACK: not executed" Required,
    /// A user was told that the outcome of a mutation is not known.
    OutcomeUnknown "outcome unknown to a user" Required,
    // Delivery.
    /// A request was sent again.
    Retransmission "retransmission" Required,
    /// The server dropped a packet that it had.
    DuplicatePacket "duplicate packet dropped" Required,
    /// The server repeated a kept answer.
    CachedReply "cached reply repeated" Required,
    /// A request was answered PENDING.
    Pending "PENDING" Required,
    /// A datagram of an attacker was dropped.
    Forged "forged datagram dropped" Required,
    /// A datagram did not decode.
    Garbage "garbage dropped" Required,
    /// Contents were staged.
    Stage "stage used" Required,
    /// A request was cancelled in time, was granted before, or was answered otherwise.
    CancelInTime "CANCEL: cancelled" Required,
    /// The lock had been granted.
    CancelTooLate "CANCEL: granted" Required,
    /// The request had been answered otherwise.
    CancelAnswered "CANCEL: answered" Optional,
    // Locks.
    /// A lock request was answered QUEUED.
    Queued "QUEUED" Required,
    /// A queued request was granted.
    DeferredGrant "deferred GRANT" Required,
    /// A queued request ended without a grant.
    WaitOver "WAIT_OVER" Optional,
    /// A demand left the server.
    Demand "demand" Required,
    /// A demand reached an agent before the grant that it names.
    DemandFirst "demand before grant seen" Required,
    /// A grant reached an agent that had disowned it.
    DeadGrant "grant refused because demanded" Required,
    /// An agent said that it waits for the grant demanded.
    Awaited "grant awaited" Optional,
    /// A demand met a user who holds the lock.
    InUse "demand of a lock in use" Required,
    /// A probe left the server.
    Probe "probe" Required,
    /// A shared lock was kept when an exclusive one was given back.
    Downgrade "downgrade" Required,
    /// A run of tokens was extended.
    RunExtended "run extended" Required,
    /// An upgrade was refused because another waits.
    Deadlock "EDEADLK upgrade" Required,
    /// A lock was got without a message.
    LocalGrant "local grant" Required,
    /// A user stopped waiting because its time was over.
    TimedOut "wait timed out" Required,
    /// A write was refused because its guard is not current.
    StaleGuard "stale guard refused" Required,
    // Leases.
    /// A read was answered without a message.
    CacheHit "read from cache" Required,
    /// A lease ran out while its session went on.
    Lapse "lease lapsed" Required,
    /// It was revived by an answer.
    Revival "lease lapsed and revived" Required,
    /// Holders were told that their locks may end soon.
    Suspect "holder told suspect" Required,
    /// A holder was told that its lock is not certain.
    Uncertain "holder told uncertain" Required,
    /// A holder was told so, and then that it is certain again.
    CertainAgain "holder told uncertain then certain" Required,
    /// A holder was told that its lock is lost.
    Lost "holder told lost" Required,
    /// A keep-alive was answered.
    Alive "keep-alive answered" Required,
    /// An agent closed its session.
    Closed "session closed" Required,
    // Restarts.
    /// An agent was started again.
    AgentRestart "agent restart" Required,
    /// The server was started again.
    ServerRestart "server restart" Required,
    /// A sealed session was opened by RESUME.
    Resumed "session resumed" Required,
    /// The server was started again before its grace was over.
    RestartInGrace "server restart inside grace" Required,
    /// The server was started twice within τ.
    TwiceWithinTau "two server restarts within a lease" Required,
    /// The store was replaced by an older copy.
    Restored "store restored" Required,
    /// Grace was over before T, because all were accounted for.
    GraceEarly "grace ended early" Required,
    /// Grace was over by time.
    GraceByTime "grace ended by time" Required,
    /// A request was refused because of grace.
    InGrace "IN_GRACE" Required,
    /// A lock was reclaimed.
    ReclaimAccepted "reclaim accepted" Required,
    /// A lock could not be reclaimed.
    ReclaimRefused "reclaim refused" Optional,
    /// Two sessions reclaimed what does not go together.
    ReclaimConflict "reclaim conflict" Optional,
    /// OUTCOME was answered "executed".
    OutcomeExecuted "outcome: executed" Required,
    /// OUTCOME was answered "not executed".
    OutcomeNotExecuted "outcome: not executed" Required,
    /// OUTCOME was answered "unknown".
    OutcomeNotKnown "outcome: unknown" Optional,
    /// A datagram of a session of an earlier start of the server arrived.
    OldIncarnation "old-incarnation packet seen" Required,
    /// A HINT left the server.
    Hint "HINT" Required,
    /// An agent's new incarnation superseded a session.
    Superseded "superseded incarnation" Required,
    /// An agent asked whether the server holds its session, and it does.
    Known "session known" Required,
    // Presence.
    /// A watcher was told of a change.
    WatchChanged "watcher told of a change" Required,
    /// A watcher was told that nothing is certain.
    WatchUncertain "watcher told uncertain" Required,
    /// A watcher was told so, and then a version again.
    WatchCertainAgain "watcher told uncertain then certain" Required,
    /// A watcher was told that its object is gone.
    WatchGone "watcher told gone" Required,
    /// The server removed an ephemeral file.
    EphemeralRemoved "ephemeral file removed" Required,
    /// A named lease was kept.
    LeaseKept "named lease kept" Required,
    /// A named lease ended, by time or revoked.
    LeaseEnded "named lease ended" Required,
    /// A file that could not go with its named lease went later.
    LeaseFileLate "file removed after its named lease" Required,
    /// An ephemeral file was bound to a session that had reclaimed.
    EphemeralRebound "ephemeral file rebound" Required,
    // Mutations of several parts.
    /// A batch was done.
    BatchDone "batch done" Required,
    /// A mutation was refused because a version was not the one expected.
    VersionRefused "version not as expected" Required,
    // Bounds and disks.
    /// Something was refused at a bound.
    Busy "BUSY" Optional,
    /// The server stopped because its store failed.
    StoreFailed "store failed" Optional,
    /// An agent's address changed and was proven.
    Moved "address moved" Required,
    /// The store forgets everything when the server ends.
    Volatile "volatile" Optional,
}

/// How often each was reached.
#[derive(Clone, Debug)]
pub struct Counters {
    counts: Vec<u64>,
    watcher: Watcher,
}

impl Default for Counters {
    fn default() -> Self {
        Self { counts: vec![0; Sometimes::ALL.len()], watcher: Watcher::default() }
    }
}

impl Counters {
    /// Adds those of another run.
    pub fn merge(&mut self, other: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
    }

    /// How often something was reached.
    #[must_use]
    pub fn count(&self, of: Sometimes) -> u64 {
        self.counts[of as usize]
    }

    /// Each counter's name and how often it was reached.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Sometimes::ALL.iter().map(|of| (of.name(), self.count(*of)))
    }

    /// The counters that a large campaign of this profile must reach and this one did not.
    #[must_use]
    pub fn missing(&self, profile: Profile) -> Vec<&'static str> {
        let wanted = Sometimes::ALL.iter().filter(|of| profile == Profile::Swarm && of.is_required());
        wanted.filter(|of| self.count(**of) == 0).map(|of| of.name()).collect()
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.counts.len()))?;
        for (name, count) in self.rows() {
            map.serialize_entry(name, &count)?;
        }
        map.end()
    }
}

impl Judge for Counters {
    fn name(&self) -> &'static str {
        "counters"
    }

    fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) -> Result<(), Violation> {
        let counts = &mut self.counts;
        self.watcher.see(sight, seen, &mut |of, more| counts[of as usize] += more);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_add_up_and_the_missing_ones_are_told_for_the_swarm() {
        let mut one = Counters::default();
        one.counts[Sometimes::Nack as usize] = 2;
        let mut all = Counters::default();
        all.merge(&one);
        all.merge(&one);
        assert_eq!(all.count(Sometimes::Nack), 4);
        let missing = all.missing(Profile::Swarm);
        assert!(!missing.contains(&"NACK sent") && missing.contains(&"steal") && !missing.contains(&"volatile"));
        assert!(all.missing(Profile::Calm).is_empty());
        assert!(serde_json::to_string(&all).unwrap().contains("\"NACK sent\":4"));
    }

    #[test]
    fn names_differ() {
        let mut names: Vec<_> = Sometimes::ALL.iter().map(|of| of.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Sometimes::ALL.len());
    }
}
