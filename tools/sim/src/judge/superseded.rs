//! I20, no agent ends its own live session: while the server holds a session in good standing and the agent's process has it open, no
//! handshake of that process makes the server end it, and nothing makes the agent discard it.
//!
//! Decides: whether a session that was in good standing is on its way out after the server took a HELLO or a CONFIRM in, and whether an agent has
//! left a session that the server has in good standing. Invariant: what leaves good standing otherwise (delivery failures, evictions,
//! restarts, closing) is not judged here.
//! Leaves to others: leases (`agent_lease`), who may have which lock (`exclusion`).

use super::case::{Case, Verdict, violated};
use super::session::Session;
use super::{Facts, Family};
use crate::observe::{Node, Seen};
use cistern_wire::{Message, SessionId};

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Superseded {
    /// The session of each agent before the happening at hand.
    before: Vec<Option<SessionId>>,
}

impl Family for Superseded {
    fn name(&self) -> &'static str {
        "superseded"
    }

    fn needs_no_lease(&self) -> bool {
        true
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        let verdict = match case.seen {
            Seen::Received { by: Node::Server, .. } => Self::after_handshake(case, facts),
            Seen::Received { by: Node::Agent(agent), .. } => self.after_message(case, facts, *agent),
            _ => Ok(()),
        };
        self.before.clear();
        self.before.extend(facts.sessions.agents.iter().map(|agent| agent.view.session));
        verdict
    }
}

impl Superseded {
    fn after_handshake(case: &Case<'_>, facts: &Facts) -> Verdict {
        let Some(packet) = &case.packet else { return Ok(()) };
        let by = packet.messages.iter().find_map(|message| match message {
            Message::Hello(hello) => {
                Some((facts.sessions.agents.iter().position(|agent| agent.id == Some(hello.agent))?, hello.incarnation))
            }
            Message::Confirm(_) => facts.sessions.agent_of(packet.session()),
            _ => None,
        });
        let Some((number, start)) = by else { return Ok(()) };
        // A higher incarnation, of a copy of its state perhaps, ends the session by right.
        let agent = facts.sessions.agents.get(number).filter(|agent| agent.up && agent.start == start);
        let Some(session) = agent.and_then(|agent| agent.view.session) else { return Ok(()) };
        let Some(known) = facts.sessions.get(session).filter(|known| known.failed.is_none() && is_kept(known)) else { return Ok(()) };
        let standing = facts.sessions.standing_now(case, session);
        if known.agent_start == start && matches!(standing, Some("timing out" | "evicted" | "ending" | "ended")) {
            let what = format!("session {session}, which its agent has open and nothing was wrong with, is {standing:?} after a handshake");
            return violated("I20", "live-session-superseded", what);
        }
        Ok(())
    }

    fn after_message(&self, case: &Case<'_>, facts: &Facts, agent: usize) -> Verdict {
        let Some(session) = self.before.get(agent).copied().flatten() else { return Ok(()) };
        let Some(known) = facts.sessions.get(session) else { return Ok(()) };
        let left = facts.sessions.agents[agent].view.session != Some(session) && is_kept(known);
        if left && !known.nacked && facts.sessions.standing_now(case, session) == Some("good") {
            let what = format!("agent {agent} has left session {session}, which the server has in good standing");
            return violated("I20", "live-session-left", what);
        }
        Ok(())
    }
}

/// Whether its agent has not given it up.
const fn is_kept(known: &Session) -> bool {
    known.given_up.is_none()
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired, hello};
    use super::*;
    use cistern_wire::Probe;

    const S: SessionId = SessionId(5);

    /// An agent that has a session open which the server says is `standing`.
    fn bench(standing: &'static str) -> (Bench, Superseded) {
        let (mut bench, mut judge) = (Bench::new(1), Superseded::default());
        bench.open(&mut judge, 0, 5).unwrap();
        bench.facts.sessions.agents[0].view.session = Some(S);
        bench.show(&mut judge, &Seen::Settled).unwrap();
        bench.facts.sessions.standing.insert(S, standing);
        (bench, judge)
    }

    #[test]
    fn hello_that_ends_a_session_in_good_standing_is_caught() {
        for (standing, caught) in [("good", false), ("evicted", true), ("ending", true)] {
            let (mut bench, mut judge) = bench(standing);
            let verdict = bench.server_gets(&mut judge, 0, 9, &[hello(0, 6)]);
            assert_eq!(verdict.is_err(), caught, "{standing}");
            if caught {
                fired(verdict, "I20", "live-session-superseded");
            }
        }
    }

    #[test]
    fn hello_that_meets_a_session_with_a_failed_delivery_is_clean() {
        let (mut bench, mut judge) = bench("evicted");
        bench.facts.sessions.all.get_mut(&S).unwrap().failed = Some(bench.server_clock.at(bench.now));
        bench.server_gets(&mut judge, 0, 9, &[hello(0, 6)]).unwrap();
    }

    #[test]
    fn agent_that_leaves_a_session_in_good_standing_is_caught() {
        for (standing, caught) in [("timing out", false), ("good", true)] {
            let (mut bench, mut judge) = bench(standing);
            bench.facts.sessions.agents[0].view.session = None;
            let verdict = bench.agent_gets(&mut judge, 0, 5, 9, &[Probe { seq: 1 }.into()]);
            assert_eq!(verdict.is_err(), caught, "{standing}");
        }
    }
}
