//! Processes of the tests: a server, agents, command lines; and how they are asked.
//!
//! Decides: that every process is started and ended by the test that needs it, and that no wait is unbounded.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) const CISTERN: &str = env!("CARGO_BIN_EXE_cistern");
pub(crate) const CISTERND: &str = env!("CARGO_BIN_EXE_cisternd");

/// Longest wait for anything: far above what it takes, so that only a defect reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Process {
    child: Child,
    pub(crate) ready: Value,
}

impl Process {
    pub(crate) fn start(program: &str, args: &[&str]) -> Self {
        // In a process group of its own: where the tests' group is orphaned (no shell above it), the kernel hangs up the whole group
        // when one of it is stopped while another ends.
        let mut command = command(program, args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{program} {args:?} said {line:?}: {e}"));
        Self { child, ready }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits until the process has ended by itself, and gives its exit status.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        eventually("the process ends", || self.child.try_wait().unwrap()).code()
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks the process to end, and gives its exit status.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        let ended = eventually("the process ends", || self.child.try_wait().unwrap());
        ended.code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command line with no settings from outside.
pub(crate) fn command(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    for name in ["CISTERN_SERVER", "CISTERN_AGENT", "CISTERN_CONFIG", "CISTERN_CONTROL"] {
        command.env_remove(name);
    }
    command
}

/// A server and the directory of its state.
pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) address: SocketAddr,
    control: PathBuf,
    /// How it is started again.
    args: Vec<String>,
    pub(crate) dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Self::with(&["--lease", "1s"])
    }

    pub(crate) fn with(args: &[&str]) -> Self {
        Self::of_cluster(&[&["--new-cluster"], args].concat())
    }

    /// A server that is not told that it is the first of its cluster.
    pub(crate) fn of_cluster(args: &[&str]) -> Self {
        Self::in_dir(tempfile::tempdir().unwrap(), &[&["--volatile"], args].concat())
    }

    /// A server with a new store in a directory.
    pub(crate) fn durable(args: &[&str]) -> Self {
        Self::new_store(&[&["--new-cluster"], args].concat())
    }

    /// A server with a new store, which may not be the first of its cluster.
    pub(crate) fn new_store(args: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = dir.path().join("store");
        let server = Self::in_dir(dir, &[&["--store", store.to_str().unwrap(), "--new-store"], args].concat());
        server.await_start();
        server
    }

    fn await_start(&self) {
        eventually("the server has read its store", || (self.status()["serving"] == true).then_some(()));
    }

    fn in_dir(dir: TempDir, args: &[&str]) -> Self {
        let state = dir.path().join("server");
        let mut all = vec!["--listen", "127.0.0.1:0", "--json", "--state", state.to_str().unwrap()];
        all.extend(args);
        let process = Process::start(CISTERND, &all);
        let address: SocketAddr = process.ready["listen"][0].as_str().unwrap().parse().unwrap();
        let control = process.ready["control"].as_str().unwrap().into();
        let mut args: Vec<_> = all.into_iter().map(ToOwned::to_owned).collect();
        args[1] = address.to_string();
        Self { process, address, control, args, dir }
    }

    /// Starts it again, after it was killed or ended, on the same address and the same store.
    pub(crate) fn start_again(&mut self) {
        let args: Vec<_> = self.args.iter().map(String::as_str).collect();
        self.process = Process::start(CISTERND, &args);
        self.await_start();
    }

    /// As [`Self::start_again`], by a shell that first does something.
    pub(crate) fn start_again_after(&mut self, shell: &str) {
        let script = format!("{shell}; exec \"$0\" \"$@\"");
        let args: Vec<_> = ["-c", &script, CISTERND].into_iter().chain(self.args.iter().map(String::as_str)).collect();
        self.process = Process::start("sh", &args);
        self.await_start();
    }

    /// The directory of its store.
    pub(crate) fn store(&self) -> PathBuf {
        self.dir.path().join("store")
    }

    /// A server on a store that is there already.
    pub(crate) fn on_store(store: &Path) -> Self {
        let server = Self::in_dir(tempfile::tempdir().unwrap(), &["--store", store.to_str().unwrap()]);
        server.await_start();
        server
    }

    pub(crate) fn ask(&self, request: &Value) -> Result<Value, Value> {
        ask(&mut connect(&self.control), request)
    }

    pub(crate) fn status(&self) -> Value {
        self.ask(&json!({ "op": "status" })).unwrap()
    }

    pub(crate) fn count(&self, name: &str) -> u64 {
        let status = self.status();
        status[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {status}"))
    }

    pub(crate) fn control(&self) -> &Path {
        &self.control
    }

    /// Runs `cistern` against this server.
    pub(crate) fn cistern(&self, args: &[&str]) -> Output {
        self.prepared(args).output().unwrap()
    }

    pub(crate) fn prepared(&self, args: &[&str]) -> Command {
        let mut command = command(CISTERN, args);
        command.env("CISTERN_SERVER", self.address.to_string());
        command
    }

    /// Runs `cistern`, which must succeed; gives what it printed.
    pub(crate) fn ok(&self, args: &[&str]) -> String {
        let output = self.cistern(args);
        assert!(output.status.success(), "{args:?}: {}", said(&output));
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn said(output: &Output) -> String {
    format!("{:?}, {} {}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn connect(path: &Path) -> BufReader<UnixStream> {
    let stream = UnixStream::connect(path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    BufReader::new(stream)
}

fn ask(stream: &mut BufReader<UnixStream>, request: &Value) -> Result<Value, Value> {
    writeln!(stream.get_mut(), "{request}").unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    let mut answer: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{request} was answered {line:?}: {e}"));
    match answer.get_mut("ok") {
        Some(value) => Ok(value.take()),
        None => Err(answer["error"].take()),
    }
}

/// One connection to an agent: what is locked on it belongs to it.
pub(crate) struct Line(BufReader<UnixStream>);

impl Line {
    pub(crate) fn ask(&mut self, request: &Value) -> Result<Value, Value> {
        ask(&mut self.0, request)
    }

    pub(crate) fn ok(&mut self, request: Value) -> Value {
        self.ask(&request).unwrap_or_else(|e| panic!("{request}: {e}"))
    }

    /// Takes an exclusive lock; gives its hold and its token.
    pub(crate) fn lock(&mut self, path: &str) -> (u64, u64) {
        let locked = self.ok(json!({ "op": "lock", "path": path, "shared": false, "wait_ms": 20_000 }));
        (locked["locked"]["hold"].as_u64().unwrap(), locked["locked"]["token"].as_u64().unwrap())
    }

    pub(crate) fn unlock(&mut self, hold: u64) {
        self.ok(json!({ "op": "unlock", "hold": hold }));
    }

    pub(crate) fn hold(&mut self, hold: u64) -> String {
        self.ok(json!({ "op": "hold", "hold": hold }))["hold"]["state"].as_str().unwrap().to_owned()
    }

    pub(crate) fn put(&mut self, path: &str, text: &str) {
        self.ok(json!({ "op": "put", "path": path, "data": base64(text.as_bytes()), "mode": 0o644 }));
    }

    /// Contents of a file, as they stand in JSON.
    pub(crate) fn read(&mut self, path: &str) -> Result<String, Value> {
        let data = self.ask(&json!({ "op": "read", "path": path }))?;
        Ok(data["data"]["data"].as_str().unwrap().to_owned())
    }
}

/// An agent process.
pub(crate) struct Agent {
    pub(crate) process: Process,
    socket: PathBuf,
    line: Line,
}

impl Agent {
    pub(crate) fn start(server: &Server, label: &str) -> Self {
        Self::with(server, server.address, label, &["--idle", "eager"])
    }

    /// An agent that reaches the server by another address.
    pub(crate) fn by(server: &Server, address: SocketAddr, label: &str) -> Self {
        Self::with(server, address, label, &["--idle", "eager"])
    }

    pub(crate) fn with(server: &Server, address: SocketAddr, label: &str, args: &[&str]) -> Self {
        let state = server.dir.path().join(label);
        let address = address.to_string();
        let mut all = vec!["agent", "--json", "--state", state.to_str().unwrap(), "--label", label, "--server", &address];
        all.extend(args);
        let process = Process::start(CISTERN, &all);
        let socket: PathBuf = process.ready["socket"].as_str().unwrap().into();
        let line = Line(connect(&socket));
        Self { process, socket, line }
    }

    /// One more connection.
    pub(crate) fn line(&self) -> Line {
        Line(connect(&self.socket))
    }

    pub(crate) fn socket(&self) -> &str {
        self.socket.to_str().unwrap()
    }

    pub(crate) fn lease(&mut self) -> Value {
        self.line.ok(json!({ "op": "lease" }))["lease"].take()
    }

    pub(crate) fn count(&mut self, name: &str) -> u64 {
        let lease = self.lease();
        lease[name].as_u64().unwrap_or_else(|| panic!("no number {name:?} in {lease}"))
    }
}

impl std::ops::Deref for Agent {
    type Target = Line;
    fn deref(&self) -> &Line {
        &self.line
    }
}

impl std::ops::DerefMut for Agent {
    fn deref_mut(&mut self) -> &mut Line {
        &mut self.line
    }
}

/// Looks again and again until there is something; panics when patience ends.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "waited in vain until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Base64, for contents in JSON.
pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = |chunk: &[u8]| {
        let word = chunk.iter().fold(0u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        (0..4).map(move |i| if i <= chunk.len() { DIGITS[(word >> (18 - 6 * i)) as usize & 63] as char } else { '=' }).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}
