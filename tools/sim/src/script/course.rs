//! The course of a script: machines that take turns as real drivers make them, in virtual time that only the script moves.
//!
//! Decides the order of happenings: by true time, then by planning. Place: under the script's vocabulary.
//! Invariant: every happening goes by all judges and into the trace at its instant; a violation ends the script at once.
//! Leaves to others: turns (`turns`), processes (`processes`), datagrams on their way (`wires`), what happens at all (the script).

use crate::host::{NEVER, Work};
use crate::judge::judges;
use crate::observe::{Judge, Node, Seen, True, UserOp};
use crate::plan::{Plan, US};
use crate::script::wires::Wires;
use crate::trace::Trace;
use crate::world::{Reception, Stage};
use bytes::Bytes;
use cistern_agent::api::{Event, OpError, Output};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Lines of the trace that a script which fails prints.
const TRACE_LINES: usize = 250;
/// How long a machine takes to notice something, in nanoseconds.
pub(super) const LATENCY: u64 = 10 * US;
/// A core that is not woken for so long is looked after anyway.
const LONGEST_SLEEP: Duration = Duration::from_secs(100);

/// Something that will happen.
pub(super) enum Due {
    Turn(Node),
    Arrive { node: Node, from: SocketAddr, to: SocketAddr, bytes: Bytes },
    Disk(u64, Work),
    Sealed(u64, u64),
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
    pub(super) disk_waits: Vec<(u64, Work)>,
    pub(super) names: Vec<String>,
    judges: Vec<Box<dyn Judge>>,
    trace: Trace,
    queue: BTreeMap<(u64, u64), Due>,
    planned: u64,
    pub(super) last_op: u64,
    /// What was sent to attackers' addresses.
    pub(super) exposed: Vec<(SocketAddr, Bytes)>,
    /// Whether anybody watches.
    pub(super) is_judged: bool,
    watched: Option<Watched>,
    is_caught: bool,
    pub(super) buf: Vec<u8>,
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
            exposed: Vec::new(),
            is_judged: true,
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
    pub(super) fn tell(&mut self, seen: &Seen<'_>) {
        self.tell_of(seen, true);
    }

    /// Tells them that a core was given a datagram: what did not open as it came.
    pub(super) fn tell_received(&mut self, node: Node, from: SocketAddr, bytes: &[u8], reception: Reception) {
        self.tell_of(&Seen::received(node, from, bytes, reception.is_counted()), reception != Reception::Unopened);
    }

    fn tell_of(&mut self, seen: &Seen<'_>, is_open: bool) {
        if !self.is_judged {
            return;
        }
        let Self { stage, trace, watched, is_caught, judges, .. } = self;
        let sight = stage.sight();
        let mut tell = |seen: &Seen<'_>| {
            trace.see(&sight, seen);
            if let Some(watched) = watched {
                *is_caught |= watched(seen);
            }
            judges.iter_mut().try_for_each(|judge| judge.see(&sight, seen))
        };
        let verdict = match &stage.sealing {
            Some(sealing) if is_open => sealing.tell(seen, tell),
            _ => tell(seen),
        };
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
    pub(super) fn push(&mut self, at: u64, next: Due) {
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
            Due::Turn(node) if self.process(node).wake == at => self.turn(node),
            Due::Turn(_) => {}
            Due::Arrive { node, from, to, bytes } => self.arrive(node, from, to, bytes),
            Due::Disk(start, work) => self.disk_did(start, work),
            Due::Sealed(start, number) => self.sealer_did(start, number),
        }
        true
    }

    /// A machine takes its next turn at `at` at the latest.
    pub(super) fn wake_by(&mut self, node: Node, at: u64) {
        let process = self.process(node);
        if at < process.wake {
            process.wake = at;
            self.push(at, Due::Turn(node));
        }
    }

    pub(super) fn wake(&mut self, node: Node) {
        self.wake_by(node, self.stage.now);
    }

    /// Plans the machine's next turn: when its core wants it, by the earlier of the machine's own clocks.
    pub(super) fn sleep(&mut self, node: Node, span: Option<Duration>) {
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
