//! What a capture tells: the story of sessions, leases and locks, and which rules of the protocol it keeps or breaks.
//!
//! Decides nothing about a cluster that runs: it only reads datagrams, in the order in which they were captured, and never knows more
//! than they show. Place in the walk: behind a capture (a file, a live interface, the simulator), before whoever shows or judges it.
//! Implements the observer's side of `wire-spec.md` sections 3 to 7 and 11. Invariant: memory is bounded however long the capture is,
//! and what was forgotten is counted, so that no verdict rests on it.
//!
//! | file | decides |
//! |---|---|
//! | [`vantage`] | where the capture was taken, and so what order, time and absence prove |
//! | [`event`] | what can happen in a story |
//! | [`story`] | sessions, requests, notices, leases and locks, brought up to date by each datagram |
//! | [`rule`] | which rules are judged, with their statements |
//! | `checks`, [`verdict`] | whether they are kept, broken, or cannot be decided, and why |
//!
//! Leaves to others: capture files and link types, pictures and listings.

mod auditor;
mod checks;
pub mod event;
pub mod rule;
pub mod story;
pub mod vantage;
pub mod verdict;

#[cfg(test)]
mod bench;

pub use auditor::Auditor;
pub use event::{Answer, Cause, Event, Grant, Host, HostId, How, Interval, IntervalKind, Passage, Renewal, Role, What};
pub use rule::Rule;
pub use story::{Handshake, Said, Session, Story, Tally};
pub use vantage::{Side, Terms, Vantage};
pub use verdict::{Count, Report, Violation, Why};
