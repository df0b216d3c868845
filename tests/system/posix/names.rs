//! Names: which there can be, what making and taking them away says, link counts, and the ways that paths go.

use super::{World, code, os};
use cistern_wire::{RenameRule, Status};
use std::path::Path;

#[test]
fn names_come_and_go_as_posix_says() {
    World::start().run(&[
        ("bytes", every_byte_but_nul_and_slash_can_stand_in_a_name),
        ("long", names_have_up_to_255_bytes_and_targets_400),
        ("missing", what_is_missing_or_no_directory_on_the_way_is_told),
        ("taken", names_that_are_taken_are_told),
        ("kinds", only_directories_are_removed_as_directories),
        ("special", dot_and_dot_dot_are_no_names_to_make_or_take_away),
        ("links", link_counts_are_right_at_every_moment),
        ("symlinks", symbolic_links_are_followed_as_far_as_posix_says),
        ("slashes", a_slash_at_the_end_means_a_directory),
    ]);
}

fn every_byte_but_nul_and_slash_can_stand_in_a_name(w: &World, d: &str) {
    let mut expected = Vec::new();
    for byte in (1..=255u8).filter(|byte| *byte != b'/') {
        let name = vec![byte, b'x'];
        let path = [d.as_bytes(), b"/", &name].concat();
        w.a.create_new(os(&path)).wait().unwrap();
        expected.push(name);
    }
    assert_eq!(w.list(d), expected);
    for name in &expected {
        w.b.remove_file(os(&[d.as_bytes(), b"/", name].concat())).wait().unwrap();
    }
    assert_eq!(w.list(d), Vec::<Vec<u8>>::new());
    assert_eq!(code(w.a.create_new(os(b"/a\0b")).wait()), Status::EINVAL);
}

fn names_have_up_to_255_bytes_and_targets_400(w: &World, d: &str) {
    let (fits, long) = (format!("{d}/{}", "n".repeat(255)), format!("{d}/{}", "n".repeat(256)));
    w.file(&fits);
    assert_eq!(w.stat(&fits).unwrap().nlink(), 1);
    let a = &w.a;
    assert_eq!(code(a.create_new(&long).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.create_dir(&long).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.symlink("x", &long).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.hard_link(&fits, &long).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.rename(&fits, &long).wait()), Status::ENAMETOOLONG);
    for status in [w.unlink(&long), w.rmdir(&long), code(a.metadata(&long).wait()), code(a.write(&long, "").wait())] {
        assert_eq!(status, Status::ENAMETOOLONG);
    }
    let target = |len: usize| "t".repeat(len);
    a.symlink(target(400), format!("{d}/s")).wait().unwrap();
    assert_eq!(w.b.read_link(format!("{d}/s")).wait().unwrap(), Path::new(&target(400)));
    assert_eq!(code(a.symlink(target(401), format!("{d}/t")).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.symlink("", format!("{d}/t")).wait()), Status::ENOENT);
    // A path may be as long as Linux has it.
    assert_eq!(code(a.metadata(format!("{d}{}", "/x".repeat(2_100))).wait()), Status::ENAMETOOLONG);
    assert_eq!(code(a.metadata("").wait()), Status::ENOENT);
}

fn what_is_missing_or_no_directory_on_the_way_is_told(w: &World, d: &str) {
    w.file(&format!("{d}/f"));
    let ways = [(format!("{d}/none/x"), Status::ENOENT), (format!("{d}/f/x"), Status::ENOTDIR)];
    for (path, status) in &ways {
        let a = &w.a;
        let rule = RenameRule::Replace;
        for got in [
            code(a.metadata(path).wait()),
            code(a.create_new(path).wait()),
            code(a.create(path).wait()),
            code(a.write(path, "x").wait()),
            code(a.create_dir(path).wait()),
            code(a.symlink("x", path).wait()),
            code(a.hard_link(format!("{d}/f"), path).wait()),
            code(a.hard_link(path, format!("{d}/g")).wait()),
            code(a.read(path).wait()),
            code(a.read_link(path).wait()),
            code(a.read_dir(path).wait()),
            code(a.get_xattr(path, "a").wait()),
            code(a.set_metadata(path).mode(0).wait()),
            w.rename(path, &format!("{d}/g"), rule),
            w.rename(&format!("{d}/f"), path, rule),
            w.unlink(path),
            w.rmdir(path),
        ] {
            assert_eq!(got, *status, "{path}");
        }
    }
    assert_eq!(w.unlink(&format!("{d}/none")), Status::ENOENT);
    assert_eq!(w.rmdir(&format!("{d}/none")), Status::ENOENT);
    assert_eq!(w.list(d), [b"f"]);
}

fn names_that_are_taken_are_told(w: &World, d: &str) {
    let (f, s, sub) = (format!("{d}/f"), format!("{d}/s"), format!("{d}/sub"));
    w.file(&f);
    w.a.symlink("f", &s).wait().unwrap();
    w.dir(&sub);
    for path in [&f, &s, &sub] {
        assert_eq!(code(w.a.create_new(path).wait()), Status::EEXIST);
        assert_eq!(code(w.a.create_dir(path).wait()), Status::EEXIST);
        assert_eq!(code(w.a.symlink("x", path).wait()), Status::EEXIST);
        assert_eq!(code(w.a.hard_link(&f, path).wait()), Status::EEXIST);
    }
    assert_eq!(code(w.a.create(&sub).wait()), Status::EISDIR);
    let opened = w.a.create(&s).wait().unwrap();
    assert_eq!(opened.id(), w.stat(&f).unwrap().id(), "the link is followed");
}

fn only_directories_are_removed_as_directories(w: &World, d: &str) {
    w.file(&format!("{d}/f"));
    w.a.symlink("f", format!("{d}/s")).wait().unwrap();
    w.dir(&format!("{d}/full"));
    w.file(&format!("{d}/full/x"));
    assert_eq!(w.rmdir(&format!("{d}/f")), Status::ENOTDIR);
    assert_eq!(w.rmdir(&format!("{d}/s")), Status::ENOTDIR);
    assert_eq!(w.unlink(&format!("{d}/full")), Status::EISDIR);
    assert_eq!(w.rmdir(&format!("{d}/full")), Status::ENOTEMPTY);
    assert_eq!(code(w.a.hard_link(format!("{d}/full"), format!("{d}/again")).wait()), Status::EPERM);
    assert_eq!(w.unlink(&format!("{d}/full/x")), Status::OK);
    assert_eq!(w.rmdir(&format!("{d}/full")), Status::OK);
    assert_eq!(w.stat(&format!("{d}/full")), Err(Status::ENOENT));
    assert_eq!(w.stat(&format!("{d}/full/x")), Err(Status::ENOENT));
}

fn dot_and_dot_dot_are_no_names_to_make_or_take_away(w: &World, d: &str) {
    let sub = format!("{d}/sub");
    w.dir(&sub);
    let (dot, dots) = (format!("{sub}/."), format!("{sub}/.."));
    for path in [&dot, &dots] {
        assert_eq!(code(w.a.create_dir(path).wait()), Status::EEXIST);
        assert_eq!(code(w.a.create_new(path).wait()), Status::EEXIST);
        assert_eq!(w.unlink(path), Status::EISDIR);
        assert_eq!(w.rename(path, &format!("{d}/x"), RenameRule::Replace), Status::EBUSY);
        assert_eq!(w.rename(&sub, path, RenameRule::Replace), Status::EBUSY);
    }
    assert_eq!((w.rmdir(&dot), w.rmdir(&dots), w.rmdir("/")), (Status::EINVAL, Status::ENOTEMPTY, Status::EBUSY));
    let up = w.stat(&format!("{sub}/../sub/./../sub")).unwrap();
    assert_eq!(up.id(), w.stat(&sub).unwrap().id());
    assert_eq!(w.stat("/..").unwrap().id(), w.stat("/").unwrap().id());
}

fn link_counts_are_right_at_every_moment(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.file(&at("f"));
    for (turn, name) in ["g", "h", "i"].iter().enumerate() {
        w.a.hard_link(at("f"), at(name)).wait().unwrap();
        assert_eq!(w.links(&at("f")), u32::try_from(turn + 2).unwrap());
    }
    assert_eq!(w.unlink(&at("f")), Status::OK);
    assert_eq!((w.links(&at("g")), w.links(&at("i"))), (3, 3));
    assert_eq!(w.rename(&at("g"), &at("h"), RenameRule::Replace), Status::OK, "two names of one file: nothing");
    assert_eq!((w.links(&at("g")), w.links(&at("h"))), (3, 3));
    w.file(&at("other"));
    assert_eq!(w.rename(&at("other"), &at("h"), RenameRule::Replace), Status::OK);
    assert_eq!((w.links(&at("g")), w.links(&at("h"))), (2, 1));
    assert_eq!(w.links(d), 2);
    w.dir(&at("x"));
    w.dir(&at("y"));
    assert_eq!((w.links(d), w.links(&at("x"))), (4, 2));
    assert_eq!(w.rename(&at("x"), &at("y/x"), RenameRule::Replace), Status::OK);
    assert_eq!((w.links(d), w.links(&at("y"))), (3, 3));
    assert_eq!((w.rmdir(&at("y/x")), w.rmdir(&at("y"))), (Status::OK, Status::OK));
    assert_eq!(w.links(d), 2);
    w.a.symlink("nowhere", at("s")).wait().unwrap();
    w.a.hard_link(at("s"), at("t")).wait().unwrap();
    assert_eq!((w.links(&at("s")), w.links(&at("t"))), (2, 2), "the link itself, not what it points to");
}

fn symbolic_links_are_followed_as_far_as_posix_says(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"text");
    w.a.symlink("f", at("1")).wait().unwrap();
    for n in 1..40 {
        w.a.symlink(format!("{n}"), at(&format!("{}", n + 1))).wait().unwrap();
    }
    assert_eq!(w.read(&at("40")), b"text", "as many as Linux follows");
    w.a.symlink("40", at("41")).wait().unwrap();
    w.a.symlink("round", at("round")).wait().unwrap();
    for path in [at("41"), at("round"), at("round/x")] {
        assert_eq!(code(w.a.metadata(&path).wait()), Status::ELOOP, "{path}");
        assert_eq!(code(w.a.read(&path).wait()), Status::ELOOP);
    }
    w.a.symlink("missing", at("dangling")).wait().unwrap();
    assert_eq!(code(w.a.metadata(at("dangling")).wait()), Status::ENOENT);
    w.a.write(at("dangling"), "made").wait().unwrap();
    assert_eq!(w.read(&at("missing")), b"made", "what it points to is made");
    assert_eq!(code(w.a.read_link(at("f")).wait()), Status::EINVAL);
    assert_eq!(w.unlink(&at("dangling")), Status::OK);
    assert_eq!(w.read(&at("missing")), b"made", "the link goes, not what it points to");
    w.a.symlink(d, at("up")).wait().unwrap();
    assert_eq!(w.stat(&at("up/up/f")).unwrap().id(), w.stat(&at("f")).unwrap().id());
}

fn a_slash_at_the_end_means_a_directory(w: &World, d: &str) {
    let (f, sub) = (format!("{d}/f"), format!("{d}/sub"));
    w.file(&f);
    w.a.create_dir(format!("{sub}/")).mode(0o700).wait().unwrap();
    assert_eq!(w.stat(&format!("{sub}//")).unwrap().mode(), 0o700);
    assert_eq!(code(w.a.metadata(format!("{f}/")).wait()), Status::ENOTDIR);
    assert_eq!(code(w.a.create_new(format!("{d}/new/")).wait()), Status::EISDIR);
    assert_eq!(w.unlink(&format!("{f}/")), Status::ENOTDIR);
    assert_eq!(w.rename(&f, &format!("{d}/g/"), RenameRule::Replace), Status::ENOTDIR);
    assert_eq!(w.rename(&format!("{sub}/"), &format!("{d}/moved/"), RenameRule::Replace), Status::OK);
    assert_eq!(w.list(d), [&b"f"[..], b"moved"]);
}
