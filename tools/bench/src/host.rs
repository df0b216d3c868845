//! A process under test, as the generator sees it: started, asked for its address, its CPU time read, ended.
//!
//! Decides how such a process lives: it is this program once more with a hidden command, it says its address in one line, and it
//! ends when its standard input does, so none outlives the bench, however that ends. CPU time is the process's own CPU clock, in
//! nanoseconds; the loop's sleeps are its thread's voluntary context switches.
//! Leaves to `under_test`: what runs in it.

use crate::cores::Cores;
use crate::trouble::Trouble;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{OnceLock, mpsc};
use std::thread;
use std::time::Duration;

/// How long a process under test may take to start.
const START_MAX: Duration = Duration::from_secs(20);
/// How often, and how many times, one is looked at until it has ended by itself.
const END_POLL: (Duration, u32) = (Duration::from_millis(5), 400);

/// What runs in a process under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Role {
    /// The metadata server with its store in memory.
    Server,
    /// The metadata server with its store in a directory.
    Durable,
    /// The plain echo.
    Echo,
}

impl Role {
    const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Durable => "durable",
            Self::Echo => "echo",
        }
    }
}

/// A running process under test; ended when dropped.
#[derive(Debug)]
pub(crate) struct Host {
    role: Role,
    child: Child,
    pid: Pid,
    /// Where it takes datagrams.
    pub(crate) address: SocketAddr,
}

/// What a process has used up to now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// CPU time of all its threads, in nanoseconds.
    pub(crate) cpu_ns: u64,
    /// How often its loop has gone to sleep.
    pub(crate) sleeps: u64,
}

impl Usage {
    /// What was used since `earlier`.
    pub(crate) const fn since(self, earlier: Self) -> Self {
        Self { cpu_ns: self.cpu_ns.saturating_sub(earlier.cpu_ns), sleeps: self.sleeps.saturating_sub(earlier.sleeps) }
    }
}

/// Where captures of processes under test go, if they are wanted, and how many there are.
static CAPTURES: OnceLock<PathBuf> = OnceLock::new();
static CAPTURED: AtomicU32 = AtomicU32::new(0);

/// From now on each server started writes what it sends and receives to a file of its own in `dir`: server-1.pcap, server-2.pcap, ...
pub(crate) fn capture_into(dir: &Path) -> Result<(), Trouble> {
    fs::create_dir_all(dir).map_err(Trouble::at("making the directory of --pcap"))?;
    // Called once, so it is empty.
    let _ = CAPTURES.set(dir.to_owned());
    Ok(())
}

impl Host {
    /// Starts one on the core for processes under test and waits for its address.
    pub(crate) fn start(role: Role, cores: Cores) -> Result<Self, Trouble> {
        Self::start_in(role, cores, None)
    }

    /// Starts one that keeps its store, if it has one, below a directory.
    pub(crate) fn start_in(role: Role, cores: Cores, dir: Option<&Path>) -> Result<Self, Trouble> {
        let program = std::env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
        let mut command = Command::new(program);
        command.args(["under-test", role.name()]).stdin(Stdio::piped()).stdout(Stdio::piped());
        if let Some(core) = cores.under_test() {
            command.args(["--core", &core.to_string()]);
        }
        if let Some(dir) = dir {
            command.arg("--dir").arg(dir);
        }
        if let Some(captures) = CAPTURES.get().filter(|_| role != Role::Echo) {
            let number = CAPTURED.fetch_add(1, Ordering::Relaxed) + 1;
            command.arg("--pcap").arg(captures.join(format!("server-{number}.pcap")));
        }
        let mut child = command.spawn().map_err(Trouble::at("starting a process under test"))?;
        let pid = Pid::from_raw(child.id().cast_signed());
        match first_line(&mut child).and_then(|line| line.trim().parse().ok()) {
            Some(address) => Ok(Self { role, child, pid, address }),
            None => {
                end(&mut child);
                Err(Trouble::Host { who: role.name(), what: "did not say its address" })
            }
        }
    }

    /// What it has used up to now.
    pub(crate) fn usage(&self) -> Result<Usage, Trouble> {
        let gone = |_| Trouble::Host { who: self.role.name(), what: "has ended" };
        let time = clock_getcpuclockid(self.pid).and_then(clock_gettime).map_err(gone)?;
        let ns = i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec());
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).map_err(Trouble::at("reading /proc"))?;
        Ok(Usage { cpu_ns: u64::try_from(ns).unwrap_or(0), sleeps: sleeps(&status).unwrap_or(0) })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        end(&mut self.child);
    }
}

/// The first line that a process writes, if it writes one in time.
fn first_line(child: &mut Child) -> Option<String> {
    let stdout = child.stdout.take()?;
    let (tell, told) = mpsc::channel();
    thread::spawn(move || {
        let mut line = String::new();
        if BufReader::new(stdout).read_line(&mut line).is_ok() {
            // Nobody listens any more when it took too long.
            let _ = tell.send(line);
        }
    });
    told.recv_timeout(START_MAX).ok()
}

/// Lets a process end by itself, and ends it if it does not.
fn end(child: &mut Child) {
    drop(child.stdin.take());
    let (pause, times) = END_POLL;
    for _ in 0..times {
        match child.try_wait() {
            Ok(None) => thread::sleep(pause),
            Ok(Some(_)) | Err(_) => return,
        }
    }
    // Errors mean that it has just ended.
    let _ = child.kill();
    let _ = child.wait();
}

/// The voluntary context switches of a process's first thread, from its status file.
fn sleeps(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_are_the_voluntary_switches_and_not_the_others() {
        let status = "Name:\tx\nnonvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t1234\n";
        assert_eq!(sleeps(status), Some(1_234));
        assert_eq!(sleeps("Name:\tx\n"), None);
    }

    #[test]
    fn usage_is_counted_from_the_earlier_reading() {
        let (early, late) = (Usage { cpu_ns: 100, sleeps: 3 }, Usage { cpu_ns: 350, sleeps: 4 });
        assert_eq!(late.since(early), Usage { cpu_ns: 250, sleeps: 1 });
    }
}
