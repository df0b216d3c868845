//! The simulator's program: reads the command line, carries it out, ends with the exit code.
//!
//! Decides nothing else. Leaves to others: options (`cli`), commands (`command`).

use cistern_sim::cli::Cli;
use cistern_sim::command::{USAGE, carry_out};
use clap::Parser as _;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = Cli::parse();
    let mut out = BufWriter::new(io::stdout().lock());
    match carry_out(&cli, &mut out).and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // Whoever read the output has gone; that is their choice.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            // Nowhere is left to tell that stderr is gone.
            let _ = writeln!(io::stderr(), "cistern-sim: {error}");
            ExitCode::from(USAGE)
        }
    }
}
