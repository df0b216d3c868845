//! Losses of power: images of the store's files as a crash leaves them, at every sync and in between.
//!
//! What was synced is in every image. What was written since then may be there in part, in any order of sectors, or as if never written;
//! the witness, which is never synced, is the older one.

use crate::world::{Numbers, copy_dir, hand, newest_numbered, numbered, opened, wait};
use bytes::Bytes;
use cistern_server::store::{BatchId, Key};
use cistern_store::StoppedStore;
use cistern_wire::ObjectId;
use std::fs;
use std::path::{Path, PathBuf};

const SECTOR: usize = 512;

/// The newest batch in an image, which must open.
fn newest(image: &Path) -> BatchId {
    let store = StoppedStore::open(image).unwrap_or_else(|e| panic!("{e}"));
    newest_numbered(&store).unwrap()
}

/// The journal that is written.
fn journal(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("data")).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| path.extension().is_some_and(|e| e == "jnl")).max().expect("a journal")
}

/// What was written to it, without the zeros after that.
fn written(path: &Path) -> Vec<u8> {
    let mut bytes = fs::read(path).unwrap();
    bytes.truncate(bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    bytes
}

#[test]
fn every_batch_that_was_durable_is_in_every_later_image() {
    let dir = tempfile::tempdir().unwrap();
    let (live, image) = (dir.path().join("live"), dir.path().join("image"));
    let mut store = opened(&live);
    for id in 1..=30 {
        hand(&mut store, id, numbered(id));
        wait(&mut store, id);
        copy_dir(&live, &image);
        assert_eq!(newest(&image), id);
        fs::remove_dir_all(&image).unwrap();
    }
}

/// A store with `synced` batches synced and one more written, in two images: before the last was written, and after.
fn torn(dir: &Path, synced: BatchId, more: usize) -> (PathBuf, Vec<u8>, Vec<u8>) {
    let (live, before) = (dir.join("live"), dir.join("before"));
    let mut store = opened(&live);
    for id in 1..=synced {
        hand(&mut store, id, numbered(id));
        wait(&mut store, id);
    }
    copy_dir(&live, &before);
    let mut last = numbered(synced + 1);
    last.push((Key::Block(ObjectId(7), 0), Some(Bytes::from(vec![0xA5; more]))));
    hand(&mut store, synced + 1, last);
    wait(&mut store, synced + 1);
    let (was, is) = (written(&journal(&before)), written(&journal(&live)));
    assert!(is.starts_with(&was) && is.len() > was.len() + more);
    (before, was, is)
}

/// Opens the store with these bytes as its journal, twice: what the first opening has made of it must stay.
fn reopened(before: &Path, image: &Path, bytes: &[u8]) -> BatchId {
    copy_dir(before, image);
    fs::write(journal(image), bytes).unwrap();
    let found = newest(image);
    assert_eq!(newest(image), found);
    let mut store = opened(image);
    hand(&mut store, 1, numbered(found + 1));
    wait(&mut store, 1);
    drop(store);
    assert_eq!(newest(image), found + 1, "it can be written again");
    fs::remove_dir_all(image).unwrap();
    found
}

#[test]
fn a_transaction_cut_anywhere_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (before, was, is) = torn(dir.path(), 3, 0);
    let image = dir.path().join("image");
    for len in (was.len()..is.len()).step_by(9) {
        assert_eq!(reopened(&before, &image, &is[..len]), 3, "cut at {len} of {}", is.len());
        let mut blank = is[..len].to_vec();
        blank.resize(is.len() + 10_000, 0);
        assert_eq!(reopened(&before, &image, &blank), 3, "zeros from {len} of {}", is.len());
    }
    assert_eq!(reopened(&before, &image, &is), 4);
}

#[test]
fn a_transaction_of_which_any_sectors_are_lost_or_torn_is_not_there_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let (before, was, is) = torn(dir.path(), 3, 5_000);
    let image = dir.path().join("image");
    let mut numbers = Numbers(7);
    for round in 0..60 {
        let mut bytes = is.clone();
        let mut lost = false;
        for start in (was.len() / SECTOR * SECTOR..is.len()).step_by(SECTOR) {
            // Lost, torn within, or full of what was there before.
            let keep =
                [SECTOR, SECTOR, 0, usize::try_from(numbers.below(SECTOR as u64)).unwrap()][usize::try_from(numbers.below(4)).unwrap()];
            let junk = if round % 3 == 2 { u8::try_from(numbers.below(256)).unwrap() } else { 0 };
            let end = (start + SECTOR).min(is.len());
            for byte in &mut bytes[(start + keep).max(was.len()).min(end)..end] {
                lost |= *byte != junk;
                *byte = junk;
            }
        }
        assert_eq!(reopened(&before, &image, &bytes), if lost { 3 } else { 4 }, "round {round}");
    }
}

#[test]
fn what_a_crash_leaves_of_making_a_store_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let live = dir.path().join("live");
    drop(opened(&live));
    // The record is the last file to come and `making` the first.
    fs::remove_file(live.join("format")).unwrap();
    fs::write(live.join("making"), "").unwrap();
    fs::write(journal(&live), "half of a journal").unwrap();
    let mut store = opened(&live);
    hand(&mut store, 1, numbered(1));
    wait(&mut store, 1);
    drop(store);
    assert_eq!(newest(&live), 1);
}
