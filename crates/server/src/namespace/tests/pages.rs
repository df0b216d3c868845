//! Claims about pages: cookies that stay good, one lock for each object, and reading that leaves no trace.

use super::reads::read_dir;
use super::{ASK, ROOT_DIR, Reply, SMALL, World, create, link, mkdir, read, rename, symlink, unlink, write};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_wire::{Bytes8, Entry, GetAttr, List, Lookup, Message, ReadDir, Reader, RenameRule, Status, Want};
use proptest::prelude::*;

/// One page: its names, its version, and whether it is the last.
fn page(w: &mut World, message: ReadDir<'_>, room: usize) -> Result<(Vec<Vec<u8>>, u64, bool), Status> {
    let reply = w.read(message, room)?;
    let Ok(Reply::Listing(listing)) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
    let names = listing.entries.iter().map(|entry: Entry<'_>| entry.name.0.to_vec()).collect();
    Ok((names, listing.dir.version, listing.end))
}

#[test]
fn page_that_holds_just_everything_says_that_it_is_the_last() {
    let mut w = World::new();
    for n in 0..4u8 {
        w.done(create(ROOT_DIR, &[b'a' + n; 93]));
    }
    // 88 bytes around the entries, 104 for each.
    let full = 88 + 4 * 104;
    assert_eq!(full, SMALL);
    let (names, _, end) = page(&mut w, read_dir(ROOT_DIR, b"", false), full).unwrap();
    assert_eq!((names.len(), end), (4, true));
    w.done(create(ROOT_DIR, b"z"));
    let (names, _, end) = page(&mut w, read_dir(ROOT_DIR, b"", false), full).unwrap();
    assert_eq!((names.len(), end), (4, false));
    let (names, _, end) = page(&mut w, read_dir(ROOT_DIR, &[b'd'; 96], false), full).unwrap();
    assert_eq!((names, end), (Vec::from([b"z".to_vec()]), true));
    assert_eq!(page(&mut w, read_dir(ROOT_DIR, &[0xFF; 255], false), full).unwrap().0.len(), 0);
}

#[test]
fn page_full_of_the_shortest_names_knows_of_one_more() {
    let mut w = World::new();
    // 12 bytes for each entry, and 8 bytes are left over.
    let most = u8::try_from((SMALL - 88) / 12).unwrap();
    for n in 0..most {
        w.done(create(ROOT_DIR, &[b'A' + n]));
    }
    assert!(page(&mut w, read_dir(ROOT_DIR, b"", false), SMALL).unwrap().2);
    w.done(create(ROOT_DIR, &[b'A' + most]));
    for forgetful in [false, true] {
        w.forgetful = forgetful;
        let (names, _, end) = page(&mut w, read_dir(ROOT_DIR, b"", false), SMALL).unwrap();
        assert_eq!((names.len(), end), (usize::from(most), false));
    }
}

#[test]
fn page_without_detail_has_no_locks_but_the_one_of_its_directory() {
    let mut w = World::new();
    w.file(b"f");
    assert_eq!(w.read_granting(read_dir(ROOT_DIR, b"", false), SMALL).unwrap().1, [ROOT_DIR]);
}

#[test]
fn two_names_of_one_file_on_a_page_share_one_lock() {
    let mut w = World::new();
    let f = w.file(b"f");
    w.done(link(f, ROOT_DIR, b"g"));
    let (reply, asked) = w.read_granting(read_dir(ROOT_DIR, b"", true), SMALL).unwrap();
    assert_eq!(asked, [ROOT_DIR, f]);
    let Ok(Reply::Listing(listing)) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
    let details: Vec<_> = listing.entries.iter().map(|entry: Entry<'_>| entry.detail.unwrap()).collect();
    assert_eq!(details.len(), 2);
    assert_eq!(details[0], details[1]);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# Reading MUST NOT change the access time.
#[test]
fn reading_leaves_no_trace() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let f = w.done(create(d, b"f"))[1].attr.object;
    w.done(write(f, 0, b"contents", false));
    let l = w.done(symlink(ROOT_DIR, b"l", b"d/f"))[1].attr.object;
    let objects = [ROOT_DIR, d, f, l];
    let before = objects.map(|object| w.attr(object).unwrap());
    w.disk.settle(&mut w.store);
    let (path, link) = ([Bytes8(b"d"), Bytes8(b"f")], [Bytes8(b"l")]);
    let lookup = |names| Message::from(Lookup { ask: ASK, start: ROOT_DIR, want: Want::Exclusive, names });
    let reads = [
        lookup(List::of(&path)),
        lookup(List::of(&link)),
        GetAttr { ask: ASK, object: f, want: Want::Exclusive }.into(),
        read_dir(ROOT_DIR, b"", true).into(),
        read(f, 0).into(),
        read(l, 0).into(),
    ];
    for message in reads {
        w.read(message, SMALL).unwrap();
        assert!(!w.store.has_writes(), "{message:?} wrote something");
    }
    assert_eq!(objects.map(|object| w.attr(object).unwrap()), before);
}

#[test]
fn pages_of_one_version_join_and_those_of_another_are_refused() {
    let mut w = World::new();
    for n in 0..90u8 {
        w.done(create(ROOT_DIR, &[b'n', n / 10 + b'0', n % 10 + b'0']));
    }
    let (first, version, _) = page(&mut w, read_dir(ROOT_DIR, b"", false), SMALL).unwrap();
    let after = first.last().unwrap();
    assert!(page(&mut w, ReadDir { version, ..read_dir(ROOT_DIR, after, false) }, SMALL).is_ok());
    w.done(mkdir(ROOT_DIR, b"zz"));
    for version in [version, version + 2] {
        let refused = page(&mut w, ReadDir { version, ..read_dir(ROOT_DIR, after, false) }, SMALL);
        assert_eq!(refused, Err(Status::VERSION_CHANGED));
    }
    assert!(page(&mut w, read_dir(ROOT_DIR, after, false), SMALL).is_ok(), "version 0 takes any");
}

/// What happens between two pages.
#[derive(Clone, Debug)]
enum Between {
    Make(u8),
    Remove(u8),
    Rename(u8, u8),
}

fn between() -> impl Strategy<Value = Between> {
    prop_oneof![
        any::<u8>().prop_map(Between::Make),
        any::<u8>().prop_map(Between::Remove),
        (any::<u8>(), any::<u8>()).prop_map(|(from, to)| Between::Rename(from, to)),
    ]
}

/// A name whose length depends on its number, so that pages end anywhere.
fn name(n: u8) -> Vec<u8> {
    let mut name = match n {
        0 => Vec::from([1, 1]),
        b'/' => Vec::from([b'.', 1]),
        n => Vec::from([n]),
    };
    name.resize(name.len() + usize::from(n % 7) * 20, b'-');
    name
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    //= wire-spec.md#11-5-caching-and-metadata
    //= type=test
    //# A READDIR page MUST begin with the first name above the cookie, in byte order, whatever happened to the directory.
    #[test]
    fn every_page_goes_on_right_behind_its_cookie_whatever_happened(
        present in proptest::collection::btree_set(any::<u8>(), 0..120),
        changes in proptest::collection::vec(proptest::collection::vec(between(), 0..4), 40),
        detail: bool,
        forgetful: bool,
    ) {
        let mut w = World::new();
        let mut model = BTreeMap::new();
        for n in &present {
            model.insert(name(*n), w.file(&name(*n)));
        }
        w.forgetful = forgetful;
        let mut stayed: BTreeSet<Vec<u8>> = model.keys().cloned().collect();
        let (mut seen, mut after) = (Vec::new(), Vec::new());
        for changes in changes.iter().cycle() {
            let (names, _, end) = page(&mut w, read_dir(ROOT_DIR, &after, detail), SMALL).unwrap();
            let above: Vec<_> = model.keys().filter(|name| **name > after).cloned().collect();
            prop_assert_eq!(&names[..], &above[..names.len()]);
            prop_assert_eq!(end, names.len() == above.len());
            prop_assert!(end || !names.is_empty(), "a page that is not the last goes on");
            after = names.last().cloned().unwrap_or(after);
            seen.extend(names);
            if end {
                break;
            }
            for change in changes {
                match change {
                    Between::Make(n) => if let Ok((_, effects)) = w.change(create(ROOT_DIR, &name(*n)).into()) {
                        model.insert(name(*n), effects[1].attr.object);
                    },
                    Between::Remove(n) => if w.change(unlink(ROOT_DIR, &name(*n)).into()).is_ok() {
                        stayed.remove(&name(*n));
                        model.remove(&name(*n));
                    },
                    Between::Rename(from, to) if from != to => {
                        let (old, new) = (name(*from), name(*to));
                        if w.change(rename((ROOT_DIR, &old), (ROOT_DIR, &new), RenameRule::Replace).into()).is_ok() {
                            stayed.remove(&old);
                            let object = model.remove(&old).unwrap();
                            model.insert(new, object);
                        }
                    }
                    Between::Rename(..) => {}
                }
            }
        }
        for name in stayed {
            prop_assert_eq!(seen.iter().filter(|other| **other == name).count(), 1);
        }
    }
}
