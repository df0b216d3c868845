//! Claims about realms: what belongs to which, what no name leads out of, and what their use and quotas come to.

use super::{ASK, LARGE, ROOT_DIR, RenameRule, SMALL, World, create, cx, link, mkdir, rename, rmdir, unlink, write};
use crate::namespace::{Mutation, NamespaceLimits, PlanError};
use crate::principals::PrincipalId;
use crate::store::{ReadError, Seen};
use alloc::vec::Vec;
use cistern_wire::limits::REALM_DEPTH_MAX;
use cistern_wire::{
    Bytes8, Item, Limit, Limited, ListRealms, MakeRealm, Message, ObjectId, Reader, Realm, Reply, SetQuota, Status, Terms, Whose,
};

/// Rows of a listing: number, parent, objects and path.
type Listed = Vec<(u32, u32, u64, Vec<u8>)>;

pub(super) fn make_realm(dir: ObjectId, name: &[u8]) -> MakeRealm<'_> {
    MakeRealm { ask: ASK, dir, name: Bytes8(name), mode: 0o755, uid: 1, gid: 2, terms: Terms::NONE }
}

pub(super) const fn set_quota(root: ObjectId, objects: Option<u64>, bytes: Option<u64>) -> SetQuota<'static> {
    SetQuota { ask: ASK, root, objects, bytes, terms: Terms::NONE }
}

impl World {
    /// Begins a realm; its directory and its number.
    #[track_caller]
    fn realm(&mut self, dir: ObjectId, name: &[u8]) -> (ObjectId, Realm) {
        let attr = self.done(make_realm(dir, name))[1].attr;
        (attr.object, attr.realm)
    }

    /// Objects and bytes of a realm.
    fn used(&mut self, realm: Realm) -> (u64, u64) {
        let record = *self.store.view(&Seen::default()).realm(realm).expect("it is there");
        (record.objects, record.bytes)
    }

    /// What a mutation would use too much of.
    fn limited<'a>(&mut self, message: impl Into<Message<'a>>) -> Limited {
        let message = message.into();
        let mutation = Mutation::of(&message).expect("a mutation");
        let data: Vec<&[u8]> = mutation.items().map(|item| crate::namespace::carried(&item)).collect();
        let cx = cx(self.wall_ns, &self.principals);
        match self.namespace.plan(&self.store.view(&Seen::default()), &mutation, &data, cx) {
            Err(PlanError::Limited(limited)) => limited,
            other => panic!("{other:?}"),
        }
    }

    /// Realms as they are listed: number, parent, objects and path.
    fn listed(&mut self, realm: u32, after: u32, room: usize) -> Result<(Listed, bool), Status> {
        let ask = ListRealms { ask: ASK, realm: Realm(realm), after: Realm(after) };
        let mut reply = Vec::new();
        loop {
            let asker = self.principals.asker(PrincipalId::ANYBODY);
            match self.namespace.list_realms(&self.store.view(&Seen::default()), &ask, asker, (room, false), &mut reply) {
                Ok(()) => break,
                Err(ReadError::NotCached(queries)) => self.load(queries),
                Err(ReadError::Failed(status)) => return Err(status),
            }
        }
        assert!(reply.len() <= room);
        let Ok(Reply::RealmRows(rows)) = Reader::new(&reply).get() else { panic!("not a REALM_ROWS reply") };
        let row = |row: cistern_wire::RealmRow<'_>| (row.realm.0, row.parent.0, row.objects, row.place.0.to_vec());
        Ok((rows.rows.iter().map(row).collect(), rows.end))
    }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# The use of a realm MUST change by the transaction that changes what it counts, with that of every realm around it.
#[test]
fn what_is_made_belongs_to_the_realm_of_its_directory() {
    let mut w = World::new();
    let (team, realm) = w.realm(ROOT_DIR, b"team");
    assert_eq!((realm, w.attr(ROOT_DIR).unwrap().realm), (Realm(2), Realm::TREE));
    let dir = w.dir(team, b"d");
    let file = w.done(create(dir, b"f"))[1].attr;
    assert_eq!(file.realm, realm);
    let (inner, within) = w.realm(dir, b"inner");
    assert_eq!((within, w.attr(inner).unwrap().realm), (Realm(3), Realm(3)));
    w.done(write(file.object, 0, b"12345", false));
    w.done(create(inner, b"g"));
    assert_eq!((w.used(realm), w.used(within)), ((5, 5), (2, 0)), "a realm within counts in the one around it");
    w.restart();
    assert_eq!((w.used(realm), w.used(within)), ((5, 5), (2, 0)));
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# LINK and RENAME MUST fail with EXDEV, and change nothing, where a name would lead from one realm into another.
#[test]
fn no_name_leads_from_one_realm_into_another() {
    let mut w = World::new();
    let (team, _) = w.realm(ROOT_DIR, b"team");
    let file = w.file(b"f");
    let theirs = w.done(create(team, b"t"))[1].attr.object;
    assert_eq!(w.fails(link(file, team, b"l")), Status::EXDEV);
    assert_eq!(w.fails(link(theirs, ROOT_DIR, b"l")), Status::EXDEV);
    for rule in RenameRule::ALL.iter().copied() {
        assert_eq!(w.fails(rename((ROOT_DIR, b"f"), (team, b"t"), rule)), Status::EXDEV);
        assert_eq!(w.fails(rename((team, b"t"), (ROOT_DIR, b"g"), rule)), Status::EXDEV);
        assert_eq!(w.fails(rename((ROOT_DIR, b"team"), (team, b"x"), rule)), Status::EXDEV, "a realm does not go into itself");
    }
    // A realm's directory has its name in the realm around it.
    let dir = w.dir(ROOT_DIR, b"d");
    w.done(rename((ROOT_DIR, b"team"), (dir, b"moved"), RenameRule::Replace));
    w.done(rename((dir, b"moved"), (ROOT_DIR, b"f"), RenameRule::Exchange));
    assert_eq!(w.attr(team).unwrap().realm, Realm(2));
}

#[test]
fn a_realm_goes_with_its_directory_and_its_number_is_not_given_again() {
    let mut w = World::new();
    let (team, realm) = w.realm(ROOT_DIR, b"team");
    w.done(create(team, b"f"));
    assert_eq!(w.fails(rmdir(ROOT_DIR, b"team")), Status::ENOTEMPTY);
    w.done(unlink(team, b"f"));
    w.done(rmdir(ROOT_DIR, b"team"));
    assert_eq!(w.store.view(&Seen::default()).realm(realm), Err(ReadError::Failed(Status::EIO)));
    w.restart();
    assert_eq!(w.store.view(&Seen::default()).realm_count(), 0);
    assert_eq!(w.realm(ROOT_DIR, b"team").1, Realm(3));
    // Replaced by another directory.
    w.dir(ROOT_DIR, b"d");
    w.done(rename((ROOT_DIR, b"d"), (ROOT_DIR, b"team"), RenameRule::Replace));
    assert_eq!(w.listed(3, 0, LARGE), Err(Status::ESTALE));
}

const fn over(limit: Limit, realm: Realm, used: u64, bound: u64) -> Limited {
    Limited { limit, whose: Whose::Realm, realm, used, bound, retry_ms: 0 }
}

//= wire-spec.md#11-9-realms-and-rights
//= type=test
//# A mutation that would leave a realm with more than before and more than a quota of it MUST fail with LIMITED.
#[test]
fn a_quota_bounds_a_realm_with_all_realms_within_it() {
    let mut w = World::new();
    let (team, realm) = w.realm(ROOT_DIR, b"team");
    let (inner, within) = w.realm(team, b"inner");
    let file = w.done(create(inner, b"f"))[1].attr.object;
    w.done(set_quota(team, Some(3), Some(4)));
    assert_eq!(w.limited(create(inner, b"g")), over(Limit::Objects, realm, 3, 3));
    w.done(write(file, 0, b"1234", false));
    assert_eq!(w.limited(write(file, 4, b"5", false)), over(Limit::Bytes, realm, 4, 4));
    assert_eq!(w.fails(write(file, 4, b"5", false)), Status::EDQUOT);
    // Elsewhere there is room, and what takes away or adds nothing goes on.
    w.done(create(ROOT_DIR, b"g"));
    w.done(write(file, 0, b"abcd", false));
    w.done(set_quota(team, None, Some(1)));
    w.done(write(file, 0, b"abc", true));
    assert_eq!(w.fails(write(file, 3, b"d", false)), Status::EDQUOT, "above its quota nothing is added");
    w.done(set_quota(team, Some(0), Some(0)));
    w.done(set_quota(inner, Some(2), None));
    assert_eq!(w.limited(create(inner, b"g")), over(Limit::Objects, within, 2, 2));
    w.done(create(team, b"g"));
}

#[test]
fn a_batch_counts_what_all_its_items_leave() {
    let mut w = World::new();
    let (team, realm) = w.realm(ROOT_DIR, b"team");
    let file = w.done(create(team, b"f"))[1].attr.object;
    w.done(set_quota(team, Some(2), None));
    let swap: [Item<'_>; 2] = [create(team, b"g").into(), unlink(team, b"f").into()];
    w.batch(&swap, &[]).unwrap();
    assert_eq!((w.attr(file), w.used(realm)), (Err(Status::ESTALE), (2, 0)));
    let more: [Item<'_>; 2] = [create(team, b"h").into(), create(team, b"i").into()];
    assert_eq!(w.batch(&more, &[]).unwrap_err(), (Status::EDQUOT, None));
    // A realm that a batch makes, fills, bounds and takes away again.
    let made = ObjectId::made_by;
    let whole: [Item<'_>; 5] = [
        make_realm(ROOT_DIR, b"r").into(),
        make_realm(made(0), b"s").into(),
        set_quota(made(1), Some(1), None).into(),
        rmdir(made(0), b"s").into(),
        mkdir(made(0), b"d").into(),
    ];
    let (_, done) = w.batch(&whole, &[]).unwrap();
    let begun = w.attr(done[0].object).unwrap().realm;
    assert_eq!((begun, w.used(begun)), (Realm(3), (2, 0)));
    assert_eq!(w.realm(ROOT_DIR, b"next").1, Realm(4), "what never was takes no number");
}

#[test]
fn only_a_directory_that_begins_a_realm_has_quotas() {
    let mut w = World::new();
    let (team, _) = w.realm(ROOT_DIR, b"team");
    let dir = w.dir(team, b"d");
    for object in [ROOT_DIR, dir] {
        assert_eq!(w.fails(set_quota(object, Some(1), None)), Status::EINVAL);
    }
    assert_eq!(w.fails(set_quota(ObjectId(99), Some(1), None)), Status::ESTALE);
    let before = w.attr(team).unwrap().version;
    w.done(set_quota(team, None, None));
    assert_eq!(w.attr(team).unwrap().version, before, "nothing was set");
}

#[test]
fn realms_are_bounded_in_number_and_in_depth() {
    let mut w = World::with(NamespaceLimits { realms_max: REALM_DEPTH_MAX, ..NamespaceLimits::default() });
    let mut dir = ROOT_DIR;
    for _ in 1..REALM_DEPTH_MAX {
        dir = w.realm(dir, b"r").0;
    }
    assert_eq!(w.fails(make_realm(dir, b"r")), Status::EMLINK);
    w.realm(ROOT_DIR, b"s");
    assert_eq!(w.fails(make_realm(ROOT_DIR, b"t")), Status::ENOSPC);
    w.done(rmdir(ROOT_DIR, b"s"));
    w.realm(ROOT_DIR, b"t");
    assert_eq!(w.fails(make_realm(ROOT_DIR, b"u")), Status::ENOSPC, "one that is gone counts no more, before that is durable too");
    w.restart();
    assert_eq!(w.fails(make_realm(ROOT_DIR, b"u")), Status::ENOSPC);
    w.done(rmdir(ROOT_DIR, b"t"));
    w.disk.settle(&mut w.store);
    w.realm(ROOT_DIR, b"u");
    assert_eq!(w.fails(make_realm(ROOT_DIR, b"v")), Status::ENOSPC);
}

#[test]
fn realms_are_listed_with_paths_in_pages() {
    let mut w = World::new();
    let (team, _) = w.realm(ROOT_DIR, b"team");
    w.realm(team, b"inner");
    w.realm(ROOT_DIR, b"z");
    w.restart();
    let row = |realm, parent, objects, path: &[u8]| (realm, parent, objects, path.to_vec());
    let all = [row(1, 0, 4, b"/"), row(2, 1, 2, b"/team"), row(3, 2, 1, b"/team/inner"), row(4, 1, 1, b"/z")];
    assert_eq!(w.listed(0, 0, LARGE), Ok((all.to_vec(), true)));
    assert_eq!(w.listed(0, 2, LARGE), Ok((all[2..].to_vec(), true)));
    assert_eq!(w.listed(3, 0, SMALL), Ok((all[2..3].to_vec(), true)));
    assert_eq!(w.listed(1, 0, SMALL), Ok((all[..1].to_vec(), true)));
    assert_eq!(w.listed(9, 0, SMALL), Err(Status::ESTALE));
    let (mut seen, mut after) = (Vec::new(), 0);
    loop {
        let (rows, end) = w.listed(0, after, 130).unwrap();
        after = rows.last().expect("a page has a row").0;
        seen.extend(rows);
        if end {
            break;
        }
    }
    assert_eq!(seen, all);
}
