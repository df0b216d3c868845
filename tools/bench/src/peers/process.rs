//! Another service's process: found, started on loopback with its data in a directory of its own, ended.
//!
//! Decides where programs are looked for and how long they may take to listen. Place: below each peer. Invariant: the process is killed by
//! its id when this is dropped and, by a guard that is a process of its own, when the bench is killed; then its directory goes.
//! Leaves to others: command lines and clients (each peer).

use crate::host::{cpu_ns, resident_bytes};
use crate::trouble::Trouble;
use cistern_testkit as testkit;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::env;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a service may take to listen, in seconds.
const START_S: u64 = 60;
/// How long a guard tries to remove a service's data, in seconds.
const END_S: u64 = 5;

/// A running service.
#[derive(Debug)]
pub(crate) struct Process {
    /// Ends first, or it could end another process that has got the number meanwhile.
    _guard: testkit::Process,
    child: testkit::Process,
    _dir: TempDir,
}

impl Process {
    /// Starts `command` with its output in a file in `dir` and waits until it listens.
    pub(crate) fn start(mut command: Command, dir: TempDir, listens: SocketAddr) -> Result<Self, Trouble> {
        let log = File::create(dir.path().join("output")).map_err(Trouble::at("making a peer's log"))?;
        let errors = log.try_clone().map_err(Trouble::at("making a peer's log"))?;
        let program = Path::new(command.get_program()).display().to_string();
        let child =
            testkit::Process::spawn(command.stdin(Stdio::null()).stdout(log).stderr(errors)).map_err(Trouble::at("starting a peer"))?;
        let guard = guard(child.id(), dir.path())?;
        let mut process = Self { _guard: guard, child, _dir: dir };
        let begin = Instant::now();
        while TcpStream::connect(listens).is_err() {
            if process.child.try_wait().is_some() || begin.elapsed() >= Duration::from_secs(START_S) {
                let said = fs::read_to_string(process._dir.path().join("output")).unwrap_or_default();
                let why = format!("{program} does not listen at {listens}; it said: {}", said.lines().last().unwrap_or("nothing"));
                return Err(Trouble::Start { step: "starting a peer", why });
            }
            thread::sleep(Duration::from_millis(20));
        }
        Ok(process)
    }

    /// CPU time of all its threads.
    pub(crate) fn cpu_ns(&self) -> Result<u64, Trouble> {
        cpu_ns(Pid::from_raw(self.child.id().cast_signed())).map_err(|_| Trouble::Host { who: "peer", what: "has ended" })
    }
}

impl Process {
    /// CPU time of all its threads, and its resident memory in bytes.
    pub(crate) fn used(&self) -> Result<(u64, u64), Trouble> {
        Ok((self.cpu_ns()?, resident_bytes(Pid::from_raw(self.child.id().cast_signed()))?))
    }
}

/// Starts what ends process `pid` and removes `dir` when this program is gone without having done so.
pub(super) fn guard(pid: u32, dir: &Path) -> Result<testkit::Process, Trouble> {
    let program = env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
    let mut command = Command::new(program);
    command.arg("end-with").arg(pid.to_string()).arg(dir).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    // What is typed at a terminal to end the bench is not for the guard.
    testkit::Process::spawn(command.process_group(0)).map_err(Trouble::at("starting the guard of a peer"))
}

/// What a guard does: waits for the end of its standard input, that is of the bench.
pub(crate) fn end_with(pid: i32, dir: &Path) {
    // An error is as good as the end.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    let begin = Instant::now();
    // It may write until it is gone.
    while fs::remove_dir_all(dir).is_err() && dir.exists() && begin.elapsed() < Duration::from_secs(END_S) {
        thread::sleep(Duration::from_millis(20));
    }
}

/// Where the program is, as a shell would find it.
pub(crate) fn program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// A directory for a service's data, below `dir`.
pub(crate) fn directory(dir: &Path) -> Result<TempDir, Trouble> {
    tempfile::tempdir_in(dir).map_err(Trouble::starting("making a directory for a peer"))
}

/// A port of loopback that nobody listens at now.
pub(crate) fn free_port() -> Result<SocketAddr, Trouble> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Trouble::at("looking for a free port"))?;
    listener.local_addr().map_err(Trouble::at("looking for a free port"))
}
