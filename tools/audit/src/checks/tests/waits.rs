//! Tests of how the wait of a LOCK may end: by WAIT_OVER, by CANCELLED, and each way to say it wrongly.

use super::every_rule::{asks, get, grant, one, queued};
use super::{Audit, count};
use crate::bench::granted;
use crate::rule::Rule;
use cistern_wire::{
    Cancel, CancelOutcome, Cancelled, Generation, LockClass, LockId, LockWait, Mode, ObjectId, Receipt, ReceiptAnswer, Status, WaitOver,
};

/// A grant comes back by a receipt "not held", and the wait is over; `mistake` names what is wrong.
pub(super) fn wait_over(mistake: &str) -> Audit {
    let mut audit = one();
    let wait = if mistake == "no place" { LockWait::Try } else { LockWait::Queue };
    audit.up(0, 5, 1, &[asks(1, 7, Mode::Exclusive, wait)]);
    audit.down(0, 5, 1, &[queued(1, 1)]);
    audit.down(0, 5, 2, &[grant(1, 1, 100)]);
    if mistake != "too soon" {
        audit.up(0, 5, 2, &[Receipt { seq: 1, answer: ReceiptAnswer::NotHeld }.into()]);
    }
    let status = match mistake {
        "reason" => Status::EDEADLK,
        "after a grant" => Status::ESTALE,
        _ => Status::ECANCELED,
    };
    let lock = LockId { object: ObjectId(if mistake == "lock" { 9 } else { 7 }), class: LockClass::Advisory };
    audit.down(0, 5, 3, &[WaitOver { seq: 2, nonce: if mistake == "nobody" { 3 } else { 1 }, lock, status }.into()]);
    if mistake == "grant after it" {
        audit.down(0, 5, 4, &[grant(3, 1, 100)]);
    }
    audit
}

/// A wait is cancelled before anything is granted; `mistake` names what is wrong.
pub(super) fn cancelled(mistake: &str) -> Audit {
    let (mut audit, outcome) = (one(), CancelOutcome::Cancelled);
    let says = |nonce, outcome, generation| Cancelled { serial: 1, echo: 2, nonce, outcome, generation: Generation(generation) }.into();
    audit.up(0, 5, 1, &[if mistake == "no lock" { get(1) } else { asks(1, 7, Mode::Exclusive, LockWait::Queue) }]);
    match mistake {
        "standing" | "another grant" => audit.down(0, 5, 1, &[grant(1, 1, 100)]),
        "answered" => audit.down(0, 5, 1, &[granted(1, 1, 100)]),
        _ => audit.down(0, 5, 1, &[queued(1, 1)]),
    };
    audit.up(0, 5, 2, &[Cancel { serial: 1, nonce: if mistake == "never sent" { 9 } else { 1 } }.into()]);
    let answer = match mistake {
        "another request" => says(2, outcome, 0),
        "generation" => says(1, outcome, 100),
        "no generation" => says(1, CancelOutcome::Granted, 0),
        "no lock" => says(1, CancelOutcome::Granted, 100),
        "never sent" => says(9, CancelOutcome::Granted, 100),
        "another grant" => says(1, CancelOutcome::Granted, 200),
        _ => says(1, outcome, 0),
    };
    audit.down(0, 5, 2, &[answer]);
    if mistake == "answered after it" {
        audit.up(0, 5, 3, &[asks(1, 7, Mode::Exclusive, LockWait::Queue)]);
        audit.down(0, 5, 3, &[granted(1, 3, 100)]);
    }
    audit
}

#[test]
fn wait_may_be_over_before_the_answer_to_its_cancel_is_seen() {
    let mut audit = one();
    audit.up(0, 5, 1, &[asks(1, 7, Mode::Exclusive, LockWait::Queue)]);
    audit.up(0, 5, 2, &[Cancel { serial: 1, nonce: 1 }.into()]);
    let lock = LockId { object: ObjectId(7), class: LockClass::Advisory };
    audit.down(0, 5, 1, &[queued(1, 1), WaitOver { seq: 1, nonce: 1, lock, status: Status::ECANCELED }.into()]);
    assert_eq!((count(&audit, Rule::WaitOver).consistent, count(&audit, Rule::WaitOver).violations), (1, 0));
}

#[test]
fn every_way_to_end_a_wait_wrongly_is_found() {
    let over = ["no place", "too soon", "reason", "after a grant", "lock", "nobody"].map(|mistake| (Rule::WaitOver, mistake));
    let cancels = [
        "standing",
        "another grant",
        "answered",
        "another request",
        "generation",
        "no generation",
        "no lock",
        "never sent",
        "answered after it",
    ]
    .map(|mistake| (Rule::Cancelled, mistake));
    for (rule, mistake) in over.into_iter().chain(cancels).chain([(Rule::GrantHasWaiter, "grant after it")]) {
        let audit = if rule == Rule::Cancelled { cancelled(mistake) } else { wait_over(mistake) };
        assert!(count(&audit, rule).violations > 0, "{}: {mistake}", rule.id());
    }
}
