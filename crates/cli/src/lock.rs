//! `cistern lock`: a command under a lock.
//!
//! Decides: how the lock is got (the file made if it is missing), that the guardian of the command always knows until when the
//! lock is certain, that the lock is given back only when nothing of the command is left, and the exit status.
//! Implements R45 with `cistern-run`, which stops the command in time even when this process is killed.
//! The lock always belongs to an agent of this process's own, never to the host's: the lease ends when this process is gone, and
//! the guardian knows that end.
//! Leaves to others: stopping processes (`cistern-run`), the lease (`cistern-client`).

use crate::args::Lock;
use crate::backend::own_client;
use crate::execute::{lock as request_lock, ownership};
use crate::local::{Failure, millis};
use crate::show;
use crate::text::Text;
use cistern_client::{Client, Error, Guard, GuardState, Status};
use cistern_run::{At, Control, EXIT_FAILURE, EXIT_LOST, EXIT_NOT_OBTAINED, EXIT_TIMED_OUT, Event, Runner, Running, Until};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Time for the clean end of the session: what is not confirmed by then ends by the lease.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// Runs the command; gives the exit status.
pub(crate) fn lock(args: &Lock) -> Result<u8, Failure> {
    if args.common.agent.is_some() {
        return Err(own(Failure::usage("`cistern lock` has an agent of its own; --agent is for the other commands")));
    }
    let client = own_client(&args.common, None).map_err(own)?;
    let path = Text::from(args.path.as_os_str());
    let guard = match obtain(&client, args, &path) {
        Ok(guard) => guard,
        Err(failure) => {
            let _ = client.close(CLOSE_TIME);
            return Err(failure);
        }
    };
    log::info!("{path}: locked, token {}", guard.token());
    let code = run(args, &client, &path, guard);
    if let Err(error) = client.close(CLOSE_TIME) {
        log::debug!("the session was not closed: {error}");
    }
    code
}

/// A failure of `cistern` itself, which must be told from the command's.
pub(crate) fn own(failure: Failure) -> Failure {
    Failure { exit: EXIT_FAILURE, ..failure }
}

fn obtain(client: &Client, args: &Lock, path: &Text) -> Result<Guard, Failure> {
    let wait_ms = if args.try_once { Some(0) } else { args.wait.map(millis) };
    let once = || request_lock(client, path, args.shared, wait_ms).wait();
    let result = match once() {
        Err(error) if error.status() == Some(Status::ENOENT) => {
            client.create(path.as_os(), false, ownership(0o644)).wait().and_then(|_| once())
        }
        other => other,
    };
    result.map_err(|error| {
        let exit = match &error {
            Error::TimedOut { .. } => EXIT_TIMED_OUT,
            Error::Status { status: Status::EAGAIN, .. } if args.wait.is_some() => EXIT_TIMED_OUT,
            Error::Status { status: Status::EAGAIN, .. } => EXIT_NOT_OBTAINED,
            _ => EXIT_FAILURE,
        };
        Failure { exit, ..Failure::from(error) }
    })
}

/// The instants by which the command lives, as the guard has them now; `None` when the lock is not certain.
fn instants(guard: &Guard, lease: Duration) -> Option<Until> {
    let until = guard.valid_until()?;
    Some(Until::of_lease(At { raw_ns: until.raw_ns, boot_ns: until.boot_ns }, lease))
}

fn run(args: &Lock, client: &Client, path: &Text, guard: Guard) -> Result<u8, Failure> {
    let lease = client.lease().map_err(Failure::from)?.lease;
    let Some(first) = instants(&guard, lease) else {
        return Err(Failure::new("LOST", EXIT_LOST, format!("{path}: the lock was lost before the command was started; nothing was run")));
    };
    let (command, rest) = args.command.split_first().ok_or_else(|| Failure::usage("no command is named"))?;
    let runner = Runner::new(command).args(rest).env("CISTERN_TOKEN", guard.token().to_string()).env("CISTERN_LOCK", path.as_os());
    let running = runner.start(first).map_err(|e| Failure::new("NOT_RUN", e.code(), e.to_string()))?;
    let guard = Arc::new(guard);
    let ended = Arc::new(AtomicBool::new(false));
    let feeder = match feed(Arc::clone(&guard), running.control(), lease, Arc::clone(&ended)) {
        Ok(feeder) => feeder,
        Err(failure) => {
            // The command is stopped before the lock is given back.
            drop(running);
            return Err(failure);
        }
    };
    let code = watch(running, path);
    ended.store(true, Ordering::Release);
    // The feeder only reads clocks and a pipe; it ends within one step. Its panic would have no effect on the outcome.
    let _ = feeder.join();
    drop(guard);
    Ok(code)
}

/// Tells the guardian until when the lock is certain, each time that changes, and at once when it is lost.
fn feed(guard: Arc<Guard>, control: Control, lease: Duration, ended: Arc<AtomicBool>) -> Result<std::thread::JoinHandle<()>, Failure> {
    // Often enough that the guardian's knowledge is never older than a small part of the lease.
    let step = (lease / 20).max(Duration::from_millis(5));
    let work = move || {
        let mut last = None;
        while !ended.load(Ordering::Acquire) {
            // Events come at once; renewals are no events, so the instant is looked at in steps.
            let _ = guard.wait_event(step);
            let told = match guard.state() {
                GuardState::Lost => control.lost().map(|()| true),
                GuardState::Uncertain => control.uncertain().map(|()| false),
                GuardState::Certain { .. } => match instants(&guard, lease) {
                    Some(until) if last != Some(until) => {
                        last = Some(until);
                        control.certain_until(until).map(|()| false)
                    }
                    _ => Ok(false),
                },
            };
            match told {
                Ok(false) => {}
                Ok(true) => return,
                Err(e) => log::debug!("the guardian was not told: {e}"),
            }
        }
    };
    let thread = std::thread::Builder::new().name("cistern-feed".to_owned());
    thread.spawn(work).map_err(|e| Failure::new("START", EXIT_FAILURE, format!("no thread to be had: {e}")))
}

/// Waits for the end of the command and of all that it started, and tells a person what is done to it.
fn watch(mut running: Running, path: &Text) -> u8 {
    loop {
        let Some(event) = running.wait_event(None) else { continue };
        match event {
            Event::Stopping(reason) => tell(path, &format!("stopping the command: {}", reason.text())),
            Event::Killing(reason) => tell(path, &format!("killing the command: {}", reason.text())),
            Event::GuardianGone => tell(path, "the guardian of the command was killed; stopping what is left"),
            Event::StoodStill(late) => {
                let late = late.as_millis();
                tell(
                    path,
                    &format!(
                        "the guardian of the command stood still and was {late} ms late; the lease was renewed meanwhile, and the command goes on"
                    ),
                );
            }
            Event::Survivors(survivors) => {
                for s in survivors {
                    tell(path, &format!("process {} ({}) cannot be killed; the fencing token has to keep it out", s.pid, s.name));
                }
            }
            Event::StopUndone => tell(path, "cannot be suspended: a stopped process renews no lease; it goes on"),
            Event::Ended(_) | Event::PassedOn(_) => log::debug!("{path}: {event:?}"),
            Event::TreeGone(outcome) => {
                if !outcome.in_time {
                    tell(path, "the command was gone only after its lock had ceased to be certain; the fencing token has to keep it out");
                }
                return outcome.code();
            }
        }
    }
}

fn tell(path: &Text, what: &str) {
    show::error("cistern", &Failure::new("LOCK", EXIT_LOST, format!("{path}: {what}")));
}
