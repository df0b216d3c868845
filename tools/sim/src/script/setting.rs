//! What a script is set in: settings of the cores, clocks, disk, and what the namespace holds before it begins.
//!
//! Decides the defaults: those of the products, with agents that renew eagerly, a network that takes 1 ms, clocks that are all true,
//! and a disk on which nothing that was not reported durable survives a crash. Place: before the script.
//! Invariant: the judges of a script are those of a calm plan with these settings.
//! Leaves to others: the script itself (`mod`), turning (`course`).

use crate::clock::{NodeClock, Rates};
use crate::host::{ADDRESS, AgentHost, ServerHost};
use crate::observe::Node;
use crate::plan::{AgentSettings, ClockPlan, DiskPlan, Idle, MS, NetPlan, Plan, Profile, SealedSettings, ServerSettings, US};
use crate::rng::SimRng;
use crate::script::course::Course;
use crate::script::{Agent, Script};
use crate::world::Stage;
use cistern_agent::api::{Command, Ownership};
use cistern_link::Instant;

/// What the hidden agent is called that makes the files before the script begins.
const SETUP: &str = "setup";

/// What a script is set in.
#[derive(Clone, Debug)]
pub struct Setting {
    plan: Plan,
    files: Vec<&'static str>,
    rates: Vec<(&'static str, Rates)>,
    copies: Vec<(&'static str, &'static str)>,
    leases: Vec<(&'static str, u64)>,
}

impl Default for Setting {
    fn default() -> Self {
        let mut plan = Plan::draw(Profile::Calm, 1).keeping(&[]);
        plan.sealed = std::env::var_os("CISTERN_SEALED").map(|_| SealedSettings::default());
        plan.server = server();
        plan.agent = vec![agent(); plan.agents];
        // A chance of loss tells judges that a script may take away any datagram; the wires of a script draw nothing.
        let still =
            NetPlan { delay_ns: MS, jitter_ns: 0, loss_ppm: 1, duplicate_ppm: 0, socket_max: 4_096, latency_ns: 10 * US, ..plan.net };
        plan.net = still;
        plan.disk = DiskPlan { sync_ns: MS, load_ns: MS, reached_ppm: 0 };
        Self { plan, files: Vec::new(), rates: Vec::new(), copies: Vec::new(), leases: Vec::new() }
    }
}

/// The server's defaults, on a store that is told to be a new cluster.
fn server() -> ServerSettings {
    let default = cistern_server::Config::default();
    let us = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    ServerSettings {
        lease_us: us(default.lease),
        lease_min_us: us(default.lease),
        lease_max_us: us(default.lease),
        delta_ppm: default.delta_ppm,
        epsilon_us: us(default.epsilon),
        delivery_timeout_us: us(default.delivery_timeout),
        probe_period_us: us(default.probe_period),
        compliance_time_us: us(default.compliance_time),
        surrender: default.surrender,
        rescue: default.rescue,
        last_heard: default.last_heard,
        new_cluster: true,
        window: default.window,
        max_datagram: default.max_datagram,
        sessions_max: default.sessions_max,
        opening_max: default.opening_max,
        tombstones_max: default.tombstones_max,
        notices_in_flight: default.notices_in_flight,
        freed_per_turn: default.freed_per_turn,
        hint_interval_us: us(default.hint_interval),
        locks_max: default.locks.locks_max,
        locks_per_session: default.locks.locks_per_session,
        waiters_per_object: default.locks.waiters_per_object,
        waiters_per_session: default.locks.waiters_per_session,
        mutations_per_object: default.locks.mutations_per_object,
        demands_outstanding: default.locks.demands_outstanding,
        token_run: default.locks.run,
        objects_max: default.namespace.objects_max,
        work_slice_us: us(default.work.slice),
        queued_bytes: default.work.queued_bytes,
    }
}

/// The agent's defaults, but for renewing as long as it holds anything.
fn agent() -> AgentSettings {
    let default = cistern_agent::config::Config::default();
    let us = |span: std::time::Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
    AgentSettings {
        lease_us: 0,
        idle: Idle::Eager,
        idle_after_us: us(default.idle_after),
        opportunistic: default.opportunistic,
        window: default.window,
        max_datagram: default.max_datagram,
        give_up_after_us: us(default.give_up_after),
        close_within_us: us(default.close_within),
        surrender: default.surrender,
        commands_max: default.commands_max,
        cache_objects: default.cache.objects,
        cache_bytes: default.cache.bytes,
        advisory_max: default.advisory_max,
        sent_max: default.sent_max,
        valid_ppm: default.phases.valid_ppm,
    }
}

impl Setting {
    /// Files that are there when the script begins; the directories above them are made, too.
    #[must_use]
    pub fn files<const N: usize>(mut self, files: [&'static str; N]) -> Self {
        self.files.extend(files);
        self
    }

    /// Changes settings of the server.
    #[must_use]
    pub fn server(mut self, change: impl FnOnce(&mut ServerSettings)) -> Self {
        change(&mut self.plan.server);
        self
    }

    /// Changes settings of all agents.
    #[must_use]
    pub fn agent(mut self, change: impl Fn(&mut AgentSettings)) -> Self {
        self.plan.agent.iter_mut().for_each(change);
        self
    }

    /// The lease period that an agent asks for, in milliseconds; the server then gives any from 500 ms to 1 min, as its defaults do.
    #[must_use]
    pub fn asks_for_lease(mut self, name: &'static str, ms: u64) -> Self {
        (self.plan.server.lease_min_us, self.plan.server.lease_max_us) = (500_000, 60_000_000);
        self.leases.push((name, ms * 1_000));
        self
    }

    /// How fast the clocks of a machine run ("server", or an agent's name).
    #[must_use]
    pub fn clocks(mut self, name: &'static str, rates: Rates) -> Self {
        self.rates.push((name, rates));
        self
    }

    /// The agent `copy` runs on a copy of the state directory of `of`, made when the script starts it (it starts no copies itself).
    #[must_use]
    pub fn copy_of(mut self, copy: &'static str, of: &'static str) -> Self {
        self.copies.push((copy, of));
        self
    }

    /// In a crash what was on its way to the disk has reached it, although nobody was told.
    #[must_use]
    pub const fn crashes_keep_writes(mut self) -> Self {
        self.plan.disk.reached_ppm = 1_000_000;
        self
    }

    /// Nothing but the server ever stands still: judges then allow no session to fail (I16).
    #[must_use]
    pub fn only_the_server_stalls(mut self) -> Self {
        self.plan.net.loss_ppm = 0;
        self
    }

    /// Nothing is sealed, whatever else is tried: the script is about what plain mode lets others do.
    #[must_use]
    pub fn in_clear(mut self) -> Self {
        self.plan.sealed = None;
        self
    }

    /// Everything is sealed.
    #[must_use]
    pub fn sealed(self) -> Self {
        self.sealed_by(SealedSettings::default())
    }

    /// Everything is sealed, by keys that are used so much.
    #[must_use]
    pub fn sealed_by(mut self, settings: SealedSettings) -> Self {
        self.plan.sealed = Some(settings);
        self
    }

    /// Machines only: the script starts the server, nothing was made on its empty disk.
    ///
    /// # Panics
    /// If a name is used that no machine has, or settings are refused.
    #[must_use]
    pub fn machines<const N: usize>(mut self, names: [&'static str; N]) -> (Script, [Agent; N]) {
        crate::bugs::choose_named();
        let all: Vec<&'static str> = names.into_iter().chain([SETUP]).collect();
        let place = |name: &str| all.iter().position(|of| *of == name).unwrap_or_else(|| panic!("no agent is called {name}"));
        self.plan.agents = all.len();
        let settings = self.plan.agent.first().cloned().unwrap_or_else(agent);
        self.plan.agent = vec![settings; all.len()];
        self.plan.clocks = vec![ClockPlan { raw_ns: 1_000 * MS, boot_ns: 5_000 * MS, rates: Rates::TRUE }; all.len() + 1];
        for (name, rates) in &self.rates {
            let machine = if *name == "server" { 0 } else { place(name) + 1 };
            self.plan.clocks[machine].rates = *rates;
        }
        for (name, lease_us) in &self.leases {
            self.plan.agent[place(name)].lease_us = *lease_us;
        }
        let copies: Vec<(usize, usize)> = self.copies.iter().map(|(copy, of)| (place(copy), place(of))).collect();
        let mut stage = stage(&self.plan);
        for (copy, of) in &copies {
            stage.agents[*copy].number = *of;
        }
        let course = Course::new(self.plan, stage, all.iter().map(|name| (*name).to_owned()).collect());
        let script = Script::new(course, copies);
        let agents = std::array::from_fn(|number| script.agent(number));
        (script, agents)
    }

    /// The script begins: the server serves, the files are there, the agents run and have done nothing.
    #[must_use]
    pub fn agents<const N: usize>(mut self, names: [&'static str; N]) -> (Script, [Agent; N]) {
        let files = std::mem::take(&mut self.files);
        let copies: Vec<&'static str> = self.copies.iter().map(|(copy, _)| *copy).collect();
        let (script, agents) = self.machines(names);
        script.server.start();
        script.pass(10);
        let setup = script.agent(N);
        setup.start();
        for command in making(&files) {
            setup.does(command).done();
        }
        setup.close();
        setup.crash();
        agents.iter().zip(names).filter(|(_, name)| !copies.contains(name)).for_each(|(agent, _)| agent.start());
        script.says("the script begins");
        (script, agents)
    }
}

/// The commands that make files and the directories above them.
fn making(files: &[&'static str]) -> Vec<Command> {
    let mut made = std::collections::BTreeSet::new();
    let mut commands = Vec::new();
    let owner = Ownership { mode: 0o755, uid: 0, gid: 0 };
    for file in files {
        for (at, _) in file.match_indices('/').filter(|(at, _)| *at > 0) {
            if made.insert(&file[..at]) {
                commands.push(Command::Mkdir { path: bytes::Bytes::from_static(&file.as_bytes()[..at]), owner });
            }
        }
        commands.push(Command::Create { path: bytes::Bytes::from_static(file.as_bytes()), exclusive: true, ephemeral: false, owner });
    }
    commands
}

fn stage(plan: &Plan) -> Stage {
    let rng = SimRng::new(plan.seed).fork("script");
    let clock = |node: Node| {
        let of = match node {
            Node::Server => &plan.clocks[0],
            Node::Agent(agent) => &plan.clocks[agent + 1],
        };
        NodeClock::new(Instant::new(of.raw_ns, of.boot_ns), of.rates)
    };
    let inbox = plan.net.socket_max;
    let sealing = plan.sealing();
    let agents = (0..plan.agents).map(|agent| {
        let seeds = rng.fork(&format!("agent {agent} seeds"));
        AgentHost::new(agent, plan.agent[agent].config(), clock(Node::Agent(agent)), ADDRESS, inbox, seeds, sealing.clone())
    });
    let agents = agents.collect();
    let server = ServerHost::new(
        plan.server.config(),
        clock(Node::Server),
        plan.disk.clone(),
        inbox,
        &rng,
        sealing.clone().map(|sealing| (sealing, plan.agents)),
    );
    Stage { now: 0, agents, server, healed_at: None, fence_only: plan.fence_only, sealing }
}
