//! The store that all servers share, as all members of an etcd together show it: transactions, one after the other.

use bytes::Bytes;
use cistern_server::store::{Answer as Loaded, Key, Query};
use cistern_store_etcd::{Answer, Compare, Entry, Header, Identity, Keyspace, Op, Outcome, Sequencer, ServerList, Txn};
use cistern_wire::StoreId;
use std::collections::BTreeMap;

/// The store.
pub(super) const STORE: StoreId = StoreId([0xC1; 16]);

const CLUSTER: u64 = 1;

/// What the sequence begins with: the owner's revision and the number of its COMMIT, of 64 bits each, in network byte order.
const COMMIT_LEN: usize = 16;

#[derive(Clone, Debug)]
pub(super) struct Etcd {
    keys: Keyspace,
    values: BTreeMap<Bytes, Entry>,
    revision: u64,
}

impl Etcd {
    /// One in which the store was just made.
    pub(super) fn new() -> Self {
        let keys = Keyspace::new("/cistern");
        let identity = Identity { store: STORE, cluster: CLUSTER, servers: None };
        let values = [(keys.identity(), Entry { value: identity.to_bytes(), revision: 1 })].into();
        Self { keys, values, revision: 1 }
    }

    pub(super) const fn keys(&self) -> &Keyspace {
        &self.keys
    }

    /// Which COMMIT of which owner was the last: as bytes, which sort as the two numbers do.
    pub(super) fn last_commit(&self) -> Option<Bytes> {
        self.values.get(&self.keys.sequence()).map(|entry| entry.value.slice(..COMMIT_LEN))
    }

    fn holds(&self, compare: &Compare) -> bool {
        match compare {
            Compare::Revision(key, revision) => self.values.get(key).map_or(0, |entry| entry.revision) == *revision,
            Compare::Value(key, value) => self.values.get(key).map(|entry| &entry.value) == value.as_ref(),
        }
    }

    /// The servers of the group, as the store has them.
    pub(super) fn servers(&self) -> Option<ServerList> {
        let identity = self.values.get(&self.keys.identity())?;
        Identity::from_bytes(&identity.value).expect("a server writes what it reads").servers
    }

    /// Whether the store is that of a writer of this name.
    pub(super) fn is_owned_by(&self, name: &Bytes) -> bool {
        self.values.get(&self.keys.owner()).is_some_and(|owner| owner.value == *name)
    }

    /// Whether this writes what a server would load.
    pub(super) fn has_data(&self, txn: &Txn) -> bool {
        let prefixes = [self.keys.data(), self.keys.journals()];
        let is_data = |key: &Bytes| prefixes.iter().any(|prefix| key.starts_with(prefix));
        txn.then.iter().any(|op| matches!(op, Op::Put(key, _) | Op::Delete(key) | Op::Clear(key, _) if is_data(key)))
    }

    /// Whether somebody takes the store by this, or is about to: looks at the owner, or writes it.
    pub(super) fn is_taken_by(&self, txn: &Txn) -> bool {
        let owner = self.keys.owner();
        txn.then.iter().any(|op| matches!(op, Op::Put(key, _) if *key == owner)) || txn.then.contains(&Op::Get(self.keys.identity()))
    }

    pub(super) fn execute(&mut self, txn: &Txn) -> Answer {
        let succeeded = txn.compares.iter().all(|compare| self.holds(compare));
        let next = self.revision + 1;
        let mut found = Vec::new();
        for op in if succeeded { &txn.then } else { &txn.otherwise } {
            match op {
                Op::Get(key) => found.push(self.values.get(key).cloned()),
                Op::Any(prefix) => {
                    let first = self.values.range(prefix.clone()..).next().filter(|at| at.0.starts_with(prefix));
                    found.push(first.map(|at| at.1.clone()));
                }
                Op::Put(key, value) => {
                    self.values.insert(key.clone(), Entry { value: value.clone(), revision: next });
                    self.revision = next;
                }
                Op::Delete(key) => self.revision = if self.values.remove(key).is_some() { next } else { self.revision },
                Op::Clear(from, to) => {
                    let before = self.values.len();
                    self.values.retain(|key, _| !(from..to).contains(&key));
                    self.revision = if self.values.len() < before { next } else { self.revision };
                }
            }
        }
        Answer { header: Header { cluster: CLUSTER, revision: self.revision }, succeeded, found }
    }

    /// What the next server would find, when it has applied what is in the journal.
    pub(super) fn loaded(mut self) -> BTreeMap<Key, Bytes> {
        let mut next = Sequencer::new(self.keys.clone(), Bytes::from_static(b"judge"));
        while let Some((number, txn)) = next.step() {
            let answer = self.execute(&txn);
            next.answered(number, Outcome::Answered(answer));
        }
        self.data()
    }

    /// What the server has in it.
    fn data(&self) -> BTreeMap<Key, Bytes> {
        let prefix = self.keys.data();
        let of = self.values.iter().filter_map(|(key, entry)| Some((key.strip_prefix(&prefix[..])?, entry)));
        of.map(|(key, entry)| (Key::from_bytes(key).expect("a server writes keys that it reads"), entry.value.clone())).collect()
    }

    /// A linearizable answer.
    pub(super) fn answer(&self, query: &Query) -> Loaded {
        query.answer_from(&self.data())
    }
}
