//! A group of three servers on three etcds: who serves is killed, stopped, or hands over, until holders are certain again and somebody gets a lock.
//!
//! Decides the loads: all agents are clients in this process, each with a lock of its own at the default τ; a fresh client asks for one more lock when the
//! server is gone. A holder is certain again when its lease has been renewed by something sent since. One whose lock was *suspect* before that would
//! have been told to stop. Place: a workload, over `cistern-client` and `cistern_testkit::ServerGroup`.
//! Invariant: each round begins with three servers that take part, and no grace.

use crate::cases::Plan;
use crate::figures::count;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_client::{Client, Config, Guard, IdlePolicy, LockState};
use cistern_testkit::{Etcds, ServerGroup, is_built_with_etcd};
use hdrhistogram::Histogram;
use serde_json::json;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// The default τ of a server.
const TAU: Duration = Duration::from_secs(2);
/// Between two looks at all holders.
const LOOK: Duration = Duration::from_millis(1);
/// Most agents: each is a client of this process, with a thread of its own.
pub(crate) const AGENTS_MAX: usize = 100;
/// Longest take-over told apart.
const LONGEST: Duration = Duration::from_secs(60);

/// What becomes of the server that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Killed,
    Stopped,
    HandsOver,
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped (SIGSTOP)",
            Self::HandsOver => "hands over",
        }
    }
}

/// Measures each fate over all rounds, with these many agents.
pub(crate) fn run(dir: &Path, agents: usize, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let section = Section::new(
        "group",
        "three servers on three etcds: the serving one goes, another takes over; τ = 2 s, lease of the group 500 ms; ms",
    );
    if !is_built_with_etcd() {
        return Ok(section
            .note("cisternd of this profile is not built with the store on etcd: cargo build --profile dist --features etcd. Skipped."));
    }
    let Some(etcds) = Etcds::start_in(dir, 3, &[]) else {
        return Ok(section.note("etcd is not installed (Debian: apt-get install etcd-server): skipped."));
    };
    let mut section = section
        .note("From the instant at which the server goes. A new lock is asked for right then, by a client without a session.")
        .note("Would be stopped: holders that saw their lease suspect before it was renewed, as a command under `cistern lock` would.");
    let mut group = ServerGroup::start(&etcds, 3, &["--lease", "2s"]);
    group.serving(&[]);
    let holders = Holders::take(&group, agents)?;
    for fate in [Fate::Killed, Fate::Stopped, Fate::HandsOver] {
        section.rows.push(rounds(fate, &mut group, &holders, plan, progress)?);
    }
    Ok(section)
}

fn rounds(fate: Fate, group: &mut ServerGroup, holders: &Holders, plan: &Plan, progress: &Progress) -> Result<Row, Trouble> {
    let (mut certain, mut granted) = (histogram(), histogram());
    let mut last = histogram();
    let mut suspects = 0;
    for round in 1..=plan.rounds {
        progress.say(&format!("group: {}, round {round} of {}", fate.name(), plan.rounds));
        let serving = group.serving(&[]);
        (0..3).for_each(|server| group.takes_part(server));
        // Not in step with the holders' renewals.
        thread::sleep(Duration::from_millis(u64::from(round) * 137 % 1_000));
        let path = format!("/new-{}-{round}", fate.name().len());
        holders.clients[0].create_new(&path).wait().map_err(Trouble::starting("making a file to lock"))?;
        let waiter = client(group)?;
        let gone_at = holders.clients[0].now();
        let begin = Instant::now();
        match fate {
            Fate::Killed => group.kill(serving),
            Fate::Stopped => group.pause(serving, true),
            Fate::HandsOver => hand_over(group, serving)?,
        }
        let waits = thread::spawn(move || waiter.lock(&path).start().wait_timeout(LONGEST).map(|lock| lock.map(|_| begin.elapsed())));
        let seen = holders.watch(gone_at, begin)?;
        seen.back.iter().for_each(|took| certain.saturating_record(micros(*took)));
        last.saturating_record(seen.back.iter().max().map_or(0, |took| micros(*took)));
        suspects += seen.suspects;
        let lock = waits.join().map_err(|_| Trouble::Start { step: "asking for a lock", why: "its thread panicked".to_owned() })?;
        let took = lock.ok_or(Trouble::Silence { while_doing: "waiting for a new lock", seconds: LONGEST.as_secs() })?;
        granted.saturating_record(micros(took.map_err(Trouble::starting("asking for a lock"))?));
        match fate {
            Fate::Killed => group.start_server(serving),
            Fate::Stopped => group.pause(serving, false),
            Fate::HandsOver => {}
        }
    }
    let ms = |us: u64| count(us) / 1e3;
    Ok(Row::new(format!("{}, {} holders", fate.name(), holders.guards.len()))
        .with("certain_p50_ms", "holder certain again, p50", ms(certain.value_at_quantile(0.5)))
        .with("certain_p99_ms", "p99", ms(certain.value_at_quantile(0.99)))
        .with("last_max_ms", "the last of a round, longest", ms(last.max()))
        .with("lock_p50_ms", "new lock, median", ms(granted.value_at_quantile(0.5)))
        .with("lock_max_ms", "longest", ms(granted.max()))
        .with("suspect", "would be stopped", suspects)
        .with("lost", "lost", holders.lost())
        .with("rounds", "rounds", u64::from(plan.rounds)))
}

fn hand_over(group: &ServerGroup, server: usize) -> Result<(), Trouble> {
    let asked = group.ask(server, &json!({ "op": "hand_over" }));
    asked.map(drop).map_err(|refused| Trouble::Start { step: "handing over", why: refused.to_string() })
}

fn client(group: &ServerGroup) -> Result<Client, Trouble> {
    let config = Config { idle: IdlePolicy::Lazy, ..Config::default() };
    let builder = group.names().iter().fold(Client::builder().insecure().config(config), |builder, name| builder.server(name.as_str()));
    builder.start().map_err(Trouble::starting("making a client"))
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, micros(LONGEST), 3).expect("1 to 6 * 10^7 with three digits is a valid range")
}

fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

/// Clients that hold a lock each.
struct Holders {
    // Before the clients, through which they are given back.
    guards: Vec<Guard>,
    clients: Vec<Client>,
}

/// What was seen of one take-over.
struct SeenBack {
    /// Of each holder, when it was certain again.
    back: Vec<Duration>,
    /// How many were suspect, or worse, before that.
    suspects: u64,
}

impl Holders {
    fn take(group: &ServerGroup, agents: usize) -> Result<Self, Trouble> {
        let wrong = |error: cistern_client::Error| Trouble::starting("taking the holders' locks")(error);
        let clients: Vec<Client> = (0..agents).map(|_| client(group)).collect::<Result<_, _>>()?;
        let mut guards = Vec::new();
        for (number, client) in clients.iter().enumerate() {
            let path = format!("/held-{number}");
            client.create_new(&path).wait().map_err(wrong)?;
            guards.push(client.lock(&path).wait().map_err(wrong)?);
        }
        Ok(Self { guards, clients })
    }

    /// Waits until all are certain again by what was sent since the server went.
    fn watch(&self, gone_at: cistern_client::Instant, begin: Instant) -> Result<SeenBack, Trouble> {
        let certain_since = gone_at.plus(TAU);
        let mut back = vec![None; self.guards.len()];
        let mut suspect = vec![false; self.guards.len()];
        while back.iter().any(Option::is_none) {
            if begin.elapsed() > LONGEST {
                return Err(Trouble::Silence { while_doing: "waiting for holders to be certain again", seconds: LONGEST.as_secs() });
            }
            for ((guard, back), suspect) in self.guards.iter().zip(&mut back).zip(&mut suspect).filter(|((_, back), _)| back.is_none()) {
                let until = guard.valid_until();
                *suspect |= guard.state() != LockState::Certain;
                if until.is_some_and(|until| until.waited(certain_since)) {
                    *back = Some(begin.elapsed());
                }
            }
            thread::sleep(LOOK);
        }
        Ok(SeenBack { back: back.into_iter().flatten().collect(), suspects: suspect.into_iter().filter(|was| *was).count() as u64 })
    }

    fn lost(&self) -> u64 {
        self.guards.iter().filter(|guard| guard.state() == LockState::Lost).count() as u64
    }
}
