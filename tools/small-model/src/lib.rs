//! An exhaustive timed model of the lease: one server, two agents, one exclusive lock, and a network that may do anything.
//!
//! It is the small model beside `wire-spec.md`, written from its section 11 and not from the code: what breaks here is a rule, not
//! an implementation of it. Read in this order: [`rules`] (numbers and switches), [`state`], [`network`], [`agent`], [`server`],
//! [`model`] (which steps there are), [`properties`] (what must hold), [`bugs`] (what must break it), [`canon`] (what makes it small),
//! [`check`] and [`trace`] (running it, and reading what it finds). `docs/small-model.md` says what a clean run proves and what not.

pub mod agent;
pub mod bugs;
pub mod canon;
pub mod check;
pub mod model;
pub mod network;
pub mod properties;
pub mod report;
pub mod rules;
pub mod server;
pub mod state;
pub mod trace;
