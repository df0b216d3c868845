//! Every deliberate bug is found by the model, each by a test of its name.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test that cannot go on says where, and what it found")]

mod model;

use cistern_store_etcd::bugs::{self, Bug};
use model::World;

/// Runs until a judge says the expected sentence.
fn find(bug: Bug, expected: &str) {
    bugs::choose(Some(bug));
    let found = (0..3_000).find(|seed| World::new(*seed).run(300).is_err_and(|what| what.starts_with(expected)));
    bugs::choose(None);
    let seed = found.unwrap_or_else(|| panic!("{bug:?}: nothing in 3,000 runs"));
    println!("{bug:?}: seed {seed}: {expected}");
}

macro_rules! tests {
    ($($name:ident: $bug:ident, $expected:literal;)*) => {
        $(#[test]
        fn $name() {
            find(Bug::$bug, $expected);
        })*

        #[test]
        fn every_bug_has_a_test() {
            let planted = [$(Bug::$bug),*];
            assert!(Bug::ALL.iter().all(|bug| planted.contains(bug)));
        }
    };
}

tests! {
    owner_not_compared: OwnerNotCompared, "written under a former fence";
    sequence_not_compared: SequenceNotCompared, "told to be durable, and not what is there";
    two_in_flight: TwoInFlight, "over without a reason: somebody else has written the store";
    loaded_before_fence: LoadedBeforeFence, "a server writes that was not the owner when it loaded";
    unknown_is_failed: UnknownIsFailed, "told to be durable, and not what is there";
    unknown_is_done: UnknownIsDone, "told to be durable, and not what is there";
    no_space_is_failed: NoSpaceIsFailed, "told to be durable, and not what is there";
    journal_loaded_over: JournalLoadedOver, "what was durable is not loaded";
    journal_not_compared: JournalNotCompared, "written under a former fence";
    read_beside_journal: ReadBesideJournal, "what is read is older than what was told to be durable";
    cluster_not_compared: ClusterNotCompared, "serves a restored etcd";
    range_too_short: RangeTooShort, "told to be durable, and not what is there";
}
