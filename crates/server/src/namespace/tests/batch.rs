//! Claims about batches and expected versions: whole or not at all, each item under those before it, and what is affected.

use super::contents::{resize, set};
use super::xattrs::{get, set_xattr};
use super::{
    ASK, Done, ROOT_DIR, RenameRule, World, create, link, list_of, mkdir, open_or_create, reads, rename, rmdir, symlink, unlink, write,
};
use crate::namespace::{NamespaceLimits, carried};
use crate::store::Counter;
use crate::store::Seen;
use alloc::vec;
use alloc::vec::Vec;
use cistern_wire::limits::BATCH_MAX;
use cistern_wire::{
    Attr, Batch, Bytes8, Expect, Item, ItemResult, List, Message, ObjectId, ObjectKind, Reader, Reply, SetAttr, SetMask, Status, Terms,
};

impl World {
    /// Runs a batch: its plan and its answer, or why it failed and by which item.
    pub(super) fn batch(&mut self, items: &[Item<'_>], expect: &[Expect]) -> Result<(Done, Vec<ItemResult>), (Status, Option<u16>)> {
        let terms = Terms { expect: List::of(expect), ..Terms::NONE };
        let message = Message::from(Batch { ask: ASK, items: List::of(items), terms });
        let data: Vec<&[u8]> = items.iter().map(carried).collect();
        let before = self.store.has_writes() && !self.forgetful;
        let done = self.run(message, &data, |_| panic!("a batch grants nothing")).inspect_err(|_| {
            assert_eq!(self.store.has_writes(), before, "a batch that fails has no effect");
        })?;
        let Ok(Reply::Batched(told)) = Reader::new(&done.reply).get() else { panic!("not a BATCHED reply") };
        let told = told.items.iter().collect();
        Ok((done, told))
    }

    fn expecting(&mut self, object: ObjectId, version: u64) -> Result<Attr, Status> {
        let expect = [Expect { object, version }];
        let terms = Terms { expect: List::of(&expect), ..Terms::NONE };
        let message = SetAttr { mode: 0o600, terms, ..set(ROOT_DIR, SetMask::MODE) };
        self.change(message.into()).map(|(_, effects)| effects[0].attr)
    }
}

fn made(item: u8) -> ObjectId {
    ObjectId::made_by(item)
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A BATCH MUST be executed whole, or change nothing and say which item could not be done.
#[test]
fn a_batch_is_done_whole_or_not_at_all_and_says_which_item_failed() {
    let mut w = World::new();
    let old = w.file(b"old");
    let items: [Item<'_>; 5] = [
        mkdir(ROOT_DIR, b"d").into(),
        create(made(0), b"f").into(),
        write(made(1), 0, b"text", false).into(),
        link(made(1), ROOT_DIR, b"l").into(),
        unlink(ROOT_DIR, b"old").into(),
    ];
    for cut in 1..=items.len() {
        let failing = [&items[..cut], &[rmdir(ROOT_DIR, b"missing").into()]].concat();
        assert_eq!(w.batch(&failing, &[]).unwrap_err(), (Status::ENOENT, Some(u16::try_from(cut).unwrap())));
    }
    let (plan, done) = w.batch(&items, &[]).unwrap();
    assert_eq!(plan.affected(), [ROOT_DIR, old], "what the batch makes is nobody's yet");
    let (d, f) = (done[0].object, done[1].object);
    assert_eq!(done.iter().map(|result| result.object).collect::<Vec<_>>(), [d, f, f, f, old]);
    assert_eq!(done.iter().map(|result| result.version).collect::<Vec<_>>(), [1, 1, 1, 1, 0]);
    assert_eq!((w.contents(f), w.attr(f).unwrap().nlink), (b"text".to_vec(), 2));
    assert_eq!(w.attr(old), Err(Status::ESTALE));
    let root = w.attr(ROOT_DIR).unwrap();
    assert_eq!((root.nlink, root.size, root.version), (3, 2, 3), "one version for all of it");
}

#[test]
fn what_a_batch_makes_and_takes_away_leaves_nothing_but_a_used_number() {
    for forgetful in [false, true] {
        let mut w = World::new();
        w.forgetful = forgetful;
        let (objects, bytes) =
            (w.namespace.objects(&w.store.view(&Seen::default())), w.store.view(&Seen::default()).counter(Counter::Bytes));
        let items = [
            mkdir(ROOT_DIR, b"d").into(),
            create(made(0), b"f").into(),
            write(made(1), 0, &[7; 300], false).into(),
            set_xattr(made(1), b"user.a", b"value").into(),
            symlink(made(0), b"s", b"target").into(),
            unlink(made(0), b"f").into(),
            unlink(made(0), b"s").into(),
            rmdir(ROOT_DIR, b"d").into(),
        ];
        let (plan, done) = w.batch(&items, &[]).unwrap();
        assert!(plan.affected() == [ROOT_DIR] && plan.removes().next().is_none() && done.iter().all(|result| result.version == 0));
        assert_eq!(w.namespace.objects(&w.store.view(&Seen::default())), objects);
        assert_eq!(w.store.view(&Seen::default()).counter(Counter::Bytes), bytes);
        assert_eq!(w.attr(ROOT_DIR).map(|root| (root.nlink, root.size)), Ok((2, 0)));
        assert!(w.file(b"next") > done[4].object, "a number is used once");
        w.restart();
        assert_eq!(reads::list(&mut w, ROOT_DIR).len(), 1);
    }
}

#[test]
fn items_see_names_contents_and_attributes_as_those_before_them_leave_them() {
    let mut w = World::new();
    let (a, b) = (w.file(b"a"), w.file(b"b"));
    w.done(write(a, 0, &[b'x'; 70_000], false));
    for forgetful in [false, true] {
        w.forgetful = forgetful;
        let items = [
            resize(a, 10).into(),
            write(a, 66_000, b"end", false).into(),
            rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), RenameRule::Exchange).into(),
            write(b, 0, b"b", true).into(),
            rename((ROOT_DIR, b"b"), (ROOT_DIR, b"c"), RenameRule::NoReplace).into(),
            rename((ROOT_DIR, b"c"), (ROOT_DIR, b"b"), RenameRule::NoReplace).into(),
            rename((ROOT_DIR, b"a"), (ROOT_DIR, b"b"), RenameRule::Exchange).into(),
        ];
        w.batch(&items, &[]).unwrap();
        let expected = [&[b'x'; 10][..], &[0; 65_990], b"end"].concat();
        assert_eq!((w.contents(a), w.contents(b)), (expected, b"b".to_vec()));
        assert_eq!(reads::list(&mut w, ROOT_DIR), [(b"a".to_vec(), a), (b"b".to_vec(), b)]);
    }
    let loops =
        [mkdir(ROOT_DIR, b"d").into(), mkdir(made(0), b"e").into(), rename((ROOT_DIR, b"d"), (made(1), b"x"), RenameRule::Replace).into()];
    assert_eq!(w.batch(&loops, &[]).unwrap_err(), (Status::EINVAL, Some(2)));
    let full = [mkdir(ROOT_DIR, b"d").into(), create(made(0), b"f").into(), rmdir(ROOT_DIR, b"d").into()];
    assert_eq!(w.batch(&full, &[]).unwrap_err(), (Status::ENOTEMPTY, Some(2)));
    let twice = [create(ROOT_DIR, b"n").into(), create(ROOT_DIR, b"n").into()];
    assert_eq!(w.batch(&twice, &[]).unwrap_err(), (Status::EEXIST, Some(1)));
    let opened = [create(ROOT_DIR, b"n").into(), open_or_create(ROOT_DIR, b"n").into(), write(made(1), 0, b"x", false).into()];
    let (_, done) = w.batch(&opened, &[]).unwrap();
    assert_eq!(done[0], done[2]);
}

#[test]
fn objects_that_a_batch_makes_do_not_count_towards_those_that_it_changes() {
    let mut w = World::new();
    let names: Vec<_> = (0..16).map(|n| [b'a' + n]).collect();
    let made: Vec<Item<'_>> = names.iter().map(|name| mkdir(ROOT_DIR, name).into()).collect();
    let (plan, _) = w.batch(&made, &[]).unwrap();
    assert_eq!(plan.affected().len(), 1, "the directory");
    let gone: Vec<Item<'_>> = names.iter().map(|name| rmdir(ROOT_DIR, name).into()).collect();
    assert_eq!(w.batch(&gone, &[]).unwrap_err(), (Status::E2BIG, Some(15)));
    w.batch(&gone[..15], &[]).unwrap();
}

#[test]
fn bounds_of_a_batch_are_errors() {
    let mut w = World::new();
    assert_eq!(w.batch(&[], &[]).unwrap_err(), (Status::EINVAL, None));
    let many = vec![mkdir(ROOT_DIR, b"d").into(); BATCH_MAX + 1];
    assert_eq!(w.batch(&many, &[]).unwrap_err(), (Status::E2BIG, None));
    for named in [made(0), made(1), made(200)] {
        assert_eq!(w.batch(&[set_xattr(named, b"a", b"").into()], &[]).unwrap_err(), (Status::ESTALE, Some(0)), "{named}");
    }
    assert_eq!(w.fails(unlink(made(0), b"a")), Status::ESTALE, "outside of a batch it names nothing");
    // A rename of a file to another directory over a file affects four objects.
    let (names, more): (Vec<_>, Vec<_>) = ((b'a'..=b'e').map(|c| [c]).collect(), (b'p'..=b't').map(|c| [c]).collect());
    let mut moves: Vec<Item<'_>> = Vec::new();
    for (name, other) in names.iter().zip(&more) {
        let (from, to) = (w.dir(ROOT_DIR, name), w.dir(ROOT_DIR, other));
        w.done(create(from, b"f"));
        w.done(create(to, b"f"));
        moves.push(rename((from, b"f"), (to, b"f"), RenameRule::Replace).into());
    }
    assert_eq!(w.batch(&moves, &[]).unwrap_err(), (Status::E2BIG, Some(4)));
    let (plan, _) = w.batch(&moves[..4], &[]).unwrap();
    assert_eq!((plan.affected().len(), plan.removes().count()), (16, 8));
    assert!(plan.removes().map(|removal| removal.item).eq([0, 0, 1, 1, 2, 2, 3, 3]));
}

#[test]
fn a_batch_stays_within_the_bounds_of_the_store() {
    let mut w = World::with(NamespaceLimits { objects_max: 3, bytes_max: 10, ..NamespaceLimits::default() });
    let three = [create(ROOT_DIR, b"a").into(), create(ROOT_DIR, b"b").into(), create(ROOT_DIR, b"c").into()];
    assert_eq!(w.batch(&three, &[]).unwrap_err(), (Status::ENOSPC, None));
    w.batch(&three[..2], &[]).unwrap();
    w.batch(&[unlink(ROOT_DIR, b"a").into(), create(ROOT_DIR, b"c").into()], &[]).unwrap();
    let too_much = [create(ROOT_DIR, b"b"), create(ROOT_DIR, b"c")].map(|m| Item::from(cistern_wire::Create { exclusive: false, ..m }));
    let writes = [too_much[0], write(made(0), 0, b"123456", false).into(), too_much[1], set_xattr(made(2), b"a", b"12345").into()];
    assert_eq!(w.batch(&writes, &[]).unwrap_err(), (Status::ENOSPC, None), "values of attributes count, too");
    w.batch(&writes[..2], &[]).unwrap();
}

//= wire-spec.md#11-5-caching-and-metadata
//= type=test
//# A mutation whose `expect` names a version other than the current one MUST fail with VERSION_CHANGED and change nothing.
#[test]
fn a_mutation_depends_on_the_versions_that_it_expects() {
    let mut w = World::new();
    let file = w.file(b"a");
    assert_eq!(w.expecting(file, 2), Err(Status::VERSION_CHANGED));
    assert_eq!(w.expecting(file, 0), Err(Status::VERSION_CHANGED), "it exists");
    assert_eq!(w.expecting(ObjectId(99), 1), Err(Status::VERSION_CHANGED), "it does not");
    assert_eq!(w.attr(ROOT_DIR).unwrap().mode, 0o755);
    w.expecting(file, 1).unwrap();
    w.expecting(ObjectId(99), 0).unwrap();
    let expect = [Expect { object: file, version: 1 }; 9];
    let item = [write(file, 0, b"x", false).into()];
    assert_eq!(w.batch(&item, &expect).unwrap_err(), (Status::E2BIG, None));
    w.batch(&item, &expect[..8]).unwrap();
    assert_eq!(w.batch(&item, &expect[..1]).unwrap_err(), (Status::VERSION_CHANGED, None), "the batch has changed it");
    assert_eq!(get(&mut w, file, b"a", 0), Err(Status::ENODATA));
    let names = [Bytes8(b"a")];
    let walked = w.read(cistern_wire::Lookup { ask: ASK, start: ROOT_DIR, want: cistern_wire::Want::Nothing, names: list_of(&names) }, 504);
    assert!(walked.is_ok() && w.attr(file).unwrap().kind == ObjectKind::File);
}
