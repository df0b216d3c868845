//! The network: what becomes of each datagram on its way between an agent and the server.
//!
//! Decides when a datagram arrives, how often, and with which bytes; or that it never does. Every decision about a datagram is a
//! function of the seed, the fault, the link and its number there, so a fault that is left out changes no other decision.
//! Invariant: no fault touches a datagram outside its time; without faults and losses all arrive, each once, whole.
//! Leaves to others: what each effect does (`cistern-faults`), when faults are active (`world::faults`), sockets (`host`), addresses (`world`).

use crate::plan::{Fault, Link, NetPlan, What};
use bytes::Bytes;
use cistern_faults::{Draw, Effect, Way, has_kind, roll, scale};
use cistern_wire::Kind;

/// Most datagrams that are remembered for being replayed.
const RECORDED_MAX: usize = 4_096;

/// One arrival of a datagram.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When.
    pub at: u64,
    /// The datagram.
    pub bytes: Bytes,
}

/// A datagram that went by.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Its agent.
    pub agent: usize,
    /// Whether it went to the server.
    pub up: bool,
    /// The datagram.
    pub bytes: Bytes,
}

/// What was done to datagrams, in counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Sent.
    pub sent: u64,
    /// Lost on the way.
    pub lost: u64,
    /// Arrived more than once.
    pub duplicated: u64,
    /// With a bit flipped.
    pub corrupted: u64,
}

/// The network of a run.
#[derive(Debug)]
pub struct Net {
    seed: u64,
    plan: NetPlan,
    /// Datagrams sent so far, by agent and direction.
    numbers: Vec<[u64; 2]>,
    /// The faults that are active.
    active: Vec<Fault>,
    recorded: Option<Vec<Recorded>>,
    counts: NetCounts,
}

// What is drawn for each datagram, apart from faults, which draw under their numbers.
const JITTER: u64 = 1;
const LOSS: u64 = 2;
const DUPLICATE: u64 = 3;
const AGAIN: u64 = 4;

impl Net {
    /// A network without active faults; `records` if something will be replayed.
    #[must_use]
    pub fn new(seed: u64, plan: NetPlan, agents: usize, records: bool) -> Self {
        let counts = NetCounts::default();
        Self { seed, plan, numbers: vec![[0; 2]; agents], active: Vec::new(), recorded: records.then(Vec::new), counts }
    }

    /// A fault begins.
    pub fn begin(&mut self, fault: &Fault) {
        self.active.push(fault.clone());
    }

    /// A fault is over.
    pub fn end(&mut self, fault: u32) {
        self.active.retain(|active| active.id != fault);
    }

    /// All faults are over, and losses too: the network is at its best from now on.
    pub fn heal(&mut self) {
        self.active.clear();
        self.plan.loss_ppm = 0;
        self.plan.duplicate_ppm = 0;
    }

    /// What was done so far.
    #[must_use]
    pub const fn counts(&self) -> NetCounts {
        self.counts
    }

    /// Sends a datagram of this agent's link; adds its arrivals to `arrivals`.
    pub fn send(&mut self, now: u64, agent: usize, up: bool, bytes: &[u8], arrivals: &mut Vec<Arrival>) {
        let direction = usize::from(up);
        self.numbers[agent][direction] += 1;
        self.counts.sent += 1;
        let draw = Draw { seed: self.seed, link: (agent * 2 + direction) as u64, number: self.numbers[agent][direction] };
        let mut bytes = Bytes::copy_from_slice(bytes);
        if let Some(recorded) = self.recorded.as_mut().filter(|recorded| recorded.len() < RECORDED_MAX) {
            recorded.push(Recorded { agent, up, bytes: bytes.clone() });
        }
        let mut way = Way { delay: self.plan.delay_ns + draw.below(JITTER, self.plan.jitter_ns + 1), ..Way::default() };
        if draw.chance(LOSS, self.plan.loss_ppm) {
            way.lost = true;
        }
        if draw.chance(DUPLICATE, self.plan.duplicate_ppm) {
            way.again.push(draw.below(AGAIN, self.plan.delay_ns * 4));
        }
        for fault in &self.active {
            if fault.what.link().is_some_and(|link| link.has(agent, up)) {
                apply(fault, now, &draw, &mut bytes, &mut way);
            }
        }
        if way.lost {
            self.counts.lost += 1;
            return;
        }
        self.counts.duplicated += way.again.len() as u64;
        self.counts.corrupted += u64::from(way.corrupted);
        arrivals.extend(way.again.iter().map(|later| Arrival { at: now + way.delay + later, bytes: bytes.clone() }));
        arrivals.push(Arrival { at: now + way.delay, bytes });
    }

    /// A recorded datagram to be replayed by this fault; `nth` counts its replays.
    #[must_use]
    pub fn recorded(&self, fault: u32, nth: u32, link: Link) -> Option<Recorded> {
        let recorded = self.recorded.as_ref()?;
        let from = scale(roll([self.seed, fault.into(), nth.into(), 0x4E7]), recorded.len() as u64);
        let from = usize::try_from(from).unwrap_or(0);
        recorded.iter().cycle().skip(from).take(recorded.len()).find(|one| link.has(one.agent, one.up)).cloned()
    }
}

fn apply(fault: &Fault, now: u64, draw: &Draw, bytes: &mut Bytes, way: &mut Way) {
    let (kind, effect) = match fault.what {
        What::Loss { ppm, .. } => (None, Effect::Lose { ppm }),
        What::Duplicate { ppm, spread, .. } => (None, Effect::Repeat { ppm, spread }),
        What::Delay { extra, jitter, .. } => (None, Effect::Delay { extra, jitter }),
        What::Reorder { ppm, by, .. } => (None, Effect::Reorder { ppm, by }),
        What::Cut { .. } => (None, Effect::Cut),
        What::Flap { period, .. } => (None, Effect::Flap { period }),
        What::DropKind { kind, ppm, .. } => (Some(kind), Effect::Lose { ppm }),
        What::DelayKind { kind, ppm, extra, .. } => (Some(kind), Effect::Reorder { ppm, by: extra }),
        What::Corrupt { ppm, .. } => (None, Effect::Corrupt { ppm }),
        _ => return,
    };
    if kind.is_none_or(|kind| Kind::of(kind).is_some_and(|kind| has_kind(bytes, kind))) {
        effect.apply(fault.id, now - fault.at, draw, bytes, way);
    }
}

#[cfg(test)]
mod tests;
