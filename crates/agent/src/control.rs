//! Control messages on their way: KEEPALIVE, RELEASE, RELEASE_ALL, CANCEL, END_SESSION.
//!
//! Decides: that each is sent again until it is answered, and that it waits neither for the window nor for congestion (R26, R27).
//! Implements `wire-spec.md` section 6.3. Place in the walk: filled by `notices`, `renewal` and `Agent::pump`, emptied by `incoming`.
//! Invariant: each is idempotent, so sending it once too often is harmless and never sending it again is not.
//! Leaves to others: when one is needed.

use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;
use cistern_wire::{Generation, LockId, Message, ReleaseItem};

/// Most locks in one RELEASE: with 26 bytes each, it fits the smallest datagram.
pub(crate) const RELEASE_ITEMS_MAX: usize = 16;

/// A control message that is not answered yet.
#[derive(Debug)]
pub(crate) enum Control {
    KeepAlive,
    Release(Vec<ReleaseItem>),
    ReleaseAll(Generation),
    Cancel(u64),
    End(cistern_wire::EndReason),
}

/// A control message and how often it was sent.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) control: Control,
    pub(crate) sent: u32,
}

/// All control messages of a session that are not answered yet.
#[derive(Debug, Default)]
pub(crate) struct Controls {
    pending: BTreeMap<u64, Outgoing>,
    ready: VecDeque<u64>,
    serial: u64,
    /// Locks to be given back, not in a message yet: those of one turn go together.
    releases: Vec<ReleaseItem>,
}

impl Controls {
    pub(crate) fn push(&mut self, control: Control) -> u64 {
        self.serial += 1;
        self.pending.insert(self.serial, Outgoing { control, sent: 0 });
        self.ready.push_back(self.serial);
        self.serial
    }

    pub(crate) fn release(&mut self, item: ReleaseItem) {
        self.releases.push(item);
    }

    /// Puts the locks to be given back into messages.
    pub(crate) fn gather(&mut self) {
        for items in core::mem::take(&mut self.releases).chunks(RELEASE_ITEMS_MAX) {
            self.push(Control::Release(items.to_vec()));
        }
    }

    pub(crate) fn get(&self, serial: u64) -> Option<&Outgoing> {
        self.pending.get(&serial)
    }

    /// The next that is to be sent.
    pub(crate) fn next_ready(&self) -> Option<u64> {
        self.ready.front().copied()
    }

    pub(crate) fn sent(&mut self) -> Option<&mut Outgoing> {
        let serial = self.ready.pop_front()?;
        let outgoing = self.pending.get_mut(&serial)?;
        outgoing.sent += 1;
        Some(outgoing)
    }

    /// The time of a transmission is over.
    pub(crate) fn expired(&mut self, serial: u64) {
        if self.pending.contains_key(&serial) && !self.ready.contains(&serial) {
            self.ready.push_back(serial);
        }
    }

    /// The answer came.
    pub(crate) fn answered(&mut self, serial: u64) -> Option<Control> {
        self.ready.retain(|ready| *ready != serial);
        self.pending.remove(&serial).map(|outgoing| outgoing.control)
    }

    /// Some locks of a RELEASE are answered; the whole is, when all of them are.
    pub(crate) fn released(&mut self, serial: u64, answered: impl Iterator<Item = LockId> + Clone) -> bool {
        if let Some(Outgoing { control: Control::Release(items), .. }) = self.pending.get_mut(&serial) {
            items.retain(|item| !answered.clone().any(|lock| lock == item.lock));
            if !items.is_empty() {
                return false;
            }
        }
        self.answered(serial).is_some()
    }

    /// Forgets all but one.
    pub(crate) fn keep_only(&mut self, serial: u64) {
        self.releases.clear();
        self.pending.retain(|kept, _| *kept == serial);
        self.ready.retain(|kept| *kept == serial);
    }

    /// The serial of a keep-alive that is out, if one is.
    pub(crate) fn keep_alive(&self) -> Option<u64> {
        self.pending.iter().find(|(_, outgoing)| matches!(outgoing.control, Control::KeepAlive)).map(|(serial, _)| *serial)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pending.is_empty() && self.releases.is_empty()
    }
}

impl Control {
    /// The message, for one transmission.
    pub(crate) fn message(&self, serial: u64, clock_us: u64) -> Message<'_> {
        match self {
            Self::KeepAlive => cistern_wire::KeepAlive { serial, clock_us }.into(),
            Self::Release(items) => cistern_wire::Release { serial, items: cistern_wire::List::of(items) }.into(),
            Self::ReleaseAll(up_to) => cistern_wire::ReleaseAll { serial, up_to: *up_to }.into(),
            Self::Cancel(nonce) => cistern_wire::Cancel { serial, nonce: *nonce }.into(),
            Self::End(reason) => cistern_wire::EndSession { serial, reason: *reason }.into(),
        }
    }
}
