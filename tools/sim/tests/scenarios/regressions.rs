//! Seeds that have shown a defect of the cores, each with what it was: the runs must stay clean.
//!
//! A seed means another run once the drawing of plans changes; then it is one more ordinary seed, and does no harm.

use cistern_sim::plan::{Plan, Profile};
use cistern_sim::run::run;

const SEEDS: [(Profile, u64, &str); 31] = [
    (Profile::Calm, 2_526, "a lock was given back under the generation of before, while its downgrade was on the way"),
    (Profile::Calm, 20_731, "the same, by RELEASE"),
    (Profile::Clocks, 2_219, "the same, by a request for another run"),
    (Profile::Kinds, 212, "a request for another run crossed a downgrade, and a lock in use was told lost"),
    (Profile::Partition, 20_989, "the same, with two holders"),
    (Profile::Crash, 21_476, "the same"),
    (Profile::Clocks, 122, "CANCEL came before its LOCK in a full window, and was forgotten"),
    (Profile::Clocks, 5_814, "a duplicate of a lock request whose wait was over was answered QUEUED"),
    (Profile::Partition, 444, "a demand that took the place of an unreceipted one let a session be rescued"),
    (Profile::Restart, 524, "a demand of the server's former life made an agent release without a session"),
    (Profile::Tiny, 184, "demands of advisory locks in use stopped all others"),
    (Profile::Tiny, 2_799, "a lock table full of idle cache locks refused for ever"),
    (Profile::Tiny, 5_302, "an agent went on with a handshake although the server had answered in its session"),
    (Profile::Restart, 20_128, "locks reclaimed once more after another restart"),
    (Profile::Restart, 1_000_101, "grace ended before the last reclaim's completion was durable"),
    (Profile::Swarm, 720_011, "a reply made for 8,952 bytes waited for the store, and answered a transmission that allowed 1,232"),
    (Profile::Lossy, 14, "CANCEL of a lock in use came after the answer was forgotten, and did not name the grant"),
    (Profile::Crash, 70, "the same, while the release was on its way"),
    (
        Profile::Kinds,
        54,
        "reads given up while none arrived took the floor beyond what the server believes, and all was dropped from then on",
    ),
    (Profile::Lossy, 1, "the same"),
    (Profile::Restart, 28, "a lock that was to be asked for again after the grace was forgotten with its session"),
    (Profile::Disk, 84, "the same"),
    (Profile::Clocks, 2348, "the auditor did not know that an agent hears of a grant by its demand, too"),
    (Profile::Lossy, 2003, "the time to comply began with the turn before the receipt"),
    (Profile::Pauses, 4088, "the judge did not know of a version that was made and removed by one batch"),
    (Profile::Swarm, 3178, "the judge took a grant of the datagram at hand for one to come"),
    (Profile::Tiny, 3191, "the judge did not know that a copy of a handshake replaces a session that failed unused"),
    (Profile::Attack, 3389, "the judge took the cookie of a later start for the first one's"),
    (Profile::Tiny, 4340, "the judge did not count the removals of the server's own among what waits"),
    (Profile::Lossy, 2989, "the auditor did not know that a session may fail and be rescued before a KEEPALIVE is answered"),
    (Profile::Fence, 3758, "the auditor did not know that a rescue can end an upgrade's wait"),
];

#[test]
fn seeds_that_showed_a_defect_stay_clean() {
    for (profile, seed, what) in SEEDS {
        let outcome = run(&Plan::draw(profile, seed), None);
        assert_eq!(outcome.violation, None, "seed {seed} of profile {profile}: {what}");
    }
}
