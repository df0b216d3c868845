//! Moving: datagrams leave this host from another address than before, and the server does not know it.
//!
//! Decides that the server is shown the new address at once, by a keep-alive, if the session is worth one. Until it has challenged the
//! new address the server sends to the one proven last, so a demand or a probe would fail although the agent is there.
//! Place in the walk: a driver comes here when the system says that addresses or routes have changed; `Agent::tend_lease` sends.
//! Implements `wire-spec.md` section 11.6. Invariant: nothing of the session changes but when its next keep-alive goes out.
//! Leaves to others: the answer to the challenge (`incoming`), sending again until an answer comes (`control`).

use crate::agent::Agent;
use cistern_link::Instant;

impl Agent {
    /// Says that datagrams to the server may leave from another address from now on. A driver calls it when it has learned so; a call in
    /// vain costs a keep-alive at most.
    pub fn handle_moved(&mut self, now: Instant) {
        self.advance(now);
        if let Some(session) = &mut self.session {
            session.moved = Some(self.now);
            // What waits for its timeout may have been sent to nowhere, while there was no address at all.
            session.controls.wake();
        }
        self.tend();
    }
}
