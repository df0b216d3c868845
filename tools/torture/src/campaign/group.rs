//! `cistern-torture group`: a group of three servers on three etcds, on three hosts, of which something happens to one after the other.
//!
//! Decides what happens, to whom, for how long: by a seed. Hosts are network namespaces; on each are a server and a member of etcd, and on a
//! fourth the agents.
//!
//! | what | to whom |
//! |---|---|
//! | killed, and started again; stopped (SIGSTOP), and let go on | a server, a member of etcd |
//! | lost, and back | a host with both |
//! | cut off from everybody; from one other host, in one direction or both; from the agents | a host |
//! | a fifth of all datagrams is lost | everybody |
//! | hands over | the server that serves |
//! | killed, in the middle of one of these | an agent |
//!
//! Half of all that happens meets the server that serves, or its host; half of it begins while what was before is still recovering from.
//! Place: in the stead of a campaign's kills. Leaves to others: the load and its judgement (`worker`, `judge`).

use super::{Campaign, Report, VIOLATIONS_MAX, progress};
use cistern_link::Rng;
use cistern_testkit::{GroupHosts, is_built_with_etcd};
use serde::Serialize;
use serde_json::json;
use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

/// Hosts that have a server.
const HOSTS: [&str; 3] = GroupHosts::NAMES;
/// The lease that agents are given, long enough for a take-over: 2 s.
const LEASE: [&str; 2] = ["--lease", "2s"];
/// How long what happens lasts at most.
const LASTS_MAX: Duration = Duration::from_secs(4);
/// Longest undisturbed time between two.
const CALM_MAX: Duration = Duration::from_secs(2);
/// Percent of the datagrams that are lost.
const LOSS: u32 = 20;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deed {
    KillServer,
    StopServer,
    KillEtcd,
    StopEtcd,
    LoseHost,
    Isolate,
    /// From another host: whether also in the other direction.
    CutFrom(usize, bool),
    CutFromAgents(bool),
    LoseDatagrams,
    HandOver,
}

impl Deed {
    fn by_chance(rng: &mut Rng) -> Self {
        let both = rng.below(2) == 0;
        match rng.below(12) {
            0..2 => Self::KillServer,
            2..4 => Self::StopServer,
            4 => Self::KillEtcd,
            5 => Self::StopEtcd,
            6 => Self::LoseHost,
            7 => Self::Isolate,
            8 => Self::CutFrom(1 + usize::from(rng.below(2) == 0), both),
            9 => Self::CutFromAgents(both),
            10 => Self::LoseDatagrams,
            _ => Self::HandOver,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::KillServer => "servers killed",
            Self::StopServer => "servers stopped",
            Self::KillEtcd => "members of etcd killed",
            Self::StopEtcd => "members of etcd stopped",
            Self::LoseHost => "hosts lost",
            Self::Isolate => "hosts cut off",
            Self::CutFrom(..) => "hosts cut off from another",
            Self::CutFromAgents(_) => "hosts cut off from the agents",
            Self::LoseDatagrams => "losses of datagrams",
            Self::HandOver => "hand-overs",
        }
    }
}

/// What came of it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Group {
    /// The campaign around it.
    pub(crate) campaign: Report,
    /// How often what happened.
    pub(crate) deeds: BTreeMap<&'static str, u32>,
    /// Servers that have taken over.
    pub(crate) take_overs: u64,
    /// Longest time until all users got on with their work after something, in milliseconds.
    pub(crate) longest_ms: u64,
}

/// The hosts, and what happens to them.
struct Hosts(GroupHosts);

impl Hosts {
    fn start() -> Result<Self, String> {
        if !is_built_with_etcd() {
            return Err("cisternd is not built with the store on etcd: cargo build --release --features etcd".to_owned());
        }
        let memory = Path::new("/dev/shm");
        let dir = if memory.is_dir() { memory } else { Path::new("/tmp") };
        GroupHosts::start(dir, &LEASE).map(Self).ok_or_else(|| "nothing was checked".to_owned())
    }

    fn cut(&self, one: &str, other: &str, both: bool) {
        self.0.network.cut(one, other);
        if both {
            self.0.network.cut(other, one);
        }
    }

    fn begin(&mut self, deed: Deed, host: usize) {
        let (name, GroupHosts { group, etcds, network }) = (HOSTS[host], &mut self.0);
        match deed {
            Deed::KillServer => group.kill(host),
            Deed::StopServer => group.pause(host, true),
            Deed::KillEtcd => etcds.kill(host),
            Deed::StopEtcd => etcds.pause(host, true),
            Deed::LoseHost => self.0.lose(host),
            Deed::Isolate => network.isolate(name),
            Deed::CutFrom(by, both) => self.cut(name, HOSTS[(host + by) % HOSTS.len()], both),
            Deed::CutFromAgents(both) => self.cut(name, GroupHosts::OUTSIDE, both),
            Deed::LoseDatagrams => network.lose(LOSS),
            // It refuses as long as nobody could take over.
            Deed::HandOver => _ = group.ask(host, &json!({ "op": "hand_over" })),
        }
    }

    fn end(&mut self, deed: Deed, host: usize) {
        let GroupHosts { group, etcds, network } = &mut self.0;
        match deed {
            Deed::KillServer => group.start_server(host),
            Deed::StopServer => group.pause(host, false),
            Deed::KillEtcd => etcds.run(host),
            Deed::StopEtcd => etcds.pause(host, false),
            Deed::LoseHost => self.0.start_again(host),
            Deed::Isolate | Deed::CutFrom(..) | Deed::CutFromAgents(_) | Deed::LoseDatagrams => network.heal(),
            Deed::HandOver => {}
        }
    }

    /// No server ends that was not killed.
    fn look_at_servers(&mut self) -> Result<(), String> {
        for (server, name) in HOSTS.iter().enumerate() {
            let ended = self.0.group.servers[server].as_mut().and_then(|process| process.try_wait());
            if let Some(status) = ended {
                let log = self.0.group.log(server);
                return Err(format!("server {name} ended by itself ({status}): {}", log.lines().next_back().unwrap_or_default()));
            }
        }
        Ok(())
    }
}

impl Campaign {
    /// Lets something happen again and again for so long, and judges.
    pub(crate) fn group(&mut self, span: Duration) -> Group {
        let started = Instant::now();
        let mut group = Group::default();
        if let Err(why) = Hosts::start().and_then(|hosts| self.on_hosts(hosts, span, &mut group)) {
            self.report.violations.push(why);
        }
        self.report.seconds = started.elapsed().as_secs();
        progress("");
        group.campaign = std::mem::take(&mut self.report);
        group
    }

    fn on_hosts(&mut self, mut hosts: Hosts, span: Duration, group: &mut Group) -> Result<(), String> {
        self.place.network = hosts.0.outside();
        self.place.on_etcd = Some(hosts.0.group.store().to_owned());
        self.address = hosts.0.group.list();
        let incarnation = |hosts: &Hosts| hosts.0.serving().map_or(0, |(_, incarnation)| incarnation);
        let before = incarnation(&hosts);
        let mut result = self.each_deed(&mut hosts, span, group).and_then(|()| self.settle());
        self.workers.clear();
        group.take_overs = incarnation(&hosts).saturating_sub(before);
        if result.is_ok() && group.deeds.is_empty() {
            result = Err("nothing has happened, so nothing was checked: --duration is too short".to_owned());
        }
        for (server, name) in HOSTS.iter().enumerate() {
            fs::write(self.place.dir.join(format!("log-server-{name}")), hosts.0.group.log(server)).map_err(|e| e.to_string())?;
        }
        result
    }

    fn each_deed(&mut self, hosts: &mut Hosts, span: Duration, group: &mut Group) -> Result<(), String> {
        for agent in 0..self.agents {
            self.start_worker(agent)?;
        }
        self.all_work_on()?;
        let begin = Instant::now();
        while begin.elapsed() < span && self.report.violations.len() < VIOLATIONS_MAX {
            thread::sleep(self.rng.jitter(CALM_MAX));
            let deed = Deed::by_chance(&mut self.rng);
            let any = usize::try_from(self.rng.below(HOSTS.len() as u64)).unwrap_or_default();
            let serving = hosts.0.serving().map(|(server, _)| server);
            let host = if deed == Deed::HandOver || self.rng.below(2) == 0 { serving.unwrap_or(any) } else { any };
            let left = span.saturating_sub(begin.elapsed()).as_secs();
            let wrong = self.report.violations.len();
            progress(&format!("seed {}: {left} s to go: {deed:?} at {}; {wrong} things that must not be", self.seed, HOSTS[host]));
            hosts.begin(deed, host);
            *group.deeds.entry(deed.name()).or_default() += 1;
            let lasts = self.rng.jitter(LASTS_MAX);
            if self.rng.below(4) == 0 {
                thread::sleep(lasts / 2);
                self.kill_agent()?;
            }
            thread::sleep(lasts / 2);
            hosts.end(deed, host);
            self.look_at_processes()?;
            hosts.look_at_servers()?;
            if self.rng.below(2) == 0 {
                let since = Instant::now();
                self.all_work_on()?;
                group.longest_ms = group.longest_ms.max(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let deeds: Vec<String> = self.deeds.iter().map(|(what, count)| format!("{count} {what}")).collect();
        writeln!(f, "{}", deeds.join(", "))?;
        writeln!(f, "{} take-overs; all got on with their work within {} ms of an end of these", self.take_overs, self.longest_ms)?;
        write!(f, "{}", self.campaign)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker;

    #[test]
    fn chance_brings_everything_about() {
        let mut rng = worker::rng(7, 0);
        let names: std::collections::BTreeSet<&str> = (0..400).map(|_| Deed::by_chance(&mut rng).name()).collect();
        assert_eq!(names.len(), 10);
        let mut rng = worker::rng(7, 0);
        let cuts: Vec<Deed> = (0..400).map(|_| Deed::by_chance(&mut rng)).filter(|deed| matches!(deed, Deed::CutFrom(..))).collect();
        assert!((1..=2).all(|by| [true, false].iter().all(|both| cuts.contains(&Deed::CutFrom(by, *both)))), "{cuts:?}");
    }
}
