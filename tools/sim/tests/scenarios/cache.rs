//! Scenarios of what an agent has cached: when it may answer from there, and what must not come back to life.

use cistern_agent::api::{OpError, Output};
use cistern_sim::plan::Idle;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// A writes; the server has executed it, its answer is still on the way. B has read the new contents and phones A's other user, who reads
/// from A's cache: the old contents, after B's new ones. Each alone looks right; together nothing is (section 11.5).
#[test]
fn cache_does_not_answer_what_a_mutation_under_way_may_have_changed() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    a.put("/etc/rules", "old").done();
    assert_eq!(a.text_of("/etc/rules"), "old");
    a.read("/etc/rules").done_at_once();
    s.hold(Kind::Ack, to(&a));
    let write = a.put("/etc/rules", "new");
    s.until_sent(Kind::Ack, to(&a));
    assert_eq!(b.text_of("/etc/rules"), "new");
    let read = a.read("/etc/rules");
    read.still_waits();
    s.release_held();
    write.done();
    assert_eq!(read.text(), "new");
    s.finish();
}

/// What a write of what S agents have cached costs in datagrams: DEMAND, RELEASE with the receipt in it, and RELEASED for each of the S−1
/// others, and PENDING: 3(S−1)+1 (`cistern_model::v::Approval::Demand`), besides the request and its answer.
#[test]
fn write_to_what_nine_others_cache_takes_28_datagrams_besides_its_own() {
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let (s, agents) = Setting::default().files(["/etc/rules"]).agents(names);
    for _ in 0..2 {
        agents.iter().for_each(|agent| {
            agent.read("/etc/rules").done();
        });
    }
    agents.iter().for_each(|agent| {
        agent.read("/etc/rules").done_at_once();
    });
    s.pass(50);
    let before = s.datagrams().len();
    agents[0].put("/etc/rules", "new").done();
    s.pass(50);
    assert_eq!(s.datagrams().len() - before, 3 * 9 + 1 + 2);
    s.finish();
}

/// B's write demands what A is about to cache: the demand overtakes the answer that grants it (M16 for cache locks). Installed after
/// "not held", what the answer says would be told from A's cache for ever.
#[test]
fn demand_that_overtakes_a_cache_grant_leaves_nothing_stale() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    b.put("/etc/rules", "old").done();
    a.stat("/etc").done();
    s.hold(Kind::Ack, to(&a));
    let stat = a.stat("/etc/rules");
    s.until_sent(Kind::Ack, to(&a));
    let write = b.put("/etc/rules", "longer");
    s.until_received(Kind::Demand, to(&a));
    s.pass(100);
    s.release_held();
    write.done();
    stat.done();
    let Output::Attr(attr) = a.stat("/etc/rules").done() else { panic!("no attributes") };
    assert_eq!(attr.size, 6);
    s.finish();
}

/// Two writes of A are executed in order, the answers come the other way round. Installed as they come, A's cache would end with the
/// first one's.
#[test]
fn answers_that_overtake_each_other_leave_the_newest_in_the_cache() {
    let (s, [a]) = Setting::default().files(["/etc/rules"]).agents(["a"]);
    a.put("/etc/rules", "zero").done();
    a.read("/etc/rules").done();
    s.hold_next(Kind::Ack, to(&a));
    let (first, second) = (a.put("/etc/rules", "one"), a.put("/etc/rules", "two"));
    s.until_sent(Kind::Ack, to(&a));
    s.pass(15);
    s.release_held();
    first.done();
    second.done();
    assert_eq!(a.text_of("/etc/rules"), "two");
    s.finish();
}

/// A large file is read in several datagrams, and B replaces it between two of them. Pieces of two versions put together are a file
/// that never was.
#[test]
fn pages_of_one_read_are_of_one_version() {
    let (s, [a, b]) = Setting::default().files(["/etc/large"]).agents(["a", "b"]);
    b.put("/etc/large", &"1".repeat(5_000)).done();
    a.stat("/etc").done();
    s.pass(50);
    let read = a.read("/etc/large");
    s.until_received(Kind::Read, from(&a));
    s.hold_next(Kind::Ack, to(&a));
    s.pass(3);
    let write = b.put("/etc/large", &"2".repeat(5_000));
    s.pass(300);
    s.release_held();
    write.done();
    let text = read.text();
    assert!(text == "1".repeat(5_000) || text == "2".repeat(5_000), "pieces of both");
    s.finish();
}

/// A asks for a name that is not there, and remembers that. B makes it. If what is known to be absent were not covered by the directory's
/// lock (M26), A would go on not to see it.
#[test]
fn name_known_to_be_absent_is_seen_when_somebody_makes_it() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.stat("/jobs/output").refused(Status::ENOENT);
    let asked = a.view().requests;
    a.stat("/jobs/output").refused(Status::ENOENT);
    assert_eq!(a.view().requests, asked, "from cache");
    b.create("/jobs/output").done();
    a.stat("/jobs/output").done();
    s.finish();
}

/// A is cut off, its cache lapses, B's write steals from it, and the NACK that would tell A is lost. A server that thinks A told as soon
/// as the NACK left would answer A's retransmission, and the answer would revive A's stale cache (M13, with M11; found by exhaustive
/// search of a model of the paper's protocol: there NACK is the only news of a steal).
#[test]
fn lost_nack_revives_no_cache() {
    let setting = Setting::default().files(["/etc/rules"]).agent(|agent| agent.idle = Idle::Lazy);
    let (s, [a, b]) = setting.agents(["a", "b"]);
    a.put("/etc/rules", "one").done();
    assert_eq!(a.text_of("/etc/rules"), "one");
    s.pass(1_000);
    s.cut(&a);
    let write = b.put("/etc/rules", "two");
    s.until_timing_out(&a);
    s.pass(1_100);
    assert!(a.has_lapsed());
    s.heal();
    s.drop_next(Kind::Nack, to(&a));
    let read = a.read("/etc/rules");
    read.still_waits();
    s.until_so("A has heard", || a.view().nacks == 1);
    assert!(s.sent(Kind::Nack, to(&a)) >= 2, "told again when asked again");
    write.done();
    read.done();
    assert_eq!(a.text_of("/etc/rules"), "two");
    s.finish_with_drops(["a: unknown_session"]);
}

/// The same, and the steal is long over when A comes back: what the server remembers of the session says NACK still, as often as asked.
#[test]
fn lost_nacks_after_the_steal_revive_no_cache() {
    let setting = Setting::default().files(["/etc/rules", "/etc/more"]).agent(|agent| agent.idle = Idle::Lazy);
    let (s, [a, b]) = setting.agents(["a", "b"]);
    for file in ["/etc/rules", "/etc/more"] {
        a.put(file, "one").done();
        assert_eq!(a.text_of(file), "one");
    }
    s.cut(&a);
    b.put("/etc/rules", "two").done();
    b.put("/etc/more", "two").done();
    s.heal();
    s.drop_next(Kind::Nack, to(&a));
    s.drop_next(Kind::Nack, to(&a));
    let read = a.read("/etc/rules");
    read.still_waits();
    assert_eq!(read.text(), "two");
    assert_eq!(a.text_of("/etc/more"), "two", "the new session revives nothing of the old one (M11)");
    s.finish();
}

/// An idle agent lets its lease lapse and keeps its cache. Nobody wanted anything of it, so the next answer makes all of it good again,
/// with no message per object: Lustre and AFS throw the cache away at every lapse and fetch it anew.
#[test]
fn cache_kept_over_a_lapse_is_good_again_at_the_next_answer() {
    let setting = Setting::default().files(["/etc/rules"]).agent(|agent| agent.idle = Idle::Lazy);
    let (s, [a]) = setting.agents(["a"]);
    a.put("/etc/rules", "one").done();
    assert_eq!(a.text_of("/etc/rules"), "one");
    s.pass(2 * s.tau());
    assert!(a.has_lapsed());
    a.ping().done();
    let asked = a.view().requests;
    a.read("/etc/rules").done_at_once();
    assert_eq!((a.view().requests, a.view().nacks), (asked, 0));
    s.finish();
}

/// A reads through a link; the answer that says where it points is on the way for longer than the lease lasts, and meanwhile B's write has
/// stolen what A had cached there. Checked at the start only (M9, section 11.1), the lease would seem good enough to go on with from cache,
/// and the read would bring what B has replaced, long after B's write was done.
#[test]
fn operation_that_outlasts_the_lease_is_not_finished_from_cache() {
    let (s, [a, b]) = Setting::default().files(["/etc/rules"]).agents(["a", "b"]);
    b.symlink("/etc/link", "/etc/rules").done();
    a.put("/etc/rules", "old").done();
    assert_eq!(a.text_of("/etc/rules"), "old");
    s.slow(to(&a), 3_500);
    let read = a.read("/etc/link");
    s.pass(20);
    b.put("/etc/rules", "new").done();
    read.still_waits();
    s.until_received(Kind::Ack, to(&a));
    s.heal();
    let ended = read.ends();
    assert!(ended == Err(OpError::LeaseLost) || read.text() == "new", "{ended:?}");
    s.pass(4_000);
    assert_eq!(a.text_of("/etc/link"), "new");
    s.finish_with_drops(["a: stray_handshake", "a: unknown_session"]);
}
