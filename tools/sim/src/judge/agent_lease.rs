//! I3 and I6, the agent's side: how long its lease may be, and that a NACK is the end.
//!
//! Decides by comparing what the agent's core says of its lease with what the datagrams it sent and received allow: the send time of the
//! newest transmission echoed in a renewing message of that very session, plus τ (section 11.1). And that nothing of a session lives on
//! after a NACK that the agent must believe: no request, no lease, no holder, no answer from cache (section 11.3); also that no agent goes
//! back to an older incarnation of the server (I11, section 11.6).
//! Leaves to others: what the server may send (`server_rule`), what two leases lead to (`exclusion`).

use super::case::{Case, Verdict, reading, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Output};
use cistern_link::Instant;
use cistern_wire::{Message, SessionId};
use std::collections::BTreeMap;

/// What is remembered of one agent.
#[derive(Clone, Debug, Default)]
struct SeenAgent {
    session: Option<SessionId>,
    /// Epoch and incarnation of the newest server that it took.
    server: (u8, u64),
    /// When it last took a NACK without having a session since.
    nacked_at: Option<True>,
    /// Holders that were not told of the loss of their lock, with the session under which they got it.
    holders: BTreeMap<HolderId, SessionId>,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct AgentLease {
    agents: Vec<SeenAgent>,
}

impl AgentLease {
    pub(super) fn new(agents: usize) -> Self {
        Self { agents: vec![SeenAgent::default(); agents] }
    }
}

impl Family for AgentLease {
    fn name(&self) -> &'static str {
        "agent-lease"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Started { node: Node::Agent(agent), .. } | Seen::Crashed { node: Node::Agent(agent) } => {
                self.agents[*agent] = SeenAgent::default();
                return Ok(());
            }
            Seen::Submitted { agent, command: Command::Unlock { holder }, .. } => {
                self.agents[*agent].holders.remove(holder);
            }
            Seen::Told { agent, event: Event::Lock { holder, what: LockEvent::Lost, .. } } => {
                self.agents[*agent].holders.remove(holder);
            }
            Seen::Ended { agent, op, result: Some(Ok(output)) } => {
                let state = &mut self.agents[*agent];
                if let (Output::Locked(locked), Some(session)) = (output, facts.sessions.agents[*agent].view.session) {
                    state.holders.insert(locked.holder, session);
                }
                let asked = facts.asked.get(op);
                if let Some(asked) = asked.filter(|asked| is_cached_kind(&asked.command) && Some(asked.at) > state.nacked_at) {
                    // Without a session and without a lease nothing can be known.
                    let view = facts.sessions.agents[*agent].view;
                    if state.nacked_at.is_some() && view.session.is_none() && view.valid_until.is_none() {
                        let what = format!("agent {agent} answers {:?} after a NACK, without a session", asked.command);
                        return violated("I6", "answer-without-session", what);
                    }
                }
            }
            _ => {}
        }
        if let Some((agent, packet)) = case.sent_by_agent() {
            let session = facts.sessions.get(packet.session()).filter(|session| session.nack_taken.is_some());
            if session.is_some()
                && let Some(message) = packet.messages.iter().find(|m| m.ask().is_some() || matches!(m, Message::KeepAlive(_)))
            {
                let what = format!("agent {agent} sends {} in session {} after its NACK", message.kind().name(), packet.session());
                return violated("I6", "request-after-nack", what);
            }
        }
        match case.seen {
            Seen::Received { by: Node::Agent(agent), .. } | Seen::Ended { agent, .. } | Seen::Told { agent, .. } => {
                self.look_at(case, facts, *agent)
            }
            Seen::Settled => (0..self.agents.len()).try_for_each(|agent| {
                self.look_at(case, facts, agent)?;
                self.all_are_told(facts, agent)
            }),
            _ => Ok(()),
        }
    }
}

impl AgentLease {
    fn look_at(&mut self, case: &Case<'_>, facts: &Facts, agent: usize) -> Verdict {
        let view = facts.sessions.agents[agent].view;
        let state = &mut self.agents[agent];
        if view.session != state.session {
            let left = state.session.and_then(|session| facts.sessions.get(session));
            if left.is_some_and(|session| session.nack_taken == Some(case.sight.now)) {
                state.nacked_at = Some(case.sight.now);
            }
            if let Some(known) = view.session.and_then(|session| facts.sessions.get(session)) {
                state.nacked_at = None;
                if known.incarnation < state.server {
                    let what = format!("agent {agent} took a session of server {:?} after one of {:?}", known.incarnation, state.server);
                    return violated("I11", "lower-incarnation", what);
                }
                state.server = known.incarnation;
            }
            state.session = view.session;
        }
        if let Some(id) = view.session
            && facts.sessions.get(id).is_some_and(|session| session.nack_taken.is_some())
        {
            return violated("I6", "nack-ignored", format!("agent {agent} keeps session {id} after a NACK"));
        }
        let Some(until) = view.valid_until else { return Ok(()) };
        let own = view.session.and_then(|session| facts.sessions.get(session));
        let source = own.and_then(|session| session.source).and_then(|source| facts.sessions.get(source));
        let ends = [own, source].into_iter().flatten().filter_map(|session| session.lease_end);
        if ends.clone().any(|end| is_within(until, end)) {
            return Ok(());
        }
        let allowed = ends.map(reading).collect::<Vec<_>>().join(" or ");
        let what = format!(
            "agent {agent} takes its lease of session {:?} to last until {}; what it was answered allows {}",
            view.session,
            reading(until),
            if allowed.is_empty() { "nothing" } else { &allowed },
        );
        violated("I3", "lease-too-long", what)
    }

    /// Once a step is over, the holders under a session that was NACKed have been told of their loss.
    fn all_are_told(&self, facts: &Facts, agent: usize) -> Verdict {
        for (holder, session) in &self.agents[agent].holders {
            if facts.sessions.get(*session).is_some_and(|session| session.nack_taken.is_some()) {
                let what = format!("agent {agent} has not told holder {} that the end of session {session} took its lock", holder.0);
                return violated("I6", "not-told", what);
            }
        }
        Ok(())
    }
}

fn is_within(until: Instant, end: Instant) -> bool {
    until.raw_ns <= end.raw_ns && until.boot_ns <= end.boot_ns
}

fn is_cached_kind(command: &Command) -> bool {
    matches!(command, Command::Stat { .. } | Command::Read { .. } | Command::List { .. })
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, fired};
    use super::*;
    use cistern_wire::{Alive, Demand, Fate, Generation, Keep, KeepAlive, LockClass, LockId, Mode, Nack, NackReason, ObjectId};

    const S: u64 = 77;

    fn keep_alive() -> Message<'static> {
        KeepAlive { serial: 1, clock_us: 0 }.into()
    }

    fn alive(echo: u64) -> Message<'static> {
        Alive { serial: 1, echo }.into()
    }

    fn nack(echo: u64) -> Message<'static> {
        Nack { nonce: 0, echo, reason: NackReason::TimingOut, fate: Fate::Unknown }.into()
    }

    /// A session, and a keep-alive sent at 300 ms as packet 5.
    fn opened() -> (Bench, AgentLease) {
        let mut bench = Bench::new(1);
        let mut judge = AgentLease::new(1);
        bench.open(&mut judge, 0, S).unwrap();
        bench.pass(300);
        bench.agent_sends(&mut judge, 0, S, 5, &[keep_alive()]).unwrap();
        bench.pass(200);
        (bench, judge)
    }

    #[test]
    fn lease_from_the_send_time_of_what_is_echoed_is_clean() {
        let (mut bench, mut judge) = opened();
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(1_300));
        bench.agent_gets(&mut judge, 0, S, 9, &[alive(5)]).unwrap();
        bench.show(&mut judge, &Seen::Settled).unwrap();
    }

    #[test]
    fn lease_from_the_receipt_of_the_answer_is_caught() {
        let (mut bench, mut judge) = opened();
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(1_500));
        fired(bench.agent_gets(&mut judge, 0, S, 9, &[alive(5)]), "I3", "lease-too-long");
    }

    #[test]
    fn lease_from_the_last_transmission_is_caught_where_an_earlier_one_is_echoed() {
        let (mut bench, mut judge) = opened();
        bench.agent_sends(&mut judge, 0, S, 6, &[keep_alive()]).unwrap();
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(1_500));
        fired(bench.agent_gets(&mut judge, 0, S, 9, &[alive(5)]), "I3", "lease-too-long");
    }

    #[test]
    fn demand_and_unknown_echo_renew_nothing() {
        for message in [demand(), alive(8)] {
            let (mut bench, mut judge) = opened();
            bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(1_300));
            fired(bench.agent_gets(&mut judge, 0, S, 9, &[message]), "I3", "lease-too-long");
        }
    }

    fn demand() -> Message<'static> {
        let lock = LockId { object: ObjectId(7), class: LockClass::Cache };
        Demand { seq: 1, lock, generation: Generation(1), keep: Keep::Nothing }.into()
    }

    #[test]
    fn answer_of_another_session_renews_nothing() {
        let (mut bench, mut judge) = opened();
        bench.facts.sessions.agents[0].view.session = Some(SessionId(S + 1));
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(1_300));
        fired(bench.agent_gets(&mut judge, 0, S, 9, &[alive(5)]), "I3", "lease-too-long");
    }

    #[test]
    fn agent_that_believes_a_nack_is_clean() {
        let (mut bench, mut judge) = opened();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, 5_000).unwrap();
        bench.lost(&mut judge, 0, 1).unwrap();
        bench.agent_gets_nack(&mut judge, nack(5)).unwrap();
        bench.show(&mut judge, &Seen::Settled).unwrap();
    }

    #[test]
    fn agent_that_ignores_a_nack_is_caught() {
        let (mut bench, mut judge) = opened();
        fired(bench.agent_gets(&mut judge, 0, S, 9, &[nack(5)]), "I6", "nack-ignored");
    }

    #[test]
    fn request_after_a_nack_is_caught() {
        let (mut bench, mut judge) = opened();
        bench.agent_gets_nack(&mut judge, nack(5)).unwrap();
        fired(bench.agent_sends(&mut judge, 0, S, 10, &[keep_alive()]), "I6", "request-after-nack");
    }

    #[test]
    fn holder_that_is_not_told_of_its_loss_is_caught() {
        let (mut bench, mut judge) = opened();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, 5_000).unwrap();
        bench.agent_gets_nack(&mut judge, nack(5)).unwrap();
        fired(bench.show(&mut judge, &Seen::Settled), "I6", "not-told");
    }

    #[test]
    fn going_back_to_an_older_server_is_caught() {
        let (mut bench, _) = opened();
        bench.facts.sessions.all.get_mut(&SessionId(S)).unwrap().incarnation = (0, 5);
        let mut judge = AgentLease::new(1);
        bench.show(&mut judge, &Seen::Settled).unwrap();
        fired(bench.open(&mut judge, 0, S + 1), "I11", "lower-incarnation");
    }

    impl Bench {
        /// The NACK comes, and the agent has no session afterwards.
        fn agent_gets_nack(&mut self, f: &mut dyn Family, nack: Message<'_>) -> Verdict {
            let bytes = super::super::bench::datagram(true, S, 9, &[nack]);
            let mut facts = self.facts.clone();
            let seen = Seen::Received { by: Node::Agent(0), from: super::super::bench::address(200), bytes: &bytes };
            let verdict = self.sight(|sight| {
                let case = Case::new(sight, &seen);
                facts.learn(&case);
                facts.sessions.agents[0].view = Default::default();
                let verdict = f.look(&case, &facts);
                facts.digest(&case);
                verdict
            });
            self.facts = facts;
            verdict
        }
    }
}
