//! One server without sockets, with its store in memory, and one session at it.
//!
//! Decides what one turn is: datagrams, the empty socket, the store, all answers, the question how long to sleep. Invariants: the clock
//! moves a microsecond a turn; what is answered is looked at only before anything is counted. Leaves to others: what is asked (`kind`).

use crate::peer::{Peer, message};
use cistern_link::{Instant, Machine, Path};
use cistern_server::store::{Batch, StoreEvent, StoreWork};
use cistern_server::{Config, Server};
use cistern_store::MemoryStore;
use cistern_wire::{Ack, Ask, Bytes8, Create, Message, Mkdir, ObjectId, Reply, StoreId, Terms};
use std::net::{Ipv4Addr, SocketAddr};

/// The root directory.
pub const ROOT: ObjectId = ObjectId(cistern_wire::limits::ROOT);

/// How far the clock moves in a turn.
const TURN_NS: u64 = 1_000;

/// A server, its store, and a session that is open.
#[derive(Debug)]
pub struct Rig {
    /// The session's other side.
    pub peer: Peer,
    turned: Turned,
}

impl Rig {
    /// What the server charges for a datagram besides its messages.
    pub const DATAGRAM_NS: u64 = 1_200;
}

impl Default for Rig {
    fn default() -> Self {
        Self::new()
    }
}

impl Rig {
    /// A new server with one open session.
    ///
    /// # Panics
    /// If the server does not open the session: it is broken.
    #[must_use]
    pub fn new() -> Self {
        let mut turned = Turned::new();
        turned.turn([[]; 0]);
        let peer = Peer::open(|datagram| {
            turned.turn([datagram]);
            turned.answer.clone()
        });
        Self { peer, turned }
    }

    /// One turn of a driver that has received `datagram`.
    pub fn turn(&mut self, datagram: &[u8]) {
        self.turned.turn([datagram]);
    }

    /// One turn of a driver that has received these datagrams.
    pub fn turn_all(&mut self, datagrams: &[Vec<u8>]) {
        self.turned.turn(datagrams);
    }

    /// The first message of the last datagram that the server sent.
    #[must_use]
    pub fn answered(&self) -> Option<Message<'_>> {
        message(&self.turned.answer)
    }

    /// What the server has charged for all that it was asked, in nanoseconds.
    #[must_use]
    pub fn charged_ns(&self) -> u64 {
        self.turned.server.figures(self.turned.now).work.charged_ns
    }

    /// How many datagrams the server has sent.
    #[must_use]
    pub const fn sent(&self) -> usize {
        self.turned.sent
    }

    /// From now on a batch is durable when the server has made it, and nothing keeps it: of a mutation only the server's part is left.
    /// At most `batches` of them.
    pub fn keep_nothing(&mut self, batches: usize) {
        self.turned.keeps = false;
        self.turned.batches.reserve(batches);
    }

    /// Makes an empty file.
    pub fn create(&mut self, dir: ObjectId, name: &str) -> ObjectId {
        let create = create(self.peer.ask(), dir, name);
        self.made(&create)
    }

    /// Makes a directory in the root directory.
    pub(crate) fn mkdir(&mut self, name: &str) -> ObjectId {
        self.mkdir_in(ROOT, name)
    }

    /// Makes a directory.
    pub(crate) fn mkdir_in(&mut self, dir: ObjectId, name: &str) -> ObjectId {
        let name = Bytes8(name.as_bytes());
        let mkdir = Mkdir { ask: self.peer.ask(), dir, name, mode: 0o700, uid: 0, gid: 0, terms: Terms::NONE };
        self.made(&mkdir.into())
    }

    /// Asks for something new; gives the object.
    ///
    /// # Panics
    /// If it is not made at once: the server is broken.
    fn made(&mut self, message: &Message<'_>) -> ObjectId {
        let datagram = self.peer.datagram(message);
        self.turn(&datagram);
        match self.answered() {
            Some(Message::Ack(Ack { reply: Reply::Changed(changed), .. })) => {
                let made = changed.effects.iter().find(|effect| effect.before == 0);
                made.expect("what is new was not there before").attr.object
            }
            other => panic!("{message:?} was answered by {other:?}"),
        }
    }
}

/// The server and what a driver has beside it.
#[derive(Debug)]
struct Turned {
    server: Server,
    store: MemoryStore,
    now: Instant,
    path: Path,
    /// The last datagram that the server sent.
    answer: Vec<u8>,
    sent: usize,
    /// Whether the store keeps what it is told to.
    keeps: bool,
    /// Batches that it does not, until after the count.
    batches: Vec<Batch>,
}

impl Turned {
    fn new() -> Self {
        let now = Instant::new(1_000_000_000, 1_000_000_000);
        let path = Path::to(SocketAddr::from((Ipv4Addr::LOCALHOST, 4_000)));
        let (answer, batches) = (Vec::new(), Vec::new());
        Self { server: server(now), store: MemoryStore::new(), now, path, answer, sent: 0, keeps: true, batches }
    }

    fn turn<D: AsRef<[u8]>>(&mut self, datagrams: impl IntoIterator<Item = D>) {
        self.now = Instant::new(self.now.raw_ns + TURN_NS, self.now.boot_ns + TURN_NS);
        for datagram in datagrams {
            self.server.handle_datagram(self.now, self.path, datagram.as_ref());
        }
        self.server.handle_drained(self.now);
        self.server.work(self.now);
        while let Some(work) = self.server.poll_effect() {
            self.serve(work);
        }
        while self.server.poll_transmit(self.now, &mut self.answer).is_some() {
            self.sent += 1;
        }
        self.server.wake_after(self.now);
    }

    fn serve(&mut self, work: StoreWork) {
        match work {
            StoreWork::Persist(batch) if !self.keeps => {
                let id = batch.id;
                self.batches.push(batch);
                self.server.store_event(self.now, StoreEvent::Durable(id));
            }
            work => {
                for event in self.store.take(work) {
                    self.server.store_event(self.now, event);
                }
            }
        }
    }
}

/// CREATE of an empty file.
pub(crate) fn create(ask: Ask, dir: ObjectId, name: &str) -> Message<'_> {
    let name = Bytes8(name.as_bytes());
    Create { ask, dir, name, exclusive: true, mode: 0o600, uid: 0, gid: 0, ephemeral: false, terms: Terms::NONE }.into()
}

/// The server's core on a new store that is in memory.
///
/// # Panics
/// If the default configuration cannot be used.
#[must_use]
pub fn server(now: Instant) -> Server {
    server_with(now, Config::default())
}

/// The same with another configuration, but for what a store in memory needs.
///
/// # Panics
/// If the configuration cannot be used.
#[must_use]
pub fn server_with(now: Instant, config: Config) -> Server {
    let config = Config { volatile: true, new_cluster: true, ..config };
    Server::new(now, 1_700_000_000_000_000_000, StoreId([0xC1; 16]), config, [7; 32]).expect("the configuration is sound")
}
