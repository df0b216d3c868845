//! Durable mutations: how long one takes and how many there are in a second, beside what the disk and the network take by themselves.
//!
//! Decides the rounds: the server under the load, the echo under the same load, then bare appends and fdatasyncs of as many bytes to a
//! file on the same disk; so what slows the machine for a while slows all three. Nobody is pinned, for the store has threads of its own.
//! Leaves to others: the exchange (`traffic`), the processes (`host`, `under_test`).

use crate::Args;
use crate::cases::{Case, Side, Work};
use crate::cores::Cores;
use crate::host::{Host, Role};
use crate::traffic::Pace;
use crate::trouble::Trouble;
use hdrhistogram::Histogram;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// Requests in flight.
const IN_FLIGHT: [usize; 4] = [1, 16, 64, 256];
/// Requests that one agent may have in flight.
const EACH: usize = 64;
/// Bytes that the store's journal grows by for one SETATTR: the object, the outcome, and what goes around them.
const BYTES: usize = 330;
/// Longest latency told apart, in nanoseconds.
const LATENCY_MAX_NS: u64 = 10_000_000_000;

/// One load's figures; latencies are p50 over all rounds, in microseconds.
#[derive(Debug, Serialize)]
struct Row {
    in_flight: usize,
    durable_p50_us: f64,
    durable_p99_us: f64,
    per_second: f64,
    echo_p50_us: f64,
    /// Appends and syncs of the bytes of all that is in flight.
    fdatasync_p50_us: f64,
    /// Durable / (fdatasync + echo).
    ratio: f64,
    exchanges: u64,
}

/// Measures and prints.
pub(crate) fn bench(args: &Args, dir: &Path) -> Result<(), Trouble> {
    let cores = Cores { pinned: None, ..Cores::find()? };
    let span = Duration::from_secs_f64(args.seconds);
    let rows = IN_FLIGHT.iter().map(|in_flight| row(*in_flight, args.rounds, span, dir, cores)).collect::<Result<Vec<_>, _>>()?;
    let text = if args.json { json(&rows) } else { table(&rows) };
    io::stdout().write_all(text.as_bytes()).map_err(Trouble::at("printing the figures"))
}

fn row(in_flight: usize, rounds: u32, span: Duration, dir: &Path, cores: Cores) -> Result<Row, Trouble> {
    let case = Case { work: Work::SetAttr, agents: in_flight.div_ceil(EACH), own_sockets: true, in_flight, pace: Pace::Each };
    let host = Host::start_in(Role::Durable, cores, Some(dir))?;
    let mut server = Side::on(host, Role::Durable, &case, cores)?;
    let mut echo = Side::start(Role::Echo, &case, cores)?;
    let bare = tempfile::tempfile_in(dir).map_err(Trouble::at("making a file beside the store"))?;
    let [mut durable, mut echoed, mut synced] = [histogram(), histogram(), histogram()];
    let (mut exchanges, mut elapsed) = (0, Duration::ZERO);
    for round in 0..=rounds {
        let (ours, theirs) = (server.round(span)?.traced, echo.round(span)?.traced);
        let disk = syncs(&bare, in_flight * BYTES, span)?;
        // The first does not count.
        if round > 0 {
            add(&mut durable, &ours.latency_ns);
            add(&mut echoed, &theirs.latency_ns);
            add(&mut synced, &disk);
            exchanges += ours.exchanges;
            elapsed += ours.elapsed;
        }
    }
    let (durable_p50_us, echo_p50_us, fdatasync_p50_us) = (us(&durable, 0.5), us(&echoed, 0.5), us(&synced, 0.5));
    Ok(Row {
        in_flight,
        durable_p50_us,
        durable_p99_us: us(&durable, 0.99),
        per_second: count(exchanges) / elapsed.as_secs_f64(),
        echo_p50_us,
        fdatasync_p50_us,
        ratio: durable_p50_us / (echo_p50_us + fdatasync_p50_us),
        exchanges,
    })
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

/// A count as a figure; exact up to 2^53.
#[expect(clippy::cast_precision_loss, reason = "counts of one run stay far below 2^53")]
const fn count(number: u64) -> f64 {
    number as f64
}

fn json(rows: &[Row]) -> String {
    serde_json::to_string_pretty(rows).expect("figures are numbers") + "\n"
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "Durable SETATTR of a file each, beside an fdatasync of as many bytes and the echo of the same requests, in one run; p50 in µs.\n\n\
         in flight    durable (p99)    fdatasync    echo    durable / (fdatasync + echo)    per second\n",
    );
    for row in rows {
        let Row { in_flight, durable_p50_us, durable_p99_us, per_second, echo_p50_us, fdatasync_p50_us, ratio, .. } = row;
        out += &format!(
            "{in_flight:>9} {durable_p50_us:>10.0} ({durable_p99_us:.0}) {fdatasync_p50_us:>12.0} {echo_p50_us:>7.0} {ratio:>31.2} \
             {per_second:>13.0}\n"
        );
    }
    out
}
