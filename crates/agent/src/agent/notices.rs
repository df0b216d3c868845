//! Notices: what the agent's application says to DEMAND, GRANT, WAIT_OVER, PROBE and WATCH_EVENT (`wire-spec.md` 6.4).
//!
//! The receipt is decided anew each time a notice comes, by how things stand then; what was given back is said to be given back however often
//! it is demanded. A notice renews nothing, and none goes without its receipt, except under a flood: then it comes again.

use crate::agent::Agent;
use crate::lease::Renewal;
use crate::stats::Dropped;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Demand, Grant, LockClass, ReceiptAnswer, WaitOver, WatchEvent};
use log::debug;

impl Agent {
    pub(super) fn demanded(&mut self, demand: &Demand) {
        if bugs::is(Bug::M7) {
            self.lease.renew(self.now, Renewal::Opportunistic);
        }
        if self.can_receipt(demand.seq) {
            if self.is_new_notice(demand.seq) {
                self.stats.demands += 1;
            }
            //= wire-spec.md#6-4-notices
            //# An agent MUST receipt a notice each time it arrives, by what its application says then.
            let answer = match demand.lock.class {
                LockClass::Cache => self.cache.demanded(demand.lock.object, demand.generation, demand.keep),
                LockClass::Advisory => self.locks.demanded(self.permit(), demand),
            };
            debug!("{}: {} generation {} is demanded: {answer}", self.who, demand.lock, demand.generation);
            self.receipt(demand.seq, answer);
        }
    }

    pub(super) fn granted(&mut self, grant: &Grant) {
        if self.can_receipt(grant.seq) {
            self.outcome_of(grant.nonce);
            let answer = match grant.lock.class {
                // No request for one is queued.
                LockClass::Cache => ReceiptAnswer::NotHeld,
                LockClass::Advisory => self.locks.granted(self.permit(), grant),
            };
            self.receipt(grant.seq, answer);
        }
    }

    pub(super) fn wait_over(&mut self, over: &WaitOver) {
        if self.can_receipt(over.seq) {
            self.outcome_of(over.nonce);
            self.locks.wait_over(self.permit(), over);
            self.receipt(over.seq, ReceiptAnswer::Received);
        }
    }

    pub(super) fn probed(&mut self, seq: u64) {
        if self.can_receipt(seq) {
            self.receipt(seq, ReceiptAnswer::Received);
        }
    }

    pub(super) fn watch_event(&mut self, event: &WatchEvent) {
        if self.can_receipt(event.seq) {
            if event.gone {
                // It may be an ephemeral file of this agent's that somebody else has taken away.
                self.sessions.ephemeral_gone(event.object);
            }
            self.with_watches(|watches| watches.on_event(event.object, event.version, event.gone));
            if event.gone {
                self.locks.object_gone(self.permit(), event.object);
            }
            self.receipt(event.seq, ReceiptAnswer::Received);
        }
    }

    /// A notice about a request says that it was answered QUEUED, whether that has arrived or not.
    fn outcome_of(&mut self, nonce: u64) {
        //= wire-spec.md#6-4-notices
        //# An agent MUST take a GRANT or a WAIT_OVER that overtakes QUEUED as one that comes after it.
        if let Some(channel) = self.sessions.channel_mut() {
            channel.reached(nonce);
            channel.forget(&mut self.timers, nonce);
        }
    }

    fn can_receipt(&mut self, seq: u64) -> bool {
        let Some(channel) = self.sessions.channel() else { return false };
        let room = channel.can_receipt(seq);
        if !room {
            self.dropped(Dropped::Flood);
        }
        room
    }

    fn is_new_notice(&mut self, seq: u64) -> bool {
        self.sessions.channel_mut().is_some_and(|channel| channel.is_new_notice(seq))
    }

    fn receipt(&mut self, seq: u64, answer: ReceiptAnswer) {
        if let Some(channel) = self.sessions.channel_mut() {
            channel.receipt(seq, answer);
        }
    }
}
