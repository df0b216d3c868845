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

/// All hosts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts {
    all: Vec<Host>,
    by_address: BTreeMap<(bool, SocketAddr), HostId>,
    by_agent: BTreeMap<AgentId, HostId>,
    by_store: BTreeMap<StoreId, HostId>,
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
        if self.all.len() >= HOSTS_MAX {
            return self.all.iter().rposition(|host| host.role == role).unwrap_or(0);
        }
        self.all.push(Host { role, name: address.to_string(), agent: None, store: None, addresses: vec![address] });
        self.by_address.insert(key, self.all.len() - 1);
        self.all.len() - 1
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
            None if self.all[here].agent.is_some() => {
                self.all.push(Host { role: Role::Agent, name: String::new(), agent: None, store: None, addresses: vec![] });
                self.all.len() - 1
            }
            None => here,
        };
        self.by_agent.insert(agent, host);
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
        self.by_address.insert((self.all[host].role == Role::Server, address), host);
        if !self.all[host].addresses.contains(&address) {
            self.all[host].addresses.push(address);
        }
    }

    /// A server has named its store.
    pub(crate) fn name_server(&mut self, address: SocketAddr, store: StoreId) -> HostId {
        let here = self.at(Role::Server, address);
        let host = *self.by_store.entry(store).or_insert(here);
        self.all[host].store = Some(store);
        self.moved(host, address);
        host
    }
}
