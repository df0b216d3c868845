//! Who holds which lock, as the wire shows it: a lock table kept outside the server.
//!
//! Decides holds from what the server has sent (grants) and received (releases, receipts "not held", ends of sessions). Place in the
//! walk: brought up to date after the families have looked, so that they see a grant before it is in the table.
//! Invariant: a hold is in the table from the moment its grant leaves the server until nothing can make its agent use it: so a
//! conflicting grant that leaves meanwhile is wrong, whatever the reason.
//! Leaves to others: whether a grant may leave (`server_rule`, `grace`, `tokens`).

use super::case::{Case, Granting, grants_of};
use super::sessions::Sessions;
use crate::observe::True;
use cistern_link::Instant;
use cistern_wire::{Generation, Keep, LockId, Message, Mode, ReceiptAnswer, ReclaimItem, Reply, SessionId, Status};
use std::collections::BTreeMap;

/// One lock of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hold {
    pub(super) session: SessionId,
    pub(super) mode: Mode,
    pub(super) generation: Generation,
    pub(super) run: u32,
    /// Version of the object when a cache lock was granted: its session has heard of everything up to it.
    pub(super) version: u64,
    pub(super) since: True,
    pub(super) reclaimed: bool,
}

/// A lock that changed hands in a reclaim.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reclaiming {
    pub(super) from: SessionId,
    pub(super) item: ReclaimItem,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub(super) struct Locks {
    holds: BTreeMap<LockId, Vec<Hold>>,
    /// Up to which generation a session has disowned a lock for ever (section 11.4).
    disowned: BTreeMap<(SessionId, LockId), Generation>,
    /// Which generation each notice named: demands, and grants from the queue.
    notices: BTreeMap<(SessionId, u64), (LockId, Generation)>,
    reclaims: BTreeMap<(SessionId, u64), Vec<Reclaiming>>,
}

impl Locks {
    /// Everybody who holds a lock.
    pub(super) fn holders(&self, lock: LockId) -> impl Iterator<Item = &Hold> {
        self.holds.get(&lock).into_iter().flatten()
    }

    /// A session's hold of a lock.
    pub(super) fn hold(&self, session: SessionId, lock: LockId) -> Option<&Hold> {
        self.holders(lock).find(|hold| hold.session == session)
    }

    /// Whether a grant gives its session something that it did not have: not a repetition, nor one that it has disowned already.
    pub(super) fn is_news(&self, session: SessionId, grant: &Granting) -> bool {
        self.adds_hold(session, grant.lock, grant.generation)
    }

    /// Whether a session that is told of this generation now holds more than before.
    fn adds_hold(&self, session: SessionId, lock: LockId, generation: Generation) -> bool {
        let disowned = self.disowned.get(&(session, lock)).is_some_and(|up_to| generation <= *up_to);
        !disowned && self.hold(session, lock).is_none_or(|hold| hold.generation < generation)
    }

    /// The locks asked for by a RECLAIM, if this nonce was one.
    pub(super) fn reclaim(&self, session: SessionId, nonce: u64) -> Option<&[Reclaiming]> {
        self.reclaims.get(&(session, nonce)).map(Vec::as_slice)
    }

    /// Holds of other sessions that do not go with a mode.
    pub(super) fn conflicts(&self, session: SessionId, lock: LockId, mode: Mode) -> impl Iterator<Item = &Hold> {
        self.holders(lock).filter(move |hold| hold.session != session && !hold.mode.compatible(mode))
    }

    /// Takes one happening in.
    pub(super) fn note(&mut self, case: &Case<'_>, sessions: &Sessions) {
        if let Some(packet) = case.sent_by_server() {
            for message in &packet.messages {
                self.told(case, packet.session(), message);
            }
        }
        if let Some(packet) = case.received_by_server() {
            for message in &packet.messages {
                self.heard(packet.session(), message);
            }
        }
        if matches!(case.seen, crate::observe::Seen::Durable { .. } | crate::observe::Seen::Started { .. }) {
            self.forget_over(case.server_now(), sessions);
        }
    }

    /// What the server says.
    fn told(&mut self, case: &Case<'_>, session: SessionId, message: &Message<'_>) {
        for grant in grants_of(message) {
            if self.is_news(session, &grant) {
                let Granting { lock, mode, generation, run, version, .. } = grant;
                self.put(lock, Hold { session, mode, generation, run, version, since: case.sight.now, reclaimed: false });
            }
        }
        match message {
            Message::Demand(demand) => {
                self.notices.insert((session, demand.seq), (demand.lock, demand.generation));
            }
            Message::Grant(grant) => {
                self.notices.insert((session, grant.seq), (grant.lock, grant.generation));
            }
            Message::Released(released) => {
                for item in released.items.iter().filter(|item| item.keep == Keep::Shared && item.now.0 > 0) {
                    if let Some(hold) = self.hold_mut(session, item.lock).filter(|hold| hold.generation < item.now) {
                        hold.mode = Mode::Shared;
                        hold.generation = item.now;
                    }
                }
            }
            Message::Ack(ack) => {
                if let Reply::Reclaimed(reclaimed) = ack.reply {
                    self.reclaimed(case, session, ack.nonce, &reclaimed);
                }
            }
            _ => {}
        }
    }

    fn reclaimed(&mut self, case: &Case<'_>, session: SessionId, nonce: u64, reclaimed: &cistern_wire::Reclaimed<'_>) {
        let Some(asked) = self.reclaims.get(&(session, nonce)).cloned() else { return };
        for (asked, told) in asked.iter().zip(reclaimed.items.iter()) {
            if told.status != Status::OK {
                continue;
            }
            // The former session keeps its hold here: if this answer is lost in another restart, it is asked for from there again.
            let ReclaimItem { lock, mode, generation, run, .. } = asked.item;
            let hold = Hold { session, mode, generation, run, version: told.version, since: case.sight.now, reclaimed: true };
            // A repeated answer gives nothing back that was released since: the agent refuses that generation.
            if self.adds_hold(session, lock, generation) {
                self.put(lock, hold);
            }
        }
    }

    /// What the server hears.
    fn heard(&mut self, session: SessionId, message: &Message<'_>) {
        match message {
            Message::Release(release) => {
                for item in release.items.iter() {
                    self.released(session, item.lock, item.generation, item.keep);
                }
            }
            Message::Receipt(receipt) if receipt.answer == ReceiptAnswer::NotHeld => {
                if let Some((lock, generation)) = self.notices.get(&(session, receipt.seq)).copied() {
                    self.disown(session, lock, generation);
                }
            }
            Message::Reclaim(reclaim) => {
                let items = reclaim.items.iter().map(|item| Reclaiming { from: reclaim.from, item }).collect();
                self.reclaims.entry((session, reclaim.ask.nonce)).or_insert(items);
            }
            Message::ReclaimComplete(complete) => self.forget(complete.from),
            _ => {}
        }
    }

    fn released(&mut self, session: SessionId, lock: LockId, generation: Generation, keep: Keep) {
        if keep == Keep::Nothing {
            // It acts on no other generation; the agent will use none up to it.
            self.disown(session, lock, generation);
        } else if let Some(hold) = self.hold_mut(session, lock).filter(|hold| hold.generation == generation) {
            hold.mode = Mode::Shared;
        }
    }

    fn disown(&mut self, session: SessionId, lock: LockId, generation: Generation) {
        let up_to = self.disowned.entry((session, lock)).or_insert(generation);
        *up_to = (*up_to).max(generation);
        if let Some(holds) = self.holds.get_mut(&lock) {
            holds.retain(|hold| hold.session != session || hold.generation > generation);
        }
    }

    /// Sessions of which nothing can be used any more hold nothing.
    fn forget_over(&mut self, now: Instant, sessions: &Sessions) {
        for holds in self.holds.values_mut() {
            holds.retain(|hold| sessions.get(hold.session).is_none_or(|session| !session.is_over(now)));
        }
        self.holds.retain(|_, holds| !holds.is_empty());
    }

    fn forget(&mut self, session: SessionId) {
        for holds in self.holds.values_mut() {
            holds.retain(|hold| hold.session != session);
        }
    }

    fn hold_mut(&mut self, session: SessionId, lock: LockId) -> Option<&mut Hold> {
        self.holds.get_mut(&lock)?.iter_mut().find(|hold| hold.session == session)
    }

    fn put(&mut self, lock: LockId, hold: Hold) {
        let holds = self.holds.entry(lock).or_default();
        holds.retain(|old| old.session != hold.session);
        holds.push(hold);
    }
}
