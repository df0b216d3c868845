//! What the cores log, for a trace.
//!
//! Decides that log lines wait, by thread, until the trace takes them, so that they stand before the line of the happening in which
//! they were logged. Invariant: unless it is asked for, nothing is logged at all.
//! Leaves to others: where lines go (`trace`).

use log::{LevelFilter, Log, Metadata, Record};
use std::cell::RefCell;

thread_local! {
    static LINES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Lines;

impl Log for Lines {
    fn enabled(&self, _metadata: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = format!("{:>12}  {:<5} {}", "", record.level(), record.args());
        LINES.with_borrow_mut(|lines| lines.push(line));
    }

    fn flush(&self) {}
}

/// From now on traces have what the cores log, from this level on.
pub fn log_from(level: LevelFilter) {
    // A logger that is there already keeps its place; then its owner sees the lines.
    if log::set_logger(&Lines).is_ok() {
        log::set_max_level(level);
    }
}

/// What was logged on this thread since the last call.
pub(crate) fn take() -> Vec<String> {
    LINES.take()
}
