//! Advisory locks among the users of one agent: no messages, in order, each with a larger token.

use super::locking::{back, demand, item, receipt};
use super::script::*;
use crate::api::{Command, Locked, OpError, Output, Submitted, Wait};
use crate::config::{Config, IdlePolicy};
use cistern_wire::{
    Ack, Alive, Failed, Generation, Granted, Keep, List, LockRefused, LockWait, Message, Mode, ReceiptAnswer, Release, Reply, Status,
};

fn config() -> Config {
    Config { idle: IdlePolicy::Lazy, ..Config::default() }
}

fn at_once(script: &mut Script, mode: Mode) -> Locked {
    match script.submit(lock(7, mode, Wait::Try)) {
        Submitted::Now(Ok(Output::Locked(locked))) => locked,
        other => panic!("not at once: {other:?}"),
    }
}

fn unlock(script: &mut Script, locked: &Locked) {
    assert_eq!(script.submit(Command::Unlock { holder: locked.holder }), Submitted::Now(Ok(Output::Done)));
}

/// Another run of tokens of the lock, which is held exclusively, is asked for.
fn extend(nonce: u64) -> Message<'static> {
    lock_request(nonce, 0, 7, Mode::Exclusive, LockWait::Try)
}

//= wire-spec.md#11-4-locks
//= type=test
//# Each local grant of an advisory lock MUST show its holder the next token of the run.
#[test]
fn users_of_one_agent_hand_a_lock_on_without_a_message_each_with_the_next_token() {
    let mut script = Script::open(config());
    let mut locked = script.hold(7, 2, 40, 100);
    for token in 41..60 {
        unlock(&mut script, &locked);
        locked = at_once(&mut script, Mode::Exclusive);
        assert_eq!((locked.token, locked.generation), (token, Generation(40)));
        script.quiet();
    }
}

#[test]
fn users_are_served_in_order_and_shared_ones_together() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 100);
    let shared = [(); 2].map(|()| script.start(lock(7, Mode::Shared, Wait::Forever)));
    let exclusive = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let late = script.start(lock(7, Mode::Shared, Wait::Forever));
    assert_eq!(script.submit(lock(7, Mode::Shared, Wait::Try)), Submitted::Now(Err(OpError::Status(Status::EAGAIN))));
    unlock(&mut script, &first);
    let done = |events: alloc::vec::Vec<crate::api::Event>| -> alloc::vec::Vec<(crate::api::OpId, Locked)> {
        let got = events.into_iter().map(|event| match event {
            crate::api::Event::Done { op, result: Ok(Output::Locked(locked)) } => (op, locked),
            other => panic!("{other:?}"),
        });
        got.collect()
    };
    let got = done(script.events());
    assert_eq!(got.iter().map(|(op, l)| (*op, l.token)).collect::<alloc::vec::Vec<_>>(), [(shared[0], 41), (shared[1], 42)]);
    unlock(&mut script, &got[0].1);
    script.hears(&[]);
    unlock(&mut script, &got[1].1);
    let got = done(script.events());
    assert_eq!(got[0].0, exclusive);
    unlock(&mut script, &got[0].1);
    assert_eq!(done(script.events())[0].0, late);
    script.quiet();
}

#[test]
fn nothing_is_granted_locally_in_suspect_or_after_the_lease() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 100);
    unlock(&mut script, &first);
    for ms in [1_600, 400] {
        script.sleep(ms);
        let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
        script.agent.cancel(script.now(), op);
        script.events();
    }
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    // The two before it were wanted by those who cancelled, and never sent.
    let clock = script.keep_alive(4);
    let echo = script.sends(&[clock]);
    script.say(&[Alive { serial: 4, echo }.into()]);
    assert_eq!(script.locked(op).token, 41);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# While a lock is not certain the agent MUST NOT pass it on to another local user.
#[test]
fn while_a_lock_is_not_certain_it_does_not_pass_to_another_user() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 100);
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.sleep(TAU_MS);
    script.turn();
    script.events();
    unlock(&mut script, &first);
    script.hears(&[]);
}

//= wire-spec.md#11-4-locks
//= type=test
//# Before its run ends an agent MUST ask for another one by LOCK, keeping the lock.
#[test]
fn another_run_is_asked_for_before_the_first_ends_and_the_lock_is_kept() {
    let mut script = Script::open(config());
    let mut locked = script.hold(7, 2, 40, 8);
    for token in 41..=44 {
        unlock(&mut script, &locked);
        locked = at_once(&mut script, Mode::Exclusive);
        assert_eq!(locked.token, token);
        script.quiet();
    }
    unlock(&mut script, &locked);
    locked = at_once(&mut script, Mode::Exclusive);
    let echo = script.sends(&[extend(3)]);
    unlock(&mut script, &locked);
    locked = at_once(&mut script, Mode::Exclusive);
    assert_eq!(locked.token, 46);
    script.quiet();
    let reply = Reply::Granted(Granted { lock: object(7), mode: Mode::Exclusive, generation: Generation(90), run: 8 });
    script.say(&[Ack { nonce: 3, echo, reply }.into()]);
    unlock(&mut script, &locked);
    locked = at_once(&mut script, Mode::Exclusive);
    assert_eq!((locked.token, locked.generation), (90, Generation(90)));
    script.quiet();
}

#[test]
fn agent_whose_users_took_tokens_while_it_waited_for_a_run_asks_for_the_next_one_earlier() {
    let mut script = Script::open(config());
    let mut locked = script.hold(7, 2, 1_000, 100);
    let mut take = |script: &mut Script, upto: u64| {
        while locked.token < upto {
            unlock(script, &locked);
            locked = at_once(script, Mode::Exclusive);
        }
        assert_eq!(locked.token, upto);
    };
    take(&mut script, 1_073);
    script.quiet();
    take(&mut script, 1_074);
    let echo = script.sends(&[extend(3)]);
    take(&mut script, 1_094);
    let run = |generation| Reply::Granted(Granted { lock: object(7), mode: Mode::Exclusive, generation: Generation(generation), run: 100 });
    script.say(&[Ack { nonce: 3, echo, reply: run(2_000) }.into()]);
    take(&mut script, 2_058);
    script.quiet();
    take(&mut script, 2_059);
    let echo = script.sends(&[extend(4)]);
    script.say(&[Ack { nonce: 4, echo, reply: run(3_000) }.into()]);
    take(&mut script, 3_073);
    script.quiet();
    take(&mut script, 3_074);
    script.sends(&[extend(5)]);
}

#[test]
fn when_a_run_is_used_up_the_next_user_waits_for_another() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 1);
    unlock(&mut script, &first);
    script.quiet();
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[extend(3)]);
    let reply = Reply::Granted(Granted { lock: object(7), mode: Mode::Exclusive, generation: Generation(41), run: 1 });
    script.say(&[Ack { nonce: 3, echo, reply }.into()]);
    assert_eq!(script.locked(op).token, 41);
}

#[test]
fn a_lock_that_somebody_waits_for_is_not_extended_but_given_back_and_asked_for_anew() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 1);
    unlock(&mut script, &first);
    let op = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[extend(3)]);
    script.say(&[Ack { nonce: 3, echo, reply: Reply::LockRefused(LockRefused { lock: object(7), holder: SOMEBODY }) }.into()]);
    let items = [item(7, 40, Keep::Nothing)];
    let echo = script.sends(&[Release { serial: 2, items: List::of(&items) }.into()]);
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    let echo = script.sends(&[lock_request(4, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[granted(4, echo, 7, Mode::Exclusive, 50, 16)]);
    assert_eq!(script.locked(op).token, 50);
}

#[test]
fn a_demand_that_leaves_a_shared_lock_does_not_disturb_shared_users() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 100);
    unlock(&mut script, &first);
    let reader = at_once(&mut script, Mode::Shared);
    script.say(&[demand(1, 7, 40, Keep::Shared)]);
    let items = [item(7, 40, Keep::Shared)];
    let echo = script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
    assert!(script.agent.holder_view(script.now(), reader.holder).unwrap().certain);
    let op = script.start(lock(7, Mode::Shared, Wait::Forever));
    script.quiet();
    script.say(&[released(2, echo, &[back(7, 40, Keep::Shared, 70)])]);
    let other = script.locked(op);
    assert_eq!((other.token, other.generation), (70, Generation(70)));
    script.quiet();
    unlock(&mut script, &reader);
    unlock(&mut script, &other);
    script.say(&[demand(2, 7, 70, Keep::Nothing)]);
    let items = [item(7, 70, Keep::Nothing)];
    script.sends(&[receipt(2, ReceiptAnswer::Received), Release { serial: 3, items: List::of(&items) }.into()]);
}

#[test]
fn an_exclusive_user_waits_for_shared_ones_and_then_the_lock_is_upgraded() {
    let mut script = Script::open(config());
    let reader = script.hold_as(Mode::Shared, 7, 2, (40, 16));
    let writer = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    script.quiet();
    unlock(&mut script, &reader);
    let echo = script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[granted(3, echo, 7, Mode::Exclusive, 60, 16)]);
    assert_eq!(script.locked(writer).token, 60);
}

#[test]
fn the_second_of_two_upgrades_gives_its_shared_lock_up_and_asks_anew() {
    let mut script = Script::open(config());
    let reader = script.hold_as(Mode::Shared, 7, 2, (40, 16));
    unlock(&mut script, &reader);
    let writer = script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[Ack { nonce: 3, echo, reply: Reply::Failed(Failed { status: Status::EDEADLK, retry_ms: 0 }) }.into()]);
    let items = [item(7, 40, Keep::Nothing)];
    let echo = script.sends(&[Release { serial: 2, items: List::of(&items) }.into()]);
    script.say(&[released(2, echo, &[back(7, 40, Keep::Nothing, 0)])]);
    let echo = script.sends(&[lock_request(4, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[granted(4, echo, 7, Mode::Exclusive, 60, 16)]);
    assert_eq!(script.locked(writer).token, 60);
}

#[test]
fn a_shared_lock_demanded_while_its_upgrade_waits_is_given_up() {
    let mut script = Script::open(config());
    let reader = script.hold_as(Mode::Shared, 7, 2, (40, 16));
    unlock(&mut script, &reader);
    script.start(lock(7, Mode::Exclusive, Wait::Forever));
    let echo = script.sends(&[lock_request(3, 0, 7, Mode::Exclusive, LockWait::Queue)]);
    script.say(&[queued(3, echo, 7)]);
    script.say(&[demand(1, 7, 40, Keep::Nothing)]);
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[receipt(1, ReceiptAnswer::Received), Release { serial: 2, items: List::of(&items) }.into()]);
}

#[test]
fn an_unlock_of_what_is_not_held_says_so() {
    let mut script = Script::open(config());
    let first = script.hold(7, 2, 40, 16);
    unlock(&mut script, &first);
    assert_eq!(script.submit(Command::Unlock { holder: first.holder }), Submitted::Now(Err(OpError::LeaseLost)));
}

#[test]
fn the_bound_on_advisory_locks_gives_idle_ones_back_and_then_refuses() {
    let mut script = Script::open(Config { advisory_max: 2, ..config() });
    let first = script.hold(7, 2, 40, 16);
    script.hold(8, 3, 60, 16);
    assert_eq!(script.submit(lock(9, Mode::Exclusive, Wait::Forever)), Submitted::Now(Err(OpError::Overloaded)));
    unlock(&mut script, &first);
    script.start(lock(9, Mode::Exclusive, Wait::Forever));
    let items = [item(7, 40, Keep::Nothing)];
    script.sends(&[Release { serial: 2, items: List::of(&items) }.into(), lock_request(4, 0, 9, Mode::Exclusive, LockWait::Queue)]);
}
