//! Turns of a script's machines: what a driver does with a core, in the driver's order.
//!
//! Decides nothing that `world::turns` does not: drain the socket, timers, the store, what users are told, sending, then sleep; one batch
//! of receiving has no end here, for scripts are short. Place: called for each planned turn, and for each command of a user.
//! Invariant: a machine that stands still takes no turn, and after every turn judges see a settled state.
//! Leaves to others: when (`course`), what becomes of what is sent (`wires`).

use super::course::{Course, Due, Ending, LATENCY};
use super::wires::Way;
use crate::attack::is_attacker;
use crate::host::{ADDRESS, NEVER, Work};
use crate::observe::{Node, Seen, True, UserOp};
use bytes::Bytes;
use cistern_agent::api::{Command, Event, OpError, OpId, Output, Submitted};
use cistern_link::Machine as _;
use cistern_server::store::{StoreEvent, StoreWork};
use std::net::SocketAddr;

impl Course {
    pub(super) fn turn(&mut self, node: Node) {
        let process = self.process(node);
        process.wake = NEVER;
        if process.paused > 0 {
            return;
        }
        match node {
            Node::Server if self.stage.server.core.is_some() => self.server_turn(),
            Node::Agent(agent) if self.stage.agents[agent].core.is_some() => self.agent_turn(agent),
            _ => return,
        }
        self.tell(&Seen::Settled);
    }

    pub(super) fn arrive(&mut self, node: Node, from: SocketAddr, to: SocketAddr, bytes: Bytes) {
        let is_here = match node {
            Node::Server => self.stage.server.core.is_some(),
            Node::Agent(agent) => self.stage.agents[agent].core.is_some() && self.stage.agents[agent].address == to,
        };
        if is_here && self.process(node).arrive(from, bytes) {
            self.wake_by(node, self.stage.now + LATENCY);
        }
    }

    pub(super) fn disk_did(&mut self, start: u64, work: Work) {
        if self.stage.server.core.is_none() || self.stage.server.process.starts != start {
            return;
        }
        if self.disk_stalls {
            self.disk_waits.push((start, work));
            return;
        }
        let now = self.stage.now;
        match work {
            Work::Load(query, early) => {
                let answer = self.stage.server.answer(query, early);
                self.stage.server.said.push_back(answer);
            }
            Work::Sync(_) if self.stage.server.broken => {
                self.stage.server.said.push_back(StoreEvent::Broken("the script's disk failed a write".to_owned()));
            }
            Work::Sync(together) => {
                for _ in 0..together {
                    if let Some(batch) = self.stage.server.disk.sync() {
                        self.tell(&Seen::Durable { batch });
                        self.stage.server.said.push_back(StoreEvent::Durable(batch));
                    }
                }
                self.stage.server.sync_over();
                let mut planned = Vec::new();
                self.stage.server.begin_sync(now, |span, work| planned.push((span, work)));
                self.plan_disk(start, planned);
            }
        }
        self.wake_by(Node::Server, now + LATENCY);
    }

    fn plan_disk(&mut self, start: u64, planned: Vec<(u64, Work)>) {
        for (span, work) in planned {
            self.push(self.stage.now + span, Due::Disk(start, work));
        }
    }

    pub(super) fn sealer_did(&mut self, start: u64, number: u64) {
        if self.stage.server.process.starts == start {
            self.stage.server.seal_done(number);
            self.wake_by(Node::Server, self.stage.now + LATENCY);
        }
    }

    fn server_turn(&mut self) {
        let reading = self.stage.server.clock.at(True(self.stage.now));
        while let Some((from, bytes)) = self.stage.server.process.inbox.pop_front() {
            let received = self.stage.receives(Node::Server, reading, from, &bytes);
            let reception = received.unwrap_or_else(|violation| panic!("{violation}"));
            self.tell_received(Node::Server, from, &bytes, reception);
        }
        if let Some(core) = &mut self.stage.server.core {
            core.handle_drained(reading);
            core.work(reading);
        }
        self.serve_store();
        while let Some(path) = self.stage.server.core.as_mut().and_then(|core| core.poll_transmit(reading, &mut self.buf)) {
            self.send(Node::Server, ADDRESS, path.remote);
        }
        let Some(core) = &mut self.stage.server.core else { return };
        if core.failure().is_some() {
            return self.crash(Node::Server);
        }
        let span = core.wake_after(reading);
        self.sleep(Node::Server, span);
    }

    /// Takes the core's work to the disk, and the disk's word to the core, until neither has more.
    fn serve_store(&mut self) {
        let now = self.stage.now;
        let start = self.stage.server.process.starts;
        let reading = self.stage.server.clock.at(True(now));
        let mut sealing = Vec::new();
        self.stage.server.seal(reading, |span, number| sealing.push((span, number)));
        for (span, number) in sealing {
            self.push(now + span, Due::Sealed(start, number));
        }
        loop {
            while let Some(work) = self.stage.server.core.as_mut().and_then(cistern_server::Server::poll_effect) {
                if let StoreWork::Persist(batch) = &work {
                    self.tell(&Seen::Persisted { batch });
                }
                let mut planned = Vec::new();
                self.stage.server.take(work, now, |span, work| planned.push((span, work)));
                self.plan_disk(start, planned);
            }
            let Some(event) = self.stage.server.said.pop_front() else { return };
            if let Some(core) = &mut self.stage.server.core {
                core.store_event(reading, event);
            }
        }
    }

    fn agent_turn(&mut self, agent: usize) {
        let reading = self.stage.agents[agent].clock.at(True(self.stage.now));
        while let Some((from, bytes)) = self.stage.agents[agent].process.inbox.pop_front() {
            let received = self.stage.receives(Node::Agent(agent), reading, from, &bytes);
            let reception = received.unwrap_or_else(|violation| panic!("{violation}"));
            self.tell_received(Node::Agent(agent), from, &bytes, reception);
            self.take_events(agent);
        }
        if let Some(core) = &mut self.stage.agents[agent].core {
            core.handle_drained(reading);
        }
        self.take_events(agent);
        let own = self.stage.agents[agent].address;
        while let Some(path) = self.stage.agents[agent].core.as_mut().and_then(|core| core.poll_transmit(reading, &mut self.buf)) {
            self.send(Node::Agent(agent), own, path.remote);
        }
        self.take_events(agent);
        let Some(core) = &mut self.stage.agents[agent].core else { return };
        let span = core.wake_after(reading);
        self.sleep(Node::Agent(agent), span);
    }

    /// Takes what the agent tells its users.
    fn take_events(&mut self, agent: usize) {
        while let Some(event) = self.stage.agents[agent].core.as_mut().and_then(cistern_agent::Agent::poll_event) {
            if let Event::Done { op, result } = &event {
                let op = self.stage.agents[agent].ops.remove(op).expect("an agent ends only commands that run");
                self.over(agent, op, result.clone());
            } else {
                self.tell(&Seen::Told { agent, event: &event });
                let start = self.stage.agents[agent].process.starts;
                self.told.push((agent, start, event));
            }
        }
    }

    fn over(&mut self, agent: usize, op: UserOp, result: Result<Output, OpError>) {
        self.tell(&Seen::Ended { agent, op, result: Some(&result) });
        self.ended.insert(op, Ending::Told(result));
    }

    /// A user gives a command; the agent takes a turn with it.
    pub(super) fn submit(&mut self, agent: usize, command: Command) -> UserOp {
        self.last_op += 1;
        let op = UserOp(self.last_op);
        let seen = command.clone();
        let submitted = self.with_agent(agent, |core, now| core.submit(now, command));
        if let Submitted::Later(id) = submitted {
            self.stage.agents[agent].ops.insert(id, op);
        }
        self.tell(&Seen::Submitted { agent, op, command: &seen });
        if let Submitted::Now(result) = submitted {
            self.over(agent, op, result);
        }
        self.take_events(agent);
        self.turn(Node::Agent(agent));
        op
    }

    /// A user takes a command back.
    pub(super) fn cancel(&mut self, agent: usize, op: UserOp) {
        let id: Option<OpId> = self.stage.agents[agent].ops.iter().find(|(_, of)| **of == op).map(|(id, _)| *id);
        if let Some(id) = id {
            self.with_agent(agent, |core, now| core.cancel(now, id));
            self.take_events(agent);
            self.turn(Node::Agent(agent));
        }
    }

    /// Calls an agent's core at its machine's time.
    pub(super) fn with_agent<R>(&mut self, agent: usize, call: impl FnOnce(&mut cistern_agent::Agent, cistern_link::Instant) -> R) -> R {
        let host = &mut self.stage.agents[agent];
        assert!(host.process.paused == 0, "{} stands still, and can do nothing", self.names[agent]);
        let reading = host.clock.at(True(self.stage.now));
        let core = host.core.as_mut().unwrap_or_else(|| panic!("{} does not run", self.names[agent]));
        call(core, reading)
    }

    /// Hands the datagram in the buffer to the wires.
    fn send(&mut self, node: Node, from: SocketAddr, to: SocketAddr) {
        let bytes = std::mem::take(&mut self.buf);
        self.stage.made(node, to, &bytes).unwrap_or_else(|violation| panic!("{violation}"));
        self.tell(&Seen::sent(node, to, &bytes));
        if is_attacker(to) {
            self.exposed.push((to, Bytes::copy_from_slice(&bytes)));
        }
        let way = match node {
            Node::Agent(agent) => Some(Way { agent, up: true }),
            Node::Server => self.stage.agents.iter().position(|host| host.address == to).map(|agent| Way { agent, up: false }),
        };
        if let Some(way) = way {
            let plain = self.stage.sealing.as_ref().and_then(|sealing| sealing.in_clear(&bytes));
            for after in self.wires.send(way, from, to, &bytes, plain.as_deref().unwrap_or(&bytes)) {
                self.travel(way, from, to, Bytes::copy_from_slice(&bytes), after);
            }
        }
        self.buf = bytes;
    }

    /// A datagram arrives after so long.
    pub(super) fn travel(&mut self, way: Way, from: SocketAddr, to: SocketAddr, bytes: Bytes, after: u64) {
        let node = if way.up { Node::Server } else { Node::Agent(way.agent) };
        self.push(self.stage.now + after, Due::Arrive { node, from, to, bytes });
    }
}
