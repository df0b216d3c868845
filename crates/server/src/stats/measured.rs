//! What is measured: requests by kind and result, commits, and how long each took.
//!
//! Decides what counts as the result of a request: the status of its reply, QUEUED for a lock that is waited for, or DROPPED when its agent gave
//! it up or its session ended first. Invariants: every request that was begun is counted once, when its fate is decided, a duplicate never; a
//! batch is in flight or in exactly one commit; bounds never change while the server runs, so that a reader can subtract two readings. Time is
//! that of the server's turns: what waits for nothing is answered in the turn in which it came, in no time.

use alloc::vec::Vec;
use cistern_wire::{Kind, Lane, ReplyKind, Status};

/// Counts of measurements, by bounds that are sorted and belong to the part below them; what is above all is counted apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Histogram<const N: usize> {
    bounds: &'static [u64; N],
    parts: [u64; N],
    above: u64,
    sum: u64,
}

impl<const N: usize> Histogram<N> {
    /// Nothing measured.
    #[must_use]
    pub const fn new(bounds: &'static [u64; N]) -> Self {
        Self { bounds, parts: [0; N], above: 0, sum: 0 }
    }

    pub(crate) fn add(&mut self, value: u64) {
        match self.bounds.iter().position(|bound| value <= *bound) {
            Some(part) => self.parts[part] += 1,
            None => self.above += 1,
        }
        self.sum = self.sum.saturating_add(value);
    }

    /// Each bound, and how many measurements were at most that.
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> {
        self.bounds.iter().zip(&self.parts).scan(0, |total, (bound, part)| {
            *total += part;
            Some((*bound, *total))
        })
    }

    /// How many measurements there were.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.parts.iter().sum::<u64>() + self.above
    }

    /// The sum of all measurements.
    #[must_use]
    pub const fn sum(&self) -> u64 {
        self.sum
    }
}

/// Nanoseconds in a microsecond.
const US: u64 = 1_000;
/// Nanoseconds in a millisecond.
const MS: u64 = 1_000 * US;

/// Bounds of waits and of commits, in nanoseconds: three for each power of ten, from below a fast disk's sync to above every timeout.
pub const WAIT_BOUNDS_NS: [u64; 18] = [
    100 * US,
    250 * US,
    500 * US,
    MS,
    2_500 * US,
    5 * MS,
    10 * MS,
    25 * MS,
    50 * MS,
    100 * MS,
    250 * MS,
    500 * MS,
    1_000 * MS,
    2_500 * MS,
    5_000 * MS,
    10_000 * MS,
    30_000 * MS,
    60_000 * MS,
];

/// Results beside the statuses: of a newer version, waits in line, never answered.
const OTHERS: [&str; 3] = ["?", "QUEUED", "DROPPED"];
const QUEUED: usize = Status::ALL.len() + 1;
const DROPPED: usize = Status::ALL.len() + 2;
const RESULTS: usize = Status::ALL.len() + OTHERS.len();

/// For each code of a message its place among the kinds of requests; 0xFF: it is none.
const PLACES: [u8; 256] = {
    let (mut places, mut next, mut at) = ([0xFF; 256], 0, 0);
    while at < Kind::ALL.len() {
        if matches!(Kind::ALL[at].lane(), Lane::Request) {
            places[Kind::ALL[at].code() as usize] = next;
            next += 1;
        }
        at += 1;
    }
    places
};

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServedAs {
    /// It was answered with this status.
    Answered(Status),
    /// It waits for a lock; its outcome is a notice.
    Queued,
    /// It had no effect and gets no answer.
    Dropped,
}

impl ServedAs {
    /// The result that an encoded reply tells.
    pub(crate) fn told(reply: &[u8]) -> Self {
        Self::Answered(match reply {
            [kind, a, b, ..] if *kind == ReplyKind::Failed as u8 => Status(u16::from_be_bytes([*a, *b])),
            [kind, ..] if *kind == ReplyKind::LockRefused as u8 => Status::EAGAIN,
            _ => Status::OK,
        })
    }

    fn place(self) -> usize {
        match self {
            Self::Answered(status) => Status::ALL.iter().position(|known| *known == status).unwrap_or(Status::ALL.len()),
            Self::Queued => QUEUED,
            Self::Dropped => DROPPED,
        }
    }
}

/// The requests of one kind.
#[derive(Clone, Debug)]
pub struct KindServed {
    kind: Kind,
    results: [u64; RESULTS],
    waits: Histogram<{ WAIT_BOUNDS_NS.len() }>,
}

impl KindServed {
    /// The kind.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        self.kind
    }

    /// Each result that has occurred, by name, and how often.
    pub fn results(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let names = Status::ALL.iter().map(|status| status.name()).chain(OTHERS);
        names.zip(self.results).filter(|counted| counted.1 > 0)
    }

    /// From the receipt of a request to its answer, in nanoseconds.
    #[must_use]
    pub const fn waits(&self) -> &Histogram<{ WAIT_BOUNDS_NS.len() }> {
        &self.waits
    }
}

/// All requests, by kind.
#[derive(Clone, Debug)]
pub struct Served(Vec<KindServed>);

impl Default for Served {
    fn default() -> Self {
        let requests = Kind::ALL.iter().copied().filter(|kind| PLACES[kind.code() as usize] != 0xFF);
        Self(requests.map(|kind| KindServed { kind, results: [0; RESULTS], waits: Histogram::new(&WAIT_BOUNDS_NS) }).collect())
    }
}

impl Served {
    pub(crate) fn count(&mut self, kind: Kind, served_as: ServedAs, waited_ns: u64) {
        let Some(of) = self.0.get_mut(usize::from(PLACES[kind.code() as usize])) else {
            debug_assert!(false, "{} is no request", kind.name());
            return;
        };
        of.results[served_as.place()] += 1;
        if served_as != ServedAs::Dropped {
            of.waits.add(waited_ns);
        }
    }

    /// Each kind of request, in order of code.
    #[must_use]
    pub fn kinds(&self) -> &[KindServed] {
        &self.0
    }

    /// How many requests have come to their fate.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().flat_map(|of| of.results).sum()
    }
}

/// What the store has made durable.
#[derive(Clone, Debug)]
pub struct Commits {
    /// Batches handed over and not known to be durable: number and time of handing over.
    flying: Vec<(u64, u64)>,
    /// Batches handed over.
    pub batches: u64,
    /// Keys that they wrote.
    pub writes: u64,
    /// Bytes of keys and values that they wrote.
    pub bytes: u64,
    /// How many batches became durable together.
    sizes: Histogram<{ SIZE_BOUNDS.len() }>,
    /// From the handing over of the oldest of them until the word that they are durable, in nanoseconds.
    times: Histogram<{ WAIT_BOUNDS_NS.len() }>,
}

/// Bounds of the number of batches in a commit.
pub const SIZE_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

impl Default for Commits {
    fn default() -> Self {
        Self {
            flying: Vec::new(),
            batches: 0,
            writes: 0,
            bytes: 0,
            sizes: Histogram::new(&SIZE_BOUNDS),
            times: Histogram::new(&WAIT_BOUNDS_NS),
        }
    }
}

impl Commits {
    pub(crate) fn handed_over(&mut self, batch: u64, now_ns: u64, writes: usize, bytes: usize) {
        self.flying.push((batch, now_ns));
        self.batches += 1;
        self.writes += writes as u64;
        self.bytes += bytes as u64;
    }

    pub(crate) fn durable(&mut self, batch: u64, now_ns: u64) {
        let done = self.flying.partition_point(|flying| flying.0 <= batch);
        if let Some((_, since)) = self.flying.drain(..done).next() {
            self.sizes.add(done as u64);
            self.times.add(now_ns.saturating_sub(since));
        }
    }

    /// Batches that the store has and has not made durable.
    #[must_use]
    pub fn flying(&self) -> usize {
        self.flying.len()
    }

    /// How many batches became durable together, each time.
    #[must_use]
    pub const fn sizes(&self) -> &Histogram<{ SIZE_BOUNDS.len() }> {
        &self.sizes
    }

    /// How long it took each time, in nanoseconds.
    #[must_use]
    pub const fn times(&self) -> &Histogram<{ WAIT_BOUNDS_NS.len() }> {
        &self.times
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;
    use cistern_wire::{Done, Failed, Field as _, Reply};

    #[test]
    fn a_measurement_is_counted_at_its_bound_and_all_above() {
        let mut histogram = Histogram::new(&[10, 20, 40]);
        for value in [0, 10, 11, 40, 41, u64::MAX] {
            histogram.add(value);
        }
        assert_eq!(histogram.up_to().collect::<Vec<_>>(), [(10, 2), (20, 3), (40, 4)]);
        assert_eq!((histogram.count(), histogram.sum()), (6, u64::MAX));
    }

    fn told(reply: &Reply<'_>) -> ServedAs {
        let mut bytes = Vec::new();
        reply.put(&mut bytes);
        ServedAs::told(&bytes)
    }

    #[test]
    fn the_result_of_a_reply_is_its_status() {
        assert_eq!(told(&Reply::Done(Done {})), ServedAs::Answered(Status::OK));
        assert_eq!(told(&Reply::Failed(Failed { status: Status::EEXIST, retry_ms: 7 })), ServedAs::Answered(Status::EEXIST));
    }

    #[test]
    fn every_status_has_a_count_of_its_own_and_an_unknown_one_is_not_lost() {
        let mut served = Served::default();
        for status in Status::ALL.iter().copied().chain([Status(999)]) {
            served.count(Kind::Create, ServedAs::Answered(status), 1);
        }
        served.count(Kind::Create, ServedAs::Queued, 1);
        served.count(Kind::Create, ServedAs::Dropped, 1);
        let of = served.kinds().iter().find(|of| of.kind() == Kind::Create).unwrap();
        assert!(of.results().all(|(_, count)| count == 1));
        assert_eq!((of.results().count(), served.total()), (RESULTS, RESULTS as u64));
        assert_eq!(of.waits().count(), RESULTS as u64 - 1, "what is dropped is not answered");
    }

    #[test]
    fn batches_that_become_durable_at_once_are_one_commit_timed_from_the_oldest() {
        let mut commits = Commits::default();
        for (batch, at) in [(1, 100), (2, 200), (3, 300)] {
            commits.handed_over(batch, at, 2, 50);
        }
        commits.durable(2, 1_100);
        assert_eq!((commits.flying(), commits.sizes().count(), commits.sizes().sum(), commits.times().sum()), (1, 1, 2, 1_000));
        commits.durable(2, 1_200);
        assert_eq!(commits.sizes().count(), 1, "said twice is one");
        commits.durable(u64::MAX, 1_300);
        assert_eq!((commits.flying(), commits.sizes().sum(), commits.batches, commits.writes, commits.bytes), (0, 3, 3, 6, 150));
    }
}
