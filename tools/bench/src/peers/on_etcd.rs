//! Durable writes of a server whose store is on three etcds, beside etcd's own put and the echo of the same requests.
//!
//! Decides that both ask the member that leads, as many at a time, in turn, in the same run. Place: a part of the workload of peers.
//! Leaves to others: the exchange (`traffic`), etcd's client (`etcd`), the members (`cistern_testkit::Etcds`).

use super::etcd::EtcdKeys;
use super::process::guard;
use super::{Ask, MANY, ServiceRound, asked, histogram};
use crate::cases::{Case, Plan, Side, Work};
use crate::figures::count;
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::{Idle, Pace};
use crate::trouble::Trouble;
use crate::under_test::STORE;
use cistern_testkit::Etcds;
use hdrhistogram::Histogram;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Measures one after the other, and many in flight.
pub(crate) fn run(dir: &Path, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let section =
        Section::new("on-etcd", "durable writes of 128 B with the store on three etcds on loopback, beside etcd's own put and the echo");
    let Some(etcds) = Etcds::start_in(dir, 3, &[]) else {
        return Ok(section.note("etcd is not installed (Debian: apt-get install etcd-server): skipped."));
    };
    // After the members, so that it is dropped before them.
    let _guards: Vec<_> = etcds.ids().map(|id| guard(id, etcds.dir())).collect::<Result<_, _>>()?;
    let leader = etcds.address(etcds.leader());
    let runtime = asked::runtime()?;
    let keys = Rc::new(runtime.block_on(EtcdKeys::connect(format!("http://{leader}"))).map_err(Trouble::starting("connecting to etcd"))?);
    let mut section = section.note("Ratio: our p50 by that of put and echo together; our rate by etcd's own rate of puts.");
    for in_flight in [1, MANY] {
        progress.say(&format!("durable writes on etcd, {in_flight} in flight"));
        let name = format!("etcd://{leader}/bench-{in_flight}");
        let target = name.parse().map_err(|why| Trouble::Start { step: "naming the store", why })?;
        cistern_store_etcd::create(&target, STORE, []).map_err(Trouble::starting("making the store"))?;
        let case = Case { in_flight, packed: true, pace: Pace::Each, ..Case::one(Work::Write) };
        let setup = Setup { store_dir: Some(name.into()), ..Setup::default() };
        let mut ours = Side::on(Host::start_with(Role::Durable, plan.cores, &setup)?, Role::Durable, &case, plan.cores)?;
        let mut echo = Side::start(Role::Echo, &case, plan.cores)?;
        // Three members, a server and their clients have use for every core.
        ours.set_idle(Idle::Sleep);
        echo.set_idle(Idle::Sleep);
        let [mut durable, mut put, mut echoed] = [Sum::new(), Sum::new(), Sum::new()];
        for round in 0..=plan.rounds {
            let one = ours.round(plan.span)?.traced;
            let ServiceRound { operations, elapsed, took_ns, .. } = asked::round(&runtime, &keys, Ask::Write, in_flight, plan.span)?;
            let theirs = echo.round(plan.span)?.traced;
            // The first does not count.
            if round > 0 {
                durable.add(&one.latency_ns, one.exchanges, one.elapsed);
                put.add(&took_ns, operations, elapsed);
                echoed.add(&theirs.latency_ns, theirs.exchanges, theirs.elapsed);
            }
        }
        let p50 = [durable.us(0.5), put.us(0.5), echoed.us(0.5)];
        section.rows.push(
            Row::new(format!("{in_flight} in flight"))
                .with("durable_p50_us", "durable p50 µs", p50[0])
                .with("durable_p99_us", "p99 µs", durable.us(0.99))
                .with("put_p50_us", "etcd's put p50 µs", p50[1])
                .with("echo_p50_us", "echo p50 µs", p50[2])
                .with("ratio", "durable / (put + echo)", p50[0] / (p50[1] + p50[2]))
                .with("per_second", "op/s", durable.rate())
                .with("put_per_second", "etcd's puts/s", put.rate())
                .with("rate_ratio", "our rate / etcd's", durable.rate() / put.rate()),
        );
    }
    Ok(section)
}

/// All rounds of one side.
struct Sum {
    took_ns: Histogram<u64>,
    operations: u64,
    elapsed: Duration,
}

impl Sum {
    fn new() -> Self {
        Self { took_ns: histogram(), operations: 0, elapsed: Duration::ZERO }
    }

    fn add(&mut self, took_ns: &Histogram<u64>, operations: u64, elapsed: Duration) {
        self.took_ns.add(took_ns).expect("no latency is above the bound of this histogram");
        self.operations += operations;
        self.elapsed += elapsed;
    }

    fn us(&self, quantile: f64) -> f64 {
        count(self.took_ns.value_at_quantile(quantile)) / 1e3
    }

    fn rate(&self) -> f64 {
        count(self.operations) / self.elapsed.as_secs_f64()
    }
}
