//! How the program ends: its exit statuses, and the one line that says why it could not do what was asked.
//!
//! Decides: that the statuses are those of the other programs (`cistern`, `cisternd`). Leaves to others: what goes wrong, and where.

use std::fmt;
use std::io;

/// The audit found a violation.
pub const EXIT_VIOLATION: u8 = 1;
/// Wrong usage.
pub const EXIT_USAGE: u8 = 2;
/// The input is not a capture, or is damaged from some point on; what could be read before that was shown.
pub const EXIT_DAMAGED: u8 = 65;
/// A file or an interface is not there, or cannot be opened.
pub const EXIT_NO_INPUT: u8 = 66;
/// The output cannot be written, or the system failed while reading.
pub const EXIT_IO: u8 = 74;
/// Not allowed to capture.
pub const EXIT_PERMISSION: u8 = 77;

/// Why the program cannot go on.
#[derive(Debug)]
pub struct Failure {
    /// The exit status; 0 when whoever read the output has gone, which is their choice and no failure.
    pub exit: u8,
    /// What was wrong, where, and what to do about it.
    pub text: String,
}

impl Failure {
    /// A failure with its exit status.
    pub fn new(exit: u8, text: impl Into<String>) -> Self {
        Self { exit, text: text.into() }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Trouble with the output: a reader that has gone (`| head`) ends the program quietly.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::new(0, String::new());
        }
        Self::new(EXIT_IO, format!("cannot write the output: {error}"))
    }
}
