//! Before the first round: sessions are opened by real handshakes, and the files made that the locks are on.
//!
//! Decides HELLO, CHALLENGE, HELLO with the cookie, WELCOME, CONFIRM, OPENED (`wire-spec.md` section 6.1) as an agent does them, many at a time so
//! that ten thousand sessions are a matter of a second. Place: between the start of the server and `traffic`.
//! Invariant: every wait here has a bound. Leaves to others: everything that is measured.

use crate::agent::{Agent, LIMIT};
use crate::slot;
use crate::trouble::Trouble;
use cistern_wire::limits::{DATAGRAM_MAX, ROOT};
use cistern_wire::{
    AgentId, Ask, Bytes8, Confirm, Create, Datagram, Header, Hello, List, Lock, LockWait, Message, Mode, ObjectId, Packer, Reply,
    SessionId, Terms, Writer,
};
use std::io;
use std::net::UdpSocket;
use std::ops::Range;
use std::time::Duration;

/// Handshakes under way at once at a server as it is: an answer to each fits any receive buffer, and no server calls it a flood.
pub(crate) const TOGETHER: usize = 64;
/// How long an answer may take before the request is sent again.
const PATIENCE: Duration = Duration::from_millis(50);
/// How often it is sent again.
const TRIES: u32 = 100;
/// `PATIENCE` × `TRIES`, in seconds.
const SILENCE_S: u64 = 5;
/// Window asked for in HELLO where nothing else is said; the server's own may be smaller.
const WINDOW: u16 = 64;

/// A handshake under way.
struct Handshake {
    /// The agent's number in this run, from 0.
    number: usize,
    window: u16,
    cookie: Vec<u8>,
    /// Its session, as it was offered.
    offered: Option<Agent>,
    agent: Option<Agent>,
}

/// Opens a session for each of the agents numbered `numbers` by `socket`, the generator's socket number `line`, so many at a time.
pub(crate) fn open(socket: &UdpSocket, line: usize, numbers: Range<usize>, together: usize) -> Result<Vec<Agent>, Trouble> {
    socket.set_read_timeout(Some(PATIENCE)).map_err(Trouble::at("setting a receive timeout"))?;
    let mut agents = Vec::with_capacity(numbers.len());
    let mut packet = 0;
    for start in numbers.clone().step_by(together) {
        let end = numbers.end.min(start + together);
        let mut handshakes: Vec<_> = (start..end).map(|number| Handshake::of(number, WINDOW)).collect();
        open_together(socket, line, &mut handshakes, &mut packet)?;
        agents.extend(handshakes.into_iter().filter_map(|handshake| handshake.agent));
    }
    Ok(agents)
}

/// Opens the session of the agent of that number, which asks for that window.
pub(crate) fn open_with_window(socket: &UdpSocket, number: usize, window: u16) -> Result<Agent, Trouble> {
    socket.set_read_timeout(Some(PATIENCE)).map_err(Trouble::at("setting a receive timeout"))?;
    let mut handshakes = [Handshake::of(number, window)];
    open_together(socket, 0, &mut handshakes, &mut 0)?;
    let [handshake] = handshakes;
    Ok(handshake.agent.expect("handshakes that have ended have an agent"))
}

fn open_together(socket: &UdpSocket, line: usize, handshakes: &mut [Handshake], packet: &mut u64) -> Result<(), Trouble> {
    let (mut buf, mut opened) = (vec![0; DATAGRAM_MAX], 0);
    for _ in 0..TRIES {
        for handshake in handshakes.iter().filter(|handshake| handshake.agent.is_none()) {
            say_hello(socket, handshake, packet)?;
        }
        while let Some(bytes) = receive(socket, &mut buf)? {
            opened += welcome_or_challenge(socket, line, handshakes, packet, bytes)?;
            if opened == handshakes.len() {
                return Ok(());
            }
        }
    }
    Err(Trouble::Silence { while_doing: "opening sessions", seconds: SILENCE_S })
}

/// Takes what came; gives how many sessions are open by it.
fn welcome_or_challenge(
    socket: &UdpSocket,
    line: usize,
    handshakes: &mut [Handshake],
    packet: &mut u64,
    bytes: &[u8],
) -> Result<usize, Trouble> {
    let refused = |got: &dyn std::fmt::Debug| Trouble::Answer {
        while_doing: "opening a session",
        expected: "CHALLENGE, WELCOME or OPENED",
        got: format!("{got:?}"),
    };
    let datagram = Datagram::at_agent(bytes).map_err(|reason| refused(&reason))?;
    let mut opened = 0;
    for message in datagram.messages() {
        // Those that are under way have numbers in a row.
        let first = handshakes.first().map_or(0, Handshake::id);
        let of = |number: u64| number.checked_sub(first).and_then(|at| usize::try_from(at).ok()).filter(|at| *at < handshakes.len());
        match message {
            Message::Challenge(challenge) => {
                if let Some(at) = of(challenge.handshake).filter(|at| handshakes[*at].agent.is_none()) {
                    handshakes[at].cookie = challenge.cookie.0.to_vec();
                    say_hello(socket, &handshakes[at], packet)?;
                }
            }
            Message::Welcome(welcome) => {
                if let Some(at) = of(welcome.handshake).filter(|at| handshakes[*at].agent.is_none()) {
                    let offered = handshakes[at].offered.take().filter(|agent| agent.session == welcome.session);
                    let mut agent = offered.unwrap_or_else(|| Agent::new(welcome.session, line, welcome.window));
                    let mut bytes = Writer::new();
                    agent.pack(&Message::from(Confirm { serial: 1, former: List::of(&[]) }).to_bytes(), &mut bytes);
                    socket.send(&bytes).map_err(Trouble::at("sending CONFIRM"))?;
                    handshakes[at].offered = Some(agent);
                }
            }
            Message::Opened(_) => {
                let is_it =
                    |handshake: &&mut Handshake| handshake.offered.as_ref().is_some_and(|agent| agent.session == datagram.header.session);
                if let Some(handshake) = handshakes.iter_mut().find(is_it) {
                    opened += 1;
                    handshake.agent = handshake.offered.take();
                }
            }
            other => return Err(refused(&other)),
        }
    }
    Ok(opened)
}

impl Handshake {
    const fn of(number: usize, window: u16) -> Self {
        Self { number, window, cookie: Vec::new(), offered: None, agent: None }
    }

    /// The number of this handshake on the wire: not 0, and no other's.
    const fn id(&self) -> u64 {
        self.number as u64 + 1
    }
}

fn say_hello(socket: &UdpSocket, handshake: &Handshake, packet: &mut u64) -> Result<(), Trouble> {
    *packet += 1;
    let mut agent = [0xB5; 16];
    agent[..8].copy_from_slice(&handshake.id().to_be_bytes());
    let hello = Hello {
        window: handshake.window,
        max_datagram: LIMIT,
        label: Bytes8(b"bench"),
        cookie: Bytes8(&handshake.cookie),
        ..Hello::new(AgentId(agent), handshake.id())
    };
    let header = Header { from_server: false, session: SessionId(0), packet: *packet };
    let mut datagram = Writer::new();
    let mut packer = Packer::new(&mut datagram, header, usize::from(LIMIT));
    packer.push(&Message::from(hello));
    packer.finish();
    socket.send(&datagram).map_err(Trouble::at("sending HELLO"))?;
    Ok(())
}

/// Makes an empty file in the root directory; gives its object.
pub(crate) fn create(socket: &UdpSocket, agent: &mut Agent, name: &str) -> Result<ObjectId, Trouble> {
    const DOING: &str = "making a file to lock";
    let ask = next_ask(agent, DOING)?;
    let create = Create {
        ask,
        dir: ObjectId(ROOT),
        name: Bytes8(name.as_bytes()),
        exclusive: true,
        mode: 0o600,
        uid: 0,
        gid: 0,
        ephemeral: false,
        terms: Terms::NONE,
    };
    let object = exchange(socket, agent, &Message::from(create), DOING, |bytes| created(bytes, ask.nonce))?;
    agent.answered(ask.nonce);
    Ok(object)
}

/// Makes an empty file in the root directory and locks it.
pub(crate) fn create_and_lock(socket: &UdpSocket, agent: &mut Agent, name: &str) -> Result<(), Trouble> {
    const DOING: &str = "locking a file";
    let object = create(socket, agent, name)?;
    let ask = next_ask(agent, DOING)?;
    let lock = Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Try };
    exchange(socket, agent, &Message::from(lock), DOING, |bytes| {
        reply(bytes, ask.nonce, "GRANTED", |reply| matches!(reply, Reply::Granted(_)).then_some(()))
    })?;
    agent.answered(ask.nonce);
    Ok(())
}

/// Writes `WRITTEN` bytes into a file.
pub(crate) fn fill(socket: &UdpSocket, agent: &mut Agent, object: ObjectId) -> Result<(), Trouble> {
    const DOING: &str = "filling a file";
    let ask = next_ask(agent, DOING)?;
    exchange(socket, agent, &Message::from(slot::write(ask, object)), DOING, |bytes| changed(bytes, ask.nonce))?;
    agent.answered(ask.nonce);
    Ok(())
}

fn next_ask(agent: &mut Agent, while_doing: &'static str) -> Result<Ask, Trouble> {
    agent.ask().ok_or_else(|| Trouble::Answer { while_doing, expected: "an open window", got: "a full one".to_owned() })
}

/// Sends a request until `look` finds the answer in what comes.
fn exchange<T>(
    socket: &UdpSocket,
    agent: &mut Agent,
    message: &Message<'_>,
    while_doing: &'static str,
    mut look: impl FnMut(&[u8]) -> Result<Option<T>, Trouble>,
) -> Result<T, Trouble> {
    let message = message.to_bytes();
    let (mut datagram, mut buf) = (Writer::new(), vec![0; DATAGRAM_MAX]);
    for _ in 0..TRIES {
        agent.pack(&message, &mut datagram);
        socket.send(&datagram).map_err(Trouble::at("sending a request"))?;
        while let Some(bytes) = receive(socket, &mut buf)? {
            if let Some(found) = look(bytes)? {
                return Ok(found);
            }
        }
    }
    Err(Trouble::Silence { while_doing, seconds: SILENCE_S })
}

/// Whether the change was made; `None` while the answer has not come.
fn changed(bytes: &[u8], nonce: u64) -> Result<Option<()>, Trouble> {
    reply(bytes, nonce, "CHANGED", |reply| matches!(reply, Reply::Changed(_)).then_some(()))
}

/// The file that the answer to CREATE names; `None` while it is not the answer yet.
fn created(bytes: &[u8], nonce: u64) -> Result<Option<ObjectId>, Trouble> {
    reply(bytes, nonce, "CHANGED, with a new object", |reply| match reply {
        Reply::Changed(changed) => changed.effects.iter().find(|effect| effect.before == 0).map(|made| made.attr.object),
        _ => None,
    })
}

/// What `read` makes of the answer to a request, which must be something; `None` while the answer has not come.
fn reply<T>(bytes: &[u8], nonce: u64, expected: &'static str, read: impl Fn(&Reply<'_>) -> Option<T>) -> Result<Option<T>, Trouble> {
    let wrong = |got: String| Trouble::Answer { while_doing: "preparing a load", expected, got };
    let datagram = Datagram::at_agent(bytes).map_err(|reason| wrong(reason.to_string()))?;
    for message in datagram.messages() {
        match message {
            Message::Ack(ack) if ack.nonce == nonce => {
                return read(&ack.reply).map(Some).ok_or_else(|| wrong(format!("{:?}", ack.reply)));
            }
            // Also the second answer to a HELLO that was sent twice.
            other if slot::Slot::may_come(&other) => {}
            other => return Err(wrong(format!("{other:?}"))),
        }
    }
    Ok(None)
}

/// The next datagram; `None` if none comes in time.
fn receive<'b>(socket: &UdpSocket, buf: &'b mut [u8]) -> Result<Option<&'b [u8]>, Trouble> {
    match socket.recv(buf) {
        Ok(len) => Ok(Some(&buf[..len])),
        Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted) => Ok(None),
        Err(error) => Err(Trouble::at("receiving")(error)),
    }
}
