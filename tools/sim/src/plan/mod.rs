//! The plan of a run: everything that one seed chooses, as data that can be written down, cut short and run again.
//!
//! Decides what a run is made of: settings of the cores, clocks, network, disk, users, and a list of faults with their times.
//! Invariant: a plan and the code give the run to the last byte (I18); each fault can be left out without changing what the others
//! draw. Place: before the run (`world`), and between runs (`shrink`).
//! Leaves to others: drawing (`swarm`), what a fault is (`fault`), settings (`settings`), what users do (`users`).

mod draw;
pub mod fault;
mod profile;
mod settings;
mod swarm;

pub use fault::{Fault, Link, What};
pub use profile::Profile;
pub(crate) use settings::nanos;
pub use settings::{AgentSettings, Idle, SealedSettings, ServerSettings};

use crate::clock::Rates;
use crate::sealing::Sealing;
use crate::users::Workload;
use serde::{Deserialize, Serialize};

/// One microsecond, in nanoseconds.
pub const US: u64 = 1_000;
/// One millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;
/// One second, in nanoseconds.
pub const SEC: u64 = 1_000_000_000;

/// A machine's clocks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockPlan {
    /// What CLOCK_MONOTONIC_RAW reads when the run begins, in nanoseconds.
    pub raw_ns: u64,
    /// What CLOCK_BOOTTIME reads when the run begins.
    pub boot_ns: u64,
    /// How fast they run while no fault says otherwise.
    pub rates: Rates,
}

/// What the network does to every datagram, apart from faults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetPlan {
    /// Shortest time on the way, in nanoseconds.
    pub delay_ns: u64,
    /// Most that it takes longer.
    pub jitter_ns: u64,
    /// Datagrams lost, in parts per million.
    pub loss_ppm: u64,
    /// Datagrams that arrive twice, in parts per million.
    pub duplicate_ppm: u64,
    /// Most datagrams that wait in a machine's socket; what comes beyond is lost.
    pub socket_max: usize,
    /// Most datagrams that a machine takes from its socket in one turn.
    pub batch: usize,
    /// Turns in which a machine is held up between receiving and sending, in parts per million.
    pub stall_ppm: u64,
    /// For how long at most, in nanoseconds.
    pub stall_ns: u64,
    /// Most time that passes before a machine notices a datagram or a timer, in nanoseconds.
    pub latency_ns: u64,
}

/// How long the server's disk takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskPlan {
    /// Most time that a batch takes to be durable, in nanoseconds.
    pub sync_ns: u64,
    /// Most time that a question takes.
    pub load_ns: u64,
    /// In a crash, how likely each batch on its way has reached the disk, in parts per million.
    pub reached_ppm: u64,
}

/// Everything that a seed chooses.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The seed; randomness inside the run comes from it.
    pub seed: u64,
    /// What the seed was drawn for.
    pub profile: Profile,
    /// Number of agents.
    pub agents: usize,
    /// Settings of the server.
    pub server: ServerSettings,
    /// Settings of each agent.
    pub agent: Vec<AgentSettings>,
    /// What users do.
    pub workload: Workload,
    /// The clocks: the server's, then each agent's.
    pub clocks: Vec<ClockPlan>,
    /// The network.
    pub net: NetPlan,
    /// The disk.
    pub disk: DiskPlan,
    /// After its process died the server is not started again before so much true time has passed.
    pub restart_wait_ns: u64,
    /// When all faults end and the liveness phase begins, in nanoseconds of true time.
    pub heal_ns: u64,
    /// Whether the run breaks an assumption of the lease, so that only tokens protect.
    pub fence_only: bool,
    /// What bounds the use of keys, if datagrams are sealed.
    #[serde(default)]
    pub sealed: Option<SealedSettings>,
    /// The faults, in order of their beginnings.
    pub faults: Vec<Fault>,
}

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(profile: Profile, seed: u64) -> Self {
        draw::plan(profile, seed)
    }

    /// Keeps only these faults, by number.
    #[must_use]
    pub fn keeping(mut self, faults: &[u32]) -> Self {
        self.faults.retain(|fault| faults.contains(&fault.id));
        self
    }

    /// Ends the faults, and begins the liveness phase, at `heal_ns` at the latest.
    #[must_use]
    pub fn until(mut self, heal_ns: u64) -> Self {
        self.heal_ns = self.heal_ns.min(heal_ns);
        self.faults.retain(|fault| fault.at < heal_ns);
        for fault in &mut self.faults {
            fault.until = fault.until.min(heal_ns);
        }
        self
    }

    /// Leaves out all agents from number `agents` on.
    #[must_use]
    pub fn with_agents(mut self, agents: usize) -> Self {
        self.agents = self.agents.min(agents);
        self.agent.truncate(self.agents);
        self.clocks.truncate(self.agents + 1);
        let left = self.agents;
        self.faults.retain(|fault| fault.agent().is_none_or(|agent| agent < left));
        self
    }
}

impl Plan {
    /// Whether a run may have so many forgeries that keys are worn out, which ends sessions in good standing.
    pub(crate) fn wears_keys_out(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| sealed.failed < SealedSettings::default().failed)
    }

    /// The sealed mode of its run, if that is sealed.
    pub(crate) fn sealing(&self) -> Option<Sealing> {
        self.sealed.as_ref().map(|settings| Sealing::new(self.seed, settings.limits()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_comes_back_from_its_text() {
        for profile in Profile::ALL {
            for seed in 0..20 {
                let plan = Plan::draw(profile, seed);
                let text = serde_json::to_string(&plan).unwrap();
                assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan, "{profile} {seed}");
            }
        }
    }

    #[test]
    fn settings_of_every_plan_are_legal() {
        for profile in Profile::ALL {
            for seed in 0..300 {
                let plan = Plan::draw(profile, seed);
                assert_eq!(plan.server.config().check(), Ok(()), "{profile} {seed}");
                for agent in &plan.agent {
                    assert_eq!(agent.config().check(), Ok(()), "{profile} {seed}");
                }
                assert!((plan.agent.len(), plan.clocks.len()) == (plan.agents, plan.agents + 1));
            }
        }
    }

    #[test]
    fn clocks_of_every_plan_but_fence_keep_delta() {
        for seed in 0..300 {
            let plan = Plan::draw(Profile::Clocks, seed);
            let all = plan.clocks.iter().map(|clock| clock.rates.raw_ppb);
            let (slow, fast) = (all.clone().min().unwrap(), all.max().unwrap());
            let delta = u64::from(plan.server.delta_ppm);
            assert!(fast * 1_000_000 <= slow * (1_000_000 + delta), "seed {seed}");
        }
    }

    #[test]
    fn leaving_faults_out_changes_nothing_else() {
        let plan = Plan::draw(Profile::Swarm, 4);
        let ids: Vec<u32> = plan.faults.iter().map(|fault| fault.id).collect();
        assert_eq!(plan.clone().keeping(&ids), plan);
        let none = plan.clone().keeping(&[]);
        assert!(none.faults.is_empty() && none.workload == plan.workload && none.heal_ns == plan.heal_ns);
    }
}
