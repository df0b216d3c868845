//! The log: where it goes, how a line looks, what is in it.
//!
//! Decides: that it goes to standard error, never to standard output, which belongs to results; that it goes there by a queue, so that
//! nothing waits for whoever reads it; that daemons log sessions and lease events (`info`) and commands only what needs a person (`warn`).
//! `-v` and `-q` take precedence over `CISTERN_LOG`, that over the settings file (daemons only), the file over the default. A running daemon
//! takes another filter from the file. Leaves to others: what is said; each line begins with who says it.

use crate::local::Failure;
use crate::options::Verbosity;
use cistern_driver::{LogQueue, LogRepeats};
use cistern_wire::Printable;
use env_filter::{Builder as FilterBuilder, Filter};
use env_logger::{Builder, Logger, Target, WriteStyle};
use log::{LevelFilter, Log, Metadata, Record};
use std::io::{IsTerminal, Write};
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};
use std::time::Duration;

/// How long the end of the program waits for a reader of standard error.
const FLUSH_TIME: Duration = Duration::from_secs(1);

static QUEUE: LazyLock<LogQueue> = LazyLock::new(LogQueue::default);

/// The filter of daemons. The store's engine says at `info` what nobody but its makers needs.
pub(crate) const DAEMON_FILTER: &str = "info,fjall=warn,lsm_tree=warn";
/// The filter of commands, which tell themselves why they have no session.
const COMMAND_FILTER: &str = "warn,cistern_client=error";

/// The filter with `-q`.
const QUIET_FILTER: &str = "error";
/// The filters of daemons and of commands with `-v`, `-vv` and so on.
const VERBOSE_FILTERS: [(&str, &str); 3] = [
    ("debug,fjall=warn,lsm_tree=warn", "info,fjall=warn,lsm_tree=warn"),
    ("trace,fjall=warn,lsm_tree=warn", "debug,fjall=warn,lsm_tree=warn"),
    ("trace", "trace"),
];

/// The variable that sets the filter.
const VARIABLE: &str = "CISTERN_LOG";

/// The log of this process, once it has started.
static LOG: OnceLock<Filtered> = OnceLock::new();

/// Lines of the log that pass a filter, which may be exchanged.
struct Filtered {
    sink: LogRepeats<Logger>,
    filter: RwLock<Filter>,
    /// What has set the filter, if no file changes it: `CISTERN_LOG`, `-v` or `-q`.
    fixed: Option<Fixed>,
}

impl Log for Filtered {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.read().unwrap_or_else(PoisonError::into_inner).enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            self.sink.log(record);
        }
    }

    fn flush(&self) {
        self.sink.flush();
    }
}

/// What sets the filter before any file.
#[derive(Clone, Debug)]
pub(crate) struct Fixed {
    /// `CISTERN_LOG`, `-v` or `-q`.
    pub(crate) by: &'static str,
    pub(crate) filter: String,
}

impl Fixed {
    fn of(daemon: bool, Verbosity { verbose, quiet }: Verbosity) -> Option<Self> {
        if quiet {
            return Some(Self { by: "-q", filter: QUIET_FILTER.to_owned() });
        }
        if let Some(more) = usize::from(verbose).checked_sub(1) {
            let (of_daemons, of_commands) = VERBOSE_FILTERS[more.min(VERBOSE_FILTERS.len() - 1)];
            return Some(Self { by: "-v", filter: if daemon { of_daemons } else { of_commands }.to_owned() });
        }
        let set = std::env::var_os(VARIABLE).filter(|text| !text.is_empty());
        set.map(|text| Self { by: VARIABLE, filter: text.to_string_lossy().into_owned() })
    }
}

/// Starts the log; `daemon` chooses the default filter.
///
/// # Errors
/// `CISTERN_LOG` is no filter; whoever set it is at fault.
pub(crate) fn start(daemon: bool, verbosity: Verbosity) -> Result<(), Failure> {
    let fixed = Fixed::of(daemon, verbosity);
    let default = if daemon { DAEMON_FILTER } else { COMMAND_FILTER };
    let text = fixed.as_ref().map_or(default, |fixed| &fixed.filter);
    let (filter, most) = parse(text).map_err(|why| Failure::usage(format!("{VARIABLE}: {why}")))?;
    let mut builder = Builder::new();
    builder.filter_level(LevelFilter::Trace).format(|out, record| {
        let style = out.default_level_style(record.level());
        let (time, level) = (out.timestamp_millis(), record.level());
        writeln!(out, "{time} {style}{level:<5}{style:#} {}", Printable(&record.args().to_string()))
    });
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    builder.write_style(if std::io::stderr().is_terminal() && !plain { WriteStyle::Always } else { WriteStyle::Never });
    builder.target(Target::Pipe(Box::new(QUEUE.clone())));
    let log = LOG.get_or_init(|| Filtered { sink: LogRepeats::new(builder.build()), filter: RwLock::new(filter), fixed });
    // Fails only if there is a log already, which then goes on.
    if log::set_logger(log).is_ok() {
        log::set_max_level(most);
    }
    Ok(())
}

/// Takes the filter of the settings file, unless it is fixed; whether it has.
pub(crate) fn adopt(filter: &str) -> bool {
    let Some(log) = LOG.get().filter(|log| log.fixed.is_none()) else { return false };
    // Checked when the file was read.
    if let Ok((filter, most)) = parse(filter) {
        *log.filter.write().unwrap_or_else(PoisonError::into_inner) = filter;
        log::set_max_level(most);
    }
    true
}

/// What has set the filter, if no file changes it.
pub(crate) fn fixed() -> Option<Fixed> {
    LOG.get().and_then(|log| log.fixed.clone())
}

/// Checks a filter; says what is wrong with it.
pub(crate) fn check(text: &str) -> Result<(), String> {
    parse(text).map(drop)
}

/// `LEVEL`, or `CRATE=LEVEL`, separated by commas; and the highest of the levels.
fn parse(text: &str) -> Result<(Filter, LevelFilter), String> {
    let mut filter = FilterBuilder::new();
    let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
    for word in words {
        let (part, level) = word.split_once('=').map_or((None, word), |(part, level)| (Some(part.trim()), level.trim()));
        let level: LevelFilter = level.parse().map_err(|_| {
            format!("{level:?} is no level: use off, error, warn, info, debug or trace, for all or for a crate: warn,cistern_server=debug")
        })?;
        filter.filter(part, level);
    }
    let filter = filter.build();
    let most = filter.filter();
    Ok((filter, most))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_levels_for_all_and_for_crates() {
        for (text, most) in [("info", LevelFilter::Info), ("WARN, cistern_server=debug", LevelFilter::Debug), ("off", LevelFilter::Off)] {
            assert_eq!(parse(text).map(|(_, most)| most), Ok(most), "{text}");
        }
        for text in ["inof", "warn,cistern_server=dbug", "warn=", "cistern_server"] {
            assert!(check(text).unwrap_err().contains("is no level: use off, error, warn"), "{text}");
        }
        let more = VERBOSE_FILTERS.iter().flat_map(|(of_daemons, of_commands)| [*of_daemons, *of_commands]);
        for filter in [DAEMON_FILTER, COMMAND_FILTER, QUIET_FILTER].into_iter().chain(more) {
            assert!(check(filter).is_ok(), "{filter}");
        }
    }
}
