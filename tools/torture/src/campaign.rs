//! A campaign: a server and its agents under load, killed again and again.
//!
//! Decides: who is killed when, by a seed; what is checked after each kill; when it is over. Half of the kills come while those killed
//! before are still recovering. Invariant: everything that must not be is in the report, with enough to find it; a campaign ends.
//! Leaves to others: processes, the load (`worker`), the last judgement (`judge`).

mod faults;
mod group;

use crate::judge::{self, Verdict};
use crate::processes::{Place, Server, Worker, check, written};
use crate::worker;
use cistern_link::Rng;
use cistern_testkit::PATIENCE;
use cistern_text::progress;
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest load between two kills.
const LOAD_MAX: Duration = Duration::from_millis(500);
/// Longest time for which what was killed stays away.
const AWAY_MAX: Duration = Duration::from_millis(300);
/// After so many things that must not be a campaign ends.
const VIOLATIONS_MAX: usize = 20;

/// What came of a campaign.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Report {
    pub(crate) seed: u64,
    /// Kills of the server, of agents.
    pub(crate) server_kills: u32,
    pub(crate) agent_kills: u32,
    /// Checks of the store.
    pub(crate) checks: u32,
    /// What the workers have done.
    pub(crate) verdict: Verdict,
    /// What must not be.
    pub(crate) violations: Vec<String>,
    pub(crate) seconds: u64,
}

/// The processes, and chance.
pub(crate) struct Campaign {
    seed: u64,
    rng: Rng,
    place: Place,
    kept: Option<TempDir>,
    agents: u8,
    users: u8,
    check_every: u32,
    server: Option<Server>,
    address: String,
    incarnation: u64,
    /// How often a server was started.
    server_starts: u64,
    workers: Vec<Option<Worker>>,
    starts: u64,
    report: Report,
}

impl Campaign {
    pub(crate) fn new(seed: u64, agents: u8, users: u8, check_every: u32, programs: &Path, pcap: Option<&Path>) -> Result<Self, String> {
        let dir = tempfile::Builder::new().prefix("cistern-torture-").tempdir().map_err(|e| e.to_string())?;
        let captures = pcap.map(Path::to_owned);
        if let Some(captures) = &captures {
            std::fs::create_dir_all(captures).map_err(|e| format!("--pcap-dir {}: {e}", captures.display()))?;
        }
        let place = Place { dir: dir.path().to_owned(), cisternd: programs.join("cisternd"), captures, ..Place::default() };
        if !place.cisternd.is_file() {
            return Err(format!(
                "{} is missing: build it (cargo build --release), or name its directory with --programs",
                place.cisternd.display()
            ));
        }
        Ok(Self {
            seed,
            rng: worker::rng(seed, u64::MAX),
            place,
            kept: Some(dir),
            agents,
            users,
            check_every,
            server: None,
            address: "127.0.0.1:0".to_owned(),
            incarnation: 0,
            server_starts: 0,
            workers: (0..agents).map(|_| None).collect(),
            starts: 0,
            report: Report { seed, ..Report::default() },
        })
    }

    /// Leaves the directory; where it is.
    pub(crate) fn keep(&mut self) -> PathBuf {
        self.kept.take().map_or_else(|| self.place.dir.clone(), TempDir::keep)
    }

    /// Kills `rounds` times, or as often as `at_most` allows, and judges.
    pub(crate) fn run(&mut self, rounds: u32, at_most: Option<Duration>) -> Report {
        let started = Instant::now();
        let result = self.rounds(rounds, at_most).and_then(|()| self.settle());
        if let Err(why) = result {
            self.report.violations.push(why);
        }
        self.workers.clear();
        self.server = None;
        self.report.seconds = started.elapsed().as_secs();
        progress("");
        std::mem::take(&mut self.report)
    }

    fn rounds(&mut self, rounds: u32, at_most: Option<Duration>) -> Result<(), String> {
        let started = Instant::now();
        self.start_server()?;
        for agent in 0..self.agents {
            self.start_worker(agent)?;
        }
        self.all_work_on()?;
        for round in 1..=rounds {
            if at_most.is_some_and(|most| started.elapsed() >= most) {
                return Ok(());
            }
            progress(&format!(
                "seed {}: kill {round} of {rounds}, {} of the server; {} things that must not be",
                self.seed,
                self.report.server_kills,
                self.report.violations.len()
            ));
            thread::sleep(self.rng.between(Duration::from_millis(5), LOAD_MAX));
            let (server, agent) = match self.rng.below(10) {
                0..5 => (true, false),
                5..9 => (false, true),
                _ => (true, true),
            };
            if server {
                self.kill_server()?;
            }
            if agent {
                self.kill_agent()?;
            }
            self.look_at_processes()?;
            if self.report.violations.len() >= VIOLATIONS_MAX {
                return Ok(());
            }
            if self.rng.below(2) == 0 {
                self.all_work_on()?;
            }
        }
        Ok(())
    }

    fn kill_server(&mut self) -> Result<(), String> {
        if let Some(server) = self.server.take() {
            server.kill();
            self.report.server_kills += 1;
        }
        if self.report.server_kills.is_multiple_of(self.check_every) {
            self.check()?;
        }
        thread::sleep(self.rng.jitter(AWAY_MAX));
        self.start_server()
    }

    fn kill_agent(&mut self) -> Result<(), String> {
        let agent = u8::try_from(self.rng.below(u64::from(self.agents))).unwrap_or(0);
        if let Some(worker) = self.workers[usize::from(agent)].take() {
            worker.kill();
            self.report.agent_kills += 1;
        }
        thread::sleep(self.rng.jitter(AWAY_MAX));
        self.start_worker(agent)
    }

    fn check(&mut self) -> Result<(), String> {
        self.report.checks += 1;
        let kills = self.report.server_kills;
        self.report
            .violations
            .extend(check(&self.place)?.into_iter().map(|finding| format!("the store after kill {kills} of the server: {finding}")));
        Ok(())
    }

    fn start_server(&mut self) -> Result<(), String> {
        self.server_starts += 1;
        let server = Server::start(&self.place, &self.address, self.server_starts)?;
        let status = server.status()?;
        let incarnation = status["incarnation"].as_u64().unwrap_or(0);
        // A server that is still reading its store has none yet; it is seen at the next start.
        if incarnation != 0 && incarnation <= self.incarnation {
            self.report.violations.push(format!("the server's incarnation is {incarnation}, after {}", self.incarnation));
        }
        self.incarnation = self.incarnation.max(incarnation);
        self.address.clone_from(&server.address);
        self.server = Some(server);
        Ok(())
    }

    fn start_worker(&mut self, agent: u8) -> Result<(), String> {
        self.starts += 1;
        let seed = self.seed.wrapping_mul(1_000_003).wrapping_add(self.starts);
        self.workers[usize::from(agent)] = Some(Worker::start(&self.place, &self.address, agent, self.users, seed)?);
        Ok(())
    }

    /// Nobody ends who was not killed.
    fn look_at_processes(&mut self) -> Result<(), String> {
        for (agent, worker) in self.workers.iter_mut().enumerate() {
            let Some(code) = worker.as_mut().and_then(Worker::ended) else { continue };
            let log = self.place.dir.join(format!("log-w{agent}"));
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            let last = text.lines().next_back().unwrap_or_default();
            return Err(format!("agent {agent} ended with {code:?}: {last} (see {})", log.display()));
        }
        if self.server.as_mut().is_some_and(|server| !server.runs()) {
            return Err(format!("the server ended by itself: see {}", self.place.dir.join("log-server").display()));
        }
        Ok(())
    }

    /// Waits until every user has got on with its work.
    fn all_work_on(&mut self) -> Result<(), String> {
        let before = written(&self.place, self.agents, self.users);
        let end = Instant::now() + PATIENCE;
        loop {
            let now = written(&self.place, self.agents, self.users);
            if before.iter().zip(&now).all(|(before, now)| now > before) {
                return Ok(());
            }
            self.look_at_processes()?;
            if Instant::now() > end {
                let stuck = before.iter().zip(&now).filter(|(before, now)| before >= now).count();
                return Err(format!("{stuck} users did not get on with their work in {PATIENCE:?}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Lets the workers end, and judges what they have written by what the server shows.
    fn settle(&mut self) -> Result<(), String> {
        progress("all work on, undisturbed");
        self.all_work_on()?;
        std::fs::write(worker::stop_file(&self.place.dir), "").map_err(|e| e.to_string())?;
        for (agent, worker) in self.workers.iter_mut().enumerate() {
            let Some(worker) = worker.take() else { continue };
            let code = worker.wait()?;
            if code != Some(0) {
                self.report
                    .violations
                    .push(format!("agent {agent} ended with {code:?}: see {}", self.place.dir.join(format!("log-w{agent}")).display()));
            }
        }
        progress("judging");
        let judged = self.place.network.run(|| judge::judge(&self.place.dir, &self.address, self.agents, self.users))?;
        self.report.verdict = judged.0;
        self.report.violations.extend(judged.1);
        if let Some(server) = self.server.take() {
            server.end()?;
        }
        self.check()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = &self.verdict;
        writeln!(
            f,
            "seed {}: {} s, {} kills of the server, {} of agents, {} checks of the store",
            self.seed, self.seconds, self.server_kills, self.agent_kills, self.checks
        )?;
        writeln!(
            f,
            "{} files, {} changes answered, {} with unknown outcome; {} locks held for certain, {} beats of holders, {} counter steps under \
             them; {} steps by compare-and-set, {} reads",
            verdict.lives, verdict.answered, verdict.unknown, verdict.holds, verdict.beats, verdict.raised, verdict.stepped, verdict.looks
        )?;
        for violation in &self.violations {
            writeln!(f, "MUST NOT BE: {violation}")?;
        }
        writeln!(f, "{}", if self.violations.is_empty() { "everything promised was kept" } else { "promises were broken" })
    }
}
