//! Where the other members are: their names, asked again until they are found and now and then after that.
//!
//! Decides that a group starts although the names of some members cannot be found yet. A thread of its own: a name server may take its time.

use super::GroupList;
use crate::local::Failure;
use cistern_driver::Handle;
use cistern_flease::Node;
use std::net::SocketAddr;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Between two questions for a name that is not found.
const RETRY: Duration = Duration::from_secs(2);
/// Between two questions for names that were found: a host may get another address.
const PERIOD: Duration = Duration::from_secs(60);

/// Where a member was found.
pub(crate) struct Found {
    member: u8,
    address: SocketAddr,
}

impl Found {
    /// Tells a member's node.
    pub(crate) fn tell(self, node: &mut Node, group: &GroupList) {
        let Self { member, address } = self;
        log::info!("{}: at {address}", group.members()[usize::from(member)]);
        node.set_address(member, address);
    }
}

/// Looks for all members but `me`, at addresses of the family of `ours`, as long as somebody listens; begins when it is given the loop to wake.
///
/// # Errors
/// The system has no thread to spare.
pub(crate) fn look_for_others(group: GroupList, me: u8, ours: SocketAddr) -> Result<(Receiver<Found>, Sender<Handle>), Failure> {
    let (tell, found) = channel();
    let (give, given) = channel::<Handle>();
    let look = move || {
        let Ok(handle) = given.recv() else { return };
        let mut known = vec![None; group.members().len()];
        loop {
            let mut lacking = false;
            for (place, name) in group.members().iter().enumerate().filter(|(place, _)| *place != usize::from(me)) {
                let resolved = name.resolve(Some(group.port())).map_err(|e| e.to_string());
                let fitting = resolved.and_then(|found| {
                    let fits = |address: &SocketAddr| address.is_ipv4() == ours.is_ipv4();
                    found.into_iter().find(fits).ok_or_else(|| format!("{name}: no address of the family of {ours}"))
                });
                match fitting {
                    Ok(address) if known[place] == Some(address) => {}
                    Ok(address) => {
                        known[place] = Some(address);
                        if tell.send(Found { member: u8::try_from(place).expect("members are few"), address }).is_err() {
                            return;
                        }
                        handle.wake();
                    }
                    Err(why) => {
                        lacking |= known[place].is_none();
                        log::warn!("{why}");
                    }
                }
            }
            std::thread::sleep(if lacking { RETRY } else { PERIOD });
        }
    };
    let thread = std::thread::Builder::new().name("cistern-names".to_owned());
    thread.spawn(look).map_err(|e| Failure::failed(format!("no thread to be had: {e}")))?;
    Ok((found, give))
}
