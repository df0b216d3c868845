//! Batches and expected versions through the client: all or nothing, whatever each agent has cached.

use super::{World, code, status};
use cistern_client::{FileId, Op, Version, kinds};
use cistern_wire::Status;
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
    let a = &w.a;
    let batch = a
        .batch()
        .add(a.create_dir(at("sub")))
        .add(a.create_dir(at("sub/deep")))
        .add(a.create_new(at("sub/deep/f")))
        .add(a.write(at("sub/deep/f"), "text").at(0))
        .add(a.set_metadata(at("sub/deep/f")).mode(0o600))
        .add(a.set_xattr(at("sub/deep/f"), "user.a", "value").if_absent())
        .add(a.symlink("deep", at("sub/s")))
        .add(a.hard_link(at("sub/deep/f"), at("sub/l")))
        .add(a.rename(at("sub/l"), at("l")).no_replace())
        .add(a.remove_file(at("sub/s")));
    let done = batch.wait().unwrap();
    assert_eq!(done.len(), 10);
    let f = w.stat(&at("sub/deep/f")).unwrap();
    assert_eq!((f.version(), f.nlink(), f.mode()), (done[2], 2, 0o600));
    assert_eq!((w.stat(&at("l")).unwrap(), done[9].number), (f, 0));
    assert_eq!((w.read(&at("l")), w.list(&at("sub"))), (b"text".to_vec(), vec![b"deep".to_vec()]));
    assert_eq!(w.b.get_xattr(at("l"), "user.a").wait().unwrap().value, "value");
}

fn one_item_that_fails_undoes_all_and_is_named(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    w.put(&at("f"), b"old");
    let before = [d, &at("f")].map(|path| w.stat(path).unwrap());
    let a = &w.a;
    let good = a.batch().add(a.create_new(at("n"))).add(a.write(at("f"), "new")).add(a.remove_file(at("f")));
    let bad: [(Op<kinds::Batch>, Status); 6] = [
        (good.clone().add(a.remove_dir(at("n"))), Status::ENOTDIR),
        (good.clone().add(a.create_new(at("n"))), Status::EEXIST),
        (good.clone().add(a.remove_file(at("f"))), Status::ENOENT),
        (good.clone().add(a.remove_xattr(at("n"), "user.none")), Status::ENODATA),
        (good.clone().add(a.rename(d, at("x"))), Status::EINVAL),
        (good.clone().add(a.hard_link(d, at("x"))), Status::EPERM),
    ];
    for (batch, expected) in bad {
        let error = batch.wait().unwrap_err();
        assert_eq!((error.item(), status(&error)), (Some(3), Some(expected)), "{error}");
        assert_eq!([d, &at("f")].map(|path| w.stat(path).unwrap()), before, "nothing has changed");
        assert_eq!((w.read(&at("f")), w.stat(&at("n"))), (b"old".to_vec(), Err(Status::ENOENT)));
    }
    assert_eq!(good.wait().unwrap().len(), 3);
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
        let batch = client
            .batch()
            .add(client.write(at("f"), text.clone()))
            .add(client.rename(at("f"), at("g")).exchange())
            .add(client.rename(at("f"), at("x")))
            .add(client.rename(at("x"), at("f")));
        batch.wait().unwrap();
        assert_eq!((w.read(&at("g")), w.list(d), w.stat(&at("x"))), (text, vec![b"f".to_vec(), b"g".to_vec()], Err(Status::ENOENT)));
    }
}

fn contents_and_values_of_any_size_go_with_a_batch(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    let sizes = [0, 1, 400, 400, 400, 70_000, 1 << 20];
    let mut batch = w.a.batch();
    for (n, size) in (0u8..).zip(sizes) {
        batch = batch.add(w.a.write(at(&n.to_string()), vec![n; size]).if_absent());
    }
    let done = batch.add(w.a.set_xattr(at("0"), "a", vec![5; 65_536])).wait().unwrap();
    assert_eq!(done.len(), 8, "a version for each change, however it is made");
    for (n, size) in (0u8..).zip(sizes) {
        assert_eq!(w.read(&at(&n.to_string())), vec![n; size]);
    }
    assert_eq!(w.b.get_xattr(at("0"), "a").wait().unwrap().value, vec![5; 65_536]);
}

fn a_change_depends_on_the_versions_expected(w: &World, d: &str) {
    let at = |name: &str| format!("{d}/{name}");
    let f = w.put(&at("f"), b"one");
    let (b, old) = (&w.b, f.version());
    w.a.write(at("f"), "two").wait().unwrap();
    for status in [
        code(b.write(at("f"), "three").if_version(old).wait()),
        code(b.write(at("f"), "three").if_unchanged(&f).wait()),
        code(b.write(at("new"), "three").if_unchanged(&f).wait()),
        code(b.set_metadata(at("f")).mode(0o600).if_version(old).wait()),
        code(b.set_metadata(at("f")).if_version(old).wait()),
        code(b.set_xattr(at("f"), "a", "").if_version(old).wait()),
        code(b.remove_xattr(at("f"), "a").if_version(old).wait()),
        code(b.remove_file(at("f")).if_version(old).wait()),
        code(b.rename(at("f"), at("g")).if_version(old).wait()),
        code(b.create_new(at("new")).if_unchanged(&f).wait()),
        code(b.write(at("new"), "three").if_absent().if_unchanged(&f).wait()),
        code(b.hard_link(at("f"), at("new")).if_version(old).wait()),
        code(b.batch().add(b.remove_file(at("f"))).if_version(old).wait()),
        code(b.batch().add(b.remove_file(at("f")).if_version(old)).wait()),
    ] {
        assert_eq!(status, Status::VERSION_CHANGED);
    }
    assert_eq!((w.read(&at("f")), w.list(d)), (b"two".to_vec(), vec![b"f".to_vec()]));
    let now = w.stat(&at("f")).unwrap();
    let nothing = Version { file: FileId(u64::MAX), number: 0 };
    b.create_new(at("new")).if_unchanged(&now).if_version(nothing).wait().unwrap();
    b.write(at("f"), "three").if_version(now.version()).wait().unwrap();
    assert_eq!(w.read(&at("f")), b"three");
    // The very file is written, whatever has its name by then.
    let moved = w.put(&at("f"), b"four");
    assert_eq!(code(w.a.rename(at("f"), at("g")).wait()), Status::OK);
    w.put(&at("f"), b"another");
    assert_eq!(code(b.write(at("f"), "five").if_version(moved.version()).wait()), Status::VERSION_CHANGED);
    let moved = w.stat(&at("g")).unwrap();
    b.write(at("f"), "five").if_version(moved.version()).wait().unwrap();
    assert_eq!((w.read(&at("f")), w.read(&at("g"))), (b"another".to_vec(), b"five".to_vec()));
}

fn increments_that_depend_on_versions_lose_nothing(w: &World, d: &str) {
    let path = format!("{d}/count");
    w.put(&path, b"0");
    let add = |client: &cistern_client::Client| {
        for _ in 0..25 {
            loop {
                let seen = client.read(&path).wait().unwrap();
                let count: u64 = std::str::from_utf8(&seen.bytes).unwrap().parse().unwrap();
                match code(client.write(&path, (count + 1).to_string()).if_version(seen.metadata.version()).wait()) {
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
    let a = &w.a;
    let of = |count: usize, name: &dyn Fn(usize) -> String| {
        (0..count).fold(a.batch(), |batch, n| batch.add(a.create_new(format!("{d}/{}", name(n)))))
    };
    let short = |n: usize| n.to_string();
    assert_eq!(code(of(17, &short).wait()), Status::E2BIG);
    assert_eq!(code(a.batch().wait()), Status::EINVAL);
    assert_eq!(of(16, &short).wait().unwrap().len(), 16);
    let nothing = Version { file: FileId(1), number: 0 };
    let expecting = (0..9).fold(a.remove_file(format!("{d}/0")), |remove, _| remove.if_version(nothing));
    assert_eq!(code(expecting.wait()), Status::E2BIG);
    // More names than one message has room for.
    assert_eq!(code(of(16, &|n| format!("{n}{}", "x".repeat(250))).wait()), Status::E2BIG);
    assert_eq!(w.list(d).len(), 16);
}
