//! The model itself: the steps that may happen in a state, and the state that each leads to.
//!
//! Decides which steps are enabled, and how time passes. There are no actors and no timers of a framework: time is a step that
//! makes everything older, leases in ticks of the agents' clock and waits in ticks of the server's. Nothing is ever forced to
//! happen, so a slow agent, a slow server, a lost message and a stopped process are all schedules of the model.
//! What a step does is in [`crate::agent`] and [`crate::server`].

use crate::bugs::Bug;
use crate::canon::{self, Renaming};
use crate::properties;
use crate::rules::Rules;
use crate::state::{Ask, Gen, Generation, Phase, Standing, State, Who};
use crate::{agent, server};
use stateright::{Model, Property};
use std::sync::atomic::{AtomicU32, Ordering};

/// One step. Ages are those of the transmission that arrives, or whose echo arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A tick of real time passes.
    Tick,
    /// An agent asks for the lock.
    Acquire(Who),
    /// It sends that request again.
    AcquireAgain(Who),
    /// It sends a keep-alive.
    Renew(Who),
    /// It gives the lock back.
    Release(Who),
    /// A user of its lost session stops.
    UserStops(Who),
    /// It sends CONFIRM.
    Confirm(Who),
    /// The answer to its lock request arrives.
    AcquireAnswered(Who, u8),
    /// The answer to a keep-alive arrives.
    RenewAnswered(Who, u8),
    /// OPENED arrives.
    Opened(Who, u8),
    /// NACK arrives.
    Nack(Who),
    /// A demand arrives, and the agent complies.
    Comply(Gen),
    /// A demand arrives, and the agent keeps the lock for now, or says that it awaits it.
    Keep(Gen),
    /// The notice of a grant arrives.
    Granted(Gen),
    /// D of an agent's session.
    GiveUp(Who),
    /// The session that holds the lock ends.
    Steal(Who),
    /// A session that waits is granted the lock.
    Grant(Who),
    /// A lock request arrives at the server.
    ServerAcquire(Who, u8),
    /// A keep-alive arrives.
    ServerRenew(Who, u8),
    /// CONFIRM arrives.
    ServerConfirm(Who, u8),
    /// CONFIRM of a session long open arrives; only a bug acts on it.
    ServerOldConfirm(Who),
    /// A surrender arrives.
    ServerSurrender(Who),
    /// A release, or a receipt "not held", arrives.
    ServerRelease(Gen),
    /// A receipt "in use" or "awaited" arrives.
    ServerReceipt(Gen),
}

/// What has happened in a run, over all of its schedules.
#[derive(Debug, Default)]
pub struct Seen(AtomicU32);

impl Seen {
    /// A lock was stolen.
    pub const STOLEN: u32 = 1;
    /// A NACK was accepted.
    pub const NACKED: u32 = 1 << 1;
    /// Another session was opened.
    pub const REOPENED: u32 = 1 << 2;
    /// An answer made a kept lock usable again.
    pub const REVIVED: u32 = 1 << 3;
    /// The reply cache answered.
    pub const REPEATED: u32 = 1 << 4;
    /// An agent refused a grant.
    pub const REFUSED: u32 = 1 << 5;
    /// A queued request was granted.
    pub const GRANTED_LATE: u32 = 1 << 6;
    /// A session was rescued.
    pub const RESCUED: u32 = 1 << 7;
    /// A surrender freed the lock.
    pub const SURRENDERED: u32 = 1 << 8;
    /// Last-heard shortened a wait.
    pub const SHORTENED: u32 = 1 << 9;

    /// Notes that it happened.
    pub fn note(&self, mark: u32) {
        if self.0.load(Ordering::Relaxed) & mark == 0 {
            self.0.fetch_or(mark, Ordering::Relaxed);
        }
    }

    /// Notes that it happened; was this the first time?
    pub fn first(&self, mark: u32) -> bool {
        self.0.fetch_or(mark, Ordering::Relaxed) & mark == 0
    }

    /// Did it happen?
    pub fn has(&self, mark: u32) -> bool {
        self.0.load(Ordering::Relaxed) & mark != 0
    }
}

/// The model that stateright explores.
#[derive(Debug, Default)]
pub struct LeaseModel {
    /// By these rules.
    pub rules: Rules,
    /// What happened.
    pub seen: Seen,
    /// Which properties were found broken.
    pub broken: Seen,
}

impl LeaseModel {
    /// A model by these rules, in which nothing has happened yet.
    pub fn new(rules: Rules) -> Self {
        LeaseModel { rules, ..LeaseModel::default() }
    }

    /// The state after a step, and how names in it come from those before it.
    pub fn after(&self, state: &State, step: Step) -> (State, Renaming) {
        let mut next = state.clone();
        next.alarms = Default::default();
        self.make(&mut next, step);
        canon::canonical(next, &self.rules)
    }

    fn make(&self, next: &mut State, step: Step) {
        let (rules, seen) = (&self.rules, &self.seen);
        match step {
            Step::Tick => tick(next, rules),
            Step::Acquire(who) => agent::acquire(next, who, rules),
            Step::AcquireAgain(who) => agent::acquire_again(next, who),
            Step::Renew(who) => agent::renew(next, who),
            Step::Release(who) => agent::release(next, who, rules),
            Step::UserStops(who) => agent::user_stops(next, who),
            Step::Confirm(who) => agent::confirm(next, who),
            Step::AcquireAnswered(who, age) => agent::acquire_answered(next, who, age, rules, seen),
            Step::RenewAnswered(who, age) => agent::keepalive_answered(next, who, age, rules, seen),
            Step::Opened(who, age) => agent::opened(next, who, age, rules, seen),
            Step::Nack(who) => agent::nack(next, who, rules, seen),
            Step::Comply(generation) => agent::comply(next, next.about(generation).owner(), generation, rules),
            Step::Keep(generation) => agent::keep(next, generation),
            Step::Granted(generation) => agent::granted(next, next.about(generation).owner(), generation, rules, seen),
            Step::GiveUp(who) => server::give_up(next, who, rules, seen),
            Step::Steal(who) => server::steal(next, who, rules, seen),
            Step::Grant(who) => server::grant_waiter(next, who, seen),
            Step::ServerAcquire(who, age) => server::acquire(next, who, age, rules, seen),
            Step::ServerRenew(who, age) => server::renew(next, who, age, rules),
            Step::ServerConfirm(who, age) => server::confirm(next, who, age, rules),
            Step::ServerOldConfirm(who) => server::old_confirm(next, who),
            Step::ServerSurrender(who) => server::surrendered(next, who, seen),
            Step::ServerRelease(generation) => server::release(next, generation, rules, seen),
            Step::ServerReceipt(generation) => server::receipt(next, generation, rules, seen),
        }
    }

    fn steps_of(&self, state: &State, who: Who, steps: &mut Vec<Step>) {
        let (rules, agent, wire) = (&self.rules, &state.agents[who], &state.wires[who]);
        let mut may = |enabled: bool, step: Step| {
            if enabled {
                steps.push(step);
            }
        };
        may(agent::may_acquire(agent, rules), Step::Acquire(who));
        may(agent.ask == Ask::Answer && !wire.acquire.has(0), Step::AcquireAgain(who));
        may(agent.phase == Phase::Open && !wire.renew.has(0), Step::Renew(who));
        may(agent.phase == Phase::Open && agent.lock != 0, Step::Release(who));
        may(agent.user != 0, Step::UserStops(who));
        may(agent.phase != Phase::Open && !wire.confirm.has(0), Step::Confirm(who));
        may(wire.nack, Step::Nack(who));
        wire.answer.each().for_each(|age| may(true, Step::AcquireAnswered(who, age)));
        wire.renewed.each().for_each(|age| may(true, Step::RenewAnswered(who, age)));
        wire.opened.each().for_each(|age| may(true, Step::Opened(who, age)));

        may(server::may_give_up(state, who), Step::GiveUp(who));
        may(server::may_steal(state, who), Step::Steal(who));
        may(server::may_grant(state, who), Step::Grant(who));
        wire.acquire.each().for_each(|age| may(true, Step::ServerAcquire(who, age)));
        wire.renew.each().for_each(|age| may(true, Step::ServerRenew(who, age)));
        wire.confirm.each().for_each(|age| may(true, Step::ServerConfirm(who, age)));
        may(wire.old_confirm && state.sessions[who].standing != Standing::Good, Step::ServerOldConfirm(who));
        may(agent::has_surrendered(state, who, rules), Step::ServerSurrender(who));
    }

    fn steps_about(&self, state: &State, generation: Gen, steps: &mut Vec<Step>) {
        let (rules, about) = (&self.rules, state.about(generation));
        let agent = &state.agents[about.owner()];
        let mut may = |enabled: bool, step: Step| {
            if enabled {
                steps.push(step);
            }
        };
        let demanded = about.has(Generation::DEMAND) && agent.phase == Phase::Open && agent.lock <= generation;
        may(demanded && (agent.lock != 0 || generation > agent.disowned), Step::Comply(generation));
        may(rules.rescue && demanded && agent::may_keep(agent) && !about.has(Generation::RECEIPT), Step::Keep(generation));
        may(about.has(Generation::GRANT) && agent.phase == Phase::Open && agent.ask != Ask::Nothing, Step::Granted(generation));
        may(about.has(Generation::RELEASE), Step::ServerRelease(generation));
        may(about.has(Generation::RECEIPT), Step::ServerReceipt(generation));
    }
}

/// A tick of real time: one of the agents' clocks, `server_rate` of the server's.
fn tick(state: &mut State, rules: &Rules) {
    if rules.horizon.is_some() {
        state.elapsed += 1;
    }
    for who in 0..2 {
        let agent = &mut state.agents[who];
        agent.lease = agent.lease.saturating_sub(1);
        agent.user = agent.user.saturating_sub(1);
        state.wires[who].tick(rules.tau);
        let session = &mut state.sessions[who];
        session.timer = session.timer.saturating_sub(rules.server_rate);
        session.owed = session.owed.saturating_sub(rules.server_rate);
        if rules.last_heard {
            session.heard = (session.heard + rules.server_rate).min(rules.wait());
            session.echoed = (session.echoed + rules.server_rate).min(rules.wait());
        }
    }
    state.lock.timer = state.lock.timer.saturating_sub(rules.server_rate);
    state.lock.owed = state.lock.owed.saturating_sub(rules.server_rate);
    if rules.has(Bug::TimerFromDemand) && state.lock.held != 0 && state.about(state.lock.held).has(Generation::DEMAND) {
        state.lock.demanded = (state.lock.demanded + rules.server_rate).min(rules.wait());
    }
}

impl Model for LeaseModel {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State::default()]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        if self.rules.horizon.is_none_or(|horizon| state.elapsed < horizon) {
            steps.push(Step::Tick);
        }
        for who in 0..2 {
            self.steps_of(state, who, steps);
        }
        for generation in 1..=state.generations {
            self.steps_about(state, generation, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let (next, _) = self.after(state, step);
        (next != *state).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::properties()
    }
}
