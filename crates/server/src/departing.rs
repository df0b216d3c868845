//! Departing: how the end of a session and the removal of its ephemeral files become one transaction.
//!
//! Decides when the transaction that ends a session may be written: when all its files can go by it (what is known of them is in memory,
//! and nobody else caches them or their directories, R71), or when others have had Td to give those caches back, for nobody shall wait for
//! the locks of a dead agent because a third one does not answer. Place in the walk: between the decision that a session is over
//! (`timing_out`) and its durable end; before the end of a grace, for the sessions that end with it.
//! Implements `wire-spec.md` sections 11.5 and 11.7 (R51). Invariant: an ephemeral file goes by the transaction that ends its session,
//! or by a later one, never by an earlier one (R38).
//! Leaves to others: how a file is taken away, and the files left behind (`ephemerals`); what else ends (`timing_out`, `grace`).

use crate::ephemerals::{Stop, sorted};
use crate::parked::{OpId, Parked, Wait};
use crate::server::{Phase, Server};
use crate::sessions::Key;
use crate::store::Query;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Kind, ObjectId, SessionId};
use log::info;

/// Most rounds of loading for the end of one session. Each comes one step nearer to all that a removal needs, of all files at once; more are
/// needed only where what was loaded is forgotten again before the rest has come.
const LOADS_MAX: u32 = 16;

/// A session that waits for the way of its files to be clear.
#[derive(Clone, Copy, Debug)]
struct Departure {
    /// `None`: it is of before the start, and ends with the grace.
    key: Option<Key>,
    /// The operation that takes its files away: its place in the queues.
    id: OpId,
    /// When it waits no longer for what others hold.
    until: Instant,
}

/// The sessions with ephemeral files that are about to end.
#[derive(Debug, Default)]
pub(crate) struct Departing {
    /// Those of this start that were not looked at yet.
    fresh: VecDeque<Key>,
    /// Those that end with the grace and were not looked at yet.
    lost: VecDeque<SessionId>,
    begun: BTreeMap<SessionId, Departure>,
    /// Until when each waits, in order of time; those that have ended since are passed over.
    deadlines: VecDeque<(Instant, SessionId)>,
    /// How far the search for the values of a session's files has come, for those whose end has been tried and could not be written.
    searches: BTreeMap<SessionId, Search>,
    /// A session has failed since those that wait for locks were looked at: what it holds is not given back.
    failed: bool,
}

/// What was learnt of the files of a session by looking for a way to take them all away.
#[derive(Debug, Default)]
struct Search {
    /// How often values were loaded for it.
    loads: u32,
    /// Files that are left for after the end: a value of theirs cannot be read, or does not stay in memory for long enough.
    given_up: BTreeSet<ObjectId>,
    /// The file in whose queues the end has its place; those behind it were asked back, too, and are looked at after it.
    waits_for: Option<ObjectId>,
}

impl Departing {
    /// Whether somebody is left who ends with the grace.
    pub(crate) fn holds_up_grace(&self) -> bool {
        !self.lost.is_empty() || self.begun.values().any(|departure| departure.key.is_none())
    }

    /// Whether there is somebody to be looked at.
    pub(crate) fn is_due(&self, in_grace: bool) -> bool {
        self.failed || !self.lost.is_empty() || !in_grace && !self.fresh.is_empty()
    }

    /// A session has failed: whoever waits for what it holds is to be looked at again.
    pub(crate) fn somebody_failed(&mut self) {
        self.failed = !self.begun.is_empty();
    }

    /// When somebody waits no longer.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.deadlines.front().map(|deadline| deadline.0)
    }
}

/// What stands in the way of taking a session's files away at once.
enum Way {
    /// Nothing.
    Clear,
    /// These values are not in memory.
    Load(Vec<Query>),
    /// Somebody holds a cache lock of this file or its directory, or changes them just now; it may be given back.
    Taken(ObjectId),
    /// The same, and a holder is not in good standing: it gives nothing back.
    Hopeless,
}

impl Server {
    /// The end of a session was decided, and files go with it.
    pub(crate) fn depart(&mut self, key: Key) {
        self.departing.fresh.push_back(key);
    }

    /// Grace is about to end, and this session with it.
    pub(crate) fn depart_with_grace(&mut self, session: SessionId) {
        self.departing.lost.push_back(session);
    }

    /// Ends the sessions whose files can go or have had their time, a slice in a turn. In grace only those are looked at that end with
    /// it: a cache lock may still be reclaimed that a removal has to wait for, and what the others held is granted to nobody yet.
    pub(crate) fn run_departures(&mut self) {
        if self.phase != Phase::Serving {
            return;
        }
        let now = self.now;
        if core::mem::take(&mut self.departing.failed) {
            let begun = self.departing.begun.iter().map(|(session, departure)| (*session, departure.id));
            let waiting = begun.filter(|(_, id)| self.parking.get(*id).is_some_and(|op| op.wait == Wait::Locks)).collect::<Vec<_>>();
            for (session, _) in waiting {
                // What failed may hold any of its files.
                self.departing.searches.entry(session).or_default().waits_for = None;
                self.go_on_departing(session);
            }
        }
        while let Some((until, session)) = self.departing.deadlines.pop_front_if(|deadline| now.waited(deadline.0)) {
            let late = self.departing.begun.get(&session).copied().filter(|departure| departure.until == until);
            let parked = late.and_then(|departure| self.parking.get(departure.id));
            if parked.is_some_and(|op| op.wait == Wait::Locks) {
                self.go_on_departing(session);
            }
        }
        let mut budget = self.config.freed_per_turn as usize;
        while budget > 0 {
            let in_grace = self.in_grace();
            let lost = self.departing.lost.pop_front().map(|session| (session, None));
            let fresh = || self.departing.fresh.pop_front_if(|_| !in_grace).map(|key| (key.id(), Some(key)));
            let Some((session, key)) = lost.or_else(fresh) else { return };
            budget = budget.saturating_sub(1 + self.ephemerals.of(session).count());
            let (id, until) = (self.parking.next_id(), now.plus(self.config.delivery_timeout));
            self.departing.begun.insert(session, Departure { key, id, until });
            self.departing.deadlines.push_back((until, session));
            self.go_on_departing(session);
        }
    }

    /// Tries, perhaps again, to take a session's files away all at once, and ends it if that can be, or if there is no use in waiting.
    pub(crate) fn go_on_departing(&mut self, session: SessionId) {
        let Some(Departure { key, id, until }) = self.departing.begun.get(&session).copied() else {
            return;
        };
        self.parking.take(id);
        //= wire-spec.md#11-5-caching-and-metadata
        //# The end of a session MUST NOT wait longer than Td for cache locks that protect its ephemeral files, nor at all for those of a
        //# session that is timing out.
        match self.way_of(session, id) {
            // What the store is asked for it tells in any case.
            Way::Load(queries) => {
                self.park_departure(id, session, Wait::Store(queries.len()));
                return self.ask_store(id, queries);
            }
            Way::Taken(_) if !self.now.waited(until) => return self.park_departure(id, session, Wait::Locks),
            Way::Clear => {}
            Way::Taken(object) => info!(
                "{}: session {session} ends before its ephemeral file {object}: its directory is in use, and was not given back in time",
                self.who
            ),
            Way::Hopeless => {}
        }
        self.departing.begun.remove(&session);
        self.departing.searches.remove(&session);
        if let Some(key) = key {
            //= wire-spec.md#11-5-caching-and-metadata
            //# The server MUST NOT remove an ephemeral file on account of its owner by a transaction before the one that ends that session.
            self.remove_files(session, id);
            self.write_end(key);
        }
        self.locks.mutation_leave(id.ticket());
        if key.is_none() {
            // It may have been the last one that grace waited for.
            self.run_grace();
        }
    }

    fn park_departure(&mut self, id: OpId, session: SessionId, wait: Wait) {
        let job = self.own_job(id, Kind::EndSession, session.0);
        self.parking.park(Parked { job, body: Box::default(), wait });
    }

    /// Looks whether all files of a session can go at once. What is in the way is asked back, all of it, and keeps a place in the queues,
    /// so that nobody is granted it anew.
    fn way_of(&mut self, session: SessionId, id: OpId) -> Way {
        let mut search = self.departing.searches.remove(&session).unwrap_or_default();
        let files: Vec<ObjectId> = self.ephemerals.of(session).filter(|object| !search.given_up.contains(object)).collect();
        if let Some(taken) = search.waits_for.take().and_then(|waited| self.next_taken(session, id, &files, waited)) {
            search.waits_for = Some(taken);
            self.departing.searches.insert(session, search);
            return Way::Taken(taken);
        }
        let (mut missing, mut taken) = (Vec::new(), None);
        for object in files {
            match self.enter_removal(id.ticket(), session, object, true) {
                Err(Stop::Load(queries, _)) if search.loads < LOADS_MAX => missing.extend(queries),
                Err(Stop::Turn) if self.locks.waits_for_failed(id.ticket()) => return Way::Hopeless,
                Err(Stop::Turn) => taken = taken.or(Some(object)),
                // What cannot be removed now is tried again after the end. It is not looked at again before: what cannot be read is
                // forgotten with every turn, and two such values would each be asked for again when the other one has failed.
                Err(Stop::Load(..) | Stop::Failed(_)) => {
                    search.given_up.insert(object);
                }
                Ok(_) => {}
            }
        }
        search.loads += u32::from(!missing.is_empty());
        search.waits_for = taken.filter(|_| missing.is_empty());
        self.departing.searches.insert(session, search);
        match taken {
            _ if !missing.is_empty() => Way::Load(sorted(missing)),
            // The place in the queues is that of the file looked at last.
            Some(object) => match self.enter_removal(id.ticket(), session, object, true) {
                Err(Stop::Turn) => Way::Taken(object),
                _ => Way::Hopeless,
            },
            None => Way::Clear,
        }
    }

    /// The first file from the one on that was waited for which cannot go yet, but will; `None`: all have to be looked at.
    ///
    /// So a session with many files in many places does not look at all of them each time that one is given back.
    fn next_taken(&mut self, session: SessionId, id: OpId, files: &[ObjectId], waited: ObjectId) -> Option<ObjectId> {
        for object in files.iter().copied().filter(|object| *object >= waited) {
            match self.enter_removal(id.ticket(), session, object, true) {
                Ok(_) => {}
                Err(Stop::Turn) if !self.locks.waits_for_failed(id.ticket()) => return Some(object),
                Err(_) => return None,
            }
        }
        None
    }

    /// Removes those files of a session that can go now, by the open batch.
    fn remove_files(&mut self, session: SessionId, id: OpId) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The transaction that ends a session MUST take its ephemeral files away, but for those that another session's cache lock still
        //# protects, that another mutation is to change first, or that cannot be read.
        let files: Vec<ObjectId> = self.ephemerals.of(session).collect();
        for object in files {
            if let Ok(Some(place)) = self.enter_removal(id.ticket(), session, object, true)
                && self.apply_removal(&place).is_err()
            {
                debug_assert!(false, "what was planned a moment ago can be applied");
            }
        }
    }

    /// Removes the files of a session that ends with the grace, by the open batch; the values that lack, if any: then nothing was done.
    pub(crate) fn remove_lost_files(&mut self, session: SessionId, id: OpId) -> Result<(), Vec<Query>> {
        if let Way::Load(queries) = self.way_of(session, id) {
            // The next try has a number, and so a place, of its own: this one would stand before it, and before everybody, for ever.
            self.locks.mutation_leave(id.ticket());
            return Err(queries);
        }
        self.departing.searches.remove(&session);
        self.remove_files(session, id);
        self.locks.mutation_leave(id.ticket());
        Ok(())
    }
}
