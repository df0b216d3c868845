//! The aims, beside what was measured.
//!
//! Decides what each aim is held against, and from which figure of which workload; an aim that this run did not measure names the
//! command that does. Place: after the workloads, before `report`. Invariant: an aim says "reached" only by a figure of this very run.
//! Leaves to others: the figures (each workload), and what follows from a missed aim (docs/performance.md).

use crate::section::{Section, columns, digits};
use serde::Serialize;
use std::fmt::{self, Write as _};

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Good {
    AtLeast,
    AtMost,
}

/// Where the figure stands.
#[derive(Clone, Copy, Debug)]
enum From {
    /// Workload, beginning of the load's words, name of the figure.
    Run(&'static str, &'static str, &'static str),
    /// Another program tells.
    Elsewhere(&'static str),
}

/// One aim.
#[derive(Clone, Copy, Debug)]
struct Aim {
    id: &'static str,
    what: &'static str,
    good: Good,
    limit: f64,
    from: From,
}

const fn aim(id: &'static str, what: &'static str, good: Good, limit: f64, from: From) -> Aim {
    Aim { id, what, good, limit, from }
}

use Good::{AtLeast, AtMost};

/// All aims, in the order in which they are shown.
const AIMS: &[Aim] = &[
    aim("P1", "one request per datagram, server CPU: echo / ours", AtLeast, 0.90, From::Run("echo", CROWD, "echo_over_server")),
    aim("P2", "several of an agent in flight, server CPU: ours / echo of one", AtMost, 0.20, From::Run("echo", PACKED, "server_over_echo")),
    aim("P2", "the same, lock+release: ours / echo of one", AtMost, 0.20, From::Run("echo", PACKED_LOCK, "server_over_echo")),
    aim("P2", "the same, server CPU: ours / pipelined Redis", AtMost, 1.0, From::Run("peers", "lock, pipelined", "ours_over_redis")),
    aim("P3", "one request in flight, p50: ours / echo", AtMost, 1.15, From::Run("echo", ONE, "p50_over_echo")),
    aim("P3", "a lock that the host already holds, ns", AtMost, 200.0, From::Run("cached", "lock again", "ns")),
    aim("P3", "the same: datagrams", AtMost, 0.0, From::Run("cached", "lock again", "datagrams")),
    aim("P4", "stat from a valid cache without its clock reads, ns", AtMost, 200.0, From::Run("cached", "stat", "ns")),
    aim("P4", "the same: datagrams", AtMost, 0.0, From::Run("cached", "stat", "datagrams")),
    aim("P4", "the same: allocations", AtMost, 0.0, From::Elsewhere("cargo test -p cistern-path")),
    aim("P5", "durable change, p50: ours / (fdatasync + echo)", AtMost, 1.25, From::Run("durable", "setattr, 1 ", "ratio")),
    aim("P5", "durable changes a second, 64 in flight", AtLeast, 100_000.0, From::Run("durable", "setattr, 64 ", "per_second")),
    aim("P6", "idle sessions: datagrams", AtMost, 0.0, From::Run("idle", "idle", "datagrams")),
    aim("P6", "idle sessions: wake-ups of the server (timers)", AtMost, 0.0, From::Run("idle", "idle", "sleeps")),
    aim("P6", "idle sessions: server CPU, µs in a second", AtMost, 0.0, From::Run("idle", "idle", "cpu_us_per_s")),
    aim("P6", "memory of a session, bytes", AtMost, 512.0, From::Elsewhere("cistern-bench scale")),
    aim("P6", "memory of a lock, bytes", AtMost, 128.0, From::Elsewhere("cistern-bench scale")),
    aim("P6", "cost with a million sessions / with few", AtMost, 1.5, From::Elsewhere("cistern-bench scale")),
    aim("P7", "failover, longest: ours / (Td + τ(1+δ) + 20 ms)", AtMost, 1.0, From::Run("failover", "stopped", "longest_over_bound")),
    aim("P8", "explicit renewals: measured / 1/(e^fτρ - 1), largest", AtMost, 1.10, From::Run("renewals", "largest", "over_law")),
    aim("P8", "explicit renewals: measured / 1/(e^fτρ - 1), smallest", AtLeast, 0.90, From::Run("renewals", "smallest", "over_law")),
    aim("P9", "10,000 locks at once, ms", AtMost, 10.0, From::Run("burst", "10,000 locks", "ms")),
];

/// Loads that aims are held against, by the beginning of their names.
pub(crate) const ONE: &str = "getattr, 1 agent, 1 in flight";
/// Many agents, a datagram for each request.
pub(crate) const CROWD: &str = "getattr, 256 agents, 256 at once";
/// One agent, several requests in a datagram.
pub(crate) const PACKED: &str = "getattr, 1 agent, packed";
/// The same with locks.
pub(crate) const PACKED_LOCK: &str = "lock+release, 1 agent, packed";

/// An aim and what this run says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// P1 to P9.
    aim: &'static str,
    what: &'static str,
    good: Good,
    limit: f64,
    /// None: not measured in this run.
    measured: Option<f64>,
    /// None with `measured`.
    reached: Option<bool>,
    /// The command that measures it.
    by: String,
}

/// Holds what was found against the aims.
pub(crate) fn verdicts(sections: &[Section]) -> Vec<Verdict> {
    let verdict = |aim: &Aim| {
        let (measured, by) = match aim.from {
            From::Run(workload, load, key) => {
                let rows = sections.iter().filter(|section| section.name == workload).flat_map(|section| &section.rows);
                let found = rows.filter(|row| row.load.starts_with(load)).find_map(|row| row.number(key));
                (found, format!("cistern-bench {workload}"))
            }
            From::Elsewhere(command) => (None, command.to_owned()),
        };
        let reached = measured.map(|figure| match aim.good {
            AtLeast => figure >= aim.limit,
            AtMost => figure <= aim.limit,
        });
        Verdict { aim: aim.id, what: aim.what, good: aim.good, limit: aim.limit, measured, reached, by }
    };
    AIMS.iter().map(verdict).collect()
}

/// As a table.
pub(crate) fn write(verdicts: &[Verdict], out: &mut String) -> fmt::Result {
    writeln!(out, "Aims and this run:\n")?;
    let mut lines = vec![["", "measured", "aim", "", ""].map(str::to_owned).to_vec()];
    for Verdict { aim, what, good, limit, measured, reached, by } in verdicts {
        let (sign, measured) = (if *good == AtLeast { "≥" } else { "≤" }, measured.map_or_else(|| "-".to_owned(), digits));
        let word = match reached {
            Some(true) => "reached".to_owned(),
            Some(false) => "not reached".to_owned(),
            None => format!("not in this run: {by}"),
        };
        lines.push(vec![format!("{aim}  {what}"), measured, format!("{sign} {}", digits(*limit)), String::new(), word]);
    }
    // The last column to the left, for it is words.
    let width = lines.iter().map(|line| line[4].chars().count()).max().unwrap_or(0);
    lines.iter_mut().for_each(|line| line[4] = format!("{:<width$}", line[4]));
    columns(out, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::section::Row;

    #[test]
    fn verdict_comes_from_the_row_of_this_run_and_names_the_command_without_one() {
        let mut section = Section::new("echo", "");
        section.rows.push(Row::new(CROWD).with("echo_over_server", "", 0.91));
        section.rows.push(Row::new(ONE).with("p50_over_echo", "", 1.2));
        let verdicts = verdicts(&[section]);
        let of = |what: &str| verdicts.iter().find(|verdict| verdict.what.starts_with(what)).unwrap();
        assert_eq!((of("one request per").measured, of("one request per").reached), (Some(0.91), Some(true)));
        assert_eq!(of("one request in flight").reached, Some(false));
        assert_eq!((of("durable change, p50").measured, of("durable change, p50").by.as_str()), (None, "cistern-bench durable"));
        let mut out = String::new();
        write(&verdicts, &mut out).unwrap();
        assert!(out.contains("not in this run: cistern-bench durable"), "{out}");
        assert_eq!(out.lines().filter(|line| line.contains("  P")).count(), AIMS.len());
    }

    #[test]
    fn every_aim_of_the_nine_is_there() {
        let ids: std::collections::BTreeSet<&str> = AIMS.iter().map(|aim| aim.id).collect();
        assert_eq!(ids.into_iter().collect::<Vec<_>>(), ["P1", "P2", "P3", "P4", "P5", "P6", "P7", "P8", "P9"]);
    }
}
