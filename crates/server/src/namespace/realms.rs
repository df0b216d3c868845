//! MKREALM, SETQUOTA, LIST_REALMS, and the use of realms.
//!
//! Decides what belongs to which realm, and when a quota stands in the way. A directory begins a realm; what is made below belongs to its
//! directory's. Implements `wire-spec.md` section 11.9.
//! Invariants: an object's realm and a realm's parent never change; a realm's use is that of its own objects and of the realms within it,
//! written by the batch that changes it. The tree's realm has no record: its use are the store's counters. A realm goes with its directory,
//! which is empty then.

use super::Namespace;
use super::draft::{Birth, Draft, Fate};
use super::plan::{Frame, PlanError};
use crate::principals::{Asker, PrincipalId, Rights};
use crate::store::{Counter, ObjectRecord, ReadError, RealmRecord, View, XattrRecord};
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::{REALM_DEPTH_MAX, ROOT};
use cistern_wire::{
    Bytes16, Field as _, Handle, Limit, Limited, List, ListRealms, MakeRealm, ObjectId, ObjectKind, Realm, RealmRow, RealmRows, Reply,
    SetQuota, Status, Whose, Writer,
};

/// What a REALM_ROWS has besides its rows.
const ROWS_AROUND: usize = Reply::KIND_LEN + RealmRows::MIN_LEN;

/// More of something, or less.
#[derive(Clone, Copy, Debug, Default)]
struct Delta {
    objects: i64,
    bytes: i64,
}

impl Delta {
    const fn count(self, objects: &mut u64, bytes: &mut u64) {
        *objects = objects.saturating_add_signed(self.objects);
        *bytes = bytes.saturating_add_signed(self.bytes);
    }
}

/// What LIMITED names in place of a realm if the quota is that of the principal which made the object.
const OF_PRINCIPAL: Realm = Realm(0);

/// In whose use an object counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payer {
    Realm(Realm),
    Principal(PrincipalId),
}

impl Payer {
    /// Of the tree's realm the counters tell; who needs no key has no account.
    fn is_nobody(self) -> bool {
        self == Self::Realm(Realm::TREE) || self == Self::Principal(PrincipalId::ANYBODY)
    }
}

/// Whether what will be used is within a quota, or is no more than what was.
fn within(realm: Realm, limit: Limit, used: u64, after: u64, bound: u64) -> Result<(), PlanError> {
    //= wire-spec.md#11-9-realms-and-rights
    //# A mutation that would leave a realm with more than before and more than a quota of it MUST fail with LIMITED.
    let whose = if realm == OF_PRINCIPAL { Whose::Principal } else { Whose::Realm };
    let exceeds = bound > 0 && after > bound && after > used;
    //= wire-spec.md#11-9-realms-and-rights
    //# So MUST one that would leave a principal with more objects or bytes than before, of those that it made, and more than its quota.
    if exceeds && !bugs::is(Bug::R2) { Err(PlanError::Limited(Limited { limit, whose, realm, used, bound, retry_ms: 0 })) } else { Ok(()) }
}

impl Draft {
    pub(super) fn make_realm(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &MakeRealm<'_>) -> Result<ObjectId, ReadError> {
        super::check_mode(m.mode)?;
        let dir = self.named(m.dir)?;
        let at = self.free_name(view, frame, dir, m.name.0)?;
        self.check_links(frame, at)?;
        let parent = self.touched[at].record.attr.realm;
        frame.asker.check(&self.touched[at].record.attr, Rights::OWN)?;
        let made = self.realms_made().count();
        if !frame.asker.may_begin(made, |realm| view.realm(realm).is_ok()) {
            return Err(Status::ENOSPC.into());
        }
        if view.realm_count() + made >= frame.limits.realms_max {
            return Err(Status::ENOSPC.into());
        }
        if self.depth(view, parent)? >= REALM_DEPTH_MAX {
            return Err(Status::EMLINK.into());
        }
        let realm = u64::from(Realm::TREE.0 + 1).max(view.counter(Counter::NextRealm)?) + made as u64;
        let realm = u32::try_from(realm).map(Realm).map_err(|_| Status::ENOSPC)?;
        self.change_entries(at, frame.wall_ns, 1, 1);
        let birth = Birth { kind: ObjectKind::Directory, mode: m.mode, uid: m.uid, gid: m.gid, nlink: 2, size: 0, owner: Handle(0), realm };
        let root = self.make(view, dir, m.name.0, &birth, frame)?;
        self.realms.push((realm, Some(RealmRecord { parent, root, objects: 0, bytes: 0, objects_max: 0, bytes_max: 0 })));
        Ok(root)
    }

    pub(super) fn set_quota(&mut self, view: &View<'_>, frame: &Frame<'_>, m: &SetQuota<'_>) -> Result<ObjectId, ReadError> {
        let root = self.named(m.root)?;
        // Whether it may look or not: an operator gives the room, and what is in it is not its affair.
        if !frame.asker.is_operator() {
            return Err(Status::EPERM.into());
        }
        let attr = self.object(view, root)?.ok_or(Status::ESTALE)?.attr;
        let realm = attr.realm;
        // The tree's own is the server's: settings bound it.
        if realm == Realm::TREE || self.realm(view, realm)?.root != root {
            // Who may not read there is told no more than of what does not exist.
            frame.asker.check(&attr, Rights::READ)?;
            return Err(Status::EINVAL.into());
        }
        let at = self.show(view, root)?;
        if m.objects.is_none() && m.bytes.is_none() {
            return Ok(root);
        }
        self.change(at, frame.wall_ns);
        let record = self.realm_mut(view, realm)?;
        record.objects_max = m.objects.unwrap_or(record.objects_max);
        record.bytes_max = m.bytes.unwrap_or(record.bytes_max);
        Ok(root)
    }

    fn is_made(&self, object: ObjectId) -> bool {
        self.own(object).is_some_and(|own| own.before == 0)
    }

    /// How many realms there are from this one up to the tree's.
    fn depth(&self, view: &View<'_>, realm: Realm) -> Result<usize, ReadError> {
        let (mut at, mut depth) = (realm, 1);
        while at != Realm::TREE {
            at = self.realm(view, at)?.parent;
            depth += 1;
        }
        Ok(depth)
    }

    /// A realm under what is drafted.
    fn realm(&self, view: &View<'_>, realm: Realm) -> Result<RealmRecord, ReadError> {
        match self.realms.iter().find(|drafted| drafted.0 == realm) {
            Some((_, Some(record))) => Ok(*record),
            _ => view.realm(realm).copied(),
        }
    }

    /// A realm that changes.
    fn realm_mut(&mut self, view: &View<'_>, realm: Realm) -> Result<&mut RealmRecord, ReadError> {
        let at = match self.realms.iter().position(|drafted| drafted.0 == realm) {
            Some(at) => at,
            None => {
                self.realms.push((realm, Some(*view.realm(realm)?)));
                self.realms.len() - 1
            }
        };
        self.realms[at].1.as_mut().ok_or(ReadError::Failed(Status::EIO))
    }

    /// Completes the realms and accounts that change: their use after it, within their quotas. A realm goes with its directory.
    pub(super) fn count_uses(&mut self, view: &View<'_>) -> Result<(), PlanError> {
        //= wire-spec.md#11-9-realms-and-rights
        //# The use of a realm MUST change by the transaction that changes what it counts, with that of every realm around it.
        for (payer, change) in self.changes() {
            match payer {
                Payer::Principal(who) => {
                    let mut record = view.account(who)?;
                    change.count(&mut record.objects, &mut record.bytes);
                    self.accounts.push((who, record));
                }
                Payer::Realm(own) => {
                    let mut at = own;
                    while at != Realm::TREE {
                        let record = self.realm_mut(view, at)?;
                        change.count(&mut record.objects, &mut record.bytes);
                        at = if bugs::is(Bug::R3) { Realm::TREE } else { record.parent };
                    }
                }
            }
        }
        self.check_quotas(view)?;
        for (_, record) in &mut self.realms {
            let gone = |root| self.touched.iter().any(|own| own.record.attr.object == root && matches!(own.fate, Fate::Gone | Fate::Never));
            *record = record.filter(|record| !gone(record.root));
        }
        Ok(())
    }

    /// How much more or less each has.
    fn changes(&self) -> Vec<(Payer, Delta)> {
        let mut all: Vec<(Payer, Delta)> = Vec::new();
        let mut add = |record: &ObjectRecord, objects: i64, bytes: i64| {
            for payer in [Payer::Realm(record.attr.realm), Payer::Principal(record.creator)] {
                if payer.is_nobody() || objects == 0 && bytes == 0 {
                    continue;
                }
                let at = all.iter().position(|known| known.0 == payer).unwrap_or_else(|| {
                    all.push((payer, Delta::default()));
                    all.len() - 1
                });
                all[at].1.objects += objects;
                all[at].1.bytes += bytes;
            }
        };
        for touched in &self.touched {
            let objects = match touched.fate {
                Fate::Made => 1,
                Fate::Gone => -1,
                Fate::Shown | Fate::Changed | Fate::Never => 0,
            };
            add(&touched.record, objects, 0);
        }
        let more = |after: u64, before: u64| i64::try_from(after).unwrap_or(i64::MAX) - i64::try_from(before).unwrap_or(i64::MAX);
        let contents = self.contents.iter().map(|filling| (filling.object, filling.content.sizes()));
        let xattrs = self.xattrs.iter().map(|x| (x.object, (x.before, x.record.as_ref().map_or(0, XattrRecord::values_len))));
        for (object, (before, after)) in contents.chain(xattrs) {
            self.own(object).into_iter().for_each(|own| add(&own.record, 0, more(after, before)));
        }
        all
    }

    /// Whether nobody uses more than before and more than it may.
    fn check_quotas(&self, view: &View<'_>) -> Result<(), PlanError> {
        for (realm, record) in &self.realms {
            let Some(after) = record else { continue };
            let before = if self.is_made(after.root) { (0, 0) } else { view.realm(*realm).map(|before| (before.objects, before.bytes))? };
            within(*realm, Limit::Objects, before.0, after.objects, after.objects_max)?;
            within(*realm, Limit::Bytes, before.1, after.bytes, after.bytes_max)?;
        }
        for (who, after) in &self.accounts {
            let before = view.account(*who)?;
            within(OF_PRINCIPAL, Limit::Objects, before.objects, after.objects, after.objects_max)?;
            within(OF_PRINCIPAL, Limit::Bytes, before.bytes, after.bytes, after.bytes_max)?;
        }
        Ok(())
    }

    /// The realms that are made.
    pub(super) fn realms_made(&self) -> impl Iterator<Item = Realm> {
        let made = self.realms.iter().filter(|(_, record)| record.is_some_and(|record| self.is_made(record.root)));
        made.map(|(realm, _)| *realm)
    }

    /// The number above those of all realms that are made.
    pub(super) fn next_realm(&self) -> Option<u64> {
        self.realms_made().map(|realm| u64::from(realm.0) + 1).max()
    }
}

impl Namespace {
    /// Executes LIST_REALMS: appends its encoded reply to `out`, at most `room` bytes of it. Who `gives_up` takes for unreadable what is not
    /// in memory.
    pub fn list_realms(
        &self,
        view: &View<'_>,
        m: &ListRealms,
        asker: Asker<'_>,
        (room, gives_up): (usize, bool),
        out: &mut Writer,
    ) -> Result<(), ReadError> {
        let tree = RealmRecord {
            parent: Realm(0),
            root: ObjectId(ROOT),
            objects: view.counter(Counter::Objects)?,
            bytes: view.counter(Counter::Bytes)?,
            objects_max: self.limits.objects_max,
            bytes_max: self.limits.bytes_max,
        };
        let all = asker.is_operator();
        let seen = |realm: Realm| all || asker.rights(realm).has(Rights::READ) || asker.rights(realm).has(Rights::OWN);
        let wanted = |realm: Realm| if m.realm.0 == 0 { realm > m.after } else { realm == m.realm };
        let mut left = room.checked_sub(ROWS_AROUND).ok_or(Status::EINVAL)?;
        let most = left / RealmRow::MIN_LEN + 1;
        let after = if m.realm.0 == 0 { m.after } else { Realm(m.realm.0 - 1) };
        let tree = wanted(Realm::TREE).then_some((Realm::TREE, &tree));
        let listed = tree.into_iter().chain(view.realms(after).take_while(|(realm, _)| wanted(*realm)));
        let listed: Vec<_> = listed.filter(|(realm, _)| seen(*realm)).take(most).collect();
        let places = self.places_of(view, listed.iter().map(|(_, record)| record.root), gives_up)?;
        let rows = listed.iter().zip(&places).map(|((realm, record), place)| row(*realm, record, place));
        let mut fits = |row: &RealmRow<'_>| {
            let rest = left.checked_sub(RealmRow::MIN_LEN + row.place.0.len());
            left = rest.unwrap_or(0);
            rest.is_some()
        };
        let shown: Vec<_> = rows.take_while(&mut fits).collect();
        let end = shown.len() == listed.len() && listed.len() < most;
        if m.realm.0 != 0 && shown.is_empty() {
            return Err(Status::ESTALE.into());
        }
        Reply::RealmRows(RealmRows { end, rows: List::of(&shown) }).put(out);
        Ok(())
    }
}

const fn row<'p>(realm: Realm, record: &RealmRecord, place: &'p [u8]) -> RealmRow<'p> {
    let RealmRecord { parent, root, objects, bytes, objects_max, bytes_max } = *record;
    RealmRow { realm, parent, root, objects, objects_max, bytes, bytes_max, place: Bytes16(place) }
}
