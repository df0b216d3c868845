//! What all programs share at the terminal: how values are written, and how results look.
//!
//! Decides: one grammar for spans of time, sizes, rates and shares on command lines, in settings and in scripts; what a table, a line of
//! JSON and a line of progress look like; that what is printed cannot write to the terminal. Leaves to others: what is printed, and the exit
//! status.

mod print;
mod progress;
pub mod quantity;
mod values;

pub use print::{bytes, csv, digits, json, line, printable_json, row, table};
pub use progress::{Progress, progress};
pub use values::{duration, octal, size};
