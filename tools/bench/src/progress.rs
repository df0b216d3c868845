//! Word of what is being measured, for a person who waits.
//!
//! Decides that progress is one line on standard error, written over and over, and nothing where that is no terminal.
//! Place: handed to every workload. Leaves to others: results, which go to standard output (`report`).

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Instant;

/// Tells what is being measured.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    begin: Instant,
}

impl Progress {
    /// Tells it if standard error is a terminal.
    pub(crate) fn new() -> Self {
        Self { shown: io::stderr().is_terminal(), begin: Instant::now() }
    }

    /// Says what is being measured from now on.
    pub(crate) fn say(&self, what: &str) {
        self.write(&format!("{:4.0} s  {what}", self.begin.elapsed().as_secs_f64()));
    }

    fn write(&self, line: &str) {
        if self.shown {
            // A terminal that is gone needs no word.
            let _ = write!(io::stderr(), "\r\x1b[K{line}");
            let _ = io::stderr().flush();
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.write("");
    }
}
