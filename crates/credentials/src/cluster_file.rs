//! `cluster.toml`: which cluster is trusted, and the newest roster that was seen of it.

use crate::error::{CredentialError, Problem};
use crate::key_file::read_text;
use cistern_capture::private::{self, Others};
use cistern_trust::Pinned;
use serde::Deserialize;
use std::path::Path;

/// Most bytes of the file.
const CLUSTER_FILE_MAX: usize = 16 << 10;

#[derive(Deserialize)]
struct ClusterToml {
    cluster: String,
    roster: String,
}

/// Reads what a `cluster.toml` says.
///
/// # Errors
/// It is none, or the roster is not signed by the cluster's key.
pub fn parse_cluster(text: &str) -> Result<Pinned, Problem> {
    let ClusterToml { cluster, roster } = toml::from_str(text).map_err(|e| Problem::Form(e.message().to_owned()))?;
    Ok(Pinned::from_texts(&cluster, &roster)?)
}

/// Reads a `cluster.toml`. It has no secret: others may read it, and not write it.
///
/// # Errors
/// It is missing ([`CredentialError::is_missing`]), not to be believed, or as [`parse_cluster`].
pub fn read_cluster(path: &Path) -> Result<Pinned, CredentialError> {
    let text = read_text(path, Others::Read, CLUSTER_FILE_MAX)?;
    parse_cluster(&text).map_err(|e| CredentialError::new(path, e))
}

/// Makes a `cluster.toml`. It replaces nothing.
///
/// # Errors
/// There is one already ([`CredentialError::is_there`]), or it cannot be written.
pub fn write_cluster(path: &Path, pinned: &Pinned) -> Result<(), CredentialError> {
    private::write_new(path, to_text(pinned).as_bytes()).map_err(|e| CredentialError::new(path, e))
}

/// Makes a `cluster.toml` in place of the one that is there: its roster was succeeded, or a person chose another cluster.
///
/// # Errors
/// It cannot be written; then the old one stays.
pub fn replace_cluster(path: &Path, pinned: &Pinned) -> Result<(), CredentialError> {
    private::replace(path, to_text(pinned).as_bytes()).map_err(|e| CredentialError::new(path, e))
}

fn to_text(pinned: &Pinned) -> String {
    let mut text = String::from("# The cluster that is trusted, and its servers. Made and renewed by cistern.\n");
    for server in &pinned.roster().servers {
        let addresses: Vec<&str> = server.addresses.iter().map(cistern_trust::ServerAddress::as_str).collect();
        text += &format!("# {}: {} {}\n", server.state, server.key.to_text(cistern_seal::key::Role::Server), addresses.join(" "));
    }
    text + &format!("cluster = \"{}\"\nroster = \"{}\"\n", pinned.cluster(), pinned.signed().to_text())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use cistern_seal::PublicKey;
    use cistern_trust::{ClusterSecret, Offered, Roster};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    pub(crate) fn roster(version: u32) -> Roster {
        Roster { version, ..Roster::first(PublicKey::from_bytes([1; 32]), vec!["meta.example.net:7311".parse().unwrap()]) }
    }

    pub(crate) fn pinned(version: u32) -> Pinned {
        let secret = ClusterSecret::from_seed([2; 32]);
        Pinned::new(secret.public(), roster(version).sign(&secret).unwrap().as_bytes()).unwrap()
    }

    #[test]
    fn a_cluster_is_read_as_it_was_written_and_renewed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        assert!(read_cluster(&path).unwrap_err().is_missing());
        write_cluster(&path, &pinned(1)).unwrap();
        assert!(write_cluster(&path, &pinned(2)).unwrap_err().is_there());
        let mut read = read_cluster(&path).unwrap();
        assert_eq!(read, pinned(1));
        assert_eq!(read.offer(pinned(2).signed().as_bytes()), Ok(Offered::Taken));
        replace_cluster(&path, &read).unwrap();
        assert_eq!(read_cluster(&path).unwrap(), pinned(2));
    }

    #[test]
    fn one_that_was_changed_or_that_others_can_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.toml");
        write_cluster(&path, &pinned(1)).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read_cluster(&path).is_ok());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).unwrap();
        assert!(read_cluster(&path).unwrap_err().to_string().contains("chmod go-w"));
        let text = to_text(&pinned(1));
        let other = ClusterSecret::from_seed([3; 32]).public().to_string();
        let swapped = text.replace(&pinned(1).cluster().to_string(), &other);
        assert!(parse_cluster(&swapped).unwrap_err().to_string().contains("not signed"));
        for wrong in ["", "cluster = 3", "cluster = \"a\"\nroster = \"b\"", &text.replace("roster", "Roster")] {
            assert!(parse_cluster(wrong).is_err(), "{wrong}");
        }
    }
}
