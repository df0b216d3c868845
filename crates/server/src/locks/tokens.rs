//! The one increasing counter of generations and fencing tokens (R64, R73).
#![allow(missing_docs, unused_variables, clippy::unimplemented)]
use cistern_wire::Generation;

#[derive(Debug)]
pub struct Tokens {}
impl Tokens {
    /// `reserved`: the value of `Counter::Tokens` in the store (0: none); tokens at and below it were given out, perhaps.
    pub fn new(epoch: u8, reserved: u64) -> Self { unimplemented!() }
    /// The first of `run` consecutive tokens; None: a block must become durable first.
    pub fn take(&mut self, run: u32) -> Option<Generation> { unimplemented!() }
    pub fn wanted(&mut self) -> Option<u64> { unimplemented!() }
    pub fn durable(&mut self, up_to: u64) { unimplemented!() }
}
