//! Overhead from requests as they come, instead of from a rate: what a plan from a capture is made of.
//!
//! Decides: the overhead of a lease for given gaps between requests. A gap g between two requests needs ⌊g/x⌋ explicit renewals when one is
//! sent x after the last request or renewal (x = τ for renewal at the end, fτ for renewal from fτ on), so
//!
//! ```text
//!     overhead(x) = E⌊g/x⌋ = Σₙ Pr[g ≥ n·x]
//! ```
//!
//! for any arrivals whatever; random ones have Pr[g ≥ t] = e^(−ρt), which is the closed form of `renewal`. Bursts make gaps unequal, and
//! so cost more at long periods and less at short ones than the rate alone says.
//!
//! Leaves to others: where the gaps come from (a capture), failures (`renewal`).

use crate::invalid::{Invalid, positive};

/// Gaps between the requests of agents, s.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Gaps {
    sorted: Vec<f64>,
}

impl Gaps {
    /// Of times of requests of one agent, in order, s. Requests of the same instant renew once; their gaps of zero count as requests.
    #[must_use]
    pub fn of_times(times: &[f64]) -> Self {
        times.windows(2).map(|pair| (pair[1] - pair[0]).max(0.0)).collect()
    }

    /// These and those of another agent.
    pub fn add(&mut self, other: &Self) {
        self.sorted.extend_from_slice(&other.sorted);
        self.sorted.sort_by(f64::total_cmp);
    }

    /// How many.
    #[must_use]
    pub fn count(&self) -> usize {
        self.sorted.len()
    }

    /// Mean rate of requests, 1/s; `None` without a gap of any length.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        let sum: f64 = self.sorted.iter().sum();
        (sum > 0.0).then(|| size(self.sorted.len()) / sum)
    }

    /// Squared coefficient of variation of the gaps: 0 for a clock, 1 for random requests, more for bursts. `None` without a rate.
    #[must_use]
    pub fn burstiness(&self) -> Option<f64> {
        let mean = 1.0 / self.rate()?;
        let variance = self.sorted.iter().map(|g| (g - mean) * (g - mean)).sum::<f64>() / size(self.sorted.len());
        Some(variance / (mean * mean))
    }

    /// The gap that the share `q` of all gaps does not exceed, s.
    #[must_use]
    pub fn quantile(&self, q: f64) -> Option<f64> {
        let last = self.sorted.len().checked_sub(1)?;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the number of gaps")]
        let at = (q.clamp(0.0, 1.0) * size(last)).ceil() as usize;
        self.sorted.get(at.min(last)).copied()
    }

    /// Explicit renewals per request when one is sent `after` seconds without a request.
    ///
    /// # Errors
    /// `after` is not a finite number above zero.
    pub fn overhead(&self, after: f64) -> Result<f64, Invalid> {
        positive("the time after which an agent renews", after)?;
        let renewals: f64 = self.sorted.iter().rev().map(|g| (g / after).floor()).take_while(|n| *n > 0.0).sum();
        Ok(if self.sorted.is_empty() { 0.0 } else { renewals / size(self.sorted.len()) })
    }
}

impl FromIterator<f64> for Gaps {
    fn from_iter<I: IntoIterator<Item = f64>>(gaps: I) -> Self {
        let mut sorted: Vec<f64> = gaps.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self { sorted }
    }
}

#[expect(clippy::cast_precision_loss, reason = "fewer than 2^53 gaps fit in memory")]
fn size(count: usize) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renewal::closed_form;

    /// Gaps at the quantiles of an exponential distribution with mean 1.
    fn random(count: u32) -> Gaps {
        (0..count).map(|i| -(1.0 - (f64::from(i) + 0.5) / f64::from(count)).ln()).collect()
    }

    #[test]
    fn random_requests_give_the_closed_form() {
        let gaps = random(1_000_000);
        assert!((gaps.rate().unwrap() - 1.0).abs() < 1e-5 && (gaps.burstiness().unwrap() - 1.0).abs() < 1e-3);
        for after in [0.1, 1.0, 3.0, 6.0] {
            let (ours, closed) = (gaps.overhead(after).unwrap(), closed_form(after).unwrap().rounded());
            assert!((ours / closed - 1.0).abs() < 1e-3, "{after}: {ours} and {closed}");
        }
    }

    #[test]
    fn a_clock_needs_no_renewal_within_its_period_and_each_one_beyond() {
        let gaps = Gaps::of_times(&[0.0, 1.0, 2.0, 3.0]);
        assert_eq!((gaps.rate(), gaps.burstiness()), (Some(1.0), Some(0.0)));
        assert_eq!((gaps.overhead(1.5), gaps.overhead(1.0), gaps.overhead(0.4)), (Ok(0.0), Ok(1.0), Ok(2.0)));
    }

    #[test]
    fn bursts_cost_more_at_long_periods_and_less_at_short_ones() {
        // Nine of ten gaps are short; the same mean as one gap of 1 s.
        let bursts: Gaps = (0..1_000).map(|i| if i % 10 == 0 { 9.1 } else { 0.1 }).collect();
        assert!((bursts.rate().unwrap() - 1.0).abs() < 1e-9 && bursts.burstiness().unwrap() > 5.0);
        assert!(bursts.overhead(7.0).unwrap() > closed_form(7.0).unwrap().rounded() * 50.0);
        assert!(bursts.overhead(0.2).unwrap() < closed_form(0.2).unwrap().rounded());
        assert_eq!((bursts.quantile(0.5), bursts.quantile(0.99)), (Some(0.1), Some(9.1)));
    }

    #[test]
    fn without_requests_there_is_no_rate() {
        let none = Gaps::of_times(&[1.0]);
        assert_eq!((none.count(), none.rate(), none.burstiness(), none.quantile(0.5)), (0, None, None, None));
        assert!(none.overhead(0.0).is_err());
    }
}
