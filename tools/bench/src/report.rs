//! What is printed: tables for people, JSON for scripts.
//!
//! Decides the frame around the sections: on what machine, how long, which aims were reached, what could not be measured.
//! Place: last step, called by `main`. Leaves to others: every number (`figures` and the workloads), the rows (`section`), the aims.

use crate::aims::{self, Verdict};
use crate::cases::Plan;
use crate::others::Others;
use crate::section::{Section, Style, digits};
use serde::Serialize;
use std::fmt::{self, Write as _};

/// A workload that could not be measured.
#[derive(Debug, Serialize)]
pub(crate) struct Failed {
    /// Which.
    pub(crate) workload: String,
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
    /// Length of a round of one side, in seconds.
    round_seconds: f64,
    /// Rounds of each side.
    rounds: u32,
    /// Whether the machine had next to nothing else to do; none: it does not tell.
    quiet: Option<bool>,
    /// Cores that other programs, and other machines on the same hardware, used on average; none: it does not tell.
    others_cores: Option<f64>,
    /// What was found, a section for each workload.
    pub(crate) sections: Vec<Section>,
    /// The aims beside it.
    aims: Vec<Verdict>,
    /// What could not be measured.
    pub(crate) failed: Vec<Failed>,
}

impl Report {
    /// Holds what was found against the aims.
    pub(crate) fn new(plan: &Plan, sections: Vec<Section>, failed: Vec<Failed>, others: Option<Others>) -> Self {
        let words: Vec<String> = std::env::args().skip(1).collect();
        Self {
            command: format!("cistern-bench {}", words.join(" ")).trim_end().to_owned(),
            cores: plan.cores.available,
            round_seconds: plan.span.as_secs_f64(),
            rounds: plan.rounds,
            quiet: others.map(|others| others.cores < QUIET_CORES),
            others_cores: others.map(|others| others.cores),
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
    pub(crate) fn table(&self, style: Style) -> String {
        let mut out = String::new();
        // Writing to a string does not fail.
        let _ = self.write(style, &mut out);
        out
    }

    fn write(&self, style: Style, out: &mut String) -> fmt::Result {
        writeln!(
            out,
            "{}\n\nMedians (and ranges) of {} rounds of {} s; {} cores. Ratios within the run are the figures, absolute times are noise\n\
             from machine to machine. {}\n",
            self.command,
            self.rounds,
            self.round_seconds,
            self.cores,
            self.company()
        )?;
        self.sections.iter().try_for_each(|section| section.write(style, out))?;
        aims::write(&self.aims, style, out)?;
        for Failed { workload, why } in &self.failed {
            writeln!(out, "\n{workload} could not be measured: {why}")?;
        }
        if self.quiet == Some(false) {
            writeln!(out, "\n{} Run it again on a quiet machine for figures worth keeping.", self.company())?;
        }
        Ok(())
    }

    /// What is known of others on the machine.
    fn company(&self) -> String {
        match (self.quiet, self.others_cores) {
            (Some(true), _) => "No other programs were running.".to_owned(),
            (_, Some(cores)) => format!("Other programs were running: on average they used {} of a core.", digits(cores)),
            _ => "Whether other programs were running is not known.".to_owned(),
        }
    }
}

/// What a system does by itself stays below this, in cores.
const QUIET_CORES: f64 = 0.05;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cores::Cores;
    use crate::section::Row;
    use std::time::Duration;

    fn report(others: Option<f64>) -> Report {
        let mut section = Section::new("cached", "in process");
        section.rows.push(Row::new("stat of an object").with("ns", "ns/call", 92.0));
        let plan = Plan { span: Duration::from_millis(500), rounds: 7, cores: Cores::find().unwrap() };
        let failed = vec![Failed { workload: "durable".to_owned(), why: "no such directory".to_owned() }];
        Report::new(&plan, vec![section], failed, others.map(|cores| Others { cores }))
    }

    #[test]
    fn table_shows_sections_then_aims_then_what_could_not_be_measured() {
        for style in [Style::Plain, Style::Markdown] {
            let table = report(Some(0.0)).table(style);
            let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("{text} is not in {table}"));
            assert!(at("7 rounds of 0.5 s") < at("in process") && at("in process") < at("Aims"));
            assert!(at("Aims") < at("durable could not be measured: no such directory"));
        }
    }

    #[test]
    fn run_beside_other_programs_says_so_whatever_was_measured() {
        let (quiet, busy, unknown) = (report(Some(0.01)), report(Some(1.5)), report(None));
        assert!(quiet.table(Style::Plain).contains("No other programs were running."));
        assert!(busy.table(Style::Plain).contains("used 1.50 of a core. Run it again"));
        assert!(unknown.table(Style::Plain).contains("is not known"));
        assert_eq!((quiet.quiet, busy.quiet, unknown.quiet), (Some(true), Some(false), None));
    }

    #[test]
    fn json_has_the_same_figures_under_their_names() {
        let json: serde_json::Value = serde_json::from_str(&report(None).json()).unwrap();
        assert_eq!(json["sections"][0]["rows"][0]["ns"], 92.0);
        let aims = json["aims"].as_array().unwrap();
        let stat = aims.iter().find(|aim| aim["load"] == "stat of an object").unwrap();
        assert_eq!((&stat["measured"], &stat["reached"]), (&92.0.into(), &true.into()));
        assert!(json["quiet"].is_null());
        assert_eq!(json["failed"][0]["workload"], "durable");
    }
}
