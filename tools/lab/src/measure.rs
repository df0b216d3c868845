//! `cistern-lab measure`: overhead on the real stack, on one picture with what is solved and simulated.
//!
//! Decides: a real server and real agents on loopback, in this process, each with a lock to keep its lease for and requests at random times, their
//! datagrams in capture files; what is counted in those is requests and keep-alives. For each rate there are agents that every answer
//! renews, and as many with opportunistic renewal off, which are asked for the very same at the very same times.
//! Invariant: nothing outlives the command, and only loopback is used. Leaves to others: counting (`cistern_model::capture`), the models.

use crate::args::Measure;
use crate::real;
use crate::requests::Arrivals;
use crate::show::{Failure, line, refused, show, table};
use crate::simulated::{Policy, Scene, simulate};
use cistern_client::{Client, IdlePolicy, Recorder};
use cistern_model::capture::{self, Seen};
use cistern_model::renewal::Parts;
use cistern_model::{Invalid, Magnitude};
use cistern_picture::{Axis, Curve, Figure, Mark};
use cistern_testkit::LocalServer;
use cistern_text::{Progress, row};
use rand::rngs::ChaCha12Rng;
use rand::{RngExt, SeedableRng};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Rates of requests that are measured, in requests a lease period.
const RATES: [f64; 5] = [1.0, 2.0, 3.0, 4.0, 5.0];

/// Whether every answer renews the lease.
const OPPORTUNISTIC: [bool; 2] = [true, false];

/// How long an agent waits for a server that does not answer.
const GIVE_UP: Duration = Duration::from_secs(5);

/// Requests of a simulated agent.
const SIMULATED: u64 = 300_000;

/// Requests of the real cores in virtual time.
const REAL: u64 = 3_000;

/// What was measured of one policy at one rate.
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
    /// As [`Point::simulated`], by the real cores in virtual time.
    real_cores: f64,
}

pub(crate) fn measure(args: &Measure) -> Result<(), Failure> {
    if !(0.1..=60.0).contains(&args.lease) || args.duration < 10.0 * args.lease || args.duration > 3_600.0 {
        return Err(Failure::usage(
            "--lease must be 100 ms to 60 s, and --duration ten times as long at least, and at most an hour".to_owned(),
        ));
    }
    let points = points(args, &run(args)?).map_err(refused)?;
    let mut rows = vec![row([&"policy", &"tau_rho", &"requests", &"keep_alives", &"measured", &"solved", &"simulated", &"real_cores"])];
    rows.extend(
        points
            .iter()
            .map(|p| row([&p.policy, &p.tau_rho, &p.requests, &p.keep_alives, &p.measured, &p.solved, &p.simulated, &p.real_cores])),
    );
    show(
        &args.shown,
        &points,
        &rows,
        || picture(&points),
        || {
            line(format!(
                "A server and {} agents on loopback, τ = {} s, for {} s:\n",
                RATES.len() * OPPORTUNISTIC.len() * args.agents as usize,
                args.lease,
                args.duration
            ))?;
            let number = |n: f64| Magnitude::new(n).to_string();
            let head = row([&"τρ", &"policy", &"requests", &"keep-alives", &"measured", &"solved", &"simulated", &"real cores"]);
            let cells = points.iter().map(|p| {
                let numbers = [p.tau_rho, p.measured, p.solved, p.simulated, p.real_cores].map(number);
                row([&numbers[0], &p.policy, &p.requests, &p.keep_alives, &numbers[1], &numbers[2], &numbers[3], &numbers[4]])
            });
            table(&std::iter::once(head).chain(cells).collect::<Vec<_>>())?;
            line("\nn keep-alives are off by about 1/√n; that requests come late on a busy machine changes the figures, too.")
        },
    )
}

/// What one agent does.
#[derive(Clone, Copy)]
struct Part {
    opportunistic: bool,
    /// Its rate, by place in [`RATES`].
    rate: usize,
    /// Which of the agents at that rate.
    number: u32,
}

/// Runs all agents at once; what each of them sent.
fn run(args: &Measure) -> Result<Vec<(Part, Seen)>, Failure> {
    let end = End::catch()?;
    let dir = tempfile::tempdir().map_err(|e| Failure::failed(format!("no temporary directory: {e}")))?;
    let server = LocalServer::start(Duration::from_secs_f64(args.lease)).map_err(|e| Failure::failed(format!("the server: {e}")))?;
    let address = &server.address.to_string();
    let parts = OPPORTUNISTIC.into_iter().flat_map(|opportunistic| {
        (0..RATES.len()).flat_map(move |rate| (0..args.agents).map(move |number| Part { opportunistic, rate, number }))
    });
    let (mut progress, end, dir) = (Progress::default(), &end, dir.path());
    std::thread::scope(|scope| {
        let threads: Vec<_> = parts.map(|part| (part, scope.spawn(move || agent(args, end, address, part, dir)))).collect();
        let until = Instant::now() + Duration::from_secs_f64(args.duration);
        while Instant::now() < until && threads.iter().any(|(_, thread)| !thread.is_finished()) {
            progress.tell(&format!("measuring: {} s to go", (until - Instant::now()).as_secs()));
            end.wait(Duration::from_millis(50));
        }
        progress.done();
        let seen = threads.into_iter().map(|(part, thread)| {
            let seen = thread.join().map_err(|_| Failure::failed("an agent of the measurement failed".to_owned()))??;
            Ok((part, seen))
        });
        seen.collect()
    })
}

/// One agent: takes a lock, and sends requests at random times at its rate.
fn agent(args: &Measure, end: &End, server: &str, part: Part, dir: &Path) -> Result<Seen, Failure> {
    let Part { opportunistic, rate, number } = part;
    let name = format!("{}-{rate}-{number}", policy(opportunistic));
    let path = dir.join(format!("{name}.pcap"));
    let recorder = Arc::new(Recorder::create(&path).map_err(|e| Failure::failed(e.to_string()))?);
    let config = cistern_agent::config::Config {
        idle: IdlePolicy::Eager,
        give_up_after: GIVE_UP,
        opportunistic,
        ..cistern_agent::config::Config::default()
    };
    let tap = Arc::clone(&recorder);
    let client = Client::builder().insecure().server(server).label(format!("measured-{name}")).config(config).tap(tap).connect()?;
    let path_held = format!("/{name}");
    client.create_new(&path_held).wait()?;
    let held = client.lock(&path_held).wait()?;
    let from = now();
    // The same for both policies.
    let mut random = ChaCha12Rng::seed_from_u64(args.seed ^ (rate as u64) << 52 ^ u64::from(number) << 20);
    let (start, mut at) = (Instant::now(), 0.0);
    loop {
        at += -(1.0 - random.random::<f64>()).ln() * args.lease / RATES[rate];
        if at >= args.duration {
            break;
        }
        wait_until(end, start + Duration::from_secs_f64(at))?;
        client.ping().wait()?;
    }
    wait_until(end, start + Duration::from_secs_f64(args.duration))?;
    let to = now();
    drop(held);
    drop(client);
    recorder.finish();
    capture::read_within(&path, from..to).map_err(Failure::failed)
}

const fn policy(opportunistic: bool) -> &'static str {
    if opportunistic { "opportunistic" } else { "explicit" }
}

/// Whether this program was asked to end: SIGINT or SIGTERM.
#[derive(Clone)]
struct End(Arc<AtomicBool>);

impl End {
    fn catch() -> Result<Self, Failure> {
        let end = Self(Arc::default());
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&end.0)).map_err(|e| Failure::failed(format!("signals: {e}")))?;
        }
        Ok(end)
    }

    /// Waits so long; whether it was asked to end meanwhile, within a twentieth of a second.
    fn wait(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if self.0.load(Ordering::Relaxed) || left.is_zero() {
                return self.0.load(Ordering::Relaxed);
            }
            std::thread::sleep(left.min(Duration::from_millis(50)));
        }
    }
}

/// Waits, unless the command is asked to end.
fn wait_until(end: &End, at: Instant) -> Result<(), Failure> {
    let asked = end.wait(at.saturating_duration_since(Instant::now()));
    if asked { Err(Failure::failed("ended before all was measured".to_owned())) } else { Ok(()) }
}

fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

fn points(args: &Measure, seen: &[(Part, Seen)]) -> Result<Vec<Point>, Invalid> {
    #[expect(clippy::cast_precision_loss, reason = "counts of datagrams")]
    let float = |count: u64| count as f64;
    let periods = args.duration / args.lease * f64::from(args.agents);
    let mut points = Vec::new();
    for (rate, opportunistic) in (0..RATES.len()).flat_map(|rate| OPPORTUNISTIC.map(|opportunistic| (rate, opportunistic))) {
        let of = seen.iter().filter(|(part, _)| (part.rate, part.opportunistic) == (rate, opportunistic));
        let (requests, keep_alives) = of.fold((0, 0), |sum, (_, seen)| (sum.0 + seen.requests, sum.1 + seen.keep_alives));
        let tau_rho = float(requests.max(1)) / periods;
        let after = Parts::AGENT.renew_from * tau_rho;
        let policy_simulated = if opportunistic { Policy::Opportunistic(Parts::AGENT) } else { Policy::Heartbeat(Parts::AGENT) };
        let scene = Scene { policy: policy_simulated, arrivals: Arrivals::Poisson, rho: 1.0, tau: tau_rho, lambda: 0.0, mu: 0.0 };
        points.push(Point {
            policy: policy(opportunistic),
            tau_rho,
            requests,
            keep_alives,
            measured: float(keep_alives) / float(requests.max(1)),
            solved: if opportunistic { Arrivals::Poisson.overhead(after) } else { 1.0 / after },
            simulated: simulate(&scene, SIMULATED, args.seed)?.overhead(),
            real_cores: real::overhead(opportunistic, "random", &Arrivals::Poisson, tau_rho, REAL, args.seed)?.simulated,
        });
    }
    Ok(points)
}

fn picture(points: &[Point]) -> Result<Figure, Invalid> {
    let xs = Axis::linear("", 0.1, 6.0).places(200);
    let curve = |name, after: f64| Curve::of(name, &xs, move |x| Ok(Arrivals::Poisson.overhead(after * x)));
    let curves = vec![
        Curve::of("explicit, renewed from 0.6 τ (solved)", &xs, |x| Ok(1.0 / (Parts::AGENT.renew_from * x)))?,
        curve("opportunistic, renewed from 0.6 τ (solved)", Parts::AGENT.renew_from)?,
        curve("opportunistic, renewed when over (the paper's)", 1.0)?,
    ];
    let mark = |of: &str, x: f64, y: f64| Mark { of: of.to_owned(), x, y };
    let marks = points.iter().map(|p| mark("simulated", p.tau_rho, p.simulated));
    let real = points.iter().map(|p| mark("simulated, real cores", p.tau_rho, p.real_cores));
    let measured = points.iter().map(|p| mark("measured on loopback", p.tau_rho, p.measured));
    Ok(Figure {
        title: "Renewal messages per request: solved, simulated, measured".to_owned(),
        x: Axis::linear("lease period τρ, in mean times between requests", 0.0, 6.0),
        y: Axis::log("explicit renewals per request", 1e-3, 1e2),
        curves,
        marks: marks.chain(real).chain(measured).collect(),
        notes: vec![],
    })
}
