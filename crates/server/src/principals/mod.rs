//! Who may do what: principals, and the one look-up by which every operation is checked.
//!
//! Decides what a principal may do in a realm, and how what it may not do looks to it. Implements `wire-spec.md` section 11.9.
//! Invariants: a right in a realm implies [`Rights::PASS`] in all realms around it, worked out when rights are given, so that a check is one
//! look-up and never a walk. What was looked up last is kept with the rights that it was looked up in, and goes with them. What is hidden looks
//! as what is absent does. Nobody is special by a user id; [`PrincipalId::ANYBODY`] has no record, and may do everything: the sessions without
//! a key are its own, if no setting says whose they are.
//! Leaves to others: which operation needs what (`namespace`, `execute`), what ends when rights are withdrawn (the machine), keys.

#[cfg(test)]
mod tests;

pub use crate::ids::{PrincipalId, Rights};

use crate::store::{EarlierKeys, PrincipalRecord};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::LABEL_MAX;
use cistern_wire::{Attr, ObjectKind, Realm, Status, Want};
use core::cell::Cell;
use hashbrown::HashMap;

/// Most realms in which a principal has rights.
pub const GRANTS_MAX: usize = 64;
/// An owner of a realm gives rights there to nobody who has rights in so many others: the other half is kept for operators, and for the realms
/// that a principal begins itself.
pub const OWNERS_GRANTS_MAX: usize = GRANTS_MAX / 2;
/// Of these, most within one realm that begins in that of the tree: whoever owns that one leaves room to other owners.
pub const OWNERS_NEAR_MAX: usize = OWNERS_GRANTS_MAX / 4;
/// Most principals, those whose keys were withdrawn included.
pub const PRINCIPALS_MAX: usize = 100_000;

/// A principal and what follows from its record.
#[derive(Debug)]
struct Principal {
    record: PrincipalRecord,
    /// Its rights with those that follow from them, by realm.
    rights: Vec<(Realm, Rights)>,
    /// What was looked up last.
    last: Cell<(Realm, Rights)>,
    /// When it was heard last, in seconds since 1970, to the minute; 0: not since the start, or nobody wants to know.
    seen_s: Cell<u64>,
}

impl Principal {
    fn look_up(&self, realm: Realm) -> Rights {
        self.rights.binary_search_by_key(&realm, |(of, _)| *of).map_or(Rights::NONE, |at| self.rights[at].1)
    }

    #[inline]
    fn rights(&self, realm: Realm) -> Rights {
        let (mut of, mut rights) = self.last.get();
        if of != realm {
            (of, rights) = (realm, self.look_up(realm));
            self.last.set((of, rights));
        }
        rights
    }
}

/// All principals.
#[derive(Debug, Default)]
pub struct Principals {
    known: BTreeMap<PrincipalId, Principal>,
    /// By their keys, also those that were withdrawn.
    keys: HashMap<[u8; 32], PrincipalId>,
    /// By name those that were not revoked.
    names: BTreeMap<Box<[u8]>, PrincipalId>,
}

/// Who asks for one operation, with its rights of this instant.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    who: PrincipalId,
    known: Option<&'a Principal>,
}

impl<'a> Asker<'a> {
    /// Who it is.
    #[must_use]
    pub const fn who(self) -> PrincipalId {
        self.who
    }

    /// Whether it may do everything everywhere, so that nothing has to be looked up.
    #[must_use]
    pub fn is_anybody(self) -> bool {
        self.who == PrincipalId::ANYBODY
    }

    /// What it may do in a realm.
    #[inline]
    #[must_use]
    pub fn rights(self, realm: Realm) -> Rights {
        //= wire-spec.md#11-9-realms-and-rights
        //# The server MUST check the rights of a request each time that it executes it.
        match self.known {
            Some(known) => known.rights(realm),
            None if self.is_anybody() => Rights::ALL,
            None => Rights::NONE,
        }
    }

    /// Whether it may do something to an object.
    ///
    /// # Errors
    /// ESTALE, as if there were no such object, or EACCES, if it may know that there is.
    #[inline]
    pub fn check(self, attr: &Attr, need: Rights) -> Result<(), Status> {
        let has = self.rights(attr.realm);
        if has.has(need) { Ok(()) } else { Err(refusal(has, attr)) }
    }

    /// Whether a walk may begin at an object, or pass through it.
    ///
    /// # Errors
    /// As [`Self::check`].
    #[inline]
    pub fn check_way(self, attr: &Attr) -> Result<(), Status> {
        let has = self.rights(attr.realm);
        let passes = attr.kind == ObjectKind::Directory && has.has(Rights::PASS);
        if passes || has.has(Rights::READ) { Ok(()) } else { Err(refusal(has, attr)) }
    }

    /// The cache lock that it may have of those that it wants: none on what it may not read, none to change by what it may not write.
    #[inline]
    #[must_use]
    pub fn wanted(self, attr: &Attr, want: Want) -> Want {
        if want == Want::Nothing {
            return want;
        }
        let has = self.rights(attr.realm);
        match want {
            _ if !has.has(Rights::READ) => Want::Nothing,
            Want::Exclusive if !has.has(Rights::WRITE) => Want::Shared,
            want => want,
        }
    }

    /// Whether it is an operator.
    #[must_use]
    pub fn is_operator(self) -> bool {
        self.is_anybody() || self.known.is_some_and(|known| known.record.operator)
    }

    /// Whether it may do something in any realm at all.
    #[must_use]
    pub fn may_somewhere(self, need: Rights) -> bool {
        let of = |known: &Principal| known.rights.iter().any(|(_, rights)| rights.has(need));
        self.is_anybody() || self.known.is_some_and(of)
    }

    /// Whether a realm may be made by it besides so many that are made already: it is to have rights in each.
    #[must_use]
    pub fn may_begin(self, made: usize, exists: impl Fn(Realm) -> bool) -> bool {
        self.is_anybody() || self.realms(|of| of == Realm::TREE || exists(of)) + made < GRANTS_MAX
    }

    /// In how many realms it has rights, of those that count: never those that are gone, which go with the next grant.
    #[must_use]
    pub fn realms(self, counts: impl Fn(Realm) -> bool) -> usize {
        let given = self.known.map_or(&[][..], |known| &known.record.rights);
        given.iter().filter(|(of, _)| counts(*of)).count()
    }

    /// What it was given in a realm, without what follows from that.
    #[must_use]
    pub fn given(self, realm: Realm) -> Rights {
        let given = self.known.map_or(&[][..], |known| &known.record.rights);
        given.iter().find(|(of, _)| *of == realm).map_or(Rights::NONE, |(_, rights)| *rights)
    }
}

/// What is said to who may not do something.
#[cold]
fn refusal(has: Rights, attr: &Attr) -> Status {
    //= wire-spec.md#11-9-realms-and-rights
    //# An object in a realm in which a principal has no right MUST be answered for as if there were no such object.
    let hidden = has == Rights::NONE || has == Rights::PASS && attr.kind != ObjectKind::Directory;
    if hidden { Status::ESTALE } else { Status::EACCES }
}

impl Principals {
    /// Those that the store had at the start. `parent`: the realm around one, if there is such a realm.
    pub fn load(&mut self, records: Vec<(PrincipalId, PrincipalRecord)>, parent: impl Fn(Realm) -> Option<Realm>) {
        for (id, record) in records {
            self.put(id, record, &parent);
        }
    }

    fn put(&mut self, id: PrincipalId, record: PrincipalRecord, parent: impl Fn(Realm) -> Option<Realm>) {
        let rights = with_passes(&record.rights, parent);
        // Realm 0 is none, so nothing was looked up yet.
        let last = self.known.get(&id).filter(|_| bugs::is(Bug::R5)).map(|before| before.last.clone()).unwrap_or_default();
        self.keys.extend(record.keys().map(|key| (key, id)));
        let seen_s = self.known.get(&id).map(|before| before.seen_s.clone()).unwrap_or_default();
        self.unname(id);
        if !record.revoked {
            self.names.insert(record.name.clone(), id);
        }
        self.known.insert(id, Principal { record, rights, last, seen_s });
    }

    /// The name of one is free, if it has one.
    fn unname(&mut self, id: PrincipalId) {
        if let Some(before) = self.known.get(&id).filter(|before| !before.record.revoked) {
            self.names.remove(&before.record.name);
        }
    }

    /// Who asks, if it is this one.
    #[inline]
    #[must_use]
    pub fn asker(&self, who: PrincipalId) -> Asker<'_> {
        let known = if who == PrincipalId::ANYBODY { None } else { self.known.get(&who) };
        Asker { who, known }
    }

    /// All of them, in the order in which they were added.
    pub fn iter(&self) -> impl Iterator<Item = (PrincipalId, &PrincipalRecord)> {
        self.known.iter().map(|(id, known)| (*id, &known.record))
    }

    /// The record of one.
    #[must_use]
    pub fn get(&self, who: PrincipalId) -> Option<&PrincipalRecord> {
        self.known.get(&who).map(|known| &known.record)
    }

    /// One was heard at this time, in seconds since 1970.
    pub fn saw(&self, who: PrincipalId, now_s: u64) {
        if let Some(known) = self.known.get(&who) {
            known.seen_s.set(now_s / 60 * 60);
        }
    }

    /// When one was heard last, in seconds since 1970, to the minute; 0: [`Self::saw`] was never called for it.
    #[must_use]
    pub fn seen_s(&self, who: PrincipalId) -> u64 {
        self.known.get(&who).map_or(0, |known| known.seen_s.get())
    }

    /// The one that has this key, or had it.
    #[must_use]
    pub fn of_key(&self, key: &[u8; 32]) -> Option<PrincipalId> {
        self.keys.get(key).copied()
    }

    /// The one that has this name and was not revoked.
    #[must_use]
    pub fn named(&self, name: &[u8]) -> Option<PrincipalId> {
        self.names.get(name).copied()
    }

    /// A new one, without rights; its record is to be written.
    ///
    /// # Errors
    /// EINVAL: no name; EEXIST: the name or the key is taken, also by one that was revoked (its key); ENOSPC: there are too many.
    pub fn add(&mut self, name: &[u8], key: Option<[u8; 32]>, operator: bool) -> Result<(PrincipalId, &PrincipalRecord), Status> {
        check_name(name)?;
        //= docs/sealed.md#joining-rosters
        //# The first key MUST NOT be registered for another principal.
        let taken = key.is_some_and(|key| self.keys.contains_key(&key));
        if taken || self.named(name).is_some() {
            return Err(Status::EEXIST);
        }
        if self.known.len() >= PRINCIPALS_MAX {
            return Err(Status::ENOSPC);
        }
        let id = self.put_new(PrincipalRecord { name: name.into(), key, rotated: None, operator, revoked: false, rights: Vec::new() });
        self.get(id).map(|record| (id, record)).ok_or(Status::EIO)
    }

    fn put_new(&mut self, record: PrincipalRecord) -> PrincipalId {
        let id = PrincipalId(self.known.last_key_value().map_or(PrincipalId::ANYBODY, |(last, _)| *last).0 + 1);
        self.put(id, record, |_| None);
        id
    }

    /// Gives one another name.
    ///
    /// # Errors
    /// ENOENT: there is none; EINVAL, EEXIST: as [`Self::add`].
    pub fn rename(&mut self, who: PrincipalId, name: &[u8]) -> Result<&PrincipalRecord, Status> {
        check_name(name)?;
        if self.named(name).is_some_and(|other| other != who) {
            return Err(Status::EEXIST);
        }
        self.known.get(&who).filter(|known| !known.record.revoked).ok_or(Status::ENOENT)?;
        self.unname(who);
        self.names.insert(name.into(), who);
        let record = &mut self.known.get_mut(&who).ok_or(Status::EIO)?.record;
        record.name = name.into();
        Ok(record)
    }

    /// Sets what one may do in a realm; gives its record, and what it lost by that.
    ///
    /// # Errors
    /// ENOENT: there is no such principal, or no such realm; EDQUOT: it has rights in too many realms.
    pub fn grant(
        &mut self,
        who: PrincipalId,
        realm: Realm,
        rights: Rights,
        parent: impl Fn(Realm) -> Option<Realm>,
    ) -> Result<(&PrincipalRecord, Rights), Status> {
        let known = self.known.get(&who).filter(|known| !known.record.revoked).ok_or(Status::ENOENT)?;
        if realm != Realm::TREE && parent(realm).is_none() {
            return Err(Status::ENOENT);
        }
        let mut record = known.record.clone();
        // Rights in realms that are gone are of nothing: no number is given again.
        record.rights.retain(|(of, _)| *of != realm && (*of == Realm::TREE || parent(*of).is_some()));
        if !rights.is_empty() {
            let at = record.rights.partition_point(|(of, _)| *of < realm);
            record.rights.insert(at, (realm, rights.without(Rights::PASS)));
        }
        if record.rights.len() > GRANTS_MAX {
            return Err(Status::EDQUOT);
        }
        let lost = known.look_up(realm).without(rights.with(Rights::PASS));
        self.put(who, record, parent);
        self.get(who).map(|record| (record, lost)).ok_or(Status::EIO)
    }

    /// Gives one another key; that of before is good until a time in seconds since 1970, and the one before that no more. The keys are known for ever
    /// as its own, but for those between its first and its former one.
    ///
    /// # Errors
    /// ENOENT: there is none, or it has no key; EEXIST: the key is known.
    pub fn rotate(&mut self, who: PrincipalId, key: [u8; 32], until_s: u64) -> Result<&PrincipalRecord, Status> {
        if self.keys.contains_key(&key) {
            return Err(Status::EEXIST);
        }
        let record = &mut self.known.get_mut(&who).filter(|known| !known.record.revoked).ok_or(Status::ENOENT)?.record;
        let (former, first) = record.key.zip(record.identity()).ok_or(Status::ENOENT)?;
        //= docs/sealed.md#joining-rosters
        //# The first key MUST NOT be registered for another principal.
        if let Some(oldest) = record.rotated.map(|rotated| rotated.former).filter(|oldest| *oldest != first) {
            self.keys.remove(&oldest);
        }
        record.rotated = Some(EarlierKeys { first, former, until_s });
        record.key = Some(key);
        self.keys.insert(key, who);
        Ok(record)
    }

    /// Ends what is left of the time of one's former key; gives the record if that changes it.
    pub fn retire(&mut self, who: PrincipalId) -> Option<&PrincipalRecord> {
        let record = &mut self.known.get_mut(&who)?.record;
        record.rotated.as_mut().filter(|rotated| rotated.until_s != 0)?.until_s = 0;
        Some(record)
    }

    /// A key that was withdrawn elsewhere, of whomever; gives its record if that is news.
    pub fn revoke_key(&mut self, key: [u8; 32]) -> Option<(PrincipalId, &PrincipalRecord)> {
        let who = match self.of_key(&key) {
            Some(who) => who,
            None => {
                let (name, key, rights) = ([].into(), Some(key), Vec::new());
                self.put_new(PrincipalRecord { name, key, rotated: None, operator: false, revoked: false, rights })
            }
        };
        self.revoke(who).ok().map(|record| (who, record))
    }

    /// Withdraws its keys for ever, and all its rights.
    ///
    /// # Errors
    /// ENOENT: there is none, or it was revoked before.
    pub fn revoke(&mut self, who: PrincipalId) -> Result<&PrincipalRecord, Status> {
        let mut record = self.known.get(&who).filter(|known| !known.record.revoked).ok_or(Status::ENOENT)?.record.clone();
        record.revoked = true;
        record.operator = false;
        record.rights.clear();
        self.put(who, record, |_| None);
        self.get(who).ok_or(Status::EIO)
    }
}

pub(crate) fn check_name(name: &[u8]) -> Result<(), Status> {
    let printable = core::str::from_utf8(name).is_ok_and(|name| !name.chars().any(char::is_control));
    if printable && !name.is_empty() && name.len() <= LABEL_MAX { Ok(()) } else { Err(Status::EINVAL) }
}

/// Rights with those that follow from them: who may do anything in a realm may pass through those around it.
fn with_passes(rights: &[(Realm, Rights)], parent: impl Fn(Realm) -> Option<Realm>) -> Vec<(Realm, Rights)> {
    let mut all: BTreeMap<Realm, Rights> = BTreeMap::new();
    for (realm, rights) in rights {
        let own = all.entry(*realm).or_default();
        *own = own.with(*rights).with(Rights::PASS);
        let mut at = *realm;
        while let Some(around) = parent(at) {
            let passed = all.entry(around).or_default();
            if passed.has(Rights::PASS) {
                break;
            }
            *passed = passed.with(Rights::PASS);
            at = around;
        }
    }
    all.into_iter().collect()
}
