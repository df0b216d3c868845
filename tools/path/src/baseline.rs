//! The counts that were checked in, and what is made of new ones beside them.
//!
//! Decides how far a count may rise, and that a count by another compiler may rise further: what it does with the same code is not the
//! code's fault. Invariant: what is not in the file is a failure, not a pass. Leaves to others: counting (`callgrind`).

use crate::trouble::Trouble;
use cistern_path::Counted;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::Path;

/// By which compiler this program was made, and for which machine.
pub(crate) const COMPILER: &str = env!("CISTERN_RUSTC");

/// How far a count may rise, in percent: above what another layout of the same code changes, below what one more allocation costs.
const TOLERANCE: u64 = 3;
/// The same for a count by another compiler than the baseline's.
const TOLERANCE_OTHER: u64 = 15;

/// What stands above the counts in the file.
const HEAD: &str = "\
# Instructions of the server's core for one request, from the datagram to the answer's datagram, for one more of them in a datagram that
# has others (-packed), and of the agent's core for one answer without a message (cached-). `cistern-path check` compares.
# Written by `cargo run --profile dist -p cistern-path -- renew`. Renew it with a change that is meant to change a count, and say why there.

";

/// Counts, and by which compiler.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Baseline {
    pub(crate) compiler: String,
    pub(crate) instructions: BTreeMap<String, u64>,
}

/// What a count is beside the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Within the tolerance.
    Same,
    /// Below it: the baseline should be renewed, so that it guards what was won.
    Cheaper,
    /// Above it.
    Dearer,
    /// The baseline does not have it.
    Unknown,
}

impl Baseline {
    pub(crate) fn read(file: &Path) -> Result<Self, Trouble> {
        let text = fs::read_to_string(file).map_err(|source| Trouble::Read { file: file.into(), source })?;
        toml::from_str(&text).map_err(|source| Trouble::Baseline { file: file.into(), source: Box::new(source) })
    }

    /// Writes the file anew: whole or not at all.
    pub(crate) fn write(&self, file: &Path) -> Result<(), Trouble> {
        let failed = |source| Trouble::Write { file: file.into(), source };
        let dir = file.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let mut fresh = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        fresh.write_all(self.text().as_bytes()).map_err(failed)?;
        fresh.persist(file).map_err(|error| failed(error.error))?;
        Ok(())
    }

    fn text(&self) -> String {
        format!("{HEAD}{}", toml::to_string(self).expect("two tables of plain values"))
    }

    /// Whether it was counted with this program's compiler.
    pub(crate) fn is_of(&self, compiler: &str) -> bool {
        self.compiler == compiler
    }

    /// How far a count by `compiler` may be from this, in percent.
    pub(crate) fn tolerance(&self, compiler: &str) -> u64 {
        if self.is_of(compiler) { TOLERANCE } else { TOLERANCE_OTHER }
    }

    /// What a new count is.
    pub(crate) fn judge(&self, counted: Counted, count: u64, compiler: &str) -> Verdict {
        let tolerance = self.tolerance(compiler);
        let Some(before) = self.instructions.get(&counted.to_string()).copied() else { return Verdict::Unknown };
        if count * 100 > before * (100 + tolerance) {
            Verdict::Dearer
        } else if count * 100 < before * (100 - tolerance) {
            Verdict::Cheaper
        } else {
            Verdict::Same
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cistern_path::Kind;

    fn lock() -> Counted {
        Counted::Request(Kind::Lock)
    }

    fn baseline() -> Baseline {
        Baseline { compiler: "rustc 1".to_owned(), instructions: BTreeMap::from([("lock".to_owned(), 1_000)]) }
    }

    #[test]
    fn count_may_rise_and_fall_by_the_tolerance_and_no_further() {
        let judge = |count| baseline().judge(lock(), count, "rustc 1");
        assert_eq!((judge(1_030), judge(970)), (Verdict::Same, Verdict::Same));
        assert_eq!((judge(1_031), judge(969)), (Verdict::Dearer, Verdict::Cheaper));
    }

    #[test]
    fn count_by_another_compiler_may_rise_further() {
        let judge = |count| baseline().judge(lock(), count, "rustc 2");
        assert_eq!((judge(1_150), judge(1_151)), (Verdict::Same, Verdict::Dearer));
    }

    #[test]
    fn what_the_file_does_not_have_is_unknown() {
        assert_eq!(baseline().judge(Counted::Request(Kind::Read), 1, "rustc 1"), Verdict::Unknown);
    }

    #[test]
    fn file_is_read_as_it_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("baseline.toml");
        baseline().write(&file).unwrap();
        assert_eq!(Baseline::read(&file).unwrap(), baseline());
    }

    #[test]
    fn checked_in_file_has_everything_that_is_counted_and_no_more() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("baseline.toml");
        let baseline = Baseline::read(&file).unwrap();
        let names: Vec<_> = Counted::all().map(|counted| counted.to_string()).collect();
        assert!(names.iter().all(|name| baseline.instructions.contains_key(name)) && names.len() == baseline.instructions.len());
    }
}
