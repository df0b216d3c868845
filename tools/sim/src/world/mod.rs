//! The world: machines, network, faults and users, moved from one happening to the next.
//!
//! Decides the course of a run: a safety phase with faults, then healing, then a liveness phase in which everything that users want
//! must come to pass within a bound (I15, section 11.3). Place: the centre; everything else is called from here. Invariant: nothing outside
//! the plan enters a run, and everything that judges may want to know is told to them when it happens.
//! Leaves to others: turns of machines (`turns`), faults (`faults`), the bound (`bound`), verdicts (`watch`, `judge`).

mod bound;
mod faults;
mod queue;
mod stage;
mod turns;
mod watch;

pub(crate) use stage::Reception;
pub use stage::Stage;

use crate::attack::{Intruder, Tamperer, Witnessed};
use crate::clock::{NodeClock, Rates};
use crate::counters::Counters;
use crate::host::{AgentHost, NEVER, Process, ServerHost};
use crate::net::{Arrival, Net, NetCounts};
use crate::observe::{Node, Seen, True, Violation};
use crate::plan::{Fault, Plan, US, What};
use crate::rng::SimRng;
use crate::trace::Trace;
use crate::users::Users;
use cistern_link::Instant;
use queue::{Next, Queue};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use watch::Watch;

/// Most happenings in a run; a run that has more goes round in circles.
const STEPS_MAX: u64 = 20_000_000;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The hash of everything that happened.
    pub hash: u64,
    /// How long it was, in nanoseconds of true time.
    pub sim_ns: u64,
    /// Happenings.
    pub steps: u64,
    /// Commands that users gave.
    pub commands: u64,
    /// What the network did.
    pub net: NetCounts,
    /// How much of the liveness phase's bound was used, in parts per million.
    pub heal_ppm: u64,
    /// The first invariant that did not hold, if any.
    pub violation: Option<Violation>,
    /// The "sometimes" counters.
    pub counters: Counters,
}

/// A run on its way.
pub struct World<'t> {
    plan: Plan,
    stage: Stage,
    watch: Watch<'t>,
    net: Net,
    queue: Queue,
    users: Users,
    timing: SimRng,
    commands: u64,
    deadline: u64,
    stall_ppm: u64,
    /// The attackers at work, by fault, and what they may have seen.
    intruders: BTreeMap<u32, Intruder>,
    witnessed: Vec<Witnessed>,
    /// Whoever attacks a run that is sealed.
    tamperer: Option<Tamperer>,
    // Kept between turns so that they need not be allocated anew.
    buf: Vec<u8>,
    arrivals: Vec<Arrival>,
}

impl<'t> World<'t> {
    /// A world at the beginning of a plan's run.
    #[must_use]
    pub fn new(plan: &Plan, trace: Option<&'t mut Trace>) -> Self {
        let rng = SimRng::new(plan.seed).fork("run");
        let records = plan.faults.iter().any(|fault| matches!(fault.what, What::Replay { .. }));
        let attacked = plan.faults.iter().any(|fault| matches!(fault.what, What::Attack { .. }));
        let inbox = plan.net.socket_max;
        let sealing = plan.sealing();
        let agents = (0..plan.agents).map(|agent| {
            let seeds = rng.fork(&format!("agent {agent} seeds"));
            AgentHost::new(
                agent,
                plan.agent[agent].config(),
                clock(plan, Node::Agent(agent)),
                crate::host::ADDRESS,
                inbox,
                seeds,
                sealing.clone(),
            )
        });
        let server = ServerHost::new(
            plan.server.config(),
            clock(plan, Node::Server),
            plan.disk.clone(),
            inbox,
            &rng,
            sealing.clone().map(|sealing| (sealing, plan.agents)),
        );
        let stage = Stage { now: 0, agents: agents.collect(), server, healed_at: None, fence_only: plan.fence_only, sealing };
        let mut queue = Queue::default();
        queue.push(0, Next::Start(Node::Server));
        (0..plan.agents).for_each(|agent| queue.push(0, Next::Start(Node::Agent(agent))));
        for (place, fault) in plan.faults.iter().enumerate() {
            queue.push(fault.at, Next::Begin(place));
            queue.push(fault.until, Next::End(place));
        }
        queue.push(plan.heal_ns, Next::Heal);
        Self {
            stage,
            watch: Watch::new(plan, trace),
            net: Net::new(plan.seed, plan.net.clone(), plan.agents, records),
            queue,
            users: Users::new(&plan.workload, plan.agents, rng.fork("users")),
            timing: rng.fork("timing"),
            commands: 0,
            deadline: NEVER,
            stall_ppm: plan.net.stall_ppm,
            intruders: BTreeMap::new(),
            witnessed: if attacked { vec![Witnessed::default(); plan.agents] } else { Vec::new() },
            tamperer: (attacked && plan.sealed.is_some()).then(Tamperer::default),
            buf: Vec::new(),
            arrivals: Vec::new(),
            plan: plan.clone(),
        }
    }

    /// Runs to the end, or to the first violation.
    #[must_use]
    pub fn run(mut self) -> Outcome {
        let mut steps = 0;
        let violation = loop {
            match self.step() {
                Ok(true) if steps < STEPS_MAX => steps += 1,
                Ok(true) => break Some(violation("I15", "circles", format!("{STEPS_MAX} happenings and no end"))),
                Ok(false) => break self.watch.end(&self.stage.sight()).err(),
                Err(found) => break Some(found),
            }
        };
        let healed = self.stage.healed_at.map_or(0, |at| self.stage.now - at.0);
        let bound = self.deadline.saturating_sub(self.plan.heal_ns).max(1);
        Outcome {
            hash: self.watch.hash(),
            sim_ns: self.stage.now,
            steps,
            commands: self.commands,
            net: self.net.counts(),
            heal_ppm: healed * 1_000 / (bound / 1_000).max(1),
            violation,
            counters: self.watch.counters,
        }
    }

    /// The next happening; false: the run is over.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some((at, next)) = self.queue.pop() else { return Ok(false) };
        self.stage.now = at;
        match next {
            Next::Turn(node) => {
                self.turn(node, at)?;
                return Ok(!self.is_over());
            }
            Next::Arrive { node, from, to, bytes } => self.arrive(node, from, to, bytes),
            Next::Disk(start, work) => self.disk_did(start, work)?,
            Next::Sealed(start, number) => self.sealer_did(start, number),
            Next::Begin(place) => self.begin_fault(place)?,
            Next::End(place) => self.end_fault(place)?,
            Next::Again(place, nth) => self.again(place, nth)?,
            Next::Start(node) => self.start(node)?,
            Next::Heal => self.heal()?,
            Next::Deadline => return Err(self.too_late()),
        }
        Ok(true)
    }

    fn is_over(&self) -> bool {
        self.stage.healed_at.is_some() && self.users.satisfied()
    }

    fn heal(&mut self) -> Result<(), Violation> {
        self.net.heal();
        self.stall_ppm = 0;
        self.stage.healed_at = Some(True(self.stage.now));
        self.deadline = self.stage.now + bound::liveness(&self.plan);
        self.queue.push(self.deadline, Next::Deadline);
        self.watch.remark(&self.stage.sight(), || "everything is healed".to_owned());
        self.users.heal(True(self.stage.now));
        for node in self.nodes() {
            self.wake_by(node, self.stage.now);
        }
        Ok(())
    }

    fn too_late(&self) -> Violation {
        let span = crate::plan::fault::seconds(self.deadline - self.plan.heal_ns);
        violation("I15", "not-satisfied", format!("not everybody got what they want within {span} after healing: {}", self.users.wanting()))
    }

    /// Tells everybody who watches.
    fn tell(&mut self, seen: &Seen<'_>) -> Result<(), Violation> {
        let Self { stage, watch, .. } = self;
        let sight = stage.sight();
        match &stage.sealing {
            Some(sealing) => sealing.tell(seen, |seen| watch.see(&sight, seen)),
            None => watch.see(&sight, seen),
        }
    }

    /// Tells everybody who watches that a core was given a datagram: what did not open as it came.
    fn tell_received(&mut self, node: Node, from: SocketAddr, bytes: &[u8], reception: Reception) -> Result<(), Violation> {
        let seen = Seen::received(node, from, bytes, reception.is_counted());
        if reception == Reception::Unopened { self.watch.see(&self.stage.sight(), &seen) } else { self.tell(&seen) }
    }

    fn nodes(&self) -> Vec<Node> {
        std::iter::once(Node::Server).chain((0..self.plan.agents).map(Node::Agent)).collect()
    }

    fn process(&mut self, node: Node) -> &mut Process {
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
            self.queue.push(at, Next::Turn(node));
        }
    }

    /// How long a machine takes to notice something.
    fn latency(&mut self) -> u64 {
        self.timing.between(US.min(self.plan.net.latency_ns), self.plan.net.latency_ns)
    }
}

/// A machine's clock over the whole run: the plan's rates, changed by its faults.
fn clock(plan: &Plan, node: Node) -> NodeClock {
    let base = match node {
        Node::Server => &plan.clocks[0],
        Node::Agent(agent) => &plan.clocks[agent + 1],
    };
    let touches = |fault: &&Fault| match &fault.what {
        What::Rate { node: of, .. } | What::Suspend { node: of } | What::Freeze { node: of } => *of == node,
        _ => false,
    };
    let faults: Vec<&Fault> = plan.faults.iter().filter(touches).collect();
    let mut times: Vec<u64> = faults.iter().flat_map(|fault| [fault.at, fault.until]).collect();
    times.sort_unstable();
    times.dedup();
    let mut clock = NodeClock::new(Instant::new(base.raw_ns, base.boot_ns), base.rates);
    for at in times {
        let mut rates = base.rates;
        let active = || faults.iter().filter(|fault| fault.at <= at && at < fault.until);
        for fault in active() {
            if let What::Rate { rates: changed, .. } = fault.what {
                rates = changed;
            }
        }
        for fault in active() {
            match fault.what {
                What::Suspend { .. } => rates.raw_ppb = 0,
                What::Freeze { .. } => rates = Rates::both(0),
                _ => {}
            }
        }
        clock.change(True(at), rates);
    }
    clock
}

fn violation(invariant: &'static str, check: &'static str, what: String) -> Violation {
    Violation { invariant, check, what }
}

#[cfg(test)]
mod tests;
