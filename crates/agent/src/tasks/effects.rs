//! What a mutation of the agent's own makes of the cache, when its outcome is known.
//!
//! Decides: how each kind of mutation changes names, contents and link targets, so that the agent need not read again what it
//! has just written. Place in the walk: called with CHANGED, before the objects affected are answered from cache again.
//! Implements `wire-spec.md` sections 11.4 and 11.5. Invariant: only what CHANGED implies by itself is learned where the cache did not have
//! the state before; everything relative is applied to exactly that state and to no other.
//! Leaves to others: versions, locks (`cache`), the command's own result (`change`, `put`).

use super::request::Mutation;
use crate::cache::{Body, Contents, Directory, Known, View};
use bytes::Bytes;
use cistern_wire::{Attr, Effect, Generation, Held, List, RenameRule};

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
        Mutation::Create { dir, name, .. } | Mutation::Mkdir { dir, name, .. } | Mutation::Symlink { dir, name, .. } => {
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
        // Extended attributes are not cached; of a batch nothing is taken in.
        Mutation::SetXattr { .. } | Mutation::RemoveXattr { .. } | Mutation::Batch { .. } => {}
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
            Mutation::Create { dir, .. } | Mutation::Mkdir { dir, .. } | Mutation::Symlink { dir, .. } => effect.attr.object != *dir,
            Mutation::Link { object, .. } | Mutation::SetAttr { object, .. } | Mutation::Write { object, .. } => {
                effect.attr.object == *object
            }
            Mutation::SetXattr { object, .. } | Mutation::RemoveXattr { object, .. } => effect.attr.object == *object,
            Mutation::Unlink { .. } | Mutation::Rmdir { .. } | Mutation::Rename { .. } | Mutation::Batch { .. } => false,
        })
        .map(|effect| effect.attr)
}
