//! An attacker's session: it keeps to the wire format, and to nothing else.

use crate::eventually;
use crate::session::{Addressee, Opening, SealedBy, Step, WireSession};
use cistern_wire::{
    Ack, AgentId, Ask, Bytes8, Create, Datagram, Form, Message, ObjectId, RawHeader, Receipt, ReceiptAnswer, Reply, SetAttr, SetMask, Terms,
};
use cistern_wire::{Field as _, Reader};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// The host that attacks: another address of loopback than that of everybody else.
pub const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// How long an insider waits for a datagram.
const WAIT: Duration = Duration::from_millis(200);

/// A session on the host that attacks.
pub struct Insider {
    /// Connected to the server.
    pub socket: UdpSocket,
    wire: WireSession,
    nonce: u64,
    text: Vec<u8>,
    /// Whether it goes on only when something was answered, or a while was waited for that.
    is_paced: bool,
    /// Whether the server has said that there is no such session.
    pub is_over: bool,
}

impl Insider {
    /// Opens a session as the agent of this number.
    ///
    /// # Errors
    /// The server's word, if it refuses.
    pub fn open(server: SocketAddr, number: u64, sealed: Option<&SealedBy>) -> Result<Self, String> {
        Self::open_as(server, number, 1, sealed)
    }

    /// The same in an incarnation of the agent.
    ///
    /// # Errors
    /// The server's word, if it refuses.
    pub fn open_as(server: SocketAddr, number: u64, incarnation: u64, sealed: Option<&SealedBy>) -> Result<Self, String> {
        let socket = UdpSocket::bind((HOSTILE, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(WAIT)).unwrap();
        let mut agent = [0xEE; 16];
        agent[..8].copy_from_slice(&number.to_be_bytes());
        let mut opening = Opening::new(AgentId(agent), number, 64, b"insider\x1b", sealed.cloned()).of_incarnation(incarnation);
        let mut bytes = Vec::new();
        let wire = eventually("the server answers a handshake", || {
            loop {
                opening.write(&mut bytes);
                let _ = socket.send(&bytes);
                let answer = received(&socket)?;
                let is_mine = match Addressee::of(&answer)? {
                    Addressee::Handshake(of) => of == number,
                    Addressee::Session(of) => opening.offered() == Some(of),
                };
                match if is_mine { opening.take(&answer) } else { Step::Waits } {
                    Step::Sends => {}
                    Step::Waits => return None,
                    Step::Open(session) => return Some(Ok(session)),
                    Step::Refused(why) => return Some(Err(why)),
                }
            }
        });
        Ok(Self { socket, wire: wire?, nonce: 0, text: Vec::new(), is_paced: false, is_over: false })
    }

    /// The same, which floods no faster than the server answers: what is asserted then holds on a machine that has little time for the server, too.
    #[must_use]
    pub fn paced(self, is_paced: bool) -> Self {
        Self { is_paced, ..self }
    }

    /// Sends these in one datagram.
    pub fn sends(&mut self, messages: &[Message<'_>]) {
        let encoded: Vec<Vec<u8>> = messages.iter().map(Message::to_bytes).collect();
        let mut bytes = Vec::new();
        let (_, packed) = self.wire.pack(encoded.iter().map(Vec::as_slice), &mut bytes);
        assert_eq!(packed, messages.len(), "they fit");
        // A full buffer of the socket is what an attacker does not mind.
        let _ = self.socket.send(&bytes);
    }

    /// Takes one datagram, if one comes in time; whether one came.
    fn hears(&mut self, mut each: impl FnMut(&Message<'_>)) -> bool {
        let Some(bytes) = received(&self.socket) else { return false };
        match self.wire.open(&bytes, &mut self.text) {
            Ok(datagram) => datagram.messages().for_each(|message| {
                self.is_over |= matches!(message, Message::Nack(_) | Message::Hint(_));
                each(&message);
            }),
            Err(_) => self.is_over |= is_hint(&bytes),
        }
        true
    }

    /// The next request; nothing before it is awaited.
    pub const fn ask(&mut self) -> Ask {
        self.nonce += 1;
        Ask { nonce: self.nonce, back: 0, limit: 1_232 }
    }

    /// The next request; everything before it may be awaited.
    pub fn ask_beside(&mut self) -> Ask {
        let ask = self.ask();
        Ask { back: u16::try_from(ask.nonce - 1).unwrap(), ..ask }
    }

    /// Asks until it is answered; what `read` finds in the reply.
    pub fn asks<T>(&mut self, message: &Message<'_>, mut read: impl FnMut(&Reply<'_>) -> T) -> T {
        let nonce = self.nonce;
        eventually("a request is answered", || {
            self.sends(std::slice::from_ref(message));
            let (until, mut found) = (Instant::now() + WAIT, None);
            while found.is_none() && Instant::now() < until {
                let came = self.hears(|message| {
                    if let Message::Ack(Ack { nonce: of, reply, .. }) = message
                        && *of == nonce
                    {
                        found = Some(read(reply));
                    }
                });
                if !came {
                    break;
                }
            }
            found
        })
    }

    /// Makes a file, and gives its object.
    pub fn creates(&mut self, dir: ObjectId, name: &str) -> ObjectId {
        let create = create(self.ask(), dir, name.as_bytes());
        self.makes(&create)
    }

    /// Makes something, and gives its object.
    pub fn makes(&mut self, message: &Message<'_>) -> ObjectId {
        self.asks(message, |reply| match reply {
            Reply::Changed(changed) => changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.object,
            other => panic!("not made: {other:?}"),
        })
    }

    /// So many requests, each of which `message` makes: those after the last one that was answered, again and again.
    pub fn floods<'m>(&mut self, count: u64, message: impl Fn(Ask) -> Message<'m>) {
        let first = self.nonce + 1;
        let messages: Vec<_> = (first..first + count).map(|nonce| message(Ask { nonce, back: 0, limit: 1_232 })).collect();
        self.sends(&messages);
        self.drain();
    }

    /// The last request that was answered or asked.
    pub const fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Takes note of what was answered.
    pub fn drain(&mut self) {
        let mut last = self.nonce;
        let mut take = |message: &Message<'_>| {
            if let Message::Ack(ack) = message {
                last = last.max(ack.nonce);
            }
        };
        if self.is_paced {
            self.hears(&mut take);
        }
        self.socket.set_nonblocking(true).unwrap();
        while self.hears(&mut take) {}
        self.socket.set_nonblocking(false).unwrap();
        self.nonce = last;
    }

    /// Says of all that the server asks that it was received and is in use, and gives nothing back; whether its session goes on.
    pub fn keeps(&mut self) -> bool {
        let mut asked = Vec::new();
        self.socket.set_nonblocking(true).unwrap();
        while self.hears(|message| match message {
            Message::Demand(demand) => asked.push(demand.seq),
            Message::Probe(probe) => asked.push(probe.seq),
            _ => {}
        }) {}
        self.socket.set_nonblocking(false).unwrap();
        for seqs in asked.chunks(32) {
            let receipts: Vec<Message<'_>> = seqs.iter().map(|seq| Receipt { seq: *seq, answer: ReceiptAnswer::InUse }.into()).collect();
            self.sends(&receipts);
        }
        !self.is_over
    }
}

fn received(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut room = [0; 2_048];
    let length = socket.recv(&mut room).ok()?;
    Some(room[..length].to_vec())
}

/// Whether a datagram says that there is no such session, in either mode.
fn is_hint(bytes: &[u8]) -> bool {
    let raw = RawHeader::get(&mut Reader::new(bytes));
    let plain = || Datagram::at_agent(bytes).is_ok_and(|datagram| datagram.messages().any(|message| matches!(message, Message::Hint(_))));
    raw.is_ok_and(|raw| raw.form == Form::Handshake as u8 && raw.session.0 != 0) || plain()
}

/// CREATE of a file.
pub fn create(ask: Ask, dir: ObjectId, name: &[u8]) -> Message<'_> {
    Create { ask, dir, name: Bytes8(name), exclusive: true, mode: 0o600, uid: 0, gid: 0, ephemeral: false, terms: Terms::NONE }.into()
}

/// A change of a file.
pub fn change(ask: Ask, object: ObjectId) -> Message<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}
