//! How often something measured fell between which bounds.
//!
//! Decides: that a measurement is one comparison for each bound below it and two additions, and that bounds never change while the
//! server runs, so that a reader can subtract two readings. Place in the walk: none; held by what counts.
//! Invariant: the counts of all parts make the number of measurements; the sum never wraps, it stays at its largest value.
//! Leaves to others: units, and showing it.

/// Counts of measurements, by bounds that are sorted and belong to the part below them; what is above all is counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    parts: [u64; N],
    above: u64,
    sum: u64,
}

impl<const N: usize> Histogram<N> {
    /// Nothing measured.
    #[must_use]
    pub const fn new(bounds: &'static [u64; N]) -> Self {
        Self { bounds, parts: [0; N], above: 0, sum: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        match self.bounds.iter().position(|bound| value <= *bound) {
            Some(part) => self.parts[part] += 1,
            None => self.above += 1,
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// Each bound, and how many measurements were at most that.
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bounds.iter().zip(&self.parts).scan(0, |total, (bound, part)| {
            *total += part;
            Some((*bound, *total))
        })
    }

    /// How many measurements there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.iter().sum::<u64>() + self.above
    }

    /// The sum of all measurements.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn a_measurement_is_counted_at_its_bound_and_all_above() {
        let mut histogram = Histogram::new(&[10, 20, 40]);
        for value in [0, 10, 11, 40, 41, u64::MAX] {
            histogram.add(value);
        }
        assert_eq!(histogram.up_to().collect::<Vec<_>>(), [(10, 2), (20, 3), (40, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }
}
