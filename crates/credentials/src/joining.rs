//! Joining by an invite's line: which server is asked, and what is believed of its answer.
//!
//! Decides: servers are asked in the order of the line until one answers, in a few rounds while one stands by; who refuses has answered. What comes is believed if it is for this host's
//! key and the server that proved itself by the line's key stands in its roster; it is on disk when the host is told that it has joined, and a host that was not told asks
//! again.
//! Leaves to others: the session in which is asked, which the invite's secret opens.

use crate::error::CredentialError;
use crate::places::Found;
use cistern_seal::PublicKey;
use cistern_trust::{Grant, GrantError, Invite, ServerAddress};
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

/// Why a server does not let a host join.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum JoinRefusal {
    /// The invite expired, was withdrawn, or never was.
    #[error("the invite is good no more: it expired or was withdrawn; ask for another one")]
    Unknown,
    /// Another key has used it.
    #[error(
        "the line was used by another key, from {from}: if that was none of your hosts, have its agent revoked, and ask for another line"
    )]
    Spent {
        /// When, in seconds since 1970.
        at_s: u64,
        /// From where.
        from: IpAddr,
    },
    /// The key was revoked.
    #[error("this host's key was revoked, which is for ever: move it away, and join with another one")]
    Revoked,
    /// The name is another's.
    #[error("the name that the invite gives is taken; ask for an invite with another one")]
    NameTaken,
}

/// What became of asking one server.
#[derive(Debug)]
pub enum Asked {
    /// It does not answer, in words.
    Silent(String),
    /// It stands by: another one of its group serves, or will soon.
    Standby,
    /// It refuses.
    Refused(JoinRefusal),
}

/// So often all servers are asked while one of them stands by, and the pause between: one of a group takes over within it.
const ROUNDS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(300);

/// Why a host has not joined.
#[derive(Debug, thiserror::Error)]
pub enum NotJoined {
    /// No server of the line answers.
    #[error("no server of the line answers: {0}")]
    Silent(String),
    /// One refuses.
    #[error(transparent)]
    Refused(#[from] JoinRefusal),
    /// The answer is not to be believed.
    #[error(transparent)]
    Answer(#[from] GrantError),
    /// The cluster cannot be written down, or another one is trusted.
    #[error(transparent)]
    File(#[from] CredentialError),
}

/// Joins with the key that was found. `ask` asks a server in a session with its key, opened by the invite's secret.
///
/// # Errors
/// [`NotJoined`]: nothing has changed here.
pub fn join(
    found: &Found,
    invite: &Invite,
    mut ask: impl FnMut(&PublicKey, &ServerAddress) -> Result<Grant, Asked>,
) -> Result<Grant, NotJoined> {
    let mut silent = Vec::new();
    for round in 0..ROUNDS {
        thread::sleep(PAUSE * round.min(1));
        silent.clear();
        let mut is_group = false;
        for (server, address) in &invite.servers {
            match ask(server, address) {
                Ok(grant) => {
                    grant.check_key(&found.key.public())?;
                    grant.check_server(server)?;
                    found.place.trust(&grant.pinned)?;
                    return Ok(grant);
                }
                Err(Asked::Refused(why)) => return Err(why.into()),
                Err(Asked::Silent(why)) => silent.push(format!("{address}: {why}")),
                Err(Asked::Standby) => {
                    is_group = true;
                    silent.push(format!("{address}: it stands by, and no other server of the line serves"));
                }
            }
        }
        if !is_group {
            break;
        }
    }
    Err(NotJoined::Silent(silent.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster_file::tests::pinned;
    use crate::places::Place;
    use cistern_seal::SecretKey;
    use cistern_trust::{InviteId, InviteSecret};

    fn invite() -> Invite {
        let server = |n, address: &str| (PublicKey::from_bytes([n; 32]), address.parse().unwrap());
        let servers = vec![server(9, "10.0.0.9:1"), server(1, "10.0.0.1:1")];
        Invite { servers, id: InviteId([8; 8]), secret: InviteSecret::from_array([9; 16]), expires_s: 0 }
    }

    fn grant(key: PublicKey) -> Grant {
        Grant { key, principal: 7, name: "web".parse().unwrap(), pinned: pinned(1) }
    }

    //= docs/sealed.md#joining-rosters
    //= type=test
    //# A host MUST NOT believe a cluster whose roster does not name, as serving or next, the server that has answered.
    #[test]
    fn the_first_server_that_answers_is_believed_if_it_belongs_to_its_cluster() {
        let dir = tempfile::tempdir().unwrap();
        let found = Found { key: SecretKey::from_bytes([5; 32]), place: Place::Directory(dir.path().to_owned()) };
        let own = found.key.public();
        let silent = || Err(Asked::Silent("no answer".to_owned()));
        let told = join(&found, &invite(), |_, _| silent()).unwrap_err().to_string();
        assert!(told.contains("10.0.0.9:1: no answer; 10.0.0.1:1"), "{told}");
        // The server with key 9 stands in no roster: it lies, or is another cluster's.
        let first = |server: &PublicKey, _: &ServerAddress| if server.as_bytes()[0] == 9 { Ok(grant(own)) } else { silent() };
        assert!(matches!(join(&found, &invite(), first), Err(NotJoined::Answer(GrantError::OtherCluster))));
        let second = |server: &PublicKey, _: &ServerAddress| if server.as_bytes()[0] == 1 { Ok(grant(own)) } else { silent() };
        let other = |server: &PublicKey, at: &ServerAddress| second(server, at).map(|_| grant(PublicKey::from_bytes([6; 32])));
        assert!(matches!(join(&found, &invite(), other), Err(NotJoined::Answer(GrantError::OtherKey))));
        let refusal = JoinRefusal::Spent { at_s: 5, from: [10, 0, 0, 7].into() };
        let refused = join(&found, &invite(), |_, _| Err(Asked::Refused(refusal))).unwrap_err();
        assert!(refused.to_string().contains("10.0.0.7"));
        assert_eq!(found.place.cluster().unwrap(), None, "nothing was believed");
        for _ in 0..2 {
            assert_eq!(join(&found, &invite(), second).unwrap(), grant(own));
            assert_eq!(found.place.cluster().unwrap(), Some(pinned(1)));
        }
    }

    #[test]
    fn servers_are_asked_again_while_one_stands_by_and_not_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        let found = Found { key: SecretKey::from_bytes([5; 32]), place: Place::Directory(dir.path().to_owned()) };
        let own = found.key.public();
        let mut asked = 0;
        let mut takes_over = |server: &PublicKey, _: &ServerAddress| {
            asked += 1;
            if asked > 3 && server.as_bytes()[0] == 1 { Ok(grant(own)) } else { Err(Asked::Standby) }
        };
        assert_eq!(join(&found, &invite(), &mut takes_over).unwrap(), grant(own));
        assert_eq!(asked, 4);
        let mut asked = 0;
        let nobody = |_: &PublicKey, _: &ServerAddress| {
            asked += 1;
            Err(Asked::Standby)
        };
        let refused = join(&found, &invite(), nobody).unwrap_err().to_string();
        assert!(refused.contains("10.0.0.1:1: it stands by") && asked == 2 * ROUNDS, "{refused}");
    }
}
