//! `cistern lock` before and after its command: waiting, leaving the queue, giving the lock back; by an agent of its own and by the host's.

use crate::relay::Relay;
use cistern_testkit::{Agent, CISTERN, PATIENCE, Server, command, eventually, program, said};
use nix::pty::openpty;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::Read;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Far above what a lock takes on a busy machine.
const SOON: Duration = Duration::from_secs(10);

fn signal(pid: u32, signal: Signal) {
    kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
}

fn waiting(server: &Server, command: &mut Command) -> Child {
    let before = server.count("waiting");
    let child = command.stderr(Stdio::piped()).spawn().unwrap();
    eventually("it waits", || (server.count("waiting") > before).then_some(()));
    child
}

/// `cistern` to which ^C means what it means at a terminal, also where the tests run in the background of a shell.
fn interruptible(server: &Server, args: &[&str]) -> Command {
    let mut command = command("env", &[&["--default-signal=HUP,INT", program(CISTERN).to_str().unwrap()], args].concat());
    command.env("CISTERN_SERVER", server.address.to_string());
    command
}

/// A server with a file to lock, and who holds the lock on it.
fn held() -> (Server, Agent) {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    a.put("/job", "");
    a.lock("/job");
    (server, a)
}

/// The command line goes through a host agent.
fn by<'c>(command: &'c mut Command, agent: &Agent) -> &'c mut Command {
    command.env("CISTERN_AGENT", agent.socket())
}

#[test]
fn a_lock_is_free_as_soon_as_its_command_has_ended_however_long_the_lease() {
    let server = Server::with(&["--lease", "60s"]);
    let host = Agent::start(&server, "host");
    let begun = Instant::now();
    // A lock that is given back a part of the lease period later would take 3 s each time: either dozen alone more than PATIENCE.
    for _ in 0..12 {
        server.ok(&["lock", "/job", "--", "true"]);
        assert!(by(&mut server.prepared(&["lock", "/job", "--", "true"]), &host).status().unwrap().success());
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[test]
fn a_waiter_that_is_asked_to_end_leaves_the_queue_and_is_no_failure() {
    let (server, a) = held();
    let host = Agent::start(&server, "host");
    for with_host in [false, true] {
        for asked in [Signal::SIGTERM, Signal::SIGHUP, Signal::SIGINT] {
            let mut command = interruptible(&server, &["lock", "/job", "--", "true"]);
            let mut child = waiting(&server, if with_host { by(&mut command, &host) } else { &mut command });
            signal(child.id(), asked);
            let status = child.wait().unwrap();
            assert_eq!(status.signal(), Some(asked as i32), "the shell sees the signal");
            eventually("nobody waits", || (server.count("waiting") == 0).then_some(()));
        }
    }
    drop(a);
    server.ok(&["lock", "/job", "--", "true"]);
    // The one who held the lock was killed, and nobody else.
    assert_eq!(server.count("delivery_failures"), 1);
}

#[test]
fn a_waiter_of_the_host_agent_that_is_killed_leaves_the_queue() {
    let (server, _a) = held();
    let host = Agent::start(&server, "host");
    let mut child = waiting(&server, by(&mut server.prepared(&["lock", "/job", "--", "true"]), &host));
    child.kill().unwrap();
    child.wait().unwrap();
    eventually("nobody waits", || (server.count("waiting") == 0).then_some(()));
    assert_eq!(server.count("delivery_failures"), 0);
}

#[test]
fn a_waiter_that_is_killed_just_before_its_turn_is_no_steal_and_nobody_waits_for_its_lease() {
    let server = Server::with(&["--lease", "10s"]);
    let mut a = Agent::start(&server, "A");
    a.put("/job", "");
    let (hold, _) = a.lock("/job");
    let mut killed = waiting(&server, &mut server.prepared(&["lock", "/job", "--", "true"]));
    let next = waiting(&server, &mut server.prepared(&["lock", "-v", "/job", "--", "true"]));
    killed.kill().unwrap();
    killed.wait().unwrap();
    a.unlock(hold);
    let output = next.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", said(&output));
    assert_eq!(server.count("lease_timers"), 1, "the lease of the one that was killed is not over yet");
    eventually("it is over", || (server.count("lease_timers") == 0).then_some(()));
    assert_eq!(server.count("steals"), 0);
}

#[test]
fn waiting_and_trying_keep_their_bounds_although_no_server_answers() {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = silent.local_addr().unwrap().to_string();
    let (server, _a) = held();
    let host = Agent::start(&server, "host");
    let run = |args: &[&str], agent: Option<&Agent>| {
        let mut command = server.prepared(&[&["lock"], args, &["/job", "--", "true"]].concat());
        if let Some(agent) = agent {
            by(&mut command, agent);
        }
        let begun = Instant::now();
        let output = command.output().unwrap();
        assert!(begun.elapsed() < SOON, "{args:?}: {:?}", begun.elapsed());
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for (args, code) in [(&["--wait", "1"][..], 124), (&["--try"], 75)] {
        let (status, text) = run(&[args, &["--server", &nobody]].concat(), None);
        assert_eq!(status, Some(code), "{text}");
        assert!(text.contains("no answer from the server"), "{text}");
    }
    // In the middle of a wait, too.
    server.process.signal(Signal::SIGSTOP);
    for agent in [None, Some(&host)] {
        for (args, code) in [(&["--wait", "1"][..], 124), (&["--try"], 75)] {
            let (status, text) = run(args, agent);
            assert_eq!(status, Some(code), "{text}");
        }
    }
    server.process.signal(Signal::SIGCONT);
}

#[test]
fn a_timeout_bounds_the_silence_of_the_host_agent_and_of_its_server_and_no_wait_for_others() {
    let (server, _a) = held();
    let host = Agent::start(&server, "host");
    let start = || waiting(&server, by(&mut server.prepared(&["lock", "--timeout", "1500ms", "/job", "--", "true"]), &host));
    let mut patient = start();
    thread::sleep(Duration::from_secs(2));
    assert!(patient.try_wait().unwrap().is_none(), "the lock is another's, and everybody answers");
    patient.kill().unwrap();
    patient.wait().unwrap();
    // Last the server, after whose silence the lock is nobody's.
    for process in [&host.process, &server.process] {
        eventually("nobody waits", || (server.count("waiting") == 0).then_some(()));
        let late = start();
        process.signal(Signal::SIGSTOP);
        let begun = Instant::now();
        let output = late.wait_with_output().unwrap();
        process.signal(Signal::SIGCONT);
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        assert!(output.status.code() == Some(125) && said(&output).contains("no answer in the time of --timeout"), "{}", said(&output));
    }
}

#[test]
fn a_wait_keeps_its_bound_over_an_outage() {
    let (server, _a) = held();
    let begun = Instant::now();
    let child = waiting(&server, &mut server.prepared(&["lock", "--wait", "2", "/job", "--", "true"]));
    server.process.signal(Signal::SIGSTOP);
    let output = child.wait_with_output().unwrap();
    server.process.signal(Signal::SIGCONT);
    assert_eq!(output.status.code(), Some(124), "{}", said(&output));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
}

#[test]
fn a_wait_longer_than_what_operations_have_goes_on_until_a_server_answers() {
    let mut server = Server::durable(&["--lease", "1s"]);
    let address = server.address.to_string();
    server.process.kill();
    let args = ["lock", "--config", "/dev/null", "--wait", "60", "/job", "--", "true"];
    let mut child = server.prepared(&args).env("CISTERN_SERVER", address).spawn().unwrap();
    // Longer than an operation is tried by default.
    thread::sleep(Duration::from_secs(16));
    assert!(child.try_wait().unwrap().is_none(), "it gave up");
    server.start_again();
    assert!(child.wait().unwrap().success());
}

/// `cistern lock` of a file that is not there, by an agent of its own and by the host's; operations are given up after half a second.
fn locking_what_is_missing<'a>(server: &Server, address: &str, host: &Agent, args: &[&'a str]) -> Vec<(&'a str, Child)> {
    let settings = server.dir.path().join("half-a-second.toml");
    fs::write(&settings, "[agent]\ntimeout = \"500ms\"\n").unwrap();
    let start = |path: &str, with_host: bool| {
        let mut command = server.prepared(&[&["lock"], args, &[path, "--", "true"]].concat());
        command.env("CISTERN_SERVER", address).env("CISTERN_CONFIG", &settings).stderr(Stdio::piped());
        if with_host { by(&mut command, host) } else { &mut command }.spawn().unwrap()
    };
    vec![("own", start("/own", false)), ("host", start("/host", true))]
}

#[test]
fn a_lock_whose_file_is_missing_waits_through_a_grace_as_others_do() {
    let mut server = Server::durable(&["--lease", "3s"]);
    let mut gone = Agent::start(&server, "gone");
    gone.put("/held", "");
    gone.lock("/held");
    server.process.kill();
    gone.process.kill();
    server.start_again();
    let host = Agent::with(&server, server.address, "host", &["--timeout", "500ms"]);
    let locks = locking_what_is_missing(&server, &server.address.to_string(), &host, &[]);
    assert!(!server.status()["grace"].is_null(), "there is no grace to wait through");
    for (by, mut lock) in locks {
        eventually("the grace is over", || lock.try_wait().unwrap());
        let output = lock.wait_with_output().unwrap();
        assert!(output.status.success(), "{by}: {}", said(&output));
    }
}

#[test]
fn a_lock_whose_file_cannot_be_made_for_now_is_waited_for_as_long_as_the_command_line_says() {
    let server = Server::start();
    let relay = Relay::start(server.address);
    let host = Agent::with(&server, relay.address, "host", &["--timeout", "500ms"]);
    relay.command("loss 100% kind CREATE");
    let locks = locking_what_is_missing(&server, &relay.address.to_string(), &host, &["--wait", "2"]);
    for (by, lock) in locks {
        let output = lock.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(124), "{by}: {}", said(&output));
    }
    let mut locks = locking_what_is_missing(&server, &relay.address.to_string(), &host, &["--wait", "60"]);
    thread::sleep(Duration::from_secs(2));
    for (by, lock) in &mut locks {
        assert!(lock.try_wait().unwrap().is_none(), "{by} gave up");
    }
    relay.command("heal");
    for (by, lock) in locks {
        let output = lock.wait_with_output().unwrap();
        assert!(output.status.success(), "{by}: {}", said(&output));
    }
}

#[test]
fn who_holds_the_lock_is_told_at_a_terminal_or_when_asked_for_and_not_otherwise() {
    let (server, _a) = held();
    let text = |args: &[&str]| {
        let child = waiting(&server, &mut server.prepared(&[&["lock", "--wait", "2"], args, &["/job", "--", "true"]].concat()));
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let verbose = text(&["-v"]);
    assert!(verbose.contains("/job: waiting for the lock: A has had it for"), "{verbose}");
    assert_eq!(text(&[]).lines().count(), 1, "only how it ended");
    for (args, told) in [(&[][..], true), (&["-q"], false)] {
        let pty = openpty(None, None).unwrap();
        let mut command = server.prepared(&[&["lock", "--wait", "2"], args, &["/job", "--", "true"]].concat());
        assert_eq!(command.stderr(File::from(pty.slave)).status().unwrap().code(), Some(124));
        drop(command);
        let mut seen = Vec::new();
        // The end of a terminal is an error.
        let _ = File::from(pty.master).read_to_end(&mut seen);
        let seen = String::from_utf8_lossy(&seen).into_owned();
        assert_eq!(seen.contains("A has had it for"), told, "{seen}");
    }
}

#[test]
fn who_waits_for_a_holder_that_answers_is_told_how_long_it_is_if_that_is_gone() {
    let server = Server::durable(&["--lease", "1s"]);
    let mut long = Agent::with(&server, server.address, "long", &["--idle", "eager", "--lease", "20s"]);
    let mut short = Agent::with(&server, server.address, "short", &["--idle", "eager", "--lease", "500ms"]);
    // τ/2 + Td' + τ(1+δ) + ε: Td' is 3τ/8, and no longer than with the server's own period.
    for (agent, path, bound_ms, shown) in [(&mut long, "/long", 30_576, "30.5 s"), (&mut short, "/short", 944, "944 ms")] {
        agent.put(path, "");
        agent.lock(path);
        let listed = server.ok(&["locks", path]);
        assert!(listed.contains(&format!("{shown} if gone")), "{listed}");
        let row: Value = serde_json::from_str(&server.ok(&["locks", "--json", path])).unwrap();
        assert_eq!((&row["standing"], &row["bound_ms"]), (&json!("good"), &json!(bound_ms)), "{row}");
        let waits = waiting(&server, &mut server.prepared(&["lock", "-v", "--wait", "2", path, "--", "true"]));
        let output = waits.wait_with_output().unwrap();
        let told = format!("may keep it as long as it answers; if that is gone, it is free in {shown} at most");
        assert!(said(&output).contains(&told), "{}", said(&output));
    }
}

#[test]
fn the_host_agent_holds_the_lock_of_a_command() {
    let (server, _a) = held();
    let mut host = Agent::start(&server, "host");
    host.put("/free", "");
    let sessions = server.count("sessions");
    let run = |path: &str, script: &str| by(&mut server.prepared(&["lock", path, "--", "sh", "-c", script]), &host).output().unwrap();
    let output = run("/free", "echo $CISTERN_TOKEN; exit 7");
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let token: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let again = run("/new", "echo $CISTERN_TOKEN");
    assert!(again.status.success(), "the file was made: {}", said(&again));
    let again = run("/free", "echo $CISTERN_TOKEN");
    assert!(String::from_utf8_lossy(&again.stdout).trim().parse::<u64>().unwrap() > token);
    assert_eq!(server.count("sessions"), sessions, "nobody had a session of its own");
    assert_eq!(host.count("holders"), 0);
}

/// A command that outlives SIGTERM, and so does what it leaves in the background; it writes as long as it lives.
struct Writing {
    trace: tempfile::TempDir,
    cistern: Child,
}

impl Writing {
    fn start(server: &Server, host: &Agent) -> Self {
        let trace = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; (trap '' TERM; while :; do echo x >> $0/x; sleep 0.01; done) & echo $! > $0/pid; wait; wait";
        let mut command = server.prepared(&["lock", "/job", "--", "sh", "-c", script, trace.path().to_str().unwrap()]);
        let cistern = by(&mut command, host).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let writing = Self { trace, cistern };
        eventually("the command writes", || (writing.written() > 0).then_some(()));
        writing
    }

    fn written(&self) -> usize {
        fs::read(self.trace.path().join("x")).map_or(0, |text| text.len())
    }

    fn guardian(&self) -> u32 {
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.cistern.id())).unwrap();
        let is_guardian =
            |pid: &&str| fs::read_to_string(Path::new("/proc").join(pid).join("comm")).is_ok_and(|name| name == "lock-guardian\n");
        children.split_whitespace().find(is_guardian).unwrap().parse().unwrap()
    }

    /// Nothing of it writes any more.
    fn assert_ended(&self, what: &str) {
        let written = self.written();
        thread::sleep(Duration::from_millis(300));
        assert_eq!(self.written(), written, "{what}: the command went on although the lock was another's");
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn whoever_is_killed_the_command_has_ended_before_the_host_agent_gives_the_lock_to_another() {
    let server = Server::start();
    let mut other = Agent::start(&server, "other");
    other.put("/job", "");
    for what in ["cistern", "guardian", "agent"] {
        let mut host = Agent::start(&server, what);
        let mut writing = Writing::start(&server, &host);
        match what {
            "cistern" => signal(writing.cistern.id(), Signal::SIGKILL),
            "guardian" => signal(writing.guardian(), Signal::SIGKILL),
            _ => host.process.kill(),
        }
        let (hold, _) = other.lock("/job");
        writing.assert_ended(what);
        other.unlock(hold);
        let status = writing.cistern.wait().unwrap().code();
        assert_eq!(
            status,
            [("cistern", None), ("guardian", Some(125)), ("agent", Some(79))].into_iter().find(|w| w.0 == what).unwrap().1,
            "{what}"
        );
    }
}

#[test]
fn a_host_agent_that_is_asked_to_end_waits_for_the_command() {
    let server = Server::start();
    let mut other = Agent::start(&server, "other");
    other.put("/job", "");
    let mut host = Agent::start(&server, "host");
    let mut writing = Writing::start(&server, &host);
    host.process.signal(Signal::SIGTERM);
    other.lock("/job");
    writing.assert_ended("end of the agent");
    assert_eq!(writing.cistern.wait().unwrap().code(), Some(79));
    assert_eq!(host.process.ended(), Some(0));
    eventually("only the other's session is left", || (server.count("sessions") == 1).then_some(()));
}

#[test]
fn a_host_agent_serves_a_group_and_nobody_else_and_by_default_its_own_user_alone() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: only root can be other users");
        return;
    }
    const GROUP: u32 = 42_424;
    let server = Server::start();
    // Others reach neither a directory for temporary files of this user's nor its build.
    fs::set_permissions(server.dir.path(), fs::Permissions::from_mode(0o711)).unwrap();
    let program = server.dir.path().join("cistern");
    fs::copy(cistern_testkit::program(CISTERN), &program).unwrap();
    for (label, args) in [("group", &["--socket-group", "42424"][..]), ("own", &[])] {
        let agent = Agent::with(&server, server.address, label, args);
        let put = |uid: u32, gid: u32| {
            let path = format!("/{label}-{uid}-{gid}");
            let mut command = Command::new(&program);
            command.args(["put", "/dev/null", &path]).env("CISTERN_AGENT", agent.socket()).uid(uid).gid(gid);
            (command.output().unwrap(), path)
        };
        let served = |(output, _): &(std::process::Output, String)| output.status.code();
        assert_eq!(served(&put(42_000, GROUP)), Some(if label == "group" { 0 } else { 69 }));
        assert_eq!(served(&put(42_000, 42_001)), Some(69));
        assert_eq!(served(&put(0, 0)), Some(0));
        // Modes that somebody has opened do not let everybody in.
        fs::set_permissions(agent.socket(), fs::Permissions::from_mode(0o666)).unwrap();
        fs::set_permissions(Path::new(agent.socket()).parent().unwrap(), fs::Permissions::from_mode(0o711)).unwrap();
        let (output, _) = put(42_000, 42_001);
        assert!(String::from_utf8_lossy(&output.stderr).contains("does not serve user 42000"), "{}", said(&output));
    }
    let row: Value = serde_json::from_str(&server.ok(&["stat", "--json", "/group-42000-42424"])).unwrap();
    assert_eq!((&row["attr"]["uid"], &row["attr"]["gid"]), (&42_000.into(), &GROUP.into()), "{row}");
}
