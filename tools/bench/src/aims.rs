//! The aims, beside what was measured.
//!
//! Decides what each aim is held against, and from which rows of which workload: of all loads that the aim's words name the worst counts,
//! and it is named. An aim that this run did not measure names the command that does. Place: after the workloads, before `report`.
//! Invariant: an aim says "reached" only by figures of this very run, and only if every load that it is about has one.
//! Leaves to others: the figures (each workload), and what follows from a missed aim (docs/performance.md).

use crate::section::{Row, Section, Style, columns, digits};
use serde::Serialize;
use std::fmt;

/// Which side of the limit is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Good {
    AtLeast,
    AtMost,
}

/// Where the figures stand.
#[derive(Clone, Copy, Debug)]
enum From {
    /// Workload, which loads the aim is about, name of the figure.
    Run(&'static str, fn(&str) -> bool, &'static str),
    /// The same of a run with those options; without them it has no such row.
    With(&'static str, &'static str, fn(&str) -> bool, &'static str),
    /// The same; a row whose figure of the second name is smaller than that says nothing.
    Telling(&'static str, fn(&str) -> bool, &'static str, (&'static str, f64)),
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
    aim(
        "P1",
        "one request per datagram, 256 agents at once, server CPU: echo / ours",
        AtLeast,
        0.90,
        From::Run("echo", is_crowd, "echo_over_server"),
    ),
    aim(
        "P1",
        "one request per datagram, 1 in flight (waking included): echo / ours",
        AtLeast,
        0.90,
        From::Run("echo", is_one, "echo_over_server"),
    ),
    aim(
        "P2",
        "16 or more of an agent in flight, server CPU: ours / echo of one",
        AtMost,
        0.20,
        From::Run("echo", is_packed, "server_over_echo"),
    ),
    aim(
        "P2",
        "64 locks in flight, wire generator, server CPU: ours / pipelined Redis",
        AtMost,
        1.0,
        From::Run("peers", is_beside_redis, "ours_over_redis"),
    ),
    aim("P3", "one request in flight, p50: ours / echo", AtMost, 1.15, From::Run("echo", is_one, "p50_over_echo")),
    aim(
        "P3",
        "a lock that the host already holds, with its clock reading, ns",
        AtMost,
        200.0,
        From::Run("cached", |load| load == HELD, "ns"),
    ),
    aim(
        "P3",
        "the same through the client library, ns",
        AtMost,
        200.0,
        From::Run("cached", |load| load.starts_with("client library: lock"), "ns"),
    ),
    aim("P3", "the same, all ways: datagrams", AtMost, 0.0, From::Run("cached", |load| load.contains("lock again"), "datagrams")),
    aim(
        "P4",
        "stat by number and by path from a valid cache, no clock reads, ns",
        AtMost,
        200.0,
        From::Run("cached", |load| load.starts_with("stat "), "ns"),
    ),
    aim("P4", "stat, client library too: datagrams", AtMost, 0.0, From::Run("cached", |load| load.contains("stat "), "datagrams")),
    aim("P4", "the same: allocations", AtMost, 0.0, From::Elsewhere("cargo test -p cistern-path")),
    aim(
        "P5",
        "durable change, 1 in flight, p50: ours / (fdatasync + echo)",
        AtMost,
        1.25,
        From::Run("durable", |load| load.ends_with(", 1 in flight"), "ratio"),
    ),
    aim(
        "P5",
        "durable changes a second, 64 in flight",
        AtLeast,
        100_000.0,
        From::Run("durable", |load| load.ends_with(", 64 in flight"), "per_second"),
    ),
    aim(
        "P5",
        "durable change, store on etcd, 1 in flight, p50: ours / (put + echo)",
        AtMost,
        1.3,
        From::Run("on-etcd", |load| load == "1 in flight", "ratio"),
    ),
    aim(
        "P5",
        "durable changes a second, store on etcd, 64 in flight: ours / puts",
        AtLeast,
        3.0,
        From::Run("on-etcd", |load| load == "64 in flight", "rate_ratio"),
    ),
    aim("P6", "idle sessions, without and with a lock: datagrams", AtMost, 0.0, From::Run("idle", is_idle, "datagrams")),
    aim("P6", "the same: wake-ups of the server (timers)", AtMost, 0.0, From::Run("idle", is_idle, "sleeps")),
    aim("P6", "the same: server CPU, µs in a second", AtMost, 0.0, From::Run("idle", is_idle, "cpu_us_per_s")),
    aim(
        "P6",
        "memory of a session of a million, bytes",
        AtMost,
        512.0,
        From::With("sessions", LARGEST, is_largest_memory, "session_bytes"),
    ),
    aim("P6", "memory of a lock of ten million, bytes", AtMost, 128.0, From::With("sessions", LARGEST, is_largest_memory, "lock_bytes")),
    aim(
        "P6",
        "cost with a million sessions and ten million locks / with few",
        AtMost,
        1.5,
        From::With("sessions", LARGEST, is_largest, "many_over_few"),
    ),
    aim(
        "P7",
        "failover at every τ, longest: ours / (Td + τ(1+δ) + 20 ms)",
        AtMost,
        1.0,
        From::Run("failover", |load| load.starts_with("stopped"), "longest_over_bound"),
    ),
    aim(
        "P7",
        "waited before, last-heard, surrender, longest: ours / their bounds",
        AtMost,
        1.0,
        From::Run("failover", |load| !load.starts_with("stopped"), "longest_over_bound"),
    ),
    aim("P12", "group, server killed: the last holder certain again, ms", AtMost, 1_000.0, From::Run("group", is_killed, "last_max_ms")),
    aim("P12", "the same: a new lock, longest, ms", AtMost, 1_500.0, From::Run("group", is_killed, "lock_max_ms")),
    aim("P12", "the same: commands that would be stopped", AtMost, 0.0, From::Run("group", is_killed, "suspect")),
    aim("P12", "the same: locks lost", AtMost, 0.0, From::Run("group", is_killed, "lost")),
    aim(
        "P8",
        "explicit renewals at fτρ < 10: measured / 1/(e^fτρ - 1)",
        AtMost,
        1.10,
        From::Telling("renewals", is_lower, "over_law", TELLING),
    ),
    aim("P8", "the same", AtLeast, 0.90, From::Telling("renewals", is_lower, "over_law", TELLING)),
    aim(
        "P8",
        "explicit renewals at fτρ = 10: measured / 1/(e^fτρ - 1)",
        AtMost,
        1.10,
        From::Telling("renewals", is_tenth, "over_law", TELLING),
    ),
    aim("P8", "the same", AtLeast, 0.90, From::Telling("renewals", is_tenth, "over_law", TELLING)),
    aim(
        "P9",
        "10,000 locks at once, 1 agent, window 64 (default), ms",
        AtMost,
        10.0,
        From::Run("burst", |load| load == "10,000 locks, 1 agents, window 64", "ms"),
    ),
    aim(
        "P9",
        "10,000 locks at once, 16 agents, window 64 (default), ms",
        AtMost,
        10.0,
        From::Run("burst", |load| load == "10,000 locks, 16 agents, window 64", "ms"),
    ),
    aim(
        "P9",
        "10,000 locks at once, 1 agent, both set to window 4,096, ms",
        AtMost,
        10.0,
        From::Run("burst", |load| load == "10,000 locks, 1 agents, window 4096", "ms"),
    ),
    aim(
        "P9",
        "10,000 locks at once, 16 agents, all set to window 4,096, ms",
        AtMost,
        10.0,
        From::Run("burst", |load| load == "10,000 locks, 16 agents, window 4096", "ms"),
    ),
    aim(
        "P10",
        "one request per datagram, 256 agents at once, server CPU: sealed / plain",
        AtMost,
        1.25,
        From::Run("echo", is_crowd, "sealed_over_plain"),
    ),
    aim(
        "P10",
        "one request per datagram, 1 in flight (waking included): sealed / plain",
        AtMost,
        1.25,
        From::Run("echo", is_one, "sealed_over_plain"),
    ),
    aim(
        "P10",
        "16 or more of an agent in flight, server CPU: sealed / plain",
        AtMost,
        1.15,
        From::Run("echo", is_packed, "sealed_over_plain"),
    ),
    aim("P10", "a sealed handshake: CPU of the loop, µs", AtMost, 30.0, From::Run("handshakes", |load| load == "sealed", "loop_us")),
    aim(
        "P10",
        "a sealed session: bytes more than a plain one",
        AtMost,
        160.0,
        From::Run("handshakes", |load| load == "sealed", "bytes_more"),
    ),
    aim("P11", "a victim beside an attacker, p99, ms", AtMost, 50.0, From::Run("attacked", is_attacked, "p99_ms")),
    aim("P11", "the same: leases lost", AtMost, 0.0, From::Run("attacked", is_attacked, "leases_lost")),
    aim(
        "P11",
        "10,000 agents back after a restart, sealed too, last of all: ours / T",
        AtMost,
        1.0,
        From::Run("restart", is_usual, "all_over_bound"),
    ),
    aim("P11", "the same: locks lost", AtMost, 0.0, From::Run("restart", is_usual, "locks_lost")),
];

/// The load of the lock that is held here and taken again, each call with a reading of the clocks.
pub(crate) const HELD: &str = "lock again that the host has, with its clock reading";
/// The sizes that P6 is about: ten locks to each session.
const LARGEST: &str = "--most-sessions 1000000";
/// Fewer renewals than this say nothing within 10 %: their number is known to 3 %.
const TELLING: (&str, f64) = ("renewals", 1_000.0);
/// As many of an agent in flight as P2 is about.
const SEVERAL: usize = 16;

/// Many agents, a datagram for each request.
pub(crate) fn is_crowd(load: &str) -> bool {
    load.ends_with(", 256 agents, 256 at once")
}

/// One agent that asks one thing after the other.
pub(crate) fn is_one(load: &str) -> bool {
    load.ends_with(", 1 agent, 1 in flight")
}

/// One agent, several requests in a datagram, as many as the aim is about.
pub(crate) fn is_packed(load: &str) -> bool {
    let several = load.split_once(", 1 agent, packed, ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    several.is_some_and(|several: usize| several >= SEVERAL)
}

fn is_beside_redis(load: &str) -> bool {
    load.starts_with("lock, pipelined")
}

/// A victim, and not one that was left alone.
fn is_killed(load: &str) -> bool {
    load.starts_with("killed")
}

fn is_attacked(load: &str) -> bool {
    !load.ends_with("alone")
}

/// Ten thousand agents that come back as they would, and not by OPEN alone.
fn is_usual(load: &str) -> bool {
    load.starts_with("10000 agents, ") && !load.ends_with(crate::restart::OPEN_ALONE)
}

fn is_idle(load: &str) -> bool {
    load.starts_with("idle")
}

/// Requests among as many sessions and locks as P6 is about.
fn is_largest(load: &str) -> bool {
    load.ends_with(", 1,000,000 sessions, 10,000,000 locks")
}

fn is_largest_memory(load: &str) -> bool {
    is_largest(load) && load.starts_with("memory, ")
}

fn is_lower(load: &str) -> bool {
    !is_tenth(load)
}

fn is_tenth(load: &str) -> bool {
    load == "fτρ = 10"
}

/// An aim and what this run says of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Verdict {
    /// P1 to P11.
    aim: &'static str,
    what: &'static str,
    good: Good,
    limit: f64,
    /// The worst of all loads that the aim is about; none: not measured in this run.
    measured: Option<f64>,
    /// The load that was.
    load: Option<String>,
    /// How many loads were looked at.
    loads: usize,
    /// Loads that were measured too little to say anything.
    too_few: Vec<String>,
    /// None if not measured, or if a load was measured too little and no other missed the aim.
    reached: Option<bool>,
    /// The command that measures it.
    by: String,
}

/// Holds what was found against the aims.
pub(crate) fn verdicts(sections: &[Section]) -> Vec<Verdict> {
    AIMS.iter().map(|aim| verdict(aim, sections)).collect()
}

fn verdict(aim: &Aim, sections: &[Section]) -> Verdict {
    let (workload, options, fits, key, telling) = match aim.from {
        From::Run(workload, fits, key) => (workload, "", fits, key, None),
        From::With(workload, options, fits, key) => (workload, options, fits, key, None),
        From::Telling(workload, fits, key, telling) => (workload, "", fits, key, Some(telling)),
        From::Elsewhere(command) => return aim.without_figure(command.to_owned()),
    };
    let (mut worst, mut loads, mut too_few): (Option<(f64, &Row)>, _, _) = (None, 0, Vec::new());
    let rows = sections.iter().filter(|section| section.name == workload).flat_map(|section| &section.rows);
    for (row, figure) in rows.filter(|row| fits(&row.load)).filter_map(|row| Some((row, row.number(key)?))) {
        if telling.is_some_and(|(key, least)| row.number(key).is_none_or(|number| number < least)) {
            too_few.push(row.load.clone());
            continue;
        }
        loads += 1;
        if worst.is_none_or(|(known, _)| aim.is_worse(figure, known)) {
            worst = Some((figure, row));
        }
    }
    let measured = worst.map(|(figure, _)| figure);
    // What was measured too little can make an aim missed no better, and a reached one no surer.
    let reached = measured.map(|figure| aim.is_reached(figure)).filter(|reached| !reached || too_few.is_empty());
    let load = worst.map(|(_, row)| row.load.trim().to_owned());
    Verdict {
        measured,
        load,
        loads,
        too_few,
        reached,
        ..aim.without_figure(format!("cistern-bench {workload} {options}").trim_end().to_owned())
    }
}

impl Aim {
    const fn without_figure(&self, by: String) -> Verdict {
        let Self { id, what, good, limit, .. } = *self;
        Verdict { aim: id, what, good, limit, measured: None, load: None, loads: 0, too_few: Vec::new(), reached: None, by }
    }

    fn is_reached(&self, figure: f64) -> bool {
        match self.good {
            AtLeast => figure >= self.limit,
            AtMost => figure <= self.limit,
        }
    }

    fn is_worse(&self, figure: f64, than: f64) -> bool {
        match self.good {
            AtLeast => figure < than,
            AtMost => figure > than,
        }
    }
}

impl Verdict {
    /// What is to be said of it, in words.
    fn word(&self) -> String {
        let mut word = match (self.reached, &self.too_few[..]) {
            (Some(true), _) => "reached".to_owned(),
            (Some(false), _) => "not reached".to_owned(),
            (None, []) => return format!("not in this run: {}", self.by),
            (None, _) => format!("not measured: too few in this run; longer: {} --duration DURATION", self.by),
        };
        let mut say = |more: &str| word.extend(["; ", more]);
        if let (Some(load), 2..) = (&self.load, self.loads) {
            say(&format!("worst of {}: {load}", self.loads));
        }
        if !self.too_few.is_empty() {
            say(&format!("too few: {}", self.too_few.join(", ")));
        }
        word
    }
}

/// As a table.
pub(crate) fn write(verdicts: &[Verdict], style: Style, out: &mut String) -> fmt::Result {
    style.title(out, "Aims and this run")?;
    let mut lines = vec![["", "measured", "aim", ""].map(str::to_owned).to_vec()];
    for verdict in verdicts {
        let Verdict { aim, what, good, limit, measured, .. } = verdict;
        let (sign, measured) = (if *good == AtLeast { "≥" } else { "≤" }, measured.map_or_else(|| "-".to_owned(), digits));
        lines.push(vec![format!("{aim}  {what}"), measured, format!("{sign} {}", digits(*limit)), verdict.word()]);
    }
    // The last column to the left, for it is words.
    let width = lines.iter().map(|line| line[3].chars().count()).max().unwrap_or(0);
    lines.iter_mut().for_each(|line| line[3] = format!("{:<width$}", line[3]));
    columns(out, style, &lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of<'v>(verdicts: &'v [Verdict], what: &str) -> &'v Verdict {
        verdicts.iter().find(|verdict| verdict.what.starts_with(what)).unwrap()
    }

    fn section(name: &'static str, key: &'static str, rows: &[(&str, f64)]) -> Section {
        let mut section = Section::new(name, "");
        section.rows.extend(rows.iter().map(|(load, figure)| Row::new(*load).with(key, "", *figure)));
        section
    }

    #[test]
    fn verdict_comes_from_the_row_of_this_run_and_names_the_command_without_one() {
        let echo = section("echo", "echo_over_server", &[("getattr, 256 agents, 256 at once", 0.91)]);
        let verdicts = verdicts(&[echo]);
        let crowd = of(&verdicts, "one request per datagram, 256");
        assert_eq!((crowd.measured, crowd.reached, crowd.word()), (Some(0.91), Some(true), "reached".to_owned()));
        let durable = of(&verdicts, "durable change, 1");
        assert_eq!((durable.measured, durable.word()), (None, "not in this run: cistern-bench durable".to_owned()));
        let mut out = String::new();
        write(&verdicts, Style::Plain, &mut out).unwrap();
        assert!(out.contains("not in this run: cistern-bench durable"), "{out}");
        assert_eq!(out.lines().filter(|line| line.contains("  P")).count(), AIMS.len());
    }

    #[test]
    fn worst_of_all_loads_that_an_aim_is_about_counts_and_is_named() {
        let stopped = |ms| format!("stopped, waiter asks then, τ = {ms} ms");
        let failover = section("failover", "longest_over_bound", &[(&stopped(100), 0.9), (&stopped(200), 1.1), (&stopped(500), 0.8)]);
        let durable = section("durable", "per_second", &[("setattr, 64 in flight", 2e5), ("create, 64 in flight", 5e4)]);
        let verdicts = verdicts(&[failover, durable]);
        let failover = of(&verdicts, "failover at every τ");
        assert_eq!((failover.measured, failover.reached, failover.loads), (Some(1.1), Some(false), 3));
        assert_eq!(failover.word(), format!("not reached; worst of 3: {}", stopped(200)));
        let rate = of(&verdicts, "durable changes a second");
        assert_eq!((rate.measured, rate.reached), (Some(5e4), Some(false)), "of what should be large the smallest is the worst");
    }

    #[test]
    fn load_with_fewer_in_flight_than_the_aim_is_about_says_nothing_of_it() {
        let packed = |several| section("echo", "server_over_echo", &[(&format!("getattr, 1 agent, packed, {several} at once"), 0.1)]);
        assert_eq!(of(&verdicts(&[packed(15)]), "16 or more").reached, None);
        assert_eq!(of(&verdicts(&[packed(16)]), "16 or more").reached, Some(true));
    }

    #[test]
    fn large_tables_are_judged_by_their_worst_row_and_only_at_their_full_size() {
        let row = |load: &str, size: &str, ratio| Row::new(format!("{load}, {size}")).with("many_over_few", "", ratio);
        let mut smaller = Section::new("sessions", "");
        smaller.rows = vec![row("getattr", "10,000 sessions, 100,000 locks", 1.2)];
        let what = "cost with a million";
        assert_eq!(of(&verdicts(&[smaller]), what).word(), format!("not in this run: cistern-bench sessions {LARGEST}"));
        let full = "1,000,000 sessions, 10,000,000 locks";
        let mut largest = Section::new("sessions", "");
        largest.rows = vec![row("getattr", full, 1.2), row("lock+release", full, 1.6)];
        largest.rows.push(Row::new(format!("memory, {full}")).with("session_bytes", "", 500.0).with("lock_bytes", "", 130.0));
        let verdicts = verdicts(&[largest]);
        assert_eq!((of(&verdicts, what).measured, of(&verdicts, what).loads), (Some(1.6), 2));
        assert_eq!(of(&verdicts, "memory of a session").reached, Some(true));
        assert_eq!(of(&verdicts, "memory of a lock").reached, Some(false));
    }

    #[test]
    fn each_shape_of_a_burst_has_a_verdict_of_its_own() {
        let rows = [("10,000 locks, 1 agents, window 4096", 9.0), ("10,000 locks, 1 agents, window 64", 30.0)];
        let verdicts = verdicts(&[section("burst", "ms", &rows)]);
        assert_eq!(of(&verdicts, "10,000 locks at once, 1 agent, window 64").reached, Some(false));
        assert_eq!(of(&verdicts, "10,000 locks at once, 1 agent, both set").reached, Some(true));
        assert_eq!(of(&verdicts, "10,000 locks at once, 16 agents, window").reached, None);
    }

    #[test]
    fn too_few_renewals_make_no_aim_reached() {
        let row = |load: &str, renewals: u64| Row::new(load).with("over_law", "", 1.01).with("renewals", "", renewals);
        let mut renewals = Section::new("renewals", "");
        renewals.rows = vec![row("fτρ = 3", 4_000), row("fτρ = 5", 999), row("fτρ = 10", 12)];
        let few = verdicts(&[renewals.clone()]);
        assert_eq!((of(&few, "explicit renewals at fτρ < 10").reached, of(&few, "explicit renewals at fτρ = 10").reached), (None, None));
        assert!(of(&few, "explicit renewals at fτρ < 10").word().ends_with("too few: fτρ = 5"));
        assert!(of(&few, "explicit renewals at fτρ = 10").word().starts_with("not measured: too few"));
        renewals.rows = vec![row("fτρ = 5", 1_000), row("fτρ = 10", 1_000)];
        let enough = verdicts(&[renewals]);
        assert!(enough.iter().filter(|verdict| verdict.aim == "P8").all(|verdict| verdict.reached == Some(true)));
    }

    #[test]
    fn every_number_of_an_aim_is_there() {
        let ids: std::collections::BTreeSet<String> = AIMS.iter().map(|aim| aim.id.to_owned()).collect();
        assert_eq!(ids, (1..=12).map(|number| format!("P{number}")).collect());
    }
}
