//! What a driver turns: a protocol machine without sockets, clocks or threads.
//!
//! Decides the contract between the sans-I/O cores (agent, server) and whatever runs them: the mio loop in
//! production, the simulator, packet scripts. It is the first and the last step of the walk of a datagram.
//! Invariant: the order of calls below gives both rules that a lease needs of its driver: sockets are drained
//! before timers run (`wire-spec.md` section 11.3), and the clock is read after a receive and before a send (section 11.1).
//! Leaves to the driver: batches, addresses of sockets, sleeping; to the machine: everything else.

use alloc::vec::Vec;
use core::net::{IpAddr, SocketAddr};
use core::time::Duration;

use crate::time::Instant;

/// Where a datagram came from and was sent to, or goes to and leaves from.
///
/// An answer travels the path of what it answers, so a host with several addresses answers from the one asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Path {
    /// The other side's address and port.
    pub remote: SocketAddr,
    /// This side's address, where the socket told it; `None` leaves the choice to the system.
    pub local: Option<IpAddr>,
}

impl Path {
    /// The path to `remote` from whichever address the system picks.
    #[must_use]
    pub const fn to(remote: SocketAddr) -> Self {
        Self { remote, local: None }
    }
}

/// A protocol machine, turned by a driver.
///
/// One turn: receive a bounded batch until the socket would block; read the clock; [`handle_datagram`] for each;
/// when the socket was found empty, [`handle_drained`]; then [`work`]; then [`poll_transmit`] until it gives `None`, each time
/// with a clock read before the send calls of its batch; then sleep until a datagram comes or [`wake_after`] has passed.
/// A batch that ended at its bound, not at an empty socket, skips [`handle_drained`] and comes again at once.
///
/// Instants given to one machine must not go back by either reading; [`Instant::max`] with the last one keeps that.
///
/// [`handle_datagram`]: Self::handle_datagram
/// [`handle_drained`]: Self::handle_drained
/// [`work`]: Self::work
/// [`poll_transmit`]: Self::poll_transmit
/// [`wake_after`]: Self::wake_after
pub trait Machine {
    /// Takes one received datagram; `now` is read after the receive call returned (section 11.1).
    ///
    /// Any bytes are allowed. What does not decode whole changes nothing but a counter.
    fn handle_datagram(&mut self, now: Instant, path: Path, datagram: &[u8]);

    /// Says that the socket was found empty; the only place where timers run, so that an answer that had
    /// already arrived is never taken for silence (section 11.3).
    fn handle_drained(&mut self, now: Instant);

    /// Does a slice of the work that is left, once in every turn: so that much work is done beside receiving, and neither waits for the
    /// other. A machine that leaves none over needs none.
    fn work(&mut self, now: Instant) {
        let _ = now;
    }

    /// Clears `buf`, fills it with the next datagram to send and gives its path; `None` when there is nothing more.
    ///
    /// `now` is read before the send call: the lease counts from it (section 11.1). `buf` holds at most
    /// [`max_datagram`](Self::max_datagram) bytes afterwards.
    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path>;

    /// How long the driver may sleep from `now` if nothing arrives; zero asks for another turn at once, `None`
    /// says that nothing is waited for: an idle machine has no timers. What there is to send is no part of it:
    /// a driver that stopped before [`poll_transmit`](Self::poll_transmit) gave `None` comes again by itself.
    fn wake_after(&mut self, now: Instant) -> Option<Duration>;

    /// The largest datagram, in bytes of UDP payload, that this machine takes or makes.
    fn max_datagram(&self) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    /// The smallest machine that keeps the contract: sends back what it got, last in first out.
    #[derive(Default)]
    struct Echo(Vec<(Path, Vec<u8>)>);

    impl Machine for Echo {
        fn handle_datagram(&mut self, _now: Instant, path: Path, datagram: &[u8]) {
            self.0.push((path, datagram.to_vec()));
        }

        fn handle_drained(&mut self, _now: Instant) {}

        fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
            let (path, bytes) = self.0.pop()?;
            buf.clear();
            buf.extend_from_slice(&bytes);
            Some(path)
        }

        fn wake_after(&mut self, _now: Instant) -> Option<Duration> {
            None
        }

        fn max_datagram(&self) -> usize {
            1_232
        }
    }

    #[test]
    fn answer_travels_the_path_of_what_it_answers() {
        let now = Instant::new(1, 1);
        let asked = Path { remote: SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000)), local: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)) };
        let mut machine = Echo::default();
        machine.handle_datagram(now, asked, b"hello");
        machine.handle_drained(now);
        let mut buf = Vec::from(*b"what was there before");
        assert_eq!(machine.poll_transmit(now, &mut buf), Some(asked));
        assert_eq!(buf, b"hello");
        assert_eq!(machine.poll_transmit(now, &mut buf), None);
        assert_eq!(machine.wake_after(now), None);
    }
}
