//! Sealed sessions between real processes: who is let in, who is not, and what each of them is told.

use crate::metrics::scrape;
use cistern_audit::{Auditor, Passage, Side, Terms, Vantage};
use cistern_capture::Reader;
use cistern_seal::key::Role;
use cistern_seal::{KeyLog, SecretKey};
use cistern_testkit::{CISTERN, CISTERND, Daemon, Place, Process, Server, command, eventually, said};
use cistern_wire::{AgentId, Header, Hello, Message, Packer, SessionId};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server with a key of its own, and the keys of agents.
pub(super) struct Sealed {
    pub(super) server: Daemon,
    pub(super) address: SocketAddr,
    /// Of the server, in public.
    key: String,
    /// How it was started, besides.
    args: Vec<String>,
    dir: TempDir,
}

impl Sealed {
    pub(super) fn start() -> Self {
        Self::with(&[])
    }

    pub(super) fn with(args: &[&str]) -> Self {
        Self::in_memory(args, |_, _| ())
    }

    /// The server logs to a file.
    pub(super) fn logging() -> Self {
        let to_file = |command: &mut Command, dir: &Path| {
            command.stderr(File::create(dir.join("server.log")).unwrap());
        };
        Self::in_memory(&[], to_file)
    }

    fn in_memory(args: &[&str], prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let args = [&["--volatile", "--new-cluster", "--lease", "1s"], args].concat();
        Self::serving(|_| args.iter().map(ToString::to_string).collect(), prepare)
    }

    /// Its sessions outlive it, and it has metrics.
    fn durable() -> Self {
        Self::serving(|store| ["--store", store, "--lease", "5s", "--http", "0"].map(str::to_owned).to_vec(), |_, _| ())
    }

    /// It has a directory for backups over the network, `backups`.
    pub(super) fn backing_up() -> Self {
        let args = |store: &str| {
            let backups = Path::new(store).with_file_name("backups");
            fs::create_dir(&backups).unwrap();
            ["--store", store, "--backups", backups.to_str().unwrap()].map(str::to_owned).to_vec()
        };
        Self::serving(args, |_, _| ())
    }

    fn serving(args: impl FnOnce(&str) -> Vec<String>, prepare: impl FnOnce(&mut Command, &Path)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [state, own, store] = ["server", "config/cistern", "store"].map(|name| dir.path().join(name));
        let [state, own, store] = [&state, &own, &store].map(|path| path.to_str().unwrap());
        let made = command(CISTERND, &["init", "--new-cluster", "--json", "--state", state, "--credentials", own, store]).output().unwrap();
        let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{}", said(&made)));
        let args = args(store);
        let server = Self::serve(&dir, &args, "127.0.0.1:0", prepare);
        let key = made["server"].as_str().unwrap().to_owned();
        assert_eq!(server.ready["key"], key);
        let address = server.ready["listen"][0].as_str().unwrap().parse().unwrap();
        Self { server, address, key, args, dir }
    }

    fn serve(dir: &TempDir, args: &[String], listen: &str, prepare: impl FnOnce(&mut Command, &Path)) -> Daemon {
        let state = dir.path().join("server");
        let own = ["--listen", listen, "--json", "--state", state.to_str().unwrap()];
        let args: Vec<&str> = own.into_iter().chain(args.iter().map(String::as_str)).collect();
        let mut server = command(CISTERND, &args);
        prepare(&mut server, dir.path());
        Daemon::of(&Place::default(), &mut server)
    }

    /// The server is killed, and another one started where it was.
    fn start_again(&mut self) {
        self.server.kill();
        self.server = Self::serve(&self.dir, &self.args, &self.address.to_string(), |_, _| ());
    }

    /// A sample of its metrics.
    fn metric(&self, name: &str) -> u64 {
        let text = scrape(self.server.ready["http"].as_str().unwrap().parse().unwrap());
        let sample = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        sample.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn key(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Makes a key; gives its public half.
    pub(super) fn make_key(&self, name: &str) -> String {
        let made = command(CISTERN, &["key", "new", &self.key(name), "--json"]).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        serde_json::from_slice::<Value>(&made.stdout).unwrap()["public"].as_str().unwrap().to_owned()
    }

    pub(super) fn admin(&self, args: &[&str]) {
        self.admin_says(args);
    }

    pub(super) fn admin_says(&self, args: &[&str]) -> String {
        let socket = self.server.ready["control"].as_str().unwrap();
        let output = command(CISTERN, &[&["admin"], args, &["--control", socket]].concat()).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Makes a key, and admits it to everything.
    pub(super) fn admit(&self, name: &str) {
        let public = self.make_key(name);
        self.admin(&["add", name, "--key", &public]);
        self.admin(&["grant", name, "1=rwlo"]);
    }

    /// Without the keys of whoever runs the tests.
    pub(super) fn plain(&self, args: &[&str]) -> Command {
        let mut command = command(CISTERN, args);
        command.env_remove("CREDENTIALS_DIRECTORY").env_remove("CISTERN_CREDENTIALS");
        command.env("HOME", self.dir.path()).env("XDG_CONFIG_HOME", self.path("nobody"));
        command.env("CISTERN_SERVER", self.address.to_string());
        command
    }

    pub(super) fn prepared(&self, key: &str, args: &[&str]) -> Command {
        self.plain(&[&["--key-file", &self.key(key), "--server-key", &self.key], args].concat())
    }

    pub(super) fn ok(&self, key: &str, args: &[&str]) -> String {
        let output = self.prepared(key, args).output().unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(super) fn refused(output: &Output, code: i32, why: &str) {
    assert!(output.status.code() == Some(code) && said(output).contains(why), "not {why:?}: {}", said(output));
}

//= docs/sealed.md#who-has-which-key
//= type=test
//# A side that has a key MUST NOT send or act on a datagram of form 0, in either role.
#[test]
fn who_has_an_admitted_key_works_sealed_and_nothing_is_said_in_clear() {
    let sealed = Sealed::start();
    sealed.admit("web");
    let pcap = sealed.key("web.pcap");
    sealed.ok("web", &["mkdir", "/a-name-that-nobody-else-may-read"]);
    let listed = sealed.ok("web", &["ls", "/", "--pcap", &pcap]);
    assert!(listed.contains("a-name-that-nobody-else-may-read"), "{listed}");
    let captured = fs::read(&pcap).unwrap();
    assert!(!captured.is_empty() && !captured.windows(6).any(|bytes| bytes == b"nobody"), "a name is in the capture");
    // A session of its own, renewed while its command runs, and a token.
    let mut lock = sealed.prepared("web", &["lock", "/a-name-that-nobody-else-may-read", "--", "sh", "-c", "sleep 3; echo done"]);
    let output = lock.output().unwrap();
    assert!(output.status.success() && said(&output).contains("done"), "{}", said(&output));
    sealed.ok("web", &["ping"]);
}

//= wire-spec.md#11-8-security
//= type=test
//# A side that has a key configured MUST NOT act on a plain datagram, in either role.
//= wire-spec.md#11-8-security
//= type=test
//# Agent and server of a sealed session MUST each prove who they are; a key shared by several MUST be documented as one domain of trust.
//= docs/sealed.md#who-has-which-key
//= type=test
//# A side that has a key MUST NOT send or act on a datagram of form 0, in either role.
#[test]
fn who_has_no_admitted_key_is_told_and_who_speaks_in_clear_gets_nothing() {
    let sealed = Sealed::start();
    sealed.admit("web");
    sealed.make_key("stranger");
    refused(&sealed.prepared("stranger", &["ls", "/"]).output().unwrap(), 69, "does not know this key");
    // Another server's key: whoever is at the address does not have it.
    let other = SecretKey::from_bytes([6; 32]).public().to_text(Role::Server);
    let wrong = sealed.plain(&["ls", "/", "--timeout", "1s", "--key-file", &sealed.key("web"), "--server-key", &other]).output().unwrap();
    refused(&wrong, 69, "know that of the server");
    // Who has no key says nothing unless that is wanted, and is answered nothing.
    let mut silent = sealed.plain(&["ls", "/", "--timeout", "1s"]);
    refused(&silent.output().unwrap(), 69, "answers only agents that have one");
    refused(
        &silent.env_remove("CISTERN_INSECURE").output().unwrap(),
        2,
        "`cistern join` makes a key and has it admitted, --insecure speaks in clear",
    );
    refused(&silent.env("CISTERN_INSECURE", "0").output().unwrap(), 2, "--insecure");
    let flag = sealed.plain(&["ls", "/", "--timeout", "1s", "--insecure"]).env_remove("CISTERN_INSECURE").output().unwrap();
    refused(&flag, 69, "answers only agents that have one");
    refused(&sealed.plain(&["ls", "/", "--key-file", &sealed.key("web")]).output().unwrap(), 2, "--server-key");
    refused(&sealed.plain(&["ls", "/", "--server-key", &sealed.key]).output().unwrap(), 2, "cistern key new");
    let both = sealed.plain(&["ls", "/", "--insecure", "--key-file", &sealed.key("web")]).output().unwrap();
    refused(&both, 2, "--insecure");
    // Not one byte, whatever is sent.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut hello = Vec::new();
    let header = Header { from_server: false, session: SessionId(0), packet: 1 };
    let mut packer = Packer::new(&mut hello, header, 1_232);
    assert!(packer.push(&Message::Hello(Hello::new(AgentId([1; 16]), 7))));
    packer.finish();
    for datagram in [&hello[..], &[0xc5; 1_200], b"", &[0; 48]] {
        socket.send_to(datagram, sealed.address).unwrap();
    }
    assert!(socket.recv(&mut [0; 2_048]).is_err(), "a stranger was answered");
    // The environment of these commands allows what is in clear; a key wins.
    sealed.ok("web", &["ls", "/"]);
}

//= wire-spec.md#11-8-security
//= type=test
//# The sessions of a key that is withdrawn MUST end by D.
#[test]
fn a_key_that_is_revoked_loses_its_live_sessions_and_opens_no_others() {
    let sealed = Sealed::start();
    sealed.admit("web");
    sealed.admit("heir");
    sealed.ok("web", &["touch", "/job"]);
    let mut command = sealed.prepared("web", &["lock", "/job", "--", "sh", "-c", "echo held; sleep 120"]);
    let mut holder = Process::spawn(command.stdout(Stdio::piped())).unwrap();
    assert_eq!(holder.line().as_deref(), Some("held"));
    sealed.admin(&["revoke", "web"]);
    let status = eventually("the holder is ended", || holder.try_wait());
    assert!(!status.success(), "{status}");
    refused(&sealed.prepared("web", &["ls", "/"]).output().unwrap(), 69, "was revoked");
    // When its lease is over the lock is another's.
    assert!(sealed.ok("heir", &["lock", "/job", "--", "echo", "inherited"]).contains("inherited"));
}

#[test]
fn a_holder_is_back_by_resume_after_its_server_was_killed_and_keeps_its_lock() {
    let mut sealed = Sealed::durable();
    sealed.admit("web");
    sealed.admit("heir");
    sealed.ok("web", &["touch", "/job"]);
    let mut command = sealed.prepared("web", &["lock", "/job", "--", "sh", "-c", "echo held; read end; echo $end"]);
    let mut holder = Process::spawn(command.stdout(Stdio::piped()).stdin(Stdio::piped())).unwrap();
    assert_eq!(holder.line().as_deref(), Some("held"));
    sealed.start_again();
    eventually("its session is resumed", || (sealed.metric("cistern_sessions_resumed_total") == 1).then_some(()));
    let taken = sealed.prepared("heir", &["lock", "--wait", "3", "/job", "--", "true"]).output().unwrap();
    assert_eq!(taken.status.code(), Some(124), "it holds its lock: {}", said(&taken));
    holder.tell("whole").unwrap();
    assert_eq!(holder.line().as_deref(), Some("whole"));
    assert_eq!(holder.ended(), Some(0));
    assert!(sealed.ok("heir", &["lock", "/job", "--", "echo", "inherited"]).contains("inherited"));
    assert_eq!(sealed.metric("cistern_sessions_resumed_total"), 1, "who comes anew resumes nothing");
}

#[test]
fn the_user_of_init_is_the_operator_and_names_no_key() {
    let sealed = Sealed::start();
    let operator = |args: &[&str]| sealed.plain(args).env("XDG_CONFIG_HOME", sealed.path("config")).output().unwrap();
    let by_key = sealed.path("config/cistern/host.key");
    let by_key = by_key.to_str().unwrap();
    // Root looks in /etc, so the file is named.
    for args in [&["mkdir", "/made-by-the-operator", "--key-file", by_key][..], &["ls", "/", "--key-file", by_key]] {
        let output = operator(args);
        assert!(output.status.success(), "{}", said(&output));
    }
    let listed = sealed.admin_says(&["agents", "--json"]);
    assert!(listed.contains("\"operator\""), "{listed}");
}

/// Whether a name is said in a capture, to whoever has a key log.
fn is_said(name: &str, pcap: &str, log: &str) -> bool {
    let mut keys = KeyLog::default();
    keys.read(&fs::read_to_string(log).unwrap()).unwrap();
    let mut reader = Reader::new(File::open(pcap).unwrap());
    let datagrams = std::iter::from_fn(|| reader.next_datagram().unwrap());
    datagrams
        .filter_map(|datagram| keys.open(&datagram.payload))
        .any(|plain| plain.windows(name.len()).any(|bytes| bytes == name.as_bytes()))
}

#[test]
fn whoever_has_the_key_log_of_either_side_reads_captures() {
    let logs = tempfile::tempdir().unwrap();
    let log = |name: &str| logs.path().join(name).to_str().unwrap().to_owned();
    let sealed = Sealed::with(&["--key-log", &log("server")]);
    sealed.admit("web");
    let pcap = log("web.pcap");
    sealed.ok("web", &["mkdir", "/secret-name", "--pcap", &pcap, "--key-log", &log("web")]);
    for side in ["server", "web"] {
        assert!(is_said("secret-name", &pcap, &log(side)), "by the log of {side}");
        assert_eq!(fs::metadata(log(side)).unwrap().permissions().mode() & 0o777, 0o600);
    }
    fs::write(log("empty"), "").unwrap();
    assert!(!is_said("secret-name", &pcap, &log("empty")));
    // A file that others can read gets no keys.
    fs::set_permissions(log("empty"), fs::Permissions::from_mode(0o644)).unwrap();
    refused(&sealed.prepared("web", &["ls", "/", "--key-log", &log("empty")]).output().unwrap(), 2, "chmod");
}

/// What an auditor finds in a capture that the server's process has written: sessions, rules that were judged, violations.
fn found(pcap: &Path, keys: &mut KeyLog) -> (u64, BTreeSet<String>, Value) {
    let mut auditor = Auditor::new(Vantage { side: Side::Server, inside: true, complete: false, ..Vantage::default() }, Terms::default());
    for datagram in Reader::new(File::open(pcap).unwrap()).map(Result::unwrap) {
        let opened = keys.open(&datagram.payload);
        auditor.take(Passage { payload: opened.as_deref().unwrap_or(&datagram.payload), ..Passage::from(&datagram) });
    }
    let report = auditor.report().json();
    assert_eq!((&report["unreadable"], &report["sessions_begun_before"]), (&Value::Object(serde_json::Map::new()), &0.into()), "{report}");
    let rules = report["rules"].as_array().unwrap().iter().filter(|rule| rule["consistent"] != 0);
    (report["sessions"].as_u64().unwrap(), rules.map(|rule| rule["rule"].to_string()).collect(), report["violations"].clone())
}

#[test]
fn an_auditor_with_a_key_log_finds_in_a_sealed_capture_what_it_finds_in_a_plain_one() {
    let acts: [&[&str]; 5] = [&["mkdir", "/d"], &["touch", "/d/f"], &["ls", "-l", "/d"], &["lock", "/d/f", "--", "true"], &["rm", "/d/f"]];
    let files = tempfile::tempdir().unwrap();
    let file = |name: &str| files.path().join(name).to_str().unwrap().to_owned();
    let mut sealed = Sealed::with(&["--pcap", &file("sealed.pcap"), "--key-log", &file("keys")]);
    sealed.admit("web");
    let mut plain = Server::unrecorded(&["--lease", "1s", "--pcap", &file("plain.pcap")]);
    for act in acts {
        sealed.ok("web", act);
        plain.ok(act);
    }
    assert_eq!((sealed.server.end(), plain.process.end()), (Some(0), Some(0)));
    let mut keys = KeyLog::default();
    keys.read(&fs::read_to_string(file("keys")).unwrap()).unwrap();
    let of_sealed = found(&files.path().join("sealed.pcap"), &mut keys);
    let of_plain = found(&files.path().join("plain.pcap"), &mut KeyLog::default());
    // Which rules had anything to judge depends on what was sent again.
    assert_eq!((of_sealed.0, &of_sealed.2), (of_plain.0, &of_plain.2));
    assert!(of_sealed.0 == 5 && of_sealed.1.len() > 10 && of_sealed.2 == Value::Array(Vec::new()), "{of_sealed:?}");
}
