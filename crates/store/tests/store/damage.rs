//! Damage at rest: bytes that flip, files that are cut. A clear error or the whole truth; never wrong data, never a panic, and nothing
//! made worse.

use crate::world::{NUMBERED, Numbers, ask, copy_dir, entry, hand, newest_numbered, numbered, opened, wait};
use bytes::Bytes;
use cistern_server::store::{Answer, Query};
use cistern_store::{OpenError, Problem, StoppedStore};
use std::fs;
use std::path::{Path, PathBuf};

/// Batches in the store: some in tables, some in the journal.
const BATCHES: u64 = 120;
/// Bytes of a file of which each is flipped; of longer ones so many are chosen.
const EACH: u64 = 64;

/// A store with tables and a journal, in order.
fn store(dir: &Path) -> PathBuf {
    let path = dir.join("sound");
    drop(opened(&path));
    let mut store = StoppedStore::open(&path).unwrap();
    for id in 1..=BATCHES {
        store.write(numbered(id).into_iter().map(|(key, value)| (key.to_bytes(), value))).unwrap();
        if id == BATCHES / 2 {
            store.compact().unwrap();
        }
    }
    drop(store);
    path
}

/// What is found when a damaged store is opened and read through.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    All,
    Refused(Problem),
    Unreadable(String),
}

fn look(image: &Path) -> Found {
    match StoppedStore::open(image) {
        Ok(store) => match newest_numbered(&store) {
            Ok(newest) => {
                assert_eq!(newest, BATCHES, "the last batches are gone without a word");
                Found::All
            }
            Err(what) => Found::Unreadable(what),
        },
        Err(OpenError { problem, what, .. }) => {
            assert!(!what.is_empty());
            Found::Refused(problem)
        }
    }
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// Runs `damage` on a copy for each place in each file; the original must be found sound when the file is put back.
fn each_file(damage: impl Fn(&mut Vec<u8>, &mut Numbers, u64), places: impl Fn(u64) -> u64) -> Vec<(String, Found)> {
    let dir = tempfile::tempdir().unwrap();
    let sound = store(dir.path());
    assert_eq!(look(&sound), Found::All);
    let (image, mut numbers, mut found) = (dir.path().join("image"), Numbers(11), Vec::new());
    for file in files(&sound) {
        let name = file.strip_prefix(&sound).unwrap().to_owned();
        let bytes = fs::read(&file).unwrap();
        for place in 0..places(bytes.len() as u64) {
            copy_dir(&sound, &image);
            let mut damaged = bytes.clone();
            damage(&mut damaged, &mut numbers, place);
            fs::write(image.join(&name), &damaged).unwrap();
            let seen = look(&image);
            if matches!(seen, Found::Refused(_)) {
                fs::write(image.join(&name), &bytes).unwrap();
                assert_eq!(look(&image), Found::All, "{} was refused, and something was changed", name.display());
            }
            found.push((name.display().to_string(), seen));
            fs::remove_dir_all(&image).unwrap();
        }
    }
    found
}

#[test]
fn any_flipped_byte_is_an_error_or_harmless() {
    let flip = |bytes: &mut Vec<u8>, numbers: &mut Numbers, place: u64| {
        let len = bytes.len() as u64;
        let at = if len <= EACH { place } else { numbers.below(len) };
        if let Some(byte) = bytes.get_mut(usize::try_from(at).unwrap()) {
            *byte ^= 1 << numbers.below(8);
        }
    };
    let found = each_file(flip, |len| len.min(EACH));
    for what in ["format", "data/version", "data/keyspaces/1/current", "data/1.jnl"] {
        let of_it: Vec<_> = found.iter().filter(|(name, _)| name == what).collect();
        assert!(!of_it.is_empty(), "no flips in {what}");
        for (_, found) in of_it {
            assert_eq!(*found, Found::Refused(Problem::Damaged), "{what}");
        }
    }
    let tables = found.iter().filter(|(name, found)| name.contains("/tables/") && *found != Found::All).count();
    assert!(tables > 0, "no flip in a table was noticed");
}

#[test]
fn a_file_cut_at_any_length_is_an_error_or_harmless() {
    let steps = |len: u64| if len <= EACH { len } else { EACH };
    let cut = |bytes: &mut Vec<u8>, _: &mut Numbers, place: u64| {
        let len = bytes.len() as u64;
        bytes.truncate(usize::try_from(place * len / steps(len).max(1)).unwrap());
    };
    let found = each_file(cut, steps);
    for (name, found) in &found {
        if !["lock", "data/lock", "witness"].contains(&name.as_str()) && !name.starts_with("cut") {
            assert!(!matches!(found, Found::All), "{name} was cut, and nobody noticed");
        }
    }
}

/// Flips the byte at a share of the journal's written bytes, and opens; what was refused must be left as it was.
fn flipped_journal_is_refused(image: &Path, parts: usize, of: usize) {
    let path = files(&image.join("data")).into_iter().rfind(|path| path.extension().is_some_and(|what| what == "jnl")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    bytes[used * parts / of] ^= 4;
    fs::write(&path, &bytes).unwrap();
    assert_eq!(look(image), Found::Refused(Problem::Damaged), "byte {parts}/{of} of {used} is flipped");
    assert!(fs::read(&path).unwrap() == bytes, "the journal was refused, and changed");
}

#[test]
fn damage_before_a_whole_transaction_is_refused_and_nothing_changed_whatever_the_witness_says() {
    let dir = tempfile::tempdir().unwrap();
    let sound = store(dir.path());
    let image = dir.path().join("image");
    let witnesses: [fn(&Path); 3] =
        [|_| (), |path| fs::remove_file(path).unwrap(), |path| fs::write(path, "not what was written").unwrap()];
    for witness in witnesses {
        for parts in [0, 1, 3, 500, 900] {
            copy_dir(&sound, &image);
            witness(&image.join("witness"));
            flipped_journal_is_refused(&image, parts, 1_000);
            assert!(!image.join("cut-off").exists(), "something was cut off");
            fs::remove_dir_all(&image).unwrap();
        }
    }
}

#[test]
fn the_only_transaction_of_a_journal_is_put_back_when_it_was_promised() {
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("store");
    drop(opened(&image));
    flipped_journal_is_refused(&image, 1, 2);
}

#[test]
fn a_table_that_goes_bad_under_a_running_store_fails_those_who_need_it_and_lies_to_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let sound = store(dir.path());
    let mut running = opened(&sound);
    for file in files(&sound.join("data/keyspaces/1/tables")) {
        let bytes: Vec<_> =
            fs::read(&file).unwrap().iter().enumerate().map(|(at, byte)| if at % 700 == 350 { !byte } else { *byte }).collect();
        // In place: the store has the file open.
        std::os::unix::fs::FileExt::write_all_at(&fs::File::options().write(true).open(&file).unwrap(), &bytes, 0).unwrap();
    }
    let (mut failed, mut found) = (0, 0);
    for id in 1..=BATCHES {
        for (key, value) in numbered(id).into_iter().take(usize::try_from(NUMBERED).unwrap()) {
            match ask(&mut running, Query::Get(key)) {
                Answer::Failed => failed += 1,
                answer => {
                    assert_eq!(answer, Answer::Value(value), "batch {id}");
                    found += 1;
                }
            }
        }
    }
    assert!(failed > 0 && found > 0, "{failed} failed, {found} found");
    hand(&mut running, 1, vec![(entry(9, "new"), Some(Bytes::new()))]);
    wait(&mut running, 1);
}

#[test]
fn a_copy_that_kept_files_only_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let mut store = opened(&path);
    hand(&mut store, 1, numbered(1));
    wait(&mut store, 1);
    drop(store);
    let keyspaces = path.join("data/keyspaces");
    let empty = ["0", "1"].map(|keyspace| keyspaces.join(keyspace).join("tables"));
    let removed = empty.iter().filter(|tables| fs::remove_dir(tables).is_ok()).count();
    assert!(removed > 0, "no directory of tables is empty");
    drop(opened(&path));
    assert_eq!(newest_numbered(&StoppedStore::open(&path).unwrap()), Ok(1));
}
