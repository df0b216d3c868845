//! What is printed: tables for people, JSON for scripts.
//!
//! Decides the frame around the sections: on what machine, how long, which aims were reached, what could not be measured.
//! Place: last step, called by `main`. Leaves to others: every number (`figures` and the workloads), the rows (`section`), the aims.

use crate::aims::{self, Verdict};
use crate::cases::Plan;
use crate::section::Section;
use serde::Serialize;
use std::fmt::{self, Write as _};

/// A workload that could not be measured.
#[derive(Debug, Serialize)]
pub(crate) struct Failed {
    /// Which.
    pub(crate) workload: &'static str,
    /// Why, and what to do.
    pub(crate) why: String,
}

/// All that one run has found.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// The command that was run.
    command: String,
    /// Cores that could be used.
    cores: usize,
    /// Whether generator and process under test had a core each.
    pinned: bool,
    /// Length of a round of one side, in seconds.
    round_seconds: f64,
    /// Rounds of each side.
    rounds: u32,
    /// Whether the machine had nothing else to do, as far as latencies tell.
    quiet: bool,
    /// What was found, a section for each workload.
    pub(crate) sections: Vec<Section>,
    /// The aims beside it.
    aims: Vec<Verdict>,
    /// What could not be measured.
    pub(crate) failed: Vec<Failed>,
}

impl Report {
    /// Holds what was found against the aims.
    pub(crate) fn new(plan: &Plan, sections: Vec<Section>, failed: Vec<Failed>) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Self {
            command: format!("cistern-bench {}", words.join(" ")).trim_end().to_owned(),
            cores: plan.cores.available,
            pinned: plan.cores.pinned.is_some(),
            round_seconds: plan.span.as_secs_f64(),
            rounds: plan.rounds,
            quiet: is_quiet(&sections),
            aims: aims::verdicts(&sections),
            sections,
            failed,
        }
    }

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
        let pinned = if self.pinned { "generator and process under test pinned to a core each" } else { "not pinned: too few cores" };
        writeln!(
            out,
            "{}\nMedians (and ranges) of {} rounds of {} s; {} cores, {pinned}. Ratios within the run are the figures, absolute times\n\
             are noise from machine to machine.\n",
            self.command, self.rounds, self.round_seconds, self.cores
        )?;
        self.sections.iter().try_for_each(|section| section.write(out))?;
        aims::write(&self.aims, out)?;
        for Failed { workload, why } in &self.failed {
            writeln!(out, "\n{workload} could not be measured: {why}")?;
        }
        if !self.quiet {
            writeln!(
                out,
                "\nOther programs were running: a p99 is above 1 ms. Run it again on a quiet machine for figures worth keeping."
            )?;
        }
        Ok(())
    }
}

/// Whether server, echo and generator had their cores for themselves: on loopback, only waiting for a core takes a millisecond.
fn is_quiet(sections: &[Section]) -> bool {
    let beside_echo = sections.iter().filter(|section| matches!(section.name, "echo" | "sessions"));
    beside_echo.flat_map(|section| &section.rows).filter_map(|row| row.number("p99_us")).all(|p99_us| p99_us < QUIET_P99_US)
}

/// Above every latency of a quiet machine, below every turn of a scheduler that shares a core.
const QUIET_P99_US: f64 = 1_000.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;
    use crate::section::Row;
    use std::time::Duration;

    fn report(p99_us: f64) -> Report {
        let mut section = Section::new("echo", "beside the echo");
        section.rows.push(Row::new(aims::CROWD).with("echo_over_server", "echo/ours", 0.92).with("p99_us", "p99 µs", p99_us));
        let plan = Plan { span: Duration::from_millis(500), rounds: 7, cores: Cores { available: 2, pinned: Some((0, 1)) } };
        Report::new(&plan, vec![section], vec![Failed { workload: "durable", why: "no such directory".to_owned() }])
    }

    #[test]
    fn table_shows_sections_then_aims_then_what_could_not_be_measured() {
        let table = report(90.0).table();
        let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text} is not in {table}"));
        assert!(at("7 rounds of 0.5 s") < at("beside the echo") && at("beside the echo") < at("Aims"));
        assert!(at("Aims") < at("durable could not be measured: no such directory"));
    }

    #[test]
    fn run_beside_other_programs_says_so() {
        assert!(!report(90.0).table().contains("Other programs"));
        assert!(report(4_000.0).table().contains("Other programs"));
    }

    #[test]
    fn json_has_the_same_figures_under_their_names() {
        let json: serde_json::Value = serde_json::from_str(&report(90.0).json()).unwrap();
        assert_eq!(json["sections"][0]["rows"][0]["echo_over_server"], 0.92);
        assert_eq!((&json["aims"][0]["measured"], &json["aims"][0]["reached"]), (&0.92.into(), &true.into()));
        assert_eq!(json["failed"][0]["workload"], "durable");
    }
}
