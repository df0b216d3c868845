//! Tasks: what cannot go on yet, a request or work of the server's own, and what each waits for.
//!
//! Decides which tasks a loaded value wakes. Invariant: a task has had no effect; so it can be dropped at any time, and its nonce fenced. It
//! runs again from its start.

pub(crate) use crate::ids::TaskId;
use crate::ids::{FlowId, LockSlot, PrincipalId, SessionKey};
use crate::store::{BatchId, Query};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_wire::limits::PARENTS_MAX;
use cistern_wire::{Kind, ObjectId};

/// Most rounds of loading for one run. What was loaded and cannot be read is forgotten with every turn, so a run that needs two such values
/// would ask for one of them for ever. RENAME takes a round for each directory above which it looks, and a few others.
const LOADS_MAX: u16 = 4_096;
const _: () = assert!(2 * PARENTS_MAX <= LOADS_MAX as usize, "a RENAME may look as far as it is allowed to");

/// What a run waits for.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// These values are not in memory.
    Load(Vec<Query>),
    /// Its turn among the mutations, in whose line it has its place.
    Turn,
    /// The durability of what it would show.
    Durable(BatchId),
    /// Its owner's turn.
    Share,
}

/// How an operation's answer goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answering {
    /// As the one execution of its nonce.
    First,
    /// As an answer to a duplicate, received in this packet, of a read whose reply was too large to keep.
    Again {
        /// Newest packet that carried it.
        packet: u64,
    },
}

/// How far a task is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Rounds of loading.
    loads: u16,
    /// It has a place in the queues of the lock table.
    pub(crate) in_line: bool,
    /// That what it would show is durable was waited for.
    pub(crate) settled: bool,
}

impl Progress {
    /// Whether it was loaded for so often that what is still missing counts as unreadable.
    pub(crate) const fn gives_up(&self) -> bool {
        self.loads >= LOADS_MAX
    }

    fn blocked(&mut self, by: &Blocked) {
        match by {
            Blocked::Load(_) => self.loads = self.loads.saturating_add(1),
            Blocked::Turn => self.in_line = true,
            Blocked::Durable(_) => self.settled = true,
            Blocked::Share => {}
        }
    }
}

/// A request without its body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) id: TaskId,
    /// The session whose it is.
    pub(crate) key: SessionKey,
    pub(crate) slot: LockSlot,
    pub(crate) flow: FlowId,
    /// Whose rights it has.
    pub(crate) who: PrincipalId,
    pub(crate) kind: Kind,
    /// When it came, in nanoseconds of the boot clock.
    pub(crate) came_ns: u64,
    pub(crate) nonce: u64,
    /// Largest datagram in which its answer may travel.
    pub(crate) limit: u16,
    pub(crate) answering: Answering,
    pub(crate) progress: Progress,
}

/// What a task does when it runs.
#[derive(Debug)]
pub(crate) enum Origin {
    /// Executes a request.
    Request {
        /// The request.
        call: Call,
        /// The body of its message.
        body: Box<[u8]>,
    },
    /// Removes an ephemeral file whose session has ended.
    RemoveEphemeral {
        /// The file.
        object: ObjectId,
        /// How far that is.
        progress: Progress,
    },
    /// Starts the server. Every page of what it reads is a round, so these are not counted.
    Boot,
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// So many values that the store was asked for.
    Load(usize),
    /// Its turn among the mutations.
    Turn,
    /// The durability of a batch.
    Durable(BatchId),
    /// Its owner's turn.
    Share,
    /// Its session's standing: it could run, but D was decided.
    Standing,
}

/// Something that waits.
#[derive(Debug)]
pub(crate) struct Task {
    pub(crate) origin: Origin,
    pub(crate) wait: Wait,
}

impl Task {
    /// The request that it executes.
    pub(crate) const fn call(&self) -> Option<&Call> {
        match &self.origin {
            Origin::Request { call, .. } => Some(call),
            Origin::RemoveEphemeral { .. } | Origin::Boot => None,
        }
    }

    /// The request that it executes.
    pub(crate) const fn call_mut(&mut self) -> Option<&mut Call> {
        match &mut self.origin {
            Origin::Request { call, .. } => Some(call),
            Origin::RemoveEphemeral { .. } | Origin::Boot => None,
        }
    }
}

/// All tasks, and for which values they wait.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    tasks: BTreeMap<TaskId, Task>,
    /// Those that are requests, by the places of their sessions and nonces.
    by_request: BTreeSet<(u32, u64, TaskId)>,
    by_query: BTreeMap<Query, Vec<TaskId>>,
    last: u64,
}

impl Tasks {
    /// The number of a new task.
    pub(crate) fn next_id(&mut self) -> TaskId {
        self.last += 1;
        TaskId(self.last)
    }

    /// Takes in a task whose run was blocked. Gives the values that the store is to be asked for; empty: none.
    pub(crate) fn suspend(&mut self, id: TaskId, mut origin: Origin, blocked: Blocked) -> Vec<Query> {
        match &mut origin {
            Origin::Request { call: Call { progress, .. }, .. } | Origin::RemoveEphemeral { progress, .. } => progress.blocked(&blocked),
            Origin::Boot => {}
        }
        let (wait, queries) = match blocked {
            Blocked::Load(mut queries) => {
                debug_assert!(!queries.is_empty(), "a run that misses nothing does not wait");
                queries.sort_unstable();
                queries.dedup();
                for query in &queries {
                    self.by_query.entry(query.clone()).or_default().push(id);
                }
                (Wait::Load(queries.len()), queries)
            }
            Blocked::Turn => (Wait::Turn, Vec::new()),
            Blocked::Durable(batch) => (Wait::Durable(batch), Vec::new()),
            Blocked::Share => (Wait::Share, Vec::new()),
        };
        if let Origin::Request { call, .. } = &origin {
            self.by_request.insert((call.key.place, call.nonce, id));
        }
        self.tasks.insert(id, Task { origin, wait });
        queries
    }

    /// An answer has come: the tasks that have now all they waited for.
    pub(crate) fn answered(&mut self, query: &Query) -> Vec<TaskId> {
        let mut waiting = self.by_query.remove(query).unwrap_or_default();
        waiting.retain(|id| match self.tasks.get_mut(id) {
            Some(Task { wait: Wait::Load(left), .. }) => {
                *left -= 1;
                *left == 0
            }
            // Dropped meanwhile, or waiting for something else by now.
            Some(_) | None => false,
        });
        waiting
    }

    /// A task that waits.
    pub(crate) fn get(&self, id: TaskId) -> Option<&Task> {
        self.tasks.get(&id)
    }

    /// A task that waits.
    pub(crate) fn get_mut(&mut self, id: TaskId) -> Option<&mut Task> {
        self.tasks.get_mut(&id)
    }

    /// Takes a task out, to run it or to drop it.
    pub(crate) fn take(&mut self, id: TaskId) -> Option<Task> {
        let task = self.tasks.remove(&id)?;
        if let Some(call) = task.call() {
            self.by_request.remove(&(call.key.place, call.nonce, id));
        }
        Some(task)
    }

    /// The requests of a session that wait, in the order of their nonces.
    pub(crate) fn of_session(&self, key: SessionKey) -> impl Iterator<Item = TaskId> {
        self.requests(key, 0, u64::MAX)
    }

    /// The requests of a session that wait under nonces from `first` to `last`.
    pub(crate) fn requests(&self, key: SessionKey, first: u64, last: u64) -> impl Iterator<Item = TaskId> {
        self.by_request.range((key.place, first, TaskId::NONE)..=(key.place, last, TaskId::MAX)).map(|(.., id)| *id)
    }

    /// How many wait; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.tasks.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Counter;
    use alloc::vec;

    fn query(counter: Counter) -> Query {
        Query::Get(crate::store::Key::Counter(counter))
    }

    fn removal() -> Origin {
        Origin::RemoveEphemeral { object: ObjectId(7), progress: Progress::default() }
    }

    #[test]
    fn task_is_woken_by_the_last_of_the_values_it_waits_for() {
        let mut tasks = Tasks::default();
        let (a, b) = (tasks.next_id(), tasks.next_id());
        assert!(a < b && a > TaskId::NONE);
        let both = [query(Counter::Objects), query(Counter::Bytes)];
        let asked = tasks.suspend(a, removal(), Blocked::Load(vec![both[1].clone(), both[0].clone(), both[1].clone()]));
        assert_eq!(asked.len(), 2, "each once");
        tasks.suspend(b, Origin::Boot, Blocked::Load(both[1..].to_vec()));
        assert_eq!(tasks.answered(&both[1]), [b]);
        assert_eq!(tasks.answered(&both[0]), [a]);
        assert_eq!(tasks.answered(&both[0]), [], "answered once");
    }

    #[test]
    fn dropped_task_is_not_woken() {
        let mut tasks = Tasks::default();
        let id = tasks.next_id();
        tasks.suspend(id, removal(), Blocked::Load(vec![query(Counter::Bytes)]));
        assert!(tasks.take(id).is_some());
        assert_eq!((tasks.answered(&query(Counter::Bytes)), tasks.len()), (vec![], 0));
    }

    #[test]
    fn what_is_still_missing_after_very_many_rounds_cannot_be_read() {
        let mut progress = Progress::default();
        for _ in 0..LOADS_MAX {
            assert!(!progress.gives_up());
            progress.blocked(&Blocked::Load(vec![query(Counter::Bytes)]));
            progress.blocked(&Blocked::Turn);
        }
        assert!(progress.gives_up());
    }
}
