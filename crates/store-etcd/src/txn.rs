//! What is asked of etcd, and what it says: transactions as values.
//!
//! Decides nothing. The connection (`client`) turns them into the calls of etcd's client, a test into operations on a map.

use bytes::Bytes;

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key was changed last by this revision; 0: it does not exist.
    Revision(Bytes, u64),
    /// The key has this value; no value: it does not exist.
    Value(Bytes, Option<Bytes>),
}

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Writes a key.
    Put(Bytes, Bytes),
    /// Deletes a key, if it is there.
    Delete(Bytes),
    /// Deletes every key from the first one on that is before the second.
    Clear(Bytes, Bytes),
    /// Reads a key → [`Answer::found`].
    Get(Bytes),
    /// Reads whether any key begins so: its first key → [`Answer::found`].
    Any(Bytes),
}

/// If all compares hold, `then`, else `otherwise`; whole or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// The conditions; none: it does `then`.
    pub compares: Vec<Compare>,
    /// What is done if they hold.
    pub then: Vec<Op>,
    /// What is done if one does not.
    pub otherwise: Vec<Op>,
}

/// A key as etcd has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its value.
    pub value: Bytes,
    /// The revision that changed it last.
    pub revision: u64,
}

/// Which etcd has answered, and in which state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Id of the cluster.
    pub cluster: u64,
    /// Newest revision when it answered.
    pub revision: u64,
}

/// A definite answer to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Of the answer.
    pub header: Header,
    /// Whether all compares held.
    pub succeeded: bool,
    /// What each [`Op::Get`] and [`Op::Any`] of the branch that was taken has found, in their order.
    pub found: Vec<Option<Entry>>,
}

/// What became of one copy of a transaction, as far as its sender knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was executed, or its compares did not hold.
    Answered(Answer),
    /// It may have been executed, or may be later: no answer in time, no connection, no leader, a change of leaders, cancelled.
    Unknown,
    /// etcd says that it has no space; it may have been executed all the same, for etcd applies a transaction and then says so.
    NoSpace,
    /// etcd can never execute it, and has not: too large, malformed. Why, in its words.
    Refused(String),
}
