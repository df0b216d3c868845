//! The one writer of a store in etcd: what is asked next, and what follows from each answer. Sans-I/O.
//!
//! Decides: that the fence is written before anything is loaded, what each transaction compares, that one is under way at a time, when a
//! batch is durable, when the journal is applied, and when this server is over for good.
//! Invariants: every transaction that writes compares the owner's revision, and the value of the sequence that the one before has left;
//! a step is decided by a definite answer alone, never by silence or a read, and is asked again in identical form until then, so that a late
//! copy of it does nothing; nothing is read before the journal is applied, which a successor does from its beginning, whatever of it was.
//! Leaves to others: when and where a step is asked again (`client`), what fits into a transaction and what goes by the journal (`chunk`).
//!
//! ```text
//! LOOK ──▶ FENCE ──▶ journal applied, rests of others removed ──▶ ready ──▶ COMMIT ──▶ COMMIT ...
//!   ▲        │ somebody was faster                                   │  of keys, or of a part of the journal, which is applied as a whole
//!   └────────┘                                                       │  when it is long, when somebody reads, and in rest
//!                                                                    └─ VERIFY, when nothing is written
//! ```
//!
//! What keys cost etcd is most of what a transaction of many keys costs. A part is one key, however many it has, and of a key that many
//! parts have only the last value is applied.

use crate::bugs::{self, Bug};
use crate::chunk::{Group, Writes, chunks, parts, read_part};
use crate::reason::Reason;
use crate::record::{Identity, Journal, Keyspace, Sequence, ServerList, end_of};
use crate::txn::{Answer, Compare, Entry, Header, Op, Outcome, Txn};
use bytes::Bytes;
use cistern_server::store::{Batch, BatchId};
use cistern_wire::StoreId;
use std::collections::VecDeque;
use std::sync::Arc;

/// What a writer says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It owns the store, which may be loaded now.
    Ready {
        /// The store.
        store: StoreId,
        /// Whether another start had it before, of which a server may still run.
        had_owner: bool,
        /// The servers of its group, if it has one.
        servers: Option<ServerList>,
    },
    /// This batch and all before it are durable, and what is loaded from now on has them.
    Durable(BatchId),
    /// It is over for good: nothing more is written.
    Over(Reason),
}

/// Who owns the store, since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Looking,
    Fencing,
    /// What earlier owners have left is finished.
    Recovering,
    Ready,
    Over,
}

/// Something that is written by one transaction.
#[derive(Debug)]
struct Move {
    ops: Vec<Op>,
    /// Whether it is a COMMIT: the sequence is raised, with this journal. Else it is a part of one that is laid ready.
    raises: Option<Option<Journal>>,
    /// The batch that is durable then.
    done: Option<BatchId>,
}

#[derive(Debug)]
enum Kind {
    Look,
    Fence,
    Fetch,
    Write { after: Option<Sequence>, done: Option<BatchId> },
    Verify,
}

#[derive(Debug)]
struct Step {
    number: u64,
    kind: Kind,
    txn: Arc<Txn>,
    /// Newest revision seen when it was first asked.
    floor: u64,
}

/// The writer of a store.
#[derive(Debug)]
pub struct Sequencer {
    keys: Keyspace,
    /// What is written as owner; no other start has the same.
    name: Bytes,
    phase: Phase,
    identity: Option<Identity>,
    /// The servers that have elected this one; number 0: as they are configured, and it becomes the store's first list.
    elected_by: Option<ServerList>,
    /// What LOOK saw: the identity's bytes, and the owner's revision; then the own one.
    seen: (Bytes, u64),
    had_owner: bool,
    /// The sequence as it is in etcd.
    at: Option<Sequence>,
    /// There is something under the prefix of journals that is no part of a committed one.
    has_rests: bool,
    steps: VecDeque<Step>,
    number: u64,
    moves: VecDeque<Move>,
    waiting: VecDeque<Batch>,
    /// What is in the journal.
    logged: Writes,
    /// Parts of an earlier server's journal that are among these.
    fetched: u32,
    /// Whether the journal is applied before more is added to it.
    wants_applied: bool,
    wants_verify: bool,
    /// Whether an etcd that was restored is believed, to make it the store's own.
    restores: bool,
    revision: u64,
    events: VecDeque<Event>,
}

/// Parts, and keys in them, from which on the journal is applied before more is added: what a successor has to apply before it reads.
const JOURNAL_PARTS: u32 = 16;
const JOURNAL_KEYS: usize = 512;
/// Parts of an earlier server's journal that are fetched at a time.
const FETCHED_PARTS: u32 = 8;

/// Steps under way at a time.
fn steps_max(phase: Phase) -> usize {
    if bugs::is(Bug::TwoInFlight) && phase == Phase::Ready { 2 } else { 1 }
}

impl Sequencer {
    /// Of a server that calls itself `name`, which no other start does.
    #[must_use]
    pub fn new(keys: Keyspace, name: Bytes) -> Self {
        Self {
            keys,
            name,
            phase: Phase::Looking,
            identity: None,
            elected_by: None,
            seen: (Bytes::new(), 0),
            had_owner: false,
            at: None,
            has_rests: false,
            steps: VecDeque::new(),
            number: 0,
            moves: VecDeque::new(),
            waiting: VecDeque::new(),
            logged: Writes::new(),
            fetched: 0,
            wants_applied: false,
            wants_verify: false,
            restores: false,
            revision: 0,
            events: VecDeque::new(),
        }
    }

    /// Of a command that makes a restored etcd the store's own: what it answers is believed, and becomes the identity with [`Self::adopt`].
    #[must_use]
    pub fn restoring(keys: Keyspace, name: Bytes) -> Self {
        Self { restores: true, ..Self::new(keys, name) }
    }

    /// Of the elected server of a group: by whom it was elected. The fence is not written over another list than theirs, or a later one of theirs.
    #[must_use]
    pub fn elected_by(self, servers: ServerList) -> Self {
        Self { elected_by: Some(servers), ..self }
    }

    /// Makes this etcd the one that is believed from now on; durable as this batch. Only when all pushed before is durable. The list of servers
    /// that came with it is old: that of the next server counts.
    pub fn adopt(&mut self, id: BatchId) {
        self.write_identity(None, Some(id));
    }

    /// The newest list of the group's servers that the store has, or that is on its way there.
    #[must_use]
    pub fn servers(&self) -> Option<&ServerList> {
        self.identity.as_ref().and_then(|identity| identity.servers.as_ref())
    }

    /// Changes the servers of the group, by one COMMIT after what is under way. False: this is not the next list.
    pub fn change_servers(&mut self, list: ServerList) -> bool {
        let is_next = self.phase == Phase::Ready && self.servers().is_some_and(|servers| servers.number + 1 == list.number);
        if is_next {
            self.write_identity(Some(list), None);
        }
        is_next
    }

    fn write_identity(&mut self, servers: Option<ServerList>, done: Option<BatchId>) {
        let journal = self.planned_journal();
        if let Some(identity) = self.identity.as_mut().filter(|_| self.phase == Phase::Ready) {
            identity.servers = servers;
            let ops = vec![Op::Put(self.keys.identity(), identity.to_bytes())];
            self.moves.push_back(Move { ops, raises: Some(journal), done });
        }
    }

    /// The journal as it is when all is done that is under way or planned.
    fn planned_journal(&self) -> Option<Journal> {
        let planned = self.moves.iter().rev().find_map(|planned| planned.raises);
        planned.unwrap_or_else(|| self.under_way().or(self.at).and_then(|at| at.journal))
    }

    /// A batch to be made durable after all before it.
    pub fn push(&mut self, batch: Batch) {
        self.waiting.push_back(batch);
    }

    /// For when nothing was written for a while: the journal is applied, or it is asked whether this server still has the store.
    pub fn rest(&mut self) {
        self.wants_verify = self.phase == Phase::Ready;
        self.wants_applied |= self.has_journal();
    }

    /// Whether what is read now is of a state that has every batch told to be durable. If it is not, that is seen to.
    pub fn may_read(&mut self) -> bool {
        let may = !self.has_journal() || bugs::is(Bug::ReadBesideJournal);
        self.wants_applied |= !may;
        may
    }

    fn has_journal(&self) -> bool {
        self.at.is_some_and(|at| at.journal.is_some())
    }

    /// What is to be asked now, by its number: to be asked again, unchanged, until [`Self::answered`] gives true. Begins it if nothing
    /// is under way.
    pub fn step(&mut self) -> Option<(u64, Arc<Txn>)> {
        if self.steps.len() < steps_max(self.phase)
            && let Some((kind, txn)) = self.next()
        {
            self.number += 1;
            self.steps.push_back(Step { number: self.number, kind, txn: Arc::new(txn), floor: self.revision });
        }
        self.steps.back().map(|step| (step.number, Arc::clone(&step.txn)))
    }

    /// What became of a copy of a step; whether the step is decided by it, or was before.
    pub fn answered(&mut self, number: u64, outcome: Outcome) -> bool {
        let Some(at) = self.steps.iter().position(|step| step.number == number) else { return true };
        let answer = match outcome {
            Outcome::Answered(answer) => answer,
            Outcome::Refused(why) => {
                self.over(Reason::Broken(format!("etcd refuses what the server writes: {why}")));
                return true;
            }
            Outcome::NoSpace if bugs::is(Bug::NoSpaceIsFailed) => return self.forget(at),
            Outcome::Unknown if bugs::is(Bug::UnknownIsFailed) => return self.forget(at),
            Outcome::Unknown if bugs::is(Bug::UnknownIsDone) => Answer {
                header: Header { cluster: self.identity.as_ref().map_or(0, |identity| identity.cluster), revision: self.revision },
                succeeded: true,
                found: Vec::new(),
            },
            Outcome::Unknown | Outcome::NoSpace => return false,
        };
        let Some(Step { kind, floor, .. }) = self.steps.remove(at) else { return true };
        if self.believes(answer.header, floor) {
            match kind {
                Kind::Look => self.looked(&answer),
                Kind::Fence => self.fenced(&answer),
                Kind::Fetch => self.fetched(answer),
                Kind::Write { after, done } => self.wrote(after, done, &answer),
                Kind::Verify => {
                    if self.owns(&answer) {
                        self.wants_verify = false;
                    }
                }
            }
        }
        true
    }

    /// Whether an answer is of the etcd that this store was written in, not older than what was known when it was asked for. Else
    /// the server is over. For reads, too, of which the floor is [`Self::revision`] when they were sent.
    pub fn believes(&mut self, header: Header, floor: u64) -> bool {
        if self.identity.as_ref().is_some_and(|identity| identity.cluster != header.cluster) && !bugs::is(Bug::ClusterNotCompared) {
            self.over(Reason::Restored);
            return false;
        }
        if header.revision < floor && !bugs::is(Bug::ClusterNotCompared) {
            self.over(Reason::WentBack);
            return false;
        }
        self.revision = self.revision.max(header.revision);
        true
    }

    /// Whether the store is still to be taken: from whoever has it by then.
    #[must_use]
    pub fn is_taking(&self) -> bool {
        matches!(self.phase, Phase::Looking | Phase::Fencing)
    }

    /// The store is not to be taken any more. What was asked already takes it from nobody who has taken it since, for a fence names the owner
    /// that was looked at.
    pub fn give_up(&mut self) {
        self.over(Reason::TooLate);
    }

    /// Newest revision seen.
    #[must_use]
    pub const fn revision(&self) -> u64 {
        self.revision
    }

    /// The next event, in order.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Whether nothing pushed is to be written any more: all is durable and applied, or the writer is over.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        let is_written = self.steps.is_empty() && self.moves.is_empty() && self.waiting.is_empty();
        self.phase == Phase::Over || is_written && !self.has_journal()
    }

    fn over(&mut self, reason: Reason) {
        if self.phase != Phase::Over {
            self.phase = Phase::Over;
            self.steps.clear();
            self.events.push_back(Event::Over(reason));
        }
    }

    /// What a server does that takes what may have been executed for failed.
    fn forget(&mut self, at: usize) -> bool {
        if self.steps.remove(at).is_some_and(|step| matches!(step.kind, Kind::Write { .. })) {
            self.moves.clear();
        }
        true
    }
}

/// What is asked.
impl Sequencer {
    fn next(&mut self) -> Option<(Kind, Txn)> {
        let keys = &self.keys;
        let look = || vec![Op::Get(keys.owner()), Op::Get(keys.sequence()), Op::Any(keys.journals())];
        match self.phase {
            Phase::Over => None,
            Phase::Looking => {
                let then = vec![Op::Get(keys.identity()), Op::Get(keys.owner())];
                Some((Kind::Look, Txn { then, ..Txn::default() }))
            }
            Phase::Fencing => {
                let compares =
                    vec![Compare::Revision(keys.owner(), self.seen.1), Compare::Value(keys.identity(), Some(self.seen.0.clone()))];
                let mut then = vec![Op::Put(keys.owner(), self.name.clone())];
                // The first list of a group comes with its first fence.
                let first = self.identity.as_ref().filter(|identity| identity.to_bytes() != self.seen.0 && !self.restores);
                then.extend(first.map(|identity| Op::Put(keys.identity(), identity.to_bytes())));
                then.extend(look());
                Some((Kind::Fence, Txn { compares, then, otherwise: look() }))
            }
            Phase::Recovering if self.moves.is_empty() => {
                if let Some(journal) = self.at.and_then(|at| at.journal) {
                    if self.fetched < journal.last {
                        let parts = self.fetched + 1..=journal.last.min(self.fetched + FETCHED_PARTS);
                        let then = std::iter::once(keys.owner()).chain(parts.map(|part| keys.part(journal.of, part)));
                        return Some((Kind::Fetch, Txn { then: then.map(Op::Get).collect(), ..Txn::default() }));
                    }
                    self.apply(journal);
                } else {
                    self.moves.push_back(Move { ops: vec![self.removal()], raises: Some(None), done: None });
                }
                self.write()
            }
            Phase::Recovering => self.write(),
            Phase::Ready => {
                if self.moves.is_empty() {
                    self.plan();
                }
                if !self.moves.is_empty() {
                    return self.write();
                }
                let then = vec![Op::Get(self.keys.owner())];
                self.wants_verify.then(|| (Kind::Verify, Txn { then, ..Txn::default() }))
            }
        }
    }

    /// What is written next: what is in the journal, or what waits, to its keys or to the journal.
    fn plan(&mut self) {
        let journal = self.at.and_then(|at| at.journal);
        let is_long = journal.is_some_and(|journal| journal.last >= JOURNAL_PARTS) || self.logged.len() >= JOURNAL_KEYS;
        if let Some(journal) = journal.filter(|_| self.wants_applied || is_long) {
            return self.apply(journal);
        }
        self.wants_applied = false;
        let Some(group) = Group::take(&self.keys, &mut self.waiting) else { return };
        if journal.is_none() && group.is_direct() {
            let ops = chunks(&self.keys, &group.writes).concat();
            return self.moves.push_back(Move { ops, raises: Some(None), done: Some(group.last) });
        }
        self.log(group, journal);
    }

    /// A group goes to the journal, by as many parts as it takes; the COMMIT that has the last of them counts for all.
    fn log(&mut self, group: Group, journal: Option<Journal>) {
        let number = self.at.filter(|at| at.owner == self.seen.1).map_or(0, |at| at.number) + 1;
        let mut journal = journal.unwrap_or(Journal { of: (self.seen.1, number), last: 0 });
        for part in parts(&group.writes) {
            journal.last += 1;
            self.moves.push_back(Move { ops: vec![Op::Put(self.keys.part(journal.of, journal.last), part)], raises: None, done: None });
        }
        if let Some(last) = self.moves.back_mut() {
            (last.raises, last.done) = (Some(Some(journal)), Some(group.last));
        }
        self.logged.extend(group.writes);
    }

    /// The journal is applied, by as many COMMITs as it takes, and removed by the last one.
    fn apply(&mut self, journal: Journal) {
        let mut chunks = chunks(&self.keys, &std::mem::take(&mut self.logged)).into_iter().peekable();
        while let Some(mut ops) = chunks.next() {
            let is_last = chunks.peek().is_none();
            ops.extend(is_last.then(|| self.removal()));
            self.moves.push_back(Move { ops, raises: Some((!is_last).then_some(journal)), done: None });
        }
    }

    /// Removes all parts of all journals.
    fn removal(&self) -> Op {
        let journals = self.keys.journals();
        Op::Clear(journals.clone(), end_of(&journals))
    }

    /// The next move as a transaction; it is taken, for it is asked until it is decided.
    fn write(&mut self) -> Option<(Kind, Txn)> {
        let Move { ops, raises, done } = self.moves.pop_front()?;
        let (keys, at) = (&self.keys, self.under_way().or(self.at));
        let mut then = Vec::with_capacity(ops.len() + 1);
        let after = raises.map(|journal| {
            let number = at.filter(|at| at.owner == self.seen.1).map_or(0, |at| at.number) + 1;
            Sequence { owner: self.seen.1, number, journal }
        });
        then.extend(after.map(|after| Op::Put(keys.sequence(), after.to_bytes())));
        then.extend(ops);
        let mut compares = vec![Compare::Revision(keys.owner(), self.seen.1), Compare::Value(keys.sequence(), at.map(|at| at.to_bytes()))];
        let applies = raises.is_some() && done.is_none();
        compares.retain(|compare| match compare {
            _ if applies && bugs::is(Bug::JournalNotCompared) => false,
            Compare::Revision(..) => !bugs::is(Bug::OwnerNotCompared),
            Compare::Value(..) => !bugs::is(Bug::SequenceNotCompared),
        });
        let otherwise = vec![Op::Get(keys.owner()), Op::Get(keys.sequence())];
        Some((Kind::Write { after, done }, Txn { compares, then, otherwise }))
    }

    /// What a step under way makes of the sequence.
    fn under_way(&self) -> Option<Sequence> {
        self.steps.back().and_then(|step| if let Kind::Write { after, .. } = step.kind { after } else { None })
    }
}

/// What follows from an answer.
impl Sequencer {
    fn looked(&mut self, answer: &Answer) {
        let [identity, owner] = &answer.found[..] else { return self.over(broken("etcd has not answered what was asked")) };
        let Some(identity) = identity else { return self.over(Reason::Missing) };
        match Identity::from_bytes(&identity.value) {
            Ok(known) => {
                let cluster = if self.restores { answer.header.cluster } else { known.cluster };
                let servers = match (&self.elected_by, known.servers) {
                    (Some(by), Some(list)) if list.number < by.number || by.number == 0 && list.servers != by.servers => {
                        return self.over(Reason::OtherServers(list));
                    }
                    (Some(by), None) => Some(ServerList { number: 1, ..by.clone() }),
                    (_, listed) => listed,
                };
                self.identity = Some(Identity { cluster, servers, ..known });
            }
            Err(what) => return self.over(Reason::Foreign(what)),
        }
        self.had_owner |= owner.is_some();
        self.seen = (identity.value.clone(), owner.as_ref().map_or(0, |owner| owner.revision));
        if self.believes(answer.header, 0) {
            self.phase = Phase::Fencing;
            if bugs::is(Bug::LoadedBeforeFence) {
                self.tell_ready();
            }
        }
    }

    fn fenced(&mut self, answer: &Answer) {
        let [owner, sequence, rests] = &answer.found[..] else { return self.over(broken("etcd has not answered what was asked")) };
        // Not executed, or an earlier copy was.
        let Some(owner) = owner.as_ref().filter(|owner| owner.value == self.name) else {
            self.phase = Phase::Looking;
            return;
        };
        self.seen.1 = owner.revision;
        match sequence.as_ref().map(|sequence| Sequence::from_bytes(&sequence.value)) {
            Some(None) => return self.over(broken("the sequence of the store is damaged")),
            Some(known) => self.at = known,
            None => self.at = None,
        }
        self.has_rests = rests.is_some();
        self.phase = Phase::Recovering;
        if bugs::is(Bug::JournalLoadedOver) {
            self.has_rests = false;
        }
        self.recovered();
    }

    fn fetched(&mut self, answer: Answer) {
        if !self.owns(&answer) {
            return;
        }
        for part in answer.found.into_iter().skip(1) {
            self.fetched += 1;
            if part.and_then(|part| read_part(part.value, &mut self.logged)).is_none() {
                return self.over(broken(&format!("part {} of the journal of an earlier server is missing or damaged", self.fetched)));
            }
        }
    }

    fn wrote(&mut self, after: Option<Sequence>, done: Option<BatchId>, answer: &Answer) {
        if !answer.succeeded {
            if !self.owns(answer) {
                return;
            }
            let found = answer.found.get(1).and_then(|sequence| Sequence::from_bytes(&sequence.as_ref()?.value));
            // An earlier copy was executed.
            if after.is_none() || found != after {
                let (found, at) = (found.map(|found| found.number), self.at.map(|at| at.number));
                return self.over(broken(&format!("somebody else has written the store: COMMIT {found:?} is there, not {at:?}")));
            }
        }
        self.at = after.or(self.at);
        self.events.extend(done.map(Event::Durable));
        if self.phase == Phase::Recovering {
            self.has_rests = self.has_journal();
            self.recovered();
        }
    }

    /// Whether the owner that an answer shows is this server; else it is over.
    fn owns(&mut self, answer: &Answer) -> bool {
        let owner = answer.found.first().and_then(Option::as_ref);
        if owner.is_some_and(|owner| owner.revision == self.seen.1) || bugs::is(Bug::OwnerNotCompared) {
            return true;
        }
        self.over(Reason::Superseded(owner.map_or_else(|| "its owner was removed".to_owned(), words)));
        false
    }

    fn recovered(&mut self) {
        let has_journal = self.has_journal() && !bugs::is(Bug::JournalLoadedOver);
        if !has_journal && !self.has_rests {
            self.phase = Phase::Ready;
            if !bugs::is(Bug::LoadedBeforeFence) {
                self.tell_ready();
            }
        }
    }

    fn tell_ready(&mut self) {
        if let Some(Identity { store, servers, .. }) = &self.identity {
            self.events.push_back(Event::Ready { store: *store, had_owner: self.had_owner, servers: servers.clone() });
        }
    }
}

fn broken(what: &str) -> Reason {
    Reason::Broken(what.to_owned())
}

fn words(owner: &Entry) -> String {
    String::from_utf8_lossy(&owner.value).into_owned()
}
