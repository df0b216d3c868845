//! How long the liveness phase may take: the formula of section 11.3, with the run's own numbers (I15).
//!
//! Decides the bound. Sessions that fail do so side by side (section 11.4), so the chain of a failing holder, max(compliance, probe + Td) +
//! T and a commit, is paid for what failed before healing, for what is noticed only then, and for one more; a restarted server waits out
//! its grace before, agents find it again, and then every agent's steps take their round trips. All of it in true time: the slowest clock
//! of the run stretches every span. Invariant: the bound depends on the plan alone.
//! Leaves to others: what users want in that phase (`users::healing`).

use crate::clock::UNIT;
use crate::plan::{Plan, SEC};

/// Steps in which users want something of the server after healing, one after the other.
const STEPS: u64 = 16;

/// Chains of failing holders, one after the other.
const CHAINS: u64 = 3;

/// The longest time from healing to satisfied users, in nanoseconds of true time.
pub(super) fn liveness(plan: &Plan) -> u64 {
    let server = &plan.server;
    let us = |span: u64| span * 1_000;
    let (lease, wait) = (server.lease_ns(), server.longest_wait_ns());
    // D comes after Td, and not before three transmissions with at most τ/8 each, of which the last may just have been made.
    let failing = server.longest_probe_ns() + us(server.delivery_timeout_us) + lease / 2;
    let commit = 3 * plan.disk.sync_ns + 2 * plan.disk.load_ns;
    let trip = 2 * (plan.net.delay_ns + plan.net.jitter_ns + plan.net.latency_ns);
    let chain = us(server.compliance_time_us).max(failing) + wait + commit + trip;
    let grace = 5 * wait + plan.restart_wait_ns;
    let handshake = 3 * lease / 8 + SEC + 4 * trip;
    let steps = STEPS * plan.agents as u64 * (commit + 3 * trip + lease / 16);
    let all = grace + handshake + CHAINS * chain + steps;
    stretched(plan, all) + 2 * SEC
}

/// A span that the slowest clock counts, in true time.
fn stretched(plan: &Plan, span: u64) -> u64 {
    let slowest = plan.clocks.iter().map(|clock| clock.rates.raw_ppb.min(clock.rates.boot_ppb)).min().unwrap_or(UNIT).max(UNIT / 10);
    u64::try_from(u128::from(span) * u128::from(UNIT) / u128::from(slowest)).unwrap_or(u64::MAX)
}
