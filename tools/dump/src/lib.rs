//! The packet inspector: what Cistern says on the wire, in words, fields and figures.
//!
//! Decides: which part of the program does what was asked, and that a failure becomes one clear line and a documented exit status.
//! Place in the walk: the decode step alone (`cistern_wire::Datagram::seen`), on traffic that others sent.
//! Leaves to others: reading captures (`cistern-capture`), bytes and names of fields (`cistern-wire`), the story and the verdicts
//! (`cistern-audit`).

pub mod args;
pub mod audit;
pub mod failure;
pub mod fields;
pub mod filter;
pub mod follow;
pub mod input;
pub mod json;
pub mod labels;
pub mod ladder;
pub mod leases;
pub mod line;
pub mod notes;
pub mod packet;
pub mod record;
pub mod show;
pub mod stats;
pub mod stop;
pub mod time;
pub mod words;

use crate::args::Cli;
use crate::failure::Failure;
use cistern_wire::Printable;
use std::io::{self, Write as _};
use std::process::ExitCode;

/// The program: its exit status.
#[must_use]
pub fn main(cli: &Cli) -> ExitCode {
    match run(cli) {
        Ok(code) => ExitCode::from(code),
        Err(failure) => {
            if failure.exit != 0 {
                // Nowhere is left to tell that standard error is gone.
                let _ = writeln!(io::stderr(), "cistern-dump: {}", Printable(&failure.to_string()));
            }
            ExitCode::from(failure.exit)
        }
    }
}

/// Does what the command line asks for.
///
/// # Errors
/// What kept it from doing so, with the exit status.
pub fn run(cli: &Cli) -> Result<u8, Failure> {
    match &cli.command {
        Some(args::Command::Audit(args)) => audit::audit(args),
        None => show::show(&cli.show),
    }
}
