//! Execution: what each request does, and with which reply.
//!
//! Decides the order of the steps of a mutation: plan, guard, turn, apply, leave, grant, reply. Place in the walk: after `requests`,
//! before `answers`; runs an operation from its start, as often as it takes until everything it needs is in memory and its turn has
//! come. Implements `wire-spec.md` sections 6.2 and 11. Invariant: until a run has all it needs it changes nothing.
//! Leaves to others: what the operations mean (`namespace`), who may hold what (`locks`), standing and at-most-once (`requests`).

use crate::answers::{AROUND_REPLY, Repeatable, millis};
use crate::dispatch::Raw;
use crate::locks::{Extended, LockOutcome, Row, Turn};
use crate::long::Recording;
use crate::namespace::{Mutation, Places, Plan, Reading, Step, carried, staged};
use crate::parked::{Answering, Job};
use crate::server::Server;
use crate::sessions::Key;
use crate::stage::Stages;
use crate::stats::Fared;
use crate::store::{BatchId, Query, Seen};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::BATCH_MAX;
use cistern_wire::{
    BatchFailed, Bytes8, Bytes16, CacheGrant, Done, ExtendRun, Failed, Field as _, Granted, Handle, Kind, List, ListLocks, Lock, LockClass,
    LockId, LockRefused, LockRow, LockRows, LockWait, Message, ObjectId, Reply, RowState, SessionId, Stage, Status, Terms, Want,
};

/// When an agent that met a bound should try again, in milliseconds: longer than a busy moment, shorter than anybody's patience.
const BUSY_RETRY_MS: u32 = 100;
/// Longest path of an object in a row of LIST_LOCKS, in bytes.
const PLACE_MAX: usize = 255;
/// After so many rounds of loading what still lacks of it cannot be read: it has at most 127 names, each a round for object and entry.
const PLACE_LOADS_MAX: u16 = 255;
/// What a LIST_LOCKS reply has besides its rows (kind, end, count), and the least that a row has (all but label and place).
const ROWS_AROUND: usize = 4;
const ROW_MIN: usize = 47;

/// What a run of an operation came to.
#[derive(Debug, Default)]
pub(crate) enum Outcome {
    /// It needs no reply: its session is gone, or it is queued, and told so.
    #[default]
    Silent,
    /// Its reply is in the reply buffer, and may leave when all that the run has seen is durable.
    Reply(Repeatable),
    /// Its reply is in the reply buffer, and shows nothing of what the run has seen.
    Independent,
    /// Nothing has happened: it needs these values.
    Load(Vec<Query>),
    /// As `Load`, and it keeps its place in the queues of the lock table.
    LoadInTurn(Vec<Query>),
    /// Nothing has happened: its turn comes later.
    Turn,
    /// Nothing has happened: what it looks at is not durable before this batch.
    After(BatchId),
}

impl Server {
    /// Runs an operation from its start.
    pub(crate) fn execute(&mut self, job: Job, raw: Raw<'_>, seen: &Seen) -> Outcome {
        match raw.kind {
            // What is asked most, without a message made of it first.
            Kind::GetAttr => raw.read(|m| self.read(job, &Reading::GetAttr(*m), seen)),
            Kind::Lookup => raw.read(|m| self.read(job, &Reading::Lookup(*m), seen)),
            Kind::Read => raw.read(|m| self.read(job, &Reading::Read(*m), seen)),
            Kind::Lock | Kind::ExtendRun if self.in_grace() && !bugs::is(Bug::M36) => self.refuse_in_grace(job),
            Kind::Lock => raw.read(|m| self.lock(job, m, seen)),
            Kind::ExtendRun => raw.read(|m| self.extend_run(job, m)),
            _ => raw.decode().map(|message| self.execute_message(job, &message, seen)).unwrap_or_default(),
        }
    }

    fn execute_message(&mut self, job: Job, message: &Message<'_>, seen: &Seen) -> Outcome {
        if let Some(reading) = Reading::of(message) {
            return self.read(job, &reading, seen);
        }
        if let Some(mutation) = Mutation::of(message) {
            return self.mutate(job, &mutation, seen);
        }
        match message {
            Message::Stage(m) => self.stage(job, m),
            Message::ListLocks(m) => self.list_locks(job, m, seen),
            Message::Watch(m) => self.watch_object(job, m, seen),
            Message::Unwatch(m) => self.unwatch_object(job, m),
            Message::ServerStatus(_) => self.server_status(job, seen),
            Message::Reclaim(m) => self.reclaim(job, m, seen),
            Message::ReclaimComplete(m) => self.reclaim_complete(job, m, seen),
            Message::Outcome(m) => self.outcome(job, m),
            other => {
                debug_assert!(false, "{} is no request of its own", other.kind().name());
                self.fail_request(Status::UNSUPPORTED)
            }
        }
    }

    fn read(&mut self, job: Job, reading: &Reading<'_>, seen: &Seen) -> Outcome {
        let mut reply = self.scratch();
        let in_grace = self.in_grace();
        let view = self.overlay.view(seen);
        let (locks, ephemerals, now, session) = (&mut self.locks, &self.ephemerals, self.now, job.key.id());
        // A read that is made again for a duplicate grants nothing: the grant of the first reply may have arrived (R65).
        let grants = job.answering == Answering::First && !in_grace;
        let mut owners = Vec::new();
        let grant = |object, want| match ephemerals.owner_besides(session, object) {
            Some(owner) => {
                owners.push(owner);
                CacheGrant::NONE
            }
            None if grants => locks.cache_grant(now, session, object, want),
            None => CacheGrant::NONE,
        };
        let room = usize::from(job.limit) - AROUND_REPLY;
        let step = self.namespace.read(&view, reading, room, grant, &mut reply);
        self.looked_at(owners);
        self.reply_buffer = reply;
        match step {
            Step::Done(()) => Outcome::Reply(Repeatable::Reads),
            Step::Missing(queries) => Outcome::Load(queries),
            Step::Failed(status) => self.fail_request(status),
        }
    }

    fn mutate(&mut self, job: Job, mutation: &Mutation<'_>, seen: &Seen) -> Outcome {
        let session = job.key.id();
        let data = match brought(&self.stages, session, mutation) {
            Ok(data) => data,
            //= wire-spec.md#11-5-caching-and-metadata
            //# A mutation that names a stage of which a piece is missing MUST fail with NOT_STAGED and change nothing.
            Err((status, item)) => return self.leave_failed_by(job, mutation, status, Some(item).filter(|_| mutation.is_batch())),
        };
        self.namespace.act_for(session, self.sessions.get(job.key).map_or(Handle(0), |session| session.handle));
        let plan = match self.namespace.plan(&self.overlay.view(seen), mutation, &data) {
            Step::Done(plan) => plan,
            Step::Missing(queries) => return Outcome::Load(queries),
            Step::Failed(status) => return self.leave_failed_by(job, mutation, status, self.namespace.failed_item()),
        };
        // An object that goes may be locked by a session that has yet to reclaim.
        let known = || plan.removes().next().is_none() && self.locks.all_exclusive(session, plan.affected());
        //= wire-spec.md#11-7-restart-and-recovery
        //# In grace the server MUST do nothing but handshakes, reclaims, renewals, answers about outcomes, reads that grant nothing, and
        //# mutations of objects that the requester has reclaimed exclusively.
        if self.in_grace() && !known() {
            return self.refuse_in_grace(job);
        }
        let terms = mutation.terms();
        if let Some((status, item)) = self.forbidden(job.key, &terms, &plan) {
            return self.leave_failed_by(job, mutation, status, item.filter(|_| mutation.is_batch()));
        }
        let ephemerals = mutation.ephemerals();
        if ephemerals > 0 && !self.has_room_for_ephemerals(session, ephemerals) {
            return self.leave_failed_by(job, mutation, Status::BUSY, None);
        }
        match self.locks.mutation_enter(self.now, job.id.ticket(), session, plan.affected(), terms.held) {
            Turn::Ready => {}
            Turn::Waiting => return Outcome::Turn,
            Turn::Busy => return self.leave_failed_by(job, mutation, Status::BUSY, None),
        }
        let entered = Job { entered: true, ..job };
        let mut view = self.overlay.view(seen);
        // Gathered again: the lock table was changed in between, the stages were not.
        let data = brought(&self.stages, session, mutation).unwrap_or([&[]; BATCH_MAX]);
        match self.namespace.apply(&mut view, mutation, &data, self.wall.at(self.now)) {
            Step::Done(plan) => self.mutated(entered, mutation, &terms, &plan),
            Step::Missing(queries) => Outcome::LoadInTurn(queries),
            Step::Failed(status) => self.leave_failed_by(entered, mutation, status, self.namespace.failed_item()),
        }
    }

    /// Why a mutation that could be done may not be: its guard is stale (R73), or an advisory lock protects a name that it takes (R74), and by
    /// which of its items.
    fn forbidden(&self, key: Key, terms: &Terms<'_>, plan: &Plan) -> Option<(Status, Option<u16>)> {
        let guarded = terms.guard_object.0 != 0;
        //= wire-spec.md#11-4-locks
        //# A mutation whose guard is not a token of the session's present hold of the lock MUST fail with STALE_GUARD.
        if guarded && !self.locks.guard_current(key.id(), terms.guard_object, terms.guard_generation) {
            return Some((Status::STALE_GUARD, None));
        }
        //= wire-spec.md#11-4-locks
        //# UNLINK, RMDIR and RENAME MUST fail with EBUSY where they would take a name from an object on which another session has an
        //# advisory lock, unless forced.
        let mut protected = plan.removes().filter(|removal| !removal.force && self.protected(removal.object, key));
        protected.next().map(|removal| (Status::EBUSY, Some(removal.item)))
    }

    /// Whether another session has an advisory lock on an object, or may have one that it has yet to reclaim.
    fn protected(&self, object: ObjectId, by: Key) -> bool {
        self.in_grace_of(object) || self.locks.unlink_blocked(object, by.id())
    }

    /// A mutation was executed: its turn ends, then the requester is granted what it wants, then it is answered.
    fn mutated(&mut self, job: Job, mutation: &Mutation<'_>, terms: &Terms<'_>, plan: &Plan) -> Outcome {
        let (now, session) = (self.now, job.key.id());
        self.locks.mutation_leave(job.id.ticket());
        self.note_changes();
        self.end_stages(session, mutation);
        let mut reply = self.scratch();
        // What changed nothing can as well be done again.
        if !plan.affected().is_empty() {
            if mutation.is_batch() {
                self.namespace.batched(&mut reply);
            } else {
                self.namespace.changed(Want::Nothing, |_, _| CacheGrant::NONE, &mut reply);
            }
            self.keep_outcome(job, &reply);
            reply.clear();
        }
        let want = if self.in_grace() { Want::Nothing } else { terms.want };
        if mutation.is_batch() {
            self.namespace.batched(&mut reply);
        } else {
            let (locks, ephemerals) = (&mut self.locks, &self.ephemerals);
            let grant = |object, want| match ephemerals.owner_besides(session, object) {
                Some(_) => CacheGrant::NONE,
                None => locks.cache_grant(now, session, object, want),
            };
            self.namespace.changed(want, grant, &mut reply);
        }
        self.reply_buffer = reply;
        Outcome::Reply(Repeatable::Changes)
    }

    /// A mutation failed without effect, a batch by this item; its place in the queues, if it had one, is free.
    fn leave_failed_by(&mut self, job: Job, mutation: &Mutation<'_>, status: Status, item: Option<u16>) -> Outcome {
        if job.entered {
            self.locks.mutation_leave(job.id.ticket());
        }
        // One that met a bound is asked again, with the same stages.
        if status != Status::BUSY {
            self.end_stages(job.key.id(), mutation);
        }
        match item {
            Some(item) => self.answer_with(&Reply::BatchFailed(BatchFailed { status, item }), Repeatable::Changes),
            None => self.fail_request(status),
        }
    }

    fn end_stages(&mut self, session: SessionId, mutation: &Mutation<'_>) {
        //= wire-spec.md#11-5-caching-and-metadata
        //# The stages that a mutation names MUST end with it, also when it fails, unless it fails with BUSY or IN_GRACE.
        for stage in mutation.stages() {
            self.stages.remove(session, stage);
        }
    }

    fn stage(&mut self, job: Job, message: &Stage<'_>) -> Outcome {
        //= wire-spec.md#11-5-caching-and-metadata
        //# Contents and values that need several datagrams MUST be staged, and take effect whole by one mutation.
        let taken = self.stages.piece(self.now, job.key.id(), message.stage, message.total, message.offset, message.data.0);
        match taken {
            Ok(()) => self.answer_with(&Reply::Done(Done {}), Repeatable::Changes),
            Err(status) => self.fail_request(status),
        }
    }

    fn lock(&mut self, job: Job, message: &Lock, seen: &Seen) -> Outcome {
        // Apart from what the run has seen: a grant shows nothing of the object.
        let object = Seen::default();
        match self.namespace.exists(&self.overlay.view(&object), message.object) {
            Step::Missing(queries) => return Outcome::Load(queries),
            Step::Failed(status) => {
                seen.note_all(&object);
                return self.fail_request(status);
            }
            Step::Done(()) => {}
        }
        // A lock on what a crash could still take back would outlive it. It waits once: what changed the object later did not make it.
        if !job.settled
            && let Some(batch) = object.depends_on(&self.overlay)
        {
            return Outcome::After(batch);
        }
        let key = job.key;
        if self.in_grace_of(message.object) {
            return self.refuse_in_grace(job);
        }
        // Each wait ends in a notice; who receipts none of them is not given ever more of them.
        let owed = self.sessions.get(key).and_then(|session| session.outbox.as_ref()).map_or(0, |outbox| outbox.outcomes());
        if message.wait == LockWait::Queue && owed >= self.config.locks.waiters_per_session {
            return self.fail_request(Status::BUSY);
        }
        match self.record_lock(key, message.object) {
            Recording::Done => {}
            Recording::By(batch) => return Outcome::After(batch),
            Recording::Full => return self.fail_request(Status::BUSY),
        }
        self.long.note(key.id());
        let lock = LockId { object: message.object, class: LockClass::Advisory };
        match self.locks.lock(self.now, key.id(), job.nonce, message.object, message.mode, message.wait) {
            LockOutcome::Granted { mode, generation, run } => {
                self.answer_with(&Reply::Granted(Granted { lock, mode, generation, run }), Repeatable::Changes)
            }
            LockOutcome::Refused { holder } => {
                let mut reply = self.scratch();
                Reply::LockRefused(LockRefused { lock, holder: self.holder(&holder) }).put(&mut reply);
                self.reply_buffer = reply;
                Outcome::Reply(Repeatable::Changes)
            }
            LockOutcome::Queued { ahead, holder } => {
                self.stats.served.count(job.asked, Fared::Queued, 0);
                if let Some(echo) = self.sessions.get_mut(key).and_then(|session| session.cache.queue(job.nonce)) {
                    self.queued(key, job.nonce, echo, lock, ahead, holder);
                }
                self.watch_holders(message.object);
                Outcome::Silent
            }
            LockOutcome::Deadlock => self.fail_request(Status::EDEADLK),
            LockOutcome::Busy => self.fail_request(Status::BUSY),
        }
    }

    /// A duplicate of a request that was answered QUEUED: the same answer, with what is known now. Its outcome is a notice.
    pub(crate) fn queued_again(&mut self, key: Key, nonce: u64, echo: u64, message: &Message<'_>) {
        let Message::Lock(lock) = message else {
            debug_assert!(false, "only lock requests are queued");
            return;
        };
        self.stats.repeated += 1;
        if bugs::is(Bug::M25) {
            self.locks.lock(self.now, key.id(), nonce, lock.object, lock.mode, lock.wait);
        }
        let (rows, _) = self.locks.rows(Some(lock.object), (ObjectId(0), 0), usize::MAX);
        let waits = |row: &&Row| row.state == RowState::Waits;
        let ahead = rows.iter().filter(waits).take_while(|row| row.session != key.id()).count();
        let lock = LockId { object: lock.object, class: LockClass::Advisory };
        if !self.locks.is_pending(key.id(), nonce) {
            // It waits no more, and what it was granted is given back already, perhaps unseen: whoever asks still must hear of an end.
            self.tell_over(key, nonce, lock);
        }
        let holder = self.locks.holder_info(lock, key.id());
        self.queued(key, nonce, echo, lock, u32::try_from(ahead).unwrap_or(u32::MAX), holder);
    }

    /// Somebody began to wait for an advisory lock: each of its holders is probed in time (R30).
    fn watch_holders(&mut self, object: ObjectId) {
        let (rows, _) = self.locks.rows(Some(object), (ObjectId(0), 0), usize::MAX);
        for row in rows.iter().filter(|row| row.state == RowState::Holds) {
            self.watch(row.session);
        }
    }

    fn extend_run(&mut self, job: Job, message: &ExtendRun) -> Outcome {
        let lock = message.lock;
        match self.locks.extend_run(self.now, job.key.id(), job.nonce, lock, message.generation) {
            Extended::Granted { mode, generation, run } => {
                self.answer_with(&Reply::Granted(Granted { lock, mode, generation, run }), Repeatable::Changes)
            }
            Extended::NotHeld => self.fail_request(Status::NOT_HELD),
            Extended::Demanded => self.fail_request(Status::EAGAIN),
            Extended::Busy => self.fail_request(Status::BUSY),
        }
    }

    fn list_locks(&mut self, job: Job, message: &ListLocks, seen: &Seen) -> Outcome {
        let room = usize::from(job.limit) - AROUND_REPLY - ROWS_AROUND;
        let object = Some(message.object).filter(|object| object.0 != 0);
        let (rows, mut end) = self.locks.rows(object, (message.after_object, message.after_row), room / ROW_MIN);
        let view = self.overlay.view(seen);
        let (mut places, mut missing) = (Vec::with_capacity(rows.len()), Vec::new());
        let mut known = Places::new();
        for row in &rows {
            if !message.places {
                places.push(Vec::new());
                continue;
            }
            match self.namespace.place(&view, &mut known, row.lock.object, PLACE_MAX) {
                Step::Done(place) => places.push(place),
                Step::Missing(queries) if job.loads < PLACE_LOADS_MAX => missing.extend(queries),
                Step::Missing(_) | Step::Failed(_) => places.push(Vec::new()),
            }
        }
        if !missing.is_empty() {
            return Outcome::Load(missing);
        }
        let mut reply = self.scratch();
        let listed: Vec<LockRow<'_>> = rows.iter().zip(&places).map(|(row, place)| self.lock_row(row, place)).collect();
        let mut left = room;
        let fit = listed.iter().take_while(|row| {
            let len = ROW_MIN + row.label.0.len() + row.place.0.len();
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        });
        let shown = fit.count();
        end &= shown == listed.len();
        Reply::LockRows(LockRows { end, rows: List::of(&listed[..shown]) }).put(&mut reply);
        self.reply_buffer = reply;
        Outcome::Reply(Repeatable::Reads)
    }

    fn lock_row<'s>(&'s self, row: &Row, place: &'s [u8]) -> LockRow<'s> {
        let holder = self.holder(row);
        LockRow {
            lock: row.lock,
            state: row.state,
            mode: row.mode,
            generation: row.generation,
            label: Bytes8(holder.label.0),
            handle: holder.handle,
            since_ms: holder.since_ms,
            standing: holder.standing,
            bound_ms: holder.bound_ms,
            place: Bytes16(place),
        }
    }

    fn server_status(&mut self, job: Job, seen: &Seen) -> Outcome {
        let objects = self.namespace.objects(&self.overlay.view(seen));
        let report = self.report(job.key, objects, millis(self.now.since(self.started)));
        self.answer_with(&Reply::ServerReport(report), Repeatable::Reads)
    }

    pub(crate) fn answer_with(&mut self, reply: &Reply<'_>, repeatable: Repeatable) -> Outcome {
        self.reply_buffer.clear();
        reply.put(&mut self.reply_buffer);
        Outcome::Reply(repeatable)
    }

    //= wire-spec.md#11-3-failure-and-ending
    //# Every refusal in a session in good standing MUST be an ACK with a status.
    pub(crate) fn fail_request(&mut self, status: Status) -> Outcome {
        let retry_ms = if status == Status::BUSY { BUSY_RETRY_MS } else { 0 };
        let reply = self.answer_with(&Reply::Failed(Failed { status, retry_ms }), Repeatable::Changes);
        // A bound that was met says nothing of the store.
        if status == Status::BUSY { Outcome::Independent } else { reply }
    }

    /// The buffer in which replies are encoded, empty.
    fn scratch(&mut self) -> Vec<u8> {
        let mut reply = core::mem::take(&mut self.reply_buffer);
        reply.clear();
        reply
    }
}

/// What each item of a mutation brings, from the message itself or from a stage; or why not, and which item.
fn brought<'a>(stages: &'a Stages, session: SessionId, mutation: &Mutation<'a>) -> Result<[&'a [u8]; BATCH_MAX], (Status, u16)> {
    let mut data: [&[u8]; BATCH_MAX] = [&[]; BATCH_MAX];
    for ((place, item), index) in data.iter_mut().zip(mutation.items()).zip(0..) {
        *place = match staged(&item) {
            Some(stage) => stages.contents(session, stage).map_err(|status| (status, index))?,
            None => carried(&item),
        };
    }
    Ok(data)
}
