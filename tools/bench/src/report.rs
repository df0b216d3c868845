//! What is printed: a table for people, JSON for scripts.
//!
//! Decides the words and columns. The ratio stands first, for it is the figure: absolute times are noise from machine to machine.
//! Place: last step, called by `main`. Leaves to others: every number (`figures`).

use crate::cases::Comparison;
use crate::figures::{Column, Spread};
use serde::Serialize;
use std::fmt::{self, Write as _};

/// All that one run has found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Cores that could be used.
    pub(crate) cores: usize,
    /// Whether generator and process under test had a core each.
    pub(crate) pinned: bool,
    /// Length of a round of one side, in seconds.
    pub(crate) round_seconds: f64,
    /// Rounds of each side.
    pub(crate) rounds: u32,
    /// Base: the server; other: the echo; ratio: echo / server.
    pub(crate) beside_echo: Vec<Comparison>,
    /// Base and other: the echo, under the load of the last of these cases. How far the ratio is from 1 is the noise of the run.
    pub(crate) control: Comparison,
    /// Base: few sessions; other: many; ratio: many / few.
    pub(crate) sessions: Comparison,
}

impl Report {
    /// As JSON, one object over several lines.
    pub(crate) fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("figures are numbers and strings") + "\n"
    }

    /// As tables.
    pub(crate) fn table(&self) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(&mut out);
        out
    }

    fn write(&self, out: &mut String) -> fmt::Result {
        let pinned = if self.pinned { "generator and server pinned to a core each" } else { "not pinned: too few cores" };
        writeln!(
            out,
            "Server CPU for one exchange (a request's datagram in, its answer out), medians (and ranges) of {} rounds of {} s,\n\
             A B A B in one run; {} cores, {pinned}. The ratio is the figure, absolute times are noise.\n",
            self.rounds, self.round_seconds, self.cores
        )?;
        writeln!(out, "{:<36} {:>24} {:>24} {:>24}", "beside a plain UDP echo", "echo / server", "server µs", "echo µs")?;
        for Comparison { name, base, other, ratio } in &self.beside_echo {
            writeln!(out, "{name:<36} {:>24} {:>24} {:>24}", Shown(ratio), Shown(&base.cpu_us), Shown(&other.cpu_us))?;
        }
        let Comparison { base, other, ratio, .. } = &self.control;
        writeln!(out, "{CONTROL:<36} {:>24} {:>24} {:>24}", Shown(ratio), Shown(&base.cpu_us), Shown(&other.cpu_us))?;
        let Comparison { name, base, other, ratio } = &self.sessions;
        writeln!(out, "\n{:<36} {:>24} {:>24} {:>24}", "many sessions beside few", "many / few", "few µs", "many µs")?;
        writeln!(out, "{:<36} {:>24} {:>24} {:>24}", "", Shown(ratio), Shown(&base.cpu_us), Shown(&other.cpu_us))?;
        writeln!(out, "  ({name})\n")?;
        writeln!(
            out,
            "{:<43} {:>12} {:>8} {:>8} {:>12} {:>11} {:>14} {:>7}",
            "the same rounds", "exchanges/s", "p50 µs", "p99 µs", "sleeps/exch.", "bytes in,out", "answers/datag.", "resent"
        )?;
        for Comparison { name, base, other, .. } in &self.beside_echo {
            details(out, name, "server", base)?;
            details(out, "", "echo", other)?;
        }
        details(out, "many sessions beside few", "few", base)?;
        details(out, "", "many", other)?;
        if !self.is_quiet() {
            writeln!(
                out,
                "\nOther programs were running: a p99 is above 1 ms. Run it again on a quiet machine for figures worth keeping."
            )?;
        }
        Ok(())
    }

    /// Whether server, echo and generator had their cores for themselves: on loopback, only waiting for a core takes a millisecond.
    fn is_quiet(&self) -> bool {
        let all = self.beside_echo.iter().chain([&self.control, &self.sessions]);
        all.flat_map(|compared| [&compared.base, &compared.other]).all(|column| column.p99_us.median < QUIET_P99_US)
    }
}

/// Above every latency of a quiet machine, below every turn of a scheduler that shares a core.
const QUIET_P99_US: f64 = 1_000.0;

/// The control's line: what the ratio is where nothing differs.
const CONTROL: &str = "control: the echo in both places";

fn details(out: &mut String, name: &str, side: &str, column: &Column) -> fmt::Result {
    let Column { per_second, p50_us, p99_us, sleeps, bytes_asked, bytes_answered, answers_per_datagram, resent, .. } = column;
    writeln!(
        out,
        "{name:<36} {side:<6} {:>12.0} {:>8.1} {:>8.1} {:>12.3} {:>12} {answers_per_datagram:>14.2} {resent:>7}",
        per_second.median,
        p50_us.median,
        p99_us.median,
        sleeps.median,
        format!("{bytes_asked:.0},{bytes_answered:.0}"),
    )
}

/// A figure with its range.
struct Shown<'a>(&'a Spread);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Spread { median, min, max } = self.0;
        f.pad(&format!("{median:.2} ({min:.2} to {max:.2})"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let spread = |median| Spread { median, min: median - 0.5, max: median + 0.5 };
        let column = |cpu| Column {
            cpu_us: spread(cpu),
            per_second: spread(100_000.0),
            p50_us: spread(50.0),
            p99_us: spread(90.0),
            sleeps: spread(1.0),
            bytes_asked: 53.0,
            bytes_answered: 131.5,
            answers_per_datagram: 1.0,
            exchanges: 10,
            resent: 0,
        };
        let comparison = |name: &str| Comparison { name: name.to_owned(), base: column(2.5), other: column(2.3), ratio: spread(0.92) };
        Report {
            cores: 2,
            pinned: true,
            round_seconds: 0.5,
            rounds: 7,
            beside_echo: vec![comparison("getattr, 1 agent, 1 in flight")],
            control: comparison("echo and echo"),
            sessions: comparison("few and many"),
        }
    }

    #[test]
    fn table_shows_each_ratio_with_its_range() {
        let table = report().table();
        let line = table.lines().find(|line| line.starts_with("getattr")).unwrap();
        assert!(line.contains("0.92 (0.42 to 1.42)") && line.contains("2.50 (2.00 to 3.00)"), "{line}");
        assert!(table.contains("7 rounds of 0.5 s"), "{table}");
    }

    #[test]
    fn run_beside_other_programs_says_so() {
        let mut report = report();
        assert!(!report.table().contains("Other programs"));
        report.sessions.other.p99_us.median = 4_000.0;
        assert!(report.table().contains("Other programs"));
    }

    #[test]
    fn json_has_the_same_figures_under_their_names() {
        let json: serde_json::Value = serde_json::from_str(&report().json()).unwrap();
        assert_eq!(json["beside_echo"][0]["ratio"]["median"], 0.92);
        assert_eq!(json["sessions"]["base"]["cpu_us"]["max"], 3.0);
        assert_eq!(json["pinned"], true);
    }
}
