//! The bench's arithmetic: medians and ranges over rounds, costs per exchange, ratios.
//!
//! Decides how figures are made from readings. A ratio is made round by round, from two rounds that followed each other, and only
//! then is its median taken: what slows the machine for a while slows both and cancels out.
//! Invariant: no figure is made from a round without exchanges. Leaves to others: readings (`host`, `traffic`), printing (`report`).

use crate::host::Usage;
use crate::traffic::Traced;
use serde::Serialize;

/// A figure over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Spread {
    /// The middle value; of an even number the mean of the two in the middle.
    pub(crate) median: f64,
    /// The smallest.
    pub(crate) min: f64,
    /// The largest.
    pub(crate) max: f64,
}

impl Spread {
    /// Median and range; `None` without values.
    pub(crate) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let median = if values.len() % 2 == 1 { values[middle] } else { f64::midpoint(values[middle - 1], values[middle]) };
        Some(Self { median, min, max })
    }
}

/// One round of one side.
#[derive(Debug)]
pub(crate) struct Round {
    /// What the generator saw.
    pub(crate) traced: Traced,
    /// What the process under test used.
    pub(crate) usage: Usage,
}

impl Round {
    /// Server CPU, in microseconds, for one datagram in and its answer out.
    pub(crate) fn cpu_us(&self) -> f64 {
        per(self.usage.cpu_ns, self.traced.exchanges) / 1_000.0
    }

    fn per_second(&self) -> f64 {
        count(self.traced.exchanges) / self.traced.elapsed.as_secs_f64().max(f64::MIN_POSITIVE)
    }

    fn latency_us(&self, quantile: f64) -> f64 {
        count(self.traced.latency_ns.value_at_quantile(quantile)) / 1_000.0
    }
}

/// One side over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Column {
    /// Server CPU per exchange, in microseconds.
    pub(crate) cpu_us: Spread,
    /// Exchanges a second.
    pub(crate) per_second: Spread,
    /// Median latency of a round, in microseconds.
    pub(crate) p50_us: Spread,
    /// 99th percentile of the latency of a round, in microseconds.
    pub(crate) p99_us: Spread,
    /// 99.9th percentile of the latency of a round, in microseconds.
    pub(crate) p999_us: Spread,
    /// Sleeps of the process under test per exchange: how much of its CPU is waking up.
    pub(crate) sleeps: Spread,
    /// Bytes of UDP payload per datagram to the process under test.
    pub(crate) bytes_asked: f64,
    /// Datagrams per exchange, both ways together.
    pub(crate) datagrams: f64,
    /// Bytes of UDP payload per exchange, both ways together.
    pub(crate) bytes: f64,
    /// All exchanges.
    pub(crate) exchanges: u64,
    /// Requests that were sent again because no answer came.
    pub(crate) resent: u64,
}

impl Column {
    /// `None` without rounds.
    pub(crate) fn of(rounds: &[Round]) -> Option<Self> {
        let spread = |figure: &dyn Fn(&Round) -> f64| Spread::of(rounds.iter().map(figure));
        let sum = |number: &dyn Fn(&Traced) -> u64| rounds.iter().map(|round| number(&round.traced)).sum::<u64>();
        let (asked, answered) = (sum(&|t| t.datagrams_out), sum(&|t| t.datagrams_in));
        let exchanges = sum(&|t| t.exchanges);
        Some(Self {
            cpu_us: spread(&Round::cpu_us)?,
            per_second: spread(&Round::per_second)?,
            p50_us: spread(&|round| round.latency_us(0.50))?,
            p99_us: spread(&|round| round.latency_us(0.99))?,
            p999_us: spread(&|round| round.latency_us(0.999))?,
            sleeps: spread(&|round| per(round.usage.sleeps, round.traced.exchanges))?,
            bytes_asked: per(sum(&|t| t.bytes_out), asked),
            datagrams: per(asked + answered, exchanges),
            bytes: per(sum(&|t| t.bytes_out + t.bytes_in), exchanges),
            exchanges,
            resent: sum(&|t| t.resent),
        })
    }
}

/// Server CPU per exchange of `over` divided by that of `under`, each pair of rounds by itself; `None` without rounds.
pub(crate) fn ratio(over: &[Round], under: &[Round]) -> Option<Spread> {
    Spread::of(over.iter().zip(under).map(|(over, under)| over.cpu_us() / under.cpu_us()))
}

/// Median latency of `over` divided by that of `under`, each pair of rounds by itself; `None` without rounds.
pub(crate) fn p50_ratio(over: &[Round], under: &[Round]) -> Option<Spread> {
    Spread::of(over.iter().zip(under).map(|(over, under)| over.latency_us(0.5) / under.latency_us(0.5)))
}

/// `total` per item; 0 without items.
pub(crate) fn per(total: u64, items: u64) -> f64 {
    if items == 0 { 0.0 } else { count(total) / count(items) }
}

/// A count as a figure; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^53")]
pub(crate) const fn count(number: u64) -> f64 {
    number as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn round(cpu_ns: u64, exchanges: u64) -> Round {
        let mut traced = Traced::new();
        traced.exchanges = exchanges;
        traced.elapsed = Duration::from_millis(500);
        (traced.datagrams_out, traced.datagrams_in) = (exchanges, exchanges / 4);
        (traced.bytes_out, traced.bytes_in) = (exchanges * 48, exchanges * 100);
        for us in 1..=100 {
            traced.latency_ns.saturating_record(us * 1_000);
        }
        Round { traced, usage: Usage { cpu_ns, sleeps: exchanges / 2 } }
    }

    fn close(a: f64, b: f64) -> bool {
        (a - b).abs() <= b.abs() * 0.002
    }

    #[test]
    fn median_of_odd_and_even_numbers_of_values() {
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0, 2.0, 3.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        assert_eq!(Spread::of([7.0]), Some(Spread { median: 7.0, min: 7.0, max: 7.0 }));
        assert_eq!(Spread::of([]), None);
    }

    #[test]
    fn column_counts_per_exchange_and_per_datagram() {
        let column = Column::of(&[round(2_000_000, 1_000), round(4_000_000, 1_000), round(3_000_000, 1_000)]).unwrap();
        assert_eq!(column.cpu_us, Spread { median: 3.0, min: 2.0, max: 4.0 });
        assert!(close(column.per_second.median, 2_000.0));
        assert!(close(column.sleeps.median, 0.5));
        assert!(close(column.p50_us.median, 50.0) && close(column.p99_us.median, 99.0), "{column:?}");
        assert!(close(column.bytes_asked, 48.0) && close(column.bytes, 148.0), "{column:?}");
        assert!(close(column.datagrams, 1.25));
        assert_eq!((column.exchanges, column.resent), (3_000, 0));
    }

    #[test]
    fn ratio_is_taken_round_by_round_before_the_median() {
        // The machine was ten times slower in the second pair: the ratio of medians would not be a half.
        let echo = [round(1_000, 1), round(10_000, 1), round(1_000, 1), round(1_000, 1)];
        let ours = [round(2_000, 1), round(20_000, 1), round(2_000, 1), round(4_000, 1)];
        assert_eq!(ratio(&echo, &ours), Some(Spread { median: 0.5, min: 0.25, max: 0.5 }));
    }

    #[test]
    fn round_without_exchanges_costs_nothing_rather_than_infinity() {
        assert!(close(round(5, 0).cpu_us() + 1.0, 1.0));
        assert_eq!(Column::of(&[]), None);
    }
}
