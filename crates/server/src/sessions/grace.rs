//! Grace: the time after a start in which the sessions of before may take their locks back, and nobody else gets any.
//!
//! Decides how long it lasts: at least the largest lease that was promised, or the configured T where the store may not know of every lock;
//! less only when every session of before is accounted for; more, up to a bound, while reclaims go on.
//! Implements `wire-spec.md` section 11.7. Invariant: as long as there is a `Grace`, nothing is granted but what is reclaimed; it goes
//! away only when its end is durable.
//! Leaves to others: ending those who did not come back (`server::grace`), reclaims and what handshakes say (`server::reclaim`).

use crate::config::{Config, LEASE_MAX, micros_up};
use crate::store::{BatchId, SessionRecord};
use alloc::boxed::Box;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{AgentId, Claim, Hello, LockClass, LockId, ObjectId, SessionId};
use core::fmt;
use core::time::Duration;

/// Grace is extended to at most so many times its least length.
const LONGEST: u32 = 5;

/// How far a session of before is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing has become of it.
    Awaited,
    /// It did not come back in time, and is about to be ended.
    Lost,
    /// Its end, or the end of its reclaim, is written by this batch.
    Accounting(BatchId),
    /// That is durable.
    Accounted,
}

/// A session of an earlier start of the server that had not ended.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) agent: AgentId,
    incarnation: u64,
    boot: [u8; 16],
    lease_us: u64,
    pub(crate) window: u16,
    doomed: bool,
    /// The objects of which it may hold advisory locks, if it is long.
    locks: Option<Vec<ObjectId>>,
    /// T of its lease.
    wait: Duration,
    pub(crate) label: Box<[u8]>,
    /// The session in which its agent wants to reclaim from it.
    claimed: Option<SessionId>,
    pub(crate) state: State,
}

impl Recorded {
    fn of(record: SessionRecord, config: &Config) -> Self {
        let wait = config.wait_for(Duration::from_micros(record.lease_us).min(LEASE_MAX));
        let SessionRecord { agent, incarnation, boot, lease_us, window, doomed, locks, label } = record;
        Self { agent, incarnation, boot, lease_us, window, doomed, locks, wait, label, claimed: None, state: State::Awaited }
    }

    fn record(&self) -> SessionRecord {
        let Self { agent, incarnation, boot, lease_us, window, doomed, ref locks, ref label, .. } = *self;
        SessionRecord { agent, incarnation, boot, lease_us, window, doomed, locks: locks.clone(), label: label.clone() }
    }

    const fn is_long(&self) -> bool {
        self.locks.is_some()
    }
}

/// How far the grace after a restart is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraceStatus {
    /// When it ends, in time from now, if nothing more is heard of anybody; zero: its end is on the way to the store.
    pub left: Duration,
    /// Sessions of before the restart that may still come back, or have to be waited for.
    pub awaited: usize,
    /// Those of them whose agents are back and reclaim.
    pub reclaiming: usize,
    /// Whether it lasts for its whole length because this store may not know of every lock: it is new, or was restored from a copy.
    pub blind: bool,
}

/// The grace that the server is in.
#[derive(Debug)]
pub(crate) struct Grace {
    pub(crate) started: Instant,
    /// How long it lasts at least, unless all are accounted for.
    wait: Duration,
    /// An earlier start gave longer leases than this one does, so that no wait that this one begins covers them.
    longer: bool,
    /// How long a claim without progress extends it.
    patience: Duration,
    /// Nobody can tell who held what: it lasts for its whole length.
    blind: bool,
    pub(crate) recorded: BTreeMap<SessionId, Recorded>,
    by_agent: BTreeMap<AgentId, Vec<SessionId>>,
    /// Sessions not accounted for, but for long ones.
    awaited: usize,
    /// Long sessions not accounted for, each with its T, shortest first.
    long: BTreeSet<(Duration, SessionId)>,
    /// How many of these may hold the advisory lock of an object.
    withheld: BTreeMap<ObjectId, u32>,
    /// Whether the common grace is over, and only long sessions are waited for.
    common_over: bool,
    /// Those from which somebody wants to reclaim, long ones included.
    claimed: usize,
    /// When the first agent could be answered.
    serving: Instant,
    /// When a claim or a reclaim was last heard of.
    progress: Instant,
    end: End,
}

/// How far its end is, or, after the common grace, that of the long sessions whose time is over.
#[derive(Debug)]
enum End {
    /// Its time is not over.
    Ahead,
    /// It is; these sessions are still to be ended, a slice in each turn.
    Closing(Vec<SessionId>),
    /// All are, and the last of it is on the way to the store.
    Written,
}

impl Grace {
    /// A grace for `sessions`, from `started` on, where `stored` is the largest T by which leases of before have to be waited for;
    /// `blind`: it has to last for the configured T, whatever is known of sessions.
    pub(crate) fn new(started: Instant, config: &Config, stored: Duration, sessions: Vec<(SessionId, SessionRecord)>, blind: bool) -> Self {
        let sessions: BTreeMap<SessionId, Recorded> = sessions.into_iter().map(|(id, record)| (id, Recorded::of(record, config))).collect();
        let common = sessions.values().filter(|session| blind || !session.is_long() || bugs::is(Bug::T2));
        let longest = common.map(|session| session.wait).max();
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace MUST last at least the largest T stored of a session that is not long, from when the store was held exclusively and no
        //# earlier process could send.
        //= wire-spec.md#11-1-lease
        //# The server MUST wait for each session by the largest τ that it gave it and has not got back.
        let stored = if bugs::is(Bug::T2) { stored } else { stored.max(longest.unwrap_or_default()) };
        let longer = micros_up(stored) > micros_up(config.wait());
        // Where nobody knows which sessions there were, any of them may have been long.
        let mut wait = if blind { stored.max(config.wait_for(config.longest_lease())) } else { stored };
        if bugs::is(Bug::M35) {
            wait /= 4;
        }
        let mut by_agent: BTreeMap<AgentId, Vec<SessionId>> = BTreeMap::new();
        let (mut long, mut withheld, mut awaited) = (BTreeSet::new(), BTreeMap::<ObjectId, u32>::new(), 0);
        for (id, session) in &sessions {
            by_agent.entry(session.agent).or_default().push(*id);
            match &session.locks {
                Some(objects) if !blind && !bugs::is(Bug::T2) => {
                    long.insert((session.wait, *id));
                    objects.iter().for_each(|object| *withheld.entry(*object).or_default() += 1);
                }
                _ => awaited += 1,
            }
        }
        let recorded = sessions;
        let (serving, progress) = (started, started);
        Self {
            started,
            wait,
            longer,
            patience: config.lease,
            blind,
            recorded,
            by_agent,
            awaited,
            long,
            withheld,
            common_over: false,
            claimed: 0,
            serving,
            progress,
            end: End::Ahead,
        }
    }

    /// Whether everybody waits, and not only whoever wants what a long session may hold.
    pub(crate) const fn is_common(&self) -> bool {
        !self.common_over
    }

    /// Whether a long session that is not accounted for may hold the advisory lock of an object.
    pub(crate) fn withholds(&self, object: ObjectId) -> bool {
        self.withheld.contains_key(&object)
    }

    /// How many objects are withheld for long sessions.
    pub(crate) fn withheld(&self) -> usize {
        self.withheld.len()
    }

    /// Whether a session of before may have held a lock. In the common grace nobody else gets any, so it is not asked for.
    pub(crate) fn may_have_held(&self, id: SessionId, lock: LockId) -> bool {
        let named = |objects: &Vec<ObjectId>| objects.binary_search(&lock.object).is_ok();
        let recorded = || self.recorded.get(&id).and_then(|session| session.locks.as_ref()).is_some_and(named);
        self.is_common() || lock.class == LockClass::Advisory && recorded()
    }

    /// The longest lease of the long sessions that a HELLO says it wants to reclaim from, and may.
    pub(crate) fn longest_former(&self, hello: &Hello<'_>) -> Option<Duration> {
        let claims = hello.former.iter().filter(|former| matches!(former.claim, Claim::Reclaiming | Claim::Continuing));
        let eligible = claims.filter(|former| self.eligible(former.session, hello.agent, hello.incarnation));
        let long = eligible.filter_map(|former| self.recorded.get(&former.session).filter(|session| session.is_long()));
        long.map(|session| Duration::from_micros(session.lease_us).min(LEASE_MAX)).max()
    }

    /// Its time is over: nothing can be reclaimed any more from those who did not come back, but for long sessions whose T has not passed.
    pub(crate) fn close(&mut self, now: Instant) {
        let (long, started) = (&self.long, self.started);
        let is_over = |id: SessionId, wait: Duration| !long.contains(&(wait, id)) || now.waited(started.plus(wait));
        let awaited = self.recorded.iter_mut().filter(|(_, session)| session.state == State::Awaited);
        let lost = awaited.filter(|(id, session)| is_over(**id, session.wait)).map(|(id, session)| {
            session.state = State::Lost;
            *id
        });
        self.end = End::Closing(lost.collect());
    }

    /// Whether sessions are to be ended, or what comes after them is to be written, with the next turn.
    pub(crate) const fn is_closing(&self) -> bool {
        matches!(self.end, End::Closing(_))
    }

    /// The next session to be ended. `None`: all are, and what follows them is written now.
    pub(crate) fn next_lost(&mut self) -> Option<SessionId> {
        let End::Closing(lost) = &mut self.end else { return None };
        let next = lost.pop();
        if next.is_none() {
            self.end = End::Written;
        }
        next
    }

    /// Its end, or that of those whose time was over, is durable. False: long sessions are still waited for.
    pub(crate) fn ended(&mut self) -> bool {
        (self.common_over, self.end) = (true, End::Ahead);
        self.long.is_empty()
    }

    /// The sessions of an agent, whatever became of them.
    pub(crate) fn of_agent(&self, agent: AgentId) -> &[SessionId] {
        self.by_agent.get(&agent).map_or(&[], Vec::as_slice)
    }

    /// Whether there was a session of that id.
    pub(crate) fn knows(&self, id: SessionId) -> bool {
        self.recorded.contains_key(&id)
    }

    /// The highest incarnation of an agent that is recorded, as far as its session is not accounted for (section 11.6).
    pub(crate) fn incarnation(&self, agent: AgentId) -> Option<u64> {
        let recorded = self.of_agent(agent).iter().filter_map(|id| self.recorded.get(id));
        recorded.filter(|session| session.state != State::Accounted).map(|session| session.incarnation).max()
    }

    /// The incarnation under which a session was opened, if it was that agent's and nothing has become of it.
    pub(crate) fn awaited_of(&self, id: SessionId, agent: AgentId) -> Option<u64> {
        let awaited = self.recorded.get(&id).filter(|session| session.agent == agent && session.state == State::Awaited);
        awaited.map(|session| session.incarnation)
    }

    /// Whether an agent may reclaim from a session: it is its own, of the same incarnation, and nothing has become of it (section 11.7).
    pub(crate) fn eligible(&self, id: SessionId, agent: AgentId, incarnation: u64) -> bool {
        let late = bugs::is(Bug::M38b) && self.recorded.get(&id).is_some_and(|session| session.agent == agent);
        late || self.awaited_of(id, agent) == Some(incarnation) && !self.is_doomed(id)
    }

    pub(crate) fn is_doomed(&self, id: SessionId) -> bool {
        self.recorded.get(&id).is_some_and(|session| session.doomed)
    }

    /// Whether a session of that agent did not come back in time, and its end is not written yet.
    pub(crate) fn is_lost(&self, id: SessionId, agent: AgentId) -> bool {
        self.recorded.get(&id).is_some_and(|session| session.agent == agent && session.state == State::Lost)
    }

    /// Whether it is durable that nothing more can be reclaimed from a session.
    pub(crate) fn is_accounted_for(&self, id: SessionId) -> bool {
        self.recorded.get(&id).is_some_and(|session| session.state == State::Accounted)
    }

    /// The batch on which it rests that nothing more can be reclaimed from a session; `None`: none that is not durable.
    pub(crate) fn accounting(&self, id: SessionId) -> Option<BatchId> {
        match self.recorded.get(&id)?.state {
            State::Accounting(batch) => Some(batch),
            State::Awaited | State::Lost | State::Accounted => None,
        }
    }

    /// The window of a session whose outcomes are still in the store, if it was that agent's.
    pub(crate) fn window(&self, id: SessionId, agent: AgentId) -> Option<u16> {
        self.awaited_of(id, agent)?;
        self.recorded.get(&id).map(|session| session.window)
    }

    /// An agent has opened `by` to reclaim from a session.
    pub(crate) fn claim(&mut self, now: Instant, id: SessionId, by: SessionId) {
        if let Some(session) = self.recorded.get_mut(&id) {
            self.claimed += usize::from(session.claimed.is_none());
            session.claimed = Some(by);
            self.progress = now;
        }
    }

    /// From now on agents are answered. Those who have to reclaim get the time for it also where the start took long.
    pub(crate) const fn serving(&mut self, now: Instant) {
        (self.serving, self.progress) = (now, now);
    }

    /// Something was reclaimed, or somebody can begin to.
    pub(crate) const fn progressed(&mut self, now: Instant) {
        self.progress = now;
    }

    /// When it can be over, as things are; `None`: it is being ended.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        if !matches!(self.end, End::Ahead) {
            return None;
        }
        if self.common_over {
            // Until the next long session has not come back in its time.
            let Some((wait, _)) = self.long.first() else { return Some(self.started) };
            let least = self.started.plus(*wait);
            return Some(if self.claimed == 0 { least } else { self.extended(*wait) });
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace MAY end early once every session recorded as open has completed its reclaim or ended.
        //
        // Not if an agent that has not heard that its reclaim is complete may use its old lease for longer than T of this start.
        if self.awaited == 0 && !self.blind && !self.longer {
            return Some(self.started);
        }
        Some(if self.awaited == 0 { self.started.plus(self.wait) } else { self.extended(self.wait) })
    }

    /// When it can be over if it would last for `wait`, did nobody reclaim.
    fn extended(&self, wait: Duration) -> Instant {
        //= wire-spec.md#11-7-restart-and-recovery
        //# Grace SHOULD be extended, up to a bound, while reclaims go on.
        let progress = if self.claimed == 0 { self.serving } else { self.progress };
        self.started.plus(wait).max(progress.plus(self.patience).min(self.started.plus(wait * LONGEST)))
    }

    /// How long it lasts from now at least, as things are; `None`: it is being ended.
    pub(crate) fn rest(&self, now: Instant) -> Option<Duration> {
        self.deadline().map(|at| now.until_waited(at))
    }

    /// Nothing can be reclaimed from a session any more: gives its record, which says so now; `None`: it said so before.
    pub(crate) fn mark_unreclaimable(&mut self, id: SessionId) -> Option<SessionRecord> {
        let session = self.recorded.get_mut(&id).filter(|session| session.state == State::Awaited)?;
        (!core::mem::replace(&mut session.doomed, true)).then(|| session.record())
    }

    /// How far it is.
    pub(crate) fn status(&self, now: Instant) -> GraceStatus {
        let left = self.rest(now).unwrap_or_default();
        GraceStatus { left, awaited: self.awaited + self.long.len(), reclaiming: self.claimed, blind: self.blind }
    }

    pub(crate) fn set_state(&mut self, id: SessionId, state: State) {
        let Some(session) = self.recorded.get_mut(&id) else {
            return;
        };
        let was = core::mem::replace(&mut session.state, state);
        if state != State::Accounted || was == State::Accounted {
            return;
        }
        self.claimed -= usize::from(session.claimed.take().is_some());
        if !self.long.remove(&(session.wait, id)) {
            self.awaited -= 1;
            return;
        }
        for object in session.locks.iter().flatten() {
            if let Entry::Occupied(mut count) = self.withheld.entry(*object) {
                *count.get_mut() -= 1;
                if *count.get() == 0 {
                    count.remove();
                }
            }
        }
    }
}

impl fmt::Display for Grace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.blind {
            write!(f, "for {:?}: agents may hold locks that this store does not know of", self.wait)?;
        } else {
            write!(f, "for at most {:?}, or longer while reclaims go on", self.wait)?;
        }
        write!(f, "; {} sessions of before may reclaim their locks", self.recorded.values().filter(|session| !session.doomed).count())
    }
}
