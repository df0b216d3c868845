//! A server: started on a store or in memory, asked by its control socket, and started again.

use crate::captures::Captures;
use crate::{CISTERN, CISTERND, Daemon, Place, ask, command, connect, program, said};
use serde_json::{Value, json};
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
        let store = dir.path().join("store");
        let store = store.to_str().unwrap();
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
        let address: SocketAddr = process.ready["listen"][0].as_str().unwrap().parse().unwrap();
        let control = process.ready["control"].as_str().unwrap().into();
        let mut args: Vec<_> = all.into_iter().map(ToOwned::to_owned).collect();
        args[1] = address.to_string();
        Self { process, address, captures, control, place: place.clone(), args, dir }
    }

    /// Starts it again, after it was killed or ended, on the same address and the same store.
    pub fn start_again(&mut self) {
        let capture = self.captures.switch("server");
        let args: Vec<_> = self.args.iter().chain(&capture).map(String::as_str).collect();
        self.process = Daemon::start(&self.place, CISTERND, &args);
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
