//! Every field of every request about names and contents at its limits and past them: what it is answered, from the wire up.

use super::world::{Peer, ROOT, World};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::{BATCH_MAX, CONTENT_MAX, EXPECT_MAX, HELD_MAX, NAME_MAX, SYMLINK_MAX, XATTR_NAME_MAX};
use cistern_wire::{
    Ask, Batch, Bytes8, Bytes16, Create, Expect, Generation, GetAttr, GetXattr, Held, Item, Link, List, ListXattr, Lock, LockWait, Lookup,
    Message, Mkdir, Mode, ObjectId, Read, ReadDir, RemoveXattr, Rename, RenameRule, Reply, Rmdir, SetAttr, SetMask, SetXattr, Stage,
    Status, Symlink, Terms, Unlink, Want, Write, XattrRule,
};

const NOTHING: ObjectId = ObjectId(0);
const GONE: ObjectId = ObjectId(99);
const NONE: Terms<'static> = Terms::NONE;

/// The objects that the cases are about.
#[derive(Clone, Copy)]
struct Objects {
    file: ObjectId,
    dir: ObjectId,
    link: ObjectId,
}

/// Sends a request; the status of its reply: OK if it was done.
fn answer(world: &mut World, peer: &mut Peer, request: impl FnOnce(Ask) -> Message<'static>) -> Status {
    let ask = peer.ask_only();
    world.send(peer, &[request(ask)]);
    let got = world.got_one(peer);
    match got.reply() {
        Reply::Failed(failed) => failed.status,
        Reply::BatchFailed(failed) => failed.status,
        Reply::Walked(walked) => walked.status,
        _ => Status::OK,
    }
}

/// Sends a request that must be done.
fn make(world: &mut World, peer: &mut Peer, request: impl FnOnce(Ask) -> Message<'static>) -> ObjectId {
    let ask = peer.ask_only();
    world.send(peer, &[request(ask)]);
    let got = world.got_one(peer);
    let Reply::Changed(changed) = got.reply() else { panic!("{got:?}") };
    changed.effects.iter().find(|effect| effect.before == 0).expect("something is made").attr.object
}

/// Bytes that live as long as the tests.
fn bytes(len: usize) -> &'static [u8] {
    vec![b'n'; len].leak()
}

fn lookup(ask: Ask, start: ObjectId, names: &'static [Bytes8<'static>]) -> Message<'static> {
    Lookup { ask, start, want: Want::Nothing, names: List::of(names) }.into()
}

fn create(ask: Ask, dir: ObjectId, name: &'static [u8]) -> Create<'static> {
    Create { ask, dir, name: Bytes8(name), exclusive: true, ephemeral: false, mode: 0o644, uid: 0, gid: 0, terms: NONE }
}

fn mkdir(ask: Ask, dir: ObjectId, name: &'static [u8]) -> Mkdir<'static> {
    Mkdir { ask, dir, name: Bytes8(name), mode: 0o755, uid: 0, gid: 0, terms: NONE }
}

fn symlink(ask: Ask, dir: ObjectId, name: &'static [u8], target: &'static [u8]) -> Symlink<'static> {
    Symlink { ask, dir, name: Bytes8(name), target: Bytes16(target), uid: 0, gid: 0, terms: NONE }
}

fn write(ask: Ask, object: ObjectId, offset: u64, data: &'static [u8]) -> Write<'static> {
    Write { ask, object, offset, truncate: false, stage: 0, data: Bytes16(data), terms: NONE }
}

fn set(ask: Ask, object: ObjectId, bits: u8) -> SetAttr<'static> {
    SetAttr { ask, object, mask: SetMask { bits }, mode: 0, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: NONE }
}

fn attribute(ask: Ask, object: ObjectId, name: &'static [u8]) -> SetXattr<'static> {
    SetXattr { ask, object, name: Bytes8(name), rule: XattrRule::Any, stage: 0, data: Bytes16(b""), terms: NONE }
}

fn rename(ask: Ask, from: (ObjectId, &'static [u8]), to: (ObjectId, &'static [u8])) -> Rename<'static> {
    let (from_dir, from_name, to_dir, to_name) = (from.0, Bytes8(from.1), to.0, Bytes8(to.1));
    Rename { ask, from_dir, from_name, to_dir, to_name, rule: RenameRule::Replace, force: false, terms: NONE }
}

fn start() -> (World, Peer, Objects) {
    let mut world = World::new();
    let mut peer = world.open(1);
    let file = make(&mut world, &mut peer, |ask| create(ask, ROOT, b"f").into());
    let dir = make(&mut world, &mut peer, |ask| mkdir(ask, ROOT, b"d").into());
    let link = make(&mut world, &mut peer, |ask| symlink(ask, ROOT, b"l", b"f").into());
    make(&mut world, &mut peer, |ask| create(ask, dir, b"x").into());
    (world, peer, Objects { file, dir, link })
}

/// A request under any nonce, and what it is answered.
type Case = (&'static str, alloc::boxed::Box<dyn Fn(Ask) -> Message<'static>>, Status);

macro_rules! cases {
    ($($what:literal: |$ask:ident| $request:expr => $status:ident;)*) => {
        vec![$(($what, alloc::boxed::Box::new(move |$ask: Ask| Message::from($request)), Status::$status)),*]
    };
}

fn check(cases: Vec<Case>) {
    for (what, request, expected) in cases {
        let (mut world, mut peer, _) = start();
        assert_eq!(answer(&mut world, &mut peer, request), expected, "{what}");
        assert_eq!(
            answer(&mut world, &mut peer, |ask| GetAttr { ask, object: ROOT, want: Want::Nothing }.into()),
            Status::OK,
            "after {what}"
        );
    }
}

#[test]
fn objects_that_are_not_there_or_of_another_kind_are_told() {
    let (_, _, Objects { file, dir, link }) = start();
    check(cases! {
        "getattr of nothing": |ask| GetAttr { ask, object: NOTHING, want: Want::Shared } => ESTALE;
        "getattr of what is gone": |ask| GetAttr { ask, object: GONE, want: Want::Exclusive } => ESTALE;
        "lookup in nothing": |ask| lookup(ask, NOTHING, &[]) => ESTALE;
        "lookup in a file": |ask| lookup(ask, file, &[Bytes8(b"a")]) => ENOTDIR;
        "lookup of no name in a file": |ask| lookup(ask, file, &[]) => OK;
        "lookup through a file": |ask| lookup(ask, ROOT, &[Bytes8(b"f"), Bytes8(b"a")]) => ENOTDIR;
        "lookup of what is missing": |ask| lookup(ask, ROOT, &[Bytes8(b"d"), Bytes8(b"a")]) => ENOENT;
        "readdir of a file": |ask| ReadDir { ask, dir: file, after: Bytes8(b""), version: 0, detail: true, want: Want::Shared } => ENOTDIR;
        "readdir of nothing": |ask| ReadDir { ask, dir: GONE, after: Bytes8(b""), version: 0, detail: true, want: Want::Shared } => ESTALE;
        "read of a directory": |ask| Read { ask, object: dir, offset: 0, length: 1, version: 0, want: Want::Nothing } => EISDIR;
        "read of nothing": |ask| Read { ask, object: NOTHING, offset: 0, length: 1, version: 0, want: Want::Nothing } => ESTALE;
        "write to a directory": |ask| write(ask, dir, 0, b"x") => EISDIR;
        "write to a link": |ask| write(ask, link, 0, b"x") => EINVAL;
        "write to nothing": |ask| write(ask, GONE, 0, b"x") => ESTALE;
        "write to what no item makes": |ask| write(ask, ObjectId::made_by(0), 0, b"x") => ESTALE;
        "write to the last number": |ask| write(ask, ObjectId(u64::MAX), 0, b"x") => ESTALE;
        "size of a directory": |ask| set(ask, dir, SetMask::SIZE) => EISDIR;
        "size of a link": |ask| set(ask, link, SetMask::SIZE) => EINVAL;
        "setattr of nothing": |ask| set(ask, GONE, 0) => ESTALE;
        "create in a file": |ask| create(ask, file, b"a") => ENOTDIR;
        "create in nothing": |ask| create(ask, GONE, b"a") => ESTALE;
        "mkdir in a link": |ask| mkdir(ask, link, b"a") => ENOTDIR;
        "symlink in nothing": |ask| symlink(ask, NOTHING, b"a", b"t") => ESTALE;
        "link of a directory": |ask| Link { ask, object: dir, dir: ROOT, name: Bytes8(b"a"), terms: NONE } => EPERM;
        "link of nothing": |ask| Link { ask, object: GONE, dir: ROOT, name: Bytes8(b"a"), terms: NONE } => ESTALE;
        "link into a file": |ask| Link { ask, object: file, dir: file, name: Bytes8(b"a"), terms: NONE } => ENOTDIR;
        "unlink of a directory": |ask| Unlink { ask, dir: ROOT, name: Bytes8(b"d"), force: true, terms: NONE } => EISDIR;
        "unlink in a file": |ask| Unlink { ask, dir: file, name: Bytes8(b"a"), force: false, terms: NONE } => ENOTDIR;
        "rmdir of a file": |ask| Rmdir { ask, dir: ROOT, name: Bytes8(b"f"), terms: NONE } => ENOTDIR;
        "rmdir of a full directory": |ask| Rmdir { ask, dir: ROOT, name: Bytes8(b"d"), terms: NONE } => ENOTEMPTY;
        "rename from a file": |ask| rename(ask, (file, b"a"), (ROOT, b"a")) => ENOTDIR;
        "rename into nothing": |ask| rename(ask, (ROOT, b"f"), (GONE, b"a")) => ESTALE;
        "rename into itself": |ask| rename(ask, (ROOT, b"d"), (dir, b"a")) => EINVAL;
        "lock of nothing": |ask| Lock { ask, object: GONE, mode: Mode::Shared, wait: LockWait::Try } => ESTALE;
        "attribute of nothing": |ask| attribute(ask, GONE, b"a") => ESTALE;
        "attribute that is missing": |ask| GetXattr { ask, object: file, name: Bytes8(b"a"), offset: 0, length: 1, version: 0 } => ENODATA;
        "removal of what is missing": |ask| RemoveXattr { ask, object: file, name: Bytes8(b"a"), terms: NONE } => ENODATA;
        "names of nothing": |ask| ListXattr { ask, object: NOTHING, after: Bytes8(b""), version: 0 } => ESTALE;
    });
}

#[test]
fn names_that_cannot_be_are_refused_wherever_they_stand() {
    let (_, _, Objects { file, .. }) = start();
    for name in [&b""[..], b".", b"..", b"a/b", b"/", b"a\0", b"\0"] {
        check(cases! {
            "create": |ask| create(ask, ROOT, name) => EINVAL;
            "mkdir": |ask| mkdir(ask, ROOT, name) => EINVAL;
            "symlink": |ask| symlink(ask, ROOT, name, b"t") => EINVAL;
            "link": |ask| Link { ask, object: file, dir: ROOT, name: Bytes8(name), terms: NONE } => EINVAL;
            "unlink": |ask| Unlink { ask, dir: ROOT, name: Bytes8(name), force: false, terms: NONE } => EINVAL;
            "rmdir": |ask| Rmdir { ask, dir: ROOT, name: Bytes8(name), terms: NONE } => EINVAL;
            "rename from": |ask| rename(ask, (ROOT, name), (ROOT, b"a")) => EINVAL;
            "rename to": |ask| rename(ask, (ROOT, b"f"), (ROOT, name)) => EINVAL;
            "lookup": |ask| lookup(ask, ROOT, vec![Bytes8(name)].leak()) => EINVAL;
        });
    }
    // One byte of length says at most 255: there is no longer name on the wire.
    check(cases! {
        "the longest name": |ask| create(ask, ROOT, bytes(NAME_MAX)) => OK;
        "the longest target": |ask| symlink(ask, ROOT, b"s", bytes(SYMLINK_MAX)) => OK;
        "a longer target": |ask| symlink(ask, ROOT, b"s", bytes(SYMLINK_MAX + 1)) => ENAMETOOLONG;
        "an empty target": |ask| symlink(ask, ROOT, b"s", b"") => EINVAL;
        "a target with NUL": |ask| symlink(ask, ROOT, b"s", b"a\0b") => EINVAL;
        "the longest attribute": |ask| attribute(ask, file, bytes(XATTR_NAME_MAX)) => OK;
        "an attribute without a name": |ask| attribute(ask, file, b"") => ERANGE;
        "an attribute with NUL": |ask| attribute(ask, file, b"a\0") => EINVAL;
        "an attribute with a slash": |ask| attribute(ask, file, b"a/b") => OK;
        "reading one without a name": |ask| GetXattr { ask, object: file, name: Bytes8(b""), offset: 0, length: 1, version: 0 } => ERANGE;
        "removing one without a name": |ask| RemoveXattr { ask, object: file, name: Bytes8(b""), terms: NONE } => ERANGE;
    });
}

#[test]
fn numbers_at_their_limits_are_taken_and_past_them_refused() {
    let (_, _, Objects { file, .. }) = start();
    let most = CONTENT_MAX as u64;
    let whole = u32::try_from(CONTENT_MAX).unwrap();
    check(cases! {
        "all permission bits": |ask| SetAttr { mode: 0o7777, ..set(ask, file, SetMask::MODE) } => OK;
        "one more": |ask| SetAttr { mode: 0o10000, ..set(ask, file, SetMask::MODE) } => EINVAL;
        "a mode that is not set": |ask| SetAttr { mode: u16::MAX, ..set(ask, file, SetMask::UID) } => OK;
        "every bit of the mask": |ask| set(ask, file, 0xFF) => OK;
        "a mode of a new file": |ask| Create { mode: 0o10000, ..create(ask, ROOT, b"a") } => EINVAL;
        "a mode of a new directory": |ask| Mkdir { mode: u16::MAX, ..mkdir(ask, ROOT, b"a") } => EINVAL;
        "the largest owner": |ask| Create { uid: u32::MAX, gid: u32::MAX, ..create(ask, ROOT, b"a") } => OK;
        "the largest size": |ask| SetAttr { size: most, ..set(ask, file, SetMask::SIZE) } => OK;
        "one byte more": |ask| SetAttr { size: most + 1, ..set(ask, file, SetMask::SIZE) } => EFBIG;
        "an immense size": |ask| SetAttr { size: u64::MAX, ..set(ask, file, SetMask::SIZE) } => EFBIG;
        "times of any value": |ask| SetAttr { atime_ns: i64::MIN, mtime_ns: i64::MAX, ..set(ask, file, SetMask::ATIME | SetMask::MTIME) } => OK;
        "the last byte": |ask| write(ask, file, most - 1, b"x") => OK;
        "the byte after it": |ask| write(ask, file, most, b"x") => EFBIG;
        "no byte there": |ask| write(ask, file, most, b"") => OK;
        "no byte beyond": |ask| write(ask, file, most + 1, b"") => EFBIG;
        "an offset that overflows": |ask| write(ask, file, u64::MAX, b"x") => EFBIG;
        "bytes beside a stage": |ask| Write { stage: 1, ..write(ask, file, 0, b"x") } => NOT_STAGED;
        "a stage that is not there": |ask| Write { stage: u64::MAX, ..write(ask, file, 0, b"") } => NOT_STAGED;
        "a value from no stage": |ask| SetXattr { stage: 9, ..attribute(ask, file, b"a") } => NOT_STAGED;
        "reading far beyond": |ask| Read { ask, object: file, offset: u64::MAX, length: u32::MAX, version: 0, want: Want::Shared } => OK;
        "reading another version": |ask| Read { ask, object: file, offset: 0, length: 0, version: u64::MAX, want: Want::Shared } => VERSION_CHANGED;
        "listing another version": |ask| ReadDir { ask, dir: ROOT, after: Bytes8(b"\xFF"), version: 1, detail: false, want: Want::Nothing } => VERSION_CHANGED;
        "attributes of another version": |ask| ListXattr { ask, object: file, after: Bytes8(b""), version: 7 } => VERSION_CHANGED;
        "stage 0": |ask| Stage { ask, stage: 0, total: 1, offset: 0, data: Bytes16(b"x") } => EINVAL;
        "a piece of nothing": |ask| Stage { ask, stage: 1, total: 1, offset: 0, data: Bytes16(b"") } => EINVAL;
        "a piece past the end": |ask| Stage { ask, stage: 1, total: 1, offset: 1, data: Bytes16(b"x") } => EINVAL;
        "a piece far past it": |ask| Stage { ask, stage: 1, total: 1, offset: u32::MAX, data: Bytes16(b"x") } => EINVAL;
        "the largest stage": |ask| Stage { ask, stage: u64::MAX, total: whole, offset: whole - 1, data: Bytes16(b"x") } => OK;
        "a larger one": |ask| Stage { ask, stage: 1, total: whole + 1, offset: 0, data: Bytes16(b"x") } => EFBIG;
        "a guard that is not held": |ask| Write { terms: Terms { guard_object: file, guard_generation: Generation(u64::MAX), ..NONE }, ..write(ask, file, 0, b"x") } => STALE_GUARD;
        "a guard without an object": |ask| Write { terms: Terms { guard_generation: Generation(7), ..NONE }, ..write(ask, file, 0, b"x") } => OK;
    });
}

//= wire-spec.md#6-2-requests
//= type=test
//# A mutation with more than 16 items in `held` or more than 8 in `expect` MUST fail with E2BIG.
#[test]
fn lists_at_their_limits_are_taken_and_past_them_refused() {
    let (_, _, Objects { file, .. }) = start();
    let expecting = move |count: usize, version| {
        let expect: &'static [Expect] = vec![Expect { object: file, version }; count].leak();
        Terms { expect: List::of(expect), ..NONE }
    };
    let items = move |count: usize| -> List<'static, Item<'static>> {
        List::of(vec![Item::from(set(Ask::NONE, file, SetMask::MODE)); count].leak())
    };
    let holding = move |count: usize| {
        let held: &'static [Held] = vec![Held { object: file, generation: Generation(1) }; count].leak();
        Terms { held: List::of(held), ..NONE }
    };
    check(cases! {
        "as many locks as can be named": |ask| Write { terms: holding(HELD_MAX), ..write(ask, file, 0, b"x") } => OK;
        "one lock more": |ask| Write { terms: holding(HELD_MAX + 1), ..write(ask, file, 0, b"x") } => E2BIG;
        "as many versions as there can be": |ask| Write { terms: expecting(EXPECT_MAX, 1), ..write(ask, file, 0, b"x") } => OK;
        "one more": |ask| Write { terms: expecting(EXPECT_MAX + 1, 1), ..write(ask, file, 0, b"x") } => E2BIG;
        "another version": |ask| Write { terms: expecting(1, 2), ..write(ask, file, 0, b"x") } => VERSION_CHANGED;
        "that it does not exist": |ask| Write { terms: expecting(1, 0), ..write(ask, file, 0, b"x") } => VERSION_CHANGED;
        "the largest version": |ask| Write { terms: expecting(1, u64::MAX), ..write(ask, file, 0, b"x") } => VERSION_CHANGED;
        "the largest batch": |ask| Batch { ask, items: items(BATCH_MAX), terms: NONE } => OK;
        "a larger one": |ask| Batch { ask, items: items(BATCH_MAX + 1), terms: NONE } => E2BIG;
        "a batch of nothing": |ask| Batch { ask, items: items(0), terms: NONE } => EINVAL;
        "a batch that expects another version": |ask| Batch { ask, items: items(1), terms: expecting(1, 9) } => VERSION_CHANGED;
    });
}
