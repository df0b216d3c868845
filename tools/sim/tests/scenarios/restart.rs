//! Scenarios of server restarts: who may reclaim, what outlives a crash, when locks are granted again.

use cistern_agent::api::Event;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// The first edge condition of NFSv4 (RFC 7530, section 9.6.3.4.3): a partitioned client's lock was given to somebody else, the server
/// forgot that in its crash, and the client "reclaimed" what another one had written under meanwhile. A server that does not make the
/// end of a session durable before it grants the session's locks (M37) would let A back in.
#[test]
fn nfs_edge_1_a_lock_stolen_before_a_restart_is_not_reclaimed_after_it() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.until_timing_out(&a);
    s.disk.stall();
    s.pass(s.wait() + 100);
    of_b.still_waits();
    s.disk.go();
    let of_b = of_b.granted();
    assert!(!of_a.is_certain() && of_b.token() > of_a.token());
    of_b.unlock();
    b.close();

    s.server.restart();
    s.pass(10);
    assert!(!s.server.is_in_grace(), "no session is recorded, so nobody is waited for");
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost(), "A reclaims nothing: {:?}", of_a.told());
    b.crash();
    b.start();
    let again = b.lock("/jobs/nightly").exclusive().granted();
    assert!(again.token() > of_b.token());
    s.finish();
}

/// The second edge condition of NFSv4: the client misses a restart and the whole grace after it; B gets the lock and gives it back; the
/// server restarts once more, and the client comes with its old claim into the new grace. A server whose grace does not end with one
/// durable transaction that ends everybody who did not come back (M38) still has A's record, and believes it.
#[test]
fn nfs_edge_2_who_missed_a_whole_grace_reclaims_nothing_in_the_next() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    s.server.restart();
    s.pass(10);
    assert!(s.server.is_in_grace());
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(s.wait() - 100);
    of_b.still_waits();
    let of_b = of_b.granted();
    assert!(!s.server.is_in_grace() && of_b.token() > of_a.token());
    of_b.unlock();
    s.pass(100);

    s.server.restart();
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost(), "A reclaims nothing: {:?}", of_a.told());
    assert!(b.lock("/jobs/nightly").exclusive().granted().token() > of_b.token());
    s.finish();
}

/// Between the end of a session and the grant that it makes possible the server dies. If the grant could leave before the end is durable
/// (M37), B would hold a lock that the store still says is A's, and both would reclaim it (section 11.3). So either the end was durable,
/// and A has lost; or it was not, then B was granted nothing, and A reclaims.
#[test]
fn crash_between_the_end_of_a_session_and_the_next_grant_leaves_one_holder() {
    for the_end_is_durable in [true, false] {
        let setting = Setting::default().files(["/jobs/nightly"]);
        let setting = if the_end_is_durable { setting.crashes_keep_writes() } else { setting };
        let (s, [a, b]) = setting.agents(["a", "b"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.cut(&a);
        let of_b = b.lock("/jobs/nightly").exclusive();
        s.until_end_is_written(a.session());
        of_b.still_waits();
        s.server.restart();
        s.heal();

        if the_end_is_durable {
            assert!(of_b.granted().is_certain() && of_a.is_lost());
        } else {
            s.pass(2 * s.wait());
            of_b.still_waits();
            assert!(of_a.is_certain(), "A has its lock again: {:?}", of_a.told());
            of_a.unlock();
            assert!(of_b.granted().token() > of_a.token());
        }
        s.finish();
    }
}

/// What a restart is to users: a pause. The lock is held throughout, under the same token, and the grace is over as soon as everybody is
/// back (section 11.7); counting only those who are connected (M35) would end it before A could come.
#[test]
fn restart_is_a_pause_in_which_a_holder_keeps_its_lock() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/other").exclusive().granted();
    s.server.restart();
    s.pass(10);
    b.put("/jobs/new", "made in grace").done();
    assert!(!s.server.is_in_grace() && s.now() < s.wait(), "it waits for nobody once both are back");
    s.pass(s.wait());
    assert!(of_a.is_certain() && of_b.is_certain());
    assert_eq!((of_a.told(), of_b.told()), (vec![], vec![]), "nobody was told anything");
    a.put_under(&of_a, "/jobs/nightly", "still guarded").done();
    let reclaimed = |event: &Event| matches!(event, Event::SessionReclaimed { kept: 1.., lost: 0, .. });
    assert!(a.told().iter().any(reclaimed) && b.told().iter().any(reclaimed));
    s.finish();
}

/// One server, three lease periods (section 11.7). Behind an agent with a short one that is gone, others wait by that period; the agent
/// with a long one, meanwhile and over an outage of the server of 30 s, keeps its lock without having heard a word; and although it does
/// not come back at once, nobody waits for it after the common grace but who wants that lock. A server that records nothing of long
/// sessions (T1) would give the lock away, one that waits for them all would serve nobody for a minute.
#[test]
fn each_agent_fails_over_by_its_own_lease_and_a_long_one_outlives_an_outage_that_costs_nobody_else() {
    let files = ["/jobs/long", "/jobs/short", "/jobs/usual", "/jobs/other"];
    let setting = Setting::default().files(files).asks_for_lease("long", 60_000).asks_for_lease("short", 500);
    let (s, [long, short, usual, other]) = setting.agents(["long", "short", "usual", "other"]);
    let of_long = long.lock("/jobs/long").exclusive().granted();
    let of_short = short.lock("/jobs/short").exclusive().granted();
    let of_usual = usual.lock("/jobs/usual").exclusive().granted();
    assert_eq!([&long, &short, &usual].map(|agent| agent.view().lease.as_millis()), [60_000, 500, 2_000]);

    s.says("the agent with the short lease is gone");
    let began = s.now();
    s.cut(&short);
    let took = other.lock("/jobs/short").exclusive().granted();
    let waited = s.now() - began;
    assert!((506..=944 + 20).contains(&waited), "T is 506 ms, with probe period and Td' 944 ms: {waited}");
    assert!(!of_short.is_certain() && took.token() > of_short.token());
    s.heal();

    s.says("the server is away for 30 s, and the agent with the long lease is cut off when it comes back");
    s.pass(10_000);
    s.server.crash();
    s.pass(30_000);
    assert!(of_long.is_certain() && !of_usual.is_certain());
    s.cut(&long);
    s.server.start();
    let began = s.now();
    let (wants, free) = (other.lock("/jobs/long").exclusive(), usual.lock("/jobs/other").exclusive());
    free.granted();
    let waited = s.now() - began;
    assert!(waited <= s.wait() + 100, "the common grace is that of the server's own lease: {waited}");
    assert!(!s.server.is_in_grace() && of_usual.is_certain() && of_long.is_certain());
    s.pass(3_000);
    wants.still_waits();

    s.heal();
    s.pass(2_000);
    assert!(of_long.is_certain() && of_long.told().is_empty(), "its user has noticed nothing: {:?}", of_long.told());
    long.put_under(&of_long, "/jobs/long", "guarded all along").done();
    wants.still_waits();
    of_long.unlock();
    assert!(wants.granted().token() > of_long.token());
    s.finish();
}

/// Two restarts within τ, the second one in the grace of the first: before A came back, and right after it did. The record of A's old or
/// new session must carry it over both (section 11.7: a crash in grace leaves all eligible; M39: a record written late would be missing).
#[test]
fn two_restarts_within_tau_lose_no_lock() {
    for a_came_back_in_between in [false, true] {
        let (s, [a, b, c]) = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agents(["a", "b", "c"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        // C keeps the grace open: it is recorded, and does not come back.
        let of_c = c.lock("/jobs/other").exclusive().granted();
        s.cut(&c);
        s.server.restart();
        if a_came_back_in_between {
            s.pass(10);
            a.ping().done();
            s.until_so("A has reclaimed", || {
                a.view().session.is_some() && a.view().reclaiming.is_none() && s.sent(Kind::ReclaimComplete, from(&a)) > 0
            });
            s.pass(20);
        } else {
            s.pass(50);
        }
        assert!(s.server.is_in_grace());
        s.server.restart();
        let of_b = b.lock("/jobs/nightly").exclusive();
        s.pass(2 * s.wait());
        of_b.still_waits();
        assert!(of_a.is_certain(), "{:?}", of_a.told());
        assert!(!of_c.is_certain());
        s.heal();
        s.pass(s.wait());
        assert!(of_c.is_lost() && !s.server.is_in_grace());
        of_a.unlock();
        assert!(of_b.granted().token() > of_a.token());
        s.finish();
    }
}

/// Nothing that could conflict is granted in grace (M36), to an agent that was never there before as little as to one that was; reads
/// that need no lock are answered, and clients see a pause, not an error (section 11.7).
#[test]
fn nothing_is_granted_in_grace_and_nobody_is_told_an_error() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly", "/jobs/other"]).agents(["a", "b"]);
    a.put("/jobs/other", "words").done();
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    s.server.restart();
    s.pass(10);
    assert_eq!(b.text_of("/jobs/other"), "words");
    assert!(s.server.is_in_grace());
    let (lock, write) = (b.lock("/jobs/other").exclusive(), b.put("/jobs/other", "new words"));
    s.pass(s.wait() - 200);
    lock.still_waits();
    write.still_waits();
    assert!(s.refusals(to(&b)).contains(&Status::IN_GRACE));
    lock.granted();
    write.done();
    assert!(!of_a.is_certain());
    s.finish();
}

/// A backup is restored. Its records say that A's session is open, its counters are old: a server that went on from them would let A
/// reclaim what B has held since, and give tokens out a second time, so that old writes pass the fence (M34). A restore ends all
/// sessions, begins a new epoch of tokens, and waits T without reclaims (section 11.7).
#[test]
fn restored_store_gives_larger_tokens_and_takes_no_reclaims() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.disk.copy();
    of_a.unlock();
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    s.server.crash();
    s.disk.restore();
    s.server.start();
    let again = a.lock("/jobs/nightly").exclusive();
    s.pass(s.wait() - 100);
    again.still_waits();
    let again = again.granted();
    assert!(of_b.is_lost(), "{:?}", of_b.told());
    assert!(again.token() >> 56 > of_b.token() >> 56, "tokens are of a new epoch");
    b.put_under(&of_b, "/jobs/nightly", "late").refused(Status::STALE_GUARD);
    s.finish();
}

/// The store was wiped, the agents were not: they may hold leases that it knows nothing of. A server on an empty store grants nothing
/// for T (section 11.7; Flease nodes that rejoin with empty state, M44), unless it is told that the cluster is new.
#[test]
fn empty_store_waits_t_unless_the_cluster_is_new() {
    for new_cluster in [false, true] {
        let (s, [a]) = Setting::default().server(|server| server.new_cluster = new_cluster).machines(["a"]);
        s.server.start();
        s.pass(10);
        a.start();
        let lock = a.lock("/").exclusive();
        s.pass(if new_cluster { 50 } else { s.wait() - 100 });
        assert_eq!(lock.ending().is_some(), new_cluster);
        lock.granted();
        s.finish();
    }
}

/// An operator evicts A, and before T has passed the server dies. Its timer is gone with it; if the decision were, too, A would
/// reclaim what it was evicted from. It is durable at D, and the grace is long enough for the rest of T.
#[test]
fn evicted_agent_reclaims_nothing_after_a_crash() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(50);
    s.cut(&a);
    s.server.evict(&a);
    let evicted_at = s.now();
    s.pass(50);
    s.server.restart();
    s.heal();
    let of_b = of_b.granted();
    assert!(of_b.is_certain() && of_a.is_lost());
    assert!(s.now() >= evicted_at + s.tau());
    s.finish();
}

/// The server dies between an agent's CONFIRM and its OPENED, and again; the agent's session is in the store and nobody knows of it. It must
/// not stand in the agent's own way, nor hold the next grace open for longer than T.
#[test]
fn handshake_that_a_crash_interrupts_leaves_nothing_in_the_way() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).crashes_keep_writes().agents(["a", "b"]);
    for _ in 0..2 {
        s.drop_next(Kind::Opened, to(&a));
        let lock = a.lock("/jobs/nightly").exclusive();
        s.until_sent(Kind::Opened, to(&a));
        lock.still_waits();
        lock.cancel();
        s.server.restart();
    }
    let before = s.now();
    let held = a.lock("/jobs/nightly").exclusive().granted();
    assert!(s.now() <= before + s.wait() + 600, "{} ms", s.now() - before);
    b.lock("/jobs/nightly").at_once().exclusive().refused(Status::EAGAIN);
    assert!(held.is_certain());
    s.finish();
}

/// After a restore the store says less than A has cached: versions go back, and the next write gives an old number to new contents. A cache
/// that compared versions only would keep what no longer exists, or take one for the other; it is dropped with its session.
#[test]
fn nothing_cached_outlives_a_restore() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    a.put("/etc/rules", "before").done();
    s.disk.copy();
    a.put("/etc/rules", "after").done();
    assert_eq!(a.text_of("/etc/rules"), "after");
    s.server.crash();
    s.disk.restore();
    s.server.start();
    s.pass(s.wait() + 500);
    b.put("/etc/rules", "other").done();
    assert_eq!(a.text_of("/etc/rules"), "other");
    s.finish();
}

/// An operator evicts B in grace, before it could reclaim. Its record says so at once; whenever it comes, it gets nothing back, and grace
/// lasts for what its lease may still last.
#[test]
fn evicted_in_grace_is_evicted() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    s.server.restart();
    s.pass(10);
    b.ping().done();
    assert!(of_b.is_certain());
    s.server.evict(&b);
    let evicted_at = s.now();
    let of_a = a.lock("/jobs/nightly").exclusive();
    s.pass(500);
    of_a.still_waits();
    s.server.restart();
    let of_a = of_a.granted();
    assert!(of_a.is_certain() && of_b.is_lost());
    assert!(s.now() >= evicted_at + s.tau() / 2);
    s.finish();
}

/// The server is down when A closes. A is done in its own time, and the session that the server still has in its store is waited for, like
/// any other whose agent does not come back.
#[test]
fn agent_that_closed_while_the_server_was_down_is_waited_for() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.lock("/jobs/nightly").exclusive().granted().unlock();
    s.server.crash();
    a.close();
    a.crash();
    s.server.start();
    let started_at = s.now();
    let of_b = b.lock("/jobs/nightly").exclusive();
    s.pass(s.wait() - 100);
    of_b.still_waits();
    of_b.granted();
    assert!(s.now() <= started_at + s.wait() + 600);
    s.finish();
}
