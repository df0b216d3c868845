//! Stopped stores and copies of running ones: checked, restored, compacted, backed up; and refused with a clear error.

use cistern_testkit::{Agent, CISTERND, Server, base64, command, said};
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use tempfile::TempDir;

/// A store with files in it, on which no server runs.
struct Stopped {
    dir: TempDir,
    store: PathBuf,
}

fn cisternd(args: &[&str]) -> Output {
    command(CISTERND, args).output().unwrap()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// What `check --json` says, and its exit status.
fn check(store: &Path) -> (Option<i32>, Value) {
    let output = cisternd(&["check", text(store), "--json"]);
    (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output))))
}

fn faults(report: &Value) -> Vec<&str> {
    report["findings"].as_array().unwrap().iter().map(|finding| finding["fault"].as_str().unwrap()).collect()
}

/// Makes what every test here looks at: five files, one of them large, one with two names; a link; a directory.
fn fill(server: &Server) {
    let mut a = Agent::start(server, "A");
    for n in 0..4 {
        a.put(&format!("/f{n}"), "some text");
    }
    a.put("/large", &"x".repeat(200_000));
    a.ok(json!({ "op": "mkdir", "path": "/d", "mode": "0755" }));
    a.ok(json!({ "op": "link", "existing": "/f0", "path": "/d/again" }));
    a.ok(json!({ "op": "symlink", "path": "/d/link", "target": "../f1" }));
    a.process.end();
}

impl Stopped {
    fn new() -> Self {
        let mut server = Server::durable(&[]);
        fill(&server);
        assert_eq!(server.process.end(), Some(0));
        let store = server.store();
        Self { store, dir: server.dir }
    }

    fn place(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

#[test]
fn a_store_that_a_server_left_is_sound_and_its_figures_are_those_of_its_files() {
    let stopped = Stopped::new();
    let (code, report) = check(&stopped.store);
    assert_eq!((code, report["sound"].as_bool(), report["gravest"].is_null()), (Some(0), Some(true), true), "{report}");
    let figure = |name: &str| report[name].as_u64().unwrap();
    assert_eq!((figure("directories"), figure("files"), figure("symlinks"), figure("entries")), (2, 5, 1, 8));
    assert_eq!((figure("content_bytes"), report["counters"]["objects"].as_u64()), (4 * 9 + 200_000 + 5, Some(8)));
    let people = cisternd(&["check", text(&stopped.store)]);
    assert!(people.status.success() && said(&people).contains("sound; 2 directories, 5 files, 1 links"), "{}", said(&people));
}

#[test]
fn a_store_in_use_is_not_checked_nor_compacted_nor_copied_behind_its_server_s_back() {
    let server = Server::durable(&[]);
    let store = server.store();
    let elsewhere = server.dir.path().join("elsewhere");
    for args in [&["check", text(&store)][..], &["compact", text(&store)], &["restore", text(&store), text(&elsewhere)]] {
        let output = cisternd(args);
        assert!(output.status.code() == Some(75) && said(&output).contains(text(&store)), "{args:?}: {}", said(&output));
    }
    assert!(!elsewhere.exists());
    assert_eq!(server.status()["serving"], true);
}

#[test]
fn what_is_no_store_is_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let missing = cisternd(&["check", text(&dir.path().join("missing"))]);
    assert_eq!(missing.status.code(), Some(66), "{}", said(&missing));
    fs::write(dir.path().join("notes.txt"), "no store").unwrap();
    let foreign = cisternd(&["check", text(dir.path())]);
    assert_eq!(foreign.status.code(), Some(65), "{}", said(&foreign));
    let unnamed = command(CISTERND, &["check"]).env("CISTERN_STORE", dir.path().join("missing")).output().unwrap();
    assert_eq!(unnamed.status.code(), Some(66), "{}", said(&unnamed));
    assert_eq!(cisternd(&["compact", text(dir.path())]).status.code(), Some(65));
    assert_eq!(fs::read(dir.path().join("notes.txt")).unwrap(), b"no store");
}

/// Files of a directory tree.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy_tree(from: &Path, to: &Path) {
    for path in files(from) {
        let target = to.join(path.strip_prefix(from).unwrap());
        fs::create_dir_all(target.parent().unwrap()).unwrap();
        fs::copy(path, target).unwrap();
    }
}

#[test]
fn a_byte_that_was_flipped_in_the_engine_s_files_is_found_or_harmless_and_never_a_panic() {
    let stopped = Stopped::new();
    // What was written last is still in the journal; compacted, it is in tables.
    assert!(cisternd(&["compact", text(&stopped.store)]).status.success());
    let counters = check(&stopped.store).1["counters"].clone();
    // Opening a store changes its files, as opening a database does.
    let whole = stopped.place("whole");
    copy_tree(&stopped.store, &whole);
    let mut found = 0;
    for (n, path) in files(&whole).into_iter().filter(|path| fs::metadata(path).unwrap().len() > 0).enumerate() {
        let damaged = stopped.place(&format!("damaged{n}"));
        copy_tree(&whole, &damaged);
        let target = damaged.join(path.strip_prefix(&whole).unwrap());
        let mut bytes = fs::read(&target).unwrap();
        let at = bytes.len() / 2;
        bytes[at] ^= 0x10;
        fs::write(&target, bytes).unwrap();
        let output = cisternd(&["check", text(&damaged), "--json"]);
        let said = said(&output);
        assert!(matches!(output.status.code(), Some(0 | 1 | 65 | 76)) && !said.contains("panicked"), "{}: {said}", path.display());
        found += u32::from(output.status.code() != Some(0));
        if output.status.code() == Some(0) {
            let report: Value = serde_json::from_slice(&output.stdout).unwrap();
            assert_eq!(report["counters"], counters, "{}: {said}", path.display());
        }
    }
    assert!(found > 0, "no flipped byte was noticed");
}

#[test]
fn a_restored_copy_has_every_file_and_a_higher_epoch_and_nobody_s_sessions() {
    let stopped = Stopped::new();
    let before = check(&stopped.store).1;
    let epoch = |report: &Value| report["counters"]["epoch"].as_u64().unwrap();
    let restored = stopped.place("restored");
    let output = cisternd(&["restore", text(&stopped.store), text(&restored), "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert_eq!(answer["epoch"].as_u64(), Some(epoch(&before) + 1));
    let (code, report) = check(&restored);
    assert_eq!((code, report["files"].as_u64()), (Some(0), before["files"].as_u64()));
    let server = Server::on_store(&restored);
    let status = server.status();
    assert_eq!((status["epoch"].as_u64(), status["store"].as_str().map(str::len)), (Some(epoch(&before) + 1), Some(32)));
    assert_eq!(status["grace"]["blind"], true, "{status}");
    let mut b = Agent::start(&server, "B");
    assert_eq!(b.read("/f1").unwrap(), base64(b"some text"));
    b.put("/new", "goes on");
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# A restore MUST end all sessions, raise the store epoch, and wait a grace without reclaim.
#[test]
fn whatever_is_restored_twice_gives_larger_tokens_the_second_time() {
    let stopped = Stopped::new();
    let other = stopped.place("other");
    copy_tree(&stopped.store, &other);
    let life = |copy: &Path, name: &str| {
        let place = stopped.place(name);
        let output = cisternd(&["restore", text(copy), text(&place)]);
        assert!(output.status.success(), "{}", said(&output));
        let mut server = Server::on_store(&place);
        let mut agent = Agent::start(&server, "B");
        let (hold, token) = agent.lock("/f1");
        agent.unlock(hold);
        agent.put("/made", "");
        let object = agent.ok(json!({ "op": "stat", "path": "/made", "follow": true }))["attr"]["object"].as_u64().unwrap();
        agent.process.end();
        let identity = (server.count("epoch"), server.count("incarnation"));
        server.process.end();
        (identity, token, object)
    };
    let first = life(&stopped.store, "first");
    // The copy of the copy knows nothing of that, and lives begin by the second.
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    let second = life(&other, "second");
    let third = life(&stopped.store, "third");
    assert_eq!((second.0.0, third.0.0), (first.0.0, first.0.0 + 1));
    for (later, earlier) in [(second, first), (third, second)] {
        assert!(later.0 > earlier.0, "{:?} after {:?}: agents refuse what is lower", later.0, earlier.0);
        assert!(later.1 > earlier.1 && later.2 > earlier.2, "{later:?} after {earlier:?}");
    }
}

#[test]
fn nothing_is_restored_over_anything_nor_from_a_copy_that_is_not_sound() {
    let stopped = Stopped::new();
    let taken = stopped.place("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("precious"), "").unwrap();
    let output = cisternd(&["restore", text(&stopped.store), text(&taken)]);
    assert!(output.status.code() == Some(2) && said(&output).contains("not empty"), "{}", said(&output));
    let missing = stopped.place("missing");
    assert_eq!(cisternd(&["restore", text(&missing), text(&stopped.place("new"))]).status.code(), Some(66));
    fs::create_dir(stopped.place("half.restoring")).unwrap();
    let output = cisternd(&["restore", text(&stopped.store), text(&stopped.place("half"))]);
    assert!(output.status.code() == Some(2) && said(&output).contains("half.restoring"), "{}", said(&output));
    let output = cisternd(&["restore", text(&stopped.store), text(&stopped.place("last")), "--above", "255"]);
    assert!(output.status.code() == Some(1) && said(&output).contains("epoch"), "{}", said(&output));
    for name in ["new", "half", "last"] {
        assert!(!stopped.place(name).exists(), "{name}");
    }
    // One file is lost from its directory: checked, told with its path, not restored unless asked for.
    let mut store = cistern_store::StoppedStore::open(&stopped.store).unwrap();
    let entry = store.iter().map(Result::unwrap).find(|(key, _)| key.ends_with(b"f2")).unwrap();
    store.write([(entry.0, None)]).unwrap();
    drop(store);
    let (code, report) = check(&stopped.store);
    assert_eq!((code, faults(&report)), (Some(1), vec!["wrong_entry_count", "lost_object"]), "{report}");
    let lost = report["findings"].as_array().unwrap().iter().find(|finding| finding["fault"] == "lost_object").unwrap();
    assert_eq!((lost["path"].as_str(), lost["severity"].as_str()), (Some("/f2"), Some("loss")));
    let output = cisternd(&["restore", text(&stopped.store), text(&stopped.place("new"))]);
    assert!(output.status.code() == Some(65) && said(&output).contains("--damaged"), "{}", said(&output));
    let output = cisternd(&["restore", "--damaged", text(&stopped.store), text(&stopped.place("new"))]);
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn compacting_changes_nothing_but_space() {
    let stopped = Stopped::new();
    let before = check(&stopped.store).1;
    let output = cisternd(&["compact", text(&stopped.store), "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(answer["bytes_before"].as_u64().unwrap() > 0 && answer["bytes_after"].as_u64().unwrap() > 0);
    let after = check(&stopped.store).1;
    for name in ["records", "record_bytes", "counters", "files", "content_bytes"] {
        assert_eq!(before[name], after[name], "{name}");
    }
}

#[test]
fn a_backup_of_a_running_server_has_all_that_was_answered_before_and_is_sound() {
    let server = Server::durable(&[]);
    fill(&server);
    // Somebody writes all the while.
    let busy = Agent::start(&server, "busy");
    let mut line = busy.line();
    let writer = std::thread::spawn(move || {
        for n in 0..300 {
            line.put(&format!("/busy{}", n % 20), &n.to_string());
        }
    });
    let backup = server.dir.path().join("backup");
    let control = text(server.control()).to_owned();
    let output = server.cistern(&["admin", "backup", text(&backup), "--control", &control, "--json"]);
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(answer["records"].as_u64().unwrap() > 20);
    writer.join().unwrap();
    let (code, report) = check(&backup);
    assert_eq!(code, Some(0), "{report}");
    let state = server.dir.path().join("state");
    let refused = cisternd(&["--store", text(&backup), "--insecure", "--state", text(&state), "--listen", "127.0.0.1:0"]);
    assert!(refused.status.code() == Some(65) && said(&refused).contains("cisternd restore"), "{}", said(&refused));
    assert!(cisternd(&["compact", text(&backup)]).status.success());
    let restored = server.dir.path().join("restored");
    assert!(cisternd(&["restore", text(&backup), text(&restored)]).status.success());
    let other = Server::on_store(&restored);
    let mut b = Agent::start(&other, "B");
    for path in ["/f0", "/f3", "/d/again"] {
        assert_eq!(b.read(path).unwrap(), base64(b"some text"), "{path}");
    }
    // The one that was backed up goes on.
    Agent::start(&server, "C").put("/after", "text");
}

#[test]
fn a_backup_that_cannot_be_made_is_told_and_the_server_goes_on() {
    let server = Server::durable(&[]);
    let control = text(server.control()).to_owned();
    let backup = |dir: &str| server.cistern(&["admin", "backup", dir, "--control", &control]);
    let taken = server.dir.path().join("taken");
    fs::create_dir(&taken).unwrap();
    fs::write(taken.join("precious"), "").unwrap();
    let output = backup(text(&taken));
    assert!(output.status.code() == Some(65) && said(&output).contains(text(&taken)), "{}", said(&output));
    let output = backup("/proc/backup");
    assert!(matches!(output.status.code(), Some(65..=77)) && said(&output).contains("/proc/backup"), "{}", said(&output));
    let relative = server.ask(&json!({ "op": "backup", "dir": "relative" })).unwrap_err();
    assert_eq!(relative["exit"], 2);
    Agent::start(&server, "A").put("/f", "text");
    let volatile = Server::start();
    let output = volatile.cistern(&["admin", "backup", text(&volatile.dir.path().join("b")), "--control", text(volatile.control())]);
    assert!(output.status.code() == Some(1) && said(&output).contains("--volatile"), "{}", said(&output));
}

#[test]
fn a_store_that_was_stopped_by_kill_is_sound() {
    let mut server = Server::durable(&[]);
    fill(&server);
    server.process.kill();
    let (code, report) = check(&server.store());
    assert_eq!((code, report["files"].as_u64()), (Some(0), Some(5)), "{report}");
}
