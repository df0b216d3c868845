//! Foresight: what the messages of a datagram will look up is looked up before the first of them acts.
//!
//! Decides which lookups those are. In tables that are larger than the processor's caches each one waits for memory several times, one
//! after the other; those of different tables and messages do not depend on each other, so that done at once they wait together.
//! Place in the walk: after the session is found and copies are dropped. Invariant: it changes nothing that anything depends on: a wrong
//! guess costs time and no more.
//! Leaves to others: everything that is done with what is found.

use crate::ids::LockSlot;
use crate::server::Server;
use cistern_wire::{Kind, ObjectId, Raw};
use core::hint::black_box;

/// From so many objects and locks in memory on it is worth while: fewer stay in the processor's caches.
const WORTH_FROM: usize = 16_384;
/// Messages of a datagram that are looked up ahead: a processor waits for no more at a time.
const AHEAD: usize = 32;
/// Where the object stands in a request: after its `Ask`.
const REQUEST_OBJECT: usize = 12;
/// Where the first lock's object stands in RELEASE: after its serial and the count of its items.
const RELEASED_OBJECT: usize = 10;

impl Server {
    /// Looks up what the messages of a valid datagram of a session are about.
    pub(crate) fn foresee(&self, slot: LockSlot, datagram: &[u8]) {
        let (objects, locks) = (self.overlay.objects_known() >= WORTH_FROM, self.locks.held_by_all() >= WORTH_FROM);
        if !objects && !locks {
            return;
        }
        for raw in Raw::all(datagram).take(AHEAD) {
            let at = match raw.kind {
                Kind::GetAttr | Kind::Lookup | Kind::Read | Kind::ReadDir | Kind::SetAttr | Kind::Write | Kind::Lock => REQUEST_OBJECT,
                Kind::Release => RELEASED_OBJECT,
                _ => continue,
            };
            let Some(object) = raw.body.get(at..).and_then(|rest| rest.first_chunk()).map(|bytes| ObjectId(u64::from_be_bytes(*bytes)))
            else {
                continue;
            };
            if objects && raw.kind != Kind::Release {
                black_box(self.overlay.prefetch(object));
            }
            if locks && matches!(raw.kind, Kind::Lock | Kind::Release) {
                black_box(self.locks.foresee(slot, object));
            }
        }
    }
}
