//! Lease protocols beside each other, for a cluster of N agents that hold M objects each.
//!
//! Decides: what each of five protocols costs the server in messages, records and timers, how long others wait for what a failed agent
//! held, and what share of the time an agent is without its data. The workload is one: each agent reads each of its objects at the rate r
//! (from its cache, if its lease allows), and sends other requests at the rate ρ, which only opportunistic renewal makes use of.
//!
//! Messages are those that the server sends or receives; a renewal is two. All are per second.
//!
//! | protocol | renewals of one agent | after |
//! |---|---|---|
//! | a lease per object, extended when it is read (V) | M·r/(1+r·t) | formula (1) of the V paper |
//! | all leases extended in one request (V, section 3.1) | M·r/(1+M·r·t) | the same, with the rate of all reads |
//! | volume leases (Yin et al.) | r_v/(1+r_v·t) for each volume + M·r/(1+r·t_o) | as V, with two terms |
//! | one lease per agent, heartbeats (Frangipani) | 1/fτ | renewed at fτ whatever happens |
//! | one lease per agent, opportunistic (OR) | ρ/(e^(fτρ)−1) | `renewal` |
//!
//! Availability is from the chain of `renewal`: for leases that are extended when read, explicit renewal with σ the rate of reads; what
//! counts is Pr(F_x), a read that finds neither a lease nor a network (with Pr(S_x) it waits for a round trip only).
//!
//! Leaves to others: approval of writes (`v`). It comes on top in each of them, and by each it can be asked for in any of the ways there.

use crate::invalid::{Invalid, not_negative, positive};
use crate::magnitude::Magnitude;
use crate::renewal::{Explicit, Lease, Parts, Stages};

/// Bytes of a lease's record in V: "around one kilobyte" for a client with "about one hundred leases" (section 2 of the V paper).
pub const RECORD_BYTES: f64 = 10.0;

/// The cluster, its workload and its leases. Times in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cluster {
    /// N.
    pub agents: f64,
    /// M: objects that each agent holds.
    pub objects: f64,
    /// Volumes in which they are, at each agent.
    pub volumes: f64,
    /// r: reads of one object by one agent.
    pub reads: f64,
    /// ρ: other requests of one agent.
    pub requests: f64,
    /// τ, and the term of leases on objects and volumes.
    pub tau: f64,
    /// t_o: term of the long leases on objects beside volume leases.
    pub long_term: f64,
    /// When an agent with one lease renews by itself.
    pub parts: Parts,
    /// λ: failures of one agent's network or of the agent.
    pub failures: f64,
    /// μ: repairs.
    pub repairs: f64,
    /// Td: delivery timeout, OR only.
    pub delivery_timeout: f64,
    /// δ: bound on the relative rate of clocks.
    pub delta: f64,
}

/// One protocol's costs.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Cost {
    /// Which.
    pub name: &'static str,
    /// What it is, for a person.
    pub what: &'static str,
    /// Messages for leases at the server, 1/s.
    pub messages: Magnitude,
    /// Records of leases at the server.
    pub records: f64,
    /// Bytes of them, at [`RECORD_BYTES`] each.
    pub bytes: f64,
    /// Timers at the server; for OR the mean number of agents that are timed out at a time.
    pub timers: f64,
    /// Mean time from an agent's failure (OR: from the first message to it that goes unanswered) until others get what it held, s.
    pub recovery_mean: f64,
    /// The longest such time, s.
    pub recovery_most: f64,
    /// Share of time for which an agent's reads find no data.
    pub unavailable: Magnitude,
}

impl Cluster {
    /// Checks all parameters.
    ///
    /// # Errors
    /// One that cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        for (what, value) in [
            ("the number of agents", self.agents),
            ("the number of objects", self.objects),
            ("the number of volumes", self.volumes),
            ("the rate of reads of an object", self.reads),
            ("the rate of requests", self.requests),
            ("the lease period τ", self.tau),
            ("the term of long leases", self.long_term),
            ("the rate of failures", self.failures),
            ("the rate of repairs", self.repairs),
        ] {
            positive(what, value)?;
        }
        if self.volumes > self.objects {
            return Err(Invalid { what: "the number of volumes", value: self.volumes, rule: "at most the number of objects in them" });
        }
        not_negative("the delivery timeout", self.delivery_timeout)?;
        not_negative("δ", self.delta)?;
        self.parts.check()
    }

    /// All five, in the order of their history.
    ///
    /// # Errors
    /// A parameter that cannot be.
    pub fn compare(&self) -> Result<Vec<Cost>, Invalid> {
        self.check()?;
        Ok(vec![self.per_object()?, self.batched()?, self.volumes()?, self.heartbeat()?, self.opportunistic()?])
    }

    fn per_object(&self) -> Result<Cost, Invalid> {
        let renewals = self.objects * on_demand(self.reads, self.tau);
        let records = self.agents * self.objects;
        Ok(Cost {
            name: "per-object",
            what: "a lease per object, extended when it is read (V)",
            timers: records,
            unavailable: self.read_finds_nothing(self.reads, self.tau)?,
            ..self.extended_when_read(renewals, records)
        })
    }

    fn batched(&self) -> Result<Cost, Invalid> {
        let reads = self.objects * self.reads;
        let records = self.agents * self.objects;
        Ok(Cost {
            name: "batched",
            what: "all leases of an agent extended in one request (V)",
            timers: records,
            unavailable: self.read_finds_nothing(reads, self.tau)?,
            ..self.extended_when_read(on_demand(reads, self.tau), records)
        })
    }

    fn volumes(&self) -> Result<Cost, Invalid> {
        let of_volume = self.objects * self.reads / self.volumes;
        let renewals = self.volumes * on_demand(of_volume, self.tau) + self.objects * on_demand(self.reads, self.long_term);
        let records = self.agents * (self.objects + self.volumes);
        // A read needs both leases; that both are missing is counted twice, so this is at most too high.
        let unavailable = self.read_finds_nothing(of_volume, self.tau)? + self.read_finds_nothing(self.reads, self.long_term)?;
        Ok(Cost {
            name: "volume",
            what: "long leases on objects, short ones on volumes (Yin et al.)",
            timers: records,
            unavailable,
            ..self.extended_when_read(renewals, records)
        })
    }

    fn heartbeat(&self) -> Result<Cost, Invalid> {
        let every = self.parts.renew_from * self.tau;
        let wait = self.tau * (1.0 + self.delta);
        Ok(Cost {
            name: "heartbeat",
            what: "one lease per agent, renewed by heartbeats (Frangipani)",
            messages: Magnitude::new(2.0 * self.agents / every),
            records: self.agents,
            bytes: self.agents * RECORD_BYTES,
            timers: self.agents,
            recovery_mean: wait - every / 2.0,
            recovery_most: wait,
            unavailable: self.lease(0.0).solve_early(self.parts)?.unavailability(),
        })
    }

    fn opportunistic(&self) -> Result<Cost, Invalid> {
        let solution = self.lease(self.requests).solve_early(self.parts)?;
        let wait = self.tau * (1.0 + self.delta);
        // An outage that outlives the delivery timeout fails a delivery, if somebody waits for the agent.
        let failures = self.failures * (-self.repairs * self.delivery_timeout).exp();
        Ok(Cost {
            name: "opportunistic",
            what: "one lease per agent, renewed by every request (OR)",
            messages: solution.renewals * (2.0 * self.agents),
            records: 0.0,
            bytes: 0.0,
            timers: self.agents * (failures * wait / (1.0 + failures * wait)),
            recovery_mean: self.delivery_timeout + wait,
            // Three transmissions, each given a timeout of at most τ/8 (wire-spec section 11.3).
            recovery_most: self.delivery_timeout.max(self.tau * 3.0 / 8.0) + wait,
            unavailable: solution.unavailability(),
        })
    }

    /// What the three protocols of leases on objects have in common: others wait until the lease is over, which was extended at a random
    /// time within its term.
    fn extended_when_read(&self, renewals: f64, records: f64) -> Cost {
        Cost {
            name: "",
            what: "",
            messages: Magnitude::new(2.0 * self.agents * renewals),
            records,
            bytes: records * RECORD_BYTES,
            timers: 0.0,
            recovery_mean: self.tau * (1.0 + self.delta) / 2.0,
            recovery_most: self.tau * (1.0 + self.delta),
            unavailable: Magnitude::ZERO,
        }
    }

    fn read_finds_nothing(&self, reads: f64, term: f64) -> Result<Magnitude, Invalid> {
        let lease = Lease { tau: term, sigma: Explicit::Rate(reads), ..self.lease(0.0) };
        Ok(lease.solve()?.lapsed_down)
    }

    fn lease(&self, rho: f64) -> Lease {
        Lease { tau: self.tau, rho, lambda: self.failures, mu: self.repairs, sigma: Explicit::AtOnce, stages: Stages::Sharp }
    }
}

/// Extensions of a lease that is extended by the first read after its term: one serves 1 + r·t reads.
fn on_demand(reads: f64, term: f64) -> f64 {
    reads / (1.0 + reads * term)
}

/// The costs as columns for people, their heads first.
#[must_use]
pub fn columns(costs: &[Cost]) -> Vec<Vec<String>> {
    let head = ["protocol", "messages/s", "records", "timers", "recovery, s", "without data", ""].map(str::to_owned).to_vec();
    let cells = costs.iter().map(|cost| {
        let recovery = format!("{:.2}, at most {:.2}", cost.recovery_mean, cost.recovery_most);
        let (records, timers) = (cost.records.to_string(), Magnitude::new(cost.timers).to_string());
        let (messages, unavailable) = (cost.messages.to_string(), cost.unavailable.to_string());
        vec![cost.name.to_owned(), messages, records, timers, recovery, unavailable, cost.what.to_owned()]
    });
    std::iter::once(head).chain(cells).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hundred agents with a thousand objects each, as in the README's figures.
    const CLUSTER: Cluster = Cluster {
        agents: 100.0,
        objects: 1_000.0,
        volumes: 4.0,
        reads: 0.01,
        requests: 10.0,
        tau: 2.0,
        long_term: 600.0,
        parts: Parts { renew_from: 0.6, use_until: 1.0 },
        failures: 1e-4,
        repairs: 0.5,
        delivery_timeout: 0.5,
        delta: 0.01,
    };

    fn cost(name: &str) -> Cost {
        CLUSTER.compare().unwrap().into_iter().find(|cost| cost.name == name).unwrap()
    }

    #[test]
    fn each_step_of_the_history_costs_the_server_fewer_messages() {
        let messages: Vec<_> = CLUSTER.compare().unwrap().iter().map(|cost| cost.messages.rounded()).collect();
        let expected = [
            2.0 * 100.0 * 1_000.0 * 0.01 / 1.02,
            2.0 * 100.0 * 10.0 / 21.0,
            2.0 * 100.0 * (4.0 * 2.5 / 6.0 + 1_000.0 * 0.01 / 7.0),
            2.0 * 100.0 / 1.2,
            // Without failures, and the outages that outlast the lease, each of which costs a renewal: e^(−12) and λ·ρ²/(ρ−μ)²·e^(−0.6).
            2.0 * 100.0 * (10.0 / (12.0f64.exp() - 1.0) + 1e-4 * 100.0 / 90.25 * (-0.6f64).exp()),
        ];
        for (ours, expected) in messages.iter().zip(expected) {
            assert!((ours / expected - 1.0).abs() < 0.01, "{ours} and {expected}");
        }
        assert!(messages[4] < messages[3] / 1_000.0);
    }

    #[test]
    fn only_opportunistic_renewal_keeps_no_record_and_waits_longest_for_it() {
        let or = cost("opportunistic");
        assert_eq!((or.records, or.bytes), (0.0, 0.0));
        assert!(or.timers < 0.1);
        assert!((or.recovery_mean - 2.52).abs() < 1e-12 && (or.recovery_most - 2.77).abs() < 1e-12);
        for cost in CLUSTER.compare().unwrap() {
            assert!(cost.recovery_mean <= cost.recovery_most && cost.recovery_most <= or.recovery_most);
            assert!(cost.name == "opportunistic" || cost.timers >= 100.0);
        }
        assert_eq!(cost("per-object").records, 100_000.0);
    }

    #[test]
    fn renewal_by_requests_bridges_more_outages_than_heartbeats() {
        assert!(cost("opportunistic").unavailable < cost("heartbeat").unavailable);
        assert!(cost("heartbeat").unavailable < cost("per-object").unavailable);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(Cluster { agents: 0.0, ..CLUSTER }.compare().is_err());
        assert!(Cluster { volumes: 1_001.0, ..CLUSTER }.compare().is_err());
        assert!(Cluster { reads: f64::NAN, ..CLUSTER }.compare().is_err());
        assert!(Cluster { parts: Parts { renew_from: 1.5, use_until: 1.0 }, ..CLUSTER }.compare().is_err());
    }
}
