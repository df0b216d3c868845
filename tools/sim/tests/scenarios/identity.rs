//! Scenarios of who an agent is: restarts of agents, copies of their state, handshakes that come late, addresses that change.

use cistern_agent::api::OpError;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{EndReason, EndSession, Fate, Kind, Message, Nack, NackReason, RefuseReason, Status};

/// A's daemon is killed and started again; the job that it showed a lock to runs on, and was told "certain until". A service that frees a
/// client's locks when a new instance of it appears starts the job a second time. The new incarnation waits like everybody.
#[test]
fn new_incarnation_of_an_agent_frees_its_old_locks_only_after_t() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.crash();
    a.start();
    let again = a.lock("/jobs/nightly").exclusive();
    let shown_for = of_a.shown_for();
    s.pass(shown_for);
    again.still_waits();
    let of_b = b.lock("/jobs/nightly").exclusive();
    let again = again.granted();
    assert!(again.token() > of_a.token());
    again.unlock();
    of_b.granted();
    s.finish();
}

/// Two copies of one state directory: a virtual machine was cloned. The copy's handshake ends the session of the original, which goes on
/// sending. If each handshake freed the other's locks (F31b), both would hold the lock; if nobody said anything, nobody would ever know.
#[test]
fn superseded_incarnation_that_goes_on_is_refused_and_reported() {
    let setting = Setting::default().files(["/jobs/nightly"]).copy_of("copy", "a");
    let (s, [a, b, copy]) = setting.agents(["a", "b", "copy"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    copy.start();
    let superseded_at = s.now();
    let of_copy = copy.lock("/jobs/nightly").exclusive();
    s.pass(s.delivery_timeout() + 100);
    assert_eq!(s.server.stats().clones, 0, "nothing was sent by the old one since");
    let ping = a.ping();
    s.until_received(Kind::Nack, to(&a));
    assert!(s.server.stats().clones >= 1 && of_a.is_lost());
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_so("somebody has it", || of_copy.ending().is_some() || of_b.ending().is_some());
    assert!(s.now() >= superseded_at + s.tau(), "after {} ms", s.now() - superseded_at);
    assert_eq!(ping.fails(), OpError::Refused(RefuseReason::Superseded), "the old incarnation gets no session any more");
    s.finish();
}

/// The HELLO of an agent's former life was on the way for long, and arrives after the new one has a session and a lock. Acting on its
/// arrival would end the new session by the word of one that is dead.
#[test]
fn hello_of_a_former_life_ends_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    s.hold_next(Kind::Hello, from(&a));
    let never = a.ping();
    s.pass(5);
    a.crash();
    assert!(never.ending().is_some());
    a.start();
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    s.release_held();
    s.pass(100);
    assert!(of_a.is_certain() && a.session() == session && s.server.standing_of(&a) == Some("good"));
    b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    s.finish_with_drops(["a: stray_handshake"]);
}

/// The answer to a handshake is lost, and the HELLO comes again. A second session of one agent would be an orphan that counts in every
/// table and holds every grace open.
#[test]
fn handshake_whose_answer_was_lost_makes_one_session() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    s.drop_next(Kind::Welcome, to(&a));
    a.lock("/jobs/nightly").exclusive().granted();
    assert_eq!(s.server.sessions().len(), 1);
    s.finish();
}

/// Everything that the server says in A's session is lost, but for what it says outside of it. A doubts, asks, and hears that the session is
/// held: as long as the server holds it, it is not replaced, and all that A holds is good again at the first answer. That the server holds
/// the session says nothing of when it was heard, so the lease is over until then.
#[test]
fn session_that_the_server_holds_is_not_replaced_by_its_own_agent() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    s.drop_all(Kind::Alive, to(&a));
    s.drop_next(Kind::Known, to(&a));
    s.until_received(Kind::Known, to(&a));
    s.pass(2 * s.tau());
    assert!(a.has_lapsed() && a.session() == session, "KNOWN renews nothing, and nothing was opened");
    s.heal();
    s.pass(s.tau() / 2);
    assert!(of_a.is_certain() && a.session() == session);
    assert_eq!((s.sent(Kind::Opened, to(&a)), s.server.stats().failures), (1, 0));
    s.finish();
}

/// A doubts its session while the server waits for a receipt of it, and is offered another. The receipt comes, the session goes on, and
/// after that CONFIRM in the other: it would end a session that is held again, and its locks with it.
#[test]
fn confirm_does_not_replace_a_session_that_was_rescued_meanwhile() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    s.hold(Kind::Receipt, from(&a));
    s.hold(Kind::KeepAlive, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Demand, to(&a));
    s.drop_all(Kind::Demand, to(&a));
    s.hold(Kind::Confirm, from(&a));
    s.until_sent(Kind::Confirm, from(&a));
    assert_eq!(s.server.standing_of(&a), Some("timing out"));
    s.release_held();
    s.pass(100);
    assert_eq!((s.server.standing_of(&a), s.server.stats().rescues), (Some("good"), 1));
    assert!(of_a.is_certain() && a.session() == session);
    of_b.still_waits();
    assert_eq!(s.sent(Kind::Opened, to(&a)), 1);
    of_a.unlock();
    of_b.granted();
    s.finish();
}

/// A's session is closed, and the HELLOs that opened it come again while their cookie has not expired: copies in the network, or somebody
/// who has seen them. A session that they open would be nobody's, count in every table, and could end one that lives.
#[test]
fn hello_that_comes_again_after_its_session_has_ended_opens_nothing() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.ping().done();
    a.close();
    let opened = s.server.stats().opened;
    s.replay_recorded(Kind::Hello, from(&a));
    s.pass(100);
    assert_eq!((s.server.sessions().len(), s.server.stats().opened), (0, opened));
    s.finish_with_drops(["a: stray_handshake"]);
}

/// A gets another address, as behind a NAT that forgot it. Answers follow its newest packet only after it has answered from there (section
/// 11.6); demands that went on to the old address would cost it its lease and its locks.
#[test]
fn agent_that_moves_keeps_its_session_and_hears_demands() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let session = a.session();
    for _ in 0..3 {
        a.moves();
        s.pass(s.tau());
        assert!(of_a.is_certain() && of_a.told().is_empty(), "{:?}", of_a.told());
    }
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    of_a.unlock();
    of_b.granted();
    assert_eq!((a.session(), s.server.stats().failures), (session, 0));
    s.finish_with_drops(["server: unproven_address"]);
}

/// An operator evicts A. That must not free anything at once, for A may be alive and well and hear of it last: it is D without a way back.
#[test]
fn eviction_frees_nothing_before_t() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    s.server.evict(&a);
    let evicted_at = s.now();
    s.pass(s.wait() - 10);
    of_b.still_waits();
    of_b.granted();
    assert!(s.now() - evicted_at >= s.tau());
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost());
    s.finish();
}

/// A closes, and the answer is lost; it asks again. Neither a second end nor a session that lingers may come of it, and its locks are free
/// at once: it has said that nothing of them can be used again.
#[test]
fn session_that_is_closed_frees_its_locks_at_once() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.drop_next(Kind::Ended, to(&a));
    a.close();
    let before = s.now();
    b.lock("/jobs/nightly").exclusive().granted();
    assert!(s.now() < before + 50);
    assert_eq!(s.server.standing_of(&a), None);
    s.finish();
}

/// A's machine crashes and comes back, and its first word arrives while its former session's locks wait out T. B waits for one of them, the
/// new A for another; each gets what it waits for when T is over, once (the agent is not blocked by itself for longer than others).
#[test]
fn agent_that_comes_back_waits_for_its_own_old_locks_like_others() {
    let (s, [a, b]) = Setting::default().files(["/x", "/y"]).agents(["a", "b"]);
    let (old_x, old_y) = (a.lock("/x").exclusive().granted(), a.lock("/y").exclusive().granted());
    a.crash();
    let x_for_b = b.lock("/x").exclusive();
    s.until_timing_out(&a);
    let failed_at = s.now();
    a.start();
    let y_for_a = a.lock("/y").exclusive();
    s.pass(500);
    y_for_a.still_waits();
    let (x, y) = (x_for_b.granted(), y_for_a.granted());
    assert!(s.now() >= failed_at + s.tau() && s.now() <= failed_at + s.wait() + 100, "after {} ms", s.now() - failed_at);
    assert!(x.token() > old_x.token() && y.token() > old_y.token());
    s.finish();
}

/// A moves while the server tries to reach it, in the middle of a demand; later its machine moves again while it is being given up. Answers
/// go to the address that was proven last, and what comes from a new one counts (section 11.6), so neither costs it the session.
#[test]
fn demand_reaches_an_agent_that_moves_at_that_moment() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let for_b = b.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Demand, to(&a));
    a.moves();
    a.ping().done();
    s.pass(s.wait());
    assert_eq!(s.server.stats().failures, 0);
    assert!(of_a.is_certain() && of_a.told().is_empty());
    of_a.unlock();
    for_b.granted();
    s.finish_with_drops(["server: unproven_address"]);
}

/// A lock is asked for with the very first message, many times over: the users of an agent that has no session yet get one session, and
/// theirs in order.
#[test]
fn users_of_an_agent_without_a_session_share_one() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    s.drop_next(Kind::Hello, from(&a));
    s.drop_next(Kind::Challenge, to(&a));
    let asked: Vec<_> = (0..5).map(|_| a.lock("/jobs/nightly").exclusive()).collect();
    let mut last = 0;
    for op in asked {
        let held = op.granted();
        assert!(held.token() > last);
        last = held.token();
        held.unlock();
    }
    assert_eq!((s.server.sessions().len(), s.server.stats().opened), (1, 2), "the other one made the files");
    s.finish();
}

/// A stranger has seen the id of A's session in a log, forges the addresses of A and of the server, and tries packet numbers: before A's first
/// datagram has come, where a receiver that believes the first number it meets believes the stranger's, and while A holds its lock, where
/// numbers that begin with 1 (U1) are soon met. One END_SESSION or NACK that were heard would free or lose the lock.
#[test]
fn who_guesses_packet_numbers_is_not_heard_in_either_direction() {
    let (s, [a, b]) = Setting::default().in_clear().files(["/jobs/nightly"]).agents(["a", "b"]);
    let end = Message::from(EndSession { serial: 1, reason: EndReason::Surrender });
    let refusal = |echo| Message::from(Nack { nonce: 0, echo, reason: NackReason::Ended, fate: Fate::Unknown });
    s.hold_next(Kind::GetAttr, from(&a));
    let ping = a.ping();
    s.until_received(Kind::Welcome, to(&a));
    let session = a.session();
    s.forge(from(&a), session, 1, &end);
    s.forge(to(&a), session, 1, &refusal(1));
    s.pass(5);
    s.release_held();
    ping.done();
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/nightly").exclusive();
    for number in 1..=64 {
        s.forge(from(&a), session, number, &end);
        s.forge(to(&a), session, number, &refusal(number));
    }
    s.pass(2 * s.wait());
    assert!(of_a.is_certain() && a.session() == session);
    of_b.still_waits();
    of_a.unlock();
    of_b.granted();
    s.finish_with_drops(["a: stale_packet", "server: stale_packet"]);
}
