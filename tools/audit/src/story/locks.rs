//! Who holds which lock, as the wire shows it: a lock table kept outside the server.
//!
//! Decides holds from what the server sends (grants) and agents send (releases, refusals, ends). A hold stands until its agent has given
//! it back, given its session up, or another session was given the lock. Place in the walk: under `story`, called by `up` and `down`.
//! Invariant: of two conflicting holds the one with the larger generation was granted later, whatever order they were captured in.
//! Leaves to others: whether a lock may be passed (the rules), intervals for pictures (`intervals`).

use super::server::Hold;
use super::session::{Mark, Session};
use super::{Seen, Story};
use crate::event::{Grant, How, IntervalKind, What};
use cistern_wire::{Generation, LockClass, LockId, Mode, ObjectId, SessionId};

/// A hold that stands in the way.
struct Standing {
    hold: Hold,
    possible_until: Option<std::time::Duration>,
}

impl Story {
    /// A session is given a lock.
    pub(super) fn give(&mut self, seen: &Seen<'_>, mut grant: Grant) {
        let id = seen.session();
        let Some(session) = self.sessions.get_mut(&id) else { return };
        grant.news = session.give(grant.lock, grant.generation);
        let (host, over, incarnation) = (session.server, session.given_up.is_some(), session.incarnation);
        let server = self.servers.entry(host).or_default();
        let end = grant.generation.0.saturating_add(grant.run.max(1).into());
        let mut overlaps = None;
        if grant.how != How::Reclaim {
            let before = server.runs.range(..end).next_back().filter(|(_, run)| run.0 > grant.generation.0);
            let same = |first: u64, run: &(u64, LockId, SessionId, u64)| first == grant.generation.0 && run.1 == grant.lock && run.2 == id;
            overlaps = before.filter(|(first, run)| !same(**first, run)).map(|(first, run)| (Generation(*first), run.2, run.3));
        }
        server.runs.entry(grant.generation.0).or_insert((end, grant.lock, id, seen.passage.frame));
        server.newest = server.newest.max(Generation(end - 1));
        if let (true, true, Some(incarnation)) = (grant.news, matches!(grant.how, How::Answer | How::Notice), incarnation) {
            server.ordinary.entry(incarnation).or_insert(seen.passage.frame);
        }
        self.events.push(seen.event(What::Granted(grant)));
        if let Some((generation, session, frame)) = overlaps {
            self.events.push(seen.event(What::Overlaps { generation: grant.generation, with: generation, session, frame }));
        }
        if !grant.news || over {
            return;
        }
        self.pass(seen, id, &grant);
    }

    /// Looks at everybody in the way of a new grant, and puts it into the table.
    fn pass(&mut self, seen: &Seen<'_>, id: SessionId, grant: &Grant) {
        let mark = seen.mark();
        let mut lost = false;
        self.may_pass(seen, grant.lock);
        let standing = self.in_the_way(id, grant.lock, |hold| !hold.mode.compatible(grant.mode));
        for Standing { hold, possible_until } in standing {
            let later = hold.generation > grant.generation;
            let what = if later {
                // The grant that was captured first was given later: it passed this one.
                lost = true;
                let own = self.sessions.get(&id).and_then(Session::possible_until);
                let passed = hold.mark.at;
                self.passed(id, hold.mark);
                What::Passed {
                    holder: id,
                    lock: grant.lock,
                    generation: grant.generation,
                    since: mark.frame,
                    passed,
                    possible_until: own,
                    by_mutation: false,
                }
            } else {
                self.drop_hold(hold.session, grant.lock, mark);
                self.passed(hold.session, mark);
                What::Passed {
                    holder: hold.session,
                    lock: grant.lock,
                    generation: hold.generation,
                    since: hold.mark.frame,
                    passed: mark.at,
                    possible_until,
                    by_mutation: false,
                }
            };
            self.events.push(seen.event(what));
        }
        if !lost {
            self.put(seen, id, grant);
        }
    }

    /// A mutation has made a version that holders of the object's cache lock do not know of.
    pub(super) fn mutated(&mut self, seen: &Seen<'_>, object: ObjectId, version: u64) {
        let lock = LockId { object, class: LockClass::Cache };
        let mark = seen.mark();
        self.may_pass(seen, lock);
        for Standing { hold, possible_until } in self.in_the_way(seen.session(), lock, |hold| hold.version < version) {
            self.drop_hold(hold.session, lock, mark);
            self.passed(hold.session, mark);
            let (holder, generation, since) = (hold.session, hold.generation, hold.mark.frame);
            self.events.push(seen.event(What::Passed {
                holder,
                lock,
                generation,
                since,
                passed: mark.at,
                possible_until,
                by_mutation: true,
            }));
        }
    }

    /// Tells where a lock may pass from a hold that was forgotten.
    fn may_pass(&mut self, seen: &Seen<'_>, lock: LockId) {
        let server = self.sessions.get(&seen.session()).and_then(|session| self.servers.get(&session.server));
        if server.is_some_and(|server| server.short.may_have_held(lock)) {
            self.events.push(seen.event(What::PassedUnknown { lock }));
        }
    }

    /// Holds of other sessions that a grant or mutation of a session must not meet.
    fn in_the_way(&self, id: SessionId, lock: LockId, conflicts: impl Fn(&Hold) -> bool) -> Vec<Standing> {
        let Some(session) = self.sessions.get(&id) else { return Vec::new() };
        let Some(holds) = self.servers.get(&session.server).and_then(|server| server.holds.get(&lock)) else { return Vec::new() };
        let counts = |hold: &&Hold| {
            let holder = self.sessions.get(&hold.session);
            hold.session != id && conflicts(hold) && holder.is_some_and(|of| of.given_up.is_none() && !is_former(of, session))
        };
        let standing =
            |hold: &Hold| Standing { hold: *hold, possible_until: self.sessions.get(&hold.session).and_then(Session::possible_until) };
        holds.iter().filter(counts).map(standing).collect()
    }

    fn passed(&mut self, session: SessionId, mark: Mark) {
        if let Some(session) = self.sessions.get_mut(&session) {
            session.stolen.get_or_insert(mark);
        }
    }

    fn put(&mut self, seen: &Seen<'_>, id: SessionId, grant: &Grant) {
        let Some(session) = self.sessions.get(&id) else { return };
        let (agent, server) = (session.host, session.server);
        let holds = self.servers.entry(server).or_default().holds.entry(grant.lock).or_default();
        holds.retain(|old| old.session != id);
        let (mode, generation, version) = (grant.mode, grant.generation, grant.version);
        holds.push(Hold { session: id, mode, generation, version, mark: seen.mark() });
        if let Some(intervals) = &mut self.intervals {
            let kind = IntervalKind::Hold { lock: grant.lock, mode, generation };
            intervals.hold_begins(kind, id, agent, seen.passage.at, seen.passage.frame);
        }
    }

    /// What a session gives back, up to a generation.
    pub(super) fn take_back(&mut self, seen: &Seen<'_>, lock: LockId, up_to: Generation) {
        let id = seen.session();
        let Some(server) = self.sessions.get(&id).and_then(|session| self.servers.get_mut(&session.server)) else { return };
        let Some(holds) = server.holds.get_mut(&lock) else { return };
        let before = holds.len();
        holds.retain(|hold| hold.session != id || hold.generation > up_to);
        let gone = holds.len() < before;
        if holds.is_empty() {
            server.holds.remove(&lock);
        }
        if let (true, Some(intervals)) = (gone, &mut self.intervals) {
            intervals.hold_ends(id, lock, seen.mark());
        }
    }

    /// A session keeps a shared lock of an exclusive one.
    pub(super) fn downgraded(&mut self, id: SessionId, lock: LockId, generation: Generation) {
        let Some(server) = self.sessions.get(&id).and_then(|session| self.servers.get_mut(&session.server)) else { return };
        let holds = server.holds.get_mut(&lock).into_iter().flatten();
        holds.filter(|hold| hold.session == id && hold.generation == generation).for_each(|hold| hold.mode = Mode::Shared);
    }

    /// The new generation of what a downgrade has left.
    pub(super) fn left_by_downgrade(&mut self, id: SessionId, lock: LockId, from: Generation, now: Generation) {
        let Some(server) = self.sessions.get(&id).and_then(|session| self.servers.get_mut(&session.server)) else { return };
        let holds = server.holds.get_mut(&lock).into_iter().flatten();
        for hold in holds.filter(|hold| hold.session == id && hold.generation == from) {
            (hold.mode, hold.generation) = (Mode::Shared, now);
        }
    }

    fn drop_hold(&mut self, id: SessionId, lock: LockId, mark: Mark) {
        let Some(server) = self.sessions.get(&id).and_then(|session| self.servers.get_mut(&session.server)) else { return };
        if let Some(holds) = server.holds.get_mut(&lock) {
            holds.retain(|hold| hold.session != id);
        }
        if let Some(intervals) = &mut self.intervals {
            intervals.hold_ends(id, lock, mark);
        }
    }

    /// Nothing of a session is held any more.
    pub(super) fn end_intervals(&mut self, session: SessionId, mark: Mark) {
        if let Some(intervals) = &mut self.intervals {
            intervals.session_ends(session, mark);
        }
    }
}

/// Whether a session is a former one of the same start of the same agent, from before a start of the server: what it held can only be
/// reclaimed, and by that very process.
pub(crate) fn is_former(former: &Session, of: &Session) -> bool {
    former.agent.is_some()
        && (former.agent, former.agent_incarnation) == (of.agent, of.agent_incarnation)
        && former.incarnation.is_some()
        && former.incarnation < of.incarnation
}
