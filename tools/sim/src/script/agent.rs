//! An agent's machine, as a script handles it, and the commands that users give there.
//!
//! Decides nothing: words for what happens to the machine, and for what its users ask. Place: what most lines of a script begin with.
//! Leaves to others: how a command ends (`user`), turns (`turns`), what is right (the judges).

use super::course::Course;
use super::user::{Held, LockAsk, Op};
use super::{PATIENCE, Shared};
use crate::clock::{Rates, UNIT};
use crate::observe::{Node, True};
use bytes::Bytes;
use cistern_agent::api::{Command, Event, LeaseView, Output, Ownership, Phase, Target, Wait, WatchEvent};
use cistern_wire::{AgentId, ObjectId, RenameRule, SessionId};
use std::cell::RefMut;

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

    /// The course that it runs in.
    pub(super) fn course(&self) -> RefMut<'_, Course> {
        self.shared.course()
    }

    /// Its identity.
    #[must_use]
    pub fn id(&self) -> AgentId {
        self.shared.course().stage.agents[self.number].id()
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
        LockAsk::new(self, target(path), Wait::Forever)
    }

    /// A user gives a command.
    pub fn does(&self, command: Command) -> Op {
        let op = self.shared.course().submit(self.number, command);
        Op::new(self.shared.clone(), self.number, op)
    }

    /// Replaces a file's contents, making it if need be.
    pub fn put(&self, path: &str, text: &str) -> Op {
        self.does(Command::Put { path: bytes(path), data: bytes(text), owner: OWNER })
    }

    /// As [`Agent::put`], under a lock: it fails if that is not current any more.
    pub fn put_under(&self, held: &Held, path: &str, text: &str) -> Op {
        self.does(Command::Put { path: bytes(path), data: bytes(text), owner: OWNER }.guarded(held.guard()))
    }

    /// Reads a file.
    pub fn read(&self, path: &str) -> Op {
        self.does(Command::Read { target: target(path), offset: 0, length: None })
    }

    /// Makes an empty file that must not exist.
    pub fn create(&self, path: &str) -> Op {
        self.does(Command::Create { path: bytes(path), exclusive: true, ephemeral: false, owner: OWNER })
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

    /// Exchanges what two names name.
    pub fn exchange(&self, one: &str, other: &str) -> Op {
        self.does(Command::Rename { from: bytes(one), to: bytes(other), rule: RenameRule::Exchange, force: false })
    }

    /// Looks at attributes.
    pub fn stat(&self, path: &str) -> Op {
        self.does(Command::Stat { target: target(path), follow: true })
    }

    /// Makes an ephemeral file; gives its object.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn joins(&self, path: &str) -> ObjectId {
        let made = self.does(Command::Create { path: bytes(path), exclusive: true, ephemeral: true, owner: OWNER });
        match made.done() {
            Output::Attr(attr) => attr.object,
            other => panic!("no attributes: {other:?}"),
        }
    }

    /// Watches what a path names; gives its object.
    ///
    /// # Panics
    /// If there is no such thing.
    #[must_use]
    pub fn watches(&self, path: &str) -> ObjectId {
        let Output::Attr(attr) = self.stat(path).done() else { panic!("no attributes") };
        self.does(Command::Watch { object: attr.object }).done_at_once();
        attr.object
    }

    /// What it has told its users of a watched object, in order.
    #[must_use]
    pub fn heard_of(&self, of: ObjectId) -> Vec<WatchEvent> {
        let heard = |event| match event {
            Event::Watch { object, what, .. } if object == of => Some(what),
            _ => None,
        };
        self.told().into_iter().filter_map(heard).collect()
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
