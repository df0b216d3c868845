//! Claims about extended attributes: rules, bounds, pages, and what a change of them changes.

use super::{ASK, LARGE, ROOT_DIR, RenameRule, SMALL, World, link, rename, rmdir, symlink, unlink};
use crate::store::Seen;
use crate::store::{Counter, Key};
use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::{XATTR_NAME_MAX, XATTR_VALUE_MAX, XATTRS_MAX};
use cistern_wire::{Bytes8, Bytes16, GetXattr, ListXattr, ObjectId, Reader, RemoveXattr, Reply, SetXattr, Status, Terms, XattrRule};

pub(super) fn set_xattr<'a>(object: ObjectId, name: &'a [u8], value: &'a [u8]) -> SetXattr<'a> {
    SetXattr { ask: ASK, object, name: Bytes8(name), rule: XattrRule::Any, stage: 0, data: Bytes16(value), terms: Terms::NONE }
}

pub(super) fn remove_xattr(object: ObjectId, name: &[u8]) -> RemoveXattr<'_> {
    RemoveXattr { ask: ASK, object, name: Bytes8(name), terms: Terms::NONE }
}

/// The value of an attribute, page by page.
pub(super) fn get(w: &mut World, object: ObjectId, name: &[u8], version: u64) -> Result<Vec<u8>, Status> {
    get_in(w, object, name, version, LARGE)
}

fn get_in(w: &mut World, object: ObjectId, name: &[u8], version: u64, room: usize) -> Result<Vec<u8>, Status> {
    let mut all = Vec::new();
    loop {
        let offset = u32::try_from(all.len()).unwrap();
        let reply = w.read(GetXattr { ask: ASK, object, name: Bytes8(name), offset, length: u32::MAX, version }, room)?;
        let Ok(Reply::Xattr(page)) = Reader::new(&reply).get() else { panic!("not an XATTR reply") };
        assert_eq!((page.object, page.offset), (object, offset));
        all.extend_from_slice(page.data.0);
        if all.len() == page.total as usize {
            return Ok(all);
        }
        assert!(!page.data.0.is_empty(), "a page of nothing");
    }
}

/// All names, page by page.
pub(super) fn names(w: &mut World, object: ObjectId, room: usize) -> Result<Vec<Vec<u8>>, Status> {
    let mut all: Vec<Vec<u8>> = Vec::new();
    loop {
        let after = all.last().cloned().unwrap_or_default();
        let reply = w.read(ListXattr { ask: ASK, object, after: Bytes8(&after), version: 0 }, room)?;
        let Ok(Reply::XattrNames(page)) = Reader::new(&reply).get() else { panic!("not an XATTR_NAMES reply") };
        all.extend(page.names.iter().map(|name| name.0.to_vec()));
        if page.end {
            return Ok(all);
        }
        assert!(!page.names.is_empty(), "a page of nothing");
    }
}

#[test]
fn attributes_are_set_read_listed_and_taken_away_on_every_kind_of_object() {
    for forgetful in [false, true] {
        let mut w = World::new();
        w.forgetful = forgetful;
        let (file, dir) = (w.file(b"f"), w.dir(ROOT_DIR, b"d"));
        let link = w.done(symlink(ROOT_DIR, b"l", b"f"))[1].attr.object;
        for object in [file, dir, link, ROOT_DIR] {
            let before = w.attr(object).unwrap();
            let effects = w.done(set_xattr(object, b"user.b", b"two"));
            let after = effects[0].attr;
            assert_eq!((effects.len(), effects[0].before, after.version), (1, before.version, before.version + 1));
            assert!(after.ctime_ns > before.ctime_ns && after.mtime_ns == before.mtime_ns && after.atime_ns == before.atime_ns);
            w.done(set_xattr(object, b"user.a", b""));
            assert_eq!(get(&mut w, object, b"user.b", after.version + 1), Ok(b"two".to_vec()));
            assert_eq!(get(&mut w, object, b"user.a", 0), Ok(vec![]), "an empty value is a value");
            assert_eq!(names(&mut w, object, SMALL), Ok(vec![b"user.a".to_vec(), b"user.b".to_vec()]));
            w.done(remove_xattr(object, b"user.b"));
            assert_eq!(get(&mut w, object, b"user.b", 0), Err(Status::ENODATA));
            assert_eq!(w.fails(remove_xattr(object, b"user.b")), Status::ENODATA);
            w.done(remove_xattr(object, b"user.a"));
            assert_eq!(names(&mut w, object, SMALL), Ok(vec![]));
            w.disk.settle(&mut w.store);
            assert!(!w.disk.values.contains_key(&Key::Xattrs(object)), "nothing is left");
        }
    }
}

#[test]
fn rules_names_and_values_out_of_bounds_are_errors() {
    let mut w = World::new();
    let file = w.file(b"f");
    let with = |rule| SetXattr { rule, ..set_xattr(file, b"a", b"x") };
    assert_eq!(w.fails(with(XattrRule::Replace)), Status::ENODATA);
    w.done(with(XattrRule::Create));
    assert_eq!(w.fails(with(XattrRule::Create)), Status::EEXIST);
    w.done(with(XattrRule::Replace));
    let longest = [b'n'; XATTR_NAME_MAX];
    for (name, status) in [(&b""[..], Status::ERANGE), (b"a\0b", Status::EINVAL)] {
        assert_eq!(w.fails(set_xattr(file, name, b"")), status);
        assert_eq!(w.fails(remove_xattr(file, name)), status);
        assert_eq!(get(&mut w, file, name, 0), Err(status));
    }
    w.done(set_xattr(file, &longest, b""));
    for object in [ObjectId(0), ObjectId(99), ObjectId::made_by(0)] {
        assert_eq!(w.fails(set_xattr(object, b"a", b"")), Status::ESTALE);
        assert_eq!(w.fails(remove_xattr(object, b"a")), Status::ESTALE);
        assert_eq!((get(&mut w, object, b"a", 0), names(&mut w, object, SMALL)), (Err(Status::ESTALE), Err(Status::ESTALE)));
    }
    let staged = SetXattr { stage: 7, ..set_xattr(file, b"b", b"") };
    let (most, more) = (vec![7; XATTR_VALUE_MAX], vec![7; XATTR_VALUE_MAX + 1]);
    assert_eq!(w.change_with(staged.into(), &[&more]).err(), Some(Status::E2BIG));
    assert_eq!(w.change_with(staged.into(), &[&most]).err(), Some(Status::ENOSPC), "with the byte that is there");
    w.done(remove_xattr(file, b"a"));
    w.change_with(staged.into(), &[&most]).unwrap();
    assert_eq!(get_in(&mut w, file, b"b", 0, SMALL), Ok(most.clone()), "in many pages");
    let both = SetXattr { data: Bytes16(b"x"), ..staged };
    assert_eq!(w.change_with(both.into(), &[&most]).err(), Some(Status::EINVAL), "from a stage or from the message, not both");
    assert_eq!(w.store.view(&Seen::default()).counter(Counter::Bytes), Ok(most.len() as u64));
}

#[test]
fn an_object_has_at_most_128_attributes_and_they_are_listed_in_pages() {
    let mut w = World::new();
    let file = w.file(b"f");
    let all: Vec<Vec<u8>> = (0..XATTRS_MAX).map(|n| format!("user.{n:0200}").into_bytes()).collect();
    for name in &all {
        w.done(set_xattr(file, name, b"v"));
    }
    assert_eq!(w.fails(set_xattr(file, b"user.more", b"v")), Status::ENOSPC);
    w.done(set_xattr(file, &all[3], b"other"));
    assert_eq!((names(&mut w, file, SMALL), names(&mut w, file, LARGE)), (Ok(all.clone()), Ok(all)));
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A READ, READDIR, GETXATTR or LISTXATTR that names a version other than the current one MUST fail with VERSION_CHANGED.
#[test]
fn pages_of_attributes_are_of_the_version_asked_for() {
    let mut w = World::new();
    let file = w.file(b"f");
    w.done(set_xattr(file, b"a", b"x"));
    let version = w.attr(file).unwrap().version;
    assert_eq!(get(&mut w, file, b"a", version), Ok(b"x".to_vec()));
    let stale = ListXattr { ask: ASK, object: file, after: Bytes8(b""), version: version - 1 };
    assert_eq!(w.read(stale, SMALL), Err(Status::VERSION_CHANGED));
    assert_eq!(get(&mut w, file, b"a", version + 1), Err(Status::VERSION_CHANGED));
}

#[test]
fn attributes_belong_to_the_object_and_go_with_its_last_name() {
    let mut w = World::new();
    let (file, dir) = (w.file(b"f"), w.dir(ROOT_DIR, b"d"));
    w.done(set_xattr(file, b"a", b"12345"));
    w.done(set_xattr(dir, b"a", b"123"));
    w.done(link(file, ROOT_DIR, b"g"));
    w.done(rename((ROOT_DIR, b"f"), (dir, b"f"), RenameRule::Replace));
    w.done(unlink(dir, b"f"));
    w.restart();
    assert_eq!(get(&mut w, file, b"a", 0), Ok(b"12345".to_vec()));
    assert_eq!(w.store.view(&Seen::default()).counter(Counter::Bytes), Ok(8));
    w.forgetful = true;
    w.file(b"h");
    w.done(rename((ROOT_DIR, b"h"), (ROOT_DIR, b"g"), RenameRule::Replace));
    w.done(rmdir(ROOT_DIR, b"d"));
    w.disk.settle(&mut w.store);
    assert!(!w.disk.values.keys().any(|key| matches!(key, Key::Xattrs(_))));
    assert_eq!(w.disk.counter(Counter::Bytes), 0);
}

#[test]
fn a_record_that_says_otherwise_than_its_object_is_a_damaged_store() {
    let mut w = World::new();
    let file = w.file(b"f");
    w.done(set_xattr(file, b"a", b"x"));
    w.disk.settle(&mut w.store);
    w.disk.values.remove(&Key::Xattrs(file));
    w.store.forget_everything();
    assert_eq!(get(&mut w, file, b"a", 0), Err(Status::EIO));
    assert_eq!(w.fails(unlink(ROOT_DIR, b"f")), Status::EIO);
}
