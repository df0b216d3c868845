//! The keys of the server's starts, from which the resume secrets of sealed sessions follow (`docs/sealed.md`).
//!
//! Decides which of them are kept: that of this start, and those of earlier ones of which a session has not ended. Leaves to others: who may
//! resume a session (the machine).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use cistern_seal::StartKey;
use cistern_wire::SessionId;

/// All keys that are of use.
#[derive(Debug, Default)]
pub(crate) struct StartKeys {
    /// Of this start; none if it does not seal.
    own: Option<StartKey>,
    former: BTreeMap<u64, Former>,
}

/// The key of an earlier start.
#[derive(Debug)]
struct Former {
    key: StartKey,
    /// Sessions of that start that have not ended.
    sessions: BTreeSet<SessionId>,
}

impl StartKeys {
    /// This start has a key, too.
    pub(crate) fn begin(&mut self, key: StartKey) {
        self.own = Some(key);
    }

    /// The key of this start.
    pub(crate) const fn own(&self) -> Option<&StartKey> {
        self.own.as_ref()
    }

    /// Keeps the keys that sessions name, each by the start that has opened it. Gives the starts of the others.
    pub(crate) fn load(&mut self, keys: Vec<(u64, StartKey)>, named: impl Iterator<Item = (SessionId, u64)>) -> Vec<u64> {
        self.former = keys.into_iter().map(|(start, key)| (start, Former { key, sessions: BTreeSet::new() })).collect();
        for (session, start) in named {
            if let Some(former) = self.former.get_mut(&start) {
                former.sessions.insert(session);
            }
        }
        self.former.extract_if(.., |_, former| former.sessions.is_empty()).map(|(start, _)| start).collect()
    }

    /// The earlier start that has opened a session that has not ended, and its key.
    pub(crate) fn former(&self, session: SessionId) -> Option<(u64, &StartKey)> {
        self.former.iter().find(|(_, former)| former.sessions.contains(&session)).map(|(start, former)| (*start, &former.key))
    }

    /// A session is over. Gives the start whose last one it was: its key is of no use any more.
    pub(crate) fn ended(&mut self, session: SessionId) -> Option<u64> {
        let (start, _) = self.former(session)?;
        let former = self.former.get_mut(&start)?;
        former.sessions.remove(&session);
        former.sessions.is_empty().then(|| {
            self.former.remove(&start);
            start
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u8) -> StartKey {
        StartKey::from_bytes([n; 32])
    }

    #[test]
    fn a_key_is_kept_as_long_as_a_session_of_its_start() {
        let mut keys = StartKeys::default();
        let named = [(1, 3), (2, 1), (3, 3), (4, 9)].map(|(session, start)| (SessionId(session), start));
        assert_eq!(keys.load((1..4).map(|n| (n.into(), key(n))).collect(), named.into_iter()), [2]);
        assert_eq!(keys.former(SessionId(3)).map(|(start, key)| (start, key.expose()[0])), Some((3, 3)));
        assert!(keys.former(SessionId(4)).is_none(), "its key is gone");
        assert_eq!([1, 4, 3, 3, 2].map(|session| keys.ended(SessionId(session))), [None, None, Some(3), None, Some(1)]);
        assert!(keys.former(SessionId(3)).is_none() && keys.own().is_none());
    }
}
