//! `cistern model`: what the papers' models of leases give.
//!
//! Decides: which model answers which command, and the words around its numbers. Leaves to others: the models (`cistern_model`), how
//! results are shown (`shown`, `picture`).

mod compare;
mod measure;
mod papers;
mod real;
pub(crate) mod shown;
mod simulate;
mod single;
mod term;
#[cfg(test)]
mod tests;

pub(crate) use compare::costs_in_rows;

use crate::args::model::Model;
use crate::local::Failure;

/// Runs the command.
pub(crate) fn model(args: &Model) -> Result<(), Failure> {
    match args {
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
