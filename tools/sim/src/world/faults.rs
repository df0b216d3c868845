//! Faults at work: what a fault of the plan does to machines, network and disk when it begins and when it ends.
//!
//! Decides nothing by chance: chance is in the plan and in the parts touched. Invariant: after its end a fault has no effect of its own;
//! faults of one kind on one machine may overlap, and the last one to end lets go.
//! Leaves to others: what a fault is (`plan::fault`), links (`net`), clocks (`world::clock`, from the plan at once).

use crate::attack::{self, Intruder};
use crate::host::{ADDRESS, NEVER};
use crate::observe::{Node, Seen, True, Violation};
use crate::plan::What;
use crate::rng::SimRng;
use crate::world::World;
use crate::world::queue::Next;
use cistern_faults::roll;
use cistern_wire::SessionId;

impl World<'_> {
    pub(super) fn begin_fault(&mut self, place: usize) -> Result<(), Violation> {
        let fault = self.plan.faults[place].clone();
        self.watch.remark(&self.stage.sight(), || format!("begins: {fault}"));
        match &fault.what {
            What::Pause { node } | What::Suspend { node } | What::Freeze { node } => self.process(*node).paused += 1,
            What::Crash { node } => {
                self.process(*node).down += 1;
                self.crash(*node)?;
            }
            What::Move { agent } => {
                self.stage.agents[*agent].go();
                self.tell(&Seen::Moved { agent: *agent })?;
            }
            What::Replay { count, .. } | What::Attack { count, .. } => {
                if let What::Attack { by, .. } = fault.what {
                    self.intruders.insert(fault.id, Intruder::new(by, fault.id));
                }
                let span = fault.until - fault.at;
                for nth in 0..*count {
                    let at = fault.at + span / u64::from(*count) * u64::from(nth);
                    self.queue.push(at, Next::Again(place, nth));
                }
            }
            What::DiskSlow { by } => self.stage.server.slower = *by,
            What::DiskStall => self.stage.server.stalled_until = self.stage.server.stalled_until.max(fault.until),
            What::DiskBroken => self.stage.server.broken = true,
            What::ReadErrors { ppm } => self.stage.server.read_error_ppm = *ppm,
            What::Restore { down } => {
                self.stage.server.disk.keep_copy();
                self.queue.push(fault.until.saturating_sub(*down).max(fault.at), Next::Again(place, 0));
            }
            What::Rate { .. } => {}
            _ => self.net.begin(&fault),
        }
        Ok(())
    }

    pub(super) fn end_fault(&mut self, place: usize) -> Result<(), Violation> {
        let fault = self.plan.faults[place].clone();
        self.watch.remark(&self.stage.sight(), || format!("ends: {fault}"));
        let now = self.stage.now;
        match &fault.what {
            What::Pause { node } | What::Suspend { node } | What::Freeze { node } => {
                let process = self.process(*node);
                process.paused -= 1;
                if process.paused == 0 {
                    self.wake_by(*node, now);
                }
            }
            What::Crash { node } => {
                self.process(*node).down -= 1;
                self.start(*node)?;
            }
            What::DiskSlow { .. } => self.stage.server.slower = 0,
            What::DiskBroken => {
                self.stage.server.broken = false;
                self.start(Node::Server)?;
            }
            What::ReadErrors { .. } => self.stage.server.read_error_ppm = 0,
            What::Restore { .. } => {
                self.stage.server.process.down -= 1;
                if self.stage.server.process.down == 0 && self.stage.server.restore() {
                    self.tell(&Seen::Restored)?;
                }
                self.start(Node::Server)?;
            }
            What::Move { .. } | What::DiskStall | What::Rate { .. } => {}
            What::Attack { .. } => {
                self.intruders.remove(&fault.id);
            }
            _ => self.net.end(fault.id),
        }
        Ok(())
    }

    /// A fault is due again: a recorded datagram is replayed, or the server stops to be restored.
    pub(super) fn again(&mut self, place: usize, nth: u32) -> Result<(), Violation> {
        let fault = &self.plan.faults[place];
        match fault.what {
            What::Replay { link, .. } => {
                let Some(recorded) = self.net.recorded(fault.id, nth, link) else { return Ok(()) };
                let agent = self.stage.agents[recorded.agent].address;
                let (node, from, to) = match recorded.up {
                    true => (Node::Server, agent, ADDRESS),
                    false => (Node::Agent(recorded.agent), ADDRESS, agent),
                };
                self.arrive(node, from, to, recorded.bytes);
                Ok(())
            }
            What::Attack { .. } => {
                let id = fault.id;
                self.attack(id, nth);
                Ok(())
            }
            What::Restore { .. } => {
                self.stage.server.process.down += 1;
                self.crash(Node::Server)
            }
            _ => Ok(()),
        }
    }

    /// An attacker acts: what it sends arrives at once.
    fn attack(&mut self, fault: u32, nth: u32) {
        let mut rng = SimRng::new(roll([self.plan.seed, fault.into(), nth.into(), 0xA77]));
        if let (Some(tamperer), Some(sealing)) = (&self.tamperer, &self.stage.sealing) {
            let Some((agent, up, bytes, there)) = tamperer.acts(&mut rng, self.plan.agents, &sealing.first_check()) else { return };
            let home = self.stage.agents[agent].address;
            let from = if there { home } else { attack::address(fault) };
            let (node, from, to) = if up { (Node::Server, from, ADDRESS) } else { (Node::Agent(agent), ADDRESS, home) };
            return self.arrive(node, from, to, bytes.into());
        }
        let reading = self.stage.server.clock.at(True(self.stage.now));
        let rows = self.stage.server.core.as_ref().map(|core| core.sessions(reading)).unwrap_or_default();
        let live: Vec<SessionId> = rows.into_iter().map(|row| row.session).collect();
        let act = self.intruders.get_mut(&fault).and_then(|intruder| intruder.acts(&mut rng, &self.witnessed, &live));
        let Some((node, bytes)) = act else { return };
        let to = match node {
            Node::Server => ADDRESS,
            Node::Agent(agent) => self.stage.agents[agent].address,
        };
        self.arrive(node, attack::address(fault), to, bytes.into());
    }

    /// A process dies, if it runs.
    fn crash(&mut self, node: Node) -> Result<(), Violation> {
        let now = self.stage.now;
        match node {
            Node::Server => {
                if self.stage.server.core.is_none() {
                    return Ok(());
                }
                self.stage.server.crash(now);
                self.tell(&Seen::Crashed { node })
            }
            Node::Agent(agent) => {
                if self.stage.agents[agent].core.is_none() {
                    return Ok(());
                }
                let lost = self.stage.agents[agent].crash(now);
                self.tell(&Seen::Crashed { node })?;
                for op in lost {
                    self.ended(agent, op, None)?;
                }
                self.users.crashed(agent, True(now));
                Ok(())
            }
        }
    }

    /// The server's store failed it: its process ends, and is started again by whoever watches it.
    pub(super) fn server_gives_up(&mut self) -> Result<(), Violation> {
        self.crash(Node::Server)?;
        self.queue.push(self.stage.now, Next::Start(Node::Server));
        Ok(())
    }

    /// A process is started, unless it runs, or something keeps it from running, or it is too early.
    pub(super) fn start(&mut self, node: Node) -> Result<(), Violation> {
        let now = self.stage.now;
        let wait = if node == Node::Server { self.plan.restart_wait_ns } else { 0 };
        let process = self.process(node);
        if process.down > 0 {
            return Ok(());
        }
        let earliest = if process.starts == 0 { 0 } else { process.died_at + wait };
        if now < earliest {
            self.queue.push(earliest, Next::Start(node));
            return Ok(());
        }
        let incarnation = match node {
            Node::Server if self.stage.server.core.is_none() => {
                self.stage.server.start(now);
                self.stage.server.process.starts
            }
            Node::Agent(agent) if self.stage.agents[agent].core.is_none() => {
                self.stage.agents[agent].start();
                self.stage.agents[agent].process.starts
            }
            _ => return Ok(()),
        };
        self.tell(&Seen::Started { node, incarnation })?;
        self.process(node).wake = NEVER;
        self.wake_by(node, now);
        Ok(())
    }
}
