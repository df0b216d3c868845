//! Scenarios of RESUME: what brings a sealed agent back after a restart, and whom it does not bring back.

use cistern_sim::script::{Setting, to};
use cistern_wire::Kind;

/// The server starts again while its agents hold locks: they come back without their keys, and keep what they hold.
#[test]
fn agents_are_back_by_resume_after_a_restart() {
    let (s, [a, b]) = Setting::default().sealed().files(["/f", "/g"]).agents(["a", "b"]);
    let held = [a.lock("/f").exclusive().granted(), b.lock("/g").exclusive().granted()];
    s.server.restart();
    s.pass(s.wait());
    assert_eq!(s.server.stats().resumed, 2);
    assert!(held.iter().all(|lock| lock.is_certain()));
    s.finish();
}

/// A's key is withdrawn by an operator in the grace after a restart, before A comes back. Its session is recorded, and its secret is good: a
/// server that looks at these alone (R20) lets a stolen key go on for ever.
#[test]
fn a_key_that_was_withdrawn_while_the_server_was_down_resumes_nothing() {
    let (s, [a]) = Setting::default().sealed().files(["/f"]).agents(["a"]);
    let held = a.lock("/f").exclusive().granted();
    s.cut(&a);
    s.server.restart();
    s.pass(10);
    s.server.revoke(&a);
    s.heal();
    s.pass(2 * s.wait());
    assert_eq!(s.server.stats().resumed, 0);
    assert!(!held.is_certain());
}

/// A is cut off until its lock is B's. When it can be heard again it does not know that its session has ended, and resumes it: a server that has
/// the session among those it remembers, and does not look whether it has ended (R21), takes up what is over.
#[test]
fn a_session_that_was_stolen_from_is_not_resumed() {
    let (s, [a, b]) = Setting::default().sealed().files(["/f"]).agents(["a", "b"]);
    let held = a.lock("/f").exclusive().granted();
    s.cut(&a);
    let next = b.lock("/f").exclusive();
    s.until_timing_out(&a);
    s.pass(s.wait() + 100);
    let next = next.granted();
    s.heal();
    // What tells it comes late: it verifies its session first.
    s.drop_all(Kind::Nack, to(&a));
    s.pass(2 * s.wait());
    assert!(held.is_lost() && next.is_certain());
    assert_eq!(s.server.stats().resumed, 0);
    s.finish();
}
