//! Claims about the table alone: what follows from a right, what is looked up again, who can be added.

use super::{GRANTS_MAX, PrincipalId, Principals, Rights};
use alloc::collections::BTreeMap;
use cistern_wire::{Attr, ObjectKind, Realm, Status, Want};
use proptest::prelude::*;

/// Realm 2 is in the tree's, 3 in 2, 4 in the tree's.
fn around(realm: Realm) -> Option<Realm> {
    match realm.0 {
        2 | 4 => Some(Realm(1)),
        3 => Some(Realm(2)),
        _ => None,
    }
}

fn one() -> (Principals, PrincipalId) {
    let mut table = Principals::default();
    let (who, _) = table.add(b"web", None, false).unwrap();
    (table, who)
}

const fn attr(realm: Realm, kind: ObjectKind) -> Attr {
    Attr { realm, kind, ..Attr::FILE }
}

#[test]
fn a_right_lets_pass_through_all_realms_around_and_no_further() {
    let (mut table, who) = one();
    table.grant(who, Realm(3), Rights::READ, around).unwrap();
    let has = [1, 2, 3, 4].map(|realm| table.asker(who).rights(Realm(realm)));
    assert_eq!(has, [Rights::PASS, Rights::PASS, Rights::READ.with(Rights::PASS), Rights::NONE]);
    table.grant(who, Realm(3), Rights::NONE, around).unwrap();
    assert!((1..=4).all(|realm| table.asker(who).rights(Realm(realm)).is_empty()));
}

#[test]
fn what_is_hidden_is_as_what_is_absent() {
    let (mut table, who) = one();
    table.grant(who, Realm(2), Rights::WRITE, around).unwrap();
    let asker = table.asker(who);
    let check = |realm, kind| asker.check(&attr(Realm(realm), kind), Rights::READ);
    assert_eq!(check(4, ObjectKind::Directory), Err(Status::ESTALE));
    assert_eq!((check(1, ObjectKind::File), check(1, ObjectKind::Directory)), (Err(Status::ESTALE), Err(Status::EACCES)));
    assert_eq!(check(2, ObjectKind::File), Err(Status::EACCES));
    assert_eq!(asker.check(&attr(Realm(2), ObjectKind::File), Rights::WRITE), Ok(()));
    assert_eq!(asker.check_way(&attr(Realm(1), ObjectKind::Directory)), Ok(()));
    assert_eq!(asker.check_way(&attr(Realm(1), ObjectKind::Symlink)), Err(Status::ESTALE));
}

#[test]
fn cache_locks_are_what_may_be_done_under_them() {
    let (mut table, who) = one();
    let file = attr(Realm(1), ObjectKind::File);
    for (rights, wanted) in [
        (Rights::NONE, [Want::Nothing, Want::Nothing]),
        (Rights::WRITE, [Want::Nothing, Want::Nothing]),
        (Rights::READ, [Want::Shared, Want::Shared]),
        (Rights::READ.with(Rights::WRITE), [Want::Shared, Want::Exclusive]),
    ] {
        table.grant(who, Realm(1), rights, around).unwrap();
        let asker = table.asker(who);
        assert_eq!([Want::Shared, Want::Exclusive].map(|want| asker.wanted(&file, want)), wanted, "{rights}");
    }
}

//= docs/sealed.md#joining-rosters
//= type=test
//# The first key MUST NOT be registered for another principal.
#[test]
fn names_and_keys_are_of_one_and_keys_for_ever() {
    let mut table = Principals::default();
    let (web, _) = table.add(b"web", Some([1; 32]), false).unwrap();
    assert_eq!(table.add(b"web", None, false).map(|_| ()), Err(Status::EEXIST));
    assert_eq!(table.add(b"db", Some([1; 32]), false).map(|_| ()), Err(Status::EEXIST));
    for name in [&b""[..], b"a\nb", &[b'x'; 65], b"\xff"] {
        assert_eq!(table.add(name, None, false).map(|_| ()), Err(Status::EINVAL));
    }
    let (db, _) = table.add(b"db", Some([2; 32]), true).unwrap();
    assert_eq!(table.rename(db, b"web").map(|_| ()), Err(Status::EEXIST));
    assert_eq!(table.rename(db, b"db").map(|_| ()), Ok(()));
    table.grant(web, Realm(1), Rights::ALL, around).unwrap();
    table.revoke(web).unwrap();
    assert_eq!((table.revoke(web).map(|_| ()), table.asker(web).rights(Realm(1))), (Err(Status::ENOENT), Rights::NONE));
    assert_eq!(table.grant(web, Realm(1), Rights::READ, around).map(|_| ()), Err(Status::ENOENT));
    assert_eq!(table.add(b"new", Some([1; 32]), false).map(|_| ()), Err(Status::EEXIST), "a key that was withdrawn comes back never");
    assert_eq!(table.rename(db, b"web").map(|_| ()), Ok(()));
    assert!(table.asker(db).is_operator());
    assert!(!table.asker(db).may_somewhere(Rights::READ), "an operator reads nothing by that");
}

#[test]
fn rights_are_in_few_realms_that_there_are() {
    let (mut table, who) = one();
    let tree = |realm: Realm| (realm.0 > 1).then_some(Realm(1));
    for realm in 1..=u32::try_from(GRANTS_MAX).unwrap() {
        table.grant(who, Realm(realm), Rights::READ, tree).unwrap();
    }
    assert_eq!(table.grant(who, Realm(999), Rights::READ, tree).map(|_| ()), Err(Status::EDQUOT));
    assert_eq!(table.grant(who, Realm(999), Rights::READ, |_| None).map(|_| ()), Err(Status::ENOENT));
    // Realms that are gone take no room.
    let few = |realm: Realm| tree(realm).filter(|_| realm.0 < 10 || realm.0 == 999);
    table.grant(who, Realm(999), Rights::READ, few).unwrap();
    assert_eq!(table.get(who).unwrap().rights.len(), 10);
}

#[test]
fn letters_of_rights_are_read_as_they_are_written() {
    for letters in ["r", "rw", "rwl", "rwlo", "lo"] {
        assert_eq!(alloc::format!("{}", Rights::from_letters(letters).unwrap()), letters);
    }
    for letters in ["", "x", "rr", "R", "r w"] {
        assert_eq!(Rights::from_letters(letters), None, "{letters}");
    }
}

proptest! {
    /// Whatever was looked up before, the answer is that of the table as it is.
    #[test]
    fn what_is_kept_of_a_look_up_goes_with_the_rights(
        steps in proptest::collection::vec((1u32..5, 0u8..16, any::<bool>()), 1..40),
    ) {
        let (mut table, who) = one();
        let mut given: BTreeMap<u32, Rights> = BTreeMap::new();
        for (realm, bits, grants) in steps {
            if grants {
                let rights = Rights::from_bits(bits).unwrap();
                table.grant(who, Realm(realm), rights, around).unwrap();
                given.insert(realm, rights);
            }
            let mut expected = given.get(&realm).copied().unwrap_or_default();
            let within = given.iter().any(|(of, rights)| {
                let way = core::iter::successors(Some(Realm(*of)), |at| around(*at));
                !rights.is_empty() && way.into_iter().any(|at| at.0 == realm)
            });
            if within {
                expected = expected.with(Rights::PASS);
            }
            prop_assert_eq!(table.asker(who).rights(Realm(realm)), expected);
        }
    }
}
