//! The same request under more and more load: closed loops with 1 to 256 in flight, and open loops at given rates.
//!
//! Decides the loads. Closed: one agent, then many, several requests of an agent in a datagram as a real agent sends them. Open: requests
//! at fixed ticks, as shares of what the closed loop reached in this run, or at the rates given; latencies count from the tick, so that
//! a request that had to wait behind a slow one counts as slow (no coordinated omission).
//! Place: a workload, over `cases`. Leaves to others: one datagram a request (`beside_echo`).

use crate::cases::{Case, Plan, Side, Work};
use crate::host::Role;
use crate::progress::Progress;
use crate::section::{Row, Section, digits};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use std::time::Duration;

/// Agents and requests in flight of the closed loops; one agent has at most 64.
const CLOSED: [(usize, usize); 9] = [(1, 1), (1, 4), (1, 16), (1, 64), (16, 16), (16, 64), (16, 256), (256, 256), (1_000, 1_000)];
/// Shares of the closed loop's rate at which the open loops send, in percent.
const SHARES: [f64; 4] = [10.0, 50.0, 80.0, 95.0];
/// Agents and places in flight of the open loops.
const OPEN: (usize, usize) = (16, 256);

/// Measures the closed loops, then the open ones at `rates` a second, or at shares of what the closed one reached.
pub(crate) fn run(rates: &[f64], plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("loads", "getattr under more and more load, several requests of an agent in a datagram");
    let mut reached = 0.0_f64;
    for (agents, in_flight) in CLOSED {
        let case = Case { agents, in_flight, packed: true, ..Case::one(Work::GetAttr) };
        progress.say(&format!("closed loop, {}", case.name()));
        let column = Side::start(Role::Server, &case, plan.cores)?.rounds(plan)?;
        if (agents, in_flight) == OPEN {
            reached = column.per_second.median;
        }
        let name = format!("closed, {agents} agents, {in_flight} in flight");
        section.rows.push(Row::new(name).with("in_flight", "in flight", in_flight as u64).exchanges(&column));
    }
    let (agents, in_flight) = OPEN;
    let case = Case { agents, in_flight, packed: true, ..Case::one(Work::GetAttr) };
    let mut side = Side::start(Role::Server, &case, plan.cores)?;
    let shares: Vec<f64> = SHARES.iter().map(|share| reached * share / 100.0).collect();
    for rate in if rates.is_empty() { &shares } else { rates } {
        progress.say(&format!("open loop, {}/s", digits(*rate)));
        side.set_pace(Pace::Every(Duration::from_secs_f64(1.0 / rate)));
        let column = side.rounds(plan)?;
        section.rows.push(Row::new(format!("open, {agents} agents, {}/s", digits(*rate))).with("rate", "rate", *rate).exchanges(&column));
    }
    Ok(section.note("Open loops count latency from the moment at which a request was due, however late it was sent."))
}
