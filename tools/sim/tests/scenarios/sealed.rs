//! Scenarios of the sealed mode: who is on the path, and has no key, changes and repeats what goes by; keys change and are withdrawn. What
//! does not open changes nothing, and what opens is heard once.

use cistern_sim::script::{Setting, from, to};
use cistern_wire::Kind;

/// Somebody on the path counts the packet number of A's record up, and sends it in A's name and from elsewhere. A server that acts on it
/// executes what nobody asked for; one that notes its number drops A's own next record as a copy; one that believes where it comes from
/// answers there.
#[test]
fn record_that_does_not_open_changes_nothing() {
    let (s, [a]) = Setting::default().sealed().files(["/f"]).agents(["a"]);
    a.put("/f", "one").done();
    let (session, attacker) = (a.session(), s.attacker(0));
    s.changes_newest(from(&a), |record| record[19] += 1);
    s.pass(5);
    attacker.changes_newest(from(&a), |record| record[19] += 2);
    a.put("/f", "two").done();
    a.put("/f", "three").done();
    s.pass(50);
    assert_eq!((a.session(), attacker.heard()), (session, Vec::new()));
    assert_eq!(a.text_of("/f"), "three");
    s.finish_with_drops(["server: not_authentic"]);
}

/// All that A has sent to open its session comes again. A server that takes a cookie twice can be made to compute by whoever has seen one.
#[test]
fn cookie_pays_for_one_computation() {
    let (s, [a]) = Setting::default().sealed().files(["/f"]).agents(["a"]);
    a.put("/f", "one").done();
    let session = a.session();
    s.replay_recorded(Kind::Hello, from(&a));
    s.pass(50);
    a.put("/f", "two").done();
    assert_eq!(a.session(), session);
    s.finish_with_drops(["a: stray_handshake"]);
}

/// The server is started again while A's OPEN is under way, and asks for another cookie. An agent that keeps its ephemeral key for it says
/// two things under one key and nonce.
#[test]
fn second_challenge_begins_another_handshake() {
    let (s, [a]) = Setting::default().sealed().machines(["a"]);
    s.server.start();
    s.pass(10);
    s.slow(from(&a), 100);
    a.start();
    let asked = a.ping();
    s.until_received(Kind::Challenge, to(&a));
    s.server.restart();
    asked.done();
    assert_eq!(s.server.sessions().len(), 1);
    s.finish_with_drops(["a: stray_handshake"]);
}

/// A's key is withdrawn while A is cut off with a lock: B gets it after T and not before, and A, whose record says that it may not, opens
/// nothing.
#[test]
fn revoked_key_loses_its_locks_after_t_and_opens_nothing() {
    let (s, [a, b]) = Setting::default().sealed().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(100);
    s.server.revoke(&a);
    let revoked_at = s.now();
    of_b.granted();
    assert!(s.now() - revoked_at >= s.tau());
    s.heal();
    s.pass(3 * s.wait());
    assert!(of_a.is_lost());
    assert_ne!(s.server.standing_of(&a), Some("good"));
    s.finish();
}
