//! What the server does: executes, answers, demands, gives up, NACKs, steals, and opens sessions.
//!
//! Decides each step of the server, as a change of the state. Sections 11.2 to 11.4 and 11.6 of the spec, for one exclusive lock. INV:
//! every packet ever echoed in a renewing message of a session was received before D, and the lock goes to others only T after D.
//! The server keeps no time for a session in good standing, except what last-heard notes. Durability is not modelled: a step is
//! durable when it is made. The agents' side is in [`crate::agent`].

use crate::bugs::Bug;
use crate::model::Seen;
use crate::rules::Rules;
use crate::state::{Alarms, Gen, Generation, Lock, Outcome, Session, Standing, State, Who};

/// A lock request arrived, in a transmission sent `age` ticks ago.
pub fn acquire(state: &mut State, who: Who, age: u8, rules: &Rules, seen: &Seen) {
    if !serves(state, who, rules) {
        return refuse(state, who, rules);
    }
    match state.sessions[who].outcome {
        Outcome::Unknown => execute(state, who, rules),
        Outcome::Granted(_) if rules.has(Bug::ExecutedTwice) => {
            state.alarms.raise(Alarms::TWICE);
            execute(state, who, rules);
        }
        _ => {
            seen.note(Seen::REPEATED);
            if rules.has(Bug::HeardFirstOnly) {
                return answer_unnoted(state, who, age);
            }
        }
    }
    state.wires[who].answer.add(age);
    answered(state, who);
}

fn execute(state: &mut State, who: Who, rules: &Rules) {
    state.sessions[who].outcome = match state.holder() {
        None => Outcome::Granted(grant(state, who)),
        Some(_) if state.holds(who) && rules.has(Bug::SameGeneration) => {
            state.alarms.raise(Alarms::OLD_GENERATION);
            Outcome::Granted(state.lock.held)
        }
        // Its own release is on the way, or lost. The old generation ends here; the release names it and acts on no other (section 11.4).
        Some(_) if state.holds(who) => Outcome::Granted(grant(state, who)),
        Some(_) => {
            state.sessions[who].waits = true;
            Outcome::Queued
        }
    };
}

/// Records a grant under a new generation.
fn grant(state: &mut State, who: Who) -> Gen {
    state.generations += 1;
    let generation = state.generations;
    *state.about_mut(generation) = Generation::of(who);
    state.lock = Lock { held: generation, ..Lock::default() };
    generation
}

/// A keep-alive arrived, sent `age` ticks ago.
pub fn renew(state: &mut State, who: Who, age: u8, rules: &Rules) {
    if !serves(state, who, rules) {
        return refuse(state, who, rules);
    }
    state.wires[who].renewed.add(age);
    answered(state, who);
}

/// Is the session served? From D on none is (section 11.3).
fn serves(state: &State, who: Who, rules: &Rules) -> bool {
    match state.sessions[who].standing {
        Standing::Good => true,
        Standing::TimingOut => rules.has(Bug::AckWhileTiming),
        Standing::Ended => false,
    }
}

/// A renewing message was produced for a packet received now.
fn answered(state: &mut State, who: Who) {
    let session = &mut state.sessions[who];
    session.echoed = 0;
    session.heard = 0;
    if session.failed {
        state.alarms.raise(Alarms::RENEWED_FAILED);
    }
    demand(state);
}

fn answer_unnoted(state: &mut State, who: Who, age: u8) {
    state.wires[who].answer.add(age);
    state.sessions[who].echoed = 0;
}

/// NACK: the session has failed, and from here on only another session helps (section 11.3).
fn refuse(state: &mut State, who: Who, rules: &Rules) {
    let session = &mut state.sessions[who];
    session.nacked = true;
    state.wires[who].nack = true;
    if session.standing == Standing::Ended && rules.has(Bug::ClearedOnNack) {
        session.standing = Standing::Good;
    }
}

/// Demands the lock from its holder while another session in good standing waits for it.
fn demand(state: &mut State) {
    let Some(holder) = state.holder() else { return };
    let waits = |session: &Session| session.waits && session.standing == Standing::Good;
    if state.lock.former || state.sessions[holder].standing != Standing::Good || !waits(&state.sessions[1 - holder]) {
        return;
    }
    let held = state.lock.held;
    if !state.about(held).has(Generation::DEMAND) {
        state.about_mut(held).send(Generation::DEMAND);
        state.lock.demanded = 0;
    }
}

/// May the server decide D? It may whenever a notice about the lock is unanswered; how soon is never a question of safety.
pub fn may_give_up(state: &State, who: Who) -> bool {
    state.holds(who)
        && state.sessions[who].standing == Standing::Good
        && (state.about(state.lock.held).has(Generation::DEMAND) || state.about(state.lock.held).has(Generation::GRANT))
}

/// D: the session is timing out, for T from now; with last-heard, from the newest receipt noted (section 11.3).
pub fn give_up(state: &mut State, who: Who, rules: &Rules, seen: &Seen) {
    let demanded = state.lock.demanded;
    let session = &mut state.sessions[who];
    session.standing = Standing::TimingOut;
    session.failed = true;
    session.owed = if rules.last_heard { rules.wait() - session.echoed } else { rules.wait() };
    session.timer = match rules.bug {
        Some(Bug::StealAtOnce) => 0,
        Some(Bug::NoDelta) => rules.tau,
        Some(Bug::TimerFromDemand) => rules.wait() - demanded,
        Some(Bug::RescueKeepsTimer) if session.rescued => session.timer,
        _ => rules.wait() - session.heard,
    };
    if session.heard > 0 {
        seen.note(Seen::SHORTENED);
    }
}

/// May the lock of this agent be stolen: has its session, or the former one that holds the lock, waited?
pub fn may_steal(state: &State, who: Who) -> bool {
    if state.holder() != Some(who) {
        return false;
    }
    if state.lock.former {
        state.lock.timer == 0
    } else {
        state.sessions[who].standing == Standing::TimingOut && state.sessions[who].timer == 0
    }
}

/// Ends the session that holds the lock, and frees the lock.
pub fn steal(state: &mut State, who: Who, rules: &Rules, seen: &Seen) {
    seen.note(Seen::STOLEN);
    let owed = if state.lock.former { state.lock.owed } else { state.sessions[who].owed };
    if owed > 0 {
        state.alarms.raise(Alarms::SHORT_WAIT);
    }
    end_holder(state, who, rules.bug);
}

fn end_holder(state: &mut State, who: Who, bug: Option<Bug>) {
    if !state.lock.former {
        let session = &mut state.sessions[who];
        session.standing = if bug == Some(Bug::StealKeepsSession) { Standing::Good } else { Standing::Ended };
        session.failed = true;
        session.waits = false;
    }
    state.lock = Lock::default();
}

/// May a session that waits be granted the lock?
pub fn may_grant(state: &State, who: Who) -> bool {
    state.lock.held == 0 && state.sessions[who].waits && state.sessions[who].standing == Standing::Good
}

/// Grants the lock to a session that waited, by a notice.
pub fn grant_waiter(state: &mut State, who: Who, seen: &Seen) {
    seen.note(Seen::GRANTED_LATE);
    state.sessions[who].waits = false;
    let generation = grant(state, who);
    state.about_mut(generation).send(Generation::GRANT);
    demand(state);
}

/// A release of `generation`, or a receipt "not held". It frees that generation and no other, whatever the standing (section 11.3).
pub fn release(state: &mut State, generation: Gen, rules: &Rules, seen: &Seen) {
    let who = state.about(generation).owner();
    state.about_mut(generation).forget(Generation::RELEASE);
    let frees = state.lock.held == generation || (rules.has(Bug::ReleaseFreesAny) && state.holds(who));
    if !frees {
        return;
    }
    if !state.lock.former {
        if rules.has(Bug::ReleaseCancelsTimer) && state.sessions[who].standing == Standing::TimingOut {
            state.sessions[who].standing = Standing::Good;
        }
        receipt(state, generation, rules, seen);
    }
    state.lock = Lock::default();
}

/// A receipt of the notices about `generation`: rescues the session if that is built, and no NACK was produced (section 11.3).
pub fn receipt(state: &mut State, generation: Gen, rules: &Rules, seen: &Seen) {
    let who = state.about(generation).owner();
    if !rules.rescue || state.lock.held != generation || state.lock.former {
        return;
    }
    let session = &mut state.sessions[who];
    if session.standing != Standing::TimingOut || (session.nacked && !rules.has(Bug::RescueAfterNack)) {
        return;
    }
    seen.note(Seen::RESCUED);
    session.standing = Standing::Good;
    session.failed = session.nacked;
    session.rescued = rules.has(Bug::RescueKeepsTimer);
    demand(state);
}

/// The surrender of the session that the agent lost (section 11.3): its lock is free at once.
pub fn surrendered(state: &mut State, who: Who, seen: &Seen) {
    seen.note(Seen::SURRENDERED);
    if state.agents[who].user != 0 {
        state.alarms.raise(Alarms::EARLY_SURRENDER);
    }
    end_holder(state, who, None);
}

/// A CONFIRM sent `age` ticks ago, of the session that the agent is opening.
pub fn confirm(state: &mut State, who: Who, age: u8, rules: &Rules) {
    if !state.sessions[who].unknown_to_agent {
        open(state, who, rules);
    }
    if state.sessions[who].standing == Standing::Good {
        state.wires[who].opened.add(age);
        answered(state, who);
    }
}

/// Replaces the agent's session. The lock of the former one waits for its end, which is decided now if it was not before (section 11.6).
fn open(state: &mut State, who: Who, rules: &Rules) {
    if state.holds(who) {
        let former = state.sessions[who];
        let fresh = former.standing == Standing::Good;
        state.lock.former = true;
        state.lock.timer = if fresh { rules.wait() } else { former.timer };
        state.lock.owed = if fresh { rules.wait() } else { former.owed };
        let held = state.lock.held;
        state.about_mut(held).forget(Generation::DEMAND | Generation::GRANT);
        if rules.has(Bug::ConfirmFreesAtOnce) {
            state.lock = Lock::default();
        }
    }
    state.sessions[who] = Session { unknown_to_agent: true, ..Session::default() };
}

/// A repeated CONFIRM of the session that the agent has by now: only a bug acts on it.
pub fn old_confirm(state: &mut State, who: Who) {
    let session = &mut state.sessions[who];
    session.standing = Standing::Good;
    session.timer = 0;
}
