//! Ours among the peers: the same server and generator as in the other workloads.
//!
//! Decides which of our operations stand beside those of the others: LOCK and RELEASE, WRITE of 128 bytes, READ without a cache lock.
//! The store is in a directory for writes, and in memory for locks and reads, which it has no part in. Place: beside the other peers.
//! Leaves to others: the exchange (`traffic`).

use super::{Ask, MANY, Round, Service, histogram};
use crate::cases::{Case, Plan, Side, Work};
use crate::cores::Cores;
use crate::host::{Host, Role, Setup};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use std::path::Path;
use std::time::Duration;

/// What it is called in tables.
pub(crate) const NAME: &str = "Cistern";

/// A server for each load.
pub(crate) struct Ours {
    sides: Vec<((Ask, usize), Side)>,
}

impl Ours {
    /// Starts the servers.
    pub(crate) fn start(dir: &Path, plan: &Plan) -> Result<Self, Trouble> {
        let cores = Cores { pinned: None, ..plan.cores };
        let mut sides = Vec::new();
        for ask in Ask::ALL {
            let (work, role) = match ask {
                Ask::Lock => (Work::Lock, Role::Server),
                Ask::Write => (Work::Write, Role::Durable),
                Ask::Read => (Work::Read, Role::Server),
            };
            for in_flight in [1, MANY] {
                let case = Case { in_flight, packed: true, pace: Pace::Each, ..Case::one(work) };
                let host = Host::start_with(role, cores, &Setup { store_dir: Some(dir.to_owned()), ..Setup::default() })?;
                sides.push(((ask, in_flight), Side::on(host, role, &case, cores)?));
            }
        }
        Ok(Self { sides })
    }
}

impl Service for Ours {
    fn name(&self) -> String {
        NAME.to_owned()
    }

    fn takes(&self, ask: Ask, in_flight: usize) -> bool {
        self.sides.iter().any(|(load, _)| *load == (ask, in_flight))
    }

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<Round, Trouble> {
        let (_, side) = self.sides.iter_mut().find(|(load, _)| *load == (ask, in_flight)).expect("it takes this load");
        let done = side.round(span)?;
        // A lock and its release are two exchanges.
        let exchanges = if ask == Ask::Lock { 2 } else { 1 };
        let mut took_ns = histogram();
        for value in done.traced.latency_ns.iter_recorded() {
            took_ns.saturating_record_n(value.value_iterated_to() * exchanges, value.count_at_value());
        }
        Ok(Round { operations: done.traced.exchanges / exchanges, elapsed: done.traced.elapsed, took_ns, cpu_ns: done.usage.cpu_ns })
    }
}
