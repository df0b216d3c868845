//! The addresses of a session besides the one proven last.

use alloc::vec::Vec;
use cistern_link::{Instant, Path};
use core::time::Duration;

/// Most former addresses remembered: a host has wired, wireless and mobile networks and a tunnel; each costs a copy of every notice.
const LEFT_MAX: usize = 4;

/// One that it may have moved to, and those that it has left.
#[derive(Debug, Default)]
pub(crate) struct Roaming {
    /// One that it may have moved to, and has not proven.
    to: Option<Challenged>,
    /// Those that it has left, the newest last, at most [`LEFT_MAX`]. When it left them is not noted: that would be a time of a
    /// session in good standing.
    from: Vec<Path>,
}

/// An address to which a session may have moved.
#[derive(Debug)]
struct Challenged {
    /// The address.
    path: Path,
    /// What must come back from there.
    token: u64,
    /// When it was challenged first, and last.
    first: Instant,
    last: Instant,
}

impl Roaming {
    /// The former addresses, the newest last.
    pub(crate) fn left(&self) -> &[Path] {
        &self.from
    }

    /// A datagram came from `path`, which is not proven: the token with which it is challenged; `None`: the last challenge is younger than
    /// `again`.
    pub(crate) fn challenge(&mut self, now: Instant, path: Path, again: Duration, token: impl FnOnce() -> u64) -> Option<u64> {
        let (token, first) = match &self.to {
            //= wire-spec.md#11-6-sessions-handshake-and-paths
            //# A server MUST NOT send more than one PATH_CHALLENGE for a session in a round trip, to however many addresses.
            Some(known) if !now.waited(known.last.plus(again)) => return None,
            Some(known) if known.path == path => (known.token, known.first),
            _ => (token(), now),
        };
        self.to = Some(Challenged { path, token, first, last: now });
        Some(token)
    }

    /// A token came back from `path`, while `former` was the address proven last: when that path was challenged first, if this proves it.
    pub(crate) fn prove(&mut self, path: Path, token: u64, former: Path) -> Option<Instant> {
        let proven = self.to.take_if(|to| to.path.remote == path.remote && to.token == token)?;
        self.from.retain(|left| left.remote != path.remote);
        if self.from.len() == LEFT_MAX {
            self.from.remove(0);
        }
        self.from.push(former);
        Some(proven.first)
    }
}
