//! Processes of the tests: a server, agents, command lines; and how they are asked.
//!
//! Decides: that every process is started and ended by the test that needs it, in the network that it names, and that no wait is
//! unbounded. Shared by the tests on loopback (`tests/system`) and those on separate hosts (`tests/hosts`).

mod agent;
mod captures;
mod server;

pub(crate) use agent::{Agent, Line};
pub(crate) use server::Server;

use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const CISTERN: &str = env!("CARGO_BIN_EXE_cistern");
pub(crate) const CISTERND: &str = env!("CARGO_BIN_EXE_cisternd");

/// Longest wait for anything: far above what it takes, so that only a defect reaches it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The network in which something is started: this machine's own, or that of a namespace.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    namespace: Option<PathBuf>,
}

impl Place {
    /// The network namespace that is bound to a file.
    pub(crate) fn in_namespace(file: PathBuf) -> Self {
        Self { namespace: Some(file) }
    }

    /// Does something in this network: what it opens and starts stays there.
    pub(crate) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let Some(file) = &self.namespace else { return work() };
        // A thread of its own: the namespace belongs to the thread.
        let inside = || {
            setns(File::open(file).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

pub(crate) struct Process {
    child: Child,
    pub(crate) ready: Value,
}

impl Process {
    /// Starts a program that prints a line of JSON when it is ready.
    pub(crate) fn start(place: &Place, program: &str, args: &[&str]) -> Self {
        // In a process group of its own: where the tests' group is orphaned (no shell above it), the kernel hangs up the whole group
        // when one of it is stopped while another ends.
        let mut command = command(program, args);
        command.stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
        let mut child = place.run(|| command.spawn().unwrap());
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
    for name in ["CISTERN_SERVER", "CISTERN_AGENT", "CISTERN_CONTROL"] {
        command.env_remove(name);
    }
    // An empty one: neither the user's settings nor the host's.
    command.env("CISTERN_CONFIG", "/dev/null");
    command
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
