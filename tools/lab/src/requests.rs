//! How requests come: at random, in bursts, or as a trace had them.
//!
//! Decides the gaps between the requests of one agent, and what explicit renewals those gaps cost by [`cistern_model::arrivals`]' formula, which
//! simulations are compared with. One seed gives the same gaps for ever, whoever draws them: the simulated agents of [`crate::simulated`],
//! or the real cores in `cistern-sim`.
//! Leaves to others: what an agent does at a request.

use cistern_model::{Invalid, fraction, not_negative, positive};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};

/// How requests come.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Arrivals {
    /// At random.
    Poisson,
    /// In bursts: a gap is long with the probability `long`, and `times` as long on average as the short ones; both at random.
    Bursts {
        /// Share of long gaps.
        long: f64,
        /// Mean of long gaps over mean of short ones.
        times: f64,
    },
    /// With these gaps, one after the other, again and again; only their ratios matter.
    Traced(Vec<f64>),
}

impl Arrivals {
    /// Explicit renewals per request for a lease that is renewed `x` mean gaps after the last request: E⌊g/x⌋ (see [`cistern_model::arrivals`]),
    /// for gaps of these kinds. What the simulation is compared with.
    #[must_use]
    pub(crate) fn overhead(&self, x: f64) -> f64 {
        let random = |x: f64| 1.0 / x.exp_m1();
        match self {
            Self::Poisson => random(x),
            Self::Bursts { long, times } => {
                let short = short_gap(*long, *times);
                (1.0 - long) * random(x / short) + long * random(x / (short * times))
            }
            Self::Traced(gaps) => {
                let mean = mean(gaps);
                gaps.iter().map(|gap| (gap / mean / x).floor()).sum::<f64>() / number(gaps.len() as u64)
            }
        }
    }

    /// Gaps between requests at the rate `rho`, without end.
    ///
    /// # Errors
    /// The rate or the arrivals cannot be.
    pub(crate) fn draw(&self, rho: f64, seed: u64) -> Result<impl Iterator<Item = f64>, Invalid> {
        positive("the rate of requests", rho)?;
        self.check()?;
        let (mut gaps, mut random) = (Gaps::new(self), ChaCha12Rng::seed_from_u64(seed));
        Ok(std::iter::repeat_with(move || gaps.next(&mut random) / rho))
    }

    pub(crate) fn check(&self) -> Result<(), Invalid> {
        match self {
            Self::Poisson => Ok(()),
            Self::Bursts { long, times } => {
                fraction("the share of long gaps", *long)?;
                positive("how much longer they are", *times).map(|_| ())
            }
            Self::Traced(gaps) => {
                gaps.iter().try_for_each(|gap| not_negative("a gap", *gap).map(|_| ()))?;
                positive("the sum of the gaps", gaps.iter().sum()).map(|_| ())
            }
        }
    }
}

/// How long the network works and then does not, in turn, without end: at random, failing at the rate λ and mended at the rate μ.
///
/// # Errors
/// One of the rates cannot be.
pub(crate) fn outages(lambda: f64, mu: f64, seed: u64) -> Result<impl Iterator<Item = (f64, f64)>, Invalid> {
    positive("the failure rate λ", lambda)?;
    positive("the repair rate μ", mu)?;
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    Ok(std::iter::repeat_with(move || (random_time(&mut random) / lambda, random_time(&mut random) / mu)))
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 events")]
pub(crate) fn number(count: u64) -> f64 {
    count as f64
}

/// Mean of short gaps when the mean of all is 1.
fn short_gap(long: f64, times: f64) -> f64 {
    1.0 / (1.0 - long + long * times)
}

/// Mean of a trace's gaps.
fn mean(gaps: &[f64]) -> f64 {
    gaps.iter().sum::<f64>() / number(gaps.len() as u64)
}

/// A random time with the mean 1.
pub(crate) fn random_time(random: &mut ChaCha12Rng) -> f64 {
    // In (0, 1].
    let uniform = 1.0 - random.random::<f64>();
    -uniform.ln()
}

/// Gaps, one after the other, with the mean 1.
#[derive(Clone, Debug)]
pub(crate) struct Gaps<'a> {
    arrivals: &'a Arrivals,
    /// The gap of a trace that was drawn last.
    at: usize,
    /// Mean gap of a trace.
    mean: f64,
}

impl<'a> Gaps<'a> {
    pub(crate) fn new(arrivals: &'a Arrivals) -> Self {
        let mean = if let Arrivals::Traced(gaps) = arrivals { mean(gaps) } else { 1.0 };
        Self { arrivals, at: 0, mean }
    }

    pub(crate) fn next(&mut self, random: &mut ChaCha12Rng) -> f64 {
        match self.arrivals {
            Arrivals::Poisson => random_time(random),
            Arrivals::Bursts { long, times } => {
                let short = short_gap(*long, *times);
                let mean = if random.random::<f64>() < *long { short * times } else { short };
                mean * random_time(random)
            }
            Arrivals::Traced(gaps) => {
                self.at = (self.at + 1) % gaps.len();
                gaps[self.at] / self.mean
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_have_the_mean_that_was_asked_for_and_a_seed_gives_them_again() {
        let trace = Arrivals::Traced(vec![1.0, 1.0, 4.0]);
        for arrivals in [Arrivals::Poisson, Arrivals::Bursts { long: 0.1, times: 20.0 }, trace] {
            let draw = |seed| arrivals.draw(4.0, seed).unwrap().take(200_000).collect::<Vec<_>>();
            let (gaps, sum) = (draw(1), draw(1).iter().sum::<f64>());
            assert!((sum / 50_000.0 - 1.0).abs() < 0.02, "{arrivals:?}: {sum}");
            assert_eq!(gaps, draw(1));
        }
        assert!(Arrivals::Poisson.draw(0.0, 1).is_err() && Arrivals::Traced(vec![]).draw(1.0, 1).is_err());
    }

    #[test]
    fn outages_come_at_their_rates() {
        let outages: Vec<_> = outages(0.1, 2.0, 1).unwrap().take(20_000).collect();
        let (up, down): (f64, f64) = outages.iter().fold((0.0, 0.0), |sum, pair| (sum.0 + pair.0, sum.1 + pair.1));
        assert!((up / 200_000.0 - 1.0).abs() < 0.03 && (down / 10_000.0 - 1.0).abs() < 0.03);
        assert!(super::outages(0.0, 1.0, 1).is_err() && super::outages(1.0, f64::NAN, 1).is_err());
    }
}
