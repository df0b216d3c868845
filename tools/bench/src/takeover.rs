//! A group of three servers on three etcds: who serves goes, until holders are certain again and somebody gets a lock.
//!
//! Decides the loads: all agents are clients in this process, each with a lock of its own at the default τ; a fresh client asks for one more lock when the
//! server is gone. A holder is certain again when its lease has been renewed by something sent since. One whose lock was *suspect* before that would
//! have been told to stop. Each server has a host with a member of etcd, where network namespaces can be made; else all are on loopback, and
//! no network is cut. Place: a workload, over `cistern-client` and `cistern_testkit::ServerGroup`.
//! Invariant: each round begins with three servers that take part, and no grace.

use crate::cases::Plan;
use crate::figures::count;
use crate::progress::Progress;
use crate::section::{Row, Section};
use crate::trouble::Trouble;
use cistern_client::{Client, Config, Guard, IdlePolicy, LockState};
use cistern_testkit::{Etcds, GroupHosts, Place, ServerGroup, eventually, is_built_with_etcd};
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
pub(crate) const AGENTS_MAX: usize = 1_000;
/// Percent of all datagrams that are lost where some are, and between two looks then.
const LOSS: u32 = 10;
const LOOK_AT_LOSS: Duration = Duration::from_millis(20);
/// Longest take-over told apart.
const LONGEST: Duration = Duration::from_secs(60);

/// What becomes of the server that serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Killed,
    Stopped,
    HandsOver,
    CutOff,
    /// With the leader of etcd, which is on the same host.
    HostLost,
}

impl Fate {
    const fn name(self) -> &'static str {
        match self {
            Self::Killed => "killed",
            Self::Stopped => "stopped (SIGSTOP)",
            Self::HandsOver => "hands over",
            Self::CutOff => "cut off from everybody",
            Self::HostLost => "host lost, with etcd's leader",
        }
    }
}

/// Where servers are.
enum Ground {
    // In the order in which it ends.
    Loopback { group: ServerGroup, _etcds: Etcds },
    Hosts(GroupHosts),
}

impl Ground {
    /// Starts three servers on three etcds; `None` where there is no etcd.
    fn start(dir: &Path) -> Option<Self> {
        let args = ["--lease", "2s"];
        if let Some(hosts) = GroupHosts::start(dir, &args) {
            return Some(Self::Hosts(hosts));
        }
        let etcds = Etcds::start_in(dir, 3, &[])?;
        let group = ServerGroup::start(&etcds, 3, &args);
        group.serving(&[]);
        Some(Self::Loopback { group, _etcds: etcds })
    }

    const fn group(&mut self) -> &mut ServerGroup {
        match self {
            Self::Loopback { group, .. } => group,
            Self::Hosts(hosts) => &mut hosts.group,
        }
    }

    /// Makes a client where agents are.
    fn client(&mut self) -> Result<Client, Trouble> {
        let outside = if let Self::Hosts(hosts) = self { hosts.outside() } else { Place::default() };
        let config = Config { idle: IdlePolicy::Lazy, ..Config::default() };
        let names = self.group().names();
        let builder = names.iter().fold(Client::builder().insecure().config(config), |builder, name| builder.server(name.as_str()));
        outside.run(|| builder.start()).map_err(Trouble::starting("making a client"))
    }

    /// Has the server serve that is on the host of etcd's leader.
    fn join_leader(&mut self) {
        let Self::Hosts(hosts) = self else { return };
        eventually("the server on the host of etcd's leader serves", || {
            let (leader, serving) = (hosts.etcds.leader(), hosts.group.serving(&[]));
            if serving != leader {
                // It refuses as long as it has not heard of the other one: then it is asked again.
                let _ = hosts.group.ask(serving, &json!({ "op": "hand_over", "to": hosts.group.name(leader) }));
                thread::sleep(Duration::from_millis(500));
            }
            (serving == leader).then_some(())
        });
    }

    fn begin(&mut self, fate: Fate, server: usize) -> Result<(), Trouble> {
        match (fate, self) {
            (Fate::CutOff, Self::Hosts(hosts)) => hosts.network.isolate(GroupHosts::NAMES[server]),
            (Fate::HostLost, Self::Hosts(hosts)) => hosts.lose(server),
            (Fate::HandsOver, ground) => hand_over(ground.group(), server)?,
            (Fate::Stopped, ground) => ground.group().pause(server, true),
            (_, ground) => ground.group().kill(server),
        }
        Ok(())
    }

    fn end(&mut self, fate: Fate, server: usize) {
        match (fate, self) {
            (Fate::CutOff, Self::Hosts(hosts)) => hosts.network.heal(),
            (Fate::HostLost, Self::Hosts(hosts)) => hosts.start_again(server),
            (Fate::HandsOver, _) => {}
            (Fate::Stopped, ground) => ground.group().pause(server, false),
            (_, ground) => ground.group().start_server(server),
        }
    }
}

/// Measures each fate over all rounds, with these many agents, and for so long what a network that loses datagrams does.
pub(crate) fn run(dir: &Path, agents: usize, loss: Duration, plan: &Plan, progress: &Progress) -> Result<Section, Trouble> {
    let section = Section::new(
        "group",
        "three servers on three etcds: the serving one goes, another takes over; τ = 2 s, lease of the group 500 ms; ms",
    );
    if !is_built_with_etcd() {
        return Ok(section
            .note("cisternd of this profile is not built with the store on etcd: cargo build --profile dist --features etcd. Skipped."));
    }
    let Some(mut ground) = Ground::start(dir) else {
        return Ok(section.note("etcd is not installed (Debian: apt-get install etcd-server): skipped."));
    };
    let mut section = section
        .note("From the instant at which the server goes. A new lock is asked for right then, by a client without a session.")
        .note("Would be stopped: holders that saw their lease suspect before it was renewed, as a command under `cistern lock` would.")
        .note("etcd's heartbeat 50 ms, election timeout 500 ms.");
    let holders = Holders::take(&mut ground, agents)?;
    let mut fates = vec![Fate::Killed, Fate::Stopped, Fate::HandsOver];
    match ground {
        Ground::Hosts(_) => fates.extend([Fate::CutOff, Fate::HostLost]),
        Ground::Loopback { .. } => section.notes.push("No hosts of their own (network namespaces) here: no network was cut.".to_owned()),
    }
    for fate in fates {
        section.rows.push(rounds(fate, &mut ground, &holders, plan, progress)?);
    }
    if let Ground::Hosts(hosts) = &ground {
        section.rows.push(lossy(hosts, &holders, loss, progress)?);
    }
    Ok(section)
}

fn rounds(fate: Fate, ground: &mut Ground, holders: &Holders, plan: &Plan, progress: &Progress) -> Result<Row, Trouble> {
    let (mut certain, mut granted) = (histogram(), histogram());
    let mut last = histogram();
    let (mut suspects, lost) = (0, holders.lost());
    for round in 1..=plan.rounds {
        progress.say(&format!("group: {}, round {round} of {}", fate.name(), plan.rounds));
        ground.group().serving(&[]);
        (0..3).for_each(|server| ground.group().takes_part(server));
        if fate == Fate::HostLost {
            ground.join_leader();
        }
        let serving = ground.group().serving(&[]);
        // Not in step with the holders' renewals.
        thread::sleep(Duration::from_millis(u64::from(round) * 137 % 1_000));
        let path = format!("/new-{}-{round}", fate.name().len());
        holders.clients[0].create_new(&path).wait().map_err(Trouble::starting("making a file to lock"))?;
        let waiter = ground.client()?;
        let gone_at = holders.clients[0].now();
        let begin = Instant::now();
        ground.begin(fate, serving)?;
        let waits = thread::spawn(move || waiter.lock(&path).start().wait_timeout(LONGEST).map(|lock| lock.map(|_| begin.elapsed())));
        let seen = holders.watch(gone_at, begin)?;
        seen.back.iter().for_each(|took| certain.saturating_record(micros(*took)));
        last.saturating_record(seen.back.iter().max().map_or(0, |took| micros(*took)));
        suspects += seen.suspects;
        let lock = waits.join().map_err(|_| Trouble::Start { step: "asking for a lock", why: "its thread panicked".to_owned() })?;
        let took = lock.ok_or(Trouble::Silence { while_doing: "waiting for a new lock", seconds: LONGEST.as_secs() })?;
        granted.saturating_record(micros(took.map_err(Trouble::starting("asking for a lock"))?));
        ground.end(fate, serving);
    }
    let ms = |us: u64| count(us) / 1e3;
    Ok(Row::new(format!("{}, {} holders", fate.name(), holders.guards.len()))
        .with("certain_p50_ms", "holder certain again, p50", ms(certain.value_at_quantile(0.5)))
        .with("certain_p99_ms", "p99", ms(certain.value_at_quantile(0.99)))
        .with("last_max_ms", "the last of a round, longest", ms(last.max()))
        .with("lock_p50_ms", "new lock, median", ms(granted.value_at_quantile(0.5)))
        .with("lock_max_ms", "longest", ms(granted.max()))
        .with("suspect", "would be stopped", suspects)
        .with("lost", "lost", holders.lost() - lost)
        .with("rounds", "rounds", u64::from(plan.rounds)))
}

/// Nobody goes, and a part of all datagrams is lost, for so long.
fn lossy(hosts: &GroupHosts, holders: &Holders, span: Duration, progress: &Progress) -> Result<Row, Trouble> {
    hosts.group.serving(&[]);
    (0..3).for_each(|server| hosts.group.takes_part(server));
    let silent = Trouble::Start { step: "looking who serves", why: "nobody does".to_owned() };
    let incarnation = |hosts: &GroupHosts| hosts.serving().map(|(_, incarnation)| incarnation);
    let Some(before) = incarnation(hosts) else { return Err(silent) };
    let (begin, lost) = (Instant::now(), holders.lost());
    let mut suspect = vec![false; holders.guards.len()];
    hosts.network.lose(LOSS);
    while begin.elapsed() < span {
        progress.say(&format!("group: {LOSS} % of all datagrams lost, {} s to go", span.saturating_sub(begin.elapsed()).as_secs()));
        holders.guards.iter().zip(&mut suspect).for_each(|(guard, suspect)| *suspect |= guard.state() != LockState::Certain);
        thread::sleep(LOOK_AT_LOSS);
    }
    hosts.network.heal();
    hosts.group.serving(&[]);
    let Some(after) = incarnation(hosts) else { return Err(silent) };
    Ok(Row::new(format!("{LOSS} % of all datagrams lost for {} s, {} holders", span.as_secs(), holders.guards.len()))
        .with("suspect", "would be stopped", suspect.into_iter().filter(|was| *was).count() as u64)
        .with("lost", "lost", holders.lost() - lost)
        .with("take_overs", "take-overs", after - before))
}

fn hand_over(group: &ServerGroup, server: usize) -> Result<(), Trouble> {
    let asked = group.ask(server, &json!({ "op": "hand_over" }));
    asked.map(drop).map_err(|refused| Trouble::Start { step: "handing over", why: refused.to_string() })
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
    fn take(ground: &mut Ground, agents: usize) -> Result<Self, Trouble> {
        let wrong = |error: cistern_client::Error| Trouble::starting("taking the holders' locks")(error);
        let clients: Vec<Client> = (0..agents).map(|_| ground.client()).collect::<Result<_, _>>()?;
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
