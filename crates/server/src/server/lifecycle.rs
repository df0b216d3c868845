//! The life of a session: what follows from each change of its standing.
//!
//! Decides that at D nothing of the session renews or executes any more, its valid requests get NACK, and one timer runs, T = τ(1+δ)+ε from D,
//! or from what was heard last. What was missing may still come: then the session goes on as if nothing had been. When both clocks have
//! passed the timer, or when the agent gave the session up, its end goes to the store, and only when that is durable are its locks freed,
//! in slices. Place in the walk: beside it; D comes from `delivery`, from a newer session of the agent (`opening`) or from an operator.
//! Implements `wire-spec.md` section 11.3. Invariants: [`Server::change`] is the only way to a new standing, and [`Server::on_transition`] the
//! only place where one has consequences; one lease timer per session timing out, none else; no lock of a failed session goes to anybody
//! before it.
//! Leaves to others: which locks those are (`locks`), what a late agent is told (`strangers`).

use crate::ids::{Bound, FlowId, LockSlot, Owner, PrincipalId};
use crate::locks::LockAccess;
use crate::requests::{TaskId, Wait};
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::sessions::session::Session;
use crate::sessions::standing::{Cause, Event, Illegal, ReclaimState, Standing};
use crate::sessions::{SessionKey, Transition};
use crate::store::{self, BatchId};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, PacketCounter, Question};
use cistern_wire::{AgentId, Ended, FormerClaim, Message, SessionId};
use log::{Level, error, info, log, warn};

/// What waits for the store to have a session's record, or to have it no more.
#[derive(Clone, Debug)]
pub(crate) enum Pending {
    /// OPENED.
    Opened {
        /// Serial and newest packet of CONFIRM.
        serial: u64,
        packet: u64,
        /// The former sessions that it names: what is said of them is what is true when OPENED is made.
        former: Vec<FormerClaim>,
    },
    /// The end itself, and ENDED if the agent has asked for it.
    End {
        /// By which the store has it no more.
        batch: BatchId,
        /// Serial and packet of the newest END_SESSION.
        asked: Option<(u64, u64)>,
    },
}

impl Server {
    /// Something happens to a session: its standing changes, and what follows from that is done. False: nothing has changed.
    pub(crate) fn change(&mut self, key: SessionKey, event: Event) -> bool {
        match self.sessions.apply(key, event) {
            Ok(Some(transition)) => self.on_transition(transition),
            Ok(None) => return false,
            Err(illegal) => {
                self.illegal(key, illegal);
                return false;
            }
        }
        true
    }

    /// What follows from a change of standing.
    fn on_transition(&mut self, transition: Transition) {
        self.failovers.follow(self.now, &transition);
        let Transition { key, from, to } = transition;
        match (from, to) {
            (_, Standing::Recorded { reclaim }) => {
                if reclaim == ReclaimState::Forfeited {
                    self.write_unreclaimable(key);
                }
            }
            (Standing::Good, Standing::TimingOut { until, cause, .. }) => self.failed(key, until, cause),
            (Standing::TimingOut { cause: before, .. }, Standing::TimingOut { cause, .. }) => {
                // The timer of the first D runs on.
                if cause != before {
                    info!("{}: session {}, which is timing out, cannot come back: {cause}", self.who, key.id());
                    self.mark_unreclaimable(key, cause);
                }
            }
            (Standing::TimingOut { decided, .. }, Standing::Good) => self.rescued(key, decided),
            (_, Standing::Ending { cause }) => self.ending(key, cause),
            (_, Standing::Ended { cause }) => self.ended(key, cause),
            (_, Standing::Good | Standing::TimingOut { .. }) => debug_assert!(false, "{from:?} to {to:?}"),
        }
    }

    /// D: from now on nothing renews the session, and its locks go to others when T has passed.
    pub(crate) fn fail(&mut self, key: SessionKey, cause: Cause) {
        //= wire-spec.md#11-1-lease
        //# The server MUST NOT date D before the receipt of a datagram that it has acted on.
        self.change(key, Event::Failed { now: self.now, until: self.earliest_end(key, self.now), cause });
    }

    fn failed(&mut self, key: SessionKey, until: Instant, cause: Cause) {
        self.mark_unreclaimable(key, cause);
        self.lease_timers.set(key, until, Question::Waited);
        self.listening.forget(key);
        //= wire-spec.md#11-3-failure-and-ending
        //# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
        self.set_access(key, LockAccess::Suspended);
        self.stats.failures += 1;
        if bugs::is(Bug::E1) {
            self.left_files(Bound::Session(key.id()));
        }
        if let Some(session) = self.sessions.get(key) {
            self.failovers.begin(key, self.now, self.failover_of(session, until, cause));
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.lanes.drop_renewals(self.transport.pool());
            let wait = self.now.until_waited(until);
            info!("{}: {} failed: {cause}; its locks are freed in {wait:?} at the earliest", self.who, session.who());
        }
    }

    /// If nothing can undo the session's end any more, a server that starts anew is to know that, too.
    fn mark_unreclaimable(&mut self, key: SessionKey, cause: Cause) {
        if !cause.is_final() {
            return;
        }
        self.write_unreclaimable(key);
        if matches!(cause, Cause::Evicted | Cause::ReclaimConflict)
            && let Some(session) = self.sessions.get(key)
        {
            let (agent, incarnation) = (session.agent, session.incarnation);
            self.forfeit_recorded(agent, incarnation);
        }
    }

    fn write_unreclaimable(&mut self, key: SessionKey) {
        //= wire-spec.md#11-3-failure-and-ending
        //# An ending that no receipt can undo MUST be durable at D.
        if let Some(record) = self.session_record(key, [0; 16], true) {
            self.store.put(store::Key::Session(key.id()), Some(record.to_bytes().into()));
        }
    }

    /// Until when nothing of a session may go to others, if D is `decided`: no packet received later than that, or than what was heard
    /// last, was ever echoed by a message that renews, and the agent sent each before it was received here.
    fn earliest_end(&self, key: SessionKey, decided: Instant) -> Instant {
        //= wire-spec.md#11-3-failure-and-ending
        //# Last heard: the server MUST note the receipt of every packet that it echoes, and wait no less than until D and until the newest
        //# note plus T.
        let session = self.sessions.get(key);
        //= wire-spec.md#11-1-lease
        //# The server MUST wait for each session by the largest τ that it gave it and has not got back.
        let lease = session.filter(|_| !bugs::is(Bug::T3)).map_or(self.config.lease, Session::lease);
        let wait = self.config.wait_for(lease);
        if bugs::is(Bug::M5) {
            return decided.plus(wait.saturating_sub(self.config.delivery_timeout_for(lease)));
        } else if bugs::is(Bug::M6) {
            return decided;
        }
        match session.and_then(Session::heard) {
            Some(heard) => decided.max(heard.plus(wait)),
            None => decided.plus(wait),
        }
    }

    /// Something came from a session that is timing out: takes the session back if nothing is missing any more and nothing was lost.
    pub(crate) fn try_rescue(&mut self, key: SessionKey) {
        let event = Event::Rescued { now: self.now };
        // Not if a NACK was produced, the cause is final, or the wait is over and the end only has to be recorded.
        if !self.sessions.get(key).is_some_and(|session| session.standing().takes(event)) {
            return;
        }
        if bugs::is(Bug::M14) || self.config.rescue && self.is_missing_nothing(key) {
            self.change(key, event);
        }
    }

    /// Its timer is cancelled, a later D starts a full new one. What was parked at D, or whose turn came since, runs again. Renewing
    /// answers that were dropped at D stay dropped: the agent asks for them again.
    fn rescued(&mut self, key: SessionKey, decided: Instant) {
        self.lease_timers.cancel(key);
        self.stats.rescues += 1;
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if bugs::is(Bug::M13) || bugs::is(Bug::M14) || bugs::is(Bug::M24) {
            // Or what is still missing would fail it again at once.
            session.notices.as_mut().into_iter().for_each(|notices| notices.give_up());
        }
        let late = self.now.since(decided);
        info!("{}: {} is rescued: what was missing came {late:?} after its failure", self.who, session.who());
        self.set_access(key, LockAccess::Active);
        let parked: Vec<TaskId> = self.tasks.of_session(key).collect();
        for id in parked {
            if self.tasks.get(id).is_some_and(|task| task.wait == Wait::Standing) {
                self.queue_again(id);
            }
        }
        self.listen(key);
        self.line_up(key);
    }

    /// The lease timers that have run out, now that the socket was found empty.
    pub(crate) fn run_lease_timers(&mut self) {
        while let Some(key) = self.lease_timers.due(self.now) {
            if let Some(Standing::TimingOut { decided, .. }) = self.sessions.get(key).map(Session::standing) {
                assert!(
                    self.now.waited(self.earliest_end(key, decided)),
                    "session {} would be stolen from too early (section 11.3)",
                    key.id()
                );
            }
            if bugs::is(Bug::M24) {
                self.set_access(key, LockAccess::Ended);
                self.set_access(key, LockAccess::Freed);
                while self.locks.sweep(self.now, usize::MAX >> 1) {}
                let slot = self.locks.open(key, Owner::Server, PrincipalId::ANYBODY, true);
                self.sessions.get_mut(key).into_iter().for_each(|session| session.slot = slot);
            } else if self.locks.only_waits(self.sessions.slot(key)) && !self.ephemerals.any_of(key.id()) {
                info!("{}: session {} has timed out; it only waited for locks", self.who, key.id());
            } else {
                self.stats.steals += 1;
                warn!("{}: session {} has timed out, and is stolen from", self.who, key.id());
            }
            self.change(key, Event::Waited { now: self.now });
        }
    }

    /// Nothing of the session can be used again: it ends without a wait.
    pub(crate) fn over(&mut self, key: SessionKey, cause: Cause) {
        log!(end_level(cause), "{}: session {} ends: {cause}", self.who, key.id());
        self.change(key, Event::Over { cause });
    }

    /// The session's end goes to the store. Nothing of it is done any more, nothing of it is freed yet.
    fn ending(&mut self, key: SessionKey, cause: Cause) {
        self.lease_timers.cancel(key);
        self.listening.forget(key);
        let parked = self.tasks.of_session(key).collect();
        //= wire-spec.md#11-3-failure-and-ending
        //# What was parked MUST be dropped when the session ends.
        self.discard_all(parked);
        self.set_access(key, LockAccess::Ended);
        if let Some(session) = self.sessions.get_mut(key) {
            session.lanes.drop_renewals(self.transport.pool());
        }
        self.long.forget(key.id());
        self.idle.forget(key);
        if cause != Cause::NotReclaimed || !bugs::is(Bug::M38) {
            let outcomes = self.sessions.get(key).map_or(0, |session| session.outcomes.get());
            self.delete_session(key.id(), outcomes);
            // The key of a start goes in the transaction in which the last of its sessions ends.
            if let Some(start) = self.start_keys.ended(key.id()) {
                self.store.put(store::Key::StartKey(start), None);
            }
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# The end of a session MUST NOT wait for cache locks that protect its ephemeral files.
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST NOT remove an ephemeral file on account of its owner by a transaction before the one that ends that session.
        self.remove_with_end(Bound::Session(key.id()));
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST end a surrendered session durably before it frees the session's locks.
        let batch = self.store.open_batch();
        //= wire-spec.md#11-3-failure-and-ending
        //# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
        if bugs::is(Bug::M37) {
            self.change(key, Event::Durable);
            return;
        }
        self.pending.insert(key, Pending::End { batch, asked: None });
        self.after_commit(batch, OnDurable::Ended(key));
    }

    /// Deletes what the store has of a session: its record, and the outcomes in so many places.
    pub(crate) fn delete_session(&mut self, id: SessionId, outcomes: u16) {
        self.store.put(store::Key::Session(id), None);
        for slot in 0..outcomes {
            self.store.put(store::Key::Outcome(id, slot), None);
        }
    }

    /// The batch by which a session ends, as long as that is not durable.
    pub(crate) fn end_batch(&self, key: SessionKey) -> Option<BatchId> {
        match self.pending.get(&key)? {
            Pending::End { batch, .. } => Some(*batch),
            Pending::Opened { .. } => None,
        }
    }

    /// The session's end is durable: its locks are nobody's, and it is remembered only to tell its agent.
    fn ended(&mut self, key: SessionKey, cause: Cause) {
        self.set_access(key, LockAccess::Freed);
        //= wire-spec.md#11-3-failure-and-ending
        //# A session MUST end whole: by T, by END_SESSION, or by its agent's next session (section 11.6).
        self.stages.end_session(key.id());
        self.lines.end_session(key.id());
        self.watches.end_session(key.id());
        self.left_files(Bound::Session(key.id()));
        let pending = self.pending.remove(&key);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        // The lock table gives it to another one when it has freed what was held.
        session.slot = LockSlot::NONE;
        if bugs::is(Bug::S7) {
            session.packets = PacketCounter::starting_at(1);
        }
        self.scheduler.part(core::mem::replace(&mut session.flow, FlowId::NONE));
        session.lanes.clear(self.transport.pool());
        log!(end_level(cause), "{}: {} has ended; its locks are free", self.who, session.who());
        if session.is_of_before() {
            self.sessions.forget(key);
            if let Some(grace) = &mut self.grace {
                grace.accounted(key.id());
            }
        } else if let Some(Pending::End { asked: Some((serial, echo)), .. }) = pending {
            let path = session.path;
            self.send_to_session_by(key, path, &[Message::Ended(Ended { serial, echo })]);
        }
    }

    /// Tells the lock table of a session's standing.
    pub(crate) fn set_access(&mut self, key: SessionKey, access: LockAccess) {
        self.locks.set_access(self.now, self.sessions.slot(key), access);
    }

    /// Frees a slice of what ended sessions held.
    pub(crate) fn free_some(&mut self) {
        self.locks.sweep(self.now, self.config.freed_per_turn as usize);
    }

    /// Evicts an agent, for an operator: its sessions are timed out, without a way back; their locks are free after T at the earliest.
    /// Gives the sessions; none if the agent has none that can be evicted.
    pub fn evict(&mut self, now: Instant, agent: AgentId) -> Vec<SessionId> {
        self.step(now, |server| {
            let mut evicted = Vec::new();
            for key in server.sessions.of_agent(agent) {
                let standing = server.sessions.get(key).map(Session::standing);
                if matches!(standing, Some(Standing::Good | Standing::TimingOut { .. })) {
                    warn!("{}: session {} is evicted", server.who, key.id());
                    //= wire-spec.md#11-3-failure-and-ending
                    //# Eviction by an operator MUST be D, without rescue, and MUST NOT free anything before T.
                    server.fail(key, Cause::Evicted);
                    evicted.push(key.id());
                }
            }
            evicted
        })
    }

    /// An event that cannot happen: nothing was changed; the server goes on, for every other session is as it was.
    fn illegal(&self, key: SessionKey, illegal: Illegal) {
        let Illegal { standing, event } = illegal;
        error!("{}: session {} is {} and cannot take {event:?}; please report this", self.who, key.id(), standing.name());
        debug_assert!(false, "illegal: {illegal:?}");
    }
}

/// An agent that closes its session is an ordinary end: of a command, it is the second thing that is said of it. So it is of what was
/// reclaimed or not.
fn end_level(cause: Cause) -> Level {
    if matches!(cause, Cause::Closed | Cause::Reclaimed | Cause::NotReclaimed) { Level::Debug } else { Level::Info }
}
