//! Requests: whether one may execute, exactly once, and what a duplicate is told.
//!
//! Decides by the session's standing and its reply cache: new, executing, answered before, cancelled, or not to be executed at all
//! (section 11.2). Place in the walk: after `receive`, before `execute`. Implements `wire-spec.md` section 6.2.
//! Invariant: a nonce executes once, for ever; a duplicate is judged anew by the standing of now, whatever is kept for it (section 11.3).
//! Also here: tasks that run again, with the standing of their sessions checked at that instant.
//! Leaves to others: what a request does (`execute`), how it is answered (`answers`).

use crate::requests::{Answering, Blocked, Call, Origin, Progress, Task, TaskId, Wait};
use crate::scheduler::Intake;
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::answers::Repeatable;
use crate::server::durability::OnDurable;
use crate::server::execute::{Done, Run, Stop, bounded};
use crate::server::receive::MessageCx;
use crate::sessions::SessionKey;
use crate::stats::Dropped;
use crate::store::{BatchId, Seen};
use crate::transport::SMALL;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Admission, Stored};
use cistern_wire::{Ack, Ask, Class, Field as _, Raw, Status};
use core::hash::Hasher as _;
use log::{debug, trace};
use rustc_hash::FxHasher;

/// What the reply cache said, without the borrow.
enum Verdict {
    Fresh,
    Executing,
    Kept,
    TooLargeToKeep,
    Queued,
    Fenced,
    OtherBody,
    Drop(Dropped),
}

impl Verdict {
    #[inline]
    const fn of(admission: Admission<'_>) -> Self {
        match admission {
            Admission::Fresh => Self::Fresh,
            Admission::Executing => Self::Executing,
            Admission::Done(Stored::Bytes(_)) => Self::Kept,
            Admission::Done(Stored::Recompute) => Self::TooLargeToKeep,
            Admission::Queued => Self::Queued,
            Admission::Fenced => Self::Fenced,
            Admission::OtherBody => Self::OtherBody,
            Admission::BelowFloor => Self::Drop(Dropped::BelowFloor),
            Admission::Ahead => Self::Drop(Dropped::NonceAhead),
            Admission::BeyondWindow => Self::Drop(Dropped::BeyondWindow),
        }
    }
}

impl Server {
    /// One request.
    pub(crate) fn request(&mut self, origin: MessageCx, raw: Raw<'_>) {
        let (Some(ask), Some(session)) = (raw.ask(), self.sessions.get_mut(origin.key)) else {
            return;
        };
        let (key, nonce, packet) = (origin.key, ask.nonce, origin.packet);
        //= wire-spec.md#11-3-failure-and-ending
        //# A request that arrives in a session that is timing out MUST be answered NACK.
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST check the standing before it answers a duplicate from what it kept.
        if !session.standing().is_good() {
            if !session.cache.raise_floor(ask.floor(), &mut self.replies) {
                return self.stats.count_dropped(Dropped::NonceAhead);
            }
            return self.refuse(key, nonce, packet);
        }
        //= wire-spec.md#3-7-sizes-and-paths
        //# A `limit` below 548 MUST be read as 548.
        let limit = ask.limit.min(session.max_datagram).max(SMALL);
        let digest = digest(raw);
        let floor = session.cache.floor();
        let verdict = Verdict::of(session.cache.admit(nonce, ask.floor(), digest, &mut self.replies));
        let session = if session.cache.floor() > floor && self.tasks.len() > 0 {
            self.drop_given_up(key);
            let Some(session) = self.sessions.get_mut(key) else {
                return;
            };
            session
        } else {
            session
        };
        match verdict {
            Verdict::Fresh => {
                let entry = match &self.grace {
                    Some(_) if Self::ends_grace(raw.kind) => Intake::Now,
                    _ => self.scheduler.enter(origin.flow, raw.body.len()),
                };
                //= wire-spec.md#11-2-delivery
                //# Of a request that it sheds a server MUST keep nothing: it was never seen, is not answered, and its nonce is as it was.
                if entry == Intake::Shed && !bugs::is(Bug::F1) {
                    return self.stats.count_dropped(Dropped::Overloaded);
                }
                //= wire-spec.md#11-2-delivery
                //# The server MUST execute a request at most once, however often it arrives.
                // An agent that no longer awaits what it asked a slow store for could otherwise have any number of replies held.
                let crowded = session.cache.executing() >= session.cache.window();
                session.cache.begin(nonce, digest, packet);
                self.stats.requests += 1;
                let id = self.tasks.next_id();
                let call = self.call(id, origin, raw, nonce, limit, Answering::First);
                match entry {
                    _ if crowded => self.conclude(call, raw, Err(Status::BUSY.into()), &Seen::default()),
                    Intake::Later => self.queue_request(call, raw),
                    Intake::Now => self.start(call, raw),
                    Intake::Shed => {}
                }
            }
            Verdict::Executing => {
                self.arrived_again(key, nonce, packet, limit);
                self.stats.repeated += 1;
                //= wire-spec.md#11-2-delivery
                //# A duplicate of a request that is executing MUST be answered PENDING.
                self.pending(key, nonce, packet);
            }
            Verdict::Kept => {
                self.repeat(key, nonce, packet, limit);
            }
            Verdict::TooLargeToKeep => self.make_again(origin, ask, limit, raw),
            Verdict::Queued => {
                if let Some(message) = raw.decode() {
                    self.queued_again(origin, nonce, &message);
                }
            }
            Verdict::Fenced => self.reply_once(origin, raw, nonce, Status::ECANCELED),
            Verdict::OtherBody => {
                debug!("{}: session {} used nonce {nonce} for two requests", self.who, key.id());
                //= wire-spec.md#11-2-delivery
                //# A request under a nonce first used for another request MUST NOT be executed, and is answered NONCE_REUSED.
                self.reply_once(origin, raw, nonce, Status::NONCE_REUSED);
            }
            Verdict::Drop(reason) => {
                self.stats.count_dropped(reason);
                trace!("{}: dropped request {nonce} of session {}: {}", self.who, key.id(), reason.name());
            }
        }
    }

    /// An executing request has come again: its answer echoes the newest transmission, and fits what that one allows.
    fn arrived_again(&mut self, key: SessionKey, nonce: u64, packet: u64, limit: u16) {
        let task = self.find_task(key, nonce);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#3-7-sizes-and-paths
        //# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
        // A reply that exists, and waits for the store, answers no transmission that may allow less than the one for which it was made.
        if task.is_none() && limit < session.max_datagram {
            return;
        }
        session.cache.note_packet(nonce, packet);
        if session.cache.newest_packet(nonce) == Some(packet)
            && let Some(call) = task.and_then(|id| self.tasks.get_mut(id)).and_then(Task::call_mut)
        {
            call.limit = limit;
        }
    }

    /// A request that came now.
    fn call(&self, id: TaskId, origin: MessageCx, raw: Raw<'_>, nonce: u64, limit: u16, answering: Answering) -> Call {
        let MessageCx { key, slot, flow, who, .. } = origin;
        Call { id, key, slot, flow, who, kind: raw.kind, came_ns: self.now.boot_ns, nonce, limit, answering, progress: Progress::default() }
    }

    /// A duplicate of a read whose reply was too large to keep: reads again, and grants nothing.
    fn make_again(&mut self, origin: MessageCx, ask: Ask, limit: u16, raw: Raw<'_>) {
        let MessageCx { key, packet, .. } = origin;
        if raw.kind.class() != Some(Class::Read) {
            return self.reply_once(origin, raw, ask.nonce, Status::NONCE_REUSED);
        }
        self.stats.repeated += 1;
        let answering = Answering::Again { packet };
        if let Some(call) = self.find_task(key, ask.nonce).and_then(|id| self.tasks.get_mut(id)).and_then(Task::call_mut) {
            // It is being read for an earlier duplicate; the answer echoes the newest (section 11.1).
            (call.answering, call.limit) = (answering, limit);
            return self.pending(key, ask.nonce, packet);
        }
        let id = self.tasks.next_id();
        let call = self.call(id, origin, raw, ask.nonce, limit, answering);
        match self.scheduler.enter(origin.flow, raw.body.len()) {
            Intake::Now => self.start(call, raw),
            Intake::Later => self.queue_request(call, raw),
            Intake::Shed => self.stats.count_dropped(Dropped::Overloaded),
        }
    }

    /// Answers a transmission whose nonce executes nothing; nothing is kept.
    fn reply_once(&mut self, origin: MessageCx, raw: Raw<'_>, nonce: u64, status: Status) {
        let call = self.call(TaskId::NONE, origin, raw, nonce, SMALL, Answering::Again { packet: origin.packet });
        self.conclude(call, raw, Err(status.into()), &Seen::default());
    }

    /// Drops the tasks whose answers the agent no longer awaits: so no more are kept than the window admits.
    fn drop_given_up(&mut self, key: SessionKey) {
        let floor = self.sessions.get(key).map_or(0, |session| session.cache.floor());
        let given_up = self.tasks.requests(key, 0, floor.saturating_sub(1)).collect();
        self.discard_all(given_up);
    }

    /// Drops tasks; none has had an effect.
    pub(crate) fn discard_all(&mut self, ids: Vec<TaskId>) {
        for id in ids {
            if let Some(Task { origin: Origin::Request { call, .. }, wait }) = self.tasks.take(id) {
                if wait == Wait::Share {
                    self.scheduler.withdraw(call.flow, call.key.place, id);
                }
                self.discard(&call);
            }
        }
    }

    /// The task of a request.
    fn find_task(&self, key: SessionKey, nonce: u64) -> Option<TaskId> {
        self.tasks.requests(key, nonce, nonce).next()
    }

    /// Drops the task of a request, if it has one. It has had no effect, and never will.
    pub(crate) fn discard_request(&mut self, key: SessionKey, nonce: u64) -> bool {
        let Some(id) = self.find_task(key, nonce) else { return false };
        self.discard_all(Vec::from([id]));
        true
    }

    /// Runs a request from its start.
    fn start(&mut self, call: Call, raw: Raw<'_>) {
        let seen = Seen::default();
        let run = self.execute(call, raw, &seen);
        let replied = if run.is_ok() { self.reply_buffer.len() } else { 0 };
        self.scheduler.charge(call.flow, prices::request(raw.kind, seen.looks(), raw.body.len() + replied));
        self.conclude(call, raw, run, &seen);
    }

    /// Runs a task again from its start; a request if its session's standing and its agent still want it.
    pub(crate) fn resume(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(id) else {
            return;
        };
        if let Some(call) = task.call().copied() {
            let Some(session) = self.sessions.get(call.key) else {
                self.tasks.take(id);
                return;
            };
            if !session.standing().is_good() {
                //= wire-spec.md#11-3-failure-and-ending
                //# At D the server MUST park the session's unexecuted requests and waiting lock requests: none is executed, none is
                //# granted.
                //= wire-spec.md#11-3-failure-and-ending
                //# The server MUST check the standing at the instant at which it executes a request.
                task.wait = Wait::Standing;
                return;
            }
            if call.nonce < session.cache.floor() {
                return self.discard_all(Vec::from([id]));
            }
        }
        match self.tasks.take(id).map(|task| task.origin) {
            Some(Origin::Request { call, body }) => self.start(call, Raw { kind: call.kind, body: &body }),
            Some(Origin::RemoveEphemeral { object, progress }) => self.remove_orphan(id, object, progress),
            Some(Origin::Boot) => self.boot(),
            None => {}
        }
    }

    /// The turn of a waiting mutation has come.
    pub(crate) fn turn_came(&mut self, id: TaskId) {
        if self.tasks.get(id).is_some_and(|task| task.wait == Wait::Turn) {
            self.go_on(id);
        }
    }

    /// What a task waited for is durable.
    pub(crate) fn durable_for(&mut self, id: TaskId, batch: BatchId) {
        if self.tasks.get(id).is_some_and(|task| matches!(task.wait, Wait::Durable(waited) if waited <= batch)) {
            self.go_on(id);
        }
    }

    /// Does with a request what its run came to.
    fn conclude(&mut self, call: Call, raw: Raw<'_>, run: Run, seen: &Seen) {
        match bounded(call.progress, run) {
            Ok(Done::Silent) => {}
            Ok(Done::Reply(repeatable)) => match seen.depends_on(&self.store) {
                None => self.reply_now(call, repeatable),
                // However often a duplicate comes, one task of its nonce waits; a reply held for each would know no bound.
                Some(batch) if call.answering != Answering::First && !call.progress.settled => {
                    self.suspend_request(call, raw, Blocked::Durable(batch));
                }
                //= wire-spec.md#11-7-restart-and-recovery
                //# A message that shows an effect of a transaction MUST wait until the transaction is durable.
                Some(batch) => {
                    let reply = Box::from(self.reply_buffer.as_slice());
                    self.after_commit(batch, OnDurable::Reply { call, reply, repeatable });
                }
            },
            Err(Stop::Blocked(blocked)) => {
                let begins_to_wait = matches!(blocked, Blocked::Turn) && !call.progress.in_line;
                self.suspend_request(call, raw, blocked);
                if begins_to_wait
                    && let Some(echo) = self.sessions.get(call.key).and_then(|session| session.cache.newest_packet(call.nonce))
                {
                    self.pending(call.key, call.nonce, echo);
                }
            }
            Err(Stop::Limited(limited)) => {
                if call.progress.in_line {
                    self.locks.leave(call.id);
                }
                self.reply_buffer.clear();
                limited.put_reply(&mut self.reply_buffer);
                self.conclude(call, raw, Ok(Done::Reply(Repeatable::Changes)), seen);
            }
            Err(Stop::Failed { status, item }) => {
                if call.progress.in_line {
                    self.locks.leave(call.id);
                }
                self.put_failure(status, item);
                if matches!(status, Status::BUSY | Status::IN_GRACE) {
                    // That says nothing of what is in the store.
                    self.reply_now(call, Repeatable::Changes);
                } else {
                    self.conclude(call, raw, Ok(Done::Reply(Repeatable::Changes)), seen);
                }
            }
        }
    }

    /// Answers by what is in the reply buffer.
    pub(crate) fn reply_now(&mut self, call: Call, repeatable: Repeatable) {
        let reply = core::mem::take(&mut self.reply_buffer);
        debug_assert!(reply.len() + Ack::around(self.form()) <= usize::from(call.limit), "a reply fits the datagram that was asked for");
        self.reply(call, &reply, repeatable);
        self.reply_buffer = reply;
    }

    fn suspend_request(&mut self, call: Call, raw: Raw<'_>, blocked: Blocked) {
        trace!("{}: request {} of session {} waits: {blocked:?}", self.who, call.nonce, call.key.id());
        self.suspend(call.id, Origin::Request { call, body: Box::from(raw.body) }, blocked);
    }

    /// Keeps a task until what it waits for is there.
    pub(crate) fn suspend(&mut self, id: TaskId, origin: Origin, blocked: Blocked) {
        if let Blocked::Durable(batch) = &blocked {
            self.after_commit(*batch, OnDurable::Resume(id));
        }
        let queries = self.tasks.suspend(id, origin, blocked);
        if !queries.is_empty() {
            self.store.ask(queries);
        }
    }
}

/// A digest of what must not differ between transmissions of one request.
///
/// The kind stands in it as it is. Of the rest 56 bits are hashed without a secret: an agent can make two requests of one kind alike, and
/// is then answered for the first of them; it could not make one act in place of another kind.
fn digest(raw: Raw<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(raw.body.get(Ask::LEN..).unwrap_or_default());
    hasher.finish() << 8 | u64::from(raw.kind.code())
}
