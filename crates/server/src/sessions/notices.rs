//! The notices of one session: DEMAND, GRANT, WAIT_OVER and PROBE, each sent until its receipt comes or its delivery has failed; and the
//! deadlines of all sessions about silence.
//!
//! Decides when a notice goes out again and when its delivery has failed: after at least three transmissions, each followed by its RTO, and
//! Td after the first, all counted on the delivery clock, that is while this server listened (section 11.3). Place in the walk: filled by
//! `delivery`, read by `transmit`. Implements `wire-spec.md` section 6.4.
//! Invariant: a notice leaves only by its receipt, by a release that names its generation or a newer one, or by a newer demand
//! for the same lock. Its text never changes under its number, so a receipt means one thing. Of each lock that the agent was told to give back
//! there is one record ([`Demanded`]): at most one notice on the way, and the time to comply once a notice was receipted.
//! Deadlines run on the delivery clock, too, so a server that stood still blames nobody: at most one per session and reason, and none for a
//! session that nobody waits for. The lease timer, T, is none of them: it runs on both clocks, whoever stood still.
//! Leaves to others: which notices there are (`locks`), what a failed delivery leads to (`lifecycle`).

#[cfg(test)]
mod tests;

use crate::config::{Config, TRANSMISSIONS_MIN};
use crate::ids::SessionKey;
use alloc::collections::btree_map::Entry;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use cistern_link::bugs::{self, Bug};
use cistern_link::{Instant, Rng, RoundTrip};
use cistern_wire::{Demand, Generation, Grant, Keep, LockId, Message, Mode, ObjectId, Probe, Status, WaitOver, WatchEvent};
use core::time::Duration;

/// How many ended waits are remembered for CANCEL messages that come late.
const ENDED_WAITS_MAX: usize = 64;

/// What a notice says; its number is added when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Give a lock back.
    Demand {
        /// The lock.
        lock: LockId,
        /// The newest generation granted to the session.
        generation: Generation,
        /// What may be kept.
        keep: Keep,
    },
    /// The lock for which a request was queued.
    Grant {
        /// The request.
        nonce: u64,
        /// The lock.
        lock: LockId,
        /// Its mode.
        mode: Mode,
        /// The grant.
        generation: Generation,
        /// Tokens reserved.
        run: u32,
    },
    /// A queued request ended without a grant.
    WaitOver {
        /// The request.
        nonce: u64,
        /// The lock.
        lock: LockId,
        /// Why.
        status: Status,
    },
    /// Is the application there?
    Probe,
    /// A watched object has changed.
    WatchEvent {
        /// The object.
        object: ObjectId,
        /// Its version.
        version: u64,
        /// Whether it is gone.
        gone: bool,
    },
}

impl Notice {
    /// The message, under number `seq`.
    const fn message(self, seq: u64) -> Message<'static> {
        match self {
            Self::Demand { lock, generation, keep } => Message::Demand(Demand { seq, lock, generation, keep }),
            Self::Grant { nonce, lock, mode, generation, run } => Message::Grant(Grant { seq, nonce, lock, mode, generation, run }),
            Self::WaitOver { nonce, lock, status } => Message::WaitOver(WaitOver { seq, nonce, lock, status }),
            Self::Probe => Message::Probe(Probe { seq }),
            Self::WatchEvent { object, version, gone } => Message::WatchEvent(WatchEvent { seq, object, version, gone }),
        }
    }

    /// The queued request whose end it tells.
    const fn outcome_of(self) -> Option<u64> {
        match self {
            Self::Grant { nonce, .. } | Self::WaitOver { nonce, .. } => Some(nonce),
            Self::Demand { .. } | Self::Probe | Self::WatchEvent { .. } => None,
        }
    }
}

#[derive(Debug)]
struct QueuedNotice {
    seq: u64,
    says: Notice,
    /// Whether it took the place of one that was sent and not receipted.
    takes_over: bool,
    transmissions: u32,
    /// Delivery clock at the first transmission.
    first: Duration,
    /// Clocks at the last transmission.
    sent: Instant,
    /// From when on the delivery has failed, on the delivery clock; meaningless before the third transmission.
    fails: Duration,
    /// When to look at it again, on the delivery clock; `None`: it is to be sent now.
    next: Option<Duration>,
}

/// What became of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoticeVerdict {
    /// Some notices are to be sent again.
    Resend,
    /// The delivery of this notice has failed.
    Failed(Notice),
}

/// A lock that the agent was told to give back.
#[derive(Clone, Copy, Debug)]
struct Demanded {
    /// The newest generation demanded.
    generation: Generation,
    /// The notice on its way.
    seq: Option<u64>,
    /// It has receipted a demand for this generation: by when the lock must be back, on the delivery clock (section 11.3). Cache locks only.
    by: Option<Duration>,
}

/// The notices of one session that have not been receipted, and what is owed after receipt.
#[derive(Debug)]
pub(crate) struct NoticeQueue {
    last_seq: u64,
    /// Ascending by number.
    queue: VecDeque<QueuedNotice>,
    demands: BTreeMap<LockId, Demanded>,
    /// How many of the notices tell how a queued request ended.
    outcomes: usize,
    /// The probe on its way.
    probing: Option<u64>,
    /// Queued requests that ended, newest last: the grant, or none.
    ended_waits: VecDeque<(u64, Option<Generation>)>,
    rtt: RoundTrip,
    /// Td of the session.
    delivery_timeout: Duration,
    /// Its longest RTO.
    rto_cap: Duration,
}

impl NoticeQueue {
    /// No notices yet, for a session with this lease period, whose agent's handshake took `handshake` from CHALLENGE to the HELLO with its
    /// cookie.
    pub(crate) fn new(config: &Config, lease: Duration, handshake: Duration) -> Self {
        Self {
            last_seq: 0,
            queue: VecDeque::new(),
            demands: BTreeMap::new(),
            outcomes: 0,
            probing: None,
            ended_waits: VecDeque::new(),
            rtt: RoundTrip::after(config.rto_cap_for(lease), handshake),
            delivery_timeout: config.delivery_timeout_for(lease),
            rto_cap: config.rto_cap_for(lease),
        }
    }

    /// Adds a notice. A demand takes the place of an older one for the same lock: it covers every generation that the other named (section
    /// 11.4). The same demand again is not another notice: its delivery would never fail.
    pub(crate) fn add(&mut self, notice: Notice) {
        let mut takes_over = false;
        match notice {
            Notice::Demand { lock, generation, .. } => {
                let former = self.demands.get(&lock).copied();
                let on_way = former.and_then(|former| former.seq);
                if on_way.and_then(|seq| self.find(seq)).is_some_and(|at| self.queue[at].says == notice) {
                    return;
                }
                if let Some(former) = on_way.and_then(|seq| self.take(seq)) {
                    takes_over = former.takes_over || former.transmissions > 0;
                }
                // Asking for more of the same generation gives no more time; an older one was given back since.
                let by = former.filter(|former| former.generation == generation).and_then(|former| former.by);
                self.demands.insert(lock, Demanded { generation, seq: Some(self.last_seq + 1), by });
            }
            Notice::Grant { nonce, generation, .. } => self.wait_ended(nonce, Some(generation)),
            Notice::WaitOver { nonce, .. } => self.wait_ended(nonce, None),
            Notice::WatchEvent { .. } => {}
            // One asks for all.
            Notice::Probe if self.probing.is_some() => return,
            Notice::Probe => self.probing = Some(self.last_seq + 1),
        }
        self.last_seq += 1;
        self.outcomes += usize::from(notice.outcome_of().is_some());
        let zero = Duration::ZERO;
        let sent = Instant::new(0, 0);
        self.queue.push_back(QueuedNotice {
            seq: self.last_seq,
            says: notice,
            takes_over,
            transmissions: 0,
            first: zero,
            sent,
            fails: zero,
            next: None,
        });
    }

    /// Remembers how the wait of a queued request ended, for a CANCEL that crosses its notice.
    pub(crate) fn wait_ended(&mut self, nonce: u64, grant: Option<Generation>) {
        self.ended_waits.retain(|ended| ended.0 != nonce);
        if self.ended_waits.len() >= ENDED_WAITS_MAX {
            self.ended_waits.pop_front();
        }
        self.ended_waits.push_back((nonce, grant));
    }

    /// How the wait of `nonce` ended, if that is remembered.
    pub(crate) fn ended_wait(&self, nonce: u64) -> Option<Option<Generation>> {
        self.ended_waits.iter().rev().find(|ended| ended.0 == nonce).map(|ended| ended.1)
    }

    /// Whether every notice that was sent is receipted; some may wait to be sent at all.
    pub(crate) fn is_receipted(&self) -> bool {
        self.queue.iter().all(|notice| notice.transmissions == 0 && !notice.takes_over)
    }

    /// Whether a notice on its way tells how the wait of `nonce` ended.
    pub(crate) fn tells_of(&self, nonce: u64) -> bool {
        self.queue.iter().any(|notice| notice.says.outcome_of() == Some(nonce))
    }

    /// Whether no notice waits for its receipt.
    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// How many notices wait for their receipt.
    pub(crate) fn len(&self) -> usize {
        self.queue.len()
    }

    /// How many outcomes of queued requests wait for their receipts.
    pub(crate) fn outcomes(&self) -> usize {
        self.outcomes
    }

    /// Whether a notice is to be sent now.
    pub(crate) fn has_due(&self, config: &Config) -> bool {
        self.window(config).any(|notice| notice.next.is_none())
    }

    /// Hands each notice that is to be sent now to `push`, until that has no room, and plans what comes after it.
    pub(crate) fn send_due(&mut self, clock: Clock, config: &Config, rng: &mut Rng, mut push: impl FnMut(&Message<'static>) -> bool) {
        let Self { queue, rtt, delivery_timeout, .. } = self;
        for notice in queue.iter_mut().take(usize::from(config.notices_in_flight)).filter(|notice| notice.next.is_none()) {
            if !push(&notice.says.message(notice.seq)) {
                return;
            }
            if notice.transmissions == 0 {
                notice.first = clock.listened;
            }
            let again = clock.listened + rtt.backoff(notice.transmissions, rng);
            notice.transmissions += 1;
            notice.sent = clock.now;
            notice.fails = (notice.first + *delivery_timeout).max(clock.listened + rtt.rto());
            //= wire-spec.md#11-3-failure-and-ending
            //# Before D the server MUST have sent the notice at least three times, and listened for an RTO after each, its receive queue
            //# empty at the end.
            let may_fail = notice.transmissions >= TRANSMISSIONS_MIN;
            // One more would have to be given its RTO, and the decision would come so much later than Td.
            let is_last = may_fail && again + rtt.rto() > notice.fails;
            notice.next = Some(if is_last { notice.fails } else { again });
        }
    }

    /// The next moment on the delivery clock at which a notice must be looked at.
    pub(crate) fn next_deadline(&self, config: &Config) -> Option<Duration> {
        self.window(config).filter_map(|notice| notice.next).min()
    }

    /// A deadline has come: marks what is to be sent again, or says which delivery has failed.
    pub(crate) fn on_deadline(&mut self, listened: Duration, config: &Config) -> NoticeVerdict {
        for notice in self.queue.iter_mut().take(usize::from(config.notices_in_flight)) {
            if notice.next.is_none_or(|next| next > listened) {
                continue;
            }
            let enough = notice.transmissions >= TRANSMISSIONS_MIN || bugs::is(Bug::M43);
            if enough && listened >= notice.fails {
                return NoticeVerdict::Failed(notice.says);
            }
            //= wire-spec.md#6-4-notices
            //# A server MUST repeat a notice until its `seq` is receipted, the delivery has failed, or the session has ended.
            notice.next = None;
        }
        NoticeVerdict::Resend
    }

    /// Forgets every notice as if it had been receipted; a deliberate bug.
    pub(crate) fn give_up(&mut self) {
        self.queue.clear();
        self.demands.retain(|_, demanded| demanded.by.is_some());
        self.demands.values_mut().for_each(|demanded| demanded.seq = None);
        self.outcomes = 0;
        self.probing = None;
    }

    /// Takes the receipt of notice `seq`; gives what that said, or nothing when it was settled before.
    pub(crate) fn receipt(&mut self, seq: u64, now: Instant) -> Option<Notice> {
        let notice = self.take(seq)?;
        // Of a notice sent twice nobody can tell which transmission was answered.
        if notice.transmissions == 1 {
            self.rtt.sample(now.since(notice.sent));
        }
        if let Notice::Demand { lock, .. } = notice.says {
            self.update(lock, |demanded| demanded.seq = None);
        }
        Some(notice.says)
    }

    /// Notes that a cache lock whose demand was receipted must be back by `by` on the delivery clock. Demanding it once more does
    /// not give it more time.
    pub(crate) fn owe(&mut self, lock: LockId, generation: Generation, by: Duration) {
        let demanded = self.demands.entry(lock).or_insert(Demanded { generation, seq: None, by: None });
        if demanded.generation < generation {
            (demanded.generation, demanded.by) = (generation, None);
        }
        demanded.by.get_or_insert(by);
    }

    /// The next moment on the delivery clock at which something owed is overdue.
    pub(crate) fn next_owed(&self) -> Option<Duration> {
        self.demands.values().filter_map(|demanded| demanded.by).min()
    }

    /// One overdue lock: which, and the generation demanded. It stays owed until it is back.
    pub(crate) fn overdue(&self, listened: Duration) -> Option<(LockId, Generation)> {
        let overdue = |demanded: &Demanded| demanded.by.is_some_and(|by| by <= listened);
        self.demands.iter().find(|(_, demanded)| overdue(demanded)).map(|(lock, demanded)| (*lock, demanded.generation))
    }

    /// A lock is not owed any more.
    pub(crate) fn settle_owed(&mut self, lock: LockId) {
        self.update(lock, |demanded| demanded.by = None);
    }

    /// Changes what is known of a lock; forgets it if no notice about it is on the way and it is not owed.
    fn update(&mut self, lock: LockId, change: impl FnOnce(&mut Demanded)) {
        if let Entry::Occupied(mut of) = self.demands.entry(lock) {
            change(of.get_mut());
            if of.get().seq.is_none() && of.get().by.is_none() {
                of.remove();
            }
        }
    }

    /// The agent gave back, or disowned, every generation of `lock` up to `generation`: that is an ACK of each notice about them.
    /// Gives the grant among them, which its agent may not have seen.
    //= wire-spec.md#11-3-failure-and-ending
    //# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
    pub(crate) fn released(&mut self, lock: LockId, generation: Generation) -> Option<Notice> {
        if self.demands.is_empty() && self.outcomes == 0 {
            return None;
        }
        self.receipted(lock, generation);
        if self.demands.get(&lock).is_some_and(|demanded| demanded.generation <= generation) {
            self.demands.remove(&lock);
        }
        // Grants of advisory locks are few; demands, of which there may be thousands, were found by their index.
        let given_back = |notice: &&QueuedNotice| matches!(notice.says, Notice::Grant { lock: of, generation: granted, .. } if of == lock && granted <= generation);
        let seq = self.queue.iter().take(ENDED_WAITS_MAX).find(given_back).map(|notice| notice.seq)?;
        self.take(seq).map(|notice| notice.says)
    }

    /// A demand of `lock` for a generation up to `generation` counts as receipted, if one is on the way: whether one was.
    pub(crate) fn receipted(&mut self, lock: LockId, generation: Generation) -> bool {
        let covered = self.demands.get(&lock).filter(|demanded| demanded.generation <= generation);
        let Some(seq) = covered.and_then(|demanded| demanded.seq) else {
            return false;
        };
        self.take(seq);
        self.update(lock, |demanded| demanded.seq = None);
        true
    }

    /// The agent has moved to a path on which an exchange took so long.
    pub(crate) fn moved(&mut self, round_trip: Duration) {
        self.rtt = RoundTrip::after(self.rto_cap, round_trip);
    }

    fn window(&self, config: &Config) -> impl Iterator<Item = &QueuedNotice> {
        self.queue.iter().take(usize::from(config.notices_in_flight))
    }

    fn find(&self, seq: u64) -> Option<usize> {
        self.queue.binary_search_by_key(&seq, |notice| notice.seq).ok()
    }

    fn take(&mut self, seq: u64) -> Option<QueuedNotice> {
        let at = self.find(seq)?;
        let notice = self.queue.remove(at)?;
        self.probing = self.probing.filter(|probe| *probe != seq);
        self.outcomes -= usize::from(notice.says.outcome_of().is_some());
        Some(notice)
    }
}

/// The two clocks at one moment: the driver's, and how long the server has listened.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// The driver's.
    pub(crate) now: Instant,
    /// The delivery clock's reading.
    pub(crate) listened: Duration,
}

/// Why the server listens for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Deadline {
    /// A notice waits for its receipt: send it again, or give up.
    Delivery,
    /// A demand for a cache lock was receipted: it must be complied with by now (section 11.3).
    Compliance,
    /// Somebody waits for the session and nothing is on the way to it: probe it (section 11.3).
    Probe,
    /// Somebody looked at an ephemeral file of the session: probe it once (section 11.5).
    Look,
}

impl Deadline {
    const ALL: [Self; 4] = [Self::Delivery, Self::Compliance, Self::Probe, Self::Look];
}

/// Deadlines by session and reason, as readings of the delivery clock.
#[derive(Debug, Default)]
pub(crate) struct DeliveryDeadlines {
    due: BTreeSet<(Duration, SessionKey, Deadline)>,
    set: BTreeMap<(SessionKey, Deadline), Duration>,
}

impl DeliveryDeadlines {
    /// Sets the deadline in place of the one that there may be; `None` forgets it.
    pub(crate) fn set(&mut self, key: SessionKey, reason: Deadline, at: Option<Duration>) {
        if let Some(old) = self.set.remove(&(key, reason)) {
            self.due.remove(&(old, key, reason));
        }
        if let Some(at) = at {
            self.set.insert((key, reason), at);
            self.due.insert((at, key, reason));
        }
    }

    /// Whether there is such a deadline.
    pub(crate) fn is_set(&self, key: SessionKey, reason: Deadline) -> bool {
        self.set.contains_key(&(key, reason))
    }

    /// Forgets all deadlines of a session.
    pub(crate) fn forget(&mut self, key: SessionKey) {
        for reason in Deadline::ALL {
            self.set(key, reason, None);
        }
    }

    /// Takes one deadline that is due when the delivery clock shows `elapsed`.
    pub(crate) fn due(&mut self, elapsed: Duration) -> Option<(SessionKey, Deadline)> {
        let &(at, key, reason) = self.due.first()?;
        if at > elapsed {
            return None;
        }
        self.set(key, reason, None);
        Some((key, reason))
    }

    /// The next deadline.
    pub(crate) fn next(&self) -> Option<Duration> {
        self.due.first().map(|first| first.0)
    }

    /// How many deadlines there are; a gauge.
    pub(crate) fn len(&self) -> usize {
        self.set.len()
    }
}
