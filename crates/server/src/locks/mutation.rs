//! Mutations: whose turn it is.
//!
//! Decides: when a mutation may execute. Place in the walk: entered once its plan is known, again when its plan has changed, left
//! when it has executed or failed. Implements `wire-spec.md` section 11.4.
//! Invariant: a mutation takes its place in the queues of all its objects at once, in order of arrival, and keeps that order when its
//! set changes. It is ready when it is first in line on each and no conflicting cache lock stands; at most one mutation of an
//! object is ready. So two mutations never wait for each other.
//! Leaves to others: what a mutation affects (`namespace::plan`), executing it.

use super::table::LockAccess;
use super::{LockDecision, LockTable, Turn};
use crate::ids::{LockSlot, TaskId};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::slab::NONE;
use cistern_wire::limits::{BATCH_OBJECTS_MAX, HELD_MAX};
use cistern_wire::{Generation, Held, Keep, LockClass, LockId, ObjectId};

/// Most objects that existed before and that one mutation affects: those of a batch.
const OBJECTS_MAX: usize = BATCH_OBJECTS_MAX;

/// A mutation in the queues.
#[derive(Debug)]
pub(super) struct MutationWaiter {
    pub(super) session: u32,
    /// Its entries; each once.
    entries: [u32; OBJECTS_MAX],
    len: usize,
    held: [Held; HELD_MAX],
    held_len: usize,
    /// Its turn has come.
    pub(super) ready: bool,
    /// `Turn` is on its way to the caller.
    announced: bool,
}

impl MutationWaiter {
    pub(super) fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }

    /// Whether it may go on beside its session's own hold of an object.
    fn suspends(&self, object: ObjectId, generation: Generation) -> bool {
        self.held[..self.held_len].contains(&Held { object, generation })
    }
}

impl LockTable {
    /// Asks for a mutation's turn on `objects` (at most 16, those that exist), its session's own locks named in `held` being suspended.
    /// Called again with the same task when its plan has changed: it keeps its place in order of arrival, and is not ready
    /// until that is said anew.
    ///
    /// Conflicting cache locks are asked back at once: all of other sessions, and of its own session those not in `held`.
    pub(crate) fn enter(
        &mut self,
        now: Instant,
        task: TaskId,
        slot: LockSlot,
        objects: &[ObjectId],
        held: impl IntoIterator<Item = Held>,
    ) -> Turn {
        debug_assert!(objects.len() <= OBJECTS_MAX, "an operation affects at most 16 objects that exist");
        let Some(session) = self.table.good(slot) else { return Turn::Busy };
        let former = self.withdraw(task);
        // What the server itself removes is never turned away: nobody would come again for it.
        let own = slot == LockSlot::SERVER;
        if !own && former.is_none() && objects.iter().any(|object| self.crowded(*object)) {
            return Turn::Busy;
        }
        let mut mutation = MutationWaiter {
            session,
            entries: [0; OBJECTS_MAX],
            len: 0,
            held: [Held { object: ObjectId(0), generation: Generation(0) }; HELD_MAX],
            held_len: 0,
            ready: false,
            announced: false,
        };
        for object in objects {
            let entry = self.table.entry_or_new(LockId { object: *object, class: LockClass::Cache });
            if !mutation.entries().contains(&entry) {
                mutation.entries[mutation.len] = entry;
                mutation.len += 1;
                //= wire-spec.md#11-4-locks
                //# A mutation of several objects MUST take its places in all their queues at once, in order of arrival.
                let tasks = &mut self.table.queue_mut(entry).tasks;
                let place = tasks.partition_point(|other| *other < task);
                tasks.insert(place, task);
            }
        }
        for named in held.into_iter().take(HELD_MAX) {
            mutation.held[mutation.held_len] = named;
            mutation.held_len += 1;
        }
        self.mutations.insert(task, mutation);
        self.table.sessions[session].add_task(task);
        self.demand_for_mutation(now, task);
        let ready = self.try_ready(task);
        if let Some(former) = former {
            self.retry_mutations_of(former.entries());
        }
        if ready { Turn::Ready } else { Turn::Waiting }
    }

    /// A mutation has executed, failed or been dropped: the next ones come. To be called before the cache locks that its answer grants
    /// are asked for. Without effect for a mutation that has no place.
    pub(crate) fn leave(&mut self, task: TaskId) {
        if let Some(mutation) = self.withdraw(task) {
            self.retry_mutations_of(mutation.entries());
        }
    }

    /// Whether nobody but a session holds a cache lock of one of these objects, and nobody waits to change one: what is taken away together
    /// with that session then conflicts with nobody.
    pub(crate) fn nobody_but(&self, slot: LockSlot, objects: &[ObjectId]) -> bool {
        let own = self.table.session(slot);
        objects.iter().all(|object| {
            let Some(entry) = self.table.entry(LockId { object: *object, class: LockClass::Cache }) else { return true };
            let waits = self.table.entries[entry].queue.as_ref().is_some_and(|queue| !queue.tasks.is_empty());
            !waits && self.table.holds_of(entry).all(|at| Some(self.table.holds[at].session) == own)
        })
    }

    /// Takes a mutation out of all queues.
    fn withdraw(&mut self, task: TaskId) -> Option<MutationWaiter> {
        let mutation = self.mutations.remove(&task)?;
        for entry in mutation.entries() {
            self.table.queue_mut(*entry).tasks.retain(|other| *other != task);
        }
        self.table.sessions[mutation.session].drop_task(task);
        Some(mutation)
    }

    fn crowded(&self, object: ObjectId) -> bool {
        let entry = self.table.entry(LockId { object, class: LockClass::Cache });
        let queue = entry.and_then(|entry| self.table.entries[entry].queue.as_ref());
        queue.is_some_and(|queue| queue.tasks.len() >= self.limits.mutations_per_object)
    }

    /// Asks back all that is in a mutation's way.
    pub(super) fn demand_for_mutation(&mut self, now: Instant, task: TaskId) {
        let Some(mutation) = self.mutations.get(&task) else { return };
        let (entries, len, by) = (mutation.entries, mutation.len, mutation.session);
        for entry in &entries[..len] {
            let mut at = self.table.next_of(*entry, NONE);
            while at != NONE {
                //= wire-spec.md#11-4-locks
                //# The server MUST demand every cache lock that keeps a mutation waiting.
                if self.table.is_live(&self.table.holds[at]) && self.in_the_way(task, at) {
                    self.demand(now, by, at, Keep::Nothing);
                }
                at = self.table.next_of(*entry, at);
            }
        }
    }

    /// Asks a cache lock back if a mutation waits for it: it has a new generation, which no demand has covered.
    pub(super) fn demand_for_mutations(&mut self, now: Instant, at: u32) {
        let entry = self.table.holds[at].entry;
        let tasks = self.table.entries[entry].queue.as_ref().map(|queue| queue.tasks.as_slice()).unwrap_or_default();
        let first = tasks.iter().find(|task| self.task_is_good(**task) && self.in_the_way(**task, at));
        if let Some(by) = first.map(|task| self.mutations[task].session) {
            self.demand(now, by, at, Keep::Nothing);
        }
    }

    /// Whether a hold conflicts with a mutation.
    fn in_the_way(&self, task: TaskId, at: u32) -> bool {
        let (mutation, hold) = (&self.mutations[&task], &self.table.holds[at]);
        //= wire-spec.md#11-4-locks
        //# A mutation MUST NOT be executed while another session holds a cache lock on an object that it affects.
        //= wire-spec.md#11-4-locks
        //# A mutation MUST NOT be executed while its own session holds a cache lock on an affected object, unless `held` names its
        //# generation.
        hold.session != mutation.session || !mutation.suspends(self.table.entries[hold.entry].object, hold.generation)
    }

    /// Whether a mutation counts: its session is in good standing (section 11.3).
    pub(super) fn task_is_good(&self, task: TaskId) -> bool {
        self.mutations.get(&task).is_some_and(|mutation| self.table.is_good(mutation.session))
    }

    /// Makes a mutation ready if its turn has come.
    fn try_ready(&mut self, task: TaskId) -> bool {
        let turn = self.task_is_good(task)
            && self.mutations[&task]
                .entries()
                .iter()
                .all(|entry| self.is_first(*entry, task) && !self.table.holds_of(*entry).any(|at| self.in_the_way(task, at)));
        if let Some(mutation) = self.mutations.get_mut(&task) {
            mutation.ready |= turn;
        }
        turn
    }

    /// Whether nobody who counts stands before a mutation, and nobody after it is ready already.
    fn is_first(&self, entry: u32, task: TaskId) -> bool {
        let tasks = self.table.entries[entry].queue.as_ref().map(|queue| queue.tasks.as_slice()).unwrap_or_default();
        tasks.iter().all(|other| match other.cmp(&task) {
            core::cmp::Ordering::Less => !self.task_is_good(*other),
            core::cmp::Ordering::Equal => true,
            core::cmp::Ordering::Greater => !self.mutations[other].ready,
        })
    }

    /// Something changed on a cache lock: the first mutation in line may be ready now.
    pub(super) fn retry_mutations(&mut self, entry: u32) {
        let tasks = self.table.entries[entry].queue.as_ref().map(|queue| queue.tasks.as_slice()).unwrap_or_default();
        let first = tasks.iter().copied().find(|task| self.task_is_good(*task));
        if let Some(task) = first.filter(|task| !self.mutations[task].ready)
            && self.try_ready(task)
        {
            self.announce(task);
        }
        self.table.drop_if_idle(entry);
    }

    fn retry_mutations_of(&mut self, entries: &[u32]) {
        for entry in entries {
            self.retry_mutations(*entry);
        }
    }

    fn announce(&mut self, task: TaskId) {
        if let Some(mutation) = self.mutations.get_mut(&task)
            && !core::mem::replace(&mut mutation.announced, true)
        {
            self.decisions.push_back(LockDecision::Turn { task });
        }
    }

    /// Whether it is still true that a mutation's turn has come, when the caller is about to hear it.
    pub(super) fn heard(&mut self, task: TaskId) -> bool {
        self.mutations.get_mut(&task).is_some_and(|mutation| core::mem::take(&mut mutation.announced) && mutation.ready)
    }

    /// The session is not in good standing any more: its mutations are not ready, and delay nobody.
    pub(super) fn suspend_tasks(&mut self, session: u32) {
        let tasks = self.table.sessions[session].tasks().to_vec();
        for task in &tasks {
            if let Some(mutation) = self.mutations.get_mut(task) {
                mutation.ready = false;
            }
        }
        for entry in self.entries_of(&tasks) {
            self.retry_mutations(entry);
        }
    }

    /// The session was rescued: its mutations have their places again.
    pub(super) fn resume_tasks(&mut self, now: Instant, session: u32) {
        debug_assert!(self.table.sessions[session].access == LockAccess::Active, "only a rescue resumes");
        let tasks = self.table.sessions[session].tasks().to_vec();
        for task in &tasks {
            self.demand_for_mutation(now, *task);
        }
        for entry in self.entries_of(&tasks) {
            self.retry_mutations(entry);
        }
        // One that affects nothing stands in no queue.
        for task in tasks {
            if self.mutations.get(&task).is_some_and(|mutation| mutation.len == 0) && self.try_ready(task) {
                self.announce(task);
            }
        }
    }

    fn entries_of(&self, tasks: &[TaskId]) -> Vec<u32> {
        let mut entries: Vec<_> =
            tasks.iter().filter_map(|task| self.mutations.get(task)).flat_map(MutationWaiter::entries).copied().collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }
}
