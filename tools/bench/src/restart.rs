//! A server is killed and started again: how soon all of its agents have their locks again.
//!
//! Decides the loads: ten thousand agents, each with an address, a session and a lock of its own, in two threads of this process, with the server's
//! on whatever cores there are; in clear, sealed by OPEN alone, and sealed by RESUME. The server is `cisternd` as it is installed, with a store
//! in a directory. Place: a workload. Source of the bound: T = τ(1+δ) + ε (`wire-spec.md` section 8), the length of grace.
//! Leaves to others: the agents (`agents`), how long a bare restart takes (`tests/system`).

mod agents;

use crate::cases::Plan;
use crate::figures::Spread;
use crate::host::proc;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use agents::Agents;
use cistern_agent::Keys;
use cistern_seal::Entropy;
use cistern_seal::handshake::HandshakeFailed;
use cistern_seal::record::Chain;
use cistern_seal::work::{Beginning, Handshaker, KeyHolder};
use cistern_server::Config;
use cistern_testkit::session::SealedBy;
use cistern_testkit::{CISTERND, Server, program};
use nix::unistd::Pid;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

const LEASE: Duration = Duration::from_secs(2);
/// Threads of agents.
const THREADS: usize = 2;
/// Agents of one key: a host's.
const PER_KEY: usize = 100;
/// More rounds than this tell nothing more.
const ROUNDS_MAX: u32 = 5;

/// The load of agents that do not resume.
pub(crate) const OPEN_ALONE: &str = "sealed, by OPEN alone";

/// How agents come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    Open,
    Resume,
}

impl Way {
    const ALL: [Self; 3] = [Self::Plain, Self::Open, Self::Resume];

    const fn name(self) -> &'static str {
        match self {
            Self::Plain => "in clear",
            Self::Open => OPEN_ALONE,
            Self::Resume => "sealed, by RESUME",
        }
    }
}

/// Measures each way.
pub(crate) fn run(agents: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    if !program(CISTERND).exists() {
        return Err(Trouble::Host { who: CISTERND, what: "is not built: build the package `cistern` in the same profile" });
    }
    let bound = Config::for_lease(LEASE).wait();
    let mut section =
        Section::new("restart", format!("{agents} agents with a lock each, server killed and started again, τ = 2 s; seconds"));
    for way in Way::ALL {
        let mut restarts = Restarts::new(way, agents)?;
        let rounds = (0..plan.rounds.clamp(1, ROUNDS_MAX)).map(|number| {
            progress.say(&format!("restart, {}: round {number}", way.name()));
            restarts.round()
        });
        let rounds = rounds.collect::<Result<Vec<_>, _>>()?;
        let spread = |what: fn(&Comeback) -> f64| Spread::of(rounds.iter().map(what)).expect("there is a round");
        section.rows.push(
            Row::new(format!("{agents} agents, {}", way.name()))
                .with("down_s", "server down", spread(|round| round.down))
                .with("t_s", "T", bound.as_secs_f64())
                .with("agents", "agents", agents as u64)
                .with("all_killed_s", "all, from the kill", spread(|round| round.down + round.all))
                .with("half_s", "half are back", spread(|round| round.half))
                .with("p99_s", "99 % are back", spread(|round| round.p99))
                .with("all_s", "all are back", spread(|round| round.all))
                .with("all_over_bound", "all, longest/T", rounds.iter().map(|round| round.all).fold(0.0, f64::max) / bound.as_secs_f64())
                .with("sessions_lost", "sessions lost", rounds.iter().map(|round| round.sessions_lost).sum::<u64>())
                .with("locks_lost", "locks lost", rounds.iter().map(|round| round.locks_lost).sum::<u64>())
                .with("resumed", "resumed", rounds.iter().map(|round| round.resumed).sum::<u64>())
                .with("without_lock", "held none at the kill", rounds.iter().map(|round| round.without_lock).sum::<u64>())
                .with("server_cpu_s", "server CPU", spread(|round| round.cpu))
                .with("bench_cpu_s", "agents' CPU", spread(|round| round.own_cpu))
                .with("refusals", "sends put off", rounds.iter().map(|round| round.refusals).sum::<u64>())
                .with("rounds", "rounds", rounds.len() as u64),
        );
    }
    Ok(section
        .note("Half and all are back: from when the server answers again; server down: from the kill until then. T is the length of grace.")
        .note("Agents and server share the cores: what agents compute is in these times, and is not where they are hosts of their own."))
}

/// A restart.
struct Comeback {
    down: f64,
    half: f64,
    p99: f64,
    all: f64,
    sessions_lost: u64,
    locks_lost: u64,
    resumed: u64,
    /// Agents that held no lock when the server was killed.
    without_lock: u64,
    /// CPU time of the new process until a second after all are back.
    cpu: f64,
    /// Of this process, from the kill until then.
    own_cpu: f64,
    refusals: u64,
}

/// A server and its agents.
struct Restarts {
    server: Server,
    agents: Vec<Agents>,
}

impl Restarts {
    fn new(way: Way, count: usize) -> Result<Self, Trouble> {
        let server = Server::kept(way != Way::Plain, &["--lease", "2s", "--max-sessions", "40000", "--http", "127.0.0.1:0"]);
        let keys: Vec<_> = (0..count.div_ceil(PER_KEY)).map(|number| server.admit(&format!("host-{number}"))).collect();
        let keys_of = |number: usize| {
            let SealedBy { agent, server } = keys.get(number / PER_KEY)?.clone()?;
            let entropy = || Entropy::from_bytes(cistern_driver::seed().expect("the system has randomness"));
            Some(Keys::new(Comer { holder: KeyHolder::new(agent, entropy), resumes: way == Way::Resume }, server))
        };
        let share = count.div_ceil(THREADS);
        let threads = (0..count).step_by(share).map(|first| Agents::new(server.address, first..count.min(first + share), keys_of));
        let agents = threads.collect::<Result<_, _>>()?;
        Ok(Self { agents, server })
    }

    fn round(&mut self) -> Result<Comeback, Trouble> {
        together(&mut self.agents, Agents::open)?;
        // Their renewals are spread as they are in the long run.
        together(&mut self.agents, |agents| agents.pass(2 * LEASE))?;
        let Self { server, agents } = self;
        let refusals = |agents: &[Agents]| agents.iter().map(Agents::refusals).sum::<u64>();
        let (own, refused) = (cpu_of(std::process::id())?, refusals(agents));
        let (times, back) = thread::scope(|scope| {
            let back: Vec<_> = agents.iter_mut().map(|agents| scope.spawn(|| agents.come_back())).collect();
            let times = restart(server);
            (times, back.into_iter().map(|thread| thread.join().expect("agents do not panic")).collect::<Result<Vec<_>, _>>())
        });
        let (cpu, own_cpu, refusals) = (cpu_of(server.process.id())?, cpu_of(std::process::id())? - own, refusals(agents) - refused);
        let ((killed, ready), back) = (times, back?.concat());
        let mut seconds: Vec<f64> =
            back.iter().filter(|back| back.held).map(|back| back.at.saturating_duration_since(ready).as_secs_f64()).collect();
        seconds.sort_by(f64::total_cmp);
        let at = |place: usize| seconds.get(place).copied().unwrap_or_default();
        Ok(Comeback {
            down: (ready - killed).as_secs_f64(),
            half: at(seconds.len() / 2),
            p99: at(seconds.len() * 99 / 100),
            all: at(seconds.len().saturating_sub(1)),
            sessions_lost: back.iter().filter(|back| back.held && !back.has_session).count() as u64,
            locks_lost: back.iter().filter(|back| back.held && !back.has_lock).count() as u64,
            resumed: resumed(server)?,
            without_lock: back.iter().filter(|back| !back.held).count() as u64,
            cpu,
            own_cpu,
            refusals,
        })
    }
}

/// The same in a thread for each.
fn together(agents: &mut [Agents], work: impl Fn(&mut Agents) -> Result<(), Trouble> + Sync) -> Result<(), Trouble> {
    thread::scope(|scope| {
        let threads: Vec<_> = agents.iter_mut().map(|agents| scope.spawn(|| work(agents))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("agents do not panic"))
    })
}

/// Holds an agent's key, and resumes only if it is to.
struct Comer<H> {
    holder: H,
    resumes: bool,
}

impl<H: Handshaker> Handshaker for Comer<H> {
    fn begin(&mut self, beginning: &Beginning<'_>, prologue: &[u8], payload: &[u8]) -> Result<Vec<u8>, HandshakeFailed> {
        if matches!(beginning, Beginning::Resume(_)) && !self.resumes {
            return Err(HandshakeFailed);
        }
        self.holder.begin(beginning, prologue, payload)
    }

    fn finish(&mut self, message: &[u8]) -> Result<(Vec<u8>, Chain), HandshakeFailed> {
        self.holder.finish(message)
    }
}

/// Kills a server, and starts it again; gives when it was killed, and when it answers.
fn restart(server: &mut Server) -> (Instant, Instant) {
    let killed = Instant::now();
    server.process.kill();
    server.start_again();
    (killed, Instant::now())
}

/// How many sessions were resumed since it was started.
fn resumed(server: &Server) -> Result<u64, Trouble> {
    let without = || Trouble::Host { who: CISTERND, what: "does not tell how many have resumed" };
    let address: SocketAddr = server.process.ready["http"].as_str().and_then(|text| text.parse().ok()).ok_or_else(without)?;
    let mut stream = TcpStream::connect(address).map_err(Trouble::at("asking for metrics"))?;
    let mut samples = String::new();
    let asked = stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").and_then(|()| stream.read_to_string(&mut samples));
    asked.map_err(Trouble::at("reading metrics"))?;
    let sample = samples.lines().find_map(|line| line.strip_prefix("cistern_sessions_resumed_total "));
    sample.and_then(|sample| sample.parse().ok()).ok_or_else(without)
}

/// CPU time of all its threads, in seconds.
fn cpu_of(process: u32) -> Result<f64, Trouble> {
    let stat = proc(Pid::from_raw(process.cast_signed()), procfs::process::Process::stat)?;
    Ok(Duration::from_millis(1_000 * (stat.utime + stat.stime) / procfs::ticks_per_second()).as_secs_f64())
}
