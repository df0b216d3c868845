//! Very many locks, and locks that come and go without anything to be done: what all are told at once, and what no turn is needed for.

use super::script::*;
use crate::api::{Command, Event, LockEvent, Locked, Output, Submitted, Wait};
use crate::config::Config;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use cistern_link::Machine as _;
use cistern_wire::{Alive, EndReason, EndSession, Fate, Message, Mode, Nack, NackReason};

const MANY: u64 = 1_500;

/// An agent with so many locks, each for a local user.
fn holding(script: &mut Script) -> Vec<Locked> {
    (0..MANY).map(|n| script.hold(100 + n, 2 + n, 1_000 + 20 * n, 16)).collect()
}

/// The holders that were told this, each once.
fn told(script: &mut Script, is_it: impl Fn(LockEvent) -> bool) -> BTreeSet<crate::api::HolderId> {
    let mut told = BTreeSet::new();
    for event in script.events() {
        if let Event::Lock { holder, what, .. } = event
            && is_it(what)
        {
            assert!(told.insert(holder), "{holder:?} was told twice");
        }
    }
    told
}

fn nacked(script: &mut Script) {
    script.start(Command::Ping);
    let echo = script.turn().last().unwrap().packet();
    script.say(&[Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()]);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
#[test]
fn holders_of_very_many_locks_are_told_in_the_first_call_after_the_lease_in_the_order_of_their_grants() {
    let mut script = Script::open(Config::default());
    let locks = holding(&mut script);
    script.events();
    script.sleep(2_000);
    let certain = |script: &Script| locks.iter().any(|held| script.agent.holder_view(script.now(), held.holder).unwrap().certain);
    assert!(!certain(&script), "whoever looks needs not be told");
    let at_once = script.agent.submit(script.now(), Command::Unlock { holder: locks[0].holder });
    assert_eq!(at_once, Submitted::Now(Ok(Output::Done)));
    let all: Vec<_> = locks.iter().map(|held| Script::told(held, LockEvent::Uncertain)).collect();
    assert_eq!(script.events(), all, "the one that was given back was told before");
    let sent = script.turn();
    let keep_alive = |message: &Message<'_>| if let Message::KeepAlive(keep) = message { Some(keep.serial) } else { None };
    let (serial, echo) =
        sent.iter().find_map(|sent| Some((sent.messages().iter().find_map(keep_alive)?, sent.packet()))).unwrap_or_else(|| {
            let (_, sent) = script.run(400).pop().unwrap();
            (sent.messages().iter().find_map(keep_alive).unwrap(), sent.packet())
        });
    script.events();
    script.say(&[Alive { serial, echo }.into()]);
    let again = told(&mut script, |what| matches!(what, LockEvent::Certain { .. }));
    assert_eq!(again.len(), locks.len() - 1, "all who still hold one");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# The agent MUST tell its users by name which locks they have lost when a session ends.
#[test]
fn very_many_locks_are_lost_at_once_and_surrender_waits_for_all_of_their_holders() {
    let mut script = Script::open(Config::default());
    let locks = holding(&mut script);
    script.events();
    nacked(&mut script);
    let lost = told(&mut script, |what| what == LockEvent::Lost);
    assert_eq!(lost.len(), locks.len());
    assert!(locks.iter().all(|held| script.agent.holder_view(script.now(), held.holder).is_none()), "none is held any more");
    let stop = |script: &mut Script, held: &Locked| {
        let stopped = script.submit(Command::Unlock { holder: held.holder });
        assert!(matches!(stopped, Submitted::Now(Err(_))), "{stopped:?}");
    };
    let surrenders = |sent: &[Sent]| {
        let surrender = |message: &Message<'_>| matches!(message, Message::EndSession(EndSession { reason: EndReason::Surrender, .. }));
        sent.iter().any(|sent| sent.messages().iter().any(surrender))
    };
    let (last, others) = locks.split_last().unwrap();
    others.iter().for_each(|held| stop(&mut script, held));
    assert!(!surrenders(&script.turn()), "one may still act");
    stop(&mut script, last);
    assert!(surrenders(&script.turn()));
}

#[test]
fn lock_that_the_agent_holds_comes_and_goes_without_waking_the_driver_until_a_run_is_due() {
    let mut script = Script::open(Config::default());
    let mut locked = script.hold(7, 2, 1_000, 100);
    let wakes = script.agent.wake_after(script.now());
    for token in 1_001..1_074 {
        script.submit(Command::Unlock { holder: locked.holder });
        let Submitted::Now(Ok(Output::Locked(next))) = script.submit(lock(7, Mode::Exclusive, Wait::Forever)) else {
            panic!("not at once")
        };
        locked = next;
        assert_eq!(locked.token, token);
        assert_eq!(script.agent.wake_after(script.now()), wakes, "token {token}");
    }
    script.submit(Command::Unlock { holder: locked.holder });
    script.submit(lock(7, Mode::Exclusive, Wait::Forever));
    assert_eq!(script.agent.wake_after(script.now()), Some(core::time::Duration::ZERO), "another run is to be asked for");
}

#[test]
fn last_holder_that_went_between_two_turns_leaves_no_timer_and_the_next_one_is_told_when_the_lease_ends() {
    let mut script = Script::open(Config::default());
    let first = script.hold(7, 2, 1_000, 100);
    script.submit(Command::Unlock { holder: first.holder });
    let Submitted::Now(Ok(Output::Locked(second))) = script.submit(lock(7, Mode::Exclusive, Wait::Try)) else { panic!("not at once") };
    script.sleep(2_000);
    script.turn();
    let events = script.events();
    assert!(events.contains(&Script::told(&second, LockEvent::Uncertain)), "{events:?}");
    script.submit(Command::Unlock { holder: second.holder });
    assert!(script.events().is_empty());
}
