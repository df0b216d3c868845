//! Staged contents: what arrives in several datagrams, to be written once, whole.
//!
//! Decides: whether a piece is taken, and whether a stage is complete. Place in the walk: STAGE fills it, the mutation that names the
//! stage ends it, done or failed. Implements `wire-spec.md` sections 6.2 and 11.5.
//! Invariant: nothing staged is part of any file. A stage that is not complete gives nothing; pieces are idempotent; memory is
//! bounded by session and in all, and a stage that nobody goes on with is dropped after a time.
//! Leaves to others: at-most-once (the reply cache), writing (`namespace`), waking up for [`Stages::expire`].

use crate::config::StageLimits;
use crate::ids::FlowId;
use crate::share::{RETRY_MS, Shared, take, used_up};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::limits::CONTENT_MAX;
use cistern_wire::{Limit, Limited, SessionId, Status, Whose};

/// Bytes of a stage for each range in it, which takes 16 itself: of pieces as small as this every second one is lost.
const RANGE_BYTES: usize = 256;
/// Ranges that any stage may have.
const RANGES_MIN: usize = 8;

/// Bytes that every owner may stage.
const RESERVE: usize = 64 << 10;

/// Contents being collected, by session and number of the stage.
#[derive(Debug)]
pub struct Stages {
    stages: BTreeMap<(SessionId, u64), Staged>,
    bytes: usize,
    /// The bytes of each owner that has any.
    by_owner: BTreeMap<FlowId, usize>,
    /// Nothing expires before; later than that only by chance, as stages are gone on with.
    check_at: Option<Instant>,
    limits: StageLimits,
}

#[derive(Debug)]
struct Staged {
    /// Whose session's it is.
    owner: FlowId,
    /// How long it will be.
    total: usize,
    /// Up to the last byte that has come.
    bytes: Vec<u8>,
    /// What has arrived: disjoint, not adjacent, in order; each a first byte and the one after the last.
    arrived: Vec<(usize, usize)>,
    until: Instant,
}

impl Stages {
    /// Nothing is staged.
    #[must_use]
    pub const fn new(limits: StageLimits) -> Self {
        Self { stages: BTreeMap::new(), bytes: 0, by_owner: BTreeMap::new(), check_at: None, limits }
    }

    /// Takes one piece in: `data` at `offset` of contents of `total` bytes. A piece may come again, and in any order. No piece of a
    /// `total` of 0 ends the stage, which need not be there. Gives how many bytes were filled besides, in which nothing has come yet.
    ///
    /// # Errors
    /// EFBIG: larger than the largest contents. EINVAL: stage 0, no bytes, a piece outside the whole, or another `total` than before.
    /// BUSY: a bound is reached. Nothing has changed then.
    pub(crate) fn piece(
        &mut self,
        now: Instant,
        (session, owner): (SessionId, FlowId),
        stage: u64,
        (total, offset): (u32, u32),
        data: &[u8],
    ) -> Result<usize, Status> {
        let (total, offset) = (total as usize, offset as usize);
        if total > CONTENT_MAX {
            return Err(Status::EFBIG);
        }
        let end = offset.checked_add(data.len()).filter(|end| *end <= total);
        let (Some(end), false) = (end, stage == 0 || data.is_empty() && total > 0) else { return Err(Status::EINVAL) };
        if total == 0 {
            self.remove(session, stage);
            return Ok(0);
        }
        let known = self.stages.get(&(session, stage));
        if known.is_some_and(|staged| staged.total != total) {
            return Err(Status::EINVAL);
        }
        if known.is_some_and(|staged| staged.arrived.len() >= RANGES_MIN + staged.bytes.len() / RANGE_BYTES) {
            return Err(Status::BUSY);
        }
        //= wire-spec.md#11-5-caching-and-metadata
        //# The server MUST bound what is staged, in bytes and in time.
        // What counts is the memory that it takes: what was announced and has not come takes none.
        let growth = self.growth(session, stage, end);
        self.check_room(session, known.is_none(), growth)?;
        self.bytes += growth;
        let until = now.plus(self.limits.idle);
        self.check_at.get_or_insert(until);
        let new = || Staged { owner, total, bytes: Vec::new(), arrived: Vec::new(), until };
        let staged = self.stages.entry((session, stage)).or_insert_with(new);
        if growth > 0 {
            staged.bytes.resize(end, 0);
            *self.by_owner.entry(staged.owner).or_default() += growth;
        }
        staged.bytes[offset..end].copy_from_slice(data);
        staged.until = until;
        staged.arrive(offset, end);
        Ok(growth.saturating_sub(data.len()))
    }

    fn check_room(&self, session: SessionId, is_new: bool, growth: usize) -> Result<(), Status> {
        let (count, bytes) = self.of(session).fold((0, 0), |(count, bytes), (_, staged)| (count + 1, bytes + staged.bytes.len()));
        let fits = (!is_new || count < self.limits.stages_per_session)
            && bytes + growth <= self.limits.bytes_per_session
            && self.bytes + growth <= self.limits.bytes_total;
        if fits { Ok(()) } else { Err(Status::BUSY) }
    }

    /// How much more memory a stage takes when it reaches to `end`.
    fn growth(&self, session: SessionId, stage: u64, end: usize) -> usize {
        end.saturating_sub(self.stages.get(&(session, stage)).map_or(0, |staged| staged.bytes.len()))
    }

    /// Why a session may not stage a piece that ends there; `None`: it may. What is staged is written or dropped in time.
    pub(crate) fn limit(&self, (session, owner): (SessionId, FlowId), stage: u64, end: usize) -> Option<Limited> {
        let (shared, all) = self.shared();
        let (growth, own, bound) = (self.growth(session, stage, end), self.bytes_of(session), self.limits.bytes_per_session);
        let of_all = || self.by_owner.get(&owner).copied().unwrap_or(0);
        let limited = if growth > 0 && own + growth > bound {
            used_up(Limit::Staged, Whose::Session, own, bound)
        } else if !shared.admits_by(all, growth, of_all) {
            shared.limited(Limit::Staged, all, of_all(), growth)
        } else {
            return None;
        };
        Some(Limited { retry_ms: RETRY_MS, ..limited })
    }

    /// The memory for stages, and how much of it is used.
    pub(crate) const fn shared(&self) -> (Shared, usize) {
        (Shared { capacity: self.limits.bytes_total, reserve: RESERVE }, self.bytes)
    }

    fn of(&self, session: SessionId) -> impl Iterator<Item = (&(SessionId, u64), &Staged)> {
        self.stages.range((session, 0)..=(session, u64::MAX))
    }

    /// The contents of a stage.
    ///
    /// # Errors
    /// NOT_STAGED when pieces are missing, also when the stage was dropped or never begun.
    pub fn contents(&self, session: SessionId, stage: u64) -> Result<&[u8], Status> {
        let staged = self.stages.get(&(session, stage)).ok_or(Status::NOT_STAGED)?;
        //= wire-spec.md#11-5-caching-and-metadata
        //# A mutation that names an incomplete stage MUST fail with NOT_STAGED and change nothing.
        if staged.arrived == [(0, staged.total)] { Ok(&staged.bytes) } else { Err(Status::NOT_STAGED) }
    }

    /// Drops a stage, if it is there: it was written, or never will be.
    pub fn remove(&mut self, session: SessionId, stage: u64) {
        if let Some(staged) = self.stages.remove(&(session, stage)) {
            self.bytes -= staged.bytes.len();
            take(&mut self.by_owner, staged.owner, staged.bytes.len());
        }
        if self.stages.is_empty() {
            self.check_at = None;
        }
    }

    /// Drops all stages of a session that has ended.
    pub fn end_session(&mut self, session: SessionId) {
        let all: Vec<u64> = self.of(session).map(|((_, stage), _)| *stage).collect();
        for stage in all {
            self.remove(session, stage);
        }
    }

    /// Drops the stages with which nobody went on in time.
    pub fn expire(&mut self, now: Instant) {
        if self.check_at.is_none_or(|at| !now.waited(at)) {
            return;
        }
        let (bytes, by_owner) = (&mut self.bytes, &mut self.by_owner);
        self.stages.retain(|_, staged| {
            let keep = !now.waited(staged.until);
            if !keep {
                *bytes -= staged.bytes.len();
                take(by_owner, staged.owner, staged.bytes.len());
            }
            keep
        });
        // Both readings count, so the earliest by one of them will do; at worst it is looked at again.
        self.check_at = self.stages.values().map(|staged| staged.until).min_by_key(|until| until.raw_ns);
    }

    /// When [`Self::expire`] is to be called at the latest; `None`: nothing is staged, no timer is needed.
    #[must_use]
    pub const fn next_expiry(&self) -> Option<Instant> {
        self.check_at
    }

    /// Bytes staged by a session.
    #[must_use]
    pub fn bytes_of(&self, session: SessionId) -> usize {
        self.of(session).map(|(_, staged)| staged.bytes.len()).sum()
    }

    /// Bytes staged, by all sessions.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Staged {
    /// Notes what has arrived, joined with what it overlaps or touches.
    fn arrive(&mut self, mut first: usize, mut end: usize) {
        let from = self.arrived.partition_point(|range| range.1 < first);
        let count = self.arrived[from..].partition_point(|range| range.0 <= end);
        for old in self.arrived.drain(from..from + count) {
            first = first.min(old.0);
            end = end.max(old.1);
        }
        self.arrived.insert(from, (first, end));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::time::Duration;
    use proptest::prelude::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);
    /// A session of an owner of its own.
    fn by(session: SessionId) -> (SessionId, FlowId) {
        (session, FlowId(u32::try_from(session.0).unwrap()))
    }

    const START: Instant = Instant::new(0, 0);

    fn stages() -> Stages {
        Stages::new(StageLimits::default())
    }

    //= wire-spec.md#11-5-caching-and-metadata
    //= type=test
    //# A mutation that names an incomplete stage MUST fail with NOT_STAGED and change nothing.
    #[test]
    fn stage_is_given_only_when_every_piece_is_there() {
        let mut s = stages();
        assert_eq!(s.contents(A, 1), Err(Status::NOT_STAGED));
        s.piece(START, by(A), 1, (6, 4), b"ef").unwrap();
        s.piece(START, by(A), 1, (6, 0), b"ab").unwrap();
        assert_eq!(s.contents(A, 1), Err(Status::NOT_STAGED));
        s.piece(START, by(A), 1, (6, 2), b"cd").unwrap();
        s.piece(START, by(A), 1, (6, 0), b"ab").unwrap();
        assert_eq!(s.contents(A, 1), Ok(&b"abcdef"[..]));
        assert_eq!(s.contents(B, 1), Err(Status::NOT_STAGED), "a stage belongs to its session");
        s.remove(A, 1);
        assert_eq!((s.contents(A, 1), s.bytes()), (Err(Status::NOT_STAGED), 0));
    }

    #[test]
    fn impossible_pieces_are_errors_and_change_nothing() {
        let mut s = stages();
        let too_big = u32::try_from(CONTENT_MAX).unwrap() + 1;
        assert_eq!(s.piece(START, by(A), 1, (too_big, 0), b"a"), Err(Status::EFBIG));
        assert_eq!(s.piece(START, by(A), 0, (1, 0), b"a"), Err(Status::EINVAL));
        assert_eq!(s.piece(START, by(A), 1, (1, 0), b""), Err(Status::EINVAL));
        assert_eq!(s.piece(START, by(A), 1, (2, 1), b"ab"), Err(Status::EINVAL));
        assert_eq!(s.piece(START, by(A), 1, (2, u32::MAX), b"ab"), Err(Status::EINVAL));
        assert_eq!((s.bytes(), s.next_expiry()), (0, None));
        s.piece(START, by(A), 1, (2, 0), b"a").unwrap();
        assert_eq!(s.piece(START, by(A), 1, (3, 1), b"b"), Err(Status::EINVAL), "another total");
        s.piece(START, by(A), 1, (2, 1), b"b").unwrap();
        assert_eq!(s.contents(A, 1), Ok(&b"ab"[..]));
    }

    //= wire-spec.md#11-5-caching-and-metadata
    //= type=test
    //# The server MUST bound what is staged, in bytes and in time.
    #[test]
    fn bounds_count_what_has_arrived_not_what_is_announced() {
        let limits = StageLimits { bytes_per_session: 10, bytes_total: 15, stages_per_session: 2, idle: Duration::from_secs(1) };
        let mut s = Stages::new(limits);
        s.piece(START, by(A), 1, (1_000, 0), b"abcdef").unwrap();
        assert_eq!(s.piece(START, by(A), 2, (1_000, 4), b"a"), Err(Status::BUSY), "memory up to the last byte that came");
        s.piece(START, by(A), 2, (1_000, 0), b"abcd").unwrap();
        assert_eq!(s.piece(START, by(B), 1, (6, 0), b"abcdef"), Err(Status::BUSY));
        s.piece(START, by(B), 1, (6, 0), b"abcde").unwrap();
        s.end_session(A);
        assert_eq!((s.bytes(), &s.by_owner), (5, &BTreeMap::from([(by(B).1, 5)])));
        s.piece(START, by(B), 2, (1, 0), b"a").unwrap();
        assert_eq!(s.piece(START, by(B), 3, (1, 0), b"a"), Err(Status::BUSY), "too many stages");
        assert!(s.limit(by(A), 1, 9).is_none() && s.limit(by(A), 1, 10).is_some(), "an owner that has little may have what there is");
    }

    #[test]
    fn one_owner_leaves_others_a_share() {
        let limits = StageLimits { bytes_per_session: 4 << 20, bytes_total: 4 << 20, ..StageLimits::default() };
        let mut s = Stages::new(limits);
        let mut stages = 0;
        // The last byte takes the memory of all before it.
        while s.limit(by(A), stages + 1, 500_000).is_none() {
            stages += 1;
            s.piece(START, by(A), stages, (1 << 20, 499_999), b"x").unwrap();
        }
        assert_eq!(stages, 6, "3 of 4 MiB");
        assert!(s.limit(by(B), 1, 500_000).is_none());
    }

    #[test]
    fn what_takes_no_memory_is_within_every_share() {
        let limits = StageLimits { bytes_per_session: 4 << 20, bytes_total: 4 << 20, stages_per_session: 4_096, ..StageLimits::default() };
        let mut s = Stages::new(limits);
        for (session, len) in [(A, 500_000), (B, 100_000)] {
            let mut stage = 1;
            while s.limit(by(session), stage, len).is_none() {
                s.piece(START, by(session), stage, (500_000, u32::try_from(len).unwrap() - 1), b"x").unwrap();
                stage += 1;
            }
        }
        assert!(s.limit(by(A), 1, 500_001).is_some(), "more than its share, now that another has come");
        assert!(s.limit(by(A), 1, 250_000).is_none(), "a piece for which there is memory");
        assert!(s.limit(by(A), 1, 0).is_none(), "the end of a stage");
    }

    //= wire-spec.md#11-5-caching-and-metadata
    //= type=test
    //# The server MUST bound what is staged, in bytes and in time.
    #[test]
    fn stage_with_which_nobody_goes_on_is_dropped() {
        let mut s = stages();
        s.piece(START, by(A), 1, (2, 0), b"a").unwrap();
        let later = START.plus(Duration::from_secs(20));
        s.piece(later, by(A), 1, (2, 0), b"a").unwrap();
        s.piece(START, by(A), 2, (2, 0), b"a").unwrap();
        assert_eq!(s.next_expiry(), Some(START.plus(Duration::from_secs(30))));
        s.expire(START.plus(Duration::from_secs(30)));
        assert_eq!((s.bytes(), s.next_expiry()), (1, Some(later.plus(Duration::from_secs(30)))));
        assert_eq!(s.by_owner, BTreeMap::from([(by(A).1, 1)]));
        s.expire(later.plus(Duration::from_secs(30)));
        assert_eq!((s.bytes(), s.next_expiry()), (0, None));
    }

    #[test]
    fn stage_ends_with_a_total_of_nothing() {
        let mut s = stages();
        for stage in [1, 2] {
            s.piece(START, by(A), stage, (2, 0), b"ab").unwrap();
        }
        s.piece(START, by(A), 1, (0, 0), b"").unwrap();
        assert_eq!((s.contents(A, 1), s.contents(A, 2), s.bytes()), (Err(Status::NOT_STAGED), Ok(&b"ab"[..]), 2));
        s.piece(START, by(A), 1, (0, 0), b"").unwrap();
        s.piece(START, by(B), 2, (0, 0), b"").unwrap();
        assert_eq!(s.bytes(), 2, "a stage belongs to its session");
        assert_eq!(s.piece(START, by(A), 2, (0, 1), b""), Err(Status::EINVAL), "outside the total");
        assert_eq!(s.piece(START, by(A), 0, (0, 0), b""), Err(Status::EINVAL));
    }

    #[test]
    fn pieces_with_so_many_gaps_that_these_take_memory_are_refused() {
        let with = |piece: &[u8]| {
            let (mut s, mut offset) = (stages(), 0);
            while s.piece(START, by(A), 1, (4_096, offset), piece).is_ok() {
                offset += 2 * u32::try_from(piece.len()).unwrap();
            }
            offset
        };
        assert_eq!(with(b"a"), 16);
        assert_eq!(with(&[b'a'; RANGE_BYTES]), 4_096, "every second one of them may be lost");
    }

    proptest! {
        #[test]
        fn pieces_in_any_order_make_the_whole(pieces in proptest::collection::vec((0..40u32, 1..10usize), 1..30)) {
            let whole: Vec<u8> = (0..40).collect();
            let mut s = stages();
            let mut seen = [false; 40];
            for (offset, len) in pieces {
                let first = offset as usize;
                let end = (first + len).min(40);
                s.piece(START, by(A), 1, (40, offset), &whole[first..end]).unwrap();
                seen[first..end].fill(true);
                let complete = seen.iter().all(|seen| *seen);
                prop_assert_eq!(s.contents(A, 1).ok(), complete.then_some(&whole[..]));
            }
        }
    }
}
