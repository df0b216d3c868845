//! What is left of a session that is over at the agent but perhaps not at the server: its numbers, and who may still act under it.
//!
//! Decides when nothing of the session can be used again, says so to the server (END_SESSION, in the dead session's own numbers), and
//! what HELLO says of each former session. Place in the walk: `recovery` leaves a [`Remains`] behind for each session that dies;
//! `Agent::tend` looks after them. Implements `wire-spec.md` sections 11.3 (surrender) and 11.6.
//! Invariant: a session is surrendered only after its caches were dropped and each of its local holders has said that it stopped, or
//! the last instant that was shown to them has passed (R36); a hint never leads here (R37).
//! Leaves to others: the end of the session at this agent (`recovery`), what became of its mutations (`outcome`).

use crate::agent::{Agent, Timer};
use crate::api::HolderId;
use crate::requests::Requests;
use crate::session::Session;
use crate::stats::Dropped;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_link::{Instant, PacketCounter, Path, Question, RoundTrip};
use cistern_wire::limits::{DATAGRAM_MIN, FORMER_MAX};
use cistern_wire::{Claim, EndReason, EndSession, FormerClaim, Header, Message, Messages, NackReason, Packer, SessionFate, SessionId};
use log::{debug, info};

/// The surrender is sent so often; after that the server finds out by itself, at the latest when T has passed.
const TRIES_MAX: u32 = 8;

/// How far the surrender of a session is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Somebody may still act under it.
    InUse,
    /// To be said, or said again.
    Due,
    /// Said; not answered.
    Said,
}

/// What is left of a session that is over.
#[derive(Debug)]
pub(crate) struct Remains {
    pub(crate) session: SessionId,
    counter: PacketCounter,
    path: Path,
    rtt: RoundTrip,
    /// Number of the control message that says it: the same each time.
    serial: u64,
    /// Local users who were told that their locks are lost, and have not said that they stopped.
    holders: BTreeSet<HolderId>,
    /// The end of the lease as it was shown to them last.
    until: Option<Instant>,
    step: Step,
    tries: u32,
}

impl Remains {
    /// Takes a session apart that is over: what is left of it, and its requests.
    pub(crate) fn of(session: Session) -> (Self, Requests) {
        let Session { id, path, counter, rtt, controls, requests, .. } = session;
        let (holders, step) = (BTreeSet::new(), Step::InUse);
        let serial = controls.next_serial();
        (Self { session: id, counter, path, rtt, serial, holders, until: None, step, tries: 0 }, requests)
    }

    /// These local users were shown that their locks were theirs until then.
    pub(crate) fn used_by(self, holders: &BTreeSet<HolderId>, until: Option<Instant>) -> Self {
        Self { holders: holders.clone(), until, ..self }
    }

    /// Whether nothing of it can be used again, which the server may be told, and need not be asked to forget.
    const fn is_surrendered(&self) -> bool {
        matches!(self.step, Step::Due | Step::Said)
    }
}

impl Agent {
    /// Remembers sessions that are over here, and perhaps not at the server.
    pub(crate) fn leave_behind(&mut self, remains: Remains) {
        self.former.push(remains);
        let surplus = self.former.len().saturating_sub(FORMER_MAX);
        for forgotten in self.former.drain(..surplus) {
            self.timers.cancel(Timer::Remains(forgotten.session));
        }
    }

    /// Whether this is a former session of which something is left.
    pub(crate) fn has_been(&self, session: SessionId) -> bool {
        let mut sources = self.reclaim.iter().flat_map(|reclaim| reclaim.sources());
        sources.any(|source| source == session) || self.former.iter().any(|remains| remains.session == session)
    }

    /// These sessions have ended at the server.
    pub(crate) fn have_ended(&mut self, ended: impl Fn(SessionId) -> bool) {
        let timers = &mut self.timers;
        self.former.retain(|remains| {
            let gone = ended(remains.session);
            if gone {
                timers.cancel(Timer::Remains(remains.session));
            }
            !gone
        });
    }

    /// What WELCOME says of them.
    pub(crate) fn former_told(&mut self, fates: &BTreeMap<SessionId, SessionFate>) {
        self.have_ended(|session| fates.get(&session) == Some(&SessionFate::Ended));
    }

    /// A local user whose lock was lost has stopped.
    pub(crate) fn has_stopped(&mut self, holder: HolderId) {
        for remains in &mut self.former {
            remains.holders.remove(&holder);
        }
        if let Some(reclaim) = &mut self.reclaim {
            reclaim.stopping.remove(&holder);
        }
    }

    /// Surrenders the former sessions of which nothing can be used any more.
    pub(crate) fn tend_remains(&mut self) {
        if !self.config.surrender {
            return;
        }
        let Self { former, questions, timers, now, who, .. } = self;
        for remains in former.iter_mut().filter(|remains| remains.step == Step::InUse) {
            // The end of a session is the end of what the server knows of its mutations.
            let is_asked_about = questions.keys().any(|(session, _)| *session == remains.session);
            //= wire-spec.md#11-3-failure-and-ending
            //# Surrender: an agent MUST say so only when its caches are dropped, its holders have stopped or their instants passed, and
            //# all input and output under its locks has ended.
            let until = remains.until.filter(|until| !remains.holders.is_empty() && !now.lease_over(*until));
            match until {
                Some(until) => timers.set(Timer::Remains(remains.session), until, Question::LeaseOver),
                None if is_asked_about => {}
                None => {
                    info!("{who}: surrenders session {}", remains.session);
                    remains.step = Step::Due;
                }
            }
        }
    }

    /// The answer to a surrender is overdue, or the last instant shown has passed (which is looked after once in each turn).
    pub(crate) fn remains_due(&mut self, session: SessionId) {
        let said = self.former.iter_mut().find(|remains| remains.session == session && remains.step == Step::Said);
        if let Some(remains) = said.filter(|remains| remains.tries < TRIES_MAX) {
            remains.step = Step::Due;
        }
    }

    /// Whether a surrender is to be sent now.
    pub(crate) fn has_surrender(&self) -> bool {
        self.former.iter().any(|remains| remains.step == Step::Due)
    }

    /// Makes the datagram of the first surrender that is due.
    pub(crate) fn next_surrender(&mut self, buf: &mut Vec<u8>) -> Option<Path> {
        let Self { former, timers, rng, now, .. } = self;
        let remains = former.iter_mut().find(|remains| remains.step == Step::Due)?;
        remains.step = Step::Said;
        let packet = remains.counter.take()?;
        let mut packer = Packer::new(buf, Header { from_server: false, session: remains.session, packet }, DATAGRAM_MIN);
        packer.push(&EndSession { serial: remains.serial, reason: EndReason::Surrender }.into());
        packer.finish();
        timers.set(Timer::Remains(remains.session), now.plus(remains.rtt.backoff(remains.tries, rng)), Question::Waited);
        remains.tries += 1;
        Some(remains.path)
    }

    /// A datagram of a session that is not the present one: of a former one, only its end is heard.
    pub(crate) fn of_another_session(&mut self, session: SessionId, messages: Messages<'_>) {
        let remains = self.former.iter().find(|remains| remains.session == session && remains.step == Step::Said);
        let sent = |echo: u64| remains.is_some_and(|remains| remains.counter.has_dealt(echo));
        let mut all = messages;
        let ended = all.any(|message| match message {
            Message::Ended(ended) => sent(ended.echo),
            Message::Nack(nack) => nack.reason == NackReason::Ended && sent(nack.echo),
            _ => false,
        });
        if ended {
            debug!("{}: session {session} has ended at the server", self.who);
            self.have_ended(|ended| ended == session);
            self.tend_leaving();
        } else {
            self.dropped(Dropped::UnknownSession);
        }
    }

    /// What HELLO says of the present session, which is verified if there is one, and of the former ones.
    pub(crate) fn claims(&self) -> Vec<FormerClaim> {
        let former = self.former.iter().rev().map(|remains| {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# An agent MUST name a session lost or surrendered only after it took a NACK of it, took a WELCOME of another one, or closed
            //# it.
            let claim = if remains.is_surrendered() { Claim::Surrendered } else { Claim::Lost };
            FormerClaim { session: remains.session, claim }
        });
        let sources = self.reclaim.iter().flat_map(|reclaim| reclaim.sources());
        let reclaiming = sources.map(|session| FormerClaim { session, claim: Claim::Reclaiming });
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The agent MUST name in HELLO each former session of its own that it does not know to have ended, with what became of it:
        //# lost, reclaiming or surrendered.
        // Where not all can be named, those from which something can be reclaimed come first, and of them those that hold locks.
        let mut claims: Vec<FormerClaim> = reclaiming.chain(former).collect();
        claims.sort_by_key(|named| {
            let empty = self.reclaim.as_ref().is_some_and(|reclaim| reclaim.is_empty_source(named.session));
            (named.claim != Claim::Reclaiming, empty)
        });
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# An agent that has a session MUST name it first in HELLO, as continuing.
        if let Some(session) = &self.session {
            claims.insert(0, FormerClaim { session: session.id, claim: Claim::Continuing });
        }
        claims.truncate(FORMER_MAX);
        claims
    }
}
