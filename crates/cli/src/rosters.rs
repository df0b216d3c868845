//! The roster beside this host's key: which servers it gives an agent, and what becomes of a newer one.
//!
//! Decides: the servers that were named, each with its own key at its addresses, else the first; every key by which one may be addressed is known at once. A newer roster is used from now on, and
//! written where the older one was read, if that can be written: what comes from systemd or an image cannot, and is fetched again after the next start.
//! Leaves to others: what is believed (`cistern_trust::Pinned`), the asking (the agent).

use cistern_client::{KeyAt, RosterKeeper, Servers};
use cistern_credentials::Place;
use cistern_driver::{Address, DEFAULT_PORT};
use cistern_trust::{Offered, Pinned, ServerEntry};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The roster of this host's cluster, for one agent.
#[derive(Debug)]
pub(crate) struct ClusterRoster {
    place: Place,
    /// Addresses that a person named; empty: those of the roster are used.
    named: Vec<String>,
    pinned: Mutex<Pinned>,
}

/// One server, or those of a group, as an agent has to know them.
pub(crate) struct ServersToUse {
    /// Of each server that serves, then others at the same addresses.
    pub(crate) keys: Vec<KeyAt>,
    pub(crate) addresses: Vec<String>,
}

impl ClusterRoster {
    pub(crate) fn new(place: Place, named: Vec<String>, pinned: Pinned) -> Self {
        // As a roster writes them.
        let whole = |name: String| name.parse::<Address>().map_or(name, |address| address.with_port(DEFAULT_PORT).to_string());
        let named = named.into_iter().map(whole).collect();
        Self { place, named, pinned: Mutex::new(pinned) }
    }

    /// The servers that are named; of servers behind other names the first one.
    pub(crate) fn servers(&self) -> Option<ServersToUse> {
        self.servers_of(&self.pinned())
    }

    fn servers_of(&self, pinned: &Pinned) -> Option<ServersToUse> {
        let usable = || pinned.roster().usable();
        let is_named = |entry: &&ServerEntry| entry.addresses.iter().any(|address| self.named.iter().any(|name| name == address.as_str()));
        let mut chosen: Vec<&ServerEntry> = usable().filter(is_named).collect();
        if chosen.is_empty() {
            chosen.extend(usable().next());
        }
        let first = *chosen.first()?;
        let shares = |one: &ServerEntry, other: &ServerEntry| one.addresses.iter().any(|address| other.addresses.contains(address));
        let beside =
            |entry: &&ServerEntry| chosen.iter().all(|other| other.key != entry.key) && chosen.iter().any(|other| shares(other, entry));
        let beside: Vec<&ServerEntry> = usable().filter(beside).collect();
        let all = || chosen.iter().chain(&beside).copied();
        // One server may be behind names that the roster has not; of several each has its own key.
        let is_group = all().any(|entry| !shares(first, entry));
        let keys = all().map(|entry| (entry.key, if is_group { resolved(&entry.addresses) } else { Vec::new() })).collect();
        let mut addresses: Vec<String> = Vec::new();
        for address in chosen.iter().flat_map(|entry| &entry.addresses).map(ToString::to_string) {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Some(ServersToUse { keys, addresses })
    }

    fn pinned(&self) -> MutexGuard<'_, Pinned> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RosterKeeper for ClusterRoster {
    fn version(&self) -> u32 {
        self.pinned().roster().version
    }

    fn keys(&self) -> Vec<KeyAt> {
        self.servers().map(|servers| servers.keys).unwrap_or_default()
    }

    fn take(&self, signed: &[u8]) -> Option<Servers> {
        let mut pinned = self.pinned();
        match pinned.offer(signed) {
            Ok(Offered::Taken) => {}
            Ok(Offered::Known | Offered::Older) => return None,
            Err(error) => {
                log::warn!("the server's roster is not taken: {error}");
                return None;
            }
        }
        let version = pinned.roster().version;
        match self.place.trust(&pinned) {
            Ok(_) => log::info!("roster {version} of the cluster is used from now on"),
            Err(error) => log::debug!("roster {version} is used, and not written: {error}"),
        }
        let ServersToUse { keys, addresses } = self.servers_of(&pinned)?;
        let addresses = if self.named.is_empty() { resolved(&addresses) } else { Vec::new() };
        Some(Servers { version, keys, addresses })
    }
}

/// Where these are, as far as they are found.
fn resolved<T: ToString>(addresses: &[T]) -> Vec<SocketAddr> {
    let of = |address: &T| address.to_string().parse::<Address>().and_then(|address| address.resolve(Some(DEFAULT_PORT)));
    addresses.iter().filter_map(|address| of(address).ok()).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_client::PublicKey;
    use cistern_trust::{ClusterSecret, Roster, ServerState};

    fn signed(secret: &ClusterSecret, version: u32, servers: Vec<ServerEntry>) -> Pinned {
        let signed = Roster { version, servers }.sign(secret).unwrap();
        Pinned::new(secret.public(), signed.as_bytes()).unwrap()
    }

    fn entry(n: u8, state: ServerState, address: &str) -> ServerEntry {
        ServerEntry { key: PublicKey::from_bytes([n; 32]), state, addresses: vec![address.parse().unwrap()] }
    }

    #[test]
    fn a_newer_roster_is_used_and_written_and_an_unsigned_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let place = Place::Directory(dir.path().to_owned());
        let secret = ClusterSecret::from_seed([2; 32]);
        let at = "127.0.0.1:7311";
        let first = signed(&secret, 1, vec![entry(1, ServerState::Serving, at), entry(9, ServerState::Serving, "127.0.0.9:1")]);
        place.trust(&first).unwrap();
        let keeper = ClusterRoster::new(place.clone(), Vec::new(), first.clone());
        let key = |n| PublicKey::from_bytes([n; 32]);
        assert_eq!((keeper.version(), keeper.keys()), (1, vec![(key(1), Vec::new())]), "a server elsewhere is another");
        let rotating = vec![entry(1, ServerState::Serving, at), entry(2, ServerState::Next, at)];
        let forged = signed(&ClusterSecret::from_seed([3; 32]), 5, rotating.clone());
        assert_eq!(keeper.take(forged.signed().as_bytes()), None);
        let second = signed(&secret, 2, rotating);
        let everywhere = |n| (key(n), Vec::new());
        let servers = Servers { version: 2, keys: vec![everywhere(1), everywhere(2)], addresses: vec![at.parse().unwrap()] };
        assert_eq!(keeper.take(second.signed().as_bytes()), Some(servers));
        assert_eq!((keeper.take(second.signed().as_bytes()), keeper.take(first.signed().as_bytes())), (None, None));
        assert_eq!(place.cluster().unwrap(), Some(second));
        let retired = vec![ServerEntry { addresses: Vec::new(), ..entry(1, ServerState::Retired, at) }, entry(2, ServerState::Serving, at)];
        let third = signed(&secret, 3, retired);
        // A place that cannot be written keeps nobody from using it.
        let keeper = ClusterRoster::new(Place::Directory("/proc/none".into()), vec!["nat.example.net".to_owned()], first);
        let servers = Servers { version: 3, keys: vec![everywhere(2)], addresses: Vec::new() };
        assert_eq!(keeper.take(third.signed().as_bytes()), Some(servers), "where a person has said it is, it stays");
    }

    #[test]
    fn servers_of_a_group_each_have_their_key_at_their_address() {
        let secret = ClusterSecret::from_seed([2; 32]);
        let servers = (1..=3).map(|n| entry(n, ServerState::Serving, &format!("127.0.0.{n}:7311"))).collect();
        let pinned = signed(&secret, 1, servers);
        let keys = |named: &[&str]| {
            let named = named.iter().map(ToString::to_string).collect();
            ClusterRoster::new(Place::Directory("/proc/none".into()), named, pinned.clone()).keys()
        };
        let of = |n: u8| (PublicKey::from_bytes([n; 32]), vec![SocketAddr::from(([127, 0, 0, n], 7_311))]);
        assert_eq!(keys(&["127.0.0.3", "127.0.0.1:7311"]), [of(1), of(3)]);
        assert_eq!(keys(&["127.0.0.2"]), [(PublicKey::from_bytes([2; 32]), Vec::new())], "one, perhaps by a name that others do not know");
    }
}
