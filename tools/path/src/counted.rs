//! Everything that is counted: requests at the server, and what the agent answers without one.

use crate::cached::Cached;
use crate::kind::{self, Kind};
use crate::priced::Priced;
use crate::rig::Rig;
use std::fmt;
use std::str::FromStr;

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Counted {
    /// A request, at the server.
    Request(Kind),
    /// One more such request in a datagram that has others; its name ends with `-packed`.
    Packed(Kind),
    /// An answer without a message, at the agent; its name begins with `cached-`.
    Cached(Cached),
    /// A request of which only the price is looked at; its name begins with `priced-`.
    Priced(Priced),
}

const CACHED: &str = "cached-";
const PRICED: &str = "priced-";
const PACKED: &str = "-packed";

impl Counted {
    /// All that the baseline has, requests first.
    pub fn all() -> impl Iterator<Item = Self> {
        let requests = Kind::ALL.into_iter().map(Self::Request).chain(Kind::PACKED.into_iter().map(Self::Packed));
        requests.chain(Cached::ALL.into_iter().map(Self::Cached))
    }

    /// Prepares for `most`, and does `count` of them; of those that are packed only whole datagrams.
    pub fn run(self, most: usize, count: usize) {
        match self {
            Self::Request(kind) => {
                let mut rig = Rig::new();
                let prepared = kind.prepare(&mut rig, most);
                prepared.iter().take(count).for_each(|datagram| rig.turn(datagram));
            }
            Self::Packed(kind) => {
                let mut rig = Rig::new();
                let prepared = kind.prepare_packed(&mut rig, most);
                prepared.iter().take(count / kind::PACKED).for_each(|datagram| rig.turn(datagram));
            }
            Self::Priced(priced) => {
                let mut rig = Rig::new();
                let prepared = priced.prepare(&mut rig, most);
                prepared.iter().take(count).for_each(|datagram| rig.turn(datagram));
            }
            Self::Cached(cached) => {
                let mut pair = cached.prepare();
                (0..count).for_each(|_| cached.ask(&mut pair));
            }
        }
    }
}

impl fmt::Display for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (before, value, after) = match self {
            Self::Request(kind) => ("", clap::ValueEnum::to_possible_value(kind), ""),
            Self::Packed(kind) => ("", clap::ValueEnum::to_possible_value(kind), PACKED),
            Self::Priced(priced) => (PRICED, clap::ValueEnum::to_possible_value(priced), ""),
            Self::Cached(cached) => (CACHED, clap::ValueEnum::to_possible_value(cached), ""),
        };
        let name = format!("{before}{}{after}", value.as_ref().map_or("", |value| value.get_name()));
        f.pad(&name)
    }
}

impl FromStr for Counted {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let names = || Self::all().map(|counted| counted.to_string()).collect::<Vec<_>>().join(", ");
        Self::all()
            .chain(Priced::ALL.into_iter().map(Self::Priced))
            .find(|counted| counted.to_string() == name)
            .ok_or_else(|| format!("there is no {name}; there are {}", names()))
    }
}
