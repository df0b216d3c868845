//! The command lines of `cistern` and `cisternd`.
//!
//! Decides: names of commands and flags, their help, their examples. Leaves to others: what each command does, and which settings
//! are possible (`settings`).

mod change;
pub(crate) mod model;
mod units;

pub(crate) use change::{BatchArgs, Chmod, Truncate, Xattr, XattrAct, XattrName, XattrSet};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

// Paragraphs are single lines here: the help wraps them to the terminal.
const EXAMPLES: &str = "\
Examples:
  cistern demo                                   see it work, on this machine, in half a minute
  cisternd --store ./store --new-cluster         a server on loopback
  export CISTERN_SERVER=meta.example.net:7311
  cistern lock /jobs/nightly -- ./backup.sh      run a job on exactly one of many hosts
  cistern import ./site /site && cistern ls -l /site
  cistern locks --json
  cistern member /group/$(hostname) &            be a member of a group, for others to see with
  cistern watch /group
  cistern watch-lease

Exit status:
  0   success
  1   the operation failed
  2   wrong usage or settings
  69  no answer from the server, or it refuses a session
  70  a defect of cistern itself
  74  the outcome of a change is unknown
`cistern lock` has more: see `cistern lock --help`.";

const LOCK_HELP: &str = "\
PATH is made as an empty file if it is missing; its parent directories are not.

COMMAND finds the fencing token in CISTERN_TOKEN and the path in CISTERN_LOCK.

When the lease is not renewed, COMMAND and everything that it started get SIGTERM 20 % of the lease period before the lock becomes \
uncertain, and SIGKILL 12 % before: all of it has ended before the lock can be anyone else's, also when `cistern` itself is killed.

Exit status: COMMAND's own, or 128 + the signal that ended it; and
  71   parts of COMMAND could not be killed
  75   not obtained (--try)
  79   the lock was lost, and COMMAND was stopped
  124  not obtained in time (--wait)
  125  cistern itself failed: no server, wrong usage
  126  COMMAND cannot be run
  127  COMMAND was not found

Examples:
  cistern lock /jobs/nightly -- ./backup.sh
  cistern lock --try /jobs/nightly -- ./backup.sh || echo 'somebody else is at it'
  cistern lock --shared --wait 10 /site -- rsync -a /srv/site/ web:/srv/site/";

const WATCH_HELP: &str = "\
Of a directory, what is in it is printed first, then each name that comes or goes, and each change of an ephemeral file in it: while \
somebody watches, the server finds out when the owner of an ephemeral file is gone (within 3.8 s plus commits by default, docs/membership.md).
Of a file, each change is printed. Nothing is sent while nothing changes but this agent's renewals and the probes of owners.

Lines begin with one of: watching, present, added, removed, changed, uncertain (the lease is over: changes may be missed), certain \
(what was missed has just been printed), gone.

Ends when everything that it watches is gone, or by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern watch /group
  cistern watch --json /etc/service.toml /group | while read -r change; do ...; done";

const MEMBER_HELP: &str = "\
PATH is made as an ephemeral file; its parent directories must exist. While another one's ephemeral file is there, its end is waited for. \
The file goes at once when this command ends, and within 3.8 s plus commits by default when it or its host dies while somebody watches. \
If the session is lost, the command joins again.

Prints joined, uncertain, certain and lost, each with the path. Ends by SIGINT or SIGTERM: exit status 0.

Examples:
  cistern mkdir -p /group && cistern member /group/$(hostname) &
  cistern member --data \"$(hostname -I)\" /group/$(hostname)
  cistern watch /group";

const CHECK_HELP: &str = "\
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

const RESTORE_HELP: &str = "\
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

const COMPACT_HELP: &str = "\
Needs as much space again while it runs. A server does this by itself, a little at a time; after much was removed at once it is quicker.

Examples:
  cisternd compact /var/lib/cistern/store

Exit status:
  0   compacted
  2   wrong usage
  65, 66, 74, 75, 76, 77  as of `cisternd check`";

const BACKUP_HELP: &str = "\
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

const STATS_HELP: &str = "\
The names are those of `cisternd --metrics`; docs/operating.md says what each means and what to do about it. Spans are in seconds. \
Of a histogram: how many were measured, their mean, and the bounds below which a half and 99 of 100 were.

Examples:
  cistern admin stats
  cistern admin stats --json | jq '.cistern_sessions.samples'

Exit status:
  0   success
  69  no server answers at the control socket";

/// Locks, leases and metadata for groups of computers.
#[derive(Debug, Parser)]
#[command(name = "cistern", version, after_help = EXAMPLES, max_term_width = 120, propagate_version = true)]
pub(crate) struct Cistern {
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark)
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The metadata server of Cistern; the same as `cistern serve`.
#[derive(Debug, Parser)]
#[command(name = "cisternd", version, after_help = SERVE_HELP, max_term_width = 120, propagate_version = true)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cisternd {
    #[command(subcommand)]
    pub(crate) command: Option<StoppedCommand>,
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark)
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

const SERVE_HELP: &str = "\
Examples:
  cisternd --store /var/lib/cistern/store --new-cluster     the first time: makes the store
  cisternd --store /var/lib/cistern/store                   every other time
  cisternd --store DIR --listen 10.0.0.1:7311 --insecure    for other hosts, in a network in which all are trusted
  cisternd --volatile --new-cluster                         to try it out: everything in memory
  cisternd --store DIR --pcap server.pcap                   with every datagram in a capture file, for cistern-dump

Exit status:
  0   ended because it was asked to
  1   cannot serve: an address or a control socket cannot be used
  2   wrong usage or settings
  65  --store: the store is damaged, or the directory is a backup or something else
  66  --store: there is no store
  70  a defect of cistern itself
  74  the store could not be read or written; nothing that was promised is lost
  75  --store: another process has the store
  76  --store: a newer version of cistern has written the store
  77  --store: the store may not be read and written, or its file system's locks are not to be trusted";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show the main job on this machine: a server, two agents, cache, locks, a failure, a steal, a recovery
    Demo(Demo),
    /// List a directory
    Ls(Ls),
    /// Show attributes
    Stat(Paths),
    /// Write contents of files to standard output
    Cat(Paths),
    /// Store a local file (or `-`, standard input) at a path
    Put(Put),
    /// Make directories
    Mkdir(Mkdir),
    /// Remove files and directories
    Rm(Rm),
    /// Move or rename
    Mv(Mv),
    /// Make a link to a file
    Ln(Ln),
    /// Make files if they are missing, and set their times to now
    Touch(Paths),
    /// Set permission bits
    Chmod(Chmod),
    /// Cut files off, or extend them with zeros
    Truncate(Truncate),
    /// Extended attributes
    Xattr(Xattr),
    /// Make several changes as one: all of them or none
    #[command(after_help = change::BATCH_HELP)]
    Batch(BatchArgs),
    /// Copy a local directory tree in
    Import(Import),
    /// Copy a tree out into a local directory
    Export(Export),
    /// Run a command under a lock
    #[command(after_help = LOCK_HELP)]
    Lock(Lock),
    /// Show who holds and who waits for locks
    Locks(Locks),
    /// End an agent's session: its locks are free after the lease period (on the server's host, by the control socket)
    Evict(Evict),
    /// Look after a running server, on its host
    #[command(subcommand)]
    Admin(Admin),
    /// Show what the server is and how it is
    Status(Status),
    /// Measure round trips to the server's application
    Ping(Ping),
    /// Print each change of files and directories as it happens
    #[command(after_help = WATCH_HELP)]
    Watch(Watch),
    /// Be a member: keep an ephemeral file as long as this command runs
    #[command(after_help = MEMBER_HELP)]
    Member(Member),
    /// Live view of an agent's lease
    WatchLease(WatchLease),
    /// Run the host's agent: one cache and one lease for all programs of this computer
    Agent(Agent),
    /// Run a metadata server
    #[command(after_help = SERVE_HELP)]
    Serve(Serve),
    /// Print every setting, its default and the relation it must keep, as a TOML file
    Settings,
    /// Choose a lease period: what each costs in messages and availability, and how long a failover takes
    #[command(after_help = model::PLAN_HELP)]
    Plan(model::Plan),
    /// What the papers' models of leases give: overhead, availability, figures, claims
    #[command(subcommand, after_help = model::MODEL_HELP)]
    Model(model::Model),
}

/// Which server, which agent, which output.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Server address (host, host:port, [v6]:port); several: repeat, or separate by commas
    #[arg(long, env = "CISTERN_SERVER", value_delimiter = ',', value_name = "ADDRESS")]
    pub(crate) server: Vec<String>,
    /// Control socket of a host agent to go through, instead of an identity of its own
    #[arg(long, env = "CISTERN_AGENT", value_name = "SOCKET")]
    pub(crate) agent: Option<PathBuf>,
    /// Settings file (TOML)
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Give up when the server does not answer for so long
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) give_up: Option<Duration>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// A directory tree to import; by default a sizeable one found on this machine
    pub(crate) dir: Option<PathBuf>,
    /// Lease period τ of the demonstration
    #[arg(long, value_parser = duration, default_value = "2s", value_name = "TIME")]
    pub(crate) lease: Duration,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Ls {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Attributes, too
    #[arg(short = 'l', long)]
    pub(crate) long: bool,
    /// What to list
    #[arg(default_value = "/")]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Paths {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Paths
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Put {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Local file; `-` for standard input
    pub(crate) from: OsString,
    /// Where it goes
    pub(crate) path: OsString,
    /// Permission bits, octal, if the file is new
    #[arg(long, value_parser = octal, default_value = "644")]
    pub(crate) mode: u16,
    /// Only if the file has this version (`cistern stat` shows it); 0: only if it does not exist
    #[arg(long, value_name = "VERSION")]
    pub(crate) if_version: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Mkdir {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Parents, too; no error if the directory exists
    #[arg(short = 'p', long)]
    pub(crate) parents: bool,
    /// Permission bits, octal
    #[arg(short = 'm', long, value_parser = octal, default_value = "755")]
    pub(crate) mode: u16,
    /// Directories
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Rm {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Directories and what is in them
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub(crate) recursive: bool,
    /// Empty directories
    #[arg(short = 'd', long)]
    pub(crate) dir: bool,
    /// No error for what does not exist; also what somebody holds a lock on
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// What to remove
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Mv {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Fail if the new name exists
    #[arg(short = 'n', long, visible_alias = "no-replace", conflicts_with = "exchange")]
    pub(crate) no_clobber: bool,
    /// Exchange the two
    #[arg(long)]
    pub(crate) exchange: bool,
    /// Also replace what somebody holds a lock on
    #[arg(short = 'f', long)]
    pub(crate) force: bool,
    /// Old path
    pub(crate) from: OsString,
    /// New path, or a directory to move it into
    pub(crate) to: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Ln {
    #[command(flatten)]
    pub(crate) common: Common,
    /// A symbolic link
    #[arg(short = 's', long = "symbolic")]
    pub(crate) symbolic: bool,
    /// What it points to
    pub(crate) target: OsString,
    /// The new name
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Import {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Local directory
    pub(crate) dir: PathBuf,
    /// Where its contents go; made if missing
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct Export {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Tree to copy out
    pub(crate) path: OsString,
    /// Local directory; made if missing
    pub(crate) dir: PathBuf,
}

#[derive(Args, Debug)]
pub(crate) struct Lock {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Shared with other shared holders
    #[arg(long)]
    pub(crate) shared: bool,
    /// Do not wait
    #[arg(long = "try", conflicts_with = "wait")]
    pub(crate) try_once: bool,
    /// Wait at most so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub(crate) wait: Option<Duration>,
    /// What to lock
    pub(crate) path: OsString,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Locks {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Only of this object
    pub(crate) path: Option<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Evict {
    /// The agent: its id or the beginning of it, or its label
    pub(crate) agent: String,
    /// The server's control socket
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET", default_value = crate::places::SERVER_SOCKET)]
    pub(crate) control: PathBuf,
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
    /// The server's control socket
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET", default_value = crate::places::SERVER_SOCKET)]
    pub(crate) control: PathBuf,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Stats {
    /// The server's control socket
    #[arg(long, env = "CISTERN_CONTROL", value_name = "SOCKET", default_value = crate::places::SERVER_SOCKET)]
    pub(crate) control: PathBuf,
    /// Also what has not been counted yet
    #[arg(short = 'a', long)]
    pub(crate) all: bool,
    /// Print JSON: by name, each with its type, its help and its samples
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Status {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Ask a server on this host by its control socket: sessions, counters, drops
    #[arg(long, value_name = "SOCKET", env = "CISTERN_CONTROL")]
    pub(crate) control: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct Ping {
    #[command(flatten)]
    pub(crate) common: Common,
    /// How many
    #[arg(short = 'c', long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) count: u32,
    /// Time between them
    #[arg(short = 'i', long, value_parser = duration, default_value = "1s", value_name = "TIME")]
    pub(crate) interval: Duration,
}

#[derive(Args, Debug)]
pub(crate) struct Watch {
    #[command(flatten)]
    pub(crate) common: Common,
    /// What to watch; symbolic links are followed
    #[arg(required = true)]
    pub(crate) paths: Vec<OsString>,
}

#[derive(Args, Debug)]
pub(crate) struct Member {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Contents of the file: what others should know of this member
    #[arg(long, value_name = "TEXT")]
    pub(crate) data: Option<OsString>,
    /// Permission bits, octal
    #[arg(long, value_parser = octal, default_value = "644")]
    pub(crate) mode: u16,
    /// The file
    pub(crate) path: OsString,
}

#[derive(Args, Debug)]
pub(crate) struct WatchLease {
    #[command(flatten)]
    pub(crate) common: Common,
    /// Time between two looks
    #[arg(short = 'i', long, value_parser = duration, default_value = "200ms", value_name = "TIME")]
    pub(crate) interval: Duration,
    /// End after so many looks
    #[arg(short = 'n', long)]
    pub(crate) count: Option<u64>,
}

#[derive(Args, Debug)]
pub(crate) struct Agent {
    #[command(flatten)]
    pub(crate) common: Common,
    /// State directory: the agent's identity, and its control socket
    #[arg(long, value_name = "DIR", default_value = crate::places::AGENT_DIR)]
    pub(crate) state: PathBuf,
    /// What people see of this agent in listings
    #[arg(long)]
    pub(crate) label: Option<String>,
    /// What the agent does when it is idle and its lease runs out
    #[arg(long, value_enum)]
    pub(crate) idle: Option<Idle>,
}

/// What an idle agent does (wire-spec section 11.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Renews as long as it holds any lock
    Eager,
    /// Lets the lease lapse unless something is in use
    Lazy,
    /// Renews while the cache is in use, then gives everything back
    Auto,
}

#[derive(Args, Debug)]
pub(crate) struct Serve {
    /// Address to listen on; repeat for several
    #[arg(long, short = 'l', value_name = "ADDRESS", default_values_t = [SocketAddr::from(([127, 0, 0, 1], 7311))])]
    pub(crate) listen: Vec<SocketAddr>,
    /// Keep everything in this directory, on a file system of this host; this or --volatile must be chosen
    #[arg(long, env = "CISTERN_STORE", value_name = "DIR", conflicts_with = "volatile")]
    pub(crate) store: Option<PathBuf>,
    /// Keep everything in memory: the store is empty at each start
    #[arg(long)]
    pub(crate) volatile: bool,
    /// Make the store if there is none, and grant locks at once from an empty one: no agent can hold locks of a server before
    #[arg(long)]
    pub(crate) new_cluster: bool,
    /// Make the store if there is none; the time of a lease is waited for, as agents may hold locks of a server before
    #[arg(long, conflicts_with = "volatile")]
    pub(crate) new_store: bool,
    /// Most bytes that the store may take on disk; then only reads, locks and removals go on (256M at least)
    #[arg(long, value_parser = store_limit, value_name = "SIZE", conflicts_with = "volatile")]
    pub(crate) store_limit: Option<u64>,
    /// Bytes to be kept free on the store's file system; with fewer only reads, locks and removals go on
    #[arg(long, value_parser = size, default_value = "256M", value_name = "SIZE")]
    pub(crate) store_reserve: u64,
    /// Listen on other than loopback addresses although datagrams are neither sealed nor authenticated
    #[arg(long)]
    pub(crate) insecure: bool,
    /// State directory: the control socket
    #[arg(long, value_name = "DIR", default_value = crate::places::SERVER_DIR)]
    pub(crate) state: PathBuf,
    /// Settings file (TOML)
    #[arg(long, env = "CISTERN_CONFIG", value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Lease period τ
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) lease: Option<Duration>,
    /// Bound δ on the relative rate of any two clocks
    #[arg(long, value_name = "FRACTION")]
    pub(crate) delta: Option<f64>,
    /// Delivery timeout Td
    #[arg(long, value_parser = duration, value_name = "TIME")]
    pub(crate) delivery_timeout: Option<Duration>,
    /// Most sessions
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_sessions: Option<u32>,
    /// Serve metrics in the Prometheus text format at http://ADDRESS/metrics; a port alone is one of 127.0.0.1
    #[arg(long, value_parser = loopback_or_address, value_name = "ADDRESS")]
    pub(crate) metrics: Option<SocketAddr>,
    /// Print one line of JSON with the addresses when ready
    #[arg(long)]
    pub(crate) json: bool,
}

/// `9311`, `127.0.0.1:9311`, `[::1]:9311`.
fn loopback_or_address(text: &str) -> Result<SocketAddr, String> {
    let port = text.parse().map(|port: u16| SocketAddr::from(([127, 0, 0, 1], port)));
    port.or_else(|_| text.parse()).map_err(|_| "an address and a port such as 127.0.0.1:9311, or a port alone".to_owned())
}

/// `1.5s`, `200ms`, `3m`, `1d`, or a plain number of seconds.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale = match &text[digits.len()..] {
        "" | "s" => 1.0,
        "ms" => 1e-3,
        "us" => 1e-6,
        "m" | "min" => 60.0,
        "h" => 3_600.0,
        "d" => 86_400.0,
        unit => return Err(format!("{unit:?} is no unit of time: use us, ms, s, m, h or d")),
    };
    let number: f64 = digits.parse().map_err(|_| format!("{digits:?} is not a number"))?;
    Duration::try_from_secs_f64(number * scale).map_err(|_| "a time must be zero or more, and not immense".to_owned())
}

/// `10G`, `512MiB`, or a plain number of bytes; units are powers of 1,024.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match text[digits.len()..].trim_end_matches("iB").trim_end_matches('B') {
        "" => 0,
        "K" | "k" => 10,
        "M" => 20,
        "G" => 30,
        "T" => 40,
        unit => return Err(format!("{unit:?} is no unit of size: use K, M, G or T")),
    };
    let number: u64 = digits.parse().map_err(|_| format!("{digits:?} is not a whole number"))?;
    number.checked_mul(1 << shift).ok_or_else(|| "a size must not be immense".to_owned())
}

fn store_limit(text: &str) -> Result<u64, String> {
    size(text)?
        .checked_sub(256 << 20)
        .map(|more| more + (256 << 20))
        .ok_or_else(|| "must be at least 256M: journals alone may take half of that".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    duration(text)
}

fn octal(text: &str) -> Result<u16, String> {
    u16::from_str_radix(text, 8).ok().filter(|mode| *mode <= 0o7777).ok_or_else(|| "permission bits are octal, 0 to 7777".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_lines_are_well_formed() {
        Cistern::command().debug_assert();
        Cisternd::command().debug_assert();
    }

    #[test]
    fn a_port_alone_is_on_loopback() {
        for (text, address) in [("9311", "127.0.0.1:9311"), ("0", "127.0.0.1:0"), ("[::1]:9", "[::1]:9"), ("10.0.0.1:9", "10.0.0.1:9")] {
            assert_eq!(loopback_or_address(text), Ok(address.parse().unwrap()));
        }
        assert!(loopback_or_address("localhost").is_err() && loopback_or_address("70000").is_err());
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
        for (text, bytes) in [("0", 0), ("4096", 4_096), ("2K", 2_048), ("3MiB", 3 << 20), ("10G", 10 << 30), ("1TB", 1 << 40)] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in ["", "G", "-1", "1.5G", "1P", "99999999999T"] {
            assert!(size(text).is_err(), "{text}");
        }
        assert_eq!((store_limit("256M"), store_limit("255M").is_err()), (Ok(256 << 20), true));
    }

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, ms) in [("2", 2_000), ("1.5s", 1_500), ("200ms", 200), ("2m", 120_000), ("0", 0)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(ms)), "{text}");
        }
        for text in ["", "s", "-1s", "1 fortnight", "nan", "1e400", "inf"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
