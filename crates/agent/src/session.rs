//! The open session: what WELCOME said, and the state of delivery in it.
//!
//! Decides: nothing by itself; it holds what `requests`, `control`, `incoming` and `transmit` work on.
//! Invariant: everything in it belongs to one session and goes with it, so nothing of an old session can meet a new one (R8, R57).
//! Leaves to others: opening it (`opening`), ending it (`recovery`).

use crate::control::Controls;
use crate::requests::Requests;
use cistern_link::congestion::WINDOW_INITIAL;
use cistern_link::{Instant, Nonces, Path, ReplayWindow, RoundTrip, Window};
use cistern_wire::{Receipt, SessionId, Welcome};
use alloc::collections::VecDeque;
use core::time::Duration;

/// Most receipts that wait to be sent; older ones are sent again when their notice is repeated.
const RECEIPTS_MAX: usize = 1_024;

/// The open session.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: SessionId,
    /// Where it is reached.
    pub(crate) path: Path,
    /// τ.
    pub(crate) lease: Duration,
    /// Window W.
    pub(crate) window: u16,
    /// Largest datagram, in bytes.
    pub(crate) max_datagram: usize,
    /// What answers are asked to fit, in bytes: smaller when larger ones got lost (R28).
    pub(crate) path_limit: u16,
    pub(crate) replay: ReplayWindow,
    pub(crate) nonces: Nonces,
    /// The nonce after the newest.
    pub(crate) next_nonce: u64,
    pub(crate) requests: Requests,
    pub(crate) controls: Controls,
    pub(crate) receipts: VecDeque<Receipt>,
    /// PATH_RESPONSEs to send.
    pub(crate) responses: VecDeque<(Path, u64)>,
    pub(crate) round_trip: RoundTrip,
    pub(crate) congestion: Window,
    /// When the server was last heard in this session.
    pub(crate) heard: Instant,
}

impl Session {
    pub(crate) fn new(welcome: &Welcome<'_>, path: Path, now: Instant) -> Self {
        let lease = Duration::from_micros(welcome.lease_us);
        Self {
            id: welcome.session,
            path,
            lease,
            window: welcome.window.max(1),
            max_datagram: usize::from(welcome.max_datagram),
            path_limit: welcome.max_datagram,
            replay: ReplayWindow::new(),
            nonces: Nonces::new(),
            next_nonce: 1,
            requests: Requests::default(),
            controls: Controls::default(),
            receipts: VecDeque::new(),
            responses: VecDeque::new(),
            // R27: not more than τ/8 while locks are held; an agent without locks is in no less hurry.
            round_trip: RoundTrip::new(lease / 8),
            congestion: Window::new(usize::from(welcome.window.max(1)).max(WINDOW_INITIAL)),
            heard: now,
        }
    }

    /// A notice was taken in: its receipt is to be sent.
    pub(crate) fn receipt(&mut self, receipt: Receipt) {
        if self.receipts.len() == RECEIPTS_MAX {
            self.receipts.pop_front();
        }
        self.receipts.push_back(receipt);
    }
}
