//! The replies: what an ACK or a RESULT carries.
//!
//! Decides: the reply registry (one line per kind of reply) and the layout of each. A reply begins with its one-byte kind, so
//! that it can be read without knowing the request. Implements `wire-spec.md` section 6.5.
//! Leaves to others: which request is answered by which reply (`wire-spec.md` section 6.2, `server::execute`).

use crate::admin::AdminAnswer;
use crate::attr::{Attr, CacheGrant, Effect};
use crate::field::{Bytes8, Bytes16, Fault, Field, List, Malformed, Reader, Writer};
use crate::ids::{AgentId, Generation, LockId, Mode, ObjectId, StoreId};
use crate::lease::{LeaseKept, LeaseRows};
use crate::locks::{Holder, LockRow};
use crate::names::Entry;
use crate::realm::{Limited, RealmRows};
use crate::recovery::{OutcomeTold, Reclaimed};
use crate::shape::{Case, FieldInfo, Shape, Shown};
use crate::status::Status;
use crate::watch::Watched;

macro_rules! replies {
    ($($(#[$doc:meta])* $code:literal $name:ident $text:literal $ty:ty),* $(,)?) => {
        /// What an ACK or a RESULT carries.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Reply<'a> { $($(#[$doc])* $name($ty)),* }

        /// The kind of a reply.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum ReplyKind { $($(#[$doc])* $name = $code),* }

        impl ReplyKind {
            /// Every kind, in order of code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Its name in the specification.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }

            /// Its fields in wire order.
            #[must_use]
            #[allow(clippy::extra_unused_lifetimes, reason = "some of the types named in the lines borrow")]
            pub const fn fields<'a>(self) -> &'static [FieldInfo] {
                match self { $(Self::$name => <$ty>::FIELDS),* }
            }
        }

        impl Reply<'_> {
            /// Its kind.
            #[must_use]
            pub const fn kind(&self) -> ReplyKind {
                match self { $(Self::$name(_) => ReplyKind::$name),* }
            }
        }

        $( impl<'a> $ty {
            /// Appends it as a [`Reply`].
            #[inline]
            pub fn put_reply(&self, w: &mut Writer) {
                (ReplyKind::$name as u8).put(w);
                self.put(w);
            }
        } )*

        impl Reply<'_> {
            /// Bytes before the fields of a reply: its kind.
            pub const KIND_LEN: usize = 1;
        }

        impl<'a> Field<'a> for Reply<'a> {
            const TYPE: &'static str = "Reply";
            const MIN_LEN: usize = Self::KIND_LEN;
            const SHAPE: &'static Shape = &Shape::Union {
                ty: "Reply",
                words: &[$(($code, $text)),*],
                cases: &[$(Case { code: $code, name: $text, field: lower!($text), shape: <$ty as Field<'a>>::SHAPE }),*],
            };
            fn get(r: &mut Reader<'a>) -> Result<Self, Malformed> {
                match u8::get(r)? {
                    $($code => r.get().map(Self::$name),)*
                    _ => Err(Malformed::new(Fault::BadValue).within("Reply", "kind")),
                }
            }
            fn put(&self, w: &mut Writer) {
                (self.kind() as u8).put(w);
                match self { $(Self::$name(body) => body.put(w)),* }
            }
        }
    };
}

replies! {
    /// Done; there is nothing to tell.
    0x00 Done "DONE" Done,
    /// The operation failed, or cannot be done now (BUSY, IN_GRACE).
    0x01 Failed "FAILED" Failed,
    /// The objects on a path.
    0x02 Walked "WALKED" Walked<'a>,
    /// An object's attributes.
    0x03 Stated "STATED" Stated,
    /// A page of a directory.
    0x04 Listing "LISTING" Listing<'a>,
    /// A page of contents.
    0x05 Data "DATA" Data<'a>,
    /// What a mutation did.
    0x06 Changed "CHANGED" Changed<'a>,
    /// An advisory lock.
    0x07 Granted "GRANTED" Granted,
    /// An advisory lock is held by somebody else.
    0x08 LockRefused "LOCK_REFUSED" LockRefused<'a>,
    /// Who holds and who waits.
    0x09 LockRows "LOCK_ROWS" LockRows<'a>,
    /// What the server is and how it is.
    0x0A ServerReport "SERVER_REPORT" ServerReport<'a>,
    /// Locks of a former session.
    0x0B Reclaimed "RECLAIMED" Reclaimed<'a>,
    /// What became of a mutation of a former session.
    0x0C OutcomeTold "OUTCOME_TOLD" OutcomeTold<'a>,
    /// A page of the value of an extended attribute.
    0x0D Xattr "XATTR" Xattr<'a>,
    /// Names of extended attributes.
    0x0E XattrNames "XATTR_NAMES" XattrNames<'a>,
    /// A batch of which nothing was done.
    0x0F BatchFailed "BATCH_FAILED" BatchFailed,
    /// A watched object as it is now.
    0x10 Watched "WATCHED" Watched,
    /// What a batch did.
    0x11 Batched "BATCHED" Batched<'a>,
    /// The operation failed with EDQUOT: a quota or a share is used up.
    0x12 Limited "LIMITED" Limited,
    /// Realms and their use.
    0x13 RealmRows "REALM_ROWS" RealmRows<'a>,
    /// A page of what an operator's line was answered.
    0x14 AdminAnswer "ADMIN_ANSWER" AdminAnswer<'a>,
    /// KEEP_LEASE.
    0x15 LeaseKept "LEASE_KEPT" LeaseKept,
    /// LIST_LEASES.
    0x16 LeaseRows "LEASE_ROWS" LeaseRows<'a>,
}

body! {
    /// Done; there is nothing to tell.
    pub struct Done {}
}

body! {
    /// The operation failed.
    pub struct Failed {
        /// Why; never OK.
        pub status: Status,
        /// When to try again, in milliseconds; 0: not by itself.
        pub retry_ms: u32,
    }
}

body! {
    /// Answers LOOKUP: the start directory, then the object of each name walked, as far as the walk went.
    pub struct Walked<'a> {
        /// OK when all names were walked or the datagram was full or a symbolic link was met; else why the next name was not.
        pub status: Status,
        /// The objects; the first is the start directory.
        pub steps: List<'a, Stated>,
        /// The target, when the last object is a symbolic link.
        pub target: Bytes16<'a> as Shown::Text,
    }
}

body! {
    /// What an object is: answers GETATTR, and stands in WALKED and LISTING.
    pub struct Stated {
        /// Its attributes.
        pub attr: Attr,
        /// The cache lock on it.
        pub grant: CacheGrant,
    }
}

body! {
    /// Answers READDIR.
    pub struct Listing<'a> {
        /// The directory.
        pub dir: Attr,
        /// The cache lock on it.
        pub grant: CacheGrant,
        /// Whether this page is the last.
        pub end: bool,
        /// The entries, in byte order of their names.
        pub entries: List<'a, Entry<'a>>,
    }
}

body! {
    /// Answers READ.
    pub struct Data<'a> {
        /// The file.
        pub attr: Attr,
        /// The cache lock on it.
        pub grant: CacheGrant,
        /// Where the bytes begin.
        pub offset: u64,
        /// The bytes; fewer than asked for when the datagram is full or the file ends.
        pub data: Bytes16<'a>,
    }
}

body! {
    /// Answers every mutation: each object that it affected, in the order of the table of `wire-spec.md` section 11.4.
    pub struct Changed<'a> {
        /// The effects.
        pub effects: List<'a, Effect>,
    }
}

body! {
    /// Answers LOCK.
    pub struct Granted {
        /// The lock.
        pub lock: LockId,
        /// Its mode.
        pub mode: Mode,
        /// The grant, and the first token of its run.
        pub generation: Generation,
        /// How many consecutive tokens the run has.
        pub run: u32,
    }
}

body! {
    /// Answers a LOCK that only tries.
    pub struct LockRefused<'a> {
        /// The lock.
        pub lock: LockId,
        /// One who holds it, or waits for it longer.
        pub holder: Holder<'a>,
    }
}

body! {
    /// Answers LIST_LOCKS.
    pub struct LockRows<'a> {
        /// Whether this page is the last.
        pub end: bool,
        /// The rows: holders of an object before those who wait, in order.
        pub rows: List<'a, LockRow<'a>>,
    }
}

body! {
    /// A server of a group.
    pub struct GroupMember<'a> {
        /// As the group's list has it.
        pub name: Bytes8<'a> as Shown::Text,
        /// How long ago the answering server has heard it, in milliseconds; 0 of itself, [`GroupMember::NOT_HEARD`]: not yet.
        pub heard_ms: u32,
    }
}

impl ServerReport<'_> {
    /// The same without the members of its group.
    #[must_use]
    pub const fn of_the_server(&self) -> ServerReport<'static> {
        let Self { store, epoch, incarnation, uptime_ms, agent, sessions, timing_out, locks, waiters, objects, .. } = *self;
        let Self { requests, demands, delivery_failures, steals, drops, place, .. } = *self;
        ServerReport {
            store,
            epoch,
            incarnation,
            uptime_ms,
            agent,
            sessions,
            timing_out,
            locks,
            waiters,
            objects,
            requests,
            demands,
            delivery_failures,
            steals,
            drops,
            place,
            members: List::of(&[]),
        }
    }
}

impl GroupMember<'_> {
    /// It was not heard yet.
    pub const NOT_HEARD: u32 = u32::MAX;
}

body! {
    /// Answers SERVER_STATUS.
    pub struct ServerReport<'a> {
        /// The store.
        pub store: StoreId,
        /// Its epoch.
        pub epoch: u8,
        /// The server's incarnation.
        pub incarnation: u64,
        /// Since the server started, in milliseconds.
        pub uptime_ms: u64,
        /// The asking agent's own identity, as the server knows it.
        pub agent: AgentId,
        /// Sessions in good standing.
        pub sessions: u32,
        /// Sessions timing out: the only lease state there is.
        pub timing_out: u32,
        /// Locks held, of both classes.
        pub locks: u64,
        /// Requests that wait for a lock.
        pub waiters: u32,
        /// Objects in the namespace.
        pub objects: u64,
        /// Requests executed since the start.
        pub requests: u64,
        /// Demands sent since the start.
        pub demands: u64,
        /// Delivery failures since the start.
        pub delivery_failures: u64,
        /// Sessions stolen from since the start.
        pub steals: u64,
        /// Datagrams dropped since the start, for whatever reason.
        pub drops: u64,
        /// The place of the answering server, which serves, in the list of its group, from 1; 0: it has no group.
        pub place: u8,
        /// The servers of that group, as many as fit, in the order of the list.
        pub members: List<'a, GroupMember<'a>>,
    }
}

body! {
    /// Answers GETXATTR.
    pub struct Xattr<'a> {
        /// The object.
        pub object: ObjectId,
        /// Its version.
        pub version: u64,
        /// Bytes of the whole value.
        pub total: u32,
        /// Where the bytes begin.
        pub offset: u32,
        /// The bytes; fewer than asked for when the datagram is full or the value ends.
        pub data: Bytes16<'a>,
    }
}

body! {
    /// Answers LISTXATTR.
    pub struct XattrNames<'a> {
        /// The object.
        pub object: ObjectId,
        /// Its version.
        pub version: u64,
        /// Whether this page is the last.
        pub end: bool,
        /// The names, in byte order.
        pub names: List<'a, Bytes8<'a>>,
    }
}

body! {
    /// Answers a BATCH of which an item could not be done: nothing was changed.
    pub struct BatchFailed {
        /// Why; never OK.
        pub status: Status,
        /// Which item, counted from 0.
        pub item: u16,
    }
}

body! {
    /// What an item of a batch was about.
    pub struct ItemResult {
        /// The object that it made, opened, changed, named, moved, or whose name it took away.
        pub object: ObjectId,
        /// That object's version after the whole batch; 0: it is gone.
        pub version: u64,
    }
}

body! {
    /// Answers a BATCH that was executed whole.
    pub struct Batched<'a> {
        /// One for each item, in order.
        pub items: List<'a, ItemResult>,
    }
}
