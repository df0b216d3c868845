//! The way in: a datagram is decoded, its session found, its copies dropped, and its messages acted on in the order that is safe.
//!
//! Decides that order (section 11.2): receipts, releases, path messages and the end of the session before requests, so that a session that
//! gives a lock back in the datagram in which it asks is not refused for keeping it. Place in the walk: the step after the driver.
//! Implements `wire-spec.md` sections 3.4 and 6. Invariant: a datagram that does not decode whole, or came before, changes nothing
//! but a counter; every drop has a name, a counter and a line at level trace.
//! Leaves to others: handshakes (`handshake`), what each message does (`control`, `requests`), answers without a session (`strangers`).

use crate::ids::LockSlot;
use crate::server::Server;
use crate::server::control::Taken;
use crate::sessions::SessionKey;
use crate::sessions::standing::{Cause, Standing};
use crate::stats::Dropped;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Freshness, Path};
use cistern_wire::{Datagram, Kind, Raw};
use log::trace;

/// Whether a message acts before the requests of its datagram (section 11.2).
const fn goes_first(kind: Kind) -> bool {
    matches!(kind, Kind::Receipt | Kind::Release | Kind::EndSession | Kind::PathResponse)
}

/// Where a message came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MessageCx {
    /// The session.
    pub(crate) key: SessionKey,
    /// Its name in the lock table.
    pub(crate) slot: LockSlot,
    /// The datagram's packet number: what answers echo.
    pub(crate) packet: u64,
}

impl Server {
    /// One received datagram.
    pub(crate) fn dispatch(&mut self, path: Path, bytes: &[u8]) {
        //= wire-spec.md#3-5-validation-and-drops
        //# A receiver MUST validate a datagram to its last byte before any message in it acts.
        //= wire-spec.md#3-5-validation-and-drops
        //# A dropped datagram MUST NOT change any state but counters.
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# HINT, CHALLENGE and REFUSE MUST NOT be sent in answer to a datagram of a server.
        let datagram = match Datagram::at_server(bytes) {
            Ok(datagram) => datagram,
            Err(reason) => {
                self.stats.count_undecoded(&reason);
                trace!("{}: dropped {} bytes from {}: {reason}", self.who, bytes.len(), path.remote);
                return;
            }
        };
        let header = datagram.header;
        if header.session.0 == 0 {
            return self.handshake_datagram(path, header.packet, bytes);
        }
        match self.sessions.find(header.session) {
            Some(key) => self.session_datagram(key, path, &datagram, bytes),
            None => self.stranger(path, header, bytes),
        }
    }

    fn session_datagram(&mut self, key: SessionKey, path: Path, datagram: &Datagram<'_>, bytes: &[u8]) {
        let header = datagram.header;
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        match session.standing() {
            Standing::Opening => return self.drop_datagram(path, Dropped::NotOpen),
            Standing::Ended { cause } => return self.after_the_end(key, cause, path, header, bytes),
            Standing::Good | Standing::TimingOut { .. } | Standing::Ending { .. } => {}
        }
        //= wire-spec.md#3-2-packet-numbers
        //# A receiver MUST drop a packet number that it has received before, or that is 1,024 or more below the highest received.
        let highest = header.packet > session.replay.highest();
        match session.replay.classify(header.packet) {
            Freshness::Fresh => {}
            Freshness::Duplicate => return self.drop_datagram(path, Dropped::DuplicatePacket),
            Freshness::Stale => return self.drop_datagram(path, Dropped::StalePacket),
            Freshness::Ahead => return self.drop_datagram(path, Dropped::PacketAhead),
        }
        if !datagram.is_requests_only() {
            self.path_responses(key, path, highest, bytes);
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        //= wire-spec.md#11-6-sessions-handshake-and-paths
        //# A server MUST NOT act on a datagram of a session, nor note its packet number, from an address not proven for that session,
        //# unless it has the PATH_RESPONSE that proves it.
        if !session.is_proven(path) && !bugs::is(Bug::A1) {
            self.challenge_path(key, path, bytes.len(), highest);
            return self.drop_datagram(path, Dropped::UnprovenAddress);
        }
        session.replay.note(header.packet);
        let slot = session.slot;
        trace!("{}: packet {} of session {} from {}, {} bytes", self.who, header.packet, header.session, path.remote, bytes.len());
        // Who gives a superseded session up does not go on in it.
        if !session.standing().is_good() && datagram.raw().any(|raw| raw.kind != Kind::EndSession) {
            self.watch_for_clone(key, path);
        }
        self.came_by(key, path, bytes.len(), highest);
        self.foresee(slot, bytes);
        let origin = MessageCx { key, slot, packet: header.packet };
        if datagram.is_requests_only() {
            for raw in datagram.raw() {
                self.stats.count_in(raw.kind);
                self.request(origin, raw);
            }
            return;
        }
        //= wire-spec.md#11-2-delivery
        //# A server MUST act on receipts, releases and session ends in a datagram before the requests in it.
        let (mut others, mut refused) = (false, false);
        for raw in datagram.raw() {
            self.stats.count_in(raw.kind);
            if goes_first(raw.kind) {
                refused |= self.message(origin, raw) == Taken::Refused;
            } else {
                others = true;
            }
        }
        if others {
            for raw in datagram.raw().filter(|raw| !goes_first(raw.kind)) {
                refused |= self.message(origin, raw) == Taken::Refused;
            }
        }
        if refused {
            self.refuse_control(origin);
        }
    }

    /// What still comes Td after a session was superseded was not under way when its agent opened the next one.
    fn watch_for_clone(&mut self, key: SessionKey, path: Path) {
        let Some(session) = self.sessions.get_mut(key) else {
            return;
        };
        if let Standing::TimingOut { decided, cause: Cause::Superseded, .. } = session.standing()
            && !session.reported
            && self.now.waited(decided.plus(self.config.delivery_timeout))
        {
            session.reported = true;
            let agent = session.agent;
            self.report_clone(agent, key.id(), path);
        }
    }

    /// One message of a session.
    fn message(&mut self, origin: MessageCx, raw: Raw<'_>) -> Taken {
        match raw.kind {
            Kind::KeepAlive => raw.read(|m| self.keep_alive(origin, m)),
            Kind::Release => raw.read(|m| self.release(origin, m)),
            Kind::Cancel => raw.read(|m| self.cancel(origin, m)),
            Kind::EndSession => raw.read(|m| self.end_session(origin, m)),
            Kind::Receipt => raw.read(|m| self.receipt(origin, m)),
            // What it proves was proven before anything of its datagram acted.
            Kind::PathResponse => Taken::Done,
            kind => {
                debug_assert!(kind.class().is_some(), "the decoder lets no {} through from an agent in a session", kind.name());
                self.request(origin, raw);
                Taken::Done
            }
        }
    }

    /// Counts and logs a datagram that changes nothing else.
    pub(crate) fn drop_datagram(&mut self, path: Path, reason: Dropped) {
        //= wire-spec.md#3-5-validation-and-drops
        //# A receiver MUST count drops by reason.
        self.stats.count_dropped(reason);
        trace!("{}: dropped a datagram from {}: {}", self.who, path.remote, reason.name());
    }
}
