//! What is being done, for the person at a terminal: a line on standard error that is written over, and nothing where that is no terminal.

use cistern_wire::Printable;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Writes over the line of progress at once; with no text takes it away.
pub fn progress(text: &str) {
    let mut out = io::stderr().lock();
    if out.is_terminal() {
        // A terminal that is gone needs no word.
        let _ = write!(out, "\r\x1b[K{}", Printable(text)).and_then(|()| out.flush());
    }
}

/// A line of progress; it is taken away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    quiet: bool,
    shown: bool,
    last: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self::new(false)
    }
}

impl Progress {
    /// A line that has not been shown yet; of one that is quiet nothing is ever shown.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        Self { quiet, shown: false, last: Instant::now() }
    }

    /// Shows what is being done, at most a few times a second, and not in the first second.
    pub fn tell(&mut self, text: &str) {
        let wait = Duration::from_millis(if self.shown { 200 } else { 1_000 });
        if self.last.elapsed() >= wait {
            self.last = Instant::now();
            self.show(text);
        }
    }

    /// Shows it at once.
    pub fn show(&mut self, text: &str) {
        if !self.quiet {
            self.shown = true;
            progress(text);
        }
    }

    /// Takes the line away.
    pub fn done(&mut self) {
        if self.shown {
            progress("");
            self.shown = false;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_line_is_never_shown() {
        for quiet in [false, true] {
            let mut line = Progress::new(quiet);
            line.show("what is done");
            assert_eq!(line.shown, !quiet);
        }
    }
}
