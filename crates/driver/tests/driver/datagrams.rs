//! What goes over real loopback sockets: both families, the asked address, bursts, drops and errors.

use std::collections::VecDeque;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use cistern_driver::{Clock, EventLoop, LoopError, LoopOptions, NoServices, OpenError, Owned, PortOptions, UdpPort};
use cistern_link::Path;

use crate::machines::{Echo, Recorder, Running, eventually, has_ipv6, open, owned, plain};

fn ask(client: &UdpSocket, server: SocketAddr, question: &[u8]) -> (Vec<u8>, SocketAddr) {
    client.send_to(question, server).expect("send");
    receive(client)
}

fn receive(client: &UdpSocket) -> (Vec<u8>, SocketAddr) {
    let mut buffer = [0; 2_048];
    let (length, from) = client.recv_from(&mut buffer).expect("an answer in time");
    (buffer[..length].to_vec(), from)
}

#[test]
fn echo_answers_over_ipv4() {
    let server = Running::start(owned(vec![open("127.0.0.1:0")], Echo::default()));
    let client = plain("127.0.0.1:0");
    for question in [&b"one"[..], b"two", b""] {
        let (answer, from) = ask(&client, server.addresses[0], question);
        assert_eq!((&answer[..], from), (question, server.addresses[0]));
    }
    let counts = server.counts();
    assert_eq!((counts.datagrams_in, counts.bytes_in), (3, 6));
    eventually("all three are counted as sent", || {
        let counts = server.counts();
        (counts.datagrams_out, counts.bytes_out) == (3, 6)
    });
}

#[test]
fn one_loop_answers_over_both_families() {
    if !has_ipv6("one_loop_answers_over_both_families") {
        return;
    }
    let ports = vec![open("127.0.0.1:0"), open("[::]:0")];
    let server = Running::start(owned(ports, Echo::default()));
    let four = plain("127.0.0.1:0");
    assert_eq!(ask(&four, server.addresses[0], b"four"), (b"four".to_vec(), server.addresses[0]));
    let six = plain("[::1]:0");
    let asked = SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], server.addresses[1].port()));
    assert_eq!(ask(&six, asked, b"six"), (b"six".to_vec(), asked));
}

#[test]
fn ipv6_socket_carries_ipv6_only() {
    if !has_ipv6("ipv6_socket_carries_ipv6_only") {
        return;
    }
    // With a dual-stack socket on it, a port is never free for IPv4; with luck's help, one of these is.
    let free_for_ipv4 = (0..50).any(|_| {
        let six = open("[::]:0");
        let same_port = SocketAddr::from(([0, 0, 0, 0], six.local_addr().port()));
        UdpPort::open(same_port, &PortOptions::default()).is_ok()
    });
    assert!(free_for_ipv4);
}

#[test]
fn answer_comes_from_the_address_that_was_asked() {
    let server = Running::start(owned(vec![open("0.0.0.0:0")], Echo::default()));
    let client = plain("127.0.0.1:0");
    for last in [2, 3, 1] {
        let asked = SocketAddr::from(([127, 0, 0, last], server.addresses[0].port()));
        let (answer, from) = ask(&client, asked, b"who are you");
        assert_eq!(from, asked);
        assert_eq!(answer, b"who are you");
    }
}

#[test]
fn burst_to_one_path_arrives_whole_and_in_order() {
    let receiver = Running::start(owned(vec![open("127.0.0.1:0")], Recorder::default()));
    let path = Path::to(receiver.addresses[0]);
    // The sizes make runs that can leave by one call, ended by shorter and by longer ones.
    let sizes = [1_000, 1_000, 1_000, 400, 1_232, 1_232, 7, 1, 1, 0, 1_000];
    let burst: Vec<Vec<u8>> = (0..150_usize)
        .map(|number| {
            let byte = u8::try_from(number).expect("below 256");
            vec![byte; sizes[number % sizes.len()]]
        })
        .collect();
    let queue: VecDeque<_> = burst.iter().map(|bytes| (path, bytes.clone())).collect();
    let sender = Running::start(owned(vec![open("127.0.0.1:0")], Echo { queue }));
    eventually("everything arrives", || receiver.counts().datagrams_in == burst.len() as u64);
    let counts = sender.counts();
    assert_eq!(counts.datagrams_out, burst.len() as u64);
    receiver.handle.stop();
    let (mut event_loop, _) = receiver.join();
    let Owned(recorder) = event_loop.owner_mut();
    assert_eq!(recorder.datagrams(), burst);
}

#[test]
fn datagrams_for_which_the_receive_buffer_had_no_room_are_counted() {
    let options = PortOptions { receive_buffer_bytes: 4_096, ..PortOptions::default() };
    let port = UdpPort::open("127.0.0.1:0".parse().expect("an address"), &options).expect("a free port");
    let mut event_loop = owned(vec![port], Echo::default());
    let to = event_loop.local_addrs().next().expect("one socket");
    let (client, stats, mut sent) = (plain("127.0.0.1:0"), event_loop.stats(), 500);
    for _ in 0..sent {
        client.send_to(&[7; 100], to).expect("send");
    }
    // The kernel is asked once in a while, after something has come.
    eventually("every datagram is received or counted", || {
        client.send_to(b"one more", to).expect("send");
        sent += 1;
        event_loop.turn_within(Duration::from_millis(100)).expect("a turn");
        let counts = stats.read();
        counts.receive_overflows > 0 && counts.datagrams_in + counts.receive_overflows == sent
    });
}

#[test]
fn too_large_datagram_is_dropped_by_name_and_the_next_is_served() {
    let server = Running::start(owned(vec![open("127.0.0.1:0")], Echo::default()));
    let client = plain("127.0.0.1:0");
    client.send_to(&[1; 1_233], server.addresses[0]).expect("send");
    client.send_to(&[1; 65_507], server.addresses[0]).expect("send the largest that UDP has");
    let largest = [7; 1_232];
    let (answer, _) = ask(&client, server.addresses[0], &largest);
    assert_eq!(answer, largest);
    let counts = server.counts();
    assert_eq!((counts.dropped_too_long, counts.datagrams_in), (2, 1));
}

#[test]
fn unreachable_peer_is_counted_and_stops_nothing() {
    let closed = plain("127.0.0.1:0").local_addr().expect("an address");
    let open_peer = plain("127.0.0.1:0");
    let living = Path::to(open_peer.local_addr().expect("an address"));
    let mut queue = VecDeque::new();
    for number in 0..10 {
        queue.push_back((Path::to(closed), b"anyone there?".to_vec()));
        queue.push_back((living, vec![number]));
    }
    let sender = Running::start(owned(vec![open("127.0.0.1:0")], Echo { queue }));
    for number in 0..10 {
        assert_eq!(receive(&open_peer), (vec![number], sender.addresses[0]));
    }
    eventually("the reports are counted", || sender.counts().icmp_unreachable >= 1);
    let (answer, _) = ask(&open_peer, sender.addresses[0], b"still there?");
    assert_eq!(answer, b"still there?");
    assert_eq!(sender.counts().receive_errors, 0);
}

#[test]
fn path_without_a_socket_is_dropped_by_name() {
    let queue = VecDeque::from([
        (Path::to("[::1]:9".parse().expect("an address")), b"six".to_vec()),
        (
            Path { remote: "127.0.0.1:9".parse().expect("an address"), local: Some("127.0.0.9".parse().expect("an address")) },
            b"not mine".to_vec(),
        ),
    ]);
    let sender = Running::start(owned(vec![open("127.0.0.1:0")], Echo { queue }));
    eventually("both are counted", || sender.counts().dropped_no_port == 2);
    assert_eq!(sender.counts().datagrams_out, 0);
}

#[test]
fn address_in_use_is_an_error_that_names_it() {
    let first = open("127.0.0.1:0");
    let taken = first.local_addr();
    let error = UdpPort::open(taken, &PortOptions::default()).err().expect("the port is taken");
    assert!(matches!(error, OpenError::InUse { address } if address == taken));
    let text = error.to_string();
    assert!(text.contains(&taken.to_string()), "{text}");
    assert!(text.contains("choose another port"), "{text}");
}

#[test]
fn foreign_address_is_an_error_that_says_what_to_use() {
    let foreign = "192.0.2.1:0".parse().expect("an address for documentation");
    let error = UdpPort::open(foreign, &PortOptions::default()).err().expect("no interface has it");
    assert!(matches!(error, OpenError::NotLocal { .. }), "{error}");
}

#[test]
fn sockets_between_which_an_answer_could_not_choose_are_refused() {
    for (first, second) in [("0.0.0.0:0", "127.0.0.1:0"), ("127.0.0.1:0", "127.0.0.1:0")] {
        let refused = EventLoop::new(
            vec![open(first), open(second)],
            Owned(Echo::default()),
            NoServices,
            Clock::new().expect("both clocks"),
            LoopOptions::default(),
        );
        assert!(matches!(refused, Err(LoopError::Ambiguous { .. })), "{first} {second}");
    }
    owned(vec![open("127.0.0.1:0"), open("127.0.0.2:0")], Echo::default());
}
