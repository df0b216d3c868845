//! Who may use the host's agent: its own user and root, and with `--socket-group` the members of a group.
//!
//! Decides: the modes of the socket's directory, and which peer is served. The kernel checks the modes when a program connects; the peer's
//! credentials are checked once more here, should somebody have changed the modes. Leaves to others: making the socket (`cistern_driver`).

use crate::execute::{EXIT_FAILED, User};
use crate::local::Failure;
use nix::sys::socket::{getsockopt, sockopt};
use nix::unistd::{Gid, Group, geteuid};
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixStream;
use std::path::Path;

/// Those who may connect.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Peers {
    group: Option<Gid>,
}

impl Peers {
    /// The own user and root, and the members of a group, given by name or number.
    pub(super) fn of(group: Option<&str>) -> Result<Self, Failure> {
        let Some(name) = group else { return Ok(Self::default()) };
        let found = Group::from_name(name).ok().flatten().map(|group| group.gid).or_else(|| name.parse().ok().map(Gid::from_raw));
        let group = found.ok_or_else(|| Failure::usage(format!("--socket-group: there is no group {name:?}")))?;
        Ok(Self { group: Some(group) })
    }

    /// The group's id.
    pub(super) fn group(self) -> Option<u32> {
        self.group.map(Gid::as_raw)
    }

    /// Lets the group reach the socket in its directory, of whose contents it sees nothing.
    pub(super) fn open_directory(self, socket: &Path) -> Result<(), Failure> {
        let (Some(group), Some(dir)) = (self.group(), socket.parent()) else { return Ok(()) };
        let opened = chown(dir, None, Some(group)).and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o710)));
        opened.map_err(|e| {
            let hint = "it must belong to this user, who must be a member of the group; --state names another directory";
            Failure::new("CONTROL", EXIT_FAILED, format!("--socket-group: {} cannot be opened to the group: {e}; {hint}", dir.display()))
        })
    }

    /// The user at the other end, if it may use the agent.
    pub(super) fn admit(self, stream: &UnixStream) -> Result<User, String> {
        let peer = getsockopt(stream, sockopt::PeerCredentials).map_err(|e| format!("cannot tell who connects: {e}"))?;
        let user = User { uid: peer.uid(), gid: peer.gid() };
        let is_member = || self.group().is_some_and(|group| user.gid == group || groups_of(peer.pid()).contains(&group));
        if user.uid == 0 || user.uid == geteuid().as_raw() || is_member() {
            return Ok(user);
        }
        Err(format!("does not serve user {}", user.uid))
    }
}

/// The supplementary groups of a process; none if it is gone or is not to be seen.
fn groups_of(pid: i32) -> Vec<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    groups.split_whitespace().filter_map(|group| group.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_user_is_admitted_and_an_unknown_group_is_told() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        assert_eq!(Peers::of(None).unwrap().admit(&ours).unwrap().uid, geteuid().as_raw());
        assert_eq!(Peers::of(Some("no-such-group")).unwrap_err().code, "USAGE");
        assert_eq!(Peers::of(Some("4242")).unwrap().group(), Some(4242));
    }

    #[test]
    fn groups_of_a_process_are_read_from_proc() {
        let own: Vec<u32> = nix::unistd::getgroups().unwrap().into_iter().map(Gid::as_raw).collect();
        assert_eq!(groups_of(nix::unistd::getpid().as_raw()), own);
        assert_eq!(groups_of(i32::MAX), [0; 0]);
    }
}
