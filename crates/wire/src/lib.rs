//! The wire format of Cistern: what a datagram and each message in it look like.
//!
//! Decides: the bytes. One registry line per message kind (`registry.rs`) gives its code, name, direction and section of
//! `wire-spec.md`; one struct declaration per message gives its layout, from which decoding, encoding and field lists are made,
//! so that a format is written in exactly one place. The same declarations make the shapes (`shape.rs`) by which inspector and
//! dissector read any message without knowing its type (`tree.rs`).
//! In the walk of a datagram this is the first step on the way in (`Envelope`, `Datagram`; borrowing, no allocation) and the last
//! on the way out (`Packer`). Implements `wire-spec.md` sections 3 to 9, and the layouts of `docs/sealed.md`.
//! Invariant: what does not parse to its last byte is never seen by anybody else (section 3.5).
//! Leaves to others: what a message means, who may send it when, and every clock, socket and table.

#![no_std]

extern crate alloc;

#[macro_use]
mod layout;
#[macro_use]
mod shape;

mod admin;
mod answer;
mod attr;
mod batch;
mod content;
mod control;
mod datagram;
mod field;
mod handshake;
mod header;
mod ids;
mod joining;
mod lease;
mod locks;
mod names;
mod notice;
mod observed;
mod realm;
mod recovery;
mod registry;
mod reply;
mod samples;
pub mod sealed;
mod shown;
mod status;
mod tree;
mod watch;
mod xattr;

pub mod limits;
pub mod segments;

pub use admin::{Admin, AdminAnswer};
pub use answer::{
    Ack, Alive, CancelOutcome, Cancelled, Ended, Fate, Hint, Nack, NackReason, Pending, Queued, Released, ReleasedItem, RequestResult,
};
pub use attr::{Attr, CacheGrant, Effect, GetAttr, ObjectKind, SetAttr, SetMask};
pub use batch::{Batch, Item};
pub use content::{Read, Stage, Write};
pub use control::{Cancel, EndReason, EndSession, KeepAlive, PathChallenge, PathResponse, Release, ReleaseItem};
pub use datagram::{Datagram, DropReason, Envelope, Messages, Packer, Raw, RawMessages};
pub use field::{Bytes8, Bytes16, Fault, Field, List, ListIter, Malformed, Reader, Writer};
pub use handshake::{Challenge, Claim, Confirm, FormerClaim, FormerFate, Hello, Known, Opened, Refuse, RefuseReason, SessionFate, Welcome};
pub use header::{Form, Header, MessageHeader, RawHeader};
pub use ids::{AgentId, Ask, Expect, Generation, Handle, Held, LockClass, LockId, Mode, ObjectId, Realm, SessionId, StoreId, Terms, Want};
pub use joining::{Join, JoinOutcome, Joined, RosterAsk, RosterPart};
pub use lease::{Attach, KeepLease, LeaseKept, LeaseRow, LeaseRows, ListLeases, MakeLease};
pub use locks::{Holder, ListLocks, Lock, LockRow, LockWait, RowState, ServerStatus, Standing};
pub use names::{Create, Entry, Link, Lookup, Mkdir, ReadDir, Rename, RenameRule, Rmdir, Symlink, Unlink, is_name};
pub use notice::{Demand, Grant, Keep, Probe, Receipt, ReceiptAnswer, WaitOver, WatchEvent};
pub use observed::{Given, Number, Numbers};
pub use realm::{Limit, Limited, ListRealms, MakeRealm, RealmRow, RealmRows, SetQuota, Whose};
pub use recovery::{Outcome, OutcomeTold, Reclaim, ReclaimComplete, ReclaimItem, Reclaimed, ReclaimedItem};
pub use registry::{Class, Direction, Kind, Lane, Message};
pub use reply::{
    BatchFailed, Batched, Changed, Data, Done, Failed, Granted, GroupMember, ItemResult, Listing, LockRefused, LockRows, Reply, ReplyKind,
    ServerReport, Stated, Walked, Xattr, XattrNames,
};
pub use samples::{open_payload_sample, reply_samples, samples, sealed_samples, welcome_payload_sample};
pub use shape::{Case, FieldInfo, Shape, Shown};
pub use shown::{Escaped, Printable, is_printable};
pub use status::Status;
pub use tree::{DatagramTree, MessageTree, Node, Tree, Value};
pub use watch::{Unwatch, Watch, Watched};
pub use xattr::{GetXattr, ListXattr, RemoveXattr, SetXattr, XattrRule};
