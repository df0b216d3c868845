//! Long sessions: those whose lease period is above the server's own, which get nothing that the store does not know of.
//!
//! Decides that an object stands in such a session's record, durably, before its advisory lock is asked for, and stays there as long as
//! the session holds the lock or waits for it. So a server that starts again knows what the session may hold, keeps others away from
//! these objects alone until T of that session has run, and serves everybody else after its common grace. Place in the walk: asked by
//! `execute` and `recovery` before a lock is granted; tidied when the lock table was changed.
//! Implements `wire-spec.md` section 11.7. Invariant: whoever holds an advisory lock in a long session, or waits for one, has its object
//! in a durable record. The converse may fail for a while, which costs time after a restart, never safety.
//! Leaves to others: what others may not do meanwhile (`recovery`), cache locks, of which a long session gets none (`locks`).

use crate::ids::FlowId;
use crate::requests::{Task, TaskId};
use crate::scheduler::prices;
use crate::server::Server;
use crate::sessions::SessionKey;
use crate::sessions::session::Session;
use crate::sessions::standing::Standing;
use crate::store::{self, BatchId, SessionRecord};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_seal::Sealer;
use cistern_wire::{Kind, ObjectId, SessionId};
use log::info;

/// Most objects of which a long session holds the lock or waits for it: its record is written whole for each.
pub(crate) const RECORDED_MAX: usize = 1_024;

/// What is kept of a long session besides what is kept of any.
#[derive(Debug)]
struct Long {
    boot: [u8; 16],
    /// The objects in its record, each with the batch by which it came to stand there.
    objects: BTreeMap<ObjectId, BatchId>,
    /// Those of them whose locks the session may neither hold nor wait for.
    doubtful: BTreeSet<ObjectId>,
}

/// The long sessions.
#[derive(Debug, Default)]
pub(crate) struct LongSessions {
    sessions: BTreeMap<SessionId, Long>,
    /// Those whose locks or waits may have become fewer.
    changed: BTreeSet<SessionId>,
}

/// How far an object is on its way into a session's record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recording {
    /// The session is not long, or the object stands there durably.
    Done,
    /// It does so when this batch is durable.
    By(BatchId),
    /// There is no room for it.
    Full,
}

impl LongSessions {
    /// The locks or waits of a session may have become fewer, by that of an object or by a request that was recorded for and has come to its
    /// end. Nothing happens if it is not long.
    pub(crate) fn note(&mut self, session: SessionId, object: Option<ObjectId>) {
        if let Some(long) = self.sessions.get_mut(&session) {
            long.doubtful.extend(object.filter(|object| long.objects.contains_key(object)));
            self.changed.insert(session);
        }
    }

    /// Whether a session is long.
    pub(crate) fn contains(&self, session: SessionId) -> bool {
        self.sessions.contains_key(&session)
    }

    /// The session is forgotten.
    pub(crate) fn forget(&mut self, session: SessionId) {
        self.sessions.remove(&session);
        self.changed.remove(&session);
    }

    /// The objects in a session's record; `None`: it is not long.
    fn objects(&self, session: SessionId) -> Option<Vec<ObjectId>> {
        self.sessions.get(&session).map(|long| long.objects.keys().copied().collect())
    }
}

impl Server {
    /// Session `key` is being opened: notes it if it is long, and says what that costs others.
    pub(crate) fn open_long(&mut self, key: SessionKey, boot: [u8; 16]) {
        let Some(session) = self.sessions.get(key).filter(|session| session.lease() > self.config.lease) else {
            return;
        };
        let lease = session.lease();
        info!(
            "{}: {} has a lease of {lease:?}, longer than this server's {:?}: its locks are recorded, it caches nothing, and if it is gone, \
             others wait for its locks for at most {:?}",
            self.who,
            session.who(),
            self.config.lease,
            self.config.failover_bound(lease)
        );
        self.long.sessions.insert(key.id(), Long { boot, objects: BTreeMap::new(), doubtful: BTreeSet::new() });
    }

    /// What the store is to keep of a session.
    pub(crate) fn session_record(&self, key: SessionKey, boot: [u8; 16], unreclaimable: bool) -> Option<SessionRecord> {
        let long = self.long.sessions.get(&key.id());
        let boot = long.map_or(boot, |long| long.boot);
        let idle = || self.idle.holds_nothing(key.id()).then(Vec::new);
        let of_before = || self.grace.as_ref().and_then(|grace| grace.objects(key.id())).map(Vec::from);
        let objects = self.long.objects(key.id()).or_else(idle).or_else(of_before);
        let session = self.sessions.get(key)?;
        let start = match session.sealer {
            Sealer::Sealed(_) => self.identity.incarnation,
            Sealer::Plain => self.start_keys.former(session.id).map_or(0, |(start, _)| start),
        };
        let mut record = session.record(boot, start, unreclaimable, objects);
        // A server without a group has no successor that would call.
        record.address = record.address.filter(|_| self.tenure.is_limited());
        Some(record)
    }

    /// To be called before a lock of `object` is asked for in a session or given back to it: it may be granted only if this says
    /// [`Recording::Done`].
    pub(crate) fn record_lock(&mut self, key: SessionKey, object: ObjectId) -> Recording {
        let (durable, open) = (self.store.durable_up_to(), self.store.open_batch());
        let Some(long) = self.long.sessions.get_mut(&key.id()).filter(|_| !bugs::is(Bug::T1)) else {
            return Recording::Done;
        };
        //= wire-spec.md#11-7-restart-and-recovery
        //# An advisory lock MUST NOT be granted in a long session before its record names the object durably.
        if let Some(batch) = long.objects.get(&object) {
            return if *batch <= durable { Recording::Done } else { Recording::By(*batch) };
        }
        if long.objects.len() >= RECORDED_MAX {
            return Recording::Full;
        }
        long.objects.insert(object, open);
        // Until the request is seen to be granted, or to wait.
        long.doubtful.insert(object);
        self.write_long(key);
        Recording::By(open)
    }

    /// Takes out of the records what their sessions neither hold nor wait for any more.
    pub(crate) fn tidy_long(&mut self) {
        while let Some(id) = self.long.changed.pop_first() {
            let Some(key) = self.sessions.find(id) else { continue };
            let session = self.sessions.get(key);
            let asks = |id: TaskId| self.tasks.get(id).and_then(Task::call).is_some_and(|call| call.kind == Kind::Lock);
            // What is recorded for a request that has yet to be executed stays; that one comes back here. Of a session that ends nothing but
            // the end is written.
            let goes_on = |of: &&Session| matches!(of.standing(), Standing::Good | Standing::TimingOut { .. });
            if session.filter(goes_on).is_none() || self.tasks.of_session(key).any(asks) {
                continue;
            }
            let (slot, locks) = (self.sessions.slot(key), &self.locks);
            let Some(long) = self.long.sessions.get_mut(&id) else { continue };
            let before = long.objects.len();
            for object in core::mem::take(&mut long.doubtful) {
                if !locks.involves(slot, object) {
                    long.objects.remove(&object);
                }
            }
            if long.objects.len() < before {
                self.write_long(key);
            }
        }
    }

    /// Writes the record of a long session, on its account: it is as long as what the session holds.
    pub(crate) fn write_long(&mut self, key: SessionKey) {
        let unreclaimable = |session: &Session| matches!(session.standing(), Standing::TimingOut { cause, .. } if cause.is_final());
        let unreclaimable = self.sessions.get(key).is_some_and(unreclaimable);
        if let Some(record) = self.session_record(key, [0; 16], unreclaimable) {
            let bytes = record.to_bytes();
            let flow = self.sessions.get(key).map_or(FlowId::NONE, |session| session.flow);
            self.scheduler.charge(flow, prices::stored(bytes.len()));
            self.store.put(store::Key::Session(key.id()), Some(bytes.into()));
        }
    }
}
