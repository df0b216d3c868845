//! The users of a run: programs at every agent that use the public interface of the agent as any program would.
//!
//! Decides who acts when, and numbers what they ask. Place in the walk: the world asks [`Users::next`] and calls [`Users::act`], and
//! tells what came of it. Invariants: whatever users do follows from the seed and from what they were told; after
//! [`Users::heal`] they let go of everything, then each agent does one of everything, as long as it takes.
//! Leaves to others: what one user does (`user`), how likely (`workload`), whether it was right (`judge`).

mod healing;
mod user;
mod workload;

pub use user::{FLAG, content, hot_path, is_lease, secret_of, written_by};
pub use workload::{Weights, Workload};

use crate::observe::{True, UserOp};
use crate::rng::SimRng;
use bytes::Bytes;
use cistern_agent::api::{Command, Event, OpError, Output};
use healing::Healing;
use std::collections::{BTreeMap, VecDeque};
use user::User;

/// Names lately made or taken away that anybody may look at.
const KNOWN_MAX: usize = 16;

/// Everybody who uses an agent.
#[derive(Debug)]
pub struct Users {
    work: Workload,
    agents: Vec<Vec<User>>,
    /// What each agent does after the faults are over.
    healing: Option<Vec<Healing>>,
    next_op: u64,
    /// Who asked: agent, user.
    asked: BTreeMap<UserOp, (usize, usize)>,
    known: VecDeque<Bytes>,
}

impl Users {
    /// Users at `agents` agents.
    #[must_use]
    pub fn new(workload: &Workload, agents: usize, rng: SimRng) -> Self {
        let user = |agent: usize, user: usize| User::new(rng.fork(&format!("user {agent}/{user}")), workload);
        let agents = (0..agents).map(|agent| (0..workload.users.max(1)).map(|n| user(agent, n)).collect()).collect();
        Self { work: workload.clone(), agents, healing: None, next_op: 1, asked: BTreeMap::new(), known: VecDeque::new() }
    }

    /// When the users at an agent next want to do something; `None`: nothing until told.
    #[must_use]
    pub fn next(&self, agent: usize) -> Option<True> {
        let healing = self.healing.as_ref().and_then(|all| all[agent].due(self.is_at_rest(agent)));
        self.agents[agent].iter().filter_map(|user| user.due).chain(healing).min()
    }

    /// What they do now: commands to submit, in order. Called when `next() <= now` and the agent's process is up and not paused.
    pub fn act(&mut self, agent: usize, now: True) -> Vec<(UserOp, Command)> {
        let mut commands = Vec::new();
        let healed = self.healing.is_some();
        let known = self.known.make_contiguous();
        for (n, user) in self.agents[agent].iter_mut().enumerate() {
            if user.due.is_none_or(|due| due > now) {
                continue;
            }
            let op = UserOp(self.next_op);
            if let Some(command) = user.act(&self.work, now, op, known, healed) {
                self.next_op += 1;
                if user.is_busy() {
                    self.asked.insert(op, (agent, n));
                }
                commands.push((op, command));
            }
        }
        let rest = self.is_at_rest(agent);
        if let Some(healing) = self.healing.as_mut().map(|all| &mut all[agent]) {
            let op = UserOp(self.next_op);
            if let Some(command) = healing.act(now, op, rest, &self.work) {
                self.next_op += 1;
                commands.push((op, command));
            }
        }
        commands
    }

    /// A command ended (see [`crate::observe::Seen::Ended`]). May make users do more.
    pub fn ended(&mut self, agent: usize, op: UserOp, result: Option<&Result<Output, OpError>>, now: True) {
        if let Some(all) = &mut self.healing {
            all[agent].ended(now, op, result);
        }
        let Some((_, user)) = self.asked.remove(&op) else { return };
        let name = self.agents[agent][user].ended(&self.work, now, op, result, self.healing.is_some());
        if let Some(name) = name {
            self.known.push_back(name);
            if self.known.len() > KNOWN_MAX {
                self.known.pop_front();
            }
        }
    }

    /// An agent told its users something.
    pub fn told(&mut self, agent: usize, event: &Event, now: True) {
        if let Event::Lock { holder, what, .. } = event {
            for user in &mut self.agents[agent] {
                user.told(&self.work, now, *holder, *what);
            }
            if let Some(all) = &mut self.healing {
                all[agent].told(now, *holder, *what);
            }
        }
    }

    /// The agent's process died: what was asked of it will not be answered.
    pub fn crashed(&mut self, agent: usize, now: True) {
        self.asked.retain(|_, asked| asked.0 != agent);
        for user in &mut self.agents[agent] {
            user.crashed(&self.work, now);
        }
        if let Some(all) = &mut self.healing {
            all[agent].crashed(now);
        }
    }

    /// The liveness phase: finish, let go of everything, then each agent does one of everything (I15 judges whether it can).
    pub fn heal(&mut self, now: True) {
        self.healing = Some(self.agents.iter().map(|_| Healing::new(now, &self.work)).collect());
        for user in self.agents.iter_mut().flatten() {
            user.due = Some(now);
        }
    }

    /// Whether everything that users wanted after [`Users::heal`] has succeeded.
    #[must_use]
    pub fn satisfied(&self) -> bool {
        let done = self.healing.as_ref().is_some_and(|all| all.iter().all(Healing::is_done));
        done && (0..self.agents.len()).all(|agent| self.is_at_rest(agent))
    }

    /// Who still wants what after healing, for people.
    #[must_use]
    pub fn wanting(&self) -> String {
        let of = |agent: usize| {
            let asked: Vec<u64> = self.asked.iter().filter(|(_, (of, _))| *of == agent).map(|(op, _)| op.0).collect();
            let healing = self.healing.as_ref().filter(|all| !all[agent].is_done()).map(|all| format!("{:?}", all[agent]));
            let rest = if self.is_at_rest(agent) { String::new() } else { format!(", its users hold locks or wait for {asked:?}") };
            (healing.is_some() || !rest.is_empty()).then(|| format!("agent {agent}: {}{rest}", healing.unwrap_or_default()))
        };
        let all: Vec<String> = (0..self.agents.len()).filter_map(of).collect();
        all.join("; ")
    }

    fn is_at_rest(&self, agent: usize) -> bool {
        self.agents[agent].iter().all(User::is_at_rest)
    }
}

#[cfg(test)]
mod tests;
