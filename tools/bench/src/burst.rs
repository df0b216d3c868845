//! Ten thousand locks at once: from the first request to the last grant.
//!
//! Decides the load: files that exist, sessions that are open, then a LOCK for each file, as many in a datagram as it takes and as many
//! in flight as the window lets; and where the time goes: CPU of the server, CPU of the generator. Place: a workload, over `volley`.
//! Invariant: a burst has ended when every lock was granted, each once; what can be made before the first request is sent is made before.
//! Leaves to others: sending and hearing (`volley`), locks one after the other (`beside_echo`).

mod volley;

use crate::cases::{Plan, connected};
use crate::figures::{Spread, count, per};
use crate::host::{Host, Role, Setup};
use crate::opening;
use crate::progress::Progress;
use crate::section::{Row, Section, digits};
use crate::trouble::Trouble;
use std::time::{Duration, Instant};
use volley::{Inbox, Tally, Volley};

/// How many locks, if nothing is said, and at most.
const LOCKS: usize = 10_000;
const LOCKS_MAX: usize = 100_000;
/// How long a burst may take, in seconds.
const SILENCE_S: u64 = 10;
/// Agents and their windows: the window of the defaults, and one as large as the protocol allows.
const SHAPES: [(usize, u16); 4] = [(1, 4_096), (1, 64), (16, 4_096), (16, 64)];

/// Takes so many locks at once, again and again.
pub(crate) fn run(locks: Option<u32>, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let locks = locks.map_or(LOCKS, |locks| (locks as usize).min(LOCKS_MAX));
    let mut section = Section::new("burst", "locks on files that nobody has locked, all at once: from the first request to the last grant");
    for (agents, window) in SHAPES {
        let name = format!("{} locks, {agents} agents, window {window}", digits(count(locks as u64)));
        progress.say(&name);
        let mut burst = Burst::new(locks, agents, window, plan)?;
        section.rows.push(burst.measure(name, plan)?);
    }
    Ok(section.note(
        "Requests are encoded and put into datagrams before the clock starts. Generator: its CPU time in sending and in taking what has \
         come; the rest of the time it waits for the server.",
    ))
}

struct Burst {
    host: Host,
    volleys: Vec<Volley>,
    inbox: Inbox,
}

impl Burst {
    fn new(locks: usize, agents: usize, window: u16, plan: &Plan) -> Result<Self, Trouble> {
        let host = Host::start_with(Role::Server, plan.cores, &Setup { window: Some(window), ..Setup::default() })?;
        let mut volleys = Vec::with_capacity(agents);
        for number in 0..agents {
            let socket = connected(&host)?;
            let mut agent = opening::open_with_window(&socket, number, window)?;
            let of_this = (number..locks).step_by(agents);
            let objects = of_this.map(|lock| opening::create(&socket, &mut agent, &format!("burst-{lock}"))).collect::<Result<_, _>>()?;
            volleys.push(Volley::new(socket, host.address, agent, window, objects)?);
        }
        Ok(Self { host, volleys, inbox: Inbox::new() })
    }

    fn measure(&mut self, name: String, plan: &Plan) -> Result<Row, Trouble> {
        let (mut ms, mut cpu_us, mut generator_us) = (Vec::new(), Vec::new(), Vec::new());
        let (mut datagrams, mut resent, mut granted) = (0, 0, 0);
        for round in 0..=plan.rounds {
            self.volleys.iter_mut().for_each(Volley::prepare);
            let locks = self.volleys.iter().map(|volley| volley.left() as u64).sum::<u64>();
            let (used, begin) = (self.host.usage()?, Instant::now());
            self.take_all(begin)?;
            let elapsed = begin.elapsed();
            let used = self.host.usage()?.since(used);
            let sum = |figure: &dyn Fn(&Tally) -> u64| self.volleys.iter().map(|volley| figure(&volley.tally)).sum::<u64>();
            // The first does not count.
            if round > 0 {
                ms.push(elapsed.as_secs_f64() * 1e3);
                cpu_us.push(per(used.cpu_ns, locks) / 1e3);
                generator_us.push(per(sum(&|tally| u64::try_from(tally.cpu.as_nanos()).unwrap_or(u64::MAX)), locks) / 1e3);
                datagrams += sum(&|tally| tally.datagrams);
                resent += sum(&|tally| tally.resent);
                granted += locks;
            }
            let Self { volleys, inbox, .. } = self;
            volleys.iter_mut().try_for_each(|volley| volley.give_back(inbox))?;
        }
        let spread = |values: Vec<f64>| Spread::of(values).expect("the command line lets no plan without rounds through");
        Ok(Row::new(name)
            .with("ms", "ms", spread(ms))
            .with("cpu_us", "server µs/lock", spread(cpu_us))
            .with("generator_us", "generator µs/lock", spread(generator_us))
            .with("datagrams", "datagrams/lock", per(datagrams, granted))
            .with("granted", "granted", granted)
            .with("resent", "resent", resent))
    }

    fn take_all(&mut self, begin: Instant) -> Result<(), Trouble> {
        let Self { volleys, inbox, .. } = self;
        loop {
            let mut left = 0;
            for volley in volleys.iter_mut().filter(|volley| volley.left() > 0) {
                volley.ask()?;
                volley.hear(inbox)?;
                volley.ask_again()?;
                left += volley.left();
            }
            if left == 0 {
                return Ok(());
            }
            if begin.elapsed() >= Duration::from_secs(SILENCE_S) {
                return Err(Trouble::Silence { while_doing: "taking many locks at once", seconds: SILENCE_S });
            }
        }
    }
}
