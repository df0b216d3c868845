//! How often a lease has to be renewed on purpose, beside the law that says how often it should be.
//!
//! Decides the load: an agent that holds a lock and asks at random moments, ρ times a second on average (Poisson), so that the share of
//! requests is given by fτρ alone, f being the fraction of τ at which renewing begins. The real agent and the real server exchange real
//! datagrams, but in one process and in simulated time, so that hours of it take a second; the network takes no time.
//! Place: a workload of its own, over the two cores. Invariant: what is counted are KEEPALIVE messages in datagrams that the agent sent.
//! Source of the law: Burns, Rees, Long, "An Analytical Study of Opportunistic Lease Renewal": the sum over k of e^(-k fτρ).
//! Leaves to others: the same on a network with delay and loss (`cistern-lab measure`).

use crate::cases::Plan;
use crate::figures::{count, per};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_agent::api::{Command, Event, OpError, Output, Ownership, Submitted, Target, Wait};
use cistern_agent::config::{Config as AgentConfig, IdlePolicy, Phases};
use cistern_agent::{Agent, Identity};
use cistern_link::{Instant, Machine, Path, Rng};
use cistern_server::{Config as ServerConfig, Server};
use cistern_store::MemoryStore;
use cistern_wire::{AgentId, Datagram, Message, Mode, StoreId};
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant as Wall};

/// Values of fτρ; the last is the one of the aim's example, with so few renewals (one in 22,000
/// requests) that only a long run has as many as an aim is judged by.
const LOADS: [f64; 6] = [0.5, 1.0, 2.0, 3.0, 5.0, 10.0];
/// Renewals that are enough: their number is then known to about 2 %.
const ENOUGH: u64 = 4_000;
/// Requests between two looks at the time.
const TOGETHER: u32 = 64;

/// Measures every load, each for at most so long as all rounds of a side.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("renewals", "explicit renewals per request beside 1/(e^fτρ - 1): real datagrams in simulated time");
    for load in LOADS {
        progress.say(&format!("renewals at fτρ = {load}"));
        let mut world = World::new(load)?;
        let begin = Wall::now();
        while world.keep_alives < ENOUGH && begin.elapsed() < plan.span * plan.rounds {
            for _ in 0..TOGETHER {
                world.request()?;
            }
        }
        let (measured, law) = (per(world.keep_alives, world.requests), 1.0 / (load.exp() - 1.0));
        section.rows.push(
            Row::new(format!("fτρ = {load}"))
                .with("measured", "renewals/request", measured)
                .with("law", "law", law)
                .with("over_law", "measured/law", measured / law)
                .with("renewals", "renewals", world.keep_alives)
                .with("requests", "requests", world.requests)
                .with("simulated_s", "simulated s", count(world.now_ns) / 1e9),
        );
    }
    Ok(section)
}

/// An agent and a server, and the time in which they live.
struct World {
    agent: Agent,
    server: Server,
    store: MemoryStore,
    rng: Rng,
    /// Mean time between two requests.
    gap: Duration,
    now_ns: u64,
    out: Vec<u8>,
    keep_alives: u64,
    requests: u64,
}

const AGENT: Path = Path::to(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 2));
const SERVER: Path = Path::to(SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 1));

impl World {
    /// Both with a session between them, and a lock that the agent holds.
    fn new(load: f64) -> Result<Self, Trouble> {
        let config = ServerConfig { volatile: true, new_cluster: true, ..ServerConfig::default() };
        let renewing_from = config.lease.mul_f64(f64::from(Phases::default().valid_ppm) / 1e6);
        let now = Instant::new(1, 1);
        let server = Server::new(now, 1, StoreId([0xBE; 16]), config, [7; 32]).map_err(Trouble::starting("making the server"))?;
        let identity = Identity { agent: AgentId([9; 16]), incarnation: 1, boot: [0; 16], label: b"bench".to_vec() };
        let config = AgentConfig { idle: IdlePolicy::Eager, ..AgentConfig::default() };
        let agent = Agent::new(config, identity, [8; 32], vec![SERVER.remote]).map_err(Trouble::starting("making the agent"))?;
        let gap = renewing_from.div_f64(load);
        let (store, rng) = (MemoryStore::new(), Rng::from_seed([6; 32]));
        let mut world = Self { agent, server, store, rng, gap, now_ns: 1, out: Vec::new(), keep_alives: 0, requests: 0 };
        let owner = Ownership { mode: 0o600, uid: 0, gid: 0 };
        world.run(Command::Create { path: "/lock".into(), exclusive: true, ephemeral: false, owner })?;
        world.run(Command::Lock { target: Target::Path("/lock".into()), mode: Mode::Exclusive, wait: Wait::Try })?;
        (world.keep_alives, world.requests) = (0, 0);
        Ok(world)
    }

    /// The next request, after a time that is exponentially distributed.
    fn request(&mut self) -> Result<(), Trouble> {
        // From 2^-53 to 1.
        let uniform = (count(self.rng.below(1 << 53)) + 1.0) / count(1 << 53);
        self.pass(self.gap.mul_f64(-uniform.ln()));
        self.run(Command::Ping).map(|_| self.requests += 1)
    }

    fn run(&mut self, command: Command) -> Result<Output, Trouble> {
        let wrong = |got: OpError| Trouble::Answer { while_doing: "renewing a lease", expected: "success", got: format!("{got:?}") };
        let op = match self.agent.submit(self.now(), command) {
            Submitted::Now(ended) => return ended.map_err(wrong),
            Submitted::Later(op) => op,
        };
        // Whatever waits for a timer has it within a second.
        for _ in 0..100 {
            self.settle();
            while let Some(event) = self.agent.poll_event() {
                match event {
                    Event::Done { op: ended, result } if ended == op => return result.map_err(wrong),
                    _ => {}
                }
            }
            self.pass(Duration::from_millis(10));
        }
        Err(Trouble::Silence { while_doing: "renewing a lease", seconds: 1 })
    }

    const fn now(&self) -> Instant {
        Instant::new(self.now_ns, self.now_ns)
    }

    /// Lets time pass, and both do what falls due.
    fn pass(&mut self, span: Duration) {
        let end = self.now_ns + ns(span);
        loop {
            let waits = [self.agent.wake_after(self.now()), self.server.wake_after(self.now())];
            let next = waits.into_iter().flatten().min().map_or(end, |wait| self.now_ns + ns(wait).max(1));
            self.now_ns = next.min(end);
            self.settle();
            if self.now_ns == end {
                return;
            }
        }
    }

    /// Exchanges datagrams until nobody has any.
    fn settle(&mut self) {
        let now = self.now();
        loop {
            let mut moved = false;
            self.agent.handle_drained(now);
            while self.agent.poll_transmit(now, &mut self.out).is_some() {
                self.tally();
                self.server.handle_datagram(now, AGENT, &self.out);
                moved = true;
            }
            self.server.handle_drained(now);
            self.server.work(now);
            while let Some(work) = self.server.poll_effect() {
                for event in self.store.take(work) {
                    self.server.store_event(now, event);
                }
            }
            while self.server.poll_transmit(now, &mut self.out).is_some() {
                self.agent.handle_datagram(now, SERVER, &self.out);
                moved = true;
            }
            if !moved {
                return;
            }
        }
    }

    /// Counts what the agent has just sent.
    fn tally(&mut self) {
        if let Ok(datagram) = Datagram::at_server(&self.out) {
            self.keep_alives += datagram.messages().filter(|message| matches!(message, Message::KeepAlive(_))).count() as u64;
        }
    }
}

fn ns(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_that_asks_often_never_renews_on_purpose_and_a_silent_one_does() {
        let mut busy = World::new(1_000.0).unwrap();
        (0..500).for_each(|_| busy.request().unwrap());
        assert_eq!((busy.keep_alives, busy.requests), (0, 500));
        let mut silent = World::new(1_000.0).unwrap();
        silent.pass(Duration::from_secs(60));
        // Each renewal is good for at most the 1.2 s after which the next is due.
        assert!((50..=60).contains(&silent.keep_alives), "{}", silent.keep_alives);
    }
}
