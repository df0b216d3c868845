//! Scenarios of datagrams that are lost, late, doubled, or overtake each other.

use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// The demand overtakes the grant that it names. An agent that answers "not held" and installs the grant afterwards has a lock that the
/// server gave to B (M16; eight steps in a model of a first draft). Here it says "grant awaited", and gives it back when it came.
#[test]
fn demand_that_overtakes_its_grant_leaves_one_holder() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs/nightly").done();
    s.hold(Kind::Ack, to(&a));
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Ack, to(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Receipt, from(&a));
    of_a.still_waits();
    of_b.still_waits();
    s.release_held();
    let of_a = of_a.granted();
    s.pass(500);
    assert!(of_a.is_certain());
    of_b.still_waits();
    of_a.unlock();
    assert!(of_b.granted().token() > of_a.token());
    s.finish();
}

/// The same, and A's user has gone away meanwhile: whatever A said to the demand, the late grant is nobody's.
#[test]
fn grant_that_comes_when_nobody_waits_any_more_goes_back() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs/nightly").done();
    s.hold(Kind::Ack, to(&a));
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Ack, to(&a));
    of_a.cancel();
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    s.release_held();
    of_b.granted();
    assert!(of_a.ends().is_err());
    s.finish();
}

/// A gives its lock back, takes it again, and a transmission of the release that was on the way for long arrives. If the new grant had the
/// old generation (M18), or the release were not checked against it (M19), the lock would be free while A uses it.
#[test]
fn late_release_frees_no_later_grant() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.hold_next(Kind::Release, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    assert!(s.sent(Kind::Release, from(&a)) >= 2, "the first is on its way still");
    of_b.unlock();
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.release_held();
    s.pass(50);
    let of_c = c.lock("/jobs/nightly").exclusive();
    s.pass(2 * s.wait());
    of_c.still_waits();
    assert!(of_a.is_certain());
    of_a.unlock();
    of_c.granted();
    s.finish();
}

/// B waits, A gives the lock back, and the grant that the server sends to B is lost; then B's receipt of it is lost. Sent once and
/// forgotten, the lock would be B's by the server's word and nobody's by B's (Lustre granted by such messages). It is sent until receipted,
/// and a second copy is no second grant.
#[test]
fn lost_grant_to_a_waiter_is_sent_again_until_it_is_receipted() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Queued, to(&b));
    // So lately that B is not probed before the grant: the receipt that is lost is that of the grant.
    s.pass(5);
    s.drop_next(Kind::Grant, to(&b));
    s.drop_next(Kind::Receipt, from(&b));
    of_a.unlock();
    let of_b = of_b.granted();
    assert!(of_b.token() > of_a.token());
    s.pass(s.wait());
    assert!(s.sent(Kind::Grant, to(&b)) >= 3 && of_b.is_certain());
    let next = a.lock("/jobs/nightly").exclusive();
    s.pass(100);
    next.still_waits();
    of_b.unlock();
    next.granted();
    s.finish();
}

/// The answer "queued" is lost and the request comes again. Entered a second time (M25; Lustre bug 113), B would be granted the lock once
/// more after it gave it back, and C would wait for somebody who wants nothing.
#[test]
fn request_whose_queued_was_lost_has_one_place_in_the_queue() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    b.stat("/jobs/nightly").done();
    s.drop_next(Kind::Queued, to(&b));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Queued, to(&b));
    let of_c = c.lock("/jobs/nightly").exclusive();
    s.pass(50);
    assert_eq!(s.server.status().waiting, 2);
    of_a.unlock();
    let of_b = of_b.granted();
    of_b.unlock();
    let of_c = of_c.granted();
    s.pass(500);
    assert!(of_c.is_certain());
    assert_eq!(s.server.status().waiting, 0);
    s.finish();
}

/// B waits for hours for a lock and goes on working. If its request kept its nonce, the window would fill up behind it, and the very
/// release that A's and B's users wait for could no longer be sent: two agents deadlock over nothing.
#[test]
fn long_wait_pins_no_window() {
    let setting = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agent(|agent| agent.window = 1);
    let (s, [a, b]) = setting.agents(["a", "b"]);
    let (of_a, of_b) = (a.lock("/jobs/nightly").exclusive().granted(), b.lock("/jobs/other").exclusive().granted());
    let (a_waits, b_waits) = (a.lock("/jobs/other").exclusive(), b.lock("/jobs/nightly").exclusive());
    s.pass(100);
    for n in 0..10 {
        b.put(&format!("/jobs/file{n}"), "work goes on").done();
    }
    a_waits.still_waits();
    of_b.unlock();
    a_waits.granted();
    of_a.unlock();
    b_waits.granted();
    s.finish();
}

/// The network delivers a mutation twice, and once more much later (M29, M30; Lustre bugs 137 and 148). Executed again it would undo what
/// others did since; the same packet is a copy, and the same nonce below the floor was answered.
#[test]
fn doubled_and_replayed_mutations_are_executed_once() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    s.duplicate_next(Kind::Write, from(&a), 1);
    a.put("/etc/rules", "by A").done();
    b.put("/etc/rules", "by B").done();
    s.replay_recorded(Kind::Write, from(&a));
    s.pass(50);
    assert_eq!(b.text_of("/etc/rules"), "by B");
    assert_eq!(a.text_of("/etc/rules"), "by B");
    s.finish_with_drops(["server: duplicate_packet"]);
}

/// The answer to a mutation is lost, again and again: every retransmission gets the one outcome, also where that is an error (M32: create
/// would answer EEXIST to who made the file).
#[test]
fn every_retransmission_of_a_mutation_gets_its_one_outcome() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.stat("/jobs").done();
    (0..3).for_each(|_| s.drop_next(Kind::Ack, to(&a)));
    a.create("/jobs/output").done();
    assert!(s.sent(Kind::Create, from(&a)) >= 4);
    s.finish();
}

/// A is refused, and the refusal is lost. Meanwhile the reason for it is gone. If refusals were not kept (M32), A's retransmission would now
/// make the file of which its user, and everybody who saw the server's log, may know that it was refused.
#[test]
fn retransmission_of_a_refused_mutation_is_refused_again() {
    let (s, [a, b]) = Setting::default().files(["/jobs/output"]).agents(["a", "b"]);
    s.hold_next(Kind::Create, from(&a));
    a.create("/jobs/output").refused(Status::EEXIST);
    b.unlink("/jobs/output").done();
    s.drop_next(Kind::Ack, to(&a));
    let made = b.create("/jobs/output");
    made.done();
    let refused = a.create("/jobs/output");
    s.until_sent(Kind::Ack, to(&a));
    b.unlink("/jobs/output").done();
    refused.refused(Status::EEXIST);
    s.release_held();
    s.pass(50);
    b.stat("/jobs/output").refused(Status::ENOENT);
    s.finish_with_drops(["server: below_floor"]);
}

/// A transmission of a write that was answered long ago by way of another one arrives after B's write (M30). It is no copy of a packet
/// that was received, so no replay window minds it; its nonce is below the floor that A has announced since.
#[test]
fn transmission_that_comes_after_its_answer_was_taken_executes_nothing() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    s.hold_next(Kind::Write, from(&a));
    a.put("/etc/rules", "by A").done();
    a.ping().done();
    b.put("/etc/rules", "by B").done();
    s.release_held();
    s.pass(50);
    assert_eq!(a.text_of("/etc/rules"), "by B");
    s.finish_with_drops(["server: below_floor"]);
}

/// A window full of mutations, the answers to the first of them lost. A reply cache that is bounded by count or by time (M27, as every NFS
/// server's) drops what A will still ask for; here the floor that A announces says what it will not.
#[test]
fn no_reply_is_dropped_that_can_still_be_asked_for() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.stat("/jobs").done();
    s.drop_next(Kind::Ack, to(&a));
    let made: Vec<_> = (0..60).map(|n| a.create(&format!("/jobs/file{n}"))).collect();
    made.iter().for_each(|op| drop(op.done()));
    s.finish();
}

/// The network brings a keep-alive twice. If the newest packet passed the window a second time (M51), everything that has no nonce could be
/// replayed by whoever hears it once.
#[test]
fn copy_of_the_newest_packet_is_dropped() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let _held = a.lock("/jobs/nightly").exclusive().granted();
    s.duplicate_next(Kind::KeepAlive, from(&a), 0);
    s.until_received(Kind::Alive, to(&a));
    s.pass(50);
    assert_eq!(s.sent(Kind::Alive, to(&a)), 1);
    s.finish_with_drops(["server: duplicate_packet"]);
}

/// The server is silent, and A asks again and again. Transmissions that are neither spaced out nor spread (M49) are what keeps a network down
/// that has just gone down: ten in the first second are plenty.
#[test]
fn silent_server_is_not_hammered() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let _held = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let ping = a.ping();
    s.pass(1_000);
    ping.still_waits();
    let sent = s.sent(Kind::GetAttr, from(&a));
    assert!((5..=10).contains(&sent), "sent {sent} times");
    s.heal();
    ping.done();
    s.finish();
}

/// Somebody has kept a copy of every datagram, and sends all of them again, in both directions, while the lock is held and after it went to B.
/// Nothing of it is granted, freed, written, renewed or ended a second time.
#[test]
fn replay_of_everything_changes_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/etc/rules"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.put("/etc/rules", "by A").done();
    let waits = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    of_a.unlock();
    let of_b = waits.granted();
    b.put("/etc/rules", "by B").done();
    let (session_a, session_b, granted) = (a.session(), b.session(), s.sent(Kind::Grant, to(&b)));
    for _ in 0..2 {
        for agent in [&a, &b] {
            s.replay_everything(from(agent));
            s.replay_everything(to(agent));
        }
        s.pass(s.tau());
    }
    assert!(of_b.is_certain() && of_b.told().is_empty());
    assert_eq!((a.text_of("/etc/rules"), b.text_of("/etc/rules")), ("by B".into(), "by B".into()));
    assert_eq!((a.session(), b.session(), s.sent(Kind::Grant, to(&b))), (session_a, session_b, granted));
    b.create("/jobs/nightly").refused(Status::EEXIST);
    a.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    s.finish_with_drops([
        "a: duplicate_packet",
        "a: stray_handshake",
        "b: duplicate_packet",
        "b: stray_handshake",
        "server: duplicate_packet",
    ]);
}
/// The server has time for hardly a request in a turn and room for two more: of twenty that come together most are shed. To the server those
/// were never sent, so each is executed when it comes again, once. A server that remembered them as executing (F1) would never answer them.
#[test]
fn requests_that_are_shed_come_again_and_are_executed() {
    let setting = Setting::default().files(["/jobs/nightly"]).server(|server| {
        (server.work_slice_us, server.queued_bytes) = (1, 1 << 10);
    });
    let (s, [a, b]) = setting.agents(["a", "b"]);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    let names: Vec<String> = (0..20).map(|n| format!("/jobs/{n}")).collect();
    let made: Vec<_> = names.iter().map(|name| a.put(name, "x")).collect();
    made.iter().for_each(|made| drop(made.done()));
    names.iter().for_each(|name| assert_eq!(b.text_of(name), "x"));
    assert!(of_b.is_certain() && of_b.told().is_empty());
    s.finish_with_drops(["server: overloaded"]);
}
