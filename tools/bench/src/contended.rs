//! One lock that several agents want at once: how fast it goes from one to the next, and by how many messages.
//!
//! Decides the load: every agent waits for the lock, gives it back as soon as it has it, and waits again. Place: a workload, over
//! `fleet`. Invariant: nobody is granted while another holds, which is checked at every grant, for all agents are in this process.
//! Leaves to others: a lock that nobody else wants (`beside_echo`, `cached`).

use crate::cases::Plan;
use crate::figures::{Spread, count, per};
use crate::fleet::{Member, SILENCE_S};
use crate::host::{Host, Role};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_agent::api::{Command, Locked, OpId, Output, Ownership, Submitted, Target, Wait};
use cistern_wire::{Mode, ObjectId};
use hdrhistogram::Histogram;
use std::time::{Duration, Instant};

/// Agents that want the lock.
const CONTENDERS: [u64; 4] = [1, 2, 8, 32];
/// Longest wait told apart, in nanoseconds.
const WAIT_MAX_NS: u64 = 20_000_000_000;

/// Measures the lock among more and more agents.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("contended", "one lock that n agents want at once, each giving it back as soon as it has it");
    for agents in CONTENDERS {
        progress.say(&format!("{agents} agents want one lock"));
        section.rows.push(Contest::new(agents, plan)?.measure(plan)?);
    }
    Ok(section.note(
        "With 1 agent the lock stays on its host: no messages. A demand asks a holder for the lock; datagrams are both ways, all agents.",
    ))
}

/// One contender.
struct Contender {
    member: Member,
    waits: Option<(OpId, Instant)>,
    grants: u64,
}

/// A lock and those who want it.
struct Contest {
    host: Host,
    object: ObjectId,
    contenders: Vec<Contender>,
    waited_ns: Histogram<u64>,
    last_token: u64,
}

impl Contest {
    fn new(agents: u64, plan: &Plan) -> Result<Self, Trouble> {
        let host = Host::start(Role::Server, plan.cores)?;
        let members = (0..agents).map(|number| Member::new(host.address, number)).collect::<Result<Vec<_>, _>>()?;
        let mut contenders: Vec<_> = members.into_iter().map(|member| Contender { member, waits: None, grants: 0 }).collect();
        let owner = Ownership { mode: 0o600, uid: 0, gid: 0 };
        let create = Command::Create { path: "/lock".into(), exclusive: true, ephemeral: false, owner };
        let object = match contenders[0].member.run(create)? {
            Output::Attr(attr) => attr.object,
            other => return Err(wrong(&other)),
        };
        for contender in &mut contenders {
            contender.member.run(Command::Ping)?;
        }
        let waited_ns = Histogram::new_with_bounds(1, WAIT_MAX_NS, 3).expect("1 to 2 * 10^10 with three digits is a valid range");
        Ok(Self { host, object, contenders, waited_ns, last_token: 0 })
    }

    /// The rounds of one number of agents.
    fn measure(mut self, plan: &Plan) -> Result<Row, Trouble> {
        self.round(plan.span)?;
        self.waited_ns.clear();
        self.contenders.iter_mut().for_each(|contender| contender.grants = 0);
        let (before, demands) = (self.datagrams(), self.demands());
        let (mut cpu, mut rate) = (Vec::new(), Vec::new());
        for _ in 0..plan.rounds {
            let (used, grants, begin) = (self.host.usage()?, self.grants(), Instant::now());
            self.round(plan.span)?;
            let grants = self.grants() - grants;
            cpu.push(per(self.host.usage()?.since(used).cpu_ns, grants) / 1e3);
            rate.push(count(grants) / begin.elapsed().as_secs_f64());
        }
        let spread = |values: Vec<f64>| Spread::of(values).expect("the command line lets no plan without rounds through");
        let (grants, demands) = (self.grants(), self.demands() - demands);
        let us = |quantile| count(self.waited_ns.value_at_quantile(quantile)) / 1e3;
        let fewest = self.contenders.iter().map(|contender| contender.grants).min().unwrap_or(0);
        Ok(Row::new(format!("{} agents", self.contenders.len()))
            .with("cpu_us", "server µs/grant", spread(cpu))
            .with("per_second", "grants/s", spread(rate).median)
            .with("p50_us", "wait p50 µs", us(0.5))
            .with("p99_us", "p99 µs", us(0.99))
            .with("datagrams", "datagrams/grant", per(self.datagrams() - before, grants))
            .with("demands", "demands", demands)
            .with("grants", "grants", grants)
            .with("fewest", "fewest of one agent", fewest))
    }

    /// Everybody asks as soon as it has nothing, until `span` is over; then all that is asked for is waited for.
    fn round(&mut self, span: Duration) -> Result<(), Trouble> {
        let begin = Instant::now();
        let (mut heard, mut waiting) = (begin, true);
        while waiting || begin.elapsed() < span {
            waiting = false;
            for at in 0..self.contenders.len() {
                if self.contenders[at].waits.is_none() && begin.elapsed() < span {
                    self.ask(at)?;
                }
                if self.turn(at)? {
                    heard = Instant::now();
                }
                waiting |= self.contenders[at].waits.is_some();
            }
            if waiting && heard.elapsed() >= Duration::from_secs(SILENCE_S) {
                return Err(Trouble::Silence { while_doing: "waiting for a contended lock", seconds: SILENCE_S });
            }
        }
        Ok(())
    }

    fn ask(&mut self, at: usize) -> Result<(), Trouble> {
        let contender = &mut self.contenders[at];
        let asked = Instant::now();
        let lock = Command::Lock { target: Target::Object(self.object), mode: Mode::Exclusive, wait: Wait::Forever };
        match contender.member.submit(lock) {
            Submitted::Now(Ok(Output::Locked(locked))) => self.granted(at, locked, asked),
            Submitted::Now(other) => Err(wrong(&other)),
            Submitted::Later(op) => {
                contender.waits = Some((op, asked));
                Ok(())
            }
        }
    }

    /// One turn of one agent; gives whether it was granted the lock.
    fn turn(&mut self, at: usize) -> Result<bool, Trouble> {
        let contender = &mut self.contenders[at];
        contender.member.turn()?;
        let Some((op, ended)) = contender.member.ended() else { return Ok(false) };
        match (contender.waits.take(), ended) {
            (Some((asked_op, asked)), Ok(Output::Locked(locked))) if asked_op == op => self.granted(at, locked, asked).map(|()| true),
            (_, other) => Err(wrong(&other)),
        }
    }

    /// Counts a grant and gives it back. A token that is no larger than the last would mean two holders, or an order that is none.
    fn granted(&mut self, at: usize, locked: Locked, asked: Instant) -> Result<(), Trouble> {
        if locked.token <= self.last_token {
            return Err(wrong(&(locked, "after token", self.last_token)));
        }
        self.last_token = locked.token;
        self.waited_ns.saturating_record(u64::try_from(asked.elapsed().as_nanos()).unwrap_or(WAIT_MAX_NS));
        let contender = &mut self.contenders[at];
        contender.grants += 1;
        match contender.member.submit(Command::Unlock { holder: locked.holder }) {
            Submitted::Now(Ok(_)) => contender.member.turn().map(|_| ()),
            other => Err(wrong(&other)),
        }
    }

    fn grants(&self) -> u64 {
        self.contenders.iter().map(|contender| contender.grants).sum()
    }

    fn demands(&self) -> u64 {
        self.contenders.iter().map(|contender| contender.member.view().demands).sum()
    }

    fn datagrams(&self) -> u64 {
        self.contenders.iter().map(|contender| contender.member.view()).map(|view| view.datagrams_out + view.datagrams_in).sum()
    }
}

fn wrong(got: &dyn std::fmt::Debug) -> Trouble {
    Trouble::Answer { while_doing: "handing a lock on", expected: "the lock, under a larger token", got: format!("{got:?}") }
}
