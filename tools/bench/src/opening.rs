//! Before the first round: sessions are opened by real handshakes, and the files made that the locks are on.
//!
//! Decides HELLO, CHALLENGE, HELLO with the cookie, WELCOME, CONFIRM, OPENED (`wire-spec.md` section 6.1) as an agent does them, many at a time so
//! that ten thousand sessions are a matter of a second. Place: between the start of the server and `traffic`.
//! Invariant: every wait here has a bound. Leaves to others: everything that is measured.

use crate::agent::Agent;
use crate::slot;
use crate::trouble::Trouble;
use cistern_testkit::session::{Addressee, Opening, SealedBy, Step};
use cistern_wire::limits::{DATAGRAM_MAX, ROOT};
use cistern_wire::{AgentId, Ask, Bytes8, Create, Datagram, Lock, LockWait, Message, Mode, ObjectId, Reply, Terms};
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

/// Opens a session for each of the agents numbered `numbers` by `socket`, the generator's socket number `line`, so many at a time; sealed by
/// these keys, if there are any.
pub(crate) fn open(
    socket: &UdpSocket,
    line: usize,
    numbers: Range<usize>,
    together: usize,
    sealed: Option<&SealedBy>,
) -> Result<Vec<Agent>, Trouble> {
    socket.set_read_timeout(Some(PATIENCE)).map_err(Trouble::at("setting a receive timeout"))?;
    let mut agents = Vec::with_capacity(numbers.len());
    for start in numbers.clone().step_by(together) {
        let end = numbers.end.min(start + together);
        let handshakes = (start..end).map(|number| handshake(number, WINDOW, sealed)).collect();
        agents.extend(open_together(socket, line, handshakes)?);
    }
    Ok(agents)
}

/// Opens the session of the agent of that number, which asks for that window.
pub(crate) fn open_with_window(socket: &UdpSocket, number: usize, window: u16) -> Result<Agent, Trouble> {
    socket.set_read_timeout(Some(PATIENCE)).map_err(Trouble::at("setting a receive timeout"))?;
    let mut agents = open_together(socket, 0, vec![handshake(number, window, None)])?;
    Ok(agents.pop().expect("a handshake that has ended has an agent"))
}

/// A handshake of the agent of this number, from 0: its own number is one higher.
fn handshake(number: usize, window: u16, sealed: Option<&SealedBy>) -> Opening {
    let id = number as u64 + 1;
    let mut agent = [0xB5; 16];
    agent[..8].copy_from_slice(&id.to_be_bytes());
    Opening::new(AgentId(agent), id, window, b"bench", sealed.cloned())
}

/// Does all these handshakes, which have numbers in a row.
fn open_together(socket: &UdpSocket, line: usize, handshakes: Vec<Opening>) -> Result<Vec<Agent>, Trouble> {
    let first = handshakes.first().map_or(0, Opening::number);
    let (mut buf, mut datagram, mut left) = (vec![0; DATAGRAM_MAX], Vec::new(), handshakes.len());
    let mut handshakes: Vec<_> = handshakes.into_iter().map(|handshake| (handshake, None::<Agent>)).collect();
    for _ in 0..TRIES {
        for (handshake, _) in handshakes.iter_mut().filter(|(_, agent)| agent.is_none()) {
            handshake.write(&mut datagram);
            socket.send(&datagram).map_err(Trouble::at("opening a session"))?;
        }
        while let Some(bytes) = receive(socket, &mut buf)? {
            let at = match Addressee::of(bytes) {
                Some(Addressee::Handshake(number)) => number.checked_sub(first).and_then(|at| usize::try_from(at).ok()),
                Some(Addressee::Session(id)) => handshakes.iter().position(|(handshake, _)| handshake.offered() == Some(id)),
                None => None,
            };
            let Some((handshake, agent)) = at.and_then(|at| handshakes.get_mut(at)).filter(|(_, agent)| agent.is_none()) else { continue };
            match handshake.take(bytes) {
                Step::Waits => {}
                Step::Sends => {
                    handshake.write(&mut datagram);
                    socket.send(&datagram).map_err(Trouble::at("opening a session"))?;
                }
                Step::Open(session) => {
                    *agent = Some(Agent::new(session, line));
                    left -= 1;
                }
                Step::Refused(got) => return Err(Trouble::Answer { while_doing: "opening a session", expected: "WELCOME", got }),
            }
            if left == 0 {
                return Ok(handshakes.into_iter().filter_map(|(_, agent)| agent).collect());
            }
        }
    }
    Err(Trouble::Silence { while_doing: "opening sessions", seconds: SILENCE_S })
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
    let object = exchange(socket, agent, &Message::from(create), DOING, |datagram| created(datagram, ask.nonce))?;
    agent.answered(ask.nonce);
    Ok(object)
}

/// Makes an empty file in the root directory and locks it.
pub(crate) fn create_and_lock(socket: &UdpSocket, agent: &mut Agent, name: &str) -> Result<(), Trouble> {
    const DOING: &str = "locking a file";
    let object = create(socket, agent, name)?;
    let ask = next_ask(agent, DOING)?;
    let lock = Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Try };
    exchange(socket, agent, &Message::from(lock), DOING, |datagram| {
        reply(datagram, ask.nonce, "GRANTED", |reply| matches!(reply, Reply::Granted(_)).then_some(()))
    })?;
    agent.answered(ask.nonce);
    Ok(())
}

/// Writes `WRITTEN` bytes into a file.
pub(crate) fn fill(socket: &UdpSocket, agent: &mut Agent, object: ObjectId) -> Result<(), Trouble> {
    const DOING: &str = "filling a file";
    let ask = next_ask(agent, DOING)?;
    exchange(socket, agent, &Message::from(slot::write(ask, object)), DOING, |datagram| changed(datagram, ask.nonce))?;
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
    mut look: impl FnMut(&Datagram<'_>) -> Result<Option<T>, Trouble>,
) -> Result<T, Trouble> {
    let message = message.to_bytes();
    let (mut datagram, mut buf, mut text) = (Vec::new(), vec![0; DATAGRAM_MAX], Vec::new());
    for _ in 0..TRIES {
        agent.pack(&message, &mut datagram);
        socket.send(&datagram).map_err(Trouble::at("sending a request"))?;
        while let Some(bytes) = receive(socket, &mut buf)? {
            // What does not open is of a handshake: the second answer to what was sent twice.
            if let Ok(datagram) = agent.wire.open(bytes, &mut text)
                && let Some(found) = look(&datagram)?
            {
                return Ok(found);
            }
        }
    }
    Err(Trouble::Silence { while_doing, seconds: SILENCE_S })
}

/// Whether the change was made; `None` while the answer has not come.
fn changed(datagram: &Datagram<'_>, nonce: u64) -> Result<Option<()>, Trouble> {
    reply(datagram, nonce, "CHANGED", |reply| matches!(reply, Reply::Changed(_)).then_some(()))
}

/// The file that the answer to CREATE names; `None` while it is not the answer yet.
fn created(datagram: &Datagram<'_>, nonce: u64) -> Result<Option<ObjectId>, Trouble> {
    reply(datagram, nonce, "CHANGED, with a new object", |reply| match reply {
        Reply::Changed(changed) => changed.effects.iter().find(|effect| effect.before == 0).map(|made| made.attr.object),
        _ => None,
    })
}

/// What `read` makes of the answer to a request, which must be something; `None` while the answer has not come.
fn reply<T>(
    datagram: &Datagram<'_>,
    nonce: u64,
    expected: &'static str,
    read: impl Fn(&Reply<'_>) -> Option<T>,
) -> Result<Option<T>, Trouble> {
    let wrong = |got: String| Trouble::Answer { while_doing: "preparing a load", expected, got };
    for message in datagram.messages() {
        match message {
            Message::Ack(ack) if ack.nonce == nonce => {
                return read(&ack.reply).map(Some).ok_or_else(|| wrong(format!("{:?}", ack.reply)));
            }
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
