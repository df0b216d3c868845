//! `cistern key rotate` and `retire` between real processes: a host has another key while its sessions and locks go on.

use crate::joining::{Cluster, Host};
use cistern_testkit::{CISTERN, Process, command, eventually, said};
use serde_json::Value;
use std::fs;
use std::process::Stdio;
use std::time::Duration;

impl Host {
    /// Its key, in public.
    fn public(&self) -> String {
        let shown = self.run(&["key", "show", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", said(&shown)));
        shown["public"].as_str().unwrap().to_owned()
    }

    fn does(&self, args: &[&str]) {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
    }
}

impl Cluster {
    fn key_of(&self, name: &str) -> Value {
        self.keys().into_iter().find(|row| row["name"] == name).unwrap()["key"].clone()
    }
}

#[test]
fn a_host_changes_its_key_and_keeps_its_locks_also_over_a_restart_of_the_server() {
    let mut cluster = Cluster::start();
    let host = Host::new();
    host.join(&cluster.admin(&["invite", "web"]));
    host.does(&["mkdir", "/jobs"]);
    let keeps = ["lock", "/jobs", "--", "sh", "-c", "echo held; read line; echo kept"];
    let mut holder = Process::spawn(host.command(&keeps).stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    assert_eq!(holder.line().as_deref(), Some("held"));
    let (first, file) = (host.public(), fs::read(host.path("host.key")).unwrap());
    host.does(&["key", "rotate"]);
    assert_ne!(host.public(), first);
    assert_eq!(cluster.key_of("web"), host.public());
    assert_eq!(cluster.keys().len(), 2, "the operator and web, which is the same principal");
    assert!(!host.path("host.key.next").exists());
    host.does(&["mkdir", "/more"]);
    // A program that has the former key has it for a while.
    let former = host.path("former.key");
    fs::copy(host.path("host.key"), &former).unwrap();
    fs::write(&former, &file).unwrap();
    let by_former = ["ls", "/", "--timeout", "2s", "--key-file", former.to_str().unwrap()];
    host.does(&by_former);
    host.does(&["key", "retire"]);
    let refused = host.run(&by_former);
    assert!(refused.status.code() == Some(69) && said(&refused).contains("does not know this key"), "{}", said(&refused));
    // The holder opened its session with a key that is good no more.
    cluster.crash();
    let other = Host::new();
    other.join(&cluster.admin(&["invite", "db"]));
    eventually("the holder is back", || {
        let status: Value = serde_json::from_str(&cluster.admin(&["status", "--json"])).unwrap();
        (status["grace"].is_null()).then_some(())
    });
    let tried = other.run(&["lock", "/jobs", "--try", "--", "true"]);
    assert!(!tried.status.success(), "it is held: {}", said(&tried));
    holder.tell("").unwrap();
    assert_eq!(holder.line().as_deref(), Some("kept"));
    assert_eq!(holder.ended(), Some(0));
    cluster.admin(&["revoke", "web"]);
    assert_eq!(host.run(&["ls", "/", "--timeout", "2s"]).status.code(), Some(69));
    assert_eq!(host.run(&by_former).status.code(), Some(69));
}

#[test]
fn whoever_is_killed_while_it_rotates_has_a_key_that_works_and_goes_on_from_there() {
    let mut cluster = Cluster::start();
    let host = Host::new();
    host.join(&cluster.admin(&["invite", "web"]));
    host.does(&["mkdir", "/jobs"]);
    // Ever later: before the next key, before and behind its registration, before and behind it takes its place.
    for ms in [5, 20, 40, 60, 80, 120, 160] {
        let mut rotates = host.command(&["key", "rotate"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        rotates.kill().unwrap();
        rotates.wait().unwrap();
        host.does(&["ls", "/"]);
    }
    cluster.crash();
    host.does(&["ls", "/"]);
    host.does(&["key", "rotate"]);
    assert_eq!(cluster.key_of("web"), host.public());
    assert_eq!(cluster.keys().len(), 2);
    // Killed behind the registration: what waits is registered, and only takes its place.
    let registered = host.path("host.key");
    let present = host.public();
    fs::copy(&registered, host.path("host.key.next")).unwrap();
    host.does(&["key", "rotate"]);
    assert_eq!(host.public(), present);
    // Without a cluster there is nobody to ask.
    let alone = tempfile::tempdir().unwrap();
    let key = alone.path().join("host.key");
    let key = key.to_str().unwrap();
    assert!(command(CISTERN, &["key", "new", key]).output().unwrap().status.success());
    let output = command(CISTERN, &["key", "rotate", "--key-file", key]).output().unwrap();
    assert!(output.status.code() == Some(1) && said(&output).contains("has joined no cluster"), "{}", said(&output));
    assert!(!alone.path().join("host.key.next").exists());
}

#[test]
fn a_restart_complains_of_the_first_operator_if_it_was_revoked_and_not_if_it_has_another_key() {
    let mut cluster = Cluster::start();
    let log = cluster.dir.path().join("log");
    for change in ["rotate", "retire"] {
        let done = command(CISTERN, &["key", change]).env("CISTERN_CREDENTIALS", cluster.dir.path().join("operator")).output().unwrap();
        assert!(done.status.success(), "{change}: {}", said(&done));
    }
    let complains = |cluster: &mut Cluster| {
        cluster.restart_logging_to(&log);
        // What it does at its start it has done when it has answered twice.
        let operators = [(); 2].map(|()| cluster.keys().into_iter().filter(|row| row["operator"] == true).count());
        (operators[1], fs::read_to_string(&log).unwrap().contains("operator.pub"))
    };
    assert_eq!(complains(&mut cluster), (1, false));
    cluster.admin(&["revoke", "operator"]);
    assert_eq!(complains(&mut cluster), (0, true));
}
