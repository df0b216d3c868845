//! One agent's core beside one server's core, joined by nothing but the order of calls.
//!
//! Decides that a datagram of one side is the other's in the same turn. Invariant: the clock moves only when a test says so.
//! Leaves to others: what the agent is asked to do (its users: this package's tests).

use crate::rig;
use cistern_agent::api::{Command, Event, OpError, Output, Submitted};
use cistern_agent::config::Config;
use cistern_agent::{Agent, Identity};
use cistern_link::{Instant, Machine, Path};
use cistern_server::{Config as ServerConfig, Server};
use cistern_store::MemoryStore;
use cistern_wire::AgentId;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Most turns until a command has ended.
const TURNS_MAX: usize = 1_000;

/// An agent and its server.
#[derive(Debug)]
pub struct Pair {
    /// The agent's core.
    pub agent: Agent,
    /// What the clocks of both read.
    pub now: Instant,
    /// Datagrams that the agent has sent.
    pub sent: usize,
    /// Datagrams that the server has sent.
    pub answered: usize,
    server: Server,
    store: MemoryStore,
    datagram: Vec<u8>,
}

impl Default for Pair {
    fn default() -> Self {
        Self::new()
    }
}

impl Pair {
    /// A new server, and an agent that has done nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let now = Instant::new(1_000_000_000, 1_000_000_000);
        let identity = Identity { agent: AgentId([0xA7; 16]), incarnation: 1, boot: [0; 16], label: b"counted".to_vec() };
        let mut config = ServerConfig::default();
        // So many local grants of a lock are counted that they must not end with its run of tokens.
        config.locks.run = 1 << 20;
        let agent = Agent::new(Config::default(), identity, [9; 32], vec![at(7_311)]).expect("the defaults are sound");
        Self { agent, now, sent: 0, answered: 0, server: rig::server_with(now, config), store: MemoryStore::new(), datagram: Vec::new() }
    }

    /// One turn of each, a microsecond later; if the agent had nothing to send, the clock moves to when it wants to be woken.
    pub fn turn(&mut self) {
        self.now = self.now.plus(Duration::from_micros(1));
        let sent = self.sent;
        self.exchange();
        if sent == self.sent {
            let sleep = self.agent.wake_after(self.now).unwrap_or_default();
            self.now = self.now.plus(sleep);
        }
    }

    /// One turn of each, in no time.
    pub fn exchange(&mut self) {
        // As a driver does it: timers before sending, so that nothing is left to send when the turn is over.
        self.agent.handle_drained(self.now);
        while self.agent.poll_transmit(self.now, &mut self.datagram).is_some() {
            self.sent += 1;
            self.server.handle_datagram(self.now, Path::to(at(4_000)), &self.datagram);
        }
        self.server.handle_drained(self.now);
        self.server.work(self.now);
        while let Some(work) = self.server.poll_effect() {
            for event in self.store.take(work) {
                self.server.store_event(self.now, event);
            }
        }
        while self.server.poll_transmit(self.now, &mut self.datagram).is_some() {
            self.answered += 1;
            self.agent.handle_datagram(self.now, Path::to(at(7_311)), &self.datagram);
        }
    }

    /// Carries a command out.
    ///
    /// # Errors
    /// What the agent said.
    ///
    /// # Panics
    /// If it does not end.
    pub fn run(&mut self, command: Command) -> Result<Output, OpError> {
        let op = match self.agent.submit(self.now, command) {
            Submitted::Now(result) => return result,
            Submitted::Later(op) => op,
        };
        for _ in 0..TURNS_MAX {
            self.turn();
            while let Some(event) = self.agent.poll_event() {
                if let Event::Done { op: ended, result } = event
                    && ended == op
                {
                    return result;
                }
            }
        }
        panic!("{op:?} has not ended after {TURNS_MAX} turns")
    }
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}
