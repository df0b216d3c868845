//! Warnings that agents can cause as often as they like: one line a minute for each agent and reason, and a count of the others.
//!
//! Decides: which of them are logged. Invariant: what is remembered is bounded; when there is no room, warnings are counted together.
//! Place in the walk: beside it, where a HELLO is refused or a clone is seen. Leaves to others: their words.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::AgentId;
use core::time::Duration;

/// Time between two lines about one agent and reason.
const PERIOD: Duration = Duration::from_secs(60);
/// Most agents and reasons that are told apart.
const TOLD_APART: usize = 1_024;

/// Why somebody is to look at an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Its incarnation is not the newest.
    Outdated,
    /// The table of sessions is full.
    Full,
    /// Its network has as many sessions as one may have.
    Crowded,
    /// It has seen a newer server of this store.
    OldStore,
    /// It goes on in a session after it opened another.
    Cloned,
    /// It comes with an invite that other keys have used up; it is known by the first half of its key.
    SpentInvite,
}

impl Reason {
    const fn name(self) -> &'static str {
        match self {
            Self::Outdated => "its incarnation is not the newest",
            Self::Full => "the table of sessions is full",
            Self::Crowded => "its network has too many sessions",
            Self::OldStore => "it has seen a newer server of this store",
            Self::SpentInvite => "it comes with an invite that another key has used",
            Self::Cloned => "it goes on in a session after it opened another",
        }
    }
}

/// What was logged in the last minute, and what was not.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    told: BTreeMap<(Reason, AgentId), Told>,
    /// Warnings for which there was no room to tell their agents apart.
    others: u64,
}

#[derive(Debug)]
struct Told {
    at: Instant,
    held_back: u64,
}

impl Warnings {
    /// Whether a warning is to be logged now; otherwise it is counted.
    pub(crate) fn admit(&mut self, now: Instant, reason: Reason, agent: AgentId) -> bool {
        if let Some(told) = self.told.get_mut(&(reason, agent)) {
            told.held_back += 1;
            return false;
        }
        if self.told.len() >= TOLD_APART {
            self.others += 1;
            return false;
        }
        self.told.insert((reason, agent), Told { at: now, held_back: 0 });
        true
    }

    /// Forgets what was logged a minute ago; a line for each of which more came since.
    pub(crate) fn expire(&mut self, now: Instant) -> Vec<String> {
        let mut lines = Vec::new();
        self.told.retain(|(reason, agent), told| {
            let over = now.waited(told.at.plus(PERIOD));
            if over && told.held_back > 0 {
                lines.push(format!("{} more warnings about agent {agent} in the last minute: {}", told.held_back, reason.name()));
            }
            !over
        });
        let others = core::mem::take(&mut self.others);
        if others > 0 {
            lines.push(format!("{others} warnings about other agents were left out"));
        }
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::new(1_000_000_000, 1_000_000_000);

    fn agent(n: u8) -> AgentId {
        AgentId([n; 16])
    }

    #[test]
    fn one_line_a_minute_for_each_agent_and_reason_and_a_count_of_the_others() {
        let mut warnings = Warnings::default();
        assert!(warnings.admit(START, Reason::Outdated, agent(1)));
        assert!((0..1_000).all(|_| !warnings.admit(START, Reason::Outdated, agent(1))));
        assert!(warnings.admit(START, Reason::Cloned, agent(1)) && warnings.admit(START, Reason::Outdated, agent(2)));
        assert!(warnings.expire(START.plus(PERIOD / 2)).is_empty());
        let later = START.plus(PERIOD);
        let lines = warnings.expire(later);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("1000 more") && lines[0].contains(&format!("{}", agent(1))), "{lines:?}");
        assert!(warnings.admit(later, Reason::Outdated, agent(1)));
    }

    #[test]
    fn agents_without_number_are_counted_together() {
        let mut warnings = Warnings::default();
        let ids = (0..5_000_u128).map(|n| AgentId(n.to_be_bytes()));
        let told = ids.filter(|id| warnings.admit(START, Reason::Full, *id)).count();
        assert_eq!((told, warnings.told.len()), (TOLD_APART, TOLD_APART));
        assert_eq!(warnings.expire(START.plus(PERIOD)), ["3976 warnings about other agents were left out"]);
        assert!(warnings.told.is_empty());
    }
}
