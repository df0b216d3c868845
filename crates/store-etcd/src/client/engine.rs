//! The loop of the store's thread: steps of the writer, reads, and looks at the space.
//!
//! Decides: when a step is asked again, how many reads are under way, when somebody looks whether the server was replaced or etcd is full.
//! Invariant: a step is asked until the writer says that it is decided. What etcd does not answer waits; nothing of it is told.
//! Leaves to others: what is asked and what follows (`sequencer`), whom (`connection`).

use super::connection::{Members, Pair};
use super::space::Space;
use super::{MayTake, Shared, Work};
use crate::reason::Reason;
use crate::record::{Keyspace, ServerList, end_of};
use crate::sequencer::{Event, Sequencer};
use crate::txn::{Header, Outcome};
use bytes::Bytes;
use cistern_server::store::{Answer, Key, Loaded, Query, StoreEvent, StoreWork};
use cistern_wire::StoreId;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};

/// Entries of a page: records and entries of directories are short, so that a page stays below 1 MiB.
const PAGE: usize = 1_000;
/// Reads under way at a time.
const READS_MAX: usize = 64;
/// How long the same is not asked again after it was not answered: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How long nothing is written before the server asks whether it still owns the store.
const VERIFY_AFTER: Duration = Duration::from_millis(250);
/// Time between two looks at the space, as between two removals of old revisions.
const LOOK_PERIOD: Duration = Duration::from_secs(10);
const COMPACT_PERIOD: Duration = Duration::from_secs(60);
/// Time without an answer that is worth a line in the log.
const OUTAGE: Duration = Duration::from_secs(2);
/// Time that is given to what was handed over when the store is closed.
const CLOSE: Duration = Duration::from_secs(2);

/// What `open` waits for: the store's id, whether it had another owner, the servers of its group.
pub(super) type Opened = Result<(StoreId, bool, Option<ServerList>), Reason>;

/// What a task brings.
enum Done {
    Step { number: u64, outcome: Outcome },
    Read { query: Query, floor: u64, answer: Answer, headers: Vec<Header> },
    Size(Result<u64, String>),
    Compacted(Result<(), String>),
}

/// The step under way.
struct Asked {
    number: u64,
    tries: u32,
    /// When it is asked again; none: an answer is awaited.
    again: Option<Instant>,
    since: Instant,
}

pub(super) struct Engine {
    pub(super) sequencer: Sequencer,
    pub(super) members: Arc<Members>,
    pub(super) keys: Keyspace,
    pub(super) work: UnboundedReceiver<Work>,
    pub(super) say: Sender<StoreEvent>,
    pub(super) opened: Option<Sender<Opened>>,
    pub(super) shared: Arc<Shared>,
    pub(super) space: Space,
    pub(super) compacts: bool,
    pub(super) may_take: MayTake,
}

struct Turning {
    engine: Engine,
    calls: JoinSet<Done>,
    asked: Option<Asked>,
    reads: usize,
    queries: VecDeque<Query>,
    verify_at: Instant,
    look_at: Instant,
    compact_at: Instant,
    /// Up to which revision history is removed next.
    compact_to: u64,
    outage: Option<Instant>,
    told_outage: bool,
    closing: Option<Instant>,
    /// How long the last step took.
    took: Duration,
}

impl Engine {
    /// Runs until the store is dropped.
    pub(super) async fn run(self) {
        let now = Instant::now();
        let turning = Turning {
            engine: self,
            calls: JoinSet::new(),
            asked: None,
            reads: 0,
            queries: VecDeque::new(),
            verify_at: now + VERIFY_AFTER,
            look_at: now,
            compact_at: now + COMPACT_PERIOD,
            compact_to: 0,
            outage: None,
            told_outage: false,
            closing: None,
            took: Duration::ZERO,
        };
        turning.run().await;
    }
}

impl Turning {
    async fn run(mut self) {
        loop {
            self.tell();
            self.ask();
            // What is in the journal would delay the next server.
            if self.closing.is_some_and(|end| self.engine.sequencer.may_read() && self.engine.sequencer.is_idle() || Instant::now() >= end)
            {
                return;
            }
            let due = self.next_due();
            tokio::select! {
                work = self.engine.work.recv(), if self.closing.is_none() => match work {
                    Some(work) => self.take(work),
                    None => self.closing = Some(Instant::now() + CLOSE),
                },
                Some(done) = self.calls.join_next() => match done {
                    Ok(done) => self.done(done),
                    // A task that panicked: the step would never be decided.
                    Err(e) => return log::error!("{}: {e}", self.engine.shared.name),
                },
                () = sleep_until(due) => {}
            }
            // All that waits is one group.
            while let Ok(work) = self.engine.work.try_recv() {
                self.take(work);
            }
            self.due(Instant::now());
        }
    }

    fn take(&mut self, work: Work) {
        match work {
            Work::Store(StoreWork::Persist(batch)) => {
                self.engine.shared.counts.handed_over(&batch);
                self.engine.sequencer.push(batch);
            }
            Work::Store(StoreWork::Load(queries)) => self.queries.extend(queries),
            Work::Adopt(id) => self.engine.sequencer.adopt(id),
            Work::ChangeServers(list) => {
                if !self.engine.sequencer.change_servers(list) {
                    log::info!("{}: the list of servers was changed meanwhile, and is not changed again", self.engine.shared.name);
                }
            }
        }
    }

    fn next_due(&self) -> Instant {
        let again = self.asked.as_ref().and_then(|asked| asked.again);
        [again, Some(self.verify_at), Some(self.look_at), self.closing].into_iter().flatten().min().unwrap_or(self.look_at)
    }

    fn due(&mut self, now: Instant) {
        if now >= self.verify_at {
            self.verify_at = now + VERIFY_AFTER;
            self.engine.sequencer.rest();
        }
        if now >= self.look_at {
            self.look_at = now + LOOK_PERIOD;
            let members = Arc::clone(&self.engine.members);
            self.calls.spawn(async move { Done::Size(members.size().await) });
        }
        if self.engine.compacts && now >= self.compact_at {
            self.compact_at = now + COMPACT_PERIOD;
            let to = std::mem::replace(&mut self.compact_to, self.engine.sequencer.revision());
            if to > 0 {
                let members = Arc::clone(&self.engine.members);
                self.calls.spawn(async move { Done::Compacted(members.compact(to).await) });
            }
        }
        if let Some(since) = self.outage
            && !self.told_outage
            && now >= since + OUTAGE
        {
            self.told_outage = true;
            log::warn!(
                "{}: etcd does not answer: {}; changes and new sessions wait, reads from memory and locks that are held go on",
                self.engine.shared.name,
                self.engine.members.trouble()
            );
        }
    }

    /// Sends the step under way, and reads, as far as they are to be sent now.
    fn ask(&mut self) {
        if self.engine.sequencer.is_taking() && !(self.engine.may_take)() {
            self.engine.sequencer.give_up();
            self.tell();
        }
        let now = Instant::now();
        // Before the next step is begun, for the journal may be what it has to be about.
        let may_read = self.queries.is_empty() || self.engine.sequencer.may_read();
        if let Some((number, txn)) = self.engine.sequencer.step() {
            let asked = match &mut self.asked {
                Some(asked) if asked.number == number => asked,
                slot => slot.insert(Asked { number, tries: 0, again: Some(now), since: now }),
            };
            if asked.again.take_if(|again| *again <= now).is_some() {
                let (members, tries) = (Arc::clone(&self.engine.members), asked.tries);
                asked.tries += 1;
                self.calls.spawn(async move { Done::Step { number, outcome: members.execute(&txn, tries).await } });
            }
        }
        while self.reads < READS_MAX
            && may_read
            && let Some(query) = self.queries.pop_front()
        {
            self.reads += 1;
            let (members, keys, floor) = (Arc::clone(&self.engine.members), self.engine.keys.clone(), self.engine.sequencer.revision());
            self.calls.spawn(async move {
                let (answer, headers) = load(&members, &keys, &query).await;
                Done::Read { query, floor, answer, headers }
            });
        }
    }

    fn done(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Step { number, outcome } => self.step_done(number, outcome, now),
            Done::Read { query, floor, answer, headers } => {
                self.reads -= 1;
                self.engine.shared.counts.read(answer == Answer::Failed);
                let sequencer = &mut self.engine.sequencer;
                if headers.into_iter().all(|header| sequencer.believes(header, floor)) {
                    self.say(StoreEvent::Loaded(Loaded { query, answer }));
                }
            }
            Done::Size(Ok(bytes)) => {
                let said = self.engine.space.is(bytes);
                self.engine.shared.counts.space(&self.engine.space);
                self.say_room(said);
            }
            Done::Size(Err(e)) => log::debug!("{}: the size of etcd's database cannot be read: {e}", self.engine.shared.name),
            Done::Compacted(Ok(())) => {}
            Done::Compacted(Err(e)) => log::warn!("{}: old revisions cannot be removed: {e}", self.engine.shared.name),
        }
    }

    fn step_done(&mut self, number: u64, outcome: Outcome, now: Instant) {
        let Some(asked) = self.asked.take_if(|asked| asked.number == number) else { return };
        let (is_unknown, is_full) = (outcome == Outcome::Unknown, outcome == Outcome::NoSpace);
        if self.engine.sequencer.answered(number, outcome) {
            self.verify_at = now + VERIFY_AFTER;
            self.took = now - asked.since;
            self.outage = None;
            if std::mem::take(&mut self.told_outage) {
                log::info!("{}: etcd answers again, after {:?}", self.engine.shared.name, now - asked.since);
            }
            let said = self.engine.space.written();
            return self.say_room(said);
        }
        if is_unknown {
            self.outage.get_or_insert(asked.since);
        }
        let said = if is_full { self.engine.space.refused() } else { None };
        self.say_room(said);
        let pause = if is_full { PAUSE_MAX } else { PAUSE.saturating_mul(1 << asked.tries.min(6)).min(PAUSE_MAX) };
        self.asked = Some(Asked { again: Some(now + pause), ..asked });
    }

    /// Passes the writer's events on.
    fn tell(&mut self) {
        while let Some(event) = self.engine.sequencer.event() {
            match event {
                Event::Ready { store, had_owner, servers } => self.open_is(Ok((store, had_owner, servers))),
                Event::Durable(batch) => {
                    self.engine.shared.counts.durable(batch, self.took);
                    self.say(StoreEvent::Durable(batch));
                }
                Event::Over(reason) => {
                    self.engine.shared.ended(&reason);
                    self.say(StoreEvent::Broken(format!("store {}: {reason}", self.engine.shared.name)));
                    self.open_is(Err(reason));
                }
            }
        }
    }

    fn open_is(&mut self, opened: Opened) {
        if let Some(waiting) = self.engine.opened.take() {
            // Nobody waits any more.
            let _ = waiting.send(opened);
        }
    }

    fn say_room(&self, said: Option<bool>) {
        let Some(room) = said else { return };
        let (name, space) = (&self.engine.shared.name, &self.engine.space);
        self.engine.shared.counts.space(space);
        match room {
            true => log::info!("{name}: {space}: there is room"),
            false => log::error!(
                "{name}: {space}: changes and new sessions are refused or wait, reads and locks that are held go on; compact and defragment \
                 etcd, or give it a larger quota, and disarm its alarm (etcdctl alarm disarm)"
            ),
        }
        self.say(StoreEvent::Room(room));
    }

    fn say(&self, event: StoreEvent) {
        // Nobody listens any more when the store is being dropped.
        let _ = self.engine.say.send(event);
        (self.engine.shared.wake)();
    }
}

/// Asks until there is an answer.
async fn insist<T, F: Future<Output = Result<T, String>>>(call: impl Fn(u32) -> F) -> T {
    let mut tries = 0;
    loop {
        match call(tries).await {
            Ok(answer) => return answer,
            Err(_) => sleep(PAUSE.saturating_mul(1 << tries.min(6)).min(PAUSE_MAX)).await,
        }
        tries += 1;
    }
}

/// The answer to a question, and the headers of all answers of etcd that it is made of.
async fn load(members: &Members, keys: &Keyspace, query: &Query) -> (Answer, Vec<Header>) {
    match query {
        Query::Get(key) => {
            let key = keys.of(key);
            let (value, header) = insist(|tries| members.value(&key, tries)).await;
            (Answer::Value(value), vec![header])
        }
        Query::Scan { dir, after, limit } => {
            let prefix = [&keys.data()[..], &Key::entry_prefix(*dir)].concat();
            let (pairs, end, headers) = page(members, &prefix, after, *limit).await;
            let name = |(key, value): Pair| (Box::from(&key[prefix.len()..]), value);
            (Answer::Entries { entries: pairs.into_iter().map(name).collect(), end }, headers)
        }
        Query::Records { after, limit } => {
            let (data, after) = (keys.data(), after.to_bytes());
            let prefix = [&data[..], &after[..1]].concat();
            let (pairs, end, headers) = page(members, &prefix, &after[1..], *limit).await;
            let record = |(key, value): Pair| Key::from_bytes(&key[data.len()..]).map(|key| (key, value));
            match pairs.into_iter().map(record).collect::<Result<Vec<(Key, Bytes)>, _>>() {
                Ok(records) => (Answer::Records { records, end }, headers),
                Err(e) => {
                    log::error!("{keys}: cannot read {query:?}: {e}");
                    (Answer::Failed, headers)
                }
            }
        }
    }
}

/// The first `limit` keys that begin with `prefix` after `after`, in as many pages as it takes.
async fn page(members: &Members, prefix: &[u8], after: &[u8], limit: u32) -> (Vec<Pair>, bool, Vec<Header>) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let (mut found, mut headers, to): (Vec<Pair>, _, _) = (Vec::new(), Vec::new(), end_of(prefix));
    // The first key after one is that with a zero behind it.
    let mut from = [prefix, after, &[0]].concat();
    loop {
        let wanted = PAGE.min(limit - found.len());
        let (pairs, end, header) = insist(|tries| members.range(&from, &to, wanted, 0, tries)).await;
        headers.push(header);
        if let Some((last, _)) = pairs.last() {
            from = [last, &[0][..]].concat();
        }
        found.extend(pairs);
        if end || found.len() >= limit {
            return (found, end, headers);
        }
    }
}
