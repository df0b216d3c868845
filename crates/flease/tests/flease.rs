//! Leases without a server: every schedule of small groups, random runs of larger ones, what is on the wire, what it costs.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says where, and what was searched")]

mod clocks;
mod model;
mod wire;
mod world;

use clocks::ClockBounds;
use model::{Bounds, search};

/// No schedule within the bounds is wrong, as far as the search went.
fn is_clean(bounds: &Bounds) {
    let outcome = search(bounds);
    assert!(outcome.violation.is_none(), "{bounds:?}: {:#?}", outcome.violation);
    assert!(outcome.owned > 0, "{bounds:?}: nobody ever owned anything");
    eprintln!("{bounds:?}: {} states, complete: {}", outcome.states, outcome.is_complete);
}

/// Where the shortest schedule of two owners that a planted bug allows is found within 55,000 states (tests/bugs.rs).
const DAILY: Bounds = Bounds { ticks: 1, states_max: 60_000, ..Bounds::SMALL };

//= docs/flease.md#rules
//= type=test
//# An answer MUST count only for the ballot outstanding, once for each member, and only under the boot nonce with which that member first
//# answered in the attempt.
#[test]
fn no_short_schedule_of_two_rivals_has_two_owners() {
    is_clean(&DAILY);
}

#[test]
fn no_short_schedule_with_a_release_has_two_owners() {
    is_clean(&Bounds { releases: 1, ..DAILY });
}

/// A group of one that grows, a pair and a group of three that each lose one.
const CHANGES: &[&[&[u8]]] = &[&[&[0], &[0, 1], &[0, 1, 2]], &[&[0, 1], &[0, 1, 2], &[1, 2]], &[&[0, 1, 2], &[0, 2], &[2]]];

//= docs/flease.md#changes-of-the-list
//= type=test
//# Promises and records MUST be kept over a change of the list.
//= docs/flease.md#changes-of-the-list
//= type=test
//# The list MUST NOT be changed but by an owner whose ownership was granted or renewed under its newest number.
#[test]
fn no_short_schedule_with_changes_of_the_list_has_two_owners() {
    for lists in CHANGES {
        is_clean(&Bounds { lists, attempts: [2, 1], ..DAILY });
    }
}

/// No schedule within the bounds has two owners, and every one was seen.
fn all_are_clean(bounds: &ClockBounds) {
    let found = clocks::search(bounds);
    assert!(found.schedule.is_none(), "{bounds:?}: {:#?}", found.schedule);
    assert!(found.is_complete && found.owned > 0, "{bounds:?}: {} states, {} with an owner", found.states, found.owned);
    eprintln!("{bounds:?}: {} states, all of them", found.states);
}

const CLOCKS: ClockBounds = ClockBounds { lease: 2, ..ClockBounds::SMALL };

#[test]
fn no_schedule_at_all_within_short_bounds_has_two_owners_where_clocks_are_synchronised() {
    all_are_clean(&ClockBounds { epsilon: 0, ticks: 4, ..CLOCKS });
}

#[test]
#[ignore = "minutes"]
fn no_schedule_at_all_has_two_owners_where_clocks_are_synchronised() {
    for bounds in [
        ClockBounds { ticks: 4, ..CLOCKS },
        ClockBounds { epsilon: 0, ticks: 5, ..CLOCKS },
        ClockBounds { releases: 1, ticks: 3, ..CLOCKS },
        ClockBounds { restarts: 1, epsilon: 0, ticks: 4, ..CLOCKS },
    ] {
        all_are_clean(&bounds);
    }
}

#[test]
#[ignore = "minutes"]
fn no_longer_schedule_with_restarts_renewals_or_releases_has_two_owners() {
    let one_tick = Bounds { ticks: 1, states_max: 1_000_000, ..Bounds::SMALL };
    for bounds in [
        Bounds { restarts: 1, ..one_tick },
        Bounds { attempts: [2, 1], ..one_tick },
        Bounds { attempts: [2, 1], renew_by_write: true, ..one_tick },
        Bounds { ticks: 2, releases: 1, ..one_tick },
    ] {
        is_clean(&bounds);
    }
}
