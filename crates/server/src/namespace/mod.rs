//! The namespace: what each operation on files, directories and symbolic links means.
//!
//! Decides: results, with the meaning that POSIX gives them. A mutation is planned (what does it affect?), and the plan is committed at once
//! when its turn is there, or made anew when it comes. Implements `wire-spec.md` sections 6.2 and 11.4.
//! Invariant: an operation has no effect before all that it needs is in memory; until then it is run again from its start. Every
//! change of an object makes its version larger; object ids are never used again.
//! Leaves to others: paths (the agent walks them), cache locks and turns (`locks`), durability (the machine).
//!
//! | file | decides |
//! |---|---|
//! | `plan` | what a mutation is, which objects it affects; the table of `wire-spec.md` section 11.4 |
//! | `draft` | what a mutation is about to change, and what an item of a BATCH sees of those before it |
//! | `names` | CREATE, MKDIR, SYMLINK, LINK, UNLINK, RMDIR, RENAME |
//! | `content` | SETATTR, WRITE, and what a file's blocks hold |
//! | `leases` | MKLEASE, ATTACH |
//! | `realms` | MKREALM, SETQUOTA, LIST_REALMS; how use is counted and bounded |
//! | `xattr` | GETXATTR, LISTXATTR, SETXATTR, REMOVEXATTR |
//! | `read` | LOOKUP, GETATTR, READ, READDIR, a path of an object for people |
//! | `staging` | contents and values of several datagrams |

mod content;
mod draft;
mod leases;
mod names;
mod plan;
mod read;
mod realms;
pub mod staging;
#[cfg(test)]
mod tests;
mod xattr;

pub use draft::Removal;
pub use plan::{Applied, Became, Mutation, MutationCx, Plan, PlanError, carried, staged};
pub use read::{Places, Reading};

use crate::config::NamespaceLimits;
use crate::principals::{Asker, PrincipalId, Rights};
use crate::store::{Counter, ObjectRecord, ReadError, View};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::{NAME_MAX, ROOT};
use cistern_wire::{Attr, Handle, ObjectId, ObjectKind, Realm, Stated, Status, is_name};
use draft::Draft;

/// Runs operations; keeps only its bounds and buffers that are used again.
#[derive(Debug)]
pub struct Namespace {
    limits: NamespaceLimits,
    draft: Draft,
    steps: Vec<Stated>,
    bytes: Vec<u8>,
    /// Whether the store has room for more than what takes something away.
    room: bool,
}

impl Namespace {
    /// A namespace within bounds.
    #[must_use]
    pub fn new(limits: NamespaceLimits) -> Self {
        Self { limits, draft: Draft::default(), steps: Vec::new(), bytes: Vec::new(), room: true }
    }

    /// To be run at start, before any other operation: makes the root directory in a store that is new (in the open batch), and
    /// loads the counters.
    ///
    /// Fails with EIO if the store has counters but no root directory, or the other way round: it is damaged.
    pub fn boot(&mut self, view: &mut View<'_>, wall_ns: i64) -> Result<(), ReadError> {
        boot(view, wall_ns)
    }

    /// The attributes of an object: ESTALE if there is none.
    pub fn attr(&self, view: &View<'_>, object: ObjectId) -> Result<Attr, ReadError> {
        known(view, object).map(|record| record.attr)
    }

    /// A directory in which an object has a name, and the name; `None`: there is no such object.
    pub fn name_of(&self, view: &View<'_>, object: ObjectId) -> Result<Option<(ObjectId, Bytes)>, ReadError> {
        view.object(object).map(|record| record.map(|record| (record.parent, record.name.clone())))
    }

    /// The attributes of an object to which the asker may do something: ESTALE if there is none that it may know of, EACCES.
    #[inline]
    pub fn permitted<'v>(&self, view: &'v View<'_>, object: ObjectId, asker: Asker<'_>, need: Rights) -> Result<&'v Attr, ReadError> {
        permitted(view, object, asker, need).map(|record| &record.attr)
    }

    /// Objects in the namespace, the root directory included.
    #[must_use]
    pub fn objects(&self, view: &View<'_>) -> u64 {
        // The counters are never forgotten once the namespace has booted.
        view.counter(Counter::Objects).unwrap_or(0)
    }
}

fn boot(view: &mut View<'_>, wall_ns: i64) -> Result<(), ReadError> {
    let root = ObjectId(ROOT);
    let counters = join(view.counter(Counter::NextObject), join(view.counter(Counter::Objects), view.counter(Counter::Bytes)));
    let ((next, _), found) = join(counters, view.object(root))?;
    match (next, found.is_some()) {
        (0, false) => {}
        (next, true) if next > ROOT => return Ok(()),
        // Going on would give an object id a second time.
        _ => return Err(ReadError::Failed(Status::EIO)),
    }
    let attr = Attr {
        object: root,
        version: 1,
        kind: ObjectKind::Directory,
        mode: 0o755,
        nlink: 2,
        uid: 0,
        gid: 0,
        size: 0,
        atime_ns: wall_ns,
        mtime_ns: wall_ns,
        ctime_ns: wall_ns,
        owner: Handle(0),
        realm: Realm::TREE,
    };
    view.put_object(ObjectRecord { attr, parent: root, name: Bytes::new(), xattrs: 0, creator: PrincipalId::ANYBODY });
    view.new_directory(root);
    view.set_counter(Counter::NextObject, ROOT + 1);
    view.set_counter(Counter::Objects, 1);
    view.set_counter(Counter::Bytes, 0);
    Ok(())
}

/// Both results, or all that either lacks; an error of the first comes before one of the second.
///
/// What cannot be read comes before what is lacking: it is forgotten with every turn, so of several such values each would be asked for
/// again when the others have failed, for ever.
fn join<A, B>(a: Result<A, ReadError>, b: Result<B, ReadError>) -> Result<(A, B), ReadError> {
    match (a, b) {
        (Ok(a), Ok(b)) => Ok((a, b)),
        (Err(ReadError::Failed(Status::EIO)), _) | (_, Err(ReadError::Failed(Status::EIO))) => Err(ReadError::Failed(Status::EIO)),
        (Err(ReadError::NotCached(mut queries)), Err(ReadError::NotCached(more))) => {
            queries.extend(more);
            Err(ReadError::NotCached(queries))
        }
        (Err(lack), _) | (_, Err(lack)) => Err(lack),
    }
}

/// An object named by its id.
fn known<'v>(view: &'v View<'_>, object: ObjectId) -> Result<&'v ObjectRecord, ReadError> {
    view.object(object)?.ok_or(ReadError::Failed(Status::ESTALE))
}

/// An object named by its id, to which the asker may do something.
#[inline]
fn permitted<'v>(view: &'v View<'_>, object: ObjectId, asker: Asker<'_>, need: Rights) -> Result<&'v ObjectRecord, ReadError> {
    let record = known(view, object)?;
    if !bugs::is(Bug::R4) {
        asker.check(&record.attr, need)?;
    }
    Ok(record)
}

/// An object named by its id, to be read.
#[inline]
fn readable<'v>(view: &'v View<'_>, object: ObjectId, asker: Asker<'_>) -> Result<&'v ObjectRecord, ReadError> {
    permitted(view, object, asker, Rights::READ)
}

/// A directory named by its id, to be read.
fn directory<'v>(view: &'v View<'_>, dir: ObjectId, asker: Asker<'_>) -> Result<&'v ObjectRecord, ReadError> {
    let record = readable(view, dir, asker)?;
    if record.attr.kind == ObjectKind::Directory { Ok(record) } else { Err(ReadError::Failed(Status::ENOTDIR)) }
}

/// An object that an entry names: it must be there.
fn entered<'v>(view: &'v View<'_>, object: ObjectId) -> Result<&'v ObjectRecord, ReadError> {
    view.object(object)?.ok_or(ReadError::Failed(Status::EIO))
}

/// The permission bits that there are.
pub const MODE_BITS: u16 = 0o7777;

fn check_mode(mode: u16) -> Result<(), Status> {
    if mode & !MODE_BITS == 0 { Ok(()) } else { Err(Status::EINVAL) }
}

/// Whether a name can be an entry of a directory.
///
/// # Errors
/// ENAMETOOLONG or EINVAL, as an operation with it fails.
pub fn check_name(name: &[u8]) -> Result<(), Status> {
    if name.len() > NAME_MAX {
        return Err(Status::ENAMETOOLONG);
    }
    if is_name(name) { Ok(()) } else { Err(Status::EINVAL) }
}
