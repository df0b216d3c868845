//! From nothing to a lock on two hosts: by the commands of README.md, and no others.

use cistern_testkit::network::{Host, Network};
use cistern_testkit::{CISTERN, Daemon, command, program, said};
use nix::unistd::{Gid, Uid, chown};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

/// Where README.md has the server.
const EXAMPLE: &str = "10.0.0.1:7311";
/// What it has on the server's host, and then on which host (of server and other).
const SERVER: [&str; 2] =
    ["cisternd init --new-cluster --address 10.0.0.1:7311 ./store", "cisternd --store ./store --listen 10.0.0.1:7311 &"];
const BY_LINE: [(Side, &str); 2] = [(Side::Server, "cistern admin invite web-1"), (Side::Other, "cistern join LINE")];
/// As docs/operating.md has it for hosts without a network between them and the operator.
const BY_FILES: [(Side, &str); 3] = [
    (Side::Other, "cistern join --request > web-1.request"),
    (Side::Server, "cistern admin admit web-1.request > web-1.grant"),
    (Side::Other, "cistern join --grant web-1.grant"),
];
const USE: [&str; 2] = ["cistern mkdir -p /jobs /group", "cistern lock /jobs/nightly -- ./backup.sh"];
/// A user without rights, as whom everything runs.
const NOBODY: u32 = 65_534;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Server,
    Other,
}

/// Somebody on a host, who has just installed the programs.
struct Person<'n> {
    host: &'n Host,
    home: TempDir,
}

impl<'n> Person<'n> {
    fn on(host: &'n Host) -> Self {
        let home = tempfile::tempdir().unwrap();
        let person = Self { host, home };
        fs::write(person.path("backup.sh"), "#!/bin/sh\necho $CISTERN_TOKEN\n").unwrap();
        fs::set_permissions(person.path("backup.sh"), Permissions::from_mode(0o755)).unwrap();
        chown(person.home.path(), Some(Uid::from_raw(NOBODY)), Some(Gid::from_raw(NOBODY))).unwrap();
        person
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    /// A line as it is pasted into a shell, with the server's address in place of the example's.
    fn prepared(&self, line: &str, server: &str) -> Command {
        let programs = program(CISTERN);
        let path = format!("{}:{}", programs.parent().unwrap().display(), std::env::var("PATH").unwrap_or_default());
        let mut shell = command("sh", &["-c", &line.replace(EXAMPLE, server)]);
        for name in ["CISTERN_CONFIG", "CISTERN_CREDENTIALS", "XDG_CONFIG_HOME", "XDG_STATE_HOME"] {
            shell.env_remove(name);
        }
        shell.env("PATH", path).env("HOME", self.home.path()).env("XDG_RUNTIME_DIR", self.path("run")).current_dir(self.home.path());
        shell.uid(NOBODY).gid(NOBODY);
        shell
    }

    fn done(&self, line: &str, server: &str) -> String {
        let mut shell = self.prepared(line, server);
        let output: Output = self.host.place().run(move || shell.output().unwrap());
        assert!(output.status.success(), "{line}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

/// Carries by hand what is there and not here.
fn carry(from: &Person<'_>, to: &Person<'_>) {
    for name in ["web-1.request", "web-1.grant"] {
        if from.path(name).exists() && !to.path(name).exists() {
            fs::copy(from.path(name), to.path(name)).unwrap();
        }
    }
}

/// That a document has these lines as they are.
fn stand_in(document: &str, lines: impl IntoIterator<Item = &'static str>) {
    let path = format!("{}/{document}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let stands: Vec<&str> = text.lines().map(|line| line.split(" #").next().unwrap_or_default().trim()).collect();
    lines.into_iter().for_each(|line| assert!(stands.contains(&line), "{document} does not have it: {line}"));
}

/// From nothing to a lock on both hosts.
fn joins_by(lines: &[(Side, &str)]) {
    let Some(network) = Network::of(&["server", "web"]) else { return };
    let (here, there) = (Person::on(network.host("server")), Person::on(network.host("web")));
    let address = here.host.server().to_string();
    let [init, serve] = SERVER;
    here.done(init, &address);
    // In front, with a line that says when it is ready.
    let serve = format!("exec {} --json", serve.trim_end_matches(" &"));
    let server = Daemon::of(&here.host.place(), &mut here.prepared(&serve, &address));
    assert!(server.ready["key"].is_string(), "sealed: {}", server.ready);
    let mut refused = there.prepared("cistern ls / --timeout 2s --server 10.0.0.1:7311", &address);
    let refused = there.host.place().run(move || refused.output().unwrap());
    assert!(!refused.status.success(), "who has not joined is not served: {}", said(&refused));
    let mut printed = String::new();
    for (side, line) in lines {
        let (own, other) = if *side == Side::Server { (&here, &there) } else { (&there, &here) };
        printed = own.done(&line.replace("LINE", printed.trim()), &address);
        carry(own, other);
    }
    let mut tokens = Vec::new();
    for person in [&here, &there] {
        for line in USE {
            let told = person.done(line, &address);
            tokens.extend(told.trim().parse::<u64>().ok());
        }
    }
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "each had the lock, one after the other: {tokens:?}");
    let named = here.done("cistern admin agents --json", &address);
    let with_keys = named.lines().filter(|line| serde_json::from_str::<Value>(line).unwrap()["key"].is_string()).count();
    assert_eq!(with_keys, 2, "the operator, and who has joined: {named}");
}

#[test]
fn the_commands_of_the_readme_lead_from_nothing_to_a_lock_on_two_hosts() {
    stand_in("README.md", SERVER.into_iter().chain(BY_LINE.map(|(_, line)| line)).chain(USE));
    joins_by(&BY_LINE);
}

#[test]
fn a_host_without_a_way_to_the_server_joins_by_files() {
    stand_in("docs/operating.md", BY_FILES.map(|(_, line)| line));
    joins_by(&BY_FILES);
}
