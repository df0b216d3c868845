//! Nobody starves the others: one host sends what it can, and an agent on another one keeps its lock and its lease, and is served.
//!
//! Hosts are addresses of loopback. The attacker has sessions of its own and keeps to the wire format, and to nothing else.

use cistern_testkit::attack::{Attack, Attacker, Insider};
use cistern_testkit::{Agent, Server, eventually};
use cistern_wire::limits::ROOT;
use cistern_wire::{Bytes16, Lock, LockWait, Mode, ObjectId, Reply, Stage};
use serde_json::json;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Each of these tests takes up a core: one after the other, for the sake of all others.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The lease of the victim, and how long it is attacked: longer than T.
const LEASE: &str = "2s";
const ATTACKED: Duration = Duration::from_secs(4);

/// A server, and a victim with a lock on another host than the attacker's.
fn world(attack: Attack, sealed: bool) -> (Server, Agent, u64) {
    let server = Server::attacked(attack, sealed, LEASE);
    let mut victim = Agent::start(&server, "victim");
    victim.put("/job", "");
    let (hold, _) = victim.lock("/job");
    (server, victim, hold)
}

/// Ends an attack with its test, failed or not.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Attacks for longer than T, as fast as it goes; the victim's lease holds all the time, and it is served to the end. How soon depends on the
/// machine, and is not asked.
fn survives(attack: Attack, sealed: bool) -> Server {
    let (server, mut victim, hold) = world(attack, sealed);
    let session = victim.lease()["session"].take();
    assert!(session.is_string(), "{session}");
    let mut other = Agent::start(&server, "other");
    let mut attacker = Attacker::new(attack, server.address, server.admit("hostile"), "job", true);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Relaxed) {
                attacker.turn();
            }
        });
        let _over = Over(&over);
        let (end, mut served) = (Instant::now() + ATTACKED, 0);
        eventually("the victim is served throughout", || {
            // What the victim changes is in the cache of another agent on its own host. A disk that is full is told; the lease holds.
            let _ = other.read("/job");
            let put = victim.ask(&json!({ "op": "put", "path": "/job", "data": "still here" }));
            assert!(put.is_ok() || attack == Attack::Disk, "{put:?}");
            assert_eq!(victim.hold(hold), "certain");
            served += 1;
            (Instant::now() > end && served > 3).then_some(())
        });
    });
    assert_eq!(victim.lease()["session"], session);
    victim.unlock(hold);
    server
}

/// One after the other, in clear and sealed.
fn in_both_modes(test: impl Fn(bool)) {
    let _alone = alone();
    [false, true].into_iter().for_each(test);
}

#[test]
fn lists_of_locks_in_a_deep_tree_cost_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::ListLocks, sealed)));
}

#[test]
fn floods_of_requests_and_of_keep_alives_cost_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Requests, sealed)));
}

#[test]
fn who_keeps_cache_locks_and_comes_back_costs_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::CacheLocks, sealed)));
}

#[test]
fn demands_that_one_host_ignores_cost_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Demands, sealed)));
}

#[test]
fn a_host_that_opens_sessions_without_end_costs_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Sessions, sealed)));
}

#[test]
fn a_host_that_fills_memory_costs_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Memory, sealed)));
}

#[test]
fn a_host_that_announces_contents_without_end_costs_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Stages, sealed)));
}

#[test]
fn a_host_that_fills_the_disk_costs_nobody_a_lease() {
    in_both_modes(|sealed| drop(survives(Attack::Disk, sealed)));
}

/// A line for each would be some MiB in a minute.
#[test]
fn what_a_host_is_talked_of_fills_no_log_and_costs_nobody_a_lease() {
    in_both_modes(|sealed| {
        let server = survives(Attack::Log, sealed);
        let log = fs::metadata(server.log()).unwrap().len();
        assert!(log < 256 << 10, "{log} bytes");
    });
}

const DIR: ObjectId = ObjectId(ROOT);

/// The table of sessions, filled from one host whose sessions all answer.
#[test]
fn one_host_leaves_places_for_sessions_to_others() {
    in_both_modes(|sealed| {
        let (server, mut victim, hold) = world(Attack::Sessions, sealed);
        let by = server.admit("hostile");
        let mut hostile = Vec::new();
        let refused = loop {
            match Insider::open(server.address, hostile.len() as u64 + 1, by.as_ref()) {
                Ok(insider) => hostile.push(insider),
                Err(reason) => break reason,
            }
            assert!(hostile.len() < 200);
        };
        let words = ["the agent's network has as many sessions as the server gives one", "the key has as many sessions as it may have"];
        assert_eq!(refused, words[usize::from(sealed)]);
        assert!((150..=160).contains(&hostile.len()), "{}", hostile.len());
        for n in 0..3 {
            Agent::start(&server, &format!("newcomer{n}")).read("/job").unwrap();
        }
        assert_eq!(victim.hold(hold), "certain");
        victim.unlock(hold);
    });
}

/// Staged bytes, as much as one host is given; another one gets its own.
#[test]
fn one_host_leaves_memory_for_contents_to_others() {
    in_both_modes(|sealed| {
        let (server, mut victim, hold) = world(Attack::Stages, sealed);
        let mut hostile = Insider::open(server.address, 1, server.admit("hostile").as_ref()).unwrap();
        let mut refused = 0;
        for stage in 0..12 {
            // The last byte first: it takes the memory of all before it.
            let (total, offset) = (1 << 20, (1 << 20) - 1_000);
            let stage = Stage { ask: hostile.ask(), stage: stage + 1, total, offset, data: Bytes16(&[7; 1_000]) };
            hostile.asks(&stage.into(), |reply| refused += u32::from(is_limited(reply)));
        }
        assert!(refused >= 8, "{refused}");
        // 500,000 bytes come by stages.
        victim.put("/big", &"x".repeat(500_000));
        victim.unlock(hold);
    });
}

/// Locks, as many as one host is given; another one gets its own.
#[test]
fn one_host_leaves_locks_to_others() {
    in_both_modes(|sealed| {
        let (server, mut victim, hold) = world(Attack::Locks, sealed);
        let mut hostile = Insider::open(server.address, 1, server.admit("hostile").as_ref()).unwrap();
        let mut refused = 0;
        for n in 0..1_700 {
            let object = hostile.creates(DIR, &format!("f{n}"));
            let lock = Lock { ask: hostile.ask(), object, mode: Mode::Shared, wait: LockWait::Try };
            hostile.asks(&lock.into(), |reply| refused += u32::from(is_limited(reply)));
        }
        assert!(refused >= 50, "{refused}");
        victim.put("/other", "");
        let (second, _) = victim.lock("/other");
        victim.unlock(second);
        victim.unlock(hold);
    });
}

const fn is_limited(reply: &Reply<'_>) -> bool {
    matches!(reply, Reply::Limited(_))
}
