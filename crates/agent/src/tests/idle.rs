//! The phases of the lease, the three idle policies, and what holders are told.

use super::script::*;
use crate::api::{AttrChange, Command, Event, LockEvent, OpError, Phase, Target, Wait};
use crate::config::{Config, IdlePolicy};
use alloc::vec::Vec;
use cistern_wire::{Alive, Claim, EndReason, EndSession, Ended, LockWait, Message, Mode, ObjectId, Pending, SessionFate, SessionId};
use core::time::Duration;

fn config(idle: IdlePolicy) -> Config {
    Config { idle, idle_after: Duration::ZERO, ..Config::default() }
}

fn close(serial: u64) -> Message<'static> {
    EndSession { serial, reason: EndReason::Close }.into()
}

/// End of *valid*, in milliseconds after the renewing transmission.
const VALID: u64 = 1_200;

#[test]
fn an_idle_agent_that_holds_nothing_sends_nothing_and_waits_for_nothing() {
    for idle in [IdlePolicy::Eager, IdlePolicy::Lazy, IdlePolicy::Auto] {
        let mut fresh = Script::new(config(idle));
        fresh.asleep();
        let mut script = Script::open(config(idle));
        script.asleep();
    }
}

#[test]
fn eager_keeps_its_lease_for_a_cached_object() {
    let mut script = Script::open(config(IdlePolicy::Eager));
    script.cache(7, 2, 40);
    for serial in 2..=4 {
        script.silence(VALID - 1);
        script.sleep(1);
        let expected = script.keep_alive(serial);
        let echo = script.sends(&[expected]);
        script.say(&[Alive { serial, echo }.into()]);
        script.quiet();
    }
    script.is_cached(7);
    assert_eq!(script.agent.view(script.now()).renewals_explicit, 3);
}

//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST keep what it holds over the end of its lease until it learns that the session has ended.
#[test]
fn lazy_lets_its_lease_lapse_and_keeps_what_it_holds() {
    let mut script = Script::open(config(IdlePolicy::Lazy));
    script.cache(7, 2, 40);
    script.silence(10 * TAU_MS);
    script.asleep();
    assert_eq!(script.agent.view(script.now()).cache_locks, 1);
}

#[test]
fn lazy_renews_while_somebody_holds_a_lock() {
    let mut script = Script::open(config(IdlePolicy::Lazy));
    let locked = script.hold(7, 2, 40, 16);
    script.silence(VALID - 1);
    script.sleep(1);
    let expected = script.keep_alive(2);
    let echo = script.sends(&[expected]);
    script.say(&[Alive { serial: 2, echo }.into()]);
    script.submit(Command::Unlock { holder: locked.holder });
    script.silence(5 * TAU_MS);
    assert_eq!(script.agent.view(script.now()).advisory_locks, 1, "kept, though nobody here uses it");
}

#[test]
fn auto_ends_its_session_with_all_that_it_holds_and_goes_silent() {
    let mut script = Script::open(config(IdlePolicy::Auto));
    script.cache(7, 2, 40);
    let locked = script.hold(9, 3, 60, 16);
    script.submit(Command::Unlock { holder: locked.holder });
    script.silence(VALID - 1);
    script.sleep(1);
    let echo = script.sends(&[close(2)]);
    assert!(matches!(script.events()[..], [Event::SessionEnded { session: SESSION, .. }]));
    script.say(&[Ended { serial: 2, echo }.into()]);
    script.asleep();
    let view = script.agent.view(script.now());
    assert_eq!((view.session, view.cache_locks, view.advisory_locks, view.renewals_explicit), (None, 0, 0, 0));
    // The next command opens another, and names none that has ended.
    script.start(stat(7));
    assert_eq!(script.shake_amid(SessionId(0xCD), &[]), []);
}

#[test]
fn auto_renews_what_was_used_lately() {
    let mut script = Script::open(Config { idle: IdlePolicy::Auto, idle_after: Duration::from_millis(2_000), ..Config::default() });
    script.cache(7, 2, 40);
    script.sleep(VALID);
    let expected = script.keep_alive(2);
    let echo = script.sends(&[expected]);
    script.say(&[Alive { serial: 2, echo }.into()]);
    script.quiet();
    script.sleep(VALID);
    script.sends(&[close(3)]);
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# An agent whose own address has changed SHOULD send a keep-alive at once if it would renew its lease.
#[test]
fn an_agent_that_moved_shows_itself_at_once_and_until_something_sent_since_is_answered() {
    let mut script = Script::open(config(IdlePolicy::Lazy));
    script.hold(7, 2, 40, 16);
    script.start(Command::Ping);
    let before = script.sends(&[ping(3, 0)]);
    script.sleep(10);
    let now = script.now();
    script.agent.handle_moved(now);
    let first = script.keep_alive(2);
    script.sends(&[first]);
    // An answer to what was sent before came to the old address yet: it says nothing.
    script.say(&[stated(3, before, attr(1, 1), 0)]);
    script.sleep(300);
    let again = script.keep_alive(3);
    let echo = script.sends(&[again]);
    script.say(&[Alive { serial: 3, echo }.into()]);
    script.silence(VALID - 1);
    script.sleep(1);
    let next = script.keep_alive(4);
    script.sends(&[next]);
}

#[test]
fn an_agent_that_moved_and_would_not_renew_sends_nothing() {
    let mut fresh = Script::open(config(IdlePolicy::Eager));
    let mut lazy = Script::open(config(IdlePolicy::Lazy));
    lazy.cache(7, 2, 40);
    for script in [&mut fresh, &mut lazy] {
        let now = script.now();
        script.agent.handle_moved(now);
        script.silence(3 * TAU_MS);
        script.asleep();
    }
}

#[test]
fn a_keep_alive_goes_out_only_when_nothing_opportunistic_renews() {
    let mut script = Script::open(config(IdlePolicy::Eager));
    script.hold(7, 2, 40, 16);
    // Something asked every 700 ms: no keep-alive for 10 leases.
    for nonce in 3..31 {
        script.silence(700);
        script.start(Command::Ping);
        let echo = script.sends(&[ping(nonce, 0)]);
        script.say(&[stated(nonce, echo, attr(1, 1), 0)]);
        script.events();
    }
    let view = script.agent.view(script.now());
    assert_eq!((view.renewals_explicit, view.phase), (0, Phase::Valid));
}

//= wire-spec.md#11-1-lease
//= type=test
//# An agent MAY renew on answers to keep-alives alone.
#[test]
fn without_opportunistic_renewal_only_keep_alives_renew_however_much_is_asked() {
    let mut script = Script::open(Config { opportunistic: false, ..config(IdlePolicy::Eager) });
    script.hold(7, 2, 40, 16);
    let opened = script.agent.view(script.now()).valid_until;
    let (mut nonce, mut renewed) = (3, opened);
    for serial in 2..=4 {
        // Two requests, of which the second is not answered yet when *valid* ends.
        script.sleep(700);
        script.start(Command::Ping);
        let answered = script.sends(&[ping(nonce, 0)]);
        script.say(&[stated(nonce, answered, attr(1, 1), 0)]);
        script.sleep(VALID - 700 - 1);
        script.start(Command::Ping);
        let echo = script.sends(&[ping(nonce + 1, 0)]);
        script.say(&[Pending { nonce: nonce + 1, echo }.into()]);
        script.events();
        assert_eq!(script.agent.view(script.now()).valid_until, renewed, "an answer to a request renews nothing");
        script.sleep(1);
        let keep_alive = script.keep_alive(serial);
        let alive = script.sends(&[keep_alive]);
        script.say(&[Alive { serial, echo: alive }.into(), stated(nonce + 1, echo, attr(1, 1), 0)]);
        script.events();
        let view = script.agent.view(script.now());
        assert!(view.valid_until != renewed && view.phase == Phase::Valid);
        (nonce, renewed) = (nonce + 2, view.valid_until);
    }
    let view = script.agent.view(script.now());
    assert_eq!((view.renewals_opportunistic, view.renewals_explicit), (0, 3));
}

#[test]
fn a_request_just_sent_is_given_its_time_before_a_keep_alive() {
    let mut script = Script::open(config(IdlePolicy::Eager));
    script.hold(7, 2, 40, 16);
    script.sleep(VALID);
    script.start(Command::Ping);
    script.sends(&[ping(3, 0)]);
    script.quiet();
    let sent = script.run(60);
    let kinds: Vec<&str> = sent.iter().flat_map(|(_, sent)| sent.messages()).map(|message| message.kind().name()).collect();
    assert!(kinds.contains(&"KEEPALIVE"), "bulk may be shed, keep-alives are not: {kinds:?}");
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The RTO and its doubled values MUST be at most τ/8 while the agent holds locks.
#[test]
fn unanswered_keep_alives_are_sent_again_with_backoff_no_slower_than_an_eighth_of_tau() {
    let mut script = Script::open(config(IdlePolicy::Eager));
    script.hold(7, 2, 40, 16);
    script.silence(VALID - 1);
    let mut sent = script.run(2 * TAU_MS);
    sent.retain(|(_, sent)| sent.datagram().header.session == SESSION);
    assert!(sent.iter().all(|(_, sent)| matches!(sent.messages()[..], [Message::KeepAlive(_)])));
    let gaps: Vec<u64> = sent.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
    assert!(gaps.iter().all(|gap| *gap >= 20 && *gap <= TAU_MS / 8 + 1), "{gaps:?}");
    assert!(gaps[0] < gaps[gaps.len() - 1]);
    assert!(gaps[4..].windows(2).any(|pair| pair[0] != pair[1]), "jittered: {gaps:?}");
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When its lease ends the agent MUST tell each holder of a lock that the lock is uncertain.
//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# When a renewing answer revives the lease the agent MUST tell each holder that the lock is certain again, under the same token.
#[test]
fn holders_are_told_suspect_uncertain_and_certain_again_under_the_same_token() {
    let mut script = Script::open(config(IdlePolicy::Eager));
    let locked = script.hold(7, 2, 40, 16);
    let valid_until = script.agent.view(script.now()).valid_until.unwrap();
    assert_eq!(locked.valid_until, valid_until);
    script.run(1_599);
    script.hears(&[]);
    script.run(1);
    script.hears(&[Script::told(&locked, LockEvent::Suspect { valid_until })]);
    script.run(399);
    script.hears(&[]);
    assert!(script.agent.holder_view(script.now(), locked.holder).unwrap().certain);
    let sent = script.run(1);
    script.hears(&[Script::told(&locked, LockEvent::Uncertain)]);
    drop(sent);
    let sent = script.run(TAU_MS / 8 + 1);
    let in_session = |sent: &Sent| sent.datagram().header.session == SESSION;
    let (_, keep_alive) = sent.into_iter().rfind(|(_, sent)| in_session(sent)).expect("it goes on asking");
    let Message::KeepAlive(message) = keep_alive.messages()[0] else { panic!("a keep-alive") };
    script.say(&[Alive { serial: message.serial, echo: keep_alive.packet() }.into()]);
    script.quiet();
    let valid_until = script.agent.view(script.now()).valid_until.unwrap();
    script.hears(&[Script::told(&locked, LockEvent::Certain { valid_until })]);
}

#[test]
fn an_agent_of_which_nothing_is_in_use_does_not_call_a_dead_server_for_ever() {
    let mut script = Script::open(config(IdlePolicy::Auto));
    script.cache(7, 2, 40);
    let sent = script.run(60 * TAU_MS);
    assert!(sent.len() > 3 && sent.len() < 40, "{} datagrams", sent.len());
    assert!(sent.iter().all(|(_, sent)| sent.messages() == [close(2)]), "the same words");
    script.asleep();
    // It says so once more as soon as somebody needs the server.
    script.start(stat(7));
    assert_eq!(script.shake_amid(SessionId(0xCD), &[(SESSION, SessionFate::Ended)]), [(SESSION, Claim::Surrendered)]);
}

#[test]
fn a_waiting_user_keeps_the_lease_alive_under_every_policy() {
    for idle in [IdlePolicy::Eager, IdlePolicy::Lazy, IdlePolicy::Auto] {
        let mut script = Script::open(config(idle));
        script.start(lock(7, Mode::Exclusive, Wait::Forever));
        let echo = script.sends(&[lock_request(2, 0, 7, Mode::Exclusive, LockWait::Queue)]);
        script.say(&[queued(2, echo, 7)]);
        script.silence(VALID - 1);
        script.sleep(1);
        let expected = script.keep_alive(2);
        script.sends(&[expected]);
    }
}

#[test]
fn an_outcome_that_nobody_waits_for_is_not_asked_of_a_dead_server_for_ever() {
    let mut script = Script::open(config(IdlePolicy::Auto));
    let change = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    let target = Target::Object(ObjectId(7));
    let op = script.start(Command::SetAttr { target, follow: true, change });
    script.run(60_000);
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    script.silence(600_000);
    script.asleep();
    // It is as soon as somebody needs the server.
    script.start(stat(7));
    let sent = script.turn();
    let kinds: Vec<&str> = sent.iter().flat_map(|s| s.messages().iter().map(|m| m.kind().name()).collect::<Vec<_>>()).collect();
    assert_eq!(kinds, ["KEEPALIVE", "SETATTR", "GETATTR"]);
}
