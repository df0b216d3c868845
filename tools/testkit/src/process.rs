//! One process: where its program is, in which network it starts, its lines, its end.

use crate::{PATIENCE, eventually};
use nix::sched::{CloneFlags, setns};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::ops::{Deref, DerefMut};
use std::os::unix::process::CommandExt as _;
use std::panic::resume_unwind;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

/// The program of users and agents.
pub const CISTERN: &str = "cistern";

/// The server's program.
pub const CISTERND: &str = "cisternd";

/// A program that was built with the one that runs: beside it, or one directory higher, as cargo keeps tests in `deps`.
pub fn program(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let dir = own.parent().unwrap();
    if dir.ends_with("deps") { dir.parent().unwrap().join(name) } else { dir.join(name) }
}

/// Whether the server's program is there, and was built with the store on etcd.
pub fn is_built_with_etcd() -> bool {
    let store = "etcd://127.0.0.1:1/none?no-such-option=1";
    program(CISTERND).exists()
        && command(CISTERND, &["check", store]).output().is_ok_and(|said| !String::from_utf8_lossy(&said.stderr).contains("built without"))
}

/// A command line with no settings from outside; a program of ours is that of this build, never an installed one.
pub fn command(name: &str, args: &[&str]) -> Command {
    let ours = program(name);
    let is_built = ours.exists();
    assert!(
        is_built || !name.starts_with("cistern"),
        "{} is not built: build the package of {name} first, in this profile",
        ours.display()
    );
    let mut command = if is_built { Command::new(ours) } else { Command::new(name) };
    command.args(args).stdin(Stdio::null());
    without_settings(&mut command);
    command
}

/// Takes from a command what the surroundings would set.
pub fn without_settings(command: &mut Command) {
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"CISTERN_")) {
        command.env_remove(name);
    }
    // Empty ones: neither the user's settings and keys nor the host's.
    command.env("CISTERN_CONFIG", "/dev/null").env("CISTERN_CREDENTIALS", "/dev/null");
    // Agents that are given no key speak in clear, so that captures can be audited; servers are told so by a flag.
    command.env("CISTERN_INSECURE", "1");
}

/// How a command ended and what it printed, for messages of failures.
pub fn said(output: &Output) -> String {
    format!("{:?}, {} {}", output.status, String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The network in which something is started: this machine's own, or that of a namespace.
#[derive(Clone, Debug, Default)]
pub struct Place {
    namespace: Option<PathBuf>,
}

impl Place {
    /// The network namespace that is bound to a file.
    pub const fn in_namespace(file: PathBuf) -> Self {
        Self { namespace: Some(file) }
    }

    /// Does something in this network: what it opens and starts stays there.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let Some(file) = &self.namespace else { return work() };
        // A thread of its own: the namespace belongs to the thread.
        let inside = || {
            setns(File::open(file).unwrap(), CloneFlags::CLONE_NEWNET).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join().unwrap_or_else(|panic| resume_unwind(panic)))
    }
}

/// A process that is killed when this is dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    /// What it prints, if that is a pipe.
    lines: Option<Mutex<Receiver<String>>>,
}

impl Process {
    /// Starts a command.
    ///
    /// # Errors
    ///
    /// As the system's.
    pub fn spawn(command: &mut Command) -> io::Result<Self> {
        Self::spawn_at(&Place::default(), command)
    }

    /// Starts a command in some network.
    ///
    /// # Errors
    ///
    /// As the system's.
    pub fn spawn_at(place: &Place, command: &mut Command) -> io::Result<Self> {
        let mut child = place.run(|| command.spawn())?;
        let lines = child.stdout.take().map(|out| {
            let (tell, told) = mpsc::channel();
            thread::spawn(move || BufReader::new(out).lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
            Mutex::new(told)
        });
        Ok(Self { child, lines })
    }

    /// The next line that it prints; `None` if it prints no more, or nothing for [`PATIENCE`].
    pub fn line(&self) -> Option<String> {
        self.lines.as_ref()?.lock().unwrap().recv_timeout(PATIENCE).ok()
    }

    /// Its number.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.child.id().cast_signed()), signal).unwrap();
    }

    /// Writes a line to its standard input, if that is a pipe.
    ///
    /// # Errors
    ///
    /// As the system's.
    pub fn tell(&mut self, line: &str) -> io::Result<()> {
        self.child.stdin.as_mut().map_or(Ok(()), |input| writeln!(input, "{line}"))
    }

    /// Closes its standard input, if that is a pipe.
    pub fn end_input(&mut self) {
        self.child.stdin = None;
    }

    /// Its exit status, if it has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Its exit status, as soon as it has ended; `None` if it goes on for so long.
    pub fn ended_within(&mut self, most: Duration) -> Option<ExitStatus> {
        let end = Instant::now() + most;
        loop {
            let status = self.try_wait();
            if status.is_some() || Instant::now() > end {
                return status;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until it has ended by itself, and gives its exit status.
    pub fn ended(&mut self) -> Option<i32> {
        eventually("the process ends", || self.try_wait()).code()
    }

    /// Kills it at once.
    pub fn kill(&mut self) {
        // Fails only if it has ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Asks it to end, and gives its exit status.
    pub fn end(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.ended()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A process that said when it was ready.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    /// What it said.
    pub ready: Value,
}

impl Daemon {
    /// Starts a program that prints a line of JSON when it is ready.
    pub fn start(place: &Place, program: &str, args: &[&str]) -> Self {
        Self::of(place, &mut command(program, args))
    }

    /// The same for a command.
    pub fn of(place: &Place, command: &mut Command) -> Self {
        // In a process group of its own: where the tests' group is orphaned (no shell above it), the kernel hangs up the whole group
        // when one of it is stopped while another ends.
        let process = Process::spawn_at(place, command.stdout(Stdio::piped()).process_group(0)).unwrap();
        let line = process.line().unwrap_or_default();
        let ready = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{command:?} said {line:?}: {e}"));
        Self { process, ready }
    }
}

impl Deref for Daemon {
    type Target = Process;
    fn deref(&self) -> &Process {
        &self.process
    }
}

impl DerefMut for Daemon {
    fn deref_mut(&mut self) -> &mut Process {
        &mut self.process
    }
}
