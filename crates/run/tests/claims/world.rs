//! One run of the probe: starting it, reading its record, and finding the processes of its tree.
//!
//! The tree is found by a mark in the environment that every process takes over from its parent, so also what has daemonised; that
//! is independent of how the code under test finds it. Whatever a failing test leaves is killed by its number.

use std::cell::RefCell;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use cistern_run::At;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

pub(crate) const PROBE: &str = env!("CARGO_BIN_EXE_run-probe");

/// Long enough that only what never comes is missed.
const PATIENCE: Duration = Duration::from_secs(60);

static MARKS: AtomicU32 = AtomicU32::new(0);

/// A directory for a run's files and the mark of its processes.
pub(crate) struct World {
    dir: TempDir,
    mark: String,
}

/// A started probe.
pub(crate) struct Probe {
    pub(crate) world: World,
    pub(crate) child: Child,
}

/// A program that starts with every signal at its default: whoever runs the tests may have some ignored, as a shell without job
/// control has SIGINT for what it runs in the background.
pub(crate) fn with_default_signals(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

impl World {
    pub(crate) fn new() -> World {
        let mark = format!("mark-{}-{}", std::process::id(), MARKS.fetch_add(1, Ordering::Relaxed));
        World { dir: tempfile::tempdir().expect("a directory for temporary files"), mark }
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The probe's command line: record and mark, then `options`, then `command`.
    pub(crate) fn command_line(&self, options: &str, command: &[&str]) -> Vec<String> {
        let mut line: Vec<String> = vec!["--record".into(), self.text("record"), "--token".into(), self.mark.clone()];
        let dir = self.dir.path().to_str().expect("temporary directories have plain names");
        line.extend(options.split_whitespace().map(|word| word.replace("DIR", dir)));
        line.push("--".into());
        line.extend(command.iter().map(|word| word.replace("DIR", dir)));
        line
    }

    /// Starts the probe as the leader of a process group of its own.
    pub(crate) fn start(self, options: &str, command: &[&str]) -> Probe {
        let line = self.command_line(options, command);
        // Files, not pipes: what a failing test leaves running would hold a pipe open.
        let output = File::create(self.file("output")).expect("a file");
        let errors = output.try_clone().expect("another descriptor");
        let mut probe = with_default_signals(PROBE);
        probe.args(line).stdin(Stdio::null()).stdout(output).stderr(errors).process_group(0);
        let child = probe.spawn().expect("the probe starts");
        Probe { world: self, child }
    }

    fn text(&self, name: &str) -> String {
        self.file(name).to_str().expect("temporary directories have plain names").to_owned()
    }

    pub(crate) fn record(&self) -> String {
        fs::read_to_string(self.file("record")).unwrap_or_default()
    }

    /// The first number of each record line that starts with `name`.
    pub(crate) fn pid(&self, name: &str) -> i32 {
        let record = self.record();
        let line = record.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|pid| pid.parse().ok()).unwrap_or_else(|| panic!("no {name} in {record}"))
    }

    /// All instants that the record holds under `name`, oldest first.
    pub(crate) fn instants(&self, name: &str) -> Vec<At> {
        let instant = |line: &str| {
            let (raw, boot) = line.strip_prefix(name)?.strip_prefix(' ')?.split_once(' ')?;
            Some(At { raw_ns: raw.parse().ok()?, boot_ns: boot.parse().ok()? })
        };
        self.record().lines().filter_map(instant).collect()
    }

    /// The processes that carry the mark, without guardians.
    pub(crate) fn members(&self) -> Vec<i32> {
        let wanted = format!("CISTERN_TOKEN={}", self.mark);
        let has_mark = |dir: &Path| {
            let environment = fs::read(dir.join("environ")).unwrap_or_default();
            let name = fs::read_to_string(dir.join("comm")).unwrap_or_default();
            environment.split(|b| *b == 0).any(|variable| variable == wanted.as_bytes()) && name.trim_end() != "lock-guardian"
        };
        let entries = fs::read_dir("/proc").expect("/proc").flatten();
        let numbered = entries.filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())));
        numbered.filter(|(_, dir): &(i32, PathBuf)| has_mark(dir)).map(|(pid, _)| pid).collect()
    }

    pub(crate) fn wait_until(&self, what: &str, holds: impl Fn(&World) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "never came: {what}; record:\n{}", self.record());
            sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn wait_for_record(&self, line: &str) {
        self.wait_until(line, |world| world.record().lines().any(|l| l == line));
    }
}

impl Drop for World {
    fn drop(&mut self) {
        for pid in self.members() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Probe {
    pub(crate) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).expect("pids are positive 32-bit numbers")
    }

    pub(crate) fn signal(&self, pid: i32, signal: Signal) {
        kill(Pid::from_raw(pid), signal).expect("the process is there");
    }

    /// Waits for the probe's end: its world, its status, what it and the command have written.
    pub(crate) fn finish(self) -> (World, i32, String) {
        let Probe { world, child } = self;
        let child = RefCell::new(child);
        let ended = |_: &World| child.borrow_mut().try_wait().expect("the probe can be waited for").is_some();
        world.wait_until("the end of the probe", ended);
        let status = child.borrow_mut().wait().expect("it has ended").code().unwrap_or(-1);
        let text = fs::read_to_string(world.file("output")).unwrap_or_default();
        (world, status, text)
    }
}

/// Runs `command` under the probe to its end.
pub(crate) fn run(options: &str, command: &[&str]) -> (World, i32, String) {
    World::new().start(options, command).finish()
}
