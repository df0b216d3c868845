//! Control messages: KEEPALIVE, RELEASE, CANCEL, END_SESSION, RECEIPT.
//!
//! Decides their effect and their answers. None waits for anything; each is idempotent, for it names a generation, a nonce or the
//! session itself. Place in the walk: after `dispatch`. Implements `wire-spec.md` sections 6.3 and 6.4.
//! Invariant: from a session that is timing out, receipts, releases, path messages and its surrender are accepted, and nothing
//! renews (section 11.3); a lock leaves only by a release or refusal that names its generation (section 8.2).
//! Leaves to others: the lock table, rescue and the end of a session (`lifecycle`).

use crate::locks::CancelResult;
use crate::server::Server;
use crate::server::dispatch::MessageCx;
use crate::server::lifecycle::Pending;
use crate::sessions::SessionKey;
use crate::sessions::standing::{Cause, Standing};
use crate::stats::Dropped;
use cistern_link::Fate as Known;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{
    Alive, Cancel, CancelOutcome, Cancelled, EndReason, EndSession, Fate, Generation, KeepAlive, List, Message, Receipt, Release, Released,
};
use log::debug;

/// What became of a control message.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Taken {
    /// It was acted on, or dropped; what there is to answer is queued.
    #[default]
    Done,
    /// It needs a session in good standing.
    Refused,
}

impl Server {
    pub(crate) fn keep_alive(&mut self, origin: MessageCx, message: &KeepAlive) -> Taken {
        if bugs::is(Bug::M48) && self.tasks.len() >= 3 {
            return Taken::Done;
        }
        if !self.is_good(origin.key) {
            return Taken::Refused;
        }
        //= wire-spec.md#11-7-restart-and-recovery
        //# A message that shows no effect of a transaction MUST NOT wait for it.
        self.push_urgent(origin.key, &Message::Alive(Alive { serial: message.serial, echo: origin.packet }));
        Taken::Done
    }

    //= wire-spec.md#6-3-control
    //# A control message MUST be acted on and answered each time it arrives, with the effect of one.
    pub(crate) fn release(&mut self, origin: MessageCx, message: &Release<'_>) -> Taken {
        let key = origin.key;
        if !self.may_give_back(key) {
            return Taken::Refused;
        }
        self.long.note(key.id());
        let mut items = core::mem::take(&mut self.released_buffer);
        items.clear();
        for item in message.items {
            debug!("{}: session {} releases {} generation {}", self.who, key.id(), item.lock, item.generation);
            //= wire-spec.md#11-3-failure-and-ending
            //# A release in a session that is timing out MUST free the lock that it names.
            items.push(self.locks.release(self.now, origin.slot, item));
            self.gave_back(key, item.lock, item.generation);
        }
        // What was demanded may be among them: that is all that a session which did not comply was missing.
        self.try_rescue(key);
        self.listen(key);
        if !self.is_good(key) {
            return Taken::Refused;
        }
        //= wire-spec.md#6-3-control
        //# A server MUST answer a RELEASE of 19 items or fewer by one RELEASED.
        let mut parts = items.chunks(Released::ITEMS_MAX);
        let first = parts.next().unwrap_or_default();
        for part in core::iter::once(first).chain(parts) {
            let items = List::of(part);
            self.push_urgent(key, &Message::Released(Released { serial: message.serial, echo: origin.packet, items }));
        }
        self.released_buffer = items;
        Taken::Done
    }

    pub(crate) fn cancel(&mut self, origin: MessageCx, message: &Cancel) -> Taken {
        let key = origin.key;
        if !self.is_good(key) {
            return Taken::Refused;
        }
        self.long.note(key.id());
        let nonce = message.nonce;
        //= wire-spec.md#11-2-delivery
        //# The server MUST NOT act on a message that announces a floor more than W above the one it keeps.
        // A nonce in use is less than W above the agent's floor.
        if let Some(session) = self.sessions.get(key)
            && nonce.saturating_sub(session.cache.floor()) >= 2 * u64::from(session.cache.window())
        {
            self.stats.count_dropped(Dropped::NonceAhead);
            return Taken::Done;
        }
        //= wire-spec.md#11-4-locks
        //# A CANCEL MUST be answered "granted" with the generation while a grant to its request stands unchanged.
        //= wire-spec.md#11-4-locks
        //# A CANCEL of a request without a standing grant MUST be answered "cancelled" or "answered".
        let (outcome, generation) = match self.locks.cancel(self.now, origin.slot, nonce) {
            CancelResult::Cancelled => {
                if let Some(outbox) = self.outbox(key) {
                    outbox.wait_ended(nonce, None);
                }
                (CancelOutcome::Cancelled, Generation(0))
            }
            CancelResult::Granted { generation, .. } => (CancelOutcome::Granted, generation),
            CancelResult::Unknown => (self.cancel_unqueued(key, nonce), Generation(0)),
        };
        debug!("{}: session {} cancels request {nonce}: {outcome}", self.who, key.id());
        let answer = Cancelled { serial: message.serial, echo: origin.packet, nonce, outcome, generation };
        self.push_urgent(key, &Message::Cancelled(answer));
        Taken::Done
    }

    /// Cancels a request that does not wait in line for a lock: it never came, waits without effect, or has ended.
    fn cancel_unqueued(&mut self, key: SessionKey, nonce: u64) -> CancelOutcome {
        if self.discard_request(key, nonce) {
            return CancelOutcome::Cancelled;
        }
        let Some(session) = self.sessions.get_mut(key) else {
            return CancelOutcome::Answered;
        };
        let waited = session.outbox.as_ref().and_then(|outbox| outbox.ended_wait(nonce));
        // An agent has used this nonce, so its floor is less than W below it, whatever has arrived of that so far.
        session.cache.raise_floor(nonce.saturating_add(1).saturating_sub(session.cache.window().into()), &mut self.replies);
        //= wire-spec.md#11-4-locks
        //# A CANCEL MUST work before and after its request arrives: one cancelled before it arrived is never executed.
        match (waited, session.cache.fence(nonce)) {
            // A cancellation repeated, or a request that never came and now never executes.
            (Some(None), _) | (None, Known::NotExecuted) => CancelOutcome::Cancelled,
            _ => CancelOutcome::Answered,
        }
    }

    pub(crate) fn end_session(&mut self, origin: MessageCx, message: &EndSession) -> Taken {
        let key = origin.key;
        let Some(standing) = self.sessions.get(key).map(|session| session.standing()) else {
            return Taken::Done;
        };
        let cause = match message.reason {
            EndReason::Close => Cause::Closed,
            EndReason::Surrender => Cause::Surrendered,
        };
        // An agent closes a session by the same promise by which it surrenders one: nothing of it can be used again. If it did not know of
        // D when it closed, that is as true.
        match standing {
            Standing::Good => self.over(key, cause),
            Standing::TimingOut { .. } if self.config.surrender => self.over(key, cause),
            Standing::Ending { .. } => {}
            Standing::TimingOut { .. } | Standing::Opening | Standing::Ended { .. } => {
                return Taken::Refused;
            }
        }
        // ENDED follows when the end is durable (section 11.7); the newest transmission is the one answered (section 11.1).
        self.pending.insert(key, Pending::Farewell { serial: message.serial, packet: origin.packet });
        Taken::Done
    }

    //= wire-spec.md#11-2-delivery
    //# Control messages and receipts MUST NOT need a nonce or a place in the window.
    pub(crate) fn receipt(&mut self, origin: MessageCx, message: &Receipt) -> Taken {
        if self.may_give_back(origin.key) {
            self.receipted(origin.key, message.seq, message.answer);
        }
        Taken::Done
    }

    /// Says once for a datagram that its control messages were refused, because the session is not in good standing. A receipt further
    /// on in the datagram may have rescued it meanwhile: then nothing is said, and what was not answered is asked again.
    pub(crate) fn refuse_control(&mut self, origin: MessageCx) {
        if !self.is_good(origin.key) {
            self.nack(origin.key, 0, origin.packet, Fate::Unknown);
        }
    }

    /// Whether the session's releases and receipts still count: until its end has begun (section 11.3).
    fn may_give_back(&self, key: SessionKey) -> bool {
        //= wire-spec.md#11-3-failure-and-ending
        //# Of a session that is timing out the server MUST accept receipts, releases, END_SESSION and path responses, and nothing else.
        self.sessions.get(key).is_some_and(|session| matches!(session.standing(), Standing::Good | Standing::TimingOut { .. }))
    }
}
