//! The machines of a group's run: servers with their side of the store, agents with one user each.

mod servers;

use super::etcd::STORE;
use super::judge::Tenure;
use super::keys::GroupSealing;
use super::plan::GroupPlan;
use crate::clock::{NodeClock, Rates};
use crate::observe::{True, Violation};
use crate::plan::{MS, SEC};
use crate::rng::SimRng;
use crate::sealing::SealWorker;
use bytes::Bytes;
use cistern_agent::api::{Command, Event, HolderId, LockEvent, Locked, OpError, OpId, Output, Ownership, Submitted, Target, Wait};
use cistern_agent::config::Config as AgentConfig;
use cistern_agent::{Agent, Identity};
use cistern_flease::Terms;
use cistern_group::{Duty, GroupServer, TenureId};
use cistern_link::{Instant, Machine as _};
use cistern_server::store::{Loaded, Query, StoreEvent, StoreWork};
use cistern_server::{Config, Server};
use cistern_store_etcd::{Answer, Event as WriterEvent, Keyspace, Outcome, Sequencer, ServerList, Txn};
use cistern_wire::{AgentId, Mode, Status};
use servers::places;
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// τ of the agents.
pub(super) const LEASE: Duration = Duration::from_secs(1);
/// L of the group.
pub(super) const GROUP_LEASE: Duration = Duration::from_millis(300);
/// How long a server waits for an answer of the store before it asks again.
const ASK_LIMIT: u64 = 200 * MS;
/// How often a server asks whether the store is there.
const PING_PERIOD: u64 = 100 * MS;

/// Address of a server.
pub(super) fn server_address(server: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 255, 1 + u8::try_from(server).unwrap_or(0)), 7_311))
}

/// Address of an agent.
pub(super) fn agent_address(agent: usize) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1 + u8::try_from(agent).unwrap_or(0)), 40_000))
}

/// A clock that has run for a while when the run begins.
pub(super) fn clock(plan: &GroupPlan, place: usize) -> NodeClock {
    NodeClock::new(Instant::new(1_000 * SEC, 2_000 * SEC), Rates::both(plan.rates[place]))
}

/// What is asked of the store.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    Write(u64, Arc<Txn>),
    Load(Query),
    Ping,
}

/// What it says.
#[derive(Clone, Debug)]
pub(super) enum Said {
    Written(u64, Answer),
    Loaded(Loaded),
    Pong(Option<ServerList>),
}

/// A server's side of the store, in one tenure.
#[derive(Debug)]
struct Side {
    id: TenureId,
    /// What it calls itself in the store.
    name: Bytes,
    writer: Sequencer,
    /// The transaction that is asked, and when it is asked again.
    asked: Option<(u64, u64)>,
    loads: Vec<(Query, u64)>,
    /// In the sealed mode, since there is a core.
    worker: Option<SealWorker>,
}

/// A server's machine.
#[derive(Debug)]
pub(super) struct GroupHost {
    number: usize,
    pub(super) machine: Option<GroupServer>,
    pub(super) clock: NodeClock,
    pub(super) inbox: VecDeque<(SocketAddr, Bytes)>,
    /// What the store has said: to which start and tenure.
    pub(super) said: VecDeque<(u64, Option<TenureId>, Said)>,
    pub(super) starts: u64,
    pub(super) down: u32,
    pub(super) paused: u32,
    pub(super) wake: u64,
    side: Option<Side>,
    /// As what it has lost the store, in this turn.
    pub(super) fenced_out: Option<Bytes>,
    pinged: u64,
    seeds: SimRng,
    config: Config,
    group: cistern_flease::Config,
    /// The servers that it has learned of last; number 0: as it is configured.
    servers: ServerList,
    sealing: Option<GroupSealing>,
}

impl GroupHost {
    pub(super) fn new(plan: &GroupPlan, number: usize, sealing: Option<GroupSealing>, rng: &SimRng) -> Self {
        let terms = Terms { lease: GROUP_LEASE, drift_ppm: plan.drift_ppm, ..Terms::default() };
        // Who may be added knows itself and those of the first list.
        let listed: Vec<usize> = (0..plan.servers).chain((number >= plan.servers).then_some(number)).collect();
        let names: Vec<String> = listed.iter().map(|server| server_address(*server).to_string()).collect();
        let me = listed.iter().position(|server| *server == number).unwrap_or(0);
        let group = cistern_flease::Config {
            terms,
            list_number: 0,
            members: names.iter().map(|name| name.clone().into_bytes()).collect(),
            me: u8::try_from(me).unwrap_or(0),
            renew_by_write: plan.seed % 2 == 1,
            resources_max: 1,
            reserved: None,
        };
        let config = Config { delta_ppm: plan.drift_ppm, new_cluster: true, ..Config::for_lease(LEASE) };
        Self {
            number,
            machine: None,
            clock: clock(plan, number),
            inbox: VecDeque::new(),
            said: VecDeque::new(),
            starts: 0,
            down: 0,
            paused: 0,
            wake: u64::MAX,
            side: None,
            fenced_out: None,
            pinged: 0,
            seeds: rng.fork(&format!("server {number}")),
            config,
            group,
            servers: ServerList { number: 0, servers: names.join(",") },
            sealing,
        }
    }

    pub(super) fn start(&mut self, now: u64) {
        self.starts += 1;
        let names: Vec<_> = self.group.members.iter().map(|name| String::from_utf8_lossy(name)).collect();
        self.servers = ServerList { number: 0, servers: names.join(",") };
        let machine = GroupServer::new(&self.group, self.seeds.seed(), self.clock.at(True(now)));
        let mut machine = machine.expect("the terms of plans are legal");
        if let Some(sealing) = &self.sealing {
            let mut boot = [0; 16];
            boot.copy_from_slice(&self.seeds.seed()[..16]);
            machine = sealing.member(machine, self.number, &places(&self.servers), boot);
        }
        self.machine = Some(machine);
        self.follow_servers();
    }

    pub(super) fn crash(&mut self) {
        (self.machine, self.side) = (None, None);
        self.inbox.clear();
        self.said.clear();
        self.wake = u64::MAX;
    }

    /// Whose answer it is that leaves now.
    pub(super) fn tenure(&self) -> Tenure {
        (self.number, self.starts, self.side.as_ref().map_or(0, |side| side.id.0))
    }

    /// Whether it could renew somebody now.
    pub(super) fn may_renew(&self, now: u64) -> bool {
        let reading = self.clock.at(True(now));
        self.machine
            .as_ref()
            .is_some_and(|machine| machine.role(reading) == cistern_group::Role::Serving && machine.core().is_some_and(Server::is_serving))
    }

    /// The first half of a turn; gives what is asked of the store, each with the tenure in which it is.
    pub(super) fn receive(&mut self, now: u64, keys: &Keyspace) -> Vec<(Option<TenureId>, Ask)> {
        let reading = self.clock.at(True(now));
        let mut asks = Vec::new();
        let Some(machine) = &mut self.machine else { return asks };
        while let Some((from, bytes)) = self.inbox.pop_front() {
            machine.handle_datagram(reading, cistern_link::Path::to(from), &bytes);
        }
        machine.handle_drained(reading);
        machine.work(reading);
        if now >= self.pinged + PING_PERIOD {
            self.pinged = now;
            asks.push((None, Ask::Ping));
        }
        for (start, tenure, said) in std::mem::take(&mut self.said) {
            if start == self.starts {
                self.store_said(reading, tenure, said);
            }
        }
        self.do_duties(keys);
        self.serve_store(now, reading, &mut asks);
        self.do_duties(keys);
        asks
    }

    fn do_duties(&mut self, keys: &Keyspace) {
        let Some(machine) = &mut self.machine else { return };
        while let Some(duty) = machine.poll_duty() {
            match duty {
                Duty::Open(id) => {
                    let name = Bytes::from(format!("server {} start {} tenure {}", self.number, self.starts, id.0));
                    let writer = Sequencer::new(keys.clone(), name.clone()).elected_by(self.servers.clone());
                    self.side = Some(Side { id, name, writer, asked: None, loads: Vec::new(), worker: None });
                }
                Duty::Close(id) => {
                    self.side.take_if(|side| side.id == id);
                }
            }
        }
    }

    /// The store has said something.
    fn store_said(&mut self, reading: Instant, tenure: Option<TenureId>, said: Said) {
        if let Said::Pong(list) = said {
            self.learn_servers(reading, list);
            self.machine.iter_mut().for_each(|machine| machine.store_answered(reading));
            return;
        }
        let Some(machine) = &mut self.machine else { return };
        machine.store_answered(reading);
        let Some(side) = self.side.as_mut().filter(|side| Some(side.id) == tenure) else { return };
        match said {
            Said::Pong(_) => {}
            Said::Written(number, answer) => {
                if side.writer.answered(number, Outcome::Answered(answer)) && side.asked.is_some_and(|asked| asked.0 == number) {
                    side.asked = None;
                }
            }
            Said::Loaded(loaded) => {
                let before = side.loads.len();
                side.loads.retain(|load| load.0 != loaded.query);
                if let Some(core) = machine.core_mut().filter(|_| side.loads.len() < before) {
                    core.store_event(reading, StoreEvent::Loaded(loaded));
                }
            }
        }
    }

    /// Hands work to the store's side, and its word to the core.
    fn serve_store(&mut self, now: u64, reading: Instant, asks: &mut Vec<(Option<TenureId>, Ask)>) {
        while let Some((id, event)) = self.side.as_mut().and_then(|side| Some((side.id, side.writer.event()?))) {
            let (Some(machine), Some(side)) = (&mut self.machine, &mut self.side) else { return };
            match event {
                WriterEvent::Ready { servers, .. } => {
                    self.learn_servers(reading, servers);
                    let (Some(machine), Some(side)) = (&mut self.machine, &mut self.side) else { return };
                    let unix_ns = i64::try_from(now).unwrap_or(i64::MAX);
                    let core = Server::new(reading, unix_ns, STORE, self.config.clone(), self.seeds.seed());
                    let mut core = core.expect("the settings are legal");
                    if let Some(sealing) = &self.sealing {
                        let worker;
                        (core, worker) = sealing.core(reading, core, self.number, &mut self.seeds);
                        side.worker = Some(worker);
                    }
                    machine.serve(reading, id, core);
                }
                WriterEvent::Durable(batch) => {
                    machine.core_mut().into_iter().for_each(|core| core.store_event(reading, StoreEvent::Durable(batch)));
                }
                WriterEvent::Over(_) => {
                    self.fenced_out = Some(side.name.clone());
                    return machine.hand_over(reading, None);
                }
            }
        }
        let (Some(machine), Some(side)) = (&mut self.machine, &mut self.side) else { return };
        let id = side.id;
        if machine.core().is_some_and(|core| core.failure().is_some()) {
            return machine.hand_over(reading, None);
        }
        while let Some(work) = machine.core_mut().and_then(Server::poll_effect) {
            match work {
                StoreWork::Load(queries) => side.loads.extend(queries.into_iter().map(|query| (query, 0))),
                StoreWork::Persist(batch) => side.writer.push(batch),
            }
        }
        let may_read = side.loads.is_empty() || side.writer.may_read();
        for (query, again) in side.loads.iter_mut().filter(|load| may_read && now >= load.1) {
            *again = now + ASK_LIMIT;
            asks.push((Some(id), Ask::Load(query.clone())));
        }
        if let Some((number, _)) = side.asked.filter(|asked| now >= asked.1) {
            side.writer.answered(number, Outcome::Unknown);
            side.asked = None;
        }
        if side.asked.is_none()
            && let Some((number, txn)) = side.writer.step()
        {
            side.asked = Some((number, now + ASK_LIMIT));
            asks.push((Some(id), Ask::Write(number, txn)));
        }
    }

    /// Has the worker do what there is to do: after how long each piece is done, and under which number.
    pub(super) fn compute(&mut self, now: u64) -> Vec<(TenureId, u64, u64)> {
        let reading = self.clock.at(True(now));
        let Self { machine: Some(machine), side: Some(side), sealing: Some(sealing), .. } = self else { return Vec::new() };
        let (Some(core), Some(worker)) = (machine.core_mut(), &mut side.worker) else { return Vec::new() };
        if core.is_serving() && !std::mem::replace(&mut worker.enlisted, true) {
            sealing.enlist(core, reading);
        }
        while let Some(done) = worker.done() {
            core.seal_done(reading, done);
        }
        let mut planned = Vec::new();
        while let Some(work) = core.poll_seal_work() {
            planned.extend(worker.take(work).map(|(span, number)| (side.id, span, number)));
        }
        planned
    }

    /// The worker of a tenure has done something.
    pub(super) fn computed(&mut self, tenure: TenureId, number: u64) {
        let worker = self.side.as_mut().filter(|side| side.id == tenure).and_then(|side| side.worker.as_mut());
        worker.into_iter().for_each(|worker| worker.finish(number));
    }

    /// When it wants its next turn.
    pub(super) fn next(&mut self, now: u64) -> u64 {
        let reading = self.clock.at(True(now));
        let span = self.machine.as_mut().and_then(|machine| machine.wake_after(reading));
        let core = span.map_or(u64::MAX, |span| self.clock.lease_over_at(reading.plus(span.min(Duration::from_secs(60)))).0);
        let asked = self.side.as_ref().and_then(|side| side.asked).map_or(u64::MAX, |asked| asked.1);
        core.min(asked).min(self.pinged + PING_PERIOD)
    }
}

/// What an agent's user is doing.
#[derive(Debug)]
enum UserState {
    Nothing,
    Waits(OpId, Want),
    Holds { lock: usize, locked: Locked, until: u64, is_uncertain: bool },
}

#[derive(Debug)]
enum Want {
    Setup,
    Name(Vec<u8>),
    Lock(usize),
    Unlock,
}

/// What a user has seen, for the judge.
#[derive(Debug)]
pub(super) enum Deed {
    Uses(usize, u64),
    Answered(Vec<u8>),
    Twice(Vec<u8>),
}

/// Locks that agents want.
const LOCKS: usize = 2;

/// An agent's machine, and its user.
#[derive(Debug)]
pub(super) struct GroupAgent {
    number: usize,
    pub(super) core: Agent,
    pub(super) clock: NodeClock,
    pub(super) inbox: VecDeque<(SocketAddr, Bytes)>,
    pub(super) paused: u32,
    pub(super) wake: u64,
    doing: UserState,
    due: u64,
    names: u64,
    rng: SimRng,
    setup: Vec<Command>,
    sealing: Option<GroupSealing>,
    /// Locks and names that it has got since everything was mended.
    pub(super) got: (u64, u64),
}

const OWNER: Ownership = Ownership { mode: 0o644, uid: 1, gid: 1 };

fn lock_path(lock: usize) -> Bytes {
    Bytes::from(format!("/lock{lock}"))
}

impl GroupAgent {
    pub(super) fn new(plan: &GroupPlan, number: usize, sealing: Option<GroupSealing>, rng: &SimRng) -> Self {
        let mut rng = rng.fork(&format!("agent {number}"));
        let byte = u8::try_from(number + 1).unwrap_or(u8::MAX);
        let identity =
            Identity { agent: AgentId([byte; 16]), incarnation: 1, boot: [byte; 16], label: format!("agent{number}").into_bytes() };
        let servers = (0..plan.hosts()).map(server_address).collect();
        let config = AgentConfig { give_up_after: Duration::from_secs(3_600), ..AgentConfig::default() };
        let mut core = Agent::new(config, identity, rng.seed(), servers).expect("the settings are legal");
        let clock = clock(plan, plan.hosts() + number);
        if let Some(sealing) = &sealing {
            core = sealing.agent(clock.at(True(0)), core, number, &rng);
        }
        let setup = (0..LOCKS).map(|lock| Command::Create { path: lock_path(lock), exclusive: false, ephemeral: false, owner: OWNER });
        Self {
            number,
            core,
            clock,
            inbox: VecDeque::new(),
            paused: 0,
            wake: u64::MAX,
            doing: UserState::Nothing,
            due: 0,
            names: 0,
            rng,
            setup: setup.collect(),
            sealing,
            got: (0, 0),
        }
    }

    /// The first half of a turn.
    pub(super) fn receive(&mut self, now: u64) -> Result<Vec<Deed>, Violation> {
        let reading = self.clock.at(True(now));
        let mut deeds = Vec::new();
        while let Some((from, bytes)) = self.inbox.pop_front() {
            self.core.handle_datagram(reading, cistern_link::Path::to(from), &bytes);
            self.take_events(now, &mut deeds)?;
        }
        self.core.handle_drained(reading);
        self.take_events(now, &mut deeds)?;
        if now >= self.due {
            self.act(now, &mut deeds);
            self.take_events(now, &mut deeds)?;
        }
        Ok(deeds)
    }

    fn take_events(&mut self, now: u64, deeds: &mut Vec<Deed>) -> Result<(), Violation> {
        while let Some(event) = self.core.poll_event() {
            match event {
                Event::Done { op, result } => {
                    if let UserState::Waits(waits, _) = &self.doing
                        && *waits == op
                        && let UserState::Waits(_, want) = std::mem::replace(&mut self.doing, UserState::Nothing)
                    {
                        self.ended(now, want, result, deeds);
                    }
                }
                Event::Lock { holder, what, .. } => self.told(now, holder, what),
                Event::Roster { signed } => {
                    if let Some(sealing) = &self.sealing {
                        self.core.set_servers(self.clock.at(True(now)), sealing.servers(&signed)?);
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn told(&mut self, now: u64, told: HolderId, what: LockEvent) {
        let UserState::Holds { locked, until, is_uncertain, .. } = &mut self.doing else { return };
        if locked.holder != told {
            return;
        }
        match what {
            LockEvent::Suspect { .. } => {}
            LockEvent::Uncertain => *is_uncertain = true,
            LockEvent::Certain { .. } => *is_uncertain = false,
            LockEvent::Lost => *until = now,
        }
        self.due = now;
    }

    fn ended(&mut self, now: u64, want: Want, result: Result<Output, OpError>, deeds: &mut Vec<Deed>) {
        let longest = if self.rng.chance(50_000) { 4 * SEC } else { 60 * MS };
        self.due = now + self.rng.between(MS, longest);
        match (want, result) {
            (Want::Lock(lock), Ok(Output::Locked(locked))) => {
                self.got.0 += 1;
                let longest = if self.rng.chance(150_000) { 6 * SEC } else { 800 * MS };
                let until = now + self.rng.between(MS, longest);
                self.doing = UserState::Holds { lock, locked, until, is_uncertain: false };
                self.due = now;
            }
            (Want::Name(name), Ok(_)) => {
                self.got.1 += 1;
                deeds.push(Deed::Answered(name));
            }
            (Want::Name(name), Err(OpError::Status(Status::EEXIST))) => deeds.push(Deed::Twice(name)),
            (Want::Setup, Ok(_)) => {
                self.setup.pop();
            }
            _ => {}
        }
    }

    fn act(&mut self, now: u64, deeds: &mut Vec<Deed>) {
        let reading = self.clock.at(True(now));
        match &self.doing {
            UserState::Waits(..) => self.due = u64::MAX,
            UserState::Holds { lock, locked, until, is_uncertain } => {
                let (lock, locked, until, is_uncertain) = (*lock, *locked, *until, *is_uncertain);
                let view = self.core.holder_view(reading, locked.holder);
                if !is_uncertain && view.is_some_and(|view| view.certain) {
                    deeds.push(Deed::Uses(lock, locked.token));
                }
                self.due = (now + self.rng.between(MS, 30 * MS)).min(until.max(now + 1));
                if now >= until || view.is_none() {
                    self.submit(now, Command::Unlock { holder: locked.holder }, Want::Unlock, deeds);
                }
            }
            UserState::Nothing => {
                if let Some(command) = self.setup.last().cloned() {
                    return self.submit(now, command, Want::Setup, deeds);
                }
                if self.rng.chance(500_000) {
                    let lock = self.rng.index(LOCKS);
                    let (target, mode) = (Target::Path(lock_path(lock)), Mode::Exclusive);
                    let wait = if self.rng.chance(200_000) { Wait::Try } else { Wait::AtMost(Duration::from_secs(4)) };
                    return self.submit(now, Command::Lock { target, mode, wait }, Want::Lock(lock), deeds);
                }
                self.names += 1;
                let name = format!("n{}-{}", self.number, self.names).into_bytes();
                let path = Bytes::from([b"/", &name[..]].concat());
                let command = Command::Create { path, exclusive: true, ephemeral: false, owner: OWNER };
                self.submit(now, command, Want::Name(name), deeds);
            }
        }
    }

    fn submit(&mut self, now: u64, command: Command, want: Want, deeds: &mut Vec<Deed>) {
        let reading = self.clock.at(True(now));
        self.doing = UserState::Nothing;
        match self.core.submit(reading, command) {
            Submitted::Later(op) => {
                self.doing = UserState::Waits(op, want);
                self.due = u64::MAX;
            }
            Submitted::Now(result) => self.ended(now, want, result, deeds),
        }
    }

    /// When it wants its next turn.
    pub(super) fn next(&mut self, now: u64) -> u64 {
        let reading = self.clock.at(True(now));
        let span = self.core.wake_after(reading);
        let core = span.map_or(u64::MAX, |span| self.clock.lease_over_at(reading.plus(span.min(Duration::from_secs(60)))).0);
        core.min(self.due)
    }
}
