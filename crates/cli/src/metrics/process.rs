//! What the system says of this process: memory, processor time, open files, datagrams that its sockets had no room for.
//!
//! Decides: what is read of `/proc` (proc(5)), by the names that Prometheus clients use for it. Place in the walk: none; read by the
//! thread of the HTTP port. Invariant: what cannot be read is left out; it never fails a scrape.
//! Leaves to others: everything that this program counts itself.

use super::{Family, Number, Sample, Type};
use std::collections::HashSet;
use std::fs;

/// Families of the process, as far as the system tells.
pub(super) fn families() -> Vec<Family> {
    let mut all = Vec::new();
    let mut one = |name: &str, kind, value: Option<Number>, help| {
        if let Some(value) = value {
            let samples = vec![Sample { suffix: "", labels: Vec::new(), value }];
            all.push(Family { name: name.to_owned(), kind, help, samples });
        }
    };
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = |name: &str| field(&status, name).map(|kib| Number::Whole(kib * 1_024));
    one("process_resident_memory_bytes", Type::Gauge, kib("VmRSS:"), "Memory of the process that is resident.");
    one("process_virtual_memory_bytes", Type::Gauge, kib("VmSize:"), "Address space of the process.");
    one("process_cpu_seconds_total", Type::Counter, cpu(), "Processor time, of user and system.");
    let open = fs::read_dir("/proc/self/fd").ok().map(|files| Number::Whole(files.count() as u64));
    one("process_open_fds", Type::Gauge, open, "Open file descriptors.");
    one(
        "cistern_socket_overflow_total",
        Type::Counter,
        overflows().map(Number::Whole),
        "Datagrams that the system dropped because a socket's queue was full.",
    );
    all
}

/// The number after a name at the beginning of a line.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
}

fn cpu() -> Option<Number> {
    let clock = nix::time::ClockId::CLOCK_PROCESS_CPUTIME_ID.now().ok()?;
    let seconds = u64::try_from(clock.tv_sec()).ok()?;
    Some(Number::Nanoseconds(seconds * 1_000_000_000 + u64::try_from(clock.tv_nsec()).ok()?))
}

/// The sum over the UDP sockets of this process of datagrams that found no room.
fn overflows() -> Option<u64> {
    let mut inodes = HashSet::new();
    for file in fs::read_dir("/proc/self/fd").ok()?.flatten() {
        let target = fs::read_link(file.path()).unwrap_or_default();
        let inode = target.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse::<u64>().ok());
        inodes.extend(inode);
    }
    let tables = ["/proc/self/net/udp", "/proc/self/net/udp6"].map(|path| fs::read_to_string(path).unwrap_or_default());
    Some(tables.iter().map(|table| drops(table, &inodes)).sum())
}

/// The last column of the lines whose tenth is one of `inodes`.
fn drops(table: &str, inodes: &HashSet<u64>) -> u64 {
    let of = |line: &str| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let ours = inodes.contains(&columns.get(9)?.parse().ok()?);
        if ours { columns.get(12)?.parse::<u64>().ok() } else { None }
    };
    table.lines().skip(1).filter_map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_of_other_processes_sockets_are_not_counted() {
        let table = "   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
            1: 0100007F:1C8F 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 777 2 0000000000000000 5\n\
            2: 0100007F:1C90 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 778 2 0000000000000000 9\n";
        assert_eq!(drops(table, &HashSet::from([777])), 5);
        assert_eq!(drops("", &HashSet::new()), 0);
    }

    #[test]
    fn the_system_tells_of_this_process() {
        let _socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let names: Vec<_> = families().into_iter().map(|family| family.name).collect();
        for name in ["process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "cistern_socket_overflow_total"] {
            assert!(names.iter().any(|found| found == name), "{name} in {names:?}");
        }
    }
}
