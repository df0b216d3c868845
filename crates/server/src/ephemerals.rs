//! Ephemeral files: to which session each is bound, and the removal of what its session's end has left.
//!
//! Decides when an ephemeral file goes: with the batch that ends its session if nothing is in the way, otherwise after it, by a mutation of
//! the server's own that is queued like any and tried again later if it fails; in grace none goes. Its removals run from the loop, in slices.
//! Implements `wire-spec.md` sections 11.5 and 11.7.
//! Invariant: every ephemeral file that the store has is in the table, and of one whose session has ended the removal is queued, parked,
//! put off or done; what a crash interrupts is found again at the start by the records of the store (R63).
//! Leaves to others: what a removal means (`namespace`), whose turn it is (`locks`), who is told (`watches`).

use crate::config::PresenceLimits;
use crate::execute::{Stop, bounded, note_changes};
use crate::locks::{LockTable, Turn};
use crate::namespace::{Mutation, MutationCx};
use crate::server::{Phase, Server};
use crate::sessions::Key;
use crate::store::{EphemeralRecord, Seen};
use crate::tasks::{Blocked, Origin, Progress, TaskId};
use crate::transport::SMALL;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Ask, Bytes8, Handle, ObjectId, SessionId, Status, Terms, Unlink};
use core::time::Duration;
use log::{info, warn};

/// After what time a removal that has failed is tried again: what cannot be read now may be readable then, and it is not urgent.
const RETRY: Duration = Duration::from_secs(10);
/// Most files that go with the end of their session: the loop shall not stand still when very many sessions end in one turn.
const WITH_END_MAX: usize = 16;

/// One ephemeral file.
#[derive(Clone, Copy, Debug)]
struct Row {
    /// The handle of the session that made it; its record in the store stands under that.
    made_by: Handle,
    /// The session whose end is its own.
    bound: SessionId,
}

/// All ephemeral files.
#[derive(Debug, Default)]
pub(crate) struct Ephemerals {
    rows: BTreeMap<ObjectId, Row>,
    by_session: BTreeMap<SessionId, BTreeSet<ObjectId>>,
    /// Files whose sessions have ended and whose removal was not begun.
    orphans: VecDeque<ObjectId>,
    /// Files whose removal has failed, and when it is tried again; in order of time.
    put_off: VecDeque<(Instant, ObjectId)>,
}

impl Ephemerals {
    /// A file is there that goes with `bound`.
    pub(crate) fn add(&mut self, object: ObjectId, made_by: Handle, bound: SessionId) {
        self.rows.insert(object, Row { made_by, bound });
        self.by_session.entry(bound).or_default().insert(object);
    }

    /// A file is gone, whoever took it away; any file, ephemeral or not.
    pub(crate) fn gone(&mut self, object: ObjectId) {
        if let Some(row) = self.rows.remove(&object)
            && let Some(own) = self.by_session.get_mut(&row.bound)
        {
            own.remove(&object);
            if own.is_empty() {
                self.by_session.remove(&row.bound);
            }
        }
    }

    /// The files that go with a session.
    pub(crate) fn of(&self, session: SessionId) -> impl Iterator<Item = ObjectId> + '_ {
        self.by_session.get(&session).into_iter().flatten().copied()
    }

    /// Whether any go with a session.
    pub(crate) fn any_of(&self, session: SessionId) -> bool {
        self.by_session.contains_key(&session)
    }

    /// The session with which an object goes, if it is ephemeral.
    pub(crate) fn bound(&self, object: ObjectId) -> Option<SessionId> {
        self.rows.get(&object).map(|row| row.bound)
    }

    /// The session with which an object goes, if it is ephemeral and that is not `session`.
    ///
    /// Whoever reads such an object gets no cache lock with it: a cached answer would show a member long after its death, and each look
    /// that reaches the server makes it probe the owner.
    pub(crate) fn owner_besides(&self, session: SessionId, object: ObjectId) -> Option<SessionId> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST NOT grant a cache lock on an ephemeral file to any session but the one to which the file is bound.
        self.bound(object).filter(|owner| *owner != session)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether a session may have so many more.
    pub(crate) fn has_room(&self, session: SessionId, more: usize, limits: PresenceLimits) -> bool {
        let own = self.by_session.get(&session).map_or(0, BTreeSet::len);
        self.rows.len() + more <= limits.ephemerals_max && own + more <= limits.ephemerals_per_session
    }

    /// Whether removals are left to be begun.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty()
    }

    /// When the first removal that has failed is tried again.
    pub(crate) fn next_try(&self) -> Option<Instant> {
        self.put_off.front().map(|put_off| put_off.0)
    }

    /// Removals that have failed long enough ago are begun again.
    pub(crate) fn retry(&mut self, now: Instant) {
        while let Some((_, object)) = self.put_off.pop_front_if(|put_off| now.waited(put_off.0)) {
            self.orphans.push_back(object);
        }
    }

    /// A session has ended, durably: its files are to be removed. How many they are.
    fn orphan(&mut self, session: SessionId) -> usize {
        let before = self.orphans.len();
        self.orphans.extend(self.by_session.get(&session).into_iter().flatten());
        self.orphans.len() - before
    }

    /// The files of a session go with another one from now on: object and maker of each.
    fn rebind(&mut self, from: SessionId, to: SessionId) -> Vec<(ObjectId, Handle)> {
        let moved: Vec<ObjectId> = self.by_session.remove(&from).into_iter().flatten().collect();
        // No set stands empty (`any_of`), and the one that `to` has is kept: it may have been given another session's files before.
        if !moved.is_empty() {
            self.by_session.entry(to).or_default().extend(&moved);
        }
        let rebound = moved.into_iter().filter_map(|object| {
            let row = self.rows.get_mut(&object)?;
            row.bound = to;
            Some((object, row.made_by))
        });
        rebound.collect()
    }
}

impl Server {
    /// The store has told of its ephemeral files: those whose sessions are not among `alive` are removed once the server may.
    pub(crate) fn load_ephemerals(&mut self, found: Vec<((Handle, ObjectId), EphemeralRecord)>, alive: &BTreeSet<SessionId>) {
        let mut dead = BTreeSet::new();
        for ((made_by, object), EphemeralRecord { bound }) in found {
            self.ephemerals.add(object, made_by, bound);
            if !alive.contains(&bound) {
                dead.insert(bound);
            }
        }
        dead.into_iter().for_each(|session| self.session_left_files(session));
    }

    /// A session has ended, and its end is durable: its ephemeral files are to be removed.
    pub(crate) fn session_left_files(&mut self, session: SessionId) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST remove the ephemeral files of a session that has ended, also when it was restarted in between.
        let count = self.ephemerals.orphan(session);
        if count > 0 {
            info!("{}: removes {count} ephemeral files of session {session}, which has ended", self.who);
        }
    }

    /// A session's end is about to be written: takes those of its files along, by the open batch, that can go at once.
    pub(crate) fn remove_with_end(&mut self, session: SessionId) {
        if self.in_grace() {
            return;
        }
        let files: Vec<ObjectId> = self.ephemerals.of(session).take(WITH_END_MAX).collect();
        for object in files {
            let nobody = |locks: &mut LockTable, affected: &[ObjectId]| {
                if locks.nobody_but(session, affected) { Ok(()) } else { Err(Blocked::Turn.into()) }
            };
            // What is not in memory, fails or is in the way is looked at again when the end is durable.
            let _later = self.remove(object, nobody);
        }
    }

    /// An agent has reclaimed what it wants of session `from` in session `to`: its ephemeral files go with that, by the open batch.
    pub(crate) fn rebind_ephemerals(&mut self, from: SessionId, to: SessionId) {
        //= wire-spec.md#11-7-restart-and-recovery
        //# An ephemeral object MUST name its owner's session durably, and be bound to the new one when that reclaims.
        if bugs::is(Bug::E2) {
            return;
        }
        for (object, made_by) in self.ephemerals.rebind(from, to) {
            self.overlay.view(&Seen::default()).bind_ephemeral(made_by, object, Some(to));
        }
        if self.is_watched_owner(to) {
            self.watch(to);
        }
    }

    /// Begins a slice of the removals that are left, unless in grace.
    pub(crate) fn remove_orphans(&mut self) {
        if self.phase != Phase::Serving || self.in_grace() {
            return;
        }
        for _ in 0..self.config.freed_per_turn {
            let Some(object) = self.ephemerals.orphans.pop_front() else {
                return;
            };
            let id = self.tasks.next_id();
            self.remove_orphan(id, object, Progress::default());
        }
    }

    /// Removes a file whose session has ended, when its turn comes; nobody is answered.
    pub(crate) fn remove_orphan(&mut self, id: TaskId, object: ObjectId, progress: Progress) {
        let now = self.now;
        let turn =
            |locks: &mut LockTable, affected: &[ObjectId]| match locks.mutation_enter(now, id.ticket(), Key::SERVER.id(), affected, []) {
                Turn::Ready => Ok(()),
                Turn::Waiting => Err(Blocked::Turn.into()),
                Turn::Busy => Err(Status::BUSY.into()),
            };
        match bounded(progress, self.remove(object, turn)) {
            Err(Stop::Blocked(blocked)) => return self.suspend(id, Origin::RemoveEphemeral { object, progress }, blocked),
            Ok(()) => {}
            Err(Stop::Failed { status, .. }) => {
                warn!(
                    "{}: the ephemeral file {object} cannot be removed: {status}; tries again in {RETRY:?}; if it goes on, run `cisternd check`",
                    self.who
                );
                self.ephemerals.put_off.push_back((now.plus(RETRY), object));
            }
        }
        self.locks.mutation_leave(id.ticket());
    }

    /// Removes an ephemeral file by the open batch, if it is there and `may` says of what that affects that it can be done.
    fn remove(&mut self, object: ObjectId, may: impl FnOnce(&mut LockTable, &[ObjectId]) -> Result<(), Stop>) -> Result<(), Stop> {
        let by = Key::SERVER.id();
        let cx = MutationCx { requester: by, handle: Handle(0), wall_ns: self.wall.at(self.now) };
        let seen = Seen::default();
        let Self { overlay, namespace, locks, ephemerals, watches, sessions, config, .. } = self;
        let mut view = overlay.view(&seen);
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
        let changes = note_changes(&applied, by, ephemerals, watches, locks, sessions, config.presence);
        self.tell_when_durable(by, changes);
        Ok(())
    }
}
