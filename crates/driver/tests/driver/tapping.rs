//! What a tap sees of a loop: both ways, single datagrams, with the addresses and times that a capture should have.

use std::collections::VecDeque;
use std::fs::File;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use cistern_capture::Reader;
use cistern_driver::{Clock, EventLoop, LoopOptions, NoServices, Owned, Recorder, Tap, UdpPort};
use cistern_link::Path;

use crate::machines::{Echo, Running, eventually, has_ipv6, open, plain};

/// A datagram that was seen: when, from whom, to whom, what.
type Seen = (Duration, SocketAddr, SocketAddr, Vec<u8>);

#[derive(Debug, Default)]
struct Notes(Mutex<Vec<Seen>>);

impl Tap for Notes {
    fn datagram(&self, at: Duration, from: SocketAddr, to: SocketAddr, payload: &[u8]) {
        self.0.lock().expect("no panic").push((at, from, to, payload.to_vec()));
    }
}

impl Notes {
    /// What was seen, once it is so many datagrams.
    fn seen(&self, count: usize) -> Vec<Seen> {
        eventually("the tap has seen everything", || self.0.lock().expect("no panic").len() >= count);
        self.0.lock().expect("no panic").clone()
    }
}

fn tapped(ports: Vec<UdpPort>, machine: Echo, tap: Arc<dyn Tap>) -> Running<Owned<Echo>, NoServices> {
    let options = LoopOptions { tap: Some(tap), ..LoopOptions::default() };
    let clock = Clock::new().expect("both clocks");
    Running::start(EventLoop::new(ports, Owned(machine), NoServices, clock, options).expect("a loop"))
}

fn since_1970() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock that is set")
}

#[test]
fn socket_for_all_addresses_is_seen_with_the_address_that_was_asked() {
    let mut asked = vec![("0.0.0.0:0", "127.0.0.1"), ("127.0.0.1:0", "127.0.0.1")];
    if has_ipv6("socket_for_all_addresses_is_seen_with_the_address_that_was_asked") {
        asked.push(("[::]:0", "::1"));
    }
    for (bound, asked) in asked {
        let notes = Arc::new(Notes::default());
        let before = since_1970();
        let server = tapped(vec![open(bound)], Echo::default(), Arc::clone(&notes) as Arc<dyn Tap>);
        let asked = SocketAddr::new(asked.parse().expect("an address"), server.addresses[0].port());
        let client = plain(if asked.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" });
        client.send_to(b"question", asked).expect("send");
        client.recv(&mut [0; 100]).expect("an answer");
        let me = client.local_addr().expect("an address");
        let seen = notes.seen(2);
        let ways: Vec<_> = seen.iter().map(|(_, from, to, payload)| (*from, *to, &payload[..])).collect();
        assert_eq!(ways, [(me, asked, &b"question"[..]), (asked, me, b"question")], "bound to {bound}");
        assert!(before <= seen[0].0 && seen[0].0 <= seen[1].0 && seen[1].0 <= since_1970(), "{seen:?}");
    }
}

#[test]
fn who_sends_first_is_seen_with_the_address_of_its_route() {
    let notes = Arc::new(Notes::default());
    let peer = plain("127.0.0.1:0");
    let to = peer.local_addr().expect("an address");
    let machine = Echo { queue: VecDeque::from([(Path::to(to), b"hello".to_vec())]) };
    let agent = tapped(vec![open("0.0.0.0:0")], machine, Arc::clone(&notes) as Arc<dyn Tap>);
    agent.handle.wake();
    let (_, from) = peer.recv_from(&mut [0; 100]).expect("a datagram");
    let seen = notes.seen(1);
    assert_eq!((seen[0].1, seen[0].2), (from, to));
    assert_eq!(from.ip(), IpAddr::from([127, 0, 0, 1]));
}

#[test]
fn datagrams_that_leave_by_one_call_are_seen_one_by_one_in_their_order() {
    let notes = Arc::new(Notes::default());
    let peer = plain("127.0.0.1:0");
    let to = Path::to(peer.local_addr().expect("an address"));
    let payloads: Vec<Vec<u8>> = (0..20_u8).map(|n| if n == 10 { Vec::new() } else { vec![n; 100] }).chain([vec![20; 7]]).collect();
    let machine = Echo { queue: payloads.iter().map(|payload| (to, payload.clone())).collect() };
    let _agent = tapped(vec![open("127.0.0.1:0")], machine, Arc::clone(&notes) as Arc<dyn Tap>);
    let seen: Vec<_> = notes.seen(payloads.len()).into_iter().map(|(_, _, _, payload)| payload).collect();
    assert_eq!(seen, payloads);
}

#[test]
fn capture_of_a_loop_has_what_was_received_and_what_was_sent() {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let recorder = Arc::new(Recorder::create(file.path()).expect("a capture"));
    let server = tapped(vec![open("127.0.0.1:0")], Echo::default(), Arc::clone(&recorder) as Arc<dyn Tap>);
    let client = plain("127.0.0.1:0");
    for n in 0..50_u8 {
        client.send_to(&[n], server.addresses[0]).expect("send");
        client.recv(&mut [0; 100]).expect("an answer");
    }
    let address = server.addresses[0];
    drop(server);
    let recorded = recorder.finish();
    assert_eq!((recorded.written, recorded.left_out), (100, 0));
    let mut reader = Reader::new(File::open(file.path()).expect("the file"));
    let datagrams: Vec<_> = reader.by_ref().map(|datagram| datagram.expect("a datagram")).collect();
    let (received, sent): (Vec<_>, Vec<_>) = datagrams.into_iter().partition(|datagram| datagram.to == address);
    let payloads = |datagrams: &[cistern_capture::Datagram]| datagrams.iter().map(|datagram| datagram.payload[0]).collect::<Vec<_>>();
    assert_eq!(payloads(&received), (0..50).collect::<Vec<_>>());
    assert_eq!(payloads(&sent), payloads(&received));
}
