//! The options that commands share: which server, which agent, what is printed.
//!
//! Decides: their names, help and headings. Every one of them may stand before the command or after it; which of them a command takes says the command.

use cistern_seal::PublicKey;
use cistern_seal::key::{KeyTextError, Role};
use cistern_text::duration;
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

// No doc comment: it would become the help of each program.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct Options {
    #[command(flatten)]
    pub(crate) verbosity: Verbosity,
    /// Print JSON; errors, too, as one object on standard error
    #[arg(long, global = true, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Server address (host, host:port, [v6]:port); several: repeat, or separate by commas. Else the settings file's, else 127.0.0.1:7311. Not
    /// with --agent; as a flag it wins over CISTERN_AGENT
    #[arg(long, env = "CISTERN_SERVER", hide_env_values = true, value_delimiter = ',', value_name = "ADDRESS", global = true, help_heading = CONNECTION)]
    pub(crate) server: Vec<String>,
    /// `--server` stood on the command line.
    #[arg(skip)]
    pub(crate) server_flag: bool,
    /// Control socket of the host agent to use, instead of an agent of this command's own. Where no server is named by an option, the
    /// environment or the settings file, a command looks for this user's agent (`cistern agent run`), then for the system's
    #[arg(long, env = "CISTERN_AGENT", hide_env_values = true, value_name = "SOCKET", global = true, help_heading = CONNECTION)]
    pub(crate) agent: Option<PathBuf>,
    /// File of the key by which this command's agent is known; else cistern.host.key in $CREDENTIALS_DIRECTORY, host.key in ~/.config/cistern, host.key in
    /// /etc/cistern, the first that is there. With a key everything is sealed
    #[arg(long, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) key_file: Option<PathBuf>,
    /// Public key of the server, as its log and `cisternd --json` show it; else that of the cluster which the key has joined: who does not have its secret is
    /// no server of this command
    #[arg(long, env = "CISTERN_SERVER_KEY", hide_env_values = true, value_parser = server_key, value_name = "KEY", global = true, help_heading = CONNECTION)]
    pub(crate) server_key: Option<PublicKey>,
    /// Speak in clear, with whoever answers, although there may be a key. CISTERN_INSECURE=1 is the same where there is no key
    #[arg(long, conflicts_with_all = ["key_file", "server_key"], global = true, help_heading = CONNECTION)]
    pub(crate) insecure: bool,
    /// Append the keys of sealed sessions to a file of this user's alone: whoever has it reads captures of them (cistern-dump --key-log)
    #[arg(long, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) key_log: Option<PathBuf>,
    /// Settings file (TOML); else ~/.config/cistern/cistern.toml or /etc/cistern/cistern.toml, if there is one
    #[arg(long, env = "CISTERN_CONFIG", hide_env_values = true, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) config: Option<PathBuf>,
    /// Timeout for the server's responses, and for those of the host's agent
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) timeout: Option<Duration>,
    /// Lease period to request, within the server's bounds: 60s, say, survives a restart of the server, 500ms is short for waiters. It needs
    /// an agent of this command's own, also where a host agent runs
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) lease: Option<Duration>,
    /// Longest lease period to accept, of an agent of this command's own; else the settings file's, else 60s. A server that gives a longer
    /// one gets no session. As --server it goes with no host agent
    #[arg(long, value_parser = duration, value_name = "DURATION", global = true, help_heading = CONNECTION)]
    pub(crate) lease_max: Option<Duration>,
    /// Write every datagram that this process sends or receives to a capture file (pcap; for cistern-dump, tcpdump, Wireshark);
    /// a file of yours that is there is replaced, a symbolic link is refused
    #[arg(long, value_name = "FILE", global = true, help_heading = CONNECTION)]
    pub(crate) pcap: Option<PathBuf>,
}

fn server_key(text: &str) -> Result<PublicKey, KeyTextError> {
    PublicKey::from_text(text, Role::Server)
}

impl Options {
    /// The control socket that names the host agent to go through; none for a command that asks for a lease period, which needs an agent of
    /// its own.
    pub(crate) fn host_agent(&self) -> Option<&Path> {
        self.agent.as_deref().filter(|_| self.lease.is_none())
    }

    /// Whether what is asked for needs an agent of the command's own, where none is named.
    pub(crate) const fn needs_own_agent(&self) -> bool {
        self.lease.is_some()
            || self.lease_max.is_some()
            || self.pcap.is_some()
            || self.key_file.is_some()
            || self.insecure
            || self.key_log.is_some()
    }
}

// As above.
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
pub(crate) const OUTPUT: &str = "Output";
