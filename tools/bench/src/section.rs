//! What a workload has found, as rows of named figures; the one shape that tables and JSON are made of.
//!
//! Decides how figures are written: as many digits as mean something, a range behind a median. Place: between the workloads, which
//! fill it, and `report`, which shows it. Invariant: a figure has the same name in the table of JSON and for the aims.
//! Leaves to others: what is measured (each workload), what is aimed at (`aims`).

use crate::figures::{Column, Spread};
use serde::ser::{Serialize, SerializeMap as _, Serializer};
use std::fmt::{self, Write as _};

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Figure {
    /// A number of things.
    Count(u64),
    /// A value of the whole run.
    Value(f64),
    /// A value with its range over rounds.
    Spread(Spread),
}

impl Figure {
    /// The figure as one number: of a spread its median.
    #[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^53")]
    pub(crate) const fn number(&self) -> f64 {
        match self {
            Self::Count(count) => *count as f64,
            Self::Value(value) => *value,
            Self::Spread(spread) => spread.median,
        }
    }
}

impl From<u64> for Figure {
    fn from(count: u64) -> Self {
        Self::Count(count)
    }
}

impl From<f64> for Figure {
    fn from(value: f64) -> Self {
        Self::Value(value)
    }
}

impl From<Spread> for Figure {
    fn from(spread: Spread) -> Self {
        Self::Spread(spread)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => f.pad(&grouped(&count.to_string())),
            Self::Value(value) => f.pad(&digits(*value)),
            Self::Spread(Spread { median, min, max }) => f.pad(&format!("{} ({} to {})", digits(*median), digits(*min), digits(*max))),
        }
    }
}

/// A value with three digits that mean something, or more where it is large.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 0.000_95 => format!("{value:.1e}"),
        size if size < 0.095 => format!("{value:.4}"),
        size if size < 10.0 => format!("{value:.2}"),
        size if size < 100.0 => format!("{value:.1}"),
        _ => grouped(&format!("{value:.0}")),
    }
}

/// A whole number with a comma before each three digits.
fn grouped(number: &str) -> String {
    let mut out = String::new();
    for (at, digit) in number.chars().enumerate() {
        let left = number.len() - at;
        if at > 0 && left.is_multiple_of(3) && !out.ends_with('-') {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// One load and its figures, each with its name in JSON and the words over its column.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    /// The load, in words.
    pub(crate) load: String,
    figures: Vec<(&'static str, &'static str, Figure)>,
}

impl Row {
    /// A row without figures.
    pub(crate) fn new(load: impl Into<String>) -> Self {
        Self { load: load.into(), figures: Vec::new() }
    }

    /// The same row of a load that is called otherwise.
    #[cfg(feature = "peers")]
    pub(crate) fn named(mut self, name: impl FnOnce(&str) -> String) -> Self {
        self.load = name(&self.load);
        self
    }

    /// Adds a figure.
    pub(crate) fn with(mut self, key: &'static str, head: &'static str, figure: impl Into<Figure>) -> Self {
        self.figures.push((key, head, figure.into()));
        self
    }

    /// The figures that every exchange with a process under test has.
    pub(crate) fn exchanges(self, column: &Column) -> Self {
        self.with("cpu_us", "server µs/op", column.cpu_us)
            .with("per_second", "op/s", column.per_second.median)
            .with("p50_us", "p50 µs", column.p50_us.median)
            .with("p99_us", "p99 µs", column.p99_us.median)
            .with("p999_us", "p99.9 µs", column.p999_us.median)
            .with("datagrams", "datagrams/op", column.datagrams)
            .with("bytes", "bytes/op", column.bytes)
            .with("sleeps", "sleeps/op", column.sleeps.median)
            .with("resent", "resent", column.resent)
            .with("operations", "operations", column.exchanges)
    }

    /// The figure of that name as one number.
    pub(crate) fn number(&self, key: &str) -> Option<f64> {
        self.figures.iter().find(|(name, ..)| *name == key).map(|(_, _, figure)| figure.number())
    }
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.figures.len() + 1))?;
        map.serialize_entry("load", &self.load)?;
        for (key, _, figure) in &self.figures {
            match figure {
                Figure::Count(count) => map.serialize_entry(key, count)?,
                Figure::Value(value) => map.serialize_entry(key, value)?,
                Figure::Spread(spread) => map.serialize_entry(key, spread)?,
            }
        }
        map.end()
    }
}

/// How tables are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Style {
    /// In columns, for a terminal.
    Plain,
    /// As Markdown, for docs/performance.md.
    Markdown,
}

impl Style {
    /// A title, and the empty line after it.
    pub(crate) fn title(self, out: &mut String, title: &str) -> fmt::Result {
        match self {
            Self::Plain => writeln!(out, "{title}:\n"),
            Self::Markdown => writeln!(out, "### {title}\n"),
        }
    }
}

/// What one workload has found.
#[derive(Clone, Debug, serde::Serialize)]
pub(crate) struct Section {
    /// The workload.
    pub(crate) name: &'static str,
    /// What was done, in words.
    pub(crate) title: String,
    /// Whether generator and process under test had a core each.
    pub(crate) pinned: bool,
    /// One row a load.
    pub(crate) rows: Vec<Row>,
    /// What there is to say besides, a paragraph each.
    pub(crate) notes: Vec<String>,
}

impl Section {
    /// A section without rows.
    pub(crate) fn new(name: &'static str, title: impl Into<String>) -> Self {
        Self { name, title: title.into(), pinned: false, rows: Vec::new(), notes: Vec::new() }
    }

    /// Adds a remark.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// As a table under its title.
    pub(crate) fn write(&self, style: Style, out: &mut String) -> fmt::Result {
        let pinned = if self.pinned { "pinned to a core each" } else { "nobody pinned" };
        match style {
            Style::Plain => writeln!(out, "{}: {}; {pinned}\n", self.name, self.title)?,
            Style::Markdown => writeln!(out, "### `{}`\n\n{}; {pinned}.\n", self.name, self.title)?,
        }
        let mut heads: Vec<(&str, &str)> = Vec::new();
        for (key, head, _) in self.rows.iter().flat_map(|row| &row.figures) {
            if !heads.iter().any(|(known, _)| known == key) {
                heads.push((key, head));
            }
        }
        let mut lines = vec![vec![String::new()]];
        lines[0].extend(heads.iter().map(|(_, head)| (*head).to_owned()));
        for row in &self.rows {
            let mut line = vec![row.load.clone()];
            for (key, _) in &heads {
                let found = row.figures.iter().find(|(name, ..)| name == key);
                line.push(found.map_or_else(|| "-".to_owned(), |(_, _, figure)| figure.to_string()));
            }
            lines.push(line);
        }
        columns(out, style, &lines)?;
        for note in &self.notes {
            match style {
                Style::Plain => writeln!(out, "  {note}")?,
                Style::Markdown => writeln!(out, "\n{note}")?,
            }
        }
        writeln!(out)
    }
}

/// Lines of cells in columns: the first to the left, the others to the right; the first line is their heads.
pub(crate) fn columns(out: &mut String, style: Style, lines: &[Vec<String>]) -> fmt::Result {
    if style == Style::Markdown {
        for (at, line) in lines.iter().enumerate() {
            let cells: Vec<String> = line.iter().map(|cell| cell.trim().replace('|', "\\|")).collect();
            writeln!(out, "| {} |", cells.join(" | "))?;
            if at == 0 {
                writeln!(out, "|{}", "---|".repeat(line.len()))?;
            }
        }
        return Ok(());
    }
    let count = lines.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| lines.iter().filter_map(|line| line.get(at)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..count).map(width).collect();
    for line in lines {
        let mut text = String::from(" ");
        for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
            if at == 0 {
                write!(text, " {cell:<width$}")?;
            } else {
                write!(text, "  {cell:>width$}")?;
            }
        }
        writeln!(out, "{}", text.trim_end())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_the_digits_that_mean_something() {
        let shown = [0.0, 0.000_045, 0.0123, 0.91, 2.345, 56.78, 371.4, 1_234_567.8].map(digits);
        assert_eq!(shown, ["0", "4.5e-5", "0.0123", "0.91", "2.35", "56.8", "371", "1,234,568"]);
        assert_eq!(Figure::Count(1_000).to_string(), "1,000");
        assert_eq!(digits(-123_456.0), "-123,456");
    }

    #[test]
    fn table_has_a_column_for_every_figure_that_any_row_has() {
        let mut section = Section::new("x", "things").note("Mind the gap.");
        section.rows.push(Row::new("one").with("a", "A", 1_u64));
        section.rows.push(Row::new("three").with("b", "BB", Spread { median: 2.0, min: 1.0, max: 3.0 }));
        let mut out = String::new();
        section.write(Style::Plain, &mut out).unwrap();
        let lines: Vec<&str> = out.lines().map(str::trim_end).collect();
        assert_eq!(lines[2], "         A                   BB");
        assert_eq!(lines[3], "  one    1                    -");
        assert_eq!(lines[4], "  three  -  2.00 (1.00 to 3.00)");
        assert_eq!(lines[5], "  Mind the gap.");
        out.clear();
        section.pinned = true;
        section.write(Style::Markdown, &mut out).unwrap();
        let markdown = "### `x`\n\nthings; pinned to a core each.\n\n|  | A | BB |\n|---|---|---|\n| one | 1 | - |\n| three | - | 2.00 (1.00 to 3.00) |\n";
        assert_eq!(out, format!("{markdown}\nMind the gap.\n\n"));
    }

    #[test]
    fn json_has_each_figure_under_its_name() {
        let row = Row::new("one").with("a", "A", 1_u64).with("b", "B", 0.5).with("c", "C", Spread { median: 2.0, min: 1.0, max: 3.0 });
        let json = serde_json::to_value(&row).unwrap();
        assert_eq!(json, serde_json::json!({"load": "one", "a": 1, "b": 0.5, "c": {"median": 2.0, "min": 1.0, "max": 3.0}}));
        assert_eq!((row.number("c"), row.number("d")), (Some(2.0), None));
    }
}
