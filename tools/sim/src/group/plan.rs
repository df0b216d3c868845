//! What a run of a group is made of: how many there are, how fast their clocks run, and what goes wrong when.

use crate::plan::{MS, SEC, SealedSettings, US};
use crate::rng::SimRng;
use crate::sealing::Sealing;
use std::fmt;

/// Somebody in the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Place {
    /// A server, by its place in the group.
    Server(usize),
    /// An agent.
    Agent(usize),
    /// The store.
    Store,
}

/// What goes wrong for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// Nothing passes between two; of one direction only, if not `both`.
    Cut {
        /// One.
        from: Place,
        /// The other.
        to: Place,
        /// Whether nothing passes back either.
        both: bool,
    },
    /// Nothing passes to or from somebody.
    Alone(Place),
    /// A server gives the lease to another, if it serves.
    HandOver(usize),
    /// A server's process dies, and is started again at the end.
    Crash(usize),
    /// Somebody stands still; clocks go on.
    Pause(Place),
    /// The store answers nothing.
    StoreDown,
    /// Some of what is asked of the store comes up to two seconds later, or when another server takes the store; and some who ask stand still.
    StoreLate,
    /// Somebody says in the servers' names that others serve: whoever is sent from one of two is sent back by the other, and called by who does
    /// not serve.
    FalseHints,
}

/// Something that goes wrong, and when.
#[derive(Clone, Copy, Debug)]
pub struct GroupFault {
    /// From when on, in nanoseconds of true time.
    pub at: u64,
    /// Until when.
    pub until: u64,
    /// What.
    pub what: Trouble,
}

/// A run.
#[derive(Clone, Debug)]
pub struct GroupPlan {
    /// What everything else is drawn from.
    pub seed: u64,
    /// Servers of the first list.
    pub servers: usize,
    /// Servers that are none of it, and may be added.
    pub spares: usize,
    /// When who serves adds or removes one, as soon as it may.
    pub changes: Vec<u64>,
    /// Agents.
    pub agents: usize,
    /// δ, of the group and of its agents.
    pub drift_ppm: u32,
    /// Rates of clocks: servers first, then agents, in parts per billion.
    pub rates: Vec<u64>,
    /// Datagrams lost, in parts per million.
    pub loss_ppm: u64,
    /// What goes wrong.
    pub faults: Vec<GroupFault>,
    /// Dead from the end of the faults on: fewer than half.
    pub dead: Option<usize>,
    /// When everything is mended.
    pub heal_ns: u64,
    /// What bounds the use of keys, if datagrams are sealed.
    pub sealed: Option<SealedSettings>,
}

/// How many runs are sealed, in parts per million.
const SEALED_PPM: u64 = 333_000;

/// In how many runs servers are added and removed.
const CHANGED_PPM: u64 = 300_000;

impl GroupPlan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(seed: u64) -> Self {
        let mut rng = SimRng::new(seed).fork("group plan");
        let mut listed = SimRng::new(seed).fork("group servers");
        let mut servers = if rng.chance(300_000) { 2 } else { 3 };
        let (mut spares, mut changes) = (0, Vec::new());
        if listed.chance(CHANGED_PPM) {
            // The fewer there are, the sooner two lists have nothing in common.
            servers = listed.index(3) + 1;
            spares = listed.index(2) + 1;
            let mut at = 2 * SEC;
            for _ in 0..=listed.index(6) {
                at += *listed.pick(&[0, 10 * MS, 300 * MS, 3 * SEC]);
                changes.push(at);
            }
        }
        let hosts = servers + spares;
        let agents = rng.index(3) + 2;
        let drift_ppm = *rng.pick(&[10_000, 200_000]);
        // Any two differ by δ at most.
        let spread = u64::from(drift_ppm) * 1_000 * 45 / 100;
        let mut rate = || match rng.below(3) {
            0 => crate::clock::UNIT - spread,
            1 => crate::clock::UNIT + spread,
            _ => rng.between(crate::clock::UNIT - spread, crate::clock::UNIT + spread),
        };
        let rates = (0..hosts + agents).map(|_| rate()).collect();
        let heal_ns = rng.between(8, 25) * SEC;
        let mut faults = Vec::new();
        let mut at = SEC + rng.between(0, 2 * SEC);
        while at < heal_ns {
            let until = heal_ns.min(at + *rng.pick(&[20 * MS, 300 * MS, 700 * MS, 1_500 * MS, 4 * SEC]) * rng.between(50, 150) / 100);
            faults.push(GroupFault { at, until, what: trouble(&mut rng, hosts, agents) });
            at += rng.between(50 * MS, 2_500 * MS);
        }
        if rng.chance(250_000) {
            faults.push(GroupFault { at: SEC, until: heal_ns, what: Trouble::StoreLate });
        }
        let dead = (servers == 3 && changes.is_empty() && rng.chance(400_000)).then(|| rng.index(servers));
        let loss_ppm = *rng.pick(&[0, 10_000, 100_000]);
        if rng.chance(300_000) {
            faults.push(GroupFault { at: SEC, until: heal_ns, what: Trouble::FalseHints });
        }
        let mut trust = SimRng::new(seed).fork("group trust");
        let sealed = trust.chance(SEALED_PPM).then(|| sealed(&mut trust));
        Self { seed, servers, spares, changes, agents, drift_ppm, rates, loss_ppm, faults, dead, heal_ns, sealed }
    }

    /// All servers: those of the first list, and those that may be added.
    pub(super) const fn hosts(&self) -> usize {
        self.servers + self.spares
    }

    /// The sealed mode of its run, if that is sealed.
    pub(super) fn sealing(&self) -> Option<Sealing> {
        self.sealed.as_ref().map(|settings| Sealing::new(self.seed, settings.limits()))
    }
}

/// In half of the sealed runs keys change all the time; an old one is kept for longer than a datagram is late.
fn sealed(rng: &mut SimRng) -> SealedSettings {
    let own = SealedSettings::default();
    if rng.chance(500_000) {
        return own;
    }
    let apart_us = 1_000 * rng.between(900, 2_000);
    let packets = rng.between(1, 200);
    SealedSettings { packets, age_us: rng.pick(&[1, 3]) * apart_us, apart_us, old_kept_us: 800 * MS / US, ..own }
}

fn trouble(rng: &mut SimRng, servers: usize, agents: usize) -> Trouble {
    let server = rng.index(servers);
    let anybody = |rng: &mut SimRng| match rng.below(4) {
        0 | 1 => Place::Server(rng.index(servers)),
        2 => Place::Agent(rng.index(agents)),
        _ => Place::Store,
    };
    match rng.below(13) {
        0..5 => Trouble::Cut { from: Place::Server(server), to: anybody(rng), both: rng.chance(600_000) },
        5 => Trouble::Alone(Place::Server(server)),
        6 | 7 => Trouble::Crash(server),
        8 => Trouble::Pause(Place::Server(server)),
        9 => Trouble::Pause(Place::Agent(rng.index(agents))),
        10 => Trouble::StoreDown,
        11 => Trouble::HandOver(server),
        _ => Trouble::StoreLate,
    }
}

impl fmt::Display for GroupFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms to {} ms: {:?}", self.at / MS, self.until / MS, self.what)
    }
}
