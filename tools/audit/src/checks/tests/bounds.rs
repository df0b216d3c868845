//! Tests of what is forgotten: tables stay small, and no verdict rests on what fell out of one.

use super::every_rule::ATTR;
use super::{Audit, at_server, broken, clean, count, from, goes_on, held, nack, open};
use crate::bench::{LOCK, agent, alive, ask, challenge, confirm, datagram, granted, hello, keep_alive, lock, opened, server, welcome};
use crate::rule::Rule;
use crate::vantage::Side;
use crate::{Auditor, Why, bench::Bench};
use cistern_wire::{
    Ack, Attr, Bytes8, CacheGrant, Changed, Claim, Effect, EndReason, EndSession, FormerClaim, FormerFate, Generation, GetAttr, Granted,
    Handle, Hello, Keep, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Probe, Receipt, ReceiptAnswer, Release,
    ReleaseItem, Released, Reply, ServerStatus, SessionFate, SessionId, Stated, Terms, Unlink, Want, Watch, WatchEvent, Watched, Welcome,
};
use std::net::SocketAddr;

/// A release of a lock that its session was never granted, under a number that fits the object's.
fn releases(audit: &mut Audit, object: u64, packet: u64) {
    let lock = LockId { object: ObjectId(object), class: LockClass::Advisory };
    let items = [ReleaseItem { lock, generation: Generation(object), keep: Keep::Nothing }];
    audit.up(0, 5, packet, &[Release { serial: packet, items: List::of(&items) }.into()]);
}

#[test]
fn locks_that_an_agent_gives_back_are_remembered_up_to_a_bound_and_what_was_forgotten_makes_no_violation() {
    // Not complete: nobody is to be accused of the releases themselves.
    let mut audit = from(Side::Server, false);
    audit.open(0, 5);
    for n in 0..70_000 {
        releases(&mut audit, 1_000 + n, 1 + n);
    }
    let session = audit.taker.story().session(SessionId(5)).unwrap();
    assert!(session.own.len() <= 65_536 && session.doubt == Some(Why::Forgotten));
    clean(&audit);
}

#[test]
fn lock_of_a_session_of_which_something_was_forgotten_passes_undecidably() {
    let mut audit = held(at_server());
    // A copy of what came so long before that it is not known whether it was seen.
    for n in 2..9_000 {
        audit.up(0, 5, n, &[keep_alive(n)]);
        audit.down(0, 5, n, &[alive(n, n)]);
    }
    audit.up(0, 5, 1, &[lock(1)]);
    open(&goes_on(audit), Rule::PassedInLease, Why::Forgotten);
}

#[test]
fn datagrams_copied_after_they_were_forgotten_are_not_acted_on_again() {
    let mut audit = at_server();
    audit.open(0, 5);
    for n in 1..9_000 {
        audit.up(0, 5, n, &[keep_alive(n)]);
        audit.down(0, 5, n, &[alive(n, n)]);
    }
    // A late copy of an answer, whose first passing is forgotten while the question is not.
    audit.down(0, 5, 700, &[alive(8_000, 8_000)]);
    clean(&audit);
}

#[test]
fn failure_of_a_session_whose_notices_were_forgotten_is_undecidable() {
    let mut audit = at_server();
    audit.open(0, 5);
    for n in 1..9_000 {
        audit.down(0, 5, n, &[Probe { seq: n }.into()]);
    }
    audit.up(0, 5, 1, &[keep_alive(1)]);
    audit.down(0, 5, 9_000, &[nack(1)]);
    assert!(count(&audit, Rule::FailureNotices).undecidable.contains_key(&Why::Forgotten), "{}", audit.taker.report());
    audit.up(0, 5, 2, &[EndSession { serial: 1, reason: EndReason::Close }.into()]);
    let session = audit.taker.story().session(SessionId(5)).unwrap();
    assert!(session.open.len() <= 8_192 && session.open_forgotten);
}

/// The address of a host that nobody else in these tests has.
fn elsewhere(n: u16) -> SocketAddr {
    let [high, low] = n.to_be_bytes();
    SocketAddr::from(([10, 9, high, low], 6_737))
}

#[test]
fn servers_beyond_the_bound_are_put_together_and_then_nothing_is_decided() {
    let mut audit = held(at_server());
    for n in 0..300 {
        audit.bytes(agent(9), elsewhere(n), &datagram(false, 0, 1, &[hello(9, 900, b"")]));
        audit.bytes(elsewhere(n), agent(9), &datagram(true, 0, 1, &[challenge(900, 1)]));
    }
    assert!(audit.taker.story().hosts().iter().filter(|host| host.role == crate::Role::Server).count() <= 513);
    open(&goes_on(audit), Rule::PassedInLease, Why::Servers);
}

#[test]
fn addresses_that_never_answer_take_nothing_away_from_servers() {
    let mut audit = at_server();
    for n in 0..2_000 {
        audit.bytes(agent(9), elsewhere(n), &datagram(false, 0, 1, &[hello(9, 900, b"")]));
    }
    assert!(audit.taker.story().hosts().iter().filter(|host| host.role == crate::Role::Server).count() <= 257);
    // The server comes late, and one of those answers after all: to no more than what was written to it.
    audit.bytes(elsewhere(1_000), agent(9), &datagram(true, 0, 1, &[challenge(900, 1)]));
    clean(&audit);
    assert!(count(&audit, Rule::Unproven).undecidable.is_empty(), "{}", audit.taker.report());
    broken(&goes_on(held(audit)), Rule::PassedInLease);
}

#[test]
fn addresses_of_a_host_are_remembered_up_to_a_bound_and_the_rest_is_counted() {
    let mut audit = from(Side::Between, true);
    audit.open(0, 5);
    for n in 1..1_000_u64 {
        let from = SocketAddr::from(([10, 8, 0, 1], 1_000 + u16::try_from(n).unwrap()));
        audit.bytes(from, server(), &datagram(false, 5, n, &[keep_alive(n)]));
    }
    let story = audit.taker.story();
    assert!(story.hosts().iter().all(|host| host.addresses.len() <= 64));
    assert!(story.tally().entries_forgotten > 800);
}

#[test]
fn sessions_together_keep_no_more_than_their_share() {
    let mut audit = from(Side::Between, false);
    for session in 1..=20 {
        for n in 1..=3_000 {
            audit.up(0, session, n, &[ServerStatus { ask: ask(n) }.into(), keep_alive(n)]);
        }
    }
    let weigh = |audit: &Bench<Auditor>| audit.taker.story().sessions().map(crate::Session::weight).sum::<usize>();
    let before = weigh(&audit);
    audit.taker.story_mut().shrink(before / 2);
    let story = audit.taker.story();
    assert!(weigh(&audit) <= before / 2 && story.tally().entries_forgotten >= (before / 2) as u64);
    // What is left is the newest.
    audit.down(0, 7, 1, &[alive(3_000, 3_000)]);
    assert_eq!(count(&audit, Rule::HasCause).consistent, 1);
    audit.down(0, 7, 2, &[alive(1, 1)]);
    assert_eq!(count(&audit, Rule::HasCause).undecidable[&Why::Forgotten], 1);
}

#[test]
fn numbers_at_their_end_are_judged_like_others() {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.up(0, 5, u64::MAX, &[lock(u64::MAX)]);
    audit.up(0, 5, u64::MAX, &[keep_alive(u64::MAX)]);
    audit.down(0, 5, u64::MAX, &[granted(u64::MAX, u64::MAX, u64::MAX)]);
    audit.down(0, 5, 1, &[alive(u64::MAX, u64::MAX)]);
    let items = [cistern_wire::ReleasedItem { lock: LOCK, generation: Generation(1), keep: Keep::Shared, now: Generation(u64::MAX) }];
    audit.down(0, 5, 2, &[Released { serial: 1, echo: 1, items: List::of(&items) }.into()]);
    audit.now = std::time::Duration::MAX;
    let bytes = datagram(false, 5, 3, &[keep_alive(2)]);
    audit.bytes(agent(0), server(), &bytes);
    assert!(audit.taker.found() > 0, "what does not fit is found, and nothing overflows");
}

/// A watcher's server, which knows of one ephemeral file.
fn ephemeral() -> Audit {
    let mut audit = at_server();
    audit.open(0, 5);
    audit.open(1, 6);
    audit.up(1, 6, 1, &[Watch { ask: ask(1), object: ObjectId(7) }.into()]);
    let attr = Attr { owner: Handle(5), ..ATTR };
    audit.down(1, 6, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Watched(Watched { attr }) }.into()]);
    audit
}

/// The file is gone, as its watcher is told.
fn is_gone(mut audit: Audit) -> Audit {
    audit.down(1, 6, 2, &[WatchEvent { seq: 1, object: ObjectId(7), version: 5, gone: true }.into()]);
    audit
}

/// What a server's tables remember, cut down.
fn trim(audit: &mut Audit, most: usize) {
    audit.taker.story_mut().servers.values_mut().for_each(|server| {
        server.trim(most);
    });
}

#[test]
fn ephemeral_file_whose_removal_may_be_forgotten_is_gone_undecidably() {
    let mut audit = ephemeral();
    // Its own session took it away.
    audit.up(0, 5, 1, &[Unlink { ask: ask(1), dir: ObjectId(1), name: Bytes8(b"f"), force: false, terms: Terms::NONE }.into()]);
    let effects = [Effect { before: 4, attr: Attr { version: 5, nlink: 0, owner: Handle(5), ..ATTR }, grant: CacheGrant::NONE }];
    audit.down(0, 5, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Changed(Changed { effects: List::of(&effects) }) }.into()]);
    // Of two objects the file is the one that falls out.
    audit.up(0, 5, 2, &[GetAttr { ask: ask(2), object: ObjectId(9), want: Want::Nothing }.into()]);
    let attr = Attr { object: ObjectId(9), ..ATTR };
    audit.down(0, 5, 2, &[Ack { nonce: 2, echo: 2, reply: Reply::Stated(Stated { attr, grant: CacheGrant::NONE }) }.into()]);
    trim(&mut audit, 1);
    open(&is_gone(audit), Rule::Ephemeral, Why::Forgotten);
    broken(&is_gone(ephemeral()), Rule::Ephemeral);
}

#[test]
fn every_notice_that_is_not_receipted_in_time_is_told_also_while_an_older_one_stays_open() {
    let mut audit = from(Side::Agent, true);
    audit.open(0, 5);
    for seq in 1..4 {
        audit.down(0, 5, seq, &[Probe { seq }.into()]);
        audit.pass(10);
    }
    audit.up(0, 5, 1, &[Receipt { seq: 2, answer: ReceiptAnswer::Received }.into()]);
    for n in 2..6 {
        audit.pass(600);
        audit.up(0, 5, n, &[keep_alive(n)]);
    }
    // The first and the third, each once.
    assert_eq!(count(&audit, Rule::NoticeReceipted).violations, 2, "{}", audit.taker.report());
}

#[test]
fn lock_whose_hold_may_be_forgotten_passes_undecidably_and_a_later_one_is_judged() {
    let mut audit = held(at_server());
    let asked = |nonce| Lock { ask: ask(nonce), object: ObjectId(9), mode: Mode::Exclusive, wait: LockWait::Queue }.into();
    let given = |nonce, echo, generation| {
        let lock = LockId { object: ObjectId(9), class: LockClass::Advisory };
        let (mode, generation) = (Mode::Exclusive, Generation(generation));
        Ack { nonce, echo, reply: Reply::Granted(Granted { lock, mode, generation, run: 10 }) }.into()
    };
    audit.up(0, 5, 2, &[asked(2)]);
    audit.down(0, 5, 2, &[given(2, 2, 110)]);
    trim(&mut audit, 1);
    let mut audit = goes_on(audit);
    open(&audit, Rule::PassedInLease, Why::Forgotten);
    audit.up(1, 6, 2, &[asked(2)]);
    audit.down(1, 6, 2, &[given(2, 2, 210)]);
    broken(&audit, Rule::PassedInLease);
}

#[test]
fn start_after_which_a_forgotten_holder_may_reclaim_grants_undecidably_until_t() {
    for (ms, decided) in [(100, false), (2_100, true)] {
        let mut audit = held(at_server());
        trim(&mut audit, 0);
        audit.pass(100);
        audit.open_at(2, 8, 2);
        audit.pass(ms);
        audit.up(2, 8, 1, &[Lock { ask: ask(1), object: ObjectId(9), mode: Mode::Shared, wait: LockWait::Try }.into()]);
        let lock = LockId { object: ObjectId(9), class: LockClass::Advisory };
        let given = Granted { lock, mode: Mode::Shared, generation: Generation(300), run: 1 };
        audit.down(2, 8, 1, &[Ack { nonce: 1, echo: 1, reply: Reply::Granted(given) }.into()]);
        clean(&audit);
        let count = count(&audit, Rule::Grace);
        let undecidable = count.undecidable.get(&Why::Forgotten).copied().unwrap_or_default();
        assert_eq!((count.consistent, undecidable), if decided { (2, 0) } else { (1, 1) }, "{}", audit.taker.report());
    }
}

#[test]
fn end_of_a_former_session_that_may_hold_what_was_forgotten_is_undecidable() {
    let mut audit = held(at_server());
    trim(&mut audit, 0);
    let session = SessionId(5);
    let claims = [FormerClaim { session, claim: Claim::Lost }];
    audit.up(0, 0, 3, &[hello(0, 50, b"")]);
    audit.down(0, 0, 1, &[challenge(50, 3)]);
    audit.up(0, 0, 4, &[hello(0, 50, b"0123456789abcdef")]);
    audit.down(0, 0, 2, &[welcome(50, 4, 8, 1)]);
    audit.confirm(0, 8, &claims, &[FormerFate { session, fate: SessionFate::Ended }]);
    open(&audit, Rule::FormerFate, Why::Forgotten);
}

#[test]
fn file_whose_owner_may_be_forgotten_is_gone_undecidably() {
    let mut audit = ephemeral();
    trim(&mut audit, 0);
    open(&is_gone(audit), Rule::Ephemeral, Why::Forgotten);
}

#[test]
fn lock_of_a_session_that_a_forgotten_transmission_has_renewed_passes_undecidably() {
    for forgotten in [false, true] {
        let mut audit = held(at_server());
        audit.pass(2_000);
        for n in 2..300 {
            audit.up(0, 5, n, &[keep_alive(n)]);
        }
        let session = audit.taker.story_mut().sessions.get_mut(&SessionId(5)).unwrap();
        if forgotten {
            session.shrink(128);
        }
        audit.down(0, 5, 2, &[alive(2, 2)]);
        audit.pass(100);
        let audit = goes_on(audit);
        if forgotten { open(&audit, Rule::PassedInLease, Why::Forgotten) } else { broken(&audit, Rule::PassedInLease) }
    }
}

/// Many sessions at work, and one that holds a lock, has given many back, and has a request on the way.
fn busy() -> Audit {
    let mut audit = held(at_server());
    for n in 0..1_000 {
        let lock = LockId { object: ObjectId(1_000 + n), class: LockClass::Advisory };
        let (packet, generation) = (2 + 2 * n, Generation(1_000 + n));
        audit.up(0, 5, packet, &[Lock { ask: ask(2 + n), object: lock.object, mode: Mode::Exclusive, wait: LockWait::Queue }.into()]);
        let given = Granted { lock, mode: Mode::Exclusive, generation, run: 1 };
        audit.down(0, 5, 2 + 2 * n, &[Ack { nonce: 2 + n, echo: packet, reply: Reply::Granted(given) }.into()]);
        let items = [ReleaseItem { lock, generation, keep: Keep::Nothing }];
        audit.up(0, 5, packet + 1, &[Release { serial: 1 + n, items: List::of(&items) }.into()]);
        audit.down(0, 5, 3 + 2 * n, &[Released { serial: 1 + n, echo: packet + 1, items: List::of(&[]) }.into()]);
    }
    for session in 100..130 {
        for n in 1..500 {
            audit.up(2, session, n, &[keep_alive(n)]);
            audit.down(2, session, n, &[alive(n, n)]);
        }
    }
    audit
}

#[test]
fn what_is_on_the_way_and_what_is_held_outlives_what_many_busy_sessions_have_said() {
    let mut audit = busy();
    clean(&audit);
    let story = audit.taker.story_mut();
    story.shrink(40_000);
    let session = story.session(SessionId(5)).unwrap();
    assert!(session.doubt.is_none() && session.own.contains_key(&LOCK));
    assert!(session.own.len() < 600 && session.up.len() >= 128 && story.weight() <= 40_000);
    // A late copy of a grant that was given back and forgotten gives nothing, and then the session is in doubt.
    broken(&goes_on_at(audit, 3_000), Rule::PassedInLease);
    let mut audit = busy();
    audit.taker.story_mut().shrink(40_000);
    let lock = LockId { object: ObjectId(1_000), class: LockClass::Advisory };
    let given = Granted { lock, mode: Mode::Exclusive, generation: Generation(1_000), run: 1 };
    audit.down(0, 5, 2_002, &[Ack { nonce: 2, echo: 2, reply: Reply::Granted(given) }.into()]);
    assert_eq!(audit.taker.story().session(SessionId(5)).unwrap().doubt, Some(Why::Forgotten));
    open(&goes_on_at(audit, 3_000), Rule::PassedInLease, Why::Forgotten);
}

/// The second session is granted the lock now, with a generation.
fn goes_on_at(mut audit: Audit, generation: u64) -> Audit {
    audit.up(1, 6, 1, &[lock(1)]);
    audit.down(1, 6, 1, &[granted(1, 1, generation)]);
    audit
}

#[test]
fn datagram_below_the_first_number_of_its_session_was_guessed_and_whoever_answers_it_is_caught() {
    let mut audit = at_server();
    let Message::Hello(asked) = hello(0, 5, b"") else { unreachable!("it is a HELLO") };
    let asked = Hello { first_packet: 1 << 40, ..asked };
    audit.up(0, 0, 1, &[asked.into()]);
    audit.down(0, 0, 1, &[challenge(5, 1)]);
    audit.up(0, 0, 2, &[Hello { cookie: Bytes8(b"0123456789abcdef"), ..asked }.into()]);
    let Message::Welcome(offered) = welcome(5, 2, 5, 1) else { unreachable!("it is a WELCOME") };
    audit.down(0, 0, 1, &[Welcome { first_packet: 1 << 41, ..offered }.into()]);
    audit.up(0, 5, 1, &[EndSession { serial: 1, reason: EndReason::Surrender }.into()]);
    audit.up(0, 5, (1 << 40) - 1, &[confirm(&[])]);
    audit.down(0, 5, (1 << 41) - 1, &[opened((1 << 40) - 1, &[])]);
    audit.up(0, 5, 1 << 40, &[keep_alive(1)]);
    audit.down(0, 5, 1 << 41, &[alive(1, 1 << 40)]);
    clean(&audit);
    let report = audit.taker.report();
    assert_eq!(report.tally.guessed, 1, "{report}");
    assert!(report.to_string().contains("1 datagrams had packet numbers below the first"), "{report}");
    audit.up(0, 5, 2, &[keep_alive(2)]);
    audit.down(0, 5, (1 << 41) + 1, &[alive(2, 2)]);
    broken(&audit, Rule::HasCause);
}
