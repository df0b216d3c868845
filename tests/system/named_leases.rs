//! Named leases, by commands: they outlive who made them, anybody with the secret keeps them, and what is attached goes with them.

use cistern_testkit::{Agent, CISTERN, Server, command, eventually, said};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

fn rows(server: &Server, args: &[&str]) -> Vec<Value> {
    let told = server.ok(&[&["lease", "list", "--json"], args].concat());
    told.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn exists(server: &Server, path: &str) -> bool {
    server.cistern(&["stat", path]).status.success()
}

/// A lease with a file attached; the file that has its secret.
fn lease(server: &Server, dir: &Path, ttl: &str) -> PathBuf {
    let secret = dir.join("secret");
    server.ok(&["lease", "create", "/web1", "--ttl", ttl, "--secret-file", secret.to_str().unwrap(), "--data", "10.0.0.1:80"]);
    server.ok(&["touch", "/file"]);
    server.ok(&["lease", "attach", "--secret-file", secret.to_str().unwrap(), "/web1", "/file"]);
    secret
}

fn keep(server: &Server, secret: &Path) -> Output {
    server.cistern(&["lease", "keepalive", "--once", "--secret-file", secret.to_str().unwrap(), "/web1"])
}

#[test]
fn lease_outlives_the_command_that_made_it_and_goes_when_nobody_keeps_it() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let host = Agent::start(&server, "host");
    let secret = lease(&server, dir.path(), "6s");
    assert_eq!(fs::metadata(&secret).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(server.ok(&["cat", "/web1"]), "10.0.0.1:80");
    let all = rows(&server, &[]);
    assert_eq!((all.len(), &all[0]["path"], &all[0]["files"]), (1, &Value::from("/web1"), &Value::from(2)));
    let paths: Vec<_> = rows(&server, &["/web1"]).iter().map(|row| row["path"].clone()).collect();
    assert_eq!(paths, ["/web1", "/file"]);
    assert_eq!(server.count("named_leases"), 1);
    // Another process, by the host's agent, keeps it for longer than its time: every third of that.
    let mut keeper = command(CISTERN, &["lease", "keepalive", "--secret-file", secret.to_str().unwrap(), "/web1"])
        .env("CISTERN_AGENT", host.socket())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut kept = BufReader::new(keeper.stdout.take().unwrap()).lines();
    for _ in 0..5 {
        assert!(kept.next().unwrap().unwrap().starts_with("kept for "));
    }
    assert!(exists(&server, "/web1") && exists(&server, "/file"));
    kill(Pid::from_raw(keeper.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    assert_eq!(eventually("the keeper ends", || keeper.try_wait().unwrap()).code(), Some(0));
    eventually("what nobody keeps goes", || (!exists(&server, "/web1") && !exists(&server, "/file")).then_some(()));
    let gone = keep(&server, &secret);
    assert_eq!(gone.status.code(), Some(1), "{}", said(&gone));
    assert_eq!((rows(&server, &[]).len(), server.count("named_leases")), (0, 0));
}

#[test]
fn only_who_has_the_secret_keeps_a_lease_and_who_may_remove_its_file_revokes_it() {
    let (server, dir) = (Server::start(), tempfile::tempdir().unwrap());
    let printed = server.ok(&["lease", "create", "/other", "--ttl", "1h"]);
    assert!(printed.starts_with("cistern-lease-1."), "{printed}");
    let secret = lease(&server, dir.path(), "1h");
    assert_eq!(keep(&server, &secret).status.code(), Some(0));
    fs::write(&secret, printed).unwrap();
    let refused = keep(&server, &secret);
    assert!(refused.status.code() == Some(1) && said(&refused).contains("permission denied"), "{}", said(&refused));
    let none = server.cistern(&["lease", "keepalive", "--once", "/web1"]);
    assert!(none.status.code() == Some(2) && said(&none).contains("CISTERN_LEASE_SECRET"), "{}", said(&none));
    server.ok(&["touch", "/plain"]);
    let plain = server.cistern(&["lease", "revoke", "/plain"]);
    assert!(plain.status.code() == Some(1) && exists(&server, "/plain"), "{}", said(&plain));
    server.ok(&["lease", "revoke", "/web1"]);
    assert!(!exists(&server, "/web1") && exists(&server, "/other"));
    eventually("its files go with it", || (!exists(&server, "/file")).then_some(()));
}

#[test]
fn server_that_was_away_for_longer_gives_the_lease_its_whole_time_again() {
    let (mut server, dir) = (Server::durable(&["--lease", "1s"]), tempfile::tempdir().unwrap());
    let secret = lease(&server, dir.path(), "3s");
    server.process.kill();
    std::thread::sleep(std::time::Duration::from_secs(4));
    server.start_again();
    let kept = keep(&server, &secret);
    assert!(kept.status.success(), "{}", said(&kept));
    assert!(exists(&server, "/file"));
    eventually("what nobody keeps goes", || (!exists(&server, "/web1") && !exists(&server, "/file")).then_some(()));
}
