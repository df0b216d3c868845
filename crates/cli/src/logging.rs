//! The log: where it goes, how a line looks, what is in it by default.
//!
//! Decides: that it goes to standard error, never to standard output, which belongs to results; that daemons tell sessions and
//! lease events (`info`) and commands only what needs a person (`warn`), unless `CISTERN_LOG` says otherwise (`debug`: changes of
//! state, `trace`: datagrams; by crate: `warn,cistern_server=debug`).
//! Leaves to others: what is said; each line begins with who says it.

use env_logger::{Builder, Env, WriteStyle};
use std::io::Write;

/// Starts the log; `daemon` chooses the default level.
pub(crate) fn start(daemon: bool) {
    // The store's engine says at `info` what nobody but its makers needs.
    let level = if daemon { "info,fjall=warn,lsm_tree=warn" } else { "warn" };
    let env = Env::new().filter_or("CISTERN_LOG", level);
    let mut builder = Builder::from_env(env);
    builder.format(|out, record| {
        let style = out.default_level_style(record.level());
        let (time, level) = (out.timestamp_millis(), record.level());
        writeln!(out, "{time} {style}{level:<5}{style:#} {}", record.args())
    });
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        builder.write_style(WriteStyle::Never);
    }
    // Fails only if there is a log already, which then goes on.
    if builder.try_init().is_err() {
        log::debug!("the log had been started before");
    }
}
