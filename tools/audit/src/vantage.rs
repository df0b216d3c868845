//! Where a capture was taken, and what follows from that: which order is certain, what time a receipt has, what an absence proves.
//!
//! Decides nothing by itself; every rule asks here before it takes an order, a span or an absence for certain.
//! Invariant: the default claims the least: a capture somewhere on the way that may have lost datagrams.
//! Leaves to others: the rules.

use std::time::Duration;

/// At which end of the path a capture was taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Side {
    /// On the server's host: all that it sends is seen in its order, and what reaches it before it can act on it.
    Server,
    /// On the agents' host or hosts, if one clock stamps for all of them: what agents send is seen when they send it.
    Agent,
    /// Somewhere between, or on one host that has both ends: times are neither side's.
    #[default]
    Between,
}

impl Side {
    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Agent => "agent",
            Self::Between => "between",
        }
    }
}

/// How far a capture's clock may run apart from the clock of the side that acts, in parts per million, where nobody says: a clock that
/// a time daemon slews (chrony slews by up to 83,333 ppm), and a little.
pub const CLOCK_PPM: u32 = 100_000;

/// The vantage of a capture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vantage {
    /// Where it was taken.
    pub side: Side,
    /// Whether the process of that side wrote it: then what it received is there when the process took it, and nothing else is.
    pub inside: bool,
    /// Whether nothing that passed there is missing, as far as is known: what is absent then was never there.
    pub complete: bool,
    /// How far the capture's clock may run apart from the clocks that leases and T are counted on, in parts per million.
    pub clock_ppm: u32,
}

impl Default for Vantage {
    fn default() -> Self {
        Self { side: Side::Between, inside: false, complete: false, clock_ppm: CLOCK_PPM }
    }
}

impl Vantage {
    /// Whether the order in which the server's own datagrams stand is the order in which it sent them, over all sessions.
    #[must_use]
    pub const fn orders_server(&self) -> bool {
        matches!(self.side, Side::Server)
    }

    /// Whether `elapsed`, read from the capture, is certainly shorter than `span` on the clock of either side.
    #[must_use]
    pub fn is_shorter(&self, elapsed: Duration, span: Duration) -> bool {
        let grown = elapsed.as_nanos() * u128::from(1_000_000 + self.clock_ppm) / 1_000_000;
        grown < span.as_nanos()
    }
}

/// What no datagram of the capture says, as told by whoever runs the auditor: above all what a session was promised, where the capture
/// began after its WELCOME.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// The lease period τ.
    pub tau: Option<Duration>,
    /// The bound δ on the rates of any two clocks, in parts per million.
    pub delta_ppm: Option<u32>,
    /// The slack ε of the server's timer.
    pub epsilon: Option<Duration>,
    /// Whether no operator has evicted anybody.
    pub no_evictions: bool,
    /// Whether the server does not end waits by what it heard last (section 11.3, the second short cut).
    pub no_last_heard: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn span_is_only_called_short_when_no_clock_within_the_tolerance_makes_it_long_enough() {
        let vantage = Vantage { clock_ppm: 100_000, ..Vantage::default() };
        assert!(vantage.is_shorter(Duration::from_millis(1_800), Duration::from_secs(2)));
        assert!(!vantage.is_shorter(Duration::from_millis(1_850), Duration::from_secs(2)));
        let exact = Vantage { clock_ppm: 0, ..vantage };
        assert!(exact.is_shorter(Duration::from_nanos(1_999_999_999), Duration::from_secs(2)));
        assert!(!exact.is_shorter(Duration::from_secs(2), Duration::from_secs(2)));
    }
}
