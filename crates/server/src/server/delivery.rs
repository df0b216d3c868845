//! Delivery: what the lock table wants said, and what follows when nobody answers.
//!
//! Decides that a session somebody waits for always has an unreceipted notice on the way, or is probed within the probe period (section
//! 11.3), and one that waits in line itself, too (section 11.4); that a cache lock demanded and receipted is back within the compliance
//! time; and that both clocks run only while this server listens. Place in the walk: between the lock table and the
//! notices; its deadlines run when the socket is empty.
//! Implements `wire-spec.md` section 6.4. Invariant: notices go only to sessions in good standing; those of a session that is timing
//! out are kept for its rescue.
//! Leaves to others: when a single notice has failed (`sessions::notices`), what D means (`lifecycle`).

use crate::ids::{FlowId, Owner};
use crate::locks::LockDecision;
use crate::scheduler::prices;
use crate::server::Server;
use crate::sessions::SessionKey;
use crate::sessions::networks::Network;
use crate::sessions::notices::Deadline;
use crate::sessions::notices::{Notice, NoticeQueue, NoticeVerdict};
use crate::sessions::session::Session;
use crate::sessions::standing::{Cause, Standing};
use crate::share::Shared;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Generation, LockClass, LockId, ReceiptAnswer, SessionId, Status};
use core::num::NonZeroU64;
use log::debug;

/// How many sessions are asked for one that would like to come in: some of them are gone, or the table is full of the living.
const PROBED_AT_ONCE: usize = 8;
/// Sessions that every owner may have.
const SESSIONS_RESERVE: usize = 16;

impl Server {
    /// Carries out all that the lock table has decided, and what it decides meanwhile.
    pub(crate) fn carry_out(&mut self) {
        while let Some(decision) = self.locks.poll_decision() {
            match decision {
                LockDecision::Demand { session, lock, generation, keep } => {
                    debug!("{}: demands {lock} generation {generation} of session {}, which may keep {keep}", self.who, session.id());
                    self.notify(session, Notice::Demand { lock, generation, keep });
                }
                LockDecision::DemandDelayed { session } => self.watch(session),
                LockDecision::Probe { session } => self.notify(session, Notice::Probe),
                LockDecision::Grant { session, nonce, lock, mode, generation, run } => {
                    debug!("{}: grants {lock} {mode} generation {generation} to session {}, which waited", self.who, session.id());
                    //= wire-spec.md#11-2-delivery
                    //# The outcome of a queued request MUST be sent as a notice, GRANT or WAIT_OVER.
                    self.notify(session, Notice::Grant { nonce, lock, mode, generation, run });
                    // Whatever brought it about, it is who waited that gains.
                    let flow = self.sessions.get(session).map_or(FlowId::NONE, |session| session.flow);
                    self.scheduler.charge(flow, prices::GRANT);
                }
                LockDecision::WaitOver { session, nonce, lock, status } => {
                    self.holds_less(session, Some(lock.object));
                    self.notify(session, Notice::WaitOver { nonce, lock, status });
                }
                LockDecision::Turn { task } => self.turn_came(task),
            }
        }
        self.tidy_long();
        self.tidy_idle();
    }

    /// Adds a notice. A session that is timing out is told when it is rescued: how a queued request ended is said only once.
    pub(crate) fn notify(&mut self, key: SessionKey, body: Notice) {
        let (good, timing_out) = match self.sessions.get(key).map(Session::standing) {
            Some(Standing::Good) => (true, false),
            Some(Standing::TimingOut { .. }) => (false, true),
            _ => (false, false),
        };
        if (good || timing_out)
            && let Some(notices) = self.notices(key)
        {
            notices.add(body);
        }
        if good || bugs::is(Bug::M17) {
            self.listening.set(key, Deadline::Probe, None);
            self.line_up(key);
        }
    }

    /// The wait of a queued request is over, and nobody will be told by a grant: says so, once at a time.
    pub(crate) fn tell_over(&mut self, key: SessionKey, nonce: u64, lock: LockId) {
        let told = self.sessions.get(key).and_then(|session| session.notices.as_ref()).is_some_and(|notices| notices.tells_of(nonce));
        if !told {
            self.notify(key, Notice::WaitOver { nonce, lock, status: Status::ECANCELED });
        }
    }

    /// The session's notices; made when first needed.
    pub(crate) fn notices(&mut self, key: SessionKey) -> Option<&mut NoticeQueue> {
        let session = self.sessions.get_mut(key)?;
        let (lease, round_trip) = (session.lease(), session.round_trip());
        Some(session.notices.get_or_insert_with(|| Box::new(NoticeQueue::new(&self.config, lease, round_trip))))
    }

    /// The agent's application said something about notice `seq`.
    pub(crate) fn receipted(&mut self, key: SessionKey, seq: u64, answer: ReceiptAnswer) {
        let Some(body) = self.sessions.get_mut(key).and_then(|session| session.notices.as_mut()).and_then(|o| o.receipt(seq, self.now))
        else {
            // Settled before: by a release, by a newer demand, or by the first copy of this receipt.
            return;
        };
        let slot = self.sessions.slot(key);
        match (body, answer) {
            (Notice::Demand { lock, generation, .. } | Notice::Grant { lock, generation, .. }, ReceiptAnswer::NotHeld) => {
                //= wire-spec.md#11-3-failure-and-ending
                //# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
                self.locks.on_not_held(self.now, slot, lock, generation);
                self.holds_less(key, Some(lock.object));
                //= wire-spec.md#6-4-notices
                //# A GRANT whose generation a DEMAND named that was receipted "not held" MUST be replaced by WAIT_OVER with ECANCELED.
                if let Some(Notice::Grant { nonce, lock, .. }) = self.gave_back(key, lock, generation) {
                    self.notify(key, Notice::WaitOver { nonce, lock, status: Status::ECANCELED });
                }
            }
            (Notice::Demand { lock, generation, .. }, _) if bugs::is(Bug::M20) => {
                self.locks.on_not_held(self.now, slot, lock, generation);
            }
            // Nobody holds a cache lock "in use" for longer than an operation, so that too is a promise to comply.
            (Notice::Demand { lock, generation, .. }, _) if lock.class == LockClass::Cache => self.promised(key, lock, generation),
            (Notice::WatchEvent { object, .. }, _) => self.watcher_heard(key, object),
            (Notice::Demand { .. } | Notice::Grant { .. } | Notice::WaitOver { .. } | Notice::Probe, _) => {}
        }
        self.locks.heard_of(self.now, slot);
        self.try_rescue(key);
        self.listen(key);
    }

    /// A demand for a cache lock was receipted: from now on it is owed, unless it came back already.
    fn promised(&mut self, key: SessionKey, lock: LockId, generation: Generation) {
        if self.locks.held(self.sessions.slot(key), lock).is_some_and(|held| held <= generation) {
            let by = self.delivery.at(self.now) + self.config.compliance_time;
            if let Some(notices) = self.notices(key) {
                notices.owe(lock, generation, by);
            }
        }
    }

    /// The session gave back every generation of `lock` up to `generation`: notices about them are settled (section 11.3). If it holds the
    /// lock all the same, it has named a generation that it was never granted: that receipts a demand, and does not comply with it.
    /// Gives the GRANT that is settled so, if there was one.
    pub(crate) fn gave_back(&mut self, key: SessionKey, lock: LockId, generation: Generation) -> Option<Notice> {
        let session = self.sessions.get_mut(key)?;
        let notices = session.notices.as_mut()?;
        let held = self.locks.held(session.slot, lock).filter(|held| *held <= generation);
        match held {
            None => notices.released(lock, generation),
            Some(held) => {
                if notices.receipted(lock, generation) && lock.class == LockClass::Cache {
                    self.promised(key, lock, held);
                }
                None
            }
        }
    }

    /// Sets the deadlines of a session anew, after its notices or what it owes have changed.
    pub(crate) fn listen(&mut self, key: SessionKey) {
        let Some(session) = self.sessions.get(key).filter(|session| session.standing().is_good()) else {
            return;
        };
        let Some(notices) = &session.notices else {
            return;
        };
        let (delivery, owed, idle) = (notices.next_deadline(&self.config), notices.next_owed(), notices.is_empty());
        let due = notices.has_due(&self.config);
        let probe_period = self.config.probe_period_for(session.lease());
        self.listening.set(key, Deadline::Delivery, delivery);
        self.listening.set(key, Deadline::Compliance, owed);
        if due {
            // Receipts have made room for notices that waited their turn.
            self.line_up(key);
        }
        if idle && !self.listening.is_set(key, Deadline::Probe) && (owed.is_some() || self.is_worth_probing(key)) {
            //= wire-spec.md#11-3-failure-and-ending
            //# The server MUST have an unreceipted notice on its way to each session that somebody waits for, or send one within the probe
            //# period.
            self.listening.set(key, Deadline::Probe, Some(self.delivery.elapsed() + probe_period));
        }
    }

    /// Whether somebody waits for a session, or it waits in line itself: if it is dead, it is better known now than when its turn has
    /// come, for then all who are dead in one line are found at the same time, and not one T after the other (section 11.4).
    fn is_worth_probing(&self, key: SessionKey) -> bool {
        //= wire-spec.md#11-4-locks
        //# The server SHOULD probe the sessions that wait for a lock, so that those that are gone fail side by side.
        //= wire-spec.md#11-5-caching-and-metadata
        //# An owner MUST be probed on account of its ephemeral files only while another session watches or looks at one.
        let slot = self.sessions.slot(key);
        self.locks.is_waited_for(slot) || self.locks.waits(slot) > 0 || self.is_watched_owner(key.id())
    }

    /// Somebody began to wait for a session, or it began to wait itself: it is probed in time even if nothing is on the way to it.
    pub(crate) fn watch(&mut self, key: SessionKey) {
        if self.is_good(key) && self.notices(key).is_some() {
            self.listen(key);
        }
    }

    /// The table of sessions is nearly full, or as much of it as a network may have: asks some of them, picked at random, whether their
    /// agents are there. Who is gone fails like anybody, and makes room; no order of sessions by time is needed for that.
    pub(crate) fn probe_some(&mut self, of: Option<Network>) {
        for _ in 0..PROBED_AT_ONCE {
            let listed = of.map(|network| self.sessions.of_network(network));
            let Some(places) = NonZeroU64::new(listed.map_or(self.sessions.places(), <[u32]>::len) as u64) else {
                return;
            };
            let place = usize::try_from(self.rng.below(places.get())).unwrap_or(0);
            let place = of.map_or(place, |network| self.sessions.of_network(network)[place] as usize);
            if let Some(key) = self.sessions.at(place).filter(|key| self.is_good(*key)) {
                self.probe(key);
            }
        }
    }

    /// Whether an owner may have one session more; if not, some of its sessions are asked whether their agents are there.
    pub(crate) fn share_has_room(&mut self, owner: Owner) -> bool {
        let (shared, all) = self.shared_sessions();
        if shared.admits(all, self.scheduler.of_owner(owner).1, 1) {
            return true;
        }
        if self.probes.allow(self.now) {
            self.probe_own(owner);
        }
        false
    }

    /// The table of sessions, and how much of it is used: those of before the start, which are still to come back, included.
    pub(crate) fn shared_sessions(&self) -> (Shared, usize) {
        let all = self.sessions.len() + self.sessions.counts().of_before;
        (Shared { capacity: self.config.sessions_max as usize, reserve: SESSIONS_RESERVE }, all)
    }

    /// Asks some sessions of an owner, picked at random, whether their agents are there.
    pub(crate) fn probe_own(&mut self, owner: Owner) {
        let (flow, own) = self.scheduler.of_owner(owner);
        let from = usize::try_from(self.rng.below(own.max(1) as u64)).unwrap_or(0);
        let ids: Vec<SessionId> = self.sessions.iter().filter(|session| session.flow == flow).map(|session| session.id).collect();
        for id in ids.iter().cycle().skip(from).take(PROBED_AT_ONCE.min(ids.len())) {
            if let Some(key) = self.sessions.find(*id).filter(|key| self.is_good(*key)) {
                self.probe(key);
            }
        }
    }

    /// Deadlines that are due now that the socket was found empty.
    pub(crate) fn run_deadlines(&mut self) {
        let listened = self.delivery.elapsed();
        while let Some((key, reason)) = self.listening.due(listened) {
            match reason {
                Deadline::Delivery => self.delivery_due(key),
                Deadline::Compliance => self.compliance_due(key),
                Deadline::Probe => self.probe_due(key),
                Deadline::Look => self.probe(key),
            }
        }
    }

    fn delivery_due(&mut self, key: SessionKey) {
        let listened = self.delivery.elapsed();
        let Some(notices) = self.sessions.get_mut(key).and_then(|session| session.notices.as_mut()) else {
            return;
        };
        match notices.on_deadline(listened, &self.config) {
            NoticeVerdict::Failed(_) if bugs::is(Bug::M22) => {
                notices.give_up();
                self.listen(key);
            }
            NoticeVerdict::Failed(body) => {
                debug!("{}: session {} receipted nothing: {body:?}", self.who, key.id());
                if matches!(body, Notice::Demand { lock, .. } if lock.class == LockClass::Cache) {
                    self.strike(key);
                }
                self.fail(key, Cause::DeliveryFailed);
            }
            NoticeVerdict::Resend => {
                self.listen(key);
                self.line_up(key);
            }
        }
    }

    fn compliance_due(&mut self, key: SessionKey) {
        if let Some(lock) = self.kept_too_long(key) {
            debug!("{}: session {} receipted the demand for {lock} and kept it", self.who, key.id());
            self.strike(key);
            //= wire-spec.md#11-3-failure-and-ending
            //# A cache lock still held when the compliance time after the receipt of its demand is over MUST lead to D.
            return self.fail(key, Cause::NotComplying);
        }
        self.listen(key);
    }

    /// A session fails because it did not give a cache lock back: whoever's it is gets none for a while.
    fn strike(&mut self, key: SessionKey) {
        let cost = self.config.compliance_time.saturating_add(self.config.wait());
        self.locks.strike(self.now, self.sessions.slot(key), cost);
    }

    /// A cache lock that the session holds although the time to give it back is over.
    fn kept_too_long(&mut self, key: SessionKey) -> Option<LockId> {
        let listened = self.delivery.elapsed();
        let session = self.sessions.get_mut(key)?;
        let notices = session.notices.as_mut()?;
        while let Some((lock, generation)) = notices.overdue(listened) {
            if self.locks.held(session.slot, lock).is_some_and(|held| held <= generation) {
                return Some(lock);
            }
            // It came back by a way that says nothing about demands.
            notices.settle_owed(lock);
        }
        None
    }

    /// Whether a session has receipted every notice that was sent to it, and keeps nothing that it should have given back (section 11.3).
    pub(crate) fn is_missing_nothing(&mut self, key: SessionKey) -> bool {
        //= wire-spec.md#11-3-failure-and-ending
        //# Rescue: the server MUST take a session back only if no NACK was produced since D, every failed notice is receipted, the cause
        //# allows it, and no end record was handed to the store.
        let notices = self.sessions.get(key).and_then(|session| session.notices.as_ref());
        notices.is_none_or(|notices| notices.is_receipted()) && self.kept_too_long(key).is_none()
    }

    fn probe_due(&mut self, key: SessionKey) {
        if !self.is_worth_probing(key) {
            // What is owed is watched for as long as it is owed; a new waiter may come for it.
            return self.listen(key);
        }
        self.probe(key);
    }

    /// Sends the session a probe, unless a notice is on its way to it already.
    pub(crate) fn probe(&mut self, key: SessionKey) {
        if let Some(notices) = self.notices(key)
            && notices.is_empty()
        {
            notices.add(Notice::Probe);
            self.line_up(key);
        }
    }

    /// A read has shown ephemeral files of these sessions: each is probed within the probe period, once for all who look till then.
    pub(crate) fn looked_at(&mut self, owners: Vec<SessionId>) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# A read that tells attributes of an ephemeral file MUST make the server probe the owner within the probe period.
        for owner in owners {
            if let Some(key) = self.sessions.find(owner).filter(|key| self.is_good(*key))
                && !self.listening.is_set(key, Deadline::Look)
            {
                let period = self.sessions.get(key).map(|session| self.config.probe_period_for(session.lease()));
                let period = period.map_or(self.config.probe_period, |period| period.min(self.config.probe_period));
                self.listening.set(key, Deadline::Look, Some(self.delivery.elapsed() + period));
            }
        }
    }
}
