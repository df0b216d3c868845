//! The V paper's model: what consistency costs when a cache asks for a lease on what it reads, and a write needs every holder's approval.
//!
//! Decides: formulas (1) and (2) of its section 3.1, what is derived from them, and the parameters of its table 2. Times are in seconds.
//!
//! - A lease of the term t_S serves the cache for t_C = max(0, t_S − (m_prop + 2·m_proc) − ε): it is on its way for a while, and clocks
//!   differ. One extension serves 1 + R·t_C reads.
//! - A write is sent by one holder, whose approval is implied, and approved by the S−1 others: one multicast and S−1 answers, S messages,
//!   in t_a = 2·m_prop + (S+2)·m_proc. With unicast it is 2(S−1) messages; their time is not in the paper, see [`System::approval_time`].
//! - Without sharing (S = 1), and with the term zero, writes cost nothing for consistency.
//!
//! Messages are those that the server sends or receives. Leaves to others: leases per computer (`renewal`, `schemes`).

use crate::invalid::{Invalid, not_negative, positive};

/// How the server asks the holders of leases for their approval of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// One message to all.
    Multicast,
    /// One to each.
    Unicast,
    /// Cistern's: each holder is demanded its cache lock, releases it (with the receipt in one datagram) and is told that it did; the writer is
    /// told that its request waits.
    Demand,
}

/// The parameters of table 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct System {
    /// N: caches.
    pub clients: f64,
    /// R: reads of one cache, per second.
    pub reads: f64,
    /// W: writes of one cache, per second.
    pub writes: f64,
    /// S: caches that share what is written, 1 or more.
    pub sharing: f64,
    /// m_prop: time for which a message is under way, s.
    pub propagation: f64,
    /// m_proc: time to send or to receive a message, s.
    pub processing: f64,
    /// ε: allowance for clocks, s.
    pub clocks: f64,
    /// How approval is asked for.
    pub approval: Approval,
}

/// Table 2: measured in V, by recompiling its file server. Not shared, one cache.
pub const TABLE_2: System = System {
    clients: 1.0,
    reads: 0.864,
    writes: 0.039,
    sharing: 1.0,
    propagation: 0.001,
    processing: 0.000_25,
    clocks: 0.1,
    approval: Approval::Multicast,
};

/// Share of the server's traffic that consistency is when the term is zero (section 3.2).
pub const CONSISTENCY_SHARE: f64 = 0.3;

/// The round trip of figure 3, s.
pub const FIGURE_3_ROUND_TRIP: f64 = 0.1;

impl System {
    /// Table 2 with so much sharing.
    #[must_use]
    pub fn shared_by(caches: f64) -> Self {
        Self { sharing: caches, ..TABLE_2 }
    }

    /// The same over a network in which a request and its reply take `seconds` (section 3.3): 2·m_prop + 4·m_proc.
    #[must_use]
    pub fn with_round_trip(self, seconds: f64) -> Self {
        Self { propagation: (seconds - 4.0 * self.processing) / 2.0, ..self }
    }

    /// Checks all parameters.
    ///
    /// # Errors
    /// One that cannot be.
    pub fn check(&self) -> Result<(), Invalid> {
        positive("the number of clients N", self.clients)?;
        positive("the rate of reads R", self.reads)?;
        not_negative("the rate of writes W", self.writes)?;
        not_negative("the propagation delay", self.propagation)?;
        not_negative("the processing time", self.processing)?;
        not_negative("the allowance for clocks ε", self.clocks)?;
        if self.sharing >= 1.0 && self.sharing.is_finite() {
            Ok(())
        } else {
            Err(Invalid { what: "the number of caches that share S", value: self.sharing, rule: "a finite number, 1 or more" })
        }
    }

    /// 2·m_prop + 4·m_proc: a request and its reply.
    #[must_use]
    pub fn round_trip(&self) -> f64 {
        2.0 * self.propagation + 4.0 * self.processing
    }

    /// t_C: for how long a lease of the term t_S serves the cache.
    #[must_use]
    pub fn term_at_cache(&self, term: f64) -> f64 {
        (term - (self.propagation + 2.0 * self.processing) - self.clocks).max(0.0)
    }

    /// Messages for the approval of one write: S, or 2(S−1) with unicast, or 3(S−1)+1 with demands; none when nobody else holds a lease.
    #[must_use]
    pub fn approval_messages(&self) -> f64 {
        match self.approval {
            _ if self.sharing <= 1.0 => 0.0,
            Approval::Multicast => self.sharing,
            Approval::Unicast => 2.0 * (self.sharing - 1.0),
            Approval::Demand => 3.0 * (self.sharing - 1.0) + 1.0,
        }
    }

    /// t_a: 2·m_prop + (S+2)·m_proc with multicast.
    ///
    /// With n = S−1 unicast requests the server sends for n·m_proc, and the last answer is received 2·m_prop + (n+3)·m_proc after the
    /// start, as with multicast, unless the answers that came while it was still sending have queued: then all n are received after n
    /// sends. So it is the larger of that and 2n·m_proc (derived here; the paper has no formula for it). With demands the server first tells
    /// the writer to wait, which takes m_proc more; what it tells the holders then is no part of the delay.
    #[must_use]
    pub fn approval_time(&self) -> f64 {
        let others = self.sharing - 1.0;
        let multicast = 2.0 * self.propagation + (others + 3.0) * self.processing;
        match self.approval {
            _ if others <= 0.0 => 0.0,
            Approval::Multicast => multicast,
            Approval::Unicast => multicast.max(2.0 * others * self.processing),
            Approval::Demand => multicast.max(2.0 * others * self.processing) + self.processing,
        }
    }

    /// Formula (1): messages for consistency at the server in a second, with leases of the term t_S. 2NR when the term is zero.
    #[must_use]
    pub fn load(&self, term: f64) -> f64 {
        let extensions = 2.0 * self.clients * self.reads / (1.0 + self.reads * self.term_at_cache(term));
        if term <= 0.0 { extensions } else { extensions + self.clients * self.approval_messages() * self.writes }
    }

    /// Formula (2): mean delay that consistency adds to a read or write, s.
    #[must_use]
    pub fn delay(&self, term: f64) -> f64 {
        let reads = self.reads * self.round_trip() / (1.0 + self.reads * self.term_at_cache(term));
        let writes = if term <= 0.0 { 0.0 } else { self.writes * self.approval_time() };
        (reads + writes) / (self.reads + self.writes)
    }

    /// The load beside that of the term zero: what figure 1 shows.
    #[must_use]
    pub fn relative_load(&self, term: f64) -> f64 {
        self.load(term) / self.load(0.0)
    }

    /// All of the server's traffic beside that of the term zero, when consistency is the share `consistency` of the latter.
    #[must_use]
    pub fn relative_traffic(&self, term: f64, consistency: f64) -> f64 {
        1.0 - consistency + consistency * self.relative_load(term)
    }

    /// α, the lease benefit factor: 2R over the messages of approval times W, so 2R/SW, with unicast R/(S−1)W; infinite when writes need no approval.
    #[must_use]
    pub fn benefit(&self) -> f64 {
        2.0 * self.reads / (self.approval_messages() * self.writes)
    }

    /// The term at the cache above which leases are less load than none: 1/(R(α−1)); `None` when α ≤ 1 and no term is.
    #[must_use]
    pub fn break_even(&self) -> Option<f64> {
        let benefit = self.benefit();
        (benefit > 1.0).then(|| 1.0 / (self.reads * (benefit - 1.0)))
    }

    /// Load when the share `installed` of the reads is of installed files, whose leases the server extends for all caches by one multicast
    /// every `every` seconds (section 4). Those reads cost no request, and no delay, and N does not matter to them; a write of an installed
    /// file waits until the lease is over and costs no message.
    #[must_use]
    pub fn load_with_installed(&self, term: f64, installed: f64, every: f64) -> f64 {
        Self { reads: self.reads * (1.0 - installed), ..*self }.load(term) + 1.0 / every
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_lease_of_the_term_zero_is_a_check_for_each_read() {
        let shared = System { clients: 20.0, ..System::shared_by(10.0) };
        assert_eq!(shared.load(0.0), 2.0 * 20.0 * 0.864);
        // Without time at the cache, a term above zero is worse than none: writes pay, reads gain nothing.
        assert_eq!(shared.term_at_cache(0.05), 0.0);
        assert!(shared.load(0.05) > shared.load(0.0) && shared.delay(0.05) > shared.delay(0.0));
    }

    #[test]
    fn approval_is_counted_as_the_paper_counts_it() {
        let multicast = System::shared_by(10.0);
        let unicast = System { approval: Approval::Unicast, ..multicast };
        let demand = System { approval: Approval::Demand, ..multicast };
        let messages = [multicast, unicast, demand].map(|system| system.approval_messages());
        assert_eq!(messages, [10.0, 18.0, 28.0], "the last as counted in the simulator's scenario of a write to what nine others cache");
        assert!((demand.approval_time() - 0.005_25).abs() < 1e-12);
        assert_eq!(System { approval: Approval::Demand, ..TABLE_2 }.approval_messages(), 0.0);
        assert!((multicast.approval_time() - 0.005).abs() < 1e-12 && (unicast.approval_time() - 0.005).abs() < 1e-12);
        // Many holders near by: the server receives after it has sent.
        let crowd = System { approval: Approval::Unicast, ..System::shared_by(101.0) };
        assert!((crowd.approval_time() - 0.05).abs() < 1e-12);
        assert_eq!((TABLE_2.approval_messages(), TABLE_2.approval_time()), (0.0, 0.0));
        assert!((multicast.benefit() - 2.0 * 0.864 / 0.39).abs() < 1e-12);
        assert!((unicast.benefit() - 0.864 / (9.0 * 0.039)).abs() < 1e-12);
    }

    #[test]
    fn beyond_some_sharing_no_term_helps() {
        assert_eq!(System::shared_by(45.0).break_even(), None);
        assert!(System::shared_by(44.0).break_even().is_some());
        assert_eq!(TABLE_2.break_even(), Some(0.0));
    }

    #[test]
    fn a_network_with_a_round_trip_of_100_ms_has_one() {
        assert!((TABLE_2.with_round_trip(0.1).round_trip() - 0.1).abs() < 1e-15);
    }

    #[test]
    fn installed_files_cost_the_same_for_any_number_of_caches() {
        let half = |clients| System { clients, ..TABLE_2 }.load_with_installed(10.0, 1.0 - 1e-12, 5.0);
        assert!((half(1.0) - 0.2).abs() < 1e-9 && (half(1e4) - 0.2).abs() < 1e-6);
        let all = System { clients: 100.0, ..TABLE_2 };
        assert!(all.load_with_installed(10.0, 0.5, 5.0) < all.load(10.0));
    }

    #[test]
    fn what_cannot_be_is_refused() {
        assert!(TABLE_2.check().is_ok());
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(System { reads: bad, ..TABLE_2 }.check().is_err() && System { sharing: bad, ..TABLE_2 }.check().is_err());
        }
    }

    proptest! {
        #[test]
        fn at_break_even_the_load_is_that_of_no_lease(sharing in 1.5..40.0f64, reads in 0.5..100.0f64) {
            let system = System { reads, ..System::shared_by(sharing) };
            if let Some(cache) = system.break_even() {
                let term = cache + system.propagation + 2.0 * system.processing + system.clocks;
                prop_assert!((system.relative_load(term) - 1.0).abs() < 1e-9);
                prop_assert!(system.relative_load(term * 1.1) < 1.0);
            }
        }
    }
}
