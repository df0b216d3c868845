//! The log of a server that nobody reads.

use cistern_testkit::{CISTERN, CISTERND, Daemon, Line, Place, Process, command, eventually, said};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs::{self, DirBuilder, File};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::thread;

/// A stream that is full, so that whoever writes more into it waits, and its end to read from.
fn full_stream() -> (UnixStream, UnixStream) {
    let (reader, mut writer) = UnixStream::pair().unwrap();
    writer.set_nonblocking(true).unwrap();
    for size in [4_096, 1] {
        while writer.write(&vec![b'x'; size]).is_ok() {}
    }
    writer.set_nonblocking(false).unwrap();
    (reader, writer)
}

/// A server that logs all it can to a stream.
fn talkative(args: &[&str], stderr: UnixStream) -> Process {
    let mut server = command(CISTERND, args);
    // The command goes with its end of the stream.
    Process::spawn(server.env("CISTERN_LOG", "trace").stdout(Stdio::piped()).stderr(OwnedFd::from(stderr)).process_group(0)).unwrap()
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, writer) = full_stream();
    let args = ["--volatile", "--new-cluster", "--insecure", "--listen", "127.0.0.1:0", "--json", "--state", dir.path().to_str().unwrap()];
    let mut server = talkative(&args, writer);
    let ready: Value = serde_json::from_str(&server.line().expect("the server is ready")).unwrap();
    let address = ready["listen"][0].as_str().unwrap();
    for n in 0..20 {
        let made = command(CISTERN, &["mkdir", "--server", address, &format!("/{n}")]).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
    }
    // Now somebody reads, and nothing is missing.
    let log = thread::spawn(move || {
        let mut log = String::new();
        reader.read_to_string(&mut log).unwrap();
        log
    });
    assert_eq!(server.end(), Some(0));
    let log = log.join().unwrap();
    for line in ["serves; lease", "asked to end"] {
        assert!(log.contains(line), "{line:?} is not in the log");
    }
}

/// Starts a daemon that logs to a file.
fn logging(program: &str, args: &[&str], log: &Path) -> Daemon {
    let mut daemon = command(program, args);
    daemon.env_remove("CISTERN_LOG");
    Daemon::of(&Place::default(), daemon.stderr(File::create(log).unwrap()))
}

fn lines(log: &Path, what: &str) -> Vec<String> {
    fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(what)).map(ToOwned::to_owned).collect()
}

fn told(log: &Path, what: &str) -> Vec<String> {
    eventually(what, || Some(lines(log, what)).filter(|lines| !lines.is_empty()))
}

fn server(dir: &Path) -> (Daemon, String) {
    let state = dir.join("server");
    let args = [
        "--volatile",
        "--new-cluster",
        "--insecure",
        "--lease",
        "500ms",
        "--listen",
        "127.0.0.1:0",
        "--json",
        "--state",
        state.to_str().unwrap(),
    ];
    let server = logging(CISTERND, &args, &dir.join("log"));
    let address = server.ready["listen"][0].as_str().unwrap().to_owned();
    (server, address)
}

fn agent(dir: &Path, name: &str, address: &str) -> Daemon {
    let state = dir.join(name);
    logging(CISTERN, &["agent", "run", "--json", "--state", state.to_str().unwrap(), "--server", address], &dir.join(format!("{name}.log")))
}

#[test]
fn a_command_is_one_line_and_a_steal_is_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let (_server, address) = server(dir.path());
    let made = command(CISTERN, &["mkdir", "--server", &address, "/d"]).output().unwrap();
    assert!(made.status.success(), "{}", said(&made));
    let of_session = told(&log, "session");
    assert_eq!(of_session.len(), 1, "{of_session:#?}");
    // Whoever holds the lock is gone at once, with the session.
    let mut agent = agent(dir.path(), "agent", &address);
    let mut holder = Line::open(Path::new(agent.ready["socket"].as_str().unwrap()));
    holder.lock("/d");
    agent.kill();
    let waited = command(CISTERN, &["lock", "--server", &address, "--wait", "30s", "/d", "--", "true"]).output().unwrap();
    assert!(waited.status.success(), "{}", said(&waited));
    let stolen = told(&log, "stolen from");
    assert!(stolen.iter().all(|line| line.contains(" WARN ")), "{stolen:#?}");
}

#[test]
fn a_copy_of_an_agent_is_warned_of_once_however_often_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, address) = server(dir.path());
    drop(agent(dir.path(), "true", &address));
    let second = agent(dir.path(), "true", &address);
    assert_eq!(second.ready["incarnation"], 2);
    let cat = command(CISTERN, &["ls", "--agent", second.ready["socket"].as_str().unwrap(), "/"]).output().unwrap();
    assert!(cat.status.success(), "{}", said(&cat));
    let copy = dir.path().join("copy");
    DirBuilder::new().mode(0o700).create(&copy).unwrap();
    for _ in 0..3 {
        fs::write(copy.join("agent"), format!("{} 0\n", second.ready["agent"].as_str().unwrap())).unwrap();
        let _copy = agent(dir.path(), "copy", &address);
        told(&dir.path().join("copy.log"), "superseded");
    }
    let warned = told(&dir.path().join("log"), "is not the newest");
    assert_eq!(warned.len(), 1, "{warned:#?}");
}

#[test]
fn a_hangup_of_the_host_agent_takes_up_the_log_and_leaves_the_rest_to_the_next_start() {
    let dir = tempfile::tempdir().unwrap();
    let (_server, address) = server(dir.path());
    let (settings, state, log) = (dir.path().join("cistern.toml"), dir.path().join("agent"), dir.path().join("agent.log"));
    fs::write(&settings, "[log]\nfilter = \"info\"\n").unwrap();
    let [settings_arg, state] = [&settings, &state].map(|path| path.to_str().unwrap());
    let args = ["agent", "run", "--json", "--config", settings_arg, "--state", state, "--server", &address];
    let agent = logging(CISTERN, &args, &log);
    let hang_up = || agent.signal(Signal::SIGHUP);
    let make = |path: &str| {
        let made = command(CISTERN, &["mkdir", "--agent", agent.ready["socket"].as_str().unwrap(), path]).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
    };
    make("/before");
    assert!(lines(&log, " TRACE ").is_empty());
    // A mistake changes nothing.
    fs::write(&settings, "[log]\nfilter = 7\n").unwrap();
    hang_up();
    told(&log, "the settings stay as they were");
    fs::write(&settings, "[log]\nfilter = \"trace\"\n[agent]\nidle = \"lazy\"\n").unwrap();
    hang_up();
    told(&log, "SIGHUP: log.filter is \"trace\" from now on");
    told(&log, "SIGHUP: agent.idle = \"lazy\" takes effect when it is started again");
    make("/after");
    told(&log, " TRACE ");
}

#[test]
fn a_server_ends_although_nobody_reads_its_standard_error() {
    let (_reader, writer) = full_stream();
    // Wrong usage is told there.
    let mut server = talkative(&["--listen", "127.0.0.1:0"], writer);
    assert_eq!(server.ended(), Some(2));
}
