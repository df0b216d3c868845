//! Claims about the edges: where blocks meet, where sizes end, which times an operation sets, and bounds that are just met.

use super::super::{NamespaceLimits, Places};
use super::contents::{resize, set};
use super::{ROOT_DIR, RenameRule, World, create, link, mkdir, open_or_create, read, removed, rename, rmdir, symlink, unlink, write};
use crate::store::BLOCK_LEN;
use crate::store::Seen;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::CONTENT_MAX;
use cistern_wire::{Attr, Message, ObjectId, Read, Reader, Reply, SetAttr, SetMask, Status};

const BLOCK: u64 = BLOCK_LEN as u64;

/// Bytes that differ wherever a block could be taken for another.
fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| u8::try_from((at / 3 + seed) % 251 + 1).unwrap()).collect()
}

/// Writes contents as a stage would bring them.
fn put(w: &mut World, file: ObjectId, offset: u64, data: &[u8], truncate: bool) {
    let message = Message::from(super::Write { stage: 1, ..write(file, offset, b"", truncate) });
    w.change_with(message, &[data]).unwrap();
}

fn bytes_at(w: &mut World, file: ObjectId, offset: u64, length: u32, room: usize) -> Vec<u8> {
    let reply = w.read(Read { length, ..read(file, offset) }, room).unwrap();
    let Ok(Reply::Data(data)) = Reader::new(&reply).get() else { panic!("not a DATA reply") };
    data.data.0.to_vec()
}

#[test]
fn contents_of_every_size_around_a_block_come_back() {
    for forgetful in [false, true] {
        let mut w = World::new();
        w.forgetful = forgetful;
        for size in [1, BLOCK_LEN - 1, BLOCK_LEN, BLOCK_LEN + 1, 2 * BLOCK_LEN - 1, 2 * BLOCK_LEN, 2 * BLOCK_LEN + 1, CONTENT_MAX] {
            let file = w.done(open_or_create(ROOT_DIR, b"f")).last().unwrap().attr.object;
            let whole = pattern(size, size);
            put(&mut w, file, 0, &whole, true);
            assert!(w.contents(file) == whole, "{size} bytes");
            assert_eq!(w.attr(file).unwrap().size, size as u64);
        }
    }
}

#[test]
fn writes_and_cuts_around_a_block_leave_what_a_plain_buffer_has() {
    let edges = [0, 1, BLOCK_LEN - 1, BLOCK_LEN, BLOCK_LEN + 1, 2 * BLOCK_LEN];
    for at in edges {
        for len in [1, 2, BLOCK_LEN - 1, BLOCK_LEN, BLOCK_LEN + 1] {
            for old in [0, BLOCK_LEN, 2 * BLOCK_LEN + 7] {
                for truncate in [false, true] {
                    let mut w = World::new();
                    let file = w.file(b"f");
                    let mut plain = pattern(old, 5);
                    put(&mut w, file, 0, &plain, false);
                    put(&mut w, file, at as u64, &pattern(len, 99), truncate);
                    let end = at + len;
                    plain.resize(if truncate { end } else { end.max(old) }, 0);
                    plain[at..end].copy_from_slice(&pattern(len, 99));
                    assert!(w.contents(file) == plain, "{len} bytes at {at} of {old}, {truncate}");
                    w.done(resize(file, at as u64));
                    w.done(resize(file, 3 * BLOCK));
                    plain.truncate(at);
                    plain.resize(3 * BLOCK_LEN, 0);
                    assert!(w.contents(file) == plain, "{at} bytes kept, then zeros");
                }
            }
        }
    }
}

#[test]
fn read_crosses_blocks_and_ends_with_the_file() {
    let mut w = World::new();
    let file = w.file(b"f");
    let whole = pattern(2 * BLOCK_LEN + 10, 1);
    put(&mut w, file, 0, &whole, true);
    w.forgetful = true;
    assert_eq!(bytes_at(&mut w, file, BLOCK - 2, 5, 504), whole[BLOCK_LEN - 2..BLOCK_LEN + 3]);
    assert_eq!(bytes_at(&mut w, file, BLOCK, 1, 504), whole[BLOCK_LEN..=BLOCK_LEN]);
    assert_eq!(bytes_at(&mut w, file, 2 * BLOCK + 8, 100, 504), whole[2 * BLOCK_LEN + 8..]);
    assert_eq!(bytes_at(&mut w, file, 2 * BLOCK + 10, 100, 504), b"");
    assert_eq!(bytes_at(&mut w, file, u64::MAX, u32::MAX, 504), b"");
    assert_eq!(bytes_at(&mut w, file, 0, u32::MAX, 8_900).len(), 8_900 - 95, "as much as fits");
}

#[test]
fn truncating_write_of_nothing_sets_the_end() {
    let mut w = World::new();
    let file = w.file(b"f");
    w.done(write(file, 0, b"hello", false));
    assert_eq!(w.done(write(file, 2, b"", true))[0].attr.size, 2);
    assert_eq!(w.done(write(file, 6, b"", true))[0].attr.size, 6);
    assert_eq!(w.contents(file), b"he\0\0\0\0");
    let shown = w.done(write(file, 9, b"", false))[0];
    assert_eq!((shown.before, shown.attr.size), (shown.attr.version, 6), "nothing written beyond the end is nothing");
}

/// What an operation did to the times of an object: access, modification, change.
fn times(before: Attr, after: Attr, now: i64) -> [bool; 3] {
    let set = |old: i64, new: i64| {
        assert!(new == old || new == now);
        new != old
    };
    [set(before.atime_ns, after.atime_ns), set(before.mtime_ns, after.mtime_ns), set(before.ctime_ns, after.ctime_ns)]
}

#[test]
fn each_operation_sets_the_times_that_posix_names() {
    const CONTENTS: [bool; 3] = [false, true, true];
    const ATTRIBUTES: [bool; 3] = [false, false, true];
    let mut w = World::new();
    let (d, e) = (w.dir(ROOT_DIR, b"d"), w.dir(ROOT_DIR, b"e"));
    let file = w.done(create(d, b"f"))[1].attr.object;
    let mut check = |message: Message<'_>, expected: &[(ObjectId, [bool; 3])]| {
        let before: Vec<_> = expected.iter().map(|(object, _)| w.attr(*object).unwrap()).collect();
        let effects = w.done(message);
        let now = w.wall_ns;
        for ((object, times_expected), before) in expected.iter().zip(before) {
            let after = effects.iter().find(|effect| effect.attr.object == *object).unwrap();
            assert_eq!(times(before, after.attr, now), *times_expected, "{object} after {message:?}");
            assert_eq!((after.before, after.attr.version), (before.version, before.version + 1), "{object} after {message:?}");
        }
    };
    check(write(file, 0, b"x", false).into(), &[(file, CONTENTS)]);
    check(resize(file, 7).into(), &[(file, CONTENTS)]);
    check(SetAttr { mode: 0o600, ..set(file, SetMask::MODE) }.into(), &[(file, ATTRIBUTES)]);
    check(set(file, SetMask::ATIME_NOW).into(), &[(file, [true, false, true])]);
    check(link(file, d, b"g").into(), &[(d, CONTENTS), (file, ATTRIBUTES)]);
    check(unlink(d, b"g").into(), &[(d, CONTENTS), (file, ATTRIBUTES)]);
    check(mkdir(d, b"s").into(), &[(d, CONTENTS)]);
    check(rmdir(d, b"s").into(), &[(d, CONTENTS)]);
    check(symlink(d, b"l", b"t").into(), &[(d, CONTENTS)]);
    check(rename((d, b"f"), (e, b"f"), RenameRule::Replace).into(), &[(d, CONTENTS), (e, CONTENTS), (file, ATTRIBUTES)]);
    check(rename((e, b"f"), (e, b"h"), RenameRule::NoReplace).into(), &[(e, CONTENTS), (file, ATTRIBUTES)]);
}

#[test]
fn time_given_with_a_size_wins_over_the_time_that_the_size_sets() {
    let mut w = World::new();
    let file = w.file(b"f");
    let both = SetAttr { size: 3, mtime_ns: -7, ..set(file, SetMask::SIZE | SetMask::MTIME) };
    let after = w.done(both)[0].attr;
    assert_eq!((after.size, after.mtime_ns, after.ctime_ns), (3, -7, w.wall_ns));
}

#[test]
fn every_operation_on_names_says_what_is_wrong_with_its_directory() {
    for forgetful in [false, true] {
        let mut w = World::new();
        let (file, dir) = (w.file(b"f"), w.dir(ROOT_DIR, b"d"));
        let l = w.done(symlink(ROOT_DIR, b"l", b"d"))[1].attr.object;
        let gone = w.dir(ROOT_DIR, b"gone");
        w.done(rmdir(ROOT_DIR, b"gone"));
        w.forgetful = forgetful;
        for (place, status) in [(file, Status::ENOTDIR), (l, Status::ENOTDIR), (gone, Status::ESTALE), (ObjectId(99), Status::ESTALE)] {
            assert_eq!(w.fails(create(place, b"x")), status);
            assert_eq!(w.fails(open_or_create(place, b"x")), status);
            assert_eq!(w.fails(mkdir(place, b"x")), status);
            assert_eq!(w.fails(symlink(place, b"x", b"t")), status);
            assert_eq!(w.fails(link(file, place, b"x")), status);
            assert_eq!(w.fails(unlink(place, b"x")), status);
            assert_eq!(w.fails(rmdir(place, b"x")), status);
            for rule in [RenameRule::Replace, RenameRule::NoReplace, RenameRule::Exchange] {
                assert_eq!(w.fails(rename((place, b"x"), (dir, b"x"), rule)), status);
                assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (place, b"x"), rule)), status);
            }
        }
        assert_eq!(w.attr(ROOT_DIR).unwrap().version, 6, "nothing has changed");
    }
}

#[test]
fn exchange_of_directories_across_parents_keeps_both_link_counts() {
    let mut w = World::new();
    let (a, b) = (w.dir(ROOT_DIR, b"a"), w.dir(ROOT_DIR, b"b"));
    let (x, y) = (w.dir(a, b"x"), w.dir(b, b"y"));
    w.done(create(y, b"inside"));
    let (plan, effects) = w.change(rename((a, b"x"), (b, b"y"), RenameRule::Exchange).into()).unwrap();
    assert_eq!((plan.affected(), removed(&plan)), (&[a, b, x, y][..], Some(x)));
    let counts: Vec<_> = effects.iter().map(|effect| (effect.attr.nlink, effect.attr.size)).collect();
    assert_eq!(counts, [(3, 1), (3, 1), (2, 0), (2, 1)]);
    assert_eq!(super::reads::list(&mut w, a), [(b"x".to_vec(), y)]);
    // Each knows its new parent: what is below whom has changed.
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (y, b"in"), RenameRule::Replace)), Status::EINVAL);
    w.done(rename((ROOT_DIR, b"b"), (y, b"in"), RenameRule::Replace));
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), x, 100), Ok(b"/a/x/in/y".to_vec()));
}

#[test]
fn place_is_cut_to_its_end_however_deep_it_is() {
    let mut w = World::new();
    let mut dir = ROOT_DIR;
    for _ in 0..300 {
        dir = w.dir(dir, b"d");
    }
    for max in [4, 5, 100] {
        let Ok(place) = w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), dir, max) else {
            panic!("all is in memory")
        };
        assert!(place.len() == max && place.starts_with(b"...") && place.ends_with(b"d"), "{max}");
    }
    let end = [&b"..."[..], &b"/d".repeat(64)].concat();
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), dir, 600), Ok(end), "a list costs so much at most");
    assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (dir, b"x"), RenameRule::Replace)), Status::EINVAL, "however deep");
}

#[test]
fn places_of_one_list_share_what_was_looked_up() {
    let mut w = World::new();
    let mut dir = ROOT_DIR;
    for _ in 0..30 {
        dir = w.dir(dir, b"d");
    }
    let files: Vec<_> = (b'a'..=b'z').map(|name| (name, w.done(create(dir, &[name]))[1].attr.object)).collect();
    let mut places = Places::new();
    for (name, file) in files {
        let whole = [&b"/d".repeat(30)[..], b"/", &[name]].concat();
        assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut places, file, 255), Ok(whole));
    }
}

#[test]
fn place_is_not_that_of_another_object_that_took_the_name() {
    let mut w = World::new();
    let f = w.file(b"f");
    w.done(link(f, ROOT_DIR, b"n"));
    w.done(unlink(ROOT_DIR, b"n"));
    let other = w.file(b"n");
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), f, 255), Ok(vec![]));
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), other, 255), Ok(b"/n".to_vec()));
}

#[test]
fn exchange_within_a_directory_at_its_bound_adds_nothing() {
    let mut w = World::with(NamespaceLimits { links_max: 1, ..NamespaceLimits::default() });
    let d = w.dir(ROOT_DIR, b"d");
    let f = w.file(b"f");
    for (from, to) in [(b"d", b"f"), (b"d", b"f")] {
        let effects = w.done(rename((ROOT_DIR, from), (ROOT_DIR, to), RenameRule::Exchange));
        assert_eq!((effects.len(), effects[0].attr.nlink, effects[0].attr.size), (3, 3, 2));
    }
    assert_eq!(super::reads::list(&mut w, ROOT_DIR), [(b"d".to_vec(), d), (b"f".to_vec(), f)]);
}

#[test]
fn bounds_stop_only_what_grows() {
    let mut w = World::with(NamespaceLimits { objects_max: 3, bytes_max: 8, ..NamespaceLimits::default() });
    let (a, b) = (w.file(b"a"), w.file(b"b"));
    assert_eq!(w.fails(symlink(ROOT_DIR, b"c", b"t")), Status::ENOSPC);
    assert_eq!(w.fails(mkdir(ROOT_DIR, b"c")), Status::ENOSPC);
    w.done(write(a, 0, b"12345678", false));
    assert_eq!(w.fails(write(b, 0, b"x", false)), Status::ENOSPC);
    assert_eq!(w.fails(write(b, 9, b"", true)), Status::ENOSPC);
    w.done(link(a, ROOT_DIR, b"c"));
    w.done(write(a, 4, b"x", false));
    w.done(SetAttr { mode: 0, ..set(a, SetMask::MODE) });
    w.done(write(a, 0, b"", true));
    w.done(write(b, 0, b"12345678", false));
    w.done(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), RenameRule::Replace));
    assert_eq!(w.namespace.objects(&w.store.view(&Seen::default())), 2);
    w.done(write(a, 0, b"87654321", false));
    w.done(create(ROOT_DIR, b"d"));
}

#[test]
fn nothing_is_lost_when_many_objects_share_a_name_in_turn() {
    let mut w = World::new();
    let mut seen = vec![];
    for _ in 0..5 {
        seen.push(w.file(b"same"));
        w.done(unlink(ROOT_DIR, b"same"));
        seen.push(w.dir(ROOT_DIR, b"same"));
        w.done(rmdir(ROOT_DIR, b"same"));
    }
    assert!(seen.is_sorted_by(|a, b| a < b), "ids are never used again");
    let root = w.attr(ROOT_DIR).unwrap();
    assert_eq!((root.version, root.nlink, root.size), (21, 2, 0));
}
