//! Tests of whose word counts: what is said of a session by somebody else ends nothing of it.

use super::{at_server, broken, clean, count, from, goes_on, held, open};
use crate::bench::{ask, challenge, hello_of};
use crate::rule::Rule;
use crate::vantage::Side;
use crate::{Auditor, Why, bench::Bench};
use cistern_wire::{Claim, FormerClaim, Message, ReclaimComplete, SessionId};

const COOKIE: &[u8] = b"0123456789abcdef";

/// A HELLO of handshake 50 says that the first session is surrendered; `given`: with a cookie that it was given.
fn surrenders(audit: &mut Bench<Auditor>, number: u8, incarnation: u64, given: bool) {
    let former = [FormerClaim { session: SessionId(5), claim: Claim::Surrendered }];
    audit.up(number, 0, 3, &[hello_of(number, 50, incarnation, b"", &former)]);
    if given {
        audit.down(number, 0, 1, &[challenge(50, 3)]);
    }
    audit.up(number, 0, 4, &[hello_of(number, 50, incarnation, COOKIE, &former)]);
}

#[test]
fn surrender_is_believed_from_the_start_of_the_agent_whose_session_it_is_and_from_nobody_else() {
    // Who says so, which start of it, and whether its cookie was given.
    for (number, incarnation, given, believed) in
        [(0, 1, true, true), (1, 1, true, false), (0, 2, true, false), (0, 1, false, false), (1, 1, false, false)]
    {
        let mut audit = held(at_server());
        surrenders(&mut audit, number, incarnation, given);
        let audit = goes_on(audit);
        if believed { clean(&audit) } else { broken(&audit, Rule::PassedInLease) }
    }
}

#[test]
fn surrender_with_a_cookie_that_may_have_been_given_unseen_leaves_the_session_undecidable() {
    let mut audit = held(from(Side::Between, true));
    surrenders(&mut audit, 0, 1, false);
    open(&goes_on(audit), Rule::PassedInLease, Why::Vantage);
}

#[test]
fn session_is_not_superseded_by_a_hello_without_a_cookie_of_its_own() {
    let mut audit = held(at_server());
    surrenders(&mut audit, 0, 2, false);
    audit.up(0, 5, 2, &[crate::bench::keep_alive(1)]);
    audit.down(0, 5, 2, &[super::nack(2)]);
    broken(&audit, Rule::FailureNotices);
}

#[test]
fn completed_reclaim_of_somebody_elses_session_ends_nothing_of_it() {
    // The first session is of before the start; its own agent, or another, says that it has reclaimed what it wants.
    for (number, believed) in [(0, true), (1, false)] {
        let mut audit = held(at_server());
        audit.pass(100);
        audit.open_at(number, 8, 2);
        audit.up(number, 8, 1, &[Message::from(ReclaimComplete { ask: ask(1), from: SessionId(5) })]);
        let story = audit.taker.story();
        assert_eq!(story.session(SessionId(5)).unwrap().given_up.is_some(), believed);
        assert_eq!(count(&audit, Rule::Grace).violations, 0);
    }
}
