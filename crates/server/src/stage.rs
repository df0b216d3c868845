//! Contents that come in pieces, until a WRITE names them (R80).
//!
//! Decides: which pieces are taken, and when a stage is complete or forgotten. Place in the walk: STAGE fills it, WRITE takes from it.
//! Implements `wire-spec.md` sections 6.2 (STAGE) and 8.2.
//! Invariants: nothing staged is ever seen by a read; what all sessions have staged is bounded, and what nobody goes on with is
//! forgotten in time. A piece that comes twice is one piece.
//! Leaves to others: executing the WRITE, once and whole (`execute`, `namespace`).

use alloc::collections::BTreeMap;
use alloc::vec;
use alloc::vec::Vec;
use cistern_link::Instant;
use cistern_wire::limits::CONTENT_MAX;
use cistern_wire::{SessionId, Status};
use core::time::Duration;

/// Bounds of staged contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StageLimits {
    /// Most bytes staged by one session; at least `CONTENT_MAX`.
    pub bytes_per_session: usize,
    /// Most bytes staged by all sessions; at least `bytes_per_session`.
    pub bytes_total: usize,
    /// Most stages of one session.
    pub stages_per_session: usize,
    /// How long a stage is kept after its last piece.
    pub idle: Duration,
}

/// One stage. Its bytes are reserved whole by its first piece, so that a bound is met at the start and not in the middle.
#[derive(Debug)]
struct Staged {
    bytes: Vec<u8>,
    /// Where pieces have come, as disjoint ranges in order: begin and end.
    there: Vec<(usize, usize)>,
    until: Instant,
}

impl Staged {
    fn complete(&self) -> bool {
        self.bytes.is_empty() || self.there == [(0, self.bytes.len())]
    }

    fn put(&mut self, offset: usize, data: &[u8]) {
        let end = offset + data.len();
        self.bytes[offset..end].copy_from_slice(data);
        let (mut begin, mut last) = (offset, end);
        // Ranges that touch the new one become one with it.
        self.there.retain(|&(from, to)| {
            let apart = to < begin || from > last;
            if !apart {
                begin = begin.min(from);
                last = last.max(to);
            }
            apart
        });
        let at = self.there.partition_point(|&(from, _)| from < begin);
        self.there.insert(at, (begin, last));
    }
}

/// Contents being collected, by session and stage number.
#[derive(Debug)]
pub struct Stages {
    limits: StageLimits,
    stages: BTreeMap<(SessionId, u64), Staged>,
    bytes: usize,
}

impl Stages {
    /// Nothing staged yet.
    #[must_use]
    pub const fn new(limits: StageLimits) -> Self {
        Self { limits, stages: BTreeMap::new(), bytes: 0 }
    }

    /// Takes one piece in.
    ///
    /// # Errors
    /// EFBIG: the total is above 1 MiB. EINVAL: stage 0, a piece outside the total, or another total than before. BUSY: a bound.
    pub fn piece(&mut self, now: Instant, session: SessionId, stage: u64, total: u32, offset: u32, data: &[u8]) -> Result<(), Status> {
        let (total, offset) = (usize::try_from(total).unwrap_or(usize::MAX), usize::try_from(offset).unwrap_or(usize::MAX));
        if total > CONTENT_MAX {
            return Err(Status::EFBIG);
        }
        if stage == 0 || offset.checked_add(data.len()).is_none_or(|end| end > total) {
            return Err(Status::EINVAL);
        }
        let until = now.plus(self.limits.idle);
        if !self.stages.contains_key(&(session, stage)) {
            self.check_bounds(session, total)?;
            self.bytes += total;
            self.stages.insert((session, stage), Staged { bytes: vec![0; total], there: Vec::new(), until });
        }
        let staged = self.stages.get_mut(&(session, stage)).ok_or(Status::BUSY)?;
        if staged.bytes.len() != total {
            return Err(Status::EINVAL);
        }
        staged.until = until;
        if !data.is_empty() {
            staged.put(offset, data);
        }
        Ok(())
    }

    fn check_bounds(&self, session: SessionId, more: usize) -> Result<(), Status> {
        let (mut stages, mut bytes) = (0, 0);
        for (_, staged) in self.of(session) {
            stages += 1;
            bytes += staged.bytes.len();
        }
        let fits = stages < self.limits.stages_per_session
            && bytes + more <= self.limits.bytes_per_session
            && self.bytes + more <= self.limits.bytes_total;
        if fits { Ok(()) } else { Err(Status::BUSY) }
    }

    fn of(&self, session: SessionId) -> impl Iterator<Item = (&(SessionId, u64), &Staged)> {
        self.stages.range((session, 0)..=(session, u64::MAX))
    }

    /// The contents, when all pieces are there.
    ///
    /// # Errors
    /// NOT_STAGED.
    pub fn contents(&self, session: SessionId, stage: u64) -> Result<&[u8], Status> {
        let staged = self.stages.get(&(session, stage)).filter(|staged| staged.complete());
        staged.map(|staged| staged.bytes.as_slice()).ok_or(Status::NOT_STAGED)
    }

    /// Forgets one (after its WRITE was executed).
    pub fn remove(&mut self, session: SessionId, stage: u64) {
        if let Some(staged) = self.stages.remove(&(session, stage)) {
            self.bytes -= staged.bytes.len();
        }
    }

    /// Forgets all of a session.
    pub fn end_session(&mut self, session: SessionId) {
        let stages: Vec<u64> = self.of(session).map(|((_, stage), _)| *stage).collect();
        for stage in stages {
            self.remove(session, stage);
        }
    }

    /// Forgets what is idle too long.
    pub fn expire(&mut self, now: Instant) {
        let idle: Vec<_> = self.stages.iter().filter(|(_, staged)| now.waited(staged.until)).map(|(key, _)| *key).collect();
        for (session, stage) in idle {
            self.remove(session, stage);
        }
    }

    /// When `expire` has something to do at the earliest; `None`: nothing is staged.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Instant> {
        self.stages.values().map(|staged| staged.until).min_by_key(|until| until.raw_ns)
    }

    /// Bytes reserved by all sessions.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: SessionId = SessionId(1);
    const B: SessionId = SessionId(2);

    fn at(s: u64) -> Instant {
        Instant::new(s * 1_000_000_000, s * 1_000_000_000)
    }

    fn stages() -> Stages {
        Stages::new(StageLimits { bytes_per_session: 100, bytes_total: 150, stages_per_session: 2, idle: Duration::from_secs(10) })
    }

    #[test]
    fn contents_are_there_when_every_piece_is_in_whatever_order_and_however_often() {
        let mut s = stages();
        for (offset, data) in [(4, &b"ef"[..]), (0, b"ab"), (4, b"ef"), (1, b"bcd")] {
            assert_eq!(s.contents(A, 1), Err(Status::NOT_STAGED));
            s.piece(at(0), A, 1, 6, offset, data).unwrap();
        }
        assert_eq!(s.contents(A, 1), Ok(&b"abcdef"[..]));
        assert_eq!(s.contents(B, 1), Err(Status::NOT_STAGED), "a stage is its session's");
        s.remove(A, 1);
        assert_eq!((s.contents(A, 1), s.bytes()), (Err(Status::NOT_STAGED), 0));
    }

    #[test]
    fn pieces_that_do_not_fit_are_refused_by_name() {
        let mut s = stages();
        assert_eq!(s.piece(at(0), A, 1, 1 << 21, 0, b"x"), Err(Status::EFBIG));
        assert_eq!(s.piece(at(0), A, 0, 4, 0, b"x"), Err(Status::EINVAL));
        assert_eq!(s.piece(at(0), A, 1, 4, 4, b"x"), Err(Status::EINVAL));
        assert_eq!(s.piece(at(0), A, 1, 4, u32::MAX, b"x"), Err(Status::EINVAL));
        s.piece(at(0), A, 1, 4, 0, b"x").unwrap();
        assert_eq!(s.piece(at(0), A, 1, 5, 0, b"x"), Err(Status::EINVAL), "another total");
    }

    #[test]
    fn bounds_are_met_by_the_first_piece() {
        let mut s = stages();
        s.piece(at(0), A, 1, 60, 0, b"x").unwrap();
        assert_eq!(s.piece(at(0), A, 2, 60, 0, b"x"), Err(Status::BUSY), "bytes of the session");
        s.piece(at(0), A, 2, 40, 0, b"x").unwrap();
        assert_eq!(s.piece(at(0), A, 3, 0, 0, b""), Err(Status::BUSY), "stages of the session");
        assert_eq!(s.piece(at(0), B, 1, 60, 0, b"x"), Err(Status::BUSY), "bytes of all");
        s.end_session(A);
        s.piece(at(0), B, 1, 60, 0, b"x").unwrap();
    }

    #[test]
    fn what_nobody_goes_on_with_is_forgotten() {
        let mut s = stages();
        s.piece(at(0), A, 1, 4, 0, b"x").unwrap();
        s.piece(at(5), A, 1, 4, 1, b"y").unwrap();
        assert_eq!(s.next_expiry(), Some(at(15)));
        s.expire(at(14));
        assert_eq!(s.bytes(), 4);
        s.expire(at(15));
        assert_eq!((s.bytes(), s.next_expiry()), (0, None));
    }
}
