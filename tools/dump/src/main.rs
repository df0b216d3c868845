//! The program `cistern-dump`: reads the command line, carries it out, ends with the exit status.
//!
//! Decides nothing else. Leaves to others: options (`args`), everything that is shown (the library).

use cistern_dump::args::Cli;
use clap::Parser as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    cistern_dump::main(&Cli::parse())
}
