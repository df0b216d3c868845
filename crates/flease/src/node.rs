//! A [`Peer`] as a driver turns it: members at addresses, what is dropped and why, who was heard when.
//!
//! Decides that a datagram is of the member at the address that it came from, and of nobody if no member is there. Leaves to the driver:
//! names of hosts, sockets, clocks.

use crate::ballot::Member;
use crate::datagram::{DATAGRAM_MAX, DropReason};
use crate::peer::Peer;
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::{Instant, Machine, Path};
use core::net::SocketAddr;
use core::ops::{Deref, DerefMut};
use core::time::Duration;

/// A process of a group, with the addresses of the others.
#[derive(Debug)]
pub struct Node {
    peer: Peer,
    addresses: Vec<Option<SocketAddr>>,
    heard: Vec<Option<Instant>>,
    counts: NodeCounts,
}

/// Datagrams since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Taken.
    pub received: u64,
    /// Made.
    pub sent: u64,
    /// Not made: it is not known where their member is.
    pub unaddressed: u64,
    /// From an address at which no member is.
    pub from_strangers: u64,
    /// Came before the restart wait was over.
    pub early: u64,
    /// Of a member that is configured otherwise.
    pub mismatched: u64,
    /// Not of this protocol, damaged, or not to be read to its last byte.
    pub malformed: u64,
}

impl Node {
    /// A member whose peers' addresses are told by [`Self::set_address`].
    #[must_use]
    pub fn new(peer: Peer) -> Self {
        let members = usize::from(peer.group().places);
        Self { peer, addresses: vec![None; members], heard: vec![None; members], counts: NodeCounts::default() }
    }

    /// As [`Peer::set_list`]; where members are is kept of those that stay.
    pub fn change_list(&mut self, now: Instant, number: u32, names: &[Vec<u8>], me: Member) {
        let stays = |place: &usize| self.peer.names().get(*place) == names.get(*place);
        let (addresses, heard): (Vec<_>, Vec<_>) =
            (0..names.len()).map(|place| if stays(&place) { (self.addresses[place], self.heard[place]) } else { (None, None) }).unzip();
        (self.addresses, self.heard) = (addresses, heard);
        self.peer.set_list(now, number, names, me);
    }

    /// Says where a member is from now on.
    pub fn set_address(&mut self, member: Member, address: SocketAddr) {
        self.addresses[usize::from(member)] = Some(address);
    }

    /// Where a member is, if that is known.
    #[must_use]
    pub fn address(&self, member: Member) -> Option<SocketAddr> {
        self.addresses[usize::from(member)]
    }

    /// When a member was believed last; `None`: never.
    #[must_use]
    pub fn heard(&self, member: Member) -> Option<Instant> {
        self.heard[usize::from(member)]
    }

    /// Datagrams since the start.
    #[must_use]
    pub const fn counts(&self) -> NodeCounts {
        self.counts
    }
}

impl Deref for Node {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl DerefMut for Node {
    fn deref_mut(&mut self) -> &mut Peer {
        &mut self.peer
    }
}

impl Machine for Node {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        let Some(from) = self.addresses.iter().position(|address| *address == Some(path.remote)) else {
            self.counts.from_strangers += 1;
            return;
        };
        let member = Member::try_from(from).expect("members are few");
        let counter = match self.peer.handle_datagram(now, member, datagram) {
            Ok(()) => {
                self.heard[from] = Some(now);
                &mut self.counts.received
            }
            Err(DropReason::Waiting) => {
                self.heard[from] = Some(now);
                &mut self.counts.early
            }
            Err(DropReason::Mismatch(_)) => &mut self.counts.mismatched,
            Err(DropReason::Malformed(_) | DropReason::Checksum) => &mut self.counts.malformed,
        };
        *counter += 1;
    }

    fn handle_drained(&mut self, now: Instant) {
        self.peer.handle_drained(now);
    }

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        loop {
            let member = self.peer.poll_transmit(buf)?;
            match self.address(member) {
                Some(address) => {
                    self.counts.sent += 1;
                    return Some(Path::to(address));
                }
                None => self.counts.unaddressed += 1,
            }
        }
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.peer.wake_after(now)
    }

    fn max_datagram(&self) -> usize {
        DATAGRAM_MAX
    }
}
