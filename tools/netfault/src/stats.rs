//! What became of the datagrams: counted by direction, by agent and by cause.
//!
//! Decides the names of the counts. Invariant: every datagram received is in exactly one of `passed` and the causes of `lost`; every copy
//! that was to leave (`passed` and `duplicated`) has been sent, could not be, or is held. Leaves to others: deciding it (`network`).

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use cistern_faults::Effect;
use serde::{Deserialize, Serialize};

use crate::command::Action;

/// Why a datagram did not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lost {
    /// The link was cut.
    Cut,
    /// A loss was drawn.
    Loss,
    /// The link was down for a moment.
    Flap,
    /// The queue in front of a rate was too long.
    Rate,
    /// The proxy held too much already.
    Room,
    /// There were too many agents already.
    Agents,
}

impl Lost {
    /// By the rule of this action.
    pub(crate) const fn by(action: &Action) -> Self {
        match action {
            Action::Effect(Effect::Cut) => Self::Cut,
            Action::Effect(Effect::Flap { .. }) => Self::Flap,
            Action::Effect(_) => Self::Loss,
            Action::Rate { .. } => Self::Rate,
        }
    }
}

/// Counts of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Datagrams that came.
    pub received: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Of them, those that were let through.
    pub passed: u64,
    /// Of them, those that were not, by cause.
    pub lost: BTreeMap<Lost, u64>,
    /// Copies made besides.
    pub duplicated: u64,
    /// Let through, but later than they came.
    pub delayed: u64,
    /// Let through with a bit flipped.
    pub corrupted: u64,
    /// Handed to the system, copies included.
    pub sent: u64,
    /// Refused by the system, or for an agent that has gone.
    pub unsent: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.bytes += other.bytes;
        self.passed += other.passed;
        self.duplicated += other.duplicated;
        self.delayed += other.delayed;
        self.corrupted += other.corrupted;
        self.sent += other.sent;
        self.unsent += other.unsent;
        for (cause, count) in &other.lost {
            *self.lost.entry(*cause).or_default() += count;
        }
    }

    /// How many were lost, by any cause.
    #[must_use]
    pub fn lost_all(&self) -> u64 {
        self.lost.values().sum()
    }
}

/// Both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Both {
    /// From agents to the server.
    pub up: Counts,
    /// From the server to agents.
    pub down: Counts,
}

impl Both {
    pub(crate) fn of(&mut self, up: bool) -> &mut Counts {
        if up { &mut self.up } else { &mut self.down }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.up.add(&other.up);
        self.down.add(&other.down);
    }
}

/// An agent and its counts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentStats {
    /// The how-many-eth that was seen, from 1.
    pub number: u32,
    /// Where it is.
    pub address: SocketAddr,
    /// What it calls itself, if its HELLO was seen.
    pub label: String,
    /// What became of its datagrams.
    #[serde(flatten)]
    pub counts: Both,
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStats {
    /// Its number.
    pub number: u32,
    /// What it is, as a command.
    pub rule: String,
    /// How many datagrams it did something to.
    pub touched: u64,
    /// Sealed datagrams of which it cannot be told whether the rule is for them.
    pub untold: u64,
}

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stats {
    /// Since the start, in milliseconds.
    pub elapsed_ms: u64,
    /// The seed.
    pub seed: u64,
    /// Datagrams that wait to be sent.
    pub held: u64,
    /// All agents together, those that have gone included.
    pub total: Both,
    /// Each agent that is there.
    pub agents: Vec<AgentStats>,
    /// The rules in force.
    pub rules: Vec<RuleStats>,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} received, {} passed, {} lost", self.received, self.passed, self.lost_all())?;
        if !self.lost.is_empty() {
            let causes: Vec<_> = self.lost.iter().map(|(cause, count)| format!("{count} {}", cause.name())).collect();
            write!(f, " ({})", causes.join(", "))?;
        }
        for (count, what) in
            [(self.duplicated, "duplicated"), (self.delayed, "delayed"), (self.corrupted, "corrupted"), (self.unsent, "unsent")]
        {
            if count > 0 {
                write!(f, ", {count} {what}")?;
            }
        }
        Ok(())
    }
}

impl Lost {
    const fn name(self) -> &'static str {
        match self {
            Self::Cut => "cut",
            Self::Loss => "loss",
            Self::Flap => "flap",
            Self::Rate => "rate",
            Self::Room => "room",
            Self::Agents => "agents",
        }
    }
}

impl fmt::Display for Stats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "after {}.{:03} s, seed {}, {} held", self.elapsed_ms / 1_000, self.elapsed_ms % 1_000, self.seed, self.held)?;
        writeln!(f, "a->s  {}", self.total.up)?;
        write!(f, "s->a  {}", self.total.down)?;
        for agent in &self.agents {
            let label = if agent.label.is_empty() { String::new() } else { format!(" {:?}", agent.label) };
            write!(f, "\nagent #{} {}{label}\n  a->s  {}\n  s->a  {}", agent.number, agent.address, agent.counts.up, agent.counts.down)?;
        }
        for rule in &self.rules {
            write!(f, "\nrule #{}: {}, touched {}", rule.number, rule.rule, rule.touched)?;
            if rule.untold > 0 {
                write!(f, "; {} sealed ones were let alone, which show neither kinds nor labels", rule.untold)?;
            }
        }
        Ok(())
    }
}
