//! Which lease period: the range in which all that is asked for holds, and what a period costs.
//!
//! Decides: overhead and unavailability fall with τ, and the time of a failover grows with it. So each wish is a bound from one side, the
//! bounds are found by halving, and between them every period does. Recommended is the longest if a failover was bounded: it is then as
//! quick as was asked, messages are fewest and outages bridged are most. Without that bound nothing holds τ down, and it is the usual
//! period, or the nearest to it. Times are in seconds.
//!
//! A failover takes Td' + τ(1+δ) + ε from the first demand that a dead agent does not receipt (wire-spec section 11.3); Td is a part of τ
//! unless it is set, and Td' is longer where three transmissions do not fit into it.
//!
//! Agents may ask for a period of their own beside the server's τ ([`Setting::own_lease`]): nothing but their own locks, messages and
//! availability goes by it.
//!
//! Leaves to others: what the agent and the server are set to (the caller takes it from the settings), words (the command).

use crate::arrivals::Gaps;
use crate::invalid::{Invalid, fraction, not_negative, positive};
use crate::magnitude::Magnitude;
use crate::renewal::{Explicit, Lease, Parts, Stages};

/// The delivery timeout Td.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Timeout {
    /// So long, s.
    Fixed(f64),
    /// A part of τ, but at least so long.
    Part {
        /// Of τ.
        of_tau: f64,
        /// s.
        least: f64,
    },
}

/// The shortest retransmission timeout, s.
const RTO_MIN: f64 = 0.02;

impl Timeout {
    /// Td with a lease of `tau` seconds.
    #[must_use]
    pub fn of(self, tau: f64) -> f64 {
        match self {
            Self::Fixed(timeout) => timeout,
            Self::Part { of_tau, least } => (tau * of_tau).max(least),
        }
    }

    /// Td of a session with a lease of `lease` seconds of its own, where the server's is `tau`: shorter in proportion, but not below 100 ms;
    /// never longer.
    fn of_own(self, lease: f64, tau: f64) -> f64 {
        let usual = self.of(tau);
        if lease >= tau { usual } else { (usual * lease / tau).max(usual.min(0.1)) }
    }

    /// Td', the longest time from the first transmission of a demand to the decision that its delivery has failed, s: Td, or three
    /// retransmission timeouts where they are longer. `round_trip`: of the holder's handshake, s, by which the timeouts of a holder go
    /// that was sent nothing yet. Each timeout is at most τ/8; the first two are spread by up to a quarter, and the second is doubled.
    #[must_use]
    pub fn found_within(self, tau: f64, round_trip: f64) -> f64 {
        self.found_within_own(tau, tau, round_trip)
    }

    /// The same, of a session with a lease of `lease` seconds of its own.
    fn found_within_own(self, lease: f64, tau: f64, round_trip: f64) -> f64 {
        let cap = lease.min(tau) / 8.0;
        let rto = (3.0 * round_trip).max(RTO_MIN).min(cap);
        self.of_own(lease, tau).max((1.25 * rto).min(cap) + (2.5 * rto).min(cap) + rto)
    }
}

/// How requests come.
#[derive(Clone, Debug, PartialEq)]
pub enum Requests {
    /// At random, at this rate, 1/s.
    Rate(f64),
    /// As they were seen to come.
    Measured(Gaps),
}

/// What is known of the system.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// Of one agent.
    pub requests: Requests,
    /// Mean time between failures of an agent's network, s.
    pub fail_every: f64,
    /// Mean time of a repair, s.
    pub repair: f64,
    /// Whether requests renew the lease; if not, only renewals do that are sent on purpose.
    pub opportunistic: bool,
    /// When the agent renews by itself, and until when it uses its lease.
    pub parts: Parts,
    /// Td.
    pub timeout: Timeout,
    /// Round trip between the server and an agent, s.
    pub round_trip: f64,
    /// δ.
    pub delta: f64,
    /// ε, s.
    pub epsilon: f64,
    /// Shortest and longest τ that the server allows, s.
    pub allowed: (f64, f64),
    /// The τ that is taken if nothing speaks for another, s.
    pub usual: f64,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Wishes {
    /// At most so many explicit renewals per request.
    pub overhead: Option<f64>,
    /// A failover takes at most so long, s.
    pub recover_within: Option<f64>,
    /// At most such a share of the time without data.
    pub unavailable: Option<f64>,
}

/// What a period costs.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Costs {
    /// τ, s.
    pub tau: f64,
    /// Explicit renewals per request, with opportunistic renewal.
    pub overhead: Magnitude,
    /// The same, if every renewal were explicit, at the same part of τ.
    pub overhead_explicit: Magnitude,
    /// Share of time without data.
    pub unavailable: Magnitude,
    /// The same, with explicit renewal.
    pub unavailable_explicit: Magnitude,
    /// Td', s: from the first demand until its delivery has failed.
    pub failure_found: f64,
    /// From the first demand to a dead agent until its locks are granted to others, s.
    pub failover: f64,
}

/// What a lease period costs that an agent asks for.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct OwnLease {
    /// What it asks for, s.
    pub asked: f64,
    /// What its period, `tau`, costs the agent, and how long a failover takes from the first demand.
    #[serde(flatten)]
    pub costs: Costs,
    /// How long others wait at most for a lock of the agent that is gone, from when they asked for it, s.
    pub others_wait: f64,
    /// The longest outage of the server, or of the way to it, over which the agent certainly keeps its locks, s: what is left of the lease
    /// when it renews by itself, less what it no longer uses.
    pub outlives: f64,
}

/// After what part of its own lease period an agent that asked for one renews by itself, and the least time after which it does, s.
const OWN_RENEW_FROM: f64 = 1.0 / 8.0;
const OWN_RENEW_LEAST: f64 = 1.2;
/// The probe period, as a part of the lease period.
const PROBED_EVERY: f64 = 0.5;

/// The bound that one wish sets.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Bound {
    /// Which wish.
    pub wish: &'static str,
    /// What was asked for.
    pub asked: f64,
    /// τ must be at least so long, s; `None`: no allowed period does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_least: Option<f64>,
    /// τ must be at most so long, s.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at_most: Option<f64>,
    /// Whether any allowed period fulfils it.
    pub possible: bool,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Plan {
    /// By wish.
    pub bounds: Vec<Bound>,
    /// The shortest and the longest τ that do, s; `None`: none does.
    pub range: Option<(f64, f64)>,
    /// The recommended one and its costs.
    pub best: Option<Costs>,
    /// Why it is that one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub chosen: Option<Choice>,
}

/// Why a period of the range is the recommended one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The time of a failover was bounded: the longest that keeps the bound.
    Longest,
    /// It was not, and the usual period does.
    Usual,
    /// It was not, and the usual period does not: the nearest to it.
    Nearest,
}

impl Setting {
    /// The rate of requests of one agent, 1/s.
    ///
    /// # Errors
    /// It is not a finite number above zero; none were seen.
    pub fn rate(&self) -> Result<f64, Invalid> {
        match &self.requests {
            Requests::Rate(rate) => positive("the rate of requests", *rate),
            Requests::Measured(gaps) => positive("the measured rate of requests", gaps.rate().unwrap_or(0.0)),
        }
    }

    fn check(&self) -> Result<(), Invalid> {
        self.rate()?;
        positive("the time between failures", self.fail_every)?;
        positive("the time of a repair", self.repair)?;
        not_negative("the round trip", self.round_trip)?;
        positive("the shortest period", self.allowed.0)?;
        positive("the longest period", self.allowed.1)?;
        positive("the usual period", self.usual)?;
        self.parts.check()
    }

    /// What the period `tau` costs.
    ///
    /// # Errors
    /// Something that cannot be.
    pub fn costs(&self, tau: f64) -> Result<Costs, Invalid> {
        self.costs_with(tau, self.parts, self.timeout.found_within(tau, self.round_trip))
    }

    /// What it costs that an agent asks for the period `asked`, where the server's own is `tau` and its bounds are `given`, s.
    ///
    /// # Errors
    /// Something that cannot be.
    pub fn own_lease(&self, asked: f64, tau: f64, given: (f64, f64)) -> Result<OwnLease, Invalid> {
        let asked = positive("the lease period asked for", asked)?;
        let lease = asked.max(given.0).min(given.1);
        let renew_from = self.parts.renew_from.min(OWN_RENEW_FROM.max(OWN_RENEW_LEAST / lease));
        let parts = Parts { renew_from, ..self.parts };
        let costs = self.costs_with(lease, parts, self.timeout.found_within_own(lease, tau, self.round_trip))?;
        let others_wait = PROBED_EVERY * lease + costs.failover;
        Ok(OwnLease { asked, costs, others_wait, outlives: (parts.use_until - parts.renew_from) * lease })
    }

    fn costs_with(&self, tau: f64, parts: Parts, failure_found: f64) -> Result<Costs, Invalid> {
        self.check()?;
        positive("the lease period τ", tau)?;
        let rho = self.rate()?;
        let (lambda, mu) = (1.0 / self.fail_every, 1.0 / self.repair);
        let lease = Lease { tau, rho, lambda, mu, sigma: Explicit::AtOnce, stages: Stages::Sharp };
        let opportunistic = lease.solve_early(parts)?;
        let explicit = lease.explicit().solve_early(parts)?;
        let overhead = match &self.requests {
            _ if !self.opportunistic => explicit.overhead(rho),
            Requests::Rate(_) => opportunistic.overhead(rho),
            Requests::Measured(gaps) => Magnitude::new(gaps.overhead(parts.renew_from * tau)?),
        };
        Ok(Costs {
            tau,
            overhead,
            overhead_explicit: explicit.overhead(rho),
            unavailable: if self.opportunistic { opportunistic } else { explicit }.unavailability(),
            unavailable_explicit: explicit.unavailability(),
            failure_found,
            failover: failure_found + tau * (1.0 + self.delta) + self.epsilon,
        })
    }

    /// The range of periods that fulfil all wishes, and the best of them.
    ///
    /// # Errors
    /// Something that cannot be.
    pub fn plan(&self, wishes: &Wishes) -> Result<Plan, Invalid> {
        self.check()?;
        let mut bounds = Vec::new();
        if let Some(most) = wishes.overhead {
            positive("the overhead asked for", most)?;
            bounds.push(self.shortest("overhead", most, |costs| costs.overhead <= Magnitude::new(most))?);
        }
        if let Some(most) = wishes.unavailable {
            fraction("the share of time without data", most)?;
            bounds.push(self.shortest("unavailable", most, |costs| costs.unavailable <= Magnitude::new(most))?);
        }
        if let Some(most) = wishes.recover_within {
            positive("the time to recover within", most)?;
            bounds.push(self.longest("recover-within", most, |costs| costs.failover <= most)?);
        }
        let low = bounds.iter().filter_map(|bound| bound.at_least).fold(self.allowed.0, f64::max);
        let high = bounds.iter().filter_map(|bound| bound.at_most).fold(self.allowed.1, f64::min);
        let range = (bounds.iter().all(|bound| bound.possible) && low <= high).then_some((low, high));
        let (tau, chosen) = range.map(|(low, high)| self.choose(low, high, wishes)).unzip();
        let best = tau.map(|tau| self.costs(tau)).transpose()?;
        Ok(Plan { bounds, range, best, chosen })
    }

    /// The recommended period of the range, and why.
    fn choose(&self, low: f64, high: f64, wishes: &Wishes) -> (f64, Choice) {
        if wishes.recover_within.is_some() {
            (round_within(low, high), Choice::Longest)
        } else if (low..=high).contains(&self.usual) {
            (self.usual, Choice::Usual)
        } else if self.usual < low {
            (round_up_within(low, high), Choice::Nearest)
        } else {
            (round_within(low, high), Choice::Nearest)
        }
    }

    /// The shortest allowed period that is `good`, which longer ones are, too.
    fn shortest(&self, wish: &'static str, asked: f64, good: impl Fn(&Costs) -> bool) -> Result<Bound, Invalid> {
        let (mut low, mut high) = self.allowed;
        let mut bound = Bound { wish, asked, at_least: None, at_most: None, possible: good(&self.costs(high)?) };
        if bound.possible {
            if good(&self.costs(low)?) {
                high = low;
            }
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                if good(&self.costs(middle)?) { high = middle } else { low = middle }
            }
            bound.at_least = Some(high);
        }
        Ok(bound)
    }

    /// The longest allowed period that is `good`, which shorter ones are, too.
    fn longest(&self, wish: &'static str, asked: f64, good: impl Fn(&Costs) -> bool) -> Result<Bound, Invalid> {
        let (mut low, mut high) = self.allowed;
        let mut bound = Bound { wish, asked, at_least: None, at_most: None, possible: good(&self.costs(low)?) };
        if bound.possible {
            if good(&self.costs(high)?) {
                low = high;
            }
            for _ in 0..60 {
                let middle = f64::midpoint(low, high);
                if good(&self.costs(middle)?) { low = middle } else { high = middle }
            }
            bound.at_most = Some(low);
        }
        Ok(bound)
    }
}

/// The longest period of two digits in the range, or its end if there is none.
fn round_within(low: f64, high: f64) -> f64 {
    let unit = unit(high);
    let rounded = of_units((high / 10f64.powf(unit) * (1.0 + 1e-12)).floor(), unit, high);
    if (low..=high).contains(&rounded) { rounded } else { high }
}

/// The shortest period of two digits in the range, or its beginning if there is none.
fn round_up_within(low: f64, high: f64) -> f64 {
    let unit = unit(low);
    let rounded = of_units((low / 10f64.powf(unit) * (1.0 - 1e-12)).ceil(), unit, low);
    if (low..=high).contains(&rounded) { rounded } else { low }
}

/// The exponent of the second digit.
fn unit(period: f64) -> f64 {
    period.log10().floor() - 1.0
}

/// A whole number of units, written as decimal, so that 1.5 is not 1.5000000000000002.
fn of_units(count: f64, unit: f64, otherwise: f64) -> f64 {
    format!("{count:.0}e{unit:.0}").parse().unwrap_or(otherwise)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting() -> Setting {
        Setting {
            requests: Requests::Rate(10.0),
            fail_every: 86_400.0,
            repair: 2.0,
            parts: Parts { renew_from: 0.6, use_until: 0.8 },
            timeout: Timeout::Part { of_tau: 0.25, least: 0.1 },
            round_trip: 0.001,
            delta: 0.01,
            epsilon: 0.001,
            allowed: (0.1, 3_600.0),
            usual: 2.0,
            opportunistic: true,
        }
    }

    const WISHES: Wishes = Wishes { overhead: Some(0.01), recover_within: Some(2.0), unavailable: None };

    #[test]
    fn the_range_is_bounded_by_overhead_below_and_by_recovery_above() {
        let plan = setting().plan(&WISHES).unwrap();
        let (low, high) = plan.range.unwrap();
        assert!((low / (101.0f64.ln() / 6.0) - 1.0).abs() < 1e-3, "ln 101/(fρ), but for failures: {low}");
        assert!((high - 1.999 / 1.26).abs() < 1e-6, "{high}");
        let best = plan.best.unwrap();
        assert_eq!(best.tau, 1.5);
        assert!(best.overhead.rounded() <= 0.01 && best.failover <= 2.0);
    }

    #[test]
    fn wishes_that_exclude_each_other_leave_no_period() {
        let rare = Setting { requests: Requests::Rate(0.1), ..setting() };
        let plan = rare.plan(&WISHES).unwrap();
        assert_eq!((plan.range, plan.best), (None, None));
        assert!(plan.bounds.iter().all(|bound| bound.possible), "each alone can be fulfilled: {plan:?}");
        let plan = setting().plan(&Wishes { recover_within: Some(0.1), ..Wishes::default() }).unwrap();
        assert!(!plan.bounds[0].possible && plan.range.is_none());
    }

    #[test]
    fn an_availability_that_outages_do_not_allow_is_met_by_longer_leases() {
        let wishes = Wishes { unavailable: Some(1e-6), ..Wishes::default() };
        let plan = setting().plan(&wishes).unwrap();
        let (low, high) = plan.range.unwrap();
        assert!(low > 1.0 && high == 3_600.0);
        assert!(setting().costs(low * 0.99).unwrap().unavailable.rounded() > 1e-6);
    }

    #[test]
    fn without_a_bound_on_failovers_the_usual_period_is_kept_or_the_nearest_to_it() {
        let of = |setting: Setting, wishes: Wishes| {
            let plan = setting.plan(&wishes).unwrap();
            (plan.best.unwrap().tau, plan.chosen.unwrap(), plan.range.unwrap())
        };
        let overhead = Wishes { overhead: Some(0.01), ..Wishes::default() };
        let (tau, chosen, _) = of(setting(), overhead);
        assert_eq!((tau, chosen), (2.0, Choice::Usual));
        // Few requests need a longer one: the shortest that does, rounded away from what does not.
        let (tau, chosen, (low, _)) = of(Setting { requests: Requests::Rate(1.0), ..setting() }, overhead);
        assert_eq!((tau, chosen), (7.7, Choice::Nearest));
        assert!(low < tau && low > 7.6, "{low}");
        // A server that allows none so long.
        let (tau, chosen, _) = of(Setting { allowed: (0.1, 1.0), ..setting() }, overhead);
        assert_eq!((tau, chosen), (1.0, Choice::Nearest));
        let (tau, chosen, _) = of(setting(), Wishes { recover_within: Some(20.0), ..overhead });
        assert_eq!((tau, chosen), (15.0, Choice::Longest));
    }

    #[test]
    fn three_transmissions_that_do_not_fit_into_the_delivery_timeout_lengthen_a_failover() {
        let found = |tau, round_trip| Timeout::Part { of_tau: 0.25, least: 0.1 }.found_within(tau, round_trip);
        // 25 + 50 + 20 ms are less than 100 ms; so a network of a few milliseconds never matters.
        assert_eq!((found(0.3, 0.001), found(0.5, 0.001), found(2.0, 0.005)), (0.1, 0.125, 0.5));
        // A round trip of 20 ms leads to a timeout of 60 ms: 75 + 150 + 60 ms, each at most τ/8.
        assert!((found(0.5, 0.02) - (62.5 + 62.5 + 60.0) / 1e3).abs() < 1e-12);
        assert_eq!(found(2.0, 0.02), 0.5);
        // At worst three times τ/8.
        assert!((found(2.0, 1.0) - 0.75).abs() < 1e-12);
        assert_eq!(Timeout::Fixed(4.0).found_within(2.0, 1.0), 4.0);
        let far = Setting { round_trip: 0.1, ..setting() };
        assert!(far.costs(1.0).unwrap().failover > setting().costs(1.0).unwrap().failover + 0.1);
    }

    #[test]
    fn measured_gaps_are_used_as_they_are() {
        let gaps: Gaps = (0..100).map(|i| if i == 0 { 10.0 } else { 0.1 }).collect();
        let measured = Setting { requests: Requests::Measured(gaps), ..setting() };
        let costs = measured.costs(2.0).unwrap();
        assert_eq!(costs.overhead.rounded(), (10.0f64 / 1.2).floor() / 100.0);
        assert!((measured.rate().unwrap() - 100.0 / 19.9).abs() < 1e-9);
        let none = Setting { requests: Requests::Measured(Gaps::default()), ..setting() };
        assert!(none.plan(&WISHES).unwrap_err().to_string().contains("measured rate"));
    }

    #[test]
    fn periods_are_round_where_there_is_a_round_one() {
        for (low, high, best) in [(0.77, 1.5865, 1.5), (1.51, 1.59, 1.59), (3.0, 3_600.0, 3_600.0), (0.1, 0.1, 0.1), (1.0, 9.99, 9.9)] {
            assert_eq!(round_within(low, high), best);
        }
        for (low, high, best) in [(0.769, 1.5, 0.77), (7.7, 9.0, 7.7), (1.51, 1.59, 1.51), (9.91, 3_600.0, 10.0), (0.1, 0.1, 0.1)] {
            assert_eq!(round_up_within(low, high), best);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(setting().costs(bad).is_err());
            assert!(Setting { requests: Requests::Rate(bad), ..setting() }.plan(&WISHES).is_err());
            assert!(Setting { fail_every: bad, ..setting() }.plan(&WISHES).is_err());
            assert!(setting().plan(&Wishes { overhead: Some(bad), ..WISHES }).is_err());
            assert!(setting().plan(&Wishes { recover_within: Some(bad), ..WISHES }).is_err());
        }
    }

    #[test]
    fn a_lease_of_an_agent_s_own_costs_itself_and_who_waits_for_its_locks() {
        let own = |asked| setting().own_lease(asked, 2.0, (0.5, 60.0)).unwrap();
        let long = own(60.0);
        // Wire-spec 11.3: the retransmissions of a long lease are those of the server's own.
        assert!((long.costs.failover - (0.5 + 60.6 + 0.001)).abs() < 1e-9 && (long.others_wait - 91.101).abs() < 1e-9);
        assert!((long.outlives - 40.5).abs() < 1e-9, "0.8 τ less τ/8");
        let short = own(0.5);
        assert!((short.costs.failover - (0.125 + 0.505 + 0.001)).abs() < 1e-9 && (short.outlives - 0.1).abs() < 1e-9);
        let usual = setting().costs(2.0).unwrap();
        assert_eq!(own(2.0).costs, usual, "renewed 1.2 s after, as every lease of 2 s");
        assert!(long.costs.unavailable < usual.unavailable && short.costs.overhead > usual.overhead);
        assert_eq!((own(300.0).costs, own(0.2).costs), (long.costs, short.costs), "within the server's bounds");
        // A timeout that does not follow τ is the shorter the shorter the lease is, down to 100 ms.
        let fixed = Setting { timeout: Timeout::Fixed(1.0), ..setting() };
        let found = |asked| fixed.own_lease(asked, 2.0, (0.1, 60.0)).unwrap().costs.failure_found;
        assert_eq!([60.0, 2.0, 1.0, 0.1].map(found), [1.0, 1.0, 0.5, 0.1]);
        assert!(setting().own_lease(f64::NAN, 2.0, (0.5, 60.0)).is_err());
    }

    #[test]
    fn an_agent_that_renews_on_purpose_only_is_planned_for_as_such() {
        let (on, off) = (setting().costs(2.0).unwrap(), Setting { opportunistic: false, ..setting() }.costs(2.0).unwrap());
        assert_eq!((off.overhead, off.unavailable), (on.overhead_explicit, on.unavailable_explicit));
        assert!(off.overhead > on.overhead && off.unavailable > on.unavailable && off.failover == on.failover);
    }
}
