//! The judges of a run: what must hold, whatever happens (I1 to I19), judged from outside the cores.
//!
//! Decides which judges a run has. Place in the walk: the world shows each happening to all of them.
//! Leaves to others: making things happen (`world`), what is seen (`observe`).

use crate::observe::Judge;
use crate::plan::Plan;

/// The judges of a run.
#[must_use]
pub fn judges(_plan: &Plan) -> Vec<Box<dyn Judge>> {
    Vec::new()
}
