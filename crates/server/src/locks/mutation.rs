//! Mutations: whose turn it is.
//!
//! Decides: when a mutation may execute. Place in the walk: entered once its plan is known, again when its plan has changed, left
//! when it has executed or failed. Implements `wire-spec.md` section 11.4.
//! Invariant: a mutation takes its place in the queues of all its objects at once, in order of arrival, and keeps that order when its
//! set changes. It is ready when it is first in line on each and no conflicting cache lock stands; at most one mutation of an
//! object is ready. So two mutations never wait for each other.
//! Leaves to others: what a mutation affects (`namespace::plan`), executing it.

use super::table::LockAccess;
use super::{Action, LockTable, Ticket, Turn};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::slab::NONE;
use cistern_wire::limits::{BATCH_OBJECTS_MAX, HELD_MAX};
use cistern_wire::{Generation, Held, Keep, LockClass, LockId, ObjectId, SessionId};

/// Most objects that existed before and that one mutation affects: those of a batch.
const OBJECTS_MAX: usize = BATCH_OBJECTS_MAX;

/// A mutation in the queues.
#[derive(Debug)]
pub(super) struct Mutant {
    pub(super) session: u32,
    /// Its entries; each once.
    entries: [u32; OBJECTS_MAX],
    len: usize,
    held: [Held; HELD_MAX],
    held_len: usize,
    /// Its turn has come.
    pub(super) ready: bool,
    /// `MutationReady` is on its way to the caller.
    announced: bool,
}

impl Mutant {
    fn entries(&self) -> &[u32] {
        &self.entries[..self.len]
    }

    /// Whether it may go on beside its session's own hold of an object.
    fn suspends(&self, object: ObjectId, generation: Generation) -> bool {
        self.held[..self.held_len].contains(&Held { object, generation })
    }
}

impl LockTable {
    /// Asks for a mutation's turn on `objects` (at most 16, those that exist), its session's own locks named in `held` being suspended.
    /// Called again with the same ticket when its plan has changed: it keeps its place in order of arrival, and is not ready
    /// until that is said anew.
    ///
    /// Conflicting cache locks are asked back at once: all of other sessions, and of its own session those not in `held`.
    pub fn mutation_enter(
        &mut self,
        now: Instant,
        ticket: Ticket,
        session: SessionId,
        objects: &[ObjectId],
        held: impl IntoIterator<Item = Held>,
    ) -> Turn {
        debug_assert!(objects.len() <= OBJECTS_MAX, "an operation affects at most 16 objects that exist");
        let Some(session) = self.table.good(session) else { return Turn::Busy };
        let former = self.withdraw(ticket);
        // What the server itself removes is never turned away: nobody would come again for it.
        let own = self.table.sessions[session].id == SessionId(0);
        if !own && former.is_none() && objects.iter().any(|object| self.crowded(*object)) {
            return Turn::Busy;
        }
        let mut mutant = Mutant {
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
            if !mutant.entries().contains(&entry) {
                mutant.entries[mutant.len] = entry;
                mutant.len += 1;
                //= wire-spec.md#11-4-locks
                //# A mutation of several objects MUST take its places in all their queues at once, in order of arrival.
                let tickets = &mut self.table.queue_mut(entry).tickets;
                let place = tickets.partition_point(|other| *other < ticket);
                tickets.insert(place, ticket);
            }
        }
        for named in held.into_iter().take(HELD_MAX) {
            mutant.held[mutant.held_len] = named;
            mutant.held_len += 1;
        }
        self.mutants.insert(ticket, mutant);
        self.table.sessions[session].add_ticket(ticket);
        self.press_ticket(now, ticket);
        let ready = self.try_ready(ticket);
        if let Some(former) = former {
            self.wake_all(former.entries());
        }
        if ready { Turn::Ready } else { Turn::Waiting }
    }

    /// A mutation has executed, failed or been dropped: the next ones come. To be called before the cache locks that its answer grants
    /// are asked for. Without effect for a mutation that has no place.
    pub fn mutation_leave(&mut self, ticket: Ticket) {
        if let Some(mutant) = self.withdraw(ticket) {
            self.wake_all(mutant.entries());
        }
    }

    /// Whether nobody but `session` holds a cache lock of one of these objects, and nobody waits to change one: what is taken away together
    /// with that session then conflicts with nobody.
    #[must_use]
    pub fn nobody_but(&self, session: SessionId, objects: &[ObjectId]) -> bool {
        let own = self.table.session(session);
        objects.iter().all(|object| {
            let Some(entry) = self.table.entry(LockId { object: *object, class: LockClass::Cache }) else { return true };
            let waits = self.table.entries[entry].queue.as_ref().is_some_and(|queue| !queue.tickets.is_empty());
            !waits && self.table.holds_of(entry).all(|at| Some(self.table.holds[at].session) == own)
        })
    }

    /// Takes a mutation out of all queues.
    fn withdraw(&mut self, ticket: Ticket) -> Option<Mutant> {
        let mutant = self.mutants.remove(&ticket)?;
        for entry in mutant.entries() {
            self.table.queue_mut(*entry).tickets.retain(|other| *other != ticket);
        }
        self.table.sessions[mutant.session].drop_ticket(ticket);
        Some(mutant)
    }

    fn crowded(&self, object: ObjectId) -> bool {
        let entry = self.table.entry(LockId { object, class: LockClass::Cache });
        let queue = entry.and_then(|entry| self.table.entries[entry].queue.as_ref());
        queue.is_some_and(|queue| queue.tickets.len() >= self.limits.mutations_per_object)
    }

    /// Asks back all that is in a mutation's way.
    pub(super) fn press_ticket(&mut self, now: Instant, ticket: Ticket) {
        let Some(mutant) = self.mutants.get(&ticket) else { return };
        let (entries, len) = (mutant.entries, mutant.len);
        for entry in &entries[..len] {
            let mut at = self.table.next_of(*entry, NONE);
            while at != NONE {
                //= wire-spec.md#11-4-locks
                //# The server MUST demand every cache lock that keeps a mutation waiting.
                if self.table.stands(&self.table.holds[at]) && self.in_the_way(ticket, at) {
                    self.demand(now, at, Keep::Nothing);
                }
                at = self.table.next_of(*entry, at);
            }
        }
    }

    /// Asks a cache lock back if a mutation waits for it: it has a new generation, which no demand has covered.
    pub(super) fn press_for_tickets(&mut self, now: Instant, at: u32) {
        let entry = self.table.holds[at].entry;
        let tickets = self.table.entries[entry].queue.as_ref().map(|queue| queue.tickets.as_slice()).unwrap_or_default();
        if tickets.iter().any(|ticket| self.is_good_ticket(*ticket) && self.in_the_way(*ticket, at)) {
            self.demand(now, at, Keep::Nothing);
        }
    }

    /// Whether a hold conflicts with a mutation.
    fn in_the_way(&self, ticket: Ticket, at: u32) -> bool {
        let (mutant, hold) = (&self.mutants[&ticket], &self.table.holds[at]);
        //= wire-spec.md#11-4-locks
        //# A mutation MUST NOT be executed while another session holds a cache lock on an object that it affects.
        //= wire-spec.md#11-4-locks
        //# A mutation MUST NOT be executed while its own session holds a cache lock on an affected object, unless `held` names its
        //# generation.
        hold.session != mutant.session || !mutant.suspends(self.table.entries[hold.entry].lock.object, hold.generation)
    }

    /// Whether a mutation counts: its session is in good standing (section 11.3).
    pub(super) fn is_good_ticket(&self, ticket: Ticket) -> bool {
        self.mutants.get(&ticket).is_some_and(|mutant| self.table.is_good(mutant.session))
    }

    /// Makes a mutation ready if its turn has come.
    fn try_ready(&mut self, ticket: Ticket) -> bool {
        let turn = self.is_good_ticket(ticket)
            && self.mutants[&ticket]
                .entries()
                .iter()
                .all(|entry| self.is_first(*entry, ticket) && !self.table.holds_of(*entry).any(|at| self.in_the_way(ticket, at)));
        if let Some(mutant) = self.mutants.get_mut(&ticket) {
            mutant.ready |= turn;
        }
        turn
    }

    /// Whether nobody who counts stands before a mutation, and nobody after it is ready already.
    fn is_first(&self, entry: u32, ticket: Ticket) -> bool {
        let tickets = self.table.entries[entry].queue.as_ref().map(|queue| queue.tickets.as_slice()).unwrap_or_default();
        tickets.iter().all(|other| match other.cmp(&ticket) {
            core::cmp::Ordering::Less => !self.is_good_ticket(*other),
            core::cmp::Ordering::Equal => true,
            core::cmp::Ordering::Greater => !self.mutants[other].ready,
        })
    }

    /// Something changed on a cache lock: the first mutation in line may be ready now.
    pub(super) fn wake(&mut self, entry: u32) {
        let tickets = self.table.entries[entry].queue.as_ref().map(|queue| queue.tickets.as_slice()).unwrap_or_default();
        let first = tickets.iter().copied().find(|ticket| self.is_good_ticket(*ticket));
        if let Some(ticket) = first.filter(|ticket| !self.mutants[ticket].ready)
            && self.try_ready(ticket)
        {
            self.announce(ticket);
        }
        self.table.drop_if_idle(entry);
    }

    fn wake_all(&mut self, entries: &[u32]) {
        for entry in entries {
            self.wake(*entry);
        }
    }

    fn announce(&mut self, ticket: Ticket) {
        if let Some(mutant) = self.mutants.get_mut(&ticket)
            && !core::mem::replace(&mut mutant.announced, true)
        {
            self.actions.push_back(Action::MutationReady { ticket });
        }
    }

    /// Whether it is still true that a mutation's turn has come, when the caller is about to hear it.
    pub(super) fn heard(&mut self, ticket: Ticket) -> bool {
        self.mutants.get_mut(&ticket).is_some_and(|mutant| core::mem::take(&mut mutant.announced) && mutant.ready)
    }

    /// The session is not in good standing any more: its mutations are not ready, and delay nobody.
    pub(super) fn suspend_tickets(&mut self, session: u32) {
        let tickets = self.table.sessions[session].tickets().to_vec();
        for ticket in &tickets {
            if let Some(mutant) = self.mutants.get_mut(ticket) {
                mutant.ready = false;
            }
        }
        for entry in self.entries_of(&tickets) {
            self.wake(entry);
        }
    }

    /// The session was rescued: its mutations have their places again.
    pub(super) fn resume_tickets(&mut self, now: Instant, session: u32) {
        debug_assert!(self.table.sessions[session].state == LockAccess::Active, "only a rescue resumes");
        let tickets = self.table.sessions[session].tickets().to_vec();
        for ticket in &tickets {
            self.press_ticket(now, *ticket);
        }
        for entry in self.entries_of(&tickets) {
            self.wake(entry);
        }
        // One that affects nothing stands in no queue.
        for ticket in tickets {
            if self.mutants.get(&ticket).is_some_and(|mutant| mutant.len == 0) && self.try_ready(ticket) {
                self.announce(ticket);
            }
        }
    }

    fn entries_of(&self, tickets: &[Ticket]) -> Vec<u32> {
        let mut entries: Vec<_> = tickets.iter().filter_map(|ticket| self.mutants.get(ticket)).flat_map(Mutant::entries).copied().collect();
        entries.sort_unstable();
        entries.dedup();
        entries
    }
}
