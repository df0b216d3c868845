//! Joining, as the machine does it: invites made and withdrawn by an operator, and keys that come with one.
//!
//! Decides that a key is registered and the invite spent in one batch, so that a crash leaves both or none; that a key which is known is not
//! registered again; and that a revoked one stays revoked, whatever it comes with.
//! Invariant: who joined is told so when it is durable.
//! Leaves to others: whether the key has the invite's secret (the handshake that was opened with it), the rules of invites (`invites`).

use crate::invites::{InviteId, InviteRecord, InviteUse, Judgement, USES_MAX, WITHIN_MAX_S, names};
use crate::principals::{GRANTS_MAX, PrincipalId, Rights, check_name};
use crate::server::Server;
use crate::server::warnings::Reason;
use crate::store::{BatchId, Counter, Key};
use alloc::vec::Vec;
use bytes::Bytes;
use cistern_link::Instant;
use cistern_link::bugs::{self, Bug};
use cistern_wire::limits::LABEL_MAX;
use cistern_wire::{AgentId, Realm, Status};
use core::fmt;
use core::net::IpAddr;
use log::{info, warn};
use zeroize::Zeroizing;

/// For how long the line of a rotation is good, in seconds: its host uses it at once.
const ROTATION_S: u64 = 600;
/// For how long a principal's former key is good, in seconds: a day, in which programs that keep a key for their life are started anew.
pub(crate) const FORMER_KEY_S: u64 = 24 * 3_600;
/// Digits that a name may get behind it, with a dash.
const NUMBER_LEN: usize = 4;

/// An invite that an operator makes.
#[derive(Clone)]
pub struct NewInvite {
    /// Its id, drawn at random.
    pub id: InviteId,
    /// Its secret, from the system's random source.
    pub secret: Zeroizing<[u8; 16]>,
    /// What people will call the host.
    pub name: Vec<u8>,
    /// Whether the host may do what operators do.
    pub operator: bool,
    /// What it may do, by realm.
    pub rights: Vec<(Realm, Rights)>,
    /// How many keys it admits.
    pub uses: u16,
    /// For how long it is good, in seconds.
    pub within_s: u64,
}

impl fmt::Debug for NewInvite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewInvite").field("id", &self.id).finish_non_exhaustive()
    }
}

/// A key that has joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Joined {
    /// What it is.
    pub principal: PrincipalId,
    /// It may be told when this batch is durable.
    pub batch: BatchId,
}

/// Why a key does not join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotJoined {
    /// The invite expired, was withdrawn, or never was.
    Unknown,
    /// All its uses are spent; another key had the last one:
    Spent {
        /// when, in seconds since 1970,
        at_s: u64,
        /// and from where.
        from: IpAddr,
    },
    /// The key was revoked.
    Revoked,
    /// The name that it would get is another's, or there are too many principals.
    Refused(Status),
}

impl Server {
    /// Makes an invite. Gives when it expires, in seconds since 1970, and the batch with which it is durable.
    ///
    /// # Errors
    /// EINVAL: a name, number of uses or time that no invite has; EEXIST: the name is taken; ENOENT: there is no such realm; EDQUOT: rights in too
    /// many realms; ENOSPC: there are too many invites, or the id is taken.
    pub fn invite(&mut self, now: Instant, new: NewInvite) -> Result<(u64, BatchId), Status> {
        self.step(now, |server| {
            server.tend_invites();
            let NewInvite { id, secret, name, operator, rights, uses, within_s } = new;
            check_name(&name)?;
            let long = uses > 1 && name.len() + NUMBER_LEN > LABEL_MAX;
            if long || !(1..=USES_MAX).contains(&uses) || !(1..=WITHIN_MAX_S).contains(&within_s) {
                return Err(Status::EINVAL);
            }
            if uses == 1 && server.principals.named(&name).is_some() {
                return Err(Status::EEXIST);
            }
            if rights.len() > GRANTS_MAX {
                return Err(Status::EDQUOT);
            }
            if rights.iter().any(|(realm, _)| *realm != Realm::TREE && server.store.realm_around(*realm).is_none()) {
                return Err(Status::ENOENT);
            }
            if !server.invites.has_room_for(id) {
                return Err(Status::ENOSPC);
            }
            let expires_s = server.clock_s() + within_s;
            info!("{}: invite {id} for \"{}\": {uses} uses within {within_s} s", server.who, name.escape_ascii());
            let record = InviteRecord { secret, name: name.into(), operator, rights, uses, expires_s, rotates: None, used: Vec::new() };
            server.write_invite(id, record);
            server.tend_invites();
            Ok((expires_s, server.store.open_batch()))
        })
    }

    /// Withdraws the invites of a name. Gives how many there were, and the batch with which that is durable.
    ///
    /// # Errors
    /// ENOENT: there is none.
    pub fn withdraw_invites(&mut self, now: Instant, name: &[u8]) -> Result<(usize, BatchId), Status> {
        self.step(now, |server| {
            let withdrawn = server.invites.withdraw(|invite| *invite.name == *name);
            if withdrawn.is_empty() {
                return Err(Status::ENOENT);
            }
            server.delete_invites(&withdrawn);
            Ok((withdrawn.len(), server.store.open_batch()))
        })
    }

    /// Makes an invite that admits the next key of a principal, in place of an earlier one. Gives the batch with which it is durable.
    ///
    /// # Errors
    /// ENOENT: there is no such principal, or it was revoked; ENOSPC: there are too many invites, or the id is taken.
    pub fn invite_next_key(
        &mut self,
        now: Instant,
        who: PrincipalId,
        id: InviteId,
        secret: Zeroizing<[u8; 16]>,
    ) -> Result<BatchId, Status> {
        self.step(now, |server| {
            server.tend_invites();
            let name = server.principals.get(who).filter(|record| !record.revoked).ok_or(Status::ENOENT)?.name.clone();
            let before = server.invites.withdraw(|invite| invite.rotates == Some(who));
            server.delete_invites(&before);
            if !server.invites.has_room_for(id) {
                return Err(Status::ENOSPC);
            }
            let (rights, expires_s, used) = (Vec::new(), server.clock_s() + ROTATION_S, Vec::new());
            let record = InviteRecord { secret, name, operator: false, rights, uses: 1, expires_s, rotates: Some(who), used };
            server.write_invite(id, record);
            Ok(server.store.open_batch())
        })
    }

    /// Ends the time for which a principal's former key is good. Gives the batch with which that is durable.
    pub fn retire_former_key(&mut self, now: Instant, who: PrincipalId) -> BatchId {
        self.step(now, |server| match server.principals.retire(who).map(|record| record.to_bytes()) {
            Some(bytes) => {
                info!("{}: the former key of principal {} is good no more", server.who, who.0);
                server.write_principal(who, bytes)
            }
            None => server.newest_batch(),
        })
    }

    /// The invites that are good.
    pub fn invites(&self) -> impl Iterator<Item = (InviteId, &InviteRecord)> {
        self.invites.iter()
    }

    /// Registers a key that came with an invite, from an address, in a session that was opened with the invite's secret.
    ///
    /// # Errors
    /// [`NotJoined`]: it is not registered, and nothing is spent.
    pub(crate) fn join_key(&mut self, id: InviteId, key: [u8; 32], from: IpAddr) -> Result<Joined, NotJoined> {
        self.good_invite(id);
        //= docs/sealed.md#joining-rosters
        //# The same key MUST be answered alike again until the invite expires; another key MUST NOT be registered beyond the uses of the
        //# invite.
        if let Some(known) = self.registered(&key) {
            let rotates = self.invites.get(id).and_then(|invite| invite.rotates);
            let of_another = known.is_ok_and(|joined| rotates.is_some_and(|who| who != joined.principal));
            return if of_another { Err(NotJoined::Refused(Status::EEXIST)) } else { known };
        }
        match self.invites.judge(id, &key) {
            Judgement::Admit => self.spend(id, key, from).map_err(NotJoined::Refused),
            Judgement::Spent { at_s, from: first } => {
                let stranger = AgentId(key.first_chunk().copied().unwrap_or_default());
                if self.warnings.admit(self.now, Reason::SpentInvite, stranger) {
                    warn!("{}: invite {id} came again, from {from}; it was used from {first} at {at_s} by another key", self.who);
                }
                Err(NotJoined::Spent { at_s, from: first })
            }
            // A principal is never forgotten, and a key that it had only with its invite, so the key would have been known.
            Judgement::Again(_) | Judgement::Unknown => Err(NotJoined::Unknown),
        }
    }

    /// An invite that has not expired: one look-up, for whoever knows the server's key may ask.
    pub(crate) fn good_invite(&mut self, id: InviteId) -> Option<&InviteRecord> {
        let clock = self.clock_s();
        if self.invites.get(id)?.expires_s <= clock {
            self.tend_invites();
        }
        self.invites.get(id)
    }

    /// Registers a key by an operator's word, or finds it registered.
    ///
    /// # Errors
    /// EINVAL: no name; EEXIST: the name is taken; EACCES: the key was revoked; ENOSPC: there are too many.
    pub fn admit_key(
        &mut self,
        now: Instant,
        name: &[u8],
        key: [u8; 32],
        operator: bool,
        rights: &[(Realm, Rights)],
    ) -> Result<Joined, Status> {
        self.step(now, |server| match server.registered(&key) {
            Some(Ok(joined)) => Ok(joined),
            Some(Err(_)) => Err(Status::EACCES),
            None => {
                let principal = server.register(name, key, operator, rights)?;
                info!("{}: principal {} is \"{}\"", server.who, principal.0, name.escape_ascii());
                Ok(Joined { principal, batch: server.store.open_batch() })
            }
        })
    }

    /// Whether a principal that was not revoked has this key, or had it.
    #[must_use]
    pub fn knows_key(&self, key: &[u8; 32]) -> bool {
        self.principals.of_key(key).and_then(|who| self.principals.get(who)).is_some_and(|record| !record.revoked)
    }

    /// A key that is known already.
    fn registered(&mut self, key: &[u8; 32]) -> Option<Result<Joined, NotJoined>> {
        let principal = self.principals.of_key(key)?;
        let now_s = self.clock_s();
        // A key that was followed by another one and is good no more is as good as revoked.
        //= docs/sealed.md#joining-rosters
        //# A revoked key MUST NOT be registered again.
        let revoked = self.principals.get(principal).is_none_or(|record| record.revoked || !record.takes(key, now_s));
        // Whatever has registered it is in the newest batch or before.
        Some(if revoked { Err(NotJoined::Revoked) } else { Ok(Joined { principal, batch: self.newest_batch() }) })
    }

    fn register(&mut self, name: &[u8], key: [u8; 32], operator: bool, rights: &[(Realm, Rights)]) -> Result<PrincipalId, Status> {
        let (principal, _) = self.principals.add(name, Some(key), operator)?;
        for (realm, rights) in rights {
            let Self { principals, store, .. } = self;
            // A realm that has gone since is one in which there is nothing to do.
            let _ = principals.grant(principal, *realm, *rights, |realm| store.realm_around(realm));
        }
        if let Some(bytes) = self.principals.get(principal).filter(|_| !bugs::is(Bug::K1)).map(|record| record.to_bytes()) {
            self.write_principal(principal, bytes);
        }
        Ok(principal)
    }

    fn spend(&mut self, id: InviteId, key: [u8; 32], from: IpAddr) -> Result<Joined, Status> {
        let mut invite = self.invites.get(id).ok_or(Status::ENOENT)?.clone();
        if let Some(who) = invite.rotates {
            let (at_s, until_s) = (self.clock_s(), self.clock_s() + FORMER_KEY_S);
            let bytes = self.principals.rotate(who, key, until_s)?.to_bytes();
            self.write_principal(who, bytes);
            self.invites.need_clock(until_s);
            info!("{}: principal {} has another key, by invite {id} from {from}", self.who, who.0);
            invite.used.push(InviteUse { key, principal: who, at_s, from });
            self.write_invite(id, invite);
            return Ok(Joined { principal: who, batch: self.store.open_batch() });
        }
        let name = names(&invite).find(|name| self.principals.named(name.as_bytes()).is_none()).ok_or(Status::EEXIST)?;
        //= docs/sealed.md#joining-rosters
        //# A server MUST register the key and spend the invite in one transaction, and answer when it is durable.
        let principal = self.register(name.as_bytes(), key, invite.operator, &invite.rights)?;
        info!("{}: principal {} is \"{name}\", by invite {id} from {from}", self.who, principal.0);
        invite.used.push(InviteUse { key, principal, at_s: self.clock_s(), from });
        self.write_invite(id, invite);
        Ok(Joined { principal, batch: self.store.open_batch() })
    }

    /// Forgets invites that have expired, and keeps the time by which they do.
    pub(crate) fn tend_invites(&mut self) {
        let clock = self.clock_s();
        let expired = self.invites.expire(clock);
        self.delete_invites(&expired);
        if self.is_serving()
            && let Some(clock) = self.invites.to_write(clock)
        {
            self.store.set_counter(Counter::Clock, clock);
        }
    }

    /// The time by which invites and former keys expire, in seconds since 1970.
    pub(crate) fn clock_s(&mut self) -> u64 {
        self.invites.clock(self.now, self.wall.seconds(self.now))
    }

    fn write_invite(&mut self, id: InviteId, record: InviteRecord) {
        let bytes = self.invites.put(id, record).to_bytes();
        self.store.put(Key::Invite(id), Some(Bytes::from_owner(bytes)));
    }

    pub(crate) fn delete_invites(&mut self, ids: &[InviteId]) {
        for id in ids {
            info!("{}: invite {id} is over", self.who);
            self.store.put(Key::Invite(*id), None);
        }
    }

    /// The newest batch that has, or may have, writes.
    pub(crate) fn newest_batch(&self) -> BatchId {
        self.store.open_batch() - BatchId::from(!self.store.has_writes())
    }
}
