//! Accounts: how much of what is there each principal has made.
//!
//! Decides: that what each account says is what was seen. Place in the walk: accounts come before objects.
//! Invariant: memory grows by one row for each principal.

use super::Fault;
use super::walk::Walk;
use cistern_server::principals::PrincipalId;
use cistern_server::store::{AccountRecord, Key};
use std::collections::BTreeMap;

/// Of each principal, what its account says, and the objects and bytes that were seen; `None`: it has none, or it cannot be read.
#[derive(Debug, Default)]
pub(super) struct Accounts {
    said: BTreeMap<PrincipalId, Option<AccountRecord>>,
    seen: BTreeMap<PrincipalId, (u64, u64)>,
}

impl Accounts {
    /// So much was seen that a principal has made.
    pub(super) fn add(&mut self, creator: PrincipalId, objects: u64, bytes: u64) {
        if creator != PrincipalId::ANYBODY {
            let seen = self.seen.entry(creator).or_default();
            *seen = (seen.0 + objects, seen.1.saturating_add(bytes));
        }
    }
}

impl Walk {
    pub(super) fn account(&mut self, who: PrincipalId, key: &Key, value: &[u8]) {
        let record = AccountRecord::from_bytes(value);
        if let Err(error) = &record {
            self.at(Fault::BadRecord, key, error.to_string());
        }
        self.accounts.said.insert(who, record.ok());
    }

    /// All was read: compares what each account says with what was seen.
    pub(super) fn accounts(&mut self) {
        let Accounts { said, mut seen } = std::mem::take(&mut self.accounts);
        if !self.bytes_known {
            return;
        }
        for (who, record) in said {
            let (objects, bytes) = seen.remove(&who).unwrap_or_default();
            if let Some(record) = record.filter(|record| (record.objects, record.bytes) != (objects, bytes)) {
                let what = format!("it says {} objects and {} bytes, and there are {objects} and {bytes}", record.objects, record.bytes);
                self.at(Fault::WrongUse, &Key::Account(who), what);
            }
        }
        for (who, (objects, bytes)) in seen.into_iter().filter(|(_, seen)| *seen != (0, 0)) {
            self.at(Fault::WrongUse, &Key::Account(who), format!("there is none, and it has made {objects} objects with {bytes} bytes"));
        }
    }
}
