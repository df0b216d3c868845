//! Whose request is executed next, and which are executed as they come.
//!
//! Decides by owners: each has a flow, which all of its sessions share. What a flow's messages and requests cost is charged to it when they
//! are done ([`prices`]). A request is executed at once, without a copy, as long as its flow has credit and the slice of this turn is not
//! spent; else it is queued, and flows take turns: those that had nothing to do first, then the others round by round, each with a quantum
//! of credit a round (deficit round robin with the two lists of RFC 8290). Debt stays, also when the last session of the flow has ended, so
//! one large request is paid for by many rounds; a flow that nobody competes with passes its rounds at once. What is queued is bounded by
//! shares, in bytes; what does not fit is shed. A mutation that is first in the line for its objects is executed as long as the slice lasts,
//! whatever its flow owes, for others stand behind it; those that the slice does not reach have as much of the next ones as all else, and begin,
//! flow by flow.
//! Invariants: while anything is queued a slice is spent whole; a flow that has credit waits for no more than one slice and one quantum of each
//! other flow, or twice that beside such mutations; a task is queued once, under the flow and the session that are named with it.
//! Leaves to others: executing, what a request is, when a slice begins (the machine: once in each turn of its driver).

pub(crate) mod prices;
#[cfg(test)]
mod tests;

use crate::config::WorkLimits;
use crate::ids::{FlowId, Owner, TaskId};
use crate::share::{Owners, Shared};
use alloc::collections::{BTreeMap, VecDeque};
use cistern_link::bugs::{self, Bug};

/// A slice has so many quanta.
const QUANTA: i32 = 10;
/// What it costs to look at a flow in a list, in nanoseconds: so a slice ends however many there are.
const LOOKED_AT: i32 = 20;
/// No more debt is kept, in nanoseconds: a flood of control messages is forgiven in the end.
const DEBT_MAX: i32 = 100_000_000;
/// A slice is not made shorter than by so many halves, while receiving alone takes up the turns.
const HALVES_MAX: u32 = 6;
/// Bytes that a queued request costs besides its own.
const AROUND: usize = 256;
/// Owners in debt that are remembered without sessions; who left first is forgotten.
const DEBTORS_MAX: usize = 4_096;
/// Bytes of queued requests that every owner may have.
const RESERVE: usize = 16 << 10;

/// What becomes of a new request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Intake {
    /// It is executed now.
    Now,
    /// It is to be queued.
    Later,
    /// There is no room for it.
    Shed,
}

/// In which list a flow stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Listed {
    Nowhere,
    /// It had nothing to do before.
    New,
    Old,
}

/// All that one owner asks.
#[derive(Debug)]
struct Flow {
    /// Nanoseconds that it may yet cost in this round; below 0: debt.
    credit: i32,
    /// In which round it was last seen to, while it stands in no list.
    round: u32,
    listed: Listed,
    /// Whether it is among the debtors.
    owes: bool,
    queued: u32,
    bytes: usize,
    /// The places of its sessions that have requests queued, in order of their turns.
    turns: VecDeque<u32>,
}

/// The flows, and what is queued.
#[derive(Debug)]
pub(crate) struct Scheduler {
    shared: Shared,
    /// The longest slice and a quantum, in nanoseconds.
    slice_max: i32,
    quantum: i32,
    flows: Owners<Flow>,
    /// Flows whose last sessions have left debts, each once; who left first stands first. Sessions may have come since.
    debtors: VecDeque<FlowId>,
    new: VecDeque<FlowId>,
    old: VecDeque<FlowId>,
    /// What is queued, by session and in order of arrival, with its bytes.
    queued: BTreeMap<(u32, TaskId), usize>,
    bytes: usize,
    /// Mutations that are first in line, by flow, and the flows that have any, in order of their turns.
    first: BTreeMap<FlowId, VecDeque<TaskId>>,
    first_turns: VecDeque<FlowId>,
    /// How much more they have had than all else, since there was both.
    first_ahead: i32,
    /// What was given out last: whether it was one of them, and how much of the slice was spent before.
    given: Option<(bool, i32)>,
    rounds: u32,
    /// The flow that was looked up last; what it was not charged yet; how much of it may be executed as it comes.
    current: FlowId,
    pending: i64,
    allowance: i64,
    /// It has the credit of a whole round, and nobody waits: a turn that leaves it within that needs no account.
    alone: bool,
    /// How long the present slice is, and how much of it is spent.
    slice: i32,
    spent: i32,
    halves: u32,
    /// Charged since the start, in nanoseconds.
    charged: u64,
}

/// Figures of the scheduler.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkCounts {
    /// Owners that have sessions.
    pub owners: usize,
    /// Requests that wait for their turn.
    pub queued: usize,
    /// Their bytes, as they are counted.
    pub queued_bytes: usize,
    /// What all messages and requests were charged since the start, in nanoseconds.
    pub charged_ns: u64,
}

impl Scheduler {
    /// No flows.
    pub(crate) fn new(limits: WorkLimits) -> Self {
        let slice = i32::try_from(limits.slice.as_nanos()).unwrap_or(i32::MAX).max(QUANTA);
        Self {
            shared: Shared { capacity: limits.queued_bytes, reserve: RESERVE },
            slice_max: slice,
            quantum: slice / QUANTA,
            flows: Owners::default(),
            debtors: VecDeque::new(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            queued: BTreeMap::new(),
            bytes: 0,
            first: BTreeMap::new(),
            first_turns: VecDeque::new(),
            first_ahead: 0,
            given: None,
            rounds: 0,
            current: FlowId::NONE,
            pending: 0,
            allowance: 0,
            alone: false,
            slice,
            spent: 0,
            halves: 0,
            charged: 0,
        }
    }

    /// A session of `owner` is open.
    pub(crate) fn join(&mut self, owner: Owner) -> FlowId {
        let (credit, round) = (self.quantum, self.rounds);
        let new = || Flow { credit, round, listed: Listed::Nowhere, owes: false, queued: 0, bytes: 0, turns: VecDeque::new() };
        FlowId(self.flows.join(owner, new))
    }

    /// The flow of an owner, and how many sessions it has.
    pub(crate) fn of_owner(&self, owner: Owner) -> (FlowId, usize) {
        self.flows.find(owner).map_or((FlowId::NONE, 0), |(at, sessions)| (FlowId(at), sessions))
    }

    /// What the flow of an owner may yet cost in this round.
    #[cfg(test)]
    pub(crate) fn credit_of(&mut self, owner: Owner) -> Option<i32> {
        self.settle();
        self.flows.find(owner).map(|(at, _)| self.flows[at].credit)
    }

    /// A session of a flow has ended; nothing of it is queued. A debt outlives the last one: or a new session would pay it.
    pub(crate) fn part(&mut self, id: FlowId) {
        if id == FlowId::NONE || !self.flows.leave(id.0) {
            return;
        }
        self.settle();
        debug_assert_eq!(self.flows[id.0].queued, 0, "what is queued belongs to a session");
        self.new.retain(|other| *other != id);
        self.old.retain(|other| *other != id);
        let flow = &mut self.flows[id.0];
        flow.unlist(self.rounds);
        flow.catch_up(self.rounds, self.quantum);
        if flow.owes {
            return;
        }
        if flow.credit >= 0 {
            return self.flows.remove(id.0);
        }
        flow.owes = true;
        self.debtors.push_back(id);
        if self.debtors.len() > DEBTORS_MAX
            && let Some(oldest) = self.debtors.pop_front()
        {
            self.flows[oldest.0].owes = false;
            self.flows.remove(oldest.0);
        }
    }

    /// A datagram of a session of this flow has come.
    #[inline]
    pub(crate) fn arrive(&mut self, id: FlowId) {
        if id != self.current {
            self.look_up(id);
        }
        self.pending += i64::from(prices::DATAGRAM);
    }

    /// A new request of `bytes` has come.
    #[inline]
    pub(crate) fn enter(&mut self, id: FlowId, bytes: usize) -> Intake {
        if id == self.current && self.pending < self.allowance { Intake::Now } else { self.enter_anew(id, bytes) }
    }

    /// What the flow had when it was looked up is used up.
    fn enter_anew(&mut self, id: FlowId, bytes: usize) -> Intake {
        self.look_up(id);
        if self.allowance > 0 || bugs::is(Bug::F3) {
            return Intake::Now;
        }
        let own = self.flows.get(id.0).map_or(0, |flow| flow.bytes);
        // One fits always, however large it is.
        let room = self.queued.is_empty() || self.shared.admits(self.bytes, own, bytes + AROUND);
        if room { Intake::Later } else { Intake::Shed }
    }

    /// Notes how much of a flow may be executed as it comes.
    fn look_up(&mut self, id: FlowId) {
        self.settle();
        let Some(flow) = self.flows.get_mut(id.0) else {
            (self.current, self.allowance) = (FlowId::NONE, i64::MAX);
            return;
        };
        flow.catch_up(self.rounds, self.quantum);
        if flow.credit <= 0 && flow.listed == Listed::Nowhere && self.queued.is_empty() {
            // It competes with nobody: its next rounds are now.
            let passed = flow.credit.unsigned_abs() / self.quantum.unsigned_abs() + 1;
            self.rounds = self.rounds.wrapping_add(passed);
            flow.catch_up(self.rounds, self.quantum);
        }
        let left = self.slice - self.spent;
        self.current = id;
        self.allowance = if flow.queued == 0 { flow.credit.min(left).into() } else { 0 };
        self.alone = flow.credit.min(left) == self.quantum && self.queued.is_empty() && self.first.is_empty() && self.halves == 0;
    }

    /// Charges what was not yet charged to the flow that was looked up last.
    fn settle(&mut self) {
        let (id, pending) = (core::mem::replace(&mut self.current, FlowId::NONE), core::mem::take(&mut self.pending));
        self.alone = false;
        if pending > 0 {
            self.charge_to(id, i32::try_from(pending).unwrap_or(i32::MAX));
        }
    }

    /// Queues the request that is `task` of the session in `place`.
    pub(crate) fn queue(&mut self, id: FlowId, place: u32, task: TaskId, bytes: usize) {
        self.line_up(id, place, task, bytes + AROUND);
    }

    /// Queues a request that was taken in before, and has waited for something else: it takes no room from those that come, however many do
    /// so at a time.
    pub(crate) fn queue_again(&mut self, id: FlowId, place: u32, task: TaskId) {
        self.line_up(id, place, task, 0);
    }

    fn line_up(&mut self, id: FlowId, place: u32, task: TaskId, bytes: usize) {
        self.settle();
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        let first = self.queued.range((place, TaskId::NONE)..=(place, TaskId::MAX)).next().is_none();
        if first {
            flow.turns.push_back(place);
        }
        let former = self.queued.insert((place, task), bytes);
        debug_assert!(former.is_none(), "a task is queued once");
        flow.queued += 1;
        flow.bytes += bytes;
        self.bytes += bytes;
        if flow.listed == Listed::Nowhere {
            flow.listed = Listed::New;
            self.new.push_back(id);
        }
    }

    /// Whether a mutation that is first in line is executed now: whatever waits behind it has waited long enough for its owner.
    pub(crate) fn enter_first(&self) -> bool {
        self.first.is_empty() && i64::from(self.spent) + self.pending < i64::from(self.slice) || bugs::is(Bug::F3)
    }

    /// Queues a mutation that is first in line.
    pub(crate) fn queue_first(&mut self, id: FlowId, task: TaskId) {
        self.settle();
        let tasks = self.first.entry(id).or_default();
        if tasks.is_empty() {
            self.first_turns.push_back(id);
        }
        tasks.push_back(task);
    }

    /// Takes the next of these: their flows take turns.
    fn take_first(&mut self) -> Option<TaskId> {
        let id = self.first_turns.pop_front()?;
        let tasks = self.first.get_mut(&id)?;
        let task = tasks.pop_front();
        if tasks.is_empty() {
            self.first.remove(&id);
        } else {
            self.first_turns.push_back(id);
        }
        task
    }

    fn withdraw_first(&mut self, id: FlowId, task: TaskId) {
        let Some(tasks) = self.first.get_mut(&id) else { return };
        tasks.retain(|other| *other != task);
        if tasks.is_empty() {
            self.first.remove(&id);
            self.first_turns.retain(|other| *other != id);
        }
    }

    /// A queued request was dropped.
    pub(crate) fn withdraw(&mut self, id: FlowId, place: u32, task: TaskId) {
        self.settle();
        let Some(bytes) = self.queued.remove(&(place, task)) else { return self.withdraw_first(id, task) };
        let Some(flow) = self.flows.get_mut(id.0) else { return };
        flow.queued -= 1;
        flow.bytes -= bytes;
        self.bytes -= bytes;
        if self.queued.range((place, TaskId::NONE)..=(place, TaskId::MAX)).next().is_none() {
            flow.turns.retain(|other| *other != place);
        }
    }

    /// A flow has cost so many nanoseconds.
    #[inline]
    pub(crate) fn charge(&mut self, id: FlowId, cost: u32) {
        if id == self.current {
            self.pending += i64::from(cost);
        } else {
            self.charge_to(id, i32::try_from(cost).unwrap_or(i32::MAX));
        }
    }

    fn charge_to(&mut self, id: FlowId, cost: i32) {
        self.charged += u64::from(cost.unsigned_abs());
        self.spent = self.spent.saturating_add(cost);
        if let Some(flow) = self.flows.get_mut(id.0) {
            flow.catch_up(self.rounds, self.quantum);
            flow.credit = flow.credit.saturating_sub(cost).max(-DEBT_MAX);
        }
    }

    /// The turn of what is queued begins; `emptied`: the socket was found empty before. Says whether anything is queued.
    #[inline]
    pub(crate) fn begin_work(&mut self, emptied: bool) -> bool {
        if emptied && self.alone && self.pending <= self.allowance {
            // Whoever asked last has all its credit again after a round: it need not be looked up anew.
            self.charged += core::mem::take(&mut self.pending).cast_unsigned();
            self.rounds = self.rounds.wrapping_add(1);
            return false;
        }
        self.begin_shared(emptied)
    }

    /// As [`Self::begin_work`], where whoever asked last is not alone, or has asked for much.
    fn begin_shared(&mut self, emptied: bool) -> bool {
        self.settle();
        self.rounds = self.rounds.wrapping_add(1);
        if self.queued.is_empty() {
            // Who stands in a list is not seen to before something is queued again.
            let rounds = self.rounds;
            for id in self.new.drain(..).chain(self.old.drain(..)) {
                self.flows[id.0].unlist(rounds);
            }
            if emptied && self.halves == 0 && self.first.is_empty() {
                return false;
            }
        }
        // Receiving alone takes up the turns: the socket is to be looked at more often, or the kernel drops anybody's datagrams.
        self.halves = if emptied { 0 } else { (self.halves + 1).min(HALVES_MAX) };
        self.slice = self.slice_max >> self.halves;
        // What was executed as it came is a part of the slice, but must not take up all of it.
        self.spent = self.spent.min(self.slice - self.slice / 4);
        self.first_ahead = self.first_ahead.max(-self.slice / 2);
        self.has_work()
    }

    /// The slice is over: what comes from now on is a part of the next one.
    #[inline]
    pub(crate) fn end_slice(&mut self) {
        self.spent = 0;
    }

    /// What is to be executed next in this slice; `None`: it is spent, or nothing is queued.
    pub(crate) fn next(&mut self) -> Option<TaskId> {
        self.settle();
        if let Some((first, before)) = self.given.take() {
            // What it cost may be many slices.
            let cost = self.spent.saturating_sub(before);
            self.first_ahead = self.first_ahead.saturating_add(if first { cost } else { -cost });
        }
        while self.spent < self.slice {
            let others = !self.new.is_empty() || !self.old.is_empty();
            if self.first.is_empty() || !others {
                self.first_ahead = 0;
            }
            if self.first_ahead <= 0
                && let Some(task) = self.take_first()
            {
                self.given = Some((true, self.spent));
                return Some(task);
            }
            let id = *self.new.front().or_else(|| self.old.front())?;
            self.spent += LOOKED_AT;
            let flow = &mut self.flows[id.0];
            let in_debt = flow.credit <= 0;
            if !in_debt && flow.queued > 0 {
                self.given = Some((false, self.spent));
                return self.take(id);
            }
            let list = if flow.listed == Listed::New { &mut self.new } else { &mut self.old };
            list.pop_front();
            if in_debt && flow.queued > 0 || flow.listed == Listed::New {
                // An emptied new flow passes the old ones once, too: or it would be new again with its next request (RFC 8290, section 4.2).
                if in_debt {
                    flow.credit += self.quantum;
                }
                flow.listed = Listed::Old;
                self.old.push_back(id);
            } else {
                flow.unlist(self.rounds);
            }
        }
        None
    }

    /// Takes the next request of a flow: its sessions take turns.
    fn take(&mut self, id: FlowId) -> Option<TaskId> {
        let flow = &mut self.flows[id.0];
        let place = flow.turns.pop_front()?;
        let mut of_session = self.queued.range((place, TaskId::NONE)..=(place, TaskId::MAX)).map(|((_, task), bytes)| (*task, *bytes));
        let (task, bytes) = of_session.next()?;
        if of_session.next().is_some() {
            flow.turns.push_back(place);
        }
        self.queued.remove(&(place, task));
        flow.queued -= 1;
        flow.bytes -= bytes;
        self.bytes -= bytes;
        Some(task)
    }

    /// Whether anything is queued.
    #[inline]
    pub(crate) fn has_work(&self) -> bool {
        !self.queued.is_empty() || !self.first.is_empty()
    }

    /// Its figures.
    pub(crate) fn counts(&self) -> WorkCounts {
        WorkCounts {
            owners: self.flows.with_sessions(),
            queued: self.queued.len() + self.first.values().map(VecDeque::len).sum::<usize>(),
            queued_bytes: self.bytes,
            charged_ns: self.charged,
        }
    }
}

impl Flow {
    /// It stands in no list any more: its rounds pass by themselves from now on.
    fn unlist(&mut self, rounds: u32) {
        if self.listed != Listed::Nowhere {
            (self.listed, self.round) = (Listed::Nowhere, rounds);
        }
    }

    /// Rounds may have passed in which it had nothing to do: it has no more credit than of one of them, and has paid that much of its debt.
    fn catch_up(&mut self, rounds: u32, quantum: i32) {
        if self.listed != Listed::Nowhere || self.round == rounds {
            return;
        }
        let passed = rounds.wrapping_sub(self.round);
        self.round = rounds;
        let gained = i32::try_from(passed).unwrap_or(i32::MAX).saturating_mul(quantum);
        self.credit = self.credit.saturating_add(gained).min(quantum);
    }
}
