//! A load, how it is set up, and how it runs on two sides.
//!
//! Decides what a case is and the order of rounds: each side in turn, again and again, after one round of each that does not count.
//! Place: called by the workloads, over `host` and `traffic`. Invariant: both sides of a case are asked the same by the same sockets at
//! the same pace. Leaves to others: which cases there are (`beside_echo`, `loads`), the exchange itself (`traffic`), the arithmetic
//! (`figures`).

use crate::agent::Agent;
use crate::cores::Cores;
use crate::crowd::{Crowd, Draw, GROUP};
use crate::figures::{Column, Round, Spread, p50_ratio, ratio};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::slot::{Step, file_name};
use crate::traffic::{Idle, Manner, Pace, Traffic, slots};
use crate::trouble::Trouble;
use cistern_testkit::session::{SealedBy, WireSession};
use cistern_wire::limits::ROOT;
use cistern_wire::{ObjectId, SessionId};
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{Ipv4Addr, UdpSocket};
use std::time::Duration;

/// Window of the agents that talk to the echo.
const WINDOW: u16 = 64;

/// Receive buffer asked for, as the server's.
const RECEIVE_BUFFER_BYTES: usize = 4 << 20;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// GETATTR of the root directory, without a cache lock.
    GetAttr,
    /// LOOKUP of a file in the root directory, without a cache lock.
    Lookup,
    /// LOCK (try) and RELEASE of a file, each an exchange.
    Lock,
    /// SETATTR of a file.
    SetAttr,
    /// CREATE of a file.
    Create,
    /// WRITE of 128 bytes.
    Write,
    /// READ of a file of these bytes, without a cache lock.
    Read,
}

impl Work {
    /// In words, for tables.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::GetAttr => "getattr",
            Self::Lookup => "lookup",
            Self::Lock => "lock+release",
            Self::SetAttr => "setattr",
            Self::Create => "create",
            Self::Write => "write 128 B",
            Self::Read => "read 128 B",
        }
    }
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
    /// Whether the agents put several requests into a datagram; of the echo they never do.
    pub(crate) packed: bool,
}

impl Case {
    /// One agent with one request in flight.
    pub(crate) const fn one(work: Work) -> Self {
        Self { work, agents: 1, own_sockets: true, in_flight: 1, pace: Pace::Each, packed: false }
    }

    /// In words, for tables.
    pub(crate) fn name(&self) -> String {
        let Self { agents, in_flight, .. } = self;
        let many = if *agents == 1 { "1 agent".to_owned() } else { format!("{agents} agents") };
        let packed = if self.packed { "packed, " } else { "" };
        let at = if self.pace == Pace::Together { "at once" } else { "in flight" };
        format!("{}, {many}, {packed}{in_flight} {at}", self.work.name())
    }
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
#[derive(Clone, Debug)]
pub(crate) struct Comparison {
    /// The load.
    pub(crate) name: String,
    /// The server as it is, or with few sessions.
    pub(crate) base: Column,
    /// The echo, the server with many sessions, or the one that speaks in clear.
    pub(crate) other: Column,
    /// CPU per exchange: other / base.
    pub(crate) ratio: Spread,
    /// CPU per exchange: base / other.
    pub(crate) inverse: Spread,
    /// Median latency: base / other.
    pub(crate) p50: Spread,
}

/// Measures the server beside the echo, and the sealed server beside the one that speaks in clear.
pub(crate) fn server_and_echo(case: &Case, plan: &Plan) -> Result<[Comparison; 2], Trouble> {
    let sealed = Host::start_with(Role::Server, plan.cores, &Setup { sealed: true, ..Setup::default() })?;
    let sealed = Side::on(sealed, Role::Server, case, plan.cores)?;
    let sides = [Side::start(Role::Server, case, plan.cores)?, Side::start(Role::Echo, case, plan.cores)?, sealed];
    let [server, echo, sealed] = rounds_of(sides, plan)?;
    Ok([Comparison::of(case.name(), &server, &echo), Comparison::of(format!("sealed {}", case.name()), &sealed, &server)])
}

/// Measures side A beside side B.
pub(crate) fn compare(name: String, sides: [Side; 2], plan: &Plan) -> Result<Comparison, Trouble> {
    let [a, b] = rounds_of(sides, plan)?;
    Ok(Comparison::of(name, &a, &b))
}

/// All rounds of these sides, which take turns.
fn rounds_of<const N: usize>(mut sides: [Side; N], plan: &Plan) -> Result<[Vec<Round>; N], Trouble> {
    let mut rounds = [const { Vec::new() }; N];
    for number in 0..=plan.rounds {
        for (side, rounds) in sides.iter_mut().zip(&mut rounds) {
            let round = side.round(plan.span)?;
            // The first does not count.
            if number > 0 {
                rounds.push(round);
            }
        }
    }
    Ok(rounds)
}

impl Comparison {
    /// Of the rounds of side A and side B.
    fn of(name: String, a: &[Round], b: &[Round]) -> Self {
        let columns = Column::of(a).zip(Column::of(b));
        let ratios = ratio(b, a).zip(ratio(a, b)).zip(p50_ratio(a, b));
        let ((base, other), ((ratio, inverse), p50)) = columns.zip(ratios).expect("the command line lets no plan without rounds through");
        Self { name, base, other, ratio, inverse, p50 }
    }
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
            Role::Server | Role::Durable => open_sessions(case, &sockets, host.sealed_by().as_ref())?,
            Role::Echo => invent_sessions(case),
        };
        let mut steps = Vec::with_capacity(case.in_flight);
        for place in 0..u32::try_from(case.in_flight).unwrap_or(u32::MAX) {
            let object = match (case.work, role) {
                (Work::GetAttr | Work::Create, _) => ObjectId(ROOT),
                (_, Role::Echo) => ObjectId(u64::from(place) + 2),
                _ => opening::create(&sockets[0], &mut agents[0], &file_name(place))?,
            };
            if case.work == Work::Read && role != Role::Echo {
                opening::fill(&sockets[0], &mut agents[0], object)?;
            }
            steps.push(match case.work {
                Work::GetAttr => Step::GetAttr(object),
                Work::Lookup => Step::Lookup(place, object),
                Work::Lock => Step::Lock(object),
                Work::SetAttr => Step::SetAttr(object),
                Work::Create => Step::Create(place, 0),
                Work::Write => Step::Write(object),
                Work::Read => Step::Read(object),
            });
        }
        let packed = case.packed && role != Role::Echo;
        let manner = Manner { pace: case.pace, packed, idle: Idle::of(cores) };
        let traffic = Traffic::new(role, manner, sockets, agents, slots(&steps))?;
        Ok(Self { traffic, host })
    }

    /// A process and a load that are there already.
    pub(crate) const fn of(traffic: Traffic, host: Host) -> Self {
        Self { traffic, host }
    }

    /// From now on requests are sent so.
    pub(crate) const fn set_pace(&mut self, pace: Pace) {
        self.traffic.set_pace(pace);
    }

    /// From now on the generator spends its idle time so.
    pub(crate) const fn set_idle(&mut self, idle: Idle) {
        self.traffic.set_idle(idle);
    }

    /// From now on it is drawn so who asks what, with so many in flight, several of an agent in a datagram or one.
    pub(crate) fn draw(&mut self, draw: Draw, in_flight: usize, packed: bool) {
        if let Some(mut crowd) = self.traffic.take_crowd() {
            crowd.begin(draw, if packed { GROUP } else { 1 }, in_flight);
            self.traffic.draw_from(crowd, in_flight, packed);
        }
    }

    /// Asks what is left of what is drawn in order, for about so long; gives who is drawn from.
    pub(crate) fn go_on(&mut self, span: Duration) -> Result<Option<&Crowd>, Trouble> {
        self.traffic.run(span)?;
        Ok(self.traffic.crowd())
    }

    pub(crate) fn round(&mut self, span: Duration) -> Result<Round, Trouble> {
        let before = self.host.usage()?;
        let traced = self.traffic.run(span)?;
        let usage = self.host.usage()?.since(before);
        Ok(Round { traced, usage })
    }

    /// The process under test.
    pub(crate) const fn host(&self) -> &Host {
        &self.host
    }

    /// All rounds of one pace, after one that does not count.
    pub(crate) fn rounds(&mut self, plan: &Plan) -> Result<Column, Trouble> {
        self.round(plan.span)?;
        let rounds = (0..plan.rounds).map(|_| self.round(plan.span)).collect::<Result<Vec<_>, _>>()?;
        Ok(Column::of(&rounds).expect("the command line lets no plan without rounds through"))
    }
}

/// A socket of the generator for a process under test.
pub(crate) fn connected(host: &Host) -> Result<UdpSocket, Trouble> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(Trouble::at("opening a socket of the load generator"))?;
    socket.connect(host.address).map_err(Trouble::at("connecting a socket of the load generator"))?;
    // As much as the system gives: answers to all that is asked at once must find room.
    setsockopt(&socket, sockopt::RcvBuf, &RECEIVE_BUFFER_BYTES).map_err(Trouble::at("sizing a receive buffer"))?;
    Ok(socket)
}

fn open_sessions(case: &Case, sockets: &[UdpSocket], sealed: Option<&SealedBy>) -> Result<Vec<Agent>, Trouble> {
    if !case.own_sockets {
        return opening::open(&sockets[0], 0, 0..case.agents, opening::TOGETHER, sealed);
    }
    let mut agents = Vec::with_capacity(case.agents);
    for (line, socket) in sockets.iter().enumerate() {
        agents.extend(opening::open(socket, line, line..line + 1, opening::TOGETHER, sealed)?);
    }
    Ok(agents)
}

/// The echo knows no sessions; its load has as many, so that the bytes are the same.
fn invent_sessions(case: &Case) -> Vec<Agent> {
    let line = |number| if case.own_sockets { number } else { 0 };
    (0..case.agents).map(|number| Agent::new(WireSession::plain(SessionId(number as u64 + 1), WINDOW), line(number))).collect()
}
