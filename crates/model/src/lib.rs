//! The papers' models of leases: what a lease costs in messages, and what it buys in availability.
//!
//! Two papers are computed here, so that every figure and number in them can be checked, and so that somebody who has to choose a lease
//! period τ can ask what it will cost:
//!
//! - R. Burns, R. Rees, D. Long, *An Analytical Study of Opportunistic Lease Renewal*, ICDCS 2001 ("the OR paper"): [`renewal`] is its
//!   Markov chain solved in closed form, [`chain`] the same chain state by state, [`stages`] the choice of the number of states;
//! - C. Gray, D. Cheriton, *Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache Consistency*, SOSP 1989 ("the V
//!   paper"): [`v`] is its formulas for load and delay, with the parameters of its table 2.
//!
//! [`schemes`] puts lease protocols beside each other for a whole cluster, [`arrivals`] computes overhead from measured requests instead of
//! a rate, [`plan`] chooses τ, [`claims`] is the list of what the papers say with what comes out here.
//!
//! Everything but [`capture`], which reads requests from a capture file, is a pure function of its arguments. Rates and times are in any
//! one unit and its reciprocal; a function that means seconds says so. What cannot be computed with right digits is refused ([`Invalid`]), and what is too small for `f64` is a [`Magnitude`].

pub mod arrivals;
pub mod capture;
pub mod chain;
pub mod claims;
mod invalid;
mod magnitude;
pub mod plan;
pub mod renewal;
pub mod schemes;
pub mod stages;
pub mod v;

pub use invalid::{Invalid, fraction, not_negative, positive};
pub use magnitude::Magnitude;
