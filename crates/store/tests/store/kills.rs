//! Kills of a process that writes much, so that journals are rotated and tables written and merged all the while.

use crate::world::{Numbers, hand, newest_numbered, numbered, opened, wait};
use bytes::Bytes;
use cistern_server::store::Key;
use cistern_store::StoppedStore;
use cistern_wire::ObjectId;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const STORE: &str = "CISTERN_TEST_STORE";
/// Batches that are handed over at once, each with a block of contents: some four groups fill what is kept in memory.
const GROUP: u64 = 128;
const BLOCK: usize = 60_000;

/// Not a test: the process that is killed. It says which batches are durable.
#[test]
#[ignore = "run by the test below, in a process of its own"]
fn writes_until_it_is_killed() {
    let Some(dir) = std::env::var_os(STORE) else { return };
    let first =
        if Path::new(&dir).join("format").exists() { newest_numbered(&StoppedStore::open(Path::new(&dir)).unwrap()).unwrap() } else { 0 };
    let mut store = opened(Path::new(&dir));
    for group in 0.. {
        for n in group * GROUP + 1..=(group + 1) * GROUP {
            let mut writes = numbered(first + n);
            let junk = Numbers(n).below(1 << 60).to_be_bytes().repeat(BLOCK / 8);
            writes.push((Key::Block(ObjectId(n % 300), 0), Some(Bytes::from(junk))));
            hand(&mut store, n, writes);
        }
        wait(&mut store, (group + 1) * GROUP);
        let mut out = std::io::stdout();
        writeln!(out, "\ndurable {}", first + (group + 1) * GROUP).and_then(|()| out.flush()).unwrap();
    }
}

fn writer(dir: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "kills::writes_until_it_is_killed", "--ignored", "--nocapture"]).env(STORE, dir);
    command.stdout(Stdio::piped()).spawn().unwrap()
}

#[test]
fn what_was_durable_survives_kills_while_tables_are_written_and_merged() {
    let dir = tempfile::tempdir().unwrap();
    let store = dir.path().join("store");
    let (mut numbers, mut promised) = (Numbers(3), 0);
    for _ in 0..3 {
        let mut child = writer(&store);
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        for _ in 0..8 + numbers.below(12) {
            let durable = lines.by_ref().map(|line| line.unwrap()).find_map(|line| line.strip_prefix("durable ").map(str::to_owned));
            promised = durable.expect("the writer has ended by itself").parse().unwrap();
        }
        std::thread::sleep(std::time::Duration::from_millis(numbers.below(120)));
        child.kill().unwrap();
        child.wait().unwrap();
        let found = newest_numbered(&StoppedStore::open(&store).unwrap()).unwrap();
        assert!(found >= promised, "{found} of {promised} that were durable");
    }
}
