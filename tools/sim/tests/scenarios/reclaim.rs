//! Scenarios of how an agent comes back after a restart: with its locks, its waits, and the outcome of what it had under way.

use cistern_agent::api::OpError;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// A mutation is durable, its answer is lost, the server dies. Told only "no answer", a client sends it again to the new server and gets
/// EEXIST for its own file, or does it twice (M31; NFS before its reply caches were durable). Asked for the outcome, the new server
/// tells what the old one kept in the mutation's own transaction (section 11.2).
#[test]
fn mutation_whose_answer_was_lost_in_a_crash_is_not_done_twice_and_ends_with_its_true_outcome() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs").done();
    s.drop_all(Kind::Ack, to(&a));
    let made = a.create("/jobs/output");
    s.until_received(Kind::Create, from(&a));
    s.pass(20);
    made.still_waits();
    s.server.restart();
    s.heal();
    made.done();
    assert_eq!(s.sent(Kind::Outcome, from(&a)), 1, "A asks, and does not send it again");
    b.create("/jobs/output").refused(Status::EEXIST);
    s.finish();
}

/// The same, and the mutation was not durable when the server died: nobody ever saw it, the new server says "not executed" and fences
/// it for good (section 11.2), and only then the agent sends it anew.
#[test]
fn mutation_that_a_crash_undid_is_done_once_afterwards() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs").done();
    s.disk.stall();
    let made = a.create("/jobs/output");
    s.until_received(Kind::Create, from(&a));
    s.pass(20);
    made.still_waits();
    s.server.crash();
    s.disk.go();
    s.server.start();
    made.done();
    b.create("/jobs/output").refused(Status::EEXIST);
    s.finish();
}

/// Datagrams of the former incarnation arrive after the restart. If one of its answers renewed a lease (M8), A would think its lock
/// certain by the word of a server that is dead (I11).
#[test]
fn answers_of_the_former_incarnation_renew_nothing() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.hold(Kind::Alive, to(&a));
    s.until_sent(Kind::Alive, to(&a));
    let left = a.lease_left();
    s.server.crash();
    s.pass(100);
    s.server.start();
    s.pass(10);
    a.ping().done();
    s.until_so("A has reclaimed", || a.view().reclaiming.is_none());
    let renewed = a.lease_left();
    assert!(renewed > left);
    s.release_held();
    s.pass(10);
    assert!(a.lease_left() <= renewed);
    assert!(of_a.is_certain());
    s.finish();
}

/// A has a new session after the restart, and its reclaims do not get through. Answers in the new session renew what that covers: taken for
/// a renewal of everything (section 11.7), they would keep a lock certain that the server gives away when grace is over.
#[test]
fn answers_in_the_new_session_do_not_cover_what_was_not_reclaimed() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let shown_for = of_a.shown_for();
    s.drop_all(Kind::Reclaim, from(&a));
    s.server.restart();
    s.pass(10);
    a.ping();
    let waits = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Alive, to(&a));
    assert!(of_a.is_certain(), "until the end of the old lease");
    s.until_so("the old lease is over", || !of_a.is_certain());
    assert!(s.now() <= shown_for + 100, "at {} ms", s.now());
    while waits.ending().is_none() {
        s.pass(100);
        assert!(!of_a.is_certain());
    }
    let of_b = waits.granted();
    assert!(of_b.token() > of_a.token());
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost(), "{:?}", of_a.told());
    s.finish();
}

/// A's own write is durable, its answer lost in the crash. A reclaims the cache lock of the file, whose contents it has from before. If the
/// reclaim did not compare versions (section 11.7), A would go on to serve the old contents, under a lock.
#[test]
fn reclaimed_lock_keeps_no_contents_of_an_older_version() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    a.put("/etc/rules", "one").done();
    assert_eq!(a.text_of("/etc/rules"), "one");
    s.drop_all(Kind::Ack, to(&a));
    let write = a.put("/etc/rules", "two");
    s.until_received(Kind::Write, from(&a));
    s.pass(20);
    s.server.crash();
    s.heal();
    s.server.start();
    write.done();
    assert_eq!(a.text_of("/etc/rules"), "two");
    assert_eq!(b.text_of("/etc/rules"), "two");
    s.finish();
}

/// A has sent the release of a lock when the server dies; whether the server took it in is not known. Listed among A's reclaims, the
/// lock could be B's already.
#[test]
fn lock_whose_release_was_sent_is_not_reclaimed() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.drop_all(Kind::Release, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Release, from(&a));
    s.pass(5);
    of_b.still_waits();
    s.server.restart();
    s.heal();
    let of_b = of_b.granted();
    s.pass(2 * s.tau());
    assert!(of_b.is_certain());
    assert_eq!(a.view().advisory_locks, 0);
    s.finish();
}

/// Reclaims and their answers are lost, doubled and late, over two restarts. Whatever arrives when, the lock is A's alone, and once.
#[test]
fn reclaim_over_a_bad_network_keeps_the_lock() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    for _ in 0..2 {
        s.drop_next(Kind::Welcome, to(&a));
        s.drop_next(Kind::Opened, to(&a));
        s.drop_next(Kind::Reclaim, from(&a));
        s.duplicate_next(Kind::Reclaim, from(&a), 30);
        s.hold_next(Kind::ReclaimComplete, from(&a));
        s.server.restart();
        s.pass(10);
        a.ping().done();
        s.until_so("A has reclaimed", || a.view().session.is_some() && a.view().reclaiming.is_none());
        s.release_held();
        s.pass(100);
    }
    assert!(of_a.is_certain());
    let waits = b.lock("/jobs/nightly").exclusive();
    s.pass(2 * s.wait());
    waits.still_waits();
    of_a.unlock();
    waits.granted();
    s.finish_with_drops(["server: below_floor", "server: duplicate_packet"]);
}

/// A's reclaims get lost for a while after a restart, nothing else does. Its session is known and alive; an agent that opens another one each
/// time that two reclaims went unanswered writes records to the server's disk all the time, and each new session is superseded by the next.
#[test]
fn lost_reclaims_lead_to_no_further_sessions() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.drop_all(Kind::Reclaim, from(&a));
    s.server.restart();
    s.pass(10);
    a.ping();
    s.pass(s.tau() * 3 / 4);
    let opened = s.sent(Kind::Opened, to(&a)) - 1;
    assert_eq!(opened, 1, "sessions since the restart");
    s.heal();
    s.pass(s.tau());
    assert!(of_a.is_certain());
    s.finish();
}

/// The server is down for so long that A's lease has all but run out, and comes back in the last moment. An agent whose handshakes back off
/// without a bound sleeps through it, and its lock is uncertain for nothing: while locks are held nothing that would save them waits
/// for longer than τ/8 (section 11.2).
#[test]
fn server_that_is_back_before_the_lease_is_over_finds_the_holder_waiting() {
    for down_for in [1_500, 1_600, 1_650, 1_700] {
        let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.server.crash();
        s.pass(down_for);
        assert!(a.lease_left() > s.tau() / 8 + 40, "two round trips and the longest timeout are left");
        s.server.start();
        s.pass(s.tau());
        assert!(of_a.is_certain());
        assert!(!of_a.told().contains(&"uncertain"), "down for {down_for} ms: {:?}", of_a.told());
        s.finish();
    }
}

/// A's machine sleeps through a crash of the server, the whole grace, and B's use of its lock. It must not come back into anything: not into
/// its lease, not into the grace, not into its cache.
#[test]
fn agent_that_slept_through_a_restart_comes_back_to_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/etc/rules"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.put("/etc/rules", "one").done();
    assert_eq!(a.text_of("/etc/rules"), "one");
    a.suspend();
    s.pass(100);
    s.server.restart();
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    b.put("/etc/rules", "two").done();
    a.wakes_up();
    assert!(!of_a.is_certain());
    assert_eq!(a.text_of("/etc/rules"), "two");
    assert!(of_a.is_lost() && of_b.is_certain());
    s.finish();
}

/// A waits for a lock when the server dies. Waits are not in the store; the agent enters its user's again, who does not notice.
#[test]
fn wait_goes_on_after_a_restart() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Queued, to(&a));
    s.server.restart();
    s.pass(2 * s.wait());
    of_a.still_waits();
    assert!(of_b.is_certain() && !s.server.is_in_grace());
    of_b.unlock();
    assert!(of_a.granted().token() > of_b.token());
    s.finish();
}

/// B waits for A's lock with a limit, and the server dies and comes back meanwhile. The limit is B's user's, whatever the server does.
#[test]
fn limit_of_a_wait_holds_over_a_restart() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let asked_at = s.now();
    let for_b = b.lock("/jobs/nightly").within(3_000).exclusive();
    s.pass(500);
    s.server.crash();
    s.pass(300);
    s.server.start();
    assert_eq!(for_b.fails(), OpError::TimedOut);
    assert!((3_000..3_050).contains(&(s.now() - asked_at)), "{} ms", s.now() - asked_at);
    s.pass(1_000);
    assert_eq!(s.server.status().waiting, 0);
    assert!(of_a.is_certain());
    s.finish();
}

/// Three agents, one of them gone for good, and the server restarts in the middle of a queue. The two that are back keep their order and
/// their locks; the one that is gone costs one grace.
#[test]
fn queue_forms_again_after_a_restart() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let for_b = b.lock("/jobs/nightly").exclusive();
    s.pass(50);
    let for_c = c.lock("/jobs/nightly").exclusive();
    s.pass(50);
    a.crash();
    s.server.restart();
    let restarted_at = s.now();
    s.until_so("one of them has it", || for_b.ending().is_some() || for_c.ending().is_some());
    assert!(s.now() >= of_a.shown_for() && s.now() <= restarted_at + s.wait() + 600, "{} ms", s.now() - restarted_at);
    let (first, second) = if for_b.ending().is_some() { (for_b, for_c) } else { (for_c, for_b) };
    let held = first.granted();
    s.pass(500);
    second.still_waits();
    held.unlock();
    assert!(second.granted().token() > held.token());
    s.finish();
}
