//! Settings of a running server: which are in force, and what SIGHUP takes up.

use cistern_testkit::{Agent, CISTERN, Server, command, eventually, program, said};
use nix::pty::openpty;
use nix::sys::signal::Signal;
use nix::unistd::mkfifo;
use serde_json::Value;
use std::fs;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::Duration;

/// A server's settings in force, by name: value and source.
fn in_force(server: &Server, name: &str) -> (Value, String) {
    let told = server.ok(&["settings", "--json", "--control", server.control().to_str().unwrap()]);
    let mut rows = told.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let row = rows.find(|row| row["setting"] == name).unwrap_or_else(|| panic!("no {name} in {told}"));
    (row["value"].clone(), row["source"].as_str().unwrap().to_owned())
}

#[test]
fn a_hangup_takes_up_bounds_on_load_and_leaves_the_rest_to_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    fs::write(&file, "[server]\nsessions-max = 1\nwindow = 32\n").unwrap();
    let mut server = Server::with(&["--lease", "1s", "--config", file.to_str().unwrap()]);
    assert_eq!(in_force(&server, "server.sessions-max"), (1.into(), format!("settings file {} line 2", file.display())));
    assert_eq!(in_force(&server, "server.lease"), ("1s".into(), "--lease".to_owned()));
    assert_eq!(in_force(&server, "server.surrender").1, "default");
    let mut agent = Agent::start(&server, "A");
    agent.put("/f", "");
    let refused = server.cistern(&["ls", "/", "--timeout", "300ms"]);
    assert_eq!(refused.status.code(), Some(69), "{}", said(&refused));
    // A mistake changes nothing.
    fs::write(&file, "[server]\nsessions-max = 0\n").unwrap();
    server.process.signal(Signal::SIGHUP);
    fs::write(&file, "[server]\nsessions-max = 100\nwindow = 64\n").unwrap();
    eventually("the server has taken up the file", || {
        server.process.signal(Signal::SIGHUP);
        (in_force(&server, "server.sessions-max").0 == 100).then_some(())
    });
    assert_eq!(server.ok(&["ls", "/"]), "f\n");
    assert_eq!(in_force(&server, "server.window").0, 32, "sessions have been told of the window");
    agent.put("/g", "");
    assert_eq!(server.process.end(), Some(0));
}

#[test]
fn a_settings_file_that_cannot_be_read_for_now_keeps_neither_the_server_nor_its_end_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    fs::write(&file, "[server]\nsessions-max = 10\n").unwrap();
    let mut server = Server::with(&["--lease", "1s", "--config", file.to_str().unwrap()]);
    let mut agent = Agent::with(&server, server.address, "A", &["--config", file.to_str().unwrap()]);
    // Nobody writes to the pipe, nor types at the terminal.
    let terminal = openpty(None, None).unwrap();
    let name = fs::read_link(format!("/proc/self/fd/{}", terminal.slave.as_raw_fd())).unwrap();
    let make: [&dyn Fn(); 2] =
        [&|| mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap(), &|| std::os::unix::fs::symlink(&name, &file).unwrap()];
    for make in make {
        fs::remove_file(&file).unwrap();
        make();
        for process in [&server.process, &agent.process] {
            // A second one waits for the first.
            (0..3).for_each(|_| process.signal(Signal::SIGHUP));
        }
        thread::sleep(Duration::from_millis(300));
        assert_eq!(server.status()["serving"], true);
        agent.put("/f", "");
        assert_eq!(in_force(&server, "server.sessions-max").0, 10);
    }
    assert_eq!(agent.process.end(), Some(0));
    assert_eq!(server.process.end(), Some(0));
}

#[test]
fn a_settings_file_that_is_no_file_is_refused_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    for name in [file.as_path(), dir.path()] {
        let name = name.to_str().unwrap();
        let cistern = program(CISTERN);
        let output = command("timeout", &["20", cistern.to_str().unwrap(), "settings", "--effective", "--config", name]).output().unwrap();
        assert!(output.status.code() == Some(2) && said(&output).contains("not a regular file"), "{}", said(&output));
    }
}

#[test]
fn settings_in_force_are_shown_with_where_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    fs::write(&file, "[agent]\nidle = \"lazy\"\n[client]\nserver = \"a\"\n").unwrap();
    let show = |args: &[&str], variables: &[(&str, &str)]| {
        let all = [&["settings", "--effective", "--config", file.to_str().unwrap()], args].concat();
        let output = command(CISTERN, &all).envs(variables.iter().copied()).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let line = |told: &str, name: &str| {
        let line = told.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap_or_else(|| panic!("no {name} in {told}"));
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let at = |line: usize| format!("settings file {} line {line}", file.display());
    let told = show(&[], &[]);
    assert_eq!(line(&told, "agent.idle"), format!("agent.idle \"lazy\" {}", at(2)));
    assert_eq!(line(&told, "client.server"), format!("client.server \"a\" {}", at(4)));
    assert_eq!(line(&told, "server.lease"), "server.lease \"2s\" default");
    let told = show(&["--timeout", "3s"], &[("CISTERN_SERVER", "b,c"), ("CISTERN_LOG", "warn")]);
    assert_eq!(line(&told, "agent.timeout"), "agent.timeout \"3s\" --timeout");
    assert_eq!(line(&told, "client.server"), "client.server [\"b\", \"c\"] CISTERN_SERVER");
    assert_eq!(line(&told, "log.filter"), "log.filter \"warn\" CISTERN_LOG");
    assert!(line(&show(&["--server", "d"], &[]), "client.server").ends_with(" --server"));
}
