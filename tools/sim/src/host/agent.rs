//! An agent's machine: the real agent core, its process, its clock, its address, and the commands that run.
//!
//! Decides how an agent's core is made: identity, incarnation, seed. The incarnation is a counter that no crash loses (section 11.6).
//! Invariant: every command of a process that died is told as ended without a result.
//! Leaves to others: turns (`world::turns`), what users ask (`users`).

use crate::clock::NodeClock;
use crate::host::Process;
use crate::observe::UserOp;
use crate::rng::SimRng;
use crate::sealing::Sealing;
use cistern_agent::api::OpId;
use cistern_agent::config::Config;
use cistern_agent::{Agent, Identity};
use cistern_wire::{AgentId, Hello};
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
    sealing: Option<Sealing>,
    moves: u16,
}

impl AgentHost {
    /// A machine whose process was not started yet.
    #[must_use]
    pub fn new(
        number: usize,
        config: Config,
        clock: NodeClock,
        server: SocketAddr,
        inbox_max: usize,
        seeds: SimRng,
        sealing: Option<Sealing>,
    ) -> Self {
        let address = address(number, 0);
        let (process, ops) = (Process::new(inbox_max), BTreeMap::new());
        Self { number, core: None, clock, address, process, ops, config, server, seeds, sealing, moves: 0 }
    }

    /// Starts the process.
    ///
    /// # Panics
    /// If the plan's settings are refused, which tests of plans exclude.
    pub fn start(&mut self) {
        self.process.starts += 1;
        let number = u8::try_from(self.number + 1).unwrap_or(u8::MAX);
        let identity = Identity {
            agent: instance(self.number),
            incarnation: self.process.starts,
            boot: [number; 16],
            label: format!("agent{}", self.number).into_bytes(),
        };
        let core = Agent::new(self.config.clone(), identity, self.seeds.seed(), vec![self.server]);
        let mut core = core.expect("settings of plans are legal");
        if let Some(sealing) = &self.sealing {
            core = sealing.agent(
                core,
                self.number,
                &[],
                SimRng::new(self.process.starts).fork(&format!("ephemerals {:?}", self.seeds.seed())),
            );
        }
        self.core = Some(core);
    }

    /// The process dies; gives the commands that die with it.
    pub fn crash(&mut self, now: u64) -> Vec<UserOp> {
        self.core = None;
        self.process.died(now);
        std::mem::take(&mut self.ops).into_values().collect()
    }

    /// Who it is at the server.
    #[must_use]
    pub fn id(&self) -> AgentId {
        let instance = instance(self.number);
        self.sealing.as_ref().map_or(instance, |sealing| sealing.agent_id(self.number, instance))
    }

    /// What it says when it opens a session.
    #[must_use]
    pub fn hello(&self) -> Hello<'static> {
        Hello {
            incarnation: self.process.starts,
            lease_us: u64::try_from(self.config.lease.as_micros()).unwrap_or(u64::MAX),
            window: self.config.window,
            max_datagram: self.config.max_datagram,
            ..Hello::new(self.id(), 0)
        }
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

/// What it calls itself.
fn instance(number: usize) -> AgentId {
    AgentId([u8::try_from(number + 1).unwrap_or(u8::MAX); 16])
}

/// The address of an agent after so many moves: every second one changes the port alone, as a NAT does.
fn address(number: usize, moves: u16) -> SocketAddr {
    let host = u8::try_from(number + 10).unwrap_or(u8::MAX);
    let net = u8::try_from(moves / 2 % 200).unwrap_or(0);
    SocketAddr::from((Ipv4Addr::new(10, 0, net, host), PORT + moves))
}
