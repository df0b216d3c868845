//! A script: commands with their times.
//!
//! Decides the format of the file: a line is a time and a command, or a span (`5s..8s`) and a rule that ends with it; `#` begins a remark.
//!
//! ```text
//! 0s        delay 5ms jitter 2ms
//! 2s        cut a->s agent 1          # from here to the heal below
//! 3.5s      heal cut
//! 5s..8s    loss 20% kind DEMAND
//! 10s       end
//! ```
//!
//! Invariant: events are in the order of their times, those of one time in the order of the file.
//! Leaves to others: the commands (`command`), running them (`proxy`).

use crate::command::Command;
use crate::words::{Mistake, Word, Words, span};

/// A command at its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// When, in nanoseconds from the start of the proxy.
    pub at: u64,
    /// Of a rule, when it ends by itself.
    pub until: Option<u64>,
    /// What.
    pub command: Command,
}

/// What is wrong with a script, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, {mistake}")]
pub struct ScriptError {
    /// The line, from 1.
    pub line: usize,
    /// The column, and what is wrong there.
    pub mistake: Mistake,
}

/// Reads a script.
///
/// # Errors
/// [`ScriptError`], with line and column; whoever wrote the script is at fault.
pub fn parse(text: &str) -> Result<Vec<Event>, ScriptError> {
    let mut events = Vec::new();
    for (line, text) in (1..).zip(text.lines()) {
        events.extend(event(text).map_err(|mistake| ScriptError { line, mistake })?);
    }
    events.sort_by_key(|event: &Event| event.at);
    Ok(events)
}

fn event(line: &str) -> Result<Option<Event>, Mistake> {
    let mut words = Words::of(line);
    let Some(time) = words.next() else { return Ok(None) };
    let (at, until) = match time.text.split_once("..") {
        None => (span(time)?, None),
        Some((from, to)) => {
            let to = Word { text: to, column: time.column + from.chars().count() + 2 };
            let (from, until) = (span(Word { text: from, ..time })?, span(to)?);
            if until <= from {
                return Err(to.wrong("a span must end after it begins"));
            }
            (from, Some(until))
        }
    };
    let first = words.peek();
    let command = Command::read(&mut words)?;
    match (first, until) {
        (Some(word), Some(_)) if !matches!(command, Command::Set(..)) => Err(word.wrong("only a rule can have a span; give a single time")),
        _ => Ok(Some(Event { at, until, command })),
    }
}
