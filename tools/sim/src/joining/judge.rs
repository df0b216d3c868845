//! What must hold of invites, keys and what hosts are told (I31).

use super::plan::InvitedPlan;
use crate::disk::Disk;
use crate::observe::Violation;
use cistern_agent::{JoinRefused, Membership};
use cistern_server::invites::InviteId;
use cistern_server::principals::{PrincipalId, Rights};
use cistern_server::store::{Batch, InviteRecord, Key, PrincipalRecord};
use cistern_wire::{JoinOutcome, Realm};
use std::collections::{BTreeMap, BTreeSet};

/// A public key.
pub(super) type HostKey = [u8; 32];

/// The judge of a run.
#[derive(Debug, Default)]
pub(super) struct InvitedJudge {
    /// What each key was told to be, and by which invite.
    told: BTreeMap<HostKey, (usize, u32)>,
    /// The keys that have ever stood together in an invite's record.
    used: BTreeMap<InviteId, Vec<BTreeSet<HostKey>>>,
}

fn violated<T>(check: &'static str, what: String) -> Result<T, Violation> {
    Err(Violation { invariant: "I31", check, what })
}

/// The id of an invite.
pub(super) fn id_of(invite: usize) -> InviteId {
    InviteId(7 + invite as u64)
}

/// What whoever comes with an invite may do.
pub(super) fn rights() -> Vec<(Realm, Rights)> {
    vec![(Realm::TREE, Rights::READ.with(Rights::LOCK))]
}

fn keys_in(record: &InviteRecord) -> BTreeSet<HostKey> {
    record.used.iter().map(|before| before.key).collect()
}

fn hex(key: &HostKey) -> String {
    key[..4].iter().map(|byte| format!("{byte:02x}")).collect()
}

impl InvitedJudge {
    /// The server has something written.
    pub(super) fn persists(&mut self, batch: &Batch) {
        for (key, value) in &batch.writes {
            if let (Key::Invite(id), Some(value)) = (key, value)
                && let Ok(record) = InviteRecord::from_bytes(value)
            {
                self.used.entry(*id).or_default().push(keys_in(&record));
            }
        }
    }

    /// What is durable now has changed, or a crash has left it.
    pub(super) fn durable(&self, plan: &InvitedPlan, disk: &Disk) -> Result<(), Violation> {
        let mut registered = BTreeMap::new();
        let mut used = BTreeMap::new();
        for (key, value) in disk.durable_values() {
            match key {
                Key::Principal(who) => {
                    let record = PrincipalRecord::from_bytes(value).map_err(|e| unreadable(key, &e))?;
                    if let Some(of) = record.key
                        && let Some(other) = registered.insert(of, *who)
                    {
                        return violated("registered-twice", format!("key {} is principal {} and {}", hex(&of), other.0, who.0));
                    }
                }
                Key::Invite(id) => {
                    let record = InviteRecord::from_bytes(value).map_err(|e| unreadable(key, &e))?;
                    used.extend(record.used.iter().map(|before| (before.key, (*id, before.principal))));
                    let uses = plan.uses.iter().enumerate().find(|(invite, _)| id_of(*invite) == *id).map_or(0, |(_, uses)| *uses);
                    if keys_in(&record).len() > usize::from(uses) {
                        return violated(
                            "beyond-uses",
                            format!("invite {id} has {uses} uses, and has admitted {} keys", record.used.len()),
                        );
                    }
                }
                _ => {}
            }
        }
        for (key, (id, who)) in &used {
            if registered.get(key) != Some(who) {
                return violated("spent-for-nobody", format!("invite {id} was used by key {}, which is not principal {}", hex(key), who.0));
            }
        }
        match registered.keys().find(|key| !used.contains_key(*key)) {
            Some(key) => violated("registered-for-nothing", format!("key {} is registered, and no invite was used for it", hex(key))),
            None => Ok(()),
        }
    }

    /// A host is told that it has joined.
    pub(super) fn joined(&mut self, key: HostKey, invite: usize, member: &Membership, disk: &Disk) -> Result<(), Violation> {
        let who = Key::Principal(PrincipalId(member.principal));
        let record = disk.durable(&who).and_then(|value| PrincipalRecord::from_bytes(value).ok());
        let is_so = record.is_some_and(|record| record.key == Some(key) && *record.name == *member.name && record.rights == rights());
        if !is_so {
            let what = format!("key {} is told that it is principal {}, which is not durable", hex(&key), member.principal);
            return violated("told-before-durable", what);
        }
        let before = *self.told.entry(key).or_insert((invite, member.principal));
        if before != (invite, member.principal) {
            return violated("told-otherwise", format!("key {} is principal {}, and was told {}", hex(&key), member.principal, before.1));
        }
        Ok(())
    }

    /// A host is told that it has not joined: all uses must have had other keys, at one time.
    pub(super) fn refused(&self, key: HostKey, invite: usize, uses: u16, why: JoinRefused) -> Result<(), Violation> {
        let spent = |keys: &BTreeSet<HostKey>| keys.len() >= usize::from(uses) && !keys.contains(&key);
        let was_spent = self.used.get(&id_of(invite)).is_some_and(|stood| stood.iter().any(spent));
        match why {
            JoinRefused::Outcome(JoinOutcome::Spent, ..) if was_spent && !self.told.contains_key(&key) => Ok(()),
            _ => violated("refused", format!("key {} with invite {}: {why:?}; spent for others: {was_spent}", hex(&key), id_of(invite))),
        }
    }

    /// Everybody was told something.
    pub(super) fn end(&self, plan: &InvitedPlan, disk: &Disk) -> Result<(), Violation> {
        for (invite, uses) in plan.uses.iter().enumerate() {
            let joined = self.told.values().filter(|(of, _)| *of == invite).count();
            let due = plan.keys_of(invite).min(usize::from(*uses));
            if joined != due {
                let what = format!("{joined} keys have joined with invite {}, which has {uses} uses; {due} could", id_of(invite));
                return violated("not-all-used", what);
            }
        }
        for (key, (_, who)) in &self.told {
            let record = disk.durable(&Key::Principal(PrincipalId(*who))).and_then(|value| PrincipalRecord::from_bytes(value).ok());
            if record.is_none_or(|record| record.key != Some(*key) || record.revoked) {
                return violated("told-and-lost", format!("key {} was told that it is principal {who}, and is not", hex(key)));
            }
        }
        Ok(())
    }
}

fn unreadable(key: &Key, error: &dyn std::fmt::Debug) -> Violation {
    Violation { invariant: "I31", check: "unreadable", what: format!("{key:?}: {error:?}") }
}
