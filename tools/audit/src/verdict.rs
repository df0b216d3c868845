//! Verdicts: what was judged of each rule, how often, and what was found.
//!
//! Decides how verdicts are counted and which violations are kept in words. Invariant: a check gives one verdict, of kept, broken and
//! undecidable, and an undecidable one says why; a rule may be checked several times by one datagram, once for each thing that it is about. Leaves to others: judging (`checks`), printing (the inspector).

use crate::event::Event;
use crate::rule::Rule;
use crate::story::Tally;
use cistern_wire::SessionId;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Violations kept in words; more are counted.
const KEPT_MAX: usize = 1_000;

/// Why a check could not be decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Why {
    /// The capture began after the session did.
    Late,
    /// The capture may have lost a datagram.
    Incomplete,
    /// A datagram of the session is certainly missing.
    Missing,
    /// Only the sender's own host shows that order.
    Vantage,
    /// Only the process itself knows what it has received.
    Outside,
    /// It was so long ago that it was forgotten.
    Forgotten,
    /// τ and T are not known.
    Unpromised,
    /// An operator may have evicted the session, which no datagram shows.
    Evicted,
    /// The server may end waits by what it heard last, which no datagram shows.
    LastHeard,
    /// It may be damaged on the way, or foreign.
    Foreign,
    /// A request without an answer may have done it.
    Unanswered,
    /// The clock of the capture was set back meanwhile.
    Clock,
    /// More servers have said something than are told apart.
    Servers,
}

impl Why {
    /// In words.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Late => "the capture began after the session",
            Self::Incomplete => "the capture may have lost a datagram (--complete says that it has not)",
            Self::Missing => "a datagram of the session is missing in the capture",
            Self::Vantage => "only a capture on the sender's host shows the order",
            Self::Outside => "only a capture by the process itself shows what it has received",
            Self::Forgotten => "too long ago",
            Self::Unpromised => "the lease period is not known (--lease tells it)",
            Self::Evicted => "an operator may have evicted the session (--no-evictions says that nobody has)",
            Self::LastHeard => "the server may go by what it heard last (--no-last-heard says that it does not)",
            Self::Foreign => "damaged on the way, or foreign",
            Self::Unanswered => "a request without an answer may have done it",
            Self::Servers => "more servers are in the capture than are told apart (256)",
            Self::Clock => "the clock of the capture was set back meanwhile",
        }
    }
}

/// What was judged of one rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Checks that found the rule kept.
    pub consistent: u64,
    /// Checks that could not be decided, by reason.
    pub undecidable: BTreeMap<Why, u64>,
    /// Checks that found it broken.
    pub violations: u64,
}

impl Count {
    /// All checks.
    #[must_use]
    pub fn checked(&self) -> u64 {
        self.consistent + self.undecidable.values().sum::<u64>() + self.violations
    }
}

/// A rule that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The rule.
    pub rule: Rule,
    /// The frame that breaks it.
    pub frame: u64,
    /// The frame that it does not go with, if it is another one.
    pub other: Option<u64>,
    /// When it passed.
    pub at: Duration,
    /// The session; 0: none.
    pub session: SessionId,
    /// What was seen.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.frame)?;
        if let Some(other) = self.other {
            write!(f, " against frame {other}")?;
        }
        write!(f, ", session {}: {}: {}", self.session, self.rule.id(), self.what)
    }
}

/// All verdicts so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Court {
    counts: BTreeMap<Rule, Count>,
    violations: Vec<Violation>,
    found: u64,
    doubt: Option<Why>,
}

impl Court {
    /// Why nothing is certain any more, if that is so: from here on no rule is found broken.
    pub(crate) const fn doubts(&mut self, why: Option<Why>) {
        self.doubt = why;
    }

    fn count(&mut self, rule: Rule) -> &mut Count {
        self.counts.entry(rule).or_default()
    }

    /// The rule is kept.
    pub(crate) fn kept(&mut self, rule: Rule) {
        if let Some(why) = self.doubt {
            return self.open(rule, why);
        }
        self.count(rule).consistent += 1;
    }

    /// It cannot be decided.
    pub(crate) fn open(&mut self, rule: Rule, why: Why) {
        *self.count(rule).undecidable.entry(why).or_default() += 1;
    }

    /// The rule is broken.
    pub(crate) fn broken(&mut self, rule: Rule, event: &Event, other: Option<u64>, what: String) {
        if let Some(why) = self.doubt {
            return self.open(rule, why);
        }
        self.count(rule).violations += 1;
        self.found += 1;
        if self.violations.len() < KEPT_MAX {
            let (frame, at, session) = (event.frame, event.at, event.session);
            self.violations.push(Violation { rule, frame, other: other.filter(|other| *other != frame), at, session, what });
        }
    }

    /// The rule is kept or broken.
    pub(crate) fn judge(&mut self, rule: Rule, kept: bool, event: &Event, other: Option<u64>, what: impl FnOnce() -> String) {
        if kept {
            self.kept(rule);
        } else {
            self.broken(rule, event, other, what());
        }
    }

    /// The rule is broken where `certain`, and undecidable where not.
    pub(crate) fn accuse(
        &mut self,
        rule: Rule,
        certain: Result<(), Why>,
        event: &Event,
        other: Option<u64>,
        what: impl FnOnce() -> String,
    ) {
        match certain {
            Ok(()) => self.broken(rule, event, other, what()),
            Err(why) => self.open(rule, why),
        }
    }

    pub(crate) const fn found(&self) -> u64 {
        self.found
    }

    pub(crate) fn newest(&self) -> Option<&Violation> {
        self.violations.last()
    }

    pub(crate) fn report(&self, tally: &Tally) -> Report {
        let rules = Rule::ALL.iter().map(|rule| (*rule, self.counts.get(rule).cloned().unwrap_or_default())).collect();
        Report { tally: tally.clone(), rules, violations: self.violations.clone(), found: self.found }
    }
}

/// What came of a capture.
#[derive(Clone, Debug)]
pub struct Report {
    /// What was read.
    pub tally: Tally,
    /// Each rule with what was judged of it, in order of the table.
    pub rules: Vec<(Rule, Count)>,
    /// The first violations, in order of frames.
    pub violations: Vec<Violation>,
    /// How many there are in all.
    pub found: u64,
}

impl Report {
    /// Whether no rule was found broken.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.found == 0
    }

    /// As JSON: what was read, the rules, the violations.
    #[must_use]
    pub fn json(&self) -> Value {
        let rule = |(rule, count): &(Rule, Count)| {
            let open: BTreeMap<&str, u64> = count.undecidable.iter().map(|(why, count)| (why.words(), *count)).collect();
            json!({
                "rule": rule.id(),
                "statement": rule.statement(),
                "section": rule.section(),
                "checked": count.checked(),
                "consistent": count.consistent,
                "undecidable": open,
                "violations": count.violations,
            })
        };
        let violation = |violation: &Violation| {
            json!({
                "rule": violation.rule.id(),
                "frame": violation.frame,
                "other": violation.other,
                "session": violation.session.to_string(),
                "what": violation.what,
            })
        };
        json!({
            "datagrams": self.tally.datagrams,
            "copies": self.tally.copies,
            "foreign": self.tally.foreign,
            "guessed": self.tally.guessed,
            "strange": self.tally.strange,
            "unreadable": self.tally.unreadable,
            "sessions": self.tally.sessions,
            "sessions_begun_before": self.tally.begun_before,
            "sessions_forgotten": self.tally.forgotten,
            "handshakes_forgotten": self.tally.handshakes_forgotten,
            "entries_forgotten": self.tally.entries_forgotten,
            "clock_back": self.tally.clock_back,
            "rules": self.rules.iter().map(rule).collect::<Vec<_>>(),
            "violations": self.violations.iter().map(violation).collect::<Vec<_>>(),
            "violations_in_all": self.found,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tally = &self.tally;
        writeln!(
            f,
            "{} datagrams, {} of them copies; {} sessions, {} begun before the capture, {} forgotten; {} foreign, {} unreadable",
            tally.datagrams,
            tally.copies,
            tally.sessions,
            tally.begun_before,
            tally.forgotten,
            tally.foreign,
            tally.unreadable.values().sum::<u64>(),
        )?;
        if tally.handshakes_forgotten + tally.entries_forgotten > 0 {
            let (handshakes, entries) = (tally.handshakes_forgotten, tally.entries_forgotten);
            writeln!(
                f,
                "forgotten for want of room: {handshakes} handshakes, {entries} entries of tables; what rests on them is undecidable"
            )?;
        }
        if tally.guessed > 0 {
            writeln!(f, "{} datagrams had packet numbers below the first of their session, and were dropped", tally.guessed)?;
        }
        if tally.strange > 0 {
            writeln!(
                f,
                "{} datagrams were of others than the agents and servers whose they say they are: nobody acts on them",
                tally.strange
            )?;
        }
        if tally.clock_back > 0 {
            writeln!(f, "the capture's clock went back {} times: spans across such a place are undecidable", tally.clock_back)?;
        }
        writeln!(f, "\n{:<26} {:>9} {:>11} {:>11} {:>10}", "rule", "checked", "consistent", "undecidable", "violations")?;
        for (rule, count) in &self.rules {
            let open: u64 = count.undecidable.values().sum();
            writeln!(f, "{:<26} {:>9} {:>11} {open:>11} {:>10}", rule.id(), count.checked(), count.consistent, count.violations)?;
        }
        let mut whys: BTreeMap<Why, u64> = BTreeMap::new();
        for (why, count) in self.rules.iter().flat_map(|(_, count)| &count.undecidable) {
            *whys.entry(*why).or_default() += count;
        }
        if !whys.is_empty() {
            writeln!(f, "\nundecidable because")?;
            whys.iter().try_for_each(|(why, count)| writeln!(f, "{count:>9}  {}", why.words()))?;
        }
        if !self.violations.is_empty() {
            writeln!(f, "\nviolations")?;
            self.violations.iter().try_for_each(|violation| writeln!(f, "  {violation}"))?;
            let more = self.found - self.violations.len() as u64;
            if more > 0 {
                writeln!(f, "  and {more} more")?;
            }
        }
        writeln!(f, "\n{}", if self.is_clean() { "no violation" } else { "VIOLATED" })
    }
}
