//! Leases without a server: every schedule of small groups, random runs of larger ones, what is on the wire, what it costs.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test that cannot go on says where, and what was searched")]

mod model;
mod wire;
mod world;

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
