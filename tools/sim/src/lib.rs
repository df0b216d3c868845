//! The simulator: the real cores of agent and server, unchanged, in a world made from one seed.
//!
//! Virtual clocks with rates of their own, a network that loses, repeats, delays, reorders and damages, a disk that crashes, machines
//! that stand still, and users who use locks and files; judges watch every step from outside and know true time. Implements the
//! invariants I1 to I21 by looking for a run in which one does not hold. Same seed, same run, to the last byte.
//!
//! | file | decides |
//! |---|---|
//! | [`plan`] | what a seed chooses: settings, clocks, network, disk, users, faults |
//! | [`world`] | what happens next, and in which order a machine's turn goes |
//! | [`host`] | what surrounds a core on its machine |
//! | [`net`], [`disk`], [`clock`], [`rng`] | datagrams, durability, readings, chance |
//! | [`users`] | what is asked of agents |
//! | [`observe`], [`judge`], [`counters`] | what is seen, whether it is right, whether it was reached |
//! | [`run`], [`campaign`], [`shrink`], [`report`] | many runs, the smallest failing one, telling people |
//! | [`group`], [`joining`] | worlds of their own: servers that share a store, hosts that are not known yet |
//! | [`script`] | told by hand, not drawn: scenarios as tests, and what a lease costs over a long time |
//! | [`trace`] | one run in words and as a capture file |
//! | [`bugs`] | how fast a deliberate bug is found |
//! | [`cli`], [`command`] | the program |

pub mod attack;
pub mod bugs;
pub mod campaign;
pub mod cli;
pub mod clock;
pub mod command;
pub mod counters;
pub mod disk;
pub mod group;
pub mod host;
pub mod joining;
pub mod judge;
#[cfg(feature = "bugs")]
pub mod ledger;
pub mod net;
pub mod observe;
pub mod plan;
pub mod report;
pub mod rng;
pub mod run;
pub mod script;
pub mod sealing;
pub mod shrink;
pub mod trace;
pub mod users;
pub mod world;
