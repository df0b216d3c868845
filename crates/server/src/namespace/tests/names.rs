//! Claims about names: how they come and go.

use super::super::NamespaceLimits;
use super::{ROOT_DIR, World, create, link, mkdir, open_or_create, removed, rmdir, symlink, unlink};
use crate::store::Seen;
use alloc::vec;
use cistern_wire::{Message, ObjectId, ObjectKind, Status};

#[test]
fn create_makes_an_empty_file_and_shows_directory_then_file() {
    let mut w = World::new();
    let (plan, effects) = w.change(create(ROOT_DIR, b"a").into()).unwrap();
    assert_eq!((plan.affected(), removed(&plan)), (&[ROOT_DIR][..], None), "nobody can hold a lock on what is new");
    let [dir, file] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((dir.before, dir.attr.version, dir.attr.size, dir.attr.nlink), (1, 2, 1, 2));
    assert_eq!((dir.attr.mtime_ns, dir.attr.ctime_ns, dir.attr.atime_ns), (w.wall_ns, w.wall_ns, 1_000));
    let a = file.attr;
    assert_eq!((file.before, a.object, a.version, a.kind, a.nlink, a.size), (0, ObjectId(2), 1, ObjectKind::File, 1, 0));
    assert_eq!((a.mode, a.uid, a.gid, a.atime_ns, a.mtime_ns, a.ctime_ns), (0o644, 1, 2, w.wall_ns, w.wall_ns, w.wall_ns));
    assert_eq!(w.attr(ObjectId(2)), Ok(a));
}

#[test]
fn create_of_an_existing_file_opens_it_as_it_is_unless_it_is_to_be_new() {
    let mut w = World::new();
    let file = w.file(b"a");
    assert_eq!(w.fails(create(ROOT_DIR, b"a")), Status::EEXIST);
    let (plan, effects) = w.change(open_or_create(ROOT_DIR, b"a").into()).unwrap();
    assert!(plan.affected().is_empty());
    let [opened] = effects[..] else { panic!("{effects:?}") };
    assert_eq!((opened.attr.object, opened.before), (file, opened.attr.version));
    w.dir(ROOT_DIR, b"d");
    assert_eq!(w.fails(open_or_create(ROOT_DIR, b"d")), Status::EISDIR);
    w.done(symlink(ROOT_DIR, b"l", b"a"));
    assert_eq!(w.fails(open_or_create(ROOT_DIR, b"l")), Status::EEXIST, "a link is the agent's to follow");
}

#[test]
fn directories_count_their_subdirectories() {
    let mut w = World::new();
    let effects = w.done(mkdir(ROOT_DIR, b"d"));
    assert_eq!((effects[0].attr.nlink, effects[0].attr.size, effects[1].attr.nlink), (3, 1, 2));
    let d = effects[1].attr.object;
    w.done(create(d, b"f"));
    w.done(mkdir(d, b"e"));
    assert_eq!((w.attr(d).unwrap().nlink, w.attr(d).unwrap().size), (3, 2));
    assert_eq!(w.fails(rmdir(ROOT_DIR, b"d")), Status::ENOTEMPTY);
    w.done(unlink(d, b"f"));
    w.done(rmdir(d, b"e"));
    let (plan, effects) = w.change(rmdir(ROOT_DIR, b"d").into()).unwrap();
    assert_eq!((plan.affected(), removed(&plan)), (&[ROOT_DIR, d][..], Some(d)));
    assert_eq!((effects[0].attr.nlink, effects[0].attr.size, effects[1].attr.nlink), (2, 0, 0));
    assert_eq!(plan.gone, [d]);
    assert_eq!(w.attr(d), Err(Status::ESTALE));
    assert_eq!(w.fails(create(d, b"late")), Status::ESTALE);
}

#[test]
fn object_goes_with_its_last_name() {
    let mut w = World::new();
    let file = w.file(b"a");
    let (plan, effects) = w.change(link(file, ROOT_DIR, b"b").into()).unwrap();
    assert_eq!(plan.affected(), [ROOT_DIR, file]);
    assert_eq!((effects[1].attr.nlink, effects[1].before, effects[1].attr.version), (2, 1, 2));
    let (plan, effects) = w.change(unlink(ROOT_DIR, b"a").into()).unwrap();
    assert_eq!((plan.affected(), removed(&plan)), (&[ROOT_DIR, file][..], Some(file)));
    assert_eq!((effects[1].attr.nlink, plan.gone.len()), (1, 0));
    assert_eq!(w.done(unlink(ROOT_DIR, b"b"))[1].attr.nlink, 0);
    assert_eq!(w.attr(file), Err(Status::ESTALE));
    assert_eq!(w.fails(unlink(ROOT_DIR, b"b")), Status::ENOENT);
    assert_eq!(w.namespace.objects(&w.store.view(&Seen::default())), 1);
    assert!(w.file(b"a") > file, "an id is never used again");
}

#[test]
fn kinds_that_do_not_fit_the_operation_are_errors() {
    let mut w = World::new();
    let (file, dir) = (w.file(b"f"), w.dir(ROOT_DIR, b"d"));
    assert_eq!(w.fails(create(file, b"x")), Status::ENOTDIR);
    assert_eq!(w.fails(mkdir(ROOT_DIR, b"f")), Status::EEXIST);
    assert_eq!(w.fails(symlink(ROOT_DIR, b"d", b"t")), Status::EEXIST);
    assert_eq!(w.fails(link(file, ROOT_DIR, b"d")), Status::EEXIST);
    assert_eq!(w.fails(link(dir, ROOT_DIR, b"x")), Status::EPERM);
    assert_eq!(w.fails(unlink(ROOT_DIR, b"d")), Status::EISDIR);
    assert_eq!(w.fails(rmdir(ROOT_DIR, b"f")), Status::ENOTDIR);
    assert_eq!(w.fails(rmdir(ROOT_DIR, b"x")), Status::ENOENT);
    assert_eq!(w.fails(link(ObjectId(99), ROOT_DIR, b"x")), Status::ESTALE);
    assert_eq!(w.fails(create(ObjectId(99), b"x")), Status::ESTALE);
}

#[test]
fn names_that_no_entry_can_have_are_errors() {
    let mut w = World::new();
    w.file(b"a");
    for name in [&b""[..], b".", b"..", b"a/b", b"a\0b"] {
        let messages = |w: &mut World| {
            let root = ROOT_DIR;
            let file = ObjectId(2);
            vec![
                w.fails(create(root, name)),
                w.fails(mkdir(root, name)),
                w.fails(symlink(root, name, b"t")),
                w.fails(link(file, root, name)),
                w.fails(unlink(root, name)),
                w.fails(rmdir(root, name)),
                w.fails(super::rename((root, name), (root, b"x"), super::RenameRule::Replace)),
                w.fails(super::rename((root, b"a"), (root, name), super::RenameRule::Replace)),
            ]
        };
        assert!(messages(&mut w).into_iter().all(|status| status == Status::EINVAL), "{name:?}");
    }
    let longest = [b'n'; 255];
    w.done(create(ROOT_DIR, &longest));
    let longer = [b'n'; 256];
    assert_eq!(w.fails(create(ROOT_DIR, &longer)), Status::ENAMETOOLONG);
}

#[test]
fn symbolic_links_keep_their_target_and_its_length() {
    let mut w = World::new();
    let made = w.done(symlink(ROOT_DIR, b"l", b"../else/where"))[1].attr;
    assert_eq!((made.kind, made.size, made.mode), (ObjectKind::Symlink, 13, 0o777));
    assert_eq!(w.contents(made.object), b"../else/where");
    assert_eq!(w.fails(symlink(ROOT_DIR, b"m", b"")), Status::EINVAL);
    assert_eq!(w.fails(symlink(ROOT_DIR, b"m", b"a\0")), Status::EINVAL);
    assert_eq!(w.fails(symlink(ROOT_DIR, b"m", &[b'x'; 401])), Status::ENAMETOOLONG);
    w.done(symlink(ROOT_DIR, b"m", &[b'x'; 400]));
}

#[test]
fn permission_bits_beyond_those_that_there_are_are_errors() {
    let mut w = World::new();
    assert_eq!(w.fails(super::Create { mode: 0o10_000, ..create(ROOT_DIR, b"a") }), Status::EINVAL);
    assert_eq!(w.fails(super::Mkdir { mode: 0o10_000, ..mkdir(ROOT_DIR, b"a") }), Status::EINVAL);
}

#[test]
fn bounds_on_objects_and_links_are_errors() {
    let mut w = World::with(NamespaceLimits { objects_max: 4, links_max: 2, ..NamespaceLimits::default() });
    let file = w.file(b"a");
    w.done(link(file, ROOT_DIR, b"b"));
    assert_eq!(w.fails(link(file, ROOT_DIR, b"c")), Status::EMLINK);
    w.dir(ROOT_DIR, b"d");
    w.dir(ROOT_DIR, b"e");
    assert_eq!(w.fails(mkdir(ROOT_DIR, b"f")), Status::EMLINK);
    assert_eq!(w.fails(create(ROOT_DIR, b"g")), Status::ENOSPC);
    w.done(rmdir(ROOT_DIR, b"e"));
    w.done(create(ROOT_DIR, b"g"));
}

#[test]
fn mutations_of_the_wire_are_recognised() {
    let message = Message::from(unlink(ROOT_DIR, b"a"));
    let mutation = super::Mutation::of(&message).unwrap();
    assert!(!mutation.is_batch() && mutation.stages().next().is_none());
    let staged = Message::from(super::Write { stage: 7, ..super::write(ROOT_DIR, 0, b"", false) });
    assert!(super::Mutation::of(&staged).unwrap().stages().eq([7]));
    assert_eq!(super::Mutation::of(&Message::from(super::read(ROOT_DIR, 0))), None);
    assert_eq!(super::Reading::of(&message), None);
}
