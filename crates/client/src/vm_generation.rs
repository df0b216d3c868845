//! Whether this machine was resumed from a snapshot: a number that the hypervisor raises, where there is one.
//!
//! Decides that what was sealed before such a moment is not to be followed by more under the same keys and numbers, for another copy of this
//! machine may go on with them. Looked at before each batch is sealed: whatever is told later comes too late. Where the system has no
//! `/dev/vmclock0`, or no such number in it, nothing is noticed (`docs/sealed.md`).

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

/// Where Linux shows what the hypervisor tells of its clock and of the machine's generation.
const DEVICE: &str = "/dev/vmclock0";
/// Its first bytes, and where the flags and the generation are.
const MAGIC: [u8; 4] = *b"VCLK";
const FLAGS_AT: usize = 24;
const GENERATION_AT: usize = 104;
const LEN: usize = GENERATION_AT + 8;
/// The generation is there.
const HAS_GENERATION: u64 = 1 << 8;

/// The generation of this machine, as it was last seen.
#[derive(Debug, Default)]
pub(crate) struct VmGeneration(Option<(File, u64)>);

impl VmGeneration {
    /// Of this machine.
    pub(crate) fn here() -> Self {
        Self::of(Path::new(DEVICE))
    }

    /// As a device tells it.
    pub(crate) fn of(device: &Path) -> Self {
        Self(File::open(device).ok().and_then(|file| read(&file).map(|seen| (file, seen))))
    }

    /// Whether it has changed since it was looked at last.
    pub(crate) fn has_changed(&mut self) -> bool {
        let Some((file, seen)) = &mut self.0 else { return false };
        let now = read(file);
        now.is_some_and(|now| core::mem::replace(seen, now) != now)
    }
}

fn read(file: &File) -> Option<u64> {
    let mut bytes = [0; LEN];
    file.read_exact_at(&mut bytes, 0).ok()?;
    let number = |at: usize| bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map(u64::from_le_bytes);
    let is_there = bytes.starts_with(&MAGIC) && number(FLAGS_AT)? & HAS_GENERATION != 0;
    number(GENERATION_AT).filter(|_| is_there)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a device shows.
    fn shown(flags: u64, generation: u64) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[FLAGS_AT..FLAGS_AT + 8].copy_from_slice(&flags.to_le_bytes());
        bytes[GENERATION_AT..].copy_from_slice(&generation.to_le_bytes());
        bytes
    }

    #[test]
    fn a_generation_that_is_another_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("vmclock0");
        std::fs::write(&device, shown(HAS_GENERATION, 7)).unwrap();
        let mut generation = VmGeneration::of(&device);
        assert!(!generation.has_changed());
        std::fs::write(&device, shown(HAS_GENERATION, 8)).unwrap();
        assert!(generation.has_changed() && !generation.has_changed());
    }

    #[test]
    fn a_machine_that_tells_none_is_never_another() {
        let dir = tempfile::tempdir().unwrap();
        let device = dir.path().join("vmclock0");
        assert!(!VmGeneration::of(&device).has_changed(), "no device");
        for broken in [&shown(0, 7)[..], b"VCLK", &[0; LEN]] {
            std::fs::write(&device, broken).unwrap();
            let mut generation = VmGeneration::of(&device);
            std::fs::write(&device, shown(HAS_GENERATION, 8)).unwrap();
            assert!(!generation.has_changed());
        }
    }
}
