//! What is known of every session from outside: who has it, what was sent and received in it, and how it stands.
//!
//! Decides: from datagrams, when each transmission left its agent and reached the server, until when the agent's lease can be good at
//! most, and which receipts the server has echoed; from the disk, whether the session's record or its end is durable; by a look at
//! the core, its standing. Place in the walk: brought up to date before the families look.
//! Invariant: nothing here rests on what a core says of its own lease; that is what it is compared with.
//! Leaves to others: whether anything is wrong (the families).

use super::case::{Case, echo_of};
pub(super) use super::session::{GivenUp, PacketLog, Record, Session};
use crate::observe::{Node, Seen, True};
use cistern_link::Instant;
use cistern_server::store::{BatchId, Key};
use cistern_wire::{AgentId, Claim, EndReason, Message, SessionFate, SessionId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// A handshake under way.
#[derive(Clone, Debug, Default)]
struct Handshake {
    agent: Option<usize>,
    agent_start: u64,
}

/// An agent's machine.
#[derive(Clone, Debug, Default)]
pub(super) struct AgentFacts {
    pub(super) id: Option<AgentId>,
    pub(super) start: u64,
    pub(super) up: bool,
    /// What its core says of itself, newest.
    pub(super) view: AgentView,
}

/// What an agent's core says of itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct AgentView {
    pub(super) session: Option<SessionId>,
    pub(super) valid_until: Option<Instant>,
    pub(super) holders: u64,
    pub(super) advisory: u64,
    pub(super) cache: u64,
}

/// A change of a session's record that is on its way to the disk.
type Change = (SessionId, bool);

/// Everything known of sessions.
#[derive(Clone, Debug, Default)]
pub(super) struct Sessions {
    pub(super) all: BTreeMap<SessionId, Session>,
    /// What the server has offered, and nobody has confirmed.
    offered: BTreeMap<SessionId, Session>,
    pub(super) agents: Vec<AgentFacts>,
    /// Standing of each session that the server has now, as it says; fresh whenever it sends something that renews.
    pub(super) standing: BTreeMap<SessionId, &'static str>,
    /// When the server started last, on its clock and in true time.
    pub(super) server_started: Option<Instant>,
    pub(super) started_at: True,
    pub(super) server_up: bool,
    /// Sessions whose records were durable when the server started last.
    pub(super) recorded: BTreeSet<SessionId>,
    handshakes: BTreeMap<u64, Handshake>,
    writing: VecDeque<(BatchId, Vec<Change>)>,
    lease_timers: usize,
}

impl Sessions {
    pub(super) fn new(agents: usize) -> Self {
        Self { agents: vec![AgentFacts::default(); agents], ..Self::default() }
    }

    pub(super) fn get(&self, session: SessionId) -> Option<&Session> {
        self.all.get(&session)
    }

    /// Whose a session is, which may only be offered: the agent, and which start of it.
    pub(super) fn agent_of(&self, session: SessionId) -> Option<(usize, u64)> {
        let known = self.get(session).or_else(|| self.offered.get(&session))?;
        Some((known.agent?, known.agent_start))
    }

    /// Whether one session is a former one of the same process as another, from before the server's last start: what it held can only
    /// be reclaimed, by that very process.
    pub(super) fn is_former(&self, former: SessionId, of: SessionId) -> bool {
        let (Some(former), Some(of)) = (self.get(former), self.get(of)) else { return false };
        former.opened < self.started_at && former.agent.is_some() && (former.agent, former.agent_start) == (of.agent, of.agent_start)
    }

    /// How a session stands at this very moment; `None`: nobody can look.
    pub(super) fn standing_now(&self, case: &Case<'_>, session: SessionId) -> Option<&'static str> {
        match case.sight.server {
            Some(server) => server.sessions(case.server_now()).into_iter().find(|row| row.session == session).map(|row| row.standing),
            None => self.standing.get(&session).copied(),
        }
    }

    /// Whether a session recorded at the server's start that is not long is not accounted for: the server is in grace.
    pub(super) fn in_grace(&self) -> bool {
        self.recorded.iter().any(|session| self.all.get(session).is_some_and(|known| known.record != Record::Ended && !known.long))
    }

    /// Takes one happening in.
    pub(super) fn note(&mut self, case: &Case<'_>) {
        match case.seen {
            Seen::Sent { from: Node::Agent(agent), .. } => self.agent_sent(case, *agent),
            Seen::Sent { from: Node::Server, .. } => self.server_sent(case),
            Seen::Received { by: Node::Agent(agent), .. } => {
                self.agent_received(case, *agent);
                self.look_at_agent(case, *agent);
            }
            Seen::Received { by: Node::Server, .. } => self.server_received(case),
            Seen::Ended { agent, .. } | Seen::Told { agent, .. } | Seen::Submitted { agent, .. } => self.look_at_agent(case, *agent),
            Seen::Persisted { batch } => {
                let changes: Vec<Change> = batch.writes.iter().filter_map(|(key, value)| session_change(key, value.is_some())).collect();
                for (session, open) in &changes {
                    self.set_record(*session, if *open { Record::Writing } else { Record::Ending });
                }
                self.writing.push_back((batch.id, changes));
            }
            Seen::Durable { batch } => self.durable(*batch),
            Seen::Started { node, incarnation } => self.started(case, *node, *incarnation),
            Seen::Crashed { node: Node::Server } => self.server_up = false,
            Seen::Crashed { node: Node::Agent(agent) } => {
                self.agents[*agent].up = false;
                self.agents[*agent].view = AgentView::default();
            }
            Seen::Settled => {
                (0..self.agents.len()).for_each(|agent| self.look_at_agent(case, agent));
                let timers = case.sight.server.map_or(0, cistern_server::Server::lease_timers);
                if timers > 0 || self.lease_timers > 0 {
                    self.look_at_server(case);
                }
                self.lease_timers = timers;
            }
            Seen::Forged { by: Node::Agent(agent), .. } => self.look_at_agent(case, *agent),
            Seen::Forged { by: Node::Server, .. } | Seen::Restored | Seen::Moved { .. } | Seen::Exposed { .. } => {}
        }
    }

    fn look_at_agent(&mut self, case: &Case<'_>, agent: usize) {
        let Some(core) = case.sight.agents[agent].core else { return };
        let view = core.view(case.agent_now(agent));
        self.agents[agent].view = AgentView {
            session: view.session,
            valid_until: view.valid_until,
            holders: view.holders,
            advisory: view.advisory_locks,
            cache: view.cache_locks,
        };
    }

    fn look_at_server(&mut self, case: &Case<'_>) {
        let Some(server) = case.sight.server else { return };
        let now = case.server_now();
        self.standing = server.sessions(now).into_iter().map(|row| (row.session, row.standing)).collect();
        self.note_failures(now);
    }

    /// Dates D of sessions whose standing is not good any more, and forgets it where it is again.
    pub(super) fn note_failures(&mut self, now: Instant) {
        for (session, standing) in &self.standing {
            let Some(known) = self.all.get_mut(session) else { continue };
            match *standing {
                "good" => known.failed = None,
                _ => {
                    known.failed.get_or_insert(now);
                }
            }
        }
    }

    fn agent_sent(&mut self, case: &Case<'_>, agent: usize) {
        let (Some(packet), now) = (&case.packet, case.agent_now(agent)) else { return };
        for message in &packet.messages {
            if let Message::Hello(hello) = message {
                self.agents[agent].id = Some(hello.agent);
                let handshake = self.handshakes.entry(hello.handshake).or_default();
                handshake.agent = Some(agent);
                handshake.agent_start = self.agents[agent].start;
            }
        }
        let session = self.all.get_mut(&packet.session()).or_else(|| self.offered.get_mut(&packet.session()));
        if let Some(session) = session {
            session.sends.note(packet.header.packet, now);
            if packet.messages.iter().any(|message| matches!(message, Message::ReclaimComplete(_))) {
                session.source = None;
            }
        }
    }

    fn server_received(&mut self, case: &Case<'_>) {
        let (Some(packet), now) = (&case.packet, case.server_now()) else { return };
        let surrenders = case.sight.server_config.surrender;
        let id = packet.session();
        if matches!(packet.messages.first(), Some(Message::Confirm(_))) && self.is_open_now(case, id) {
            self.opens(case.sight.now, id);
        }
        if let Some(session) = self.all.get_mut(&id) {
            session.receipts.note(packet.header.packet, now);
            session.heard = Some(now);
        }
        for message in &packet.messages {
            match message {
                Message::Confirm(confirm) if self.all.contains_key(&id) => {
                    for former in confirm.former.iter().filter(|former| former.claim == Claim::Surrendered) {
                        self.give_up(former.session, GivenUp::Surrendered);
                    }
                }
                Message::EndSession(end) => {
                    let given_up = match end.reason {
                        EndReason::Close => GivenUp::Closed,
                        EndReason::Surrender => GivenUp::Surrendered,
                    };
                    let failed = self.all.get(&packet.session()).is_some_and(|session| session.failed.is_some());
                    if surrenders || !failed {
                        self.give_up(packet.session(), given_up);
                    }
                }
                Message::ReclaimComplete(complete) => self.give_up(complete.from, GivenUp::Reclaimed),
                _ => {}
            }
        }
    }

    /// Whether the server has opened a session that it has offered; where nobody can look, it has.
    fn is_open_now(&self, case: &Case<'_>, session: SessionId) -> bool {
        let open = |server: &cistern_server::Server| server.sessions(case.server_now()).iter().any(|row| row.session == session);
        self.offered.contains_key(&session) && case.sight.server.is_none_or(open)
    }

    /// What was offered is a session from now on.
    fn opens(&mut self, now: True, id: SessionId) {
        if let Some(session) = self.offered.remove(&id) {
            self.all.entry(id).or_insert(Session { opened: now, ..session });
        }
    }

    fn give_up(&mut self, session: SessionId, how: GivenUp) {
        if let Some(session) = self.all.get_mut(&session) {
            session.given_up.get_or_insert(how);
        }
    }

    fn server_sent(&mut self, case: &Case<'_>) {
        let Some(packet) = &case.packet else { return };
        if packet.messages.iter().any(|message| message.kind().renews()) {
            self.look_at_server(case);
        }
        for message in &packet.messages {
            if let Message::Welcome(welcome) = message {
                self.welcomed(case.sight.now, case.sight.server_config.lease, welcome);
                continue;
            }
            let Some(session) = self.all.get_mut(&packet.session()) else { continue };
            if let Message::Opened(opened) = message {
                session.source = opened.former.iter().find(|former| former.fate == SessionFate::Reclaimable).map(|former| former.session);
            }
            if let Some(receipt) = echo_of(message).and_then(|echo| session.receipts.get(echo)) {
                session.echoed = Some(session.echoed.map_or(receipt, |newest| newest.max(receipt)));
            }
            if matches!(message, Message::Nack(_)) {
                session.nacked = true;
            }
        }
    }

    fn welcomed(&mut self, now: True, own: Duration, welcome: &cistern_wire::Welcome) {
        let handshake = self.handshakes.get(&welcome.handshake);
        let agent = handshake.and_then(|handshake| handshake.agent);
        let tau_ns = u128::from(welcome.lease_us) * 1_000;
        let margin = (tau_ns * u128::from(welcome.delta_ppm)).div_ceil(1_000_000) + u128::from(welcome.epsilon_us) * 1_000;
        let nanos = |ns: u128| Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX));
        let agent_start = handshake.map_or(0, |handshake| handshake.agent_start);
        self.offered.entry(welcome.session).or_insert_with(|| Session {
            agent,
            agent_start,
            tau: nanos(tau_ns),
            wait: nanos(tau_ns + margin),
            long: nanos(tau_ns) > own,
            opened: now,
            incarnation: (welcome.epoch, welcome.server_incarnation),
            sends: PacketLog::default(),
            receipts: PacketLog::default(),
            heard: None,
            echoed: None,
            lease_end: None,
            record: Record::None,
            nacked: false,
            nack_taken: None,
            given_up: None,
            source: None,
            failed: None,
        });
    }

    fn agent_received(&mut self, case: &Case<'_>, agent: usize) {
        let Some(packet) = &case.packet else { return };
        for message in &packet.messages {
            match message {
                // It may make the session the present one.
                Message::Opened(opened) => {
                    let Some(session) = self.all.get_mut(&packet.session()).filter(|session| session.agent == Some(agent)) else {
                        continue;
                    };
                    if let Some(sent) = session.sends.get(opened.echo) {
                        session.renew(sent);
                    }
                }
                // Of another session than the present one nothing renews (section 11.7).
                _ if self.agents[agent].view.session != Some(packet.session()) => {}
                Message::Nack(nack) => {
                    let Some(session) = self.all.get_mut(&packet.session()) else { continue };
                    if session.sends.get(nack.echo).is_some() {
                        session.nack_taken.get_or_insert(case.sight.now);
                    }
                }
                _ if message.kind().renews() => {
                    let Some(session) = self.all.get_mut(&packet.session()) else { continue };
                    if let Some(sent) = echo_of(message).and_then(|echo| session.sends.get(echo)) {
                        session.renew(sent);
                    }
                }
                _ => {}
            }
        }
    }

    fn set_record(&mut self, session: SessionId, record: Record) {
        if let Some(known) = self.all.get_mut(&session) {
            known.record = record;
        }
    }

    fn durable(&mut self, batch: BatchId) {
        while self.writing.front().is_some_and(|(id, _)| *id <= batch) {
            let Some((_, changes)) = self.writing.pop_front() else { return };
            for (session, open) in changes {
                self.set_record(session, if open { Record::Durable } else { Record::Ended });
            }
        }
    }

    fn started(&mut self, case: &Case<'_>, node: Node, incarnation: u64) {
        match node {
            Node::Agent(agent) => {
                self.agents[agent].start = incarnation;
                self.agents[agent].up = true;
            }
            Node::Server => {
                self.server_started = Some(case.server_now());
                self.started_at = case.sight.now;
                self.server_up = true;
                self.standing.clear();
                self.lease_timers = 0;
                // What a crash has left is what is true.
                self.writing.clear();
                self.recorded = case.sight.disk.durable_sessions().map(|(session, _)| session).collect();
                self.offered.clear();
                for (session, known) in &mut self.all {
                    let there = self.recorded.contains(session);
                    known.record = if there { Record::Durable } else { Record::Ended };
                }
                self.recorded.retain(|session| self.all.contains_key(session));
            }
        }
    }
}

fn session_change(key: &Key, open: bool) -> Option<Change> {
    match key {
        Key::Session(session) => Some((*session, open)),
        _ => None,
    }
}
