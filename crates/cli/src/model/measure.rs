//! `cistern model measure`: overhead on the real stack, on one picture with what is solved and simulated.
//!
//! Decides: a real server process and real agents on loopback, each with a lock to keep its lease for and requests at random times, their
//! datagrams in capture files; what is counted in those is requests and keep-alives. Agents that send no request at all renew explicitly
//! only: their keep-alives are what explicit renewal costs, for any rate of requests.
//! Invariant: nothing outlives the command, and only loopback is used. Leaves to others: counting (`plan::capture`), the models.

use super::shown::{refused, row, show};
use crate::args::model::Measure;
use crate::demo::Player;
use crate::local::Failure;
use crate::plan::capture::{self, Seen};
use crate::show::{Progress, line};
use crate::signals::End;
use cistern_client::{Client, IdlePolicy, Ownership, Recorder};
use cistern_model::figures::{AGENT, Axis, Curve, Figure, Mark};
use cistern_model::simulated::{Arrivals, Policy, Scene, simulate};
use cistern_model::{Invalid, Magnitude};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rates of requests that are measured, in requests a lease period; 0: explicit renewal only.
const RATES: [f64; 6] = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0];

/// How long an agent waits for a server that does not answer.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Requests of a simulated agent.
const SIMULATED: u64 = 300_000;

/// What was measured at one rate, or of explicit renewal for that rate.
#[derive(Debug, Serialize)]
struct Point {
    policy: &'static str,
    /// The rate that came about, in requests a lease period.
    tau_rho: f64,
    requests: u64,
    keep_alives: u64,
    measured: f64,
    solved: f64,
    simulated: f64,
}

pub(super) fn measure(args: &Measure) -> Result<(), Failure> {
    if !(0.1..=60.0).contains(&args.tau) || args.span < 10.0 * args.tau || args.span > 3_600.0 {
        return Err(Failure::usage("--tau must be 100 ms to 60 s, and --for ten times as long at least, and at most an hour".to_owned()));
    }
    let points = points(args, &run(args)?).map_err(refused)?;
    let mut rows = vec![row([&"policy", &"tau_rho", &"requests", &"keep_alives", &"measured", &"solved", &"simulated"])];
    rows.extend(points.iter().map(|p| row([&p.policy, &p.tau_rho, &p.requests, &p.keep_alives, &p.measured, &p.solved, &p.simulated])));
    show(
        &args.shown,
        &points,
        &rows,
        || picture(&points),
        || {
            line(format!(
                "A server and {} agents on loopback, τ = {} s, for {} s:\n",
                RATES.len() * args.agents as usize,
                args.tau,
                args.span
            ))?;
            let number = |n: f64| Magnitude::new(n).to_string();
            let head = row([&"τρ", &"policy", &"requests", &"keep-alives", &"measured", &"solved", &"simulated"]);
            let cells = points.iter().map(|p| {
                let numbers = [p.tau_rho, p.measured, p.solved, p.simulated].map(number);
                row([&numbers[0], &p.policy, &p.requests, &p.keep_alives, &numbers[1], &numbers[2], &numbers[3]])
            });
            crate::show::table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())?;
            line("\nn keep-alives are off by about 1/√n; that requests come late on a busy machine changes the figures, too.")
        },
    )
}

/// Runs all agents at once; what each rate's agents sent.
fn run(args: &Measure) -> Result<Vec<Vec<Seen>>, Failure> {
    let end = End::catch()?;
    let dir = tempfile::tempdir().map_err(|e| Failure::failed(format!("no temporary directory: {e}")))?;
    let (state, lease) = (dir.path().join("server").to_string_lossy().into_owned(), format!("{:.0}us", args.tau * 1e6));
    let server =
        Player::start(&["serve", "--volatile", "--new-cluster", "--listen", "127.0.0.1:0", "--state", &state, "--lease", &lease], None)?;
    let address =
        server.ready["listen"][0].as_str().ok_or_else(|| Failure::failed("the server did not say where it listens".to_owned()))?;
    let (mut progress, end) = (Progress::new(), &end);
    std::thread::scope(|scope| {
        let mut threads = Vec::new();
        for (rate, seed) in (0..RATES.len()).flat_map(|rate| (0..args.agents).map(move |agent| (rate, agent))) {
            let path = dir.path().join(format!("{rate}-{seed}.pcap"));
            let number = u64::try_from(rate).unwrap_or(0) << 32 | u64::from(seed);
            threads.push((rate, scope.spawn(move || agent(args, end, address, RATES[rate] / args.tau, number, &path))));
        }
        let until = Instant::now() + Duration::from_secs_f64(args.span);
        while Instant::now() < until && threads.iter().any(|(_, thread)| !thread.is_finished()) {
            progress.tell(&format!("measuring: {} s to go", (until - Instant::now()).as_secs()));
            end.wait(Duration::from_millis(50));
        }
        progress.done();
        let mut seen: Vec<Vec<Seen>> = RATES.iter().map(|_| Vec::new()).collect();
        for (rate, thread) in threads {
            seen[rate].push(thread.join().map_err(|_| Failure::failed("an agent of the measurement failed".to_owned()))??);
        }
        Ok(seen)
    })
}

/// One agent: takes a lock, and sends requests at random times at the rate, or none.
fn agent(args: &Measure, end: &End, server: &str, rate: f64, number: u64, path: &Path) -> Result<Seen, Failure> {
    let recorder = Arc::new(Recorder::create(path).map_err(|e| Failure::failed(e.to_string()))?);
    let config =
        cistern_agent::config::Config { idle: IdlePolicy::Eager, give_up_after: GIVE_UP, ..cistern_agent::config::Config::default() };
    let tap = Arc::clone(&recorder);
    let client = Client::builder().server(server).label(format!("measured-{number:x}")).config(config).tap(tap).connect()?;
    let name = format!("/{number:x}");
    client.create(&name, true, Ownership { mode: 0o644, uid: 0, gid: 0 }).wait()?;
    let held = client.lock(&name).wait()?;
    let from = now();
    let mut random = ChaCha12Rng::seed_from_u64(args.seed ^ number.rotate_left(20));
    let (start, mut at) = (Instant::now(), 0.0);
    loop {
        at += if rate > 0.0 { -(1.0 - random.random::<f64>()).ln() / rate } else { args.span };
        if at >= args.span {
            break;
        }
        wait_until(end, start + Duration::from_secs_f64(at))?;
        client.ping().wait()?;
    }
    wait_until(end, start + Duration::from_secs_f64(args.span))?;
    let to = now();
    drop(held);
    drop(client);
    recorder.finish();
    capture::read_within(path, from..to)
}

/// Waits, unless the command is asked to end.
fn wait_until(end: &End, at: Instant) -> Result<(), Failure> {
    let asked = end.wait(at.saturating_duration_since(Instant::now()));
    if asked { Err(Failure::failed("ended before all was measured".to_owned())) } else { Ok(()) }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn points(args: &Measure, seen: &[Vec<Seen>]) -> Result<Vec<Point>, Invalid> {
    let sum = |seen: &[Seen], of: fn(&Seen) -> u64| seen.iter().map(of).sum::<u64>();
    #[expect(clippy::cast_precision_loss, reason = "counts of datagrams")]
    let float = |count: u64| count as f64;
    let periods = args.span / args.tau * f64::from(args.agents);
    let mut points = Vec::new();
    let idle = seen.first().map_or(0, |seen| sum(seen, |seen| seen.keep_alives));
    for seen in seen.iter().skip(1) {
        let (requests, keep_alives) = (sum(seen, |seen| seen.requests), sum(seen, |seen| seen.keep_alives));
        let tau_rho = float(requests.max(1)) / periods;
        let after = AGENT.renew_from * tau_rho;
        let simulated = |policy| {
            let scene = Scene { policy, arrivals: Arrivals::Poisson, rho: 1.0, tau: tau_rho, lambda: 0.0, mu: 0.0 };
            simulate(&scene, SIMULATED, args.seed).map(|counted| counted.overhead())
        };
        points.push(Point {
            policy: "opportunistic",
            tau_rho,
            requests,
            keep_alives,
            measured: float(keep_alives) / float(requests.max(1)),
            solved: Arrivals::Poisson.overhead(after),
            simulated: simulated(Policy::Opportunistic(AGENT))?,
        });
        points.push(Point {
            policy: "explicit",
            tau_rho,
            requests,
            keep_alives: idle,
            measured: float(idle) / float(requests.max(1)),
            solved: 1.0 / after,
            simulated: simulated(Policy::Heartbeat(AGENT))?,
        });
    }
    Ok(points)
}

fn picture(points: &[Point]) -> Result<Figure, Invalid> {
    let xs = Axis::linear("", 0.1, 6.0).places(200);
    let curve = |name, after: f64| Curve::of(name, &xs, move |x| Ok(Arrivals::Poisson.overhead(after * x)));
    let curves = vec![
        Curve::of("explicit, renewed from 0.6 τ (solved)", &xs, |x| Ok(1.0 / (AGENT.renew_from * x)))?,
        curve("opportunistic, renewed from 0.6 τ (solved)", AGENT.renew_from)?,
        curve("opportunistic, renewed when over (the paper's)", 1.0)?,
    ];
    let mark = |of: &str, x: f64, y: f64| Mark { of: of.to_owned(), x, y };
    let marks = points.iter().map(|p| mark("simulated", p.tau_rho, p.simulated));
    let measured = points.iter().map(|p| mark("measured on loopback", p.tau_rho, p.measured));
    Ok(Figure {
        title: "Renewal messages per request: solved, simulated, measured".to_owned(),
        x: Axis::linear("lease period τρ, in mean times between requests", 0.0, 6.0),
        y: Axis::log("explicit renewals per request", 1e-3, 1e2),
        curves,
        marks: marks.chain(measured).collect(),
        notes: vec![],
    })
}
