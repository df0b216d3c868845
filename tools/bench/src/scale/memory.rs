//! What memory this process has.
//!
//! Decides that it is what the kernel says is resident, and the most there ever was: allocators' slack and the peaks of growing tables
//! are then in the figures. Place: read by `cost` between its stages.

use crate::host::proc;
use crate::trouble::Trouble;
use nix::unistd::Pid;
use procfs::process::Process;

/// Resident memory, in bytes.
pub(super) fn resident() -> Result<u64, Trouble> {
    crate::host::resident_bytes(Pid::this())
}

/// The most that was ever resident, in bytes.
pub(super) fn peak() -> Result<u64, Trouble> {
    Ok(proc(Pid::this(), Process::status)?.vmhwm.unwrap_or(0) * 1_024)
}
