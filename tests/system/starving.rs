//! Nobody starves the others: one host sends what it can, and an agent on another one keeps its lock and its lease, and is served.
//!
//! Hosts are addresses of loopback. The attacker has sessions of its own and keeps to the wire format, and to nothing else.

use cistern_testkit::{Agent, Server, eventually};
use cistern_wire::limits::{DATAGRAM_DEFAULT, ROOT};
use cistern_wire::{
    Ack, AgentId, Ask, Bytes8, Bytes16, Confirm, Create, Datagram, GetAttr, Header, Hello, KeepAlive, List, ListLocks, Lock, LockWait,
    Message, Mkdir, Mode, ObjectId, Packer, Receipt, ReceiptAnswer, RefuseReason, Reply, SessionId, SetAttr, SetMask, Stage, Status, Terms,
    Want,
};
use serde_json::json;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Each of these tests takes up a core: one after the other, for the sake of all others.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The host that attacks.
const HOSTILE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// An attacker's session.
struct Insider {
    socket: UdpSocket,
    session: SessionId,
    packet: u64,
    nonce: u64,
}

impl Insider {
    /// Opens a session as the agent of this number, or is told why not.
    fn open(server: SocketAddr, number: u32) -> Result<Self, RefuseReason> {
        let socket = UdpSocket::bind((HOSTILE, 0)).unwrap();
        socket.connect(server).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let mut insider = Self { socket, session: SessionId(0), packet: 0, nonce: 0 };
        let mut agent = [0xEE; 16];
        agent[..4].copy_from_slice(&number.to_be_bytes());
        let mut cookie = Vec::new();
        let offered = eventually("the server answers a handshake", || {
            let hello = Hello { label: Bytes8(b"insider"), cookie: Bytes8(&cookie), ..Hello::new(AgentId(agent), u64::from(number) + 1) };
            insider.sends(&[hello.into()]);
            let bytes = insider.receives()?;
            let message = Datagram::at_agent(&bytes).ok()?.messages().next()?;
            match message {
                Message::Challenge(challenge) => {
                    cookie = challenge.cookie.0.to_vec();
                    None
                }
                Message::Welcome(welcome) => Some(Ok(welcome.session)),
                Message::Refuse(refuse) => Some(Err(refuse.reason)),
                _ => None,
            }
        });
        let mut insider = Self { session: offered?, packet: 0, ..insider };
        eventually("the server opens the session", || {
            insider.sends(&[Confirm { serial: 1, former: List::of(&[]) }.into()]);
            let bytes = insider.receives()?;
            Datagram::at_agent(&bytes).ok()?.messages().find(|message| matches!(message, Message::Opened(_))).map(|_| ())
        });
        Ok(insider)
    }

    fn sends(&mut self, messages: &[Message<'_>]) {
        self.packet += 1;
        let header = Header { from_server: false, session: self.session, packet: self.packet };
        let mut bytes = Vec::new();
        let mut packer = Packer::new(&mut bytes, header, DATAGRAM_DEFAULT);
        assert!(messages.iter().all(|message| packer.push(message)), "they fit");
        packer.finish();
        // A full buffer of the socket is what an attacker does not mind.
        let _ = self.socket.send(&bytes);
    }

    fn receives(&self) -> Option<Vec<u8>> {
        let mut room = [0; 2_048];
        let length = self.socket.recv(&mut room).ok()?;
        Some(room[..length].to_vec())
    }

    /// The next request; nothing before it is awaited.
    fn ask(&mut self) -> Ask {
        self.nonce += 1;
        Ask { nonce: self.nonce, back: 0, limit: 1_232 }
    }

    /// Asks until it is answered; what `read` finds in the reply.
    fn asks<T>(&mut self, message: &Message<'_>, mut read: impl FnMut(&Reply<'_>) -> T) -> T {
        let nonce = self.nonce;
        eventually("a request is answered", || {
            self.sends(std::slice::from_ref(message));
            let until = Instant::now() + Duration::from_millis(200);
            while Instant::now() < until {
                let bytes = self.receives()?;
                let datagram = Datagram::at_agent(&bytes).ok()?;
                let answer = datagram.messages().find_map(|message| match message {
                    Message::Ack(Ack { nonce: of, reply, .. }) if of == nonce => Some(reply),
                    _ => None,
                });
                if let Some(reply) = answer {
                    return Some(read(&reply));
                }
            }
            None
        })
    }

    /// Makes something, and gives its object.
    fn makes(&mut self, message: &Message<'_>) -> ObjectId {
        self.asks(message, |reply| match reply {
            Reply::Changed(changed) => changed.effects.iter().find(|effect| effect.before == 0).unwrap().attr.object,
            other => panic!("not made: {other:?}"),
        })
    }

    fn creates(&mut self, dir: ObjectId, name: &str) -> ObjectId {
        let create = create(self.ask(), dir, name);
        self.makes(&create)
    }

    /// So many requests, each of which `message` makes: those after the last one that was answered, again and again.
    fn floods<'m>(&mut self, count: u64, message: impl Fn(Ask) -> Message<'m>) {
        let first = self.nonce + 1;
        let messages: Vec<_> = (first..first + count).map(|nonce| message(Ask { nonce, back: 0, limit: 1_232 })).collect();
        self.sends(&messages);
        self.drain();
    }

    /// Takes note of what was answered.
    fn drain(&mut self) {
        self.socket.set_nonblocking(true).unwrap();
        while let Some(bytes) = self.receives() {
            let Ok(datagram) = Datagram::at_agent(&bytes) else { continue };
            for message in datagram.messages() {
                if let Message::Ack(ack) = message {
                    self.nonce = self.nonce.max(ack.nonce);
                }
            }
        }
        self.socket.set_nonblocking(false).unwrap();
    }
}

fn create(ask: Ask, dir: ObjectId, name: &str) -> Message<'_> {
    let name = Bytes8(name.as_bytes());
    Create { ask, dir, name, exclusive: true, mode: 0o600, uid: 0, gid: 0, ephemeral: false, terms: Terms::NONE }.into()
}

/// Changes a file.
fn change(ask: Ask, object: ObjectId) -> Message<'static> {
    let mask = SetMask { bits: SetMask::MODE };
    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms: Terms::NONE }.into()
}

const DIR: ObjectId = ObjectId(ROOT);

/// A server with settings of its own, and a victim with a lock on another host than the attacker's.
fn world(settings: &str) -> (Server, Agent, u64) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("cistern.toml");
    std::fs::write(&file, settings).unwrap();
    let server = Server::unrecorded(&["--lease", "2s", "--config", path(&file)]);
    let mut victim = Agent::start(&server, "victim");
    victim.put("/job", "");
    let (hold, _) = victim.lock("/job");
    (server, victim, hold)
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

/// Ends an attack with its test, failed or not.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Attacks for longer than T, as fast as it goes; the victim's lease holds all the time, and it is served to the end.
fn survives(victim: &mut Agent, hold: u64, server: &Server, mut attack: impl FnMut() + Send) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                attack();
            }
        });
        let _over = Over(&over);
        let end = Instant::now() + Duration::from_secs(4);
        let mut served = 0;
        while Instant::now() < end {
            victim.put("/job", "still here");
            assert_eq!(victim.hold(hold), "certain");
            served += 1;
            thread::sleep(Duration::from_millis(20));
        }
        assert!(served > 3, "{served}");
    });
    assert_eq!(victim.lease()["sessions_lost"].as_u64().unwrap_or(0), 0);
    victim.unlock(hold);
    assert!(server.count("sessions") > 0);
}

/// The dearest request for its bytes: places of locks far down.
#[test]
fn lists_of_locks_in_a_deep_tree_cost_nobody_a_lease() {
    let _alone = alone();
    let (server, mut victim, hold) = world("");
    let mut hostile = Insider::open(server.address, 1).unwrap();
    let mut dir = DIR;
    for _ in 0..120 {
        let mkdir = Mkdir { ask: hostile.ask(), dir, name: Bytes8(b"d"), mode: 0o700, uid: 0, gid: 0, terms: Terms::NONE };
        dir = hostile.makes(&mkdir.into());
    }
    for n in 0..60 {
        let object = hostile.creates(dir, &format!("{n}"));
        let lock = Lock { ask: hostile.ask(), object, mode: Mode::Exclusive, wait: LockWait::Try };
        hostile.asks(&lock.into(), |reply| assert!(matches!(reply, Reply::Granted(_)), "{reply:?}"));
    }
    let list = |ask| ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true }.into();
    survives(&mut victim, hold, &server, || hostile.floods(20, list));
}

/// As much of everything as fits the wire: requests, changes, keep-alives.
#[test]
fn floods_of_requests_and_of_keep_alives_cost_nobody_a_lease() {
    let _alone = alone();
    let (server, mut victim, hold) = world("");
    let mut hostile: Vec<_> = (1..5).map(|n| Insider::open(server.address, n).unwrap()).collect();
    let object = hostile[0].creates(DIR, "hot");
    let mut serial = 0;
    survives(&mut victim, hold, &server, || {
        for insider in &mut hostile {
            insider.floods(30, |ask| GetAttr { ask, object: DIR, want: Want::Nothing }.into());
            insider.floods(8, |ask| change(ask, object));
            serial += 1;
            let keep_alives: Vec<Message<'_>> = (0..40).map(|n| KeepAlive { serial: serial * 40 + n, clock_us: 0 }.into()).collect();
            insider.sends(&keep_alives);
            insider.drain();
        }
    });
}

/// Two sessions read the root and keep their cache locks of it, whatever is asked of them, and come back each time that they were ended.
#[test]
fn who_keeps_cache_locks_delays_others_once() {
    let _alone = alone();
    let (server, mut victim, hold) = world("[server]\nlease = \"500ms\"\n");
    victim.unlock(hold);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut number = 0;
            let mut hogs: Vec<Insider> = Vec::new();
            while !over.load(Relaxed) {
                while hogs.len() < 2 {
                    number += 1;
                    let Ok(hog) = Insider::open(server.address, number) else { break };
                    hog.socket.set_read_timeout(Some(Duration::from_millis(5))).unwrap();
                    hogs.push(hog);
                }
                for hog in &mut hogs {
                    let get = GetAttr { ask: hog.ask(), object: DIR, want: Want::Shared };
                    hog.sends(&[get.into()]);
                }
                hogs.retain_mut(is_kept);
            }
        });
        let _over = Over(&over);
        thread::sleep(Duration::from_millis(200));
        let mut longest = Vec::new();
        for n in 0..4 {
            let begun = Instant::now();
            victim.ok(json!({ "op": "mkdir", "path": format!("/{n}"), "mode": 0o755 }));
            longest.push(begun.elapsed());
            thread::sleep(Duration::from_millis(300));
        }
        // The first wait may be that for one who does not comply, and T; then its host has no cache locks to keep.
        let bound = Duration::from_secs(1);
        assert!(longest[1..].iter().filter(|span| **span > bound).count() == 0, "{longest:?}");
    });
}

/// Receipts what the server asks, and gives nothing back; whether its session goes on.
fn is_kept(hog: &mut Insider) -> bool {
    while let Some(bytes) = hog.receives() {
        let Ok(datagram) = Datagram::at_agent(&bytes) else { continue };
        let receipts = datagram.messages().filter_map(|message| match message {
            Message::Demand(demand) => Some(demand.seq),
            Message::Probe(probe) => Some(probe.seq),
            _ => None,
        });
        let receipts: Vec<Message<'_>> = receipts.map(|seq| Receipt { seq, answer: ReceiptAnswer::InUse }.into()).collect();
        if datagram.messages().any(|message| matches!(message, Message::Nack(_) | Message::Hint(_))) {
            return false;
        }
        if !receipts.is_empty() {
            hog.sends(&receipts);
        }
    }
    true
}

/// Demands that nobody complies with: holder and asker are the attacker's.
#[test]
fn demands_of_one_host_hold_up_nobody_else() {
    let _alone = alone();
    let (server, mut victim, hold) = world("[server]\ndemands-outstanding = 100\n");
    victim.unlock(hold);
    let mut holder = Insider::open(server.address, 1).unwrap();
    let mut askers: Vec<_> = (2..6).map(|n| Insider::open(server.address, n).unwrap()).collect();
    let files: Vec<ObjectId> = (0..200).map(|n| holder.creates(DIR, &format!("f{n}"))).collect();
    for file in &files {
        let get = GetAttr { ask: holder.ask(), object: *file, want: Want::Shared };
        holder.asks(&get.into(), |reply| assert!(matches!(reply, Reply::Stated(_))));
    }
    for (n, file) in files.iter().enumerate() {
        let asker = &mut askers[n % 4];
        asker.nonce += 1;
        let ask = Ask { nonce: asker.nonce, back: u16::try_from(asker.nonce - 1).unwrap(), limit: 1_232 };
        asker.sends(&[change(ask, *file)]);
    }
    // The victim changes what another agent on its own host has cached.
    let mut other = Agent::start(&server, "other");
    for _ in 0..5 {
        assert!(other.read("/job").is_ok());
        let begun = Instant::now();
        victim.put("/job", "changed");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

/// The table of sessions, filled from one host whose sessions all answer.
#[test]
fn one_host_leaves_places_for_sessions_to_others() {
    let _alone = alone();
    let (server, mut victim, hold) = world("[server]\nsessions-max = 200\n");
    let mut hostile = Vec::new();
    let mut number = 0;
    let refused = loop {
        number += 1;
        match Insider::open(server.address, number) {
            Ok(insider) => hostile.push(insider),
            Err(reason) => break reason,
        }
        assert!(hostile.len() < 200);
    };
    assert_eq!(refused, RefuseReason::Crowded);
    assert!((150..=160).contains(&hostile.len()), "{}", hostile.len());
    for n in 0..3 {
        Agent::start(&server, &format!("newcomer{n}")).read("/job").unwrap();
    }
    assert_eq!(victim.hold(hold), "certain");
    victim.unlock(hold);
}

/// Locks, staged bytes and whatever else is counted, as much as one host is given; another one gets its own.
#[test]
fn one_host_leaves_locks_and_memory_to_others() {
    let _alone = alone();
    let (server, mut victim, hold) = world("[server]\nlocks-max = 2000\nlocks-per-session = 2000\nstage-bytes-total = \"4MiB\"\n");
    let mut hostile = Insider::open(server.address, 1).unwrap();
    let piece = [7; 1_000];
    let mut refused = 0;
    for stage in 0..12 {
        // The last byte first: it takes the memory of all before it.
        let (total, offset) = (1 << 20, (1 << 20) - 1_000);
        let stage = Stage { ask: hostile.ask(), stage: stage + 1, total, offset, data: Bytes16(&piece) };
        hostile.asks(&stage.into(), |reply| refused += u32::from(matches!(reply, Reply::Failed(failed) if failed.status == Status::BUSY)));
    }
    assert!(refused >= 8, "{refused}");
    let files: Vec<ObjectId> = (0..1_700).map(|n| hostile.creates(DIR, &format!("f{n}"))).collect();
    let mut busy = 0;
    for object in files {
        let lock = Lock { ask: hostile.ask(), object, mode: Mode::Shared, wait: LockWait::Try };
        hostile.asks(&lock.into(), |reply| busy += u32::from(matches!(reply, Reply::Failed(failed) if failed.status == Status::BUSY)));
    }
    assert!(busy >= 50, "{busy}");
    // 800,000 bytes come by stages.
    victim.put("/big", &"x".repeat(500_000));
    victim.put("/other", "");
    let (second, _) = victim.lock("/other");
    victim.unlock(second);
    victim.unlock(hold);
}
