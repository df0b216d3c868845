//! A process that forks while it has a client: in the child nothing of it works, nothing of it hangs, and nothing is sent.
//!
//! The fork is a real one: a second process of this test program makes a client and becomes a daemon (`daemon(3)` forks and lets the
//! parent exit), and what was the child tells in a file what it met.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use cistern_client::{Client, ErrorKind, LockState};

use crate::world::{World, eventually};

const SERVER: &str = "CISTERN_TEST_FORK_SERVER";
const REPORT: &str = "CISTERN_TEST_FORK_REPORT";

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# The state of a session MUST NOT be usable in a forked child.
#[test]
fn nothing_of_a_client_can_be_used_in_a_forked_child_and_its_end_there_sends_nothing() {
    let (world, client) = World::with_file("/a");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("report");
    let forks = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "forked::process_that_forks", "--ignored"])
        .env(SERVER, world.address.to_string())
        .env(REPORT, &path)
        .status()
        .unwrap();
    assert!(forks.success(), "the parent ended when it had forked");
    eventually("a report of the child", || path.exists());
    let report = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = report.lines().collect();
    let (parent, met) = lines.split_first().unwrap();
    assert_eq!(met.len(), 9, "{report}");
    for refused in &met[..6] {
        assert!(refused.contains(&format!("made in process {parent}")) && refused.contains("make a client of its own here"), "{refused}");
    }
    assert_eq!(met[6..], ["Lost false", "Some(Lost)", "its own works"]);
    let refused = client.lock("/a").try_once().wait().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Locked, "the child gave nothing back and closed no session");
}

#[test]
#[ignore = "the process that forks, run by the test above"]
fn process_that_forks() {
    let (Ok(server), Ok(report)) = (std::env::var(SERVER), std::env::var(REPORT)) else { return };
    let client = Client::builder().insecure().server(server.as_str()).connect().unwrap();
    client.read("/a").wait().unwrap();
    let file = client.open("/a").wait().unwrap();
    let guard = client.lock("/a").wait().unwrap();
    let mut call = client.ping().start();
    let parent = std::process::id();
    nix::unistd::daemon(true, true).unwrap();
    assert_ne!(std::process::id(), parent);

    let refused = [
        client.read("/a").wait().unwrap_err(),
        file.metadata().wait().unwrap_err(),
        call.wait_timeout(Duration::from_secs(60)).unwrap().unwrap_err(),
        client.lock("/b").wait().unwrap_err(),
        client.close().wait().unwrap_err(),
        client.lease().unwrap_err(),
    ];
    let mut met = vec![parent.to_string()];
    met.extend(refused.iter().map(ToString::to_string));
    met.push(format!("{:?} {}", guard.state(), guard.is_valid()));
    met.push(format!("{:?}", guard.events().next_timeout(Duration::from_secs(60))));
    assert_eq!((guard.state(), guard.events().next_timeout(Duration::ZERO)), (LockState::Lost, Some(LockState::Lost)));
    drop((guard, call, file, client));
    let own = Client::builder().insecure().server(server.as_str()).connect().and_then(|own| own.ping().wait());
    met.push(own.map_or_else(|error| error.to_string(), |_| "its own works".to_owned()));
    write(&PathBuf::from(report), &met.join("\n"));
    // Of the test's other threads there are only the memories.
    std::process::exit(0);
}

/// Whole or not at all, for somebody is looking.
fn write(path: &Path, text: &str) {
    let beside = path.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, path).unwrap();
}
