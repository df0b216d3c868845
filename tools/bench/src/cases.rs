//! The loads that are measured, and how each is set up and run on two sides.
//!
//! Decides the list of cases and the order of rounds: side A, side B, side A, side B, after one round of each that does not count.
//! Place: called by `main`, over `host` and `traffic`. Invariant: both sides of a case are asked the same by the same sockets at the
//! same pace. Leaves to others: the exchange itself (`traffic`), the arithmetic (`figures`).

use crate::agent::Agent;
use crate::cores::Cores;
use crate::figures::{Column, Round, Spread, ratio};
use crate::host::{Host, Role};
use crate::opening;
use crate::slot::Step;
use crate::traffic::{Pace, Traffic, slots};
use crate::trouble::Trouble;
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, SessionId};
use serde::Serialize;
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Agents in the case of a crowd: as many as one receive buffer takes at once without loss.
const CROWD: usize = 256;
/// Requests in flight where many sessions share a socket.
const SHARED: usize = 64;
/// Window of the agents that talk to the echo.
const WINDOW: u16 = 64;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// GETATTR of the root directory, without a cache lock.
    GetAttr,
    /// LOCK (try) and RELEASE of a file, each an exchange.
    Lock,
    /// SETATTR of a file.
    SetAttr,
}

/// A load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    /// What is asked.
    pub(crate) work: Work,
    /// How many sessions ask.
    pub(crate) agents: usize,
    /// Whether each has a socket of its own; otherwise all share one.
    pub(crate) own_sockets: bool,
    /// Requests in flight over all agents.
    pub(crate) in_flight: usize,
    /// When they are sent.
    pub(crate) pace: Pace,
}

impl Case {
    /// In words, for tables.
    pub(crate) fn name(&self) -> String {
        let work = match self.work {
            Work::GetAttr => "getattr",
            Work::Lock => "lock+release",
            Work::SetAttr => "setattr",
        };
        let Self { agents, in_flight, .. } = self;
        match (agents, self.pace) {
            (1, _) => format!("{work}, 1 agent, {in_flight} in flight"),
            (_, Pace::Each) => format!("{work}, {agents} agents, {in_flight} in flight"),
            (_, Pace::Together) => format!("{work}, {agents} agents, {in_flight} at once"),
        }
    }
}

/// The cases that are measured beside the echo.
pub(crate) fn beside_echo(in_flight: usize) -> Vec<Case> {
    let one = Case { work: Work::GetAttr, agents: 1, own_sockets: true, in_flight: 1, pace: Pace::Each };
    vec![one, Case { work: Work::Lock, ..one }, Case { in_flight, ..one }, Case { work: Work::Lock, in_flight, ..one }, crowd()]
}

/// Many agents that ask once each: every request and every answer is a datagram of its own.
const fn crowd() -> Case {
    Case { work: Work::GetAttr, agents: CROWD, own_sockets: true, in_flight: CROWD, pace: Pace::Together }
}

/// A server with few sessions and one with many; the requests take turns over all of them.
pub(crate) fn few_and_many(sessions: usize) -> [Case; 2] {
    let few = Case { work: Work::GetAttr, agents: SHARED, own_sockets: false, in_flight: SHARED, pace: Pace::Together };
    [few, Case { agents: sessions.max(SHARED), ..few }]
}

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    /// Length of one round of one side.
    pub(crate) span: Duration,
    /// Rounds of each side.
    pub(crate) rounds: u32,
    /// Where everything runs.
    pub(crate) cores: Cores,
}

/// Two sides under the same load.
#[derive(Debug, Serialize)]
pub(crate) struct Comparison {
    /// The load.
    pub(crate) name: String,
    /// The server as it is, or with few sessions.
    pub(crate) base: Column,
    /// The echo, or the server with many sessions.
    pub(crate) other: Column,
    /// CPU per exchange: other / base.
    pub(crate) ratio: Spread,
}

/// Measures the server beside the echo.
pub(crate) fn server_and_echo(case: &Case, plan: &Plan) -> Result<Comparison, Trouble> {
    let sides = [Side::start(Role::Server, case, plan.cores)?, Side::start(Role::Echo, case, plan.cores)?];
    compare(case.name(), sides, plan)
}

/// Measures the echo beside another echo: the ratio would be 1 on a machine without noise.
pub(crate) fn control(plan: &Plan) -> Result<Comparison, Trouble> {
    let case = crowd();
    let sides = [Side::start(Role::Echo, &case, plan.cores)?, Side::start(Role::Echo, &case, plan.cores)?];
    compare(case.name(), sides, plan)
}

/// Measures the server with few sessions beside the server with many.
pub(crate) fn sessions(cases: &[Case; 2], plan: &Plan) -> Result<Comparison, Trouble> {
    let [few, many] = cases;
    let sides = [Side::start(Role::Server, few, plan.cores)?, Side::start(Role::Server, many, plan.cores)?];
    compare(format!("{}, and the same over {} sessions", few.name(), many.agents), sides, plan)
}

fn compare(name: String, [mut a, mut b]: [Side; 2], plan: &Plan) -> Result<Comparison, Trouble> {
    a.round(plan.span)?;
    b.round(plan.span)?;
    let (mut rounds_a, mut rounds_b) = (Vec::new(), Vec::new());
    for _ in 0..plan.rounds {
        rounds_a.push(a.round(plan.span)?);
        rounds_b.push(b.round(plan.span)?);
    }
    let columns = Column::of(&rounds_a).zip(Column::of(&rounds_b)).zip(ratio(&rounds_b, &rounds_a));
    let ((base, other), ratio) = columns.expect("the command line lets no plan without rounds through");
    Ok(Comparison { name, base, other, ratio })
}

/// A process under test and the load on it.
pub(crate) struct Side {
    // Ended first: what is in flight is nobody's any more.
    traffic: Traffic,
    host: Host,
}

impl Side {
    pub(crate) fn start(role: Role, case: &Case, cores: Cores) -> Result<Self, Trouble> {
        Self::on(Host::start(role, cores)?, role, case, cores)
    }

    /// On a process that runs already.
    pub(crate) fn on(host: Host, role: Role, case: &Case, cores: Cores) -> Result<Self, Trouble> {
        let lines = if case.own_sockets { case.agents } else { 1 };
        let sockets = (0..lines).map(|_| connected(&host)).collect::<Result<Vec<_>, _>>()?;
        let mut agents = match role {
            Role::Server | Role::Durable => open_sessions(case, &sockets)?,
            Role::Echo => invent_sessions(case),
        };
        let steps = (0..case.in_flight).map(|slot| match case.work {
            Work::GetAttr => Ok(Step::GetAttr(ObjectId(ROOT))),
            Work::Lock if role == Role::Echo => Ok(Step::Lock(ObjectId(slot as u64 + 2))),
            Work::SetAttr if role == Role::Echo => Ok(Step::SetAttr(ObjectId(slot as u64 + 2))),
            Work::Lock => opening::create(&sockets[0], &mut agents[0], &format!("bench-{slot}")).map(Step::Lock),
            Work::SetAttr => opening::create(&sockets[0], &mut agents[0], &format!("bench-{slot}")).map(Step::SetAttr),
        });
        let steps = steps.collect::<Result<Vec<_>, _>>()?;
        let traffic = Traffic::new(role, case.pace, sockets, agents, slots(&steps), cores.pinned.is_none())?;
        Ok(Self { traffic, host })
    }

    pub(crate) fn round(&mut self, span: Duration) -> Result<Round, Trouble> {
        let before = self.host.usage()?;
        let traced = self.traffic.run(span)?;
        let usage = self.host.usage()?.since(before);
        Ok(Round { traced, usage })
    }
}

fn connected(host: &Host) -> Result<UdpSocket, Trouble> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Trouble::at("opening a socket of the load generator"))?;
    socket.connect(host.address).map_err(Trouble::at("connecting a socket of the load generator"))?;
    Ok(socket)
}

fn open_sessions(case: &Case, sockets: &[UdpSocket]) -> Result<Vec<Agent>, Trouble> {
    if !case.own_sockets {
        return opening::open(&sockets[0], 0, 0..case.agents);
    }
    let mut agents = Vec::with_capacity(case.agents);
    for (line, socket) in sockets.iter().enumerate() {
        agents.extend(opening::open(socket, line, line..line + 1)?);
    }
    Ok(agents)
}

/// The echo knows no sessions; its load has as many, so that the bytes are the same.
fn invent_sessions(case: &Case) -> Vec<Agent> {
    let line = |number| if case.own_sockets { number } else { 0 };
    (0..case.agents).map(|number| Agent::new(SessionId(number as u64 + 1), line(number), WINDOW)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_has_a_name_of_its_own_and_a_request_for_each_agent() {
        let cases = beside_echo(16);
        let mut names: Vec<_> = cases.iter().map(Case::name).collect();
        names.dedup();
        assert_eq!(names.len(), cases.len());
        assert!(cases.iter().all(|case| case.in_flight >= case.agents));
        assert_eq!(names[3], "lock+release, 1 agent, 16 in flight");
    }

    #[test]
    fn many_sessions_are_never_fewer_than_few() {
        let [few, many] = few_and_many(1);
        assert_eq!((few.agents, many.agents), (SHARED, SHARED));
        assert_eq!(few_and_many(10_000)[1].agents, 10_000);
    }
}
