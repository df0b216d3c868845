//! What sessions of one owner have together: shares of demands and locks, and what follows when a demand is not complied with.

use super::super::{LockAccess, LockDecision, LockLimits, LockOutcome, LockTable, Restored, Struck, Tokens, Turn};
use super::{Script, advisory, cache, demand, granted, key};
use crate::ids::{LockSlot, Owner, PrincipalId};
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::{CacheGrant, Generation, Keep, Limit, Limited, LockWait, Mode, ObjectId, Realm, ReclaimItem, Want, Whose};
use core::time::Duration;

const GREEDY: Owner = Owner::V4([10, 0, 0, 1]);
const MODEST: Owner = Owner::V4([10, 0, 0, 2]);
const COST: Duration = Duration::from_secs(4);

fn strikes(s: &Script, slot: LockSlot) -> u32 {
    s.table.session_struck(s.now, slot).strikes
}

fn open(s: &mut Script, n: u32, owner: Owner) -> LockSlot {
    s.table.open(key(LockSlot(n)), owner, PrincipalId::ANYBODY, true)
}

/// Demands among the decisions, by session.
fn demands_to(decisions: &[LockDecision], slot: LockSlot) -> usize {
    decisions.iter().filter(|decision| matches!(decision, LockDecision::Demand { session, .. } if *session == key(slot))).count()
}

#[test]
fn holder_that_does_not_comply_is_asked_for_so_much_and_others_are_asked_meanwhile() {
    let mut s = Script::new();
    let (hog, asker, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, GREEDY), open(&mut s, 6, MODEST));
    let held: Vec<_> = (0..300).map(|n| (ObjectId(1_000 + n), s.shared(hog, ObjectId(1_000 + n)))).collect();
    let last = s.shared(other, ObjectId(9_000));
    for (task, (object, _)) in (1..).zip(&held) {
        s.enter(task, asker, &[*object]);
    }
    s.enter(1_000, asker, &[ObjectId(9_000)]);
    let decisions = s.decisions();
    assert_eq!((demands_to(&decisions, hog), demands_to(&decisions, other)), (250, 1));
    assert!(decisions.contains(&LockDecision::DemandDelayed { session: key(hog) }), "it is watched all the same");
    s.give(other, cache(ObjectId(9_000)), last);
    // As it complies it is told the rest.
    for (object, generation) in &held[..150] {
        s.give(hog, cache(*object), *generation);
    }
    assert_eq!(demands_to(&s.decisions(), hog), 50);
}

#[test]
fn owner_that_asks_for_very_much_leaves_others_a_share_of_demands() {
    let mut s = Script::with(LockLimits { demands_outstanding: 500, ..LockLimits::default() });
    let holders: Vec<_> = (4..10).map(|n| open(&mut s, n, GREEDY)).collect();
    let (asker, other, modest) = (open(&mut s, 10, GREEDY), open(&mut s, 11, MODEST), open(&mut s, 12, MODEST));
    let mut task = 0;
    for (n, holder) in (0..).zip(&holders) {
        for object in (0..100).map(|m| ObjectId(1_000 + 100 * n + m)) {
            s.shared(*holder, object);
            task += 1;
            s.enter(task, asker, &[object]);
        }
    }
    let told: usize = holders.iter().copied().map(|holder| demands_to(&s.decisions(), holder)).sum();
    let all = s.table.counts().demands_outstanding;
    assert_eq!((told > 0, all), (true, 400), "four fifths");
    let own = s.shared(other, ObjectId(9));
    s.enter(task + 1, modest, &[ObjectId(9)]);
    assert_eq!(demands_to(&s.decisions(), other), 1);
    s.give(other, cache(ObjectId(9)), own);
    // What its holders give back makes room for the rest.
    for holder in &holders {
        let slot = s.table.table.session(*holder).unwrap();
        let held: Vec<_> = s.table.table.holds_of_session(slot).map(|at| s.table.table.holds[at].clone()).collect();
        for hold in held {
            let lock = s.table.table.entries[hold.entry].lock();
            s.give(*holder, lock, hold.generation);
        }
        s.decisions();
    }
    assert_eq!(s.table.counts().demands_outstanding, 0);
}

#[test]
fn owner_of_who_does_not_comply_gets_no_cache_locks_for_a_time_that_doubles_and_is_forgiven() {
    let mut s = Script::new();
    let (hog, same, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, GREEDY), open(&mut s, 6, MODEST));
    let hot = ObjectId(77);
    s.shared(hog, hot);
    s.enter(1, other, &[hot]);
    s.decisions();
    s.table.strike(s.now, hog, COST);
    assert_eq!(s.grant(same, ObjectId(78), Want::Shared), CacheGrant::NONE, "whichever session asks");
    let shown = [GREEDY, MODEST].map(|owner| s.table.struck(s.now, owner));
    assert_eq!(shown, [Struck { left: COST * 32, strikes: 1 }, Struck::default()], "and so it is shown");
    s.shared(other, ObjectId(78));
    s.locked(same, 1, ObjectId(79), Mode::Exclusive);
    s.pass(128_001);
    s.shared(same, ObjectId(78));
    s.table.strike(s.now, same, COST);
    assert_eq!(strikes(&s, same), 2);
    s.pass(255_000);
    assert_eq!(s.grant(same, ObjectId(80), Want::Shared), CacheGrant::NONE);
    s.pass(1_001);
    s.shared(same, ObjectId(80));
    // Quiet times: as long again, then half.
    s.pass(256_000 + 128_001);
    assert_eq!(s.table.struck(s.now, GREEDY), Struck::default(), "also before anything is asked");
    s.shared(same, ObjectId(81));
    assert_eq!(strikes(&s, same), 0);
}

#[test]
fn object_of_who_does_not_comply_is_cached_by_nobody_for_a_while() {
    let mut s = Script::new();
    let (hog, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    let hot = ObjectId(77);
    let generation = s.shared(hog, hot);
    s.enter(1, other, &[hot]);
    s.decisions();
    s.table.strike(s.now, hog, COST);
    s.give(hog, cache(hot), generation);
    s.leave(1);
    assert_eq!(s.grant(other, hot, Want::Shared), CacheGrant::NONE);
    s.shared(other, ObjectId(78));
    s.pass(8_001);
    s.shared(other, hot);
}

#[test]
fn one_owner_leaves_locks_to_others() {
    let mut s = Script::with(LockLimits { locks_max: 2_000, locks_per_session: 2_000, ..LockLimits::default() });
    let (first, second, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, GREEDY), open(&mut s, 6, MODEST));
    let mut held = 0;
    for n in 0..2_000u64 {
        let slot = if n % 2 == 0 { first } else { second };
        match s.lock(slot, n + 1, ObjectId(1_000 + n), Mode::Shared, LockWait::Try) {
            LockOutcome::Granted { .. } => held += 1,
            outcome => {
                let share = Limited { limit: Limit::Locks, whose: Whose::Host, realm: Realm(0), used: held, bound: held, retry_ms: 0 };
                assert_eq!(outcome, LockOutcome::Limited(share));
            }
        }
        s.tokens();
    }
    assert_eq!(held, 1_600);
    s.locked(other, 1, ObjectId(5_000), Mode::Exclusive);
}

/// Takes locks, from the `first` request on, until the session has as many as it may.
fn fill(s: &mut Script, slot: LockSlot, first: u64) -> Vec<(ObjectId, Generation)> {
    let mut granted = Vec::new();
    for n in first.. {
        match s.lock(slot, n, ObjectId(1_000 + n), Mode::Exclusive, LockWait::Try) {
            LockOutcome::Granted { generation, .. } => granted.push((ObjectId(1_000 + n), generation)),
            outcome => {
                assert!(matches!(outcome, LockOutcome::Limited(_)), "{outcome:?}");
                return granted;
            }
        }
        s.tokens();
    }
    granted
}

#[test]
fn what_was_granted_is_restored_in_whichever_order_agents_come_back() {
    let limits = LockLimits { locks_max: 2_000, locks_per_session: 2_000, ..LockLimits::default() };
    let mut s = Script::with(limits);
    let (greedy, modest) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    let held = [fill(&mut s, greedy, 1), fill(&mut s, modest, 10_000)];
    let reserved = held.iter().flatten().map(|(_, generation)| generation.0).max().unwrap() + 100_000;
    let mut table = LockTable::new(limits, Tokens::new(1, reserved));
    let [modest, greedy] =
        [(modest, MODEST), (greedy, GREEDY)].map(|(slot, owner)| table.open(key(slot), owner, PrincipalId::ANYBODY, true));
    let now = Instant::new(0, 0).plus(Duration::from_secs(2_000));
    for (slot, held) in [(modest, &held[1]), (greedy, &held[0])] {
        for (object, generation) in held {
            let lock = advisory(*object);
            let item = ReclaimItem { lock, mode: Mode::Exclusive, generation: *generation, first: *generation, run: 1_024, version: 0 };
            assert_eq!(table.restore(now, slot, &item, Realm::TREE), Restored::Held, "{} of before", held.len());
        }
    }
}

#[test]
fn what_an_owner_withdraws_is_asked_back_on_its_account_and_delays_no_demand_of_the_server() {
    let mut s = Script::with(LockLimits { demands_outstanding: 100, ..LockLimits::default() });
    let holder = open(&mut s, 4, MODEST);
    let objects: Vec<ObjectId> = (1..=200).map(ObjectId).collect();
    for object in &objects {
        assert_eq!(s.grant(holder, *object, Want::Shared).mode, Want::Shared);
    }
    let asked = (0..200).step_by(50).map(|from| {
        let (next, asked) =
            s.table.demand_cached(s.now, from, 50, |_, realm, _| Some((Keep::Nothing, GREEDY)).filter(|_| realm == Realm::TREE));
        assert_eq!(next.is_some(), from < 150);
        asked
    });
    assert_eq!(asked.flatten().map(|(owner, count)| (owner == GREEDY, count)).collect::<Vec<_>>(), [(true, 50); 4]);
    let told = s.decisions().into_iter().filter(|decision| matches!(decision, LockDecision::Demand { .. })).count();
    assert_eq!(told, 80, "four fifths of all are the most that anybody has");
    let other = open(&mut s, 5, MODEST);
    let hot = s.grant(other, ObjectId(999), Want::Shared);
    assert_eq!(s.enter(1, LockSlot::SERVER, &[ObjectId(999)]), Turn::Waiting);
    assert_eq!(s.decisions(), [demand(other, cache(ObjectId(999)), hot.generation, Keep::Nothing)]);
}

#[test]
fn who_is_refused_by_its_share_takes_nothing_from_others() {
    let mut s = Script::with(LockLimits { locks_max: 2_000, locks_per_session: 2_000, ..LockLimits::default() });
    let (greedy, modest) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    for n in 0..50 {
        s.shared(modest, ObjectId(100 + n));
    }
    let own = s.shared(greedy, ObjectId(200));
    fill(&mut s, greedy, 1);
    assert!(s.table.held_by_all() < 1_700, "there is room");
    s.decisions();
    for n in 0..200 {
        let outcome = s.lock(greedy, 10_000 + n, ObjectId(20_000 + n), Mode::Shared, LockWait::Try);
        assert!(matches!(outcome, LockOutcome::Limited(Limited { whose: Whose::Host, .. })), "{outcome:?}");
        assert_eq!(demands_to(&s.decisions(), modest), 0);
    }
    s.give(greedy, cache(ObjectId(200)), own);
}

#[test]
fn wait_that_was_admitted_ends_in_a_grant_whatever_others_have_taken_meanwhile() {
    let mut s = Script::with(LockLimits { locks_max: 2_000, locks_per_session: 2_000, ..LockLimits::default() });
    let (first, second) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    let held = s.locked(second, 1, ObjectId(7), Mode::Exclusive);
    for n in 0..1_000 {
        s.locked(first, n + 1, ObjectId(1_000 + n), Mode::Shared);
        s.tokens();
    }
    assert_eq!(s.queued(first, 5_000, ObjectId(7), Mode::Exclusive), 0);
    for n in 0..750 {
        s.locked(second, n + 2, ObjectId(10_000 + n), Mode::Shared);
        s.tokens();
    }
    s.decisions();
    s.give(second, advisory(ObjectId(7)), held);
    assert_eq!(granted(&s.decisions()), [(first, 5_000)]);
}

/// A session has ended, and nothing is left of it.
fn close(s: &mut Script, slot: LockSlot) {
    s.table.set_access(s.now, slot, LockAccess::Ended);
    s.table.set_access(s.now, slot, LockAccess::Freed);
    while s.table.sweep(s.now, 1 << 20) {}
}

#[test]
fn one_failure_of_a_host_is_one_strike_however_many_sessions_it_has() {
    let mut s = Script::new();
    let sessions: Vec<_> = (4..16).map(|n| open(&mut s, n, GREEDY)).collect();
    for slot in &sessions {
        s.table.strike(s.now, *slot, COST);
    }
    assert_eq!(strikes(&s, sessions[0]), 1);
    s.pass(128_001);
    s.table.strike(s.now, sessions[1], COST);
    assert_eq!(strikes(&s, sessions[0]), 2);
}

#[test]
fn strikes_outlast_all_reconnections_and_those_who_are_remembered_are_bounded() {
    let mut s = Script::new();
    let (greedy, modest) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    s.table.strike(s.now, greedy, COST);
    s.table.strike(s.now, modest, COST);
    s.pass(128_001);
    s.table.strike(s.now, greedy, COST);
    close(&mut s, modest);
    close(&mut s, greedy);
    for _ in 0..5_000 {
        let again = open(&mut s, 4, GREEDY);
        close(&mut s, again);
    }
    assert_eq!(s.table.owners.remembered(), 2);
    let (again, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, MODEST));
    assert_eq!((strikes(&s, again), strikes(&s, other)), (2, 1));
    for n in 0..5_000u32 {
        let struck = open(&mut s, 6, Owner::V4((0x0b00_0000 + n).to_be_bytes()));
        s.table.strike(s.now, struck, COST);
        close(&mut s, struck);
    }
    assert_eq!(s.table.owners.remembered(), 4_096);
    assert_eq!((strikes(&s, again), strikes(&s, other)), (2, 1), "they have sessions");
}

#[test]
fn owner_on_whose_account_is_asked_is_known_until_the_demand_is_settled() {
    let mut s = Script::new();
    let holder = open(&mut s, 4, MODEST);
    let generation = s.shared(holder, ObjectId(7));
    let asker = open(&mut s, 5, GREEDY);
    s.enter(1, asker, &[ObjectId(7)]);
    assert_eq!(demands_to(&s.decisions(), holder), 1);
    let owners = s.table.owners.all.len();
    close(&mut s, asker);
    for _ in 0..5_000 {
        let again = open(&mut s, 5, GREEDY);
        close(&mut s, again);
    }
    assert_eq!((s.table.owners.all.len(), s.table.owners.remembered()), (owners, 0));
    s.give(holder, cache(ObjectId(7)), generation);
    assert_eq!(s.table.owners.all.len(), owners - 1);
}

#[test]
fn demand_passes_from_an_owner_that_may_ask_no_more_to_one_that_may() {
    let mut s = Script::with(LockLimits { demands_outstanding: 500, ..LockLimits::default() });
    let holders: Vec<_> = (4..10).map(|n| open(&mut s, n, Owner::V4(n.to_be_bytes()))).collect();
    let (asker, other, modest) = (open(&mut s, 10, GREEDY), open(&mut s, 11, Owner::V4([10, 0, 1, 1])), open(&mut s, 12, MODEST));
    let mut task = 0;
    for (n, holder) in (0..).zip(&holders) {
        for object in (0..100).map(|m| ObjectId(1_000 + 100 * n + m)) {
            s.shared(*holder, object);
            task += 1;
            s.enter(task, asker, &[object]);
        }
    }
    s.shared(other, ObjectId(9));
    task += 1;
    s.enter(task, asker, &[ObjectId(9)]);
    assert_eq!((demands_to(&s.decisions(), other), s.table.counts().demands_outstanding), (0, 400), "over its share");
    s.enter(task + 1, modest, &[ObjectId(9)]);
    assert_eq!(demands_to(&s.decisions(), other), 1);
}

#[test]
fn demand_passes_to_whoever_else_has_asked_when_its_turn_comes() {
    let mut s = Script::with(LockLimits { demands_outstanding: 500, ..LockLimits::default() });
    let holders: Vec<_> = (4..10).map(|n| open(&mut s, n, Owner::V4(n.to_be_bytes()))).collect();
    let (asker, other, modest) = (open(&mut s, 10, GREEDY), open(&mut s, 11, Owner::V4([10, 0, 1, 1])), open(&mut s, 12, MODEST));
    let own = s.shared(other, ObjectId(9));
    s.table.set_access(s.now, other, LockAccess::Suspended);
    // Both ask while both may; what is asked of who is timing out goes out when that one is rescued.
    s.enter(1, asker, &[ObjectId(9)]);
    s.enter(2, modest, &[ObjectId(9)]);
    let mut task = 2;
    for (n, holder) in (0..).zip(&holders) {
        for object in (0..100).map(|m| ObjectId(1_000 + 100 * n + m)) {
            s.shared(*holder, object);
            task += 1;
            s.enter(task, asker, &[object]);
        }
    }
    assert_eq!((demands_to(&s.decisions(), other), s.table.counts().demands_outstanding), (0, 400));
    s.table.set_access(s.now, other, LockAccess::Active);
    assert_eq!(demands_to(&s.decisions(), other), 1, "on account of the one who may ask");
    let owners = s.table.owners.all.len();
    close(&mut s, modest);
    assert_eq!(s.table.owners.all.len(), owners);
    s.give(other, cache(ObjectId(9)), own);
    assert_eq!(s.table.owners.all.len(), owners - 1, "whom a demand names is known as long as that demand stands, and no longer");
}

#[test]
fn what_an_owner_has_is_what_its_sessions_have() {
    let mut s = Script::new();
    let (first, second, other) = (open(&mut s, 4, GREEDY), open(&mut s, 5, GREEDY), open(&mut s, 6, MODEST));
    let has = |s: &Script| {
        let owner = s.table.owners.all.get(s.table.table.sessions[first.0].owner).unwrap();
        (owner.held, owner.waits)
    };
    let held = s.locked(other, 1, ObjectId(7), Mode::Exclusive);
    s.shared(first, ObjectId(8));
    s.locked(second, 1, ObjectId(9), Mode::Shared);
    assert_eq!((s.queued(first, 2, ObjectId(7), Mode::Shared), s.queued(second, 2, ObjectId(7), Mode::Shared)), (0, 1));
    assert_eq!(has(&s), (2, 2));
    s.give(other, advisory(ObjectId(7)), held);
    assert_eq!(has(&s), (4, 0));
    close(&mut s, second);
    assert_eq!(has(&s), (2, 0));
}
