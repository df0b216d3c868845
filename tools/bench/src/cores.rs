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
    /// Those that this process began with.
    allowed: CpuSet,
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
        Ok(Self { available: cores.len(), pinned, allowed })
    }

    /// Pins this process, the generator. Processes started earlier keep the cores that they chose.
    pub(crate) fn pin_generator(self) -> Result<(), Trouble> {
        self.pinned.map_or(Ok(()), |(core, _)| pin(core))
    }

    /// Lets this process run again on every core that it began with, and what it starts from now on.
    pub(crate) fn unpin_generator(self) -> Result<(), Trouble> {
        sched_setaffinity(Pid::from_raw(0), &self.allowed).map_err(Trouble::at("taking a pinning back"))
    }

    /// The same cores with nobody pinned to one.
    pub(crate) const fn unpinned(self) -> Self {
        Self { pinned: None, ..self }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pinning_taken_back_leaves_the_cores_that_the_process_began_with() {
        // Of this thread alone, which ends with the test.
        std::thread::spawn(|| {
            let me = Pid::from_raw(0);
            let all = sched_getaffinity(me).unwrap();
            let first = (0..CpuSet::count()).find(|core| all.is_set(*core).unwrap()).unwrap();
            pin(first).unwrap();
            let cores = Cores::find().unwrap();
            assert_eq!((cores.available, cores.pinned), (1, None));
            let cores = Cores { pinned: Some((first, first)), ..cores };
            cores.pin_generator().unwrap();
            cores.unpin_generator().unwrap();
            let left = sched_getaffinity(me).unwrap();
            assert_eq!((0..CpuSet::count()).filter(|core| left.is_set(*core).unwrap()).collect::<Vec<_>>(), [first]);
        })
        .join()
        .unwrap();
    }
}
