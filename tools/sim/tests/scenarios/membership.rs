//! Scenarios of membership: ephemeral files, their owners, and those who watch.

use cistern_agent::api::WatchEvent;
use cistern_sim::script::{Setting, from, to};
use cistern_wire::{Kind, Status};

/// The owner of a watched file dies without a word. In etcd and ZooKeeper its keep-alives are missed; here nobody sends any, so the server
/// asks while somebody watches (section 11.5), and finds out within the documented time. The file must not go sooner than its owner's lease
/// can be over: whoever acts on "it is gone" would act beside a living owner (section 11.3).
#[test]
fn dead_owner_of_a_watched_file_is_found_out_in_time_and_not_too_early() {
    let (s, [a, b]) = Setting::default().files(["/group/plain"]).agents(["a", "b"]);
    let member = a.joins("/group/a");
    // A caches neither the file nor its directory any more: nothing but its session keeps the file.
    b.put("/group/a", "seen").done();
    b.create("/group/b").done();
    assert_eq!(b.watches("/group/a"), member);
    s.pass(100);
    a.crash();
    let died = s.now();
    s.until_timing_out(&a);
    s.pass(s.tau() / 2);
    b.stat("/group/a").done();
    assert!(matches!(b.heard_of(member)[..], [WatchEvent::Certain { .. }]), "{:?}", b.heard_of(member));
    s.until_so("B hears that it is gone", || b.heard_of(member).last() == Some(&WatchEvent::Gone));
    let probe_period = s.tau() / 2;
    assert!(s.now() - died <= probe_period + 2 * s.delivery_timeout() + s.wait(), "after {} ms", s.now() - died);
    b.stat("/group/a").refused(Status::ENOENT);
    b.stat("/group/plain").done();
    s.finish();
}

/// Nobody watches: nobody is asked, and nobody finds out.
#[test]
fn owner_that_nobody_watches_is_not_probed() {
    let (s, [a, b]) = Setting::default().files(["/group/plain"]).agents(["a", "b"]);
    let _member = a.joins("/group/a");
    b.ping().done();
    a.crash();
    s.pass(5 * s.tau());
    assert_eq!((s.sent(Kind::Probe, to(&a)), s.server.stats().failures), (0, 0));
    b.stat("/group/a").done();
    s.finish();
}

/// The server is started anew. The owner, which has an ephemeral file and no lock, must notice and take its file over; else a member that
/// never failed would be taken for dead with the grace (section 11.7).
#[test]
fn restart_of_the_server_takes_no_living_member_away() {
    let (s, [a, b]) = Setting::default().files(["/group/plain"]).agents(["a", "b"]);
    let member = a.joins("/group/a");
    assert_eq!(b.watches("/group/a"), member);
    s.pass(10);
    s.server.restart();
    s.pass(2 * s.wait());
    assert!(!s.server.is_in_grace());
    b.stat("/group/a").done();
    let told = b.heard_of(member);
    assert!(told.contains(&WatchEvent::Uncertain) && told.last() == Some(&WatchEvent::Certain { version: 1 }), "{told:?}");
    a.close();
    s.until_so("B hears that it is gone", || b.heard_of(member).last() == Some(&WatchEvent::Gone));
    s.finish();
}

/// Nobody watches the file of a member that died, but somebody looks: whoever sees a dead member in a listing must not see it for ever.
#[test]
fn owner_of_a_file_that_somebody_looks_at_is_probed() {
    let (s, [a, b]) = Setting::default().files(["/group/plain"]).agents(["a", "b"]);
    let _member = a.joins("/group/a");
    b.ping().done();
    a.crash();
    b.stat("/group/a").done();
    let looked = s.now();
    s.until_timing_out(&a);
    assert!(s.now() - looked <= s.tau() / 2 + 2 * s.delivery_timeout(), "after {} ms", s.now() - looked);
    s.pass(s.wait() + 100);
    b.stat("/group/a").refused(Status::ENOENT);
    s.finish();
}

/// The disk stalls. A watcher that is told of a change which a crash takes back acts on what never was (section 11.7).
#[test]
fn nobody_is_told_of_a_change_that_is_not_durable() {
    let (s, [a, b]) = Setting::default().files(["/group/f"]).agents(["a", "b"]);
    let file = b.watches("/group/f");
    a.ping().done();
    s.pass(10);
    s.disk.stall();
    let write = a.put("/group/f", "new");
    s.pass(500);
    write.still_waits();
    assert_eq!(b.heard_of(file).len(), 1, "nothing but what it was at first");
    s.disk.go();
    write.done();
    s.until_so("B hears", || b.heard_of(file).last() == Some(&WatchEvent::Changed { version: 2 }));
    s.finish();
}

/// A watcher is cut off for so long that its session ends, and what it watches changes meanwhile. The next session knows nothing of the
/// watch: an agent that goes on as if it did tells its user nothing for ever (section 11.7).
#[test]
fn what_changed_between_two_sessions_is_not_missed() {
    let (s, [a, b]) = Setting::default().files(["/group/f"]).agents(["a", "b"]);
    let file = b.watches("/group/f");
    s.pass(10);
    s.cut(&b);
    let one = a.put("/group/f", "one");
    s.until_timing_out(&b);
    s.pass(2 * s.wait());
    one.done();
    a.put("/group/f", "two").done();
    assert_eq!(b.heard_of(file).last(), Some(&WatchEvent::Uncertain));
    s.heal();
    s.until_so("B hears what it missed", || b.heard_of(file).last() == Some(&WatchEvent::Certain { version: 3 }));
    a.put("/group/f", "three").done();
    s.until_so("B hears again", || b.heard_of(file).last() == Some(&WatchEvent::Changed { version: 4 }));
    s.finish_with_drops(["b: unknown_session"]);
}

/// Receipts of a watcher are slow, and what it watches changes on: it is told the last version, and not each (section 11.5).
#[test]
fn slow_watcher_is_told_the_last_version_and_keeps_its_session() {
    let (s, [a, b]) = Setting::default().files(["/group/f"]).agents(["a", "b"]);
    let file = b.watches("/group/f");
    s.pass(10);
    s.hold(Kind::Receipt, from(&b));
    for text in ["one", "two", "three"] {
        a.put("/group/f", text).done();
    }
    assert_eq!(b.heard_of(file).len(), 2);
    s.release_held();
    s.until_so("B hears", || b.heard_of(file).last() == Some(&WatchEvent::Changed { version: 4 }));
    assert_eq!(b.heard_of(file).len(), 3, "{:?}", b.heard_of(file));
    assert_eq!(s.server.stats().failures, 0);
    s.finish();
}
