//! What the lock table is made of: holds, entries, sessions, and the links between them.
//!
//! A hold is in the list of its lock and in the list of its session, so either can be walked without searching.
//! Invariants: an entry exists exactly while somebody holds its lock or waits for it. Demanded holds stand first in their session's list. A
//! hold of a session that was freed conflicts with nobody, though its memory is given back later, in slices. Objects with advisory locks are
//! listed in the order of their ids, 64 in a word, for those made one after the other are locked one after the other.

use super::demand::Demand;
use crate::ids::{Located, LockSlot, PrincipalId, SessionKey, TaskId};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::index::{Index, hash};
use cistern_link::slab::{NONE, Slab};
use cistern_wire::{Generation, LockClass, LockId, Mode, ObjectId, Realm, SessionId};
use core::ops::RangeInclusive;

/// One lock held by one session.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) generation: Generation,
    /// After a downgrade: the generation that was downgraded, so that a repeated release is answered alike. Otherwise: the
    /// generation with which this session began to hold the lock without a break.
    pub(super) before: Generation,
    pub(super) since: Instant,
    /// The request that this grant answers; 0: one of an earlier session, or this is a cache lock.
    pub(super) nonce: u64,
    pub(super) run: u32,
    pub(super) entry: u32,
    pub(super) session: u32,
    entry_prev: u32,
    entry_next: u32,
    session_prev: u32,
    pub(super) session_next: u32,
    pub(super) mode: Mode,
    pub(super) downgraded: bool,
    /// Whether it is in the index of owners.
    indexed: bool,
    /// What is asked back of it, if anything is.
    pub(super) demand: Option<Demand>,
}

/// One lock that somebody holds or waits for.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) object: ObjectId,
    pub(super) class: LockClass,
    pub(super) queue: Option<Box<Queue>>,
    /// The realm of its object; none, 0, until somebody holds the lock or waits for it with a request.
    pub(super) realm: Realm,
    first: u32,
    last: u32,
}

impl Entry {
    pub(super) const fn lock(&self) -> LockId {
        LockId { object: self.object, class: self.class }
    }
}

/// Those who wait for a lock.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Lock requests, in line; an upgrade stands first.
    pub(super) waiters: VecDeque<LockWaiter>,
    /// Mutations that wait or execute, in order of arrival.
    pub(super) tasks: Vec<TaskId>,
}

/// A lock request in line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LockWaiter {
    pub(super) session: u32,
    pub(super) nonce: u64,
    pub(super) mode: Mode,
    pub(super) since: Instant,
    pub(super) upgrade: bool,
    /// When its session was last known to be there.
    pub(super) heard: Instant,
    /// Its turn has come, and its session is asked whether it is there.
    pub(super) asked: bool,
}

/// What a session may do with locks: its standing, as far as they are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LockAccess {
    /// In good standing.
    Active,
    /// Timing out: holds what it holds, gets nothing.
    Suspended,
    /// Its end is not durable yet: the same, for good.
    Ended,
    /// Its end is durable: its holds are not live any more.
    Freed,
}

/// A session, as the lock table sees it.
#[derive(Debug)]
pub(super) struct SessionLocks {
    id: SessionId,
    /// Its place in the table of sessions.
    place: u32,
    /// By whose rights it waits and caches.
    pub(super) who: PrincipalId,
    pub(super) access: LockAccess,
    /// Whether it may have cache locks.
    pub(super) caches: bool,
    /// Whose it is, among the owners.
    pub(super) owner: u32,
    pub(super) held: u32,
    pub(super) waits: u32,
    /// Demands of its cache locks that were sent and not complied with, as long as it is in good standing.
    pub(super) told: u8,
    /// Further ones wait until it has complied with some.
    pub(super) held_back: bool,
    /// Its mutations that wait or execute: only few have any at any moment.
    #[expect(clippy::box_collection, reason = "one word while there are none")]
    tasks: Option<Box<Vec<TaskId>>>,
    /// Its holds, the demanded ones first.
    pub(super) first: u32,
    pub(super) last: u32,
}

impl SessionLocks {
    pub(super) const fn key(&self) -> SessionKey {
        SessionKey { place: self.place, id: self.id }
    }

    /// Its mutations that wait or execute.
    pub(super) fn tasks(&self) -> &[TaskId] {
        self.tasks.as_ref().map(|tasks| tasks.as_slice()).unwrap_or_default()
    }

    pub(super) fn add_task(&mut self, task: TaskId) {
        self.tasks.get_or_insert_default().push(task);
    }

    pub(super) fn drop_task(&mut self, task: TaskId) {
        self.tasks.take_if(|tasks| {
            tasks.retain(|other| *other != task);
            tasks.is_empty()
        });
    }
}

/// The memory of the lock table.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) holds: Slab<Hold>,
    pub(super) entries: Slab<Entry>,
    pub(super) sessions: Slab<SessionLocks>,
    /// Entries, by lock.
    index: Index,
    /// Holds, by entry and session: a session has one at most, and a lock may have ten thousand. The first of a lock's list need not be
    /// in it, and is not if the lock had no other before: most locks never have.
    owners: Index,
    /// Objects whose advisory lock somebody holds or waits for, for lists.
    pub(super) advisory: ObjectSet,
    /// Queues that are empty: kept, so that a mutation needs no new one.
    #[expect(clippy::vec_box, reason = "the boxes themselves are used again")]
    spare: Vec<Box<Queue>>,
}

/// Most empty queues kept.
const SPARE_MAX: usize = 64;

impl Table {
    pub(super) fn new() -> Self {
        Self {
            holds: Slab::new(),
            entries: Slab::new(),
            sessions: Slab::new(),
            index: Index::default(),
            owners: Index::default(),
            advisory: ObjectSet::default(),
            spare: Vec::new(),
        }
    }

    pub(super) fn open(&mut self, SessionKey { place, id }: SessionKey, owner: u32, who: PrincipalId, caches: bool) -> u32 {
        let access = LockAccess::Active;
        let (told, held_back) = (0, false);
        self.sessions.insert(SessionLocks {
            id,
            place,
            who,
            access,
            caches,
            owner,
            held: 0,
            waits: 0,
            told,
            held_back,
            tasks: None,
            first: NONE,
            last: NONE,
        })
    }

    /// Forgets a session; its owner.
    pub(super) fn forget_session(&mut self, at: u32) -> u32 {
        let session = self.sessions.remove(at);
        debug_assert!(session.held == 0 && session.waits == 0 && session.tasks().is_empty(), "a session that still has something");
        session.owner
    }

    /// The session of a slot; `None`: it was never opened.
    pub(super) fn session(&self, slot: LockSlot) -> Option<u32> {
        self.sessions.get(slot.0).map(|_| slot.0)
    }

    /// The session, if it is in good standing.
    pub(super) fn good(&self, slot: LockSlot) -> Option<u32> {
        self.sessions.get(slot.0).filter(|session| session.access == LockAccess::Active).map(|_| slot.0)
    }

    pub(super) fn is_good(&self, session: u32) -> bool {
        self.sessions[session].access == LockAccess::Active
    }

    pub(super) fn entry(&self, lock: LockId) -> Option<u32> {
        self.index.find(hash(lock.object.0, lock.class as u64), |at| self.entries[at].lock() == lock)
    }

    pub(super) fn entry_or_new(&mut self, lock: LockId) -> u32 {
        if let Some(entry) = self.entry(lock) {
            return entry;
        }
        let entry =
            self.entries.insert(Entry { object: lock.object, class: lock.class, queue: None, realm: Realm(0), first: NONE, last: NONE });
        self.index.insert(hash(lock.object.0, lock.class as u64), entry);
        if lock.class == LockClass::Advisory {
            self.advisory.insert(lock.object);
        }
        entry
    }

    /// The entry of a lock that is about to be held or waited for by a request.
    pub(super) fn entry_of(&mut self, Located { object, realm }: Located, class: LockClass) -> u32 {
        let entry = self.entry_or_new(LockId { object, class });
        self.entries[entry].realm = realm;
        entry
    }

    /// Gives the entry's memory back if nobody holds its lock or waits for it.
    pub(super) fn drop_if_idle(&mut self, entry: u32) {
        let lock = self.entries[entry].lock();
        let Entry { first, queue, .. } = &mut self.entries[entry];
        if queue.as_ref().is_some_and(|queue| queue.waiters.is_empty() && queue.tasks.is_empty())
            && let Some(queue) = queue.take()
            && self.spare.len() < SPARE_MAX
        {
            self.spare.push(queue);
        }
        if *first != NONE || queue.is_some() {
            return;
        }
        self.entries.remove(entry);
        self.index.remove(hash(lock.object.0, lock.class as u64), entry);
        if lock.class == LockClass::Advisory {
            self.advisory.remove(lock.object);
        }
    }

    pub(super) fn queue_mut(&mut self, entry: u32) -> &mut Queue {
        let spare = &mut self.spare;
        self.entries[entry].queue.get_or_insert_with(|| spare.pop().unwrap_or_default())
    }

    /// The live holds of a lock, oldest first.
    pub(super) fn holds_of(&self, entry: u32) -> impl Iterator<Item = u32> {
        let mut at = self.entries[entry].first;
        let all = core::iter::from_fn(move || {
            let hold = self.holds.get(at)?;
            Some((core::mem::replace(&mut at, hold.entry_next), hold))
        });
        all.filter(|(_, hold)| self.is_live(hold)).map(|(at, _)| at)
    }

    /// The hold after `at` in its lock's list, live or not; of [`NONE`] the first.
    pub(super) fn next_of(&self, entry: u32, at: u32) -> u32 {
        if at == NONE { self.entries[entry].first } else { self.holds[at].entry_next }
    }

    /// What a session holds of a lock.
    pub(super) fn hold_of(&self, entry: u32, session: u32) -> Option<u32> {
        let first = self.entries[entry].first;
        let hold = self.holds.get(first)?;
        if hold.session == session {
            return Some(first);
        }
        if hold.entry_next == NONE {
            return None;
        }
        let is_it = |at: u32| self.holds[at].entry == entry && self.holds[at].session == session;
        self.owners.find(hash(entry.into(), session.into()), is_it)
    }

    /// The oldest hold of a lock by another session that is live. If any of them is exclusive this is it, for then there is no other.
    pub(super) fn other(&self, entry: u32, session: u32) -> Option<u32> {
        self.holds_of(entry).find(|at| self.holds[*at].session != session)
    }

    /// Whether a hold counts.
    pub(super) fn is_live(&self, hold: &Hold) -> bool {
        self.sessions[hold.session].access != LockAccess::Freed
    }

    /// Adds a hold.
    pub(super) fn add_hold(&mut self, now: Instant, entry: u32, session: u32, mode: Mode, generation: Generation, run: u32) -> u32 {
        let at = self.holds.next_name();
        let of = &mut self.entries[entry];
        let entry_prev = core::mem::replace(&mut of.last, at);
        if entry_prev == NONE {
            of.first = at;
        }
        let by = &mut self.sessions[session];
        let session_prev = core::mem::replace(&mut by.last, at);
        by.held += 1;
        if session_prev == NONE {
            by.first = at;
        }
        let named = self.holds.insert(Hold {
            generation,
            before: generation,
            since: now,
            nonce: 0,
            run,
            entry,
            session,
            entry_prev,
            entry_next: NONE,
            session_prev,
            session_next: NONE,
            mode,
            downgraded: false,
            indexed: entry_prev != NONE,
            demand: None,
        });
        debug_assert_eq!(named, at, "the name was foretold");
        if session_prev != NONE {
            self.holds[session_prev].session_next = at;
        }
        if entry_prev != NONE {
            self.holds[entry_prev].entry_next = at;
            self.owners.insert(hash(entry.into(), session.into()), at);
        }
        at
    }

    /// Takes a hold away.
    #[inline]
    pub(super) fn remove_hold(&mut self, at: u32) -> Hold {
        let hold = self.holds.remove(at);
        self.unlink_from_session(&hold);
        let of = &mut self.entries[hold.entry];
        if hold.entry_prev == NONE {
            of.first = hold.entry_next;
        }
        if hold.entry_next == NONE {
            of.last = hold.entry_prev;
        } else {
            self.holds[hold.entry_next].entry_prev = hold.entry_prev;
        }
        if hold.entry_prev != NONE {
            self.holds[hold.entry_prev].entry_next = hold.entry_next;
        }
        self.sessions[hold.session].held -= 1;
        if hold.indexed {
            self.owners.remove(hash(hold.entry.into(), hold.session.into()), at);
        }
        hold
    }

    /// Takes a hold, which may be gone already, out of its session's list.
    fn unlink_from_session(&mut self, hold: &Hold) {
        let &Hold { session, session_prev, session_next, .. } = hold;
        let by = &mut self.sessions[session];
        if session_prev == NONE {
            by.first = session_next;
        }
        if session_next == NONE {
            by.last = session_prev;
        }
        if session_prev != NONE {
            self.holds[session_prev].session_next = session_next;
        }
        if session_next != NONE {
            self.holds[session_next].session_prev = session_prev;
        }
    }

    /// Moves a hold to the front of its session's list, where the demanded ones stand, or back behind them.
    pub(super) fn move_in_session(&mut self, at: u32, front: bool) {
        let hold = self.holds[at].clone();
        self.unlink_from_session(&hold);
        let session = hold.session;
        let SessionLocks { first, last, .. } = self.sessions[session];
        let (prev, next) = if front { (NONE, first) } else { (last, NONE) };
        self.holds[at].session_prev = prev;
        self.holds[at].session_next = next;
        match prev {
            NONE => self.sessions[session].first = at,
            prev => self.holds[prev].session_next = at,
        }
        match next {
            NONE => self.sessions[session].last = at,
            next => self.holds[next].session_prev = at,
        }
    }

    /// The holds of a session, live or not, the demanded ones first.
    pub(super) fn holds_of_session(&self, session: u32) -> impl Iterator<Item = u32> {
        let mut at = self.sessions[session].first;
        core::iter::from_fn(move || {
            let hold = self.holds.get(at)?;
            Some(core::mem::replace(&mut at, hold.session_next))
        })
    }

    /// The demanded holds of a session.
    pub(super) fn demanded_of(&self, session: u32) -> impl Iterator<Item = u32> {
        let mut at = self.sessions[session].first;
        core::iter::from_fn(move || {
            let hold = self.holds.get(at).filter(|hold| hold.demand.is_some())?;
            Some(core::mem::replace(&mut at, hold.session_next))
        })
    }

    /// Whether anybody in good standing waits for the lock.
    pub(super) fn has_waiters(&self, entry: u32, task_is_good: impl Fn(TaskId) -> bool) -> bool {
        self.entries[entry].queue.as_ref().is_some_and(|queue| {
            queue.waiters.iter().any(|waiter| self.is_good(waiter.session)) || queue.tasks.iter().any(|task| task_is_good(*task))
        })
    }
}

/// Objects of one node.
const NODE: u64 = 64;

/// A set of objects.
#[derive(Debug, Default)]
pub(super) struct ObjectSet {
    /// Under `n`: which of the objects from 64 n on are in it; never none of them.
    nodes: BTreeMap<u64, u64>,
}

impl ObjectSet {
    pub(super) fn insert(&mut self, object: ObjectId) {
        *self.nodes.entry(object.0 / NODE).or_default() |= 1 << (object.0 % NODE);
    }

    pub(super) fn remove(&mut self, object: ObjectId) {
        let node = object.0 / NODE;
        if let Some(bits) = self.nodes.get_mut(&node) {
            *bits &= !(1 << (object.0 % NODE));
            if *bits == 0 {
                self.nodes.remove(&node);
            }
        }
    }

    /// The objects of a range, in order.
    pub(super) fn range(&self, range: RangeInclusive<ObjectId>) -> impl Iterator<Item = ObjectId> {
        let nodes = self.nodes.range(range.start().0 / NODE..=range.end().0 / NODE);
        let all =
            nodes.flat_map(|(node, bits)| (0..NODE).filter(move |at| bits & (1 << at) != 0).map(move |at| ObjectId(node * NODE + at)));
        all.filter(move |object| range.contains(object))
    }

    /// Bytes of memory for one object of those that were made one after the other: a node's, half full, among 64.
    #[cfg(test)]
    pub(super) const fn size_of_one() -> usize {
        (2 * 2 * size_of::<u64>()).div_ceil(64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    #[test]
    fn a_lock_of_one_holder_costs_at_most_128_bytes_and_one_of_many_for_each_too() {
        let hold = Slab::<Hold>::size_of_one();
        let alone = hold + Slab::<Entry>::size_of_one() + Index::size_of_one() + ObjectSet::size_of_one();
        let shared = hold + Index::size_of_one();
        assert!(alone <= 128 && shared <= 128, "{alone} and {shared} bytes");
        assert!(Slab::<SessionLocks>::size_of_one() <= 48);
    }

    proptest! {
        #[test]
        fn listed_agrees_with_a_plain_set(
            changes in proptest::collection::vec((0u64..400, any::<bool>()), 0..300),
            first in 0u64..400,
            len in 0u64..400,
        ) {
            let (mut listed, mut plain) = (ObjectSet::default(), BTreeSet::new());
            for (at, add) in changes {
                // Both ends of what an id may be.
                let object = ObjectId(if at < 200 { at } else { u64::MAX - (at - 200) });
                if add {
                    listed.insert(object);
                    plain.insert(object);
                } else {
                    listed.remove(object);
                    plain.remove(&object);
                }
            }
            for range in [ObjectId(first)..=ObjectId(first + len), ObjectId(0)..=ObjectId(u64::MAX)] {
                let found: Vec<_> = listed.range(range.clone()).collect();
                let wanted: Vec<_> = plain.range(range).copied().collect();
                prop_assert_eq!(found, wanted);
            }
        }
    }
}
