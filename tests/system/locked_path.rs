//! A lock is taken by a path, and the path stays with the file as long as it is held (section 11.4).

use cistern_testkit::{Agent, Server, eventually, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// `cistern lock PATH -- sleep`, once the command runs; what it says on standard error is in a file.
struct Locked {
    child: Child,
    said: PathBuf,
}

impl Locked {
    fn start(server: &Server, path: &str) -> Self {
        Self::by(server, path, &[])
    }

    /// With more options.
    fn by(server: &Server, path: &str, options: &[&str]) -> Self {
        let dir = tempfile::tempdir_in(server.dir.path()).unwrap().keep();
        let (said, ready) = (dir.join("said"), dir.join("ready"));
        let script = format!("touch {}; sleep 600", ready.display());
        let mut command = server.prepared(&[&["lock", path], options, &["--", "sh", "-c", &script]].concat());
        let child = command.stdin(Stdio::null()).stderr(fs::File::create(&said).unwrap()).spawn().unwrap();
        eventually("the command runs", || ready.exists().then_some(()));
        Self { child, said }
    }

    fn words(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }
}

impl Drop for Locked {
    fn drop(&mut self) {
        // The command gets it, and ends.
        let _ = kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

#[test]
fn a_locked_file_is_not_taken_from_its_path_and_the_refusal_names_the_holder() {
    let server = Server::with(&["--lease", "2s"]);
    for made in [&["mkdir", "/jobs"][..], &["touch", "/jobs/x"], &["touch", "/jobs/z"]] {
        server.ok(made);
    }
    let locked = Locked::start(&server, "/jobs/x");
    let refused: [&[&str]; 6] = [
        &["mv", "/jobs/x", "/jobs/y"],
        &["mv", "-n", "/jobs/x", "/jobs/y"],
        &["mv", "/jobs/z", "/jobs/x"],
        &["mv", "--exchange", "/jobs/z", "/jobs/x"],
        &["mv", "--exchange", "/jobs/x", "/jobs/z"],
        &["rm", "/jobs/x"],
    ];
    for args in refused {
        let output = server.cistern(args);
        let words = said(&output);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {words}");
        assert!(words.contains("/jobs/x is locked (exclusive) by ") && words.contains("; --override-locks "), "{args:?}: {words}");
    }
    assert_eq!(server.cistern(&["lock", "--try", "/jobs/x", "--", "true"]).status.code(), Some(75));
    assert_eq!(locked.words(), "");
    server.ok(&["mv", "--override-locks", "/jobs/x", "/jobs/y"]);
    let told = eventually("the holder is told", || Some(locked.words()).filter(|words| words.ends_with('\n')));
    assert!(told.contains("warning: /jobs/x: the locked file is at /jobs/y now"), "{told}");
}

#[test]
fn programs_of_the_host_agent_that_has_the_lock_are_refused_as_others_are() {
    let server = Server::with(&["--lease", "2s"]);
    for made in [&["mkdir", "/jobs"][..], &["touch", "/jobs/x"], &["touch", "/jobs/z"]] {
        server.ok(made);
    }
    let agent = Agent::start(&server, "host");
    let socket = agent.socket();
    let cistern = |args: &[&str]| server.cistern(&[&["--agent", socket], args].concat());
    let locked = Locked::by(&server, "/jobs/x", &["--agent", socket]);
    for args in [
        &["mv", "/jobs/x", "/jobs/y"][..],
        &["mv", "-n", "/jobs/x", "/jobs/y"],
        &["mv", "/jobs/z", "/jobs/x"],
        &["mv", "--exchange", "/jobs/z", "/jobs/x"],
        &["rm", "/jobs/x"],
        &["rm", "-r", "/jobs"],
    ] {
        let output = cistern(args);
        let words = said(&output);
        assert!(output.status.code() == Some(1) && words.contains("/jobs/x is locked (exclusive) by host "), "{args:?}: {words}");
    }
    // What touches neither the file nor its name goes on; and what is forced.
    for args in
        [&["touch", "/jobs/x"][..], &["mv", "/jobs/z", "/jobs/y"], &["mv", "--override-locks", "/jobs/x", "/jobs/y"], &["ls", "/jobs"]]
    {
        let output = cistern(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    let told = eventually("the holder is told", || Some(locked.words()).filter(|words| words.ends_with('\n')));
    assert!(told.contains("warning: /jobs/x: the locked file is at /jobs/y now"), "{told}");
    drop(locked);
    assert!(cistern(&["rm", "/jobs/y"]).status.success(), "nobody holds it any more");
    // The program that has the lock may do so itself.
    server.ok(&["touch", "/jobs/own"]);
    let mut line = agent.line();
    line.lock("/jobs/own");
    line.ok(json!({ "op": "unlink", "path": "/jobs/own", "force": false }));
}

#[test]
fn a_batch_that_meets_a_locked_file_names_the_holder() {
    let server = Server::with(&["--lease", "2s"]);
    for made in [&["mkdir", "/jobs"][..], &["touch", "/jobs/x"]] {
        server.ok(made);
    }
    let agent = Agent::start(&server, "host");
    let script = server.dir.path().join("script");
    fs::write(&script, "mkdir /q\nmv /jobs/x /jobs/y\n").unwrap();
    let socket = ["--agent", agent.socket()];
    for (of_holder, of_batch) in [(&[][..], &[][..]), (&socket, &[]), (&socket, &socket)] {
        let _locked = Locked::by(&server, "/jobs/x", of_holder);
        let output = server.cistern(&[of_batch, &["batch", script.to_str().unwrap()]].concat());
        let words = said(&output);
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(words.contains(": line 2: /jobs/x to /jobs/y: ") && words.contains("/jobs/x is locked (exclusive) by "), "{words}");
    }
    assert_eq!(server.ok(&["ls", "/"]), "jobs\n");
}

#[test]
fn the_holder_of_a_lock_hears_that_a_directory_above_its_file_was_moved() {
    let server = Server::with(&["--lease", "2s"]);
    server.ok(&["mkdir", "-p", "/a/jobs"]);
    let (moved, still) = (Locked::start(&server, "/a/jobs/x"), Locked::start(&server, "/still"));
    server.ok(&["mv", "/a", "/b"]);
    let told = eventually("the holder is told", || Some(moved.words()).filter(|words| words.ends_with('\n')));
    assert!(told.contains("warning: /a/jobs/x: the locked file is at /b/jobs/x now: this lock goes on"), "{told}");
    assert_eq!(server.cistern(&["lock", "--try", "/b/jobs/x", "--", "true"]).status.code(), Some(75), "it is locked there");
    server.ok(&["mv", "/b", "/a"]);
    assert_eq!(still.words(), "", "another lock has its path");
}

#[test]
fn a_holder_that_has_no_cache_looks_at_its_path_each_quarter_of_its_lease_period() {
    let server = Server::durable(&["--lease", "1s"]);
    server.ok(&["mkdir", "-p", "/a/jobs"]);
    let locked = Locked::by(&server, "/a/jobs/x", &["--lease", "16s"]);
    // The first look comes soon, the next ones each 4 s; with a cache they would come each half second.
    let (mut requests, mut since) = (server.count("requests"), Instant::now());
    eventually("nobody asks for anything for three times as long as that", || {
        let now = server.count("requests");
        if now != requests {
            (requests, since) = (now, Instant::now());
        }
        (since.elapsed() > Duration::from_millis(1_500)).then_some(())
    });
    server.ok(&["mv", "/a", "/b"]);
    let told = eventually("the holder is told", || Some(locked.words()).filter(|words| words.ends_with('\n')));
    assert!(told.contains("warning: /a/jobs/x: the locked file is at /b/jobs/x now"), "{told}");
}

#[test]
fn a_holder_is_told_although_its_watch_has_given_way_to_other_programs_of_the_agent() {
    let server = Server::with(&["--lease", "2s"]);
    let agent = Agent::start(&server, "host");
    server.ok(&["touch", "/x"]);
    let locked = Locked::by(&server, "/x", &["--agent", agent.socket()]);
    for _ in 0..3 {
        // More than an agent serves at a time; the one idle longest gives way to each of the last.
        let lines: Vec<_> = (0..280).map(|_| agent.line()).collect();
        std::thread::sleep(Duration::from_millis(700));
        drop(lines);
    }
    server.ok(&["mv", "--override-locks", "/x", "/y"]);
    let told = eventually("the holder is told", || Some(locked.words()).filter(|words| words.ends_with('\n')));
    assert!(told.contains("warning: /x: the locked file is at /y now"), "{told}");
}
