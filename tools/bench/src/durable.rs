//! Durable mutations: how long one takes and how many there are in a second, beside what the disk and the network take by themselves.
//!
//! Decides the rounds: the server under the load, the echo under the same load, then bare writes and fdatasyncs of as many bytes to a
//! file on the same disk that grows as the store's journal did in that round; so what slows the machine for a while slows all three.
//! Nobody is pinned, for the store has threads of its own: with two cores the loop, the writer and the generator share them. With one in
//! flight the generator looks without sleeping and gives its core away in between; with several it sleeps, for both cores are needed.
//! Leaves to others: the exchange (`traffic`), the processes (`host`, `under_test`), whose CPU it was (`durable::threads`).

mod threads;

use crate::cases::{Case, Plan, Side, Work};
use crate::figures::count;
use crate::host::{Host, Role, Setup};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::traffic::{Idle, Pace};
use crate::trouble::Trouble;
use hdrhistogram::Histogram;
use nix::time::{ClockId, clock_gettime};
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::time::{Duration, Instant};
use threads::{Threads, journal_has_its_length};

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
const MAKING: &str = "making a file beside the store";
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
    if in_flight > 1 {
        server.set_idle(Idle::Sleep);
        echo.set_idle(Idle::Sleep);
    }
    let mut bare = [Bare::new(dir, false)?, Bare::new(dir, true)?];
    let (mut threads, mut generator_ns, mut had_length) = (Threads::default(), 0, 0_u32);
    let [mut durable, mut echoed, mut synced] = [histogram(), histogram(), histogram()];
    let (mut exchanges, mut elapsed, mut cpu_ns) = (0, Duration::ZERO, 0);
    let mut written = 0;
    for round in 0..=plan.rounds {
        let (before, used) = (server.host().written_bytes()?, Threads::of(server.host().pid())?);
        let own = generator_cpu_ns()?;
        let ours = server.round(span)?;
        let own = generator_cpu_ns()?.saturating_sub(own);
        let used = Threads::of(server.host().pid())?.since(used);
        let has_length = journal_has_its_length(server.host().pid())?;
        // The bare file grows by as much for each change as the store's files did in this very round.
        let bytes = server.host().written_bytes()?.saturating_sub(before);
        let each = usize::try_from(bytes / ours.traced.exchanges.max(1)).unwrap_or(usize::MAX);
        let theirs = echo.round(span)?.traced;
        let disk = bare[usize::from(has_length)].syncs(in_flight * each, span)?;
        // The first does not count.
        if round > 0 {
            add(&mut durable, &ours.traced.latency_ns);
            add(&mut echoed, &theirs.latency_ns);
            add(&mut synced, &disk);
            exchanges += ours.traced.exchanges;
            elapsed += ours.traced.elapsed;
            cpu_ns += ours.usage.cpu_ns;
            written += bytes;
            threads = threads.plus(used);
            generator_ns += own;
            had_length += u32::from(has_length);
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
        .with("had_length", "journal allocated", f64::from(had_length) / f64::from(plan.rounds))
        .with("cpu_us", "server µs/op", crate::figures::per(cpu_ns, exchanges) / 1e3)
        .with("loop_us", "loop", crate::figures::per(threads.event_loop, exchanges) / 1e3)
        .with("writer_us", "writer", crate::figures::per(threads.writer, exchanges) / 1e3)
        .with("rest_us", "rest", crate::figures::per(threads.rest, exchanges) / 1e3)
        .with("generator_us", "generator", crate::figures::per(generator_ns, exchanges) / 1e3)
        .with("exchanges", "operations", exchanges))
}

/// CPU time of this thread, which is the generator.
fn generator_cpu_ns() -> Result<u64, Trouble> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID).map_err(Trouble::at("reading a clock"))?;
    Ok(u64::try_from(Duration::from(time).as_nanos()).unwrap_or(u64::MAX))
}

/// A file beside the store that is written and synced like a journal, and has nothing else to do.
struct Bare {
    file: File,
    /// Whether it has its full length from the start, as a journal has that the engine makes while it runs; the one that it finds at its
    /// start grows.
    has_length: bool,
    at: u64,
}

impl Bare {
    /// Length of a file that has it from the start.
    const LEN: u64 = 64 << 20;

    fn new(dir: &Path, has_length: bool) -> Result<Self, Trouble> {
        let file = tempfile::tempfile_in(dir).map_err(Trouble::at(MAKING))?;
        let mut bare = Self { file, has_length, at: 0 };
        bare.begin_anew()?;
        Ok(bare)
    }

    /// Empty again, of the length that it is to have.
    fn begin_anew(&mut self) -> Result<(), Trouble> {
        self.at = 0;
        let len = if self.has_length { Self::LEN } else { 0 };
        let made = self.file.set_len(0).and_then(|()| self.file.set_len(len)).and_then(|()| self.file.sync_all());
        made.map_err(Trouble::at(MAKING))
    }

    /// Writes and syncs for a while.
    fn syncs(&mut self, bytes: usize, span: Duration) -> Result<Histogram<u64>, Trouble> {
        let (mut found, chunk, begin) = (histogram(), vec![0xA5; bytes], Instant::now());
        while begin.elapsed() < span {
            if self.has_length && self.at + bytes as u64 > Self::LEN {
                self.begin_anew()?;
            }
            let from = Instant::now();
            let written = self.file.write_all_at(&chunk, self.at).and_then(|()| self.file.sync_data());
            written.map_err(Trouble::at("writing to a file beside the store"))?;
            found.saturating_record(u64::try_from(from.elapsed().as_nanos()).unwrap_or(LATENCY_MAX_NS));
            self.at += bytes as u64;
        }
        Ok(found)
    }
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
