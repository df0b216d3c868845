//! What the packet scripts of restarts stand on: a server that dies and starts anew on its disk, and peers that reclaim.

use super::world::{Peer, STORE, World, advisory, cache_lock};
use crate::{Config, Server};
use alloc::vec::Vec;
use cistern_wire::{
    Claim, Done, FormerFate, Generation, List, Message, Mode, ObjectId, Reclaim, ReclaimComplete, ReclaimItem, ReclaimedItem, Reply,
    SessionFate, SessionId, Status,
};
use core::time::Duration;

/// The run of an advisory grant with the default settings.
pub(super) const RUN: u32 = 1_024;

impl World {
    /// The server dies with all that is not durable, and starts anew with the same configuration.
    pub(super) fn crash(&mut self) {
        let config = self.server.config.clone();
        self.crash_into(config);
    }

    /// As `crash`, with another configuration.
    pub(super) fn crash_into(&mut self, config: Config) {
        self.crash_and_start(config);
        self.turn();
        assert!(self.server.status(self.now).serving);
    }

    /// The server dies, and its disk stands still for a while when it starts anew.
    pub(super) fn start_slowly(&mut self, still: Duration) {
        let config = self.server.config.clone();
        self.crash_and_start(config);
        self.stalled = true;
        self.turn();
        self.tick(still);
        self.stalled = false;
        self.turn();
        assert!(self.server.status(self.now).serving);
    }

    fn crash_and_start(&mut self, config: Config) {
        self.quiet();
        self.disk.batches.clear();
        self.disk.asked.clear();
        self.packets.clear();
        self.stalled = false;
        self.seed += 1;
        self.server = Server::new(self.now, 1_700_000_000_000_000_000, STORE, config, [self.seed; 32]).unwrap();
    }

    /// Whether the server is in grace.
    pub(super) fn in_grace(&mut self) -> bool {
        // What is due at once is done in a turn of its own.
        self.turn();
        self.server.status(self.now).grace.is_some()
    }

    /// The peer reclaims; gives what became of each lock.
    pub(super) fn reclaim(&mut self, peer: &mut Peer, from: SessionId, items: &[ReclaimItem]) -> Vec<ReclaimedItem> {
        let ask = peer.ask_only();
        self.send(peer, &[Reclaim { ask, from, items: List::of(items) }.into()]);
        let got = self.got_one(peer);
        let Reply::Reclaimed(reclaimed) = got.reply() else { panic!("not reclaimed: {:?}", got.reply()) };
        reclaimed.items.iter().collect()
    }

    /// The peer says that it has reclaimed everything.
    pub(super) fn complete(&mut self, peer: &mut Peer, from: SessionId) {
        assert_eq!(self.completes(peer, from), Ok(()));
    }

    /// The peer says so; whether the session could be reclaimed.
    pub(super) fn completes(&mut self, peer: &mut Peer, from: SessionId) -> Result<(), Status> {
        let ask = peer.ask_only();
        self.send(peer, &[ReclaimComplete { ask, from }.into()]);
        match self.got_one(peer).reply() {
            Reply::Done(Done {}) => Ok(()),
            Reply::Failed(failed) => Err(failed.status),
            other => panic!("neither done nor failed: {other:?}"),
        }
    }

    /// The peer opens a session to reclaim from the one that it had; gives that.
    pub(super) fn come_back(&mut self, peer: &mut Peer) -> SessionId {
        let from = peer.session;
        let told = self.open_again(peer, &[(from, Claim::Reclaiming)]);
        assert_eq!(told, [FormerFate { session: from, fate: SessionFate::Reclaimable }]);
        from
    }

    /// The status with which the peer's request fails, and when it may ask again.
    pub(super) fn failed(&mut self, peer: &mut Peer, request: Message<'_>) -> (Status, u32) {
        self.send(peer, &[request]);
        let got = self.got_one(peer);
        match got.reply() {
            Reply::Failed(failed) => (failed.status, failed.retry_ms),
            other => panic!("not failed: {other:?}"),
        }
    }
}

/// The claim to an advisory lock held exclusively.
pub(super) const fn held(object: ObjectId, generation: Generation) -> ReclaimItem {
    ReclaimItem { lock: advisory(object), mode: Mode::Exclusive, generation, first: generation, run: RUN, version: 0 }
}

/// The claim to a cache lock.
pub(super) const fn cached(object: ObjectId, mode: Mode, generation: Generation) -> ReclaimItem {
    ReclaimItem { lock: cache_lock(object), mode, generation, first: generation, run: 0, version: 1 }
}
