//! What users do in a run, as numbers: how many there are, how often they act, and how likely each kind of act is.
//!
//! Decides the shape of a workload; every number is drawn per run, so that some runs are busy, some nearly idle, some all about
//! locks and some all about names. Invariant: chances of acts are relative weights, so any draw is a legal workload.
//! Leaves to others: the acts themselves (`user`), who calls when (`world`).

use crate::plan::Profile;
use crate::rng::SimRng;
use serde::{Deserialize, Serialize};

const MS: u64 = 1_000_000;

/// Relative weights of what an idle user does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is the act of the same name in `user`")]
pub struct Weights {
    pub lock: u64,
    pub read: u64,
    pub write: u64,
    pub set_attr: u64,
    pub list: u64,
    pub names: u64,
    pub flag: u64,
    pub misc: u64,
    #[serde(default)]
    pub whole: u64,
    #[serde(default)]
    pub presence: u64,
    #[serde(default)]
    pub leases: u64,
}

impl Weights {
    /// Their sum.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let own = self.lock + self.read + self.write + self.set_attr + self.list + self.names + self.flag + self.misc;
        own + self.whole + self.presence + self.leases
    }
}

/// What users do in a run. Spans are in nanoseconds of true time, chances in parts per million.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Workload {
    /// Users at each agent, at least 1.
    pub users: usize,
    /// Files that everybody reads, writes and locks, at least 1.
    pub hot: usize,
    /// Shortest and longest pause of a user between two commands.
    pub think_ns: (u64, u64),
    /// Longest time for which a lock is held on purpose.
    pub hold_ns: u64,
    /// Longest wait of a lock request that waits for a limited time.
    pub patience_ns: u64,
    /// What idle users do.
    pub weights: Weights,
    /// Locks that are shared.
    pub shared_ppm: u64,
    /// Lock requests that only try.
    pub try_ppm: u64,
    /// Lock requests that wait as long as it takes.
    pub forever_ppm: u64,
    /// Holders of a shared lock that ask for the exclusive one.
    pub upgrade_ppm: u64,
    /// Writes under an exclusive lock that carry its guard; the others trust the lock alone.
    pub guard_ppm: u64,
    /// Users who confirm the loss of a lock only after a while, and use it until then if its instant allows.
    pub stubborn_ppm: u64,
    /// Writes too large for one datagram.
    pub large_ppm: u64,
    /// Longest idle phase of a whole agent, now and then; 0: none. Leases lapse in it.
    pub idle_ns: u64,
}

impl Workload {
    /// The workload of a run.
    #[must_use]
    pub fn draw(rng: &mut SimRng, profile: Profile) -> Self {
        let busy = rng.spread(2, 300) * MS;
        let mut weights = Weights {
            lock: rng.between(10, 60),
            read: rng.between(5, 60),
            write: rng.between(2, 40),
            set_attr: rng.between(0, 8),
            list: rng.between(0, 12),
            names: rng.between(0, 30),
            flag: rng.between(0, 20),
            misc: rng.between(1, 5),
            whole: rng.between(0, 16),
            presence: 0,
            leases: 0,
        };
        match profile {
            Profile::Clocks | Profile::Fence => weights.lock += 60,
            Profile::Restart | Profile::Disk => weights.names += 20,
            _ => {}
        }
        let idle_ns = if rng.chance(400_000) { rng.spread(200, 6_000) * MS } else { 0 };
        let mut drawn = Self {
            users: usize::try_from(rng.between(1, 3)).unwrap_or(1),
            hot: usize::try_from(rng.between(1, 3)).unwrap_or(1),
            think_ns: (busy / 8, busy),
            hold_ns: rng.spread(2, 1_500) * MS,
            patience_ns: rng.spread(20, 4_000) * MS,
            weights,
            shared_ppm: *rng.pick(&[0, 200_000, 500_000, 800_000]),
            try_ppm: rng.between(0, 400_000),
            forever_ppm: rng.between(100_000, 600_000),
            upgrade_ppm: rng.between(0, 200_000),
            guard_ppm: rng.between(200_000, 1_000_000),
            stubborn_ppm: rng.between(0, 600_000),
            large_ppm: if rng.chance(300_000) { 100_000 } else { 0 },
            idle_ns,
        };
        // Drawn last, so that what was drawn before is what it always was.
        drawn.weights.presence = rng.between(0, 16);
        drawn.weights.leases = rng.between(0, 12);
        drawn
    }
}
