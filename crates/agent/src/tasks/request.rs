//! What operations ask of the server, kept so that it can be asked again.
//!
//! Decides: how each request is encoded, which cache locks it asks for, and which objects a mutation affects as far as the agent
//! can know them (section 11.5).
//! Place in the walk: made by the operations, encoded once per sending by `task`. Implements `wire-spec.md` sections 6.2 and 11.4.
//! Invariant: a request names objects by number, never by path, so asking again means the same; the locks named in a mutation are
//! those held at the moment of encoding.
//! Leaves to others: nonces and retransmission (the protocol half), what the answer means (the operations).

use crate::api::{AttrChange, Guard, Ownership};
use crate::cache::Cache;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::{Ask, Bytes8, Bytes16, Expect, Generation, Held, List, Message, ObjectId, RenameRule, Reply, Terms, Want, XattrRule};

/// One request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// LOOKUP.
    Lookup { start: ObjectId, names: Vec<Bytes> },
    /// GETATTR.
    GetAttr { object: ObjectId, want: Want },
    /// READ; version 0: any.
    Read { object: ObjectId, offset: u64, length: u32, version: u64, want: Want },
    /// READDIR; version 0: any.
    ReadDir { dir: ObjectId, after: Bytes, version: u64, detail: bool },
    /// STAGE: the piece of `data` at `offset`.
    Stage { stage: u64, data: Bytes, offset: usize, length: usize },
    /// GETXATTR from `offset` on; version 0: any.
    GetXattr { object: ObjectId, name: Bytes, offset: usize, version: u64 },
    /// LISTXATTR; version 0: any.
    ListXattr { object: ObjectId, after: Bytes, version: u64 },
    /// A mutation.
    Change { change: Mutation, guard: Option<Guard>, expect: Vec<Expect> },
    /// LIST_LOCKS.
    ListLocks { object: ObjectId, after_object: ObjectId, after_row: u32 },
    /// SERVER_STATUS.
    ServerStatus,
}

/// A mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// CREATE.
    Create { dir: ObjectId, name: Bytes, exclusive: bool, ephemeral: bool, owner: Ownership },
    /// MKDIR.
    Mkdir { dir: ObjectId, name: Bytes, owner: Ownership },
    /// SYMLINK.
    Symlink { dir: ObjectId, name: Bytes, points_to: Bytes, owner: Ownership },
    /// LINK.
    Link { object: ObjectId, dir: ObjectId, name: Bytes },
    /// UNLINK.
    Unlink { dir: ObjectId, name: Bytes, force: bool },
    /// RMDIR.
    Rmdir { dir: ObjectId, name: Bytes },
    /// RENAME.
    Rename { from_dir: ObjectId, from_name: Bytes, to_dir: ObjectId, to_name: Bytes, rule: RenameRule, force: bool },
    /// SETATTR.
    SetAttr { object: ObjectId, change: AttrChange },
    /// WRITE; `data` is what is written whether it was staged or not.
    Write { object: ObjectId, offset: u64, truncate: bool, stage: u64, data: Bytes },
    /// SETXATTR; `value` is what is set whether it was staged or not.
    SetXattr { object: ObjectId, name: Bytes, rule: XattrRule, stage: u64, value: Bytes },
    /// REMOVEXATTR.
    RemoveXattr { object: ObjectId, name: Bytes },
    /// BATCH, of others.
    Batch { items: Vec<Mutation> },
}

/// The request's nonce and floor are filled in when it is sent.
const UNASKED: Ask = Ask { nonce: 0, back: 0, limit: 0 };

impl Request {
    /// Whether it changes the namespace.
    pub(crate) const fn is_mutation(&self) -> bool {
        matches!(self, Self::Change { .. })
    }

    /// The object whose state the answer tells, if it is one that is named in the request.
    pub(crate) const fn subject(&self) -> Option<ObjectId> {
        match self {
            Self::GetAttr { object, .. } | Self::Read { object, .. } => Some(*object),
            Self::GetXattr { object, .. } | Self::ListXattr { object, .. } => Some(*object),
            Self::ReadDir { dir, .. } => Some(*dir),
            _ => None,
        }
    }

    /// Whether a reply is about the object that was asked about. Failures and everything else that names none are.
    pub(crate) fn is_answered_by(&self, reply: &Reply<'_>) -> bool {
        let about = match reply {
            Reply::Stated(stated) => stated.attr.object,
            Reply::Data(data) => data.attr.object,
            Reply::Listing(page) => page.dir.object,
            Reply::Xattr(page) => page.object,
            Reply::XattrNames(page) => page.object,
            Reply::Walked(walked) => match (self, walked.steps.iter().next()) {
                (Self::Lookup { start, .. }, Some(first)) => return first.attr.object == *start,
                _ => return true,
            },
            _ => return true,
        };
        self.subject().is_none_or(|subject| subject == about)
    }

    /// The message; `held` are the suspended locks that a mutation names.
    pub(crate) fn encode(&self, held: &[Held]) -> Vec<u8> {
        match self {
            Self::Lookup { start, names } => {
                let names: Vec<Bytes8<'_>> = names.iter().map(|name| Bytes8(name)).collect();
                let names = List::of(&names);
                Message::from(cistern_wire::Lookup { ask: UNASKED, start: *start, want: Want::Shared, names }).to_bytes()
            }
            Self::GetAttr { object, want } => {
                Message::from(cistern_wire::GetAttr { ask: UNASKED, object: *object, want: *want }).to_bytes()
            }
            Self::Read { object, offset, length, version, want } => Message::from(cistern_wire::Read {
                ask: UNASKED,
                object: *object,
                offset: *offset,
                length: *length,
                version: *version,
                want: *want,
            })
            .to_bytes(),
            Self::ReadDir { dir, after, version, detail } => Message::from(cistern_wire::ReadDir {
                ask: UNASKED,
                dir: *dir,
                after: Bytes8(after),
                version: *version,
                detail: *detail,
                want: Want::Shared,
            })
            .to_bytes(),
            Self::Stage { stage, data, offset, length } => {
                let piece = &data[*offset..*offset + *length];
                let (total, offset) = (cut(data.len()), cut(*offset));
                Message::from(cistern_wire::Stage { ask: UNASKED, stage: *stage, total, offset, data: Bytes16(piece) }).to_bytes()
            }
            Self::GetXattr { object, name, offset, version } => Message::from(cistern_wire::GetXattr {
                ask: UNASKED,
                object: *object,
                name: Bytes8(name),
                offset: cut(*offset),
                length: u32::MAX,
                version: *version,
            })
            .to_bytes(),
            Self::ListXattr { object, after, version } => {
                Message::from(cistern_wire::ListXattr { ask: UNASKED, object: *object, after: Bytes8(after), version: *version }).to_bytes()
            }
            Self::Change { change, guard, expect } => change.encode(terms(change.want(), *guard, held, expect)),
            Self::ListLocks { object, after_object, after_row } => {
                // Who asks about one object knows where it is.
                let places = object.0 == 0;
                let (object, after_object, after_row) = (*object, *after_object, *after_row);
                Message::from(cistern_wire::ListLocks { ask: UNASKED, object, after_object, after_row, places }).to_bytes()
            }
            Self::ServerStatus => Message::from(cistern_wire::ServerStatus { ask: UNASKED }).to_bytes(),
        }
    }
}

/// A length within staged contents, which are at most 1 MiB.
fn cut(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn terms<'a>(want: Want, guard: Option<Guard>, held: &'a [Held], expect: &'a [Expect]) -> Terms<'a> {
    let Guard { object, token } = guard.unwrap_or(Guard { object: ObjectId(0), token: 0 });
    let (held, expect) = (List::of(held), List::of(expect));
    Terms { want, guard_object: object, guard_generation: Generation(token), held, expect }
}

impl Mutation {
    /// Which cache lock the agent would like on what it affects. Who makes a file or directory most often fills it next: an
    /// exclusive lock keeps others from caching it half made, so that filling it needs no demands. For all else a shared lock
    /// serves as well, for changes go through the server anyway, and does not stand in the way of other readers.
    const fn want(&self) -> Want {
        match self {
            Self::Create { .. } | Self::Mkdir { .. } => Want::Exclusive,
            // A batch tells versions, no attributes that could be cached.
            Self::Batch { .. } => Want::Nothing,
            _ => Want::Shared,
        }
    }

    /// The objects that it affects, as far as they are known (`wire-spec.md` section 11.4): those named in it, and those behind
    /// its names as the cache believes them to be. What is missing here the server demands back like from anybody; what is
    /// too much only is not answered from cache for a moment.
    pub(crate) fn affected(&self, cache: &Cache) -> Vec<ObjectId> {
        let mut objects = Vec::with_capacity(4);
        match self {
            Self::Create { dir, name, .. } | Self::Mkdir { dir, name, .. } | Self::Symlink { dir, name, .. } => {
                objects.push(*dir);
                objects.extend(cache.guess(*dir, name));
            }
            Self::Link { object, dir, .. } => objects.extend([*dir, *object]),
            Self::Unlink { dir, name, .. } | Self::Rmdir { dir, name } => {
                objects.push(*dir);
                objects.extend(cache.guess(*dir, name));
            }
            Self::Rename { from_dir, from_name, to_dir, to_name, .. } => {
                objects.extend([*from_dir, *to_dir]);
                objects.extend(cache.guess(*from_dir, from_name));
                objects.extend(cache.guess(*to_dir, to_name));
            }
            Self::SetAttr { object, .. }
            | Self::Write { object, .. }
            | Self::SetXattr { object, .. }
            | Self::RemoveXattr { object, .. } => objects.push(*object),
            Self::Batch { items } => objects.extend(items.iter().flat_map(|item| item.affected(cache))),
        }
        // What a batch makes is nobody's yet.
        objects.retain(|object| object.maker().is_none());
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}
