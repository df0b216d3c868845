//! The network: the rules in force, and what becomes of each datagram under them.
//!
//! Decides the fate of a datagram: lost by which rule, or when it leaves, how often and with which bytes. No sockets, no clocks: time is
//! an argument, in nanoseconds since the start. Every decision but that of a rate is a function of the seed, the rule's number, the agent's
//! number, the direction and the datagram's number there (`cistern-faults`), so the same datagrams under the same commands have the same
//! fate. Invariant: without rules everything passes at once, whole, in order. Leaves to others: sockets and counting (`proxy`, `stats`).

use bytes::Bytes;
use cistern_faults::{Draw, Way, has_kind};
use cistern_wire::Form;
use cistern_wire::limits::MAGIC;

use crate::command::{Action, Healed, Scope};
use crate::stats::Lost;
use crate::words::{Rate, Who};

/// A rule in force.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its number; every rule of a run has another.
    pub number: u32,
    /// What it does.
    pub action: Action,
    /// To which datagrams.
    pub scope: Scope,
    /// Since when.
    pub since: u64,
    /// Until when, if it ends by itself.
    pub until: Option<u64>,
    /// How many datagrams it did something to.
    pub touched: u64,
    /// Sealed datagrams that it let alone because nobody can tell whether it is for them.
    pub untold: u64,
    /// Of a rate: when what waits has left, to the server and to agents.
    free_at: [u64; 2],
}

/// One datagram at the proxy.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    /// The agent's number.
    pub agent: u32,
    /// Its address.
    pub address: std::net::SocketAddr,
    /// What it calls itself, if that was heard.
    pub label: &'a str,
    /// Whether it goes to the server.
    pub up: bool,
    /// The how-many-eth of this agent and direction it is.
    pub number: u64,
}

/// What becomes of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It does not arrive.
    Lost(Lost),
    /// It arrives.
    Passes {
        /// When it leaves.
        at: u64,
        /// When copies of it leave.
        again: Vec<u64>,
        /// What leaves.
        bytes: Bytes,
        /// Whether that is not what came.
        corrupted: bool,
    },
}

/// The rules and the seed.
#[derive(Debug)]
pub struct Network {
    seed: u64,
    rules: Vec<Rule>,
    last: u32,
}

impl Network {
    /// A network without faults.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { seed, rules: Vec::new(), last: 0 }
    }

    /// Takes a rule up, in place of one of the same action and scope; gives its number.
    pub fn set(&mut self, now: u64, until: Option<u64>, action: Action, scope: Scope) -> u32 {
        self.rules.retain(|rule| rule.action.name() != action.name() || rule.scope != scope);
        self.last += 1;
        if !action.is_nothing() {
            self.rules.push(Rule { number: self.last, action, scope, since: now, until, touched: 0, untold: 0, free_at: [0; 2] });
        }
        self.last
    }

    /// Ends rules; gives how many.
    pub fn heal(&mut self, which: &Healed) -> usize {
        let before = self.rules.len();
        self.rules.retain(|rule| match which {
            Healed::All => false,
            Healed::Number(number) => rule.number != *number,
            Healed::Action(name) => rule.action.name() != name,
        });
        before - self.rules.len()
    }

    /// The rules in force.
    pub fn rules(&mut self, now: u64) -> &[Rule] {
        self.rules.retain(|rule| rule.until.is_none_or(|until| now < until));
        &self.rules
    }

    /// Decides about a datagram.
    pub fn pass(&mut self, now: u64, passing: &Passing<'_>, bytes: Bytes) -> Fate {
        self.rules(now);
        let draw = Draw { seed: self.seed, link: u64::from(passing.agent) * 2 + u64::from(passing.up), number: passing.number };
        let (mut way, mut bytes, mut lost) = (Way::default(), bytes, None);
        let whole = bytes.clone();
        for rule in &mut self.rules {
            if !rule.scope.has(passing, &whole) {
                rule.untold += u64::from(rule.scope.reads() && is_sealed(&whole) && rule.scope.may_have(passing));
                continue;
            }
            let Action::Effect(effect) = rule.action else { continue };
            let did = effect.apply(rule.number, now - rule.since, &draw, &mut bytes, &mut way);
            rule.touched += u64::from(did);
            if way.lost && lost.is_none() {
                lost = Some(Lost::by(&rule.action));
            }
        }
        if let Some(lost) = lost {
            return Fate::Lost(lost);
        }
        let mut delay = way.delay;
        for rule in &mut self.rules {
            if let Action::Rate { rate, queue } = rule.action
                && rule.scope.has(passing, &whole)
            {
                let waits = rule.waits(now, passing.up);
                rule.touched += u64::from(waits > 0);
                if waits > queue {
                    return Fate::Lost(Lost::Rate);
                }
                rule.free_at[usize::from(passing.up)] = now + waits + rate.time_of(whole.len());
                delay += waits + rate.time_of(whole.len());
            }
        }
        let at = now + delay;
        Fate::Passes { at, again: way.again.iter().map(|later| at + later).collect(), bytes, corrupted: way.corrupted }
    }
}

impl Rule {
    /// How long a datagram waits for those before it.
    fn waits(&self, now: u64, up: bool) -> u64 {
        self.free_at[usize::from(up)].saturating_sub(now)
    }
}

impl Rate {
    /// How long a datagram of so many bytes takes.
    fn time_of(self, bytes: usize) -> u64 {
        let ns = match self {
            Self::Datagrams(per_second) => 1_000_000_000 / u128::from(per_second.max(1)),
            Self::Bits(per_second) => bytes as u128 * 8 * 1_000_000_000 / u128::from(per_second.max(1)),
        };
        u64::try_from(ns).unwrap_or(u64::MAX / 4)
    }
}

/// Whether a datagram shows neither the kinds of its messages nor its agent's label.
fn is_sealed(bytes: &[u8]) -> bool {
    bytes.first() == Some(&MAGIC) && Form::named(bytes).is_some_and(|form| form != Form::Plain)
}

impl Scope {
    /// Whether it takes the text of datagrams to tell which it is for.
    pub(crate) const fn reads(&self) -> bool {
        self.kind.is_some() || matches!(self.agent, Some(Who::Label(_)))
    }

    fn has(&self, passing: &Passing<'_>, bytes: &[u8]) -> bool {
        let label = |label: &str| passing.label == label;
        self.is_from(passing, label) && self.kind.is_none_or(|kind| has_kind(bytes, kind))
    }

    /// Whether a datagram may be for it that shows neither kinds nor a label.
    fn may_have(&self, passing: &Passing<'_>) -> bool {
        self.is_from(passing, |label| passing.label.is_empty() || passing.label == label)
    }

    fn is_from(&self, passing: &Passing<'_>, has_label: impl Fn(&str) -> bool) -> bool {
        let way = if passing.up { self.up } else { self.down };
        way && self.agent.as_ref().is_none_or(|who| match who {
            Who::Number(number) => passing.agent == *number,
            Who::Host(host) => passing.address.ip() == *host,
            Who::Address(address) => passing.address == *address,
            Who::Label(label) => has_label(label),
        })
    }
}
