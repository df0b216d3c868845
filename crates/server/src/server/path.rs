//! Addresses: where a session's datagrams go, and how that changes.
//!
//! Decides when a session's address changes: a datagram with its highest packet number came from elsewhere, a challenge sent there was
//! answered from there, and that answer again had the highest number (section 11.6). Until then, and if no answer comes, everything goes to
//! the address proven last. Place in the walk: after the replay window was asked, before it is moved and the messages act: of a datagram
//! from an address that is not proven nothing acts. Implements `wire-spec.md` section 6.3. Invariant: an unproven address is sent nothing
//! but challenges, each smaller than the datagram that caused it.
//! Leaves to others: the handshake, whose cookie proves the first address (`handshake`).

use crate::server::Server;
use crate::sessions::SessionKey;
use crate::stats::Dropped;
use cistern_link::Path;
use cistern_wire::limits::OVERHEAD;
use cistern_wire::{Field as _, Kind, Message, PathChallenge, PathResponse, Raw};
use log::{debug, info};

/// Bytes of a datagram that carries one PATH_CHALLENGE.
const CHALLENGE_LEN: usize = OVERHEAD + PathChallenge::LEN;

impl Server {
    /// A fresh datagram of `len` bytes came for the session by `path`, which is proven; `highest`: its packet number is above all before.
    pub(crate) fn came_by(&mut self, key: SessionKey, path: Path, len: usize, highest: bool) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if path.remote == session.path.remote {
            // The same peer, perhaps at another of this host's own addresses: answers leave from the one last asked.
            if highest {
                session.path = path;
            }
            return;
        }
        self.challenge_path(key, path, len, highest);
    }

    /// Challenges an address from which a fresh datagram of `len` bytes came for the session, which stays at the one proven last.
    pub(crate) fn challenge_path(&mut self, key: SessionKey, path: Path, len: usize, highest: bool) {
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# Until then the server MUST send to the address proven last, and to the new one fewer bytes than came from it.
        if !highest || len <= CHALLENGE_LEN {
            return;
        }
        let again = self.config.rto_floor();
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        let now = self.now;
        let roaming = session.roaming.get_or_insert_default();
        let Some(token) = roaming.challenge(now, path, again, || self.rng.next_u64()) else {
            return self.stats.count_dropped(Dropped::RateLimited);
        };
        debug!("{}: {} may have moved from {} to {}", self.who, session.who(), session.path.remote, path.remote);
        self.send_to_session_by(key, path, &Message::PathChallenge(PathChallenge { token }));
    }

    /// The PATH_RESPONSEs of a datagram act before anything else in it: what they prove decides whether the rest acts.
    pub(crate) fn path_responses(&mut self, key: SessionKey, path: Path, highest: bool, bytes: &[u8]) {
        for raw in Raw::all(bytes).filter(|raw| raw.kind == Kind::PathResponse) {
            raw.read(|m: &PathResponse| self.path_response(key, path, m.token, highest));
        }
    }

    /// A PATH_RESPONSE came for the session by `path`.
    fn path_response(&mut self, key: SessionKey, path: Path, token: u64, highest: bool) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A session's address MUST change only for its highest packet number, and only after a PATH_CHALLENGE was answered from the new
        //# address.
        let former = session.path;
        let roaming = session.roaming.as_mut().filter(|_| highest);
        let Some(first) = roaming.and_then(|roaming| roaming.prove(path, token, former)) else {
            return self.stats.count_dropped(Dropped::StrayPathResponse);
        };
        info!("{}: {} moved from {} to {}", self.who, session.who(), former.remote, path.remote);
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# The first RTO for notices after a move SHOULD follow from the time between PATH_CHALLENGE and its answer.
        session.moved(path, self.now.since(first));
        self.stats.moves += 1;
    }
}
