//! Who is there, and who is told: which file ends with which session or named lease, and which sessions are told of changes of which objects.
//!
//! Decides when the next WATCH_EVENT of a watch goes out: one at a time. Writes nothing, sends nothing.
//! Invariant: a row that is behind its object has a notice on the way, or is told with the next receipt; a row costs nothing while nothing
//! changes. Every ephemeral file that the store has is in the table, and of one whose session or named lease has ended the
//! removal is queued, a task, or put off. At most [`REMOVALS_MAX`] removals are under way: each waits in the line of its directory, and whoever frees that lets all that wait there
//! run in one turn, at a cost that grows with the square of their number.

use crate::config::PresenceLimits;
use crate::ids::{Bound, FlowId, PrincipalId};
use crate::share::{RETRY_MS, Shared, take, used_up};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{Handle, Limit, Limited, ObjectId, Realm, SessionId, Status, Whose};

/// What became of a watched object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) object: ObjectId,
    /// Its version after; the last one if it is gone.
    pub(crate) version: u64,
    pub(crate) gone: bool,
    /// To which the object belongs.
    pub(crate) realm: Realm,
}

/// One session's watch of one object.
#[derive(Clone, Copy, Debug)]
struct Watching {
    /// The version that the session was told of last, or is being told of.
    told: u64,
    /// A notice about it is not receipted.
    on_way: bool,
    /// What is to be told next.
    next: Option<Change>,
    /// Somebody still wants to be told; otherwise the row only waits for its receipt.
    wanted: bool,
    /// It is to hear of the object's end whatever it may read.
    concerned: bool,
}

/// Who is to be told: a session, and whose it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watcher {
    pub(crate) session: SessionId,
    pub(crate) owner: FlowId,
}

/// Watches that every owner may have.
const WATCHES_RESERVE: usize = 256;

/// Ephemeral files that every principal may have.
const FILES_RESERVE: usize = 64;

/// All watches.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    rows: BTreeMap<(ObjectId, SessionId), Watching>,
    by_session: BTreeMap<SessionId, WatchedBy>,
    /// How many each owner has that has any.
    by_owner: BTreeMap<FlowId, usize>,
}

/// What one session watches.
#[derive(Debug)]
struct WatchedBy {
    owner: FlowId,
    objects: BTreeSet<ObjectId>,
}

impl Watches {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether anybody watches an object.
    pub(crate) fn is_watched(&self, object: ObjectId) -> bool {
        self.of(object).any(|(_, row)| row.wanted)
    }

    /// How many objects a session watches.
    pub(crate) fn count_of(&self, session: SessionId) -> usize {
        self.by_session.get(&session).map_or(0, |own| own.objects.len())
    }

    /// Whether anybody but one session watches an object.
    pub(crate) fn is_watched_by_another(&self, object: ObjectId, session: SessionId) -> bool {
        self.of(object).any(|(watcher, row)| row.wanted && watcher != session)
    }

    /// The sessions that watch an object.
    pub(crate) fn watchers(&self, object: ObjectId) -> impl Iterator<Item = SessionId> {
        self.of(object).filter(|(_, row)| row.wanted).map(|(session, _)| session)
    }

    fn of(&self, object: ObjectId) -> impl Iterator<Item = (SessionId, &Watching)> {
        self.rows.range((object, SessionId(0))..=(object, SessionId(u64::MAX))).map(|((_, session), row)| (*session, row))
    }

    /// Whether a session has a row for an object, so that watching it takes no other.
    pub(crate) fn has(&self, session: SessionId, object: ObjectId) -> bool {
        self.rows.contains_key(&(object, session))
    }

    /// Why a session may not watch one object more; `None`: it may.
    pub(crate) fn limit(&self, by: Watcher, limits: PresenceLimits) -> Option<Limited> {
        let (shared, all) = self.shared(limits);
        let (own, of_all) = (self.count_of(by.session), || self.by_owner.get(&by.owner).copied().unwrap_or(0));
        if own >= limits.watches_per_session {
            return Some(used_up(Limit::Watches, Whose::Session, own, limits.watches_per_session));
        }
        let room = shared.admits_by(all, 1, of_all);
        (!room).then(|| shared.limited(Limit::Watches, all, of_all(), 1))
    }

    /// The table of watches, and how much of it is used.
    pub(crate) fn shared(&self, limits: PresenceLimits) -> (Shared, usize) {
        (Shared { capacity: limits.watches_max, reserve: WATCHES_RESERVE }, self.rows.len())
    }

    /// A session watches an object, of which it is told `version` by the answer.
    pub(crate) fn add(&mut self, by: Watcher, object: ObjectId, version: u64, limits: PresenceLimits) -> Result<(), Status> {
        let Watcher { session, owner } = by;
        if let Some(row) = self.rows.get_mut(&(object, session)) {
            row.wanted = true;
            row.told = row.told.max(version);
            return Ok(());
        }
        let own = self.by_session.get(&session).map_or(0, |own| own.objects.len());
        if self.rows.len() >= limits.watches_max || own >= limits.watches_per_session {
            return Err(Status::BUSY);
        }
        let own = self.by_session.entry(session).or_insert_with(|| WatchedBy { owner, objects: BTreeSet::new() });
        own.objects.insert(object);
        *self.by_owner.entry(own.owner).or_default() += 1;
        self.rows.insert((object, session), Watching { told: version, on_way: false, next: None, wanted: true, concerned: false });
        Ok(())
    }

    /// A session watches an object no more.
    pub(crate) fn remove(&mut self, session: SessionId, object: ObjectId) {
        if let Some(row) = self.rows.get_mut(&(object, session)) {
            row.wanted = false;
            row.next = None;
            self.drop_if_over(session, object);
        }
    }

    fn drop_if_over(&mut self, session: SessionId, object: ObjectId) {
        if self.rows.get(&(object, session)).is_some_and(|row| !row.wanted && !row.on_way) {
            self.rows.remove(&(object, session));
            if let Some(own) = self.by_session.get_mut(&session) {
                own.objects.remove(&object);
                let (owner, is_over) = (own.owner, own.objects.is_empty());
                if is_over {
                    self.by_session.remove(&session);
                }
                take(&mut self.by_owner, owner, 1);
            }
        }
    }

    /// A change is durable: the sessions that are to be told of it now. The others are told with their receipts.
    pub(crate) fn changed(&mut self, change: Change) -> Vec<SessionId> {
        let Change { object, version, gone, .. } = change;
        let mut now = Vec::new();
        for ((_, session), row) in self.rows.range_mut((object, SessionId(0))..=(object, SessionId(u64::MAX))) {
            if !row.wanted || (row.told >= version && !gone) {
                continue;
            }
            //= wire-spec.md#11-5-caching-and-metadata
            //# At most one notice of a watch MUST be on the way per session and object.
            if row.on_way {
                row.next = Some(change);
            } else {
                row.told = version;
                row.on_way = true;
                row.wanted = !gone;
                now.push(*session);
            }
        }
        now
    }

    /// The notice about an object was receipted: what is to be told now.
    pub(crate) fn receipted(&mut self, session: SessionId, object: ObjectId) -> Option<Change> {
        let row = self.rows.get_mut(&(object, session))?;
        match row.next.take() {
            Some(change) => {
                row.told = change.version;
                row.wanted = !change.gone;
                Some(change)
            }
            None => {
                row.on_way = false;
                self.drop_if_over(session, object);
                None
            }
        }
    }

    /// These sessions are to hear what becomes of an object, as if they watched it.
    pub(crate) fn concern(&mut self, object: ObjectId, who: impl IntoIterator<Item = Watcher>, limits: PresenceLimits) {
        for session in who {
            // Where a bound of watches is reached it is not told: an owner goes on renewing its lease, a holder has a demand.
            let _full = self.add(session, object, 0, limits);
            if let Some(row) = self.rows.get_mut(&(object, session.session)) {
                row.concerned = true;
            }
        }
    }

    /// Whether a session is to hear what becomes of an object whatever it may read.
    pub(crate) fn is_concerned(&self, session: SessionId, object: ObjectId) -> bool {
        self.rows.get(&(object, session)).is_some_and(|row| row.concerned)
    }

    /// A session has ended, and its watches with it.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        let Some(own) = self.by_session.remove(&session) else { return };
        take(&mut self.by_owner, own.owner, own.objects.len());
        for object in own.objects {
            self.rows.remove(&(object, session));
        }
    }
}

/// Most removals that are under way together, and that begin in one turn.
pub(crate) const REMOVALS_MAX: usize = 128;

/// One ephemeral file.
#[derive(Clone, Copy, Debug)]
struct EphemeralFile {
    /// Of whom it tells as its owner; its record in the store stands under that.
    owner: Handle,
    /// Whose end is its own.
    bound: Bound,
    /// In whose share it is.
    who: PrincipalId,
}

/// All ephemeral files.
#[derive(Debug, Default)]
pub(crate) struct Ephemerals {
    rows: BTreeMap<ObjectId, EphemeralFile>,
    by_bound: BTreeMap<Bound, BTreeSet<ObjectId>>,
    /// How many are in the share of each principal that has any.
    by_principal: BTreeMap<PrincipalId, usize>,
    /// Files of what has ended whose removal was not begun.
    orphans: VecDeque<ObjectId>,
    /// How many removals were begun and have not ended.
    removing: usize,
    /// Files whose removal has failed, and when it is tried again; in order of time.
    put_off: VecDeque<(Instant, ObjectId)>,
}

impl Ephemerals {
    /// A file is there that goes with `bound`, and is in the share of `who`.
    pub(crate) fn add(&mut self, object: ObjectId, owner: Handle, bound: Bound, who: PrincipalId) {
        self.rows.insert(object, EphemeralFile { owner, bound, who });
        self.by_bound.entry(bound).or_default().insert(object);
        *self.by_principal.entry(who).or_default() += 1;
    }

    /// A file is gone, whoever took it away; any file, ephemeral or not.
    pub(crate) fn gone(&mut self, object: ObjectId) {
        let Some(row) = self.rows.remove(&object) else { return };
        take(&mut self.by_principal, row.who, 1);
        if let Some(own) = self.by_bound.get_mut(&row.bound) {
            own.remove(&object);
            if own.is_empty() {
                self.by_bound.remove(&row.bound);
            }
        }
    }

    /// The files that go with a session or a named lease, by number.
    pub(crate) fn of(&self, bound: Bound) -> impl Iterator<Item = ObjectId> + '_ {
        self.by_bound.get(&bound).into_iter().flatten().copied()
    }

    /// How many go with a session or a named lease.
    pub(crate) fn count_of(&self, bound: Bound) -> usize {
        self.by_bound.get(&bound).map_or(0, BTreeSet::len)
    }

    /// Whether any go with a session.
    pub(crate) fn any_of(&self, session: SessionId) -> bool {
        self.by_bound.contains_key(&Bound::Session(session))
    }

    /// With what an object goes, if it is ephemeral.
    pub(crate) fn bound(&self, object: ObjectId) -> Option<Bound> {
        self.rows.get(&object).map(|row| row.bound)
    }

    /// The session with which an object goes, if it goes with one.
    pub(crate) fn session_of(&self, object: ObjectId) -> Option<SessionId> {
        match self.bound(object)? {
            Bound::Session(session) => Some(session),
            Bound::Lease(_) => None,
        }
    }

    /// The session with which an object goes, if it goes with one and that is not `session`.
    ///
    /// Whoever reads such an object gets no cache lock with it: a cached answer would show a member long after its death, and each look
    /// that reaches the server makes it probe the owner.
    pub(crate) fn owner_besides(&self, session: SessionId, object: ObjectId) -> Option<SessionId> {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST NOT grant a cache lock on an ephemeral file to any session but its owner's.
        self.session_of(object).filter(|owner| *owner != session)
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Why so many more of a principal may not go with a session or a named lease; `None`: they may.
    pub(crate) fn limit(&self, bound: Bound, who: PrincipalId, more: usize, limits: PresenceLimits) -> Option<Limited> {
        let whose = if matches!(bound, Bound::Session(_)) { Whose::Session } else { Whose::Object };
        let (own, all) = (self.count_of(bound), self.rows.len());
        if all + more > limits.ephemerals_max {
            return Some(Limited { retry_ms: RETRY_MS, ..used_up(Limit::Ephemerals, Whose::Server, all, limits.ephemerals_max) });
        }
        let most = limits.ephemerals_per_session;
        if own + more > most {
            return Some(used_up(Limit::Ephemerals, whose, own, most));
        }
        let shared = Shared { capacity: limits.ephemerals_max, reserve: FILES_RESERVE };
        let of_all = self.by_principal.get(&who).copied().unwrap_or(0);
        let refused = who != PrincipalId::ANYBODY && !shared.admits(all, of_all, more);
        refused.then(|| Limited { whose: Whose::Principal, ..shared.limited(Limit::Ephemerals, all, of_all, more) })
    }

    /// Whether removals are left that may begin now.
    pub(crate) fn has_orphans(&self) -> bool {
        !self.orphans.is_empty() && self.removing < REMOVALS_MAX
    }

    /// Takes one of them, to begin its removal, which ends with [`Self::removal_ended`].
    pub(crate) fn next_orphan(&mut self) -> Option<ObjectId> {
        let object = if self.removing < REMOVALS_MAX { self.orphans.pop_front() } else { None };
        self.removing += usize::from(object.is_some());
        object
    }

    /// A removal has ended, well or not.
    pub(crate) fn removal_ended(&mut self) {
        self.removing -= 1;
    }

    /// The removal of a file has failed, and is begun again at `at`, which is no earlier than that of any before.
    pub(crate) fn put_off(&mut self, at: Instant, object: ObjectId) {
        self.put_off.push_back((at, object));
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

    /// A session or a named lease has ended, durably: its files are to be removed. How many they are.
    pub(crate) fn orphan(&mut self, bound: Bound) -> usize {
        let before = self.orphans.len();
        self.orphans.extend(self.by_bound.get(&bound).into_iter().flatten());
        self.orphans.len() - before
    }

    /// The files of a session go with another one from now on: object and owner of each.
    pub(crate) fn rebind(&mut self, from: SessionId, to: SessionId) -> Vec<(ObjectId, Handle)> {
        let (from, to) = (Bound::Session(from), Bound::Session(to));
        let moved: Vec<ObjectId> = self.by_bound.remove(&from).into_iter().flatten().collect();
        // No set stands empty (`any_of`), and the one that `to` has is kept: it may have been given another session's files before.
        if !moved.is_empty() {
            self.by_bound.entry(to).or_default().extend(&moved);
        }
        let rebound = moved.into_iter().filter_map(|object| {
            let row = self.rows.get_mut(&object)?;
            row.bound = to;
            Some((object, row.owner))
        });
        rebound.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_has_the_watches_of_its_sessions() {
        let mut watches = Watches::default();
        let limits = PresenceLimits::default();
        let by = |session, owner| Watcher { session: SessionId(session), owner: FlowId(owner) };
        let [first, second, other] = [by(1, 1), by(2, 1), by(3, 2)];
        for (watcher, object) in [(first, 7), (first, 7), (first, 8), (second, 7), (other, 7)] {
            watches.add(watcher, ObjectId(object), 1, limits).unwrap();
        }
        assert_eq!(watches.by_owner, BTreeMap::from([(FlowId(1), 3), (FlowId(2), 1)]));
        watches.remove(first.session, ObjectId(7));
        watches.remove(first.session, ObjectId(9));
        assert_eq!(watches.by_owner, BTreeMap::from([(FlowId(1), 2), (FlowId(2), 1)]));
        watches.end_session(second.session);
        watches.end_session(other.session);
        assert_eq!(watches.by_owner, BTreeMap::from([(FlowId(1), 1)]));
    }

    #[test]
    fn no_more_removals_begin_than_may_be_under_way() {
        let mut files = Ephemerals::default();
        let count = 2 * REMOVALS_MAX;
        (0..count as u64).for_each(|n| files.add(ObjectId(n + 1), Handle(1), Bound::Session(SessionId(7)), PrincipalId::ANYBODY));
        assert_eq!(files.orphan(Bound::Session(SessionId(7))), count);
        let begun: Vec<_> = core::iter::from_fn(|| files.next_orphan()).collect();
        assert_eq!(begun.len(), REMOVALS_MAX);
        assert!(!files.has_orphans(), "the loop does not spin for what may not begin");
        files.removal_ended();
        assert!(files.has_orphans());
        assert!(files.next_orphan().is_some());
        assert_eq!(files.next_orphan(), None);
    }
}
