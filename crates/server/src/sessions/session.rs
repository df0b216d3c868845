//! One session: an agent incarnation's standing with this server, and what is kept for it.
//!
//! Decides what a session consists of and what an idle one costs: nothing here grows unless the agent asks for something or
//! somebody waits for it. Place in the walk: found by its id right after decoding. Implements `wire-spec.md` section 6.
//! Invariant: no field of it is lease state (section 11.3); D and its timer are in [`Standing::TimingOut`] alone, and the standing is
//! changed only by `Sessions::apply`, so that the counts of sessions by standing are always right. What is heard last is a note that nobody
//! reads before D, made only where the setting `last-heard` asks for it. No renewing message comes into being for a session but by
//! [`Session::produce`], in good standing.
//! Leaves to others: everything that is done with it.

use crate::config::LEASE_MAX;
use crate::ids::{FlowId, LockSlot, Owner, PrincipalId, SessionKey};
use crate::sessions::notices::NoticeQueue;
use crate::sessions::standing::{ReclaimState, Standing};
use crate::store::SessionRecord;
use crate::tenure::Certain;
use crate::transport::Transport;
use crate::transport::lanes::{Lanes, Pool, Travel};
use crate::transport::validation::Roaming;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, PacketCounter, Path, ReplayWindow, ReplyCache};
use cistern_seal::Sealer;
use cistern_wire::{AgentId, Fate, Handle, ObjectId, SessionId};
use core::cell::Cell;
use core::fmt;
use core::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use core::time::Duration;

/// A session in the table.
#[derive(Debug)]
pub(crate) struct Session {
    /// Its name on the wire.
    pub(crate) id: SessionId,
    /// Its name before other agents.
    pub(crate) handle: Handle,
    /// Its name in the lock table.
    pub(crate) slot: LockSlot,
    /// Its owner's flow, once it is open.
    pub(crate) flow: FlowId,
    /// Who may do what it asks for.
    pub(crate) principal: PrincipalId,
    /// Whose it is.
    pub(crate) agent: AgentId,
    /// Which start of the agent.
    pub(crate) incarnation: u64,
    /// What people call the agent.
    pub(crate) label: Box<[u8]>,
    /// Its lease period τ, in microseconds: what WELCOME told.
    pub(crate) lease_us: u32,
    /// When it was opened, by the boot clock; for displays.
    pub(crate) opened_ns: u64,
    /// The proven address, to which everything goes (section 11.6).
    pub(crate) path: Path,
    /// The store has outcomes of it in no slot from this one on.
    pub(crate) outcomes: Cell<u16>,
    /// How long its agent took to prove its address, in microseconds, from the first challenge: no less than the round trip.
    round_trip_us: u32,
    /// Largest datagram, in bytes, that both sides take.
    pub(crate) max_datagram: u16,
    /// Whether it stands in the line of sessions that have something to send, or may not yet.
    pub(crate) in_line: bool,
    /// What protects its datagrams; of one of before the start nothing does.
    pub(crate) sealer: Sealer,
    /// Numbers of the datagrams sent.
    pub(crate) packets: PacketCounter,
    /// Numbers of the datagrams received.
    pub(crate) replay: ReplayWindow,
    /// What became of its requests.
    pub(crate) cache: ReplyCache,
    /// What is to be sent besides notices.
    pub(crate) lanes: Lanes,
    /// Its notices, once there was one.
    pub(crate) notices: Option<Box<NoticeQueue>>,
    /// Addresses that it may have moved to, or has left, once there was one.
    pub(crate) roaming: Option<Box<Roaming>>,
    /// Whether it was reported as a possible clone.
    pub(crate) reported: bool,
    standing: Standing,
    /// When the newest packet that a renewing message echoes had been received; `None` unless the setting `last-heard` is on, for it
    /// would be a time of a session in good standing.
    heard: Option<Instant>,
}

/// The handle of a session of an earlier start: none is drawn so.
const NO_HANDLE: Handle = Handle(0);
/// The address of a session that has none.
const NOWHERE: Path = Path::to(SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, 0)));

/// What a new session is made from.
#[derive(Debug)]
pub(crate) struct Opening {
    pub(crate) id: SessionId,
    pub(crate) handle: Handle,
    pub(crate) principal: PrincipalId,
    pub(crate) agent: AgentId,
    pub(crate) incarnation: u64,
    pub(crate) handshake: u64,
    pub(crate) label: Box<[u8]>,
    pub(crate) lease_us: u32,
    /// Numbers of the agent's datagrams in it, and of the server's.
    pub(crate) received: ReplayWindow,
    pub(crate) sent: PacketCounter,
    pub(crate) sealer: Sealer,
    pub(crate) now: Instant,
    pub(crate) path: Path,
    pub(crate) max_datagram: u16,
    pub(crate) window: u16,
    /// How long the handshake took from CHALLENGE to the HELLO with its cookie.
    pub(crate) round_trip: Duration,
    /// Whether to note when the session was heard last.
    pub(crate) last_heard: bool,
}

impl Opening {
    /// Whose it counts as.
    pub(crate) fn owner(&self) -> Owner {
        match self.sealer {
            Sealer::Plain => Owner::of(self.path.remote),
            Sealer::Sealed(_) => Owner::Key(self.principal),
        }
    }
}

// An idle session may cost 512 bytes with its places in the tables.
const _: () = assert!(size_of::<Session>() <= 336);

impl Session {
    /// A session whose record is on the way to the store: nothing is sent in it before that is durable, for it keeps its place in the line.
    pub(crate) fn new(from: Opening) -> Self {
        Self {
            id: from.id,
            handle: from.handle,
            slot: LockSlot::NONE,
            flow: FlowId::NONE,
            principal: from.principal,
            agent: from.agent,
            incarnation: from.incarnation,
            label: from.label,
            lease_us: from.lease_us,
            opened_ns: from.now.boot_ns,
            path: from.path,
            outcomes: Cell::new(0),
            round_trip_us: micros(from.round_trip),
            max_datagram: from.max_datagram,
            in_line: true,
            sealer: from.sealer,
            packets: from.sent,
            replay: from.received,
            cache: ReplyCache::new(from.window),
            lanes: Lanes::default(),
            notices: None,
            roaming: None,
            reported: false,
            standing: Standing::Good,
            heard: (from.last_heard || bugs::is(Bug::L1)).then_some(from.now),
        }
    }

    /// A session of an earlier start of the server, as the store has it: it has no address by which it may act, and nothing is sent in it.
    pub(crate) fn of_before(id: SessionId, record: SessionRecord, now: Instant) -> Self {
        let lease = Duration::from_micros(record.lease_us).min(LEASE_MAX);
        let mut session = Self::new(Opening {
            id,
            handle: NO_HANDLE,
            principal: record.principal,
            agent: record.agent,
            incarnation: record.incarnation,
            handshake: 0,
            label: record.label,
            lease_us: micros(lease),
            received: ReplayWindow::starting_at(1),
            sent: PacketCounter::starting_at(1),
            sealer: Sealer::Plain,
            now,
            path: NOWHERE,
            max_datagram: 0,
            window: record.window.max(1),
            round_trip: Duration::ZERO,
            last_heard: false,
        });
        // Nobody has counted them.
        session.outcomes.set(record.window);
        session.standing = Standing::Recorded { reclaim: if record.unreclaimable { ReclaimState::Forfeited } else { ReclaimState::Open } };
        session
    }

    /// Its lease period τ.
    pub(crate) const fn lease(&self) -> Duration {
        Duration::from_micros(self.lease_us as u64)
    }

    /// What the store keeps of it as long as it has not ended. `boot`: of its agent's machine, all zero if it is not known; `locks`: the
    /// objects of which it may hold locks, if it is long.
    pub(crate) fn record(&self, boot: [u8; 16], start: u64, unreclaimable: bool, locks: Option<Vec<ObjectId>>) -> SessionRecord {
        SessionRecord {
            principal: self.principal,
            agent: self.agent,
            incarnation: self.incarnation,
            boot,
            lease_us: self.lease_us.into(),
            window: self.cache.window(),
            unreclaimable,
            locks,
            start,
            address: (self.path.remote != NOWHERE.remote).then_some(self.path.remote),
            label: self.label.clone(),
        }
    }

    /// Appends what `encode` writes: one message to the agent. The only way by which one comes into being, and only while the server's lease of
    /// its group is certain.
    #[inline]
    fn produce(&mut self, certain: Certain, pool: &mut Pool, travel: Travel, encode: impl FnOnce(&mut Vec<u8>)) {
        if travel.kind.renews() {
            self.renewed(certain);
        }
        self.lanes.push(pool, travel, encode);
    }

    /// Appends what `encode` writes, and puts the session, `key`, into the line of those that have something to send.
    #[inline]
    pub(crate) fn push(
        &mut self,
        key: SessionKey,
        certain: Certain,
        transport: &mut Transport,
        travel: Travel,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.produce(certain, transport.pool(), travel, encode);
        transport.line_up(key, &mut self.in_line);
    }

    /// A message that renews was produced: every packet that it echoes had been received by now.
    pub(crate) fn renewed(&mut self, certain: Certain) {
        //= wire-spec.md#11-3-failure-and-ending
        //# From D on the server MUST NOT produce or release a message that renews the session's lease.
        assert!(self.standing.is_good(), "a message would renew {}, which is {} (section 11.3)", self.who(), self.standing.name());
        //= wire-spec.md#11-3-failure-and-ending
        //# Last heard: the server MUST note the receipt of every packet that it echoes, and wait no less than until D and until the newest
        //# note plus T.
        if let Some(heard) = &mut self.heard {
            *heard = certain.now();
        }
    }

    /// No packet received later was ever echoed by a message that renews (section 11.3); `None` if that is not noted.
    pub(crate) const fn heard(&self) -> Option<Instant> {
        self.heard
    }

    /// The round trip by its handshake, or by its last move: an upper bound.
    pub(crate) const fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us as u64)
    }

    /// It has moved to an address that took so long to prove itself: what was measured on the other path says nothing about this one.
    pub(crate) fn moved(&mut self, path: Path, round_trip: Duration) {
        self.path = path;
        self.round_trip_us = micros(round_trip);
        if let Some(notices) = &mut self.notices {
            notices.moved(round_trip);
        }
    }

    /// Its standing.
    pub(crate) const fn standing(&self) -> Standing {
        self.standing
    }

    /// Whether an address was proven by the agent of this session: the newest such, or one that it has left.
    pub(crate) fn is_proven(&self, path: Path) -> bool {
        self.path.remote == path.remote
            || self.roaming.as_ref().is_some_and(|roaming| roaming.left().iter().any(|left| left.remote == path.remote))
    }

    /// All that is kept of it but what its requests and notices leave behind, as text.
    #[rustfmt::skip]
    pub(crate) fn kept(&self) -> String {
        // Exhaustive, so that a new field is looked at.
        let Self {
            id, handle, agent, incarnation, label, lease_us, opened_ns, round_trip_us, path, max_datagram, roaming, reported, standing, heard,
            principal: _, slot: _, flow: _, outcomes: _, in_line: _, sealer: _, packets: _, replay: _, cache: _, lanes: _, notices: _,
        } = self;
        // A move that is under way is neither here nor there: it is noted when a datagram comes from elsewhere, whatever that renews.
        let left = roaming.as_ref().map(|roaming| roaming.left());
        let opened = (id, handle, agent, incarnation, label, lease_us, opened_ns, round_trip_us, max_datagram);
        format!("{opened:?} {path:?} {left:?} {reported} {standing:?} {heard:?}")
    }

    /// Changes the standing; for `Sessions::apply` alone, which counts.
    pub(crate) const fn set_standing(&mut self, standing: Standing) {
        self.standing = standing;
    }

    /// Whether it has ended, durably.
    pub(crate) const fn has_ended(&self) -> bool {
        matches!(self.standing, Standing::Ended { .. })
    }

    /// Whether it is of an earlier start, and still to be reclaimed or waited for.
    pub(crate) const fn is_recorded(&self) -> bool {
        matches!(self.standing, Standing::Recorded { .. })
    }

    /// Whether it is of an earlier start of the server.
    pub(crate) const fn is_of_before(&self) -> bool {
        self.handle.0 == NO_HANDLE.0
    }

    /// Whether it was opened since the start, and has not ended.
    pub(crate) const fn is_live(&self) -> bool {
        !self.has_ended() && !self.is_of_before()
    }

    /// Whether an agent may reclaim from it: it is its own, of the same incarnation, and nothing has become of it (section 11.7).
    pub(crate) fn is_reclaimable_by(&self, agent: AgentId, incarnation: u64) -> bool {
        let late = bugs::is(Bug::M38b) && self.is_of_before();
        self.agent == agent
            && (late || self.incarnation == incarnation && self.standing == Standing::Recorded { reclaim: ReclaimState::Open })
    }

    /// It has ended: keeps only what its agent may still be told.
    pub(crate) fn retire(&mut self) {
        self.cache.forget_replies();
        (self.notices, self.roaming) = (None, None);
        // Who still goes on is reported once more.
        self.reported = false;
    }

    /// What became of a request, now that the session has ended: nothing of it can execute any more, so what had not begun, or waited, never
    /// will.
    pub(crate) fn fate_after_end(&self, nonce: u64) -> Fate {
        if nonce < self.cache.floor() {
            Fate::Unknown
        } else if self.cache.fate(nonce) == cistern_link::Fate::Executed {
            Fate::Executed
        } else {
            Fate::NotExecuted
        }
    }

    /// Who it is, for logs.
    pub(crate) const fn who(&self) -> Who<'_> {
        Who(self)
    }
}

fn micros(span: Duration) -> u32 {
    u32::try_from(span.as_micros()).unwrap_or(u32::MAX)
}

/// A session in a line of the log: id, label and agent.
pub(crate) struct Who<'a>(&'a Session);

impl fmt::Display for Who<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Session { id, agent, incarnation, label, .. } = self.0;
        // The label is the agent's own word: what is not printable is escaped.
        write!(f, "session {id} of \"{}\" ({agent}/{incarnation})", label.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_link::{ReplyBuffers, Stored};

    #[test]
    fn fate_of_each_request_of_an_ended_session_is_told() {
        let mut session = Session::new(Opening {
            id: SessionId(7),
            handle: Handle(7),
            principal: PrincipalId::ANYBODY,
            agent: AgentId([1; 16]),
            incarnation: 1,
            handshake: 1,
            label: Box::from(*b"test"),
            lease_us: 2_000_000,
            received: ReplayWindow::starting_at(1),
            sent: PacketCounter::starting_at(1),
            sealer: Sealer::Plain,
            now: Instant::new(1, 1),
            path: Path::to(SocketAddr::from(([127, 0, 0, 1], 1))),
            max_datagram: 1_232,
            window: 8,
            round_trip: Duration::ZERO,
            last_heard: false,
        });
        let mut buffers = ReplyBuffers::default();
        for nonce in 3..=5 {
            session.cache.admit(nonce, 3, 0, &mut buffers);
            session.cache.begin(nonce, 0, 1);
        }
        session.cache.finish(3, Stored::Bytes(buffers.keep(b"reply")));
        session.cache.queue(5);
        session.retire();
        assert_eq!(session.cache.stored(3), Some(&Stored::Recompute), "the reply itself is not kept");
        assert_eq!(session.fate_after_end(2), Fate::Unknown, "forgotten");
        assert_eq!(session.fate_after_end(3), Fate::Executed);
        assert_eq!(session.fate_after_end(4), Fate::NotExecuted, "was parked, and is dropped");
        assert_eq!(session.fate_after_end(5), Fate::Executed);
        assert_eq!(session.fate_after_end(6), Fate::NotExecuted, "never came");
    }
}
