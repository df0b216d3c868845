//! The wire auditor as a judge: whatever the cores and the other judges think, the datagrams alone must keep the rules.
//!
//! Decides the vantages: inside the server, with all that its core was given and sent, stamped by the clock that it waits on; and in some
//! runs inside one agent as well. Invariant: the auditor gets nothing that a capture would not have.
//! Leaves to others: the rules (`cistern_audit`).

use crate::attack::is_attacker;
use crate::observe::{Judge, Node, Seen, Sight, Violation};
use crate::plan::Plan;
use cistern_audit::{Auditor, Passage, Side, Terms, Vantage};
use std::net::SocketAddr;
use std::time::Duration;

/// In one run of so many an agent's side is audited, too.
const AGENT_EVERY: u64 = 4;

/// The judge.
#[derive(Debug)]
pub(super) struct Audit {
    server: Auditor,
    agent: Option<(usize, Auditor)>,
    frame: u64,
}

impl Audit {
    pub(super) fn new(plan: &Plan) -> Self {
        let number = usize::try_from(plan.seed / AGENT_EVERY).unwrap_or(0) % plan.agents.max(1);
        let agent = plan.seed.is_multiple_of(AGENT_EVERY).then(|| (number, auditor(plan, Side::Agent)));
        Self { server: auditor(plan, Side::Server), agent, frame: 0 }
    }
}

/// An auditor inside a process that lost nothing.
pub fn auditor(plan: &Plan, side: Side) -> Auditor {
    Auditor::new(Vantage { side, inside: true, complete: true, clock_ppm: 0 }, terms(plan))
}

/// What no datagram of a run says.
fn terms(plan: &Plan) -> Terms {
    // Keys that forgeries can wear out end sessions, too.
    let no_evictions = !plan.wears_keys_out();
    Terms { no_evictions, no_last_heard: !plan.server.last_heard, ..Terms::default() }
}

/// The machine that a datagram passes.
pub(crate) const fn passes(seen: &Seen<'_>) -> Option<Node> {
    match seen {
        Seen::Sent { from: node, .. } | Seen::Received { by: node, .. } | Seen::Forged { by: node, .. } => Some(*node),
        Seen::Exposed { .. } => Some(Node::Server),
        _ => None,
    }
}

/// A datagram that passes a machine: between whom, and its bytes.
pub(crate) fn passing<'a>(sight: &Sight<'_>, seen: &Seen<'a>, node: Node) -> Option<(SocketAddr, SocketAddr, &'a [u8])> {
    let here = match node {
        Node::Server => sight.server_address,
        Node::Agent(agent) => sight.agents[agent].address,
    };
    match seen {
        Seen::Sent { from, to, bytes } if *from == node => Some((here, *to, bytes)),
        Seen::Received { by, from, bytes } | Seen::Forged { by, from, bytes, .. } if *by == node => Some((*from, here, bytes)),
        Seen::Exposed { to, bytes } if node == Node::Server => Some((here, *to, bytes)),
        _ => None,
    }
}

/// When a capture at a machine says that a datagram passes: at the server by the clock that it waits on, at an agent in true time, for
/// a capture's clock goes on while the machine sleeps.
pub(crate) fn stamp(sight: &Sight<'_>, node: Node) -> Duration {
    match node {
        Node::Server => Duration::from_nanos(sight.server_clock.at(sight.now).raw_ns),
        Node::Agent(_) => Duration::from_nanos(sight.now.0),
    }
}

impl Judge for Audit {
    fn name(&self) -> &'static str {
        "audit"
    }

    fn see(&mut self, sight: &Sight<'_>, seen: &Seen<'_>) -> Result<(), Violation> {
        let Self { server, agent, frame } = self;
        let sides =
            std::iter::once((Node::Server, server)).chain(agent.iter_mut().map(|(number, auditor)| (Node::Agent(*number), auditor)));
        for (node, auditor) in sides {
            let Some((from, to, payload)) = passing(sight, seen, node) else { continue };
            *frame += 1;
            let before = auditor.found();
            let found = auditor.take(Passage { frame: *frame, at: stamp(sight, node), from, to, payload });
            // What an insider does wrong itself is its own affair.
            let accused = found > before && !is_attacker(from);
            if let (true, Some(violation)) = (accused, auditor.newest()) {
                return Err(Violation { invariant: "wire", check: violation.rule.id(), what: format!("seen at the {node}: {violation}") });
            }
        }
        Ok(())
    }
}
