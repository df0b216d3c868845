//! Ours among the peers by the bench's generator, as in the other workloads: what its server does when it is asked each time.
//!
//! Decides which of our operations stand beside those of the others: LOCK and RELEASE, timed as one, WRITE of 128 bytes, READ without a
//! cache lock. The store is in a directory for writes, and in memory for locks and reads: reads of what was read before, and locks but for
//! one change in 1,024 tokens, have no part in it. Place: beside the other peers. Leaves to others: the exchange (`traffic`), the same as
//! applications ask it (`library`).

use super::{Ask, MANY, Service, ServiceRound, histogram};
use crate::cases::{Case, Plan, Side, Work};
use crate::host::{Host, Role, Setup};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use std::path::Path;
use std::time::Duration;

/// What it is called in tables.
pub(crate) const NAME: &str = "Cistern, wire generator";

/// A server for each load.
pub(crate) struct Ours {
    sides: Vec<((Ask, usize), Side)>,
}

impl Ours {
    /// Starts the servers.
    pub(crate) fn start(dir: &Path, plan: &Plan) -> Result<Self, Trouble> {
        let cores = plan.cores;
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

    fn round(&mut self, ask: Ask, in_flight: usize, span: Duration) -> Result<ServiceRound, Trouble> {
        let (_, side) = self.sides.iter_mut().find(|(load, _)| *load == (ask, in_flight)).expect("it takes this load");
        let done = side.round(span)?;
        let (took, operations) = match ask {
            // A lock and its release are two exchanges and one operation.
            Ask::Lock => (&done.traced.pair_ns, done.traced.exchanges / 2),
            Ask::Write | Ask::Read => (&done.traced.latency_ns, done.traced.exchanges),
        };
        let mut took_ns = histogram();
        took_ns.add(took).expect("no latency of the generator is above 10 s");
        Ok(ServiceRound { operations, elapsed: done.traced.elapsed, took_ns, cpu_ns: done.usage.cpu_ns })
    }
}
