//! Execution: what each request does, and with which reply.
//!
//! Decides the order of the steps of a mutation: plan, guard, turn, commit, leave, reply with grants. A request runs from its start as
//! often as it takes until everything it needs is in memory and its turn has come. Implements `wire-spec.md` sections 6.2 and 11.
//! Invariant: until a run has all it needs it changes nothing.
//! Leaves to others: what the operations mean (`namespace`), who may hold what (`locks`), standing and at-most-once (`requests`).

use crate::ids::{Bound, FlowId, Located, LockSlot};
use crate::locks::{LockOutcome, LockTable, Row, Turn};
use crate::namespace::staging::Stages;
use crate::namespace::{Mutation, MutationCx, Plan, PlanError, Reading, carried, staged};
use crate::principals::{Asker, Rights};
use crate::requests::{Answering, Blocked, Call, Progress};
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::answers::{Repeatable, millis};
use crate::server::leases::{LeaseChanges, check_leases};
use crate::server::long::{RECORDED_MAX, Recording};
use crate::server::presence::note_changes;
use crate::server::receive::MessageCx;
use crate::server::recovery::keep_outcome;
use crate::sessions::grace::Grace;
use crate::share::{RETRY_MS, used_up};
use crate::stats::ServedAs;
use crate::store::{ReadError, Seen};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::BATCH_MAX;
use cistern_wire::{
    Ack, Attr, BatchFailed, Bytes8, Bytes16, CacheGrant, Failed, Field as _, Granted, Kind, Limit, Limited, List, ListLocks, ListRealms,
    Lock, LockClass, LockId, LockRefused, LockRow, LockRows, LockWait, Message, ObjectId, Raw, Realm, Reply, RowState, ServerReport,
    SessionId, Stage, Status, Terms, Want, Whose,
};

/// What a LIST_LOCKS reply has besides its rows.
const ROWS_AROUND: usize = Reply::KIND_LEN + LockRows::MIN_LEN;

/// Why a run does not go on.
#[derive(Debug)]
pub(crate) enum Stop {
    /// It will, when what it waits for is there; nothing has happened.
    Blocked(Blocked),
    /// It has failed, without effect.
    Failed {
        /// Why.
        status: Status,
        /// The item of a batch by which it failed.
        item: Option<u16>,
    },
    /// It would use more than somebody may.
    Limited(Limited),
}

impl From<Limited> for Stop {
    fn from(limited: Limited) -> Self {
        Self::Limited(limited)
    }
}

impl From<Status> for Stop {
    fn from(status: Status) -> Self {
        Self::Failed { status, item: None }
    }
}

impl From<Blocked> for Stop {
    fn from(blocked: Blocked) -> Self {
        Self::Blocked(blocked)
    }
}

impl From<ReadError> for Stop {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::NotCached(queries) => Blocked::Load(queries).into(),
            ReadError::Failed(status) => status.into(),
        }
    }
}

impl From<PlanError> for Stop {
    fn from(error: PlanError) -> Self {
        match error {
            PlanError::NotCached(queries) => Blocked::Load(queries).into(),
            PlanError::Failed { status, item } => Self::Failed { status, item },
            PlanError::Limited(limited) => Self::Limited(limited),
        }
    }
}

/// How a request is answered, if it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Done {
    /// By what is in the reply buffer, when all that the run has seen is durable.
    Reply(Repeatable),
    /// Not by a reply: its session is gone, or it is queued, and told so.
    Silent,
}

/// What a run of a request came to.
pub(crate) type Run = Result<Done, Stop>;

/// What a run came to, given the rounds of loading that it has taken.
pub(crate) fn bounded<T>(progress: Progress, run: Result<T, Stop>) -> Result<T, Stop> {
    match run {
        Err(Stop::Blocked(Blocked::Load(_))) if progress.gives_up() => Err(Status::EIO.into()),
        run => run,
    }
}

impl Server {
    /// Runs an operation from its start.
    #[inline]
    pub(crate) fn execute(&mut self, call: Call, raw: Raw<'_>, seen: &Seen) -> Run {
        if let Some(batch) = self.wake_record(call.key) {
            return Err(Blocked::Durable(batch).into());
        }
        let run = match raw.kind {
            // What is asked most, without a message made of it first.
            Kind::GetAttr => raw.read(|m| Some(self.read(call, &Reading::GetAttr(*m), seen))),
            Kind::Lookup => raw.read(|m| Some(self.read(call, &Reading::Lookup(*m), seen))),
            Kind::Read => raw.read(|m| Some(self.read(call, &Reading::Read(*m), seen))),
            Kind::Lock if self.in_grace() && !bugs::is(Bug::M36) => Some(Err(Status::IN_GRACE.into())),
            Kind::Lock => raw.read(|m| Some(self.lock(call, m, seen))),
            _ => raw.decode().map(|message| self.execute_message(call, &message, seen)),
        };
        // A validated message decodes.
        run.unwrap_or(Ok(Done::Silent))
    }

    fn execute_message(&mut self, call: Call, message: &Message<'_>, seen: &Seen) -> Run {
        if let Some(reading) = Reading::of(message) {
            let run = self.read(call, &reading, seen);
            if let (Ok(_), Reading::ReadDir(_)) = (&run, &reading) {
                self.scheduler.charge(call.flow, prices::listed(self.reply_buffer.len()));
            }
            return run;
        }
        if let Some(mutation) = Mutation::of(message) {
            return self.mutate(call, &mutation, seen);
        }
        match message {
            Message::Stage(m) => self.stage(call, m),
            Message::ListLocks(m) => self.list_locks(call, m, seen),
            Message::KeepLease(m) => self.keep_lease(call, m, seen),
            Message::ListLeases(m) => self.list_leases(call, m, seen),
            Message::ListRealms(m) => self.list_realms(call, m, seen),
            Message::Admin(m) => self.admin(call, m),
            Message::Watch(m) => self.watch_object(call, m, seen),
            Message::Unwatch(m) => self.unwatch_object(call, m),
            Message::ServerStatus(_) => self.server_status(call, seen),
            Message::Reclaim(m) => self.reclaim(call, m, seen),
            Message::ReclaimComplete(m) => self.reclaim_complete(call, m, seen),
            Message::Outcome(m) => self.outcome(call, m),
            other => {
                debug_assert!(false, "{} is no request of its own", other.kind().name());
                Err(Status::UNSUPPORTED.into())
            }
        }
    }

    fn read(&mut self, call: Call, reading: &Reading<'_>, seen: &Seen) -> Run {
        let mut reply = self.scratch();
        let in_grace = self.in_grace();
        let asker = self.principals.asker(call.who);
        let room = usize::from(call.limit) - Ack::around(self.form());
        let view = self.store.view(seen);
        let (locks, ephemerals, now, session) = (&mut self.locks, &self.ephemerals, self.now, call.key.id());
        // A read that is made again for a duplicate grants nothing: the grant of the first reply may have arrived (section 11.4).
        let grants = call.answering == Answering::First && !in_grace;
        let mut owners = Vec::new();
        let grant = |attr: &Attr, want| match ephemerals.owner_besides(session, attr.object) {
            Some(owner) => {
                owners.push(owner);
                CacheGrant::NONE
            }
            None if grants => locks.cache_grant(now, call.slot, attr.into(), want),
            None => CacheGrant::NONE,
        };
        let read = self.namespace.read(&view, reading, asker, room, grant, &mut reply);
        self.looked_at(owners);
        self.reply_buffer = reply;
        read?;
        Ok(Done::Reply(Repeatable::Reads))
    }

    fn mutate(&mut self, call: Call, mutation: &Mutation<'_>, seen: &Seen) -> Run {
        let run = bounded(call.progress, self.try_mutate(call, mutation, seen));
        //= wire-spec.md#11-5-caching-and-metadata
        //# The stages that a mutation names MUST end with it, done or failed, unless it fails with BUSY, IN_GRACE, or LIMITED with a `retry_ms`.
        let comes_again = match &run {
            Err(Stop::Blocked(_) | Stop::Failed { status: Status::BUSY | Status::IN_GRACE, .. }) => true,
            Err(Stop::Limited(limited)) => limited.retry_ms > 0,
            _ => false,
        };
        if !comes_again {
            mutation.stages().for_each(|stage| self.stages.remove(call.key.id(), stage));
        }
        run
    }

    fn try_mutate(&mut self, call: Call, mutation: &Mutation<'_>, seen: &Seen) -> Run {
        let (now, session, in_grace, wall_ns) = (self.now, call.key.id(), self.in_grace(), self.wall.at(self.now));
        // Parts of the machine by themselves: a plan borrows the namespace.
        let Self {
            store,
            namespace,
            locks,
            stages,
            leases,
            ephemerals,
            watches,
            sessions,
            principals,
            grace,
            config,
            reply_buffer: reply,
            scheduler,
            ..
        } = self;
        let Some(by) = sessions.get(call.key) else { return Ok(Done::Silent) };
        let asker = principals.asker(call.who);
        let cx = MutationCx { requester: session, handle: by.handle, asker, wall_ns };
        let data = brought(stages, session, mutation)?;
        let plan = namespace.plan(&store.view(seen), mutation, &data, cx)?;
        //= wire-spec.md#11-7-restart-and-recovery
        //# In grace the server MUST do nothing but handshakes, reclaims, renewals, answers about outcomes, reads that grant nothing, and
        //# mutations of objects that the requester has reclaimed exclusively.
        // An object that goes may be locked by a session that has yet to reclaim.
        if in_grace && (plan.removes().next().is_some() || !locks.holds_all_exclusively(call.slot, plan.affected())) {
            return Err(Status::IN_GRACE.into());
        }
        let terms = mutation.terms();
        allowed(locks, grace.as_ref(), call.slot, asker, &terms, &plan).map_err(|(status, item)| {
            let item = item.filter(|_| mutation.is_batch());
            Stop::Failed { status, item }
        })?;
        let made = mutation.ephemerals();
        if made > 0
            && let Some(limited) = ephemerals.limit(Bound::Session(session), asker.who(), made, config.presence)
        {
            return Err(limited.into());
        }
        check_leases(mutation, leases, ephemerals, asker.who(), config.presence)?;
        let asked = locks.asked();
        let turn = locks.enter(now, call.id, call.slot, plan.affected(), terms.held);
        scheduler.charge(call.flow, prices::demands(locks.asked() - asked));
        match turn {
            Turn::Ready => {}
            Turn::Waiting => return Err(Blocked::Turn.into()),
            Turn::Busy => return Err(Status::BUSY.into()),
        }
        let changes_something = !plan.affected().is_empty();
        let mut view = store.view(seen);
        let applied = plan.commit(&mut view);
        // What the disk is given, which may be a whole block for the sake of a byte.
        scheduler.charge(call.flow, prices::stored(view.contents_written()));
        // Its turn ends, then the requester is granted what it wants, then it is answered.
        locks.leave(call.id);
        let changes = note_changes(&applied, (session, asker.who()), ephemerals, watches, locks, sessions, config.presence);
        let leases = LeaseChanges::of(&applied);
        // What changed nothing can as well be done again.
        if changes_something {
            reply.clear();
            applied.encode(|_| CacheGrant::NONE, reply);
            keep_outcome(store, by, call, reply);
        }
        reply.clear();
        let want = if in_grace { Want::Nothing } else { terms.want };
        let grant = |attr: &Attr| match ephemerals.owner_besides(session, attr.object) {
            Some(_) => CacheGrant::NONE,
            None => locks.cache_grant(now, call.slot, attr.into(), asker.wanted(attr, want)),
        };
        applied.encode(grant, reply);
        let (who, begun): (_, Vec<Realm>) = (asker.who(), applied.begun().filter(|_| !asker.is_anybody()).collect());
        begun.into_iter().for_each(|realm| self.own_realm(who, realm));
        self.leases_changed(leases);
        self.tell_when_durable(session, changes);
        Ok(Done::Reply(Repeatable::Changes))
    }

    fn stage(&mut self, call: Call, message: &Stage<'_>) -> Run {
        if !self.principals.asker(call.who).may_somewhere(Rights::WRITE) {
            return Err(Status::EACCES.into());
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# Contents and values of several datagrams MUST be staged, and take effect whole by one mutation.
        // What is impossible is told below.
        let end = (message.offset as usize).saturating_add(message.data.0.len()).min(message.total as usize);
        let by = (call.key.id(), call.flow);
        if let Some(limited) = self.stages.limit(by, message.stage, end) {
            return Err(limited.into());
        }
        let filled = self.stages.piece(self.now, by, message.stage, (message.total, message.offset), message.data.0)?;
        self.scheduler.charge(call.flow, prices::filled(filled));
        self.answer_with(&Reply::Done(cistern_wire::Done {}), Repeatable::Changes)
    }

    fn lock(&mut self, call: Call, message: &Lock, seen: &Seen) -> Run {
        // Apart from what the run has seen: a grant shows nothing of the object.
        let object = Seen::default();
        let asker = self.principals.asker(call.who);
        let permitted = self.namespace.permitted(&self.store.view(&object), message.object, asker, Rights::LOCK).map(Located::from);
        let of = permitted.inspect_err(|_| seen.note_all(&object))?;
        // A lock on what a crash could still take back would outlive it. It waits once: what changed the object later did not make it.
        if !call.progress.settled
            && let Some(batch) = object.depends_on(&self.store)
        {
            return Err(Blocked::Durable(batch).into());
        }
        let key = call.key;
        if self.in_grace_of(message.object) {
            return Err(Status::IN_GRACE.into());
        }
        if message.wait == LockWait::Queue {
            // Each wait ends in a notice; who receipts none of them is not given ever more of them.
            let owed = self.sessions.get(key).and_then(|session| session.notices.as_ref()).map_or(0, |notices| notices.outcomes());
            let bound = self.config.locks.waiters_per_session;
            if owed >= bound {
                return Err(Limited { retry_ms: RETRY_MS, ..used_up(Limit::Waiters, Whose::Session, owed, bound) }.into());
            }
        }
        match self.record_lock(key, message.object) {
            Recording::Done => {}
            Recording::By(batch) => return Err(Blocked::Durable(batch).into()),
            Recording::Full => return Err(used_up(Limit::Locks, Whose::Session, RECORDED_MAX, RECORDED_MAX).into()),
        }
        self.holds_less(key, None);
        let lock = LockId { object: message.object, class: LockClass::Advisory };
        let asked = self.locks.asked();
        let outcome = self.locks.lock(self.now, call.slot, call.nonce, of, message.mode, message.wait);
        self.scheduler.charge(call.flow, prices::demands(self.locks.asked() - asked));
        match outcome {
            LockOutcome::Granted { mode, generation, run } => {
                self.answer_with(&Reply::Granted(Granted { lock, mode, generation, run }), Repeatable::Changes)
            }
            LockOutcome::Refused { holder } => {
                let mut reply = self.scratch();
                Reply::LockRefused(LockRefused { lock, holder: self.holder(&holder) }).put(&mut reply);
                self.reply_buffer = reply;
                Ok(Done::Reply(Repeatable::Changes))
            }
            LockOutcome::Queued { ahead, holder } => {
                self.stats.served.count(call.kind, ServedAs::Queued, 0);
                if let Some(echo) = self.sessions.get_mut(key).and_then(|session| session.cache.queue(call.nonce)) {
                    self.queued(key, call.nonce, echo, lock, ahead, holder);
                }
                self.watch_holders(call.flow, message.object);
                Ok(Done::Silent)
            }
            LockOutcome::Deadlock => Err(Status::EDEADLK.into()),
            LockOutcome::Busy => Err(Status::BUSY.into()),
            LockOutcome::Limited(limited) => Err(limited.into()),
        }
    }

    /// A duplicate of a request that was answered QUEUED: the same answer, with what is known now. Its outcome is a notice.
    pub(crate) fn queued_again(&mut self, origin: MessageCx, nonce: u64, message: &Message<'_>) {
        let MessageCx { key, slot, flow, who, packet: echo } = origin;
        let Message::Lock(lock) = message else {
            debug_assert!(false, "only lock requests are queued");
            return;
        };
        self.stats.repeated += 1;
        if bugs::is(Bug::M25) {
            let of = Located { object: lock.object, realm: Realm::TREE };
            self.locks.lock(self.now, slot, nonce, of, lock.mode, lock.wait);
        }
        let rows = self.locks.rows(Some(lock.object), (ObjectId(0), 0), usize::MAX).list;
        self.scheduler.charge(flow, prices::control(Kind::Lock) + prices::rows(rows.len()));
        let waits = |row: &&Row| row.state == RowState::Waits;
        let ahead = rows.iter().filter(waits).take_while(|row| row.session != key).count();
        let lock = LockId { object: lock.object, class: LockClass::Advisory };
        let ended = self.sessions.get(key).and_then(|session| session.notices.as_ref()?.ended_wait(nonce)).flatten();
        let holds = ended.is_some_and(|token| self.locks.guard_is_current(slot, lock.object, token));
        //= wire-spec.md#6-4-notices
        //# A copy of a queued LOCK whose wait has ended MUST be answered QUEUED, and by one more WAIT_OVER with ECANCELED if the lock is
        //# not held without a break since the grant, and no notice about that wait is on its way.
        if !holds && !self.locks.is_pending(slot, nonce) {
            // What it was granted is given back already, perhaps unseen: whoever asks still must hear of an end.
            self.tell_over(key, nonce, lock);
        }
        //= wire-spec.md#11-9-realms-and-rights
        //# A copy of a queued LOCK that its rights no longer allow MUST be told of no holder, and of nobody ahead.
        let (seen, asker) = (Seen::default(), self.principals.asker(who));
        let is_told = self.namespace.permitted(&self.store.view(&seen), lock.object, asker, Rights::LOCK).is_ok();
        let holder = self.locks.holder_info(lock, slot).filter(|_| is_told);
        let ahead = if is_told { u32::try_from(ahead).unwrap_or(u32::MAX) } else { 0 };
        self.queued(key, nonce, echo, lock, ahead, holder);
    }

    /// Somebody began to wait for an advisory lock: each of its holders is probed in time (section 11.3).
    fn watch_holders(&mut self, flow: FlowId, object: ObjectId) {
        let rows = self.locks.rows(Some(object), (ObjectId(0), 0), usize::MAX).list;
        self.scheduler.charge(flow, prices::rows(rows.len()));
        for row in rows.iter().filter(|row| row.state == RowState::Holds) {
            self.watch(row.session);
        }
    }

    fn list_locks(&mut self, call: Call, message: &ListLocks, seen: &Seen) -> Run {
        let room = usize::from(call.limit) - Ack::around(self.form()) - ROWS_AROUND;
        let object = Some(message.object).filter(|object| object.0 != 0);
        let (rows, mut end) = self.visible_rows(call, object, (message.after_object, message.after_row), room / LockRow::MIN_LEN, seen)?;
        let view = self.store.view(seen);
        let wanted = if message.places { &rows[..] } else { &[] };
        let mut places = self.namespace.places_of(&view, wanted.iter().map(|row| row.lock.object), call.progress.gives_up())?;
        places.resize(rows.len(), Vec::new());
        let mut reply = self.scratch();
        let listed: Vec<LockRow<'_>> = rows.iter().zip(&places).map(|(row, place)| self.lock_row(row, place)).collect();
        let mut left = room;
        let fit = listed.iter().take_while(|row| {
            let len = LockRow::MIN_LEN + row.label.0.len() + row.place.0.len();
            let fits = len <= left;
            left = left.saturating_sub(len);
            fits
        });
        let shown = fit.count();
        end &= shown == listed.len();
        Reply::LockRows(LockRows { end, rows: List::of(&listed[..shown]) }).put(&mut reply);
        self.reply_buffer = reply;
        Ok(Done::Reply(Repeatable::Reads))
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

    fn list_realms(&mut self, call: Call, message: &ListRealms, seen: &Seen) -> Run {
        let mut reply = self.scratch();
        let room = usize::from(call.limit) - Ack::around(self.form());
        let asker = self.principals.asker(call.who);
        let listed = self.namespace.list_realms(&self.store.view(seen), message, asker, (room, call.progress.gives_up()), &mut reply);
        self.reply_buffer = reply;
        listed?;
        Ok(Done::Reply(Repeatable::Reads))
    }

    fn server_status(&mut self, call: Call, seen: &Seen) -> Run {
        let objects = self.namespace.objects(&self.store.view(seen));
        let mut reply = self.scratch();
        let members = self.group.as_ref().map_or_else(Vec::new, |group| {
            let room = usize::from(call.limit).saturating_sub(Ack::around(self.form()) + Reply::KIND_LEN + ServerReport::MIN_LEN);
            group.rows(self.now, room)
        });
        Reply::ServerReport(self.report(call.key, objects, millis(self.now.since(self.started)), &members)).put(&mut reply);
        self.reply_buffer = reply;
        Ok(Done::Reply(Repeatable::Reads))
    }

    pub(crate) fn answer_with(&mut self, reply: &Reply<'_>, repeatable: Repeatable) -> Run {
        self.reply_buffer.clear();
        reply.put(&mut self.reply_buffer);
        Ok(Done::Reply(repeatable))
    }

    /// Puts the reply of a request that has failed, a batch perhaps by one of its items, into the reply buffer.
    //= wire-spec.md#11-3-failure-and-ending
    //# Every refusal in a session in good standing MUST be an ACK with a status.
    pub(crate) fn put_failure(&mut self, status: Status, item: Option<u16>) {
        let retry_ms = match status {
            Status::BUSY => RETRY_MS,
            Status::IN_GRACE => self.grace_left_ms(),
            _ => 0,
        };
        self.reply_buffer.clear();
        let failed = Reply::Failed(Failed { status, retry_ms });
        item.map_or(failed, |item| Reply::BatchFailed(BatchFailed { status, item })).put(&mut self.reply_buffer);
    }

    /// The buffer in which replies are encoded, empty.
    fn scratch(&mut self) -> Vec<u8> {
        let mut reply = core::mem::take(&mut self.reply_buffer);
        reply.clear();
        reply
    }
}

/// Whether a mutation that can be done may be: its guard is current, and no advisory lock protects a name that it takes. If not, why and by
/// which of its items.
fn allowed(
    locks: &LockTable,
    grace: Option<&Grace>,
    by: LockSlot,
    asker: Asker<'_>,
    terms: &Terms<'_>,
    plan: &Plan<'_>,
) -> Result<(), (Status, Option<u16>)> {
    let guarded = terms.guard_object.0 != 0;
    //= wire-spec.md#11-4-locks
    //# A mutation whose guard is not a token of the session's present hold MUST fail with STALE_GUARD.
    if guarded && !locks.guard_is_current(by, terms.guard_object, terms.guard_generation) {
        return Err((Status::STALE_GUARD, None));
    }
    // Another session has an advisory lock on it, or may have one that it has yet to reclaim.
    let protected = |object| grace.is_some_and(|grace| grace.withholds(object)) || locks.removal_blocked(object, by);
    //= wire-spec.md#11-4-locks
    //# UNLINK, RMDIR and RENAME MUST fail with EBUSY where they would take a name from an object on which another session has an
    //# advisory lock, unless forced.
    for removal in plan.removes() {
        let forced = removal.force && asker.rights(removal.realm).has(Rights::OWN);
        if !forced && protected(removal.object) {
            return Err((if removal.force { Status::EACCES } else { Status::EBUSY }, Some(removal.item)));
        }
    }
    Ok(())
}

/// What each item of a mutation brings, from the message itself or from a stage.
fn brought<'a>(stages: &'a Stages, by: SessionId, mutation: &Mutation<'a>) -> Result<[&'a [u8]; BATCH_MAX], Stop> {
    let mut data: [&[u8]; BATCH_MAX] = [&[]; BATCH_MAX];
    for ((place, item), index) in data.iter_mut().zip(mutation.items()).zip(0..) {
        *place = match staged(&item) {
            //= wire-spec.md#11-5-caching-and-metadata
            //# A mutation that names an incomplete stage MUST fail with NOT_STAGED and change nothing.
            Some(stage) => {
                stages.contents(by, stage).map_err(|status| Stop::Failed { status, item: mutation.is_batch().then_some(index) })?
            }
            None => carried(&item),
        };
    }
    Ok(data)
}
