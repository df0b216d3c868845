//! Claims about whole runs.

use crate::plan::{Plan, Profile};
use crate::run::run;

#[test]
fn calm_runs_have_no_violation_and_make_progress() {
    for seed in 0..8 {
        let plan = Plan::draw(Profile::Calm, seed);
        let outcome = run(&plan, None);
        assert_eq!(outcome.violation, None, "seed {seed}");
        assert!(outcome.commands > 20 && outcome.net.sent > 50 && outcome.sim_ns > plan.heal_ns, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn same_plan_gives_the_same_hash_and_another_seed_another() {
    let hash = |seed| run(&Plan::draw(Profile::Swarm, seed), None).hash;
    for seed in 0..3 {
        assert_eq!(hash(seed), hash(seed), "seed {seed}");
    }
    assert_ne!(hash(1), hash(2));
}
