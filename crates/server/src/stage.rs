//! stub
#![allow(missing_docs, unused_variables)]
use cistern_link::Instant;
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

/// Contents being collected, by session and stage number.
#[derive(Debug)]
pub struct Stages {}
impl Stages {
    pub fn new(limits: StageLimits) -> Self { unimplemented!() }
    /// Takes one piece in. EFBIG, EINVAL, BUSY.
    pub fn piece(&mut self, now: Instant, session: SessionId, stage: u64, total: u32, offset: u32, data: &[u8]) -> Result<(), Status> { unimplemented!() }
    /// The contents, when all pieces are there; NOT_STAGED otherwise.
    pub fn contents(&self, session: SessionId, stage: u64) -> Result<&[u8], Status> { unimplemented!() }
    /// Forgets one (after its WRITE was executed).
    pub fn remove(&mut self, session: SessionId, stage: u64) { unimplemented!() }
    /// Forgets all of a session.
    pub fn end_session(&mut self, session: SessionId) { unimplemented!() }
    /// Forgets what is idle too long.
    pub fn expire(&mut self, now: Instant) { unimplemented!() }
    /// When `expire` has something to do at the earliest; None: nothing is staged.
    pub fn next_expiry(&self) -> Option<Instant> { unimplemented!() }
    pub fn bytes(&self) -> usize { unimplemented!() }
}
