//! The same quantities by simulation: agents that follow a lease policy, event by event, with nothing solved.
//!
//! Decides: what an agent of each policy does at a request, at a failure or repair of its network, and when its lease has run for some
//! time; what is counted. It shares no formula with the models, which is what it is for; and arrivals may be anything here, while the
//! chain knows random ones only. Messages take no time, as in the models. One seed is one run, for ever.
//!
//! Agents are independent of each other, so one agent is simulated for long, and N agents are N times it.
//!
//! Leaves to others: the real protocol (`cistern-sim` runs that: these are the papers' policies, which are simpler).

use crate::requests::{Arrivals, Gaps, number, random_time};
use cistern_model::renewal::Parts;
use cistern_model::{Invalid, not_negative, positive};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

/// How an agent keeps its lease.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Policy {
    /// One lease; every request renews it, and nothing for fτ is made good by an explicit renewal (OR).
    Opportunistic(Parts),
    /// One lease; renewed explicitly every fτ, whatever else is sent (Frangipani).
    Heartbeat(Parts),
    /// Long leases on objects and short ones, of τ, on the volumes in which they are; a request is a read of one object at random, and
    /// extends, by a message each, those of its two leases that are over (Yin et al.).
    Volumes {
        /// How many objects.
        objects: u32,
        /// In how many volumes.
        volumes: u32,
        /// Term of a lease on an object.
        long_term: f64,
    },
    /// So many leases; a request is a read of one of them at random, and extends it if its term is over (V; 1: all are extended together).
    OnRead {
        /// How many.
        leases: u32,
    },
}

/// An agent, its lease, its network.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scene {
    /// What it does.
    pub(crate) policy: Policy,
    /// Its requests.
    pub(crate) arrivals: Arrivals,
    /// Mean rate of them.
    pub(crate) rho: f64,
    /// τ.
    pub(crate) tau: f64,
    /// λ; 0: the network never fails.
    pub(crate) lambda: f64,
    /// μ.
    pub(crate) mu: f64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Counted {
    /// Requests (reads, with a lease on what is read).
    pub(crate) requests: u64,
    /// Messages sent only to renew.
    pub(crate) renewals: u64,
    /// Requests that found neither a lease nor a network.
    pub(crate) in_vain: u64,
    /// How long it was simulated.
    pub(crate) time: f64,
    /// How much of that an agent with one lease was without it; of leases on objects not counted.
    pub(crate) without: f64,
}

impl Counted {
    /// Explicit renewals per request.
    #[must_use]
    pub(crate) fn overhead(&self) -> f64 {
        ratio(self.renewals, self.requests)
    }

    /// Explicit renewals in a unit of time.
    #[must_use]
    pub(crate) fn renewals_per_time(&self) -> f64 {
        number(self.renewals) / self.time
    }

    /// Share of time without a lease.
    #[must_use]
    pub(crate) fn unavailability(&self) -> f64 {
        self.without / self.time
    }

    /// Share of requests that found neither a lease nor a network.
    #[cfg(test)]
    #[must_use]
    pub(crate) fn vain(&self) -> f64 {
        ratio(self.in_vain, self.requests)
    }
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { number(part) / number(whole) }
}

/// Of so many events for each request wanted a simulation ends early, so that it also ends where requests are rare beside all else; what
/// was counted by then is as true, of fewer requests.
const EVENTS_MAX: u64 = 200;

/// Simulates until so many requests have come, or two hundred times as many events.
///
/// # Errors
/// A parameter that cannot be.
pub(crate) fn simulate(scene: &Scene, requests: u64, seed: u64) -> Result<Counted, Invalid> {
    positive("the rate of requests", scene.rho)?;
    positive("the lease period τ", scene.tau)?;
    not_negative("the failure rate λ", scene.lambda)?;
    if scene.lambda > 0.0 {
        positive("the repair rate μ", scene.mu)?;
    }
    scene.arrivals.check()?;
    let world = World::new(scene, seed, requests.saturating_mul(EVENTS_MAX));
    match scene.policy {
        Policy::Opportunistic(parts) | Policy::Heartbeat(parts) => {
            parts.check()?;
            Ok(one_lease(world, parts, matches!(scene.policy, Policy::Opportunistic(_)), requests))
        }
        Policy::OnRead { leases: 0 } => Err(Invalid { what: "the number of leases", value: 0.0, rule: "1 or more" }),
        Policy::OnRead { leases } => Ok(on_read(world, leases, requests)),
        Policy::Volumes { objects: 0, .. } | Policy::Volumes { volumes: 0, .. } => {
            Err(Invalid { what: "the number of objects and of volumes", value: 0.0, rule: "1 or more" })
        }
        Policy::Volumes { objects, volumes, long_term } => {
            let long_term = positive("the term of leases on objects", long_term)?;
            Ok(of_volumes(world, objects, volumes, long_term, requests))
        }
    }
}

/// Requests and the network, which go on by themselves.
struct World<'s> {
    scene: &'s Scene,
    random: ChaCha12Rng,
    gaps: Gaps<'s>,
    now: f64,
    up: bool,
    next_request: f64,
    next_change: f64,
    /// How many events are still to come at most.
    left: u64,
}

/// What happened.
enum Event {
    Request,
    Failed,
    Mended,
    /// The time that was waited for has come.
    Due,
}

impl<'s> World<'s> {
    fn new(scene: &'s Scene, seed: u64, events: u64) -> Self {
        let random = ChaCha12Rng::seed_from_u64(seed);
        let gaps = Gaps::new(&scene.arrivals);
        let mut world = Self { scene, random, gaps, now: 0.0, up: true, next_request: 0.0, next_change: f64::INFINITY, left: events };
        world.next_request = world.gap();
        world.next_change = world.until_change();
        world
    }

    /// Until the next request.
    fn gap(&mut self) -> f64 {
        self.gaps.next(&mut self.random) / self.scene.rho
    }

    /// Until the network fails or is mended.
    fn until_change(&mut self) -> f64 {
        match (self.scene.lambda, self.up) {
            (0.0, _) => f64::INFINITY,
            (lambda, true) => random_time(&mut self.random) / lambda,
            (_, false) => random_time(&mut self.random) / self.scene.mu,
        }
    }

    /// Goes on to what comes next; `due` at the latest.
    fn next(&mut self, due: f64) -> Event {
        self.left = self.left.saturating_sub(1);
        if due <= self.next_request && due <= self.next_change {
            self.now = due;
            return Event::Due;
        }
        if self.next_request <= self.next_change {
            self.now = self.next_request;
            self.next_request = self.now + self.gap();
            return Event::Request;
        }
        self.now = self.next_change;
        self.up = !self.up;
        self.next_change = self.now + self.until_change();
        if self.up { Event::Mended } else { Event::Failed }
    }
}

/// An agent with one lease.
fn one_lease(mut world: World<'_>, parts: Parts, opportunistic: bool, requests: u64) -> Counted {
    let (renew_after, use_until) = (parts.renew_from * world.scene.tau, parts.use_until * world.scene.tau);
    let mut counted = Counted::default();
    let mut renewed = 0.0;
    while counted.requests < requests && world.left > 0 {
        // Without a network a renewal waits until it is mended.
        let due = if world.up { renewed + renew_after } else { f64::INFINITY };
        let renews = match world.next(due) {
            Event::Due => {
                counted.renewals += 1;
                true
            }
            Event::Mended if world.now >= renewed + renew_after => {
                counted.renewals += 1;
                true
            }
            Event::Request => {
                counted.requests += 1;
                counted.in_vain += u64::from(!world.up && world.now >= renewed + use_until);
                opportunistic && world.up
            }
            Event::Mended | Event::Failed => false,
        };
        if renews {
            counted.without += (world.now - renewed - use_until).max(0.0);
            renewed = world.now;
        }
    }
    counted.without += (world.now - renewed - use_until).max(0.0);
    counted.time = world.now;
    counted
}

/// An agent with leases that are extended by the first read after their term.
fn on_read(mut world: World<'_>, leases: u32, requests: u64) -> Counted {
    let mut counted = Counted::default();
    let mut over = vec![0.0f64; leases as usize];
    while counted.requests < requests && world.left > 0 {
        if let Event::Request = world.next(f64::INFINITY) {
            counted.requests += 1;
            let read = world.random.random_range(0..over.len());
            if world.now >= over[read] {
                if world.up {
                    counted.renewals += 1;
                    over[read] = world.now + world.scene.tau;
                } else {
                    counted.in_vain += 1;
                }
            }
        }
    }
    counted.time = world.now;
    counted
}

/// An agent with leases on objects and on the volumes in which they are.
fn of_volumes(mut world: World<'_>, objects: u32, volumes: u32, long_term: f64, requests: u64) -> Counted {
    let mut counted = Counted::default();
    let mut objects = vec![0.0f64; objects as usize];
    let mut volumes = vec![0.0f64; volumes as usize];
    while counted.requests < requests && world.left > 0 {
        if let Event::Request = world.next(f64::INFINITY) {
            counted.requests += 1;
            let read = world.random.random_range(0..objects.len());
            let of = read % volumes.len();
            let over = [world.now >= objects[read], world.now >= volumes[of]];
            if !world.up {
                counted.in_vain += u64::from(over.contains(&true));
                continue;
            }
            if over[0] {
                counted.renewals += 1;
                objects[read] = world.now + long_term;
            }
            if over[1] {
                counted.renewals += 1;
                volumes[of] = world.now + world.scene.tau;
            }
        }
    }
    counted.time = world.now;
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scene(policy: Policy) -> Scene {
        Scene { policy, arrivals: Arrivals::Poisson, rho: 1.0, tau: 3.0, lambda: 0.0, mu: 0.0 }
    }

    #[test]
    fn a_seed_is_a_run() {
        let scene = Scene { lambda: 0.1, mu: 1.0, ..scene(Policy::Opportunistic(Parts::PAPER)) };
        assert_eq!(simulate(&scene, 1_000, 7), simulate(&scene, 1_000, 7));
        assert_ne!(simulate(&scene, 1_000, 7), simulate(&scene, 1_000, 8));
    }

    #[test]
    fn a_simulation_ends_where_requests_are_rare() {
        let scene = Scene { rho: 1e-20, lambda: 0.1, mu: 1.0, ..scene(Policy::OnRead { leases: 3 }) };
        assert_eq!(simulate(&scene, 100, 1).unwrap().requests, 0);
        let counted = simulate(&Scene { policy: Policy::Heartbeat(Parts::PAPER), ..scene }, 500, 1).unwrap();
        // Most of 100,000 events are renewals, each after a lease period of 3.
        assert!(counted.requests == 0 && counted.renewals > 50_000 && counted.time > 100_000.0, "{counted:?}");
    }

    #[test]
    fn a_trace_is_replayed_as_it_is() {
        // Gaps of 1, 1 and 4, of which the last needs one renewal at τ = 3.
        let scene = Scene { arrivals: Arrivals::Traced(vec![1.0, 1.0, 4.0]), rho: 0.5, ..scene(Policy::Opportunistic(Parts::PAPER)) };
        let counted = simulate(&scene, 300, 1).unwrap();
        assert_eq!((counted.requests, counted.renewals, counted.time), (300, 100, 600.0));
        assert!((scene.arrivals.overhead(1.5) - 1.0 / 3.0).abs() < 1e-12);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = scene(Policy::Opportunistic(Parts::PAPER));
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(simulate(&Scene { rho: bad, ..good.clone() }, 1, 1).is_err());
            assert!(simulate(&Scene { lambda: 1.0, mu: bad, ..good.clone() }, 1, 1).is_err());
            assert!(simulate(&Scene { arrivals: Arrivals::Bursts { long: bad, times: 10.0 }, ..good.clone() }, 1, 1).is_err());
        }
        assert!(simulate(&scene(Policy::OnRead { leases: 0 }), 1, 1).is_err());
        for (objects, volumes, long_term) in [(0, 1, 1.0), (1, 0, 1.0), (1, 1, 0.0), (1, 1, f64::NAN)] {
            assert!(simulate(&scene(Policy::Volumes { objects, volumes, long_term }), 1, 1).is_err());
        }
        assert!(simulate(&Scene { arrivals: Arrivals::Traced(vec![]), ..good }, 1, 1).is_err());
    }
}
