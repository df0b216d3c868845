//! What waits for the store: replies, new sessions and ends that would reveal what a crash could still take back (section 11.7).
//!
//! Decides that each leaves when its batch is durable, in the order in which they came to wait. Place in the walk: beside the loop;
//! the driver takes work for the store after each turn and brings its answers before the next.
//! Invariant: nothing held here reaches anybody before its batch is durable; nothing that reveals no transaction waits (keep-alives).
//! After a failed write nothing is answered any more.
//! Leaves to others: what is held (`answers`, `opening`, `lifecycle`), the engine (`cistern-store`).

use crate::ids::{Bound, Owner};
use crate::presence::Change;
use crate::principals::PrincipalId;
use crate::requests::{Call, TaskId};
use crate::server::answers::Repeatable;
use crate::server::join_session::JoinAsked;
use crate::server::rights::Withdrawn;
use crate::server::{Phase, Server};
use crate::sessions::SessionKey;
use crate::sessions::standing::Event;
use crate::store::{BatchId, Counter, Loaded, StoreEvent, StoreWork};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{ObjectId, SessionId};
use log::{debug, error, info, warn};

/// What is done when a batch is durable.
#[derive(Debug)]
pub(crate) enum OnDurable {
    /// A reply that rests on the batch.
    Reply {
        /// Of this request.
        call: Call,
        /// Encoded.
        reply: Box<[u8]>,
        /// What its duplicates may get.
        repeatable: Repeatable,
    },
    /// A task that shows what the batch has.
    Resume(TaskId),
    /// A session's record: what is made in it may leave.
    Opened(SessionKey),
    /// A key that has joined.
    Joined(JoinAsked, PrincipalId),
    /// A session's end: its locks may be freed (section 11.3).
    Ended(SessionKey),
    /// A named lease's end: what is left of its files may be removed (section 11.11).
    LeaseEnded(ObjectId),
    /// A block of tokens.
    Tokens(u64),
    /// The start of the server (section 11.7).
    Started,
    /// The end of grace: all sessions that did not come back have ended before.
    GraceOver,
    /// A principal's key was withdrawn: its sessions end by D.
    Revoked(PrincipalId),
    /// Changes of objects that are watched.
    Changed(SessionId, Vec<Change>),
}

impl Server {
    /// Does something when `batch` is durable.
    pub(crate) fn after_commit(&mut self, batch: BatchId, then: OnDurable) {
        if let OnDurable::Reply { call, reply, repeatable } = &then
            && bugs::is(Bug::M40)
        {
            return self.reply(*call, reply, *repeatable);
        }
        self.after_commit.push(batch, then);
    }

    /// Takes the next work for the store; the driver calls it after each turn until it gives `None`, and hands batches to the
    /// store in the order in which they come. All writes of one turn are one batch, or, if they are many, a few, cut between steps.
    pub fn poll_effect(&mut self) -> Option<StoreWork> {
        if self.is_over() {
            return None;
        }
        if let Some(queries) = self.store.poll_questions() {
            return Some(StoreWork::Load(queries));
        }
        // Until the store has told how far tokens were given out, a block would begin where an earlier start has been (section 11.4).
        if matches!(self.phase, Phase::Recording | Phase::Serving)
            && let Some(up_to) = self.locks.tokens_wanted()
        {
            self.store.set_counter(Counter::Tokens, up_to);
            let batch = self.store.open_batch();
            self.after_commit(batch, OnDurable::Tokens(up_to));
        }
        let batch = self.store.seal()?;
        let bytes = batch.writes.iter().map(|(key, value)| key.encoded_len() + value.as_ref().map_or(0, Bytes::len)).sum();
        self.stats.commits.handed_over(batch.id, self.now.boot_ns, batch.writes.len(), bytes);
        Some(StoreWork::Persist(batch))
    }

    /// Keys written and not handed over: a driver that has many may call [`Self::poll_effect`] within a turn, between two datagrams, so that
    /// the store begins with a first part while the machine makes the rest.
    #[must_use]
    pub fn pending_writes(&self) -> usize {
        self.store.pending()
    }

    /// Takes the store's word. `now` is read when the word is taken.
    pub fn store_event(&mut self, now: Instant, event: StoreEvent) {
        self.step(now, |server| match event {
            _ if server.is_over() => {}
            StoreEvent::Loaded(loaded) => server.loaded(loaded),
            StoreEvent::Durable(batch) => server.durable(batch),
            StoreEvent::Room(room) => server.room(room),
            StoreEvent::Broken(_) if bugs::is(Bug::M41) => server.durable(BatchId::MAX),
            StoreEvent::Broken(what) => server.store_failed(&what),
        });
    }

    fn loaded(&mut self, loaded: Loaded) {
        let query = loaded.query.clone();
        if !self.store.loaded(loaded) {
            warn!("{}: the store holds something that cannot be read: {query:?}; run `cisternd check` on the stopped store", self.who);
        }
        for id in self.tasks.answered(&query) {
            self.go_on(id);
        }
    }

    fn durable(&mut self, batch: BatchId) {
        debug!("{}: batch {batch} is durable", self.who);
        self.store.durable(batch);
        self.stats.commits.durable(batch, self.now.boot_ns);
        //= wire-spec.md#11-7-restart-and-recovery
        //# A message that shows an effect of a transaction MUST wait until the transaction is durable.
        while let Some(due) = self.after_commit.pop(batch) {
            for then in due {
                match then {
                    OnDurable::Reply { call, reply, repeatable } => self.reply(call, &reply, repeatable),
                    OnDurable::Resume(id) => self.durable_for(id, batch),
                    OnDurable::Opened(key) => self.recorded(key),
                    OnDurable::Joined(asked, who) => self.tell_joined(asked, who),
                    OnDurable::Ended(key) => {
                        self.change(key, Event::Durable);
                    }
                    OnDurable::LeaseEnded(lease) => self.left_files(Bound::Lease(lease)),
                    OnDurable::Tokens(up_to) => self.locks.tokens_durable(self.now, up_to),
                    OnDurable::Started => self.started(),
                    OnDurable::GraceOver => self.grace_over(),
                    OnDurable::Revoked(who) => self.withdrawn(who, Withdrawn::Key, Owner::Server),
                    OnDurable::Changed(by, changes) => self.tell_watchers(by, changes),
                }
            }
        }
        // Whoever waited for a session that has ended goes on in this very turn, unless it held very many locks.
        self.free_some();
    }

    /// The store is about to be full, or is so no more.
    fn room(&mut self, room: bool) {
        if self.namespace.has_room() == room {
            return;
        }
        if room {
            info!("{}: the store has room again: changes are executed as before", self.who);
        } else {
            warn!(
                "{}: the store has no room left: only reads, locks and what takes something away go on; remove files, or give it more",
                self.who
            );
        }
        self.namespace.set_room(room);
    }

    /// A write or sync failed: nothing that the server would say can be relied on any more.
    fn store_failed(&mut self, what: &str) {
        error!("{}: the store failed, and the server stops answering: {what}; look at its disk before it is started again", self.who);
        //= wire-spec.md#11-7-restart-and-recovery
        //# After a write or a sync of the store has failed the server MUST stop.
        self.phase = Phase::Failed;
        self.failure = Some(String::from(what));
    }

    /// Whether datagrams are answered: all was read that the start needs, and the start itself is durable.
    #[must_use]
    pub fn is_serving(&self) -> bool {
        self.phase == Phase::Serving
    }

    /// Why the server has stopped answering, if it has: the driver then ends it (section 11.7).
    #[must_use]
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }
}
