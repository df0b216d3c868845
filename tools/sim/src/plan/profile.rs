//! Profiles: what a campaign looks for, so which faults its plans have.
//!
//! Decides the names. Leaves to others: what each profile means for a plan (`draw`, `swarm`).

use serde::{Deserialize, Serialize};
use std::fmt;

/// What the runs of a campaign have in common.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Each run draws which kinds of faults it has, and how many.
    #[default]
    Swarm,
    /// No faults at all: nothing may go wrong, and no lease may be lost.
    Calm,
    /// Partitions of every form: one-way, full, flapping.
    Partition,
    /// Clocks as far apart as δ allows, slewed now and then.
    Clocks,
    /// Agents crash and start again.
    Crash,
    /// The server crashes and starts again, also inside grace and twice within τ.
    Restart,
    /// A slow disk, a stalled one, a failing one, an older copy.
    Disk,
    /// Losses of single kinds of messages.
    Kinds,
    /// Machines stand still, also for longer than T; some sleep.
    Pauses,
    /// Clocks beyond δ: only tokens protect.
    Fence,
    /// Tiny bounds of every table.
    Tiny,
    /// A network that loses 10 to 50 % all the time, one way or both, is slow, or flaps.
    Lossy,
    /// Somebody sends what no agent sends.
    Attack,
}

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 13] = [
        Self::Swarm,
        Self::Calm,
        Self::Partition,
        Self::Clocks,
        Self::Crash,
        Self::Restart,
        Self::Disk,
        Self::Kinds,
        Self::Pauses,
        Self::Fence,
        Self::Tiny,
        Self::Lossy,
        Self::Attack,
    ];

    /// What it is for, in a line.
    #[must_use]
    pub const fn about(self) -> &'static str {
        match self {
            Self::Swarm => "a random subset of all faults in each run",
            Self::Calm => "no faults",
            Self::Partition => "partitions: one-way, full, flapping",
            Self::Clocks => "clocks as far apart as allowed, slewed",
            Self::Crash => "agents crash and start again",
            Self::Restart => "the server crashes and starts again",
            Self::Disk => "slow, stalled, failing and restored disks",
            Self::Kinds => "losses of single kinds of messages",
            Self::Pauses => "machines stand still or sleep",
            Self::Fence => "clocks beyond what is allowed: only tokens protect",
            Self::Tiny => "tiny bounds of every table",
            Self::Lossy => "heavy loss all the time, slow and flapping networks",
            Self::Attack => "strangers, witnesses and insiders who keep to no rule",
        }
    }

    /// Its name, as on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Swarm => "swarm",
            Self::Calm => "calm",
            Self::Partition => "partition",
            Self::Clocks => "clocks",
            Self::Crash => "crash",
            Self::Restart => "restart",
            Self::Disk => "disk",
            Self::Kinds => "kinds",
            Self::Pauses => "pauses",
            Self::Fence => "fence",
            Self::Tiny => "tiny",
            Self::Lossy => "lossy",
            Self::Attack => "attack",
        }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
