//! A group of servers that share a store on etcd, each a process, and commands under their locks.

use crate::group::free_names;
use crate::{CISTERN, CISTERND, Daemon, Etcds, Place, Process, ask, command, connect, eventually, said};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// A group, and the directory of its servers' states and logs.
pub struct ServerGroup {
    /// One process for each member; `None`: it was ended.
    pub servers: Vec<Option<Daemon>>,
    names: Vec<String>,
    /// Where each of them is, and commands.
    places: Vec<Place>,
    outside: Place,
    /// How many of them the first list has.
    listed: usize,
    store: String,
    args: Vec<String>,
    is_sealed: bool,
    dir: TempDir,
}

impl ServerGroup {
    /// So many servers, in clear, on loopback, at ports that are free, with a new store.
    pub fn start(etcds: &Etcds, count: usize, args: &[&str]) -> Self {
        Self::of(etcds, vec![Place::default(); count], Place::default(), free_names(count), 0, false, args)
    }

    /// The same, each with a key of its own, and commands with an operator's.
    pub fn sealed(etcds: &Etcds, count: usize, args: &[&str]) -> Self {
        Self::of(etcds, vec![Place::default(); count], Place::default(), free_names(count), 0, true, args)
    }

    /// The same, and one more that the list does not have, not started yet: its number is `count`.
    pub fn sealed_with_a_spare(etcds: &Etcds, count: usize, args: &[&str]) -> Self {
        Self::of(etcds, vec![Place::default(); count + 1], Place::default(), free_names(count + 1), 1, true, args)
    }

    /// In clear, on these hosts, by these names; commands are started in the place after them.
    pub fn at(etcds: &Etcds, places: Vec<Place>, names: Vec<String>, outside: Place, args: &[&str]) -> Self {
        Self::of(etcds, places, outside, names, 0, false, args)
    }

    fn of(etcds: &Etcds, places: Vec<Place>, outside: Place, names: Vec<String>, spares: usize, is_sealed: bool, args: &[&str]) -> Self {
        let (dir, count, store) = (tempfile::tempdir().unwrap(), names.len(), etcds.store("group"));
        let own: &[&str] = if is_sealed { &[] } else { &["--insecure"] };
        let own = [&["--json", "--store", &store], own].concat();
        let args = own.iter().chain(args).map(ToString::to_string).collect();
        let servers = names.iter().map(|_| None).collect();
        let listed = count - spares;
        let mut this = Self { servers, names, places, outside, listed, store: store.clone(), args, is_sealed, dir };
        this.init(0, &["--new-cluster", &store]);
        // Once more for all but the last: it makes no keys, and hands the roster with all of them out.
        (1..count).chain(0..count - 1).for_each(|server| this.init(server, &["--keys-only"]));
        (0..listed).for_each(|server| this.start_server(server));
        this
    }

    /// Their store, as commands name it.
    pub fn store(&self) -> &str {
        &self.store
    }

    fn init(&self, server: usize, more: &[&str]) {
        let (state, own) = (self.state(server), self.credentials());
        let places = ["init", "--state", state.to_str().unwrap(), "--credentials", own.to_str().unwrap(), "--address", &self.names[server]];
        let mut init = command(CISTERND, &[&places, more].concat());
        let made = self.places[server].run(|| init.output()).unwrap();
        assert!(made.status.success(), "{}", said(&made));
    }

    fn credentials(&self) -> PathBuf {
        self.dir.path().join("own")
    }

    /// The servers' names.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// The servers, as commands name them.
    pub fn list(&self) -> String {
        self.names.join(",")
    }

    /// A server's name.
    pub fn name(&self, server: usize) -> &str {
        &self.names[server]
    }

    fn state(&self, server: usize) -> PathBuf {
        self.dir.path().join(format!("state-{server}"))
    }

    /// What all of a server's processes have logged.
    pub fn log(&self, server: usize) -> String {
        fs::read_to_string(self.log_file(server)).unwrap_or_default()
    }

    fn log_file(&self, server: usize) -> PathBuf {
        self.dir.path().join(format!("log-{server}"))
    }

    /// Starts a server, again if it was ended. It is told of the first list, and of itself.
    pub fn start_server(&mut self, server: usize) {
        let state = self.state(server);
        let own = (server >= self.listed).then_some(server);
        let group: Vec<&str> = (0..self.listed).chain(own).map(|server| self.name(server)).collect();
        let group = group.join(",");
        let mut args = vec!["--me", &self.names[server], "--state", state.to_str().unwrap(), "--group", &group];
        args.extend(self.args.iter().map(String::as_str));
        let log = File::options().append(true).create(true).open(self.log_file(server)).unwrap();
        self.servers[server] = Some(Daemon::of(&self.places[server], command(CISTERND, &args).stderr(log)));
    }

    /// A server's process.
    pub fn server(&self, server: usize) -> &Daemon {
        self.servers[server].as_ref().unwrap()
    }

    /// Kills a server.
    pub fn kill(&mut self, server: usize) {
        self.servers[server].take().unwrap().kill();
    }

    /// Asks a server to end, and waits until it has; gives its exit status.
    pub fn end(&mut self, server: usize) -> Option<i32> {
        self.servers[server].take().unwrap().end()
    }

    /// Stops a server where it stands, or lets it go on.
    pub fn pause(&self, server: usize, paused: bool) {
        self.server(server).signal(if paused { Signal::SIGSTOP } else { Signal::SIGCONT });
    }

    /// The control socket of a server.
    pub fn control(&self, server: usize) -> PathBuf {
        self.state(server).join("control.sock")
    }

    /// Asks a server that runs by its control socket.
    pub fn ask(&self, server: usize, request: &Value) -> Result<Value, Value> {
        ask(&mut connect(&self.control(server)), request)
    }

    /// What a server says of itself.
    pub fn status(&self, server: usize) -> Value {
        self.ask(server, &json!({ "op": "status" })).unwrap()
    }

    /// Whether a server says that it serves.
    pub fn serves(&self, server: usize) -> bool {
        let status = self.status(server);
        status["serving"] == true && status["group"]["role"] == "serving"
    }

    /// Waits until a server other than these serves, and has no grace.
    pub fn serving(&self, but: &[usize]) -> usize {
        let is = |server: &usize| {
            !but.contains(server) && self.servers[*server].is_some() && self.serves(*server) && self.status(*server)["grace"].is_null()
        };
        eventually("a server of the group serves", || (0..self.names.len()).find(is))
    }

    /// Waits until a server takes part in elections.
    pub fn takes_part(&self, server: usize) {
        eventually("the server takes part", || (self.status(server)["group"]["starts_in_ms"] == 0).then_some(()));
    }

    /// A command line of `cistern` that names all servers.
    pub fn cistern(&self, args: &[&str]) -> Command {
        let mut command = command(CISTERN, args);
        command.env("CISTERN_SERVER", self.list());
        if self.is_sealed {
            command.env_remove("CISTERN_INSECURE").env("CISTERN_CREDENTIALS", self.credentials());
        }
        command
    }

    /// Runs `cistern`, which must succeed; gives what it printed.
    pub fn ok(&self, args: &[&str]) -> String {
        let mut command = self.cistern(args);
        let output = self.outside.run(|| command.output()).unwrap();
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts a command under the lock of a path, which writes its token to its trace until it is stopped, and waits for its first line.
    pub fn holder(&self, path: &str) -> GroupHolder {
        let trace = self.dir.path().join(format!("trace-{}", path.replace('/', "_")));
        let _ = fs::remove_file(&trace);
        let script = format!("while :; do echo $CISTERN_TOKEN >> {}; sleep 0.02; done", trace.display());
        let mut lock = self.cistern(&["lock", path, "--", "sh", "-c", &script]);
        let process = Process::spawn_at(&self.outside, lock.stdout(Stdio::null()).stderr(Stdio::null())).unwrap();
        let holder = GroupHolder { process, trace };
        eventually("the command runs", || (holder.lines() > 0).then_some(()));
        holder
    }

    /// The directory of its servers' states and logs.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }
}

/// A command under a lock of a group.
pub struct GroupHolder {
    process: Process,
    trace: PathBuf,
}

impl GroupHolder {
    /// How many lines the command has written.
    pub fn lines(&self) -> usize {
        fs::read_to_string(&self.trace).unwrap_or_default().lines().count()
    }

    /// Panics unless the command runs and has one token since it began; gives that.
    pub fn goes_on(&mut self) -> u64 {
        let before = self.lines();
        eventually("the command goes on", || {
            assert!(self.process.try_wait().is_none(), "the command was stopped");
            (self.lines() > before).then_some(())
        });
        let text = fs::read_to_string(&self.trace).unwrap();
        let tokens: Vec<&str> = text.lines().collect();
        let last = tokens[tokens.len() - 2];
        assert!(tokens[..tokens.len() - 1].iter().all(|token| *token == last), "another token: {text}");
        last.parse().unwrap()
    }
}
