//! Scenarios of delivery failure: when the server gives an agent up, and the ways back and forward from there.

use cistern_sim::script::{Setting, from, to};
use cistern_wire::Kind;

/// The receipt of a demand comes after the server gave up waiting for it, and before anything else was said: nothing was lost, the
/// session goes on (R34). A new failure later starts a full new wait (F24).
#[test]
fn receipt_that_comes_late_rescues_the_session() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.hold(Kind::Receipt, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    s.release_held();
    s.pass(20);
    assert_eq!((s.server.standing_of(&a), s.server.stats().rescues), (Some("good"), 1));
    s.pass(2 * s.wait());
    assert!(of_a.is_certain() && of_a.told().is_empty(), "{:?}", of_a.told());
    of_b.still_waits();
    of_a.unlock();
    of_b.granted();

    assert_eq!(s.sent(Kind::Nack, to(&a)), 0);
    s.finish();
}

/// The same, after A was told NACK: A has discarded everything and told its user "lost". A server that took the session back now would
/// keep locks for an agent that does not know of them (M13, F24), or execute for a user who thinks that it failed.
#[test]
fn nothing_rescues_a_session_after_a_nack() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.hold(Kind::Receipt, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    a.ping();
    s.until_received(Kind::Nack, to(&a));
    assert!(of_a.is_lost());
    s.release_held();
    s.pass(50);
    assert_eq!(s.server.stats().rescues, 0);
    of_b.granted();
    assert!(!of_a.is_certain());
    s.finish();
}

/// A NACKed agent may free its locks early, but only when no user of them can act any more: an agent that surrendered while a user was
/// still shown "certain until" would have two holders (F26). The user stops: B gets the lock long before T.
#[test]
fn surrender_frees_locks_as_soon_as_the_user_has_stopped() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    let failed_at = s.now();
    s.heal();
    a.ping();
    s.until_received(Kind::Nack, to(&a));
    assert!(of_a.is_lost());
    s.pass(100);
    of_b.still_waits();
    of_a.unlock();
    let of_b = of_b.granted();
    assert!(of_b.is_certain() && s.now() < failed_at + s.tau() / 2, "after {} ms", s.now() - failed_at);
    s.finish();
}

/// The same, and the user never says that it stopped: B waits until the last instant that was shown to it, and no longer.
#[test]
fn surrender_waits_for_the_instant_shown_to_a_user_who_does_not_stop() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    let (failed_at, shown_for) = (s.now(), of_a.shown_for());
    s.heal();
    a.ping();
    s.until_received(Kind::Nack, to(&a));
    s.pass(shown_for - (s.now() - failed_at) - 1);
    of_b.still_waits();
    of_b.granted();
    let waited = s.now() - failed_at;
    assert!(waited >= shown_for && waited < s.wait() - 100, "the instant came after {shown_for} ms, B's grant after {waited} ms");
    s.finish();
}

/// The server stands still for longer than Td, and for longer than T: a VM is paused, fsync hangs, SIGSTOP. Its timers fire before it has
/// read its socket, and a naive one fails every session of the cluster at once (M43, F22), although each agent answered in time.
#[test]
fn server_that_stood_still_fails_nobody() {
    for longer_than_t in [false, true] {
        let setting = Setting::default().files(["/jobs/nightly"]).only_the_server_stalls();
        let (s, [a, b]) = setting.agents(["a", "b"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        let of_b = b.lock("/jobs/nightly").exclusive();
        s.until_sent(Kind::Demand, to(&a));
        s.server.pause();
        s.pass(if longer_than_t { s.wait() + 500 } else { s.delivery_timeout() + 200 });
        s.server.resume();
        s.pass(s.wait());
        assert_eq!(s.server.stats().failures, 0);
        assert!(of_a.is_certain(), "{:?}", of_a.told());
        assert_eq!(of_a.told().last(), longer_than_t.then_some(&"certain"), "{:?}", of_a.told());
        of_b.still_waits();
        of_a.unlock();
        of_b.granted();
        s.finish();
    }
}

/// A has receipted the demand, its lock is in use; then its machine dies. Nothing that needs a receipt is on its way any more, so a
/// server that waits for compliance only waits for ever (F20). While somebody waits, it asks (R30).
#[test]
fn agent_that_died_after_it_receipted_a_demand_is_found_out() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_received(Kind::Receipt, from(&a));
    s.pass(50);
    a.crash();
    let died_at = s.now();
    let of_b = of_b.granted();
    let bound = 1_000 + s.delivery_timeout() + s.tau() / 8 + s.wait() + 100;
    assert!(s.now() - died_at <= bound, "probe period, Td' and T are {bound} ms; it took {}", s.now() - died_at);
    assert!(of_b.token() > of_a.token());
    s.finish();
}

/// All receipts of A are lost, its releases are not. A release says more than a receipt; a server that goes on to wait for the receipt
/// (F23) would fail an agent that has long complied.
#[test]
fn release_counts_as_the_receipt_of_its_demand() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.drop_all(Kind::Receipt, from(&a));
    b.lock("/jobs/nightly").exclusive().granted();
    s.pass(3 * s.delivery_timeout());
    assert_eq!((s.server.stats().failures, s.server.standing_of(&a)), (0, Some("good")));
    s.heal();
    s.finish();
}

/// A is timing out, and what it holds and waits for is B's and C's affair only where they want the same (F39, R39): C is not asked to
/// wait behind it in another queue, and D not at all.
#[test]
fn session_that_times_out_delays_nobody_who_wants_other_locks() {
    let (s, [a, b, c]) = Setting::default().files(["/x", "/y", "/z"]).agents(["a", "b", "c"]);
    let x = a.lock("/x").exclusive().granted();
    let y = b.lock("/y").exclusive().granted();
    let y_for_a = a.lock("/y").exclusive();
    s.pass(20);
    let y_for_c = c.lock("/y").exclusive();
    s.pass(20);
    s.cut(&a);
    let x_for_b = b.lock("/x").exclusive();
    s.until_timing_out(&a);
    let before = s.now();
    y.unlock();
    y_for_c.granted();
    c.lock("/z").exclusive().granted();
    assert!(s.now() < before + 50, "C passes A by in {} ms", s.now() - before);
    x_for_b.still_waits();
    x_for_b.granted();
    assert!(!x.is_certain());
    y_for_a.still_waits();
    y_for_a.cancel();
    s.heal();
    s.finish();
}

/// Three agents wait for a lock and die. If each is given up only when its turn comes, the fourth waits three times Td + T (F62);
/// asked while they wait, they fail together, and are passed by (R72; etcd once granted such a waiter, M17).
#[test]
fn dead_waiters_in_a_row_fail_together() {
    let (s, [h, a, b, c, d]) = Setting::default().files(["/jobs/nightly"]).agents(["h", "a", "b", "c", "d"]);
    let held = h.lock("/jobs/nightly").exclusive().granted();
    for dead in [&a, &b, &c] {
        let _waits = dead.lock("/jobs/nightly").exclusive();
        s.until_received(Kind::Queued, to(dead));
    }
    let of_d = d.lock("/jobs/nightly").exclusive();
    s.pass(20);
    [&a, &b, &c].map(cistern_sim::script::Agent::crash);
    s.pass(1_000 + s.delivery_timeout() + s.tau() / 4);
    let before = s.now();
    held.unlock();
    of_d.granted();
    assert!(s.now() < before + 50, "none of the dead was waited for: {} ms", s.now() - before);
    s.finish();
}
