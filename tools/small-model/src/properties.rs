//! What must hold in every state, and what a run must have seen happen.
//!
//! Decides the properties. *Exclusion* is what users are promised (I1). The others are white-box: each watches one defence, because a
//! second defence hides the loss of the first from exclusion, and bounds hide more. The *sometimes* properties keep a run from being
//! clean because nothing happened in it; they are noted outside of the state ([`Seen`]), for a mark in the state would double the states.

use crate::model::{LeaseModel, Seen};
use crate::state::{Agent, Alarms, Phase, Standing, State};
use clap::ValueEnum;
use serde::Serialize;
use stateright::Property;

/// A property that must always hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Name {
    /// At no time do two agents, or users of them, act on the lock.
    Exclusion,
    /// A lock that is acted on is on record at the server under the generation that its holder knows.
    OnRecord,
    /// From D on no renewing message is produced for the session, until a rescue or in another session.
    Silence,
    /// A failed session is good again only by a rescue, before any NACK.
    NoComeback,
    /// After an accepted NACK the agent has neither lock nor lease of the session.
    NackIsEmpty,
    /// A lock is stolen only T after D; with last-heard, T after the newest receipt that was echoed.
    FullWait,
    /// No generation is granted twice.
    NewGeneration,
    /// No request is executed twice.
    Once,
    /// A surrender frees a lock only when no user of the session is left.
    SurrenderIsEmpty,
}

impl Name {
    /// Its name in reports.
    pub fn text(self) -> &'static str {
        match self {
            Name::Exclusion => "exclusion",
            Name::OnRecord => "on-record",
            Name::Silence => "silence",
            Name::NoComeback => "no-comeback",
            Name::NackIsEmpty => "nack-is-empty",
            Name::FullWait => "full-wait",
            Name::NewGeneration => "new-generation",
            Name::Once => "once",
            Name::SurrenderIsEmpty => "surrender-is-empty",
        }
    }

    /// The property as stateright asks for it: broken by the first state that breaks it, so that a search breadth first, by one
    /// thread, keeps the shortest schedule. Later states would replace it.
    fn condition(self) -> fn(&LeaseModel, &State) -> bool {
        macro_rules! first_break {
            ($($name:ident)*) => {
                match self {
                    $(Name::$name => |model, state| Name::$name.holds(state) || !model.broken.first(1 << Name::$name as u32),)*
                }
            };
        }
        first_break!(Exclusion OnRecord Silence NoComeback NackIsEmpty FullWait NewGeneration Once SurrenderIsEmpty)
    }

    fn holds(self, state: &State) -> bool {
        match self {
            Name::Exclusion => !state.agents.iter().all(Agent::uses_lock),
            Name::OnRecord => (0..2).all(|who| on_record(state, who)),
            Name::Silence => !state.alarms.has(Alarms::RENEWED_FAILED),
            Name::NoComeback => state.sessions.iter().all(|session| !session.failed || session.standing != Standing::Good),
            Name::NackIsEmpty => state.agents.iter().all(|agent| agent.phase == Phase::Open || (agent.lock == 0 && agent.lease == 0)),
            Name::FullWait => !state.alarms.has(Alarms::SHORT_WAIT),
            Name::NewGeneration => !state.alarms.has(Alarms::OLD_GENERATION),
            Name::Once => !state.alarms.has(Alarms::TWICE),
            Name::SurrenderIsEmpty => !state.alarms.has(Alarms::EARLY_SURRENDER),
        }
    }
}

fn on_record(state: &State, who: usize) -> bool {
    let agent = &state.agents[who];
    let by_agent = agent.lock == 0 || agent.lease == 0 || state.lock.held == agent.lock;
    let by_user = agent.user == 0 || state.holder() == Some(who);
    by_agent && by_user
}

/// The properties of a model.
pub fn properties() -> Vec<Property<LeaseModel>> {
    Name::value_variants().iter().map(|name| Property::always(name.text(), name.condition())).collect()
}

/// What a run by these rules should have seen, and did not.
pub fn unseen(model: &LeaseModel) -> Vec<&'static str> {
    let rules = &model.rules;
    let expected = [
        (Seen::STOLEN, "a lock is stolen", true),
        (Seen::NACKED, "a NACK is accepted", true),
        (Seen::REOPENED, "another session is opened", true),
        (Seen::REVIVED, "an answer makes a kept lock usable again", true),
        (Seen::REPEATED, "a repeated request is answered from the reply cache", true),
        (Seen::REFUSED, "a grant is refused that was demanded before", true),
        (Seen::GRANTED_LATE, "a queued request is granted by a notice", true),
        (Seen::RESCUED, "a session is rescued", rules.rescue),
        (Seen::SURRENDERED, "a surrender frees the lock", rules.surrender),
        (Seen::SHORTENED, "last-heard shortens a wait", rules.last_heard),
    ];
    expected.into_iter().filter(|(mark, _, due)| *due && !model.seen.has(*mark)).map(|(_, what, _)| what).collect()
}
