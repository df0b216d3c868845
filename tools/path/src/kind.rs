//! The requests whose cost is counted.
//!
//! Decides what of each kind is asked, how many of them share a datagram, and what is there before: names, contents, locks. Every
//! datagram is made before the first is counted. Leaves to others: turning the server (`rig`), counting.

use crate::rig::{ROOT, Rig, create};
use cistern_wire::{
    Ack, Bytes8, Bytes16, Generation, GetAttr, Keep, KeepAlive, List, Lock, LockClass, LockId, LockWait, Lookup, Message, Mode, ObjectId,
    Read, Release, ReleaseItem, Reply, Terms, Want, Write,
};

/// Bytes of a small file.
const SMALL: usize = 128;

/// Requests of a packed datagram: as many as P2 (`docs/performance.md`) is about.
pub const PACKED: usize = 16;

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

    /// Those that are counted packed, too.
    pub const PACKED: [Self; 4] = [Self::GetAttr, Self::Lookup, Self::Lock, Self::Release];

    /// Prepares the server; gives `count` datagrams, each of which is one such request and is to be turned once, in this order.
    ///
    /// # Panics
    /// If the server refuses what has to be there before: it is broken.
    #[must_use]
    pub fn prepare(self, rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        self.messages(rig, count).iter().map(|message| rig.peer.datagram_of(core::slice::from_ref(message))).collect()
    }

    /// The same with [`PACKED`] requests in each datagram: all of them are awaited until all are answered.
    ///
    /// # Panics
    /// If the server refuses what has to be there before: it is broken.
    #[must_use]
    pub fn prepare_packed(self, rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        rig.peer.ask_in_bursts(PACKED);
        self.messages(rig, count).chunks(PACKED).map(|messages| rig.peer.datagram_of(messages)).collect()
    }

    /// Prepares the server, and gives `count` encoded requests.
    fn messages(self, rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        match self {
            Self::GetAttr => rig.many(count, |rig| GetAttr { ask: rig.peer.ask(), object: ROOT, want: Want::Nothing }.into()),
            Self::Lookup => Self::lookups(rig, count),
            Self::Lock => {
                let files = rig.locked(count);
                let releases: Vec<_> = files.iter().map(|locked| rig.release(*locked)).collect();
                releases.iter().for_each(|release| rig.turn(release));
                files.into_iter().map(|(object, _)| rig.lock_message(object).to_bytes()).collect()
            }
            Self::Release => {
                let files = rig.locked(count);
                files.into_iter().map(|locked| rig.release_message(locked)).collect()
            }
            Self::KeepAlive => rig.many(count, |rig| KeepAlive { serial: rig.peer.serial(), clock_us: 1 }.into()),
            Self::Create => {
                rig.create(ROOT, "first");
                rig.keep_nothing(count);
                let names: Vec<_> = (0..count).map(|n| format!("file-{n:05}")).collect();
                names.iter().map(|name| create(rig.peer.ask(), ROOT, name).to_bytes()).collect()
            }
            Self::Write => {
                let object = rig.create(ROOT, "written");
                rig.write(object);
                rig.keep_nothing(count);
                (0..count).map(|_| rig.write_message(object).to_bytes()).collect()
            }
            Self::Read => {
                let object = rig.create(ROOT, "read");
                rig.write(object);
                let length = u32::try_from(SMALL).unwrap_or(u32::MAX);
                rig.many(count, |rig| Read { ask: rig.peer.ask(), object, offset: 0, length, version: 0, want: Want::Nothing }.into())
            }
        }
    }

    /// GETATTR of the root, `count` of them, of which `in_flight` are outstanding at a time.
    #[must_use]
    pub fn in_flight(rig: &mut Rig, count: usize, in_flight: u16) -> Vec<Vec<u8>> {
        let each = |rig: &mut Rig| {
            let ask = rig.peer.ask_among(in_flight);
            rig.peer.datagram(&GetAttr { ask, object: ROOT, want: Want::Nothing }.into())
        };
        (0..count).map(|_| each(rig)).collect()
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
        let mut lookup = || Lookup { ask: rig.peer.ask(), start: ROOT, want: Want::Nothing, names: List::of(&names) };
        (0..count).map(|_| Message::from(lookup()).to_bytes()).collect()
    }
}

impl Rig {
    fn many(&mut self, count: usize, message: impl Fn(&mut Self) -> Message<'static>) -> Vec<Vec<u8>> {
        (0..count).map(|_| message(self).to_bytes()).collect()
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
        let lock = self.lock_message(object);
        self.peer.datagram(&lock)
    }

    fn lock_message(&mut self, object: ObjectId) -> Message<'static> {
        Lock { ask: self.peer.ask(), object, mode: Mode::Exclusive, wait: LockWait::Try }.into()
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
    pub fn release(&mut self, locked: (ObjectId, Generation)) -> Vec<u8> {
        let release = self.release_message(locked);
        self.peer.datagram_of(&[release])
    }

    fn release_message(&mut self, (object, generation): (ObjectId, Generation)) -> Vec<u8> {
        let items = [ReleaseItem { lock: LockId { object, class: LockClass::Advisory }, generation, keep: Keep::Nothing }];
        Message::from(Release { serial: self.peer.serial(), items: List::of(&items) }).to_bytes()
    }

    /// Writes to a file.
    fn write(&mut self, object: ObjectId) {
        let write = self.write_message(object);
        let datagram = self.peer.datagram(&write);
        self.turn(&datagram);
    }

    fn write_message(&mut self, object: ObjectId) -> Message<'static> {
        let data = Bytes16(&[b'c'; SMALL]);
        Write { ask: self.peer.ask(), object, offset: 0, truncate: false, stage: 0, data, terms: Terms::NONE }.into()
    }
}
