//! Ten thousand locks at once, through real sockets.
//!
//! Decides how they are asked for: each agent keeps its window full, and packs as many LOCK requests into a datagram as fit; one agent
//! alone, then sixteen. Before the next run all are given back. Place: a part of `scale`, beside a server process.
//! Invariant: every wait has a bound. Leaves to others: sessions and files (`opening`), the server (`host`), printing (`scale`).

use super::figures::{Bulk, median};
use crate::agent::Agent;
use crate::cores::Cores;
use crate::host::{Host, Role};
use crate::opening;
use crate::trouble::Trouble;
use cistern_wire::limits::{CHECKSUM_LEN, DATAGRAM_DEFAULT, DATAGRAM_MAX, HEADER_LEN};
use cistern_wire::{
    Datagram, Generation, Keep, List, Lock, LockClass, LockId, LockWait, Message, Mode, ObjectId, Release, ReleaseItem, Reply,
};
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::{Duration, Instant};

/// How often all are taken, after a first time that does not count.
const RUNS: usize = 9;
/// How long nothing may come.
const SILENCE: Duration = Duration::from_secs(5);
/// Locks named by one RELEASE.
const TOGETHER: usize = 16;

/// One agent's part.
struct Part {
    socket: UdpSocket,
    agent: Agent,
    files: Vec<ObjectId>,
    /// How many of them were asked for.
    asked: usize,
    held: Vec<(ObjectId, Generation)>,
    given_back: usize,
}

/// Measures so many locks taken by so many agents.
pub(super) fn measure(agents: usize, locks: usize, cores: Cores) -> Result<Bulk, Trouble> {
    let host = Host::start(Role::Server, cores)?;
    let mut parts = (0..agents).map(|number| part(&host, number, agents, locks)).collect::<Result<Vec<_>, _>>()?;
    let (mut spans, mut spent) = (Vec::new(), Vec::new());
    let mut datagrams = [0; 2];
    for run in 0..=RUNS {
        let (before, begun) = (host.usage()?, Instant::now());
        datagrams = take_all(&mut parts)?;
        let span = begun.elapsed();
        let used = host.usage()?.since(before);
        if run > 0 {
            spans.push(span.as_secs_f64() * 1e3);
            spent.push(Duration::from_nanos(used.cpu_ns).as_secs_f64() * 1e3);
        }
        give_back_all(&mut parts)?;
    }
    let best_ms = spans.iter().copied().fold(f64::INFINITY, f64::min);
    let [datagrams_out, datagrams_in] = datagrams;
    Ok(Bulk { agents, locks, median_ms: median(spans), best_ms, server_cpu_ms: median(spent), datagrams_out, datagrams_in })
}

fn part(host: &Host, number: usize, agents: usize, locks: usize) -> Result<Part, Trouble> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Trouble::at("opening a socket"))?;
    socket.connect(host.address).map_err(Trouble::at("connecting a socket"))?;
    let mut agent = opening::open(&socket, number, number..number + 1)?.pop().ok_or(Trouble::Answer {
        while_doing: "opening a session",
        expected: "a session",
        got: "none".to_owned(),
    })?;
    let mine = (number..locks).step_by(agents);
    let files = mine.map(|n| opening::create(&socket, &mut agent, &format!("bulk-{n}"))).collect::<Result<Vec<_>, _>>()?;
    socket.set_nonblocking(true).map_err(Trouble::at("making a socket non-blocking"))?;
    Ok(Part { socket, agent, files, asked: 0, held: Vec::new(), given_back: 0 })
}

/// Takes every lock; datagrams sent and received.
fn take_all(parts: &mut [Part]) -> Result<[u64; 2], Trouble> {
    let (mut sent, mut received, mut heard) = (0, 0, Instant::now());
    for part in parts.iter_mut() {
        part.asked = 0;
        part.held.clear();
    }
    while parts.iter().any(|part| part.held.len() < part.files.len()) {
        for part in parts.iter_mut() {
            sent += part.ask_all()?;
            let came = part.receive()?;
            received += came;
            if came > 0 {
                heard = Instant::now();
            }
        }
        if heard.elapsed() > SILENCE {
            return Err(Trouble::Silence { while_doing: "taking locks at once", seconds: SILENCE.as_secs() });
        }
    }
    Ok([sent, received])
}

fn give_back_all(parts: &mut [Part]) -> Result<(), Trouble> {
    for part in parts {
        let held = std::mem::take(&mut part.held);
        for some in held.chunks(TOGETHER) {
            part.given_back = 0;
            let item = |(object, generation): &(ObjectId, Generation)| ReleaseItem {
                lock: LockId { object: *object, class: LockClass::Advisory },
                generation: *generation,
                keep: Keep::Nothing,
            };
            let items: Vec<_> = some.iter().map(item).collect();
            let message = Message::from(Release { serial: part.agent.next_serial(), items: List::of(&items) }).to_bytes();
            let mut datagram = Vec::new();
            part.agent.pack(&message, &mut datagram);
            part.socket.send(&datagram).map_err(Trouble::at("sending RELEASE"))?;
            let begun = Instant::now();
            while part.given_back < some.len() {
                part.receive()?;
                if begun.elapsed() > SILENCE {
                    return Err(Trouble::Silence { while_doing: "giving locks back", seconds: SILENCE.as_secs() });
                }
            }
        }
    }
    Ok(())
}

impl Part {
    /// Asks for as many locks as the window allows; datagrams sent.
    fn ask_all(&mut self) -> Result<u64, Trouble> {
        let mut sent = 0;
        let mut messages: Vec<Vec<u8>> = Vec::new();
        let mut len = HEADER_LEN + CHECKSUM_LEN;
        loop {
            let more = self.files.get(self.asked).copied().and_then(|object| Some((object, self.agent.ask()?)));
            if let Some((object, ask)) = more {
                self.asked += 1;
                let message = Message::from(Lock { ask, object, mode: Mode::Exclusive, wait: LockWait::Try }).to_bytes();
                if len + message.len() > DATAGRAM_DEFAULT {
                    sent += self.send(&mut messages)?;
                    len = HEADER_LEN + CHECKSUM_LEN;
                }
                len += message.len();
                messages.push(message);
            } else {
                return Ok(sent + self.send(&mut messages)?);
            }
        }
    }

    fn send(&mut self, messages: &mut Vec<Vec<u8>>) -> Result<u64, Trouble> {
        if messages.is_empty() {
            return Ok(0);
        }
        let mut datagram = Vec::new();
        self.agent.pack_all(messages, &mut datagram);
        messages.clear();
        self.socket.send(&datagram).map_err(Trouble::at("sending LOCK requests"))?;
        Ok(1)
    }

    /// Takes what has come; datagrams received.
    fn receive(&mut self) -> Result<u64, Trouble> {
        let (mut received, mut buf) = (0, [0; DATAGRAM_MAX]);
        loop {
            let len = match self.socket.recv(&mut buf) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => return Ok(received),
                Err(error) => return Err(Trouble::at("receiving grants")(error)),
            };
            received += 1;
            let wrong = |got: String| Trouble::Answer { while_doing: "taking locks at once", expected: "GRANTED", got };
            let datagram = Datagram::at_agent(&buf[..len]).map_err(|reason| wrong(reason.to_string()))?;
            for message in datagram.messages() {
                match message {
                    Message::Ack(ack) => match ack.reply {
                        Reply::Granted(granted) => {
                            self.agent.answered(ack.nonce);
                            self.held.push((granted.lock.object, granted.generation));
                        }
                        // A copy of the answer to CREATE.
                        Reply::Changed(_) => {}
                        other => return Err(wrong(format!("{other:?}"))),
                    },
                    Message::Released(released) => self.given_back += released.items.len(),
                    Message::Pending(_) => {}
                    other => return Err(wrong(format!("{other:?}"))),
                }
            }
        }
    }
}
