//! A schedule that a person can read: who did what, by which clock, and how everybody stood after it.
//!
//! Decides how a step is told. A canonical state renames: generations are renumbered, A and B may change places. A `Frame` follows a
//! schedule with the names that things had when they came up, so that g1 stays g1 and A stays A. Times are absolute again.
//! Nothing is decided here about what happens; `docs/small-model.md` says how to read the table.

use crate::model::{LeaseModel, Step};
use crate::rules::Rules;
use crate::state::{Ask, GENERATIONS, Gen, Generation, Outcome, Phase, Standing, State, Who};
use serde::Serialize;
use std::fmt::Write as _;

/// One row of the table.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Number of the step.
    pub step: usize,
    /// The agents' clock.
    pub agent_clock: u32,
    /// The server's clock.
    pub server_clock: u32,
    /// Who acts: A, B, S, or `-` for time.
    pub who: char,
    /// What it does.
    pub what: String,
    /// A after it.
    pub a: String,
    /// B after it.
    pub b: String,
    /// The server after it.
    pub server: String,
}

/// A schedule with its lines, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Schedule {
    /// The steps.
    pub lines: Vec<Line>,
    /// Lock requests of the agent that made more of them.
    pub requests: usize,
    /// Ticks of real time.
    pub ticks: u32,
}

/// A state of a schedule, with the names that things have in it.
struct Frame {
    state: State,
    /// The name of agent n.
    agents: [char; 2],
    /// The number by which the reader knows generation n.
    generations: [u32; GENERATIONS + 1],
    /// Generations that came up so far.
    granted: u32,
    /// Ticks that have passed.
    now: u32,
}

/// Tells the schedule that these steps make from the start.
pub fn tell(rules: &Rules, steps: &[Step]) -> Schedule {
    let model = LeaseModel::new(rules.clone());
    let mut frame = Frame { state: State::default(), agents: ['A', 'B'], generations: [0; GENERATIONS + 1], granted: 0, now: 0 };
    let mut asked = [0_usize; 2];
    let mut lines = Vec::new();
    for (number, step) in steps.iter().enumerate() {
        let mut next = frame.after(&model, *step);
        if let Step::Acquire(who) = *step {
            asked[usize::from(frame.agents[who] == 'B')] += 1;
        }
        let (who, what) = frame.told(*step, &next, rules);
        next.now += u32::from(*step == Step::Tick);
        lines.push(Line {
            step: number + 1,
            agent_clock: next.now,
            server_clock: next.now * u32::from(rules.server_rate),
            who,
            what,
            a: next.agent('A'),
            b: next.agent('B'),
            server: next.server(rules),
        });
        frame = next;
    }
    Schedule { lines, requests: asked[0].max(asked[1]), ticks: frame.now }
}

impl Frame {
    fn after(&self, model: &LeaseModel, step: Step) -> Frame {
        let (state, renaming) = model.after(&self.state, step);
        let mut frame = Frame { state, agents: self.agents, generations: [0; GENERATIONS + 1], granted: self.granted, now: self.now };
        // A step grants at most one generation; it comes after those that were there.
        let fresh = usize::from(self.state.generations) + 1;
        for old in 1..=fresh.min(GENERATIONS) {
            let new = usize::from(renaming.generation[old]);
            if new != 0 {
                frame.granted += u32::from(old == fresh);
                frame.generations[new] = if old == fresh { frame.granted } else { self.generations[old] };
            }
        }
        if renaming.exchanged {
            frame.agents.swap(0, 1);
        }
        frame
    }

    /// The place in this state of the agent with that name.
    fn place(&self, name: char) -> Who {
        usize::from(self.agents[1] == name)
    }

    fn g(&self, generation: Gen) -> String {
        format!("g{}", self.generations[usize::from(generation)])
    }

    fn owner(&self, generation: Gen) -> char {
        self.agents[self.state.about(generation).owner()]
    }

    /// Who makes the step, and what it is.
    fn told(&self, step: Step, next: &Frame, rules: &Rules) -> (char, String) {
        match step {
            Step::Tick => ('-', "a tick passes".to_owned()),
            Step::Acquire(who) => (self.agents[who], "asks for the lock".to_owned()),
            Step::AcquireAgain(who) => (self.agents[who], "sends its lock request again".to_owned()),
            Step::Renew(who) => (self.agents[who], "sends a keep-alive".to_owned()),
            Step::Release(who) => (self.agents[who], format!("gives {} back: sends its release", self.g(self.state.agents[who].lock))),
            Step::UserStops(who) => (self.agents[who], "its user stops".to_owned()),
            Step::Confirm(who) => (self.agents[who], "sends CONFIRM for another session".to_owned()),
            Step::AcquireAnswered(who, age) => {
                let said = match self.state.sessions[who].outcome {
                    Outcome::Granted(generation) if generation > self.state.agents[who].disowned => {
                        format!("installs {}", self.g(generation))
                    }
                    Outcome::Granted(generation) => format!("refuses {}", self.g(generation)),
                    _ => "queued".to_owned(),
                };
                (self.agents[who], format!("gets the answer to its lock request {}: {said}", sent(age, rules)))
            }
            Step::RenewAnswered(who, age) => (self.agents[who], format!("gets the answer to its keep-alive {}", sent(age, rules))),
            Step::Opened(who, age) => (self.agents[who], format!("gets OPENED to its CONFIRM {}", sent(age, rules))),
            Step::Nack(who) => (self.agents[who], "gets NACK: its session is lost".to_owned()),
            Step::Comply(generation) => (self.owner(generation), self.complies(generation)),
            Step::Keep(generation) => {
                let says = if self.state.agents[self.state.about(generation).owner()].lock == 0 { "awaited" } else { "in use" };
                (self.owner(generation), format!("gets the demand for {}: receipts it, \"{says}\"", self.g(generation)))
            }
            Step::Granted(generation) => (self.owner(generation), format!("gets the notice that grants {}", self.g(generation))),
            _ => ('S', self.server_told(step, next, rules)),
        }
    }

    fn complies(&self, generation: Gen) -> String {
        let had = self.state.agents[self.state.about(generation).owner()].lock;
        let says = if had == 0 { "receipts it, \"not held\"".to_owned() } else { format!("gives {} back", self.g(had)) };
        format!("gets the demand for {}: {says}", self.g(generation))
    }

    fn server_told(&self, step: Step, next: &Frame, rules: &Rules) -> String {
        match step {
            Step::GiveUp(who) => format!("D: gives up on {}, timing out for {}", self.agents[who], next.waits_for(self.agents[who])),
            Step::Steal(who) => format!("steals {} from {}: that session has ended", self.g(self.state.lock.held), self.agents[who]),
            Step::Grant(who) => {
                format!("grants {} to {}, which waited: sends the notice{}", next.g(next.state.lock.held), self.agents[who], next.demands())
            }
            Step::ServerAcquire(who, age) => {
                format!("gets the lock request of {}, {}: {}", self.agents[who], sent(age, rules), self.replies(who, next))
            }
            Step::ServerRenew(who, age) => {
                format!("gets a keep-alive of {}, {}: {}", self.agents[who], sent(age, rules), self.served(who, next, "ACK"))
            }
            Step::ServerConfirm(who, age) => {
                format!("gets the CONFIRM of {}, {}: OPENED to another session", self.agents[who], sent(age, rules))
            }
            Step::ServerOldConfirm(who) => format!("gets a CONFIRM of {} once more", self.agents[who]),
            Step::ServerSurrender(who) => format!("gets the surrender of {}: its lock is free", self.agents[who]),
            Step::ServerRelease(generation) => {
                let frees = if self.state.lock.held != 0 && next.state.lock.held == 0 { "the lock is free" } else { "nothing to free" };
                format!(
                    "gets the release of {} from {}: {frees}{}",
                    self.g(generation),
                    self.owner(generation),
                    self.comeback(generation, next)
                )
            }
            Step::ServerReceipt(generation) => {
                format!("gets the receipt for {} from {}{}", self.g(generation), self.owner(generation), self.comeback(generation, next))
            }
            _ => String::new(),
        }
    }

    /// Said of a session that the step has made good again.
    fn comeback(&self, generation: Gen, next: &Frame) -> &'static str {
        let owner = self.owner(generation);
        let failed = self.state.sessions[self.place(owner)].standing == Standing::TimingOut;
        if failed && next.state.sessions[next.place(owner)].standing == Standing::Good { ", its session is good again" } else { "" }
    }

    /// What the server says to a request: what it would say in good standing, or NACK.
    fn served(&self, who: Who, next: &Frame, good: &str) -> String {
        let place = next.place(self.agents[who]);
        let refused = next.state.wires[place].nack && (!self.state.wires[who].nack || self.state.sessions[who].standing != Standing::Good);
        if refused { "NACK".to_owned() } else { good.to_owned() }
    }

    fn replies(&self, who: Who, next: &Frame) -> String {
        let after = next.state.sessions[next.place(self.agents[who])].outcome;
        let repeats = self.state.sessions[who].outcome != Outcome::Unknown;
        let good = match after {
            Outcome::Granted(generation) if repeats && next.granted == self.granted => {
                format!("ACK, granted {} as before", next.g(generation))
            }
            Outcome::Granted(generation) => format!("ACK, grants {}{}", next.g(generation), next.demands()),
            Outcome::Queued => format!("QUEUED{}", next.demands()),
            Outcome::Unknown => "ACK".to_owned(),
        };
        self.served(who, next, &good)
    }

    /// The demand that the server sends, if there is one.
    fn demands(&self) -> String {
        let held = self.state.lock.held;
        if held != 0 && self.state.about(held).has(Generation::DEMAND) {
            format!(", demands {} of {}", self.g(held), self.owner(held))
        } else {
            String::new()
        }
    }

    fn waits_for(&self, name: char) -> u8 {
        self.state.sessions[self.place(name)].timer
    }

    fn agent(&self, name: char) -> String {
        let agent = &self.state.agents[self.place(name)];
        let end = self.now + u32::from(agent.lease);
        let mut told = match (agent.phase, agent.lock, agent.ask) {
            (Phase::Lost, 0, _) => "lost".to_owned(),
            (_, 0, Ask::Nothing) => "-".to_owned(),
            (_, 0, Ask::Answer) => "asks".to_owned(),
            (_, 0, Ask::Grant) => "queued".to_owned(),
            (_, lock, _) if agent.lease == 0 => format!("{} expired", self.g(lock)),
            (_, lock, _) => format!("{} to {end}", self.g(lock)),
        };
        if agent.user != 0 {
            let _ = write!(told, ", user to {}", self.now + u32::from(agent.user));
        }
        if agent.lock == 0 && agent.lease != 0 {
            let _ = write!(told, ", lease to {end}");
        }
        if agent.uses_lock() {
            told.push_str(" *");
        }
        told
    }

    fn server(&self, rules: &Rules) -> String {
        let mut told = match self.state.holder() {
            None => "free".to_owned(),
            Some(who) => format!("{} of {}", self.g(self.state.lock.held), self.agents[who]),
        };
        let timing_out = if self.state.lock.former {
            Some(self.state.lock.timer)
        } else {
            self.state
                .holder()
                .map(|who| &self.state.sessions[who])
                .filter(|session| session.standing == Standing::TimingOut)
                .map(|session| session.timer)
        };
        if let Some(left) = timing_out {
            let _ = write!(told, ", until {}", self.now * u32::from(rules.server_rate) + u32::from(left));
        }
        for name in ['A', 'B'] {
            if self.state.sessions[self.place(name)].standing == Standing::Ended {
                let _ = write!(told, ", {name} ended");
            }
        }
        told
    }
}

/// When a transmission was sent. "Earlier" is when it no longer matters: its echo gives the lease nothing that it has not.
fn sent(age: u8, rules: &Rules) -> String {
    match age {
        0 => "sent now".to_owned(),
        _ if age == rules.tau => "sent earlier".to_owned(),
        1 => "sent 1 tick ago".to_owned(),
        _ => format!("sent {age} ticks ago"),
    }
}

impl Schedule {
    /// The table, its columns aligned.
    pub fn table(&self) -> String {
        let heads = ["step", "clock A,B", "clock S", "who", "what", "A", "B", "server"];
        let rows: Vec<[String; 8]> = self
            .lines
            .iter()
            .map(|line| {
                let (clock_a, clock_s) = (line.agent_clock.to_string(), line.server_clock.to_string());
                [
                    line.step.to_string(),
                    clock_a,
                    clock_s,
                    line.who.to_string(),
                    line.what.clone(),
                    line.a.clone(),
                    line.b.clone(),
                    line.server.clone(),
                ]
            })
            .collect();
        let widths: [usize; 8] = std::array::from_fn(|column| {
            rows.iter().map(|row| row[column].chars().count()).chain([heads[column].len()]).max().unwrap_or(0)
        });
        let mut table = String::new();
        for row in std::iter::once(heads.map(str::to_owned)).chain(rows) {
            let cells: Vec<String> = (0..8)
                .map(|column| {
                    if column < 3 { format!("{:>1$}", row[column], widths[column]) } else { format!("{:<1$}", row[column], widths[column]) }
                })
                .collect();
            table.push_str(cells.join("  ").trim_end());
            table.push('\n');
        }
        table
    }
}
