//! A command under a lock: from when the lock is held until nothing of the command is left.
//!
//! Decides: that the guardian of the command always knows until when the lock is certain.
//! Implements section 11.6 with `cistern-run`, which stops the command in time even when this process is killed.
//! Leaves to others: stopping processes (`cistern-run`), what is done under the lock before and after the command.

use super::held::{Held, Look};
use super::obtain::NoLock;
use super::own;
use crate::holder::PlaceWatch;
use crate::local::Failure;
use crate::show;
use crate::signals::{Caught, End};
use crate::text::Text;
use cistern_run::{Control, EXIT_FAILURE, EXIT_LOST, Event, Outcome, Runner, Running};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::ffi::OsString;
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// A command to be run under a lock.
pub(crate) struct GuardedCommand<'a> {
    /// Of the lock, or of the semaphore.
    pub(crate) path: &'a Text,
    /// The command and its arguments.
    pub(crate) command: &'a [OsString],
    /// What it finds in its environment, beside the token.
    pub(crate) env: Vec<(&'static str, OsString)>,
    /// Whether somebody is told when the path comes to name another file.
    pub(crate) watches_place: bool,
}

/// A command that has ended, with all that it started.
pub(crate) struct Finished {
    pub(crate) code: u8,
    /// It did not end by itself: the lock could not be kept, or its guardian was killed.
    pub(crate) was_stopped: bool,
    /// This process was asked to end meanwhile.
    pub(crate) was_signalled: bool,
    /// The lock, as far as it is held yet; `None`: it goes with the session or the connection.
    pub(crate) held: Option<Held>,
    /// Whose signals this process takes until it is dropped.
    pub(crate) running: Running,
}

impl GuardedCommand<'_> {
    /// Runs it, from when it is certain that the lock is held until nothing of it is left.
    pub(crate) fn run(&self, mut held: Held, signals: &Caught) -> Result<Finished, NoLock> {
        let path = self.path;
        let basis = held.basis();
        log::info!("{path}: locked, token {}{}", held.token(), basis.map_or_else(String::new, |basis| format!(" ({basis})")));
        let lost = || Failure::new("LOST", EXIT_LOST, format!("{path}: the lock was lost before the command was started; nothing was run"));
        let first = match held.look(signals.end()).map_err(own)? {
            Some(Look::Certain(until)) if !signals.end().is_asked() => until,
            Some(Look::Uncertain | Look::Lost) => return Err(lost().into()),
            Some(Look::Certain(_)) | None => {
                held.give_back();
                return Err(NoLock::Ended);
            }
        };
        let (command, rest) = self.command.split_first().ok_or_else(|| own(Failure::usage("no command is named")))?;
        let place = held.slot().map_or_else(|| path.clone(), |slot| path.join(slot.to_string().as_bytes()));
        let runner = Runner::new(command).args(rest).env("CISTERN_TOKEN", held.token().to_string()).env("CISTERN_LOCK", place.as_os());
        let runner = held.slot().map_or(runner.clone(), |slot| runner.env("CISTERN_SLOT", slot.to_string()));
        let runner = self.env.iter().fold(runner, |runner, (name, value)| runner.env(name, value));
        let runner = basis.map_or(runner.clone(), |basis| runner.env("CISTERN_TOKEN_BASIS", basis.name()));
        let mut running = match runner.start(first) {
            Ok(running) => running,
            Err(e) => {
                held.give_back();
                return Err(Failure::new("NOT_RUN", e.code(), e.to_string()).into());
            }
        };
        let control = running.control();
        if let Some(signal) = signals.signal() {
            // It came when the command was not there yet to get it.
            let _ = control.stop(signal);
        }
        // From here on the signals are the command's.
        signals.release();
        let watch_of_place = self.watches_place.then(|| PlaceWatch::begin(held.looker(), &place, held.object()));
        let (feeder, stop) = match feed(held, control) {
            Ok(feeder) => feeder,
            Err(failure) => {
                // The command is stopped before the lock is given back.
                drop(running);
                return Err(failure.into());
            }
        };
        let (outcome, was_signalled) = watch(&mut running, path);
        drop((stop, watch_of_place));
        // A panic there has no effect on the outcome; the lock then goes with the session or the connection.
        let held = feeder.join().ok();
        Ok(Finished { code: outcome.code(), was_stopped: outcome.stopped.is_some(), was_signalled, held, running })
    }
}

/// Tells the guardian until when the lock is certain, each time that changes, and at once when it is lost; until the other value is dropped.
fn feed(mut held: Held, control: Control) -> Result<(JoinHandle<Held>, UnixStream), Failure> {
    let (end, stop) = End::pair()?;
    let work = move || {
        let mut last = None;
        while let Ok(Some(look)) = held.look(&end) {
            if last != Some(look) {
                let told = match look {
                    Look::Certain(until) => control.certain_until(until),
                    Look::Uncertain => control.uncertain(),
                    Look::Lost => control.lost(),
                };
                // What a guardian that does not read was not told is told again.
                last = told.map_err(|e| log::debug!("the guardian was not told: {e}")).ok().map(|()| look);
            }
            if end.is_asked() {
                break;
            }
            // Events come at once; renewals are no events, so the instant is looked at in steps.
            held.wait(&end, held.step());
        }
        held
    };
    let thread = std::thread::Builder::new().name("cistern-feed".to_owned());
    let thread = thread.spawn(work).map_err(|e| Failure::new("START", EXIT_FAILURE, format!("no thread to be had: {e}")))?;
    Ok((thread, stop))
}

/// Waits for the end of the command and of all that it started, and tells a person what is done to it.
fn watch(running: &mut Running, path: &Text) -> (Outcome, bool) {
    let mut was_signalled = false;
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
            Event::PassedOn(signal) => was_signalled |= [SIGHUP, SIGINT, SIGTERM].contains(&signal),
            Event::Ended(_) => log::debug!("{path}: {event:?}"),
            Event::TreeGone(outcome) => {
                if !outcome.in_time {
                    tell(path, "the command was gone only after its lock had ceased to be certain; the fencing token has to keep it out");
                }
                return (outcome, was_signalled);
            }
        }
    }
}

/// Tells a person.
pub(crate) fn tell(path: &Text, what: &str) {
    show::error("cistern", &Failure::new("LOCK", EXIT_LOST, format!("{path}: {what}")));
}
