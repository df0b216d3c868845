//! A server's keys and its cluster, in its state directory; how a key is followed by another one while agents go on.
//!
//! Decides: a server is addressed by every key of its that the roster does not call retired. Two steps lead from one key to the next: *rotate*
//! makes `server.next.key` and signs a roster that names it, which agents learn as they talk; *retire* signs one without the old key, and gives
//! the new one its place. Each step is done again if it was killed, and goes on from what is there.
//! Order: a roster that retires a key is there before the key goes; a key is there before a roster that names it.

use crate::cluster_file::{read_cluster, replace_cluster};
use crate::error::{CredentialError, Problem};
use crate::initial::if_there;
use crate::key_file::{make_key, read_cluster_key, read_key, read_public};
use crate::{CLUSTER_FILE, NEXT_KEY, OPERATOR_FILE, SERVER_KEY};
use cistern_capture::private::{self, Others};
use cistern_seal::key::Role;
use cistern_seal::{PublicKey, SecretKey};
use cistern_trust::{Pinned, Roster, ServerEntry, ServerState};
use std::fs;
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// What a server proves itself by.
#[derive(Debug)]
pub struct ServerKeys {
    /// Keys by which it may be addressed, at least one; that of `server.key` first.
    pub keys: Vec<SecretKey>,
    /// Its cluster.
    pub pinned: Pinned,
    /// Who may do everything from the first day on.
    pub operator: Option<PublicKey>,
}

impl ServerKeys {
    /// Reads what is in a state directory; `None`: there is no key, and no cluster.
    ///
    /// # Errors
    /// One of the two is missing, a file cannot be used, or the roster names none of the keys, or only as retired.
    pub fn read(dir: &Path) -> Result<Option<Self>, CredentialError> {
        let (path, cluster_path) = (dir.join(SERVER_KEY), dir.join(CLUSTER_FILE));
        let key = |path: &Path| if_there(read_key(path, Role::Server, Others::Nothing));
        let (own, next, pinned) = (key(&path)?, key(&dir.join(NEXT_KEY))?, if_there(read_cluster(&cluster_path))?);
        let missing = |path: &Path| CredentialError::new(path, Problem::Other("it is missing; `cisternd init` makes it".to_owned()));
        let pinned = match (own.is_some() || next.is_some(), pinned) {
            (false, None) => return Ok(None),
            (false, Some(_)) => return Err(missing(&path)),
            (true, None) => return Err(missing(&cluster_path)),
            (true, Some(pinned)) => pinned,
        };
        let good = |key: &SecretKey| pinned.roster().server(&key.public()).is_some_and(|entry| entry.state != ServerState::Retired);
        let keys: Vec<_> = own.into_iter().chain(next).filter(good).collect();
        if keys.is_empty() {
            let what =
                "the cluster's roster does not name it, or as retired: agents would not believe this server; `cisternd init` adds it";
            return Err(CredentialError::new(&path, Problem::Other(what.to_owned())));
        }
        Ok(Some(Self { keys, pinned, operator: if_there(read_public(&dir.join(OPERATOR_FILE)))? }))
    }
}

/// Where the files of a rotation are.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The server's state directory.
    pub server: PathBuf,
    /// The operator's directory, whose `cluster.toml` learns the roster at once.
    pub own: PathBuf,
    /// The cluster's secret key.
    pub cluster_key: PathBuf,
}

impl Rotation {
    /// Makes the key that follows, and a roster that names it. `random` is 32 bytes of the system's random source. Gives the cluster, and the key.
    ///
    /// # Errors
    /// A file cannot be used or written.
    pub fn rotate(&self, random: Zeroizing<[u8; 32]>) -> Result<(Pinned, PublicKey), CredentialError> {
        let (server, pinned) = self.server()?;
        let path = self.server.join(NEXT_KEY);
        let next = match if_there(read_key(&path, Role::Server, Others::Nothing))? {
            Some(begun) => begun,
            None => make_key(&path, Role::Server, random)?,
        };
        let next = next.public();
        match pinned.roster().server(&next) {
            // It was killed behind this, or is called twice.
            Some(entry) if entry.state == ServerState::Next => Ok((self.publish(pinned)?, next)),
            Some(_) => Err(self.failed("the change to it has begun already: `--retire` ends it")),
            None => {
                let mut servers = pinned.roster().servers.clone();
                servers.push(ServerEntry { key: next, state: ServerState::Next, addresses: addresses_of(pinned.roster(), &server) });
                Ok((self.sign(pinned, servers)?, next))
            }
        }
    }

    /// Retires the key that was followed. Gives the cluster, and the key that serves now.
    ///
    /// # Errors
    /// There is none that follows; a file cannot be used or written.
    pub fn retire(&self) -> Result<(Pinned, PublicKey), CredentialError> {
        let (old, mut pinned) = self.server()?;
        let path = self.server.join(NEXT_KEY);
        let Some(next) = if_there(read_key(&path, Role::Server, Others::Nothing))? else {
            return Err(self.failed("no key follows: make one by `cisternd server-key rotate`, and let agents learn of it first"));
        };
        let next = next.public();
        let state = pinned.roster().server(&next).map(|entry| entry.state);
        if state == Some(ServerState::Next) {
            let mut servers = pinned.roster().servers.clone();
            for entry in &mut servers {
                if entry.key == next {
                    entry.state = ServerState::Serving;
                } else if entry.key == old {
                    (entry.state, entry.addresses) = (ServerState::Retired, Vec::new());
                }
            }
            pinned = self.sign(pinned, servers)?;
        } else if state != Some(ServerState::Serving) {
            return Err(self.failed("the roster does not name the key that follows: `cisternd server-key rotate` goes on from there"));
        } else {
            pinned = self.publish(pinned)?;
        }
        let failed = |e: std::io::Error| CredentialError::new(&path, e);
        fs::rename(&path, self.server.join(SERVER_KEY)).map_err(failed)?;
        private::sync_directory(&self.server).map_err(failed)?;
        Ok((pinned, next))
    }

    fn server(&self) -> Result<(PublicKey, Pinned), CredentialError> {
        let key = read_key(&self.server.join(SERVER_KEY), Role::Server, Others::Nothing)?;
        Ok((key.public(), read_cluster(&self.server.join(CLUSTER_FILE))?))
    }

    fn sign(&self, mut pinned: Pinned, servers: Vec<ServerEntry>) -> Result<Pinned, CredentialError> {
        let failed = |what: String| CredentialError::new(&self.cluster_key, Problem::Other(what));
        let secret = read_cluster_key(&self.cluster_key)?;
        if secret.public() != *pinned.cluster() {
            return Err(failed("it is the key of another cluster than that of the server".to_owned()));
        }
        let next = pinned.roster().next(servers).sign(&secret).map_err(|e| failed(e.to_string()))?;
        pinned.offer(next.as_bytes()).map_err(|e| CredentialError::new(&self.cluster_key, e))?;
        self.publish(pinned)
    }

    /// Writes the roster where it is not yet.
    fn publish(&self, pinned: Pinned) -> Result<Pinned, CredentialError> {
        for path in [self.server.join(CLUSTER_FILE), self.own.join(CLUSTER_FILE)] {
            if if_there(read_cluster(&path))?.is_none_or(|there| there != pinned) {
                replace_cluster(&path, &pinned)?;
            }
        }
        Ok(pinned)
    }

    fn failed(&self, what: &str) -> CredentialError {
        CredentialError::new(&self.server.join(NEXT_KEY), Problem::Other(what.to_owned()))
    }
}

fn addresses_of(roster: &Roster, server: &PublicKey) -> Vec<cistern_trust::ServerAddress> {
    roster.server(server).map(|entry| entry.addresses.clone()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Initial;

    fn made(dir: &Path) -> Rotation {
        let at = |name: &str| dir.join(name);
        let addresses = vec!["127.0.0.1:7311".parse().unwrap()];
        let initial = Initial { server: at("server"), own: at("own"), cluster_key: at("own/cluster.key"), addresses };
        initial.make([1, 2, 3].map(|n| [n; 32].into())).unwrap();
        Rotation { server: initial.server, own: initial.own, cluster_key: initial.cluster_key }
    }

    fn keys(rotation: &Rotation) -> Vec<PublicKey> {
        ServerKeys::read(&rotation.server).unwrap().unwrap().keys.iter().map(SecretKey::public).collect()
    }

    #[test]
    fn a_key_is_followed_by_another_which_the_roster_names_first() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = made(dir.path());
        let first = keys(&rotation);
        assert!(rotation.retire().unwrap_err().to_string().contains("no key follows"));
        let (pinned, next) = rotation.rotate([9; 32].into()).unwrap();
        assert_eq!((pinned.roster().version, pinned.roster().server(&next).unwrap().state), (2, ServerState::Next));
        assert_eq!(pinned.roster().server(&next).unwrap().addresses[0].as_str(), "127.0.0.1:7311");
        assert_eq!(rotation.rotate([10; 32].into()).unwrap(), (pinned, next), "done again, it is the same");
        assert_eq!(keys(&rotation), [first[0], next], "it is addressed by both");
        let (pinned, serving) = rotation.retire().unwrap();
        assert_eq!((serving, pinned.roster().version), (next, 3));
        assert_eq!(pinned.roster().server(&first[0]).unwrap().state, ServerState::Retired);
        assert_eq!((keys(&rotation), rotation.server.join(NEXT_KEY).exists()), (vec![next], false));
        for dir in [&rotation.server, &rotation.own] {
            assert_eq!(read_cluster(&dir.join(CLUSTER_FILE)).unwrap(), pinned);
        }
    }

    #[test]
    fn a_step_that_was_killed_is_done_again() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = made(dir.path());
        let old_roster = fs::read(rotation.server.join(CLUSTER_FILE)).unwrap();
        // Killed when the key was made and no roster named it yet.
        let (_, next) = rotation.rotate([9; 32].into()).unwrap();
        for dir in [&rotation.server, &rotation.own] {
            private::replace(&dir.join(CLUSTER_FILE), &old_roster).unwrap();
        }
        assert_eq!(keys(&rotation).len(), 1, "nobody knows the new one");
        assert!(rotation.retire().unwrap_err().to_string().contains("does not name"));
        assert_eq!(rotation.rotate([10; 32].into()).unwrap().1, next);
        // Killed when the roster was signed and the key had not its place yet.
        let (old_key, next_key) = (fs::read(rotation.server.join(SERVER_KEY)).unwrap(), fs::read(rotation.server.join(NEXT_KEY)).unwrap());
        let (pinned, _) = rotation.retire().unwrap();
        private::replace(&rotation.server.join(SERVER_KEY), &old_key).unwrap();
        private::write_new(&rotation.server.join(NEXT_KEY), &next_key).unwrap();
        assert_eq!(keys(&rotation), [next], "the retired one is not used");
        assert!(rotation.rotate([11; 32].into()).unwrap_err().to_string().contains("has begun"));
        assert_eq!(rotation.retire().unwrap(), (pinned, next));
        assert_eq!(keys(&rotation), [next]);
    }

    #[test]
    fn half_of_the_files_are_no_credentials() {
        let dir = tempfile::tempdir().unwrap();
        let rotation = made(dir.path());
        assert!(ServerKeys::read(&dir.path().join("elsewhere")).unwrap().is_none());
        let (key, cluster) = (rotation.server.join(SERVER_KEY), rotation.server.join(CLUSTER_FILE));
        let moved = dir.path().join("moved");
        fs::rename(&cluster, &moved).unwrap();
        assert_eq!(ServerKeys::read(&rotation.server).unwrap_err().path, cluster);
        fs::rename(&moved, &cluster).unwrap();
        fs::rename(&key, &moved).unwrap();
        assert_eq!(ServerKeys::read(&rotation.server).unwrap_err().path, key);
        make_key(&key, Role::Server, [77; 32].into()).unwrap();
        assert!(ServerKeys::read(&rotation.server).unwrap_err().to_string().contains("does not name it"));
        fs::remove_file(&rotation.cluster_key).unwrap();
        assert!(rotation.rotate([9; 32].into()).unwrap_err().is_missing(), "without the cluster's key nothing is signed");
    }
}
