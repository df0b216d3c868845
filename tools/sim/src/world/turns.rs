//! Turns of machines: what a driver does with a core, in the driver's order.
//!
//! Decides nothing that the real driver does not: drain the socket with the clock read after each receive; timers when it is empty; the
//! server's store; users; then sending, the clock read before each send; then sleep (`crates/driver/src/turn.rs`; sections 11.1 and 11.3).
//! Invariant: a machine that stands still takes no turn, and after every turn judges see a settled state.
//! Leaves to others: what the cores decide, where datagrams go (`net`), which faults there are (`faults`).

use crate::attack::{Intruder, address, is_attacker};
use crate::host::{ADDRESS, NEVER, Work};
use crate::net::Arrival;
use crate::observe::{Node, Seen, True, Violation};
use crate::plan::{SEC, US};
use crate::world::queue::Next;
use crate::world::{World, violation};
use bytes::Bytes;
use cistern_agent::api::{Event, OpError, Output, Submitted};
use cistern_link::Machine;
use cistern_server::store::{StoreEvent, StoreWork};
use std::net::SocketAddr;
use std::time::Duration;

/// Most rounds in which users of one agent act in one turn; more means that an act leads to the next without end.
const ROUNDS_MAX: usize = 1_000;

/// Most datagrams of one turn; more means that a core never has enough.
const SENDS_MAX: usize = 100_000;

impl World<'_> {
    /// A machine's turn, if it is still planned for `at` and the machine runs.
    pub(super) fn turn(&mut self, node: Node, at: u64) -> Result<(), Violation> {
        let process = self.process(node);
        if process.wake != at {
            return Ok(());
        }
        process.wake = NEVER;
        if process.paused > 0 {
            return Ok(());
        }
        let stalled = std::mem::take(&mut process.mid_turn);
        let runs = match node {
            Node::Server => self.stage.server.core.is_some(),
            Node::Agent(agent) => self.stage.agents[agent].core.is_some(),
        };
        if !runs {
            return Ok(());
        }
        if !stalled {
            self.take_in(node)?;
            if self.timing.chance(self.stall_ppm) {
                // The machine is held up between what it received and what it sends.
                let at = at + self.timing.between(US, self.plan.net.stall_ns);
                self.process(node).mid_turn = true;
                self.wake_by(node, at);
                return self.tell(&Seen::Settled);
            }
        }
        match node {
            Node::Server => self.server_sends()?,
            Node::Agent(agent) => self.agent_sends(agent)?,
        }
        self.tell(&Seen::Settled)
    }

    /// The first half of a turn: what has arrived, time, the store, users.
    fn take_in(&mut self, node: Node) -> Result<(), Violation> {
        match node {
            Node::Server => self.server_receives(),
            Node::Agent(agent) => self.agent_receives(agent),
        }
    }

    /// The next datagram of the socket, unless the turn has had as many as it may.
    fn next_received(&mut self, node: Node, had: usize) -> Option<(SocketAddr, Bytes)> {
        let most = self.plan.net.batch;
        self.process(node).inbox.pop_front_if(|_| had < most)
    }

    /// A datagram reaches a machine.
    pub(super) fn arrive(&mut self, node: Node, from: SocketAddr, to: SocketAddr, bytes: Bytes) {
        let here = match node {
            Node::Server => self.stage.server.core.is_some(),
            Node::Agent(agent) => self.stage.agents[agent].core.is_some() && self.stage.agents[agent].address == to,
        };
        if here && self.process(node).arrive(from, bytes) {
            let at = self.stage.now + self.latency();
            self.wake_by(node, at);
        }
    }

    /// The disk has done something.
    pub(super) fn disk_did(&mut self, start: u64, work: Work) -> Result<(), Violation> {
        let now = self.stage.now;
        let server = &mut self.stage.server;
        if server.core.is_none() || server.process.starts != start {
            return Ok(());
        }
        if server.stalled_until > now {
            self.queue.push(server.stalled_until, Next::Disk(start, work));
            return Ok(());
        }
        match work {
            Work::Load(query, early) => {
                let answer = server.answer(query, early);
                server.said.push_back(answer);
            }
            Work::Sync(_) if server.broken => {
                server.said.push_back(StoreEvent::Broken("the simulated disk failed a write".to_owned()));
            }
            Work::Sync(together) => {
                for _ in 0..together {
                    if let Some(batch) = self.stage.server.disk.sync() {
                        self.tell(&Seen::Durable { batch })?;
                        self.stage.server.said.push_back(StoreEvent::Durable(batch));
                    }
                }
                let Self { stage, queue, .. } = self;
                stage.server.sync_over();
                // The store is a part of the process: while that stands still, no further write begins.
                if stage.server.process.paused == 0 {
                    stage.server.begin_sync(now, |span, work| queue.push(now + span, Next::Disk(start, work)));
                }
            }
        }
        let at = now + self.latency();
        self.wake_by(Node::Server, at);
        Ok(())
    }

    /// The worker of the sealed mode has done something.
    pub(super) fn sealer_did(&mut self, start: u64, number: u64) {
        if self.stage.server.process.starts == start {
            self.stage.server.seal_done(number);
            let at = self.stage.now + self.latency();
            self.wake_by(Node::Server, at);
        }
    }

    fn server_receives(&mut self) -> Result<(), Violation> {
        let now = self.stage.now;
        let reading = self.stage.server.clock.at(True(now));
        let mut had = 0;
        while let Some((from, bytes)) = self.next_received(Node::Server, had) {
            had += 1;
            let reception = self.stage.receives(Node::Server, reading, from, &bytes)?;
            self.tell_received(Node::Server, from, &bytes, reception)?;
        }
        // Timers run only when the socket was found empty (section 11.3).
        if let (true, Some(core)) = (self.stage.server.process.inbox.is_empty(), &mut self.stage.server.core) {
            core.handle_drained(reading);
        }
        if let Some(core) = &mut self.stage.server.core {
            core.work(reading);
        }
        let start = self.stage.server.process.starts;
        let Self { stage, queue, .. } = self;
        stage.server.begin_sync(now, |span, work| queue.push(now + span, Next::Disk(start, work)));
        self.serve_store()
    }

    fn server_sends(&mut self) -> Result<(), Violation> {
        let reading = self.stage.server.clock.at(True(self.stage.now));
        for _ in 0..SENDS_MAX {
            let Self { stage, buf, .. } = self;
            let Some(path) = stage.server.core.as_mut().and_then(|core| core.poll_transmit(reading, buf)) else { break };
            self.send(Node::Server, ADDRESS, path.remote)?;
        }
        let Some(core) = &mut self.stage.server.core else { return Ok(()) };
        if core.failure().is_some() {
            return self.server_gives_up();
        }
        let span = core.wake_after(reading);
        self.sleep(Node::Server, span, None);
        Ok(())
    }

    /// Takes the core's work to the disk, and the disk's word to the core, until neither has more.
    fn serve_store(&mut self) -> Result<(), Violation> {
        let now = self.stage.now;
        let start = self.stage.server.process.starts;
        let reading = self.stage.server.clock.at(True(now));
        let Self { stage, queue, .. } = self;
        stage.server.seal(reading, |span, number| queue.push(now + span, Next::Sealed(start, number)));
        loop {
            while let Some(work) = self.stage.server.core.as_mut().and_then(|core| core.poll_effect()) {
                if let StoreWork::Persist(batch) = &work {
                    self.watch.see(&self.stage.sight(), &Seen::Persisted { batch })?;
                }
                let Self { stage, queue, .. } = self;
                stage.server.take(work, now, |span, work| queue.push(now + span, Next::Disk(start, work)));
            }
            let Some(event) = self.stage.server.said.pop_front() else { return Ok(()) };
            if let Some(core) = &mut self.stage.server.core {
                core.store_event(reading, event);
            }
        }
    }

    fn agent_receives(&mut self, agent: usize) -> Result<(), Violation> {
        let reading = self.stage.agents[agent].clock.at(True(self.stage.now));
        let node = Node::Agent(agent);
        let mut had = 0;
        while let Some((from, bytes)) = self.next_received(node, had) {
            had += 1;
            let reception = self.stage.receives(node, reading, from, &bytes)?;
            self.tell_received(node, from, &bytes, reception)?;
            self.take_events(agent)?;
        }
        let host = &mut self.stage.agents[agent];
        if let (true, Some(core)) = (host.process.inbox.is_empty(), &mut host.core) {
            core.handle_drained(reading);
        }
        self.take_events(agent)?;
        self.let_users_act(agent)
    }

    fn agent_sends(&mut self, agent: usize) -> Result<(), Violation> {
        let reading = self.stage.agents[agent].clock.at(True(self.stage.now));
        let (node, own) = (Node::Agent(agent), self.stage.agents[agent].address);
        for _ in 0..SENDS_MAX {
            let Self { stage, buf, .. } = self;
            let Some(path) = stage.agents[agent].core.as_mut().and_then(|core| core.poll_transmit(reading, buf)) else { break };
            self.send(node, own, path.remote)?;
        }
        self.take_events(agent)?;
        let Some(core) = &mut self.stage.agents[agent].core else { return Ok(()) };
        let span = core.wake_after(reading);
        self.sleep(node, span, self.users.next(agent));
        Ok(())
    }

    /// Users of an agent do what they want to do by now.
    fn let_users_act(&mut self, agent: usize) -> Result<(), Violation> {
        let now = True(self.stage.now);
        for _ in 0..ROUNDS_MAX {
            if self.users.next(agent).is_none_or(|at| at > now) {
                return Ok(());
            }
            for (op, command) in self.users.act(agent, now) {
                self.commands += 1;
                let host = &mut self.stage.agents[agent];
                let reading = host.clock.at(now);
                let Some(core) = &mut host.core else { return Ok(()) };
                let seen = command.clone();
                let submitted = core.submit(reading, command);
                if let Submitted::Later(id) = submitted {
                    host.ops.insert(id, op);
                }
                self.tell(&Seen::Submitted { agent, op, command: &seen })?;
                if let Submitted::Now(result) = submitted {
                    self.ended(agent, op, Some(&result))?;
                }
                self.take_events(agent)?;
            }
        }
        Err(violation("I15", "users", format!("users of agent {agent} act without end at one instant")))
    }

    /// Takes what the agent tells its users.
    fn take_events(&mut self, agent: usize) -> Result<(), Violation> {
        while let Some(event) = self.stage.agents[agent].core.as_mut().and_then(|core| core.poll_event()) {
            if let Event::Done { op, result } = &event {
                let Some(op) = self.stage.agents[agent].ops.remove(op) else {
                    return Err(violation("api", "ended-twice", format!("agent {agent} ends {op:?}, which is not running")));
                };
                self.ended(agent, op, Some(result))?;
            } else {
                self.tell(&Seen::Told { agent, event: &event })?;
                self.users.told(agent, &event, True(self.stage.now));
            }
        }
        Ok(())
    }

    /// A command ended.
    pub(super) fn ended(
        &mut self,
        agent: usize,
        op: crate::observe::UserOp,
        result: Option<&Result<Output, OpError>>,
    ) -> Result<(), Violation> {
        self.tell(&Seen::Ended { agent, op, result })?;
        self.users.ended(agent, op, result, True(self.stage.now));
        Ok(())
    }

    /// Hands the datagram in the buffer to the network.
    fn send(&mut self, node: Node, from: SocketAddr, to: SocketAddr) -> Result<(), Violation> {
        let bytes = std::mem::take(&mut self.buf);
        self.stage.made(node, to, &bytes)?;
        self.tell(&Seen::sent(node, to, &bytes))?;
        if is_attacker(to) {
            let of = |fault: &&mut Intruder| address(fault.number()) == to;
            self.intruders.values_mut().filter(of).for_each(|intruder| intruder.hears(&bytes));
        }
        let (agent, receiver) = match node {
            Node::Agent(agent) => (Some(agent), Node::Server),
            Node::Server => {
                let agent = self.stage.agents.iter().position(|host| host.address == to);
                (agent, Node::Agent(agent.unwrap_or(0)))
            }
        };
        if let Some(agent) = agent {
            if let Some(witnessed) = self.witnessed.get_mut(agent) {
                witnessed.note(receiver == Node::Server, &bytes);
            }
            if let Some(tamperer) = &mut self.tamperer {
                tamperer.note(agent, receiver == Node::Server, &bytes);
            }
            let mut arrivals = std::mem::take(&mut self.arrivals);
            self.net.send(self.stage.now, agent, receiver == Node::Server, &bytes, &mut arrivals);
            for Arrival { at, bytes } in arrivals.drain(..) {
                self.queue.push(at, Next::Arrive { node: receiver, from, to, bytes });
            }
            self.arrivals = arrivals;
        }
        self.buf = bytes;
        Ok(())
    }

    /// Plans the machine's next turn: when its core wants it, by the machine's own clock, or its users do.
    fn sleep(&mut self, node: Node, span: Option<Duration>, users: Option<True>) {
        let now = True(self.stage.now);
        let clock = match node {
            Node::Server => &self.stage.server.clock,
            Node::Agent(agent) => &self.stage.agents[agent].clock,
        };
        // The earlier of its two clocks: a core that is woken too early must look at the time and sleep again.
        let core = span.map_or(NEVER, |span| clock.lease_over_at(clock.at(now).plus(span.min(Duration::from_nanos(100 * SEC)))).0);
        let more = if self.process(node).inbox.is_empty() { NEVER } else { now.0 };
        let wanted = core.min(users.map_or(NEVER, |at| at.0)).min(more);
        if wanted < NEVER {
            let at = wanted.max(self.stage.now + US) + self.latency();
            self.wake_by(node, at);
        }
    }
}
