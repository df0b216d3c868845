//! Claims about RENAME.

use super::super::{NamespaceLimits, Places};
use super::{ROOT_DIR, RenameRule, World, create, link, removed, rename, symlink};
use crate::store::Seen;
use alloc::vec::Vec;
use cistern_wire::limits::PARENTS_MAX;
use cistern_wire::{Item, ObjectId, Status};

use RenameRule::{Exchange, NoReplace, Replace};

impl World {
    fn names(&mut self, dir: ObjectId) -> Vec<(Vec<u8>, ObjectId)> {
        super::reads::list(self, dir)
    }
}

#[test]
fn name_moves_within_a_directory() {
    let mut w = World::new();
    let file = w.file(b"a");
    let (plan, effects) = w.change(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), Replace).into()).unwrap();
    assert_eq!((plan.affected(), removed(&plan)), (&[ROOT_DIR, file][..], Some(file)));
    let [dir, moved] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((dir.before + 1, dir.attr.version, dir.attr.size), (dir.attr.version, 3, 1));
    assert_eq!((moved.attr.ctime_ns, moved.attr.version), (w.wall_ns, 2));
    assert_eq!(w.names(ROOT_DIR), [(b"b".to_vec(), file)]);
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"c"), Replace)), Status::ENOENT);
}

#[test]
fn directory_moves_between_directories_with_its_link() {
    let mut w = World::new();
    let (d, e) = (w.dir(ROOT_DIR, b"d"), w.dir(ROOT_DIR, b"e"));
    let x = w.dir(d, b"x");
    let (plan, effects) = w.change(rename((d, b"x"), (e, b"y"), Replace).into()).unwrap();
    assert_eq!(plan.affected(), [d, e, x]);
    let links: Vec<_> = effects.iter().map(|effect| (effect.attr.nlink, effect.attr.size)).collect();
    assert_eq!(links, [(2, 0), (3, 1), (2, 0)]);
    assert_eq!(w.names(e), [(b"y".to_vec(), x)]);
}

#[test]
fn what_stands_at_the_new_name_is_replaced_if_its_kind_fits() {
    let mut w = World::new();
    let (d, e) = (w.dir(ROOT_DIR, b"d"), w.dir(ROOT_DIR, b"e"));
    let (a, b) = (w.file(b"a"), w.file(b"b"));
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"d"), Replace)), Status::EISDIR);
    assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (ROOT_DIR, b"a"), Replace)), Status::ENOTDIR);
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), NoReplace)), Status::EEXIST);
    let (plan, effects) = w.change(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), Replace).into()).unwrap();
    assert_eq!(plan.affected(), [ROOT_DIR, a, b]);
    assert!(plan.removes().map(|removal| removal.object).eq([a, b]), "both names are protected");
    assert_eq!(effects[2].attr.nlink, 0);
    assert_eq!(plan.gone, [b]);
    w.done(create(e, b"in the way"));
    assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (ROOT_DIR, b"e"), Replace)), Status::ENOTEMPTY);
    w.done(super::unlink(e, b"in the way"));
    let effects = w.done(rename((ROOT_DIR, b"d"), (ROOT_DIR, b"e"), Replace));
    assert_eq!((effects[0].attr.nlink, effects[0].attr.size), (3, 2));
    assert_eq!(w.names(ROOT_DIR), [(b"b".to_vec(), a), (b"e".to_vec(), d)]);
}

#[test]
fn replaced_file_with_other_names_lives_on() {
    let mut w = World::new();
    let (a, b) = (w.file(b"a"), w.file(b"b"));
    w.done(link(b, ROOT_DIR, b"other"));
    let (plan, effects) = w.change(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), Replace).into()).unwrap();
    assert_eq!((effects[2].attr.object, effects[2].attr.nlink, plan.gone.len()), (b, 1, 0));
    assert_eq!(w.names(ROOT_DIR), [(b"b".to_vec(), a), (b"other".to_vec(), b)]);
}

#[test]
fn two_names_of_one_object_are_left_alone() {
    let mut w = World::new();
    let a = w.file(b"a");
    w.done(link(a, ROOT_DIR, b"b"));
    for (from, to) in [(b"a", b"b"), (b"a", b"a")] {
        let (plan, effects) = w.change(rename((ROOT_DIR, from), (ROOT_DIR, to), Replace).into()).unwrap();
        assert_eq!((plan.affected(), removed(&plan)), (&[][..], None));
        assert!(effects.iter().all(|effect| effect.before == effect.attr.version));
    }
    assert_eq!(w.fails(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), NoReplace)), Status::EEXIST);
}

#[test]
fn no_directory_moves_into_itself_or_below_itself() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let e = w.dir(d, b"e");
    let f = w.dir(e, b"f");
    for (dir, name) in [(d, &b"x"[..]), (e, b"x"), (f, b"x")] {
        assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (dir, name), Replace)), Status::EINVAL);
    }
    assert_eq!(w.fails(rename((d, b"e"), (ROOT_DIR, b"d"), Replace)), Status::ENOTEMPTY);
    assert_eq!(w.fails(rename((d, b"e"), (ROOT_DIR, b"d"), Exchange)), Status::EINVAL);
    assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (d, b"e"), Exchange)), Status::EINVAL);
    w.forgetful = true;
    assert_eq!(w.fails(rename((ROOT_DIR, b"d"), (f, b"x"), Replace)), Status::EINVAL);
    w.done(rename((e, b"f"), (ROOT_DIR, b"f"), Replace));
    w.done(rename((ROOT_DIR, b"d"), (f, b"d"), Replace));
    assert_eq!(w.fails(rename((ROOT_DIR, b"f"), (e, b"x"), Replace)), Status::EINVAL, "the tree that it is now");
}

//= wire-spec.md#6-2-requests
//= type=test
//# To move a directory into another the server looks for it above that one, and MUST NOT look above more directories than section 8.1
//# allows for one request (E2BIG): a tree is as deep as anybody makes it.
#[test]
fn above_a_deep_directory_it_is_looked_so_far_and_no_further() {
    let mut w = World::new();
    let (moved, mut deep) = (w.dir(ROOT_DIR, b"moved"), ROOT_DIR);
    for _ in 0..PARENTS_MAX - 1 {
        deep = w.dir(deep, b"d");
    }
    w.done(rename((ROOT_DIR, b"moved"), (deep, b"moved"), Replace));
    let deeper = w.dir(moved, b"deeper");
    w.dir(deeper, b"other");
    w.dir(ROOT_DIR, b"too");
    assert_eq!(w.fails(rename((ROOT_DIR, b"too"), (deeper, b"too"), Replace)), Status::E2BIG);
    assert_eq!(w.fails(rename((ROOT_DIR, b"too"), (deeper, b"other"), Exchange)), Status::E2BIG);
    // What stays in its directory, or has nothing below it, is not looked for.
    w.done(rename((deeper, b"other"), (deeper, b"name"), Replace));
    w.file(b"file");
    w.done(rename((ROOT_DIR, b"file"), (deeper, b"file"), Replace));
}

#[test]
fn the_items_of_a_batch_look_above_as_many_directories_as_one_request() {
    let mut w = World::new();
    w.dir(ROOT_DIR, b"a");
    w.dir(ROOT_DIR, b"b");
    let mut deep = ROOT_DIR;
    for _ in 0..PARENTS_MAX / 2 + 1 {
        deep = w.dir(deep, b"d");
    }
    let moves: [Item<'_>; 2] = [b"a", b"b"].map(|name| rename((ROOT_DIR, name), (deep, name), NoReplace).into());
    assert_eq!(w.batch(&moves, &[]).err(), Some((Status::E2BIG, Some(1))));
    for item in moves {
        assert_eq!(w.batch(&[item], &[]).err(), None);
    }
}

#[test]
fn exchange_swaps_two_names_of_any_kind() {
    let mut w = World::new();
    let d = w.dir(ROOT_DIR, b"d");
    let sub = w.dir(d, b"sub");
    let l = w.done(symlink(ROOT_DIR, b"l", b"x"))[1].attr.object;
    assert_eq!(w.fails(rename((ROOT_DIR, b"l"), (d, b"none"), Exchange)), Status::ENOENT);
    let (plan, effects) = w.change(rename((ROOT_DIR, b"l"), (d, b"sub"), Exchange).into()).unwrap();
    assert_eq!(plan.affected(), [ROOT_DIR, d, l, sub]);
    assert!(plan.removes().map(|removal| removal.object).eq([l, sub]), "both names are protected");
    let counts: Vec<_> = effects.iter().map(|effect| (effect.attr.nlink, effect.attr.size)).collect();
    assert_eq!(counts[..2], [(4, 2), (2, 1)]);
    assert_eq!(w.names(ROOT_DIR), [(b"d".to_vec(), d), (b"l".to_vec(), sub)]);
    assert_eq!(w.names(d), [(b"sub".to_vec(), l)]);
    assert_eq!(w.namespace.place(&w.store.view(&Seen::default()), &mut Places::new(), sub, 100), Ok(b"/l".to_vec()));
}

#[test]
fn bound_on_subdirectories_holds_for_moved_ones() {
    let mut w = World::with(NamespaceLimits { links_max: 2, ..NamespaceLimits::default() });
    let d = w.dir(ROOT_DIR, b"d");
    w.dir(ROOT_DIR, b"e");
    w.dir(d, b"x");
    assert_eq!(w.fails(rename((d, b"x"), (ROOT_DIR, b"x"), Replace)), Status::EMLINK);
    w.done(rename((d, b"x"), (ROOT_DIR, b"e"), Replace));
    w.dir(d, b"x");
    w.file(b"f");
    assert_eq!(w.fails(rename((d, b"x"), (ROOT_DIR, b"f"), Exchange)), Status::EMLINK);
}

#[test]
fn changed_reply_asks_for_locks_on_what_still_exists() {
    let mut w = World::new();
    let (a, _) = (w.file(b"a"), w.file(b"b"));
    let mut asked = Vec::new();
    let grant = |attr: &super::Attr| {
        asked.push(attr.object);
        super::CacheGrant::NONE
    };
    let done = w.run(rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), Replace).into(), &[], grant).unwrap();
    assert_eq!(asked, [ROOT_DIR, a]);
    assert!(matches!(super::Reader::new(&done.reply).get(), Ok(super::Reply::Changed(changed)) if changed.effects.len() == 3));
}
