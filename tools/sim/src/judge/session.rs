//! One session as it is seen from outside: what was sent and received in it and when, and what became of it.
//!
//! Decides until when its agent's lease can be good at most, and when nothing of it can be used any more. Place in the walk: under
//! `sessions`, which brings it up to date.
//! Invariant: send times are readings of the agent's clock, receipts of the server's; the two never meet.
//! Leaves to others: what happens to sessions (`sessions`), whether it is right (the families).

use crate::observe::True;
use cistern_link::Instant;
use cistern_wire::SessionId;
use std::collections::BTreeMap;
use std::time::Duration;

/// Transmissions and receipts remembered per session.
const LOG_MAX: usize = 8_192;

/// When packets were sent or received, by number.
#[derive(Clone, Debug, Default)]
pub(super) struct PacketLog(BTreeMap<u64, Instant>);

impl PacketLog {
    pub(super) fn note(&mut self, packet: u64, at: Instant) {
        self.0.entry(packet).or_insert(at);
        if self.0.len() > LOG_MAX {
            self.0.pop_first();
        }
    }

    pub(super) fn get(&self, packet: u64) -> Option<Instant> {
        self.0.get(&packet).copied()
    }

    /// Whether it is not certain that the packet never was: it may have been forgotten.
    pub(super) fn may_be_forgotten(&self, packet: u64) -> bool {
        self.0.len() >= LOG_MAX && self.0.first_key_value().is_some_and(|(first, _)| packet < *first)
    }
}

/// Where the end of a session is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Record {
    /// Nothing was written of it.
    #[default]
    None,
    /// Its record is on the way to the disk.
    Writing,
    /// Its record is durable.
    Durable,
    /// Its end is on the way to the disk.
    Ending,
    /// Its end is durable.
    Ended,
}

/// How an agent gave a session up of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GivenUp {
    Closed,
    Surrendered,
    Reclaimed,
}

/// One session.
#[derive(Clone, Debug)]
pub(super) struct Session {
    pub(super) agent: Option<usize>,
    /// Which start of the agent has it.
    pub(super) agent_start: u64,
    /// τ, and T as the server promised it: τ(1+δ)+ε.
    pub(super) tau: Duration,
    pub(super) wait: Duration,
    /// Whether τ is above the server's own, so that after a restart nobody waits for it but whoever wants what it may hold.
    pub(super) long: bool,
    /// When it was opened, and by which epoch and incarnation of the server.
    pub(super) opened: True,
    pub(super) incarnation: (u8, u64),
    /// When the agent sent what, on its clock.
    pub(super) sends: PacketLog,
    /// When the server received what, on its clock.
    pub(super) receipts: PacketLog,
    /// When the server received anything in it last, on its clock.
    pub(super) heard: Option<Instant>,
    /// Receipt of the newest packet that was ever echoed in a renewing message: the lease can count from there at the latest.
    pub(super) echoed: Option<Instant>,
    /// Until when the agent's lease can be good, from what the agent received; on its clock.
    pub(super) lease_end: Option<Instant>,
    pub(super) record: Record,
    /// A NACK was sent for it; the agent has received one that it must believe.
    pub(super) nacked: bool,
    pub(super) nack_taken: Option<True>,
    pub(super) given_up: Option<GivenUp>,
    /// The former session from which this one reclaims, until the agent has said that it is through (section 11.7).
    pub(super) source: Option<SessionId>,
    /// D as seen from outside: when its standing was first seen not to be good, on the server's clock.
    pub(super) failed: Option<Instant>,
}

impl Session {
    /// An answer has come that echoes a transmission sent then: the lease can last for τ from there.
    pub(super) fn renew(&mut self, sent: Instant) {
        let end = sent.plus(self.tau);
        self.lease_end = Some(self.lease_end.map_or(end, |old| old.max(end)));
    }

    /// Whether nothing of it can be used any more at an instant of the server's clock: its end is durable, and it was given up, or the
    /// lease cannot last so long.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let lapsed = self.echoed.is_none_or(|receipt| now.waited(receipt.plus(self.wait)));
        self.record == Record::Ended && (self.given_up.is_some() || lapsed)
    }
}
