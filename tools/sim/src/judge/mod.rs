//! The judges of a run: what must hold, whatever happens (I1 to I21), judged from outside the cores.
//!
//! Decides which judges a run has, and in which order they and what they share learn of a happening: sessions and the store's truth
//! first, then the families, each of which judges one or a few invariants, then the lock table (so that a grant is judged before it
//! is in it). Place in the walk: the world shows each happening to the court (`Court`). In a run that breaks an assumption of the lease
//! only the families that need no lease judge.
//! Invariant: judging changes nothing; each happening is decoded once.
//! Leaves to others: making things happen (`world`), what is seen (`observe`), what is reached at all (`counters`).

mod agent_lease;
pub mod audit;
#[cfg(test)]
mod bench;
mod bounds;
mod case;
mod delivery;
mod durable;
mod exclusion;
mod grace;
mod liveness;
mod locks;
mod named_leases;
mod noted;
mod once;
mod outcomes;
mod places;
mod presence;
mod queue;
mod reads;
mod server_rule;
mod session;
mod sessions;
mod strangers;
mod superseded;
mod tokens;
mod truth;

use crate::observe::{Judge, Node, Seen, Sight, True, UserOp, Violation};
use crate::plan::{Fault, Plan, What};
use case::{Case, Verdict};
use cistern_agent::api::Command;
use std::collections::BTreeMap;

/// A command that is under way.
#[derive(Clone, Debug)]
struct Asked {
    at: True,
    command: Command,
}

/// What all families share.
#[derive(Clone, Debug)]
struct Facts {
    sessions: sessions::Sessions,
    truth: truth::Truth,
    locks: locks::Locks,
    asked: BTreeMap<UserOp, Asked>,
}

impl Facts {
    fn new(agents: usize) -> Self {
        Self {
            sessions: sessions::Sessions::new(agents),
            truth: truth::Truth::default(),
            locks: locks::Locks::default(),
            asked: BTreeMap::new(),
        }
    }

    /// Before the families look.
    fn learn(&mut self, case: &Case<'_>) {
        self.sessions.note(case);
        self.truth.note(case);
        if let Seen::Submitted { op, command, .. } = case.seen {
            self.asked.insert(*op, Asked { at: case.sight.now, command: (*command).clone() });
        }
    }

    /// After the families have looked.
    fn digest(&mut self, case: &Case<'_>) {
        self.locks.note(case, &self.sessions);
        if let Seen::Ended { op, .. } = case.seen {
            self.asked.remove(op);
        }
    }
}

/// Judges one or a few invariants, with the facts that all share.
trait Family {
    /// Its name.
    fn name(&self) -> &'static str;

    /// Whether what it judges holds without the lease, too.
    fn needs_no_lease(&self) -> bool {
        false
    }

    /// Something happened.
    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict;

    /// The run is over.
    fn end(&mut self, _sight: &Sight<'_>, _facts: &Facts) -> Verdict {
        Ok(())
    }
}

/// All families over one set of facts.
struct Court {
    facts: Facts,
    families: Vec<Box<dyn Family>>,
}

impl Judge for Court {
    fn name(&self) -> &'static str {
        "court"
    }

    fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) -> Result<(), Violation> {
        let case = Case::new(sight, seen);
        self.facts.learn(&case);
        for family in &mut self.families {
            if !sight.fence_only || family.needs_no_lease() {
                family.look(&case, &self.facts)?;
            }
        }
        self.facts.digest(&case);
        Ok(())
    }

    fn end(&mut self, sight: &Sight<'_>) -> Result<(), Violation> {
        for family in &mut self.families {
            if !sight.fence_only || family.needs_no_lease() {
                log::trace!("{} judges the end", family.name());
                family.end(sight, &self.facts)?;
            }
        }
        Ok(())
    }
}

/// The judges of a run.
#[must_use]
pub fn judges(plan: &Plan) -> Vec<Box<dyn Judge>> {
    let held_up_ns = if plan.net.stall_ppm > 0 { plan.net.stall_ns } else { 0 };
    let mut families: Vec<Box<dyn Family>> = vec![
        Box::new(agent_lease::AgentLease::new(plan.agents)),
        Box::new(server_rule::ServerRule::default()),
        Box::new(delivery::Delivery::default()),
        Box::new(noted::Noted::default()),
        Box::new(exclusion::Exclusion::default()),
        Box::new(reads::Reads::default()),
        Box::new(once::Once::default()),
        Box::new(outcomes::Outcomes::default()),
        Box::new(durable::Durable::default()),
        Box::new(presence::Presence::default()),
        Box::new(named_leases::NamedLeases::default()),
        Box::new(places::Places::default()),
        Box::new(grace::Grace::default()),
        Box::new(queue::QueueOrder::default()),
        Box::new(tokens::TokensGrow::default()),
        Box::new(bounds::Bounds::default()),
        Box::new(liveness::Liveness::new(plan.agents, plan.workload.hot, troubled(plan), held_up_ns)),
        Box::new(strangers::Strangers::new(plan.sealed.is_some())),
    ];
    // Whoever abandons a session for its keys leaves one in good standing.
    if !plan.wears_keys_out() {
        families.push(Box::new(superseded::Superseded::default()));
    }
    vec![Box::new(Court { facts: Facts::new(plan.agents), families }), Box::new(audit::Audit::new(plan))]
}

/// When each agent, or its link, had a fault; `None` where chance alone may lose datagrams or hold an agent up.
fn troubled(plan: &Plan) -> Option<Vec<Vec<(u64, u64)>>> {
    if plan.net.loss_ppm > 0 || plan.net.stall_ppm > 0 || plan.fence_only {
        return None;
    }
    let concerns = |fault: &Fault, agent: usize| match &fault.what {
        What::Pause { node: Node::Server } | What::DiskSlow { .. } | What::DiskStall => false,
        _ => fault.agent().is_none_or(|of| of == agent),
    };
    let of = |agent| plan.faults.iter().filter(|fault| concerns(fault, agent)).map(|fault| (fault.at, fault.until)).collect();
    Some((0..plan.agents).map(of).collect())
}
