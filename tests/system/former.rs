//! Programs of the former release and of this one together: CISTERN_FORMER names the directory in which the former ones are. And agents of wire version 1
//! that are no programs of this tree: `version_1.py` stays as it is as long as that version is spoken.

use cistern_testkit::{CISTERN, CISTERND, Server, program, said};
use serde_json::Value;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that is ended with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a daemon with `--json`; what it says when it is ready.
fn start(program: &Path, args: &[&str]) -> (Running, Value) {
    let mut child = Command::new(program).args(args).arg("--json").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let ready = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{}: {line:?}", program.display()));
    (Running(child), ready)
}

fn ok(program: &Path, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    assert!(output.status.success(), "{} {args:?}: {}", program.display(), said(&output));
    String::from_utf8(output.stdout).unwrap()
}

/// Files, locks with tokens that grow, membership and a host agent, by commands of one release at a server of another.
fn work(cistern: &Path, other: &Path, server: &str, dir: &Path) {
    let at = ["--insecure", "--server", server];
    let run = |program: &Path, args: &[&str]| ok(program, &[args, &at].concat());
    run(cistern, &["mkdir", "/d"]);
    let file = dir.join("text");
    std::fs::write(&file, "written by one, read by the other").unwrap();
    run(cistern, &["put", file.to_str().unwrap(), "/d/f"]);
    assert_eq!(run(other, &["cat", "/d/f"]), "written by one, read by the other");
    let token = |program: &Path| {
        let told = ok(program, &[&["lock", "/d/f"][..], &at, &["--", "sh", "-c", "echo $CISTERN_TOKEN"]].concat());
        told.trim().parse::<u64>().unwrap_or_else(|_| panic!("no token: {told:?}"))
    };
    let tokens = [token(cistern), token(other), token(cistern)];
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let state = dir.join("agent");
    let (_agent, ready) = start(cistern, &[&["agent", "run", "--state", state.to_str().unwrap()][..], &at].concat());
    let socket = ready["socket"].as_str().unwrap();
    // The commands of each release speak with the agent of the other one.
    for program in [cistern, other] {
        assert_eq!(ok(program, &["cat", "/d/f", "--agent", socket]), "written by one, read by the other");
    }
    run(other, &["rm", "-r", "/d"]);
}

#[test]
fn programs_of_the_former_release_and_of_this_one_work_together() {
    let Some(former) = std::env::var_os("CISTERN_FORMER").map(PathBuf::from) else {
        eprintln!("skipped: CISTERN_FORMER does not name the programs of a former release");
        return;
    };
    let (cistern, former_cistern) = (program(CISTERN), former.join("cistern"));
    let dir = tempfile::tempdir().unwrap();
    let server = Server::unrecorded(&["--lease", "1s"]);
    work(&former_cistern, &cistern, &server.address.to_string(), dir.path());
    drop(server);
    let state = dir.path().join("server");
    let args =
        ["--volatile", "--new-cluster", "--insecure", "--lease", "1s", "--listen", "127.0.0.1:0", "--state", state.to_str().unwrap()];
    let (_server, ready) = start(&former.join("cisternd"), &args);
    work(&cistern, &former_cistern, ready["listen"][0].as_str().unwrap(), dir.path());
}

#[test]
fn a_store_of_the_former_release_is_taken_up() {
    let Some(former) = std::env::var_os("CISTERN_FORMER").map(PathBuf::from) else {
        eprintln!("skipped: CISTERN_FORMER does not name the programs of a former release");
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (store, state, own) = (path("store"), path("server"), path("own"));
    ok(&former.join("cisternd"), &["init", "--new-cluster", "--state", &state, "--credentials", &own, &store]);
    let args = ["--insecure", "--lease", "1s", "--listen", "127.0.0.1:0", "--state", &state, "--store", &store];
    let serve = |program: &Path| {
        let (running, ready) = start(program, &args);
        (running, ready["listen"][0].as_str().unwrap().to_owned())
    };
    let (old, server) = serve(&former.join("cisternd"));
    ok(&former.join("cistern"), &["mkdir", "/kept", "--insecure", "--server", &server]);
    drop(old);
    let (_new, server) = serve(&program(CISTERND));
    assert!(ok(&program(CISTERN), &["ls", "/", "--insecure", "--server", &server]).contains("kept"));
}

#[test]
fn agents_of_wire_version_1_that_do_not_change_work_with_this_server_and_its_agents() {
    if !Command::new("python3").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: python3 is not installed");
        return;
    }
    let server = Server::unrecorded(&["--lease", "1s"]);
    let (host, port) = (server.address.ip().to_string(), server.address.port().to_string());
    let at = server.address.to_string();
    let at = ["--insecure", "--server", at.as_str()];
    let run = |args: &[&str]| ok(&program(CISTERN), &[args, &at].concat());
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("text");
    std::fs::write(&file, "written by this release").unwrap();
    run(&["put", file.to_str().unwrap(), "/f"]);
    let agents = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/system/version_1.py");
    let told = ok(Path::new("python3"), &[agents.to_str().unwrap(), &host, &port, "f"]);
    let token = told.strip_prefix("found written by this release\ntoken ").and_then(|token| token.trim().parse::<u64>().ok());
    let token = token.unwrap_or_else(|| panic!("{told}"));
    assert_eq!(run(&["cat", "/f"]), "written by two of version 1");
    let later = ok(&program(CISTERN), &[&["lock", "/f"][..], &at, &["--", "sh", "-c", "echo $CISTERN_TOKEN"]].concat());
    assert!(later.trim().parse::<u64>().unwrap() > token, "{later} after {token}");
}
