//! The times given to a machine: what came is dated after it was received, what goes before it is sent (section 11.1).
//!
//! The peer's clock is the same as the loop's, so that its readings before sending and after receiving are the bounds.

use std::net::{SocketAddr, UdpSocket};
use std::thread;
use std::time::Duration;

use cistern_driver::Clock;
use cistern_link::{Instant, Machine, Path};

use crate::machines::{open, owned, plain};

/// Answers each datagram, and notes the times of both; at the first one it sends itself a further one, which comes in the same turn.
#[derive(Default)]
struct Dated {
    received: Vec<Instant>,
    sent: Vec<Instant>,
    due: Vec<Path>,
    further: Option<(UdpSocket, SocketAddr)>,
    /// When the further one was sent.
    later: Option<Instant>,
}

impl Machine for Dated {
    fn handle_datagram(&mut self, now: Instant, path: Path, _: &[u8]) {
        self.received.push(now);
        self.due.push(path);
        if let Some((socket, to)) = self.further.take() {
            thread::sleep(Duration::from_millis(5));
            self.later = Some(Clock::new().expect("a clock").now());
            socket.send_to(b"further", to).expect("send");
        }
    }

    fn handle_drained(&mut self, _: Instant) {}

    fn poll_transmit(&mut self, now: Instant, buf: &mut Vec<u8>) -> Option<Path> {
        let path = self.due.pop()?;
        buf.clear();
        buf.extend_from_slice(b"answer");
        self.sent.push(now);
        Some(path)
    }

    fn wake_after(&mut self, _: Instant) -> Option<Duration> {
        None
    }

    fn max_datagram(&self) -> usize {
        1_232
    }
}

const SPAN: Duration = Duration::from_millis(30);

//= wire-spec.md#11-1-lease
//= type=test
//# A receiver MUST read the clock for a datagram after it was received.
//= wire-spec.md#11-1-lease
//= type=test
//# The agent MUST read the clock for a send time before it hands the transmission to the network.
#[test]
fn what_comes_is_dated_after_its_sending_and_what_goes_before_its_receipt() {
    let mut event_loop = owned(vec![open("127.0.0.1:0")], Dated::default());
    let itself = event_loop.local_addrs().next().expect("one socket");
    let client = plain("127.0.0.1:0");
    let further = plain("127.0.0.1:0");
    event_loop.owner_mut().0.further = Some((further, itself));
    let clock = Clock::new().expect("a clock");
    // The loop sleeps when the first one comes: a time read before it slept would be too early by the whole span.
    let peer = thread::spawn(move || {
        thread::sleep(SPAN);
        let before = clock.now();
        client.send_to(b"question", itself).expect("send");
        client.recv(&mut [0; 16]).expect("an answer");
        (before, clock.now())
    });
    while event_loop.owner_mut().0.sent.len() < 2 {
        event_loop.turn_within(Duration::from_millis(500)).expect("a turn");
    }
    let (before, after) = peer.join().expect("the peer");
    let Dated { received, sent, later, .. } = &event_loop.owner_mut().0;
    assert!(received[0].waited(before), "dated before it was sent");
    assert!(received[1].waited(later.expect("it was sent")), "dated before it was sent, as the one before it");
    // One of the two answers is the peer's.
    assert!(sent.iter().all(|sent| sent.waited(before)));
    assert!(sent.iter().any(|sent| after.waited(*sent)), "dated after it was received");
}
