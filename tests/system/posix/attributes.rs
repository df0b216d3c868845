//! Attributes: mode, owner, group, and which operation changes which times.

use super::{World, code};
use cistern_client::Metadata;
use cistern_wire::{RenameRule, Status};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

#[test]
fn attributes_are_what_was_set_and_times_change_with_what_they_stand_for() {
    World::start().run(&[
        ("modes", permission_bits_and_owners_are_kept_as_given),
        ("times", times_are_set_to_the_nanosecond),
        ("changes", each_operation_changes_the_times_that_it_must_and_no_other),
        ("reading", reading_changes_nothing),
        ("versions", every_change_makes_the_version_larger_and_a_failure_does_not),
    ]);
}

fn permission_bits_and_owners_are_kept_as_given(w: &World, d: &str) {
    let f = format!("{d}/f");
    for mode in [0, 0o777, 0o7777, 0o4755, 0o1777] {
        let path = format!("{d}/{mode:o}");
        let made = w.a.create_new(&path).mode(mode).owner(u32::MAX, 7).wait().unwrap();
        let seen = w.stat(&path).unwrap();
        assert_eq!((seen.mode(), seen.uid(), seen.gid()), (mode, u32::MAX, 7));
        assert_eq!(seen.version(), made);
    }
    w.file(&f);
    for mode in [0, 0o7777] {
        w.a.set_metadata(&f).mode(mode).wait().unwrap();
        assert_eq!(w.stat(&f).unwrap().mode(), mode);
    }
    w.a.set_metadata(&f).owner(9, 10).wait().unwrap();
    let after = w.stat(&f).unwrap();
    assert_eq!((after.uid(), after.gid(), after.mode()), (9, 10, 0o7777), "what is not set stays");
    for wrong in [0o10000, u16::MAX.into(), u32::MAX] {
        let x = format!("{d}/x");
        assert_eq!(code(w.a.create_new(&x).mode(wrong).wait()), Status::EINVAL);
        assert_eq!(code(w.a.create_dir(&x).mode(wrong).wait()), Status::EINVAL);
        assert_eq!(code(w.a.write(&x, "").mode(wrong).wait()), Status::EINVAL);
        assert_eq!(code(w.a.set_metadata(&f).mode(wrong).wait()), Status::EINVAL);
    }
    assert_eq!(w.stat(&format!("{d}/x")), Err(Status::ENOENT));
}

fn times_are_set_to_the_nanosecond(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.file(&f);
    let ends = [UNIX_EPOCH - Duration::from_nanos(i64::MAX.unsigned_abs()), UNIX_EPOCH + Duration::from_nanos(i64::MAX.unsigned_abs())];
    let near = [1, 1_700_000_000_123_456_789].map(|ns| UNIX_EPOCH + Duration::from_nanos(ns));
    let times: Vec<SystemTime> = [UNIX_EPOCH, UNIX_EPOCH - Duration::from_nanos(1)].into_iter().chain(near).chain(ends).collect();
    for time in times {
        let before = w.stat(&f).unwrap();
        w.a.set_metadata(&f).accessed(time).wait().unwrap();
        let after = w.stat(&f).unwrap();
        assert_eq!((after.accessed(), after.modified()), (time, before.modified()));
        w.a.set_metadata(&f).modified(time).wait().unwrap();
        let last = w.stat(&f).unwrap();
        assert_eq!((last.accessed(), last.modified()), (time, time));
        assert!(before.changed() < after.changed() && after.changed() < last.changed(), "the change time cannot be set");
    }
}

/// Which of an object's times differ: access, modification, change.
fn moved(before: &Metadata, after: &Metadata) -> (bool, bool, bool) {
    assert!(after.changed() >= before.changed());
    (before.accessed() != after.accessed(), before.modified() != after.modified(), before.changed() != after.changed())
}

const STAYS: (bool, bool, bool) = (false, false, false);
const CHANGED: (bool, bool, bool) = (false, false, true);
const MODIFIED: (bool, bool, bool) = (false, true, true);

fn each_operation_changes_the_times_that_it_must_and_no_other(w: &World, d: &str) {
    let (f, g, sub, other) = (format!("{d}/f"), format!("{d}/g"), format!("{d}/sub"), format!("{d}/other"));
    w.put(&f, b"text");
    w.dir(&sub);
    w.dir(&other);
    let look = || [d, &f, &sub, &other].map(|path| w.stat(path).unwrap());
    let check = |act: &dyn Fn(), expected: [(bool, bool, bool); 4], what: &str| {
        let before = look();
        act();
        let after = look();
        for at in 0..4 {
            assert_eq!(moved(&before[at], &after[at]), expected[at], "{what}: {}", [d, &f, &sub, &other][at]);
        }
    };
    check(
        &|| {
            let _ = w.a.set_metadata(&f).mode(0o600).wait().unwrap();
        },
        [STAYS, CHANGED, STAYS, STAYS],
        "chmod",
    );
    check(
        &|| {
            let _ = w.put(&f, b"new");
        },
        [STAYS, MODIFIED, STAYS, STAYS],
        "write",
    );
    check(
        &|| {
            let _ = w.a.set_xattr(&f, "a", "b").wait().unwrap();
        },
        [STAYS, CHANGED, STAYS, STAYS],
        "setxattr",
    );
    check(
        &|| {
            let _ = w.a.remove_xattr(&f, "a").wait().unwrap();
        },
        [STAYS, CHANGED, STAYS, STAYS],
        "removexattr",
    );
    check(
        &|| {
            let _ = w.a.hard_link(&f, &g).wait().unwrap();
        },
        [MODIFIED, CHANGED, STAYS, STAYS],
        "link",
    );
    check(&|| assert_eq!(w.unlink(&g), Status::OK), [MODIFIED, CHANGED, STAYS, STAYS], "unlink");
    check(
        &|| {
            let _ = w.file(&format!("{sub}/x"));
        },
        [STAYS, STAYS, MODIFIED, STAYS],
        "create",
    );
    let (from, to) = (format!("{sub}/x"), format!("{other}/x"));
    check(&|| assert_eq!(w.rename(&from, &to, RenameRule::Replace), Status::OK), [STAYS, STAYS, MODIFIED, MODIFIED], "rename");
    check(
        &|| {
            let _ = w.dir(&format!("{sub}/y"));
        },
        [STAYS, STAYS, MODIFIED, STAYS],
        "mkdir",
    );
    check(&|| assert_eq!(w.rmdir(&format!("{sub}/y")), Status::OK), [STAYS, STAYS, MODIFIED, STAYS], "rmdir");
    check(&|| assert_eq!(w.rmdir(&other), Status::ENOTEMPTY), [STAYS; 4], "what fails");
    check(
        &|| {
            let _ = w.a.create(&f).wait().unwrap();
        },
        [STAYS; 4],
        "opening",
    );
    let made = w.file(&format!("{d}/new"));
    assert!(made.accessed() == made.modified() && made.modified() == made.changed());
}

fn reading_changes_nothing(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.put(&f, b"text");
    w.a.symlink("f", format!("{d}/s")).wait().unwrap();
    w.a.set_xattr(&f, "a", "b").wait().unwrap();
    let look = || [d, &f, &format!("{d}/s")].map(|path| w.stat(path).unwrap());
    let before = look();
    for client in [&w.a, &w.b] {
        client.read(&f).wait().unwrap();
        client.read_dir(d).with_metadata().wait().unwrap();
        client.read_link(format!("{d}/s")).wait().unwrap();
        client.get_xattr(&f, "a").wait().unwrap();
        client.list_xattr(&f).wait().unwrap();
    }
    assert_eq!(look(), before);
}

fn every_change_makes_the_version_larger_and_a_failure_does_not(w: &World, d: &str) {
    let f = format!("{d}/f");
    w.file(&f);
    let mut version = w.stat(&f).unwrap().version().number;
    for turn in 0..5u32 {
        w.a.set_metadata(&f).mode(turn).wait().unwrap();
        let now = w.stat(&f).unwrap().version().number;
        assert_eq!(now, version + 1);
        version = now;
        assert_eq!(code(w.a.remove_xattr(&f, "none").wait()), Status::ENODATA);
        assert_eq!(w.stat(&f).unwrap().version().number, version);
    }
    let object = w.stat(&f).unwrap().id();
    assert_eq!(w.unlink(&f), Status::OK);
    assert!(w.file(&f).id() > object, "a number is never used again");
}
