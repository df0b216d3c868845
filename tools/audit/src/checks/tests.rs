//! Tests of the rules: each is kept by sound traffic, and broken by the least that breaks it.

mod bounds;
mod clock;
mod every_rule;
mod waits;
mod words;

use crate::bench::{Bench, LOCK, WAIT, agent, alive, ask, challenge, datagram, granted, hello, keep_alive, lock, server, welcome};
use crate::rule::Rule;
use crate::vantage::{Side, Terms, Vantage};
use crate::{Auditor, Count, Why};
use cistern_wire::{
    Ack, Bytes8, Demand, EndReason, EndSession, Fate, Generation, GetAttr, Grant, Hint, Keep, List, LockClass, LockId, Message, Mode, Nack,
    NackReason, ObjectId, Receipt, ReceiptAnswer, Release, ReleaseItem, Reply, ServerStatus, SessionId, Want,
};

type Audit = Bench<Auditor>;

fn from(side: Side, complete: bool) -> Audit {
    let vantage = Vantage { side, inside: true, complete, clock_ppm: 0 };
    let terms = Terms { no_evictions: true, no_last_heard: true, ..Terms::default() };
    Bench::new(Auditor::new(vantage, terms), |auditor, passage| {
        auditor.take(passage);
    })
}

fn at_server() -> Audit {
    from(Side::Server, true)
}

fn count(audit: &Audit, rule: Rule) -> Count {
    audit.taker.report().rules.into_iter().find(|(other, _)| *other == rule).unwrap().1
}

fn clean(audit: &Audit) {
    let report = audit.taker.report();
    assert!(report.is_clean(), "{report}");
}

fn broken(audit: &Audit, rule: Rule) {
    let report = audit.taker.report();
    assert_eq!((count(audit, rule).violations, report.found), (1, 1), "{report}");
}

fn open(audit: &Audit, rule: Rule, why: Why) {
    clean(audit);
    assert!(count(audit, rule).undecidable.contains_key(&why), "{}", audit.taker.report());
}

fn nack(echo: u64) -> Message<'static> {
    Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()
}

fn release(generation: u64) -> Vec<u8> {
    let items = [ReleaseItem { lock: LOCK, generation: Generation(generation), keep: Keep::Nothing }];
    datagram(false, 5, 2, &[Release { serial: 1, items: List::of(&items) }.into()])
}

/// Two sessions; the first holds the lock.
fn held(mut audit: Audit) -> Audit {
    audit.open(0, 5);
    audit.open(1, 6);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    audit
}

/// The second session is granted the lock now.
fn goes_on(mut audit: Audit) -> Audit {
    audit.up(1, 6, 1, &[lock(1)]);
    audit.down(1, 6, 1, &[granted(1, 1, 200)]);
    audit
}

#[test]
fn lock_that_passes_after_its_release_or_after_t_is_clean() {
    let mut audit = held(at_server());
    audit.bytes(agent(0), server(), &release(100));
    clean(&goes_on(audit));
    let mut audit = held(at_server());
    audit.now += WAIT;
    clean(&goes_on(audit));
}

#[test]
fn lock_that_passes_within_the_lease_is_a_violation_only_where_a_release_cannot_be_missing() {
    broken(&goes_on(held(at_server())), Rule::PassedInLease);
    open(&goes_on(held(from(Side::Server, false))), Rule::PassedInLease, Why::Incomplete);
    let mut audit = held(at_server());
    audit.pass(2_020);
    broken(&goes_on(audit), Rule::PassedInLease);
    let mut audit = held(at_server());
    audit.bytes(agent(0), server(), &release(99));
    audit.up(1, 6, 1, &[lock(1)]);
    audit.down(1, 6, 1, &[granted(1, 1, 200)]);
    assert_eq!(count(&audit, Rule::PassedInLease).violations, 1, "a release of another generation frees nothing");
}

#[test]
fn wait_on_the_servers_clock_may_look_shorter_by_delta_elsewhere() {
    let mut audit = held(from(Side::Between, true));
    audit.pass(2_002);
    clean(&goes_on(audit));
    let mut audit = held(from(Side::Between, true));
    audit.pass(1_999);
    broken(&goes_on(audit), Rule::PassedInLease);
}

#[test]
fn session_that_is_renewed_after_its_lock_was_stolen_is_a_violation() {
    let mut audit = held(at_server());
    audit.now += WAIT;
    let mut audit = goes_on(audit);
    audit.up(0, 5, 2, &[keep_alive(1)]);
    audit.down(0, 5, 2, &[alive(1, 2)]);
    broken(&audit, Rule::PassedInLease);
}

#[test]
fn renewal_after_a_nack_is_a_violation_whatever_order_they_are_captured_in() {
    for (first, second) in [(2, 3), (3, 2)] {
        let mut audit = from(Side::Between, false);
        audit.open(0, 5);
        audit.up(0, 5, 1, &[keep_alive(1)]);
        for number in [first, second] {
            let message = if number == 2 { nack(1) } else { alive(1, 1) };
            audit.down(0, 5, number, &[message]);
        }
        broken(&audit, Rule::NoRenewal);
    }
    let mut audit = from(Side::Between, false);
    audit.open(0, 5);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 3, &[nack(1)]);
    audit.down(0, 5, 2, &[alive(1, 1)]);
    clean(&audit);
}

#[test]
fn echo_of_another_message_is_a_violation_and_of_an_unseen_one_only_in_a_complete_capture() {
    let mut audit = from(Side::Between, false);
    audit.open(0, 5);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.down(0, 5, 1, &[alive(1, 1)]);
    broken(&audit, Rule::HasCause);
    for complete in [false, true] {
        let mut audit = from(Side::Server, complete);
        audit.open(0, 5);
        audit.down(0, 5, 1, &[alive(1, 9)]);
        if complete { broken(&audit, Rule::HasCause) } else { open(&audit, Rule::HasCause, Why::Incomplete) }
    }
    let mut audit = at_server();
    audit.up(0, 5, 8, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[alive(1, 9)]);
    open(&audit, Rule::HasCause, Why::Late);
}

#[test]
fn copies_and_reordering_of_a_sound_exchange_are_clean_from_every_vantage() {
    for side in [Side::Server, Side::Agent, Side::Between] {
        let mut audit = from(side, false);
        audit.open(0, 5);
        let ups: Vec<Vec<u8>> = (1..6).map(|n| datagram(false, 5, n, &[keep_alive(n)])).collect();
        for up in ups.iter().rev().chain(&ups) {
            audit.bytes(agent(0), server(), up);
        }
        let downs: Vec<Vec<u8>> = (1..6).map(|n| datagram(true, 5, n, &[alive(n, n)])).collect();
        for down in downs.iter().rev().chain(&downs) {
            audit.bytes(server(), agent(0), down);
        }
        clean(&audit);
    }
}

#[test]
fn second_answer_to_one_transmission_is_a_violation_and_a_copy_of_the_answer_is_none() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[alive(1, 1)]);
    audit.down(0, 5, 1, &[alive(1, 1)]);
    clean(&audit);
    audit.down(0, 5, 2, &[alive(1, 1)]);
    broken(&audit, Rule::AnsweredOnce);
}

#[test]
fn keep_alive_that_comes_before_a_request_is_answered_before_it() {
    for late in [false, true] {
        let mut audit = at_server();
        audit.open(0, 5);
        let (first, second) = if late { (2, 1) } else { (1, 2) };
        let ups = [(first, keep_alive(1)), (second, lock(1))];
        let order: &[usize] = if late { &[1, 0] } else { &[0, 1] };
        order.iter().for_each(|n| audit.up(0, 5, ups[*n].0, &[ups[*n].1]));
        audit.down(0, 5, 1, &[granted(1, second, 100)]);
        if late { clean(&audit) } else { broken(&audit, Rule::KeepAliveAnswered) }
    }
}

#[test]
fn request_under_a_used_nonce_and_second_result_are_violations() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    audit.up(0, 5, 2, &[ServerStatus { ask: ask(1) }.into()]);
    broken(&audit, Rule::RequestUnchanged);
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.up(0, 5, 2, &[lock(1)]);
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    audit.down(0, 5, 2, &[granted(1, 2, 100)]);
    clean(&audit);
    audit.down(0, 5, 3, &[granted(1, 2, 200)]);
    assert_eq!(count(&audit, Rule::OneResult).violations, 1);
}

#[test]
fn result_and_answer_of_one_outcome_differ_in_grants_only() {
    use cistern_wire::{Attr, CacheGrant, Changed, Effect, RequestResult, SetAttr, SetMask, Terms as Named};
    let attr = Attr { object: ObjectId(7), version: 4, ..Attr::FILE };
    let given = CacheGrant { mode: Want::Shared, generation: Generation(100) };
    let effects = |version, grant| [Effect { before: 3, attr: Attr { version, ..attr }, grant }];
    let (with, without, other) = (effects(4, given), effects(4, CacheGrant::NONE), effects(5, CacheGrant::NONE));
    let reply = |effects| Reply::Changed(Changed { effects });
    let (mask, ask) = (SetMask { bits: 1 }, ask(1));
    let set = SetAttr { ask, object: ObjectId(7), mask, mode: 0, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Named::NONE };
    let mut audit = from(Side::Agent, true);
    audit.open(0, 5);
    audit.up(0, 5, 1, &[set.into()]);
    audit.down(0, 5, 2, &[RequestResult { nonce: 1, reply: reply(List::of(&without)) }.into()]);
    audit.down(0, 5, 1, &[Ack { nonce: 1, echo: 1, reply: reply(List::of(&with)) }.into()]);
    clean(&audit);
    audit.down(0, 5, 3, &[RequestResult { nonce: 1, reply: reply(List::of(&other)) }.into()]);
    assert_eq!(count(&audit, Rule::OneResult).violations, 1);
}

#[test]
fn reply_of_another_kind_than_was_asked_for_is_a_violation() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[GetAttr { ask: ask(1), object: ObjectId(7), want: Want::Nothing }.into()]);
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    broken(&audit, Rule::ReplyFits);
}

#[test]
fn generation_that_is_not_larger_than_what_was_granted_before_the_question_is_a_violation() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    audit.bytes(agent(0), server(), &release(100));
    audit.up(0, 5, 3, &[lock(2)]);
    audit.down(0, 5, 2, &[granted(2, 3, 109)]);
    assert_eq!(count(&audit, Rule::GenerationsGrow).violations, 1);
    assert_eq!(count(&audit, Rule::TokensOnce).violations, 1, "and its tokens were granted before");
}

#[test]
fn what_a_downgrade_leaves_has_a_larger_generation_than_what_was_given_back() {
    use cistern_wire::{Released, ReleasedItem};
    for (now, kept) in [(200, true), (100, false)] {
        let mut audit = held(at_server());
        let (generation, keep) = (Generation(100), Keep::Shared);
        audit.up(0, 5, 2, &[Release { serial: 1, items: List::of(&[ReleaseItem { lock: LOCK, generation, keep }]) }.into()]);
        let items = [ReleasedItem { lock: LOCK, generation, keep, now: Generation(now) }];
        audit.down(0, 5, 2, &[Released { serial: 1, echo: 2, items: List::of(&items) }.into()]);
        if kept {
            clean(&audit);
        } else {
            broken(&audit, Rule::GenerationsGrow);
        }
        assert!(count(&audit, Rule::GenerationsGrow).undecidable.is_empty());
    }
}

#[test]
fn second_grant_for_one_wait_and_grant_after_a_cancellation_are_violations() {
    let grant = |seq, generation| {
        let (lock, generation) = (LOCK, Generation(generation));
        Message::from(Grant { seq, nonce: 1, lock, mode: Mode::Exclusive, generation, run: 1 })
    };
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[lock(1)]);
    audit.down(0, 5, 1, &[grant(1, 100)]);
    audit.down(0, 5, 2, &[grant(1, 100)]);
    clean(&audit);
    audit.down(0, 5, 3, &[grant(2, 200)]);
    broken(&audit, Rule::GrantHasWaiter);
}

#[test]
fn failure_without_a_notice_in_vain_is_a_violation_unless_somebody_may_have_evicted() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[nack(1)]);
    broken(&audit, Rule::FailureNotices);
    let vantage = Vantage { side: Side::Server, inside: true, complete: true, clock_ppm: 0 };
    let mut audit = Bench::new(Auditor::new(vantage, Terms::default()), |auditor: &mut Auditor, passage| {
        auditor.take(passage);
    });
    audit.open(0, 5);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[nack(1)]);
    open(&audit, Rule::FailureNotices, Why::Evicted);
}

#[test]
fn failure_over_a_demand_may_be_told_only_when_the_lock_comes_back() {
    let lock = LockId { object: ObjectId(7), class: LockClass::Cache };
    let generation = Generation(100);
    let items = [ReleaseItem { lock, generation, keep: Keep::Nothing }];
    for renewed in [false, true] {
        let mut audit = at_server();
        audit.open(0, 5);
        audit.down(0, 5, 1, &[Demand { seq: 1, lock, generation, keep: Keep::Nothing }.into()]);
        audit.up(0, 5, 1, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
        audit.pass(1_000);
        audit.up(0, 5, 2, &[Release { serial: 1, items: List::of(&items) }.into(), keep_alive(1)]);
        if renewed {
            audit.down(0, 5, 2, &[alive(1, 2)]);
        }
        audit.up(0, 5, 3, &[keep_alive(2)]);
        audit.down(0, 5, 3, &[nack(3)]);
        assert_eq!(count(&audit, Rule::FailureNotices).violations, u64::from(renewed), "a session that is renewed had not failed");
    }
}

#[test]
fn session_that_was_given_up_is_refused_until_its_end_is_durable() {
    let mut audit = at_server();
    audit.open(0, 5);
    // The keep-alive was sent first, and is overtaken.
    audit.up(0, 5, 2, &[EndSession { serial: 2, reason: EndReason::Close }.into()]);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[nack(1)]);
    clean(&audit);
}

#[test]
fn stranger_is_sent_less_than_it_sent_and_proves_itself_by_a_cookie_of_its_own() {
    let mut audit = at_server();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[Hint { echo: 1, detail: Bytes8(&[0; 200]) }.into()]);
    assert_eq!(count(&audit, Rule::StrangerSmaller).violations, 1);
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[challenge(5, 1)]);
    audit.up(1, 0, 2, &[hello(0, 5, b"0123456789abcdef")]);
    audit.down(1, 0, 1, &[welcome(5, 2, 5, 1)]);
    broken(&audit, Rule::Cookie);
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[challenge(5, 1)]);
    audit.up(0, 0, 2, &[hello(1, 5, b"0123456789abcdef")]);
    audit.down(0, 0, 1, &[welcome(5, 2, 5, 1)]);
    broken(&audit, Rule::Cookie);
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[welcome(5, 1, 5, 1)]);
    broken(&audit, Rule::Cookie);
}

#[test]
fn grant_after_a_start_waits_for_former_holders_until_t() {
    for (ms, kept) in [(500, false), (2_021, true)] {
        let mut audit = held(at_server());
        let died = audit.now;
        audit.pass(100);
        audit.open_at(2, 8, 2);
        audit.now = died + std::time::Duration::from_millis(ms);
        audit.up(
            2,
            8,
            1,
            &[Message::Lock(cistern_wire::Lock {
                ask: ask(1),
                object: ObjectId(9),
                mode: Mode::Shared,
                wait: cistern_wire::LockWait::Try,
            })],
        );
        let lock = LockId { object: ObjectId(9), class: LOCK.class };
        let granted = cistern_wire::Granted { lock, mode: Mode::Shared, generation: Generation(300), run: 1 };
        audit.down(2, 8, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Granted(granted) }.into()]);
        if kept { clean(&audit) } else { broken(&audit, Rule::Grace) }
    }
}

#[test]
fn start_with_a_lower_incarnation_and_words_of_an_earlier_one_are_violations_only_in_the_servers_own_order() {
    let late = |mut audit: Audit| {
        audit.open_at(0, 5, 1);
        audit.up(0, 5, 1, &[keep_alive(1)]);
        audit.open_at(1, 6, 2);
        audit.down(0, 5, 1, &[alive(1, 1)]);
        audit
    };
    broken(&late(at_server()), Rule::Incarnation);
    open(&late(from(Side::Between, true)), Rule::Incarnation, Why::Vantage);
}

#[test]
fn agent_that_goes_on_after_a_nack_is_accused_only_by_its_own_capture() {
    let goes_on = |mut audit: Audit| {
        audit.open(0, 5);
        audit.up(0, 5, 1, &[keep_alive(1)]);
        audit.down(0, 5, 1, &[nack(1)]);
        audit.up(0, 5, 2, &[lock(1)]);
        audit
    };
    broken(&goes_on(from(Side::Agent, true)), Rule::StopsAfterNack);
    assert_eq!(count(&goes_on(from(Side::Between, true)), Rule::StopsAfterNack).undecidable[&Why::Vantage], 1);
}

#[test]
fn datagram_of_the_servers_own_host_that_does_not_decode_is_its_fault_and_elsewhere_the_ways() {
    for (side, fault) in [(Side::Server, true), (Side::Between, false)] {
        let mut audit = from(side, true);
        audit.open(0, 5);
        // A sound checksum over a kind that does not exist.
        let mut bytes = datagram(true, 5, 1, &[alive(1, 1)]);
        let end = bytes.len() - 4;
        bytes[20] = 0xBF;
        let sum = checksum(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_be_bytes());
        audit.bytes(server(), agent(0), &bytes);
        if fault { broken(&audit, Rule::Decodes) } else { open(&audit, Rule::Decodes, Why::Foreign) }
    }
}

/// CRC-32, bit by bit.
fn checksum(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| if crc & 1 == 1 { crc >> 1 ^ 0xEDB8_8320 } else { crc >> 1 };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

#[test]
fn every_rule_has_an_id_of_its_own_a_statement_and_a_section() {
    let ids: std::collections::BTreeSet<&str> = Rule::ALL.iter().map(|rule| rule.id()).collect();
    assert_eq!(ids.len(), Rule::ALL.len());
    for rule in Rule::ALL {
        assert!(rule.statement().ends_with('.') && !rule.section().is_empty(), "{}", rule.id());
    }
    assert_eq!(SessionId(5).to_string().len(), 16);
}
