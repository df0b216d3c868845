//! Attacks on the availability of a server by one host, which has sessions of its own and sends what it can: what each of them sends.
//!
//! Decides the attacks and the settings of the server under which they take little time to be felt. Whoever uses them decides who the victim is
//! and what it must not notice. Leaves to others: the session of an attacker (`insider`).

mod insider;

pub use insider::{HOSTILE, Insider, change, create};

use crate::session::SealedBy;
use cistern_wire::limits::ROOT;
use cistern_wire::{
    Bytes8, Bytes16, EndReason, EndSession, GetAttr, KeepAlive, List, ListLocks, Lock, LockWait, Lookup, Message, Mkdir, Mode, ObjectId,
    Reply, Stage, Terms, Want, Write,
};
use std::net::SocketAddr;

/// What the attacker does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attack {
    /// Requests, changes and keep-alives, as many as fit the wire.
    Requests,
    /// Lists of locks with their places, in a tree as deep as one may be: the dearest request for its bytes.
    ListLocks,
    /// Sessions keep their cache locks of what the victim changes, and come back each time that they were ended.
    CacheLocks,
    /// Demands that nobody complies with: as many as there may be.
    Demands,
    /// The table of sessions, full of sessions that answer.
    Sessions,
    /// Files without end.
    Memory,
    /// Locks, as many as there may be.
    Locks,
    /// The memory for files that come in pieces.
    Stages,
    /// Contents without end, on a disk on which there is little room.
    Disk,
    /// Whatever a server writes a line about: sessions that begin and end, incarnations that were superseded.
    Log,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Requests,
        Self::ListLocks,
        Self::CacheLocks,
        Self::Demands,
        Self::Sessions,
        Self::Memory,
        Self::Locks,
        Self::Stages,
        Self::Disk,
        Self::Log,
    ];

    /// In words.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::ListLocks => "lists of locks",
            Self::CacheLocks => "cache locks kept",
            Self::Demands => "demands ignored",
            Self::Sessions => "sessions",
            Self::Memory => "files",
            Self::Locks => "locks",
            Self::Stages => "stages",
            Self::Disk => "disk",
            Self::Log => "log",
        }
    }

    /// Settings of the server: limits that one host reaches soon.
    pub const fn settings(self) -> &'static str {
        match self {
            Self::Requests | Self::ListLocks | Self::Disk | Self::Log => "[server]\n",
            Self::CacheLocks => "[server]\ncompliance-time = \"1s\"\n",
            Self::Demands => "[server]\ndemands-outstanding = 100\ncompliance-time = \"1s\"\n",
            Self::Sessions => "[server]\nsessions-max = 200\n",
            Self::Memory => "[server]\nobjects-max = 100000\n",
            Self::Locks => "[server]\nlocks-max = 2000\nlocks-per-session = 2000\n",
            Self::Stages => "[server]\nstage-bytes-total = \"4MiB\"\n",
        }
    }

    /// Whether its server has its store on a disk.
    pub const fn is_durable(self) -> bool {
        matches!(self, Self::Disk)
    }
}

const DIR: ObjectId = ObjectId(ROOT);
/// Directories in each other, nearly as many as there may be; and locked files in the last one.
const DEPTH: usize = 120;
const LOCKED: usize = 60;
/// Files of which demands are made: twice as many as may be outstanding.
const DEMANDED: usize = 200;
/// Most sessions that this host tries to have.
const CROWD: usize = 400;

/// The host that attacks.
pub struct Attacker {
    attack: Attack,
    server: SocketAddr,
    sealed: Option<SealedBy>,
    is_paced: bool,
    insiders: Vec<Insider>,
    /// Numbers of agents that were used.
    number: u64,
    objects: Vec<ObjectId>,
    turns: u64,
}

impl Attacker {
    /// Opens the sessions and makes the files that the attack needs. `victim` is the name in the root directory of a file that the victim changes.
    /// Paced, it floods no faster than the server answers.
    pub fn new(attack: Attack, server: SocketAddr, sealed: Option<SealedBy>, victim: &str, is_paced: bool) -> Self {
        let mut attacker = Self { attack, server, sealed, is_paced, insiders: Vec::new(), number: 0, objects: Vec::new(), turns: 0 };
        match attack {
            Attack::Requests | Attack::Memory | Attack::Disk => {
                attacker.open(4);
                attacker.objects = vec![attacker.insiders[0].creates(DIR, "hot")];
            }
            Attack::ListLocks => {
                attacker.open(4);
                attacker.lock_far_down();
            }
            Attack::CacheLocks => {
                attacker.open(2);
                attacker.objects = vec![DIR, attacker.find(victim)];
            }
            Attack::Demands => attacker.cache_files(),
            Attack::Stages | Attack::Locks => attacker.open(1),
            Attack::Sessions => {}
            Attack::Log => {
                let number = u64::MAX;
                let kept = Insider::open_as(server, number, 1_000, attacker.sealed.as_ref());
                attacker.insiders.extend(kept.ok());
            }
        }
        attacker
    }

    /// One turn of the attack: as much as goes at once.
    pub fn turn(&mut self) {
        self.turns += 1;
        match self.attack {
            Attack::Requests => self.flood(),
            Attack::ListLocks => {
                let list = |ask| ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places: true }.into();
                self.insiders.iter_mut().for_each(|insider| insider.floods(20, list));
            }
            Attack::CacheLocks => self.keep_cache_locks(),
            Attack::Demands => {
                for insider in &mut self.insiders {
                    insider.keeps();
                }
                if self.insiders.iter().any(|insider| insider.is_over) {
                    self.cache_files();
                }
            }
            Attack::Sessions => self.crowd(),
            Attack::Memory => {
                for insider in &mut self.insiders {
                    let names: Vec<String> = (0..8).map(|n| format!("{}-{}", self.turns, insider.nonce() + n)).collect();
                    let first = insider.nonce() + 1;
                    insider.floods(8, |ask| create(ask, DIR, names[usize::try_from(ask.nonce - first).unwrap()].as_bytes()));
                }
            }
            Attack::Locks => {
                let (insider, turns) = (&mut self.insiders[0], self.turns);
                let object = insider.creates(DIR, &format!("l{turns}"));
                let lock = Lock { ask: insider.ask(), object, mode: Mode::Shared, wait: LockWait::Try };
                insider.asks(&lock.into(), |_| ());
            }
            Attack::Stages => {
                // The last byte first: it takes the memory of all before it.
                let (total, turns) = (1 << 20, self.turns);
                let data = Bytes16(&[7; 1_000]);
                self.insiders[0].floods(1, |ask| Stage { ask, stage: turns, total, offset: total - 1_000, data }.into());
            }
            Attack::Disk => {
                let (object, data) = (self.objects[0], Bytes16(&[0xA5; 1_000]));
                for (insider, at) in self.insiders.iter_mut().zip(0..) {
                    let offset = (self.turns * 4 + at) * 1_000 % (1 << 20);
                    insider.floods(1, |ask| Write { ask, object, offset, truncate: false, stage: 0, data, terms: Terms::NONE }.into());
                }
            }
            Attack::Log => self.be_talked_of(),
        }
    }

    /// How many of its sessions go on.
    pub fn sessions(&self) -> usize {
        self.insiders.iter().filter(|insider| !insider.is_over).count()
    }

    fn open_one(&mut self) -> Result<Insider, String> {
        self.number += 1;
        Ok(Insider::open(self.server, self.number, self.sealed.as_ref())?.paced(self.is_paced))
    }

    fn open(&mut self, count: usize) {
        for _ in 0..count {
            let insider = self.open_one().unwrap();
            self.insiders.push(insider);
        }
    }

    fn find(&mut self, name: &str) -> ObjectId {
        let insider = &mut self.insiders[0];
        let names = [Bytes8(name.as_bytes())];
        let lookup = Lookup { ask: insider.ask(), start: DIR, want: Want::Nothing, names: List::of(&names) };
        insider.asks(&lookup.into(), |reply| match reply {
            Reply::Walked(walked) => walked.steps.iter().last().unwrap().attr.object,
            other => panic!("not found: {other:?}"),
        })
    }

    fn lock_far_down(&mut self) {
        let insider = &mut self.insiders[0];
        let mut dir = DIR;
        for _ in 0..DEPTH {
            let mkdir = Mkdir { ask: insider.ask(), dir, name: Bytes8(b"d"), mode: 0o700, uid: 0, gid: 0, terms: Terms::NONE };
            dir = insider.makes(&mkdir.into());
        }
        for n in 0..LOCKED {
            let object = insider.creates(dir, &format!("{n}"));
            let lock = Lock { ask: insider.ask(), object, mode: Mode::Exclusive, wait: LockWait::Try };
            insider.asks(&lock.into(), |reply| assert!(matches!(reply, Reply::Granted(_)), "{reply:?}"));
        }
    }

    fn flood(&mut self) {
        let object = self.objects[0];
        for insider in &mut self.insiders {
            insider.floods(30, |ask| GetAttr { ask, object: DIR, want: Want::Nothing }.into());
            insider.floods(8, |ask| change(ask, object));
            let keep_alives: Vec<Message<'_>> = (0..40).map(|n| KeepAlive { serial: self.turns * 40 + n, clock_us: 0 }.into()).collect();
            insider.sends(&keep_alives);
            insider.drain();
        }
    }

    fn keep_cache_locks(&mut self) {
        while self.insiders.len() < 2 {
            let Ok(insider) = self.open_one() else { break };
            self.insiders.push(insider);
        }
        for insider in &mut self.insiders {
            let gets: Vec<Message<'_>> =
                self.objects.iter().map(|object| GetAttr { ask: insider.ask(), object: *object, want: Want::Shared }.into()).collect();
            insider.sends(&gets);
        }
        self.insiders.retain_mut(Insider::keeps);
        std::thread::sleep(std::time::Duration::from_millis(1));
    }

    /// The first insider has files in its cache, and the others ask for changes of them.
    fn cache_files(&mut self) {
        self.insiders.clear();
        while self.insiders.len() < 5 {
            match self.open_one() {
                Ok(insider) => self.insiders.push(insider),
                Err(_) => return,
            }
        }
        let (holder, askers) = self.insiders.split_first_mut().unwrap();
        let files: Vec<ObjectId> = (0..DEMANDED).map(|n| holder.creates(DIR, &format!("{}-f{n}", self.number))).collect();
        for file in &files {
            let get = GetAttr { ask: holder.ask(), object: *file, want: Want::Shared };
            holder.asks(&get.into(), |reply| assert!(matches!(reply, Reply::Stated(_))));
        }
        for (n, file) in files.iter().enumerate() {
            let asker = &mut askers[n % 4];
            let ask = asker.ask_beside();
            asker.sends(&[change(ask, *file)]);
        }
    }

    fn crowd(&mut self) {
        self.insiders.retain_mut(Insider::keeps);
        if self.insiders.len() < CROWD
            && let Ok(insider) = self.open_one()
        {
            self.insiders.push(insider);
        }
    }

    fn be_talked_of(&mut self) {
        let refused = Insider::open_as(self.server, u64::MAX, 1 + self.turns % 900, self.sealed.as_ref());
        drop(refused);
        if let Ok(mut insider) = self.open_one() {
            insider.sends(&[EndSession { serial: 2, reason: EndReason::Close }.into()]);
        }
        self.insiders.retain_mut(Insider::keeps);
    }
}
