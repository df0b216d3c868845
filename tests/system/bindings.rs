//! The libraries for other languages, with real processes: their own tests, against a server and two agents.

use cistern_testkit::{Agent, CISTERN, Server, program, said};
use std::path::PathBuf;
use std::process::Command;

/// A server and two agents, as the tests of the libraries find them in their environment.
struct World {
    server: Server,
    one: Agent,
    two: Agent,
}

impl World {
    fn start() -> Self {
        let server = Server::with(&["--lease", "1s"]);
        let (one, two) = (Agent::start(&server, "one"), Agent::start(&server, "two"));
        Self { server, one, two }
    }

    fn place(&self, command: &mut Command) {
        command.env("CISTERN_TEST_ONE", self.one.socket()).env("CISTERN_TEST_TWO", self.two.socket());
        command.env("CISTERN_TEST_PROGRAM", program(CISTERN)).env("CISTERN_TEST_CONTROL", self.server.control());
        command.env("CISTERN_TEST_SERVER", self.server.process.id().to_string());
    }
}

fn bindings(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("bindings").join(name)
}

/// Python, if it is new enough.
fn python() -> Option<Command> {
    let new_enough = "import sys; sys.exit(sys.version_info < (3, 11))";
    let found = Command::new("python3").args(["-c", new_enough]).status().is_ok_and(|status| status.success());
    if !found {
        eprintln!("skipped: python3 of 3.11 or later is not installed");
    }
    found.then(|| {
        let mut python = Command::new("python3");
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
