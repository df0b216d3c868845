//! Tests of the operations against a toy server: what needs a message and what does not, and that nothing stale is ever told.

mod bench;
mod cached;
mod held;
mod leases;
mod lines;
mod listings;
mod mutations;
mod random;
mod toy;
mod transfers;
mod trouble;
mod walks;
mod whole;
