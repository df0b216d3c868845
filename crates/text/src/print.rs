//! Results on standard output: lines and columns for people, JSON and comma-separated values for scripts.

use cistern_wire::{Printable, is_printable};
use serde::Serialize;
use std::io::{self, Write as _};
use std::ops::Range;

/// Writes text to standard output, and a line end. Names in it cannot write to the terminal.
///
/// # Errors
/// Standard output cannot be written.
pub fn line(text: impl AsRef<str>) -> io::Result<()> {
    // Some commands show several lines at once.
    let lines: String = text.as_ref().split('\n').map(|line| format!("{}\n", Printable(line))).collect();
    bytes(lines.as_bytes())
}

/// Writes bytes to standard output.
///
/// # Errors
/// Standard output cannot be written; [`io::ErrorKind::BrokenPipe`] if its reader has had enough.
pub fn bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Writes a value as one line of JSON.
///
/// # Errors
/// As [`bytes`]; or the value is none that JSON can have.
pub fn json(value: &impl Serialize) -> io::Result<()> {
    bytes(format!("{}\n", printable_json(&serde_json::to_string(value)?)).as_bytes())
}

/// The same JSON with every character escaped that is not printable. Only strings have such characters.
#[must_use]
pub fn printable_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        if is_printable(c) {
            text.push(c);
        } else {
            text.extend(c.encode_utf16(&mut [0; 2]).iter().map(|unit| format!("\\u{unit:04x}")));
        }
    }
    text
}

/// Rows in aligned columns, each row a line; the columns in `right` are aligned to the right.
#[must_use]
pub fn table(rows: &[Vec<String>], right: Range<usize>) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..columns).map(width).collect();
    let lines = rows.iter().map(|row| {
        let cells = row
            .iter()
            .zip(&widths)
            .enumerate()
            .map(|(column, (cell, width))| if right.contains(&column) { format!("{cell:>width$}") } else { format!("{cell:<width$}") });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Rows as comma-separated values; as RFC 4180 has them, but for the ends of lines.
#[must_use]
pub fn csv(rows: &[Vec<String>]) -> String {
    let quoted = |cell: &String| match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.clone(),
    };
    rows.iter().map(|row| row.iter().map(quoted).collect::<Vec<_>>().join(",") + "\n").collect()
}

/// A row of texts.
#[must_use]
pub fn row<const N: usize>(cells: [&dyn ToString; N]) -> Vec<String> {
    cells.iter().map(|cell| cell.to_string()).collect()
}

/// A number with all its digits, as JSON writes it.
#[must_use]
pub fn digits(number: &impl Serialize) -> String {
    serde_json::to_string(number).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_hidden_character_and_is_read_as_before() {
        let value = "a\u{202e}b\u{7f}\u{e0041}\x1bλ\n";
        let text = printable_json(&serde_json::to_string(value).unwrap());
        assert!(text.chars().all(is_printable), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text).unwrap(), value);
    }

    #[test]
    fn columns_are_aligned_by_characters() {
        let rows = [row([&"τ", &"1", &"x"]), row([&"long", &"100", &""]), row([&"b", &"20"])];
        assert_eq!(table(&rows, 1..2), "τ       1  x\nlong  100\nb      20");
        assert_eq!(csv(&[row([&"a,b", &"c\"d", &"e"])]), "\"a,b\",\"c\"\"d\",e\n");
    }
}
