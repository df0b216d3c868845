//! The command line.
//!
//! Decides: names of options and commands, their help, their examples. Without a command it shows messages, as tcpdump does.
//! Leaves to others: what each option does.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Shows what Cistern says on the wire: messages in words, from captures or live.
#[derive(Debug, Parser)]
#[command(name = "cistern-dump", version, max_term_width = 120, args_conflicts_with_subcommands = true)]
pub struct Cli {
    /// What to do instead of showing messages
    #[command(subcommand)]
    pub command: Option<Command>,
    /// What to show
    #[command(flatten)]
    pub show: Show,
}

/// What is done instead of showing messages.
#[derive(Debug, Subcommand)]
pub enum Command {}

/// What is shown, and of which traffic.
#[derive(Debug, clap::Args)]
pub struct Show {
    /// Captures (pcap or pcapng); `-` is standard input
    #[arg(value_name = "FILE")]
    pub files: Vec<PathBuf>,
}
