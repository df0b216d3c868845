//! The command lines of operators: check, restore and compact a stopped store; inspect, back up and evict at a running server.
//!
//! Decides: names of their flags, their help, their examples. Leaves to others: what they do (`stopped`, `admin`).

use clap::{Args, Subcommand};
use std::path::PathBuf;

pub(super) const CHECK_HELP: &str = "\
Reads all of the store once, and needs some 50 bytes of memory for each file, directory and link in it. Changes nothing of what the \
store holds. docs/operating.md says what each fault means.

Examples:
  cisternd check /var/lib/cistern/store
  cisternd check /var/lib/cistern/store --json | jq '.findings[].fault'

Exit status:
  0   the store is sound
  1   it is not: what is wrong is on standard output
  2   wrong usage
  65  the directory is something else
  66  there is no store
  74  the system could not read it
  75  another process, perhaps a server, has the store
  76  a newer version of cistern has written it
  77  no permission to read and write it, or unreliable file locks on its file system";

pub(super) const RESTORE_HELP: &str = "\
All sessions of the copy are over in the new store, and its epoch is above the copy's, so that every fencing token and id that follows \
is larger than every one before. What was changed after the copy was made is lost. The copy notes that it was restored, and may be restored \
again: it gets another epoch each time. Within an epoch numbers begin by the wall clock, which must not be behind that of an earlier \
restore. Where a later copy was ever restored, give the epoch that `cistern status` showed since with --above; agents refuse a store \
whose epoch is lower than they have seen.

Examples:
  cisternd restore /backup/monday /var/lib/cistern/store
  cisternd restore --above 4 /backup/sunday /var/lib/cistern/store

Exit status:
  0   restored
  1   not restored: no epochs are left, or the clock cannot be right
  2   wrong usage: the directory is not empty
  65  the copy is damaged (--damaged restores what is sound but for its structure), or something else
  66, 74, 75, 76, 77  as of `cisternd check`";

pub(super) const COMPACT_HELP: &str = "\
Rewrites the tables without what was removed, and empties the journals. Needs as much space again while it runs. A server does this by
itself, a little at a time, and when it has no room; after much was removed at once it is quicker.

Examples:
  cisternd compact /var/lib/cistern/store

Exit status:
  0   compacted
  2   wrong usage
  65, 66, 74, 75, 76, 77  as of `cisternd check`";

pub(super) const BACKUP_HELP: &str = "\
The server keeps running. The copy has everything acknowledged before the command was given, and is durable when the command \
ends. No server starts from it: `cisternd check` checks it, `cisternd restore` creates a store from it.

Examples:
  cistern admin backup /backup/monday

Exit status:
  0   the copy is complete and durable
  1   no copy: another backup is running, or the server keeps everything in memory
  2   wrong usage
  65  the directory is not empty
  69  no server answers at the control socket
  74  the store cannot be read, or the directory cannot be written
  77  the server's user may not write there";

const STATUS_HELP: &str = "\
Examples:
  cistern admin status
  cistern admin status --control /var/lib/cistern/server/control.sock --json

Exit status:
  0   success
  69  no server answers at the control socket";

const SESSIONS_HELP: &str = "\
Examples:
  cistern admin sessions
  cistern admin sessions --json

Exit status:
  0   success
  69  no server answers at the control socket";

const EVICT_HELP: &str = "\
The agent's locks are free after τ(1+δ): an eviction never frees a lock that may still be in use.

Exit status:
  0   success
  1   no such agent, or several
  69  no server answers at the control socket";

pub(super) const STATS_HELP: &str = "\
The names are those of `cisternd --metrics`; docs/operating.md explains each. Durations are in seconds. \
A histogram shows its count, its mean, and upper bounds of the median and the 99th percentile.

Examples:
  cistern admin stats
  cistern admin stats --json | jq '.cistern_sessions.samples'

Exit status:
  0   success
  69  no server answers at the control socket";

pub(super) const SETTINGS_HELP: &str = "\
Examples:
  cistern settings > cistern.toml
  cistern settings --effective
  cistern settings --effective --json | grep -v '\"default\"'
  cistern settings --control /var/lib/cistern/server/control.sock

Exit status:
  0   success
  2   a setting cannot be used
  69  --control: no server answers there";

#[derive(Args, Debug)]
pub(crate) struct SettingsArgs {
    #[command(flatten)]
    pub(crate) common: super::Common,
    /// Print the settings in force with their sources: default, settings file, flag or environment
    #[arg(long)]
    pub(crate) effective: bool,
    /// Print the settings in force at the running server with this control socket
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

/// Which server on this host is asked.
#[derive(Args, Debug)]
pub(crate) struct Control {
    /// The server's control socket; else that of this user's server without --state
    #[arg(long, env = "CISTERN_CONTROL", hide_env_values = true, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON; errors, too, as one object on standard error
    #[arg(long, help_heading = super::OUTPUT)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) server: Control,
}

#[derive(Args, Debug)]
pub(crate) struct Sessions {
    #[command(flatten)]
    pub(crate) server: Control,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    #[command(flatten)]
    pub(crate) server: Control,
    /// The agent: its id, its label, or a unique prefix of either
    #[arg(id = "who", value_name = "AGENT")]
    pub(crate) agent: String,
}

const INIT_HELP: &str = "\
Creates the store that `cisternd --store STORE` serves, and asserts that no agent holds a lock of an earlier server of this cluster. If such a server's \
store was lost, use --replacement.

Examples:
  cisternd init ./store
  cisternd init --replacement /var/lib/cistern/store

Exit status:
  0   created
  2   wrong usage
  65  the directory is not empty
  74  the directory cannot be written
  77  no permission to write it, or unreliable file locks on its file system";

/// What can be done with a store on which no server runs.
#[derive(Debug, Subcommand)]
pub(crate) enum StoppedCommand {
    /// Create an empty store
    #[command(after_help = INIT_HELP)]
    Init(Init),
    /// Check a stopped store: every record, and their consistency
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Create a store from a backup
    #[command(after_help = RESTORE_HELP)]
    Restore(Restore),
    /// Reclaim the space of deleted and replaced data
    #[command(after_help = COMPACT_HELP)]
    Compact(Compact),
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Directory of the new store, missing or empty, on a local file system
    #[arg(env = "CISTERN_STORE", hide_env_values = true, value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// The store replaces one that was lost: the server grants no lock until every lease of the earlier server has expired
    #[arg(long)]
    pub(crate) replacement: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The store's directory
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// List at most N faults; the others are counted
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub(crate) most: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The copy: a backup, or the directory of a store that was stopped
    pub(crate) copy: PathBuf,
    /// Directory of the new store, missing or empty
    pub(crate) store: PathBuf,
    /// Highest epoch seen: the store's will be above it, and above the copy's own
    #[arg(long, default_value_t = 0, value_name = "EPOCH")]
    pub(crate) above: u8,
    /// Restore even a damaged copy
    #[arg(long)]
    pub(crate) damaged: bool,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Compact {
    /// The store's directory
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What an operator asks of a running server through its control socket: whoever may open that file may ask.
#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// Show the server's state, counters and drops
    #[command(after_help = STATUS_HELP)]
    Status(Status),
    /// List the agents' sessions
    #[command(after_help = SESSIONS_HELP)]
    Sessions(Sessions),
    /// Show all metrics
    #[command(after_help = STATS_HELP)]
    Stats(Stats),
    /// End an agent's session: its locks are free after the lease period
    #[command(after_help = EVICT_HELP)]
    Evict(Evict),
    /// Copy a snapshot of the store while the server runs
    #[command(after_help = BACKUP_HELP)]
    Backup(Backup),
}

#[derive(Args, Debug)]
pub(crate) struct Backup {
    #[command(flatten)]
    pub(crate) server: Control,
    /// Destination directory, missing or empty, on the server's host; the server's user writes it
    pub(crate) dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Stats {
    #[command(flatten)]
    pub(crate) server: Control,
    /// Also show counters that are zero
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
}
