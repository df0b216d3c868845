//! Scenarios: one readable test for each edge that other lock services got wrong, over the real cores in virtual time.
//!
//! Each tells a schedule from top to bottom in the words of `cistern_sim::script`, and says who got it wrong and what would happen then.
//! All judges of the simulator watch besides. M numbers are deliberate bugs, F numbers failures that the rules (R numbers) prevent.

mod attack;
#[cfg(feature = "bugs")]
mod bugs;
mod cache;
mod delivery;
mod disk;
mod failure;
mod group;
mod identity;
mod joining;
mod lease;
mod locks;
mod membership;
mod named_leases;
mod realms;
mod reclaim;
mod regressions;
mod restart;
mod resuming;
mod rights;
mod sealed;
mod shares;
mod transcripts;
mod turns;
