//! Failure, rescue and end of a session: D, the one timer, and what is freed when.
//!
//! Decides what happens at D: from that instant nothing of the session renews or executes, its valid requests get NACK, and one timer
//! runs, T = τ(1+δ)+ε from D, or from what was heard last. What was missing may still come: then the session goes on as if nothing
//! had been. When both clocks have passed the timer, or when the agent gave the session up, its end goes to the store, and
//! only when that is durable are its locks freed, in slices. Place in the walk: beside it; D comes from `delivery`,
//! from a newer session of the agent (`handshake`) or from an operator. Implements `wire-spec.md` section 11.3.
//! Invariant: one lease timer per session timing out, none else; no lock of a failed session goes to anybody before it.
//! Leaves to others: which locks those are (`locks`), what a late agent is told (`strangers`).

use crate::locks::LockAccess;
use crate::requests::Wait;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::sessions::SessionKey;
use crate::sessions::session::Session;
use crate::sessions::standing::{Cause, Event, Illegal, Standing};
use crate::sessions::tombstones::Tombstone;
use crate::store;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Question};
use cistern_wire::{AgentId, Ended, Message, SessionId};
use log::{Level, error, info, log, warn};

impl Server {
    /// D: from now on nothing renews the session, and its locks go to others when T has passed.
    pub(crate) fn fail(&mut self, key: SessionKey, cause: Cause) {
        let was_good = self.is_good(key);
        //= wire-spec.md#11-1-lease
        //# The server MUST NOT date D before the receipt of a datagram that it has acted on.
        let event = Event::Failed { now: self.now, until: self.earliest_end(key, self.now), cause };
        let until = match self.sessions.apply(key, event) {
            Ok(Some(Standing::TimingOut { until, .. })) => until,
            Ok(_) => return,
            Err(illegal) => return self.illegal(key, illegal),
        };
        if cause.is_final() {
            self.record_doom(key);
        }
        if matches!(cause, Cause::Evicted | Cause::ReclaimConflict)
            && let Some(session) = self.sessions.get(key)
        {
            let (agent, incarnation) = (session.agent, session.incarnation);
            self.doom_recorded(agent, incarnation);
        }
        if !was_good {
            // The timer of the first D runs on.
            info!("{}: session {}, which is timing out, cannot come back: {cause}", self.who, key.id());
            return;
        }
        self.lease_timers.set(key, until, Question::Waited);
        self.listening.forget(key);
        //= wire-spec.md#11-3-failure-and-ending
        //# A session that is timing out MUST NOT hold up the grant of a lock that it does not hold.
        self.set_access(key, LockAccess::Suspended);
        self.stats.failures += 1;
        if bugs::is(Bug::E1) {
            self.session_left_files(key.id());
        }
        if let Some(session) = self.sessions.get_mut(key) {
            session.out.drop_renewals(self.sending.pool());
            let wait = self.now.until_waited(until);
            info!("{}: {} failed: {cause}; its locks are freed in {wait:?} at the earliest", self.who, session.who());
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
    ///
    /// Its timer is cancelled, a later D starts a full new one. What was parked at D, or whose turn came since, runs again. Renewing
    /// answers that were dropped at D stay dropped: the agent asks for them again.
    pub(crate) fn try_rescue(&mut self, key: SessionKey) {
        let Some(Standing::TimingOut { decided, .. }) = self.sessions.get(key).map(Session::standing) else {
            return;
        };
        if !bugs::is(Bug::M14) && (!self.config.rescue || !self.is_missing_nothing(key)) {
            return;
        }
        if !matches!(self.sessions.apply(key, Event::Rescued { now: self.now }), Ok(Some(Standing::Good))) {
            // A NACK was produced, the cause is final, or the wait is over and the end only has to be recorded.
            return;
        }
        self.lease_timers.cancel(key);
        self.stats.rescues += 1;
        let Some(session) = self.sessions.get(key) else {
            return;
        };
        let late = self.now.since(decided);
        info!("{}: {} is rescued: what was missing came {late:?} after its failure", self.who, session.who());
        let parked = session.tasks.clone();
        self.set_access(key, LockAccess::Active);
        for id in parked {
            if self.tasks.get(id).is_some_and(|task| task.wait == Wait::Standing) {
                self.resume(id);
            }
        }
        self.listen(key);
        self.line_up(key);
    }

    /// Nothing can undo the session's end any more: a server that starts anew knows that, too.
    fn record_doom(&mut self, key: SessionKey) {
        //= wire-spec.md#11-3-failure-and-ending
        //# An ending that no receipt can undo MUST be durable at D.
        if let Some(record) = self.session_record(key, [0; 16], true) {
            self.overlay.put(store::Key::Session(key.id()), Some(record.to_bytes().into()));
        }
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
                let slot = self.locks.open(key, true);
                self.sessions.get_mut(key).into_iter().for_each(|session| session.slot = slot);
                self.sessions.pardon(key);
                continue;
            }
            match self.sessions.apply(key, Event::Waited { now: self.now }) {
                Ok(_) => {
                    if self.locks.only_waits(self.sessions.slot(key)) && !self.ephemerals.any_of(key.id()) {
                        info!("{}: session {} has timed out; it only waited for locks", self.who, key.id());
                    } else {
                        self.stats.steals += 1;
                        warn!("{}: session {} has timed out, and is stolen from", self.who, key.id());
                    }
                    self.record_end(key);
                }
                Err(illegal) => self.illegal(key, illegal),
            }
        }
    }

    /// Nothing of the session can be used again: it ends without a wait.
    pub(crate) fn over(&mut self, key: SessionKey, cause: Cause) {
        match self.sessions.apply(key, Event::Over { cause }) {
            Ok(_) => {
                self.lease_timers.cancel(key);
                log!(end_level(cause), "{}: session {} ends: {cause}", self.who, key.id());
                self.record_end(key);
            }
            Err(illegal) => self.illegal(key, illegal),
        }
    }

    /// The session's end goes to the store. Nothing of it is done any more, nothing of it is freed yet.
    fn record_end(&mut self, key: SessionKey) {
        self.listening.forget(key);
        let parked = self.sessions.get_mut(key).map(|session| core::mem::take(&mut session.tasks)).unwrap_or_default();
        //= wire-spec.md#11-3-failure-and-ending
        //# What was parked MUST be dropped when the session ends.
        self.discard_all(parked);
        self.set_access(key, LockAccess::Ended);
        if let Some(session) = self.sessions.get_mut(key) {
            session.out.drop_renewals(self.sending.pool());
        }
        self.long.forget(key.id());
        self.overlay.put(store::Key::Session(key.id()), None);
        self.drop_outcomes(key);
        //= wire-spec.md#11-5-caching-and-metadata
        //# The end of a session MUST NOT wait for cache locks that protect its ephemeral files.
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST NOT remove an ephemeral file on account of its owner by a transaction before the one that ends that session.
        self.remove_with_end(key.id());
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST end a surrendered session durably before it frees the session's locks.
        let batch = self.overlay.open_batch();
        //= wire-spec.md#11-3-failure-and-ending
        //# After T the server MUST make the end of the session durable before anything that it frees is granted, executed or shown.
        if bugs::is(Bug::M37) {
            return self.ended(key);
        }
        self.after_commit(batch, OnDurable::Ended(key));
    }

    /// The session's end is durable: its locks are nobody's, and it is remembered only to tell its agent.
    pub(crate) fn ended(&mut self, key: SessionKey) {
        let cause = match self.sessions.apply(key, Event::Durable) {
            Ok(Some(Standing::Ended { cause })) => cause,
            Ok(_) => return,
            Err(illegal) => return self.illegal(key, illegal),
        };
        self.set_access(key, LockAccess::Freed);
        let Some(mut session) = self.sessions.remove(key) else {
            return;
        };
        //= wire-spec.md#11-3-failure-and-ending
        //# A session MUST end whole: by T, by END_SESSION, or by its agent's next session (section 11.6).
        self.stages.end_session(key.id());
        self.watches.end_session(key.id());
        self.session_left_files(key.id());
        session.out.clear(self.sending.pool());
        let mut last_packet = session.packets.last();
        if let Some((serial, echo)) = self.farewells.remove(&key) {
            last_packet += 1;
            self.send_loose(session.path, key.id(), last_packet, &[Message::Ended(Ended { serial, echo })], None);
        }
        self.tombstones.add(key.id(), Tombstone::of(session.path, session.agent, &session.cache, last_packet, cause));
        log!(end_level(cause), "{}: {} has ended; its locks are free", self.who, session.who());
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

/// An agent that closes its session is an ordinary end: of a command, it is the second thing that is said of it.
fn end_level(cause: Cause) -> Level {
    if cause == Cause::Closed { Level::Debug } else { Level::Info }
}
