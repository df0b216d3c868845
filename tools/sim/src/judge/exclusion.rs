//! I1, exclusion: at no instant of true time do two users hold conflicting locks of one object.
//!
//! Decides from each user's side: a hold is in use from the moment it is shown until its user gives it back, or until the last instant
//! shown to the user has come on its own machine's clocks. A user told that its lock is lost may go on until that instant unless it
//! confirms before (section 11.3), and so may one whose agent's process died.
//! Invariant: holds begin only at events (shown, or certain again), so looking at all others then lets no overlap slip between.
//! Leaves to others: why two were granted (`server_rule`), cached answers (`reads`).

use super::case::{Case, Verdict, at, violated};
use super::{Facts, Family};
use crate::observe::{Node, Seen, True};
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Output};
use cistern_link::Instant;
use cistern_wire::{Mode, ObjectId};

/// A lock in a user's hands.
#[derive(Clone, Copy, Debug)]
struct InUse {
    agent: usize,
    start: u64,
    holder: HolderId,
    object: ObjectId,
    mode: Mode,
    token: u64,
    since: True,
    /// The last instant shown to the user, on its machine's clocks.
    until: Instant,
    /// Nothing more is shown: its agent died, or the lock is lost.
    final_word: bool,
}

/// The judge.
#[derive(Debug, Default)]
pub(super) struct Exclusion {
    holds: Vec<InUse>,
}

impl Family for Exclusion {
    fn name(&self) -> &'static str {
        "exclusion"
    }

    fn look(&mut self, case: &Case<'_>, facts: &Facts) -> Verdict {
        match case.seen {
            Seen::Ended { agent, result: Some(Ok(Output::Locked(locked))), .. } => {
                let start = facts.sessions.agents[*agent].start;
                let hold = InUse {
                    agent: *agent,
                    start,
                    holder: locked.holder,
                    object: locked.object,
                    mode: locked.mode,
                    token: locked.token,
                    since: case.sight.now,
                    until: locked.valid_until,
                    final_word: false,
                };
                self.holds.retain(|old| !is(old, *agent, start, locked.holder));
                self.begins(case, &hold)?;
                self.holds.push(hold);
            }
            Seen::Submitted { agent, command: Command::Unlock { holder }, .. } => {
                let start = facts.sessions.agents[*agent].start;
                self.holds.retain(|hold| !is(hold, *agent, start, *holder));
            }
            Seen::Told { agent, event: Event::Lock { holder, what: LockEvent::Lost, .. } } => {
                let start = facts.sessions.agents[*agent].start;
                self.holds.iter_mut().filter(|hold| is(hold, *agent, start, *holder)).for_each(|hold| hold.final_word = true);
            }
            Seen::Crashed { node: Node::Agent(agent) } => {
                self.holds.iter_mut().filter(|hold| hold.agent == *agent).for_each(|hold| hold.final_word = true);
            }
            Seen::Received { by: Node::Agent(agent), .. } => self.renewed(case, facts, *agent)?,
            Seen::Settled => self.holds.retain(|hold| !hold.final_word || in_use(case, hold)),
            _ => {}
        }
        Ok(())
    }
}

impl Exclusion {
    /// What is shown now to the holders at an agent.
    fn renewed(&mut self, case: &Case<'_>, facts: &Facts, agent: usize) -> Verdict {
        let now = case.agent_now(agent);
        for n in 0..self.holds.len() {
            let hold = self.holds[n];
            if hold.agent != agent || hold.final_word || hold.start != facts.sessions.agents[agent].start {
                continue;
            }
            let shown = match case.sight.agents[agent].core {
                Some(core) => core.holder_view(now, hold.holder).map(|view| view.valid_until),
                None => facts.sessions.agents[agent].view.valid_until,
            };
            let Some(until) = shown.map(|shown| shown.max(hold.until)).filter(|until| *until != hold.until) else { continue };
            let revived = now.lease_over(hold.until) && !now.lease_over(until);
            self.holds[n].until = until;
            if revived {
                self.holds[n].since = case.sight.now;
                let hold = self.holds[n];
                self.begins(case, &hold)?;
            }
        }
        Ok(())
    }

    /// A hold begins now, or is certain again.
    fn begins(&self, case: &Case<'_>, hold: &InUse) -> Verdict {
        if !in_use(case, hold) {
            let what = format!("agent {} shows {} of {} under a lease that is over", hold.agent, hold.holder.0, hold.object);
            return violated("I1", "shown-without-lease", what);
        }
        let others = self.holds.iter().filter(|other| other.object == hold.object && !is(other, hold.agent, hold.start, hold.holder));
        for other in others.filter(|other| !other.mode.compatible(hold.mode)) {
            if in_use(case, other) {
                let clock = case.sight.agents[other.agent].clock;
                let what = format!(
                    "agent {} has {} {} (token {}) from {} on, while agent {} has it {} (token {}) since {}, certain until {}",
                    hold.agent,
                    hold.object,
                    hold.mode,
                    hold.token,
                    at(case.sight.now),
                    other.agent,
                    other.mode,
                    other.token,
                    at(other.since),
                    at(clock.lease_over_at(other.until)),
                );
                return violated("I1", "two-holders", what);
            }
        }
        Ok(())
    }
}

fn is(hold: &InUse, agent: usize, start: u64, holder: HolderId) -> bool {
    hold.agent == agent && hold.start == start && hold.holder == holder
}

fn in_use(case: &Case<'_>, hold: &InUse) -> bool {
    !case.agent_now(hold.agent).lease_over(hold.until)
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Bench, T0, fired};
    use super::*;

    fn judge() -> Exclusion {
        Exclusion::default()
    }

    #[test]
    fn one_holder_after_the_other_is_clean() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, T0 + 1_000).unwrap();
        bench.unlock(&mut judge, 0, 1).unwrap();
        bench.locked(&mut judge, 1, 1, Mode::Exclusive, 20, T0 + 1_000).unwrap();
    }

    #[test]
    fn two_certain_holders_are_caught() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, T0 + 1_000).unwrap();
        bench.pass(500);
        let verdict = bench.locked(&mut judge, 1, 1, Mode::Shared, 20, T0 + 2_000);
        fired(verdict, "I1", "two-holders");
    }

    #[test]
    fn shared_holders_go_together() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Shared, 10, T0 + 1_000).unwrap();
        bench.locked(&mut judge, 1, 1, Mode::Shared, 20, T0 + 1_000).unwrap();
    }

    #[test]
    fn holder_of_a_dead_agent_counts_until_the_last_instant_shown() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, T0 + 1_000).unwrap();
        bench.show(&mut judge, &Seen::Crashed { node: Node::Agent(0) }).unwrap();
        bench.pass(999);
        fired(bench.locked(&mut judge, 1, 1, Mode::Exclusive, 20, T0 + 5_000), "I1", "two-holders");
        bench.pass(1);
        bench.locked(&mut judge, 1, 2, Mode::Exclusive, 21, T0 + 5_000).unwrap();
    }

    #[test]
    fn user_told_of_the_loss_counts_until_it_confirms() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, T0 + 1_000).unwrap();
        bench.lost(&mut judge, 0, 1).unwrap();
        bench.pass(100);
        fired(bench.locked(&mut judge, 1, 1, Mode::Exclusive, 20, T0 + 5_000), "I1", "two-holders");
        bench.unlock(&mut judge, 0, 1).unwrap();
        bench.locked(&mut judge, 1, 2, Mode::Exclusive, 21, T0 + 5_000).unwrap();
    }

    #[test]
    fn revived_hold_is_compared_with_those_granted_meanwhile() {
        let mut bench = Bench::new(2);
        let mut judge = judge();
        bench.locked(&mut judge, 0, 1, Mode::Exclusive, 10, T0 + 1_000).unwrap();
        bench.pass(1_500);
        bench.locked(&mut judge, 1, 1, Mode::Exclusive, 20, T0 + 5_000).unwrap();
        bench.facts.sessions.agents[0].view.valid_until = Some(bench.instant(4_000));
        fired(bench.garbage_to_agent(&mut judge, 0), "I1", "two-holders");
    }

    #[test]
    fn lock_shown_under_a_lease_that_is_over_is_caught() {
        let mut bench = Bench::new(1);
        bench.pass(50);
        fired(bench.locked(&mut judge(), 0, 1, Mode::Shared, 10, T0 + 20), "I1", "shown-without-lease");
    }
}
