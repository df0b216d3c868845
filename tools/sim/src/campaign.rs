//! Many runs: a range of seeds of one profile, on several threads, up to the first violation.
//!
//! Decides which failure is told: that of the lowest seed, whatever the threads' timing, so that a campaign is as repeatable as a run.
//! A share of the seeds is run twice and must give the same hash (I18). Invariant: when it returns, all its threads have ended, so
//! whoever switched something for the campaign may switch it back.
//! Leaves to others: single runs (`run`), smaller failures (`shrink`), telling people (`report`).

use crate::counters::Counters;
use crate::net::NetCounts;
use crate::observe::Violation;
use crate::plan::{Plan, Profile};
use crate::run::run;
use crate::world::Outcome;
use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What is run.
#[derive(Clone, Debug)]
pub struct Campaign {
    /// What the seeds are drawn for.
    pub profile: Profile,
    /// The first seed.
    pub from: u64,
    /// How many.
    pub seeds: u64,
    /// Threads.
    pub jobs: usize,
    /// Every so many seeds one is run twice; 0: none.
    pub twice_every: u64,
    /// No seed is begun after so long.
    pub budget: Option<Duration>,
}

/// A seed that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Its plan.
    pub plan: Plan,
    /// What did not hold.
    pub violation: Violation,
}

/// What came of a campaign.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds run.
    pub seeds: u64,
    /// How many of them twice.
    pub twice: u64,
    /// How long it took.
    pub wall: Duration,
    /// How long all runs were together, in nanoseconds of simulated time.
    pub sim_ns: u128,
    /// Happenings.
    pub steps: u64,
    /// Commands of users.
    pub commands: u64,
    /// Datagrams.
    pub net: NetCounts,
    /// Faults, by name.
    pub faults: BTreeMap<&'static str, u64>,
    /// The largest part of the liveness bound that a run used, in parts per million.
    pub heal_ppm: u64,
    /// The "sometimes" counters of all runs.
    pub counters: Counters,
    /// The failing seed with the lowest number.
    pub failure: Option<Box<Failure>>,
}

impl Summary {
    fn add(&mut self, plan: &Plan, outcome: &Outcome) {
        self.seeds += 1;
        self.sim_ns += u128::from(outcome.sim_ns);
        self.steps += outcome.steps;
        self.commands += outcome.commands;
        self.net.sent += outcome.net.sent;
        self.net.lost += outcome.net.lost;
        self.net.duplicated += outcome.net.duplicated;
        self.net.corrupted += outcome.net.corrupted;
        self.heal_ppm = self.heal_ppm.max(outcome.heal_ppm);
        self.counters.merge(&outcome.counters);
        for fault in &plan.faults {
            *self.faults.entry(fault.what.name()).or_default() += 1;
        }
    }

    fn fail(&mut self, plan: Plan, violation: Violation) {
        if self.failure.as_ref().is_none_or(|known| plan.seed < known.plan.seed) {
            self.failure = Some(Box::new(Failure { plan, violation }));
        }
    }
}

/// Runs a campaign; `progress` is called now and then, on any of its threads, with what came of it so far.
#[must_use]
pub fn campaign(campaign: &Campaign, progress: &(dyn Fn(&Summary) + Sync)) -> Summary {
    let start = Instant::now();
    let (next, end) = (AtomicU64::new(campaign.from), AtomicU64::new(campaign.from.saturating_add(campaign.seeds)));
    let summary = Mutex::new(Summary::default());
    std::thread::scope(|scope| {
        for _ in 0..campaign.jobs.max(1) {
            scope.spawn(|| {
                while campaign.budget.is_none_or(|budget| start.elapsed() < budget) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end.load(Ordering::Relaxed) {
                        return;
                    }
                    let plan = Plan::draw(campaign.profile, seed);
                    let mut outcome = run(&plan, None);
                    let twice = campaign.twice_every > 0 && seed % campaign.twice_every == 0 && outcome.violation.is_none();
                    if twice {
                        outcome.violation = differs(&plan, &outcome);
                    }
                    // A thread that panics outside a run ends the campaign; what the others found is still whole.
                    let mut summary = summary.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    summary.add(&plan, &outcome);
                    summary.twice += u64::from(twice);
                    summary.wall = start.elapsed();
                    if let Some(violation) = outcome.violation {
                        end.fetch_min(seed, Ordering::Relaxed);
                        summary.fail(plan, violation);
                    }
                    progress(&summary);
                }
            });
        }
    });
    summary.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Runs a plan once more; the violation if it went another way than before.
#[must_use]
pub fn differs(plan: &Plan, before: &Outcome) -> Option<Violation> {
    let again = run(plan, None);
    let same = again.hash == before.hash && again.violation == before.violation;
    let what = || format!("two runs of seed {} have the hashes {:016x} and {:016x}", plan.seed, before.hash, again.hash);
    (!same).then(|| Violation { invariant: "I18", check: "hash", what: what() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn calm(jobs: usize) -> Campaign {
        Campaign { profile: Profile::Calm, from: 0, seeds: 6, jobs, twice_every: 3, budget: None }
    }

    #[test]
    fn number_of_threads_changes_nothing_that_is_told() {
        let (one, two) = (campaign(&calm(1), &|_| ()), campaign(&calm(2), &|_| ()));
        assert_eq!((one.seeds, one.twice), (6, 2));
        assert_eq!((one.sim_ns, one.steps, one.commands, one.net), (two.sim_ns, two.steps, two.commands, two.net));
        assert!(one.failure.is_none());
    }

    #[test]
    fn no_seed_is_begun_after_the_budget() {
        let none = Campaign { budget: Some(Duration::ZERO), ..calm(2) };
        assert_eq!(campaign(&none, &|_| ()).seeds, 0);
    }
}
