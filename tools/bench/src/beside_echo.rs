//! Requests beside a plain UDP echo of the same bytes.
//!
//! Decides the cases: one request a datagram from one agent and from many (P1, P3), and several requests of one agent in a datagram
//! beside an echo of one (P2), each of them sealed, too (P10). Place: a workload, over `cases`. Invariant: every row has its echo, measured in turn with it; the control
//! has the echo on both sides, and its distance from 1 is the noise of the run.
//! Leaves to others: more loads without an echo (`loads`).

use crate::cases::{Case, Comparison, Plan, Side, Work, compare, server_and_echo};
use crate::host::Role;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::Pace;
use crate::trouble::Trouble;

/// Agents in the case of a crowd: as many as one receive buffer takes at once without loss.
const CROWD: usize = 256;

/// The cases that are measured beside the echo.
fn cases(in_flight: usize) -> Vec<Case> {
    let one = Case::one(Work::GetAttr);
    let several = Case { in_flight, ..one };
    let packed = Case { packed: true, pace: Pace::Together, ..several };
    vec![
        one,
        Case { work: Work::Lookup, ..one },
        Case { work: Work::Read, ..one },
        Case { work: Work::Lock, ..one },
        several,
        Case { work: Work::Lock, ..several },
        packed,
        Case { work: Work::Lock, ..packed },
        crowd(),
        Case { work: Work::Lookup, ..crowd() },
    ]
}

/// Many agents that ask once each: every request and every answer is a datagram of its own.
const fn crowd() -> Case {
    let one = Case::one(Work::GetAttr);
    Case { agents: CROWD, in_flight: CROWD, pace: Pace::Together, ..one }
}

/// Measures all cases and the control.
pub(crate) fn run(in_flight: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new(
        "echo",
        "requests beside a plain UDP echo of the same bytes, one datagram each, plain and sealed; server CPU, A B C A B C in one run",
    );
    for case in cases(in_flight) {
        progress.say(&case.name());
        let [compared, sealed] = server_and_echo(&case, plan)?;
        section.rows.extend([row(&compared), echo_row(&compared), sealed_row(&sealed)]);
    }
    progress.say("control");
    let sides = [Side::start(Role::Echo, &crowd(), plan.cores)?, Side::start(Role::Echo, &crowd(), plan.cores)?];
    let control = compare(CONTROL.to_owned(), sides, plan)?;
    section.rows.push(row(&control));
    Ok(section
        .note("echo/ours: server CPU of the echo divided by ours, each pair of rounds by itself. 1 would be a protocol that costs nothing.")
        .note("sealed/plain: server CPU of the sealed server divided by that of the one that speaks in clear, in the same way."))
}

/// The control's line: what the ratio is where nothing differs.
const CONTROL: &str = "control: the echo in both places";

fn row(compared: &Comparison) -> Row {
    let Comparison { name, base, ratio, inverse, p50, .. } = compared;
    Row::new(name)
        .with("echo_over_server", "echo/ours", *ratio)
        .with("server_over_echo", "ours/echo", inverse.median)
        .with("p50_over_echo", "p50: ours/echo", p50.median)
        .exchanges(base)
}

fn sealed_row(compared: &Comparison) -> Row {
    let Comparison { name, base, inverse, p50, .. } = compared;
    Row::new(name)
        .with("sealed_over_plain", "sealed/plain", *inverse)
        .with("p50_over_plain", "p50: sealed/plain", p50.median)
        .exchanges(base)
}

fn echo_row(compared: &Comparison) -> Row {
    Row::new(format!("  its echo ({})", compared.name.split(',').next().unwrap_or_default())).exchanges(&compared.other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aims;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_request_for_each_agent() {
        let cases = cases(16);
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::name).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| case.in_flight >= case.agents));
        assert!(names.contains("lock+release, 1 agent, 16 in flight"));
    }

    #[test]
    fn loads_that_aims_are_held_against_are_measured() {
        let of = |fits: fn(&str) -> bool| cases(16).iter().filter(|case| fits(&case.name())).count();
        assert_eq!((of(aims::is_one), of(aims::is_crowd), of(aims::is_packed)), (4, 2, 2));
    }
}
