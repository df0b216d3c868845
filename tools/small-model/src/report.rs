//! What is printed: explorations, the ledger of bugs, and schedules, as text or as JSON.
//!
//! Decides the words and columns, nothing else. Text is for people and may change; JSON keeps its fields.

use crate::bugs::{Bug, Row};
use crate::check::{self, Verdict};
use crate::properties::Name;
use crate::rules::Rules;
use crate::trace;
use clap::ValueEnum;
use serde::Serialize;
use std::fmt::Write as _;

/// The bounds and the numbers of an exploration, in one line.
pub fn bounds(rules: &Rules) -> String {
    let time = rules.horizon.map_or_else(|| "all of time".to_owned(), |horizon| format!("{horizon} ticks"));
    let requests =
        rules.requests.map_or_else(|| "any number of lock requests".to_owned(), |most| format!("{most} lock requests per agent"));
    format!(
        "lease of {} ticks, wait of {} server ticks, {} server ticks in a tick; {time}, {requests}{}",
        rules.tau,
        rules.wait(),
        rules.server_rate,
        if rules.reduce { "" } else { ", not reduced" },
    )
}

fn options(rules: &Rules) -> String {
    let on: Vec<&str> = [(rules.rescue, "rescue"), (rules.surrender, "surrender"), (rules.last_heard, "last-heard")]
        .into_iter()
        .filter_map(|(on, name)| on.then_some(name))
        .collect();
    if on.is_empty() { "no options".to_owned() } else { on.join(" + ") }
}

/// Explorations of the model without bugs, as a table, and the schedule of the first break.
pub fn checked(verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    if let Some(first) = verdicts.first() {
        let _ = writeln!(text, "{}\n", bounds(&first.rules));
    }
    let heads = ["options", "states", "steps", "deepest", "seconds", "result"];
    let rows: Vec<Vec<String>> = verdicts
        .iter()
        .map(|verdict| {
            vec![
                options(&verdict.rules),
                verdict.states.to_string(),
                verdict.steps.to_string(),
                verdict.depth.to_string(),
                format!("{:.1}", verdict.seconds),
                result(verdict),
            ]
        })
        .collect();
    text.push_str(&table(&heads, &rows, 1..5));
    for verdict in verdicts {
        for unseen in &verdict.unseen {
            let _ = writeln!(text, "\nNever happened with {}: {unseen}.", options(&verdict.rules));
        }
        if let Some(broken) = verdict.broken.first() {
            let _ = writeln!(text, "\n{} is broken with {}:\n", broken.property, options(&verdict.rules));
            text.push_str(&trace::tell(&verdict.rules, &broken.schedule).table());
        }
    }
    if verdicts.iter().all(Verdict::is_clean) {
        let held: Vec<&str> = Name::value_variants().iter().map(|name| name.text()).collect();
        let _ = writeln!(text, "\nHeld in every state: {}.", held.join(", "));
    }
    text
}

fn result(verdict: &Verdict) -> String {
    if !verdict.broken.is_empty() {
        let broken: Vec<String> = verdict.broken.iter().map(|broken| format!("{} in {}", broken.property, broken.length)).collect();
        format!("BROKEN: {}", broken.join(", "))
    } else if !verdict.unseen.is_empty() {
        "VACUOUS".to_owned()
    } else {
        "clean, complete".to_owned()
    }
}

/// One bug, as it is told.
#[derive(Clone, Debug, Serialize)]
pub struct Hunted {
    bug: Bug,
    breaks: Name,
    /// Did it break what it must?
    pub found: bool,
    /// Steps of the shortest schedule that breaks it.
    length: Option<usize>,
    /// Lock requests of one agent in it.
    requests: Option<usize>,
    /// Ticks in it.
    ticks: Option<u32>,
    /// What broke on the way, by the shortest schedules.
    broken: Vec<check::Broken>,
    states: usize,
    complete: bool,
    seconds: f64,
}

impl Hunted {
    /// What came of the hunt for one bug.
    pub fn new(row: Row, verdict: &Verdict) -> Self {
        let goal = verdict.breaking(row.breaks);
        let schedule = goal.map(|broken| trace::tell(&verdict.rules, &broken.schedule));
        Hunted {
            bug: row.bug,
            breaks: row.breaks,
            found: goal.is_some(),
            length: goal.map(|broken| broken.length),
            requests: schedule.as_ref().map(|schedule| schedule.requests),
            ticks: schedule.as_ref().map(|schedule| schedule.ticks),
            broken: verdict.broken.clone(),
            states: verdict.states,
            complete: verdict.complete,
            seconds: verdict.seconds,
        }
    }

    fn cells(&self) -> Vec<String> {
        let number = |value: Option<usize>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        // The first sign, where it is not the property itself.
        let sign = self.broken.first().filter(|sign| sign.property != self.breaks.text());
        let note = match (self.found, self.complete) {
            (false, _) => "MISSED",
            (true, true) if self.breaks != Name::Exclusion => "all explored",
            (true, _) => "",
        };
        let exclusion = self.broken.iter().any(|broken| broken.property == Name::Exclusion.text());
        vec![
            self.bug.name(),
            self.breaks.text().to_owned(),
            number(self.length),
            number(self.requests),
            self.ticks.map_or_else(|| "-".to_owned(), |ticks| ticks.to_string()),
            sign.map_or_else(|| "-".to_owned(), |sign| format!("{} in {}", sign.property, sign.length)),
            self.states.to_string(),
            format!("{:.2}", self.seconds),
            if note == "all explored" && !exclusion { "exclusion holds in all states".to_owned() } else { note.to_owned() },
        ]
    }
}

/// The ledger as a table, with the line that counts.
pub fn hunted(rules: &Rules, hunted: &[Hunted]) -> String {
    let heads = ["bug", "breaks", "steps", "requests", "ticks", "first sign", "states", "seconds", ""];
    let rows: Vec<Vec<String>> = hunted.iter().map(Hunted::cells).collect();
    let found = hunted.iter().filter(|hunted| hunted.found).count();
    let mut text = format!("{}\n\n{}", bounds(rules), table(&heads, &rows, 2..5));
    let _ = writeln!(text, "\n{found} found, {} missed", hunted.len() - found);
    text
}

/// Columns aligned; those in `right` to the right.
fn table(heads: &[&str], rows: &[Vec<String>], right: std::ops::Range<usize>) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).chain([heads[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    let head: Vec<String> = heads.iter().map(|head| (*head).to_owned()).collect();
    for row in std::iter::once(&head).chain(rows) {
        let cells: Vec<String> = row
            .iter()
            .enumerate()
            .map(
                |(column, cell)| {
                    if right.contains(&column) { format!("{cell:>0$}", widths[column]) } else { format!("{cell:<0$}", widths[column]) }
                },
            )
            .collect();
        text.push_str(cells.join("  ").trim_end());
        text.push('\n');
    }
    text
}
