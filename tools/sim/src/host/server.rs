//! The server's machine: the real server core, its process, its clock, its disk, and what the disk is doing.
//!
//! Decides how the server's core is made and what its store does when: batches in their order, several in one sync; answers of a state
//! between question and answer. Invariant: a process never hears of what was asked or written by a former one.
//! Leaves to others: turns (`world::turns`), when faults touch the disk (`world::faults`), contents and crash images (`disk`).

use crate::clock::NodeClock;
use crate::disk::Disk;
use crate::host::Process;
use crate::plan::DiskPlan;
use crate::rng::SimRng;
use crate::sealing::{SealWorker, Sealing};
use cistern_link::Instant;
use cistern_server::store::{Answer, Loaded, Query, StoreEvent, StoreWork};
use cistern_server::{Config, Server};
use cistern_wire::StoreId;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};

/// The server's address.
pub const ADDRESS: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::new(10, 0, 255, 1)), 6_737);

/// The identity of the store.
const STORE: StoreId = StoreId([0xC1; 16]);

/// The wall clock when the run begins, in nanoseconds since 1970.
const UNIX_NS: i64 = 1_700_000_000_000_000_000;

/// Something that the disk does, and will have done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Work {
    /// The oldest batches, so many of them, become durable.
    Sync(usize),
    /// A question is answered; with what was read when it was asked, if anything was.
    Load(Query, Option<Answer>),
}

/// The server's machine.
#[derive(Debug)]
pub struct ServerHost {
    /// Its core, while its process runs.
    pub core: Option<Server>,
    /// Its clocks.
    pub clock: NodeClock,
    /// Its process.
    pub process: Process,
    /// Its disk.
    pub disk: Disk,
    /// What the store has to say and the process has not heard.
    pub said: VecDeque<StoreEvent>,
    /// Whether the next write fails.
    pub broken: bool,
    /// Its worker for the sealed mode.
    pub sealer: Option<SealWorker>,
    /// How likely a question fails, in parts per million.
    pub read_error_ppm: u64,
    /// How much longer everything takes.
    pub slower: u64,
    /// Until when the disk does nothing.
    pub stalled_until: u64,
    config: Config,
    plan: DiskPlan,
    seeds: SimRng,
    timing: SimRng,
    /// The sealed mode, and how many agents' keys are known.
    sealing: Option<(Sealing, usize)>,
    syncing: bool,
}

impl ServerHost {
    /// A machine whose process was not started yet, with an empty disk.
    #[must_use]
    pub fn new(
        config: Config,
        clock: NodeClock,
        plan: DiskPlan,
        inbox_max: usize,
        rng: &SimRng,
        sealing: Option<(Sealing, usize)>,
    ) -> Self {
        Self {
            core: None,
            clock,
            process: Process::new(inbox_max),
            disk: Disk::default(),
            said: VecDeque::new(),
            broken: false,
            sealer: None,
            read_error_ppm: 0,
            slower: 0,
            stalled_until: 0,
            config,
            plan,
            seeds: rng.fork("server seeds"),
            timing: rng.fork("disk"),
            sealing,
            syncing: false,
        }
    }

    /// Starts the process at true time `now`.
    ///
    /// # Panics
    /// If the plan's settings are refused, which tests of plans exclude.
    pub fn start(&mut self, now: u64) {
        self.process.starts += 1;
        let unix_ns = UNIX_NS.saturating_add(i64::try_from(now).unwrap_or(i64::MAX));
        let seed = self.seeds.seed();
        let reading = self.clock.at(crate::observe::True(now));
        let core = Server::new(reading, unix_ns, STORE, self.config.clone(), seed);
        let mut core = core.expect("settings of plans are legal");
        if let Some((sealing, _)) = &self.sealing {
            core = sealing.server(core, 0, SimRng::new(self.process.starts).fork(&format!("start key {seed:?}")).seed());
            self.sealer = Some(SealWorker::new(sealing.clone(), 0, SimRng::new(self.process.starts).fork(&format!("worker {seed:?}"))));
        }
        self.core = Some(core);
    }

    /// The process dies, and with it what it was told and what it asked; of its writes some have reached the disk.
    pub fn crash(&mut self, now: u64) {
        self.core = None;
        self.process.died(now);
        self.said.clear();
        self.sealer = None;
        self.syncing = false;
        let reached = (0..self.disk.pending()).take_while(|_| self.timing.chance(self.plan.reached_ppm)).count();
        self.disk.crash(reached);
    }

    /// An older copy of the disk comes in its place, marked as such; the process must be down.
    pub fn restore(&mut self) -> bool {
        self.disk.restore_copy()
    }

    /// Takes a piece of the core's work in; gives what the disk will have done, and after how long.
    pub fn take(&mut self, work: StoreWork, now: u64, mut plan: impl FnMut(u64, Work)) {
        match work {
            StoreWork::Load(queries) => {
                for query in queries {
                    let early = self.timing.chance(300_000).then(|| self.disk.answer(&query));
                    let span = self.span(now, self.plan.load_ns);
                    plan(span, Work::Load(query, early));
                }
            }
            StoreWork::Persist(batch) => {
                self.disk.write(batch);
                self.begin_sync(now, plan);
            }
        }
    }

    /// Begins a sync if there is something to write and none runs.
    pub fn begin_sync(&mut self, now: u64, mut plan: impl FnMut(u64, Work)) {
        if !self.syncing && self.disk.pending() > 0 {
            self.syncing = true;
            let together = self.timing.between(1, self.disk.pending() as u64);
            let span = self.span(now, self.plan.sync_ns);
            plan(span, Work::Sync(usize::try_from(together).unwrap_or(1)));
        }
    }

    /// Gives the worker what there is to do: when it will have done it, from now, and under which number.
    pub fn seal(&mut self, reading: Instant, mut plan: impl FnMut(u64, u64)) {
        let Self { core: Some(core), sealer: Some(sealer), sealing, .. } = self else { return };
        if let Some((sealing, agents)) = sealing.as_ref().filter(|_| core.is_serving() && !std::mem::replace(&mut sealer.enlisted, true)) {
            sealing.enlist(core, reading, *agents);
        }
        while let Some(done) = sealer.done() {
            core.seal_done(reading, done);
        }
        while let Some(work) = core.poll_seal_work() {
            if let Some((span, number)) = sealer.take(work) {
                plan(span, number);
            }
        }
    }

    /// The worker has done what has this number.
    pub fn seal_done(&mut self, number: u64) {
        if let Some(sealer) = &mut self.sealer {
            sealer.finish(number);
        }
    }

    /// The sync that ran is over.
    pub const fn sync_over(&mut self) {
        self.syncing = false;
    }

    /// What the store says to a question now.
    pub fn answer(&mut self, query: Query, early: Option<Answer>) -> StoreEvent {
        let failed = self.read_error_ppm > 0 && self.timing.chance(self.read_error_ppm);
        let answer = if failed { Answer::Failed } else { early.unwrap_or_else(|| self.disk.answer(&query)) };
        StoreEvent::Loaded(Loaded { query, answer })
    }

    /// The settings file was changed: what is live of it holds at once, all of it from the next start on.
    pub fn adopt(&mut self, now: Instant, config: Config) {
        if let Some(core) = &mut self.core {
            core.adopt(now, &config);
        }
        self.config = config;
    }

    /// Its configuration.
    #[must_use]
    pub const fn config(&self) -> &Config {
        &self.config
    }

    fn span(&mut self, now: u64, most: u64) -> u64 {
        self.stalled_until.saturating_sub(now) + self.slower + self.timing.between(most / 10, most)
    }
}
