//! Who takes part: the columns of a story.
//!
//! Decides which addresses are one host: an agent is known by its identity and keeps its column when it moves; a server by its store.
//! Invariant: a host once made keeps its number; an address that is only written to takes no place away from servers.
//! Leaves to others: what they say to each other.

use crate::event::{Host, HostId, Role};
use cistern_wire::{AgentId, Escaped, StoreId};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

/// Most hosts told apart; what comes after is put into the last column of its role.
const HOSTS_MAX: usize = 65_536;

/// Most servers among them that have said something: of each there are tables.
const SERVERS_MAX: usize = 256;

/// Most addresses among them that were only written to as servers; what comes after is put into one column for them all.
const SILENT_MAX: usize = 256;

/// Most agents among them: servers always find a place.
const AGENTS_MAX: usize = HOSTS_MAX - SERVERS_MAX - SILENT_MAX - 1;

/// The column of servers that have said nothing and found no place.
const SILENT: &str = "(no answer)";

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
    /// The agent and the server that came last, and how many agents there are.
    last_agent: Option<HostId>,
    agents: usize,
    last_server: Option<HostId>,
    /// How many servers have said something, those that have not, and the column of those that found no place.
    servers: usize,
    unheard: BTreeSet<HostId>,
    silent: Option<HostId>,
    folded_servers: bool,
    /// Addresses and hosts that found no place.
    forgotten: u64,
}

impl Hosts {
    pub(crate) fn all(&self) -> &[Host] {
        &self.all
    }

    /// The host behind an address in a role. A server is not known to be one by that: it may never have said anything.
    pub(crate) fn at(&mut self, role: Role, address: SocketAddr) -> HostId {
        if let Some(host) = self.by_address.get(&(role == Role::Server, address)) {
            return *host;
        }
        if role == Role::Server {
            if self.unheard.len() < SILENT_MAX {
                let host = self.make(role, address);
                self.unheard.insert(host);
                return host;
            }
            self.forgotten += 1;
            return self.silent();
        }
        match self.last_agent.filter(|_| self.agents >= AGENTS_MAX) {
            Some(last) => {
                self.forgotten += 1;
                last
            }
            None => self.make(role, address),
        }
    }

    /// The server behind an address from which something readable has come.
    pub(crate) fn heard(&mut self, address: SocketAddr) -> HostId {
        let known = self.by_address.get(&(true, address)).copied();
        let host = match known {
            Some(host) if !self.unheard.contains(&host) => return host,
            _ if self.servers >= SERVERS_MAX => {
                self.folded_servers = true;
                self.forgotten += 1;
                return known.or(self.last_server).unwrap_or_else(|| self.make(Role::Server, address));
            }
            Some(host) => host,
            None => self.make(Role::Server, address),
        };
        self.unheard.remove(&host);
        self.servers += 1;
        self.last_server = Some(host);
        host
    }

    /// The column of servers that have said nothing and found no place, if there are any.
    pub(crate) const fn unplaced(&self) -> Option<HostId> {
        self.silent
    }

    /// The part of what all servers may have that is one server's: those that have said nothing have one part together.
    pub(crate) fn share(&self, host: HostId, of: usize) -> usize {
        let part = of / (self.servers + 1);
        if self.unheard.contains(&host) || self.silent == Some(host) { part / (SILENT_MAX + 1) } else { part }
    }

    fn silent(&mut self) -> HostId {
        *self.silent.get_or_insert_with(|| {
            self.all.push(Host { role: Role::Server, name: SILENT.to_owned(), agent: None, store: None, addresses: vec![] });
            self.all.len() - 1
        })
    }

    fn make(&mut self, role: Role, address: SocketAddr) -> HostId {
        let host = self.all.len();
        if role == Role::Agent {
            self.agents += 1;
            self.last_agent = Some(host);
        }
        self.all.push(Host { role, name: address.to_string(), agent: None, store: None, addresses: vec![] });
        self.moved(host, address);
        host
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
            None if self.all[here].agent.is_some() && self.agents < AGENTS_MAX => self.make(Role::Agent, address),
            None => here,
        };
        if self.by_agent.len() < HOSTS_MAX {
            self.by_agent.insert(agent, host);
        }
        self.all[host].agent = Some(agent);
        if !label.is_empty() {
            self.all[host].name = Escaped(label).to_string();
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
        let here = self.heard(address);
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
