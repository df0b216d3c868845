//! Every deliberate bug is found by the model checker. One test: a bug is on in the whole process.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on says where, and what it found")]

mod clocks;
mod model;

use cistern_flease::bugs::{self, Bug};
use clocks::ClockBounds;
use model::{Bounds, search};

/// A bug of the synchronised mode, and how far to search for two owners.
type ClockRow = (Bug, ClockBounds);

const CLOCKS: ClockBounds = ClockBounds { lease: 2, states_max: 6_000_000, ..ClockBounds::SMALL };

const FOUND_BY_CLOCKS: &[ClockRow] = &[
    (Bug::PaperEdge, ClockBounds { ticks: 5, ..CLOCKS }),
    (Bug::NoClockWait, ClockBounds { ticks: 5, ..CLOCKS }),
    (Bug::PaperWait, ClockBounds { restarts: 1, ticks: 5, ..CLOCKS }),
    (Bug::PaperWaitPlusEpsilon, ClockBounds { restarts: 1, ticks: 6, ..CLOCKS }),
    // Clocks are perfect.
    (Bug::LeaseFromWrite, ClockBounds { restarts: 1, epsilon: 0, ticks: 6, ..CLOCKS }),
    (Bug::ReleaseBeforeStopping, ClockBounds { releases: 1, ticks: 3, ..CLOCKS }),
];

/// Bugs that are on together, how far to search, and what must be found.
type Row = (&'static [Bug], Bounds, &'static str);

const RULES: Bounds = Bounds::SMALL;
const TWO: Bounds = Bounds { rules: false, ..RULES };
/// A group of one grows: the first list has no majority that meets one of the third.
const GROWS: Bounds = Bounds { lists: &[&[0], &[0, 1], &[0, 1, 2]], ticks: 0, ..TWO };
const RESTART: Bounds = Bounds { restarts: 1, ..TWO };

const FOUND: &[Row] = &[
    (&[Bug::RecordForLease], Bounds { ticks: 1, ..TWO }, "two owners"),
    (&[Bug::RecordForLease], RULES, "a record does not last L(1+δ)+ε"),
    (&[Bug::NoRestartWait], Bounds { ticks: 0, ..RESTART }, "two owners"),
    (&[Bug::RestartWaitsLease], Bounds { ticks: 1, ..RESTART }, "two owners"),
    (&[Bug::NoRestartWait], Bounds { restarts: 1, ..RULES }, "took part before the restart wait was over"),
    (&[Bug::AnswersCounted], Bounds { ticks: 0, ..TWO }, "two owners"),
    (&[Bug::LapseIgnored], Bounds { ticks: 2, ..TWO }, "two owners"),
    (&[Bug::LeaseFromWrite], RULES, "a lease counts from later than its first message"),
    (&[Bug::OwnCountsAsOpen], Bounds { attempts: [2, 0], ..RULES }, "OWN for what the READ did not name"),
    (&[Bug::PromiseNotKept], RULES, "a WRITE below the promise was taken"),
    (&[Bug::PromiseNotKept, Bug::LiveRecordReplaced], Bounds { ticks: 0, ..TWO }, "two owners"),
    (&[Bug::LiveRecordReplaced], RULES, "a live record was replaced"),
    (&[Bug::PromiseUnderRecord], RULES, "a promise was raised under a live record"),
    (&[Bug::ReleaseBeforeStopping], Bounds { releases: 1, ticks: 0, ..TWO }, "two owners"),
    (&[Bug::ReleaseOfAnyTenure], Bounds { attempts: [2, 0], releases: 1, ..RULES }, "a RELEASE freed the record of another tenure"),
    (&[Bug::WriteBack], RULES, "the lease of another is written"),
    (
        &[Bug::EarlierEchoCounts],
        Bounds { attempts: [3, 0], ticks: 1, renew_by_write: true, ..RULES },
        "a lease counts from a transmission that nobody echoed",
    ),
    (&[Bug::ListChangedAtOnce], GROWS, "two owners"),
    (&[Bug::ForgottenWithList], Bounds { lists: &[&[0, 1], &[0, 1, 2]], ..GROWS }, "two owners"),
    (&[Bug::OtherListHeard], Bounds { rules: true, ..GROWS }, "what was sent under another list was heard"),
];

#[test]
fn every_bug_is_found() {
    find(FOUND);
    find_by_clocks(FOUND_BY_CLOCKS);
    let by_clocks = FOUND_BY_CLOCKS.iter().map(|(bug, _)| *bug);
    let planted: Vec<Bug> = FOUND.iter().flat_map(|(bugs, ..)| *bugs).copied().chain(by_clocks).collect();
    assert!(Bug::ALL.iter().all(|bug| planted.contains(bug)), "a bug without a row");
}

fn find_by_clocks(rows: &[ClockRow]) {
    for (bug, bounds) in rows {
        bugs::choose(&[*bug]);
        let found = clocks::search(bounds);
        bugs::choose(&[]);
        let schedule =
            found.schedule.unwrap_or_else(|| panic!("{bug:?}: nothing in {} states, complete: {}", found.states, found.is_complete));
        println!("{bug:?}: two owners, depth {}, {} states", schedule.len(), found.states);
    }
}

fn find(rows: &[Row]) {
    for (bugs, bounds, expected) in rows {
        bugs::choose(bugs);
        let from = std::time::Instant::now();
        let outcome = search(bounds);
        bugs::choose(&[]);
        let Some((what, schedule)) = outcome.violation else {
            panic!("{bugs:?}: nothing in {} states, complete: {}", outcome.states, outcome.is_complete);
        };
        println!("{bugs:?}: {what}, depth {}, {} states, {:?}", schedule.len(), outcome.states, from.elapsed());
        assert_eq!(what, *expected, "{bugs:?}: {schedule:#?}");
    }
}
