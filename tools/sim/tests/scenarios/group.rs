//! Groups of servers: who serves, and that nobody does beside another.

use cistern_sim::bugs::choose_named;
use cistern_sim::group::{GroupPlan, simulate};

/// Runs of which each must hold.
fn hold(seeds: core::ops::Range<u64>) {
    choose_named();
    for seed in seeds {
        let outcome = simulate(&GroupPlan::draw(seed), &mut |_, _| ());
        assert_eq!(outcome.violation, None, "seed {seed}: cargo run --release -p cistern-sim -- group --seed {seed}");
    }
}

#[test]
fn never_two_servers_renew_and_one_serves_when_all_is_mended() {
    hold(0..60);
}

/// Three runs in ten; each of some is sealed, too.
#[test]
fn never_two_servers_renew_while_servers_are_added_and_removed() {
    choose_named();
    let mut changes = 0;
    for seed in (0..200).filter(|seed| !GroupPlan::draw(*seed).changes.is_empty()) {
        let outcome = simulate(&GroupPlan::draw(seed), &mut |_, _| ());
        assert_eq!(outcome.violation, None, "seed {seed}: cargo run --release -p cistern-sim -- group --seed {seed}");
        changes += outcome.changes;
    }
    assert!(changes > 60, "only {changes} times the servers were changed");
}

/// One run in three is sealed.
#[test]
fn members_agents_and_the_list_of_servers_are_sealed_in_a_share_of_the_runs() {
    let sealed = (0..60).filter(|seed| GroupPlan::draw(*seed).sealed.is_some()).count();
    assert!((15..=25).contains(&sealed), "{sealed}");
}

/// What keeps a server that was replaced from the store: each part of it is needed.
#[cfg(feature = "bugs")]
#[test]
fn every_bug_of_the_fence_is_found() {
    use cistern_store_etcd::bugs::{Bug, choose};
    let mut missed = Vec::new();
    for bug in [
        Bug::OwnerNotCompared,
        Bug::SequenceNotCompared,
        Bug::TwoInFlight,
        Bug::LoadedBeforeFence,
        Bug::UnknownIsFailed,
        Bug::UnknownIsDone,
    ] {
        choose(Some(bug));
        let found = (0..1_000).find_map(|seed| Some((seed, simulate(&GroupPlan::draw(seed), &mut |_, _| ()).violation?)));
        choose(None);
        println!("{bug:?}: {found:?}");
        missed.extend(found.is_none().then_some(bug));
    }
    assert_eq!(missed, []);
}
