//! What operations ask of the server, kept so that it can be asked again: each request, how it is encoded, which of the bytes that a mutation
//! brings are staged when it becomes too long, and what a mutation makes of the cache, so that the agent need not read again what it has
//! written.
//!
//! Decides also which cache locks are asked for, and which objects a mutation affects as far as the agent can know them. Invariants: a request
//! names objects by number, never by path, so asking again means the same, in the same bytes but for the locks and versions named in its terms;
//! the locks named are those held at the moment of encoding; only what CHANGED implies by itself is learned where the cache did not have the
//! state before, and everything relative is applied to exactly that state (`wire-spec.md` 5.4, 6.2, 11.4, 11.5).

use crate::api::{AttrChange, Guard, Ownership};
use crate::cache::{Body, Cache, Contents, Directory, Known, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_seal::LeaseSecret;
use cistern_wire::limits::HELD_MAX;
use cistern_wire::{
    Ask, Attr, Batch, Bytes8, Bytes16, Effect, Expect, Field as _, Generation, Held, Item, List, Message, ObjectId, Realm, RenameRule,
    Reply, SetMask, Terms, Want, XattrRule,
};

/// WRITE without its data and what it expects: ask 12, object 8, offset 8, truncate 1, stage 8, length 2, terms 21 and one lock of 16.
const WRITE_FIELDS: usize = 76;

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
    /// LIST_REALMS.
    ListRealms { realm: Realm, after: Realm },
    /// ADMIN: the line, or from `offset` on what another one was answered.
    Admin { line: Bytes, answer: u64, offset: u32 },
    /// KEEP_LEASE.
    KeepLease { lease: ObjectId, secret: LeaseSecret },
    /// LIST_LEASES.
    ListLeases { lease: ObjectId, after: ObjectId },
    /// SERVER_STATUS.
    ServerStatus,
}

/// A mutation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mutation {
    /// CREATE.
    Create { dir: ObjectId, name: Bytes, exclusive: bool, ephemeral: bool, owner: Ownership },
    /// MKDIR, or MKREALM.
    Mkdir { dir: ObjectId, name: Bytes, realm: bool, owner: Ownership },
    /// SETQUOTA.
    SetQuota { root: ObjectId, objects: Option<u64>, bytes: Option<u64> },
    /// MKLEASE.
    MakeLease { dir: ObjectId, name: Bytes, ttl_ms: u32, secret: LeaseSecret, owner: Ownership },
    /// ATTACH.
    Attach { object: ObjectId, lease: ObjectId, secret: LeaseSecret },
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

impl Request {
    /// Whether it changes the namespace.
    pub(crate) const fn is_mutation(&self) -> bool {
        matches!(self, Self::Change { .. })
    }

    /// Whether something may be changed if its answer is lost, so that its command does not begin again. Of an operator's line each page is
    /// such: to begin again would execute the line.
    pub(crate) const fn is_act(&self) -> bool {
        self.is_mutation() || matches!(self, Self::Admin { .. })
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
                Message::from(cistern_wire::Lookup { ask: Ask::NONE, start: *start, want: Want::Shared, names }).to_bytes()
            }
            Self::GetAttr { object, want } => {
                Message::from(cistern_wire::GetAttr { ask: Ask::NONE, object: *object, want: *want }).to_bytes()
            }
            Self::Read { object, offset, length, version, want } => Message::from(cistern_wire::Read {
                ask: Ask::NONE,
                object: *object,
                offset: *offset,
                length: *length,
                version: *version,
                want: *want,
            })
            .to_bytes(),
            Self::ReadDir { dir, after, version, detail } => Message::from(cistern_wire::ReadDir {
                ask: Ask::NONE,
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
                Message::from(cistern_wire::Stage { ask: Ask::NONE, stage: *stage, total, offset, data: Bytes16(piece) }).to_bytes()
            }
            Self::GetXattr { object, name, offset, version } => Message::from(cistern_wire::GetXattr {
                ask: Ask::NONE,
                object: *object,
                name: Bytes8(name),
                offset: cut(*offset),
                length: u32::MAX,
                version: *version,
            })
            .to_bytes(),
            Self::ListXattr { object, after, version } => {
                Message::from(cistern_wire::ListXattr { ask: Ask::NONE, object: *object, after: Bytes8(after), version: *version })
                    .to_bytes()
            }
            Self::Change { change, guard, expect } => change.encode(terms(change.want(), *guard, held, expect)),
            Self::ListLocks { object, after_object, after_row } => {
                // Who asks about one object knows where it is.
                let places = object.0 == 0;
                let (object, after_object, after_row) = (*object, *after_object, *after_row);
                Message::from(cistern_wire::ListLocks { ask: Ask::NONE, object, after_object, after_row, places }).to_bytes()
            }
            Self::ListRealms { realm, after } => {
                Message::from(cistern_wire::ListRealms { ask: Ask::NONE, realm: *realm, after: *after }).to_bytes()
            }
            Self::KeepLease { lease, secret } => {
                Message::from(cistern_wire::KeepLease { ask: Ask::NONE, lease: *lease, secret: *secret.expose() }).to_bytes()
            }
            Self::ListLeases { lease, after } => {
                Message::from(cistern_wire::ListLeases { ask: Ask::NONE, lease: *lease, after: *after }).to_bytes()
            }
            Self::Admin { line, answer, offset } => {
                Message::from(cistern_wire::Admin { ask: Ask::NONE, answer: *answer, offset: *offset, line: Bytes16(line) }).to_bytes()
            }
            Self::ServerStatus => Message::from(cistern_wire::ServerStatus { ask: Ask::NONE }).to_bytes(),
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
            Self::Create { .. } | Self::Mkdir { .. } | Self::MakeLease { .. } => Want::Exclusive,
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
            Self::Create { dir, name, .. }
            | Self::Mkdir { dir, name, .. }
            | Self::MakeLease { dir, name, .. }
            | Self::Symlink { dir, name, .. } => {
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
            | Self::Attach { object, .. }
            | Self::Write { object, .. }
            | Self::SetXattr { object, .. }
            | Self::RemoveXattr { object, .. }
            | Self::SetQuota { root: object, .. } => objects.push(*object),
            Self::Batch { items } => objects.extend(items.iter().flat_map(|item| item.affected(cache))),
        }
        // What a batch makes is nobody's yet.
        objects.retain(|object| object.maker().is_none());
        objects.sort_unstable();
        objects.dedup();
        objects
    }
}

impl Mutation {
    /// The message.
    pub(super) fn encode(&self, terms: Terms<'_>) -> Vec<u8> {
        let ask = Ask::NONE;
        match self {
            Self::Batch { items } => {
                let items: Vec<Item<'_>> = items.iter().filter_map(Self::item).collect();
                Message::from(Batch { ask, items: List::of(&items), terms }).to_bytes()
            }
            // Every other change is an item.
            one => one.item().map(|item| item.under(terms).to_bytes()).unwrap_or_default(),
        }
    }

    /// The change as an item; a batch is none.
    fn item(&self) -> Option<Item<'_>> {
        let (ask, terms) = (Ask::NONE, Terms::NONE);
        Some(match self {
            Self::Create { dir, name, exclusive, ephemeral, owner: Ownership { mode, uid, gid } } => {
                let (dir, name, exclusive, ephemeral, mode, uid, gid) = (*dir, Bytes8(name), *exclusive, *ephemeral, *mode, *uid, *gid);
                Item::Create(cistern_wire::Create { ask, dir, name, exclusive, mode, uid, gid, ephemeral, terms })
            }
            Self::Mkdir { dir, name, realm: true, owner: Ownership { mode, uid, gid } } => {
                Item::MakeRealm(cistern_wire::MakeRealm { ask, dir: *dir, name: Bytes8(name), mode: *mode, uid: *uid, gid: *gid, terms })
            }
            Self::SetQuota { root, objects, bytes } => {
                Item::SetQuota(cistern_wire::SetQuota { ask, root: *root, objects: *objects, bytes: *bytes, terms })
            }
            Self::Mkdir { dir, name, realm: false, owner: Ownership { mode, uid, gid } } => {
                Item::Mkdir(cistern_wire::Mkdir { ask, dir: *dir, name: Bytes8(name), mode: *mode, uid: *uid, gid: *gid, terms })
            }
            Self::MakeLease { dir, name, ttl_ms, secret, owner: Ownership { mode, uid, gid } } => {
                let (dir, name, mode, uid, gid) = (*dir, Bytes8(name), *mode, *uid, *gid);
                let (ttl_ms, verifier) = (*ttl_ms, secret.verifier());
                Item::MakeLease(cistern_wire::MakeLease { ask, dir, name, mode, uid, gid, ttl_ms, verifier, terms })
            }
            Self::Attach { object, lease, secret } => {
                Item::Attach(cistern_wire::Attach { ask, object: *object, lease: *lease, secret: *secret.expose(), terms })
            }
            Self::Symlink { dir, name, points_to, owner: Ownership { uid, gid, .. } } => {
                let (name, target) = (Bytes8(name), Bytes16(points_to));
                Item::Symlink(cistern_wire::Symlink { ask, dir: *dir, name, target, uid: *uid, gid: *gid, terms })
            }
            Self::Link { object, dir, name } => {
                Item::Link(cistern_wire::Link { ask, object: *object, dir: *dir, name: Bytes8(name), terms })
            }
            Self::Unlink { dir, name, force } => {
                Item::Unlink(cistern_wire::Unlink { ask, dir: *dir, name: Bytes8(name), force: *force, terms })
            }
            Self::Rmdir { dir, name } => Item::Rmdir(cistern_wire::Rmdir { ask, dir: *dir, name: Bytes8(name), terms }),
            Self::Rename { from_dir, from_name, to_dir, to_name, rule, force } => Item::Rename(cistern_wire::Rename {
                ask,
                from_dir: *from_dir,
                from_name: Bytes8(from_name),
                to_dir: *to_dir,
                to_name: Bytes8(to_name),
                rule: *rule,
                force: *force,
                terms,
            }),
            Self::SetAttr { object, change } => Item::SetAttr(set_attr(*object, change)),
            Self::Write { object, offset, truncate, stage, data } => {
                let data = Bytes16(if *stage == 0 { data } else { &[] });
                let (object, offset, truncate, stage) = (*object, *offset, *truncate, *stage);
                Item::Write(cistern_wire::Write { ask, object, offset, truncate, stage, data, terms })
            }
            Self::SetXattr { object, name, rule, stage, value } => {
                let data = Bytes16(if *stage == 0 { value } else { &[] });
                Item::SetXattr(cistern_wire::SetXattr { ask, object: *object, name: Bytes8(name), rule: *rule, stage: *stage, data, terms })
            }
            Self::RemoveXattr { object, name } => {
                Item::RemoveXattr(cistern_wire::RemoveXattr { ask, object: *object, name: Bytes8(name), terms })
            }
            Self::Batch { .. } => return None,
        })
    }

    /// The length of the body of its message with as many locks named as can be now; what it expects is not counted.
    pub(super) fn len_most(&self, cache: &Cache) -> usize {
        if let Self::Write { stage, data, .. } = self {
            // What is sent most often need not be encoded for that.
            return WRITE_FIELDS + if *stage == 0 { data.len() } else { 0 };
        }
        let brought: usize = self.brought().filter(|(stage, _)| **stage == 0).map(|(_, data)| data.len()).sum();
        // A string longer than its length field is cut when it is encoded: it is too long whatever its message says.
        let encoded = self.encode(Terms::NONE).len() - cistern_wire::limits::MESSAGE_HEADER_LEN;
        encoded.max(brought) + Held::LEN * self.affected(cache).len().min(HELD_MAX)
    }

    /// Has the largest of what it brings itself brought by a stage; gives the bytes. `None`: it brings nothing itself.
    pub(super) fn stage_largest(&mut self, number: u64) -> Option<Bytes> {
        let bringing = self.brought_mut().into_iter().filter(|(stage, data)| **stage == 0 && !data.is_empty());
        let (stage, data) = bringing.max_by_key(|(_, data)| data.len())?;
        *stage = number;
        Some(data.clone())
    }

    /// Nothing is staged any more.
    pub(super) fn unstage(&mut self) {
        self.brought_mut().into_iter().for_each(|(stage, _)| *stage = 0);
    }

    /// Stages and bytes of all that brings something.
    fn brought(&self) -> impl Iterator<Item = (&u64, &Bytes)> {
        let all = if let Self::Batch { items } = self { &items[..] } else { core::slice::from_ref(self) };
        all.iter().filter_map(|change| match change {
            Self::Write { stage, data, .. } => Some((stage, data)),
            Self::SetXattr { stage, value, .. } => Some((stage, value)),
            _ => None,
        })
    }

    fn brought_mut(&mut self) -> Vec<(&mut u64, &Bytes)> {
        let all = if let Self::Batch { items } = self { &mut items[..] } else { core::slice::from_mut(self) };
        let each = all.iter_mut().filter_map(|change| match change {
            Self::Write { stage, data, .. } => Some((stage, &*data)),
            Self::SetXattr { stage, value, .. } => Some((stage, &*value)),
            _ => None,
        });
        each.collect()
    }
}

fn set_attr(object: ObjectId, change: &AttrChange) -> cistern_wire::SetAttr<'static> {
    let bit = |set: bool, bit: u8| if set { bit } else { 0 };
    let bits = bit(change.mode.is_some(), SetMask::MODE)
        | bit(change.uid.is_some(), SetMask::UID)
        | bit(change.gid.is_some(), SetMask::GID)
        | bit(change.size.is_some(), SetMask::SIZE)
        | bit(change.atime_ns.is_some(), SetMask::ATIME)
        | bit(change.mtime_ns.is_some(), SetMask::MTIME);
    cistern_wire::SetAttr {
        ask: Ask::NONE,
        object,
        mask: SetMask { bits },
        mode: change.mode.unwrap_or_default(),
        uid: change.uid.unwrap_or_default(),
        gid: change.gid.unwrap_or_default(),
        size: change.size.unwrap_or_default(),
        atime_ns: change.atime_ns.unwrap_or_default(),
        mtime_ns: change.mtime_ns.unwrap_or_default(),
        terms: Terms::NONE,
    }
}

/// Takes in the effects of a change that was sent with the locks `held` suspended.
pub(super) fn absorb(view: &mut View<'_>, change: &Mutation, held: &[Held], effects: List<'_, Effect>) {
    let moves = Moves::of(change, effects);
    for effect in effects {
        let object = effect.attr.object;
        let covered: Option<Generation> = held.iter().find(|lock| lock.object == object).map(|lock| lock.generation);
        if effect.before == effect.attr.version {
            view.install(&effect.attr, effect.grant, covered);
        } else {
            view.update(&effect, covered, |body| alter(body, change, &effect, effects, &moves));
        }
    }
}

/// What a rename has moved, and what stood in its place. The effects come in an order of their own: the directories, then these.
struct Moves {
    moved: Option<Known>,
    other: Option<Known>,
}

impl Moves {
    fn of(change: &Mutation, effects: List<'_, Effect>) -> Self {
        let Mutation::Rename { from_dir, to_dir, .. } = change else {
            return Self { moved: None, other: None };
        };
        let mut others = effects.iter().filter(|effect| ![*from_dir, *to_dir].contains(&effect.attr.object));
        let mut next = || others.next().filter(|effect| effect.attr.nlink > 0).map(|effect| known(&effect.attr));
        Self { moved: next(), other: next() }
    }
}

/// Makes the body of one object what it is after the change.
fn alter(body: &mut Body, change: &Mutation, effect: &Effect, effects: List<'_, Effect>, moves: &Moves) {
    let object = effect.attr.object;
    match change {
        Mutation::Create { dir, name, .. }
        | Mutation::Mkdir { dir, name, .. }
        | Mutation::MakeLease { dir, name, .. }
        | Mutation::Symlink { dir, name, .. } => {
            if object == *dir {
                put_name(body, name, effects.iter().find(|other| other.attr.object != *dir).map(|other| known(&other.attr)));
            } else if effect.before == 0 {
                *body = newborn(change);
            }
        }
        Mutation::Link { dir, name, object: linked } => {
            if object == *dir {
                put_name(body, name, effects.iter().find(|other| other.attr.object == *linked).map(|other| known(&other.attr)));
            }
        }
        Mutation::Unlink { dir, name, .. } | Mutation::Rmdir { dir, name } => {
            if object == *dir {
                put_name(body, name, Some(Known::Absent));
            }
        }
        Mutation::Rename { from_dir, from_name, to_dir, to_name, rule, .. } => {
            if object == *from_dir {
                put_name(body, from_name, if *rule == RenameRule::Exchange { moves.other } else { Some(Known::Absent) });
            }
            if object == *to_dir {
                put_name(body, to_name, moves.moved);
            }
        }
        Mutation::SetAttr { change, .. } => {
            if let (Body::File(contents), Some(size)) = (body, change.size) {
                contents.truncate(size);
            }
        }
        Mutation::Write { offset, truncate, data, .. } => write(body, *offset, *truncate, data),
        // Extended attributes, quotas and leases are not cached; of a batch nothing is taken in.
        Mutation::SetQuota { .. }
        | Mutation::Attach { .. }
        | Mutation::SetXattr { .. }
        | Mutation::RemoveXattr { .. }
        | Mutation::Batch { .. } => {}
    }
}

const fn known(attr: &Attr) -> Known {
    Known::Object(attr.object, attr.kind)
}

/// What an object is at its birth is known without asking: nothing is in it.
fn newborn(change: &Mutation) -> Body {
    match change {
        Mutation::Mkdir { .. } => Body::Directory(Directory::complete([])),
        Mutation::Symlink { points_to, .. } => Body::Link(Bytes::copy_from_slice(points_to)),
        _ => Body::File(Contents::default()),
    }
}

/// What a name means now; `None`: it changed, but what it means is not known.
fn put_name(body: &mut Body, name: &Bytes, known: Option<Known>) {
    if !matches!(body, Body::Directory(_)) {
        *body = Body::Directory(Directory::default());
    }
    let Body::Directory(directory) = body else { return };
    match known {
        Some(known) => directory.learn(Bytes::copy_from_slice(name), known),
        None => directory.doubt(name),
    }
}

fn write(body: &mut Body, offset: u64, truncate: bool, data: &Bytes) {
    if !matches!(body, Body::File(_)) {
        *body = Body::File(Contents::default());
    }
    let Body::File(contents) = body else { return };
    if truncate {
        contents.truncate(offset + data.len() as u64);
    }
    // A copy: the caller's buffer may be part of a larger one, and the cache's bound counts what it keeps.
    contents.learn(offset, Bytes::copy_from_slice(data));
}

/// The object that a change made or changed, among its effects.
pub(super) fn subject(change: &Mutation, effects: List<'_, Effect>) -> Option<Attr> {
    effects
        .iter()
        .find(|effect| match change {
            Mutation::Create { dir, .. }
            | Mutation::Mkdir { dir, .. }
            | Mutation::MakeLease { dir, .. }
            | Mutation::Symlink { dir, .. } => effect.attr.object != *dir,
            Mutation::Link { object, .. } | Mutation::SetAttr { object, .. } | Mutation::Write { object, .. } => {
                effect.attr.object == *object
            }
            Mutation::SetXattr { object, .. }
            | Mutation::RemoveXattr { object, .. }
            | Mutation::Attach { object, .. }
            | Mutation::SetQuota { root: object, .. } => effect.attr.object == *object,
            Mutation::Unlink { .. } | Mutation::Rmdir { .. } | Mutation::Rename { .. } | Mutation::Batch { .. } => false,
        })
        .map(|effect| effect.attr)
}
