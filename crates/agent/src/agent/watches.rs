//! Watches: what local users want to be told of, and what the server is asked to tell (`wire-spec.md` 11.5).
//!
//! WATCH and UNWATCH are asked one at a time for each object, and anew in each session. A watcher that was told a version is told of every
//! later one, or that nothing is certain any more.

use crate::agent::Agent;
use crate::api::{Event, OpError, Output, WatchEvent, WatchId};
use crate::believed;
use crate::call::Asker;
use crate::timer::Timer;
use crate::transport::{Lane, UNASKED};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::Question;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{ObjectId, Reply, Status, Unwatch, Watch, Watched};
use core::time::Duration;
use log::debug;

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

/// All watches of the agent.
#[derive(Debug, Default)]
pub(super) struct Watches {
    entries: BTreeMap<ObjectId, WatchEntry>,
    users: BTreeMap<WatchId, ObjectId>,
    last: u64,
    /// Whether the lease was certain when that was looked at last.
    lease_certain: bool,
    /// Whether an entry may be certain otherwise than its users think.
    changed: bool,
}

impl Watches {
    /// Whether anybody watches anything.
    pub(super) fn has_users(&self) -> bool {
        !self.users.is_empty()
    }

    /// How many objects are watched, those included of which the end is being said.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

impl Agent {
    /// A local user watches an object from now on.
    pub(super) fn begin_watch(&mut self, object: ObjectId) -> Result<Output, OpError> {
        if self.watches.entries.len() >= OBJECTS_MAX && !self.watches.entries.contains_key(&object) {
            return Err(OpError::Overloaded);
        }
        self.watches.last += 1;
        let watch = WatchId(self.watches.last);
        self.watches.users.insert(watch, object);
        let fresh = WatchEntry { users: BTreeSet::new(), state: WatchState::Unknown, version: 0, certain: false };
        let entry = self.watches.entries.entry(object).or_insert(fresh);
        entry.users.insert(watch);
        if entry.certain {
            let what = WatchEvent::Certain { version: entry.version };
            self.events.push_back(Event::Watch { watch, object, what });
        }
        self.ask_watch(object);
        Ok(Output::Watching(watch))
    }

    /// A local user watches no more. Whether it did.
    pub(super) fn end_watch(&mut self, watch: WatchId) -> bool {
        let Some(object) = self.watches.users.remove(&watch) else { return false };
        if let Some(entry) = self.watches.entries.get_mut(&object) {
            entry.users.remove(&watch);
            self.ask_watch(object);
        }
        true
    }

    /// Asks the server for what it does not do yet: to tell of an object that somebody watches, or not to any more. While it is asked
    /// something about the object, that is answered first: requests have no order.
    fn ask_watch(&mut self, object: ObjectId) {
        let in_session = self.sessions.is_open();
        let Some(entry) = self.watches.entries.get_mut(&object) else { return };
        match (entry.state, entry.users.is_empty()) {
            (WatchState::Unknown, false) if in_session => {
                entry.state = WatchState::Asked;
                self.queue.push(Lane::Lock, Asker::Watch(object), &Watch { ask: UNASKED, object }.into());
            }
            (WatchState::Unknown | WatchState::Resting, true) => {
                self.watches.entries.remove(&object);
                self.timers.cancel(Timer::Again(Asker::Watch(object)));
            }
            (WatchState::Armed, true) => {
                entry.state = WatchState::Ending;
                entry.certain = false;
                self.queue.push(Lane::Lock, Asker::Unwatch(object), &Unwatch { ask: UNASKED, object }.into());
            }
            _ => {}
        }
    }

    /// WATCH was answered.
    pub(super) fn watch_answered(&mut self, object: ObjectId, reply: &Reply<'_>) {
        let Some(entry) = self.watches.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Asked) else { return };
        match reply {
            Reply::Watched(Watched { attr }) if attr.object == object => {
                // A notice may have been faster than this answer.
                entry.version = entry.version.max(attr.version);
                entry.state = WatchState::Armed;
                self.watches.changed = true;
                self.ask_watch(object);
            }
            Reply::Failed(failed) if failed.status == Status::ESTALE => self.watched_is_gone(object),
            other => {
                debug!("{}: {object} cannot be watched now: {other:?}", self.who);
                let span = if let Reply::Failed(failed) = other { believed::pause(failed.retry_ms) } else { REST };
                entry.state = WatchState::Resting;
                self.timers.set(Timer::Again(Asker::Watch(object)), self.now.plus(span.max(REST)), Question::Waited);
                self.ask_watch(object);
            }
        }
    }

    /// The rest after an answer that took no watch is over.
    pub(super) fn watch_again(&mut self, object: ObjectId) {
        if let Some(entry) = self.watches.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Resting) {
            entry.state = WatchState::Unknown;
            self.ask_watch(object);
        }
    }

    /// UNWATCH was answered.
    pub(super) fn unwatch_answered(&mut self, object: ObjectId) {
        if let Some(entry) = self.watches.entries.get_mut(&object).filter(|entry| entry.state == WatchState::Ending) {
            entry.state = WatchState::Unknown;
            self.ask_watch(object);
        }
    }

    /// WATCH_EVENT: the object has changed, or is gone; or an ephemeral file of this agent's, watched or not, was taken away.
    pub(super) fn watched_changed(&mut self, object: ObjectId, version: u64, gone: bool) {
        if gone {
            self.sessions.ephemeral_gone(object);
        }
        let Some(entry) = self.watches.entries.get_mut(&object) else { return };
        if gone {
            if entry.state == WatchState::Ending {
                // Nobody watches it here; the answer to UNWATCH is still to come.
                return;
            }
            return self.watched_is_gone(object);
        }
        if version > entry.version {
            entry.version = version;
            if entry.certain {
                self.tell_watchers(object, WatchEvent::Changed { version });
            }
        }
    }

    /// An object is gone for good, for its number is never used again.
    fn watched_is_gone(&mut self, object: ObjectId) {
        self.tell_watchers(object, WatchEvent::Gone);
        if let Some(entry) = self.watches.entries.remove(&object) {
            self.watches.users.retain(|watch, _| !entry.users.contains(watch));
        }
        self.timers.cancel(Timer::Again(Asker::Watch(object)));
        self.sessions.ephemeral_gone(object);
    }

    /// The session is over, or is being left: the server tells nothing any more.
    pub(super) fn watches_are_over(&mut self) {
        if bugs::is(Bug::W2) {
            return;
        }
        let objects: Vec<ObjectId> = self.watches.entries.keys().copied().collect();
        for object in objects {
            if let Some(entry) = self.watches.entries.get_mut(&object) {
                entry.state = WatchState::Unknown;
                // The next session may be of a store that was restored from a copy, where versions begin anew.
                entry.version = 0;
            }
            self.timers.cancel(Timer::Again(Asker::Watch(object)));
            self.ask_watch(object);
        }
        self.watches.changed = true;
        self.tend_watches();
    }

    /// The session that opens is with another store: what was watched is not in it, whatever has its number there.
    pub(super) fn watched_is_of_another_store(&mut self) {
        for object in self.watches.entries.keys().copied().collect::<Vec<_>>() {
            self.watched_is_gone(object);
        }
    }

    /// A session is open: everything that somebody watches is asked for in it.
    pub(super) fn arm_watches(&mut self) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# In each new session the agent MUST ask for its watches anew, and tell their users the version found.
        for object in self.watches.entries.keys().copied().collect::<Vec<_>>() {
            self.ask_watch(object);
        }
    }

    /// Tells watchers what has become certain or uncertain, and sets the timer for the end of the lease.
    pub(super) fn tend_watches(&mut self) {
        let lease_certain = self.lease.certain(self.now);
        let stale = self.watches.changed || self.watches.lease_certain != lease_certain;
        self.watches.changed = false;
        self.watches.lease_certain = lease_certain;
        if stale {
            let mut told = Vec::new();
            for (object, entry) in &mut self.watches.entries {
                let certain = lease_certain && entry.state == WatchState::Armed && !entry.users.is_empty();
                if entry.certain != certain {
                    entry.certain = certain;
                    told.push((*object, if certain { WatchEvent::Certain { version: entry.version } } else { WatchEvent::Uncertain }));
                }
            }
            told.into_iter().for_each(|(object, what)| self.tell_watchers(object, what));
        }
        let until = self.lease.valid_until().filter(|_| lease_certain && self.watches.has_users());
        self.time(Timer::Watches, until, Question::LeaseOver);
    }

    fn tell_watchers(&mut self, object: ObjectId, what: WatchEvent) {
        let Some(entry) = self.watches.entries.get(&object) else { return };
        self.events.extend(entry.users.iter().map(|watch| Event::Watch { watch: *watch, object, what }));
    }
}
