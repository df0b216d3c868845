//! Delivery: repetition, windows, sizes, and what commands hear that get no answer.

use super::script::*;
use crate::api::{Command, Event, OpError, Ownership, Target, Wait};
use crate::config::{Config, IdlePolicy};
use alloc::vec;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Machine;
use cistern_wire::limits::{DATAGRAM_MIN, ROOT};
use cistern_wire::{
    Alive, CancelOutcome, Cancelled, Demand, Generation, Keep, Message, Mode, ObjectId, PathChallenge, PathResponse, Pending, Receipt,
    ReceiptAnswer,
};
use core::time::Duration;

fn requests(sent: &Sent) -> Vec<u64> {
    sent.messages().iter().filter_map(|message| message.ask().map(|ask| ask.nonce)).collect()
}

fn mkdir() -> Command {
    let owner = Ownership { mode: 0o755, uid: 0, gid: 0 };
    Command::Mkdir { path: Bytes::from_static(b"/d"), owner }
}

fn write(bytes: usize) -> Command {
    let data = Bytes::from(vec![7; bytes]);
    Command::Write { target: Target::Object(ObjectId(9)), offset: 0, data, truncate: true }
}

#[test]
fn requests_share_a_datagram() {
    let mut script = Script::open(Config::default());
    (10..15).for_each(|id| {
        script.start(stat(id));
    });
    let sent = script.one();
    assert_eq!(requests(&sent), [2, 3, 4, 5, 6]);
}

#[test]
fn a_request_is_sent_again_under_its_nonce_with_backoff_and_jitter() {
    let mut script = Script::open(Config::default());
    script.start(Command::Ping);
    let mut sent = script.run(3_000);
    sent.retain(|(_, sent)| sent.datagram().header.session == SESSION);
    assert!(sent.iter().all(|(_, sent)| sent.messages().iter().all(|m| m.ask().is_none_or(|ask| ask.nonce == 2))));
    let packets: Vec<u64> = sent.iter().map(|(_, sent)| sent.packet()).collect();
    assert!(packets.windows(2).all(|pair| pair[1] == pair[0] + 1));
    let times: Vec<u64> = sent.iter().filter(|(_, sent)| !requests(sent).is_empty()).map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps[1] > gaps[0] && gaps[0] >= 20, "{gaps:?}");
    assert!(script.agent.view(script.now()).retransmissions >= 3);
    assert_eq!(script.agent.view(script.now()).requests, 2);
}

//= wire-spec.md#11-2-delivery
//= type=test
//# The RTO and its doubled values MUST be at most τ/8 while the agent holds locks.
#[test]
fn with_locks_held_nothing_waits_longer_than_an_eighth_of_tau_for_its_repetition() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.cache(7, 2, 40);
    script.start(stat(8));
    let sent = script.run(3_000);
    let times: Vec<u64> = sent.iter().filter(|(_, sent)| requests(sent) == [3]).map(|(at, _)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1] - pair[0] <= TAU_MS / 8 + 1), "{times:?}");
}

#[test]
fn the_timeout_follows_the_measured_round_trip() {
    let mut script = Script::open(Config::default());
    for nonce in 2..30 {
        script.start(Command::Ping);
        let echo = script.sends(&[ping(nonce, 0)]);
        script.sleep(60);
        // The round trip is measured by the transmission echoed, and no repetition hides it.
        script.say(&[stated(nonce, echo, attr(1, 1), 0)]);
        script.events();
        script.turn();
    }
    let round_trip = script.agent.view(script.now()).round_trip.unwrap();
    assert!((Duration::from_millis(55)..=Duration::from_millis(60)).contains(&round_trip), "{round_trip:?}");
    let before = script.agent.view(script.now()).retransmissions;
    script.start(Command::Ping);
    assert_eq!(script.run(60).len(), 1, "no repetition within the round trip");
    assert_eq!(script.agent.view(script.now()).retransmissions, before);
}

#[test]
fn an_answer_that_waited_measures_no_round_trip() {
    let mut script = Script::open(Config { idle: IdlePolicy::Lazy, ..Config::default() });
    script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    script.say(&[Pending { nonce: 2, echo }.into()]);
    script.sleep(400);
    script.say(&[stated(2, echo, attr(1, 1), 0)]);
    assert!(script.agent.view(script.now()).round_trip.unwrap() < Duration::from_millis(60));
}

#[test]
fn no_more_requests_are_out_than_the_congestion_window_admits_and_it_grows_with_answers() {
    let mut script = Script::open(Config::default());
    (100..180).for_each(|id| {
        script.start(stat(id));
    });
    let sent = script.turn();
    let nonces: Vec<(u64, u64)> = sent.iter().flat_map(|sent| requests(sent).into_iter().map(|nonce| (nonce, sent.packet()))).collect();
    assert_eq!(nonces.len(), 10);
    for (nonce, echo) in nonces {
        script.say(&[stated(nonce, echo, attr(98 + nonce, 1), 0)]);
    }
    let out: usize = script.turn().iter().map(|sent| requests(sent).len()).sum();
    assert!(out > 10 && out <= 20, "{out}");
}

#[test]
fn receipts_and_control_messages_wait_for_no_window() {
    let mut script = Script::open(Config::default());
    script.cache(7, 2, 40);
    (100..180).for_each(|id| {
        script.start(stat(id));
    });
    script.turn();
    script.say(&[Demand { seq: 1, lock: cached(7), generation: Generation(40), keep: Keep::Nothing }.into()]);
    let sent = script.one();
    let kinds: Vec<&str> = sent.messages().iter().map(|message| message.kind().name()).collect();
    assert_eq!(kinds, ["RECEIPT", "RELEASE"]);
}

#[test]
fn urgent_messages_go_in_datagrams_that_pass_everywhere() {
    let mut script = Script::open(Config::default());
    for id in 10..60 {
        let nonce = id - 8;
        script.start(stat(id));
        let echo = script.one().packet();
        script.say(&[stated(nonce, echo, attr(id, 1), 100 + id)]);
    }
    script.events();
    script.start(write(900));
    for id in 10..60 {
        script.say(&[Demand { seq: id, lock: cached(id), generation: Generation(100 + id), keep: Keep::Nothing }.into()]);
    }
    for sent in script.turn() {
        let urgent = sent.messages().iter().any(|message| matches!(message, Message::Receipt(_) | Message::Release(_)));
        assert!(!urgent || sent.bytes.len() <= DATAGRAM_MIN, "{} bytes", sent.bytes.len());
    }
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# After two further losses the sender MUST repeat it in datagrams of at most 548 bytes.
#[test]
fn what_is_lost_again_and_again_is_asked_for_in_smaller_answers() {
    let mut script = Script::open(Config::default());
    script.start(stat(9));
    let sent = script.run(2_500);
    let limits: Vec<u16> = sent.iter().flat_map(|(_, s)| s.messages()).filter_map(|m| m.ask().map(|ask| ask.limit)).collect();
    assert_eq!(limits[..4], [1_232; 4], "after fewer than four losses");
    assert!(limits.len() > 4 && limits[4..].iter().all(|limit| *limit == 548), "{limits:?}");
}

//= wire-spec.md#3-7-sizes-and-paths
//= type=test
//# After two further losses the sender MUST repeat it in datagrams of at most 548 bytes.
#[test]
fn a_request_too_large_for_the_path_is_taken_back_and_made_anew_in_smaller_pieces() {
    let mut script = Script::open(Config::default());
    script.start(write(1_000));
    let cancel = loop {
        let sent = script.run(100);
        assert!(script.now().raw_ns < 30_000_000_000, "the path never changes");
        let found = sent.into_iter().find(|(_, s)| s.messages().iter().any(|m| matches!(m, Message::Cancel(_))));
        if let Some((_, sent)) = found {
            break sent;
        }
    };
    let Some(Message::Cancel(message)) = cancel.messages().into_iter().find(|m| matches!(m, Message::Cancel(_))) else { panic!() };
    assert_eq!(message.nonce, 2);
    let (outcome, generation) = (CancelOutcome::Cancelled, Generation(0));
    script.say(&[Cancelled { serial: message.serial, echo: cancel.packet(), nonce: 2, outcome, generation }.into()]);
    script.hears(&[]);
    assert!(
        script.turn().iter().flat_map(|sent| sent.messages().len().checked_sub(1)).next().is_some(),
        "it is asked again, by a new nonce"
    );
    assert_eq!(script.agent.view(script.now()).requests, 3);
}

#[test]
fn a_command_that_was_never_sent_changed_nothing() {
    let config = Config { give_up_after: Duration::from_millis(500), ..Config::default() };
    let mut script = Script::new(config);
    let op = script.start(mkdir());
    script.run(499);
    let told = script.events();
    assert!(told.is_empty() || told == [Event::NoSession { error: OpError::Unreachable }]);
    script.run(1);
    assert_eq!(script.events().last(), Some(&Script::failed(op, OpError::Unreachable)));
    script.asleep();
}

#[test]
fn a_mutation_that_was_sent_is_unknown_when_given_up_and_asked_on_for_the_cache() {
    let config = Config { give_up_after: Duration::from_millis(500), idle: IdlePolicy::Lazy, ..Config::default() };
    let mut script = Script::open(config);
    let op = script.start(mkdir());
    script.run(500);
    script.hears(&[Script::failed(op, OpError::OutcomeUnknown)]);
    let again = script.run(1_000);
    assert!(again.iter().any(|(_, sent)| requests(sent) == [2]), "its objects are suspended until the outcome is known");
}

#[test]
fn a_read_that_is_given_up_is_asked_no_more() {
    let config = Config { give_up_after: Duration::from_millis(500), ..Config::default() };
    let mut script = Script::open(config);
    let op = script.start(stat(9));
    script.run(500);
    script.hears(&[Script::failed(op, OpError::Unreachable)]);
    script.asleep();
    script.start(Command::Ping);
    script.sends(&[ping(3, 0)]);
}

#[test]
fn too_many_commands_are_refused() {
    let mut script = Script::open(Config { commands_max: 3, ..Config::default() });
    script.start(stat(9));
    script.start(lock(7, Mode::Shared, Wait::Forever));
    script.start(stat(10));
    assert_eq!(script.submit(stat(11)), crate::api::Submitted::Now(Err(OpError::Overloaded)));
}

#[test]
fn a_silent_address_is_left_for_the_next_without_leaving_the_session() {
    let mut script = Script::with_servers(Config::default(), 2);
    script.open_now();
    script.start(Command::Ping);
    let sent = script.run(3_000);
    assert_eq!(sent[0].1.to, server(1));
    assert!(sent.iter().any(|(_, sent)| sent.to == server(2) && sent.datagram().header.session == SESSION));
    let echo = sent.last().unwrap().1.packet();
    script.say(&[stated(2, echo, attr(1, 1), 0)]);
    script.start(Command::Ping);
    assert_eq!(script.one().to, server(1), "where it was heard");
}

#[test]
fn a_path_challenge_is_answered() {
    let mut script = Script::open(Config::default());
    script.say(&[PathChallenge { token: 5 }.into()]);
    script.sends(&[PathResponse { token: 5 }.into()]);
    script.asleep();
}

#[test]
fn late_copies_of_answers_and_answers_to_nothing_do_no_harm() {
    let mut script = Script::open(Config::default());
    script.start(Command::Ping);
    let echo = script.sends(&[ping(2, 0)]);
    for _ in 0..3 {
        script.say(&[stated(2, echo, attr(ROOT, 1), 0), Alive { serial: 77, echo }.into(), Pending { nonce: 2, echo }.into()]);
    }
    assert_eq!(script.events().len(), 1);
    script.say(&[Receipt { seq: 1, answer: ReceiptAnswer::Received }.into()]);
    script.drops = 1;
    script.asleep();
}

#[test]
fn room_that_a_canceled_command_leaves_in_the_window_is_used_at_once() {
    let mut script = Script::open(Config { window: 1, ..Config::default() });
    let first = script.start(stat(9));
    let echo = script.sends(&[get_attr(2, 0, 9)]);
    script.say(&[Pending { nonce: 2, echo }.into()]);
    script.start(stat(10));
    script.quiet();
    script.agent.cancel(script.now(), first);
    assert_eq!(script.agent.wake_after(script.now()), Some(Duration::ZERO));
    let [sent] = &script.transmit()[..] else { panic!("one datagram") };
    assert_eq!(sent.messages(), [get_attr(3, 0, 10)]);
}
