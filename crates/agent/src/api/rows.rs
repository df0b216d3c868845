//! Rows of what is listed: locks, realms and named leases, as a user sees them.

use bytes::Bytes;
use cistern_wire::{Generation, Handle, LockClass, Mode, ObjectId, Realm, RowState, Standing};

/// A holder or waiter of an advisory lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockInfo {
    /// The object.
    pub object: ObjectId,
    /// A path of it, as far as the server told; empty where none was asked for.
    pub place: Bytes,
    /// What about it is locked.
    pub class: LockClass,
    /// Holds or waits.
    pub state: RowState,
    /// The mode.
    pub mode: Mode,
    /// The grant, for a holder.
    pub generation: Generation,
    /// The agent's label.
    pub label: Bytes,
    /// The handle of the agent's session: the same for all that it holds and waits for.
    pub handle: Handle,
    /// Since when, in milliseconds before the answer.
    pub since_ms: u64,
    /// Its session's standing.
    pub standing: Standing,
    /// When it ends at the latest if the agent is gone, in milliseconds; 0: not known.
    pub bound_ms: u64,
}

/// A realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealmInfo {
    /// Its number.
    pub realm: Realm,
    /// The realm around it; 0: none.
    pub parent: Realm,
    /// The directory that begins it.
    pub root: ObjectId,
    /// A path of that, as far as the server told.
    pub place: Bytes,
    /// Objects in it and in the realms within it.
    pub objects: u64,
    /// Most objects; 0: no quota.
    pub objects_max: u64,
    /// Bytes in it and in the realms within it.
    pub bytes: u64,
    /// Most bytes; 0: no quota.
    pub bytes_max: u64,
}

/// A file of a named lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseInfo {
    /// The file.
    pub object: ObjectId,
    /// A path of it, as far as the server told.
    pub place: Bytes,
    /// The lease: the number of its own file.
    pub lease: ObjectId,
    /// The lease's time to live, in milliseconds.
    pub ttl_ms: u32,
    /// What was left of it when the server answered, by its clock.
    pub left_ms: u32,
    /// How many files go with the lease, its own among them.
    pub files: u32,
}
