//! One process's wish for one resource: its attempts, and its ownership.
//!
//! Decides when this process owns the resource, and until when. Invariants: an answer counts only for the ballot outstanding, once for
//! each process, with one boot nonce; an attempt, and the lease that it gives, ends L after the send of its first message; only a renewal
//! of a tenure that is still held counts OWN.
//!
//! ```text
//!        begin                majority OPEN/OWN               majority TAKEN
//! idle ─────────▶ reading ──────────────────────▶ writing ──────────────────▶ idle, owned
//!   ▲                │                                │
//!   └────────────────┴── refused, timeout, too old ◀──┘
//! ```

use crate::ballot::{Ballot, Member, MemberSet};
use crate::bugs::{self, Bug};
use crate::instance::Cx;
use crate::message::{COUNT_MAX, Message};
use crate::terms::{Group, MEMBERS_MAX};
use cistern_link::Instant;
use core::time::Duration;

/// How often a message of a fresh attempt is sent before the attempt is given up.
const TRANSMISSIONS_MAX: u8 = 3;

/// The state of one proposer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Proposer {
    /// Whether the resource is wanted: to be acquired and kept.
    pub(crate) wanted: bool,
    /// The highest round used or heard of.
    round: u64,
    attempt: Option<Attempt>,
    owned: Option<Ownership>,
    /// No new attempt before this.
    again: Option<Instant>,
    /// Attempts lost in a row other than to a record.
    failures: u8,
    /// Whether what is owned was granted or renewed since the list of members is what it is.
    pub(crate) is_agreed: bool,
}

/// What an owner knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// The ballot with which it began.
    pub tenure: Ballot,
    /// Larger than that of any earlier owner, as far as the majority remembers.
    pub token: u64,
    /// Whether every member of the majority that opened remembered a token; else the token rests on the wall clock.
    pub is_token_remembered: bool,
    /// Certain until either clock reaches this.
    pub until: Instant,
    /// Of the newest attempt that succeeded.
    pub ballot: Ballot,
    /// Of the newest WRITE under that ballot; above 0 where owners renew by WRITE alone.
    pub transmission: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Attempt {
    ballot: Ballot,
    /// When its first message was sent: the lease counts from here.
    since: Instant,
    /// The tenure to be renewed.
    base: Option<Ballot>,
    phase: Phase,
    /// The boot nonce with which each member answered in this attempt; 0: none yet.
    nonces: [u64; MEMBERS_MAX as usize],
    agreed: MemberSet,
    refused: MemberSet,
    /// The longest rest of records by which each refused, in microseconds.
    rests_us: [u32; MEMBERS_MAX as usize],
    /// When the outstanding message was first sent.
    sent: Instant,
    /// When it is sent again, or given up.
    next: Instant,
    transmissions: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Reading { floor: u64, is_remembered: bool },
    Writing { token: u64, is_remembered: bool, transmission: u32 },
}

/// What an answer or a timer led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    None,
    /// This goes to every member, this one included.
    Send(Message),
    /// The attempt is over without success: what it wrote is freed, and records stand in its way or not.
    Lost {
        freed: Option<Message>,
        is_held: bool,
    },
    Acquired,
    Renewed,
}

impl Proposer {
    /// The ownership, if it is certain now.
    pub(crate) fn owned(&self, now: Instant) -> Option<Ownership> {
        self.owned.filter(|owned| !now.lease_over(owned.until) || bugs::is(Bug::LapseIgnored))
    }

    /// The ownership, whether or not its lease is over by now.
    pub(crate) const fn any_owned(&self) -> Option<Ownership> {
        self.owned
    }

    /// Ends an ownership whose lease is over, with the attempt that would have renewed it; true if there was one.
    pub(crate) fn lapse(&mut self, now: Instant) -> bool {
        if self.owned.is_none() || self.owned(now).is_some() {
            return false;
        }
        self.stop();
        self.again = None;
        true
    }

    /// Stops at once and for good in this tenure.
    pub(crate) fn stop(&mut self) -> Option<Ownership> {
        if self.attempt.as_ref().is_some_and(|attempt| attempt.base.is_some()) {
            self.attempt = None;
        }
        self.owned.take()
    }

    /// Another list of members: what was asked of the former is dropped, and asked anew at once. What it wrote runs out.
    pub(crate) fn change_list(&mut self) {
        (self.attempt, self.again, self.failures, self.is_agreed) = (None, None, 0, false);
    }

    pub(crate) const fn round(&self) -> u64 {
        self.round
    }

    /// Learns of a round in use.
    pub(crate) fn heard(&mut self, round: u64) {
        self.round = self.round.max(round);
    }

    /// Gives an attempt up that acquires; what it wrote is to be freed.
    pub(crate) fn abandon(&mut self) -> Option<Message> {
        let attempt = self.attempt.take()?;
        let has_written = attempt.base.is_none() && matches!(attempt.phase, Phase::Writing { .. });
        has_written.then_some(Message::Release { tenure: attempt.ballot, successor: None })
    }

    /// Begins an attempt: a fresh one, or a renewal of what is owned. The lease that it may give counts from now.
    pub(crate) fn begin(&mut self, cx: &Cx<'_>) -> Message {
        let base = self.owned(cx.now).map(|owned| owned.tenure);
        if let Some(owned) = self.owned
            && cx.group.renew_by_write
            && self.failures == 0
        {
            return self.renew_by_write(cx, owned);
        }
        //= docs/flease.md#rules
        //# An attempt has one ballot, above every round that the member used or heard of; a ballot MUST NOT be used twice.
        self.round += 1;
        let ballot = Ballot { round: self.round, member: cx.group.me, nonce: cx.group.nonce };
        self.attempt = Some(Attempt::new(cx, ballot, base, Phase::Reading { floor: 0, is_remembered: true }));
        Message::Read { ballot, base }
    }

    /// Renews without READ, by another transmission of the WRITE that is on record.
    fn renew_by_write(&mut self, cx: &Cx<'_>, owned: Ownership) -> Message {
        let Ownership { tenure, token, is_token_remembered, ballot, .. } = owned;
        // Drawn once for each transmission, so that an echo names one send time.
        let transmission = owned.transmission + 1;
        self.owned = Some(Ownership { transmission, ..owned });
        let phase = Phase::Writing { token, is_remembered: is_token_remembered, transmission };
        self.attempt = Some(Attempt::new(cx, ballot, Some(tenure), phase));
        Message::Write { ballot, tenure, token, transmission }
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, cx: &Cx<'_>, from: Member, nonce: u64, message: Message) -> Step {
        if let Message::Lower { promised, .. } = message {
            self.heard(promised.round);
        }
        let group = cx.group;
        let Some(attempt) = &mut self.attempt else { return Step::None };
        //= docs/flease.md#rules
        //# An answer MUST count only for the ballot outstanding, once for each member, and only under the boot nonce with which that member
        //# first answered in the attempt.
        if message.answered() != Some(attempt.ballot) || !attempt.is_same_process(from, nonce) {
            return Step::None;
        }
        if attempt.is_too_old(cx) {
            return self.lose(cx, None);
        }
        match (&mut attempt.phase, message) {
            (Phase::Reading { floor, is_remembered }, Message::Open { floor: told, .. }) => {
                *floor = (*floor).max(told);
                *is_remembered &= told > 0;
                attempt.agree(from);
            }
            (Phase::Reading { .. }, Message::Own { tenure, .. }) => {
                //= docs/flease.md#rules
                //# OWN MUST count only for a renewal, of the tenure that was held when READ was sent and is still held when WRITE is sent.
                if attempt.base == Some(tenure) || bugs::is(Bug::OwnCountsAsOpen) {
                    attempt.agree(from);
                } else {
                    attempt.refuse(from, 0);
                }
            }
            (Phase::Reading { .. }, Message::Held { tenure, .. }) if bugs::is(Bug::WriteBack) => {
                let ballot = attempt.ballot;
                return Step::Send(Message::Write { ballot, tenure, token: 0, transmission: 0 });
            }
            (Phase::Reading { .. } | Phase::Writing { .. }, Message::Held { rest_us, .. }) => attempt.refuse(from, rest_us),
            (Phase::Reading { .. } | Phase::Writing { .. }, Message::Lower { .. }) => attempt.refuse(from, 0),
            (Phase::Writing { transmission, .. }, Message::Taken { transmission: echoed, .. })
                //= docs/flease.md#rules
                //# TAKEN MUST echo the number of the transmission that is outstanding to count.
                if echoed == *transmission || bugs::is(Bug::EarlierEchoCounts) =>
            {
                attempt.agree(from);
            }
            _ => return Step::None,
        }
        match () {
            () if attempt.agreed.count() >= group.majority() => self.agreed(cx),
            () if attempt.refused.count() > group.members.count() - group.majority() => {
                let rest = attempt.shortest_rest(group);
                self.lose(cx, rest)
            }
            () => Step::None,
        }
    }

    /// A majority agreed to what is outstanding.
    fn agreed(&mut self, cx: &Cx<'_>) -> Step {
        let owned = self.owned(cx.now);
        let attempt = self.attempt.as_mut().expect("agreed to an attempt");
        // Still held: the tenure that a renewal names ends with its lease.
        //= docs/flease.md#rules
        //# OWN MUST count only for a renewal, of the tenure that was held when READ was sent and is still held when WRITE is sent.
        if attempt.base != owned.map(|owned| owned.tenure) && !bugs::is(Bug::LapseIgnored) {
            return self.lose(cx, None);
        }
        match attempt.phase {
            Phase::Reading { floor, is_remembered } => {
                let drawn = (floor + 1).max(cx.least_token).min(COUNT_MAX);
                let (token, is_remembered) = owned.map_or((drawn, is_remembered), |owned| (owned.token, owned.is_token_remembered));
                let (ballot, base) = (attempt.ballot, attempt.base);
                let since = if bugs::is(Bug::LeaseFromWrite) { cx.now } else { attempt.since };
                let phase = Phase::Writing { token, is_remembered, transmission: 0 };
                *attempt = Attempt { since, nonces: attempt.nonces, ..Attempt::new(cx, ballot, base, phase) };
                //= docs/flease.md#rules
                //# A member MUST NOT write the lease of another: the tenure of a WRITE is of the process of its ballot.
                Step::Send(Message::Write { ballot, tenure: base.unwrap_or(ballot), token, transmission: 0 })
            }
            Phase::Writing { token, is_remembered, transmission } => {
                let (tenure, ballot) = (attempt.base.unwrap_or(attempt.ballot), attempt.ballot);
                let until = attempt.since.plus(cx.group.terms.lease);
                let again = attempt.since.plus(cx.group.terms.lease / 4);
                self.owned = Some(Ownership { tenure, token, is_token_remembered: is_remembered, until, ballot, transmission });
                self.attempt = None;
                self.again = Some(again);
                self.failures = 0;
                self.is_agreed = true;
                if owned.is_some() { Step::Renewed } else { Step::Acquired }
            }
        }
    }

    /// Ends the attempt; `rest` is how long records stand in its way.
    fn lose(&mut self, cx: &Cx<'_>, rest: Option<Duration>) -> Step {
        let wait = match rest {
            // What stood in the way told when it is over.
            Some(rest) => rest + cx.random_part(2 * cx.rto),
            None if self.owned.is_some() => Duration::ZERO,
            None => {
                let span = cx.rto.saturating_mul(1 << self.failures.min(16)).min(cx.group.terms.lease);
                span / 2 + cx.random_part(span / 2)
            }
        };
        self.failures = self.failures.saturating_add(1);
        self.again = Some(cx.now.plus(wait));
        Step::Lost { freed: self.abandon(), is_held: rest.is_some() }
    }

    /// Does what is due.
    pub(crate) fn due(&mut self, cx: &Cx<'_>) -> Step {
        if let Some(attempt) = &mut self.attempt {
            if attempt.is_too_old(cx) {
                return self.lose(cx, None);
            }
            if !cx.now.lease_over(attempt.next) {
                return Step::None;
            }
            // An owner does better with a new attempt: its lease counts from a later time.
            if attempt.base.is_some() || attempt.transmissions == TRANSMISSIONS_MAX {
                return self.lose(cx, None);
            }
            attempt.transmissions += 1;
            attempt.next = cx.now.plus(cx.rto);
            return Step::Send(attempt.outstanding());
        }
        let is_due = self.again.is_none_or(|again| cx.now.lease_over(again));
        if (self.wanted || self.owned.is_some()) && is_due { Step::Send(self.begin(cx)) } else { Step::None }
    }

    /// When [`Self::due`] or [`Self::lapse`] has something to do; `None`: not by time alone.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let attempt = self.attempt.as_ref().map(|attempt| attempt.next);
        let again = (self.attempt.is_none() && (self.wanted || self.owned.is_some())).then(|| self.again.unwrap_or(now));
        let until = self.owned.map(|owned| owned.until);
        [attempt, again, until].into_iter().flatten().reduce(Instant::min)
    }

    /// Sets when the next attempt may be made, if none is under way and nothing is owned.
    pub(crate) fn attempt_at(&mut self, at: Instant) {
        if self.attempt.is_none() && self.owned.is_none() {
            self.again = Some(at);
            self.failures = 0;
        }
    }

    /// When the outstanding message of this attempt was sent, if it was sent once: what an answer measures.
    pub(crate) fn sent_once(&self, ballot: Ballot) -> Option<Instant> {
        let attempt = self.attempt.as_ref().filter(|attempt| attempt.ballot == ballot && attempt.transmissions == 1)?;
        Some(attempt.sent)
    }

    /// Who has agreed to what is outstanding already: what is sent again goes to the others.
    pub(crate) fn agreed_members(&self) -> MemberSet {
        self.attempt.as_ref().map(|attempt| attempt.agreed.union(attempt.refused)).unwrap_or_default()
    }
}

impl Attempt {
    fn new(cx: &Cx<'_>, ballot: Ballot, base: Option<Ballot>, phase: Phase) -> Self {
        Self {
            ballot,
            since: cx.now,
            base,
            phase,
            nonces: [0; _],
            agreed: MemberSet::default(),
            refused: MemberSet::default(),
            rests_us: [0; _],
            sent: cx.now,
            next: cx.now.plus(cx.rto),
            transmissions: 1,
        }
    }

    fn is_too_old(&self, cx: &Cx<'_>) -> bool {
        cx.now.lease_over(self.since.plus(cx.group.terms.lease))
    }

    /// Whether this member has not answered this attempt before a restart of its own.
    fn is_same_process(&mut self, from: Member, nonce: u64) -> bool {
        let known = &mut self.nonces[usize::from(from)];
        if *known == 0 {
            *known = nonce;
        }
        *known == nonce
    }

    fn agree(&mut self, from: Member) {
        let counted = match bugs::is(Bug::AnswersCounted) && self.agreed.contains(from) {
            true => (0..MEMBERS_MAX).find(|member| !self.agreed.contains(*member)).unwrap_or(from),
            false => from,
        };
        self.agreed.insert(counted);
    }

    fn refuse(&mut self, from: Member, rest_us: u32) {
        if !self.agreed.contains(from) {
            self.refused.insert(from);
            self.rests_us[usize::from(from)] = rest_us;
        }
    }

    /// How long until a majority may be open, if records stand in the way; who has not answered may be open now.
    fn shortest_rest(&self, group: &Group) -> Option<Duration> {
        let mut rests = [0; MEMBERS_MAX as usize];
        let rests = &mut rests[..usize::from(group.members.count())];
        for (rest, member) in rests.iter_mut().zip(group.members.iter()) {
            *rest = self.rests_us[usize::from(member)];
        }
        rests.sort_unstable();
        let rest_us = rests[usize::from(group.majority()) - 1];
        (rest_us > 0).then(|| Duration::from_micros(rest_us.into()))
    }

    /// The message that is outstanding.
    fn outstanding(&self) -> Message {
        let (ballot, base) = (self.ballot, self.base);
        match self.phase {
            Phase::Reading { .. } => Message::Read { ballot, base },
            Phase::Writing { token, transmission, .. } => Message::Write { ballot, tenure: base.unwrap_or(ballot), token, transmission },
        }
    }
}
