//! A victim beside a host that attacks: what the victim notices, in clear and sealed.
//!
//! Decides the victim: a lock, a lease of 2 s, and a write at each tick of a file that another program of its host reads, too. Its writes come at
//! fixed ticks, so one that had to wait counts in full, with those that it held up. Each attack has a server of its own, `cisternd` as it is
//! installed, on which the victim is alone at first. Place: a workload, over the client library; the attacks are those of the system's tests.
//! Leaves to others: what an attack is (`cistern_testkit::attack`), whose turn it is (the server's `scheduler`).

use crate::cases::Plan;
use crate::figures::{count, per};
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_client::{Client, LockState};
use cistern_testkit::attack::{Attack, Attacker};
use cistern_testkit::{CISTERND, Server, program};
use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

/// From one request of the victim to the next: longer than two commits of a busy disk, for what is due and waits is counted, too.
const TICK: Duration = Duration::from_millis(20);
/// How often another program of its host reads what it writes.
const READ: Duration = Duration::from_millis(20);
/// An attack is felt in full after this: whoever keeps what it is asked for, for as long as it may, is known for it.
const FIRST: Duration = Duration::from_secs(10);
/// The longest wait that is told apart from longer ones.
const LONGEST_NS: u64 = 60_000_000_000;
/// What the victim writes.
const FILE: &str = "/job";

/// Measures the victim alone and under each attack.
pub(crate) fn run(plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    if !program(CISTERND).exists() {
        return Err(Trouble::Host { who: CISTERND, what: "is not built: build the package `cistern` in the same profile" });
    }
    let mut section = Section::new("attacked", "a write each 20 ms under a lock with a lease of 2 s, while another host attacks");
    for attack in Attack::ALL {
        for sealed in [false, true] {
            let name = format!("{}, {}", attack.name(), if sealed { "sealed" } else { "plain" });
            progress.say(&name);
            section.rows.extend(attacked(attack, sealed, &name, plan)?);
        }
    }
    Ok(section
        .note("p50, p99 and longest: of the victim, in the rounds that count. First: the longest of the 10 s before, in which an attack begins.")
        .note("What a victim notices is to stay within 50 ms (p99), and no lease is lost."))
}

/// A victim and what happened to it.
struct Victim {
    client: Client,
    beside: Client,
}

/// Latencies of a span.
struct Latencies {
    ns: Histogram<u64>,
    /// Writes that were refused: by a disk that is full, say.
    refused: u64,
}

fn attacked(attack: Attack, sealed: bool, name: &str, plan: &Plan) -> Result<[Row; 2], Trouble> {
    let wrong = |error: cistern_client::Error| Trouble::starting("using the client library")(error);
    let server = Server::attacked(attack, sealed, "2s");
    let by = server.admit("victim");
    let client = || {
        let builder = Client::builder().insecure().server(server.address.to_string());
        let builder = if let Some(by) = &by { builder.key(by.agent.clone(), by.server) } else { builder };
        builder.connect().map_err(wrong)
    };
    let victim = Victim { client: client()?, beside: client()? };
    victim.client.write(FILE, "made").wait().map_err(wrong)?;
    let guard = victim.client.lock(FILE).wait().map_err(wrong)?;
    let session = || victim.client.lease().map(|lease| lease.session).map_err(wrong);
    let (span, over, opened) = (plan.span * plan.rounds, AtomicBool::new(false), session()?);
    victim.asks(plan.span);
    let alone = victim.asks(span);
    let mut attacker = Attacker::new(attack, server.address, server.admit("hostile"), &FILE[1..], false);
    let (first, under, turns) = thread::scope(|scope| {
        let attacker = scope.spawn(|| {
            let mut turns = 0_u64;
            while !over.load(Relaxed) {
                attacker.turn();
                turns += 1;
            }
            turns
        });
        let (first, under) = (victim.asks(FIRST), victim.asks(span));
        over.store(true, Relaxed);
        (first, under, attacker.join().expect("the attacker does not panic"))
    });
    let lost = u64::from(session()? != opened || guard.state() != LockState::Certain);
    let p99 = |seen: &Latencies| count(seen.ns.value_at_quantile(0.99));
    let attacked = row(Row::new(name.to_owned()), &under)
        .with("p99_over_alone", "p99: attacked/alone", p99(&under) / p99(&alone).max(1.0))
        .with("first_ms", "first ms", count(first.ns.max()) / 1e6)
        .with("leases_lost", "leases lost", lost)
        .with("turns", "turns/s", per(turns, 1) / (FIRST + span).as_secs_f64());
    Ok([attacked, row(Row::new(format!("  {name}, alone")), &alone)])
}

fn row(row: Row, seen: &Latencies) -> Row {
    let ms = |ns: u64| count(ns) / 1e6;
    row.with("p50_ms", "p50 ms", ms(seen.ns.value_at_quantile(0.5)))
        .with("p99_ms", "p99 ms", ms(seen.ns.value_at_quantile(0.99)))
        .with("max_ms", "longest ms", ms(seen.ns.max()))
        .with("writes", "writes", seen.ns.len())
        .with("refused", "refused", seen.refused)
}

impl Victim {
    /// Writes at every tick for `span`, while the other program reads.
    fn asks(&self, span: Duration) -> Latencies {
        let mut seen = Latencies {
            ns: Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("1 to 6 * 10^10 with three digits is a valid range"),
            refused: 0,
        };
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // Whatever comes of it: it is what others keep in their caches.
                    let _ = self.beside.read(FILE).wait();
                    thread::sleep(READ);
                }
            });
            let (begun, mut tick) = (Instant::now(), Instant::now());
            // What was due within the span is asked, however late.
            while tick - begun < span {
                thread::sleep(tick.saturating_duration_since(Instant::now()));
                seen.refused += u64::from(self.client.write(FILE, "still here").wait().is_err());
                seen.ns.saturating_record(u64::try_from(tick.elapsed().as_nanos()).unwrap_or(LONGEST_NS));
                tick += TICK;
            }
            over.store(true, Relaxed);
        });
        seen
    }
}
