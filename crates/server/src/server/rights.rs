//! Rights, as the machine keeps them: principals added, renamed and revoked by an operator, rights given and withdrawn, and what that ends.
//!
//! Decides who may give rights, and what follows when they are withdrawn: from then on nothing is executed by them, for each execution checks
//! (`principals`); in that realm waits that they no longer allow end, watches end with the next change, cache locks are demanded, and advisory
//! locks stay until they are given back or their session is evicted. A revoked principal's sessions end by D, without a way back, when that is
//! durable. What is to end is looked for in slices, one in a turn, however many sessions and locks there are; whoever has withdrawn pays for that.
//! Invariants: whoever is told that something was granted or withdrawn is told when it is durable. A withdrawal ends nothing in another realm, and
//! nothing that the rights that are left allow.
//! Leaves to others: the table (`principals`), which principal a session has (who opens it).

use crate::ids::Owner;
use crate::locks::{Row, Rows};
use crate::presence::Change;
use crate::principals::{OWNERS_GRANTS_MAX, OWNERS_NEAR_MAX, PrincipalId, Rights};
use crate::requests::{Blocked, Call};
use crate::scheduler::prices;
use crate::server::Server;
use crate::server::durability::OnDurable;
use crate::server::execute::Stop;
use crate::sessions::SessionKey;
use crate::sessions::standing::{Cause, Standing};
use crate::store::{BatchId, Key, PrincipalRecord, ReadError, Seen};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::{Keep, Mode, ObjectId, Realm, SessionId, Status};
use log::{info, warn};

/// Most rows of LIST_LOCKS that are looked at for one that may be seen.
const LOOKED_AT_MAX: usize = 4_096;

/// What was withdrawn from a principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Withdrawn {
    /// Some of its rights in a realm.
    Rights(Realm),
    /// Its key.
    Key,
}

/// The withdrawals that have not ended yet all that they end, each with the owner on whose account that is. One pass through all sessions and all
/// locks serves all that were made before it began; what was opened and granted after that was by the rights that are left.
#[derive(Debug, Default)]
pub(crate) struct Withdrawals {
    of: BTreeMap<(PrincipalId, Withdrawn), Owner>,
    /// The places that are looked at next.
    session: usize,
    hold: u32,
    /// Those that were made since.
    next: BTreeMap<(PrincipalId, Withdrawn), Owner>,
}

impl Withdrawals {
    /// Whether there is more to look through.
    pub(crate) fn is_left(&self) -> bool {
        !self.of.is_empty() || !self.next.is_empty()
    }

    /// Whether the pass is to end something of a principal by its rights.
    fn concerns(&self, who: PrincipalId) -> bool {
        self.of.range((who, Withdrawn::Rights(Realm(0)))..(who, Withdrawn::Key)).next().is_some()
    }
}

/// What an operator changes. Each takes effect at once, and may be told of when the batch that it gives is durable.
impl Server {
    /// Takes a principal in, without rights.
    ///
    /// # Errors
    /// EINVAL: no name; EEXIST: the name or the key is taken; ENOSPC: there are too many.
    pub fn add_principal(
        &mut self,
        now: Instant,
        name: &[u8],
        key: Option<[u8; 32]>,
        operator: bool,
    ) -> Result<(PrincipalId, BatchId), Status> {
        self.step(now, |server| {
            let (id, record) = server.principals.add(name, key, operator)?;
            let bytes = record.to_bytes();
            info!("{}: principal {} is \"{}\"", server.who, id.0, name.escape_ascii());
            Ok((id, server.write_principal(id, bytes)))
        })
    }

    /// Gives a principal another name.
    ///
    /// # Errors
    /// ENOENT: there is none; EINVAL, EEXIST: as [`Self::add_principal`].
    pub fn rename_principal(&mut self, now: Instant, who: PrincipalId, name: &[u8]) -> Result<BatchId, Status> {
        self.step(now, |server| {
            let bytes = server.principals.rename(who, name)?.to_bytes();
            Ok(server.write_principal(who, bytes))
        })
    }

    /// Sets what a principal may do in a realm; none: nothing more.
    ///
    /// # Errors
    /// ENOENT: there is no such principal, or no such realm; EDQUOT: it has rights in too many realms.
    pub fn grant(&mut self, now: Instant, who: PrincipalId, realm: Realm, rights: Rights) -> Result<BatchId, Status> {
        self.step(now, |server| server.give(Owner::Server, who, realm, rights))
    }

    /// As [`Self::grant`], by a principal that is no operator.
    ///
    /// # Errors
    /// EPERM: [`Self::may_grant`] says no. As [`Self::grant`]; there are too many realms for one whom an owner gives rights sooner.
    pub fn grant_by(&mut self, now: Instant, by: PrincipalId, who: PrincipalId, realm: Realm, rights: Rights) -> Result<BatchId, Status> {
        self.step(now, |server| {
            if !server.may_grant(by, Some(who), realm, rights) {
                return Err(Status::EPERM);
            }
            let asker = server.principals.asker(who);
            //= wire-spec.md#11-9-realms-and-rights
            //# An owner MUST NOT be the cause that a principal has rights in more than half as many realms as it may.
            let more = asker.given(realm).is_empty() && !rights.is_empty();
            let parent = |realm| server.store.realm_around(realm);
            let near = |other| outermost(other, parent) == outermost(realm, parent);
            let is_full =
                asker.realms(|of| of == Realm::TREE || parent(of).is_some()) >= OWNERS_GRANTS_MAX || asker.realms(near) >= OWNERS_NEAR_MAX;
            if more && is_full {
                return Err(Status::EDQUOT);
            }
            server.give(Owner::Key(by), who, realm, rights)
        })
    }

    /// Whether a principal that is no operator may set what another one (`None`: one that there is not), or it itself, may do in a realm.
    #[must_use]
    pub fn may_grant(&self, by: PrincipalId, who: Option<PrincipalId>, realm: Realm, rights: Rights) -> bool {
        let asker = self.principals.asker(by);
        //= wire-spec.md#11-9-realms-and-rights
        //# Who is no operator MUST NOT change what a principal may do in a realm, unless it owns that realm, or gives up rights of its own.
        let has = asker.given(realm);
        asker.rights(realm).has(Rights::OWN) || who == Some(by) && !has.is_empty() && has.has(rights)
    }

    fn give(&mut self, by: Owner, who: PrincipalId, realm: Realm, rights: Rights) -> Result<BatchId, Status> {
        let before = self.principals.asker(who).given(realm);
        let exists = realm == Realm::TREE || self.store.realm_around(realm).is_some();
        if before == rights && !before.is_empty() && exists {
            return Ok(self.newest_batch());
        }
        let Self { principals, store, .. } = self;
        let (record, lost) = principals.grant(who, realm, rights, |realm| store.realm_around(realm))?;
        let bytes = record.to_bytes();
        // From two places, so that owners hide none of an operator's behind many of theirs.
        match by {
            Owner::Key(by) => info!("{}: principal {} has \"{rights}\" in realm {realm}, by principal {}", self.who, who.0, by.0),
            _ => info!("{}: principal {} has \"{rights}\" in realm {realm}", self.who, who.0),
        }
        let left = self.principals.asker(who).rights(realm);
        if left.has(Rights::LOCK) {
            self.locks.allow_waits(who, realm);
        }
        if !lost.is_empty() {
            self.forbid_waits(who, realm);
            self.withdrawn(who, Withdrawn::Rights(realm), by);
        }
        Ok(self.write_principal(who, bytes))
    }

    /// Sets how much of what a principal makes there may be: objects and bytes; 0: no bound, `None`: as it is.
    ///
    /// # Errors
    /// ENOENT: there is none; EIO: what it has cannot be read.
    pub fn limit(&mut self, now: Instant, who: PrincipalId, objects: Option<u64>, bytes: Option<u64>) -> Result<BatchId, Status> {
        self.step(now, |server| {
            server.principals.get(who).filter(|record| !record.revoked).ok_or(Status::ENOENT)?;
            let seen = Seen::default();
            let mut view = server.store.view(&seen);
            let mut account = view.account(who).map_err(|_| Status::EIO)?;
            account.objects_max = objects.unwrap_or(account.objects_max);
            account.bytes_max = bytes.unwrap_or(account.bytes_max);
            view.put_account(who, account);
            Ok(server.store.open_batch())
        })
    }

    /// Withdraws a principal's key for ever. Its sessions end by D, without rescue; gives when they are, at the latest, after that.
    ///
    /// # Errors
    /// ENOENT: there is none, or it was revoked before.
    pub fn revoke(&mut self, now: Instant, who: PrincipalId) -> Result<BatchId, Status> {
        self.step(now, |server| {
            let rights = server.principals.get(who).map(|record| record.rights.clone()).unwrap_or_default();
            let bytes = server.principals.revoke(who)?.to_bytes();
            rights.into_iter().for_each(|(realm, _)| server.forbid_waits(who, realm));
            let batch = server.write_principal(who, bytes);
            warn!("{}: principal {} is revoked", server.who, who.0);
            // What it was offered is nothing. In clear, where nobody has a key, its agents are offered others, in which they may do nothing.
            server.half_open.forget(who);
            server.offers.retain(|_, offer| offer.opening.principal != who);
            server.after_commit(batch, OnDurable::Revoked(who));
            Ok(batch)
        })
    }

    /// Keys that are revoked whatever the store says: a copy of it may be older. To be told before the first turn.
    pub fn know_revoked(&mut self, now: Instant, keys: impl IntoIterator<Item = [u8; 32]>) {
        self.step(now, |server| server.revoked_elsewhere.extend(keys));
    }

    /// All revoked keys: of each principal that was revoked, all that it had.
    pub fn revoked_keys(&self) -> impl Iterator<Item = [u8; 32]> {
        self.principals.iter().filter(|(_, record)| record.revoked).flat_map(|(_, record)| record.keys())
    }

    /// At the start, when all principals are known: with the batch of the start itself, so that nobody is served before.
    pub(crate) fn unite_revoked(&mut self) {
        for key in core::mem::take(&mut self.revoked_elsewhere) {
            if let Some((who, record)) = self.principals.revoke_key(key) {
                let bytes = record.to_bytes();
                warn!("{}: principal {} was revoked after the copy was made from which this store comes", self.who, who.0);
                self.write_principal(who, bytes);
            }
        }
    }

    /// The record of a principal.
    #[must_use]
    pub fn principal(&self, who: PrincipalId) -> Option<&PrincipalRecord> {
        self.principals.get(who)
    }

    /// The principal of this name that was not revoked.
    #[must_use]
    pub fn principal_named(&self, name: &[u8]) -> Option<PrincipalId> {
        self.principals.named(name)
    }

    /// Up to which batch all is durable.
    #[must_use]
    pub const fn durable_up_to(&self) -> BatchId {
        self.store.durable_up_to()
    }

    pub(crate) fn write_principal(&mut self, id: PrincipalId, bytes: Vec<u8>) -> BatchId {
        self.store.put(Key::Principal(id), Some(bytes.into()));
        self.store.open_batch()
    }

    /// A principal has begun a realm, in the open batch: it may do everything there.
    pub(crate) fn own_realm(&mut self, who: PrincipalId, realm: Realm) {
        let Self { principals, store, .. } = self;
        if let Ok((record, _)) = principals.grant(who, realm, Rights::ALL, |realm| store.realm_around(realm)) {
            let bytes = record.to_bytes();
            self.write_principal(who, bytes);
        }
    }
}

/// The realm in that of the tree in which another one is; none: that of the tree itself.
fn outermost(realm: Realm, parent: impl Fn(Realm) -> Option<Realm>) -> Option<Realm> {
    let way = core::iter::successors(Some(realm), |realm| parent(*realm));
    way.take_while(|realm| *realm != Realm::TREE).last()
}

/// What ends with rights.
impl Server {
    /// Nothing that a principal waits for in a realm is granted any more, if it may not lock there.
    fn forbid_waits(&mut self, who: PrincipalId, realm: Realm) {
        let left = self.principals.asker(who).rights(realm);
        if !left.has(Rights::LOCK) {
            //= wire-spec.md#11-9-realms-and-rights
            //# An object in a realm in which a principal has no right MUST be answered for as if there were no such object.
            let hidden = left.without(Rights::PASS).is_empty();
            self.locks.forbid_waits(who, realm, if hidden { Status::ESTALE } else { Status::EACCES });
        }
    }

    /// Rights of a principal were withdrawn, or its key, which is durable: what that ends is looked for, in the next turns. Whoever begins a pass
    /// pays for all of it.
    pub(crate) fn withdrawn(&mut self, who: PrincipalId, what: Withdrawn, by: Owner) {
        if self.withdrawals.next.is_empty() {
            let places = self.sessions.places() + self.locks.hold_places() as usize;
            self.scheduler.charge(self.scheduler.of_owner(by).0, prices::places(places));
        }
        self.withdrawals.next.insert((who, what), by);
    }

    /// Looks through a slice of the sessions, then of the locks, for what ends with rights.
    pub(crate) fn end_withdrawn(&mut self) {
        let mut left = self.config.freed_per_turn as usize;
        if !self.withdrawals.is_left() {
            return;
        }
        if self.withdrawals.of.is_empty() {
            self.withdrawals = Withdrawals { of: core::mem::take(&mut self.withdrawals.next), ..Withdrawals::default() };
        }
        while left > 0 && self.withdrawals.session < self.sessions.places() {
            let key = self.sessions.at(self.withdrawals.session);
            self.withdrawals.session += 1;
            left = left.saturating_sub(1 + key.map_or(0, |key| self.end_withdrawn_of(key)));
        }
        if left == 0 {
            return;
        }
        //= wire-spec.md#11-9-realms-and-rights
        //# When rights in a realm are withdrawn the server MUST demand the cache locks there that they allowed, and end the waits for advisory
        //# locks there that they allowed.
        let Self { locks, principals, withdrawals, scheduler, now, .. } = self;
        let of = |who, realm, mode| {
            let by = *withdrawals.of.get(&(who, Withdrawn::Rights(realm))).filter(|_| !bugs::is(Bug::R9))?;
            let has = principals.asker(who).rights(realm);
            match mode {
                _ if !has.has(Rights::READ) => Some((Keep::Nothing, by)),
                Mode::Exclusive if !has.has(Rights::WRITE) => Some((Keep::Shared, by)),
                _ => None,
            }
        };
        let (next, asked) = locks.demand_cached(*now, withdrawals.hold, left, of);
        asked.into_iter().for_each(|(by, count)| scheduler.charge(scheduler.of_owner(by).0, prices::demands(count)));
        match next {
            Some(next) => withdrawals.hold = next,
            None => self.all_withdrawn(),
        }
    }

    /// The pass has ended all that it was to end.
    fn all_withdrawn(&mut self) {
        for (who, what) in core::mem::take(&mut self.withdrawals.of).into_keys() {
            match what {
                Withdrawn::Rights(_) if self.withdrawals.next.contains_key(&(who, what)) => {}
                // One that was revoked since waits for nothing, until its sessions end.
                Withdrawn::Rights(_) if self.principals.get(who).is_none_or(|record| record.revoked) => {}
                Withdrawn::Rights(realm) => self.locks.allow_waits(who, realm),
                // Its sessions are granted nothing more, and it has no new ones.
                Withdrawn::Key => self.locks.forget_waits(who),
            }
        }
    }

    /// Ends what a session has no right to any more; how many waits were looked at for that.
    fn end_withdrawn_of(&mut self, key: SessionKey) -> usize {
        let Some(session) = self.sessions.get(key) else { return 0 };
        let (who, slot, standing) = (session.principal, session.slot, session.standing());
        if self.withdrawals.of.contains_key(&(who, Withdrawn::Key)) {
            if matches!(standing, Standing::Good | Standing::TimingOut { .. }) {
                //= wire-spec.md#11-8-security
                //# The sessions of a key that is withdrawn MUST end by D.
                //= wire-spec.md#11-3-failure-and-ending
                //# Eviction by an operator MUST be D, without rescue, and MUST NOT free anything before T.
                if bugs::is(Bug::S11) {
                    self.over(key, Cause::Evicted);
                } else {
                    self.fail(key, Cause::Evicted);
                }
            }
        } else if self.withdrawals.concerns(who) {
            let waits = self.locks.waits(slot);
            self.locks.end_forbidden(self.now, slot);
            return waits;
        }
        0
    }

    /// An object has changed: who may not read it any more watches it no more.
    pub(crate) fn end_watches(&mut self, change: Change) {
        let over: Vec<SessionId> = self.watches.watchers(change.object).filter(|id| !self.may_hear(*id, change)).collect();
        for session in over {
            self.watches.remove(session, change.object);
        }
    }

    /// Whether a session may be told of a change. That an object is gone is told to all whom it concerns.
    pub(crate) fn may_hear(&self, session: SessionId, change: Change) -> bool {
        let found = self.sessions.find(session).and_then(|key| self.sessions.get(key));
        found.is_none_or(|session| self.principals.asker(session.principal).rights(change.realm).has(Rights::READ))
            || change.gone && self.watches.is_concerned(session, change.object)
    }

    /// Rows of LIST_LOCKS that the asker may see, and whether there are no more: others are left out.
    pub(crate) fn visible_rows(
        &mut self,
        call: Call,
        object: Option<ObjectId>,
        mut after: (ObjectId, u32),
        most: usize,
        seen: &Seen,
    ) -> Result<(Vec<Row>, bool), Stop> {
        let asker = self.principals.asker(call.who);
        let view = self.store.view(seen);
        let mut looked_at = 0;
        loop {
            let Rows { list: mut rows, end, passed } = self.locks.rows(object, after, most);
            self.scheduler.charge(call.flow, prices::rows(passed + rows.len()));
            if asker.is_anybody() || bugs::is(Bug::R7) {
                return Ok((rows, end));
            }
            looked_at += rows.len();
            let mut missing = Vec::new();
            let last = rows.last().map(|row| row.lock.object);
            let next = last.map(|last| (last, rows.iter().filter(|row| row.lock.object == last).count()));
            //= wire-spec.md#11-9-realms-and-rights
            //# LIST_LOCKS MUST leave out the locks of objects that the principal may not read.
            rows.retain(|row| match self.namespace.permitted(&view, row.lock.object, asker, Rights::READ) {
                Ok(_) => true,
                Err(ReadError::NotCached(queries)) => {
                    missing.extend(queries);
                    true
                }
                Err(ReadError::Failed(_)) => false,
            });
            if !missing.is_empty() {
                return Err(Blocked::Load(missing).into());
            }
            match next {
                Some((last, count)) if rows.is_empty() && !end => {
                    if looked_at >= LOOKED_AT_MAX {
                        return Err(Status::E2BIG.into());
                    }
                    let count = u32::try_from(count).unwrap_or(u32::MAX);
                    after = (last, if last == after.0 { after.1 + count } else { count });
                }
                _ => return Ok((rows, end)),
            }
        }
    }
}
