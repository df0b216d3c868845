//! The course of a script: machines that take turns as real drivers make them, in virtual time that only the script moves.
//!
//! Decides the order of happenings (by true time, then by planning) and what a turn is: drain the socket, timers, the store, events,
//! sending, sleeping, exactly as `world::turns` does it for drawn plans. Place: under the script's vocabulary.
//! Invariant: every happening goes by all judges and into the trace at its instant; a violation ends the script at once.
//! Leaves to others: what becomes of datagrams on their way (`wires`), what happens at all (the script).

use crate::clock::Rates;
use crate::host::{ADDRESS, NEVER, Process, Work};
use crate::judge::judges;
use crate::observe::{Judge, Node, Seen, True, UserOp};
use crate::plan::{Plan, US};
use crate::script::wires::{Way, Wires};
use crate::trace::Trace;
use crate::world::Stage;
use bytes::Bytes;
use cistern_agent::api::{Command, Event, OpError, OpId, Output, Submitted};
use cistern_link::{Machine as _, Path};
use cistern_server::store::{StoreEvent, StoreWork};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Lines of the trace that a script which fails prints.
const TRACE_LINES: usize = 250;
/// How long a machine takes to notice something, in nanoseconds.
const LATENCY: u64 = 10 * US;
/// A core that is not woken for so long is looked after anyway.
const LONGEST_SLEEP: Duration = Duration::from_secs(100);

/// Something that will happen.
enum Next {
    Turn(Node),
    Arrive { node: Node, from: SocketAddr, to: SocketAddr, bytes: Bytes },
    Disk(u64, Work),
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// As its agent said.
    Told(Result<Output, OpError>),
    /// Its agent died under it.
    Died,
}

/// What a script waits for.
type Watched = Box<dyn FnMut(&Seen<'_>) -> bool>;

/// A script's machines, what is on its way between them, and who watches.
pub(super) struct Course {
    pub(super) plan: Plan,
    pub(super) stage: Stage,
    pub(super) wires: Wires,
    pub(super) ended: BTreeMap<UserOp, Ending>,
    /// What agents told: which one, in which of its lives, what.
    pub(super) told: Vec<(usize, u64, Event)>,
    /// Reasons for drops, by machine, of processes that have died.
    pub(super) dropped: BTreeMap<String, u64>,
    pub(super) disk_stalls: bool,
    disk_waits: Vec<(u64, Work)>,
    names: Vec<String>,
    judges: Vec<Box<dyn Judge>>,
    trace: Trace,
    queue: BTreeMap<(u64, u64), Next>,
    planned: u64,
    last_op: u64,
    watched: Option<Watched>,
    is_caught: bool,
    buf: Vec<u8>,
}

impl Course {
    pub(super) fn new(plan: Plan, stage: Stage, names: Vec<String>) -> Self {
        Self {
            judges: judges(&plan),
            wires: Wires::new(plan.net.delay_ns),
            plan,
            stage,
            ended: BTreeMap::new(),
            told: Vec::new(),
            dropped: BTreeMap::new(),
            disk_stalls: false,
            disk_waits: Vec::new(),
            names,
            trace: Trace::new(TRACE_LINES, false),
            queue: BTreeMap::new(),
            planned: 0,
            last_op: 0,
            watched: None,
            is_caught: false,
            buf: Vec::new(),
        }
    }

    /// What a machine is called in the script.
    pub(super) fn name(&self, node: Node) -> &str {
        match node {
            Node::Server => "server",
            Node::Agent(agent) => &self.names[agent],
        }
    }

    /// A remark for the trace.
    pub(super) fn remark(&mut self, text: &str) {
        self.trace.remark(&self.stage.sight(), text);
    }

    /// Tells everybody who watches.
    fn tell(&mut self, seen: &Seen<'_>) {
        let sight = self.stage.sight();
        self.trace.see(&sight, seen);
        if let Some(watched) = &mut self.watched {
            self.is_caught |= watched(seen);
        }
        let verdict = self.judges.iter_mut().try_for_each(|judge| judge.see(&sight, seen));
        if let Err(violation) = verdict {
            panic!("an invariant does not hold: {violation}");
        }
    }

    /// The script is over: what judges have to say at the end.
    pub(super) fn judge_the_end(&mut self) {
        let sight = self.stage.sight();
        let verdict = self.judges.iter_mut().try_for_each(|judge| judge.end(&sight));
        if let Err(violation) = verdict {
            panic!("an invariant does not hold at the end: {violation}");
        }
    }
}

/// Time.
impl Course {
    fn push(&mut self, at: u64, next: Next) {
        self.planned += 1;
        self.queue.insert((at, self.planned), next);
    }

    /// Everything up to `until` happens, and then it is so late.
    pub(super) fn pass_until(&mut self, until: u64) {
        while self.step(until) {}
        self.stage.now = until;
    }

    /// Time goes on until something is seen, or `until` has come; whether it was seen.
    pub(super) fn pass_until_seen(&mut self, until: u64, watched: Watched) -> bool {
        self.is_caught = false;
        self.watched = Some(watched);
        while !self.is_caught && self.step(until) {}
        self.watched = None;
        self.is_caught
    }

    /// The next happening that comes no later than `until`; false if there is none.
    pub(super) fn step(&mut self, until: u64) -> bool {
        let Some(entry) = self.queue.first_entry().filter(|entry| entry.key().0 <= until) else { return false };
        self.stage.now = self.stage.now.max(entry.key().0);
        let at = entry.key().0;
        match entry.remove() {
            Next::Turn(node) if self.process(node).wake == at => self.turn(node),
            Next::Turn(_) => {}
            Next::Arrive { node, from, to, bytes } => self.arrive(node, from, to, bytes),
            Next::Disk(start, work) => self.disk_did(start, work),
        }
        true
    }

    pub(super) fn process(&mut self, node: Node) -> &mut Process {
        match node {
            Node::Server => &mut self.stage.server.process,
            Node::Agent(agent) => &mut self.stage.agents[agent].process,
        }
    }

    /// A machine takes its next turn at `at` at the latest.
    fn wake_by(&mut self, node: Node, at: u64) {
        let process = self.process(node);
        if at < process.wake {
            process.wake = at;
            self.push(at, Next::Turn(node));
        }
    }

    pub(super) fn wake(&mut self, node: Node) {
        self.wake_by(node, self.stage.now);
    }

    /// Plans the machine's next turn: when its core wants it, by the earlier of the machine's own clocks.
    fn sleep(&mut self, node: Node, span: Option<Duration>) {
        let now = True(self.stage.now);
        let clock = match node {
            Node::Server => &self.stage.server.clock,
            Node::Agent(agent) => &self.stage.agents[agent].clock,
        };
        let wanted = span.map_or(NEVER, |span| clock.lease_over_at(clock.at(now).plus(span.min(LONGEST_SLEEP))).0);
        if wanted < NEVER {
            self.wake_by(node, wanted.max(self.stage.now + US) + LATENCY);
        }
    }

    /// From now on a machine's clocks run at other rates.
    pub(super) fn rate(&mut self, node: Node, rates: Rates) {
        let now = True(self.stage.now);
        match node {
            Node::Server => self.stage.server.clock.change(now, rates),
            Node::Agent(agent) => self.stage.agents[agent].clock.change(now, rates),
        }
        // What it had planned was planned by other rates.
        self.wake(node);
    }
}

/// Processes.
impl Course {
    pub(super) fn start(&mut self, node: Node) {
        let now = self.stage.now;
        let incarnation = match node {
            Node::Server => {
                assert!(self.stage.server.core.is_none(), "the server runs already");
                self.stage.server.start(now);
                self.stage.server.process.starts
            }
            Node::Agent(agent) => {
                assert!(self.stage.agents[agent].core.is_none(), "{} runs already", self.names[agent]);
                self.stage.agents[agent].start();
                self.stage.agents[agent].process.starts
            }
        };
        self.tell(&Seen::Started { node, incarnation });
        self.process(node).wake = NEVER;
        self.wake(node);
    }

    pub(super) fn crash(&mut self, node: Node) {
        let now = self.stage.now;
        self.note_drops(node);
        match node {
            Node::Server => {
                self.stage.server.crash(now);
                self.disk_waits.clear();
                self.tell(&Seen::Crashed { node });
            }
            Node::Agent(agent) => {
                let lost = self.stage.agents[agent].crash(now);
                self.tell(&Seen::Crashed { node });
                for op in lost {
                    self.tell(&Seen::Ended { agent, op, result: None });
                    self.ended.insert(op, Ending::Died);
                }
            }
        }
    }

    /// Notes what a process dropped, before its counters are gone.
    pub(super) fn note_drops(&mut self, node: Node) {
        let reasons: Vec<(String, u64)> = match node {
            Node::Server => self.stage.server.core.iter().flat_map(|core| core.stats().drops()).map(owned).collect(),
            Node::Agent(agent) => self.stage.agents[agent].core.iter().flat_map(|core| core.drops().iter()).map(owned).collect(),
        };
        for (reason, count) in reasons.into_iter().filter(|(_, count)| *count > 0) {
            *self.dropped.entry(format!("{}: {reason}", self.name(node))).or_default() += count;
        }
    }

    pub(super) fn pause(&mut self, node: Node) {
        self.process(node).paused += 1;
    }

    pub(super) fn resume(&mut self, node: Node) {
        self.process(node).paused -= 1;
        self.wake(node);
    }

    pub(super) fn moved(&mut self, agent: usize) {
        self.stage.agents[agent].go();
        self.tell(&Seen::Moved { agent });
    }

    /// The disk goes on.
    pub(super) fn disk_goes(&mut self) {
        self.disk_stalls = false;
        for (start, work) in std::mem::take(&mut self.disk_waits) {
            self.push(self.stage.now + LATENCY, Next::Disk(start, work));
        }
    }

    /// An older copy comes in the disk's place.
    pub(super) fn restore(&mut self) {
        assert!(self.stage.server.restore(), "there is no copy of the disk");
        self.tell(&Seen::Restored);
    }
}

/// Turns.
impl Course {
    fn turn(&mut self, node: Node) {
        let process = self.process(node);
        process.wake = NEVER;
        if process.paused > 0 {
            return;
        }
        match node {
            Node::Server if self.stage.server.core.is_some() => self.server_turn(),
            Node::Agent(agent) if self.stage.agents[agent].core.is_some() => self.agent_turn(agent),
            _ => return,
        }
        self.tell(&Seen::Settled);
    }

    fn arrive(&mut self, node: Node, from: SocketAddr, to: SocketAddr, bytes: Bytes) {
        let is_here = match node {
            Node::Server => self.stage.server.core.is_some(),
            Node::Agent(agent) => self.stage.agents[agent].core.is_some() && self.stage.agents[agent].address == to,
        };
        if is_here && self.process(node).arrive(from, bytes) {
            self.wake_by(node, self.stage.now + LATENCY);
        }
    }

    fn disk_did(&mut self, start: u64, work: Work) {
        if self.stage.server.core.is_none() || self.stage.server.process.starts != start {
            return;
        }
        if self.disk_stalls {
            self.disk_waits.push((start, work));
            return;
        }
        let now = self.stage.now;
        match work {
            Work::Load(query, early) => {
                let answer = self.stage.server.answer(query, early);
                self.stage.server.said.push_back(answer);
            }
            Work::Sync(_) if self.stage.server.broken => {
                self.stage.server.said.push_back(StoreEvent::Broken("the script's disk failed a write".to_owned()));
            }
            Work::Sync(together) => {
                for _ in 0..together {
                    if let Some(batch) = self.stage.server.disk.sync() {
                        self.tell(&Seen::Durable { batch });
                        self.stage.server.said.push_back(StoreEvent::Durable(batch));
                    }
                }
                self.stage.server.sync_over();
                let mut planned = Vec::new();
                self.stage.server.begin_sync(now, |span, work| planned.push((span, work)));
                self.plan_disk(start, planned);
            }
        }
        self.wake_by(Node::Server, now + LATENCY);
    }

    fn plan_disk(&mut self, start: u64, planned: Vec<(u64, Work)>) {
        for (span, work) in planned {
            self.push(self.stage.now + span, Next::Disk(start, work));
        }
    }

    fn server_turn(&mut self) {
        let reading = self.stage.server.clock.at(True(self.stage.now));
        while let Some((from, bytes)) = self.stage.server.process.inbox.pop_front() {
            if let Some(core) = &mut self.stage.server.core {
                core.handle_datagram(reading, Path { remote: from, local: Some(ADDRESS.ip()) }, &bytes);
            }
            self.tell(&Seen::Received { by: Node::Server, from, bytes: &bytes });
        }
        if let Some(core) = &mut self.stage.server.core {
            core.handle_drained(reading);
        }
        self.serve_store();
        while let Some(path) = self.stage.server.core.as_mut().and_then(|core| core.poll_transmit(reading, &mut self.buf)) {
            self.send(Node::Server, ADDRESS, path.remote);
        }
        let Some(core) = &mut self.stage.server.core else { return };
        if core.failure().is_some() {
            return self.crash(Node::Server);
        }
        let span = core.wake_after(reading);
        self.sleep(Node::Server, span);
    }

    /// Takes the core's work to the disk, and the disk's word to the core, until neither has more.
    fn serve_store(&mut self) {
        let now = self.stage.now;
        let start = self.stage.server.process.starts;
        let reading = self.stage.server.clock.at(True(now));
        loop {
            while let Some(work) = self.stage.server.core.as_mut().and_then(cistern_server::Server::poll_effect) {
                if let StoreWork::Persist(batch) = &work {
                    self.tell(&Seen::Persisted { batch });
                }
                let mut planned = Vec::new();
                self.stage.server.take(work, now, |span, work| planned.push((span, work)));
                self.plan_disk(start, planned);
            }
            let Some(event) = self.stage.server.said.pop_front() else { return };
            if let Some(core) = &mut self.stage.server.core {
                core.store_event(reading, event);
            }
        }
    }

    fn agent_turn(&mut self, agent: usize) {
        let reading = self.stage.agents[agent].clock.at(True(self.stage.now));
        while let Some((from, bytes)) = self.stage.agents[agent].process.inbox.pop_front() {
            if let Some(core) = &mut self.stage.agents[agent].core {
                core.handle_datagram(reading, Path::to(from), &bytes);
            }
            self.tell(&Seen::Received { by: Node::Agent(agent), from, bytes: &bytes });
            self.take_events(agent);
        }
        if let Some(core) = &mut self.stage.agents[agent].core {
            core.handle_drained(reading);
        }
        self.take_events(agent);
        let own = self.stage.agents[agent].address;
        while let Some(path) = self.stage.agents[agent].core.as_mut().and_then(|core| core.poll_transmit(reading, &mut self.buf)) {
            self.send(Node::Agent(agent), own, path.remote);
        }
        self.take_events(agent);
        let Some(core) = &mut self.stage.agents[agent].core else { return };
        let span = core.wake_after(reading);
        self.sleep(Node::Agent(agent), span);
    }

    /// Takes what the agent tells its users.
    fn take_events(&mut self, agent: usize) {
        while let Some(event) = self.stage.agents[agent].core.as_mut().and_then(cistern_agent::Agent::poll_event) {
            if let Event::Done { op, result } = &event {
                let op = self.stage.agents[agent].ops.remove(op).expect("an agent ends only commands that run");
                self.over(agent, op, result.clone());
            } else {
                self.tell(&Seen::Told { agent, event: &event });
                let start = self.stage.agents[agent].process.starts;
                self.told.push((agent, start, event));
            }
        }
    }

    fn over(&mut self, agent: usize, op: UserOp, result: Result<Output, OpError>) {
        self.tell(&Seen::Ended { agent, op, result: Some(&result) });
        self.ended.insert(op, Ending::Told(result));
    }

    /// A user gives a command; the agent takes a turn with it.
    pub(super) fn submit(&mut self, agent: usize, command: Command) -> UserOp {
        self.last_op += 1;
        let op = UserOp(self.last_op);
        let seen = command.clone();
        let submitted = self.with_agent(agent, |core, now| core.submit(now, command));
        if let Submitted::Later(id) = submitted {
            self.stage.agents[agent].ops.insert(id, op);
        }
        self.tell(&Seen::Submitted { agent, op, command: &seen });
        if let Submitted::Now(result) = submitted {
            self.over(agent, op, result);
        }
        self.take_events(agent);
        self.turn(Node::Agent(agent));
        op
    }

    /// A user takes a command back.
    pub(super) fn cancel(&mut self, agent: usize, op: UserOp) {
        let id: Option<OpId> = self.stage.agents[agent].ops.iter().find(|(_, of)| **of == op).map(|(id, _)| *id);
        if let Some(id) = id {
            self.with_agent(agent, |core, now| core.cancel(now, id));
            self.take_events(agent);
            self.turn(Node::Agent(agent));
        }
    }

    /// Calls an agent's core at its machine's time.
    pub(super) fn with_agent<R>(&mut self, agent: usize, call: impl FnOnce(&mut cistern_agent::Agent, cistern_link::Instant) -> R) -> R {
        let host = &mut self.stage.agents[agent];
        assert!(host.process.paused == 0, "{} stands still, and can do nothing", self.names[agent]);
        let reading = host.clock.at(True(self.stage.now));
        let core = host.core.as_mut().unwrap_or_else(|| panic!("{} does not run", self.names[agent]));
        call(core, reading)
    }

    /// Hands the datagram in the buffer to the wires.
    fn send(&mut self, node: Node, from: SocketAddr, to: SocketAddr) {
        let bytes = std::mem::take(&mut self.buf);
        self.tell(&Seen::Sent { from: node, to, bytes: &bytes });
        let way = match node {
            Node::Agent(agent) => Some(Way { agent, up: true }),
            Node::Server => self.stage.agents.iter().position(|host| host.address == to).map(|agent| Way { agent, up: false }),
        };
        if let Some(way) = way {
            for after in self.wires.send(way, from, to, &bytes) {
                self.travel(way, from, to, Bytes::copy_from_slice(&bytes), after);
            }
        }
        self.buf = bytes;
    }

    /// A datagram arrives after so long.
    pub(super) fn travel(&mut self, way: Way, from: SocketAddr, to: SocketAddr, bytes: Bytes, after: u64) {
        let node = if way.up { Node::Server } else { Node::Agent(way.agent) };
        self.push(self.stage.now + after, Next::Arrive { node, from, to, bytes });
    }
}

fn owned((reason, count): (&'static str, u64)) -> (String, u64) {
    (reason.to_owned(), count)
}

impl Drop for Course {
    #[expect(clippy::print_stderr, reason = "a script that failed shows what happened in it, as every failing test does")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            let names: Vec<String> = self.names.iter().enumerate().map(|(n, name)| format!("{n} is {name}")).collect();
            eprintln!("{}\nagents: {}", Trace::heading(self.names.len()), names.join(", "));
            self.trace.lines().for_each(|line| eprintln!("{line}"));
        }
    }
}
