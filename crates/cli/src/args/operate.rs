//! The command lines of operators: check, restore and compact a stopped store; back up, ask and tell a running server.
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
  77  it may not be read and written, or its file system's locks are not to be trusted";

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
The server goes on meanwhile. The copy has everything that was answered before the command was given; it is durable when the command \
ends. No server starts from it: `cisternd check` checks it, `cisternd restore` makes a server's store of it.

Examples:
  cistern admin backup /backup/monday

Exit status:
  0   the copy is whole and durable
  1   there is none: a backup is being made already, or the server keeps everything in memory
  2   wrong usage
  65  the directory is not empty
  69  no server answers at the control socket
  74  the store cannot be read, or the directory cannot be written
  77  the server's user may not write there";

pub(super) const STATS_HELP: &str = "\
The names are those of `cisternd --metrics`; docs/operating.md says what each means and what to do about it. Spans are in seconds. \
Of a histogram: how many were measured, their mean, and the bounds below which a half and 99 of 100 were.

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
    /// Ask the running server with this control socket for the settings in force there
    #[arg(long, value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    /// The agent: its id or the beginning of it, or its label
    #[arg(id = "who", value_name = "AGENT")]
    pub(crate) agent: String,
    /// The server's control socket; else the one of a server of this user without --state
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// What can be done with a store on which no server runs.
#[derive(Debug, Subcommand)]
pub(crate) enum StoppedCommand {
    /// Check a stopped store: every record, and all of them beside each other
    #[command(after_help = CHECK_HELP)]
    Check(Check),
    /// Make a store of a backup
    #[command(after_help = RESTORE_HELP)]
    Restore(Restore),
    /// Give back the space of what was deleted or replaced
    #[command(after_help = COMPACT_HELP)]
    Compact(Compact),
}

#[derive(Args, Debug)]
pub(crate) struct Check {
    /// The store's directory
    #[arg(env = "CISTERN_STORE", value_name = "STORE")]
    pub(crate) store: PathBuf,
    /// List at most so many faults; the others are counted
    #[arg(long, default_value_t = 1_000, value_name = "COUNT")]
    pub(crate) most: usize,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Restore {
    /// The copy: a backup, or the directory of a store that was stopped
    pub(crate) copy: PathBuf,
    /// The directory of the new store; missing or empty
    pub(crate) store: PathBuf,
    /// Epochs that were seen: the store's will be above this one, and above the copy's own
    #[arg(long, default_value_t = 0, value_name = "EPOCH")]
    pub(crate) above: u8,
    /// Although the copy is not sound
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

/// What an operator can have of a running server, by its control socket: whoever may open that file may ask.
#[derive(Debug, Subcommand)]
pub(crate) enum Admin {
    /// Show every figure that the server has counted
    #[command(after_help = STATS_HELP)]
    Stats(Stats),
    /// Copy the store while the server runs: all of it as it is at one moment
    #[command(after_help = BACKUP_HELP)]
    Backup(Backup),
}

#[derive(Args, Debug)]
pub(crate) struct Backup {
    /// Where to: missing or empty, on the server's host, to be written by the server's user
    pub(crate) dir: PathBuf,
    /// The server's control socket; else the one of a server of this user without --state
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// The server's control socket; else the one of a server of this user without --state
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET")]
    pub(crate) control: Option<PathBuf>,
    /// Also what has not been counted yet
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Print JSON: by name, each with its type, its help and its samples
    #[arg(long)]
    pub(crate) json: bool,
}
