//! The reclaim: after a restart of the server the locks of a former session are taken over into the present one.
//!
//! Decides from which sessions, which locks are named, what becomes of each by the server's answer, and when the new session's lease
//! takes the place of the old one. Place in the walk: `opening` begins it with a WELCOME that says "reclaimable"; `Agent::tend` drives
//! it; until it is done only RECLAIM, RECLAIM_COMPLETE and OUTCOME are asked in the session. Implements `wire-spec.md` section 11.7.
//! Invariants: until the hand-over everything is used under the old lease alone, which nothing renews any more (R57); a lock whose
//! release or conversion was begun is not named (R56); when RECLAIM_COMPLETE goes out, nothing of the old session is used but what was
//! reclaimed (R57).
//! Leaves to others: the locks themselves (`locks`), what is cached under them (`cache`), mutations without an answer (`outcome`).

use crate::agent::{Agent, Timer, UNASKED};
use crate::api::{Event, HolderId};
use crate::believed;
use crate::lease::Lease;
use crate::requests::Asker;
use crate::surrender::Remains;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Question;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::RECLAIM_MAX;
use cistern_wire::{
    Failed, List, LockClass, LockId, Message, ReclaimComplete, ReclaimItem, ReclaimedItem, Reply, SessionFate, SessionId, Status,
};
use log::{info, warn};

/// Messages of locks that are out at once; the congestion window lets so many go only on a path that carries them.
const BATCHES_MAX: usize = 32;

/// How far the end of a source is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Completion {
    /// Locks are still being moved.
    Open,
    /// RECLAIM_COMPLETE was handed over.
    Asked,
    /// Answered.
    Done,
}

/// A former session whose locks are taken over.
#[derive(Debug)]
struct Source {
    remains: Remains,
    /// Its locks that were not named in this session yet.
    unnamed: BTreeSet<LockId>,
    completion: Completion,
    kept: u64,
    lost: u64,
}

/// Locks named in one RECLAIM that was not answered yet.
#[derive(Debug)]
struct Batch {
    from: SessionId,
    items: Vec<ReclaimItem>,
}

/// A reclaim under way.
#[derive(Debug)]
pub(crate) struct Reclaim {
    /// The new session's lease; the agent's is still the old one.
    pub(crate) lease: Lease,
    /// Oldest first.
    sources: Vec<Source>,
    batches: BTreeMap<u32, Batch>,
    last_batch: u32,
    /// Local users who were told meanwhile that their locks are lost, and have not said that they stopped.
    pub(crate) stopping: BTreeSet<HolderId>,
}

impl Reclaim {
    /// The sessions that are reclaimed from.
    pub(crate) fn sources(&self) -> impl Iterator<Item = SessionId> + '_ {
        self.sources.iter().map(|source| source.remains.session)
    }

    /// Whether this is one of them, and no lock of it waits to be named.
    pub(crate) fn is_empty_source(&self, session: SessionId) -> bool {
        self.sources.iter().any(|source| source.remains.session == session && source.unnamed.is_empty())
    }

    /// What is left of the former sessions, now that nothing is reclaimed from them any more.
    pub(crate) fn into_remains(self) -> impl Iterator<Item = Remains> {
        self.sources.into_iter().map(|source| source.remains)
    }

    /// The next locks to be named; those that were given back meanwhile are not among them, and those that cannot be are given too.
    fn take_unnamed(&mut self) -> Option<(SessionId, Vec<LockId>)> {
        if self.batches.len() >= BATCHES_MAX {
            return None;
        }
        let source = self.sources.iter_mut().find(|source| !source.unnamed.is_empty())?;
        let mut locks = Vec::with_capacity(RECLAIM_MAX);
        while locks.len() < RECLAIM_MAX
            && let Some(lock) = source.unnamed.pop_first()
        {
            locks.push(lock);
        }
        Some((source.remains.session, locks))
    }

    fn count(&mut self, from: SessionId, kept: bool) {
        if let Some(source) = self.sources.iter_mut().find(|source| source.remains.session == from) {
            *(if kept { &mut source.kept } else { &mut source.lost }) += 1;
        }
    }

    /// Everything that is not in the session in which this reclaim was made, by its own: what was named and not answered counts as
    /// not moved.
    fn fold(&mut self) {
        for (_, Batch { from, items }) in core::mem::take(&mut self.batches) {
            if let Some(source) = self.sources.iter_mut().find(|source| source.remains.session == from) {
                source.unnamed.extend(items.iter().map(|item| item.lock));
            }
        }
        for source in &mut self.sources {
            source.completion = Completion::Open;
        }
    }
}

impl Agent {
    /// The lease that answers in the present session renew.
    pub(crate) fn session_lease(&self) -> &Lease {
        self.reclaim.as_ref().map_or(&self.lease, |reclaim| &reclaim.lease)
    }

    /// The same, to be renewed.
    pub(crate) fn session_lease_mut(&mut self) -> &mut Lease {
        self.reclaim.as_mut().map_or(&mut self.lease, |reclaim| &mut reclaim.lease)
    }

    /// WELCOME has come, and takes the place of the present session, if there is one. What the server says of that decides: its locks
    /// are reclaimed, or it is over, and with it those that are being reclaimed.
    pub(crate) fn leave_session(&mut self, fates: &BTreeMap<SessionId, SessionFate>) {
        let Some(present) = self.session.as_ref().map(|session| session.id) else { return };
        let is_reclaimable = |session: SessionId| fates.get(&session) == Some(&SessionFate::Reclaimable);
        let earlier = self.reclaim.iter().flat_map(Reclaim::sources);
        if !earlier.chain([present]).any(is_reclaimable) {
            let why = match fates.get(&present) {
                Some(SessionFate::Ended) => "it has ended at the server, which has opened another",
                _ => "the server takes its locks back, and has opened another",
            };
            return self.session_over(why, &BTreeMap::new(), &[]);
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# Before it makes its list of reclaims the agent MUST stop taking messages of the old session.
        let Some(session) = self.session.take() else { return };
        let (remains, requests) = Remains::of(session);
        info!("{}: the server was started anew; the locks of session {present} are reclaimed", self.who);
        let fresh =
            Reclaim { lease: self.lease.next(), sources: Vec::new(), batches: BTreeMap::new(), last_batch: 0, stopping: BTreeSet::new() };
        let mut reclaim = self.reclaim.take().unwrap_or(fresh);
        reclaim.fold();
        reclaim.sources.push(Source { remains, unnamed: BTreeSet::new(), completion: Completion::Open, kept: 0, lost: 0 });
        self.reclaim = Some(reclaim);
        self.asks.clear();
        self.recovery.clear();
        self.watches_are_over();
        self.remember_mutations(present, &requests, &BTreeMap::new(), &[]);
        //= wire-spec.md#11-7-restart-and-recovery
        //# What the agent has begun to release or convert MUST NOT be among its reclaims.
        self.wait_anew();
        self.cache.change_session();
        self.locks.change_session(self.permit());
        self.settle();
        self.divide_locks(present);
        self.close_requests(present, requests, &BTreeMap::new(), &[]);
        self.leave_lost_sources(is_reclaimable);
        self.settle();
    }

    /// Each lock that is held belongs to one of the sources: the present session has all that were not still in an earlier one.
    fn divide_locks(&mut self, present: SessionId) {
        let Some(reclaim) = &mut self.reclaim else { return };
        let mut rest: BTreeSet<LockId> = self.cache.locks().chain(self.locks.locks()).collect();
        for source in &mut reclaim.sources {
            if source.remains.session == present {
                source.unnamed = core::mem::take(&mut rest);
            } else {
                rest.retain(|lock| !source.unnamed.contains(lock));
            }
        }
    }

    /// Nothing can be reclaimed from some of the sources: what they have is lost.
    fn leave_lost_sources(&mut self, is_reclaimable: impl Fn(SessionId) -> bool) {
        let Some(reclaim) = &mut self.reclaim else { return };
        let over: Vec<Source> = reclaim.sources.extract_if(.., |source| !is_reclaimable(source.remains.session)).collect();
        let until = self.lease.valid_until();
        for source in over {
            source.unnamed.iter().for_each(|lock| self.lose_lock(*lock));
            let holders = self.reclaim.as_ref().map(|reclaim| reclaim.stopping.clone()).unwrap_or_default();
            self.leave_behind(source.remains.used_by(&holders, until));
        }
    }

    /// A lock of the old session does not come along.
    fn lose_lock(&mut self, lock: LockId) {
        match lock.class {
            LockClass::Cache => self.cache.lose(lock.object),
            LockClass::Advisory => self.locks.lose(self.permit(), lock.object),
        }
        self.settle();
    }

    /// Names what is still to be named, and says that it is complete when it is.
    pub(crate) fn tend_reclaim(&mut self) {
        if bugs::is(Bug::M38b) {
            self.complete_too_early();
        }
        while let Some((from, locks)) = self.reclaim.as_mut().and_then(Reclaim::take_unnamed) {
            self.name_locks(from, &locks);
        }
        self.complete();
    }

    fn name_locks(&mut self, from: SessionId, locks: &[LockId]) {
        let mut items = Vec::with_capacity(locks.len());
        for lock in locks {
            let item = match lock.class {
                LockClass::Cache => self.cache.reclaim_item(lock.object),
                LockClass::Advisory => self.locks.reclaim_item(lock.object),
            };
            match item {
                Some(item) => items.push(item),
                None => self.lose_lock(*lock),
            }
        }
        let Some(reclaim) = self.reclaim.as_mut().filter(|_| !items.is_empty()) else { return };
        reclaim.last_batch += 1;
        let batch = reclaim.last_batch;
        reclaim.batches.insert(batch, Batch { from, items });
        self.ask_reclaim(batch);
    }

    fn ask_reclaim(&mut self, number: u32) {
        let batch = self.reclaim.as_ref().and_then(|reclaim| reclaim.batches.get(&number));
        if let Some(Batch { from, items }) = batch {
            let message = cistern_wire::Reclaim { ask: UNASKED, from: *from, items: List::of(items) };
            self.recovery.push_back((Asker::Reclaim(number), Message::from(message).to_bytes()));
        }
    }

    /// RECLAIM was answered.
    pub(crate) fn reclaimed(&mut self, number: u32, reply: &Reply<'_>) {
        if let Reply::Failed(failed) = reply
            && self.ask_later(Asker::Reclaim(number), *failed)
        {
            return;
        }
        let Some(Batch { from, items }) = self.reclaim.as_mut().and_then(|reclaim| reclaim.batches.remove(&number)) else { return };
        let told: BTreeMap<LockId, ReclaimedItem> = match reply {
            Reply::Reclaimed(reclaimed) => reclaimed.items.into_iter().map(|item| (item.lock, item)).collect(),
            _ => BTreeMap::new(),
        };
        for item in items {
            let kept = told.get(&item.lock).filter(|told| told.status == Status::OK && told.generation == item.generation);
            match kept {
                //= wire-spec.md#11-7-restart-and-recovery
                //# The agent MUST drop cached data of another version than the one that the reclaim was answered with.
                Some(told) if item.lock.class == LockClass::Cache => self.cache.keep_version(item.lock.object, told.version),
                Some(_) => {}
                None => {
                    let why = told.get(&item.lock).map_or(Status::NOT_HELD, |told| told.status);
                    warn!("{}: {} generation {} was not given back: {why}", self.who, item.lock, item.generation);
                    self.lose_lock(item.lock);
                }
            }
            if let Some(reclaim) = &mut self.reclaim {
                reclaim.count(from, kept.is_some());
            }
        }
    }

    /// Says that the reclaim is complete before anything is named; a deliberate bug, so that the server's answer to what follows shows.
    fn complete_too_early(&mut self) {
        let Some(reclaim) = &mut self.reclaim else { return };
        for source in reclaim.sources.iter_mut().filter(|source| source.completion == Completion::Open) {
            source.completion = Completion::Asked;
            let from = source.remains.session;
            let message = Message::from(ReclaimComplete { ask: UNASKED, from }).to_bytes();
            self.recovery.push_back((Asker::Complete(from), message));
        }
    }

    /// Says that the reclaim is complete once nothing of the old sessions is used any more but what was reclaimed.
    fn complete(&mut self) {
        let lease_over = !self.lease.certain(self.now);
        let Some(reclaim) = &mut self.reclaim else { return };
        if !reclaim.batches.is_empty() || reclaim.sources.iter().any(|source| !source.unnamed.is_empty()) {
            return;
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# What is not reclaimed when the agent says that its reclaim is complete MUST NOT be used from then on.
        if !reclaim.stopping.is_empty() && !lease_over {
            let until = self.lease.valid_until();
            return self.time(Timer::Reclaim, until, Question::LeaseOver);
        }
        for source in reclaim.sources.iter_mut().filter(|source| source.completion == Completion::Open) {
            let from = source.remains.session;
            // With the session the server forgets what became of its mutations.
            if !self.questions.keys().any(|(session, _)| *session == from) {
                source.completion = Completion::Asked;
                let message = Message::from(ReclaimComplete { ask: UNASKED, from }).to_bytes();
                self.recovery.push_back((Asker::Complete(from), message));
            }
        }
    }

    /// RECLAIM_COMPLETE was answered. A server that does not know the former session any more has nothing left to complete.
    pub(crate) fn completed(&mut self, from: SessionId, reply: &Reply<'_>) {
        if let Reply::Failed(failed) = reply
            && self.ask_later(Asker::Complete(from), *failed)
        {
            return;
        }
        let Some(reclaim) = &mut self.reclaim else { return };
        if let Some(source) = reclaim.sources.iter_mut().find(|source| source.remains.session == from) {
            source.completion = Completion::Done;
        }
        if reclaim.sources.iter().all(|source| source.completion == Completion::Done) {
            self.hand_over();
        }
    }

    /// All that is held belongs to the present session from now on, and is covered by its lease.
    fn hand_over(&mut self) {
        let (Some(reclaim), Some(to)) = (self.reclaim.take(), self.session.as_ref().map(|session| session.id)) else { return };
        self.timers.cancel(Timer::Reclaim);
        //= wire-spec.md#11-7-restart-and-recovery
        //# A renewing answer MUST make usable only locks of its own session.
        self.lease = reclaim.lease;
        for source in reclaim.sources {
            let (from, kept, lost) = (source.remains.session, source.kept, source.lost);
            info!("{}: session {to} has taken over {kept} locks of session {from}, {lost} were lost", self.who);
            self.events.push_back(Event::SessionReclaimed { from, to, kept, lost });
        }
        self.tend_holders();
        self.locks.renewed(self.permit());
        self.settle();
    }

    /// A request of recovery cannot be answered now: it is made again. False if the server does not say when.
    pub(crate) fn ask_later(&mut self, asker: Asker, failed: Failed) -> bool {
        let later = matches!(failed.status, Status::BUSY | Status::IN_GRACE) && failed.retry_ms > 0;
        if later {
            let at = self.now.plus(believed::pause(failed.retry_ms));
            self.timers.set(Timer::Again(asker), at, Question::Waited);
        }
        later
    }

    /// The time to ask again has come.
    pub(crate) fn ask_again(&mut self, asker: Asker) {
        match asker {
            Asker::Reclaim(batch) => self.ask_reclaim(batch),
            Asker::Outcome(session, nonce) => self.ask_outcome(session, nonce),
            Asker::Complete(from) => {
                let mut sources = self.reclaim.iter_mut().flat_map(|reclaim| reclaim.sources.iter_mut());
                if let Some(source) = sources.find(|source| source.remains.session == from) {
                    source.completion = Completion::Open;
                }
            }
            Asker::Watch(object) => self.watch_again(object),
            Asker::Op(..) | Asker::Lock(_) | Asker::Run(_) | Asker::Unwatch(_) => {}
        }
    }
}
