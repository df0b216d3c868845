//! The network: what becomes of each datagram on its way between an agent and the server.
//!
//! Decides when a datagram arrives, how often, and with which bytes; or that it never does. Every decision about a datagram is a
//! function of the seed, the fault, the link and its number there, so a fault that is left out changes no other decision.
//! Invariant: no fault touches a datagram outside its time; without faults and losses all arrive, each once, whole.
//! Leaves to others: when faults are active (`world::faults`), sockets (`host`), addresses (`world`).

use crate::plan::{Fault, Link, NetPlan, What};
use crate::rng::{roll, scale};
use bytes::Bytes;
use cistern_wire::{Datagram, Kind};

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

/// One datagram on one link, for drawing.
struct Draw {
    seed: u64,
    link: u64,
    number: u64,
}

impl Draw {
    fn bits(&self, what: u64) -> u64 {
        roll([self.seed, what, self.link, self.number])
    }

    fn chance(&self, what: u64, ppm: u64) -> bool {
        ppm > 0 && scale(self.bits(what), 1_000_000) < ppm
    }

    fn below(&self, what: u64, bound: u64) -> u64 {
        scale(self.bits(what), bound)
    }
}

// What is drawn for each datagram, apart from faults; a fault draws under its number, from FAULT on.
const JITTER: u64 = 1;
const LOSS: u64 = 2;
const DUPLICATE: u64 = 3;
const AGAIN: u64 = 4;
const FAULT: u64 = 16;
const FAULT_STEP: u64 = 8;

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

/// What becomes of a datagram.
#[derive(Default)]
struct Way {
    delay: u64,
    lost: bool,
    corrupted: bool,
    /// Further arrivals, so much later.
    again: Vec<u64>,
}

fn apply(fault: &Fault, now: u64, draw: &Draw, bytes: &mut Bytes, way: &mut Way) {
    let own = FAULT + u64::from(fault.id) * FAULT_STEP;
    match &fault.what {
        What::Loss { ppm, .. } => way.lost |= draw.chance(own, *ppm),
        What::Duplicate { ppm, spread, .. } if draw.chance(own, *ppm) => way.again.push(draw.below(own + 1, spread + 1)),
        What::Delay { extra, jitter, .. } => way.delay += extra + draw.below(own, jitter + 1),
        What::Reorder { ppm, by, .. } if draw.chance(own, *ppm) => way.delay += draw.below(own + 1, by + 1),
        What::Cut { .. } => way.lost = true,
        What::Flap { period, .. } => way.lost |= (now - fault.at) % period < period / 2,
        What::DropKind { kind, ppm, .. } => way.lost |= draw.chance(own, *ppm) && has_kind(bytes, *kind),
        What::DelayKind { kind, ppm, extra, .. } if draw.chance(own, *ppm) && has_kind(bytes, *kind) => {
            way.delay += draw.below(own + 1, extra + 1);
        }
        What::Corrupt { ppm, .. } if draw.chance(own, *ppm) => {
            *bytes = flipped(bytes, draw.below(own + 1, bytes.len() as u64 * 8));
            way.corrupted = true;
        }
        _ => {}
    }
}

/// The bytes with one bit flipped.
fn flipped(bytes: &[u8], bit: u64) -> Bytes {
    let mut damaged = bytes.to_vec();
    if let Some(byte) = damaged.get_mut(usize::try_from(bit / 8).unwrap_or(usize::MAX)) {
        *byte ^= 1 << (bit % 8);
    }
    damaged.into()
}

/// Whether a datagram has a message of this kind.
fn has_kind(bytes: &[u8], kind: u8) -> bool {
    let Some(kind) = Kind::of(kind) else { return false };
    Datagram::seen(bytes).is_ok_and(|datagram| datagram.messages().any(|message| message.kind() == kind))
}

#[cfg(test)]
mod tests;
