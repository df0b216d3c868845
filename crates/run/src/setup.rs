//! What the guardian makes sure of before it starts anything: its arguments, its pipes, signals, clocks and /proc.
//!
//! Decides the hidden command line (written and read here, so that the two cannot differ) and when a guardian refuses to work: in
//! another time namespace the instants it is told would mean something else (section 11.1), and with a /proc of another process
//! namespace it would kill strangers. Invariant: after `take_signals` nothing but SIGKILL and SIGSTOP reaches the process,
//! and the command still starts with the dispositions its caller had, for signals are blocked here (which the starter undoes), not
//! ignored.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use nix::sys::signal::SigSet;
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

use crate::inherit;
use crate::messages::{Report, send};
use crate::policy::Settings;

/// The guardian's name in `ps`, `top` and `pkill`: not the program's own, so that `pkill -9 cistern` does not take the one
/// process away that can still end the command in time.
const NAME: &std::ffi::CStr = c"lock-guardian";

/// What the guardian was started with.
pub(crate) struct Setup {
    pub(crate) orders: File,
    pub(crate) reports: File,
    /// Whether it can work here.
    pub(crate) checks: io::Result<()>,
    pub(crate) settings: Settings,
    pub(crate) command: OsString,
    pub(crate) args: Vec<OsString>,
}

/// The command line that starts a guardian; its two pipe ends have been given with [`inherit::give`].
pub(crate) fn guardian_command(orders: &str, reports: &str, settings: Settings, command: &OsStr, args: &[OsString]) -> Command {
    let Settings { left_settle, left_grace, stop_grace } = settings;
    let mut guardian = Command::new(crate::OWN_EXECUTABLE);
    guardian.arg0("lock-guardian").args([crate::HIDDEN_GUARDIAN, orders, reports]).arg(time_namespace());
    guardian.args([left_settle, left_grace, stop_grace].map(|span| span.as_millis().to_string()));
    guardian.arg(command).args(args);
    guardian
}

impl Setup {
    /// Takes up what [`guardian_command`] wrote; `None` if someone else wrote it.
    pub(crate) fn parse(mut args: impl Iterator<Item = OsString>) -> Option<Setup> {
        let orders = inherit::take_read(&args.next()?).ok()?;
        let reports = inherit::take_write(&args.next()?).ok()?;
        let checks = check_time_namespace(&args.next()?).and_then(|()| check_proc());
        let mut span = || args.next()?.to_str()?.parse().ok().map(Duration::from_millis);
        let settings = Settings { left_settle: span()?, left_grace: span()?, stop_grace: span()? };
        Some(Setup { orders, reports, checks, settings, command: args.next()?, args: args.collect() })
    }
}

/// Blocks every signal and returns where to read them, and gives the process its own name.
pub(crate) fn take_signals() -> io::Result<SignalFd> {
    let all = SigSet::all();
    all.thread_block()?;
    nix::sys::prctl::set_name(NAME)?;
    let signals = SignalFd::with_flags(&all, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    Ok(signals)
}

/// Separates the guardian from the job once the command has been started in it.
///
/// A process group of its own keeps it alive when the whole job is killed (`kill -9 %1`) or stopped (`kill -STOP %1`). Standard
/// input and output go, so that whoever is at the other end sees the command close them; standard error stays, for the case that
/// this program has to die of a bug.
pub(crate) fn leave_the_job() {
    // Fails for a session leader alone, which a process that has just been started is not.
    let _ = nix::unistd::setpgid(Pid::from_raw(0), Pid::from_raw(0));
    let Ok(null) = File::options().read(true).write(true).open("/dev/null") else { return };
    // If this fails, the streams stay open until the tree is gone, as the caller's own process keeps them anyway.
    let _ = nix::unistd::dup2_stdin(&null);
    let _ = nix::unistd::dup2_stdout(&null);
}

/// Tells the caller's process; if it is gone or does not read, nothing depends on its knowing.
pub(crate) fn report(reports: &File, report: &Report) {
    let _ = send(reports, &report.line());
}

/// Names the time namespace of this process; empty where the kernel has none.
fn time_namespace() -> OsString {
    fs::read_link("/proc/self/ns/time").map(OsString::from).unwrap_or_default()
}

fn check_time_namespace(callers: &OsStr) -> io::Result<()> {
    if time_namespace() == callers {
        return Ok(());
    }
    Err(io::Error::other(
        "this process and those it starts are in different time namespaces, so instants mean different things to them; \
         start the program inside the new time namespace, not from `unshare --time` without a fork",
    ))
}

fn check_proc() -> io::Result<()> {
    let own = nix::unistd::getpid().to_string();
    match fs::read_link("/proc/self") {
        Ok(shown) if shown.as_os_str() == own.as_str() => Ok(()),
        Ok(_) => Err(io::Error::other(
            "/proc shows another process namespace, so the command's processes cannot be found; mount a /proc of this one \
             (`unshare --mount-proc`)",
        )),
        Err(error) => Err(io::Error::other(format!("/proc is needed to find the command's processes: {error}"))),
    }
}
