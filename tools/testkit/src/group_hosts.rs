//! Three hosts, on each a server of a group and a member of the etcd that has their store, and a fourth host for agents.

use crate::network::{Network, PORT};
use crate::{Etcds, Place, ServerGroup};
use serde_json::json;
use std::net::IpAddr;
use std::path::Path;

/// The hosts, and what runs on them, in the order in which it ends.
pub struct GroupHosts {
    /// The servers.
    pub group: ServerGroup,
    /// The members of etcd; each has the number of its host.
    pub etcds: Etcds,
    /// The wires between.
    pub network: Network,
}

impl GroupHosts {
    /// What the hosts of servers are called.
    pub const NAMES: [&str; 3] = ["a", "b", "c"];
    /// What the host of agents is called.
    pub const OUTSIDE: &str = "agents";

    /// Starts all of it, with etcd's data below a directory, and options of the servers; `None`, with the reason told, where that cannot be.
    pub fn start(dir: &Path, args: &[&str]) -> Option<Self> {
        let [a, b, c] = Self::NAMES;
        let network = Network::of(&[a, b, c, Self::OUTSIDE])?;
        let hosts = Self::NAMES.map(|name| (network.host(name).place(), IpAddr::from(network.host(name).v4)));
        let etcds = Etcds::at(dir, &hosts, &[])?;
        let names = hosts.iter().map(|(_, ip)| format!("{ip}:{PORT}")).collect();
        let places = hosts.into_iter().map(|(place, _)| place).collect();
        let group = ServerGroup::at(&etcds, places, names, network.host(Self::OUTSIDE).place(), args);
        group.serving(&[]);
        Some(Self { group, etcds, network })
    }

    /// Where agents are.
    pub fn outside(&self) -> Place {
        self.network.host(Self::OUTSIDE).place()
    }

    /// Who says that it serves, and how often the store has been taken; all servers run.
    pub fn serving(&self) -> Option<(usize, u64)> {
        (0..Self::NAMES.len()).find_map(|server| {
            let status = self.group.ask(server, &json!({ "op": "status" })).ok()?;
            (status["serving"] == true).then(|| Some((server, status["incarnation"].as_u64()?)))?
        })
    }

    /// Loses a host: kills what runs on it.
    pub fn lose(&mut self, host: usize) {
        self.group.kill(host);
        self.etcds.kill(host);
    }

    /// The host is back.
    pub fn start_again(&mut self, host: usize) {
        self.etcds.run(host);
        self.group.start_server(host);
    }
}
