//! The log of a server that nobody reads.

use crate::world::{CISTERN, CISTERND, PATIENCE, command, eventually, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
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

struct Server(Child);

impl Server {
    fn start(args: &[&str], stderr: UnixStream) -> Self {
        let mut server = command(CISTERND, args);
        // The command goes with its end of the stream.
        Self(server.env("CISTERN_LOG", "trace").stdout(Stdio::piped()).stderr(OwnedFd::from(stderr)).process_group(0).spawn().unwrap())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_standard_error_that_nobody_reads_stops_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (mut reader, writer) = full_stream();
    let args = ["--volatile", "--new-cluster", "--listen", "127.0.0.1:0", "--json", "--state", dir.path().to_str().unwrap()];
    let mut server = Server::start(&args, writer);
    let mut output = BufReader::new(server.0.stdout.take().unwrap());
    let (send, ready) = channel();
    thread::spawn(move || {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        send.send(line).unwrap();
    });
    let ready: Value = serde_json::from_str(&ready.recv_timeout(PATIENCE).expect("the server is ready")).unwrap();
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
    kill(Pid::from_raw(server.0.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(eventually("the server ends", || server.0.try_wait().unwrap()).code(), Some(0));
    let log = log.join().unwrap();
    for line in ["serves; lease", "asked to end"] {
        assert!(log.contains(line), "{line:?} is not in the log");
    }
}

/// Starts a daemon that logs to a file; gives what it said when it was ready.
fn logging(program: &str, args: &[&str], log: &Path) -> (Server, Value) {
    let mut daemon = command(program, args);
    daemon.env_remove("CISTERN_LOG");
    let mut daemon = Server(daemon.stdout(Stdio::piped()).stderr(File::create(log).unwrap()).process_group(0).spawn().unwrap());
    let mut ready = String::new();
    BufReader::new(daemon.0.stdout.take().unwrap()).read_line(&mut ready).unwrap();
    (daemon, serde_json::from_str(&ready).unwrap_or_else(|e| panic!("{args:?} said {ready:?}: {e}")))
}

fn lines(log: &Path, what: &str) -> Vec<String> {
    fs::read_to_string(log).unwrap().lines().filter(|line| line.contains(what)).map(ToOwned::to_owned).collect()
}

fn told(log: &Path, what: &str) -> Vec<String> {
    eventually(what, || Some(lines(log, what)).filter(|lines| !lines.is_empty()))
}

fn server(dir: &Path) -> (Server, String) {
    let state = dir.join("server");
    let args = ["--volatile", "--new-cluster", "--lease", "500ms", "--listen", "127.0.0.1:0", "--json", "--state", state.to_str().unwrap()];
    let (server, ready) = logging(CISTERND, &args, &dir.join("log"));
    (server, ready["listen"][0].as_str().unwrap().to_owned())
}

fn agent(dir: &Path, name: &str, address: &str) -> (Server, Value) {
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
    let (mut agent, ready) = agent(dir.path(), "agent", &address);
    let mut holder = UnixStream::connect(ready["socket"].as_str().unwrap()).unwrap();
    holder.write_all(b"{\"op\":\"lock\",\"path\":\"/d\",\"shared\":false,\"wait_ms\":20000}\n").unwrap();
    let mut locked = String::new();
    BufReader::new(&holder).read_line(&mut locked).unwrap();
    assert!(locked.contains("locked"), "{locked}");
    agent.0.kill().unwrap();
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
    let (_agent, ready) = agent(dir.path(), "true", &address);
    assert_eq!(ready["incarnation"], 2);
    let cat = command(CISTERN, &["ls", "--agent", ready["socket"].as_str().unwrap(), "/"]).output().unwrap();
    assert!(cat.status.success(), "{}", said(&cat));
    let copy = dir.path().join("copy");
    DirBuilder::new().mode(0o700).create(&copy).unwrap();
    for _ in 0..3 {
        fs::write(copy.join("agent"), format!("{} 0\n", ready["agent"].as_str().unwrap())).unwrap();
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
    let (agent, ready) = logging(CISTERN, &args, &log);
    let hang_up = || kill(Pid::from_raw(agent.0.id().try_into().unwrap()), Signal::SIGHUP).unwrap();
    let make = |path: &str| {
        let made = command(CISTERN, &["mkdir", "--agent", ready["socket"].as_str().unwrap(), path]).output().unwrap();
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
    let mut server = Server::start(&["--listen", "127.0.0.1:0"], writer);
    assert_eq!(eventually("the server ends", || server.0.try_wait().unwrap()).code(), Some(2));
}
