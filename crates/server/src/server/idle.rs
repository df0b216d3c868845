//! Sessions of a group's server that hold nothing: their records say so, and a successor's grace does not wait for them.
//!
//! Decides that a record says so when its session has held nothing for τ, and that it says the contrary, durably, before anything of the
//! session is executed again. So an idle session costs two writes, and one in use none. Place in the walk: asked by `execute` first of all;
//! noted where locks and waits may have become fewer.
//! Implements `wire-spec.md` section 11.10. Invariant: whoever holds a lock or waits for one has a durable record that lets it.
//! Leaves to others: what grace makes of a record (`sessions::grace`: that of a long session with no objects), long sessions (`long`).

use crate::server::Server;
use crate::sessions::SessionKey;
use crate::store::{self, BatchId};
use alloc::collections::{BTreeMap, BTreeSet};
use cistern_link::{Instant, Question, TimerQueue};
use cistern_wire::{ObjectId, SessionId};
use core::time::Duration;

/// What the newest record of a session says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Says {
    /// It may hold something.
    Something,
    /// The same as soon as this batch is durable.
    SomethingBy(BatchId),
    /// It holds nothing.
    Nothing,
}

/// The sessions of a group's server, but for long ones.
#[derive(Debug, Default)]
pub(crate) struct IdleSessions {
    sessions: BTreeMap<SessionId, ([u8; 16], Says)>,
    /// Those whose locks or waits may have become fewer.
    changed: BTreeSet<SessionKey>,
    /// When those that hold nothing have done so for long enough.
    timers: TimerQueue<SessionKey>,
}

impl IdleSessions {
    /// The locks or waits of a session may have become fewer.
    pub(crate) fn note(&mut self, key: SessionKey) {
        if self.sessions.contains_key(&key.id()) {
            self.changed.insert(key);
        }
    }

    /// The session has ended.
    pub(crate) fn forget(&mut self, key: SessionKey) {
        if self.sessions.remove(&key.id()).is_some() {
            self.changed.remove(&key);
            self.timers.cancel(key);
        }
    }

    /// Whether a session's record is to say that it holds nothing.
    pub(crate) fn holds_nothing(&self, session: SessionId) -> bool {
        self.sessions.get(&session).is_some_and(|(_, says)| *says == Says::Nothing)
    }

    /// How long nothing has to be looked at.
    pub(crate) fn wake_after(&self, now: Instant) -> Option<Duration> {
        self.timers.wake_after(now).map(|next| next.0)
    }
}

impl Server {
    /// The locks or waits of a session may have become fewer, by that of an object or by a request that has come to its end.
    pub(crate) fn holds_less(&mut self, key: SessionKey, object: Option<ObjectId>) {
        self.long.note(key.id(), object);
        self.idle.note(key);
    }

    /// Session `key` is being opened.
    pub(crate) fn open_idle(&mut self, key: SessionKey, boot: [u8; 16]) {
        if self.tenure.is_limited() && !self.long.contains(key.id()) {
            self.idle.sessions.insert(key.id(), (boot, Says::Something));
            self.idle.note(key);
        }
    }

    fn holds_nothing(&self, key: SessionKey) -> bool {
        let slot = self.sessions.slot(key);
        self.is_good(key) && self.locks.holds(slot) == 0 && self.locks.waits(slot) == 0 && !self.ephemerals.any_of(key.id())
    }

    /// Looks at those that may hold nothing from now on.
    pub(crate) fn tidy_idle(&mut self) {
        while !self.idle.changed.is_empty()
            && let Some(key) = self.idle.changed.pop_first()
        {
            if self.holds_nothing(key) {
                self.idle.timers.set(key, self.now.plus(self.config.lease), Question::Waited);
            }
        }
    }

    /// Writes the records of those that have held nothing for long enough.
    pub(crate) fn run_idle_timers(&mut self) {
        while let Some(key) = self.idle.timers.due(self.now) {
            if self.holds_nothing(key) && self.tasks.of_session(key).next().is_none() {
                self.idle_says(key, Says::Nothing);
            }
        }
    }

    /// The batch for which a request has to wait because its session's record says that it holds nothing.
    pub(crate) fn wake_record(&mut self, key: SessionKey) -> Option<BatchId> {
        let says = self.idle.sessions.get(&key.id())?.1;
        //= wire-spec.md#11-10-groups-of-servers
        //# Nothing MUST be granted in a session whose record says that it holds nothing, before that is durably changed.
        match says {
            Says::Something => None,
            Says::SomethingBy(batch) if batch <= self.store.durable_up_to() => {
                self.idle.sessions.get_mut(&key.id())?.1 = Says::Something;
                self.idle.note(key);
                None
            }
            Says::SomethingBy(batch) => Some(batch),
            Says::Nothing => {
                let batch = self.store.open_batch();
                self.idle_says(key, Says::SomethingBy(batch));
                Some(batch)
            }
        }
    }

    /// The address of a session has changed: its record is to say so.
    pub(crate) fn record_move(&mut self, key: SessionKey) {
        if !self.tenure.is_limited() || !self.is_good(key) {
            return;
        }
        if self.long.contains(key.id()) {
            self.write_long(key);
        } else if let Some((_, says)) = self.idle.sessions.get(&key.id()) {
            self.idle_says(key, *says);
        }
    }

    fn idle_says(&mut self, key: SessionKey, says: Says) {
        let Some((boot, said)) = self.idle.sessions.get_mut(&key.id()) else { return };
        let boot = *boot;
        *said = says;
        if let Some(record) = self.session_record(key, boot, false) {
            self.store.put(store::Key::Session(key.id()), Some(record.to_bytes().into()));
        }
    }
}
