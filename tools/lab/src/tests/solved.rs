//! Solved and simulated agree: each policy, with and without failures, with random, bursty and traced requests.
//!
//! A simulation of n independent events has a relative error of about 1/√n. The runs are long enough for some thousand renewals or
//! outages each, and the tolerance is 5 %. One seed is one run, so a test that passes passes always.

use crate::requests::Arrivals;
use crate::simulated::{Policy, Scene, simulate};
use cistern_model::arrivals::Gaps;
use cistern_model::renewal::{Explicit, Lease, Parts, Stages};
use cistern_model::schemes::Cluster;

const TOLERANCE: f64 = 0.05;
const EARLY: Parts = Parts { renew_from: 0.6, use_until: 0.8 };
const BURSTS: Arrivals = Arrivals::Bursts { long: 0.1, times: 20.0 };

fn near(what: &str, simulated: f64, solved: f64) {
    assert!((simulated / solved - 1.0).abs() < TOLERANCE, "{what}: simulated {simulated:e}, solved {solved:e}");
}

fn scene(policy: Policy, tau: f64) -> Scene {
    Scene { policy, arrivals: Arrivals::Poisson, rho: 1.0, tau, lambda: 0.0, mu: 0.0 }
}

fn lease(tau: f64, lambda: f64, mu: f64) -> Lease {
    Lease { tau, rho: 1.0, lambda, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp }
}

#[test]
fn overhead_without_failures() {
    for (tau, requests) in [(0.5, 20_000), (2.0, 80_000), (5.0, 500_000)] {
        for parts in [Parts::PAPER, EARLY] {
            let solved = lease(tau, 0.0, 0.0);
            let opportunistic = simulate(&scene(Policy::Opportunistic(parts), tau), requests, 1).unwrap();
            near("opportunistic", opportunistic.overhead(), solved.solve_early(parts).unwrap().overhead(1.0).rounded());
            let heartbeat = simulate(&scene(Policy::Heartbeat(parts), tau), requests, 2).unwrap();
            near("heartbeat", heartbeat.overhead(), solved.explicit().solve_early(parts).unwrap().overhead(1.0).rounded());
            // But for the rounding of instants.
            assert!(opportunistic.unavailability().max(heartbeat.unavailability()) < 1e-9, "a network that never fails loses no lease");
        }
    }
}

#[test]
fn overhead_and_unavailability_with_failures() {
    for (tau, lambda, mu) in [(3.0, 0.05, 0.5), (3.0, 0.2, 0.3), (8.0, 0.02, 0.1)] {
        for parts in [Parts::PAPER, EARLY] {
            let at = |policy| simulate(&Scene { lambda, mu, ..scene(policy, tau) }, 500_000, 3).unwrap();
            let solved = lease(tau, lambda, mu);
            for (what, simulated, solved) in [
                ("opportunistic", at(Policy::Opportunistic(parts)), solved),
                ("heartbeat", at(Policy::Heartbeat(parts)), solved.explicit()),
            ] {
                let solved = solved.solve_early(parts).unwrap();
                let what = format!("{what} τ={tau} λ={lambda} μ={mu} {parts:?}");
                near(&format!("{what}: overhead"), simulated.overhead(), solved.overhead(1.0).rounded());
                near(&format!("{what}: unavailability"), simulated.unavailability(), solved.unavailability().rounded());
                // Requests come at random, so they see what time sees.
                near(&format!("{what}: in vain"), simulated.vain(), solved.unavailability().rounded());
            }
        }
    }
}

#[test]
fn leases_that_are_extended_when_read() {
    for leases in [1, 50] {
        let (tau, lambda, mu) = (4.0, 0.05, 0.2);
        let simulated = simulate(&Scene { lambda, mu, ..scene(Policy::OnRead { leases }, tau) }, 500_000, 4).unwrap();
        let reads = 1.0 / f64::from(leases);
        let solved = Lease { rho: 0.0, sigma: Explicit::Rate(reads), ..lease(tau, lambda, mu) }.solve().unwrap();
        near("renewals", simulated.renewals_per_time(), solved.renewals.rounded() * f64::from(leases));
        near("reads in vain", simulated.vain(), solved.lapsed_down.rounded());
    }
}

#[test]
fn leases_on_objects_and_on_volumes() {
    // 40 objects in 4 volumes; reads of one object every 40, of one volume every 4 units of time.
    let (tau, long_term, lambda, mu) = (4.0, 200.0, 0.05, 0.5);
    let policy = Policy::Volumes { objects: 40, volumes: 4, long_term };
    let simulated = simulate(&Scene { lambda, mu, ..scene(policy, tau) }, 500_000, 7).unwrap();
    let solved = |term, reads| Lease { rho: 0.0, sigma: Explicit::Rate(reads), ..lease(term, lambda, mu) }.solve().unwrap();
    let (object, volume) = (solved(long_term, 1.0 / 40.0), solved(tau, 0.25));
    near("renewals", simulated.renewals_per_time(), 40.0 * object.renewals.rounded() + 4.0 * volume.renewals.rounded());
    // At most the sum; at least the larger of the two.
    let (either, sum) = (volume.lapsed_down.rounded(), volume.lapsed_down.rounded() + object.lapsed_down.rounded());
    assert!((either * 0.95..sum * 1.05).contains(&simulated.vain()), "{either} to {sum}: {}", simulated.vain());
}

#[test]
fn bursts_and_traces() {
    // A trace of bursts: nine short gaps, then a long one, of different lengths.
    let trace: Vec<f64> = (0..1_000).map(|i| if i % 10 == 9 { 5.0 + f64::from(i % 7) } else { 0.1 + 0.01 * f64::from(i % 3) }).collect();
    let gaps: Gaps = trace.iter().copied().collect();
    let traced = Arrivals::Traced(trace);
    for tau in [1.0, 3.0, 6.0] {
        for parts in [Parts::PAPER, EARLY] {
            let at = |arrivals: &Arrivals| {
                simulate(&Scene { arrivals: arrivals.clone(), ..scene(Policy::Opportunistic(parts), tau) }, 300_000, 5).unwrap().overhead()
            };
            let x = parts.renew_from * tau;
            near("bursts", at(&BURSTS), BURSTS.overhead(x));
            near("trace", at(&traced), traced.overhead(x));
            // The planner's way, in the trace's own unit of time.
            near("gaps", at(&traced), gaps.overhead(x / gaps.rate().unwrap()).unwrap());
        }
    }
    assert!(BURSTS.overhead(6.0) > 10.0 * Arrivals::Poisson.overhead(6.0), "bursts cost more at long periods");
}

#[test]
fn messages_of_a_cluster_by_protocol() {
    let cluster = Cluster {
        agents: 100.0,
        objects: 50.0,
        volumes: 1.0,
        reads: 0.02,
        requests: 1.0,
        tau: 4.0,
        long_term: 600.0,
        parts: EARLY,
        failures: 1e-3,
        repairs: 0.5,
        delivery_timeout: 0.5,
        delta: 0.01,
    };
    let costs = cluster.compare().unwrap();
    for (name, policy) in [
        ("per-object", Policy::OnRead { leases: 50 }),
        ("batched", Policy::OnRead { leases: 1 }),
        ("volume", Policy::Volumes { objects: 50, volumes: 1, long_term: 600.0 }),
        ("heartbeat", Policy::Heartbeat(EARLY)),
        ("opportunistic", Policy::Opportunistic(EARLY)),
    ] {
        let scene = Scene { lambda: 1e-3, mu: 0.5, ..scene(policy, 4.0) };
        let simulated = simulate(&scene, 300_000, 6).unwrap();
        let solved = costs.iter().find(|cost| cost.name == name).unwrap().messages.rounded();
        near(name, simulated.renewals_per_time() * 2.0 * 100.0, solved);
    }
}
