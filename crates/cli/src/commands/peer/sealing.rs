//! A member's datagrams, sealed with the keys of the list, or in clear.
//!
//! Decides: which key is this host's, that a member with keys takes and sends nothing in clear, and what its log says of what does not open.
//! Place: between the loop and the [`Node`], which sees what was opened. Leaves to others: the sealing (`cistern_seal::group`).

use crate::execute::EXIT_FAILED;
use crate::group::GroupList;
use crate::local::Failure;
use cistern_credentials::Places;
use cistern_driver::seed;
use cistern_flease::{Member, Node, receiver_of};
use cistern_link::{Instant, Machine, Path};
use cistern_seal::GroupSealer;
use cistern_seal::group::{AROUND, Opened, Unopened};
use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::path;
use std::time::Duration;

/// Most greetings that wait; beyond, strangers come again.
const GREETINGS_MAX: usize = 64;

/// A node, and what seals its datagrams, if its group has keys.
pub(super) struct SealedNode {
    node: Node,
    sealing: Option<Seals>,
}

struct Seals {
    sealer: GroupSealer,
    greetings: VecDeque<(Path, Vec<u8>)>,
    text: Vec<u8>,
    /// From which members' addresses something did not open, each told once.
    unopened: Vec<Member>,
    untold: VecDeque<Member>,
}

impl SealedNode {
    /// With the keys of the list and this host's, if the list has keys.
    ///
    /// # Errors
    /// There is no key here, it is not the one that the list has, or the list cannot be used.
    pub(super) fn new(node: Node, group: &GroupList, me: Member, key: Option<&path::Path>) -> Result<Self, Failure> {
        if group.keys().is_empty() {
            return Ok(Self { node, sealing: None });
        }
        let none = || Failure::new("NO_KEY", EXIT_FAILED, "the list has keys, and there is none here; `cistern key new` makes one");
        let own = Places::of_this_process(key).find()?.ok_or_else(none)?;
        let boot = seed().map_err(|e| Failure::failed(e.to_string()))?;
        let boot = boot.first_chunk().copied().expect("a seed is longer");
        let sealer = GroupSealer::new(&own.key, me, group.keys().to_vec(), boot).map_err(|e| {
            let member = &group.members()[usize::from(me)];
            Failure::new("KEYS", EXIT_FAILED, format!("{e} ({member} here, key {})", own.place.key_path().display()))
        })?;
        let (greetings, text, unopened, untold) = Default::default();
        Ok(Self { node, sealing: Some(Seals { sealer, greetings, text, unopened, untold }) })
    }

    /// The next member from whose address something came that does not open, once for each.
    pub(super) fn poll_unopened(&mut self) -> Option<Member> {
        self.sealing.as_mut()?.untold.pop_front()
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
                let members = (0..self.node.group().members).filter(|member| self.node.address(*member) == Some(path.remote));
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
