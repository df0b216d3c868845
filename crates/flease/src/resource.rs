//! One resource at one process, in the mode of its group.

use crate::ballot::{Ballot, Member};
use crate::instance::{Change, Cx, Instance, Outbox};
use crate::message::Message;
use crate::proposer::Ownership;
use crate::register::Register;
use cistern_link::Instant;
use core::time::Duration;

/// Durations on each side's clocks, or instants of synchronised ones.
#[derive(Clone, Debug)]
pub(crate) enum Resource {
    Rates(Instance),
    Synchronised(Register),
}

/// Calls the same method of either.
macro_rules! either {
    ($this:expr, $of:ident => $call:expr) => {
        match $this {
            Self::Rates($of) => $call,
            Self::Synchronised($of) => $call,
        }
    };
}

impl Resource {
    /// One whose ballots begin above this round, and tokens above this floor.
    pub(crate) fn above(synchronised: bool, round: u64, floor: u64) -> Self {
        if synchronised { Self::Synchronised(Register::above(floor)) } else { Self::Rates(Instance::above(round, floor)) }
    }

    pub(crate) fn want(&mut self, cx: &Cx<'_>) {
        either!(self, of => of.want(cx));
    }

    pub(crate) fn release(&mut self, cx: &Cx<'_>, successor: Option<Member>, out: &mut Outbox) {
        match self {
            Self::Rates(of) => of.release(cx, successor, out),
            Self::Synchronised(of) => of.release(cx, out),
        }
    }

    /// In the synchronised mode lists do not change.
    pub(crate) fn change_list(&mut self) {
        if let Self::Rates(of) = self {
            of.change_list();
        }
    }

    /// As above.
    pub(crate) fn leave(&mut self) {
        if let Self::Rates(of) = self {
            of.leave();
        }
    }

    pub(crate) fn is_agreed(&self, now: Instant) -> bool {
        matches!(self, Self::Rates(of) if of.is_agreed(now))
    }

    pub(crate) fn receive(&mut self, cx: &Cx<'_>, from: Member, nonce: u64, message: Message, out: &mut Outbox) -> Option<Change> {
        either!(self, of => of.receive(cx, from, nonce, message, out))
    }

    pub(crate) fn due(&mut self, cx: &Cx<'_>, out: &mut Outbox) -> Option<Change> {
        either!(self, of => of.due(cx, out))
    }

    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        either!(self, of => of.deadline(now))
    }

    pub(crate) fn owned(&self, now: Instant) -> Option<Ownership> {
        either!(self, of => of.owned(now))
    }

    /// Who owns it, and for how long yet, as far as this process knows.
    pub(crate) fn owner(&self, now: Instant, clock_us: u64) -> Option<(Member, Duration)> {
        match self {
            Self::Rates(of) => of.record(now).map(|record| (record.tenure.member, now.until_waited(record.ends))),
            Self::Synchronised(of) => {
                let lease = of.value(clock_us)?;
                Some((lease.tenure.member, Duration::from_micros(lease.ends_us - clock_us)))
            }
        }
    }

    pub(crate) fn sent_once(&self, ballot: Ballot) -> Option<Instant> {
        either!(self, of => of.sent_once(ballot))
    }

    pub(crate) const fn round(&self) -> u64 {
        match self {
            Self::Rates(of) => of.round(),
            Self::Synchronised(_) => 0,
        }
    }

    pub(crate) const fn is_busy(&self) -> bool {
        either!(self, of => of.is_busy())
    }

    pub(crate) const fn is_leaving(&self) -> bool {
        either!(self, of => of.is_leaving())
    }
}
