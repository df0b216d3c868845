//! The machines of a run, and the sight of them that judges get.
//!
//! Decides nothing. Invariant: a sight shows everything as it is at the instant of the happening that it comes with.
//! Leaves to others: what happens on the stage (`world`).

use crate::host::{ADDRESS, AgentHost, ServerHost};
use crate::observe::{AgentSight, Node, Sight, True, Violation};
use crate::sealing::Sealing;
use cistern_agent::api::LeaseView;
use cistern_link::{Instant, Machine as _, Path};
use cistern_wire::SessionId;
use std::net::SocketAddr;

/// What a core did with a datagram, as its counters show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reception {
    /// No drop was counted.
    Taken,
    /// It was not authentic.
    Unopened,
    /// Its number had come before.
    Copy,
    /// It was dropped for another reason, or something of it was.
    Dropped,
}

impl Reception {
    /// Whether a drop was counted.
    pub(crate) const fn is_counted(self) -> bool {
        !matches!(self, Self::Taken)
    }
}

/// Drops of a machine so far.
#[derive(Clone, Copy, Debug, Default)]
struct DropCounts {
    all: u64,
    unopened: u64,
    copies: u64,
}

impl DropCounts {
    fn add(&mut self, (reason, count): (&str, u64)) {
        self.all += count;
        match reason {
            "not_authentic" => self.unopened += count,
            "duplicate_packet" => self.copies += count,
            _ => {}
        }
    }
}

/// What an agent believes.
#[derive(Debug, PartialEq, Eq)]
struct Belief {
    session: Option<SessionId>,
    reclaiming: Option<SessionId>,
    valid_until: Option<Instant>,
    renewals: u64,
    nacks: u64,
    held: u64,
    cached: u64,
}

/// The machines.
#[derive(Debug)]
pub struct Stage {
    /// True time now.
    pub now: u64,
    /// The agents' machines.
    pub agents: Vec<AgentHost>,
    /// The server's machine.
    pub server: ServerHost,
    /// Since when all faults are over.
    pub healed_at: Option<True>,
    /// Whether the run breaks an assumption of the lease.
    pub fence_only: bool,
    /// What is known of sealed datagrams, if they are.
    pub sealing: Option<Sealing>,
}

impl Stage {
    /// A machine's core is given a datagram, at a reading of its clock.
    ///
    /// # Errors
    /// In the sealed mode: it acts on what is not authentic, or not on what is, or believes what anybody can say.
    pub(crate) fn receives(&mut self, node: Node, reading: Instant, from: SocketAddr, bytes: &[u8]) -> Result<Reception, Violation> {
        let (before, believed) = (self.drops(node), self.belief(node, reading, bytes));
        match node {
            Node::Server => {
                if let Some(core) = &mut self.server.core {
                    core.handle_datagram(reading, Path { remote: from, local: Some(ADDRESS.ip()) }, bytes);
                }
            }
            Node::Agent(agent) => {
                if let Some(core) = &mut self.agents[agent].core {
                    core.handle_datagram(reading, Path::to(from), bytes);
                }
            }
        }
        let after = self.drops(node);
        let reception = if after.unopened > before.unopened {
            Reception::Unopened
        } else if after.copies > before.copies {
            Reception::Copy
        } else if after.all > before.all {
            Reception::Dropped
        } else {
            Reception::Taken
        };
        self.is_authentic(node, from, bytes, reception)?;
        match (believed, self.belief(node, reading, bytes)) {
            (Some(before), Some(now)) if before != now => {
                let what = format!("what anybody can say has made {node} from {before:?} to {now:?}");
                Err(Violation { invariant: "I22", check: "believed", what })
            }
            _ => Ok(reception),
        }
    }

    /// What an agent believes that is told what it must not believe.
    fn belief(&self, node: Node, reading: Instant, bytes: &[u8]) -> Option<Belief> {
        let (Node::Agent(agent), Some(sealing)) = (node, &self.sealing) else { return None };
        let core = self.agents[agent].core.as_ref().filter(|_| !sealing.informs(node, bytes))?;
        let view = core.view(reading);
        let renewals = view.renewals_opportunistic + view.renewals_explicit;
        let LeaseView { session, reclaiming, valid_until, nacks, advisory_locks: held, cache_locks: cached, .. } = view;
        Some(Belief { session, reclaiming, valid_until, renewals, nacks, held, cached })
    }

    fn drops(&self, node: Node) -> DropCounts {
        let mut counts = DropCounts::default();
        match node {
            Node::Server => self.server.core.iter().for_each(|core| core.stats().drops().for_each(|counted| counts.add(counted))),
            Node::Agent(agent) => {
                self.agents[agent].core.iter().for_each(|core| core.drops().iter().for_each(|counted| counts.add(counted)));
            }
        }
        counts
    }

    /// A core has made this datagram.
    ///
    /// # Errors
    /// It makes known what the sealed mode keeps secret, or goes to who has not asked.
    pub(crate) fn made(&self, by: Node, to: SocketAddr, bytes: &[u8]) -> Result<(), Violation> {
        self.sealing.as_ref().map_or(Ok(()), |sealing| sealing.made(True(self.now), by, to, |agent| self.agents[agent].hello(), bytes))
    }

    /// Judges that a core acts on nothing but what is authentic, and on that.
    fn is_authentic(&self, node: Node, from: SocketAddr, bytes: &[u8], reception: Reception) -> Result<(), Violation> {
        let Some(sealing) = &self.sealing else { return Ok(()) };
        let is_open = |session: SessionId| {
            let reading = self.server.clock.at(True(self.now));
            let core = self.server.core.as_ref();
            core.is_some_and(|core| core.sessions(reading).iter().any(|row| row.session == session && row.standing == "good"))
        };
        sealing.judge(True(self.now), node, from, bytes, reception, is_open)
    }

    /// What judges see now.
    #[must_use]
    pub fn sight(&self) -> Sight<'_> {
        Sight {
            now: True(self.now),
            agents: self.agents.iter().map(agent).collect(),
            server: self.server.core.as_ref(),
            server_clock: &self.server.clock,
            server_address: ADDRESS,
            server_paused: self.server.process.stands(),
            disk: &self.server.disk,
            server_config: self.server.config(),
            healed_at: self.healed_at,
            fence_only: self.fence_only,
        }
    }
}

fn agent(host: &AgentHost) -> AgentSight<'_> {
    AgentSight { core: host.core.as_ref(), clock: &host.clock, address: host.address, paused: host.process.stands() }
}
