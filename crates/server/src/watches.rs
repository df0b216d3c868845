//! Watches: which sessions are told of changes of which objects, and how far each was told.
//!
//! Decides what WATCH and UNWATCH do, and when the next WATCH_EVENT of a watch goes out: after the change is durable (R61), and one at
//! a time (R82). Place in the walk: asked by `execute`, told of changes by `durability`, of receipts by `delivery`.
//! Implements `wire-spec.md` section 11.5. Invariant: a row that is behind its object has a notice on the way, or is told with the next
//! receipt; a row costs nothing while nothing changes.
//! Leaves to others: delivery and its failure (`outbox`, `timing_out`), probing of owners (`delivery`).

use crate::answers::Repeatable;
use crate::config::PresenceLimits;
use crate::durability::OnDurable;
use crate::execute::Run;
use crate::outbox::Body;
use crate::server::Server;
use crate::session::Session;
use crate::sessions::{Key, Sessions};
use crate::standing::Standing;
use crate::store::Seen;
use crate::tasks::Call;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Done, ObjectId, Reply, SessionId, Status, Unwatch, Watch, Watched};

/// What became of a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) object: ObjectId,
    /// Its version after; the last one if it is gone.
    pub(crate) version: u64,
    pub(crate) gone: bool,
}

/// One session's watch of one object.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The version that the session was told of last, or is being told of.
    told: u64,
    /// A notice about it is not receipted.
    on_way: bool,
    /// What is to be told next: version, and whether the object is gone.
    next: Option<(u64, bool)>,
    /// Somebody still wants to be told; otherwise the row only waits for its receipt.
    wanted: bool,
}

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    rows: BTreeMap<(ObjectId, SessionId), Row>,
    by_session: BTreeMap<SessionId, BTreeSet<ObjectId>>,
}

impl Watches {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether anybody watches an object.
    pub(crate) fn is_watched(&self, object: ObjectId) -> bool {
        self.of(object).any(|(_, row)| row.wanted)
    }

    /// Whether anybody but one session watches an object.
    fn is_watched_by_another(&self, object: ObjectId, session: SessionId) -> bool {
        self.of(object).any(|(watcher, row)| row.wanted && watcher != session)
    }

    fn of(&self, object: ObjectId) -> impl Iterator<Item = (SessionId, &Row)> {
        self.rows.range((object, SessionId(0))..=(object, SessionId(u64::MAX))).map(|((_, session), row)| (*session, row))
    }

    /// A session watches an object, of which it is told `version` by the answer.
    fn add(&mut self, session: SessionId, object: ObjectId, version: u64, limits: PresenceLimits) -> Result<(), Status> {
        if let Some(row) = self.rows.get_mut(&(object, session)) {
            row.wanted = true;
            row.told = row.told.max(version);
            return Ok(());
        }
        let own = self.by_session.entry(session).or_default();
        if self.rows.len() >= limits.watches_max || own.len() >= limits.watches_per_session {
            return Err(Status::BUSY);
        }
        own.insert(object);
        self.rows.insert((object, session), Row { told: version, on_way: false, next: None, wanted: true });
        Ok(())
    }

    /// A session watches an object no more.
    fn remove(&mut self, session: SessionId, object: ObjectId) {
        if let Some(row) = self.rows.get_mut(&(object, session)) {
            row.wanted = false;
            row.next = None;
            self.drop_if_over(session, object);
        }
    }

    fn drop_if_over(&mut self, session: SessionId, object: ObjectId) {
        if self.rows.get(&(object, session)).is_some_and(|row| !row.wanted && !row.on_way) {
            self.rows.remove(&(object, session));
            if let Some(own) = self.by_session.get_mut(&session) {
                own.remove(&object);
                if own.is_empty() {
                    self.by_session.remove(&session);
                }
            }
        }
    }

    /// A change is durable: the sessions that are to be told of it now. The others are told with their receipts.
    fn changed(&mut self, change: Change) -> Vec<SessionId> {
        let Change { object, version, gone } = change;
        let mut now = Vec::new();
        for ((_, session), row) in self.rows.range_mut((object, SessionId(0))..=(object, SessionId(u64::MAX))) {
            if !row.wanted || (row.told >= version && !gone) {
                continue;
            }
            //= wire-spec.md#11-5-caching-and-metadata
            //# At most one notice of a watch MUST be on the way per session and object.
            if row.on_way {
                row.next = Some((version, gone));
            } else {
                row.told = version;
                row.on_way = true;
                row.wanted = !gone;
                now.push(*session);
            }
        }
        now
    }

    /// The notice about an object was receipted: what is to be told now.
    fn receipted(&mut self, session: SessionId, object: ObjectId) -> Option<Change> {
        let row = self.rows.get_mut(&(object, session))?;
        match row.next.take() {
            Some((version, gone)) => {
                row.told = version;
                row.wanted = !gone;
                Some(Change { object, version, gone })
            }
            None => {
                row.on_way = false;
                self.drop_if_over(session, object);
                None
            }
        }
    }

    /// These sessions are to hear what becomes of an object, as if they watched it.
    pub(crate) fn concern(
        &mut self,
        object: ObjectId,
        who: impl IntoIterator<Item = SessionId>,
        sessions: &Sessions,
        limits: PresenceLimits,
    ) {
        // One that is timing out is told when it is rescued.
        let hears = |of: &Session| matches!(of.standing(), Standing::Good | Standing::TimingOut { .. });
        for session in who {
            if sessions.find(session).and_then(|key| sessions.get(key)).is_some_and(hears) {
                // Where a bound of watches is reached it is not told: an owner goes on renewing its lease, a holder has a demand.
                let _full = self.add(session, object, 0, limits);
            }
        }
    }

    /// A session has ended, and its watches with it.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        for object in self.by_session.remove(&session).into_iter().flatten() {
            self.rows.remove(&(object, session));
        }
    }
}

impl Server {
    /// WATCH.
    pub(crate) fn watch_object(&mut self, call: Call, message: &Watch, seen: &Seen) -> Run {
        let attr = self.namespace.attr(&self.overlay.view(seen), message.object)?;
        self.watches.add(call.key.id(), message.object, attr.version, self.config.presence)?;
        // Its owner is probed from now on.
        if let Some(owner) = self.ephemerals.bound(message.object).filter(|owner| *owner != call.key.id()) {
            self.watch(owner);
        }
        self.answer_with(&Reply::Watched(Watched { attr }), Repeatable::Changes)
    }

    /// UNWATCH.
    pub(crate) fn unwatch_object(&mut self, call: Call, message: &Unwatch) -> Run {
        self.watches.remove(call.key.id(), message.object);
        self.answer_with(&Reply::Done(Done {}), Repeatable::Changes)
    }

    /// Whether somebody else watches an ephemeral file of a session.
    pub(crate) fn is_watched_owner(&self, session: SessionId) -> bool {
        //= wire-spec.md#11-5-caching-and-metadata
        //# Every watcher of an object's owner MUST be served by the same probes of that owner.
        self.ephemerals.of(session).any(|object| self.watches.is_watched_by_another(object, session))
    }

    /// Objects were changed in the open batch, by one session: who is to be told is told when that is durable.
    pub(crate) fn tell_when_durable(&mut self, by: SessionId, changes: Vec<Change>) {
        if changes.is_empty() {
            return;
        }
        if bugs::is(Bug::W1) {
            return self.tell_watchers(by, changes);
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# A message that shows an effect of a transaction MUST wait until the transaction is durable.
        let batch = self.overlay.open_batch();
        self.after_commit(batch, OnDurable::Changed(by, changes));
    }

    /// Changes of watched objects, made by one session, are durable: their watchers are told.
    pub(crate) fn tell_watchers(&mut self, by: SessionId, changes: Vec<Change>) {
        for change in changes {
            if change.gone {
                //= wire-spec.md#11-4-locks
                //# The server MUST tell each session that holds an advisory lock on an object that another session has taken the object
                //# away.
                // Who waited when it was taken away may have been granted the lock since.
                let holders = self.locks.holders_of(change.object).into_iter().filter(|holder| *holder != by);
                self.watches.concern(change.object, holders, &self.sessions, self.config.presence);
            }
            //= wire-spec.md#11-5-caching-and-metadata
            //# The server MUST tell every session that watches an object of each durable change of it, or of a later one.
            for session in self.watches.changed(change) {
                self.tell_change(session, change);
            }
            if change.gone {
                self.locks.object_gone(self.now, change.object);
            }
        }
    }

    /// A session has receipted the notice of a watch; there may be more to tell.
    pub(crate) fn watcher_heard(&mut self, key: Key, object: ObjectId) {
        if let Some(change) = self.watches.receipted(key.id(), object) {
            self.tell_change(key.id(), change);
        }
    }

    fn tell_change(&mut self, session: SessionId, change: Change) {
        let Change { object, version, gone } = change;
        self.notify(session, Body::WatchEvent { object, version, gone });
    }
}
