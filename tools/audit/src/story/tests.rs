//! Tests of the story: what is known of leases, locks and answers after each datagram.

use super::*;
use crate::bench::{Bench, LOCK, TAU, alive, granted, keep_alive, lock};
use crate::event::{Cause, IntervalKind, Renewal};
use cistern_wire::{Fate, Generation, Keep, List, Nack, NackReason, Release, ReleaseItem};

fn story(side: Side) -> Bench<Story> {
    let vantage = Vantage { side, complete: true, ..Vantage::default() };
    Bench::new(Story::new(vantage, Terms::default()).with_intervals(), |story, passage| story.take(passage))
}

fn renewals(story: &Story) -> Vec<Renewal> {
    let renewal = |event: &Event| match &event.what {
        What::Answer(answer) => answer.renewal,
        _ => None,
    };
    story.events().iter().filter_map(renewal).collect()
}

#[test]
fn lease_on_the_agents_host_is_exactly_tau_from_the_transmission_echoed() {
    let mut bench = story(Side::Agent);
    bench.open(0, 5);
    bench.pass(100);
    bench.up(0, 5, 1, &[keep_alive(1)]);
    let sent = bench.now;
    bench.pass(30);
    bench.down(0, 5, 1, &[alive(1, 1)]);
    let renewal = renewals(&bench.taker)[0];
    assert_eq!((renewal.from_earliest, renewal.from_latest), (sent, sent));
    assert_eq!((renewal.certain_until, renewal.possible_until), (sent + TAU, sent + TAU));
}

#[test]
fn lease_on_the_way_is_certain_only_as_far_as_a_receipt_proves_when_it_was_asked_for() {
    let mut bench = story(Side::Server);
    bench.open(0, 5);
    let opened = bench.now;
    bench.pass(1_000);
    bench.up(0, 5, 1, &[keep_alive(1)]);
    let received = bench.now;
    bench.down(0, 5, 1, &[alive(1, 1)]);
    let renewal = renewals(&bench.taker)[0];
    assert_eq!((renewal.from_earliest, renewal.from_latest), (opened, received));
    assert!(renewal.certain_until < opened + TAU && renewal.possible_until > received + TAU);
}

#[test]
fn answer_is_linked_to_the_transmission_that_it_echoes_and_to_no_other() {
    let mut bench = story(Side::Between);
    bench.open(0, 5);
    bench.up(0, 5, 1, &[lock(1)]);
    bench.up(0, 5, 2, &[lock(1)]);
    let second = bench.frame;
    let retransmitted = bench.taker.events()[0].what.clone();
    assert!(matches!(retransmitted, What::Request { first, changed: false, news: false, .. } if first == second - 1));
    bench.down(0, 5, 1, &[granted(1, 2, 100)]);
    let What::Answer(answer) = &bench.taker.events()[0].what else { panic!("an answer") };
    assert!(matches!(answer.cause, Cause::Seen { frame, .. } if frame == second));
    bench.down(0, 5, 2, &[alive(1, 2)]);
    let What::Answer(answer) = &bench.taker.events()[0].what else { panic!("an answer") };
    assert_eq!(answer.cause, Cause::Other { frame: second });
    bench.down(0, 5, 3, &[alive(1, 9)]);
    let What::Answer(answer) = &bench.taker.events()[0].what else { panic!("an answer") };
    assert_eq!(answer.cause, Cause::Unseen);
}

#[test]
fn lock_that_goes_to_another_without_being_given_back_is_passed_and_one_given_back_is_not() {
    for gives_back in [false, true] {
        let mut bench = story(Side::Server);
        bench.open(0, 5);
        bench.open(1, 6);
        bench.up(0, 5, 1, &[lock(1)]);
        bench.down(0, 5, 1, &[granted(1, 1, 100)]);
        let until = bench.taker.session(SessionId(5)).and_then(Session::possible_until);
        if gives_back {
            let items = [ReleaseItem { lock: LOCK, generation: Generation(100), keep: Keep::Nothing }];
            bench.up(0, 5, 2, &[Release { serial: 1, items: List::of(&items) }.into()]);
        }
        bench.pass(500);
        bench.up(1, 6, 1, &[lock(1)]);
        bench.down(1, 6, 1, &[granted(1, 1, 200)]);
        let passed = bench.taker.events().iter().find_map(|event| match &event.what {
            What::Passed { holder, possible_until, .. } => Some((*holder, *possible_until)),
            _ => None,
        });
        assert_eq!(passed, (!gives_back).then_some((SessionId(5), until)));
    }
}

#[test]
fn session_whose_beginning_was_not_seen_promises_nothing_unless_told() {
    let mut bench = story(Side::Server);
    bench.up(0, 5, 70, &[keep_alive(9)]);
    bench.down(0, 5, 40, &[alive(9, 70)]);
    assert!(renewals(&bench.taker).is_empty() && !bench.taker.is_whole(SessionId(5)));
    assert_eq!((bench.taker.tally().sessions, bench.taker.tally().begun_before), (1, 1));
    let terms = Terms { tau: Some(TAU), ..Terms::default() };
    let mut bench = Bench::new(Story::new(Vantage::default(), terms), |story, passage| story.take(passage));
    bench.up(0, 5, 70, &[keep_alive(9)]);
    bench.down(0, 5, 40, &[alive(9, 70)]);
    assert_eq!(renewals(&bench.taker).len(), 1);
}

#[test]
fn intervals_join_renewals_and_end_where_the_lock_is_given_back() {
    let mut bench = story(Side::Agent);
    bench.open(0, 5);
    let opened = bench.now;
    for n in 1..5 {
        bench.pass(500);
        bench.up(0, 5, n, &[keep_alive(n)]);
        bench.down(0, 5, n, &[alive(n, n)]);
    }
    let renewed = bench.now;
    bench.up(0, 5, 5, &[lock(1)]);
    bench.down(0, 5, 5, &[granted(1, 5, 100)]);
    let nack = Nack { nonce: 0, echo: 5, reason: NackReason::TimingOut, fate: Fate::Unknown };
    bench.down(0, 5, 6, &[nack.into()]);
    let all = bench.taker.intervals();
    let lease = all.iter().find(|interval| interval.kind == IntervalKind::Lease).unwrap();
    assert_eq!((lease.from, lease.until), (opened, Some(renewed + TAU)));
    assert!(all.iter().any(|interval| interval.kind == IntervalKind::TimingOut));
    assert!(all.iter().any(|interval| matches!(interval.kind, IntervalKind::Hold { lock: LOCK, .. }) && interval.until.is_none()));
}

#[test]
fn what_is_no_datagram_is_counted_by_who_exchanged_it() {
    let mut bench = story(Side::Server);
    bench.open(0, 5);
    bench.bytes(crate::bench::server(), crate::bench::agent(0), b"garbage that is long enough for a header");
    assert_eq!(bench.taker.events().len(), 1);
    bench.bytes("192.0.2.1:53".parse().unwrap(), "192.0.2.2:53".parse().unwrap(), b"a question of another protocol");
    assert_eq!((bench.taker.events().len(), bench.taker.tally().foreign), (0, 1));
    assert_eq!(bench.taker.tally().unreadable["bad_magic"], 1);
}
