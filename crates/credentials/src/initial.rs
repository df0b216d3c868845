//! The first credentials of a cluster, or what is missing of them: a server's key, the cluster's key, the first roster, the operator's key.
//!
//! Decides: that nothing which is there is overwritten, and that what is there is gone on from. A run that was killed is done again and goes on where it
//! ended; a second server, or a new store in place of a lost one, belongs to the cluster that agents trust already.
//! Order: a file is written after all that it depends on, so what is there is always whole.

use crate::cluster_file::{read_cluster, replace_cluster, write_cluster};
use crate::error::{CredentialError, Problem};
use crate::key_file::{make_cluster_key, make_key, read_cluster_key, read_key, read_public, write_public};
use crate::places::make_directory;
use crate::{CLUSTER_FILE, HOST_KEY, OPERATOR_FILE, SERVER_KEY};
use cistern_capture::private::Others;
use cistern_seal::PublicKey;
use cistern_seal::key::Role;
use cistern_trust::{ClusterSecret, Offered, Pinned, Roster, ServerAddress, ServerEntry, ServerState};
use std::path::{Path, PathBuf};
use zeroize::Zeroizing;

/// What is to be made, and where.
#[derive(Clone, Debug)]
pub struct Initial {
    /// The state directory of the server: its key, the cluster's roster, and who its first operator is.
    pub server: PathBuf,
    /// The operator's directory: the operator's key and the cluster's roster.
    pub own: PathBuf,
    /// The file of the cluster's secret key, which may be on a medium of its own.
    pub cluster_key: PathBuf,
    /// Where agents reach the server: 1 to 4.
    pub addresses: Vec<ServerAddress>,
}

/// What is there now.
#[derive(Clone, Debug)]
pub struct MadeCluster {
    /// The cluster, with the roster in which the server stands.
    pub pinned: Pinned,
    /// The server's key.
    pub server: PublicKey,
    /// The operator's key.
    pub operator: PublicKey,
    /// Files that were made or renewed.
    pub made: Vec<PathBuf>,
    /// Files that were there and are used.
    pub kept: Vec<PathBuf>,
}

impl Initial {
    /// Makes what is missing. `random`: of the system's random source, for the keys of server, operator and cluster.
    ///
    /// # Errors
    /// A file cannot be used or written; files that are there belong to different clusters; the roster has to change, and the cluster's secret
    /// key is not there to sign it.
    pub fn make(&self, random: [Zeroizing<[u8; 32]>; 3]) -> Result<MadeCluster, CredentialError> {
        let [for_server, for_operator, for_cluster] = random;
        let (mut made, mut kept) = (Vec::new(), Vec::new());
        for dir in [Some(&*self.server), Some(&*self.own), self.cluster_key.parent()].into_iter().flatten() {
            if !dir.as_os_str().is_empty() {
                make_directory(dir)?;
            }
        }
        let mut key = |path: &Path, role, random| -> Result<PublicKey, CredentialError> {
            let there = if_there(read_key(path, role, Others::Nothing))?;
            if there.is_some() { &mut kept } else { &mut made }.push(path.to_owned());
            there.map_or_else(|| make_key(path, role, random), Ok).map(|key| key.public())
        };
        let server = key(&self.server.join(SERVER_KEY), Role::Server, for_server)?;
        let operator = key(&self.own.join(HOST_KEY), Role::Agent, for_operator)?;
        let first = self.server.join(OPERATOR_FILE);
        if if_there(read_public(&first))?.is_none() {
            write_public(&first, &operator)?;
            made.push(first);
        } else {
            kept.push(first);
        }
        let (own_file, server_file) = (self.own.join(CLUSTER_FILE), self.server.join(CLUSTER_FILE));
        let (known, of_server) = (if_there(read_cluster(&own_file))?, if_there(read_cluster(&server_file))?);
        let secret = if_there(read_cluster_key(&self.cluster_key))?;
        if secret.is_some() {
            kept.push(self.cluster_key.clone());
        }
        let pinned = match newest(known, of_server, &server_file)? {
            Some(pinned) => self.with_server(pinned, server, secret.as_ref())?,
            None => {
                let secret = match secret {
                    Some(secret) => secret,
                    None => {
                        made.push(self.cluster_key.clone());
                        make_cluster_key(&self.cluster_key, for_cluster)?
                    }
                };
                self.signed(Roster::first(server, self.addresses.clone()), &secret)?
            }
        };
        for path in [server_file, own_file] {
            match if_there(read_cluster(&path))? {
                Some(there) if there == pinned => kept.push(path),
                Some(_) => {
                    replace_cluster(&path, &pinned)?;
                    made.push(path);
                }
                None => {
                    write_cluster(&path, &pinned)?;
                    made.push(path);
                }
            }
        }
        Ok(MadeCluster { pinned, server, operator, made, kept })
    }

    /// The cluster with this server in its roster, reached at these addresses.
    fn with_server(&self, mut pinned: Pinned, server: PublicKey, secret: Option<&ClusterSecret>) -> Result<Pinned, CredentialError> {
        let failed = |what: String| CredentialError::new(&self.cluster_key, Problem::Other(what));
        if let Some(secret) = secret
            && secret.public() != *pinned.cluster()
        {
            return Err(failed("it is the key of another cluster than that of cluster.toml; name directories of their own".to_owned()));
        }
        match pinned.roster().server(&server) {
            Some(entry) if entry.state == ServerState::Retired => {
                return Err(failed(format!(
                    "the roster says that the key of {} is retired; move it away",
                    self.server.join(SERVER_KEY).display()
                )));
            }
            Some(entry) if entry.addresses == self.addresses => return Ok(pinned),
            _ => {}
        }
        let secret =
            secret.ok_or_else(|| failed("it is not there, and has to sign a roster with this server and its addresses".to_owned()))?;
        let mut servers = pinned.roster().servers.clone();
        match servers.iter_mut().find(|entry| entry.key == server) {
            Some(entry) => entry.addresses.clone_from(&self.addresses),
            None => servers.push(ServerEntry { key: server, state: ServerState::Serving, addresses: self.addresses.clone() }),
        }
        let next = pinned.roster().next(servers).sign(secret).map_err(|e| failed(e.to_string()))?;
        let offered = pinned.offer(next.as_bytes()).map_err(|e| CredentialError::new(&self.cluster_key, e))?;
        debug_assert_eq!(offered, Offered::Taken, "it was signed as the next one");
        Ok(pinned)
    }

    fn signed(&self, roster: Roster, secret: &ClusterSecret) -> Result<Pinned, CredentialError> {
        let signed = roster.sign(secret).map_err(|e| CredentialError::new(&self.cluster_key, Problem::Other(e.to_string())))?;
        Pinned::new(secret.public(), signed.as_bytes()).map_err(|e| CredentialError::new(&self.cluster_key, e))
    }
}

/// What two files know of one cluster.
fn newest(known: Option<Pinned>, other: Option<Pinned>, other_file: &Path) -> Result<Option<Pinned>, CredentialError> {
    let (Some(mut known), Some(other)) = (known.clone(), other.clone()) else { return Ok(known.or(other)) };
    if known.cluster() != other.cluster() {
        let what = "it is of another cluster than the operator's own cluster.toml; name directories of their own".to_owned();
        return Err(CredentialError::new(other_file, Problem::Other(what)));
    }
    known.offer(other.signed().as_bytes()).map_err(|e| CredentialError::new(other_file, e))?;
    Ok(Some(known))
}

pub(crate) fn if_there<T>(read: Result<T, CredentialError>) -> Result<Option<T>, CredentialError> {
    match read {
        Err(e) if e.is_missing() => Ok(None),
        other => other.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn initial(dir: &Path) -> Initial {
        let at = |name: &str| dir.join(name);
        Initial {
            server: at("server"),
            own: at("own"),
            cluster_key: at("own/cluster.key"),
            addresses: vec!["127.0.0.1:7311".parse().unwrap()],
        }
    }

    fn random(n: u8) -> [Zeroizing<[u8; 32]>; 3] {
        [n, n + 1, n + 2].map(|n| [n; 32].into())
    }

    fn files(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
        let of = |dir: PathBuf| fs::read_dir(dir).into_iter().flatten().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
        let mut files: Vec<_> = of(dir.join("server")).into_iter().chain(of(dir.join("own"))).collect();
        files.sort();
        files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
    }

    #[test]
    fn all_of_it_is_made_once() {
        let dir = tempfile::tempdir().unwrap();
        let initial = initial(dir.path());
        let first = initial.make(random(1)).unwrap();
        assert_eq!((first.made.len(), first.kept.len(), first.pinned.roster().version), (6, 0, 1));
        let entry = first.pinned.roster().server(&first.server).unwrap();
        assert_eq!((entry.state, &entry.addresses), (ServerState::Serving, &initial.addresses));
        let before = files(dir.path());
        let again = initial.make(random(9)).unwrap();
        assert_eq!((again.made.len(), again.kept.len(), again.pinned), (0, 6, first.pinned));
        assert_eq!(files(dir.path()), before);
    }

    /// Whichever files a killed run has left, the next one completes them to a cluster in which everything fits.
    #[test]
    fn a_run_that_was_killed_is_completed() {
        let dir = tempfile::tempdir().unwrap();
        initial(dir.path()).make(random(1)).unwrap();
        // In the order in which they are written.
        let order =
            ["server/server.key", "own/host.key", "server/operator.pub", "own/cluster.key", "server/cluster.toml", "own/cluster.toml"];
        for kept in 0..order.len() {
            let other = tempfile::tempdir().unwrap();
            for name in &order[..kept] {
                let to = other.path().join(name);
                make_directory(to.parent().unwrap()).unwrap();
                fs::copy(dir.path().join(name), to).unwrap();
            }
            let made = initial(other.path()).make(random(100));
            let made = made.unwrap_or_else(|e| panic!("{kept} files left: {e}"));
            assert_eq!((made.kept.len(), made.made.len()), (kept, order.len() - kept));
            assert!(made.pinned.roster().server(&made.server).is_some() && made.pinned.roster().version == 1);
            for (path, bytes) in files(other.path()) {
                let name = path.strip_prefix(other.path()).unwrap().to_str().unwrap();
                if order[..kept].contains(&name) {
                    assert_eq!(bytes, fs::read(dir.path().join(name)).unwrap(), "{name} was there");
                }
            }
        }
    }

    #[test]
    fn a_second_server_and_a_new_address_are_signed_by_the_same_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let first = initial(dir.path()).make(random(1)).unwrap();
        let moved = Initial { addresses: vec!["meta.example.net:7311".parse().unwrap()], ..initial(dir.path()) };
        let moved = moved.make(random(9)).unwrap();
        assert_eq!((moved.pinned.roster().version, moved.made.len()), (2, 2));
        let second = Initial { server: dir.path().join("second"), ..initial(dir.path()) };
        let second = second.make(random(50)).unwrap();
        assert_eq!(second.pinned.cluster(), first.pinned.cluster());
        assert_eq!(read_public(&dir.path().join("second/operator.pub")).unwrap(), second.operator);
        assert_eq!((second.pinned.roster().version, second.pinned.roster().usable().count()), (3, 2));
    }

    #[test]
    fn without_the_cluster_s_key_nothing_changes_and_nothing_new_is_signed() {
        let dir = tempfile::tempdir().unwrap();
        let initial = initial(dir.path());
        initial.make(random(1)).unwrap();
        fs::remove_file(&initial.cluster_key).unwrap();
        assert_eq!(initial.make(random(9)).unwrap().made.len(), 0);
        assert!(!initial.cluster_key.exists());
        let moved = Initial { addresses: vec!["a:1".parse().unwrap()], ..initial.clone() };
        assert!(moved.make(random(1)).unwrap_err().to_string().contains("has to sign"));
        make_cluster_key(&initial.cluster_key, [99; 32].into()).unwrap();
        assert!(initial.make(random(1)).unwrap_err().to_string().contains("another cluster"));
    }
}
