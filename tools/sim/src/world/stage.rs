//! The machines of a run, and the sight of them that judges get.
//!
//! Decides nothing. Invariant: a sight shows everything as it is at the instant of the happening that it comes with.
//! Leaves to others: what happens on the stage (`world`).

use crate::host::{ADDRESS, AgentHost, ServerHost};
use crate::observe::{AgentSight, Node, Sight, True, Violation};
use crate::sealing::Sealing;
use cistern_link::{Instant, Machine as _, Path};
use std::net::SocketAddr;

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
    /// A machine's core is given a datagram, at a reading of its clock; whether it has counted a drop.
    pub(crate) fn receives(&mut self, node: Node, reading: Instant, from: SocketAddr, bytes: &[u8]) -> bool {
        match node {
            Node::Server => self.server.core.as_mut().is_some_and(|core| {
                let before = core.stats().drops_total();
                core.handle_datagram(reading, Path { remote: from, local: Some(ADDRESS.ip()) }, bytes);
                core.stats().drops_total() > before
            }),
            Node::Agent(agent) => self.agents[agent].core.as_mut().is_some_and(|core| {
                let before = core.drops().total();
                core.handle_datagram(reading, Path::to(from), bytes);
                core.drops().total() > before
            }),
        }
    }

    /// A core has made this datagram.
    pub(crate) fn made(&self, by: Node, bytes: &[u8]) {
        if let Some(sealing) = &self.sealing {
            sealing.made(by, |agent| self.agents[agent].hello(), bytes);
        }
    }

    /// Judges that a core acts on nothing but what is authentic.
    pub(crate) fn is_authentic(&self, node: Node, bytes: &[u8], counted: bool) -> Result<(), Violation> {
        self.sealing.as_ref().map_or(Ok(()), |sealing| sealing.judge(node, bytes, counted))
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
