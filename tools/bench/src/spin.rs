//! What the setting `spin` is worth: a server that looks at its socket for a while before it sleeps, beside one that sleeps at once.
//!
//! Decides the loads: one request in flight, where every request finds the server asleep, and requests that come one by one at a slow
//! pace, where it has gone to sleep again in either case; with what it costs in CPU. Both servers answer in turn, in one run.
//! Place: a workload, over `cases`. Leaves to others: how the loop spins (`cistern-driver`).

use crate::cases::{Case, Plan, Side, Work, compare};
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use std::time::Duration;

/// For how long after the last datagram the server that spins looks.
const SPIN_US: u64 = 50;
/// From one request to the next at the slow pace: longer than the server spins.
const SLOW: Duration = Duration::from_micros(500);

/// Measures a server that spins beside one that does not.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("spin", "a server that looks at its socket for 50 µs before it sleeps, beside one that sleeps at once");
    let (each, slow) = (Case::one(Work::GetAttr), Case { pace: Pace::Every(SLOW), ..Case::one(Work::GetAttr) });
    for (load, case) in [("1 in flight", each), ("1 each 500 µs", slow)] {
        progress.say(&format!("spinning, {load}"));
        let side = |spin_us| {
            let host = Host::start_with(Role::Server, plan.cores, &Setup { spin_us, ..Setup::default() })?;
            Side::on(host, Role::Server, &case, plan.cores)
        };
        let compared = compare(String::new(), [side(Some(SPIN_US))?, side(None)?], plan)?;
        let spins = Row::new(format!("getattr, {load}, spinning")).with("p50_over_sleeping", "p50: spinning/sleeping", compared.p50);
        section.rows.push(spins.with("cpu_over_sleeping", "CPU: spinning/sleeping", compared.inverse).exchanges(&compared.base));
        section.rows.push(Row::new(format!("getattr, {load}, sleeping at once")).exchanges(&compared.other));
    }
    Ok(section)
}
