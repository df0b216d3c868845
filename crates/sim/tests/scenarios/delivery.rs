//! Scenarios of datagrams that are lost, late, doubled, or overtake each other.

use cistern_sim::script::{Setting, from, to};
use cistern_wire::Kind;

/// The demand overtakes the grant that it names. An agent that answers "not held" and installs the grant afterwards has a lock that the
/// server gave to B (M16, F53; eight steps in a model of a first draft). Here it says "grant awaited", and gives it back when it came.
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
/// old generation (M18), or the release were not checked against it (M19, F52), the lock would be free while A uses it.
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
    s.pass(50);
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
/// release that A's and B's users wait for could no longer be sent (F57): two agents deadlock over nothing.
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

/// A writes; the server has executed it, its answer is still on the way. B has read the new contents and phones A's other user, who reads
/// from A's cache: the old contents, after B's new ones (F51). Each alone looks right; together nothing is (R70).
#[test]
fn cache_does_not_answer_what_a_mutation_under_way_may_have_changed() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    a.put("/etc/rules", "old").done();
    assert_eq!(a.text_of("/etc/rules"), "old");
    a.read("/etc/rules").done_at_once();
    s.hold(Kind::Ack, to(&a));
    let write = a.put("/etc/rules", "new");
    s.until_sent(Kind::Ack, to(&a));
    assert_eq!(b.text_of("/etc/rules"), "new");
    let read = a.read("/etc/rules");
    read.still_waits();
    s.release_held();
    write.done();
    assert_eq!(read.text(), "new");
    s.finish();
}

/// The network delivers a mutation twice, and once more much later (M29, M30; Lustre bugs 137 and 148). Executed again it would undo what
/// others did since; the same packet is a copy, and the same nonce below the floor was answered.
#[test]
fn doubled_and_replayed_mutations_are_executed_once() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    s.duplicate_next(Kind::Write, from(&a), 0);
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
    s.drop_next(Kind::Ack, to(&a));
    a.create("/jobs/output").refused(cistern_wire::Status::EEXIST);
    s.finish();
}
