//! The log: where it goes, how a line looks, what is in it by default.
//!
//! Decides: that it goes to standard error, never to standard output, which belongs to results; that it goes there by a queue, so that
//! nothing waits for whoever reads it; that daemons tell sessions and lease events (`info`) and commands only what needs a person
//! (`warn`), unless `CISTERN_LOG` says otherwise (`debug`: changes of state, `trace`: datagrams; by crate: `warn,cistern_server=debug`).
//! Leaves to others: what is said; each line begins with who says it.

use cistern_driver::LogQueue;
use cistern_wire::Printable;
use env_logger::{Builder, Env, Target, WriteStyle};
use std::io::{IsTerminal, Write};
use std::sync::LazyLock;
use std::time::Duration;

/// How long the end of the program waits for a reader of standard error.
const FLUSH_TIME: Duration = Duration::from_secs(1);

static QUEUE: LazyLock<LogQueue> = LazyLock::new(LogQueue::default);

/// Starts the log; `daemon` chooses the default level.
pub(crate) fn start(daemon: bool) {
    // The store's engine says at `info` what nobody but its makers needs.
    let level = if daemon { "info,fjall=warn,lsm_tree=warn" } else { "warn" };
    let env = Env::new().filter_or("CISTERN_LOG", level);
    let mut builder = Builder::from_env(env);
    builder.format(|out, record| {
        let style = out.default_level_style(record.level());
        let (time, level) = (out.timestamp_millis(), record.level());
        writeln!(out, "{time} {style}{level:<5}{style:#} {}", Printable(&record.args().to_string()))
    });
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    builder.write_style(if std::io::stderr().is_terminal() && !plain { WriteStyle::Always } else { WriteStyle::Never });
    builder.target(Target::Pipe(Box::new(QUEUE.clone())));
    // Fails only if there is a log already, which then goes on.
    if builder.try_init().is_err() {
        log::debug!("the log had been started before");
    }
}

/// Writes a line of the program's own to standard error, behind what was logged. If nobody reads there, it is not waited for.
pub(crate) fn say(line: &str) {
    // A queue in memory takes everything.
    let _ = QUEUE.clone().write_all(format!("{line}\n").as_bytes());
    flush();
}

/// Waits until everything is written, if somebody reads it.
pub(crate) fn flush() {
    QUEUE.flush(FLUSH_TIME);
}
