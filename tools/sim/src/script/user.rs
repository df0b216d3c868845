//! What users at an agent see: how their commands end, and the locks in their hands.
//!
//! Decides nothing: an expectation waits in virtual time until it is met or can no longer be. Place: where most lines of a script end.
//! Leaves to others: giving commands (`agent`), time (`course`), what is right (the judges, besides the script's own expectations).

use super::course::Ending;
use super::{Agent, PATIENCE, Shared};
use crate::observe::{True, UserOp};
use crate::plan::MS;
use cistern_agent::api::{Command, Event, Guard, LockEvent, Locked, OpError, Output, Target, Wait};
use cistern_wire::{Mode, Status};
use std::time::Duration;

/// A request for a lock that is being phrased.
pub struct LockAsk<'a> {
    agent: &'a Agent,
    target: Target,
    wait: Wait,
}

impl<'a> LockAsk<'a> {
    pub(super) const fn new(agent: &'a Agent, target: Target, wait: Wait) -> Self {
        Self { agent, target, wait }
    }

    /// Without waiting.
    #[must_use]
    pub fn at_once(self) -> Self {
        Self { wait: Wait::Try, ..self }
    }

    /// Waiting no longer than that.
    #[must_use]
    pub fn within(self, ms: u64) -> Self {
        Self { wait: Wait::AtMost(Duration::from_millis(ms)), ..self }
    }

    /// For oneself.
    pub fn exclusive(self) -> Op {
        self.ask(Mode::Exclusive)
    }

    /// Together with others who read.
    pub fn shared(self) -> Op {
        self.ask(Mode::Shared)
    }

    fn ask(self, mode: Mode) -> Op {
        self.agent.does(Command::Lock { target: self.target, mode, wait: self.wait })
    }
}

/// A command that was given.
pub struct Op {
    shared: Shared,
    agent: usize,
    op: UserOp,
}

impl Op {
    pub(super) const fn new(shared: Shared, agent: usize, op: UserOp) -> Self {
        Self { shared, agent, op }
    }

    /// How it ended, if it has.
    #[must_use]
    pub fn ending(&self) -> Option<Ending> {
        self.shared.course().ended.get(&self.op).cloned()
    }

    /// Its user takes it back.
    pub fn cancel(&self) {
        self.shared.course().cancel(self.agent, self.op);
    }

    /// It has not ended.
    ///
    /// # Panics
    /// If it has.
    pub fn still_waits(&self) {
        assert_eq!(self.ending(), None, "it should be waiting still");
    }

    /// Time passes until it ends.
    ///
    /// # Panics
    /// If it does not within a minute, or its agent died under it.
    pub fn ends(&self) -> Result<Output, OpError> {
        let mut course = self.shared.course();
        let until = course.stage.now + PATIENCE;
        loop {
            match course.ended.get(&self.op) {
                Some(Ending::Told(result)) => return result.clone(),
                Some(Ending::Died) => panic!("its agent died under it"),
                None => assert!(course.step(until), "a command does not end: {:?} of agent {}", self.op, self.agent),
            }
        }
    }

    /// It succeeds.
    ///
    /// # Panics
    /// If it fails.
    pub fn done(&self) -> Output {
        self.ends().unwrap_or_else(|error| panic!("it should succeed and fails: {error:?}"))
    }

    /// It has succeeded already, without any time passing: from cache, or by a local grant.
    ///
    /// # Panics
    /// If it has not.
    pub fn done_at_once(&self) -> Output {
        assert!(self.ending().is_some(), "it should have been answered at once");
        self.done()
    }

    /// It fails.
    ///
    /// # Panics
    /// If it succeeds.
    pub fn fails(&self) -> OpError {
        match self.ends() {
            Ok(output) => panic!("it should fail and brings {output:?}"),
            Err(error) => error,
        }
    }

    /// The server's application, or the agent in its place, refuses it.
    ///
    /// # Panics
    /// If it succeeds, or fails for another reason.
    pub fn refused(&self, status: Status) {
        assert_eq!(self.fails(), OpError::Status(status));
    }

    /// It brings a lock.
    ///
    /// # Panics
    /// If it does not.
    pub fn granted(&self) -> Held {
        let Output::Locked(locked) = self.done() else { panic!("it was no request for a lock") };
        let start = self.shared.course().stage.agents[self.agent].process.starts;
        Held { shared: self.shared.clone(), agent: self.agent, start, locked }
    }

    /// What it has read.
    ///
    /// # Panics
    /// If it has not read anything.
    #[must_use]
    pub fn text(&self) -> String {
        let Output::Data { data, .. } = self.done() else { panic!("it was no reading") };
        String::from_utf8_lossy(&data).into_owned()
    }
}

/// A lock in a user's hands.
pub struct Held {
    shared: Shared,
    agent: usize,
    start: u64,
    locked: Locked,
}

impl Held {
    /// Its fencing token.
    #[must_use]
    pub const fn token(&self) -> u64 {
        self.locked.token
    }

    /// What a write under it names.
    #[must_use]
    pub const fn guard(&self) -> Guard {
        Guard { object: self.locked.object, token: self.locked.token }
    }

    /// Whether the user may use it now, as the check at the moment of use says; false also when its agent's process is gone.
    #[must_use]
    pub fn is_certain(&self) -> bool {
        let course = self.shared.course();
        let host = &course.stage.agents[self.agent];
        let core = host.core.as_ref().filter(|_| host.process.starts == self.start);
        core.and_then(|core| core.holder_view(host.clock.at(True(course.stage.now)), self.locked.holder)).is_some_and(|view| view.certain)
    }

    /// The last instant shown to its user, in milliseconds of true time from now; 0 when it has passed.
    #[must_use]
    pub fn shown_for(&self) -> u64 {
        let course = self.shared.course();
        let host = &course.stage.agents[self.agent];
        let view = host.core.as_ref().and_then(|core| core.holder_view(host.clock.at(True(course.stage.now)), self.locked.holder));
        let until = view.map_or(self.locked.valid_until, |view| view.valid_until);
        host.clock.lease_over_at(until).0.saturating_sub(course.stage.now) / MS
    }

    /// What its user was told of it, in order.
    #[must_use]
    pub fn told(&self) -> Vec<&'static str> {
        let course = self.shared.course();
        let mine = course.told.iter().filter(|(agent, start, _)| (*agent, *start) == (self.agent, self.start));
        mine.filter_map(|(_, _, event)| match event {
            Event::Lock { holder, what, .. } if *holder == self.locked.holder => Some(match what {
                LockEvent::Suspect { .. } => "suspect",
                LockEvent::Uncertain => "uncertain",
                LockEvent::Certain { .. } => "certain",
                LockEvent::Lost => "lost",
            }),
            _ => None,
        })
        .collect()
    }

    /// Whether its user was told that it is gone.
    #[must_use]
    pub fn is_lost(&self) -> bool {
        self.told().last() == Some(&"lost")
    }

    /// Its user gives it back; or says, of one that is lost, that it has stopped.
    pub fn unlock(&self) {
        self.shared.course().submit(self.agent, Command::Unlock { holder: self.locked.holder });
    }
}
