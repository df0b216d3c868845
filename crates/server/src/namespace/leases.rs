//! MKLEASE and ATTACH.
//!
//! Decides what can be a named lease, and what can go with one. Implements `wire-spec.md` section 11.11.
//! Invariant: what goes with a lease, its own file among it, names the lease as its owner, and has one name.
//! Leaves to others: the secret, and whether the lease has ended (the machine, which has the table).

use super::draft::{Birth, Draft};
use super::plan::Frame;
use crate::principals::Rights;
use crate::store::{LeaseRecord, ReadError, View};
use cistern_wire::limits::{LEASE_TTL_MAX_MS, LEASE_TTL_MIN_MS};
use cistern_wire::{Attach, Handle, MakeLease, ObjectId, ObjectKind, Status};

impl Draft {
    pub(super) fn make_lease(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &MakeLease<'_>) -> Result<ObjectId, ReadError> {
        super::check_mode(m.mode)?;
        if !(LEASE_TTL_MIN_MS..=LEASE_TTL_MAX_MS).contains(&m.ttl_ms) {
            return Err(Status::EINVAL.into());
        }
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, frame, dir, m.name.0)?;
        self.change_entries(at, frame.wall_ns, 1, 0);
        let realm = self.touched[at].record.attr.realm;
        let birth = Birth { kind: ObjectKind::File, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 1, size: 0, owner: Handle(0), realm };
        let lease = self.make(view, dir, m.name.0, &birth, frame)?;
        let at = self.show(view, lease)?;
        self.touched[at].record.attr.owner = lease.as_owner();
        self.leases.push((lease, LeaseRecord { ttl_ms: m.ttl_ms, verifier: m.verifier, creator: frame.asker.who() }));
        Ok(lease)
    }

    pub(super) fn attach(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &Attach<'_>) -> Result<ObjectId, ReadError> {
        let (object, lease) = (self.named(m.object)?, self.named(m.lease)?);
        if !self.known(view, frame, lease)?.is_lease() {
            return Err(Status::EINVAL.into());
        }
        let attr = self.known(view, frame, object)?;
        if attr.kind == ObjectKind::Directory {
            return Err(Status::EISDIR.into());
        }
        let at = self.show(view, object)?;
        if attr.owner == lease.as_owner() {
            return Ok(object);
        }
        // The server takes its one name away; a second one would keep it.
        if attr.is_ephemeral() || attr.nlink > 1 {
            return Err(Status::EPERM.into());
        }
        //= wire-spec.md#11-11-named-leases
        //# ATTACH of an object on which another session has an advisory lock MUST fail with EBUSY, unless the principal owns the object's realm.
        // Whoever ends the lease takes its name away.
        self.loses_name(at, frame.asker.rights(attr.realm).has(Rights::OWN));
        self.change(at, frame.wall_ns).owner = lease.as_owner();
        self.attached.push((object, lease));
        Ok(object)
    }

    /// The lease that an object goes with by what is drafted.
    pub(super) fn lease_of(&self, object: ObjectId) -> Option<ObjectId> {
        let made = self.leases.iter().map(|(lease, _)| (*lease, *lease));
        made.chain(self.attached.iter().copied()).find(|(attached, _)| *attached == object).map(|(_, lease)| lease)
    }
}
