//! One process's vote on one resource: what it has promised, and whose lease it has on record.
//!
//! Decides every answer to READ, WRITE and RELEASE. Invariants: while a record lives, nothing but its own tenure changes anything
//! (neither record nor promise); a ballot below the promise gets nothing; a repeated message is answered as the first was.

use crate::ballot::Ballot;
use crate::bugs::{self, Bug};
use crate::instance::Cx;
use crate::message::Message;
use cistern_link::Instant;

/// The state of one acceptor.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Acceptor {
    promised: Ballot,
    record: Option<Record>,
    /// The highest token seen; 0: none is remembered.
    floor: u64,
}

/// A lease on record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Whose: the ballot with which the owner began.
    pub tenure: Ballot,
    /// Of which attempt: the last renewal.
    pub ballot: Ballot,
    /// Of which transmission of its WRITE.
    pub transmission: u32,
    /// Lives until both clocks have reached this.
    pub ends: Instant,
}

impl Acceptor {
    /// One that has forgotten everything but that no token was above `floor`.
    pub(crate) fn above(floor: u64) -> Self {
        Self { floor, ..Self::default() }
    }

    /// The record, if it lives.
    pub(crate) fn live(&self, now: Instant) -> Option<Record> {
        self.record.filter(|record| !now.waited(record.ends))
    }

    pub(crate) const fn promised(&self) -> Ballot {
        self.promised
    }

    pub(crate) fn read(&mut self, cx: &Cx<'_>, ballot: Ballot, base: Option<Ballot>) -> Message {
        let live = self.live(cx.now);
        let own = live.filter(|record| base == Some(record.tenure) || bugs::is(Bug::OwnCountsAsOpen) && record.tenure.same_process(ballot));
        if let Some(record) = live
            && own.is_none()
        {
            if bugs::is(Bug::PromiseUnderRecord) {
                self.promised = self.promised.max(ballot);
            }
            //= docs/flease.md#rules
            //# While a record lives, a READ that does not name its tenure is answered HELD, and MUST NOT raise the promise.
            return self.held(cx, ballot, record);
        }
        if ballot < self.promised {
            return Message::Lower { ballot, promised: self.promised };
        }
        self.promised = ballot;
        match own {
            Some(record) => Message::Own { ballot, tenure: record.tenure },
            None => Message::Open { ballot, floor: self.floor },
        }
    }

    pub(crate) fn write(&mut self, cx: &Cx<'_>, ballot: Ballot, tenure: Ballot, token: u64, transmission: u32) -> Message {
        //= docs/flease.md#rules
        //# A WRITE of another tenure MUST NOT replace the record.
        if let Some(record) = self.live(cx.now)
            && record.tenure != tenure
            && !bugs::is(Bug::LiveRecordReplaced)
        {
            return self.held(cx, ballot, record);
        }
        if ballot < self.promised && !bugs::is(Bug::PromiseNotKept) {
            return Message::Lower { ballot, promised: self.promised };
        }
        let is_repeated = self.live(cx.now).is_some_and(|record| (record.ballot, record.transmission) >= (ballot, transmission));
        if !is_repeated {
            self.promised = self.promised.max(ballot);
            self.record = Some(Record { tenure, ballot, transmission, ends: cx.now.plus(cx.group.terms.record_wait()) });
            self.floor = self.floor.max(token);
        }
        Message::Taken { ballot, transmission }
    }

    /// Frees the record if it is of this tenure; true if it was.
    pub(crate) fn release(&mut self, tenure: Ballot) -> bool {
        let is_named =
            |record: &Record| record.tenure == tenure || bugs::is(Bug::ReleaseOfAnyTenure) && record.tenure.member == tenure.member;
        let Some(record) = self.record.filter(is_named) else { return false };
        self.record = None;
        // A WRITE of the tenure that is still on its way must not bring the record back.
        self.promised = self.promised.max(Ballot { round: record.ballot.round + 1, ..Ballot::NONE });
        true
    }

    fn held(&self, cx: &Cx<'_>, ballot: Ballot, record: Record) -> Message {
        let rest_us = u32::try_from(cx.now.until_waited(record.ends).as_micros()).unwrap_or(u32::MAX);
        Message::Held { ballot, tenure: record.tenure, rest_us, floor: self.floor }
    }
}
