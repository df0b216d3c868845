//! A process under test, as the generator sees it: started, asked for its address, its CPU time read, ended.
//!
//! Decides how such a process lives: it is this program once more with a hidden command, it says its address in one line, and it
//! ends when its standard input does, so none outlives the bench, however that ends. CPU time is the process's own CPU clock, in
//! nanoseconds; the loop's sleeps are its thread's voluntary context switches.
//! Leaves to `under_test`: what runs in it.

use crate::cores::Cores;
use crate::trouble::Trouble;
use cistern_seal::SecretKey;
use cistern_testkit::Process;
use cistern_testkit::session::SealedBy;
use nix::errno::Errno;
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use procfs::ProcResult;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// How long a process under test may take to end by itself.
const END_MAX: Duration = Duration::from_secs(2);

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

/// How a process under test is set up: the options of the hidden command. None has the name of an option for all workloads, whose
/// default it would get.
#[derive(Clone, Debug, Default, clap::Args)]
pub(crate) struct Setup {
    /// The core that it is pinned to
    #[arg(long)]
    pub(crate) core: Option<usize>,
    /// Below which its store is
    #[arg(long)]
    pub(crate) store_dir: Option<PathBuf>,
    /// Where its capture goes
    #[arg(long = "capture")]
    pub(crate) capture: Option<PathBuf>,
    /// Lease period in milliseconds; what is a part of it follows
    #[arg(long)]
    pub(crate) tau_ms: Option<u64>,
    /// A failed session's wait counts from when it was last heard of
    #[arg(long)]
    pub(crate) last_heard: bool,
    /// A failed session is not taken back
    #[arg(long)]
    pub(crate) no_rescue: bool,
    /// Most requests that an agent may have outstanding
    #[arg(long)]
    pub(crate) window: Option<u16>,
    /// There is room for so many locks, on files of which the store keeps one
    #[arg(long)]
    pub(crate) room: Option<usize>,
    /// For how long it looks at its socket before it sleeps, in microseconds
    #[arg(long)]
    pub(crate) spin_us: Option<u64>,
    /// It speaks sealed, under the bench's own keys
    #[arg(long)]
    pub(crate) sealed: bool,
}

impl Setup {
    /// As the words of a command line.
    fn words(&self) -> Vec<OsString> {
        let Self { core, store_dir, capture, tau_ms, last_heard, no_rescue, window, room, spin_us, sealed } = self;
        let mut words: Vec<OsString> = Vec::new();
        let mut say = |name: &str, value: Option<OsString>| words.extend(value.into_iter().flat_map(|value| [name.into(), value]));
        say("--core", core.map(|core| core.to_string().into()));
        say("--store-dir", store_dir.clone().map(Into::into));
        say("--capture", capture.clone().map(Into::into));
        say("--tau-ms", tau_ms.map(|tau| tau.to_string().into()));
        say("--window", window.map(|window| window.to_string().into()));
        say("--room", room.map(|room| room.to_string().into()));
        say("--spin-us", spin_us.map(|spin| spin.to_string().into()));
        words.extend(last_heard.then(|| "--last-heard".into()));
        words.extend(no_rescue.then(|| "--no-rescue".into()));
        words.extend(sealed.then(|| "--sealed".into()));
        words
    }
}

/// The keys of sealed servers under test, and of who asks them: on loopback, for as long as the bench runs.
pub(crate) const SERVER_KEY: u8 = 0x5E;
pub(crate) const AGENT_KEY: u8 = 0xA6;

/// The key that is made of this byte.
pub(crate) fn key(of: u8) -> SecretKey {
    SecretKey::from_bytes([of; 32])
}

/// A running process under test; ended when dropped.
#[derive(Debug)]
pub(crate) struct Host {
    role: Role,
    sealed: bool,
    process: Process,
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
    fs::create_dir_all(dir).map_err(Trouble::at("making the directory of --pcap-dir"))?;
    // Called once, so it is empty.
    let _ = CAPTURES.set(dir.to_owned());
    Ok(())
}

impl Host {
    /// Starts one on the core for processes under test and waits for its address.
    pub(crate) fn start(role: Role, cores: Cores) -> Result<Self, Trouble> {
        Self::start_with(role, cores, &Setup::default())
    }

    /// Starts one that is set up so, on the core for processes under test.
    pub(crate) fn start_with(role: Role, cores: Cores, setup: &Setup) -> Result<Self, Trouble> {
        let program = std::env::current_exe().map_err(Trouble::at("finding this program's own file"))?;
        let mut setup = Setup { core: cores.under_test(), ..setup.clone() };
        if let Some(captures) = CAPTURES.get().filter(|_| role != Role::Echo) {
            let number = CAPTURED.fetch_add(1, Ordering::Relaxed) + 1;
            setup.capture = Some(captures.join(format!("server-{number}.pcap")));
        }
        let mut command = Command::new(program);
        command.args(["under-test", role.name()]).args(setup.words()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let process = Process::spawn(&mut command).map_err(Trouble::at("starting a process under test"))?;
        match process.line().and_then(|line| line.parse().ok()) {
            Some(address) => Ok(Self { role, sealed: setup.sealed, process, address }),
            None => Err(Trouble::Host { who: role.name(), what: "did not say its address" }),
        }
    }

    /// What it has used up to now.
    pub(crate) fn usage(&self) -> Result<Usage, Trouble> {
        let gone = |_| Trouble::Host { who: self.role.name(), what: "has ended" };
        let cpu_ns = cpu_ns(self.pid()).map_err(gone)?;
        let status = proc(self.pid(), procfs::process::Process::status)?;
        Ok(Usage { cpu_ns, sleeps: status.voluntary_ctxt_switches.unwrap_or(0) })
    }
}

impl Host {
    /// Its number.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_raw(self.process.id().cast_signed())
    }

    /// By what sessions with it are sealed; none: it speaks in clear.
    pub(crate) fn sealed_by(&self) -> Option<SealedBy> {
        self.sealed.then(|| SealedBy { agent: key(AGENT_KEY), server: key(SERVER_KEY).public() })
    }

    /// CPU time of the thread that turns the machine, in nanoseconds.
    pub(crate) fn loop_ns(&self) -> Result<u64, Trouble> {
        // The first thread: the one whose number is the process's.
        let pid = self.pid();
        let stat = fs::read_to_string(format!("/proc/{pid}/task/{pid}/schedstat")).map_err(Trouble::at("reading /proc"))?;
        let ns = stat.split(' ').next().and_then(|ns| ns.parse().ok());
        ns.ok_or(Trouble::Host { who: self.role.name(), what: "has a thread whose CPU time cannot be read" })
    }

    /// Memory that it has resident, in bytes.
    pub(crate) fn resident_bytes(&self) -> Result<u64, Trouble> {
        resident_bytes(self.pid())
    }
}

impl Host {
    /// Bytes that it has written to files up to now (datagrams are none).
    pub(crate) fn written_bytes(&self) -> Result<u64, Trouble> {
        Ok(proc(self.pid(), procfs::process::Process::io)?.wchar)
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        // It writes the end of its capture; if it does not end by itself, it is killed.
        self.process.end_input();
        let _ = self.process.ended_within(END_MAX);
    }
}

/// Memory that a process has resident, in bytes.
pub(crate) fn resident_bytes(pid: Pid) -> Result<u64, Trouble> {
    Ok(proc(pid, procfs::process::Process::status)?.vmrss.unwrap_or(0) * 1_024)
}

/// What /proc says of a process.
pub(crate) fn proc<T>(pid: Pid, what: impl FnOnce(&procfs::process::Process) -> ProcResult<T>) -> Result<T, Trouble> {
    let read = procfs::process::Process::new(pid.as_raw()).and_then(|process| what(&process));
    read.map_err(|e| Trouble::at("reading /proc")(io::Error::other(e)))
}

/// CPU time of all threads of a process, in nanoseconds.
pub(crate) fn cpu_ns(pid: Pid) -> Result<u64, Errno> {
    let time = clock_getcpuclockid(pid).and_then(clock_gettime)?;
    Ok(u64::try_from(i128::from(time.tv_sec()) * 1_000_000_000 + i128::from(time.tv_nsec())).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_a_setup_are_read_back_as_the_same() {
        #[derive(Debug, clap::Parser)]
        struct Read {
            #[command(flatten)]
            setup: Setup,
        }
        let store_dir = Some(PathBuf::from("/var/tmp"));
        let set = Setup {
            core: Some(1),
            store_dir,
            capture: None,
            tau_ms: Some(100),
            last_heard: true,
            no_rescue: true,
            window: Some(4_096),
            room: Some(10_000),
            spin_us: Some(50),
            sealed: true,
        };
        let words = [vec![OsString::from("x")], set.words()].concat();
        let read = <Read as clap::Parser>::try_parse_from(words).unwrap();
        assert_eq!(format!("{:?}", read.setup), format!("{set:?}"));
        assert!(Setup::default().words().is_empty());
    }

    #[test]
    fn usage_is_counted_from_the_earlier_reading() {
        let (early, late) = (Usage { cpu_ns: 100, sleeps: 3 }, Usage { cpu_ns: 350, sleeps: 4 });
        assert_eq!(late.since(early), Usage { cpu_ns: 250, sleeps: 1 });
    }
}
