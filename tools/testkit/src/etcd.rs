//! etcd on loopback, as many members as a test wants.
//!
//! Everything has ports and directories of its own; a test is skipped, with a printed reason, where etcd is not installed.

use crate::{Place, Process, base64, eventually};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::env;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

struct EtcdMember {
    process: Option<Process>,
    place: Place,
    clients: SocketAddr,
    peers: SocketAddr,
    /// Where its figures are shown, in clear whatever clients speak.
    metrics: SocketAddr,
}

/// A cluster of etcd.
pub struct Etcds {
    members: Vec<EtcdMember>,
    flags: Vec<String>,
    dir: TempDir,
}

impl Etcds {
    /// Starts so many members, with flags of their own; nothing where etcd is not installed, and says so.
    pub fn start(count: usize, flags: &[&str]) -> Option<Self> {
        // In memory, where there is such a place: no test here is about the disk, and etcd without a quick one has no leader.
        let memory = Path::new("/dev/shm");
        Self::start_in(if memory.is_dir() { memory } else { Path::new("/tmp") }, count, flags)
    }

    /// As [`Self::start`], with its data below a directory.
    pub fn start_in(dir: &Path, count: usize, flags: &[&str]) -> Option<Self> {
        let port = || free_port(Ipv4Addr::LOCALHOST.into());
        let member = |_| EtcdMember { process: None, place: Place::default(), clients: port(), peers: port(), metrics: port() };
        Self::of(dir, (0..count).map(member).collect(), flags)
    }

    /// As [`Self::start_in`], a member on each of these hosts.
    pub fn at(dir: &Path, hosts: &[(Place, IpAddr)], flags: &[&str]) -> Option<Self> {
        let member = |(place, ip): &(Place, IpAddr)| {
            let [clients, peers, metrics] = place.run(|| [(); 3].map(|()| free_port(*ip)));
            EtcdMember { process: None, place: place.clone(), clients, peers, metrics }
        };
        Self::of(dir, hosts.iter().map(member).collect(), flags)
    }

    #[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
    fn of(dir: &Path, members: Vec<EtcdMember>, flags: &[&str]) -> Option<Self> {
        if program().is_none() {
            eprintln!("skipped: etcd is not installed (Debian: apt-get install etcd-server)");
            return None;
        }
        let flags = flags.iter().map(ToString::to_string).collect();
        let mut this = Self { members, flags, dir: tempfile::tempdir_in(dir).unwrap() };
        (0..this.members.len()).for_each(|at| this.run(at));
        eventually("etcd has a leader", || {
            // Somebody may have taken a port since it was chosen: whoever could not listen there has ended, and tries again.
            let has_ended = |member: &mut EtcdMember| member.process.as_mut().is_some_and(|process| process.try_wait().is_some());
            let ended: Vec<_> = (0..this.members.len()).filter(|at| has_ended(&mut this.members[*at])).collect();
            ended.into_iter().for_each(|at| this.run(at));
            this.leading()
        });
        Some(this)
    }

    /// The name of a store in it.
    #[must_use]
    pub fn store(&self, prefix: &str) -> String {
        let members: Vec<_> = self.members.iter().map(|member| member.clients.to_string()).collect();
        format!("etcd://{}/{prefix}", members.join(","))
    }

    /// Where clients reach a member.
    #[must_use]
    pub fn address(&self, at: usize) -> SocketAddr {
        self.members[at].clients
    }

    /// Numbers of the processes that run.
    pub fn ids(&self) -> impl Iterator<Item = u32> + '_ {
        self.members.iter().filter_map(|member| member.process.as_ref()).map(Process::id)
    }

    /// Where all of them have their data.
    #[must_use]
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Starts a member, or starts it again on its data.
    pub fn run(&mut self, at: usize) {
        let url = |address: SocketAddr| format!("http://{address}");
        let of_clients =
            |address| if self.flags.iter().any(|flag| flag == "--cert-file") { format!("https://{address}") } else { url(address) };
        let all: Vec<_> = self.members.iter().enumerate().map(|(at, member)| format!("m{at}={}", url(member.peers))).collect();
        let log = File::options().append(true).create(true).open(self.dir.path().join(format!("log-{at}"))).unwrap();
        let member = &self.members[at];
        let mut command = Command::new(program().unwrap());
        command.arg("--data-dir").arg(self.dir.path().join(format!("data-{at}"))).args([
            "--name",
            &format!("m{at}"),
            "--log-level",
            "error",
        ]);
        command.args(["--initial-cluster", &all.join(","), "--heartbeat-interval", "50", "--election-timeout", "500"]);
        command.args(["--listen-client-urls", &of_clients(member.clients), "--advertise-client-urls", &of_clients(member.clients)]);
        command.args(["--listen-metrics-urls", &url(member.metrics)]);
        command.args(["--listen-peer-urls", &url(member.peers), "--initial-advertise-peer-urls", &url(member.peers)]);
        command.args(&self.flags).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = Process::spawn_at(&member.place, &mut command).unwrap();
        self.members[at].process = Some(process);
    }

    /// Kills a member.
    pub fn kill(&mut self, at: usize) {
        if let Some(mut process) = self.members[at].process.take() {
            process.kill();
        }
    }

    /// Stops a member where it stands, or lets it go on.
    pub fn pause(&self, at: usize, paused: bool) {
        self.members[at].process.as_ref().unwrap().signal(if paused { Signal::SIGSTOP } else { Signal::SIGCONT });
    }

    /// Puts all that it has into another cluster, as a restore from a snapshot would.
    pub fn copy_to(&self, other: &Self) {
        for kv in self.all()["kvs"].as_array().unwrap() {
            other.ok("kv/put", &json!({ "key": kv["key"], "value": kv["value"] }));
        }
    }

    /// Removes all history, gives what it took back, and disarms the alarm, as an operator does by `etcdctl`; of one member.
    pub fn make_room(&self) {
        let header = &self.all()["header"];
        self.ok("kv/compaction", &json!({ "revision": header["revision"], "physical": true }));
        self.ok("maintenance/defragment", &json!({}));
        self.ok("maintenance/alarm", &json!({ "action": "DEACTIVATE", "memberID": header["member_id"], "alarm": "NOSPACE" }));
    }

    fn all(&self) -> Value {
        self.ok("kv/range", &json!({ "key": "AA==", "range_end": "AA==" }))
    }

    fn ok(&self, what: &str, body: &Value) -> Value {
        self.ok_as("", what, body)
    }

    /// As somebody who has a token.
    fn ok_as(&self, token: &str, what: &str, body: &Value) -> Value {
        let text = asked(&self.members[0].place, self.address(0), &format!("POST /v3/{what}"), token, &body.to_string()).unwrap();
        let answer: Value = serde_json::from_str(&text).unwrap();
        assert!(answer["error"].is_null(), "{what}: {answer}");
        answer
    }

    /// From now on users need a password; this one may read and write what begins so, and `root`, with the same password, may do everything.
    pub fn require_passwords(&self, user: &str, password: &str, prefix: &str) {
        let mut end = prefix.as_bytes().to_vec();
        *end.last_mut().unwrap() += 1;
        let range = json!({ "permType": "READWRITE", "key": base64(prefix.as_bytes()), "range_end": base64(&end) });
        for name in [user, "root"] {
            self.ok("auth/user/add", &json!({ "name": name, "password": password }));
            self.ok("auth/role/add", &json!({ "name": name }));
            self.ok("auth/user/grant", &json!({ "user": name, "role": name }));
        }
        self.ok("auth/role/grant", &json!({ "name": user, "perm": range }));
        self.ok("auth/enable", &json!({}));
    }

    /// Adds a user, who may do nothing; root has this password.
    pub fn add_user(&self, name: &str, root: &str) {
        self.as_root(root, "auth/user/add", &json!({ "name": name, "password": root }));
    }

    /// Gives a user another password; root has the last one.
    pub fn change_password(&self, name: &str, password: &str, root: &str) {
        self.as_root(root, "auth/user/changepw", &json!({ "name": name, "password": password }));
    }

    fn as_root(&self, password: &str, what: &str, body: &Value) {
        let root = self.ok("auth/authenticate", &json!({ "name": "root", "password": password }));
        self.ok_as(root["token"].as_str().unwrap(), what, body);
    }

    /// The member that leads; waits until there is one.
    pub fn leader(&self) -> usize {
        eventually("etcd has a leader", || self.leading())
    }

    fn leading(&self) -> Option<usize> {
        let leads = |member: &EtcdMember| {
            member.process.is_some()
                && asked(&member.place, member.metrics, "GET /metrics", "", "").is_some_and(|text| text.contains("etcd_server_is_leader 1"))
        };
        self.members.iter().position(leads)
    }
}

/// What a member answers by HTTP, to somebody who has that token or none; nothing if it does not answer.
fn asked(place: &Place, address: SocketAddr, request: &str, token: &str, body: &str) -> Option<String> {
    let own = if token.is_empty() { String::new() } else { format!("Authorization: {token}\r\n") };
    let exchange = || {
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
        write!(stream, "{request} HTTP/1.0\r\n{own}Content-Length: {}\r\n\r\n{body}", body.len()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned())
    };
    place.run(exchange)
}

/// Where etcd is, as a shell would find it.
fn program() -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).map(|dir| dir.join("etcd")).find(|file| file.is_file())
}

fn free_port(ip: IpAddr) -> SocketAddr {
    TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap()
}
