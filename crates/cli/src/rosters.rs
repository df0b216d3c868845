//! The roster beside this host's key: which servers it gives an agent, and what becomes of a newer one.
//!
//! Decides: the server that was named, else the first; every key by which that may be addressed is known at once. A newer roster is used from now on, and
//! written where the older one was read, if that can be written: what comes from systemd or an image cannot, and is fetched again after the next start.
//! Leaves to others: what is believed (`cistern_trust::Pinned`), the asking (the agent).

use cistern_client::{PublicKey, RosterKeeper, Servers};
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

/// One server, as an agent has to know it.
pub(crate) struct ServerToUse {
    /// Its keys: the one that serves, then others at the same addresses.
    pub(crate) keys: Vec<PublicKey>,
    pub(crate) addresses: Vec<String>,
}

impl ClusterRoster {
    pub(crate) fn new(place: Place, named: Vec<String>, pinned: Pinned) -> Self {
        Self { place, named, pinned: Mutex::new(pinned) }
    }

    /// The server that is named; of servers behind other names the first one.
    pub(crate) fn server(&self) -> Option<ServerToUse> {
        self.server_of(&self.pinned())
    }

    fn server_of(&self, pinned: &Pinned) -> Option<ServerToUse> {
        let usable = || pinned.roster().usable();
        let named = |entry: &&ServerEntry| entry.addresses.iter().any(|address| self.named.iter().any(|name| name == address.as_str()));
        let chosen = usable().find(named).or_else(|| usable().next())?;
        let beside =
            |entry: &&ServerEntry| entry.key != chosen.key && entry.addresses.iter().any(|address| chosen.addresses.contains(address));
        let keys = [chosen].into_iter().chain(usable().filter(beside)).map(|entry| entry.key).collect();
        Some(ServerToUse { keys, addresses: chosen.addresses.iter().map(ToString::to_string).collect() })
    }

    fn pinned(&self) -> MutexGuard<'_, Pinned> {
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RosterKeeper for ClusterRoster {
    fn version(&self) -> u32 {
        self.pinned().roster().version
    }

    fn other_keys(&self) -> Vec<PublicKey> {
        self.server().map(|server| server.keys).unwrap_or_default().split_off(1)
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
        let ServerToUse { keys, addresses } = self.server_of(&pinned)?;
        let resolved = |address: &String| address.parse::<Address>().and_then(|address| address.resolve(Some(DEFAULT_PORT)));
        let addresses: Vec<SocketAddr> = match self.named.is_empty() {
            true => addresses.iter().filter_map(|address| resolved(address).ok()).flatten().collect(),
            false => Vec::new(),
        };
        Some(Servers { version, keys, addresses })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
        assert_eq!((keeper.version(), keeper.other_keys()), (1, Vec::new()), "a server elsewhere is another");
        let rotating = vec![entry(1, ServerState::Serving, at), entry(2, ServerState::Next, at)];
        let forged = signed(&ClusterSecret::from_seed([3; 32]), 5, rotating.clone());
        assert_eq!(keeper.take(forged.signed().as_bytes()), None);
        let second = signed(&secret, 2, rotating);
        let key = |n| PublicKey::from_bytes([n; 32]);
        let servers = Servers { version: 2, keys: vec![key(1), key(2)], addresses: vec![at.parse().unwrap()] };
        assert_eq!(keeper.take(second.signed().as_bytes()), Some(servers));
        assert_eq!((keeper.take(second.signed().as_bytes()), keeper.take(first.signed().as_bytes())), (None, None));
        assert_eq!(place.cluster().unwrap(), Some(second));
        let retired = vec![ServerEntry { addresses: Vec::new(), ..entry(1, ServerState::Retired, at) }, entry(2, ServerState::Serving, at)];
        let third = signed(&secret, 3, retired);
        // A place that cannot be written keeps nobody from using it.
        let keeper = ClusterRoster::new(Place::Directory("/proc/none".into()), vec!["nat.example.net".to_owned()], first);
        let servers = Servers { version: 3, keys: vec![key(2)], addresses: Vec::new() };
        assert_eq!(keeper.take(third.signed().as_bytes()), Some(servers), "where a person has said it is, it stays");
    }
}
