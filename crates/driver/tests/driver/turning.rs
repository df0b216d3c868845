//! The order of calls in a turn, and when the loop sleeps and wakes.

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use cistern_driver::{Clock, Ended, EventLoop, LoopError, LoopOptions, NoServices, Owned, Services};
use cistern_link::{Instant, Path};

use crate::machines::{Call, Echo, PATIENCE, Recorder, Running, around, eventually, open, owned, plain};

const SOON: Duration = Duration::from_millis(1);

#[test]
fn timers_run_only_after_everything_queued_at_any_socket_was_handled() {
    let ports = vec![open("127.0.0.1:0"), open("127.0.0.2:0")];
    let mut event_loop = owned(ports, Recorder::default());
    let client = plain("127.0.0.1:0");
    let addresses: Vec<_> = event_loop.local_addrs().collect();
    // More than one turn takes, within what a receive buffer of the usual size holds.
    let (all, per_turn) = (400, LoopOptions::default().datagrams_per_turn);
    assert!(all > per_turn);
    for number in 0..all {
        client.send_to(b"queued", addresses[number % 2]).expect("send");
    }
    while event_loop.owner_mut().0.datagrams().len() < all {
        event_loop.turn_within(SOON).expect("a turn");
    }
    event_loop.turn_within(SOON).expect("a turn");
    let Owned(recorder) = event_loop.owner_mut();
    let drained = recorder.position(&Call::Drained).expect("drained at last");
    let handled = recorder.calls[..drained].iter().filter(|call| matches!(call, Call::Datagram(_))).count();
    assert_eq!(handled, all);
    // The bound let the machine send before everything was received.
    assert!(recorder.position(&Call::Transmit).expect("asked to send") < drained);
}

#[test]
fn datagram_that_arrives_while_another_is_handled_comes_before_the_timers() {
    let mut event_loop = owned(vec![open("127.0.0.1:0")], Recorder::default());
    let itself = event_loop.local_addrs().next().expect("one socket");
    let client = plain("127.0.0.1:0");
    client.send_to(b"first", itself).expect("send");
    let socket = client.try_clone().expect("a second handle");
    event_loop.owner_mut().0.chain = Some((socket, itself, 20));
    event_loop.turn_within(PATIENCE).expect("a turn");
    let Owned(recorder) = event_loop.owner_mut();
    assert_eq!(recorder.position(&Call::Drained), Some(21));
    assert_eq!(recorder.datagrams().len(), 21);
}

#[test]
fn each_turn_takes_time_in_order_and_ends_with_sending() {
    let mut event_loop = owned(vec![open("127.0.0.1:0")], Recorder::default());
    let itself = event_loop.local_addrs().next().expect("one socket");
    plain("127.0.0.1:0").send_to(b"a", itself).expect("send");
    event_loop.turn_within(PATIENCE).expect("a turn");
    let expected = [Call::Datagram(b"a".to_vec()), Call::Drained, Call::Transmit];
    assert_eq!(event_loop.owner_mut().0.calls, expected);
}

/// Waits for a span without a turn, which a loop that goes on turning never has.
fn eventually_idle(turns: &dyn Fn() -> u64) {
    eventually("the loop is idle", || {
        let before = turns();
        thread::sleep(Duration::from_millis(300));
        turns() == before
    });
}

#[test]
fn loop_that_is_told_to_spin_turns_on_after_a_datagram() {
    let spins = |spin| {
        let (clock, options) = (Clock::new().expect("both clocks"), LoopOptions { spin, ..LoopOptions::default() });
        let ports = vec![open("127.0.0.1:0")];
        Running::start(EventLoop::new(ports, Owned(Echo::default()), NoServices, clock, options).expect("a loop"))
    };
    let ask = |server: &Running<Owned<Echo>, NoServices>| {
        let client = plain("127.0.0.1:0");
        client.send_to(b"spin", server.addresses[0]).expect("send");
        client.recv(&mut [0; 64]).expect("an answer");
    };
    let busy = spins(PATIENCE * 10);
    eventually_idle(&|| busy.counts().turns);
    ask(&busy);
    let before = busy.counts().turns;
    eventually("it turns though nothing comes", || busy.counts().turns > before + 1_000);
    let short = spins(Duration::from_micros(50));
    ask(&short);
    eventually_idle(&|| short.counts().turns);
}

#[test]
fn idle_loop_does_not_turn() {
    let server = Running::start(owned(vec![open("127.0.0.1:0")], Echo::default()));
    let client = plain("127.0.0.1:0");
    client.send_to(b"wake up once", server.addresses[0]).expect("send");
    client.recv(&mut [0; 64]).expect("an answer");
    eventually_idle(&|| server.counts().turns);
}

#[test]
fn loop_wakes_when_the_machine_asked_for_it() {
    let alarm = Duration::from_millis(50);
    let recorder = Recorder { alarm: Some(alarm), ..Recorder::default() };
    let machine = Arc::new(Mutex::new(recorder));
    let running = Running::start(around(vec![open("127.0.0.1:0")], Arc::clone(&machine), NoServices));
    eventually("the alarm rings", || machine.lock().expect("not poisoned").alarm_is_over());
    eventually_idle(&|| running.counts().turns);
}

#[test]
fn shared_machine_is_usable_while_the_loop_sleeps_and_sends_when_woken() {
    let machine = Arc::new(Mutex::new(Echo::default()));
    let running = Running::start(around(vec![open("127.0.0.1:0")], Arc::clone(&machine), NoServices));
    let peer = plain("127.0.0.1:0");
    let path = Path::to(peer.local_addr().expect("an address"));
    for number in 0..20 {
        machine.lock().expect("the loop holds no lock while it sleeps").queue.push_back((path, vec![number]));
        running.handle.wake();
        let mut buffer = [0; 16];
        let length = peer.recv(&mut buffer).expect("sent when woken");
        assert_eq!(buffer[..length], [number]);
    }
}

#[test]
fn stop_sends_what_the_machine_has_first() {
    let machine = Arc::new(Mutex::new(Echo::default()));
    let running = Running::start(around(vec![open("127.0.0.1:0")], Arc::clone(&machine), NoServices));
    let peer = plain("127.0.0.1:0");
    let path = Path::to(peer.local_addr().expect("an address"));
    machine.lock().expect("not poisoned").queue.push_back((path, b"goodbye".to_vec()));
    running.handle.stop();
    let (_, ended) = running.join();
    assert_eq!(ended.expect("no error"), Ended::Stopped);
    assert_eq!(peer.recv(&mut [0; 16]).expect("sent before the end"), 7);
}

/// Answers by itself, as a store would: holds the echo's datagrams back until it lets them go, or breaks off.
struct Store {
    fails: bool,
}

impl Services<Echo> for Store {
    fn after_turn(&mut self, machine: &mut Echo, _: Instant) -> ControlFlow<()> {
        if self.fails && !machine.queue.is_empty() {
            return ControlFlow::Break(());
        }
        for (_, bytes) in &mut machine.queue {
            bytes.extend_from_slice(b", durable");
        }
        ControlFlow::Continue(())
    }
}

#[test]
fn services_complete_before_the_machine_sends() {
    let running = Running::start(around(vec![open("127.0.0.1:0")], Owned(Echo::default()), Store { fails: false }));
    let client = plain("127.0.0.1:0");
    client.send_to(b"written", running.addresses[0]).expect("send");
    let mut buffer = [0; 64];
    let length = client.recv(&mut buffer).expect("an answer");
    assert_eq!(&buffer[..length], b"written, durable");
}

/// Notes how much the machine has made each time that it is shown.
#[derive(Default)]
struct Watching {
    between_rounds: Vec<usize>,
    after_turns: Vec<usize>,
}

impl Services<Echo> for Watching {
    fn between_rounds(&mut self, machine: &mut Echo) {
        self.between_rounds.push(machine.queue.len());
    }

    fn after_turn(&mut self, machine: &mut Echo, _: Instant) -> ControlFlow<()> {
        self.after_turns.push(machine.queue.len());
        ControlFlow::Continue(())
    }
}

#[test]
fn services_are_shown_what_was_made_after_each_round_that_brought_something_and_after_no_other() {
    let mut event_loop = around(vec![open("127.0.0.1:0")], Owned(Echo::default()), Watching::default());
    let itself = event_loop.local_addrs().next().expect("one socket");
    let client = plain("127.0.0.1:0");
    // More than one receive call takes.
    for _ in 0..100 {
        client.send_to(b"much", itself).expect("send");
    }
    event_loop.turn_within(PATIENCE).expect("a turn");
    let Watching { between_rounds, after_turns } = event_loop.services_mut();
    assert!(between_rounds.len() > 1 && between_rounds.is_sorted(), "{between_rounds:?}");
    assert_eq!((between_rounds.last(), after_turns.as_slice()), (Some(&100), &[100][..]));
    let before = between_rounds.len();
    event_loop.turn_within(SOON).expect("a turn");
    let Watching { between_rounds, after_turns } = event_loop.services_mut();
    assert_eq!((between_rounds.len(), after_turns.len()), (before, 2));
}

#[test]
fn nothing_is_sent_after_a_service_broke_off() {
    let running = Running::start(around(vec![open("127.0.0.1:0")], Owned(Echo::default()), Store { fails: true }));
    let client = plain("127.0.0.1:0");
    client.send_to(b"written", running.addresses[0]).expect("send");
    let (mut event_loop, ended) = running.join();
    assert_eq!(ended.expect("no error"), Ended::ByServices);
    assert_eq!(event_loop.stats().read().datagrams_out, 0);
    assert_eq!(event_loop.owner_mut().0.queue.len(), 1);
}

#[test]
fn machine_whose_user_panicked_is_turned_no_more() {
    let machine = Arc::new(Mutex::new(Echo::default()));
    let running = Running::start(around(vec![open("127.0.0.1:0")], Arc::clone(&machine), NoServices));
    let user = thread::spawn(move || {
        let _held = machine.lock().expect("not poisoned yet");
        // Unwinds as a panic does, without the message of one.
        std::panic::resume_unwind(Box::new("a user's mistake"));
    });
    assert!(user.join().is_err());
    running.handle.wake();
    let (_, ended) = running.join();
    assert!(matches!(ended, Err(LoopError::Poisoned(_))));
}

#[test]
fn small_turns_still_receive_everything() {
    let options = LoopOptions { datagrams_per_turn: 1, ..LoopOptions::default() };
    let mut event_loop =
        EventLoop::new(vec![open("127.0.0.1:0")], Owned(Recorder::default()), NoServices, Clock::new().expect("both clocks"), options)
            .expect("a loop");
    let itself = event_loop.local_addrs().next().expect("one socket");
    let client = plain("127.0.0.1:0");
    for _ in 0..100 {
        client.send_to(b"x", itself).expect("send");
    }
    // The poll reports the socket once; the loop must come back to it by itself.
    while event_loop.owner_mut().0.position(&Call::Drained).is_none() {
        event_loop.turn_within(PATIENCE).expect("a turn");
    }
    assert_eq!(event_loop.owner_mut().0.datagrams().len(), 100);
}
