//! Files with a secret key: one line of text.

use crate::error::{CredentialError, Problem};
use cistern_capture::private::{self, Others};
use cistern_seal::key::Role;
use cistern_seal::{PublicKey, SecretKey};
use cistern_trust::{ClusterSecret, TextForm as _};
use std::path::Path;
use zeroize::Zeroizing;

/// Most bytes of a file with a key.
const KEY_FILE_MAX: usize = 512;

/// Reads the key of a host, application or server. Of root's files in a service's credentials directory `others` allows what systemd does.
///
/// # Errors
/// It is missing ([`CredentialError::is_missing`]), not to be believed, or no such key.
pub fn read_key(path: &Path, role: Role, others: Others) -> Result<SecretKey, CredentialError> {
    let text = read_text(path, others, KEY_FILE_MAX)?;
    SecretKey::from_text(&text, role).map_err(|e| CredentialError::new(path, e))
}

/// Makes the file of a new key from 32 bytes of the system's random source. It replaces nothing.
///
/// # Errors
/// There is one already ([`CredentialError::is_there`]), or it cannot be written.
pub fn make_key(path: &Path, role: Role, random: Zeroizing<[u8; 32]>) -> Result<SecretKey, CredentialError> {
    let key = SecretKey::from_bytes(*random);
    write_line(path, key.to_text(role))?;
    Ok(key)
}

/// Reads the secret key of a cluster.
///
/// # Errors
/// As [`read_key`].
pub fn read_cluster_key(path: &Path) -> Result<ClusterSecret, CredentialError> {
    let text = read_text(path, Others::Nothing, KEY_FILE_MAX)?;
    ClusterSecret::from_text(&text).map_err(|e| CredentialError::new(path, e))
}

/// Makes the file of a new cluster's key from 32 bytes of the system's random source. It replaces nothing.
///
/// # Errors
/// As [`make_key`].
pub fn make_cluster_key(path: &Path, random: Zeroizing<[u8; 32]>) -> Result<ClusterSecret, CredentialError> {
    let key = ClusterSecret::from_seed(*random);
    write_line(path, key.to_text())?;
    Ok(key)
}

/// Reads the public key of a host or application. Others may read it, and not write it.
///
/// # Errors
/// As [`read_key`].
pub(crate) fn read_public(path: &Path) -> Result<PublicKey, CredentialError> {
    let text = read_text(path, Others::Read, KEY_FILE_MAX)?;
    PublicKey::from_text(text.trim(), Role::Agent).map_err(|e| CredentialError::new(path, e))
}

/// Makes the file of a public key. It replaces nothing.
///
/// # Errors
/// As [`make_key`].
pub(crate) fn write_public(path: &Path, key: &PublicKey) -> Result<(), CredentialError> {
    write_line(path, key.to_text(Role::Agent).into())
}

/// A file's text, wiped when dropped.
pub(crate) fn read_text(path: &Path, others: Others, len_max: usize) -> Result<Zeroizing<String>, CredentialError> {
    let bytes = private::read(path, others, len_max).map_err(|e| CredentialError::new(path, e))?;
    let text = String::from_utf8(bytes).map_err(|e| {
        drop(Zeroizing::new(e.into_bytes()));
        CredentialError::new(path, Problem::NoText)
    })?;
    Ok(text.into())
}

fn write_line(path: &Path, line: Zeroizing<String>) -> Result<(), CredentialError> {
    let mut whole = Zeroizing::new(Vec::with_capacity(line.len() + 1));
    whole.extend_from_slice(line.as_bytes());
    whole.push(b'\n');
    private::write_new(path, &whole).map_err(|e| CredentialError::new(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_key_is_read_as_it_was_made_and_never_overwritten() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        assert!(read_key(&path, Role::Agent, Others::Nothing).unwrap_err().is_missing());
        let made = make_key(&path, Role::Agent, [7; 32].into()).unwrap();
        assert!(make_key(&path, Role::Agent, [8; 32].into()).unwrap_err().is_there());
        let read = read_key(&path, Role::Agent, Others::Nothing).unwrap();
        assert_eq!((read.public(), read.expose()), (made.public(), &[7; 32]));
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn errors_name_the_file_and_not_what_is_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("host.key");
        make_key(&path, Role::Agent, [7; 32].into()).unwrap();
        let secret = fs::read_to_string(&path).unwrap();
        let secret = secret.trim().rsplit('.').next().unwrap();
        let told = |error: CredentialError| {
            assert!(!format!("{error} {error:?}").contains(&secret[..8]), "{error:?}");
            error.to_string()
        };
        assert!(told(read_key(&path, Role::Server, Others::Nothing).unwrap_err()).starts_with(path.to_str().unwrap()));
        assert!(told(read_cluster_key(&path).unwrap_err()).contains("cistern-secret-cluster-1."));
        for damage in ["", "cistern-secret-agent-1.AAAA", &"A".repeat(600), "\u{fffd}"] {
            fs::write(&path, damage).unwrap();
            told(read_key(&path, Role::Agent, Others::Nothing).unwrap_err());
        }
        fs::write(&path, b"\xff\xfe").unwrap();
        assert!(told(read_key(&path, Role::Agent, Others::Nothing).unwrap_err()).contains("no text"));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(told(read_key(&path, Role::Agent, Others::Nothing).unwrap_err()).contains("chmod go="));
    }

    #[test]
    fn a_cluster_has_a_key_of_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("cluster.key");
        let made = make_cluster_key(&path, [7; 32].into()).unwrap();
        assert_eq!(read_cluster_key(&path).unwrap().public(), made.public());
        assert!(read_key(&path, Role::Server, Others::Nothing).is_err());
    }
}
