//! The OR paper's chain state by state, for whoever wants the probabilities of figure 5 themselves.
//!
//! Decides: how all 2k+2 probabilities come in one pass. The equations of the stages, (aI − G)·vᵢ = a·vᵢ₋₁ (see [`crate::renewal`]), give
//!
//! ```text
//!     Sᵢ = a·((a+μ)·Sᵢ₋₁ + μ·Fᵢ₋₁)/D        D = a·(a+λ+μ+ρ) + ρμ
//!     Fᵢ = a·(λ·Sᵢ₋₁ + (a+λ+ρ)·Fᵢ₋₁)/D
//! ```
//!
//! in which nothing is ever subtracted, so every probability keeps its digits, also those far below what `f64` can hold: after k steps the
//! relative error is some k roundings. This is another way to the quantities of [`crate::renewal`], and the tests compare the two.

use crate::invalid::Invalid;
use crate::magnitude::Magnitude;
use crate::renewal::{Explicit, Lease, Solution, Stages};

/// The probabilities of all states.
#[derive(Clone, Debug)]
pub struct Chain {
    /// Pr(S₁) to Pr(S_k).
    pub up: Vec<Magnitude>,
    /// Pr(F₁) to Pr(F_k).
    pub down: Vec<Magnitude>,
    /// What the other functions give.
    pub solution: Solution,
}

/// All states of a lease of k stages, k·O(1).
///
/// # Errors
/// As [`Lease::solve`]; the period is sharp, and has no stages.
pub fn chain(lease: &Lease) -> Result<Chain, Invalid> {
    lease.solve()?;
    let Stages::Erlang(k) = lease.stages else {
        return Err(Invalid { what: "the number of stages", value: f64::INFINITY, rule: "1 to 1,000,000 for a chain" });
    };
    let a = f64::from(k);
    let (rho, lambda, mu) = (lease.rho * lease.tau, lease.lambda * lease.tau, lease.mu * lease.tau);
    let d = a * (a + lambda + mu + rho) + rho * mu;
    let (mut up, mut down) = (Vec::new(), Vec::new());
    let (mut s, mut f) = (Magnitude::new(1.0), Magnitude::ZERO);
    for _ in 0..k {
        (s, f) = (s * (a * (a + mu) / d) + f * (a * mu / d), s * (a * lambda / d) + f * (a * (a + lambda + rho) / d));
        up.push(s);
        down.push(f);
    }
    let sum = |all: &[Magnitude]| all.iter().fold(Magnitude::ZERO, |sum, p| sum + *p);
    let per_sigma = match lease.sigma {
        Explicit::Rate(sigma) => 1.0 / (sigma * lease.tau),
        Explicit::AtOnce => 0.0,
    };
    // (σ+ρ)·Pr(S_x) = a·(S_k + F_k) and μ·Pr(F_x) = a·F_k + λ·Pr(S_x)
    let flow = (s + f) * a / (1.0 + rho * per_sigma);
    let lapsed_up = flow * per_sigma;
    let lapsed_down = if lambda == 0.0 { Magnitude::ZERO } else { (f * a + lapsed_up * lambda) / mu };
    let valid = sum(&up) + sum(&down);
    let whole = valid + lapsed_up + lapsed_down;
    for p in up.iter_mut().chain(&mut down) {
        *p = *p / whole;
    }
    let solution = Solution {
        renewals: flow / whole / lease.tau,
        lapsed_up: lapsed_up / whole,
        lapsed_down: lapsed_down / whole,
        valid: valid / whole,
    };
    Ok(Chain { up, down, solution })
}
