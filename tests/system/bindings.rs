//! The libraries for other languages, with real processes: their own tests, against a server and two agents.

use cistern_testkit::{Agent, CISTERN, Server, program, said};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server and three agents, as the tests of the libraries find them in their environment.
struct World {
    server: Server,
    one: Agent,
    two: Agent,
    /// One that a test may kill.
    mortal: Agent,
}

impl World {
    fn start() -> Self {
        let server = Server::with(&["--lease", "1s"]);
        let [one, two, mortal] = ["one", "two", "mortal"].map(|label| Agent::start(&server, label));
        Self { server, one, two, mortal }
    }

    fn place(&self, command: &mut Command) {
        for (name, agent) in [("ONE", &self.one), ("TWO", &self.two), ("MORTAL", &self.mortal)] {
            command.env(format!("CISTERN_TEST_{name}"), agent.socket());
            command.env(format!("CISTERN_TEST_{name}_PROCESS"), agent.process.id().to_string());
        }
        command.env("CISTERN_TEST_PROGRAM", program(CISTERN)).env("CISTERN_TEST_CONTROL", self.server.control());
        command.env("CISTERN_TEST_SERVER_PROCESS", self.server.process.id().to_string());
    }
}

fn bindings(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bindings").join(name)
}

/// Python, if it is new enough: that of the system first, for it has what the system's packages bring.
fn python() -> Option<Command> {
    let new_enough = "import sys; sys.exit(sys.version_info < (3, 11))";
    let is_new_enough = |name: &&str| Command::new(name).args(["-c", new_enough]).status().is_ok_and(|status| status.success());
    let found = ["/usr/bin/python3", "python3"].into_iter().find(is_new_enough);
    if found.is_none() {
        eprintln!("skipped: python3 of 3.11 or later is not installed");
    }
    found.map(|name| {
        let mut python = Command::new(name);
        // Nothing is written beside the sources.
        python.env("PYTHONDONTWRITEBYTECODE", "1").env("PYTHONPATH", bindings("python").join("src"));
        python
    })
}

#[test]
fn the_python_package_keeps_its_promises() {
    let Some(mut python) = python() else { return };
    let world = World::start();
    world.place(&mut python);
    let output =
        python.args(["-W", "error", "-m", "unittest", "discover", "-s", "tests"]).current_dir(bindings("python")).output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}

#[test]
fn the_c_library_keeps_its_promises_and_its_example_runs() {
    if !Command::new("cc").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: there is no C compiler");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let build = |name: &str| {
        let built = dir.path().join(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror", "-g", "-fsanitize=address,undefined", "-o"]);
        let output = cc.arg(&built).arg(format!("{name}.c")).arg("cistern.c").current_dir(bindings("c")).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        built
    };
    let world = World::start();
    let mut test = Command::new(build("test"));
    world.place(&mut test);
    let output = test.output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    let example = build("example");
    for run in 1..3 {
        let output = Command::new(&example).args(["/job", "/count"]).env("CISTERN_AGENT", world.one.socket()).output().unwrap();
        assert!(output.status.success() && said(&output).contains(&format!("run {run} under token ")), "{}", said(&output));
    }
}

#[test]
fn the_client_in_go_of_the_page_works_under_a_lock_and_cancels_what_takes_too_long() {
    let go = |dir: &Path, args: &[&str]| Command::new("go").args(args).current_dir(dir).env("GOCACHE", dir.join("cache")).output();
    let dir = tempfile::tempdir().unwrap();
    if !go(dir.path(), &["version"]).is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: go is not installed");
        return;
    }
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/api.md")).unwrap();
    let source = page.split("```go\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(dir.path().join("main.go"), source).unwrap();
    fs::write(dir.path().join("go.mod"), "module client\n\ngo 1.19\n").unwrap();
    for args in [&["vet", "."][..], &["build", "-o", "client", "."]] {
        let output = go(dir.path(), args).unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
    let world = World::start();
    let run = || Command::new(dir.path().join("client")).arg(world.one.socket()).output().unwrap();
    let output = run();
    assert!(output.status.success(), "{}", said(&output));
    assert!(world.server.ok(&["cat", "/report"]).starts_with("under token "));
    // Another has the lock: it is waited for, and then no more, nor taken.
    let mut line = world.two.line();
    let (hold, _) = line.lock("/job");
    let output = run();
    assert!(output.status.code() == Some(1) && said(&output).contains("ECANCELED"), "{}", said(&output));
    line.unlock(hold);
    // An agent that is not there, or ends, is an error.
    let output = Command::new(dir.path().join("client")).arg(dir.path().join("none")).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("none"), "{}", said(&output));
}

#[test]
fn the_python_package_is_typed() {
    if !Command::new("mypy").arg("--version").output().is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: mypy is not installed");
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let mut mypy = Command::new("mypy");
    mypy.args(["--strict", "--python-version", "3.11", "--cache-dir"]).arg(cache.path()).args(["src", "tests"]);
    let output = mypy.current_dir(bindings("python")).env("MYPYPATH", "src:tests").output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
}
