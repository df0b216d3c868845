//! A server: started on a store or in memory, asked by its control socket, and started again.

use crate::attack::Attack;
use crate::captures::Captures;
use crate::session::SealedBy;
use crate::{CISTERN, CISTERND, Daemon, Place, ask, command, connect, program, said};
use cistern_driver::seed;
use cistern_seal::key::Role;
use cistern_seal::{PublicKey, SecretKey};
use serde_json::{Value, json};
use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use tempfile::TempDir;

/// A server and the directory of its state.
pub struct Server {
    /// The process.
    pub process: Daemon,
    /// Where it listens.
    pub address: SocketAddr,
    /// After the process, which writes them.
    pub captures: Captures,
    control: PathBuf,
    /// Its public key, if it speaks sealed.
    key: Option<PublicKey>,
    /// How and where it is started again.
    place: Place,
    args: Vec<String>,
    /// Its state, its captures, and its store if it has one.
    pub dir: TempDir,
}

impl Server {
    /// A server in memory, with a lease of a second.
    pub fn start() -> Self {
        Self::with(&["--lease", "1s"])
    }

    /// A server in memory, the first of its cluster, with options of its own.
    pub fn with(args: &[&str]) -> Self {
        Self::of_cluster(&[&["--new-cluster"], args].concat())
    }

    /// As [`Self::with`], without captures of it and its agents.
    pub fn unrecorded(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let captures = Captures::none(dir.path());
        let args = [&["--volatile", "--new-cluster"], args].concat();
        Self::captured(&Place::default(), dir, captures, &[(Ipv4Addr::LOCALHOST, 0).into()], &args)
    }

    /// A server that is to be attacked so, plain or sealed, without captures; it logs to [`Self::log`].
    pub fn attacked(attack: Attack, sealed: bool, lease: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let settings = dir.path().join("cistern.toml");
        fs::write(&settings, attack.settings()).unwrap();
        let own = ["--lease", lease, "--config", settings.to_str().unwrap()];
        Self::quiet(dir, sealed, attack.is_durable(), &own)
    }

    /// A server on a store, plain or sealed, without captures, with options of its own; it logs to [`Self::log`].
    pub fn kept(sealed: bool, args: &[&str]) -> Self {
        Self::quiet(tempfile::tempdir().unwrap(), sealed, true, args)
    }

    /// What a server without captures logs to, also when it is started again.
    pub fn log(&self) -> PathBuf {
        self.dir.path().join("log")
    }

    /// Without captures; its log is a file.
    fn quiet(dir: TempDir, sealed: bool, durable: bool, own: &[&str]) -> Self {
        let captures = Captures::none(dir.path());
        let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        let (state, store, log) = (path("server"), path("store"), dir.path().join("log"));
        let made = ["init", "--json", "--new-cluster", "--state", &state, "--credentials", &path("own"), &store];
        let made = command(CISTERND, &made).output().unwrap();
        let key = serde_json::from_slice::<Value>(&made.stdout).unwrap_or_else(|_| panic!("{}", said(&made)));
        let key = sealed.then(|| PublicKey::from_text(key["server"].as_str().unwrap(), Role::Server).unwrap());
        let mut all = vec!["--listen", "127.0.0.1:0", "--json", "--state", &state];
        all.extend(if sealed { None } else { Some("--insecure") });
        let on_disk: &[&str] = &["--store", &store, "--store-limit", "256M"];
        all.extend(if durable { on_disk } else { &["--volatile", "--new-cluster"] });
        all.extend(own);
        let place = Place::default();
        let mut daemon = command(CISTERND, &all);
        let process = Daemon::of(&place, daemon.stderr(File::create(log).unwrap()));
        let args = all.into_iter().map(ToOwned::to_owned).collect();
        Self::of(process, captures, key, place, args, dir)
    }

    /// Admits a key of a host to everything, if the server speaks sealed; gives it.
    pub fn admit(&self, name: &str) -> Option<SealedBy> {
        let agent = SecretKey::from_bytes(seed().unwrap());
        self.admit_key(name, &agent.public().to_text(Role::Agent));
        self.key.map(|server| SealedBy { agent, server })
    }

    /// Makes a key in a file and admits it to everything, if the server speaks sealed; gives the options that name it.
    pub(crate) fn key_options(&self, name: &str) -> Vec<String> {
        let Some(server) = self.key else { return Vec::new() };
        let file = self.dir.path().join(format!("{name}.key"));
        let file = file.to_str().unwrap();
        let made = command(CISTERN, &["key", "new", file, "--json"]).output().unwrap();
        let made: Value = serde_json::from_slice(&made.stdout).unwrap_or_else(|_| panic!("{}", said(&made)));
        self.admit_key(name, made["public"].as_str().unwrap());
        ["--key-file", file, "--server-key", &server.to_text(Role::Server)].map(ToOwned::to_owned).to_vec()
    }

    fn admit_key(&self, name: &str, public: &str) {
        for args in [&["add", name, "--key", public][..], &["grant", name, "1=rwlo"]].iter().filter(|_| self.key.is_some()) {
            let done = command(CISTERN, &[&["admin"], *args, &["--control", self.control.to_str().unwrap()]].concat()).output().unwrap();
            assert!(done.status.success(), "{args:?}: {}", said(&done));
        }
    }

    /// A server that is not told that it is the first of its cluster.
    pub fn of_cluster(args: &[&str]) -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), &[&["--volatile"], args].concat())
    }

    /// A server with a new store in a directory, the first of its cluster.
    pub fn durable(args: &[&str]) -> Self {
        Self::initialised(&["--new-cluster"], args)
    }

    /// A server with a new store that `cisternd init` made with these options.
    pub fn initialised(init: &[&str], args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store").to_str().unwrap().to_owned();
        Self::initialised_at(dir, &store, init, args)
    }

    /// A server with a new store on etcd, the first of its cluster.
    pub fn on_etcd(store: &str, args: &[&str]) -> Self {
        Self::initialised_at(tempfile::tempdir().unwrap(), store, &["--new-cluster"], args)
    }

    fn initialised_at(dir: TempDir, store: &str, init: &[&str], args: &[&str]) -> Self {
        let (state, own) = (dir.path().join("server"), dir.path().join("own"));
        let places = ["--state", state.to_str().unwrap(), "--credentials", own.to_str().unwrap()];
        let made = command(CISTERND, &[&["init", store], &places[..], init].concat()).output().unwrap();
        assert!(made.status.success(), "{}", said(&made));
        Self::in_dir(dir, &[&["--store", store], args].concat())
    }

    /// A server of a host: everything in memory, on the addresses given.
    pub fn at(place: &Place, listen: &[SocketAddr], args: &[&str]) -> Self {
        let args = [&["--volatile", "--new-cluster"], args].concat();
        Self::started(place, tempfile::tempdir().unwrap(), listen, &args)
    }

    fn in_dir(dir: TempDir, args: &[&str]) -> Self {
        Self::started(&Place::default(), dir, &[(Ipv4Addr::LOCALHOST, 0).into()], args)
    }

    fn started(place: &Place, dir: TempDir, listen: &[SocketAddr], args: &[&str]) -> Self {
        let captures = Captures::below(dir.path());
        Self::captured(place, dir, captures, listen, args)
    }

    fn captured(place: &Place, dir: TempDir, captures: Captures, listen: &[SocketAddr], args: &[&str]) -> Self {
        let state = dir.path().join("server");
        let addresses: Vec<_> = listen.iter().map(ToString::to_string).collect();
        let mut all: Vec<_> = addresses.iter().flat_map(|address| ["--listen", address]).collect();
        all.extend(["--json", "--insecure", "--state", state.to_str().unwrap()]);
        all.extend(args);
        let capture = captures.switch("server");
        let with_capture: Vec<_> = all.iter().copied().chain(capture.iter().map(String::as_str)).collect();
        let process = Daemon::start(place, CISTERND, &with_capture);
        let args = all.into_iter().map(ToOwned::to_owned).collect();
        Self::of(process, captures, None, place.clone(), args, dir)
    }

    fn of(process: Daemon, captures: Captures, key: Option<PublicKey>, place: Place, mut args: Vec<String>, dir: TempDir) -> Self {
        let address: SocketAddr = process.ready["listen"][0].as_str().unwrap().parse().unwrap();
        let control = process.ready["control"].as_str().unwrap().into();
        // When it is started again it listens there.
        args[1] = address.to_string();
        Self { process, address, captures, control, key, place, args, dir }
    }

    /// Starts it again, after it was killed or ended, on the same address and the same store.
    pub fn start_again(&mut self) {
        let capture = self.captures.switch("server");
        let args: Vec<_> = self.args.iter().chain(&capture).map(String::as_str).collect();
        let mut daemon = command(CISTERND, &args);
        let log = File::options().append(true).open(self.log());
        self.process = Daemon::of(&self.place, if let Ok(log) = log { daemon.stderr(log) } else { &mut daemon });
    }

    /// As [`Self::start_again`], by a shell that first does something.
    pub fn start_again_after(&mut self, shell: &str) {
        let (script, capture) = (format!("{shell}; exec \"$0\" \"$@\""), self.captures.switch("server"));
        let daemon = program(CISTERND);
        let args = ["-c", &script, daemon.to_str().unwrap()].into_iter().chain(self.args.iter().map(String::as_str));
        let args: Vec<_> = args.chain(capture.iter().map(String::as_str)).collect();
        self.process = Daemon::start(&self.place, "sh", &args);
    }

    /// The directory of its store.
    pub fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A server on a store that is there already.
    pub fn on_store(store: &Path) -> Self {
        // A store that was restored waits for the longest lease that a server could have given: no longer here than the server's own.
        Self::in_dir(tempfile::tempdir().unwrap(), &["--store", store.to_str().unwrap(), "--lease-max", "2s"])
    }

    /// Asks it by its control socket.
    pub fn ask(&self, request: &Value) -> Result<Value, Value> {
        ask(&mut connect(&self.control), request)
    }

    /// What it says of itself.
    pub fn status(&self) -> Value {
        self.ask(&json!({ "op": "status" })).unwrap()
    }

    /// A number of that.
    pub fn count(&self, name: &str) -> u64 {
        let status = self.status();
        status[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {status}"))
    }

    /// Where its control socket is.
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// Runs `cistern` against this server.
    pub fn cistern(&self, args: &[&str]) -> Output {
        self.prepared(args).output().unwrap()
    }

    /// A command line of `cistern` that names this server.
    pub fn prepared(&self, args: &[&str]) -> Command {
        let mut command = command(CISTERN, args);
        command.env("CISTERN_SERVER", self.address.to_string());
        command
    }

    /// Runs `cistern`, which must succeed; gives what it printed.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.cistern(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}
