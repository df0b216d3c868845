//! An agent's machine and the users at it, as a script handles them: commands, how they end, locks in users' hands.
//!
//! Decides nothing: a command is given at once and an expectation waits in virtual time until it is met or can no longer be. Place: what
//! most lines of a script are about.
//! Leaves to others: time (`course`), what is right (the judges, besides the script's own expectations).

use super::course::Ending;
use super::{PATIENCE, Shared};
use crate::clock::{Rates, UNIT};
use crate::observe::{Node, True, UserOp};
use crate::plan::MS;
use bytes::Bytes;
use cistern_agent::api::{Command, Event, Guard, LeaseView, LockEvent, Locked, OpError, Output, Ownership, Phase, Target, Wait};
use cistern_wire::{AgentId, Mode, RenameRule, SessionId, Status};
use std::time::Duration;

/// Who owns what scripts make.
const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

/// An agent's machine, with users.
pub struct Agent {
    shared: Shared,
    number: usize,
    copied: Option<usize>,
}

impl Agent {
    pub(super) const fn new(shared: Shared, number: usize, copied: Option<usize>) -> Self {
        Self { shared, number, copied }
    }

    pub(super) const fn number(&self) -> usize {
        self.number
    }

    pub(super) fn id(&self) -> AgentId {
        let owner = self.copied.unwrap_or(self.number);
        AgentId([u8::try_from(owner + 1).unwrap_or(u8::MAX); 16])
    }

    const fn node(&self) -> Node {
        Node::Agent(self.number)
    }

    /// The process is started; of a copy, as the next start of what it is a copy of.
    pub fn start(&self) {
        let mut course = self.shared.course();
        if let Some(of) = self.copied {
            let starts = course.stage.agents[of].process.starts;
            course.stage.agents[self.number].process.starts = starts;
        }
        course.start(self.node());
    }

    /// The process dies.
    pub fn crash(&self) {
        self.shared.course().crash(self.node());
    }

    /// The process stands still; its clocks go on.
    pub fn pause(&self) {
        self.shared.course().pause(self.node());
    }

    /// It goes on.
    pub fn resume(&self) {
        self.shared.course().resume(self.node());
    }

    /// The machine sleeps: nothing runs, the raw clock stands, the boot clock goes on.
    pub fn suspend(&self) {
        self.pause();
        self.clocks(Rates { raw_ppb: 0, boot_ppb: UNIT });
    }

    /// The machine wakes up.
    pub fn wakes_up(&self) {
        self.clocks(Rates::TRUE);
        self.resume();
    }

    /// Its clocks run at other rates from now on.
    pub fn clocks(&self, rates: Rates) {
        self.shared.course().rate(self.node(), rates);
    }

    /// It gets another address.
    pub fn moves(&self) {
        self.shared.course().moved(self.number);
    }

    /// It closes its session and is done.
    ///
    /// # Panics
    /// If that takes more than a minute.
    pub fn close(&self) {
        let mut course = self.shared.course();
        course.with_agent(self.number, cistern_agent::Agent::close);
        course.wake(self.node());
        let until = course.stage.now + PATIENCE;
        while !course.stage.agents[self.number].core.as_ref().is_some_and(cistern_agent::Agent::is_closed) {
            assert!(course.step(until), "the agent does not come to an end");
        }
    }

    /// What it says of its lease.
    #[must_use]
    pub fn view(&self) -> LeaseView {
        let course = self.shared.course();
        let host = &course.stage.agents[self.number];
        host.core.as_ref().expect("the agent runs").view(host.clock.at(True(course.stage.now)))
    }

    /// What is left of its lease, in milliseconds on its own clock.
    #[must_use]
    pub fn lease_left(&self) -> u64 {
        u64::try_from(self.view().left.as_millis()).unwrap_or(u64::MAX)
    }

    /// Whether nothing that it holds may be used now.
    #[must_use]
    pub fn has_lapsed(&self) -> bool {
        self.view().phase == Phase::Expired
    }

    /// Its session.
    ///
    /// # Panics
    /// If it has none.
    #[must_use]
    pub fn session(&self) -> SessionId {
        self.view().session.expect("the agent has a session")
    }

    /// What it has told its users besides the ends of commands, since it was started last.
    #[must_use]
    pub fn told(&self) -> Vec<Event> {
        let course = self.shared.course();
        let start = course.stage.agents[self.number].process.starts;
        course.told.iter().filter(|(agent, of, _)| (*agent, *of) == (self.number, start)).map(|(_, _, event)| event.clone()).collect()
    }

    /// Asks for an advisory lock.
    #[must_use]
    pub fn lock(&self, path: &str) -> LockAsk<'_> {
        LockAsk { agent: self, target: target(path), wait: Wait::Forever }
    }

    /// A user gives a command.
    pub fn does(&self, command: Command) -> Op {
        let op = self.shared.course().submit(self.number, command);
        Op { shared: self.shared.clone(), agent: self.number, op }
    }

    /// Replaces a file's contents, making it if need be.
    pub fn put(&self, path: &str, text: &str) -> Op {
        self.does(Command::Put { path: bytes(path), data: bytes(text), owner: OWNER, guard: None })
    }

    /// As [`Agent::put`], under a lock: it fails if that is not current any more.
    pub fn put_under(&self, held: &Held, path: &str, text: &str) -> Op {
        self.does(Command::Put { path: bytes(path), data: bytes(text), owner: OWNER, guard: Some(held.guard()) })
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> Op {
        self.does(Command::Read { target: target(path), offset: 0, length: None })
    }

    /// Makes an empty file that must not exist.
    pub fn create(&self, path: &str) -> Op {
        self.does(Command::Create { path: bytes(path), exclusive: true, owner: OWNER })
    }

    /// Makes a directory.
    pub fn mkdir(&self, path: &str) -> Op {
        self.does(Command::Mkdir { path: bytes(path), owner: OWNER })
    }

    /// Makes a symbolic link.
    pub fn symlink(&self, path: &str, points_to: &str) -> Op {
        self.does(Command::Symlink { path: bytes(path), points_to: bytes(points_to), owner: OWNER })
    }

    /// Takes a name away.
    pub fn unlink(&self, path: &str) -> Op {
        self.does(Command::Unlink { path: bytes(path), force: false })
    }

    /// Moves a name, replacing what is there.
    pub fn rename(&self, old: &str, new: &str) -> Op {
        self.does(Command::Rename { from: bytes(old), to: bytes(new), rule: RenameRule::Replace, force: false })
    }

    /// Looks at attributes.
    pub fn stat(&self, path: &str) -> Op {
        self.does(Command::Stat { target: target(path), follow: true })
    }

    /// A round trip.
    pub fn ping(&self) -> Op {
        self.does(Command::Ping)
    }

    /// What a file says, from wherever the agent has it.
    ///
    /// # Panics
    /// If it cannot be read.
    #[must_use]
    pub fn text_of(&self, path: &str) -> String {
        self.read(path).text()
    }
}

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn target(path: &str) -> Target {
    Target::Path(bytes(path))
}

/// A request for a lock that is being phrased.
pub struct LockAsk<'a> {
    agent: &'a Agent,
    target: Target,
    wait: Wait,
}

impl LockAsk<'_> {
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
        Guard { object: self.locked.object, generation: self.locked.generation }
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
