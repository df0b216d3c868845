//! Tests on separate hosts: network namespaces joined by a bridge, real processes of `cistern` and `cisternd` in each.
//!
//! Decides: what the protocol promises when the network between hosts fails, loses, changes addresses or carries only small packets,
//! and when a host stands still. Each test has a network of its own, taken away at its end. They need root and the programs `ip`,
//! `nft` and `conntrack`; elsewhere each is skipped and says why. Nothing here asserts speed: waiting is bounded, and instants are
//! compared only where the protocol orders them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]

mod cast;
mod joining;
mod loss;
mod moving;
mod partition;
mod peers;
mod places;
mod sizes;
mod standstill;
mod two_hosts;
