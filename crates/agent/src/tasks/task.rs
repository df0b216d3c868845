//! One command that could not be answered at once: its calls, and what is done again when they fail.
//!
//! Decides: when objects are suspended and resumed around a mutation, what a lost session means for a command, when something is asked
//! again and how often. Implements `wire-spec.md` sections 7, 11.2 and 11.5. Invariant: a mutation whose outcome is not known is never
//! asked again, and its objects stay suspended until the outcome is known or the session is over.

use super::change;
use super::pages::{DirPages, LockPages, XattrPages};
use super::read::Reading;
use super::request::{self, Mutation, Request};
use super::upload::{Load, Staging, Upload, are_ended};
use crate::api::{Command, Guard, LeaseInfo, OpError, Output, RealmInfo};
use crate::cache::{Cache, View};
use crate::call::{self, Answer, Outbound, TaskId, Timer};
use crate::tasks::Ctx;
use crate::tasks::walk::{Found, NOT_AN_ANSWER, Walk};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Question};
use cistern_wire::limits::HELD_MAX;
use cistern_wire::{Expect, Fate, Generation, Held, ObjectId, Reply, Status};
use core::time::Duration;

/// How often a command begins again, from cache or by the server, when what it rested on changed under it. After this it walks by
/// the server alone, where each LOOKUP is of one instant.
pub(super) const WARM_STARTS_MAX: u32 = 4;
/// How often a command begins again at all. Only a new session each time, or objects that vanish each time, come so far.
const STARTS_MAX: u32 = 64;
/// How often a path is walked again because what it led to was gone.
const STALES_MAX: u32 = 3;
/// Shortest wait for a busy or recovering server, whatever it hints.
const RETRY_MIN: Duration = Duration::from_millis(5);

/// How a task goes on.
#[derive(Debug)]
pub(super) enum Flow {
    /// It waits for answers, or for the time to ask again.
    Wait,
    /// It is over.
    End(Result<Output, OpError>),
    /// It has become a matter of the locks: they tell the user how it ends.
    Handed,
    /// It begins again.
    Again,
}

impl Flow {
    /// The end, with what the server or the agent said instead of success.
    pub(super) const fn failed(status: Status) -> Self {
        Self::End(Err(OpError::Status(status)))
    }
}

/// What all tasks of an agent share.
#[derive(Debug)]
pub(super) struct Office {
    /// Stage numbers given out; unique in every session because they are never reused.
    pub(super) stages: u64,
    /// Largest datagram of the session, in bytes.
    pub(super) datagram: usize,
    /// Count of sessions that ended: what was suspended before an end is not suspended any more.
    pub(super) epoch: u64,
    /// Who stages something now.
    pub(super) staging: Staging,
}

/// What a task works with during one call of the agent.
pub(super) struct Desk<'a, 'c> {
    pub(super) ctx: &'a mut Ctx<'c>,
    pub(super) office: &'a mut Office,
    /// Whether answers may be taken into the cache.
    pub(super) taking: bool,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) request: Request,
    /// The agent's locks on the objects a mutation affects, named in it.
    held: Vec<Held>,
    /// Those objects, locked or not.
    suspended: Vec<ObjectId>,
    /// In which of the agent's sessions they were suspended.
    epoch: u64,
    /// The lock held on the object asked about, when it was asked.
    pub(super) covered: Option<Generation>,
}

/// Where a task stands.
#[derive(Debug)]
pub(super) enum Stage {
    /// On the way to the objects that the command names.
    Walking,
    /// One request is out, and its answer is the end.
    Asked,
    /// Contents are being read.
    Reading(Reading),
    /// A directory is being read.
    Listing(DirPages),
    /// A file is being made, to be written.
    Making,
    /// A mutation is being sent, and before it what it brings.
    Uploading(Upload),
    /// Extended attributes are being read.
    XattrPages(XattrPages),
    /// Locks are being listed.
    LockPages(LockPages),
    /// Realms are being listed.
    RealmPages(Vec<RealmInfo>),
    /// Files of named leases are being listed.
    LeasePages(Vec<LeaseInfo>),
    /// The answer to an operator's line, as far as it has come.
    AnswerPages(Vec<u8>),
}

/// A command that runs.
#[derive(Debug)]
pub(super) struct Task {
    pub(super) id: TaskId,
    pub(super) command: Command,
    pub(super) walk: Walk,
    /// Whether the walk is under way.
    pub(super) walking: bool,
    /// Where the walks so far have ended: two places, or two for each item of a batch.
    pub(super) found: Vec<Option<Found>>,
    /// The lock that guards the command's changes.
    guard: Option<Guard>,
    /// Versions on which the command's first change depends.
    expect: Vec<Expect>,
    pub(super) stage: Stage,
    calls: BTreeMap<u32, Call>,
    /// Calls that the server refused for now, each with why, and with a timer after which it is made again.
    retries: BTreeMap<u32, (Request, OpError)>,
    next_call: u32,
    /// Whether the command has only now come: it starts under the lease, or goes to the server (section 11.1).
    pub(super) new: bool,
    /// Whether the cache is passed by.
    cold: bool,
    starts: u32,
    stales: u32,
    /// Whether a mutation of this command was executed: made the file that it was about to write, say.
    changed: bool,
    /// Whether it stands in [`Staging`]: most commands never do.
    staging: bool,
    /// When the command came.
    pub(super) since: Instant,
}

impl Task {
    /// A command that has just come.
    pub(super) fn new(id: TaskId, command: Command, now: Instant) -> Self {
        let (guard, expect, command) = match command {
            Command::Expecting { guard, expect, command } => (guard, expect, *command),
            command => (None, Vec::new(), command),
        };
        Self {
            id,
            command,
            walk: Walk::new(),
            walking: false,
            found: Vec::new(),
            guard,
            expect,
            stage: Stage::Walking,
            calls: BTreeMap::new(),
            retries: BTreeMap::new(),
            next_call: 0,
            staging: false,
            new: true,
            cold: false,
            starts: 0,
            stales: 0,
            changed: false,
            since: now,
        }
    }

    /// Runs until it waits or is over.
    pub(super) fn run(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        let mut flow = self.start(desk);
        while matches!(flow, Flow::Again) {
            flow = self.again(desk);
        }
        flow
    }

    /// Takes in what became of a call.
    pub(super) fn answer(&mut self, desk: &mut Desk<'_, '_>, number: u32, answer: &Answer<'_>) -> Flow {
        self.new = false;
        // A call of an earlier start: nobody waits for it.
        let Some(call) = self.calls.remove(&number) else { return Flow::Wait };
        let mut flow = self.settled(desk, number, call, answer);
        while matches!(flow, Flow::Again) {
            flow = self.again(desk);
        }
        flow
    }

    /// Makes a call again that a busy server did not answer.
    pub(super) fn retry(&mut self, desk: &mut Desk<'_, '_>, call: u32) {
        if let Some((request, _)) = self.retries.remove(&call) {
            self.ask(desk, request);
        }
    }

    fn drop_retries(&mut self, ctx: &mut Ctx<'_>) {
        while let Some((call, _)) = self.retries.pop_first() {
            ctx.timers.cancel(Timer::CallRetry(self.id, call));
        }
    }

    /// There is room for what the task stages.
    pub(super) fn admitted(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        if matches!(self.stage, Stage::Uploading(_)) { self.next_pieces(desk) } else { Flow::Wait }
    }

    /// Stands in line to stage so much, the first stage under this number; whether it may begin now.
    pub(super) fn enter_staging(&mut self, desk: &mut Desk<'_, '_>, first: u64, stages: usize, bytes: usize) -> bool {
        self.end_stages(desk.ctx, desk.office);
        self.staging = stages > 0;
        desk.office.staging.enter(Load { task: self.id, first, stages, bytes })
    }

    /// Ends what it has staged, if it has: no mutation will.
    fn end_stages(&mut self, ctx: &mut Ctx<'_>, office: &mut Office) {
        if core::mem::take(&mut self.staging) {
            office.staging.end(self.id, ctx.out);
        }
    }

    /// The user has been told that the command is over. Gives the mutations that are still out, for their outcome must be listened to; what
    /// is staged for them ends with them.
    pub(super) fn finish_calls(mut self, ctx: &mut Ctx<'_>, office: &mut Office) -> impl Iterator<Item = (u32, Call)> {
        if !self.is_changing() {
            self.end_stages(ctx, office);
        }
        self.drop_retries(ctx);
        self.calls.into_iter().filter(|(_, call)| call.request.is_mutation())
    }

    /// A call was never sent and never will be.
    pub(super) fn withdraw(&mut self, desk: &mut Desk<'_, '_>, number: u32) {
        if let Some(call) = self.calls.remove(&number) {
            call.resume(desk);
        }
    }

    /// What the user is told when the command ends for this reason: of one that has changed something, or may have, nobody can say
    /// how far it came.
    pub(super) fn given_up(&self, why: OpError) -> OpError {
        if self.changed || self.is_changing() {
            return OpError::OutcomeUnknown;
        }
        // A server that refuses for now is there.
        let refused = self.retries.values().next().filter(|_| why == OpError::Unreachable);
        refused.map_or(why, |(_, refused)| *refused)
    }

    /// Whether something is out that changes something, and whose outcome is not known.
    fn is_changing(&self) -> bool {
        self.calls.values().any(|call| call.request.is_act())
    }

    fn again(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        self.starts += 1;
        if self.starts > STARTS_MAX {
            return Flow::End(Err(self.given_up(OpError::Unreachable)));
        }
        self.cold |= self.starts > WARM_STARTS_MAX;
        self.start(desk)
    }

    fn start(&mut self, desk: &mut Desk<'_, '_>) -> Flow {
        debug_assert!(!self.is_changing(), "a command with a mutation under way does not begin again");
        self.calls.clear();
        self.drop_retries(desk.ctx);
        self.end_stages(desk.ctx, desk.office);
        self.found.clear();
        self.found.resize(change::places(&self.command), None);
        self.walking = false;
        self.stage = Stage::Walking;
        self.resolve(desk)
    }

    /// The object is gone. A path may lead to another by now, and is walked again, by the server; a number leads nowhere.
    pub(super) fn stale(&mut self) -> Flow {
        self.stales += 1;
        if self.stales > STALES_MAX || self.names_a_number() {
            return Flow::failed(Status::ESTALE);
        }
        self.cold = true;
        Flow::Again
    }

    /// What is known, as far as this command may use it now (section 11.1).
    pub(super) fn view<'d>(&self, desk: &'d mut Desk<'_, '_>) -> View<'d> {
        let permit = desk.ctx.permit;
        //= wire-spec.md#11-1-lease
        //# The agent MUST check the end of its lease at each use of a lock or of the cache.
        //= wire-spec.md#11-1-lease
        //# From *suspect* on the agent MUST NOT start an operation under the lease, nor grant a lock locally.
        let allowed = if self.new { permit.may_start } else { permit.may_use || bugs::is(Bug::M9) };
        View { cache: desk.ctx.cache, open: allowed && !self.cold, taking: desk.taking }
    }

    /// Sends a mutation, under the guard of the command; its first depends on what it expects.
    pub(super) fn ask_change(&mut self, desk: &mut Desk<'_, '_>, change: Mutation) {
        let expect = if self.changed { Vec::new() } else { self.expect.clone() };
        self.ask(desk, Request::Change { change, guard: self.guard, expect });
    }

    /// Whether the command depends on something that only the server knows.
    pub(super) const fn is_conditional(&self) -> bool {
        self.guard.is_some() || !self.expect.is_empty()
    }

    /// Bytes that the expectations of the next mutation take.
    pub(super) const fn expect_len(&self) -> usize {
        self.expect.len() * 16
    }

    /// Sends a request. A mutation's objects are suspended from here on.
    pub(super) fn ask(&mut self, desk: &mut Desk<'_, '_>, request: Request) {
        let number = self.next_call;
        self.next_call += 1;
        let mut held = Vec::new();
        let mut suspended = Vec::new();
        if let Request::Change { change, .. } = &request {
            //= wire-spec.md#11-5-caching-and-metadata
            //# From the first transmission of a mutation until it cannot be under way any more, the agent MUST answer nothing from cache
            //# about the objects affected.
            //= wire-spec.md#11-4-locks
            //# Until it knows the outcome of a mutation the agent MUST treat the locks named in `held` as suspended.
            suspended = change.affected(desk.ctx.cache);
            desk.ctx.cache.fence(&suspended);
            for object in &suspended {
                held.extend(desk.ctx.cache.generation(*object).map(|generation| Held { object: *object, generation }));
            }
            // Those beyond are demanded back, as from anybody (section 11.4).
            held.truncate(HELD_MAX);
        }
        let covered = request.subject().and_then(|object| desk.ctx.cache.generation(object));
        let message = request.encode(&held);
        let mutation = request.is_mutation();
        desk.ctx.out.push_back(Outbound { task: self.id, call: number, message, mutation });
        self.calls.insert(number, Call { request, held, suspended, epoch: desk.office.epoch, covered });
    }

    /// A call that is out.
    pub(super) fn call_mut(&mut self, number: u32) -> Option<&mut Call> {
        self.calls.get_mut(&number)
    }

    /// Whether a call is out.
    pub(super) fn is_awaiting(&self, number: u32) -> bool {
        self.calls.contains_key(&number)
    }

    /// How many calls are out.
    pub(super) fn calls_out(&self) -> usize {
        self.calls.len()
    }

    /// Whether a call is out, or is to be made again.
    pub(super) fn is_waiting(&self) -> bool {
        !self.calls.is_empty() || !self.retries.is_empty()
    }

    /// Forgets the calls that are out: their answers say nothing to this task any more. None of them is a mutation.
    pub(super) fn drop_calls(&mut self, desk: &mut Desk<'_, '_>) {
        debug_assert!(!self.is_changing(), "what a mutation does is awaited");
        self.calls.clear();
        self.drop_retries(desk.ctx);
    }

    fn settled(&mut self, desk: &mut Desk<'_, '_>, number: u32, call: Call, answer: &Answer<'_>) -> Flow {
        if self.staging && call.request.is_mutation() && are_ended(answer) {
            self.staging = false;
            desk.office.staging.leave(self.id);
        }
        match answer {
            Answer::Reply(Reply::Failed(failed)) if matches!(failed.status, Status::BUSY | Status::IN_GRACE) => {
                call.resume(desk);
                self.ask_later(desk, number, call.request, OpError::Status(failed.status), failed.retry_ms)
            }
            Answer::Reply(Reply::Limited(limited)) if limited.retry_ms > 0 => {
                call.resume(desk);
                self.ask_later(desk, number, call.request, OpError::Limited(*limited), limited.retry_ms)
            }
            Answer::Reply(reply) | Answer::Result(Some(reply)) if call.request.is_act() && !is_outcome(reply) => {
                //= wire-spec.md#7-3-peers-that-break-the-rules
                //# A user whose mutation was answered so MUST be told that the outcome is not known.
                call.settle(desk, None);
                Flow::End(Err(OpError::OutcomeUnknown))
            }
            Answer::Reply(reply @ Reply::Limited(limited)) | Answer::Result(Some(reply @ Reply::Limited(limited))) => {
                call.settle(desk, Some(reply));
                Flow::End(Err(OpError::Limited(*limited)))
            }
            Answer::Reply(reply) => {
                self.changed |= matches!(reply, Reply::Changed(_) | Reply::Batched(_));
                call.settle(desk, Some(reply));
                self.heard(desk, &call, reply)
            }
            Answer::Result(Some(reply)) => {
                //= wire-spec.md#7-the-table-of-answers
                //# An agent MUST install nothing that a RESULT shows.
                desk.taking = false;
                self.changed |= matches!(reply, Reply::Changed(_) | Reply::Batched(_));
                call.settle(desk, Some(reply));
                self.heard(desk, &call, reply)
            }
            Answer::SessionEnded(Fate::NotExecuted) => {
                call.resume(desk);
                Flow::Again
            }
            Answer::Result(None) | Answer::SessionEnded(Fate::Executed | Fate::Unknown) => {
                //= wire-spec.md#11-2-delivery
                //# After NACK, session end or restart the agent MUST NOT by itself repeat an unanswered mutation, unless it was told "not
                //# executed".
                //= wire-spec.md#11-2-delivery
                //# A caller whose mutation ended so MUST be told that the outcome is not known.
                if !call.request.is_act() {
                    return Flow::Again;
                }
                call.settle(desk, None);
                Flow::End(Err(OpError::OutcomeUnknown))
            }
        }
    }

    /// The server asks for patience, which lasts as long as the time that commands have; without a hint there is nothing to wait for.
    fn ask_later(&mut self, desk: &mut Desk<'_, '_>, number: u32, request: Request, why: OpError, retry_ms: u32) -> Flow {
        if retry_ms == 0 {
            return Flow::End(Err(why));
        }
        let at = desk.ctx.now.plus(call::pause(retry_ms).max(RETRY_MIN));
        desk.ctx.timers.set(Timer::CallRetry(self.id, number), at, Question::Waited);
        self.retries.insert(number, (request, why));
        Flow::Wait
    }

    fn heard(&mut self, desk: &mut Desk<'_, '_>, call: &Call, reply: &Reply<'_>) -> Flow {
        if !call.request.is_answered_by(reply) {
            return Flow::failed(NOT_AN_ANSWER);
        }
        match &self.stage {
            Stage::Walking => self.heard_walking(desk, call, reply),
            Stage::Reading(_) => self.heard_reading(desk, call, reply),
            Stage::Listing(_) => self.heard_listing(desk, call, reply),
            Stage::Making => self.heard_making(desk, call, reply),
            Stage::Uploading(_) => self.heard_uploading(desk, call, reply),
            Stage::XattrPages(_) => self.heard_xattr(desk, call, reply),
            Stage::LockPages(_) => self.heard_rows(desk, reply),
            Stage::RealmPages(_) => self.heard_realms(desk, reply),
            Stage::LeasePages(_) => self.heard_leases(desk, reply),
            Stage::AnswerPages(_) => self.heard_line(desk, reply),
            Stage::Asked => match &self.command {
                Command::Stat { .. } => self.heard_stat(desk, call, reply),
                Command::ReadLink { .. } => self.heard_link(desk, call, reply),
                Command::ServerStatus | Command::Ping => self.heard_server(desk, reply),
                Command::KeepLease { .. } => self.heard_kept(reply),
                _ => self.heard_change(desk, call, reply),
            },
        }
    }
}

impl Call {
    /// The outcome is known, or will never be: what it did is taken in, and its objects are answered from cache again.
    pub(super) fn settle(&self, desk: &mut Desk<'_, '_>, reply: Option<&Reply<'_>>) {
        if let Request::Change { change, .. } = &self.request {
            match reply {
                // It did nothing.
                Some(Reply::Failed(_) | Reply::BatchFailed(_) | Reply::Limited(_)) => {}
                Some(Reply::Changed(changed)) if desk.taking => {
                    let mut view = View { cache: desk.ctx.cache, open: false, taking: true };
                    request::absorb(&mut view, change, &self.held, changed.effects);
                }
                // What it did may not be taken in, or is not known.
                _ => self.suspended.iter().for_each(|object| desk.ctx.cache.drop_changed(*object)),
            }
        }
        self.resume(desk);
    }

    /// The session in which this mutation was to be sent ended before; it will be sent in the next.
    pub(super) fn go_on(&mut self, cache: &mut Cache, epoch: u64) {
        cache.fence(&self.suspended);
        self.epoch = epoch;
    }

    fn resume(&self, desk: &mut Desk<'_, '_>) {
        if self.epoch == desk.office.epoch {
            desk.ctx.cache.unfence(&self.suspended);
        }
    }
}

/// Whether a reply says what became of a mutation, or of an operator's line.
const fn is_outcome(reply: &Reply<'_>) -> bool {
    matches!(
        reply,
        Reply::Failed(_) | Reply::Changed(_) | Reply::Batched(_) | Reply::BatchFailed(_) | Reply::Limited(_) | Reply::AdminAnswer(_)
    )
}
