//! Who is there, and who is told: which file ends with which session, and which sessions are told of changes of which objects.
//!
//! Decides when the next WATCH_EVENT of a watch goes out: one at a time. Writes nothing, sends nothing.
//! Invariant: a row that is behind its object has a notice on the way, or is told with the next receipt; a row costs nothing while nothing
//! changes.

pub(crate) mod ephemerals;

use crate::config::PresenceLimits;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_wire::{ObjectId, SessionId, Status};

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
struct Watching {
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
    rows: BTreeMap<(ObjectId, SessionId), Watching>,
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
    pub(crate) fn is_watched_by_another(&self, object: ObjectId, session: SessionId) -> bool {
        self.of(object).any(|(watcher, row)| row.wanted && watcher != session)
    }

    fn of(&self, object: ObjectId) -> impl Iterator<Item = (SessionId, &Watching)> {
        self.rows.range((object, SessionId(0))..=(object, SessionId(u64::MAX))).map(|((_, session), row)| (*session, row))
    }

    /// A session watches an object, of which it is told `version` by the answer.
    pub(crate) fn add(&mut self, session: SessionId, object: ObjectId, version: u64, limits: PresenceLimits) -> Result<(), Status> {
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
        self.rows.insert((object, session), Watching { told: version, on_way: false, next: None, wanted: true });
        Ok(())
    }

    /// A session watches an object no more.
    pub(crate) fn remove(&mut self, session: SessionId, object: ObjectId) {
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
    pub(crate) fn changed(&mut self, change: Change) -> Vec<SessionId> {
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
    pub(crate) fn receipted(&mut self, session: SessionId, object: ObjectId) -> Option<Change> {
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
    pub(crate) fn concern(&mut self, object: ObjectId, who: impl IntoIterator<Item = SessionId>, limits: PresenceLimits) {
        for session in who {
            // Where a bound of watches is reached it is not told: an owner goes on renewing its lease, a holder has a demand.
            let _full = self.add(session, object, 0, limits);
        }
    }

    /// A session has ended, and its watches with it.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        for object in self.by_session.remove(&session).into_iter().flatten() {
            self.rows.remove(&(object, session));
        }
    }
}
