//! Claims about contents: WRITE, SETATTR, READ.

use super::super::NamespaceLimits;
use super::{ASK, LARGE, ROOT_DIR, SMALL, World, read, symlink, write};
use crate::store::{BLOCK_LEN, Key};
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::CONTENT_MAX;
use cistern_wire::{Data, Message, ObjectId, Read, Reader, Reply, SetAttr, SetMask, Status, Terms};
use proptest::prelude::*;

const BLOCK: u64 = BLOCK_LEN as u64;

pub(super) fn set(object: ObjectId, bits: u8) -> SetAttr<'static> {
    let mask = SetMask { bits };
    SetAttr { ask: ASK, object, mask, mode: 0, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }
}

pub(super) fn resize(object: ObjectId, size: u64) -> SetAttr<'static> {
    SetAttr { size, ..set(object, SetMask::SIZE) }
}

impl World {
    fn blocks(&mut self, object: ObjectId) -> Vec<(u32, usize)> {
        self.disk.settle(&mut self.store);
        let blocks = self.disk.values.iter().filter_map(|(key, value)| match key {
            Key::Block(of, n) if *of == object => Some((*n, value.len())),
            _ => None,
        });
        blocks.collect()
    }
}

#[test]
fn write_puts_bytes_where_they_belong_and_keeps_the_others() {
    let mut w = World::new();
    let file = w.file(b"a");
    let (plan, effects) = w.change(write(file, 0, b"hello", false).into()).unwrap();
    assert_eq!((plan.affected(), effects[0].before, effects[0].attr.version), (&[file][..], 1, 2));
    assert_eq!((effects[0].attr.size, effects[0].attr.mtime_ns, effects[0].attr.ctime_ns), (5, w.wall_ns, w.wall_ns));
    w.done(write(file, 1, b"EL", false));
    assert_eq!(w.contents(file), b"hELlo");
    w.done(write(file, 3, b"p", true));
    assert_eq!(w.contents(file), b"hELp");
    let version = w.attr(file).unwrap().version;
    let (plan, _) = w.change(write(file, 9, b"", false).into()).unwrap();
    assert!(plan.affected().is_empty(), "writing nothing changes nothing");
    assert_eq!(w.attr(file).unwrap().version, version);
    w.done(write(file, 2, b"", true));
    assert_eq!(w.contents(file), b"hE");
}

#[test]
fn what_was_never_written_reads_as_zeros_and_takes_no_room() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, 3 * BLOCK + 2, b"x", false));
    assert_eq!(w.blocks(file), [(3, 3)]);
    let contents = w.contents(file);
    assert_eq!(contents.len() as u64, 3 * BLOCK + 3);
    assert!(contents.iter().take(contents.len() - 1).all(|byte| *byte == 0));
    w.done(resize(file, CONTENT_MAX as u64));
    assert_eq!(w.blocks(file), [(3, 3)]);
    assert_eq!(w.contents(file).len(), CONTENT_MAX);
}

#[test]
fn bytes_cut_off_do_not_come_back() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, 0, &[7; 3 * BLOCK_LEN][..60_000], false));
    w.done(write(file, 60_000, &[7; 60_000], false));
    w.done(write(file, 120_000, &[7; 60_000], false));
    w.done(resize(file, 10));
    assert_eq!(w.blocks(file), [(0, 10)]);
    w.done(resize(file, 200_000));
    let contents = w.contents(file);
    assert!(contents[..10].iter().all(|byte| *byte == 7) && contents[10..].iter().all(|byte| *byte == 0));
    w.done(write(file, 100, b"z", true));
    assert_eq!(w.attr(file).unwrap().size, 101);
    w.done(resize(file, 0));
    assert_eq!(w.blocks(file), []);
}

#[test]
fn blocks_go_with_their_file() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, BLOCK - 1, b"xyz", false));
    assert_eq!(w.blocks(file).len(), 2);
    w.done(super::unlink(ROOT_DIR, b"a"));
    assert_eq!(w.blocks(file), []);
}

#[test]
fn contents_beyond_the_largest_size_are_errors() {
    let mut w = World::new();
    let file = w.file(b"a");
    let end = CONTENT_MAX as u64;
    w.done(write(file, end - 1, b"x", false));
    assert_eq!(w.fails(write(file, end - 1, b"xy", false)), Status::EFBIG);
    assert_eq!(w.fails(write(file, u64::MAX, b"x", false)), Status::EFBIG);
    assert_eq!(w.fails(resize(file, end + 1)), Status::EFBIG);
    w.done(resize(file, end));
}

#[test]
fn bound_on_all_contents_together_is_an_error() {
    let mut w = World::with(NamespaceLimits { bytes_max: 10, ..NamespaceLimits::default() });
    let (a, b) = (w.file(b"a"), w.file(b"b"));
    w.done(write(a, 0, b"123456", false));
    assert_eq!(w.fails(write(b, 0, b"12345", false)), Status::ENOSPC);
    assert_eq!(w.fails(resize(b, 5)), Status::ENOSPC);
    assert_eq!(w.fails(symlink(ROOT_DIR, b"l", b"12345")), Status::ENOSPC);
    w.done(write(a, 0, b"abcdef", false));
    w.done(write(b, 0, b"1234", false));
    w.done(super::unlink(ROOT_DIR, b"a"));
    w.done(write(b, 0, b"1234567890", false));
}

#[test]
fn without_room_in_the_store_only_what_takes_away_is_executed() {
    let mut w = World::new();
    let (a, b, dir) = (w.file(b"a"), w.file(b"b"), w.dir(ROOT_DIR, b"d"));
    w.done(write(a, 0, b"123456", false));
    w.namespace.set_room(false);
    assert_eq!(w.fails(super::create(ROOT_DIR, b"c")), Status::ENOSPC);
    assert_eq!(w.fails(write(b, 0, b"1", false)), Status::ENOSPC);
    assert_eq!(w.fails(write(a, 0, b"abcdef", false)), Status::ENOSPC);
    assert_eq!(w.fails(super::link(a, dir, b"l")), Status::ENOSPC);
    assert_eq!(w.contents(a), b"123456");
    w.done(resize(a, 2));
    w.done(super::unlink(ROOT_DIR, b"a"));
    w.done(super::rmdir(ROOT_DIR, b"d"));
    w.namespace.set_room(true);
    w.done(write(b, 0, b"1", false));
}

#[test]
fn only_files_have_contents_to_write() {
    let mut w = World::new();
    let l = w.done(symlink(ROOT_DIR, b"l", b"x"))[1].attr.object;
    assert_eq!(w.fails(write(ROOT_DIR, 0, b"x", false)), Status::EISDIR);
    assert_eq!(w.fails(resize(ROOT_DIR, 0)), Status::EISDIR);
    assert_eq!(w.fails(write(l, 0, b"x", false)), Status::EINVAL);
    assert_eq!(w.fails(resize(l, 0)), Status::EINVAL);
    assert_eq!(w.fails(write(ObjectId(99), 0, b"x", false)), Status::ESTALE);
    assert_eq!(w.read(read(ROOT_DIR, 0), SMALL), Err(Status::EISDIR));
}

#[test]
fn staged_contents_are_written_whole() {
    let mut w = World::new();
    let file = w.file(b"a");
    let whole: Vec<u8> = (0..CONTENT_MAX).map(|n| u8::try_from(n % 251).unwrap()).collect();
    let message = Message::from(super::Write { stage: 3, ..write(file, 0, b"", true) });
    w.change_with(message, &[&whole]).unwrap();
    assert!(w.contents(file) == whole);
    assert_eq!(w.blocks(file).len(), 16);
    let both = Message::from(super::Write { stage: 3, ..write(file, 0, b"x", true) });
    assert_eq!(w.change_with(both, &[&whole]).err(), Some(Status::EINVAL), "from a stage or from the message, not both");
}

#[test]
fn attributes_are_set_as_the_mask_says() {
    let mut w = World::new();
    let file = w.file(b"a");
    let before = w.attr(file).unwrap();
    let values = SetAttr { mode: 0o4755, uid: 7, gid: 8, atime_ns: -5, mtime_ns: 6, ..set(file, 0) };
    let (plan, effects) = w.change(values.into()).unwrap();
    assert!(plan.affected().is_empty() && effects[0].attr == before);
    let bits = SetMask::MODE | SetMask::UID | SetMask::GID | SetMask::ATIME | SetMask::MTIME;
    let after = w.done(SetAttr { mask: SetMask { bits }, ..values })[0].attr;
    assert_eq!((after.mode, after.uid, after.gid, after.atime_ns, after.mtime_ns), (0o4755, 7, 8, -5, 6));
    assert_eq!((after.version, after.ctime_ns), (before.version + 1, w.wall_ns));
    let now = w.done(set(file, SetMask::ATIME_NOW | SetMask::MTIME_NOW))[0].attr;
    assert_eq!((now.atime_ns, now.mtime_ns, now.mode), (w.wall_ns, w.wall_ns, 0o4755));
    w.done(set(ROOT_DIR, SetMask::UID));
    let both = w.done(set(file, SetMask::ATIME | SetMask::ATIME_NOW | SetMask::MTIME | SetMask::MTIME_NOW))[0].attr;
    assert_eq!((both.atime_ns, both.mtime_ns), (w.wall_ns, w.wall_ns), "\"to now\" wins over a value");
    assert_eq!(w.fails(SetAttr { mode: 0o10_000, ..set(file, SetMask::MODE) }), Status::EINVAL);
    assert_eq!(w.fails(set(ObjectId(99), SetMask::UID)), Status::ESTALE);
}

#[test]
fn pages_of_contents_fit_and_join() {
    let mut w = World::new();
    let file = w.file(b"a");
    let whole: Vec<u8> = (0..2_000u32).map(|n| n.to_le_bytes()[0]).collect();
    w.done(write(file, 0, &whole, false));
    let mut all = Vec::new();
    while all.len() < whole.len() {
        let reply = w.read(read(file, all.len() as u64), SMALL).unwrap();
        let Ok(Reply::Data(Data { data, offset, .. })) = Reader::new(&reply).get() else { panic!("not a DATA reply") };
        assert_eq!(offset, all.len() as u64);
        assert!(data.0.len() == SMALL - 95 || all.len() + data.0.len() == whole.len(), "a page is as full as can be");
        all.extend_from_slice(data.0);
    }
    assert_eq!(all, whole);
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A READ, READDIR, GETXATTR or LISTXATTR that names a version other than the current one MUST fail with VERSION_CHANGED.
#[test]
fn page_of_another_version_is_refused_and_the_end_is_empty() {
    let mut w = World::new();
    let file = w.file(b"a");
    w.done(write(file, 0, b"hello", false));
    let version = w.attr(file).unwrap().version;
    let page = |version, offset, length| Read { version, length, ..read(file, offset) };
    let data = |w: &mut World, page: Read| {
        let (reply, asked) = w.read_granting(page, SMALL).unwrap();
        let Ok(Reply::Data(data)) = Reader::new(&reply).get() else { panic!("not a DATA reply") };
        assert_eq!((asked, data.grant.generation.0), (vec![file], file.0));
        data.data.0.to_vec()
    };
    assert_eq!(data(&mut w, page(version, 1, 3)), b"ell");
    assert_eq!(data(&mut w, page(version, 5, 3)), b"");
    assert_eq!(data(&mut w, page(0, u64::MAX, u32::MAX)), b"");
    assert_eq!(data(&mut w, page(version, 0, 0)), b"");
    w.done(write(file, 0, b"H", false));
    assert_eq!(w.read(page(version, 1, 3), SMALL), Err(Status::VERSION_CHANGED));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn contents_are_what_a_plain_buffer_would_hold(
        writes in proptest::collection::vec((0..300_000u64, 0..140_000usize, any::<bool>(), any::<u8>()), 1..8),
        forgetful: bool,
    ) {
        let mut w = World::new();
        w.forgetful = forgetful;
        let file = w.file(b"a");
        let mut model: Vec<u8> = Vec::new();
        for (offset, len, truncate, byte) in writes {
            let at = usize::try_from(offset).unwrap();
            if byte < 60 {
                w.done(resize(file, offset));
                model.resize(at, 0);
            } else {
                let message = Message::from(super::Write { stage: 1, ..write(file, offset, b"", truncate) });
                w.change_with(message, &[&vec![byte; len]]).unwrap();
                if len > 0 || truncate {
                    let end = at + len;
                    let size = if truncate { end } else { end.max(model.len()) };
                    model.resize(size, 0);
                    model[at..end].fill(byte);
                }
            }
            prop_assert!(w.contents(file) == model);
            prop_assert_eq!(w.attr(file).unwrap().size, model.len() as u64);
        }
        let reply = w.read(read(file, 0), LARGE).unwrap();
        prop_assert!(reply.len() <= LARGE);
    }
}
