//! Renaming: onto nothing, onto something of each kind, into itself, without replacing, and exchanging.

use super::World;
use cistern_wire::RenameRule::{Exchange, NoReplace, Replace};
use cistern_wire::Status;
use std::path::Path;

#[test]
fn names_move_as_posix_says() {
    World::start().run(&[
        ("kinds", a_directory_replaces_only_an_empty_directory_and_a_file_none),
        ("itself", a_name_moved_onto_itself_or_another_name_of_its_object_stays),
        ("loops", a_directory_is_not_moved_into_itself_nor_below),
        ("noreplace", without_replacing_an_existing_name_is_an_error),
        ("exchange", exchanging_swaps_two_names_of_any_kinds),
        ("identity", what_is_moved_is_the_same_object_with_its_times_and_attributes),
        ("missing", a_name_that_is_missing_is_told),
    ]);
}

fn a_directory_replaces_only_an_empty_directory_and_a_file_none(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.file(&at("f"));
    w.file(&at("g"));
    w.dir(&at("empty"));
    w.dir(&at("full"));
    w.dir(&at("moved"));
    w.file(&at("full/x"));
    w.a.symlink("f", at("s")).wait().unwrap();
    assert_eq!(w.rename(&at("f"), &at("empty"), Replace), Status::EISDIR);
    assert_eq!(w.rename(&at("s"), &at("empty"), Replace), Status::EISDIR);
    assert_eq!(w.rename(&at("moved"), &at("f"), Replace), Status::ENOTDIR);
    assert_eq!(w.rename(&at("moved"), &at("s"), Replace), Status::ENOTDIR);
    assert_eq!(w.rename(&at("moved"), &at("full"), Replace), Status::ENOTEMPTY);
    assert_eq!(w.rename(&at("full"), &at("empty"), Replace), Status::OK);
    assert_eq!(w.list(&at("empty")), [b"x"]);
    assert_eq!(w.rename(&at("s"), &at("g"), Replace), Status::OK, "a link is a file like others");
    assert_eq!(w.b.read_link(at("g")).wait().unwrap(), Path::new("f"));
    assert_eq!(w.rename(&at("f"), &at("g"), Replace), Status::OK);
    assert_eq!(w.list(d), [&b"empty"[..], b"g", b"moved"]);
    assert_eq!(w.links(d), 4);
}

fn a_name_moved_onto_itself_or_another_name_of_its_object_stays(w: &World, d: &str) {
    let (f, g) = (format!("{d}/f"), format!("{d}/g"));
    w.put(&f, b"text");
    w.a.hard_link(&f, &g).wait().unwrap();
    let before = w.stat(&f).unwrap();
    let dir = w.stat(d).unwrap();
    for (from, to, rule) in [(&f, &f, Replace), (&f, &g, Replace), (&f, &g, Exchange), (&f, &f, Exchange)] {
        assert_eq!(w.rename(from, to, rule), Status::OK);
        assert_eq!((w.stat(&f).unwrap(), w.stat(&g).unwrap(), w.stat(d).unwrap()), (before, before, dir), "nothing has changed");
    }
    assert_eq!(w.rename(&f, &g, NoReplace), Status::EEXIST);
    assert_eq!(w.rename(&f, &f, NoReplace), Status::EEXIST);
    let sub = format!("{d}/sub");
    w.dir(&sub);
    assert_eq!(w.rename(&sub, &sub, Replace), Status::OK);
}

fn a_directory_is_not_moved_into_itself_nor_below(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.dir(&at("a"));
    w.dir(&at("a/b"));
    w.dir(&at("a/b/c"));
    w.dir(&at("z"));
    for (from, to, rule) in [
        ("a", "a/x", Replace),
        ("a", "a/b/x", Replace),
        ("a", "a/b/c/x", NoReplace),
        ("a", "a/b", Exchange),
        ("a/b/c", "a", Exchange),
        ("a", "a/b/c", Replace),
    ] {
        assert_eq!(w.rename(&at(from), &at(to), rule), Status::EINVAL, "{from} to {to}");
    }
    assert_eq!(w.rename(&at("a/b"), &at("z/b"), Replace), Status::OK);
    assert_eq!(w.rename(&at("a"), &at("z/b/c/a"), Replace), Status::OK);
    assert_eq!(w.rename(&at("z"), &at("z/b/c/a/z"), Replace), Status::EINVAL);
    assert!(w.stat(&at("z/b/c/a/../../..")).unwrap().is_dir());
}

fn without_replacing_an_existing_name_is_an_error(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"f");
    w.put(&at("g"), b"g");
    w.dir(&at("sub"));
    w.a.symlink("nowhere", at("s")).wait().unwrap();
    for to in ["g", "sub", "s"] {
        assert_eq!(w.rename(&at("f"), &at(to), NoReplace), Status::EEXIST);
    }
    assert_eq!(w.rename(&at("f"), &at("new"), NoReplace), Status::OK);
    assert_eq!((w.read(&at("new")), w.read(&at("g"))), (b"f".to_vec(), b"g".to_vec()));
}

fn exchanging_swaps_two_names_of_any_kinds(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"f");
    w.dir(&at("sub"));
    w.dir(&at("other"));
    w.file(&at("sub/x"));
    let (f, sub) = (w.stat(&at("f")).unwrap(), w.stat(&at("sub")).unwrap());
    assert_eq!(w.rename(&at("f"), &at("missing"), Exchange), Status::ENOENT);
    assert_eq!(w.rename(&at("f"), &at("sub"), Exchange), Status::OK, "a file and a full directory");
    assert_eq!((w.stat(&at("sub")).unwrap().id(), w.stat(&at("f")).unwrap().id()), (f.id(), sub.id()));
    assert_eq!((w.list(&at("f")), w.read(&at("sub"))), (vec![b"x".to_vec()], b"f".to_vec()));
    w.put(&at("other/p"), b"p");
    assert_eq!(w.links(&at("other")), 2);
    assert_eq!(w.rename(&at("f"), &at("other/p"), Exchange), Status::OK, "across directories");
    assert_eq!((w.links(&at("other")), w.links(d)), (3, 3), "a subdirectory came and went");
    assert_eq!((w.list(&at("other/p")), w.read(&at("f"))), (vec![b"x".to_vec()], b"p".to_vec()));
    assert_eq!(w.stat(&at("other/p/..")).unwrap().id(), w.stat(&at("other")).unwrap().id());
}

fn what_is_moved_is_the_same_object_with_its_times_and_attributes(w: &World, d: &str) {
    let (f, g) = (format!("{d}/f"), format!("{d}/g"));
    w.put(&f, b"text");
    w.a.set_xattr(&f, "user.a", "value").wait().unwrap();
    let before = w.stat(&f).unwrap();
    assert_eq!(w.rename(&f, &g, Replace), Status::OK);
    let after = w.stat(&g).unwrap();
    assert_eq!(
        (after.id(), after.modified(), after.accessed(), after.len()),
        (before.id(), before.modified(), before.accessed(), before.len())
    );
    assert!(after.changed() > before.changed() && after.version().number > before.version().number);
    assert_eq!(w.b.get_xattr(&g, "user.a").wait().unwrap().value, "value");
    assert_eq!(w.stat(&f), Err(Status::ENOENT));
}

fn a_name_that_is_missing_is_told(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.file(&at("f"));
    for rule in [Replace, NoReplace, Exchange] {
        assert_eq!(w.rename(&at("none"), &at("f"), rule), Status::ENOENT);
    }
}
