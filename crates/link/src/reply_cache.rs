//! At most once, the server's side: what became of each request in the window of one session.
//!
//! Decides whether a request may be executed, and what a duplicate is answered. On the way in after the replay
//! window (which knows packets, not requests) and before dispatch; on the way out each reply passes here before
//! it is sent. Implements `wire-spec.md` sections 11.1, 11.2 and 11.3.
//! Invariant: a nonce is begun at most once, for ever. An entry leaves only when the floor that the agent
//! announced passes it, and a nonce below the floor, or at floor + W or above, is never begun; so the cache holds
//! at most W entries, and what it forgot can no longer be asked for.
//! Leaves to the server: standing (a session timing out gets NACK also for what is kept here), encoding, echoes
//! of duplicates, durability: `finish` only what a crash cannot take back.

use crate::bugs::{self, Bug};
use crate::reply_buffers::{Kept, ReplyBuffers};
use alloc::collections::VecDeque;

/// The reply to one request, kept for its duplicates until the agent no longer waits for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stored {
    /// The encoded reply, errors included, without its echo: each answer echoes the transmission that it answers.
    Bytes(Kept),
    /// The request only read, and its reply was too big to keep: a duplicate reads anew, which changes nothing.
    Recompute,
}

/// What a request is that has arrived from a session in good standing.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission<'a> {
    /// New: to be executed, after [`ReplyCache::begin`], or refused with no trace left.
    Fresh,
    /// Begun and not finished: answered "pending".
    Executing,
    /// Finished: answered by the same reply, with a fresh echo.
    Done(&'a Stored),
    /// Answered "queued" before, so its nonce is retired: answered "queued" again; the outcome is a notice.
    Queued,
    /// Said never to be executed: cancelled, or reported so after a delivery failure.
    Fenced,
    /// The agent said that it no longer waits for this: not executed, not answered.
    BelowFloor,
    /// It announces a floor that no agent can have: nothing acts.
    Ahead,
    /// Further ahead than the window allows: not executed; the agent is in error.
    BeyondWindow,
    /// Another request went under this nonce before: not executed; the agent is in error.
    OtherBody,
}

/// What a NACK may say about a nonce (section 11.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was executed, once; the reply may still be kept. A queued request counts: it took its place in the queue.
    Executed,
    /// It was not executed and never will be in this session.
    NotExecuted,
    /// It may have been executed, or may yet be.
    Unknown,
}

/// What is known of one nonce of the window.
#[derive(Debug)]
enum Slot {
    /// Nothing has arrived.
    Free,
    /// Begun; `packet` is the newest received transmission that carried it.
    Executing {
        digest: u64,
        packet: u64,
    },
    Queued {
        digest: u64,
    },
    Done {
        digest: u64,
        stored: Stored,
    },
    /// Never to be executed, whatever body it comes with.
    Fenced,
}

/// The replies of one session, by nonce, for at most W nonces from the floor on.
///
/// A session that never asked anything costs the size of this value and no allocation.
#[derive(Debug)]
pub struct ReplyCache {
    /// The highest floor announced; nonces start at 1.
    floor: u64,
    /// What is known of `floor`, `floor + 1`, ... as far as anything is known.
    slots: VecDeque<Slot>,
    window: u16,
    /// Requests begun and not ended, also those that the floor has passed.
    executing: u16,
    /// How many steps of the floor in a row have found a quarter of the slots' memory to be enough.
    calm: u8,
}

/// After so many of them half of that memory is given back: an agent that has several requests on their way again and again keeps it.
const CALM_MAX: u8 = 32;

// Part of the 512 bytes that an idle session may cost, and of the 8 KiB with a window of 64.
const _: () = assert!(size_of::<ReplyCache>() <= 48 && size_of::<Slot>() <= 32);

impl ReplyCache {
    /// The cache of a new session whose agent keeps at most `window` (W, at least 1) nonces from its floor on.
    #[must_use]
    pub const fn new(window: u16) -> Self {
        assert!(window > 0, "a window of 0 would admit nothing");
        Self { floor: 1, slots: VecDeque::new(), window, executing: 0, calm: 0 }
    }

    /// Judges an arrived request: its `nonce`, the `floor` it announces, and a digest of its body. Raises the floor,
    /// changes nothing else: a `Fresh` one that is refused (a table is full) may come again.
    ///
    /// A `Done` one that is answered anew is judged by the session's standing first.
    #[inline]
    pub fn admit(&mut self, nonce: u64, floor: u64, digest: u64, buffers: &mut ReplyBuffers) -> Admission<'_> {
        if !self.raise_floor(floor, buffers) {
            return Admission::Ahead;
        }
        if nonce < self.floor {
            //= wire-spec.md#11-2-delivery
            //# The server MUST NOT execute a request whose nonce is below the floor.
            return if bugs::is(Bug::M30) { Admission::Fresh } else { Admission::BelowFloor };
        }
        self.plant(nonce);
        if nonce - self.floor >= u64::from(self.window) {
            //= wire-spec.md#11-2-delivery
            //# The server MUST NOT execute a request whose nonce is the floor plus W or more.
            return Admission::BeyondWindow;
        }
        let known = match self.slot(nonce) {
            None | Some(Slot::Free) => return Admission::Fresh,
            Some(Slot::Fenced) => return Admission::Fenced,
            Some(Slot::Executing { digest, .. }) => (digest, Admission::Executing),
            Some(Slot::Queued { digest }) => (digest, Admission::Queued),
            Some(Slot::Done { digest, stored }) => (digest, Admission::Done(stored)),
        };
        //= wire-spec.md#11-2-delivery
        //# A request under a nonce first used for another request MUST NOT be executed, and is answered NONCE_REUSED.
        if *known.0 == digest { known.1 } else { Admission::OtherBody }
    }

    /// Marks `nonce`, just admitted as `Fresh`, as executing; `packet` is the transmission that carried it.
    ///
    /// # Panics
    /// If it was not admitted as `Fresh`: it would be executed a second time (section 11.2).
    #[inline]
    pub fn begin(&mut self, nonce: u64, digest: u64, packet: u64) {
        if bugs::is(Bug::M30) && nonce < self.floor {
            self.executing = self.executing.saturating_add(1);
            return;
        }
        let len = self.slots.len() as u64;
        if nonce.checked_sub(self.floor) == Some(len) && self.slots.len() < self.slots.capacity().min(usize::from(self.window)) {
            // The next one after all that came, as nearly every request is.
            self.slots.push_back(Slot::Executing { digest, packet });
            self.filled();
            self.executing = self.executing.saturating_add(1);
            return;
        }
        let slot = self.slot_to_fill(nonce);
        let slot = slot.expect("a nonce outside the window was never admitted");
        //= wire-spec.md#11-2-delivery
        //# The server MUST execute a request at most once, however often it arrives.
        assert!(matches!(slot, Slot::Free), "nonce {nonce} would be executed twice");
        *slot = Slot::Executing { digest, packet };
        self.executing = self.executing.saturating_add(1);
    }

    /// Notes that `packet` carried `nonce` too: the answer of an executing request echoes the newest (section 11.1).
    ///
    /// Anything but an executing request is left alone: its answer echoes the duplicate that is being answered.
    pub fn note_packet(&mut self, nonce: u64, packet: u64) {
        if let Some(Slot::Executing { packet: newest, .. }) = self.slot_mut(nonce) {
            *newest = packet.max(*newest);
        }
    }

    /// The newest received transmission that carried the executing request `nonce`; `None` if none executes.
    #[must_use]
    pub fn newest_packet(&self, nonce: u64) -> Option<u64> {
        match self.slot(nonce) {
            Some(Slot::Executing { packet, .. }) => Some(*packet),
            _ => None,
        }
    }

    /// Keeps the reply of the executing request `nonce`, and gives the packet number for its answer to echo.
    ///
    /// Called when the answer is produced, which for a mutation is when it is durable (sections 11.3 and 11.7). `None` if the
    /// floor has passed it: the agent no longer waits, so there is nothing to keep and nothing to send.
    ///
    /// # Panics
    /// If the request was not executing: one execution has one reply.
    pub fn finish(&mut self, nonce: u64, stored: Stored) -> Option<u64> {
        // The kind of the reply FAILED is 1.
        if bugs::is(Bug::M32) && matches!(&stored, Stored::Bytes(reply) if reply.first() == Some(&1)) {
            return self.conclude(nonce, |_| Slot::Free);
        }
        self.conclude(nonce, |digest| Slot::Done { digest, stored })
    }

    /// Retires the executing request `nonce` as one that waits for a lock (section 11.2), and gives the packet number for
    /// its answer "queued" to echo. `None` if the floor has passed it.
    ///
    /// # Panics
    /// If the request was not executing.
    pub fn queue(&mut self, nonce: u64) -> Option<u64> {
        self.conclude(nonce, |digest| Slot::Queued { digest })
    }

    /// Fences the executing request `nonce`: the caller dropped it before it had any effect and will not take it
    /// up again (a cancelled wait, a parked request of a session that ends; section 11.3). False if the floor has passed it.
    ///
    /// # Panics
    /// If the request was not executing.
    pub fn withdraw(&mut self, nonce: u64) -> bool {
        self.conclude(nonce, |_| Slot::Fenced).is_some()
    }

    /// What is certain about `nonce` now; for what has not arrived that is `Unknown`, until it is fenced.
    #[must_use]
    pub fn fate(&self, nonce: u64) -> Fate {
        match self.slot(nonce) {
            Some(Slot::Done { .. } | Slot::Queued { .. }) => Fate::Executed,
            Some(Slot::Fenced) => Fate::NotExecuted,
            Some(Slot::Executing { .. } | Slot::Free) | None => Fate::Unknown,
        }
    }

    /// Makes sure that `nonce`, if it has not begun, never will; gives what is then certain about it.
    ///
    /// `NotExecuted` is a promise: the nonce is admitted as `Fenced` or `BelowFloor` from now on (sections 11.3 and 11.4).
    /// `Unknown` for what is executing, below the floor, or beyond the window, where nothing can be remembered.
    pub fn fence(&mut self, nonce: u64) -> Fate {
        if let Some(slot @ Slot::Free) = self.slot_to_fill(nonce) {
            //= wire-spec.md#11-3-failure-and-ending
            //# A request of which the server has said "not executed" MUST NOT be executed afterwards.
            *slot = Slot::Fenced;
        }
        self.fate(nonce)
    }

    /// The kept reply of `nonce`, for a RESULT or a NACK that carries it.
    #[must_use]
    pub fn stored(&self, nonce: u64) -> Option<&Stored> {
        match self.slot(nonce) {
            Some(Slot::Done { stored, .. }) => Some(stored),
            _ => None,
        }
    }

    /// Raises the floor to `floor`, if that is higher, and forgets what is below: any message may announce it. The memory of the
    /// replies forgotten goes to `buffers`. False, and nothing is changed, if it is more than W above the floor kept:
    /// no agent announces that.
    #[inline]
    pub fn raise_floor(&mut self, floor: u64, buffers: &mut ReplyBuffers) -> bool {
        //= wire-spec.md#11-2-delivery
        //# The server MUST NOT act on a message that announces a floor more than W above the one it keeps.
        if floor.saturating_sub(self.floor) > u64::from(self.window) && !bugs::is(Bug::A8) {
            return false;
        }
        //= wire-spec.md#11-2-delivery
        //# The server MUST keep the highest floor that was announced.
        if floor > self.floor {
            self.pass(floor, floor - self.floor, buffers);
        }
        true
    }

    /// Forgets the `passed` nonces below `floor`.
    fn pass(&mut self, floor: u64, passed: u64, buffers: &mut ReplyBuffers) {
        let gone = usize::try_from(passed).unwrap_or(usize::MAX).min(self.slots.len());
        //= wire-spec.md#11-2-delivery
        //# The server MUST keep the outcome of a nonce until the floor has passed it.
        // One by one: most often there is one.
        for _ in 0..gone {
            if let Some(Slot::Done { stored: Stored::Bytes(kept), .. }) = self.slots.pop_front() {
                buffers.take_back(kept);
            }
        }
        self.floor = floor;
        self.shrink();
        self.check();
    }

    /// Forgets the replies themselves; what became of each request stays known.
    pub fn forget_replies(&mut self) {
        for slot in &mut self.slots {
            if let Slot::Done { stored, .. } = slot {
                *stored = Stored::Recompute;
            }
        }
    }

    /// The lowest nonce that the agent still waits for, as far as it has said.
    #[must_use]
    pub const fn floor(&self) -> u64 {
        self.floor
    }

    /// How many nonces from the floor on may begin, W.
    #[must_use]
    pub const fn window(&self) -> u16 {
        self.window
    }

    /// How many requests were begun and have not ended: also those for which the agent no longer waits, which the window does not
    /// bound.
    #[must_use]
    pub const fn executing(&self) -> u16 {
        self.executing
    }

    /// How many nonces something is remembered about, gaps included: at most W.
    #[must_use]
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether nothing is remembered but the floor.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The bytes of replies kept now.
    #[cfg(test)]
    fn stored_bytes(&self) -> usize {
        let bytes = self.slots.iter().map(|slot| match slot {
            Slot::Done { stored: Stored::Bytes(bytes), .. } => bytes.len(),
            _ => 0,
        });
        bytes.sum()
    }

    /// Moves an executing request to its end; gives the newest packet that carried it.
    fn conclude(&mut self, nonce: u64, end: impl FnOnce(u64) -> Slot) -> Option<u64> {
        self.executing = self.executing.saturating_sub(1);
        if nonce < self.floor {
            return None;
        }
        match self.slot_mut(nonce) {
            Some(slot @ &mut Slot::Executing { digest, packet }) => {
                *slot = end(digest);
                Some(packet)
            }
            other => panic!("nonce {nonce} ends but is not executing: {other:?}"),
        }
    }

    fn index(&self, nonce: u64) -> Option<usize> {
        usize::try_from(nonce.checked_sub(self.floor)?).ok()
    }

    fn slot(&self, nonce: u64) -> Option<&Slot> {
        self.slots.get(self.index(nonce)?)
    }

    fn slot_mut(&mut self, nonce: u64) -> Option<&mut Slot> {
        let at = self.index(nonce)?;
        self.slots.get_mut(at)
    }

    /// The slot of `nonce`, made with all before it if nothing was known so far; `None` outside the window.
    fn slot_to_fill(&mut self, nonce: u64) -> Option<&mut Slot> {
        let at = self.index(nonce).filter(|at| *at < usize::from(self.window))?;
        if self.slots.capacity() == 0 {
            // Most agents ask one thing at a time, and fall silent after that: room for one, not for the usual four.
            self.slots.reserve_exact(1);
        }
        while self.slots.len() <= at {
            self.slots.push_back(Slot::Free);
        }
        self.filled();
        self.slots.get_mut(at)
    }

    /// There are more slots than before.
    #[inline]
    fn filled(&mut self) {
        if self.slots.len() > self.slots.capacity() / 4 {
            self.calm = 0;
        }
        self.check();
    }

    /// Gives back the memory of bursts that come no more: half of it when a quarter has been enough for a while.
    fn shrink(&mut self) {
        let capacity = self.slots.capacity();
        if capacity <= 4 || self.slots.len() > capacity / 4 {
            return;
        }
        self.calm += 1;
        if self.calm == CALM_MAX {
            self.calm = 0;
            self.slots.shrink_to(capacity / 2);
        }
    }

    /// Forgets what a deliberate bug forgets, before `nonce` is judged.
    fn plant(&mut self, nonce: u64) {
        let newer = |slot: &&Slot| matches!(slot, Slot::Done { .. });
        let crowded = || self.index(nonce).is_some_and(|at| self.slots.iter().skip(at + 1).filter(newer).count() >= 2);
        let crowded = bugs::is(Bug::M27) && crowded();
        if let Some(slot) = self.slot_mut(nonce)
            && (crowded && matches!(slot, Slot::Done { .. }) || bugs::is(Bug::M29) && matches!(slot, Slot::Executing { .. }))
        {
            *slot = Slot::Free;
        }
    }

    fn check(&self) {
        debug_assert!(self.floor > 0, "nonce 0 is never above the floor");
        debug_assert!(self.slots.len() <= usize::from(self.window), "the window bounds the cache");
    }
}

#[cfg(test)]
mod orders;

#[cfg(test)]
mod tests;
