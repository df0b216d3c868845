//! Answers to requests: ACK, PENDING, QUEUED, RESULT, NACK, each with its echo bound here and never again (section 11.1).
//!
//! Decides which of them a request gets at the moment at which its answer exists: the session's standing now, not when the request
//! came. Place in the walk: after `execute` or the store's word that a batch is durable, before `transmit`. Implements
//! `wire-spec.md` sections 6.5 and 7. Invariant: a renewing answer is produced only in good standing and echoes a packet that was
//! received in good standing (section 11.3); "executed" is said only of what is durable.
//! Leaves to others: executing, sending.

use crate::config::Config;
use crate::locks::Row;
use crate::requests::{Answering, Call};
use crate::server::Server;
use crate::sessions::SessionKey;
use crate::sessions::session::Session;
use crate::sessions::standing::{Event, Standing};
use crate::stats::{Dropped, ServedAs, Stats};
use crate::transport::SMALL;
use crate::transport::lanes::{Travel, Urgency};
use alloc::vec::Vec;
use cistern_link::Stored;
use cistern_wire::{
    Ack, Bytes8, CacheGrant, Changed, Effect, Fate, Field as _, Handle, Holder, Kind, List, LockId, Message, Mode, Nack, NackReason,
    Pending, Queued, Reader, Reply, RowState,
};
use core::time::Duration;

/// A read's reply up to this size is kept for its duplicates; a larger one is made again, so that an idle session stays small.
const KEPT_READ_MAX: usize = 128;

/// The holder of a lock whose holder is not known.
const NOBODY: Holder<'static> =
    Holder { label: Bytes8(b""), handle: Handle(0), mode: Mode::Shared, since_ms: 0, standing: cistern_wire::Standing::Good, bound_ms: 0 };

/// Whether running a request again changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repeatable {
    /// It only reads: a reply too large to keep is made again.
    Reads,
    /// It changes something: its reply is kept.
    Changes,
}

impl Server {
    /// The request is executing: says so to a duplicate, or to the first transmission when a lock is waited for.
    pub(crate) fn pending(&mut self, key: SessionKey, nonce: u64, echo: u64) {
        self.push_urgent(key, &Message::Pending(Pending { nonce, echo }));
    }

    /// The request's reply exists and may be shown: keeps it and answers, as the session's standing is now.
    pub(crate) fn reply(&mut self, call: Call, reply: &[u8], repeatable: Repeatable) {
        let Self { sessions, replies, stats, transport, config, now, tenure, .. } = self;
        let (Some(certain), Some(session)) = (tenure.certain(*now), sessions.get_mut(call.key)) else {
            return;
        };
        //= wire-spec.md#11-1-lease
        //# The server MUST choose the echo when its application produces the answer.
        //= wire-spec.md#11-1-lease
        //# An echo MUST be the number of a received transmission that carried the very message answered.
        let echo = match call.answering {
            Answering::Again { packet } => Some(packet),
            Answering::First => {
                let waited = now.boot_ns.saturating_sub(call.came_ns);
                stats.served.count(call.kind, ServedAs::told(reply), waited);
                //= wire-spec.md#7-the-table-of-answers
                //# An answer that retires a nonce MUST be kept for duplicates of its request.
                //= wire-spec.md#11-2-delivery
                //# The reply to a read MAY be made anew for a duplicate, and then grants nothing.
                let kept = repeatable == Repeatable::Changes || reply.len() <= KEPT_READ_MAX;
                let stored = if kept { Stored::Bytes(replies.keep(reply)) } else { Stored::Recompute };
                session.cache.finish(call.nonce, stored)
            }
        };
        // Without an echo the agent has said that it no longer waits.
        let Some(echo) = echo else {
            return;
        };
        match session.standing() {
            Standing::Good => {
                if has_room(session, config, stats) {
                    session.push(call.key, certain, transport, ack(call.limit), |bytes| Ack::put_around(call.nonce, echo, reply, bytes));
                }
            }
            // Executed before D, durable after it.
            //= wire-spec.md#11-3-failure-and-ending
            //# The outcome of a request executed before D MUST be sent after D as RESULT, if at all.
            Standing::TimingOut { .. } => self.result(call.key, call.nonce, reply),
            Standing::Recorded { .. } | Standing::Ending { .. } | Standing::Ended { .. } => {}
        }
    }

    /// Answers a duplicate by the reply that is kept; gives false if that must be made again.
    pub(crate) fn repeat(&mut self, key: SessionKey, nonce: u64, echo: u64, limit: u16) -> bool {
        let Self { sessions, stats, transport, config, now, tenure, .. } = self;
        let (Some(certain), Some(session)) = (tenure.certain(*now), sessions.get_mut(key)) else {
            return true;
        };
        if !has_room(session, config, stats) {
            return true;
        }
        let Some(Stored::Bytes(reply)) = session.cache.stored(nonce) else {
            return false;
        };
        //= wire-spec.md#11-2-delivery
        //# A duplicate of an answered request MUST get the same answer, with its own packet number as echo.
        //= wire-spec.md#11-4-locks
        //# The kept answer to a lock request MUST repeat its grant, and never make a new one.
        // As `Session::push` does; the reply is the session's own.
        session.lanes.push(transport.pool(), ack(limit), |bytes| Ack::put_around(nonce, echo, reply, bytes));
        session.renewed(certain);
        transport.line_up(key, &mut session.in_line);
        stats.repeated += 1;
        true
    }

    /// The lock request waits in line: says so, for the first time or to a duplicate.
    pub(crate) fn queued(&mut self, key: SessionKey, nonce: u64, echo: u64, lock: LockId, ahead: u32, holder: Option<Row>) {
        let holder = holder.map_or(NOBODY, |row| self.holder(&row));
        //= wire-spec.md#11-2-delivery
        //# A LOCK that has to wait for other holders MUST be answered QUEUED.
        let message = Message::Queued(Queued { nonce, echo, lock, ahead, holder }).to_bytes();
        let travel = Travel { kind: Kind::Queued, urgency: Urgency::Urgent, limit: SMALL };
        self.push(key, travel, |bytes| bytes.extend_from_slice(&message));
        self.watch(key);
    }

    /// A holder of a lock, as other agents are told of it.
    pub(crate) fn holder(&self, row: &Row) -> Holder<'_> {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST name a session to other agents by handle and label alone, never by its id or its agent's identity.
        let since_ms = millis(self.now.since(row.since));
        //= wire-spec.md#11-3-failure-and-ending
        //# Whoever is told of a holder MUST be told when its locks are freed at the latest if it is gone: what is left of its wait if it is
        //# timing out, else the probe period, Td' and T.
        let bound = |session: &Session| match session.standing() {
            Standing::Good if row.state == RowState::Holds => Some(self.config.failover_bound(session.lease())),
            standing => standing.bound(self.now),
        };
        match self.sessions.get(row.session).filter(|session| session.is_live()) {
            Some(session) => Holder {
                label: Bytes8(&session.label),
                handle: session.handle,
                mode: row.mode,
                since_ms,
                standing: session.standing().told(),
                bound_ms: bound(session).map_or(0, |bound| millis(bound + Duration::from_nanos(999_999)).max(1)),
            },
            None => Holder { mode: row.mode, since_ms, ..NOBODY },
        }
    }

    /// Refuses a request of a session that is not in good standing, and says what became of it (section 11.3).
    pub(crate) fn refuse(&mut self, key: SessionKey, nonce: u64, echo: u64) {
        // After a NACK nothing of the session is taken up again: what is parked never executes (section 11.3).
        self.discard_request(key, nonce);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#11-3-failure-and-ending
        //# A NACK MUST say whether its request was executed, was not and never will be, or that this is not known.
        //= wire-spec.md#11-3-failure-and-ending
        //# A request of which the server has said "not executed" MUST NOT be executed afterwards.
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST NOT say "executed" before the effects of the request are durable.
        let fate = fate(session.cache.fence(nonce));
        self.nack(key, nonce, echo, fate);
        if fate == Fate::Executed
            && let Some(Stored::Bytes(reply)) = self.sessions.get(key).and_then(|session| session.cache.stored(nonce))
        {
            let reply = reply.to_vec();
            self.result(key, nonce, &reply);
        }
    }

    /// Appends a NACK. From here on the agent may have discarded everything: there is no way back for the session (section 11.3).
    pub(crate) fn nack(&mut self, key: SessionKey, nonce: u64, echo: u64, fate: Fate) {
        //= wire-spec.md#11-3-failure-and-ending
        //# A NACK MUST mean that its session is timing out or has ended, and nothing else.
        assert!(!self.is_good(key), "a NACK in good standing would make the agent discard what it holds (section 11.3)");
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST NOT say that a session has ended before its end is durable.
        // When it is, `strangers` answers.
        self.push_urgent(key, &Message::Nack(Nack { nonce, echo, reason: NackReason::TimingOut, fate }));
        // If its end has begun, there was no way back any more.
        if self.sessions.get(key).is_some_and(|session| session.standing().takes(Event::Refused)) {
            self.change(key, Event::Refused);
        }
    }

    /// A request that had no effect will not be run: its nonce is fenced, its place in line is free.
    pub(crate) fn discard(&mut self, call: &Call) {
        self.holds_less(call.key, None);
        if call.progress.in_line {
            self.locks.leave(call.id);
        }
        if call.answering == Answering::First
            && let Some(session) = self.sessions.get_mut(call.key)
        {
            session.cache.withdraw(call.nonce);
            self.stats.served.count(call.kind, ServedAs::Dropped, 0);
        }
    }

    /// Appends the outcome of a request executed before D, without grants. Outcomes of reads and of lock requests are worth
    /// nothing to a session that has lost everything: the NACK has said all.
    fn result(&mut self, key: SessionKey, nonce: u64, reply: &[u8]) {
        let mut bytes = Vec::new();
        stripped(reply, &mut bytes);
        if let Ok(reply) = Reader::new(&bytes).get::<Reply<'_>>() {
            let message = Message::Result(cistern_wire::RequestResult { nonce, reply });
            self.push_bulk(key, SMALL, &message);
        }
    }
}

/// What is left of an encoded reply for an agent that has lost its session: no grant. Nothing of replies that only grant or show.
pub(crate) fn stripped(reply: &[u8], out: &mut Vec<u8>) {
    let Ok(reply) = Reader::new(reply).get::<Reply<'_>>() else {
        debug_assert!(false, "a reply made here decodes");
        return;
    };
    match reply {
        Reply::Changed(changed) => {
            let effects: Vec<Effect> = changed.effects.iter().map(|effect| Effect { grant: CacheGrant::NONE, ..effect }).collect();
            Reply::Changed(Changed { effects: List::of(&effects) }).put(out);
        }
        Reply::Failed(_) | Reply::Done(_) | Reply::Batched(_) | Reply::BatchFailed(_) | Reply::Limited(_) => reply.put(out),
        _ => {}
    }
}

/// How an ACK travels in a datagram of at most `limit` bytes.
const fn ack(limit: u16) -> Travel {
    Travel { kind: Kind::Ack, urgency: Urgency::Bulk, limit }
}

/// Whether one more reply may wait to be sent to a session; if not, it is counted as dropped.
pub(crate) fn has_room(session: &Session, config: &Config, stats: &mut Stats) -> bool {
    //= wire-spec.md#11-2-delivery
    //# An overloaded server SHOULD shed bulk requests before these.
    let room = session.lanes.bulk_bytes() <= config.answer_bytes_max as usize;
    if !room {
        stats.count_dropped(Dropped::Shed);
    }
    room
}

/// The cache's word in that of the wire.
pub(crate) const fn fate(known: cistern_link::Fate) -> Fate {
    match known {
        cistern_link::Fate::Executed => Fate::Executed,
        cistern_link::Fate::NotExecuted => Fate::NotExecuted,
        cistern_link::Fate::Unknown => Fate::Unknown,
    }
}

/// Whole milliseconds.
pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}
