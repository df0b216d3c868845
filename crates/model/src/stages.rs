//! How many stages the model of a period needs (section 5.1 of the OR paper).
//!
//! Decides: the smallest k for which a period of k exponential stages is within δτ of τ with confidence 1−ε, by four arguments:
//!
//! - Chebyshev: Pr\[|x−τ| ≥ δτ\] ≤ 1/(kδ²) ≤ ε, so k ≥ 1/(δ²ε): 10,000 for δ = 0.1 and ε = 0.01, as the paper says;
//! - the central limit theorem, the paper's equation (1): Φ(δ√k) − Φ(−δ√k) ≥ 1−ε, so k ≥ (z/δ)² with z = Φ⁻¹(1−ε/2) = 2.575829…:
//!   663.49, so 664;
//! - the same as the paper worked it out: 676 = (2.6/0.1)², so z was taken as 2.6, rounded up to what a table with one decimal has;
//! - the Erlang distribution itself: the theorem is an approximation, and the sum of exponential stages is skewed.
//!
//! Leaves to others: what the choice changes in the results (very little: `renewal::closed_form`).

use crate::invalid::{Invalid, fraction};
use crate::renewal::STAGES_MAX;

/// The numbers of stages that suffice, by argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct StageCounts {
    /// By the central limit theorem.
    pub clt: u64,
    /// By the central limit theorem with the normal quantile rounded up to one decimal, as the paper has it.
    pub clt_paper: u64,
    /// By Chebyshev's inequality.
    pub chebyshev: u64,
    /// By the Erlang distribution; `None` when more than a million stages are needed.
    pub erlang: Option<u64>,
}

/// How many stages suffice for a period within `delta`·τ of τ with confidence 1 − `epsilon`.
///
/// # Errors
/// `delta` or `epsilon` is not between 0 and 1, or so small that more than 10¹⁵ stages would be needed.
pub fn choose(delta: f64, epsilon: f64) -> Result<StageCounts, Invalid> {
    fraction("δ", delta)?;
    fraction("ε", epsilon)?;
    let chebyshev = 1.0 / (delta * delta * epsilon);
    if chebyshev > 1e15 {
        return Err(Invalid { what: "the number of stages 1/(δ²ε)", value: chebyshev, rule: "at most 1e15; take a larger δ or ε" });
    }
    let z = normal_quantile(epsilon);
    let rounded_up = whole(z * 10.0) / 10.0;
    let square = |z: f64| whole((z / delta) * (z / delta));
    Ok(StageCounts {
        clt: count(square(z)),
        clt_paper: count(square(rounded_up)),
        chebyshev: count(whole(chebyshev)),
        erlang: erlang(delta, epsilon),
    })
}

/// The next whole number, where what misses one by the rounding of a quotient is that one.
fn whole(number: f64) -> f64 {
    let nearest = number.round();
    if (number - nearest).abs() <= 1e-12 * nearest { nearest } else { number.ceil() }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a whole number of at most 10¹⁶")]
fn count(number: f64) -> u64 {
    number as u64
}

/// z with Pr\[|N| > z\] = epsilon for a normal N: erfc(z/√2) = ε, by halving.
#[must_use]
pub fn normal_quantile(epsilon: f64) -> f64 {
    let (mut low, mut high) = (0.0f64, 40.0f64);
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if libm::erfc(middle / std::f64::consts::SQRT_2) > epsilon { low = middle } else { high = middle }
    }
    high
}

/// Pr\[|x − τ| ≥ δτ\] by the central limit theorem: 2 − 2Φ(δ√k).
#[must_use]
pub fn normal_outside(k: f64, delta: f64) -> f64 {
    libm::erfc(delta * (k / 2.0).sqrt())
}

/// Pr\[|x − τ| ≥ δτ\] for a period x of k stages: k stages are over before t when a Poisson process of rate k/τ has had k events, so the
/// two tails are those of Poisson counts with the means k(1−δ) and k(1+δ).
#[must_use]
pub fn outside(k: u64, delta: f64) -> f64 {
    let k = approximately(k);
    let ln_term = |mean: f64, n: f64| n * mean.ln() - mean - libm::lgamma(n + 1.0);
    // Early: at least k events of k(1−δ); terms fall by the factor mean/(n+1) < 1.
    let mean = k * (1.0 - delta);
    let early = tail(ln_term(mean, k).exp(), |i| mean / (k + i));
    // Late: at most k−1 events of k(1+δ); terms fall by the factor n/mean < 1.
    let mean = k * (1.0 + delta);
    let late = tail(ln_term(mean, k - 1.0).exp(), |i| (k - i).max(0.0) / mean);
    early + late
}

/// The sum of terms, each the one before times `factor` of its number (from 1).
fn tail(first: f64, factor: impl Fn(f64) -> f64) -> f64 {
    let (mut sum, mut term, mut i) = (0.0, first, 0.0);
    while term > sum * 1e-17 {
        sum += term;
        i += 1.0;
        term *= factor(i);
    }
    sum
}

/// The smallest number of stages by the distribution itself.
fn erlang(delta: f64, epsilon: f64) -> Option<u64> {
    let most = u64::from(STAGES_MAX);
    if outside(most, delta) > epsilon {
        return None;
    }
    let (mut low, mut high) = (0, most);
    while high - low > 1 {
        let middle = low.midpoint(high);
        if outside(middle, delta) > epsilon { low = middle } else { high = middle }
    }
    Some(high)
}

#[expect(clippy::cast_precision_loss, reason = "below 2^53")]
fn approximately(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_example_comes_out_as_the_paper_says_and_why() {
        let choice = choose(0.1, 0.01).unwrap();
        assert_eq!((choice.chebyshev, choice.clt_paper, choice.clt), (10_000, 676, 664));
        // mpmath: sqrt(2)*erfinv(0.99)
        assert!((normal_quantile(0.01) - 2.575_829_303_548_901).abs() < 1e-14);
    }

    #[test]
    fn the_distribution_itself_agrees_with_the_theorem_to_a_few_states() {
        let erlang = choose(0.1, 0.01).unwrap().erlang.unwrap();
        assert!(outside(erlang, 0.1) <= 0.01 && outside(erlang - 1, 0.1) > 0.01);
        assert!((640..690).contains(&erlang), "{erlang}");
        // One stage is an exponential time: 1 − e^(−(1−δ)) + e^(−(1+δ)).
        let exact = 1.0 - (-0.9f64).exp() + (-1.1f64).exp();
        assert!((outside(1, 0.1) - exact).abs() < 1e-14, "{}", outside(1, 0.1));
    }

    #[test]
    fn whole_numbers_are_not_missed_by_rounding() {
        assert_eq!(choose(0.1, 0.1).unwrap().chebyshev, 1_000);
        assert_eq!(choose(0.01, 0.01).unwrap().chebyshev, 1_000_000);
        assert_eq!(choose(0.5, 0.5).unwrap().chebyshev, 8);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [0.0, -0.1, 1.0, 2.0, f64::NAN, f64::INFINITY] {
            assert!(choose(bad, 0.01).is_err() && choose(0.1, bad).is_err(), "{bad}");
        }
        assert!(choose(1e-6, 1e-6).unwrap_err().to_string().contains("take a larger"));
    }
}
