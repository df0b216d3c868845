//! Demands for cache locks: complied with at once, in whatever order they and the grants arrive.

use super::script::*;
use crate::api::{Command, Submitted};
use crate::config::CacheLimits;
use crate::config::Config;
use alloc::vec::Vec;
use cistern_wire::{Demand, Generation, Keep, List, Message, Receipt, ReceiptAnswer, Release, ReleaseItem, ReleasedItem};

fn demand(seq: u64, id: u64, generation: u64, keep: Keep) -> Message<'static> {
    Demand { seq, lock: cached(id), generation: Generation(generation), keep }.into()
}

fn receipt(seq: u64, answer: ReceiptAnswer) -> Message<'static> {
    Receipt { seq, answer }.into()
}

fn item(id: u64, generation: u64, keep: Keep) -> ReleaseItem {
    ReleaseItem { lock: cached(id), generation: Generation(generation), keep }
}

fn back(id: u64, generation: u64, keep: Keep, now: u64) -> ReleasedItem {
    ReleasedItem { lock: cached(id), generation: Generation(generation), keep, now: Generation(now) }
}

//= wire-spec.md#11-4-locks
//= type=test
//# The agent MUST give a cache lock back on demand as soon as the operation in hand under it ends.
#[test]
fn a_demand_is_receipted_and_complied_with_in_the_same_datagram() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    let items = [item(7, 40, Keep::Nothing)];
    let echo = script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    assert!(matches!(script.submit(stat(7)), Submitted::Later(_)), "nothing is answered under it any more");
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    assert_eq!(script.agent.view(script.now()).demands, 1);
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent that answered "not held" to a demand for g, or released g, MUST NOT install a grant of that lock of generation g or less in
//# that session.
#[test]
fn a_demand_that_overtakes_its_grant_keeps_the_grant_from_being_installed() {
    let mut script = Script::open(Config::default());
    script.start(stat(7));
    let echo = script.sends(&[get_attr(2, 0, 7)]);
    let answer = script.make(&[stated(2, echo, attr(7, 1), 40)]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    script.deliver(&answer);
    assert_eq!(script.events().len(), 1, "the user has his answer");
    assert_eq!(script.agent.view(script.now()).cache_locks, 0);
    assert!(matches!(script.submit(stat(7)), Submitted::Later(_)));
    // What was granted after the demand counts again.
    let echo = script.sends(&[get_attr(3, 0, 7)]);
    script.say(&[stated(3, echo, attr(7, 1), 41)]);
    script.is_cached(7);
}

#[test]
fn a_demand_covers_the_older_generation_that_is_held_while_the_newer_is_on_its_way() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    let read = Command::Read { target: crate::api::Target::Object(cistern_wire::ObjectId(7)), offset: 0, length: None };
    script.start(read);
    script.one();
    // The answer to it granted 44, and was lost.
    script.say(&[demand(1, 7, 44, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    assert_eq!(script.agent.view(script.now()).cache_locks, 0);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# An agent MUST receipt a demand for a generation that it does not know or no longer holds, without effect.
#[test]
fn a_demand_for_an_older_generation_than_the_one_held_touches_nothing() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    script.say(&[demand(1, 7, 39, Keep::Nothing)]);
    script.sends(&[receipt(1, ReceiptAnswer::NotHeld)]);
    script.is_cached(7);
}

//= wire-spec.md#6-4-notices
//= type=test
//# An agent MUST receipt a notice each time it arrives, by what its application says then.
#[test]
fn a_repeated_demand_is_receipted_each_time_and_counted_once() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.turn();
    for _ in 0..3 {
        script.say(&[demand(1, 7, 40, Keep::Nothing)]);
        let sent = script.one();
        assert_eq!(sent.messages()[0], receipt(1, ReceiptAnswer::NotHeld), "it is not held any more");
    }
    assert_eq!(script.agent.view(script.now()).demands, 1);
}

#[test]
fn a_downgrade_keeps_what_is_cached_under_the_generation_that_the_answer_names() {
    let mut script = Script::open(Config::default());
    let op = script.start(stat(7));
    let echo = script.sends(&[get_attr(2, 0, 7)]);
    let grant = cistern_wire::CacheGrant { mode: cistern_wire::Want::Exclusive, generation: Generation(40) };
    let reply = cistern_wire::Reply::Stated(cistern_wire::Stated { attr: attr(7, 1), grant });
    script.say(&[cistern_wire::Ack { nonce: 2, echo, reply }.into()]);
    assert_eq!(script.events().len(), 1, "{op:?}");
    script.say(&[demand(1, 7, 40, Keep::Shared)]);
    let items = [item(7, 40, Keep::Shared)];
    let echo = script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    script.is_cached(7);
    script.say(&[demand(1, 7, 40, Keep::Shared)]);
    script.sends(&[receipt(1, ReceiptAnswer::Received)]);
    script.say(&[released(2, echo, &[back(7, 40, Keep::Shared, 46)])]);
    script.is_cached(7);
    script.say(&[demand(2, 7, 46, Keep::Nothing)]);
    let items = [item(7, 46, Keep::Nothing)];
    script.sends(&[receipt(2, ReceiptAnswer::Received), Release { serial: 3, items: List::of(&items) }.into()]);
}

#[test]
fn a_release_is_sent_again_in_the_same_words_until_it_is_answered() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    script.turn();
    let items = [item(7, 40, Keep::Nothing)];
    let release: Message<'_> = Release { serial: 2, items: List::of(&items) }.into();
    let again = script.run(400);
    assert!(again.len() >= 2 && again.iter().all(|(_, sent)| sent.messages() == [release]));
    script.say(&[released(2, again[1].1.packet(), &[back(7, 40, Keep::Nothing, 0)])]);
    script.silence(TAU_MS);
}

#[test]
fn what_the_cache_has_no_room_for_goes_back_by_itself_in_shared_messages() {
    let limits = CacheLimits { objects: 4, bytes: 1 << 20 };
    let mut script = Script::open(Config { cache: limits, ..Config::default() });
    let mut given: Vec<ReleaseItem> = Vec::new();
    for id in 10..30 {
        let nonce = id - 8;
        script.start(stat(id));
        let sent = script.turn();
        let echo = sent.last().unwrap().packet();
        script.say(&[stated(nonce, echo, attr(id, 1), 100 + id)]);
        for sent in script.turn() {
            for message in sent.messages() {
                if let Message::Release(release) = message {
                    given.extend(release.items.iter());
                }
            }
        }
        assert!(script.agent.view(script.now()).cache_locks <= 4);
    }
    assert_eq!(given.len(), 16);
    assert_eq!(given[0], item(10, 110, Keep::Nothing), "the least used first");
}

#[test]
fn a_flood_of_notices_is_bounded_and_what_is_not_taken_in_comes_again() {
    let mut script = Script::open(Config::default());
    for seq in 1..=300 {
        script.say(&[demand(seq, 7, seq, Keep::Nothing)]);
    }
    let receipts: usize = script.turn().iter().map(|sent| sent.messages().len()).sum();
    assert_eq!(receipts, 256);
    script.say(&[demand(300, 7, 300, Keep::Nothing)]);
    script.sends(&[receipt(300, ReceiptAnswer::NotHeld)]);
    script.drops = 44;
}

//= wire-spec.md#11-4-locks
//= type=test
//# An agent whose shared cache lock is demanded while its mutation of the object waits MUST give it up.
#[test]
fn a_lock_demanded_while_the_own_change_of_its_object_waits_is_given_up_at_once() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    let (target, data) = (crate::api::Target::Object(cistern_wire::ObjectId(7)), bytes::Bytes::from_static(b"new"));
    script.start(Command::Write { target, offset: 0, data, truncate: true });
    let sent = script.one();
    let [Message::Write(write)] = sent.messages()[..] else { panic!("not a WRITE: {:?}", sent.messages()) };
    assert_eq!(write.terms.held.iter().map(|held| held.generation).collect::<Vec<_>>(), [Generation(40)]);
    let echo = sent.packet();
    script.say(&[cistern_wire::Pending { nonce: 3, echo }.into(), demand(1, 7, 40, Keep::Nothing)]);
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    script.hears(&[]);
}
