//! What is being done, for the person at a terminal: a line on standard error that is written over, and nothing where that is no terminal.

use cistern_wire::Printable;
use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A line of progress; it is taken away when this is dropped.
#[derive(Debug)]
pub struct Progress {
    terminal: bool,
    shown: bool,
    last: Instant,
}

impl Default for Progress {
    fn default() -> Self {
        Self { terminal: io::stderr().is_terminal(), shown: false, last: Instant::now() }
    }
}

impl Progress {
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
        self.shown = self.terminal;
        self.write(text);
    }

    /// Takes the line away.
    pub fn done(&mut self) {
        if self.shown {
            self.write("");
            self.shown = false;
        }
    }

    fn write(&self, text: &str) {
        if self.terminal {
            // A terminal that is gone needs no word.
            let mut out = io::stderr().lock();
            let _ = write!(out, "\r\x1b[K{}", Printable(text)).and_then(|()| out.flush());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.done();
    }
}
