//! A server's key that is followed by another one while its agents go on, between real processes.

use crate::joining::{Cluster, Host};
use cistern_testkit::{CISTERND, Process, command, eventually, said};
use nix::sys::signal::Signal;
use serde_json::Value;
use std::fs;
use std::process::Stdio;

impl Cluster {
    /// `cisternd server-key`, and then SIGHUP, as often as it takes until the server has said so in what it tells.
    fn server_key(&self, step: &str) -> Value {
        let [state, own] = ["server", "operator"].map(|name| self.dir.path().join(name).to_str().unwrap().to_owned());
        let args = ["server-key", step, "--state", &state, "--credentials", &own, "--json"];
        let output = command(CISTERND, &args).output().unwrap();
        assert!(output.status.success(), "{}", said(&output));
        self.server.signal(Signal::SIGHUP);
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

impl Host {
    /// The version of the roster that it has.
    fn roster(&self) -> u64 {
        let shown = self.run(&["key", "show", "--json"]);
        let shown: Value = serde_json::from_slice(&shown.stdout).unwrap_or_else(|_| panic!("{}", said(&shown)));
        shown["cluster"]["roster"].as_u64().unwrap()
    }

    /// Asks the server, until it has the roster of this version.
    fn learns(&self, version: u64) {
        eventually("the host has the newer roster", || {
            let asked = self.run(&["ls", "/"]);
            assert!(asked.status.success(), "{}", said(&asked));
            (self.roster() == version).then_some(())
        });
    }
}

#[test]
fn a_server_changes_its_key_while_sessions_go_on_and_who_has_heard_of_it_follows() {
    let cluster = Cluster::start();
    let host = Host::new();
    host.join(&cluster.admin(&["invite", "web"]));
    assert!(host.run(&["mkdir", "/jobs"]).status.success());
    let keeps = ["lock", "/jobs", "--", "sh", "-c", "echo held; read line; echo kept"];
    let mut holder = Process::spawn(host.command(&keeps).stdin(Stdio::piped()).stdout(Stdio::piped())).unwrap();
    assert_eq!(holder.line().as_deref(), Some("held"));
    let first = fs::read(host.path("cluster.toml")).unwrap();
    // Two keys: it is addressed by the one that is known, and tells of both.
    assert_eq!(cluster.server_key("rotate")["roster"], 2);
    host.learns(2);
    let second = fs::read(host.path("cluster.toml")).unwrap();
    // One key: who knows that it was to follow believes it, and learns that it has.
    let serving = cluster.server_key("retire");
    assert_eq!(serving["roster"], 3);
    host.learns(3);
    let shown: Value = serde_json::from_slice(&host.run(&["key", "show", "--json"]).stdout).unwrap();
    assert_eq!(shown["cluster"]["servers"][1]["key"], serving["key"]);
    // Again, from where it stood.
    fs::write(host.path("cluster.toml"), &second).unwrap();
    host.learns(3);
    // Who has slept through both knows no key that is good.
    fs::write(host.path("cluster.toml"), &first).unwrap();
    let late = host.run(&["ls", "/", "--timeout", "2s"]);
    assert_eq!(late.status.code(), Some(69), "{}", said(&late));
    // What is older, or another cluster's, is not taken up.
    let (ours, other) = (cluster.dir.path().join("server/cluster.toml"), Cluster::start());
    for wrong in [&first, &fs::read(other.dir.path().join("server/cluster.toml")).unwrap()] {
        fs::write(&ours, wrong).unwrap();
        cluster.server.signal(Signal::SIGHUP);
    }
    fs::write(host.path("cluster.toml"), &second).unwrap();
    host.learns(3);
    // The session has outlived it all.
    holder.tell("").unwrap();
    assert_eq!(holder.line().as_deref(), Some("kept"));
    assert_eq!(holder.ended(), Some(0));
}
