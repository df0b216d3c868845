//! The server's machine and its disk, as a script handles them.
//!
//! Decides nothing: words for what happens to a process, to its clocks, and to what is under its store, and for looking at the server's
//! own word of itself. Place: fields of [`super::Script`].
//! Leaves to others: what follows from it (`course`).

use super::{Agent, Shared};
use crate::clock::{Rates, UNIT};
use crate::observe::{Node, True};
use crate::sealing::Sealing;
use cistern_server::principals::{PrincipalId, Rights};
use cistern_server::{Config, SessionRow, Stats, Status};
use cistern_wire::Realm;

/// The server's machine.
pub struct Server {
    shared: Shared,
}

impl Server {
    pub(super) const fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// The process is started.
    pub fn start(&self) {
        self.shared.course().start(Node::Server);
    }

    /// The process dies; what was not durable is gone.
    pub fn crash(&self) {
        self.shared.course().crash(Node::Server);
    }

    /// It dies and is started again at once.
    pub fn restart(&self) {
        self.crash();
        self.start();
    }

    /// Whether the process runs.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.shared.course().stage.server.core.is_some()
    }

    /// The process stands still; what it is sent waits in its socket.
    pub fn pause(&self) {
        self.shared.course().pause(Node::Server);
    }

    /// It goes on.
    pub fn resume(&self) {
        self.shared.course().resume(Node::Server);
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
        self.shared.course().rate(Node::Server, rates);
    }

    /// An operator evicts an agent.
    ///
    /// # Panics
    /// If the server has no session of it.
    pub fn evict(&self, agent: &Agent) {
        let id = agent.id();
        let mut course = self.shared.course();
        let now = course.stage.server.clock.at(True(course.stage.now));
        let core = course.stage.server.core.as_mut().expect("the server runs");
        assert!(!core.evict(now, id).is_empty(), "the agent has a session");
        course.wake(Node::Server);
    }

    /// An operator adds a principal.
    ///
    /// # Panics
    /// If it cannot be added.
    #[must_use]
    pub fn add_principal(&self, name: &str) -> PrincipalId {
        self.change(|core, now| core.add_principal(now, name.as_bytes(), None, false)).expect("the name is free").0
    }

    /// An operator says what a principal may do in a realm.
    ///
    /// # Panics
    /// If there is no such principal or realm.
    pub fn grant(&self, who: PrincipalId, realm: Realm, rights: Rights) {
        self.change(|core, now| core.grant(now, who, realm, rights)).expect("both are there");
    }

    /// An operator revokes an agent's key, of the sealed mode.
    ///
    /// # Panics
    /// If it is revoked.
    pub fn revoke(&self, agent: &Agent) {
        let name = Sealing::name(agent.number());
        self.change(|core, now| core.revoke(now, core.principal_named(name.as_bytes()).expect("its key is known")))
            .expect("it may be revoked");
    }

    /// Sessions that are opened from now on are a principal's.
    pub fn plain_principal(&self, who: PrincipalId) {
        let mut course = self.shared.course();
        let now = course.stage.server.clock.at(True(course.stage.now));
        let config = Config { plain_principal: who.0, ..course.stage.server.config().clone() };
        course.stage.server.adopt(now, config);
    }

    fn change<R>(&self, change: impl FnOnce(&mut cistern_server::Server, cistern_link::Instant) -> R) -> R {
        let mut course = self.shared.course();
        let now = course.stage.server.clock.at(True(course.stage.now));
        let changed = change(course.stage.server.core.as_mut().expect("the server runs"), now);
        course.wake(Node::Server);
        changed
    }

    /// Looks at the core.
    fn look<R>(&self, look: impl FnOnce(&cistern_server::Server, cistern_link::Instant) -> R) -> R {
        let course = self.shared.course();
        let now = course.stage.server.clock.at(True(course.stage.now));
        look(course.stage.server.core.as_ref().expect("the server runs"), now)
    }

    /// How it is.
    #[must_use]
    pub fn status(&self) -> Status {
        self.look(cistern_server::Server::status)
    }

    /// What it has counted since it was started.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.look(|core, _| core.stats().clone())
    }

    /// Its sessions.
    #[must_use]
    pub fn sessions(&self) -> Vec<SessionRow> {
        self.look(cistern_server::Server::sessions)
    }

    /// Whether it is in grace.
    #[must_use]
    pub fn is_in_grace(&self) -> bool {
        self.status().grace.is_some()
    }

    /// The standing of an agent's newest session, in the server's words; `None`: it has none.
    #[must_use]
    pub fn standing_of(&self, agent: &Agent) -> Option<&'static str> {
        let id = agent.id();
        self.sessions().into_iter().filter(|row| row.agent == id).max_by_key(|row| std::cmp::Reverse(row.age)).map(|row| row.standing)
    }
}

/// The server's disk.
pub struct DiskAccess {
    shared: Shared,
}

impl DiskAccess {
    pub(super) const fn new(shared: Shared) -> Self {
        Self { shared }
    }

    /// It does nothing from now on.
    pub fn stall(&self) {
        self.shared.course().disk_stalls = true;
    }

    /// It goes on.
    pub fn go(&self) {
        self.shared.course().disk_goes();
    }

    /// The next writes fail, or no longer do.
    pub fn fails(&self, fails: bool) {
        self.shared.course().stage.server.broken = fails;
    }

    /// Somebody copies it as it is.
    pub fn copy(&self) {
        self.shared.course().stage.server.disk.keep_copy();
    }

    /// The copy comes in its place, marked as restored; the server must be down.
    pub fn restore(&self) {
        self.shared.course().restore();
    }
}
