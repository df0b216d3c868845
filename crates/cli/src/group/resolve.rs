//! Where the other members are: their names, asked again until they are found and now and then after that.
//!
//! Decides that a group starts although the names of some members cannot be found yet. A thread of its own: a name server may take its time.

use super::GroupList;
use crate::local::Failure;
use cistern_driver::{Address, Handle};
use cistern_flease::Node;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// Between two questions for a name that is not found.
const RETRY: Duration = Duration::from_secs(2);
/// Between two questions for names that were found: a host may get another address.
const PERIOD: Duration = Duration::from_secs(60);

/// Where a member was found.
pub(crate) struct Found {
    member: Address,
    address: SocketAddr,
}

impl Found {
    /// Tells a member's node, if that is still one of the group.
    pub(crate) fn tell(self, node: &mut Node, group: &GroupList) {
        let Self { member, address } = self;
        if let Some((place, _)) = group.present().find(|(_, name)| **name == member) {
            log::info!("{member}: at {address}");
            node.set_address(place, address);
        }
    }
}

/// What who looks is told.
pub(crate) enum LookFor {
    /// Begin, and wake this loop.
    Loop(Handle),
    /// These are the members from now on.
    Members(GroupList),
}

/// Looks for all members but `me`, at addresses of the family of `ours`, as long as somebody listens; begins when it is given the loop to wake.
///
/// # Errors
/// The system has no thread to spare.
pub(crate) fn look_for_others(mut group: GroupList, me: u8, ours: SocketAddr) -> Result<(Receiver<Found>, Sender<LookFor>), Failure> {
    let (tell, found) = channel();
    let (give, given) = channel();
    let me = group.members()[usize::from(me)].clone();
    let look = move || {
        let Ok(LookFor::Loop(handle)) = given.recv() else { return };
        let mut known: Vec<(Address, SocketAddr)> = Vec::new();
        loop {
            let mut lacking = false;
            for (_, name) in group.present().filter(|(_, name)| **name != me) {
                let resolved = name.resolve(Some(group.port())).map_err(|e| e.to_string());
                let fitting = resolved.and_then(|found| {
                    let fits = |address: &SocketAddr| address.is_ipv4() == ours.is_ipv4();
                    found.into_iter().find(fits).ok_or_else(|| format!("{name}: no address of the family of {ours}"))
                });
                let before = known.iter().position(|(known, _)| known == name);
                match fitting {
                    Ok(address) if before.is_some_and(|at| known[at].1 == address) => {}
                    Ok(address) => {
                        known.retain(|(known, _)| known != name);
                        known.push((name.clone(), address));
                        if tell.send(Found { member: name.clone(), address }).is_err() {
                            return;
                        }
                        handle.wake();
                    }
                    Err(why) => {
                        lacking |= before.is_none();
                        log::warn!("{why}");
                    }
                }
            }
            match given.recv_timeout(if lacking { RETRY } else { PERIOD }) {
                Ok(LookFor::Members(members)) => {
                    // A place may have another member, of whom nothing was told yet.
                    known.clear();
                    group = members;
                }
                Ok(LookFor::Loop(_)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    };
    let thread = std::thread::Builder::new().name("cistern-names".to_owned());
    thread.spawn(look).map_err(|e| Failure::failed(format!("no thread to be had: {e}")))?;
    Ok((found, give))
}
