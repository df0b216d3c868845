//! Tests that every rule can be broken: of each the least exchange that breaks it, and the same without the mistake.
//!
//! A rule without an exchange here does not compile.

use super::waits::{cancelled, wait_over};
use super::{Audit, at_server, checksum, count, from, goes_on, held, nack, release};
use crate::bench::{LOCK, agent, alive, ask, challenge, datagram, granted, hello, keep_alive, lock, server, welcome};
use crate::rule::Rule;
use crate::vantage::Side;
use cistern_wire::{
    Ack, Ask, Attr, Bytes8, Bytes16, CacheGrant, Cancel, Challenge, Changed, Claim, Effect, EndReason, EndSession, Fate, FormerClaim,
    FormerFate, Generation, GetAttr, GetXattr, Grant, Granted, Handle, Held, Holder, Keep, List, Lock, LockClass, LockId, LockWait,
    Message, Mode, Nack, NackReason, ObjectId, Probe, Queued, Receipt, ReceiptAnswer, Reclaim, ReclaimItem, Reclaimed, ReclaimedItem,
    Release, ReleaseItem, Reply, ServerStatus, SessionFate, SessionId, SetAttr, SetMask, SetXattr, Standing, Stated, Status, Terms, Want,
    Watch, WatchEvent, Watched, Xattr, XattrRule,
};

pub(super) const ATTR: Attr = Attr { object: ObjectId(7), version: 4, ..Attr::FILE };

#[test]
fn every_rule_is_broken_by_an_exchange_and_kept_by_the_same_without_the_mistake() {
    let mut faults = Vec::new();
    for rule in Rule::ALL.iter().copied() {
        let (right, wrong) = (exchange(rule, false), exchange(rule, true));
        let (kept, broken) = (right.taker.report(), wrong.taker.report());
        if !kept.is_clean() || count(&right, rule).consistent == 0 {
            faults.push(format!("{} without the mistake: {:?} {:?}", rule.id(), count(&right, rule), kept.violations));
        }
        if count(&wrong, rule).violations == 0 {
            faults.push(format!("{} with the mistake: {:?} {:?}", rule.id(), count(&wrong, rule), broken.violations));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// An exchange that breaks the rule, if it is `wrong`.
fn exchange(rule: Rule, wrong: bool) -> Audit {
    match rule {
        Rule::Decodes => decodes(wrong),
        Rule::DatagramSize => datagram_size(wrong),
        Rule::ControlSize => control_size(wrong),
        Rule::AnswerLimit => answer_limit(wrong),
        Rule::NumberOnce => number_once(wrong),
        Rule::RequestUnchanged => request_unchanged(wrong),
        Rule::RepeatUnchanged => repeat_unchanged(wrong),
        Rule::FloorGrows => floors(wrong, (5, 0), (6, 1), (4, 2)),
        Rule::Window => floors(wrong, (5, 0), (100, 63), (100, 64)),
        Rule::HasCause => has_cause(wrong),
        Rule::AnsweredOnce => answered_once(wrong),
        Rule::ReplyFits => reply_fits(wrong),
        Rule::OneResult => one_result(wrong),
        Rule::OneEffect => one_effect(wrong),
        Rule::VersionsForward => versions_forward(wrong),
        Rule::GrantHasWaiter => grant_has_waiter(wrong),
        Rule::WaitOver => wait_over(if wrong { "too soon" } else { "" }),
        Rule::Cancelled => cancelled(if wrong { "standing" } else { "" }),
        Rule::StrangerSmaller => stranger_smaller(wrong),
        Rule::Unproven => unproven(wrong),
        Rule::Cookie => cookie(wrong),
        Rule::WelcomeFits => welcome_fits(wrong),
        Rule::SessionIds => session_ids(wrong),
        Rule::NoRenewal => no_renewal(wrong),
        Rule::NoGrant => no_grant(wrong),
        Rule::PassedInLease => passed_in_lease(wrong),
        Rule::FailureNotices => failure_notices(wrong),
        Rule::NotAbandoned => not_abandoned(wrong),
        Rule::NoticeReceipted => notice_receipted(wrong),
        Rule::GenerationsGrow => generations_grow(wrong),
        Rule::TokensOnce => tokens_once(wrong),
        Rule::ReleaseGranted => release_granted(wrong),
        Rule::UseGranted => use_granted(wrong),
        Rule::QueueOrder => queue_order(wrong),
        Rule::Grace => grace(wrong),
        Rule::Reclaim => reclaim(wrong),
        Rule::Incarnation => incarnation(wrong),
        Rule::FormerFate => former_fate(wrong),
        Rule::StopsAfterNack => stops_after_nack(wrong),
        Rule::StopsAfterEnd => stops_after_end(wrong),
        Rule::WatchOnce => watch_once(wrong),
        Rule::Ephemeral => ephemeral(wrong),
        Rule::KeepAliveAnswered => keep_alive_answered(wrong),
    }
}

/// The server's side, with the first session open.
pub(super) fn one() -> Audit {
    let mut audit = at_server();
    audit.open(0, 5);
    audit
}

pub(super) fn get(nonce: u64) -> Message<'static> {
    GetAttr { ask: ask(nonce), object: ObjectId(7), want: Want::Shared }.into()
}

fn stated(nonce: u64, echo: u64, version: u64, grant: CacheGrant) -> Message<'static> {
    Ack { nonce, echo, reply: Reply::Stated(Stated { attr: Attr { version, ..ATTR }, grant }) }.into()
}

fn set<'a>(nonce: u64, held: &'a [Held]) -> Message<'a> {
    let (ask, mask, terms) = (ask(nonce), SetMask { bits: 1 }, Terms { held: List::of(held), ..Terms::NONE });
    SetAttr { ask, object: ObjectId(7), mask, mode: 0, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms }.into()
}

pub(super) fn asks(nonce: u64, object: u64, mode: Mode, wait: LockWait) -> Message<'static> {
    Lock { ask: ask(nonce), object: ObjectId(object), mode, wait }.into()
}

fn gives(nonce: u64, echo: u64, object: u64, mode: Mode, generation: u64) -> Message<'static> {
    let lock = LockId { object: ObjectId(object), class: LockClass::Advisory };
    Ack { nonce, echo, reply: Reply::Granted(Granted { lock, mode, generation: Generation(generation), run: 10 }) }.into()
}

fn decodes(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    let mut bytes = datagram(true, 5, 1, &[alive(1, 1)]);
    if wrong {
        // A kind that does not exist, under a sound checksum.
        let end = bytes.len() - 4;
        bytes[20] = 0xBF;
        let sum = checksum(&bytes[..end]);
        bytes[end..].copy_from_slice(&sum.to_be_bytes());
    }
    audit.bytes(server(), agent(0), &bytes);
    audit
}

fn datagram_size(wrong: bool) -> Audit {
    let (mut audit, data) = (one(), vec![0; if wrong { 1_300 } else { 1_000 }]);
    let (name, rule, data) = (Bytes8(b"user.a"), XattrRule::Any, Bytes16(&data));
    audit.up(0, 5, 1, &[SetXattr { ask: ask(1), object: ObjectId(7), name, rule, stage: 0, data, terms: Terms::NONE }.into()]);
    audit
}

fn control_size(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    let items = vec![ReleaseItem { lock: LOCK, generation: Generation(100), keep: Keep::Nothing }; if wrong { 40 } else { 1 }];
    audit.up(0, 5, 2, &[Release { serial: 1, items: List::of(&items) }.into()]);
    audit
}

fn answer_limit(wrong: bool) -> Audit {
    let mut audit = one();
    let ask = Ask { nonce: 1, back: 0, limit: if wrong { 548 } else { 1_232 } };
    audit.up(0, 5, 1, &[GetXattr { ask, object: ObjectId(7), name: Bytes8(b"user.a"), offset: 0, length: 600, version: 0 }.into()]);
    let reply = Reply::Xattr(Xattr { object: ObjectId(7), version: 4, total: 600, offset: 0, data: Bytes16(&[0; 600]) });
    audit.down(0, 5, 1, &[Ack { nonce: 1, echo: 1, reply }.into()]);
    audit
}

fn number_once(wrong: bool) -> Audit {
    let mut audit = one();
    for n in [1, 2] {
        audit.up(0, 5, n, &[keep_alive(n)]);
        audit.down(0, 5, if wrong { 1 } else { n }, &[alive(n, n)]);
    }
    audit
}

fn request_unchanged(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[lock(1)]);
    audit.up(0, 5, 2, &[if wrong { ServerStatus { ask: ask(1) }.into() } else { lock(1) }]);
    audit
}

fn repeat_unchanged(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[Cancel { serial: 1, nonce: 1 }.into()]);
    audit.up(0, 5, 2, &[Cancel { serial: 1, nonce: if wrong { 2 } else { 1 } }.into()]);
    audit
}

/// Two requests with these nonces and distances of the floor.
fn floors(wrong: bool, first: (u64, u16), right: (u64, u16), mistake: (u64, u16)) -> Audit {
    let mut audit = one();
    for (packet, (nonce, back)) in [(1, first), (2, if wrong { mistake } else { right })] {
        audit.up(0, 5, packet, &[ServerStatus { ask: Ask { nonce, back, limit: 1_232 } }.into()]);
    }
    audit
}

fn has_cause(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[alive(1, if wrong { 9 } else { 1 })]);
    audit
}

fn answered_once(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 1, &[alive(1, 1)]);
    // The network's copy has the same number.
    audit.down(0, 5, if wrong { 2 } else { 1 }, &[alive(1, 1)]);
    audit
}

fn reply_fits(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[get(1)]);
    audit.down(0, 5, 1, &[if wrong { granted(1, 1, 100) } else { stated(1, 1, 4, CacheGrant::NONE) }]);
    audit
}

fn one_result(wrong: bool) -> Audit {
    let mut audit = one();
    for n in [1, 2] {
        audit.up(0, 5, n, &[lock(1)]);
    }
    audit.down(0, 5, 1, &[granted(1, 1, 100)]);
    audit.down(0, 5, 2, &[granted(1, 2, if wrong { 200 } else { 100 })]);
    audit
}

fn one_effect(wrong: bool) -> Audit {
    let mut audit = one();
    audit.open(1, 6);
    for (number, session, version) in [(0, 5, 5), (1, 6, if wrong { 5 } else { 6 })] {
        audit.up(number, session, 1, &[set(1, &[])]);
        let effects = [Effect { before: version - 1, attr: Attr { version, ..ATTR }, grant: CacheGrant::NONE }];
        audit.down(number, session, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Changed(Changed { effects: List::of(&effects) }) }.into()]);
    }
    audit
}

fn versions_forward(wrong: bool) -> Audit {
    let mut audit = one();
    let early: &[Message<'_>] = if wrong { &[get(1)] } else { &[get(1), get(2)] };
    audit.up(0, 5, 1, early);
    audit.pass(10);
    audit.down(0, 5, 1, &[stated(1, 1, 9, CacheGrant::NONE)]);
    audit.pass(10);
    if wrong {
        audit.up(0, 5, 2, &[get(2)]);
    }
    audit.down(0, 5, 2, &[stated(2, if wrong { 2 } else { 1 }, 8, CacheGrant::NONE)]);
    audit
}

fn grant_has_waiter(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[asks(1, 7, Mode::Exclusive, if wrong { LockWait::Try } else { LockWait::Queue })]);
    audit.down(0, 5, 1, &[grant(1, 1, 100)]);
    audit
}

pub(super) fn queued(nonce: u64, echo: u64) -> Message<'static> {
    let (label, mode, standing) = (Bytes8(b"bench"), Mode::Exclusive, Standing::Good);
    let holder = Holder { label, handle: Handle(1), mode, since_ms: 0, standing, bound_ms: 0 };
    Queued { nonce, echo, lock: LOCK, ahead: 0, holder }.into()
}

pub(super) fn grant(seq: u64, nonce: u64, generation: u64) -> Message<'static> {
    Grant { seq, nonce, lock: LOCK, mode: Mode::Exclusive, generation: Generation(generation), run: 1 }.into()
}

fn stranger_smaller(wrong: bool) -> Audit {
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[Challenge { handshake: 5, echo: 1, cookie: Bytes8(&[7; 200][..if wrong { 200 } else { 16 }]) }.into()]);
    audit
}

fn unproven(wrong: bool) -> Audit {
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    for n in 1..if wrong { 11 } else { 2 } {
        audit.down(0, 0, n, &[challenge(5, 1)]);
    }
    audit
}

fn cookie(wrong: bool) -> Audit {
    let mut audit = at_server();
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[challenge(5, 1)]);
    audit.up(0, 0, 2, &[hello(0, 5, b"0123456789abcdef")]);
    audit.down(0, 0, 2, &[welcome(5, if wrong { 1 } else { 2 }, 5, 1)]);
    audit
}

fn welcome_fits(wrong: bool) -> Audit {
    let mut audit = at_server();
    let claims = [FormerClaim { session: SessionId(77), claim: Claim::Lost }];
    let fates = [FormerFate { session: SessionId(77), fate: SessionFate::Ended }];
    audit.up(0, 0, 1, &[hello(0, 5, b"")]);
    audit.down(0, 0, 1, &[challenge(5, 1)]);
    audit.up(0, 0, 2, &[hello(0, 5, b"0123456789abcdef")]);
    audit.down(0, 0, 2, &[welcome(5, 2, 5, 1)]);
    audit.confirm(0, 5, &claims, if wrong { &[] } else { &fates });
    audit
}

fn session_ids(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(1, 0, 1, &[hello(1, 50, b"")]);
    audit.down(1, 0, 1, &[challenge(50, 1)]);
    audit.up(1, 0, 2, &[hello(1, 50, b"0123456789abcdef")]);
    audit.down(1, 0, 2, &[welcome(50, 2, if wrong { 5 } else { 50 }, 1)]);
    audit
}

fn refused(echo: u64) -> Message<'static> {
    Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown }.into()
}

fn no_renewal(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    let (early, late) = if wrong { (refused(1), alive(1, 1)) } else { (alive(1, 1), refused(1)) };
    audit.down(0, 5, 1, &[early]);
    audit.down(0, 5, 2, &[late]);
    audit
}

fn no_grant(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[lock(1)]);
    let refused = Message::from(Nack { nonce: 1, echo: 1, reason: NackReason::Ended, fate: Fate::Unknown });
    let (early, late) = if wrong { (refused, grant(1, 1, 100)) } else { (grant(1, 1, 100), refused) };
    audit.down(0, 5, 1, &[early]);
    audit.down(0, 5, 2, &[late]);
    audit
}

fn passed_in_lease(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    if wrong {
        return goes_on(audit);
    }
    audit.now += crate::bench::WAIT;
    goes_on(audit)
}

fn failure_notices(wrong: bool) -> Audit {
    let mut audit = one();
    for n in 1..if wrong { 3 } else { 4 } {
        audit.down(0, 5, n, &[Probe { seq: 1 }.into()]);
        audit.pass(200);
    }
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, if wrong { 3 } else { 4 }, &[nack(1)]);
    audit
}

fn not_abandoned(wrong: bool) -> Audit {
    let mut audit = one();
    for n in 1..4 {
        audit.down(0, 5, n, &[Probe { seq: 1 }.into()]);
        audit.pass(100);
    }
    if !wrong {
        audit.up(0, 5, 1, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    }
    let first = if wrong { 1 } else { 2 };
    for n in 0..100 {
        audit.pass(20);
        audit.up(0, 5, first + n, &[keep_alive(first + n)]);
        audit.down(0, 5, 4 + n, &[alive(first + n, first + n)]);
    }
    audit
}

fn notice_receipted(wrong: bool) -> Audit {
    let mut audit = from(Side::Agent, true);
    audit.open(0, 5);
    audit.down(0, 5, 1, &[Probe { seq: 1 }.into()]);
    if !wrong {
        audit.up(0, 5, 1, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    }
    for n in 2..4 {
        audit.pass(600);
        audit.up(0, 5, n - u64::from(wrong), &[keep_alive(n)]);
    }
    audit
}

fn generations_grow(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    audit.bytes(agent(0), server(), &release(100));
    audit.up(0, 5, 3, &[lock(2)]);
    audit.down(0, 5, 2, &[granted(2, 3, if wrong { 109 } else { 110 })]);
    audit
}

fn tokens_once(wrong: bool) -> Audit {
    let mut audit = one();
    audit.open(1, 6);
    audit.up(0, 5, 1, &[asks(1, 7, Mode::Exclusive, LockWait::Try)]);
    audit.up(1, 6, 1, &[asks(1, 9, Mode::Exclusive, LockWait::Try)]);
    audit.down(0, 5, 1, &[gives(1, 1, 7, Mode::Exclusive, 100)]);
    audit.down(1, 6, 1, &[gives(1, 1, 9, Mode::Exclusive, if wrong { 105 } else { 110 })]);
    audit
}

fn release_granted(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    audit.bytes(agent(0), server(), &release(if wrong { 99 } else { 100 }));
    audit
}

fn use_granted(wrong: bool) -> Audit {
    let mut audit = one();
    audit.open(1, 6);
    audit.up(0, 5, 1, &[get(1)]);
    audit.down(0, 5, 1, &[stated(1, 1, 4, CacheGrant { mode: Want::Shared, generation: Generation(100) })]);
    let held = [Held { object: ObjectId(7), generation: Generation(100) }];
    let (number, session, packet) = if wrong { (1, 6, 1) } else { (0, 5, 2) };
    audit.up(number, session, packet, &[set(2, &held)]);
    audit
}

fn queue_order(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    audit.open(2, 8);
    audit.up(1, 6, 1, &[asks(1, 7, Mode::Exclusive, LockWait::Queue)]);
    audit.down(1, 6, 1, &[queued(1, 1)]);
    if !wrong {
        audit.up(1, 6, 2, &[Cancel { serial: 1, nonce: 1 }.into()]);
    }
    audit.up(2, 8, 1, &[asks(1, 7, Mode::Shared, LockWait::Queue)]);
    audit.bytes(agent(0), server(), &release(100));
    audit.down(2, 8, 1, &[gives(1, 1, 7, Mode::Shared, 200)]);
    audit
}

fn grace(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    audit.pass(100);
    audit.open_at(2, 8, 2);
    audit.pass(if wrong { 100 } else { 2_100 });
    audit.up(2, 8, 1, &[asks(1, 9, Mode::Shared, LockWait::Try)]);
    audit.down(2, 8, 1, &[gives(1, 1, 9, Mode::Shared, 300)]);
    audit
}

fn reclaim(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    audit.pass(100);
    let number = u8::from(wrong);
    audit.open_at(number, 8, 2);
    let (lock, generation) = (LOCK, Generation(100));
    let items = [ReclaimItem { lock, mode: Mode::Exclusive, generation, first: generation, run: 10, version: 0 }];
    audit.up(number, 8, 1, &[Reclaim { ask: ask(1), from: SessionId(5), items: List::of(&items) }.into()]);
    let items = [ReclaimedItem { lock, generation, status: Status::OK, version: 4 }];
    audit.down(number, 8, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Reclaimed(Reclaimed { items: List::of(&items) }) }.into()]);
    audit
}

fn incarnation(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    if !wrong {
        audit.down(0, 5, 1, &[alive(1, 1)]);
    }
    audit.open_at(1, 6, 2);
    if wrong {
        audit.down(0, 5, 1, &[alive(1, 1)]);
    }
    audit
}

fn former_fate(wrong: bool) -> Audit {
    let mut audit = held(at_server());
    let session = SessionId(5);
    let claims = [FormerClaim { session, claim: Claim::Lost }];
    if !wrong {
        audit.up(0, 5, 2, &[EndSession { serial: 1, reason: EndReason::Close }.into()]);
    }
    audit.up(0, 0, 3, &[hello(0, 50, b"")]);
    audit.down(0, 0, 1, &[challenge(50, 3)]);
    audit.up(0, 0, 4, &[hello(0, 50, b"0123456789abcdef")]);
    audit.down(0, 0, 2, &[welcome(50, 4, 8, 1)]);
    audit.confirm(0, 8, &claims, &[FormerFate { session, fate: SessionFate::Ended }]);
    audit
}

fn stops_after_nack(wrong: bool) -> Audit {
    let mut audit = from(Side::Agent, true);
    audit.open(0, 5);
    audit.up(0, 5, 1, &[keep_alive(1)]);
    if !wrong {
        audit.up(0, 5, 2, &[lock(1)]);
    }
    audit.down(0, 5, 1, &[refused(1)]);
    if wrong {
        audit.up(0, 5, 2, &[lock(1)]);
    }
    audit
}

fn stops_after_end(wrong: bool) -> Audit {
    let mut audit = one();
    let (asks, ends) = (lock(1), Message::from(EndSession { serial: 1, reason: EndReason::Close }));
    for (packet, message) in (1..).zip(if wrong { [ends, asks] } else { [asks, ends] }) {
        audit.up(0, 5, packet, &[message]);
    }
    audit
}

fn watch_once(wrong: bool) -> Audit {
    let mut audit = one();
    let event = |seq, version| Message::from(WatchEvent { seq, object: ObjectId(7), version, gone: false });
    audit.up(0, 5, 1, &[Watch { ask: ask(1), object: ObjectId(7) }.into()]);
    audit.down(0, 5, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Watched(Watched { attr: ATTR }) }.into()]);
    audit.down(0, 5, 2, &[event(1, 5)]);
    if !wrong {
        audit.up(0, 5, 2, &[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    }
    audit.down(0, 5, 3, &[event(2, 6)]);
    audit
}

fn ephemeral(wrong: bool) -> Audit {
    let mut audit = one();
    audit.open(1, 6);
    audit.up(1, 6, 1, &[Watch { ask: ask(1), object: ObjectId(7) }.into()]);
    let attr = Attr { owner: Handle(5), ..ATTR };
    audit.down(1, 6, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Watched(Watched { attr }) }.into()]);
    audit.pass(if wrong { 500 } else { 2_100 });
    audit.down(1, 6, 2, &[WatchEvent { seq: 1, object: ObjectId(7), version: 5, gone: true }.into()]);
    audit
}

fn keep_alive_answered(wrong: bool) -> Audit {
    let mut audit = one();
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.up(0, 5, 2, &[lock(1)]);
    if !wrong {
        audit.down(0, 5, 1, &[alive(1, 1)]);
    }
    audit.down(0, 5, if wrong { 1 } else { 2 }, &[granted(1, 2, 100)]);
    audit
}
