//! Which core each process runs on.
//!
//! Decides the pinning: with two cores or more the load generator has one for itself and the process under test another, the same
//! for server and echo; with one, nobody is pinned. Place: asked once at the start, carried out by each process for itself.
//! Invariant: server and echo are always placed alike, for only then is their ratio a figure.

use crate::trouble::Trouble;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The cores of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cores {
    /// How many this process may use.
    pub(crate) available: usize,
    /// The generator's and that of the processes under test; `None` if there are not two.
    pub(crate) pinned: Option<(usize, usize)>,
}

impl Cores {
    /// The cores that this process may use.
    pub(crate) fn find() -> Result<Self, Trouble> {
        let allowed = sched_getaffinity(Pid::from_raw(0)).map_err(Trouble::at("asking which cores may be used"))?;
        let cores: Vec<usize> = (0..CpuSet::count()).filter(|core| allowed.is_set(*core).unwrap_or(false)).collect();
        let pinned = match cores[..] {
            [generator, under_test, ..] => Some((generator, under_test)),
            _ => None,
        };
        Ok(Self { available: cores.len(), pinned })
    }

    /// Pins this process, the generator. Processes started earlier keep the cores that they chose.
    pub(crate) fn pin_generator(self) -> Result<(), Trouble> {
        self.pinned.map_or(Ok(()), |(core, _)| pin(core))
    }

    /// Lets this process run on every core again, and what it starts from now on.
    pub(crate) fn unpin_generator(self) -> Result<(), Trouble> {
        let mut set = CpuSet::new();
        // The kernel takes those of them that there are and that this process may use.
        for core in 0..CpuSet::count() {
            set.set(core).map_err(Trouble::at("choosing a core"))?;
        }
        sched_setaffinity(Pid::from_raw(0), &set).map_err(Trouble::at("taking a pinning back"))
    }

    /// The core of the processes under test.
    pub(crate) fn under_test(self) -> Option<usize> {
        self.pinned.map(|(_, core)| core)
    }
}

/// Pins this thread, and those that it starts from now on, to one core.
pub(crate) fn pin(core: usize) -> Result<(), Trouble> {
    let mut set = CpuSet::new();
    set.set(core).map_err(Trouble::at("choosing a core"))?;
    sched_setaffinity(Pid::from_raw(0), &set).map_err(Trouble::at("pinning to a core"))
}
