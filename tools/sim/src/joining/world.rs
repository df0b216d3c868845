//! The course of a run: turns, datagrams, what the disk and the workers do, deaths; then nothing is lost any more, and everybody must be told something.

use super::judge::{InvitedJudge, id_of, rights};
use super::plan::InvitedPlan;
use crate::clock::{NodeClock, Rates, UNIT};
use crate::host::{NEVER, ServerHost, Work};
use crate::observe::{True, Violation};
use crate::plan::{DiskPlan, MS, SEC, US};
use crate::rng::SimRng;
use bytes::Bytes;
use cistern_agent::{JoinRefused, Joiner, Keys, Membership};
use cistern_link::{Instant, Machine as _, Path};
use cistern_seal::work::{KeyHolder, SealDone, Worker};
use cistern_seal::{Cipher, Entropy, Psk, PublicKey, SecretKey, StartKey};
use cistern_server::store::StoreWork;
use cistern_server::{Config, NewInvite, ServerRoster};
use cistern_wire::Status;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};

/// How long it may take, from when everything is mended, until everybody was told something: a session that the server has forgotten ends after 4 s.
const LIVELY: u64 = 20 * SEC;
/// Most time that a Diffie-Hellman takes.
const WORK_NS: u64 = 5 * MS;
/// Most time between what happens to a machine and its turn.
const LATENCY: u64 = 200 * US;
/// Datagrams that a socket holds.
const INBOX_MAX: usize = 64;
/// What the cluster signs with, as far as hosts are told.
const CLUSTER: [u8; 32] = [0xC7; 32];

/// What came of a run.
#[derive(Clone, Debug)]
pub struct InvitedOutcome {
    /// The first check that failed, if any.
    pub violation: Option<Violation>,
    /// What each host was told last, by its place in the plan.
    pub told: Vec<Option<Result<Membership, JoinRefused>>>,
    /// How long the run was, in nanoseconds of true time.
    pub sim_ns: u64,
}

enum InvitedStep {
    Server,
    Host(usize),
    ToServer(SocketAddr, Bytes),
    ToHost(usize, Bytes),
    Disk(u64, Work),
    Computed(u64, Box<SealDone>),
    Begin(usize),
    Kill(usize),
    Crash,
    Start,
    Heal,
}

/// A host on which `join` is running, or was.
struct JoiningHost {
    joiner: Option<Joiner>,
    inbox: VecDeque<Bytes>,
    wake: u64,
    told: Option<Result<Membership, JoinRefused>>,
}

struct InvitedWorld {
    plan: InvitedPlan,
    now: u64,
    count: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    steps: BTreeMap<u64, InvitedStep>,
    server: ServerHost,
    worker: Option<Worker>,
    computed: VecDeque<SealDone>,
    /// Invites are made, and durable.
    invited: bool,
    hosts: Vec<JoiningHost>,
    judge: InvitedJudge,
    rng: SimRng,
    seeds: SimRng,
    loss_ppm: u64,
}

fn key(seed: u64, of: &str) -> SecretKey {
    SecretKey::from_bytes(SimRng::new(seed).fork(of).seed())
}

fn address(host: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 10 + u8::try_from(host).unwrap_or(0)), 40_000))
}

fn secret(invite: usize) -> [u8; 16] {
    [0x5E ^ u8::try_from(invite).unwrap_or(0); 16]
}

/// Runs a plan to its end, or to the first violation. `tell` is told what the machines log, if [`crate::trace::log_from`] was called, and when.
///
/// # Errors
/// Those of `tell`.
pub fn admit<E>(plan: &InvitedPlan, tell: &mut dyn FnMut(u64, &str) -> Result<(), E>) -> Result<InvitedOutcome, E> {
    let mut world = InvitedWorld::new(plan);
    let violation = loop {
        let stepped = world.step();
        crate::trace::logged::take().iter().try_for_each(|line| tell(world.now, line))?;
        match stepped {
            Ok(true) => {}
            Ok(false) => break None,
            Err(violation) => break Some(violation),
        }
    };
    Ok(InvitedOutcome { violation, told: world.hosts.into_iter().map(|host| host.told).collect(), sim_ns: world.now })
}

impl InvitedWorld {
    fn new(plan: &InvitedPlan) -> Self {
        let rng = SimRng::new(plan.seed).fork("joining run");
        let clock = NodeClock::new(Instant::new(1_000 * SEC, 2_000 * SEC), Rates::both(UNIT));
        let disk = DiskPlan { sync_ns: plan.sync_ns, load_ns: MS, reached_ppm: plan.reached_ppm };
        let config = Config { new_cluster: true, ..Config::default() };
        let host = |_| JoiningHost { joiner: None, inbox: VecDeque::new(), wake: NEVER, told: None };
        let mut world = Self {
            now: 0,
            count: 0,
            queue: BinaryHeap::new(),
            steps: BTreeMap::new(),
            server: ServerHost::new(config, clock, disk, INBOX_MAX, &rng, None),
            worker: None,
            computed: VecDeque::new(),
            invited: false,
            hosts: (0..plan.hosts.len()).map(host).collect(),
            judge: InvitedJudge::default(),
            seeds: rng.fork("seeds"),
            loss_ppm: plan.loss_ppm,
            rng,
            plan: plan.clone(),
        };
        world.at(0, InvitedStep::Start);
        for (down, up) in plan.crashes.clone() {
            world.at(down, InvitedStep::Crash);
            world.at(up, InvitedStep::Start);
        }
        for (number, host) in plan.hosts.iter().enumerate() {
            world.at(host.at, InvitedStep::Begin(number));
            host.killed_at.into_iter().for_each(|at| world.at(at, InvitedStep::Kill(number)));
        }
        world.at(plan.heal_ns, InvitedStep::Heal);
        world
    }

    fn at(&mut self, at: u64, step: InvitedStep) {
        self.count += 1;
        self.queue.push(Reverse((at.max(self.now), self.count)));
        self.steps.insert(self.count, step);
    }

    /// A host takes its next turn after this span at the latest; no host: the server.
    fn wake(&mut self, host: Option<usize>, span: u64) {
        let at = self.now + span + self.rng.between(US, LATENCY);
        let (wake, step) = match host {
            Some(host) => (&mut self.hosts[host].wake, InvitedStep::Host(host)),
            None => (&mut self.server.process.wake, InvitedStep::Server),
        };
        if at < *wake {
            *wake = at;
            self.at(at, step);
        }
    }

    fn reading(&self) -> Instant {
        self.server.clock.at(True(self.now))
    }

    /// The next happening; false: the run is over.
    fn step(&mut self) -> Result<bool, Violation> {
        let Some(Reverse((at, count))) = self.queue.pop() else { return Ok(false) };
        self.now = at;
        let is_over = self.now >= self.plan.heal_ns && self.hosts.iter().all(|host| host.told.is_some());
        if is_over && self.server.disk.pending() == 0 {
            return self.judge.end(&self.plan, &self.server.disk).map(|()| false);
        }
        if self.now > self.plan.heal_ns + LIVELY {
            let waiting: Vec<usize> = (0..self.hosts.len()).filter(|host| self.hosts[*host].told.is_none()).collect();
            let what = format!("{LIVELY} ns after everything was mended hosts {waiting:?} were told nothing");
            return Err(Violation { invariant: "I31", check: "told-nothing", what });
        }
        match self.steps.remove(&count) {
            Some(InvitedStep::Server) => self.server_turn()?,
            Some(InvitedStep::Host(host)) => self.host_turn(host)?,
            Some(InvitedStep::ToServer(from, bytes)) if self.server.core.is_some() => {
                self.server.process.arrive(from, bytes);
                self.wake(None, 0);
            }
            Some(InvitedStep::ToHost(host, bytes)) if self.hosts[host].joiner.is_some() => {
                self.hosts[host].inbox.push_back(bytes);
                self.wake(Some(host), 0);
            }
            Some(InvitedStep::Disk(start, work)) if self.is_of(start) => self.disk_did(work)?,
            Some(InvitedStep::Computed(start, done)) if self.is_of(start) => {
                self.computed.push_back(*done);
                self.wake(None, 0);
            }
            Some(InvitedStep::Begin(host)) => self.begin(host),
            Some(InvitedStep::Kill(host)) if self.hosts[host].joiner.is_some() && self.hosts[host].told.is_none() => {
                self.hosts[host] = JoiningHost { joiner: None, inbox: VecDeque::new(), wake: NEVER, told: None };
                let span = self.rng.between(MS, 300 * MS);
                self.at(self.now + span, InvitedStep::Begin(host));
            }
            Some(InvitedStep::Crash) => {
                self.server.crash(self.now);
                (self.worker, self.computed) = (None, VecDeque::new());
                self.judge.durable(&self.plan, &self.server.disk)?;
            }
            Some(InvitedStep::Start) => self.start(),
            Some(InvitedStep::Heal) => self.loss_ppm = 0,
            _ => {}
        }
        Ok(true)
    }

    /// Whether that start of the server is the one that runs.
    fn is_of(&self, start: u64) -> bool {
        self.server.core.is_some() && self.server.process.starts == start
    }

    fn start(&mut self) {
        self.server.start(self.now);
        let (now, own) = (self.reading(), key(self.plan.seed, "server key"));
        let start = StartKey::from_bytes(self.seeds.seed());
        self.server.core = self.server.core.take().map(|core| {
            let mut core = core.sealed(&[own.public()], start, Cipher::default());
            core.set_roster(now, ServerRoster { cluster: CLUSTER, version: 1, signed: vec![0xAB; 900].into() });
            core
        });
        self.worker = Some(Worker::new([own]));
        self.wake(None, 0);
    }

    /// Somebody gives the command, or gives it again; before there are invites there is no line to give.
    fn begin(&mut self, number: usize) {
        if !self.invited {
            return self.at(self.now + 10 * MS, InvitedStep::Begin(number));
        }
        let host = self.plan.hosts[number];
        let mut ephemerals = self.seeds.fork(&format!("ephemerals {number} {}", self.now));
        let holder = KeyHolder::new(self.host_key(number), move || Entropy::from_bytes(ephemerals.seed()));
        let server: PublicKey = key(self.plan.seed, "server key").public();
        let keys = Keys::new(holder, server).with_psk(id_of(host.invite).0.to_be_bytes(), Psk::of_invite(&secret(host.invite)));
        self.hosts[number].joiner = Some(Joiner::new(self.reading(), keys, self.seeds.seed(), b"host"));
        self.wake(Some(number), 0);
    }

    fn host_key(&self, number: usize) -> SecretKey {
        key(self.plan.seed, &format!("host key {}", self.plan.hosts[number].key))
    }

    fn host_turn(&mut self, number: usize) -> Result<(), Violation> {
        let now = self.reading();
        let host = &mut self.hosts[number];
        if host.wake != self.now {
            return Ok(());
        }
        host.wake = NEVER;
        let Some(joiner) = &mut host.joiner else { return Ok(()) };
        while let Some(bytes) = host.inbox.pop_front() {
            joiner.handle_datagram(now, &bytes);
        }
        let mut buf = Vec::new();
        let mut sent = Vec::new();
        while joiner.poll_transmit(now, &mut buf) {
            sent.push(Bytes::copy_from_slice(&buf));
        }
        let end = joiner.end().cloned();
        let span = joiner.wake_after(now);
        sent.into_iter().for_each(|bytes| self.send(InvitedStep::ToServer(address(number), bytes)));
        match end {
            None => {
                self.wake(Some(number), u64::try_from(span.as_nanos()).unwrap_or(SEC));
                Ok(())
            }
            Some(end) => {
                (self.hosts[number].joiner, self.hosts[number].told) = (None, Some(end.clone()));
                let (key, invite) = (*self.host_key(number).public().as_bytes(), self.plan.hosts[number].invite);
                match end {
                    Ok(member) => self.judge.joined(key, invite, &member, &self.server.disk),
                    Err(why) => self.judge.refused(key, invite, self.plan.uses[invite], why),
                }
            }
        }
    }

    /// Once, or as a network has it.
    fn send(&mut self, step: InvitedStep) {
        let again = self.rng.chance(20_000).then(|| match &step {
            InvitedStep::ToServer(from, bytes) => InvitedStep::ToServer(*from, bytes.clone()),
            InvitedStep::ToHost(host, bytes) => InvitedStep::ToHost(*host, bytes.clone()),
            _ => InvitedStep::Server,
        });
        for step in [Some(step), again].into_iter().flatten() {
            let late = if self.rng.chance(20_000) { SEC } else { MS };
            let span = self.rng.between(50 * US, late);
            if !self.rng.chance(self.loss_ppm) {
                self.at(self.now + span, step);
            }
        }
    }

    fn server_turn(&mut self) -> Result<(), Violation> {
        let now = self.reading();
        if self.server.process.wake != self.now {
            return Ok(());
        }
        self.server.process.wake = NEVER;
        let Some(core) = &mut self.server.core else { return Ok(()) };
        while let Some((from, bytes)) = self.server.process.inbox.pop_front() {
            core.handle_datagram(now, Path::to(from), &bytes);
        }
        core.handle_drained(now);
        core.work(now);
        while let Some(done) = self.computed.pop_front() {
            core.seal_done(now, done);
        }
        self.invite(now);
        self.compute();
        self.serve_store(now)?;
        let mut buf = Vec::new();
        while let Some(path) = self.server.core.as_mut().and_then(|core| core.poll_transmit(now, &mut buf)) {
            if let Some(host) = (0..self.hosts.len()).find(|host| address(*host) == path.remote) {
                self.send(InvitedStep::ToHost(host, Bytes::copy_from_slice(&buf)));
            }
        }
        if !self.invited {
            self.wake(None, MS);
        }
        if let Some(span) = self.server.core.as_mut().and_then(|core| core.wake_after(now)) {
            self.wake(None, u64::try_from(span.as_nanos()).unwrap_or(SEC).min(SEC));
        }
        Ok(())
    }

    /// An operator makes the invites, and gives their lines away when they are durable.
    fn invite(&mut self, now: Instant) {
        let Some(core) = self.server.core.as_mut().filter(|core| core.is_serving()) else { return };
        if self.invited {
            return;
        }
        let mut newest = 0;
        for (invite, uses) in self.plan.uses.iter().enumerate() {
            let id = id_of(invite);
            let name = format!("host{invite}").into_bytes();
            let new =
                NewInvite { id, secret: secret(invite).into(), name, operator: false, rights: rights(), uses: *uses, within_s: 3_600 };
            match core.invite(now, new) {
                Ok((_, batch)) => newest = newest.max(batch),
                Err(Status::ENOSPC) => {}
                Err(status) => unreachable!("the invites of plans are legal: {status}"),
            }
        }
        self.invited = newest == 0 && self.server.disk.pending() == 0;
    }

    /// Has the workers do what there is to do.
    fn compute(&mut self) {
        let start = self.server.process.starts;
        while let Some(work) = self.server.core.as_mut().and_then(|core| core.poll_seal_work()) {
            let ephemeral = Entropy::from_bytes(self.seeds.seed());
            let done = self.worker.as_mut().and_then(|worker| worker.work(work, ephemeral));
            if let Some(done) = done {
                let span = self.rng.between(WORK_NS / 100, WORK_NS);
                self.at(self.now + span, InvitedStep::Computed(start, Box::new(done)));
            }
        }
    }

    fn serve_store(&mut self, now: Instant) -> Result<(), Violation> {
        let (start, at) = (self.server.process.starts, self.now);
        let mut planned = Vec::new();
        loop {
            while let Some(work) = self.server.core.as_mut().and_then(|core| core.poll_effect()) {
                if let StoreWork::Persist(batch) = &work {
                    self.judge.persists(batch);
                }
                self.server.take(work, at, |span, work| planned.push((span, work)));
            }
            let (Some(event), Some(core)) = (self.server.said.pop_front(), &mut self.server.core) else { break };
            core.store_event(now, event);
        }
        planned.into_iter().for_each(|(span, work)| self.at(at + span, InvitedStep::Disk(start, work)));
        Ok(())
    }

    fn disk_did(&mut self, work: Work) -> Result<(), Violation> {
        let (start, at) = (self.server.process.starts, self.now);
        match work {
            Work::Load(query, early) => {
                let answer = self.server.answer(query, early);
                self.server.said.push_back(answer);
            }
            Work::Sync(together) => {
                for _ in 0..together {
                    if let Some(batch) = self.server.disk.sync() {
                        self.server.said.push_back(cistern_server::store::StoreEvent::Durable(batch));
                    }
                }
                self.judge.durable(&self.plan, &self.server.disk)?;
                self.server.sync_over();
                let mut planned = Vec::new();
                self.server.begin_sync(at, |span, work| planned.push((span, work)));
                planned.into_iter().for_each(|(span, work)| self.at(at + span, InvitedStep::Disk(start, work)));
            }
        }
        self.wake(None, 0);
        Ok(())
    }
}
