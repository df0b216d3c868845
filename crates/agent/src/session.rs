//! What belongs to one session and dies with it: numbers, send times, windows, and what waits to be sent in it.
//!
//! Decides nothing; keeps together what must never outlive the session or be mixed with another's (R1, R22, R44, R57).
//! Place in the walk: made by `opening` from WELCOME, used by `incoming` and `outgoing`, taken apart by `recovery`.
//! Implements `wire-spec.md` sections 3.2 and 11.6. Invariant: every transmission is in the log before the driver has its bytes.
//! Leaves to others: the lease and the locks, which are asked at every use and so live beside it.

use crate::control::Controls;
use crate::requests::Requests;
use alloc::collections::{BTreeMap, VecDeque};
use cistern_link::{Instant, PacketCounter, Path, ReplayWindow, RoundTrip, SentLog, TimerQueue};
use cistern_wire::{ObjectId, Receipt, SessionId};
use core::time::Duration;

/// Most receipts that wait to be sent; a notice beyond them is not taken in, and comes again.
pub(crate) const RECEIPTS_MAX: usize = 256;

/// Why a session has to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Overdue {
    /// This request was not answered in time, or is to be asked about again.
    Request(u64),
    /// This control message was not answered in time.
    Control(u64),
}

/// An open session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Where its datagrams go.
    pub(crate) path: Path,
    /// Which of the server's addresses that is.
    pub(crate) address: usize,
    pub(crate) tau: Duration,
    pub(crate) counter: PacketCounter,
    pub(crate) log: SentLog,
    pub(crate) replay: ReplayWindow,
    /// Which notices have come before; for counting each once.
    pub(crate) notices: ReplayWindow,
    pub(crate) rtt: RoundTrip,
    pub(crate) requests: Requests,
    pub(crate) controls: Controls,
    pub(crate) receipts: VecDeque<Receipt>,
    pub(crate) timers: TimerQueue<Overdue>,
    /// Lock requests that are being taken back, by nonce.
    pub(crate) cancels: BTreeMap<u64, ObjectId>,
    /// The last PATH_CHALLENGE that was not answered yet.
    pub(crate) challenged: Option<u64>,
    /// When something that will be answered was sent for the first time last: its answer may renew the lease.
    pub(crate) asked: Option<Instant>,
    /// When this host moved, as long as nothing that was sent since has been answered.
    pub(crate) moved: Option<Instant>,
    /// Timeouts since the server was heard last.
    pub(crate) silence: u32,
    /// Nothing is in use and the server is silent: what is unanswered waits until one of the two changes.
    pub(crate) dormant: bool,
}

impl Session {
    /// When a transmission was sent, if its echo may renew: sent in this session, and remembered (R1).
    pub(crate) fn sent_at(&self, echo: u64) -> Option<Instant> {
        self.log.sent_at(echo)
    }

    /// Whether a transmission of this number was ever made in this session.
    pub(crate) const fn was_sent(&self, echo: u64) -> bool {
        self.counter.has_dealt(echo)
    }

    /// What waits because nobody needed its answer goes out again.
    pub(crate) fn wake(&mut self) {
        if core::mem::replace(&mut self.dormant, false) {
            self.controls.wake();
        }
    }

    /// The lease was renewed, or is not worth it.
    pub(crate) fn stop_keeping(&mut self) {
        if let Some(serial) = self.controls.stop_keeping() {
            self.timers.cancel(Overdue::Control(serial));
        }
    }

    /// Whether something can be sent now that waits for no window.
    pub(crate) fn has_urgent(&self) -> bool {
        !self.receipts.is_empty() || self.controls.has_due() || self.challenged.is_some()
    }
}
