//! One resource at one process: acceptor and proposer, and what goes between them and the other members.
//!
//! A message to all members is handled here by the own acceptor at once, and its answer by the own proposer.

use crate::acceptor::{Acceptor, Record};
use crate::ballot::{Ballot, Member, MemberSet};
use crate::bugs::{self, Bug};
use crate::message::Message;
use crate::proposer::{Ownership, Proposer, Step};
use crate::terms::Group;
use alloc::vec::Vec;
use cistern_link::Instant;
use core::time::Duration;

/// What every step of an instance is given.
#[derive(Clone, Copy, Debug)]
pub struct Cx<'a> {
    /// The group, and who this is.
    pub group: &'a Group,
    /// Read after the receive call returned, or before the timers run.
    pub now: Instant,
    /// How long to wait for an answer.
    pub rto: Duration,
    /// Random bits, for back-off.
    pub random: u64,
    /// The least token of a new tenure: the wall clock in milliseconds × 256.
    pub least_token: u64,
    /// The most that an acceptor may take on record now: a larger token would be forgotten by a restart.
    pub token_max: u64,
    /// The synchronised clock, in microseconds since 1970; means nothing in the default mode.
    pub clock_us: u64,
}

impl Cx<'_> {
    /// A span below `most`, drawn from what the driver's seed gives.
    pub(crate) fn random_part(&self, most: Duration) -> Duration {
        most.mul_f64((self.random % 1_024) as f64 / 1_024.0)
    }
}

/// Messages to be sent, and to whom.
pub type Outbox = Vec<(MemberSet, Message)>;

/// What a step changed for who wants the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is owned from now on.
    Acquired(Ownership),
    /// It was; its lease ended.
    Lapsed(Ownership),
    /// Not yet: records of another owner stand in the way.
    Held,
}

/// One resource at one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Instance {
    acceptor: Acceptor,
    proposer: Proposer,
    leaving: Option<Leaving>,
}

/// A tenure that was given up, until everybody knows.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Leaving {
    tenure: Ballot,
    successor: Option<Member>,
    told: MemberSet,
    next: Instant,
    /// Records of the tenure end by themselves.
    ends: Instant,
}

impl Instance {
    /// An instance whose ballots begin above this round, and tokens above this floor.
    pub(crate) fn above(round: u64, floor: u64) -> Self {
        let mut instance = Self { acceptor: Acceptor::above(floor), ..Self::default() };
        instance.proposer.heard(round);
        instance
    }

    /// The highest round that it used or heard of.
    pub(crate) const fn round(&self) -> u64 {
        self.proposer.round()
    }

    /// Wants the resource: acquires it as soon as it can, and keeps it.
    pub fn want(&mut self, cx: &Cx<'_>) {
        if !self.proposer.wanted {
            self.proposer.wanted = true;
            // Whoever has just let it go lets the others ask first.
            let wait = if self.leaving.is_some() { cx.rto + cx.random_part(cx.rto) } else { Duration::ZERO };
            self.proposer.attempt_at(cx.now.plus(wait));
        }
    }

    /// Begins an attempt now: a fresh one, or a renewal.
    pub fn attempt(&mut self, cx: &Cx<'_>, out: &mut Outbox) {
        self.lapse(cx);
        self.proposer.heard(self.acceptor.promised().round);
        let message = self.proposer.begin(cx);
        self.send_all(cx, message, out);
    }

    /// No longer wants the resource. An owner has stopped before it calls this: the next one may follow at once.
    pub fn release(&mut self, cx: &Cx<'_>, successor: Option<Member>, out: &mut Outbox) {
        self.proposer.wanted = false;
        let owned = match bugs::is(Bug::ReleaseBeforeStopping) {
            true => self.proposer.owned(cx.now),
            false => self.proposer.stop(),
        };
        if let Some(Ownership { tenure, .. }) = owned {
            self.leaving = Some(Leaving {
                tenure,
                successor,
                told: MemberSet::one(cx.group.me),
                next: cx.now.plus(cx.rto),
                ends: cx.now.plus(cx.group.terms.restart_wait()),
            });
            self.send_all(cx, Message::Release { tenure, successor }, out);
        } else if let Some(message) = self.proposer.abandon() {
            self.send_all(cx, message, out);
        }
    }

    /// Another list of members counts from now on. Promises and records are kept, because a majority of either list has a member of the other's
    /// that remembers; whatever the former list has not agreed to is begun anew.
    pub fn change_list(&mut self) {
        //= docs/flease.md#changes-of-the-list
        //# Promises and records MUST be kept over a change of the list.
        if bugs::is(Bug::ForgottenWithList) || cistern_link::bugs::is(cistern_link::bugs::Bug::C9) {
            self.acceptor = Acceptor::default();
        }
        self.proposer.change_list();
    }

    /// This process is no member any more: it owns nothing and wants nothing.
    pub(crate) fn leave(&mut self) {
        self.proposer.wanted = false;
        self.proposer.stop();
        self.proposer.change_list();
        self.leaving = None;
    }

    /// Whether the resource is owned, and was granted or renewed by a majority of the present list: who owns it may then change the list again.
    #[must_use]
    pub fn is_agreed(&self, now: Instant) -> bool {
        //= docs/flease.md#changes-of-the-list
        //# The list MUST NOT be changed but by an owner whose ownership was granted or renewed under its newest number.
        self.owned(now).is_some() && (self.proposer.is_agreed || bugs::is(Bug::ListChangedAtOnce))
    }

    /// Takes a message of another member.
    pub fn receive(&mut self, cx: &Cx<'_>, from: Member, nonce: u64, message: Message, out: &mut Outbox) -> Option<Change> {
        let lapsed = self.lapse(cx);
        if let Some(answer) = self.asked(cx, message) {
            out.push((MemberSet::one(from), answer));
            return lapsed;
        }
        if let Message::Released { tenure } = message {
            self.released(cx, from, tenure);
            return lapsed;
        }
        let step = self.proposer.answer(cx, from, nonce, message);
        self.follow(cx, step, out).or(lapsed)
    }

    /// Does what is due.
    pub fn due(&mut self, cx: &Cx<'_>, out: &mut Outbox) -> Option<Change> {
        let lapsed = self.lapse(cx);
        if let Some(leaving) = &mut self.leaving {
            if cx.now.waited(leaving.ends) {
                self.leaving = None;
            } else if cx.now.lease_over(leaving.next) {
                leaving.next = cx.now.plus(cx.rto * 2);
                let left = cx.group.others().without(leaving.told);
                out.push((left, Message::Release { tenure: leaving.tenure, successor: leaving.successor }));
            }
        }
        self.proposer.heard(self.acceptor.promised().round);
        let already = self.proposer.agreed_members();
        match self.proposer.due(cx) {
            // Sent again: who has answered does not need it.
            Step::Send(message) if already.count() > 0 => {
                out.push((cx.group.others().without(already), message));
                lapsed
            }
            step => self.follow(cx, step, out).or(lapsed),
        }
    }

    /// When [`Self::due`] has something to do.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        let leaving = self.leaving.as_ref().map(|leaving| leaving.next.min(leaving.ends));
        [self.proposer.deadline(now), leaving].into_iter().flatten().reduce(Instant::min)
    }

    /// The ownership, if it is certain now.
    #[must_use]
    pub fn owned(&self, now: Instant) -> Option<Ownership> {
        self.proposer.owned(now)
    }

    /// The record that this process has, if it lives: information on the owner, never a decision.
    #[must_use]
    pub fn record(&self, now: Instant) -> Option<Record> {
        self.acceptor.live(now)
    }

    /// The ballot below which this process takes nothing.
    #[must_use]
    pub const fn promised(&self) -> Ballot {
        self.acceptor.promised()
    }

    pub(crate) fn sent_once(&self, ballot: Ballot) -> Option<Instant> {
        self.proposer.sent_once(ballot)
    }

    /// Whether this process wants the resource or tells others that it no longer does.
    pub(crate) const fn is_busy(&self) -> bool {
        self.proposer.wanted || self.leaving.is_some()
    }

    /// Whether others are still being told of a release.
    pub(crate) const fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }

    fn lapse(&mut self, cx: &Cx<'_>) -> Option<Change> {
        let owned = self.proposer.any_owned();
        self.proposer.lapse(cx.now).then(|| Change::Lapsed(owned.expect("what lapses was owned")))
    }

    /// What the acceptor answers.
    fn asked(&mut self, cx: &Cx<'_>, message: Message) -> Option<Message> {
        match message {
            Message::Read { ballot, base } => Some(self.acceptor.read(cx, ballot, base)),
            //= docs/flease.md#tokens
            //# A member MUST NOT answer a WRITE whose token is above its durable reservation.
            Message::Write { token, .. } if token > cx.token_max => None,
            Message::Write { ballot, tenure, token, transmission } => Some(self.acceptor.write(cx, ballot, tenure, token, transmission)),
            Message::Release { tenure, successor } => {
                if self.acceptor.release(tenure) {
                    let wait = match successor {
                        Some(member) if member == cx.group.me => Duration::ZERO,
                        Some(_) => cx.group.terms.lease / 2,
                        None => cx.random_part(cx.rto),
                    };
                    self.proposer.attempt_at(cx.now.plus(wait));
                }
                Some(Message::Released { tenure })
            }
            _ => None,
        }
    }

    fn released(&mut self, cx: &Cx<'_>, from: Member, tenure: Ballot) {
        if let Some(leaving) = &mut self.leaving
            && leaving.tenure == tenure
        {
            leaving.told.insert(from);
            if cx.group.others().without(leaving.told).count() == 0 {
                self.leaving = None;
            }
        }
    }

    /// Sends to every member, this one included, and follows what comes of the own answer.
    fn send_all(&mut self, cx: &Cx<'_>, message: Message, out: &mut Outbox) -> Option<Change> {
        let others = cx.group.others();
        if others.count() > 0 {
            out.push((others, message));
        }
        let answer = self.asked(cx, message)?;
        let step = self.proposer.answer(cx, cx.group.me, cx.group.nonce, answer);
        self.follow(cx, step, out)
    }

    fn follow(&mut self, cx: &Cx<'_>, step: Step, out: &mut Outbox) -> Option<Change> {
        match step {
            Step::None | Step::Renewed => None,
            Step::Send(message) => self.send_all(cx, message, out),
            Step::Lost { freed, is_held } => {
                let change = freed.and_then(|message| self.send_all(cx, message, out));
                is_held.then_some(Change::Held).or(change)
            }
            Step::Acquired => self.proposer.any_owned().map(Change::Acquired),
        }
    }
}
