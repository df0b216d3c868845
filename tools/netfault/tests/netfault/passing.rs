//! The proxy on real sockets of loopback.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use cistern_capture::{Datagram, Reader};
use cistern_netfault::command::Command;
use cistern_netfault::script;
use cistern_netfault::stats::{Counts, Lost, Stats};
use cistern_netfault::{Options, Proxy, ProxyError, Running};

pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Answers every datagram with itself, until the test ends.
pub(crate) fn echo() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut buffer = [0; 2_048];
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..length], from);
        }
    });
    address
}

fn options(server: SocketAddr) -> Options {
    Options::between("127.0.0.1:0".parse().unwrap(), server)
}

fn started(server: SocketAddr) -> Running {
    Running::start(options(server)).unwrap()
}

pub(crate) fn command(proxy: &Running, text: &str) -> Stats {
    proxy.handle().command(Command::parse(text).unwrap()).unwrap()
}

fn receive(socket: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2_048];
    let length = socket.recv(&mut buffer).expect("a datagram in time");
    buffer[..length].to_vec()
}

fn ask(agent: &UdpSocket, proxy: SocketAddr, text: &[u8]) {
    agent.send_to(text, proxy).unwrap();
    assert_eq!(receive(agent), text);
}

fn eventually(what: &str, mut look: impl FnMut() -> bool) {
    let start = Instant::now();
    while !look() {
        assert!(start.elapsed() < PATIENCE, "waited in vain: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn agents_have_their_own_answers_and_the_server_sees_each_by_itself() {
    let server = socket();
    let proxy = started(server.local_addr().unwrap());
    let agents = [socket(), socket(), socket()];
    let mut seen = Vec::new();
    for (agent, text) in agents.iter().zip([b"a", b"b", b"c"]) {
        agent.send_to(text, proxy.address).unwrap();
        let mut buffer = [0; 100];
        let (_, from) = server.recv_from(&mut buffer).unwrap();
        seen.push((from, *text));
    }
    for (from, text) in seen.iter().rev() {
        server.send_to(&text[..], from).unwrap();
    }
    for (agent, text) in agents.iter().zip([b"a", b"b", b"c"]) {
        assert_eq!(receive(agent), text);
    }
    seen.sort();
    seen.dedup_by_key(|(from, _)| *from);
    assert_eq!(seen.len(), 3);
}

#[test]
fn cut_takes_effect_at_once_in_its_direction_and_heal_ends_it() {
    let server = socket();
    let proxy = started(server.local_addr().unwrap());
    let agent = socket();
    agent.send_to(b"first", proxy.address).unwrap();
    let (_, back) = server.recv_from(&mut [0; 100]).unwrap();
    command(&proxy, "cut a->s");
    agent.send_to(b"lost", proxy.address).unwrap();
    server.send_to(b"passes", back).unwrap();
    assert_eq!(receive(&agent), b"passes");
    eventually("the loss is counted", || proxy.handle().stats().unwrap().total.up.lost.get(&Lost::Cut) == Some(&1));
    command(&proxy, "heal");
    agent.send_to(b"second", proxy.address).unwrap();
    assert_eq!(receive(&server), b"second");
    let stats = proxy.handle().stats().unwrap();
    assert_eq!((stats.total.up.received, stats.total.up.passed, stats.total.down.passed), (3, 2, 1));
}

fn adds_up(counts: &Counts) {
    assert_eq!(counts.received, counts.passed + counts.lost_all(), "{counts}");
    assert_eq!(counts.passed + counts.duplicated, counts.sent + counts.unsent, "{counts}");
}

#[test]
fn what_became_of_every_datagram_is_counted() {
    let proxy = started(echo());
    for text in ["loss 20% a->s", "duplicate 20% within 5ms", "delay 1ms jitter 2ms", "corrupt 10% s->a", "reorder 10% by 3ms"] {
        command(&proxy, text);
    }
    let agents = [socket(), socket()];
    for n in 0..200_u16 {
        for agent in &agents {
            agent.send_to(&n.to_be_bytes(), proxy.address).unwrap();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    eventually("everything has come and gone", || {
        let stats = proxy.handle().stats().unwrap();
        stats.held == 0 && stats.total.up.received == 400 && stats.total.down.received == stats.total.up.sent
    });
    let stats = proxy.handle().stats().unwrap();
    for counts in [&stats.total.up, &stats.total.down] {
        adds_up(counts);
        assert!(counts.duplicated > 0 && counts.delayed > 0, "{counts}");
    }
    assert!(stats.total.up.lost_all() > 20 && stats.total.down.corrupted > 5 && stats.total.up.corrupted == 0, "{stats}");
    assert_eq!(stats.agents.iter().map(|agent| agent.counts.up.received).sum::<u64>(), 400);
    assert!(stats.rules.iter().all(|rule| rule.touched > 0), "{stats}");
}

#[test]
fn script_runs_at_its_times_and_can_end_the_proxy() {
    let script = script::parse("0s cut\n300ms heal\n600ms end").unwrap();
    let proxy = Proxy::open(Options { script, ..options(echo()) }).unwrap();
    let (address, handle) = (proxy.address(), proxy.handle());
    let running = std::thread::spawn(move || proxy.run().unwrap());
    let agent = socket();
    agent.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    let mut answered = false;
    while !running.is_finished() {
        let _ = agent.send_to(b"x", address);
        answered |= agent.recv(&mut [0; 10]).is_ok();
    }
    let ended = running.join().unwrap();
    assert!(answered && ended.stats.total.up.lost.contains_key(&Lost::Cut), "{}", ended.stats);
    assert!(ended.stats.elapsed_ms >= 600, "{}", ended.stats);
    assert!(handle.stats().is_err(), "it has ended");
}

#[test]
fn more_agents_than_the_bound_are_counted_and_silent_ones_make_room() {
    let proxy = Running::start(Options { agents_max: 2, idle: Duration::from_millis(10), ..options(echo()) }).unwrap();
    let agents = [socket(), socket()];
    for agent in &agents {
        ask(agent, proxy.address, b"hello");
    }
    let third = socket();
    third.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    eventually("the first are forgotten, and the third is served", || {
        third.send_to(b"third", proxy.address).unwrap();
        third.recv(&mut [0; 10]).is_ok()
    });
    let stats = proxy.handle().stats().unwrap();
    assert!(stats.agents.iter().all(|agent| agent.number >= 3), "{stats}");
    assert!(stats.total.up.received >= 3 && stats.total.up.passed >= 3, "what went before is still in the total: {stats}");
}

#[test]
fn held_datagrams_are_bounded() {
    let proxy = Running::start(Options { held_max: 1_000, ..options(echo()) }).unwrap();
    command(&proxy, "delay 10s");
    let agent = socket();
    for _ in 0..20 {
        agent.send_to(&[0; 100], proxy.address).unwrap();
    }
    eventually("all have come", || proxy.handle().stats().unwrap().total.up.received == 20);
    let stats = proxy.handle().stats().unwrap();
    assert_eq!((stats.held, stats.total.up.lost.get(&Lost::Room)), (10, Some(&10)));
}

#[test]
fn answers_could_come_from_another_address_and_so_a_wildcard_is_refused() {
    let refused = Running::start(Options { listen: "0.0.0.0:0".parse().unwrap(), ..options(echo()) });
    assert!(matches!(refused, Err(ProxyError::Wildcard(_))));
    let taken = socket();
    let address = taken.local_addr().unwrap();
    let error = Running::start(Options { listen: address, ..options(echo()) }).expect_err("taken").to_string();
    assert!(error.contains(&address.to_string()), "{error}");
}

fn captured(path: &std::path::Path) -> Vec<Datagram> {
    Reader::new(std::fs::File::open(path).unwrap()).map(|datagram| datagram.unwrap()).collect()
}

#[test]
fn captures_have_both_sides_or_one_and_what_was_lost_on_the_side_where_it_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let paths = ["both.pcap", "agents.pcap", "server.pcap"].map(|name| dir.path().join(name));
    let server = echo();
    let proxy = Running::start(Options { captures: paths.clone().map(Some), ..options(server) }).unwrap();
    let (agent, address) = (socket(), proxy.address);
    ask(&agent, address, b"one");
    command(&proxy, "cut");
    agent.send_to(b"lost", address).unwrap();
    eventually("it is lost", || proxy.handle().stats().unwrap().total.up.lost_all() == 1);
    let me = agent.local_addr().unwrap();
    let ended = proxy.end().unwrap();
    assert!(ended.captures.values().all(|recorded| recorded.left_out == 0 && recorded.failure.is_none()));
    let [both, agents, server_side] = paths.map(|path| captured(&path));
    let ways: Vec<_> = agents.iter().map(|datagram| (datagram.from, datagram.to, &datagram.payload[..])).collect();
    assert_eq!(ways, [(me, address, &b"one"[..]), (address, me, b"one"), (me, address, b"lost")]);
    assert_eq!(server_side.iter().map(|datagram| &datagram.payload[..]).collect::<Vec<_>>(), [b"one", b"one"]);
    assert!(server_side[0].to == server && server_side[1].from == server && server_side[0].from == server_side[1].to);
    assert_eq!(both.len(), 5);
}
