//! Tests of a capture whose clock was set back: no span across that place is believed, whatever it looks like.

use super::{at_server, broken, clean, count, goes_on, held, open};
use crate::bench::{Bench, WAIT, alive, keep_alive};
use crate::rule::Rule;
use crate::{Auditor, Why};
use std::time::Duration;

/// The clock is set back by a second between two datagrams.
fn set_back(audit: &mut Bench<Auditor>) {
    for n in [8, 9] {
        audit.up(1, 6, n, &[keep_alive(n)]);
        audit.down(1, 6, n, &[alive(n, n)]);
        audit.now -= Duration::from_secs(9 - n);
    }
}

#[test]
fn wait_that_only_looks_short_because_the_clock_was_set_back_is_no_violation() {
    let mut audit = held(at_server());
    audit.now += WAIT;
    set_back(&mut audit);
    open(&goes_on(audit), Rule::PassedInLease, Why::Clock);
}

#[test]
fn wait_that_looks_long_enough_by_a_clock_that_was_set_is_not_called_consistent() {
    let mut audit = held(at_server());
    // Forward, unseen, and back.
    audit.now += Duration::from_secs(10);
    set_back(&mut audit);
    let audit = goes_on(audit);
    open(&audit, Rule::PassedInLease, Why::Clock);
    assert_eq!(count(&audit, Rule::PassedInLease).consistent, 0);
}

#[test]
fn spans_that_begin_after_the_clock_was_set_back_are_judged() {
    let mut audit = held(at_server());
    set_back(&mut audit);
    audit.up(0, 5, 2, &[keep_alive(1)]);
    audit.down(0, 5, 2, &[alive(1, 2)]);
    broken(&goes_on(audit), Rule::PassedInLease);
    let mut audit = held(at_server());
    set_back(&mut audit);
    audit.up(0, 5, 2, &[keep_alive(1)]);
    audit.down(0, 5, 2, &[alive(1, 2)]);
    audit.now += WAIT;
    clean(&goes_on(audit));
}
