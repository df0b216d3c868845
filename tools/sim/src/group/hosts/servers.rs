//! The servers of the group, as a host learns of them from the store and changes them.
//!
//! Decides how the list is written in the store; a server keeps its place, also over a removal. Leaves to others: from when on a list counts
//! (`cistern_group`).

use super::{GroupHost, server_address};
use crate::observe::True;
use crate::rng::SimRng;
use cistern_flease::MEMBERS_MAX;
use cistern_link::Instant;
use cistern_store_etcd::ServerList;

/// Begins the name of a server that was removed.
const REMOVED: char = '-';

/// The places of a list: which server is at each, if one is.
pub(super) fn places(list: &ServerList) -> Vec<Option<usize>> {
    let server = |name: &str| (0..usize::from(MEMBERS_MAX)).find(|server| server_address(*server).to_string() == name);
    list.servers.split(',').map(server).collect()
}

impl GroupHost {
    /// The store has this list of servers.
    pub(super) fn learn_servers(&mut self, reading: Instant, list: Option<ServerList>) {
        let Some(machine) = &mut self.machine else { return };
        let name = |name: &str| if name.starts_with(REMOVED) { Vec::new() } else { Vec::from(name) };
        let names: Option<Vec<_>> = list.as_ref().map(|list| list.servers.split(',').map(name).collect());
        if machine.learn_servers(reading, list.as_ref().map(|list| list.number).zip(names.as_deref())) {
            self.servers = list.unwrap_or_else(|| self.servers.clone());
            self.follow_servers();
        }
    }

    /// Servers are found, and sealed for, by their places in the list.
    pub(super) fn follow_servers(&mut self) {
        let (Some(machine), places) = (&mut self.machine, places(&self.servers)) else { return };
        for (place, server) in (0..).zip(&places) {
            if let Some(server) = server {
                machine.node_mut().set_address(place, server_address(*server));
            }
        }
        if let Some(sealing) = &self.sealing {
            sealing.change(machine, self.number, &places);
        }
    }

    /// Adds or removes a server, if this one may now: which one is drawn; false: it may not.
    pub(in crate::group) fn change_servers(&mut self, now: u64, hosts: usize, rng: &mut SimRng) -> bool {
        let reading = self.clock.at(True(now));
        let (Some(machine), Some(side)) = (&self.machine, &mut self.side) else { return false };
        let Some(newest) = side.writer.servers().filter(|list| machine.may_change_servers(reading, list.number)) else { return false };
        let places = places(newest);
        let present = places.iter().flatten().count();
        let server = rng.index(hosts);
        let name = server_address(server).to_string();
        let mut names: Vec<String> = newest.servers.split(',').map(ToOwned::to_owned).collect();
        let former = names.iter().position(|known| known.trim_start_matches(REMOVED) == name);
        match places.iter().position(|at| *at == Some(server)) {
            Some(_) if server == self.number || present == 1 => return false,
            Some(place) => names[place] = format!("{REMOVED}{name}"),
            None => match former.or_else(|| places.iter().position(Option::is_none)) {
                Some(place) => names[place] = name,
                None => names.push(name),
            },
        }
        let list = ServerList { number: newest.number + 1, servers: names.join(",") };
        side.writer.change_servers(list)
    }
}
