//! An agent's machine: the real agent core, its process, its clock, its address, and the commands that run.
//!
//! Decides how an agent's core is made: identity, incarnation, seed. The incarnation is a counter that no crash loses (section 11.6).
//! Invariant: every command of a process that died is told as ended without a result.
//! Leaves to others: turns (`world::turns`), what users ask (`users`).

use crate::clock::NodeClock;
use crate::host::Process;
use crate::observe::UserOp;
use crate::rng::SimRng;
use cistern_agent::api::OpId;
use cistern_agent::config::Config;
use cistern_agent::{Agent, Identity};
use cistern_wire::AgentId;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};

/// Port of an agent that never moved.
const PORT: u16 = 40_000;

/// An agent's machine.
#[derive(Debug)]
pub struct AgentHost {
    /// Its number.
    pub number: usize,
    /// Its core, while its process runs.
    pub core: Option<Agent>,
    /// Its clocks.
    pub clock: NodeClock,
    /// Its address now.
    pub address: SocketAddr,
    /// Its process.
    pub process: Process,
    /// Commands that run, and who asked.
    pub ops: BTreeMap<OpId, UserOp>,
    config: Config,
    server: SocketAddr,
    seeds: SimRng,
    moves: u16,
}

impl AgentHost {
    /// A machine whose process was not started yet.
    #[must_use]
    pub fn new(number: usize, config: Config, clock: NodeClock, server: SocketAddr, inbox_max: usize, seeds: SimRng) -> Self {
        let address = address(number, 0);
        let (process, ops) = (Process::new(inbox_max), BTreeMap::new());
        Self { number, core: None, clock, address, process, ops, config, server, seeds, moves: 0 }
    }

    /// Starts the process.
    ///
    /// # Panics
    /// If the plan's settings are refused, which tests of plans exclude.
    pub fn start(&mut self) {
        self.process.starts += 1;
        let number = u8::try_from(self.number + 1).unwrap_or(u8::MAX);
        let identity = Identity {
            agent: AgentId([number; 16]),
            incarnation: self.process.starts,
            boot: [number; 16],
            label: format!("agent{}", self.number).into_bytes(),
        };
        let core = Agent::new(self.config.clone(), identity, self.seeds.seed(), vec![self.server]);
        self.core = Some(core.expect("settings of plans are legal"));
    }

    /// The process dies; gives the commands that die with it.
    pub fn crash(&mut self, now: u64) -> Vec<UserOp> {
        self.core = None;
        self.process.died(now);
        std::mem::take(&mut self.ops).into_values().collect()
    }

    /// It gets another address.
    pub fn go(&mut self) {
        self.moves += 1;
        self.address = address(self.number, self.moves);
    }

    /// The bounds of its core.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }
}

/// The address of an agent after so many moves: every second one changes the port alone, as a NAT does.
fn address(number: usize, moves: u16) -> SocketAddr {
    let host = u8::try_from(number + 10).unwrap_or(u8::MAX);
    let net = u8::try_from(moves / 2 % 200).unwrap_or(0);
    SocketAddr::from((Ipv4Addr::new(10, 0, net, host), PORT + moves))
}
