//! Batches and expected versions through the client: all or nothing, whatever each agent has cached.

use super::{OWNER, World, code};
use cistern_client::{AttrChange, Batch, Error, Expect, ObjectId, RenameRule, Status, XattrRule};
use std::thread;

#[test]
fn batches_are_done_whole_or_not_at_all() {
    World::start().run(&[
        ("tree", a_tree_is_made_as_one),
        ("fails", one_item_that_fails_undoes_all_and_is_named),
        ("cached", what_both_agents_have_cached_is_right_after_a_batch),
        ("large", contents_and_values_of_any_size_go_with_a_batch),
        ("versions", a_change_depends_on_the_versions_expected),
        ("counter", increments_that_depend_on_versions_lose_nothing),
        ("bounds", batches_have_bounds),
    ]);
}

fn a_tree_is_made_as_one(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    let batch = Batch::new()
        .mkdir(at("sub"), OWNER)
        .mkdir(at("sub/deep"), OWNER)
        .create(at("sub/deep/f"), true, OWNER)
        .write(at("sub/deep/f"), 0, "text", false)
        .set_attr(at("sub/deep/f"), AttrChange { mode: Some(0o600), ..AttrChange::default() })
        .set_xattr(at("sub/deep/f"), "user.a", "value", XattrRule::Create)
        .symlink("deep", at("sub/s"), OWNER)
        .link(at("sub/deep/f"), at("sub/l"))
        .rename(at("sub/l"), at("l"), RenameRule::NoReplace, false)
        .unlink(at("sub/s"), false);
    let done = w.a.batch(batch).wait().unwrap();
    assert_eq!(done.len(), 10);
    let f = w.stat(&at("sub/deep/f")).unwrap();
    assert_eq!((f.object, f.version, f.nlink, f.mode), (done[2].object, done[2].version, 2, 0o600));
    assert_eq!((w.stat(&at("l")).unwrap(), done[9].version), (f, 0));
    assert_eq!((w.read(&at("l")), w.list(&at("sub"))), (b"text".to_vec(), vec![b"deep".to_vec()]));
    assert_eq!(w.b.get_xattr(at("l"), "user.a").wait().unwrap().value, "value");
}

fn one_item_that_fails_undoes_all_and_is_named(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"old");
    let before = [d, &at("f")].map(|path| w.stat(path).unwrap());
    let good = Batch::new().create(at("n"), true, OWNER).write(at("f"), 0, "new", true).unlink(at("f"), false);
    let bad: [(Batch, Status); 6] = [
        (good.clone().rmdir(at("n")), Status::ENOTDIR),
        (good.clone().create(at("n"), true, OWNER), Status::EEXIST),
        (good.clone().unlink(at("f"), false), Status::ENOENT),
        (good.clone().remove_xattr(at("n"), "user.none"), Status::ENODATA),
        (good.clone().rename(d, at("x"), RenameRule::Replace, false), Status::EINVAL),
        (good.clone().link(d, at("x")), Status::EPERM),
    ];
    for (batch, expected) in bad {
        match w.a.batch(batch).wait() {
            Err(Error::Item { item, status, .. }) => assert_eq!((item, status), (3, expected)),
            other => panic!("{expected}: {other:?}"),
        }
        assert_eq!([d, &at("f")].map(|path| w.stat(path).unwrap()), before, "nothing has changed");
        assert_eq!((w.read(&at("f")), w.stat(&at("n"))), (b"old".to_vec(), Err(Status::ENOENT)));
    }
    w.a.batch(good).wait().unwrap();
    assert_eq!(w.list(d), [b"n"]);
}

fn what_both_agents_have_cached_is_right_after_a_batch(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"one");
    w.put(&at("g"), b"two");
    for turn in 0..40u8 {
        // Both have everything in their caches, the missing name, too.
        let _ = (w.read(&at("f")), w.read(&at("g")), w.list(d), w.stat(&at("x")));
        let text = vec![b'a' + turn % 26; 10];
        let client = if turn % 2 == 0 { &w.a } else { &w.b };
        let batch = Batch::new()
            .write(at("f"), 0, text.clone(), true)
            .rename(at("f"), at("g"), RenameRule::Exchange, false)
            .rename(at("f"), at("x"), RenameRule::Replace, false)
            .rename(at("x"), at("f"), RenameRule::Replace, false);
        client.batch(batch).wait().unwrap();
        assert_eq!((w.read(&at("g")), w.list(d), w.stat(&at("x"))), (text, vec![b"f".to_vec(), b"g".to_vec()], Err(Status::ENOENT)));
    }
}

fn contents_and_values_of_any_size_go_with_a_batch(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    let sizes = [0, 1, 400, 400, 400, 70_000, 1 << 20];
    let mut batch = Batch::new();
    for (n, size) in (0u8..).zip(sizes) {
        batch = batch.create(at(&n.to_string()), true, OWNER).write(at(&n.to_string()), 0, vec![n; size], false);
    }
    w.a.batch(batch.set_xattr(at("0"), "a", vec![5; 65_536], XattrRule::Any)).wait().unwrap();
    for (n, size) in (0u8..).zip(sizes) {
        assert_eq!(w.read(&at(&n.to_string())), vec![n; size]);
    }
    assert_eq!(w.b.get_xattr(at("0"), "a").wait().unwrap().value, vec![5; 65_536]);
}

fn a_change_depends_on_the_versions_expected(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    let f = w.put(&at("f"), b"one");
    let expect = [Expect { object: f.object, version: f.version }];
    let on = w.b.expecting(expect);
    w.a.put(at("f"), "two", OWNER).wait().unwrap();
    let mode = AttrChange { mode: Some(0o600), ..AttrChange::default() };
    for status in [
        code(on.put(at("f"), "three", OWNER).wait()),
        code(on.put(at("new"), "three", OWNER).wait()),
        code(on.set_attr(at("f"), mode).wait()),
        code(on.set_attr(at("f"), AttrChange::default()).wait()),
        code(on.set_xattr(at("f"), "a", "", XattrRule::Any).wait()),
        code(on.remove_xattr(at("f"), "a").wait()),
        code(on.unlink(at("f"), false).wait()),
        code(on.rename(at("f"), at("g"), RenameRule::Replace, false).wait()),
        code(on.batch(Batch::new().unlink(at("f"), false)).wait()),
    ] {
        assert_eq!(status, Status::VERSION_CHANGED);
    }
    assert_eq!((w.read(&at("f")), w.list(d)), (b"two".to_vec(), vec![b"f".to_vec()]));
    let now = w.stat(&at("f")).unwrap();
    let current = [Expect { object: now.object, version: now.version }, Expect { object: ObjectId(u64::MAX), version: 0 }];
    w.b.expecting(current).put(at("f"), "three", OWNER).wait().unwrap();
    assert_eq!(w.read(&at("f")), b"three");
}

fn increments_that_depend_on_versions_lose_nothing(w: &World, d: &str) {
    let path = format!("{d}/count");
    w.put(&path, b"0");
    let add = |client: &cistern_client::Client| {
        for _ in 0..25 {
            loop {
                let seen = client.read(&path).wait().unwrap();
                let count: u64 = std::str::from_utf8(&seen.data).unwrap().parse().unwrap();
                let expect = [Expect { object: seen.attr.object, version: seen.attr.version }];
                match code(client.expecting(expect).put(&path, (count + 1).to_string(), OWNER).wait()) {
                    Status::OK => break,
                    status => assert_eq!(status, Status::VERSION_CHANGED),
                }
            }
        }
    };
    thread::scope(|scope| {
        for client in [&w.a, &w.b, &w.a] {
            scope.spawn(move || add(client));
        }
    });
    assert_eq!(w.read(&path), b"75");
}

fn batches_have_bounds(w: &World, d: &str) {
    let many = (0..17).fold(Batch::new(), |batch, n| batch.create(format!("{d}/{n}"), true, OWNER));
    assert_eq!(code(w.a.batch(many).wait()), Status::E2BIG);
    assert_eq!(code(w.a.batch(Batch::new()).wait()), Status::EINVAL);
    let sixteen = (0..16).fold(Batch::new(), |batch, n| batch.create(format!("{d}/{n}"), true, OWNER));
    assert_eq!(w.a.batch(sixteen).wait().unwrap().len(), 16);
    let expect = [Expect { object: ObjectId(1), version: 0 }; 9];
    assert_eq!(code(w.a.expecting(expect).unlink(format!("{d}/0"), false).wait()), Status::E2BIG);
    // More names than one message has room for.
    let long = (0..16).fold(Batch::new(), |batch, n| batch.create(format!("{d}/{n}{}", "x".repeat(250)), true, OWNER));
    assert_eq!(code(w.a.batch(long).wait()), Status::E2BIG);
    assert_eq!(w.list(d).len(), 16);
}
