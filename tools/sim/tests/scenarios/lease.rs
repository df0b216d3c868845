//! Scenarios of the lease: from when it counts, what ends it, what revives it and what does not.

use cistern_sim::clock::{Rates, UNIT};
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// The path to A is slow, A sends its request again and again, and then all the answers come. The lease counts from the sending of the very
/// transmission that an answer names: from its receipt (M1) or from the last transmission (M2) it would outlast the server's wait.
#[test]
fn lease_counts_from_the_transmission_that_was_answered() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.ping().done();
    s.pass(100);
    s.slow(to(&a), 700);
    let asked_at = s.now();
    let before = a.view().retransmissions;
    let ping = a.ping();
    ping.done();
    let took = s.now() - asked_at;
    assert!(took >= 700 && a.view().retransmissions > before, "it was sent more than once, and the first answer is to the first");
    assert!(a.lease_left() + took <= s.tau(), "{} ms are left {took} ms after the first transmission", a.lease_left());
    s.heal();
    s.pass(800);
    s.finish();
}

/// The lease of A is ten times the server's. Behind A, when it is gone, others wait for T of A's lease, not of the server's (T3), and no
/// longer than QUEUED and listings say: probe period, Td' and T of it.
#[test]
fn who_waits_for_a_long_lease_waits_until_it_is_over_and_no_longer_than_was_told() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).asks_for_lease("a", 20_000).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let began = s.now();
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    let waited = s.now() - began;
    assert!((20_201..=10_000 + 750 + 20_201 + 20).contains(&waited), "{waited}");
    assert!(!of_a.is_certain() && of_b.token() > of_a.token());
    s.finish();
}

/// The machine sleeps with its lid closed. CLOCK_MONOTONIC stands still meanwhile, so a lease measured by it alone would be as long as
/// before at the wake-up, and long stolen (M10). Here nothing is used in the very instant of the wake-up, before any datagram.
#[test]
fn agent_that_slept_uses_nothing_when_it_wakes_up() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/etc/rules"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.put("/etc/rules", "one").done();
    assert_eq!(a.text_of("/etc/rules"), "one");
    a.suspend();
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    b.put("/etc/rules", "two").done();
    a.wakes_up();
    assert!(!of_a.is_certain());
    let read = a.read("/etc/rules");
    read.still_waits();
    assert_eq!(read.text(), "two");
    assert!(of_a.is_lost() && of_b.is_certain());
    s.finish();
}

/// It slept, and nobody wanted anything meanwhile: the lock is uncertain at first, and certain again with the next answer, under the same
/// token (section 11.3). Told "lost" at the lapse already, its user would have given up for nothing.
#[test]
fn lock_of_an_agent_that_slept_is_certain_again_if_nobody_wanted_it() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.suspend();
    s.pass(3 * s.tau());
    a.wakes_up();
    assert!(!of_a.is_certain());
    s.pass(100);
    assert!(of_a.is_certain());
    assert_eq!(of_a.told(), ["uncertain", "certain"]);
    a.put_under(&of_a, "/jobs/nightly", "still the same grant").done();
    s.finish();
}

/// The garbage collector of a lock's holder runs for a minute (the well-known case against Redlock). The lock is stolen, B writes, the
/// holder wakes up and writes, too. What keeps it out is the token: a server that checked only the session, or the agent's own word,
/// would let the write pass (I12).
#[test]
fn write_of_a_holder_that_stood_still_beyond_the_steal_is_refused() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/jobs/report"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    a.pause();
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    b.put_under(&of_b, "/jobs/report", "by B").done();
    a.resume();
    a.put_under(&of_a, "/jobs/report", "by A, late").refused(Status::STALE_GUARD);
    assert!(of_a.is_lost());
    assert_eq!(b.text_of("/jobs/report"), "by B");
    s.finish();
}

/// The server sends demands and grants of its own accord. Whoever takes them for signs of life of the lease (M7) renews without having
/// been heard: here nothing of A reaches the server, everything of the server reaches A.
#[test]
fn what_the_server_sends_of_itself_renews_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let granted_at = s.now();
    s.cut_one_way(from(&a));
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Demand, to(&a));
    s.pass(s.tau() - (s.now() - granted_at));
    assert!(!of_a.is_certain(), "the lease is over, whatever was heard meanwhile");
    of_b.granted();
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost());
    s.finish();
}

/// The clocks of two machines are as far apart as δ allows, the holder's slow and the server's fast. A server that waits τ (M3), or takes
/// the margin on the wrong side (M3b), or rounds it down (M3c), steals while the holder's clock says that there is time left.
#[test]
fn slowest_holder_is_done_before_the_fastest_server_has_waited() {
    for (holder, server) in [(UNIT, UNIT / 100 * 101), (UNIT / 101 * 100, UNIT)] {
        let setting = Setting::default().files(["/jobs/nightly"]).clocks("a", Rates::both(holder)).clocks("server", Rates::both(server));
        let (s, [a, b]) = setting.agents(["a", "b"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.cut_one_way(to(&a));
        let waits = b.lock("/jobs/nightly").exclusive();
        s.until_timing_out(&a);
        let of_b = waits.granted();
        assert!(of_b.is_certain() && !of_a.is_certain());
        s.heal();
        s.pass(s.tau());
        s.finish();
    }
}

/// The lease is over, the holder gives its lock back, and somebody else at the same machine waits for it. Passed on now, it would be shown
/// to a second user under a lease that may have been stolen (section 11.3). It is passed on when it is certain again.
#[test]
fn lock_is_not_passed_on_locally_while_it_is_uncertain() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let first = a.lock("/jobs/nightly").exclusive().granted();
    let second = a.lock("/jobs/nightly").exclusive();
    s.cut(&a);
    s.pass(s.tau() + 10);
    assert_eq!(first.told(), ["suspect", "uncertain"]);
    first.unlock();
    s.pass(500);
    second.still_waits();
    s.heal();
    let second = second.granted();
    assert!(second.is_certain() && second.token() > first.token());
    s.finish();
}

/// NACK is final (section 11.3): a grant and a renewal that the network brings after it, because it took the slower path, must not be
/// installed. With surrender the server may have given the lock to B already.
#[test]
fn grant_that_comes_after_a_nack_is_not_installed() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agents(["a", "b"]);
    a.stat("/jobs/nightly").done();
    let other = a.lock("/jobs/other").exclusive().granted();
    s.hold_next(Kind::Ack, to(&a));
    s.cut_one_way(from(&a));
    s.heal();
    let late = a.lock("/jobs/nightly").exclusive();
    s.until_sent(Kind::Ack, to(&a));
    s.cut(&a);
    let waits = b.lock("/jobs/other").exclusive();
    s.until_timing_out(&a);
    s.heal();
    s.until_received(Kind::Nack, to(&a));
    assert!(other.is_lost());
    other.unlock();
    s.release_held();
    s.pass(5);
    late.still_waits();
    waits.granted();
    late.granted();
    s.finish_with_drops(["a: unknown_session"]);
}

/// A's requests get through, no answer does. A lease that its holder renews in its own mind by sending (or by the server's mere receipt)
/// would never end; the server, which answers all of it, keeps no lease state and fails nobody, since nobody waits.
#[test]
fn agent_that_hears_nothing_stops_in_time_and_goes_on_when_it_hears_again() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut_one_way(to(&a));
    s.pass(s.tau() + 5);
    assert!(!of_a.is_certain());
    assert_eq!((s.server.stats().failures, s.server.status().timing_out), (0, 0));
    s.heal();
    s.pass(s.tau() / 8 + 300);
    assert!(of_a.is_certain(), "{:?}", of_a.told());
    assert_eq!(of_a.told(), ["suspect", "uncertain", "certain"]);
    s.finish();
}

/// In the last part of its lease the agent starts nothing new (section 11.1): a lock that is there for the asking is not shown to another
/// local user when there is no telling whether the user will ever have time to act.
#[test]
fn nothing_starts_when_the_lease_is_about_to_end() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.cut(&a);
    s.pass(s.tau() * 9 / 10);
    assert!(!a.has_lapsed());
    let next = a.lock("/jobs/nightly").exclusive();
    s.pass(500);
    next.still_waits();
    s.heal();
    assert!(next.granted().is_certain());
    s.finish();
}

/// The server keeps no time of a session in good standing: what it keeps of A is the same, byte for byte, before and after A's lease was
/// renewed by a keep-alive, a request, and an answer from elsewhere. A note of each renewal would be lease state.
#[test]
fn renewal_leaves_nothing_behind_at_the_server() {
    let (s, [a]) = Setting::default().files(["/jobs/nightly"]).agents(["a"]);
    a.lock("/jobs/nightly").exclusive().granted();
    a.stat("/jobs/nightly").done();
    s.pass(3 * s.tau());
    a.ping().done();
    s.finish();
}
