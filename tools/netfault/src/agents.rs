//! The agents that were seen: each with a socket of its own towards the server, so that the server sees as many addresses as there are.
//!
//! Decides who is an agent (an address that has sent something), its number, and when it is forgotten. Invariants: at most so many at a
//! time; a number is never used again; what was counted of one that has gone stays in the total.
//! Leaves to others: what becomes of datagrams (`network`), when sockets are read (`proxy`).

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use cistern_wire::{Datagram, Message};
use mio::net::UdpSocket;
use mio::{Interest, Registry, Token};

use crate::stats::{AgentStats, Both};

/// An agent.
#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) number: u32,
    pub(crate) address: SocketAddr,
    pub(crate) label: String,
    /// Towards the server.
    pub(crate) socket: UdpSocket,
    /// That socket's own address.
    pub(crate) local: SocketAddr,
    /// Datagrams seen, from the server and to it.
    pub(crate) seen: [u64; 2],
    pub(crate) counts: Both,
    /// Datagrams of it that are held.
    pub(crate) held: u64,
    last_heard: u64,
}

/// All agents.
#[derive(Debug)]
pub(crate) struct Agents {
    server: SocketAddr,
    most: usize,
    first_token: usize,
    last: u32,
    by_number: BTreeMap<u32, Agent>,
    by_address: BTreeMap<SocketAddr, u32>,
    /// Counts of those that have gone, and of datagrams of nobody.
    pub(crate) gone: Both,
}

impl Agents {
    pub(crate) fn new(server: SocketAddr, most: usize, first_token: usize) -> Self {
        Self { server, most, first_token, last: 0, by_number: BTreeMap::new(), by_address: BTreeMap::new(), gone: Both::default() }
    }

    /// The agent at this address, a new one if it is unknown; `None` if there are too many.
    pub(crate) fn at(&mut self, address: SocketAddr, now: u64, registry: &Registry) -> io::Result<Option<&mut Agent>> {
        let number = match self.by_address.get(&address) {
            Some(number) => *number,
            None if self.by_number.len() >= self.most => return Ok(None),
            None => self.open(address, registry)?,
        };
        self.heard(number, now);
        Ok(self.by_number.get_mut(&number))
    }

    fn open(&mut self, address: SocketAddr, registry: &Registry) -> io::Result<u32> {
        let any: IpAddr = if self.server.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
        let mut socket = UdpSocket::bind((any, 0).into())?;
        socket.connect(self.server)?;
        let number = self.last + 1;
        registry.register(&mut socket, self.token(number), Interest::READABLE)?;
        let local = socket.local_addr()?;
        self.last = number;
        log::info!("netfault: agent #{number} is {address}; the server sees it as {local}");
        let (label, counts) = (String::new(), Both::default());
        let agent = Agent { number, address, label, socket, local, seen: [0; 2], counts, held: 0, last_heard: 0 };
        self.by_address.insert(address, number);
        self.by_number.insert(number, agent);
        Ok(number)
    }

    fn token(&self, number: u32) -> Token {
        Token(self.first_token + usize::try_from(number).unwrap_or(0))
    }

    /// Whose socket this token is.
    pub(crate) fn of(&self, token: Token) -> Option<u32> {
        token.0.checked_sub(self.first_token).and_then(|number| u32::try_from(number).ok())
    }

    pub(crate) fn get(&mut self, number: u32) -> Option<&mut Agent> {
        self.by_number.get_mut(&number)
    }

    /// One has sent something, or was answered.
    pub(crate) fn heard(&mut self, number: u32, now: u64) {
        if let Some(agent) = self.by_number.get_mut(&number) {
            agent.last_heard = now;
        }
    }

    /// Forgets those that were silent for `idle`.
    pub(crate) fn forget(&mut self, now: u64, idle: u64) {
        let gone = &mut self.gone;
        let by_address = &mut self.by_address;
        self.by_number.retain(|number, agent| {
            let stays = agent.held > 0 || now.saturating_sub(agent.last_heard) < idle;
            if !stays {
                log::info!("netfault: agent #{number} {} was silent and is forgotten", agent.address);
                by_address.remove(&agent.address);
                gone.add(&agent.counts);
            }
            stays
        });
    }

    /// All agents together, those that have gone included.
    pub(crate) fn total(&self) -> Both {
        let mut total = self.gone.clone();
        self.by_number.values().for_each(|agent| total.add(&agent.counts));
        total
    }

    pub(crate) fn stats(&self) -> Vec<AgentStats> {
        let of = |agent: &Agent| AgentStats {
            number: agent.number,
            address: agent.address,
            label: agent.label.clone(),
            counts: agent.counts.clone(),
        };
        self.by_number.values().map(of).collect()
    }
}

impl Agent {
    /// Learns what the agent calls itself, if this is its HELLO.
    pub(crate) fn learn(&mut self, datagram: &[u8]) {
        // Only until it is known: every datagram would be decoded otherwise.
        if !self.label.is_empty() {
            return;
        }
        let Ok(datagram) = Datagram::seen(datagram) else { return };
        for message in datagram.messages() {
            if let Message::Hello(hello) = message {
                self.label = String::from_utf8_lossy(hello.label.0).into_owned();
            }
        }
    }
}
