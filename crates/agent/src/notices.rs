//! Notices of the server: DEMAND, GRANT, WAIT_OVER, PROBE, and what the agent's application says to each.
//!
//! Decides: the receipt of every notice, the same for every repetition (R65), and that a demand for a cache lock is complied with
//! at once (R68). Implements `wire-spec.md` sections 6.4 and 11.4. Place in the walk: called by `incoming`.
//! Invariant: a notice renews nothing; one for a generation that is not held is harmless (R33).
//! Leaves to others: which locks are held (`locks`, `local`), cached data (`ops`).

use crate::agent::Agent;
use crate::locks::Complied;
use cistern_wire::{Demand, Grant, LockClass, Probe, Receipt, ReceiptAnswer, WaitOver};

impl Agent {
    pub(crate) fn take_demand(&mut self, demand: &Demand) {
        self.counters.demands += 1;
        let answer = match demand.lock.class {
            LockClass::Cache => self.demand_cache(demand),
            LockClass::Advisory => self.demand_advisory(demand),
        };
        self.receipt(demand.seq, answer);
    }

    fn demand_cache(&mut self, demand: &Demand) -> ReceiptAnswer {
        let object = demand.lock.object;
        match self.locks.demand_cache(object, demand.generation, demand.keep) {
            Complied::Release(item) => {
                // The data goes, or loses its writer, before the release can leave: nothing is answered from it any more.
                self.ops.revoke(object, item.keep);
                if let Some(session) = &mut self.session {
                    session.controls.release(item);
                }
                ReceiptAnswer::Received
            }
            Complied::Nothing => ReceiptAnswer::Received,
            Complied::NotHeld => ReceiptAnswer::NotHeld,
        }
    }

    fn demand_advisory(&mut self, demand: &Demand) -> ReceiptAnswer {
        let lock = demand.lock;
        if !self.locks.installable(lock, demand.generation) {
            return ReceiptAnswer::NotHeld;
        }
        let (answer, disown) = self.with_hall(|local, hall| local.demand(hall, lock.object, demand.generation));
        if disown {
            self.locks.disown(lock, demand.generation);
        }
        answer
    }

    pub(crate) fn take_grant(&mut self, grant: &Grant) {
        let awaited = self.locks.local.queued_object(grant.nonce) == Some(grant.lock.object);
        let held = self.locks.local.holds(grant.lock.object, grant.generation);
        let answer = if held {
            // Repeated: the first receipt was lost.
            ReceiptAnswer::Received
        } else if awaited && self.install_advisory(grant.lock, grant.mode, grant.generation, grant.run) {
            ReceiptAnswer::Received
        } else {
            // Nobody waits for it: it is given back by this word, and never installed.
            self.locks.disown(grant.lock, grant.generation);
            ReceiptAnswer::NotHeld
        };
        self.receipt(grant.seq, answer);
    }

    pub(crate) fn take_wait_over(&mut self, over: &WaitOver) {
        if let Some(object) = self.locks.local.queued_object(over.nonce) {
            let status = over.status;
            self.with_hall(|local, hall| local.lock_failed(hall, object, status, 0));
        }
        self.receipt(over.seq, ReceiptAnswer::Received);
    }

    pub(crate) fn take_probe(&mut self, probe: &Probe) {
        self.receipt(probe.seq, ReceiptAnswer::Received);
    }

    fn receipt(&mut self, seq: u64, answer: ReceiptAnswer) {
        if let Some(session) = &mut self.session {
            session.receipt(Receipt { seq, answer });
        }
    }

    /// Drops everything that is cached under locks that go back together.
    pub(crate) fn forget_cached(&mut self) -> cistern_wire::Generation {
        self.ops.forget_cached();
        self.locks.give_back_all_cache()
    }
}
