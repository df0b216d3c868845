//! When principals were heard last, where that is wanted.

use super::sealed::{Peer, Sealed};
use crate::Config;
use cistern_link::Instant;
use cistern_wire::{KeepAlive, Message};

impl Sealed {
    fn seen(&self, name: &[u8]) -> Option<u64> {
        let rows = self.world.server.principals();
        rows.iter().find(|row| row.record.as_ref().is_some_and(|record| *record.name == *name)).unwrap().last_seen_s
    }

    fn wall(&mut self, seconds: i64) {
        self.world.server.set_wall_clock(self.world.now, seconds * 1_000_000_000);
    }

    fn pass(&mut self, seconds: u64) {
        let Instant { raw_ns, boot_ns } = self.world.now;
        self.world.now = Instant::new(raw_ns + seconds * 1_000_000_000, boot_ns + seconds * 1_000_000_000);
    }
}

fn keep_alive(peer: &mut Peer) -> alloc::vec::Vec<u8> {
    peer.record(&[Message::from(KeepAlive { serial: 9, clock_us: 0 })])
}

#[test]
fn who_was_heard_last_is_kept_to_the_minute_from_the_opening_on() {
    let mut sealed = Sealed::with(Config { last_seen: true, ..Config::default() });
    let mut peer = Peer::new(1);
    sealed.wall(6_007);
    assert_eq!((sealed.seen(b"b"), sealed.seen(b"c")), (Some(0), Some(0)), "not since the start");
    sealed.open(&mut peer);
    assert_eq!((sealed.seen(b"b"), sealed.seen(b"c")), (Some(6_000), Some(0)));
    sealed.pass(130);
    let asked = keep_alive(&mut peer);
    // What does not open says nothing of anybody.
    let mut forged = asked.clone();
    *forged.last_mut().unwrap() ^= 1;
    sealed.say(peer.path, &forged);
    assert_eq!(sealed.seen(b"b"), Some(6_000));
    sealed.say(peer.path, &asked);
    assert_eq!(sealed.seen(b"b"), Some(6_120));
    // It stays with the principal, whatever an operator changes.
    let who = sealed.world.server.principal_named(b"b").unwrap();
    sealed.world.server.rename_principal(sealed.world.now, who, b"renamed").unwrap();
    sealed.world.server.revoke(sealed.world.now, who).unwrap();
    assert_eq!(sealed.seen(b"renamed"), Some(6_120));
}

#[test]
fn nothing_is_kept_unless_it_is_asked_for() {
    let (mut sealed, mut peer) = (Sealed::new(), Peer::new(1));
    sealed.wall(6_007);
    sealed.open(&mut peer);
    let asked = keep_alive(&mut peer);
    sealed.say(peer.path, &asked);
    assert_eq!(sealed.seen(b"b"), None);
    let who = sealed.world.server.principal_named(b"b").unwrap();
    assert_eq!(sealed.world.server.principals.seen_s(who), 0);
}
