//! Operators' lines: those that the driver is to execute, those that it executes, and answers of which pages are left.
//!
//! Decides how many there are at once, in all and of each principal, and which answer gives way to another. Invariant: a line is given out once, and one that was given out
//! counts as executed.
//! Leaves to others: who may send one and how it is answered (the machine), what it means (the driver).

use crate::requests::{Call, TaskId};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use cistern_wire::SessionId;

/// Most lines that wait for the driver or for what they change to be durable: operators are few, and each waits for its answers.
const LINES_MAX: usize = 16;
/// While there are so many, none is taken that is about the key of who is no operator: the other places are kept for operators.
const OWN_KEY_LINES_MAX: usize = 8;
/// Most of one operator; of others one.
const OPERATOR_LINES_MAX: usize = 4;
/// Most answers of which pages are left.
const ANSWERS_MAX: usize = 8;
/// Longest answer, in bytes: 10,000 sessions are some 3 MB.
pub(crate) const ANSWER_MAX: usize = 4 << 20;

/// Which line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LineId(TaskId);

/// What is kept of an answer.
#[derive(Debug)]
struct LongAnswer {
    session: SessionId,
    /// The nonce of its request.
    answer: u64,
    text: Box<str>,
}

/// All of them.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    /// Not given out, oldest first.
    waiting: VecDeque<(Call, Box<str>)>,
    /// Given out, not answered.
    executing: BTreeMap<LineId, Call>,
    /// Oldest first; one of a session.
    kept: VecDeque<LongAnswer>,
}

impl Lines {
    /// Takes a line in, if there is room for one of this principal.
    pub(crate) fn push(&mut self, call: Call, line: &str, is_operator: bool) -> bool {
        let calls = || self.waiting.iter().map(|(call, _)| call).chain(self.executing.values());
        let own = calls().filter(|other| other.who == call.who).count();
        let (all_max, own_max) = if is_operator { (LINES_MAX, OPERATOR_LINES_MAX) } else { (OWN_KEY_LINES_MAX, 1) };
        let room = calls().count() < all_max && own < own_max;
        if room {
            self.waiting.push_back((call, line.into()));
        }
        room
    }

    /// The oldest that waits; it waits no more.
    pub(crate) fn next(&mut self) -> Option<(Call, Box<str>)> {
        self.waiting.pop_front()
    }

    /// A line is given out.
    pub(crate) fn begin(&mut self, call: Call) -> LineId {
        let id = LineId(call.id);
        self.executing.insert(id, call);
        id
    }

    /// The request of a line that was given out and is answered now; `None`: its session has ended.
    pub(crate) fn end(&mut self, id: LineId) -> Option<Call> {
        self.executing.remove(&id)
    }

    /// Keeps an answer, in place of an earlier one of its session, or of the oldest of too many.
    pub(crate) fn keep(&mut self, session: SessionId, answer: u64, text: Box<str>) {
        self.kept.retain(|kept| kept.session != session);
        if self.kept.len() >= ANSWERS_MAX {
            self.kept.pop_front();
        }
        self.kept.push_back(LongAnswer { session, answer, text });
    }

    /// A kept answer of a session.
    pub(crate) fn kept(&self, session: SessionId, answer: u64) -> Option<&str> {
        self.kept.iter().find(|kept| kept.session == session && kept.answer == answer).map(|kept| &*kept.text)
    }

    /// A session has ended: nobody asks for its answers.
    pub(crate) fn end_session(&mut self, session: SessionId) {
        self.waiting.retain(|(call, _)| call.key.id() != session);
        self.executing.retain(|_, call| call.key.id() != session);
        self.kept.retain(|kept| kept.session != session);
    }
}
