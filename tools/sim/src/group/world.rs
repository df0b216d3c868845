//! The course of a run: turns, datagrams, what the store does, faults; then everything is mended, and all that agents want must come to pass.

use super::etcd::Etcd;
use super::hosts::{Ask, Deed, GroupAgent, GroupHost, Said, agent_address, server_address};
use super::judge::GroupJudge;
use super::keys::GroupSealing;
use super::plan::{GroupPlan, Place, Trouble};
use crate::observe::Violation;
use crate::plan::{MS, SEC, US};
use crate::rng::SimRng;
use bytes::Bytes;
use cistern_group::TenureId;
use cistern_link::Machine as _;
use cistern_server::store::Loaded;
use cistern_wire::limits::{CALL, DATAGRAM_MIN};
use cistern_wire::{Bytes8, Datagram, Envelope, Header, Hint, Message, Packer, Refuse, SessionId};
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::net::SocketAddr;

/// How long it may take, from when everything is mended, until every agent has got what it wants: a restart wait, an election, a grace with
/// reclaims, and what the loss of datagrams costs.
const LIVELY: u64 = 40 * SEC;

/// What came of a run.
#[derive(Clone, Debug)]
pub struct GroupOutcome {
    /// The first invariant that did not hold, if any.
    pub violation: Option<Violation>,
    /// How often another server, or another core, began to renew.
    pub take_overs: u64,
    /// How often a server was added or removed.
    pub changes: u32,
    /// Locks that agents got, and names that they made, after everything was mended.
    pub got: (u64, u64),
    /// How long the run was, in nanoseconds of true time.
    pub sim_ns: u64,
    /// A hash of all that was sent.
    pub hash: u64,
}

enum Happening {
    Turn(Place),
    Arrive(Place, SocketAddr, Bytes),
    Asked { server: usize, start: u64, tenure: Option<TenureId>, ask: Ask },
    Says { server: usize, start: u64, tenure: Option<TenureId>, said: Said },
    Computed { server: usize, start: u64, tenure: TenureId, number: u64 },
    Begin(usize),
    End(usize),
    GoesOn(usize),
    ChangeServers,
    Heal,
}

struct GroupWorld {
    plan: GroupPlan,
    now: u64,
    count: u64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    happenings: BTreeMap<u64, Happening>,
    servers: Vec<GroupHost>,
    agents: Vec<GroupAgent>,
    etcd: Etcd,
    judge: GroupJudge,
    sealing: Option<GroupSealing>,
    rng: SimRng,
    /// What was asked of the store and is late: by whom, and which happening it is.
    late: Vec<(usize, u64)>,
    /// Faults that last.
    active: Vec<usize>,
    healed: bool,
    hash: u64,
    buf: Vec<u8>,
}

/// Runs a plan to its end, or to the first violation. `tell` is told what the cores log, if [`crate::trace::log_from`] was called, and when.
#[must_use]
pub fn simulate(plan: &GroupPlan, tell: &mut dyn FnMut(u64, &str)) -> GroupOutcome {
    let mut world = GroupWorld::new(plan);
    let violation = world.run(tell).err();
    let changes = world.etcd.servers().map_or(0, |list| list.number - 1);
    let got = world.agents.iter().fold((0, 0), |sum, agent| (sum.0 + agent.got.0, sum.1 + agent.got.1));
    GroupOutcome { violation, take_overs: world.judge.take_overs, changes, got, sim_ns: world.now, hash: world.hash }
}

impl GroupWorld {
    fn new(plan: &GroupPlan) -> Self {
        let rng = SimRng::new(plan.seed).fork("group run");
        let sealing = plan.sealing().map(|sealing| GroupSealing::new(sealing, plan.hosts(), plan.agents));
        let mut world = Self {
            servers: (0..plan.hosts()).map(|server| GroupHost::new(plan, server, sealing.clone(), &rng)).collect(),
            agents: (0..plan.agents).map(|agent| GroupAgent::new(plan, agent, sealing.clone(), &rng)).collect(),
            sealing,
            now: 0,
            count: 0,
            queue: BinaryHeap::new(),
            happenings: BTreeMap::new(),
            etcd: Etcd::new(),
            judge: GroupJudge::default(),
            rng: rng.fork("timing"),
            late: Vec::new(),
            active: Vec::new(),
            healed: false,
            hash: 0,
            buf: Vec::new(),
            plan: plan.clone(),
        };
        for server in 0..plan.hosts() {
            world.servers[server].start(0);
            world.wake(Place::Server(server), 0);
        }
        (0..plan.agents).for_each(|agent| world.wake(Place::Agent(agent), MS));
        for (nth, fault) in plan.faults.iter().enumerate() {
            world.at(fault.at, Happening::Begin(nth));
            world.at(fault.until, Happening::End(nth));
        }
        plan.changes.iter().for_each(|at| world.at(*at, Happening::ChangeServers));
        world.at(plan.heal_ns, Happening::Heal);
        world
    }

    fn at(&mut self, at: u64, next: Happening) {
        self.count += 1;
        self.queue.push(Reverse((at.max(self.now), self.count)));
        self.happenings.insert(self.count, next);
    }

    fn wake(&mut self, place: Place, at: u64) {
        let wake = match place {
            Place::Server(server) => &mut self.servers[server].wake,
            Place::Agent(agent) => &mut self.agents[agent].wake,
            Place::Store => return,
        };
        if at < *wake {
            *wake = at;
            self.at(at, Happening::Turn(place));
        }
    }

    fn run(&mut self, tell: &mut dyn FnMut(u64, &str)) -> Result<(), Violation> {
        while let Some(Reverse((at, count))) = self.queue.pop() {
            self.now = at;
            if self.healed && self.agents.iter().all(|agent| agent.got.0 > 0 && agent.got.1 > 0) {
                return self.judge.end(&self.etcd);
            }
            if self.now > self.plan.heal_ns + LIVELY {
                let got: Vec<_> = self.agents.iter().map(|agent| agent.got).collect();
                let what = format!("{LIVELY} ns after everything was mended agents have got (locks, names): {got:?}");
                return Err(Violation { invariant: "I30", check: "not-served", what });
            }
            match self.happenings.remove(&count) {
                Some(Happening::Turn(place)) => self.turn(place)?,
                Some(Happening::Arrive(place, from, bytes)) => self.arrive(place, from, bytes),
                Some(Happening::Asked { server, start, tenure, ask }) => self.asked(server, start, tenure, &ask)?,
                Some(Happening::Says { server, start, tenure, said }) => {
                    self.servers[server].said.push_back((start, tenure, said));
                    self.wake(Place::Server(server), self.now + US);
                }
                Some(Happening::Computed { server, start, tenure, number }) if self.servers[server].starts == start => {
                    self.servers[server].computed(tenure, number);
                    self.wake(Place::Server(server), self.now + US);
                }
                Some(Happening::Begin(nth)) => self.begin(nth),
                Some(Happening::End(nth)) => self.end(nth),
                Some(Happening::GoesOn(server)) => {
                    *self.paused(Place::Server(server)) -= 1;
                    self.wake(Place::Server(server), self.now);
                }
                Some(Happening::ChangeServers) => self.change_servers(),
                Some(Happening::Heal) => self.heal(),
                Some(Happening::Computed { .. }) | None => {}
            }
            crate::trace::logged::take().iter().for_each(|line| tell(self.now, line));
            let may: Vec<usize> = (0..self.servers.len()).filter(|server| self.servers[*server].may_renew(self.now)).collect();
            self.judge.serving(&may)?;
        }
        Ok(())
    }

    /// Whether something passes from one to another.
    fn passes(&self, from: Place, to: Place) -> bool {
        self.active.iter().all(|nth| match self.plan.faults[*nth].what {
            Trouble::Cut { from: a, to: b, both } => (a, b) != (from, to) && (!both || (b, a) != (from, to)),
            Trouble::Alone(place) => place != from && place != to,
            Trouble::StoreDown => to != Place::Store,
            _ => true,
        })
    }

    fn is_late(&self) -> bool {
        self.active.iter().any(|nth| self.plan.faults[*nth].what == Trouble::StoreLate)
    }

    fn is_misled(&self) -> bool {
        self.active.iter().any(|nth| self.plan.faults[*nth].what == Trouble::FalseHints)
    }

    /// Somebody calls an agent in a session of its own, in the name of a server.
    fn call_falsely(&mut self, agent: usize, session: SessionId) {
        if session == SessionId(0) || !self.rng.chance(100_000) {
            return;
        }
        let mut bytes = Vec::new();
        one(&mut bytes, Header { from_server: true, session, packet: 1 }, &Hint { echo: CALL, detail: Bytes8(b"") }.into());
        let server = self.rng.index(self.servers.len());
        let (span, bytes) = (self.rng.between(50 * US, 500 * US), Bytes::from(bytes));
        self.at(self.now + span, Happening::Arrive(Place::Agent(agent), server_address(server), bytes));
    }

    fn begin(&mut self, nth: usize) {
        self.active.push(nth);
        match self.plan.faults[nth].what {
            Trouble::Crash(server) => {
                self.servers[server].down += 1;
                self.servers[server].crash();
            }
            Trouble::Pause(place) => *self.paused(place) += 1,
            Trouble::HandOver(server) => {
                let reading = self.servers[server].clock.at(crate::observe::True(self.now));
                if let Some(machine) = self.servers[server].machine.as_mut().filter(|machine| machine.core().is_some()) {
                    machine.hand_over(reading, None);
                    self.wake(Place::Server(server), self.now + US);
                }
            }
            _ => {}
        }
    }

    fn end(&mut self, nth: usize) {
        self.active.retain(|active| *active != nth);
        match self.plan.faults[nth].what {
            Trouble::Crash(server) => {
                self.servers[server].down -= 1;
                self.start(server);
            }
            Trouble::Pause(place) => {
                *self.paused(place) -= 1;
                self.wake(place, self.now);
            }
            _ => {}
        }
    }

    fn paused(&mut self, place: Place) -> &mut u32 {
        match place {
            Place::Server(server) => &mut self.servers[server].paused,
            Place::Agent(agent) => &mut self.agents[agent].paused,
            Place::Store => unreachable!("the store has troubles of its own"),
        }
    }

    /// Who serves adds or removes a server, or later, if it may not yet.
    fn change_servers(&mut self) {
        let (now, hosts) = (self.now, self.servers.len());
        let changed =
            (0..hosts).find(|server| self.servers[*server].paused == 0 && self.servers[*server].change_servers(now, hosts, &mut self.rng));
        match changed {
            Some(server) => self.wake(Place::Server(server), now + US),
            None if !self.healed => self.at(now + 20 * MS, Happening::ChangeServers),
            None => {}
        }
    }

    fn start(&mut self, server: usize) {
        let host = &mut self.servers[server];
        if host.down == 0 && host.machine.is_none() {
            host.start(self.now);
            self.wake(Place::Server(server), self.now);
        }
    }

    fn heal(&mut self) {
        self.healed = true;
        self.active.clear();
        self.agents.iter_mut().for_each(|agent| agent.got = (0, 0));
        if let Some(dead) = self.plan.dead {
            self.servers[dead].down += 1;
            self.servers[dead].crash();
        }
    }

    fn turn(&mut self, place: Place) -> Result<(), Violation> {
        match place {
            Place::Server(server) => self.server_turn(server),
            Place::Agent(agent) => self.agent_turn(agent),
            Place::Store => Ok(()),
        }
    }

    fn server_turn(&mut self, server: usize) -> Result<(), Violation> {
        let now = self.now;
        let host = &mut self.servers[server];
        if host.wake != now {
            return Ok(());
        }
        host.wake = u64::MAX;
        if host.paused > 0 || host.machine.is_none() {
            return Ok(());
        }
        let asks = host.receive(now, self.etcd.keys());
        if let Some(name) = host.fenced_out.take().filter(|name| self.etcd.is_owned_by(name)) {
            let what = format!("{} has lost the store, which nobody has taken since", name.escape_ascii());
            return Err(Violation { invariant: "I24", check: "lost-to-nobody", what });
        }
        let start = host.starts;
        for (tenure, span, number) in host.compute(now) {
            self.at(now + span, Happening::Computed { server, start, tenure, number });
        }
        for (tenure, ask) in asks {
            self.ask(server, start, tenure, &ask);
        }
        self.sealing.as_ref().map_or(Ok(()), GroupSealing::broken)?;
        loop {
            let (host, mut buf) = (&mut self.servers[server], std::mem::take(&mut self.buf));
            let reading = host.clock.at(crate::observe::True(now));
            let path = host.machine.as_mut().and_then(|machine| machine.poll_transmit(reading, &mut buf));
            if let Some(path) = path {
                if renews(&self.sealing.as_ref().map_or(Cow::Borrowed(&buf[..]), |sealing| sealing.in_clear(&buf))) {
                    self.judge.renews(host.tenure())?;
                }
                if self.is_misled() {
                    mislead(server, &mut buf);
                }
                self.send(Place::Server(server), server_address(server), path.remote, &buf);
            }
            self.buf = buf;
            if path.is_none() {
                break;
            }
        }
        let next = self.servers[server].next(now).max(now + US);
        self.wake(Place::Server(server), next);
        Ok(())
    }

    fn agent_turn(&mut self, agent: usize) -> Result<(), Violation> {
        let now = self.now;
        let host = &mut self.agents[agent];
        if host.wake != now {
            return Ok(());
        }
        host.wake = u64::MAX;
        if host.paused > 0 {
            return Ok(());
        }
        for deed in host.receive(now)? {
            match deed {
                Deed::Uses(path, token) => self.judge.uses(path, token, agent)?,
                Deed::Answered(name) => self.judge.answered(name),
                Deed::Twice(name) => {
                    let what = format!("{} is there already, and nobody else makes it", name.escape_ascii());
                    return Err(Violation { invariant: "I27", check: "twice", what });
                }
            }
        }
        loop {
            let (host, mut buf) = (&mut self.agents[agent], std::mem::take(&mut self.buf));
            let reading = host.clock.at(crate::observe::True(now));
            let path = host.core.poll_transmit(reading, &mut buf);
            if let Some(path) = path {
                let session = Envelope::at_server(&buf).map(|envelope| envelope.header.session);
                if session == Ok(SessionId(0)) {
                    self.judge.asks(agent, now)?;
                }
                if let (Ok(session), true) = (session, self.is_misled()) {
                    self.call_falsely(agent, session);
                }
                self.send(Place::Agent(agent), agent_address(agent), path.remote, &buf);
            }
            self.buf = buf;
            if path.is_none() {
                break;
            }
        }
        let next = self.agents[agent].next(now).max(now + US);
        self.wake(Place::Agent(agent), next);
        Ok(())
    }

    fn send(&mut self, from: Place, address: SocketAddr, to: SocketAddr, bytes: &[u8]) {
        self.hash = self.hash.wrapping_mul(0x100_0000_01b3) ^ u64::from(crc(bytes)) ^ self.now;
        let server = (0..self.servers.len()).find(|server| server_address(*server) == to).map(Place::Server);
        let agent = || (0..self.agents.len()).find(|agent| agent_address(*agent) == to).map(Place::Agent);
        let Some(place) = server.or_else(agent) else { return };
        if !self.passes(from, place) {
            return;
        }
        let copies = 1 + u64::from(self.rng.chance(10_000));
        for _ in 0..copies {
            let span = if self.rng.chance(5_000) { self.rng.between(MS, 400 * MS) } else { self.rng.between(50 * US, 500 * US) };
            if !self.rng.chance(self.plan.loss_ppm) {
                self.at(self.now + span, Happening::Arrive(place, address, Bytes::copy_from_slice(bytes)));
            }
        }
    }

    fn arrive(&mut self, place: Place, from: SocketAddr, bytes: Bytes) {
        match place {
            Place::Server(server) if self.servers[server].machine.is_some() => self.servers[server].inbox.push_back((from, bytes)),
            Place::Agent(agent) => self.agents[agent].inbox.push_back((from, bytes)),
            _ => return,
        }
        self.wake(place, self.now + 10 * US);
    }

    /// A server asks the store: once, or as a network has it.
    fn ask(&mut self, server: usize, start: u64, tenure: Option<TenureId>, ask: &Ask) {
        if !self.passes(Place::Server(server), Place::Store) {
            return;
        }
        for _ in 0..1 + u64::from(self.rng.chance(20_000)) {
            let is_late = self.is_late() && self.rng.chance(250_000);
            let span = self.rng.between(200 * US, if is_late { 2 * SEC } else { 3 * MS });
            let asked = Happening::Asked { server, start, tenure, ask: ask.clone() };
            self.at(self.now + span, asked);
            if is_late {
                self.late.push((server, self.count));
                // Whoever asks again would find it done, so some stand still.
                if matches!(ask, Ask::Write(..)) && self.rng.chance(200_000) {
                    *self.paused(Place::Server(server)) += 1;
                    self.at(self.now + 3 * SEC, Happening::GoesOn(server));
                }
            }
        }
    }

    /// A server takes the store: what others have asked, and what is late, comes at the worst moment.
    fn hurry_late(&mut self, server: usize) {
        for (of, count) in std::mem::take(&mut self.late) {
            if of == server {
                self.late.push((of, count));
            } else if let Some(asked) = self.happenings.remove(&count) {
                let span = self.rng.between(0, 12 * MS);
                self.at(self.now + span, asked);
            }
        }
    }

    /// What was asked comes to the store, whatever has become of who asked.
    fn asked(&mut self, server: usize, start: u64, tenure: Option<TenureId>, ask: &Ask) -> Result<(), Violation> {
        if self.active.iter().any(|nth| self.plan.faults[*nth].what == Trouble::StoreDown) {
            return Ok(());
        }
        let by = (server, start, tenure.map_or(0, |tenure| tenure.0));
        let said = match ask {
            Ask::Write(number, txn) => {
                if self.etcd.is_taken_by(txn) {
                    self.hurry_late(server);
                }
                let before = self.etcd.last_commit();
                let answer = self.etcd.execute(txn);
                GroupJudge::commits(by, before.as_ref(), self.etcd.last_commit().as_ref())?;
                if answer.succeeded && self.etcd.has_data(txn) {
                    self.judge.writes(by)?;
                }
                Said::Written(*number, answer)
            }
            Ask::Load(query) => {
                self.judge.loads(by);
                Said::Loaded(Loaded { query: query.clone(), answer: self.etcd.answer(query) })
            }
            Ask::Ping => Said::Pong(self.etcd.servers()),
        };
        if self.passes(Place::Store, Place::Server(server)) && self.servers[server].machine.is_some() {
            let span = self.rng.between(100 * US, MS);
            self.at(self.now + span, Happening::Says { server, start, tenure, said });
        }
        Ok(())
    }
}

/// Whether something in a plain datagram renews.
fn renews(datagram: &[u8]) -> bool {
    Datagram::at_agent(datagram).is_ok_and(|datagram| datagram.messages().any(|message| message.kind().renews()))
}

/// A refusal names another server: of each two the other one.
fn mislead(server: usize, bytes: &mut Vec<u8>) {
    let copy = bytes.clone();
    let Ok(datagram) = Datagram::at_agent(&copy) else { return };
    if let Some(Message::Refuse(refuse)) = datagram.messages().next() {
        let serving = if server == 0 { 2 } else { 1 };
        one(bytes, datagram.header, &Refuse { serving, ..refuse }.into());
    }
}

/// Makes a datagram of one message.
fn one(bytes: &mut Vec<u8>, header: Header, message: &Message<'_>) {
    let mut packer = Packer::new(bytes, header, DATAGRAM_MIN);
    let fits = packer.push(message);
    assert!(fits, "one small message fits the smallest datagram");
    packer.finish();
}

fn crc(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}
