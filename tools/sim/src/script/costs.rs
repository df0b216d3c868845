//! What a lease costs with the real cores: one agent under a load for a long virtual time, its messages counted, its lease watched.
//!
//! Decides what is counted: of what the agent hands to the network, each request once, however often it is sent, and each keep-alive; and
//! for how long its lease is in which phase, between all happenings. The agent holds a lock, for which it keeps its lease. When it is asked
//! something, and when its network is down, is given.
//! Place: a script without judges, as what is safe is judged elsewhere, and with an unlimited number of happenings.
//! Leaves to others: how requests come, and what the models say (`cistern-model`).

use super::agent::Agent;
use super::course::Course;
use super::wires::{Act, Passed};
use super::{Setting, from, to};
use crate::observe::True;
use crate::plan::nanos;
use cistern_agent::api::{Command, Event};
use cistern_agent::config::Phases;
use cistern_wire::{Datagram, Message};
use std::time::Duration;

/// What an agent has to bear.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// Whether every answer renews the lease, or those to keep-alives only.
    pub opportunistic: bool,
    /// After how many requests it is over.
    pub requests: u64,
}

/// What was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// Requests that the agent sent, each counted once.
    pub requests: u64,
    /// Keep-alives that it sent.
    pub keep_alives: u64,
    /// Sessions that took the place of the first one: the lock was lost with each.
    pub sessions_lost: u64,
    /// How long its lease was in each phase, in nanoseconds: valid, renewing, suspect, flush, expired (or without a session).
    pub in_phases: [u64; 5],
}

#[expect(clippy::cast_precision_loss, reason = "ratios of counts and spans")]
impl Costs {
    /// Keep-alives for each request.
    #[must_use]
    pub fn overhead(&self) -> f64 {
        self.keep_alives as f64 / self.requests.max(1) as f64
    }

    /// Share of time in which nothing could begin under the lease: from *suspect* on.
    #[must_use]
    pub fn unavailable(&self) -> f64 {
        let all: u64 = self.in_phases.iter().sum();
        self.in_phases[2..].iter().sum::<u64>() as f64 / all.max(1) as f64
    }
}

/// The lease period of the run: the default.
#[must_use]
pub fn lease() -> Duration {
    cistern_server::Config::default().lease
}

/// Runs the real cores of a server and an agent. `gaps` are between requests; `outages` say for how long the agent's network works and
/// then does not, in turn.
///
/// # Panics
/// If an agent without a fault cannot get its lock.
#[must_use]
pub fn costs(load: Load, gaps: impl IntoIterator<Item = Duration>, outages: impl IntoIterator<Item = (Duration, Duration)>) -> Costs {
    let (script, [agent]) = Setting::default().agent(|agent| agent.opportunistic = load.opportunistic).files(["/held"]).agents(["host"]);
    let _held = agent.lock("/held").exclusive().granted();
    script.pass(100);
    let mut course = agent.course();
    course.is_judged = false;
    course.wires.recorded.clear();
    course.told.clear();
    let mut counted = Counting { costs: Costs::default(), last_nonce: 0, agent: &agent, lease: nanos(lease()) };
    let begin = course.stage.now;
    let mut changes = changes(begin, outages);
    let mut change = changes.next();
    let mut at = begin;
    for gap in gaps.into_iter().take(usize::try_from(load.requests).unwrap_or(usize::MAX)) {
        at += nanos(gap);
        while let Some((when, works)) = change.filter(|(when, _)| *when <= at) {
            counted.pass(&mut course, when);
            if works {
                course.wires.lift(|act| act == Act::Lose);
            } else {
                [from(&agent), to(&agent)].into_iter().for_each(|way| course.wires.rule(way, None, Act::Lose, None));
            }
            change = changes.next();
        }
        counted.pass(&mut course, at);
        course.submit(agent.number(), Command::Ping);
    }
    // What the last request has sent.
    counted.pass(&mut course, at);
    counted.costs
}

/// When the network begins to work (or not), in true time.
fn changes(begin: u64, outages: impl IntoIterator<Item = (Duration, Duration)>) -> impl Iterator<Item = (u64, bool)> {
    let mut at = begin;
    outages.into_iter().flat_map(move |(works, fails)| {
        let down = at + nanos(works);
        at = down + nanos(fails);
        [(down, false), (at, true)]
    })
}

/// Counting under way.
struct Counting<'a> {
    costs: Costs,
    last_nonce: u64,
    agent: &'a Agent,
    lease: u64,
}

impl Counting<'_> {
    /// Time passes, and everything that is due in it happens.
    fn pass(&mut self, course: &mut Course, until: u64) {
        loop {
            let (since, left) = (course.stage.now, self.left(course));
            let has_more = course.step(until);
            if !has_more {
                course.stage.now = until;
            }
            self.note_phases(left, course.stage.now - since);
            if !has_more {
                break;
            }
        }
        for passed in std::mem::take(&mut course.wires.recorded) {
            self.note(&passed);
        }
        course.ended.clear();
        let opened = course.told.drain(..).filter(|(_, _, event)| matches!(event, Event::SessionOpened { .. }));
        self.costs.sessions_lost += opened.count() as u64;
    }

    /// What is left of the lease now, in nanoseconds.
    fn left(&self, course: &Course) -> u64 {
        let host = &course.stage.agents[self.agent.number()];
        host.core.as_ref().map_or(0, |core| nanos(core.view(host.clock.at(True(course.stage.now))).left))
    }

    fn note_phases(&mut self, left: u64, span: u64) {
        let Phases { valid_ppm, renewing_ppm, suspect_ppm, flush_ppm } = Phases::default();
        let mut before = 0;
        for (phase, ppm) in [valid_ppm, renewing_ppm, suspect_ppm, flush_ppm].into_iter().enumerate() {
            let rest = self.lease - self.lease / 1_000_000 * u64::from(ppm);
            let ends = left.saturating_sub(rest).min(span);
            self.costs.in_phases[phase] += ends.saturating_sub(before);
            before = before.max(ends);
        }
        self.costs.in_phases[4] += span - before;
    }

    fn note(&mut self, passed: &Passed) {
        if !passed.way.up {
            return;
        }
        let Ok(datagram) = Datagram::seen(&passed.plain) else { return };
        for message in datagram.messages() {
            if let Message::KeepAlive(_) = message {
                self.costs.keep_alives += 1;
            } else if let Some(ask) = message.ask().filter(|ask| ask.nonce > self.last_nonce) {
                // Nonces are given in order.
                self.last_nonce = ask.nonce;
                self.costs.requests += 1;
            }
        }
    }
}
