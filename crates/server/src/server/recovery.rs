//! What an agent gets back of a former session: its locks after a restart, as long as grace lasts, and what became of its mutations.
//!
//! Decides who may reclaim: the same agent and incarnation, in grace, from a session that had not ended for good, until it says that it is
//! complete. A reclaimed lock keeps its generation and its run: it is the same grant. When the time of grace is over nothing can be reclaimed
//! any more from those who did not come back; they are ended in slices, so that the loop never stands still; the batch after the last of them
//! ends the grace, and batches become durable in order.
//! Place in the walk: under `opening` and `execute`; the end of grace, beside it. Implements `wire-spec.md` section 11.7.
//! Invariants: no two agents reclaim conflicting modes of one lock. Where they try, both lose their sessions; of a cache lock, the later one the
//! lock, for whoever may read can claim one. Until the last batch of grace is
//! durable the server is in grace.
//! Of mutations the newest of each place in the window is kept, in the batch of the mutation itself, until its session ends. After "not
//! executed" it is never executed; "executed" is said only of what is durable.
//! Leaves to others: how long grace lasts (`sessions::grace`), the lock table's checks (`locks::holds`), the files of those who have ended
//! (`presence`), the reply cache of a session that is still in the table (`cistern_link`).

use crate::config::micros_up;
use crate::locks::Restored;
use crate::principals::Rights;
use crate::requests::{Blocked, Call};
use crate::server::Server;
use crate::server::answers::{Repeatable, fate, stripped};
use crate::server::durability::OnDurable;
use crate::server::execute::{Done, Run};
use crate::server::long::Recording;
use crate::sessions::SessionKey;
use crate::sessions::grace::Grace;
use crate::sessions::session::Session;
use crate::sessions::standing::{Cause, Event, ReclaimState, Standing};
use crate::store::{self, Counter, OutcomeRecord, ReadError, Seen, StoreCache};
use alloc::vec::Vec;
use cistern_link::Stored;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::RECLAIM_MAX;
use cistern_wire::{
    Ack, AgentId, Bytes16, Fate, Field as _, List, LockClass, Mode, ObjectId, Outcome, OutcomeTold, Realm, Reclaim, ReclaimComplete,
    ReclaimItem, Reclaimed, ReclaimedItem, Reply, SessionId, Status,
};
use core::time::Duration;
use log::{info, warn};

/// How soon somebody may ask again at least when the time of grace is over and its end is being written.
const AFTER_GRACE: Duration = Duration::from_millis(20);

/// What an OUTCOME_TOLD has besides the reply.
const TOLD_AROUND: usize = Reply::KIND_LEN + OutcomeTold::MIN_LEN;

/// Locks.
impl Server {
    /// Whether the server is in the common grace, so that nothing is granted but what is reclaimed.
    pub(crate) fn in_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(Grace::is_common)
    }

    /// Whether a long session may still hold the advisory lock of an object that it has yet to reclaim.
    pub(crate) fn in_grace_of(&self, object: ObjectId) -> bool {
        //= wire-spec.md#11-7-restart-and-recovery
        //# After the common grace the server MUST NOT grant an advisory lock that the record of a long session names, nor take the object's
        //# name away unforced, before the session is accounted for or its T has passed.
        self.grace.as_ref().is_some_and(|grace| grace.withholds(object))
    }

    /// When what is refused until grace is over can be asked again, in milliseconds.
    pub(crate) fn grace_left_ms(&self) -> u32 {
        let rest = self.grace.as_ref().and_then(|grace| grace.rest(self.now)).filter(|rest| !rest.is_zero());
        let retry = rest.unwrap_or(AFTER_GRACE).min(self.config.lease / 4).max(Duration::from_millis(1));
        //= wire-spec.md#11-7-restart-and-recovery
        //# Every other request in grace MUST be answered IN_GRACE, with a hint of the time.
        u32::try_from(retry.as_nanos().div_ceil(1_000_000)).unwrap_or(u32::MAX)
    }

    /// The longest lease of the long sessions from which an agent may reclaim.
    pub(crate) fn longest_former(&self, agent: AgentId, incarnation: u64) -> Option<Duration> {
        let grace = self.grace.as_ref()?;
        let own = self.sessions.of_agent(agent).into_iter().filter_map(|key| self.sessions.get(key));
        let long = own.filter(|session| session.is_reclaimable_by(agent, incarnation) && grace.objects(session.id).is_some());
        long.map(Session::lease).max()
    }

    fn may_reclaim(&self, key: SessionKey, from: SessionId) -> bool {
        let from = self.sessions.find(from).and_then(|from| self.sessions.get(from));
        let Some((session, from)) = self.sessions.get(key).zip(from) else {
            return false;
        };
        from.principal == session.principal && from.is_reclaimable_by(session.agent, session.incarnation)
    }

    /// RECLAIM.
    pub(crate) fn reclaim(&mut self, call: Call, message: &Reclaim<'_>, seen: &Seen) -> Run {
        if message.items.len() > RECLAIM_MAX {
            return Err(Status::EINVAL.into());
        }
        let eligible = self.may_reclaim(call.key, message.from);
        let asker = self.principals.asker(call.who);
        let view = self.store.view(seen);
        let (mut found, mut missing) = (Vec::with_capacity(message.items.len()), Vec::new());
        for item in message.items.iter().filter(|_| eligible) {
            match self.namespace.permitted(&view, item.lock.object, asker, needed(&item)) {
                Ok(attr) => found.push(Ok((attr.version, attr.realm))),
                Err(ReadError::Failed(status)) => found.push(Err(status)),
                Err(ReadError::NotCached(_)) if call.progress.gives_up() => found.push(Err(Status::EIO)),
                Err(ReadError::NotCached(queries)) => missing.extend(queries),
            }
        }
        if !missing.is_empty() {
            return Err(Blocked::Load(missing).into());
        }
        let mut against = Vec::new();
        let mut items = Vec::with_capacity(message.items.len());
        for (at, item) in message.items.iter().enumerate() {
            let found = found.get(at).copied().unwrap_or(Err(Status::NOT_HELD));
            let reclaimed = found.map(|(_, realm)| self.reclaim_item(call, message.from, (&item, realm), &mut against));
            let status = reclaimed.unwrap_or_else(|status| status);
            let version = found.ok().filter(|_| status == Status::OK).map_or(0, |(version, _)| version);
            //= wire-spec.md#11-7-restart-and-recovery
            //# A reclaim MUST name object, mode, generation and version cached, and be answered with the current version.
            if status == Status::OK
                && let Recording::By(batch) = self.record_lock(call.key, item.lock.object)
            {
                seen.note(batch);
            }
            items.push(ReclaimedItem { lock: item.lock, generation: item.generation, status, version });
        }
        if let Some(grace) = self.grace.as_mut().filter(|_| items.iter().any(|item| item.status == Status::OK)) {
            grace.progressed(self.now);
        }
        if !against.is_empty() {
            self.conflict(call.key, message.from, &against);
        }
        self.answer_with(&Reply::Reclaimed(Reclaimed { items: List::of(&items) }), Repeatable::Changes)
    }

    /// Gives one lock, of an object in a realm, back; adds those to `against` who have reclaimed it before and cannot have held it, too.
    fn reclaim_item(&mut self, call: Call, from: SessionId, of: (&ReclaimItem, Realm), against: &mut Vec<SessionKey>) -> Status {
        let (key, (item, realm)) = (call.key, of);
        //= wire-spec.md#11-7-restart-and-recovery
        //# After the common grace only advisory locks whose objects the former session's record names MUST be reclaimable.
        //= wire-spec.md#11-7-restart-and-recovery
        //# Of a session whose record names what it may hold nothing else MUST be reclaimable in the common grace either, unless the store may
        //# be older than the record.
        if self.grace.as_ref().is_some_and(|grace| !grace.may_have_held(from, item.lock)) {
            return Status::NOT_HELD;
        }
        if self.record_lock(key, item.lock.object) == Recording::Full {
            return Status::BUSY;
        }
        match self.locks.restore(self.now, call.slot, item, realm) {
            Restored::Held => Status::OK,
            Restored::Refused(status) => status,
            Restored::Conflict(others) => {
                // What an earlier session of the agent itself has reclaimed stays with that until it ends.
                let agent = |key| self.sessions.get(key).map(|session| session.agent);
                let own = agent(key);
                let foreign = others.into_iter().filter(|key| agent(*key) != own);
                let of_cache = item.lock.class == LockClass::Cache;
                let what = if of_cache { "the later one is refused" } else { "both are failed" };
                for other in foreign {
                    warn!(
                        "{}: sessions {} and {} both reclaim {} {}; {what}; was a state directory or a machine copied?",
                        self.who,
                        key.id(),
                        other.id(),
                        item.lock,
                        item.mode
                    );
                    //= wire-spec.md#11-7-restart-and-recovery
                    //# A reclaim of a cache lock that conflicts with one before it MUST be refused and reported, and end no session.
                    if of_cache {
                        self.stats.reclaim_conflicts += 1;
                    } else {
                        against.push(other);
                    }
                }
                Status::NOT_HELD
            }
        }
    }

    /// Two agents reclaim an advisory lock that only one of them can have held: neither is believed (section 11.7).
    fn conflict(&mut self, key: SessionKey, from: SessionId, against: &[SessionKey]) {
        self.stats.reclaim_conflicts += 1;
        if let Some(from) = self.sessions.find(from) {
            self.forfeit(from);
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# Reclaims of an advisory lock that conflict MUST all be refused and reported, and their sessions end by D.
        for key in against.iter().copied().chain([key]) {
            if self.sessions.get(key).is_some_and(|session| matches!(session.standing(), Standing::Good | Standing::TimingOut { .. })) {
                self.fail(key, Cause::ReclaimConflict);
            }
        }
    }

    /// RECLAIM_COMPLETE: the session of before is accounted for once that is durable. One that did not come back in time, and that no slice
    /// has reached yet, ends here: its agent is told no sooner that its ephemeral files are gone.
    pub(crate) fn reclaim_complete(&mut self, call: Call, message: &ReclaimComplete, seen: &Seen) -> Run {
        let agent = self.sessions.get(call.key).map(|session| session.agent);
        let own = |session: &&Session| session.is_of_before() && Some(session.agent) == agent;
        let mut reply = Reply::Failed(cistern_wire::Failed { status: Status::NOT_HELD, retry_ms: 0 });
        if let Some(from) = self.sessions.find(message.from).filter(|from| self.sessions.get(*from).filter(own).is_some()) {
            if self.may_reclaim(call.key, from.id()) {
                info!("{}: session {} has reclaimed what it wants of session {}", self.who, call.key.id(), from.id());
                self.rebind_ephemerals(from.id(), call.key.id());
                self.over(from, Cause::Reclaimed);
                reply = Reply::Done(cistern_wire::Done {});
            } else {
                self.end_lost_session(from);
            }
            seen.note(self.end_batch(from).unwrap_or(0));
        }
        self.answer_with(&reply, Repeatable::Changes)
    }

    /// The time of grace is over.
    pub(crate) fn close_grace(&mut self) {
        let Some(grace) = &self.grace else {
            return;
        };
        let lost: Vec<SessionKey> = if grace.is_common() {
            let recorded = self.sessions.recorded().map(|(key, _)| key);
            recorded.filter(|key| !grace.awaits(self.now, key.id())).collect()
        } else {
            let recorded = |key: &SessionKey| self.sessions.get(*key).is_some_and(Session::is_recorded);
            grace.long_over(self.now).filter_map(|id| self.sessions.find(id)).filter(recorded).collect()
        };
        for key in &lost {
            self.change(*key, Event::Missed);
        }
        if let Some(grace) = &mut self.grace {
            grace.close(lost);
        }
    }

    /// Whether sessions that did not come back are left to be ended, or what comes after them to be written.
    pub(crate) fn is_closing_grace(&self) -> bool {
        self.grace.as_ref().is_some_and(Grace::is_closing)
    }

    /// Ends a slice of those who did not come back; when none is left, the grace.
    pub(crate) fn end_lost(&mut self) {
        let mut steps = if self.is_closing_grace() { self.config.freed_per_turn as usize } else { 0 };
        while steps > 0 {
            let Some(key) = self.grace.as_mut().and_then(Grace::next_lost) else {
                return self.write_end_of_grace();
            };
            steps = steps.saturating_sub(1 + usize::from(self.end_lost_session(key)));
        }
    }

    /// Ends one session that did not come back; gives how many outcomes go with it.
    pub(crate) fn end_lost_session(&mut self, key: SessionKey) -> u16 {
        let missed = Standing::Recorded { reclaim: ReclaimState::Missed };
        // Its agent may have said that its reclaim is complete since grace was closed.
        let Some(session) = self.sessions.get(key).filter(|session| session.standing() == missed) else {
            return 0;
        };
        let outcomes = session.outcomes.get();
        warn!(
            "{}: session {} of \"{}\" ({}) did not come back; its locks are lost; look at its host",
            self.who,
            session.id,
            session.label.escape_ascii(),
            session.agent
        );
        self.over(key, Cause::NotReclaimed);
        outcomes
    }

    fn write_end_of_grace(&mut self) {
        //= wire-spec.md#11-7-restart-and-recovery
        //# The first ordinary grant or mutation MUST come after the ends of all sessions that did not come back, but for long ones whose T
        //# has not passed, are durable.
        // Written also when nobody was lost: what was accounted for last may not be durable yet, and this batch is after that.
        self.store.set_counter(Counter::Restored, 0);
        self.store.set_counter(Counter::Wait, micros_up(self.config.wait()));
        let batch = self.store.open_batch();
        self.after_commit(batch, OnDurable::GraceOver);
    }

    /// The end of the grace, or of long sessions whose time after it was over, is durable.
    pub(crate) fn grace_over(&mut self) {
        let common = self.in_grace();
        if self.grace.as_mut().is_none_or(Grace::ended) {
            self.grace = None;
        }
        if common {
            self.begin_leases();
            info!("{}: grace is over after {:?}; locks are granted", self.who, self.now.since(self.started));
        }
        if let Some(grace) = &self.grace {
            info!(
                "{}: {} locks are kept for sessions with long leases that may still hold them, for at most {:?}",
                self.who,
                grace.withheld(),
                grace.rest(self.now).unwrap_or_default()
            );
        }
    }

    /// An agent lost its session for good: what it had before the start goes the same way, so that no later session reclaims it.
    pub(crate) fn forfeit_recorded(&mut self, agent: AgentId, incarnation: u64) {
        for key in self.sessions.of_agent(agent) {
            if self.sessions.get(key).is_some_and(|session| session.incarnation == incarnation) {
                self.forfeit(key);
            }
        }
    }

    /// The end of a session of before was decided: nothing can be reclaimed from it any more, though its lease has to be waited for.
    pub(crate) fn forfeit(&mut self, key: SessionKey) {
        if self.sessions.get(key).is_some_and(|session| session.standing().takes(Event::Forfeited)) {
            self.change(key, Event::Forfeited);
        }
    }
}

/// Outcomes.
impl Server {
    /// OUTCOME.
    pub(crate) fn outcome(&mut self, call: Call, message: &Outcome) -> Run {
        let Some(agent) = self.sessions.get(call.key).map(|session| session.agent) else {
            return Ok(Done::Silent);
        };
        let former = self.sessions.find(message.session).and_then(|key| Some((key, self.sessions.get(key)?)));
        let Some((key, session)) = former.filter(|(_, session)| session.agent == agent) else {
            return self.tell(call, Fate::Unknown, &[]);
        };
        match session.standing() {
            Standing::Recorded { .. } => {
                let window = session.cache.window();
                self.recorded_outcome(call, message, window)
            }
            Standing::Ended { .. } => {
                let fate = session.fate_after_end(message.nonce);
                self.tell(call, fate, &[])
            }
            // What the store had of it is being deleted.
            Standing::Ending { .. } if session.is_of_before() => self.tell(call, Fate::Unknown, &[]),
            Standing::TimingOut { .. } | Standing::Ending { .. } => self.outcome_of(call, key, message.nonce),
            // A session in good standing tells by itself what became of its requests.
            Standing::Good => self.tell(call, Fate::Unknown, &[]),
        }
    }

    /// Of a session that has failed, or ends.
    fn outcome_of(&mut self, call: Call, key: SessionKey, nonce: u64) -> Run {
        // What has had no effect yet never will.
        self.discard_request(key, nonce);
        // What was executed stands in a batch before that of the session in which this is asked: it is durable, and its reply is kept.
        let Some(session) = self.sessions.get_mut(key) else {
            return Ok(Done::Silent);
        };
        let fate = fate(session.cache.fence(nonce));
        let mut reply = Vec::new();
        if let (Fate::Executed, Some(Stored::Bytes(stored))) = (fate, session.cache.stored(nonce)) {
            stripped(stored, &mut reply);
        }
        self.tell(call, fate, &reply)
    }

    /// Of a session of before the start: by what the store has kept. Nothing of it can execute any more.
    fn recorded_outcome(&mut self, call: Call, message: &Outcome, window: u16) -> Run {
        //= wire-spec.md#11-2-delivery
        //# A server MUST answer what became of a mutation under an earlier incarnation, and MUST NOT execute it after it said "not
        //# executed".
        let kept = self.store.view(&Seen::default()).outcome(message.session, slot(message.nonce, window))?.cloned();
        match kept {
            Some(kept) if kept.nonce == message.nonce => self.tell(call, Fate::Executed, &kept.reply),
            // The agent had said that it no longer awaits it.
            Some(kept) if kept.nonce > message.nonce => self.tell(call, Fate::Unknown, &[]),
            Some(_) | None => self.tell(call, Fate::NotExecuted, &[]),
        }
    }

    fn tell(&mut self, call: Call, fate: Fate, reply: &[u8]) -> Run {
        if self.sessions.get(call.key).is_none() {
            return Err(Status::EINVAL.into());
        }
        let room = usize::from(call.limit) - Ack::around(self.form()) - TOLD_AROUND;
        let reply = Bytes16(if reply.len() <= room { reply } else { &[] });
        self.answer_with(&Reply::OutcomeTold(OutcomeTold { fate, reply }), Repeatable::Changes)
    }
}

/// What holding a lock takes.
fn needed(item: &ReclaimItem) -> Rights {
    match (item.lock.class, item.mode) {
        (LockClass::Advisory, _) => Rights::LOCK,
        (LockClass::Cache, Mode::Shared) => Rights::READ,
        (LockClass::Cache, Mode::Exclusive) => Rights::READ.with(Rights::WRITE),
    }
}

/// A mutation has changed something, in the open batch: so is its outcome.
pub(crate) fn keep_outcome(cache: &mut StoreCache, session: &Session, call: Call, reply: &[u8]) {
    let slot = slot(call.nonce, session.cache.window());
    session.outcomes.set(session.outcomes.get().max(slot + 1));
    let record = OutcomeRecord::bytes_of(if bugs::is(Bug::M31) { 0 } else { call.nonce }, reply);
    //= wire-spec.md#11-2-delivery
    //# A mutation's effects and its outcome MUST become durable in one transaction, and the outcome stays until the floor has passed it or
    //# its session is forgotten.
    cache.put(store::Key::Outcome(call.key.id(), slot), Some(record.into()));
}

/// Where the outcome of a nonce is kept.
fn slot(nonce: u64, window: u16) -> u16 {
    u16::try_from(nonce % u64::from(window.max(1))).unwrap_or(0)
}
