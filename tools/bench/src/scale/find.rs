//! How one of many sessions is found: the server's index beside other maps, and values in boxes beside values in the map.
//!
//! Decides what a look-up is: from an id on the wire to a field of the value behind it, ids drawn at random, so that a map that keeps ids of
//! its own pays for them in memory, and one that does not pays at the value, which a request needs anyway. Measured in turn with the
//! server's way, in one process for each way, which then has only that way's memory when memory is read.
//! Place: a part of `scale`. Leaves to others: what else a request costs (`cost`).

use super::figures::{Find, median};
use super::memory;
use super::tables::cpu;
use crate::trouble::Trouble;
use cistern_link::{Index, Rng};
use clap::ValueEnum;
use hashbrown::DefaultHashBuilder;
use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::hint::black_box;
use std::time::{Duration, Instant};

/// Look-ups in a round.
const LOOK_UPS: usize = 200_000;

/// A way to find a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum FindWay {
    /// The server's index: places by a hash of 32 bits, ids only at the values, in boxes.
    Index,
    /// A hash map of ids and places by foldhash, values in boxes.
    Foldhash,
    /// The same by SipHash.
    Siphash,
    /// A B-tree of ids and places, values in boxes.
    Tree,
    /// A hash map of ids and values by foldhash.
    Inline,
}

impl FindWay {
    /// In the words of the table.
    pub(super) const fn told(self) -> &'static str {
        match self {
            Self::Index => "index of 256 parts (the server's)",
            Self::Foldhash => "hash map to places, foldhash",
            Self::Siphash => "hash map to places, SipHash",
            Self::Tree => "B-tree to places",
            Self::Inline => "hash map with the values in it",
        }
    }

    fn fill(self, ids: &[u64]) -> (Box<dyn Found>, Duration) {
        match self {
            Self::Index => filled(Indexed::default(), ids),
            Self::Foldhash => filled(Mapped::<HashMap<u64, u32, DefaultHashBuilder>>::default(), ids),
            Self::Siphash => filled(Mapped::<HashMap<u64, u32>>::default(), ids),
            Self::Tree => filled(Mapped::<BTreeMap<u64, u32>>::default(), ids),
            Self::Inline => filled(Inline::default(), ids),
        }
    }
}

/// A value about as large as a session of the server, whose id and whose other field stand in different cache lines.
#[derive(Clone, Debug)]
struct Value {
    id: u64,
    _between: [u64; 30],
    wanted: u64,
}

impl Value {
    const fn new(id: u64) -> Self {
        Self { id, _between: [0; 30], wanted: id }
    }
}

trait Found {
    fn insert(&mut self, id: u64);
    fn wanted(&self, id: u64) -> Option<u64>;
}

#[expect(clippy::vec_box, reason = "so does the server, or a growing table would move the sessions themselves")]
#[derive(Default)]
struct Indexed {
    index: Index,
    values: Vec<Box<Value>>,
}

impl Found for Indexed {
    fn insert(&mut self, id: u64) {
        self.index.insert(high(id), place(self.values.len()));
        self.values.push(Box::new(Value::new(id)));
    }

    fn wanted(&self, id: u64) -> Option<u64> {
        let at = self.index.find(high(id), |at| self.values[at as usize].id == id)?;
        Some(self.values[at as usize].wanted)
    }
}

/// Ids are random: half of one is a hash.
const fn high(id: u64) -> u32 {
    (id >> 32) as u32
}

/// Places by id.
trait Places: Default {
    fn put(&mut self, id: u64, place: u32);
    fn place(&self, id: u64) -> Option<u32>;
}

impl<H: BuildHasher + Default> Places for HashMap<u64, u32, H> {
    fn put(&mut self, id: u64, place: u32) {
        self.insert(id, place);
    }

    fn place(&self, id: u64) -> Option<u32> {
        self.get(&id).copied()
    }
}

impl Places for BTreeMap<u64, u32> {
    fn put(&mut self, id: u64, place: u32) {
        self.insert(id, place);
    }

    fn place(&self, id: u64) -> Option<u32> {
        self.get(&id).copied()
    }
}

#[expect(clippy::vec_box, reason = "like the way beside which it is measured")]
#[derive(Default)]
struct Mapped<P> {
    places: P,
    values: Vec<Box<Value>>,
}

impl<P: Places> Found for Mapped<P> {
    fn insert(&mut self, id: u64) {
        self.places.put(id, place(self.values.len()));
        self.values.push(Box::new(Value::new(id)));
    }

    fn wanted(&self, id: u64) -> Option<u64> {
        let value = &self.values[self.places.place(id)? as usize];
        (value.id == id).then_some(value.wanted)
    }
}

#[derive(Default)]
struct Inline(HashMap<u64, Value, DefaultHashBuilder>);

impl Found for Inline {
    fn insert(&mut self, id: u64) {
        self.0.insert(id, Value::new(id));
    }

    fn wanted(&self, id: u64) -> Option<u64> {
        self.0.get(&id).filter(|value| value.id == id).map(|value| value.wanted)
    }
}

fn place(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}

/// All of them taken in, and how long the slowest took.
fn filled(mut found: impl Found + 'static, ids: &[u64]) -> (Box<dyn Found>, Duration) {
    let mut slowest = Duration::ZERO;
    for id in ids {
        let begun = Instant::now();
        found.insert(*id);
        slowest = slowest.max(begun.elapsed());
    }
    (Box::new(found), slowest)
}

/// Fills a table in that way and in the server's, and looks up in both in turn.
pub(super) fn measure(way: FindWay, sessions: usize, rounds: u32) -> Result<Find, Trouble> {
    let mut rng = Rng::from_seed([9; 32]);
    let ids: Vec<u64> = (0..sessions).map(|_| rng.below(u64::MAX)).collect();
    let empty = memory::resident()?;
    let (other, slowest) = way.fill(&ids);
    let bytes = memory::resident()?.saturating_sub(empty) / sessions as u64;
    let (ours, _) = FindWay::Index.fill(&ids);
    let mut rounds: Vec<[f64; 2]> = (0..=rounds)
        .map(|_| {
            let drawn: Vec<u64> = (0..LOOK_UPS).map(|_| ids[usize::try_from(rng.below(sessions as u64)).unwrap_or(0)]).collect();
            [&other, &ours].map(|table| ns_each(table.as_ref(), &drawn))
        })
        .collect();
    // The first one does not count.
    rounds.remove(0);
    Ok(Find {
        way: way.told().to_owned(),
        sessions,
        ns: median(rounds.iter().map(|round| round[0]).collect()),
        ratio: median(rounds.iter().map(|round| round[0] / round[1]).collect()),
        bytes: bytes.saturating_sub(size_of::<Value>() as u64),
        slowest_insert_us: slowest.as_secs_f64() * 1e6,
    })
}

fn ns_each(table: &dyn Found, ids: &[u64]) -> f64 {
    let begun = cpu();
    for id in ids {
        black_box(table.wanted(black_box(*id)));
    }
    cpu().saturating_sub(begun).as_secs_f64() * 1e9 / f64::from(place(ids.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_way_finds_what_is_there_and_nothing_else() {
        for way in FindWay::value_variants() {
            let (table, _) = way.fill(&[5, 7 << 40, 9]);
            assert_eq!([5, 7 << 40, 9, 6].map(|id| table.wanted(id)), [Some(5), Some(7 << 40), Some(9), None], "{way:?}");
        }
    }
}
