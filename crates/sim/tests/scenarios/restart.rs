//! Scenarios of server restarts: who may reclaim, what outlives a crash, when locks are granted again.

use cistern_sim::script::Setting;

/// The first edge condition of NFSv4 (RFC 7530, section 9.6.3.4.3): a partitioned client's lock was given to somebody else, the server
/// forgot that in its crash, and the client "reclaimed" what another one had written under meanwhile. A server that does not make the
/// end of a session durable before it grants the session's locks (M37, F37) would let A back in.
#[test]
fn nfs_edge_1_a_lock_stolen_before_a_restart_is_not_reclaimed_after_it() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.cut(&a);
    let of_b = b.lock("/jobs/nightly").exclusive().granted();
    assert!(!of_a.is_certain() && of_b.token() > of_a.token());
    of_b.unlock();
    s.pass(100);

    s.server.restart();
    s.heal();
    s.pass(s.wait());
    assert!(of_a.is_lost(), "A reclaims nothing: {:?}", of_a.told());
    let again = b.lock("/jobs/nightly").exclusive().granted();
    assert!(again.token() > of_b.token());
    s.finish();
}

/// The second edge condition of NFSv4: the client misses a restart and the whole grace after it; B gets the lock and gives it back; the
/// server restarts once more, and the client comes with its old claim into the new grace. A server whose grace does not end with one
/// durable transaction that ends everybody who did not come back (M38, F38) still has A's record, and believes it.
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
/// (M37), B would hold a lock that the store still says is A's, and both would reclaim it (F37, R50).
#[test]
fn crash_between_the_end_of_a_session_and_the_next_grant_leaves_one_holder() {
    for the_end_reached_the_disk in [false, true] {
        let setting = Setting::default().files(["/jobs/nightly"]);
        let setting = if the_end_reached_the_disk { setting.crashes_keep_writes() } else { setting };
        let (s, [a, b]) = setting.agents(["a", "b"]);
        let of_a = a.lock("/jobs/nightly").exclusive().granted();
        s.cut(&a);
        let of_b = b.lock("/jobs/nightly").exclusive();
        let session = a.session();
        s.until_end_is_written(session);
        of_b.still_waits();
        s.server.restart();
        s.heal();

        let of_b = of_b.granted();
        assert!(of_a.is_lost() && !of_a.is_certain(), "its lease was over long before");
        assert!(of_b.is_certain() && of_b.token() > of_a.token());
        s.finish();
    }
}
