//! Durable mutations: how long one takes and how many there are in a second, beside what the disk and the network take by themselves.
//!
//! Decides the rounds: the server under the load, the echo under the same load, then bare appends and fdatasyncs of as many bytes to a
//! file on the same disk; so what slows the machine for a while slows all three. Nobody is pinned, for the store has threads of its own.
//! Leaves to others: the exchange (`traffic`), the processes (`host`, `under_test`).

use crate::cases::{Case, Plan, Side, Work};
use crate::figures::count;
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use hdrhistogram::Histogram;
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is asked, with how many requests in flight.
const LOADS: [(Work, usize); 8] = [
    (Work::SetAttr, 1),
    (Work::SetAttr, 16),
    (Work::SetAttr, 64),
    (Work::SetAttr, 256),
    (Work::Write, 1),
    (Work::Write, 64),
    (Work::Create, 1),
    (Work::Create, 64),
];
/// Requests that one agent may have in flight.
const EACH: usize = 64;
/// Longest latency told apart, in nanoseconds.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// Measures every load.
pub(crate) fn run(dir: &Path, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let title = "durable changes beside an fdatasync of as many bytes and the echo of the same requests; p50 in µs";
    let mut section = Section::new("durable", title);
    for (work, in_flight) in LOADS {
        progress.say(&format!("durable {}, {in_flight} in flight", work.name()));
        section.rows.push(row(work, in_flight, plan, dir)?);
    }
    Ok(section)
}

/// One load's figures; latencies are over all rounds, in microseconds.
fn row(work: Work, in_flight: usize, plan: &Plan, dir: &Path) -> Result<Row, Trouble> {
    let (cores, span) = (plan.cores, plan.span);
    let agents = in_flight.div_ceil(EACH);
    let case = Case { agents, in_flight, pace: Pace::Each, ..Case::one(work) };
    let host = Host::start_with(Role::Durable, cores, &Setup { store_dir: Some(dir.to_owned()), ..Setup::default() })?;
    let mut server = Side::on(host, Role::Durable, &case, cores)?;
    let mut echo = Side::start(Role::Echo, &case, cores)?;
    let bare = tempfile::tempfile_in(dir).map_err(Trouble::at("making a file beside the store"))?;
    let [mut durable, mut echoed, mut synced] = [histogram(), histogram(), histogram()];
    let (mut exchanges, mut elapsed, mut cpu_ns) = (0, Duration::ZERO, 0);
    let mut written = 0;
    for round in 0..=plan.rounds {
        let before = server.host().written_bytes()?;
        let ours = server.round(span)?;
        // The bare file grows by as much for each change as the store's files did in this very round.
        let bytes = server.host().written_bytes()?.saturating_sub(before);
        let each = usize::try_from(bytes / ours.traced.exchanges.max(1)).unwrap_or(usize::MAX);
        let theirs = echo.round(span)?.traced;
        let disk = syncs(&bare, in_flight * each, span)?;
        // The first does not count.
        if round > 0 {
            add(&mut durable, &ours.traced.latency_ns);
            add(&mut echoed, &theirs.latency_ns);
            add(&mut synced, &disk);
            exchanges += ours.traced.exchanges;
            elapsed += ours.traced.elapsed;
            cpu_ns += ours.usage.cpu_ns;
            written += bytes;
        }
    }
    let (durable_p50_us, echo_p50_us, fdatasync_p50_us) = (us(&durable, 0.5), us(&echoed, 0.5), us(&synced, 0.5));
    Ok(Row::new(format!("{}, {in_flight} in flight", work.name()))
        .with("durable_p50_us", "durable p50", durable_p50_us)
        .with("durable_p99_us", "p99", us(&durable, 0.99))
        .with("fdatasync_p50_us", "fdatasync", fdatasync_p50_us)
        .with("echo_p50_us", "echo", echo_p50_us)
        .with("ratio", "durable / (fdatasync + echo)", durable_p50_us / (echo_p50_us + fdatasync_p50_us))
        .with("per_second", "per second", count(exchanges) / elapsed.as_secs_f64())
        .with("bytes", "bytes to files/op", crate::figures::per(written, exchanges))
        .with("cpu_us", "server µs/op", crate::figures::per(cpu_ns, exchanges) / 1e3)
        .with("exchanges", "operations", exchanges))
}

/// Appends and syncs for a while.
fn syncs(mut file: &File, bytes: usize, span: Duration) -> Result<Histogram<u64>, Trouble> {
    let (mut found, chunk, begin) = (histogram(), vec![0xA5; bytes], Instant::now());
    while begin.elapsed() < span {
        let from = Instant::now();
        file.write_all(&chunk).and_then(|()| file.sync_data()).map_err(Trouble::at("writing to a file beside the store"))?;
        found.saturating_record(u64::try_from(from.elapsed().as_nanos()).unwrap_or(LATENCY_MAX_NS));
    }
    Ok(found)
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3).expect("1 to 10^10 with three digits is a valid range")
}

fn add(sum: &mut Histogram<u64>, more: &Histogram<u64>) {
    sum.add(more).expect("both have the same bounds");
}

fn us(histogram: &Histogram<u64>, quantile: f64) -> f64 {
    count(histogram.value_at_quantile(quantile)) / 1e3
}
