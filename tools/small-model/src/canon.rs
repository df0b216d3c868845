//! One state for all that cannot be told apart by what may still happen.
//!
//! Decides the canonical form: what no step reads any more is cleared, generations are renumbered in order so that only their order
//! counts, and of a state and its mirror image (A and B exchanged) the lesser stands for both. Nothing here may hide a
//! behaviour that could break a property; each reduction says why it does not. A trace undoes the renaming with [`Renaming`].

use crate::bugs::Bug;
use crate::rules::Rules;
use crate::state::{Ask, GENERATIONS, Gen, Generation, Outcome, Phase, Standing, State};

/// How the names in a canonical state come from those before.
#[derive(Clone, Copy, Debug)]
pub struct Renaming {
    /// New number of generation n at n, 0 if it is gone.
    pub generation: [Gen; GENERATIONS + 1],
    /// Were the agents exchanged?
    pub exchanged: bool,
}

/// Brings a state into its canonical form.
pub fn canonical(mut state: State, rules: &Rules) -> (State, Renaming) {
    for who in 0..2 {
        tidy(&mut state, who, rules);
    }
    let generation = renumber(&mut state, rules);
    let mirror = exchanged(&state);
    if mirror < state { (mirror, Renaming { generation, exchanged: true }) } else { (state, Renaming { generation, exchanged: false }) }
}

/// Clears what is over.
fn tidy(state: &mut State, who: usize, rules: &Rules) {
    let agent = state.agents[who];
    if rules.reduce {
        // Sending changes nothing but the network, and a message that is never delivered is as good as not sent. So these are
        // sent always, at once, and never by a step of their own.
        match agent.phase {
            Phase::Open => state.wires[who].renew.add(0),
            Phase::Lost => state.wires[who].confirm.add(0),
        }
        state.wires[who].keep_youngest();
    }
    state.wires[who].tidy(rules, agent.lease);
    let holds = state.holds(who);
    let session = &mut state.sessions[who];
    // The reply cache serves the request that the agent waits for. An answer to an earlier one would change nothing.
    if agent.ask != Ask::Answer {
        session.outcome = Outcome::Unknown;
    }
    // A timer matters while the session times out and there is a lock to steal. Without the lock it gets none again, but by a bug.
    if !(holds || rules.has(Bug::AckWhileTiming)) || session.standing != Standing::TimingOut {
        session.owed = 0;
        if !(session.rescued && holds) {
            session.timer = 0;
        }
    }
    if !holds {
        session.rescued = false;
    }
    // A failed session without the lock never gets it back, so what was heard of it is never asked for.
    if !rules.last_heard || (!holds && session.standing != Standing::Good) {
        session.heard = 0;
        session.echoed = 0;
    }
    if !rules.has(Bug::TimerFromDemand) || state.lock.held == 0 {
        state.lock.demanded = 0;
    }
}

/// Keeps the generations that some step may still read, in their order. Of the others only messages are left that free nothing,
/// and demands that could only make an agent more careful; a network that loses those is within what is explored.
fn renumber(state: &mut State, rules: &Rules) -> [Gen; GENERATIONS + 1] {
    let mut renamed = [0; GENERATIONS + 1];
    let mut kept: Gen = 0;
    for old in 1..=state.generations {
        if matters(state, old, rules) {
            kept += 1;
            renamed[usize::from(old)] = kept;
            state.generation[usize::from(kept) - 1] = state.about(old);
        }
    }
    for gone in &mut state.generation[usize::from(kept)..] {
        *gone = Generation::default();
    }
    let old_count = std::mem::replace(&mut state.generations, kept);
    let rename = |generation: Gen| renamed[usize::from(generation)];
    state.lock.held = rename(state.lock.held);
    for who in 0..2 {
        let agent = &mut state.agents[who];
        agent.lock = rename(agent.lock);
        // What is disowned is "all up to": the newest of the agent's own generations that is still there and covered.
        let covered = (1..=old_count.min(agent.disowned))
            .rev()
            .map(rename)
            .find(|new| *new != 0 && state.generation[usize::from(*new) - 1].owner() == who);
        state.agents[who].disowned = covered.unwrap_or(0);
        if let Outcome::Granted(generation) = state.sessions[who].outcome {
            state.sessions[who].outcome = Outcome::Granted(rename(generation));
        }
    }
    renamed
}

fn matters(state: &State, generation: Gen, rules: &Rules) -> bool {
    let about = state.about(generation);
    let who = about.owner();
    let agent = &state.agents[who];
    let newest_release = |about: Generation| {
        about.has(Generation::RELEASE) && !(generation + 1..=state.generations).any(|later| state.about(later) == about)
    };
    state.lock.held == generation
        || (rules.has(Bug::ReleaseFreesAny) && newest_release(about))
        || agent.lock == generation
        || state.sessions[who].outcome == Outcome::Granted(generation)
        || (about.has(Generation::GRANT) && agent.ask != Ask::Nothing)
}

/// The mirror image.
fn exchanged(state: &State) -> State {
    let mut mirror = state.clone();
    mirror.agents.swap(0, 1);
    mirror.sessions.swap(0, 1);
    mirror.wires.swap(0, 1);
    for generation in &mut mirror.generation[..usize::from(state.generations)] {
        *generation = generation.exchanged();
    }
    mirror
}
