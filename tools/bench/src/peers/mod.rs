//! The same lock, durable write and read on etcd, ZooKeeper, Redis and ours, in one run.
//!
//! Decides the loads and what is alike: one node on loopback, its data in a directory on the same disk, 128-byte values, keys of their own
//! for all that is in flight, nobody pinned; one request after the other, then 64 in flight. Each service is asked as its users ask it:
//! etcd by its lock service and linearizable reads, ZooKeeper by the lock recipe and the session's reads, Redis by SET NX PX and a
//! compare-and-delete script (a lock that is not safe), with an fsync for each write. One that is not installed is skipped, by name.
//! Place: a workload. Invariant: a process started here is ended here, by its process id, and its directory goes with it.
//! Before it is measured each is asked the same until its rate no longer rises, for what a Java program has not compiled yet is slow.
//! Leaves to others: starting them (`process`), asking each (`etcd`, `zookeeper`, `redis`), ours through its library (`library`) and by
//! the generator of the other workloads (`ours`), sessions that only stay alive (`idle`), failovers (`failover`), our store on
//! etcd (`on_etcd`, a workload of its own), leaders that are killed (`leaders`, beside the workload of groups).

mod asked;
mod etcd;
mod failover;
mod idle;
mod leaders;
mod library;
pub(crate) mod on_etcd;
mod ours;
mod process;
mod redis;
mod zookeeper;

pub(crate) use leaders::leaders_lost;
pub(crate) use process::end_with;
pub(crate) use zookeeper::ensemble;

use crate::cases::Plan;
use crate::figures::{Spread, count};
use crate::progress::Progress;
use crate::section::{Row, Section, digits};
use crate::trouble::Trouble;
use hdrhistogram::Histogram;
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests in flight where there are many.
pub(crate) const MANY: usize = 64;
/// Length of a look at the rate while warming up, looks without a new best rate after which it no longer rises, and what is one.
const LOOK: Duration = Duration::from_millis(500);
const STILL: u32 = 3;
const RISE: f64 = 1.03;
/// Longest request told apart, in nanoseconds.
const LONGEST_NS: u64 = 60_000_000_000;

/// What is asked of everybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// An exclusive lock that nobody has, and giving it back: one operation.
    Lock,
    /// 128 bytes, on the disk before the answer.
    Write,
    /// What was written, as it is now.
    Read,
}

impl Ask {
    const ALL: [Self; 3] = [Self::Lock, Self::Write, Self::Read];

    const fn name(self) -> &'static str {
        match self {
            Self::Lock => "lock",
            Self::Write => "durable write",
            Self::Read => "read",
        }
    }
}

/// What one round of one service brought.
#[derive(Debug)]
pub(crate) struct ServiceRound {
    pub(crate) operations: u64,
    pub(crate) elapsed: Duration,
    pub(crate) took_ns: Histogram<u64>,
    pub(crate) cpu_ns: u64,
}

/// A service that is running, and a client of it.
pub(crate) trait Service {
    /// What it is called in tables.
    fn name(&self) -> String;

    /// Asks for `span`, with so many in flight; its server's CPU time is read before and after.
    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble>;

    /// Whether it can be asked this.
    fn takes(&self, _ask: Ask, _in_flight: usize) -> bool {
        true
    }
}

/// An empty histogram of a round.
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 to 6 * 10^10 with three digits is a valid range")
}

/// What is measured besides the loads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Extent {
    /// Sessions that only stay alive.
    pub(crate) sessions: usize,
    /// Longest warming up of one service for one kind of request.
    pub(crate) warm_up: Duration,
}

/// Measures everybody who is there: loads, the same at a glance, idle sessions, failovers.
pub(crate) fn run(dir: &Path, extent: Extent, plan: &Plan, progress: &Progress) -> Result<Vec<Section>, Trouble> {
    let loads = loads(dir, extent.warm_up, plan, progress)?;
    let glance = glance(&loads);
    Ok(vec![loads, glance, idle::run(dir, extent.sessions, plan, progress)?, failover::run(dir, plan, progress)?])
}

fn loads(dir: &Path, warm_up: Duration, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let title = "the same lock + unlock, durable write of 128 B and read, one node each on loopback, in one run";
    let mut section = Section::new("peers", title);
    progress.say("starting the peers");
    let mut services: Vec<Box<dyn Service>> = vec![Box::new(library::Library::start(dir, plan)?), Box::new(ours::Ours::start(dir, plan)?)];
    for started in [etcd::start(dir), zookeeper::start(dir), redis::start(dir, false), redis::start(dir, true)] {
        match started? {
            Ok(service) => services.push(service),
            Err(skipped) => section.notes.push(skipped),
        }
    }
    let mut pipelined = Vec::new();
    for ask in Ask::ALL {
        for service in services.iter_mut().filter(|service| service.takes(ask, MANY)) {
            progress.say(&format!("warming up: {}, {}", ask.name(), service.name()));
            warm(&mut **service, ask, warm_up)?;
        }
        for in_flight in [1, MANY] {
            let rows = compare(&mut services, ask, in_flight, plan, progress)?;
            if (ask, in_flight) == (Ask::Lock, MANY) {
                pipelined.clone_from(&rows);
            }
            section.rows.extend(rows);
        }
    }
    section.rows.extend(ours_over_redis(&pipelined));
    Ok(section
        .note(format!(
            "Before it was measured each was asked the same with {MANY} in flight until its rate no longer rose, at most {} s.",
            warm_up.as_secs()
        ))
        .note("CPU is of the service's process alone, all its threads; that of clients is in no figure.")
        .note(
            "Client library: as applications ask ours. The host keeps a lock that was given back and what was read, so that after the \
             first time neither is asked of the server. Wire generator: each time a LOCK and a RELEASE, or a READ, by the bench itself, \
             which does less than a client.",
        )
        .note(
            "Redis with 64 in flight is asked by its blocking client in lock-step, 64 commands sent together, then 64 answers: the least \
             CPU for its server. The others ask anew as soon as each was answered.",
        ))
}

/// Asks until the rate no longer rises, but no longer than `most`.
fn warm(service: &mut dyn Service, ask: Ask, most: Duration) -> Result<(), Trouble> {
    let (begin, mut best, mut still) = (Instant::now(), 0.0, 0);
    while still < STILL && begin.elapsed() < most {
        let round = service.round(ask, MANY, LOOK.min(most))?;
        let rate = count(round.operations) / round.elapsed.as_secs_f64();
        still = if rate > best * RISE { 0 } else { still + 1 };
        best = rate.max(best);
    }
    Ok(())
}

/// A row for each service of what README.md shows: p50 of one after the other, rate and CPU with many in flight.
fn glance(peers: &Section) -> Section {
    const HEADS: [[(&str, &str); 3]; 3] = [
        [("lock_p50_us", "lock + unlock: p50 µs"), ("lock_per_second", "op/s"), ("lock_cpu_us", "server µs/op")],
        [("write_p50_us", "durable write: p50 µs"), ("write_per_second", "op/s"), ("write_cpu_us", "server µs/op")],
        [("read_p50_us", "read: p50 µs"), ("read_per_second", "op/s"), ("read_cpu_us", "server µs/op")],
    ];
    let mut section = Section::new("peers at a glance", format!("p50 of one after the other; rate and server CPU with {MANY} in flight"));
    let figure = |load: &str, key| peers.rows.iter().find(|row| row.load == load).and_then(|row| row.number(key));
    let first = format!("{}, 1 in flight, ", Ask::Lock.name());
    for service in peers.rows.iter().filter_map(|row| row.load.strip_prefix(&first)) {
        let mut row = Row::new(service);
        for (ask, [p50, rate, cpu]) in Ask::ALL.into_iter().zip(HEADS) {
            let load = |in_flight| format!("{}, {in_flight} in flight, {service}", ask.name());
            let (one, many) = (load(1), load(MANY));
            for ((key, head), figure) in
                [(p50, figure(&one, "p50_us")), (rate, figure(&many, "per_second")), (cpu, figure(&many, "cpu_us"))]
            {
                if let Some(figure) = figure {
                    row = row.with(key, head, figure);
                }
            }
        }
        section.rows.push(row);
    }
    section
}

/// All services under one load, in turn.
fn compare(services: &mut [Box<dyn Service>], ask: Ask, in_flight: usize, plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Trouble> {
    let taking: Vec<usize> = (0..services.len()).filter(|at| services[*at].takes(ask, in_flight)).collect();
    let mut rounds: Vec<Vec<ServiceRound>> = taking.iter().map(|_| Vec::new()).collect();
    for round in 0..=plan.rounds {
        for (at, found) in taking.iter().zip(&mut rounds) {
            let service = &mut services[*at];
            progress.say(&format!("{}, {in_flight} in flight, {}", ask.name(), service.name()));
            let done = service.round(ask, in_flight, plan.span)?;
            // The first does not count.
            if round > 0 {
                found.push(done);
            }
        }
    }
    let name = |at: usize| format!("{}, {in_flight} in flight, {}", ask.name(), services[at].name());
    Ok(taking.iter().zip(&rounds).map(|(at, rounds)| row(name(*at), rounds)).collect())
}

fn row(name: String, rounds: &[ServiceRound]) -> Row {
    let mut took = histogram();
    rounds.iter().for_each(|round| took.add(&round.took_ns).expect("both have the same bounds"));
    let spread = |figure: &dyn Fn(&ServiceRound) -> f64| {
        Spread::of(rounds.iter().map(figure)).expect("the command line lets no plan without rounds through")
    };
    let us = |quantile| count(took.value_at_quantile(quantile)) / 1e3;
    Row::new(name)
        .with("p50_us", "p50 µs", us(0.5))
        .with("p99_us", "p99 µs", us(0.99))
        .with("per_second", "op/s", spread(&|round| count(round.operations) / round.elapsed.as_secs_f64()))
        .with("cpu_us", "server µs/op", spread(&|round| count(round.cpu_ns) / 1e3 / count(round.operations.max(1))))
        .with("operations", "operations", rounds.iter().map(|round| round.operations).sum::<u64>())
}

/// Our server's CPU for a lock beside that of pipelined Redis, if it was there.
fn ours_over_redis(rows: &[Row]) -> Option<Row> {
    let cpu = |name: &str| rows.iter().find(|row| row.load.ends_with(name)).and_then(|row| row.number("cpu_us"));
    let (ours, redis) = (cpu(ours::NAME)?, cpu(redis::PIPELINED)?);
    Some(Row::new(format!("lock, pipelined: {} µs of ours, {} of Redis", digits(ours), digits(redis))).with(
        "ours_over_redis",
        "ours/Redis",
        ours / redis,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn glance_has_each_service_once_with_latency_of_one_and_rate_of_many() {
        let mut peers = Section::new("peers", "");
        for (load, per_second) in [("lock, 1 in flight, a, b", 5.0), ("lock, 64 in flight, a, b", 7.0), ("read, 64 in flight, a, b", 9.0)] {
            peers.rows.push(Row::new(load).with("p50_us", "", 3.0).with("per_second", "", per_second).with("cpu_us", "", 1.0));
        }
        let glance = glance(&peers);
        let [row] = &glance.rows[..] else { panic!("{glance:?}") };
        assert_eq!(row.load, "a, b");
        assert_eq!((row.number("lock_p50_us"), row.number("lock_per_second")), (Some(3.0), Some(7.0)));
        assert_eq!((row.number("read_p50_us"), row.number("read_cpu_us"), row.number("write_cpu_us")), (None, Some(1.0), None));
    }
}
