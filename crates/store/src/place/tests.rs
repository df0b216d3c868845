//! What is a store's directory and what is not, and that one at a time has it.

use super::*;

const NEW: Making = Making::New(StoreId([7; 16]));

fn take(dir: &Path, making: Making) -> Result<StoreDirectory, OpenError> {
    StoreDirectory::take(dir, making, Purpose::Serve, |data| fs::create_dir(data).map_err(|e| OpenError::io(data, "", &e)))
}

fn problem(result: Result<StoreDirectory, OpenError>) -> Problem {
    result.expect_err("taken").problem
}

#[test]
fn a_new_store_has_the_id_it_was_given_and_keeps_it() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a/b");
    assert_eq!(problem(take(&path, Making::Never)), Problem::Missing);
    assert!(!path.exists());
    assert_eq!(take(&path, NEW).unwrap().id(), StoreId([7; 16]));
    assert_eq!(take(&path, Making::New(StoreId([8; 16]))).unwrap().id(), StoreId([7; 16]));
    assert_eq!(take(&path, Making::Never).unwrap().id(), StoreId([7; 16]));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A server MUST hold a lock on its store as long as it runs, on a file system where such locks are reliable.
#[test]
fn one_at_a_time_has_a_store_and_only_where_locks_are_coherent() {
    let dir = tempfile::tempdir().unwrap();
    let first = take(dir.path(), NEW).unwrap();
    let refused = take(dir.path(), NEW).unwrap_err();
    assert_eq!(refused.problem, Problem::InUse);
    assert!(refused.what.contains(&std::process::id().to_string()), "{refused}");
    drop(first);
    take(dir.path(), Making::Never).unwrap();
    for kind in [0x6969, 0x6573_5546, 0xFF53_4D42] {
        assert!(doubtful(FsType(kind)).is_some(), "{kind:x}");
    }
    // ext4, XFS, btrfs, tmpfs.
    for kind in [0xEF53, 0x5846_5342, 0x9123_683E, 0x0102_1994] {
        assert_eq!(doubtful(FsType(kind)), None, "{kind:x}");
    }
}

#[test]
fn what_is_something_else_is_refused_and_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("thesis.tex"), "x").unwrap();
    let refused = take(dir.path(), NEW).unwrap_err();
    assert!(refused.problem == Problem::Foreign && refused.what.contains("thesis.tex"), "{refused}");
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    assert_eq!(problem(take(&dir.path().join("thesis.tex"), NEW)), Problem::Foreign);
    assert_eq!(problem(take(&dir.path().join("thesis.tex/below"), NEW)), Problem::Foreign);
    fs::write(dir.path().join("format"), "SQLite format 3").unwrap();
    assert_eq!(problem(take(dir.path(), NEW)), Problem::Foreign);
}

#[test]
fn a_copy_is_served_only_after_its_mark_was_taken_away() {
    let dir = tempfile::tempdir().unwrap();
    let fill = |data: &Path| fs::create_dir(data).map_err(|e| OpenError::io(data, "", &e));
    drop(StoreDirectory::take(dir.path(), NEW, Purpose::Copy, fill).unwrap());
    let lock = fs::read(dir.path().join("lock")).unwrap();
    for making in [NEW, Making::Never] {
        let refused = take(dir.path(), making).unwrap_err();
        assert!(refused.problem == Problem::Copy && refused.what.contains("cisternd restore"), "{refused}");
    }
    assert_eq!(fs::read(dir.path().join("lock")).unwrap(), lock);
    let place = StoreDirectory::take(dir.path(), Making::Never, Purpose::Work, fill).unwrap();
    assert!(!place.is_new());
    place.unmark().unwrap();
    drop(place);
    assert_eq!(take(dir.path(), Making::Never).unwrap().id(), StoreId([7; 16]));
}

#[test]
fn a_store_whose_record_is_gone_is_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    drop(take(dir.path(), NEW).unwrap());
    fs::remove_file(dir.path().join("format")).unwrap();
    assert_eq!(problem(take(dir.path(), NEW)), Problem::Damaged);
    assert!(dir.path().join("data").exists());
}

#[test]
fn what_is_beside_a_file_that_is_called_making_is_not_taken_for_ours() {
    let begun = "cistern store in the making\n";
    let cases = [
        ("how to make it", "data/mine", false),
        ("", "data/mine", false),
        (begun, "thesis.tex", false),
        ("", "lock", true),
        ("cistern st", "lock", true),
        ("\0\0\0\0", "data/mine", false),
        ("\0\0\0\0", "lock", true),
        ("cistern\0\0\0", "lock", true),
        (begun, "data/half", true),
    ];
    for (text, beside, ours) in cases {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("making"), text).unwrap();
        fs::create_dir(dir.path().join("data")).unwrap();
        fs::write(dir.path().join(beside), "x").unwrap();
        let took = take(dir.path(), NEW);
        assert_eq!(took.is_ok(), ours, "{text:?} {beside}: {took:?}");
        if let Err(refused) = took {
            assert_eq!(refused.problem, Problem::Foreign, "{refused}");
            assert_eq!(fs::read(dir.path().join("making")).unwrap(), text.as_bytes());
            assert!(dir.path().join(beside).exists() && !dir.path().join("lock").exists());
        }
    }
}

#[test]
fn making_that_was_broken_off_begins_again() {
    let dir = tempfile::tempdir().unwrap();
    let broken = StoreDirectory::take(dir.path(), NEW, Purpose::Serve, |data| {
        fs::create_dir(data).unwrap();
        fs::write(data.join("half"), "x").unwrap();
        Err(OpenError::new(Problem::Io, data, "broken off"))
    });
    assert_eq!(broken.unwrap_err().problem, Problem::Io);
    assert_eq!(problem(take(dir.path(), Making::Never)), Problem::Missing);
    let place = take(dir.path(), NEW).unwrap();
    assert!(!place.data().join("half").exists() && !dir.path().join("making").exists());
}
