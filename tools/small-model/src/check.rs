//! One exploration: runs stateright over the model by given rules and says what came of it.
//!
//! Decides when an exploration ends, and what is told of it. It is breadth first. By one thread the first schedule found for a property
//! is a shortest one; by several it is a short one. The clean model is explored to its end; a bug until its property has broken,
//! or to the end where exclusion is expected to hold all the same, so that this is known and not supposed.

use crate::bugs::Row;
use crate::model::{LeaseModel, Step};
use crate::properties::{self, Name};
use crate::rules::Rules;
use serde::Serialize;
use stateright::{Checker, HasDiscoveries, Model};
use std::time::Instant;

/// What an exploration found.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// Explored by these rules.
    pub rules: Rules,
    /// Distinct states.
    pub states: usize,
    /// Steps taken, to states known or new.
    pub steps: usize,
    /// Steps of the longest of the schedules followed.
    pub depth: usize,
    /// Time it took.
    pub seconds: f64,
    /// Was every state explored that the rules allow?
    pub complete: bool,
    /// Properties broken, those by the shortest schedules first.
    pub broken: Vec<Broken>,
    /// What should have happened and did not.
    pub unseen: Vec<&'static str>,
}

/// A property that was broken.
#[derive(Clone, Debug, Serialize)]
pub struct Broken {
    /// Which.
    pub property: &'static str,
    /// Steps of the schedule.
    pub length: usize,
    /// The schedule.
    #[serde(skip)]
    pub schedule: Vec<Step>,
}

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// At the first property that breaks.
    AnyBreaks,
    /// When this one breaks.
    Breaks(Name),
    /// When all states are explored.
    End,
}

/// Explores.
pub fn explore(rules: Rules, threads: usize, until: Until) -> Verdict {
    let started = Instant::now();
    let finish = match until {
        Until::AnyBreaks => HasDiscoveries::AnyFailures,
        Until::Breaks(name) => HasDiscoveries::AllOf([name.text()].into()),
        Until::End => HasDiscoveries::All,
    };
    let checker = LeaseModel::new(rules).checker().threads(threads).finish_when(finish).spawn_bfs().join();
    let mut broken: Vec<Broken> = checker
        .discoveries()
        .into_iter()
        .map(|(property, path)| {
            let schedule = path.into_actions();
            Broken { property, length: schedule.len(), schedule }
        })
        .collect();
    broken.sort_by_key(|broken| (broken.length, broken.property));
    let complete = match until {
        Until::AnyBreaks => broken.is_empty(),
        Until::Breaks(name) => broken.iter().all(|broken| broken.property != name.text()),
        Until::End => true,
    };
    Verdict {
        rules: checker.model().rules.clone(),
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth().saturating_sub(1),
        seconds: started.elapsed().as_secs_f64(),
        complete,
        broken,
        unseen: if complete { properties::unseen(checker.model()) } else { Vec::new() },
    }
}

impl Verdict {
    /// Did everything hold, and happen?
    pub fn is_clean(&self) -> bool {
        self.broken.is_empty() && self.unseen.is_empty()
    }

    /// The shortest schedule found that breaks the property.
    pub fn breaking(&self, name: Name) -> Option<&Broken> {
        self.broken.iter().find(|broken| broken.property == name.text())
    }
}

/// Explores the model with a bug in it, until what is wanted breaks; without a wish, what the ledger names.
pub fn hunt(row: Row, rules: Rules, wanted: Option<Name>) -> Verdict {
    let until = match wanted {
        Some(name) => Until::Breaks(name),
        None if row.breaks == Name::Exclusion => Until::Breaks(row.breaks),
        None => Until::End,
    };
    explore(rules, 1, until)
}
