//! A bench for the operations: the real cache, walks and tasks, a real lease and locks, and the toy server in the network's stead.
//!
//! Decides: when messages are executed and when their answers arrive; by default at once and in order. Counts messages, for most
//! claims are about how many there are. Invariant: what the bench does to the locks, the agent's protocol half would do.

use super::held::{Lease, Locks};
use super::toy::{Executed, Toy, decode};
use crate::api::{Command, Event, OpError, OpId, Output, Ownership, Submitted, Target};
use crate::cache::Cache;
use crate::call::{Answer, Outbound, TaskId, Timer, Timers};
use crate::config::CacheLimits;
use crate::tasks::Ctx;
use crate::tasks::Tasks;
use alloc::collections::VecDeque;
use alloc::string::ToString;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_wire::{Attr, Field, Kind, ObjectId, Reader, Reply};
use core::time::Duration;

pub(super) struct Bench {
    pub(super) ops: Tasks,
    pub(super) lease: Lease,
    pub(super) cache: Cache,
    pub(super) locks: Locks,
    pub(super) toy: Toy,
    pub(super) out: VecDeque<Outbound>,
    pub(super) events: VecDeque<Event>,
    pub(super) timers: Timers,
    pub(super) now: Instant,
    /// Locks that the agent gave back by its own choice, not yet known to the toy.
    pub(super) released: Vec<(u64, u64)>,
    /// Kinds of the messages that reached the toy.
    pub(super) seen: Vec<Kind>,
}

/// An answer on its way to the agent.
#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) task: TaskId,
    pub(super) call: u32,
    pub(super) reply: Vec<u8>,
}

impl Bench {
    pub(super) fn new() -> Self {
        Self::with_limits(CacheLimits::default())
    }

    pub(super) fn with_limits(limits: CacheLimits) -> Self {
        Self {
            ops: Tasks::new(),
            lease: super::held::lease(),
            cache: super::held::cache(limits),
            locks: super::held::locks(),
            toy: Toy::new(),
            out: VecDeque::new(),
            events: VecDeque::new(),
            timers: Timers::new(),
            now: super::held::NOW,
            released: Vec::new(),
            seen: Vec::new(),
        }
    }

    pub(super) fn with<R>(&mut self, f: impl FnOnce(&mut Tasks, &mut Ctx<'_>) -> R) -> R {
        let Self { ops, lease, cache, locks, out, events, timers, now, .. } = self;
        let result = f(ops, &mut Ctx { now: *now, permit: lease.permit(*now), cache, locks, out, events, timers });
        self.released.extend(super::held::given_back(&mut self.cache));
        result
    }

    pub(super) fn submit(&mut self, command: Command) -> Submitted {
        self.with(|ops, ctx| ops.submit(ctx, command))
    }

    /// Gives a command whose answer is not in the cache.
    pub(super) fn start(&mut self, command: Command) -> OpId {
        match self.submit(command) {
            Submitted::Later(op) => op,
            Submitted::Now(result) => panic!("ended at once: {result:?}"),
        }
    }

    /// Carries a command out, all messages in order.
    pub(super) fn run(&mut self, command: Command) -> Result<Output, OpError> {
        match self.submit(command) {
            Submitted::Now(result) => result,
            Submitted::Later(op) => {
                self.pump();
                self.ended(op).expect("every message was answered")
            }
        }
    }

    /// Carries a command out that must need no message.
    pub(super) fn cached(&mut self, command: Command) -> Result<Output, OpError> {
        let out = self.out.len();
        let submitted = self.submit(command.clone());
        if let Some(sent) = self.out.get(out) {
            panic!("{command:?} sends {:?}", decode(&sent.message));
        }
        match submitted {
            Submitted::Now(result) => result,
            Submitted::Later(_) => panic!("{command:?} waits for nothing"),
        }
    }

    /// How a command ended, if it has.
    pub(super) fn ended(&mut self, wanted: OpId) -> Option<Result<Output, OpError>> {
        let at = self.events.iter().position(|event| matches!(event, Event::Done { op, .. } if *op == wanted))?;
        match self.events.remove(at) {
            Some(Event::Done { result, .. }) => Some(result),
            _ => None,
        }
    }

    /// The oldest message that is out, executed; a mutation that waits for locks gets them.
    pub(super) fn execute(&mut self) -> InFlight {
        for (object, generation) in core::mem::take(&mut self.released) {
            self.toy.released(object, generation);
        }
        let Outbound { task, call, message, .. } = self.out.pop_front().expect("a message is out");
        self.seen.push(decode(&message).kind());
        loop {
            match self.toy.execute(&message) {
                Executed::Reply(reply) => return InFlight { task, call, reply },
                Executed::Waits(locks) => locks.into_iter().for_each(|(object, _)| self.lose(object)),
            }
        }
    }

    pub(super) fn deliver(&mut self, answer: &InFlight) {
        let reply = Reply::get(&mut Reader::new(&answer.reply)).expect("the toy encodes replies");
        self.tell(answer.task, answer.call, &Answer::Reply(reply));
    }

    pub(super) fn tell(&mut self, task: TaskId, call: u32, answer: &Answer<'_>) {
        self.with(|ops, ctx| ops.answer(ctx, task, call, answer));
    }

    /// Executes and answers everything, in order.
    pub(super) fn pump(&mut self) {
        while !self.out.is_empty() {
            let answer = self.execute();
            self.deliver(&answer);
        }
    }

    /// The next message is answered so, without being executed.
    pub(super) fn answer_next(&mut self, answer: &Answer<'_>) {
        let sent = self.out.pop_front().expect("a message is out");
        self.tell(sent.task, sent.call, answer);
    }

    /// The agent complies with a demand for everything on an object.
    pub(super) fn lose(&mut self, object: u64) {
        if let Some(generation) = self.toy.held.get(&object).copied() {
            super::held::demand(&mut self.cache, ObjectId(object), generation);
            self.toy.released(object, generation);
        }
    }

    /// The session ends, and another is open.
    pub(super) fn end_session(&mut self) {
        super::held::forget(&mut self.cache, &mut self.locks, self.lease.permit(super::held::NOW));
        self.ops.discard_all(&mut self.cache, &self.out);
    }

    /// Another agent changes objects, after their locks came back.
    pub(super) fn others<R>(&mut self, objects: &[u64], change: impl FnOnce(&mut Toy) -> R) -> R {
        objects.iter().for_each(|object| self.lose(*object));
        let changed = change(&mut self.toy);
        for id in objects {
            if let Some(object) = self.toy.space.objects.get_mut(id) {
                object.attr.version += 1;
            }
        }
        changed
    }

    pub(super) fn wait(&mut self, ms: u64) {
        self.now = self.now.plus(Duration::from_millis(ms));
        while let Some(timer) = self.timers.due(self.now) {
            if let Timer::CallRetry(task, call) = timer {
                self.with(|ops, ctx| ops.retry(ctx, task, call));
            }
        }
    }

    pub(super) fn sent(&self) -> usize {
        self.seen.len()
    }
}

pub(super) fn bytes(text: &str) -> Bytes {
    Bytes::from(text.to_string())
}

pub(super) fn at(path: &str) -> Target {
    Target::Path(bytes(path))
}

pub(super) const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

pub(super) fn stat(path: &str) -> Command {
    Command::Stat { target: at(path), follow: true }
}

pub(super) fn read(path: &str) -> Command {
    Command::Read { target: at(path), offset: 0, length: None }
}

pub(super) fn list(path: &str) -> Command {
    Command::List { target: at(path), detail: false }
}

pub(super) fn put(path: &str, data: &[u8]) -> Command {
    Command::Put { path: bytes(path), data: Bytes::copy_from_slice(data), owner: OWNER }
}

pub(super) fn create(path: &str) -> Command {
    Command::Create { path: bytes(path), exclusive: true, ephemeral: false, owner: OWNER }
}

pub(super) fn mkdir(path: &str) -> Command {
    Command::Mkdir { path: bytes(path), owner: OWNER }
}

pub(super) fn unlink(path: &str) -> Command {
    Command::Unlink { path: bytes(path), force: false }
}

/// The attributes in an answer.
pub(super) fn attr(result: &Result<Output, OpError>) -> Attr {
    match result {
        Ok(Output::Attr(attr) | Output::Data { attr, .. } | Output::Listing { dir: attr, .. }) => *attr,
        other => panic!("no attributes: {other:?}"),
    }
}

/// The bytes in an answer.
pub(super) fn data(result: &Result<Output, OpError>) -> &[u8] {
    match result {
        Ok(Output::Data { data, .. }) => data,
        other => panic!("no bytes: {other:?}"),
    }
}

/// The names in an answer.
pub(super) fn names(result: &Result<Output, OpError>) -> Vec<&str> {
    match result {
        Ok(Output::Listing { entries, .. }) => entries.iter().map(|entry| core::str::from_utf8(&entry.name).unwrap()).collect(),
        other => panic!("no names: {other:?}"),
    }
}
