//! Watches: WATCH and UNWATCH, and telling the watchers of a change when that is durable.
//!
//! Implements `wire-spec.md` section 11.5.
//! Leaves to others: whom a change concerns (`presence`), delivery and its failure, probing of owners (`delivery`).

use crate::ids::SessionKey;
use crate::presence::Change;
use crate::requests::Call;
use crate::server::Server;
use crate::server::answers::Repeatable;
use crate::server::durability::OnDurable;
use crate::server::execute::Run;
use crate::sessions::Sessions;
use crate::sessions::notices::Notice;
use crate::sessions::standing::Standing;
use crate::store::Seen;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Done, ObjectId, Reply, SessionId, Unwatch, Watch, Watched};

impl Server {
    /// WATCH.
    pub(crate) fn watch_object(&mut self, call: Call, message: &Watch, seen: &Seen) -> Run {
        let attr = self.namespace.attr(&self.store.view(seen), message.object)?;
        self.watches.add(call.key.id(), message.object, attr.version, self.config.presence)?;
        // Its owner is probed from now on.
        if let Some(owner) = self.ephemerals.bound(message.object).filter(|owner| *owner != call.key.id())
            && let Some(owner) = self.sessions.find(owner)
        {
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
        //# All watchers of an owner MUST be served by the same probes.
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
        let batch = self.store.open_batch();
        self.after_commit(batch, OnDurable::Changed(by, changes));
    }

    /// Changes of watched objects, made by one session, are durable: their watchers are told.
    pub(crate) fn tell_watchers(&mut self, by: SessionId, changes: Vec<Change>) {
        for change in changes {
            if change.gone {
                //= wire-spec.md#11-4-locks
                //# The server MUST tell each session with an advisory lock on an object that another session has removed it.
                // Who waited when it was taken away may have been granted the lock since.
                let sessions = &self.sessions;
                let holders = self.locks.holders_of(change.object).into_iter().map(SessionKey::id);
                let holders = holders.filter(|holder| *holder != by && hears(sessions, *holder));
                self.watches.concern(change.object, holders, self.config.presence);
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
    pub(crate) fn watcher_heard(&mut self, key: SessionKey, object: ObjectId) {
        if let Some(change) = self.watches.receipted(key.id(), object) {
            self.tell_change(key.id(), change);
        }
    }

    fn tell_change(&mut self, session: SessionId, change: Change) {
        let Change { object, version, gone } = change;
        let Some(session) = self.sessions.find(session) else {
            return;
        };
        self.notify(session, Notice::WatchEvent { object, version, gone });
    }
}

/// Whether a session can be told of something; one that is timing out is told when it is rescued.
pub(crate) fn hears(sessions: &Sessions, session: SessionId) -> bool {
    let standing = sessions.find(session).and_then(|key| sessions.get(key)).map(|session| session.standing());
    matches!(standing, Some(Standing::Good | Standing::TimingOut { .. }))
}
