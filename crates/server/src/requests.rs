//! Requests: whether one may execute, exactly once, and what a duplicate is told.
//!
//! Decides by the session's standing and its reply cache: new, executing, answered before, cancelled, or not to be executed at all
//! (R22, R26). Place in the walk: after `dispatch`, before `execute`. Implements `wire-spec.md` section 6.2.
//! Invariant: a nonce executes once, for ever; a duplicate is judged anew by the standing of now, whatever is kept for it (R4).
//! Also here: waking operations that were parked, with their standing checked again at that instant (R5).
//! Leaves to others: what a request does (`execute`), how it is answered (`answers`).

use crate::answers::{AROUND_REPLY, Repeatable};
use crate::dispatch::{Origin, Raw};
use crate::durability::OnDurable;
use crate::execute::Outcome;
use crate::parked::{Answering, Job, OpId, Parked, Wait};
use crate::server::Server;
use crate::sessions::Key;
use crate::stats::Dropped;
use crate::store::{BatchId, Query, Seen};
use crate::transport::SMALL;
use alloc::boxed::Box;
use alloc::vec::Vec;
use cistern_link::{Admission, Stored};
use cistern_wire::{Ask, Kind, Status};
use core::hash::Hasher as _;
use log::{debug, trace};
use rustc_hash::FxHasher;

/// Bytes of `Ask` at the front of a request's body: they differ from transmission to transmission, the rest must not.
const ASK_LEN: usize = 12;

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

impl Server {
    /// One request.
    pub(crate) fn request(&mut self, origin: Origin, raw: Raw<'_>) {
        let (Some(ask), Some(session)) = (raw.ask(), self.sessions.get_mut(origin.key)) else {
            return;
        };
        let (key, nonce, packet) = (origin.key, ask.nonce, origin.packet);
        //= wire-spec.md#11-3-failure-and-ending
        //# A request that arrives in a session that is timing out MUST be answered NACK.
        //= wire-spec.md#11-3-failure-and-ending
        //# The server MUST check the standing of the session before it answers a duplicate from what it kept.
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
        let verdict = match session.cache.admit(nonce, ask.floor(), digest, &mut self.replies) {
            Admission::Fresh => Verdict::Fresh,
            Admission::Executing => Verdict::Executing,
            Admission::Done(Stored::Bytes(_)) => Verdict::Kept,
            Admission::Done(Stored::Recompute) => Verdict::TooLargeToKeep,
            Admission::Queued => Verdict::Queued,
            Admission::Fenced => Verdict::Fenced,
            Admission::OtherBody => Verdict::OtherBody,
            Admission::BelowFloor => Verdict::Drop(Dropped::BelowFloor),
            Admission::Ahead => Verdict::Drop(Dropped::NonceAhead),
            Admission::BeyondWindow => Verdict::Drop(Dropped::BeyondWindow),
        };
        if session.cache.floor() > floor && !session.parked.is_empty() {
            self.drop_given_up(key);
        }
        match verdict {
            Verdict::Fresh => {
                let Some(session) = self.sessions.get_mut(key) else {
                    return;
                };
                //= wire-spec.md#11-2-delivery
                //# The server MUST execute a request at most once, however often it arrives.
                // An agent that no longer awaits what it asked a slow store for could otherwise have any number of replies held.
                let crowded = session.cache.executing() >= session.cache.window();
                session.cache.begin(nonce, digest, packet);
                self.stats.requests += 1;
                let id = self.parking.next_id();
                let job = self.job(id, key, raw, nonce, limit, Answering::First);
                if crowded {
                    let outcome = self.fail_request(Status::BUSY);
                    self.conclude(job, raw, outcome, &Seen::default());
                } else {
                    self.start(job, raw);
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
            Verdict::TooLargeToKeep => self.make_again(key, ask, packet, limit, raw),
            Verdict::Queued => {
                if let Some(message) = raw.decode() {
                    self.queued_again(key, nonce, packet, &message);
                }
            }
            Verdict::Fenced => self.reply_once(key, raw, nonce, packet, Status::ECANCELED),
            Verdict::OtherBody => {
                debug!("{}: session {} used nonce {nonce} for two requests", self.who, key.id());
                //= wire-spec.md#11-2-delivery
                //# A request that comes under a nonce first used for another request MUST NOT be executed, and is answered
                //# NONCE_REUSED.
                self.reply_once(key, raw, nonce, packet, Status::NONCE_REUSED);
            }
            Verdict::Drop(reason) => {
                self.stats.count_dropped(reason);
                trace!("{}: dropped request {nonce} of session {}: {}", self.who, key.id(), reason.name());
            }
        }
    }

    /// An executing request has come again: its answer echoes the newest transmission, and fits what that one allows.
    fn arrived_again(&mut self, key: Key, nonce: u64, packet: u64, limit: u16) {
        let parked = self.find_parked(key, nonce);
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#3-7-sizes-and-paths
        //# An answer MUST NOT make its datagram longer than the `limit` of the request that it answers.
        // A reply that exists, and waits for the store, answers no transmission that may allow less than the one for which it was made.
        if parked.is_none() && limit < session.max_datagram {
            return;
        }
        session.cache.note_packet(nonce, packet);
        if session.cache.newest_packet(nonce) == Some(packet)
            && let Some(op) = parked.and_then(|id| self.parking.get_mut(id))
        {
            op.job.limit = limit;
        }
    }

    /// A request that came now, as an operation.
    const fn job(&self, id: OpId, key: Key, raw: Raw<'_>, nonce: u64, limit: u16, answering: Answering) -> Job {
        Job { id, key, asked: raw.kind, came_ns: self.now.boot_ns, nonce, limit, answering, entered: false, settled: false, loads: 0 }
    }

    /// A duplicate of a read whose reply was too large to keep: reads again, and grants nothing.
    fn make_again(&mut self, key: Key, ask: Ask, packet: u64, limit: u16, raw: Raw<'_>) {
        if !reads(raw.kind) {
            return self.reply_once(key, raw, ask.nonce, packet, Status::NONCE_REUSED);
        }
        self.stats.repeated += 1;
        if let Some(op) = self.find_parked(key, ask.nonce).and_then(|id| self.parking.get_mut(id)) {
            // It is being read for an earlier duplicate; the answer echoes the newest (R2).
            (op.job.answering, op.job.limit) = (Answering::Again { packet }, limit);
            return self.pending(key, ask.nonce, packet);
        }
        let id = self.parking.next_id();
        let answering = Answering::Again { packet };
        let job = self.job(id, key, raw, ask.nonce, limit, answering);
        self.start(job, raw);
    }

    /// Answers a transmission whose nonce executes nothing; nothing is kept.
    fn reply_once(&mut self, key: Key, raw: Raw<'_>, nonce: u64, packet: u64, status: Status) {
        let job = self.job(OpId::BOOT, key, raw, nonce, SMALL, Answering::Again { packet });
        self.reply_failed(job, status, 0, Repeatable::Changes);
    }

    /// Drops the parked operations whose answers the agent no longer awaits: so no more are parked than the window admits.
    fn drop_given_up(&mut self, key: Key) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let (floor, parking) = (session.cache.floor(), &self.parking);
        let given_up = session.parked.extract_if(.., |id| parking.get(*id).is_none_or(|op| op.job.nonce < floor)).collect::<Vec<_>>();
        for id in given_up {
            if let Some(op) = self.parking.take(id) {
                self.discard(&op);
            }
        }
    }

    /// The parked operation of a request.
    fn find_parked(&self, key: Key, nonce: u64) -> Option<OpId> {
        let parked = &self.sessions.get(key)?.parked;
        parked.iter().copied().find(|id| self.parking.get(*id).is_some_and(|op| op.job.nonce == nonce))
    }

    /// Takes the parked operation of a request out; it has had no effect.
    pub(crate) fn unpark_request(&mut self, key: Key, nonce: u64) -> Option<Parked> {
        let id = self.find_parked(key, nonce)?;
        self.sessions.get_mut(key)?.parked.retain(|parked| *parked != id);
        self.parking.take(id)
    }

    /// Runs an operation from its start.
    fn start(&mut self, job: Job, raw: Raw<'_>) {
        let seen = Seen::default();
        let outcome = self.execute(job, raw, &seen);
        self.conclude(job, raw, outcome, &seen);
    }

    /// Runs a parked operation again from its start, if its session's standing and its agent still want it.
    pub(crate) fn run_again(&mut self, id: OpId) {
        let Some(op) = self.parking.get_mut(id) else {
            return;
        };
        if op.job.key == Key::SERVER {
            let job = op.job;
            self.parking.take(id);
            return self.remove_ephemeral(job);
        }
        let Some(session) = self.sessions.get_mut(op.job.key) else {
            self.parking.take(id);
            return;
        };
        if !session.standing().is_good() {
            //= wire-spec.md#11-3-failure-and-ending
            //# At D the server MUST park the session's requests that have not been executed and its waiting lock requests: none is
            //# executed, none is granted.
            //= wire-spec.md#11-3-failure-and-ending
            //# The server MUST check the standing of the session at the instant at which it executes a request.
            op.wait = Wait::Standing;
            return;
        }
        let given_up = op.job.nonce < session.cache.floor();
        session.parked.retain(|parked| *parked != id);
        let Some(op) = self.parking.take(id) else {
            return;
        };
        if given_up {
            return self.discard(&op);
        }
        self.start(op.job, Raw { kind: op.job.asked, body: &op.body });
    }

    /// The turn of a waiting mutation has come.
    pub(crate) fn turn_came(&mut self, id: OpId) {
        if self.parking.get_mut(id).is_some_and(|op| op.wait == Wait::Locks) {
            self.run_again(id);
        }
    }

    /// Does with an operation what its run came to.
    fn conclude(&mut self, job: Job, raw: Raw<'_>, outcome: Outcome, seen: &Seen) {
        match outcome {
            Outcome::Silent => {}
            Outcome::Reply(repeatable) => match seen.depends_on(&self.overlay) {
                None => self.reply_now(job, repeatable),
                // However often a duplicate comes, one operation of its nonce waits; a reply held for each would know no bound.
                Some(batch) if job.answering != Answering::First && !job.settled => {
                    self.conclude(job, raw, Outcome::After(batch), seen);
                }
                //= wire-spec.md#11-7-restart-and-recovery
                //# A message that shows an effect of a transaction MUST wait until the transaction is durable.
                Some(batch) => {
                    let reply = Box::from(self.reply_buffer.as_slice());
                    self.after_commit(batch, OnDurable::Reply { job, reply, repeatable });
                }
            },
            Outcome::Independent => self.reply_now(job, Repeatable::Changes),
            Outcome::Load(mut queries) => {
                queries.sort_unstable();
                queries.dedup();
                self.park(Job { loads: job.loads.saturating_add(1), ..job }, raw, Wait::Store(queries.len()));
                self.ask_store(job.id, queries);
            }
            Outcome::Turn => {
                self.park(Job { entered: true, ..job }, raw, Wait::Locks);
                if !job.entered
                    && let Some(echo) = self.sessions.get(job.key).and_then(|session| session.cache.newest_packet(job.nonce))
                {
                    self.pending(job.key, job.nonce, echo);
                }
            }
            Outcome::LoadInTurn(queries) => self.conclude(Job { entered: true, ..job }, raw, Outcome::Load(queries), seen),
            Outcome::After(batch) => {
                self.park(Job { settled: true, ..job }, raw, Wait::Durable(batch));
                self.after_commit(batch, OnDurable::Run(job.id));
            }
        }
    }

    /// Answers by what is in the reply buffer.
    fn reply_now(&mut self, job: Job, repeatable: Repeatable) {
        let reply = core::mem::take(&mut self.reply_buffer);
        debug_assert!(reply.len() + AROUND_REPLY <= usize::from(job.limit), "a reply fits the datagram that was asked for");
        self.reply(job, &reply, repeatable);
        self.reply_buffer = reply;
    }

    fn park(&mut self, job: Job, raw: Raw<'_>, wait: Wait) {
        trace!("{}: request {} of session {} waits: {wait:?}", self.who, job.nonce, job.key.id());
        if let Some(session) = self.sessions.get_mut(job.key) {
            session.parked.push(job.id);
            self.parking.park(Parked { job, body: Box::from(raw.body), wait });
        }
    }

    /// Asks the store, unless it was asked already; `id` runs again when all is answered.
    pub(crate) fn ask_store(&mut self, id: OpId, queries: Vec<Query>) {
        debug_assert!(!queries.is_empty(), "an operation that misses nothing does not wait");
        self.parking.await_queries(id, &queries);
        self.overlay.ask(queries);
    }

    /// What was waited for is durable.
    pub(crate) fn durable_for(&mut self, id: OpId, batch: BatchId) {
        if self.parking.get_mut(id).is_some_and(|op| matches!(op.wait, Wait::Durable(waited) if waited <= batch)) {
            self.run_again(id);
        }
    }
}

/// A digest of what must not differ between transmissions of one request.
///
/// The kind stands in it as it is. Of the rest 56 bits are hashed without a secret: an agent can make two requests of one kind alike, and
/// is then answered for the first of them; it could not make one act in place of another kind.
fn digest(raw: Raw<'_>) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(raw.body.get(ASK_LEN..).unwrap_or_default());
    hasher.finish() << 8 | u64::from(raw.kind.code())
}

/// Whether a request only reads, so that a duplicate may run again.
const fn reads(kind: Kind) -> bool {
    matches!(
        kind,
        Kind::Lookup
            | Kind::GetAttr
            | Kind::ReadDir
            | Kind::Read
            | Kind::GetXattr
            | Kind::ListXattr
            | Kind::ListLocks
            | Kind::ServerStatus
            | Kind::Outcome
    )
}
