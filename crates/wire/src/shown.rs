//! How the value of a leaf is written for people.
//!
//! Decides: the text of a value by its `Shown`: words for codes, `#42` for an object, `500ms` for a span. Identifiers and random numbers
//! are hexadecimal with all their digits, as in the logs. Decides also, for every program, which characters reach a terminal. Place in the walk: beside it (`tree`).
//! Leaves to others: names and layout (inspector), calendars: a time is written as seconds since 1970.

use crate::shape::Shown;
use crate::tree::{Node, Value};
use core::fmt::{self, Write as _};
use core::time::Duration;

/// Bytes that should be text: as they are where they are printable UTF-8, every other byte and the backslash escaped, so that different
/// bytes never look the same.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<'a>(pub &'a [u8]);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c == '\\' { f.write_str("\\\\")? } else { printed(f, c)? }
            }
            chunk.invalid().iter().try_for_each(|byte| write!(f, "\\x{byte:02x}"))?;
        }
        Ok(())
    }
}

/// A line that was put together from text and names, for a terminal: what [`is_printable`] refuses is escaped, all else is as it is.
#[derive(Clone, Copy, Debug)]
pub struct Printable<'a>(pub &'a str);

impl fmt::Display for Printable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| printed(f, c))
    }
}

fn printed(f: &mut fmt::Formatter<'_>, c: char) -> fmt::Result {
    if is_printable(c) { f.write_char(c) } else { c.encode_utf8(&mut [0; 4]).bytes().try_for_each(|byte| write!(f, "\\x{byte:02x}")) }
}

/// Whether a character shows itself on a terminal and changes nothing else there. Control characters can move the cursor or end the line;
/// bidirectional controls change the order of what is around them; zero-width characters make different names look the same.
#[must_use]
pub const fn is_printable(c: char) -> bool {
    // The line ends, bidirectional controls and Default_Ignorable_Code_Point of Unicode 16, and the interlinear annotation.
    !matches!(c,
        '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// A leaf's value as text; nothing for other nodes.
impl fmt::Display for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(word) = self.word() {
            return f.write_str(word);
        }
        match self.value {
            Value::Parts => Ok(()),
            Value::Bool(value) => write!(f, "{value}"),
            Value::Bytes(bytes) if self.shown == Shown::Text => write!(f, "\"{}\"", Escaped(bytes)),
            Value::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
            Value::Signed(ns) if self.shown == Shown::Time => {
                let (sign, ns) = (if ns < 0 { "-" } else { "" }, ns.unsigned_abs());
                write!(f, "{sign}{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
            }
            Value::Signed(value) => write!(f, "{value}"),
            Value::Unsigned(value) => number(f, value, self.shown, 2 * self.len),
        }
    }
}

/// A number of so many hexadecimal digits.
fn number(f: &mut fmt::Formatter<'_>, value: u64, shown: Shown, digits: usize) -> fmt::Result {
    match shown {
        Shown::Hex => write!(f, "{value:0digits$x}"),
        Shown::Octal => write!(f, "{value:04o}"),
        Shown::Object => write!(f, "#{value}"),
        Shown::Micros => write!(f, "{:?}", Duration::from_micros(value)),
        Shown::Millis => write!(f, "{:?}", Duration::from_millis(value)),
        Shown::Bits(bits) => names(f, value, bits),
        _ => write!(f, "{value}"),
    }
}

/// The names of the bits that are set, and the number of those that have none.
fn names(f: &mut fmt::Formatter<'_>, value: u64, bits: &[(u64, &str)]) -> fmt::Result {
    let mut between = "";
    let mut nameless = value;
    for (bit, name) in bits.iter().filter(|(bit, _)| value & bit != 0) {
        write!(f, "{between}{name}")?;
        between = "|";
        nameless &= !bit;
    }
    if nameless != 0 || value == 0 { write!(f, "{between}{nameless:#x}") } else { Ok(()) }
}
