//! Joining in virtual time: hosts that come with lines of invites, one after another and at once, to a server that dies between.
//!
//! Decides the world beside those of sessions (`world`, `group`): a key that is not known yet has no session that judges could look at. The machines are
//! the real ones, with real keys. A seed decides everything.
//! Judged at each step: an invite registers as many keys as it has uses, each with its use in one transaction; who was told that it joined is registered
//! durably, as what it was told, for ever. In the end everybody has been told one or the other, and every use has its key.

mod judge;
mod plan;
mod world;

pub use plan::{InvitedHost, InvitedPlan};
pub use world::{InvitedOutcome, admit};
