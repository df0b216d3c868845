//! Who an agent is: a 128-bit identity and a count of its starts, durable in a locked state directory, or fresh and used once.
//!
//! Decides: that the incarnation is on disk before any HELLO carries it, and that two processes never are one agent (`wire-spec.md`
//! section 11.6).

use crate::error::{Cause, Error};
use cistern_driver::private::{self, Others};
use cistern_seal::PublicKey;
use cistern_wire::AgentId;
use nix::fcntl::{Flock, FlockArg};
use std::fmt;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Who an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct AgentIdentity {
    /// Its identity, shown as 32 hexadecimal digits.
    pub agent: u128,
    /// The count of its starts, from 1.
    pub incarnation: u64,
}

impl fmt::Display for AgentIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}/{}", self.agent, self.incarnation)
    }
}

/// Most bytes of the file that keeps it: 32 digits, 20 digits, a blank and a line end.
const RECORD_MAX: usize = 64;

/// An agent's identity and incarnation, which no other process can have.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) agent: AgentId,
    pub(crate) incarnation: u64,
    /// Identity of this boot of the machine; zero where the system does not tell.
    pub(crate) boot: [u8; 16],
    /// Held for the life of the process, so that no other process is the same agent.
    _lock: Option<Flock<File>>,
}

impl Identity {
    /// A new identity, used once.
    pub(crate) fn fresh() -> Result<Self, Error> {
        let seed = cistern_driver::seed().map_err(Error::start)?;
        let mut agent = [0; 16];
        agent.copy_from_slice(&seed[..16]);
        Ok(Self { agent: AgentId(agent), incarnation: 1, boot: boot_id(), _lock: None })
    }

    /// The identity kept in `dir` (made if it is missing), with the next incarnation, already durable.
    pub(crate) fn durable(dir: &Path) -> Result<Self, Error> {
        make(dir).map_err(|e| state(dir, "cannot be made", e))?;
        private::check_directory(dir).map_err(|e| state(dir, "is not to be trusted", e))?;
        let lock = lock(&dir.join("lock"))?;
        let path = dir.join("agent");
        let (agent, last) = match private::read(&path, Others::Read, RECORD_MAX).map(String::from_utf8) {
            Ok(text) => {
                let read = text.ok().and_then(|text| parse(&text));
                read.ok_or_else(|| state(&path, "is damaged; remove the directory to start as a new agent", None))?
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => (Self::fresh()?.agent, 0),
            Err(e) => return Err(state(&path, "cannot be read", e)),
        };
        let incarnation = last.checked_add(1).ok_or_else(|| state(&path, "has no incarnation left; remove the directory", None))?;
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The agent MUST have made its incarnation durable, and larger than all before, before its first HELLO.
        private::replace(&path, format!("{agent} {incarnation}\n").as_bytes()).map_err(|e| state(&path, "cannot be written", e))?;
        Ok(Self { agent, incarnation, boot: boot_id(), _lock: Some(lock) })
    }

    /// As servers show it: of an agent with a key, this is an instance of it. Of one whose key was rotated before the start they show another,
    /// by its first key.
    pub(crate) fn shown(&self, key: Option<PublicKey>) -> AgentIdentity {
        let agent = key.map_or(self.agent, |key| key.agent(self.agent));
        AgentIdentity { agent: u128::from_be_bytes(agent.0), incarnation: self.incarnation }
    }
}

fn state(path: &Path, why: &'static str, source: impl Into<Option<io::Error>>) -> Error {
    Cause::State { path: PathBuf::from(path), why, source: source.into() }.into()
}

/// Makes the directory for this user alone; those above it as usual.
fn make(dir: &Path) -> io::Result<()> {
    if let Some(above) = dir.parent().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir_all(above)?;
    }
    match DirBuilder::new().mode(0o700).create(dir) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

fn lock(path: &Path) -> Result<Flock<File>, Error> {
    let file = private::open(path).map_err(|e| state(path, "cannot be opened", e))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, e)| state(path, "is in use by another agent; give each agent a directory of its own", io::Error::from(e)))
}

/// `<32 hex digits> <incarnation>` and a line end.
fn parse(text: &str) -> Option<(AgentId, u64)> {
    let (id, incarnation) = text.strip_suffix('\n')?.split_once(' ')?;
    let value = u128::from_str_radix(id, 16).ok().filter(|_| id.len() == 32)?;
    Some((AgentId(value.to_be_bytes()), incarnation.parse().ok()?))
}

fn boot_id() -> [u8; 16] {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let hex: String = text.chars().filter(char::is_ascii_hexdigit).collect();
    u128::from_str_radix(&hex, 16).unwrap_or_default().to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    //= wire-spec.md#11-6-sessions-handshake-and-paths
    //= type=test
    //# The agent MUST have made its incarnation durable, and larger than all before, before its first HELLO.
    #[test]
    fn every_start_has_a_larger_incarnation_of_the_same_agent() {
        let dir = tempfile::tempdir().unwrap();
        let first = Identity::durable(dir.path()).unwrap();
        let (agent, incarnation) = (first.agent, first.incarnation);
        drop(first);
        let second = Identity::durable(dir.path()).unwrap();
        assert_eq!((second.agent, second.incarnation), (agent, incarnation + 1));
    }

    #[test]
    fn no_link_is_followed_to_an_identity_and_a_directory_in_which_others_write_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (own, outside) = (dir.path().join("own"), dir.path().join("outside"));
        drop(Identity::durable(&own).unwrap());
        assert_eq!(fs::metadata(&own).unwrap().permissions().mode() & 0o777, 0o700);
        // What would be an identity, and what would be a lock.
        fs::copy(own.join("agent"), &outside).unwrap();
        let kept = fs::read_to_string(&outside).unwrap();
        for name in ["agent", "lock"] {
            let (path, aside) = (own.join(name), own.join("aside"));
            fs::rename(&path, &aside).unwrap();
            symlink(&outside, &path).unwrap();
            assert!(Identity::durable(&own).is_err_and(|error| error.is_state_directory()), "{name}");
            assert_eq!(fs::read_to_string(&outside).unwrap(), kept);
            fs::rename(&aside, &path).unwrap();
        }
        drop(Identity::durable(&own).unwrap());
        for name in ["agent", "lock"] {
            assert_eq!(fs::metadata(own.join(name)).unwrap().permissions().mode() & 0o777, 0o600, "{name}");
        }
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert!(Identity::durable(&own).unwrap_err().to_string().contains("chmod go-w"));
    }

    #[test]
    fn two_processes_cannot_be_one_agent() {
        let dir = tempfile::tempdir().unwrap();
        let _first = Identity::durable(dir.path()).unwrap();
        assert!(Identity::durable(dir.path()).is_err_and(|error| error.is_state_directory()));
    }

    #[test]
    fn a_damaged_identity_is_refused_and_left_as_it_is() {
        for damage in ["", "garbage", "00 1\n", "0123456789abcdef0123456789abcdef 1", "0123456789abcdef0123456789abcdef x\n"] {
            let dir = tempfile::tempdir().unwrap();
            fs::write(dir.path().join("agent"), damage).unwrap();
            assert!(Identity::durable(dir.path()).is_err_and(|error| error.is_state_directory()), "{damage:?}");
            assert_eq!(fs::read_to_string(dir.path().join("agent")).unwrap(), damage);
        }
    }
}
