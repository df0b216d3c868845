//! Mixed work over a tree: reads and listings that are mostly cached, changes that take caches from others, names made and taken away.
//!
//! Decides the mix and the tree: which file is drawn follows Zipf's law, so that a few are wanted by everybody. Every agent has several
//! commands running. Place: a workload, over `fleet`. Invariant: every command succeeds, for agents take away only files of their own.
//! Leaves to others: single requests (`beside_echo`), durable changes (`durable`): this server's store is in memory.

use crate::cases::Plan;
use crate::figures::{Spread, count, per};
use crate::fleet::{Ended, Member, SILENCE_S, refused};
use crate::host::{Host, Role};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::slot::WRITTEN;
use crate::trouble::Trouble;
use cistern_agent::api::{AttrChange, Command, OpId, Ownership, Submitted, Target};
use cistern_link::Rng;
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

const DIRS: usize = 32;
const FILES: usize = 32;
/// Agents, and commands of one that run at once.
const AGENTS: u64 = 8;
const EACH: usize = 4;
/// Zipf's exponent: with it the first of 1,024 files is drawn by one command in eight.
const EXPONENT: f64 = 1.0;
/// Longest command told apart, in nanoseconds.
const LONGEST_NS: u64 = 20_000_000_000;
const OWNER: Ownership = Ownership { mode: 0o644, uid: 0, gid: 0 };

/// What is done, and in how many of 100 commands.
const MIX: [(Kind, u64); 7] =
    [(Kind::Stat, 50), (Kind::Read, 22), (Kind::List, 10), (Kind::Write, 8), (Kind::SetAttr, 4), (Kind::Create, 3), (Kind::Unlink, 3)];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Stat,
    Read,
    List,
    Write,
    SetAttr,
    Create,
    Unlink,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Self::Stat => "stat",
            Self::Read => "read",
            Self::List => "list a directory of 32",
            Self::Write => "write 128 B",
            Self::SetAttr => "set attributes",
            Self::Create => "create",
            Self::Unlink => "unlink",
        }
    }
}

/// Measures the mix.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    progress.say("mixed work over a tree");
    let title = format!("mixed work of {AGENTS} agents, {EACH} commands of each at once, over {} files drawn by Zipf's law", DIRS * FILES);
    let mut section = Section::new("mixed", title);
    let mut mixed = Mixed::new(plan)?;
    mixed.round(plan.span)?;
    mixed.tallies = tallies();
    let before = mixed.datagrams();
    let (mut cpu, mut rate) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        let (used, done, begin) = (mixed.host.usage()?, mixed.done(), Instant::now());
        mixed.round(plan.span)?;
        let done = mixed.done() - done;
        cpu.push(per(mixed.host.usage()?.since(used).cpu_ns, done) / 1e3);
        rate.push(count(done) / begin.elapsed().as_secs_f64());
    }
    let (done, spread) = (mixed.done(), |values| Spread::of(values).expect("the command line lets no plan without rounds through"));
    let cached = mixed.tallies.iter().map(|tally| tally.at_once).sum();
    section.rows.push(
        Row::new("all")
            .with("operations", "operations", done)
            .with("cached", "without waiting", per(cached, done))
            .with("cpu_us", "server µs/op", spread(cpu))
            .with("per_second", "op/s", spread(rate).median)
            .with("datagrams", "datagrams/op", per(mixed.datagrams() - before, done)),
    );
    for ((kind, _), tally) in MIX.iter().zip(&mixed.tallies) {
        let us = |quantile| count(tally.took_ns.value_at_quantile(quantile)) / 1e3;
        section.rows.push(
            Row::new(kind.name())
                .with("operations", "operations", tally.took_ns.len())
                .with("cached", "without waiting", per(tally.at_once, tally.took_ns.len()))
                .with("p50_us", "p50 µs", us(0.5))
                .with("p99_us", "p99 µs", us(0.99)),
        );
    }
    Ok(section)
}

/// What was counted of one kind.
struct KindTally {
    took_ns: Histogram<u64>,
    /// Answered by the agent itself, without a message.
    at_once: u64,
}

fn tallies() -> Vec<KindTally> {
    let fresh = || Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 to 2 * 10^10 with three digits is a valid range");
    MIX.iter().map(|_| KindTally { took_ns: fresh(), at_once: 0 }).collect()
}

struct Worker {
    member: Member,
    running: BTreeMap<OpId, (usize, Instant)>,
    /// Files of its own, which it may take away.
    own: Vec<String>,
    made: u64,
}

struct Mixed {
    host: Host,
    workers: Vec<Worker>,
    rng: Rng,
    zipf: Zipf,
    tallies: Vec<KindTally>,
}

impl Mixed {
    fn new(plan: &Plan) -> Result<Self, Trouble> {
        let host = Host::start(Role::Server, plan.cores)?;
        let members = (0..AGENTS).map(|number| Member::new(host.address, number)).collect::<Result<Vec<_>, _>>()?;
        let mut workers: Vec<_> =
            members.into_iter().map(|member| Worker { member, running: BTreeMap::new(), own: Vec::new(), made: 0 }).collect();
        for dir in 0..DIRS {
            workers[0].member.run(Command::Mkdir { path: format!("/{dir}").into(), owner: OWNER })?;
            for file in 0..FILES {
                let put = Command::Put { path: path(dir * FILES + file).into(), data: vec![0; WRITTEN].into(), owner: OWNER };
                workers[0].member.run(put)?;
            }
        }
        for (number, worker) in workers.iter_mut().enumerate() {
            worker.member.run(Command::Mkdir { path: format!("/own-{number}").into(), owner: OWNER })?;
        }
        Ok(Self { host, workers, rng: Rng::from_seed([5; 32]), zipf: Zipf::new(DIRS * FILES), tallies: tallies() })
    }

    /// Every agent has its commands running until `span` is over; then what runs is waited for.
    fn round(&mut self, span: Duration) -> Result<(), Trouble> {
        let begin = Instant::now();
        let (mut heard, mut running) = (begin, true);
        while running || begin.elapsed() < span {
            running = false;
            for at in 0..self.workers.len() {
                // What is answered at once makes room for the next; others must have their turn.
                for _ in self.workers[at].running.len()..EACH {
                    if begin.elapsed() < span {
                        self.begin(at)?;
                    }
                }
                if self.workers[at].member.turn()? {
                    heard = Instant::now();
                }
                self.end(at)?;
                running |= !self.workers[at].running.is_empty();
            }
            if running && heard.elapsed() >= Duration::from_secs(SILENCE_S) {
                return Err(Trouble::Silence { while_doing: "mixed work", seconds: SILENCE_S });
            }
        }
        Ok(())
    }

    fn begin(&mut self, at: usize) -> Result<(), Trouble> {
        let kind = self.draw();
        let file = path(self.zipf.draw(&mut self.rng));
        let worker = &mut self.workers[at];
        let command = worker.command(MIX[kind].0, at, file);
        let begun = Instant::now();
        match worker.member.submit(command.clone()) {
            Submitted::Later(op) => {
                worker.running.insert(op, (kind, begun));
            }
            Submitted::Now(Ok(_)) => {
                self.tallies[kind].at_once += 1;
                self.tallies[kind].took(begun);
            }
            Submitted::Now(Err(error)) => return Err(refused(&command, &error)),
        }
        Ok(())
    }

    fn end(&mut self, at: usize) -> Result<(), Trouble> {
        while let Some((op, ended)) = self.workers[at].member.ended() {
            let Some((kind, begun)) = self.workers[at].running.remove(&op) else { continue };
            self.tallies[kind].took(begun);
            check(MIX[kind].0, &ended)?;
        }
        Ok(())
    }

    /// A place in `MIX`.
    fn draw(&mut self) -> usize {
        let mut left = self.rng.below(MIX.iter().map(|(_, share)| share).sum());
        for (at, (_, share)) in MIX.iter().enumerate() {
            if left < *share {
                return at;
            }
            left -= share;
        }
        0
    }

    fn done(&self) -> u64 {
        self.tallies.iter().map(|tally| tally.took_ns.len()).sum()
    }

    fn datagrams(&self) -> u64 {
        self.workers.iter().map(|worker| worker.member.view()).map(|view| view.datagrams_out + view.datagrams_in).sum()
    }
}

impl KindTally {
    fn took(&mut self, begun: Instant) {
        self.took_ns.saturating_record(u64::try_from(begun.elapsed().as_nanos()).unwrap_or(LONGEST_NS));
    }
}

impl Worker {
    fn command(&mut self, kind: Kind, at: usize, file: String) -> Command {
        let target = || Target::Path(file.clone().into());
        match kind {
            Kind::Stat => Command::Stat { target: target(), follow: true },
            Kind::Read => Command::Read { target: target(), offset: 0, length: None },
            Kind::List => {
                let dir = file.rsplit_once('/').map_or("/", |(dir, _)| dir).to_owned();
                Command::List { target: Target::Path(dir.into()), detail: false }
            }
            Kind::Write => Command::Write { target: target(), offset: 0, data: vec![1; WRITTEN].into(), truncate: false },
            Kind::SetAttr => {
                let change = AttrChange { mode: Some(0o640), ..AttrChange::default() };
                Command::SetAttr { target: target(), follow: true, change }
            }
            Kind::Unlink if self.own.len() > EACH => {
                // The oldest: its making has long ended.
                Command::Unlink { path: self.own.remove(0).into(), force: false }
            }
            Kind::Create | Kind::Unlink => {
                self.made += 1;
                let path = format!("/own-{at}/{}", self.made);
                self.own.push(path.clone());
                Command::Create { path: path.into(), exclusive: true, ephemeral: false, owner: OWNER }
            }
        }
    }
}

fn check(kind: Kind, ended: &Ended) -> Result<(), Trouble> {
    let wrong = |got: String| Trouble::Answer { while_doing: kind.name(), expected: "success", got };
    ended.as_ref().map(|_| ()).map_err(|error| wrong(format!("{error:?}")))
}

fn path(file: usize) -> String {
    format!("/{}/{}", file / FILES, file % FILES)
}

/// Draws ranks so that the r-th is drawn in proportion to 1/r^s.
struct Zipf {
    /// For each rank, how many of all draws have it or one before.
    up_to: Vec<f64>,
}

impl Zipf {
    fn new(ranks: usize) -> Self {
        let mut sum = 0.0;
        let mut up_to: Vec<f64> = Vec::with_capacity(ranks);
        for rank in 1..=ranks {
            sum += count(rank as u64).powf(-EXPONENT);
            up_to.push(sum);
        }
        up_to.iter_mut().for_each(|share| *share /= sum);
        Self { up_to }
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let uniform = count(rng.below(1 << 53)) / count(1 << 53);
        self.up_to.partition_point(|share| *share <= uniform).min(self.up_to.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_file_is_drawn_as_often_as_the_law_says_and_twice_as_often_as_the_second() {
        let (zipf, mut rng) = (Zipf::new(1_024), Rng::from_seed([1; 32]));
        let mut drawn = vec![0_u64; 1_024];
        (0..100_000).for_each(|_| drawn[zipf.draw(&mut rng)] += 1);
        // The 1,024th harmonic number is 7.51.
        assert!((12_800..13_800).contains(&drawn[0]), "{}", drawn[0]);
        let ratio = count(drawn[0]) / count(drawn[1]);
        assert!((1.9..2.1).contains(&ratio), "{ratio}");
        assert!(drawn[1_023] < 60);
    }

    #[test]
    fn shares_of_the_mix_are_percent() {
        assert_eq!(MIX.iter().map(|(_, share)| share).sum::<u64>(), 100);
    }
}
