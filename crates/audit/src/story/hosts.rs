//! Who takes part: the columns of a story.
//!
//! Decides which addresses are one host: an agent is known by its identity and keeps its column when it moves; a server by its store.
//! Invariant: a host once made keeps its number.
//! Leaves to others: what they say to each other.

use crate::event::{Host, HostId, Role};
use cistern_wire::{AgentId, StoreId};
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Most hosts told apart; what comes after is put into the last column of its role.
const HOSTS_MAX: usize = 65_536;

/// Most servers among them: of each there are tables.
const SERVERS_MAX: usize = 256;

/// Most addresses remembered of one host.
const ADDRESSES_MAX: usize = 64;

/// Most addresses remembered in all.
const ALL_ADDRESSES_MAX: usize = 262_144;

/// All hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    all: Vec<Host>,
    by_address: BTreeMap<(bool, SocketAddr), HostId>,
    by_agent: BTreeMap<AgentId, HostId>,
    by_store: BTreeMap<StoreId, HostId>,
    /// The last host of each role, agents first, and how many servers there are.
    last: [Option<HostId>; 2],
    servers: usize,
    folded_servers: bool,
    /// Addresses and hosts that found no place.
    forgotten: u64,
}

impl Hosts {
    pub(crate) fn all(&self) -> &[Host] {
        &self.all
    }

    /// The host behind an address in a role.
    pub(crate) fn at(&mut self, role: Role, address: SocketAddr) -> HostId {
        let key = (role == Role::Server, address);
        if let Some(host) = self.by_address.get(&key) {
            return *host;
        }
        let is_server = role == Role::Server;
        let full = self.all.len() >= HOSTS_MAX || is_server && self.servers >= SERVERS_MAX;
        if let (true, Some(last)) = (full, self.last[usize::from(is_server)]) {
            self.folded_servers |= is_server;
            self.forgotten += 1;
            return last;
        }
        let host = self.make(Host { role, name: address.to_string(), agent: None, store: None, addresses: vec![] });
        self.moved(host, address);
        host
    }

    fn make(&mut self, host: Host) -> HostId {
        let (is_server, number) = (host.role == Role::Server, self.all.len());
        self.servers += usize::from(is_server);
        self.last[usize::from(is_server)] = Some(number);
        self.all.push(host);
        number
    }

    /// Whether servers were put together for want of room.
    pub(crate) const fn folded_servers(&self) -> bool {
        self.folded_servers
    }

    /// Addresses and hosts that found no place.
    pub(crate) const fn forgotten(&self) -> u64 {
        self.forgotten
    }

    /// Whether a server was seen at an address.
    pub(crate) fn is_server(&self, address: SocketAddr) -> bool {
        self.by_address.contains_key(&(true, address))
    }

    /// Whether an agent was seen at an address.
    pub(crate) fn is_agent(&self, address: SocketAddr) -> bool {
        self.by_address.contains_key(&(false, address))
    }

    /// An agent has said who it is.
    pub(crate) fn name_agent(&mut self, address: SocketAddr, agent: AgentId, label: &[u8]) -> HostId {
        let here = self.at(Role::Agent, address);
        let host = match self.by_agent.get(&agent) {
            Some(known) => *known,
            // Another agent may have been at that address before.
            None if self.all[here].agent.is_some() && self.all.len() < HOSTS_MAX => {
                self.make(Host { role: Role::Agent, name: String::new(), agent: None, store: None, addresses: vec![] })
            }
            None => here,
        };
        if self.by_agent.len() < HOSTS_MAX {
            self.by_agent.insert(agent, host);
        }
        self.all[host].agent = Some(agent);
        if !label.is_empty() {
            self.all[host].name = String::from_utf8_lossy(label).chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        } else if self.all[host].name.is_empty() {
            self.all[host].name = address.to_string();
        }
        self.moved(host, address);
        host
    }

    /// A host is at this address, too.
    pub(crate) fn moved(&mut self, host: HostId, address: SocketAddr) {
        let key = (self.all[host].role == Role::Server, address);
        if self.by_address.get(&key) == Some(&host) {
            return;
        }
        let full = self.by_address.len() >= ALL_ADDRESSES_MAX && !self.by_address.contains_key(&key);
        let addresses = &mut self.all[host].addresses;
        if full || addresses.len() >= ADDRESSES_MAX {
            self.forgotten += 1;
        }
        if addresses.len() < ADDRESSES_MAX && !addresses.contains(&address) {
            addresses.push(address);
        }
        if !full {
            self.by_address.insert(key, host);
        }
    }

    /// A server has named its store.
    pub(crate) fn name_server(&mut self, address: SocketAddr, store: StoreId) -> HostId {
        let here = self.at(Role::Server, address);
        let full = self.by_store.len() >= HOSTS_MAX;
        let host = self.by_store.get(&store).copied().unwrap_or(here);
        if !full {
            self.by_store.insert(store, host);
        }
        self.all[host].store = Some(store);
        self.moved(host, address);
        host
    }
}
