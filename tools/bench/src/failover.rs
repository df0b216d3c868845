//! Failover: a holder stops as if its machine had died, and somebody else gets its lock.
//!
//! Decides the loads: the holder is a process of its own, stopped with SIGSTOP; the waiter is a client in this one, which asks right
//! after the stop, or was waiting already; the server is configured as each row says. Place: a workload, over `cistern-client`.
//! Invariant: every round ends with the holder running again and told that its lock is lost, so rounds do not help one another.
//! Source of the bound: Td + T, T = τ(1+δ) + ε (`wire-spec.md` section 8), and 20 ms for the loops' scheduling.
//! Leaves to others: the holder's process (`holder`), failovers of many locks (`scale`).

use crate::cases::Plan;
use crate::figures::count;
use crate::holder::Holder;
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_client::{Client, Standing};
use cistern_server::Config;
use hdrhistogram::Histogram;
use std::thread;
use std::time::{Duration, Instant};

/// What the aim allows on top of Td + τ(1+δ).
const SCHEDULING: Duration = Duration::from_millis(20);
/// Longest failover told apart.
const LONGEST: Duration = Duration::from_secs(120);
/// How often the server is asked whether it has found the failure.
const LOOK: Duration = Duration::from_millis(2);
const PATH: &str = "/failover";

/// When the waiter asks, and what the server may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scenario {
    /// It asks right after the stop.
    Asks,
    /// It was waiting when the holder stopped: the server finds the failure by its next probe.
    Waits,
    /// It asks right after the stop of a holder that was silent for longer than T; the server counts from when it was last heard.
    LastHeard,
    /// The holder's machine goes on after D, hears NACK, and says that nothing can use the lock any more.
    Surrender,
}

/// Measures every kind at every lease period.
pub(crate) fn run(leases_ms: &[u64], plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let mut section = Section::new("failover", "a holder stopped with SIGSTOP until the waiter has its lock; ms");
    let loads = leases_ms.iter().map(|lease_ms| (Scenario::Asks, *lease_ms));
    let shortest = leases_ms.iter().copied().min();
    let others =
        [Scenario::Waits, Scenario::LastHeard, Scenario::Surrender].into_iter().flat_map(|kind| shortest.map(|lease_ms| (kind, lease_ms)));
    for (kind, lease_ms) in loads.chain(others) {
        section.rows.push(Failover::new(kind, lease_ms, plan)?.measure(plan, progress)?);
    }
    Ok(section.note("Bound: Td + τ(1+δ) + 20 ms; where the waiter waited already, the probe period on top; with last-heard or surrender what Td takes at most + 20 ms."))
}

/// What stands beside other services: as low as τ goes, with and without surrender, and at the default τ.
#[cfg(feature = "peers")]
pub(crate) fn beside_peers(plan: &Plan, progress: &Progress) -> Result<Vec<Row>, Trouble> {
    let loads = [(Scenario::Asks, 100), (Scenario::Surrender, 100), (Scenario::Asks, 2_000)];
    loads.into_iter().map(|(kind, lease_ms)| Failover::new(kind, lease_ms, plan)?.measure(plan, progress)).collect()
}

struct Failover {
    kind: Scenario,
    config: Config,
    // The order in which they end: those who use the server before it.
    waiter: Client,
    holder: Holder,
    _host: Host,
}

impl Failover {
    fn new(kind: Scenario, lease_ms: u64, plan: &Plan) -> Result<Self, Trouble> {
        let setup = Setup {
            tau_ms: Some(lease_ms),
            last_heard: kind == Scenario::LastHeard,
            no_rescue: kind == Scenario::Surrender,
            ..Setup::default()
        };
        let host = Host::start_with(Role::Server, plan.cores, &setup)?;
        let waiter =
            Client::builder().insecure().server(host.address.to_string()).connect().map_err(Trouble::starting("connecting the waiter"))?;
        waiter.create_new(PATH).mode(0o600).wait().map_err(Trouble::starting("making the file to lock"))?;
        let holder = Holder::start(host.address, PATH)?;
        let config = Config::for_lease(Duration::from_millis(lease_ms));
        Ok(Self { kind, config, waiter, holder, _host: host })
    }

    fn measure(mut self, plan: &Plan, progress: &Progress) -> Result<Row, Trouble> {
        let mut us = Histogram::<u64>::new_with_bounds(1, u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX), 3)
            .expect("1 to 1.2 * 10^8 with three digits is a valid range");
        for round in 1..=plan.rounds {
            progress.say(&format!("failover, {}, round {round} of {}", self.name(), plan.rounds));
            us.saturating_record(u64::try_from(self.round()?.as_micros()).unwrap_or(u64::MAX));
        }
        let (ms, bound) = (|us: u64| count(us) / 1e3, self.bound().as_secs_f64() * 1e3);
        let longest = ms(us.max());
        Ok(Row::new(self.name())
            .with("p50_ms", "median", ms(us.value_at_quantile(0.5)))
            .with("shortest_ms", "shortest", ms(us.min()))
            .with("longest_ms", "longest", longest)
            .with("bound_ms", "bound", bound)
            .with("longest_over_bound", "longest/bound", longest / bound)
            .with("rounds", "rounds", us.len()))
    }

    fn name(&self) -> String {
        let lease = self.config.lease.as_millis();
        match self.kind {
            Scenario::Asks => format!("stopped, waiter asks then, τ = {lease} ms"),
            Scenario::Waits => format!("waiter waited before, τ = {lease} ms"),
            Scenario::LastHeard => format!("holder silent for T before, last-heard, τ = {lease} ms"),
            Scenario::Surrender => format!("holder goes on after Td and surrenders, τ = {lease} ms"),
        }
    }

    /// What the aim allows; with one who waited already, the time until the next probe on top, and where nothing is left to be waited
    /// for after D, what D takes at most.
    fn bound(&self) -> Duration {
        let Config { lease, delta_ppm, delivery_timeout, probe_period, .. } = self.config;
        let wait = lease.mul_f64(1.0 + f64::from(delta_ppm) / 1e6);
        SCHEDULING
            + match self.kind {
                Scenario::Asks => delivery_timeout + wait,
                Scenario::Waits => delivery_timeout + wait + probe_period,
                // The wait was over before anybody asked, or is cut short.
                Scenario::LastHeard | Scenario::Surrender => self.config.failure_found_within(),
            }
    }

    /// Waits until the server has decided that the holder's delivery failed (D).
    fn await_failure(&self) -> Result<(), cistern_client::Error> {
        let begin = Instant::now();
        while begin.elapsed() < LONGEST {
            let rows = self.waiter.locks().on(PATH).wait()?;
            if rows.iter().any(|row| row.is_holder && row.standing != Standing::Good) {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        // The wait for the lock itself tells then what is wrong.
        Ok(())
    }

    /// One failover; gives how long the waiter waited from the stop on.
    fn round(&mut self) -> Result<Duration, Trouble> {
        let wrong = |error: cistern_client::Error| Trouble::starting("waiting for the lock of a stopped holder")(error);
        let config = &self.config;
        self.holder.hold()?;
        let mut waits = None;
        if self.kind == Scenario::Waits {
            waits = Some(self.waiter.lock(PATH).start());
            // Long enough for the demand to have come and its receipt to have gone.
            thread::sleep(config.probe_period / 2);
        }
        self.holder.stop();
        let stopped = Instant::now();
        if self.kind == Scenario::LastHeard {
            thread::sleep(config.wait() + config.delivery_timeout);
        }
        let begin = if self.kind == Scenario::LastHeard { Instant::now() } else { stopped };
        let mut call = waits.unwrap_or_else(|| self.waiter.lock(PATH).start());
        if self.kind == Scenario::Surrender {
            self.await_failure().map_err(wrong)?;
            self.holder.go_on();
        }
        let guard = call.wait_timeout(LONGEST).ok_or(Trouble::Silence { while_doing: "waiting for a lock", seconds: LONGEST.as_secs() })?;
        let took = begin.elapsed();
        if self.kind != Scenario::Surrender {
            self.holder.go_on();
        }
        self.holder.await_loss()?;
        drop(guard.map_err(wrong)?);
        Ok(took)
    }
}
