//! What an agent does: asks, renews, releases, answers demands, loses its session and opens another.
//!
//! Decides each step of an agent, as a change of the state. Sections 11.1, 11.3, 11.4 and 11.6 of the spec, for one exclusive lock. An
//! agent keeps its lock over the end of its lease: only the answer to a later request makes it usable again, and only NACK, a
//! release or a demand takes it away. What the server does with what is sent is in [`crate::server`]; a message is sent by putting
//! it into the state's network, where it stays.

use crate::bugs::Bug;
use crate::model::Seen;
use crate::rules::Rules;
use crate::state::{Agent, Ask, Gen, Generation, Outcome, Phase, State, Who};

/// May it ask for the lock? It does so only when it neither has it nor has asked (section 11.4).
pub fn may_acquire(agent: &Agent, rules: &Rules) -> bool {
    agent.phase == Phase::Open && agent.lock == 0 && agent.ask == Ask::Nothing && rules.requests.is_none_or(|most| agent.asked < most)
}

/// Asks for the lock.
pub fn acquire(state: &mut State, who: Who, rules: &Rules) {
    state.agents[who].ask = Ask::Answer;
    if rules.requests.is_some() {
        state.agents[who].asked += 1;
    }
    state.wires[who].acquire.add(0);
    // A new nonce: the reply cache has nothing for it.
    state.sessions[who].outcome = Outcome::Unknown;
}

/// Sends its lock request once more, under a packet number of its own.
pub fn acquire_again(state: &mut State, who: Who) {
    state.wires[who].acquire.add(0);
}

/// Sends a keep-alive.
pub fn renew(state: &mut State, who: Who) {
    state.wires[who].renew.add(0);
}

/// Gives its lock back without being asked. Whoever used it has stopped.
pub fn release(state: &mut State, who: Who, rules: &Rules) {
    let held = std::mem::take(&mut state.agents[who].lock);
    state.about_mut(held).send(Generation::RELEASE);
    // An agent that could not take back what it released could not live with a server that repeats generations.
    if !rules.has(Bug::SameGeneration) {
        let agent = &mut state.agents[who];
        agent.disowned = agent.disowned.max(held);
    }
}

/// A positive answer arrived: it renews from the send time of the transmission that it echoes (section 11.1).
fn renewed(agent: &mut Agent, credit: u8, seen: &Seen) {
    if agent.lock != 0 && agent.lease == 0 && credit > 0 {
        seen.note(Seen::REVIVED);
    }
    agent.lease = agent.lease.max(credit);
}

/// The answer to a keep-alive sent `age` ticks ago.
pub fn keepalive_answered(state: &mut State, who: Who, age: u8, rules: &Rules, seen: &Seen) {
    renewed(&mut state.agents[who], rules.credit(age), seen);
}

/// The answer to the transmission of its lock request sent `age` ticks ago.
pub fn acquire_answered(state: &mut State, who: Who, age: u8, rules: &Rules, seen: &Seen) {
    let sent = if rules.has(Bug::LeaseFromLast) { state.wires[who].acquire.youngest().unwrap_or(age) } else { age };
    renewed(&mut state.agents[who], rules.credit(sent), seen);
    state.wires[who].acquire_answered();
    match state.sessions[who].outcome {
        Outcome::Granted(generation) => install(state, who, generation, seen),
        Outcome::Queued => state.agents[who].ask = Ask::Grant,
        Outcome::Unknown => {}
    }
}

/// The notice of a grant. It echoes nothing and renews nothing. Only who still waits installs it.
pub fn granted(state: &mut State, who: Who, generation: Gen, rules: &Rules, seen: &Seen) {
    state.about_mut(generation).forget(Generation::GRANT);
    if generation > state.agents[who].disowned {
        state.about_mut(generation).send(Generation::RECEIPT);
    }
    if rules.has(Bug::NoticeRenews) {
        state.agents[who].lease = rules.tau;
    }
    state.wires[who].acquire_answered();
    install(state, who, generation, seen);
}

/// Takes a lock that was granted, unless it was demanded or released before (section 11.4).
fn install(state: &mut State, who: Who, generation: Gen, seen: &Seen) {
    let agent = &mut state.agents[who];
    agent.ask = Ask::Nothing;
    if generation > agent.disowned {
        agent.lock = agent.lock.max(generation);
    } else {
        seen.note(Seen::REFUSED);
    }
}

/// A demand for `generation` and all before it: the agent gives up what it covers.
pub fn comply(state: &mut State, who: Who, generation: Gen, rules: &Rules) {
    let agent = &mut state.agents[who];
    let had = std::mem::take(&mut agent.lock);
    if had != 0 || !rules.has(Bug::GrantDemandRace) {
        agent.disowned = agent.disowned.max(generation);
    }
    state.about_mut(generation).send(Generation::RELEASE);
}

/// May it receipt the demand and keep the lock for now: "in use", or "awaited"?
pub fn may_keep(agent: &Agent) -> bool {
    agent.lock != 0 || agent.ask != Ask::Nothing
}

/// Receipts the demand; a user holds the lock, or waits for it.
pub fn keep(state: &mut State, generation: Gen) {
    state.about_mut(generation).send(Generation::RECEIPT);
}

/// A NACK for its session: nothing of it can be used again (section 11.3). A user who was told "certain until" may go on until then.
pub fn nack(state: &mut State, who: Who, rules: &Rules, seen: &Seen) {
    seen.note(Seen::NACKED);
    let agent = &mut state.agents[who];
    agent.phase = Phase::Lost;
    agent.disowned = 0;
    if !rules.has(Bug::NackIgnored) {
        agent.user = if agent.lock != 0 { agent.lease } else { 0 };
        agent.lock = 0;
        agent.lease = 0;
    }
    if !rules.has(Bug::AnswerAfterNack) {
        agent.ask = Ask::Nothing;
    }
    state.wires[who].session_lost(rules);
    // Notices of the lost session, which the agent will not act on.
    for generation in &mut state.generation {
        if generation.owner() == who {
            generation.forget(Generation::DEMAND | Generation::GRANT);
        }
    }
}

/// Its user says that it has stopped.
pub fn user_stops(state: &mut State, who: Who) {
    state.agents[who].user = 0;
}

/// Can a surrender of the session that it lost be on its way: is nothing of it used any more (section 11.3)?
pub fn has_surrendered(state: &State, who: Who, rules: &Rules) -> bool {
    let agent = &state.agents[who];
    let lost = agent.phase == Phase::Lost && !state.sessions[who].unknown_to_agent;
    let on_record = state.holder() == Some(who) && (state.lock.former || lost);
    rules.surrender && on_record && (agent.user == 0 || rules.has(Bug::SurrenderEarly))
}

/// Sends CONFIRM for another session, or sends it again.
pub fn confirm(state: &mut State, who: Who) {
    state.wires[who].confirm.add(0);
}

/// OPENED: the session is open, and its lease begins at the CONFIRM that is echoed.
pub fn opened(state: &mut State, who: Who, age: u8, rules: &Rules, seen: &Seen) {
    seen.note(Seen::REOPENED);
    let wire = &mut state.wires[who];
    wire.confirm = Default::default();
    wire.opened = Default::default();
    wire.old_confirm = rules.has(Bug::RecoverAnyState);
    let agent = &mut state.agents[who];
    agent.phase = Phase::Open;
    agent.lease = agent.lease.max(rules.credit(age));
    state.sessions[who].unknown_to_agent = false;
}
