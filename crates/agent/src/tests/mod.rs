//! Packet scripts: one agent, and a server whose every word the test decides. Whole messages are compared, and nothing else may be
//! sent. Each test is named after the claim that it makes.

mod script;

mod closing;
mod demands;
mod doubt;
mod foreign;
mod guards;
mod idle;
mod joining;
mod locking;
mod many;
mod nacks;
mod opening;
mod outcomes;
mod random;
mod reclaim;
mod renewal;
mod resending;
mod resuming;
mod roster;
mod sealed;
mod sessions;
mod sharing;
mod standbys;
mod surrender;
mod telling;
mod watches;
