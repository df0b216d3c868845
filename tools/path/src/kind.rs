//! The requests whose cost is counted.
//!
//! Decides what of each kind is asked, and what is there before: names, contents, locks. Every datagram is made before the first is
//! counted. Leaves to others: turning the server (`rig`), counting.

use crate::rig::{ROOT, Rig, create};
use cistern_wire::{
    Ack, Bytes8, Bytes16, Generation, GetAttr, Keep, KeepAlive, List, Lock, LockClass, LockId, LockWait, Lookup, Message, Mode, ObjectId,
    Read, Release, ReleaseItem, Reply, Terms, Want, Write,
};

/// Bytes of a small file.
const SMALL: usize = 128;

/// One kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// Attributes of the root, without a cache lock.
    GetAttr,
    /// A path of two names, without cache locks.
    Lookup,
    /// An advisory lock, exclusive, of a file that has been locked before.
    Lock,
    /// The release of one of many such locks.
    Release,
    /// A keep-alive.
    KeepAlive,
    /// A new file, to the batch that makes it durable and the answer after that.
    Create,
    /// 128 bytes into a file, to the batch that makes them durable and the answer after that.
    Write,
    /// The 128 bytes of a file, without a cache lock.
    Read,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::GetAttr, Self::Lookup, Self::Lock, Self::Release, Self::KeepAlive, Self::Create, Self::Write, Self::Read];

    /// Prepares the server; gives `count` datagrams, each of which is one such request and is to be turned once, in this order.
    ///
    /// # Panics
    /// If the server refuses what has to be there before: it is broken.
    #[must_use]
    pub fn prepare(self, rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        match self {
            Self::GetAttr => rig.many(count, |rig| GetAttr { ask: rig.peer.ask(), object: ROOT, want: Want::Nothing }.into()),
            Self::Lookup => Self::lookups(rig, count),
            Self::Lock => {
                let files = rig.locked(count);
                let releases: Vec<_> = files.iter().map(|locked| rig.release(*locked)).collect();
                releases.iter().for_each(|release| rig.turn(release));
                files.into_iter().map(|(object, _)| rig.lock(object)).collect()
            }
            Self::Release => {
                let files = rig.locked(count);
                files.into_iter().map(|locked| rig.release(locked)).collect()
            }
            Self::KeepAlive => rig.many(count, |rig| KeepAlive { serial: rig.peer.serial(), clock_us: 1 }.into()),
            Self::Create => {
                rig.create(ROOT, "first");
                rig.keep_nothing(count);
                let names: Vec<_> = (0..count).map(|n| format!("file-{n:05}")).collect();
                names
                    .iter()
                    .map(|name| {
                        let ask = rig.peer.ask();
                        rig.peer.datagram(&create(ask, ROOT, name))
                    })
                    .collect()
            }
            Self::Write => {
                let object = rig.create(ROOT, "written");
                let first = rig.write(object);
                rig.turn(&first);
                rig.keep_nothing(count);
                (0..count).map(|_| rig.write(object)).collect()
            }
            Self::Read => {
                let object = rig.create(ROOT, "read");
                let write = rig.write(object);
                rig.turn(&write);
                let length = u32::try_from(SMALL).unwrap_or(u32::MAX);
                rig.many(count, |rig| Read { ask: rig.peer.ask(), object, offset: 0, length, version: 0, want: Want::Nothing }.into())
            }
        }
    }

    /// GETATTR of the root, `count` of them, of which `in_flight` are outstanding at a time.
    #[must_use]
    pub fn in_flight(rig: &mut Rig, count: usize, in_flight: u16) -> Vec<Vec<u8>> {
        rig.many(count, |rig| GetAttr { ask: rig.peer.ask_among(in_flight), object: ROOT, want: Want::Nothing }.into())
    }

    /// GETATTR of the root, `count` of them, in bursts: the first of each is sent when all before it were answered.
    ///
    /// # Panics
    /// If a burst is longer than any window.
    #[must_use]
    pub fn bursts(rig: &mut Rig, count: usize, burst: usize) -> Vec<Vec<u8>> {
        let burst = u16::try_from(burst).expect("no window is so wide");
        let each = |in_flight| {
            let ask = rig.peer.ask_among(in_flight);
            rig.peer.datagram(&GetAttr { ask, object: ROOT, want: Want::Nothing }.into())
        };
        (1..=burst).cycle().take(count).map(each).collect()
    }

    fn lookups(rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        let dir = rig.mkdir("jobs");
        rig.create(dir, "nightly");
        let names = [Bytes8(b"jobs"), Bytes8(b"nightly")];
        let lookup = |rig: &mut Rig| {
            let ask = rig.peer.ask();
            rig.peer.datagram(&Lookup { ask, start: ROOT, want: Want::Nothing, names: List::of(&names) }.into())
        };
        (0..count).map(|_| lookup(rig)).collect()
    }
}

impl Rig {
    fn many(&mut self, count: usize, message: impl Fn(&mut Self) -> Message<'static>) -> Vec<Vec<u8>> {
        let each = |rig: &mut Self| {
            let message = message(rig);
            rig.peer.datagram(&message)
        };
        (0..count).map(|_| each(self)).collect()
    }

    /// So many new files, each under an exclusive lock, with its generation.
    fn locked(&mut self, count: usize) -> Vec<(ObjectId, Generation)> {
        let files: Vec<_> = (0..count).map(|n| self.create(ROOT, &format!("lock-{n:05}"))).collect();
        let lock = |object: ObjectId| {
            let datagram = self.lock(object);
            self.turn(&datagram);
            (object, self.granted())
        };
        files.into_iter().map(lock).collect()
    }

    /// A request for an advisory lock.
    pub fn lock(&mut self, object: ObjectId) -> Vec<u8> {
        let lock = Lock { ask: self.peer.ask(), object, mode: Mode::Exclusive, wait: LockWait::Try };
        self.peer.datagram(&lock.into())
    }

    /// The generation that the last answer grants.
    ///
    /// # Panics
    /// If it grants none.
    #[must_use]
    pub fn granted(&self) -> Generation {
        match self.answered() {
            Some(Message::Ack(Ack { reply: Reply::Granted(granted), .. })) => granted.generation,
            other => panic!("LOCK was answered by {other:?}"),
        }
    }

    /// The release of an advisory lock.
    pub fn release(&mut self, (object, generation): (ObjectId, Generation)) -> Vec<u8> {
        let items = [ReleaseItem { lock: LockId { object, class: LockClass::Advisory }, generation, keep: Keep::Nothing }];
        let release = Release { serial: self.peer.serial(), items: List::of(&items) };
        self.peer.datagram(&release.into())
    }

    fn write(&mut self, object: ObjectId) -> Vec<u8> {
        let data = Bytes16(&[b'c'; SMALL]);
        let ask = self.peer.ask();
        self.peer.datagram(&Write { ask, object, offset: 0, truncate: false, stage: 0, data, terms: Terms::NONE }.into())
    }
}
