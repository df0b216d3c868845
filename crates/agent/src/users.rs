//! What local users are told beside the ends of their commands: holders of the lease that covers their locks, watchers of changes.
//!
//! All holders are told in one pass, in the order of their grants, as soon as the lease is seen to have changed its phase: before anything
//! else in every call of the agent (`Agent::act`), and when an answer renews the lease before anything is granted under it. So all of them
//! know the same, *uncertain* is never skipped, and a lock granted now is certain like all others.
//!
//! WATCH and UNWATCH are asked one at a time for each object, and anew in each session. A watcher that was told a version is told of every
//! later one, or that nothing is certain any more (`wire-spec.md` 11.5).

use crate::api::{Event, HolderId, LockEvent, OpError, Phase, WatchEvent, WatchId};
use crate::call;
use crate::lease::Lease;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Limited, ObjectId, Reply, Status, Watched};
use core::time::Duration;
use log::{debug, warn};

/// What is to be known of the lease that covers all locks, the better the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    /// There is nobody to tell.
    Nobody,
    /// The locks are certain.
    Certain,
    /// Their holders should end.
    Suspect,
    /// They must not be used.
    Uncertain,
}

/// What the holders of locks were told last.
#[derive(Debug)]
pub(crate) struct HoldersTold(Told);

impl HoldersTold {
    pub(crate) const fn nothing() -> Self {
        Self(Told::Nobody)
    }

    /// Whether there was nobody to tell anything.
    pub(crate) fn is_nobody(&self) -> bool {
        self.0 == Told::Nobody
    }

    /// Whether they were told that their locks must not be used.
    pub(crate) fn is_uncertain(&self) -> bool {
        self.0 == Told::Uncertain
    }

    /// Whether they were told anything but that their locks are certain.
    pub(crate) fn is_warned(&self) -> bool {
        self.0 > Told::Certain
    }

    /// Tells the holders of locks what has changed for them.
    pub(crate) fn lease_changed(
        &mut self,
        now: Instant,
        lease: &Lease,
        holders: &BTreeMap<HolderId, ObjectId>,
        events: &mut VecDeque<Event>,
    ) {
        let told = if holders.is_empty() {
            Told::Nobody
        } else if !lease.certain(now) {
            Told::Uncertain
        } else if lease.phase(now) >= Phase::Suspect {
            Told::Suspect
        } else {
            Told::Certain
        };
        // Whoever came since there was nobody was granted its lock as certain.
        let before = core::mem::replace(&mut self.0, told).max(Told::Certain);
        if before != told && told != Told::Nobody {
            // Without an end of the lease nothing is certain, and none is told.
            let news = news(before, told, lease.valid_until().unwrap_or(now));
            events.reserve(holders.len());
            for (&holder, &object) in holders {
                events.extend(news.into_iter().flatten().map(|what| Event::Lock { holder, object, what }));
            }
        }
    }
}

/// What a holder is told, in order, when another thing holds than it knows.
fn news(knows: Told, holds: Told, valid_until: Instant) -> [Option<LockEvent>; 2] {
    match holds {
        //= wire-spec.md#11-3-failure-and-ending
        //# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
        Told::Uncertain => [Some(LockEvent::Uncertain), None],
        //= wire-spec.md#11-3-failure-and-ending
        //# When a renewing answer revives the lease the agent MUST tell each holder that the lock is certain again, under the same token.
        Told::Suspect if knows == Told::Uncertain => [Some(LockEvent::Certain { valid_until }), Some(LockEvent::Suspect { valid_until })],
        Told::Suspect => [Some(LockEvent::Suspect { valid_until }), None],
        Told::Certain | Told::Nobody => [Some(LockEvent::Certain { valid_until }), None],
    }
}

/// Most objects watched at a time: as many as a server lets one session watch by default.
const OBJECTS_MAX: usize = 4_096;
/// Least time before a server that could not take a watch is asked again.
const REST: Duration = Duration::from_secs(1);

/// How far the server is with a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchState {
    /// It knows nothing of it.
    Unknown,
    /// WATCH is to be sent, or was.
    Asked,
    /// WATCH could not be taken; it is asked again after a rest.
    Resting,
    /// It tells.
    Armed,
    /// UNWATCH is to be sent, or was.
    Ending,
}

#[derive(Debug)]
struct WatchEntry {
    users: BTreeSet<WatchId>,
    state: WatchState,
    /// The newest version heard of in this session; 0: none.
    version: u64,
    /// Whether the users count on being told.
    certain: bool,
}

/// What a change of the watches leads to.
#[derive(Debug)]
pub(crate) enum WatchEffect {
    /// Ask the server to tell of this object.
    Watch(ObjectId),
    /// Ask it to tell no more.
    Unwatch(ObjectId),
    /// Call [`Watches::rested`] after this span.
    Rest(ObjectId, Duration),
    /// Do not.
    RestNoMore(ObjectId),
    /// The object is gone for good.
    Gone(ObjectId),
    /// Tell a user.
    Tell(Event),
}

/// All watches of the agent.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    /// There is a session in which something can be asked.
    in_session: bool,
    entries: BTreeMap<ObjectId, WatchEntry>,
    users: BTreeMap<WatchId, ObjectId>,
    last: u64,
    /// Whether the lease was certain when that was looked at last.
    lease_certain: bool,
    /// Whether an entry may be certain otherwise than its users think.
    changed: bool,
    effects: VecDeque<WatchEffect>,
}

impl Watches {
    /// What the last change leads to, in order.
    pub(crate) fn poll_effect(&mut self) -> Option<WatchEffect> {
        self.effects.pop_front()
    }

    /// Whether anybody watches anything.
    pub(crate) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// How many objects are watched, those included of which the end is being said.
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// A local user watches an object from now on.
    pub(crate) fn begin(&mut self, object: ObjectId) -> Result<WatchId, OpError> {
        if self.entries.len() >= OBJECTS_MAX && !self.entries.contains_key(&object) {
            return Err(OpError::Overloaded);
        }
        self.last += 1;
        let watch = WatchId(self.last);
        self.users.insert(watch, object);
        let fresh = WatchEntry { users: BTreeSet::new(), state: WatchState::Unknown, version: 0, certain: false };
        let entry = self.entries.entry(object).or_insert(fresh);
        entry.users.insert(watch);
        if entry.certain {
            let what = WatchEvent::Certain { version: entry.version };
            self.effects.push_back(WatchEffect::Tell(Event::Watch { watch, object, what }));
        }
        self.ask(object);
        Ok(watch)
    }

    /// A local user watches no more. Whether it did.
    pub(crate) fn end(&mut self, watch: WatchId) -> bool {
        let Some(object) = self.users.remove(&watch) else { return false };
        if let Some(entry) = self.entries.get_mut(&object) {
            entry.users.remove(&watch);
            self.ask(object);
        }
        true
    }

    /// Asks the server for what it does not do yet: to tell of an object that somebody watches, or not to any more. While it is asked
    /// something about the object, that is answered first: requests have no order.
    fn ask(&mut self, object: ObjectId) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        match (entry.state, entry.users.is_empty()) {
            (WatchState::Unknown, false) if self.in_session => {
                entry.state = WatchState::Asked;
                self.effects.push_back(WatchEffect::Watch(object));
            }
            (WatchState::Unknown | WatchState::Resting, true) => {
                self.entries.remove(&object);
                self.effects.push_back(WatchEffect::RestNoMore(object));
            }
            (WatchState::Armed, true) => {
                entry.state = WatchState::Ending;
                entry.certain = false;
                self.effects.push_back(WatchEffect::Unwatch(object));
            }
            _ => {}
        }
    }

    /// WATCH was answered.
    pub(crate) fn answered(&mut self, object: ObjectId, reply: &Reply<'_>) {
        let Some(entry) = self.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Asked) else { return };
        match reply {
            Reply::Watched(Watched { attr }) if attr.object == object => {
                // A notice may have been faster than this answer.
                entry.version = entry.version.max(attr.version);
                entry.state = WatchState::Armed;
                self.changed = true;
                self.ask(object);
            }
            Reply::Failed(failed) if failed.status == Status::ESTALE => self.gone(object),
            other => {
                let span = match other {
                    Reply::Limited(limited) => {
                        let Limited { limit, whose, used, bound, .. } = limited;
                        warn!("{object} cannot be watched now: {used} of {bound} {limit} of the {whose} are used");
                        call::pause(limited.retry_ms)
                    }
                    Reply::Failed(failed) => call::pause(failed.retry_ms),
                    _ => REST,
                };
                debug!("{object} cannot be watched now: {other:?}");
                entry.state = WatchState::Resting;
                self.effects.push_back(WatchEffect::Rest(object, span.max(REST)));
                self.ask(object);
            }
        }
    }

    /// The rest after an answer that took no watch is over.
    pub(crate) fn rested(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Resting) {
            entry.state = WatchState::Unknown;
            self.ask(object);
        }
    }

    /// UNWATCH was answered.
    pub(crate) fn unwatched(&mut self, object: ObjectId) {
        if let Some(entry) = self.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Ending) {
            entry.state = WatchState::Unknown;
            self.ask(object);
        }
    }

    /// WATCH_EVENT: the object has changed, or is gone.
    pub(crate) fn on_event(&mut self, object: ObjectId, version: u64, gone: bool) {
        let Some(entry) = self.entries.get_mut(&object) else { return };
        if gone {
            if entry.state == WatchState::Ending {
                // Nobody watches it here; the answer to UNWATCH is still to come.
                return;
            }
            return self.gone(object);
        }
        if version > entry.version {
            entry.version = version;
            if entry.certain {
                self.tell_watchers(object, WatchEvent::Changed { version });
            }
        }
    }

    /// An object is gone for good, for its number is never used again.
    fn gone(&mut self, object: ObjectId) {
        self.tell_watchers(object, WatchEvent::Gone);
        if let Some(entry) = self.entries.remove(&object) {
            self.users.retain(|watch, _| !entry.users.contains(watch));
        }
        self.effects.extend([WatchEffect::RestNoMore(object), WatchEffect::Gone(object)]);
    }

    /// The session is over, or is being left: the server tells nothing any more.
    pub(crate) fn session_over(&mut self) {
        self.in_session = false;
        if bugs::is(Bug::W2) {
            return;
        }
        let objects: Vec<ObjectId> = self.entries.keys().copied().collect();
        for object in objects {
            if let Some(entry) = self.entries.get_mut(&object) {
                entry.state = WatchState::Unknown;
                // The next session may be of a store that was restored from a copy, where versions begin anew.
                entry.version = 0;
            }
            self.ask(object);
        }
        self.changed = true;
    }

    /// The session that opens is with another store: what was watched is not in it, whatever has its number there.
    pub(crate) fn lose_all(&mut self) {
        for object in self.entries.keys().copied().collect::<Vec<_>>() {
            self.gone(object);
        }
    }

    /// A session is open: everything that somebody watches is asked for in it.
    pub(crate) fn session_opened(&mut self) {
        self.in_session = true;
        //= wire-spec.md#11-5-caching-and-metadata
        //# In each new session the agent MUST ask for its watches anew, and tell their users the version found.
        for object in self.entries.keys().copied().collect::<Vec<_>>() {
            self.ask(object);
        }
    }

    /// Tells watchers what has become certain or uncertain.
    pub(crate) fn lease_changed(&mut self, lease_certain: bool) {
        let stale = self.changed || self.lease_certain != lease_certain;
        self.changed = false;
        self.lease_certain = lease_certain;
        if stale {
            let mut told = Vec::new();
            for (object, entry) in &mut self.entries {
                let certain = lease_certain && entry.state == WatchState::Armed && !entry.users.is_empty();
                if entry.certain != certain {
                    entry.certain = certain;
                    told.push((*object, if certain { WatchEvent::Certain { version: entry.version } } else { WatchEvent::Uncertain }));
                }
            }
            told.into_iter().for_each(|(object, what)| self.tell_watchers(object, what));
        }
    }

    fn tell_watchers(&mut self, object: ObjectId, what: WatchEvent) {
        let Some(entry) = self.entries.get(&object) else { return };
        self.effects.extend(entry.users.iter().map(|watch| WatchEffect::Tell(Event::Watch { watch: *watch, object, what })));
    }
}
