//! Tests of whose word counts: what is said of a session by somebody else ends nothing of it.

use super::{at_server, broken, clean, count, from, goes_on, held, open};
use crate::bench::{LOCK, ask, challenge, confirm, hello_of, welcome};
use crate::rule::Rule;
use crate::vantage::Side;
use crate::{Auditor, Why, bench::Bench};
use cistern_wire::{
    Ack, Claim, FormerClaim, Generation, List, Message, Mode, Reclaim, ReclaimComplete, ReclaimItem, Reclaimed, ReclaimedItem, Reply,
    SessionId, Status,
};

const COOKIE: &[u8] = b"0123456789abcdef";

/// CONFIRM of session 50, which such a start of an agent is offered, says that the first session is surrendered.
fn surrenders(audit: &mut Bench<Auditor>, number: u8, incarnation: u64) {
    audit.up(number, 0, 3, &[hello_of(number, 50, incarnation, b"")]);
    audit.down(number, 0, 1, &[challenge(50, 3)]);
    audit.up(number, 0, 4, &[hello_of(number, 50, incarnation, COOKIE)]);
    audit.down(number, 0, 1, &[welcome(50, 4, 50, 1)]);
    audit.up(number, 50, 0, &[confirm(&[FormerClaim { session: SessionId(5), claim: Claim::Surrendered }])]);
}

#[test]
fn surrender_is_believed_from_the_start_of_the_agent_whose_session_it_is_and_from_nobody_else() {
    // Who says so, and which start of it.
    for (number, incarnation, believed) in [(0, 1, true), (1, 1, false), (0, 2, false)] {
        let mut audit = held(at_server());
        surrenders(&mut audit, number, incarnation);
        let audit = goes_on(audit);
        if believed { clean(&audit) } else { broken(&audit, Rule::PassedInLease) }
    }
}

#[test]
fn surrender_by_a_session_of_nobody_known_leaves_the_session_undecidable() {
    let mut audit = held(from(Side::Between, true));
    audit.up(0, 50, 0, &[confirm(&[FormerClaim { session: SessionId(5), claim: Claim::Surrendered }])]);
    open(&goes_on(audit), Rule::PassedInLease, Why::Late);
}

#[test]
fn session_is_superseded_by_confirm_and_by_nothing_before_it() {
    for confirmed in [false, true] {
        let mut audit = held(at_server());
        audit.up(0, 0, 3, &[hello_of(0, 50, 2, COOKIE)]);
        audit.down(0, 0, 1, &[welcome(50, 3, 50, 1)]);
        if confirmed {
            audit.up(0, 50, 0, &[confirm(&[])]);
        }
        audit.up(0, 5, 2, &[crate::bench::keep_alive(1)]);
        audit.down(0, 5, 2, &[super::nack(2)]);
        assert_eq!(count(&audit, Rule::FailureNotices).violations > 0, !confirmed);
    }
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

#[test]
fn reclaims_from_two_sessions_that_are_answered_in_one_datagram_are_told_apart() {
    let mut audit = held(at_server());
    audit.pass(100);
    audit.open_at(0, 7, 2);
    audit.pass(100);
    audit.open_at(0, 8, 3);
    let (lock, generation) = (LOCK, Generation(100));
    let items = [ReclaimItem { lock, mode: Mode::Exclusive, generation, first: generation, run: 10, version: 0 }];
    let of = |nonce, from, items| Message::from(Reclaim { ask: ask(nonce), from: SessionId(from), items });
    audit.up(0, 8, 2, &[of(1, 7, List::of(&[])), of(2, 5, List::of(&items))]);
    let items = [ReclaimedItem { lock, generation, status: Status::OK, version: 4 }];
    let done = |nonce, items| Message::from(Ack { nonce, echo: 2, reply: Reply::Reclaimed(Reclaimed { items }) });
    audit.down(0, 8, 2, &[done(1, List::of(&[])), done(2, List::of(&items))]);
    clean(&audit);
    assert_eq!(count(&audit, Rule::Reclaim).consistent, 1);
}
