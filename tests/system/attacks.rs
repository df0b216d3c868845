//! Attacks on true processes: whoever has seen every datagram of a server, and sends from a socket of its own, frees, ends and opens nothing.

use cistern_capture::Reader;
use cistern_testkit::{Agent, Server, eventually};
use cistern_wire::limits::DATAGRAM_MIN;
use cistern_wire::{
    Bytes8, Datagram, EndReason, EndSession, Fate, Header, Hello, Message, Nack, NackReason, Packer, RefuseReason, SessionId,
};
use serde_json::json;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// A datagram that somebody on the path has seen.
struct Seen {
    from: SocketAddr,
    bytes: Vec<u8>,
}

impl Seen {
    fn header(&self) -> Header {
        Datagram::seen(&self.bytes).unwrap().header
    }

    /// The HELLO in it.
    fn hello(&self) -> Option<Hello<'_>> {
        Datagram::seen(&self.bytes).unwrap().messages().find_map(|message| match message {
            Message::Hello(hello) => Some(hello),
            _ => None,
        })
    }
}

/// Everything that the server's first process has sent and received so far.
fn seen(server: &Server) -> Vec<Seen> {
    let reader = Reader::new(File::open(server.captures.file("server", 1)).unwrap());
    reader.filter_map(Result::ok).map(|datagram| Seen { from: datagram.from, bytes: datagram.payload.to_vec() }).collect()
}

fn encoded(header: Header, message: &Message<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut packer = Packer::new(&mut bytes, header, DATAGRAM_MIN);
    assert!(packer.push(message), "one message fits");
    packer.finish();
    bytes
}

fn stranger() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    socket
}

/// Waits until the server has dropped so many datagrams for a reason.
fn dropped(server: &Server, reason: &str, least: u64) {
    eventually(reason, || server.status()["drops_by_reason"][reason].as_u64().is_some_and(|n| n >= least).then_some(()));
}

fn world() -> (Server, Agent) {
    let server = Server::start();
    server.captures.have_hostile_datagrams();
    let mut a = Agent::start(&server, "A");
    a.put("/job", "");
    (server, a)
}

#[test]
fn nothing_from_a_foreign_address_ends_a_session_or_frees_its_lock_at_either_end() {
    let (server, mut a) = world();
    let (hold, _) = a.lock("/job");
    let all = seen(&server);
    let newest = |from_server: bool| all.iter().rev().find(|seen| seen.header().from_server == from_server && seen.header().session.0 != 0);
    let (of_agent, of_server) = (newest(false).unwrap(), newest(true).unwrap());
    let socket = stranger();
    // Numbers that the two have not reached meanwhile: else these would be taken for copies.
    for n in 1_001..=1_003 {
        let Header { session, packet, .. } = of_agent.header();
        let end = EndSession { serial: 100 + n, reason: EndReason::Close };
        let header = Header { from_server: false, session, packet: packet + n };
        socket.send_to(&encoded(header, &end.into()), server.address).unwrap();
        socket.send_to(&of_agent.bytes, server.address).unwrap();
        let nack = Nack { nonce: 0, echo: packet, reason: NackReason::Ended, fate: Fate::Unknown };
        let header = Header { from_server: true, session, packet: of_server.header().packet + n };
        socket.send_to(&encoded(header, &nack.into()), of_agent.from).unwrap();
    }
    dropped(&server, "unproven_address", 3);
    let tried = Agent::start(&server, "B").ask(&json!({ "op": "lock", "path": "/job", "shared": false, "wait_ms": 0 })).unwrap_err();
    assert_eq!(tried["code"], "EAGAIN", "{tried}");
    a.ok(json!({ "op": "ping" }));
    assert_eq!(a.hold(hold), "certain");
    assert_eq!(server.count("delivery_failures"), 0);
    a.unlock(hold);
}

//= docs/sealed.md#the-handshake
//= type=test
//# OPEN and WELCOME MUST NOT end, supersede or renew anything, nor leave anything durable: a recording of OPEN can be sent by anybody.
#[test]
fn handshakes_that_come_again_after_their_session_has_ended_open_nothing() {
    let (server, mut a) = world();
    let hellos = |seen: &Seen| seen.header().session == SessionId(0) && !seen.header().from_server;
    assert_eq!(a.process.end(), Some(0));
    eventually("the session has ended", || (server.count("sessions") == 0).then_some(()));
    let again: Vec<Seen> = seen(&server).into_iter().filter(hellos).collect();
    let with_cookie = again.iter().filter(|seen| seen.hello().is_some_and(|hello| !hello.cookie.0.is_empty())).count();
    assert!(with_cookie > 0);
    // The agent is gone, and its address is anybody's.
    let (same, opened) = (UdpSocket::bind(again[0].from).unwrap(), server.count("opened"));
    same.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    for _ in 0..3 {
        again.iter().for_each(|seen| assert_eq!(same.send_to(&seen.bytes, server.address).unwrap(), seen.bytes.len()));
    }
    let mut room = [0; 2_048];
    eventually("a session is offered", || {
        let length = same.recv(&mut room).unwrap();
        let datagram = Datagram::at_agent(&room[..length]).unwrap();
        datagram.messages().any(|message| matches!(message, Message::Welcome(_))).then_some(())
    });
    assert_eq!((server.count("sessions"), server.count("opened")), (0, opened));
}

#[test]
fn an_incarnation_far_above_that_of_a_living_agent_is_refused() {
    let (server, mut a) = world();
    let (hold, _) = a.lock("/job");
    let all = seen(&server);
    let of_a = all.iter().find(|seen| seen.from != server.address && seen.hello().is_some()).unwrap();
    let socket = stranger();
    let hello = Hello { incarnation: 1 << 40, handshake: 7, cookie: Bytes8(b""), ..of_a.hello().unwrap() };
    let mut room = [0; 2_048];
    let mut say = |packet: u64, hello: &Hello<'_>| {
        let header = Header { from_server: false, session: SessionId(0), packet };
        socket.send_to(&encoded(header, &(*hello).into()), server.address).unwrap();
        let length = socket.recv(&mut room).unwrap();
        room[..length].to_vec()
    };
    let challenged = say(1, &hello);
    let Some(Message::Challenge(challenge)) = Datagram::at_agent(&challenged).unwrap().messages().next() else { panic!("a CHALLENGE") };
    let refused = say(2, &Hello { cookie: challenge.cookie, ..hello });
    let Some(Message::Refuse(refuse)) = Datagram::at_agent(&refused).unwrap().messages().next() else { panic!("a REFUSE") };
    assert_eq!(refuse.reason, RefuseReason::Ahead);
    a.ok(json!({ "op": "ping" }));
    assert_eq!(a.hold(hold), "certain");
    a.unlock(hold);
}
