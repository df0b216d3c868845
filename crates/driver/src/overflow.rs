//! Datagrams that the kernel dropped because a socket's receive buffer was full: noticed, counted, and told to a person.
//!
//! Decides how often the kernel is asked (`/proc/self/net/udp`, proc(5), whose last column it counts them in): after turns that received
//! something, at most once a second, and never for more than a thousandth of the time, however many sockets the machine has. Place in the
//! walk: beside it. Invariant: nothing depends on it; where the kernel tells nothing, nothing is counted.
//! Leaves to `socket`: how large the buffers are.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::time::Duration;

use cistern_link::Instant;

use crate::clock::Clock;
use crate::socket::UdpPort;
use crate::stats::Stats;

/// Shortest time between two looks.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// How many times as long as a look takes none follows.
const LOOK_SHARE: u32 = 1_000;
/// Shortest time between two lines in the log.
const TELL_PERIOD: Duration = Duration::from_secs(60);

/// What is known of the sockets of a loop.
#[derive(Debug)]
pub(crate) struct Overflow {
    sockets: Vec<Watched>,
    /// Not before this the kernel is asked again.
    next_look: Option<Instant>,
    told: Option<Instant>,
    /// Dropped since a person was told last.
    untold: u64,
    text: String,
}

#[derive(Debug)]
struct Watched {
    address: SocketAddr,
    inode: u64,
    drops: u64,
}

impl Overflow {
    pub(crate) fn of(ports: &[UdpPort]) -> Self {
        let watched = |port: &UdpPort| Some(Watched { address: port.local_addr(), inode: port.inode()?, drops: 0 });
        let sockets = ports.iter().filter_map(watched).collect();
        Self { sockets, next_look: None, told: None, untold: 0, text: String::new() }
    }

    /// Asks the kernel, if it is time; called after a turn that received something, with a reading of that turn.
    pub(crate) fn look(&mut self, turn: Instant, clock: &Clock, stats: &Stats, name: &str) {
        if self.next_look.is_some_and(|next| !turn.waited(next)) {
            return;
        }
        let begun = clock.now();
        if let Err(error) = self.read(stats) {
            log::debug!("{name}: the system does not tell how many datagrams found no room: {error}");
        }
        let now = clock.now();
        self.next_look = Some(now.plus(LOOK_PERIOD.max(now.since(begun) * LOOK_SHARE)));
        if self.untold > 0 && self.told.is_none_or(|told| now.since(told) >= TELL_PERIOD) {
            self.told = Some(now);
            log::warn!(
                "{name}: the system dropped {} datagrams because the receive buffer was full; raise net.core.rmem_max (sysctl) and restart, or \
                 take load off this machine",
                self.untold
            );
            self.untold = 0;
        }
    }

    fn read(&mut self, stats: &Stats) -> io::Result<()> {
        let Self { sockets, untold, text, .. } = self;
        for (file, of_v4) in [("/proc/self/net/udp", true), ("/proc/self/net/udp6", false)] {
            if !sockets.iter().any(|socket| socket.address.is_ipv4() == of_v4) {
                continue;
            }
            text.clear();
            File::open(file)?.read_to_string(text)?;
            for (inode, drops) in text.lines().skip(1).filter_map(row) {
                if let Some(socket) = sockets.iter_mut().find(|socket| socket.inode == inode) {
                    // The kernel counts in 32 bits or more, and a socket's count only grows.
                    let fresh = drops.saturating_sub(socket.drops);
                    socket.drops = drops;
                    *untold += fresh;
                    stats.receive_overflows.add(usize::try_from(fresh).unwrap_or(usize::MAX));
                }
            }
        }
        Ok(())
    }
}

/// Inode and drops of a line: its tenth and its thirteenth column.
fn row(line: &str) -> Option<(u64, u64)> {
    let mut columns = line.split_whitespace().skip(9);
    let inode = columns.next()?.parse().ok()?;
    Some((inode, columns.nth(2)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_of_the_kernels_table_is_read_and_anything_else_is_none() {
        let line = "  1: 0100007F:1C8F 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 777 2 0000000000000000 5";
        assert_eq!(row(line), Some((777, 5)));
        assert_eq!(row(""), None);
        assert_eq!(row("  1: 0100007F:1C8F 00000000:0000 07 0:0 0:0 0 0 0 777 2 0"), None);
    }
}
