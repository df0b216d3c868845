//! Requests whose cost depends on what they are about: whether they are charged what they cost.
//!
//! Decides what of each is asked: the dearest that the wire has room for, or nearly. Leaves to others: counting, the prices themselves (the
//! server's `scheduler::prices`).

use crate::kind::Kind;
use crate::rig::{ROOT, Rig};
use cistern_wire::{
    Ask, Bytes8, Bytes16, Generation, GetAttr, Keep, List, ListLocks, LockClass, LockId, Lookup, Message, ObjectId, ReadDir, Release,
    ReleaseItem, ServerStatus, SetAttr, SetMask, Stage, Terms, Want, Watch,
};

/// How deep a tree is.
const DEPTH: usize = 100;
/// Names in a directory.
const NAMES: usize = 200;
/// Locks in a list.
const LOCKS: usize = 19;
/// Items of one RELEASE.
const ITEMS: usize = 40;

/// One kind of request whose price is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Priced {
    /// A page of names.
    ReadDir,
    /// A page of names with attributes.
    ReadDirDetail,
    /// Advisory locks.
    ListLocks,
    /// Advisory locks with their places, far down.
    ListPlaces,
    /// A path of very many names.
    LongLookup,
    /// A piece of contents.
    Stage,
    /// The server's figures.
    ServerStatus,
    /// Permission bits.
    SetAttr,
    /// A watch that is there already.
    Watch,
    /// Attributes with a cache lock.
    CachedGetAttr,
    /// A RELEASE of many locks that are not held.
    LongRelease,
}

impl Priced {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::ReadDir,
        Self::ReadDirDetail,
        Self::ListLocks,
        Self::ListPlaces,
        Self::LongLookup,
        Self::Stage,
        Self::ServerStatus,
        Self::SetAttr,
        Self::Watch,
        Self::CachedGetAttr,
        Self::LongRelease,
    ];

    /// Prepares the server; gives `count` datagrams of one request each.
    ///
    /// # Panics
    /// If the server refuses what has to be there before: it is broken.
    #[must_use]
    pub fn prepare(self, rig: &mut Rig, count: usize) -> Vec<Vec<u8>> {
        let list = |ask, places| ListLocks { ask, object: ObjectId(0), after_object: ObjectId(0), after_row: 0, places }.into();
        match self {
            Self::ReadDir | Self::ReadDirDetail => {
                let dir = rig.mkdir("dir");
                for n in 0..NAMES {
                    rig.create(dir, &format!("name-{n:04}"));
                }
                let detail = self == Self::ReadDirDetail;
                rig.all(count, |ask| ReadDir { ask, dir, after: Bytes8(b""), version: 0, detail, want: Want::Nothing }.into())
            }
            Self::ListLocks | Self::ListPlaces => {
                let dir = rig.deep(DEPTH);
                for n in 0..LOCKS {
                    let object = rig.create(dir, &format!("{n}"));
                    let lock = rig.lock(object);
                    rig.turn(&lock);
                }
                rig.all(count, |ask| list(ask, self == Self::ListPlaces))
            }
            Self::LongLookup => {
                rig.deep(DEPTH);
                let names = [Bytes8(b"d"); DEPTH];
                rig.all(count, |ask| Lookup { ask, start: ROOT, want: Want::Nothing, names: List::of(&names) }.into())
            }
            Self::Stage => {
                let data = [7; 1_000];
                rig.all(count, |ask| Stage { ask, stage: 1, total: 1 << 20, offset: 0, data: Bytes16(&data) }.into())
            }
            Self::ServerStatus => rig.all(count, |ask| ServerStatus { ask }.into()),
            Self::SetAttr => {
                let object = rig.create(ROOT, "changed");
                rig.keep_nothing(count);
                let (mask, terms) = (SetMask { bits: SetMask::MODE }, Terms::NONE);
                rig.all(count, |ask| {
                    SetAttr { ask, object, mask, mode: 0o600, uid: 0, gid: 0, size: 0, atime_ns: 0, mtime_ns: 0, terms }.into()
                })
            }
            Self::Watch => rig.all(count, |ask| Watch { ask, object: ROOT }.into()),
            Self::CachedGetAttr => rig.all(count, |ask| GetAttr { ask, object: ROOT, want: Want::Shared }.into()),
            Self::LongRelease => {
                let lock = LockId { object: ObjectId(7), class: LockClass::Advisory };
                let items = [ReleaseItem { lock, generation: Generation(9), keep: Keep::Nothing }; ITEMS];
                let message = |rig: &mut Rig| Message::from(Release { serial: rig.peer.serial(), items: List::of(&items) }).to_bytes();
                let messages: Vec<_> = (0..count).map(|_| message(rig)).collect();
                messages.into_iter().map(|message| rig.peer.datagram_of(&[message])).collect()
            }
        }
    }
}

impl Rig {
    fn all<'m>(&mut self, count: usize, message: impl Fn(Ask) -> Message<'m>) -> Vec<Vec<u8>> {
        let one = |rig: &mut Self| {
            let message = message(rig.peer.ask());
            rig.peer.datagram(&message)
        };
        (0..count).map(|_| one(self)).collect()
    }

    /// A directory so far below the root; gives the last one.
    fn deep(&mut self, depth: usize) -> ObjectId {
        (0..depth).fold(ROOT, |dir, _| self.mkdir_in(dir, "d"))
    }
}

/// What the server charges for one request of a kind, in nanoseconds.
#[must_use]
pub fn charge(prepare: impl FnOnce(&mut Rig, usize) -> Vec<Vec<u8>>) -> u64 {
    const TIMES: usize = 200;
    let mut rig = Rig::new();
    let prepared = prepare(&mut rig, TIMES);
    let before = rig.charged_ns();
    prepared.iter().for_each(|datagram| rig.turn(datagram));
    (rig.charged_ns() - before) / TIMES as u64
}

/// What the server charges for one request of a kind that is counted, in nanoseconds.
#[must_use]
pub fn charge_of(kind: Kind) -> u64 {
    charge(|rig, count| kind.prepare(rig, count))
}
