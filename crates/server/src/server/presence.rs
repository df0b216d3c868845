//! Ephemeral files and watches: what the machine does for the part `presence`.
//!
//! Decides when an ephemeral file goes: with the batch that ends its session or named lease if nothing is in the way, otherwise after it, by a mutation of
//! the server's own that is queued like any and tried again later if it fails; in grace none goes. A turn begins so many removals of either
//! kind, however many of those end in it and however fast the store is; where the socket never empties, so does each period of time. What a
//! crash interrupts is found again at the start by the records of the store.
//! Decides, too, when watchers are told of a change: when it is durable. Implements `wire-spec.md` sections 11.5 and 11.7.
//! Leaves to others: whom a change concerns (`presence`), delivery and its failure, probing of owners (`delivery`).

use crate::config::PresenceLimits;
use crate::ids::{Bound, LockSlot, SessionKey};
use crate::locks::{LockTable, Turn};
use crate::namespace::{Applied, Became, Mutation, MutationCx};
use crate::presence::{Change, Ephemerals, REMOVALS_MAX, Watcher, Watches};
use crate::principals::{PrincipalId, Rights};
use crate::requests::{Blocked, Call, Origin, Progress, TaskId};
use crate::server::answers::Repeatable;
use crate::server::durability::OnDurable;
use crate::server::execute::{Run, Stop, bounded};
use crate::server::{Phase, Server};
use crate::sessions::Sessions;
use crate::sessions::notices::Notice;
use crate::sessions::standing::Standing;
use crate::store::{EphemeralRecord, Seen};
use crate::transport::SMALL;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Ask, Bytes8, Done, Handle, ObjectId, Reply, SessionId, Status, Terms, Unlink, Unwatch, Watch, Watched};
use core::time::Duration;
use log::{info, warn};

/// After what time a removal that has failed is tried again: what cannot be read now may be readable then, and it is not urgent.
const RETRY: Duration = Duration::from_secs(10);

/// While the socket never empties, removals go on after so much time, of which those that begin take a fifth at most.
const BUSY_TURN: Duration = Duration::from_millis(5);

/// How many removals may still begin.
#[derive(Clone, Copy, Debug)]
pub(super) struct Removals {
    left: usize,
    /// Since when.
    since: Instant,
}

impl Removals {
    /// None until the first turn.
    pub(super) const fn none(now: Instant) -> Self {
        Self { left: 0, since: now }
    }

    /// A turn begins: at most [`REMOVALS_MAX`], each of some 25,000 instructions, may begin in it, whatever the settings say of locks.
    pub(super) fn allow(&mut self, now: Instant, freed_per_turn: u32) {
        *self = Self { left: REMOVALS_MAX.min(freed_per_turn as usize), since: now };
    }
}

impl Server {
    /// How many removals may begin now.
    fn removals_left(&mut self) -> &mut usize {
        if self.now.waited(self.removals.since.plus(BUSY_TURN)) {
            self.removals.allow(self.now, self.config.freed_per_turn);
        }
        &mut self.removals.left
    }

    /// The store has told of its ephemeral files: those whose sessions are not among `alive`, or whose named leases have ended, are removed
    /// once the server may.
    pub(crate) fn load_ephemerals(&mut self, found: Vec<((Handle, ObjectId), EphemeralRecord)>, alive: &BTreeMap<SessionId, PrincipalId>) {
        let mut dead = BTreeSet::new();
        for ((owner, object), EphemeralRecord { bound }) in found {
            let who = match bound {
                Bound::Session(session) => alive.get(&session).copied(),
                Bound::Lease(lease) => self.leases.get(lease).map(|record| record.creator),
            };
            self.ephemerals.add(object, owner, bound, who.unwrap_or(PrincipalId::ANYBODY));
            if who.is_none() {
                dead.insert(bound);
            }
        }
        dead.into_iter().for_each(|bound| self.left_files(bound));
    }

    /// A session or a named lease has ended, and its end is durable: its files are to be removed.
    pub(crate) fn left_files(&mut self, bound: Bound) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST remove the ephemeral files of a session that has ended, also when it was restarted in between.
        //= wire-spec.md#11-11-named-leases
        //# The server MUST remove the files of a named lease that has ended, also when it was restarted in between.
        if bugs::is(Bug::N6) && matches!(bound, Bound::Lease(_)) {
            return;
        }
        let count = self.ephemerals.orphan(bound);
        if count > 0 {
            info!("{}: removes {count} ephemeral files of {bound}, which has ended", self.who);
        }
    }

    /// The end of a session or a named lease is about to be written: takes those of its files along, by the open batch, that can go at once.
    pub(crate) fn remove_with_end(&mut self, bound: Bound) {
        if self.in_grace() {
            return;
        }
        let slot = match bound {
            Bound::Session(session) => self.sessions.find(session).map_or(LockSlot::NONE, |key| self.sessions.slot(key)),
            Bound::Lease(_) => LockSlot::NONE,
        };
        let left = *self.removals_left();
        let files: Vec<ObjectId> = self.ephemerals.of(bound).take(left).collect();
        *self.removals_left() -= files.len();
        for object in files {
            let nobody = |locks: &mut LockTable, affected: &[ObjectId]| {
                if locks.nobody_but(slot, affected) { Ok(()) } else { Err(Blocked::Turn.into()) }
            };
            // What is not in memory, fails or is in the way is looked at again when the end is durable.
            let _later = self.remove(object, nobody);
        }
    }

    /// An agent has reclaimed what it wants of session `from` in session `to`: its ephemeral files go with that, by the open batch.
    pub(crate) fn rebind_ephemerals(&mut self, from: SessionId, to: SessionId) {
        //= wire-spec.md#11-7-restart-and-recovery
        //# An ephemeral object MUST name its owner's session durably, and be bound to the new one that reclaims it.
        if bugs::is(Bug::E2) {
            return;
        }
        for (object, owner) in self.ephemerals.rebind(from, to) {
            self.store.view(&Seen::default()).bind_ephemeral(owner, object, Some(Bound::Session(to)));
        }
        if self.is_watched_owner(to)
            && let Some(to) = self.sessions.find(to)
        {
            self.watch(to);
        }
    }

    /// Begins a slice of the removals that are left, unless in grace.
    pub(crate) fn remove_orphans(&mut self) {
        if self.phase != Phase::Serving || self.in_grace() {
            return;
        }
        while *self.removals_left() > 0
            && let Some(object) = self.ephemerals.next_orphan()
        {
            *self.removals_left() -= 1;
            let id = self.tasks.next_id();
            self.remove_orphan(id, object, Progress::default());
        }
    }

    /// Removes a file whose session or lease has ended, when its turn comes; nobody is answered.
    pub(crate) fn remove_orphan(&mut self, id: TaskId, object: ObjectId, progress: Progress) {
        let now = self.now;
        let turn = |locks: &mut LockTable, affected: &[ObjectId]| match locks.enter(now, id, LockSlot::SERVER, affected, []) {
            Turn::Ready => Ok(()),
            Turn::Waiting => Err(Blocked::Turn.into()),
            Turn::Busy => Err(Status::BUSY.into()),
        };
        match bounded(progress, self.remove(object, turn)) {
            Err(Stop::Blocked(blocked)) => return self.suspend(id, Origin::RemoveEphemeral { object, progress }, blocked),
            Ok(()) => {}
            // What takes something away reaches no quota.
            Err(Stop::Limited(_)) => self.ephemerals.put_off(now.plus(RETRY), object),
            Err(Stop::Failed { status, .. }) => {
                warn!(
                    "{}: the ephemeral file {object} cannot be removed: {status}; tries again in {RETRY:?}; if it goes on, run `cisternd check`",
                    self.who
                );
                self.ephemerals.put_off(now.plus(RETRY), object);
            }
        }
        self.ephemerals.removal_ended();
        self.locks.leave(id);
    }

    /// Removes an ephemeral file by the open batch, if it is there and `may` says of what that affects that it can be done.
    fn remove(&mut self, object: ObjectId, may: impl FnOnce(&mut LockTable, &[ObjectId]) -> Result<(), Stop>) -> Result<(), Stop> {
        let by = SessionKey::SERVER.id();
        let wall_ns = self.wall.at(self.now);
        let seen = Seen::default();
        let Self { store, namespace, locks, ephemerals, watches, sessions, principals, config, .. } = self;
        let cx = MutationCx { requester: by, handle: Handle(0), asker: principals.asker(PrincipalId::ANYBODY), wall_ns };
        let mut view = store.view(&seen);
        let Some((dir, name)) = namespace.name_of(&view, object)? else {
            // Somebody was faster.
            ephemerals.gone(object);
            return Ok(());
        };
        let ask = Ask { nonce: 0, back: 0, limit: SMALL };
        let unlink = Mutation::one(Unlink { ask, dir, name: Bytes8(&name), force: true, terms: Terms::NONE }.into());
        let plan = namespace.plan(&view, &unlink, &[], cx)?;
        may(locks, plan.affected())?;
        let applied = plan.commit(&mut view);
        let changes = note_changes(&applied, (by, PrincipalId::ANYBODY), ephemerals, watches, locks, sessions, config.presence);
        self.tell_when_durable(by, changes);
        Ok(())
    }
}

impl Server {
    /// WATCH.
    pub(crate) fn watch_object(&mut self, call: Call, message: &Watch, seen: &Seen) -> Run {
        let asker = self.principals.asker(call.who);
        let attr = *self.namespace.permitted(&self.store.view(seen), message.object, asker, Rights::READ)?;
        let by = Watcher { session: call.key.id(), owner: call.flow };
        if !self.watches.has(by.session, message.object)
            && let Some(limited) = self.watches.limit(by, self.config.presence)
        {
            return Err(limited.into());
        }
        self.watches.add(by, message.object, attr.version, self.config.presence)?;
        // Its owner is probed from now on.
        if let Some(owner) = self.ephemerals.owner_besides(call.key.id(), message.object)
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
        self.ephemerals.of(Bound::Session(session)).any(|object| self.watches.is_watched_by_another(object, session))
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
                let holders = holders.filter(|holder| *holder != by).filter_map(|holder| watcher(sessions, holder));
                self.watches.concern(change.object, holders, self.config.presence);
            }
            self.end_watches(change);
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
            if self.may_hear(key.id(), change) {
                self.tell_change(key.id(), change);
            } else {
                // It watches no more, and nothing of it is on the way.
                self.watches.remove(key.id(), object);
                self.watches.receipted(key.id(), object);
            }
        }
    }

    fn tell_change(&mut self, session: SessionId, change: Change) {
        let Change { object, version, gone, .. } = change;
        let Some(session) = self.sessions.find(session) else {
            return;
        };
        self.notify(session, Notice::WatchEvent { object, version, gone });
    }
}

/// A session, if it can be told of something; one that is timing out is told when it is rescued.
fn watcher(sessions: &Sessions, session: SessionId) -> Option<Watcher> {
    let found = sessions.find(session).and_then(|key| sessions.get(key))?;
    let hears = matches!(found.standing(), Standing::Good | Standing::TimingOut { .. });
    hears.then_some(Watcher { session, owner: found.flow })
}

/// A mutation was done, by a session of a principal: notes what became of ephemeral files. Gives the changes of which somebody is to be told.
pub(crate) fn note_changes(
    applied: &Applied<'_>,
    (by, who): (SessionId, PrincipalId),
    ephemerals: &mut Ephemerals,
    watches: &mut Watches,
    locks: &LockTable,
    sessions: &Sessions,
    limits: PresenceLimits,
) -> Vec<Change> {
    let mut changes = Vec::new();
    for (attr, became) in applied.changes() {
        let (object, gone) = (attr.object, became == Became::Gone);
        match became {
            Became::Made if attr.is_ephemeral() => {
                ephemerals.add(object, attr.owner, applied.lease_of(object).map_or(Bound::Session(by), Bound::Lease), who);
            }
            Became::Made => {}
            Became::Changed | Became::Gone => {
                if let Some(lease) = applied.lease_of(object).filter(|_| !gone) {
                    ephemerals.add(object, attr.owner, Bound::Lease(lease), who);
                }
                //= wire-spec.md#11-5-caching-and-metadata
                //# The server MUST tell the session to which an ephemeral file is bound that another session has removed it.
                let owner = ephemerals.owner_besides(by, object).filter(|_| gone);
                watches.concern(object, owner.and_then(|owner| watcher(sessions, owner)), limits);
                if watches.is_watched(object) || gone && locks.is_wanted(object) {
                    changes.push(Change { object, version: attr.version, gone, realm: attr.realm });
                }
            }
        }
        if gone {
            ephemerals.gone(object);
        }
    }
    changes
}
