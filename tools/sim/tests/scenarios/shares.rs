//! Scenarios of shares: one host asks for all that there is of something, or keeps what others want.

use cistern_sim::script::Setting;

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
