//! One resource at one process in the synchronised mode: the round-based register of the paper, and GETLEASE upon it.
//!
//! Decides who owns a resource where clocks are synchronised within ε. A value of the register is a lease until an instant of those clocks;
//! a lease that is over is as good as none. Invariants: a value is replaced only by one with a higher ballot, written by who has read a
//! majority; the lease of another that is not over, or may not be over by its owner's clock, is written back or waited for; a lease lasts
//! t_max from the time in its ballot, and so does the attempt that writes it.

use crate::ballot::{Ballot, Member, MemberSet};
use crate::bugs::{self, Bug};
use crate::instance::{Change, Cx, Outbox};
use crate::message::{COUNT_MAX, Lease, Message};
use crate::proposer::Ownership;
use crate::terms::MEMBERS_MAX;
use cistern_link::Instant;
use core::time::Duration;

/// Ballots of one interval of time differ in so many low bits of their rounds.
const ROUND_BITS: u32 = 16;

/// How often a message is sent before its attempt is given up.
const TRANSMISSIONS_MAX: u8 = 3;

/// The state of one resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Register {
    read: Ballot,
    written: Ballot,
    value: Option<Lease>,
    /// No token was above this when this process started.
    floor: u64,
    wanted: bool,
    /// The owner has stopped, and its lease is still to be ended.
    gives_up: bool,
    /// The highest round heard of, and the highest used.
    heard: u64,
    used: u64,
    attempt: Option<Get>,
    owned: Option<(Ownership, u64)>,
    /// No attempt before this.
    again: Option<Instant>,
    failures: u8,
}

/// A GETLEASE under way.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Get {
    ballot: Ballot,
    since: Instant,
    /// The time in the ballot.
    time_us: u64,
    phase: GetPhase,
    nonces: [u64; MEMBERS_MAX as usize],
    agreed: MemberSet,
    refused: MemberSet,
    sent: Instant,
    next: Instant,
    transmissions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GetPhase {
    /// The value with the highest ballot so far.
    Reading(Ballot, Option<Lease>),
    Writing(Lease),
}

impl Get {
    fn outstanding(&self) -> Message {
        match self.phase {
            GetPhase::Reading(..) => Message::Read { ballot: self.ballot, base: None },
            GetPhase::Writing(lease) => Message::Put { ballot: self.ballot, lease },
        }
    }

    fn is_too_old(&self, cx: &Cx<'_>) -> bool {
        let lease = cx.group.terms.lease;
        cx.clock_us > self.time_us + micros(lease) || cx.now.lease_over(self.since.plus(lease))
    }
}

impl Register {
    /// One that has forgotten everything but that no token was above `floor`.
    pub(crate) fn above(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    /// Wants the resource: acquires it as soon as it can, and keeps it.
    pub fn want(&mut self, cx: &Cx<'_>) {
        if !self.wanted {
            self.wanted = true;
            if self.again.is_none() && self.attempt.is_none() {
                self.again = Some(cx.now);
            }
        }
    }

    /// Begins a GETLEASE now.
    pub fn attempt(&mut self, cx: &Cx<'_>, out: &mut Outbox) {
        self.lapse(cx);
        self.heard = self.heard.max(self.read.round).max(self.written.round);
        let length = micros(cx.group.terms.lease - cx.group.terms.epsilon).max(1);
        let first = (cx.clock_us / length) << ROUND_BITS;
        let last = first | ((1 << ROUND_BITS) - 1);
        let heard = if self.heard <= last { self.heard + 1 } else { 0 };
        let round = first.max(self.used + 1).max(heard);
        if round > last {
            // Another's clock is ahead, or this interval's numbers are used up.
            self.lose(cx, None);
            return;
        }
        self.used = round;
        let ballot = Ballot { round, member: cx.group.me, nonce: cx.group.nonce };
        self.attempt = Some(Get {
            ballot,
            since: cx.now,
            time_us: cx.clock_us,
            phase: GetPhase::Reading(Ballot::NONE, None),
            nonces: [0; _],
            agreed: MemberSet::default(),
            refused: MemberSet::default(),
            sent: cx.now,
            next: cx.now.plus(cx.rto),
            transmissions: 1,
        });
        self.send_all(cx, Message::Read { ballot, base: None }, out);
    }

    /// No longer wants the resource. An owner has stopped before it calls this.
    pub fn release(&mut self, cx: &Cx<'_>, out: &mut Outbox) {
        self.wanted = false;
        let owned = if bugs::is(Bug::ReleaseBeforeStopping) { self.owned } else { self.owned.take() };
        self.attempt = None;
        if owned.is_some() {
            self.gives_up = true;
            self.failures = 0;
            self.attempt(cx, out);
        }
    }

    /// Takes a message of another member.
    pub fn receive(&mut self, cx: &Cx<'_>, from: Member, nonce: u64, message: Message, out: &mut Outbox) -> Option<Change> {
        let lapsed = self.lapse(cx);
        match self.asked(cx, message) {
            Asked::Answer(answer) => out.push((MemberSet::one(from), answer)),
            Asked::Nothing => {}
            Asked::NoQuestion => return self.answer(cx, from, nonce, message, out).or(lapsed),
        }
        lapsed
    }

    /// Does what is due.
    pub fn due(&mut self, cx: &Cx<'_>, out: &mut Outbox) -> Option<Change> {
        let lapsed = self.lapse(cx);
        let is_wanted = self.wanted || self.gives_up;
        match &mut self.attempt {
            Some(get) if get.is_too_old(cx) || cx.now.lease_over(get.next) && get.transmissions == TRANSMISSIONS_MAX => {
                self.lose(cx, None);
            }
            Some(get) if cx.now.lease_over(get.next) => {
                get.transmissions += 1;
                get.next = cx.now.plus(cx.rto);
                let left = cx.group.others().without(get.agreed.union(get.refused));
                out.push((left, get.outstanding()));
            }
            None if is_wanted && self.again.is_none_or(|again| cx.now.lease_over(again)) => self.attempt(cx, out),
            _ => {}
        }
        lapsed
    }

    /// When [`Self::due`] has something to do.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let attempt = self.attempt.as_ref().map(|get| get.next);
        let again = (self.attempt.is_none() && (self.wanted || self.gives_up)).then(|| self.again.unwrap_or(now));
        let until = self.owned.map(|(owned, _)| owned.until);
        [attempt, again, until].into_iter().flatten().reduce(Instant::min)
    }

    /// The ownership, if it is certain now by the lease clocks alone: these end it before the synchronised ones allow another.
    #[must_use]
    pub fn owned(&self, now: Instant) -> Option<Ownership> {
        self.owned.map(|(owned, _)| owned).filter(|owned| !now.lease_over(owned.until))
    }

    /// The ownership, if it is certain now by the synchronised clock alone: what the paper's owner goes by.
    #[must_use]
    pub fn owned_by_clock(&self, clock_us: u64) -> Option<Ownership> {
        self.owned.filter(|(_, ends_us)| clock_us <= *ends_us).map(|(owned, _)| owned)
    }

    /// The lease that this process has written down, if it is not over: information on the owner, never a decision.
    #[must_use]
    pub fn value(&self, clock_us: u64) -> Option<Lease> {
        self.value.filter(|lease| clock_us <= lease.ends_us)
    }

    pub(crate) fn sent_once(&self, ballot: Ballot) -> Option<Instant> {
        self.attempt.as_ref().filter(|get| get.ballot == ballot && get.transmissions == 1).map(|get| get.sent)
    }

    pub(crate) const fn is_busy(&self) -> bool {
        self.wanted || self.gives_up
    }

    pub(crate) const fn is_leaving(&self) -> bool {
        self.gives_up
    }

    fn lapse(&mut self, cx: &Cx<'_>) -> Option<Change> {
        let (owned, ends_us) = self.owned?;
        if !cx.now.lease_over(owned.until) && cx.clock_us <= ends_us {
            return None;
        }
        self.owned = None;
        self.attempt = None;
        self.again = None;
        Some(Change::Lapsed(owned))
    }

    /// What the acceptor does with a message.
    fn asked(&mut self, cx: &Cx<'_>, message: Message) -> Asked {
        match message {
            Message::Read { ballot, .. } => {
                if ballot < self.read || ballot < self.written {
                    return Asked::Answer(Message::Lower { ballot, promised: self.read.max(self.written) });
                }
                if ballot == self.written {
                    // Its attempt has gone on.
                    return Asked::Nothing;
                }
                self.read = ballot;
                Asked::Answer(Message::Value { ballot, written: self.written, lease: self.value })
            }
            Message::Put { lease, .. } if lease.token > cx.token_max => Asked::Nothing,
            Message::Put { ballot, lease } => {
                if ballot < self.read || ballot < self.written {
                    return Asked::Answer(Message::Lower { ballot, promised: self.read.max(self.written) });
                }
                (self.read, self.written, self.value) = (ballot, ballot, Some(lease));
                if lease.ends_us == 0 && self.attempt.is_none() && self.owned.is_none() {
                    self.again = Some(cx.now.plus(cx.random_part(cx.rto)));
                }
                Asked::Answer(Message::Taken { ballot, transmission: 0 })
            }
            _ => Asked::NoQuestion,
        }
    }

    /// Takes an answer.
    fn answer(&mut self, cx: &Cx<'_>, from: Member, nonce: u64, message: Message, out: &mut Outbox) -> Option<Change> {
        if let Message::Lower { promised, .. } = message {
            self.heard = self.heard.max(promised.round);
        }
        let get = self.attempt.as_mut().filter(|get| message.answered() == Some(get.ballot))?;
        let known = &mut get.nonces[usize::from(from)];
        if *known == 0 {
            *known = nonce;
        }
        if *known != nonce {
            return None;
        }
        if get.is_too_old(cx) && !bugs::is(Bug::LeaseFromWrite) {
            self.lose(cx, None);
            return None;
        }
        match (&mut get.phase, message) {
            (GetPhase::Reading(highest, value), Message::Value { written, lease, .. }) => {
                if written >= *highest {
                    (*highest, *value) = (written, lease);
                }
                get.agreed.insert(from);
            }
            (GetPhase::Writing(_), Message::Taken { .. }) => get.agreed.insert(from),
            (_, Message::Lower { .. }) if !get.agreed.contains(from) => get.refused.insert(from),
            _ => return None,
        }
        let (agreed, refused, phase) = (get.agreed.count(), get.refused.count(), get.phase);
        if agreed >= cx.group.majority() {
            return match phase {
                GetPhase::Reading(_, value) => self.decide(cx, value, out),
                GetPhase::Writing(lease) => self.committed(cx, lease),
            };
        }
        if refused > cx.group.members.count() - cx.group.majority() {
            self.lose(cx, None);
        }
        None
    }

    /// READ has committed with this value: what is written.
    fn decide(&mut self, cx: &Cx<'_>, value: Option<Lease>, out: &mut Outbox) -> Option<Change> {
        let terms = &cx.group.terms;
        let epsilon_us = micros(terms.epsilon);
        let get = self.attempt.as_ref().expect("a majority answered it");
        let (ballot, time_us) = (get.ballot, get.time_us);
        let is_mine = value.is_some_and(|lease| lease.tenure.same_process(ballot));
        let in_force = value.filter(|lease| lease.ends_us >= cx.clock_us);
        if let Some(lease) = value.filter(|lease| lease.ends_us < cx.clock_us) {
            // Its owner's clock may be behind.
            let is_over = match () {
                () if bugs::is(Bug::NoClockWait) => true,
                () if bugs::is(Bug::PaperEdge) => lease.ends_us + epsilon_us <= cx.clock_us,
                () => lease.ends_us + epsilon_us < cx.clock_us,
            };
            if !is_over {
                self.lose(cx, Some(Duration::from_micros(lease.ends_us + epsilon_us - cx.clock_us + 1)));
                return None;
            }
        }
        let ends_us = if bugs::is(Bug::LeaseFromWrite) { cx.clock_us } else { time_us } + micros(terms.lease);
        let token = value.map_or(0, |lease| lease.token).max(self.floor);
        let kept = self.owned.map(|(owned, _)| owned).filter(|owned| value.is_some_and(|lease| lease.tenure == owned.tenure));
        let fresh = Lease { tenure: ballot, ends_us, token: (token + 1).max(cx.least_token).min(COUNT_MAX) };
        let lease = match in_force {
            Some(lease) if self.gives_up && is_mine => Lease { ends_us: 0, ..lease },
            Some(lease) if !is_mine => lease,
            _ if self.gives_up => {
                // It is over already.
                self.gives_up = false;
                self.attempt = None;
                return None;
            }
            Some(lease) if kept.is_some() => Lease { ends_us, ..lease },
            _ if !self.wanted => {
                self.attempt = None;
                return None;
            }
            _ => fresh,
        };
        let get = self.attempt.as_mut().expect("a majority answered it");
        (get.phase, get.agreed, get.refused) = (GetPhase::Writing(lease), MemberSet::default(), MemberSet::default());
        (get.sent, get.next, get.transmissions) = (cx.now, cx.now.plus(cx.rto), 1);
        self.send_all(cx, Message::Put { ballot, lease }, out)
    }

    /// WRITE has committed.
    fn committed(&mut self, cx: &Cx<'_>, lease: Lease) -> Option<Change> {
        let get = self.attempt.take().expect("a majority answered it");
        self.failures = 0;
        if !lease.tenure.same_process(get.ballot) {
            // Another's: asked again when it is over by every clock.
            let rest_us = (lease.ends_us + micros(cx.group.terms.epsilon) + 1).saturating_sub(cx.clock_us);
            self.again = Some(cx.now.plus(Duration::from_micros(rest_us) + cx.random_part(2 * cx.rto)));
            self.gives_up = false;
            return self.wanted.then_some(Change::Held);
        }
        if lease.ends_us < cx.clock_us {
            self.gives_up = false;
            return None;
        }
        let is_renewed = self.owned.is_some_and(|(owned, _)| owned.tenure == lease.tenure);
        let ownership = Ownership {
            tenure: lease.tenure,
            token: lease.token,
            is_token_remembered: lease.token > cx.least_token || is_renewed,
            until: get.since.plus(cx.group.terms.owners_lease()),
            ballot: get.ballot,
            transmission: 0,
        };
        self.owned = Some((ownership, lease.ends_us));
        self.again = Some(get.since.plus(cx.group.terms.lease / 4));
        (!is_renewed).then_some(Change::Acquired(ownership))
    }

    /// Ends the attempt; `rest` is how long the value stands in its way.
    fn lose(&mut self, cx: &Cx<'_>, rest: Option<Duration>) {
        self.attempt = None;
        let wait = rest.unwrap_or_else(|| {
            let span = cx.rto.saturating_mul(1 << self.failures.min(16)).min(cx.group.terms.lease / 2);
            span / 2 + cx.random_part(span / 2)
        });
        self.failures = self.failures.saturating_add(1);
        self.again = Some(cx.now.plus(wait));
    }

    /// Sends to every member, this one included, and follows what comes of the own answer.
    fn send_all(&mut self, cx: &Cx<'_>, message: Message, out: &mut Outbox) -> Option<Change> {
        let others = cx.group.others();
        if others.count() > 0 {
            out.push((others, message));
        }
        match self.asked(cx, message) {
            Asked::Answer(answer) => self.answer(cx, cx.group.me, cx.group.nonce, answer, out),
            Asked::Nothing | Asked::NoQuestion => None,
        }
    }
}

/// What an acceptor does with a message.
enum Asked {
    Answer(Message),
    /// It is as if it had been lost.
    Nothing,
    /// It is an answer itself.
    NoQuestion,
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}
