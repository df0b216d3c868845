//! Who could be using an exclusive advisory lock: every scripted agent by the strictest reading of what it was told, so that two at one
//! time are the server's mistake whatever the agents did.
//!
//! An agent's lease ends τ after it sent the newest transmission that a renewing answer echoed (section 11.1); it may use what it was
//! granted and has neither given back nor disowned, until then, or until it is told that its session is over.

use super::world::Got;
use alloc::collections::{BTreeMap, BTreeSet};
use cistern_link::Instant;
use cistern_wire::{Generation, LockClass, LockId, Message, Mode, Reply, SessionId};
use core::time::Duration;

#[derive(Default)]
pub(super) struct Exclusion {
    lease: Duration,
    sent: BTreeMap<(SessionId, u64), Instant>,
    ends: BTreeMap<SessionId, Instant>,
    held: BTreeMap<(LockId, SessionId), Generation>,
    /// Newest generation given back or disowned.
    gone: BTreeMap<(LockId, SessionId), Generation>,
    over: BTreeSet<SessionId>,
    /// How often a lock went from one session to another.
    pub(super) passed: u64,
}

impl Exclusion {
    pub(super) fn new(lease: Duration) -> Self {
        Self { lease, ..Self::default() }
    }

    pub(super) fn sent(&mut self, session: SessionId, packet: u64, now: Instant) {
        self.sent.insert((session, packet), now);
    }

    /// A session was opened by a HELLO sent at `now`.
    pub(super) fn opened(&mut self, session: SessionId, now: Instant) {
        self.ends.insert(session, now.plus(self.lease));
    }

    pub(super) fn gave_back(&mut self, session: SessionId, lock: LockId, generation: Generation) {
        let gone = self.gone.entry((lock, session)).or_default();
        *gone = generation.max(*gone);
        if self.held.get(&(lock, session)).is_some_and(|held| *held <= generation) {
            self.held.remove(&(lock, session));
        }
    }

    /// The agent uses nothing of the session any more.
    pub(super) fn over(&mut self, session: SessionId) {
        self.over.insert(session);
        self.held.retain(|(_, of), _| *of != session);
    }

    pub(super) fn got(&mut self, got: &Got) {
        let (session, message) = (got.session, got.message());
        let echo = match message {
            Message::Ack(m) => Some(m.echo),
            Message::Pending(m) => Some(m.echo),
            Message::Queued(m) => Some(m.echo),
            Message::Alive(m) => Some(m.echo),
            Message::Released(m) => Some(m.echo),
            Message::Cancelled(m) => Some(m.echo),
            _ => None,
        };
        assert!(echo.is_some() == message.kind().renews() || matches!(message, Message::Opened(_)), "{message:?}");
        if let Some(sent) = echo.and_then(|echo| self.sent.get(&(session, echo))).filter(|_| !self.over.contains(&session)) {
            let end = sent.plus(self.lease);
            let known = self.ends.entry(session).or_insert(end);
            *known = end.max(*known);
        }
        match message {
            Message::Nack(_) | Message::Ended(_) => self.over(session),
            Message::Grant(m) if m.mode == Mode::Exclusive => self.granted(session, m.lock, m.generation, got.at),
            Message::Ack(ack) => match ack.reply {
                Reply::Granted(m) if m.mode == Mode::Exclusive => self.granted(session, m.lock, m.generation, got.at),
                _ => {}
            },
            _ => {}
        }
    }

    fn granted(&mut self, session: SessionId, lock: LockId, generation: Generation, at: Instant) {
        let gone = self.gone.get(&(lock, session)).is_some_and(|gone| *gone >= generation);
        if lock.class != LockClass::Advisory || gone || self.over.contains(&session) {
            return;
        }
        // A copy of a grant, or of one before it, says nothing new, and may be read later than what ended it elsewhere.
        if self.held.get(&(lock, session)).is_some_and(|held| *held >= generation) {
            return;
        }
        let others: alloc::vec::Vec<_> =
            self.held.range((lock, SessionId(0))..=(lock, SessionId(u64::MAX))).filter(|held| held.0.1 != session).collect();
        for ((_, other), theirs) in &others {
            let valid = self.ends.get(other).is_some_and(|end| !at.lease_over(*end));
            assert!(!valid, "{lock}: generation {generation} of {session}, while {other} may use {theirs}");
        }
        self.passed += others.len() as u64;
        self.held.insert((lock, session), generation);
    }
}
