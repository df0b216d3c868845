//! A member's datagrams, sealed with the keys of the group's list, or in clear.
//!
//! Decides that a member with keys takes and sends nothing of the group in clear, and whose address is told of when something does not open.
//! Place: between the driver and the [`Node`], which sees what was opened. Leaves to others: the sealing (`cistern_seal::group`), whose the keys are.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use cistern_flease::{Member, Node, receiver_of};
use cistern_link::{Instant, Machine, Path};
use cistern_seal::group::{AROUND, GroupKeysError, Opened, Unopened};
use cistern_seal::{GroupSealer, PublicKey, SecretKey};
use core::ops::{Deref, DerefMut};
use core::time::Duration;

/// Most greetings that wait; beyond, strangers come again.
const GREETINGS_MAX: usize = 64;

/// A node, and what seals its datagrams, if its group has keys.
#[derive(Debug)]
pub struct SealedNode {
    node: Node,
    sealing: Option<Seals>,
}

#[derive(Debug)]
struct Seals {
    sealer: GroupSealer,
    greetings: VecDeque<(Path, Vec<u8>)>,
    text: Vec<u8>,
    /// From which members' addresses something did not open, each told once.
    unopened: Vec<Member>,
    untold: VecDeque<Member>,
}

impl SealedNode {
    /// In clear.
    #[must_use]
    pub const fn in_clear(node: Node) -> Self {
        Self { node, sealing: None }
    }

    /// With what seals its datagrams from now on, and opens those of others.
    #[must_use]
    pub fn sealed(self, sealer: GroupSealer) -> Self {
        let (greetings, text, unopened, untold) = Default::default();
        Self { sealing: Some(Seals { sealer, greetings, text, unopened, untold }), ..self }
    }

    /// Seals for members with these keys from now on, in the order of another list with this one at `me`.
    ///
    /// # Errors
    /// A key cannot be used; then nothing is changed.
    pub fn change_keys(&mut self, own: &SecretKey, me: Member, keys: &[Option<PublicKey>]) -> Result<(), GroupKeysError> {
        self.sealing.as_mut().map_or(Ok(()), |seals| seals.sealer.change(own, me, keys))
    }

    /// The next member from whose address something came that does not open, once for each.
    pub fn poll_unopened(&mut self) -> Option<Member> {
        self.sealing.as_mut()?.untold.pop_front()
    }

    /// Whether a datagram is one between members, of this group or another.
    #[must_use]
    pub fn is_between_members(datagram: &[u8]) -> bool {
        datagram.starts_with(&cistern_seal::group::MAGIC) || receiver_of(datagram).is_some()
    }
}

impl Deref for SealedNode {
    type Target = Node;

    fn deref(&self) -> &Node {
        &self.node
    }
}

impl DerefMut for SealedNode {
    fn deref_mut(&mut self) -> &mut Node {
        &mut self.node
    }
}

impl Machine for SealedNode {
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]) {
        let Some(Seals { sealer, greetings, text, unopened, untold }) = &mut self.sealing else {
            return self.node.handle_datagram(now, path, datagram);
        };
        match sealer.open(datagram, text) {
            Ok(Opened::Text(_)) if text.is_empty() => {}
            // Whether it is of the member at that address the node sees.
            Ok(Opened::Text(_)) => self.node.handle_datagram(now, path, text),
            Ok(Opened::Stranger(from)) => {
                if greetings.len() < GREETINGS_MAX {
                    greetings.extend(sealer.greet(from, datagram).map(|greeting| (path, greeting)));
                }
            }
            Err(Unopened::Repeated) => {}
            Err(Unopened::NotAuthentic | Unopened::Malformed) => {
                let members = self.node.group().others().iter().filter(|member| self.node.address(*member) == Some(path.remote));
                for member in members.filter(|member| !unopened.contains(member)).collect::<Vec<_>>() {
                    unopened.push(member);
                    untold.push_back(member);
                }
            }
        }
    }

    fn handle_drained(&mut self, now: Instant) {
        self.node.handle_drained(now);
    }

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        let Some(Seals { sealer, greetings, .. }) = &mut self.sealing else {
            return self.node.poll_transmit(now, buf);
        };
        if let Some((path, greeting)) = greetings.pop_front() {
            *buf = greeting;
            return Some(path);
        }
        loop {
            let path = self.node.poll_transmit(now, buf)?;
            if receiver_of(buf).is_some_and(|to| sealer.seal(to, buf)) {
                return Some(path);
            }
        }
    }

    fn wake_after(&mut self, now: Instant) -> Option<Duration> {
        self.node.wake_after(now)
    }

    fn max_datagram(&self) -> usize {
        self.node.max_datagram() + if self.sealing.is_some() { AROUND } else { 0 }
    }
}
