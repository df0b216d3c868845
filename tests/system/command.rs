//! `cistern lock`: a command under a lock (section 11.6).

use cistern_testkit::{Agent, Server, eventually, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

#[test]
fn the_command_gets_its_token_and_its_status_is_passed_on() {
    let server = Server::start();
    let output = server.cistern(&["lock", "/job", "--", "sh", "-c", "echo $CISTERN_TOKEN; exit 7"]);
    assert_eq!(output.status.code(), Some(7), "{}", said(&output));
    let token: u64 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    let again = server.cistern(&["lock", "/job", "--", "sh", "-c", "echo $CISTERN_TOKEN"]);
    let larger: u64 = String::from_utf8_lossy(&again.stdout).trim().parse().unwrap();
    assert!(larger > token);
    assert_eq!(server.ok(&["ls", "/"]), "job\n", "the file was made");
}

#[test]
fn not_obtained_and_not_run_have_exit_codes_of_their_own() {
    let server = Server::start();
    let mut a = Agent::start(&server, "A");
    a.put("/job", "");
    let mut user = a.line();
    user.lock("/job");
    for (args, code) in [
        (&["lock", "--try", "/job", "--", "true"][..], 75),
        (&["lock", "--wait", "0.2", "/job", "--", "true"], 124),
        (&["lock", "/other", "--", "/no/such/command"], 127),
        (&["lock", "/other", "--", "/etc/passwd"], 126),
        (&["lock", "/no/such/directory/job", "--", "true"], 125),
    ] {
        let output = server.cistern(args);
        assert_eq!(output.status.code(), Some(code), "{args:?}: {}", said(&output));
        assert_eq!(String::from_utf8_lossy(&output.stderr).lines().count(), 1, "{args:?}: {}", said(&output));
    }
}

//= wire-spec.md#11-6-sessions-handshake-and-paths
//= type=test
//# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
//# certain.
#[test]
fn a_command_has_ended_before_its_lock_is_anyone_elses_although_cistern_was_killed() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    // The command outlives SIGTERM, and so does what it leaves in the background.
    let script = format!("trap '' TERM; (trap '' TERM; while :; do echo x >> {0}; sleep 0.01; done) & wait; wait", trace.display());
    let mut child = server.prepared(&["lock", "/job", "--", "sh", "-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let lines = || fs::read(&trace).map_or(0, |text| text.len());
    eventually("the command runs", || (lines() > 0).then_some(()));
    kill(Pid::from_raw(child.id().try_into().unwrap()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    let b = Agent::start(&server, "B");
    b.line().lock("/job");
    let written = lines();
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(lines(), written, "the command went on although the lock was another's");
}

#[test]
fn a_command_is_stopped_when_its_lock_is_lost() {
    let server = Server::start();
    let child = server.prepared(&["lock", "/job", "--", "sleep", "60"]).stderr(Stdio::piped()).spawn().unwrap();
    eventually("the lock is held", || {
        // Before the file is made this fails, and says nothing on standard output.
        String::from_utf8_lossy(&server.cistern(&["locks", "--json", "/job"]).stdout).contains("holds").then_some(())
    });
    // The server is silent from now on; the agent stops by its own clock.
    server.process.signal(Signal::SIGSTOP);
    let output = child.wait_with_output().unwrap();
    server.process.signal(Signal::SIGCONT);
    assert_eq!(output.status.code(), Some(79), "{}", said(&output));
}

//= wire-spec.md#11-7-restart-and-recovery
//= type=test
//# After the common grace only advisory locks whose objects the former session's record names MUST be reclaimable.
#[test]
fn a_command_with_a_long_lease_goes_on_over_a_restart_that_holds_up_nobody_else() {
    let mut server = Server::durable(&["--lease", "500ms"]);
    server.ok(&["mkdir", "/jobs"]);
    let dir = tempfile::tempdir().unwrap();
    let (trace, stop) = (dir.path().join("trace"), dir.path().join("stop"));
    let script = format!("until [ -e {} ]; do echo x >> {}; sleep 0.05; done", stop.display(), trace.display());
    let args = ["lock", "--lease", "40s", "/jobs/long", "--", "sh", "-c", &script];
    let mut child = server.prepared(&args).stdout(Stdio::null()).spawn().unwrap();
    let lines = || fs::read(&trace).map_or(0, |text| text.len());
    eventually("the command runs", || (lines() > 0).then_some(()));
    server.process.kill();
    std::thread::sleep(Duration::from_secs(2));
    server.start_again();
    // Four leases of the server are over: whoever has one of these has lost its locks.
    let others = server.cistern(&["lock", "/jobs/other", "--", "true"]);
    assert_eq!(others.status.code(), Some(0), "{}", said(&others));
    assert!(server.count("uptime_ms") < 30_000, "nobody else waits for the long lease");
    let taken = server.cistern(&["lock", "--wait", "1", "/jobs/long", "--", "true"]);
    assert_eq!(taken.status.code(), Some(124), "{}", said(&taken));
    eventually("the lock is held in a session of the new start", || (server.count("withheld") == 0).then_some(()));
    let before = lines();
    eventually("the command goes on", || (lines() > before).then_some(()));
    fs::write(&stop, "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "it was never stopped");
    assert_eq!(server.cistern(&["lock", "/jobs/long", "--", "true"]).status.code(), Some(0));
}
