//! Calls: a server of a group that has taken over tells the agents of before, so that they need not find out by a silence.
//!
//! Decides who is called, in which order and how fast: each session of the store that may be reclaimed and has an address there, once in a
//! tenure, those that may hold something first. Place in the walk: a deadline, from when the start is durable. Implements `wire-spec.md`
//! section 11.10. Invariant: a call proves and renews nothing, and goes to an address that its agent has proven, so no flood follows from one.
//! Leaves to others: what an agent makes of it.

use crate::server::Server;
use crate::sessions::session::Session;
use crate::store::SessionRecord;
use alloc::vec::Vec;
use cistern_link::{Instant, Path};
use cistern_wire::limits::CALL;
use cistern_wire::{Bytes8, Form, Hint, Message, SessionId};
use core::net::SocketAddr;
use core::time::Duration;

/// So many calls at once, and the pause after them: 10,000 agents in 200 ms.
const AT_ONCE: usize = 50;
const PAUSE: Duration = Duration::from_millis(1);

/// Who is still to be called.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    /// The next one last.
    left: Vec<(SessionId, SocketAddr)>,
    due: Option<Instant>,
}

impl Calls {
    /// To the agents of these sessions.
    pub(crate) fn to(sessions: &[(SessionId, SessionRecord)]) -> Self {
        let of_kind = |may_hold: bool| {
            let wanted = move |record: &SessionRecord| {
                !record.unreclaimable && may_hold == record.locks.as_ref().is_none_or(|locks| !locks.is_empty())
            };
            sessions.iter().filter(move |(_, record)| wanted(record)).filter_map(|(id, record)| Some((*id, record.address?)))
        };
        Self { left: of_kind(false).chain(of_kind(true)).collect(), due: None }
    }

    /// The server serves.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.due = (!self.left.is_empty()).then_some(now);
    }

    /// When the next ones are due.
    pub(crate) const fn due(&self) -> Option<Instant> {
        self.due
    }

    /// The next ones, which are not called again.
    fn take(&mut self, now: Instant) -> Vec<(SessionId, SocketAddr)> {
        let next = self.left.split_off(self.left.len().saturating_sub(AT_ONCE));
        self.due = (!self.left.is_empty()).then(|| now.plus(PAUSE));
        next
    }
}

impl Server {
    /// Calls those whose turn it is.
    pub(crate) fn call_agents(&mut self) {
        //= wire-spec.md#11-10-groups-of-servers
        //# A server MUST NOT send more than one call for a session in one tenure, nor all of them at once; those of sessions that may hold something
        //# go first.
        for (session, address) in self.calls.take(self.now).into_iter().rev() {
            // Who has completed its reclaim by now is here already.
            if !self.sessions.find(session).and_then(|key| self.sessions.get(key)).is_some_and(Session::is_recorded) {
                continue;
            }
            let path = Path::to(address);
            if self.form() == Form::Record {
                self.sealed_hint(path, session, CALL);
            } else if let Some(packet) = self.transport.handshake_packet() {
                self.send_loose(path, session, packet, &[Message::Hint(Hint { echo: CALL, detail: Bytes8(b"") })]);
            }
        }
    }
}
