//! Reading directories: order, large ones, and what happens to a listing while names come and go.

use super::{World, code, status};
use cistern_wire::Status;
use std::os::unix::ffi::OsStrExt;
use std::thread;

#[test]
fn directories_are_read_as_posix_says() {
    World::start().run(&[
        ("order", entries_come_in_byte_order_with_their_kinds_and_attributes),
        ("large", a_directory_of_many_pages_is_read_whole),
        ("racing", a_listing_is_of_one_version_while_names_come_and_go),
        ("gone", a_directory_that_is_gone_is_told),
    ]);
}

fn entries_come_in_byte_order_with_their_kinds_and_attributes(w: &World, d: &str) {
    for name in ["b", "a", "Z", "ä", "aa", "0"] {
        w.file(&format!("{d}/{name}"));
    }
    w.dir(&format!("{d}/sub"));
    let mut names: Vec<Vec<u8>> = ["b", "a", "Z", "ä", "aa", "0", "sub"].iter().map(|name| name.as_bytes().to_vec()).collect();
    names.sort();
    assert_eq!(w.list(d), names);
    let listed = w.b.read_dir(d).with_metadata().wait().unwrap();
    assert_eq!(listed.metadata.len(), 7);
    for entry in &listed.entries {
        let path = format!("{d}/{}", entry.file_name.to_str().unwrap());
        assert_eq!(entry.metadata, Some(w.stat(&path).unwrap()));
        assert_eq!(entry.metadata.unwrap().is_dir(), entry.file_name == "sub");
    }
}

fn a_directory_of_many_pages_is_read_whole(w: &World, d: &str) {
    let names: Vec<String> = (0..600).map(|n| format!("{n:04}-{}", "x".repeat(n % 200))).collect();
    for name in &names {
        w.file(&format!("{d}/{name}"));
    }
    let expected: Vec<Vec<u8>> = names.iter().map(|name| name.as_bytes().to_vec()).collect();
    assert_eq!(w.list(d), expected);
    assert_eq!(w.b.read_dir(d).with_metadata().wait().unwrap().entries.len(), names.len());
    for name in names.iter().step_by(2) {
        assert_eq!(w.unlink(&format!("{d}/{name}")), Status::OK);
    }
    assert_eq!(w.list(d).len(), 300);
}

fn a_listing_is_of_one_version_while_names_come_and_go(w: &World, d: &str) {
    // At every moment exactly one of the two names of each pair is there: a listing of one instant has that many entries.
    let pairs = 40;
    for n in 0..pairs {
        w.file(&format!("{d}/{n:02}-{}", "a".repeat(100)));
    }
    thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..120 {
                let n = turn % pairs;
                let (one, other) = (format!("{d}/{n:02}-{}", "a".repeat(100)), format!("{d}/{n:02}-{}", "b".repeat(100)));
                let (from, to) = if turn / pairs % 2 == 0 { (&one, &other) } else { (&other, &one) };
                assert_eq!(w.rename(from, to, cistern_wire::RenameRule::NoReplace), Status::OK);
            }
        });
        for _ in 0..30 {
            match w.b.read_dir(d).wait() {
                Ok(listed) => {
                    let mut numbers: Vec<&[u8]> = listed.entries.iter().map(|entry| &entry.file_name.as_bytes()[..2]).collect();
                    numbers.dedup();
                    assert_eq!((numbers.len(), listed.entries.len(), listed.metadata.len()), (pairs, pairs, pairs as u64));
                }
                // It changed each time that it was begun anew: said, not made up.
                Err(error) => assert_eq!(status(&error), Some(Status::VERSION_CHANGED)),
            }
        }
    });
}

fn a_directory_that_is_gone_is_told(w: &World, d: &str) {
    let sub = format!("{d}/sub");
    w.dir(&sub);
    let opened = w.b.open(&sub).wait().unwrap();
    w.list(&sub);
    assert_eq!(w.rmdir(&sub), Status::OK);
    assert_eq!(code(w.b.read_dir(&sub).wait()), Status::ENOENT);
    assert_eq!(code(opened.metadata().wait()), Status::ESTALE);
}
