//! The smallest run that still fails: faults are left out, then the run is cut short, then agents are left out.
//!
//! Decides by trying: a smaller plan is kept if it breaks the same invariant by the same check. Faults go by halves, then by smaller
//! parts, then one by one. Invariant: what it gives fails as the original did; it never tries more often, or longer, than it may.
//! Leaves to others: running (`run`), telling (`report`).

use crate::observe::Violation;
use crate::plan::{MS, Plan};
use std::time::{Duration, Instant};

/// How much may be tried.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Most runs.
    pub runs: u32,
    /// Most time.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { runs: 400, time: Duration::from_secs(60) }
    }
}

/// What came of shrinking.
#[derive(Clone, Debug)]
pub struct Shrunk {
    /// The smallest plan that fails.
    pub plan: Plan,
    /// What does not hold in it.
    pub violation: Violation,
    /// How many runs it took.
    pub runs: u32,
}

/// Shrinks a plan that fails with this violation; `run` runs a plan and gives what did not hold.
pub fn shrink(plan: &Plan, violation: &Violation, limits: Limits, run: &mut dyn FnMut(&Plan) -> Option<Violation>) -> Shrunk {
    let found = Shrunk { plan: plan.clone(), violation: violation.clone(), runs: 0 };
    let mut search = Search { found, limits, start: Instant::now(), run };
    search.without_faults();
    search.shorter();
    search.fewer_agents();
    search.without_faults();
    search.found
}

struct Search<'a> {
    found: Shrunk,
    limits: Limits,
    start: Instant,
    run: &'a mut dyn FnMut(&Plan) -> Option<Violation>,
}

impl Search<'_> {
    fn may_go_on(&self) -> bool {
        self.found.runs < self.limits.runs && self.start.elapsed() < self.limits.time
    }

    /// Keeps the plan if it fails in the same way.
    fn keep_if_it_fails(&mut self, plan: Plan) -> bool {
        if plan == self.found.plan || !self.may_go_on() {
            return false;
        }
        self.found.runs += 1;
        let known = &self.found.violation;
        match (self.run)(&plan) {
            Some(violation) if violation.invariant == known.invariant && violation.check == known.check => {
                self.found.plan = plan;
                self.found.violation = violation;
                true
            }
            _ => false,
        }
    }

    fn without_faults(&mut self) {
        let mut part = self.found.plan.faults.len();
        while part > 0 && self.may_go_on() {
            let mut from = 0;
            while from < self.found.plan.faults.len() {
                let mut plan = self.found.plan.clone();
                let to = (from + part).min(plan.faults.len());
                plan.faults.drain(from..to);
                // When a part went, what follows has moved into its place.
                if !self.keep_if_it_fails(plan) {
                    from += part;
                }
            }
            part /= 2;
        }
    }

    fn shorter(&mut self) {
        let (mut least, mut step) = (0, self.found.plan.heal_ns / 2);
        while step >= 50 * MS && self.may_go_on() {
            let heal_ns = (self.found.plan.heal_ns - step) / MS * MS;
            if heal_ns > least && self.keep_if_it_fails(self.found.plan.clone().until(heal_ns)) {
                step = step.min(self.found.plan.heal_ns / 2);
            } else {
                least = least.max(heal_ns);
                step /= 2;
            }
        }
    }

    fn fewer_agents(&mut self) {
        while self.found.plan.agents > 1 {
            let fewer = self.found.plan.clone().with_agents(self.found.plan.agents - 1);
            if !self.keep_if_it_fails(fewer) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Profile, SEC};

    fn artificial(plan: &Plan, of: &[u32], agents: usize, heal_ns: u64) -> Option<Violation> {
        let all = of.iter().all(|id| plan.faults.iter().any(|fault| fault.id == *id));
        let fails = all && plan.agents >= agents && plan.heal_ns >= heal_ns;
        fails.then(|| Violation { invariant: "I1", check: "artificial", what: String::new() })
    }

    fn large() -> Plan {
        (0..)
            .map(|seed| Plan::draw(Profile::Swarm, seed))
            .find(|plan| plan.faults.len() > 12 && plan.agents == 5 && plan.faults[5].agent().is_none() && plan.faults[2].at < SEC)
            .unwrap()
    }

    #[test]
    fn finds_the_faults_that_matter_and_no_other() {
        let plan = large();
        let last = plan.faults.iter().filter(|fault| [0, 5].contains(&fault.id)).map(|fault| fault.at).max().unwrap();
        let mut judge = |plan: &Plan| artificial(plan, &[0, 5], 1, 0);
        let violation = judge(&plan).unwrap();
        let shrunk = shrink(&plan, &violation, Limits::default(), &mut judge);
        assert_eq!(shrunk.plan.faults.iter().map(|fault| fault.id).collect::<Vec<_>>(), [0, 5]);
        assert!(shrunk.plan.heal_ns < last + 200 * MS && shrunk.runs < 150, "{} {}", shrunk.plan.heal_ns, shrunk.runs);
    }

    #[test]
    fn keeps_the_agents_and_the_time_that_it_takes() {
        let plan = large();
        let heal_ns = plan.heal_ns / 3;
        let mut judge = |plan: &Plan| artificial(plan, &[], 3, heal_ns);
        let violation = judge(&plan).unwrap();
        let shrunk = shrink(&plan, &violation, Limits::default(), &mut judge);
        assert_eq!((shrunk.plan.agents, shrunk.plan.faults.len()), (3, 0));
        assert!((heal_ns..heal_ns + 200 * MS).contains(&shrunk.plan.heal_ns));
    }

    #[test]
    fn another_violation_does_not_count() {
        let plan = large();
        let original = artificial(&plan, &[], 1, 0).unwrap();
        let mut judge = |_: &Plan| Some(Violation { invariant: "I2", check: "another", what: String::new() });
        assert_eq!(shrink(&plan, &original, Limits::default(), &mut judge).plan, plan);
    }

    #[test]
    fn tries_no_more_often_than_it_may() {
        let plan = large();
        let mut runs = 0;
        let mut judge = |plan: &Plan| {
            runs += 1;
            artificial(plan, &[3], 1, 0)
        };
        let violation = Violation { invariant: "I1", check: "artificial", what: String::new() };
        let limits = Limits { runs: 5, ..Limits::default() };
        assert_eq!(shrink(&plan, &violation, limits, &mut judge).runs, 5);
        assert_eq!(runs, 5);
    }
}
