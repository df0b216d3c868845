//! What users ask of an agent and what it tells them: commands, outputs, errors, events.
//!
//! Decides: the vocabulary between the agent's core and its users (the client library, the command line, the simulator).
//! Place in the walk: `Agent::submit` takes a [`Command`]; its end comes back at once or as [`Event::Done`].
//! Invariant: every command ends exactly once, with an output or an error that says what is known of its outcome.
//! Leaves to others: how a command is carried out (`tasks`), locks (`locks`), sockets and threads (the client library).

mod command;
mod told;

pub use command::{AttrChange, Command, Guard, HolderId, OpId, Ownership, Target, Wait, WatchId};
pub use told::{Event, LeaseView, Listed, LockEvent, LockInfo, Locked, OpError, Output, Phase, Submitted, WatchEvent};
