//! The OR paper's model of one lease (its figures 5 and 6), solved in closed form.
//!
//! # The chain
//!
//! 2k+2 states: S₁…S_k and F₁…F_k are the stages of a valid lease with and without a working network, S_x and F_x a lapsed lease. A stage
//! ends at rate a = k/τ, so the period is Erlang-k with mean τ. The network fails at rate λ and is mended at rate μ. While it works,
//! ordinary requests at rate ρ lead from every S state to S₁, and explicit renewals at rate σ from S_x to S₁. ρ = 0 is explicit renewal.
//!
//! # The solution
//!
//! Write vᵢ = (Sᵢ, Fᵢ) and add ρ·Pr(S₁) to both sides of the first equation of figure 6: its right side becomes the whole flow c·a into S₁.
//! The equations of the stages are then (aI − G)·vᵢ = a·vᵢ₋₁ with v₀ = (c, 0) and
//!
//! ```text
//!     G = ⎡ −(λ+ρ)   μ ⎤        so vᵢ = Tⁱ·v₀  with  T = (I − G/a)⁻¹.
//!         ⎣    λ    −μ ⎦
//! ```
//!
//! G has the eigenvalues −z₁ ≥ −z₂ with z₂ = (p+s)/2, z₁ = ρμ/z₂, p = λ+μ+ρ, s = √((λ+ρ−μ)² + 4λμ), so T has yⱼ = 1/(1 + zⱼ/a), and
//!
//! ```text
//!     Sᵢ = c·(A·y₁ⁱ + B·y₂ⁱ)/s        A = μ − z₁ ≥ 0,  B = z₂ − μ ≥ 0,  A·B = λμ
//!     Fᵢ = c·λ·(y₁ⁱ − y₂ⁱ)/s
//! ```
//!
//! The sum of the equations of S_x and F_x is (σ+ρ)·Pr(S_x) = a·(S_k + F_k); the last gives μ·Pr(F_x) = a·F_k + λ·Pr(S_x); the sum of all
//! is 1. yᵏ = exp(−k·ln(1 + zτ/k)) needs no product of k factors, so any k costs the same; and with k → ∞, where yᵏ → e^(−zτ), the lease
//! is what it is in practice, exactly τ long ([`Stages::Sharp`]). Every difference above is either of the kind 1 − e^(−x), for which there
//! is a function, or replaced by a quotient (A or B, whichever is the smaller), so that digits are lost nowhere: `tests/precise.rs`.
//!
//! Without failures and with σ → ∞ the overhead σ·Pr(S_x)/ρ is 1/((1+τρ/k)ᵏ − 1), and with k → ∞ 1/(e^(τρ) − 1): [`closed_form`].
//!
//! Leaves to others: the states one by one (`chain`), how many stages there should be (`stages`).

use crate::invalid::{Invalid, not_negative, positive};
use crate::magnitude::Magnitude;

/// Most stages that a period is made of here: a hundred times what the paper's Chebyshev bound asks for.
pub const STAGES_MAX: u32 = 1_000_000;

/// Times a rate and τ may be multiplied to: beyond it an outage or a period is nothing beside the other, and no digits are promised.
const PRODUCT: std::ops::RangeInclusive<f64> = 1e-15..=1e15;

/// How the period of a lease is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stages {
    /// The sum of so many exponential stages, as in the OR paper: 1 to [`STAGES_MAX`].
    Erlang(u32),
    /// Exactly τ: the limit of many stages, and what a real lease does.
    Sharp,
}

impl Stages {
    /// The number that the OR paper takes.
    pub const PAPER: Self = Self::Erlang(676);
}

/// How long an explicit renewal takes once the lease has lapsed and the network works.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Explicit {
    /// Completes at this rate: the OR paper's σ.
    Rate(f64),
    /// Takes no time: σ → ∞.
    AtOnce,
}

/// One lease and what happens to it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lease {
    /// τ: the period.
    pub tau: f64,
    /// ρ: rate of ordinary requests, each of which renews; 0 for a protocol that renews explicitly only.
    pub rho: f64,
    /// λ: rate at which a working network fails; 0 for one that never does.
    pub lambda: f64,
    /// μ: rate at which a failed network is mended.
    pub mu: f64,
    /// σ.
    pub sigma: Explicit,
    /// k.
    pub stages: Stages,
}

/// The parts of a period at which an agent does something by itself.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Parts {
    /// f: from here on it renews explicitly.
    pub renew_from: f64,
    /// u: from here on it begins nothing that relies on the lease.
    pub use_until: f64,
}

impl Parts {
    /// The papers': the lease is renewed when it is over, and used until then.
    pub const PAPER: Self = Self { renew_from: 1.0, use_until: 1.0 };

    /// When the project's agents renew, and until when they use a lease, by default (`wire-spec.md` section 11.1).
    pub const AGENT: Self = Self { renew_from: 0.6, use_until: 0.8 };

    /// Checks that 0 < f ≤ u ≤ 1.
    ///
    /// # Errors
    /// One is not in its range.
    pub fn check(&self) -> Result<(), Invalid> {
        let rule = "above 0 and at most 1, and renewing must not begin after use has ended";
        if self.renew_from > 0.0 && self.renew_from <= self.use_until && self.use_until <= 1.0 {
            Ok(())
        } else {
            Err(Invalid { what: "the part of the period at which renewing begins", value: self.renew_from, rule })
        }
    }
}

/// What comes of it, as the network and the lease go on for ever.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Solution {
    /// Explicit renewals in a unit of time: σ·Pr(S_x).
    pub renewals: Magnitude,
    /// Pr(S_x): the share of time with a lapsed lease and a working network.
    pub lapsed_up: Magnitude,
    /// Pr(F_x): the share of time with a lapsed lease and a failed network.
    pub lapsed_down: Magnitude,
    /// The share of time with a lease: what is left of 1, with digits of its own.
    pub valid: Magnitude,
}

impl Solution {
    /// Explicit renewals per ordinary request: σ·Pr(S_x)/ρ (section 5.3), for requests at the rate `rho`.
    #[must_use]
    pub fn overhead(&self, rho: f64) -> Magnitude {
        self.renewals / rho
    }

    /// Share of time without a lease: Pr(S_x) + Pr(F_x) (section 5.4).
    #[must_use]
    pub fn unavailability(&self) -> Magnitude {
        self.lapsed_up + self.lapsed_down
    }
}

impl Lease {
    /// The same lease with requests that renew nothing: ρ = 0.
    #[must_use]
    pub fn explicit(self) -> Self {
        Self { rho: 0.0, ..self }
    }

    /// Solves the balance equations of figure 6.
    ///
    /// # Errors
    /// A parameter that cannot be, or a rate more than 10¹⁵ times faster or slower than the period.
    pub fn solve(&self) -> Result<Solution, Invalid> {
        let scaled = self.scaled()?;
        let spectrum = Spectrum::of(scaled.rho, scaled.lambda, scaled.mu);
        let flows = spectrum.flows(self.stages);
        // In units of the flow into S₁ and of τ. 1/(σ+ρ), also for σ → ∞:
        let wait = scaled.renewal_time / (1.0 + scaled.rho * scaled.renewal_time);
        let flow = flows.up + flows.down;
        let lapsed_up = flow * wait;
        let lapsed_down = if scaled.lambda == 0.0 { Magnitude::ZERO } else { (flows.down + lapsed_up * scaled.lambda) / scaled.mu };
        let whole = Magnitude::new(flows.valid) + lapsed_up + lapsed_down;
        Ok(Solution {
            renewals: flow / (1.0 + scaled.rho * scaled.renewal_time) / whole / self.tau,
            lapsed_up: lapsed_up / whole,
            lapsed_down: lapsed_down / whole,
            valid: Magnitude::new(flows.valid) / whole,
        })
    }

    /// Solves for an agent that renews by itself from a part of the period on, with renewals that take no time and a period of exactly τ.
    ///
    /// Renewals: the first one is at f·τ after the last request, or when the network is mended after that, so the messages are those of a
    /// lease of f·τ that is renewed when it lapses. The data are unavailable only from u·τ on: an outage that has lasted until f·τ ends at
    /// rate μ whatever its age, so the share of time without a lease is e^(−μ(u−f)τ) of that lease's Pr(F_x).
    ///
    /// # Errors
    /// As [`Lease::solve`]; the parts are not in their range; renewals take time, or the period is made of stages.
    pub fn solve_early(&self, parts: Parts) -> Result<Solution, Invalid> {
        parts.check()?;
        if self.stages != Stages::Sharp || self.sigma != Explicit::AtOnce {
            let rule = "left out: renewal before the end is solved for a sharp period and renewals that take no time";
            return Err(Invalid { what: "the number of stages, or σ", value: f64::NAN, rule });
        }
        self.scaled()?;
        let shorter = Self { tau: self.tau * parts.renew_from, ..*self }.solve()?;
        let more = self.mu * (parts.use_until - parts.renew_from) * self.tau;
        let bridged = shorter.lapsed_down * -(-more).exp_m1();
        let lapsed_down = shorter.lapsed_down * Magnitude::exp_of_minus(more);
        Ok(Solution { lapsed_down, valid: shorter.valid + bridged, ..shorter })
    }

    /// Rates as multiples of 1/τ, checked.
    fn scaled(&self) -> Result<Scaled, Invalid> {
        let tau = positive("the lease period τ", self.tau)?;
        let times = |what, rate: f64| match rate * tau {
            product if rate == 0.0 || PRODUCT.contains(&product) => Ok(product),
            value => Err(Invalid { what, value, rule: "between 1e-15 and 1e15: beyond that, no digits are promised" }),
        };
        if let Stages::Erlang(k) = self.stages
            && !(1..=STAGES_MAX).contains(&k)
        {
            return Err(Invalid { what: "the number of stages k", value: f64::from(k), rule: "1 to 1,000,000" });
        }
        not_negative("the failure rate λ", self.lambda)?;
        if self.lambda > 0.0 {
            positive("the repair rate μ of a network that fails", self.mu)?;
        }
        not_negative("the repair rate μ", self.mu)?;
        Ok(Scaled {
            rho: times("ρτ", not_negative("the request rate ρ", self.rho)?)?,
            lambda: times("λτ", self.lambda)?,
            mu: times("μτ", self.mu)?,
            renewal_time: match self.sigma {
                Explicit::Rate(sigma) => 1.0 / times("στ", positive("the rate σ of explicit renewals", sigma)?)?,
                Explicit::AtOnce => 0.0,
            },
        })
    }
}

struct Scaled {
    rho: f64,
    lambda: f64,
    mu: f64,
    /// 1/σ.
    renewal_time: f64,
}

/// The eigenvalues of −G and what belongs to them, in units of 1/τ.
struct Spectrum {
    z: [f64; 2],
    /// A/s, B/s.
    share: [f64; 2],
    /// z₂ − z₁.
    s: f64,
    lambda: f64,
}

/// In units of the flow into S₁ and of τ.
struct Flows {
    /// S_k and F_k: the flows into S_x and F_x.
    up: Magnitude,
    down: Magnitude,
    /// Mean time for which the lease was valid.
    valid: f64,
}

impl Spectrum {
    fn of(rho: f64, lambda: f64, mu: f64) -> Self {
        if lambda == 0.0 {
            // Never a failure: one chain, with one eigenvalue.
            return Self { z: [rho, rho], share: [1.0, 0.0], s: 0.0, lambda };
        }
        let d = (lambda - mu) + rho;
        let s = d.hypot(2.0 * lambda.sqrt() * mu.sqrt());
        let z2 = f64::midpoint(lambda + mu + rho, s);
        let larger = f64::midpoint(d.abs(), s);
        let smaller = lambda / larger * mu;
        let (a, b) = if d >= 0.0 { (smaller, larger) } else { (larger, smaller) };
        Self { z: [rho / z2 * mu, z2], share: [a / s, b / s], s, lambda }
    }

    fn flows(&self, stages: Stages) -> Flows {
        let decay = self.z.map(|z| stages.exponent(z));
        let power = decay.map(Magnitude::exp_of_minus);
        // ∑yⁱ/k = (1 − yᵏ)/z
        let part = |j: usize| if self.z[j] == 0.0 { 1.0 } else { -(-decay[j]).exp_m1() / self.z[j] };
        let up = power[0] * self.share[0] + power[1] * self.share[1];
        let mut valid = self.share[0] * part(0) + self.share[1] * part(1);
        let mut down = Magnitude::ZERO;
        if self.lambda > 0.0 {
            // ln y₁ᵏ − ln y₂ᵏ without their difference.
            let apart = stages.apart(self.z[0], self.s);
            down = power[0] * (-(-apart).exp_m1() * (self.lambda / self.s));
            valid += self.lambda / self.s * (part(0) - part(1)).max(0.0);
        }
        Flows { up, down, valid }
    }
}

impl Stages {
    /// −ln yᵏ = k·ln(1 + z/k), or z.
    fn exponent(self, z: f64) -> f64 {
        match self {
            Self::Erlang(k) => f64::from(k) * (z / f64::from(k)).ln_1p(),
            Self::Sharp => z,
        }
    }

    /// The difference of the exponents of z + s and z.
    fn apart(self, z: f64, s: f64) -> f64 {
        match self {
            Self::Erlang(k) => f64::from(k) * (s / (f64::from(k) + z)).ln_1p(),
            Self::Sharp => s,
        }
    }
}

/// 1/(e^x − 1): explicit renewals per request when requests come at random, x = ρτ for renewal at the end of the period and x = ρfτ for
/// renewal from fτ on.
///
/// It is what the chain gives with σ → ∞ (renewals take no time), k → ∞ (the period is exactly τ) and λ = 0 (the network never fails),
/// and holds as long as those do not matter:
///
/// - k: the chain has (1+x/k)ᵏ for e^x, so its overhead is larger by about x²/2k of itself, 7.6 % with x = 10 and k = 676;
/// - σ: the chain's overhead is smaller by about ρ/σ of itself;
/// - λ: an outage that is longer than the lease costs one renewal, too, about λρ/(ρ−μ)²·e^(−μτ) for ρ well above μ: that is
///   what is left of the overhead once e^(−ρτ) is smaller.
///
/// The same formula without a chain: requests are at distances g, and one with g ≥ nx needs n renewals, so the overhead is
/// E⌊g/τ⌋ = Σₙ Pr\[g ≥ nτ\], which for random requests is Σₙ e^(−nρτ). That holds for any arrivals: `arrivals`.
///
/// # Errors
/// x is not a finite number above zero, or beyond 10¹⁵.
pub fn closed_form(x: f64) -> Result<Magnitude, Invalid> {
    positive("the lease period in requests, τρ", x)?;
    if !PRODUCT.contains(&x) {
        return Err(Invalid { what: "the lease period in requests, τρ", value: x, rule: "between 1e-15 and 1e15" });
    }
    Ok(Magnitude::exp_of_minus(x) / -(-x).exp_m1())
}

/// The lease period in requests at which [`closed_form`] is `overhead`: x = ln(1 + 1/overhead).
///
/// # Errors
/// The overhead is not a finite number above zero.
pub fn period_for_overhead(overhead: f64) -> Result<f64, Invalid> {
    Ok((1.0 / positive("the overhead", overhead)?).ln_1p())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lease(tau: f64, rho: f64, lambda: f64, mu: f64) -> Lease {
        Lease { tau, rho, lambda, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp }
    }

    const EARLY: Parts = Parts { renew_from: 0.6, use_until: 1.0 };

    fn near(a: f64, b: f64, within: f64) {
        assert!((a / b - 1.0).abs() < within, "{a:e} and {b:e} are not within {within:e}");
    }

    #[test]
    fn without_failures_the_chain_is_the_closed_form() {
        for x in [1e-4, 0.1, 1.0, 10.0, 500.0] {
            let solved = lease(1.0, x, 0.0, 0.0).solve().unwrap().overhead(x);
            near(solved.value().unwrap(), closed_form(x).unwrap().value().unwrap(), 1e-14);
        }
    }

    #[test]
    fn the_range_of_the_closed_form_is_as_its_documentation_says() {
        let closed = closed_form(10.0).unwrap().value().unwrap();
        let solve = |lease: Lease| lease.solve().unwrap().overhead(10.0).value().unwrap();
        let base = lease(1.0, 10.0, 0.0, 0.0);
        near(solve(Lease { stages: Stages::Erlang(676), ..base }) / closed, 1.076, 2e-3);
        near(solve(Lease { sigma: Explicit::Rate(1e4), ..base }) / closed, 0.999, 1e-5);
        // λρ/(ρ−μ)²·e^(−μτ).
        let outages = lease(1.0, 1e2, 1e-3, 1.0).solve().unwrap().overhead(1e2);
        near(outages.value().unwrap(), 1e-3 * 1e2 / (99.0 * 99.0) * (-1.0f64).exp(), 5e-3);
    }

    #[test]
    fn explicit_renewal_costs_one_message_a_period() {
        let at_once = lease(2.0, 5.0, 0.0, 0.0).explicit().solve().unwrap();
        near(at_once.overhead(5.0).value().unwrap(), 0.1, 1e-15);
        let slow = Lease { sigma: Explicit::Rate(0.5), ..lease(2.0, 5.0, 0.0, 0.0) }.explicit().solve().unwrap();
        near(slow.overhead(5.0).value().unwrap(), 1.0 / (5.0 * (2.0 + 2.0)), 1e-15);
        near(slow.lapsed_up.value().unwrap(), 0.5, 1e-15);
    }

    #[test]
    fn a_network_that_is_never_up_leaves_nothing_available() {
        let solution = lease(1.0, 1.0, 1e6, 1e-6).solve().unwrap();
        near(solution.unavailability().value().unwrap(), 1.0, 1e-6);
    }

    #[test]
    fn renewing_before_the_end_costs_messages_and_bridges_outages() {
        let base = lease(1.0, 2.0, 0.01, 3.0);
        let (end, early) = (base.solve_early(Parts::PAPER).unwrap(), base.solve_early(EARLY).unwrap());
        assert_eq!(end, base.solve().unwrap());
        assert!(early.renewals > end.renewals && early.unavailability() < end.unavailability());
        let cautious = base.solve_early(Parts { use_until: 0.8, ..EARLY }).unwrap();
        assert!(cautious.unavailability() > early.unavailability() && cautious.renewals == early.renewals);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let good = lease(1.0, 1.0, 1.0, 1.0);
        let refused = |lease: Lease| lease.solve().unwrap_err().to_string();
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(Lease { tau: bad, ..good }).starts_with("the lease period τ is "));
            assert!(refused(Lease { mu: bad, ..good }).contains("μ"));
            assert!(refused(Lease { sigma: Explicit::Rate(bad), ..good }).contains("σ"));
            assert!(closed_form(bad).is_err() && period_for_overhead(bad).is_err());
            assert!(good.solve_early(Parts { renew_from: bad, use_until: 1.0 }).is_err());
        }
        for bad in [-1.0, f64::NAN, f64::INFINITY] {
            assert!(refused(Lease { rho: bad, ..good }).contains("ρ") && refused(Lease { lambda: bad, ..good }).contains("λ"));
        }
        for k in [0, STAGES_MAX + 1, u32::MAX] {
            assert!(refused(Lease { stages: Stages::Erlang(k), ..good }).contains("1 to 1,000,000"));
        }
        assert!(refused(Lease { mu: 1e-16, ..good }).contains("digits"));
        assert!(Lease { stages: Stages::Erlang(9), ..good }.solve_early(EARLY).is_err());
        assert!(good.solve_early(Parts { renew_from: 0.9, use_until: 0.8 }).is_err());
    }

    fn rate() -> impl Strategy<Value = f64> {
        (-6.0..6.0f64).prop_map(|exponent| 10f64.powf(exponent))
    }

    proptest! {
        #[test]
        fn shares_are_shares_and_opportunism_never_hurts(tau in rate(), rho in rate(), lambda in rate(), mu in rate()) {
            let base = lease(1.0, rho * tau, lambda * tau, mu * tau);
            let (or, explicit) = (base.solve().unwrap(), base.explicit().solve().unwrap());
            let share = or.unavailability().rounded();
            prop_assert!((0.0..=1.0 + 1e-12).contains(&share));
            // It can save messages and outages, and costs neither, but for the rounding of the last digits.
            prop_assert!(or.renewals.rounded() <= explicit.renewals.rounded() * (1.0 + 1e-9));
            prop_assert!(or.unavailability().rounded() <= explicit.unavailability().rounded() * (1.0 + 1e-9));
            // No lease is longer without data than the network is down.
            prop_assert!(or.lapsed_down.rounded() <= lambda / (lambda + mu) * (1.0 + 1e-9));
        }

        #[test]
        fn a_longer_lease_costs_less_and_bridges_more(rho in rate(), lambda in rate(), mu in rate()) {
            let (short, long) = (lease(1.0, rho, lambda, mu).solve().unwrap(), lease(1.5, rho, lambda, mu).solve().unwrap());
            prop_assert!(long.renewals.rounded() <= short.renewals.rounded() * (1.0 + 1e-9));
            prop_assert!(long.unavailability().rounded() <= short.unavailability().rounded() * (1.0 + 1e-9));
        }

        #[test]
        fn many_stages_are_a_sharp_period(rho in -2.0..0.5f64, lambda in -3.0..0.0f64, mu in -2.0..0.5f64) {
            let sharp = lease(1.0, 10f64.powf(rho), 10f64.powf(lambda), 10f64.powf(mu));
            let staged = Lease { stages: Stages::Erlang(STAGES_MAX), ..sharp };
            let (a, b) = (sharp.solve().unwrap(), staged.solve().unwrap());
            prop_assert!((a.renewals.rounded() / b.renewals.rounded() - 1.0).abs() < 3e-5);
            prop_assert!((a.lapsed_down.rounded() / b.lapsed_down.rounded() - 1.0).abs() < 3e-5);
        }
    }
}
