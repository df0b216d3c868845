//! What memory this process has.
//!
//! Decides that it is what the kernel says is resident, and the most there ever was: allocators' slack and the peaks of growing tables
//! are then in the figures. Place: read by `cost` between its stages.

use crate::trouble::Trouble;
use std::fs;
use std::io;

/// Resident memory, in bytes.
pub(super) fn resident() -> Result<u64, Trouble> {
    line("VmRSS:")
}

/// The most that was ever resident, in bytes.
pub(super) fn peak() -> Result<u64, Trouble> {
    line("VmHWM:")
}

fn line(name: &str) -> Result<u64, Trouble> {
    let status = fs::read_to_string("/proc/self/status").map_err(Trouble::at("reading /proc/self/status"))?;
    kilobytes(&status, name).ok_or_else(|| Trouble::at("finding memory in /proc/self/status")(io::Error::from(io::ErrorKind::InvalidData)))
}

/// The bytes of a line in kB.
fn kilobytes(status: &str, name: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kb| kb * 1_024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_in_kilobytes_and_told_in_bytes() {
        assert_eq!(kilobytes("VmHWM:\t  90 kB\nVmRSS:\t  12 kB\n", "VmRSS:"), Some(12 * 1_024));
        assert_eq!(kilobytes("VmRSS:\t  12 MB\n", "VmRSS:"), None);
        assert!(resident().unwrap() > 0 && peak().unwrap() >= resident().unwrap() / 2);
    }
}
