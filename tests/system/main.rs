//! Whole-system tests: real processes of `cistern` on loopback, one file per group of rules.
//!
//! Decides: what a user sees of the protocol through the programs. Orders of messages that real networks seldom give are tested on
//! the single machines, in their own crates. Nothing here asserts speed: waiting is bounded, and instants are compared only where
//! the protocol orders them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on says where")]
#![allow(clippy::print_stderr, reason = "a test that is skipped says so")]

mod api;
mod attacks;
mod bad_input;
mod bindings;
mod cache;
mod captures;
mod changes;
mod command;
mod credentials;
mod disk;
mod dissector;
mod documents;
mod durable;
mod failure;
mod files;
mod first_hour;
mod former;
mod front;
mod joining;
mod lease;
mod linearizable;
mod locked_path;
mod locks;
mod log;
mod membership;
mod metrics;
mod named_leases;
mod netfault;
mod operators;
mod own_key;
mod packages;
mod page;
mod peers;
mod plan;
mod posix;
mod recipe_examples;
mod recipes;
mod recipes_apart;
mod relay;
mod reload;
mod rights;
mod rotation;
mod sealed;
mod starving;
mod stopped;
mod top;
mod trees;
mod units;
mod waiting;
