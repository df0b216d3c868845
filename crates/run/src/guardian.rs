//! The guardian: the process between the one that holds the lock and the command, which outlives both to end the command.
//!
//! Decides nothing about time (that is `policy`) and nothing about the tree (that is `tree`); it turns them: reads orders,
//! reaps, asks the policy, terminates, kills, and reports. Place: caller's process → *guardian* → starter = command.
//! Invariants: it writes to nothing that can block (no terminal, non-blocking pipes), no signal but SIGKILL and SIGSTOP
//! touches it, and it reports *gone* only after `wait` has said that it has no child left, which for a child subreaper
//! means that nothing the command started is left. All orders are read before timers run, and ends of processes before orders: a guardian
//! that stood still decides by the newest instants, and a command that ended meanwhile has ended by itself.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use rustix::process::{Signal, WaitOptions};

use crate::at::{At, Until};
use crate::exit::{EXIT_FAILURE, Status};
use crate::messages::{Lines, Order, Report, SURVIVORS_MAX};
use crate::policy::{Action, Input, Policy};
use crate::setup::{self, Setup};
use crate::terminal::Terminal;
use crate::tree::{self, Process};

/// A signal that the guardian got too was sent to everybody, as service managers do, so the command has it already. This is how
/// long the guardian's own copy and the one that the caller's process passes on are taken for one.
const SAME_SIGNAL: Duration = Duration::from_secs(2);

/// Pause between rounds of killing: short at first for what dies at once, longer for what the kernel will not let go.
const KILL_PAUSE_MIN: Duration = Duration::from_millis(2);
const KILL_PAUSE_MAX: Duration = Duration::from_secs(1);

/// From the first SIGKILL until what is still there is reported as surviving.
const SURVIVORS_AFTER: Duration = Duration::from_millis(500);

/// Runs the guardian with the arguments after the hidden one.
pub(crate) fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let Some(Setup { orders, reports, checks, settings, command, args }) = Setup::parse(args) else {
        return crate::misused();
    };
    let mut guardian = match checks.and_then(|()| Guardian::new(orders, &reports)) {
        Ok(guardian) => guardian,
        Err(why) => {
            setup::report(&reports, &Report::Refused(why.to_string()));
            return ExitCode::from(EXIT_FAILURE);
        }
    };
    // Without a first instant there is nobody to run the command for.
    let Ok(Some(first)) = guardian.first_until() else { return ExitCode::from(EXIT_FAILURE) };
    guardian.run(Policy::new(settings, first), command, args)
}

struct Guardian<'a> {
    orders: Lines<File>,
    reports: &'a File,
    signals: nix::sys::signalfd::SignalFd,
    timer: TimerFd,
    /// When a signal of this number last came to the guardian itself.
    own_signals: [Option<At>; 65],
    terminal: Option<Terminal>,
}

/// The command as far as it has come.
struct Child {
    pid: i32,
    /// What the starter has to say; `None` once it has become the command or has failed.
    word: Option<Lines<File>>,
    status: Option<Status>,
}

/// An effort to kill the tree.
struct Killing {
    since: At,
    pause: Duration,
    next: At,
    denied: BTreeSet<i32>,
    reported: Vec<i32>,
}

impl<'a> Guardian<'a> {
    fn new(orders: File, reports: &'a File) -> io::Result<Self> {
        let signals = setup::take_signals()?;
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK)?;
        nix::sys::prctl::set_child_subreaper(true)?;
        Ok(Guardian { orders: Lines::new(orders), reports, signals, timer, own_signals: [None; 65], terminal: Terminal::remember() })
    }

    fn first_until(&mut self) -> io::Result<Option<Until>> {
        while !self.orders.ended() {
            if let Some(line) = self.orders.next_line() {
                return Ok(match Order::parse(&line) {
                    Some(Order::Until(until)) => Some(until),
                    _ => None,
                });
            }
            self.wait(None, None)?;
        }
        Ok(None)
    }

    fn run(mut self, mut policy: Policy, command: OsString, args: Vec<OsString>) -> ExitCode {
        let mut child = match start(command, args) {
            Ok(child) => child,
            Err(error) => {
                self.report(&Report::Failed(error.raw_os_error().unwrap_or(Errno::EAGAIN as i32)));
                return ExitCode::from(EXIT_FAILURE);
            }
        };
        setup::leave_the_job();
        let mut killing: Option<Killing> = None;
        loop {
            self.note_own_signals();
            self.hear_starter(&mut child);
            if !self.reap(&mut policy, &mut child) {
                break;
            }
            self.obey(&mut policy, &child, &mut killing);
            let action = policy.due(At::now());
            self.act(action, &mut killing);
            if let Some(killing) = &mut killing {
                self.kill_round(killing);
            }
            // An error of poll leaves the loop turning, which is what it is there for.
            let _ = self.wait(Some((&policy, killing.as_ref())), child.word.as_ref());
        }
        let gone = At::now();
        if let (Some(terminal), Some(_)) = (&self.terminal, &killing) {
            terminal.restore();
        }
        self.report(&Report::Gone(gone));
        ExitCode::SUCCESS
    }

    fn report(&self, report: &Report) {
        setup::report(self.reports, report);
    }

    /// Notes which signals came to the guardian itself; they do nothing but tell that everybody was meant.
    fn note_own_signals(&mut self) {
        while let Ok(Some(info)) = self.signals.read_signal() {
            if let Some(slot) = usize::try_from(info.ssi_signo).ok().and_then(|n| self.own_signals.get_mut(n)) {
                *slot = Some(At::now());
            }
        }
    }

    /// Reads all orders, then the end of the pipe: the process that held the lock is gone. Of the instants only the newest count, and before
    /// everything else: those before them may have come and gone while this process stood still.
    fn obey(&mut self, policy: &mut Policy, child: &Child, killing: &mut Option<Killing>) {
        let mut orders = Vec::new();
        while let Some(line) = self.orders.next_line() {
            orders.push(Order::parse(&line));
        }
        let newest = orders.iter().rev().find_map(|order| if let Some(Order::Until(until)) = order { Some(*until) } else { None });
        if let Some(until) = newest {
            let late = policy.lateness(At::now());
            let action = policy.learn(At::now(), Input::Until(until));
            if let Some(late) = late.filter(|_| action.is_none()) {
                self.report(&Report::StoodStill(late));
            }
            self.act(action, killing);
        }
        for order in orders {
            let input = match order {
                Some(Order::Until(_)) => continue,
                Some(Order::Uncertain) => Input::Uncertain,
                Some(Order::Signal(signal)) => {
                    self.pass_on(signal, child);
                    continue;
                }
                // An order that makes no sense comes from no holder of a lock: the cautious reading of it is the worst one.
                Some(Order::Lost) | None => Input::Lost,
            };
            let action = policy.learn(At::now(), input);
            self.act(action, killing);
        }
        if self.orders.ended() {
            let action = policy.learn(At::now(), Input::HolderGone);
            self.act(action, killing);
        }
    }

    /// Gives the command a signal that the caller's process got, unless everybody got it.
    fn pass_on(&mut self, signal: i32, child: &Child) {
        self.note_own_signals();
        let own = usize::try_from(signal).ok().and_then(|n| self.own_signals.get_mut(n)).and_then(Option::take);
        let sent_to_all = own.is_some_and(|at| !at.plus(SAME_SIGNAL).reached(At::now()));
        if child.status.is_some() || sent_to_all {
            return;
        }
        if let (Some(process), Some(signal)) = (Process::read(child.pid), Signal::from_named_raw(signal)) {
            process.send(signal);
        }
    }

    fn hear_starter(&mut self, child: &mut Child) {
        let Some(word) = &mut child.word else { return };
        if let Some(line) = word.next_line() {
            self.report(&Report::Failed(line.parse().unwrap_or(Errno::EINVAL as i32)));
        } else if word.ended() {
            self.report(&Report::Started(child.pid));
        } else {
            return;
        }
        child.word = None;
    }

    /// Reaps whoever has ended; false once there is no child left and so nobody at all.
    fn reap(&mut self, policy: &mut Policy, child: &mut Child) -> bool {
        loop {
            match rustix::process::wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid.as_raw_nonzero().get() == child.pid => {
                    // The starter's end of the pipe is closed by now: this tells "started" before "ended".
                    self.hear_starter(child);
                    let status = Status::of(status);
                    child.status = Some(status);
                    self.report(&Report::Ended(status));
                    // What this could demand at once, `due` says right after.
                    policy.learn(At::now(), Input::CommandEnded);
                }
                Ok(Some(_)) | Err(rustix::io::Errno::INTR) => {}
                Ok(None) => return true,
                Err(_) => return false,
            }
        }
    }

    fn act(&self, action: Option<Action>, killing: &mut Option<Killing>) {
        let now = At::now();
        match action {
            None => {}
            Some(Action::Terminate(reason)) => {
                tree::terminate(own_pid());
                self.report(&Report::Stopping(reason));
            }
            Some(Action::Kill(reason)) => {
                let pause = KILL_PAUSE_MIN;
                let mut begun = Killing { since: now, pause, next: now, denied: BTreeSet::new(), reported: Vec::new() };
                // Kill first, tell afterwards: this may be the last moment in which it is in time.
                self.kill_round(&mut begun);
                self.report(&Report::Killing(reason));
                *killing = Some(begun);
            }
        }
    }

    fn kill_round(&self, killing: &mut Killing) {
        let now = At::now();
        if !killing.next.reached(now) {
            return;
        }
        killing.denied = tree::kill(own_pid(), &BTreeSet::new());
        if killing.since.plus(SURVIVORS_AFTER).reached(now) {
            self.report_survivors(killing);
            killing.pause = (killing.pause * 2).min(KILL_PAUSE_MAX);
        }
        killing.next = At::now().plus(killing.pause);
    }

    fn report_survivors(&self, killing: &mut Killing) {
        let alive: Vec<Process> = tree::descendants(own_pid(), &BTreeSet::new()).into_iter().filter(Process::lives).collect();
        let pids: Vec<i32> = alive.iter().map(|process| process.pid).collect();
        if pids.is_empty() || pids == killing.reported {
            return;
        }
        let survivors = alive.into_iter().take(SURVIVORS_MAX).map(|process| process.survives(&killing.denied)).collect();
        self.report(&Report::Survivors(survivors));
        killing.reported = pids;
    }

    /// Sleeps until there is an order, a signal (a child's end among them), a word of the starter, or something is due.
    fn wait(&self, due: Option<(&Policy, Option<&Killing>)>, word: Option<&Lines<File>>) -> io::Result<()> {
        if let Some((policy, killing)) = due {
            let now = At::now();
            match killing.map_or_else(|| policy.quiet(now), |killing| Some(killing.next.remaining(now))) {
                Some(span) => self.set_timer(now, span)?,
                None => self.timer.unset()?,
            }
        }
        let mut fds = vec![PollFd::new(self.signals.as_fd(), PollFlags::POLLIN), PollFd::new(self.timer.as_fd(), PollFlags::POLLIN)];
        // A pipe at its end is readable for ever; there is nothing more to learn from it.
        if !self.orders.ended() {
            fds.push(PollFd::new(self.orders.pipe().as_fd(), PollFlags::POLLIN));
        }
        fds.extend(word.map(|word| PollFd::new(word.pipe().as_fd(), PollFlags::POLLIN)));
        match poll(&mut fds, PollTimeout::NONE) {
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The timer runs on CLOCK_BOOTTIME, so it goes off right after a sleep of the machine. That clock may be slewed against
    /// CLOCK_MONOTONIC_RAW by up to 1/12 (chrony's default), so longer spans are waited in parts of 7/8, never too long.
    fn set_timer(&self, now: At, span: Duration) -> io::Result<()> {
        let span = if span > Duration::from_millis(8) { span * 7 / 8 } else { span.max(Duration::from_micros(50)) };
        let wake = Duration::from_nanos(now.plus(span).boot_ns);
        self.timer.set(Expiration::OneShot(TimeSpec::from_duration(wake)), TimerSetTimeFlags::TFD_TIMER_ABSTIME)?;
        Ok(())
    }
}

/// Starts the starter, which becomes the command.
fn start(command: OsString, args: Vec<OsString>) -> io::Result<Child> {
    let (word, starters_end) = io::pipe()?;
    crate::inherit::set_nonblocking(&word)?;
    let child = Command::new(crate::OWN_EXECUTABLE)
        .arg0("lock-starter")
        .arg(crate::HIDDEN_STARTER)
        .arg(crate::inherit::give(&starters_end)?)
        .arg(own_pid().to_string())
        .arg(command)
        .args(args)
        .spawn()?;
    let pid = i32::try_from(child.id()).map_err(io::Error::other)?;
    let word = Some(Lines::new(File::from(std::os::fd::OwnedFd::from(word))));
    Ok(Child { pid, word, status: None })
}

fn own_pid() -> i32 {
    nix::unistd::getpid().as_raw()
}
