//! Commands: what the network is to do from now on, as a script, a second program and the command line say it.
//!
//! Decides the language: an action, its quantities, then in any order the direction, the agent and the kind of message that it is for.
//!
//! ```text
//! cut a->s                          loss 10% kind DEMAND          delay 20ms jitter 5ms agent web-1
//! duplicate 5% within 50ms s->a     reorder 10% by 30ms           rate 64kbit queue 200ms
//! flap 2s                           corrupt 1%                    heal | heal loss | heal #3
//! end
//! ```
//!
//! Invariant: what is shown of a rule can be given as a command. Leaves to others: when (`script`, `control`), what it does (`network`).

use std::fmt;

use cistern_faults::Effect;
use cistern_wire::Kind;

use crate::words::{Mistake, Rate, Who, Words, kind, rate, share, shown_share, shown_span, span};

/// How long a datagram waits at most for a rate, if nothing else is said.
const QUEUE: u64 = 100_000_000;
/// Within which time copies come, and by how much some are late, if nothing else is said.
const SPREAD: u64 = 50_000_000;

/// A command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// A rule, in place of the one of the same action and scope.
    Set(Action, Scope),
    /// Rules end.
    Heal(Healed),
    /// The proxy ends.
    End,
}

/// Which rules end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Healed {
    /// All of them.
    All,
    /// The one of this number.
    Number(u32),
    /// All of this action.
    Action(String),
}

/// What a rule does to the datagrams that it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Something without memory.
    Effect(Effect),
    /// They leave at most so fast; what would wait longer than `queue` (in nanoseconds) is lost.
    Rate {
        /// How fast.
        rate: Rate,
        /// How long a datagram waits at most.
        queue: u64,
    },
}

/// Which datagrams a rule is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// Those to the server.
    pub up: bool,
    /// Those to agents.
    pub down: bool,
    /// Those of one agent.
    pub agent: Option<Who>,
    /// Those with a message of this kind.
    pub kind: Option<Kind>,
}

impl Command {
    /// Reads a command.
    ///
    /// # Errors
    /// [`Mistake`], with its column.
    pub fn parse(line: &str) -> Result<Self, Mistake> {
        Self::read(&mut Words::of(line))
    }

    pub(crate) fn read(words: &mut Words<'_>) -> Result<Self, Mistake> {
        let first = words.need("a command (cut, loss, delay, ..., heal, end)")?;
        let command = match first.text {
            "end" => Self::End,
            "heal" => Self::Heal(Healed::read(words)?),
            _ => {
                let action = Action::read(first, words)?;
                Self::Set(action, Scope::read(words)?)
            }
        };
        match words.next() {
            Some(word) => Err(word.wrong(format!("{:?} is too much here", word.text))),
            None => Ok(command),
        }
    }
}

impl Healed {
    fn read(words: &mut Words<'_>) -> Result<Self, Mistake> {
        let Some(word) = words.next() else { return Ok(Self::All) };
        if let Some(number) = word.text.strip_prefix('#').and_then(|number| number.parse().ok()) {
            return Ok(Self::Number(number));
        }
        match word.text {
            "all" => Ok(Self::All),
            action if NAMES.contains(&action) => Ok(Self::Action(action.to_owned())),
            other => {
                Err(word.wrong(format!("{other:?} cannot be healed: give a rule's number (#3), one of {}, or nothing", NAMES.join(", "))))
            }
        }
    }
}

/// The names of actions.
const NAMES: [&str; 8] = ["cut", "loss", "duplicate", "reorder", "delay", "rate", "flap", "corrupt"];

impl Action {
    fn read(first: crate::words::Word<'_>, words: &mut Words<'_>) -> Result<Self, Mistake> {
        let option = |words: &mut Words<'_>, name: &str, default: u64| {
            if words.takes(name) { span(words.need(&format!("the time of `{name}`"))?) } else { Ok(default) }
        };
        let chance = |words: &mut Words<'_>| share(words.need("a share such as 10%")?);
        Ok(Self::Effect(match first.text {
            "cut" => Effect::Cut,
            "loss" => Effect::Lose { ppm: chance(words)? },
            "corrupt" => Effect::Corrupt { ppm: chance(words)? },
            "duplicate" => Effect::Repeat { ppm: chance(words)?, spread: option(words, "within", SPREAD)? },
            "reorder" => Effect::Reorder { ppm: chance(words)?, by: option(words, "by", SPREAD)? },
            "delay" => Effect::Delay { extra: span(words.need("a time such as 20ms")?)?, jitter: option(words, "jitter", 0)? },
            "flap" => Effect::Flap { period: span(words.need("a time such as 2s")?)? },
            "rate" => {
                let rate = rate(words.need("a rate such as 1mbit")?)?;
                return Ok(Self::Rate { rate, queue: option(words, "queue", QUEUE)? });
            }
            other => {
                let near = NAMES.iter().chain(&["heal", "end"]).min_by_key(|name| strsim::damerau_levenshtein(name, other));
                let near = near.map_or("cut", |name| *name);
                return Err(first.wrong(format!("{other:?} is no command; is it {near}? There are {}, heal and end", NAMES.join(", "))));
            }
        }))
    }

    /// What it is called.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Effect(Effect::Cut) => "cut",
            Self::Effect(Effect::Lose { .. }) => "loss",
            Self::Effect(Effect::Repeat { .. }) => "duplicate",
            Self::Effect(Effect::Reorder { .. }) => "reorder",
            Self::Effect(Effect::Delay { .. }) => "delay",
            Self::Effect(Effect::Flap { .. }) => "flap",
            Self::Effect(Effect::Corrupt { .. }) => "corrupt",
            Self::Rate { .. } => "rate",
        }
    }

    /// Whether it does nothing: such a rule only takes the place of another.
    pub(crate) const fn is_nothing(&self) -> bool {
        matches!(
            self,
            Self::Effect(
                Effect::Lose { ppm: 0 }
                    | Effect::Corrupt { ppm: 0 }
                    | Effect::Repeat { ppm: 0, .. }
                    | Effect::Reorder { ppm: 0, .. }
                    | Effect::Delay { extra: 0, jitter: 0 }
                    | Effect::Flap { period: 0 }
            )
        )
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match *self {
            Self::Effect(Effect::Cut) => Ok(()),
            Self::Effect(Effect::Lose { ppm } | Effect::Corrupt { ppm }) => write!(f, " {}", shown_share(ppm)),
            Self::Effect(Effect::Repeat { ppm, spread }) => write!(f, " {} within {}", shown_share(ppm), shown_span(spread)),
            Self::Effect(Effect::Reorder { ppm, by }) => write!(f, " {} by {}", shown_share(ppm), shown_span(by)),
            Self::Effect(Effect::Delay { extra, jitter: 0 }) => write!(f, " {}", shown_span(extra)),
            Self::Effect(Effect::Delay { extra, jitter }) => write!(f, " {} jitter {}", shown_span(extra), shown_span(jitter)),
            Self::Effect(Effect::Flap { period }) => write!(f, " {}", shown_span(period)),
            Self::Rate { rate, queue } => write!(f, " {rate} queue {}", shown_span(queue)),
        }
    }
}

impl Scope {
    /// All datagrams.
    pub const ALL: Self = Self { up: true, down: true, agent: None, kind: None };

    fn read(words: &mut Words<'_>) -> Result<Self, Mistake> {
        let (mut scope, mut directed) = (Self::ALL, false);
        while let Some(word) = words.peek() {
            let way = match word.text {
                "a->s" | "a→s" | "up" => Some((true, false)),
                "s->a" | "s→a" | "a<-s" | "a←s" | "down" => Some((false, true)),
                "a<->s" | "a↔s" | "both" => Some((true, true)),
                _ => None,
            };
            words.next();
            match (way, word.text) {
                (Some(_), _) if directed => return Err(word.wrong("the direction is given twice")),
                (Some((up, down)), _) => {
                    (scope.up, scope.down, directed) = (up, down, true);
                }
                (None, "agent") if scope.agent.is_none() => {
                    scope.agent = Some(Who::of(words.need("an agent: its number, address or label,")?));
                }
                (None, "kind") if scope.kind.is_none() => scope.kind = Some(kind(words.need("a kind of message such as DEMAND")?)?),
                (None, "agent" | "kind") => return Err(word.wrong(format!("the {} is given twice", word.text))),
                (None, other) => {
                    return Err(word.wrong(format!("{other:?} is not understood here: a->s, s->a, `agent WHO` or `kind KIND` may follow")));
                }
            }
        }
        Ok(scope)
    }
}

impl fmt::Display for Scope {
    /// What follows the action, each part with a space before it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.up, self.down) {
            (true, false) => f.write_str(" a->s")?,
            (false, true) => f.write_str(" s->a")?,
            _ => {}
        }
        if let Some(agent) = &self.agent {
            write!(f, " agent {agent}")?;
        }
        if let Some(kind) = self.kind {
            write!(f, " kind {}", kind.name())?;
        }
        Ok(())
    }
}
