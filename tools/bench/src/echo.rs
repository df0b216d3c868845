//! The twin that the server is measured against: a machine that sends back what it received, and nothing else.
//!
//! Decides what "a plain echo" is: the same event loop, the same socket calls and batches as the server, no protocol.
//! Invariant: it allocates nothing once it has seen its largest batch, so that what it costs is the price of the datagrams.
//! Leaves to others: the loop (`cistern-driver`), the process around it (`under_test`).

use cistern_link::{Instant, Machine, Path};
use std::time::Duration;

/// Sends every datagram back by the way it came, in order.
#[derive(Debug, Default)]
pub(crate) struct Echo {
    /// The bytes of the datagrams that wait, one after the other.
    bytes: Vec<u8>,
    /// Where each goes, and where it ends in `bytes`.
    waiting: Vec<(Path, usize)>,
    /// How many of them were sent.
    sent: usize,
    /// Where the next one begins in `bytes`.
    start: usize,
}

impl Machine for Echo {
    fn handle_datagram(&mut self, _now: Instant, path: Path, datagram: &[u8]) {
        self.bytes.extend_from_slice(datagram);
        self.waiting.push((path, self.bytes.len()));
    }

    fn handle_drained(&mut self, _now: Instant) {}

    fn poll_transmit(&mut self, _now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        let Some(&(path, end)) = self.waiting.get(self.sent) else {
            self.bytes.clear();
            self.waiting.clear();
            (self.sent, self.start) = (0, 0);
            return None;
        };
        buf.clear();
        buf.extend_from_slice(&self.bytes[self.start..end]);
        self.sent += 1;
        self.start = end;
        Some(path)
    }

    fn wake_after(&mut self, _now: Instant) -> Option<Duration> {
        // The loop sends a bounded number of batches in a turn; the rest must not wait for another datagram.
        (self.sent < self.waiting.len()).then_some(Duration::ZERO)
    }

    fn max_datagram(&self) -> usize {
        cistern_wire::limits::DATAGRAM_DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    #[test]
    fn echo_returns_every_datagram_in_order_and_forgets_it() {
        let now = Instant::new(1, 1);
        let from = |port| Path::to(SocketAddr::from(([127, 0, 0, 1], port)));
        let mut echo = Echo::default();
        let mut buf = b"old".to_vec();
        for _ in 0..2 {
            echo.handle_datagram(now, from(1), b"one");
            echo.handle_datagram(now, from(2), b"");
            echo.handle_datagram(now, from(1), b"three");
            assert_eq!(echo.wake_after(now), Some(Duration::ZERO));
            for (port, bytes) in [(1, &b"one"[..]), (2, b""), (1, b"three")] {
                assert_eq!(echo.poll_transmit(now, &mut buf), Some(from(port)));
                assert_eq!(buf, bytes);
            }
            assert_eq!(echo.poll_transmit(now, &mut buf), None);
            assert_eq!(echo.wake_after(now), None);
        }
    }
}
