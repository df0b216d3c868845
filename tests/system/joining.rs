//! `cistern join LINE` between real processes: one command from nothing to a session, and what becomes of a line that is used again.

use cistern_testkit::{CISTERN, CISTERND, Daemon, Place, command, said};
use nix::unistd::geteuid;
use serde_json::Value;
use std::fs::{self, File};
use std::io::Write as _;
use std::net::UdpSocket;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A cluster of one server that serves.
pub(crate) struct Cluster {
    pub(crate) server: Daemon,
    address: String,
    pub(crate) dir: TempDir,
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        // Nobody else takes it in the moment between.
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let [state, own, store] = ["server", "operator", "store"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
        let init = ["init", "--new-cluster", "--address", &address, "--state", &state, "--credentials", &own, &store];
        let made = command(CISTERND, &init).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        let server = serve(&dir, &address);
        Self { server, address, dir }
    }

    /// Killed with SIGKILL, and started again.
    pub(crate) fn crash(&mut self) {
        self.server.kill();
        self.server = serve(&self.dir, &self.address);
    }

    /// Ends, and starts again with its log in a file.
    pub(crate) fn restart_logging_to(&mut self, log: &Path) {
        self.server.end();
        self.server = Daemon::of(&Place::default(), serves(&self.dir, &self.address).stderr(File::create(log).unwrap()));
    }

    pub(crate) fn admin(&self, args: &[&str]) -> String {
        let socket = self.server.ready["control"].as_str().unwrap();
        let mut command = command(CISTERN, &[&["admin"], args, &["--control", socket]].concat());
        let output = command.env("CISTERN_CREDENTIALS", self.dir.path().join("operator")).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Who has a key: the operator, and who has joined.
    pub(crate) fn keys(&self) -> Vec<Value> {
        let listed = self.admin(&["agents", "--json"]);
        let rows = listed.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        rows.filter(|row| row["key"].is_string()).collect()
    }
}

fn serve(dir: &TempDir, address: &str) -> Daemon {
    Daemon::of(&Place::default(), &mut serves(dir, address))
}

fn serves(dir: &TempDir, address: &str) -> Command {
    let [state, store] = ["server", "store"].map(|name| dir.path().join(name).to_str().unwrap().to_owned());
    command(CISTERND, &["--state", &state, "--store", &store, "--listen", address, "--json"])
}

/// A host without anything.
pub(crate) struct Host(TempDir);

impl Host {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join("creds").join(name)
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = command(CISTERN, args);
        command.env("CISTERN_CREDENTIALS", self.0.path().join("creds")).env("HOME", self.0.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    pub(crate) fn join(&self, line: &str) -> Value {
        let output = self.run(&["join", line, "--json"]);
        assert!(output.status.success(), "{}", said(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, line: &str) -> String {
        let output = self.run(&["join", line]);
        assert_eq!(output.status.code(), Some(1), "{}", said(&output));
        assert!(!self.path("cluster.toml").exists(), "who was refused trusts nobody");
        said(&output)
    }
}

#[test]
fn one_line_makes_a_host_a_member_and_again_and_no_other_host() {
    let cluster = Cluster::start();
    let line = cluster.admin(&["invite", "web"]);
    let web = Host::new();
    let first = web.join(&line);
    assert_eq!((&first["name"], &first["joined"]), (&"web".into(), &true.into()));
    for name in ["host.key", "cluster.toml"] {
        assert_eq!(fs::metadata(web.path(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
    }
    assert!(cluster.keys().iter().any(|row| row["name"] == "web" && row["key"] == first["key"]));
    let done = web.run(&["mkdir", "/jobs"]);
    assert!(done.status.success(), "nothing else has to be set: {}", said(&done));
    // Killed behind its registration, before the cluster was written: the same key is told the same.
    fs::remove_file(web.path("cluster.toml")).unwrap();
    assert_eq!(web.join(&line), first);
    // Killed behind everything, and from standard input.
    let mut piped = web.command(&["join", "-", "--json"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    piped.stdin.take().unwrap().write_all(line.as_bytes()).unwrap();
    assert_eq!(serde_json::from_slice::<Value>(&piped.wait_with_output().unwrap().stdout).unwrap(), first);
    let needed = web.run(&["join", "--if-needed", &line, "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&needed.stdout).unwrap()["joined"], false);
    let other = Host::new();
    let told = other.refused(&line);
    assert!(told.contains("another key") && told.contains("from 127.0.0.1") && told.contains("admin revoke"), "{told}");
    assert_eq!(cluster.keys().len(), 2, "the operator and web");
    if geteuid().is_root() {
        let mut foreign = web.command(&["join", &line]);
        let output = foreign.uid(65_534).gid(65_534).output().unwrap();
        assert!(!output.status.success(), "another user of the host is not the host: {}", said(&output));
    }
}

#[test]
fn whoever_is_killed_while_a_host_joins_it_joins_once_and_by_the_same_key() {
    let mut cluster = Cluster::start();
    let line = cluster.admin(&["invite", "web"]);
    let web = Host::new();
    // Ever later: before its key, before and behind its registration, before and behind its cluster is written.
    for ms in [2, 5, 10, 15, 20, 30, 40, 60, 80, 120] {
        let mut joins = web.command(&["join", &line]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        joins.kill().unwrap();
        joins.wait().unwrap();
        // What is there is whole.
        let shown = web.run(&["key", "show"]);
        assert!(shown.status.success() || !web.path("host.key").exists(), "{}", said(&shown));
    }
    fs::remove_file(web.path("cluster.toml")).ok();
    for ms in [0, 5, 15, 30, 60] {
        let joins = web.command(&["join", &line, "--json"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(ms));
        cluster.crash();
        let output = joins.wait_with_output().unwrap();
        assert!(matches!(output.status.code(), Some(0 | 69)), "joined, or not reached: {output:?}");
        fs::remove_file(web.path("cluster.toml")).ok();
    }
    let joined = web.join(&line);
    let keys = cluster.keys();
    assert!(keys.len() == 2 && keys.iter().any(|row| row["name"] == "web" && row["key"] == joined["key"]), "{keys:?}");
    assert!(web.run(&["ls", "/"]).status.success());
}

#[test]
fn a_line_that_is_no_good_joins_nobody() {
    let mut cluster = Cluster::start();
    let host = Host::new();
    let line = cluster.admin(&["invite", "web"]);
    // A letter changed, cut short, another text.
    for garbage in [&line.replacen("cistern-invite-1.A", "cistern-invite-1.B", 1)[..], &line[..line.len() - 4], "x"] {
        let told = host.refused(garbage);
        assert!(!told.contains(&line[60..80]), "a secret is not shown: {told}");
        assert!(!host.path("host.key").exists(), "no key is made for nothing");
    }
    cluster.admin(&["invite", "--withdraw", "web"]);
    assert!(host.refused(&line).contains("good no more"));
    let short = cluster.admin(&["invite", "--within", "1s", "web"]);
    std::thread::sleep(Duration::from_millis(2_100));
    assert!(host.refused(&short).contains("good no more"));
    // A name that was given away meanwhile.
    let taken = cluster.admin(&["invite", "web"]);
    cluster.admin(&["add", "web"]);
    assert!(host.refused(&taken).contains("name"));
    // An invite does not outlive its time by a restart.
    let restarted = cluster.admin(&["invite", "--within", "1s", "again"]);
    std::thread::sleep(Duration::from_millis(2_100));
    cluster.crash();
    assert!(host.refused(&restarted).contains("good no more"));
    // A key that was revoked comes back by no line.
    let key = host.join(&cluster.admin(&["invite", "db"]))["key"].clone();
    cluster.admin(&["revoke", "db"]);
    fs::remove_file(host.path("cluster.toml")).unwrap();
    assert!(host.refused(&cluster.admin(&["invite", "again"])).contains("revoked"), "{key}");
}

#[test]
fn whoever_can_open_the_servers_socket_invites_and_admits_without_a_key_of_its_own() {
    let cluster = Cluster::start();
    let root = Host::new();
    let socket = cluster.server.ready["control"].as_str().unwrap();
    let admin = |args: &[&str]| {
        let output = root.run(&[&["admin"], args, &["--control", socket]].concat());
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(Host::new().join(admin(&["invite", "web-1"]).trim())["name"], "web-1");
    let by_hand = Host::new();
    let request = by_hand.path("request");
    let asked = by_hand.run(&["join", "--request", "--label", "web-2"]);
    fs::write(&request, asked.stdout).unwrap();
    let grant = by_hand.path("grant");
    fs::write(&grant, admin(&["admit", request.to_str().unwrap()])).unwrap();
    let joined = by_hand.run(&["join", "--grant", grant.to_str().unwrap()]);
    assert!(joined.status.success(), "{}", said(&joined));
    assert!(!root.path("cluster.toml").exists(), "it trusts nobody for that");
}
