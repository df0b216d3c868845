//! Mutations on the wire: as a request of their own, or as items of a batch.
//!
//! Decides: how each is encoded, how long it becomes, and which of the bytes that it brings are staged when it becomes too long. Place in
//! the walk: called by `request` for each sending, by `carry` before the first. Implements `wire-spec.md` sections 5.4 and 6.2.
//! Invariant: a change encodes to the same message each time, but for the locks and versions named in its terms.
//! Leaves to others: which objects it affects (`request`).

use super::request::Mutation;
use crate::api::{AttrChange, Ownership};
use crate::cache::Cache;
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_wire::limits::HELD_MAX;
use cistern_wire::{Ask, Batch, Bytes8, Bytes16, Field as _, Held, Item, List, Message, ObjectId, SetMask, Terms};

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
            Self::Mkdir { dir, name, owner: Ownership { mode, uid, gid } } => {
                Item::Mkdir(cistern_wire::Mkdir { ask, dir: *dir, name: Bytes8(name), mode: *mode, uid: *uid, gid: *gid, terms })
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
