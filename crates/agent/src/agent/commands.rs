//! How long commands run: the time that they have, the limits of lock requests, and what ends one before its answer.
//!
//! A command ends once. One that was never sent has changed nothing; of one whose mutation was sent nobody knows, and that mutation is asked
//! on until its outcome is known, while a read is not (`wire-spec.md` 11.2).

use crate::agent::{Agent, Waiting};
use crate::api::{Event, OpError, OpId};
use crate::call::{TaskId, Timer};
use crate::session::handshake::Handshake;
use alloc::vec::Vec;
use cistern_link::Question;
use cistern_wire::ObjectId;

impl Agent {
    /// Sets the timer of the command that has run longest.
    pub(super) fn time_commands(&mut self) {
        let oldest = self.tasks.oldest().map(|since| since.plus(self.config.give_up_after));
        self.time(Timer::GiveUp, oldest, Question::Waited);
    }

    /// Ends the commands whose time is up.
    pub(super) fn give_up_commands(&mut self) {
        while self.tasks.oldest().is_some_and(|since| self.now.waited(since.plus(self.config.give_up_after))) {
            let Some(task) = self.tasks.running().next() else { return };
            let why = self.why_no_answer();
            self.end_command(OpId(task.0), why);
        }
    }

    /// What is known of the server that does not answer.
    fn why_no_answer(&self) -> OpError {
        let refused = self.handshake.as_ref().and_then(Handshake::error);
        refused.filter(|_| self.sessions.channel().is_none()).unwrap_or(OpError::Unreachable)
    }

    /// Sets the timer of a waiting lock command: its limit, or the moment by which the server must know of it.
    pub(super) fn time_wait(&mut self, op: OpId) {
        let Some(Waiting { since, limit, .. }) = self.waits.get(&op).copied() else { return };
        let heard_by = since.plus(self.config.give_up_after);
        let heard_by = Some(heard_by).filter(|by| !self.now.waited(*by) || !self.locks.is_queued(op));
        let next = match (limit, heard_by) {
            (Some(limit), Some(by)) if by.waited(limit) => Some(limit),
            (_, Some(by)) => Some(by),
            (limit, None) => limit,
        };
        self.time(Timer::Wait(op), next, Question::Waited);
    }

    /// The session is about to be left: those who wait in line at the server lose their place, and have time to get another.
    pub(super) fn wait_anew(&mut self) {
        for op in self.waits.keys().copied().collect::<Vec<_>>() {
            if self.locks.is_queued(op)
                && let Some(waiting) = self.waits.get_mut(&op)
            {
                waiting.since = self.now;
                self.time_wait(op);
            }
        }
    }

    /// The server has answered that it cannot grant this lock for now (it is in grace, or full): who waits as long as it takes waits on.
    pub(super) fn wait_on(&mut self, object: ObjectId) {
        for op in self.locks.waiting_for(object) {
            if let Some(waiting) = self.waits.get_mut(&op).filter(|waiting| waiting.patient) {
                waiting.since = self.now;
                self.time_wait(op);
            }
        }
    }

    /// A lock command has waited long enough for something.
    pub(super) fn wait_is_over(&mut self, op: OpId) {
        let Some(Waiting { since, limit, .. }) = self.waits.get(&op).copied() else {
            // It is still on its way to the lock.
            return self.end_command(op, OpError::TimedOut);
        };
        let refused = self.locks.refused(op);
        if limit.is_some_and(|limit| self.now.waited(limit)) {
            let limited = refused.filter(|why| matches!(why, OpError::Limited(_)));
            self.end_command(op, limited.unwrap_or(OpError::TimedOut));
        } else if self.now.waited(since.plus(self.config.give_up_after)) && !self.locks.is_queued(op) {
            let why = refused.unwrap_or_else(|| self.why_no_answer());
            self.end_command(op, why);
        } else {
            self.time_wait(op);
        }
    }

    /// Ends one command, if it runs.
    pub(super) fn end_command(&mut self, op: OpId, why: OpError) {
        self.waits.remove(&op);
        self.timers.cancel(Timer::Wait(op));
        if self.locks.stop_waiting(self.permit(), op) {
            self.events.push_back(Event::Done { op, result: Err(why) });
            return;
        }
        let task = TaskId(op.0);
        if !self.tasks.is_running(task) {
            return;
        }
        // What was never sent never will be.
        let unsent: Vec<u32> = self.queue.tasks.iter().filter(|out| out.task == task).map(|out| out.call).collect();
        self.queue.tasks.retain(|out| out.task != task);
        self.with_tasks(|tasks, ctx| {
            unsent.iter().for_each(|call| tasks.withdraw(ctx, task, *call));
            tasks.give_up(ctx, task, why);
        });
        self.abandon_outcomes(Some(task));
        let reads = self.sessions.channel().map(|channel| channel.reads_of(task)).unwrap_or_default();
        reads.into_iter().for_each(|nonce| self.give_up_request(nonce));
        self.note_horizon();
    }

    /// Ends all commands: there is no session to be had, or the agent closes.
    pub(super) fn end_all_commands(&mut self, why: OpError) {
        for task in self.tasks.running().collect::<Vec<_>>() {
            self.end_command(OpId(task.0), why);
        }
        self.locks.fail_waits(self.permit(), why);
        self.settle();
    }
}
