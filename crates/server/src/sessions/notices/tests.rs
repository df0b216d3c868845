//! When notices go out, again, and for the last time.

use super::*;
use alloc::vec::Vec;
use cistern_wire::{LockClass, ObjectId};

const LOCK: LockId = LockId { object: ObjectId(7), class: LockClass::Cache };

/// What leads to the first timeout of 100 ms.
const HANDSHAKE: Duration = Duration::from_micros(33_333);

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn demand(generation: u64) -> Notice {
    Notice::Demand { lock: LOCK, generation: Generation(generation), keep: Keep::Nothing }
}

struct Bench {
    notices: NoticeQueue,
    config: Config,
    rng: Rng,
    at: Duration,
}

impl Bench {
    fn new() -> Self {
        let config = Config::default();
        Self { notices: NoticeQueue::new(&config, config.lease, HANDSHAKE), config, rng: Rng::from_seed([3; 32]), at: Duration::ZERO }
    }

    /// Sends what is due; gives the numbers sent.
    fn send(&mut self) -> Vec<u64> {
        let ns = u64::try_from(self.at.as_nanos()).unwrap();
        let clock = Clock { now: Instant::new(ns, ns), listened: self.at };
        let mut sent = Vec::new();
        self.notices.send_due(clock, &self.config, &mut self.rng, |message| {
            sent.push(match message {
                Message::Demand(m) => m.seq,
                Message::Grant(m) => m.seq,
                Message::WaitOver(m) => m.seq,
                Message::Probe(m) => m.seq,
                other => panic!("not a notice: {other:?}"),
            });
            true
        });
        sent
    }

    /// Goes to the next deadline.
    fn turn(&mut self) -> NoticeVerdict {
        self.at = self.notices.next_deadline(&self.config).unwrap();
        self.notices.on_deadline(self.at, &self.config)
    }
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# Before D the server MUST have sent the notice at least three times, and listened for an RTO after each, its receive queue empty at the
//# end.
//= wire-spec.md#6-4-notices
//= type=test
//# A server MUST repeat a notice until its `seq` is receipted, the delivery has failed, or the session has ended.
#[test]
fn delivery_fails_after_three_unanswered_transmissions_and_td_not_before() {
    let mut bench = Bench::new();
    bench.at = ms(1_000);
    bench.notices.add(demand(1));
    let mut sends = Vec::new();
    let failed = loop {
        if !bench.send().is_empty() {
            sends.push(bench.at);
        }
        if let NoticeVerdict::Failed(body) = bench.turn() {
            break body;
        }
    };
    assert_eq!(failed, demand(1));
    assert!(sends.len() >= 3, "{sends:?}");
    assert_eq!(bench.at, ms(1_500), "Td after the first transmission");
    assert!(bench.at - *sends.last().unwrap() >= ms(100), "the last one had its RTO");
}

#[test]
fn silent_agent_whose_round_trip_is_known_fails_after_td_at_every_lease_period() {
    for lease in [100, 200, 500, 1_000, 2_000, 10_000].map(ms) {
        for (measured, seed) in [ms(1), lease / 100].into_iter().flat_map(|measured| (0..20).map(move |seed| (measured, seed))) {
            let config = Config::for_lease(lease);
            let notices = NoticeQueue::new(&config, config.lease, HANDSHAKE);
            let mut bench = Bench { notices, config, rng: Rng::from_seed([seed; 32]), at: Duration::ZERO };
            bench.notices.rtt.sample(measured);
            bench.notices.add(demand(1));
            let mut sends = Vec::new();
            loop {
                if !bench.send().is_empty() {
                    sends.push(bench.at);
                }
                if bench.turn() != NoticeVerdict::Resend {
                    break;
                }
            }
            let td = bench.config.delivery_timeout;
            assert!(
                sends.len() >= 3 && bench.at - sends[sends.len() - 1] >= bench.notices.rtt.rto(),
                "τ {lease:?}: {sends:?}, {:?}",
                bench.at
            );
            assert_eq!(bench.at, td, "τ {lease:?}, measured {measured:?}: {sends:?}");
        }
    }
}

#[test]
fn slow_path_postpones_the_failure_until_each_transmission_had_its_round_trip() {
    let mut bench = Bench::new();
    bench.notices.rtt.sample(ms(240));
    bench.notices.add(demand(1));
    let mut last = bench.at;
    let mut transmissions = 0;
    loop {
        if !bench.send().is_empty() {
            last = bench.at;
            transmissions += 1;
        }
        if bench.turn() != NoticeVerdict::Resend {
            break;
        }
    }
    assert_eq!(transmissions, 3);
    assert!(bench.at >= last + ms(250) && bench.at > ms(500));
}

#[test]
fn receipt_settles_its_notice_once() {
    let mut bench = Bench::new();
    bench.notices.add(demand(1));
    bench.notices.add(Notice::Probe);
    assert_eq!(bench.send(), [1, 2]);
    assert_eq!(bench.send(), [], "nothing is due");
    assert_eq!(bench.notices.receipt(1, Instant::new(5, 5)), Some(demand(1)));
    assert_eq!(bench.notices.receipt(1, Instant::new(5, 5)), None);
    assert_eq!(bench.notices.receipt(9, Instant::new(5, 5)), None);
    assert_eq!(bench.notices.len(), 1);
}

//= wire-spec.md#11-3-failure-and-ending
//= type=test
//# A release, or a receipt "not held", for a generation of at least g MUST count as receipt of a demand for g.
#[test]
fn release_of_the_generation_or_a_newer_one_acknowledges_the_demand() {
    for (released, settled) in [(4, false), (5, true), (6, true)] {
        let mut bench = Bench::new();
        bench.notices.add(demand(5));
        bench.send();
        bench.notices.released(LOCK, Generation(released));
        assert_eq!(bench.notices.is_empty(), settled, "release of {released}");
    }
}

#[test]
fn newer_demand_replaces_the_older_under_a_new_number() {
    let mut bench = Bench::new();
    bench.notices.add(demand(5));
    assert_eq!(bench.send(), [1]);
    bench.notices.add(demand(8));
    assert_eq!(bench.notices.receipt(1, Instant::new(1, 1)), None, "a receipt of the older says nothing about the newer");
    assert_eq!(bench.send(), [2]);
    assert_eq!(bench.notices.receipt(2, Instant::new(1, 1)), Some(demand(8)));
}

#[test]
fn repeated_demand_is_neither_sent_twice_nor_given_more_time() {
    let mut bench = Bench::new();
    bench.notices.add(demand(5));
    bench.notices.add(demand(5));
    assert_eq!(bench.send(), [1]);
    bench.notices.receipt(1, Instant::new(1, 1));
    bench.notices.owe(LOCK, Generation(5), ms(10));
    bench.notices.owe(LOCK, Generation(5), ms(20));
    assert_eq!(bench.notices.next_owed(), Some(ms(10)));
    bench.notices.owe(LOCK, Generation(6), ms(30));
    assert_eq!(bench.notices.next_owed(), Some(ms(30)));
}

#[test]
fn only_a_window_of_notices_is_on_the_way_at_once() {
    let mut bench = Bench::new();
    bench.config.notices_in_flight = 2;
    for n in 0..5 {
        let lock = LockId { object: ObjectId(n), class: LockClass::Cache };
        bench.notices.add(Notice::Demand { lock, generation: Generation(1), keep: Keep::Nothing });
    }
    assert_eq!(bench.send(), [1, 2]);
    bench.notices.receipt(1, Instant::new(1, 1));
    assert_eq!(bench.send(), [3]);
}

#[test]
fn one_probe_is_on_the_way_however_often_a_session_is_asked_for() {
    let mut bench = Bench::new();
    for _ in 0..3 {
        bench.notices.add(Notice::Probe);
    }
    assert_eq!(bench.send(), [1]);
    bench.notices.receipt(1, Instant::new(1, 1));
    bench.notices.add(Notice::Probe);
    assert_eq!(bench.send(), [2]);
}

#[test]
fn notice_without_room_stays_due() {
    let mut bench = Bench::new();
    bench.notices.add(Notice::Probe);
    let clock = Clock { now: Instant::new(1, 1), listened: ms(1) };
    bench.notices.send_due(clock, &bench.config, &mut bench.rng, |_| false);
    assert!(bench.notices.has_due(&bench.config));
    assert_eq!(bench.notices.next_deadline(&bench.config), None);
}

#[test]
fn owed_lock_is_overdue_until_it_came_back() {
    let mut bench = Bench::new();
    let other = LockId { object: ObjectId(8), class: LockClass::Cache };
    bench.notices.owe(LOCK, Generation(3), ms(10));
    bench.notices.owe(other, Generation(4), ms(20));
    assert_eq!(bench.notices.next_owed(), Some(ms(10)));
    bench.notices.released(LOCK, Generation(3));
    assert_eq!(bench.notices.next_owed(), Some(ms(20)));
    assert_eq!(bench.notices.overdue(ms(19)), None);
    for _ in 0..2 {
        assert_eq!(bench.notices.overdue(ms(20)), Some((other, Generation(4))));
    }
    bench.notices.settle_owed(other);
    assert_eq!((bench.notices.overdue(ms(20)), bench.notices.next_owed()), (None, None));
}

#[test]
fn end_of_a_wait_is_remembered_for_a_late_cancel() {
    let mut bench = Bench::new();
    let generation = Generation(9);
    bench.notices.add(Notice::Grant { nonce: 4, lock: LOCK, mode: Mode::Shared, generation, run: 1 });
    bench.notices.wait_ended(5, None);
    assert_eq!(bench.notices.ended_wait(4), Some(Some(generation)));
    assert_eq!(bench.notices.ended_wait(5), Some(None));
    assert_eq!(bench.notices.ended_wait(6), None);
    for nonce in 100..200 {
        bench.notices.wait_ended(nonce, None);
    }
    assert_eq!(bench.notices.ended_wait(4), None, "bounded");
}

#[test]
fn deadlines_come_in_order_and_once() {
    let (a, b) = (SessionKey::for_test(1), SessionKey::for_test(2));
    let mut queue = DeliveryDeadlines::default();
    queue.set(a, Deadline::Delivery, Some(ms(30)));
    queue.set(b, Deadline::Probe, Some(ms(20)));
    queue.set(a, Deadline::Delivery, Some(ms(10)));
    assert_eq!((queue.next(), queue.len()), (Some(ms(10)), 2));
    assert_eq!(queue.due(ms(9)), None);
    assert_eq!(queue.due(ms(25)), Some((a, Deadline::Delivery)));
    assert_eq!(queue.due(ms(25)), Some((b, Deadline::Probe)));
    assert_eq!((queue.due(ms(99)), queue.next()), (None, None));
}

#[test]
fn forgotten_session_has_no_deadlines() {
    let a = SessionKey::for_test(1);
    let mut queue = DeliveryDeadlines::default();
    for reason in Deadline::ALL {
        queue.set(a, reason, Some(ms(1)));
    }
    assert!(queue.is_set(a, Deadline::Probe));
    queue.forget(a);
    assert_eq!((queue.len(), queue.next()), (0, None));
}
