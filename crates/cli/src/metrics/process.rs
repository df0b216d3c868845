//! What the system says of this process: memory, processor time, open files.
//!
//! Decides: what is read of `/proc` (proc(5)), by the names that Prometheus clients use for it. Place in the walk: none; read by the
//! thread of the HTTP port. Invariant: what cannot be read is left out; it never fails a scrape.
//! Leaves to others: everything that this program counts itself.

use super::{Family, Figure, Sample, Type};
use std::fs;

/// Families of the process, as far as the system tells.
pub(super) fn families() -> Vec<Family> {
    let mut all = Vec::new();
    let mut one = |name: &str, kind, value: Option<Figure>, help| {
        if let Some(value) = value {
            let samples = vec![Sample { suffix: "", labels: Vec::new(), value }];
            all.push(Family { name: name.to_owned(), kind, help, labels: &[], samples });
        }
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| field(&status, name).map(|kib| Figure::Whole(kib * 1_024));
    one("process_resident_memory_bytes", Type::Gauge, kib("VmRSS:"), "Memory of the process that is resident.");
    one("process_virtual_memory_bytes", Type::Gauge, kib("VmSize:"), "Address space of the process.");
    one("process_cpu_seconds_total", Type::Counter, cpu(), "Processor time, of user and system.");
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| Figure::Whole(files.count() as u64));
    one("process_open_fds", Type::Gauge, open, "Open file descriptors.");
    all
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn cpu() -> Option<Figure> {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now().ok()?;
    let seconds = u64::try_from(clock.tv_sec()).ok()?;
    Some(Figure::Nanoseconds(seconds * 1_000_000_000 + u64::try_from(clock.tv_nsec()).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_tells_of_this_process() {
        let names: Vec<_> = families().into_iter().map(|family| family.name).collect();
        for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds"] {
            assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
        }
    }
}
