//! The machines of a run, and the sight of them that judges get.
//!
//! Decides nothing. Invariant: a sight shows everything as it is at the instant of the happening that it comes with.
//! Leaves to others: what happens on the stage (`world`).

use crate::host::{ADDRESS, AgentHost, ServerHost};
use crate::observe::{AgentSight, Sight, True};

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
}

impl Stage {
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
