//! How results look: columns for people, JSON for scripts, errors as one line.
//!
//! Decides: formats of sizes, times and modes; that output to a closed pipe ends the program quietly.
//! Leaves to others: what is shown.

use crate::execute::{EXIT_FAILED, EXIT_USAGE};
use crate::local::{Attributes, Failure};
use crate::logging;
use cistern_text::printable_json;
use cistern_wire::Printable;
use jiff::Timestamp;
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Writes text to standard output, and a line end. Names in it cannot write to the terminal.
pub(crate) fn line(text: impl AsRef<str>) -> Result<(), Failure> {
    cistern_text::line(text).map_err(output)
}

/// Writes bytes to standard output.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Failure> {
    cistern_text::bytes(bytes).map_err(output)
}

/// Writes a value as one line of JSON.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    cistern_text::json(value).map_err(output)
}

/// Writes lines, if there are any.
pub(crate) fn text(text: &str) -> Result<(), Failure> {
    if text.is_empty() { Ok(()) } else { line(text) }
}

/// Rows in aligned columns.
pub(crate) fn columns(rows: &[Vec<String>]) -> String {
    cistern_text::table(rows, 0..0)
}

/// Names and values in two columns.
pub(crate) fn pairs<const N: usize>(rows: [(&str, String); N]) -> String {
    columns(&rows.map(|(name, value)| vec![name.to_owned(), value]))
}

/// Rows in aligned columns, printed.
pub(crate) fn table(rows: &[Vec<String>]) -> Result<(), Failure> {
    text(&columns(rows))
}

fn output(e: io::Error) -> Failure {
    // Whoever read the output has had enough: the convention is to end without a word.
    let message = if e.kind() == io::ErrorKind::BrokenPipe { String::new() } else { format!("standard output: {e}") };
    Failure::new("OUTPUT", EXIT_FAILED, message)
}

/// Errors are shown as JSON.
static JSON: AtomicBool = AtomicBool::new(false);

/// Shows errors as JSON from now on.
pub(crate) fn errors_as_json() {
    JSON.store(true, Ordering::Relaxed);
}

/// Tells what is wrong with the command line, and ends the process; what was only asked for (help, version) is shown instead.
pub(crate) fn usage(program: &str, wrong: &clap::Error) -> ! {
    if !wrong.use_stderr() {
        wrong.exit()
    }
    let (exit, text) = (u8::try_from(wrong.exit_code()).unwrap_or(EXIT_USAGE), wrong.to_string());
    if asks_for_json(std::env::args_os()) {
        errors_as_json();
        error(program, &Failure::new("USAGE", exit, text.trim_end().trim_start_matches("error: ")));
    } else {
        // It quotes the words that were given.
        text.trim_end().split('\n').for_each(|line| logging::say(&Printable(line).to_string()));
    }
    std::process::exit(exit.into())
}

/// Whether the words of a command line that cannot be read ask for JSON; those of a command to be run do not count.
fn asks_for_json(words: impl IntoIterator<Item = OsString>) -> bool {
    words.into_iter().take_while(|word| word != "--").any(|word| word == "--json")
}

/// Tells what went wrong: a line for a person, or an object for a program.
pub(crate) fn error(program: &str, failure: &Failure) {
    if failure.message.is_empty() {
        return;
    }
    if JSON.load(Ordering::Relaxed) {
        logging::say(&printable_json(&serde_json::json!({ "error": failure }).to_string()));
    } else {
        logging::say(&format!("{program}: {}", Printable(&failure.message)));
    }
}

/// Permission bits as `ls -l` writes them.
pub(crate) fn mode(attr: &Attributes) -> String {
    let kind = match attr.kind.as_str() {
        "directory" => 'd',
        "symlink" => 'l',
        _ => '-',
    };
    let bit = |mask: u16, c: char| if attr.mode & mask != 0 { c } else { '-' };
    let special = |mask: u16, exec: u16, both: char, only: char| match (attr.mode & mask != 0, attr.mode & exec != 0) {
        (true, true) => both,
        (true, false) => only,
        (false, true) => 'x',
        (false, false) => '-',
    };
    [
        kind,
        bit(0o400, 'r'),
        bit(0o200, 'w'),
        special(0o4000, 0o100, 's', 'S'),
        bit(0o040, 'r'),
        bit(0o020, 'w'),
        special(0o2000, 0o010, 's', 'S'),
        bit(0o004, 'r'),
        bit(0o002, 'w'),
        special(0o1000, 0o001, 't', 'T'),
    ]
    .iter()
    .collect()
}

/// Nanoseconds since 1970 as a UTC time.
pub(crate) fn time(ns: i64) -> String {
    // Every such number is a time of jiff.
    Timestamp::from_nanosecond(ns.into()).unwrap_or_default().strftime("%F %H:%M").to_string()
}

/// A span in milliseconds, in the unit a person would use.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms / 1_000 % 60),
        _ => format!("{} h {} min", ms / 3_600_000, ms / 60_000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_calendar_s() {
        for (ns, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_400_000_000_000, "2000-02-29 00:00"),
            (1_700_000_000_000_000_000, "2023-11-14 22:13"),
            (-86_400_000_000_000, "1969-12-31 00:00"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn spans_are_in_the_unit_people_use() {
        for (ms, text) in [(0, "0 ms"), (999, "999 ms"), (2_021, "2.0 s"), (61_000, "1 min 1 s"), (3_660_000, "1 h 1 min")] {
            assert_eq!(span(ms), text);
        }
    }
}
