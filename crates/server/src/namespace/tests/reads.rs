//! Claims about LOOKUP, READDIR and GETATTR, and about the sizes of replies.

use super::super::Places;
use super::{ASK, LARGE, ROOT_DIR, Reply, SMALL, World, create, list_of, mkdir, rename, symlink, unlink};
use crate::store::Seen;
use alloc::vec;
use alloc::vec::Vec;
use alloc::{format, string::String};
use cistern_wire::{
    Bytes8, CacheGrant, Entry, Generation, GetAttr, Listing, Lookup, ObjectId, ObjectKind, ReadDir, Reader, RenameRule, Stated, Status,
    Walked, Want,
};

fn lookup<'a>(start: ObjectId, names: &'a [Bytes8<'a>]) -> Lookup<'a> {
    Lookup { ask: ASK, start, want: Want::Shared, names: list_of(names) }
}

pub(super) fn read_dir(dir: ObjectId, after: &[u8], detail: bool) -> ReadDir<'_> {
    ReadDir { ask: ASK, dir, after: Bytes8(after), version: 0, detail, want: Want::Shared }
}

fn walk(w: &mut World, start: ObjectId, names: &[&[u8]], room: usize) -> (Status, Vec<ObjectId>, Vec<u8>) {
    let names: Vec<_> = names.iter().map(|name| Bytes8(name)).collect();
    let (reply, asked) = w.read_granting(lookup(start, &names), room).unwrap();
    let Ok(Reply::Walked(Walked { status, steps, target })) = Reader::new(&reply).get() else { panic!("not a WALKED reply") };
    let objects: Vec<_> = steps.iter().map(|Stated { attr, .. }| attr.object).collect();
    assert_eq!(asked, objects, "one lock for each object shown");
    (status, objects, target.0.to_vec())
}

/// All entries of a directory, page by page.
pub(super) fn list(w: &mut World, dir: ObjectId) -> Vec<(Vec<u8>, ObjectId)> {
    let mut all: Vec<(Vec<u8>, ObjectId)> = Vec::new();
    loop {
        let after = all.last().map(|(name, _)| name.clone()).unwrap_or_default();
        let reply = w.read(read_dir(dir, &after, false), SMALL).expect("it can be listed");
        let Ok(Reply::Listing(Listing { end, entries, .. })) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
        all.extend(entries.iter().map(|entry: Entry<'_>| (entry.name.0.to_vec(), entry.object)));
        if end {
            return all;
        }
    }
}

#[test]
fn lookup_walks_a_whole_path() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let e = w.dir(d, b"e");
    let f = w.done(create(e, b"f"))[1].attr.object;
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b"e", b"f"], SMALL), (Status::OK, vec![ROOT_DIR, d, e, f], vec![]));
    assert_eq!(walk(&mut w, d, &[b"e"], SMALL), (Status::OK, vec![d, e], vec![]));
    assert_eq!(walk(&mut w, f, &[], SMALL), (Status::OK, vec![f], vec![]));
}

#[test]
fn lookup_shows_how_far_it_went_and_why_it_stopped() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let f = w.file(b"f");
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b"none", b"x"], SMALL), (Status::ENOENT, vec![ROOT_DIR, d], vec![]));
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"f", b"x"], SMALL), (Status::ENOTDIR, vec![ROOT_DIR, f], vec![]));
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b".."], SMALL), (Status::EINVAL, vec![ROOT_DIR, d], vec![]));
    assert_eq!(w.read(lookup(ObjectId(99), &[]), SMALL), Err(Status::ESTALE));
    assert_eq!(w.read(lookup(f, &[Bytes8(b"x")]), SMALL), Err(Status::ENOTDIR));
}

#[test]
fn lookup_stops_at_a_symbolic_link_and_gives_its_target() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let l = w.done(symlink(d, b"l", b"../elsewhere"))[1].attr.object;
    let expected = (Status::OK, vec![ROOT_DIR, d, l], b"../elsewhere".to_vec());
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b"l"], SMALL), expected);
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b"l", b"x"], SMALL), expected);
    assert_eq!(walk(&mut w, l, &[b"x"], SMALL), (Status::OK, vec![l], b"../elsewhere".to_vec()));
    w.forgetful = true;
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"d", b"l"], SMALL), expected);
    assert!(w.waits > 0);
}

#[test]
fn lookup_that_fills_its_datagram_goes_on_in_the_next() {
    let mut w = World::new();
    let mut at = ROOT_DIR;
    let mut path = vec![at];
    for _ in 0..20 {
        at = w.dir(at, b"d");
        path.push(at);
    }
    let names = [&b"d"[..]; 20];
    let (status, first, _) = walk(&mut w, ROOT_DIR, &names, SMALL);
    assert_eq!((status, first.len()), (Status::OK, (SMALL - 7) / 84));
    let (_, rest, _) = walk(&mut w, *first.last().unwrap(), &names[first.len() - 1..], LARGE);
    assert_eq!([&first[..], &rest[1..]].concat(), path);
}

#[test]
fn target_that_does_not_fit_is_left_to_read() {
    let mut w = World::new();
    let target = [b't'; 400];
    let l = w.done(symlink(ROOT_DIR, b"l", &target))[1].attr.object;
    assert_eq!(walk(&mut w, ROOT_DIR, &[b"l"], SMALL), (Status::OK, vec![ROOT_DIR, l], vec![]));
    assert_eq!(walk(&mut w, l, &[], SMALL), (Status::OK, vec![l], target.to_vec()));
    assert_eq!(w.contents(l), target);
    let reply = w.read(super::read(l, 0), SMALL).unwrap();
    assert!(matches!(Reader::new(&reply).get(), Ok(Reply::Data(data)) if data.data.0 == target), "one datagram has it");
}

#[test]
fn listing_goes_by_name_and_every_page_fits() {
    let mut w = World::new();
    let names: Vec<String> = (0..300).map(|n| format!("name-{n:04}")).collect();
    for name in names.iter().rev() {
        w.done(create(ROOT_DIR, name.as_bytes()));
    }
    let listed: Vec<_> = list(&mut w, ROOT_DIR).into_iter().map(|(name, _)| name).collect();
    assert!(listed.iter().map(|name| &name[..]).eq(names.iter().map(|name| name.as_bytes())));
    w.forgetful = true;
    assert_eq!(list(&mut w, ROOT_DIR).len(), 300);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A READ, READDIR, GETXATTR or LISTXATTR that names a version other than the current one MUST fail with VERSION_CHANGED.
#[test]
fn names_that_stay_are_seen_once_whatever_changes_meanwhile() {
    let mut w = World::new();
    for n in 0..100 {
        w.done(create(ROOT_DIR, format!("n{n:03}").as_bytes()));
    }
    let reply = w.read(read_dir(ROOT_DIR, b"", false), SMALL).unwrap();
    let Ok(Reply::Listing(page)) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
    let last = page.entries.iter().last().unwrap();
    w.done(unlink(ROOT_DIR, last.name.0));
    w.done(create(ROOT_DIR, b"n000a"));
    let reply = w.read(read_dir(ROOT_DIR, last.name.0, false), LARGE).unwrap();
    let Ok(Reply::Listing(rest)) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
    assert_eq!((page.entries.len() + rest.entries.len(), page.end, rest.end), (100, false, true));
    let version = page.dir.version;
    assert_eq!(w.read(ReadDir { version, ..read_dir(ROOT_DIR, last.name.0, false) }, SMALL), Err(Status::VERSION_CHANGED));
}

#[test]
fn listing_with_detail_has_attributes_and_locks_of_every_entry() {
    let mut w = World::new();
    let d = w.done(mkdir(ROOT_DIR, b"d"))[1].attr;
    let f = w.done(create(ROOT_DIR, b"f"))[1].attr;
    w.forgetful = true;
    let (reply, asked) = w.read_granting(read_dir(ROOT_DIR, b"", true), SMALL).unwrap();
    assert_eq!(asked, [ROOT_DIR, d.object, f.object]);
    let Ok(Reply::Listing(page)) = Reader::new(&reply).get() else { panic!("not a LISTING reply") };
    assert!(page.end && page.dir == w.attr(ROOT_DIR).unwrap());
    let details: Vec<_> = page.entries.iter().map(|entry: Entry<'_>| entry.detail.unwrap()).collect();
    assert_eq!(details.iter().map(|detail| detail.attr).collect::<Vec<_>>(), [d, f]);
    assert_eq!(details[1].grant, CacheGrant { mode: Want::Shared, generation: Generation(f.object.0) });
}

#[test]
fn entry_of_the_longest_name_fits_the_smallest_datagram() {
    let mut w = World::new();
    let name = [b'n'; 255];
    w.done(create(ROOT_DIR, &name));
    w.done(create(ROOT_DIR, b"one more that does not"));
    let reply = w.read(read_dir(ROOT_DIR, b"", true), SMALL).unwrap();
    assert!(matches!(Reader::new(&reply).get(), Ok(Reply::Listing(page)) if page.entries.len() == 1 && !page.end));
    let reply = w.read(read_dir(ROOT_DIR, &name, true), SMALL).unwrap();
    assert!(matches!(Reader::new(&reply).get(), Ok(Reply::Listing(page)) if page.entries.len() == 1 && page.end));
}

#[test]
fn empty_directory_is_one_empty_page() {
    let mut w = World::new();
    let reply = w.read(read_dir(ROOT_DIR, b"", false), SMALL).unwrap();
    assert!(matches!(Reader::new(&reply).get(), Ok(Reply::Listing(page)) if page.entries.is_empty() && page.end));
    let f = w.file(b"f");
    assert_eq!(w.read(read_dir(f, b"", false), SMALL), Err(Status::ENOTDIR));
    assert_eq!(w.read(read_dir(ObjectId(99), b"", false), SMALL), Err(Status::ESTALE));
}

#[test]
fn stated_carries_the_lock_that_was_granted() {
    let mut w = World::new();
    let (reply, asked) = w.read_granting(GetAttr { ask: ASK, object: ROOT_DIR, want: Want::Exclusive }, SMALL).unwrap();
    assert_eq!(asked, [ROOT_DIR]);
    let Ok(Reply::Stated(stated)) = Reader::new(&reply).get() else { panic!("not a STATED reply") };
    assert_eq!((stated.attr.kind, stated.grant.mode), (ObjectKind::Directory, Want::Exclusive));
    assert_eq!(w.read(GetAttr { ask: ASK, object: ObjectId(99), want: Want::Shared }, SMALL), Err(Status::ESTALE));
}

#[test]
fn sizes_that_pages_are_cut_by_are_those_of_the_wire() {
    let mut w = World::new();
    // A page that is full to the byte: four names of 89 bytes and one that fills the rest.
    let around = 1 + 75 + 9 + 1 + 2;
    for n in 0..4u8 {
        w.done(create(ROOT_DIR, &[b'a' + n; 89]));
    }
    let left = SMALL - around - 4 * (11 + 89);
    w.done(create(ROOT_DIR, &vec![b'z'; left - 11]));
    assert_eq!(w.read(read_dir(ROOT_DIR, b"", false), SMALL).unwrap().len(), SMALL);
}

#[test]
fn place_is_the_path_by_which_an_object_was_named_last() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"jobs");
    let f = w.done(create(d, b"nightly"))[1].attr.object;
    let place = |w: &mut World, max| w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), f, max);
    assert_eq!(place(&mut w, 255), Ok(b"/jobs/nightly".to_vec()));
    assert_eq!(place(&mut w, 10), Ok(b"...nightly".to_vec()));
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), ROOT_DIR, 9), Ok(b"/".to_vec()));
    w.done(rename((ROOT_DIR, b"jobs"), (ROOT_DIR, b"tasks"), RenameRule::Replace));
    assert_eq!(place(&mut w, 255), Ok(b"/tasks/nightly".to_vec()));
    w.done(super::link(f, ROOT_DIR, b"n"));
    assert_eq!(place(&mut w, 255), Ok(b"/n".to_vec()));
    w.done(unlink(ROOT_DIR, b"n"));
    assert_eq!(place(&mut w, 255), Ok(vec![]), "no name is known by which it can be found");
    w.done(unlink(d, b"nightly"));
    assert_eq!(place(&mut w, 255), Ok(vec![]));
}
