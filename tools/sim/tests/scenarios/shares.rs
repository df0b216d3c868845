//! Scenarios of shares: one host asks for all that there is of something, or keeps what others want.

use cistern_sim::script::Setting;
use cistern_wire::{Ask, GetAttr, Kind, ObjectId, SessionId, Want};

/// A locks file after file, until the table is full or A has its share of it. B wants one lock.
#[test]
fn one_host_leaves_locks_to_others() {
    const LOCKS: usize = 300;
    let (s, [a, b]) = Setting::default()
        .sealed()
        .server(|server| (server.locks_max, server.locks_per_session) = (LOCKS, LOCKS))
        .files(["/of-b"])
        .agents(["a", "b"]);
    let paths: Vec<String> = (0..LOCKS).map(|n| format!("/{n}")).collect();
    paths.iter().for_each(|path| _ = a.create(path).done());
    let asked: Vec<_> = paths.iter().map(|path| a.lock(path).at_once().exclusive()).collect();
    let granted = asked.iter().filter(|asked| asked.ends().is_ok()).count();
    assert!((200..LOCKS).contains(&granted), "{granted}");
    b.lock("/of-b").at_once().exclusive().granted();
    s.finish();
}

/// A does not hear what it is asked for, and loses its session: in the next one it reads as before, and caches nothing for a while.
#[test]
fn who_did_not_comply_caches_nothing_for_a_while_in_whichever_session() {
    let (s, [a, b]) = Setting::default().sealed().files(["/f"]).agents(["a", "b"]);
    a.read("/f").done();
    assert!(a.view().cache_locks > 0);
    let session = a.session();
    s.cut(&a);
    b.put("/f", "two").done();
    s.heal();
    a.ping().done();
    assert_ne!(a.session(), session);
    assert_eq!(a.text_of("/f"), "two");
    assert_eq!(a.view().cache_locks, 0);
    s.finish();
}

/// Somebody sends in sessions that there are not, as often as he likes. A host that lost its session hears of it all the same.
#[test]
fn who_asks_without_end_leaves_answers_to_others() {
    let (s, [a]) = Setting::default().in_clear().server(|server| server.hint_interval_us = 1_000_000).agents(["a"]);
    a.ping().done();
    let (greedy, modest) = (s.attacker(0), s.attacker(1));
    let ask = |n| GetAttr { ask: Ask { nonce: n, back: 0, limit: 1_232 }, object: ObjectId(1), want: Want::Nothing };
    for n in 1..=40 {
        greedy.tells_server(SessionId(0x6EED), n, &[ask(n).into()]);
    }
    let hints = greedy.heard_kinds();
    assert!((1..=10).contains(&hints.len()) && hints.iter().all(|kind| *kind == Kind::Hint), "{hints:?}");
    modest.tells_server(SessionId(0x30DE), 1, &[ask(1).into()]);
    assert_eq!(modest.heard_kinds(), [Kind::Hint]);
    s.finish_with_drops(["server: rate_limited", "server: unknown_session"]);
}
