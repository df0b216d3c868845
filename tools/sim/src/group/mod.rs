//! A group of servers in virtual time: the real machines of a few servers and of agents, a store that all share, and partitions
//! between any two of them.
//!
//! Decides the world beside the one of a single server (`world`): servers are elected by a lease of their own, and write the store behind
//! a fence. Judges: no two servers renew at one instant of true time, tokens grow, what was answered is there, no change is made twice, no
//! agent is sent to and fro by false hints; and when everything is mended somebody serves, also if a minority stays dead.
//! Invariant: a seed decides everything.

mod etcd;
mod hosts;
mod judge;
mod keys;
mod plan;
mod world;

pub use plan::{GroupFault, GroupPlan, Place, Trouble};
pub use world::{GroupOutcome, simulate};
