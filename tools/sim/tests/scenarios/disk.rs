//! Scenarios of the server's disk: what an answer may reveal, what a stalled or failing disk may hold up.

use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// The disk stalls. An ACK of the mutation would promise what a crash takes back (M40); but keep-alives that queue behind the commit
/// would turn a slow fsync into the loss of every lease in the cluster (section 11.7), which is how etcd under a slow disk loses leaders.
#[test]
fn stalled_disk_holds_up_mutations_and_no_lease() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    b.ping().done();
    s.disk.stall();
    let made: Vec<_> = (0..8).map(|n| b.create(&format!("/jobs/output{n}"))).collect();
    s.pass(3 * s.tau());
    made.iter().for_each(cistern_sim::script::Op::still_waits);
    assert_eq!(s.sent(Kind::Result, to(&b)), 0);
    assert!(of_a.is_certain() && of_a.told().is_empty(), "A was answered all the time: {:?}", of_a.told());
    s.disk.go();
    made.iter().for_each(|op| drop(op.done()));
    s.finish();
}

/// B reads while A's write is executed and not durable. Shown to B, it could be gone after a crash, and B would have acted on what never
/// was; "exists already" would reveal it as well.
#[test]
fn nobody_is_shown_what_is_not_durable() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    a.put("/jobs/nightly", "old").done();
    b.ping().done();
    s.disk.stall();
    let (write, make) = (a.put("/jobs/nightly", "new"), a.create("/jobs/output"));
    s.until_received(Kind::Write, from(&a));
    s.pass(50);
    let (read, make_too) = (b.read("/jobs/nightly"), b.create("/jobs/output"));
    s.pass(500);
    for op in [&write, &make, &make_too] {
        op.still_waits();
    }
    assert!(read.ending().is_none_or(|_| read.text() == "old"));
    s.disk.go();
    write.done();
    make.done();
    make_too.refused(Status::EEXIST);
    assert_eq!(b.text_of("/jobs/nightly"), "new");
    s.finish();
}

/// A write fails. PostgreSQL retried a failed fsync, was told success the second time, and lost data ("fsyncgate"); here the server stops
/// at once (M41, section 11.7), and what it had not acknowledged is settled by the next one.
#[test]
fn failed_write_stops_the_server_and_acknowledges_nothing() {
    let (s, [a, b]) = Setting::default().files(["/jobs/nightly"]).agents(["a", "b"]);
    let of_a = a.lock("/jobs/nightly").exclusive().granted();
    s.disk.fails(true);
    let made = a.create("/jobs/output");
    s.pass(200);
    made.still_waits();
    assert!(!s.server.is_running(), "it has stopped");
    s.disk.fails(false);
    s.server.start();
    made.done();
    b.create("/jobs/output").refused(Status::EEXIST);
    assert!(of_a.is_certain(), "and A has its lock still: {:?}", of_a.told());
    s.finish();
}
