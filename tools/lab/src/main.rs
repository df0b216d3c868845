//! `cistern-lab`: what the papers' models of leases give, solved, simulated, and measured.
//!
//! Decides: which model answers which command, and the exit status. Leaves to others: the models (`cistern_model`), how results are
//! shown (`show`, `picture`).

mod args;
mod compare;
mod figures;
mod measure;
mod papers;
mod real;
mod requests;
mod show;
mod simulate;
mod simulated;
mod single;
mod term;
#[cfg(test)]
mod tests;

use args::{Cli, Model};
use clap::Parser as _;
use show::Failure;
use std::io::Write as _;
use std::process::ExitCode;

fn main() -> ExitCode {
    match run(&Cli::parse().model) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { exit, message }) => {
            if !message.is_empty() {
                // If standard error is closed, the exit status is all that can be said.
                let _ = writeln!(std::io::stderr(), "cistern-lab: {}", cistern_wire::Printable(&message));
            }
            ExitCode::from(exit)
        }
    }
}

fn run(model: &Model) -> Result<(), Failure> {
    match model {
        Model::Overhead(args) => single::overhead(args),
        Model::Availability(args) => single::availability(args),
        Model::ChooseK(args) => single::choose_k(args),
        Model::Figure(args) => papers::or_figure(args),
        Model::GcFigure(args) => papers::v_figure(args),
        Model::Gc(args) => term::term(args),
        Model::Table(args) => papers::table(args),
        Model::Compare(args) => compare::compare(args),
        Model::Simulate(args) => simulate::simulate(args),
        Model::Measure(args) => measure::measure(args),
    }
}
