//! Faults as data: what happens, to whom, from when until when.
//!
//! Decides the vocabulary of faults; every one has an end, because the liveness phase has none of them. Times are true time, in
//! nanoseconds. Invariant: a fault says all about itself, so that a list of faults can be cut anywhere.
//! Leaves to others: which faults a run has (`swarm`), what they do (`net`, `world::faults`, `host`).

use crate::attack::AttackerKind;
use crate::clock::Rates;
use crate::observe::Node;
use crate::plan::{MS, SEC};
use cistern_wire::Kind;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Something that goes wrong for a while.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// Its number in its plan.
    pub id: u32,
    /// When it begins.
    pub at: u64,
    /// When it is over.
    pub until: u64,
    /// What it is.
    pub what: What,
}

/// Links between agents and the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The agent; `None`: all of them.
    pub agent: Option<usize>,
    /// Whether datagrams to the server are touched.
    pub up: bool,
    /// Whether datagrams to the agent are touched.
    pub down: bool,
}

/// A kind of fault. Chances are in parts per million, spans in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields say what they are, in the units above")]
pub enum What {
    /// Datagrams are lost.
    Loss { link: Link, ppm: u64 },
    /// Datagrams arrive again, within `spread`.
    Duplicate { link: Link, ppm: u64, spread: u64 },
    /// Datagrams take longer.
    Delay { link: Link, extra: u64, jitter: u64 },
    /// Some datagrams are overtaken.
    Reorder { link: Link, ppm: u64, by: u64 },
    /// Nothing passes.
    Cut { link: Link },
    /// Nothing passes in every second half of a period.
    Flap { link: Link, period: u64 },
    /// Datagrams with a message of this kind are lost.
    DropKind { link: Link, kind: u8, ppm: u64 },
    /// Datagrams with a message of this kind take longer.
    DelayKind { link: Link, kind: u8, ppm: u64, extra: u64 },
    /// One bit of a datagram is flipped.
    Corrupt { link: Link, ppm: u64 },
    /// Datagrams recorded earlier in the run arrive again, spread over the fault's time.
    Replay { link: Link, count: u32 },
    /// Somebody who is no agent sends datagrams, spread over the fault's time.
    Attack { by: AttackerKind, count: u32 },
    /// A machine stands still; its clocks run, what it receives waits.
    Pause { node: Node },
    /// A machine sleeps: it stands still, and its raw clock with it.
    Suspend { node: Node },
    /// A machine stands still, and all its clocks with it (beyond what leases can bear).
    Freeze { node: Node },
    /// A process dies at the beginning and is started again at the end.
    Crash { node: Node },
    /// An agent gets another address at the beginning.
    Move { agent: usize },
    /// A machine's clocks run at other rates.
    Rate { node: Node, rates: Rates },
    /// The disk takes longer for everything.
    DiskSlow { by: u64 },
    /// The disk does nothing.
    DiskStall,
    /// The disk fails the next write, and the server must stop; it is started again at the end.
    DiskBroken,
    /// Questions to the disk fail.
    ReadErrors { ppm: u64 },
    /// The disk is copied at the beginning; `down` before the end the server is stopped, and at the end started on the copy.
    Restore { down: u64 },
}

impl Fault {
    /// The one agent that it is about, if it is about one.
    #[must_use]
    pub fn agent(&self) -> Option<usize> {
        match &self.what {
            What::Pause { node } | What::Suspend { node } | What::Freeze { node } | What::Crash { node } | What::Rate { node, .. } => {
                match node {
                    Node::Agent(agent) => Some(*agent),
                    Node::Server => None,
                }
            }
            What::Move { agent } => Some(*agent),
            _ => self.what.link().and_then(|link| link.agent),
        }
    }
}

impl What {
    /// What it is called in counts.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Loss { .. } => "loss",
            Self::Duplicate { .. } => "duplicates",
            Self::Delay { .. } => "delay",
            Self::Reorder { .. } => "reorder",
            Self::Cut { .. } => "cut",
            Self::Flap { .. } => "flap",
            Self::DropKind { .. } => "drop-kind",
            Self::DelayKind { .. } => "delay-kind",
            Self::Corrupt { .. } => "corrupt",
            Self::Replay { .. } => "replay",
            Self::Attack { by: AttackerKind::Stranger, .. } => "stranger",
            Self::Attack { by: AttackerKind::Witness, .. } => "witness",
            Self::Attack { by: AttackerKind::Insider, .. } => "insider",
            Self::Pause { node: Node::Server } => "pause-server",
            Self::Pause { .. } => "pause-agent",
            Self::Suspend { node: Node::Server } => "sleep-server",
            Self::Suspend { .. } => "sleep-agent",
            Self::Freeze { .. } => "freeze",
            Self::Crash { node: Node::Server } => "crash-server",
            Self::Crash { .. } => "crash-agent",
            Self::Move { .. } => "move",
            Self::Rate { .. } => "slew",
            Self::DiskSlow { .. } => "disk-slow",
            Self::DiskStall => "disk-stall",
            Self::DiskBroken => "disk-broken",
            Self::ReadErrors { .. } => "read-errors",
            Self::Restore { .. } => "restore",
        }
    }

    /// The links it touches, if it is about links.
    #[must_use]
    pub const fn link(&self) -> Option<Link> {
        match self {
            Self::Loss { link, .. }
            | Self::Duplicate { link, .. }
            | Self::Delay { link, .. }
            | Self::Reorder { link, .. }
            | Self::Cut { link }
            | Self::Flap { link, .. }
            | Self::DropKind { link, .. }
            | Self::DelayKind { link, .. }
            | Self::Corrupt { link, .. }
            | Self::Replay { link, .. } => Some(*link),
            _ => None,
        }
    }
}

impl Link {
    /// Whether a datagram of this agent, to the server (`up`) or from it, travels here.
    #[must_use]
    pub fn has(self, agent: usize, up: bool) -> bool {
        self.agent.is_none_or(|of| of == agent) && if up { self.up } else { self.down }
    }
}

impl fmt::Display for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let arrow = match (self.up, self.down) {
            (true, true) => "<->",
            (true, false) => "->",
            (false, true) => "<-",
            (false, false) => "-",
        };
        match self.agent {
            Some(agent) => write!(f, "agent {agent} {arrow} server"),
            None => write!(f, "agents {arrow} server"),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:<3} {:>9}..{:<9} {:<12} ", self.id, seconds(self.at), seconds(self.until), self.what.name())?;
        if let Some(link) = self.what.link() {
            write!(f, "{link}")?;
        }
        match &self.what {
            What::Loss { ppm, .. } | What::Corrupt { ppm, .. } => write!(f, ", {}", percent(*ppm)),
            What::Duplicate { ppm, spread, .. } => write!(f, ", {} within {}", percent(*ppm), seconds(*spread)),
            What::Delay { extra, jitter, .. } => write!(f, ", {} to {} more", seconds(*extra), seconds(extra + jitter)),
            What::Reorder { ppm, by, .. } => write!(f, ", {} by {}", percent(*ppm), seconds(*by)),
            What::Flap { period, .. } => write!(f, ", every {}", seconds(*period)),
            What::DropKind { kind, ppm, .. } => write!(f, ", {} of {}", percent(*ppm), kind_name(*kind)),
            What::DelayKind { kind, ppm, extra, .. } => {
                write!(f, ", {} of {} by {}", percent(*ppm), kind_name(*kind), seconds(*extra))
            }
            What::Replay { count, .. } | What::Attack { count, .. } => write!(f, ", {count} datagrams"),
            What::Pause { node } | What::Suspend { node } | What::Freeze { node } | What::Crash { node } => write!(f, "{node}"),
            What::Move { agent } => write!(f, "agent {agent}"),
            What::Rate { node, rates } => write!(f, "{node}: raw {} ppm, boot {} ppm", off(rates.raw_ppb), off(rates.boot_ppb)),
            What::DiskSlow { by } => write!(f, "{} more", seconds(*by)),
            What::ReadErrors { ppm } => write!(f, "{}", percent(*ppm)),
            What::Restore { down } => write!(f, "down for {}", seconds(*down)),
            What::Cut { .. } | What::DiskStall | What::DiskBroken => Ok(()),
        }
    }
}

/// The name of a kind of message.
#[must_use]
pub fn kind_name(code: u8) -> &'static str {
    Kind::of(code).map_or("unknown", Kind::name)
}

/// A span for people, in the unit that fits it.
#[must_use]
pub fn seconds(ns: u64) -> String {
    match ns {
        0..MS => format!("{}us", ns / 1_000),
        MS..SEC => format!("{}.{:02}ms", ns / MS, ns % MS / 10_000),
        _ => format!("{}.{:03}s", ns / SEC, ns % SEC / MS),
    }
}

fn percent(ppm: u64) -> String {
    format!("{}.{}%", ppm / 10_000, ppm % 10_000 / 1_000)
}

fn off(ppb: u64) -> String {
    let unit = i128::from(crate::clock::UNIT);
    format!("{:+}", (i128::from(ppb) - unit) / 1_000)
}
