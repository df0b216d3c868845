//! The operations: every command that a user gives, from its first look at the cache to its end.
//!
//! Decides: which commands are answered at once from cache, which become tasks, and how the protocol half talks to them. Implements
//! `wire-spec.md` sections 6.2, 11.4 and 11.5. Invariants: every command ends exactly once; a demand is complied with at any moment, for
//! nothing that waits for the server is in hand; everything in one call of these functions is of one instant (section 11.1).

mod at_once;
mod change;
mod leases;
mod pages;
mod read;
mod request;
mod resolve;
mod task;
mod upload;
pub(crate) mod walk;

use crate::api::{Command, Event, OpError, OpId, Output, Submitted};
use crate::cache::Cache;
use crate::call::{Answer, Outbound, TaskId, Timer, Timers};
use crate::lease::Permit;
use crate::locks::Locks;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::Reply;
use cistern_wire::limits::DATAGRAM_DEFAULT;
use task::{Call, Desk, Flow, Office, Task};
use upload::{Staging, are_ended};

/// Most commands that run at once; more are refused (`OpError::Overloaded`). Far above any window, and bounded all the same.
pub(crate) const TASKS_MAX: usize = 4_096;

/// What an operation may look at and touch while it runs.
pub(crate) struct Ctx<'a> {
    /// Now.
    pub(crate) now: Instant,
    /// What the lease allows now.
    pub(crate) permit: Permit,
    /// What is known, and the locks that make it current.
    pub(crate) cache: &'a mut Cache,
    /// Advisory locks.
    pub(crate) locks: &'a mut Locks,
    /// Requests to send.
    pub(crate) out: &'a mut VecDeque<Outbound>,
    /// What users are told.
    pub(crate) events: &'a mut VecDeque<Event>,
    /// When a call is made again.
    pub(crate) timers: &'a mut Timers,
}

/// All running commands.
#[derive(Debug)]
pub(crate) struct Tasks {
    tasks: BTreeMap<TaskId, Box<Task>>,
    /// Mutations whose commands are over for their users: they suspend their objects until their outcome is known (section 11.5).
    orphans: BTreeMap<(TaskId, u32), Call>,
    office: Office,
    next: u64,
    hits: u64,
    misses: u64,
}

impl Tasks {
    pub(crate) fn new() -> Self {
        Self {
            tasks: BTreeMap::new(),
            orphans: BTreeMap::new(),
            office: Office { stages: 0, datagram: DATAGRAM_DEFAULT, epoch: 0, staging: Staging::default() },
            next: 0,
            hits: 0,
            misses: 0,
        }
    }

    /// Tells the largest datagram of the session, in bytes (WELCOME).
    pub(crate) const fn set_datagram(&mut self, bytes: usize) {
        self.office.datagram = bytes;
    }

    /// A number for a command that is not carried out here.
    pub(crate) const fn next_op(&mut self) -> OpId {
        self.next += 1;
        OpId(self.next)
    }

    /// Takes a command: answers from cache if the lease allows an operation to start and every lock needed is held, with no message
    /// and, but for what the answer itself is made of, no memory; otherwise it becomes a task of the number returned.
    pub(crate) fn submit(&mut self, ctx: &mut Ctx<'_>, command: Command) -> Submitted {
        if self.tasks.len() >= TASKS_MAX {
            return Submitted::Now(Err(OpError::Overloaded));
        }
        if let Err(status) = change::check(&command) {
            return Submitted::Now(Err(OpError::Status(status)));
        }
        let op = self.next_op();
        let reads = is_read(&command);
        let mut task = Box::new(Task::new(TaskId(op.0), command, ctx.now));
        let mut desk = Desk { ctx, office: &mut self.office, taking: true };
        let flow = task.run(&mut desk);
        task.new = false;
        if reads {
            let counter = if matches!(flow, Flow::End(_)) { &mut self.hits } else { &mut self.misses };
            *counter += 1;
        }
        match flow {
            Flow::End(result) => {
                self.rest(ctx, task);
                Submitted::Now(result)
            }
            Flow::Handed => {
                self.rest(ctx, task);
                Submitted::Later(op)
            }
            Flow::Wait | Flow::Again => {
                self.tasks.insert(task.id, task);
                Submitted::Later(op)
            }
        }
    }

    /// Tells what became of a call. Calls that nobody waits for any more are no matter.
    pub(crate) fn answer(&mut self, ctx: &mut Ctx<'_>, id: TaskId, call: u32, answer: &Answer<'_>) {
        let mut desk = Desk { ctx, office: &mut self.office, taking: true };
        if let Some(orphan) = self.orphans.remove(&(id, call)) {
            settle_orphan(&mut desk, id, &orphan, answer);
        } else if let Some(mut task) = self.tasks.remove(&id) {
            let flow = task.answer(&mut desk, call, answer);
            self.went(ctx, task, flow);
        }
        self.admit(ctx);
    }

    /// Lets those begin to stage who waited for room.
    fn admit(&mut self, ctx: &mut Ctx<'_>) {
        while let Some(id) = self.office.staging.next() {
            let Some(mut task) = self.tasks.remove(&id) else {
                self.office.staging.leave(id);
                continue;
            };
            let mut desk = Desk { ctx, office: &mut self.office, taking: true };
            let flow = task.admitted(&mut desk);
            self.went(ctx, task, flow);
        }
    }

    fn went(&mut self, ctx: &mut Ctx<'_>, task: Box<Task>, flow: Flow) {
        match flow {
            Flow::Wait | Flow::Again => {
                self.tasks.insert(task.id, task);
            }
            Flow::End(result) => self.end(ctx, task, result),
            Flow::Handed => self.rest(ctx, task),
        }
    }

    fn end(&mut self, ctx: &mut Ctx<'_>, task: Box<Task>, result: Result<Output, OpError>) {
        let op = OpId(task.id.0);
        if let Command::Lock { .. } = task.command {
            ctx.timers.cancel(Timer::Wait(op));
        }
        ctx.events.push_back(Event::Done { op, result });
        self.rest(ctx, task);
    }

    fn rest(&mut self, ctx: &mut Ctx<'_>, task: Box<Task>) {
        let id = task.id;
        self.orphans.extend(task.finish_calls(ctx, &mut self.office).map(|(number, call)| ((id, number), call)));
    }

    /// Ends a command because its time is up or the agent is closing (`why`); one whose mutation is under way, or that has done the first
    /// of several, ends as [`OpError::OutcomeUnknown`]. That mutation must be asked on, and its outcome told, or the session ended: its
    /// objects are not answered from cache before (section 11.5).
    pub(crate) fn give_up(&mut self, ctx: &mut Ctx<'_>, id: TaskId, why: OpError) {
        let Some(task) = self.tasks.remove(&id) else { return };
        let error = task.given_up(why);
        self.end(ctx, task, Err(error));
        self.admit(ctx);
    }

    /// The session ended, and the cache was told so: no mutation sent in it is under way any more. Those in `unsent` will be sent in the
    /// next session, so what they affect stays fenced.
    pub(crate) fn discard_all(&mut self, cache: &mut Cache, unsent: &VecDeque<Outbound>) {
        self.office.epoch += 1;
        self.office.staging.session_over();
        let epoch = self.office.epoch;
        let orphans = core::mem::take(&mut self.orphans);
        for (key, mut call) in orphans {
            if unsent.iter().any(|out| (out.task, out.call) == key) {
                call.go_on(cache, epoch);
                self.orphans.insert(key, call);
            } else {
                self.office.staging.leave(key.0);
            }
        }
        for out in unsent.iter().filter(|out| out.mutation) {
            if let Some(call) = self.tasks.get_mut(&out.task).and_then(|task| task.call_mut(out.call)) {
                call.go_on(cache, epoch);
            }
        }
    }

    /// These calls were sent in a session that is over, and may have been executed: what they affect stays suspended until it is known
    /// (section 11.5).
    pub(crate) fn go_on(&mut self, cache: &mut Cache, calls: impl Iterator<Item = (TaskId, u32)>) {
        let epoch = self.office.epoch;
        for (task, call) in calls {
            if let Some(call) = self.tasks.get_mut(&task).and_then(|task| task.call_mut(call)) {
                call.go_on(cache, epoch);
            }
        }
    }

    /// Whether a command that runs waits for this call.
    pub(crate) fn is_awaiting(&self, id: TaskId, call: u32) -> bool {
        self.tasks.get(&id).is_some_and(|task| task.is_awaiting(call))
    }

    /// Sends again what waited for a busy or recovering server.
    pub(crate) fn retry(&mut self, ctx: &mut Ctx<'_>, id: TaskId, call: u32) {
        let mut desk = Desk { ctx, office: &mut self.office, taking: true };
        if let Some(task) = self.tasks.get_mut(&id) {
            task.retry(&mut desk, call);
        }
    }

    /// Commands that read and were answered from cache, with no message.
    pub(crate) const fn hits(&self) -> u64 {
        self.hits
    }

    /// Commands that read and needed the server.
    #[cfg(test)]
    pub(crate) const fn misses(&self) -> u64 {
        self.misses
    }

    /// How many commands run.
    pub(crate) fn count(&self) -> usize {
        self.tasks.len()
    }

    /// Which items of a command make ephemeral files, if it is a batch that still runs.
    pub(crate) fn ephemerals_made(&self, id: TaskId) -> Vec<usize> {
        let command = self.tasks.get(&id).map(|task| &task.command);
        let Some(Command::Batch { items, .. }) = command else { return Vec::new() };
        let made = items.iter().enumerate().filter(|(_, item)| matches!(item, Command::Create { ephemeral: true, .. }));
        made.map(|(at, _)| at).collect()
    }

    /// Whether a command runs here.
    pub(crate) fn is_running(&self, id: TaskId) -> bool {
        self.tasks.contains_key(&id)
    }

    /// Since when the oldest command runs.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        self.tasks.first_key_value().map(|(_, task)| task.since)
    }

    /// A call was never sent and never will be: it has done nothing.
    pub(crate) fn withdraw(&mut self, ctx: &mut Ctx<'_>, id: TaskId, call: u32) {
        let mut desk = Desk { ctx, office: &mut self.office, taking: true };
        if let Some(task) = self.tasks.get_mut(&id) {
            task.withdraw(&mut desk, call);
        }
    }

    /// How many mutations are out whose command is over.
    pub(crate) fn unsettled(&self) -> usize {
        self.orphans.len()
    }

    /// The commands that run, oldest first.
    pub(crate) fn running(&self) -> impl Iterator<Item = TaskId> + '_ {
        self.tasks.keys().copied()
    }
}

/// Whether a command only reads what can be cached; hits and misses count these.
const fn is_read(command: &Command) -> bool {
    matches!(command, Command::Stat { .. } | Command::Read { .. } | Command::ReadLink { .. } | Command::List { .. })
}

fn settle_orphan(desk: &mut Desk<'_, '_>, id: TaskId, call: &Call, answer: &Answer<'_>) {
    if are_ended(answer) {
        desk.office.staging.leave(id);
    } else {
        desk.office.staging.end(id, desk.ctx.out);
    }
    match answer {
        Answer::Reply(reply) => call.settle(desk, Some(reply)),
        Answer::Result(reply) => {
            desk.taking = false;
            call.settle(desk, reply.as_ref());
        }
        Answer::SessionEnded(_) => call.settle(desk, None::<&Reply<'_>>),
    }
}

#[cfg(test)]
mod tests;
