//! Word of what is being measured, for a person who waits.
//!
//! Decides that progress is one line on standard error, written over and over, and nothing where that is no terminal.
//! Place: handed to every workload. Leaves to others: results, which go to standard output (`report`).

use std::time::Instant;

/// Tells what is being measured.
#[derive(Debug)]
pub(crate) struct Progress {
    begin: Instant,
}

impl Progress {
    /// Nothing is said yet.
    pub(crate) fn new() -> Self {
        Self { begin: Instant::now() }
    }

    /// Says what is being measured from now on.
    pub(crate) fn say(&self, what: &str) {
        cistern_text::progress(&format!("{:4.0} s  {what}", self.begin.elapsed().as_secs_f64()));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        cistern_text::progress("");
    }
}
