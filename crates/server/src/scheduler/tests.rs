//! What the scheduler promises, on itself alone: it is told what things cost, and says what comes next.

use super::*;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use proptest::prelude::*;

const US: i32 = 1_000;
/// A slice of 1 ms and quanta of 100 µs.
const SLICE: i32 = 1_000 * US;
const QUANTUM: i32 = 100 * US;

fn owner(n: usize) -> Owner {
    Owner::V4(u32::try_from(n).unwrap().to_be_bytes())
}

/// A scheduler, and what each of its tasks costs when it is executed.
struct Bench {
    scheduler: Scheduler,
    flows: Vec<FlowId>,
    tasks: BTreeMap<TaskId, (usize, i32)>,
    last: u64,
    /// The flows of the tasks that were executed, in order, and what each cost.
    done: Vec<(usize, i32)>,
}

impl Bench {
    fn new(flows: usize) -> Self {
        let mut scheduler = Scheduler::new(WorkLimits { slice: Duration::from_millis(1), queued_bytes: 1 << 20 });
        let flows = (0..flows).map(|n| scheduler.join(owner(n))).collect();
        Self { scheduler, flows, tasks: BTreeMap::new(), last: 0, done: Vec::new() }
    }

    /// A request comes.
    fn asks(&mut self, flow: usize, cost: i32) -> Intake {
        self.asks_in(flow, u32::try_from(flow).unwrap(), cost)
    }

    fn asks_in(&mut self, flow: usize, place: u32, cost: i32) -> Intake {
        let entry = self.scheduler.enter(self.flows[flow], 100);
        match entry {
            Intake::Now => self.execute(flow, cost),
            Intake::Later => {
                self.last += 1;
                self.tasks.insert(TaskId(self.last), (flow, cost));
                self.scheduler.queue(self.flows[flow], place, TaskId(self.last), 100);
            }
            Intake::Shed => {}
        }
        entry
    }

    fn execute(&mut self, flow: usize, cost: i32) {
        self.scheduler.charge(self.flows[flow], cost.unsigned_abs());
        self.done.push((flow, cost));
    }

    /// The work of one turn; whether the slice was spent.
    fn works(&mut self) -> bool {
        self.scheduler.begin_work(true);
        while let Some(task) = self.scheduler.next() {
            let (flow, cost) = self.tasks.remove(&task).expect("a task runs once");
            self.execute(flow, cost);
        }
        let spent = self.scheduler.spent >= self.scheduler.slice;
        self.scheduler.end_slice();
        spent
    }

    /// The work of one turn as the machine does it: nothing is looked at unless something is queued.
    fn works_if_any(&mut self) {
        if self.scheduler.has_work() {
            self.works();
        } else {
            self.scheduler.begin_work(true);
            self.scheduler.end_slice();
        }
    }

    /// So much backlog that nothing else is executed as it comes.
    fn backlog(&mut self, flow: usize, requests: usize, cost: i32) {
        for _ in 0..requests {
            self.asks(flow, cost);
        }
        assert!(self.scheduler.has_work());
    }

    fn cost_of(&self, flow: usize) -> i32 {
        self.done.iter().filter(|(of, _)| *of == flow).map(|(_, cost)| cost).sum()
    }
}

#[test]
fn who_asks_alone_is_served_at_once_until_the_slice_is_spent() {
    let mut bench = Bench::new(2);
    for _ in 0..10 {
        assert_eq!(bench.asks(0, QUANTUM), Intake::Now);
    }
    assert_eq!(bench.asks(0, US), Intake::Later);
    assert_eq!(bench.asks(1, US), Intake::Later, "the slice is everybody's");
    bench.works();
    assert_eq!(bench.done[10..], [(0, US), (1, US)], "in order of arrival: both are new");
    assert!(!bench.scheduler.has_work());
}

#[test]
fn who_had_nothing_to_do_waits_for_no_backlog() {
    let mut bench = Bench::new(3);
    bench.backlog(0, 200, 90 * US);
    bench.works();
    bench.works();
    let before = bench.done.len();
    bench.asks(1, 10 * US);
    bench.works();
    assert_eq!(bench.done.get(before), Some(&(1, 10 * US)), "served as it came or first of all");
}

#[test]
fn debt_is_paid_by_rounds_also_by_who_is_idle_meanwhile() {
    let mut bench = Bench::new(2);
    bench.backlog(1, 300, 50 * US);
    bench.works();
    // It was never here before: it is let in, and runs up a debt of nine rounds.
    bench.asks(0, 10 * QUANTUM);
    bench.works();
    bench.asks(0, US);
    let (before, round) = (bench.cost_of(1), bench.done.len());
    while bench.done[round..].iter().all(|(flow, _)| *flow != 0) {
        bench.works();
    }
    assert!(bench.cost_of(1) - before >= 5 * QUANTUM, "{}", bench.cost_of(1) - before);
}

#[test]
fn debt_does_not_hold_back_who_competes_with_nobody() {
    let mut bench = Bench::new(1);
    for _ in 0..100 {
        assert_eq!(bench.asks(0, 3 * QUANTUM), Intake::Now);
        bench.works();
    }
}

#[test]
fn control_messages_are_paid_for_by_later_requests() {
    let mut bench = Bench::new(2);
    bench.backlog(1, 300, 50 * US);
    bench.works();
    bench.scheduler.charge(bench.flows[0], (5 * QUANTUM).unsigned_abs());
    assert_eq!(bench.asks(0, US), Intake::Later);
    let before = bench.cost_of(1);
    bench.works();
    assert!(bench.cost_of(1) - before >= 2 * QUANTUM);
}

#[test]
fn sessions_of_one_owner_take_turns() {
    let mut bench = Bench::new(1);
    for _ in 0..20 {
        bench.asks_in(0, 7, QUANTUM);
    }
    bench.asks_in(0, 8, US);
    let before = bench.done.len();
    bench.works();
    assert!(bench.done[before..before + 2].contains(&(0, US)), "{:?}", &bench.done[before..]);
}

#[test]
fn share_of_the_queue_is_bounded_and_leaves_room_for_others() {
    let mut bench = Bench::new(2);
    let mut entries = (0..10_000).map(|_| bench.asks(0, SLICE)).collect::<Vec<_>>();
    assert_eq!(entries.pop(), Some(Intake::Shed));
    let counts = bench.scheduler.counts();
    assert!(counts.queued_bytes <= (1 << 20) * 4 / 5 + 1_000, "{counts:?}");
    assert_eq!(bench.asks(1, US), Intake::Later);
}

#[test]
fn what_is_dropped_is_not_executed_and_gives_its_bytes_back() {
    let mut bench = Bench::new(1);
    bench.backlog(0, 14, QUANTUM);
    for task in bench.tasks.keys() {
        bench.scheduler.withdraw(bench.flows[0], 0, *task);
    }
    let before = bench.done.len();
    bench.works();
    assert_eq!(bench.done.len(), before);
    let counts = bench.scheduler.counts();
    assert_eq!((counts.queued, counts.queued_bytes), (0, 0));
}

#[test]
fn flow_is_forgotten_with_its_last_session() {
    let mut bench = Bench::new(1);
    let again = bench.scheduler.join(owner(0));
    assert_eq!(again, bench.flows[0]);
    bench.scheduler.part(again);
    bench.backlog(0, 12, QUANTUM);
    let tasks: Vec<TaskId> = bench.tasks.keys().copied().collect();
    tasks.into_iter().for_each(|task| bench.scheduler.withdraw(again, 0, task));
    bench.scheduler.part(again);
    assert_eq!(bench.scheduler.counts().owners, 0);
    bench.works();
    assert_ne!(bench.scheduler.join(owner(9)), FlowId::NONE);
}

#[test]
fn slices_are_shorter_as_long_as_receiving_takes_up_the_turns() {
    let mut bench = Bench::new(1);
    for _ in 0..3 {
        bench.scheduler.begin_work(false);
        bench.scheduler.end_slice();
    }
    assert_eq!(bench.scheduler.slice, SLICE / 8);
    bench.scheduler.begin_work(true);
    assert_eq!(bench.scheduler.slice, SLICE);
}

/// What others are served while a flow waits that has run up a debt, and after that everybody was idle for long.
fn waited_after_an_idle_time(is_queued: bool) -> i32 {
    let mut bench = Bench::new(2);
    if is_queued {
        // Its last request is queued, and costs more than the slice: the flow stays in a list.
        bench.backlog(0, 11, QUANTUM);
        let last = *bench.tasks.keys().next_back().unwrap();
        bench.tasks.insert(last, (0, 50 * SLICE));
    } else {
        bench.asks(0, 50 * SLICE);
    }
    bench.works();
    assert!(!bench.scheduler.has_work());
    for _ in 0..1_000 {
        bench.works_if_any();
    }
    bench.backlog(1, 3_000, 50 * US);
    bench.works();
    let (before, done) = (bench.cost_of(1), bench.done.len());
    bench.asks(0, US);
    while bench.done[done..].iter().all(|(flow, _)| *flow != 0) {
        bench.works();
    }
    bench.cost_of(1) - before
}

#[test]
fn idle_time_pays_the_debt_of_who_had_something_queued_too() {
    let (at_once, queued) = (waited_after_an_idle_time(false), waited_after_an_idle_time(true));
    assert!(queued <= at_once + SLICE, "{queued} of others' work, {at_once} for who was in no list");
}

#[test]
fn new_session_does_not_clear_a_debt() {
    let mut bench = Bench::new(2);
    bench.backlog(1, 2_000, 50 * US);
    bench.works();
    bench.works();
    let (mut mine, others) = (0, bench.cost_of(1));
    for _ in 0..50 {
        if bench.scheduler.enter(bench.flows[0], 100) == Intake::Now {
            bench.execute(0, 5 * SLICE);
            mine += 5 * SLICE;
        }
        bench.works();
        bench.scheduler.part(bench.flows[0]);
        assert_eq!(bench.scheduler.counts().owners, 1, "it has no session");
        bench.flows[0] = bench.scheduler.join(owner(0));
    }
    let others = bench.cost_of(1) - others;
    assert!(mine <= 2 * others, "it had {mine}, the other, who always had something queued, {others}");
}

#[test]
fn debtors_without_sessions_are_bounded() {
    let mut bench = Bench::new(1);
    bench.backlog(0, 12, QUANTUM);
    for n in 1..=5_000 {
        let flow = bench.scheduler.join(owner(n));
        bench.scheduler.charge(flow, (2 * QUANTUM).unsigned_abs());
        bench.scheduler.part(flow);
    }
    assert_eq!((bench.scheduler.flows.len(), bench.scheduler.counts().owners), (1 + DEBTORS_MAX, 1));
}

#[test]
fn what_is_queued_again_comes_before_what_its_session_asked_later() {
    let mut bench = Bench::new(2);
    bench.backlog(0, 20, QUANTUM);
    let early = TaskId(0);
    let bytes = bench.scheduler.counts().queued_bytes;
    bench.scheduler.queue_again(bench.flows[0], 0, early);
    assert_eq!(bench.scheduler.counts().queued_bytes, bytes, "it takes no room from those that come");
    bench.tasks.insert(early, (0, US));
    while bench.scheduler.has_work() {
        bench.works();
    }
    assert_eq!(bench.done.iter().position(|done| *done == (0, US)), Some(10), "right after what was executed as it came");
}

/// What an agent has to write back before it gives a lock up stands behind what it has asked before, in no lane of its own.
#[test]
fn write_back_behind_a_whole_window_waits_for_few_rounds_of_others() {
    let others = 20;
    let mut bench = Bench::new(1 + others);
    for other in 1..=others {
        for _ in 0..100 {
            bench.asks(other, QUANTUM / 2);
        }
    }
    bench.works();
    let before: i32 = (1..=others).map(|other| bench.cost_of(other)).sum();
    let window = 256;
    for _ in 0..window {
        assert_ne!(bench.asks(0, 3_500), Intake::Shed);
    }
    while bench.done.iter().filter(|(flow, _)| *flow == 0).count() < window {
        assert!(bench.scheduler.has_work());
        bench.works();
    }
    let waited: i32 = (1..=others).map(|other| bench.cost_of(other)).sum::<i32>() - before;
    let rounds = i32::try_from(window).unwrap() * 3_500 / QUANTUM + 2;
    assert!(waited <= rounds * i32::try_from(others).unwrap() * (QUANTUM + QUANTUM / 2), "{waited} ns of others' work");
}

proptest! {
    #[test]
    fn nobody_idles_while_anything_is_queued(
        asked in proptest::collection::vec((0usize..5, 1i32..300), 1..200),
        pauses in proptest::collection::vec(0usize..20, 1..50),
    ) {
        let mut bench = Bench::new(5);
        let mut asked = asked.into_iter();
        for pause in pauses {
            for (flow, cost) in asked.by_ref().take(pause) {
                bench.asks(flow, cost * US);
            }
            let spent = bench.works();
            prop_assert!(spent || !bench.scheduler.has_work());
        }
        while bench.scheduler.has_work() {
            bench.works();
        }
        prop_assert!(bench.tasks.is_empty());
    }

    #[test]
    fn backlogs_share_alike_whatever_their_requests_cost(costs in proptest::collection::vec(1i32..300, 2..6)) {
        let mut bench = Bench::new(costs.len());
        let mut before = Vec::new();
        for turn in 0..60 {
            for (flow, cost) in costs.iter().enumerate() {
                // Always enough for two slices.
                let queued = bench.scheduler.flows[bench.flows[flow].0].queued;
                let wanted = 2 * SLICE / (cost * US) + 2;
                for _ in queued.cast_signed()..wanted {
                    bench.asks(flow, cost * US);
                }
            }
            bench.works();
            if turn == 19 {
                before = (0..costs.len()).map(|flow| bench.cost_of(flow)).collect();
            }
        }
        let gained: Vec<i32> = (0..costs.len()).map(|flow| bench.cost_of(flow) - before[flow]).collect();
        let (least, most) = (gained.iter().min().unwrap(), gained.iter().max().unwrap());
        // A quantum and the largest request apart at both ends.
        prop_assert!(most - least <= 2 * (QUANTUM + 300 * US), "{gained:?}");
    }

    #[test]
    fn who_has_credit_waits_for_a_quantum_of_each_other(others in proptest::collection::vec(1i32..300, 1..8), cost in 1i32..100) {
        let mut bench = Bench::new(others.len() + 1);
        let mine = others.len();
        for (flow, cost) in others.iter().enumerate() {
            for _ in 0..100 {
                bench.asks(flow, cost * US);
            }
        }
        bench.works();
        let before = bench.done.len();
        bench.asks(mine, cost * US);
        for _ in 0..100 {
            if bench.done[before..].iter().any(|(flow, _)| *flow == mine) {
                break;
            }
            bench.works();
        }
        let waited: i32 = bench.done[before..].iter().take_while(|(flow, _)| *flow != mine).map(|(_, cost)| cost).sum();
        let bound: i32 = others.iter().map(|cost| QUANTUM + cost * US).sum();
        prop_assert!(waited <= bound, "{waited} of {bound}");
    }
}

#[test]
fn mutations_first_in_line_take_half_of_the_time_however_long_each_of_them_is() {
    let mut bench = Bench::new(3);
    bench.backlog(0, 30, 90 * US);
    while bench.scheduler.has_work() {
        bench.works();
    }
    // Each takes more than a slice; the others are asked for when the slice is spent, and are in nobody's debt.
    for _ in 0..40 {
        bench.last += 1;
        bench.tasks.insert(TaskId(bench.last), (1, 3 * SLICE));
        bench.scheduler.queue_first(bench.flows[1], TaskId(bench.last));
    }
    bench.scheduler.charge(bench.flows[0], SLICE.unsigned_abs());
    for _ in 0..40 {
        assert_eq!(bench.asks(2, 50 * US), Intake::Later);
    }
    for _ in 0..10 {
        bench.works();
    }
    let (first, others) = (bench.cost_of(1), bench.cost_of(2));
    assert_eq!(others, 40 * 50 * US, "{first} ns for those that stand in line");
    assert!(first >= 6 * SLICE, "{first} ns");
}
