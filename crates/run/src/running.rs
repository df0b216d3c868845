//! A running command, seen from the process that holds the lock.
//!
//! Decides what the caller learns and when: reports of the guardian become [`Event`]s, signals are passed on, and the end is told
//! only when nothing the command started is left. Place: caller ← *running* ← reports ← guardian.
//! Invariant: [`Event::TreeGone`] is told only after the guardian said so, or, if the guardian was killed, after this
//! process has killed and reaped all that was left. A guardian that has not killed halfway between the kill instant and the
//! end of certainty (it was stopped, say) is helped from here. Feeding instants is [`Control`], which any thread may hold.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::process::Child;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::at::{At, Until};
use crate::exit::{Outcome, Reason, Status};
use crate::messages::{Lines, Order, Report, Survivor, send};
use crate::orphans::Orphans;
use crate::runner::Claim;
use crate::signals::{Heard, Signals};
use crate::tree;

/// Longest sleep between looks at the clocks. Only the help for a guardian that is held up depends on it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// Between rounds of killing from here.
const ROUND: Duration = Duration::from_millis(20);
/// Between looks whether a job that was stopped for using the terminal has got the foreground.
const TERMINAL_LOOK: Duration = Duration::from_millis(200);

/// What happened to the command or to what it started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The command itself ended. The lock has to be kept until [`Event::TreeGone`].
    Ended(Status),
    /// SIGTERM was sent to the whole tree.
    Stopping(Reason),
    /// SIGKILL was sent to the whole tree.
    Killing(Reason),
    /// The guardian stood still (it was stopped, say) and was late by so much; the lease had been renewed meanwhile, and the command goes on.
    StoodStill(Duration),
    /// These processes are still there some time after SIGKILL; it is tried on.
    Survivors(Vec<Survivor>),
    /// This signal came to this process and was passed on to the command.
    PassedOn(i32),
    /// The terminal wanted to stop the job (^Z); it was continued, for a stopped process cannot renew a lease.
    StopUndone,
    /// The guardian was killed; the command with it; this process is killing the rest.
    GuardianGone,
    /// Nothing that the command started is left: the lock may be given back. Always the last event.
    TreeGone(Outcome),
}

/// Why a start failed, as far as the guardian knows.
#[derive(Debug)]
pub(crate) enum Failure {
    Refused(String),
    Exec(i32),
    GuardianGone,
}

/// Feeds the guardian: may be cloned and used from any thread, such as the one that renews the lease.
#[derive(Clone, Debug)]
pub struct Control {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    orders: PipeWriter,
    until: Mutex<Until>,
}

impl Control {
    /// The lock is certain until these instants; the newest call counts, also if its instants are earlier.
    ///
    /// # Errors
    ///
    /// The guardian is gone, or has not read for so long that the pipe is full. The instant is not known to it then, which is
    /// safe: it acts by the older one. [`Running::wait_event`] tells what becomes of it.
    pub fn certain_until(&self, until: Until) -> io::Result<()> {
        let until = until.ordered();
        // The lock is held while sending, so that two threads cannot leave the guardian with the older instant.
        let mut newest = self.until();
        *newest = until;
        send(&self.shared.orders, &Order::Until(until).line())
    }

    /// The lock is not certain any more: SIGTERM now, SIGKILL at the kill instant, or at once if that has come.
    ///
    /// # Errors
    ///
    /// As for [`Control::certain_until`]; the guardian then stops the command by its own clocks.
    pub fn uncertain(&self) -> io::Result<()> {
        send(&self.shared.orders, &Order::Uncertain.line())
    }

    /// The lock is lost: SIGKILL now.
    ///
    /// # Errors
    ///
    /// As for [`Control::certain_until`]; the guardian then stops the command by its own clocks.
    pub fn lost(&self) -> io::Result<()> {
        send(&self.shared.orders, &Order::Lost.line())
    }

    /// Passes a signal on to the command, and to it alone; what follows is the command's decision.
    ///
    /// # Errors
    ///
    /// As for [`Control::certain_until`].
    pub fn stop(&self, signal: i32) -> io::Result<()> {
        send(&self.shared.orders, &Order::Signal(signal).line())
    }

    fn until(&self) -> MutexGuard<'_, Until> {
        // Nothing can panic while it is held, and an instant is whole in any case.
        self.shared.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who takes care of the tree.
enum Care {
    Guardian,
    /// The guardian was killed.
    Here(Orphans),
    Done,
}

/// A command that runs under a lock.
///
/// Dropping it kills whatever is left and waits for its end, but not beyond the last instant of certainty.
pub struct Running {
    control: Control,
    guardian: Child,
    reports: Lines<PipeReader>,
    signals: Signals,
    /// Children of this process from before the run.
    spared: BTreeSet<i32>,
    care: Care,
    started: bool,
    failure: Option<Failure>,
    command: Option<i32>,
    outcome: Outcome,
    /// Whether it was told that the tree is killed, by the guardian or in its place.
    killing_told: bool,
    events: VecDeque<Event>,
    _claim: Claim,
}

impl Running {
    pub(crate) fn new(
        guardian: Child,
        orders: PipeWriter,
        reports: Lines<PipeReader>,
        signals: Signals,
        spared: BTreeSet<i32>,
        first: Until,
        claim: Claim,
    ) -> Running {
        let first = first.ordered();
        let control = Control { shared: Arc::new(Shared { orders, until: Mutex::new(first) }) };
        // If the guardian is gone already, the end of its pipe tells.
        let _ = control.certain_until(first);
        Running {
            control,
            guardian,
            reports,
            signals,
            spared,
            care: Care::Guardian,
            started: false,
            failure: None,
            command: None,
            outcome: Outcome { status: None, stopped: None, in_time: false, survivors: Vec::new() },
            killing_told: false,
            events: VecDeque::new(),
            _claim: claim,
        }
    }

    /// The handle that feeds the guardian, for other threads.
    #[must_use]
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// The command's process id, the guardian's, in this order.
    #[must_use]
    pub fn pids(&self) -> (Option<i32>, u32) {
        (self.command, self.guardian.id())
    }

    /// Waits for the next event, at most `timeout` (`None`: as long as it takes).
    ///
    /// To be called again and again until [`Event::TreeGone`], which then repeats: signals are passed on, and a guardian in
    /// trouble is helped, only inside this call. Its own errors are none; whatever fails ends in an event.
    pub fn wait_event(&mut self, timeout: Option<Duration>) -> Option<Event> {
        let begun = Instant::now();
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            if let Care::Done = self.care {
                return Some(Event::TreeGone(self.outcome.clone()));
            }
            let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
            self.turn(left);
            if left == Some(Duration::ZERO) && self.events.is_empty() {
                return None;
            }
        }
    }

    /// Waits until the tree is gone and tells how the run ended.
    pub fn wait_gone(&mut self) -> Outcome {
        loop {
            if let Some(Event::TreeGone(outcome)) = self.wait_event(None) {
                return outcome;
            }
        }
    }

    pub(crate) fn is_started(&self) -> bool {
        self.started
    }

    pub(crate) fn failure(&self) -> Option<&Failure> {
        self.failure.as_ref()
    }

    /// Sleeps until something comes, at most `timeout`, and takes it in.
    pub(crate) fn turn(&mut self, timeout: Option<Duration>) {
        let pause = self.pause();
        let pause = timeout.map_or(pause, |timeout| timeout.min(pause));
        // Rounded up, or the last millisecond would be spent in a busy loop.
        let millis = u16::try_from(pause.as_micros().div_ceil(1000)).unwrap_or(u16::MAX);
        let mut fds = vec![PollFd::new(self.signals.readable(), PollFlags::POLLIN)];
        if let Care::Guardian = self.care {
            fds.push(PollFd::new(self.reports.pipe().as_fd(), PollFlags::POLLIN));
        }
        // An error is an interruption or lack of memory; both mean to look and come back.
        let _ = poll(&mut fds, PollTimeout::from(millis));
        self.pass_signals_on();
        match &self.care {
            Care::Guardian => self.hear_guardian(),
            Care::Here(_) => self.clean_up(),
            Care::Done => {}
        }
    }

    fn pause(&self) -> Duration {
        let pause = match &self.care {
            Care::Here(orphans) => orphans.pause(),
            Care::Guardian => {
                let (now, until) = (At::now(), *self.control.until());
                match until.overdue_at().reached(now) {
                    false => until.overdue_at().remaining(now).clamp(ROUND, LOOK_AGAIN),
                    // Rounds of help, brisk while they can still be in time.
                    true if until.until.reached(now) => LOOK_AGAIN,
                    true => ROUND,
                }
            }
            Care::Done => Duration::ZERO,
        };
        if self.signals.wants_turns() { pause.min(TERMINAL_LOOK) } else { pause }
    }

    fn pass_signals_on(&mut self) {
        for heard in self.signals.hear() {
            match heard {
                Heard::StopUndone => self.events.push_back(Event::StopUndone),
                Heard::PassOn(signal) => {
                    // If the guardian is gone, so is the command, and an event says so.
                    let _ = self.control.stop(signal);
                    self.events.push_back(Event::PassedOn(signal));
                }
            }
        }
    }

    fn hear_guardian(&mut self) {
        // Asked first: what it wrote before its end is then in the pipe.
        let ended = matches!(self.guardian.try_wait(), Ok(Some(_)) | Err(_));
        while let Some(line) = self.reports.next_line() {
            match Report::parse(&line) {
                Some(report) => self.take(report),
                // It is the same executable, so this cannot be; whoever speaks like that is not to be relied on.
                None => drop(self.guardian.kill()),
            }
        }
        if let Care::Done = self.care {
            return;
        }
        if ended || self.reports.ended() {
            self.care = Care::Here(Orphans::new(self.spared.clone(), self.command));
            self.outcome.stopped = self.outcome.stopped.or((self.outcome.status.is_none()).then_some(Reason::GuardianGone));
            self.failure.get_or_insert(Failure::GuardianGone);
            self.events.push_back(Event::GuardianGone);
            self.clean_up();
        } else if self.control.until().overdue_at().reached(At::now()) {
            self.help_guardian();
        }
    }

    fn take(&mut self, report: Report) {
        let by_itself = self.outcome.status.is_some();
        match report {
            Report::Refused(why) => self.failure = Some(Failure::Refused(why)),
            Report::Failed(errno) => self.failure = Some(Failure::Exec(errno)),
            Report::Started(pid) => {
                self.started = true;
                self.command = Some(pid);
            }
            Report::Ended(status) => {
                self.outcome.status = Some(status);
                self.events.push_back(Event::Ended(status));
            }
            Report::Stopping(reason) | Report::Killing(reason) => {
                if !by_itself {
                    self.outcome.stopped.get_or_insert(reason);
                }
                match report {
                    Report::Killing(_) => self.tell_killing(reason),
                    _ => self.events.push_back(Event::Stopping(reason)),
                }
            }
            Report::StoodStill(late) => self.events.push_back(Event::StoodStill(late)),
            Report::Survivors(list) => {
                self.outcome.survivors.clone_from(&list);
                self.events.push_back(Event::Survivors(list));
            }
            Report::Gone(at) => {
                // It has nothing more to do; waiting for it must not depend on nobody having stopped it.
                let _ = self.guardian.kill();
                let _ = self.guardian.wait();
                self.finish(at);
            }
        }
    }

    /// One round in the place of a guardian that was killed.
    fn clean_up(&mut self) {
        let Care::Here(orphans) = &mut self.care else { return };
        let left = orphans.round();
        if let Some(status) = left.status {
            self.outcome.status.get_or_insert(status);
            self.events.push_back(Event::Ended(status));
        }
        if left.survivors.is_empty() {
            self.finish(At::now());
            return;
        }
        self.outcome.survivors.clone_from(&left.survivors);
        if left.is_news {
            self.events.push_back(Event::Survivors(left.survivors));
        }
    }

    /// It should have killed by now: it is continued in case it was stopped, and its tree is killed from here.
    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //# A program that runs a command under a lock MUST have ended it, with all that it started, before the instant until which the lock is
    //# certain.
    fn help_guardian(&mut self) {
        let Ok(guardian) = i32::try_from(self.guardian.id()) else { return };
        // Of a command that has ended by itself the guardian has yet to tell.
        let command_lives = self.command.and_then(tree::Process::read).is_some_and(|command| command.lives());
        if self.outcome.status.is_none() && command_lives {
            self.outcome.stopped.get_or_insert(Reason::NotRenewed);
        }
        if tree::descendants(guardian, &BTreeSet::new()).iter().any(tree::Process::lives) {
            self.tell_killing(Reason::NotRenewed);
            tree::kill(guardian, &BTreeSet::new());
        }
        // It has not been reaped, so the number is still its own. Last, so that it reports the command's end after this.
        let _ = kill(Pid::from_raw(guardian), Signal::SIGCONT);
    }

    /// Says once that the tree is killed: guardian and help may both begin, as after a time in which the whole host stood still.
    fn tell_killing(&mut self, reason: Reason) {
        if !std::mem::replace(&mut self.killing_told, true) {
            self.events.push_back(Event::Killing(reason));
        }
    }

    fn finish(&mut self, gone: At) {
        self.outcome.in_time = !self.control.until().until.reached(gone);
        self.outcome.survivors.clear();
        self.care = Care::Done;
        self.events.push_back(Event::TreeGone(self.outcome.clone()));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.control.lost();
        let until = self.control.until().until;
        while !matches!(self.care, Care::Done) && !until.reached(At::now()) {
            self.turn(Some(ROUND));
        }
    }
}
