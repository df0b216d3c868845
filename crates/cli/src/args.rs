//! The command lines of `cistern` and `cisternd`.
//!
//! Decides: names of commands and flags, their help, their examples. Leaves to others: what each command does, and which settings
//! are possible (`settings`).

mod change;
mod files;
mod locks;
mod operate;
mod parse;
pub(crate) mod plan;
mod run;

pub(crate) use change::{BatchArgs, Chmod, Truncate, Xattr, XattrAct, XattrName, XattrSet};
pub(crate) use files::{Export, Import, Ln, Ls, Mkdir, Mv, Paths, Put, Rm};
pub(crate) use locks::{Join, Lock, Locks, Member, Watch};
pub(crate) use operate::{Admin, Backup, Check, Compact, Control, Evict, Init, Restore, SettingsArgs, Stats, StoppedCommand};
pub(crate) use run::{AgentCommand, AgentStatus, Idle, Ping, RunAgent, Serve, ServerStatus, Top};

pub(crate) use cistern_text::{duration, octal, size};
use clap::{Args, Parser, Subcommand};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What `--version` says after the program's name.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), " (protocol version 1)");
const _: () = assert!(cistern_wire::limits::VERSION == 1, "VERSION names the protocol's");

// Paragraphs are single lines here: the help wraps them to the terminal.
const EXAMPLES: &str = "\
Examples:
  cistern demo                                   see it work, on this machine, in half a minute
  cisternd --store ./store --new-cluster         a server on loopback
  export CISTERN_SERVER=meta.example.net:7311
  cistern lock /jobs/nightly -- ./backup.sh      run a job on exactly one of many hosts
  cistern import ./site /site && cistern ls -l /site
  cistern locks --json
  cistern member join /group/$(hostname) &       be a member of a group while this runs
  cistern member watch /group                    reports joins and departures
  cistern agent top

Exit status:
  0   success
  1   the operation failed
  2   wrong usage or settings
  3   a precondition does not hold (--if-version, mv -n, xattr set --create, batch), and nothing was changed
  69  no answer from the server, or it refuses a session
  70  a defect of cistern itself
  74  the outcome of a change is unknown

With --json an error is one object on standard error: {\"error\":{\"code\":\"ENOENT\",\"message\":…,\"path\":…,\"exit\":1}}. Names and contents are texts \
where they are UTF-8, else {\"b64\":…}; permission bits are octal texts.

The log goes to standard error: -v and -q, or CISTERN_LOG=LEVEL: off, error, warn (commands), info (daemons), debug, trace; also by crate:
  CISTERN_LOG=warn,cistern_server=debug
NO_COLOR=1 turns colours off.

`cistern lock` has more: see `cistern lock --help`.";

/// Locks, leases and metadata for groups of computers.
#[derive(Debug, Parser)]
#[command(name = "cistern", version = VERSION, after_help = EXAMPLES, max_term_width = 120)]
pub(crate) struct Cistern {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The metadata server of Cistern; the same as `cistern serve`.
#[derive(Debug, Parser)]
#[command(name = "cisternd", version = VERSION, after_help = run::SERVE_HELP, max_term_width = 120)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Cisternd {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    #[command(subcommand)]
    pub(crate) command: Option<StoppedCommand>,
    #[command(flatten)]
    pub(crate) serve: Serve,
}

impl Cisternd {
    /// Whether results and errors are to be JSON.
    pub(crate) fn wants_json(&self) -> bool {
        self.command.as_ref().map_or(self.serve.json, |command| match command {
            StoppedCommand::Init(args) => args.json,
            StoppedCommand::Check(args) => args.json,
            StoppedCommand::Restore(args) => args.json,
            StoppedCommand::Compact(args) => args.json,
        })
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a self-contained demo on this machine: a server, two agents, cache, locks, a failure, a steal, a recovery
    Demo(Demo),
    /// List a directory
    Ls(Ls),
    /// Show attributes
    Stat(Paths),
    /// Write contents of files to standard output
    Cat(Paths),
    /// Store a local file (or `-`, standard input) at a path
    #[command(after_help = files::PUT_HELP)]
    Put(Put),
    /// Create directories
    Mkdir(Mkdir),
    /// Remove files and directories
    Rm(Rm),
    /// Move or rename
    Mv(Mv),
    /// Create a link to a file
    Ln(Ln),
    /// Create files if they are missing, and set their times to now
    Touch(Paths),
    /// Set permission bits
    Chmod(Chmod),
    /// Truncate or zero-extend files
    Truncate(Truncate),
    /// Read and change extended attributes
    Xattr(Xattr),
    /// Apply several changes atomically: all or none
    #[command(after_help = change::BATCH_HELP)]
    Batch(BatchArgs),
    /// Copy a local directory tree in
    Import(Import),
    /// Copy a tree out into a local directory
    Export(Export),
    /// Run a command under a lock
    #[command(after_help = locks::LOCK_HELP)]
    Lock(Lock),
    /// List holders and waiters of locks
    #[command(after_help = locks::LOCKS_HELP)]
    Locks(Locks),
    /// Join a group, and watch who joins and leaves
    #[command(subcommand)]
    Member(Member),
    /// Show the server's identity and load, as seen over the network
    Status(ServerStatus),
    /// Measure round trips to the server
    #[command(after_help = run::PING_HELP)]
    Ping(Ping),
    /// Run and inspect the host's agent
    #[command(subcommand)]
    Agent(AgentCommand),
    /// Operate a running server, on its host
    #[command(subcommand)]
    Admin(Admin),
    /// Run a metadata server (the same as cisternd)
    #[command(hide = true, after_help = run::SERVE_HELP)]
    Serve(Serve),
    /// Print every setting with its default and allowed range as a TOML file, or the settings in force
    #[command(after_help = operate::SETTINGS_HELP)]
    Settings(SettingsArgs),
    /// Choose a lease period: what each costs in messages and availability, and how long a failover takes
    #[command(after_help = plan::PLAN_HELP)]
    Plan(plan::Plan),
}

/// Which server, which agent, which output. Every option may stand before the command or after it.
#[derive(Args, Clone, Debug)]
pub(crate) struct Common {
    /// Print JSON; errors, too, as one object on standard error
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Server address (host, host:port, [v6]:port); several: repeat, or separate by commas. Else the settings file's, else 127.0.0.1:7311
    #[arg(long, env = "CISTERN_SERVER", hide_env_values = true, value_delimiter = ',', value_name = "ADDRESS", global = true, help_heading = CONNECTION)]
    pub(crate) server: Vec<String>,
    /// Control socket of the host agent to use, instead of an agent of this command's own
    #[arg(long, env = "CISTERN_AGENT", hide_env_values = true, value_name = "SOCKET", global = true, help_heading = CONNECTION)]
    pub(crate) agent: Option<PathBuf>,
    /// Settings file (TOML); else ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml, if there is one
    #[arg(long, env = "CISTERN_CONFIG", hide_env_values = true, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) config: Option<PathBuf>,
    /// Timeout for the server's responses
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) timeout: Option<Duration>,
    /// Lease period to request, within the server's bounds: 60s, say, survives a restart of the server, 500ms is short for waiters. It needs
    /// an agent of this command's own, also where a host agent runs
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) lease: Option<Duration>,
    /// Longest lease period to accept, of an agent of this command's own; else the settings file's, else 60s. A server that gives a longer
    /// one gets no session
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) lease_max: Option<Duration>,
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark);
    /// a file of yours that is there is replaced, a symbolic link is refused
    #[arg(long, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) pcap: Option<PathBuf>,
}

impl Common {
    /// The control socket of the host agent to go through; none for a command that asks for a lease period, which needs an agent of its own.
    pub(crate) fn host_agent(&self) -> Option<&Path> {
        self.agent.as_deref().filter(|_| self.lease.is_none())
    }
}

// No doc comment: it would become the help of each program.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct Verbosity {
    /// Log more to standard error; repeat for still more
    #[arg(short, long, action = clap::ArgAction::Count, global = true, conflicts_with = "quiet", help_heading = OUTPUT)]
    pub(crate) verbose: u8,
    /// Log only errors, and show no progress
    #[arg(short, long, global = true, help_heading = OUTPUT)]
    pub(crate) quiet: bool,
}

/// Heading of the options that say how the server is reached.
const CONNECTION: &str = "Connection";

/// Heading of the options that say what is printed.
const OUTPUT: &str = "Output";

#[derive(Args, Debug)]
pub(crate) struct Demo {
    /// A directory tree to import; by default a sizeable one found on this machine
    pub(crate) dir: Option<PathBuf>,
    /// Lease period τ of the demonstration
    #[arg(long, value_parser = duration, default_value = "2s", value_name = "DURATION")]
    pub(crate) lease: Duration,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Write every datagram that the demonstration's server sends or receives to a capture file
    #[arg(long, value_name = "FILE")]
    pub(crate) pcap: Option<PathBuf>,
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
}
