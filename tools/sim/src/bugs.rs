//! How fast a violation is found: the campaign that deliberate bugs are run under, one after the other.
//!
//! Decides what "found" means: the first violation of a range of seeds, and how many seeds it took. Invariant: all threads of the
//! campaign have ended when it returns, so a switch that is global in the process may be turned for each campaign.
//! Leaves to others: which bugs there are and how they are switched on (the cores), ledgers.

use crate::campaign::{self, Campaign};
use crate::observe::Violation;
use crate::plan::{Plan, Profile};
use std::ops::Range;
use std::time::Duration;

/// What came of a campaign with a bug.
#[derive(Clone, Debug)]
pub struct Found {
    /// Seeds that were run, the failing one included.
    pub seeds: u64,
    /// How long it took.
    pub wall: Duration,
    /// The first violation and its plan; `None`: nothing was found.
    pub first: Option<(Plan, Violation)>,
}

/// Runs seeds of a profile up to the first violation, or until the budget is used up; on one thread, so that the first is the first.
/// Every `twice_every`th seed is run twice (0: none).
#[must_use]
pub fn campaign(profile: Profile, seeds: Range<u64>, budget: Duration, twice_every: u64) -> Found {
    let count = seeds.end.saturating_sub(seeds.start);
    let plan = Campaign { profile, from: seeds.start, seeds: count, jobs: 1, twice_every, budget: Some(budget) };
    let summary = campaign::campaign(&plan, &|_| ());
    let first = summary.failure.map(|failure| (failure.plan, failure.violation));
    Found { seeds: summary.seeds, wall: summary.wall, first }
}

/// Switches the deliberate bug on that the variable `CISTERN_BUG` names, to see which scenario minds; without the feature `bugs` none is there.
pub fn choose_named() {
    #[cfg(feature = "bugs")]
    if let Ok(name) = std::env::var("CISTERN_BUG") {
        use cistern_link::bugs::{Bug, choose};
        choose(Bug::ALL.iter().copied().find(|bug| bug.name() == name));
    }
}
