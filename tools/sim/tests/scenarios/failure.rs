//! Scenarios of delivery failure: when the server gives an agent up, and the ways back and forward from there.

use cistern_model::plan;
use cistern_model::renewal::Parts;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};
use std::time::Duration;

/// The receipt of a demand comes after the server gave up waiting for it, and before anything else was said: nothing was lost, the
/// session goes on (section 11.3). A new failure later starts a full new wait.
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
/// keep locks for an agent that does not know of them (M13), or execute for a user who thinks that it failed.
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
/// still shown "certain until" would have two holders. The user stops: B gets the lock long before T.
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
/// read its socket, and a naive one fails every session of the cluster at once (M43), although each agent answered in time.
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
/// server that waits for compliance only waits for ever. While somebody waits, it asks (section 11.3).
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
/// would fail an agent that has long complied.
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

/// A is timing out, and what it holds and waits for is B's and C's affair only where they want the same (section 11.3): C is not asked to
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

/// Three agents wait for a lock and die. If each is given up only when its turn comes, the fourth waits three times Td + T;
/// asked while they wait, they fail together, and are passed by (section 11.4; etcd once granted such a waiter, M17).
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
    [&a, &b, &c].into_iter().for_each(cistern_sim::script::Agent::crash);
    s.pass(1_000 + s.delivery_timeout() + s.tau() / 4);
    let before = s.now();
    held.unlock();
    of_d.granted();
    assert!(s.now() < before + 50, "none of the dead was waited for: {} ms", s.now() - before);
    s.finish();
}

/// C waits behind A, and its machine dies; nobody has noticed when A gives the lock back. B is next: were C granted the lock unasked, B would
/// wait for T, although nobody ever used it.
#[test]
fn waiter_that_is_gone_delays_the_next_one_by_no_t() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let never = c.lock("/jobs/nightly").exclusive();
    s.pass(20);
    let for_b = b.lock("/jobs/nightly").exclusive();
    s.pass(20);
    c.crash();
    s.pass(20);
    of_a.unlock();
    let before = s.now();
    for_b.granted();
    assert!(s.now() < before + s.tau(), "after {} ms", s.now() - before);
    assert!(never.ending().is_some());
    s.finish();
}

/// A was rescued a moment ago, and now it is gone. A server that left the first timer running would steal when that ends, early in the
/// lease that A was given since: a new failure waits its full time.
#[test]
fn failure_after_a_rescue_waits_for_the_whole_of_t() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.hold(Kind::Receipt, from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    s.release_held();
    s.pass(20);
    a.ping().done();
    let renewed_at = s.now();
    s.cut(&a);
    s.until_timing_out(&a);
    let failed_at = s.now();
    of_b.granted();
    assert!(s.now() >= failed_at + s.tau() && failed_at > renewed_at);
    s.heal();
    s.pass(s.tau());
    assert!(of_a.is_lost());
    s.finish();
}

/// A is timing out because a demand did not reach it; what it has said before, to another demand, comes late. The release frees the lock
/// that it names (section 11.3), and takes back nothing: taken for a sign of life (M14), it would end the wait of a session that is still
/// cut off.
#[test]
fn late_release_frees_its_lock_and_rescues_nothing_while_something_is_missing() {
    let (s, [a, b, c]) = Setting::default().files(["/x", "/y"]).agents(["a", "b", "c"]);
    let x = a.lock("/x").exclusive().granted();
    a.lock("/y").exclusive().granted().unlock();
    s.hold(Kind::Receipt, from(&a));
    s.hold(Kind::Release, from(&a));
    let y_for_c = c.lock("/y").exclusive();
    s.until_sent(Kind::Release, from(&a));
    s.cut_one_way(to(&a));
    let x_for_b = b.lock("/x").exclusive();
    s.until_timing_out(&a);
    let failed_at = s.now();
    s.release_held();
    y_for_c.granted();
    assert!(s.now() < failed_at + 50, "Y is free");
    assert_eq!((s.server.standing_of(&a), s.server.stats().rescues), (Some("timing out"), 0));
    x_for_b.granted();
    assert!(s.now() >= failed_at + s.tau() && !x.is_certain());
    s.heal();
    s.pass(s.tau());
    s.finish();
}

/// A demand was lost twice, then the server stands still for longer than Td, then its third transmission is lost, too. If the time in which
/// it did not listen counted (M43), that would be the end of A; it counts for nothing, and the fourth is heard.
#[test]
fn time_in_which_the_server_stood_still_counts_against_nobody() {
    let setting = Setting::default().files(["/jobs/nightly"]).server(|server| server.delivery_timeout_us = 1_000_000);
    let (s, [a, b]) = setting.agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    (0..3).for_each(|_| s.drop_next(Kind::Demand, to(&a)));
    let of_b = b.lock("/jobs/nightly").exclusive();
    (0..2).for_each(|_| s.until_sent(Kind::Demand, to(&a)));
    s.server.pause();
    s.pass(s.delivery_timeout() + 100);
    s.server.resume();
    s.pass(s.wait());
    assert_eq!(s.server.stats().failures, 0);
    assert!(of_a.is_certain());
    of_a.unlock();
    of_b.granted();
    s.finish();
}

/// A's file was made, the answer is lost, and A is given up for another reason. "NACK" read as "not executed" makes it twice in the next
/// session (section 11.2): it tells the fate of each request, and what was executed is not asked for again.
#[test]
fn nack_tells_that_the_request_was_executed() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut_one_way(to(&a));
    let made = a.create("/jobs/output");
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    s.heal();
    made.done();
    assert_eq!(a.view().nacks, 1);
    of_a.unlock();
    of_b.granted();
    b.create("/jobs/output").refused(Status::EEXIST);
    s.finish();
}

/// A's write is executed, its answer waits for the disk, and meanwhile A is given up. Released after D with the echo that it had, the
/// answer would renew a lease that the server no longer counts; it goes as RESULT, which renews nothing, and A's user hears the truth.
#[test]
fn answer_that_waited_for_the_disk_beyond_the_failure_renews_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    b.ping().done();
    s.disk.stall();
    let made = a.create("/jobs/output");
    s.until_received(Kind::Create, from(&a));
    s.cut_one_way(from(&a));
    let _waits = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    let left = a.lease_left();
    s.disk.go();
    s.pass(50);
    assert!(a.lease_left() < left, "nothing renewed it");
    s.heal();
    made.done();
    a.ping().done();
    assert!(of_a.is_lost());
    b.create("/jobs/output").refused(Status::EEXIST);
    s.finish();
}

/// A's guarded write waits until C gives up what it has cached; A is given up meanwhile, its lock goes to B, and now C is out of the way.
/// Executed at last, the write of a former holder would land after B's: standing is checked at the instant of execution.
#[test]
fn write_that_was_waiting_when_its_session_failed_is_not_executed_after_the_steal() {
    let setting = Setting::default().files(["/jobs/nightly", "/jobs/report"]);
    let (s, [a, b, c]) = setting.agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    c.put("/jobs/report", "before").done();
    assert_eq!(c.text_of("/jobs/report"), "before");
    s.pass(100);
    s.cut(&c);
    let write = a.put_under(&of_a, "/jobs/report", "by A, late");
    s.until_received(Kind::Write, from(&a));
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    b.put_under(&of_b, "/jobs/report", "by B").done();
    s.heal();
    write.refused(Status::STALE_GUARD);
    assert_eq!(b.text_of("/jobs/report"), "by B");
    assert_eq!(c.text_of("/jobs/report"), "by B");
    s.finish();
}

/// With "last heard" on, the wait counts from the newest packet that was ever echoed: an agent long silent is stolen from at once (section
/// 11.3). Counted from anything earlier, or with an echo forgotten, it would be a steal under a valid lease.
#[test]
fn agent_that_was_silent_for_long_is_stolen_from_at_once_with_last_heard_on() {
    for last_heard in [false, true] {
        let setting = Setting::default().files(["/jobs/nightly"]).server(|server| server.last_heard = last_heard);
        let (s, [a, b]) = setting.agents(["a", "b"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.cut(&a);
        s.pass(s.wait());
        let of_b = b.lock("/jobs/nightly").exclusive();
        s.until_timing_out(&a);
        let failed_at = s.now();
        of_b.granted();
        assert_eq!(s.now() - failed_at < 100, last_heard, "{} ms after D", s.now() - failed_at);
        assert!(!of_a.is_certain());
        s.finish();
    }
}

/// Many writes wait for C, which is gone. A server under load that sheds keep-alives like any other request (M48) loses every lease that
/// they keep, and drowns in handshakes next; A's are answered, and its lock stays certain.
#[test]
fn keep_alives_are_answered_while_many_writes_wait() {
    let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly", "/etc/rules"]).agents(["a", "b", "c"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    c.put("/etc/rules", "zero").done();
    assert_eq!(c.text_of("/etc/rules"), "zero");
    s.cut(&c);
    let writes: Vec<_> = (0..8).map(|n| b.put("/etc/rules", &n.to_string())).collect();
    s.pass(s.wait());
    writes.iter().for_each(cistern_sim::script::Op::still_waits);
    writes.iter().for_each(|write| drop(write.done()));
    assert!(of_a.is_certain() && of_a.told().is_empty(), "{:?}", of_a.told());
    s.finish();
}

/// The server's machine sleeps while T runs. Its raw clock stood still, its boot clock did not: a server that believed the one that is
/// ahead would be right only if all agents slept as well. It waits until both say so (section 11.1), which may be late and is never early.
#[test]
fn server_that_sleeps_while_t_runs_steals_late_and_not_early() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let waits = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    s.pass(500);
    s.server.suspend();
    s.pass(s.wait());
    s.server.wakes_up();
    s.pass(100);
    waits.still_waits();
    let of_b = waits.granted();
    assert!(of_b.is_certain() && !of_a.is_certain());
    // It has asked more than once whether its session is held, and needs one answer.
    s.finish();
}

/// A has nothing left to lose and says so, again and again, and nobody hears it. Surrender is a courtesy: without it T is over when it is over,
/// and A asks for a new session meanwhile as if nothing had been.
#[test]
fn surrender_that_is_never_heard_costs_no_more_than_t() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.drop_all(Kind::EndSession, from(&a));
    s.hold(Kind::Receipt, from(&a));
    let waits = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    let failed_at = s.now();
    a.ping().done();
    assert!(of_a.is_lost());
    of_a.unlock();
    waits.granted();
    assert!(s.now() <= failed_at + s.wait() + 50, "{} ms", s.now() - failed_at);
    s.release_held();
    s.heal();
    s.finish();
}

/// The holder dies and was never sent a notice before, so nothing was measured on its path but the handshake. Failover takes what
/// `cistern plan` promises for every lease period: with a guess instead of the handshake's round trip, three transmissions would not fit
/// into the delivery timeout of the shorter ones.
#[test]
fn failover_of_a_holder_that_was_never_asked_takes_what_the_plan_promises() {
    for tau_ms in [300, 500, 800, 1_000, 2_000] {
        let timeout_ms = (tau_ms / 4).max(100);
        let (s, [a, b]) = Setting::default()
            .files(["/jobs/nightly"])
            .server(|server| {
                (server.lease_us, server.lease_min_us) = (tau_ms * 1_000, tau_ms * 1_000);
                server.delivery_timeout_us = timeout_ms * 1_000;
                server.probe_period_us = tau_ms * 500;
            })
            .agents(["a", "b"]);
        let _of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.cut(&a);
        let of_b = b.lock("/jobs/nightly").exclusive();
        s.until_sent(Kind::Demand, to(&a));
        let demanded_at = s.now();
        of_b.granted();
        let took_ms = s.now() - demanded_at;
        let promised_ms = promise(tau_ms);
        assert!(took_ms + 1 >= promised_ms, "τ = {tau_ms} ms: {took_ms} ms is less than the {promised_ms} ms of Td and T");
        assert!(took_ms <= promised_ms + 20, "τ = {tau_ms} ms: {took_ms} ms, and {promised_ms} ms were promised");
        s.finish();
    }
}

/// What `cistern plan` says of a failover with this lease period, in whole milliseconds.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "some seconds")]
fn promise(tau_ms: u64) -> u64 {
    let server = cistern_server::Config::default();
    let tau = Duration::from_millis(tau_ms).as_secs_f64();
    let setting = plan::Setting {
        requests: plan::Requests::Rate(1.0),
        fail_every: 86_400.0,
        repair: 1.0,
        opportunistic: true,
        parts: Parts { renew_from: 0.6, use_until: 0.8 },
        timeout: plan::Timeout::Part { of_tau: 0.25, least: 0.1 },
        round_trip: 0.002,
        delta: f64::from(server.delta_ppm) / 1e6,
        epsilon: server.epsilon.as_secs_f64(),
        allowed: (0.1, 3_600.0),
        usual: 2.0,
    };
    let costs = setting.costs(tau).expect("a plan");
    (costs.failover * 1e3) as u64
}
